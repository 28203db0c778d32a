//! Everything a person can choose about a training run.

use std::path::PathBuf;

use crate::engine::Device;
use crate::yolo::Model;

/// Hyper-parameters, named as in the published `hyp.*.yaml`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hyp {
    pub lr0: f64,
    pub lrf: f64,
    pub momentum: f64,
    pub weight_decay: f64,
    pub warmup_epochs: f64,
    pub warmup_momentum: f64,
    pub warmup_bias_lr: f64,
    #[serde(rename = "box")]
    pub box_gain: f64,
    pub cls: f64,
    pub dfl: f64,
    pub hsv_h: f64,
    pub hsv_s: f64,
    pub hsv_v: f64,
    pub flipud: f64,
    pub fliplr: f64,
    /// Batch that gradients are accumulated to (ours; 64 in the published trainer).
    pub nominal_batch: usize,
}

/// One training run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    pub data: PathBuf,
    pub model: Model,
    /// Weights to start from.
    pub weights: Option<PathBuf>,
    pub epochs: usize,
    pub batch: usize,
    pub imgsz: u32,
    pub device: Device,
    pub project: PathBuf,
    pub name: String,
    pub hyp: Hyp,
    pub seed: u64,
}
