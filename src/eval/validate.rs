//! Validation: how good is a network on a split of a dataset?
//!
//! In:  a network of any form, a dataset, a split.
//! Out: precision, recall and mAP; the images left out; the detections worth looking at.
//!
//! The network runs in deploy form, in the rectangular batches of `val_set.rs`, with the published thresholds. There is one
//! evaluator: training, `val` and the window all use this one, so that they can never disagree.
//!
//! Batches keep their rectangles on a GPU, too, as other padding would change the figures by more than rounding. A shape that
//! the GPU never met costs seconds once: its convolutions are timed, and what was chosen is kept on disk.
//!
//! Never changes the network or a file. Source: spec 10.

use std::ops::ControlFlow;

use rayon::prelude::*;

use super::ap::Metrics;
use super::ap::evaluate;
use super::matching::Truth;
use super::matching::match_image;
use super::val_set::ValBatch;
use super::val_set::ValSet;
use crate::dataset::Dataset;
use crate::dataset::Split;
use crate::engine::Device;
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::nms_bytes;
use crate::geom::nms::Detection;
use crate::geom::nms::NmsOptions;
use crate::yolo::Network;
use crate::yolo::joined::joined;
use crate::yolo::{InputShape, Predictor, PredictorPlan};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValOptions {
    pub split: Split,
    pub imgsz: u32,
    pub batch: usize,
    pub conf: f32,
    pub iou: f32,
    pub max_detections: usize,
    pub device: Device,
}

impl ValOptions {
    /// The published values for validation.
    pub fn new(split: Split, imgsz: u32) -> Self {
        Self { split, imgsz, batch: 16, conf: 0.001, iou: 0.7, max_detections: 300, device: Device::Cpu }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ValError {
    #[error(transparent)]
    Dataset(#[from] crate::dataset::DatasetError),
    #[error("the {split} split of {dataset} has no images")]
    EmptySplit { split: &'static str, dataset: String },
    #[error("none of the {n_images} images of the {split} split can be decoded; the first: {reason}")]
    NothingDecodes { split: &'static str, n_images: usize, reason: String },
    #[error("the weights know {weights} classes, the dataset names {dataset}")]
    ClassCount { weights: usize, dataset: usize },
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error("cancelled")]
    Cancelled,
}

impl ValError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Dataset(error) => error.hint(),
            Self::EmptySplit { split, .. } => Some(format!("give `{split}:` in data.yaml a folder with pictures, or name another split")),
            Self::NothingDecodes { .. } => Some("`boxwright check` lists what is wrong with each picture".into()),
            Self::ClassCount { .. } => Some("use weights that were trained on this dataset, or a dataset with the same `names`".into()),
            Self::Cuda(error) => error.hint().map(Into::into),
            Self::Cancelled => None,
        }
    }
}

/// What a validation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValOutcome {
    pub metrics: Metrics,
    /// Images that were left out, with the reason.
    pub dropped: Vec<String>,
    /// Detections that a person would look at (score of [`SHOWN_SCORE`] or more), in image pixels; by index into
    /// `Dataset::images`.
    pub detections: Vec<(usize, Vec<Detection>)>,
}

/// Scores from which on detections are kept to be looked at.
pub const SHOWN_SCORE: f32 = 0.25;

/// Runs the network (any form) over the split: rectangular batches, padding 0.5 stride, as published.
/// Images that do not decode are left out and listed in the second result.
pub fn validate(
    network: &Network,
    dataset: &Dataset,
    options: &ValOptions,
    check_in: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<(Metrics, Vec<String>), ValError> {
    let outcome = Validator::new(dataset, *options, 0)?.run(network, check_in)?;
    Ok((outcome.metrics, outcome.dropped))
}

/// Validates again and again over the same split, such as after each epoch.
pub struct Validator {
    options: ValOptions,
    n_classes: usize,
    set: ValSet,
    /// Of the run before, with its graphs.
    predictor: Option<Predictor>,
}

/// Graphs that are kept between runs on a GPU.
const KEPT_GRAPHS: usize = 4;

impl Validator {
    /// Reads labels and picture headers. Fitted pictures are kept between runs up to `keep_bytes`.
    pub fn new(dataset: &Dataset, options: ValOptions, keep_bytes: usize) -> Result<Self, ValError> {
        let set = ValSet::new(dataset, options.split, options.imgsz, options.batch, keep_bytes)?;
        Ok(Self { options, n_classes: dataset.names.len(), set, predictor: None })
    }

    pub fn n_images(&self) -> usize {
        self.set.images.len()
    }

    pub fn n_labels(&self) -> usize {
        self.set.images.iter().map(|image| image.labels.len()).sum()
    }

    /// Images that will be left out, as far as their headers tell.
    pub fn dropped(&self) -> &[String] {
        &self.set.dropped
    }

    /// Makes batches of another size.
    pub fn set_batch(&mut self, batch: usize) {
        self.options.batch = batch;
        self.set.set_batch(batch);
    }

    /// Memory of the process during a run: kept pictures, a batch, and the network in deploy form. On the CPU also
    /// the activations, and the weights a second time in the kernels' order.
    pub fn planned_bytes(&self, network: &Network) -> u64 {
        let deploy = network.to_deploy();
        let of_shape = |&shape: &InputShape| {
            let is_cpu = self.options.device == Device::Cpu;
            // While a batch is computed the next one is prepared; each graph of a GPU has pinned memory for its own.
            let of_graph = if is_cpu { PredictorPlan::new(&deploy, shape).plan.arena_bytes } else { KEPT_GRAPHS * shape.n_bytes() };
            2 * shape.n_bytes() + of_graph
        };
        let parameters = 2 * deploy.params.values.len() * size_of::<f32>();
        (self.set.keep_bytes() + self.shapes().iter().map(of_shape).max().unwrap_or(0) + parameters) as u64
    }

    /// Memory on a GPU during a run, without what convolutions need beside.
    pub fn device_bytes(&self, network: &Network, precision: Precision) -> usize {
        let deploy = network.to_deploy();
        // The graphs of the largest inputs need the most, and what a graph needs grows as its input.
        let mut bytes: Vec<usize> = self.shapes().iter().map(InputShape::n_bytes).collect();
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let kept: usize = bytes.iter().take(KEPT_GRAPHS).sum();
        let of_shape = |shape: InputShape| {
            let arena = PredictorPlan::for_gpu(&joined(&deploy), shape, precision).plan.arena_bytes;
            let of_largest = arena + shape.n_bytes() + nms_bytes(shape.n_images, self.options.max_detections);
            (of_largest as f64 * kept as f64 / shape.n_bytes() as f64) as usize
        };
        let parameters = deploy.params.values.len() * (size_of::<f32>() + precision.bytes());
        self.shapes().into_iter().max_by_key(InputShape::n_bytes).map_or(0, of_shape) + parameters
    }

    /// The shapes of the batches, each once.
    fn shapes(&self) -> Vec<InputShape> {
        let mut shapes: Vec<InputShape> = self.set.batches.iter().map(shape_of).collect();
        shapes.sort_by_key(|shape| (shape.n_images, shape.width, shape.height));
        shapes.dedup();
        shapes
    }

    /// Makes what runs need before the first one: on a GPU the graphs of the batches' shapes, as many as are kept.
    ///
    /// # Errors
    /// A GPU without room.
    pub fn prepare(&mut self, network: &Network) -> Result<(), ValError> {
        let shapes = self.shapes();
        let mut predictor = self.predictor_of(network)?;
        for shape in shapes.into_iter().rev().take(KEPT_GRAPHS) {
            predictor.prepare(shape)?;
        }
        self.predictor = Some(predictor);
        Ok(())
    }

    /// The one of the run before with these parameters, or a new one.
    fn predictor_of(&mut self, network: &Network) -> Result<Predictor, ValError> {
        let known = match self.predictor.take() {
            Some(mut predictor) => predictor.set_network(network)?.then_some(predictor),
            None => None,
        };
        // Batches of one shape follow each other, so one graph at a time is enough where making one costs little.
        let n_graphs = if self.options.device == Device::Cpu { 1 } else { KEPT_GRAPHS };
        match known {
            Some(predictor) => Ok(predictor),
            None => Ok(Predictor::new(network, self.options.device, n_graphs)?),
        }
    }

    /// Runs the network (any form) over the split. `check_in(done, total)` is called after each batch and may stop it.
    ///
    /// # Errors
    /// A network of another class count, a split where no picture decodes, and a stop.
    pub fn run(&mut self, network: &Network, check_in: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<ValOutcome, ValError> {
        if network.n_classes != self.n_classes {
            return Err(ValError::ClassCount { weights: network.n_classes, dataset: self.n_classes });
        }
        let mut predictor = self.predictor_of(network)?;
        let nms_options = NmsOptions {
            conf: self.options.conf,
            iou: self.options.iou,
            max_detections: self.options.max_detections,
            multi_label: network.n_classes > 1,
            agnostic: false,
        };

        let mut outcome = ValOutcome { dropped: self.set.dropped.clone(), ..ValOutcome::default() };
        let (mut matched, mut label_classes, mut n_images) = (Vec::new(), Vec::new(), 0);
        let mut prepared = self.set.batches.first().map(|batch| self.set.input(batch));
        for (index, batch) in self.set.batches.iter().enumerate() {
            let (pixels, faults) = prepared.take().expect("each batch is prepared while the one before is computed");
            let (found, next) = rayon::join(
                || predictor.detect(shape_of(batch), &pixels, &nms_options),
                || self.set.batches.get(index + 1).map(|batch| self.set.input(batch)),
            );
            prepared = next;
            let of_images = found?.images;
            let images = &self.set.images[batch.first..batch.first + batch.n];
            let found: Vec<(Vec<Detection>, Vec<Truth>)> = of_images
                .into_par_iter()
                .zip(images)
                .map(|(mut detections, image)| {
                    for detection in &mut detections {
                        detection.bbox = image.image_from_input(batch.input, detection.bbox);
                    }
                    (detections, image.truths(batch.input))
                })
                .collect();
            for (((detections, truths), image), fault) in found.into_iter().zip(images).zip(faults) {
                if let Some(reason) = fault {
                    outcome.dropped.push(reason);
                    continue;
                }
                n_images += 1;
                matched.extend(match_image(&detections, &truths));
                label_classes.extend(truths.iter().map(|truth| truth.class));
                let shown = detections.into_iter().filter(|detection| detection.score >= SHOWN_SCORE).collect();
                outcome.detections.push((image.index, shown));
            }
            if check_in(index as u64 + 1, self.set.batches.len() as u64).is_break() {
                return Err(ValError::Cancelled);
            }
        }
        if n_images == 0 {
            let reason = outcome.dropped.first().cloned().unwrap_or_default();
            return Err(ValError::NothingDecodes { split: self.options.split.name(), n_images: outcome.dropped.len(), reason });
        }
        outcome.detections.sort_by_key(|(index, _)| *index);
        outcome.metrics = evaluate(n_images, &matched, &label_classes);
        if self.options.device != Device::Cpu {
            self.predictor = Some(predictor);
        }
        Ok(outcome)
    }
}

fn shape_of(batch: &ValBatch) -> InputShape {
    InputShape { n_images: batch.n, height: batch.input.height as usize, width: batch.input.width as usize }
}
