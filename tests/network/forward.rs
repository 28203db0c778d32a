//! Forward passes: names and shapes of all parameters, every layer, raw maps and decoded boxes, in each form of the network.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use boxwright::engine::cpu::Executor;
use boxwright::engine::graph::TensorId;
use boxwright::engine::op::BnMode;
use boxwright::engine::params::{ParamId, ParamKind, Params};
use boxwright::engine::plan::Plan;
use boxwright::yolo::{Head, Model, Network};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::deterministic::{Nchw, assert_close, fill, input, kept, l2, largest_difference, shared, tensor};

#[derive(Deserialize)]
struct Reference {
    layers: Vec<LayerReference>,
}

#[derive(Deserialize)]
struct LayerReference {
    outputs: Vec<Statistics>,
}

#[derive(Deserialize)]
struct Statistics {
    shape: [usize; 4],
    l2: f64,
    first8: Vec<f32>,
    probe8: Vec<f32>,
}

/// Allowed differences of one set of reference numbers.
#[derive(Clone, Copy)]
struct Tolerances {
    layer_l2_relative: f64,
    /// Of single values, as a part of the largest of the tensor.
    layer_value: f32,
    raw: f32,
    box_px: f32,
    score: f32,
}

const PLAIN: Tolerances = Tolerances { layer_l2_relative: 5e-6, layer_value: 5e-6, raw: 2e-6, box_px: 5e-4, score: 1e-6 };
const CALIBRATED: Tolerances = Tolerances { layer_l2_relative: 1e-4, layer_value: 3e-4, raw: 5e-4, box_px: 2e-2, score: 1e-4 };

const SIZE: (usize, usize) = (64, 96);

/// What a network gives for the reference's input.
struct Outputs {
    layers: Vec<Vec<Nchw>>,
    /// Raw maps (distributions, then classes) and decoded rows of each head, by its name.
    heads: Vec<(&'static str, Vec<Nchw>, Vec<f32>)>,
}

fn deterministic(model: Model, n_classes: usize) -> Network {
    let mut network = Network::new(model, n_classes, 0);
    fill(&mut network.params);
    network
}

/// Puts the batch norms' running statistics of a file in place.
fn calibrate(network: &mut Network, path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let ids: Vec<ParamId> = network.params.ids().collect();
    let mut n_set = 0;
    for id in ids {
        let spec = network.params.spec(id).clone();
        if matches!(spec.kind, ParamKind::BnMean | ParamKind::BnVar) {
            network.params.get_mut(id).copy_from_slice(&tensor(&file, &spec.name));
            n_set += 1;
        }
    }
    assert_eq!(n_set, file.len());
}

fn forward(network: &Network, batch: usize) -> Outputs {
    let (height, width) = SIZE;
    let mut built = network.graph(batch, height, width, BnMode::Running);
    let n_classes = network.n_classes;
    let mut decode = |name: &'static str, head: &Head| {
        let decoded = built.graph.decode(name, &head.levels, &[8, 16, 32], 16);
        (name, head.levels.clone(), decoded)
    };
    let mut heads = vec![decode("main", &built.main)];
    heads.extend(built.aux.iter().map(|aux| decode("aux", aux)));

    let mut keep: Vec<TensorId> = built.layers.iter().flatten().copied().collect();
    for (_, levels, decoded) in &heads {
        keep.extend(levels.iter().flat_map(|&(reg, cls)| [reg, cls]).chain([*decoded]));
    }
    let graph = built.graph.clone();
    let nchw = |executor: &Executor, id: TensorId| {
        let shape = graph.shape(id);
        Nchw::from_nhwc([shape.n, shape.c, shape.h, shape.w], &executor.read(id))
    };
    let mut executor = Executor::new(Plan::new(built.graph, &keep));
    executor.write(built.input, &input(batch, height, width));
    let mut params = network.params.clone();
    executor.run(&mut params, &mut Params::default());
    assert!(params == network.params, "a forward pass in evaluation changes nothing");

    let layers = built.layers.iter().map(|outputs| outputs.iter().map(|&id| nchw(&executor, id)).collect()).collect();
    let read_head = |(name, levels, decoded): (&'static str, Vec<(TensorId, TensorId)>, TensorId)| {
        let maps = levels.iter().map(|&(reg, cls)| nchw(&executor, reg).stacked(&nchw(&executor, cls))).collect();
        let rows = executor.read(decoded);
        assert_eq!(rows.len() % (4 + n_classes), 0);
        (name, maps, rows)
    };
    Outputs { layers, heads: heads.into_iter().map(read_head).collect() }
}

fn check_layers(what: &str, outputs: &Outputs, path: &Path, tolerances: Tolerances) {
    let reference: Reference = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut n_checked = 0;
    for (index, layer) in reference.layers.iter().enumerate() {
        // Silence has no numbers, the head has none here.
        for (output, expected) in outputs.layers[index].iter().zip(&layer.outputs) {
            let what = format!("{what} layer {index}");
            assert_eq!(output.shape, expected.shape, "{what}");
            let n = output.values.len();
            let probe: Vec<f32> = (0..8).map(|k| output.values[k * (n - 1) / 7]).collect();
            let peak = output.values.iter().fold(0.0_f32, |peak, value| peak.max(value.abs()));
            let length = l2(&output.values);
            assert!(
                (length - expected.l2).abs() <= tolerances.layer_l2_relative * expected.l2,
                "{what}: length {length}, not {}",
                expected.l2
            );
            assert_close(&format!("{what} first values"), &output.values[..8], &expected.first8, tolerances.layer_value * peak);
            assert_close(&format!("{what} probed values"), &probe, &expected.probe8, tolerances.layer_value * peak);
            n_checked += 1;
        }
    }
    assert!(n_checked + 3 >= reference.layers.len(), "{n_checked} layers checked");
}

fn check_heads(what: &str, outputs: &Outputs, n_classes: usize, path: &Path, tolerances: Tolerances) {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    for (name, maps, rows) in &outputs.heads {
        for (level, map) in (3..).zip(maps) {
            let key = format!("{name}.p{level}");
            let n_images = file.tensor(&key).unwrap().shape()[0];
            assert_close(&format!("{what} {key}"), &map.images(n_images).values, &tensor(&file, &key), tolerances.raw);
        }
        let key = format!("decoded.{name}");
        let shape = file.tensor(&key).unwrap().shape().to_vec();
        let (n_images, n_anchors) = (shape[0], shape[2]);
        assert_eq!(shape[1], 4 + n_classes);
        let decoded = Nchw::from_nhwc([n_images, 4 + n_classes, 1, n_anchors], &rows[..n_images * n_anchors * (4 + n_classes)]);
        let expected = Nchw { shape: decoded.shape, values: tensor(&file, &key) };
        for image in 0..n_images {
            let part = |tensor: &Nchw, from: usize, to: usize| {
                let start = image * (4 + n_classes) * n_anchors;
                tensor.values[start + from * n_anchors..start + to * n_anchors].to_vec()
            };
            assert_close(&format!("{what} {key} boxes"), &part(&decoded, 0, 4), &part(&expected, 0, 4), tolerances.box_px);
            let scores = |tensor| part(tensor, 4, 4 + n_classes);
            assert_close(&format!("{what} {key} scores"), &scores(&decoded), &scores(&expected), tolerances.score);
        }
    }
}

/// The reference's numbers, then single and deploy form of the same network against it. Returns the largest difference of
/// raw maps between train and deploy form.
fn check(model: Model, n_classes: usize, batch: usize, bn: Option<&Path>, json: &Path, numbers: &Path, tolerances: Tolerances) -> f32 {
    let mut network = deterministic(model, n_classes);
    if let Some(bn) = bn {
        calibrate(&mut network, bn);
    }
    let what = model.to_string();
    let outputs = forward(&network, batch);
    check_layers(&what, &outputs, json, tolerances);
    check_heads(&what, &outputs, n_classes, numbers, tolerances);

    let single = forward(&network.to_single(), batch);
    assert_eq!(single.heads.len(), 1);
    assert!(single.heads[0] == outputs.heads[0], "{what}: the main branch alone gives the same numbers to the last bit");

    let deployed = forward(&network.to_deploy(), batch);
    check_heads(&format!("{what} deployed"), &deployed, n_classes, numbers, tolerances);
    let maps = deployed.heads[0].1.iter().zip(&outputs.heads[0].1);
    maps.map(|(deployed, trained)| largest_difference(&deployed.values, &trained.values).0).fold(0.0, f32::max)
}

fn check_kept(model: &str, n_classes: usize) {
    let file = |ending: &str| kept(&format!("forward_calibrated_{model}_nc{n_classes}{ending}"));
    let bn = file("_bn.safetensors");
    check(model.parse().unwrap(), n_classes, 2, Some(&bn), &file(".json"), &file(".safetensors"), CALIBRATED);
}

#[test]
fn parameters_are_named_and_shaped_as_upstream() {
    for (model, n_classes) in [("yolov9-t", 3), ("yolov9-s", 80), ("yolov9-m", 80), ("yolov9-c", 80), ("yolov9-e", 80)] {
        let text = std::fs::read_to_string(kept(&format!("keys_{model}_nc{n_classes}.txt"))).unwrap();
        let expected: Vec<&str> = text.lines().filter(|line| !line.contains(".dfl")).collect();
        let network = Network::new(model.parse().unwrap(), n_classes, 0);
        let ours: Vec<String> = network
            .params
            .specs
            .iter()
            .map(|spec| {
                let dims: Vec<String> = match spec.dims.as_slice() {
                    &[o, h, w, i] => [o, i, h, w].iter().map(ToString::to_string).collect(),
                    dims => dims.iter().map(ToString::to_string).collect(),
                };
                format!("{} {}", spec.name, dims.join(","))
            })
            .collect();
        assert_eq!(ours, expected, "{model}");
    }
}

#[test]
fn t_with_plain_statistics_matches_the_reference() {
    let (json, numbers) = (kept("forward_yolov9-t_nc3.json"), kept("forward_yolov9-t_nc3.safetensors"));
    check("yolov9-t".parse().unwrap(), 3, 2, None, &json, &numbers, PLAIN);
}

#[test]
fn t_with_calibrated_statistics_matches_the_reference() {
    check_kept("yolov9-t", 3);
}

#[test]
fn s_with_calibrated_statistics_matches_the_reference() {
    check_kept("yolov9-s", 80);
}

#[test]
fn all_sizes_match_the_reference_where_all_numbers_are_at_hand() {
    for (model, n_classes) in [("yolov9-t", 80), ("yolov9-s", 80), ("yolov9-m", 80), ("yolov9-c", 80), ("yolov9-e", 80)] {
        for (folder, tolerances) in [("forward", PLAIN), ("forward_calibrated", CALIBRATED)] {
            let file = |ending: &str| shared(&format!("{folder}/{model}_nc{n_classes}{ending}"));
            let (Some(json), Some(numbers), Some(bn)) = (file(".json"), file(".safetensors"), file("_bn.safetensors")) else { return };
            let bn = (folder == "forward_calibrated").then_some(bn.as_path());
            check(model.parse().unwrap(), n_classes, 2, bn, &json, &numbers, tolerances);
        }
    }
}
