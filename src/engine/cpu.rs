//! The CPU executor: the reference, and what runs where there is no GPU.

pub mod assigner;
pub mod bce;
pub mod bn_act;
pub mod ciou;
pub mod conv;
pub mod decode;
pub mod dfl;
pub mod loss;
pub mod nearest;
pub mod optimizer;
pub mod pool;
pub mod silu;
pub mod simd;
pub mod view;

use super::graph::TensorId;
use super::params::Params;
use super::plan::Plan;

/// Runs a plan on the CPU. Owns the activation arena; parameters and gradients belong to the caller.
pub struct Executor {
    pub plan: Plan,
    arena: Vec<f32>,
}

impl Executor {
    pub fn new(plan: Plan) -> Self {
        let arena = vec![0.0; plan.arena_len];
        Self { plan, arena }
    }

    /// Copies a packed NHWC value into a tensor (an input, before a step).
    pub fn write(&mut self, id: TensorId, values: &[f32]) {
        let _ = (id, values, &mut self.arena);
        todo!("engine")
    }

    /// The packed NHWC value of a tensor that the plan keeps.
    pub fn read(&self, id: TensorId) -> Vec<f32> {
        let _ = id;
        todo!("engine")
    }

    /// Runs all nodes in order. Batch norms in batch mode move the running statistics in `params`; backward nodes add to
    /// `gradients` (same layout), which a graph without backward nodes does not touch.
    pub fn run(&mut self, params: &mut Params, gradients: &mut Params) {
        let _ = (params, gradients);
        todo!("engine")
    }
}
