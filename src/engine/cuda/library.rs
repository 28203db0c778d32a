//! Finds and opens the libraries of CUDA: which file each is, of which version, or why it cannot be used.
//!
//! In:  environment variables and the usual folders. Out: [`FoundLibrary`], and opened libraries that are never closed.
//!
//! Places, in this order: the folders of `BOXWRIGHT_CUDA_PATH` (searched a few levels deep, or environments of Python), the
//! loader's own path, `CUDA_HOME` and `CUDA_PATH`, `/usr/local/cuda*`, and what pip's `nvidia-*` wheels installed into the
//! program's own environment ([`own_environment`]), the active one, or that of the `python3` on `PATH`.
//!
//! A library is opened by its absolute path. Others that ask the loader for its name (cudarc for `libcudnn.so.9`) then get
//! the one that is already open. Never panics: a file that does not load is told with its reason.

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use walkdir::WalkDir;

use super::error::CudaError;
use super::inspect::own_environment;

/// A library that the engine or the reading of pictures uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    Driver,
    /// What the card is doing: temperature, clocks, other programs.
    Nvml,
    /// Compiles kernels.
    Nvrtc,
    /// Convolutions.
    Cudnn,
    /// Matrix products; some of cuDNN's plans open it.
    CublasLt,
    /// Decodes JPEG.
    Nvjpeg,
    /// Several cards at once.
    Nccl,
}

impl Library {
    pub const ALL: [Self; 7] = [Self::Driver, Self::Nvml, Self::Nvrtc, Self::Cudnn, Self::CublasLt, Self::Nvjpeg, Self::Nccl];

    pub fn title(self) -> &'static str {
        match self {
            Self::Driver => "CUDA driver",
            Self::Nvml => "NVML",
            Self::Nvrtc => "NVRTC",
            Self::Cudnn => "cuDNN",
            Self::CublasLt => "cuBLASLt",
            Self::Nvjpeg => "nvJPEG",
            Self::Nccl => "NCCL",
        }
    }

    /// Names under which the loader knows it, the newest first.
    pub fn file_names(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &["libcuda.so.1"],
            Self::Nvml => &["libnvidia-ml.so.1"],
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12"],
            Self::Cudnn => &["libcudnn.so.9"],
            Self::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12"],
            Self::Nvjpeg => &["libnvjpeg.so.13", "libnvjpeg.so.12"],
            Self::Nccl => &["libnccl.so.2"],
        }
    }

    /// A function that every version has: its address tells the file.
    fn landmark(self) -> &'static CStr {
        match self {
            Self::Driver => c"cuDriverGetVersion",
            Self::Nvml => c"nvmlSystemGetDriverVersion",
            Self::Nvrtc => c"nvrtcVersion",
            Self::Cudnn => c"cudnnGetVersion",
            Self::CublasLt => c"cublasLtGetProperty",
            Self::Nvjpeg => c"nvjpegGetProperty",
            Self::Nccl => c"ncclGetVersion",
        }
    }

    /// What must lie in the same folder, as beginnings of names. cuDNN ends the program when a part of it is missing.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Nvrtc => &["libnvrtc-builtins.so."],
            Self::Cudnn => &[
                "libcudnn_graph.so.9",
                "libcudnn_ops.so.9",
                "libcudnn_heuristic.so.9",
                "libcudnn_engines_precompiled.so.9",
                "libcudnn_engines_runtime_compiled.so.9",
            ],
            _ => &[],
        }
    }

    fn flags(self) -> c_int {
        match self {
            Self::Driver | Self::Cudnn => RTLD_LAZY | RTLD_GLOBAL,
            _ => RTLD_LAZY | RTLD_LOCAL,
        }
    }
}

/// A library that loads and tells its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    pub path: PathBuf,
    /// As the library tells it: `13.0` for NVRTC and the driver, `9.14.0` for cuDNN.
    pub version: String,
}

impl FoundLibrary {
    /// The first number of the version.
    pub fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
    }
}

/// A library that stays open until the program ends.
pub struct OpenLibrary {
    pub found: FoundLibrary,
    handle: Handle,
}

impl OpenLibrary {
    /// A function of the library.
    ///
    /// # Safety
    /// `F` is the type of that function, an `unsafe extern "C" fn`.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        // SAFETY: the caller's promise.
        unsafe { function(&self.handle, name) }
    }
}

/// Which file is used for a library, and its version.
pub fn find(library: Library) -> Result<FoundLibrary, CudaError> {
    open(library).map(|open| open.found.clone())
}

/// Opens a library, once; later calls give the same.
pub fn open(library: Library) -> Result<&'static OpenLibrary, CudaError> {
    static OPENED: [OnceLock<Result<OpenLibrary, CudaError>>; Library::ALL.len()] = [const { OnceLock::new() }; Library::ALL.len()];
    OPENED[library as usize].get_or_init(|| open_where(library, |open| fits_driver(library, open))).as_ref().map_err(Clone::clone)
}

/// Opens the first one that `accept` takes; it says why not otherwise.
pub fn open_where(library: Library, accept: impl Fn(&OpenLibrary) -> Result<(), String>) -> Result<OpenLibrary, CudaError> {
    let mut refused = None;
    for candidate in candidates(library, places()) {
        match open_file(library, &candidate).and_then(|open| accept(&open).map(|()| open)) {
            Ok(open) => return Ok(open),
            // The loader found nothing: `libx.so.1: cannot open shared object file` begins with the name that it was asked for.
            Err(reason) if candidate.is_relative() && reason.starts_with(&*candidate.to_string_lossy()) => {}
            // The first one is what the person meant.
            Err(reason) => {
                refused.get_or_insert(CudaError::BrokenLibrary { library: library.title(), path: candidate, reason });
            }
        }
    }
    Err(refused.unwrap_or(CudaError::MissingLibrary { library: library.title() }))
}

/// Opens cuDNN, and what it asks the loader for, for the rest of the program's life.
pub fn load_cudnn() -> Result<FoundLibrary, CudaError> {
    static HELPERS: OnceLock<Vec<OpenLibrary>> = OnceLock::new();
    let cudnn = open(Library::Cudnn)?;
    // cuDNN asks the loader for these by name, when a plan needs them: take those of the CUDA that it was made for.
    HELPERS.get_or_init(|| {
        let Some(major) = cuda_of_cudnn(cudnn) else { return Vec::new() };
        let same = |open: &OpenLibrary| if open.found.major() == major { Ok(()) } else { Err(format!("cuDNN needs CUDA {major}")) };
        // Plans that need a helper that is not there fail by themselves, others work.
        [Library::CublasLt, Library::Nvrtc].into_iter().filter_map(|helper| open_where(helper, same).ok()).collect()
    });
    Ok(cudnn.found.clone())
}

/// The major version of CUDA that an open cuDNN was made for.
fn cuda_of_cudnn(cudnn: &OpenLibrary) -> Option<u32> {
    type CudartVersion = unsafe extern "C" fn() -> usize;
    // SAFETY: the type is that of cuDNN's header.
    let cudart_version = unsafe { cudnn.function::<CudartVersion>(c"cudnnGetCudartVersion") }.ok()?;
    // SAFETY: takes nothing.
    Some((unsafe { cudart_version() } / 1000) as u32)
}

/// Says why the driver would not run a library's code: it is made for a later CUDA. Without a driver everything fits.
fn fits_driver(library: Library, open: &OpenLibrary) -> Result<(), String> {
    let made_for = match library {
        Library::Nvrtc | Library::CublasLt | Library::Nvjpeg => Some(open.found.major()),
        Library::Cudnn => cuda_of_cudnn(open),
        Library::Driver | Library::Nvml | Library::Nccl => None,
    };
    let Some(made_for) = made_for else { return Ok(()) };
    let Ok(driver) = find(Library::Driver) else { return Ok(()) };
    let driver = driver.major();
    if made_for <= driver { Ok(()) } else { Err(format!("it is made for CUDA {made_for}, and the driver is of CUDA {driver}")) }
}

/// Opens a file and asks for its version.
fn open_file(library: Library, candidate: &Path) -> Result<OpenLibrary, String> {
    if candidate.is_absolute() {
        check_parts(library, candidate)?;
    }
    // SAFETY: initialisers of NVIDIA's libraries need nothing of us.
    let handle = unsafe { Handle::open(Some(candidate), library.flags()) }.map_err(|error| reason_of(&error))?;
    let path = if candidate.is_absolute() { candidate.to_path_buf() } else { file_of(library, &handle)? };
    check_parts(library, &path)?;
    let version = version_of(library, &handle)?;
    Ok(OpenLibrary { found: FoundLibrary { path, version }, handle })
}

/// The loader's own words.
fn reason_of(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Says which part is not beside the library.
fn check_parts(library: Library, path: &Path) -> Result<(), String> {
    if library.parts().is_empty() {
        return Ok(());
    }
    let names_in = |folder: &Path| -> Vec<OsString> {
        std::fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.file_name()).collect()).unwrap_or_default()
    };
    let mut names = path.parent().map(names_in).unwrap_or_default();
    // The name may be a link into the folder where all of it lies.
    if let Ok(real) = path.canonicalize() {
        names.extend(real.parent().map(names_in).unwrap_or_default());
    }
    for part in library.parts() {
        if !names.iter().any(|name| name.to_string_lossy().starts_with(part)) {
            return Err(format!("{part}* is not in the same folder"));
        }
    }
    Ok(())
}

/// # Safety
/// `F` is the type of that function, an `unsafe extern "C" fn`.
unsafe fn function<F: Copy>(handle: &Handle, name: &CStr) -> Result<F, String> {
    // SAFETY: the caller's promise. Nothing calls it after the library is closed, because libraries in use stay open.
    unsafe { handle.get::<F>(name) }.map(|symbol| *symbol).map_err(|error| reason_of(&error))
}

/// The file behind a library that the loader found by name.
fn file_of(library: Library, handle: &Handle) -> Result<PathBuf, String> {
    #[repr(C)]
    struct Place {
        file: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    unsafe extern "C" {
        fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
    }
    // SAFETY: only the address is used.
    let landmark = unsafe { function::<*const c_void>(handle, library.landmark()) }?;
    let mut place = Place { file: std::ptr::null(), base: std::ptr::null_mut(), symbol: std::ptr::null(), address: std::ptr::null_mut() };
    // SAFETY: `place` is a live variable of the type in dlfcn.h.
    if unsafe { dladdr(landmark, &raw mut place) } == 0 || place.file.is_null() {
        return Err("the loader does not tell its file".to_owned());
    }
    // SAFETY: the loader's own terminated string, which lives as long as the library is open.
    let file = unsafe { CStr::from_ptr(place.file) };
    Ok(PathBuf::from(file.to_string_lossy().into_owned()))
}

/// Asks an open library for its version.
fn version_of(library: Library, handle: &Handle) -> Result<String, String> {
    let failed = |code: c_int| format!("{} failed with code {code}", library.landmark().to_string_lossy());
    let dotted = |version: usize| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
    // SAFETY: in each arm the types are those of NVIDIA's headers, and every pointer is to a live variable.
    unsafe {
        match library {
            Library::Driver => {
                let get: unsafe extern "C" fn(*mut c_int) -> c_int = function(handle, library.landmark())?;
                let mut version = 0;
                let code = get(&raw mut version);
                if code == 0 { Ok(format!("{}.{}", version / 1000, version % 1000 / 10)) } else { Err(failed(code)) }
            }
            Library::Nvml => {
                let init: unsafe extern "C" fn() -> c_int = function(handle, c"nvmlInit_v2")?;
                let get: unsafe extern "C" fn(*mut c_char, u32) -> c_int = function(handle, library.landmark())?;
                let shutdown: unsafe extern "C" fn() -> c_int = function(handle, c"nvmlShutdown")?;
                let code = init();
                if code != 0 {
                    return Err(format!("nvmlInit failed with code {code}"));
                }
                let mut text: [c_char; 81] = [0; 81];
                let code = get(text.as_mut_ptr(), 80);
                shutdown();
                if code == 0 { Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()) } else { Err(failed(code)) }
            }
            Library::Nvrtc => {
                let get: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = function(handle, library.landmark())?;
                let (mut major, mut minor) = (0, 0);
                let code = get(&raw mut major, &raw mut minor);
                if code == 0 { Ok(format!("{major}.{minor}")) } else { Err(failed(code)) }
            }
            Library::Cudnn => {
                let get: unsafe extern "C" fn() -> usize = function(handle, library.landmark())?;
                Ok(dotted(get()))
            }
            Library::CublasLt | Library::Nvjpeg => {
                let get: unsafe extern "C" fn(c_int, *mut c_int) -> c_int = function(handle, library.landmark())?;
                let mut parts = [0; 3];
                for (property, part) in (0..).zip(&mut parts) {
                    let code = get(property, &raw mut *part);
                    if code != 0 {
                        return Err(failed(code));
                    }
                }
                Ok(parts.map(|part: c_int| part.to_string()).join("."))
            }
            Library::Nccl => {
                let get: unsafe extern "C" fn(*mut c_int) -> c_int = function(handle, library.landmark())?;
                let mut version = 0;
                let code = get(&raw mut version);
                if code == 0 { Ok(dotted(version as usize)) } else { Err(failed(code)) }
            }
        }
    }
}

/// Where to look: the loader's own path, or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Loader,
    Folder(PathBuf),
}

/// Files of a library that may be opened, in order; a bare name is for the loader.
fn candidates(library: Library, places: &[Place]) -> Vec<PathBuf> {
    // What belongs to the driver must be the running driver's own: folders are the last resort.
    let is_driver = matches!(library, Library::Driver | Library::Nvml);
    let loader_first = Some(&Place::Loader).filter(|_| is_driver);
    let mut files = Vec::new();
    for place in loader_first.into_iter().chain(places.iter().filter(|place| !is_driver || **place != Place::Loader)) {
        for name in library.file_names() {
            match place {
                Place::Loader => files.push(PathBuf::from(name)),
                Place::Folder(folder) => files.extend(Some(folder.join(name)).filter(|file| file.is_file())),
            }
        }
    }
    files
}

/// The places of this process, looked up once.
fn places() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(|| Surroundings::of_process().places())
}

/// What says where libraries may lie.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    /// Folders of `BOXWRIGHT_CUDA_PATH`.
    setting: Vec<PathBuf>,
    /// `CUDA_HOME` and `CUDA_PATH`.
    cuda_homes: Vec<PathBuf>,
    /// `/usr/local`.
    usr_local: PathBuf,
    /// Environments of Python: our own, then active ones by `VIRTUAL_ENV` and `CONDA_PREFIX`.
    environments: Vec<PathBuf>,
    /// Folders of `PATH`.
    path: Vec<PathBuf>,
    /// The person's own folder of installed programs, `~/.local`.
    user: Option<PathBuf>,
}

impl Surroundings {
    fn of_process() -> Self {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let list = |name: &str| std::env::var_os(name).map(|value| std::env::split_paths(&value).collect()).unwrap_or_default();
        let folders = |names: [&'static str; 2]| names.into_iter().filter_map(folder).collect::<Vec<_>>();
        let mut setting: Vec<PathBuf> = list("BOXWRIGHT_CUDA_PATH");
        setting.retain(|folder| !folder.as_os_str().is_empty());
        Self {
            setting,
            cuda_homes: folders(["CUDA_HOME", "CUDA_PATH"]),
            usr_local: PathBuf::from("/usr/local"),
            environments: own_environment().into_iter().chain(folders(["VIRTUAL_ENV", "CONDA_PREFIX"])).collect(),
            path: list("PATH"),
            user: folder("HOME").map(|home| home.join(".local")),
        }
    }

    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut add = |folder: PathBuf| {
            let place = Place::Folder(folder.canonicalize().unwrap_or(folder));
            if !places.contains(&place) {
                places.push(place);
            }
        };
        for folder in &self.setting {
            folders_below(folder).into_iter().for_each(&mut add);
            wheel_folders(folder).into_iter().for_each(&mut add);
        }
        let n_set = places.len();

        let mut add = |folder: PathBuf| {
            let place = Place::Folder(folder.canonicalize().unwrap_or(folder));
            if !places.contains(&place) {
                places.push(place);
            }
        };
        let toolkit = |home: &PathBuf| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|lib| home.join(lib)).into_iter();
        self.cuda_homes.iter().flat_map(toolkit).for_each(&mut add);
        toolkits_in(&self.usr_local).iter().flat_map(toolkit).for_each(&mut add);
        for environment in self.environments.iter().chain(&python_prefixes(&self.path)).chain(&self.user) {
            wheel_folders(environment).into_iter().for_each(&mut add);
        }
        // Conda's own packages lie beside the environment's other libraries.
        self.environments.iter().map(|environment| environment.join("lib")).for_each(&mut add);
        places.insert(n_set, Place::Loader);
        places.retain(|place| !matches!(place, Place::Folder(folder) if !folder.is_dir()));
        places
    }
}

/// So many levels of a set folder are searched: enough for `site-packages/nvidia/cudnn/lib`.
const SEARCH_DEPTH: usize = 4;

/// The folder and those below it that hold a library which we know.
fn folders_below(root: &Path) -> Vec<PathBuf> {
    let is_known = |name: &str| Library::ALL.iter().any(|library| library.file_names().contains(&name));
    let mut folders = Vec::new();
    let walk = WalkDir::new(root).max_depth(SEARCH_DEPTH).follow_links(true).sort_by_file_name();
    // Toolkits have an empty driver to link against, and one for older kernels.
    let is_real = |entry: &walkdir::DirEntry| entry.file_name() != "stubs" && entry.file_name() != "compat";
    for entry in walk.into_iter().filter_entry(is_real).flatten() {
        if entry.file_name().to_str().is_some_and(is_known)
            && let Some(folder) = entry.path().parent()
            && folders.last().is_none_or(|last| last != folder)
        {
            folders.push(folder.to_path_buf());
        }
    }
    folders
}

/// `cuda` and `nvidia` (where containers have the driver), then `cuda-*` with the newest first.
fn toolkits_in(usr_local: &Path) -> Vec<PathBuf> {
    let numbers = |path: &PathBuf| -> Vec<u32> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.trim_start_matches("cuda-").split('.').map(|number| number.parse().unwrap_or(u32::MAX)).collect()
    };
    let mut folders = children(usr_local, |name| ["cuda", "nvidia"].contains(&name) || name.starts_with("cuda-"));
    folders.sort_by_key(|folder| std::cmp::Reverse(numbers(folder)));
    folders
}

/// More links than anyone's `python3` has.
const MAX_LINKS: usize = 8;

/// Where the `python3` and `python` on `PATH` are installed: their environment, then those of what they are links to.
fn python_prefixes(path: &[PathBuf]) -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    for name in ["python3", "python"] {
        let Some(program) = path.iter().map(|folder| folder.join(name)).find(|program| program.is_file()) else { continue };
        // Each link on the way: one may lie in an environment that the last does not know of.
        let target = |program: &PathBuf| Some(program.parent()?.join(program.read_link().ok()?));
        let links = std::iter::successors(Some(program), target).take(MAX_LINKS);
        prefixes.extend(links.filter_map(|program| Some(program.parent()?.parent()?.to_path_buf())));
    }
    prefixes
}

/// The `lib` folders of pip's `nvidia-*` wheels in an environment of Python.
fn wheel_folders(prefix: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for lib in ["lib", "lib64", "local/lib"] {
        for python in children(&prefix.join(lib), |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                folders.extend(children(&python.join(packages).join("nvidia"), |_| true).into_iter().map(|wheel| wheel.join("lib")));
            }
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Folders in a folder by name, sorted; nothing when it cannot be read.
fn children(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let wanted = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(&wanted);
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(wanted).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "no library").unwrap();
    }

    fn found(library: Library, surroundings: &Surroundings) -> Vec<PathBuf> {
        candidates(library, &surroundings.places())
    }

    #[test]
    fn places_come_in_the_order_of_the_header() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let files = [
            "mine/a/b/libnvrtc.so.12",
            "home/lib64/libnvrtc.so.13",
            "local/cuda-13.0/targets/x86_64-linux/lib/libnvrtc.so.13",
            "local/cuda-9.2/lib64/libnvrtc.so.12",
            "env/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "py/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        ];
        for file in files {
            touch(&root.join(file));
        }
        touch(&root.join("py/bin/python3"));
        let surroundings = Surroundings {
            setting: vec![root.join("mine")],
            cuda_homes: vec![root.join("home")],
            usr_local: root.join("local"),
            environments: vec![root.join("env")],
            path: vec![root.join("nowhere"), root.join("py/bin")],
            user: None,
        };
        let mut expected: Vec<_> = files.iter().map(|file| root.join(file)).collect();
        expected.splice(1..1, ["libnvrtc.so.13", "libnvrtc.so.12"].map(PathBuf::from));
        assert_eq!(found(Library::Nvrtc, &surroundings), expected);
        assert_eq!(found(Library::Nccl, &surroundings), [PathBuf::from("libnccl.so.2")]);
    }

    #[test]
    fn a_set_folder_may_be_an_environment_or_its_packages() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let packages = root.join("env/lib/python3.12/site-packages");
        let file = packages.join("nvidia/cudnn/lib/libcudnn.so.9");
        touch(&file);
        for setting in [root.join("env"), packages.clone(), packages.join("nvidia"), packages.join("nvidia/cudnn/lib")] {
            let surroundings = Surroundings { setting: vec![setting.clone()], ..Surroundings::default() };
            assert_eq!(found(Library::Cudnn, &surroundings)[0], file, "{}", setting.display());
        }
    }

    #[test]
    fn the_driver_is_the_loader_s_own_before_any_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        touch(&root.join("compat/libcuda.so.1"));
        touch(&root.join("lib64/libcuda.so.1"));
        let surroundings = Surroundings { setting: vec![root.clone()], ..Surroundings::default() };
        assert_eq!(found(Library::Driver, &surroundings), [PathBuf::from("libcuda.so.1"), root.join("lib64/libcuda.so.1")]);
    }

    #[test]
    fn a_file_that_is_no_library_is_told_with_its_reason() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("libnccl.so.2");
        touch(&path);
        let reason = open_file(Library::Nccl, &path).err().unwrap();
        assert!(reason.contains("libnccl.so.2"), "{reason}");
    }

    #[test]
    fn cudnn_without_its_parts_is_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("libcudnn.so.9");
        touch(&path);
        assert_eq!(open_file(Library::Cudnn, &path).err().unwrap(), "libcudnn_graph.so.9* is not in the same folder");
    }
}
