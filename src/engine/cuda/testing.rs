//! What tests on a GPU share: the GPU itself, values in the compute type, comparison.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use super::Precision;
use super::gpu::{DeviceBuffer, Gpu};
use super::kernels::Kernels;

/// All compute types.
pub(crate) const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::F16];

/// Tests share one stream, so one runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

static LOADED: LazyLock<(Arc<Gpu>, [Kernels; 3])> = LazyLock::new(|| {
    let gpu = Gpu::open(0).unwrap();
    let kernels = PRECISIONS.map(|precision| Kernels::load(&gpu, precision).unwrap());
    (gpu, kernels)
});

/// The GPU, for one test alone.
pub(crate) struct TestGpu {
    pub(crate) gpu: Arc<Gpu>,
    _turn: MutexGuard<'static, ()>,
}

/// Fails where there is no GPU: these tests were asked for.
pub(crate) fn test_gpu() -> TestGpu {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    TestGpu { gpu: Arc::clone(&LOADED.0), _turn: turn }
}

/// The kernels for one compute type.
pub(crate) fn test_kernels(precision: Precision) -> &'static Kernels {
    LOADED.1.iter().find(|kernels| kernels.precision() == precision).unwrap()
}

/// A small reproducible generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Uniform in 0 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f32) as usize).min(n - 1)
    }

    /// Uniform in `low..high`, rounded to what `precision` can hold.
    pub(crate) fn values(&mut self, n: usize, low: f32, high: f32, precision: Precision) -> Vec<f32> {
        (0..n).map(|_| rounded(low + (high - low) * self.unit(), precision)).collect()
    }
}

/// The nearest value that the compute type holds.
pub(crate) fn rounded(value: f32, precision: Precision) -> f32 {
    match precision {
        Precision::F32 => value,
        Precision::Bf16 => half::bf16::from_f32(value).to_f32(),
        Precision::F16 => half::f16::from_f32(value).to_f32(),
    }
}

impl TestGpu {
    /// Device memory with values in the compute type.
    pub(crate) fn upload(&self, values: &[f32], precision: Precision) -> DeviceBuffer {
        match precision {
            Precision::F32 => self.gpu.upload(values),
            Precision::Bf16 => self.gpu.upload(&values.iter().map(|&value| half::bf16::from_f32(value).to_bits()).collect::<Vec<u16>>()),
            Precision::F16 => self.gpu.upload(&values.iter().map(|&value| half::f16::from_f32(value).to_bits()).collect::<Vec<u16>>()),
        }
        .unwrap()
    }

    /// Device memory for `n` values of the compute type, all of them NaN.
    pub(crate) fn poisoned(&self, n: usize, precision: Precision) -> DeviceBuffer {
        let buffer = self.gpu.alloc(n * precision.bytes()).unwrap();
        buffer.fill(0xff).unwrap();
        buffer
    }

    /// `n` values in the compute type from the start of a buffer, when all work is done.
    #[expect(clippy::unused_self, reason = "a test holds its turn while it reads")]
    pub(crate) fn download(&self, buffer: &DeviceBuffer, n: usize, precision: Precision) -> Vec<f32> {
        let half = |to_f32: fn(u16) -> f32| buffer.read::<u16>(0, n).unwrap().into_iter().map(to_f32).collect();
        match precision {
            Precision::F32 => buffer.read(0, n).unwrap(),
            Precision::Bf16 => half(|bits| half::bf16::from_bits(bits).to_f32()),
            Precision::F16 => half(|bits| half::f16::from_bits(bits).to_f32()),
        }
    }
}

/// How far two values may be apart: `abs + rel * |expected|`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) abs: f32,
    pub(crate) rel: f32,
}

impl Tolerance {
    /// One rounding of the output to the compute type, for values of about 1, with sums in f32.
    pub(crate) fn rounding(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self { abs: 2e-6, rel: 2e-6 },
            Precision::F16 => Self { abs: 1e-6, rel: 1e-3 },
            Precision::Bf16 => Self { abs: 1e-6, rel: 8e-3 },
        }
    }
}

/// By how much a value is further off than it may be; infinite where only one of the two is a number.
fn excess(actual: f32, expected: f32, tolerance: Tolerance) -> f32 {
    if actual.is_nan() || expected.is_nan() {
        return if actual.is_nan() && expected.is_nan() { 0.0 } else { f32::INFINITY };
    }
    if actual == expected { 0.0 } else { (actual - expected).abs() - (tolerance.abs + tolerance.rel * expected.abs()) }
}

/// Panics with the worst index, both values and the error, where a value is not close or not a number.
pub(crate) fn assert_close(what: &str, actual: &[f32], expected: &[f32], tolerance: Tolerance) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    let excesses: Vec<f32> = actual.iter().zip(expected).map(|(&actual, &expected)| excess(actual, expected, tolerance)).collect();
    let n_wrong = excesses.iter().filter(|&&excess| excess > 0.0).count();
    let Some(worst) = (0..excesses.len()).max_by(|&a, &b| excesses[a].total_cmp(&excesses[b])) else { return };
    assert!(
        n_wrong == 0,
        "{what}: {n_wrong} of {} differ, worst at {worst}: {} but {} was expected (off by {})",
        actual.len(),
        actual[worst],
        expected[worst],
        (actual[worst] - expected[worst]).abs()
    );
}
