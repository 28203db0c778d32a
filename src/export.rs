//! Weights for other programs: ONNX and safetensors, each checked before it gets its name.
//!
//! In:  a weight file and a path. Out: the deploy form of the network in the wanted format, and a report of what was checked.
//!
//! The file is written under a temporary name, read back and compared; only then is it put in place. The deploy form is also
//! run against the train form, since folding is the one step that changes numbers.
//!
//! Runs no foreign program. That a runtime which we did not write gives the same boxes is held by `tests/export_onnx.rs`.

pub mod onnx;
pub mod onnx_proto;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::engine::cpu::Executor;
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
/// Allowed differences between the forms, in input pixels and as scores: far above what folding costs in f32, far below what
/// changes a detection.
const BOX_TOLERANCE_PX: f32 = 0.05;
const SCORE_TOLERANCE: f32 = 1e-3;

/// Runs train and deploy form on one input, and says how far apart they are.
fn check_folding(network: &Network, deployed: &Network) -> Result<String, ExportError> {
    if network.form == Form::Deploy {
        return Ok("the weights were in deploy form already".into());
    }
    let (trained, folded) = (decoded(network), decoded(deployed));
    let row = 4 + network.n_classes;
    let (mut worst_box, mut worst_score) = (0.0_f32, 0.0_f32);
    for (index, (a, b)) in trained.iter().zip(&folded).enumerate() {
        let difference = (a - b).abs();
        let worst = if index % row < 4 { &mut worst_box } else { &mut worst_score };
        // `max` would drop a value that is not a number.
        *worst = if difference.is_nan() { f32::NAN } else { worst.max(difference) };
    }
    let close = worst_box <= BOX_TOLERANCE_PX && worst_score <= SCORE_TOLERANCE;
    if trained.len() != folded.len() || !close {
        return Err(parity(format!("train and deploy form are {worst_box} pixels and {worst_score} in score apart")));
    }
    Ok(format!(
        "train and deploy form agree on a {CHECK_SIDE}x{CHECK_SIDE} input: boxes within {worst_box:.1e} pixels, scores within {worst_score:.1e}"
    ))
}

/// Rows of the main head on a fixed input that looks like nothing.
fn decoded(network: &Network) -> Vec<f32> {
    let mut built = network.graph(1, CHECK_SIDE, CHECK_SIDE, BnMode::Running);
    let output = built.append_decode();
    let mut executor = Executor::new(Plan::new(built.graph, &[output]));
    // A linear congruential generator of 32 bits; the upper ones look random.
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    let image: Vec<f32> = (0..CHECK_SIDE * CHECK_SIDE * 3).map(|_| next()).collect();
    executor.write(built.input, &image);
    executor.run_inference(&network.params);
    executor.read(output)
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
