//! What training tells while it runs; the same values are the lines of `events.jsonl`.

use std::path::PathBuf;

use crate::eval::Metrics;

/// Known before the first step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TrainPlan {
    pub run_dir: PathBuf,
    pub n_train_images: usize,
    pub n_val_images: usize,
    pub n_labels: usize,
    pub steps_per_epoch: usize,
    pub n_parameters: usize,
    /// Peak memory of a training step, planned.
    pub planned_bytes: u64,
    /// Images and rows that will not be used, with the reason.
    pub dropped: Vec<String>,
}

/// After a batch.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct StepReport {
    pub epoch: usize,
    pub step: usize,
    pub box_loss: f32,
    pub cls_loss: f32,
    pub dfl_loss: f32,
    pub lr: f64,
    pub grad_norm: f32,
    pub images_per_sec: f32,
}

/// After an epoch and its validation.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochReport {
    pub epoch: usize,
    /// Means over the epoch.
    pub box_loss: f32,
    pub cls_loss: f32,
    pub dfl_loss: f32,
    pub metrics: Metrics,
    /// Learning rate of the three optimizer groups.
    pub lr: [f64; 3],
    pub secs: f64,
}

/// At the end, also after a stop.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainSummary {
    pub run_dir: PathBuf,
    pub epochs_done: usize,
    pub stopped: bool,
    pub best_epoch: usize,
    /// Of the best weights.
    pub metrics: Metrics,
    pub peak_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TrainEvent {
    Plan(TrainPlan),
    Step(StepReport),
    Epoch(EpochReport),
    /// Something worth telling that does not stop the run.
    Note(String),
}
