//! NVRTC: turns the text of a kernel file into machine code for one kind of card.
//!
//! In:  a source text that may include `common.cuh`, the compute type, the card's compute capability.
//! Out: a cubin; or PTX, which the driver finishes, when the card is newer than this NVRTC.
//!
//! A small table of our own: cudarc gives PTX alone. No toolkit headers are needed or looked for.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::Precision;
use super::error::CudaError;
use super::library;
use super::library::{FoundLibrary, Library, OpenLibrary};

/// What kernel files include.
pub const COMMON: &str = include_str!("../../../kernels/common.cuh");

type Program = *mut c_void;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type GetText = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The opened compiler.
pub struct Nvrtc {
    library: &'static OpenLibrary,
    calls: Calls,
    /// Compute capabilities that it makes code for, sorted.
    targets: Vec<u32>,
}

struct Calls {
    create: unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log_size: GetSize,
    log: GetText,
    cubin_size: GetSize,
    cubin: GetText,
    ptx_size: GetSize,
    ptx: GetText,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// What to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The card's compute capability, major * 10 + minor.
    pub sm: u32,
    /// Also instructions that only this very architecture has (`sm_90a`).
    pub exact: bool,
    pub precision: Precision,
    /// Let the log tell registers and spills of each kernel.
    pub verbose: bool,
}

/// A compiled file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// A cubin, or PTX with its zero at the end; the driver loads both.
    pub code: Vec<u8>,
    /// Warnings, and what `verbose` asks for.
    pub log: String,
}

impl Nvrtc {
    /// Opens the first NVRTC whose code the driver loads, or any without a driver.
    ///
    /// # Errors
    /// There is none, or it misses a function.
    pub fn open() -> Result<Self, CudaError> {
        let library = library::open(Library::Nvrtc)?;
        let unusable = |reason| CudaError::UnusableLibrary { library: "NVRTC", version: library.found.version.clone(), reason };
        // SAFETY: types and names are those of nvrtc.h.
        let calls = unsafe { Calls::of(library) }.map_err(unusable)?;
        // SAFETY: as above.
        let targets = unsafe { targets_of(library) }.map_err(unusable)?;
        Ok(Self { library, calls, targets })
    }

    pub fn found(&self) -> &FoundLibrary {
        &self.library.found
    }

    /// Compute capabilities that it makes code for, sorted.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// The options with which a file is compiled; equal options and texts give equal code.
    ///
    /// # Errors
    /// The card is older than everything that this NVRTC makes code for.
    pub fn options(&self, target: Target) -> Result<Vec<String>, CudaError> {
        let Some(architecture) = architecture(target, &self.targets) else {
            return Err(CudaError::UnusableLibrary {
                library: "NVRTC",
                version: self.found().version.clone(),
                reason: format!("it makes no code for this card's sm_{}", target.sm),
            });
        };
        let define = match target.precision {
            Precision::Bf16 => "COMPUTE_BF16",
            Precision::F16 => "COMPUTE_F16",
            Precision::F32 => "COMPUTE_F32",
        };
        let mut options =
            vec![format!("--gpu-architecture={architecture}"), format!("-D{define}=1"), "--std=c++17".to_owned(), "-lineinfo".to_owned()];
        if target.verbose {
            options.push("--ptxas-options=-v".to_owned());
        }
        Ok(options)
    }

    /// Compiles a file; `file` is its name in `kernels/`, for messages.
    pub fn compile(&self, file: &'static str, text: &str, target: Target) -> Result<Compiled, CudaError> {
        let options = self.options(target)?;
        let is_ptx = options[0].contains("compute_");
        let program = self.create(file, text)?;
        let options: Vec<CString> = options.into_iter().map(terminated).collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives until the end of this function, as do the options.
        let code = unsafe { (self.calls.compile)(program.handle, pointers.len() as c_int, pointers.as_ptr()) };
        let log = self.bytes(&program, "nvrtcGetProgramLog", self.calls.log_size, self.calls.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
        if code != 0 {
            let log = if log.is_empty() { self.message(code) } else { log };
            return Err(CudaError::Compile { file, sm: target.sm, log });
        }
        let code = if is_ptx {
            self.bytes(&program, "nvrtcGetPTX", self.calls.ptx_size, self.calls.ptx)?
        } else {
            self.bytes(&program, "nvrtcGetCUBIN", self.calls.cubin_size, self.calls.cubin)?
        };
        Ok(Compiled { code, log })
    }

    fn create(&self, file: &str, text: &str) -> Result<OwnedProgram<'_>, CudaError> {
        let [text, name, common] = [text, file, COMMON].map(|text| terminated(text.to_owned()));
        let mut handle = std::ptr::null_mut();
        // SAFETY: one header with its name; NVRTC copies all texts.
        let code = unsafe {
            (self.calls.create)(
                &raw mut handle,
                text.as_ptr(),
                name.as_ptr(),
                1,
                [common.as_ptr()].as_ptr(),
                [c"common.cuh".as_ptr()].as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", code)?;
        Ok(OwnedProgram { handle, calls: &self.calls })
    }

    /// What a pair of functions gives: the size, then as many bytes.
    fn bytes(&self, program: &OwnedProgram, call: &'static str, size: GetSize, get: GetText) -> Result<Vec<u8>, CudaError> {
        let mut n_bytes = 0;
        // SAFETY: the program lives; `n_bytes` is a live variable.
        self.check(call, unsafe { size(program.handle, &raw mut n_bytes) })?;
        let mut bytes = vec![0_u8; n_bytes];
        // SAFETY: there is room for what the first call said.
        self.check(call, unsafe { get(program.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let reason = format!("{call}: {}", self.message(code));
        Err(CudaError::UnusableLibrary { library: "NVRTC", version: self.found().version.clone(), reason })
    }

    fn message(&self, code: c_int) -> String {
        // SAFETY: gives a static string for any code.
        unsafe { CStr::from_ptr((self.calls.error_string)(code)) }.to_string_lossy().into_owned()
    }
}

/// Destroyed when dropped.
struct OwnedProgram<'a> {
    handle: Program,
    calls: &'a Calls,
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `create`.
        unsafe { (self.calls.destroy)(&raw mut self.handle) };
    }
}

impl Calls {
    /// # Safety
    /// The library is NVRTC.
    unsafe fn of(library: &OpenLibrary) -> Result<Self, String> {
        // SAFETY: the caller's promise; types are those of nvrtc.h.
        unsafe {
            Ok(Self {
                create: library.function(c"nvrtcCreateProgram")?,
                compile: library.function(c"nvrtcCompileProgram")?,
                destroy: library.function(c"nvrtcDestroyProgram")?,
                log_size: library.function(c"nvrtcGetProgramLogSize")?,
                log: library.function(c"nvrtcGetProgramLog")?,
                cubin_size: library.function(c"nvrtcGetCUBINSize")?,
                cubin: library.function(c"nvrtcGetCUBIN")?,
                ptx_size: library.function(c"nvrtcGetPTXSize")?,
                ptx: library.function(c"nvrtcGetPTX")?,
                error_string: library.function(c"nvrtcGetErrorString")?,
            })
        }
    }
}

/// # Safety
/// The library is NVRTC.
unsafe fn targets_of(library: &OpenLibrary) -> Result<Vec<u32>, String> {
    let mut n_targets: c_int = 0;
    // SAFETY: the caller's promise; types are those of nvrtc.h; there is room for as many numbers as the first call says.
    let (code, mut targets) = unsafe {
        let count: unsafe extern "C" fn(*mut c_int) -> c_int = library.function(c"nvrtcGetNumSupportedArchs")?;
        let get: unsafe extern "C" fn(*mut c_int) -> c_int = library.function(c"nvrtcGetSupportedArchs")?;
        let counted = count(&raw mut n_targets);
        let mut targets = vec![0; n_targets.max(0) as usize];
        (if counted == 0 { get(targets.as_mut_ptr()) } else { counted }, targets)
    };
    if code != 0 {
        return Err(format!("nvrtcGetSupportedArchs failed with code {code}"));
    }
    targets.sort_unstable();
    Ok(targets.into_iter().map(|target: c_int| target as u32).collect())
}

/// The architecture to compile for. A card runs code of its own major version for an equal or smaller minor one; a card
/// newer than all that the compiler knows takes PTX of the newest.
fn architecture(target: Target, targets: &[u32]) -> Option<String> {
    let Target { sm, exact, .. } = target;
    if exact {
        return targets.contains(&sm).then(|| format!("sm_{sm}a"));
    }
    let newest = *targets.iter().filter(|&&known| known <= sm).max()?;
    Some(if newest / 10 == sm / 10 { format!("sm_{newest}") } else { format!("compute_{newest}") })
}

/// Texts come from our own files and have no zero byte; one is cut there.
fn terminated(text: String) -> CString {
    let bytes: Vec<u8> = text.into_bytes().into_iter().take_while(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const TARGET: Target = Target { sm: 90, exact: false, precision: Precision::Bf16, verbose: false };

    #[test]
    fn a_card_gets_its_own_code_or_the_nearest_older_one() {
        let targets = [75, 80, 86, 87, 89, 90, 100, 120];
        let of = |sm| architecture(Target { sm, ..TARGET }, &targets);
        assert_eq!(of(90).as_deref(), Some("sm_90"));
        assert_eq!(of(88).as_deref(), Some("sm_87"));
        assert_eq!(of(103).as_deref(), Some("sm_100"));
        assert_eq!(of(130).as_deref(), Some("compute_120"));
        assert_eq!(of(61), None);
        assert_eq!(architecture(Target { exact: true, ..TARGET }, &targets).as_deref(), Some("sm_90a"));
        assert_eq!(architecture(Target { sm: 130, exact: true, ..TARGET }, &targets), None);
    }

    /// NVRTC where there is one; its absence is a failure of `tests/kernels.rs`, not of each test here.
    fn nvrtc() -> Option<Nvrtc> {
        Nvrtc::open().ok()
    }

    #[test]
    fn a_file_without_a_kernel_and_one_with_compile() {
        let Some(nvrtc) = nvrtc() else { return };
        for text in
            ["#include \"common.cuh\"\n", "#include \"common.cuh\"\nextern \"C\" __global__ void set(T* y) { *y = from_f32(1.0f); }"]
        {
            for precision in [Precision::Bf16, Precision::F16, Precision::F32] {
                let compiled = nvrtc.compile("set.cu", text, Target { precision, ..TARGET }).unwrap();
                assert_eq!(&compiled.code[..4], b"\x7fELF");
            }
        }
        let ptx = nvrtc.compile("set.cu", "", Target { sm: 990, ..TARGET }).unwrap();
        assert!(String::from_utf8_lossy(&ptx.code).contains(".target sm_"));
    }

    #[test]
    fn an_error_tells_file_and_line() {
        let Some(nvrtc) = nvrtc() else { return };
        let error = nvrtc.compile("wrong.cu", "#include \"common.cuh\"\nint x = y;\n", TARGET).unwrap_err();
        assert!(error.to_string().contains("wrong.cu(2)"), "{error}");
    }
}
