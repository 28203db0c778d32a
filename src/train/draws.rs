//! Random numbers from a counter, not from a state.
//!
//! In:  a key: (seed, epoch, sample, stage).
//! Out: draw `n` of that key, a hash of key and `n`.
//!
//! So a draw depends on nothing that was drawn before, in this thread or another. Source: the hash is the finalizer of
//! `SplitMix64` (Steele, Lea, Flood, 2014); a gamma variable of a whole shape is a sum of exponential ones.

/// What a draw is for; draws of different stages are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Order = 1,
    Flip = 2,
    Hsv = 3,
    Mosaic = 4,
    Perspective = 5,
    CopyPaste = 6,
    Mixup = 7,
    /// The second mosaic of a mixup.
    PartnerMosaic = 8,
    PartnerPerspective = 9,
    PartnerCopyPaste = 10,
    /// Of a batch of pictures, by its position.
    Side = 11,
}

/// The draws of one stage of one sample.
pub(super) struct Draws {
    key: u64,
    counter: u64,
}

impl Draws {
    pub(super) fn new(seed: u64, epoch: usize, sample: usize, stage: Stage) -> Self {
        let key = [epoch as u64, sample as u64, stage as u64].into_iter().fold(mix(seed), |key, part| mix(key ^ mix(part)));
        Self { key, counter: 0 }
    }

    /// The draws of a key that another draw gave.
    pub(super) fn from_key(key: u64) -> Self {
        Self { key, counter: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.counter += 1;
        mix(self.key.wrapping_add(self.counter.wrapping_mul(GOLDEN)))
    }

    /// Uniform in 0 to 1, 1 excluded.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `centre - range` to `centre + range`.
    pub(super) fn around(&mut self, centre: f64, range: f64) -> f64 {
        centre + (2.0 * self.unit() - 1.0) * range
    }

    /// Uniform in `0..n`; the bias is below n / 2^64.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Shuffles so that every order is as likely as any other.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Beta distribution with both parameters `shape`: mean 1/2, variance 1 / (4 (2 shape + 1)).
    pub(super) fn beta(&mut self, shape: usize) -> f64 {
        // A unit is below 1, so 1 - unit has a logarithm.
        let mut gamma = || (0..shape).map(|_| -(1.0 - self.unit()).ln()).sum::<f64>();
        let (first, second) = (gamma(), gamma());
        first / (first + second)
    }
}

/// 2^64 / golden ratio: consecutive counters differ in half of their bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // The first three outputs of SplitMix64 from seed 1234567.
        let outputs = [0, 1, 2].map(|n| mix(1_234_567_u64.wrapping_add(GOLDEN.wrapping_mul(n))));
        assert_eq!(outputs, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn beta_has_the_mean_and_the_variance_of_its_formula() {
        let values: Vec<f64> = (0..20_000).map(|sample| Draws::new(3, 0, sample, Stage::Mixup).beta(32)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!((mean - 0.5).abs() < 0.002, "{mean}");
        assert!((variance * 4.0 * 65.0 - 1.0).abs() < 0.04, "{variance}");
    }
}
