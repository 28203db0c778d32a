//! A loaded detector: weights in deploy form, and an executor for each input shape met.

use std::path::Path;

use crate::engine::Device;
use crate::geom::Size;
use crate::geom::nms::Detection;
use crate::media::Picture;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectOptions {
    pub conf: f32,
    pub iou: f32,
    pub max_detections: usize,
    /// `None`: the size that the weights were trained with.
    pub imgsz: Option<u32>,
}

impl Default for DetectOptions {
    /// The published values for detection.
    fn default() -> Self {
        Self { conf: 0.25, iou: 0.45, max_detections: 1000, imgsz: None }
    }
}

/// Detections of one picture in its own pixels, and what each stage took.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureDetections {
    pub size: Size,
    pub detections: Vec<Detection>,
    pub letterbox_ms: f32,
    pub network_ms: f32,
    pub nms_ms: f32,
}

#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    #[error(transparent)]
    Weights(#[from] crate::yolo::weights::WeightsError),
    #[error(transparent)]
    Media(#[from] crate::media::MediaError),
    #[error("no pictures at {path}")]
    NoPictures { path: String },
    #[error("cancelled")]
    Cancelled,
}

/// A detector ready to run.
pub struct Detector {
    pub class_names: Vec<String>,
    pub imgsz: u32,
}

impl Detector {
    pub fn load(weights: &Path, device: Device) -> Result<Self, DetectError> {
        let _ = (weights, device);
        todo!("detect")
    }

    /// Detects on one picture; the letterbox is the smallest rectangle of the stride (`auto`).
    pub fn detect(&mut self, picture: &Picture, options: &DetectOptions) -> PictureDetections {
        let _ = (picture, options);
        todo!("detect")
    }
}
