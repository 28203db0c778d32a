//! Where a run is: everything that its loop remembers from one step to the next, beside the numbers on the device.
//!
//! In:  what steps and validations gave. Out: plain data that is saved with the state and read back by a resume.
//!
//! Never touches weights or files.

use crate::eval::Metrics;

/// The best epoch so far.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Best {
    pub epoch: usize,
    pub metrics: Metrics,
}

/// Where a run is.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// Position of the next batch, counted over all epochs: the steps done so far.
    pub step: usize,
    /// Steps up to and with the last one after which gradients were applied.
    pub last_update: usize,
    /// Of the losses of this epoch.
    pub sums: [f64; 3],
    /// What this epoch took so far, without pauses.
    pub epoch_secs: f64,
    /// Norm of the gradient at the last update that was made.
    pub grad_norm: f32,
    /// Updates left out since then.
    pub n_skipped: usize,
    /// Epochs with their validation.
    pub epochs_done: usize,
    pub best: Option<Best>,
}
