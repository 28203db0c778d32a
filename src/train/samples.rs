//! What the averaged network finds on some pictures of the val split, epoch by epoch.
//!
//! In:  the outcome of each validation. Out: `report/epochs/NNN.json` in the run folder, and the same read back.
//!
//! The pictures are the same in every epoch: spread evenly over the split. Never draws; the window does, over the pictures
//! themselves.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::TrainError;
use super::run_folder::write_whole;
use crate::dataset::Dataset;
use crate::eval::ValOutcome;

/// Pictures that are followed.
pub const N_IMAGES: usize = 16;
/// Boxes of a picture that are kept, the best first.
const MAX_BOXES: usize = 100;

/// Detections of an epoch.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct EpochSamples {
    /// Counted from 0.
    pub epoch: usize,
    pub images: Vec<SampleImage>,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SampleImage {
    pub path: PathBuf,
    /// The best score first; those with a score of at least [`crate::eval::validate::SHOWN_SCORE`].
    pub boxes: Vec<SampleBox>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SampleBox {
    pub class: usize,
    pub score: f32,
    /// x1, y1, x2, y2 in pixels of the picture.
    pub corners: [f32; 4],
}

impl EpochSamples {
    /// Takes what a validation found on the pictures that are followed.
    pub fn of(epoch: usize, outcome: &ValOutcome, dataset: &Dataset) -> Self {
        let found = &outcome.detections;
        let n = found.len().min(N_IMAGES);
        let images = (0..n).map(|place| {
            let (index, detections) = &found[place * found.len() / n];
            let mut boxes: Vec<SampleBox> = detections
                .iter()
                .map(|detection| {
                    let bbox = detection.bbox;
                    SampleBox { class: detection.class, score: detection.score, corners: [bbox.x1, bbox.y1, bbox.x2, bbox.y2] }
                })
                .collect();
            boxes.sort_by(|a, b| b.score.total_cmp(&a.score));
            boxes.truncate(MAX_BOXES);
            SampleImage { path: dataset.images[*index].path.clone(), boxes }
        });
        Self { epoch, images: images.collect() }
    }

    /// Writes `report/epochs/NNN.json` of a run folder.
    pub fn write(&self, run_dir: &Path) -> Result<(), TrainError> {
        let folder = folder(run_dir);
        fs::create_dir_all(&folder).map_err(|source| TrainError::Write { path: folder.display().to_string(), source })?;
        let path = path_of(run_dir, self.epoch);
        // Names of files need not be text.
        let text = serde_json::to_string(self)
            .map_err(|error| TrainError::Write { path: path.display().to_string(), source: std::io::Error::other(error) })?;
        write_whole(&path, text.as_bytes())
    }

    /// What an epoch wrote into a run folder; `None` where that is not there or not whole.
    pub fn read(run_dir: &Path, epoch: usize) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(path_of(run_dir, epoch)).ok()?).ok()
    }
}

fn path_of(run_dir: &Path, epoch: usize) -> PathBuf {
    folder(run_dir).join(format!("{epoch:03}.json"))
}

fn folder(run_dir: &Path) -> PathBuf {
    run_dir.join("report").join("epochs")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::sample;
    use crate::dataset::sample::SampleOptions;
    use crate::geom::Xyxy;
    use crate::geom::nms::Detection;
    use std::ops::ControlFlow;

    #[test]
    fn the_same_pictures_are_followed_and_come_back_by_epoch() {
        let root = tempfile::tempdir().unwrap();
        let options = SampleOptions { n_images: 40, size: 64, ..SampleOptions::default() };
        sample::write_sample(&root.path().join("data"), &options, &|_, _| ControlFlow::Continue(())).unwrap();
        let dataset = Dataset::open(&root.path().join("data")).unwrap();
        let detection = |score: f32| Detection { bbox: Xyxy::new(1.0, 2.0, 3.0, 4.0), class: 1, score };
        let detections = (0..dataset.images.len()).map(|index| (index, vec![detection(0.3), detection(0.9)])).collect();
        let outcome = ValOutcome { detections, ..ValOutcome::default() };

        let samples = |epoch| EpochSamples::of(epoch, &outcome, &dataset);
        for epoch in [10, 2] {
            samples(epoch).write(root.path()).unwrap();
        }
        fs::write(folder(root.path()).join("011.json"), "{\"epoch\"").unwrap();
        let read = [2, 10, 11, 12].map(|epoch| EpochSamples::read(root.path(), epoch));
        assert_eq!(read, [Some(samples(2)), Some(samples(10)), None, None]);
        let first = samples(0);
        assert_eq!(first.images.len(), N_IMAGES);
        let paths: std::collections::BTreeSet<_> = first.images.iter().map(|image| image.path.clone()).collect();
        assert_eq!(paths.len(), N_IMAGES);
        let scores: Vec<f32> = first.images[0].boxes.iter().map(|found| found.score).collect();
        assert_eq!(scores, [0.9, 0.3]);
        assert!(EpochSamples::of(0, &ValOutcome::default(), &dataset).images.is_empty());
    }
}
