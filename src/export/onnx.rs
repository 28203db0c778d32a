//! A deploy-form network as an ONNX model.
//!
//! In:  a network in deploy form, class names, input size. Out: the model as messages; `onnx_proto` turns them into bytes.
//!
//! Walks the engine's own graph, so that what is exported is what was run. The engine keeps NHWC and concatenates by views; here
//! everything is NCHW, and views become `Slice` and `Concat` nodes. Boxes are decoded inside the model: input
//! `images` (batch, 3, H, W), RGB from 0 to 1; output `output0` (batch, 4 + nc, N), rows cx, cy, w, h in input pixels, then
//! class scores. There is no suppression of overlapping boxes.
//!
//! Writes no files. Source: the public ONNX operators, opset 17; layout and metadata as the published exporter's.

use std::collections::HashMap;

use super::onnx_proto::{
    AttributeProto, AttributeType, DataType, Dimension, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::engine::graph::{Graph, Node, TensorId};
use crate::engine::op::{Act, BnMode, ConvSpec, Op};
use crate::engine::params::{ParamId, Params};
use crate::yolo::network::{Form, Network};
use crate::yolo::weights;

/// Version of the operators; every runtime since 2022 knows it.
pub const OPSET: i64 = 17;
/// Version of the file format that belongs to it.
const IR_VERSION: i64 = 8;

/// The batch dimension of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchSize {
    /// One picture at a time, which every runtime optimizes best.
    #[default]
    One,
    /// Chosen when the model runs.
    Dynamic,
}

/// The model for square inputs of side `imgsz`.
///
/// # Panics
/// If the network is in train form, or `imgsz` no multiple of 32.
pub fn model(network: &Network, class_names: &[String], imgsz: usize, batch: BatchSize) -> ModelProto {
    assert_eq!(network.form, Form::Deploy, "only the deploy form is exported");
    let mut built = network.graph(1, imgsz, imgsz, BnMode::Running);
    let decoded = built.append_decode();

    let mut writer = Writer { graph: &built.graph, params: &network.params, values: HashMap::new(), nodes: vec![], initializers: vec![] };
    for node in &built.graph.nodes {
        writer.node(node);
    }
    let Writer { nodes, initializers, .. } = writer;

    let n_anchors = built.graph.shape(decoded).w;
    let batch = || match batch {
        BatchSize::One => Dimension::Value(1),
        BatchSize::Dynamic => Dimension::Param("batch".into()),
    };
    let graph = GraphProto {
        name: network.model.to_string(),
        input: vec![value_info(INPUT, batch(), &[3, imgsz, imgsz])],
        output: vec![value_info(OUTPUT, batch(), &[4 + network.n_classes, n_anchors])],
        node: nodes,
        initializer: initializers,
    };
    ModelProto {
        ir_version: IR_VERSION,
        producer_name: "boxwright".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        metadata_props: metadata(network, class_names, imgsz),
        graph: Some(graph),
    }
}

const INPUT: &str = "images";
const OUTPUT: &str = "output0";

fn metadata(network: &Network, class_names: &[String], imgsz: usize) -> Vec<StringStringEntryProto> {
    let letterbox = "scale the picture by min(imgsz / width, imgsz / height) with bilinear interpolation, centre it, \
                     fill the rest with gray 114; RGB, divide by 255, channels first";
    [
        ("stride", "32".to_owned()),
        ("names", python_dict(class_names)),
        ("imgsz", format!("[{imgsz}, {imgsz}]")),
        ("task", "detect".to_owned()),
        ("model", network.model.to_string()),
        ("letterbox", letterbox.to_owned()),
        ("output0", "rows cx, cy, w, h in input pixels, then one score a class; overlapping boxes are not suppressed".to_owned()),
    ]
    .map(|(key, value)| StringStringEntryProto { key: key.to_owned(), value })
    .into()
}

/// `{0: 'person', 1: 'bicycle'}`, which readers in Python evaluate as a literal.
fn python_dict(names: &[String]) -> String {
    let entries: Vec<String> = names.iter().enumerate().map(|(index, name)| format!("{index}: {}", python_text(name))).collect();
    format!("{{{}}}", entries.join(", "))
}

fn python_text(text: &str) -> String {
    let mut quoted = String::from("'");
    for sign in text.chars() {
        match sign {
            '\'' | '\\' => quoted.extend(['\\', sign]),
            _ if sign.is_control() => quoted.extend(format!("\\u{:04x}", sign as u32).chars()),
            _ => quoted.push(sign),
        }
    }
    quoted.push('\'');
    quoted
}

/// Collects nodes while walking the engine's graph.
struct Writer<'a> {
    graph: &'a Graph,
    params: &'a Params,
    /// Name of the ONNX value of each tensor that has one by now.
    values: HashMap<TensorId, String>,
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
}

impl Writer<'_> {
    fn node(&mut self, node: &Node) {
        let inputs: Vec<String> = node.inputs.iter().map(|&id| self.value(id)).collect();
        let name = &node.name;
        let value = match &node.op {
            Op::Input => INPUT.to_owned(),
            &Op::Conv { spec, weight, bias, act } => self.conv(name, &inputs, spec, weight, bias, act),
            Op::AvgPool2 => self.push("AveragePool", name, &[&inputs[0]], vec![ints("kernel_shape", &[2, 2]), ints("strides", &[1, 1])]),
            &Op::MaxPool { kernel, stride, pad } => {
                let attributes = vec![ints("kernel_shape", &[kernel; 2]), ints("strides", &[stride; 2]), ints("pads", &[pad; 4])];
                self.push("MaxPool", name, &[&inputs[0]], attributes)
            }
            Op::Upsample2 => self.enlarge(name, &inputs[0], 2),
            Op::NearestSum => self.nearest_sum(node, &inputs),
            Op::Decode { strides, reg_max } => self.decode(node, &inputs, strides, *reg_max),
            other => unreachable!("{other:?} in a graph of the deploy form"),
        };
        for &output in &node.outputs {
            self.values.insert(output, value.clone());
        }
    }

    /// The value of a tensor: what a node made, or a concatenation of what nodes made, or a range of channels of those.
    fn value(&mut self, id: TensorId) -> String {
        if let Some(value) = self.values.get(&id) {
            return value.clone();
        }
        let value = if let Some(parts) = self.parts(id) {
            let parts: Vec<String> = parts.into_iter().map(|part| self.value(part)).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let name = format!("{}/concat", self.graph.tensor(id).name);
            self.push("Concat", &name, &parts, vec![int("axis", 1)])
        } else {
            let (parent, channel) = self.graph.tensor(id).slice_of.expect("a tensor without a producer is a part or has parts");
            let whole = self.value(parent);
            let name = format!("{whole}/channels_{channel}");
            self.slice(&name, &whole, channel, channel + self.graph.shape(id).c)
        };
        self.values.insert(id, value.clone());
        value
    }

    /// The tensors that together fill the channels of `id`, if nodes have written all of it by now.
    fn parts(&self, id: TensorId) -> Option<Vec<TensorId>> {
        let mut parts: Vec<(usize, TensorId)> = (0..self.graph.tensors.len() as u32)
            .map(TensorId)
            .filter_map(|part| match self.graph.tensor(part).slice_of {
                Some((parent, channel)) if parent == id && (self.values.contains_key(&part) || self.parts(part).is_some()) => {
                    Some((channel, part))
                }
                _ => None,
            })
            .collect();
        parts.sort_unstable();
        // Bare views of a range that was read before have values too: what fills the buffer lies end to end.
        let mut filled = 0;
        let mut chosen = vec![];
        for (channel, part) in parts {
            if channel == filled {
                filled += self.graph.shape(part).c;
                chosen.push(part);
            }
        }
        (filled == self.graph.shape(id).c && !chosen.is_empty()).then_some(chosen)
    }

    fn conv(&mut self, name: &str, inputs: &[String], spec: ConvSpec, weight: ParamId, bias: Option<ParamId>, act: Act) -> String {
        let weight = self.param(weight);
        let bias = bias.map(|bias| self.param(bias));
        let operands: Vec<&str> = [inputs[0].as_str(), &weight].into_iter().chain(bias.as_deref()).collect();
        let attributes = vec![
            ints("kernel_shape", &[spec.kernel; 2]),
            ints("strides", &[spec.stride; 2]),
            ints("pads", &[spec.pad; 4]),
            ints("dilations", &[1, 1]),
            int("group", spec.groups as i64),
        ];
        let mut value = self.push("Conv", name, &operands, attributes);
        if act == Act::Silu {
            let gate = self.push("Sigmoid", &format!("{name}/gate"), &[&value], vec![]);
            value = self.push("Mul", &format!("{name}/silu"), &[&value, &gate], vec![]);
        }
        if let Some(residual) = inputs.get(1) {
            value = self.push("Add", &format!("{name}/add"), &[&value, residual], vec![]);
        }
        value
    }

    fn nearest_sum(&mut self, node: &Node, inputs: &[String]) -> String {
        let x = node.inputs.len() - 1;
        let height = self.graph.shape(node.inputs[x]).h;
        let mut sum = inputs[x].clone();
        for (index, small) in inputs[..x].iter().enumerate() {
            let name = format!("{}/{index}", node.name);
            let factor = height / self.graph.shape(node.inputs[index]).h;
            let enlarged = if factor == 1 { small.clone() } else { self.enlarge(&format!("{name}/enlarge"), small, factor) };
            sum = self.push("Add", &name, &[&sum, &enlarged], vec![]);
        }
        sum
    }

    /// Each pixel repeated `factor` times in both directions.
    fn enlarge(&mut self, name: &str, x: &str, factor: usize) -> String {
        let factor = factor as f32;
        let scales = self.floats(&format!("{name}/scales"), &[4], &[1.0, 1.0, factor, factor]);
        let attributes = vec![text("mode", "nearest"), text("coordinate_transformation_mode", "asymmetric"), text("nearest_mode", "floor")];
        self.push("Resize", name, &[x, "", &scales], attributes)
    }

    /// Distributions and logits of the levels to boxes and scores.
    fn decode(&mut self, node: &Node, inputs: &[String], strides: &[usize], reg_max: usize) -> String {
        // Anchor points as (2, N), x before y, and the stride of each, in the order of the levels.
        let (mut xs, mut ys, mut scales) = (vec![], vec![], vec![]);
        for (level, &stride) in strides.iter().enumerate() {
            let shape = self.graph.shape(node.inputs[2 * level]);
            for index in 0..shape.h * shape.w {
                xs.push((index % shape.w) as f32 + 0.5);
                ys.push((index / shape.w) as f32 + 0.5);
                scales.push(stride as f32);
            }
        }
        let n = scales.len();
        let anchors = self.floats("decode/anchors", &[1, 2, n], &[xs, ys].concat());
        let scales = self.floats("decode/strides", &[1, 1, n], &scales);
        let bins: Vec<f32> = (0..reg_max).map(|bin| bin as f32).collect();
        let bins = self.floats("decode/bins", &[1, 1, reg_max, 1], &bins);
        let half = self.floats("decode/half", &[1], &[0.5]);

        let n_classes = self.graph.shape(node.inputs[1]).c;
        // A zero keeps the batch dimension as it is.
        let reg_shape = self.integers("decode/reg_shape", &[0, 4, reg_max as i64, -1]);
        let cls_shape = self.integers("decode/cls_shape", &[0, n_classes as i64, -1]);
        let (mut regs, mut classes) = (vec![], vec![]);
        for level in 0..strides.len() {
            regs.push(self.push("Reshape", &format!("decode/reg_{level}"), &[&inputs[2 * level], &reg_shape], vec![]));
            classes.push(self.push("Reshape", &format!("decode/cls_{level}"), &[&inputs[2 * level + 1], &cls_shape], vec![]));
        }
        let regs: Vec<&str> = regs.iter().map(String::as_str).collect();
        let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
        let regs = self.push("Concat", "decode/reg", &regs, vec![int("axis", 3)]);
        let classes = self.push("Concat", "decode/cls", &classes, vec![int("axis", 2)]);

        let weights = self.push("Softmax", "decode/softmax", &[&regs], vec![int("axis", 2)]);
        let weighted = self.push("Mul", "decode/weighted", &[&weights, &bins], vec![]);
        let axis = self.integers("decode/axis", &[2]);
        let ltrb = self.push("ReduceSum", "decode/ltrb", &[&weighted, &axis], vec![int("keepdims", 0)]);
        let lt = self.slice("decode/lt", &ltrb, 0, 2);
        let rb = self.slice("decode/rb", &ltrb, 2, 4);
        let low = self.push("Sub", "decode/low", &[&anchors, &lt], vec![]);
        let high = self.push("Add", "decode/high", &[&anchors, &rb], vec![]);
        let sum = self.push("Add", "decode/sum", &[&low, &high], vec![]);
        let centre = self.push("Mul", "decode/centre", &[&sum, &half], vec![]);
        let size = self.push("Sub", "decode/size", &[&high, &low], vec![]);
        let boxes = self.push("Concat", "decode/boxes", &[&centre, &size], vec![int("axis", 1)]);
        let boxes = self.push("Mul", "decode/pixels", &[&boxes, &scales], vec![]);
        let scores = self.push("Sigmoid", "decode/scores", &[&classes], vec![]);
        self.push("Concat", OUTPUT, &[&boxes, &scores], vec![int("axis", 1)])
    }

    /// Channels `start..end` of a value.
    fn slice(&mut self, name: &str, x: &str, start: usize, end: usize) -> String {
        let starts = self.integers(&format!("{name}/start"), &[start as i64]);
        let ends = self.integers(&format!("{name}/end"), &[end as i64]);
        let axes = self.integers(&format!("{name}/axis"), &[1]);
        self.push("Slice", name, &[x, &starts, &ends, &axes], vec![])
    }

    /// A node with one output, which has the node's name.
    fn push(&mut self, op_type: &str, name: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![name.to_owned()],
            name: name.to_owned(),
            op_type: op_type.to_owned(),
            attribute,
        });
        name.to_owned()
    }

    fn param(&mut self, id: ParamId) -> String {
        let spec = self.params.spec(id);
        let dims = weights::upstream_dims(spec);
        self.floats(&spec.name, &dims, &weights::to_upstream(spec, self.params.get(id)))
    }

    fn floats(&mut self, name: &str, dims: &[usize], values: &[f32]) -> String {
        let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, dims, DataType::Float, raw_data)
    }

    fn integers(&mut self, name: &str, values: &[i64]) -> String {
        let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, &[values.len()], DataType::Int64, raw_data)
    }

    fn constant(&mut self, name: &str, dims: &[usize], data_type: DataType, raw_data: Vec<u8>) -> String {
        let dims = dims.iter().map(|&dim| dim as i64).collect();
        self.initializers.push(TensorProto { dims, data_type: data_type as i32, name: name.to_owned(), raw_data });
        name.to_owned()
    }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i: Some(value), r#type: AttributeType::Int as i32, ..AttributeProto::default() }
}

fn ints(name: &str, values: &[usize]) -> AttributeProto {
    let ints = values.iter().map(|&value| value as i64).collect();
    AttributeProto { name: name.to_owned(), ints, r#type: AttributeType::Ints as i32, ..AttributeProto::default() }
}

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), s: Some(value.into()), r#type: AttributeType::String as i32, ..AttributeProto::default() }
}

fn value_info(name: &str, batch: Dimension, dims: &[usize]) -> ValueInfoProto {
    let dims = dims.iter().map(|&dim| Dimension::Value(dim as i64));
    let dim = std::iter::once(batch).chain(dims).map(|value| DimensionProto { value: Some(value) }).collect();
    let tensor_type = TensorTypeProto { elem_type: DataType::Float as i32, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::HashSet;

    use super::*;
    use crate::yolo::variant::{Model, ModelSize};

    fn exported(size: ModelSize, batch: BatchSize) -> ModelProto {
        let network = Network::new(Model::dual(size), 2, 1).to_deploy();
        model(&network, &["bolt".into(), "n'ut\\".into()], 64, batch)
    }

    #[test]
    fn every_value_is_made_once_and_before_it_is_read() {
        for size in [ModelSize::T, ModelSize::C] {
            let graph = exported(size, BatchSize::One).graph.unwrap();
            let mut made: HashSet<&str> = [INPUT, ""].into();
            for initializer in &graph.initializer {
                assert!(made.insert(&initializer.name), "{} twice", initializer.name);
                let values: i64 = initializer.dims.iter().product();
                let size = if initializer.data_type == DataType::Int64 as i32 { 8 } else { 4 };
                assert_eq!(initializer.raw_data.len() as i64, values * size, "{}", initializer.name);
            }
            for node in &graph.node {
                for input in &node.input {
                    assert!(made.contains(input.as_str()), "{} reads {input} too early", node.name);
                }
                assert!(made.insert(&node.output[0]), "{} twice", node.output[0]);
            }
            assert!(made.contains(OUTPUT));
        }
    }

    #[test]
    fn concatenations_take_their_parts_in_order() {
        let graph = exported(ModelSize::T, BatchSize::One).graph.unwrap();
        let concat = graph.node.iter().find(|node| node.name == "model.4.cat/concat").unwrap();
        assert_eq!(concat.input, ["model.4.cv1.conv/silu", "model.4.cv2.1.conv/silu", "model.4.cv3.1.conv/silu"]);
        let slice = graph.node.iter().find(|node| node.op_type == "Slice").unwrap();
        assert_eq!(slice.input[0], "model.2.cv1.conv/silu");
    }

    #[test]
    fn shapes_say_what_goes_in_and_out() {
        let dims = |value: &ValueInfoProto| -> Vec<Dimension> {
            let shape = value.r#type.clone().unwrap().tensor_type.unwrap().shape.unwrap();
            shape.dim.into_iter().map(|dim| dim.value.unwrap()).collect()
        };
        let fixed = exported(ModelSize::T, BatchSize::One).graph.unwrap();
        assert_eq!(dims(&fixed.input[0]), [1, 3, 64, 64].map(Dimension::Value));
        assert_eq!(dims(&fixed.output[0]), [1, 6, 84].map(Dimension::Value));
        let dynamic = exported(ModelSize::T, BatchSize::Dynamic).graph.unwrap();
        assert_eq!(dims(&dynamic.output[0])[0], Dimension::Param("batch".into()));
    }

    #[test]
    fn class_names_are_a_python_literal() {
        let model = exported(ModelSize::T, BatchSize::One);
        let names = model.metadata_props.iter().find(|entry| entry.key == "names").unwrap();
        assert_eq!(names.value, r"{0: 'bolt', 1: 'n\'ut\\'}");
    }
}
