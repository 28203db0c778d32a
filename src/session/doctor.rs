//! `boxwright doctor`: what this machine offers, what is missing, and the commands that bring it.
//!
//! In:  nothing. Out: a report that both front ends show. Nothing that is missing is an error: the CPU always works.

use serde_json::{Value, json};

use crate::engine::cuda;
use crate::engine::cuda::CudaUnavailable;
use crate::engine::cuda::inspect;
use crate::engine::cuda::inspect::{GpuReport, LibraryReport, Rate};

/// The machine as the program sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DoctorReport {
    pub version: &'static str,
    pub cpu: String,
    pub n_threads: usize,
    /// Every GPU, or why it cannot be opened; or why there is none.
    pub gpus: Result<Vec<Result<GpuReport, String>>, CudaUnavailable>,
    pub libraries: Vec<LibraryReport>,
    /// What to do, in order; a text with a line each for commands.
    pub advice: Vec<Advice>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    pub what: String,
    /// Commands for a shell.
    pub commands: Vec<String>,
}

/// Looks at everything; takes about a second for each GPU.
pub fn examine() -> DoctorReport {
    let libraries = inspect::libraries();
    let gpus = inspect::gpus();
    let advice = advice(&gpus, &libraries);
    DoctorReport { version: env!("CARGO_PKG_VERSION"), cpu: cpu_name(), n_threads: rayon::current_num_threads(), gpus, libraries, advice }
}

/// What the person can do about what is missing.
fn advice(gpus: &Result<Vec<Result<GpuReport, String>>, CudaUnavailable>, libraries: &[LibraryReport]) -> Vec<Advice> {
    let mut all = Vec::new();
    let mut add = |what: &str, commands: Vec<String>| all.push(Advice { what: what.to_owned(), commands });
    match gpus {
        Err(CudaUnavailable::NotBuilt) => {
            add("build with CUDA; nothing of it need be installed for that", vec!["cargo build --release".to_owned()]);
            return all;
        }
        Err(CudaUnavailable::NoDriver) => add(
            "with an NVIDIA GPU in this machine: install the driver of your distribution (CUDA 12.0 or newer), then restart",
            vec![
                "sudo apt install nvidia-driver     # Debian, with non-free-firmware".to_owned(),
                "sudo ubuntu-drivers install         # Ubuntu".to_owned(),
            ],
        ),
        Err(CudaUnavailable::Init(_) | CudaUnavailable::NoDevice) => {
            add(
                "the driver is there and does not work: look what it says",
                vec!["nvidia-smi".to_owned(), "sudo dmesg | grep -i nvrm".to_owned()],
            );
        }
        Ok(_) => {}
    }
    let driver =
        libraries.iter().find_map(|library| library.outcome.as_ref().ok().filter(|_| library.package.is_none() && library.is_needed));
    let cuda_major = driver.and_then(|driver| driver.version.split('.').next()?.parse().ok()).unwrap_or(13);
    if cuda_major < 12 {
        add("the driver is older than CUDA 12.0: update it", Vec::new());
    }
    let missing = |needed: bool| -> Vec<_> {
        let missing = libraries.iter().filter(|library| library.is_needed == needed && library.outcome.is_err());
        missing.filter_map(|library| library.package_for(cuda_major)).collect()
    };
    let needed = missing(true);
    if !needed.is_empty() {
        // Quoted: the folder of a person may have a space in its name.
        let folder = inspect::own_environment().map_or_else(|| "cuda".to_owned(), |folder| format!("\"{}\"", folder.display()));
        let commands = vec![format!("python3 -m venv {folder}"), format!("{folder}/bin/pip install {}", needed.join(" "))];
        add("for the GPU: install what is missing where Boxwright looks for it", commands);
    }
    all
}

/// As Linux tells it.
fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

impl DoctorReport {
    /// Whether a GPU and all that it needs are there.
    pub fn has_usable_gpu(&self) -> bool {
        self.gpus.as_ref().is_ok_and(|gpus| gpus.iter().any(Result::is_ok))
            && self.libraries.iter().all(|library| library.outcome.is_ok() || !library.is_needed)
    }

    pub fn to_json(&self) -> Value {
        let gpu = |gpu: &Result<GpuReport, String>| match gpu {
            Err(reason) => json!({"error": reason}),
            Ok(gpu) => json!({
                "index": gpu.index, "name": gpu.name,
                "compute_capability": format!("{}.{}", gpu.compute_capability[0], gpu.compute_capability[1]),
                "multiprocessors": gpu.n_multiprocessors, "total_bytes": gpu.total_bytes, "free_bytes": gpu.free_bytes,
                "driver_cuda": gpu.cuda_version, "tests": gpu.tests.iter().map(test_json).collect::<Vec<_>>(),
            }),
        };
        let library = |library: &LibraryReport| {
            let found = library.outcome.as_ref().ok();
            json!({
                "name": library.name, "purpose": library.purpose, "needed": library.is_needed,
                "version": found.map(|found| &found.version), "path": found.map(|found| &found.path), "missing": library.outcome.as_ref().err(),
            })
        };
        let advice = |advice: &Advice| json!({"what": advice.what, "commands": advice.commands});
        json!({
            "version": self.version, "cuda_built": cuda::is_built(), "cpu": self.cpu, "threads": self.n_threads,
            "gpus": self.gpus.iter().flatten().map(gpu).collect::<Vec<_>>(), "no_gpu": self.gpus.as_ref().err().map(ToString::to_string),
            "libraries": self.libraries.iter().map(library).collect::<Vec<_>>(), "usable_gpu": self.has_usable_gpu(),
            "advice": self.advice.iter().map(advice).collect::<Vec<_>>(),
        })
    }
}

fn test_json((name, result): &(&'static str, Result<Rate, String>)) -> Value {
    match result {
        Ok(rate) => json!({"test": name, "achieved": rate.achieved, "peak": rate.peak, "unit": rate.unit, "low": rate.is_low()}),
        Err(reason) => json!({"test": name, "error": reason}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::inspect::FoundAt;

    fn library(name: &'static str, package: Option<[&'static str; 2]>, version: Option<&str>) -> LibraryReport {
        let found = version.map(|version| FoundAt { version: version.to_owned(), path: "/lib".into() });
        LibraryReport { name, purpose: "", is_needed: true, package, outcome: found.ok_or_else(|| "not found".to_owned()) }
    }

    fn commands(all: &[Advice]) -> String {
        all.iter().flat_map(|advice| advice.commands.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn packages_fit_the_driver() {
        let cudnn = |version| library("cuDNN", Some(["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"]), version);
        let old = advice(&Ok(Vec::new()), &[library("driver", None, Some("12.4")), cudnn(None)]);
        assert!(commands(&old).contains("pip install nvidia-cudnn-cu12"), "{old:?}");
        let new = advice(&Ok(Vec::new()), &[library("driver", None, Some("13.0")), cudnn(None)]);
        assert!(commands(&new).contains("pip install nvidia-cudnn-cu13"), "{new:?}");
        assert!(advice(&Ok(Vec::new()), &[library("driver", None, Some("13.0")), cudnn(Some("9.14.0"))]).is_empty());
    }

    #[test]
    fn a_missing_driver_comes_first() {
        let cudnn = library("cuDNN", Some(["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"]), None);
        let all = advice(&Err(CudaUnavailable::NoDriver), &[library("driver", None, None), cudnn]);
        assert!(commands(&all[..1]).contains("nvidia-driver"), "{all:?}");
        assert!(commands(&all[1..]).contains("nvidia-cudnn-cu13"), "{all:?}");
    }

    #[test]
    fn this_machine_has_a_report() {
        let report = examine();
        assert!(report.n_threads > 0 && !report.cpu.is_empty());
        assert_eq!(report.to_json()["usable_gpu"], report.has_usable_gpu());
    }
}
