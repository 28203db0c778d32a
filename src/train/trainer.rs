//! The training loop.

use std::ops::ControlFlow;

use super::config::TrainConfig;
use super::event::{TrainEvent, TrainSummary};

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Dataset(#[from] crate::dataset::DatasetError),
    #[error(transparent)]
    Val(#[from] crate::eval::validate::ValError),
    #[error(transparent)]
    Weights(#[from] crate::yolo::weights::WeightsError),
    #[error("cannot write {path}")]
    Write { path: String, source: std::io::Error },
}

impl TrainError {
    pub fn hint(&self) -> Option<String> {
        None
    }
}

/// Trains. `sink` gets every event; when it breaks, training stops after the step and leaves a valid run folder.
pub fn train(config: &TrainConfig, sink: &mut dyn FnMut(TrainEvent) -> ControlFlow<()>) -> Result<TrainSummary, TrainError> {
    let _ = (config, sink);
    todo!("train")
}
