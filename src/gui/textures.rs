//! Which pictures are on the graphics card? Decoded pictures become textures here, the longest unused go.
//!
//! Panels ask while drawing (`thumbnail`, `picture`) and get what is there; what was missing is wanted. Between frames
//! `take_in` uploads wanted pictures that the session has decoded, a bounded amount a frame, and `requests` names the rest.
//!
//! Enlarged pixels are smooth in a fitted picture and crisp when a person zooms in to place an edge: two textures.
//!
//! A picture has levels by its longer side: egui-wgpu makes no mipmaps, so a large picture shown small is taken from a
//! smaller level, which the session shrinks by averaging. Never decodes and never touches files.

use std::collections::HashMap;
use std::path::Path;

use egui::{ColorImage, Context, TextureFilter, TextureHandle, TextureId, TextureOptions};

use super::tiles::TileTextures;
use super::tone::TonedPicture;
use crate::geom::Size;
use crate::media::Picture;
use crate::session::PictureKey;
use crate::session::Tiles;
use crate::session::{PictureState, Pictures};

/// Longer side of thumbnails.
const THUMBNAIL_SIDE: u32 = 192;
/// Longer sides of the levels above; the last is the largest texture that every card takes.
const LEVELS: [u32; 4] = [768, 1536, 3072, 8192];
/// Bytes of textures that are kept.
const BUDGET_BYTES: usize = 512 << 20;
/// Bytes that one frame uploads, unless a single picture is larger.
const UPLOAD_BYTES: usize = 24 << 20;

/// A picture as it can be drawn now.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub texture: TextureId,
    /// Of the picture file, whatever the level.
    pub full_size: Size,
    /// Whether it is sharp enough for what was asked.
    pub is_sharp: bool,
    /// Which of its sizes; see [`Textures::key`].
    pub level: usize,
    pub is_crisp: bool,
}

/// What there is to draw of a picture.
#[derive(Clone, Debug)]
pub enum Look<'a> {
    Shown(Shown),
    Loading,
    /// Why it cannot be shown.
    Failed(&'a str),
}

/// A texture: which pixels, and how they look enlarged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TextureKey {
    picture: PictureKey,
    is_crisp: bool,
}

struct Entry {
    texture: TextureHandle,
    full_size: Size,
    n_bytes: usize,
    last_frame: u64,
}

/// The cache.
#[derive(Default)]
pub struct Textures {
    entries: HashMap<TextureKey, Entry>,
    failed: HashMap<PictureKey, String>,
    wanted: Vec<TextureKey>,
    n_bytes: usize,
    frame: u64,
    /// Of pictures that are too large for one texture.
    pub tiles: TileTextures,
    /// The picture that is looked at, in another light than its own.
    pub toned: TonedPicture,
}

impl Textures {
    /// The thumbnail of a picture.
    pub fn thumbnail(&mut self, path: &Path) -> Look<'_> {
        self.look(path, 0, false)
    }

    /// A picture that is drawn with its longer side over `side` screen pixels.
    pub fn picture(&mut self, path: &Path, side: f32, is_crisp: bool) -> Look<'_> {
        let level = LEVELS.iter().position(|&level| level as f32 >= side).unwrap_or(LEVELS.len() - 1);
        self.look(path, level + 1, is_crisp)
    }

    /// Asks for a picture that will be looked at next.
    pub fn prefetch(&mut self, path: &Path) {
        let key = TextureKey { picture: picture_key(path, 1), is_crisp: false };
        if !self.entries.contains_key(&key) && !self.failed.contains_key(&key.picture) {
            self.wanted.push(key);
        }
    }

    /// The wanted level, or while it is on its way the best of the others.
    fn look(&mut self, path: &Path, level: usize, is_crisp: bool) -> Look<'_> {
        let wanted = TextureKey { picture: picture_key(path, level), is_crisp };
        if self.failed.contains_key(&wanted.picture) {
            return Look::Failed(&self.failed[&wanted.picture]);
        }
        let mut best = None;
        let others = (0..=LEVELS.len()).rev().flat_map(|other| [(other, !is_crisp), (other, is_crisp)]);
        for (other, other_is_crisp) in others {
            let key = TextureKey { picture: picture_key(path, other), is_crisp: other_is_crisp };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.last_frame = self.frame;
            let [width, height] = entry.texture.size();
            let is_whole = (width as u32, height as u32) == (entry.full_size.width, entry.full_size.height);
            let is_sharp = (is_whole || other >= level) && other_is_crisp == is_crisp;
            let (texture, full_size) = (entry.texture.id(), entry.full_size);
            let shown = Shown { texture, full_size, is_sharp, level: other, is_crisp: other_is_crisp };
            // The smallest level that is sharp, else the largest there is.
            if shown.is_sharp || best.is_none() {
                best = Some(shown);
            }
        }
        if best.is_none() && level > 1 {
            // Decoded in less time: something to look at until all of it is there.
            self.wanted.push(TextureKey { picture: picture_key(path, 1), is_crisp: false });
        }
        if !best.is_some_and(|shown| shown.is_sharp) {
            self.wanted.push(wanted);
        }
        best.map_or(Look::Loading, Look::Shown)
    }

    /// Uploads what was wanted in the last frame and is decoded now. Call it between frames.
    pub fn take_in(&mut self, ctx: &Context, pictures: &Pictures, tiles: &Tiles) {
        self.tiles.take_in(ctx, tiles);
        self.toned.take_in(ctx, pictures);
        self.frame += 1;
        let mut n_uploaded = 0;
        let mut is_more = false;
        self.wanted.dedup();
        let wanted = std::mem::take(&mut self.wanted);
        for key in wanted {
            match pictures.get(&key.picture) {
                Some(PictureState::Ready(_)) if n_uploaded >= UPLOAD_BYTES => is_more = true,
                Some(PictureState::Ready(loaded)) if !self.entries.contains_key(&key) => {
                    let n_bytes = loaded.picture.rgb.len() / 3 * 4;
                    let texture = upload(ctx, &key, &loaded.picture);
                    self.entries.insert(key, Entry { texture, full_size: loaded.full_size, n_bytes, last_frame: self.frame });
                    self.n_bytes += n_bytes;
                    n_uploaded += n_bytes;
                }
                Some(PictureState::Failed(reason)) => {
                    self.failed.insert(key.picture, reason.clone());
                }
                _ => {}
            }
        }
        if is_more {
            ctx.request_repaint();
        }
        self.drop_unused();
    }

    /// The pictures that drawing missed, for the session to decode.
    pub fn requests(&self) -> impl Iterator<Item = &PictureKey> {
        self.wanted.iter().map(|key| &key.picture).chain(self.toned.request())
    }

    /// What the session calls one of the sizes of a picture.
    pub fn key(path: &Path, level: usize) -> PictureKey {
        picture_key(path, level)
    }

    /// Forgets everything, such as failures that may be mended when a dataset is opened again.
    pub fn clear(&mut self) {
        *self = Self { frame: self.frame, ..Self::default() };
    }

    fn drop_unused(&mut self) {
        while self.n_bytes > BUDGET_BYTES {
            let unused = self.entries.iter().filter(|(_, entry)| entry.last_frame + 1 < self.frame);
            let Some(oldest) = unused.min_by_key(|(_, entry)| entry.last_frame).map(|(key, _)| key.clone()) else { return };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.n_bytes -= entry.n_bytes;
            }
        }
    }
}

/// Level 0 is the thumbnail.
fn picture_key(path: &Path, level: usize) -> PictureKey {
    let max_side = if level == 0 { THUMBNAIL_SIDE } else { LEVELS[level - 1] };
    PictureKey { path: path.to_path_buf(), max_side: Some(max_side) }
}

fn upload(ctx: &Context, key: &TextureKey, picture: &Picture) -> TextureHandle {
    let size = [picture.size.width as usize, picture.size.height as usize];
    let image = ColorImage::from_rgb(size, &picture.rgb);
    ctx.load_texture(key.picture.path.to_string_lossy(), image, options(key.is_crisp))
}

/// How pixels are enlarged.
pub fn options(is_crisp: bool) -> TextureOptions {
    let magnification = if is_crisp { TextureFilter::Nearest } else { TextureFilter::Linear };
    TextureOptions { magnification, minification: TextureFilter::Linear, ..TextureOptions::LINEAR }
}
