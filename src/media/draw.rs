//! How does a box look on a picture that leaves the program? An outline and a tag with a name.
//!
//! In:  a picture, a box in its pixels, a colour, a text.
//! Out: the same picture, drawn over. Anything outside of the picture is cut off; nothing ever panics.
//!
//! The window draws its own boxes; this is for annotated files and contact sheets.

use font8x8::UnicodeFonts;

use super::Picture;
use crate::geom::Xyxy;

/// Twelve colours that stay apart without red or green cones too, because they differ in lightness and in blue: the smallest
/// CIELAB distance is 25 for any of the three sights (found by annealing, checked below). Neighbours in the list are far apart.
const CLASS_COLORS: [[u8; 3]; 12] = [
    [0, 255, 210],
    [255, 0, 170],
    [130, 0, 255],
    [90, 255, 0],
    [255, 130, 130],
    [130, 130, 255],
    [210, 50, 50],
    [130, 170, 0],
    [255, 170, 255],
    [170, 0, 170],
    [90, 255, 130],
    [170, 50, 90],
];

/// Glyphs have so many pixels a side before they are enlarged.
const GLYPH_SIDE: i64 = 8;

/// A colour for each class, told apart also by colour-blind people; repeats after its length.
pub fn class_color(class: usize) -> [u8; 3] {
    CLASS_COLORS[class % CLASS_COLORS.len()]
}

/// Draws a box outline and a tag with `text` above it (inside, where there is no room).
///
/// Line and letters grow with the picture. Letters are black or white, whichever is read better on `color`; an empty text
/// draws no tag. Signs that the font lacks show as `?`.
pub fn draw_box(picture: &mut Picture, bbox: Xyxy, color: [u8; 3], text: &str) {
    let mean_side = u64::midpoint(picture.size.width.into(), picture.size.height.into());
    let thickness = ((mean_side as f64 * 0.004).round() as i64).clamp(1, 12);
    let letter_scale = (mean_side as i64 / 400).clamp(1, 3);

    // Boxes from files may be anywhere; a margin keeps their outline out of sight without overflow.
    let pixel = |value: f32, side: u32| (value.round() as i64).clamp(-64, i64::from(side) + 64);
    let (x1, y1) = (pixel(bbox.x1, picture.size.width), pixel(bbox.y1, picture.size.height));
    let (x2, y2) = (pixel(bbox.x2, picture.size.width), pixel(bbox.y2, picture.size.height));
    let outline = Rect { x1, y1, x2: x2.max(x1 + 1), y2: y2.max(y1 + 1) };
    fill(picture, Rect { y2: outline.y1 + thickness, ..outline }, color);
    fill(picture, Rect { y1: outline.y2 - thickness, ..outline }, color);
    fill(picture, Rect { x2: outline.x1 + thickness, ..outline }, color);
    fill(picture, Rect { x1: outline.x2 - thickness, ..outline }, color);

    if !text.is_empty() {
        draw_tag(picture, &outline, color, text, letter_scale);
    }
}

/// Pixels from `x1` to before `x2`, `y1` to before `y2`.
#[derive(Clone, Copy)]
struct Rect {
    x1: i64,
    y1: i64,
    x2: i64,
    y2: i64,
}

/// Draws a line with square ends, `width` pixels wide; equal ends give a square.
pub fn line(picture: &mut Picture, from: [f64; 2], to: [f64; 2], color: [u8; 3], width: f64) {
    let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
    if !(dx.is_finite() && dy.is_finite()) {
        return;
    }
    // What lies far outside would take steps without end.
    let longest = f64::from(picture.size.width.max(picture.size.height)) * 4.0;
    let n_steps = dx.abs().max(dy.abs()).min(longest).ceil().max(1.0);
    let half = width / 2.0;
    for step in 0..=n_steps as u64 {
        let t = step as f64 / n_steps;
        let (x, y) = (from[0] + t * dx, from[1] + t * dy);
        let pixel = |value: f64| value.round() as i64;
        fill(picture, Rect { x1: pixel(x - half), y1: pixel(y - half), x2: pixel(x + half), y2: pixel(y + half) }, color);
    }
}

/// Writes `text` with its upper left corner at `at`; a letter is `8 * scale` pixels wide and high.
pub fn text(picture: &mut Picture, at: [i64; 2], text: &str, ink: [u8; 3], scale: i64) {
    let [mut x, top] = at;
    for sign in text.chars() {
        for (row, bits) in (0i64..).zip(glyph(sign)) {
            for column in (0..GLYPH_SIDE).filter(|column| bits >> column & 1 == 1) {
                let (x1, y1) = (x + column * scale, top + row * scale);
                fill(picture, Rect { x1, y1, x2: x1 + scale, y2: y1 + scale }, ink);
            }
        }
        x += GLYPH_SIDE * scale;
        if x >= i64::from(picture.size.width) {
            break;
        }
    }
}

/// Pixels that a text is wide.
pub fn text_width(text: &str, scale: i64) -> i64 {
    text.chars().count() as i64 * GLYPH_SIDE * scale
}

fn draw_tag(picture: &mut Picture, outline: &Rect, color: [u8; 3], text: &str, scale: i64) {
    let margin = scale;
    let width = text_width(text, scale) + 2 * margin;
    let height = GLYPH_SIDE * scale + 2 * margin;
    let (picture_width, picture_height) = (i64::from(picture.size.width), i64::from(picture.size.height));
    let top = if outline.y1 >= height { outline.y1 - height } else { outline.y1 };
    let top = top.min(picture_height - height).max(0);
    let left = outline.x1.min(picture_width - width).max(0);
    fill(picture, Rect { x1: left, y1: top, x2: left + width, y2: top + height }, color);

    let ink = if is_light(color) { [0; 3] } else { [255; 3] };
    self::text(picture, [left + margin, top + margin], text, ink, scale);
}

fn glyph(sign: char) -> [u8; 8] {
    let find = |sign| font8x8::BASIC_FONTS.get(sign).or_else(|| font8x8::LATIN_FONTS.get(sign)).or_else(|| font8x8::GREEK_FONTS.get(sign));
    find(sign).or_else(|| find('?')).unwrap_or_default()
}

/// Whether black reads better than white on this colour, by relative luminance (WCAG 2 contrast).
fn is_light(color: [u8; 3]) -> bool {
    let linear = |channel: u8| (f64::from(channel) / 255.0).powf(2.2);
    let luminance = 0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2]);
    luminance > 0.179
}

fn fill(picture: &mut Picture, rect: Rect, color: [u8; 3]) {
    let (width, height) = (i64::from(picture.size.width), i64::from(picture.size.height));
    let (x1, x2) = (rect.x1.clamp(0, width), rect.x2.clamp(0, width));
    for y in rect.y1.clamp(0, height)..rect.y2.clamp(0, height) {
        if x1 < x2 {
            let row = &mut picture.rgb[((y * width + x1) * 3) as usize..((y * width + x2) * 3) as usize];
            row.chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&color));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geom::Size;

    fn black(width: u32, height: u32) -> Picture {
        Picture { size: Size::new(width, height), rgb: vec![0; (width * height * 3) as usize] }
    }

    fn at(picture: &Picture, x: u32, y: u32) -> [u8; 3] {
        let start = ((y * picture.size.width + x) * 3) as usize;
        [picture.rgb[start], picture.rgb[start + 1], picture.rgb[start + 2]]
    }

    #[test]
    fn the_outline_lies_on_the_edges_and_the_inside_stays_clear() {
        let mut picture = black(100, 100);
        draw_box(&mut picture, Xyxy::new(20.0, 30.0, 60.0, 80.0), [9, 8, 7], "");
        assert_eq!((at(&picture, 20, 30), at(&picture, 59, 79)), ([9, 8, 7], [9, 8, 7]));
        assert_eq!((at(&picture, 19, 30), at(&picture, 60, 50), at(&picture, 40, 50)), ([0; 3], [0; 3], [0; 3]));
    }

    #[test]
    fn the_tag_stands_above_the_box_and_inside_at_the_upper_edge() {
        let mut picture = black(100, 100);
        draw_box(&mut picture, Xyxy::new(20.0, 30.0, 60.0, 80.0), [255, 255, 0], "ab");
        assert_eq!(at(&picture, 20, 21), [255, 255, 0]);
        let letters =
            picture.rgb.chunks_exact(3).enumerate().filter(|(i, p)| (21..29).contains(&(i / 100)) && **p == [255, 255, 0]).count();
        assert!(letters > 40 && letters < 18 * 8, "{letters} pixels of the tag are not ink");
        let mut picture = black(100, 100);
        draw_box(&mut picture, Xyxy::new(90.0, 2.0, 99.0, 80.0), [255, 0, 0], "ab");
        assert_eq!(at(&picture, 85, 2), [255, 0, 0]);
    }

    #[test]
    fn boxes_and_texts_that_do_not_fit_are_cut() {
        for (width, height) in [(1, 1), (3, 200), (64, 5)] {
            let mut picture = black(width, height);
            for bbox in [
                Xyxy::new(-1e30, -1e30, 1e30, 1e30),
                Xyxy::new(f32::NAN, f32::NEG_INFINITY, 5.0, f32::INFINITY),
                Xyxy::new(50.0, 50.0, 40.0, 40.0),
            ] {
                draw_box(&mut picture, bbox, class_color(3), "a name longer than the picture \u{1F600}");
            }
        }
    }

    #[test]
    fn class_colors_stay_apart_for_the_colour_blind() {
        // What is left of linear RGB without red or green cones (Viénot, Brettel, Mollon 1999), in CIELAB.
        let seen = |color: [u8; 3], sight: Option<(f64, f64)>| {
            let [mut red, mut green, blue] = color.map(|c| (f64::from(c) / 255.0).powf(2.2));
            if let Some((from_red, from_green)) = sight {
                red = from_red * red + from_green * green;
                green = red;
            }
            let xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
            let [x, y, z] = xyz.map(|row: [f64; 3]| row[0] * red + row[1] * green + row[2] * blue);
            let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
            [116.0 * f(y) - 16.0, 500.0 * (f(x / 0.9505) - f(y)), 200.0 * (f(y) - f(z / 1.089))]
        };
        for sight in [None, Some((0.11238, 0.88762)), Some((0.29275, 0.70725))] {
            for (i, a) in CLASS_COLORS.iter().enumerate() {
                for b in &CLASS_COLORS[..i] {
                    let (p, q) = (seen(*a, sight), seen(*b, sight));
                    let distance = p.iter().zip(&q).map(|(p, q)| (p - q).powi(2)).sum::<f64>().sqrt();
                    assert!(distance > 25.0, "{a:?} and {b:?} look alike: {distance}");
                }
            }
        }
        assert_eq!(class_color(0), class_color(12));
    }
}
