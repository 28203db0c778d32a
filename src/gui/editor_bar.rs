//! The strip below the canvas: what the next box will be, what was said of the image, and how the view is set.
//!
//! In:  the state of the editor and its settings. Out: actions, and settings as a command; the light changes here.

use egui::containers::menu::{MenuButton, MenuConfig};
use egui::{Align, Button, DragValue, Frame, Layout, Margin, Panel, PopupCloseBehavior, RichText, Sense, Slider, Ui, vec2};

use super::action::Action;
use super::app::View;
use super::class_picker;
use super::controls;
use super::theme::palette;
use super::tone;
use super::tone::Tone;
use crate::dataset::edit::Review;
use crate::session::Command;
use crate::session::EditorSettings;

/// What the strip tells.
pub struct EditorBar<'a> {
    pub is_drawing: bool,
    pub class: usize,
    pub class_name: Option<&'a str>,
    pub n_selected: usize,
    pub review: Review,
}

impl EditorBar<'_> {
    /// Draws the strip at the lower end of the space that is there.
    pub fn ui(&self, ui: &mut Ui, view: &mut View<'_>, tone: &mut Tone) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(10, 4));
        Panel::bottom("editor bar").frame(frame).exact_size(38.0).show(ui, |ui| {
            ui.horizontal_centered(|ui| {
                if toggle(ui, Action::DrawBox, "Draw", self.is_drawing) {
                    view.act(Action::DrawBox);
                }
                if self.class_ui(ui) {
                    view.act(Action::ChooseClass);
                }
                if self.n_selected > 0 {
                    controls::weak(ui, format!("{} selected", controls::thousands(self.n_selected)));
                }
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    view_menu_ui(ui, view, tone);
                    if toggle(ui, Action::MarkEmpty, "Empty", self.review == Review::Empty) {
                        view.act(Action::MarkEmpty);
                    }
                    if toggle(ui, Action::MarkReviewed, "Reviewed", self.review == Review::Reviewed) {
                        view.act(Action::MarkReviewed);
                    }
                });
            });
        });
    }

    /// The class of the next box, with its digit.
    fn class_ui(&self, ui: &mut Ui) -> bool {
        let Some(name) = self.class_name else { return false };
        let galley = ui.painter().layout_no_wrap(name.to_owned(), egui::TextStyle::Body.resolve(ui.style()), palette(ui).text);
        let width = galley.size().x.min(170.0) + 60.0;
        let (rect, response) = ui.allocate_exact_size(vec2(width, 28.0), Sense::click());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("Class of the next box {name}")));
        controls::row_background(ui, rect, &response, false);
        class_picker::paint_class(ui, rect, self.class, name);
        response.on_hover_text(Action::ChooseClass.tooltip(ui.ctx())).clicked()
    }
}

/// A button that stays pressed.
fn toggle(ui: &mut Ui, action: Action, text: &str, is_on: bool) -> bool {
    let ink = if is_on { palette(ui).strong } else { palette(ui).text };
    let button = Button::new(RichText::new(text).color(ink)).selected(is_on);
    let response = ui.add(button).on_hover_text(action.tooltip(ui.ctx()));
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, is_on, action.title()));
    response.clicked()
}

fn view_menu_ui(ui: &mut Ui, view: &mut View<'_>, tone: &mut Tone) {
    let before = view.session.settings.editor;
    let mut settings = before;
    let config = MenuConfig::new().close_behavior(PopupCloseBehavior::CloseOnClickOutside);
    let title = if tone.is_neutral() { "View" } else { "View •" };
    let (response, _) = MenuButton::new(title).config(config).ui(ui, |ui| {
        ui.set_width(248.0);
        ui.spacing_mut().item_spacing.y = 6.0;
        let EditorSettings { shows_crosshair, shows_loupe, shows_pixel_grid, whole_pixels, asks_class, n_propagated } = &mut settings;
        light_ui(ui, tone);
        ui.separator();
        let switches = [
            (shows_crosshair, Action::ToggleCrosshair),
            (shows_loupe, Action::ToggleLoupe),
            (shows_pixel_grid, Action::TogglePixelGrid),
            (whole_pixels, Action::ToggleWholePixels),
            (asks_class, Action::ToggleAskClass),
        ];
        for (on, action) in switches {
            if action == Action::ToggleWholePixels {
                ui.separator();
            }
            ui.checkbox(on, action.title()).on_hover_text(action.tooltip(ui.ctx()));
        }
        ui.separator();
        ui.horizontal(|ui| {
            if ui.button("Propagate").on_hover_text(Action::Propagate.tooltip(ui.ctx())).clicked() {
                view.act(Action::Propagate);
                ui.close();
            }
            controls::weak(ui, "to the next");
            let field = DragValue::new(n_propagated).range(1..=10_000);
            ui.add(field).on_hover_text("How many images get the boxes").accessible_name("Images to propagate to");
        });
    });
    response.on_hover_text("Light, magnifier, grid and drawing");
    if settings != before {
        view.ask(Command::SetEditor(settings));
    }
}

/// Brightness and contrast, and a way back.
fn light_ui(ui: &mut Ui, tone: &mut Tone) {
    for (value, name) in [(&mut tone.brightness, "Brightness"), (&mut tone.contrast, "Contrast")] {
        ui.horizontal(|ui| {
            ui.allocate_ui_with_layout(vec2(74.0, 18.0), Layout::left_to_right(Align::Center), |ui| {
                ui.label(name);
                ui.add_space(ui.available_width());
            });
            let slider = Slider::new(value, -tone::MAX..=tone::MAX).show_value(true);
            controls::slider(ui, slider, name, "Of the view only; the trainer sees the picture as it is", 100.0);
        });
    }
    let is_set = !tone.is_neutral();
    if ui.add_enabled(is_set, Button::new("Reset light")).on_hover_text(Action::ResetTone.info().tooltip).clicked() {
        *tone = Tone::default();
    }
}
