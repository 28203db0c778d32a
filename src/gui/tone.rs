//! How bright is a picture on the screen? Brightness and contrast of the view, which the trainer never sees.
//!
//! In:  two numbers, and 8-bit pixels. Out: pixels for a texture. Done when a texture is made, through a table of 256 values;
//! a frame draws the texture as it is. Never changes a file or a decoded picture.

use egui::{ColorImage, Context, TextureHandle, TextureId, TextureOptions};

use crate::media::Picture;
use crate::session::PictureKey;
use crate::session::{PictureState, Pictures};

/// Bytes of pixels that one frame turns; larger pictures take several.
const FRAME_BYTES: usize = 12 << 20;

/// Brightness and contrast go so far both ways, in percent.
pub const MAX: i8 = 100;
/// What a key adds to them.
pub const STEP: i8 = 10;

/// Brightness and contrast, in percent from -100 to 100; 0 shows the picture as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tone {
    pub brightness: i8,
    pub contrast: i8,
}

impl Tone {
    pub fn is_neutral(self) -> bool {
        self == Self::default()
    }

    /// What becomes of each value: contrast turns around the middle gray, brightness shifts.
    pub fn table(self) -> [u8; 256] {
        // From flat (0) over 1 to steep: at 100 % everything but the middle is black or white. A right angle has no slope.
        let slope = ((f32::from(self.contrast) / 100.0 + 1.0) * std::f32::consts::FRAC_PI_4).min(1.57).tan();
        let shift = f32::from(self.brightness) / 100.0 * 255.0;
        std::array::from_fn(|value| ((value as f32 - 127.5) * slope + 127.5 + shift).round().clamp(0.0, 255.0) as u8)
    }

    /// Rows `rows` of a picture as they are shown.
    pub fn image(self, picture: &Picture, rows: std::ops::Range<usize>) -> ColorImage {
        let width = picture.size.width as usize;
        let size = [width, rows.len()];
        let rgb = &picture.rgb[rows.start * width * 3..rows.end * width * 3];
        if self.is_neutral() {
            return ColorImage::from_rgb(size, rgb);
        }
        let table = self.table();
        let toned: Vec<u8> = rgb.iter().map(|&value| table[value as usize]).collect();
        ColorImage::from_rgb(size, &toned)
    }
}

/// The picture that is looked at, in another tone than its own.
#[derive(Default)]
pub struct TonedPicture {
    /// Asked for in the last frame.
    wanted: Option<(PictureKey, TextureOptions, Tone)>,
    made: Option<Made>,
}

struct Made {
    key: PictureKey,
    options: TextureOptions,
    tone: Tone,
    texture: TextureHandle,
    /// Rows of it that have this tone.
    n_rows: usize,
    height: usize,
}

impl TonedPicture {
    /// The picture in this tone, or meanwhile in the one before; `None` while it is being made.
    pub fn look(&mut self, key: PictureKey, options: TextureOptions, tone: Tone) -> Option<TextureId> {
        let found = self.made.as_ref().filter(|made| made.key == key && made.options == options).map(|made| made.texture.id());
        self.wanted = Some((key, options, tone));
        found
    }

    /// The decoded picture that is needed for it.
    pub fn request(&self) -> Option<&PictureKey> {
        self.wanted.as_ref().map(|(key, ..)| key)
    }

    /// Makes what was wanted in the last frame, a bounded amount; gives the texture back where nothing was. Call it between
    /// frames.
    pub fn take_in(&mut self, ctx: &Context, pictures: &Pictures) {
        let Some((key, options, tone)) = self.wanted.take() else {
            self.made = None;
            return;
        };
        let Some(PictureState::Ready(loaded)) = pictures.get(&key) else { return };
        let picture = &*loaded.picture;
        let height = picture.size.height as usize;
        let rows_a_frame = (FRAME_BYTES / (picture.size.width as usize * 4).max(1)).max(1);
        let is_same = |made: &Made| made.key == key && made.options == options && made.height == height;
        if let Some(made) = self.made.as_mut().filter(|made| is_same(made)) {
            if made.tone != tone {
                (made.tone, made.n_rows) = (tone, 0);
            }
            if made.n_rows < height {
                let rows = made.n_rows..(made.n_rows + rows_a_frame).min(height);
                made.n_rows = rows.end;
                made.texture.set_partial([0, rows.start], tone.image(picture, rows), options);
                ctx.request_repaint();
            }
            return;
        }
        // Shown at once as it is where turning all of it would take more than a frame.
        let first = if height <= rows_a_frame { tone } else { Tone::default() };
        let texture = ctx.load_texture("toned picture", first.image(picture, 0..height), options);
        let n_rows = if first == tone { height } else { 0 };
        self.made = Some(Made { key, options, tone, texture, n_rows, height });
        ctx.request_repaint();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geom::Size;

    #[test]
    fn a_neutral_tone_changes_nothing() {
        assert!(Tone::default().is_neutral());
        assert_eq!(Tone::default().table(), std::array::from_fn(|value| value as u8));
    }

    #[test]
    fn brightness_shifts_and_contrast_turns_around_the_middle() {
        let brighter = Tone { brightness: 20, contrast: 0 }.table();
        assert_eq!((brighter[0], brighter[100], brighter[250]), (51, 151, 255));
        let steeper = Tone { brightness: 0, contrast: 50 }.table();
        assert!(steeper[100] < 70 && steeper[155] > 185 && steeper.is_sorted());
        let flat = Tone { brightness: 0, contrast: -100 }.table();
        assert!(flat.iter().all(|&value| value == 127 || value == 128));
        let hard = Tone { brightness: 0, contrast: 100 }.table();
        assert_eq!((hard[127], hard[128]), (0, 255));
    }

    #[test]
    fn rows_are_turned_through_the_table() {
        let picture = Picture { size: Size::new(2, 3), rgb: (0..18).collect() };
        let image = Tone { brightness: 20, contrast: 0 }.image(&picture, 1..2);
        assert_eq!((image.size, image.pixels[1]), ([2, 1], egui::Color32::from_rgb(60, 61, 62)));
    }
}
