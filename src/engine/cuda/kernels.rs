//! All kernel files, compiled for one card and one compute type, and loaded.
//!
//! In:  the texts of `kernels/*.cu`, which are part of the program. Out: [`Function`]s by name.
//!
//! Compiling takes seconds, so machine code is kept in the user's cache folder, named by the hash of all that it depends
//! on. A damaged file there is compiled again, and a folder that cannot be written is no error.

use std::collections::HashMap;
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
    all("decode.cu", include_str!("../../../kernels/decode.cu")),
    all("loss.cu", include_str!("../../../kernels/loss.cu")),
    all("nearest.cu", include_str!("../../../kernels/nearest.cu")),
    all("nms.cu", include_str!("../../../kernels/nms.cu")),
    all("optimizer.cu", include_str!("../../../kernels/optimizer.cu")),
    all("pool.cu", include_str!("../../../kernels/pool.cu")),
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
    functions: HashMap<&'static str, Function>,
    _modules: Vec<Module>,
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

        let mut functions = HashMap::new();
        let mut modules = Vec::with_capacity(files.len());
        for (file, code) in files.into_iter().zip(codes) {
            let module = gpu.load_module(&code)?;
            for name in kernel_names(file.text).into_iter().filter(|name| contains_name(&code, name)) {
                let earlier = functions.insert(name, module.function(name)?);
                assert!(earlier.is_none(), "kernels/{}: {name} is in another file, too", file.name);
            }
            modules.push(module);
        }
        Ok(Self { gpu: Arc::clone(gpu), precision, functions, _modules: modules })
    }

    /// A kernel by its name.
    ///
    /// # Panics
    /// If no file has it for this card and compute type: a mistake of ours.
    pub fn get(&self, name: &'static str) -> Function {
        let Some(function) = self.functions.get(name) else { panic!("no kernel {name} for {:?} on sm_{}", self.precision, self.gpu.sm) };
        *function
    }

    /// Whether this card has a kernel; for those that only some have.
    pub fn has(&self, name: &str) -> bool {
        self.functions.contains_key(name)
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

/// Names of the kernels that a text defines: what follows `__global__`, `void` and bounds on launches. Those that a macro
/// defines are not seen.
pub fn kernel_names(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = Vec::new();
    let mut in_macro = false;
    for (start, line) in lines_with_starts(text) {
        let is_macro = in_macro || line.trim_start().starts_with('#');
        in_macro = is_macro && line.trim_end().ends_with('\\');
        let code = line.split("//").next().unwrap_or_default();
        let Some(found) = code.find("__global__").filter(|_| !is_macro && code.contains("extern \"C\"")) else { continue };
        let mut rest = text[start + found + "__global__".len()..].trim_start();
        loop {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            match word {
                "void" => rest = after.trim_start(),
                "__launch_bounds__" => rest = after_parentheses(after).trim_start(),
                _ => {
                    names.extend(Some(word).filter(|word| !word.is_empty()));
                    break;
                }
            }
        }
    }
    names
}

fn lines_with_starts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |start, line| {
        let this = *start;
        *start += line.len();
        Some((this, line))
    })
}

/// The text behind the parentheses that it begins with.
fn after_parentheses(text: &str) -> &str {
    let mut depth = 0;
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return &text[index + 1..],
            ')' => depth -= 1,
            _ => {}
        }
    }
    ""
}

/// Whether machine code or PTX names a kernel; an `#if` may have left it out for this compute type or card.
fn contains_name(code: &[u8], name: &str) -> bool {
    let is_name = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_whole = |start: usize| !is_name(code.get(start.wrapping_sub(1))) && !is_name(code.get(start + name.len()));
    code.windows(name.len()).enumerate().any(|(start, window)| window == name.as_bytes() && is_whole(start))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_are_found_however_the_kernel_is_written() {
        let text = r#"
            // extern "C" __global__ void in_a_comment(int n)
            #define KERNEL(name) \
                extern "C" __global__ void name(int n)
            extern "C" __global__ void plain(const float* x, int n) {}
            extern "C" __global__ void __launch_bounds__(MAX(256, 128), 2) bounded(T* y) {}
            extern "C" __global__ __launch_bounds__(256)
            void on_two_lines_2(
                T* y) {}
            __global__ void mangled(int n) {}
            static __device__ float helper(float x) { return x; }
        "#;
        assert_eq!(kernel_names(text), ["plain", "bounded", "on_two_lines_2"]);
        assert!(kernel_names("").is_empty());
        assert!(kernel_names("extern \"C\" __global__").is_empty());
    }

    #[test]
    fn names_in_files_are_unique() {
        let mut names: Vec<_> = FILES.iter().flat_map(|file| kernel_names(file.text)).collect();
        let n_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names);
    }

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
    fn a_name_counts_only_as_a_whole() {
        assert!(contains_name(b"\0bn\0", "bn"));
        assert!(contains_name(b".text.bn", "bn"));
        assert!(!contains_name(b"\0bn_apply\0my_bn\0", "bn"));
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
