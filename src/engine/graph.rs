//! The static graph: nodes in the order they run, and the tensors they read and write.
//!
//! A tensor is a **view**: it either owns its buffer or is a range of channels of another tensor. Concatenation and
//! channel split are therefore no nodes: `concat` makes the producers of its parts write into slices of one buffer (and, where
//! a part already lives elsewhere, makes its producer write a second copy); `channels` names a slice.
//!
//! All activations are NHWC. Vectors and tables use (1, 1, rows, columns).

use super::op::{Act, BnMode, BnParams, ConvSpec, LOSS_ITEMS, LossSpec, Op};
use super::params::ParamId;

/// Index of a tensor in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub u32);

/// Batch, height, width, channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub n: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
}

impl Shape {
    pub fn new(n: usize, h: usize, w: usize, c: usize) -> Self {
        Self { n, h, w, c }
    }

    /// Pixels of the whole batch.
    pub fn n_pixels(&self) -> usize {
        self.n * self.h * self.w
    }

    pub fn len(&self) -> usize {
        self.n_pixels() * self.c
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Number format of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// Activations and their gradients: f32 on the CPU, bf16 (or fp16) on CUDA.
    Compute,
    /// Statistics, losses, boxes: f32 everywhere.
    F32,
}

/// A value of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub shape: Shape,
    pub dtype: DType,
    /// `Some((parent, channel))`: this is channels `channel..channel + shape.c` of the parent.
    pub slice_of: Option<(TensorId, usize)>,
}

/// One step of the computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<TensorId>,
    pub outputs: Vec<TensorId>,
    /// By output, where it begins in the node's value, in channels: 0 but for copies of a part of the value, which come last.
    pub firsts: Vec<usize>,
    pub name: String,
}

/// Nodes in the order they run. Building appends; nothing is ever reordered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub tensors: Vec<Tensor>,
}

impl Graph {
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    pub fn shape(&self, id: TensorId) -> Shape {
        self.tensor(id).shape
    }

    /// The tensor that owns the buffer of `id`, and the channel of that tensor where `id` begins.
    pub fn root(&self, id: TensorId) -> (TensorId, usize) {
        let (mut root, mut channel) = (id, 0);
        while let Some((parent, offset)) = self.tensor(root).slice_of {
            root = parent;
            channel += offset;
        }
        (root, channel)
    }

    /// Appends a tensor that owns its buffer.
    pub fn add_tensor(&mut self, name: impl Into<String>, shape: Shape, dtype: DType) -> TensorId {
        self.tensors.push(Tensor { name: name.into(), shape, dtype, slice_of: None });
        TensorId(self.tensors.len() as u32 - 1)
    }

    /// Channels `channel..channel + count` of `of`, as a tensor.
    pub fn channels(&mut self, of: TensorId, channel: usize, count: usize) -> TensorId {
        let parent = self.tensor(of);
        assert!(channel + count <= parent.shape.c, "channels {channel}..{} of {} in {}", channel + count, parent.shape.c, parent.name);
        let tensor = Tensor {
            name: format!("{}[{channel}..{}]", parent.name, channel + count),
            shape: Shape { c: count, ..parent.shape },
            dtype: parent.dtype,
            slice_of: Some((of, channel)),
        };
        self.tensors.push(tensor);
        TensorId(self.tensors.len() as u32 - 1)
    }

    /// Appends a node.
    pub fn push(&mut self, name: impl Into<String>, op: Op, inputs: Vec<TensorId>, outputs: Vec<TensorId>) {
        let firsts = vec![0; outputs.len()];
        self.nodes.push(Node { op, inputs, outputs, firsts, name: name.into() });
    }

    /// The concatenation of `parts` along channels, without copying: each part becomes a slice of the result.
    ///
    /// A part that is already a slice (of an earlier concatenation, or of a split) stays where it is, and the node that
    /// produces it writes the result's slice as one more output of the same value.
    ///
    /// # Panics
    /// If parts differ in batch, height or width, or no single node writes all of a part.
    pub fn concat(&mut self, name: impl Into<String>, parts: &[TensorId]) -> TensorId {
        let first = self.shape(parts[0]);
        let c = parts.iter().map(|&part| self.shape(part).c).sum();
        let dtype = self.tensor(parts[0]).dtype;
        let whole = self.add_tensor(name, Shape { c, ..first }, dtype);

        let mut channel = 0;
        for &part in parts {
            let shape = self.shape(part);
            assert_eq!((shape.n, shape.h, shape.w), (first.n, first.h, first.w), "parts of {} differ in size", self.tensor(whole).name);
            if self.tensor(part).slice_of.is_none() {
                self.tensors[part.0 as usize].slice_of = Some((whole, channel));
            } else {
                let copy = self.channels(whole, channel, shape.c);
                self.add_copy(part, copy);
            }
            channel += shape.c;
        }
        whole
    }

    /// Makes the node that writes `of` write `copy`, too.
    ///
    /// # Panics
    /// If no single node writes all channels of `of`.
    pub fn add_copy(&mut self, of: TensorId, copy: TensorId) {
        let ((root, channel), count) = (self.root(of), self.shape(of).c);
        let covering = |node: &Node| {
            node.outputs.iter().position(|&y| {
                let (owner, start) = self.root(y);
                owner == root && start <= channel && channel + count <= start + self.shape(y).c
            })
        };
        let found = self.nodes.iter().enumerate().rev().find_map(|(index, node)| Some((index, covering(node)?)));
        let Some((index, output)) = found else { panic!("no single node writes all of {}", self.tensor(of).name) };
        let node = &self.nodes[index];
        let first = node.firsts[output] + channel - self.root(node.outputs[output]).1;
        let n_channels = self.value_channels(node);
        // Parts of the value come after its whole copies.
        let n_whole = node.outputs.iter().filter(|&&id| self.shape(id).c == n_channels).count();
        let place = if count == n_channels { n_whole } else { node.outputs.len() };
        let node = &mut self.nodes[index];
        node.outputs.insert(place, copy);
        node.firsts.insert(place, first);
    }

    /// Channels of the value whose places and parts a node's outputs are.
    pub fn value_channels(&self, node: &Node) -> usize {
        match &node.op {
            Op::Conv { spec, .. } => spec.out_channels,
            Op::BnAct { .. } => self.shape(node.inputs[0]).c,
            _ => self.shape(node.outputs[0]).c,
        }
    }

    /// A value that the caller fills in before each step.
    pub fn input(&mut self, name: &str, shape: Shape, dtype: DType) -> TensorId {
        let id = self.add_tensor(name, shape, dtype);
        self.push(name, Op::Input, vec![], vec![id]);
        id
    }

    /// Convolution with optional bias, activation, and residual added after the activation.
    pub fn conv(
        &mut self,
        name: &str,
        x: TensorId,
        spec: ConvSpec,
        weight: ParamId,
        bias: Option<ParamId>,
        act: Act,
        residual: Option<TensorId>,
    ) -> TensorId {
        let shape = self.shape(x);
        assert_eq!(shape.c, spec.in_channels, "channels into {name}");
        let out = Shape { h: spec.out_side(shape.h), w: spec.out_side(shape.w), c: spec.out_channels, ..shape };
        let y = self.add_tensor(name, out, DType::Compute);
        let inputs = std::iter::once(x).chain(residual).collect();
        self.push(name, Op::Conv { spec, weight, bias, act }, inputs, vec![y]);
        y
    }

    /// Batch norm of one or two convolution outputs, their sum activated, plus a residual.
    pub fn bn_act(
        &mut self,
        name: &str,
        branches: &[(TensorId, BnParams)],
        mode: BnMode,
        act: Act,
        residual: Option<TensorId>,
    ) -> TensorId {
        let shape = self.shape(branches[0].0);
        let mut inputs = Vec::with_capacity(branches.len() * 2 + 1);
        for &(y, bn) in branches {
            assert_eq!(self.shape(y), shape, "branches of {name}");
            let stats = self.add_tensor(format!("{name}.stats"), Shape::new(1, 1, 2, shape.c), DType::F32);
            self.push(format!("{name}.stats"), Op::BnStats { bn, mode }, vec![y], vec![stats]);
            inputs.extend([y, stats]);
        }
        inputs.extend(residual);
        let out = self.add_tensor(name, shape, DType::Compute);
        let bns = branches.iter().map(|&(_, bn)| bn).collect();
        self.push(name, Op::BnAct { bns, act, residual: residual.is_some() }, inputs, vec![out]);
        out
    }

    pub fn avg_pool2(&mut self, name: &str, x: TensorId) -> TensorId {
        let shape = self.shape(x);
        self.unary(name, x, Op::AvgPool2, Shape { h: shape.h - 1, w: shape.w - 1, ..shape })
    }

    pub fn max_pool(&mut self, name: &str, x: TensorId, kernel: usize, stride: usize, pad: usize) -> TensorId {
        let shape = self.shape(x);
        let side = |side: usize| (side + 2 * pad - kernel) / stride + 1;
        self.unary(name, x, Op::MaxPool { kernel, stride, pad }, Shape { h: side(shape.h), w: side(shape.w), ..shape })
    }

    pub fn upsample2(&mut self, name: &str, x: TensorId) -> TensorId {
        let shape = self.shape(x);
        self.unary(name, x, Op::Upsample2, Shape { h: shape.h * 2, w: shape.w * 2, ..shape })
    }

    fn unary(&mut self, name: &str, x: TensorId, op: Op, shape: Shape) -> TensorId {
        let y = self.add_tensor(name, shape, DType::Compute);
        self.push(name, op, vec![x], vec![y]);
        y
    }

    /// `x` plus each of `small` enlarged to `x`'s size.
    pub fn nearest_sum(&mut self, name: &str, small: &[TensorId], x: TensorId) -> TensorId {
        let y = self.add_tensor(name, self.shape(x), DType::Compute);
        let inputs = small.iter().copied().chain([x]).collect();
        self.push(name, Op::NearestSum, inputs, vec![y]);
        y
    }

    /// Boxes and scores of one head; `levels` are (reg, cls) pairs. Shape (B, 1, N, 4 + nc).
    pub fn decode(&mut self, name: &str, levels: &[(TensorId, TensorId)], strides: &[usize], reg_max: usize) -> TensorId {
        let batch = self.shape(levels[0].0).n;
        let n_anchors = levels.iter().map(|&(reg, _)| self.shape(reg).h * self.shape(reg).w).sum();
        let n_classes = self.shape(levels[0].1).c;
        let out = self.add_tensor(name, Shape::new(batch, 1, n_anchors, 4 + n_classes), DType::F32);
        let inputs = levels.iter().flat_map(|&(reg, cls)| [reg, cls]).collect();
        self.push(name, Op::Decode { strides: strides.to_vec(), reg_max }, inputs, vec![out]);
        out
    }

    /// The detection loss of all heads. `heads[h][l]` is (reg, cls). Returns `items`.
    pub fn detection_loss(&mut self, name: &str, truth: TensorId, heads: &[Vec<(TensorId, TensorId)>], spec: LossSpec) -> TensorId {
        let items = self.add_tensor(format!("{name}.items"), Shape::new(1, 1, 1, LOSS_ITEMS), DType::F32);
        let mut inputs = vec![truth];
        let mut outputs = vec![items];
        for &(reg, cls) in heads.iter().flatten() {
            for x in [reg, cls] {
                inputs.push(x);
                let grad = self.add_tensor(format!("d {}", self.tensor(x).name), self.shape(x), DType::Compute);
                outputs.push(grad);
            }
        }
        self.push(name, Op::DetectionLoss(spec), inputs, outputs);
        items
    }
}
