//! Kernels compiled twice: for AVX2 with FMA, and for any CPU.
//!
//! In:  a [`Kernel`], that is a loop over slices written once in plain Rust.
//! Out: its result; on a CPU that has AVX2 and FMA, from the version that the compiler vectorized for them.
//!
//! How to use it: put what the loop needs into a struct, implement [`Kernel`] with `#[inline(always)]` on `run` and on every
//! function that `run` calls in its hot loop, and call [`dispatch`] **inside** a rayon closure, once for a block of work (a
//! call costs a load and a jump). Use [`mul_add`] for products that are added. Write loops over slices of equal length
//! (`a.iter().zip(b)`, `chunks_exact`, or arrays of 8 or 16), so that no bounds check stays in them. Put no hot loop into a
//! closure: it cannot be `#[inline(always)]`, and where the compiler does not inline it, it knows nothing of AVX2, and a
//! fused multiply-add in it becomes a call into libm (a hundred times slower).
//!
//! This is the only place of the CPU engine with `unsafe` for instructions. Never holds arithmetic of its own.

/// A computation that is worth compiling for the instructions at hand.
pub trait Kernel {
    type Output;

    /// Does the work. Must be `#[inline(always)]`, or it is compiled for the smallest CPU only.
    ///
    /// `FMA` says whether the CPU multiplies and adds in one instruction; hand it on to [`mul_add`].
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Runs the kernel with the best instructions of this CPU.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        #[expect(unsafe_code, reason = "the compiler cannot know which CPU the program will run on")]
        // SAFETY: the CPU has the two features that `run_avx2` is compiled for; nothing else is asked of the caller.
        return unsafe { run_avx2(kernel) };
    }
    // Every 64-bit ARM has fused multiply-add and 128-bit vectors without asking.
    #[cfg(target_arch = "aarch64")]
    return kernel.run::<true>();
    #[cfg(not(target_arch = "aarch64"))]
    kernel.run::<false>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

/// `a * b + c`, fused where that is one instruction (without it, `f32::mul_add` is a call into libm).
#[inline(always)]
pub fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

#[cfg(test)]
mod tests {
    use super::{Kernel, dispatch, mul_add};

    struct Axpy<'a> {
        a: f32,
        x: &'a [f32],
        y: &'a mut [f32],
    }

    impl Kernel for Axpy<'_> {
        type Output = usize;

        #[inline(always)]
        fn run<const FMA: bool>(self) -> usize {
            for (y, &x) in self.y.iter_mut().zip(self.x) {
                *y = mul_add::<FMA>(self.a, x, *y);
            }
            self.y.len()
        }
    }

    #[test]
    fn a_kernel_computes_the_same_whatever_it_was_compiled_for() {
        let x: Vec<f32> = (0..37).map(|i| i as f32).collect();
        let (mut dispatched, mut portable) = (vec![1.0; 37], vec![1.0; 37]);
        assert_eq!(dispatch(Axpy { a: 2.0, x: &x, y: &mut dispatched }), 37);
        Axpy { a: 2.0, x: &x, y: &mut portable }.run::<false>();
        assert_eq!(dispatched, portable); // small whole numbers: fused or not, no rounding
        assert_eq!(dispatched[36], 73.0);
    }
}
