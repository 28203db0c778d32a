//! The blocks that the layer tables name, as graph nodes and the parameters they need.
//!
//! In:  a layer table, and either nothing (the parameters are declared) or a parameter table (they are looked up).
//! Out: the forward graph, and the rows of the parameter table.
//!
//! One function a block serves both purposes and both forms: in train form a `Conv` is a convolution and a batch norm, in
//! deploy form a convolution with bias and fused activation. Channel splits and concatenations are views, not nodes.
//!
//! Source: the project's YOLOv9 specification, section 1; names of parameters as upstream.

use std::collections::HashMap;

use super::joined::JOINED;
use super::network::{Form, Head, NetworkGraph};
use super::variant::{Block, Row};
use crate::engine::graph::{DType, Graph, Shape, TensorId};
use crate::engine::op::{Act, BnMode, BnParams, ConvSpec};
use crate::engine::params::{ParamId, ParamKind, ParamSpec, Params};

/// Bins a side of the box distribution.
pub const REG_MAX: usize = 16;
/// Input pixels per cell of P3, P4, P5.
pub const STRIDES: [usize; 3] = [8, 16, 32];

/// Hidden widths of one head: of the regression branch and of the class branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadWidths {
    pub reg: usize,
    pub cls: usize,
}

impl HeadWidths {
    /// The published rule; both come from the channels of P3 alone.
    pub fn published(p3_channels: usize, n_classes: usize) -> Self {
        let reg = (p3_channels / 4).max(64).max(REG_MAX).next_multiple_of(4);
        Self { reg, cls: p3_channels.max((2 * n_classes).min(128)) }
    }
}

/// The parameters of a network of these rows, in upstream's order. `widths` of the heads in the order that the head reads
/// them; `None` is the published rule.
pub(super) fn declare(rows: &[Row], form: Form, n_classes: usize, widths: Option<&[HeadWidths]>) -> Vec<ParamSpec> {
    // Any input will do: parameters do not depend on its size.
    let shape = Shape::new(1, 32, 32, 3);
    let mut builder = Builder::new(ParamSource::Declare(Vec::new()), form, BnMode::Running);
    builder.network(rows, shape, n_classes, widths);
    let ParamSource::Declare(mut specs) = builder.source else { unreachable!("the source was made above") };
    specs.sort_by(|a, b| order_key(&a.name).cmp(&order_key(&b.name)));
    specs
}

/// The forward graph over parameters that `declare` listed.
///
/// # Panics
/// If a parameter is missing or has another shape.
pub(super) fn build(rows: &[Row], form: Form, n_classes: usize, params: &Params, shape: Shape, bn: BnMode) -> NetworkGraph {
    let by_name = params.ids().map(|id| (params.spec(id).name.as_str(), id)).collect();
    let mut builder = Builder::new(ParamSource::Lookup { params, by_name }, form, bn);
    builder.network(rows, shape, n_classes, None)
}

/// Upstream lists parameters in the order in which modules define their members, which is not the order of computation.
/// Compared name part by name part: numbers by value, words by the rank of their first definition.
fn order_key(name: &str) -> Vec<(usize, &str)> {
    const DEFINED: [&str; 6] = ["conv", "bn", "weight", "bias", "running_mean", "running_var"];
    fn key(part: &str) -> (usize, &str) {
        match DEFINED.iter().position(|&word| word == part) {
            Some(rank) => (rank, ""),
            None => part.parse().map_or((DEFINED.len(), part), |number| (number, "")),
        }
    }
    name.split('.').map(key).collect()
}

enum ParamSource<'a> {
    Declare(Vec<ParamSpec>),
    Lookup { params: &'a Params, by_name: HashMap<&'a str, ParamId> },
}

struct Builder<'a> {
    source: ParamSource<'a>,
    form: Form,
    bn: BnMode,
    graph: Graph,
}

/// What a convolution is, besides its input.
#[derive(Clone, Copy)]
struct Conv {
    out: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
}

/// Stride 1, one group.
fn conv(out: usize, kernel: usize) -> Conv {
    Conv { out, kernel, stride: 1, groups: 1 }
}

impl<'a> Builder<'a> {
    fn new(source: ParamSource<'a>, form: Form, bn: BnMode) -> Self {
        Self { source, form, bn, graph: Graph::default() }
    }

    fn network(&mut self, rows: &[Row], shape: Shape, n_classes: usize, widths: Option<&[HeadWidths]>) -> NetworkGraph {
        let input = self.graph.input("images", shape, DType::Compute);
        let mut layers: Vec<Vec<TensorId>> = Vec::with_capacity(rows.len());
        let mut heads = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let name = format!("model.{index}");
            let from: Vec<&[TensorId]> = row.from.iter().map(|&source| layers[source].as_slice()).collect();
            // Every block but CbFuse reads tensors, not lists.
            let first: Vec<TensorId> = from.iter().map(|list| list[0]).collect();
            let x = first.first().copied().unwrap_or(input);
            let outputs = match &row.block {
                Block::Silence => vec![x],
                &Block::Conv { out } => vec![self.conv(&name, x, Conv { stride: 2, ..conv(out, 3) }, None)],
                &Block::Elan1 { out, split, inner } => vec![self.elan1(&name, x, out, split, inner)],
                &Block::AConv { out } => vec![self.aconv(&name, x, out)],
                &Block::ADown { out } => vec![self.adown(&name, x, out)],
                &Block::RepNcspElan4 { out, split, inner, depth } => vec![self.rep_ncsp_elan4(&name, x, out, split, inner, depth)],
                &Block::Sppelan { out, hidden } => vec![self.sppelan(&name, x, out, hidden)],
                Block::Upsample => vec![self.graph.upsample2(&name, x)],
                Block::Concat => vec![self.graph.concat(&name, &first)],
                Block::CbLinear(widths) => self.cb_linear(&name, x, widths),
                Block::CbFuse(picks) => {
                    let small: Vec<TensorId> = picks.iter().zip(&from).map(|(&pick, list)| list[pick]).collect();
                    vec![self.graph.nearest_sum(&name, &small, first[picks.len()])]
                }
                Block::Detect => {
                    heads = self.detect(&name, &first, n_classes, widths);
                    vec![]
                }
            };
            layers.push(outputs);
        }
        let main = heads.pop().expect("a layer table ends with a head");
        NetworkGraph { graph: std::mem::take(&mut self.graph), input, main, aux: heads.pop(), layers }
    }

    /// The parameter `name`, declared or looked up.
    fn param(&mut self, name: String, kind: ParamKind, dims: &[usize]) -> ParamId {
        match &mut self.source {
            ParamSource::Declare(specs) => {
                specs.push(ParamSpec { name, kind, dims: dims.to_vec() });
                ParamId(specs.len() as u32 - 1)
            }
            ParamSource::Lookup { params, by_name } => {
                let Some(&id) = by_name.get(name.as_str()) else { panic!("the network has no parameter {name}") };
                assert_eq!(params.spec(id).dims, dims, "shape of {name}");
                id
            }
        }
    }

    fn spec(&self, x: TensorId, conv: Conv) -> ConvSpec {
        let Conv { out, kernel, stride, groups } = conv;
        ConvSpec { kernel, stride, pad: kernel / 2, groups, in_channels: self.graph.shape(x).c, out_channels: out }
    }

    fn weight(&mut self, name: &str, spec: ConvSpec) -> ParamId {
        let dims = [spec.out_channels, spec.kernel, spec.kernel, spec.in_channels / spec.groups];
        self.param(format!("{name}.weight"), ParamKind::ConvWeight, &dims)
    }

    /// A convolution with bias and no batch norm, in both forms; `name` is that of the convolution itself.
    fn biased_conv(&mut self, name: &str, x: TensorId, conv: Conv, act: Act, residual: Option<TensorId>) -> TensorId {
        let spec = self.spec(x, conv);
        let weight = self.weight(name, spec);
        let bias = self.param(format!("{name}.bias"), ParamKind::ConvBias, &[conv.out]);
        self.graph.conv(name, x, spec, weight, Some(bias), act, residual)
    }

    /// A bare convolution and the batch norm that belongs to it.
    fn conv_bn(&mut self, name: &str, x: TensorId, conv: Conv) -> (TensorId, BnParams) {
        let spec = self.spec(x, conv);
        let conv_name = format!("{name}.conv");
        let weight = self.weight(&conv_name, spec);
        let y = self.graph.conv(&conv_name, x, spec, weight, None, Act::None, None);
        let mut vector = |part, kind| self.param(format!("{name}.bn.{part}"), kind, &[conv.out]);
        let bn = BnParams {
            gamma: vector("weight", ParamKind::BnGamma),
            beta: vector("bias", ParamKind::BnBeta),
            running_mean: vector("running_mean", ParamKind::BnMean),
            running_var: vector("running_var", ParamKind::BnVar),
        };
        (y, bn)
    }

    /// `Conv`: convolution, batch norm, SiLU; plus a residual.
    fn conv(&mut self, name: &str, x: TensorId, conv: Conv, residual: Option<TensorId>) -> TensorId {
        match self.form {
            Form::Train => {
                let branch = self.conv_bn(name, x, conv);
                self.graph.bn_act(name, &[branch], self.bn, Act::Silu, residual)
            }
            Form::Deploy => self.biased_conv(&format!("{name}.conv"), x, conv, Act::Silu, residual),
        }
    }

    /// `RepConvN`: the sum of a 3x3 and a 1x1 branch, activated. There is no identity branch.
    fn rep_conv(&mut self, name: &str, x: TensorId, out: usize) -> TensorId {
        match self.form {
            Form::Train => {
                let branches =
                    [self.conv_bn(&format!("{name}.conv1"), x, conv(out, 3)), self.conv_bn(&format!("{name}.conv2"), x, conv(out, 1))];
                self.graph.bn_act(name, &branches, self.bn, Act::Silu, None)
            }
            Form::Deploy => self.biased_conv(&format!("{name}.conv"), x, conv(out, 3), Act::Silu, None),
        }
    }

    /// The two convolutions that begin a `RepNCSP`: as one where the parameters are joined (`joined`).
    fn pair(&mut self, name: &str, x: TensorId, hidden: usize) -> (TensorId, TensorId) {
        let joined = format!("{name}.{JOINED}");
        let is_joined = match &self.source {
            ParamSource::Declare(_) => false,
            ParamSource::Lookup { by_name, .. } => by_name.contains_key(format!("{joined}.conv.weight").as_str()),
        };
        if is_joined {
            let both = self.conv(&joined, x, conv(2 * hidden, 1), None);
            return (self.graph.channels(both, 0, hidden), self.graph.channels(both, hidden, hidden));
        }
        let path = self.conv(&format!("{name}.cv1"), x, conv(hidden, 1), None);
        (path, self.conv(&format!("{name}.cv2"), x, conv(hidden, 1), None))
    }

    /// `depth` residual bottlenecks beside a bypass; each has half of `out` channels.
    fn rep_ncsp(&mut self, name: &str, x: TensorId, out: usize, depth: usize) -> TensorId {
        let hidden = out / 2;
        let (mut path, bypass) = self.pair(name, x, hidden);
        for index in 0..depth {
            let name = format!("{name}.m.{index}");
            let inner = self.rep_conv(&format!("{name}.cv1"), path, hidden);
            path = self.conv(&format!("{name}.cv2"), inner, conv(hidden, 3), Some(path));
        }
        let both = self.graph.concat(format!("{name}.cat"), &[path, bypass]);
        self.conv(&format!("{name}.cv3"), both, conv(out, 1), None)
    }

    fn rep_ncsp_elan4(&mut self, name: &str, x: TensorId, out: usize, split: usize, inner: usize, depth: usize) -> TensorId {
        let halves = self.conv(&format!("{name}.cv1"), x, conv(split, 1), None);
        let second = self.graph.channels(halves, split / 2, split / 2);
        let mut step = |cv: &str, x| {
            let y = self.rep_ncsp(&format!("{name}.{cv}.0"), x, inner, depth);
            self.conv(&format!("{name}.{cv}.1"), y, conv(inner, 3), None)
        };
        let v = step("cv2", second);
        let w = step("cv3", v);
        let all = self.graph.concat(format!("{name}.cat"), &[halves, v, w]);
        self.conv(&format!("{name}.cv4"), all, conv(out, 1), None)
    }

    fn elan1(&mut self, name: &str, x: TensorId, out: usize, split: usize, inner: usize) -> TensorId {
        let halves = self.conv(&format!("{name}.cv1"), x, conv(split, 1), None);
        let second = self.graph.channels(halves, split / 2, split / 2);
        let v = self.conv(&format!("{name}.cv2"), second, conv(inner, 3), None);
        let w = self.conv(&format!("{name}.cv3"), v, conv(inner, 3), None);
        let all = self.graph.concat(format!("{name}.cat"), &[halves, v, w]);
        self.conv(&format!("{name}.cv4"), all, conv(out, 1), None)
    }

    fn aconv(&mut self, name: &str, x: TensorId, out: usize) -> TensorId {
        let mean = self.graph.avg_pool2(&format!("{name}.pool"), x);
        self.conv(&format!("{name}.cv1"), mean, Conv { stride: 2, ..conv(out, 3) }, None)
    }

    fn adown(&mut self, name: &str, x: TensorId, out: usize) -> TensorId {
        let mean = self.graph.avg_pool2(&format!("{name}.pool"), x);
        let half = self.graph.shape(x).c / 2;
        let first = self.graph.channels(mean, 0, half);
        let second = self.graph.channels(mean, half, half);
        let a = self.conv(&format!("{name}.cv1"), first, Conv { stride: 2, ..conv(out / 2, 3) }, None);
        let peak = self.graph.max_pool(&format!("{name}.max"), second, 3, 2, 1);
        let b = self.conv(&format!("{name}.cv2"), peak, conv(out / 2, 1), None);
        self.graph.concat(name, &[a, b])
    }

    fn sppelan(&mut self, name: &str, x: TensorId, out: usize, hidden: usize) -> TensorId {
        let mut parts = vec![self.conv(&format!("{name}.cv1"), x, conv(hidden, 1), None)];
        for pool in ["cv2", "cv3", "cv4"] {
            parts.push(self.graph.max_pool(&format!("{name}.{pool}"), parts[parts.len() - 1], 5, 1, 2));
        }
        let all = self.graph.concat(format!("{name}.cat"), &parts);
        self.conv(&format!("{name}.cv5"), all, conv(out, 1), None)
    }

    /// One 1x1 convolution, its output as a list of channel slices.
    fn cb_linear(&mut self, name: &str, x: TensorId, widths: &[usize]) -> Vec<TensorId> {
        let y = self.biased_conv(&format!("{name}.conv"), x, conv(widths.iter().sum(), 1), Act::None, None);
        if widths.len() == 1 {
            return vec![y];
        }
        let mut channel = 0;
        let slice = |&width: &usize| {
            channel += width;
            self.graph.channels(y, channel - width, width)
        };
        widths.iter().map(slice).collect()
    }

    /// The heads, auxiliary first. `from` has three levels for each.
    fn detect(&mut self, name: &str, from: &[TensorId], n_classes: usize, widths: Option<&[HeadWidths]>) -> Vec<Head> {
        from.chunks(STRIDES.len())
            .enumerate()
            .map(|(head, levels)| {
                let names = head_branches(name, head);
                let widths = match (widths, &self.source) {
                    (Some(widths), _) => widths[head],
                    (None, ParamSource::Declare(_)) => HeadWidths::published(self.graph.shape(levels[0]).c, n_classes),
                    (None, ParamSource::Lookup { params, by_name }) => {
                        let width = |branch: &str| {
                            let name = format!("{branch}.0.0.conv.weight");
                            let Some(&id) = by_name.get(name.as_str()) else { panic!("the network has no parameter {name}") };
                            params.spec(id).dims[0]
                        };
                        HeadWidths { reg: width(&names[0]), cls: width(&names[1]) }
                    }
                };
                let [reg, cls] = names;
                let level = |(level, &x)| {
                    let reg = self.head_branch(&format!("{reg}.{level}"), x, widths.reg, 4 * REG_MAX, 4);
                    let cls = self.head_branch(&format!("{cls}.{level}"), x, widths.cls, n_classes, 1);
                    (reg, cls)
                };
                Head { levels: levels.iter().enumerate().map(level).collect() }
            })
            .collect()
    }

    /// `groups` is 4 in the regression branch: each side of the box has its own quarter of the channels.
    fn head_branch(&mut self, name: &str, x: TensorId, hidden: usize, out: usize, groups: usize) -> TensorId {
        let y = self.conv(&format!("{name}.0"), x, conv(hidden, 3), None);
        let y = self.conv(&format!("{name}.1"), y, Conv { groups, ..conv(hidden, 3) }, None);
        self.biased_conv(&format!("{name}.2"), y, Conv { groups, ..conv(out, 1) }, Act::None, None)
    }
}

/// Names of the regression and class branch of head number `head` (in the order that the head row reads its levels).
pub(super) fn head_branches(row: &str, head: usize) -> [String; 2] {
    [format!("{row}.cv{}", 2 + 2 * head), format!("{row}.cv{}", 3 + 2 * head)]
}
