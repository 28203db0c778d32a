//! What lies around that is no defect? Screws, nuts, chips, paper, a ruler, coolant, engraved numbers.
//!
//! In:  the canvas, places that the scene chose, and the light for shadows.
//! Out: the canvas with the thing on it. Some are meant to mislead a careless detector: chips are thin and bright, coolant
//!      drops are round and shaded, engravings are dark lines.

use font8x8::UnicodeFonts;

use super::canvas::Canvas;
use super::canvas::Color;
use super::canvas::Light;
use super::canvas::Surface;
use super::canvas::UNITS;
use super::canvas::mix;
use super::canvas::scaled;
use super::random::Direction;
use super::random::Random;
use super::random::noise;
use super::random::smooth_step;
use super::random::turns_of;
use super::shape::Outline;
use super::shape::length;
use super::surface::wave;

/// Where a thing lies and how it is turned.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) turn: Direction,
}

/// Darkens what lies behind a thing of this outline, seen from the lamp; `height` in units.
pub(super) fn cast_shadow(canvas: &mut Canvas, window: [f32; 4], light: &Light, height: f32, distance: &dyn Fn(f32, f32) -> f32) {
    let (dx, dy) = (light.from.cos * height, light.from.sin * height);
    let blur = height * 0.8 + 2.0;
    let reach = height * 2.0 + 4.0;
    let window = [window[0] - reach, window[1] - reach, window[2] + reach, window[3] + reach];
    canvas.paint_within(window, |x, y, surface| {
        let own = distance(x, y);
        if own > 0.0 {
            let dark = 1.0 - smooth_step(-blur * 0.4, blur, distance(x + dx, y + dy));
            let touching = 1.0 - smooth_step(0.0, height * 0.6 + 2.0, own);
            let left = (1.0 - 0.52 * dark) * (1.0 - 0.25 * touching);
            surface.color = scaled(surface.color, left);
            surface.gloss *= left;
        }
    });
}

/// Draws a small solid: shadow, then `paint` for every pixel inside, in the thing's own frame and with its distance to the edge.
fn small_thing(
    canvas: &mut Canvas,
    place: Place,
    reach: f32,
    light: &Light,
    height: f32,
    distance: &dyn Fn(f32, f32) -> f32,
    paint: &dyn Fn(f32, f32, f32, &mut Surface),
) {
    let window = [place.x - reach, place.y - reach, place.x + reach, place.y + reach];
    let local = |x: f32, y: f32| place.turn.local(x - place.x, y - place.y);
    cast_shadow(canvas, window, light, height, &|x, y| {
        let (u, v) = local(x, y);
        distance(u, v)
    });
    canvas.paint_within(window, |x, y, surface| {
        let (u, v) = local(x, y);
        let inside = -distance(u, v);
        if inside > 0.0 {
            surface.grain = [0.0; 2];
            paint(u, v, inside, surface);
        }
    });
}

const ZINC: Color = [0.60, 0.61, 0.62];

/// A screw seen from above, hexagon socket or cross.
pub(super) fn screw(canvas: &mut Canvas, place: Place, light: &Light, random: &mut Random) {
    let radius = random.range(17.0, 28.0);
    let head = Outline::Circle { x: 0.0, y: 0.0, radius };
    let socket = Outline::Hexagon { radius: radius * 0.48 };
    let cross = random.chance(0.5);
    let color = random.pick(&[ZINC, [0.24, 0.24, 0.26], [0.66, 0.56, 0.34]]);
    small_thing(canvas, place, radius + 2.0, light, 12.0, &|u, v| head.distance(u, v), &|u, v, inside, surface| {
        let slot = (u.abs().min(v.abs()) - radius * 0.13).max(u.abs().max(v.abs()) - radius * 0.62);
        let recess = if cross { slot } else { socket.distance(u, v) };
        let deep = smooth_step(1.5, -1.5, recess);
        surface.height = 7.0 * (1.0 - (1.0 - (inside / 9.0).min(1.0)) * (1.0 - (inside / 9.0).min(1.0))) - 6.0 * deep;
        surface.color = mix(color, [0.06, 0.06, 0.07], 0.8 * deep);
        surface.gloss = 0.5 * (1.0 - deep);
    });
}

/// A hexagon nut, or a washer.
pub(super) fn nut_or_washer(canvas: &mut Canvas, place: Place, light: &Light, random: &mut Random) {
    let radius = random.range(19.0, 30.0);
    let hole = radius * random.range(0.45, 0.58);
    let hexagon = random.chance(0.6);
    let height = if hexagon { 12.0 } else { 4.0 };
    let distance = |u: f32, v: f32| {
        let outer = if hexagon { Outline::Hexagon { radius }.distance(u, v) } else { length(u, v) - radius };
        outer.max(hole - length(u, v))
    };
    small_thing(canvas, place, radius * 1.2 + 2.0, light, height, &distance, &|_, _, inside, surface| {
        surface.height = (inside * 0.8).min(3.5);
        surface.color = ZINC;
        surface.gloss = 0.4;
    });
}

/// A curled chip of metal.
pub(super) fn chip(canvas: &mut Canvas, place: Place, light: &Light, random: &mut Random) {
    let radius = random.range(7.0, 15.0);
    let width = random.range(1.8, 3.0);
    let open = random.range(0.25, 0.55);
    let growth = random.range(-2.0, 6.0);
    let color = random.pick(&[[0.80, 0.80, 0.82], [0.70, 0.66, 0.52], [0.55, 0.58, 0.68]]);
    let distance = |u: f32, v: f32| {
        let turn = turns_of(u, v);
        let away = (length(u, v) - radius - growth * turn).abs() - width;
        if turn > open { away } else { away.max(2.5) }
    };
    small_thing(canvas, place, radius + 12.0, light, 5.0, &distance, &|u, v, inside, surface| {
        surface.height += inside;
        surface.color = scaled(color, 0.75 + 0.25 * wave(turns_of(u, v) * 5.0));
        surface.gloss = 0.3;
    });
}

/// A sheet with lines of writing, or a cloth; large, meant to lie under the part.
pub(super) fn sheet(canvas: &mut Canvas, place: Place, light: &Light, random: &mut Random) {
    let (half_width, half_height) = (random.range(90.0, 170.0), random.range(120.0, 210.0));
    let outline = Outline::Rectangle { x: 0.0, y: 0.0, half_width, half_height, corner: 2.0 };
    let written = random.chance(0.7);
    let color = if written { [0.86, 0.86, 0.84] } else { random.pick(&[[0.62, 0.28, 0.24], [0.70, 0.68, 0.60], [0.32, 0.42, 0.58]]) };
    let seed = random.bits() as u32;
    small_thing(canvas, place, half_height + 100.0, light, 4.0, &|u, v| outline.distance(u, v), &|u, v, inside, surface| {
        let line = ((v / 19.0) - (v / 19.0).floor() - 0.5).abs() < 0.16;
        let words = noise(u * 0.07, (v / 19.0).floor() * 7.3, seed) > -0.35 && noise(u * 0.42, (v / 19.0).floor() * 3.1, seed) > -0.45;
        let ink = if written && line && words && inside > 18.0 { 0.62 } else { 0.0 };
        surface.color = mix(color, [0.22, 0.22, 0.28], ink);
        surface.height = if written { 1.2 * noise(u * 0.01, v * 0.01, seed) } else { 10.0 * noise(u * 0.014, v * 0.03, seed) };
        surface.gloss = 0.0;
    });
}

/// A steel or plastic ruler along the border.
pub(super) fn ruler(canvas: &mut Canvas, place: Place, light: &Light, random: &mut Random) {
    let outline = Outline::Rectangle { x: 0.0, y: 0.0, half_width: 420.0, half_height: 34.0, corner: 3.0 };
    let color = random.pick(&[[0.66, 0.67, 0.68], [0.78, 0.68, 0.30], [0.80, 0.80, 0.78]]);
    small_thing(canvas, place, 430.0, light, 5.0, &|u, v| outline.distance(u, v), &|u, v, _, surface| {
        let step = 8.0;
        let number = (u / step).floor() as i32;
        let long = if number % 10 == 0 {
            30.0
        } else if number % 5 == 0 {
            22.0
        } else {
            14.0
        };
        let tick = u - number as f32 * step < 1.8 && v < long - 34.0;
        surface.color = if tick { scaled(color, 0.25) } else { color };
        surface.height = 0.0;
        surface.gloss = 0.1;
    });
}

/// A few drops of coolant: clear, so that the metal shows through, with a dark rim and the lamp's reflection.
pub(super) fn coolant(canvas: &mut Canvas, place: Place, light: &Light, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let radius = random.range(5.0, 15.0);
        let (x, y) = (place.x + random.range(-22.0, 22.0), place.y + random.range(-22.0, 22.0));
        let seed = random.bits() as u32;
        let window = [x - radius * 1.3, y - radius * 1.3, x + radius * 1.3, y + radius * 1.3];
        let (spot_x, spot_y) = (x + light.from.cos * radius * 0.45, y + light.from.sin * radius * 0.45);
        canvas.paint_within(window, |px, py, surface| {
            let wobble = 1.0 + 0.22 * noise((px - x) / radius * 1.4 + 7.0, (py - y) / radius * 1.4, seed);
            let away = length(px - x, py - y) / (radius * wobble);
            if away < 1.0 {
                let rim = smooth_step(0.72, 0.98, away);
                surface.color = mix(scaled(surface.color, 0.80 - 0.22 * rim), [0.52, 0.66, 0.62], 0.16);
                surface.height *= 0.9;
                surface.grain = [0.0; 2];
                let spot = smooth_step(0.26, 0.12, length(px - spot_x, py - spot_y) / radius);
                surface.color = mix(surface.color, [1.0, 1.0, 1.0], 0.9 * spot);
            }
        });
    }
}

/// Width of a sign in pixels of the font.
const SIGN_SIDE: f32 = 8.0;

/// A part number, made up of letters and digits.
pub(super) fn part_number(random: &mut Random) -> String {
    let letters: Vec<char> = "ABCDEFGHKLMNPRSTVX".chars().collect();
    let (a, b) = (random.pick(&letters), random.pick(&letters));
    format!("{a}{b}{}-{}", 10 + random.below(90), 1000 + random.below(9000))
}

/// The sides of an engraved text in units.
pub(super) fn engraving_size(text: &str, dot: f32) -> (f32, f32) {
    (text.len() as f32 * SIGN_SIDE * dot, SIGN_SIDE * dot)
}

/// Engraves `text` around the place; a dot of the font is `dot` units large.
pub(super) fn engraving(canvas: &mut Canvas, place: Place, text: &str, dot: f32) {
    let (width, height) = engraving_size(text, dot);
    let glyphs: Vec<[u8; 8]> = text.chars().map(|sign| font8x8::BASIC_FONTS.get(sign).unwrap_or_default()).collect();
    let reach = length(width, height) / 2.0;
    let window = [place.x - reach, place.y - reach, place.x + reach, place.y + reach].map(|edge| edge.clamp(0.0, UNITS));
    canvas.paint_within(window, |x, y, surface| {
        let (u, v) = place.turn.local(x - place.x, y - place.y);
        let (column, row) = ((u + width / 2.0) / dot, (v + height / 2.0) / dot);
        if column < 0.0 || !(0.0..SIGN_SIDE).contains(&row) {
            return;
        }
        let Some(glyph) = glyphs.get((column / SIGN_SIDE) as usize) else { return };
        if glyph[row as usize] >> (column as usize % 8) & 1 == 1 {
            surface.color = scaled(surface.color, 0.6);
            surface.gloss *= 0.3;
            surface.height -= 0.6;
        }
    });
}
