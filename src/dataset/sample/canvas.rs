//! How does a drawn surface become a picture? Height, colour and gloss of every pixel, then light.
//!
//! In:  what the scene drew at twice the size of the picture; positions are in units, of which the picture is 640 wide.
//! Out: 8-bit RGB of the picture's size.
//!
//! Relief is drawn into the height alone and shaded here, so chamfers, tool marks and dents agree about where the light is.

use super::random::Direction;
use super::random::grid_noise;
use super::shape::length;
use crate::geom::Size;
use crate::media::Picture;

/// The width of every picture in units.
pub(super) const UNITS: f32 = 640.0;

/// Pixels are drawn at twice the size and averaged, which smooths edges.
const OVERSAMPLING: u32 = 2;

pub(super) type Color = [f32; 3];

pub(super) struct Canvas {
    /// Pixels a side, `OVERSAMPLING` times the picture's.
    pub(super) side: usize,
    pub(super) pixels: Vec<Surface>,
}

/// One drawn pixel.
#[derive(Clone, Copy)]
pub(super) struct Surface {
    /// In units.
    pub(super) height: f32,
    /// Before light; 0 to 1.
    pub(super) color: Color,
    pub(super) gloss: f32,
    /// The direction of fine grooves, which stretch highlights across it; zero where there are none.
    pub(super) grain: [f32; 2],
}

/// One distant lamp that lights everything, seen again as highlights.
#[derive(Clone, Copy)]
pub(super) struct Light {
    /// Where it comes from in the plane of the picture.
    pub(super) from: Direction,
    /// Sine of its height above the table.
    pub(super) up: f32,
    pub(super) level: f32,
    /// How much brighter the picture is toward the lamp than away from it.
    pub(super) gradient: f32,
    pub(super) tint: Color,
}

impl Canvas {
    pub(super) fn new(picture_side: u32) -> Self {
        let side = (picture_side * OVERSAMPLING) as usize;
        let blank = Surface { height: 0.0, color: [0.0; 3], gloss: 0.0, grain: [0.0; 2] };
        Self { side, pixels: vec![blank; side * side] }
    }

    /// Units a drawn pixel.
    pub(super) fn pixel_units(&self) -> f32 {
        UNITS / self.side as f32
    }

    /// Calls `paint` with the position in units of every pixel.
    pub(super) fn paint_all(&mut self, paint: impl FnMut(f32, f32, &mut Surface)) {
        self.paint_within([0.0, 0.0, UNITS, UNITS], paint);
    }

    /// Calls `paint` for the pixels between `[x1, y1, x2, y2]`.
    pub(super) fn paint_within(&mut self, [x1, y1, x2, y2]: [f32; 4], mut paint: impl FnMut(f32, f32, &mut Surface)) {
        let unit = self.pixel_units();
        let pixel = |units: f32| ((units / unit).max(0.0) as usize).min(self.side);
        let (columns, rows) = (pixel(x1)..pixel(x2 + unit), pixel(y1)..pixel(y2 + unit));
        for row in rows {
            for column in columns.clone() {
                let surface = &mut self.pixels[row * self.side + column];
                paint((column as f32 + 0.5) * unit, (row as f32 + 0.5) * unit, surface);
            }
        }
    }

    /// Lights the surface and averages it down; `seed` is for the camera's noise.
    pub(super) fn photograph(&self, light: &Light, seed: u32) -> Picture {
        let picture_side = self.side / OVERSAMPLING as usize;
        let mut rgb = Vec::with_capacity(picture_side * picture_side * 3);
        for row in 0..picture_side {
            for column in 0..picture_side {
                let mut sum = [0.0; 3];
                for (dy, dx) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let lit = self.lit(column * 2 + dx, row * 2 + dy, light);
                    sum = std::array::from_fn(|channel| sum[channel] + lit[channel]);
                }
                let noise = grid_noise(column as i32, row as i32, seed) * 0.008;
                rgb.extend(sum.map(|channel| ((soft_clip(channel / 4.0) + noise).clamp(0.0, 1.0) * 255.0 + 0.5) as u8));
            }
        }
        Picture { size: Size::square(picture_side as u32), rgb }
    }

    fn lit(&self, column: usize, row: usize, light: &Light) -> Color {
        let last = self.side - 1;
        let height = |column: usize, row: usize| self.pixels[row * self.side + column].height;
        let two_pixels = 2.0 * self.pixel_units();
        let slope_x = (height((column + 1).min(last), row) - height(column.saturating_sub(1), row)) / two_pixels;
        let slope_y = (height(column, (row + 1).min(last)) - height(column, row.saturating_sub(1))) / two_pixels;
        let up = 1.0 / (1.0 + slope_x * slope_x + slope_y * slope_y).sqrt();
        let normal = [-slope_x * up, -slope_y * up, up];

        let surface = &self.pixels[row * self.side + column];
        let along = (1.0 - light.up * light.up).sqrt();
        let toward = [light.from.cos * along, light.from.sin * along, light.up];
        let facing = (normal[0] * toward[0] + normal[1] * toward[1] + normal[2] * toward[2]).max(0.0);
        // A flat surface gets 1.
        let diffuse = 0.42 + 0.58 * facing / light.up;

        let (x, y) = ((column as f32 + 0.5) * self.pixel_units() - UNITS / 2.0, (row as f32 + 0.5) * self.pixel_units() - UNITS / 2.0);
        let highlight = if surface.gloss > 0.0 { surface.gloss * highlight(surface, normal, light, x, y) } else { 0.0 };
        let toward_lamp = (x * light.from.cos + y * light.from.sin) / UNITS;
        let corner = (x * x + y * y) / (UNITS * UNITS);
        let exposure = light.level * (1.0 + light.gradient * toward_lamp) * (1.0 - 0.25 * corner);
        std::array::from_fn(|channel| (surface.color[channel] * diffuse.min(1.7) + highlight) * exposure * light.tint[channel])
    }
}

/// Brightness of the lamp's reflection. Over grooves it spreads across them and so becomes a band or, on turned faces, a fan.
fn highlight(surface: &Surface, normal: [f32; 3], light: &Light, x: f32, y: f32) -> f32 {
    // The lamp hangs near enough that its direction changes over the picture.
    let (lamp_x, lamp_y, lamp_up) = (light.from.cos * 420.0 - x, light.from.sin * 420.0 - y, 520.0);
    let far = (lamp_x * lamp_x + lamp_y * lamp_y + lamp_up * lamp_up).sqrt();
    let half = [lamp_x / far, lamp_y / far, lamp_up / far + 1.0];
    let half_length = (half[0] * half[0] + half[1] * half[1] + half[2] * half[2]).sqrt();
    let half = half.map(|part| part / half_length);
    let power = |base: f32| {
        let second = base * base;
        let fourth = second * second;
        fourth * fourth * fourth
    };
    if surface.grain == [0.0; 2] {
        return power((normal[0] * half[0] + normal[1] * half[1] + normal[2] * half[2]).max(0.0));
    }
    let along = surface.grain[0] * half[0] + surface.grain[1] * half[1];
    let fan = (1.0 - along * along).max(0.0);
    let sharper = power(fan);
    // Relief turns the highlight away.
    let facing = (normal[0] * half[0] + normal[1] * half[1] + normal[2] * half[2]).max(0.0);
    sharper * fan * facing * facing
}

/// Leaves dark and middle tones and bends what is brighter than 0.75 toward 1.
fn soft_clip(value: f32) -> f32 {
    const KNEE: f32 = 0.75;
    if value <= KNEE {
        return value;
    }
    let over = value - KNEE;
    KNEE + over / (1.0 + over / (1.0 - KNEE))
}

pub(super) fn mix(a: Color, b: Color, part: f32) -> Color {
    std::array::from_fn(|channel| a[channel] + (b[channel] - a[channel]) * part)
}

pub(super) fn scaled(color: Color, by: f32) -> Color {
    color.map(|channel| channel * by)
}

/// Distance from a point to the line piece from `a` to `b`, how far along it lies (0 to 1), and on which side (-1 or 1).
pub(super) fn to_piece(x: f32, y: f32, a: [f32; 2], b: [f32; 2]) -> (f32, f32, f32) {
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let (px, py) = (x - a[0], y - a[1]);
    let along = ((px * dx + py * dy) / (dx * dx + dy * dy).max(1e-6)).clamp(0.0, 1.0);
    let side = if px * dy - py * dx < 0.0 { -1.0 } else { 1.0 };
    (length(px - dx * along, py - dy * along), along, side)
}
