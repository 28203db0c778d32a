//! How does a defect look, and which box is tight around it? Scratches, dents and cracks.
//!
//! In:  the canvas with a finished part, and where metal is.
//! Out: the canvas with the defect, and its box in units. Boxes hold what was really drawn, not what was planned.

use super::canvas::Canvas;
use super::canvas::Surface;
use super::canvas::UNITS;
use super::canvas::mix;
use super::canvas::scaled;
use super::canvas::to_piece;
use super::random::Direction;
use super::random::Random;
use super::random::noise;
use super::random::smooth_step;
use super::shape::length;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefectKind {
    Scratch,
    Dent,
    Crack,
}

impl DefectKind {
    /// In the order of class numbers.
    pub(super) const ALL: [Self; 3] = [Self::Scratch, Self::Dent, Self::Crack];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scratch => "scratch",
            Self::Dent => "dent",
            Self::Crack => "crack",
        }
    }
}

/// `x1, y1, x2, y2` in units.
pub(super) type UnitBox = [f32; 4];

/// Pixels with more of the defect than this belong to its box.
const VISIBLE: f32 = 0.3;
/// Defects keep so far from the border of the picture, in units.
const BORDER: f32 = 6.0;
/// They keep so far from each other.
const APART: f32 = 10.0;

/// Draws one defect where it fits, smaller when there is little room; `None` when there is no room at all.
///
/// `metal` tells how deep inside the metal a point is (distance to its nearest edge, negative outside).
pub(super) fn draw_defect(
    canvas: &mut Canvas,
    kind: DefectKind,
    metal: &dyn Fn(f32, f32) -> f32,
    taken: &[UnitBox],
    random: &mut Random,
) -> Option<UnitBox> {
    const TRIES: usize = 160;
    for attempt in 0..TRIES {
        let scale = 1.0 - 0.45 * (attempt as f32 / TRIES as f32);
        let (x, y) = (random.range(BORDER, UNITS - BORDER), random.range(BORDER, UNITS - BORDER));
        if metal(x, y) < 8.0 {
            continue;
        }
        let strokes = match kind {
            DefectKind::Scratch => scratch(x, y, scale, random),
            DefectKind::Crack => crack(x, y, scale, random),
            DefectKind::Dent => {
                let dent = Dent::random(x, y, scale, random);
                if dent.fits(metal) && is_free(dent.bounds(), taken) {
                    return Some(dent.draw(canvas));
                }
                continue;
            }
        };
        let fits = strokes.iter().all(|s| s.points.iter().all(|p| metal(p[0], p[1]) > 7.0 && is_inside(*p)));
        if fits && is_free(bounds_of(&strokes), taken) {
            let seed = random.bits() as u32;
            return Some(match kind {
                DefectKind::Scratch => draw_strokes(canvas, &strokes, &|reach, side, surface| scratch_at(reach, side, seed, surface)),
                _ => draw_strokes(canvas, &strokes, &|reach, _, surface| crack_at(reach, surface)),
            });
        }
    }
    None
}

fn is_inside([x, y]: [f32; 2]) -> bool {
    x > BORDER && y > BORDER && x < UNITS - BORDER && y < UNITS - BORDER
}

fn is_free(bounds: UnitBox, taken: &[UnitBox]) -> bool {
    taken.iter().all(|other| {
        bounds[0] > other[2] + APART || other[0] > bounds[2] + APART || bounds[1] > other[3] + APART || other[1] > bounds[3] + APART
    })
}

/// A line of changing width.
struct Stroke {
    points: Vec<[f32; 2]>,
    /// Half of the width at each point.
    reach: Vec<f32>,
}

fn bounds_of(strokes: &[Stroke]) -> UnitBox {
    let points = strokes.iter().flat_map(|stroke| &stroke.points);
    points.fold([UNITS, UNITS, 0.0, 0.0], |b, p| [b[0].min(p[0]), b[1].min(p[1]), b[2].max(p[0]), b[3].max(p[1])])
}

/// A slightly bent line with thin ends.
fn scratch(x: f32, y: f32, scale: f32, random: &mut Random) -> Vec<Stroke> {
    const POINTS: usize = 26;
    let half = random.range(68.0, 150.0) * scale;
    // Mostly oblique, so that boxes are not mere lines.
    let turns = if random.chance(0.88) { random.range(0.07, 0.18) + 0.25 * random.below(4) as f32 } else { random.unit() };
    let along = Direction::from_turns(turns);
    let bend = random.range(-0.22, 0.22) * half;
    let width = random.range(3.6, 5.8);
    let seed = random.bits() as u32;
    let mut stroke = Stroke { points: Vec::new(), reach: Vec::new() };
    for i in 0..POINTS {
        let t = i as f32 / (POINTS - 1) as f32 * 2.0 - 1.0;
        let (dx, dy) = along.global(t * half, bend * (1.0 - t * t) + 1.3 * noise(t * 9.0, 0.5, seed));
        stroke.points.push([x + dx, y + dy]);
        stroke.reach.push(width * (1.0 - 0.7 * t * t * t * t) * (0.85 + 0.35 * noise(t * 5.0, 4.5, seed)));
    }
    vec![stroke]
}

/// A jagged line that branches.
fn crack(x: f32, y: f32, scale: f32, random: &mut Random) -> Vec<Stroke> {
    let long = random.range(105.0, 230.0) * scale;
    let heading = random.direction();
    let width = random.range(3.0, 4.6);
    let start = heading.global(-long / 2.0, 0.0);
    let main = jagged([x + start.0, y + start.1], heading, long, width, random);
    let mut strokes = vec![main];
    for branch in 0..=random.below(3) {
        let at = (strokes[0].points.len() as f32 * random.range(0.25, 0.75)) as usize;
        let side = if branch % 2 == 0 { 1.0 } else { -1.0 };
        let away = heading.turned(Direction::from_turns(side * random.range(0.10, 0.19)));
        let long = long * random.range(0.25, 0.45);
        let from = strokes[0].points[at];
        strokes.push(jagged(from, away, long, width * 0.72, random));
    }
    strokes
}

fn jagged(from: [f32; 2], heading: Direction, long: f32, width: f32, random: &mut Random) -> Stroke {
    let mut stroke = Stroke { points: vec![from], reach: vec![width] };
    let (mut at, mut gone, mut side) = (from, 0.0, 1.0);
    while gone < long {
        let step = random.range(8.0, 20.0);
        side = if random.chance(0.8) { -side } else { side };
        let direction = heading.turned(Direction::from_turns(side * random.range(0.03, 0.13)));
        let (dx, dy) = direction.global(step, 0.0);
        at = [at[0] + dx, at[1] + dy];
        gone += step;
        stroke.points.push(at);
        stroke.reach.push(width * (1.0 - 0.65 * (gone / long).min(1.0)) * random.range(0.75, 1.2));
    }
    stroke
}

/// Paints all strokes and returns the box of what is visible. `paint` gets how near the middle is (0 at the rim, 1 in the middle),
/// the side of the line, and the pixel.
fn draw_strokes(canvas: &mut Canvas, strokes: &[Stroke], paint: &dyn Fn(f32, f32, &mut Surface)) -> UnitBox {
    const MARGIN: f32 = 8.0;
    let bounds = bounds_of(strokes);
    let window = [bounds[0] - MARGIN, bounds[1] - MARGIN, bounds[2] + MARGIN, bounds[3] + MARGIN];
    let half_pixel = canvas.pixel_units() / 2.0;
    let mut visible = [UNITS, UNITS, 0.0, 0.0];
    canvas.paint_within(window, |x, y, surface| {
        let mut best = (0.0f32, 1.0);
        for stroke in strokes {
            for (points, reach) in stroke.points.windows(2).zip(stroke.reach.windows(2)) {
                if (x - points[0][0]).abs() > 32.0 || (y - points[0][1]).abs() > 32.0 {
                    continue;
                }
                let (away, along, side) = to_piece(x, y, points[0], points[1]);
                let nearness = 1.0 - away / (reach[0] + (reach[1] - reach[0]) * along);
                if nearness > best.0 {
                    best = (nearness, side);
                }
            }
        }
        if best.0 > 0.0 {
            paint(best.0, best.1, surface);
            if best.0 > VISIBLE {
                grow(&mut visible, x, y, half_pixel);
            }
        }
    });
    visible
}

fn grow(bounds: &mut UnitBox, x: f32, y: f32, half_pixel: f32) {
    *bounds = [
        bounds[0].min(x - half_pixel).max(0.0),
        bounds[1].min(y - half_pixel).max(0.0),
        bounds[2].max(x + half_pixel).min(UNITS),
        bounds[3].max(y + half_pixel).min(UNITS),
    ];
}

/// Bare bright metal in the groove, with one dark flank.
fn scratch_at(nearness: f32, side: f32, seed: u32, surface: &mut Surface) {
    // Which flank lies in the dark differs between scratches.
    let dark_side = if seed & 1 == 0 { 1.0 } else { -1.0 };
    let (dark, bright) = (smooth_step(0.0, 0.3, nearness), smooth_step(0.1, 0.45, nearness));
    if side == dark_side && nearness < 0.8 {
        surface.color = mix(surface.color, [0.07, 0.07, 0.08], 0.82 * dark);
        surface.gloss *= 1.0 - 0.85 * dark;
    } else {
        surface.color = mix(surface.color, [0.98, 0.98, 0.97], 0.88 * bright);
        surface.gloss *= 1.0 - 0.5 * bright;
    }
    surface.grain = [0.0; 2];
    surface.height -= 0.9 * nearness;
}

/// A gap without light.
fn crack_at(nearness: f32, surface: &mut Surface) {
    let gap = smooth_step(0.0, 0.45, nearness);
    surface.color = mix(surface.color, [0.05, 0.045, 0.04], 0.94 * gap);
    surface.gloss *= 1.0 - gap;
    surface.height -= 1.2 * nearness;
}

/// A bowl with an elliptic rim.
struct Dent {
    x: f32,
    y: f32,
    turn: Direction,
    long: f32,
    short: f32,
    /// In units at the middle.
    depth: f32,
}

impl Dent {
    fn random(x: f32, y: f32, scale: f32, random: &mut Random) -> Self {
        let long = random.pick(&[30.0, 38.0, 48.0, 62.0]) * random.range(0.92, 1.12) * scale;
        let short = long * random.range(0.62, 1.0);
        Self { x, y, turn: random.direction(), long, short, depth: short * random.range(0.50, 0.68) }
    }

    /// 0 in the middle, 1 on the rim, squared.
    fn radius_squared(&self, x: f32, y: f32) -> f32 {
        let (u, v) = self.turn.local(x - self.x, y - self.y);
        (u / self.long) * (u / self.long) + (v / self.short) * (v / self.short)
    }

    fn bounds(&self) -> UnitBox {
        // Half sides of the box around a turned ellipse.
        let width = length(self.long * self.turn.cos, self.short * self.turn.sin);
        let height = length(self.long * self.turn.sin, self.short * self.turn.cos);
        [self.x - width, self.y - height, self.x + width, self.y + height]
    }

    fn fits(&self, metal: &dyn Fn(f32, f32) -> f32) -> bool {
        let bounds = self.bounds();
        is_inside([bounds[0], bounds[1]])
            && is_inside([bounds[2], bounds[3]])
            && (0..16).all(|i| {
                let around = Direction::from_turns(i as f32 / 16.0);
                let (dx, dy) = self.turn.global(self.long * around.cos, self.short * around.sin);
                metal(self.x + dx, self.y + dy) > 8.0
            })
    }

    fn draw(&self, canvas: &mut Canvas) -> UnitBox {
        let half_pixel = canvas.pixel_units() / 2.0;
        let mut visible = [UNITS, UNITS, 0.0, 0.0];
        canvas.paint_within(self.bounds(), |x, y, surface| {
            let squared = self.radius_squared(x, y);
            if squared < 1.0 {
                let bowl = (1.0 - squared) * (1.0 - squared);
                surface.height -= self.depth * bowl;
                surface.color = scaled(surface.color, 1.0 - 0.22 * bowl);
                surface.gloss *= 1.0 - 0.75 * smooth_step(0.0, 0.3, 1.0 - squared);
                // The outermost hundredth of the bowl is too flat to be seen.
                if squared < 0.9 {
                    grow(&mut visible, x, y, half_pixel);
                }
            }
        });
        visible
    }
}
