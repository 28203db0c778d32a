//! An exported model in ONNX Runtime, which we did not write, gives our numbers and our boxes.
//!
//! `BOXWRIGHT_PYTHON` names a Python with onnx, onnxruntime and numpy; scripts/test.sh makes one. Without it these tests are left
//! out, except where `CI` is set: there they fail.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use boxwright::engine::cpu::Executor;
use boxwright::engine::op::{BN_MOMENTUM, BnMode};
use boxwright::engine::params::{ParamId, ParamKind, Params};
use boxwright::engine::plan::Plan;
use boxwright::export::onnx::BatchSize;
use boxwright::export::{ExportFormat, ExportOptions, export_with};
use boxwright::geom::letterbox::{Letterbox, LetterboxOptions};
use boxwright::geom::nms::{NmsOptions, nms};
use boxwright::geom::{Size, Xyxy};
use boxwright::media::Picture;
use boxwright::media::decode::decode;
use boxwright::media::draw::draw_box;
use boxwright::media::resize::apply_letterbox;
use boxwright::yolo::Network;
use boxwright::yolo::weights::{WeightsInfo, save};

use crate::deterministic::{Nchw, assert_close, fill, largest_difference};

/// Differences between two f32 implementations, about ten times what was seen for any size: 1.2e-4 pixels and 4.0e-6.
const BOX_TOLERANCE_PX: f32 = 2e-3;
const SCORE_TOLERANCE: f32 = 3e-5;

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("BOXWRIGHT_PYTHON").map(PathBuf::from);
    assert!(python.is_some() || std::env::var_os("CI").is_none(), "BOXWRIGHT_PYTHON is not set; run scripts/test.sh");
    python
}

/// A drawn scene: gradients, boxes, text. Not square, so that the letterbox pads.
fn scene() -> Picture {
    let size = Size::new(300, 200);
    let mut rgb = Vec::new();
    for y in 0..size.height {
        for x in 0..size.width {
            rgb.extend([(x * 255 / size.width) as u8, (y * 255 / size.height) as u8, ((x * 7 + y * 13) % 256) as u8]);
        }
    }
    let mut picture = Picture { size, rgb };
    draw_box(&mut picture, Xyxy::new(20.0, 40.0, 120.0, 170.0), [250, 20, 20], "first");
    draw_box(&mut picture, Xyxy::new(150.0, 30.0, 280.0, 90.0), [20, 250, 20], "second");
    picture
}

/// The picture as network input, NHWC.
fn pixels(picture: &Picture, side: usize) -> Vec<f32> {
    let letterbox = Letterbox::new(picture.size, Size::square(side as u32), LetterboxOptions { auto: None, scale_up: true });
    let input = apply_letterbox(picture, &letterbox);
    input.rgb.iter().map(|&value| f32::from(value) / 255.0).collect()
}

/// Our rows for each picture, from the network as it was given (train form).
fn ours(network: &Network, pictures: &[f32], side: usize) -> Vec<f32> {
    let mut built = network.graph(pictures.len() / (side * side * 3), side, side, BnMode::Running);
    let decoded = built.append_decode();
    let mut executor = Executor::new(Plan::new(built.graph, &[decoded]));
    executor.write(built.input, pictures);
    executor.run_inference(&network.params);
    executor.read(decoded)
}

fn read_floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Exports `network`, runs it on `picture`, compares; with a dynamic batch on two pictures, the second upside down.
fn check(python: &Path, network: &Network, picture: &Picture, side: usize, batch: BatchSize) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let names: Vec<String> = (0..network.n_classes).map(|class| format!("class '{class}' é")).collect();
    save(&file("w.safetensors"), network, &WeightsInfo { class_names: names.clone(), imgsz: side }).unwrap();
    let options = ExportOptions { imgsz: None, batch };
    let report = export_with(&file("w.safetensors"), ExportFormat::Onnx, &file("model.onnx"), options).unwrap();

    let mut pictures = pixels(picture, side);
    if batch == BatchSize::Dynamic {
        let flipped: Vec<f32> = pictures.chunks(side * 3).rev().flatten().copied().collect();
        pictures.extend(flipped);
    }
    let n_pictures = pictures.len() / (side * side * 3);
    let nchw = Nchw::from_nhwc([n_pictures, 3, side, side], &pictures);
    let bytes: Vec<u8> = nchw.values.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(file("input"), bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_parity.py");
    let run = Command::new(python)
        .arg(script)
        .args(["model.onnx", "input", "output", "boxes"].map(file))
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", python.display()));
    assert!(run.status.success(), "{}: {}", network.model, String::from_utf8_lossy(&run.stderr));
    let said: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&said["input"], &said["output"], &said["stride"]), (&"images".into(), &"output0".into(), &"32".into()));
    assert_eq!(said["names"], serde_json::json!(names));

    // Raw outputs, as rows.
    let row = 4 + network.n_classes;
    let output = read_floats(&file("output"));
    let n_anchors = output.len() / row / n_pictures;
    assert_eq!(said["output_shape"].as_array().unwrap()[1..], [row, n_anchors].map(serde_json::Value::from));
    let theirs = Nchw { shape: [n_pictures, row, 1, n_anchors], values: output }.to_nhwc();
    let ours = ours(network, &pictures, side);
    let split = |rows: &[f32], scores: bool| -> Vec<f32> {
        rows.iter().enumerate().filter(|(index, _)| (index % row >= 4) == scores).map(|(_, &value)| value).collect()
    };
    let what = format!("{} in ONNX Runtime {}", network.model, said["runtime"]);
    let (boxes, scores) = ((split(&ours, false), split(&theirs, false)), (split(&ours, true), split(&theirs, true)));
    assert_close(&format!("{what}: boxes"), &boxes.0, &boxes.1, BOX_TOLERANCE_PX);
    assert_close(&format!("{what}: scores"), &scores.0, &scores.1, SCORE_TOLERANCE);

    // Boxes after suppression, by two implementations.
    let options = NmsOptions { max_detections: usize::MAX, ..NmsOptions::detect() };
    let mine = nms(&ours[..n_anchors * row], network.n_classes, &options);
    let found = read_floats(&file("boxes"));
    assert!(!mine.is_empty() && mine.len() == found.len() / 6, "{what}: {} boxes here, {} there", mine.len(), found.len() / 6);
    let mut worst = 0.0_f32;
    for detection in &mine {
        let bbox = detection.bbox;
        // The same box somewhere in the list: nearly equal scores may change places.
        let distance = |other: &[f32]| {
            let corners = [bbox.x1, bbox.y1, bbox.x2, bbox.y2];
            let same = other[5] as usize == detection.class && (other[4] - detection.score).abs() <= SCORE_TOLERANCE;
            if same { largest_difference(&corners, &other[..4]).0 } else { f32::INFINITY }
        };
        worst = worst.max(found.chunks(6).map(distance).fold(f32::INFINITY, f32::min));
    }
    assert!(worst <= BOX_TOLERANCE_PX, "{what}: a box is {worst} pixels away");
    let (box_difference, score_difference) = (largest_difference(&boxes.0, &boxes.1).0, largest_difference(&scores.0, &scores.1).0);
    eprintln!(
        "{what} at {side}, {n_pictures} picture(s): raw boxes within {box_difference:.1e} px, scores within {score_difference:.1e}; \
         {} boxes after suppression within {worst:.1e} px; {} bytes; {}",
        mine.len(),
        report.size_bytes,
        report.checks.join("; "),
    );
}

/// A network that is as well-behaved on this picture as a trained one: its batch norms know the picture's statistics and keep
/// activations where SiLU is nearly straight, and its classes are sure of few boxes.
///
/// Plain random weights will not do. They pass a change of one part in a million of the input on as whole pixels, so two correct
/// f32 runtimes differ by as much (and each from f64), and of hundreds of equally likely boxes rounding decides which stay.
fn well_behaved(model: &str, n_classes: usize, picture: &Picture, side: usize) -> Network {
    let mut network = Network::new(model.parse().unwrap(), n_classes, 0);
    fill(&mut network.params);
    let head = format!("model.{}.", network.model.rows(n_classes).len() - 1);
    let ids: Vec<ParamId> = network.params.ids().collect();
    for id in ids {
        let spec = network.params.spec(id).clone();
        // The class branch decides what is kept; box distributions stay soft, since between two sharp peaks rounding decides.
        let is_class = spec.name.contains(".cv3.") || spec.name.contains(".cv5.");
        let is_head = spec.name.starts_with(&head);
        for value in network.params.get_mut(id) {
            match spec.kind {
                ParamKind::BnGamma => *value *= 0.1,
                ParamKind::ConvWeight if is_head && is_class && spec.name.ends_with(".2.weight") => *value *= 20.0,
                ParamKind::ConvBias if is_head && is_class => *value -= 4.0,
                _ => {}
            }
        }
    }
    let before = network.params.clone();
    let built = network.graph(1, side, side, BnMode::Batch);
    let mut executor = Executor::new(Plan::new(built.graph, &[]));
    executor.write(built.input, &pixels(picture, side));
    executor.run(&mut network.params, &mut Params::default());
    // One step moved them part of the way; this goes all of it.
    for id in before.ids().filter(|&id| matches!(before.spec(id).kind, ParamKind::BnMean | ParamKind::BnVar)) {
        for (value, old) in network.params.get_mut(id).iter_mut().zip(before.get(id)) {
            *value = old + (*value - old) / BN_MOMENTUM;
        }
    }
    network
}

#[test]
fn t_gives_the_same_boxes_in_another_runtime() {
    let Some(python) = python() else { return };
    let network = well_behaved("yolov9-t", 3, &scene(), 160);
    check(&python, &network, &scene(), 160, BatchSize::One);
    check(&python, &network, &scene(), 160, BatchSize::Dynamic);
}

#[test]
fn all_sizes_give_the_same_boxes_in_another_runtime_on_a_photograph() {
    let (Some(folder), Some(python)) = (std::env::var_os("BOXWRIGHT_SHARED"), python()) else { return };
    let folder = Path::new(&folder).join("data/coco128/images/train2017");
    let mut photographs: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    photographs.sort();
    let photograph = decode(&photographs[0]).unwrap();
    for (model, n_classes, side) in
        [("yolov9-t", 3, 640), ("yolov9-s", 80, 320), ("yolov9-m", 80, 320), ("yolov9-c", 80, 320), ("yolov9-e", 80, 320)]
    {
        check(&python, &well_behaved(model, n_classes, &photograph, side), &photograph, side, BatchSize::One);
    }
}
