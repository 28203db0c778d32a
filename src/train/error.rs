//! What can go wrong in a training run, and what the person can do about it.

use std::path::PathBuf;

use super::config::ConfigError;
use crate::engine::cuda::error::CudaError;
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
    #[error("{n_broken} of {n_images} images of the train split cannot be used; the first: {first}")]
    ManyBroken { n_broken: usize, n_images: usize, first: String },
    #[error("the train split has {n_images} images but not one label")]
    NoLabels { n_images: usize },
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error(
        "a batch of {batch} needs {} of the GPU's memory, of which {} are free and a tenth stays free; {}",
        gib(*needed),
        gib(*free),
        if *largest == 0 { "not even one picture of this size fits".to_owned() } else { format!("the largest that fits is {largest}") }
    )]
    BatchTooLarge {
        batch: usize,
        needed: usize,
        free: usize,
        /// 0: not even one picture.
        largest: usize,
        /// Pictures that gradients are accumulated to; 0: every batch is a step of its own.
        nominal: usize,
    },
    #[error("only {taken} of {total} parameters can be taken from these weights: {reason}\nFile: {path:?}")]
    Transfer { taken: usize, total: usize, reason: String, path: PathBuf },
    #[error("step {step} of epoch {epoch}: the {what} is {value}; the weights before it are in {weights}")]
    Diverged { epoch: usize, step: usize, what: &'static str, value: f32, weights: String },
    #[error("there is no run that could go on\nFile: {path:?}")]
    NoRun { path: PathBuf, source: std::io::Error },
    #[error("the record of this run cannot be read: {reason}\nFile: {path:?}")]
    Record { reason: String, path: PathBuf },
    #[error("the state of this run cannot be used: {reason}\nFile: {path:?}")]
    State { reason: String, path: PathBuf },
    #[error("this run has finished its {epochs} epochs\nFile: {path:?}")]
    Finished { epochs: usize, path: PathBuf },
    #[error("{done} epochs of this run are done, and {asked} were asked for in all")]
    EpochsDone { done: usize, asked: usize },
    #[error("the dataset is not the one that this run was begun with: {what}\nFile: {path:?}")]
    DatasetChanged { what: String, path: PathBuf },
    #[error("this run is being trained by {owner}\nFile: {path:?}")]
    InUse { owner: String, path: PathBuf },
    #[error("the factor for the learning rate is {scale}, expected more than 0")]
    LrScale { scale: f64 },
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
            Self::ManyBroken { .. } => Some("`boxwright check` lists what is wrong with each; --allow-broken trains without them".into()),
            Self::NoLabels { .. } => Some("label some pictures first, or see with `boxwright check` where labels are looked for".into()),
            Self::Cuda(error) => error.hint().map(Into::into),
            Self::BatchTooLarge { largest: 0, .. } => {
                Some("take a smaller --imgsz or --model, or end what else uses the GPU (`nvidia-smi` shows it)".into())
            }
            Self::BatchTooLarge { batch, largest, nominal, .. } => Some(accumulation_hint(*batch, *largest, *nominal)),
            Self::Transfer { taken: 0, .. } => {
                Some("name the model that the weights belong to with --model, or leave --weights out".into())
            }
            Self::Transfer { .. } => {
                Some("name the model that the weights belong to with --model, or take what fits with --allow-partial".into())
            }
            Self::Diverged { .. } => {
                Some("go on from the last good state with a lower learning rate: `boxwright train --resume --lr-scale 0.5`".into())
            }
            Self::NoRun { .. } => Some("name the run's folder, as in `--resume runs/train`, or the folder of runs with --project".into()),
            Self::Record { .. } => {
                Some("use the version of Boxwright that began it, or begin a new run from its weights with --weights".into())
            }
            Self::State { .. } => Some("begin a new run from its weights: `--weights` with weights/last.safetensors of this run".into()),
            Self::Finished { .. } => Some("give the number of all epochs with --epochs to go on, such as twice as many".into()),
            Self::EpochsDone { done, .. } => Some(format!("give --epochs more than {done}")),
            Self::DatasetChanged { .. } => {
                Some("undo the changes to go on exactly, or begin a new run from its weights with --weights".into())
            }
            Self::InUse { .. } => Some("wait for it, stop it, or look at it in the window meanwhile".into()),
            Self::LrScale { .. } => Some("give --lr-scale a number such as 0.5".into()),
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

fn gib(bytes: usize) -> String {
    // What cannot be counted cannot be planned either.
    if bytes == usize::MAX { "too much".to_owned() } else { format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)) }
}

/// What the largest batch that fits would mean for the updates.
fn accumulation_hint(batch: usize, largest: usize, nominal: usize) -> String {
    let batches = nominal.div_ceil(largest.max(1));
    if nominal > largest {
        format!(
            "use --batch {largest} or --batch auto: gradients are then accumulated over {batches} batches, to {nominal} pictures an update"
        )
    } else if nominal > 0 {
        format!("use --batch {largest} or --batch auto: every batch is then an update")
    } else {
        let batches = batch.div_ceil(largest.max(1));
        format!(
            "use --batch {largest} or --batch auto; with `nominal_batch: {batch}` in a file for --hyp, gradients of {batches} such batches \
             are accumulated to the update that you asked for"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_too_large_says_what_fits_and_what_it_means() {
        let error = |batch, largest, nominal| TrainError::BatchTooLarge { batch, needed: 30 << 30, free: 16 << 30, largest, nominal };
        let text = error(64, 40, 64).to_string();
        assert!(text.contains("a batch of 64 needs 30.0 GiB") && text.contains("16.0 GiB are free"), "{text}");
        assert!(text.ends_with("the largest that fits is 40"), "{text}");
        let hint = |error: TrainError| error.hint().unwrap_or_default();
        assert!(hint(error(64, 40, 64)).contains("accumulated over 2 batches, to 64 pictures"));
        assert!(hint(error(128, 80, 64)).contains("every batch is then an update"));
        assert!(hint(error(64, 20, 0)).contains("`nominal_batch: 64`") && hint(error(64, 20, 0)).contains("of 4 such batches"));
        assert!(error(1, 0, 64).to_string().contains("not even one picture"));
        assert!(hint(error(1, 0, 64)).contains("--imgsz"));
    }
}
