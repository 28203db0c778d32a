//! A plan as work for the GPU: every node's kernels and convolutions with their addresses, in order, captured as one graph.
//!
//! In:  a plan whose convolutions read packed tensors and whose gradients come in pieces (`packed`, `gradients`), and the
//! addresses of its arenas. Out: a list of work that needs nothing more from the host.
//!
//! All addresses are fixed when the program is made, so running it is one call of the driver. Where a capture fails, the same
//! list is launched one by one, and `fallback` says why.

use std::collections::HashMap;
use std::sync::Arc;

use super::bn_act;
use super::bn_act::{BnGradients, Branch, Running, Scratch, bias_act_forward, bn_act_backward, bn_act_backward_reduce, bn_act_forward};
use super::cast::{copy_pixels, zero};
use super::conv::{BoundConv, ConvCall, ConvPass, ConvPlanId, ConvPointers, Convolutions, Search};
use super::decode::decode;
use super::error::CudaError;
use super::gpu::{CapturedGraph, DeviceBuffer, Event, Launch};
use super::levels::{LevelTensors, Levels};
use super::loss::DetectionLoss;
use super::nearest::{Enlarged, block_sum, nearest_sum, sum_pieces};
use super::pieces::Piece;
use super::pool;
use super::runtime::Runtime;
use super::tiling::{Extent, Strided, Target};
use crate::engine::graph::{Node, Shape, TensorId};
use crate::engine::lanes::Lanes;
use crate::engine::op::{Act, BnMode, BnParams, Op};
use crate::engine::params::{ParamId, Params};
use crate::engine::plan::Plan;

/// Where parameters and what belongs to them are. All arenas have the layout of one table.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParamArenas {
    /// f32.
    pub values: u64,
    /// In compute type: what convolutions read.
    pub copies: u64,
    /// f32; 0 where nothing is trained.
    pub gradients: u64,
    /// In compute type: what convolutions write.
    pub weight_gradients: u64,
    /// An f32 that multiplies the gradients of the loss.
    pub loss_scale: u64,
}

/// Work of one node.
pub struct Work {
    /// Index of the node in the plan's graph.
    pub node: usize,
    /// What a profile counts it as.
    pub family: &'static str,
    call: Call,
}

enum Call {
    Kernel(Launch),
    Conv(BoundConv),
}

/// The work of one plan.
pub struct Program {
    runtime: Arc<Runtime>,
    pub works: Vec<Work>,
    /// Which nodes a recording puts beside others.
    lanes: Option<Lanes>,
    /// All of it, recorded on the second run.
    graph: Option<CapturedGraph>,
    has_run: bool,
    /// Why the work is launched piece by piece, if it is.
    pub fallback: Option<String>,
}

/// Memory that a program needs beside the activations, shared by all of its nodes.
pub struct Workspace {
    buffer: DeviceBuffer,
    constants: DeviceBuffer,
    /// Channels that `constants` is for.
    max_channels: usize,
    /// Bytes of the part that convolutions and others of a lane use in turn; there is one for each lane.
    of_lane: usize,
    n_lanes: usize,
}

impl Workspace {
    /// Device memory of it.
    pub fn bytes(&self) -> usize {
        self.buffer.bytes + self.constants.bytes
    }
}

/// The convolutions of a node.
fn conv_call(plan: &Plan, node: &Node) -> Option<ConvCall> {
    let call = |pass, spec, x: Shape| Some(ConvCall { pass, spec, n: x.n, h: x.h, w: x.w });
    let shape = |id| plan.graph.shape(id);
    match &node.op {
        Op::Conv { spec, bias, act, .. } => {
            let pass = match bias {
                Some(_) if is_fused(plan, node) => ConvPass::ForwardBias { act: *act, residual: node.inputs.len() > 1 },
                _ => ConvPass::Forward,
            };
            call(pass, *spec, shape(node.inputs[0]))
        }
        Op::ConvBackwardInput { spec, .. } => call(ConvPass::BackwardInput, *spec, shape(node.outputs[0])),
        Op::ConvBackwardWeight { spec, .. } => call(ConvPass::BackwardWeight, *spec, shape(node.inputs[0])),
        _ => None,
    }
}

fn is_packed(plan: &Plan, id: TensorId) -> bool {
    plan.placement(id).pixel_stride == plan.graph.shape(id).c
}

/// Whether a convolution writes its output where it is wanted; else it writes to the workspace, and a kernel goes on from there.
fn is_fused(plan: &Plan, node: &Node) -> bool {
    let is_whole = plan.graph.shape(node.outputs[0]).c == plan.graph.value_channels(node);
    node.outputs.len() == 1 && is_whole && is_packed(plan, node.outputs[0]) && node.inputs[1..].iter().all(|&id| is_packed(plan, id))
}

/// Convolutions whose plans wait to be timed at once: with their kernels they take memory.
const PREPARED_AT_ONCE: usize = 48;

/// How convolutions that the card has not seen yet get their plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planning {
    /// The fastest of several that are timed.
    Timed,
    /// Like the same convolution of pictures of another size, where there is one: for shapes that are used a few times.
    LikeOthers,
}

/// Finds the plans of all convolutions.
pub fn plan_convolutions(
    runtime: &Arc<Runtime>,
    plan: &Plan,
    planning: Planning,
    check_in: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Option<ConvPlanId>>, CudaError> {
    let mut convolutions = runtime.convolutions();
    let calls: Vec<Option<ConvCall>> = plan.graph.nodes.iter().map(|node| conv_call(plan, node)).collect();
    let bytes = calls.iter().flatten().map(|call| convolutions.timing_bytes(call)).max().unwrap_or(0);
    let mut ids = HashMap::new();
    let distinct: Vec<ConvCall> = calls.iter().flatten().filter(|&&call| ids.insert(call, None).is_none()).copied().collect();
    if planning == Planning::LikeOthers {
        let unseen: Vec<ConvCall> = distinct.iter().filter(|call| !convolutions.is_timed(call)).copied().collect();
        ids.extend(convolutions.plan_like_others(&unseen).into_iter().map(|(call, id)| (call, Some(id))));
    }
    let distinct: Vec<ConvCall> = distinct.into_iter().filter(|call| ids[call].is_none()).collect();
    // Made when the first call must be timed: mostly, the cache knows them all.
    let mut scratch: Option<DeviceBuffer> = None;
    check_in(0, distinct.len());
    for (first, some) in distinct.chunks(PREPARED_AT_ONCE).enumerate().map(|(index, some)| (index * PREPARED_AT_ONCE, some)) {
        convolutions.prepare(some);
        for (index, call) in some.iter().enumerate() {
            let id = if let Some(id) = convolutions.known(call) {
                id
            } else {
                if scratch.is_none() {
                    scratch = Some(runtime.gpu.alloc(bytes)?);
                }
                let (address, bytes) = scratch.as_ref().map_or((0, 0), |scratch| (scratch.address, scratch.bytes));
                convolutions.plan(call, Search::Timed { address, bytes })?
            };
            ids.insert(*call, Some(id));
            check_in(first + index + 1, distinct.len());
        }
    }
    convolutions.save();
    Ok(calls.iter().map(|call| call.and_then(|call| ids[&call])).collect())
}

/// Bytes of workspace that a plan's nodes need at most.
fn lane_bytes(runtime: &Runtime, plan: &Plan, plans: &[Option<ConvPlanId>]) -> usize {
    let convolutions = runtime.convolutions();
    let element = runtime.precision().bytes();
    let of_node = |(node, id): (&Node, &Option<ConvPlanId>)| {
        let conv = id.map_or(0, |id| convolutions.workspace_bytes(id).next_multiple_of(256));
        let shape = |id: TensorId| plan.graph.shape(id);
        conv + match &node.op {
            Op::Conv { spec, .. } if !is_fused(plan, node) => shape(node.outputs[0]).n_pixels() * spec.out_channels * element,
            Op::ConvBackwardInput { accumulate: true, .. } => shape(node.outputs[0]).len() * element,
            Op::MaxPoolBackward { kernel, stride, pad, .. } => {
                pool::max_pool_backward_bytes(shape(node.inputs[0]), pool::Window { kernel: *kernel, stride: *stride, pad: *pad })
            }
            Op::DetectionLoss(_) => detection_loss(plan, node, 0, &|_| 0).workspace_bytes(),
            _ => 0,
        }
    };
    plan.graph.nodes.iter().zip(plans).map(of_node).max().unwrap_or(0).next_multiple_of(256)
}

/// The workspace of several plans that run in turn.
pub fn workspace(runtime: &Arc<Runtime>, plans: &[(&Plan, &[Option<ConvPlanId>])]) -> Result<Workspace, CudaError> {
    let max_channels = plans.iter().flat_map(|(plan, _)| &plan.graph.tensors).map(|tensor| tensor.shape.c).max().unwrap_or(1);
    let of_lane = plans.iter().map(|(plan, ids)| lane_bytes(runtime, plan, ids)).max().unwrap_or(0);
    let n_lanes = plans.iter().filter_map(|(plan, _)| plan.lanes.as_ref()).map(Lanes::n_lanes).max().unwrap_or(1);
    let shared = n_lanes * of_lane;
    let counters = bn_act::N_COUNTERS * size_of::<u32>();
    let buffer = runtime.gpu.alloc(shared + bn_act::scratch_bytes(&runtime.kernels, max_channels).next_multiple_of(256) + counters)?;
    buffer.fill(0)?;
    // Statistics of a value that is not normalised (means 0, factors 1), then room for sums that nobody reads.
    let mut constants = vec![0.0f32; 4 * max_channels];
    constants[max_channels..2 * max_channels].fill(1.0);
    let constants = runtime.gpu.upload(&constants)?;
    Ok(Workspace { buffer, constants, max_channels, of_lane, n_lanes })
}

impl Workspace {
    /// Address of what a lane's nodes use in turn.
    fn lane(&self, lane: usize) -> u64 {
        self.buffer.address + (lane * self.of_lane) as u64
    }

    /// For sums of batch norms; of lane 0 only.
    fn scratch(&self) -> Scratch {
        let counters = self.buffer.bytes - bn_act::N_COUNTERS * size_of::<u32>();
        Scratch { workspace: self.lane(self.n_lanes), counters: self.buffer.address + counters as u64 }
    }
}

fn detection_loss<'a>(plan: &'a Plan, node: &'a Node, workspace: u64, address: &dyn Fn(TensorId) -> u64) -> DetectionLoss<'a> {
    let Op::DetectionLoss(spec) = &node.op else { unreachable!("called for a loss") };
    let strided = |id: TensorId| Strided { address: address(id), pixel_stride: plan.placement(id).pixel_stride };
    let levels = node.inputs[1..]
        .chunks_exact(2)
        .zip(node.outputs[1..].chunks_exact(2))
        .map(|(logits, gradients)| {
            let shape = plan.graph.shape(logits[0]);
            LevelTensors {
                height: shape.h,
                width: shape.w,
                reg: strided(logits[0]),
                cls: strided(logits[1]),
                d_reg: strided(gradients[0]),
                d_cls: strided(gradients[1]),
            }
        })
        .collect();
    let truth = plan.graph.shape(node.inputs[0]);
    DetectionLoss {
        spec,
        batch: truth.n,
        n_rows: truth.h * truth.w,
        truth: address(node.inputs[0]),
        levels,
        items: address(node.outputs[0]),
        loss_scale: 0,
        workspace,
    }
}

/// Turns nodes into work.
struct Builder<'a> {
    runtime: &'a Runtime,
    plan: &'a Plan,
    params: &'a Params,
    arenas: ParamArenas,
    activations: u64,
    workspace: &'a Workspace,
    works: Vec<Work>,
    node: usize,
}

impl Builder<'_> {
    fn address(&self, id: TensorId) -> u64 {
        self.activations + self.plan.placement(id).offset as u64
    }

    fn shape(&self, id: TensorId) -> Shape {
        self.plan.graph.shape(id)
    }

    fn strided(&self, id: TensorId) -> Strided {
        Strided { address: self.address(id), pixel_stride: self.plan.placement(id).pixel_stride }
    }

    fn piece(&self, id: TensorId, first: usize) -> Piece {
        Piece {
            address: self.address(id),
            pixel_stride: self.plan.placement(id).pixel_stride as i32,
            first: first as i32,
            count: self.shape(id).c as i32,
            unused: 0,
        }
    }

    fn pieces(&self, ids: &[TensorId], firsts: &[usize]) -> Vec<Piece> {
        ids.iter().zip(firsts).map(|(&id, &first)| self.piece(id, first)).collect()
    }

    fn value(&self, id: ParamId) -> u64 {
        self.arenas.values + (self.params.offsets[id.0 as usize] * size_of::<f32>()) as u64
    }

    fn copy(&self, id: ParamId) -> u64 {
        self.arenas.copies + (self.params.offsets[id.0 as usize] * self.runtime.precision().bytes()) as u64
    }

    fn gradient(&self, id: ParamId) -> u64 {
        self.arenas.gradients + (self.params.offsets[id.0 as usize] * size_of::<f32>()) as u64
    }

    fn weight_gradient(&self, id: ParamId) -> u64 {
        self.arenas.weight_gradients + (self.params.offsets[id.0 as usize] * self.runtime.precision().bytes()) as u64
    }

    fn kernel(&mut self, family: &'static str, launch: Launch) {
        self.works.push(Work { node: self.node, family, call: Call::Kernel(launch) });
    }

    fn conv(&mut self, family: &'static str, id: ConvPlanId, pointers: ConvPointers) -> Result<(), CudaError> {
        let bound = self.runtime.convolutions().bind(id, pointers)?;
        self.works.push(Work { node: self.node, family, call: Call::Conv(bound) });
        Ok(())
    }

    /// The branches that lead `inputs`.
    fn branches(&self, bns: &[BnParams], inputs: &[TensorId]) -> Vec<Branch> {
        let branch = |(bn, pair): (&BnParams, &[TensorId])| Branch {
            y: self.strided(pair[0]),
            stats: self.address(pair[1]),
            gamma: self.value(bn.gamma),
            beta: self.value(bn.beta),
        };
        bns.iter().zip(inputs.chunks_exact(2)).map(branch).collect()
    }

    fn append(&mut self, node: &Node, conv: Option<ConvPlanId>) -> Result<(), CudaError> {
        let runtime = self.runtime;
        let kernels = &runtime.kernels;
        let workspace = self.workspace.lane(self.plan.lanes.as_ref().map_or(0, |lanes| lanes.lane[self.node]));
        let conv_id = || conv.expect("every convolution was planned");
        let extent = |shape: Shape| Extent { n_pixels: shape.n_pixels(), n_channels: shape.c };
        let outs = self.pieces(&node.outputs, &node.firsts);
        match &node.op {
            Op::Input => {
                for (&id, &first) in node.outputs.iter().zip(&node.firsts).skip(1) {
                    let shape = self.shape(id);
                    let mut from = self.strided(node.outputs[0]);
                    from.address += (first * runtime.precision().bytes()) as u64;
                    self.kernel("copy", copy_pixels(kernels, from, self.strided(id), extent(shape)));
                }
            }
            Op::Conv { spec, weight, bias, act } => {
                let pointers = ConvPointers {
                    a: self.address(node.inputs[0]),
                    b: self.copy(*weight),
                    bias: bias.map_or(0, |bias| self.value(bias)),
                    residual: node.inputs.get(1).map_or(0, |&id| self.address(id)),
                    out: self.address(node.outputs[0]),
                    workspace,
                };
                if is_fused(self.plan, node) && (bias.is_some() || (*act == Act::None && node.inputs.len() == 1)) {
                    return self.conv("conv forward", conv_id(), pointers);
                }
                let room = runtime.convolutions().workspace_bytes(conv_id()).next_multiple_of(256);
                let raw = workspace + room as u64;
                self.conv("conv forward", conv_id(), ConvPointers { out: raw, ..pointers })?;
                let shape = Shape { c: spec.out_channels, ..self.shape(node.outputs[0]) };
                let y = Strided { address: raw, pixel_stride: shape.c };
                let residual = node.inputs.get(1).map(|&id| self.strided(id));
                let bias = bias.map(|bias| self.value(bias));
                self.kernel("bias + act", bias_act_forward(kernels, y, bias, *act, residual, &outs, extent(shape)));
            }
            Op::BnStats { bn, mode } => {
                let shape = self.shape(node.inputs[0]);
                let running = Running { mean: self.value(bn.running_mean), var: self.value(bn.running_var) };
                let stats = self.address(node.outputs[0]);
                let launch = match mode {
                    BnMode::Running => bn_act::bn_stats_running(kernels, running, shape.c, stats),
                    BnMode::Batch => {
                        let scratch = self.workspace.scratch();
                        bn_act::bn_stats_batch(kernels, self.strided(node.inputs[0]), extent(shape), stats, Some(running), scratch)
                    }
                };
                self.kernel("bn stats", launch);
            }
            Op::BnAct { bns, act, residual } => {
                let branches = self.branches(bns, &node.inputs);
                let residual = residual.then(|| self.strided(node.inputs[2 * bns.len()]));
                // Of the value: an output may be a part of it.
                let shape = self.shape(node.inputs[0]);
                self.kernel("bn + act", bn_act_forward(kernels, &branches, *act, residual, &outs, extent(shape)));
            }
            Op::AvgPool2 => {
                let launch = pool::avg_pool2(kernels, self.strided(node.inputs[0]), self.shape(node.inputs[0]), &outs);
                self.kernel("pool", launch);
            }
            Op::MaxPool { kernel, stride, pad } => {
                let window = pool::Window { kernel: *kernel, stride: *stride, pad: *pad };
                let launch = pool::max_pool(kernels, self.strided(node.inputs[0]), self.shape(node.inputs[0]), window, &outs);
                self.kernel("pool", launch);
            }
            Op::Upsample2 | Op::NearestSum => {
                let shape = self.shape(node.outputs[0]);
                let enlarged = |&id: &TensorId| Enlarged { map: self.strided(id), factor: shape.h / self.shape(id).h };
                let maps: Vec<Enlarged> = node.inputs.iter().map(enlarged).collect();
                self.kernel("nearest", nearest_sum(kernels, &maps, shape, &outs));
            }
            Op::Decode { strides, .. } => {
                let levels: Vec<LevelTensors> = node
                    .inputs
                    .chunks_exact(2)
                    .map(|pair| {
                        let shape = self.shape(pair[0]);
                        let (reg, cls) = (self.strided(pair[0]), self.strided(pair[1]));
                        LevelTensors { height: shape.h, width: shape.w, reg, cls, ..LevelTensors::default() }
                    })
                    .collect();
                let cls = self.shape(node.inputs[1]);
                let levels = Levels::new(cls.n, cls.c, strides, &levels);
                self.kernel("decode", decode(kernels, &levels, self.address(node.outputs[0])));
            }
            Op::DetectionLoss(_) => {
                let loss = DetectionLoss {
                    loss_scale: self.arenas.loss_scale,
                    ..detection_loss(self.plan, node, workspace, &|id| self.address(id))
                };
                for launch in loss.launches(kernels) {
                    self.kernel("loss", launch);
                }
            }

            Op::Zero => {
                let shape = self.shape(node.outputs[0]);
                self.kernel("copy", zero(kernels, self.strided(node.outputs[0]), extent(shape)));
            }
            Op::ConvBackwardInput { weight, accumulate, .. } => {
                let (a, b, out) = (self.address(node.inputs[0]), self.copy(*weight), self.address(node.outputs[0]));
                let pointers = ConvPointers { a, b, out, workspace, ..ConvPointers::default() };
                if !accumulate && is_packed(self.plan, node.outputs[0]) {
                    return self.conv("conv backward input", conv_id(), pointers);
                }
                let room = runtime.convolutions().workspace_bytes(conv_id()).next_multiple_of(256);
                let raw = workspace + room as u64;
                self.conv("conv backward input", conv_id(), ConvPointers { out: raw, ..pointers })?;
                let shape = self.shape(node.outputs[0]);
                let piece = Piece { address: raw, pixel_stride: shape.c as i32, first: 0, count: shape.c as i32, unused: 0 };
                let to = Target { tensor: self.strided(node.outputs[0]), accumulate: *accumulate };
                self.kernel("nearest", sum_pieces(kernels, &[piece], extent(shape), to));
            }
            Op::ConvBackwardWeight { weight, bias, .. } => {
                let (a, b) = (self.address(node.inputs[0]), self.address(node.inputs[1]));
                let pointers = ConvPointers { a, b, out: self.weight_gradient(*weight), workspace, ..ConvPointers::default() };
                self.conv("conv backward weight", conv_id(), pointers)?;
                if let Some(bias) = bias {
                    self.bias_gradient(node.inputs[1], *bias);
                }
            }
            Op::BnActBackwardReduce { bns, act, grads } => {
                let (d_out, rest) = node.inputs.split_at(grads.len());
                let branches = self.branches(bns, rest);
                let gradients: Vec<BnGradients> =
                    bns.iter().map(|bn| BnGradients { gamma: self.gradient(bn.gamma), beta: self.gradient(bn.beta) }).collect();
                let (sums, shape) = (self.address(node.outputs[0]), self.shape(rest[0]));
                let d_out = self.pieces(d_out, grads);
                let scratch = self.workspace.scratch();
                let launch = bn_act_backward_reduce(kernels, &d_out, &branches, *act, sums, &gradients, extent(shape), scratch);
                self.kernel("bn + act backward reduce", launch);
            }
            Op::BnActBackward { bns, act, grads, residual, accumulate_residual } => {
                let (d_out, rest) = node.inputs.split_at(grads.len());
                let branches = self.branches(bns, rest);
                let (sums, shape) = (self.address(rest[2 * bns.len()]), self.shape(rest[0]));
                let d_ys: Vec<Strided> = node.outputs[..bns.len()].iter().map(|&id| self.strided(id)).collect();
                let target = |&id: &TensorId| Target { tensor: self.strided(id), accumulate: *accumulate_residual };
                let d_residual = if *residual { node.outputs.get(bns.len()).map(target) } else { None };
                let d_out = self.pieces(d_out, grads);
                let launch = bn_act_backward(kernels, &d_out, &branches, *act, sums, &d_ys, d_residual, extent(shape));
                self.kernel("bn + act backward", launch);
            }
            Op::AvgPool2Backward { grads, accumulate } => {
                let d_y = self.pieces(&node.inputs, grads);
                let d_x = Target { tensor: self.strided(node.outputs[0]), accumulate: *accumulate };
                self.kernel("pool backward", pool::avg_pool2_backward(kernels, &d_y, self.shape(node.outputs[0]), d_x));
            }
            Op::MaxPoolBackward { kernel, stride, pad, grads, accumulate } => {
                let window = pool::Window { kernel: *kernel, stride: *stride, pad: *pad };
                let d_y = self.pieces(&node.inputs[1..], grads);
                let d_x = Target { tensor: self.strided(node.outputs[0]), accumulate: *accumulate };
                let x = self.strided(node.inputs[0]);
                for launch in pool::max_pool_backward(kernels, x, &d_y, self.shape(node.inputs[0]), window, d_x, workspace) {
                    self.kernel("pool backward", launch);
                }
            }
            Op::Upsample2Backward { grads, accumulate } => self.block_sum(node, grads, 2, *accumulate),
            Op::NearestSumBackward { factor, grads, accumulate } => self.block_sum(node, grads, *factor, *accumulate),
        }
        Ok(())
    }

    fn block_sum(&mut self, node: &Node, grads: &[usize], factor: usize, accumulate: bool) {
        let d_y = self.pieces(&node.inputs, grads);
        let d_x = Target { tensor: self.strided(node.outputs[0]), accumulate };
        let launch = block_sum(&self.runtime.kernels, &d_y, factor, self.shape(node.outputs[0]), d_x);
        self.kernel("nearest backward", launch);
    }

    /// Adds the sums of `d_y` over all pixels to the gradient of a bias: what the backward of a batch norm does for beta, of a
    /// value that is not normalised.
    fn bias_gradient(&mut self, d_y: TensorId, bias: ParamId) {
        let shape = self.shape(d_y);
        let (constants, n) = (self.workspace.constants.address, self.workspace.max_channels);
        let at = |index: usize| constants + (index * size_of::<f32>()) as u64;
        // Zeros up to `n`, ones up to `2 n`, then room.
        let branch = Branch { y: self.strided(d_y), stats: at(n - shape.c), gamma: at(n), beta: at(0) };
        let gradients = BnGradients { gamma: at(2 * n), beta: self.gradient(bias) };
        let extent = Extent { n_pixels: shape.n_pixels(), n_channels: shape.c };
        let launch = bn_act_backward_reduce(
            &self.runtime.kernels,
            &[self.piece(d_y, 0)],
            &[branch],
            Act::None,
            at(2 * n),
            &[gradients],
            extent,
            self.workspace.scratch(),
        );
        self.kernel("bias gradient", launch);
    }
}

impl Program {
    /// The work of `plan`. Addresses of `arenas`, `activations` and `workspace` must stay valid for as long as the program lives.
    pub fn new(
        runtime: &Arc<Runtime>,
        plan: &Plan,
        plans: &[Option<ConvPlanId>],
        params: &Params,
        arenas: ParamArenas,
        activations: u64,
        workspace: &Workspace,
    ) -> Result<Self, CudaError> {
        let mut builder = Builder { runtime, plan, params, arenas, activations, workspace, works: Vec::new(), node: 0 };
        for (index, (node, &conv)) in plan.graph.nodes.iter().zip(plans).enumerate() {
            builder.node = index;
            builder.append(node, conv)?;
        }
        let lanes = plan.lanes.clone();
        Ok(Self { runtime: Arc::clone(runtime), works: builder.works, lanes, graph: None, has_run: false, fallback: None })
    }

    /// Adds launches of the caller at the end.
    pub fn push(&mut self, family: &'static str, launch: Launch) {
        self.works.push(Work { node: usize::MAX, family, call: Call::Kernel(launch) });
    }

    /// Puts a launch of the caller before all others.
    pub fn prepend(&mut self, family: &'static str, launch: Launch) {
        self.works.insert(0, Work { node: usize::MAX, family, call: Call::Kernel(launch) });
    }

    /// Gives some work to the stream, piece by piece. The plans' lock is always taken before the GPU's door: a search for plans
    /// holds the one while it records graphs.
    fn issue(&self, works: &[Work], convolutions: &Convolutions) -> Result<(), CudaError> {
        works.iter().try_for_each(|work| self.issue_one(work, convolutions, 0))
    }

    fn issue_one(&self, work: &Work, convolutions: &Convolutions, lane: usize) -> Result<(), CudaError> {
        match &work.call {
            Call::Kernel(launch) => self.runtime.gpu.launch_in_lane(launch, lane),
            Call::Conv(bound) => convolutions.run_in_lane(bound, lane),
        }
    }

    /// Gives all work to a recording, each node in its lane.
    fn issue_in_lanes(&self, lanes: &Lanes, convolutions: &Convolutions) -> Result<(), CudaError> {
        let gpu = &self.runtime.gpu;
        let mut events: HashMap<usize, Event> = HashMap::new();
        for &node in lanes.waits.iter().flatten() {
            events.insert(node, gpu.event()?);
        }
        let is_of = |node: usize| move |work: &&Work| work.node == node;
        let mut rest = self.works.iter().peekable();
        // What the caller put first or last belongs to no node.
        while let Some(work) = rest.next_if(is_of(usize::MAX)) {
            self.issue_one(work, convolutions, 0)?;
        }
        for (node, (&lane, waits)) in lanes.lane.iter().zip(&lanes.waits).enumerate() {
            for other in waits {
                gpu.wait_in_lane(lane, &events[other])?;
            }
            while let Some(work) = rest.next_if(is_of(node)) {
                self.issue_one(work, convolutions, lane)?;
            }
            if let Some(event) = events.get(&node) {
                event.record_in_lane(lane)?;
            }
        }
        rest.try_for_each(|work| self.issue_one(work, convolutions, 0))
    }

    /// Gives all work to the stream: the first time piece by piece, which loads what is loaded late, then as one graph.
    pub fn run(&mut self) -> Result<(), CudaError> {
        self.runtime.gpu.bind()?;
        if self.has_run && self.graph.is_none() && self.fallback.is_none() {
            let captured = {
                let convolutions = self.runtime.convolutions();
                self.runtime.gpu.capture(|| match &self.lanes {
                    Some(lanes) => self.issue_in_lanes(lanes, &convolutions),
                    None => self.issue(&self.works, &convolutions),
                })
            };
            match captured {
                Ok(graph) => self.graph = Some(graph),
                Err(error) => self.fallback = Some(error.to_string()),
            }
        }
        if let Some(graph) = &self.graph {
            return graph.launch();
        }
        self.issue(&self.works, &self.runtime.convolutions())?;
        self.has_run = true;
        Ok(())
    }

    /// Runs everything but what was put first, piece by piece.
    pub fn run_after_input(&self) -> Result<(), CudaError> {
        self.runtime.gpu.bind()?;
        self.issue(&self.works[1..], &self.runtime.convolutions())
    }

    /// Runs piece by piece and tells the milliseconds of each, in the order of `works`. Waits.
    pub fn run_timed(&mut self) -> Result<Vec<f32>, CudaError> {
        let gpu = &self.runtime.gpu;
        let mut events = vec![gpu.event()?];
        events[0].record()?;
        for work in self.works.chunks(1) {
            self.issue(work, &self.runtime.convolutions())?;
            let event = gpu.event()?;
            event.record()?;
            events.push(event);
        }
        gpu.synchronize()?;
        events.windows(2).map(|pair| pair[1].ms_since(&pair[0])).collect()
    }
}
