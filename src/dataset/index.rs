//! What did Boxwright know of a dataset when it was last open? Labels and facts are read again only where files changed.
//!
//! In:  an open dataset, and the folder where the program keeps its own files.
//! Out: the labels and facts of each image, as if all files had been read; one file a dataset in that folder.
//!
//! An image's entry holds as long as size, time of change, inode and time of the last status change of its label file (and of
//! the image, for what depends on that) are what they were. A file that changed just before it was looked at might change
//! once more without its time telling, so such an entry is read again the next time. `store.rs` is the file: versioned, with
//! a checksum; a damaged or foreign one is as good as none. Never writes into a dataset.

pub(super) mod stamp;
mod store;

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rayon::prelude::*;

use super::facts::ImageFacts;
use super::label::Label;
use super::open::{Dataset, DatasetError, ImageEntry};
use crate::geom::Size;
use crate::media::MediaError;
use crate::media::decode;
use stamp::Stamp;
use store::{Record, Store};

/// Reports progress, and may stop.
type CheckIn<'a> = &'a (dyn Fn(u64, u64) -> ControlFlow<()> + Sync);

/// Progress is told once in so many images.
const TOLD_EVERY: u64 = 256;

/// The index of one dataset: what is remembered, and what was found now.
pub struct Index<'a> {
    dataset: &'a Dataset,
    folder: PathBuf,
    path: PathBuf,
    remembered: Store,
    /// By image: where it stands in the remembered index.
    places: Vec<Option<u32>>,
    /// One an image.
    records: Vec<Record>,
    is_changed: AtomicBool,
    n_labels_read: AtomicU64,
    n_headers_read: AtomicU64,
}

impl<'a> Index<'a> {
    /// Reads what is remembered of the dataset; nothing, where there is no index, or it is of other classes or damaged.
    pub fn load(dataset: &'a Dataset, state_dir: &Path) -> Self {
        let folder = state_dir.join("index");
        let source = dataset.source.canonicalize().unwrap_or_else(|_| dataset.source.clone());
        let name = blake3::hash(source.as_os_str().as_encoded_bytes()).to_hex();
        let path = folder.join(format!("{}.{}", &name[..32], store::ENDING));
        let remembered = Store::read(&path, &key(dataset)).unwrap_or_default();
        let records: Vec<Record> = dataset.images.par_iter().map(|image| Record::new(path_hash(image))).collect();
        let places = places(&records, &remembered);
        let is_changed = AtomicBool::new(records.len() != remembered.n_images());
        let (n_labels_read, n_headers_read) = Default::default();
        Self { dataset, folder, path, remembered, places, records, is_changed, n_labels_read, n_headers_read }
    }

    /// The labels of each image, as `Dataset::labels` gives them; none for a file that cannot be read.
    ///
    /// # Errors
    /// `Cancelled` only.
    pub fn labels(&mut self, check_in: CheckIn<'_>) -> Result<Vec<Arc<[Label]>>, DatasetError> {
        let done = AtomicU64::new(0);
        let n_images = self.dataset.images.len() as u64;
        let Self { dataset, remembered, places, records, is_changed, n_labels_read, .. } = self;
        records
            .par_iter_mut()
            .zip(&dataset.images)
            .zip(&*places)
            .map(|((record, image), place)| {
                tell(&done, n_images, check_in)?;
                record.label = Stamp::of(&image.label_path);
                if let Some(place) = *place {
                    let before = remembered.record(place);
                    let holds =
                        before.label.holds(record.label) && (before.needs_size() == 0 || before.image.holds(Stamp::of(&image.path)));
                    if holds {
                        record.keep_labels(before);
                        return Ok(remembered.labels(place));
                    }
                }
                is_changed.store(true, Ordering::Relaxed);
                n_labels_read.fetch_add(1, Ordering::Relaxed);
                if record.label.is_absent() {
                    return Ok(Arc::default());
                }
                let asked = Cell::new(false);
                let size = || {
                    asked.set(true);
                    decode::probe(&image.path).ok()
                };
                let labels = dataset.labels_with(image, &size);
                let has_failed = matches!(labels, Err(DatasetError::Io { .. }));
                let labels: Arc<[Label]> = labels.unwrap_or_default().into();
                record.read_labels(labels.len(), asked.get());
                if has_failed {
                    // Perhaps it can be read the next time.
                    record.label = Stamp::default();
                }
                Ok(labels)
            })
            .collect()
    }

    /// The facts of each image. Call it after [`Index::labels`].
    ///
    /// # Errors
    /// `Cancelled` only.
    pub fn facts(&mut self, check_in: CheckIn<'_>) -> Result<Vec<ImageFacts>, DatasetError> {
        let done = AtomicU64::new(0);
        let n_images = self.dataset.images.len() as u64;
        let Self { dataset, remembered, places, records, is_changed, n_headers_read, .. } = self;
        records
            .par_iter_mut()
            .zip(&dataset.images)
            .zip(&*places)
            .map(|((record, image), place)| {
                tell(&done, n_images, check_in)?;
                record.image = Stamp::of(&image.path);
                match place.map(|place| remembered.record(place)) {
                    Some(before) if before.has_header() && before.image.holds(record.image) => record.keep_header(before),
                    _ => {
                        is_changed.store(true, Ordering::Relaxed);
                        n_headers_read.fetch_add(1, Ordering::Relaxed);
                        let header = if record.image.is_absent() { None } else { Some(decode::header(&image.path)) };
                        if let Some(Err(MediaError::Io { .. })) = header {
                            // Perhaps it can be read the next time.
                            record.image = Stamp::default();
                        }
                        let header = header.and_then(Result::ok);
                        record.read_header(header.map(|header| (header.size, header.orientation)));
                    }
                }
                Ok(record.facts())
            })
            .collect()
    }

    /// Keeps what was found for the next time, if that is not what was remembered already. Call it after both.
    ///
    /// # Errors
    /// When it cannot be written; the next opening takes longer then, and nothing else.
    pub fn save(&self, labels: &[Arc<[Label]>]) -> std::io::Result<()> {
        if !self.is_changed.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::fs::create_dir_all(&self.folder)?;
        store::write(&self.path, &key(self.dataset), &self.records, labels)?;
        store::prune(&self.folder, &self.path)
    }

    /// How many label files and image headers had to be read.
    pub fn n_read(&self) -> (u64, u64) {
        (self.n_labels_read.load(Ordering::Relaxed), self.n_headers_read.load(Ordering::Relaxed))
    }
}

fn tell(done: &AtomicU64, total: u64, check_in: CheckIn<'_>) -> Result<(), DatasetError> {
    let n = done.fetch_add(1, Ordering::Relaxed);
    if n.is_multiple_of(TOLD_EVERY) && check_in(n, total).is_break() {
        return Err(DatasetError::Cancelled);
    }
    Ok(())
}

/// What the meaning of label files depends on.
fn key(dataset: &Dataset) -> [u8; 32] {
    let Dataset { format, names, n_keypoint_fields, merged, .. } = dataset;
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{format:?} {n_keypoint_fields:?} {}", merged.is_some()).as_bytes());
    for name in names.iter().chain(merged.iter().flatten()) {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// Says which image and label file an entry is about.
fn path_hash(image: &ImageEntry) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(image.path.as_os_str().as_encoded_bytes());
    hasher.update(&[0, image.split as u8]);
    hasher.update(image.label_path.as_os_str().as_encoded_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    hash
}

/// Where each image stands in the remembered index. Most often nothing was added or taken away.
fn places(records: &[Record], remembered: &Store) -> Vec<Option<u32>> {
    let is_same = |(index, record): (usize, &Record)| index < remembered.n_images() && remembered.record(index as u32).path == record.path;
    if records.len() == remembered.n_images() && records.iter().enumerate().all(is_same) {
        return (0..records.len() as u32).map(Some).collect();
    }
    let by_path: HashMap<[u8; 16], u32> = (0..remembered.n_images() as u32).map(|place| (remembered.record(place).path, place)).collect();
    records.iter().map(|record| by_path.get(&record.path).copied()).collect()
}

#[cfg(test)]
mod tests;
