//! A plot of a run on the screen: lines, hover values, zoom and pan along the run.
//!
//! Dragging and Ctrl with the wheel move along the run only; the heights always fit what is shown. All plots along steps
//! move together, and so do those along epochs. Drawing costs as much as the plot is wide, however long the run.

use egui::{Button, Color32, Id, RichText, Role, Ui, WidgetInfo};
use egui_plot::{GridInput, GridMark, HLine, HoverPosition, Line, MarkerShape, Plot, PlotPoint, PlotPoints, Points, Polygon};

use super::controls;
use super::plots::{Along, Curves, PlotKind};
use super::theme::{self, palette};
use crate::media::chart::{multiples, round_step, trimmed};
use crate::train::Alarm;
use crate::train::stepper::MAX_GRAD_NORM;

/// How plots are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveStyle {
    /// Weight of the past in the running mean.
    pub smoothing: f64,
    pub is_log: bool,
}

impl Default for CurveStyle {
    fn default() -> Self {
        Self { smoothing: 0.9, is_log: false }
    }
}

/// What a plot is drawn with.
#[derive(Clone, Copy)]
pub struct PlotLook<'a> {
    pub style: CurveStyle,
    pub height: f32,
    /// Epochs that the run will have.
    pub n_epochs: usize,
    /// Shows the whole run again.
    pub resets: bool,
    /// Marked where they began.
    pub alarms: &'a [Alarm],
}

/// A form in which a plot is kept in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartFormat {
    Png,
    Svg,
    Csv,
}

impl ChartFormat {
    pub const ALL: [Self; 3] = [Self::Png, Self::Svg, Self::Csv];

    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Svg => "svg",
            Self::Csv => "csv",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Png => "Save as PNG picture",
            Self::Svg => "Save as SVG drawing",
            Self::Csv => "Save as CSV table",
        }
    }
}

/// What was done to a plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlotDone {
    pub save_as: Option<ChartFormat>,
    pub hide: bool,
    /// It shows a part of the run.
    pub is_zoomed: bool,
}

/// Draws a plot with title, key and menu.
pub fn plot_ui(ui: &mut Ui, kind: PlotKind, curves: &Curves, look: PlotLook<'_>) -> PlotDone {
    let mut done = PlotDone::default();
    controls::card(ui).inner_margin(egui::Margin::symmetric(12, 8)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 4.0;
        header_ui(ui, kind, curves, &mut done);
        done.is_zoomed = lines_ui(ui, kind, curves, look);
    });
    done
}

fn header_ui(ui: &mut Ui, kind: PlotKind, curves: &Curves, done: &mut PlotDone) {
    let palette = palette(ui);
    let info = kind.info();
    let size = egui::vec2(ui.available_width(), 22.0);
    ui.allocate_ui_with_layout(size, egui::Layout::right_to_left(egui::Align::Center), |ui| {
        let button = Button::new(RichText::new("•••").small().color(palette.weak)).frame_when_inactive(false);
        let (response, _) = egui::containers::menu::MenuButton::from_button(button).ui(ui, |ui| {
            for format in ChartFormat::ALL {
                if ui.button(format.title()).clicked() {
                    done.save_as = Some(format);
                }
            }
            ui.separator();
            done.hide = ui.button("Hide this plot").clicked();
        });
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("Menu of {}", info.title)));
        response.on_hover_text("Save or hide this plot");
        ui.with_layout(egui::Layout::left_to_right(egui::Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            let title = RichText::new(info.title).text_style(theme::strong()).color(palette.strong);
            let tooltip = format!("{}\n\nBy {}", info.tooltip, kind.along().name());
            ui.add(egui::Label::new(title).truncate()).on_hover_text(tooltip);
            ui.add_space(2.0);
            let keys = curves.lines(kind).map(|(line, series)| {
                let value = series.last().map(|value| decimals(f64::from(value), info.digits));
                (line.name, value, (line.color)(palette))
            });
            keys_ui(ui, &keys.collect::<Vec<_>>());
        });
    });
}

/// The names of the lines with their newest values. The card may not grow: a value that leaves no room for the names behind it
/// is not shown, nor is a name that does not fit; hovering tells all.
fn keys_ui(ui: &mut Ui, keys: &[(&str, Option<String>, Color32)]) {
    let font = egui::TextStyle::Small.resolve(ui.style());
    let text_width = |text: &str| ui.painter().layout_no_wrap(text.to_owned(), font.clone(), Color32::WHITE).size().x;
    let width = |text: &str| controls::KEY_BEFORE + text_width(text) + controls::KEY_BEHIND;
    let mut left = ui.available_width() + controls::KEY_BEHIND;
    let mut after: f32 = keys.iter().map(|(name, ..)| width(name)).sum();
    let mut shown = Vec::new();
    for (name, value, color) in keys {
        after -= width(name);
        let full = value.as_ref().map(|value| format!("{name}  {value}"));
        let text = full.filter(|full| width(full) + after <= left).unwrap_or_else(|| (*name).to_owned());
        left -= width(&text);
        if left < 0.0 {
            break;
        }
        shown.push((*color, text));
    }
    for (color, text) in shown {
        controls::key(ui, color, &text);
    }
}

/// Draws the lines; says whether only a part of the run is shown.
fn lines_ui(ui: &mut Ui, kind: PlotKind, curves: &Curves, look: PlotLook<'_>) -> bool {
    let (info, along) = (kind.info(), kind.along());
    let palette = palette(ui);
    let is_log = look.style.is_log && info.has_log;
    let scaled = move |value: f32| if is_log { f64::from(value).max(1e-9).log10() } else { f64::from(value) };
    let unscaled = move |y: f64| if is_log { 10f64.powf(y) } else { y };
    let places = curves.places(along);
    let least = match along {
        Along::Steps => 20.0,
        Along::Epochs => look.n_epochs.max(2) as f64,
        Along::Minutes => 1.0,
    };
    let alarms: Vec<&str> = look.alarms.iter().map(|alarm| alarm.what.as_str()).collect();
    let mut plot = base_plot(ui, info.id, look.height)
        .include_x(0.0)
        .include_x(least)
        .link_axis(Id::unique(("run plots", along)), [true, false])
        .y_axis_formatter(move |mark, _| short_number(unscaled(mark.value)))
        .label_formatter(move |hover| {
            // An alarm tells itself.
            if let HoverPosition::NearDataPoint { plot_name, .. } = hover
                && alarms.iter().any(|what| what == plot_name)
            {
                return Some((*plot_name).to_owned());
            }
            tooltip(hover, along.name(), |name, y| format!("{name}  {}", decimals(unscaled(y), info.digits + 1)))
        });
    if !is_log {
        plot = plot.include_y(0.0);
    }
    if look.resets {
        plot = plot.reset();
    }
    let is_smooth = along == Along::Steps && look.style.smoothing > 0.0;
    let shown = plot.show(ui, |plot| {
        let is_zoomed = !plot.auto_bounds().x;
        let bounds = plot.plot_bounds();
        let range = if is_zoomed { curves.indices(along, bounds.min()[0], bounds.max()[0]) } else { 0..places.len() };
        let width = plot.response().rect.width().max(50.0) as usize;
        let points = |values: Vec<(usize, f32)>| -> Vec<[f64; 2]> {
            let shown = values.into_iter().filter(|(_, value)| !is_log || *value > 0.0);
            shown.map(|(index, value)| [places[index], scaled(value)]).collect()
        };
        let mut lines = Vec::new();
        let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
        for (line, series) in curves.lines(kind) {
            let color = (line.color)(palette);
            let outline = points(series.outline(range.clone(), width / 2));
            for point in &outline {
                (lowest, highest) = (lowest.min(point[1]), highest.max(point[1]));
            }
            if is_smooth {
                let faint = color.gamma_multiply(0.25);
                plot.line(Line::new(line.name, PlotPoints::from(outline)).color(faint).width(1.0).allow_hover(false));
                let smooth = points(series.smooth(range.clone(), width / 2));
                lines.push(Line::new(line.name, PlotPoints::from(smooth)).color(color).width(2.0));
                continue;
            }
            // A single value has no line yet.
            if outline.len() < 3 {
                plot.points(Points::new(line.name, outline.clone()).color(color).radius(3.5));
            }
            lines.push(Line::new(line.name, PlotPoints::from(outline)).color(color).width(1.75));
        }
        if lowest <= highest && !range.is_empty() {
            let (from, to) = (places[range.start], places[range.end - 1]);
            if let Some(band) = curves.band(kind) {
                // No wider than what is shown, so that the heights still fit the lines.
                let [low, high] = [band.low, band.high].map(|edge| scaled(edge as f32).clamp(lowest, highest));
                let corners = vec![[from, low], [to, low], [to, high], [from, high]];
                let fill = palette.good.gamma_multiply(0.10);
                plot.polygon(Polygon::new("usual", corners).fill_color(fill).stroke(egui::Stroke::NONE).allow_hover(false));
            }
            if kind == PlotKind::Gradient && highest > scaled(MAX_GRAD_NORM) {
                plot.hline(HLine::new("clipped above", scaled(MAX_GRAD_NORM)).color(palette.warn.gamma_multiply(0.7)).width(1.0));
            }
            for alarm in look.alarms.iter().filter(|alarm| along == Along::Steps && kind.shows(alarm.kind)) {
                let x = alarm.step as f64 + 1.0;
                if x >= from && x <= to {
                    let mark = Points::new(alarm.what.clone(), vec![[x, highest]]).shape(MarkerShape::Down);
                    plot.points(mark.color(palette.bad).radius(6.0).filled(true));
                }
            }
        }
        for line in lines {
            plot.line(line);
        }
        is_zoomed
    });
    shown.response.widget_info(|| WidgetInfo::labeled(Role::Image, true, format!("Plot of {}", info.title)));
    shown.inner
}

/// A line with its name, such as that of a run among others.
pub struct NamedLine<'a> {
    pub name: &'a str,
    pub color: Color32,
    pub points: &'a [PlotPoint],
}

/// Draws lines of one quantity, with values from 0 on, along steps or epochs.
pub fn quantity_ui<'a>(ui: &mut Ui, id: &str, along: Along, lines: impl Iterator<Item = NamedLine<'a>>, height: f32) {
    let plot = base_plot(ui, id, height)
        .include_x(0.0)
        .include_x(2.0)
        .include_y(0.0)
        .y_axis_formatter(|mark, _| short_number(mark.value))
        .label_formatter(move |hover| tooltip(hover, along.name(), |name, y| format!("{name}  {}", decimals(y, 4))));
    let shown = plot.show(ui, |plot| {
        for NamedLine { name, color, points } in lines {
            // A single value has no line yet.
            if points.len() < 3 {
                plot.points(Points::new(name, points).color(color).radius(3.5));
            }
            plot.line(Line::new(name, points).color(color).width(2.0));
        }
    });
    shown.response.widget_info(|| WidgetInfo::labeled(Role::Image, true, format!("Plot {id}")));
}

fn tooltip(hover: &HoverPosition<'_>, x_name: &str, value: impl Fn(&str, f64) -> String) -> Option<String> {
    match hover {
        HoverPosition::NearDataPoint { plot_name, position, .. } => {
            Some(format!("{}\n{x_name}  {:.0}", value(plot_name, position.y), position.x))
        }
        HoverPosition::Elsewhere { .. } => None,
    }
}

/// A plot that moves along the run only.
fn base_plot<'a>(ui: &mut Ui, name: &str, height: f32) -> Plot<'a> {
    // The axes take their colour from the text.
    ui.visuals_mut().override_text_color = Some(palette(ui).weak);
    ui.style_mut().text_styles.insert(egui::TextStyle::Body, egui::FontId::proportional(11.5));
    Plot::new(name.to_owned())
        .height(height)
        .show_background(false)
        .allow_scroll(false)
        .allow_zoom([true, false])
        .allow_drag([true, false])
        .allow_boxed_zoom(false)
        .allow_axis_zoom_drag(false)
        .set_margin_fraction(egui::vec2(0.01, 0.05))
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
    let step = round_step(wanted);
    multiples(input.bounds.into(), step).map(|value| GridMark { value, step_size: step }).collect()
}

/// Enough digits for an axis.
fn short_number(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        s if s >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        s if s >= 100.0 => format!("{value:.0}"),
        s if s >= 1.0 => trimmed(&format!("{value:.1}")).to_owned(),
        s if s >= 0.001 => trimmed(&format!("{value:.3}")).to_owned(),
        _ => format!("{value:.0e}"),
    }
}

/// A value with so many decimals, or more where these would be zeros.
pub fn decimals(value: f64, digits: usize) -> String {
    let size = value.abs();
    if size > 0.0 && size < 0.1f64.powi(digits as i32) { format!("{value:.1e}") } else { format!("{value:.digits$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_lines_are_at_round_numbers() {
        let input = GridInput { bounds: (0.0, 950.0), base_step_size: 12.0 };
        let values: Vec<f64> = marks(&input, 90.0, 1.0).iter().map(|mark| mark.value).collect();
        assert_eq!(values, [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!([0.0, 0.02, 0.25, 3.0, 1500.0, 40_000.0].map(short_number), ["0", "0.02", "0.25", "3", "1500", "40k"]);
    }

    #[test]
    fn small_values_keep_a_digit() {
        assert_eq!([0.5, 0.0, 0.00002].map(|value| decimals(value, 3)), ["0.500", "0.000", "2.0e-5"]);
    }
}
