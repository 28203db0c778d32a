//! Charts that a person clicks into: rows with bars, columns of a histogram, a map of places.
//!
//! In:  counts and what is chosen already. Out: which bar or cell was clicked. Colours come from the theme; every bar has an
//! accessible name, a tooltip with its value, and can be reached with Tab.

use egui::{Align2, Color32, CursorIcon, Rect, Response, Role, Sense, Stroke, StrokeKind, TextStyle, Ui, Vec2, WidgetInfo, pos2, vec2};

use super::controls::{self, thousands};
use super::theme::{self, palette};

/// One of several bars.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    pub count: usize,
    /// Of the highest bar beside it.
    pub most: usize,
    pub is_chosen: bool,
}

impl Bar {
    fn share(self) -> f32 {
        self.count as f32 / self.most.max(1) as f32
    }
}

const COLUMNS_HEIGHT: f32 = 96.0;
const LABEL_HEIGHT: f32 = 16.0;

/// A class with its count and a bar behind it.
pub fn row_ui(ui: &mut Ui, name: &str, class: usize, bar: Bar) -> Response {
    let palette = palette(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 22.0), Sense::click());
    response.widget_info(|| WidgetInfo::selected(Role::Button, true, bar.is_chosen, format!("bar {name} of classes, {}", bar.count)));
    if ui.is_rect_visible(rect) {
        controls::row_background(ui, rect, &response, bar.is_chosen);
        let font = TextStyle::Small.resolve(ui.style());
        let end = pos2(rect.right() - 4.0, rect.center().y);
        let number = ui.painter().text(end, Align2::RIGHT_CENTER, thousands(bar.count), font, palette.text);
        let name_width = (rect.width() * 0.34).min(130.0);
        let text = egui::RichText::new(name).small().color(palette.text);
        controls::paint_text(ui, pos2(rect.left() + 6.0, rect.center().y), name_width - 10.0, text);
        let left = rect.left() + name_width;
        let room = (number.left().min(rect.right() - 48.0) - 8.0 - left).max(0.0);
        let filled = Rect::from_min_size(
            pos2(left, rect.center().y - 5.0),
            vec2((room * bar.share()).max(if bar.count > 0 { 1.5 } else { 0.0 }), 10.0),
        );
        ui.painter().rect_filled(filled, 2.0, theme::class_color(class));
    }
    response.on_hover_cursor(CursorIcon::PointingHand)
}

/// The columns of a histogram with their labels below; returns the one that was clicked.
pub fn columns_ui(ui: &mut Ui, title: &str, noun: &str, total: usize, bars: &[(Bar, String)]) -> Option<usize> {
    let palette = palette(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), COLUMNS_HEIGHT + LABEL_HEIGHT), Sense::hover());
    if !ui.is_rect_visible(rect) {
        return None;
    }
    let base = rect.top() + COLUMNS_HEIGHT;
    ui.painter().hline(rect.x_range(), base + 0.5, Stroke::new(1.0, palette.border));
    let pitch = rect.width() / bars.len().max(1) as f32;
    let font = TextStyle::Small.resolve(ui.style());
    let mut clicked = None;
    let mut free_from = f32::NEG_INFINITY;
    for (index, (bar, label)) in bars.iter().enumerate() {
        let left = rect.left() + index as f32 * pitch;
        let whole = Rect::from_min_max(pos2(left, rect.top()), pos2(left + pitch, rect.bottom()));
        let response = ui.interact(whole, ui.scope_id().with((title, index)), Sense::click());
        response.widget_info(|| {
            WidgetInfo::selected(Role::Button, true, bar.is_chosen, format!("bar {label} of {title}, {} {noun}", bar.count))
        });
        let is_lit = response.hovered() || response.has_focus();
        if bar.is_chosen || is_lit {
            let ground = if bar.is_chosen { palette.accent_soft } else { palette.hover.gamma_multiply(0.5) };
            ui.painter().rect_filled(whole.shrink2(vec2(0.5, 0.0)), 2.0, ground);
        }
        let height = ((COLUMNS_HEIGHT - 6.0) * bar.share()).max(if bar.count > 0 { 1.5 } else { 0.0 });
        let column = Rect::from_min_max(pos2(left + 1.0, base - height), pos2(left + pitch - 1.0, base));
        ui.painter().rect_filled(column, 1.5, if is_lit { palette.accent_hover } else { palette.accent });
        // Labels that would run into the one before are left out; hovering tells all.
        let galley = ui.painter().layout_no_wrap(short_label(label), font.clone(), palette.weak);
        let text_left = (whole.center().x - galley.size().x / 2.0).clamp(rect.left(), rect.right() - galley.size().x);
        if text_left >= free_from {
            free_from = text_left + galley.size().x + 4.0;
            ui.painter().galley(pos2(text_left, base + 2.0), galley, palette.weak);
        }
        let share = bar.count as f64 / total.max(1) as f64 * 100.0;
        let tooltip = format!("{label}\n{} {noun}, {share:.1} %\n\nClick to filter", thousands(bar.count));
        if response.on_hover_cursor(CursorIcon::PointingHand).on_hover_text(tooltip).clicked() {
            clicked = Some(index);
        }
    }
    clicked
}

/// The lower end says where a bar lies; its neighbour says where it ends.
fn short_label(label: &str) -> String {
    label.split('–').next().unwrap_or(label).to_owned()
}

/// A square of cells, brighter where more is; returns the cell that was clicked.
pub fn map_ui(ui: &mut Ui, name: &str, side: usize, counts: &[usize], chosen: Option<usize>) -> Option<usize> {
    let palette = palette(ui);
    let width = ui.available_width().min(300.0);
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(width), Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, name));
    if !ui.is_rect_visible(rect) {
        return None;
    }
    let pitch = width / side as f32;
    let cell_rect = |cell: usize| {
        let corner = rect.min + vec2((cell % side) as f32, (cell / side) as f32) * pitch;
        Rect::from_min_size(corner, Vec2::splat(pitch))
    };
    let most = counts.iter().copied().max().unwrap_or(0);
    ui.painter().rect_filled(rect, 0.0, palette.field);
    let mut mesh = egui::Mesh::default();
    for (cell, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        mesh.add_colored_rect(cell_rect(cell), heat(palette, count, most));
    }
    ui.painter().add(mesh);
    ui.painter().rect_stroke(rect, 0.0, Stroke::new(1.0, palette.border), StrokeKind::Outside);
    if let Some(cell) = chosen {
        ui.painter().rect_stroke(cell_rect(cell), 0.0, Stroke::new(2.0, palette.warn), StrokeKind::Outside);
    }
    let pointed = response.hover_pos().map(|at| {
        let place = ((at - rect.min) / pitch).clamp(Vec2::ZERO, Vec2::splat(side as f32 - 1.0));
        place.y as usize * side + place.x as usize
    });
    if let Some(cell) = pointed {
        ui.painter().rect_stroke(cell_rect(cell), 0.0, Stroke::new(1.0, palette.strong), StrokeKind::Outside);
    }
    let is_clicked = response.clicked();
    if let Some(cell) = pointed {
        let percent = |place: usize| format!("{:.0}–{:.0} %", place as f32 / side as f32 * 100.0, (place + 1) as f32 / side as f32 * 100.0);
        let total: usize = counts.iter().sum();
        let share = counts[cell] as f64 / total.max(1) as f64 * 100.0;
        let place = format!("{} from the left, {} from the top", percent(cell % side), percent(cell / side));
        let tooltip = format!("{} boxes, {share:.2} %\n{place}\n\nClick to filter", thousands(counts[cell]));
        response.on_hover_cursor(CursorIcon::Crosshair).on_hover_text_at_pointer(tooltip);
    }
    pointed.filter(|_| is_clicked)
}

/// From the ground to the accent colour; the root lets thin places be seen beside a crowded one.
fn heat(palette: &theme::Palette, count: usize, most: usize) -> Color32 {
    let share = (count as f32 / most.max(1) as f32).sqrt();
    palette.field.lerp_to_gamma(palette.accent, 0.08 + 0.92 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_nearer_to_the_accent() {
        let palette = theme::paper();
        let far = |color: Color32| color.r().abs_diff(palette.accent.r());
        assert_eq!(heat(palette, 10, 10), palette.accent);
        assert!(far(heat(palette, 1, 10)) > far(heat(palette, 5, 10)));
        assert!(heat(palette, 1, 1_000_000) != palette.field, "one box is seen");
    }

    #[test]
    fn a_column_is_labelled_by_its_lower_end() {
        assert_eq!(["8–12", "512+", "0"].map(short_label), ["8", "512+", "0"]);
    }
}
