//! Which rows of a label file does training not use, and why? Read for the image that is looked at.
//!
//! In:  an image of the open dataset. Out: its dropped rows with line, text and reason; read by a worker thread.
//!
//! Read again whenever the labels of the image have changed. Never writes.

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::failure::Failure;
use crate::dataset::parse::Verdict;
use crate::dataset::{ClassId, Dataset, Label};
use crate::geom::Xywhn;
use crate::media::decode;

/// A row that training does not use.
#[derive(Clone, Debug, PartialEq)]
pub struct DroppedRow {
    /// 1-based.
    pub line: usize,
    pub reason: String,
    /// As far as it can be read.
    pub class: Option<ClassId>,
    pub bbox: Option<Xywhn>,
}

/// What is known of one image's label file.
#[derive(Clone, Debug, Default)]
pub struct ImageRows {
    pub rows: Vec<DroppedRow>,
    /// Why the file as a whole cannot be read as labels.
    pub problem: Option<String>,
}

/// The last image that was asked for.
pub struct DroppedRows {
    asked: Option<Key>,
    read: Option<(Key, Arc<ImageRows>)>,
    requests: Sender<(Key, Arc<Dataset>)>,
    results: Receiver<(Key, Arc<ImageRows>)>,
}

/// An image by its path, and the labels that were held of it when its file was read.
#[derive(Clone)]
struct Key {
    path: PathBuf,
    image: usize,
    labels: Arc<[Label]>,
}

impl Key {
    fn is_of(&self, dataset: &Dataset, image: usize, labels: &Arc<[Label]>) -> bool {
        self.image == image && Arc::ptr_eq(&self.labels, labels) && dataset.images.get(image).is_some_and(|entry| entry.path == self.path)
    }
}

impl DroppedRows {
    pub(super) fn new(wake: &Arc<dyn Fn() + Send + Sync>) -> Self {
        let (requests, inbox) = bounded::<(Key, Arc<Dataset>)>(1);
        let (outbox, results) = bounded(4);
        let wake = wake.clone();
        let worker = move || {
            for (key, dataset) in inbox {
                let rows = Arc::new(read(&dataset, key.image));
                if outbox.send((key, rows)).is_err() {
                    return;
                }
                wake();
            }
        };
        // Without its thread nothing is known of dropped rows; `check` tells them all.
        std::thread::Builder::new().name("label rows".to_owned()).spawn(worker).ok();
        Self { asked: None, read: None, requests, results }
    }

    /// What is known of an image as its labels are now; `None` while it is being read, or was never asked for.
    pub fn get(&self, dataset: &Dataset, image: usize, labels: &Arc<[Label]>) -> Option<&Arc<ImageRows>> {
        self.read.as_ref().filter(|(key, _)| key.is_of(dataset, image, labels)).map(|(_, rows)| rows)
    }

    pub(super) fn request(&mut self, dataset: &Arc<Dataset>, image: usize, labels: &Arc<[Label]>) {
        let is_asked = self.asked.as_ref().is_some_and(|key| key.is_of(dataset, image, labels));
        let Some(entry) = dataset.images.get(image).filter(|_| !is_asked) else { return };
        let key = Key { path: entry.path.clone(), image, labels: labels.clone() };
        // A busy worker is asked again by the next frame.
        if self.requests.try_send((key.clone(), dataset.clone())).is_ok() {
            self.asked = Some(key);
        }
    }

    pub(super) fn poll(&mut self) {
        while let Ok(result) = self.results.try_recv() {
            self.read = Some(result);
        }
    }
}

fn read(dataset: &Dataset, image: usize) -> ImageRows {
    let Some(entry) = dataset.images.get(image) else { return ImageRows::default() };
    let file = match dataset.label_file(entry, &|| decode::probe(&entry.path).ok()) {
        Ok(Some(file)) => file,
        Ok(None) => return ImageRows::default(),
        Err(error) => return ImageRows { rows: Vec::new(), problem: Some(Failure::from_error(&error, None).message) },
    };
    let rows = file.rows.into_iter().filter_map(|row| match row.verdict {
        Verdict::Dropped(dropped) => {
            Some(DroppedRow { line: row.line, reason: dropped.reason, class: dropped.class, bbox: dropped.bbox }) //
        }
        Verdict::Used(_) | Verdict::Clamped { .. } => None,
    });
    ImageRows { rows: rows.collect(), problem: file.problem }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn dataset(rows: &str) -> (tempfile::TempDir, Arc<Dataset>) {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["images", "labels"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("data.yaml"), "train: images\nval: images\nnames: [a, b]\n").unwrap();
        std::fs::write(dir.path().join("images/a.jpg"), "").unwrap();
        std::fs::write(dir.path().join("labels/a.txt"), rows).unwrap();
        let dataset = Arc::new(Dataset::open(dir.path()).unwrap());
        (dir, dataset)
    }

    #[test]
    fn dropped_rows_have_line_and_reason() {
        let (_dir, dataset) = dataset("0 .5 .5 .2 .2\n7 .5 .5 .2 .2\n1 .5 .5 0 .2\n");
        let found = read(&dataset, 0);
        assert_eq!(found.rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 3]);
        assert!(found.rows[0].reason.contains('7'), "{:?}", found.rows[0]);
        assert!(found.problem.is_none());
    }

    #[test]
    fn rows_hold_for_the_labels_that_they_were_asked_with() {
        let (dir, dataset) = dataset("7 .5 .5 .2 .2\n");
        let (woken, waiting) = bounded(1);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || woken.send(()).unwrap());
        let mut rows = DroppedRows::new(&wake);
        let labels: Arc<[Label]> = Arc::from([]);
        rows.request(&dataset, 0, &labels);
        waiting.recv().unwrap();
        rows.poll();
        assert_eq!(rows.get(&dataset, 0, &labels).unwrap().rows.len(), 1);
        let changed: Arc<[Label]> = Arc::from([]);
        assert!(rows.get(&dataset, 0, &changed).is_none());
        std::fs::write(dir.path().join("labels/a.txt"), "").unwrap();
        rows.request(&dataset, 0, &changed);
        waiting.recv().unwrap();
        rows.poll();
        assert_eq!(rows.get(&dataset, 0, &changed).unwrap().rows, []);
    }
}
