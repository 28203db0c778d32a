//! The steps of the CPU: each is over when it returns.

use super::{BatchShape, MAX_GRAD_NORM, PlannedStep, StepOutcome, StepSpec};
use crate::engine::LOSS_ITEMS;
use crate::engine::Params;
use crate::engine::TensorId;
use crate::engine::cpu::Executor;
use crate::engine::cpu::optimizer::Memory;
use crate::engine::cpu::optimizer::Step;
use crate::engine::cpu::optimizer::clip_gradients;
use crate::engine::cpu::optimizer::ema_update;
use crate::engine::cpu::optimizer::step;
use crate::train::ema;
use crate::train::loader::Batch;
use crate::train::schedule::StepSettings;
use crate::train::state::DeviceState;
use crate::yolo::Network;

/// A step's executor.
struct StepExecutor {
    shape: BatchShape,
    executor: Executor,
    input: TensorId,
    truth: TensorId,
    items: TensorId,
}

pub(super) struct OnCpu {
    /// One for each batch shape. They share one arena.
    executors: Vec<StepExecutor>,
    /// Which of them has it.
    holder: usize,
    network: Network,
    pub(super) average: Network,
    gradients: Params,
    memory: Memory,
    n_updates: usize,
    grad_norm: f32,
    update_ratio: f32,
}

impl OnCpu {
    pub(super) fn new(network: Network, spec: &StepSpec, shapes: &[BatchShape]) -> Self {
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

    pub(super) fn step(&mut self, spec: &StepSpec, step: usize, batch: &Batch, update: Option<&StepSettings>) -> StepOutcome {
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

    pub(super) fn state(&self) -> DeviceState {
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

    pub(super) fn restore(&mut self, state: &DeviceState) {
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

    pub(super) fn planned_bytes(&self) -> u64 {
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
