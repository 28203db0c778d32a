//! What do the stages of the loader take? So that the slowest one can be named.
//!
//! In:  durations, added by the loader's threads and by who takes its batches.
//! Out: sums since the start; the difference of two readings is what happened between.
//!
//! Never measures by itself, and never decides anything.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Nanoseconds that threads add up.
#[derive(Debug, Default)]
pub(super) struct Sum(AtomicU64);

impl Sum {
    pub(super) fn add(&self, duration: Duration) {
        self.0.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    fn secs(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// Counts while a loader runs.
#[derive(Debug, Default)]
pub struct LoaderClock {
    pub(super) n_samples: AtomicU64,
    pub(super) decode: Sum,
    pub(super) augment: Sum,
    pub(super) full: Sum,
    pub(super) wait: Sum,
}

/// A reading of the clock; seconds, of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoaderStats {
    pub n_samples: u64,
    /// Threads of the loader read, decoded and fitted pictures that are not kept in memory.
    pub decode_secs: f64,
    /// They drew, composed and painted samples.
    pub augment_secs: f64,
    /// They waited because enough finished batches waited.
    pub full_secs: f64,
    /// Who takes the batches waited for one.
    pub wait_secs: f64,
}

impl LoaderClock {
    pub fn read(&self) -> LoaderStats {
        LoaderStats {
            n_samples: self.n_samples.load(Ordering::Relaxed),
            decode_secs: self.decode.secs(),
            augment_secs: self.augment.secs(),
            full_secs: self.full.secs(),
            wait_secs: self.wait.secs(),
        }
    }
}

impl LoaderStats {
    /// What happened since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            n_samples: self.n_samples - earlier.n_samples,
            decode_secs: self.decode_secs - earlier.decode_secs,
            augment_secs: self.augment_secs - earlier.augment_secs,
            full_secs: self.full_secs - earlier.full_secs,
            wait_secs: self.wait_secs - earlier.wait_secs,
        }
    }

    /// The stage that a training of `secs` seconds waits for, in words.
    ///
    /// It is the step as long as a batch was nearly always ready.
    pub fn slowest_stage(&self, secs: f64) -> &'static str {
        /// Share of the time that waiting for data may take.
        const LITTLE: f64 = 0.05;
        if self.wait_secs <= LITTLE * secs {
            "the training step"
        } else if self.decode_secs > self.augment_secs {
            "reading and decoding pictures"
        } else {
            "augmenting pictures"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_the_slowest_stage_is_named() {
        let clock = LoaderClock::default();
        clock.wait.add(Duration::from_millis(40));
        clock.decode.add(Duration::from_millis(500));
        let first = clock.read();
        assert_eq!(first.slowest_stage(1.0), "the training step");
        clock.wait.add(Duration::from_millis(100));
        clock.augment.add(Duration::from_millis(800));
        let second = clock.read();
        assert_eq!(second.slowest_stage(1.0), "augmenting pictures");
        let between = second.since(&first);
        assert!((between.wait_secs - 0.1).abs() < 1e-9 && between.decode_secs == 0.0);
        assert_eq!(
            LoaderStats { wait_secs: 0.5, decode_secs: 2.0, augment_secs: 1.0, ..first }.slowest_stage(1.0),
            "reading and decoding pictures"
        );
    }
}
