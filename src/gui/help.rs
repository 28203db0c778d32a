//! The sheet of keyboard shortcuts, made from the table of actions.

use egui::{Grid, Id, Modal, RichText, Ui};

use super::action::Action;
use super::controls;
use super::theme::{self, palette};

const GROUPS: [(&str, &[Action]); 3] = [
    (
        "Go",
        &[
            Action::ShowData,
            Action::ShowCheck,
            Action::ShowTrain,
            Action::ShowDetect,
            Action::ShowExport,
            Action::Open,
            Action::ToggleTheme,
            Action::Help,
        ],
    ),
    (
        "Look",
        &[
            Action::NextImage,
            Action::PreviousImage,
            Action::ToggleGrid,
            Action::ToggleBoxes,
            Action::ZoomFit,
            Action::ZoomActual,
            Action::ZoomIn,
            Action::ZoomOut,
        ],
    ),
    ("Do", &[Action::Check, Action::PreviewFix, Action::Undo, Action::StartTraining, Action::StopTraining, Action::Detect, Action::Export]),
];

/// Draws the sheet; returns whether it stays open.
pub fn ui(ui: &Ui) -> bool {
    let modal = Modal::new(Id::unique("keyboard shortcuts")).show(ui.ctx(), |ui| {
        ui.set_width(720.0);
        ui.label(RichText::new("Keyboard shortcuts").heading().color(palette(ui).strong));
        controls::note(ui, "On pictures: the wheel zooms at the pointer, dragging pans, a double click fits the picture into view");
        ui.add_space(10.0);
        ui.columns(GROUPS.len(), |columns| {
            for (column, (title, actions)) in columns.iter_mut().zip(GROUPS) {
                column.label(RichText::new(title).text_style(theme::strong()).color(palette(column).strong));
                column.add_space(2.0);
                Grid::new(title).num_columns(2).spacing([12.0, 7.0]).show(column, |ui| {
                    for action in actions {
                        keys_ui(ui, *action);
                        ui.end_row();
                    }
                });
            }
        });
        ui.add_space(12.0);
        ui.vertical_centered(|ui| ui.button("Close").clicked()).inner
    });
    !(modal.inner || modal.should_close())
}

fn keys_ui(ui: &mut Ui, action: Action) {
    let keys: Vec<String> = action.info().shortcuts.iter().map(|shortcut| ui.ctx().format_shortcut(shortcut)).collect();
    ui.label(RichText::new(keys.join("  ")).monospace().color(palette(ui).strong));
    controls::weak(ui, action.title());
}
