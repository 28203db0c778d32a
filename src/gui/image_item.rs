//! What grid and list show of one image, and what they tell back.

use std::ops::Range;
use std::path::Path;

use egui::{Align2, Color32, CornerRadius, Painter, Pos2, Rect, Response, Role, TextStyle, Ui, Vec2, WidgetInfo, pos2, vec2};

use super::selection::Choice;
use super::theme::{self, palette};
use crate::dataset::edit::{Mark, Review};
use crate::dataset::facts::ImageFacts;
use crate::dataset::{Label, Split};

/// An image in view.
pub struct ImageItem<'a> {
    pub path: &'a Path,
    pub split: Split,
    /// `None` while labels are being read.
    pub labels: Option<&'a [Label]>,
    pub mark: Option<&'a Mark>,
    pub facts: ImageFacts,
    /// Of the last check.
    pub n_findings: usize,
    pub is_current: bool,
    pub is_selected: bool,
}

impl ImageItem<'_> {
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        self.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default()
    }

    pub fn review(&self) -> Review {
        self.mark.map_or(Review::Unreviewed, |mark| mark.review)
    }

    pub fn tags(&self) -> &[String] {
        self.mark.map_or(&[], |mark| mark.tags.as_slice())
    }

    /// Tells screen readers what it is and how it stands.
    pub fn describe(&self, response: &Response) {
        response.widget_info(|| WidgetInfo::selected(Role::Button, true, self.is_selected, format!("image {}", self.name())));
    }
}

/// What was done to the images in view, by their positions.
#[derive(Debug, Default)]
pub struct ItemsDone {
    pub clicked: Option<(usize, Choice)>,
    /// Double click.
    pub opened: Option<usize>,
    /// Right click.
    pub menu: Option<usize>,
    pub band: Option<BandDone>,
}

/// A rubber band is being drawn.
#[derive(Debug)]
pub struct BandDone {
    pub has_begun: bool,
    /// What is chosen already stays.
    pub adds: bool,
    pub block: Block,
}

/// Whole cells of rows and columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// Of the whole layout.
    pub n_columns: usize,
}

impl Block {
    /// The cells that a band over the content touches, where cells follow each other at distances of `pitch`.
    pub fn within(band: Rect, pitch: Vec2, n_columns: usize) -> Self {
        let cells = |low: f32, high: f32, pitch: f32| {
            let place = |at: f32| (at.max(0.0) / pitch) as usize;
            if high < 0.0 { 0..0 } else { place(low)..place(high) + 1 }
        };
        let Range { start, end } = cells(band.min.x, band.max.x, pitch.x);
        // Beyond the last column is the margin of the scroll bar.
        Self { rows: cells(band.min.y, band.max.y, pitch.y), columns: start.min(n_columns)..end.min(n_columns), n_columns }
    }

    /// The positions of a row's cells; may be beyond the last image.
    pub fn positions(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.rows.clone().map(|row| row * self.n_columns + self.columns.start..row * self.n_columns + self.columns.end)
    }
}

impl ItemsDone {
    /// Takes in what happened to the item at a position.
    pub fn take(&mut self, position: usize, response: &Response) {
        if response.double_clicked() {
            self.opened = Some(position);
        } else if response.clicked() {
            self.clicked = Some((position, Choice::of(response.ctx.input(|input| input.modifiers))));
        } else if response.secondary_clicked() {
            self.menu = Some(position);
        }
    }
}

/// A rubber band over scrolled content; positions are relative to the content's top left corner.
#[derive(Clone, Debug, Default)]
pub struct Band {
    from: Option<Vec2>,
    /// The pointer has gone far enough to mean more than a click.
    is_drawn: bool,
}

/// Points that the pointer goes before a band begins.
const BAND_FROM: f32 = 6.0;

impl Band {
    /// Follows a drag over the visible part of the content, which lies at `content` on the screen and scrolls when the pointer
    /// leaves it. Call it before the items are drawn, so that clicks are theirs. Returns the band and whether it has just begun.
    pub fn follow(&mut self, ui: &mut Ui, content: Pos2) -> Option<(Rect, bool)> {
        let visible = ui.clip_rect();
        let response = ui.interact(visible, ui.scope_id().with("band"), egui::Sense::DRAG);
        if response.drag_started_by(egui::PointerButton::Primary) {
            self.from = ui.input(|input| input.pointer.press_origin()).map(|pressed| pressed - content);
        } else if !response.dragged_by(egui::PointerButton::Primary) {
            *self = Self::default();
        }
        let from = self.from?;
        let pointer = response.interact_pointer_pos()?;
        let has_begun = !self.is_drawn;
        if has_begun && (pointer - content - from).length() < BAND_FROM {
            return None;
        }
        self.is_drawn = true;
        let beyond = (pointer.y - visible.bottom()).max(0.0) - (visible.top() - pointer.y).max(0.0);
        if beyond != 0.0 {
            ui.scroll_with_delta(vec2(0.0, -beyond.clamp(-40.0, 40.0)));
            ui.ctx().request_repaint();
        }
        Some((Rect::from_two_pos(from.to_pos2(), (pointer - content).to_pos2()), has_begun))
    }

    /// Paints the band above the items.
    pub fn paint(ui: &Ui, band: Rect, content: Pos2) {
        let palette = palette(ui);
        let stroke = egui::Stroke::new(1.0, palette.accent);
        let rect = band.translate(content.to_vec2());
        ui.painter().rect(rect, 2.0, palette.accent.gamma_multiply(0.12), stroke, egui::StrokeKind::Inside);
    }
}

/// A word on a dark ground over a picture; returns where it ends.
pub fn badge(ui: &Ui, painter: &Painter, right_top: Pos2, text: &str, ink: Color32) -> Pos2 {
    let font = TextStyle::Small.resolve(ui.style());
    let galley = painter.layout_no_wrap(text.to_owned(), font, ink);
    let size = galley.size() + vec2(10.0, 3.0);
    let rect = Rect::from_min_size(pos2(right_top.x - size.x, right_top.y), size);
    painter.rect_filled(rect, CornerRadius::same(8), Color32::from_black_alpha(190));
    painter.galley(rect.center() - galley.size() / 2.0, galley, ink);
    rect.left_top()
}

/// The sign of a reviewed image: a tick, of one that is empty on purpose: a ring with a stroke; returns what it means.
pub fn paint_review(painter: &Painter, center: Pos2, radius: f32, review: Review, color: Color32, ink: Color32) {
    let point = |x: f32, y: f32| center + vec2(x, y) * radius;
    let stroke = egui::Stroke::new((radius * 0.26).max(1.2), ink);
    match review {
        Review::Unreviewed => {}
        Review::Reviewed => {
            painter.circle_filled(center, radius, color);
            painter.line(vec![point(-0.45, 0.05), point(-0.12, 0.4), point(0.48, -0.35)], stroke);
        }
        Review::Empty => {
            painter.circle_filled(center, radius, color);
            painter.circle_stroke(center, radius * 0.5, stroke);
            painter.line_segment([point(0.42, -0.42), point(-0.42, 0.42)], stroke);
        }
    }
}

pub fn review_name(review: Review) -> &'static str {
    match review {
        Review::Unreviewed => "unreviewed",
        Review::Reviewed => "reviewed",
        Review::Empty => "empty on purpose",
    }
}

/// A triangle that asks for attention.
pub fn paint_warning(painter: &Painter, center: Pos2, radius: f32, color: Color32) {
    let points = [vec2(0.0, -1.0), vec2(1.05, 0.85), vec2(-1.05, 0.85)].map(|corner| center + corner * radius);
    painter.add(egui::Shape::convex_polygon(points.to_vec(), color, egui::Stroke::NONE));
    let font = egui::FontId::proportional(radius * 1.5);
    painter.text(center + vec2(0.0, radius * 0.16), Align2::CENTER_CENTER, "!", font, theme::ink_on(color));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_touches_the_cells_it_crosses() {
        let block = |x1, y1, x2, y2| {
            let block = Block::within(Rect::from_min_max(pos2(x1, y1), pos2(x2, y2)), vec2(100.0, 80.0), 3);
            block.positions().flatten().collect::<Vec<_>>()
        };
        assert_eq!(block(110.0, 10.0, 190.0, 90.0), [1, 4]);
        assert_eq!(block(-20.0, 170.0, 500.0, 200.0), [6, 7, 8]);
        assert_eq!(block(400.0, 0.0, 500.0, 10.0), [0; 0]);
        assert_eq!(block(0.0, -50.0, 50.0, -5.0), [0; 0]);
    }
}
