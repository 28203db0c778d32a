//! Going on with a run: after a stop, a crash or a kill, or to more epochs than it was made for.
//!
//! In:  a run folder, and what is to be other than before.
//! Out: the same as from a training.
//!
//! A run goes on with its own options, from its newest state, at the exact step: what was computed after that state is computed
//! again and gives the same. Rows that the files have of those steps are cut. Without a state, which a run writes in its first
//! minute, it begins again in its folder.
//!
//! Refuses a dataset that is another one, as the stream of samples would be another one, too.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use crossbeam_channel::Receiver;

use super::dataset_print::DatasetPrint;
use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainSummary;
use super::hyp_choice::HypChoice;
use super::loader;
use super::order::TrainOrder;
use super::progress::Progress;
use super::reporter::Sink;
use super::run_folder::Kept;
use super::run_folder::RunFolder;
use super::run_folder::write_error;
use super::run_lock::RunLock;
use super::run_record::RunRecord;
use super::saved_run::SavedRun;
use super::schedule::Schedule;
use super::setup::Setup;
use super::setup::Start;
use super::state;
use super::state::Found;
use super::trainer;
use super::trainer::Begun;
use crate::dataset::Dataset;
use crate::engine::Device;

/// Which run goes on, and what is to be other than before.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeRequest {
    /// `None`: the run below `project` that was trained last.
    pub run: Option<PathBuf>,
    pub project: PathBuf,
    /// Where the dataset lies now.
    pub data: Option<PathBuf>,
    /// All epochs, with those that are done.
    pub epochs: Option<usize>,
    pub device: Option<Device>,
    pub patience: Option<usize>,
    /// Factor for the learning rate from here on.
    pub lr_scale: Option<f64>,
}

/// Goes on with a run. As [`trainer::train`] otherwise.
///
/// # Errors
/// There is no such run, it has finished, somebody trains it, its dataset has changed, or its state cannot be read; nothing was
/// changed then. Later as in a training.
pub fn resume(request: &ResumeRequest, orders: &Receiver<TrainOrder>, sink: &mut Sink) -> Result<TrainSummary, TrainError> {
    let dir = match &request.run {
        Some(dir) => dir.clone(),
        None => newest_run(&request.project)?,
    };
    let before = RunRecord::read(&dir)?;
    let lock = RunLock::take(&dir)?;
    let saved = SavedRun::read(&dir).map_err(|source| TrainError::NoRun { path: dir.join("events.jsonl"), source })?;
    let (record, mut notes) = changed(&before, request)?;
    let is_finished = saved.summary.as_ref().is_some_and(|summary| !summary.stopped);
    let goes_on = record.config.epochs > before.config.epochs || record.config.patience != before.config.patience;
    if is_finished && !goes_on {
        return Err(TrainError::Finished { epochs: record.config.epochs, path: dir });
    }
    check_dataset(&dir, &record)?;

    let is_new = state::is_none(&dir);
    let mut setup = Setup::new(&record.config, if is_new { Start::New } else { Start::State }, sink)?;
    let (table, n_memory) = (setup.stepper.average()?.params.zeros_like(), setup.hyp.rule().n_remembered());
    let diverged_at = saved.divergence.as_ref().map(|divergence| divergence.step);
    let Found { state, notes: state_notes, spoilt } = state::read(&dir, &table, n_memory, diverged_at)?;
    notes.extend(state_notes);

    let (mut progress, events_len) = match state {
        Some(state) => {
            setup.stepper.restore(&state.device, state.progress.step)?;
            (state.progress, state.events_len)
        }
        None => (Progress::default(), 0),
    };
    let n_images = setup.set.images.len();
    if progress.step > 0 && progress.n_images != n_images {
        let what = format!("{} images of its train split could be used, now {n_images} can", progress.n_images);
        return Err(TrainError::DatasetChanged { what, path: record.config.data });
    }
    if progress.step > setup.batches_per_epoch() * record.config.epochs {
        return Err(TrainError::EpochsDone { done: progress.epochs_done, asked: record.config.epochs });
    }
    if goes_on {
        // Patience begins anew: what was waited for is not what is waited for now.
        progress.waits_since = progress.epochs_done;
    }
    if progress.best.is_some() && !Kept::Best.path(&dir).is_file() {
        notes.push("WARNING: weights/best.safetensors is missing; the best epoch is looked for anew from here on".to_owned());
        progress.best = None;
    }
    if let Some(step) = diverged_at.filter(|_| request.lr_scale.is_none()) {
        notes.push(format!(
            "WARNING: the run diverged at step {step}, and will again if nothing is changed; stop it and go on with `--lr-scale 0.5`"
        ));
    }
    if record != before {
        let (hyp, _) = before.config.resolve_hyp(n_images)?;
        let old = Schedule::new(&hyp, setup.batch, loader::batches_per_epoch(n_images, setup.batch), before.config.epochs);
        let (old, new) = (old.at(progress.step.saturating_sub(1)).lr[1], setup.schedule.at(progress.step).lr[1]);
        notes.push(format!(
            "the learning rate was {old:.3e} and goes on with {new:.3e}, on the way that {} epochs take",
            record.config.epochs
        ));
        record.write(&dir)?;
    }

    remove_leftovers(&dir);
    if let Some(path) = spoilt {
        // The line that tells of the divergence goes next: nothing else would keep a later resume from this state.
        fs::remove_file(&path).map_err(|source| write_error(&path, source))?;
    }
    let folder = RunFolder::open(&dir, lock, events_len, progress.epochs_done)?;
    let saved = SavedRun::read(&dir).map_err(|source| TrainError::NoRun { path: dir.join("events.jsonl"), source })?;
    let (epoch, step) = (progress.step / setup.batches_per_epoch(), progress.step);
    let resumed = Some(TrainEvent::Resumed { run: Box::new(saved), epoch, step });
    setup.notes.extend(notes);
    trainer::go(Begun { setup, folder, progress, resumed }, orders, sink)
}

/// The record with what is to be other, and what is worth telling about it.
fn changed(before: &RunRecord, request: &ResumeRequest) -> Result<(RunRecord, Vec<String>), TrainError> {
    let mut notes = Vec::new();
    let mut record = before.clone();
    let config = &mut record.config;
    let set = |name: &str, was: String, is: String, notes: &mut Vec<String>| {
        if was != is {
            notes.push(format!("{name} was {was} and is now {is}"));
        }
    };
    if let Some(data) = &request.data {
        config.data = std::path::absolute(data).unwrap_or_else(|_| data.clone());
    }
    if let Some(epochs) = request.epochs {
        set("the number of epochs", config.epochs.to_string(), epochs.to_string(), &mut notes);
        config.epochs = epochs;
    }
    if let Some(patience) = request.patience {
        set("the patience", config.patience.to_string(), patience.to_string(), &mut notes);
        config.patience = patience;
    }
    if let Some(device) = request.device {
        set("the device", format!("{:?}", config.device), format!("{device:?}"), &mut notes);
        config.device = device;
    }
    if let (Some(scale), HypChoice::Given(hyp)) = (request.lr_scale, &mut config.hyp) {
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(TrainError::LrScale { scale });
        }
        set("lr0", hyp.lr0.to_string(), (hyp.lr0 * scale).to_string(), &mut notes);
        hyp.lr0 *= scale;
        hyp.warmup_bias_lr *= scale;
    }
    Ok((record, notes))
}

/// The run below a folder that was trained last.
fn newest_run(project: &Path) -> Result<PathBuf, TrainError> {
    let trained = |dir: &Path| -> Option<SystemTime> {
        RunRecord::path(dir).is_file().then_some(())?;
        fs::metadata(dir.join("events.jsonl")).ok()?.modified().ok()
    };
    let entries = fs::read_dir(project).map_err(|source| TrainError::NoRun { path: project.to_owned(), source })?;
    let runs = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some((trained(&path)?, path))
    });
    let newest = runs.max().map(|(_, path)| path);
    newest.ok_or_else(|| TrainError::NoRun { path: project.to_owned(), source: std::io::ErrorKind::NotFound.into() })
}

fn check_dataset(dir: &Path, record: &RunRecord) -> Result<(), TrainError> {
    let mut dataset = Dataset::open(&record.config.data)?;
    if record.config.single_cls {
        dataset.merge_classes();
    }
    let now = DatasetPrint::of(&dataset);
    if now.hash() == record.data_blake3 {
        return Ok(());
    }
    let was = DatasetPrint::read(&RunFolder::dataset_path(dir), &record.names);
    let what = was.and_then(|was| was.difference(&now)).unwrap_or_else(|| "its images or labels are others".to_owned());
    Err(TrainError::DatasetChanged { what, path: record.config.data.clone() })
}

/// Files that a killed process had not finished writing.
fn remove_leftovers(dir: &Path) {
    for folder in [dir.to_owned(), dir.join("state"), dir.join("weights"), dir.join("report"), dir.join("report").join("epochs")] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if [".writing-", ".tmp", ".boxwright-"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                // It only takes room.
                fs::remove_file(entry.path()).ok();
            }
        }
    }
}
