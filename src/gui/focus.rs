//! Where the keyboard is: a ring around the control that has the focus, the same for every kind of control.

use egui::text_edit::TextEditState;
use egui::{Context, Stroke, StrokeKind, Ui};

use super::keymap;
use super::theme::{self, palette};

/// Draws the ring. Call it when everything else is drawn.
pub fn ui(ui: &Ui) {
    let ctx: &Context = ui.ctx();
    let Some(id) = ctx.memory(egui::Memory::focused) else { return };
    // The canvas has the keys whenever nothing else has them, and shows them by what is selected on it.
    if keymap::is_canvas(ctx, id) {
        return;
    }
    // A field that is typed in has its cursor.
    let (Some(response), None) = (ctx.read_response(id), TextEditState::load(ctx, id)) else { return };
    // Only as much as can be seen of the control: the rest may lie below the edge of a list.
    let seen = response.interact_rect.intersect(response.rect).expand(3.0);
    let painter = ctx.layer_painter(response.layer_id).with_clip_rect(seen.expand(2.0));
    painter.rect_stroke(response.rect.expand(2.0), theme::RADIUS + 1, Stroke::new(2.0, palette(ui).accent), StrokeKind::Middle);
}
