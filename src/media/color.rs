//! How does a training picture change its colours? The HSV gains of the published recipe.
//!
//! In:  RGB bytes and three gains around 1.
//! Out: the same bytes, changed in place.
//!
//! The way to 8-bit HSV (hue 0 to 179) and back follows OpenCV: integer tables forth, f32 back with the fraction cut off.
//! OpenCV's vector code cuts it off, and its scalar code, which sees what is left of a row after the last 32 pixels, rounds;
//! training pictures have widths of whole vectors, so here all is cut.
//! Source: spec 8.9, held by the golden pictures.

/// Pixels that are computed side by side: the loops over a block have no branch, so that they become vector instructions.
const BLOCK: usize = 32;

/// One channel of a block.
type Channel = [f32; BLOCK];

/// Hue (in steps of two degrees), saturation and value of a block.
type Hsv = [[u8; BLOCK]; 3];

/// Multiplies hue, saturation and value by `gains`, in 8-bit HSV with lookup tables as the published trainer does.
///
/// Hue wraps around, the others stop at 255. Gains of exactly 1 are not "no change": colours are rounded to 8-bit HSV.
pub fn shift_hsv(rgb: &mut [u8], gains: [f32; 3]) {
    shift_with_tables(rgb, &HsvTables::new(gains.map(f64::from)));
}

fn shift_with_tables(rgb: &mut [u8], tables: &HsvTables) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[expect(unsafe_code, reason = "the compiler cannot know which CPU the program will run on")]
        // SAFETY: the CPU has the feature that `shift_avx2` is compiled for; nothing else is asked of the caller.
        return unsafe { shift_avx2(rgb, tables) };
    }
    shift_blocks(rgb, tables);
}

/// [`shift_blocks`] in vectors of twice the length; the results are the same.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn shift_avx2(rgb: &mut [u8], tables: &HsvTables) {
    shift_blocks(rgb, tables);
}

#[inline(always)]
fn shift_blocks(rgb: &mut [u8], tables: &HsvTables) {
    let (blocks, rest) = rgb.as_chunks_mut::<3>().0.as_chunks_mut::<BLOCK>();
    for block in blocks {
        shift_block(block, tables);
    }
    let mut last = [[0; 3]; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    shift_block(&mut last, tables);
    rest.copy_from_slice(&last[..rest.len()]);
}

/// What a hue, a saturation and a value before the gains mean after them.
pub struct HsvTables {
    /// Which of the six sectors of the colour circle.
    pub sector: [u8; 256],
    /// How far into the sector, 0 to 1.
    pub fraction: [f32; 256],
    pub saturation: [f32; 256],
    pub value: [f32; 256],
}

impl HsvTables {
    pub fn new(gains: [f64; 3]) -> Self {
        let cut = |change: &dyn Fn(f64) -> f64| -> [u8; 256] { std::array::from_fn(|value| change(value as f64) as u8) };
        let hue = cut(&|hue| (hue * gains[0]).rem_euclid(180.0)).map(|hue| f32::from(hue) * (6.0f32 / 180.0));
        let scaled = |values: [u8; 256]| values.map(|value| f32::from(value) * (1.0f32 / 255.0));
        Self {
            sector: hue.map(|position| position.floor() as u8 % 6),
            fraction: hue.map(|position| position - position.floor()),
            saturation: scaled(cut(&|saturation| (saturation * gains[1]).clamp(0.0, 255.0))),
            value: scaled(cut(&|value| (value * gains[2]).clamp(0.0, 255.0))),
        }
    }
}

#[inline(always)]
fn shift_block(pixels: &mut [[u8; 3]; BLOCK], tables: &HsvTables) {
    let [hue, saturation, value] = hsv_of_block(pixels);
    let (mut sector, mut f, mut s, mut v) = ([0i32; BLOCK], [0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
    for i in 0..BLOCK {
        sector[i] = i32::from(tables.sector[usize::from(hue[i])]);
        f[i] = tables.fraction[usize::from(hue[i])];
        s[i] = tables.saturation[usize::from(saturation[i])];
        v[i] = tables.value[usize::from(value[i])];
    }
    let mut rgb = [[0i32; BLOCK]; 3];
    for i in 0..BLOCK {
        let (f, s, v) = (f[i], s[i], v[i]);
        let high = cut(v * 255.0);
        let low = cut(v * (1.0 - s) * 255.0);
        let falling = cut(v * (1.0 - s * f) * 255.0);
        let rising = cut(v * (1.0 - s * (1.0 - f)) * 255.0);
        let pick = |when: i32, then: i32, other: i32| if sector[i] == when { then } else { other };
        // Sectors 0 to 5 from the left; what is left is that of the others.
        rgb[0][i] = pick(0, high, pick(1, falling, pick(4, rising, pick(5, high, low))));
        rgb[1][i] = pick(0, rising, pick(1, high, pick(2, high, pick(3, falling, low))));
        rgb[2][i] = pick(2, rising, pick(3, high, pick(4, high, pick(5, falling, low))));
    }
    for (i, pixel) in pixels.iter_mut().enumerate() {
        *pixel = [rgb[0][i] as u8, rgb[1][i] as u8, rgb[2][i] as u8];
    }
}

/// Bits of the fixed point in which OpenCV multiplies by reciprocals. All products stay below 2^23, where f32 is exact.
const SHIFT: u32 = 12;
const ONE: f32 = (1 << SHIFT) as f32;
/// Sums with it have their whole part in the lowest bits, halves to even.
const TO_EVEN: f32 = 12_582_912.0;
/// 2^23: so much more, and the lowest bits of a f32 are the whole number.
const WHOLE: f32 = 8_388_608.0;

/// `one / by` as a whole number, halves to even.
#[inline(always)]
fn reciprocal(one: f32, by: f32) -> f32 {
    one / by + TO_EVEN - TO_EVEN
}

/// `product / 4096`, to the next whole number; from -180 up.
#[inline(always)]
fn shifted(product: f32) -> i32 {
    let bits = (product + (WHOLE + 180.0 * ONE + ONE / 2.0)).to_bits();
    ((bits & 0x7f_ffff) >> SHIFT) as i32 - 180
}

/// The whole part of a number from 0 to 2^22; `as i32` would look at each number by itself.
#[inline(always)]
fn cut(number: f32) -> i32 {
    let sum = number + WHOLE;
    (sum.to_bits() & 0x7f_ffff) as i32 - i32::from(sum - WHOLE > number)
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn hsv_of_block(pixels: &[[u8; 3]; BLOCK]) -> Hsv {
    let [mut red, mut green, mut blue]: [Channel; 3] = [[0.0; BLOCK]; 3];
    for (i, pixel) in pixels.iter().enumerate() {
        (red[i], green[i], blue[i]) = (f32::from(pixel[0]), f32::from(pixel[1]), f32::from(pixel[2]));
    }
    let mut hsv = [[0; BLOCK]; 3];
    for i in 0..BLOCK {
        let (r, g, b) = (red[i], green[i], blue[i]);
        let value = larger(r, larger(g, b));
        let range = value + larger(-r, larger(-g, -b));
        // Where a divisor is 0, so is what it divides.
        let saturation = shifted(range * reciprocal(255.0 * ONE, larger(value, 1.0)));
        let (from_red, from_green, from_blue) = (g - b, b - r + 2.0 * range, r - g + 4.0 * range);
        let others = if value == g { from_green } else { from_blue };
        let sixths = if value == r { from_red } else { others };
        let hue = shifted(sixths * reciprocal(30.0 * ONE, larger(range, 1.0)));
        hsv[0][i] = (if hue < 0 { hue + 180 } else { hue }) as u8;
        hsv[1][i] = saturation as u8;
        hsv[2][i] = cut(value) as u8;
    }
    hsv
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use safetensors::SafeTensors;

    use super::super::golden::golden_picture;
    use super::*;

    fn golden_bytes() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/hsv.safetensors")).unwrap()
    }

    #[test]
    fn hue_saturation_and_value_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let picture = golden_picture(&golden, "image");
        let expected = golden.tensor("hsv_of_image").unwrap().data().to_vec();
        let mut rgb = picture.rgb.clone();
        rgb.resize(rgb.len().next_multiple_of(3 * BLOCK), 0);
        let blocks = rgb.as_chunks::<3>().0.as_chunks::<BLOCK>().0;
        let hsv = blocks.iter().flat_map(|block| {
            let [hue, saturation, value] = hsv_of_block(block);
            (0..BLOCK).flat_map(move |i| [hue[i], saturation[i], value[i]])
        });
        let hsv: Vec<u8> = hsv.take(expected.len()).collect();
        assert!(hsv == expected);
    }

    #[test]
    fn every_colour_has_the_hue_and_saturation_of_the_integer_formula() {
        let reciprocal = |one: f64, by: i32| if by == 0 { 0 } else { (one / f64::from(by)).round_ties_even() as i32 };
        let rounded = |product: i32| (product + 2048) >> 12;
        let mut colours =
            (0..=255u8).step_by(5).flat_map(|r| (0..=255u8).flat_map(move |g| (0..=255u8).step_by(3).map(move |b| [r, g, b])));
        loop {
            let block: [[u8; 3]; BLOCK] = std::array::from_fn(|_| colours.next().unwrap_or_default());
            let [hue, saturation, value] = hsv_of_block(&block);
            for (i, rgb) in block.iter().enumerate() {
                let [r, g, b] = rgb.map(i32::from);
                let v = r.max(g).max(b);
                let range = v - r.min(g).min(b);
                let sixths = if v == r {
                    g - b
                } else if v == g {
                    b - r + 2 * range
                } else {
                    r - g + 4 * range
                };
                let h = rounded(sixths * reciprocal(f64::from(30 << 12), range));
                let expected = [if h < 0 { h + 180 } else { h }, rounded(range * reciprocal(f64::from(255 << 12), v)), v];
                assert_eq!([hue[i], saturation[i], value[i]].map(i32::from), expected, "{rgb:?}");
            }
            if block[BLOCK - 1] == [0; 3] {
                break;
            }
        }
    }

    #[test]
    fn shifted_pictures_are_those_of_the_published_trainer() {
        let bytes = golden_bytes();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let gains = [[1.009, 0.65, 1.32], [0.985, 1.7, 0.6], [1.015, 1.21, 1.1], [1.0, 1.0, 1.0]];
        let mut n_vector_differences = 0;
        for (index, gains) in gains.into_iter().enumerate() {
            let mut picture = golden_picture(&golden, "image");
            shift_with_tables(&mut picture.rgb, &HsvTables::new(gains));
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
        let mut rgb = [0, 0, 0, 100, 100, 100, 250, 250, 250];
        shift_hsv(&mut rgb, [1.01, 1.6, 1.25]);
        assert_eq!(rgb, [0, 0, 0, 125, 125, 125, 255, 255, 255]);
    }
}
