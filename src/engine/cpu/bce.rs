//! Binary cross entropy of class logits: first as if everything were background, then corrected where it is not.
//!
//! In:  logits. Out: the sum of the losses in f64, and gradients.
//!
//! Nearly every target is zero, so the loop over all logits knows no targets at all; the few positives add what differs.
//! `softplus(x) = max(x, 0) + ln(1 + e^-|x|)`, and a sum of logarithms is the logarithm of a product: each factor is at most 2,
//! so a product of hundreds of them fits an f64, and one `ln` serves them all.
//!
//! Never decides what is a positive: the assigner does.

use super::silu::exp;
use super::simd::{Kernel, dispatch};

/// Logits that are treated at once: the width of the vectors.
const LANES: usize = 16;
/// Logits before a lane's product is turned into a logarithm; 2^512 is far from the largest f64.
const BLOCK: usize = 512 * LANES;

/// Sum of the loss of `logits` with all targets zero; writes `scale` times its gradient.
pub fn background_loss(logits: &[f32], scale: f32, gradients: &mut [f32]) -> f64 {
    assert_eq!(logits.len(), gradients.len());
    dispatch(Background { logits, scale, gradients })
}

struct Background<'a> {
    logits: &'a [f32],
    scale: f32,
    gradients: &'a mut [f32],
}

impl Kernel for Background<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        let Self { logits, scale, gradients } = self;
        let mut loss = 0.0;
        for (logits, gradients) in logits.chunks(BLOCK).zip(gradients.chunks_mut(BLOCK)) {
            let mut positive_part = [0.0f64; LANES];
            let mut product = [1.0f64; LANES];
            let (whole, rest) = logits.as_chunks::<LANES>();
            let (whole_gradients, rest_gradients) = gradients.as_chunks_mut::<LANES>();
            for (logits, gradients) in whole.iter().zip(whole_gradients) {
                let mut e = [0.0f32; LANES];
                for ((e, &logit), gradient) in e.iter_mut().zip(logits).zip(gradients) {
                    *e = exp::<FMA>(-logit.abs());
                    *gradient = scale * (if logit >= 0.0 { 1.0 } else { *e } / (1.0 + *e));
                }
                for k in 0..LANES {
                    positive_part[k] += f64::from(logits[k].max(0.0));
                    product[k] *= 1.0 + f64::from(e[k]);
                }
            }
            for (k, (&logit, gradient)) in rest.iter().zip(rest_gradients).enumerate() {
                let e = exp::<FMA>(-logit.abs());
                *gradient = scale * (if logit >= 0.0 { 1.0 } else { e } / (1.0 + e));
                positive_part[k] += f64::from(logit.max(0.0));
                product[k] *= 1.0 + f64::from(e);
            }
            for (positive_part, product) in positive_part.iter().zip(&product) {
                loss += positive_part + product.ln();
            }
        }
        loss
    }
}

/// What a logit with this target adds to the loss and to its gradient over a background logit.
///
/// `positive_weight` multiplies the part of the loss that wants the score up.
pub fn positive_correction(logit: f32, target: f32, positive_weight: f32) -> (f64, f64) {
    let (logit, target, weight) = (f64::from(logit), f64::from(target), f64::from(positive_weight));
    let e = (-logit.abs()).exp();
    let softplus = logit.max(0.0) + e.ln_1p();
    let score = if logit >= 0.0 { 1.0 } else { e } / (1.0 + e);
    (target * (weight * (softplus - logit) - softplus), target * (weight * (score - 1.0) - score))
}

#[cfg(test)]
mod tests {
    use super::{background_loss, positive_correction};
    use crate::engine::golden::{Golden, assert_close};

    #[test]
    fn an_undecided_logit_costs_ln_2_and_pulls_by_one_half() {
        let mut gradient = [0.0];
        let loss = background_loss(&[0.0], 1.0, &mut gradient);
        assert!((loss - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(gradient, [0.5]);
        let (loss_change, gradient_change) = positive_correction(0.0, 1.0, 1.0);
        assert!(loss_change.abs() < 1e-12);
        assert!((gradient_change + 1.0).abs() < 1e-12);
    }

    #[test]
    fn any_number_of_logits_gives_the_sum_of_each() {
        let logits: Vec<f32> = (0..20_000).map(|i| ((i * 7919) % 4001) as f32 * 0.01 - 20.0).collect();
        for n in [0, 1, 15, 16, 17, 8192, 8193, 20_000] {
            let mut gradients = vec![f32::NAN; n];
            let loss = background_loss(&logits[..n], 2.0, &mut gradients);
            let exact: f64 = logits[..n].iter().map(|&x| f64::from(x).max(0.0) + (-f64::from(x).abs()).exp().ln_1p()).sum();
            assert!((loss - exact).abs() <= 1e-6 * exact, "{n}: {loss} but {exact}");
            let sigmoids: Vec<f32> = logits[..n].iter().map(|&x| (2.0 / (1.0 + (-f64::from(x)).exp())) as f32).collect();
            assert_close("gradients", &gradients, &sigmoids, 1e-7, 1e-6);
        }
    }

    #[test]
    fn a_positive_weight_multiplies_only_the_positive_part() {
        // loss = 3 * y * softplus(-x) + (1 - y) * softplus(x), y = 0.25, x = 0: ln 2 * (0.75 + 0.75).
        let (loss_change, _) = positive_correction(0.0, 0.25, 3.0);
        assert!((loss_change + std::f64::consts::LN_2 - 1.5 * std::f64::consts::LN_2).abs() < 1e-12);
    }

    #[test]
    fn loss_and_gradient_agree_with_the_reference() {
        let golden = Golden::open("bce.safetensors");
        let (logits, targets) = (golden.f32s("logits"), golden.f32s("targets"));
        let mut gradients = vec![0.0; logits.len()];
        let mut sum = background_loss(&logits, 1.0, &mut gradients);
        let mut losses = Vec::new();
        for (i, (&logit, &target)) in logits.iter().zip(&targets).enumerate() {
            let (loss, gradient) = positive_correction(logit, target, 1.0);
            sum += loss;
            gradients[i] += gradient as f32;
            losses.push((background_loss(&[logit], 1.0, &mut [0.0]) + loss) as f32);
        }
        assert_close("loss", &losses, &golden.f32s("loss"), 1e-5, 0.0);
        assert_close("gradient", &gradients, &golden.f32s("grad_logits"), 1e-5, 0.0);
        assert!((sum - 748.324086769).abs() < 1e-4, "{sum}");
    }
}
