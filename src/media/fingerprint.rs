//! When are two pictures the same, and when nearly? By a hash of all pixels, and by a hash of what they show.
//!
//! In:  a decoded picture.
//! Out: 128 bits that differ when any pixel or the size does, and 64 bits of which a copy in another quality or size changes few.
//!
//! The perceptual hash is pHash: gray, 32 x 32, cosine transform, the 8 x 8 lowest frequencies, each above or below their median.
//! A picture of hardly any contrast has none: its frequencies are noise.
//! Source: Zauner, Implementation and Benchmarking of Perceptual Image Hash Functions (2010), with the median of all 64 as in imagehash.

use super::Picture;

/// Side of the gray picture that is transformed.
const SIDE: usize = 32;
/// Frequencies a side that count.
const KEPT: usize = 8;
/// At most so many pixels of a cell are looked at in each direction: more change nothing.
const SAMPLES: u32 = 8;
/// Standard deviation of the 32 x 32 gray values below which a picture shows nothing, of 255.
const MIN_CONTRAST: f32 = 2.0;

/// What is kept of a picture to compare it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Hash of size and pixels.
    pub pixels: [u8; 16],
    /// pHash; `None` where there is hardly any contrast.
    pub perceptual: Option<u64>,
}

/// Hashes a picture. Both hashes are the same on every machine.
pub fn fingerprint(picture: &Picture) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&picture.size.width.to_le_bytes());
    hasher.update(&picture.size.height.to_le_bytes());
    hasher.update(&picture.rgb);
    let mut pixels = [0; 16];
    pixels.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Fingerprint { pixels, perceptual: perceptual(picture) }
}

fn perceptual(picture: &Picture) -> Option<u64> {
    let gray = small_gray(picture)?;
    let n = (SIDE * SIDE) as f32;
    let mean = gray.iter().flatten().sum::<f32>() / n;
    let variance = gray.iter().flatten().map(|value| (value - mean) * (value - mean)).sum::<f32>() / n;
    if variance < MIN_CONTRAST * MIN_CONTRAST {
        return None;
    }
    let frequencies = lowest_frequencies(&gray);
    let mut sorted = frequencies;
    sorted.sort_unstable_by(f32::total_cmp);
    let median = f32::midpoint(sorted[KEPT * KEPT / 2 - 1], sorted[KEPT * KEPT / 2]);
    Some(frequencies.iter().fold(0, |hash, value| hash << 1 | u64::from(*value > median)))
}

/// Means of 32 x 32 cells, of 255; `None` for a picture without pixels.
fn small_gray(picture: &Picture) -> Option<[[f32; SIDE]; SIDE]> {
    let (width, height) = (picture.size.width, picture.size.height);
    let mut gray = [[0.0; SIDE]; SIDE];
    for (y, row) in gray.iter_mut().enumerate() {
        for (x, value) in row.iter_mut().enumerate() {
            let (mut sum, mut n) = (0, 0);
            for py in samples(y as u32, height) {
                for px in samples(x as u32, width) {
                    let at = (py as usize * width as usize + px as usize) * 3;
                    let [r, g, b] = *picture.rgb.get(at..at + 3)? else { return None };
                    // ITU-R BT.601, in 1/256.
                    sum += u32::from(r) * 77 + u32::from(g) * 150 + u32::from(b) * 29;
                    n += 256;
                }
            }
            *value = sum as f32 / n as f32;
        }
    }
    Some(gray)
}

/// Pixels of one of 32 equal parts of a side, evenly spread.
fn samples(part: u32, side: u32) -> impl Iterator<Item = u32> {
    let edge = |part: u32| (u64::from(part) * u64::from(side) / SIDE as u64) as u32;
    let (start, end) = (edge(part), edge(part + 1).max(edge(part) + 1));
    let n = (end - start).min(SAMPLES);
    (0..n).map(move |i| start + (u64::from(end - start) * u64::from(2 * i + 1) / u64::from(2 * n)) as u32)
}

/// The lowest frequencies of the cosine transform (DCT-II), without the factors that are the same for all but the first.
fn lowest_frequencies(gray: &[[f32; SIDE]; SIDE]) -> [f32; KEPT * KEPT] {
    let waves: [[f32; SIDE]; KEPT] = std::array::from_fn(|frequency| {
        std::array::from_fn(|at| (std::f32::consts::PI * frequency as f32 * (at as f32 + 0.5) / SIDE as f32).cos())
    });
    let rows: [[f32; KEPT]; SIDE] = std::array::from_fn(|y| std::array::from_fn(|u| dot(&gray[y], &waves[u])));
    std::array::from_fn(|i| (0..SIDE).map(|y| rows[y][i % KEPT] * waves[i / KEPT][y]).sum())
}

fn dot(a: &[f32; SIDE], b: &[f32; SIDE]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use image::ImageFormat;

    use super::super::decode::decode_bytes;
    use super::super::encode::encode_bytes;
    use super::super::resize::resize_linear;
    use super::*;
    use crate::geom::Size;

    /// Soft shapes that lie elsewhere for each `seed`.
    fn scene(seed: u32, size: Size) -> Picture {
        let at = |i: u32| {
            let mixed = seed.wrapping_mul(0x9E37_79B1) ^ i.wrapping_mul(0x85EB_CA6B);
            let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2C1B_3C6D);
            ((mixed ^ mixed >> 12) % 997) as f32 / 997.0
        };
        let shade = |x: u32, y: u32, channel: u32| {
            let (x, y) = (x as f32 / size.width as f32, y as f32 / size.height as f32);
            let blob = |i: u32| (-((x - at(i)).powi(2) + (y - at(i + 1)).powi(2)) * 30.0).exp() * (at(i + 2) - 0.4) * 300.0;
            (110.0 + channel as f32 * 10.0 + (0..8).map(|i| blob(i * 3)).sum::<f32>()).clamp(0.0, 255.0) as u8
        };
        let rgb = (0..size.height).flat_map(|y| (0..size.width).flat_map(move |x| (0..3).map(move |c| shade(x, y, c)))).collect();
        Picture { size, rgb }
    }

    #[test]
    fn copies_in_another_quality_or_size_are_near_and_other_pictures_far() {
        let whole = scene(1, Size::new(200, 150));
        let print = fingerprint(&whole);
        assert_eq!(fingerprint(&whole.clone()), print);
        let jpeg = decode_bytes(&encode_bytes(&whole, ImageFormat::Jpeg, 40).unwrap()).unwrap();
        let smaller = resize_linear(&whole, Size::new(120, 90));
        for copy in [jpeg, smaller] {
            let copy = fingerprint(&copy);
            assert_ne!(copy.pixels, print.pixels);
            let distance = (copy.perceptual.unwrap() ^ print.perceptual.unwrap()).count_ones();
            assert!(distance <= 4, "{distance}");
        }
        for seed in 2..40 {
            let other = fingerprint(&scene(seed, Size::new(200, 150)));
            let distance = (other.perceptual.unwrap() ^ print.perceptual.unwrap()).count_ones();
            assert!(distance > 8, "{seed}: {distance}");
        }
    }

    #[test]
    fn one_pixel_changes_the_hash_of_all() {
        let mut picture = scene(3, Size::new(33, 21));
        let print = fingerprint(&picture);
        picture.rgb[500] ^= 1;
        assert_ne!(fingerprint(&picture).pixels, print.pixels);
        // The same bytes in another shape.
        let turned = Picture { size: Size::new(21, 33), rgb: picture.rgb.clone() };
        assert_ne!(fingerprint(&turned).pixels, fingerprint(&picture).pixels);
    }

    #[test]
    fn a_picture_that_shows_nothing_has_no_perceptual_hash() {
        let flat = Picture { size: Size::new(40, 40), rgb: vec![90; 4800] };
        assert_eq!(fingerprint(&flat).perceptual, None);
        let empty = Picture { size: Size::new(0, 0), rgb: vec![] };
        assert_eq!(fingerprint(&empty).perceptual, None);
        let one = Picture { size: Size::new(1, 1), rgb: vec![1, 2, 3] };
        assert_eq!(fingerprint(&one).perceptual, None);
    }
}
