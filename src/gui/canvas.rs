//! The image canvas: one picture with boxes, zoomed and panned.
//!
//! In:  a picture file, boxes as fractions of it, each with colour, name and style.
//! Out: which box is under the pointer, and which was clicked.
//!
//! The wheel zooms at the pointer, every drag pans, a double click fits the picture into view. Never changes a label: the
//! canvas that does is `edit_canvas`.

use std::borrow::Cow;
use std::path::Path;

use egui::{Align2, Color32, CursorIcon, PointerButton, Pos2, Rect, Response, Role, Sense, Shape, TextStyle, Ui, WidgetInfo, pos2, vec2};

use super::outlines::{OutlinedBox, Outlines};
use super::picture_view::{Drawn, PictureView};
use super::textures::Textures;
use super::theme;
use super::tone::Tone;
use super::viewport::{self, Zoom};
use crate::dataset::Label;
use crate::geom::Size;
use crate::geom::Xywhn;

/// More boxes in view than this show their names only under the pointer.
pub const MAX_TAGS: usize = 150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outline {
    Solid,
    /// Ground truth beside detections.
    Dashed,
}

/// A box to draw.
#[derive(Clone, Debug)]
pub struct CanvasBox<'a> {
    pub bbox: Xywhn,
    pub color: Color32,
    /// Empty: no tag.
    pub tag: Cow<'a, str>,
    pub outline: Outline,
    pub is_selected: bool,
}

/// A label as the canvas draws it.
pub fn label_box<'a>(names: &'a [String], label: &Label, is_selected: bool) -> CanvasBox<'a> {
    let class = label.class.0 as usize;
    let tag = names.get(class).map_or("?", String::as_str).into();
    CanvasBox { bbox: label.bbox, color: theme::class_color(class), tag, outline: Outline::Solid, is_selected }
}

/// What happened on the canvas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CanvasResponse {
    pub hovered: Option<usize>,
    pub clicked: Option<usize>,
    /// Clicked where no box is.
    pub clicked_empty: bool,
    /// Size of the picture, once it is known.
    pub size: Option<Size>,
}

/// What the canvas remembers: the part of the picture in view.
#[derive(Clone, Debug, Default)]
pub struct Canvas {
    picture: PictureView,
}

impl Canvas {
    /// Changes the zoom with the next drawing.
    pub fn zoom(&mut self, zoom: Zoom) {
        self.picture.viewport.zoom(zoom);
    }

    /// Draws the picture over the space that is there.
    pub fn ui(&mut self, ui: &mut Ui, textures: &mut Textures, path: &Path, boxes: &[CanvasBox<'_>]) -> CanvasResponse {
        let (rect, response) = ui.allocate_exact_size(ui.available_size(), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Image, true, "canvas"));
        let Some(drawn) = self.picture.ui(ui, &response, textures, path, Tone::default()) else { return CanvasResponse::default() };
        if response.double_clicked() {
            self.picture.viewport.zoom(Zoom::Fit);
            ui.ctx().request_repaint();
        }
        if response.dragged_by(PointerButton::Primary) {
            self.picture.viewport.pan(&response, viewport::far_corner(drawn.size), response.drag_delta());
        }
        let painter = ui.painter_at(rect);
        let (hovered, hits) = draw_boxes(ui, &painter, &response, &drawn, boxes);
        if hovered.is_some() && !response.dragged() {
            ui.ctx().set_cursor_icon(CursorIcon::PointingHand);
        } else if response.dragged() {
            ui.ctx().set_cursor_icon(CursorIcon::Grabbing);
        }
        let is_click = response.clicked() && !response.double_clicked();
        CanvasResponse {
            hovered,
            clicked: if is_click { hits } else { None },
            clicked_empty: is_click && hits.is_none(),
            size: Some(drawn.size),
        }
    }
}

/// The screen rectangle of a box on a picture that covers `image_rect`.
pub fn screen_rect(image_rect: Rect, bbox: Xywhn) -> Rect {
    let center = image_rect.min + vec2(bbox.cx, bbox.cy) * image_rect.size();
    Rect::from_center_size(center, vec2(bbox.w, bbox.h) * image_rect.size())
}

/// Draws boxes and tags; returns the box under the pointer (twice: for hovering and for clicks).
fn draw_boxes(
    ui: &Ui,
    painter: &egui::Painter,
    response: &Response,
    drawn: &Drawn,
    boxes: &[CanvasBox<'_>],
) -> (Option<usize>, Option<usize>) {
    let view = painter.clip_rect();
    let rects: Vec<Rect> = boxes.iter().map(|each| drawn.projection.screen_rect(viewport::image_rect(each.bbox, drawn.size))).collect();
    let under = |pointer: Pos2| {
        // The smallest wins, so that a small box on a large one can be picked.
        let hits = rects.iter().enumerate().filter(|(_, rect)| rect.expand(3.0).contains(pointer));
        hits.min_by(|(_, a), (_, b)| a.area().total_cmp(&b.area())).map(|(index, _)| index)
    };
    let hovered = response.hover_pos().and_then(under);
    let clicked = response.interact_pointer_pos().and_then(under);

    let is_marked = |index: usize| hovered == Some(index) || boxes[index].is_selected;
    let (marked, plain): (Vec<usize>, Vec<usize>) =
        (0..boxes.len()).filter(|&i| view.intersects(rects[i].expand(24.0))).partition(|&i| is_marked(i));
    let mut outlines = Outlines::new(view, ui.ctx().pixels_per_point());
    for &index in plain.iter().chain(&marked) {
        let (color, is_dashed) = (boxes[index].color, boxes[index].outline == Outline::Dashed);
        outlines.add(OutlinedBox::new(rects[index], color, is_marked(index), is_dashed));
    }
    painter.add(Shape::mesh(outlines.mesh()));
    // Tags above all boxes; the marked ones last.
    let shows_tags = plain.len() + marked.len() <= MAX_TAGS;
    for &index in plain.iter().chain(&marked) {
        if is_marked(index) || (shows_tags && has_room_for_tag(rects[index])) {
            draw_tag(ui, painter, rects[index], &boxes[index].tag, boxes[index].color);
        }
    }
    (hovered, clicked)
}

/// Whether the name of a box does not hide more than it tells.
pub fn has_room_for_tag(rect: Rect) -> bool {
    rect.width() > 22.0 && rect.height() > 10.0
}

/// The name of a box above it, or inside where there is no room above.
pub fn draw_tag(ui: &Ui, painter: &egui::Painter, rect: Rect, tag: &str, color: Color32) {
    if tag.is_empty() {
        return;
    }
    let view = painter.clip_rect();
    let font = TextStyle::Small.resolve(ui.style());
    let galley = painter.layout_no_wrap(tag.to_owned(), font, theme::ink_on(color));
    let size = galley.size() + vec2(8.0, 2.0);
    let above = rect.top() - size.y - 1.0;
    let top = if above >= view.top() { above } else { rect.top().max(view.top()) };
    let left = rect.left().min(view.right() - size.x).max(view.left());
    let tag = Rect::from_min_size(pos2(left - 1.0, top), size);
    painter.rect_filled(tag, 3.0, color);
    painter.galley(Align2::CENTER_CENTER.align_size_within_rect(galley.size(), tag).min, galley, Color32::PLACEHOLDER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_lands_on_its_part_of_the_picture() {
        let image_rect = Rect::from_min_size(pos2(10.0, 20.0), vec2(200.0, 100.0));
        let half = screen_rect(image_rect, Xywhn { cx: 0.5, cy: 0.5, w: 0.5, h: 1.0 });
        assert_eq!(half, Rect::from_min_max(pos2(60.0, 20.0), pos2(160.0, 120.0)));
    }
}
