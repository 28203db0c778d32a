//! What happened: the events that the window draws and `--json` prints.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::LabelTable;
use super::command::BrowseKind;
use super::device::DeviceOption;
use super::doctor::DoctorReport;
use super::failure::Failure;
use super::job::JobId;
use super::ledger_news::LedgerReply;
use super::prelabel::{PrelabelReport, Proposal};
use crate::dataset::Dataset;
use crate::dataset::check::{CheckReport, Finding};
use crate::dataset::convert::ConvertReport;
use crate::dataset::distribution::{Counted, Distributions};
use crate::dataset::facts::ImageFacts;
use crate::dataset::fix::Receipt;
use crate::dataset::split::SplitPlan;
use crate::detect::PictureDetections;
use crate::eval::Metrics;
use crate::export::ExportReport;
use crate::media::Picture;
use crate::train::follow::News;
use crate::train::{ComparedRun, Hyp, PastRun};
use crate::train::{OverfitReport, SavedRun, SweepRow, TrainEvent, TrainSummary};

/// Detections of one picture file, or why there are none.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureResult {
    pub path: PathBuf,
    pub outcome: Result<PictureDetections, String>,
}

/// How the open dataset is distributed, and what was counted for it: a panel compares by the pointers.
#[derive(Clone, Debug)]
pub struct DatasetCounts {
    pub of: Counted,
    pub distributions: Distributions,
}

#[derive(Clone, Debug)]
pub enum Event {
    Progress {
        job: JobId,
        done: u64,
        total: u64,
    },
    Opened(Arc<Dataset>),
    /// An earlier run was opened.
    RunOpened(Box<SavedRun>),
    /// The labels of this dataset, by image.
    Labels {
        dataset: Arc<Dataset>,
        labels: Arc<LabelTable>,
    },
    /// What is known of each image file of this dataset.
    ImageFacts {
        dataset: Arc<Dataset>,
        facts: Arc<Vec<ImageFacts>>,
    },
    /// What became of an edit of the open dataset.
    Ledger(Arc<LedgerReply>),
    Finding(Finding),
    /// What a detector proposes for an image of this dataset.
    Proposed {
        dataset: Arc<Dataset>,
        path: PathBuf,
        proposals: Arc<[Proposal]>,
    },
    /// Proposals that were kept for the dataset that was opened, by image.
    ProposalsRead(Arc<HashMap<PathBuf, Arc<[Proposal]>>>),
    Train(TrainEvent),
    /// Of a run that another process trains.
    Followed {
        dir: Arc<PathBuf>,
        news: News,
    },
    /// A run of a sweep has ended; without a summary where it failed.
    SweepRow {
        row: SweepRow,
        summary: Option<TrainSummary>,
    },
    Detection {
        names: Arc<Vec<String>>,
        result: Box<PictureResult>,
    },
    /// What a conversion will write and lose; comes before it writes.
    ConvertPlanned(ConvertReport),
    /// Something worth telling that stops nothing.
    Note(String),
    /// The last event of a job that went well.
    Finished {
        job: JobId,
        done: CommandDone,
    },
    /// The last event of a job that did not.
    Failed {
        job: JobId,
        failure: Failure,
    },
}

/// The result of a command.
#[derive(Clone, Debug)]
pub enum CommandDone {
    Opened,
    Checked(Arc<CheckReport>),
    Fixed {
        receipt: Receipt,
        dry_run: bool,
    },
    Undone(Receipt),
    Counted(Arc<DatasetCounts>),
    SplitPlanned(Arc<SplitPlan>),
    Converted(ConvertReport),
    SampleWritten {
        out: PathBuf,
        n_images: usize,
    },
    Trained(TrainSummary),
    /// The run that was followed is over.
    Followed,
    /// Pictures of the first batches.
    BatchesPreviewed(Arc<Vec<Picture>>),
    OverfitChecked(Box<OverfitReport>),
    /// Results of the runs, and the files that hold them.
    Swept {
        rows: Vec<SweepRow>,
        tables: Vec<PathBuf>,
    },
    Validated {
        metrics: Metrics,
        names: Vec<String>,
        skipped: Vec<String>,
    },
    Detected {
        n_pictures: usize,
        n_detections: usize,
        n_unreadable: usize,
        out: Option<PathBuf>,
    },
    Prelabelled(PrelabelReport),
    Exported(ExportReport),
    /// What was chosen in the file dialog; `None` when it was closed.
    Browsed {
        kind: BrowseKind,
        path: Option<PathBuf>,
    },
    PictureSaved(PathBuf),
    /// Curves were written.
    ChartSaved(PathBuf),
    /// A file of hyper-parameters, or why it cannot be taken.
    HypRead {
        path: PathBuf,
        hyp: Result<Box<Hyp>, String>,
    },
    RunsListed {
        project: PathBuf,
        runs: Vec<PastRun>,
    },
    RunsCompared(Vec<Arc<ComparedRun>>),
    NotesSaved {
        dir: PathBuf,
        text: String,
    },
    /// One JSON object with the figures.
    Benched(serde_json::Value),
    Examined(Box<DoctorReport>),
    /// The CPU, then each GPU.
    DevicesListed(Vec<DeviceOption>),
}
