//! Where a run is: everything that its loop remembers from one step to the next, beside the numbers on the device.
//!
//! In:  what steps and validations gave. Out: plain data that is saved with the state and read back by a resume.
//!
//! Never touches weights or files.

use super::live::EpochSums;
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
    /// Of its other figures.
    #[serde(default)]
    pub figures: EpochSums,
    /// What this epoch took so far, without pauses.
    pub epoch_secs: f64,
    /// Norm of the gradient at the last update that was made.
    pub grad_norm: f32,
    /// Updates left out since then.
    pub n_skipped: usize,
    /// Epochs with their validation.
    pub epochs_done: usize,
    pub best: Option<Best>,
    /// Figures of the last validation of an epoch.
    #[serde(default)]
    pub newest: Option<Metrics>,
    /// Epoch from which on patience counts, where it began anew.
    pub waits_since: usize,
    /// Images of the train set, which say what a position means.
    pub n_images: usize,
}

impl Progress {
    /// Epochs since the best one, or since patience began anew.
    pub fn n_waited(&self) -> usize {
        let since = self.best.as_ref().map_or(0, |best| best.epoch).max(self.waits_since);
        self.epochs_done.saturating_sub(1 + since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_counts_from_the_best_epoch_or_from_where_it_began_anew() {
        let progress = |epochs_done, waits_since| {
            let best = Some(Best { epoch: 3, metrics: Metrics::default() });
            Progress { epochs_done, best, waits_since, ..Progress::default() }
        };
        assert_eq!([progress(4, 0), progress(5, 0), progress(9, 0), progress(9, 8)].map(|progress| progress.n_waited()), [0, 1, 5, 0]);
        assert_eq!(Progress::default().n_waited(), 0);
    }
}
