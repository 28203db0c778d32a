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
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::config::Hyp;
use super::config::OptimizerKind;
use super::config::TrainConfig;
use super::ema;
use super::error::TrainError;
use super::event::EpochReport;
use super::event::StepReport;
use super::event::TrainEvent;
use super::event::TrainPlan;
use super::event::TrainStage;
use super::event::TrainSummary;
use super::loader;
use super::loader::Batch;
use super::loader::Loader;
use super::loader::LoaderOptions;
use super::memory;
use super::report;
use super::run_folder::Kept;
use super::run_folder::RunFolder;
use super::run_folder::RunRecord;
use super::schedule::Schedule;
use super::schedule::StepSettings;
use super::train_set::TrainSet;
use crate::dataset::Dataset;
use crate::dataset::Split;
use crate::engine::BnMode;
use crate::engine::Device;
use crate::engine::LossSpec;
use crate::engine::Params;
use crate::engine::Plan;
use crate::engine::TensorId;
use crate::engine::cpu::Executor;
use crate::engine::cpu::optimizer::AdamWState;
use crate::engine::cpu::optimizer::AdamWStep;
use crate::engine::cpu::optimizer::SgdStep;
use crate::engine::cpu::optimizer::adamw_step;
use crate::engine::cpu::optimizer::clip_gradients;
use crate::engine::cpu::optimizer::ema_update;
use crate::engine::cpu::optimizer::sgd_step;
use crate::engine::gradients::{GradientStyle, append_gradients};
use crate::eval::Metrics;
use crate::eval::ValOptions;
use crate::eval::ValOutcome;
use crate::eval::Validator;
use crate::eval::validate::ValError;
use crate::yolo::Network;
use crate::yolo::weights;
use crate::yolo::weights::WeightsInfo;

/// Share of the old mean square that AdamW keeps.
const ADAMW_BETA2: f32 = 0.999;
/// Largest norm of the gradient.
const MAX_GRAD_NORM: f32 = 10.0;
/// Pictures of a validation batch at most: more only costs memory on a CPU.
const MAX_VAL_BATCH: usize = 32;
/// Share of the parameters that start weights must give.
const MIN_TRANSFER: f64 = 0.5;
/// Share of broken pictures from which the note about them is a warning.
const MANY_BROKEN: f64 = 0.01;

/// Where events go. A stop is asked for by breaking.
pub type Sink<'a> = dyn FnMut(TrainEvent) -> ControlFlow<()> + 'a;

/// Trains. `sink` gets every event; when it breaks, training stops after the step and leaves a valid run folder.
///
/// # Errors
/// See [`TrainError`]; before the first step nothing is left on disk, afterwards the run folder stays valid.
pub fn train(config: &TrainConfig, sink: &mut Sink) -> Result<TrainSummary, TrainError> {
    let (config, mut notes) = config.checked()?;
    if let Device::Cuda(index) = config.device {
        return Err(TrainError::Device { index });
    }
    let dataset = Dataset::open(&config.data)?;
    notes.extend(dataset.notes.iter().cloned());

    // Half of what is free for pictures: the other half is for the step, and for everybody else.
    let keep_bytes = memory::available_bytes() / 2;
    let val_options =
        ValOptions { batch: (2 * config.batch).min(MAX_VAL_BATCH), device: config.device, ..ValOptions::new(Split::Val, config.imgsz) };
    let validator = Validator::new(&dataset, val_options, usize::try_from(keep_bytes / 8).unwrap_or(usize::MAX))?;
    let network = start_network(&config, &dataset, &mut notes)?;
    let mut preparing = |done, total| sink(TrainEvent::Progress { stage: TrainStage::Preparing, done, total });
    let Some(set) = TrainSet::read(&dataset, config.imgsz, keep_bytes, &mut preparing)? else {
        return Err(TrainError::Cancelled);
    };
    let (hyp, hyp_notes) = config.hyp.resolve(set.images.len())?;
    notes.extend(hyp_notes);
    notes.extend(picture_notes(&set, &validator));

    let folder = RunFolder::create(&config.project, &config.name)?;
    folder.write_record(&RunRecord::new(&config, &hyp, &dataset))?;
    let reporter = Reporter { folder, sink, stopped: false };
    let mut run = Run::new(&config, &hyp, &dataset, set, validator, network, reporter);
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

/// The executor of one batch size.
struct StepExecutor {
    n_images: usize,
    executor: Executor,
    input: TensorId,
    truth: TensorId,
    items: TensorId,
}

impl StepExecutor {
    fn plan(network: &Network, hyp: &Hyp, set: &TrainSet, n_images: usize) -> Self {
        let side = set.imgsz as usize;
        let mut graph = network.graph(n_images, side, side, BnMode::Batch);
        let spec = LossSpec {
            box_gain: hyp.box_gain as f32,
            cls_gain: hyp.cls as f32,
            dfl_gain: hyp.dfl as f32,
            cls_pw: hyp.cls_pw as f32,
            score_eps: hyp.score_eps as f32,
            ..LossSpec::published(network.n_classes, network.model.dual)
        };
        let loss = graph.append_loss(set.truth_rows(), spec);
        append_gradients(&mut graph.graph, GradientStyle::Added);
        let plan = Plan::new(graph.graph, &[loss.items]);
        Self { n_images, executor: Executor::new(plan), input: graph.input, truth: loss.truth, items: loss.items }
    }

    /// Box, class and distribution loss, and the one that is differentiated. Adds to `gradients`.
    fn run(&mut self, batch: &Batch, params: &mut Params, gradients: &mut Params) -> [f32; 4] {
        self.executor.write(self.input, &batch.pixels);
        self.executor.write(self.truth, &batch.truth);
        self.executor.run(params, gradients);
        let items = self.executor.read(self.items);
        [items[0], items[1], items[2], items[3]]
    }
}

/// What the optimizer remembers of earlier gradients.
enum OptimizerMemory {
    Sgd { velocity: Params },
    AdamW(AdamWState),
}

/// The best epoch so far.
struct Best {
    epoch: usize,
    metrics: Metrics,
}

/// A run between its first and last step.
struct Run<'a, 'b> {
    config: &'a TrainConfig,
    hyp: &'a Hyp,
    dataset: &'a Dataset,
    set: Arc<TrainSet>,
    validator: Validator,
    reporter: Reporter<'a, 'b>,
    schedule: Schedule,
    /// One for whole batches, one for the last of an epoch if that is smaller.
    executors: Vec<StepExecutor>,
    network: Network,
    /// The same network with averaged parameters: what is validated and kept.
    average: Network,
    gradients: Params,
    memory: OptimizerMemory,
    /// Optimizer steps so far.
    n_updates: usize,
    /// Norm of the gradient at the last of them.
    grad_norm: f32,
    epochs_done: usize,
    best: Option<Best>,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(
        config: &'a TrainConfig,
        hyp: &'a Hyp,
        dataset: &'a Dataset,
        set: TrainSet,
        validator: Validator,
        network: Network,
        reporter: Reporter<'a, 'b>,
    ) -> Self {
        let n_images = set.images.len();
        let batches_per_epoch = loader::batches_per_epoch(n_images, config.batch);
        let mut sizes = vec![config.batch.min(n_images), n_images - (batches_per_epoch - 1) * config.batch];
        sizes.dedup();
        let executors = sizes.into_iter().map(|size| StepExecutor::plan(&network, hyp, &set, size)).collect();
        Self {
            config,
            hyp,
            dataset,
            set: Arc::new(set),
            validator,
            reporter,
            schedule: Schedule::new(hyp, config.batch, batches_per_epoch, config.epochs),
            executors,
            average: network.clone(),
            gradients: network.params.zeros_like(),
            memory: match hyp.optimizer {
                OptimizerKind::Sgd => OptimizerMemory::Sgd { velocity: network.params.zeros_like() },
                OptimizerKind::AdamW => OptimizerMemory::AdamW(AdamWState::new(&network.params)),
            },
            network,
            n_updates: 0,
            grad_norm: 0.0,
            epochs_done: 0,
            best: None,
        }
    }

    fn batches_per_epoch(&self) -> usize {
        loader::batches_per_epoch(self.set.images.len(), self.config.batch)
    }

    /// Tells the plan, then the notes.
    fn tell_plan(&mut self, notes: &[String]) -> Result<(), TrainError> {
        let plan = TrainPlan {
            run_dir: self.reporter.folder.dir.clone(),
            n_train_images: self.set.images.len(),
            n_val_images: self.validator.n_images(),
            n_labels: self.set.n_labels(),
            steps_per_epoch: self.batches_per_epoch(),
            n_parameters: n_trained(&self.network.params),
            planned_bytes: self.planned_bytes(),
            dropped: [self.set.dropped.as_slice(), self.validator.dropped(), &self.set.dropped_rows].concat(),
        };
        self.reporter.tell(TrainEvent::Plan(plan))?;
        for note in notes {
            self.reporter.tell(TrainEvent::Note(note.clone()))?;
        }
        Ok(())
    }

    /// What the process uses now, and what the steps and validations will add. Arenas and gradients are reserved, but not
    /// used before the first step.
    fn planned_bytes(&self) -> u64 {
        let parameters = self.network.params.values.len() * size_of::<f32>();
        let arenas: usize = self
            .executors
            .iter()
            .map(|step| step.executor.plan.memory(&self.network.params))
            .map(|memory| memory.activations + memory.workspace)
            .sum();
        // Gradients and what the optimizer remembers; and the file image while weights are written.
        let remembered = match self.hyp.optimizer {
            OptimizerKind::Sgd => 1,
            OptimizerKind::AdamW => 2,
        };
        let own = arenas + (2 + remembered) * parameters;
        let batches = loader::planned_bytes(&self.set, self.config.batch, loader::default_workers());
        memory::resident_bytes() + own as u64 + batches + self.validator.planned_bytes(&self.network)
    }

    /// All steps of all epochs, until the end or a stop.
    fn steps(&mut self) -> Result<(), TrainError> {
        let options = LoaderOptions {
            hyp: self.hyp.clone(),
            seed: self.config.seed,
            batch: self.config.batch,
            n_epochs: self.config.epochs,
            first_batch: 0,
            n_workers: loader::default_workers(),
        };
        let per_epoch = self.batches_per_epoch();
        let mut told_faults = HashSet::new();
        // The batch after which gradients were last applied, counted from 1.
        let mut last_update = 0;
        let mut sums = [0.0; 3];
        let (mut epoch_start, mut step_start) = (Instant::now(), Instant::now());
        for (index, batch) in Loader::start(&self.set, &options)?.enumerate() {
            if self.reporter.stopped {
                break;
            }
            for fault in batch.faults.iter().filter(|fault| told_faults.insert((*fault).clone())) {
                self.reporter.tell(TrainEvent::Note(format!("left out, another picture took its place: {fault}")))?;
            }
            let settings = self.schedule.at(index);
            let items = self.forward_backward(&batch);
            self.expect_finite(batch.epoch, index, "loss", items[3])?;
            if index + 1 - last_update >= settings.accumulate {
                self.update(&settings);
                self.expect_finite(batch.epoch, index, "gradient norm", self.grad_norm)?;
                last_update = index + 1;
            }
            for (sum, item) in sums.iter_mut().zip(items) {
                *sum += f64::from(item);
            }
            let secs = step_start.elapsed().as_secs_f32();
            step_start = Instant::now();
            self.reporter.tell(TrainEvent::Step(StepReport {
                epoch: batch.epoch,
                step: index,
                box_loss: items[0],
                cls_loss: items[1],
                dfl_loss: items[2],
                lr: settings.lr[1],
                grad_norm: self.grad_norm,
                images_per_sec: batch.n_images as f32 / secs.max(1e-6),
            }))?;
            if (index + 1) % per_epoch == 0 {
                let means = sums.map(|sum| (sum / per_epoch as f64) as f32);
                self.end_epoch(batch.epoch, means, settings.lr, epoch_start)?;
                sums = [0.0; 3];
                (epoch_start, step_start) = (Instant::now(), Instant::now());
            }
        }
        Ok(())
    }

    fn forward_backward(&mut self, batch: &Batch) -> [f32; 4] {
        let step = self.executors.iter_mut().find(|step| step.n_images == batch.n_images).expect("every batch size has an executor");
        step.run(batch, &mut self.network.params, &mut self.gradients)
    }

    /// Clips, steps, and averages; leaves the parameters alone where the gradient is not finite.
    fn update(&mut self, settings: &StepSettings) {
        self.grad_norm = clip_gradients(&mut self.gradients, MAX_GRAD_NORM);
        if !self.grad_norm.is_finite() {
            return;
        }
        let lr = settings.lr.map(|lr| lr as f32);
        let weight_decay = self.schedule.weight_decay() as f32;
        let (params, gradients) = (&mut self.network.params, &self.gradients);
        match &mut self.memory {
            OptimizerMemory::Sgd { velocity } => {
                let step = SgdStep { lr, momentum: settings.momentum as f32, weight_decay };
                sgd_step(params, gradients, velocity, self.n_updates == 0, &step);
            }
            OptimizerMemory::AdamW(state) => {
                let betas = [self.hyp.momentum as f32, ADAMW_BETA2];
                adamw_step(params, gradients, state, &AdamWStep { lr, betas, weight_decay, amsgrad: false });
            }
        }
        self.gradients.values.fill(0.0);
        self.n_updates += 1;
        let decay = ema::decay(self.hyp, self.n_updates);
        ema_update(&mut self.average.params, &self.network.params, decay);
    }

    /// Ends the run when a value is not finite; the averaged weights up to the step before are kept.
    fn expect_finite(&mut self, epoch: usize, step: usize, what: &'static str, value: f32) -> Result<(), TrainError> {
        if value.is_finite() {
            return Ok(());
        }
        self.save(Kept::Last)?;
        let weights = self.reporter.folder.weights_path(Kept::Last).display().to_string();
        Err(TrainError::Diverged { epoch, step, what, value, weights })
    }

    /// Validates, keeps weights and figures. After a stop during the validation the epoch does not count.
    fn end_epoch(&mut self, epoch: usize, losses: [f32; 3], lr: [f64; 3], start: Instant) -> Result<(), TrainError> {
        self.save(Kept::Last)?;
        let Some(outcome) = self.validate()? else { return Ok(()) };
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

    /// Validates the averaged network; `None` after a stop.
    fn validate(&mut self) -> Result<Option<ValOutcome>, TrainError> {
        let reporter = RefCell::new(&mut self.reporter);
        let check_in = |done, total| {
            let mut reporter = reporter.borrow_mut();
            let flow = (reporter.sink)(TrainEvent::Progress { stage: TrainStage::Validating, done, total });
            reporter.stopped |= flow.is_break();
            flow
        };
        match self.validator.run(&self.average, &check_in) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(ValError::Cancelled) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn save(&self, kept: Kept) -> Result<(), TrainError> {
        let info = WeightsInfo { class_names: self.dataset.names.clone(), imgsz: self.config.imgsz as usize };
        Ok(weights::save(&self.reporter.folder.weights_path(kept), &self.average, &info)?)
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
            (self.average, _) = weights::load(&self.reporter.folder.weights_path(Kept::Best))?;
            if let Some(outcome) = self.validate()? {
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
