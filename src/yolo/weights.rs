//! Weight files: safetensors with upstream names, OIHW, and what the network needs to know in the metadata.

use std::path::Path;

use super::network::Network;

/// What a weight file says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightsInfo {
    pub class_names: Vec<String>,
    /// Side of the square input that it was trained with.
    pub imgsz: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot read weights {path}")]
    Io { path: String, source: std::io::Error },
    #[error("{path} is not a Boxwright weight file: {reason}")]
    Format { path: String, reason: String },
}

impl WeightsError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

/// Writes a network; atomic (temporary name, fsync, rename).
pub fn save(path: &Path, network: &Network, info: &WeightsInfo) -> Result<(), WeightsError> {
    let _ = (path, network, info);
    todo!("yolo")
}

/// Reads a network of any model, form and class count that this program wrote.
pub fn load(path: &Path) -> Result<(Network, WeightsInfo), WeightsError> {
    let _ = path;
    todo!("yolo")
}
