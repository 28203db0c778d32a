//! Training on a GPU: arenas of one network, and its steps for one or more batch shapes.
//!
//! In:  batches as bytes, settings of each step. Out: losses and norms of earlier steps; parameters when asked for.
//!
//! A step is one graph of the driver: forward, loss, backward, and where an update is due also clipping, optimizer and moving
//! average. The host only copies the next batch into pinned memory while the GPU works; results come back the same way, and
//! are waited for one step later. Never decides a learning rate.

use std::sync::Arc;

use super::INPUT_COPIES;
use super::Precision;
use super::cast::{f32_to_compute, u8_to_compute};
use super::conv::ConvPlanId;
use super::error::CudaError;
use super::gpu::{DeviceBuffer, Event, Pinned};
use super::optimizer::{Optimizer, Results, Settings, State, segments};
use super::program::{ParamArenas, Planning, Program, Workspace, plan_convolutions, workspace};
use super::runtime::Runtime;
use super::samples::SampleTable;
use crate::engine::graph::TensorId;
use crate::engine::op::LOSS_ITEMS;
use crate::engine::params::Params;
use crate::engine::plan::Plan;
use crate::engine::rule::Rule;

/// A plan for one batch shape, with the tensors that the caller fills and reads.
pub struct StepPlan {
    pub n_images: usize,
    pub plan: Plan,
    /// (B, H, W, 3)
    pub input: TensorId,
    pub truth: TensorId,
    pub items: TensorId,
}

/// The pictures of a step.
#[derive(Clone, Copy, Debug)]
pub enum StepInput<'a> {
    /// (B, H, W, 3)
    Bytes(&'a [u8]),
    /// How they are made, of this side, from what is on the GPU already.
    Samples(&'a SampleTable, usize),
}

impl StepInput<'_> {
    /// Bytes of the pictures.
    fn n_bytes(&self) -> usize {
        match self {
            Self::Bytes(pixels) => pixels.len(),
            Self::Samples(table, side) => table.samples.len() * side * side * 3,
        }
    }
}

/// Loss scale of fp16 before the first step.
const FIRST_LOSS_SCALE: f32 = 65536.0;

/// Steps that may be on their way at once.
const SLOTS: usize = INPUT_COPIES - 1;

/// Device memory of a training, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// f32 values and averages, copies in compute type, gradients in both.
    pub parameters: usize,
    pub optimizer: usize,
    pub activations: usize,
    pub workspace: usize,
    /// Batches on their way in.
    pub input: usize,
}

impl DeviceMemory {
    pub fn total(&self) -> usize {
        self.parameters + self.optimizer + self.activations + self.workspace + self.input
    }
}

/// One batch shape.
struct Step {
    n_images: usize,
    pixel_bytes: usize,
    input: u64,
    truth: u64,
    truth_len: usize,
    /// Leaves gradients in place.
    accumulate: Program,
    update: Program,
}

/// Memory of one step on its way.
struct Slot {
    pixels: Pinned,
    /// Where they arrive on the GPU, beside the work of the step before.
    arrived: DeviceBuffer,
    /// When they are there, and when the step has taken them.
    ready: Event,
    taken: Event,
    truth: Pinned,
    /// Tables of samples, where these are made on the GPU, and where they arrive.
    tables: Option<(Pinned, DeviceBuffer)>,
    settings: Pinned,
    results: Pinned,
    done: Event,
    is_used: bool,
}

/// What a training's steps read and change, in the layout of its parameters. One that goes on from here gives the same bits as
/// one that was never interrupted.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingState {
    pub values: Vec<f32>,
    pub averages: Vec<f32>,
    /// Since the last update, times the loss scale.
    pub gradients: Vec<f32>,
    /// What the optimizer remembers, an arena each.
    pub remembered: Vec<Vec<f32>>,
    pub n_updates: usize,
    /// Updates since the loss scale last moved.
    pub n_since_scale: usize,
    pub loss_scale: f32,
}

/// Moving averages as they were after some step.
pub struct KeptAverages {
    kept: Arc<DeviceBuffer>,
    ready: Event,
    table: Params,
}

impl KeptAverages {
    /// Waits for them, from any thread.
    pub fn read(self, n: usize) -> Result<Params, CudaError> {
        Ok(Params { values: self.kept.read_beside(n, &self.ready)?, ..self.table })
    }
}

pub struct Training {
    steps: Vec<Step>,
    slots: Vec<Slot>,
    /// Steps given to the GPU so far.
    n_submitted: usize,
    table: Params,
    optimizer: Optimizer,
    results: DeviceBuffer,
    pixels: DeviceBuffer,
    values: DeviceBuffer,
    averages: DeviceBuffer,
    /// Averages of an earlier step, for [`KeptAverages`].
    kept: Arc<DeviceBuffer>,
    gradients: DeviceBuffer,
    remembered: Vec<DeviceBuffer>,
    state: DeviceBuffer,
    memory_plan: DeviceMemory,
    /// Kept for their addresses.
    _buffers: Vec<DeviceBuffer>,
    _workspace: Workspace,
    runtime: Arc<Runtime>,
}

impl Training {
    /// Arenas with `params` on the GPU, and the work of every plan. `check_in(done, total)` hears of each convolution that was
    /// planned.
    ///
    /// # Errors
    /// No room, or a convolution without a plan.
    pub fn new(
        runtime: &Arc<Runtime>,
        plans: Vec<StepPlan>,
        params: &Params,
        rule: Rule,
        check_in: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let (gpu, kernels) = (&runtime.gpu, &runtime.kernels);
        let convs: Vec<Vec<Option<ConvPlanId>>> =
            plans.iter().map(|step| plan_convolutions(runtime, &step.plan, Planning::Timed, check_in)).collect::<Result<_, _>>()?;
        let pairs: Vec<(&Plan, &[Option<ConvPlanId>])> = plans.iter().zip(&convs).map(|(step, ids)| (&step.plan, ids.as_slice())).collect();
        let workspace = workspace(runtime, &pairs)?;

        let n = params.values.len();
        let precision = runtime.precision();
        let zeros = |bytes: usize| {
            let buffer = gpu.alloc(bytes)?;
            buffer.fill(0)?;
            Ok::<_, CudaError>(buffer)
        };
        let values = gpu.upload(&params.values)?;
        let averages = gpu.upload(&params.values)?;
        let kept_averages = Arc::new(gpu.alloc(n * size_of::<f32>())?);
        let copies = zeros(n * precision.bytes())?;
        let weight_gradients = zeros(n * precision.bytes())?;
        let gradients = zeros(n * size_of::<f32>())?;
        let remembered: Vec<DeviceBuffer> = (0..rule.n_remembered()).map(|_| zeros(n * size_of::<f32>())).collect::<Result<_, _>>()?;
        let table = segments(params);
        let n_segments = table.len();
        let segments = gpu.upload(&table)?;
        let settings = zeros(size_of::<Settings>())?;
        let scale = if precision == Precision::F16 { FIRST_LOSS_SCALE } else { 1.0 };
        let state = gpu.upload(&[State::new(0, scale)])?;
        let results = zeros(size_of::<Results>())?;
        let norms = zeros(Optimizer::workspace_bytes(n_segments))?;
        let optimizer = Optimizer {
            segments: segments.address,
            n_segments,
            settings: settings.address,
            state: state.address,
            values: values.address,
            gradients: gradients.address,
            averages: averages.address,
            copies: copies.address,
            weight_gradients: weight_gradients.address,
            workspace: norms.address,
        };
        let memory: Vec<u64> = remembered.iter().map(|buffer| buffer.address).collect();
        let arenas = ParamArenas {
            values: values.address,
            copies: copies.address,
            gradients: gradients.address,
            weight_gradients: weight_gradients.address,
            loss_scale: state.address + State::LOSS_SCALE_OFFSET as u64,
        };
        gpu.launch(&optimizer.copy_parameters(kernels))?;

        let activations = gpu.alloc(plans.iter().map(|step| step.plan.arena_bytes).max().unwrap_or(0))?;
        let pixel_bytes = |step: &StepPlan| step.plan.graph.shape(step.input).n_pixels() * 3;
        let truth_len = |step: &StepPlan| step.plan.graph.shape(step.truth).len();
        let pixels = gpu.alloc(plans.iter().map(pixel_bytes).max().unwrap_or(0))?;
        let mut steps = Vec::with_capacity(plans.len());
        for (step, ids) in plans.iter().zip(&convs) {
            let address = |id: TensorId| activations.address + step.plan.placement(id).offset as u64;
            let n_pixels = step.plan.graph.shape(step.input).n_pixels();
            let program = || {
                let mut program = Program::new(runtime, &step.plan, ids, params, arenas, activations.address, &workspace)?;
                program.prepend("input", u8_to_compute(kernels, pixels.address, n_pixels, 3, address(step.input)));
                Ok::<_, CudaError>(program)
            };
            let (mut accumulate, mut update) = (program()?, program()?);
            accumulate.push("optimizer", optimizer.add_weight_gradients(kernels));
            for launch in optimizer.update(kernels, rule, &memory) {
                update.push("optimizer", launch);
            }
            for program in [&mut accumulate, &mut update] {
                program.push("optimizer", optimizer.finish(kernels, address(step.items), results.address));
            }
            steps.push(Step {
                n_images: step.n_images,
                pixel_bytes: pixel_bytes(step),
                input: address(step.input),
                truth: address(step.truth),
                truth_len: truth_len(step),
                accumulate,
                update,
            });
        }
        let slot = || {
            Ok::<_, CudaError>(Slot {
                pixels: gpu.pinned(pixels.bytes)?,
                arrived: gpu.alloc(pixels.bytes)?,
                ready: gpu.event()?,
                taken: gpu.event()?,
                truth: gpu.pinned(plans.iter().map(truth_len).max().unwrap_or(0) * size_of::<f32>())?,
                tables: None,
                settings: gpu.pinned(size_of::<Settings>())?,
                results: gpu.pinned(size_of::<Results>())?,
                done: gpu.event()?,
                is_used: false,
            })
        };
        let slots = (0..SLOTS).map(|_| slot()).collect::<Result<_, _>>()?;
        let memory_plan = DeviceMemory {
            parameters: values.bytes + averages.bytes + kept_averages.bytes + copies.bytes + weight_gradients.bytes + gradients.bytes,
            optimizer: remembered.iter().map(|buffer| buffer.bytes).sum::<usize>() + segments.bytes + norms.bytes,
            activations: activations.bytes,
            workspace: workspace.bytes(),
            input: INPUT_COPIES * pixels.bytes,
        };
        let kept = vec![copies, weight_gradients, segments, settings, norms, activations];
        Ok(Self {
            steps,
            slots,
            n_submitted: 0,
            table: params.zeros_like(),
            optimizer,
            results,
            pixels,
            values,
            averages,
            kept: kept_averages,
            gradients,
            remembered,
            state,
            memory_plan,
            _buffers: kept,
            _workspace: workspace,
            runtime: Arc::clone(runtime),
        })
    }

    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Device memory that was taken.
    pub fn memory(&self) -> DeviceMemory {
        self.memory_plan
    }

    /// Why steps are not captured as graphs, if they are not.
    pub fn fallback(&self) -> Option<&str> {
        self.steps.iter().flat_map(|step| [&step.accumulate, &step.update]).find_map(|program| program.fallback.as_deref())
    }

    /// Gives a step to the GPU: pictures, and `truth` as in the loss. With `settings` the step ends with an
    /// update, else gradients are kept for one.
    ///
    /// Waits only when the step before the last is not done yet.
    ///
    /// # Panics
    /// If no plan has this many images and pixels, or `truth` does not fit.
    pub fn submit(&mut self, n_images: usize, input: StepInput, truth: &[f32], settings: Option<&Settings>) -> Result<(), CudaError> {
        let Self { steps, slots, n_submitted, optimizer, results, pixels: staging, runtime, .. } = self;
        let gpu = &runtime.gpu;
        gpu.bind()?;
        let fits = |step: &&mut Step| step.n_images == n_images && step.pixel_bytes == input.n_bytes();
        let step = steps.iter_mut().find(fits).expect("every batch shape has a plan");
        assert_eq!(truth.len(), step.truth_len, "numbers of ground truth");
        let slot = &mut slots[*n_submitted % SLOTS];
        if slot.is_used {
            slot.done.wait()?;
        }
        match input {
            StepInput::Bytes(pixels) => {
                slot.pixels.as_mut_slice::<u8>()[..pixels.len()].copy_from_slice(pixels);
                gpu.copy_in_beside(slot.arrived.address, &slot.pixels, pixels.len(), &slot.taken, &slot.ready)?;
                gpu.copy(staging.address, slot.arrived.address, pixels.len())?;
                slot.taken.record()?;
            }
            StepInput::Samples(table, side) => {
                let bytes = table.n_bytes();
                let (pinned, arrived) = match &mut slot.tables {
                    Some(ready) if ready.0.bytes >= bytes => ready,
                    none => none.insert((gpu.pinned(bytes.next_power_of_two())?, gpu.alloc(bytes.next_power_of_two())?)),
                };
                table.write_to(pinned.as_mut_slice());
                gpu.copy_in(arrived.address, pinned, bytes)?;
                gpu.launch(&table.launch(&runtime.kernels, arrived.address, staging.address, side))?;
            }
        }
        slot.truth.as_mut_slice::<f32>()[..truth.len()].copy_from_slice(truth);
        gpu.copy_in(step.truth, &slot.truth, size_of_val(truth))?;
        if let Some(settings) = settings {
            slot.settings.as_mut_slice::<Settings>()[0] = *settings;
            gpu.copy_in(optimizer.settings, &slot.settings, size_of::<Settings>())?;
            step.update.run()?;
        } else {
            step.accumulate.run()?;
        }
        gpu.copy_out(&slot.results, results.address, size_of::<Results>())?;
        slot.done.record()?;
        slot.is_used = true;
        *n_submitted += 1;
        Ok(())
    }

    /// Runs forward and backward on pictures given as numbers (B, H, W, 3), keeping gradients; waits, and tells the items of the loss.
    /// Bytes are what training takes; this is for numbers that are no bytes.
    pub fn run_numbers(&mut self, n_images: usize, pictures: &[f32], truth: &[f32]) -> Result<[f32; LOSS_ITEMS], CudaError> {
        let (gpu, kernels) = (&self.runtime.gpu, &self.runtime.kernels);
        let step = self.steps.iter_mut().find(|step| step.n_images == n_images).expect("every batch size has a plan");
        assert_eq!(pictures.len(), step.pixel_bytes, "numbers of a batch");
        assert_eq!(truth.len(), step.truth_len, "numbers of ground truth");
        let numbers = gpu.upload(pictures)?;
        let mut rows = gpu.pinned(size_of_val(truth))?;
        rows.as_mut_slice::<f32>()[..truth.len()].copy_from_slice(truth);
        gpu.copy_in(step.truth, &rows, size_of_val(truth))?;
        gpu.launch(&f32_to_compute(kernels, numbers.address, pictures.len(), step.input))?;
        step.accumulate.run_after_input()?;
        let results: Vec<Results> = self.results.read(0, 1)?;
        Ok(results[0].items)
    }

    /// Runs the step of `n_images` on what is on the GPU already, without a batch from the host.
    pub fn repeat(&mut self, n_images: usize) -> Result<(), CudaError> {
        let step = self.steps.iter_mut().find(|step| step.n_images == n_images).expect("every batch size has a plan");
        step.update.run()
    }

    /// What the step submitted last gave (`back` 0), or the one before (`back` 1). Waits for it.
    ///
    /// # Panics
    /// If there is no such step.
    pub fn results(&self, back: usize) -> Result<Results, CudaError> {
        assert!(back < SLOTS && back < self.n_submitted, "step {back} before the last of {}", self.n_submitted);
        let slot = &self.slots[(self.n_submitted - 1 - back) % SLOTS];
        slot.done.wait()?;
        Ok(slot.results.as_slice::<Results>()[0])
    }

    /// Whether every step that was submitted is done. Never waits.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        match self.n_submitted.checked_sub(1) {
            Some(last) => self.slots[last % SLOTS].done.has_passed(),
            None => Ok(true),
        }
    }

    /// Parameters now. Waits.
    pub fn params(&self) -> Result<Params, CudaError> {
        self.download(&self.values)
    }

    /// Their moving averages now. Waits.
    pub fn averages(&self) -> Result<Params, CudaError> {
        self.download(&self.averages)
    }

    /// Their moving averages after the step submitted last, to be read while steps go on. Those kept before are gone.
    pub fn keep_averages(&self) -> Result<KeptAverages, CudaError> {
        let gpu = &self.runtime.gpu;
        gpu.copy(self.kept.address, self.averages.address, self.averages.bytes)?;
        let ready = gpu.event()?;
        ready.record()?;
        Ok(KeptAverages { kept: Arc::clone(&self.kept), ready, table: self.table.layout() })
    }

    /// All that a step reads and changes. Waits.
    pub fn state(&self) -> Result<TrainingState, CudaError> {
        let n = self.table.values.len();
        let state = self.state.read::<State>(0, 1)?[0];
        Ok(TrainingState {
            values: self.values.read(0, n)?,
            averages: self.averages.read(0, n)?,
            gradients: self.gradients.read(0, n)?,
            remembered: self.remembered.iter().map(|arena| arena.read(0, n)).collect::<Result<_, _>>()?,
            n_updates: state.n_updates as usize,
            n_since_scale: state.n_since_scale as usize,
            loss_scale: state.loss_scale,
        })
    }

    /// Goes on from a state that [`Training::state`] gave.
    ///
    /// # Panics
    /// If it is of other parameters or another optimizer.
    pub fn restore(&mut self, from: &TrainingState) -> Result<(), CudaError> {
        let n = self.table.values.len();
        assert_eq!(from.remembered.len(), self.remembered.len(), "arenas of the optimizer");
        let arenas = [(&self.values, &from.values), (&self.averages, &from.averages), (&self.gradients, &from.gradients)];
        for (buffer, values) in arenas.into_iter().chain(self.remembered.iter().zip(&from.remembered)) {
            assert_eq!(values.len(), n, "numbers of an arena");
            buffer.write(0, values)?;
        }
        let mut state = State::new(from.n_updates, from.loss_scale);
        state.n_since_scale = from.n_since_scale as i32;
        self.state.write(0, &[state])?;
        self.runtime.gpu.launch(&self.optimizer.copy_parameters(&self.runtime.kernels))
    }

    fn download(&self, arena: &DeviceBuffer) -> Result<Params, CudaError> {
        let mut params = self.table.clone();
        params.values = arena.read(0, params.values.len())?;
        Ok(params)
    }

    /// Gradients that were accumulated since the last update, divided by the loss scale. Waits.
    pub fn gradients(&self) -> Result<Params, CudaError> {
        let mut params = self.download(&self.gradients)?;
        let scale = self.results.read::<Results>(0, 1)?[0].loss_scale;
        params.values.iter_mut().for_each(|value| *value /= scale);
        Ok(params)
    }

    /// Milliseconds of each piece of a step with an update, with the node and the family of each.
    pub fn profile(&mut self, n_images: usize) -> Result<Vec<(usize, &'static str, f32)>, CudaError> {
        let step = self.steps.iter_mut().find(|step| step.n_images == n_images).expect("every batch size has a plan");
        let times = step.update.run_timed()?;
        Ok(step.update.works.iter().zip(times).map(|(work, ms)| (work.node, work.family, ms)).collect())
    }
}
