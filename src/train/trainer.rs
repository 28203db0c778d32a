//! The training loop.
//!
//! In:  a configuration, and a sink for events.
//! Out: a run folder with weights and figures; a summary.
//!
//! Everything that can fail for a reason the person can mend fails before the run folder is made: device, dataset, splits,
//! start weights. Then the plan is told in figures, then the first step runs. A stop ends after the current batch (or the
//! current batch of the validation) and leaves whole files.
//!
//! Differs from the published trainer in two places on purpose: gradients that are accumulated over the end of an epoch are
//! kept, not dropped, and new weights are not rounded to half precision once at the start.
//!
//! Never touches pixels: the loader does. Source: spec 7.

use std::cell::RefCell;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::batch_size::Fit;
use super::config::BatchChoice;
use super::config::Hyp;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::EpochReport;
use super::event::StepReport;
use super::event::TrainEvent;
use super::event::TrainPlan;
use super::event::TrainStage;
use super::event::TrainSummary;
use super::loader;
use super::loader::Loader;
use super::loader::LoaderOptions;
use super::memory;
use super::report;
use super::run_folder::Kept;
use super::run_folder::RunFolder;
use super::run_folder::RunRecord;
use super::schedule::Schedule;
use super::stepper::StepOutcome;
use super::stepper::StepSpec;
use super::stepper::Stepper;
use super::train_set::TrainSet;
use crate::dataset::Dataset;
use crate::dataset::Split;
use crate::engine::Device;
use crate::engine::Params;
use crate::engine::cuda;
use crate::eval::Metrics;
use crate::eval::ValOptions;
use crate::eval::ValOutcome;
use crate::eval::Validator;
use crate::eval::validate::ValError;
use crate::yolo::Network;
use crate::yolo::weights;
use crate::yolo::weights::WeightsInfo;

/// Share of the parameters that start weights must give.
const MIN_TRANSFER: f64 = 0.5;
/// Share of broken pictures from which the note about them is a warning.
const MANY_BROKEN: f64 = 0.01;
/// Updates in a row that may be left out while the loss scale of fp16 comes down: from its first value to far below 1.
const MAX_SKIPPED: usize = 40;

/// Where events go. A stop is asked for by breaking.
pub type Sink<'a> = dyn FnMut(TrainEvent) -> ControlFlow<()> + 'a;

/// Trains. `sink` gets every event; when it breaks, training stops after the step and leaves a valid run folder.
///
/// # Errors
/// See [`TrainError`]; before the first step nothing is left on disk, afterwards the run folder stays valid.
pub fn train(config: &TrainConfig, sink: &mut Sink) -> Result<TrainSummary, TrainError> {
    let (config, mut notes) = config.checked()?;
    if let Device::Cuda(index) = config.device {
        cuda::open(index)?;
    }
    let dataset = Dataset::open(&config.data)?;
    notes.extend(dataset.notes.iter().cloned());

    // Half of what is free for pictures: the other half is for the step, and for everybody else.
    let keep_bytes = memory::available_bytes() / 2;
    let val_options = ValOptions { device: config.device, ..ValOptions::new(Split::Val, config.imgsz) };
    let mut validator = Validator::new(&dataset, val_options, usize::try_from(keep_bytes / 8).unwrap_or(usize::MAX))?;
    let mut network = start_network(&config, &dataset, &mut notes)?;
    let mut preparing = |done, total| sink(TrainEvent::Progress { stage: TrainStage::Preparing, done, total });
    let Some(set) = TrainSet::read(&dataset, config.imgsz, keep_bytes, &mut preparing)? else {
        return Err(TrainError::Cancelled);
    };
    let (hyp, hyp_notes) = config.resolve_hyp(set.images.len())?;
    notes.extend(hyp_notes);
    if let Some(side) = set.median_side().filter(|_| hyp.fit_first_boxes && config.weights.is_none()) {
        network.start_with_boxes_of(side);
    }
    notes.extend(picture_notes(&set, &validator));

    let spec = StepSpec { side: set.imgsz as usize, truth_rows: set.truth_rows(), hyp: hyp.clone(), weight_decay: 0.0 };
    let fit = Fit { network: &network, spec: &spec, set: &set, device: config.device };
    let batch = match config.batch {
        BatchChoice::Count(batch) => {
            fit.check(batch, &mut validator)?;
            batch
        }
        BatchChoice::Auto => {
            let batch = fit.largest(&mut validator)?;
            notes.push(format!("batch {batch}, the largest that fits (`auto`)"));
            batch
        }
    };
    let schedule = Schedule::new(&hyp, batch, loader::batches_per_epoch(set.images.len(), batch), config.epochs);
    let n_parameters = n_trained(&network.params);
    let spec = StepSpec { weight_decay: schedule.weight_decay(), ..spec };
    let mut stops = false;
    let stepper = Stepper::new(network, spec, &loader::batch_sizes(set.images.len(), batch), config.device, &mut |done, total| {
        stops |= sink(TrainEvent::Progress { stage: TrainStage::Planning, done: done as u64, total: total as u64 }).is_break();
    })?;
    if stops {
        return Err(TrainError::Cancelled);
    }
    if let Some(reason) = stepper.fallback() {
        notes.push(format!("WARNING: the GPU's work cannot be captured as a graph and is given to it piece by piece: {reason}"));
    }

    let folder = RunFolder::create(&config.project, &config.name)?;
    folder.write_record(&RunRecord::new(&config, batch, &hyp, &dataset))?;
    let reporter = Reporter { folder, sink, stopped: false };
    let mut run = Run {
        config: &config,
        hyp: &hyp,
        dataset: &dataset,
        batch,
        set: Arc::new(set),
        validator,
        reporter,
        schedule,
        stepper,
        n_parameters,
        submitted: VecDeque::new(),
        sums: [0.0; 3],
        last_report: Instant::now(),
        grad_norm: 0.0,
        n_skipped: 0,
        epochs_done: 0,
        best: None,
    };
    run.tell_plan(&notes)?;
    let result = run.steps().and_then(|()| run.finish());
    if let Err(error) = &result {
        let line = serde_json::json!({"event": "error", "text": error.to_string()});
        // The disk may be what failed; the error itself is returned.
        run.reporter.folder.write_event(&line).ok();
    }
    result
}

/// A new network, or one that starts from weights.
fn start_network(config: &TrainConfig, dataset: &Dataset, notes: &mut Vec<String>) -> Result<Network, TrainError> {
    let mut network = Network::new(config.model, dataset.names.len(), config.seed);
    if let Some(path) = &config.weights {
        let (source, _) = weights::load(path)?;
        let report = weights::transfer(&mut network, &source);
        let total = report.taken + report.skipped.len();
        let reason = report.skipped.first().map(|(name, reason)| format!("{name}: {reason}")).unwrap_or_default();
        if (report.taken as f64) < MIN_TRANSFER * total as f64 {
            return Err(TrainError::Transfer { taken: report.taken, total, reason, path: path.clone() });
        }
        let skipped = match report.skipped.len() {
            0 => String::new(),
            1 => format!("; left as new: {reason}"),
            n => format!("; {n} left as new, the first is {reason}"),
        };
        notes.push(format!("start weights {}: {} of {total} parameters taken{skipped}", path.display(), report.taken));
    }
    Ok(network)
}

/// What is worth telling about pictures that are left out or do not fit into memory.
fn picture_notes(set: &TrainSet, validator: &Validator) -> Vec<String> {
    let mut notes = Vec::new();
    let (broken, all) = (set.dropped.len(), set.dropped.len() + set.images.len());
    if broken as f64 > MANY_BROKEN * all as f64 {
        notes.push(format!(
            "WARNING: {broken} of {all} training images cannot be read; look at them with `boxwright check` before you trust this run"
        ));
    }
    notes.extend(set.dropped.iter().chain(validator.dropped()).map(|reason| format!("left out: {reason}")));
    if validator.n_labels() == 0 {
        notes.push("WARNING: the val split has no labels, so every figure of the validation will be 0".to_owned());
    }
    if let Some(first) = set.dropped_rows.first() {
        notes.push(format!("{} label rows are left out, the first is {first}; `boxwright check` lists them", set.dropped_rows.len()));
    }
    if set.n_not_kept() > 0 {
        notes.push(format!(
            "{} of {} pictures do not fit into memory and are read again in every epoch",
            set.n_not_kept(),
            set.images.len()
        ));
    }
    notes
}

/// The sink with the file that keeps what it was told, and whether a stop was asked for.
struct Reporter<'a, 'b> {
    folder: RunFolder,
    sink: &'a mut Sink<'b>,
    stopped: bool,
}

impl Reporter<'_, '_> {
    fn tell(&mut self, event: TrainEvent) -> Result<(), TrainError> {
        self.folder.write_event(&event.to_json())?;
        self.stopped |= (self.sink)(event).is_break();
        Ok(())
    }
}

/// The best epoch so far.
struct Best {
    epoch: usize,
    metrics: Metrics,
}

/// A step that was begun, until its outcome is told.
struct Submitted {
    epoch: usize,
    step: usize,
    n_images: usize,
    updates: bool,
    /// Of the convolution weights.
    lr: f64,
}

/// A run between its first and last step.
struct Run<'a, 'b> {
    config: &'a TrainConfig,
    hyp: &'a Hyp,
    dataset: &'a Dataset,
    batch: usize,
    set: Arc<TrainSet>,
    validator: Validator,
    reporter: Reporter<'a, 'b>,
    schedule: Schedule,
    stepper: Stepper,
    n_parameters: usize,
    /// In the order in which outcomes come.
    submitted: VecDeque<Submitted>,
    /// Of the losses of this epoch.
    sums: [f64; 3],
    last_report: Instant,
    /// Norm of the gradient at the last update that was made.
    grad_norm: f32,
    /// Updates left out since then.
    n_skipped: usize,
    epochs_done: usize,
    best: Option<Best>,
}

impl Run<'_, '_> {
    fn batches_per_epoch(&self) -> usize {
        loader::batches_per_epoch(self.set.images.len(), self.batch)
    }

    /// Tells the plan, then the notes.
    fn tell_plan(&mut self, notes: &[String]) -> Result<(), TrainError> {
        let plan = TrainPlan {
            run_dir: self.reporter.folder.dir.clone(),
            n_train_images: self.set.images.len(),
            n_val_images: self.validator.n_images(),
            n_labels: self.set.n_labels(),
            steps_per_epoch: self.batches_per_epoch(),
            n_parameters: self.n_parameters,
            planned_bytes: self.planned_bytes()?,
            device_bytes: self.device_bytes()?,
            dropped: [self.set.dropped.as_slice(), self.validator.dropped(), &self.set.dropped_rows].concat(),
        };
        self.reporter.tell(TrainEvent::Plan(plan))?;
        for note in notes {
            self.reporter.tell(TrainEvent::Note(note.clone()))?;
        }
        Ok(())
    }

    /// What the process uses now, and what the steps and validations will add.
    fn planned_bytes(&mut self) -> Result<u64, TrainError> {
        let own = self.stepper.planned_bytes();
        let batches = loader::planned_bytes(&self.set, self.batch, loader::default_workers(self.config.device));
        Ok(memory::resident_bytes() + own + batches + self.validator.planned_bytes(self.stepper.average()?))
    }

    /// What the training took on the GPU, and what validations will add.
    fn device_bytes(&mut self) -> Result<Option<u64>, TrainError> {
        let (Some(training), Some(precision)) = (self.stepper.device_bytes(), self.stepper.precision()) else { return Ok(None) };
        let validation = self.validator.device_bytes(self.stepper.average()?, precision);
        Ok(Some((training + validation) as u64))
    }

    /// All steps of all epochs, until the end or a stop.
    fn steps(&mut self) -> Result<(), TrainError> {
        let options = LoaderOptions {
            hyp: self.hyp.clone(),
            seed: self.config.seed,
            batch: self.batch,
            n_epochs: self.config.epochs,
            first_batch: 0,
            n_workers: loader::default_workers(self.config.device),
        };
        let per_epoch = self.batches_per_epoch();
        let mut told_faults = HashSet::new();
        // The batch after which gradients were last applied, counted from 1.
        let mut last_update = 0;
        let mut epoch_start = Instant::now();
        self.last_report = epoch_start;
        for (index, batch) in Loader::start(&self.set, &options)?.enumerate() {
            if self.reporter.stopped {
                break;
            }
            for fault in batch.faults.iter().filter(|fault| told_faults.insert((*fault).clone())) {
                self.reporter.tell(TrainEvent::Note(format!("left out, another picture took its place: {fault}")))?;
            }
            let settings = self.schedule.at(index);
            let updates = index + 1 - last_update >= settings.accumulate;
            if updates {
                last_update = index + 1;
            }
            let submitted = Submitted { epoch: batch.epoch, step: index, n_images: batch.n_images, updates, lr: settings.lr[1] };
            self.submitted.push_back(submitted);
            if let Some(outcome) = self.stepper.step(&batch, updates.then_some(&settings))? {
                self.end_step(&outcome)?;
            }
            if (index + 1) % per_epoch == 0 {
                self.flush()?;
                let means = self.sums.map(|sum| (sum / per_epoch as f64) as f32);
                self.end_epoch(batch.epoch, means, settings.lr, epoch_start)?;
                self.sums = [0.0; 3];
                epoch_start = Instant::now();
                self.last_report = epoch_start;
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), TrainError> {
        while let Some(outcome) = self.stepper.flush()? {
            self.end_step(&outcome)?;
        }
        Ok(())
    }

    /// Tells a step, or ends the run where its numbers are none.
    fn end_step(&mut self, outcome: &StepOutcome) -> Result<(), TrainError> {
        let submitted = self.submitted.pop_front().expect("an outcome belongs to a step");
        assert_eq!(submitted.step, outcome.step, "outcomes come in order");
        let Submitted { epoch, step, n_images, updates, lr } = submitted;
        let [box_loss, cls_loss, dfl_loss, loss] = outcome.items;
        let forgives = self.stepper.scales_loss() && self.n_skipped < MAX_SKIPPED;
        if !(loss.is_finite() && (!updates || outcome.grad_norm.is_finite())) {
            if !forgives {
                let (what, value) = if loss.is_finite() { ("gradient norm", outcome.grad_norm) } else { ("loss", loss) };
                return self.diverged(epoch, step, what, value);
            }
            self.n_skipped += 1;
            if !loss.is_finite() {
                // There is nothing to tell of it.
                return Ok(());
            }
        } else if updates {
            self.grad_norm = outcome.grad_norm;
            self.n_skipped = 0;
        }
        for (sum, item) in self.sums.iter_mut().zip(outcome.items) {
            *sum += f64::from(item);
        }
        let secs = self.last_report.elapsed().as_secs_f32();
        self.last_report = Instant::now();
        let images_per_sec = n_images as f32 / secs.max(1e-6);
        let report = StepReport { epoch, step, box_loss, cls_loss, dfl_loss, lr, grad_norm: self.grad_norm, images_per_sec };
        self.reporter.tell(TrainEvent::Step(report))
    }

    /// Ends the run; the averaged weights up to the step before are kept. A GPU was a step ahead: where that has harmed them,
    /// those of the epoch before stay.
    fn diverged(&mut self, epoch: usize, step: usize, what: &'static str, value: f32) -> Result<(), TrainError> {
        let path = self.reporter.folder.weights_path(Kept::Last);
        let is_sound = self.stepper.average()?.params.values.iter().all(|value| value.is_finite());
        if is_sound || !path.exists() {
            self.save(Kept::Last)?;
        }
        Err(TrainError::Diverged { epoch, step, what, value, weights: path.display().to_string() })
    }

    /// Validates, keeps weights and figures. After a stop during the validation the epoch does not count.
    fn end_epoch(&mut self, epoch: usize, losses: [f32; 3], lr: [f64; 3], start: Instant) -> Result<(), TrainError> {
        self.save(Kept::Last)?;
        let Some(outcome) = self.validate(None)? else { return Ok(()) };
        let metrics = outcome.metrics;
        let is_best = self.best.as_ref().is_none_or(|best| metrics.fitness() >= best.metrics.fitness());
        if is_best {
            self.save(Kept::Best)?;
            self.best = Some(Best { epoch, metrics: metrics.clone() });
        }
        self.epochs_done = epoch + 1;
        let [box_loss, cls_loss, dfl_loss] = losses;
        let report = EpochReport { epoch, box_loss, cls_loss, dfl_loss, metrics, lr, secs: start.elapsed().as_secs_f64() };
        self.reporter.folder.write_results(&report)?;
        self.reporter.tell(TrainEvent::Epoch(report))
    }

    /// Validates a network, or the averaged one; `None` after a stop.
    fn validate(&mut self, network: Option<&Network>) -> Result<Option<ValOutcome>, TrainError> {
        let Self { stepper, validator, reporter, .. } = self;
        let network = match network {
            Some(network) => network,
            None => stepper.average()?,
        };
        let reporter = RefCell::new(reporter);
        let check_in = |done, total| {
            let mut reporter = reporter.borrow_mut();
            let flow = (reporter.sink)(TrainEvent::Progress { stage: TrainStage::Validating, done, total });
            reporter.stopped |= flow.is_break();
            flow
        };
        match validator.run(network, &check_in) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(ValError::Cancelled) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn save(&mut self, kept: Kept) -> Result<(), TrainError> {
        let info = WeightsInfo { class_names: self.dataset.names.clone(), imgsz: self.config.imgsz as usize };
        Ok(weights::save(&self.reporter.folder.weights_path(kept), self.stepper.average()?, &info)?)
    }

    /// Last weights, final figures of the best ones, summary.
    fn finish(&mut self) -> Result<TrainSummary, TrainError> {
        if self.reporter.stopped {
            self.save(Kept::Last)?;
        }
        if self.best.is_none() {
            // Stopped before the first validation: the newest weights are the best there are.
            self.save(Kept::Best)?;
        }
        let stopped = self.reporter.stopped;
        let mut metrics = self.best.as_ref().map(|best| best.metrics.clone()).unwrap_or_default();
        if !stopped {
            // What the file holds is validated, not what is in memory.
            let (best, _) = weights::load(&self.reporter.folder.weights_path(Kept::Best))?;
            if let Some(outcome) = self.validate(Some(&best))? {
                self.write_report(&outcome)?;
                metrics = outcome.metrics;
            }
        }
        let summary = TrainSummary {
            run_dir: self.reporter.folder.dir.clone(),
            epochs_done: self.epochs_done,
            stopped,
            best_epoch: self.best.as_ref().map_or(0, |best| best.epoch),
            metrics,
            peak_bytes: memory::peak_bytes(),
        };
        self.reporter.folder.write_event(&summary.to_json())?;
        Ok(summary)
    }

    fn write_report(&mut self, outcome: &ValOutcome) -> Result<(), TrainError> {
        let folder = self.reporter.folder.dir.join("report");
        report::write_metrics(&folder, outcome, self.dataset)?;
        if let Err(error) = report::write_grid(&folder, outcome, self.dataset) {
            // A missing picture is no reason to lose a finished run.
            self.reporter.tell(TrainEvent::Note(format!("the picture of detections was not written: {error}")))?;
        }
        Ok(())
    }
}

/// Values that the optimizer changes.
fn n_trained(params: &Params) -> usize {
    params.specs.iter().filter(|spec| spec.kind.is_trained()).map(crate::engine::ParamSpec::len).sum()
}
