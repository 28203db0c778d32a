//! What can go wrong in a training run, and what the person can do about it.

use std::path::PathBuf;

use super::config::ConfigError;
use crate::eval::validate::ValError;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Dataset(#[from] crate::dataset::DatasetError),
    #[error(transparent)]
    Val(#[from] ValError),
    #[error(transparent)]
    Weights(#[from] crate::yolo::weights::WeightsError),
    #[error("none of the {n_images} images of the train split can be used; the first: {reason}")]
    NoTrainImages { n_images: usize, reason: String },
    #[error("the train split has {n_images} images but not one label")]
    NoLabels { n_images: usize },
    #[error("training runs on the CPU in this version, not on GPU {index}")]
    Device { index: usize },
    #[error("only {taken} of {total} parameters can be taken from these weights: {reason}\nFile: {path:?}")]
    Transfer { taken: usize, total: usize, reason: String, path: PathBuf },
    #[error("step {step} of epoch {epoch}: the {what} is {value}; the weights before it are in {weights}")]
    Diverged { epoch: usize, step: usize, what: &'static str, value: f32, weights: String },
    #[error("cannot write {path}")]
    Write { path: String, source: std::io::Error },
    #[error("cannot start a thread for reading pictures")]
    Thread { source: std::io::Error },
    /// Before the first step; nothing was written.
    #[error("cancelled")]
    Cancelled,
}

impl TrainError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => Some(error.hint()),
            Self::Dataset(error) => error.hint(),
            Self::Val(error) => error.hint(),
            Self::Weights(error) => error.hint(),
            Self::NoTrainImages { .. } => Some("`boxwright check` lists what is wrong with each picture".into()),
            Self::NoLabels { .. } => Some("label some pictures first, or see with `boxwright check` where labels are looked for".into()),
            Self::Device { .. } => Some("use --device cpu".into()),
            Self::Transfer { .. } => Some("name the model that the weights belong to with --model, or leave --weights out".into()),
            Self::Diverged { .. } => Some("lower the learning rate: `lr0` in a file for --hyp, a half or a tenth of what it was".into()),
            Self::Write { source, .. } => Some(match source.kind() {
                std::io::ErrorKind::StorageFull => "the disk is full: free some space, or choose another with --project".into(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    "no permission to write there: choose another folder with --project".into()
                }
                _ => "choose another folder with --project".into(),
            }),
            Self::Cancelled => None,
            Self::Thread { .. } => Some("the system has no threads left: end some programs".into()),
        }
    }
}
