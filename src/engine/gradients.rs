//! The backward pass: more nodes of the same graph, in reverse order of the forward ones.
//!
//! In:  a forward graph, and the gradient tensors that its detection loss writes.
//! Out: the same graph with backward nodes appended.
//!
//! The gradient of a buffer is a buffer of the same shape, and the gradient of a slice is the same slice of it, so
//! concatenation and channel split need no nodes here either. Every channel of a buffer is produced once, so when the walk
//! meets its producer, all consumers have been met and the gradient is complete.
//!
//! Where convolutions write packed tensors only (see `packed`), the gradient of a value is not one buffer but **pieces**: each
//! consumer writes its own, and the backward node of the producer reads them all and adds them up on the way.
//!
//! Parameters may be **frozen**. Nothing is appended for a node when neither its parameters learn nor anything before it does, so
//! the backward pass ends at the first layer that learns, and no activation before it is kept: the plan sees that nobody reads it.
//!
//! Never computes a number, and never reorders or changes a forward node.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::graph::{DType, Graph, Node, Shape, TensorId};
use super::op::{Act, BnMode, BnParams, Op};
use super::params::ParamId;

/// How the gradients of several consumers of one value come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientStyle {
    /// In one buffer: the first consumer overwrites, later ones add. Least memory.
    Added,
    /// Each consumer writes a packed buffer of its own, and the producer's backward adds them up. Only outputs of
    /// convolutions, whose backward needs one packed gradient, are added up as above.
    Pieces,
}

/// Most pieces of one value that a backward node reads.
pub const MAX_PIECES: usize = 8;

/// Appends the backward nodes of everything that `DetectionLoss` depends on, back to the parameters.
///
/// Gradients of activations live in tensors with the same slices as the activations they belong to. The first writer of a
/// range of channels overwrites, later ones add (`accumulate`), and where a writer meets a range that is only partly
/// written, a `Zero` node fills the rest first. Gradients of parameters always add to the gradient arena.
///
/// # Panics
/// If the graph holds what a training graph never holds: a convolution with activation or residual, a batch norm with
/// running statistics, or nodes of an earlier backward pass.
pub fn append_gradients(graph: &mut Graph, style: GradientStyle) {
    append_gradients_of(graph, style, &|_| true);
}

/// As [`append_gradients`], of those parameters that `learns` names; what only others need is left out. A batch norm between two
/// layers that learn may still add to the gradients of its own parameters when these are frozen.
pub fn append_gradients_of(graph: &mut Graph, style: GradientStyle, learns: &dyn Fn(ParamId) -> bool) {
    let mut seeds = Vec::new();
    for node in &graph.nodes {
        if let Op::DetectionLoss(_) = node.op {
            seeds.extend(node.inputs.iter().copied().zip(node.outputs.iter().copied()).skip(1));
        }
    }
    append_gradients_from(graph, &seeds, &[], style, learns);
}

/// Appends the backward nodes of `seeds`, which are (tensor, its gradient) pairs; a seed's gradient may be added to.
///
/// Returns the gradient of each of `wanted`, which may be inputs of the graph (else, nobody needs their gradients);
/// `None` where no seed depends on it.
pub fn append_gradients_from(
    graph: &mut Graph,
    seeds: &[(TensorId, TensorId)],
    wanted: &[TensorId],
    style: GradientStyle,
    learns: &dyn Fn(ParamId) -> bool,
) -> Vec<Option<TensorId>> {
    let needed = needed_channels(graph, wanted, learns);
    let n_forward = graph.nodes.len();
    let of_conv = graph.nodes.iter().filter(|node| matches!(node.op, Op::Conv { .. })).map(|node| node.outputs[0]).collect();
    let mut walk =
        Walk { graph, gradients: HashMap::new(), pieces: HashMap::new(), slices: HashMap::new(), needed, style, of_conv, learns };
    for &(x, gradient) in seeds {
        walk.seed(x, gradient);
    }
    for index in (0..n_forward).rev() {
        let node = walk.graph.nodes[index].clone();
        walk.append(&node);
    }
    wanted.iter().map(|&x| walk.read_whole(x)).collect()
}

/// Whether a node has parameters that learn.
fn node_learns(op: &Op, learns: &dyn Fn(ParamId) -> bool) -> bool {
    match op {
        Op::Conv { weight, bias, .. } => learns(*weight) || bias.is_some_and(learns),
        Op::BnAct { bns, .. } => bns.iter().any(|bn| learns(bn.gamma) || learns(bn.beta)),
        _ => false,
    }
}

/// For each buffer, which channels lead back to a parameter that learns or to one of `wanted`. By index of the tensor that owns it.
fn needed_channels(graph: &Graph, wanted: &[TensorId], learns: &dyn Fn(ParamId) -> bool) -> Vec<Vec<bool>> {
    let mut needed: Vec<Vec<bool>> = graph.tensors.iter().map(|tensor| vec![false; tensor.shape.c]).collect();
    for &x in wanted {
        let (root, channels) = span(graph, x);
        needed[root.0 as usize][channels].fill(true);
    }
    for node in &graph.nodes {
        let is_needed = node_learns(&node.op, learns)
            || node.inputs.iter().any(|&x| {
                let (root, channels) = span(graph, x);
                needed[root.0 as usize][channels].contains(&true)
            });
        if is_needed {
            for &y in &node.outputs {
                let (root, channels) = span(graph, y);
                needed[root.0 as usize][channels].fill(true);
            }
        }
    }
    needed
}

/// The owner of a tensor's buffer, and the tensor's channels in it.
fn span(graph: &Graph, x: TensorId) -> (TensorId, Range<usize>) {
    let (root, channel) = graph.root(x);
    (root, channel..channel + graph.shape(x).c)
}

/// The gradient of one buffer.
struct BufferGradient {
    tensor: TensorId,
    /// By channel.
    written: Vec<bool>,
}

/// A part of the gradient of one buffer.
#[derive(Clone)]
struct Piece {
    tensor: TensorId,
    /// Of the buffer.
    channels: Range<usize>,
}

struct Walk<'a> {
    graph: &'a mut Graph,
    /// By owner of the buffer: gradients that are added up in place.
    gradients: HashMap<TensorId, BufferGradient>,
    /// By owner of the buffer: gradients that come in pieces.
    pieces: HashMap<TensorId, Vec<Piece>>,
    /// Slices of gradients that exist already: (gradient, first channel, count).
    slices: HashMap<(TensorId, usize, usize), TensorId>,
    needed: Vec<Vec<bool>>,
    style: GradientStyle,
    /// Outputs of convolutions.
    of_conv: HashSet<TensorId>,
    learns: &'a dyn Fn(ParamId) -> bool,
}

impl Walk<'_> {
    /// Whether the gradient of a buffer comes in pieces.
    fn has_pieces(&self, root: TensorId) -> bool {
        self.style == GradientStyle::Pieces && !self.of_conv.contains(&root)
    }

    fn is_needed(&self, x: TensorId) -> bool {
        let (root, channels) = span(self.graph, x);
        self.needed[root.0 as usize][channels].contains(&true)
    }

    /// The pieces of the gradient of `x`, with the channel of `x` where each begins.
    fn pieces(&mut self, x: TensorId) -> Vec<(TensorId, usize)> {
        let (root, channels) = span(self.graph, x);
        let mut found = Vec::new();
        for Piece { tensor, channels: covered } in self.pieces.get(&root).cloned().unwrap_or_default() {
            let common = covered.start.max(channels.start)..covered.end.min(channels.end);
            if common.is_empty() {
                continue;
            }
            let part = self.slice_of(tensor, common.start - covered.start, common.len());
            found.push((part, common.start - channels.start));
        }
        found
    }

    /// The gradients of all outputs of a node, whose sum is the gradient of its value, and where in the value each begins.
    fn read_all(&mut self, node: &Node) -> (Vec<TensorId>, Vec<usize>) {
        let mut all = Vec::new();
        for (&y, &first) in node.outputs.iter().zip(&node.firsts) {
            let (root, _) = span(self.graph, y);
            if self.has_pieces(root) {
                all.extend(self.pieces(y).into_iter().map(|(piece, at)| (piece, first + at)));
            } else {
                all.extend(self.read(y).map(|gradient| (gradient, first)));
            }
        }
        if self.style == GradientStyle::Pieces {
            let shape = Shape { c: self.graph.value_channels(node), ..self.graph.shape(node.outputs[0]) };
            while all.len() > MAX_PIECES {
                let (parts, grads): (Vec<TensorId>, Vec<usize>) = all.drain(..MAX_PIECES).unzip();
                let sum = self.temporary(shape, &node.name);
                self.graph.push(
                    format!("d {}.pieces", node.name),
                    Op::NearestSumBackward { factor: 1, grads, accumulate: false },
                    parts,
                    vec![sum],
                );
                all.push((sum, 0));
            }
        }
        all.into_iter().unzip()
    }

    /// The gradient of `x` in one tensor.
    fn read_whole(&mut self, x: TensorId) -> Option<TensorId> {
        let (root, _) = span(self.graph, x);
        if !self.has_pieces(root) {
            return self.read(x);
        }
        let (parts, grads): (Vec<TensorId>, Vec<usize>) = self.pieces(x).into_iter().unzip();
        if parts.is_empty() {
            return None;
        }
        let shape = self.graph.shape(x);
        let name = self.graph.tensor(x).name.clone();
        Some(self.sum(&parts, &grads, shape, &name))
    }

    /// Takes `gradient` as what the loss gives for `x`.
    fn seed(&mut self, x: TensorId, gradient: TensorId) {
        let (root, channels) = span(self.graph, x);
        if self.has_pieces(root) {
            self.pieces.entry(root).or_default().push(Piece { tensor: gradient, channels });
            return;
        }
        if self.graph.tensor(x).slice_of.is_none() && !self.gradients.contains_key(&x) {
            let written = vec![true; self.graph.shape(x).c];
            self.gradients.insert(x, BufferGradient { tensor: gradient, written });
        } else {
            // The buffer has other gradients too, so this one is added to them.
            self.append_sum(x, &[gradient], &[0], 1, "seed");
        }
    }

    /// The complete gradient of `x` for its producer, or `None` if nothing depends on `x`.
    fn read(&mut self, x: TensorId) -> Option<TensorId> {
        let (root, channels) = span(self.graph, x);
        let gradient = self.gradients.get(&root)?;
        if !gradient.written[channels.clone()].contains(&true) {
            return None;
        }
        self.fill(root, channels.clone());
        Some(self.slice(root, channels))
    }

    /// Where to write a gradient of `x`, and whether to add to what is there. `None` if nobody needs it.
    fn write(&mut self, x: TensorId) -> Option<(TensorId, bool)> {
        let (root, channels) = span(self.graph, x);
        if !self.is_needed(x) {
            return None;
        }
        if self.has_pieces(root) {
            let (name, shape) = (format!("d {}", self.graph.tensor(x).name), self.graph.shape(x));
            let tensor = self.graph.add_tensor(name, shape, DType::Compute);
            self.pieces.entry(root).or_default().push(Piece { tensor, channels });
            return Some((tensor, false));
        }
        if !self.gradients.contains_key(&root) {
            let owner = self.graph.tensor(root);
            let (name, shape, dtype) = (format!("d {}", owner.name), owner.shape, owner.dtype);
            let tensor = self.graph.add_tensor(name, shape, dtype);
            self.gradients.insert(root, BufferGradient { tensor, written: vec![false; shape.c] });
        }
        let written = &mut self.gradients.get_mut(&root).expect("inserted above").written[channels.clone()];
        let accumulate = written.contains(&true);
        if accumulate {
            self.fill(root, channels.clone());
        } else {
            written.fill(true);
        }
        Some((self.slice(root, channels), accumulate))
    }

    /// Zeroes the channels of a buffer's gradient that nothing has been written to.
    fn fill(&mut self, root: TensorId, channels: Range<usize>) {
        let mut first = channels.start;
        while first < channels.end {
            let written = &mut self.gradients.get_mut(&root).expect("only buffers with a gradient are filled").written;
            let count = written[first..channels.end].iter().take_while(|&&written| !written).count();
            if count == 0 {
                first += 1;
                continue;
            }
            written[first..first + count].fill(true);
            let gap = self.slice(root, first..first + count);
            let name = format!("zero {}", self.graph.tensor(gap).name);
            self.graph.push(name, Op::Zero, vec![], vec![gap]);
            first += count;
        }
    }

    /// Channels of a buffer's gradient as a tensor.
    fn slice(&mut self, root: TensorId, channels: Range<usize>) -> TensorId {
        let whole = self.gradients[&root].tensor;
        self.slice_of(whole, channels.start, channels.len())
    }

    /// Channels of a gradient as a tensor.
    fn slice_of(&mut self, whole: TensorId, first: usize, count: usize) -> TensorId {
        if count == self.graph.shape(whole).c {
            return whole;
        }
        let graph = &mut *self.graph;
        *self.slices.entry((whole, first, count)).or_insert_with(|| graph.channels(whole, first, count))
    }

    /// Appends the gradient of `x` as the sum of `d_y` over blocks of `factor` x `factor`.
    fn append_sum(&mut self, x: TensorId, d_y: &[TensorId], grads: &[usize], factor: usize, name: &str) {
        if let Some((d_x, accumulate)) = self.write(x) {
            let op = Op::NearestSumBackward { factor, grads: grads.to_vec(), accumulate };
            self.graph.push(format!("d {name}"), op, d_y.to_vec(), vec![d_x]);
        }
    }

    /// One tensor that holds the sum of `d_y`.
    fn sum(&mut self, d_y: &[TensorId], grads: &[usize], shape: Shape, name: &str) -> TensorId {
        if let [only] = d_y
            && self.graph.shape(*only) == shape
        {
            return *only;
        }
        let sum = self.temporary(shape, name);
        let op = Op::NearestSumBackward { factor: 1, grads: grads.to_vec(), accumulate: false };
        self.graph.push(format!("d {name}"), op, d_y.to_vec(), vec![sum]);
        sum
    }

    fn temporary(&mut self, shape: Shape, name: &str) -> TensorId {
        self.graph.add_tensor(format!("part of d {name}"), shape, DType::Compute)
    }

    /// Appends the backward nodes of one forward node.
    fn append(&mut self, node: &Node) {
        if let Op::BnStats { mode: BnMode::Running, .. } = node.op {
            assert!(
                self.read_whole(node.inputs[0]).is_none(),
                "{} takes running statistics: only a graph with batch statistics can be differentiated",
                node.name
            );
        }
        let (d_y, grads) = self.read_all(node);
        if d_y.is_empty() {
            return;
        }
        let name = format!("d {}", node.name);
        match &node.op {
            // The image needs no gradient; the loss writes its own; statistics are part of `BnAct`'s backward.
            Op::Input | Op::DetectionLoss(_) | Op::BnStats { .. } => {}

            Op::Conv { spec, weight, bias, act } => {
                assert!(*act == Act::None, "{}: a convolution with an activation cannot be differentiated", node.name);
                assert!(node.inputs.len() == 1, "{}: a convolution with a residual cannot be differentiated", node.name);
                let (spec, weight, bias) = (*spec, *weight, *bias);
                let x = node.inputs[0];
                let learns = node_learns(&node.op, self.learns);
                if !learns && !self.is_needed(x) {
                    return;
                }
                let d_y = self.sum(&d_y, &grads, self.graph.shape(node.outputs[0]), &node.name);
                // The weights come first: they are the last to need `x`, whose place the gradient of `x` can then take.
                if learns {
                    self.graph.push(format!("{name}.weight"), Op::ConvBackwardWeight { spec, weight, bias }, vec![x, d_y], vec![]);
                }
                if let Some((d_x, accumulate)) = self.write(x) {
                    self.graph.push(name, Op::ConvBackwardInput { spec, weight, accumulate }, vec![d_y], vec![d_x]);
                }
            }

            Op::BnAct { bns, act, residual } => self.append_bn_act(node, bns, *act, *residual, (d_y, grads)),

            Op::AvgPool2 => {
                if let Some((d_x, accumulate)) = self.write(node.inputs[0]) {
                    self.graph.push(name, Op::AvgPool2Backward { grads, accumulate }, d_y, vec![d_x]);
                }
            }
            Op::MaxPool { kernel, stride, pad } => {
                if let Some((d_x, accumulate)) = self.write(node.inputs[0]) {
                    let op = Op::MaxPoolBackward { kernel: *kernel, stride: *stride, pad: *pad, grads, accumulate };
                    let inputs = [node.inputs[0]].into_iter().chain(d_y).collect();
                    self.graph.push(name, op, inputs, vec![d_x]);
                }
            }
            Op::Upsample2 => {
                if let Some((d_x, accumulate)) = self.write(node.inputs[0]) {
                    self.graph.push(name, Op::Upsample2Backward { grads, accumulate }, d_y, vec![d_x]);
                }
            }
            Op::NearestSum => {
                let out = self.graph.shape(node.outputs[0]);
                for &x in &node.inputs {
                    let factor = out.h / self.graph.shape(x).h;
                    self.append_sum(x, &d_y, &grads, factor, &node.name);
                }
            }

            Op::Decode { .. }
            | Op::Zero
            | Op::ConvBackwardInput { .. }
            | Op::ConvBackwardWeight { .. }
            | Op::BnActBackwardReduce { .. }
            | Op::BnActBackward { .. }
            | Op::AvgPool2Backward { .. }
            | Op::MaxPoolBackward { .. }
            | Op::Upsample2Backward { .. }
            | Op::NearestSumBackward { .. } => panic!("{} cannot be differentiated", node.name),
        }
    }

    /// Takes the pieces of a sum's gradient as pieces of the gradient of a summand `x`, if these are few: reading them again
    /// costs no more than writing and reading their sum.
    fn share_pieces(&mut self, x: TensorId, pieces: &[(TensorId, usize)]) -> bool {
        const FEW: usize = 3;
        let (root, channels) = span(self.graph, x);
        if pieces.len() > FEW || !self.has_pieces(root) || !self.is_needed(x) {
            return false;
        }
        for &(tensor, first) in pieces {
            let start = channels.start + first;
            let channels = start..start + self.graph.shape(tensor).c;
            self.pieces.entry(root).or_default().push(Piece { tensor, channels });
        }
        true
    }

    fn append_bn_act(&mut self, node: &Node, bns: &[BnParams], act: Act, residual: bool, (d_out, grads): (Vec<TensorId>, Vec<usize>)) {
        let name = format!("d {}", node.name);
        let shape = self.graph.shape(node.inputs[0]);
        let branches = || node.inputs[..2 * bns.len()].iter().step_by(2);
        if !node_learns(&node.op, self.learns) && !branches().any(|&y| self.is_needed(y)) {
            // Nothing but the residual leads to something that learns, and its gradient is that of the sum.
            if residual {
                self.append_sum(node.inputs[2 * bns.len()], &d_out, &grads, 1, &node.name);
            }
            return;
        }
        let pieces: Vec<(TensorId, usize)> = d_out.iter().copied().zip(grads.iter().copied()).collect();
        let mut inputs = d_out;
        inputs.extend(&node.inputs[..2 * bns.len()]);

        let sums = self.graph.add_tensor(format!("{name}.sums"), Shape::new(1, 1, 2 * bns.len(), shape.c), DType::F32);
        let op = Op::BnActBackwardReduce { bns: bns.to_vec(), act, grads: grads.clone() };
        self.graph.push(format!("{name}.sums"), op, inputs.clone(), vec![sums]);
        inputs.push(sums);

        // The op overwrites the gradients of the branches. What else a branch's value feeds (never in YOLOv9, where only
        // this batch norm reads it) is added up from a temporary.
        let mut outputs = Vec::new();
        let mut additions = Vec::new();
        let mut n_needed = 0;
        for &y in branches() {
            let destination = self.write(y);
            n_needed += usize::from(destination.is_some());
            match destination {
                Some((d_y, false)) => outputs.push(d_y),
                other => {
                    let part = self.temporary(shape, &node.name);
                    outputs.push(part);
                    additions.extend(other.map(|(d_y, _)| (part, d_y)));
                }
            }
        }
        let mut accumulate_residual = false;
        let mut has_residual = false;
        let shared = residual && self.share_pieces(node.inputs[2 * bns.len()], &pieces);
        if residual
            && !shared
            && let Some((d_residual, accumulate)) = self.write(node.inputs[2 * bns.len()])
        {
            n_needed += 1;
            has_residual = true;
            // A node may not write one place twice.
            if outputs.contains(&d_residual) {
                let part = self.temporary(shape, &node.name);
                outputs.push(part);
                additions.push((part, d_residual));
            } else {
                outputs.push(d_residual);
                accumulate_residual = accumulate;
            }
        }
        if n_needed == 0 {
            return;
        }
        let op = Op::BnActBackward { bns: bns.to_vec(), act, grads, residual: has_residual, accumulate_residual };
        self.graph.push(name.clone(), op, inputs, outputs);
        for (part, gradient) in additions {
            let op = Op::NearestSumBackward { factor: 1, grads: vec![0], accumulate: true };
            self.graph.push(format!("{name}.add"), op, vec![part], vec![gradient]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::op::{BnParams, ConvSpec};
    use crate::engine::params::ParamId;

    const SHAPE: Shape = Shape { n: 1, h: 4, w: 4, c: 8 };

    fn conv(graph: &mut Graph, x: TensorId, out: usize, act: Act) -> TensorId {
        let spec = ConvSpec { kernel: 1, stride: 1, pad: 0, groups: 1, in_channels: graph.shape(x).c, out_channels: out };
        graph.conv("conv", x, spec, ParamId(0), None, act, None)
    }

    /// Appends the gradients of `y`, seeded by an input tensor.
    fn differentiate(graph: &mut Graph, y: TensorId) -> TensorId {
        let seed = graph.input("seed", graph.shape(y), DType::Compute);
        append_gradients_from(graph, &[(y, seed)], &[], GradientStyle::Added, &|_| true);
        seed
    }

    fn backward_names(graph: &Graph) -> Vec<&'static str> {
        graph.nodes.iter().map(|node| node.op.name()).skip_while(|name| !name.contains("backward") && *name != "zero").collect()
    }

    #[test]
    fn the_image_gets_no_gradient_and_the_seed_is_used_in_place() {
        let mut graph = Graph::default();
        let x = graph.input("image", SHAPE, DType::Compute);
        let y = conv(&mut graph, x, 8, Act::None);
        let z = conv(&mut graph, y, 8, Act::None);
        let seed = differentiate(&mut graph, z);
        assert_eq!(backward_names(&graph), ["conv_backward_weight", "conv_backward_input", "conv_backward_weight"]);
        assert!(graph.nodes.iter().any(|node| matches!(node.op, Op::ConvBackwardInput { .. }) && node.inputs == [seed]));
    }

    #[test]
    fn the_first_reader_met_overwrites_and_the_next_adds() {
        let mut graph = Graph::default();
        let x = graph.input("image", SHAPE, DType::Compute);
        let y = conv(&mut graph, x, 8, Act::None);
        let a = conv(&mut graph, y, 4, Act::None);
        let b = conv(&mut graph, y, 4, Act::None);
        let joined = graph.concat("joined", &[a, b]);
        differentiate(&mut graph, joined);
        let flags: Vec<bool> = graph
            .nodes
            .iter()
            .filter_map(|node| if let Op::ConvBackwardInput { accumulate, .. } = node.op { Some(accumulate) } else { None })
            .collect();
        assert_eq!(flags, [false, true]);
    }

    #[test]
    fn channels_that_nobody_has_written_are_zeroed_before_others_are_added_to() {
        let mut graph = Graph::default();
        let x = graph.input("image", SHAPE, DType::Compute);
        let y = conv(&mut graph, x, 8, Act::None);
        let a = conv(&mut graph, y, 4, Act::None);
        let half = graph.channels(y, 4, 4);
        let b = conv(&mut graph, half, 4, Act::None);
        let joined = graph.concat("joined", &[a, b]);
        differentiate(&mut graph, joined);
        let zeros: Vec<usize> = graph
            .nodes
            .iter()
            .filter(|node| node.op == Op::Zero)
            .map(|node| graph.root(node.outputs[0]).1 * 100 + graph.shape(node.outputs[0]).c)
            .collect();
        assert_eq!(zeros, [4], "channels 0..4");
    }

    #[test]
    fn what_no_loss_depends_on_gets_no_backward() {
        let mut graph = Graph::default();
        let x = graph.input("image", SHAPE, DType::Compute);
        let y = conv(&mut graph, x, 8, Act::None);
        conv(&mut graph, y, 8, Act::Silu);
        differentiate(&mut graph, y);
        assert_eq!(backward_names(&graph), ["conv_backward_weight"]);
    }

    #[test]
    fn running_statistics_are_refused_with_a_reason() {
        let mut graph = Graph::default();
        let x = graph.input("image", SHAPE, DType::Compute);
        let y = conv(&mut graph, x, 8, Act::None);
        let bn = BnParams { gamma: ParamId(0), beta: ParamId(0), running_mean: ParamId(0), running_var: ParamId(0) };
        let z = graph.bn_act("layer", &[(y, bn)], BnMode::Running, Act::Silu, None);
        let panic = std::panic::catch_unwind(move || differentiate(&mut graph, z)).expect_err("refused");
        let message = panic.downcast_ref::<String>().expect("a text");
        assert!(message.contains("layer.stats takes running statistics"), "{message}");
    }
}
