//! The exponential function and the sigmoid in f32, written so that loops over them become vector instructions.
//!
//! In:  one f32. Out: `exp` or the logistic function of it, within 2 units in the last place of the true value.
//!
//! The same operations in the same order on every CPU (no fused multiply-add), so results do not depend on the machine.
//! Never calls libm, which would end vectorization. Source: range reduction by ln 2 and the minimax polynomial of Cephes `expf`.

/// `e^x` for x in -87.3 to 88; outside it gives the value at that end (1.2e-38 or 1.7e38). NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Adding this rounds to a whole number, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
    /// ln 2 in two parts; the first has so few bits that its product with a whole number is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    let x = x.clamp(-87.3, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let r = x - power * LN2_HIGH - power * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let mantissa = p * (r * r) + r + 1.0;
    // Bits of 2^power: the whole number in the low bits of `shifted` moves into the exponent.
    let scale = f32::from_bits((shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127)) << 23);
    mantissa * scale
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::{exp, sigmoid};

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in -87_300..88_000 {
            let x = i as f32 / 1000.0;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON) / 2.0, "relative error {worst:e}");
    }

    #[test]
    fn exp_saturates_outside_its_range_and_keeps_nan() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1000.0) < 1.3e-38);
        assert!(exp(1000.0).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn the_sigmoid_of_zero_is_one_half() {
        assert_eq!(sigmoid(0.0), 0.5);
        assert!((f64::from(sigmoid(-3.0)) - 0.047_425_873_177_566_78).abs() < 1e-8);
        assert_eq!(sigmoid(100.0), 1.0);
    }
}
