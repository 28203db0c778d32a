//! Reads the reference numbers of `tests/golden` (test builds only).

use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};

/// Where the repository's files are. A test program that runs on another machine than it was built on is told.
pub(crate) fn repository() -> PathBuf {
    std::env::var_os("BOXWRIGHT_ROOT").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// One file of named tensors.
pub(crate) struct Golden {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl Golden {
    /// Opens a file of `tests/golden`.
    pub(crate) fn open(name: &str) -> Self {
        Self::read(repository().join("tests/golden").join(name))
    }

    /// Opens a file of the whole set of reference numbers, which is too large for the repository; `None` where it is not at hand.
    pub(crate) fn open_shared(name: &str) -> Option<Self> {
        let root = std::env::var_os("BOXWRIGHT_SHARED")?;
        Some(Self::read(PathBuf::from(root).join("golden").join(name)))
    }

    fn read(path: PathBuf) -> Self {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { bytes, path }
    }

    fn tensor(&self, name: &str, dtype: Dtype) -> (Vec<usize>, &[u8]) {
        let file = SafeTensors::deserialize(&self.bytes).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let view = file.tensor(name).unwrap_or_else(|error| panic!("{}: {name}: {error}", self.path.display()));
        assert_eq!(view.dtype(), dtype, "{name}");
        (view.shape().to_vec(), view.data())
    }

    #[cfg(feature = "gpu-tests")]
    pub(crate) fn names(&self) -> Vec<String> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        file.names().into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn shape(&self, name: &str) -> Vec<usize> {
        self.tensor(name, Dtype::F32).0
    }

    pub(crate) fn f32s(&self, name: &str) -> Vec<f32> {
        let (_, data) = self.tensor(name, Dtype::F32);
        data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    pub(crate) fn f64s(&self, name: &str) -> Vec<f64> {
        let (_, data) = self.tensor(name, Dtype::F64);
        data.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
    }

    pub(crate) fn i32s(&self, name: &str) -> Vec<i32> {
        let (_, data) = self.tensor(name, Dtype::I32);
        data.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect()
    }

    pub(crate) fn u8s(&self, name: &str) -> Vec<u8> {
        self.tensor(name, Dtype::U8).1.to_vec()
    }
}

/// Fails with the worst element unless every |ours - reference| is at most `abs + rel * |reference|`.
pub(crate) fn assert_close(what: &str, ours: &[f32], reference: &[f32], abs: f32, rel: f32) {
    assert_eq!(ours.len(), reference.len(), "{what}: length");
    let excess = |i: usize| (ours[i] - reference[i]).abs() - (abs + rel * reference[i].abs());
    let worst = (0..ours.len()).max_by(|&a, &b| excess(a).total_cmp(&excess(b)));
    if let Some(i) = worst {
        assert!(excess(i) <= 0.0, "{what}: element {i} is {} but should be {}", ours[i], reference[i]);
    }
}
