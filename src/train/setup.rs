//! Everything that comes before the first step: what is read, checked, planned and brought to the device.
//!
//! In:  a configuration.
//! Out: a run that can begin, with what is worth telling about it.
//!
//! Everything that can fail for a reason the person can mend fails here, before the run folder is made: device, dataset,
//! splits, start weights, memory.
//!
//! Never writes a file. Source: spec 7.2.

use std::path::Path;
use std::sync::Arc;

use super::batch_size::Fit;
use super::config::BatchChoice;
use super::config::Hyp;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainStage;
use super::freeze::Freeze;
use super::freeze::Saving;
use super::image_weights::ImageWeights;
use super::loader;
use super::memory;
use super::multi_scale;
use super::recipe::Stream;
use super::reporter::Sink;
use super::schedule::Schedule;
use super::stepper::StepSpec;
use super::stepper::Stepper;
use super::train_set::TrainSet;
use super::truth_rows::truth_rows;
use super::truth_rows::with_room;
use crate::dataset::Dataset;
use crate::dataset::Split;
use crate::engine::Device;
use crate::engine::Params;
use crate::engine::cuda;
use crate::eval::ValOptions;
use crate::eval::Validator;
use crate::yolo::Network;
use crate::yolo::weights;

/// Share of the parameters that start weights must give, unless few are allowed.
const MIN_TRANSFER: f64 = 0.8;
/// Share of broken pictures from which a person must say that it is right.
const MANY_BROKEN: f64 = 0.01;

/// Where the numbers of a run come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A new network or start weights.
    New,
    /// A state that is read afterwards: start weights are not needed any more.
    State,
}
/// Memory of a GPU that pictures leave to everybody else.
const LEFT_ON_GPU: usize = 1 << 30;

/// A run that can begin.
pub(super) struct Setup {
    pub(super) config: TrainConfig,
    pub(super) hyp: Hyp,
    pub(super) dataset: Arc<Dataset>,
    pub(super) set: Arc<TrainSet>,
    /// What all recipes have in common.
    pub(super) stream: Stream,
    pub(super) truth_rows: usize,
    /// Sides of whole batches; none: always the run's own.
    pub(super) sides: Vec<u32>,
    /// Where pictures of rare and badly found classes are to come more often.
    pub(super) image_weights: Option<ImageWeights>,
    /// `None` while an epoch is validated beside the steps of the next.
    pub(super) validator: Option<Validator>,
    /// Whether that is done.
    pub(super) validates_beside: bool,
    pub(super) batch: usize,
    pub(super) schedule: Schedule,
    pub(super) stepper: Stepper,
    /// The GPU holds the pictures and makes the samples.
    pub(super) samples_on_gpu: bool,
    pub(super) n_parameters: usize,
    pub(super) notes: Vec<String>,
}

impl Setup {
    /// Reads, checks and plans.
    ///
    /// # Errors
    /// See [`TrainError`]; nothing was written. [`TrainError::Cancelled`] where the sink broke.
    pub(super) fn new(config: &TrainConfig, start: Start, sink: &mut Sink) -> Result<Self, TrainError> {
        let (config, mut notes) = config.checked()?;
        if let Device::Cuda(index) = config.device {
            cuda::open(index)?;
        }
        let mut dataset = Dataset::open(&config.data)?;
        if config.single_cls {
            dataset.merge_classes();
        }
        notes.extend(dataset.notes.iter().cloned());

        // Half of what is free for pictures: the other half is for the step, and for everybody else.
        let keep_bytes = memory::available_bytes() / 2;
        let val_options = ValOptions { device: config.device, ..ValOptions::new(Split::Val, config.imgsz) };
        let mut validator = Validator::new(&dataset, val_options, usize::try_from(keep_bytes / 8).unwrap_or(usize::MAX))?;
        let mut network = Network::new(config.model, dataset.names.len(), config.seed);
        if let Some(path) = config.weights.as_ref().filter(|_| start == Start::New) {
            take_weights(&mut network, path, config.allow_partial, &mut notes)?;
        }
        config.freeze.apply(&mut network.params)?;
        let mut preparing = |done, total| sink(TrainEvent::Progress { stage: TrainStage::Preparing, done, total });
        let Some(mut set) = TrainSet::read(&dataset, config.imgsz, keep_bytes, &mut preparing)? else {
            return Err(TrainError::Cancelled);
        };
        if start == Start::New {
            check_broken(&config, &set)?;
        }
        notes.extend(few_items_note(&mut set, config.min_items)?);
        let (hyp, hyp_notes) = config.resolve_hyp(set.images.len())?;
        notes.extend(hyp_notes);
        if let Some(side) = set.median_side().filter(|_| hyp.fit_first_boxes && config.weights.is_none()) {
            network.start_with_boxes_of(side);
        }
        notes.extend(picture_notes(&set, &validator));
        notes.extend(copy_paste_note(&set, &hyp));

        let mosaic_ends = config.epochs.saturating_sub(config.close_mosaic);
        let stream = Stream { hyp: hyp.clone(), seed: config.seed, n_images: set.images.len(), mosaic_ends };
        let truth_rows = match truth_rows(&set, &stream, config.epochs) {
            rows if config.image_weights => with_room(rows),
            rows => rows,
        };
        let sides = if config.multi_scale { multi_scale::sides(config.imgsz) } else { Vec::new() };
        if !sides.is_empty() {
            notes.push(format!("multi-scale: batches have {sides:?} pixels a side, memory is planned for the largest"));
        }
        let image_weights = config.image_weights.then(|| ImageWeights::new(&set, dataset.names.len()));
        // Memory is counted for the largest input.
        let side = sides.last().map_or(set.imgsz, |side| set.imgsz.max(*side)) as usize;
        let spec = StepSpec { side, truth_rows, hyp: hyp.clone(), weight_decay: 0.0 };
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
        let shapes = multi_scale::shapes(set.images.len(), batch, set.imgsz, &sides);
        let mut stops = false;
        let mut stepper = Stepper::new(network, spec.clone(), &shapes, config.device, &mut |done, total| {
            stops |= sink(TrainEvent::Progress { stage: TrainStage::Planning, done: done as u64, total: total as u64 }).is_break();
        })?;
        if stops {
            return Err(TrainError::Cancelled);
        }
        if config.freeze != Freeze::Nothing {
            let precision = stepper.precision();
            let saving = Saving::of(stepper.average()?, &spec, batch.min(set.images.len()), precision);
            notes.push(saving.note(&config.freeze));
        }
        if let Some(reason) = stepper.fallback() {
            notes.push(format!("WARNING: the GPU's work cannot be captured as a graph and is given to it piece by piece: {reason}"));
        }
        let mut samples_on_gpu = false;
        if let Some(precision) = stepper.precision() {
            let leave = validator.device_bytes(stepper.average()?, precision) + LEFT_ON_GPU;
            // Samples of several sides are resized on the CPU.
            samples_on_gpu = sides.is_empty() && stepper.take_pictures(&set, leave)?;
            notes.push(if samples_on_gpu {
                "samples are made on the GPU, which holds all pictures".to_owned()
            } else {
                "samples are made on the CPU, because the pictures do not fit into the memory of the GPU, or have several sizes".to_owned()
            });
        }
        // The CPU has nothing to spare beside its steps; pictures that are drawn by what was found need to know it.
        let validates_beside = matches!(config.device, Device::Cuda(_)) && image_weights.is_none() && !config.noval;
        if validates_beside {
            // What a GPU plans and times for it is done before the first step.
            validator.prepare(stepper.average()?)?;
        }
        Ok(Self {
            config,
            hyp,
            dataset: Arc::new(dataset),
            set: Arc::new(set),
            stream,
            truth_rows,
            sides,
            image_weights,
            validator: Some(validator),
            validates_beside,
            batch,
            schedule,
            stepper,
            samples_on_gpu,
            n_parameters,
            notes,
        })
    }

    pub(super) fn batches_per_epoch(&self) -> usize {
        loader::batches_per_epoch(self.set.images.len(), self.batch)
    }

    /// What the process uses now, and what the steps and validations will add.
    pub(super) fn planned_bytes(&mut self) -> Result<u64, TrainError> {
        let own = self.stepper.planned_bytes();
        let n_workers = loader::default_workers(self.config.device);
        let batches = if self.samples_on_gpu {
            loader::planned_bytes_of_compositions(&self.set, self.truth_rows, self.batch, n_workers)
        } else {
            loader::planned_bytes(&self.set, self.truth_rows, self.batch, n_workers)
        };
        let largest = self.sides.last().map_or(1.0, |side| f64::from(*side) / f64::from(self.config.imgsz));
        let batches = (batches as f64 * largest * largest) as u64;
        // A state is copied before it is written.
        let state = (self.stepper.average()?.params.values.len() * (3 + self.hyp.rule().n_remembered()) * size_of::<f32>()) as u64;
        let average = self.stepper.average()?;
        Ok(memory::resident_bytes()
            + own
            + batches
            + state
            + self.validator.as_ref().map_or(0, |validator| validator.planned_bytes(average)))
    }

    /// What the training took on the GPU, and what validations will add.
    pub(super) fn device_bytes(&mut self) -> Result<Option<u64>, TrainError> {
        let (Some(training), Some(precision)) = (self.stepper.device_bytes(), self.stepper.precision()) else { return Ok(None) };
        let average = self.stepper.average()?;
        let validation = self.validator.as_ref().map_or(0, |validator| validator.device_bytes(average, precision));
        Ok(Some((training + validation) as u64))
    }
}

/// Takes what fits from weights.
pub(super) fn take_weights(network: &mut Network, path: &Path, allow_partial: bool, notes: &mut Vec<String>) -> Result<(), TrainError> {
    let (source, _) = weights::load(path)?;
    let report = weights::transfer(network, &source);
    let total = report.taken + report.skipped.len();
    let reason = report.skipped.first().map(|(name, reason)| format!("{name}: {reason}")).unwrap_or_default();
    let enough = if allow_partial { f64::MIN_POSITIVE } else { MIN_TRANSFER };
    if (report.taken as f64) < enough * total as f64 {
        return Err(TrainError::Transfer { taken: report.taken, total, reason, path: path.to_owned() });
    }
    let skipped = match report.skipped.len() {
        0 => String::new(),
        1 => format!("; left as new: {reason}"),
        n => format!("; {n} left as new, the first is {reason}"),
    };
    notes.push(format!("start weights {}: {} of {total} parameters taken{skipped}", path.display(), report.taken));
    Ok(())
}

/// Leaves out pictures with few labels, and says how many.
fn few_items_note(set: &mut TrainSet, min_items: usize) -> Result<Option<String>, TrainError> {
    let all = set.images.len();
    let [few, none] = set.leave_out_below(min_items)?;
    let note = || format!("{few} of {all} training pictures have fewer than {min_items} labels ({none} have none) and are left out");
    Ok((few > 0).then(note))
}

/// Refuses a split of which too much cannot be used, unless that was said to be right.
fn check_broken(config: &TrainConfig, set: &TrainSet) -> Result<(), TrainError> {
    let (n_broken, n_images) = (set.dropped.len(), set.dropped.len() + set.images.len());
    match set.dropped.first() {
        Some(first) if !config.allow_broken && n_broken as f64 > MANY_BROKEN * n_images as f64 => {
            Err(TrainError::ManyBroken { n_broken, n_images, first: first.clone() })
        }
        _ => Ok(()),
    }
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

/// Copy-paste cuts objects out along their outlines, which a dataset of boxes has not.
fn copy_paste_note(set: &TrainSet, hyp: &Hyp) -> Option<String> {
    if hyp.copy_paste == 0.0 || hyp.mosaic == 0.0 || set.has_polygons {
        return None;
    }
    let labels = match set.n_polygons {
        0 => "the labels are boxes".to_owned(),
        n => format!("only {n} of {} labels are polygons", set.n_labels()),
    };
    Some(format!("copy_paste {} has no effect: objects are cut out along polygons, and {labels}", hyp.copy_paste))
}

/// Values that the optimizer changes.
fn n_trained(params: &Params) -> usize {
    params.ids().filter(|&id| params.is_trained(id)).map(|id| params.spec(id).len()).sum()
}
