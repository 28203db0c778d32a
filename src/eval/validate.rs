//! Validation: a network over a split of a dataset.

use std::ops::ControlFlow;

use super::ap::Metrics;
use crate::dataset::{Dataset, Split};
use crate::engine::Device;
use crate::yolo::Network;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValOptions {
    pub split: Split,
    pub imgsz: u32,
    pub batch: usize,
    pub conf: f32,
    pub iou: f32,
    pub max_detections: usize,
    pub device: Device,
}

impl ValOptions {
    /// The published values for validation.
    pub fn new(split: Split, imgsz: u32) -> Self {
        Self { split, imgsz, batch: 16, conf: 0.001, iou: 0.7, max_detections: 300, device: Device::Cpu }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ValError {
    #[error(transparent)]
    Dataset(#[from] crate::dataset::DatasetError),
    #[error("the {split} split of {dataset} has no images")]
    EmptySplit { split: &'static str, dataset: String },
    #[error("none of the {n_images} images of the {split} split can be decoded; the first: {reason}")]
    NothingDecodes { split: &'static str, n_images: usize, reason: String },
    #[error("the weights know {weights} classes, the dataset names {dataset}")]
    ClassCount { weights: usize, dataset: usize },
    #[error("validation runs on the CPU in this version, not on GPU {index}")]
    Device { index: usize },
    #[error("cancelled")]
    Cancelled,
}

impl ValError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Dataset(error) => error.hint(),
            Self::EmptySplit { split, .. } => Some(format!("give `{split}:` in data.yaml a folder with pictures, or name another split")),
            Self::NothingDecodes { .. } => Some("`boxwright check` lists what is wrong with each picture".into()),
            Self::ClassCount { .. } => Some("use weights that were trained on this dataset, or a dataset with the same `names`".into()),
            Self::Device { .. } => Some("use --device cpu".into()),
            Self::Cancelled => None,
        }
    }
}

/// Runs the network (any form) over the split: rectangular batches, padding 0.5 stride, as published.
/// Images that do not decode are left out and listed in the second result.
pub fn validate(
    network: &Network,
    dataset: &Dataset,
    options: &ValOptions,
    check_in: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<(Metrics, Vec<String>), ValError> {
    let _ = (network, dataset, options, check_in);
    todo!("eval")
}
