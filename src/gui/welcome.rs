//! Ways to a dataset: the first screen, and what pages show while none is open.

use std::path::Path;

use egui::{Align2, Id, LayerId, Margin, Order, RichText, Stroke, StrokeKind, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, path_of};
use super::theme::{self, palette};
use crate::session::BrowseKind;
use crate::session::Command;
use crate::session::JobKind;

/// What the screen remembers.
#[derive(Default)]
pub struct Welcome {
    path: String,
}

impl Welcome {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let palette = palette(ui);
        let height = ui.available_height();
        ui.vertical_centered(|ui| {
            ui.add_space((height * 0.5 - 220.0).max(16.0));
            ui.label(RichText::new("Boxwright").text_style(theme::title()).color(palette.strong));
            controls::weak(ui, "From a folder of pictures to a deployed detector, on this machine");
            ui.add_space(16.0);
            ui.scope(|ui| {
                ui.set_max_width(520.0);
                ui.set_width(ui.available_width().min(520.0));
                controls::card(ui).inner_margin(Margin::same(18)).show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    self.open_ui(ui, view);
                });
                ui.add_space(4.0);
                controls::card(ui).inner_margin(Margin::same(18)).show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    sample_ui(ui, view);
                });
            });
        });
    }

    fn open_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        ui.vertical(|ui| {
            controls::section(ui, "Open a dataset");
            controls::note(
                ui,
                "A folder in YOLO layout, its data.yaml, or a Pascal VOC folder. Drop it on the window, browse, or type its path",
            );
            ui.add_space(4.0);
            let is_opening = view.session.is_running(JobKind::Open);
            let path = path_of(&self.path);
            let reason = if is_opening {
                Some("A dataset is being opened")
            } else if path.is_none() {
                Some("Type a path first, or use Browse")
            } else {
                None
            };
            let (field, is_clicked) = ui
                .horizontal(|ui| {
                    let width = ui.available_width() - 72.0 - ui.spacing().item_spacing.x;
                    let field = ui.scope(|ui| {
                        ui.set_max_width(width);
                        controls::path_field(ui, "Dataset path", &mut self.path, "/path/to/dataset")
                    });
                    let button = ui.add_enabled_ui(reason.is_none(), |ui| ui.add_sized([72.0, 28.0], egui::Button::new("Open")));
                    (field.inner, button.inner.on_disabled_hover_text(reason.unwrap_or_default()).clicked())
                })
                .inner;
            if field.browse {
                view.ask(Command::Browse(BrowseKind::Dataset));
            }
            if let Some(path) = path
                && (is_clicked || (field.entered && reason.is_none()))
            {
                view.ask(Command::Open(path));
            }
            let recent = &view.session.settings.recent;
            if !recent.is_empty() {
                ui.add_space(8.0);
                controls::section(ui, "Recent");
                ui.spacing_mut().item_spacing.y = 4.0;
                for path in recent.iter().take(4) {
                    if recent_ui(ui, path) {
                        view.ask(Command::Open(path.clone()));
                    }
                }
            }
        });
    }
}

/// A dataset that was opened lately: its folder's name, and where that is.
fn recent_ui(ui: &mut Ui, path: &Path) -> bool {
    let folder = if path.extension().is_some() { path.parent().unwrap_or(path) } else { path };
    let name = folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
    ui.horizontal(|ui| {
        let response = ui.link(name).on_hover_text(path.display().to_string());
        let place = folder.parent().unwrap_or(folder).display().to_string();
        ui.add(egui::Label::new(RichText::new(place).small().color(palette(ui).faint)).truncate());
        response.clicked()
    })
    .inner
}

fn sample_ui(ui: &mut Ui, view: &mut View<'_>) {
    ui.vertical(|ui| {
        controls::section(ui, "No dataset at hand?");
        controls::note(
            ui,
            "Boxwright draws a small one: machined metal parts with scratches, dents and cracks, labelled, and trained in minutes",
        );
        ui.add_space(4.0);
        if controls::action_button(ui, Action::OpenSample, Action::OpenSample.unavailable(view.session)) {
            view.act(Action::OpenSample);
        }
    });
}

/// What a page shows that needs a dataset; `text` says what for.
pub fn no_dataset_ui(ui: &mut Ui, view: &mut View<'_>, text: &str) {
    controls::empty_state(ui, "No dataset is open", text, |ui| {
        if controls::action_button(ui, Action::Open, Action::Open.unavailable(view.session)) {
            view.act(Action::Open);
        }
    });
}

/// While something is dragged over the window: what happens when it is dropped.
pub fn drop_hint_ui(ui: &Ui) {
    if ui.input(|input| input.raw.hovered_files.is_empty()) {
        return;
    }
    let palette = palette(ui);
    let painter = ui.ctx().layer_painter(LayerId::new(Order::Foreground, Id::unique("drop hint")));
    let rect = ui.ctx().content_rect().shrink(14.0);
    painter.rect(rect, theme::CARD_RADIUS, palette.accent_soft.gamma_multiply(0.85), Stroke::new(2.0, palette.accent), StrokeKind::Inside);
    let font = egui::TextStyle::Heading.resolve(ui.style());
    painter.text(rect.center(), Align2::CENTER_CENTER, "Drop to open", font, palette.strong);
}
