//! The sheet of keyboard shortcuts, made from the table of actions.

use egui::{Frame, Grid, Id, Modal, RichText, Ui};

use super::action::{Action, keys_text};
use super::controls;
use super::theme::palette;

const GO: [Action; 8] = [
    Action::ShowData,
    Action::ShowCheck,
    Action::ShowTrain,
    Action::ShowDetect,
    Action::ShowExport,
    Action::Open,
    Action::ToggleTheme,
    Action::Help,
];
const LOOK: [Action; 8] = [
    Action::NextImage,
    Action::PreviousImage,
    Action::ToggleGrid,
    Action::ToggleBoxes,
    Action::ZoomFit,
    Action::ZoomActual,
    Action::ZoomIn,
    Action::ZoomOut,
];
const DO: [Action; 7] =
    [Action::Check, Action::PreviewFix, Action::Undo, Action::StartTraining, Action::StopTraining, Action::Detect, Action::Export];

/// Draws the sheet; returns whether it stays open.
pub fn ui(ui: &Ui) -> bool {
    let frame = Frame::window(ui.style()).inner_margin(24);
    let modal = Modal::new(Id::unique("keyboard shortcuts")).frame(frame).show(ui.ctx(), |ui| {
        ui.set_width(820.0);
        let closed = controls::section_with(ui, "Keyboard shortcuts", |ui| ui.button("Close").clicked());
        ui.add_space(8.0);
        ui.columns(2, |columns| {
            let [left, right] = columns else { return };
            group_ui(left, "Look at pictures", &LOOK);
            mouse_ui(left);
            group_ui(right, "Go", &GO);
            right.add_space(14.0);
            group_ui(right, "Do", &DO);
        });
        closed
    });
    !(modal.inner || modal.should_close())
}

/// What the pointer does on a picture, below the keys that do the like.
fn mouse_ui(ui: &mut Ui) {
    ui.add_space(14.0);
    controls::section(ui, "With the pointer on a picture");
    Grid::new("mouse").num_columns(2).min_col_width(96.0).min_row_height(20.0).spacing([12.0, 4.0]).show(ui, |ui| {
        for (gesture, effect) in [("Wheel", "Zoom at the pointer"), ("Drag", "Move the picture"), ("Double click", "Fit it into view")] {
            ui.label(RichText::new(gesture).monospace().color(palette(ui).strong));
            controls::weak(ui, effect);
            ui.end_row();
        }
    });
}

fn group_ui(ui: &mut Ui, title: &str, actions: &[Action]) {
    controls::section(ui, title);
    Grid::new(title).num_columns(2).min_col_width(96.0).min_row_height(20.0).spacing([12.0, 4.0]).show(ui, |ui| {
        ui.spacing_mut().interact_size.y = 18.0;
        for action in actions {
            let keys: Vec<String> = action.info().shortcuts.iter().map(|shortcut| keys_text(ui.ctx(), shortcut)).collect();
            ui.label(RichText::new(keys.join("  ")).monospace().color(palette(ui).strong));
            controls::weak(ui, action.info().tooltip);
            ui.end_row();
        }
    });
}
