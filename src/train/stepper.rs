//! Training steps on a device: forward, loss, backward, and where one is due an update with its moving average.
//!
//! In:  a network, then batches in order, with the settings of an update or none.
//! Out: losses and norms of the steps; the averaged network.
//!
//! On the CPU a step is over when `step` returns. On a GPU it goes on: what a step gave is told when the next one was
//! submitted, so that the GPU never waits for the host; `flush` waits for what is still on its way.
//!
//! A gradient that is not finite changes nothing. Never decides a learning rate, and never whether a run goes on.

#[cfg(feature = "cuda")]
use std::sync::Arc;

use super::config::Hyp;
use super::ema;
use super::loader::Batch;
use super::schedule::StepSettings;
use super::state::DeviceState;
use super::train_set::TrainSet;
use crate::engine::BnMode;
use crate::engine::Device;
use crate::engine::LOSS_ITEMS;
use crate::engine::LossSpec;
use crate::engine::Params;
use crate::engine::Plan;
use crate::engine::TensorId;
use crate::engine::cpu::Executor;
use crate::engine::cpu::optimizer::Memory;
use crate::engine::cpu::optimizer::Step;
use crate::engine::cpu::optimizer::clip_gradients;
use crate::engine::cpu::optimizer::ema_update;
use crate::engine::cpu::optimizer::step;
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
use crate::engine::gradients::{GradientStyle, append_gradients_of};
use crate::engine::packed::pack_convolution_inputs;
use crate::engine::recompute::{is_cheap, recompute};
use crate::yolo::Network;

/// Largest norm of the gradient.
pub const MAX_GRAD_NORM: f32 = 10.0;

/// What the steps of a run have in common.
#[derive(Clone, Debug)]
pub struct StepSpec {
    /// Side of the square input.
    pub side: usize,
    /// Rows of ground truth an image.
    pub truth_rows: usize,
    pub hyp: Hyp,
    /// As the schedule scales it.
    pub weight_decay: f64,
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    pub n_images: usize,
    /// Of the square input.
    pub side: usize,
}

impl BatchShape {
    /// What a step of this shape has in common with those of `spec`.
    fn spec(self, spec: &StepSpec) -> StepSpec {
        StepSpec { side: self.side, ..spec.clone() }
    }
}

/// A training step planned for one batch size.
pub struct PlannedStep {
    pub n_images: usize,
    pub plan: Plan,
    /// (B, side, side, 3).
    pub input: TensorId,
    pub truth: TensorId,
    pub items: TensorId,
}

impl PlannedStep {
    /// For the CPU.
    pub fn new(network: &Network, spec: &StepSpec, n_images: usize) -> Self {
        Self::make(network, spec, n_images, None)
    }

    /// For a GPU that computes in `precision`. The network had better be `joined`.
    pub fn for_gpu(network: &Network, spec: &StepSpec, n_images: usize, precision: Precision) -> Self {
        Self::make(network, spec, n_images, Some(precision))
    }

    fn make(network: &Network, spec: &StepSpec, n_images: usize, gpu: Option<Precision>) -> Self {
        let hyp = &spec.hyp;
        let mut graph = network.graph(n_images, spec.side, spec.side, BnMode::Batch);
        let loss_spec = LossSpec {
            box_gain: hyp.box_gain as f32,
            cls_gain: hyp.cls as f32,
            dfl_gain: hyp.dfl as f32,
            cls_pw: hyp.cls_pw as f32,
            label_smoothing: hyp.label_smoothing as f32,
            ..LossSpec::published(network.n_classes, network.model.dual)
        };
        let loss = graph.append_loss(spec.truth_rows, loss_spec);
        let learns = |id| network.params.is_trained(id);
        let plan = if let Some(precision) = gpu {
            pack_convolution_inputs(&mut graph.graph);
            let n_forward = graph.graph.nodes.len();
            append_gradients_of(&mut graph.graph, GradientStyle::Pieces, &learns);
            recompute(&mut graph.graph, n_forward, is_cheap);
            // The ground truth is kept, so that a step can be repeated on the same batch.
            Plan::with_element_bytes(graph.graph, &[loss.truth, loss.items], precision.bytes())
        } else {
            append_gradients_of(&mut graph.graph, GradientStyle::Added, &learns);
            Plan::new(graph.graph, &[loss.items])
        };
        Self { n_images, plan, input: graph.input, truth: loss.truth, items: loss.items }
    }
}

/// What a finished step gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Counted from 0 since the stepper was made.
    pub step: usize,
    /// As `Op::DetectionLoss` says.
    pub items: [f32; LOSS_ITEMS],
    /// Of the gradient at the last update, before clipping.
    pub grad_norm: f32,
    /// Norm of the last update over the norm of the weights that it changed.
    pub update_ratio: f32,
    /// The update of this step was left out, because the gradient is not finite.
    pub skipped: bool,
}

/// Trains a network step by step on a device.
pub struct Stepper {
    spec: StepSpec,
    /// Steps begun so far.
    n_steps: usize,
    on: On,
}

enum On {
    Cpu(Box<OnCpu>),
    #[cfg(feature = "cuda")]
    Cuda(Box<gpu::OnGpu>),
}

impl Stepper {
    /// Brings a network to a device and plans the steps of every batch shape. `check_in(done, total)` hears of each
    /// convolution that a GPU planned.
    ///
    /// # Errors
    /// A GPU that cannot be opened or has no room. Never for the CPU.
    pub fn new(
        network: Network,
        spec: StepSpec,
        shapes: &[BatchShape],
        device: Device,
        check_in: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let on = match device {
            Device::Cpu => On::Cpu(Box::new(OnCpu::new(network, &spec, shapes))),
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => {
                let runtime = crate::engine::cuda::runtime::Runtime::open_default(ordinal)?;
                return Self::on_gpu(network, spec, shapes, &runtime, check_in);
            }
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) => {
                let _ = check_in;
                return Err(crate::engine::cuda::CudaUnavailable::NotBuilt.into());
            }
        };
        Ok(Self { spec, n_steps: 0, on })
    }

    /// As [`new`](Self::new), on a GPU that was opened for a chosen precision.
    #[cfg(feature = "cuda")]
    pub fn on_gpu(
        network: Network,
        spec: StepSpec,
        shapes: &[BatchShape],
        runtime: &Arc<crate::engine::cuda::runtime::Runtime>,
        check_in: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let on = On::Cuda(Box::new(gpu::OnGpu::new(network, &spec, shapes, runtime, check_in)?));
        Ok(Self { spec, n_steps: 0, on })
    }

    /// Brings the pictures of a train set to a GPU, so that samples are made there from compositions. False where it cannot be: on the
    /// CPU, where pictures are not all in memory, or where less than `leave` bytes would be left on the GPU.
    pub fn take_pictures(&mut self, set: &TrainSet, leave: usize) -> Result<bool, CudaError> {
        match &mut self.on {
            On::Cpu(_) => {
                let _ = (set, leave);
                Ok(false)
            }
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.take_pictures(set, leave),
        }
    }

    /// Computes a batch, which must have one of the planned shapes, and ends with an update where there are settings for one;
    /// else gradients are kept for the next. Returns what was finished meanwhile.
    pub fn step(&mut self, batch: &Batch, update: Option<&StepSettings>) -> Result<Option<StepOutcome>, CudaError> {
        let step = self.n_steps;
        self.n_steps += 1;
        match &mut self.on {
            On::Cpu(on) => Ok(Some(on.step(&self.spec, step, batch, update))),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.step(&self.spec, step, batch, update),
        }
    }

    /// Waits for the step that is still on its way, if there is one.
    pub fn flush(&mut self) -> Result<Option<StepOutcome>, CudaError> {
        match &mut self.on {
            On::Cpu(_) => Ok(None),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.flush(),
        }
    }

    /// Whether the device has nothing to do until the next step. Never waits.
    pub fn is_idle(&self) -> bool {
        match &self.on {
            On::Cpu(_) => true,
            // What is wrong with the device is told by the next step.
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.is_idle().unwrap_or(true),
        }
    }

    /// The network with averaged parameters: what is validated and kept.
    pub fn average(&mut self) -> Result<&Network, CudaError> {
        match &mut self.on {
            On::Cpu(on) => Ok(&on.average),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.average(),
        }
    }

    /// All that a step reads and changes. No step may be on its way.
    pub fn state(&mut self) -> Result<DeviceState, CudaError> {
        match &mut self.on {
            On::Cpu(on) => Ok(on.state()),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.state(),
        }
    }

    /// Goes on from the state after `n_steps` steps: of the same network and optimizer, on whatever device.
    ///
    /// # Panics
    /// If it is of another network or optimizer.
    pub fn restore(&mut self, state: &DeviceState, n_steps: usize) -> Result<(), CudaError> {
        self.n_steps = n_steps;
        match &mut self.on {
            On::Cpu(on) => {
                on.restore(state);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.restore(state),
        }
    }

    /// Whether an update that is left out is nothing to worry about: the loss was scaled too high for fp16, and the scale has come
    /// down.
    pub fn scales_loss(&self) -> bool {
        match &self.on {
            On::Cpu(_) => false,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.scales_loss(),
        }
    }

    /// How a GPU computes.
    pub fn precision(&self) -> Option<Precision> {
        match &self.on {
            On::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => Some(on.precision),
        }
    }

    /// Memory of the process that steps will take and that is not in use yet: arenas are reserved, but untouched before the
    /// first step. With what the optimizer remembers, and the file image while weights are written.
    pub fn planned_bytes(&self) -> u64 {
        match &self.on {
            On::Cpu(on) => on.planned_bytes(),
            // Of the host's copies, the averages that are brought back, those that are written and the file image are new.
            #[cfg(feature = "cuda")]
            On::Cuda(on) => 3 * on.parameter_bytes() as u64,
        }
    }

    /// Memory that was taken on a GPU.
    pub fn device_bytes(&self) -> Option<usize> {
        match &self.on {
            On::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => Some(on.device_bytes()),
        }
    }

    /// Why the GPU's work is given to it piece by piece, if it is.
    pub fn fallback(&self) -> Option<String> {
        match &self.on {
            On::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.fallback(),
        }
    }
}

/// A step's executor.
struct StepExecutor {
    shape: BatchShape,
    executor: Executor,
    input: TensorId,
    truth: TensorId,
    items: TensorId,
}

struct OnCpu {
    /// One for each batch shape. They share one arena.
    executors: Vec<StepExecutor>,
    /// Which of them has it.
    holder: usize,
    network: Network,
    average: Network,
    gradients: Params,
    memory: Memory,
    n_updates: usize,
    grad_norm: f32,
    update_ratio: f32,
}

impl OnCpu {
    fn new(network: Network, spec: &StepSpec, shapes: &[BatchShape]) -> Self {
        let executor = |&shape: &BatchShape| {
            let PlannedStep { plan, input, truth, items, .. } = PlannedStep::new(&network, &shape.spec(spec), shape.n_images);
            StepExecutor { shape, executor: Executor::without_arena(plan), input, truth, items }
        };
        let mut executors: Vec<StepExecutor> = shapes.iter().map(executor).collect();
        let holder = (0..executors.len()).max_by_key(|&index| executors[index].executor.plan.arena_bytes).expect("a batch has a shape");
        executors[holder].executor.make_arena();
        let zeros = network.params.zeros_like();
        Self {
            executors,
            holder,
            average: network.clone(),
            memory: Memory::new(spec.hyp.rule(), &network.params),
            gradients: zeros,
            network,
            n_updates: 0,
            grad_norm: 0.0,
            update_ratio: 0.0,
        }
    }

    fn step(&mut self, spec: &StepSpec, step: usize, batch: &Batch, update: Option<&StepSettings>) -> StepOutcome {
        let items = self.forward_backward(batch);
        let mut skipped = false;
        if let Some(settings) = update {
            // Nothing good comes of the gradient of such a loss.
            skipped = !items[3].is_finite() || !self.update(spec, settings);
        }
        StepOutcome { step, items, grad_norm: self.grad_norm, update_ratio: self.update_ratio, skipped }
    }

    fn forward_backward(&mut self, batch: &Batch) -> [f32; LOSS_ITEMS] {
        let shape = BatchShape { n_images: batch.n_images, side: batch.side as usize };
        let index = self.executors.iter().position(|step| step.shape == shape).expect("every batch shape has an executor");
        if let Ok([step, holder]) = self.executors.get_disjoint_mut([index, self.holder]) {
            step.executor.take_arena(&mut holder.executor);
            self.holder = index;
        }
        let step = &mut self.executors[index];
        step.executor.write_bytes(step.input, &batch.pixels);
        step.executor.write(step.truth, &batch.truth);
        step.executor.run(&mut self.network.params, &mut self.gradients);
        step.executor.read(step.items).try_into().expect("a loss has so many items")
    }

    /// Clips, steps, and averages; leaves the parameters alone where the gradient is not finite, and says so by `false`.
    fn update(&mut self, spec: &StepSpec, settings: &StepSettings) -> bool {
        self.grad_norm = clip_gradients(&mut self.gradients, MAX_GRAD_NORM);
        if !self.grad_norm.is_finite() {
            return false;
        }
        let rule = spec.hyp.rule();
        let settings = Step {
            rule,
            lr: settings.lr.map(|lr| lr as f32),
            momentum: if rule.warms_momentum_up() { settings.momentum } else { spec.hyp.momentum } as f32,
            weight_decay: spec.weight_decay as f32,
        };
        self.update_ratio = step(&mut self.network.params, &self.gradients, &mut self.memory, &settings);
        self.gradients.values.fill(0.0);
        self.n_updates += 1;
        let decay = ema::decay(&spec.hyp, self.n_updates);
        ema_update(&mut self.average.params, &self.network.params, decay);
        true
    }

    fn state(&self) -> DeviceState {
        let gradients = &self.gradients.values;
        DeviceState {
            values: self.network.params.values.clone(),
            averages: self.average.params.values.clone(),
            gradients: if gradients.iter().all(|value| *value == 0.0) { Vec::new() } else { gradients.clone() },
            memory: self.memory.arenas.iter().map(|arena| arena.values.clone()).collect(),
            n_updates: self.n_updates,
            n_since_scale: 0,
            loss_scale: 1.0,
        }
    }

    fn restore(&mut self, state: &DeviceState) {
        assert_eq!(self.memory.arenas.len(), state.memory.len(), "arenas of the optimizer");
        for (arena, values) in self.memory.arenas.iter_mut().zip(&state.memory) {
            arena.values.copy_from_slice(values);
        }
        self.memory.n_steps = state.n_updates;
        self.network.params.values.copy_from_slice(&state.values);
        self.average.params.values.copy_from_slice(&state.averages);
        if state.gradients.is_empty() {
            self.gradients.values.fill(0.0);
        } else {
            self.gradients.values.copy_from_slice(&state.gradients);
            self.gradients.values.iter_mut().for_each(|value| *value /= state.loss_scale);
        }
        self.n_updates = state.n_updates;
    }

    fn planned_bytes(&self) -> u64 {
        let parameters = self.network.params.values.len() * size_of::<f32>();
        let step = self
            .executors
            .iter()
            .map(|step| step.executor.plan.memory(&self.network.params))
            .map(|memory| memory.activations + memory.workspace)
            .max()
            .unwrap_or(0);
        (step + (3 + self.memory.arenas.len()) * parameters) as u64
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    //! The steps of a GPU, one of which may be on its way.

    use std::sync::Arc;

    use super::{BatchShape, MAX_GRAD_NORM, PlannedStep, StepOutcome, StepSpec};
    use crate::engine::cuda::Precision;
    use crate::engine::cuda::error::CudaError;
    use crate::engine::cuda::optimizer::{Results, Settings};
    use crate::engine::cuda::runtime::Runtime;
    use crate::engine::cuda::training::{StepInput, StepPlan, Training, TrainingState};
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
                    self.training.submit(
                        batch.n_images,
                        StepInput::Samples(&table, batch.side as usize),
                        &batch.truth,
                        settings.as_ref(),
                    )?;
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

        pub(super) fn state(&mut self) -> Result<DeviceState, CudaError> {
            assert!(self.on_its_way.is_none(), "the last step was told");
            let TrainingState { values, averages, gradients, remembered, n_updates, n_since_scale, loss_scale } = self.training.state()?;
            let parted = |values| {
                let mut network = Network { params: self.average.params.zeros_like(), ..self.average.clone() };
                take_joined(&mut network, &Params { values, ..self.table.clone() });
                network.params.values
            };
            let has_gradients = gradients.iter().any(|value| *value != 0.0);
            Ok(DeviceState {
                values: parted(values),
                averages: parted(averages),
                gradients: if has_gradients { parted(gradients) } else { Vec::new() },
                memory: remembered.into_iter().map(parted).collect(),
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
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::train::config::OptimizerKind;
    use crate::yolo::{Model, ModelSize};

    const SIDE: usize = 64;
    const SHAPES: [BatchShape; 2] = [BatchShape { n_images: 2, side: SIDE }, BatchShape { n_images: 1, side: SIDE }];

    fn network() -> Network {
        Network::new(Model::dual(ModelSize::T), 2, 3)
    }

    fn spec(optimizer: OptimizerKind) -> StepSpec {
        StepSpec { side: SIDE, truth_rows: 8, hyp: Hyp { optimizer, ..Hyp::scratch_high() }, weight_decay: 0.0005 }
    }

    /// Pictures with a bright square each, and its box.
    fn batch(n_images: usize, seed: usize) -> Batch {
        let (images, pixels) = ((0..n_images).collect(), vec![50; n_images * SIDE * SIDE * 3]);
        let (compositions, truth, faults) = (vec![], vec![], vec![]);
        let mut batch = Batch { epoch: 0, n_images, side: SIDE as u32, images, pixels, compositions, truth, faults };
        for (index, pixels) in batch.pixels.chunks_exact_mut(SIDE * SIDE * 3).enumerate() {
            let left = 4 + (index * 7 + seed * 5) % 24;
            for y in 16..48 {
                pixels[(y * SIDE + left) * 3..(y * SIDE + left + 32) * 3].fill(200);
            }
            batch.truth.extend([(index % 2) as f32, left as f32, 16.0, left as f32 + 32.0, 48.0]);
            for _ in 1..8 {
                batch.truth.extend([-1.0, 0.0, 0.0, 0.0, 0.0]);
            }
        }
        batch
    }

    const SETTINGS: StepSettings = StepSettings { lr: [0.002; 3], momentum: 0.9, accumulate: 1 };

    fn no_progress(_: usize, _: usize) {}

    fn on_cpu(optimizer: OptimizerKind) -> Stepper {
        Stepper::new(network(), spec(optimizer), &SHAPES, Device::Cpu, &mut no_progress).unwrap()
    }

    #[test]
    fn steps_on_the_cpu_are_told_at_once_and_change_the_average_only_with_an_update() {
        let mut stepper = on_cpu(OptimizerKind::AdamW);
        let before = stepper.average().unwrap().params.clone();
        let first = stepper.step(&batch(2, 0), None).unwrap().unwrap();
        assert_eq!((first.step, first.grad_norm, first.skipped), (0, 0.0, false));
        assert!(first.items.iter().all(|item| item.is_finite()));
        assert_eq!(stepper.average().unwrap().params, before);

        let second = stepper.step(&batch(1, 1), Some(&SETTINGS)).unwrap().unwrap();
        assert!(second.step == 1 && second.grad_norm > 0.0 && second.update_ratio > 0.0);
        assert_ne!(stepper.average().unwrap().params, before);
        assert!(stepper.is_idle());
        assert_eq!((stepper.flush().unwrap(), stepper.device_bytes(), stepper.fallback()), (None, None, None));
        assert!(stepper.planned_bytes() > 0);
    }

    #[test]
    fn a_gradient_that_is_no_number_changes_nothing() {
        let mut stepper = on_cpu(OptimizerKind::Sgd);
        stepper.step(&batch(2, 0), Some(&StepSettings { lr: [1e20; 3], ..SETTINGS })).unwrap();
        let before = stepper.average().unwrap().params.clone();
        let outcome = stepper.step(&batch(2, 1), Some(&SETTINGS)).unwrap().unwrap();
        assert!(outcome.skipped && !(outcome.items[3].is_finite() && outcome.grad_norm.is_finite()), "{outcome:?}");
        assert_eq!(stepper.average().unwrap().params, before);
        assert!(!stepper.scales_loss(), "on the CPU that is no matter of scale");
    }

    #[test]
    fn a_gpu_that_is_not_there_says_what_to_do() {
        let error = Stepper::new(network(), spec(OptimizerKind::Sgd), &SHAPES, Device::Cuda(99), &mut no_progress).err().unwrap();
        assert!(error.hint().is_some(), "{error}");
    }

    #[cfg(feature = "gpu-tests")]
    mod on_gpu {
        use std::ops::ControlFlow;

        use super::*;
        use crate::dataset::Dataset;
        use crate::engine::cuda::runtime::Runtime;
        use crate::engine::cuda::testing::test_gpu;
        use crate::engine::golden::repository;
        use crate::train::loader::Loader;
        use crate::train::loader::LoaderOptions;
        use crate::train::recipe::Stream;
        use crate::train::schedule::Schedule;
        use crate::train::train_set::TrainSet;
        use crate::train::truth_rows::truth_rows;

        fn all(stepper: &mut Stepper, n: usize) -> Vec<StepOutcome> {
            let mut outcomes = Vec::new();
            for step in 0..n {
                // A smaller batch now and then, and an update after every second.
                let batch = batch(if step % 5 == 4 { 1 } else { 2 }, step);
                outcomes.extend(stepper.step(&batch, (step % 2 == 1).then_some(&SETTINGS)).unwrap());
            }
            outcomes.extend(stepper.flush().unwrap());
            outcomes
        }

        fn distance(a: &Params, b: &Params) -> f64 {
            a.values.iter().zip(&b.values).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
        }

        #[test]
        fn twenty_steps_go_the_way_of_the_cpu() {
            let _turn = test_gpu();
            for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
                let runtime = Runtime::open(0, Precision::F32).unwrap();
                let mut gpu = Stepper::on_gpu(network(), spec(optimizer), &SHAPES, &runtime, &mut no_progress).unwrap();
                let mut cpu = on_cpu(optimizer);
                // How far an update moves the averages, and how far apart they are then: AdamW's first update is signs, and small
                // gradients have any.
                let (mut ours, mut reference) = (all(&mut gpu, 2), all(&mut cpu, 2));
                let apart = distance(&gpu.average().unwrap().params, &cpu.average().unwrap().params);
                let moved = distance(&cpu.average().unwrap().params, &network().params);
                let most = if optimizer == OptimizerKind::Sgd { 0.1 } else { 0.3 };
                eprintln!("{optimizer:?}: averages moved by {moved}, and are {apart} apart");
                assert!(apart <= most * moved);
                ours.extend(all(&mut gpu, 18));
                reference.extend(all(&mut cpu, 18));
                assert_eq!(ours.iter().map(|outcome| outcome.step).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
                // Before the first update only rounding differs. Afterwards it grows: gradients of this start are some thousand long, and
                // what is left of them after clipping is their direction.
                let close = |a: f32, b: f32, tolerance: f32| (a - b).abs() <= tolerance * b.abs().max(1.0);
                for (ours, reference) in ours.iter().zip(&reference).take(2) {
                    assert!(
                        ours.items.iter().zip(reference.items).all(|(a, b)| close(*a, b, 2e-3)),
                        "{optimizer:?} {ours:?} {reference:?}"
                    );
                    assert!(close(ours.grad_norm, reference.grad_norm, 0.02), "{optimizer:?} {ours:?} {reference:?}");
                    let (ratio, expected) = (ours.update_ratio, reference.update_ratio);
                    assert!((ratio - expected).abs() <= 0.02 * expected, "{optimizer:?} {ours:?} {reference:?}");
                }
                assert!(ours.iter().all(|outcome| !outcome.skipped && outcome.items[3].is_finite()));
                let mean = |outcomes: &[StepOutcome]| outcomes.iter().map(|outcome| outcome.items[3]).sum::<f32>() / outcomes.len() as f32;
                eprintln!("{optimizer:?}: mean loss of 20 steps {} here, {} on the CPU", mean(&ours), mean(&reference));
                assert!(close(mean(&ours), mean(&reference), 0.15));
                assert!(gpu.is_idle(), "every step was waited for");
                assert!(gpu.device_bytes().unwrap() > 0 && gpu.fallback().is_none(), "{:?}", gpu.fallback());
            }
        }

        /// The losses of 300 steps on the sample dataset from the start that `seed` gives, and the averaged weights.
        fn on_the_sample(precision: Precision, seed: u64) -> (Vec<f32>, Vec<f32>) {
            let dataset = Dataset::open(&repository().join("datasets/parts")).unwrap();
            let set = TrainSet::read(&dataset, 160, u64::MAX, &mut |_, _| ControlFlow::Continue(())).unwrap().unwrap();
            let set = Arc::new(set);
            let hyp = Hyp::small_data();
            let stream = Stream { hyp: hyp.clone(), seed, n_images: set.images.len(), mosaic_ends: 38 };
            let truth_rows = truth_rows(&set, &stream, 38);
            let options = LoaderOptions {
                stream,
                truth_rows,
                batch: 16,
                n_epochs: 38,
                first_batch: 0,
                n_workers: 4,
                sides: vec![],
                orders: None,
                paints: true,
            };
            let spec = StepSpec { side: 160, truth_rows, hyp, weight_decay: 0.01 };
            let runtime = Runtime::open(0, precision).unwrap();
            let mut network = Network::new(Model::dual(ModelSize::T), 3, seed);
            network.start_with_boxes_of(set.median_side().unwrap());
            let mut stepper =
                Stepper::on_gpu(network, spec, &[BatchShape { n_images: 16, side: 160 }], &runtime, &mut no_progress).unwrap();
            let schedule = Schedule::new(&options.stream.hyp, 16, 8, 38);
            let mut losses = Vec::new();
            for (index, batch) in Loader::start(&set, &options).unwrap().take(300).enumerate() {
                losses.extend(stepper.step(&batch, Some(&schedule.at(index))).unwrap());
            }
            losses.extend(stepper.flush().unwrap());
            let average = stepper.average().unwrap().params.values.clone();
            (losses.iter().map(|outcome| outcome.items[3] / 16.0).collect(), average)
        }

        #[test]
        fn three_hundred_steps_end_alike_in_bf16_and_f32_and_twice_the_same() {
            let _turn = test_gpu();
            let end = |losses: &[f32]| losses[250..].iter().sum::<f32>() / 50.0;
            let (bf16, weights) = on_the_sample(Precision::Bf16, 0);
            let (again, weights_again) = on_the_sample(Precision::Bf16, 0);
            let (f32, _) = on_the_sample(Precision::F32, 0);
            // What the start alone makes.
            let (other, _) = on_the_sample(Precision::F32, 1);
            let noise = (end(&f32) - end(&other)).abs();
            eprintln!(
                "first loss {} and {}, mean of the last 50 of 300: bf16 {}, f32 {}, f32 from another start {}",
                bf16[0],
                f32[0],
                end(&bf16),
                end(&f32),
                end(&other)
            );
            assert_eq!(bf16.len(), 300);
            assert!(bf16 == again && weights == weights_again, "two runs differ");
            assert!(end(&f32) < 0.7 * f32[0], "nothing was learnt");
            assert!((end(&bf16) - end(&f32)).abs() < 0.05 * end(&f32) + noise, "{} but {}", end(&bf16), end(&f32));
        }
    }
}
