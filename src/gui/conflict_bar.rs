//! The bar over an image whose label file another program changed: whose labels are to count?
//!
//! In:  the session's conflict of the image. Out: the decision as a command. Never decides by itself.

use egui::{Align, Frame, Label, Layout, Margin, Panel, RichText, Ui, vec2};

use super::app::View;
use super::controls::counted;
use super::theme::palette;
use crate::session::Command;
use crate::session::Resolution;

const CHOICES: [(&str, &str, Resolution); 3] = [
    ("File's", "Keep the labels that the file has now, which are shown", Resolution::Theirs),
    ("Mine", "Write the labels that were here before over those of the file", Resolution::Mine),
    ("Both", "What either removed is gone, what either added is there", Resolution::Merge),
];

/// What the three of them take, in points.
const BUTTONS_WIDTH: f32 = 190.0;

/// Draws the bar at the upper end of the space that is there, if the image has a conflict.
pub fn ui(ui: &mut Ui, view: &mut View<'_>, image: usize) {
    let session = view.session;
    let Some(open) = &session.dataset else { return };
    let (Some(conflict), Some(entry)) = (session.conflict(image), open.dataset.images.get(image)) else { return };
    let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(10, 6));
    Panel::top("conflict bar").frame(frame).show(ui, |ui| {
        ui.horizontal(|ui| {
            let file = open.dataset.relative(&entry.label_path);
            let (theirs, mine) = (counted(conflict.theirs.len(), "label"), conflict.mine.len());
            let text = format!("Another program changed {}: it has {theirs}, here there were {mine}", file.display());
            let size = vec2((ui.available_width() - BUTTONS_WIDTH).max(120.0), ui.spacing().interact_size.y);
            ui.allocate_ui_with_layout(size, Layout::left_to_right(Align::Center), |ui| {
                ui.set_min_width(size.x);
                ui.add(Label::new(RichText::new(text).color(palette(ui).warn)).truncate());
            });
            for (title, tooltip, resolution) in CHOICES {
                if ui.button(title).on_hover_text(tooltip).clicked() {
                    view.ask(Command::ResolveConflict { image, resolution });
                }
            }
        });
    });
}
