//! Can the network learn one batch by heart? A check in seconds before a run of hours.
//!
//! In:  a configuration. Out: the losses of some steps on one fixed batch, and a verdict in words.
//!
//! The batch is the first pictures with boxes, without augmentation; each step sees the same. Steps are AdamW's at a fixed rate, so
//! that the check says something about the data and the network, not about the schedule. A network that cannot learn a handful
//! of pictures will not learn thousands: then labels do not belong to their pictures, or start weights are broken.
//!
//! Never writes a file.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::config::BatchChoice;
use super::config::Hyp;
use super::config::OptimizerKind;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::BranchLosses;
use super::event::TrainEvent;
use super::event::TrainStage;
use super::loader::Loader;
use super::loader::LoaderOptions;
use super::recipe::Stream;
use super::reporter::Sink;
use super::schedule::StepSettings;
use super::setup::take_weights;
use super::stepper::BatchShape;
use super::stepper::StepOutcome;
use super::stepper::StepSpec;
use super::stepper::Stepper;
use super::train_set::TrainSet;
use super::truth_rows::truth_rows;
use crate::dataset::Dataset;
use crate::engine::Device;
use crate::yolo::Network;

/// Most pictures and longest side on the CPU, where a step of more would take too long.
const CPU_IMAGES: usize = 4;
const CPU_SIDE: u32 = 320;
/// Most pictures on a GPU.
const GPU_IMAGES: usize = 16;
/// Rate of all steps.
const RATE: f64 = 1e-3;
/// Steps at the start and at the end whose means are compared.
const ENDS: usize = 5;
/// Share of the first loss that must not be left.
const LEARNT: f32 = 0.6;
/// Share from which on nothing was learnt at all.
const NOT_LEARNT: f32 = 0.9;

/// Keys of what changes pictures at random, as the published files name them; 0 switches each off.
const AUGMENTATION: [&str; 13] = [
    "hsv_h",
    "hsv_s",
    "hsv_v",
    "degrees",
    "translate",
    "scale",
    "shear",
    "perspective",
    "flipud",
    "fliplr",
    "mosaic",
    "mixup",
    "copy_paste",
];

/// Steps that are enough for a verdict.
pub const DEFAULT_STEPS: usize = 60;

/// What came of the check.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OverfitReport {
    pub n_images: usize,
    pub n_boxes: usize,
    /// Of each step: the sum of box, class and distribution loss.
    pub losses: Vec<f32>,
    /// Means of the first and of the last steps, of both branches together.
    pub first: BranchLosses,
    pub last: BranchLosses,
    pub verdict: OverfitVerdict,
    /// The verdict in words, with figures.
    pub text: String,
    pub secs: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverfitVerdict {
    Learns,
    /// The loss falls, but slower than it should.
    Slow,
    Fails,
}

/// Trains `n_steps` steps on one batch. `sink` hears of progress and may break.
///
/// # Errors
/// As those of a run before its first step; [`TrainError::Cancelled`] when `sink` breaks.
pub fn overfit_check(config: &TrainConfig, n_steps: usize, sink: &mut Sink) -> Result<OverfitReport, TrainError> {
    let start = Instant::now();
    let (config, _) = config.checked()?;
    let n_steps = n_steps.max(2 * ENDS);
    let mut dataset = Dataset::open(&config.data)?;
    if config.single_cls {
        dataset.merge_classes();
    }
    let (most, imgsz) = match config.device {
        Device::Cpu => (CPU_IMAGES, config.imgsz.min(CPU_SIDE)),
        Device::Cuda(_) => (GPU_IMAGES, config.imgsz),
    };
    let mut check_in = |done, total| sink(TrainEvent::Progress { stage: TrainStage::Preparing, done, total });
    // Only headers and labels are read; the loader decodes the few pictures that are used.
    let Some(mut set) = TrainSet::read(&dataset, imgsz, 0, &mut check_in)? else { return Err(TrainError::Cancelled) };
    let (hyp, _) = config.resolve_hyp(set.images.len())?;
    set.images.retain(|image| !image.labels.is_empty());
    let n_wanted = match config.batch {
        BatchChoice::Count(count) => count.min(most),
        BatchChoice::Auto => most,
    };
    set.images.truncate(n_wanted);
    let (n_images, n_boxes) = (set.images.len(), set.n_labels());

    let mut network = Network::new(config.model, dataset.names.len(), config.seed);
    if let Some(path) = &config.weights {
        take_weights(&mut network, path, config.allow_partial, &mut Vec::new())?;
    }
    if let Some(side) = set.median_side().filter(|_| config.weights.is_none()) {
        network.start_with_boxes_of(side);
    }
    let hyp = Hyp { optimizer: OptimizerKind::AdamW, momentum: 0.9, ..without_augmentation(&hyp) };
    let stream = Stream { hyp: hyp.clone(), seed: config.seed, n_images, mosaic_ends: 0 };
    let truth_rows = truth_rows(&set, &stream, 1);
    let spec = StepSpec { side: set.imgsz as usize, truth_rows, hyp, weight_decay: 0.0 };
    let (batch, sides) = (n_images, Vec::new());
    let options = LoaderOptions { stream, truth_rows, batch, n_epochs: 1, first_batch: 0, n_workers: 1, sides, orders: None, paints: true };
    let shape = BatchShape { n_images, side: spec.side };
    let batch = Loader::start(&Arc::new(set), &options)?.next().expect("an epoch has a batch");
    let mut planning = |done: usize, total: usize| {
        // A stop is noticed at the first step.
        let _ = sink(TrainEvent::Progress { stage: TrainStage::Planning, done: done as u64, total: total as u64 });
    };
    let mut stepper = Stepper::new(network, spec, &[shape], config.device, &mut planning)?;

    let settings = StepSettings { lr: [RATE; 3], momentum: 0.9, accumulate: 1 };
    let mut outcomes: Vec<StepOutcome> = Vec::with_capacity(n_steps);
    for step in 0..n_steps {
        outcomes.extend(stepper.step(&batch, Some(&settings))?);
        if sink(TrainEvent::Progress { stage: TrainStage::Overfitting, done: step as u64 + 1, total: n_steps as u64 }).is_break() {
            return Err(TrainError::Cancelled);
        }
    }
    outcomes.extend(stepper.flush()?);
    let parts: Vec<[f32; 3]> = outcomes.iter().map(|outcome| [outcome.items[0], outcome.items[1], outcome.items[2]]).collect();
    Ok(judge(&parts, n_images, n_boxes, start.elapsed().as_secs_f64()))
}

/// The same without what changes pictures at random.
fn without_augmentation(hyp: &Hyp) -> Hyp {
    let Ok(Value::Object(values)) = serde_json::to_value(hyp) else { unreachable!("plain values are a JSON object") };
    let off = values.keys().filter(|key| AUGMENTATION.contains(&key.as_str())).map(|key| (key.clone(), 0.0.into())).collect();
    hyp.with(&off).expect("0 is a value that each of them takes")
}

/// The verdict over box, class and distribution loss of each step.
fn judge(parts: &[[f32; 3]], n_images: usize, n_boxes: usize, secs: f64) -> OverfitReport {
    let losses: Vec<f32> = parts.iter().map(|parts| parts.iter().sum()).collect();
    let mean = |parts: &[[f32; 3]]| {
        let [box_loss, cls_loss, dfl_loss] = [0, 1, 2].map(|part| parts.iter().map(|of| of[part]).sum::<f32>() / parts.len().max(1) as f32);
        BranchLosses { box_loss, cls_loss, dfl_loss }
    };
    let (first, last) = (mean(&parts[..ENDS.min(parts.len())]), mean(&parts[parts.len().saturating_sub(ENDS)..]));
    let left = last.sum() / first.sum();
    let verdict = if left < LEARNT {
        OverfitVerdict::Learns
    } else if left < NOT_LEARNT {
        OverfitVerdict::Slow
    } else {
        // Also a loss that is no number.
        OverfitVerdict::Fails
    };
    let figures = format!(
        "the loss on {n_images} pictures with {n_boxes} boxes went from {:.2} to {:.2} in {} steps",
        first.sum(),
        last.sum(),
        parts.len()
    );
    let text = match verdict {
        OverfitVerdict::Learns => format!("{figures}: one batch can be learnt, so labels and network fit together"),
        OverfitVerdict::Slow => {
            format!("{figures}: it falls, but slowly; try again with more steps, and look at the boxes of these pictures")
        }
        OverfitVerdict::Fails if !left.is_finite() => {
            format!("{figures}: it is no number; start weights may be broken, or boxes are of no size")
        }
        OverfitVerdict::Fails => format!(
            "{figures}: one batch cannot be learnt; look whether the boxes lie on the objects and the classes are right (`boxwright check`), \
             and whether the start weights belong to this model"
        ),
    };
    OverfitReport { n_images, n_boxes, losses, first, last, verdict, text, secs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn falling(to: f32) -> Vec<[f32; 3]> {
        (0..20).map(|step| if step < 10 { [2.0, 4.0, 1.0] } else { [2.0 * to, 4.0 * to, to] }).collect()
    }

    #[test]
    fn nothing_random_is_left_of_the_hyper_parameters() {
        let plain = without_augmentation(&Hyp::scratch_high());
        let values = serde_json::to_value(&plain).unwrap_or_default();
        for key in AUGMENTATION {
            assert!(values.get(key).is_none_or(|value| value.as_f64() == Some(0.0)), "{key}");
        }
        assert_eq!(plain.lr0, Hyp::scratch_high().lr0);
    }

    #[test]
    fn the_verdict_follows_what_is_left_of_the_loss() {
        for (to, expected, word) in [
            (0.2, OverfitVerdict::Learns, "can be learnt"),
            (0.7, OverfitVerdict::Slow, "slowly"),
            (1.0, OverfitVerdict::Fails, "cannot be learnt"),
            (f32::NAN, OverfitVerdict::Fails, "no number"),
        ] {
            let report = judge(&falling(to), 4, 9, 1.0);
            assert_eq!(report.verdict, expected);
            assert!(report.text.contains(word) && report.text.contains("4 pictures with 9 boxes"), "{}", report.text);
        }
        let report = judge(&falling(0.5), 4, 9, 1.0);
        assert_eq!((report.first.sum(), report.last.sum(), report.losses.len()), (7.0, 3.5, 20));
    }
}
