//! The training loop.
//!
//! In:  a configuration, orders, and a sink for events.
//! Out: a run folder with weights and figures; a summary.
//!
//! `setup.rs` brings a run to its first step; then the plan is told in figures, then the first step runs. Orders are carried
//! out between two steps; a stop ends after the current batch (or the current batch of the validation) and leaves whole files.
//!
//! Differs from the published trainer in two places on purpose: gradients that are accumulated over the end of an epoch are
//! kept, not dropped, and new weights are not rounded to half precision once at the start.
//!
//! Never touches pixels: the loader does. Source: spec 7.

use std::cell::RefCell;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use crossbeam_channel::Receiver;

use super::beside::Beside;
use super::beside::Closing;
use super::beside::Found;
use super::beside::Order;
use super::config::TrainConfig;
use super::dataset_print::DatasetPrint;
use super::error::TrainError;
use super::event::Divergence;
use super::event::EpochReport;
use super::event::TrainEvent;
use super::event::TrainPlan;
use super::event::TrainStage;
use super::event::TrainSummary;
use super::event::ValReport;
use super::health::HealthOptions;
use super::live::Live;
use super::live::LiveOptions;
use super::live::StepFacts;
use super::loader;
use super::loader::Batch;
use super::loader::Loader;
use super::loader::LoaderOptions;
use super::memory;
use super::order::TrainOrder;
use super::preview;
use super::progress::Best;
use super::progress::Progress;
use super::report;
use super::reporter::Reporter;
use super::reporter::Sink;
use super::run_folder::Kept;
use super::run_folder::RunFolder;
use super::run_record::RunRecord;
use super::setup::Setup;
use super::setup::Start;
use super::state::TrainState;
use super::state_writer::StateWriter;
use super::stepper::Average;
use super::stepper::MAX_GRAD_NORM;
use super::stepper::StepOutcome;
use crate::eval::Metrics;
use crate::eval::ValOutcome;
use crate::eval::validate::ValError;
use crate::yolo::Network;
use crate::yolo::weights;
use crate::yolo::weights::WeightsError;
use crate::yolo::weights::WeightsInfo;

/// Updates in a row that may be left out while the loss scale of fp16 comes down: from its first value to far below 1.
const MAX_SKIPPED: usize = 40;

/// A run that dies loses at most the steps of this time, or of what it takes for [`SAVE_SHARE`], if that is longer.
const SAVE_EVERY: Duration = Duration::from_mins(1);
/// Saving may hold the steps up for one part in so many of the time. Only copies are made meanwhile: the disk works beside.
const SAVE_SHARE: u32 = 50;

/// Trains. `sink` gets every event; when it breaks, or an order says so, training stops after the step and leaves a valid run
/// folder, from which it can go on.
///
/// # Errors
/// See [`TrainError`]; what a person can mend is found before the run folder is made, which stays valid afterwards.
pub fn train(config: &TrainConfig, orders: &Receiver<TrainOrder>, sink: &mut Sink) -> Result<TrainSummary, TrainError> {
    go(begin(config, sink)?, orders, sink)
}

/// A new run with its folder.
pub(super) fn begin(config: &TrainConfig, sink: &mut Sink) -> Result<Begun, TrainError> {
    let setup = Setup::new(config, Start::New, sink)?;
    let folder = RunFolder::create(&setup.config.project, &setup.config.name)?;
    let Setup { config, batch, hyp, dataset, .. } = &setup;
    let print = DatasetPrint::of(dataset);
    print.write(&RunFolder::dataset_path(&folder.dir))?;
    RunRecord::new(config, *batch, hyp, &dataset.source, &dataset.names, print.hash()).write(&folder.dir)?;
    Ok(Begun { setup, folder, progress: Progress::default(), resumed: None })
}

/// A run that is at its first step, or at the first after it was interrupted.
pub(super) struct Begun {
    pub(super) setup: Setup,
    pub(super) folder: RunFolder,
    pub(super) progress: Progress,
    /// Told before all else.
    pub(super) resumed: Option<TrainEvent>,
}

/// Goes through all steps that are left.
pub(super) fn go(begun: Begun, orders: &Receiver<TrainOrder>, sink: &mut Sink) -> Result<TrainSummary, TrainError> {
    let Begun { mut setup, folder, mut progress, resumed } = begun;
    progress.n_images = setup.set.images.len();
    let writer = StateWriter::start(folder.dir.clone(), setup.stepper.average()?.params.zeros_like())?;
    let mut reporter = Reporter::new(folder, orders, sink);
    let mut machine_secs = 0.0;
    if let Some(event) = resumed {
        if let TrainEvent::Resumed { run, .. } = &event {
            machine_secs = run.machine.last().map_or(0.0, |report| report.secs);
        }
        reporter.tell(event)?;
    }
    let now = Instant::now();
    let saving = Saving { writer, last: now, cost: Duration::ZERO };
    let live = live_figures(&setup, machine_secs);
    let mut run = Run {
        setup,
        reporter,
        progress,
        live,
        saving,
        due: None,
        beside: None,
        submitted: VecDeque::new(),
        last_report: now,
        first_secs: None,
        clock: now,
    };
    run.tell_plan()?;
    let result = run.steps().and_then(|()| run.finish());
    if let Err(error) = &result {
        let line = serde_json::json!({"event": "error", "text": error.to_string()});
        // The disk may be what failed; the error itself is returned.
        run.reporter.folder.write_event(&line).ok();
    }
    result
}

/// When the state was saved last, and how long the steps stood still for it.
struct Saving {
    writer: StateWriter,
    last: Instant,
    cost: Duration,
}

/// An epoch whose steps are all submitted, with the averages after its last one.
struct Due {
    epoch: usize,
    lr: [f64; 3],
    average: Average,
}

/// A step that was begun, until its outcome is told.
struct Submitted {
    epoch: usize,
    step: usize,
    /// Of the train set.
    images: Vec<usize>,
    updates: bool,
    lrs: [f64; 3],
}

/// The figures that are told beside the losses. `machine_secs`: up to when the machine was looked at before.
fn live_figures(setup: &Setup, machine_secs: f64) -> Live {
    let health = HealthOptions { warmup_steps: setup.schedule.warmup_steps(), epochs: setup.config.epochs, planned_bytes: 0 };
    Live::new(LiveOptions {
        device: setup.config.device,
        is_dual: setup.config.model.dual,
        max_norm: MAX_GRAD_NORM,
        steps_per_epoch: setup.batches_per_epoch(),
        machine_secs,
        health,
    })
}

/// A run between its first and last step.
struct Run<'a, 'b> {
    setup: Setup,
    /// Before the reporter, which holds the run's lock: fields are dropped in this order, and what is being written belongs to the run.
    saving: Saving,
    /// An epoch that is to be validated beside the next one, as soon as its last step is told.
    due: Option<Due>,
    /// As the writer of states: the validation of the epoch before, where it is not over.
    beside: Option<Beside>,
    reporter: Reporter<'a, 'b>,
    progress: Progress,
    live: Live,
    /// In the order in which outcomes come.
    submitted: VecDeque<Submitted>,
    last_report: Instant,
    /// What the first step took, until the second is told; 0 afterwards.
    first_secs: Option<f32>,
    /// Since when time is not in `progress.epoch_secs` yet.
    clock: Instant,
}

impl Run<'_, '_> {
    /// Tells the plan, then the notes.
    fn tell_plan(&mut self) -> Result<(), TrainError> {
        let setup = &mut self.setup;
        let (planned_bytes, device_bytes) = (setup.planned_bytes()?, setup.device_bytes()?);
        let validator = setup.validator.as_ref().expect("no epoch is validated before the first step");
        let plan = TrainPlan {
            run_dir: self.reporter.folder.dir.clone(),
            n_train_images: setup.set.images.len(),
            n_val_images: validator.n_images(),
            n_labels: setup.set.n_labels(),
            steps_per_epoch: setup.batches_per_epoch(),
            n_parameters: setup.n_parameters,
            planned_bytes,
            device_bytes,
            dropped: [setup.set.dropped.as_slice(), validator.dropped(), &setup.set.dropped_rows].concat(),
            epochs: setup.config.epochs,
            batch: setup.batch,
            class_boxes: setup.set.class_boxes(&setup.dataset.names),
            n_backgrounds: setup.set.n_backgrounds(),
            n_broken: setup.set.dropped.len(),
        };
        self.live.set_planned_bytes(plan.planned_bytes);
        self.reporter.tell(TrainEvent::Plan(plan))?;
        for note in std::mem::take(&mut self.setup.notes) {
            self.reporter.tell(TrainEvent::Note(note))?;
        }
        Ok(())
    }

    /// All steps of all epochs, until the end or a stop.
    fn steps(&mut self) -> Result<(), TrainError> {
        let setup = &self.setup;
        let options = LoaderOptions {
            stream: setup.stream.clone(),
            truth_rows: setup.truth_rows,
            batch: setup.batch,
            n_epochs: setup.config.epochs,
            first_batch: self.progress.step,
            n_workers: loader::default_workers(setup.config.device),
            sides: setup.sides.clone(),
            orders: setup.image_weights.as_ref().map(|weights| Arc::clone(&weights.orders)),
            paints: !setup.samples_on_gpu,
        };
        let per_epoch = setup.batches_per_epoch();
        let mut told_faults = HashSet::new();
        self.start_clocks();
        let step = self.progress.step;
        if step > 0 && step == (self.progress.epochs_done + 1) * per_epoch {
            // It was interrupted in the validation.
            self.end_epoch(self.progress.epochs_done)?;
        }
        self.draw_epoch();
        let mut batch_pictures = Vec::new();
        let mut loader = Loader::start(&self.setup.set, &options)?;
        let clock = loader.clock();
        while let Some(batch) = self.next_batch(&mut loader) {
            self.obey()?;
            if self.reporter.stopped || self.has_waited_enough() {
                break;
            }
            for fault in batch.faults.iter().filter(|fault| told_faults.insert((*fault).clone())) {
                self.reporter.tell(TrainEvent::Note(fault.clone()))?;
            }
            let index = self.progress.step;
            if index < preview::N_BATCHES {
                batch_pictures.extend(self.write_batch_picture(index, &batch)?);
                if index + 1 == preview::N_BATCHES.min(per_epoch * options.n_epochs) {
                    self.reporter.tell(TrainEvent::BatchPictures(std::mem::take(&mut batch_pictures)))?;
                }
                // Drawing is no part of the step.
                self.last_report = Instant::now();
            }
            self.live.set_slowest_stage(clock.read().slowest_stage(0.0));
            let settings = self.setup.schedule.at(index);
            let updates = index + 1 - self.progress.last_update >= settings.accumulate;
            if updates {
                self.progress.last_update = index + 1;
            }
            let (epoch, images) = (batch.epoch, batch.images.clone());
            self.submitted.push_back(Submitted { epoch, step: index, images, updates, lrs: settings.lr });
            self.progress.step = index + 1;
            if let Some(outcome) = self.setup.stepper.step(&batch, updates.then_some(&settings))? {
                self.end_step(&outcome)?;
            }
            if (index + 1).is_multiple_of(per_epoch) {
                self.take_in_validation()?;
                if self.may_validate_beside(epoch)? {
                    // As after an interrupted validation: a resume from here begins with it.
                    self.save_if_older(Duration::ZERO)?;
                    let lr = self.setup.schedule.at(index).lr;
                    self.due = Some(Due { epoch, lr, average: self.setup.stepper.average_later()? });
                    self.validate_if_due()?;
                } else {
                    self.end_epoch(epoch)?;
                    self.draw_epoch();
                    self.save_if_older(Duration::ZERO)?;
                }
            } else {
                self.validate_if_due()?;
                if self.beside.as_ref().is_some_and(Beside::is_done) {
                    self.take_in_validation()?;
                }
                self.save_if_older(SAVE_EVERY)?;
            }
        }
        self.flush()?;
        self.save_now()
    }

    /// Draws the samples of the epoch that the next step belongs to, where they depend on what was found.
    fn draw_epoch(&self) {
        let Some(weights) = &self.setup.image_weights else { return };
        let epoch = self.progress.step / self.setup.batches_per_epoch();
        weights.orders.publish(epoch, weights.order(self.setup.config.seed, epoch, self.progress.newest.as_ref()));
    }

    /// Whether no epoch was better for longer than the person wants to wait.
    fn has_waited_enough(&self) -> bool {
        let config = &self.setup.config;
        config.patience > 0 && !config.noval && self.progress.n_waited() >= config.patience
    }

    /// Waits for the next batch, and counts how long the device had nothing to do meanwhile.
    fn next_batch(&mut self, loader: &mut Loader) -> Option<Batch> {
        let (live, stepper) = (&mut self.live, &self.setup.stepper);
        loader.next_watched(&mut |time| {
            if stepper.is_idle() {
                live.waited(time);
            }
        })
    }

    /// Draws one of the first batches into the report.
    fn write_batch_picture(&mut self, number: usize, batch: &Batch) -> Result<Option<PathBuf>, TrainError> {
        let Setup { set, dataset, .. } = &self.setup;
        let written =
            preview::painted(batch, set).and_then(|batch| preview::write_batch(&self.reporter.folder.dir, number, &batch, &dataset.names));
        match written {
            Ok(path) => Ok(Some(path)),
            Err(error) => {
                self.reporter.tell(TrainEvent::Note(format!("the picture of batch {number} was not written: {error}")))?;
                Ok(None)
            }
        }
    }

    fn start_clocks(&mut self) {
        self.last_report = Instant::now();
        self.clock = self.last_report;
    }

    /// Adds the time since the last call to that of the epoch.
    fn count_time(&mut self) {
        self.progress.epoch_secs += self.clock.elapsed().as_secs_f64();
        self.clock = Instant::now();
    }

    fn flush(&mut self) -> Result<(), TrainError> {
        while let Some(outcome) = self.setup.stepper.flush()? {
            self.end_step(&outcome)?;
        }
        Ok(())
    }

    /// Hands the state over to be written, when the last one is older than that and did not take too long.
    fn save_if_older(&mut self, age: Duration) -> Result<(), TrainError> {
        if let Some(step) = self.saving.writer.finished()? {
            self.reporter.pass_on(TrainEvent::Saved { step });
        }
        let due = age.max(self.saving.cost * SAVE_SHARE);
        if self.saving.last.elapsed() < due || self.saving.writer.is_busy() { Ok(()) } else { self.save_state() }
    }

    /// The state on the disk when it returns.
    fn save_now(&mut self) -> Result<(), TrainError> {
        self.flush()?;
        self.save_state()?;
        self.saving.writer.wait()?;
        self.reporter.pass_on(TrainEvent::Saved { step: self.progress.step });
        Ok(())
    }

    fn save_state(&mut self) -> Result<(), TrainError> {
        self.take_in_validation()?;
        let start = Instant::now();
        self.flush()?;
        self.count_time();
        let device = self.setup.stepper.state()?;
        (self.saving.cost, self.saving.last) = (start.elapsed(), Instant::now());
        let state = TrainState { progress: self.progress.clone(), device, events_len: self.reporter.folder.events_len };
        self.saving.writer.write(state)
    }

    /// Carries out what was ordered since the last step.
    fn obey(&mut self) -> Result<(), TrainError> {
        let mut is_saved = false;
        loop {
            self.reporter.listen()?;
            if std::mem::take(&mut self.reporter.wants_save) {
                self.save_now()?;
                self.save(Kept::Last)?;
                is_saved = true;
            }
            if std::mem::take(&mut self.reporter.wants_validation) {
                self.validate_now()?;
            }
            if !self.reporter.steering.paused || self.reporter.stopped {
                return Ok(());
            }
            if !is_saved {
                self.save_now()?;
                is_saved = true;
            }
            self.count_time();
            let total = self.setup.batches_per_epoch() * self.setup.config.epochs;
            self.reporter.wait(self.progress.step as u64, total as u64)?;
            self.start_clocks();
        }
    }

    /// Validates between two steps; it counts for nothing.
    fn validate_now(&mut self) -> Result<(), TrainError> {
        self.take_in_validation()?;
        self.flush()?;
        if let Some(outcome) = self.validate(None)? {
            let step = self.progress.step.saturating_sub(1);
            let report = ValReport { epoch: step / self.setup.batches_per_epoch(), step, metrics: outcome.metrics };
            self.reporter.tell(TrainEvent::Validated(report))?;
        }
        self.last_report = Instant::now();
        Ok(())
    }

    /// Tells a step, or ends the run where its numbers are none.
    fn end_step(&mut self, outcome: &StepOutcome) -> Result<(), TrainError> {
        let submitted = self.submitted.pop_front().expect("an outcome belongs to a step");
        assert_eq!(submitted.step, outcome.step, "outcomes come in order");
        let loss = outcome.items[3];
        let forgives = self.setup.stepper.scales_loss() && self.progress.n_skipped < MAX_SKIPPED;
        if !(loss.is_finite() && (!submitted.updates || outcome.grad_norm.is_finite())) {
            if !forgives {
                let (what, value) = if loss.is_finite() { ("gradient norm", outcome.grad_norm) } else { ("loss", loss) };
                return self.diverged(&submitted, what, value);
            }
            self.progress.n_skipped += 1;
            if !loss.is_finite() {
                // There is nothing else to tell of it.
                self.live.skipped(&mut self.progress.figures);
                return Ok(());
            }
        } else if submitted.updates {
            self.progress.grad_norm = outcome.grad_norm;
            self.progress.n_skipped = 0;
        }
        for (sum, item) in self.progress.sums.iter_mut().zip(outcome.items) {
            *sum += f64::from(item);
        }
        let mut secs = self.last_report.elapsed().as_secs_f32();
        self.last_report = Instant::now();
        // What a GPU's second step gave is there when the first's is asked for: both took the time together.
        match self.first_secs {
            None => self.first_secs = Some(secs),
            Some(first) if first > 0.0 => (secs, self.first_secs) = (f32::midpoint(first, secs), Some(0.0)),
            Some(_) => {}
        }
        let (Submitted { epoch, step, images, updates, lrs }, grad_norm) = (submitted, self.progress.grad_norm);
        let facts = StepFacts { epoch, step, n_images: images.len(), updates, lrs, grad_norm, secs, outcome };
        let (report, events) = self.live.step(&facts, &mut self.progress.figures);
        self.reporter.tell(TrainEvent::Step(report))?;
        self.tell_all(events)
    }

    fn tell_all(&mut self, events: Vec<TrainEvent>) -> Result<(), TrainError> {
        events.into_iter().try_for_each(|event| self.reporter.tell(event))
    }

    /// Ends the run; the averaged weights up to the step before are kept. A GPU was a step ahead: where that has harmed them,
    /// those of the epoch before stay.
    fn diverged(&mut self, submitted: &Submitted, what: &'static str, value: f32) -> Result<(), TrainError> {
        // An epoch that ends with such a step is none: its averages are not validated, and the step after it tells nothing more.
        self.due = None;
        self.take_in_validation()?;
        let path = self.reporter.folder.weights_path(Kept::Last);
        let is_sound = self.setup.stepper.average()?.params.values.iter().all(|value| value.is_finite());
        if is_sound || !path.exists() {
            self.save(Kept::Last)?;
        }
        let Submitted { epoch, step, .. } = *submitted;
        let images = submitted.images.iter().map(|&image| self.setup.set.images[image].path.clone()).collect();
        self.reporter.tell(TrainEvent::Diverged(Divergence { epoch, step, what: what.into(), value: value.to_string(), images }))?;
        Err(TrainError::Diverged { epoch, step, what, value, weights: path.display().to_string() })
    }

    /// Validates, keeps weights and figures. After a stop during the validation the epoch does not count.
    fn end_epoch(&mut self, epoch: usize) -> Result<(), TrainError> {
        self.flush()?;
        let TrainConfig { noval, save_period, epochs, patience, .. } = self.setup.config;
        let validates = !noval || epoch + 1 == epochs;
        if save_period > 0 && (epoch + 1).is_multiple_of(save_period) {
            self.save(Kept::Epoch(epoch))?;
        }
        let saving = self.begin_save(Kept::Last)?;
        let outcome = if validates { self.validate(None) } else { Ok(None) };
        saving.join().expect("the thread that writes weights does not panic")?;
        let found = if validates {
            let Some(outcome) = outcome? else { return Ok(()) };
            if outcome.metrics.fitness() >= self.best_fitness() {
                self.save(Kept::Best)?;
            }
            Some(Found::of(outcome, epoch, &self.setup.dataset, &self.reporter.folder.dir)?)
        } else {
            None
        };
        let lr = self.setup.schedule.at(self.progress.step - 1).lr;
        let closing = self.close_epoch(epoch, lr);
        self.tell_epoch(closing, found)?;
        if self.has_waited_enough() {
            let best = self.progress.best.as_ref().map_or(0, |best| best.epoch);
            self.reporter.tell(TrainEvent::Note(format!("ended early: no epoch was better than epoch {best} for {patience} epochs")))?;
        }
        self.reporter.listen()?;
        // After the last one there is nothing to stop.
        self.reporter.stopped |= self.reporter.steering.stops_after_epoch && epoch + 1 < epochs;
        self.last_report = Instant::now();
        Ok(())
    }

    /// What weights must reach to be the best; all are better than none.
    fn best_fitness(&self) -> f64 {
        self.progress.best.as_ref().map_or(f64::NEG_INFINITY, |best| best.metrics.fitness())
    }

    /// Takes what the steps of an epoch leave to be told; the step that is told next belongs to the next epoch.
    fn close_epoch(&mut self, epoch: usize, lr: [f64; 3]) -> Closing {
        self.count_time();
        Closing {
            epoch,
            sums: std::mem::take(&mut self.progress.sums),
            figures: std::mem::take(&mut self.progress.figures),
            secs: std::mem::take(&mut self.progress.epoch_secs),
            lr,
        }
    }

    /// Counts and tells an epoch; where nothing was found it was not validated.
    fn tell_epoch(&mut self, closing: Closing, found: Option<Found>) -> Result<(), TrainError> {
        let Closing { epoch, sums, figures, secs, lr } = closing;
        let mut metrics = Metrics::default();
        if let Some(found) = found {
            metrics = found.metrics;
            self.progress.newest = Some(metrics.clone());
            self.reporter.tell(TrainEvent::Samples(found.samples))?;
            if metrics.fitness() >= self.best_fitness() {
                self.progress.best = Some(Best { epoch, metrics: metrics.clone() });
            }
        }
        self.progress.epochs_done = epoch + 1;
        // Of the steps that have a loss: with fp16 some may have none.
        let n_steps = figures.n_steps().max(1) as f64;
        let [box_loss, cls_loss, dfl_loss] = sums.map(|sum| (sum / n_steps) as f32);
        let report = EpochReport { epoch, box_loss, cls_loss, dfl_loss, metrics, lr, secs, ..EpochReport::default() };
        let (report, events) = self.live.epoch(report, &figures);
        self.reporter.folder.write_results(&report)?;
        self.reporter.tell(TrainEvent::Epoch(report))?;
        self.tell_all(events)?;
        let machine = self.live.machine();
        self.tell_all(machine)
    }

    /// Whether the next epoch may begin while this one is validated: it will come, whatever is found, and nothing waits for the outcome.
    fn may_validate_beside(&mut self, epoch: usize) -> Result<bool, TrainError> {
        self.reporter.listen()?;
        let TrainConfig { epochs, patience, .. } = self.setup.config;
        let steering = &self.reporter.steering;
        let goes_on = !(self.reporter.stopped || steering.paused || steering.stops_after_epoch) && epoch + 1 < epochs;
        let may_end = patience > 0 && self.progress.n_waited() + 1 >= patience;
        Ok(self.setup.validates_beside && goes_on && !may_end)
    }

    /// Begins the validation that is due, once the last step of its epoch is told.
    fn validate_if_due(&mut self) -> Result<(), TrainError> {
        let next = self.submitted.front().map(|step| step.epoch);
        match self.due.take_if(|due| next != Some(due.epoch)) {
            Some(due) => self.validate_beside(due),
            None => Ok(()),
        }
    }

    /// Begins the validation of an epoch whose steps are told, and keeps its weights.
    fn validate_beside(&mut self, due: Due) -> Result<(), TrainError> {
        let Due { epoch, lr, average } = due;
        let folder = &self.reporter.folder;
        let save_period = self.setup.config.save_period;
        let of_epoch = (save_period > 0 && (epoch + 1).is_multiple_of(save_period)).then_some(Kept::Epoch(epoch));
        let kept = of_epoch.into_iter().chain([Kept::Last]).map(|kept| folder.weights_path(kept)).collect();
        let best = (folder.weights_path(Kept::Best), self.best_fitness());
        let validator = self.setup.validator.take().expect("the epoch before was taken in");
        let info = self.weights_info();
        let (run_dir, dataset) = (folder.dir.clone(), Arc::clone(&self.setup.dataset));
        let closing = self.close_epoch(epoch, lr);
        let order = Order { epoch, average, validator, dataset, run_dir, info, kept, best };
        self.beside = Some(Beside::start(closing, order)?);
        Ok(())
    }

    /// Takes in the validation that runs beside the steps, if there is one, and tells its epoch. Waits for it.
    fn take_in_validation(&mut self) -> Result<(), TrainError> {
        if let Some(due) = self.due.take() {
            self.flush()?;
            self.validate_beside(due)?;
        }
        let Some(beside) = self.beside.take() else { return Ok(()) };
        let start = Instant::now();
        let reporter = &mut self.reporter;
        let (closing, validated) =
            beside.take(&mut |done, total| reporter.pass_on(TrainEvent::Progress { stage: TrainStage::Validating, done, total }));
        self.setup.validator = Some(validated.validator);
        let found = validated.found?;
        self.tell_epoch(closing, Some(found))?;
        // It is no part of the step that is told next.
        self.last_report += start.elapsed();
        Ok(())
    }

    /// Validates a network, or the averaged one; `None` after a stop.
    fn validate(&mut self, network: Option<&Network>) -> Result<Option<ValOutcome>, TrainError> {
        let Self { setup, reporter, .. } = self;
        let network = match network {
            Some(network) => network,
            None => setup.stepper.average()?,
        };
        let reporter = RefCell::new(reporter);
        let check_in = |done, total| {
            let mut reporter = reporter.borrow_mut();
            reporter.pass_on(TrainEvent::Progress { stage: TrainStage::Validating, done, total });
            // A line that cannot be written now cannot be written after the validation either, and is an error there.
            reporter.listen().ok();
            if reporter.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let validator = setup.validator.as_mut().expect("the epoch before was taken in");
        match validator.run(network, &check_in) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(ValError::Cancelled) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn weights_info(&self) -> WeightsInfo {
        WeightsInfo { class_names: self.setup.dataset.names.clone(), imgsz: self.setup.config.imgsz as usize }
    }

    fn save(&mut self, kept: Kept) -> Result<(), TrainError> {
        let info = self.weights_info();
        Ok(weights::save(&self.reporter.folder.weights_path(kept), self.setup.stepper.average()?, &info)?)
    }

    /// Begins to write averaged weights; the disk works while the validation runs.
    fn begin_save(&mut self, kept: Kept) -> Result<JoinHandle<Result<(), WeightsError>>, TrainError> {
        let info = self.weights_info();
        let (path, network) = (self.reporter.folder.weights_path(kept), self.setup.stepper.average()?.clone());
        let thread = std::thread::Builder::new().name("weights".to_owned());
        thread.spawn(move || weights::save(&path, &network, &info)).map_err(|source| TrainError::Thread { source })
    }

    /// Last weights, final figures of the best ones, summary.
    fn finish(&mut self) -> Result<TrainSummary, TrainError> {
        if self.reporter.stopped {
            self.save(Kept::Last)?;
        }
        if self.progress.best.is_none() {
            // Stopped before the first validation: the newest weights are the best there are.
            self.save(Kept::Best)?;
        }
        let stopped = self.reporter.stopped;
        let mut metrics = self.progress.best.as_ref().map(|best| best.metrics.clone()).unwrap_or_default();
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
            epochs_done: self.progress.epochs_done,
            stopped,
            best_epoch: self.progress.best.as_ref().map_or(0, |best| best.epoch),
            metrics,
            peak_bytes: memory::peak_bytes(),
        };
        self.reporter.folder.write_event(&summary.to_json())?;
        Ok(summary)
    }

    fn write_report(&mut self, outcome: &ValOutcome) -> Result<(), TrainError> {
        let folder = self.reporter.folder.dir.join("report");
        report::write_metrics(&folder, outcome, &self.setup.dataset)?;
        if let Err(error) = report::write_grid(&folder, outcome, &self.setup.dataset) {
            // A missing picture is no reason to lose a finished run.
            self.reporter.tell(TrainEvent::Note(format!("the picture of detections was not written: {error}")))?;
        }
        Ok(())
    }
}
