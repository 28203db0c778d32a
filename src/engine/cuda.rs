//! The CUDA executor: NVIDIA devices, kernels, convolutions, and what runs a plan on them.
//!
//! Libraries are opened at run time, so the program starts where nothing of CUDA is installed. They are asked for before
//! any call, because cudarc panics on a missing library.

#[cfg(feature = "cuda")]
pub mod assigner;
#[cfg(feature = "cuda")]
pub mod bn_act;
#[cfg(feature = "cuda")]
pub mod cast;
#[cfg(feature = "cuda")]
pub mod conv;
#[cfg(feature = "cuda")]
pub mod conv3x3;
#[cfg(feature = "cuda")]
pub mod conv_stem;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "calls cuDNN")]
pub mod cudnn;
#[cfg(feature = "cuda")]
pub mod decode;
pub mod error;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "calls the driver")]
pub mod gpu;
#[cfg(feature = "cuda")]
pub mod inference;
pub mod inspect;
#[cfg(feature = "cuda")]
pub mod kernels;
#[cfg(feature = "cuda")]
pub mod levels;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "opens libraries and asks for their versions")]
pub mod library;
#[cfg(feature = "cuda")]
pub mod loss;
#[cfg(feature = "cuda")]
pub mod nearest;
#[cfg(feature = "cuda")]
pub mod nms;
#[cfg_attr(feature = "cuda", expect(unsafe_code, reason = "calls NVML"))]
pub mod nvml;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "calls the compiler")]
pub mod nvrtc;
#[cfg(feature = "cuda")]
pub mod optimizer;
#[cfg(feature = "cuda")]
pub mod pieces;
#[cfg(feature = "cuda")]
pub mod pool;
#[cfg(feature = "cuda")]
pub mod program;
#[cfg(feature = "cuda")]
pub mod runtime;
#[cfg(feature = "cuda")]
pub mod samples;
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "asks the driver for the card's clocks")]
mod selftest;
#[cfg(all(test, feature = "gpu-tests"))]
mod test_tensors;
#[cfg(all(test, feature = "gpu-tests"))]
pub(crate) mod testing;
#[cfg(feature = "cuda")]
pub mod tiling;
#[cfg(feature = "cuda")]
pub mod training;

/// Batches of bytes that a training holds on the GPU at once: two on their way in, one that is worked on.
pub const INPUT_COPIES: usize = 3;

/// Candidates of an image that suppression has room for, as in kernels/nms.cu.
const NMS_CANDIDATES: usize = 32_768;

/// Bytes that suppression needs on a GPU: candidates, of 8 bytes, and detections, of 6 numbers, of each image, and how many there are.
pub fn nms_bytes(batch: usize, max_detections: usize) -> usize {
    batch * (NMS_CANDIDATES * 8 + 4 + max_detections * 24 + 4)
}

/// Number format of activations and of what convolutions read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// From `sm_80` on.
    Bf16,
    /// With loss scaling; for cards before `sm_80`.
    F16,
    /// For comparisons with the CPU. No TF32.
    F32,
}

impl Precision {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// What training and detection take on a card of this compute capability (major * 10 + minor).
    pub fn default_for(sm: u32) -> Self {
        if sm >= 80 { Self::Bf16 } else { Self::F16 }
    }
}

/// Whether this program can use a GPU at all.
pub fn is_built() -> bool {
    cfg!(feature = "cuda")
}

/// Why no device can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaUnavailable {
    #[error("no NVIDIA driver was found (libcuda.so)")]
    NoDriver,
    #[error("the NVIDIA driver did not start: {0}")]
    Init(String),
    #[error("the NVIDIA driver lists no device")]
    NoDevice,
    #[error("this build was made without the `cuda` feature")]
    NotBuilt,
}

/// Names of the devices, in the driver's order.
///
/// # Errors
/// No driver, one that does not start, or no device.
#[cfg(feature = "cuda")]
pub fn device_names() -> Result<Vec<String>, CudaUnavailable> {
    use cudarc::driver::{result, sys};

    let init = |error: cudarc::driver::DriverError| CudaUnavailable::Init(error.to_string());
    // Wherever it lies: cudarc then finds it by its name.
    library::open(library::Library::Driver).ok();
    #[expect(unsafe_code, reason = "cudarc marks the test for the library as unsafe")]
    // SAFETY: only tries to open the driver's library, which runs no code of ours and has no precondition.
    let present = unsafe { sys::is_culib_present() };
    if !present {
        return Err(CudaUnavailable::NoDriver);
    }
    result::init().map_err(init)?;
    let n_devices = result::device::get_count().map_err(init)?;
    if n_devices == 0 {
        return Err(CudaUnavailable::NoDevice);
    }
    (0..n_devices).map(|ordinal| result::device::get_name(result::device::get(ordinal).map_err(init)?).map_err(init)).collect()
}

/// Without the feature there is never a device.
#[cfg(not(feature = "cuda"))]
pub fn device_names() -> Result<Vec<String>, CudaUnavailable> {
    Err(CudaUnavailable::NotBuilt)
}

/// Opens a device for training and detection, so that what is missing is known before anything is done.
///
/// # Errors
/// No driver, no such device, a missing library, or kernels that do not compile.
#[cfg(feature = "cuda")]
pub fn open(ordinal: usize) -> Result<(), error::CudaError> {
    runtime::Runtime::open_default(ordinal).map(drop)
}

/// Without the feature there is never a device.
#[cfg(not(feature = "cuda"))]
pub fn open(_: usize) -> Result<(), error::CudaError> {
    Err(CudaUnavailable::NotBuilt.into())
}
