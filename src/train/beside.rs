//! The validation of an epoch beside the first steps of the next one.
//!
//! In:  the averaged network as it was when the epoch ended, and what of it is to be kept.
//! Out: written weights and the outcome of the validation, from a thread of its own.
//!
//! A GPU with a small dataset would stand still for as long as it works otherwise: validations are short, but so are epochs.
//! Nothing that a step computes depends on the validation before it is taken in, so training gives the same numbers. Never
//! tells anything itself.

use std::io;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crossbeam_channel::Receiver;
use crossbeam_channel::bounded;

use super::error::TrainError;
use super::live::EpochSums;
use super::samples::EpochSamples;
use super::stepper::Average;
use crate::dataset::Dataset;
use crate::eval::Metrics;
use crate::eval::ValOutcome;
use crate::eval::Validator;
use crate::yolo::weights;
use crate::yolo::weights::WeightsInfo;

/// What the steps of an epoch leave to be told with its validation.
pub(super) struct Closing {
    pub(super) epoch: usize,
    pub(super) sums: [f64; 3],
    pub(super) figures: EpochSums,
    pub(super) secs: f64,
    pub(super) lr: [f64; 3],
}

/// What is to be done.
pub(super) struct Order {
    pub(super) epoch: usize,
    pub(super) average: Average,
    pub(super) validator: Validator,
    pub(super) dataset: Arc<Dataset>,
    pub(super) run_dir: PathBuf,
    pub(super) info: WeightsInfo,
    /// Where the weights are kept whatever they are worth, the file that the next epoch replaces last.
    pub(super) kept: Vec<PathBuf>,
    /// Where they are kept if they are as good as that fitness.
    pub(super) best: (PathBuf, f64),
}

/// What came of it.
pub(super) struct Validated {
    pub(super) validator: Validator,
    pub(super) found: Result<Found, TrainError>,
}

/// What a validation gives an epoch to tell.
pub(super) struct Found {
    pub(super) metrics: Metrics,
    /// Detections on some pictures of the val split.
    pub(super) samples: Arc<EpochSamples>,
}

impl Found {
    /// Of an outcome; the samples are kept in the run folder.
    pub(super) fn of(outcome: ValOutcome, epoch: usize, dataset: &Dataset, run_dir: &Path) -> Result<Self, TrainError> {
        let samples = EpochSamples::of(epoch, &outcome, dataset);
        samples.write(run_dir)?;
        Ok(Self { metrics: outcome.metrics, samples: Arc::new(samples) })
    }
}

/// A validation on its way. Dropping it stops it.
pub(super) struct Beside {
    /// `None` once it is taken in.
    closing: Option<Closing>,
    thread: Option<JoinHandle<Validated>>,
    stops: Arc<AtomicBool>,
    progress: Receiver<(u64, u64)>,
}

impl Beside {
    pub(super) fn start(closing: Closing, order: Order) -> Result<Self, TrainError> {
        let stops = Arc::new(AtomicBool::new(false));
        let (sender, progress) = bounded(1);
        let is_stopped = Arc::clone(&stops);
        let work = move || {
            let check_in = |done, total| {
                // Who does not listen does not miss it.
                sender.try_send((done, total)).ok();
                if is_stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let Order { epoch, average, mut validator, dataset, run_dir, info, kept, best: (best_path, fitness) } = order;
            let carry_out = || {
                let network = average.network()?;
                // The disk works beside the GPU.
                let keep = || kept.iter().try_for_each(|path| weights::save(path, &network, &info));
                let (saved, outcome) = rayon::join(keep, || validator.run(&network, &check_in));
                saved?;
                let outcome = outcome?;
                if outcome.metrics.fitness() >= fitness {
                    let linked = kept.last().map_or(Err(ErrorKind::NotFound.into()), |kept| link(kept, &best_path));
                    if linked.is_err() {
                        weights::save(&best_path, &network, &info)?;
                    }
                }
                Found::of(outcome, epoch, &dataset, &run_dir)
            };
            let found = carry_out();
            Validated { validator, found }
        };
        let thread = std::thread::Builder::new().name("validation".to_owned()).spawn(work);
        let thread = thread.map_err(|source| TrainError::Thread { source })?;
        Ok(Self { closing: Some(closing), thread: Some(thread), stops, progress })
    }

    /// Whether taking it in would not wait.
    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the outcome; `tell` hears of the batches meanwhile.
    pub(super) fn take(mut self, tell: &mut dyn FnMut(u64, u64)) -> (Closing, Validated) {
        // Ends when the thread lets its end go.
        self.progress.iter().for_each(|(done, total)| tell(done, total));
        let validated = self.thread.take().expect("it was not joined before").join();
        let validated = validated.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (self.closing.take().expect("it was not taken before"), validated)
    }
}

/// Gives a file that was written whole a second name, in place of whatever has it. Files of weights are never changed in place, so each
/// name keeps its content.
fn link(file: &Path, name: &Path) -> io::Result<()> {
    let new = name.with_extension("linking");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::hard_link(file, &new)?;
    std::fs::rename(&new, name)
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        // What it found is of no use any more, but its files belong to the run.
        self.thread.take().map(JoinHandle::join);
    }
}
