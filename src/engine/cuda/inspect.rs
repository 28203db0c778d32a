//! What of CUDA this machine has: GPUs with what they can do and do, libraries with version and file.
//!
//! In:  nothing. Out: plain data, also from builds without the `cuda` feature. Used by `boxwright doctor` alone.

use std::path::PathBuf;

use super::CudaUnavailable;

/// A GPU and how it did in the test.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuReport {
    /// By NVIDIA's index.
    pub index: usize,
    pub name: String,
    /// Major and minor number.
    pub compute_capability: [u32; 2],
    pub n_multiprocessors: usize,
    pub total_bytes: usize,
    pub free_bytes: usize,
    /// Of the driver: `13.0`.
    pub cuda_version: String,
    /// What was measured, or why not.
    pub tests: Vec<(&'static str, Result<Rate, String>)>,
}

/// How fast something went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub achieved: f64,
    /// What the card's clocks allow at most, where they are known.
    pub peak: Option<f64>,
    /// `GB/s` or `TFLOP/s`.
    pub unit: &'static str,
}

impl Rate {
    /// Less than a good card and driver reach; something else may be using the GPU.
    pub fn is_low(&self) -> bool {
        self.peak.is_some_and(|peak| self.achieved < peak * LOW_SHARE)
    }
}

/// Copies reach 80 to 92 % of the peak, convolutions 50 to 80 %.
const LOW_SHARE: f64 = 0.4;

/// A library: what it is for, and where it is or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryReport {
    pub name: &'static str,
    pub purpose: &'static str,
    /// Without it no GPU is used.
    pub is_needed: bool,
    /// Packages for pip, of CUDA 12 and 13; what comes with the driver has none.
    pub package: Option<[&'static str; 2]>,
    pub outcome: Result<FoundAt, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAt {
    pub version: String,
    pub path: PathBuf,
}

impl LibraryReport {
    /// The package that brings it for a driver of this CUDA, quoted for a shell; a newer driver runs what is made for 13.
    pub fn package_for(&self, cuda_major: u32) -> Option<&'static str> {
        self.package.map(|[cuda12, newer]| if cuda_major == 12 { cuda12 } else { newer })
    }
}

/// An environment of Python in the person's data folder, in which libraries are looked for without a setting.
pub fn own_environment() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "boxwright").map(|dirs| dirs.data_local_dir().join("cuda"))
}

/// Every library that the program can use.
#[cfg(feature = "cuda")]
pub fn libraries() -> Vec<LibraryReport> {
    use super::library;
    use super::library::Library;

    let report = |library: Library| {
        let (purpose, is_needed, package) = match library {
            Library::Driver => ("runs everything", true, None),
            Library::Nvml => ("tells temperature and clocks", false, None),
            Library::Nvrtc => ("compiles kernels", true, Some(["nvidia-cuda-nvrtc-cu12", "'nvidia-cuda-nvrtc==13.*'"])),
            Library::Cudnn => ("convolutions", true, Some(["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"])),
            Library::CublasLt => ("some of cuDNN's plans", false, Some(["nvidia-cublas-cu12", "'nvidia-cublas==13.*'"])),
            Library::Nvjpeg => ("decodes pictures", false, Some(["nvidia-nvjpeg-cu12", "'nvidia-nvjpeg==13.*'"])),
            Library::Nccl => ("several GPUs at once", false, Some(["nvidia-nccl-cu12", "nvidia-nccl-cu13"])),
        };
        let found = if library == Library::Cudnn { library::load_cudnn() } else { library::find(library) };
        let outcome = match found {
            Ok(found) => Ok(FoundAt { version: found.version, path: found.path }),
            Err(super::error::CudaError::MissingLibrary { .. }) => Err("not found".to_owned()),
            Err(error) => Err(error.to_string().replace('\n', ", ")),
        };
        LibraryReport { name: library.title(), purpose, is_needed, package, outcome }
    };
    Library::ALL.into_iter().map(report).collect()
}

/// Without the feature none is looked for.
#[cfg(not(feature = "cuda"))]
pub fn libraries() -> Vec<LibraryReport> {
    Vec::new()
}

/// Every GPU; each is opened and measured for less than a second.
#[cfg(feature = "cuda")]
pub fn gpus() -> Result<Vec<Result<GpuReport, String>>, CudaUnavailable> {
    use super::gpu::Gpu;
    use super::selftest;

    let inspect = |index: usize| {
        let gpu = Gpu::open(index).map_err(|error| error.to_string())?;
        Ok(GpuReport {
            index,
            name: gpu.name.clone(),
            compute_capability: [gpu.sm / 10, gpu.sm % 10],
            n_multiprocessors: gpu.n_multiprocessors,
            total_bytes: gpu.total_bytes,
            free_bytes: gpu.free_bytes().map_err(|error| error.to_string())?,
            cuda_version: format!("{}.{}", gpu.driver_version / 1000, gpu.driver_version % 1000 / 10),
            tests: selftest::run(&gpu).into_iter().map(|(name, result)| (name, result.map_err(|error| error.to_string()))).collect(),
        })
    };
    Ok((0..super::device_names()?.len()).map(inspect).collect())
}

/// Without the feature there is never a GPU.
#[cfg(not(feature = "cuda"))]
pub fn gpus() -> Result<Vec<Result<GpuReport, String>>, CudaUnavailable> {
    Err(CudaUnavailable::NotBuilt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_low_only_against_a_known_peak() {
        let rate = Rate { achieved: 100.0, peak: Some(1000.0), unit: "GB/s" };
        assert!(rate.is_low());
        assert!(!Rate { achieved: 900.0, ..rate }.is_low());
        assert!(!Rate { peak: None, ..rate }.is_low());
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn every_library_is_found_or_has_a_reason() {
        let libraries = libraries();
        assert_eq!(libraries.len(), 7);
        for library in &libraries {
            match &library.outcome {
                Ok(found) => assert!(found.path.is_absolute() && !found.version.is_empty(), "{library:?}"),
                Err(reason) => assert!(!reason.is_empty(), "{library:?}"),
            }
        }
    }
}
