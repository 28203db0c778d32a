//! Where does chance come from? A seeded generator, smooth noise, and angles, with the same bits on every machine.
//!
//! In:  seeds and positions.
//! Out: numbers. Only operations that IEEE 754 defines to the last bit are used (no `sin`, `exp` or `powf` of the platform),
//!      so a drawn picture does not depend on the machine.

/// Splitmix64: small, fast, and good enough for pictures.
pub(in crate::dataset) struct Random {
    state: u64,
}

impl Random {
    /// A stream of its own for each `purpose` and `index`, so that pictures can be drawn in any order.
    pub(in crate::dataset) fn new(seed: u64, purpose: u64, index: u64) -> Self {
        Self { state: mix(mix(mix(seed) ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F)) ^ index.wrapping_mul(0xE703_7ED1_A0B4_28DB)) }
    }

    pub(in crate::dataset) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Below `limit`, which is at least 1.
    pub(in crate::dataset) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// From 0 up to, but not reaching, 1.
    pub(super) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    pub(super) fn range(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    pub(super) fn chance(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }

    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A direction: cosine and sine.
    pub(super) fn direction(&mut self) -> Direction {
        Direction::from_turns(self.unit())
    }

    pub(in crate::dataset) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A unit vector, also used as a rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Direction {
    pub(super) cos: f32,
    pub(super) sin: f32,
}

impl Direction {
    /// From an angle in whole turns.
    pub(super) fn from_turns(turns: f32) -> Self {
        let turns = f64::from(turns) - f64::from(turns).floor();
        // Taylor series around the nearest quarter turn: at most an eighth of a turn away.
        let quarter = (turns * 4.0).round();
        let x = (turns - quarter / 4.0) * std::f64::consts::TAU;
        let xx = x * x;
        let sin = x * (1.0 - xx / 6.0 * (1.0 - xx / 20.0 * (1.0 - xx / 42.0 * (1.0 - xx / 72.0))));
        let cos = 1.0 - xx / 2.0 * (1.0 - xx / 12.0 * (1.0 - xx / 30.0 * (1.0 - xx / 56.0 * (1.0 - xx / 90.0))));
        let (cos, sin) = match quarter as i64 % 4 {
            0 => (cos, sin),
            1 => (-sin, cos),
            2 => (-cos, -sin),
            _ => (sin, -cos),
        };
        Self { cos: cos as f32, sin: sin as f32 }
    }

    pub(super) fn turned(self, by: Self) -> Self {
        Self { cos: self.cos * by.cos - self.sin * by.sin, sin: self.sin * by.cos + self.cos * by.sin }
    }

    /// Into the frame that is turned by this direction.
    pub(super) fn local(self, x: f32, y: f32) -> (f32, f32) {
        (x * self.cos + y * self.sin, y * self.cos - x * self.sin)
    }

    /// Out of the frame that is turned by this direction.
    pub(super) fn global(self, x: f32, y: f32) -> (f32, f32) {
        (x * self.cos - y * self.sin, x * self.sin + y * self.cos)
    }
}

/// The angle of a vector in turns, 0 to 1, within 0.00001.
pub(super) fn turns_of(x: f32, y: f32) -> f32 {
    let (ax, ay) = (x.abs(), y.abs());
    let (long, short) = if ax > ay { (ax, ay) } else { (ay, ax) };
    if long == 0.0 {
        return 0.0;
    }
    let z = short / long;
    let zz = z * z;
    // Minimax polynomial of the arc tangent on 0 to 1 (Abramowitz and Stegun 4.4.49).
    let arc = z * (0.999_866 + zz * (-0.330_299_5 + zz * (0.180_141 + zz * (-0.085_133 + zz * 0.020_835_1))));
    let eighth = arc / std::f32::consts::TAU;
    let first = if ax > ay { eighth } else { 0.25 - eighth };
    let half = if x < 0.0 { 0.5 - first } else { first };
    if y < 0.0 { 1.0 - half } else { half }
}

/// From 0 below `low` to 1 above `high`, smoothly.
pub(super) fn smooth_step(low: f32, high: f32, value: f32) -> f32 {
    let t = ((value - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// A number from -1 to 1 for a point of the integer grid.
pub(super) fn grid_noise(x: i32, y: i32, seed: u32) -> f32 {
    let mut h = (x as u32).wrapping_mul(0x85EB_CA6B) ^ (y as u32).wrapping_mul(0xC2B2_AE35) ^ seed.wrapping_mul(0x27D4_EB2F);
    h = (h ^ (h >> 15)).wrapping_mul(0x2C1B_3C6D);
    h = (h ^ (h >> 12)).wrapping_mul(0x297A_2D39);
    h ^= h >> 15;
    (h >> 8) as f32 / (1u32 << 23) as f32 - 1.0
}

/// Smooth noise from -1 to 1 with features about one unit large.
pub(super) fn noise(x: f32, y: f32, seed: u32) -> f32 {
    let (x0, y0) = (x.floor(), y.floor());
    let (fx, fy) = (x - x0, y - y0);
    let (sx, sy) = (fx * fx * (3.0 - 2.0 * fx), fy * fy * (3.0 - 2.0 * fy));
    let (ix, iy) = (x0 as i32, y0 as i32);
    let top = grid_noise(ix, iy, seed) * (1.0 - sx) + grid_noise(ix + 1, iy, seed) * sx;
    let bottom = grid_noise(ix, iy + 1, seed) * (1.0 - sx) + grid_noise(ix + 1, iy + 1, seed) * sx;
    top * (1.0 - sy) + bottom * sy
}

/// Three octaves of [`noise`].
pub(super) fn rough_noise(x: f32, y: f32, seed: u32) -> f32 {
    (noise(x, y, seed) + 0.5 * noise(x * 2.03, y * 2.03, seed ^ 0x51) + 0.25 * noise(x * 4.1, y * 4.1, seed ^ 0xA7)) / 1.75
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_and_their_angles_agree() {
        for step in 0..200 {
            let turns = step as f32 / 200.0;
            let direction = Direction::from_turns(turns);
            assert!((f64::from(direction.sin) - (f64::from(turns) * std::f64::consts::TAU).sin()).abs() < 1e-6, "{turns}");
            let back = turns_of(direction.cos, direction.sin);
            let apart = (back - turns).abs();
            assert!(apart.min(1.0 - apart) < 2e-5, "{turns} came back as {back}");
        }
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_index_and_repeat() {
        let first = |seed, purpose, index| Random::new(seed, purpose, index).bits();
        assert_eq!(first(7, 1, 2), first(7, 1, 2));
        let all = [first(7, 1, 2), first(8, 1, 2), first(7, 2, 2), first(7, 1, 3), first(7, 2, 1)];
        assert!((0..all.len()).all(|i| !all[..i].contains(&all[i])));
    }

    #[test]
    fn noise_is_smooth_and_bounded() {
        let mut last = noise(0.0, 3.3, 9);
        for step in 1..1000 {
            let value = noise(step as f32 * 0.01, 3.3, 9);
            assert!(value.abs() <= 1.0 && (value - last).abs() < 0.05);
            last = value;
        }
    }
}
