//! What a person can ask for, from either front end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bench::BenchRequest;
use super::editing::Resolution;
use super::job::{JobId, JobKind};
use super::pictures::PictureKey;
use super::prelabel::PrelabelRequest;
use super::settings::{EditorSettings, KeySettings, ThemeChoice};
use super::tiles::TileKey;
use crate::dataset::Split;
use crate::dataset::class_edit::ClassEdit;
use crate::dataset::convert::ConvertRequest;
use crate::dataset::edit::Edit;
use crate::dataset::image_check::Depth;
use crate::dataset::sample::SampleOptions;
use crate::dataset::split::SplitOptions;
use crate::detect::DetectOptions;
use crate::engine::Device;
use crate::eval::ValOptions;
use crate::export::ExportFormat;
use crate::media::Picture;
use crate::media::chart::Chart;
use crate::train::{ResumeRequest, SavedRun, SweepRequest, TrainConfig, TrainOrder};

/// A wish. Those with a `path: Option` act on the open dataset when it is absent.
#[derive(Clone, Debug)]
pub enum Command {
    /// Opens a dataset (folder, data.yaml), a run folder or weights.
    Open(PathBuf),
    /// Reads the labels of the dataset at this path again.
    ReadLabels(PathBuf),
    Check {
        path: Option<PathBuf>,
        /// How closely images are looked at.
        images: Depth,
    },
    Fix {
        path: Option<PathBuf>,
        dry_run: bool,
    },
    /// Takes back the last edit of a dataset, of whatever kind.
    Undo {
        path: Option<PathBuf>,
    },
    /// Counts images and boxes of the open dataset; `images` `None`: of all its images.
    Count {
        images: Option<Arc<[u32]>>,
        /// Side of the square that training fits images into.
        training_side: u32,
    },
    /// Changes labels or marks of images of the open dataset, as one step of undo.
    Edit(Edit),
    /// Proposes labels for images of the open dataset.
    Prelabel(PrelabelRequest),
    /// Takes proposals of an image away, by their places among all of the image.
    RejectProposals {
        image: usize,
        indices: Vec<usize>,
    },
    /// Takes the last rejection of proposals back.
    BringProposalsBack,
    /// Changes the classes of the open dataset, with all label files that this touches.
    EditClasses(ClassEdit),
    /// Chooses a split for each image of the open dataset, to be looked at.
    PlanSplit(SplitOptions),
    /// Writes the split that was planned.
    ApplySplit,
    /// Lists these images of the open dataset in another split.
    MoveToSplit {
        images: Vec<usize>,
        split: Split,
    },
    /// Takes back the last edit of the open dataset, of whatever kind; also one of an earlier start.
    UndoEdit,
    /// Does again what was undone last.
    RedoEdit,
    /// A person turns to an image: whether its label file still says what is shown.
    Look {
        image: usize,
    },
    /// Ends the conflict of an image.
    ResolveConflict {
        image: usize,
        resolution: Resolution,
    },
    Convert(ConvertRequest),
    Sample {
        out: PathBuf,
        options: SampleOptions,
    },
    Train(Box<TrainConfig>),
    /// Goes on with a run that was stopped, killed, or is to have more epochs.
    Resume(Box<ResumeRequest>),
    /// Shows what a run tells that another process trains; `len` bytes of its events were read.
    Follow {
        dir: PathBuf,
        len: u64,
    },
    /// Trains when nothing else trains, after those that wait already.
    Enqueue(Box<TrainConfig>),
    /// Takes a run out of the queue by its id.
    Unqueue(u64),
    /// Moves a run of the queue to a place, counted from 0.
    MoveQueued {
        id: u64,
        to: usize,
    },
    /// Takes up the queue of the last time, held; for the window alone, which shows it.
    RestoreQueue,
    /// Whether runs of the queue wait even when nothing trains.
    HoldQueue(bool),
    /// Trains one run after another over a grid of values.
    Sweep(Box<SweepRequest>),
    /// Makes the first batches of a run as pictures, without training.
    PreviewBatches(Box<TrainConfig>),
    /// Trains some steps on one batch, and says whether it can be learnt.
    OverfitCheck {
        config: Box<TrainConfig>,
        n_steps: usize,
    },
    /// `options.imgsz` 0: the size that the weights were trained with.
    Val {
        data: PathBuf,
        weights: PathBuf,
        options: ValOptions,
    },
    Detect(DetectRequest),
    Export {
        weights: PathBuf,
        format: ExportFormat,
        out: PathBuf,
    },
    Bench(BenchRequest),
    /// What this machine offers, and what is missing.
    Doctor,
    /// Looks which GPUs there are, for the choice of a device.
    ListDevices,
    /// Tells the running training what to do, such as to pause.
    Steer(TrainOrder),
    /// Stops a job; what it has written stays whole.
    Cancel(JobId),
    DismissNotice(u64),
    LoadPicture(PictureKey),
    /// A part of a picture that is too large for one texture.
    LoadTile(TileKey),
    /// Reads which rows of an image's label file training does not use.
    ReadDroppedRows(usize),
    UseWeights(PathBuf),
    SetTheme(ThemeChoice),
    /// Keeps which keys do what.
    SetKeys(KeySettings),
    /// Keeps how the label editor is to be.
    SetEditor(EditorSettings),
    /// Shows the person a notice that is no error.
    Tell {
        text: String,
        hint: Option<String>,
    },
    /// Asks for a path with the desktop's file dialog.
    Browse(BrowseKind),
    /// Opens the sample dataset, which is drawn first if it is not there yet.
    OpenSample,
    /// Writes a picture, such as one of the window.
    SavePicture {
        path: PathBuf,
        picture: Arc<Picture>,
    },
    /// Writes curves as a table, vector graphics or a picture, by the ending of `path` (csv, svg, png).
    SaveChart {
        path: PathBuf,
        chart: Arc<Chart>,
    },
    /// Reads a file of hyper-parameters, to show its values.
    ReadHyp(PathBuf),
    /// Lists the runs below a project folder.
    ListRuns(PathBuf),
    /// Reads these run folders, to be looked at side by side.
    CompareRuns(Vec<PathBuf>),
    /// Keeps a person's notes in a run folder.
    SaveNotes {
        dir: PathBuf,
        text: String,
    },
}

/// What a path is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowseKind {
    /// A dataset's folder.
    Dataset,
    Weights,
    /// Weights that a training starts from.
    StartWeights,
    /// A file of hyper-parameters.
    HypFile,
    /// A folder of pictures.
    Pictures,
    /// A file to write.
    ExportFile,
}

/// Detection on files.
#[derive(Clone, Debug)]
pub struct DetectRequest {
    pub weights: PathBuf,
    /// A file, a folder, or a pattern.
    pub source: PathBuf,
    pub options: DetectOptions,
    pub device: Device,
    /// Where drawn pictures and text files go; `None` writes nothing.
    pub out: Option<PathBuf>,
    pub save_img: bool,
    pub save_txt: bool,
}

impl Command {
    /// The kind of job that carries it out, if it needs one; two of a kind never run at once.
    pub fn job_kind(&self) -> Option<JobKind> {
        Some(match self {
            Self::Open(_) => JobKind::Open,
            Self::ReadLabels(_) => JobKind::ReadLabels,
            Self::Check { .. } => JobKind::Check,
            Self::Fix { .. } => JobKind::Fix,
            Self::Undo { .. } => JobKind::Undo,
            Self::Count { .. } => JobKind::Count,
            Self::Convert(_) => JobKind::Convert,
            Self::Sample { .. } | Self::OpenSample => JobKind::Sample,
            Self::Train(_) | Self::Resume(_) | Self::Sweep(_) => JobKind::Train,
            Self::Follow { .. } => JobKind::Follow,
            Self::PreviewBatches(_) => JobKind::Preview,
            Self::OverfitCheck { .. } => JobKind::OverfitCheck,
            Self::Val { .. } => JobKind::Val,
            Self::Detect(_) => JobKind::Detect,
            Self::Prelabel(_) => JobKind::Prelabel,
            Self::Export { .. } => JobKind::Export,
            Self::Bench(_) => JobKind::Bench,
            Self::Doctor => JobKind::Doctor,
            Self::ListDevices => JobKind::ListDevices,
            Self::Browse(_) => JobKind::Browse,
            Self::Enqueue(_) | Self::Unqueue(_) | Self::MoveQueued { .. } | Self::HoldQueue(_) | Self::RestoreQueue => return None,
            Self::SavePicture { .. } | Self::SaveChart { .. } => JobKind::SavePicture,
            Self::ReadHyp(_) => JobKind::ReadHyp,
            Self::ListRuns(_) => JobKind::ListRuns,
            Self::CompareRuns(_) => JobKind::CompareRuns,
            Self::SaveNotes { .. } => JobKind::SaveNotes,
            Self::PlanSplit(_) => JobKind::PlanSplit,
            Self::Edit(_)
            | Self::RejectProposals { .. }
            | Self::BringProposalsBack
            | Self::EditClasses(_)
            | Self::ApplySplit
            | Self::MoveToSplit { .. }
            | Self::UndoEdit
            | Self::RedoEdit
            | Self::Look { .. }
            | Self::ResolveConflict { .. }
            | Self::Steer(_)
            | Self::Cancel(_)
            | Self::DismissNotice(_)
            | Self::LoadPicture(_)
            | Self::LoadTile(_)
            | Self::ReadDroppedRows(_)
            | Self::UseWeights(_)
            | Self::SetTheme(_)
            | Self::SetKeys(_)
            | Self::SetEditor(_)
            | Self::Tell { .. } => {
                return None;
            }
        })
    }
}

/// What a path given to the program turns out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenTarget {
    Dataset(PathBuf),
    /// A run folder.
    Run(PathBuf),
    Weights(PathBuf),
}

impl OpenTarget {
    /// Weights by their ending, a run folder by its `events.jsonl`, all else is tried as a dataset.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            Self::Weights(path.to_path_buf())
        } else if SavedRun::is_run(path) {
            Self::Run(path.to_path_buf())
        } else {
            Self::Dataset(path.to_path_buf())
        }
    }
}
