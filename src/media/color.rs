//! How does a training picture change its colours? The HSV gains of the published recipe.
//!
//! In:  a picture and three gains around 1.
//! Out: the same picture, changed in place.
//!
//! The way to 8-bit HSV (hue 0 to 179) and back follows OpenCV: integer tables forth, f32 back with the fraction cut off.
//! OpenCV's vector code cuts it off, and its scalar code, which sees what is left of a row after the last 32 pixels, rounds;
//! training pictures have widths of whole vectors, so here all is cut.
//! Source: spec 8.9, held by the golden pictures.

use super::Picture;

/// Hue, saturation and value of one pixel; hue in steps of two degrees.
type Hsv = [u8; 3];

/// Multiplies hue, saturation and value by `gains`, in 8-bit HSV with lookup tables as the published trainer does.
///
/// Hue wraps around, the others stop at 255. Gains of exactly 1 are not "no change": colours are rounded to 8-bit HSV.
pub fn shift_hsv(picture: &mut Picture, gains: [f32; 3]) {
    shift_with_tables(picture, &gain_tables(gains.map(f64::from)));
}

fn gain_tables(gains: [f64; 3]) -> [[u8; 256]; 3] {
    let table = |change: &dyn Fn(f64) -> f64| std::array::from_fn(|value| change(value as f64) as u8);
    [
        table(&|hue| (hue * gains[0]).rem_euclid(180.0)),
        table(&|saturation| (saturation * gains[1]).clamp(0.0, 255.0)),
        table(&|value| (value * gains[2]).clamp(0.0, 255.0)),
    ]
}

fn shift_with_tables(picture: &mut Picture, tables: &[[u8; 256]; 3]) {
    let divisors = Divisors::new();
    for pixel in picture.rgb.chunks_exact_mut(3) {
        let [hue, saturation, value] = hsv_from_rgb([pixel[0], pixel[1], pixel[2]], &divisors);
        let shifted = [tables[0][usize::from(hue)], tables[1][usize::from(saturation)], tables[2][usize::from(value)]];
        pixel.copy_from_slice(&rgb_from_hsv(shifted));
    }
}

const SHIFT: i32 = 12;

/// Reciprocals in fixed point, so that no pixel needs a division.
struct Divisors {
    saturation: [i32; 256],
    hue: [i32; 256],
}

impl Divisors {
    fn new() -> Self {
        let reciprocal = |one: f64, by: usize| if by == 0 { 0 } else { (one / by as f64).round_ties_even() as i32 };
        Self {
            saturation: std::array::from_fn(|value| reciprocal(f64::from(255 << SHIFT), value)),
            hue: std::array::from_fn(|range| reciprocal(f64::from(180 << SHIFT) / 6.0, range)),
        }
    }
}

fn hsv_from_rgb([red, green, blue]: [u8; 3], divisors: &Divisors) -> Hsv {
    let (r, g, b) = (i32::from(red), i32::from(green), i32::from(blue));
    let value = r.max(g).max(b);
    let range = value - r.min(g).min(b);
    let rounded = |product: i32| (product + (1 << (SHIFT - 1))) >> SHIFT;
    let saturation = rounded(range * divisors.saturation[value as usize]);
    let sixths = if value == r {
        g - b
    } else if value == g {
        b - r + 2 * range
    } else {
        r - g + 4 * range
    };
    let hue = rounded(sixths * divisors.hue[range as usize]);
    let hue = if hue < 0 { hue + 180 } else { hue };
    [hue as u8, saturation as u8, value as u8]
}

fn rgb_from_hsv([hue, saturation, value]: Hsv) -> [u8; 3] {
    let sector_position = f32::from(hue) * (6.0f32 / 180.0);
    let s = f32::from(saturation) * (1.0f32 / 255.0);
    let v = f32::from(value) * (1.0f32 / 255.0);
    let sector = sector_position.floor();
    let fraction = sector_position - sector;
    let low = v * (1.0 - s);
    let falling = v * (1.0 - s * fraction);
    let rising = v * (1.0 - s * (1.0 - fraction));
    let rgb = match sector as u8 % 6 {
        0 => [v, rising, low],
        1 => [falling, v, low],
        2 => [low, v, rising],
        3 => [low, falling, v],
        4 => [rising, low, v],
        _ => [v, low, falling],
    };
    rgb.map(|channel| (channel * 255.0) as u8)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use safetensors::SafeTensors;

    use super::super::golden::golden_picture;
    use super::*;
    use crate::geom::Size;

    fn golden_bytes() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/hsv.safetensors")).unwrap()
    }

    #[test]
    fn hue_saturation_and_value_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let picture = golden_picture(&golden, "image");
        let expected = golden.tensor("hsv_of_image").unwrap().data().to_vec();
        let divisors = Divisors::new();
        let hsv: Vec<u8> = picture.rgb.chunks_exact(3).flat_map(|p| hsv_from_rgb([p[0], p[1], p[2]], &divisors)).collect();
        assert!(hsv == expected);
    }

    #[test]
    fn shifted_pictures_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let gains = [[1.009, 0.65, 1.32], [0.985, 1.7, 0.6], [1.015, 1.21, 1.1], [1.0, 1.0, 1.0]];
        let mut n_vector_differences = 0;
        for (index, gains) in gains.into_iter().enumerate() {
            let mut picture = golden_picture(&golden, "image");
            shift_with_tables(&mut picture, &gain_tables(gains));
            let expected = golden_picture(&golden, &format!("out{index}"));
            for (at, (ours, theirs)) in picture.rgb.iter().zip(&expected.rgb).enumerate() {
                assert!(ours.abs_diff(*theirs) <= 1, "case {index}, byte {at}: {ours} and {theirs}");
                let column = at / 3 % picture.size.width as usize;
                n_vector_differences += usize::from(column < 32 && ours != theirs);
            }
        }
        // One of 9,216 channel values, 125.99999 here, is 126 with the fused multiply-add of the machine that made the file.
        assert!(n_vector_differences <= 1, "{n_vector_differences}");
    }

    #[test]
    fn gray_stays_gray_and_only_the_value_changes() {
        let mut picture = Picture { size: Size::new(3, 1), rgb: vec![0, 0, 0, 100, 100, 100, 250, 250, 250] };
        shift_hsv(&mut picture, [1.01, 1.6, 1.25]);
        assert_eq!(picture.rgb, [0, 0, 0, 125, 125, 125, 255, 255, 255]);
    }
}
