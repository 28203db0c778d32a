//! The small pieces that panels share: buttons with reasons, path fields, headings, rows with counts, empty states.
//!
//! Each draws itself and returns what was done to it. All have accessible names; a disabled one says why in its tooltip.

use std::path::PathBuf;

use egui::{
    Align, Align2, Button, Color32, ComboBox, CursorIcon, Frame, Layout, Margin, Rect, Response, RichText, Role, Sense, Stroke, StrokeKind,
    TextEdit, TextStyle, TextWrapMode, Ui, Vec2, WidgetInfo, WidgetText, pos2, vec2,
};

use super::action::Action;
use super::theme;
use super::theme::palette;
use crate::engine::Device;
use crate::session::DeviceOption;

/// Height of rows in lists.
pub const ROW_HEIGHT: f32 = 26.0;

/// A button for an action; `reason` says why it cannot be pressed.
pub fn action_button(ui: &mut Ui, action: Action, reason: Option<&str>) -> bool {
    let tooltip = action.tooltip(ui.ctx());
    let response = ui.add_enabled(reason.is_none(), Button::new(action.title())).on_hover_text(tooltip);
    response.on_disabled_hover_text(reason.unwrap_or_default()).clicked()
}

/// The button for what a page is about: in the accent colour.
pub fn primary_button(ui: &mut Ui, action: Action, reason: Option<&str>) -> bool {
    let width = ui.fonts_mut(|fonts| {
        let font = egui::FontId::new(13.0, egui::FontFamily::Proportional);
        fonts.layout_no_wrap(action.title().to_owned(), font, Color32::WHITE).size().x
    });
    primary_button_wide(ui, action, reason, width + 36.0)
}

/// As [`primary_button`], `width` wide. Its text is in the middle.
pub fn primary_button_wide(ui: &mut Ui, action: Action, reason: Option<&str>, width: f32) -> bool {
    ui.scope(|ui| {
        let palette = palette(ui);
        if reason.is_none() {
            let widgets = &mut ui.visuals_mut().widgets;
            for (state, fill) in [
                (&mut widgets.inactive, palette.accent),
                (&mut widgets.hovered, palette.accent_hover),
                (&mut widgets.active, palette.accent_hover),
            ] {
                state.weak_bg_fill = fill;
                state.bg_stroke = Stroke::new(1.0, fill);
                state.fg_stroke.color = palette.on_accent;
            }
        }
        let text = RichText::new(action.title()).text_style(theme::strong());
        let tooltip = action.tooltip(ui.ctx());
        let response = ui.add_enabled_ui(reason.is_none(), |ui| ui.add_sized([width, 32.0], Button::new(text))).inner;
        response.on_hover_text(tooltip).on_disabled_hover_text(reason.unwrap_or_default()).clicked()
    })
    .inner
}

/// A button without a frame, for things beside the main matter.
pub fn quiet_button(ui: &mut Ui, text: &str, tooltip: &str) -> Response {
    ui.add(Button::new(RichText::new(text).color(palette(ui).weak)).frame_when_inactive(false)).on_hover_text(tooltip)
}

/// A heading of a group within a panel.
pub fn section(ui: &mut Ui, text: &str) {
    ui.add_space(2.0);
    ui.label(RichText::new(text).text_style(theme::strong()).color(palette(ui).strong));
    ui.add_space(4.0);
}

/// A heading with something at the right end of its line.
pub fn section_with<R>(ui: &mut Ui, text: &str, right: impl FnOnce(&mut Ui) -> R) -> R {
    let size = vec2(ui.available_width(), 32.0);
    ui.allocate_ui_with_layout(size, Layout::right_to_left(Align::Center), |ui| {
        let done = right(ui);
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
            ui.label(RichText::new(text).text_style(theme::strong()).color(palette(ui).strong));
        });
        done
    })
    .inner
}

/// Text beside the main matter.
pub fn weak(ui: &mut Ui, text: impl Into<String>) -> Response {
    ui.label(RichText::new(text).color(palette(ui).weak))
}

/// Small text below a control.
pub fn note(ui: &mut Ui, text: impl Into<String>) -> Response {
    ui.label(RichText::new(text).small().color(palette(ui).weak))
}

/// A number that matters, over its caption.
pub fn figure(ui: &mut Ui, value: &str, caption: &str) {
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 1.0;
        ui.label(RichText::new(value).text_style(theme::figure()).color(palette(ui).strong));
        ui.label(RichText::new(caption).small().color(palette(ui).weak));
    });
}

/// A rounded box on the backdrop.
pub fn card(ui: &Ui) -> Frame {
    let palette = palette(ui);
    Frame::new()
        .fill(palette.card)
        .stroke(Stroke::new(1.0, palette.border))
        .corner_radius(theme::CARD_RADIUS)
        .inner_margin(Margin::same(14))
}

/// A slider with a handle that fits the line of text.
pub fn slider(ui: &mut Ui, slider: egui::Slider<'_>, name: &str, tooltip: &str, width: f32) -> Response {
    ui.scope(|ui| {
        ui.spacing_mut().slider_width = width;
        ui.spacing_mut().interact_size.y = 18.0;
        // Its value, if it is shown, stands on the same line.
        ui.spacing_mut().button_padding.y = 0.0;
        ui.add(slider).on_hover_text(tooltip).accessible_name(name)
    })
    .inner
}

/// What a [`key`] takes before its text, and behind it before the next one.
pub const KEY_BEFORE: f32 = 9.0 + 6.0;
pub const KEY_BEHIND: f32 = 6.0 + 8.0;

/// The meaning of a colour: a dot and a word.
pub fn key(ui: &mut Ui, color: Color32, text: &str) {
    ui.spacing_mut().item_spacing.x = 6.0;
    let (rect, _) = ui.allocate_exact_size(Vec2::splat(9.0), Sense::hover());
    ui.painter().circle_filled(rect.center(), 4.0, color);
    ui.label(RichText::new(text).small().color(palette(ui).weak));
    ui.add_space(8.0);
}

/// A choice of one of a few, side by side in one frame.
pub fn segmented<T: Copy + PartialEq>(ui: &mut Ui, value: &mut T, choices: &[(T, &str, &str)]) -> bool {
    let palette = palette(ui);
    let mut changed = false;
    let frame = Frame::new().fill(palette.field).stroke(Stroke::new(1.0, palette.border)).corner_radius(theme::RADIUS + 1).inner_margin(2);
    frame.show(ui, |ui| {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 2.0;
            ui.spacing_mut().button_padding = vec2(9.0, 2.0);
            ui.spacing_mut().interact_size.y = 22.0;
            // Where widgets are laid out from the right, the first choice still comes first.
            let mut in_order: Vec<_> = choices.iter().collect();
            if ui.layout().prefer_right_to_left() {
                in_order.reverse();
            }
            for &&(choice, text, tooltip) in &in_order {
                let is_chosen = *value == choice;
                let ink = if is_chosen { palette.strong } else { palette.weak };
                let fill = if is_chosen { palette.hover } else { Color32::TRANSPARENT };
                let button = Button::new(RichText::new(text).color(ink)).fill(fill).stroke(Stroke::NONE).selected(is_chosen);
                if ui.add(button).on_hover_text(tooltip).clicked() && !is_chosen {
                    *value = choice;
                    changed = true;
                }
            }
        });
    });
    changed
}

/// What happened in a path field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFieldResponse {
    pub changed: bool,
    /// Enter was pressed.
    pub entered: bool,
    pub browse: bool,
}

/// A text field for a path over the width that is there, with Browse behind it.
pub fn path_field(ui: &mut Ui, name: &str, text: &mut String, hint: &str) -> PathFieldResponse {
    let mut done = PathFieldResponse::default();
    ui.horizontal(|ui| {
        let button_width = 78.0;
        let width = (ui.available_width() - button_width - ui.spacing().item_spacing.x).max(60.0);
        let response = text_field(ui, name, text, hint, width);
        let response = if text.is_empty() { response } else { response.on_hover_text(text.as_str()) };
        done.changed = response.changed();
        done.entered = response.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
        let browse = ui.add_sized([button_width, 28.0], Button::new("Browse…"));
        browse.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Browse for {}", name.to_lowercase())));
        done.browse = browse.on_hover_text("Choose with the file dialog").clicked();
    });
    done
}

/// A one-line text field with an accessible name.
pub fn text_field(ui: &mut Ui, name: &str, text: &mut String, hint: &str, width: f32) -> Response {
    let edit = TextEdit::singleline(text).hint_text(hint.to_owned()).margin(Margin::symmetric(8, 5)).desired_width(width - 16.0);
    ui.add_sized([width, 28.0], edit.align(Align2::LEFT_CENTER)).accessible_name(name)
}

/// The path of a field, if anything is written there. `~` is the home folder's usual name, and quotes come with pasted paths.
pub fn path_of(text: &str) -> Option<PathBuf> {
    let text = text.trim().trim_matches('"').trim_matches('\'');
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// A row of a list with a count at its right end.
pub struct CountRow<'a> {
    pub name: &'a str,
    pub count: usize,
    pub color: Option<Color32>,
    pub is_selected: bool,
    pub tooltip: &'a str,
}

impl CountRow<'_> {
    pub fn ui(&self, ui: &mut Ui) -> Response {
        let palette = palette(ui);
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::click());
        let label = format!("{} {}", self.name, self.count);
        response.widget_info(|| WidgetInfo::selected(Role::Button, true, self.is_selected, &label));
        if ui.is_rect_visible(rect) {
            row_background(ui, rect, &response, self.is_selected);
            let mut left = rect.left() + 8.0;
            if let Some(color) = self.color {
                let swatch = Rect::from_center_size(pos2(left + 5.0, rect.center().y), Vec2::splat(10.0));
                ui.painter().rect_filled(swatch, 3.0, color);
                left += 18.0;
            }
            let font = TextStyle::Body.resolve(ui.style());
            let ink = if self.is_selected { palette.strong } else { palette.text };
            let end = pos2(rect.right() - 8.0, rect.center().y);
            let number = ui.painter().text(end, Align2::RIGHT_CENTER, thousands(self.count), font, palette.weak);
            let width = number.left() - 8.0 - left;
            paint_text(ui, pos2(left, rect.center().y), width, RichText::new(self.name).color(ink));
        }
        let response = response.on_hover_cursor(CursorIcon::PointingHand);
        if self.tooltip.is_empty() { response } else { response.on_hover_text(self.tooltip) }
    }
}

/// The background of a list row.
pub fn row_background(ui: &Ui, rect: Rect, response: &Response, is_selected: bool) {
    let palette = palette(ui);
    if is_selected {
        ui.painter().rect_filled(rect, theme::RADIUS, palette.accent_soft);
    } else if response.hovered() || response.has_focus() {
        ui.painter().rect_filled(rect, theme::RADIUS, palette.hover.gamma_multiply(0.6));
    }
}

/// Paints one line of text, cut with `…` at `width`, vertically centred on `left_center`.
pub fn paint_text(ui: &Ui, left_center: egui::Pos2, width: f32, text: impl Into<WidgetText>) {
    let galley = text.into().into_galley(ui, Some(TextWrapMode::Truncate), width.max(8.0), TextStyle::Body);
    let top_left = pos2(left_center.x, left_center.y - galley.size().y / 2.0);
    ui.painter().galley(top_left, galley, palette(ui).text);
}

/// What to show where there is nothing yet: what goes here and what to do for it.
pub fn empty_state<R>(ui: &mut Ui, title: &str, text: &str, more: impl FnOnce(&mut Ui) -> R) -> R {
    let palette = palette(ui);
    let height = ui.available_height();
    ui.vertical_centered(|ui| {
        ui.add_space((height * 0.38 - 40.0).max(12.0));
        ui.label(RichText::new(title).heading().color(palette.strong));
        ui.add_space(2.0);
        ui.scope(|ui| {
            ui.set_max_width(ui.available_width().min(440.0));
            ui.label(RichText::new(text).color(palette.weak));
        });
        ui.add_space(10.0);
        more(ui)
    })
    .inner
}

/// A word in a coloured capsule.
pub fn chip(ui: &mut Ui, text: &str, color: Color32) -> Response {
    let font = TextStyle::Small.resolve(ui.style());
    let galley = ui.painter().layout_no_wrap(text.to_owned(), font, color);
    let (rect, response) = ui.allocate_exact_size(galley.size() + vec2(14.0, 6.0), Sense::hover());
    ui.painter().rect(rect, 9.0, color.gamma_multiply(0.14), Stroke::NONE, StrokeKind::Inside);
    ui.painter().galley(rect.center() - galley.size() / 2.0, galley, color);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, text));
    response
}

/// A command line that gives the same result, with a button that copies it.
pub fn command_line(ui: &mut Ui, line: &str) {
    let palette = palette(ui);
    let frame = Frame::new()
        .fill(palette.field)
        .stroke(Stroke::new(1.0, palette.border))
        .corner_radius(theme::RADIUS)
        .inner_margin(Margin::symmetric(10, 6));
    frame.show(ui, |ui| {
        ui.horizontal(|ui| {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                if quiet_button(ui, "Copy", "Copy the command line").clicked() {
                    ui.ctx().copy_text(line.to_owned());
                }
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let text = RichText::new(line).monospace().color(palette.text);
                    ui.add(egui::Label::new(text).truncate().selectable(true)).on_hover_text(line);
                });
            });
        });
    });
}

/// A choice among the devices that the session found.
pub fn device_ui(ui: &mut Ui, device: &mut Device, options: &[DeviceOption]) {
    let name = |device: Device| match options.iter().find(|option| option.device == device) {
        Some(option) => option.name.clone(),
        None => device_word(device),
    };
    let combo = ComboBox::from_id_salt("device").width(ui.available_width()).selected_text(name(*device)).truncate();
    let response = combo.show_ui(ui, |ui| {
        for option in options {
            ui.selectable_value(device, option.device, option.name.as_str());
        }
    });
    response.response.accessible_name("Device");
}

/// A device as the command line takes it.
pub fn device_word(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(index) => index.to_string(),
    }
}

/// `12345` as `12,345`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 image`, `2 images`.
pub fn counted(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", thousands(number))
}

/// Bytes in the largest fitting unit.
pub fn bytes(number: u64) -> String {
    let number = number as f64;
    match number {
        n if n >= 1e9 => format!("{:.1} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n if n >= 1e3 => format!("{:.0} kB", n / 1e3),
        n => format!("{n:.0} B"),
    }
}

/// Seconds as `1 h 02 min`, `3 min 20 s` or `12 s`.
pub fn duration(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    match secs {
        3600.. => format!("{} h {:02} min", secs / 3600, secs % 3600 / 60),
        60.. => format!("{} min {:02} s", secs / 60, secs % 60),
        _ => format!("{secs} s"),
    }
}

/// An argument as a shell reads it.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([counted(1, "image"), counted(2, "image")], ["1 image", "2 images"]);
    }

    #[test]
    fn times_and_sizes_take_a_fitting_unit() {
        assert_eq!([4.2, 75.0, 3725.0].map(duration), ["4 s", "1 min 15 s", "1 h 02 min"]);
        assert_eq!([12, 4_200, 7_300_000, 2_000_000_000].map(bytes), ["12 B", "4 kB", "7.3 MB", "2.0 GB"]);
    }

    #[test]
    fn a_pasted_path_loses_its_quotes_and_a_shell_word_gets_them() {
        assert_eq!(path_of(" \"/data/my set\" "), Some(PathBuf::from("/data/my set")));
        assert_eq!(path_of("  "), None);
        assert_eq!(shell_word("/data/my set"), "'/data/my set'");
        assert_eq!(shell_word("a/b-c.onnx"), "a/b-c.onnx");
    }
}
