//! A network: model, class count, form and parameters; and its graph for one input shape.
//!
//! A new network is in train form. `to_single` drops the auxiliary branch, `to_deploy` also folds batch norms and merges
//! the branches of each RepConv; the detector stays the same. Graphs take every width from the parameters.
//!
//! Runs nothing and reads no files. Source: the project's YOLOv9 specification, sections 2 to 5.

use super::blocks;
use super::blocks::HeadWidths;
use super::blocks::REG_MAX;
use super::blocks::STRIDES;
use super::init;
use super::variant::Model;
use crate::engine::graph::{DType, Graph, Shape, TensorId};
use crate::engine::op::{BN_EPS, BnMode, LossSpec};
use crate::engine::params::{ParamId, ParamSpec, Params};

/// How the parameters are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As trained: batch norms, two branches in each RepConv, the auxiliary branch if the model has one.
    Train,
    /// Batch norms folded and RepConv merged; only the main branch (a `gelan-*` network).
    Deploy,
}

/// A network with its parameters.
#[derive(Clone, Debug)]
pub struct Network {
    pub model: Model,
    pub form: Form,
    pub n_classes: usize,
    /// Names as upstream (`model.0.conv.weight`).
    pub params: Params,
}

/// Distribution and class logits of one head, P3 to P5: (reg, cls), shapes (B, H, W, 64) and (B, H, W, nc).
#[derive(Clone, Debug)]
pub struct Head {
    pub levels: Vec<(TensorId, TensorId)>,
}

/// The graph of a network for one input shape.
#[derive(Clone, Debug)]
pub struct NetworkGraph {
    pub graph: Graph,
    /// (B, H, W, 3), RGB, 0 to 1.
    pub input: TensorId,
    pub main: Head,
    /// The auxiliary head, in dual models and train form.
    pub aux: Option<Head>,
    /// The outputs of each row of the layer table, for inspection (a CBLinear has several, the head none).
    pub layers: Vec<Vec<TensorId>>,
}

/// What a graph with a loss reads and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossTensors {
    /// (B, 1, G, 5): class, x1, y1, x2, y2 in input pixels; a row that pads has class -1.
    pub truth: TensorId,
    /// (1, 1, 1, 4): box, cls, dfl, and the loss that is differentiated.
    pub items: TensorId,
}

impl Network {
    /// A new network in train form, with published initial values drawn from `seed`.
    pub fn new(model: Model, n_classes: usize, seed: u64) -> Self {
        let mut params = table(param_specs(model, Form::Train, n_classes, None));
        init::fill(&mut params, &head_name(model), n_classes, seed);
        Self { model, form: Form::Train, n_classes, params }
    }

    /// Lets a new network start with boxes of about this side (input pixels); published networks start with 15 cells.
    pub fn start_with_boxes_of(&mut self, side: f32) {
        init::fill_box_side(&mut self.params, &head_name(self.model), side);
    }

    /// The forward graph. `bn` says where batch norms of the train form take their statistics; a deploy form has none.
    ///
    /// # Panics
    /// If a side of the input is no positive multiple of 32, or a parameter is missing.
    pub fn graph(&self, batch: usize, height: usize, width: usize, bn: BnMode) -> NetworkGraph {
        let coarsest = STRIDES[STRIDES.len() - 1];
        let fits = |side: usize| side > 0 && side.is_multiple_of(coarsest);
        assert!(fits(height) && fits(width), "an input of {width}x{height} is no multiple of {coarsest}");
        let shape = Shape::new(batch, height, width, 3);
        blocks::build(&self.model.rows(self.n_classes), self.form, self.n_classes, &self.params, shape, bn)
    }

    /// The same detector without the auxiliary branch: a `gelan-*` network in the same form. Only names change.
    #[must_use]
    pub fn to_single(&self) -> Self {
        if !self.model.dual {
            return self.clone();
        }
        let model = Model::single(self.model.size);
        let widths = self.head_widths();
        let mut params = table(param_specs(model, self.form, self.n_classes, Some(&widths[1..])));
        for id in self.params.ids() {
            if let Some(name) = single_name(self.model, &self.params.spec(id).name) {
                let target = params.find(&name).expect("the single model has every parameter of the main branch");
                params.get_mut(target).copy_from_slice(self.params.get(id));
            }
        }
        Self { model, params, ..*self }
    }

    /// The same detector in deploy form: auxiliary branch dropped, RepConv merged, batch norms folded.
    #[must_use]
    pub fn to_deploy(&self) -> Self {
        if self.form == Form::Deploy {
            return self.clone();
        }
        let single = self.to_single();
        let widths = single.head_widths();
        let mut params = table(param_specs(single.model, Form::Deploy, single.n_classes, Some(&widths)));
        let ids: Vec<ParamId> = params.ids().collect();
        for id in ids {
            let name = params.spec(id).name.clone();
            // Weight and bias of a folded convolution are made together.
            if let Some(block) = name.strip_suffix(".conv.weight").filter(|block| single.has_bn(block)) {
                let (weight, bias) = single.folded(block);
                params.get_mut(id).copy_from_slice(&weight);
                let bias_id = params.find(&format!("{block}.conv.bias")).expect("a folded convolution has a bias");
                params.get_mut(bias_id).copy_from_slice(&bias);
            } else if let Some(source) = single.params.find(&name) {
                params.get_mut(id).copy_from_slice(single.params.get(source));
            }
        }
        Self { form: Form::Deploy, params, ..single }
    }

    /// Widths of the heads, in the order in which the head row reads its levels.
    fn head_widths(&self) -> Vec<HeadWidths> {
        let head = head_name(self.model);
        let heads = if self.model.dual { 2 } else { 1 };
        let out = |branch: &str| self.params.spec(self.id(&format!("{branch}.0.0.conv.weight"))).dims[0];
        (0..heads)
            .map(|index| blocks::head_branches(&head, index))
            .map(|[reg, cls]| HeadWidths { reg: out(&reg), cls: out(&cls) })
            .collect()
    }

    fn id(&self, name: &str) -> ParamId {
        self.params.find(name).unwrap_or_else(|| panic!("the network has no parameter {name}"))
    }

    /// Whether `block` is a Conv or a RepConv, in train form.
    fn has_bn(&self, block: &str) -> bool {
        self.params.find(&format!("{block}.bn.weight")).is_some() || self.params.find(&format!("{block}.conv1.bn.weight")).is_some()
    }

    /// Weight (OHWI) and bias of a Conv or RepConv with its batch norms folded in.
    fn folded(&self, block: &str) -> (Vec<f32>, Vec<f32>) {
        if self.params.find(&format!("{block}.bn.weight")).is_some() {
            let (weight, bias) = self.folded_conv(block);
            return (rounded(&weight), rounded(&bias));
        }
        let (mut weight, mut bias) = self.folded_conv(&format!("{block}.conv1"));
        let (point, point_bias) = self.folded_conv(&format!("{block}.conv2"));
        // The 1x1 kernel is the centre of a 3x3 one.
        let n_out = bias.len();
        let n_in = point.len() / n_out;
        for (out, kernel) in point.chunks(n_in).enumerate() {
            let centre = &mut weight[(out * 9 + 4) * n_in..][..n_in];
            for (sum, value) in centre.iter_mut().zip(kernel) {
                *sum += value;
            }
        }
        for (sum, value) in bias.iter_mut().zip(&point_bias) {
            *sum += value;
        }
        (rounded(&weight), rounded(&bias))
    }

    /// One convolution with its batch norm folded in, not yet rounded to f32.
    fn folded_conv(&self, block: &str) -> (Vec<f64>, Vec<f64>) {
        let get = |part: &str| self.params.get(self.id(&format!("{block}.{part}")));
        let (gamma, beta) = (get("bn.weight"), get("bn.bias"));
        let (mean, var) = (get("bn.running_mean"), get("bn.running_var"));
        let weight = get("conv.weight");
        let per_out = weight.len() / gamma.len();
        let mut folded = Vec::with_capacity(weight.len());
        let mut bias = Vec::with_capacity(gamma.len());
        for (out, kernel) in weight.chunks(per_out).enumerate() {
            let scale = f64::from(gamma[out]) / (f64::from(var[out]) + f64::from(BN_EPS)).sqrt();
            folded.extend(kernel.iter().map(|&value| scale * f64::from(value)));
            bias.push(f64::from(beta[out]) - scale * f64::from(mean[out]));
        }
        (folded, bias)
    }
}

impl NetworkGraph {
    /// Appends the detection loss of all heads, for up to `max_boxes` boxes an image. `spec.head_weights` has one entry a head:
    /// auxiliary, then main.
    pub fn append_loss(&mut self, max_boxes: usize, spec: LossSpec) -> LossTensors {
        let batch = self.graph.shape(self.input).n;
        let truth = self.graph.input("truth", Shape::new(batch, 1, max_boxes, 5), DType::F32);
        let heads: Vec<_> = self.aux.iter().chain([&self.main]).map(|head| head.levels.clone()).collect();
        assert_eq!(heads.len(), spec.head_weights.len(), "weights of the heads");
        let items = self.graph.detection_loss("loss", truth, &heads, spec);
        LossTensors { truth, items }
    }

    /// Appends the decoding of the main head: (B, 1, N, 4 + nc), boxes as cx, cy, w, h in input pixels, then scores.
    pub fn append_decode(&mut self) -> TensorId {
        self.graph.decode("decoded", &self.main.levels, &STRIDES, REG_MAX)
    }
}

/// The parameters of a network, in upstream's order. `widths`: those of the heads, where they are not the published ones.
pub(super) fn param_specs(model: Model, form: Form, n_classes: usize, widths: Option<&[HeadWidths]>) -> Vec<ParamSpec> {
    blocks::declare(&model.rows(n_classes), form, n_classes, widths)
}

/// A table with all values zero.
pub(super) fn table(specs: Vec<ParamSpec>) -> Params {
    let mut params = Params::default();
    for spec in specs {
        params.add(spec);
    }
    params
}

/// Name of the last row, the head.
pub(super) fn head_name(model: Model) -> String {
    format!("model.{}", model.rows(1).len() - 1)
}

/// What a parameter of a dual model is called in its single sibling; `None` in the auxiliary branch.
pub(super) fn single_name(dual: Model, name: &str) -> Option<String> {
    let (row, rest) = name.strip_prefix("model.")?.split_once('.')?;
    let row: usize = row.parse().ok()?;
    let rows = Model::single_rows(dual.size);
    let single = rows.iter().position(|&kept| kept == row)?;
    if single + 1 < rows.len() {
        return Some(format!("model.{single}.{rest}"));
    }
    let (branch, rest) = rest.split_once('.')?;
    let branch = match branch {
        "cv4" => "cv2",
        "cv5" => "cv3",
        _ => return None,
    };
    Some(format!("model.{single}.{branch}.{rest}"))
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yolo::variant::ModelSize;

    /// Parameters with the constant weights of the distribution layer (16 a head), as the published counts have them.
    fn n_params(model: Model, form: Form) -> usize {
        let specs = param_specs(model, form, 80, None);
        let trained = specs.iter().filter(|spec| spec.kind.is_trained()).map(ParamSpec::len).sum::<usize>();
        trained + if model.dual { 32 } else { 16 }
    }

    /// Entries of upstream's state dict: also the counter of each batch norm and the distribution layer's weight.
    fn n_entries(model: Model, form: Form) -> usize {
        let specs = param_specs(model, form, 80, None);
        let counters = specs.iter().filter(|spec| spec.name.ends_with(".running_mean")).count();
        specs.len() + counters + if model.dual { 2 } else { 1 }
    }

    #[test]
    fn sizes_are_the_published_ones() {
        use ModelSize::{C, E, M, S, T};
        // Model, rows, parameters and entries in train form, parameters and entries of a single model in deploy form.
        let table = [
            (Model::dual(T), 30, 3_717_680, 1772, None),
            (Model::single(T), 23, 2_442_640, 1339, Some((2_407_632, 371))),
            (Model::dual(S), 30, 9_804_512, 1772, None),
            (Model::single(S), 23, 7_226_208, 1339, Some((7_105_888, 371))),
            (Model::dual(M), 39, 32_878_432, 1412, None),
            (Model::single(M), 23, 20_124_000, 907, Some((19_978_672, 279))),
            (Model::dual(C), 39, 51_182_080, 1460, None),
            (Model::single(C), 23, 25_498_752, 937, Some((25_288_768, 289))),
            (Model::dual(E), 50, 69_529_664, 2172, None),
            (Model::single(E), 43, 58_114_432, 1811, Some((57_345_920, 523))),
        ];
        for (model, rows, params, entries, deployed) in table {
            assert_eq!(model.rows(80).len(), rows, "{model}");
            assert_eq!(n_params(model, Form::Train), params, "{model}");
            assert_eq!(n_entries(model, Form::Train), entries, "{model}");
            if let Some((params, entries)) = deployed {
                assert_eq!(n_params(model, Form::Deploy), params, "{model}");
                assert_eq!(n_entries(model, Form::Deploy), entries, "{model}");
            }
        }
    }

    #[test]
    fn the_single_form_keeps_exactly_the_main_branch() {
        for size in [ModelSize::T, ModelSize::S, ModelSize::M, ModelSize::C, ModelSize::E] {
            let dual = Model::dual(size);
            let kept: Vec<String> =
                param_specs(dual, Form::Train, 80, None).iter().filter_map(|spec| single_name(dual, &spec.name)).collect();
            let single: Vec<String> = param_specs(Model::single(size), Form::Train, 80, None).into_iter().map(|spec| spec.name).collect();
            assert_eq!(kept, single, "{dual}");
        }
    }

    #[test]
    fn anchors_of_a_640_pixel_input_are_8400() {
        let network = Network::new(Model::dual(ModelSize::T), 80, 0).to_deploy();
        let mut graph = network.graph(1, 640, 640, BnMode::Running);
        let decoded = graph.append_decode();
        assert_eq!(graph.graph.shape(decoded), Shape::new(1, 1, 8400, 84));
    }
}
