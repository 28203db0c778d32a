//! How does a picture become larger or smaller? Equal to the last bit to what the published trainer gets from OpenCV.
//!
//! In:  a picture and the new size, or a letterbox.
//! Out: a new picture.
//!
//! Plain rows, no threads: callers that have many pictures spread the pictures. Source: the arithmetic of OpenCV 4's 8-bit
//! `resize`, spec 8.12, held by the golden pictures.

use super::Picture;
use crate::geom::Letterbox;
use crate::geom::Size;

/// The gray around a letterboxed picture, in all channels.
pub const PADDING: u8 = 114;

/// Weights of the bilinear interpolation are multiples of 1/2048.
const WEIGHT_ONE: i32 = 1 << 11;

/// Bilinear, pixel centres aligned; 8-bit fixed point as OpenCV's `INTER_LINEAR`.
///
/// Halving both sides exactly averages 2 x 2 pixels. A size of zero counts as one pixel.
pub fn resize_linear(picture: &Picture, size: Size) -> Picture {
    let size = Size::new(size.width.max(1), size.height.max(1));
    if size == picture.size {
        return picture.clone();
    }
    let source = picture.size;
    if source.width == 2 * size.width && source.height == 2 * size.height {
        return average_blocks(picture, size, 2, 2);
    }

    let columns: Vec<Column> = (0..size.width).map(|x| Column::new(x, size.width, source.width)).collect();
    let (source_len, row_len) = (source.width as usize * 3, size.width as usize * 3);
    let source_row = |y: i64| {
        let y = y.clamp(0, i64::from(source.height) - 1) as usize;
        &picture.rgb[y * source_len..][..source_len]
    };
    let mut rgb = vec![0; row_len * size.height as usize];
    // The two source rows in use, already stretched to the new width, and which rows they are.
    let mut upper = vec![0i32; row_len];
    let mut lower = vec![0i32; row_len];
    let (mut upper_is, mut lower_is) = (i64::MIN, i64::MIN);
    for (y, out) in rgb.chunks_exact_mut(row_len).enumerate() {
        let (row, fraction) = source_position(y as u32, size.height, source.height);
        if lower_is == row {
            std::mem::swap(&mut upper, &mut lower);
            std::mem::swap(&mut upper_is, &mut lower_is);
        }
        if upper_is != row {
            stretch_row(source_row(row), &columns, &mut upper);
            upper_is = row;
        }
        if lower_is != row + 1 {
            stretch_row(source_row(row + 1), &columns, &mut lower);
            lower_is = row + 1;
        }
        let (upper_weight, lower_weight) = (weight(1.0 - fraction), weight(fraction));
        for ((out, upper), lower) in out.iter_mut().zip(&upper).zip(&lower) {
            // Each product loses bits before the sum, as OpenCV's 16-bit vector code does.
            let sum = ((upper_weight * (upper >> 4)) >> 16) + ((lower_weight * (lower >> 4)) >> 16);
            *out = ((sum + 2) >> 2) as u8;
        }
    }
    Picture { size, rgb }
}

/// Where a column of the result comes from: two source pixels (as byte offsets) and their weights.
#[derive(Clone, Copy)]
struct Column {
    left: usize,
    right: usize,
    left_weight: i32,
    right_weight: i32,
}

impl Column {
    fn new(x: u32, out_width: u32, source_width: u32) -> Self {
        let (column, fraction) = source_position(x, out_width, source_width);
        let last = i64::from(source_width) - 1;
        // Past an edge the edge's pixel counts alone. (Rows differ: there both weights stay, on the same row.)
        let (left, fraction) = if column < 0 {
            (0, 0.0)
        } else if column >= last {
            (last, 0.0)
        } else {
            (column, fraction)
        };
        let right = (left + 1).min(last);
        Self { left: left as usize * 3, right: right as usize * 3, left_weight: weight(1.0 - fraction), right_weight: weight(fraction) }
    }
}

/// The source pixel at or before the centre of pixel `at`, and how far past it that centre lies (0 to 1).
fn source_position(at: u32, out_side: u32, source_side: u32) -> (i64, f32) {
    // As in OpenCV: the factor is inverted twice, and the position rounded to f32 before its fraction is taken.
    let scale = 1.0 / (f64::from(out_side) / f64::from(source_side));
    let position = ((f64::from(at) + 0.5) * scale - 0.5) as f32;
    let whole = position.floor();
    (whole as i64, position - whole)
}

fn weight(fraction: f32) -> i32 {
    (fraction * WEIGHT_ONE as f32).round_ties_even() as i32
}

fn stretch_row(source: &[u8], columns: &[Column], out: &mut [i32]) {
    for (out, column) in out.chunks_exact_mut(3).zip(columns) {
        let left = &source[column.left..column.left + 3];
        let right = &source[column.right..column.right + 3];
        for channel in 0..3 {
            out[channel] = i32::from(left[channel]) * column.left_weight + i32::from(right[channel]) * column.right_weight;
        }
    }
}

/// Box average as OpenCV's `INTER_AREA`, for shrinking.
///
/// Where a side would grow, the whole picture is resized by [`resize_linear`] instead, as the published loader does.
pub fn resize_area(picture: &Picture, size: Size) -> Picture {
    let size = Size::new(size.width.max(1), size.height.max(1));
    let source = picture.size;
    if size == source {
        return picture.clone();
    }
    if size.width > source.width || size.height > source.height {
        return resize_linear(picture, size);
    }
    if source.width.is_multiple_of(size.width) && source.height.is_multiple_of(size.height) {
        return average_blocks(picture, size, source.width / size.width, source.height / size.height);
    }

    let columns = shares(size.width, source.width);
    let rows = shares(size.height, source.height);
    let (source_len, row_len) = (source.width as usize * 3, size.width as usize * 3);
    let mut rgb = vec![0; row_len * size.height as usize];
    let mut squeezed = vec![0.0f32; row_len];
    let mut sum = vec![0.0f32; row_len];
    let mut rows = rows.iter().peekable();
    while let Some(row) = rows.next() {
        squeezed.fill(0.0);
        let line = &picture.rgb[row.source * source_len..][..source_len];
        for column in &columns {
            let out = &mut squeezed[column.out * 3..column.out * 3 + 3];
            let pixel = &line[column.source * 3..column.source * 3 + 3];
            for channel in 0..3 {
                out[channel] += f32::from(pixel[channel]) * column.part;
            }
        }
        for (sum, value) in sum.iter_mut().zip(&squeezed) {
            *sum += row.part * value;
        }
        if rows.peek().is_none_or(|next| next.out != row.out) {
            for (out, sum) in rgb[row.out * row_len..][..row_len].iter_mut().zip(&mut sum) {
                *out = sum.round_ties_even() as u8;
                *sum = 0.0;
            }
        }
    }
    Picture { size, rgb }
}

/// A source row or column has this part in an output row or column.
struct Share {
    out: usize,
    source: usize,
    part: f32,
}

fn shares(out_side: u32, source_side: u32) -> Vec<Share> {
    // Less of a source pixel than this is left out, as OpenCV does.
    const LEAST: f64 = 1e-3;
    let scale = 1.0 / (f64::from(out_side) / f64::from(source_side));
    let mut shares = Vec::with_capacity(source_side as usize * 2);
    for out in 0..out_side as usize {
        let start = out as f64 * scale;
        let end = start + scale;
        let width = scale.min(f64::from(source_side) - start);
        let last_whole = (end.floor() as usize).min(source_side as usize - 1);
        let first_whole = (start.ceil() as usize).min(last_whole);
        if first_whole as f64 - start > LEAST {
            shares.push(Share { out, source: first_whole - 1, part: ((first_whole as f64 - start) / width) as f32 });
        }
        shares.extend((first_whole..last_whole).map(|source| Share { out, source, part: (1.0 / width) as f32 }));
        let rest = end - last_whole as f64;
        if rest > LEAST {
            shares.push(Share { out, source: last_whole, part: (rest.min(1.0).min(width) / width) as f32 });
        }
    }
    shares
}

/// Mean of whole blocks of pixels: integer sums, halves to even except for 2 x 2, where they go up.
fn average_blocks(picture: &Picture, size: Size, block_width: u32, block_height: u32) -> Picture {
    let (block_width, block_height) = (block_width as usize, block_height as usize);
    let (source_len, row_len) = (picture.size.width as usize * 3, size.width as usize * 3);
    let mut rgb = vec![0; row_len * size.height as usize];
    let mut sums = vec![0u32; row_len];
    let part = 1.0 / (block_width * block_height) as f32;
    for (out, lines) in rgb.chunks_exact_mut(row_len).zip(picture.rgb.chunks_exact(source_len * block_height)) {
        sums.fill(0);
        for line in lines.chunks_exact(source_len) {
            for (sums, block) in sums.chunks_exact_mut(3).zip(line.chunks_exact(3 * block_width)) {
                for pixel in block.chunks_exact(3) {
                    for channel in 0..3 {
                        sums[channel] += u32::from(pixel[channel]);
                    }
                }
            }
        }
        if (block_width, block_height) == (2, 2) {
            out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = ((sum + 2) >> 2) as u8);
        } else {
            out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = (*sum as f32 * part).round_ties_even() as u8);
        }
    }
    Picture { size, rgb }
}

/// Scales and pads with gray 114 as `letterbox` says.
///
/// `letterbox.image` should be the size of `picture`; if not, the picture is stretched to where that image would lie.
pub fn apply_letterbox(picture: &Picture, letterbox: &Letterbox) -> Picture {
    let resized = resize_linear(picture, letterbox.resized);
    if letterbox.resized == letterbox.input {
        return resized;
    }
    let (row_len, input_len) = (resized.size.width as usize * 3, letterbox.input.width as usize * 3);
    let mut rgb = vec![PADDING; input_len * letterbox.input.height as usize];
    let rows = rgb.chunks_exact_mut(input_len).skip(letterbox.top as usize);
    for (out, row) in rows.zip(resized.rgb.chunks_exact(row_len)) {
        out[letterbox.left as usize * 3..][..row_len].copy_from_slice(row);
    }
    Picture { size: letterbox.input, rgb }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use safetensors::SafeTensors;

    use super::super::golden::golden_picture;
    use super::*;
    use crate::geom::letterbox::LetterboxOptions;

    fn golden_bytes() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/letterbox.safetensors")).unwrap()
    }

    #[test]
    fn letterboxed_pictures_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let targets = [Size::square(64), Size::square(64), Size::new(96, 64)];
        for (index, target) in targets.into_iter().enumerate() {
            let picture = golden_picture(&golden, &format!("im{index}"));
            for (auto, scale_up) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let options = LetterboxOptions { auto: (auto == 1).then_some(32), scale_up: scale_up == 1 };
                let letterbox = Letterbox::new(picture.size, target, options);
                let name = format!("im{index}.auto{auto}.scaleup{scale_up}");
                assert!(apply_letterbox(&picture, &letterbox) == golden_picture(&golden, &name), "{name}");
            }
        }
    }

    #[test]
    fn loaded_pictures_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        for (index, side) in [(0, 64), (0, 53), (1, 64), (1, 40), (2, 64)] {
            let picture = golden_picture(&golden, &format!("im{index}"));
            for augment in [0, 1] {
                let name = format!("load.im{index}.size{side}.augment{augment}");
                let expected = golden_picture(&golden, &name);
                let resized = if augment == 1 { resize_linear(&picture, expected.size) } else { resize_area(&picture, expected.size) };
                assert!(resized == expected, "{name}");
            }
        }
    }

    #[test]
    fn halving_averages_four_pixels_and_rounds_up() {
        let picture = Picture { size: Size::new(2, 2), rgb: vec![0, 10, 255, 1, 10, 255, 0, 10, 255, 1, 11, 254] };
        assert_eq!(resize_linear(&picture, Size::square(1)).rgb, [1, 10, 255]);
        assert_eq!(resize_area(&picture, Size::square(1)).rgb, [1, 10, 255]);
    }

    #[test]
    fn a_flat_picture_stays_flat_at_any_size() {
        let flat = Picture { size: Size::new(7, 5), rgb: [13, 200, 255].repeat(35) };
        for (width, height) in [(1, 1), (3, 4), (7, 1), (14, 10), (100, 3), (6, 5), (0, 9)] {
            let size = Size::new(width, height);
            for picture in [resize_linear(&flat, size), resize_area(&flat, size)] {
                assert_eq!(picture.size, Size::new(width.max(1), height));
                assert!(picture.rgb.chunks_exact(3).all(|pixel| pixel == [13, 200, 255]), "{size:?}");
            }
        }
    }
}
