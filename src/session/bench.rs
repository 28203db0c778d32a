//! `boxwright bench`: how fast this machine trains, infers and reads data.

use crate::engine::Device;
use crate::yolo::Model;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchKind {
    Train,
    Infer,
    Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchRequest {
    pub kind: BenchKind,
    pub model: Model,
    pub n_classes: usize,
    pub batch: usize,
    pub imgsz: u32,
    pub device: Device,
    pub repeats: usize,
}
