//! Distribution focal loss: its value, gradient, and decoding.
//!
//! In:  the logits of one side of a box, one a bin. Out: the expected bin, which is that side's distance from the anchor point
//! in strides; and the loss that pulls the distribution towards a target distance.
//!
//! Decoding for inference is f32 and vectorized; what the loss needs is f64. Never knows where the anchor point is.
//! Source: arXiv:2006.04388.

use super::silu::exp;

/// Largest number of bins a side; YOLOv9 has 16.
pub const MAX_BINS: usize = 32;

/// Targets are clamped this far below the last bin, so that the bin above a target always exists.
const TARGET_MARGIN: f64 = 0.01;

/// The mean of `softmax(logits)` over the bins 0, 1, 2, … To be called from a [`Kernel`](super::simd::Kernel).
#[inline(always)]
pub fn expected_bin<const FMA: bool>(logits: &[f32]) -> f32 {
    match logits.as_array::<16>() {
        Some(logits) => expected_bin_of_16::<FMA>(logits),
        None => expected_bin_of_any::<FMA>(logits),
    }
}

/// Fixed length: without it the loops over bins do not become vector instructions.
#[inline(always)]
fn expected_bin_of_16<const FMA: bool>(logits: &[f32; 16]) -> f32 {
    // Halves are folded onto each other; loops, not closures, for those are compiled without the kernel's instructions.
    let mut peaks = [0.0f32; 8];
    let (low, high) = logits.split_at(8);
    for ((peak, &low), &high) in peaks.iter_mut().zip(low).zip(high) {
        *peak = if low > high { low } else { high };
    }
    for half in [4, 2, 1] {
        for k in 0..half {
            peaks[k] = if peaks[k] > peaks[k + half] { peaks[k] } else { peaks[k + half] };
        }
    }
    let mut e = [0.0f32; 16];
    for (e, &logit) in e.iter_mut().zip(logits) {
        *e = exp::<FMA>(logit - peaks[0]);
    }
    let (mut total, mut weighted) = ([0.0f32; 8], [0.0f32; 8]);
    for k in 0..8 {
        total[k] = e[k] + e[k + 8];
        weighted[k] = k as f32 * e[k] + (k + 8) as f32 * e[k + 8];
    }
    for half in [4, 2, 1] {
        for k in 0..half {
            total[k] += total[k + half];
            weighted[k] += weighted[k + half];
        }
    }
    weighted[0] / total[0]
}

#[inline(always)]
fn expected_bin_of_any<const FMA: bool>(logits: &[f32]) -> f32 {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut total, mut weighted) = (0.0, 0.0);
    for (bin, &logit) in logits.iter().enumerate() {
        let e = exp::<FMA>(logit - peak);
        total += e;
        weighted += bin as f32 * e;
    }
    weighted / total
}

/// One side's distribution over the bins.
pub struct Distribution {
    /// Share of each bin; the rest is unused.
    pub share: [f64; MAX_BINS],
    /// `ln(sum(exp(logits)))`.
    pub log_total: f64,
    /// The expected bin.
    pub mean: f64,
}

impl Distribution {
    pub fn new(logits: &[f32]) -> Self {
        let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut share = [0.0; MAX_BINS];
        let mut total = 0.0;
        for (share, &logit) in share.iter_mut().zip(logits) {
            *share = f64::from(logit - peak).exp();
            total += *share;
        }
        let mut mean = 0.0;
        for (bin, share) in share.iter_mut().enumerate() {
            *share /= total;
            mean += bin as f64 * *share;
        }
        Self { share, log_total: f64::from(peak) + total.ln(), mean }
    }

    /// Gradient of the expected bin for the logit of `bin`.
    pub fn d_mean(&self, bin: usize) -> f64 {
        self.share[bin] * (bin as f64 - self.mean)
    }
}

/// The bins on both sides of a target distance, and the share of each.
pub struct Target {
    below: usize,
    share_below: f64,
    share_above: f64,
}

impl Target {
    /// `distance` in strides; it is clamped to what `n_bins` can express.
    pub fn new(distance: f64, n_bins: usize) -> Self {
        let distance = distance.clamp(0.0, (n_bins - 1) as f64 - TARGET_MARGIN);
        let below = distance as usize;
        let share_above = distance - below as f64;
        Self { below, share_below: 1.0 - share_above, share_above }
    }

    /// What the distribution of this side should have for `bin`.
    pub fn share(&self, bin: usize) -> f64 {
        if bin == self.below {
            self.share_below
        } else if bin == self.below + 1 {
            self.share_above
        } else {
            0.0
        }
    }
}

/// Cross entropy of one side's distribution against its target. Its gradient for a logit is `share[bin] - target.share(bin)`.
pub fn dfl_loss(logits: &[f32], distribution: &Distribution, target: &Target) -> f64 {
    let log_share = |bin: usize| f64::from(logits[bin]) - distribution.log_total;
    -(target.share_below * log_share(target.below) + target.share_above * log_share(target.below + 1))
}

#[cfg(test)]
mod tests {
    use super::{Distribution, Target, dfl_loss, expected_bin, expected_bin_of_any};
    use crate::engine::golden::{Golden, assert_close};

    #[test]
    fn a_flat_distribution_decodes_to_its_middle() {
        assert_eq!(expected_bin::<false>(&[3.0; 16]), 7.5);
        assert_eq!(expected_bin::<false>(&[-2.0; 8]), 3.5);
        assert!((Distribution::new(&[0.5; 16]).mean - 7.5).abs() < 1e-12);
    }

    #[test]
    fn a_sure_distribution_decodes_to_its_bin() {
        let mut logits = [-50.0; 16];
        logits[11] = 50.0;
        assert_eq!(expected_bin::<false>(&logits), 11.0);
    }

    #[test]
    fn sixteen_bins_decode_as_any_other_number() {
        let logits: Vec<f32> = (0..16).map(|k| ((k * 7919) % 23) as f32 * 0.4 - 3.0).collect();
        let (fast, plain, exact) = (expected_bin::<false>(&logits), expected_bin_of_any::<false>(&logits), Distribution::new(&logits).mean);
        assert!((fast - plain).abs() < 1e-5 && (f64::from(fast) - exact).abs() < 1e-5, "{fast} {plain} {exact}");
    }

    #[test]
    fn targets_split_between_two_bins_and_stay_below_the_last() {
        let target = Target::new(3.25, 16);
        assert_eq!((target.share(3), target.share(4), target.share(5)), (0.75, 0.25, 0.0));
        assert_eq!(Target::new(-2.0, 16).share(0), 1.0);
        assert!((Target::new(40.0, 16).share(15) - 0.99).abs() < 1e-12);
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        let logits: Vec<f32> = (0..16).map(|k| ((k * 31) % 7) as f32 * 0.5 - 1.0).collect();
        let target = Target::new(5.3, 16);
        let distribution = Distribution::new(&logits);
        for bin in 0..16 {
            let at = |step: f32| {
                let mut logits = logits.clone();
                logits[bin] += step;
                let distribution = Distribution::new(&logits);
                (dfl_loss(&logits, &distribution, &target), distribution.mean)
            };
            // A power of two, so that the logits in f32 move by exactly this.
            let step = 1.0 / 1024.0;
            let (up, down) = (at(step), at(-step));
            let (d_loss, d_mean) = ((up.0 - down.0) / (2.0 * f64::from(step)), (up.1 - down.1) / (2.0 * f64::from(step)));
            assert!((distribution.share[bin] - target.share(bin) - d_loss).abs() < 1e-6, "loss, bin {bin}");
            assert!((distribution.d_mean(bin) - d_mean).abs() < 1e-5, "mean, bin {bin}");
        }
    }

    #[test]
    fn loss_and_gradient_agree_with_the_reference() {
        let golden = Golden::open("dfl.safetensors");
        let (logits, targets) = (golden.f32s("pred_dist"), golden.f32s("target"));
        let (mut losses, mut gradients) = (vec![0.0; 12], vec![0.0; logits.len()]);
        for (side, logits) in logits.chunks_exact(16).enumerate() {
            let (distribution, target) = (Distribution::new(logits), Target::new(f64::from(targets[side]), 16));
            losses[side / 4] += (dfl_loss(logits, &distribution, &target) / 4.0) as f32;
            for bin in 0..16 {
                gradients[side * 16 + bin] = ((distribution.share[bin] - target.share(bin)) / 4.0) as f32;
            }
        }
        assert_close("loss", &losses, &golden.f32s("loss"), 5e-6, 0.0);
        assert_close("gradient", &gradients, &golden.f32s("grad_pred_dist"), 5e-6, 0.0);
    }

    #[test]
    fn distances_agree_with_the_reference() {
        let golden = Golden::open("dfl.safetensors");
        let logits = golden.f32s("decode_raw");
        let distances: Vec<f32> = logits.chunks_exact(16).map(expected_bin::<false>).collect();
        assert_close("distances", &distances, &golden.f32s("decode_dist"), 5e-6, 0.0);
    }
}
