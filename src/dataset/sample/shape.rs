//! What outline does a part have? Solids and holes as signed distances.
//!
//! In:  a position in the part's own frame; a picture is 640 units wide.
//! Out: the distance to the outline, negative inside of the material.

use super::random::Direction;
use super::random::Random;
use super::random::turns_of;

/// A simple outline. Positions and lengths in units.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outline {
    Circle {
        x: f32,
        y: f32,
        radius: f32,
    },
    Rectangle {
        x: f32,
        y: f32,
        half_width: f32,
        half_height: f32,
        corner: f32,
    },
    Slot {
        x: f32,
        y: f32,
        half_length: f32,
        radius: f32,
        turn: Direction,
    },
    Gear {
        teeth: f32,
        root: f32,
        tip: f32,
    },
    /// A regular hexagon; `radius` is that of the inner circle.
    Hexagon {
        radius: f32,
    },
}

impl Outline {
    /// Distance to the outline, negative inside; near enough for gears.
    pub(super) fn distance(&self, px: f32, py: f32) -> f32 {
        match *self {
            Self::Circle { x, y, radius } => length(px - x, py - y) - radius,
            Self::Rectangle { x, y, half_width, half_height, corner } => {
                let dx = (px - x).abs() - half_width + corner;
                let dy = (py - y).abs() - half_height + corner;
                length(dx.max(0.0), dy.max(0.0)) + dx.max(dy).min(0.0) - corner
            }
            Self::Slot { x, y, half_length, radius, turn } => {
                let (u, v) = turn.local(px - x, py - y);
                length(u - u.clamp(-half_length, half_length), v) - radius
            }
            Self::Gear { teeth, root, tip } => {
                let from_centre = length(px, py);
                let turn = turns_of(px, py) * teeth;
                // 0 in the middle of a tooth, 1 in the middle of a gap.
                let away = ((turn - turn.floor()) - 0.5).abs() * 2.0;
                let profile = ((0.68 - away) / 0.36).clamp(0.0, 1.0);
                // The flanks are steep: a part of the radial distance is nearer to the true one.
                (from_centre - root - (tip - root) * profile) * 0.75
            }
            Self::Hexagon { radius } => {
                let (ax, ay) = (px.abs(), py.abs());
                (ax * 0.866_025_4 + ay * 0.5).max(ay) - radius
            }
        }
    }
}

/// The smaller distance, but where solids meet the inner corner is rounded.
fn filleted(a: f32, b: f32) -> f32 {
    const ROUNDING: f32 = 34.0;
    let near = (ROUNDING - (a - b).abs()).max(0.0) / ROUNDING;
    a.min(b) - near * near * ROUNDING * 0.25
}

pub(super) fn length(x: f32, y: f32) -> f32 {
    (x * x + y * y).sqrt()
}

/// A part seen from above: material, what is cut out of it, and an area that lies lower or higher than the rest.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) solids: Vec<Outline>,
    pub(super) holes: Vec<Outline>,
    /// The outline of a step in the surface and its height (negative: a pocket).
    pub(super) step: Option<(Outline, f32)>,
    /// Turned parts are finished around their centre.
    pub(super) round: bool,
}

impl Shape {
    pub(super) fn distance(&self, x: f32, y: f32) -> f32 {
        let solid = self.solids.iter().fold(f32::INFINITY, |least, o| filleted(least, o.distance(x, y)));
        let hole = self.holes.iter().fold(f32::INFINITY, |least, o| least.min(o.distance(x, y)));
        solid.max(-hole)
    }

    pub(super) fn random(random: &mut Random) -> Self {
        match random.below(7) {
            0 | 1 => plate(random),
            2 => disc(random),
            3 => ring(random),
            4 => bracket(random),
            5 => gear(random),
            _ => flange(random),
        }
    }
}

fn plate(random: &mut Random) -> Shape {
    let (half_width, half_height) = (random.range(190.0, 255.0), random.range(140.0, 215.0));
    let corner = random.pick(&[6.0, 20.0, 45.0]);
    let hole = random.range(13.0, 24.0);
    let inset = hole + random.range(16.0, 30.0);
    let mut holes = Vec::new();
    for (sign_x, sign_y) in [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)] {
        if random.chance(0.8) {
            holes.push(Outline::Circle { x: sign_x * (half_width - inset), y: sign_y * (half_height - inset), radius: hole });
        }
    }
    let mut step = None;
    match random.below(4) {
        0 => holes.push(Outline::Circle { x: random.range(-60.0, 60.0), y: random.range(-40.0, 40.0), radius: random.range(34.0, 62.0) }),
        1 => {
            let turn = Direction::from_turns(random.pick(&[0.0, 0.25]));
            holes.push(Outline::Slot { x: random.range(-40.0, 40.0), y: 0.0, half_length: 60.0, radius: random.range(14.0, 24.0), turn });
        }
        2 => {
            let (half_width, half_height) = (half_width * random.range(0.5, 0.66), half_height * random.range(0.5, 0.66));
            step = Some((Outline::Rectangle { x: 0.0, y: 0.0, half_width, half_height, corner: 22.0 }, random.pick(&[-7.0, 6.0])));
        }
        _ => {}
    }
    Shape { solids: vec![Outline::Rectangle { x: 0.0, y: 0.0, half_width, half_height, corner }], holes, step, round: false }
}

fn bolt_circle(random: &mut Random, at: f32, radius: f32) -> Vec<Outline> {
    let n_holes = 3 + random.below(5);
    let around = (0..n_holes).map(|i| Direction::from_turns(i as f32 / n_holes as f32));
    around.map(|d| Outline::Circle { x: at * d.cos, y: at * d.sin, radius }).collect()
}

fn disc(random: &mut Random) -> Shape {
    let radius = random.range(195.0, 255.0);
    let hole = random.range(12.0, 22.0);
    let mut holes = bolt_circle(random, radius * 0.8, hole);
    if random.chance(0.75) {
        holes.push(Outline::Circle { x: 0.0, y: 0.0, radius: random.range(26.0, 60.0) });
    }
    let step = random.chance(0.6).then(|| (Outline::Circle { x: 0.0, y: 0.0, radius: radius * 0.62 }, random.pick(&[-6.0, 7.0])));
    Shape { solids: vec![Outline::Circle { x: 0.0, y: 0.0, radius }], holes, step, round: true }
}

fn ring(random: &mut Random) -> Shape {
    let radius = random.range(225.0, 275.0);
    let inner = radius * random.range(0.36, 0.5);
    let mut holes = if random.chance(0.4) { bolt_circle(random, radius * 0.87, 12.0) } else { Vec::new() };
    holes.push(Outline::Circle { x: 0.0, y: 0.0, radius: inner });
    Shape { solids: vec![Outline::Circle { x: 0.0, y: 0.0, radius }], holes, step: None, round: true }
}

fn bracket(random: &mut Random) -> Shape {
    let (arm, half) = (random.range(68.0, 88.0), 225.0);
    let corner = random.pick(&[8.0, 26.0]);
    let hole = random.range(18.0, 28.0);
    let low = half - arm;
    // A square without the quarter between the arms; the quarter's own corner is the fillet.
    let cut = half - arm + 30.0;
    let quarter = Outline::Rectangle { x: arm + 30.0, y: -arm - 30.0, half_width: cut, half_height: cut, corner: 30.0 };
    let solids = vec![Outline::Rectangle { x: 0.0, y: 0.0, half_width: half, half_height: half, corner }];
    let holes = vec![
        quarter,
        Outline::Circle { x: half - arm, y: low, radius: hole },
        Outline::Circle { x: -low, y: arm - half, radius: hole },
        Outline::Circle { x: -low, y: low, radius: hole * 0.8 },
    ];
    Shape { solids, holes, step: None, round: false }
}

fn gear(random: &mut Random) -> Shape {
    let tip = random.range(235.0, 275.0);
    let root = tip * random.range(0.84, 0.89);
    let teeth = (14 + random.below(15)) as f32;
    let mut holes = vec![Outline::Circle { x: 0.0, y: 0.0, radius: random.range(30.0, 52.0) }];
    if random.chance(0.4) {
        let radius = random.range(18.0, 30.0);
        holes.extend(bolt_circle(random, root * 0.6, radius));
    }
    let step = random.chance(0.7).then(|| (Outline::Circle { x: 0.0, y: 0.0, radius: root * 0.82 }, -7.0));
    Shape { solids: vec![Outline::Gear { teeth, root, tip }], holes, step, round: true }
}

fn flange(random: &mut Random) -> Shape {
    let half_length = random.range(140.0, 170.0);
    let end = random.range(75.0, 105.0);
    let middle = random.range(155.0, 195.0);
    let straight = Direction { cos: 1.0, sin: 0.0 };
    let solids = vec![
        Outline::Slot { x: 0.0, y: 0.0, half_length, radius: end, turn: straight },
        Outline::Circle { x: 0.0, y: 0.0, radius: middle },
    ];
    let bolt = random.range(20.0, 30.0);
    let mut holes = vec![
        Outline::Circle { x: -half_length - 20.0, y: 0.0, radius: bolt },
        Outline::Circle { x: half_length + 20.0, y: 0.0, radius: bolt },
    ];
    let bore = random.range(45.0, 70.0);
    if random.chance(0.8) {
        holes.push(Outline::Circle { x: 0.0, y: 0.0, radius: bore });
    }
    let step = random.chance(0.6).then_some((Outline::Circle { x: 0.0, y: 0.0, radius: middle * 0.78 }, 7.0));
    Shape { solids, holes, step, round: random.chance(0.5) }
}
