//! The steps of a GPU, one of which may be on its way.

use std::sync::Arc;

use super::{BatchShape, MAX_GRAD_NORM, PlannedStep, StepOutcome, StepSpec};
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::optimizer::{Results, Settings};
use crate::engine::cuda::runtime::Runtime;
use crate::engine::cuda::training::{KeptAverages, StepInput, StepPlan, Training, TrainingState};
use crate::engine::params::Params;
use crate::engine::rule::Rule;
use crate::train::gpu_samples;
use crate::train::gpu_samples::Pictures;
use crate::train::loader::Batch;
use crate::train::schedule::StepSettings;
use crate::train::state::DeviceState;
use crate::train::train_set::TrainSet;
use crate::yolo::Network;
use crate::yolo::joined::{joined, take_joined};

pub(super) struct OnGpu {
    training: Training,
    /// Table of its parameters, in which pairs are joined.
    table: Params,
    /// Those of the train set, where samples are made on the GPU.
    pictures: Option<Pictures>,
    pub(super) precision: Precision,
    /// Submitted and not told yet.
    on_its_way: Option<OnItsWay>,
    average: Network,
    /// Whether `average` is what the GPU has.
    is_fresh: bool,
}

/// An averaged network that is still on the GPU.
pub(super) struct AverageLater {
    averages: KeptAverages,
    n: usize,
    /// Without its values.
    average: Network,
    n_values: usize,
}

impl AverageLater {
    pub(super) fn network(self) -> Result<Network, CudaError> {
        let mut network = self.average;
        network.params.values = vec![0.0; self.n_values];
        take_joined(&mut network, &self.averages.read(self.n)?);
        Ok(network)
    }
}

#[derive(Clone, Copy)]
struct OnItsWay {
    step: usize,
    updates: bool,
}

impl OnItsWay {
    fn outcome(self, results: &Results) -> StepOutcome {
        let Results { items, norm, update_ratio, skipped, .. } = *results;
        StepOutcome { step: self.step, items, grad_norm: norm, update_ratio, skipped: self.updates && skipped != 0 }
    }
}

impl OnGpu {
    pub(super) fn new(
        network: Network,
        spec: &StepSpec,
        shapes: &[BatchShape],
        runtime: &Arc<Runtime>,
        check_in: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let precision = runtime.precision();
        let trained = joined(&network);
        let plan = |shape: &BatchShape| {
            let PlannedStep { n_images, plan, input, truth, items } =
                PlannedStep::for_gpu(&trained, &shape.spec(spec), shape.n_images, precision);
            StepPlan { n_images, plan, input, truth, items }
        };
        let rule = spec.hyp.rule();
        let training = Training::new(runtime, shapes.iter().map(plan).collect(), &trained.params, rule, check_in)?;
        let table = trained.params.zeros_like();
        Ok(Self { training, pictures: None, table, precision, on_its_way: None, average: network, is_fresh: true })
    }

    pub(super) fn step(
        &mut self,
        spec: &StepSpec,
        step: usize,
        batch: &Batch,
        update: Option<&StepSettings>,
    ) -> Result<Option<StepOutcome>, CudaError> {
        let settings = update.map(|update| self.settings(spec, update));
        match &self.pictures {
            Some(pictures) if !batch.compositions.is_empty() => {
                let table = gpu_samples::table(&batch.compositions, pictures);
                self.training.submit(batch.n_images, StepInput::Samples(&table, batch.side as usize), &batch.truth, settings.as_ref())?;
            }
            _ => self.training.submit(batch.n_images, StepInput::Bytes(&batch.pixels), &batch.truth, settings.as_ref())?,
        }
        self.is_fresh = false;
        let Some(before) = self.on_its_way.replace(OnItsWay { step, updates: update.is_some() }) else { return Ok(None) };
        Ok(Some(before.outcome(&self.training.results(1)?)))
    }

    pub(super) fn take_pictures(&mut self, set: &TrainSet, leave: usize) -> Result<bool, CudaError> {
        self.pictures = Pictures::new(set, self.training.runtime(), leave)?;
        Ok(self.pictures.is_some())
    }

    pub(super) fn flush(&mut self) -> Result<Option<StepOutcome>, CudaError> {
        let Some(last) = self.on_its_way.take() else { return Ok(None) };
        Ok(Some(last.outcome(&self.training.results(0)?)))
    }

    pub(super) fn is_idle(&self) -> Result<bool, CudaError> {
        self.training.is_idle()
    }

    fn settings(&self, spec: &StepSpec, update: &StepSettings) -> Settings {
        let hyp = &spec.hyp;
        let rule = hyp.rule();
        Settings {
            lr: update.lr.map(|lr| lr as f32),
            momentum: if rule.warms_momentum_up() { update.momentum } else { hyp.momentum } as f32,
            beta2: rule.beta2(),
            weight_decay: spec.weight_decay as f32,
            max_norm: MAX_GRAD_NORM,
            amsgrad: i32::from(rule == Rule::AdamW { amsgrad: true }),
            scales: i32::from(self.scales_loss()),
            coupled: i32::from(rule == Rule::Adam),
            ema_decay: hyp.ema_decay,
            ema_tau: hyp.ema_tau,
        }
    }

    pub(super) fn average(&mut self) -> Result<&Network, CudaError> {
        if !self.is_fresh {
            take_joined(&mut self.average, &self.training.averages()?);
            self.is_fresh = true;
        }
        Ok(&self.average)
    }

    /// The averaged network as it is after the step submitted last, for another thread.
    pub(super) fn average_later(&self) -> Result<AverageLater, CudaError> {
        let n = self.table.values.len();
        let Network { model, form, n_classes, params } = &self.average;
        let average = Network { model: *model, form: *form, n_classes: *n_classes, params: params.layout() };
        Ok(AverageLater { averages: self.training.keep_averages()?, n, average, n_values: params.values.len() })
    }

    pub(super) fn state(&mut self) -> Result<DeviceState, CudaError> {
        assert!(self.on_its_way.is_none(), "the last step was told");
        let TrainingState { values, averages, gradients, remembered, n_updates, n_since_scale, loss_scale } = self.training.state()?;
        let mut network = Network { params: self.average.params.zeros_like(), ..self.average.clone() };
        let mut parted = |values| {
            take_joined(&mut network, &Params { values, ..self.table.layout() });
            network.params.values.clone()
        };
        let has_gradients = gradients.iter().any(|value| *value != 0.0);
        Ok(DeviceState {
            values: parted(values),
            averages: parted(averages),
            gradients: if has_gradients { parted(gradients) } else { Vec::new() },
            memory: remembered.into_iter().map(&mut parted).collect(),
            n_updates,
            n_since_scale,
            loss_scale,
        })
    }

    pub(super) fn restore(&mut self, state: &DeviceState) -> Result<(), CudaError> {
        let join = |values: &[f32]| {
            let params = Params { values: values.to_vec(), ..self.average.params.clone() };
            joined(&Network { params, ..self.average.clone() }).params.values
        };
        // Where the loss is scaled its scale goes on from where it was; elsewhere it is 1, and a state from there begins as a new run.
        let before = self.training.state()?;
        let loss_scale = if self.scales_loss() && state.loss_scale > 1.0 { state.loss_scale } else { before.loss_scale };
        let mut gradients = if state.gradients.is_empty() { vec![0.0; before.gradients.len()] } else { join(&state.gradients) };
        // Both are powers of two, so nothing is rounded.
        for value in &mut gradients {
            *value *= loss_scale / state.loss_scale;
        }
        self.training.restore(&TrainingState {
            values: join(&state.values),
            averages: join(&state.averages),
            gradients,
            remembered: state.memory.iter().map(|arena| join(arena)).collect(),
            n_updates: state.n_updates,
            n_since_scale: state.n_since_scale,
            loss_scale,
        })?;
        self.is_fresh = false;
        Ok(())
    }

    pub(super) fn scales_loss(&self) -> bool {
        self.precision == Precision::F16
    }

    pub(super) fn parameter_bytes(&self) -> usize {
        self.average.params.values.len() * size_of::<f32>()
    }

    pub(super) fn device_bytes(&self) -> usize {
        self.training.memory().total() + self.pictures.as_ref().map_or(0, Pictures::n_bytes)
    }

    pub(super) fn fallback(&self) -> Option<String> {
        self.training.fallback().map(str::to_owned)
    }
}
