//! What lies exactly below the pointer? A magnifier in a corner of the canvas, while a box is drawn or resized.
//!
//! In:  the picture as it is drawn, and a point of it. Out: its surroundings enlarged, with a cross on the point.
//!
//! It lies in the corner that is farthest from the point, so that it never hides it.

use std::path::Path;

use egui::{Color32, Painter, Pos2, Rect, Stroke, StrokeKind, Ui, Vec2, pos2};

use super::picture_view::Drawn;
use super::textures::Textures;
use super::theme::palette;
use super::tone::Tone;
use super::viewport::Projection;

/// Side on the screen, in points.
const SIDE: f32 = 156.0;
const MARGIN: f32 = 12.0;
/// So much larger than the picture beside it, and at least so many points a pixel.
const ENLARGEMENT: f32 = 4.0;
const MIN_SCALE: f32 = 4.0;
const MAX_SCALE: f32 = 64.0;

/// Where it lies on a canvas, away from `point` on the screen.
fn place(canvas: Rect, point: Pos2) -> Rect {
    let inner = canvas.shrink(MARGIN);
    let left = if point.x < canvas.center().x { inner.right() - SIDE } else { inner.left() };
    // At the top, unless the point is near it on the same side as the corner would be.
    let top = if point.y < canvas.center().y { inner.bottom() - SIDE } else { inner.top() };
    Rect::from_min_size(pos2(left, top), Vec2::splat(SIDE))
}

/// Draws it for a point in image pixels, with the box that is being changed.
pub fn ui(ui: &Ui, drawn: &Drawn, textures: &mut Textures, path: &Path, tone: Tone, point: Pos2, rect: Option<Rect>) {
    let palette = palette(ui);
    let canvas = drawn.projection.canvas;
    let side = place(canvas, drawn.projection.screen_from_image(point));
    if !canvas.contains_rect(side) {
        return;
    }
    let scale = (drawn.projection.scale * ENLARGEMENT).clamp(MIN_SCALE, MAX_SCALE);
    let projection = Projection { canvas: side, scale, center: point.to_vec2() };
    let painter: Painter = ui.painter_at(side);
    painter.rect_filled(side, 0.0, palette.backdrop);
    drawn.paint(&painter, textures, path, tone, &projection);
    if let Some(rect) = rect {
        painter.rect_stroke(projection.screen_rect(rect), 0.0, Stroke::new(1.5, palette.accent), StrokeKind::Middle);
    }
    for (ink, shift) in [(Color32::from_black_alpha(140), 1.0), (Color32::from_white_alpha(220), 0.0)] {
        let center = side.center() + Vec2::splat(shift);
        painter.hline(side.x_range(), center.y, Stroke::new(1.0, ink));
        painter.vline(center.x, side.y_range(), Stroke::new(1.0, ink));
    }
    ui.painter_at(canvas).rect_stroke(side, 0.0, Stroke::new(1.0, palette.border), StrokeKind::Outside);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_hides_the_point() {
        let canvas = Rect::from_min_size(pos2(200.0, 100.0), Vec2::new(700.0, 500.0));
        for x in 0..=10 {
            for y in 0..=10 {
                let point = canvas.lerp_inside(Vec2::new(x as f32 / 10.0, y as f32 / 10.0));
                assert!(!place(canvas, point).contains(point) && canvas.contains_rect(place(canvas, point)), "{point:?}");
            }
        }
    }
}
