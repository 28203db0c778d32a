//! The image canvas: one picture with boxes, zoomed and panned.
//!
//! In:  a picture file, boxes as fractions of it, each with colour, name and style.
//! Out: which box is under the pointer, and which was clicked.
//!
//! The wheel zooms at the pointer, every drag pans, a double click fits the picture into view. Pixels stay crisp when
//! zoomed in far. Never changes a label.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use egui::{
    Align2, Color32, CursorIcon, PointerButton, Pos2, Rect, Response, Role, Sense, Shape, Stroke, StrokeKind, TextStyle, Ui, Vec2,
    WidgetInfo, pos2, vec2,
};

use super::textures::{Look, Textures};
use super::theme::{self, palette};
use crate::geom::Size;
use crate::geom::Xywhn;

/// Screen points an image pixel may cover.
const MAX_SCALE: f32 = 64.0;
/// From here on pixels are crisp instead of smoothed.
const CRISP_SCALE: f32 = 4.0;
/// More boxes than this show their names only under the pointer.
const MAX_TAGS: usize = 150;
/// Space around a fitted picture.
const MARGIN: f32 = 16.0;

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
    path: PathBuf,
    /// `None`: the whole picture, whatever the size of the window.
    view: Option<View>,
    asked: Option<Zoom>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct View {
    /// Screen points an image pixel.
    scale: f32,
    /// Image pixel in the middle of the canvas.
    center: Vec2,
}

/// A change of the zoom from outside: a key or a button.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zoom {
    Fit,
    Actual,
    By(f32),
}

impl Canvas {
    /// Changes the zoom with the next drawing.
    pub fn zoom(&mut self, zoom: Zoom) {
        self.asked = Some(zoom);
    }

    /// Draws the picture over the space that is there.
    pub fn ui(&mut self, ui: &mut Ui, textures: &mut Textures, path: &Path, boxes: &[CanvasBox<'_>]) -> CanvasResponse {
        let (rect, response) = ui.allocate_exact_size(ui.available_size(), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Image, true, "canvas"));
        let palette = palette(ui);
        let painter = ui.painter_at(rect);
        painter.rect_filled(rect, 0.0, palette.backdrop);
        if self.path != path {
            *self = Self { path: path.to_path_buf(), asked: self.asked.take(), view: None };
        }

        let pixels_per_point = ui.ctx().pixels_per_point();
        // Before the size is known, a level that fills the canvas is asked for.
        let fitting = rect.width().max(rect.height());
        let scale = self.view.map_or(1.0, |view| view.scale);
        let side = match textures.thumbnail(path) {
            Look::Shown(shown) if self.view.is_some() => scale * shown.full_size.width.max(shown.full_size.height) as f32,
            _ => fitting,
        };
        let is_crisp = scale * pixels_per_point >= CRISP_SCALE;
        let shown = match textures.picture(path, side * pixels_per_point, is_crisp) {
            Look::Shown(shown) => shown,
            Look::Loading => {
                egui::Spinner::new().size(22.0).color(palette.faint).paint_at(ui, Rect::from_center_size(rect.center(), Vec2::splat(22.0)));
                return CanvasResponse::default();
            }
            Look::Failed(reason) => {
                let text = format!("This picture cannot be shown\n{reason}");
                let font = TextStyle::Body.resolve(ui.style());
                let galley = painter.layout(text, font, palette.weak, rect.width() - 40.0);
                painter.galley(rect.center() - galley.size() / 2.0, galley, palette.weak);
                return CanvasResponse::default();
            }
        };

        let size = vec2(shown.full_size.width as f32, shown.full_size.height as f32);
        self.steer(ui, &response, rect, size);
        let view = self.view.unwrap_or_else(|| fitted(rect, size));
        let image_rect = Rect::from_min_size(screen_from_image(rect, view, Vec2::ZERO), size * view.scale);
        let uv = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
        painter.image(shown.texture, image_rect, uv, Color32::WHITE);

        let (hovered, hits) = draw_boxes(ui, &painter, &response, image_rect, boxes);
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
            size: Some(shown.full_size),
        }
    }

    /// Zoom in percent of the picture's pixels on the screen, for display.
    pub fn percent(&self, ui: &Ui, rect: Rect, size: Size) -> f32 {
        let size = vec2(size.width as f32, size.height as f32);
        self.view.unwrap_or_else(|| fitted(rect, size)).scale * ui.ctx().pixels_per_point() * 100.0
    }

    fn steer(&mut self, ui: &Ui, response: &Response, rect: Rect, size: Vec2) {
        let fit = fitted(rect, size);
        let actual = 1.0 / ui.ctx().pixels_per_point();
        match self.asked.take() {
            Some(Zoom::Fit) => self.view = None,
            Some(Zoom::Actual) => self.view = Some(View { scale: actual, center: self.view.map_or(size / 2.0, |view| view.center) }),
            Some(Zoom::By(factor)) => self.zoom_at(rect, fit, rect.center(), factor),
            None => {}
        }
        if response.double_clicked() {
            self.view = None;
        }
        if response.dragged_by(PointerButton::Primary) || response.dragged_by(PointerButton::Middle) {
            let mut view = self.view.unwrap_or(fit);
            view.center -= response.drag_delta() / view.scale;
            self.view = Some(view);
        }
        if let Some(pointer) = response.hover_pos() {
            let (scroll, pinch) = ui.input(|input| (input.smooth_scroll_delta().y, input.zoom_delta()));
            let factor = if pinch == 1.0 { (scroll / 240.0).exp() } else { pinch };
            if factor != 1.0 {
                self.zoom_at(rect, fit, pointer, factor);
            }
        }
        if let Some(view) = &mut self.view {
            view.center = view.center.clamp(Vec2::ZERO, size);
        }
    }

    /// Zooms so that the image point below `pointer` stays there.
    fn zoom_at(&mut self, rect: Rect, fit: View, pointer: Pos2, factor: f32) {
        let mut view = self.view.unwrap_or(fit);
        let below = view.center + (pointer - rect.center()) / view.scale;
        view.scale = (view.scale * factor).clamp(fit.scale.min(1.0) * 0.25, MAX_SCALE);
        view.center = below - (pointer - rect.center()) / view.scale;
        self.view = Some(view);
    }
}

/// The view that shows the whole picture; small pictures are enlarged, up to eight times.
fn fitted(rect: Rect, size: Vec2) -> View {
    let room = (rect.size() - Vec2::splat(2.0 * MARGIN)).max(Vec2::splat(8.0));
    let scale = (room.x / size.x.max(1.0)).min(room.y / size.y.max(1.0)).min(8.0);
    View { scale, center: size / 2.0 }
}

fn screen_from_image(rect: Rect, view: View, image: Vec2) -> Pos2 {
    rect.center() + (image - view.center) * view.scale
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
    image_rect: Rect,
    boxes: &[CanvasBox<'_>],
) -> (Option<usize>, Option<usize>) {
    let view = painter.clip_rect();
    let rects: Vec<Rect> = boxes.iter().map(|each| screen_rect(image_rect, each.bbox)).collect();
    let under = |pointer: Pos2| {
        // The smallest wins, so that a small box on a large one can be picked.
        let hits = rects.iter().enumerate().filter(|(_, rect)| rect.expand(3.0).contains(pointer));
        hits.min_by(|(_, a), (_, b)| a.area().total_cmp(&b.area())).map(|(index, _)| index)
    };
    let hovered = response.hover_pos().and_then(under);
    let clicked = response.interact_pointer_pos().and_then(under);

    let is_marked = |index: usize| hovered == Some(index) || boxes[index].is_selected;
    let shows_tags = boxes.len() <= MAX_TAGS;
    let (marked, plain): (Vec<usize>, Vec<usize>) =
        (0..boxes.len()).filter(|&i| view.intersects(rects[i].expand(24.0))).partition(|&i| is_marked(i));
    for &index in plain.iter().chain(&marked) {
        draw_box(painter, rects[index], &boxes[index], is_marked(index));
    }
    // Tags above all boxes; the marked ones last.
    for &index in plain.iter().chain(&marked) {
        let is_roomy = rects[index].width() > 22.0 && rects[index].height() > 10.0;
        if is_marked(index) || (shows_tags && is_roomy) {
            draw_tag(ui, painter, rects[index], &boxes[index], view);
        }
    }
    (hovered, clicked)
}

fn draw_box(painter: &egui::Painter, rect: Rect, each: &CanvasBox<'_>, is_marked: bool) {
    if is_marked {
        painter.rect_filled(rect, 0.0, each.color.gamma_multiply(0.22));
    }
    let width = if is_marked { 2.5 } else { 1.75 };
    // A dark line around the coloured one keeps boxes visible on pictures of their own colour.
    let halo = Color32::from_black_alpha(if is_marked { 150 } else { 90 });
    painter.rect_stroke(rect, 1.0, Stroke::new(width + 1.5, halo), StrokeKind::Middle);
    match each.outline {
        Outline::Solid => {
            painter.rect_stroke(rect, 1.0, Stroke::new(width, each.color), StrokeKind::Middle);
        }
        Outline::Dashed => {
            let corners = [rect.left_top(), rect.right_top(), rect.right_bottom(), rect.left_bottom(), rect.left_top()];
            painter.extend(Shape::dashed_line(&corners, Stroke::new(width, each.color), 6.0, 4.0));
        }
    }
}

fn draw_tag(ui: &Ui, painter: &egui::Painter, rect: Rect, each: &CanvasBox<'_>, view: Rect) {
    if each.tag.is_empty() {
        return;
    }
    let font = TextStyle::Small.resolve(ui.style());
    let galley = painter.layout_no_wrap(each.tag.to_string(), font, theme::ink_on(each.color));
    let size = galley.size() + vec2(8.0, 2.0);
    let above = rect.top() - size.y - 1.0;
    let top = if above >= view.top() { above } else { rect.top().max(view.top()) };
    let left = rect.left().min(view.right() - size.x).max(view.left());
    let tag = Rect::from_min_size(pos2(left - 1.0, top), size);
    painter.rect_filled(tag, 3.0, each.color);
    painter.galley(Align2::CENTER_CENTER.align_size_within_rect(galley.size(), tag).min, galley, Color32::PLACEHOLDER);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECT: Rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(432.0, 332.0));

    #[test]
    fn a_fitted_picture_is_whole_and_centred() {
        let view = fitted(RECT, vec2(800.0, 200.0));
        assert_eq!(view.scale, 0.5);
        assert_eq!(screen_from_image(RECT, view, Vec2::ZERO), pos2(16.0, 116.0));
    }

    #[test]
    fn zooming_keeps_the_point_below_the_pointer() {
        let mut canvas = Canvas::default();
        let fit = fitted(RECT, vec2(400.0, 300.0));
        let pointer = pos2(100.0, 80.0);
        canvas.zoom_at(RECT, fit, pointer, 3.0);
        let view = canvas.view.expect("zoomed");
        let before = fit.center + (pointer - RECT.center()) / fit.scale;
        assert!((screen_from_image(RECT, view, before) - pointer).length() < 1e-3);
        assert_eq!(view.scale, 3.0 * fit.scale);
    }

    #[test]
    fn a_box_lands_on_its_part_of_the_picture() {
        let image_rect = Rect::from_min_size(pos2(10.0, 20.0), vec2(200.0, 100.0));
        let half = screen_rect(image_rect, Xywhn { cx: 0.5, cy: 0.5, w: 0.5, h: 1.0 });
        assert_eq!(half, Rect::from_min_max(pos2(60.0, 20.0), pos2(160.0, 120.0)));
    }
}
