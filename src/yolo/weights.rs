//! Weight files: safetensors with upstream names, OIHW, and what the network needs to know in the metadata.
//!
//! In:  a network with class names and input size, or the path of a file that `save` wrote.
//! Out: a file, whole or not at all; or the network. Also: taking over what fits from a network with other classes.
//!
//! The metadata says model, form, class count, class names (a JSON list), input size and program version. The distribution
//! layer's constant weight is written for readers that expect upstream's names; ours does without it, and without the counters
//! of batches that upstream keeps for each batch norm. All values are f32.
//!
//! Never guesses: a file that does not match its own metadata is refused. Foreign formats are not read here.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::blocks;
use super::blocks::{HeadWidths, REG_MAX};
use super::network;
use super::network::{Form, Network};
use super::variant::Model;
use crate::engine::params::{ParamId, ParamKind, ParamSpec, Params};

/// What a weight file says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightsInfo {
    pub class_names: Vec<String>,
    /// Side of the square input that it was trained with.
    pub imgsz: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot read weights {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("cannot write weights {path}: {source}")]
    Write { path: String, source: std::io::Error },
    #[error("{path} is no safetensors file: {reason}")]
    NotSafetensors { path: String, reason: String },
    #[error("{path} is not a Boxwright weight file: {reason}")]
    Format { path: String, reason: String },
    #[error("the weights in {path} do not fit {model} with {n_classes} classes: {reason}")]
    Mismatch { path: String, model: Model, n_classes: usize, reason: String },
}

impl WeightsError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Some("trained weights lie in runs/NAME/weights/best.safetensors".into())
            }
            Self::Io { .. } => None,
            Self::Write { .. } => Some("check that the folder exists, may be written to, and has space left".into()),
            Self::NotSafetensors { path, .. } if has_ending(path, &["pt", "pth", "onnx"]) => {
                Some("give weights that this program wrote (.safetensors)".into())
            }
            Self::NotSafetensors { .. } => Some("the file may be cut off; copy it again".into()),
            Self::Format { .. } => Some("give weights that this program wrote; they carry the model's name".into()),
            Self::Mismatch { .. } => Some("the file is incomplete or was edited; use another checkpoint of the run".into()),
        }
    }
}

fn has_ending(path: &str, endings: &[&str]) -> bool {
    Path::new(path).extension().is_some_and(|ending| endings.iter().any(|other| ending.eq_ignore_ascii_case(other)))
}

/// Writes a network; atomic (temporary name, fsync, rename). The same network always gives the same bytes.
pub fn save(path: &Path, network: &Network, info: &WeightsInfo) -> Result<(), WeightsError> {
    write(path, network, info).map_err(|source| WeightsError::Write { path: path.display().to_string(), source })
}

/// Reads a network of any model, form and class count that this program wrote.
///
/// # Errors
/// The file cannot be read; is no safetensors file, or cut off; lacks the metadata; names an unknown model; or its tensors
/// are not those of the model it names (missing, of another shape or format, or not finite).
pub fn load(path: &Path) -> Result<(Network, WeightsInfo), WeightsError> {
    let bytes = std::fs::read(path).map_err(|source| WeightsError::Io { path: path.display().to_string(), source })?;
    parse(&bytes, &path.display().to_string())
}

/// What `transfer` took over and what it left as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferReport {
    /// Parameters taken.
    pub taken: usize,
    /// Parameters of the target that kept their values, each with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Copies every parameter of `source` that `target` has under the same name and in the same shape; the rest of `target`
/// stays as it is. With other classes that is all but the last layers of the class branch.
///
/// A dual source gives its main branch to a single target, and a single source fills the main branch of a dual target. Nothing is
/// taken when the forms differ: folded weights mean something else.
pub fn transfer(target: &mut Network, source: &Network) -> TransferReport {
    let mut report = TransferReport::default();
    let ids: Vec<ParamId> = target.params.ids().collect();
    let source_ids: HashMap<&str, ParamId> = source.params.ids().map(|id| (source.params.spec(id).name.as_str(), id)).collect();
    // The other way around, from names of the single model to those of the dual one that the source has.
    let dual_names: HashMap<String, &str> = source_ids
        .keys()
        .filter(|_| source.model.dual && !target.model.dual)
        .filter_map(|&name| Some((network::single_name(source.model, name)?, name)))
        .collect();
    for id in ids {
        let spec = target.params.spec(id).clone();
        let name = if target.model.dual && !source.model.dual {
            network::single_name(target.model, &spec.name)
        } else if source.model.dual && !target.model.dual {
            dual_names.get(&spec.name).map(|&name| name.to_owned())
        } else {
            Some(spec.name.clone())
        };
        let found = name.and_then(|name| source_ids.get(name.as_str()).copied());
        let reason = match found {
            _ if target.form != source.form => "one network is in train form, the other in deploy form".to_owned(),
            _ if target.model.size != source.model.size => format!("the weights are those of {}", source.model),
            None => format!("{} has no such parameter", source.model),
            Some(found) if source.params.spec(found).dims != spec.dims => {
                format!("shape {:?} in the weights, {:?} here", upstream_dims(source.params.spec(found)), upstream_dims(&spec))
            }
            Some(found) => {
                target.params.get_mut(id).copy_from_slice(source.params.get(found));
                report.taken += 1;
                continue;
            }
        };
        report.skipped.push((spec.name, reason));
    }
    report
}

fn write(path: &Path, network: &Network, info: &WeightsInfo) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // As any other file: temporary ones can be read by their owner alone.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    write_tensors(file.as_file_mut(), network, info)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The header is written here, not by the safetensors crate, because that one orders metadata differently at each call.
fn write_tensors(file: &mut File, network: &Network, info: &WeightsInfo) -> std::io::Result<()> {
    let params = &network.params;
    let constants = distribution_layers(network.model);
    let mut header = Map::new();
    header.insert("__metadata__".into(), metadata(network, info));
    let mut offset = 0;
    let mut insert = |name: &str, dims: &[usize]| {
        let end = offset + dims.iter().product::<usize>() * 4;
        header.insert(name.to_owned(), json!({"dtype": "F32", "shape": dims, "data_offsets": [offset, end]}));
        offset = end;
    };
    for spec in &params.specs {
        insert(&spec.name, &upstream_dims(spec));
    }
    for name in &constants {
        insert(name, &[1, REG_MAX, 1, 1]);
    }
    let mut header = serde_json::to_vec(&Value::Object(header))?;
    header.resize(header.len().next_multiple_of(8), b' ');

    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for id in params.ids() {
        write_values(&mut out, &to_upstream(params.spec(id), params.get(id)))?;
    }
    let bins: Vec<f32> = (0..REG_MAX).map(|bin| bin as f32).collect();
    for _ in &constants {
        write_values(&mut out, &bins)?;
    }
    out.flush()
}

fn write_values(out: &mut impl Write, values: &[f32]) -> std::io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

fn metadata(network: &Network, info: &WeightsInfo) -> Value {
    json!({
        "format": "pt", // what readers in Python look for before they take OIHW tensors
        "program": concat!("boxwright ", env!("CARGO_PKG_VERSION")),
        "model": network.model.to_string(),
        "form": form_name(network.form),
        "n_classes": network.n_classes.to_string(),
        "names": serde_json::to_string(&info.class_names).expect("a list of texts is always JSON"),
        "imgsz": info.imgsz.to_string(),
    })
}

fn form_name(form: Form) -> &'static str {
    match form {
        Form::Train => "train",
        Form::Deploy => "deploy",
    }
}

/// Names of the constant weights that turn distributions into distances.
fn distribution_layers(model: Model) -> Vec<String> {
    let head = network::head_name(model);
    let layers: &[&str] = if model.dual { &["dfl", "dfl2"] } else { &["dfl"] };
    layers.iter().map(|layer| format!("{head}.{layer}.conv.weight")).collect()
}

/// O, I, H, W for convolution weights.
pub(crate) fn upstream_dims(spec: &ParamSpec) -> Vec<usize> {
    match (spec.kind, spec.dims.as_slice()) {
        (ParamKind::ConvWeight, &[o, h, w, i]) => vec![o, i, h, w],
        (_, dims) => dims.to_vec(),
    }
}

/// OIHW from OHWI; other parameters unchanged.
pub(crate) fn to_upstream(spec: &ParamSpec, values: &[f32]) -> Vec<f32> {
    let (ParamKind::ConvWeight, &[_, n_h, n_w, n_i]) = (spec.kind, spec.dims.as_slice()) else { return values.to_vec() };
    let mut moved = Vec::with_capacity(values.len());
    for kernel in values.chunks(n_h * n_w * n_i) {
        for i in 0..n_i {
            moved.extend(kernel.iter().skip(i).step_by(n_i));
        }
    }
    moved
}

/// OHWI from OIHW; other parameters unchanged.
pub(crate) fn from_upstream(spec: &ParamSpec, values: &[f32]) -> Vec<f32> {
    let (ParamKind::ConvWeight, &[_, n_h, n_w, n_i]) = (spec.kind, spec.dims.as_slice()) else { return values.to_vec() };
    let area = n_h * n_w;
    let mut moved = Vec::with_capacity(values.len());
    for kernel in values.chunks(n_i * area) {
        for pixel in 0..area {
            moved.extend((0..n_i).map(|i| kernel[i * area + pixel]));
        }
    }
    moved
}

fn parse(bytes: &[u8], path: &str) -> Result<(Network, WeightsInfo), WeightsError> {
    let not_safetensors =
        |error: safetensors::SafeTensorError| WeightsError::NotSafetensors { path: path.into(), reason: error.to_string() };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(not_safetensors)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
    let identity = Identity::parse(header.metadata().as_ref()).map_err(|reason| WeightsError::Format { path: path.into(), reason })?;
    let Identity { model, form, n_classes, info } = identity;
    let params = read_params(&tensors, model, form, n_classes).map_err(|reason| WeightsError::Mismatch {
        path: path.into(),
        model,
        n_classes,
        reason,
    })?;
    Ok((Network { model, form, n_classes, params }, info))
}

/// What the metadata say.
struct Identity {
    model: Model,
    form: Form,
    n_classes: usize,
    info: WeightsInfo,
}

impl Identity {
    fn parse(metadata: Option<&HashMap<String, String>>) -> Result<Self, String> {
        let metadata = metadata.ok_or("it has no metadata")?;
        let field = |name: &str| metadata.get(name).ok_or_else(|| format!("its metadata have no `{name}`"));
        let number = |name: &str| {
            let text = field(name)?;
            text.parse::<usize>().ok().filter(|&number| number > 0).ok_or_else(|| format!("`{name}` is `{text}`, not a positive number"))
        };
        let model: Model = field("model")?.parse().map_err(|error: super::variant::UnknownModel| error.to_string())?;
        let form = match field("form")?.as_str() {
            "train" => Form::Train,
            "deploy" if model.dual => return Err(format!("it says that {model} is in deploy form, which has no auxiliary branch")),
            "deploy" => Form::Deploy,
            other => return Err(format!("`form` is `{other}`, not train or deploy")),
        };
        let n_classes = number("n_classes")?;
        let class_names: Vec<String> =
            serde_json::from_str(field("names")?).map_err(|error| format!("`names` is no JSON list of texts: {error}"))?;
        if class_names.len() != n_classes {
            return Err(format!("it names {} classes but says that there are {n_classes}", class_names.len()));
        }
        let imgsz = number("imgsz")?;
        if imgsz > 1 << 16 {
            return Err(format!("`imgsz` is {imgsz}"));
        }
        Ok(Self { model, form, n_classes, info: WeightsInfo { class_names, imgsz } })
    }
}

/// Checks every tensor before anything of the size that the file claims is allocated.
fn read_params(tensors: &SafeTensors, model: Model, form: Form, n_classes: usize) -> Result<Params, String> {
    let heads = if model.dual { 2 } else { 1 };
    let widths: Vec<HeadWidths> = (0..heads).map(|head| head_widths(tensors, model, head)).collect::<Result<_, _>>()?;
    let specs = network::param_specs(model, form, n_classes, Some(&widths));
    for spec in &specs {
        let tensor = tensors.tensor(&spec.name).map_err(|_| format!("{} is missing", spec.name))?;
        if tensor.dtype() != Dtype::F32 {
            return Err(format!("{} is stored as {:?}, not as F32", spec.name, tensor.dtype()));
        }
        let expected = upstream_dims(spec);
        if tensor.shape() != expected {
            return Err(format!("{} has shape {:?}, not {expected:?}", spec.name, tensor.shape()));
        }
    }
    let mut params = network::table(specs);
    let ids: Vec<ParamId> = params.ids().collect();
    for id in ids {
        let spec = params.spec(id).clone();
        let tensor = tensors.tensor(&spec.name).map_err(|_| format!("{} is missing", spec.name))?;
        let values: Vec<f32> = tensor.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(format!("{} holds {value}", spec.name));
        }
        params.get_mut(id).copy_from_slice(&from_upstream(&spec, &values));
    }
    Ok(params)
}

/// The hidden widths of a head come from the file: the released -t has another class width than the published rule gives.
fn head_widths(tensors: &SafeTensors, model: Model, head: usize) -> Result<HeadWidths, String> {
    // Wider than any head of the ten models by far; keeps a hostile file from asking for much memory.
    const WIDEST: usize = 4096;
    let width = |branch: &str| {
        let name = format!("{branch}.0.0.conv.weight");
        let tensor = tensors.tensor(&name).map_err(|_| format!("{name} is missing"))?;
        tensor
            .shape()
            .first()
            .copied()
            .filter(|width| (1..=WIDEST).contains(width))
            .ok_or_else(|| format!("{name} has shape {:?}", tensor.shape()))
    };
    let [reg, cls] = blocks::head_branches(&network::head_name(model), head);
    let (reg, cls) = (width(&reg)?, width(&cls)?);
    // The regression branch works in four groups.
    if !reg.is_multiple_of(4) {
        return Err(format!("the regression branch is {reg} channels wide, no multiple of 4"));
    }
    Ok(HeadWidths { reg, cls })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::yolo::variant::ModelSize;

    fn info(n_classes: usize) -> WeightsInfo {
        WeightsInfo { class_names: (0..n_classes).map(|class| format!("class \"{class}\" é")).collect(), imgsz: 320 }
    }

    fn saved(network: &Network) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        save(&path, network, &info(network.n_classes)).unwrap();
        (folder, path)
    }

    /// A file whose header is `change`d.
    fn edited(network: &Network, change: impl Fn(&mut Map<String, Value>)) -> Vec<u8> {
        let (_folder, path) = saved(network);
        let bytes = std::fs::read(path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        change(&mut header);
        let text = serde_json::to_vec(&header).unwrap();
        [&(text.len() as u64).to_le_bytes(), text.as_slice(), &bytes[8 + length..]].concat()
    }

    fn error(bytes: &[u8]) -> WeightsError {
        let error = parse(bytes, "w.safetensors").unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        error
    }

    #[test]
    fn what_is_saved_loads_back_equal() {
        for network in [Network::new(Model::dual(ModelSize::T), 3, 1), Network::new(Model::single(ModelSize::T), 80, 2).to_deploy()] {
            let (_folder, path) = saved(&network);
            let (back, back_info) = load(&path).unwrap();
            assert_eq!(back.params, network.params);
            assert_eq!((back.model, back.form, back.n_classes), (network.model, network.form, network.n_classes));
            assert_eq!(back_info, info(network.n_classes));
        }
    }

    #[test]
    fn saving_twice_gives_the_same_bytes() {
        let network = Network::new(Model::single(ModelSize::T), 2, 1);
        let (_a, first) = saved(&network);
        let (_b, second) = saved(&network);
        assert!(std::fs::read(first).unwrap() == std::fs::read(second).unwrap());
    }

    #[test]
    fn files_hold_oihw_under_upstream_names() {
        let network = Network::new(Model::dual(ModelSize::T), 3, 1);
        let (_folder, path) = saved(&network);
        let bytes = std::fs::read(path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor("model.1.conv.weight").unwrap();
        assert_eq!(tensor.shape(), [32, 16, 3, 3]);
        // Output 2, input 5, row 1, column 2.
        let value = f32::from_le_bytes(tensor.data()[((2 * 16 + 5) * 9 + 5) * 4..][..4].try_into().unwrap());
        let id = network.params.find("model.1.conv.weight").unwrap();
        assert_eq!(value, network.params.get(id)[(2 * 9 + 5) * 16 + 5]);
        assert_eq!(tensors.tensor("model.29.dfl2.conv.weight").unwrap().shape(), [1, 16, 1, 1]);
    }

    #[test]
    fn damaged_files_are_refused_with_a_reason_and_a_hint() {
        let network = Network::new(Model::single(ModelSize::T), 2, 1);
        let (_folder, path) = saved(&network);
        let whole = std::fs::read(path).unwrap();
        for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
            assert!(matches!(error(&whole[..length]), WeightsError::NotSafetensors { .. }), "{length}");
        }
        // A header that claims to be 2^63 bytes, one of rubbish, and one that is a list.
        let mut huge = whole.clone();
        huge[..8].copy_from_slice(&(1_u64 << 63).to_le_bytes());
        error(&huge);
        error(&[9, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE, b'{', b'{', 0, 0, 0, 0, 0]);
        error(b"\x08\0\0\0\0\0\0\0[1,2,3] ");
        error(b"PK\x03\x04 this is a zip archive and not what was asked for");

        let mut infinite = whole;
        let last = infinite.len() - 64 - 4;
        infinite[last..last + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(error(&infinite).to_string().contains("NaN"));
    }

    #[test]
    fn metadata_that_do_not_fit_are_refused_by_name() {
        let network = Network::new(Model::single(ModelSize::T), 2, 1);
        let with = |key: &str, value: &str| {
            let message = error(&edited(&network, |header| header["__metadata__"][key] = json!(value))).to_string();
            assert!(message.contains(key) || message.contains(value), "{key}={value}: {message}");
            message
        };
        assert!(with("model", "resnet").contains("yolov9-t, "));
        assert!(with("model", "gelan-s").contains("shape"));
        assert!(with("model", "yolov9-t").contains("missing"));
        with("n_classes", "-1");
        with("n_classes", "99999999999");
        with("names", "cat");
        with("names", "[\"cat\"]");
        with("imgsz", "0");
        with("form", "fused");
        let deploy = error(&edited(&network, |header| header["__metadata__"]["form"] = json!("deploy")));
        assert!(deploy.to_string().contains("model.0.conv.bias is missing"), "{deploy}");
        let bare = error(&edited(&network, |header| drop(header.remove("__metadata__"))));
        assert!(matches!(bare, WeightsError::Format { .. }), "{bare}");
        let renamed = error(&edited(&network, |header| {
            let tensor = header.remove("model.3.cv1.bn.bias").unwrap();
            header.insert("other".into(), tensor);
        }));
        assert!(renamed.to_string().contains("model.3.cv1.bn.bias is missing"), "{renamed}");
    }

    #[test]
    fn absent_files_and_folders_are_said() {
        let missing = load(Path::new("no/such/weights.safetensors")).unwrap_err();
        assert!(missing.to_string().contains("no/such/weights.safetensors") && missing.hint().is_some());
        let network = Network::new(Model::single(ModelSize::T), 1, 1);
        let unwritable = save(Path::new("no/such/weights.safetensors"), &network, &info(1)).unwrap_err();
        assert!(matches!(unwritable, WeightsError::Write { .. }));
    }

    #[test]
    fn other_classes_lose_only_the_last_class_layers() {
        let source = Network::new(Model::dual(ModelSize::S), 80, 1);
        let mut target = Network::new(Model::dual(ModelSize::S), 3, 2);
        let report = transfer(&mut target, &source);
        assert_eq!(report.skipped.len(), 2 * 3 * 2, "{:?}", report.skipped);
        assert!(report.skipped.iter().all(|(name, _)| name.contains(".2.") && (name.contains(".cv3.") || name.contains(".cv5."))));
        assert_eq!(report.taken + report.skipped.len(), target.params.specs.len());
        let value = |network: &Network| network.params.get(network.params.find("model.12.cv4.conv.weight").unwrap()).to_vec();
        assert_eq!(value(&target), value(&source));
    }

    #[test]
    fn single_weights_fill_the_main_branch_of_a_dual_network_and_back() {
        let single = Network::new(Model::single(ModelSize::T), 3, 1);
        let mut dual = Network::new(Model::dual(ModelSize::T), 3, 2);
        assert_eq!(transfer(&mut dual, &single).taken, single.params.specs.len());
        assert_eq!(dual.to_single().params, single.params);
        let mut back = Network::new(Model::single(ModelSize::T), 3, 3);
        assert_eq!(transfer(&mut back, &dual).skipped, []);
        assert_eq!(back.params, single.params);
    }

    #[test]
    fn nothing_is_taken_from_another_size_or_form() {
        let mut target = Network::new(Model::single(ModelSize::T), 3, 1);
        assert_eq!(transfer(&mut target, &Network::new(Model::single(ModelSize::S), 3, 1)).taken, 0);
        let deployed = target.to_deploy();
        assert_eq!(transfer(&mut target, &deployed).taken, 0);
    }
}
