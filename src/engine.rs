//! Tensors, the static graph, its gradients, its plan, and the executors. Knows nothing of images or detectors.

pub mod cpu;
pub mod cuda;
#[cfg(test)]
pub(crate) mod golden;
pub mod gradients;
pub mod graph;
pub mod op;
pub mod packed;
pub mod params;
pub mod plan;
pub mod recompute;
pub mod roofline;

pub use graph::{Graph, Node, Shape, Tensor, TensorId};
pub use op::{Act, BnMode, BnParams, ConvSpec, LossSpec, Op};
pub use params::{ParamId, ParamKind, ParamSpec, Params};
pub use plan::Plan;

/// Where a graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Cpu,
    /// By NVIDIA's index.
    Cuda(usize),
}
