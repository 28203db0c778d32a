//! Timed plans on disk, so that the next start need not time again.
//!
//! One JSON file for each kind of GPU, version of the driver, version of cuDNN and of our own kernels. Losing it costs some seconds of timing and
//! nothing else: a damaged file counts as empty, and a file that cannot be written is not missed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Compromise, ConvCall};
use crate::engine::cuda::Precision;
use crate::engine::cuda::cudnn::Recipe;
use crate::engine::cuda::gpu::Gpu;
use crate::engine::cuda::kernels::{FILES, cache_dir};

/// A way to compute a call, as the file knows it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) enum Way {
    /// `compiled` is cuDNN's own text of a plan whose kernel it compiled, kernel included.
    Cudnn { recipe: Recipe, compiled: Option<String> },
    /// The plan without bias, then the kernel for bias and activation.
    Split,
    /// One of ours.
    Own { kernel: String },
}

/// A plan as the file knows it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Entry {
    pub(super) way: Way,
    pub(super) compromise: Compromise,
    pub(super) time_us: f32,
}

/// Plans by the text of their call.
type Entries = BTreeMap<String, Entry>;

pub(super) struct PlanCache {
    path: Option<PathBuf>,
    entries: Entries,
    is_changed: bool,
}

impl PlanCache {
    /// What is known about this kind of device.
    pub(super) fn of_device(gpu: &Gpu, cudnn_version: usize) -> Self {
        let name: String = gpu.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        // Other kernels of ours win in other places.
        let own = FILES.iter().filter(|file| file.name.starts_with("conv")).fold(blake3::Hasher::new(), |mut hasher, file| {
            hasher.update(file.text.as_bytes());
            hasher
        });
        let own = &own.finalize().to_hex()[..8];
        let file = format!("{name}-sm{}-cuda{}-cudnn{cudnn_version}-{own}.json", gpu.sm, gpu.driver_version);
        Self::open(cache_dir("cudnn").map(|dir| dir.join(file)))
    }

    pub(super) fn open(path: Option<PathBuf>) -> Self {
        let entries = path.as_deref().map(read).unwrap_or_default();
        Self { path, entries, is_changed: false }
    }

    pub(super) fn get(&self, call: &ConvCall, precision: Precision) -> Option<&Entry> {
        self.entries.get(&key(call, precision))
    }

    pub(super) fn put(&mut self, call: &ConvCall, precision: Precision, entry: Entry) {
        self.entries.insert(key(call, precision), entry);
        self.is_changed = true;
    }

    /// Adds the new entries to the file, whole or not at all.
    pub(super) fn save(&mut self) {
        let Some(path) = self.path.as_deref().filter(|_| self.is_changed) else { return };
        // Another process may have written in the meantime.
        let mut all = read(path);
        all.extend(self.entries.clone());
        if write(path, &all).is_ok() {
            self.is_changed = false;
        }
    }
}

fn key(call: &ConvCall, precision: Precision) -> String {
    format!("{call} {precision:?}")
}

fn read(path: &Path) -> Entries {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write(path: &Path, entries: &Entries) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&serde_json::to_vec(entries)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::engine::cuda::conv::ConvPass;
    use crate::engine::op::ConvSpec;

    fn call(n: usize) -> ConvCall {
        let spec = ConvSpec { kernel: 3, stride: 2, pad: 1, groups: 1, in_channels: 3, out_channels: 16 };
        ConvCall { pass: ConvPass::Forward, spec, n, h: 32, w: 48 }
    }

    fn entry(time_us: f32) -> Entry {
        let way = Way::Cudnn { recipe: Recipe { engine: 4, knobs: vec![(2, 7)] }, compiled: None };
        Entry { way, compromise: Compromise::None, time_us }
    }

    #[test]
    fn plans_survive_on_disk_beside_those_of_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/plans.json");
        let [mut one, mut other] = [0, 1].map(|_| PlanCache::open(Some(path.clone())));
        one.put(&call(1), Precision::Bf16, entry(1.0));
        other.put(&call(2), Precision::Bf16, entry(2.0));
        one.save();
        other.save();
        let read = PlanCache::open(Some(path));
        assert_eq!(read.get(&call(1), Precision::Bf16), Some(&entry(1.0)));
        assert_eq!(read.get(&call(2), Precision::Bf16), Some(&entry(2.0)));
        assert_eq!(read.get(&call(1), Precision::F16), None);
    }

    #[test]
    fn a_damaged_file_counts_as_empty_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plans.json");
        std::fs::write(&path, "{\"forward").unwrap();
        let mut cache = PlanCache::open(Some(path.clone()));
        assert_eq!(cache.get(&call(1), Precision::F32), None);
        cache.put(&call(1), Precision::F32, entry(3.0));
        cache.save();
        assert_eq!(PlanCache::open(Some(path)).get(&call(1), Precision::F32), Some(&entry(3.0)));
    }
}
