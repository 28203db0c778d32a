//! A JPEG at an eighth, a quarter or half of its size: fewer coefficients of each block are turned into fewer pixels.
//!
//! In:  the bytes of a JPEG file, its size, and how small the picture may become.
//! Out: RGB as stored (orientation not applied), or nothing where another decoder has to look: unusual kinds, damage, and
//!      pictures for which no reduction fits.

use super::baseline_jpeg;
use crate::geom::Size;

/// From this factor on the lowest frequencies alone are read; below, all of them take hardly longer.
const LOW_FACTOR: u32 = 4;

/// Decodes so that the longer side is at least `min_side`, and no side longer than its share of the whole by more than
/// `max_stretch`, a fraction: a block at the edge is cut to whole pixels only.
pub(super) fn decode(bytes: &[u8], stored: Size, min_side: u32, max_stretch: f64) -> Option<(Size, Vec<u8>)> {
    let Size { width, height } = stored;
    let fits = |factor: &u32| {
        let reduced = |side: u32| side.div_ceil(*factor);
        let stretch = |side: u32| f64::from(reduced(side) * factor) / f64::from(side) - 1.0;
        reduced(width.max(height)) >= min_side && stretch(width) <= max_stretch && stretch(height) <= max_stretch
    };
    let factor = [8, 4, 2].into_iter().find(fits).filter(|_| !baseline_jpeg::has_other_colors(bytes))?;
    let size = Size::new(width.div_ceil(factor), height.div_ceil(factor));
    let low = if factor >= LOW_FACTOR { baseline_jpeg::decode(bytes, factor) } else { None };
    low.or_else(|| all_frequencies(bytes, size)).filter(|(found, _)| *found == size)
}

/// Decodes to this size, which is a half, a quarter or an eighth: also progressive files.
fn all_frequencies(bytes: &[u8], size: Size) -> Option<(Size, Vec<u8>)> {
    let mut decoder = jpeg_decoder::Decoder::new(bytes);
    let (width, height) = decoder.scale(size.width as u16, size.height as u16).ok()?;
    let pixels = decoder.decode().ok()?;
    let rgb = match decoder.info()?.pixel_format {
        jpeg_decoder::PixelFormat::RGB24 => pixels,
        jpeg_decoder::PixelFormat::L8 => pixels.iter().flat_map(|&gray| [gray; 3]).collect(),
        jpeg_decoder::PixelFormat::L16 | jpeg_decoder::PixelFormat::CMYK32 => return None,
    };
    let is_whole = rgb.len() == usize::from(width) * usize::from(height) * 3;
    is_whole.then_some((Size::new(width.into(), height.into()), rgb))
}
