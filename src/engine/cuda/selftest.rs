//! A short test of a GPU: does it copy as fast as its memory allows, and compute near its matrix units' rate.
//!
//! In:  an opened GPU. Out: rates beside what the card's clocks and widths allow at most.

use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};

use super::Precision;
use super::conv::{ConvCall, ConvPass, ConvPointers, Convolutions, Search};
use super::error::CudaError;
use super::gpu::Gpu;
use super::inspect::Rate;
use super::kernels::Kernels;
use super::library;
use super::library::Library;
use crate::engine::op::ConvSpec;

/// Bytes of each of the two buffers that are copied; past what a cache holds.
const COPY_BYTES: usize = 512 << 20;

/// Repetitions in one measured stretch.
const REPEATS: usize = 20;

/// A convolution that is large enough to be limited by arithmetic: 3x3 with 256 channels, 16 maps of 80x80.
const CONV: ConvCall = ConvCall {
    pass: ConvPass::Forward,
    spec: ConvSpec { kernel: 3, stride: 1, pad: 1, groups: 1, in_channels: 256, out_channels: 256 },
    n: 16,
    h: 80,
    w: 80,
};

/// Runs every test for which the libraries are there.
pub(super) fn run(gpu: &Arc<Gpu>) -> Vec<(&'static str, Result<Rate, CudaError>)> {
    let mut results = vec![("copy", copy(gpu))];
    if library::find(Library::Nvrtc).is_ok() && library::load_cudnn().is_ok() {
        results.push(("convolution", convolution(gpu)));
    }
    results
}

/// Copies inside the GPU's memory; each byte counts twice, read and written.
fn copy(gpu: &Arc<Gpu>) -> Result<Rate, CudaError> {
    let bytes = COPY_BYTES.min(gpu.free_bytes()? / 4) & !0xff;
    let [from, to] = [gpu.alloc(bytes)?, gpu.alloc(bytes)?];
    from.fill(1)?;
    let seconds = seconds_of_one(gpu, || gpu.copy(to.address, from.address, bytes))?;
    // Both edges of the clock carry data.
    let clock = attribute(gpu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).map(|khz| khz * 1e3);
    let width = attribute(gpu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).map(|bits| bits / 8.0);
    let peak = clock.zip(width).map(|(clock, width)| 2.0 * clock * width / 1e9);
    Ok(Rate { achieved: 2.0 * bytes as f64 / seconds / 1e9, peak, unit: "GB/s" })
}

/// A convolution by cuDNN's fastest plan, in the compute type that training takes on this card.
fn convolution(gpu: &Arc<Gpu>) -> Result<Rate, CudaError> {
    let precision = Precision::default_for(gpu.sm);
    let kernels = Kernels::load(gpu, precision)?;
    let mut convolutions = Convolutions::open(&kernels)?;
    let plan = {
        let memory = gpu.alloc(convolutions.timing_bytes(&CONV))?;
        convolutions.plan(&CONV, Search::Timed { address: memory.address, bytes: memory.bytes })?
    };
    let [n_x, n_w, n_y] = CONV.lens();
    let x = gpu.upload(&noise(n_x, precision))?;
    let w = gpu.upload(&noise(n_w, precision))?;
    let y = gpu.alloc(n_y * precision.bytes())?;
    let workspace = gpu.alloc(convolutions.workspace_bytes(plan))?;
    let pointers = ConvPointers { a: x.address, b: w.address, out: y.address, workspace: workspace.address, ..ConvPointers::default() };
    let bound = convolutions.bind(plan, pointers)?;
    let seconds = seconds_of_one(gpu, || convolutions.run(&bound))?;
    gpu.synchronize()?;
    convolutions.save();

    let n_pixels = CONV.n * CONV.spec.out_side(CONV.h) * CONV.spec.out_side(CONV.w);
    let flops = 2.0 * n_pixels as f64 * CONV.spec.macs_per_pixel() as f64;
    let clock = attribute(gpu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map(|khz| khz * 1e3);
    let peak = clock.zip(flops_per_clock(gpu)).map(|(clock, flops)| clock * flops * gpu.n_multiprocessors as f64 / 1e12);
    Ok(Rate { achieved: flops / seconds / 1e12, peak, unit: "TFLOP/s" })
}

/// What the matrix units of one multiprocessor do in a clock, for 16-bit inputs and f32 sums without sparsity.
fn flops_per_clock(gpu: &Gpu) -> Option<f64> {
    let full = match gpu.sm {
        75 | 86 | 89 | 120 => 1024.0,
        80 => 2048.0,
        90 => 4096.0,
        100 | 103 => 8192.0,
        _ => return None,
    };
    // Cards for games add in f32 at half the rate of those for work.
    Some(if gpu.name.contains("GeForce") { full / 2.0 } else { full })
}

/// Values of 0.5 to 1 of either sign, as bits: constant data would draw less power and so run faster.
fn noise(len: usize, precision: Precision) -> Vec<u16> {
    let (half, varied) = if precision == Precision::Bf16 { (0x3f00, 0x807f) } else { (0x3800, 0x83ff) };
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        half | (state >> 16) as u16 & varied
    };
    (0..len).map(|_| next()).collect()
}

/// The best of three stretches, after one for warming up.
fn seconds_of_one(gpu: &Arc<Gpu>, issue: impl Fn() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    let [start, end] = [gpu.event()?, gpu.event()?];
    let mut best = f64::INFINITY;
    for stretch in 0..4 {
        start.record()?;
        for _ in 0..REPEATS {
            issue()?;
        }
        end.record()?;
        end.wait()?;
        if stretch > 0 {
            best = best.min(f64::from(end.ms_since(&start)?) / 1e3 / REPEATS as f64);
        }
    }
    Ok(best)
}

/// A property of the card; `None` where the driver does not tell it.
fn attribute(gpu: &Gpu, attribute: CUdevice_attribute) -> Option<f64> {
    let (mut device, mut value) = (0, 0);
    // SAFETY: the driver is initialised, because the GPU is open; both pointers are to live variables.
    let result = unsafe {
        match sys::cuDeviceGet(&raw mut device, gpu.ordinal as i32) {
            CUresult::CUDA_SUCCESS => sys::cuDeviceGetAttribute(&raw mut value, attribute, device),
            failed => failed,
        }
    };
    (result == CUresult::CUDA_SUCCESS && value > 0).then_some(f64::from(value))
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    use super::super::testing::test_gpu;
    use super::*;

    #[test]
    fn every_test_of_the_gpu_gives_a_rate() {
        let gpu = test_gpu();
        let results = run(&gpu.gpu);
        assert_eq!(results.len(), 2, "{results:?}");
        for (name, result) in results {
            let rate = result.unwrap_or_else(|error| panic!("{name}: {error}"));
            // A wrong count of bytes or operations would pass the peak.
            assert!(rate.achieved > 0.0 && rate.peak.is_none_or(|peak| rate.achieved < peak), "{name}: {rate:?}");
        }
    }
}
