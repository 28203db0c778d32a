//! Which tiles of a large picture are on the graphics card? Those in view, at the level that the zoom needs.
//!
//! The canvas asks while drawing (`TileTextures::look`) and gets what is there; between frames `take_in` uploads a bounded
//! amount of what the session has cut, and `requests` names the rest. No texture has a side above 514 pixels.

use std::collections::HashMap;
use std::path::Path;

use egui::{Context, Pos2, Rect, TextureHandle, TextureId, TextureOptions, pos2, vec2};

use super::tone::Tone;
use crate::geom::Size;
use crate::session::tiles::{TILE_BORDER, TILE_SIDE};
use crate::session::{TileKey, TileState, Tiles};

/// Bytes of textures that are kept.
const BUDGET_BYTES: usize = 256 << 20;
/// Bytes that one frame uploads.
const UPLOAD_BYTES: usize = 12 << 20;
/// The next finer level is taken when the shown one is enlarged more than this.
const MAX_ENLARGEMENT: f32 = 1.05;

/// The level whose pixels are about as large as those of the screen. `scale`: screen pixels an image pixel.
pub fn level_for(scale: f32, size: Size) -> u32 {
    let n_levels = (size.width.max(size.height) as f32 / TILE_SIDE as f32).log2().ceil().max(0.0) as u32 + 1;
    let wanted = (MAX_ENLARGEMENT / scale.max(1e-6)).log2().floor().max(0.0) as u32;
    wanted.min(n_levels - 1)
}

/// A tile of a level: where it lies, in pixels of the image at full size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TilePlace {
    pub column: u32,
    pub row: u32,
    pub image: Rect,
}

/// The tiles of a level that show some of `visible`, in image pixels.
pub fn tiles_in(visible: Rect, level: u32, size: Size) -> Vec<TilePlace> {
    let span = (TILE_SIDE << level) as f32;
    let whole = Rect::from_min_max(Pos2::ZERO, pos2(size.width as f32, size.height as f32));
    let part = visible.intersect(whole);
    if part.width() <= 0.0 || part.height() <= 0.0 {
        return Vec::new();
    }
    let range = |low: f32, high: f32| (low / span) as u32..=((high - 0.01).max(low) / span) as u32;
    let rows = range(part.top(), part.bottom());
    let place = |column: u32, row: u32| {
        let corner = pos2(column as f32 * span, row as f32 * span);
        TilePlace { column, row, image: Rect::from_min_size(corner, vec2(span, span)).intersect(whole) }
    };
    rows.flat_map(|row| range(part.left(), part.right()).map(move |column| place(column, row))).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    tile: TileKey,
    is_crisp: bool,
}

struct Entry {
    texture: TextureHandle,
    tone: Tone,
    n_bytes: usize,
    last_frame: u64,
}

/// The cache.
#[derive(Default)]
pub struct TileTextures {
    entries: HashMap<Key, Entry>,
    wanted: Vec<(Key, Tone)>,
    n_bytes: usize,
    frame: u64,
}

/// A tile as it can be drawn now, and the part of its texture without the neighbours' pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileLook {
    pub texture: TextureId,
    pub uv: Rect,
}

impl TileTextures {
    /// A tile in this tone, or meanwhile in the one before; `None` while it is on its way.
    pub fn look(&mut self, path: &Path, level: u32, place: &TilePlace, is_crisp: bool, tone: Tone) -> Option<TileLook> {
        let tile = TileKey { path: path.to_path_buf(), level, column: place.column, row: place.row };
        let key = Key { tile, is_crisp };
        let frame = self.frame;
        let found = self.entries.get_mut(&key).map(|entry| {
            entry.last_frame = frame;
            let [width, height] = entry.texture.size().map(|side| side as f32);
            let border = vec2(TILE_BORDER as f32 / width, TILE_BORDER as f32 / height);
            let uv = Rect::from_min_max(border.to_pos2(), pos2(1.0, 1.0) - border);
            (TileLook { texture: entry.texture.id(), uv }, entry.tone)
        });
        if found.is_none_or(|(_, of)| of != tone) {
            self.wanted.push((key, tone));
        }
        found.map(|(look, _)| look)
    }

    /// Uploads what was wanted in the last frame and is cut now. Call it between frames.
    pub fn take_in(&mut self, ctx: &Context, tiles: &Tiles) {
        self.frame += 1;
        let mut n_uploaded = 0;
        for (key, tone) in std::mem::take(&mut self.wanted) {
            let Some(TileState::Ready(picture)) = tiles.get(&key.tile) else { continue };
            if n_uploaded >= UPLOAD_BYTES {
                ctx.request_repaint();
                break;
            }
            let image = tone.image(picture, 0..picture.size.height as usize);
            let n_bytes = image.pixels.len() * 4;
            let options = if key.is_crisp { TextureOptions::NEAREST } else { TextureOptions::LINEAR };
            let name = format!("tile {} {} {}", key.tile.level, key.tile.column, key.tile.row);
            let texture = ctx.load_texture(name, image, options);
            if let Some(before) = self.entries.insert(key, Entry { texture, tone, n_bytes, last_frame: self.frame }) {
                self.n_bytes -= before.n_bytes;
            }
            self.n_bytes += n_bytes;
            n_uploaded += n_bytes;
            ctx.request_repaint();
        }
        while self.n_bytes > BUDGET_BYTES {
            let unused = self.entries.iter().filter(|(_, entry)| entry.last_frame + 1 < self.frame);
            let Some(oldest) = unused.min_by_key(|(_, entry)| entry.last_frame).map(|(key, _)| key.clone()) else { return };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.n_bytes -= entry.n_bytes;
            }
        }
    }

    /// The tiles that drawing missed, for the session to cut.
    pub fn requests(&self) -> impl Iterator<Item = &TileKey> {
        self.wanted.iter().map(|(key, _)| &key.tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { width: 20_000, height: 20_000 };

    #[test]
    fn the_level_follows_the_zoom() {
        assert_eq!([1.0, 2.0, 0.9, 0.5, 0.26, 0.04, 1e-9].map(|scale| level_for(scale, SIZE)), [0, 0, 0, 1, 2, 4, 6]);
        assert_eq!(level_for(0.01, Size::new(100, 100)), 0);
    }

    #[test]
    fn only_tiles_in_view_are_asked_for() {
        let view = Rect::from_min_size(pos2(1000.0, 5000.0), vec2(1920.0, 1080.0));
        let tiles = tiles_in(view, 0, SIZE);
        assert_eq!(tiles.len(), 5 * 3);
        assert!(tiles.iter().all(|tile| tile.image.intersects(view)));
        let covered = tiles.iter().fold(Rect::NOTHING, |all, tile| all.union(tile.image));
        assert!(covered.contains_rect(view));
        assert_eq!(tiles_in(Rect::from_min_size(pos2(-900.0, 0.0), vec2(800.0, 800.0)), 0, SIZE), []);
    }

    #[test]
    fn no_view_of_a_large_picture_asks_for_many_tiles() {
        for scale in [0.05, 0.1, 0.3, 0.5, 0.99, 1.0, 3.0, 64.0] {
            let level = level_for(scale, SIZE);
            let view = Rect::from_min_size(pos2(3000.0, 3000.0), vec2(1920.0, 1080.0) / scale);
            assert!(tiles_in(view, level, SIZE).len() <= 54, "{scale}: {}", tiles_in(view, level, SIZE).len());
        }
    }

    #[test]
    fn the_last_tiles_end_with_the_picture() {
        let strip = Size::new(30_000, 200);
        let tiles = tiles_in(Rect::EVERYTHING, 0, strip);
        assert_eq!(tiles.len(), 59);
        assert_eq!(tiles[58].image, Rect::from_min_max(pos2(58.0 * 512.0, 0.0), pos2(30_000.0, 200.0)));
    }
}
