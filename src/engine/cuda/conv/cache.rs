//! Timed plans on disk, so that the next start need not time again.
//!
//! One JSON file for each kind of GPU, version of the driver, version of cuDNN and of our own kernels; beside it a folder with
//! the plans that cuDNN compiled, of a megabyte each, so that they are read when they are needed, by several threads. Losing
//! any of it costs some seconds of timing or compiling and nothing else: a damaged file counts as missing, and a file that cannot be
//! written is not missed.

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
    /// `compiled` names the text of a plan whose kernel cuDNN compiled; see [`PlanCache::text`].
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
    /// Taken over from a similar call, whose time this is: good enough for who does not want to wait for timing.
    #[serde(default)]
    pub(super) is_borrowed: bool,
}

/// Plans by the text of their call.
type Entries = BTreeMap<String, Entry>;

pub(super) struct PlanCache {
    path: Option<PathBuf>,
    entries: Entries,
    /// Not written yet, by name.
    texts: BTreeMap<String, String>,
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
        Self { path, entries, texts: BTreeMap::new(), is_changed: false }
    }

    pub(super) fn get(&self, call: &ConvCall, precision: Precision) -> Option<&Entry> {
        self.entries.get(&key(call, precision))
    }

    /// cuDNN's own text of a compiled plan, kernel included, if it is there and whole.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let hash = blake3::Hash::from_hex(name).ok()?;
        if let Some(text) = self.texts.get(name) {
            return Some(text.clone());
        }
        let text = std::fs::read_to_string(text_path(self.path.as_deref()?, name)).ok()?;
        (blake3::hash(text.as_bytes()) == hash).then_some(text)
    }

    /// `compiled` is the text of a compiled plan.
    pub(super) fn put(&mut self, call: &ConvCall, precision: Precision, mut entry: Entry, compiled: Option<String>) {
        if let (Way::Cudnn { compiled: name, .. }, Some(text)) = (&mut entry.way, compiled) {
            let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
            *name = Some(hash.clone());
            self.texts.insert(hash, text);
        }
        self.entries.insert(key(call, precision), entry);
        self.is_changed = true;
    }

    /// Adds the new entries to the file, whole or not at all.
    pub(super) fn save(&mut self) {
        let Some(path) = self.path.as_deref().filter(|_| self.is_changed) else { return };
        for (name, text) in std::mem::take(&mut self.texts) {
            // Without the text the plan is compiled again.
            write(&text_path(path, &name), text.as_bytes()).ok();
        }
        // Another process may have written in the meantime.
        let mut all = read(path);
        all.extend(self.entries.clone());
        if serde_json::to_vec(&all).is_ok_and(|bytes| write(path, &bytes).is_ok()) {
            self.is_changed = false;
        }
    }
}

/// In the folder beside the file.
fn text_path(path: &Path, name: &str) -> PathBuf {
    path.with_extension("compiled").join(name)
}

fn key(call: &ConvCall, precision: Precision) -> String {
    format!("{call} {precision:?}")
}

fn read(path: &Path) -> Entries {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
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
        Entry { way, compromise: Compromise::None, time_us, is_borrowed: false }
    }

    #[test]
    fn plans_survive_on_disk_beside_those_of_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/plans.json");
        let [mut one, mut other] = [0, 1].map(|_| PlanCache::open(Some(path.clone())));
        one.put(&call(1), Precision::Bf16, entry(1.0), None);
        other.put(&call(2), Precision::Bf16, entry(2.0), None);
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
        cache.put(&call(1), Precision::F32, entry(3.0), None);
        cache.save();
        assert_eq!(PlanCache::open(Some(path)).get(&call(1), Precision::F32), Some(&entry(3.0)));
    }
    #[test]
    fn texts_of_compiled_plans_are_kept_beside_the_file_while_they_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plans.json");
        let mut cache = PlanCache::open(Some(path.clone()));
        cache.put(&call(1), Precision::F16, entry(1.0), Some("{\"engine\": 4}".to_owned()));
        let name_in = |cache: &PlanCache| match &cache.get(&call(1), Precision::F16).unwrap().way {
            Way::Cudnn { compiled: Some(name), .. } => name.clone(),
            way => panic!("{way:?} has no text"),
        };
        let name = name_in(&cache);
        assert_eq!(cache.text(&name).as_deref(), Some("{\"engine\": 4}"), "before it is written");
        cache.save();
        let read = PlanCache::open(Some(path.clone()));
        assert_eq!(name_in(&read), name);
        assert_eq!(read.text(&name).as_deref(), Some("{\"engine\": 4}"));
        std::fs::write(text_path(&path, &name), "{\"engine\": 5}").unwrap();
        assert_eq!(read.text(&name), None);
        assert_eq!(read.text("../plans.json"), None);
    }
}
