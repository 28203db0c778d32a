//! The CPU executor: the reference, and what runs where there is no GPU.
//!
//! In:  a plan, parameters, and the values that the caller writes into input tensors.
//! Out: values of the tensors that the plan keeps, gradients of parameters, moved running statistics.
//!
//! One arena holds all activations; a node gets views into it (`operands`). Every sum has a fixed order, so results do not
//! depend on the number of threads. Never updates a parameter: that is `optimizer`.

pub mod assigner;
pub mod bce;
pub mod bn_act;
pub mod chunks;
pub mod ciou;
pub mod conv;
pub mod decode;
pub mod dfl;
#[cfg(test)]
mod executor_tests;
pub mod loss;
pub mod nearest;
pub mod operands;
pub mod optimizer;
pub mod pool;
pub mod silu;
pub mod simd;
pub mod view;

use std::time::{Duration, Instant};

use self::bn_act::{Branch, Running};
use self::conv::PackedWeights;
use self::operands::Operands;
use self::pool::Window;
use self::view::{View, ViewMut};
use super::graph::{Shape, TensorId};
use super::op::{BnMode, BnParams, Op};
use super::params::{ParamId, Params};
use super::plan::Plan;

/// Elements of f32 in a cache line.
const CACHE_LINE: usize = 16;

/// The memory of a plan's activations, which begins at a cache line.
#[derive(Default)]
struct Arena {
    memory: Vec<f32>,
    start: usize,
}

impl Arena {
    fn new(bytes: usize) -> Self {
        let memory = vec![0.0; bytes / size_of::<f32>() + CACHE_LINE];
        let start = memory.as_ptr().align_offset(CACHE_LINE * size_of::<f32>()).min(CACHE_LINE);
        Self { memory, start }
    }

    fn values(&self) -> &[f32] {
        &self.memory[self.start..]
    }

    fn values_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..]
    }
}

/// Runs a plan on the CPU. Owns the activation arena; parameters and gradients belong to the caller.
pub struct Executor {
    pub plan: Plan,
    arena: Arena,
    /// By node.
    operands: Vec<Operands>,
    /// Copies of operands that share a buffer with an output of their node.
    scratch: Vec<f32>,
    /// Weights of convolutions in the kernel's order, by node; empty unless they are frozen.
    frozen: Vec<Option<PackedWeights>>,
}

/// The parameters of a run and what it may do to them.
enum Lent<'a> {
    /// Moves running statistics and adds to gradients.
    Training { params: &'a mut Params, gradients: &'a mut Params },
    /// Changes nothing.
    Inference(&'a Params),
}

impl Lent<'_> {
    fn params(&self) -> &Params {
        match self {
            Self::Training { params, .. } => params,
            Self::Inference(params) => params,
        }
    }

    /// Parameters and gradients, for a backward node.
    fn training(&mut self) -> (&Params, &mut Params) {
        match self {
            Self::Training { params, gradients } => (params, gradients),
            Self::Inference(_) => panic!("a graph with backward nodes is run by `run`, which has gradients to add to"),
        }
    }
}

impl Executor {
    pub fn new(plan: Plan) -> Self {
        let mut executor = Self::without_arena(plan);
        executor.make_arena();
        executor
    }

    /// An executor that cannot run before it has [taken the arena](Self::take_arena) of another one or [made](Self::make_arena) its own.
    pub fn without_arena(plan: Plan) -> Self {
        let operands: Vec<Operands> = plan.graph.nodes.iter().map(|node| Operands::new(&plan, &node.inputs, &node.outputs)).collect();
        let scratch_len = operands.iter().map(Operands::scratch_len).max().unwrap_or(0);
        Self { plan, arena: Arena::default(), operands, scratch: vec![0.0; scratch_len], frozen: Vec::new() }
    }

    /// Gives an executor an arena of its own.
    pub fn make_arena(&mut self) {
        self.arena = Arena::new(self.plan.arena_bytes);
    }

    /// Takes the arena of an executor that is not needed before it takes one back. What either held is lost.
    ///
    /// # Panics
    /// If it is too short.
    pub fn take_arena(&mut self, other: &mut Self) {
        self.arena = std::mem::take(&mut other.arena);
        let len = self.arena.memory.len() - self.arena.start;
        assert!(len * size_of::<f32>() >= self.plan.arena_bytes, "an arena of {len} numbers is too short");
    }

    /// An executor for parameters that will not change: weights are brought into the kernels' order once.
    ///
    /// Only [`run_inference`](Self::run_inference) makes sense with it, and only with these parameters.
    pub fn frozen(plan: Plan, params: &Params) -> Self {
        let mut executor = Self::new(plan);
        let pack = |op: &Op| match op {
            Op::Conv { spec, weight, .. } => Some(PackedWeights::pack(*spec, params.get(*weight))),
            _ => None,
        };
        executor.frozen = executor.plan.graph.nodes.iter().map(|node| pack(&node.op)).collect();
        executor
    }

    /// Copies a packed NHWC value into a tensor (an input, before a step).
    pub fn write(&mut self, id: TensorId, values: &[f32]) {
        let shape = self.plan.graph.shape(id);
        operands::view_mut(&self.plan, self.arena.values_mut(), id).copy_from(View::packed(values, shape));
    }

    /// As [`write`](Self::write), from bytes: 255 becomes 1.
    pub fn write_bytes(&mut self, id: TensorId, bytes: &[u8]) {
        let shape = self.plan.graph.shape(id);
        assert_eq!(bytes.len(), shape.len(), "bytes of {}", self.plan.graph.tensor(id).name);
        let ViewMut { data, pixel_stride, .. } = operands::view_mut(&self.plan, self.arena.values_mut(), id);
        for (pixel, bytes) in data.chunks_mut(pixel_stride).zip(bytes.chunks_exact(shape.c)) {
            for (value, &byte) in pixel.iter_mut().zip(bytes) {
                *value = f32::from(byte) / 255.0;
            }
        }
    }

    /// The packed NHWC value of a tensor that the plan keeps.
    pub fn read(&self, id: TensorId) -> Vec<f32> {
        self.view(id).to_vec()
    }

    /// A tensor that the plan keeps, in place.
    pub fn view(&self, id: TensorId) -> View<'_> {
        assert!(self.plan.is_kept(id), "{} is not kept by the plan", self.plan.graph.tensor(id).name);
        operands::view(&self.plan, self.arena.values(), id)
    }

    /// Runs all nodes in order. Batch norms in batch mode move the running statistics in `params`; backward nodes add to
    /// `gradients` (same layout), which a graph without backward nodes does not touch.
    pub fn run(&mut self, params: &mut Params, gradients: &mut Params) {
        let mut lent = Lent::Training { params, gradients };
        for index in 0..self.plan.graph.nodes.len() {
            self.run_node(index, &mut lent);
        }
    }

    /// Runs all nodes of a graph without backward nodes. Changes no parameter: batch norms in batch mode leave the running
    /// statistics.
    pub fn run_inference(&mut self, params: &Params) {
        let mut lent = Lent::Inference(params);
        for index in 0..self.plan.graph.nodes.len() {
            self.run_node(index, &mut lent);
        }
    }

    /// As [`run`](Self::run), and tells the time that each node took, by node.
    pub fn run_timed(&mut self, params: &mut Params, gradients: &mut Params) -> Vec<(&'static str, Duration)> {
        let mut lent = Lent::Training { params, gradients };
        let mut times = Vec::with_capacity(self.plan.graph.nodes.len());
        for index in 0..self.plan.graph.nodes.len() {
            let start = Instant::now();
            self.run_node(index, &mut lent);
            times.push((self.plan.graph.nodes[index].op.name(), start.elapsed()));
        }
        times
    }

    fn run_node(&mut self, index: usize, lent: &mut Lent) {
        let Self { plan, arena, operands, scratch, frozen } = self;
        let op = &plan.graph.nodes[index].op;
        let frozen = frozen.get(index).and_then(Option::as_ref);
        let firsts = &plan.graph.nodes[index].firsts;
        operands[index].with_views(arena.values_mut(), scratch, |inputs, outputs| {
            let n_channels = match op {
                Op::BnAct { .. } => inputs[0].shape.c,
                Op::Conv { spec, .. } => spec.out_channels,
                _ => 0,
            };
            if outputs.first().is_some_and(|output| output.shape.c < n_channels) {
                // Only parts of the value are wanted.
                let shape = Shape { c: n_channels, ..outputs[0].shape };
                let mut value = vec![0.0; shape.len()];
                run_op(op, inputs, &mut [ViewMut::packed(&mut value, shape)], lent, frozen);
                for (output, &first) in outputs.iter_mut().zip(firsts) {
                    output.copy_from(View::packed(&value, shape).channels(first, output.shape.c));
                }
                return;
            }
            // Copies of a part of the value are taken from its first place.
            let n_whole = firsts.len() - firsts.iter().zip(&*outputs).filter(|&(_, output)| output.shape.c < outputs[0].shape.c).count();
            let n_whole = if is_one_value(op) { n_whole } else { outputs.len() };
            let (whole, parts) = outputs.split_at_mut(n_whole);
            run_op(op, inputs, whole, lent, frozen);
            for (part, &first) in parts.iter_mut().zip(&firsts[n_whole..]) {
                part.copy_from(whole[0].as_view().channels(first, part.shape.c));
            }
        });
    }
}

/// Whether all outputs of a node are places of one value.
fn is_one_value(op: &Op) -> bool {
    matches!(op, Op::Input | Op::Conv { .. } | Op::BnAct { .. } | Op::AvgPool2 | Op::MaxPool { .. } | Op::Upsample2 | Op::NearestSum)
}

/// The gradient of a value from pieces that cover some of its channels: their sum in `sum`, unless each covers all.
fn whole_gradients<'a>(pieces: &[View<'a>], firsts: &[usize], c: usize, sum: &'a mut Vec<f32>) -> Vec<View<'a>> {
    if pieces.iter().all(|piece| piece.shape.c == c) {
        return pieces.to_vec();
    }
    let shape = Shape { c, ..pieces[0].shape };
    sum.resize(shape.len(), 0.0);
    for (piece, &first) in pieces.iter().zip(firsts) {
        for (pixel, sums) in sum.chunks_exact_mut(c).enumerate() {
            add(&mut sums[first..first + piece.shape.c], piece.pixel(pixel));
        }
    }
    vec![View::packed(sum, shape)]
}

/// Runs one node.
fn run_op(op: &Op, inputs: &[View], outputs: &mut [ViewMut], lent: &mut Lent, frozen: Option<&PackedWeights>) {
    match op {
        // The caller filled the first.
        Op::Input => copy_first_to_others(outputs),
        Op::Conv { spec, weight, bias, act } => {
            let params = lent.params();
            let packed;
            let weights = if let Some(weights) = frozen {
                weights
            } else {
                packed = PackedWeights::pack(*spec, params.get(*weight));
                &packed
            };
            let bias = bias.map(|bias| params.get(bias));
            conv::conv_forward(inputs[0], weights, bias, *act, inputs.get(1).copied(), outputs[0].reborrow());
            copy_first_to_others(outputs);
        }
        Op::BnStats { bn, mode } => {
            let stats = packed_mut(&mut outputs[0]);
            match (mode, lent) {
                (BnMode::Running, lent) => {
                    let params = lent.params();
                    bn_act::bn_stats_running(params.get(bn.running_mean), params.get(bn.running_var), stats);
                }
                (BnMode::Batch, Lent::Training { params, .. }) => {
                    let ranges = [params.range(bn.running_mean), params.range(bn.running_var)];
                    let [mean, var] = params.values.get_disjoint_mut(ranges).expect("parameters don't overlap");
                    bn_act::bn_stats_batch(inputs[0], stats, Some(Running { mean, var }));
                }
                (BnMode::Batch, Lent::Inference(_)) => bn_act::bn_stats_batch(inputs[0], stats, None),
            }
        }
        Op::BnAct { bns, act, residual } => {
            let (branches, rest) = branches(bns, inputs, lent.params());
            let residual = residual.then(|| rest[0]);
            bn_act::bn_act(&branches, *act, residual, outputs);
        }
        Op::AvgPool2 => pool::avg_pool2(inputs[0], outputs),
        Op::MaxPool { kernel, stride, pad } => {
            pool::max_pool(inputs[0], Window { kernel: *kernel, stride: *stride, pad: *pad }, outputs);
        }
        Op::Upsample2 | Op::NearestSum => nearest::nearest_sum(inputs, outputs),
        Op::Decode { strides, reg_max } => decode::decode(&pairs(inputs), strides, *reg_max, packed_mut(&mut outputs[0])),
        Op::DetectionLoss(spec) => {
            let (items, grads) = outputs.split_at_mut(1);
            let mut grads: Vec<(ViewMut, ViewMut)> = grads
                .chunks_exact_mut(2)
                .map(|pair| {
                    let (reg, cls) = pair.split_at_mut(1);
                    (reg[0].reborrow(), cls[0].reborrow())
                })
                .collect();
            let values = loss::detection_loss(spec, inputs[0], &pairs(&inputs[1..]), &mut grads);
            packed_mut(&mut items[0]).copy_from_slice(&values);
        }

        Op::Zero => outputs[0].fill(0.0),
        Op::ConvBackwardInput { spec, weight, accumulate } => {
            conv::conv_backward_input(*spec, inputs[0], lent.params().get(*weight), outputs[0].reborrow(), *accumulate);
        }
        Op::ConvBackwardWeight { spec, weight, bias } => {
            let (_, gradients) = lent.training();
            let (d_weight, d_bias) = weight_and_bias(gradients, *weight, *bias);
            conv::conv_backward_weight(*spec, inputs[0], inputs[1], d_weight, d_bias);
        }
        Op::BnActBackwardReduce { bns, act, grads } => {
            let (params, gradients) = lent.training();
            let (branches, _) = branches(bns, &inputs[grads.len()..], params);
            let sums = packed_mut(&mut outputs[0]);
            let c = inputs[grads.len()].shape.c;
            let mut sum = Vec::new();
            let d_out = whole_gradients(&inputs[..grads.len()], grads, c, &mut sum);
            bn_act::bn_act_backward_reduce(&d_out, &branches, *act, sums);
            for (bn, sums) in bns.iter().zip(sums.chunks_exact(2 * c)) {
                add(gradients.get_mut(bn.beta), &sums[..c]);
                add(gradients.get_mut(bn.gamma), &sums[c..]);
            }
        }
        Op::BnActBackward { bns, act, grads, residual, accumulate_residual } => {
            let (branches, rest) = branches(bns, &inputs[grads.len()..], lent.params());
            let residual = residual.then_some(*accumulate_residual);
            let mut sum = Vec::new();
            let d_out = whole_gradients(&inputs[..grads.len()], grads, outputs[0].shape.c, &mut sum);
            bn_act::bn_act_backward(&d_out, &branches, *act, packed(rest[0]), residual, outputs);
        }
        Op::AvgPool2Backward { grads, accumulate } => {
            let mut sum = Vec::new();
            let d_y = whole_gradients(inputs, grads, outputs[0].shape.c, &mut sum);
            pool::avg_pool2_backward(&d_y, outputs[0].reborrow(), *accumulate);
        }
        Op::MaxPoolBackward { kernel, stride, pad, grads, accumulate } => {
            let window = Window { kernel: *kernel, stride: *stride, pad: *pad };
            let mut sum = Vec::new();
            let d_y = whole_gradients(&inputs[1..], grads, outputs[0].shape.c, &mut sum);
            pool::max_pool_backward(inputs[0], &d_y, window, outputs[0].reborrow(), *accumulate);
        }
        Op::Upsample2Backward { grads, accumulate } => {
            let mut sum = Vec::new();
            let d_y = whole_gradients(inputs, grads, outputs[0].shape.c, &mut sum);
            nearest::block_sum(&d_y, 2, outputs[0].reborrow(), *accumulate);
        }
        Op::NearestSumBackward { factor, grads, accumulate } => {
            let mut sum = Vec::new();
            let d_y = whole_gradients(inputs, grads, outputs[0].shape.c, &mut sum);
            nearest::block_sum(&d_y, *factor, outputs[0].reborrow(), *accumulate);
        }
    }
}

/// The batch norms whose values and statistics lead `inputs`, and the inputs after them.
fn branches<'a>(bns: &[BnParams], inputs: &'a [View<'a>], params: &'a Params) -> (Vec<Branch<'a>>, &'a [View<'a>]) {
    let (pairs, rest) = inputs.split_at(2 * bns.len());
    let branch = |(bn, pair): (&BnParams, &'a [View<'a>])| Branch {
        y: pair[0],
        stats: packed(pair[1]),
        gamma: params.get(bn.gamma),
        beta: params.get(bn.beta),
    };
    (bns.iter().zip(pairs.chunks_exact(2)).map(branch).collect(), rest)
}

fn pairs<'a>(inputs: &[View<'a>]) -> Vec<(View<'a>, View<'a>)> {
    inputs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The elements of a tensor that owns its buffer: vectors and tables.
fn packed(x: View<'_>) -> &[f32] {
    assert_eq!(x.pixel_stride, x.shape.c);
    x.data
}

fn packed_mut<'a>(x: &'a mut ViewMut) -> &'a mut [f32] {
    assert_eq!(x.pixel_stride, x.shape.c);
    x.data
}

fn copy_first_to_others(outputs: &mut [ViewMut]) {
    if let [first, others @ ..] = outputs {
        for other in others {
            other.copy_from(first.as_view());
        }
    }
}

fn add(to: &mut [f32], values: &[f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += value;
    }
}

/// The gradients of a convolution's parameters.
fn weight_and_bias(gradients: &mut Params, weight: ParamId, bias: Option<ParamId>) -> (&mut [f32], Option<&mut [f32]>) {
    match bias {
        None => (gradients.get_mut(weight), None),
        Some(bias) => {
            let ranges = [gradients.range(weight), gradients.range(bias)];
            let [weight, bias] = gradients.values.get_disjoint_mut(ranges).expect("parameters don't overlap");
            (weight, Some(bias))
        }
    }
}
