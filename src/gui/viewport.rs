//! Which part of a picture is in view? Zoom and pan, and the way between image and screen space.
//!
//! In:  the canvas on the screen, the size of the picture, wheel, drags and keys.
//! Out: a `Projection`, which turns image pixels into screen points and back.
//!
//! Without a choice of the person the whole picture is in view, whatever the size of the window.

use egui::{PointerButton, Pos2, Rect, Response, Ui, Vec2, pos2, vec2};

use crate::geom::{Size, Xywhn};

/// Screen points an image pixel may cover.
const MAX_SCALE: f32 = 64.0;
/// Space around a fitted picture.
const MARGIN: f32 = 16.0;
/// A fitted picture is enlarged at most so many times, a box that is looked at up to so many points a pixel.
const MAX_FIT: f32 = 8.0;
const MAX_BOX_FIT: f32 = 16.0;

/// A change of the zoom from outside: a key or a button.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zoom {
    Fit,
    Actual,
    By(f32),
    /// This part of the picture, in image pixels, with some room around.
    To(Rect),
}

/// The part of the picture in view.
#[derive(Clone, Debug, Default)]
pub struct Viewport {
    /// `None`: the whole picture.
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

/// How image pixels lie on the screen in this frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Projection {
    /// The canvas, in screen points.
    pub canvas: Rect,
    /// Screen points an image pixel.
    pub scale: f32,
    /// Image pixel in the middle of the canvas.
    pub center: Vec2,
}

impl Projection {
    pub fn screen_from_image(&self, image: Pos2) -> Pos2 {
        self.canvas.center() + (image.to_vec2() - self.center) * self.scale
    }

    pub fn image_from_screen(&self, screen: Pos2) -> Pos2 {
        (self.center + (screen - self.canvas.center()) / self.scale).to_pos2()
    }

    pub fn screen_rect(&self, image: Rect) -> Rect {
        Rect::from_min_max(self.screen_from_image(image.min), self.screen_from_image(image.max))
    }

    /// The part of the image behind the canvas; it may reach past the image.
    pub fn visible(&self) -> Rect {
        Rect::from_min_max(self.image_from_screen(self.canvas.min), self.image_from_screen(self.canvas.max))
    }
}

/// A box in image pixels.
pub fn image_rect(bbox: Xywhn, size: Size) -> Rect {
    let size = vec2(size.width as f32, size.height as f32);
    Rect::from_center_size((vec2(bbox.cx, bbox.cy) * size).to_pos2(), vec2(bbox.w, bbox.h) * size)
}

impl Viewport {
    /// Changes the zoom with the next drawing.
    pub fn zoom(&mut self, zoom: Zoom) {
        self.asked = Some(zoom);
    }

    /// Back to the whole picture; a zoom that was asked for meanwhile still comes.
    pub fn reset(&mut self) {
        self.view = None;
    }

    /// Whether the person has zoomed or panned.
    pub fn is_chosen(&self) -> bool {
        self.view.is_some()
    }

    /// Screen points an image pixel, if the person has chosen that.
    pub fn scale(&self) -> Option<f32> {
        self.view.map(|view| view.scale)
    }

    /// Takes in what was asked for by [`Viewport::zoom`], and the wheel over the canvas.
    pub fn steer(&mut self, ui: &Ui, response: &Response, size: Size) {
        let (rect, size) = (response.rect, vec2(size.width as f32, size.height as f32));
        let fit = fitted(rect, size);
        let actual = 1.0 / ui.ctx().pixels_per_point();
        match self.asked.take() {
            Some(Zoom::Fit) => self.view = None,
            Some(Zoom::Actual) => self.view = Some(View { scale: actual, center: self.view.map_or(size / 2.0, |view| view.center) }),
            Some(Zoom::By(factor)) => self.zoom_at(rect, fit, rect.center(), factor),
            Some(Zoom::To(part)) => self.view = Some(fitted_part(rect, part)),
            None => {}
        }
        if let Some(pointer) = response.hover_pos() {
            let (scroll, pinch) = ui.input(|input| (input.smooth_scroll_delta().y, input.zoom_delta()));
            let factor = if pinch == 1.0 { (scroll / 240.0).exp() } else { pinch };
            if factor != 1.0 {
                self.zoom_at(rect, fit, pointer, factor);
            }
        }
        if response.dragged_by(PointerButton::Middle) {
            self.pan(response, size.to_pos2(), response.drag_delta());
        }
        if let Some(view) = &mut self.view {
            view.center = view.center.clamp(Vec2::ZERO, size);
        }
    }

    /// Moves the picture by so many screen points. `size` is the far corner of the picture, in image pixels.
    pub fn pan(&mut self, response: &Response, size: Pos2, by: Vec2) {
        let mut view = self.view.unwrap_or_else(|| fitted(response.rect, size.to_vec2()));
        view.center = (view.center - by / view.scale).clamp(Vec2::ZERO, size.to_vec2());
        self.view = Some(view);
    }

    /// Moves the picture so far that a point of it, in image pixels, is well inside the canvas.
    pub fn reveal(&mut self, canvas: Rect, point: Pos2) {
        if let Some(view) = &mut self.view {
            let room = (canvas.size() / 2.0 - Vec2::splat(24.0)).max(Vec2::ZERO) / view.scale;
            view.center = view.center.clamp(point.to_vec2() - room, point.to_vec2() + room);
        }
    }

    pub fn projection(&self, canvas: Rect, size: Size) -> Projection {
        let view = self.view.unwrap_or_else(|| fitted(canvas, vec2(size.width as f32, size.height as f32)));
        Projection { canvas, scale: view.scale, center: view.center }
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

/// The view that shows the whole picture; small pictures are enlarged.
fn fitted(rect: Rect, size: Vec2) -> View {
    let room = (rect.size() - Vec2::splat(2.0 * MARGIN)).max(Vec2::splat(8.0));
    let scale = (room.x / size.x.max(1.0)).min(room.y / size.y.max(1.0)).min(MAX_FIT);
    View { scale, center: size / 2.0 }
}

/// The view of a part of the picture, over two thirds of the canvas.
fn fitted_part(rect: Rect, part: Rect) -> View {
    let room = rect.size() / 1.5;
    let scale = (room.x / part.width().max(1.0)).min(room.y / part.height().max(1.0)).min(MAX_BOX_FIT);
    View { scale, center: part.center().to_vec2() }
}

/// The far corner of a picture, in image pixels.
pub fn far_corner(size: Size) -> Pos2 {
    pos2(size.width as f32, size.height as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECT: Rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(432.0, 332.0));

    #[test]
    fn a_fitted_picture_is_whole_and_centred() {
        let projection = Viewport::default().projection(RECT, Size::new(800, 200));
        assert_eq!(projection.scale, 0.5);
        assert_eq!(projection.screen_from_image(Pos2::ZERO), pos2(16.0, 116.0));
        assert_eq!(projection.image_from_screen(pos2(16.0, 116.0)), Pos2::ZERO);
    }

    #[test]
    fn zooming_keeps_the_point_below_the_pointer() {
        let mut viewport = Viewport::default();
        let size = Size::new(400, 300);
        let fit = viewport.projection(RECT, size);
        let pointer = pos2(100.0, 80.0);
        let before = fit.image_from_screen(pointer);
        viewport.zoom_at(RECT, fitted(RECT, vec2(400.0, 300.0)), pointer, 3.0);
        let after = viewport.projection(RECT, size);
        assert!((after.screen_from_image(before) - pointer).length() < 1e-3);
        assert_eq!(after.scale, 3.0 * fit.scale);
    }

    #[test]
    fn a_box_that_is_zoomed_to_lies_in_the_middle_with_room_around() {
        let part = Rect::from_min_max(pos2(300.0, 200.0), pos2(320.0, 240.0));
        let view = fitted_part(RECT, part);
        assert_eq!(view.center, vec2(310.0, 220.0));
        assert!(part.height() * view.scale < 0.7 * RECT.height() && part.height() * view.scale > 0.6 * RECT.height());
        assert_eq!(fitted_part(RECT, Rect::from_min_size(pos2(5.0, 5.0), vec2(0.1, 0.1))).scale, MAX_BOX_FIT);
    }

    #[test]
    fn a_point_out_of_view_is_brought_in_and_one_inside_moves_nothing() {
        let mut viewport = Viewport { view: Some(View { scale: 10.0, center: vec2(50.0, 50.0) }), asked: None };
        viewport.reveal(RECT, pos2(52.0, 50.0));
        assert_eq!(viewport.projection(RECT, Size::square(400)).center, vec2(50.0, 50.0));
        viewport.reveal(RECT, pos2(200.0, 50.0));
        assert!(RECT.contains(viewport.projection(RECT, Size::square(400)).screen_from_image(pos2(200.0, 50.0))));
    }

    #[test]
    fn a_box_lands_on_its_part_of_the_picture() {
        let half = image_rect(Xywhn { cx: 0.5, cy: 0.5, w: 0.5, h: 1.0 }, Size::new(200, 100));
        assert_eq!(half, Rect::from_min_max(pos2(50.0, 0.0), pos2(150.0, 100.0)));
    }
}
