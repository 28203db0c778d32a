//! The curves of a training: losses by step, average precision by epoch, learning rate by step.
//!
//! Smoothed values are worked out once as steps come in. A plot shows at most a few thousand points however long the run.

use egui::{Color32, Ui};
use egui_plot::{HoverPosition, Legend, Line, LineStyle, Plot, PlotPoints, Points};

use super::theme::palette;
use crate::session::RunView;
use crate::train::{EpochReport, StepReport};

/// Points of a line that are drawn.
const MAX_POINTS: usize = 2000;
/// Weight of the past in the running mean.
const SMOOTHING: f64 = 0.95;

/// How the losses are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurveStyle {
    pub is_smooth: bool,
    pub is_log: bool,
}

impl Default for CurveStyle {
    fn default() -> Self {
        Self { is_smooth: true, is_log: false }
    }
}

/// Running means of the three losses, one a step.
#[derive(Default)]
pub struct Smoothed {
    /// First step of the run that these belong to, to notice a new run.
    first: Option<StepReport>,
    means: Vec<[f64; 3]>,
    /// Sum of the weights so far: without it the first steps would be pulled towards zero.
    state: [f64; 3],
    weight: f64,
}

impl Smoothed {
    /// Takes in the steps that are new.
    pub fn update(&mut self, steps: &[StepReport]) {
        if self.first != steps.first().copied() || self.means.len() > steps.len() {
            *self = Self { first: steps.first().copied(), ..Self::default() };
        }
        for step in &steps[self.means.len()..] {
            let losses = losses_of(step).map(|loss| if loss.is_finite() { loss } else { 0.0 });
            self.weight = SMOOTHING * self.weight + (1.0 - SMOOTHING);
            let mut mean = [0.0; 3];
            for ((state, loss), mean) in self.state.iter_mut().zip(losses).zip(&mut mean) {
                *state = SMOOTHING * *state + (1.0 - SMOOTHING) * loss;
                *mean = *state / self.weight;
            }
            self.means.push(mean);
        }
    }
}

fn losses_of(step: &StepReport) -> [f64; 3] {
    [step.box_loss, step.cls_loss, step.dfl_loss].map(f64::from)
}

const LOSS_NAMES: [&str; 3] = ["box", "class", "dfl"];

/// Draws the losses over the space that is there, `height` high.
pub fn losses_ui(ui: &mut Ui, run: &RunView, smoothed: &Smoothed, style: CurveStyle, height: f32) {
    let palette = palette(ui);
    let scaled = move |loss: f64| if style.is_log { loss.max(1e-6).log10() } else { loss };
    let unscaled = move |y: f64| if style.is_log { 10f64.powf(y) } else { y };
    let stride = run.steps.len().div_ceil(MAX_POINTS).max(1);
    let x_of = |index: usize| run.steps[index].step as f64;
    let mut lines = Vec::new();
    for (which, name) in LOSS_NAMES.into_iter().enumerate() {
        let color = palette.curves[which];
        let raw: PlotPoints<'_> =
            (0..run.steps.len()).step_by(stride).map(|index| [x_of(index), scaled(losses_of(&run.steps[index])[which])]).collect();
        if style.is_smooth {
            lines.push(Line::new(name, raw).color(color.gamma_multiply(0.28)).width(1.0).allow_hover(false));
            let smooth: PlotPoints<'_> =
                (0..smoothed.means.len()).step_by(stride).map(|index| [x_of(index), scaled(smoothed.means[index][which])]).collect();
            lines.push(Line::new(name, smooth).color(color).width(2.0));
        } else {
            lines.push(Line::new(name, raw).color(color).width(1.5));
        }
    }
    let plot = base_plot("losses", "step", height, 20.0)
        .y_axis_formatter(move |mark, _| short_number(unscaled(mark.value)))
        .label_formatter(move |hover| match hover {
            HoverPosition::NearDataPoint { plot_name, position, .. } => {
                Some(format!("{plot_name}  {:.4}\nstep  {:.0}", unscaled(position.y), position.x))
            }
            HoverPosition::Elsewhere { .. } => None,
        });
    let plot = if style.is_log { plot } else { plot.include_y(0.0) };
    plot.show(ui, |plot| lines.into_iter().for_each(|line| plot.line(line)));
}

/// Draws mAP50 and mAP50-95.
pub fn scores_ui(ui: &mut Ui, epochs: &[EpochReport], n_epochs: usize, height: f32) {
    let palette = palette(ui);
    let score =
        |pick: fn(&EpochReport) -> f64| -> Vec<[f64; 2]> { epochs.iter().map(|epoch| [epoch.epoch as f64 + 1.0, pick(epoch)]).collect() };
    let series = [
        ("mAP50", palette.scores[0], score(|epoch| epoch.metrics.map50)),
        ("mAP50-95", palette.scores[1], score(|epoch| epoch.metrics.map50_95)),
    ];
    let best = series[0].2.iter().map(|point| point[1]).fold(0.0, f64::max);
    base_plot("scores", "epoch", height, 4.0)
        .include_y(0.0)
        // Room above the curve; never more than the whole scale.
        .include_y((best * 1.15).clamp(0.1, 1.0))
        .include_x(1.0)
        .include_x(n_epochs.max(2) as f64)
        .y_axis_formatter(|mark, _| format!("{:.2}", mark.value))
        .label_formatter(|hover| match hover {
            HoverPosition::NearDataPoint { plot_name, position, .. } => {
                Some(format!("{plot_name}  {:.3}\nepoch  {:.0}", position.y, position.x))
            }
            HoverPosition::Elsewhere { .. } => None,
        })
        .show(ui, |plot| {
            for (name, color, points) in series {
                // A single epoch has no line yet.
                if points.len() < 3 {
                    plot.points(Points::new(name, points.clone()).color(color).radius(3.5));
                }
                plot.line(Line::new(name, points).color(color).width(2.0));
            }
        });
}

/// Draws the learning rate.
pub fn rate_ui(ui: &mut Ui, steps: &[StepReport], height: f32) {
    let color: Color32 = palette(ui).weak;
    let stride = steps.len().div_ceil(MAX_POINTS).max(1);
    let points: PlotPoints<'_> = steps.iter().step_by(stride).map(|step| [step.step as f64, step.lr]).collect();
    base_plot("rate", "step", height, 20.0)
        .include_y(0.0)
        .y_axis_formatter(|mark, _| short_number(mark.value))
        .label_formatter(|hover| match hover {
            HoverPosition::NearDataPoint { position, .. } => Some(format!("learning rate  {:.5}\nstep  {:.0}", position.y, position.x)),
            HoverPosition::Elsewhere { .. } => None,
        })
        .show(ui, |plot| plot.line(Line::new("learning rate", points).color(color).width(1.5).style(LineStyle::Solid)));
}

fn base_plot<'a>(name: &'static str, x_label: &'static str, height: f32, least_x: f64) -> Plot<'a> {
    Plot::new(name)
        .height(height)
        .show_background(false)
        .show_axes(true)
        .allow_scroll(false)
        .allow_zoom(false)
        .allow_drag(false)
        .allow_boxed_zoom(false)
        .allow_axis_zoom_drag(false)
        .set_margin_fraction(egui::vec2(0.01, 0.06))
        .include_x(least_x)
        .y_axis_min_width(34.0)
        .x_axis_formatter(move |mark, range| {
            let is_last = mark.value + mark.step_size > *range.end();
            if mark.value < 0.0 || mark.value.fract() != 0.0 {
                String::new()
            } else if is_last {
                format!("{:.0} {x_label}", mark.value)
            } else {
                format!("{:.0}", mark.value)
            }
        })
        .legend(Legend::default().follow_insertion_order(true).background_alpha(0.0))
}

/// Enough digits for an axis.
fn short_number(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        s if s >= 100.0 => format!("{value:.0}"),
        s if s >= 1.0 => format!("{value:.1}"),
        s if s >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: usize, loss: f32) -> StepReport {
        StepReport { epoch: 0, step, box_loss: loss, cls_loss: 1.0, dfl_loss: 0.5, lr: 0.01, grad_norm: 1.0, images_per_sec: 10.0 }
    }

    #[test]
    fn a_constant_loss_stays_itself_from_the_first_step() {
        let mut smoothed = Smoothed::default();
        smoothed.update(&(0..50).map(|index| step(index, 3.0)).collect::<Vec<_>>());
        assert!(smoothed.means.iter().all(|mean| (mean[0] - 3.0).abs() < 1e-9 && (mean[2] - 0.5).abs() < 1e-9));
    }

    #[test]
    fn steps_are_taken_in_once_and_a_new_run_begins_anew() {
        let mut smoothed = Smoothed::default();
        smoothed.update(&[step(0, 4.0)]);
        smoothed.update(&[step(0, 4.0), step(1, 2.0)]);
        assert_eq!(smoothed.means.len(), 2);
        let mut whole = Smoothed::default();
        whole.update(&[step(0, 4.0), step(1, 2.0)]);
        assert_eq!(whole.means, smoothed.means);
        smoothed.update(&[step(0, 9.0)]);
        assert_eq!(smoothed.means.len(), 1);
        assert!((smoothed.means[0][0] - 9.0).abs() < 1e-9);
    }
}
