//! Weights for other programs: ONNX and safetensors, each checked after writing.

pub mod onnx;
pub mod onnx_proto;

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Onnx,
    Safetensors,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExportReport {
    pub path: PathBuf,
    pub size_bytes: u64,
    /// What was checked after writing, in words with figures.
    pub checks: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Weights(#[from] crate::yolo::weights::WeightsError),
    #[error("cannot write {path}")]
    Write { path: String, source: std::io::Error },
    #[error("the exported file differs: {reason}")]
    Parity { reason: String },
}

/// Exports the deploy form of `weights`. ONNX: input `images` (batch, 3, imgsz, imgsz), output `output0` (batch, 4 + nc, N).
pub fn export(weights: &Path, format: ExportFormat, out: &Path) -> Result<ExportReport, ExportError> {
    let _ = (weights, format, out);
    todo!("export")
}
