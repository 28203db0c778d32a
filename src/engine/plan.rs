//! Where each tensor lives: byte ranges of one arena from the liveness of the buffers, known before the first step.

use super::graph::{Graph, TensorId};

/// Where a tensor's first element is, and how far apart its pixels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset of pixel 0, channel 0, in elements of the activation arena.
    pub offset: usize,
    /// Elements from one pixel to the next: the channel count of the buffer's owner.
    pub pixel_stride: usize,
}

/// A graph with a place for every tensor.
#[derive(Clone, Debug)]
pub struct Plan {
    pub graph: Graph,
    /// By tensor index.
    pub placements: Vec<Placement>,
    /// Length of the activation arena in elements.
    pub arena_len: usize,
}

impl Plan {
    /// Plans memory; `keep` are tensors that must survive to the end of the step (inputs and what the caller reads).
    pub fn new(graph: Graph, keep: &[TensorId]) -> Self {
        let _ = (graph, keep);
        todo!("engine")
    }
}
