//! How does a picture get onto the canvas? From the level that is sharp enough, with tiles above it where it is very large.
//!
//! In:  a picture file, the space on the screen, the wheel and keys that change the zoom.
//! Out: the picture drawn, and how its pixels lie on the screen; or a message why it cannot be shown.
//!
//! Any size is shown with textures of at most 8192 pixels a side. Draws what is there and wants what is missing; never decodes.

use std::path::{Path, PathBuf};

use egui::epaint::Mesh;
use egui::{Color32, Painter, Rect, Response, Shape, TextStyle, Ui, Vec2, pos2};

use super::textures::{self, Look, Shown, Textures};
use super::theme::palette;
use super::tiles;
use super::tone::Tone;
use super::viewport::{Projection, Viewport};
use crate::geom::Size;
use crate::session::pyramid;

/// From here on, in screen pixels an image pixel, pixels are crisp instead of smoothed.
const CRISP_SCALE: f32 = 4.0;
/// Of a large picture no larger size is made than this; tiles show more.
const MAX_LARGE_BASE: f32 = 3072.0;

/// One picture on a canvas.
#[derive(Clone, Debug, Default)]
pub struct PictureView {
    path: PathBuf,
    /// Known once something of the picture was seen.
    size: Option<Size>,
    pub viewport: Viewport,
}

/// A picture that was drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    pub projection: Projection,
    pub size: Size,
    shown: Shown,
}

impl PictureView {
    /// Of the picture, once it is known.
    pub fn size(&self) -> Option<Size> {
        self.size
    }

    /// Draws the picture over the canvas that `response` is of; `None` where there is nothing to draw yet, or never.
    pub fn ui(&mut self, ui: &Ui, response: &Response, textures: &mut Textures, path: &Path, tone: Tone) -> Option<Drawn> {
        let rect = response.rect;
        let painter = ui.painter_at(rect);
        painter.rect_filled(rect, 0.0, palette(ui).backdrop);
        if self.path != path {
            self.path = path.to_path_buf();
            self.size = None;
            self.viewport.reset();
        }
        let pixels_per_point = ui.ctx().pixels_per_point();
        // Before the size is known, a level that fills the canvas is asked for.
        let fitting = rect.width().max(rect.height());
        let longest = self.size.map(|size| size.width.max(size.height) as f32);
        let (side, is_crisp) = match (self.viewport.scale(), longest) {
            (Some(scale), Some(longest)) => (scale * longest, scale * pixels_per_point >= CRISP_SCALE),
            _ => (fitting, false),
        };
        let is_large = self.size.is_some_and(pyramid::is_large);
        let side = if is_large { (side * pixels_per_point).min(MAX_LARGE_BASE) } else { side * pixels_per_point };
        let shown = match textures.picture(path, side, is_crisp) {
            Look::Shown(shown) => shown,
            Look::Loading => {
                let at = Rect::from_center_size(rect.center(), Vec2::splat(22.0));
                egui::Spinner::new().size(22.0).color(palette(ui).faint).paint_at(ui, at);
                return None;
            }
            Look::Failed(reason) => {
                let text = format!("This picture cannot be shown\n{reason}");
                let font = TextStyle::Body.resolve(ui.style());
                let galley = painter.layout(text, font, palette(ui).weak, rect.width() - 40.0);
                painter.galley(rect.center() - galley.size() / 2.0, galley, palette(ui).weak);
                return None;
            }
        };
        let size = shown.full_size;
        self.size = Some(size);
        self.viewport.steer(ui, response, size);
        let drawn = Drawn { projection: self.viewport.projection(rect, size), size, shown };
        drawn.paint(&painter, textures, path, tone, &drawn.projection);
        Some(drawn)
    }
}

impl Drawn {
    /// Draws the picture as `projection` says, which may be another than that of the canvas (a magnifier).
    pub fn paint(&self, painter: &Painter, textures: &mut Textures, path: &Path, tone: Tone, projection: &Projection) {
        let whole = Rect::from_min_max(pos2(0.0, 0.0), super::viewport::far_corner(self.size));
        let uv = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
        let toned = if tone.is_neutral() {
            None
        } else {
            let Shown { level, is_crisp, .. } = self.shown;
            textures.toned.look(Textures::key(path, level), textures::options(is_crisp), tone)
        };
        painter.image(toned.unwrap_or(self.shown.texture), projection.screen_rect(whole), uv, Color32::WHITE);
        if pyramid::is_large(self.size) {
            self.paint_tiles(painter, textures, path, tone, projection);
        }
    }

    /// Where the picture below is not sharp enough, tiles of the level that is.
    fn paint_tiles(&self, painter: &Painter, textures: &mut Textures, path: &Path, tone: Tone, projection: &Projection) {
        let scale = projection.scale * painter.ctx().pixels_per_point();
        let longest = self.size.width.max(self.size.height) as f32;
        if scale * longest <= MAX_LARGE_BASE {
            return;
        }
        let level = tiles::level_for(scale, self.size);
        for place in tiles::tiles_in(projection.visible(), level, self.size) {
            if let Some(look) = textures.tiles.look(path, level, &place, scale >= CRISP_SCALE, tone) {
                let mut mesh = Mesh::with_texture(look.texture);
                mesh.add_rect_with_uv(projection.screen_rect(place.image), look.uv, Color32::WHITE);
                painter.add(Shape::mesh(mesh));
            }
        }
    }
}
