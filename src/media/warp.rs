//! Where do the pixels of a picture go when it is turned, scaled, sheared or tilted? As OpenCV 4's 8-bit bilinear warps.
//!
//! In:  a map from output to source pixels, the rows of the source, the sizes.
//! Out: RGB bytes; gray 114 where the source does not reach.
//!
//! The arithmetic, which other executors repeat exactly (`round` is half to even, `>>` rounds down):
//!
//! - Affine, map m (two rows of three): for output pixel (x, y)
//!   `X = (round((m[1] * y + m[2]) * 1024) + 16 + round(m[0] * x * 1024)) >> 5`, in 64-bit floats up to each `round`, and `Y`
//!   likewise with the second row. `X` and `Y` count 1/32 of a source pixel.
//! - Projective, map m (three rows): `w = m[6] * x + m[7] * y + m[8]`, `X = round((m[0] * x + m[1] * y + m[2]) * (32 / w))`; for
//!   w = 0 the factor is 0.
//! - Taps: column `c = X >> 5` and row `r = Y >> 5` and their next ones, weights `fx = X & 31`, `fy = Y & 31`; a tap outside of the
//!   source is 114. Value: `(p00 * (32 - fx) * (32 - fy) + p01 * fx * (32 - fy) + p10 * (32 - fx) * fy + p11 * fx * fy + 512) >> 10`,
//!   all integers. (OpenCV's weights of 15 bits are these times 32.)
//! - The identity copies.
//!
//! Where the map neither turns nor shears, a row of the output needs two rows of the source and the sum factors exactly: rows
//! first, columns then. This is what training without rotation does all the time. Otherwise the whole source is laid out once.
//!
//! Plain rows, no threads. Source: spec 8.12, held by the golden pictures.

use super::resize::PADDING;
use crate::geom::Size;

/// From pixels of the output to pixels of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Map {
    Identity,
    Affine([f64; 6]),
    Projective([f64; 9]),
}

impl Map {
    /// The inverse of a matrix (rows) from source to output pixels; one that cannot be inverted maps all to its last column.
    pub fn inverse(forward: &[[f64; 3]; 3]) -> Self {
        const IDENTITY: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        if *forward == IDENTITY {
            return Self::Identity;
        }
        let [[a, b, c], [d, e, f], [g, h, i]] = *forward;
        let reciprocal = |determinant: f64| if determinant == 0.0 { 0.0 } else { 1.0 / determinant };
        if forward[2] == IDENTITY[2] {
            // In OpenCV's order of operations.
            let part = reciprocal(a * e - b * d);
            let (a, b, d, e) = (e * part, b * -part, d * -part, a * part);
            return Self::Affine([a, b, -a * c - b * f, d, e, -d * c - e * f]);
        }
        let part = reciprocal(a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g));
        let cofactors = [
            e * i - f * h,
            c * h - b * i,
            b * f - c * e,
            f * g - d * i,
            a * i - c * g,
            c * d - a * f,
            d * h - e * g,
            b * g - a * h,
            a * e - b * d,
        ];
        Self::Projective(cofactors.map(|cofactor| cofactor * part))
    }

    /// Rows stay rows and columns stay columns.
    fn is_upright(&self) -> bool {
        match self {
            Self::Identity => true,
            Self::Affine(map) => map[1] == 0.0 && map[3] == 0.0,
            Self::Projective(_) => false,
        }
    }
}

/// One warp: the sizes, the map, and whether its result is mirrored afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warp {
    pub map: Map,
    pub source: Size,
    pub output: Size,
    pub flip_horizontal: bool,
    pub flip_vertical: bool,
}

/// Buffers that are used again for the next warp.
#[derive(Default)]
pub struct WarpBuffers {
    upper: SourceRow,
    lower: SourceRow,
    blended: Vec<u16>,
    columns: Vec<Tap>,
    /// The whole source, for maps that are not upright.
    laid_out: Vec<u8>,
    /// How far a column lies from the first one, in both axes.
    steps: Vec<[i32; 2]>,
}

/// Writes the warped source to `out` (height, width, 3). `row(y, bytes)` gives row `y` of the source; `bytes` has room for just it.
pub fn warp(warp: &Warp, row: &mut dyn FnMut(u32, &mut [u8]), buffers: &mut WarpBuffers, out: &mut [u8]) {
    let out_len = warp.output.width as usize * 3;
    assert_eq!(out.len(), out_len * warp.output.height as usize, "the output has its size");
    if out.is_empty() {
        return;
    }
    if warp.map == Map::Identity && warp.source == warp.output {
        for (y, line) in out.chunks_exact_mut(out_len).enumerate() {
            row(source_line(warp, y) as u32, line);
            if warp.flip_horizontal {
                line.as_chunks_mut::<3>().0.reverse();
            }
        }
    } else if warp.map.is_upright() {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[expect(unsafe_code, reason = "the compiler cannot know which CPU the program will run on")]
            // SAFETY: the CPU has the feature that the function is compiled for; nothing else is asked of the caller.
            return unsafe { warp_upright_avx2(warp, row, buffers, out) };
        }
        warp_upright(warp, row, buffers, out);
    } else {
        warp_any(warp, row, buffers, out);
    }
}

/// The line before the flip that becomes line `y`.
fn source_line(warp: &Warp, y: usize) -> usize {
    if warp.flip_vertical { warp.output.height as usize - 1 - y } else { y }
}

/// Whole positions and 1/32 of a pixel.
const FRACTION_BITS: i32 = 5;
const ONE: i32 = 1 << FRACTION_BITS;
/// Positions of affine maps are summed in 1/1024 of a pixel.
const AFFINE_ONE: f64 = 1024.0;
const AFFINE_HALF: i32 = 16;
const HALF: u32 = 512;

/// Halves to even, as `round_ties_even() as i32`, which is a call into a library on older CPUs.
#[inline(always)]
fn rounded(value: f64) -> i32 {
    /// 1.5 * 2^52: sums with it have their whole part in the lowest bits.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    (value.clamp(f64::from(i32::MIN), f64::from(i32::MAX)) + WHOLE).to_bits() as i32
}

/// Position `at` of one axis of an affine map in 1/32 of a source pixel: `start` belongs to the row, `step` to the column.
fn affine_position(start: f64, step: f64, at: usize) -> i32 {
    affine_sum(affine_start(start), rounded(step * at as f64 * AFFINE_ONE))
}

fn affine_start(start: f64) -> i32 {
    rounded(start * AFFINE_ONE).wrapping_add(AFFINE_HALF)
}

fn affine_sum(start: i32, steps: i32) -> i32 {
    start.wrapping_add(steps) >> FRACTION_BITS
}

/// Two neighbours in a row with a pixel of gray before and two behind.
#[derive(Clone, Copy)]
struct Tap {
    /// Of the left neighbour's first channel.
    offset: usize,
    /// Weight of the right neighbour, out of 32.
    part: u32,
}

impl Tap {
    fn new(position: i32, width: u32) -> Self {
        let (column, part) = (i64::from(position >> FRACTION_BITS), position & (ONE - 1));
        // Left of the gray pixel all is gray.
        let part = if column < -1 { 0 } else { part as u32 };
        Self { offset: (column + 1).clamp(0, i64::from(width) + 1) as usize * 3, part }
    }
}

/// A row of the source between gray pixels, and which one it is.
#[derive(Default)]
struct SourceRow {
    bytes: Vec<u8>,
    is: Option<i32>,
}

impl SourceRow {
    fn clear(&mut self, source: Size) {
        self.bytes.clear();
        self.bytes.resize((source.width as usize + 3) * 3, PADDING);
        self.is = None;
    }

    fn fill(&mut self, y: i32, source: Size, row: &mut dyn FnMut(u32, &mut [u8])) {
        if self.is != Some(y) {
            let line = &mut self.bytes[3..3 + source.width as usize * 3];
            if is_row(y, source) {
                row(y as u32, line);
            } else {
                line.fill(PADDING);
            }
            self.is = Some(y);
        }
    }
}

fn is_row(y: i32, source: Size) -> bool {
    u32::try_from(y).is_ok_and(|y| y < source.height)
}

#[inline(always)]
fn warp_upright(warp: &Warp, row: &mut dyn FnMut(u32, &mut [u8]), buffers: &mut WarpBuffers, out: &mut [u8]) {
    let map = if let Map::Affine(map) = warp.map { map } else { [1.0, 0.0, 0.0, 0.0, 1.0, 0.0] };
    let (source, width) = (warp.source, warp.output.width as usize);
    let WarpBuffers { upper, lower, blended, columns, .. } = buffers;
    columns.clear();
    columns.extend((0..width).map(|x| Tap::new(affine_position(map[2], map[0], x), source.width)));
    if warp.flip_horizontal {
        columns.reverse();
    }
    // The part of a row that is looked at.
    let first = columns.iter().map(|tap| tap.offset).min().unwrap_or(0);
    let end = columns.iter().map(|tap| tap.offset + 6).max().unwrap_or(0);
    for tap in columns.iter_mut() {
        tap.offset -= first;
    }
    upper.clear(source);
    lower.clear(source);
    blended.resize(end - first, 0);

    for line in 0..warp.output.height as usize {
        let out = &mut out[source_line(warp, line) * width * 3..][..width * 3];
        let position = affine_position(map[4] * line as f64 + map[5], 0.0, 0);
        let (y, part) = (position >> FRACTION_BITS, (position & (ONE - 1)) as u16);
        if !is_row(y, source) && !is_row(y.saturating_add(1), source) {
            out.fill(PADDING);
            continue;
        }
        if lower.is == Some(y) {
            std::mem::swap(upper, lower);
        }
        upper.fill(y, source, row);
        if part > 0 {
            lower.fill(y + 1, source, row);
            blend_rows(&upper.bytes[first..end], &lower.bytes[first..end], part, blended);
        } else {
            for (sum, byte) in blended.iter_mut().zip(&upper.bytes[first..end]) {
                *sum = u16::from(*byte) << FRACTION_BITS;
            }
        }
        stretch(blended, columns, out);
    }
}

/// [`warp_upright`] in longer vectors; the results are the same.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn warp_upright_avx2(warp: &Warp, row: &mut dyn FnMut(u32, &mut [u8]), buffers: &mut WarpBuffers, out: &mut [u8]) {
    warp_upright(warp, row, buffers, out);
}

#[inline(always)]
fn blend_rows(upper: &[u8], lower: &[u8], part: u16, blended: &mut [u16]) {
    let rest = ONE as u16 - part;
    for ((sum, upper), lower) in blended.iter_mut().zip(upper).zip(lower) {
        *sum = u16::from(*upper) * rest + u16::from(*lower) * part;
    }
}

#[inline(always)]
fn stretch(blended: &[u16], columns: &[Tap], out: &mut [u8]) {
    for (pixel, tap) in out.as_chunks_mut::<3>().0.iter_mut().zip(columns) {
        let taps: &[u16; 6] = blended[tap.offset..].first_chunk().expect("two pixels lie at each tap");
        for channel in 0..3 {
            let (left, right) = (u32::from(taps[channel]), u32::from(taps[channel + 3]));
            pixel[channel] = ((left * (ONE as u32 - tap.part) + right * tap.part + HALF) >> 10) as u8;
        }
    }
}

fn warp_any(warp: &Warp, row: &mut dyn FnMut(u32, &mut [u8]), buffers: &mut WarpBuffers, out: &mut [u8]) {
    let (source, output) = (warp.source, warp.output);
    let source_len = source.width as usize * 3;
    let laid_out = &mut buffers.laid_out;
    laid_out.resize(source_len * source.height as usize, 0);
    for (y, line) in laid_out.chunks_exact_mut(source_len.max(1)).enumerate() {
        row(y as u32, line);
    }
    let steps = &mut buffers.steps;
    steps.clear();
    if let Map::Affine(map) = warp.map {
        steps.extend((0..output.width).map(|x| [map[0], map[3]].map(|step| rounded(step * f64::from(x) * AFFINE_ONE))));
    }
    let width = output.width as usize;
    for line in 0..output.height as usize {
        let out = out[source_line(warp, line) * width * 3..][..width * 3].as_chunks_mut::<3>().0;
        let y = line as f64;
        match warp.map {
            Map::Identity => {
                for (x, pixel) in out.iter_mut().enumerate() {
                    *pixel = bilinear(laid_out, source, [x as i32, line as i32].map(|at| at << FRACTION_BITS));
                }
            }
            Map::Affine(map) => {
                let starts = [affine_start(map[1] * y + map[2]), affine_start(map[4] * y + map[5])];
                for (pixel, steps) in out.iter_mut().zip(steps.iter()) {
                    *pixel = bilinear(laid_out, source, [affine_sum(starts[0], steps[0]), affine_sum(starts[1], steps[1])]);
                }
            }
            Map::Projective(map) => {
                for (x, pixel) in out.iter_mut().enumerate() {
                    let x = x as f64;
                    let w = map[6] * x + map[7] * y + map[8];
                    let part = if w == 0.0 { 0.0 } else { f64::from(ONE) / w };
                    let place = [map[0] * x + map[1] * y + map[2], map[3] * x + map[4] * y + map[5]];
                    *pixel = bilinear(laid_out, source, place.map(|at| rounded(at * part)));
                }
            }
        }
        if warp.flip_horizontal {
            out.reverse();
        }
    }
}

/// The value at a place in 1/32 of a pixel.
#[inline(always)]
fn bilinear(bytes: &[u8], source: Size, [column, row]: [i32; 2]) -> [u8; 3] {
    let (fx, fy) = ((column & (ONE - 1)) as u32, (row & (ONE - 1)) as u32);
    let (column, row) = (column >> FRACTION_BITS, row >> FRACTION_BITS);
    let one = ONE as u32;
    let weights = [(one - fx) * (one - fy), fx * (one - fy), (one - fx) * fy, fx * fy];
    let length = source.width as usize * 3;
    let is_inside = column >= 0 && row >= 0 && column as u32 + 1 < source.width && row as u32 + 1 < source.height;
    if is_inside {
        let at = row as usize * length + column as usize * 3;
        if let (Some(upper), Some(lower)) = (bytes[at..].first_chunk::<6>(), bytes[at + length..].first_chunk::<6>()) {
            return std::array::from_fn(|channel| {
                weighted([upper[channel], upper[channel + 3], lower[channel], lower[channel + 3]], weights)
            });
        }
    }
    let tap = |column: i64, row: i64| -> [u8; 3] {
        if column < 0 || row < 0 || column >= i64::from(source.width) || row >= i64::from(source.height) {
            return [PADDING; 3];
        }
        let at = row as usize * length + column as usize * 3;
        std::array::from_fn(|channel| bytes[at + channel])
    };
    let (column, row) = (i64::from(column), i64::from(row));
    let taps = [tap(column, row), tap(column + 1, row), tap(column, row + 1), tap(column + 1, row + 1)];
    std::array::from_fn(|channel| weighted(taps.map(|tap| tap[channel]), weights))
}

#[inline(always)]
fn weighted(taps: [u8; 4], weights: [u32; 4]) -> u8 {
    let sum: u32 = taps.iter().zip(weights).map(|(tap, weight)| u32::from(*tap) * weight).sum();
    ((sum + HALF) >> 10) as u8
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use safetensors::SafeTensors;

    use super::super::Picture;
    use super::super::golden::golden_picture;
    use super::*;

    fn warped(picture: &Picture, map: Map, output: Size, flips: (bool, bool)) -> Picture {
        let mut rgb = vec![0; output.width as usize * output.height as usize * 3];
        let (flip_horizontal, flip_vertical) = flips;
        let job = Warp { map, source: picture.size, output, flip_horizontal, flip_vertical };
        let length = picture.size.width as usize * 3;
        let mut row = |y: u32, line: &mut [u8]| line.copy_from_slice(&picture.rgb[y as usize * length..][..length]);
        warp(&job, &mut row, &mut WarpBuffers::default(), &mut rgb);
        Picture { size: output, rgb }
    }

    fn golden_bytes() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/random_perspective.safetensors")).unwrap()
    }

    fn matrix(golden: &SafeTensors<'_>, case: usize) -> [[f64; 3]; 3] {
        let tensor = golden.tensor(&format!("case{case}.M")).unwrap();
        let values: Vec<f64> = tensor.data().as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        std::array::from_fn(|row| std::array::from_fn(|column| values[row * 3 + column]))
    }

    #[test]
    fn warped_pictures_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let picture = golden_picture(&golden, "image");
        for case in 0..6 {
            let expected = golden_picture(&golden, &format!("case{case}.image_out_opencv4"));
            let map = Map::inverse(&matrix(&golden, case));
            assert_eq!(map.is_upright(), [0, 3, 5].contains(&case));
            let ours = warped(&picture, map, expected.size, (false, false));
            let n_other = ours.rgb.iter().zip(&expected.rgb).filter(|(ours, theirs)| ours != theirs).count();
            assert_eq!(n_other, 0, "case {case}");
        }
    }

    #[test]
    fn an_upright_map_gives_the_same_either_way() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let picture = golden_picture(&golden, "image");
        for (scale, shift) in [(1.0, 0.0), (0.37, -3.7), (1.9, 100.0), (4.0, -60.0), (0.1, 79.9), (1.0, -500.0), (-1.0, 79.0)] {
            let output = Size::new(53, 71);
            let job = Warp {
                map: Map::Affine([scale, 0.0, shift, 0.0, scale * 1.1, shift / 2.0]),
                source: picture.size,
                output,
                flip_horizontal: true,
                flip_vertical: false,
            };
            let length = picture.size.width as usize * 3;
            let mut row = |y: u32, line: &mut [u8]| line.copy_from_slice(&picture.rgb[y as usize * length..][..length]);
            let mut outs = [vec![0; 53 * 71 * 3], vec![0; 53 * 71 * 3]];
            warp_upright(&job, &mut row, &mut WarpBuffers::default(), &mut outs[0]);
            warp_any(&job, &mut row, &mut WarpBuffers::default(), &mut outs[1]);
            assert!(outs[0] == outs[1], "scale {scale}, shift {shift}");
        }
    }

    #[test]
    fn flips_mirror_the_result_of_every_way() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let picture = golden_picture(&golden, "image");
        for map in [Map::Identity, Map::inverse(&matrix(&golden, 0)), Map::inverse(&matrix(&golden, 1)), Map::inverse(&matrix(&golden, 2))]
        {
            let plain = warped(&picture, map, picture.size, (false, false));
            for flips in [(true, false), (false, true), (true, true)] {
                let flipped = warped(&picture, map, picture.size, flips);
                let (width, height) = (80, 60);
                for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                    let from = (if flips.1 { height - 1 - y } else { y }) * width + if flips.0 { width - 1 - x } else { x };
                    assert_eq!(flipped.rgb[(y * width + x) * 3..][..3], plain.rgb[from * 3..][..3], "{map:?} {flips:?}");
                }
            }
        }
    }

    #[test]
    fn what_the_source_does_not_reach_is_gray() {
        let picture = Picture { size: Size::square(4), rgb: vec![255; 48] };
        let map = Map::inverse(&[[1.0, 0.0, 2.0], [0.0, 1.0, 3.0], [0.0, 0.0, 1.0]]);
        let moved = warped(&picture, map, Size::square(8), (false, false));
        for (at, pixel) in moved.rgb.chunks_exact(3).enumerate() {
            let inside = (2..6).contains(&(at % 8)) && (3..7).contains(&(at / 8));
            assert_eq!(pixel, [if inside { 255 } else { 114 }; 3], "{at}");
        }
        // A map that cannot be inverted must not panic.
        warped(&picture, Map::inverse(&[[0.0; 3], [0.0; 3], [0.0, 0.0, 1.0]]), Size::square(2), (true, true));
        warped(&picture, Map::inverse(&[[0.0; 3], [0.0; 3], [1.0, 0.0, 1.0]]), Size::square(2), (true, true));
    }
}
