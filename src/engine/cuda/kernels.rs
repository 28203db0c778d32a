//! All kernel files, compiled for one card and one compute type, and loaded.
//!
//! In:  the texts of `kernels/*.cu`, which are part of the program. Out: [`Function`]s by name.
//!
//! Compiling takes seconds, so machine code is kept in the user's cache folder, named by the hash of all that it depends
//! on. A damaged file there is compiled again, and a folder that cannot be written is no error.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::Precision;
use super::error::CudaError;
use super::gpu::{Function, Gpu, Module};
use super::nvrtc;
use super::nvrtc::{Compiled, Nvrtc, Target};

/// A file of `kernels/`.
#[derive(Clone, Copy, Debug)]
pub struct KernelFile {
    pub name: &'static str,
    pub text: &'static str,
    /// Only cards of this compute capability get it, compiled for `sm_NNa`; all cards where absent.
    pub only_sm: Option<u32>,
}

/// Every kernel file, a line each: `all("bn.cu", include_str!("../../../kernels/bn.cu")),`.
pub const FILES: &[KernelFile] = &[
    all("assigner.cu", include_str!("../../../kernels/assigner.cu")),
    all("bn_act.cu", include_str!("../../../kernels/bn_act.cu")),
    all("cast.cu", include_str!("../../../kernels/cast.cu")),
    all("conv.cu", include_str!("../../../kernels/conv.cu")),
    all("conv3x3.cu", include_str!("../../../kernels/conv3x3.cu")),
    all("conv_stem.cu", include_str!("../../../kernels/conv_stem.cu")),
    all("decode.cu", include_str!("../../../kernels/decode.cu")),
    all("loss.cu", include_str!("../../../kernels/loss.cu")),
    all("nearest.cu", include_str!("../../../kernels/nearest.cu")),
    all("nms.cu", include_str!("../../../kernels/nms.cu")),
    all("optimizer.cu", include_str!("../../../kernels/optimizer.cu")),
    all("pool.cu", include_str!("../../../kernels/pool.cu")),
    all("samples.cu", include_str!("../../../kernels/samples.cu")),
];

/// A file for all cards.
pub const fn all(name: &'static str, text: &'static str) -> KernelFile {
    KernelFile { name, text, only_sm: None }
}

/// A file with instructions that only this architecture has.
pub const fn only(sm: u32, name: &'static str, text: &'static str) -> KernelFile {
    KernelFile { name, text, only_sm: Some(sm) }
}

/// Loaded kernels. Functions are used only while it lives.
pub struct Kernels {
    gpu: Arc<Gpu>,
    precision: Precision,
    modules: Vec<Module>,
}

impl Kernels {
    /// Compiles what is not in the cache, with all threads, and loads everything.
    ///
    /// # Errors
    /// No NVRTC that fits the driver, or a file that does not compile.
    pub fn load(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        let nvrtc = Nvrtc::open()?;
        let cache = cache_dir("kernels");
        let files: Vec<_> = FILES.iter().filter(|file| file.is_for(gpu.sm)).collect();
        let codes: Vec<_> = files
            .par_iter()
            .map(|file| code_of(file, &nvrtc, file.target(gpu.sm, precision), cache.as_deref()))
            .collect::<Result<_, _>>()?;

        let modules = codes.iter().map(|code: &Vec<u8>| gpu.load_module(code)).collect::<Result<_, _>>()?;
        Ok(Self { gpu: Arc::clone(gpu), precision, modules })
    }

    /// A kernel by its name.
    ///
    /// # Panics
    /// If no file has it for this card and compute type: a mistake of ours.
    pub fn get(&self, name: &'static str) -> Function {
        let Some(function) = self.find(name) else { panic!("no kernel {name} for {:?} on sm_{}", self.precision, self.gpu.sm) };
        function
    }

    /// Whether this card has a kernel; for those that only some have.
    pub fn has(&self, name: &'static str) -> bool {
        self.find(name).is_some()
    }

    /// Asks the driver, which also knows the names that a macro made.
    fn find(&self, name: &'static str) -> Option<Function> {
        self.modules.iter().find_map(|module| module.function(name).ok())
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

impl KernelFile {
    /// Whether a card of this compute capability gets the file.
    pub fn is_for(&self, sm: u32) -> bool {
        self.only_sm.is_none_or(|only| only == sm)
    }

    /// What it is compiled for on such a card.
    pub fn target(&self, sm: u32, precision: Precision) -> Target {
        Target { sm, exact: self.only_sm.is_some(), precision, verbose: false }
    }
}

/// The machine code of a file, from the cache or the compiler.
fn code_of(file: &KernelFile, nvrtc: &Nvrtc, target: Target, cache: Option<&Path>) -> Result<Vec<u8>, CudaError> {
    let options = nvrtc.options(target)?.join(" ");
    let path = cache.map(|cache| cache.join(format!("{}.bin", key(file.text, &options, &nvrtc.found().version))));
    if let Some(code) = path.as_deref().and_then(read_cached) {
        return Ok(code);
    }
    let Compiled { code, .. } = nvrtc.compile(file.name, file.text, target)?;
    if let Some(path) = path {
        // Without the cache everything works, the next start only takes longer.
        write_cached(&path, &code).ok();
    }
    Ok(code)
}

/// The hash of all that machine code depends on; parts are told apart by their lengths.
fn key(text: &str, options: &str, version: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [text, nvrtc::COMMON, options, version] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// A folder below `BOXWRIGHT_HOME` if set, else in the platform's folder for what may be deleted at any time.
pub(super) fn cache_dir(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("BOXWRIGHT_HOME").map(|home| PathBuf::from(home).join("cache"));
    let dirs = || directories::ProjectDirs::from("", "", "boxwright").map(|dirs| dirs.cache_dir().to_path_buf());
    home.or_else(dirs).map(|dir| dir.join(name))
}

/// A cached file: the hash of the code, then the code. `None` when there is none, or not a whole one.
fn read_cached(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let (hash, code) = bytes.split_first_chunk::<{ blake3::OUT_LEN }>()?;
    if blake3::hash(code).as_bytes() != hash {
        return None;
    }
    bytes.drain(..blake3::OUT_LEN);
    Some(bytes)
}

/// Never leaves half a file under the name.
fn write_cached(path: &Path, code: &[u8]) -> std::io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(blake3::hash(code).as_bytes())?;
    file.write_all(code)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_in_the_table() {
        let folder = crate::engine::golden::repository().join("kernels");
        let mut there: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "cu"))
            .collect();
        let mut listed: Vec<_> = FILES.iter().map(|file| file.name.to_owned()).collect();
        there.sort();
        listed.sort();
        assert_eq!(listed, there);
    }

    #[test]
    fn the_cache_gives_back_whole_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/code.bin");
        assert_eq!(read_cached(&path), None);
        write_cached(&path, b"code").unwrap();
        assert_eq!(read_cached(&path).as_deref(), Some(b"code".as_slice()));
        assert_eq!(std::fs::read_dir(dir.path().join("below")).unwrap().count(), 1);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read_cached(&path), None);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(read_cached(&path), None);
        // A file where the folder should be.
        assert!(write_cached(&path.join("x.bin"), b"code").is_err());
    }

    #[test]
    fn the_key_changes_with_every_part() {
        let keys = [key("a", "b", "c"), key("ab", "", "c"), key("a", "bc", ""), key("a", "b", "d")];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
