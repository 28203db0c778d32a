//! What do the table and the metal look like? Textures of backgrounds and of machined faces.
//!
//! In:  a position.
//! Out: colour, relief and grain there. Nothing here knows of parts or defects.

use super::canvas::Color;
use super::canvas::mix;
use super::canvas::scaled;
use super::random::Direction;
use super::random::Random;
use super::random::noise;
use super::random::rough_noise;
use super::random::smooth_step;
use super::shape::length;

#[derive(Clone, Copy, Debug)]
enum BackgroundKind {
    Wood,
    Cloth,
    Paper { squared: bool },
    Rubber,
    Paint,
    Cardboard,
}

/// What the part lies on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Background {
    kind: BackgroundKind,
    color: Color,
    turn: Direction,
    seed: u32,
}

impl Background {
    pub(super) fn random(random: &mut Random) -> Self {
        use BackgroundKind::Cardboard;
        use BackgroundKind::Cloth;
        use BackgroundKind::Paint;
        use BackgroundKind::Paper;
        use BackgroundKind::Rubber;
        use BackgroundKind::Wood;
        let kind = random.pick(&[Wood, Wood, Cloth, Paper { squared: false }, Paper { squared: true }, Rubber, Paint, Paint, Cardboard]);
        let colors: &[Color] = match kind {
            Wood => &[[0.58, 0.41, 0.25], [0.45, 0.30, 0.18], [0.70, 0.55, 0.38]],
            Cloth => &[[0.34, 0.42, 0.55], [0.50, 0.48, 0.44], [0.55, 0.25, 0.22], [0.28, 0.30, 0.31]],
            Paper { .. } => &[[0.84, 0.83, 0.79], [0.76, 0.79, 0.82]],
            Rubber => &[[0.15, 0.15, 0.16], [0.12, 0.20, 0.17], [0.22, 0.21, 0.20]],
            Paint => &[[0.30, 0.42, 0.40], [0.26, 0.33, 0.44], [0.52, 0.53, 0.52], [0.40, 0.42, 0.33]],
            Cardboard => &[[0.62, 0.49, 0.34]],
        };
        let color = scaled(random.pick(colors), random.range(0.85, 1.1));
        Self { kind, color, turn: random.direction(), seed: random.bits() as u32 }
    }

    /// Colour and height.
    pub(super) fn at(&self, x: f32, y: f32) -> (Color, f32) {
        let (u, v) = self.turn.local(x, y);
        let seed = self.seed;
        let cloudy = 1.0 + 0.07 * rough_noise(u * 0.008, v * 0.008, seed);
        let (color, height) = match self.kind {
            BackgroundKind::Wood => {
                let rings = wave(v * 0.022 + 1.6 * noise(u * 0.0035, v * 0.012, seed) + 0.12 * noise(u * 0.02, v * 0.1, seed ^ 1));
                let pores = smooth_step(0.45, 0.8, noise(u * 0.018, v * 0.38, seed ^ 2));
                let board = ((v / 210.0) - (v / 210.0).floor() - 0.5).abs();
                let gap = smooth_step(0.488, 0.497, board);
                (scaled(mix(self.color, scaled(self.color, 0.72), 0.35 + 0.35 * rings), 1.0 - 0.2 * pores - 0.6 * gap), -1.5 * gap)
            }
            BackgroundKind::Cloth => {
                let thread = wave(u / 9.0) * wave(v / 9.0);
                let folds = noise(u * 0.009, v * 0.02, seed ^ 3);
                (scaled(self.color, 1.0 + 0.10 * thread), 9.0 * folds + 0.5 * thread)
            }
            BackgroundKind::Paper { squared } => {
                let line = |at: f32| smooth_step(0.47, 0.495, ((at / 34.0) - (at / 34.0).floor() - 0.5).abs());
                let lines = if squared { line(u).max(line(v)) } else { 0.0 };
                (mix(self.color, [0.45, 0.58, 0.74], 0.55 * lines), 1.5 * noise(u * 0.006, v * 0.006, seed ^ 4))
            }
            BackgroundKind::Rubber => {
                let ribs = wave(u / 26.0);
                (scaled(self.color, 1.0 + 0.18 * noise(u * 0.5, v * 0.5, seed)), 1.3 * ribs)
            }
            BackgroundKind::Paint => {
                let worn = smooth_step(0.38, 0.5, rough_noise(u * 0.013, v * 0.013, seed ^ 5));
                (mix(self.color, [0.48, 0.46, 0.43], 0.5 * worn), 0.35 * rough_noise(u * 0.09, v * 0.09, seed ^ 6) - 0.6 * worn)
            }
            BackgroundKind::Cardboard => {
                let fibres = noise(u * 0.3, v * 0.06, seed ^ 7);
                (scaled(self.color, 1.0 + 0.05 * fibres), 0.7 * wave(v / 22.0))
            }
        };
        (scaled(color, cloudy), height)
    }
}

/// How the last tool left the metal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Finish {
    Brushed,
    Turned { pitch: f32 },
    Milled { pass: f32, radius: f32, pitch: f32 },
    Ground,
    Cast,
}

/// One point of a machined face.
pub(super) struct Grain {
    /// Of the colour.
    pub(super) tone: f32,
    pub(super) height: f32,
    /// Of the grooves, in the part's frame; zero where the finish has none.
    pub(super) direction: [f32; 2],
}

impl Finish {
    pub(super) fn random(random: &mut Random, round: bool) -> Self {
        let kind = random.below(10);
        if round && kind < 6 {
            return Self::Turned { pitch: random.range(5.0, 13.0) };
        }
        match kind {
            6 => Self::Cast,
            1 | 2 | 8 => Self::Brushed,
            0 | 5 | 7 => Self::Ground,
            _ => {
                let pass = random.range(80.0, 190.0);
                Self::Milled { pass, radius: pass * random.range(0.55, 0.9), pitch: random.range(8.0, 17.0) }
            }
        }
    }

    pub(super) fn at(&self, x: f32, y: f32, seed: u32) -> Grain {
        match *self {
            Self::Brushed => {
                let streaks = noise(x * 0.010, y * 0.40, seed) + 0.6 * noise(x * 0.025, y * 0.9, seed ^ 1);
                Grain { tone: 1.0 + 0.055 * streaks, height: 0.10 * streaks, direction: [1.0, 0.0] }
            }
            Self::Turned { pitch } => {
                let radius = length(x, y).max(0.1);
                let rings = noise(radius * 0.33, 0.5, seed) + 0.5 * noise(radius * 0.06, 9.5, seed);
                let marks = wave(radius / pitch);
                Grain { tone: 1.0 + 0.05 * rings + 0.02 * marks, height: 0.16 * marks, direction: [-y / radius, x / radius] }
            }
            Self::Milled { pass, radius, pitch } => {
                let number = (y / pass).floor();
                let across = y - (number + 0.5) * pass;
                let forward = if number as i32 % 2 == 0 { 1.0 } else { -1.0 };
                let depth = (radius * radius - across * across).max(1.0).sqrt();
                let marks = wave((x * forward + depth) / pitch);
                let groove = length(across, depth);
                let direction = [across / groove * forward, depth / groove];
                let seam = smooth_step(0.47, 0.5, across.abs() / pass);
                let tone = 1.0 + 0.035 * marks + 0.03 * noise(number * 5.3, 0.5, seed) + 0.025 * noise(x * 0.1, y * 0.1, seed ^ 2);
                Grain { tone, height: 0.22 * marks - 0.5 * seam, direction }
            }
            Self::Ground => {
                let cross = noise(x * 0.015, y * 0.30, seed) + 0.5 * noise(x * 0.25, y * 0.02, seed ^ 3);
                Grain { tone: 1.0 + 0.03 * cross, height: 0.05 * cross, direction: [1.0, 0.0] }
            }
            Self::Cast => {
                let bumps = rough_noise(x * 0.11, y * 0.11, seed);
                Grain { tone: 0.84 + 0.06 * rough_noise(x * 0.03, y * 0.03, seed ^ 4), height: 1.1 * bumps, direction: [0.0; 2] }
            }
        }
    }

    pub(super) fn gloss(&self) -> f32 {
        match self {
            Self::Brushed => 0.45,
            Self::Turned { .. } => 0.60,
            Self::Milled { .. } => 0.40,
            Self::Ground => 0.32,
            Self::Cast => 0.06,
        }
    }
}

/// A smooth periodic wave from -1 to 1 with period 1.
pub(super) fn wave(at: f32) -> f32 {
    let triangle = ((at - at.floor()) * 2.0 - 1.0).abs();
    triangle * triangle * (3.0 - 2.0 * triangle) * 2.0 - 1.0
}
