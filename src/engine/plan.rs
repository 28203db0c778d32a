//! Where each tensor lives: ranges of one arena from the liveness of the buffers, known before the first step.
//!
//! In:  a graph, and the tensors that the caller writes or reads.
//! Out: an offset for every tensor, the length of the arena, and how much memory a step needs in all.
//!
//! A buffer lives from the first node that writes a part of it to the last node that touches it. Buffers whose lives overlap
//! get disjoint ranges. Finding the shortest arena is NP-hard; of a few greedy orders the best is taken.
//!
//! Never allocates the memory it plans.

use std::ops::Range;

use super::cpu::conv;
use super::graph::{DType, Graph, TensorId};
use super::lanes::Lanes;
use super::op::{ConvSpec, Op};
use super::params::Params;

/// Bytes that offsets of buffers are multiples of: cache lines, and what GPUs read fastest.
pub const ALIGN: usize = 256;

/// Where a tensor's first element is, and how far apart its pixels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset of pixel 0, channel 0, in bytes of the activation arena.
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
    pub arena_bytes: usize,
    /// By tensor index: whether its value survives the step.
    kept: Vec<bool>,
    lower_bound: usize,
    /// Of an element of `Compute` tensors.
    compute_bytes: usize,
    /// Which nodes may run beside others; all run in order if absent.
    pub lanes: Option<Lanes>,
}

/// Bytes that a plan needs, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    pub parameters: usize,
    pub gradients: usize,
    pub optimizer: usize,
    pub ema: usize,
    pub activations: usize,
    /// What kernels need during a call, and weights in their order where these are kept.
    pub workspace: usize,
}

impl MemoryPlan {
    pub fn total(&self) -> usize {
        self.parameters + self.gradients + self.optimizer + self.ema + self.activations + self.workspace
    }
}

/// A buffer's life and size.
#[derive(Clone, Debug)]
struct Buffer {
    root: TensorId,
    /// Node indices, from the first that writes to one past the last that touches it.
    life: Range<usize>,
    /// In bytes.
    len: usize,
}

impl Plan {
    /// Plans memory for f32; `keep` are tensors that must survive to the end of the step (inputs and what the caller reads).
    ///
    /// # Panics
    /// If a node reads channels that no earlier node writes.
    pub fn new(graph: Graph, keep: &[TensorId]) -> Self {
        Self::with_element_bytes(graph, keep, size_of::<f32>())
    }

    /// As [`new`](Self::new), where an element of a `Compute` tensor has `compute_bytes` bytes.
    pub fn with_element_bytes(graph: Graph, keep: &[TensorId], compute_bytes: usize) -> Self {
        Self::make(graph, keep, compute_bytes, None)
    }

    /// As [`with_element_bytes`](Self::with_element_bytes), for an executor that runs nodes beside each other: takes more memory.
    pub fn in_lanes(graph: Graph, keep: &[TensorId], compute_bytes: usize) -> Self {
        let lanes = Lanes::new(&graph);
        Self::make(graph, keep, compute_bytes, Some(lanes))
    }

    fn make(graph: Graph, keep: &[TensorId], compute_bytes: usize, lanes: Option<Lanes>) -> Self {
        check_order(&graph);
        let mut kept_roots = vec![false; graph.tensors.len()];
        for &id in keep {
            kept_roots[graph.root(id).0.0 as usize] = true;
        }
        let buffers = buffers(&graph, &kept_roots, compute_bytes, lanes.as_ref());
        let lower_bound = lower_bound(&buffers, graph.nodes.len());
        let (offsets, arena_bytes) = pack_best(&buffers, lower_bound);

        let mut root_offsets = vec![0; graph.tensors.len()];
        for (buffer, offset) in buffers.iter().zip(offsets) {
            root_offsets[buffer.root.0 as usize] = offset;
        }
        let ids = (0..graph.tensors.len() as u32).map(TensorId);
        let roots: Vec<(TensorId, usize)> = ids.map(|id| graph.root(id)).collect();
        let placements = roots
            .iter()
            .map(|&(root, channel)| {
                let offset = root_offsets[root.0 as usize] + channel * element_bytes(&graph, root, compute_bytes);
                Placement { offset, pixel_stride: graph.shape(root).c }
            })
            .collect();
        let kept = roots.iter().map(|&(root, _)| kept_roots[root.0 as usize]).collect();
        Self { graph, placements, arena_bytes, kept, lower_bound, compute_bytes, lanes }
    }

    /// Bytes that live at once at the worst node: no arena can be shorter.
    pub fn lower_bound(&self) -> usize {
        self.lower_bound
    }

    /// Bytes of one element of a tensor.
    pub fn element_bytes(&self, id: TensorId) -> usize {
        element_bytes(&self.graph, id, self.compute_bytes)
    }

    /// Whether the caller may read the tensor after a step.
    pub fn is_kept(&self, id: TensorId) -> bool {
        self.kept[id.0 as usize]
    }

    pub fn placement(&self, id: TensorId) -> Placement {
        self.placements[id.0 as usize]
    }

    /// Whether a step fills gradients.
    pub fn is_training(&self) -> bool {
        self.graph.nodes.iter().any(|node| matches!(node.op, Op::ConvBackwardWeight { .. } | Op::BnActBackwardReduce { .. }))
    }

    /// Memory on the CPU for this plan with these parameters: with gradients, momentum and EMA if it trains; else with the
    /// packed weights that a frozen executor holds.
    pub fn memory(&self, params: &Params) -> MemoryPlan {
        let parameters = params.values.len() * size_of::<f32>();
        let trained = if self.is_training() { parameters } else { 0 };
        MemoryPlan {
            parameters,
            gradients: trained,
            optimizer: trained,
            ema: trained,
            activations: self.arena_bytes,
            workspace: self.workspace_len() * size_of::<f32>(),
        }
    }

    /// Elements that the CPU's convolutions allocate beside the arena.
    fn workspace_len(&self) -> usize {
        let lens = self.graph.nodes.iter().map(|node| match node.op {
            Op::Conv { spec, .. } => conv::packed_len(spec),
            Op::ConvBackwardInput { spec, .. } => {
                conv::packed_len(ConvSpec { in_channels: spec.out_channels, out_channels: spec.in_channels, ..spec })
            }
            Op::ConvBackwardWeight { spec, .. } => conv::backward_weight_workspace_len(spec, self.graph.shape(node.inputs[1])),
            _ => 0,
        });
        // Weights that training changes are packed for one call.
        if self.is_training() { lens.max().unwrap_or(0) } else { lens.sum() }
    }
}

/// Panics where a node reads what no earlier node has written.
fn check_order(graph: &Graph) {
    let mut written: Vec<Vec<bool>> = graph.tensors.iter().map(|tensor| vec![false; tensor.shape.c]).collect();
    for node in &graph.nodes {
        for &x in &node.inputs {
            let (root, channel) = graph.root(x);
            let tensor = graph.tensor(x);
            let is_written = written[root.0 as usize][channel..channel + tensor.shape.c].iter().all(|&written| written);
            assert!(is_written, "{} reads {} before all of its channels are written", node.name, tensor.name);
        }
        for &y in &node.outputs {
            let (root, channel) = graph.root(y);
            written[root.0 as usize][channel..channel + graph.shape(y).c].fill(true);
        }
    }
}

fn element_bytes(graph: &Graph, id: TensorId, compute_bytes: usize) -> usize {
    match graph.tensor(id).dtype {
        DType::Compute => compute_bytes,
        DType::F32 => size_of::<f32>(),
    }
}

fn buffers(graph: &Graph, kept_roots: &[bool], compute_bytes: usize, lanes: Option<&Lanes>) -> Vec<Buffer> {
    let mut lives: Vec<Option<Range<usize>>> = vec![None; graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        // The caller fills inputs before the first node runs.
        let birth = if node.op == Op::Input { 0 } else { index };
        for &id in node.inputs.iter().chain(&node.outputs) {
            let life = lives[graph.root(id).0.0 as usize].get_or_insert(birth..index + 1);
            life.start = life.start.min(birth);
            life.end = life.end.max(index + 1);
        }
    }
    let mut buffers = Vec::new();
    for (index, life) in lives.into_iter().enumerate() {
        let root = TensorId(index as u32);
        let len = (graph.shape(root).len() * element_bytes(graph, root, compute_bytes)).next_multiple_of(ALIGN);
        if let Some(mut life) = life
            && len > 0
        {
            if let Some(lanes) = lanes {
                lanes.widen(graph, root, &mut life);
            }
            if kept_roots[index] {
                life.end = graph.nodes.len();
            }
            buffers.push(Buffer { root, life, len });
        }
    }
    buffers
}

fn lower_bound(buffers: &[Buffer], n_nodes: usize) -> usize {
    let mut changes = vec![0isize; n_nodes + 1];
    for buffer in buffers {
        changes[buffer.life.start] += buffer.len as isize;
        changes[buffer.life.end] -= buffer.len as isize;
    }
    let mut live = 0;
    changes.iter().fold(0, |most: isize, change| {
        live += change;
        most.max(live)
    }) as usize
}

/// Offsets by buffer and the length of the arena, from the greedy order that packs best.
fn pack_best(buffers: &[Buffer], lower_bound: usize) -> (Vec<usize>, usize) {
    /// Smaller keys are placed first.
    type Key = fn(&Buffer) -> (isize, isize);
    let keys: [Key; 4] = [
        |buffer| (-(buffer.len as isize), buffer.life.start as isize),
        |buffer| (-((buffer.len * buffer.life.len()) as isize), buffer.life.start as isize),
        |buffer| (-(buffer.life.len() as isize), -(buffer.len as isize)),
        |buffer| (buffer.life.start as isize, -(buffer.len as isize)),
    ];
    let mut best = (vec![0; buffers.len()], usize::MAX);
    for key in keys {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&index| key(&buffers[index]));
        let packed = pack(buffers, &order);
        if packed.1 < best.1 {
            best = packed;
        }
        if best.1 == lower_bound {
            break;
        }
    }
    best
}

/// Places buffers in `order`, each in the smallest gap between those that live at the same time.
fn pack(buffers: &[Buffer], order: &[usize]) -> (Vec<usize>, usize) {
    let mut offsets = vec![0; buffers.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(buffers.len()); // by offset
    let mut arena_len = 0;
    for &index in order {
        let Buffer { life, len, .. } = &buffers[index];
        let mut best: Option<(usize, usize)> = None; // waste, offset
        let mut end = 0;
        for &other in &placed {
            let Buffer { life: other_life, len: other_len, .. } = &buffers[other];
            if other_life.start >= life.end || life.start >= other_life.end {
                continue;
            }
            let start = offsets[other];
            if start >= end + len {
                let waste = start - end - len;
                if best.is_none_or(|(least, _)| waste < least) {
                    best = Some((waste, end));
                }
            }
            end = end.max(start + other_len);
        }
        let offset = best.map_or(end, |(_, offset)| offset);
        offsets[index] = offset;
        arena_len = arena_len.max(offset + len);
        let position = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(position, index);
    }
    (offsets, arena_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::Shape;

    fn side(c: usize) -> Shape {
        Shape::new(1, 4, 4, c)
    }

    /// Every two buffers that live at the same time are apart.
    fn assert_disjoint(buffers: &[Buffer], offsets: &[usize]) {
        for (i, a) in buffers.iter().enumerate() {
            for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                let same_time = a.life.start < b.life.end && b.life.start < a.life.end;
                let same_place = offsets[i] < offsets[j] + b.len && offsets[j] < offsets[i] + a.len;
                assert!(!(same_time && same_place), "buffers {i} and {j}");
            }
        }
    }

    #[test]
    fn a_chain_needs_two_buffers_at_once() {
        let mut graph = Graph::default();
        let mut x = graph.input("x", side(16), DType::Compute);
        for index in 0..6 {
            let y = graph.add_tensor(format!("y{index}"), side(16), DType::Compute);
            graph.push("copy", Op::NearestSum, vec![x], vec![y]);
            x = y;
        }
        let plan = Plan::new(graph, &[x]);
        assert_eq!(plan.arena_bytes, 2 * 4 * side(16).len());
        assert_eq!(plan.lower_bound(), plan.arena_bytes);
        assert!(plan.is_kept(x));
    }

    #[test]
    fn slices_lie_inside_their_owner() {
        let mut graph = Graph::default();
        let a = graph.input("a", side(3), DType::Compute);
        let b = graph.input("b", side(5), DType::Compute);
        let whole = graph.concat("whole", &[a, b]);
        let outer = graph.concat("outer", &[whole]);
        let plan = Plan::new(graph, &[outer]);
        let at = plan.placement(outer).offset;
        assert_eq!(plan.placement(a), Placement { offset: at, pixel_stride: 8 });
        assert_eq!(plan.placement(b), Placement { offset: at + 3 * 4, pixel_stride: 8 });
    }

    #[test]
    fn an_input_that_nobody_keeps_gives_its_place_away() {
        let mut graph = Graph::default();
        let x = graph.input("x", side(16), DType::Compute);
        let y = graph.upsample2("y", x);
        let z = graph.avg_pool2("z", y);
        let w = graph.avg_pool2("w", z);
        let plan = Plan::new(graph, &[w]);
        assert!(!plan.is_kept(x));
        assert_eq!(plan.arena_bytes, plan.lower_bound());
    }

    #[test]
    fn random_lives_are_packed_apart_and_close_to_the_bound() {
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let buffers: Vec<Buffer> = (0..300)
            .map(|index| {
                let start = random(400);
                Buffer { root: TensorId(index), life: start..start + 1 + random(60), len: ALIGN * (1 + random(50)) }
            })
            .collect();
        let bound = lower_bound(&buffers, 500);
        let (offsets, arena_bytes) = pack_best(&buffers, bound);
        assert_disjoint(&buffers, &offsets);
        assert!(arena_bytes as f64 <= bound as f64 * 1.2, "{arena_bytes} against {bound}");
    }

    #[test]
    fn an_empty_graph_needs_nothing() {
        let plan = Plan::new(Graph::default(), &[]);
        assert_eq!((plan.arena_bytes, plan.lower_bound()), (0, 0));
        assert_eq!(plan.memory(&Params::default()), MemoryPlan::default());
    }
}
