//! The state of a run: what a resume continues from, bit for bit.
//!
//! In:  the numbers on the device and the place in the run, between two steps.
//! Out: `state/last.safetensors` and the one before it, `state/previous.safetensors`; or the newest of them that is whole.
//!
//! A file is written under another name, flushed and renamed; the last one is renamed to `previous` just before. So at any moment
//! one of the two is whole. Each carries a checksum, for disks that lie. Samples are a function of (seed, epoch, index), so
//! no random generator has to be kept.
//!
//! Arenas are those of the network's own parameter table on every device, so a run may go on on another one. Never decides
//! when to save.

use std::collections::HashMap;
use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use safetensors::Dtype;
use safetensors::SafeTensors;

use super::error::TrainError;
use super::progress::Progress;
use super::run_folder::write_error;
use super::run_folder::write_parts;
use crate::engine::Params;

/// Changes whenever an older program could not read what is written, or would go on differently.
const FORMAT: &str = "1";

/// What the steps of a run read and change on the device, in the layout of the network's own parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceState {
    pub values: Vec<f32>,
    pub averages: Vec<f32>,
    /// Accumulated since the last update, times `loss_scale`; empty where there are none.
    pub gradients: Vec<f32>,
    /// What the optimizer remembers of earlier gradients, an arena each.
    pub memory: Vec<Vec<f32>>,
    pub n_updates: usize,
    /// Updates since the loss scale last moved.
    pub n_since_scale: usize,
    /// 1 but for fp16.
    pub loss_scale: f32,
}

/// All that a resume needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainState {
    pub progress: Progress,
    pub device: DeviceState,
    /// Length of `events.jsonl` at that time.
    pub events_len: u64,
}

/// What is read instead of tensors.
#[derive(serde::Serialize, serde::Deserialize)]
struct Counters {
    progress: Progress,
    events_len: u64,
    n_updates: usize,
    n_since_scale: usize,
    loss_scale: f32,
}

/// Which of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    Last,
    Previous,
}

impl Generation {
    pub fn path(self, run_dir: &Path) -> PathBuf {
        run_dir.join("state").join(match self {
            Self::Last => "last.safetensors",
            Self::Previous => "previous.safetensors",
        })
    }
}

/// Whether a run has no state yet.
pub fn is_none(run_dir: &Path) -> bool {
    ![Generation::Last, Generation::Previous].iter().any(|generation| generation.path(run_dir).exists())
}

/// Writes a state of a network with this parameter table.
///
/// # Errors
/// The disk is full or the folder cannot be written; what was there stays.
pub fn write(run_dir: &Path, state: &TrainState, table: &Params) -> Result<(), TrainError> {
    let (last, previous) = (Generation::Last.path(run_dir), Generation::Previous.path(run_dir));
    let folder = run_dir.join("state");
    fs::create_dir_all(&folder).map_err(|source| write_error(&folder, source))?;
    let TrainState { progress, device, events_len } = state;
    let arenas = arenas(device);
    let counters = Counters {
        progress: progress.clone(),
        events_len: *events_len,
        n_updates: device.n_updates,
        n_since_scale: device.n_since_scale,
        loss_scale: device.loss_scale,
    };
    let counters = serde_json::to_string(&counters).map_err(|error| write_error(&last, error.into()))?;
    let checksum = checksum(&counters, arenas.iter().map(|(_, values)| bytemuck::cast_slice(values)));
    let metadata = HashMap::from([
        ("format".to_owned(), FORMAT.to_owned()),
        ("program".to_owned(), concat!("boxwright ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("table".to_owned(), table_hash(table)),
        ("counters".to_owned(), counters),
        ("blake3".to_owned(), checksum),
    ]);
    let header = header(&arenas, &metadata).map_err(|error| write_error(&last, error))?;
    let parts = std::iter::once(header.as_slice()).chain(arenas.iter().map(|(_, values)| bytemuck::cast_slice(values)));
    write_parts(&last, parts, || if last.exists() { fs::rename(&last, &previous) } else { Ok(()) })?;
    // Both renames are on the disk before anybody relies on them. Not every system can flush a folder.
    File::open(&folder).and_then(|folder| folder.sync_all()).ok();
    Ok(())
}

/// What was found by [`read`].
#[derive(Debug, PartialEq)]
pub struct Found {
    /// `None` if there is none yet.
    pub state: Option<TrainState>,
    pub notes: Vec<String>,
    /// A newer state that was passed over because the run diverged right after it; to be removed once the run goes on.
    pub spoilt: Option<PathBuf>,
}

/// Reads the newest state that is whole, and tells what is wrong with a newer one.
///
/// `before`: where the run diverged at that step, a state so close to it is passed over if there is an older one.
///
/// # Errors
/// There are states, but none can be read: cut off, changed, of another network, or of a program that wrote another format.
pub fn read(run_dir: &Path, table: &Params, n_memory: usize, before: Option<usize>) -> Result<Found, TrainError> {
    let mut notes = Vec::new();
    let mut error = None;
    let mut close = None;
    for generation in [Generation::Last, Generation::Previous] {
        let path = generation.path(run_dir);
        match read_file(&path, table, n_memory) {
            Ok(None) => {}
            Ok(Some(state)) if before.is_some_and(|step| state.progress.step + CLOSE > step) => close = close.or(Some((state, path))),
            Ok(Some(state)) => return Ok(Found { state: Some(state), notes, spoilt: close.map(|(_, path)| path) }),
            Err(reason) => {
                notes.push(format!("WARNING: {} cannot be used: {reason}", path.display()));
                error = error.or(Some(TrainError::State { reason, path }));
            }
        }
    }
    match (close, error) {
        (Some((state, _)), _) => Ok(Found { state: Some(state), notes, spoilt: None }),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(Found { state: None, notes, spoilt: None }),
    }
}

/// Steps before a divergence in which the weights may be spoilt already.
const CLOSE: usize = 10;

fn read_file(path: &Path, table: &Params, n_memory: usize) -> Result<Option<TrainState>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let cut_off = |error: safetensors::SafeTensorError| format!("it is cut off or changed ({error})");
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(cut_off)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(cut_off)?;
    let fields = metadata.metadata().clone().unwrap_or_default();
    let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    if field("format") != FORMAT {
        let program = if field("program").is_empty() { "another program" } else { field("program") };
        return Err(format!("{program} wrote it in format {:?}, this version reads {FORMAT:?}", field("format")));
    }
    if field("table") != table_hash(table) {
        return Err("it is of another network".to_owned());
    }
    let names = names(n_memory);
    let found: Vec<&[u8]> = names.iter().filter_map(|name| tensors.tensor(name).ok().map(|tensor| tensor.data())).collect();
    if field("blake3") != checksum(field("counters"), found.iter().copied()) {
        return Err("its checksum is wrong, so it was changed or the disk is faulty".to_owned());
    }
    let arena = |name: &str| -> Result<Vec<f32>, String> {
        let tensor = tensors.tensor(name).map_err(|_| format!("it lacks {name:?}"))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != [table.values.len()] {
            return Err(format!("{name:?} has the wrong shape"));
        }
        Ok(tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    let counters: Counters = serde_json::from_str(field("counters")).map_err(|error| format!("its counters are unreadable ({error})"))?;
    let device = DeviceState {
        values: arena("values")?,
        averages: arena("averages")?,
        gradients: if tensors.tensor("gradients").is_ok() { arena("gradients")? } else { Vec::new() },
        memory: names[FIRST_MEMORY..].iter().map(|name| arena(name)).collect::<Result<_, _>>()?,
        n_updates: counters.n_updates,
        n_since_scale: counters.n_since_scale,
        loss_scale: counters.loss_scale,
    };
    Ok(Some(TrainState { progress: counters.progress, device, events_len: counters.events_len }))
}

/// Of the tensors, in the order in which their bytes are.
fn names(n_memory: usize) -> Vec<String> {
    let fixed = ["averages", "gradients", "values"].map(str::to_owned).into_iter();
    fixed.chain((0..n_memory).map(|index| format!("memory.{index}"))).collect()
}

/// How many names come before those of the optimizer's memory.
const FIRST_MEMORY: usize = 3;

fn arenas(device: &DeviceState) -> Vec<(String, &[f32])> {
    let arenas = [&device.averages, &device.gradients, &device.values].into_iter().chain(&device.memory);
    names(device.memory.len()).into_iter().zip(arenas.map(Vec::as_slice)).filter(|(_, values)| !values.is_empty()).collect()
}

/// The beginning of a safetensors file with these tensors: everything but their bytes, which follow in order.
fn header(arenas: &[(String, &[f32])], metadata: &HashMap<String, String>) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let mut fields = serde_json::Map::new();
    fields.insert("__metadata__".to_owned(), serde_json::json!(metadata));
    for (name, values) in arenas {
        let (start, len) = (end, size_of_val(*values));
        end += len;
        fields.insert(name.clone(), serde_json::json!({"dtype": "F32", "shape": [values.len()], "data_offsets": [start, end]}));
    }
    let mut text = serde_json::to_vec(&fields)?;
    // So that the numbers begin at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([(text.len() as u64).to_le_bytes().as_slice(), &text].concat())
}

fn checksum<'a>(counters: &str, arenas: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(counters.as_bytes());
    for bytes in arenas {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    hasher.finalize().to_hex().to_string()
}

/// Of names and shapes.
fn table_hash(table: &Params) -> String {
    let mut hasher = blake3::Hasher::new();
    for spec in &table.specs {
        hasher.update(format!("{} {:?}\n", spec.name, spec.dims).as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::engine::ParamKind;
    use crate::engine::ParamSpec;

    fn table(name: &str) -> Params {
        let mut params = Params::default();
        params.add(ParamSpec { name: name.into(), kind: ParamKind::ConvBias, dims: vec![3] });
        params
    }

    fn state(step: usize, gradients: &[f32]) -> TrainState {
        let n = table("a").values.len();
        let arena = |first: f32| (0..n).map(|index| first + 0.1 * index as f32).collect::<Vec<f32>>();
        let sums = [0.1 + 0.2, 1e-300, f64::MAX];
        TrainState {
            progress: Progress { step, sums, grad_norm: 0.1, ..Progress::default() },
            device: DeviceState {
                values: arena(1.0),
                averages: arena(-0.0),
                gradients: gradients.repeat(n),
                memory: vec![arena(2.0), arena(f32::MIN_POSITIVE)],
                n_updates: 7,
                n_since_scale: 3,
                loss_scale: 65536.0,
            },
            events_len: 99,
        }
    }

    #[test]
    fn what_was_written_is_read_back_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), &table("a"), 2, None).unwrap(), Found { state: None, notes: vec![], spoilt: None });
        assert!(is_none(dir.path()));
        for gradients in [&[][..], &[0.5]] {
            write(dir.path(), &state(4, gradients), &table("a")).unwrap();
            let found = Found { state: Some(state(4, gradients)), notes: vec![], spoilt: None };
            assert_eq!(read(dir.path(), &table("a"), 2, None).unwrap(), found);
        }
        assert!(!is_none(dir.path()));
    }

    #[test]
    fn what_is_of_another_network_optimizer_or_version_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &state(4, &[]), &table("a")).unwrap();
        let refused = |table: &Params, n_memory: usize, words: &str| {
            let error = read(dir.path(), table, n_memory, None).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(&table("b"), 2, "another network");
        refused(&table("a"), 1, "checksum");
        refused(&table("a"), 3, "\"memory.2\"");
        let path = Generation::Last.path(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(12).position(|window| window == b"\"format\":\"1\"").unwrap();
        bytes[at + 10] = b'9';
        fs::write(&path, bytes).unwrap();
        refused(&table("a"), 2, "in format \"9\", this version reads \"1\"");
    }

    #[test]
    fn after_a_divergence_a_state_that_is_too_close_to_it_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let found = |before| read(dir.path(), &table("a"), 2, Some(before)).unwrap();
        let step = |before| found(before).state.map(|state| state.progress.step);
        write(dir.path(), &state(50, &[]), &table("a")).unwrap();
        assert_eq!(step(52), Some(50), "there is no other");
        write(dir.path(), &state(90, &[]), &table("a")).unwrap();
        assert_eq!([100, 99, 91].map(step), [Some(90), Some(50), Some(50)]);
        assert_eq!([100, 91].map(|before| found(before).spoilt), [None, Some(Generation::Last.path(dir.path()))]);
    }
}
