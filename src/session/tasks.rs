//! What each command's job does: calls the rooms below and turns their results into events.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "gui")]
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::OpenDataset;
use super::bench;
use super::command::{BrowseKind, Command, DetectRequest};
use super::device;
use super::doctor;
use super::event::{CommandDone, DatasetCounts, Event, PictureResult};
use super::failure::Failure;
use super::job::JobContext;
use super::opening;
use super::prelabel;
use super::training;
use crate::dataset::check;
use crate::dataset::convert;
use crate::dataset::convert::ConvertReport;
use crate::dataset::distribution;
use crate::dataset::distribution::Counted;
use crate::dataset::fix;
use crate::dataset::image_check::Depth;
use crate::dataset::image_check::ImageLooks;
use crate::dataset::sample;
use crate::dataset::sample::SampleOptions;
use crate::dataset::split;
use crate::dataset::split::SplitOptions;
use crate::dataset::{Dataset, DatasetError};
use crate::detect::output::OutputFolder;
use crate::detect::source::Source;
use crate::detect::{DetectError, Detector};
use crate::engine::cuda::error::CudaError;
use crate::eval;
use crate::eval::ValOptions;
use crate::eval::validate::ValError;
use crate::export;
use crate::media::chart::Chart;
use crate::media::decode;
use crate::media::encode;
use crate::train;
use crate::train::past_runs;
use crate::train::{ComparedRun, Hyp};
use crate::train::{SavedRun, TrainOrder};
use crate::yolo::weights;
use crate::yolo::weights::WeightsError;

/// What a job takes from the session.
pub struct Inputs {
    pub open: Option<OpenDataset>,
    pub state_dir: PathBuf,
    pub sample_dir: PathBuf,
    /// What the last check found out about images.
    pub images: Option<Arc<ImageLooks>>,
    /// For a training.
    pub orders: Receiver<TrainOrder>,
}

impl Inputs {
    fn dataset(&self) -> Option<&Arc<Dataset>> {
        self.open.as_ref().map(|open| &open.dataset)
    }
}

pub(super) type Done = Result<CommandDone, Failure>;

/// Carries out a command that needs a job.
pub fn run(command: Command, inputs: &Inputs, context: &JobContext) -> Done {
    let check_in = |done, total| context.check_in(done, total);
    match command {
        Command::Open(path) if SavedRun::is_run(&path) => open_run(&path, inputs, context),
        Command::Open(path) => opening::open(&path, &inputs.state_dir, context),
        Command::ReadLabels(path) => opening::read_labels(&path, inputs.dataset(), &inputs.state_dir, context),
        Command::Check { path, images } => check_dataset(path.as_deref(), images, inputs, context),
        Command::Fix { path, dry_run } => {
            let dataset = dataset_of(path.as_deref(), inputs)?;
            let receipt = fix::fix(&dataset, &inputs.state_dir, dry_run, &check_in)?;
            Ok(CommandDone::Fixed { receipt, dry_run })
        }
        Command::Undo { path } => {
            let dataset = dataset_of(path.as_deref(), inputs)?;
            Ok(CommandDone::Undone(fix::undo(&dataset, &inputs.state_dir)?))
        }
        Command::Count { images, training_side } => count(images, training_side, inputs),
        Command::PlanSplit(options) => plan_split(&options, inputs, context),
        Command::Convert(request) => {
            let mut told = |report: &ConvertReport| context.emit(Event::ConvertPlanned(report.clone()));
            Ok(CommandDone::Converted(convert::convert(&request, &check_in, &mut told)?))
        }
        Command::Sample { out, options } => {
            sample::write_sample(&out, &options, &check_in)?;
            Ok(CommandDone::SampleWritten { out, n_images: options.n_images })
        }
        Command::OpenSample => {
            let options = SampleOptions { broken: true, ..SampleOptions::default() };
            sample::write_sample(&inputs.sample_dir, &options, &check_in)?;
            Ok(CommandDone::SampleWritten { out: inputs.sample_dir.clone(), n_images: options.n_images })
        }
        Command::Browse(kind) => Ok(CommandDone::Browsed { kind, path: browse(kind)? }),
        Command::SavePicture { path, picture } => {
            encode::encode(&path, &picture, 95).map_err(|error| Failure::from_error(&error, None))?;
            Ok(CommandDone::PictureSaved(path))
        }
        Command::SaveChart { path, chart } => {
            save_chart(&path, &chart)?;
            Ok(CommandDone::ChartSaved(path))
        }
        Command::ReadHyp(path) => {
            // A file that cannot be taken is shown where it was chosen, not as a notice at every change of the field.
            let hyp = Hyp::read(&path).map(|(hyp, _)| Box::new(hyp)).map_err(|error| Failure::from_error(&error, None).message);
            Ok(CommandDone::HypRead { path, hyp })
        }
        Command::ListRuns(project) => {
            let runs = past_runs::list(&project)
                .map_err(|error| Failure::mendable(format!("cannot read {}: {error}", project.display()), None))?;
            Ok(CommandDone::RunsListed { project, runs })
        }
        Command::CompareRuns(dirs) => compare_runs(&dirs, context),
        Command::SaveNotes { dir, text } => {
            past_runs::write_notes(&dir, &text)?;
            Ok(CommandDone::NotesSaved { dir, text })
        }
        Command::Train(config) => {
            device::ready(config.device)?;
            Ok(CommandDone::Trained(train::train(&config, &inputs.orders, &mut |event| training::pass_on(event, context))?))
        }
        Command::Resume(request) => {
            Ok(CommandDone::Trained(train::resume(&request, &inputs.orders, &mut |event| training::pass_on(event, context))?))
        }
        Command::Follow { dir, len } => follow(dir, len, context),
        Command::Sweep(request) => training::sweep(&request, &inputs.orders, context),
        Command::PreviewBatches(config) => training::preview(&config, context),
        Command::OverfitCheck { config, n_steps } => training::overfit_check(&config, n_steps, context),
        Command::Val { data, weights, options } => val(&data, &weights, options, context),
        Command::Detect(request) => detect_pictures(&request, context),
        Command::Prelabel(request) => prelabel::run(&request, inputs, context),
        Command::Export { weights, format, out } => Ok(CommandDone::Exported(export::export(&weights, format, &out)?)),
        Command::Bench(request) => {
            device::ready(request.device)?;
            Ok(CommandDone::Benched(bench::run(&request, &check_in)?))
        }
        Command::ListDevices => Ok(CommandDone::DevicesListed(device::list())),
        Command::Doctor => Ok(CommandDone::Examined(Box::new(doctor::examine()))),
        Command::Enqueue(_) | Command::Unqueue(_) | Command::MoveQueued { .. } | Command::HoldQueue(_) | Command::RestoreQueue => {
            unreachable!("the session keeps the queue itself")
        }
        Command::Steer(_)
        | Command::Cancel(_)
        | Command::DismissNotice(_)
        | Command::LoadPicture(_)
        | Command::LoadTile(_)
        | Command::ReadDroppedRows(_)
        | Command::UseWeights(_)
        | Command::SetTheme(_)
        | Command::SetKeys(_)
        | Command::SetEditor(_)
        | Command::Tell { .. }
        | Command::RejectProposals { .. }
        | Command::BringProposalsBack
        | Command::Edit(_)
        | Command::EditClasses(_)
        | Command::ApplySplit
        | Command::MoveToSplit { .. }
        | Command::UndoEdit
        | Command::RedoEdit
        | Command::Look { .. }
        | Command::ResolveConflict { .. } => unreachable!("the session carries these out itself"),
    }
}

fn count(images: Option<Arc<[u32]>>, training_side: u32, inputs: &Inputs) -> Done {
    let Some(OpenDataset { dataset, labels, facts, .. }) = inputs.open.clone() else { return Err(no_dataset()) };
    let of = Counted { dataset, labels, facts, images, training_side };
    let distributions = distribution::distributions(&of);
    Ok(CommandDone::Counted(Arc::new(DatasetCounts { of, distributions })))
}

fn follow(dir: PathBuf, len: u64, context: &JobContext) -> Done {
    let dir = Arc::new(dir);
    let mut tell = |news| match news {
        Some(news) => context.emit(Event::Followed { dir: dir.clone(), news }),
        None if context.is_cancelled() => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    };
    train::follow::follow(&dir, len, &mut tell)
        .map_err(|error| Failure::mendable(format!("cannot go on reading the run {}: {error}", dir.display()), None))?;
    Ok(CommandDone::Followed)
}

/// Curves in the form that the ending of `path` names.
fn save_chart(path: &Path, chart: &Chart) -> Result<(), Failure> {
    let text = match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => chart.csv(),
        Some("svg") => chart.svg(),
        _ => return encode::encode(path, &chart.picture(), 95).map_err(|error| Failure::from_error(&error, None)),
    };
    Ok(train::run_folder::write_whole(path, text.as_bytes())?)
}

fn compare_runs(dirs: &[PathBuf], context: &JobContext) -> Done {
    let mut runs = Vec::new();
    for (index, dir) in dirs.iter().enumerate() {
        go_on(context.check_in(index as u64, dirs.len() as u64))?;
        let run =
            ComparedRun::read(dir).map_err(|error| Failure::mendable(format!("cannot read the run {}: {error}", dir.display()), None))?;
        runs.push(Arc::new(run));
    }
    Ok(CommandDone::RunsCompared(runs))
}

fn dataset_of(path: Option<&Path>, inputs: &Inputs) -> Result<Arc<Dataset>, Failure> {
    match (path, inputs.dataset()) {
        (Some(path), _) => Ok(Arc::new(opening::dataset_at(path)?)),
        (None, Some(dataset)) => Ok(dataset.clone()),
        (None, None) => Err(no_dataset()),
    }
}

fn no_dataset() -> Failure {
    Failure::mendable("no dataset is open", Some("open a folder or a data.yaml first".to_owned()))
}

/// Opens a run folder, and with it the dataset that it was trained on, unless one is open or it is gone.
fn open_run(dir: &Path, inputs: &Inputs, context: &JobContext) -> Done {
    let run = SavedRun::read(dir).map_err(|error| Failure::mendable(format!("cannot read the run {}: {error}", dir.display()), None))?;
    let data = run.data.clone().filter(|data| inputs.open.is_none() && data.exists());
    go_on(context.emit(Event::RunOpened(Box::new(run))))?;
    match data {
        Some(data) => opening::open(&data, &inputs.state_dir, context),
        None => Ok(CommandDone::Opened),
    }
}

fn plan_split(options: &SplitOptions, inputs: &Inputs, context: &JobContext) -> Done {
    let dataset = dataset_of(None, inputs)?;
    let labels = inputs.open.as_ref().map(|open| open.labels.clone()).unwrap_or_default();
    let plan = split::plan(&dataset, &labels, options, &|done, total| context.check_in(done, total))?;
    Ok(CommandDone::SplitPlanned(Arc::new(plan)))
}

fn check_dataset(path: Option<&Path>, images: Depth, inputs: &Inputs, context: &JobContext) -> Done {
    let dataset = dataset_of(path, inputs)?;
    let known = inputs.images.as_deref();
    let report = check::check_to(&dataset, images, known, &|done, total| context.check_in(done, total))?;
    for finding in &report.findings {
        go_on(context.emit(Event::Finding(finding.clone())))?;
    }
    Ok(CommandDone::Checked(Arc::new(report)))
}

/// The desktop's file dialog; waits until it is closed.
#[cfg(feature = "gui")]
fn browse(kind: BrowseKind) -> Result<Option<PathBuf>, Failure> {
    let start = Instant::now();
    let dialog = rfd::FileDialog::new();
    let path = match kind {
        BrowseKind::Dataset => dialog.set_title("Open a dataset folder").pick_folder(),
        BrowseKind::Pictures => dialog.set_title("Choose a folder of pictures").pick_folder(),
        BrowseKind::Weights | BrowseKind::StartWeights => {
            dialog.set_title("Choose weights").add_filter("Boxwright weights", &["safetensors"]).pick_file()
        }
        BrowseKind::HypFile => dialog.set_title("Choose hyper-parameters").add_filter("YAML", &["yaml", "yml"]).pick_file(),
        BrowseKind::ExportFile => dialog.set_title("Export to").save_file(),
    };
    // Without a dialog service the call comes back at once, as if it had been cancelled.
    if path.is_none() && start.elapsed() < QUICKEST_CANCEL {
        let hint = "type or paste the path into the field, or drop the folder on the window".to_owned();
        return Err(Failure::mendable("this desktop offers no file dialog", Some(hint)));
    }
    Ok(path)
}

#[cfg(not(feature = "gui"))]
fn browse(_: BrowseKind) -> Result<Option<PathBuf>, Failure> {
    Err(Failure::mendable("this build was made without the window (feature `gui`)", None))
}

/// No person closes a dialog faster than this.
#[cfg(feature = "gui")]
const QUICKEST_CANCEL: Duration = Duration::from_millis(150);

fn val(data: &Path, weights: &Path, options: ValOptions, context: &JobContext) -> Done {
    device::ready(options.device)?;
    let dataset = Dataset::open(data)?;
    let (network, info) = weights::load(weights)?;
    let imgsz = if options.imgsz == 0 { info.imgsz as u32 } else { options.imgsz.next_multiple_of(32) };
    let (metrics, skipped) =
        eval::validate(&network, &dataset, &ValOptions { imgsz, ..options }, &|done, total| context.check_in(done, total))?;
    Ok(CommandDone::Validated { metrics, names: dataset.names, skipped })
}

fn detect_pictures(request: &DetectRequest, context: &JobContext) -> Done {
    device::ready(request.device)?;
    request.options.check()?;
    let source = Source::find(&request.source)?;
    let mut detector = Detector::load(&request.weights, request.device)?;
    let names = Arc::new(detector.class_names.clone());
    let mut output = match &request.out {
        Some(out) => Some(OutputFolder::create(out, request.save_img, request.save_txt)?),
        None => None,
    };
    let total = source.pictures.len();
    let (mut n_detections, mut n_unreadable) = (0, 0);
    for (index, path) in source.pictures.iter().enumerate() {
        go_on(context.check_in(index as u64, total as u64))?;
        let outcome = match decode::decode(path) {
            Ok(picture) => {
                let found = detector.detect(&picture, &request.options).map_err(DetectError::from)?;
                if let Some(output) = &mut output {
                    output.write(path, &picture, &found, &names)?;
                }
                n_detections += found.detections.len();
                Ok(found)
            }
            Err(error) if source.single => return Err(DetectError::from(error).into()),
            Err(error) => {
                n_unreadable += 1;
                Err(Failure::from_error(&error, None).message)
            }
        };
        let result = Box::new(PictureResult { path: path.clone(), outcome });
        go_on(context.emit(Event::Detection { names: names.clone(), result }))?;
    }
    Ok(CommandDone::Detected { n_pictures: total, n_detections, n_unreadable, out: request.out.clone() })
}

pub(super) fn go_on(flow: ControlFlow<()>) -> Result<(), Failure> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Failure::cancelled()),
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Cancelled => Self::cancelled(),
            error => Self::from_error(&error, error.hint()),
        }
    }
}

impl From<train::TrainError> for Failure {
    fn from(error: train::TrainError) -> Self {
        match error {
            train::TrainError::Dataset(error) => error.into(),
            train::TrainError::Val(error) => error.into(),
            train::TrainError::Cancelled => Self::cancelled(),
            error => Self::from_error(&error, error.hint()),
        }
    }
}

impl From<ValError> for Failure {
    fn from(error: ValError) -> Self {
        match error {
            ValError::Cancelled => Self::cancelled(),
            ValError::Dataset(error) => error.into(),
            error => Self::from_error(&error, error.hint()),
        }
    }
}

impl From<DetectError> for Failure {
    fn from(error: DetectError) -> Self {
        match error {
            DetectError::Cancelled => Self::cancelled(),
            error => Self::from_error(&error, error.hint()),
        }
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Self::from_error(&error, error.hint().map(str::to_owned))
    }
}

impl From<WeightsError> for Failure {
    fn from(error: WeightsError) -> Self {
        Self::from_error(&error, error.hint())
    }
}

impl From<export::ExportError> for Failure {
    fn from(error: export::ExportError) -> Self {
        Self::from_error(&error, error.hint())
    }
}
