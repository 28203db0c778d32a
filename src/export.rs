//! Weights for other programs: ONNX and safetensors, each checked before it gets its name.
//!
//! In:  a weight file and a path. Out: the deploy form of the network in the wanted format, and a report of what was checked.
//!
//! The file is written under a temporary name, read back and compared; only then is it put in place. The deploy form is also
//! run against the train form, since folding is the one step that changes numbers.
//!
//! Runs no foreign program. That a runtime which we did not write gives the same boxes is held by `tests/network/onnx.rs`.

pub mod onnx;
pub mod onnx_proto;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::engine::cpu::Executor;
use crate::engine::graph::TensorId;
use crate::engine::op::BnMode;
use crate::engine::plan::Plan;
use crate::export::onnx::BatchSize;
use crate::export::onnx_proto::ModelProto;
use crate::yolo::network::{Form, Network};
use crate::yolo::weights;
use crate::yolo::weights::{WeightsError, WeightsInfo};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Onnx,
    Safetensors,
}

/// Choices of an export; the default suits most runtimes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Side of the square input in pixels, rounded up to a multiple of 32; `None` is the size that the weights were trained with.
    pub imgsz: Option<usize>,
    /// Of an ONNX model.
    pub batch: BatchSize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExportReport {
    pub path: PathBuf,
    pub size_bytes: u64,
    /// What was checked after writing, in words with figures.
    pub checks: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: std::io::Error },
    #[error("the exported file differs: {reason}")]
    Parity { reason: String },
}

impl ExportError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Weights(error) => error.hint(),
            Self::Write { .. } => Some("check that the folder exists, may be written to, and has space left".into()),
            Self::Parity { .. } => Some("nothing was written; this is a fault of the program or of the weights, please report it".into()),
        }
    }
}

/// Exports the deploy form of `weights` with default options. ONNX: input `images` (1, 3, imgsz, imgsz), output `output0`
/// (1, 4 + nc, N).
pub fn export(weights: &Path, format: ExportFormat, out: &Path) -> Result<ExportReport, ExportError> {
    export_with(weights, format, out, ExportOptions::default())
}

/// Exports the deploy form of `weights`; an existing file at `out` is replaced, and only by one that passed its checks.
///
/// # Errors
/// The weights cannot be read, the file cannot be written, or what was written does not give the same numbers.
pub fn export_with(weights: &Path, format: ExportFormat, out: &Path, options: ExportOptions) -> Result<ExportReport, ExportError> {
    let (network, mut info) = weights::load(weights)?;
    info.imgsz = options.imgsz.unwrap_or(info.imgsz).max(1).next_multiple_of(32);
    let deployed = network.to_deploy();
    let mut checks = vec![check_folding(&network, &deployed)?];
    let size_bytes = match format {
        ExportFormat::Safetensors => {
            let write = |source| ExportError::Write { path: out.display().to_string(), source };
            let temporary = temporary_beside(out).map_err(write)?.into_temp_path();
            weights::save(&temporary, &deployed, &info)?;
            checks.push(check_safetensors(&temporary, &deployed)?);
            temporary.persist(out).map_err(|error| write(error.error))?;
            std::fs::metadata(out).map_err(write)?.len()
        }
        ExportFormat::Onnx => {
            let model = onnx::model(&deployed, &info.class_names, info.imgsz, options.batch);
            let (size_bytes, check) = write_onnx(out, &model, &deployed, &info)?;
            checks.push(check);
            size_bytes
        }
    };
    Ok(ExportReport { path: out.to_owned(), size_bytes, checks })
}

fn temporary_beside(out: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::NamedTempFile::new_in(folder)
}

/// Writes a model, reads it back, compares, and only then names it. Returns its size and what was compared.
fn write_onnx(out: &Path, model: &ModelProto, deployed: &Network, info: &WeightsInfo) -> Result<(u64, String), ExportError> {
    let write = |source| ExportError::Write { path: out.display().to_string(), source };
    let bytes = model.encode_to_vec();
    let mut file = temporary_beside(out).map_err(write)?;
    file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).map_err(write)?;
    let back = std::fs::read(file.path()).map_err(write)?;
    let check = check_onnx(&back, model, deployed, info)?;
    file.persist(out).map_err(|error| write(error.error))?;
    Ok((bytes.len() as u64, check))
}

fn parity(reason: impl Into<String>) -> ExportError {
    ExportError::Parity { reason: reason.into() }
}

fn check_onnx(bytes: &[u8], model: &ModelProto, deployed: &Network, info: &WeightsInfo) -> Result<String, ExportError> {
    let back = ModelProto::decode(bytes).map_err(|error| parity(format!("the model cannot be read back: {error}")))?;
    if back != *model {
        return Err(parity("the model read back is not the one that was written"));
    }
    let graph = back.graph.as_ref().ok_or_else(|| parity("the model has no graph"))?;
    let stored: HashMap<&str, &[u8]> = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor.raw_data.as_slice())).collect();
    let params = &deployed.params;
    for id in params.ids() {
        let spec = params.spec(id);
        let expected: Vec<u8> = weights::to_upstream(spec, params.get(id)).iter().flat_map(|value| value.to_le_bytes()).collect();
        if stored.get(spec.name.as_str()) != Some(&expected.as_slice()) {
            return Err(parity(format!("parameter {} is missing or changed", spec.name)));
        }
    }
    Ok(format!(
        "read back: opset {}, {} nodes, {} initializers, among them all {} parameters of the network bit for bit; input {}x{}",
        onnx::OPSET,
        graph.node.len(),
        graph.initializer.len(),
        params.specs.len(),
        info.imgsz,
        info.imgsz,
    ))
}

fn check_safetensors(path: &Path, deployed: &Network) -> Result<String, ExportError> {
    let (back, _) = weights::load(path)?;
    if back.params != deployed.params {
        return Err(parity("the weights read back are not those that were written"));
    }
    Ok(format!("read back: all {} parameters bit for bit", back.params.specs.len()))
}

/// Side of the input that both forms are run on.
const CHECK_SIDE: usize = 160;
/// Differences that are allowed in any case: far below what changes a detection.
const CLOSE: Difference = Difference { map: 1e-3, box_px: 0.05, score: 1e-3 };
/// What is never allowed. A mistake in folding changes maps by as much as they hold.
const FAR: Difference = Difference { map: 0.05, box_px: 5.0, score: 0.05 };
/// How much more than the effect of `NUDGE` is allowed in between.
const ROUNDING_MARGIN: f32 = 10.0;
/// Relative change of the input that is about as large as the rounding of all layers together.
const NUDGE: f32 = 1e-6;

/// What a network gives for one input.
struct Run {
    /// The output of every layer, and the raw maps of the head: distributions and class logits of each level.
    maps: Vec<Vec<f32>>,
    /// Boxes and scores, 4 + nc a row.
    rows: Vec<f32>,
}

/// How far apart two runs are, at the worst place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Difference {
    /// Of a layer's output or a raw map, as a part of its length. These never saturate, as boxes and scores do when activations
    /// grow beyond all measure; and a mistake shows where it is made, even where later layers forget it.
    map: f32,
    box_px: f32,
    score: f32,
}

impl Difference {
    fn between(a: &Run, b: &Run, n_classes: usize) -> Self {
        let mut worst = Self { map: 0.0, box_px: 0.0, score: 0.0 };
        for (a, b) in a.maps.iter().zip(&b.maps) {
            raise(&mut worst.map, relative_length(a, b));
        }
        for (index, (a, b)) in a.rows.iter().zip(&b.rows).enumerate() {
            raise(if index % (4 + n_classes) < 4 { &mut worst.box_px } else { &mut worst.score }, (a - b).abs());
        }
        worst
    }

    /// What may differ in a network that rounding moves by `rounding`.
    fn allowed(rounding: Self) -> Self {
        let bound = |close: f32, rounding: f32, far: f32| (rounding * ROUNDING_MARGIN).clamp(close, far);
        Self {
            map: bound(CLOSE.map, rounding.map, FAR.map),
            box_px: bound(CLOSE.box_px, rounding.box_px, FAR.box_px),
            score: bound(CLOSE.score, rounding.score, FAR.score),
        }
    }

    fn is_within(self, allowed: Self) -> bool {
        self.map <= allowed.map && self.box_px <= allowed.box_px && self.score <= allowed.score
    }
}

/// Not `max`, which would drop a value that is not a number.
fn raise(worst: &mut f32, value: f32) {
    if value.is_nan() || value > *worst {
        *worst = value;
    }
}

/// Length of the difference over the length of `a`; not a number when `a` is all zero or infinite.
fn relative_length(a: &[f32], b: &[f32]) -> f32 {
    let difference: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    let length: f64 = a.iter().map(|&a| f64::from(a).powi(2)).sum();
    (difference / length).sqrt() as f32
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { map, box_px, score } = self;
        write!(f, "layers {map:.1e} of their length, boxes {box_px:.1e} pixels, scores {score:.1e}")
    }
}

/// Runs train and deploy form on one input, and says how far apart they are.
///
/// No fixed bound fits all weights: on an input unlike what they were trained on, activations may grow a thousandfold and rounding
/// with them. So the train form is run once more on an input changed by about as much as f32 rounds, and what that does is the
/// measure.
fn check_folding(network: &Network, deployed: &Network) -> Result<String, ExportError> {
    if network.form == Form::Deploy {
        return Ok("the weights were in deploy form already".into());
    }
    let input = check_input();
    let nudged = |(index, value): (usize, &f32)| value * if index % 2 == 0 { 1.0 + NUDGE } else { 1.0 - NUDGE };
    let nudged: Vec<f32> = input.iter().enumerate().map(nudged).collect();
    let single = network.to_single();
    let trained = run(&single, &input);
    let rounding = Difference::between(&trained, &run(&single, &nudged), network.n_classes);
    let difference = Difference::between(&trained, &run(deployed, &input), network.n_classes);
    if !difference.is_within(Difference::allowed(rounding)) {
        return Err(parity(format!("train and deploy form are apart: {difference}; rounding explains {rounding}")));
    }
    Ok(format!(
        "train and deploy form agree on a {CHECK_SIDE}x{CHECK_SIDE} input, largest differences: {difference} \
         (changing the input by one part in a million: {rounding})"
    ))
}

fn run(network: &Network, input: &[f32]) -> Run {
    let mut built = network.graph(1, CHECK_SIDE, CHECK_SIDE, BnMode::Running);
    let output = built.append_decode();
    let heads = built.main.levels.iter().flat_map(|&(reg, cls)| [reg, cls]);
    let maps: Vec<TensorId> = built.layers.iter().flatten().copied().chain(heads).collect();
    let keep: Vec<TensorId> = maps.iter().copied().chain([output]).collect();
    let mut executor = Executor::new(Plan::new(built.graph, &keep));
    executor.write(built.input, input);
    executor.run_inference(&network.params);
    Run { maps: maps.into_iter().map(|map| executor.read(map)).collect(), rows: executor.read(output) }
}

/// A fixed input, smooth with edges as pictures are: slow waves of each colour, and a few plain rectangles.
fn check_input() -> Vec<f32> {
    let side = CHECK_SIDE as f32;
    let mut input = Vec::with_capacity(CHECK_SIDE * CHECK_SIDE * 3);
    for row in 0..CHECK_SIDE {
        for column in 0..CHECK_SIDE {
            let (x, y) = (column as f32 / side, row as f32 / side);
            let color = if (0.1..0.4).contains(&x) && (0.2..0.8).contains(&y) {
                [0.9, 0.2, 0.1]
            } else if (0.55..0.95).contains(&x) && (0.5..0.7).contains(&y) {
                [0.1, 0.6, 0.8]
            } else {
                [7.0, 11.0, 5.0].map(|waves| 0.5 + 0.3 * (waves * x + 4.0 * y).sin())
            };
            input.extend(color);
        }
    }
    input
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::yolo::variant::{Model, ModelSize};

    fn saved(folder: &Path) -> PathBuf {
        let path = folder.join("best.safetensors");
        let network = Network::new(Model::dual(ModelSize::T), 2, 1);
        weights::save(&path, &network, &WeightsInfo { class_names: vec!["bolt".into(), "nut".into()], imgsz: 90 }).unwrap();
        path
    }

    #[test]
    fn safetensors_hold_the_deploy_form() {
        let folder = tempfile::tempdir().unwrap();
        let weights = saved(folder.path());
        let out = folder.path().join("deploy.safetensors");
        let report = export(&weights, ExportFormat::Safetensors, &out).unwrap();
        assert_eq!(report.checks.len(), 2, "{:?}", report.checks);
        let (network, info) = weights::load(&out).unwrap();
        assert_eq!((network.model, network.form, info.imgsz), (Model::single(ModelSize::T), Form::Deploy, 96));
        assert_eq!(report.size_bytes, std::fs::metadata(&out).unwrap().len());
        // From there it can be exported again.
        let again = export(&out, ExportFormat::Onnx, &folder.path().join("again.onnx")).unwrap();
        assert!(again.checks[0].contains("already"), "{:?}", again.checks);
    }

    #[test]
    fn onnx_is_read_back_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("model.onnx");
        let options = ExportOptions { imgsz: Some(64), batch: BatchSize::Dynamic };
        let report = export_with(&saved(folder.path()), ExportFormat::Onnx, &out, options).unwrap();
        assert!(report.checks[0].contains("agree") && report.checks[1].contains("64x64"), "{:?}", report.checks);
        let model = ModelProto::decode(std::fs::read(&out).unwrap().as_slice()).unwrap();
        assert_eq!(model.graph.unwrap().output[0].name, "output0");
    }

    #[test]
    fn a_changed_parameter_is_noticed() {
        let network = Network::new(Model::single(ModelSize::T), 1, 1).to_deploy();
        let info = WeightsInfo { class_names: vec!["bolt".into()], imgsz: 64 };
        let mut model = onnx::model(&network, &info.class_names, 64, BatchSize::One);
        let mut graph = model.graph.take().unwrap();
        graph.initializer.iter_mut().find(|tensor| tensor.name == "model.1.conv.weight").unwrap().raw_data[0] ^= 1;
        model.graph = Some(graph);
        let error = check_onnx(&model.encode_to_vec(), &model, &network, &info).unwrap_err();
        assert!(error.to_string().contains("model.1.conv.weight"), "{error}");
    }

    #[test]
    fn a_wrongly_folded_network_is_refused() {
        let network = Network::new(Model::dual(ModelSize::T), 2, 1);
        let deployed = network.to_deploy();
        check_folding(&network, &deployed).unwrap();
        // One layer early, one late; as if an offset had been forgotten.
        for name in ["model.1.conv.bias", "model.22.cv3.0.2.bias"] {
            let mut wrong = deployed.clone();
            let id = wrong.params.find(name).unwrap();
            wrong.params.get_mut(id).iter_mut().for_each(|value| *value += 0.5);
            let error = check_folding(&network, &wrong).unwrap_err();
            assert!(matches!(error, ExportError::Parity { .. }) && error.hint().is_some(), "{name}: {error}");
        }
    }

    #[test]
    fn a_wrong_fold_is_refused_where_every_box_and_score_is_saturated() {
        let mut network = Network::new(Model::dual(ModelSize::T), 2, 1);
        for name in ["model.29.cv4.0.2.weight", "model.29.cv5.0.2.weight"] {
            let id = network.params.find(name).unwrap();
            network.params.get_mut(id).iter_mut().for_each(|value| *value *= 1e12);
        }
        let deployed = network.to_deploy();
        check_folding(&network, &deployed).unwrap();
        let mut wrong = deployed;
        let id = wrong.params.find("model.22.cv2.0.2.weight").unwrap();
        wrong.params.get_mut(id).iter_mut().for_each(|value| *value *= 1.5);
        assert!(check_folding(&network, &wrong).unwrap_err().to_string().contains("layers"));
    }

    #[test]
    fn the_allowed_difference_follows_rounding_within_limits() {
        let allowed = |box_px| Difference::allowed(Difference { map: 0.0, box_px, score: 0.0 });
        assert_eq!(allowed(0.0), CLOSE);
        assert_eq!(allowed(0.125), Difference { box_px: 1.25, ..CLOSE });
        assert_eq!(allowed(f32::INFINITY), Difference { box_px: FAR.box_px, ..CLOSE });
        let of = |value: f32| Run { maps: vec![vec![value]], rows: vec![1.0; 5] };
        for value in [f32::NAN, f32::INFINITY] {
            assert!(!Difference::between(&of(value), &of(value), 1).is_within(FAR), "{value}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let weights = saved(folder.path());
        let error = export(&weights, ExportFormat::Safetensors, Path::new("/no/such/folder/x.safetensors")).unwrap_err();
        assert!(matches!(error, ExportError::Write { .. }) && error.hint().is_some(), "{error}");
        let error = export(&folder.path().join("none"), ExportFormat::Onnx, &folder.path().join("x.onnx")).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
