//! The curves of a training: losses by step, average precision by epoch, learning rate by step.
//!
//! Smoothed values are worked out once as steps come in. A plot shows at most a few thousand points however long the run.

use egui::{Color32, Ui};
use egui_plot::{GridInput, GridMark, HoverPosition, Line, Plot, PlotPoints, Points};

use super::controls;
use super::theme::palette;
use crate::session::RunView;
use crate::train::{EpochReport, StepReport};

/// Points of a line that are drawn.
const MAX_POINTS: usize = 2000;
/// Weight of the past in the running mean.
const SMOOTHING: f64 = 0.9;

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

/// The colours of the losses with their last values.
pub fn loss_key_ui(ui: &mut Ui, smoothed: &Smoothed) {
    let palette = palette(ui);
    let last = smoothed.means.last();
    for (which, name) in LOSS_NAMES.into_iter().enumerate() {
        let text = last.map_or_else(|| name.to_owned(), |mean| format!("{name}  {:.2}", mean[which]));
        controls::key(ui, palette.curves[which], &text);
    }
}

/// Draws the losses over the width that is there, `height` high.
pub fn losses_ui(ui: &mut Ui, run: &RunView, smoothed: &Smoothed, style: CurveStyle, height: f32) {
    let palette = palette(ui);
    let scaled = move |loss: f64| if style.is_log { loss.max(1e-6).log10() } else { loss };
    let unscaled = move |y: f64| if style.is_log { 10f64.powf(y) } else { y };
    let stride = run.steps.len().div_ceil(MAX_POINTS).max(1);
    let x_of = |index: usize| run.steps[index].step as f64 + 1.0;
    let (mut behind, mut lines) = (Vec::new(), Vec::new());
    for (which, name) in LOSS_NAMES.into_iter().enumerate() {
        let color = palette.curves[which];
        let raw: PlotPoints<'_> =
            (0..run.steps.len()).step_by(stride).map(|index| [x_of(index), scaled(losses_of(&run.steps[index])[which])]).collect();
        if style.is_smooth {
            behind.push(Line::new(name, raw).color(color.gamma_multiply(0.25)).width(1.0).allow_hover(false));
            let smooth: PlotPoints<'_> =
                (0..smoothed.means.len()).step_by(stride).map(|index| [x_of(index), scaled(smoothed.means[index][which])]).collect();
            lines.push(Line::new(name, smooth).color(color).width(2.0));
        } else {
            lines.push(Line::new(name, raw).color(color).width(1.5));
        }
    }
    let plot = base_plot(ui, "losses", height, 20.0)
        .y_axis_formatter(move |mark, _| short_number(unscaled(mark.value)))
        .label_formatter(move |hover| tooltip(hover, "step", |name, y| format!("{name}  {:.4}", unscaled(y))));
    let plot = if style.is_log { plot } else { plot.include_y(0.0) };
    plot.show(ui, |plot| behind.into_iter().chain(lines).for_each(|line| plot.line(line)));
}

/// The colours of the two average precisions with their last values.
pub fn score_key_ui(ui: &mut Ui, epochs: &[EpochReport]) {
    let palette = palette(ui);
    let last = epochs.last().map(|epoch| [epoch.metrics.map50, epoch.metrics.map50_95]);
    for (which, name) in SCORE_NAMES.into_iter().enumerate() {
        let text = last.map_or_else(|| name.to_owned(), |last| format!("{name}  {:.3}", last[which]));
        controls::key(ui, palette.scores[which], &text);
    }
}

const SCORE_NAMES: [&str; 2] = ["mAP50", "mAP50-95"];

/// Draws mAP50 and mAP50-95.
pub fn scores_ui(ui: &mut Ui, epochs: &[EpochReport], n_epochs: usize, height: f32) {
    let palette = palette(ui);
    let pick: [fn(&EpochReport) -> f64; 2] = [|epoch| epoch.metrics.map50, |epoch| epoch.metrics.map50_95];
    let best = epochs.iter().map(pick[0]).fold(0.0, f64::max);
    base_plot(ui, "scores", height, n_epochs.max(2) as f64)
        .include_y(0.0)
        // Room above the curve; never more than the whole scale.
        .include_y((best * 1.1).clamp(0.1, 1.0))
        .y_axis_formatter(|mark, _| short_number(mark.value))
        .label_formatter(|hover| tooltip(hover, "epoch", |name, y| format!("{name}  {y:.3}")))
        .show(ui, |plot| {
            for (which, name) in SCORE_NAMES.into_iter().enumerate() {
                let points: Vec<[f64; 2]> = epochs.iter().map(|epoch| [epoch.epoch as f64 + 1.0, pick[which](epoch)]).collect();
                // A single epoch has no line yet.
                if points.len() < 3 {
                    plot.points(Points::new(name, points.clone()).color(palette.scores[which]).radius(3.5));
                }
                plot.line(Line::new(name, points).color(palette.scores[which]).width(2.0));
            }
        });
}

/// Draws the learning rate.
pub fn rate_ui(ui: &mut Ui, steps: &[StepReport], height: f32) {
    let color: Color32 = palette(ui).weak;
    let stride = steps.len().div_ceil(MAX_POINTS).max(1);
    let points: PlotPoints<'_> = steps.iter().step_by(stride).map(|step| [step.step as f64 + 1.0, step.lr]).collect();
    base_plot(ui, "rate", height, 20.0)
        .include_y(0.0)
        .y_axis_formatter(|mark, _| short_number(mark.value))
        .label_formatter(|hover| tooltip(hover, "step", |_, y| format!("learning rate  {y:.5}")))
        .show(ui, |plot| plot.line(Line::new("learning rate", points).color(color).width(1.5)));
}

fn tooltip(hover: &HoverPosition<'_>, x_name: &str, value: impl Fn(&str, f64) -> String) -> Option<String> {
    match hover {
        HoverPosition::NearDataPoint { plot_name, position, .. } => {
            Some(format!("{}\n{x_name}  {:.0}", value(plot_name, position.y), position.x))
        }
        HoverPosition::Elsewhere { .. } => None,
    }
}

/// A plot that is looked at, not steered: it always shows everything.
fn base_plot<'a>(ui: &mut Ui, name: &'static str, height: f32, least_x: f64) -> Plot<'a> {
    // The axes take their colour from the text.
    ui.visuals_mut().override_text_color = Some(palette(ui).weak);
    ui.style_mut().text_styles.insert(egui::TextStyle::Body, egui::FontId::proportional(11.5));
    Plot::new(name)
        .height(height)
        .show_background(false)
        .allow_scroll(false)
        .allow_zoom(false)
        .allow_drag(false)
        .allow_boxed_zoom(false)
        .allow_axis_zoom_drag(false)
        .allow_double_click_reset(false)
        .set_margin_fraction(egui::vec2(0.01, 0.05))
        .include_x(0.0)
        .include_x(least_x)
        .grid_color(palette(ui).border)
        .cursor_color(palette(ui).faint)
        .grid_fade(0.0)
        .y_axis_min_width(34.0)
        .x_grid_spacer(|input| marks(&input, 90.0, 1.0))
        .y_grid_spacer(|input| marks(&input, 36.0, 0.0))
        .x_axis_formatter(|mark, _| if mark.value < 0.0 { String::new() } else { format!("{:.0}", mark.value) })
}

/// Grid lines at round numbers, about `spacing` points apart and at least `least_step`.
fn marks(input: &GridInput, spacing: f64, least_step: f64) -> Vec<GridMark> {
    // The smallest step that egui_plot would draw is eight points wide.
    let wanted = (input.base_step_size * spacing / 8.0).max(least_step).max(1e-9);
    let power = 10f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= wanted * 0.999).unwrap_or(wanted);
    let (low, high) = input.bounds;
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    // A degenerate range would ask for lines without end.
    (first..=last.min(first + 100)).map(|index| GridMark { value: index as f64 * step, step_size: step }).collect()
}

/// Enough digits for an axis.
fn short_number(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        s if s >= 100.0 => format!("{value:.0}"),
        s if s >= 1.0 => trimmed(format!("{value:.1}")),
        s if s >= 0.001 => trimmed(format!("{value:.3}")),
        _ => format!("{value:.0e}"),
    }
}

/// Without zeros at the end.
fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: usize, loss: f32) -> StepReport {
        StepReport { step, box_loss: loss, cls_loss: 1.0, dfl_loss: 0.5, lr: 0.01, grad_norm: 1.0, ..StepReport::default() }
    }

    #[test]
    fn a_constant_loss_stays_itself_from_the_first_step() {
        let mut smoothed = Smoothed::default();
        smoothed.update(&(0..50).map(|index| step(index, 3.0)).collect::<Vec<_>>());
        assert!(smoothed.means.iter().all(|mean| (mean[0] - 3.0).abs() < 1e-9 && (mean[2] - 0.5).abs() < 1e-9));
    }

    #[test]
    fn grid_lines_are_at_round_numbers() {
        let input = GridInput { bounds: (0.0, 950.0), base_step_size: 12.0 };
        let values: Vec<f64> = marks(&input, 90.0, 1.0).iter().map(|mark| mark.value).collect();
        assert_eq!(values, [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!([0.0, 0.02, 0.25, 3.0, 1500.0].map(short_number), ["0", "0.02", "0.25", "3", "1500"]);
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
