//! What is in a dataset: images, background images and labels by split and class.
//!
//! Counts what training uses (the verdicts of the parser). Reads label files in parallel, decodes nothing, never writes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::label::Split;
use super::open::{Dataset, DatasetError};

/// The counts of one split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitStatistics {
    pub split: Split,
    pub n_images: usize,
    /// Images without a label that training uses.
    pub n_background: usize,
    /// By class, in the order of `Dataset::names`.
    pub labels_per_class: Vec<usize>,
}

impl SplitStatistics {
    pub fn n_labels(&self) -> usize {
        self.labels_per_class.iter().sum()
    }
}

/// The counts of a dataset: one entry for each of `Split::ALL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    pub splits: [SplitStatistics; 3],
}

impl Statistics {
    pub fn n_images(&self) -> usize {
        self.splits.iter().map(|split| split.n_images).sum()
    }

    pub fn n_labels(&self) -> usize {
        self.splits.iter().map(SplitStatistics::n_labels).sum()
    }
}

/// Counts images and labels; a label file that cannot be read counts as none.
///
/// # Errors
/// `Cancelled` only.
pub fn statistics(dataset: &Dataset, check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync)) -> Result<Statistics, DatasetError> {
    let total = dataset.images.len() as u64;
    let done = AtomicU64::new(0);
    let classes: Vec<Vec<u32>> = dataset
        .images
        .par_iter()
        .map(|image| {
            let labels = dataset.labels(image).unwrap_or_default(); // `check` tells why
            match check_in(done.fetch_add(1, Ordering::Relaxed) + 1, total) {
                ControlFlow::Continue(()) => Ok(labels.iter().map(|label| label.class.0).collect()),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;
    let mut splits = Split::ALL.map(|split| SplitStatistics {
        split,
        n_images: 0,
        n_background: 0,
        labels_per_class: vec![0; dataset.names.len()], //
    });
    for (image, classes) in dataset.images.iter().zip(classes) {
        let Some(counts) = splits.iter_mut().find(|counts| counts.split == image.split) else { continue };
        counts.n_images += 1;
        counts.n_background += usize::from(classes.is_empty());
        for class in classes {
            counts.labels_per_class[class as usize] += 1;
        }
    }
    Ok(Statistics { splits })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::open::tests::folder;
    use super::*;

    #[test]
    fn labels_are_counted_by_split_and_class() {
        let root = folder(&[
            ("data.yaml", "train: images/train\nval: images/val\nnames: [a, b]\n"),
            ("images/train/1.jpg", ""),
            ("images/train/2.jpg", ""),
            ("images/val/3.jpg", ""),
            ("labels/train/1.txt", "1 .5 .5 .2 .2\n1 .5 .5 .1 .1\n0 .5 .5 .2 .2\n0 bad\n"),
            ("labels/val/3.txt", "0 .5 .5 .2 .2\n"),
        ]);
        let statistics = statistics(&Dataset::open(root.path()).unwrap(), &|_, _| ControlFlow::Continue(())).unwrap();
        let counts: Vec<_> =
            statistics.splits.iter().map(|split| (split.n_images, split.n_background, split.labels_per_class.clone())).collect();
        assert_eq!(counts, [(2, 1, vec![1, 2]), (1, 0, vec![1, 0]), (0, 0, vec![0, 0])]);
        assert_eq!((statistics.n_images(), statistics.n_labels()), (3, 4));
    }
}
