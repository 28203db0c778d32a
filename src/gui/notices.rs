//! Messages to the person: what went wrong and what to do, kept until dismissed.

use egui::{Align, Align2, Area, Frame, Id, Label, Layout, Margin, Order, RichText, Stroke, Ui, vec2};

use super::app::View;
use super::controls;
use super::theme::{self, palette};
use crate::session::Command;
use crate::session::Notice;

/// So many are shown; older ones wait behind them.
const MAX_SHOWN: usize = 4;
const WIDTH: f32 = 400.0;

/// Draws the newest notices above the lower right corner.
pub fn ui(ui: &Ui, view: &mut View<'_>) {
    let notices = &view.session.notices;
    if notices.is_empty() {
        return;
    }
    let area = Area::new(Id::unique("notices")).order(Order::Foreground).anchor(Align2::RIGHT_BOTTOM, vec2(-16.0, -44.0));
    area.show(ui.ctx(), |ui| {
        ui.set_width(WIDTH);
        let hidden = notices.len().saturating_sub(MAX_SHOWN);
        if notices.len() > 1 {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                if ui.button("Dismiss all").clicked() {
                    view.out.commands.extend(notices.iter().map(|notice| Command::DismissNotice(notice.id)));
                }
                if hidden > 0 {
                    controls::weak(ui, format!("{hidden} more"));
                }
            });
        }
        for notice in notices.iter().skip(hidden) {
            if notice_ui(ui, notice) {
                view.out.commands.push(Command::DismissNotice(notice.id));
            }
        }
    });
}

fn notice_ui(ui: &mut Ui, notice: &Notice) -> bool {
    let palette = palette(ui);
    let color = if notice.is_error { palette.bad } else { palette.accent };
    let frame = Frame::new()
        .fill(palette.card)
        .stroke(Stroke::new(1.0, palette.border))
        .corner_radius(theme::CARD_RADIUS)
        .shadow(ui.visuals().popup_shadow)
        .inner_margin(Margin { left: 16, right: 10, top: 10, bottom: 10 });
    let done = frame.show(ui, |ui| {
        ui.horizontal_top(|ui| {
            ui.with_layout(Layout::right_to_left(Align::Min), |ui| {
                let dismissed = controls::quiet_button(ui, "Dismiss", "Remove this message").clicked();
                ui.with_layout(Layout::top_down(Align::Min), |ui| {
                    ui.spacing_mut().item_spacing.y = 4.0;
                    ui.add_space(3.0);
                    ui.add(Label::new(RichText::new(&notice.text).color(palette.strong)).wrap().selectable(true));
                    if let Some(hint) = &notice.hint {
                        ui.add(Label::new(RichText::new(hint).color(palette.weak)).wrap().selectable(true));
                    }
                });
                dismissed
            })
            .inner
        })
        .inner
    });
    let rect = done.response.rect;
    let line = egui::Rect::from_min_max(rect.left_top() + vec2(1.0, 8.0), egui::pos2(rect.left() + 4.0, rect.bottom() - 8.0));
    ui.painter().rect_filled(line, 2.0, color);
    done.inner
}
