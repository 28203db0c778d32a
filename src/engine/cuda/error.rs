//! What can go wrong on a GPU, and what a person can do about it.

use std::path::PathBuf;

use super::CudaUnavailable;

/// A failed call of the driver, NVRTC or cuDNN.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    #[error(transparent)]
    Unavailable(#[from] CudaUnavailable),
    #[error("there is no GPU {ordinal}, the driver lists {n_devices}")]
    NoSuchDevice { ordinal: usize, n_devices: usize },
    #[error("the GPU has no room for {bytes} more bytes: {free} of {total} are free")]
    OutOfMemory { bytes: usize, free: usize, total: usize },
    #[error("the CUDA driver failed in {call}: {message}")]
    Driver { call: &'static str, message: String },
    #[error("{library} was not found")]
    MissingLibrary { library: &'static str },
    #[error("{library} cannot be used: {reason}\nFile: {path:?}")]
    BrokenLibrary { library: &'static str, path: PathBuf, reason: String },
    #[error("{library} {version} cannot be used: {reason}")]
    UnusableLibrary { library: &'static str, version: String, reason: String },
    #[error("kernels/{file} does not compile for sm_{sm}:\n{log}")]
    Compile { file: &'static str, sm: u32, log: String },
    #[error("cuDNN failed in {call}: {message}")]
    Cudnn { call: &'static str, message: String },
    #[error("cuDNN has no plan for {what}")]
    NoPlan { what: String },
}

impl CudaError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unavailable(_) | Self::MissingLibrary { .. } | Self::BrokenLibrary { .. } | Self::UnusableLibrary { .. } => {
                Some("`boxwright doctor` says what is missing and how to get it; `--device cpu` runs without a GPU")
            }
            Self::NoSuchDevice { .. } => Some("`boxwright doctor` lists the GPUs"),
            Self::OutOfMemory { .. } => {
                Some("take a smaller --batch or --imgsz, or `--batch auto`; `nvidia-smi` shows what else uses the GPU")
            }
            Self::Driver { .. } => Some("look into the kernel's log (`dmesg`) for lines with NVRM, and whether `nvidia-smi` still answers"),
            Self::Compile { .. } | Self::Cudnn { .. } | Self::NoPlan { .. } => {
                Some("please report this with the output of `boxwright doctor`")
            }
        }
    }
}
