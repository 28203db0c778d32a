//! SiLU and the sigmoid in single precision, fast enough to sit at the end of a convolution.
//!
//! In:  one number; loops over slices of them vectorize, for there is no branch and no table.
//! Out: within a few units in the last place of the exact value; NaN stays NaN.
//!
//! To be called from a [`Kernel`](super::simd::Kernel), which knows `FMA`.

use super::simd::mul_add;

/// e^x, clamped to e^-87 .. e^88 (normal numbers); NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r is a polynomial of degree 6 (Chebyshev nodes, relative error 1e-8).
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    // Comparisons in this direction keep NaN, and each is one instruction.
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };

    // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum's low bits are the nearest whole number.
    const ROUND: f32 = 12_582_912.0;
    let rounded = mul_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    // ln 2 in two parts, the first with so few bits that its product with n is exact.
    let r = mul_add::<FMA>(n, -0.693_359_4, x);
    let r = mul_add::<FMA>(n, 2.121_944_4e-4, r);

    let p = mul_add::<FMA>(r, 0.001_392_621_3, 0.008_363_203);
    let p = mul_add::<FMA>(r, p, 0.041_666_556);
    let p = mul_add::<FMA>(r, p, 0.166_665_76);
    let p = mul_add::<FMA>(r, p, 0.5);
    let p = mul_add::<FMA>(r * r, p, r) + 1.0;
    p * f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3f80_0000))
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// x * sigmoid(x).
#[inline(always)]
pub fn silu<const FMA: bool>(x: f32) -> f32 {
    x / (1.0 + exp::<FMA>(-x))
}

/// The derivative of [`silu`]: s + x s (1 - s) with s = sigmoid(x).
#[inline(always)]
pub fn silu_derivative<const FMA: bool>(x: f32) -> f32 {
    let e = exp::<FMA>(-x);
    let s = 1.0 / (1.0 + e);
    mul_add::<FMA>(x * s, e * s, s) // 1 - s = e s, without the cancellation that x would enlarge
}

#[cfg(test)]
mod tests {
    use super::super::simd::{Kernel, dispatch};
    use super::{exp, sigmoid, silu, silu_derivative};

    /// exp, sigmoid, silu and its derivative of every value.
    struct Evaluate<'a>(&'a [f32]);

    impl Kernel for Evaluate<'_> {
        type Output = Vec<[f32; 4]>;

        #[inline(always)]
        fn run<const FMA: bool>(self) -> Self::Output {
            self.0.iter().map(|&x| [exp::<FMA>(x), sigmoid::<FMA>(x), silu::<FMA>(x), silu_derivative::<FMA>(x)]).collect()
        }
    }

    /// The largest relative errors against f64, in units of f32's epsilon. The derivative has a zero: its error is absolute.
    fn worst(xs: &[f32], values: &[[f32; 4]]) -> [f64; 4] {
        let mut worst = [0.0_f64; 4];
        for (&x, got) in xs.iter().zip(values) {
            let x = f64::from(x);
            let s = 1.0 / (1.0 + (-x).exp());
            let derivative = s + x * s * (1.0 - s);
            for ((worst, &got), (want, scale)) in
                worst.iter_mut().zip(got).zip([(x.exp(), x.exp()), (s, s), (x * s, (x * s).abs().max(1e-30)), (derivative, 1.0)])
            {
                *worst = worst.max((f64::from(got) - want).abs() / scale / f64::from(f32::EPSILON));
            }
        }
        worst
    }

    #[test]
    fn all_are_within_two_and_a_half_units_of_the_exact_value() {
        let xs: Vec<f32> = (-860_000..=860_000).map(|i| i as f32 * 1e-4).collect();
        for values in [dispatch(Evaluate(&xs)), Evaluate(&xs).run::<false>()] {
            let worst = worst(&xs, &values);
            assert!(worst.iter().all(|&error| error < 2.5), "{worst:?}");
        }
    }

    #[test]
    fn the_far_ends_saturate_and_nan_is_kept() {
        let values = dispatch(Evaluate(&[200.0, -200.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0]));
        assert_eq!(values[0][1..], [1.0, 200.0, 1.0]);
        assert!(values[1][1..].iter().all(|value| value.abs() < 1e-35));
        assert_eq!(values[2][1..3], [1.0, f32::INFINITY]);
        assert!(values[3][1].abs() < 1e-35);
        assert!(values[4].iter().all(|value| value.is_nan()));
        assert_eq!(values[5], [1.0, 0.5, 0.0, 0.5]);
    }
}
