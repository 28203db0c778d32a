//! A short test of a GPU: does it copy as fast as its memory allows.
//!
//! In:  an opened GPU. Out: rates beside what the card's clocks and widths allow at most.

use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};

use super::error::CudaError;
use super::gpu::Gpu;
use super::inspect::Rate;

/// Bytes of each of the two buffers that are copied; past what a cache holds.
const COPY_BYTES: usize = 512 << 20;

/// Repetitions in one measured stretch.
const REPEATS: usize = 20;

/// Runs every test.
pub(super) fn run(gpu: &Arc<Gpu>) -> Vec<(&'static str, Result<Rate, CudaError>)> {
    vec![("copy", copy(gpu))]
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
