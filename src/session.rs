//! The one core behind the window and the command line: commands in, events out, and the state that both show.
//!
//! `Session::apply` is the only door that changes anything. It acts at once or starts a job; jobs report through one
//! bounded channel, which `poll` drains for the window and `wait` for the command line. State is plain data with public
//! fields, changed here alone: drawing reads it.

pub mod bench;
#[cfg(feature = "cuda")]
mod bench_gpu;
pub mod command;
pub mod device;
pub mod doctor;
pub mod dropped_rows;
mod editing;
#[cfg(test)]
mod editing_tests;
pub mod event;
pub mod failure;
pub mod job;
pub mod ledger;
pub mod ledger_news;
mod monitor;
mod opening;
mod path_index;
pub mod pictures;
pub mod prelabel;
pub mod pyramid;
pub mod queue;
mod request_queue;
pub mod settings;
pub mod tasks;
mod thumbnail_cache;
pub mod tiles;
mod training;
#[cfg(test)]
mod training_tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

pub use command::{BrowseKind, Command, DetectRequest, OpenTarget};
pub use device::DeviceOption;
pub use dropped_rows::{DroppedRow, DroppedRows, ImageRows};
pub use editing::{Conflict, Resolution};
pub use event::{CommandDone, DatasetCounts, Event, PictureResult};
pub use failure::{Failure, FailureKind};
pub use job::{JobContext, JobId, JobKind, JobMessage, JobStatus};
pub use ledger_news::{Edited, LedgerNews, LedgerReply};
pub use pictures::{LoadedPicture, PictureKey, PictureState, Pictures};
pub use prelabel::{PrelabelReport, PrelabelRequest, Proposal, Proposals};
pub use queue::{Queue, QueuedRun};
pub use settings::{EditorSettings, KeySettings, Settings, ThemeChoice};
pub use tiles::{TileKey, TileState, Tiles};

use crate::dataset::check::CheckReport;
use crate::dataset::edit::Mark;
use crate::dataset::facts::ImageFacts;
use crate::dataset::fix::Receipt;
use crate::dataset::image_check::Depth;
use crate::dataset::split::SplitPlan;
use crate::dataset::{Dataset, Label};
use crate::export::ExportReport;
use crate::media::Picture;
use crate::media::draw;
use crate::train::follow::News;
use crate::train::{Alarm, Divergence, EpochReport, EpochSamples, MachineReport, OverfitReport, Pace, SavedRun, Steering, StepReport};
use crate::train::{ComparedRun, Hyp, PastRun};
use crate::train::{SweepRow, TrainEvent, TrainOrder, TrainPlan, TrainSummary, ValReport};
use job::RunningJob;
use ledger::LedgerThread;

/// The open dataset with everything that was read of it. What changes is replaced, never changed in place, so that panels see
/// by the pointer whether something they worked out still holds.
#[derive(Clone, Debug)]
pub struct OpenDataset {
    pub dataset: Arc<Dataset>,
    /// Labels by image, in the order of `dataset.images`; empty until the reading job has finished.
    pub labels: Arc<LabelTable>,
    /// What is known of each image beside its labels, in the same order; empty until it was read.
    pub marks: Arc<Vec<Mark>>,
    /// Size, bytes and date of each image file, in the same order; empty until they were read.
    pub facts: Arc<Vec<ImageFacts>>,
    pub history: History,
    /// Colours that were chosen for classes, by their number.
    pub colors: Arc<BTreeMap<u32, [u8; 3]>>,
}

/// The labels of each image; copies share those of images that did not change.
pub type LabelTable = Vec<Arc<[Label]>>;

/// What can be undone, and what is not yet on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Name of the edit that undo would take back.
    pub undo: Option<String>,
    pub redo: Option<String>,
    /// Edits that are not yet durable.
    pub n_pending: usize,
}

impl OpenDataset {
    /// Of which nothing was read yet.
    pub fn new(dataset: Arc<Dataset>) -> Self {
        Self {
            dataset,
            labels: Arc::default(),
            marks: Arc::default(),
            facts: Arc::default(),
            history: History::default(),
            colors: Arc::default(),
        }
    }

    /// In which a class is drawn: as it was chosen, else the usual colour of its number.
    pub fn class_color(&self, class: usize) -> [u8; 3] {
        self.colors.get(&(class as u32)).copied().unwrap_or_else(|| draw::class_color(class))
    }
}

/// What is known of the latest training run, while it runs and afterwards.
#[derive(Clone, Debug, Default)]
pub struct RunView {
    /// Known once the plan is told.
    pub dir: Option<PathBuf>,
    /// Another process trains it: it is shown as it goes on, and cannot be steered from here.
    pub is_followed: bool,
    pub plan: Option<TrainPlan>,
    pub steps: Vec<StepReport>,
    pub epochs: Vec<EpochReport>,
    /// Asked for between two steps.
    pub validations: Vec<ValReport>,
    pub notes: Vec<String>,
    /// What the run was told and still holds to.
    pub steering: Steering,
    /// What ended it, if its numbers ceased to be numbers.
    pub divergence: Option<Divergence>,
    /// Over the whole run; thinned out where there are too many.
    pub machine: Vec<MachineReport>,
    pub alarms: Vec<Alarm>,
    pub pace: Option<Pace>,
    /// Pictures of the first batches.
    pub batch_pictures: Vec<PathBuf>,
    /// What was found after each epoch on some pictures of the val split.
    pub samples: Vec<Arc<EpochSamples>>,
    pub summary: Option<TrainSummary>,
    pub epochs_wanted: usize,
}

impl RunView {
    /// A run as its folder holds it.
    fn of(saved: &SavedRun) -> Self {
        let saved = saved.clone();
        let mut machine = Vec::new();
        saved.machine.into_iter().for_each(|report| monitor::keep(&mut machine, report));
        Self {
            dir: Some(saved.dir),
            is_followed: saved.is_alive,
            plan: saved.plan,
            steps: saved.steps,
            epochs: saved.epochs,
            validations: saved.validations,
            notes: saved.notes,
            steering: saved.steering,
            divergence: saved.divergence,
            machine,
            alarms: saved.alarms,
            pace: saved.pace,
            batch_pictures: saved.batch_pictures,
            samples: saved.samples,
            summary: saved.summary,
            epochs_wanted: saved.epochs_wanted,
        }
    }

    fn take_in(&mut self, event: &TrainEvent) {
        match event {
            TrainEvent::Plan(plan) => {
                if self.dir.as_ref().is_some_and(|dir| *dir != plan.run_dir) {
                    // The next run of a sweep begins.
                    *self = Self::default();
                }
                // A sweep may vary it.
                self.epochs_wanted = plan.epochs;
                self.dir = Some(plan.run_dir.clone());
                self.plan = Some(plan.clone());
            }
            TrainEvent::Step(step) => self.steps.push(*step),
            TrainEvent::Epoch(epoch) => self.epochs.push(epoch.clone()),
            TrainEvent::Validated(report) => self.validations.push(report.clone()),
            TrainEvent::Resumed { run, .. } => *self = Self { is_followed: false, ..Self::of(run) },
            TrainEvent::Steering(steering) => self.steering = *steering,
            TrainEvent::Diverged(divergence) => self.divergence = Some(divergence.clone()),
            TrainEvent::Note(note) => self.notes.push(note.clone()),
            TrainEvent::Machine(report) => monitor::keep(&mut self.machine, report.clone()),
            TrainEvent::Alarm(alarm) => self.alarms.push(alarm.clone()),
            TrainEvent::Pace(pace) => self.pace = Some(*pace),
            TrainEvent::BatchPictures(paths) => self.batch_pictures.clone_from(paths),
            TrainEvent::Samples(samples) => self.samples.push(samples.clone()),
            // Pass by; nothing of them is kept.
            TrainEvent::Saved { .. } | TrainEvent::Progress { .. } => {}
        }
    }
}

/// Orders that a training may be behind with.
const MAX_ORDERS: usize = 64;

/// A message to the person, kept until dismissed.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub id: u64,
    pub is_error: bool,
    pub text: String,
    pub hint: Option<String>,
}

/// The state of the program. Fields are for reading; `apply` changes them.
pub struct Session {
    pub settings: Settings,
    pub dataset: Option<OpenDataset>,
    pub report: Option<Arc<CheckReport>>,
    /// Of the last fix, dry run or undo.
    pub receipt: Option<Receipt>,
    /// What was counted last of the open dataset.
    pub counts: Option<Arc<DatasetCounts>>,
    pub run: Option<RunView>,
    /// Trainings that wait for the one that runs.
    pub queue: Queue,
    /// Results of the last sweep so far, in the order of its runs.
    pub sweep: Vec<SweepRow>,
    /// Pictures of the first batches, as they were asked for.
    pub batches: Arc<Vec<Picture>>,
    pub overfit: Option<OverfitReport>,
    /// Weights that the Detect and Export workspaces use: the last ones trained or opened.
    pub weights: Option<PathBuf>,
    /// Class names of the last detection.
    pub detection_names: Vec<String>,
    pub detections: Vec<PictureResult>,
    /// What detectors propose for images of the open dataset.
    pub proposals: Proposals,
    pub export: Option<ExportReport>,
    /// The file of hyper-parameters that was read last, or why it cannot be taken.
    pub hyp_file: Option<(PathBuf, Result<Box<Hyp>, String>)>,
    /// The runs below the project folder that was listed last.
    pub past_runs: Option<(PathBuf, Vec<PastRun>)>,
    /// Earlier runs that are looked at side by side.
    pub compared: Vec<Arc<ComparedRun>>,
    pub notices: Vec<Notice>,
    /// Images whose label files another program changed under edits of ours.
    pub conflicts: Vec<Conflict>,
    /// A split of the open dataset that was planned and not yet applied.
    pub split_plan: Option<Arc<SplitPlan>>,
    /// Whose images the plan counts.
    split_of: Option<Arc<Dataset>>,
    pub jobs: Vec<JobStatus>,
    pub pictures: Pictures,
    /// Of pictures that are too large for one texture.
    pub tiles: Tiles,
    /// Rows of the label file of the image that is looked at.
    pub dropped_rows: DroppedRows,
    /// What jobs can run on: the CPU, and each GPU that `Command::ListDevices` found.
    pub devices: Vec<DeviceOption>,

    /// Writes the edits of the open dataset.
    ledger: Option<LedgerThread>,
    awaited: editing::Awaited,
    running: Vec<RunningJob>,
    /// To the training that was started last, and its end of the channel.
    orders: (Sender<TrainOrder>, Receiver<TrainOrder>),
    next_id: u64,
    sender: Sender<JobMessage>,
    receiver: Receiver<JobMessage>,
    wake: Arc<dyn Fn() + Send + Sync>,
    /// For jobs that tell of every step, and can wait to be seen.
    calm_wake: Arc<dyn Fn() + Send + Sync>,
}

impl Session {
    /// A session whose jobs call `wake` when there is something to poll.
    pub fn new(settings: Settings, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        // Big enough for a burst of findings; a job whose channel is full waits with results and drops progress.
        let (sender, receiver) = bounded(1024);
        let pyramids = Arc::default();
        let pictures = Pictures::new(&pyramids, &settings.cache_dir, &wake);
        Self {
            settings,
            dataset: None,
            report: None,
            receipt: None,
            counts: None,
            run: None,
            queue: Queue::default(),
            sweep: Vec::new(),
            batches: Arc::default(),
            overfit: None,
            weights: None,
            detection_names: Vec::new(),
            detections: Vec::new(),
            proposals: Proposals::default(),
            export: None,
            hyp_file: None,
            past_runs: None,
            compared: Vec::new(),
            notices: Vec::new(),
            conflicts: Vec::new(),
            split_plan: None,
            split_of: None,
            jobs: Vec::new(),
            pictures,
            tiles: Tiles::new(pyramids, &wake),
            dropped_rows: DroppedRows::new(&wake),
            devices: vec![DeviceOption::cpu()],
            ledger: None,
            awaited: editing::Awaited::default(),
            running: Vec::new(),
            orders: bounded(MAX_ORDERS),
            next_id: 1,
            sender,
            receiver,
            calm_wake: wake.clone(),
            wake,
        }
    }

    /// What trainings call instead of `wake`: they tell of every step, and drawing each of them would cost them time.
    pub fn set_calm_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.calm_wake = wake;
    }

    /// Carries out a command, or starts the job that does.
    pub fn apply(&mut self, command: Command) {
        match command {
            Command::Cancel(id) => {
                for job in self.running.iter().filter(|job| job.id == id) {
                    job.cancel();
                }
                for status in self.jobs.iter_mut().filter(|status| status.id == id) {
                    status.stopping = true;
                }
            }
            Command::Steer(order) => self.steer(order),
            Command::RejectProposals { image, indices } => self.reject(image, &indices),
            Command::BringProposalsBack => self.bring_proposals_back(),
            Command::Edit(edit) => self.edit(edit),
            Command::EditClasses(edit) => self.edit_classes(edit),
            Command::ApplySplit => self.apply_split(),
            Command::MoveToSplit { images, split } => self.move_to_split(&images, split),
            Command::UndoEdit => self.undo_edit(),
            Command::RedoEdit => self.redo_edit(),
            Command::Look { image } => self.look(image),
            Command::ResolveConflict { image, resolution } => self.resolve(image, resolution),
            Command::Enqueue(config) => {
                self.queue.push(*config);
                self.start_queued();
                self.keep_queue();
            }
            Command::Unqueue(id) => {
                self.queue.remove(id);
                self.keep_queue();
            }
            Command::MoveQueued { id, to } => {
                self.queue.move_to(id, to);
                self.keep_queue();
            }
            Command::RestoreQueue => match Queue::read(&self.settings.queue_path()) {
                Ok(queue) => self.queue = queue,
                Err(error) => self.notice(&Failure::mendable(format!("the queue of the last time cannot be read: {error}"), None)),
            },
            Command::HoldQueue(is_held) => {
                self.queue.is_held = is_held;
                self.start_queued();
            }
            Command::DismissNotice(id) => self.notices.retain(|notice| notice.id != id),
            Command::LoadPicture(key) => self.pictures.request(key),
            Command::LoadTile(key) => self.tiles.request(key),
            Command::ReadDroppedRows(image) => self.read_dropped_rows(image),
            Command::UseWeights(path) => self.weights = Some(path),
            Command::SetTheme(theme) => {
                self.settings.theme = theme;
                self.save_settings();
            }
            Command::SetEditor(editor) => {
                self.settings.editor = editor;
                self.save_settings();
            }
            Command::SetKeys(keys) => {
                self.settings.keys = keys;
                self.save_settings();
            }
            Command::Tell { text, hint } => self.tell(false, text, hint),
            Command::Open(path) => self.open(path),
            Command::OpenSample if self.settings.sample_dir().join("data.yaml").is_file() => self.open(self.settings.sample_dir()),
            command => self.start_job(command),
        }
    }

    /// Takes in what jobs have sent, for at most `budget`; returns the events in order.
    pub fn poll(&mut self, budget: Duration) -> Vec<Event> {
        let start = Instant::now();
        self.pictures.poll();
        self.tiles.poll();
        self.dropped_rows.poll();
        let mut events = Vec::new();
        while start.elapsed() < budget {
            let Ok(message) = self.receiver.try_recv() else { break };
            events.push(self.absorb(message));
        }
        events
    }

    /// Waits for the next event; `None` when no job is left, and every edit was answered.
    pub fn wait(&mut self) -> Option<Event> {
        if self.running.is_empty() && self.awaited.n_replies == 0 {
            return None;
        }
        loop {
            match self.receiver.recv_timeout(Duration::from_millis(200)) {
                Ok(message) => return Some(self.absorb(message)),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let is_gone = self.ledger.as_ref().is_none_or(LedgerThread::is_finished);
                    if is_gone && self.running.is_empty() && self.receiver.is_empty() {
                        self.await_no_more();
                        return None;
                    }
                }
            }
        }
    }

    /// A flag that cancels the job with this id when set (for a Ctrl-C handler, which may do nothing else).
    pub fn cancel_flag(&self, id: JobId) -> Option<Arc<std::sync::atomic::AtomicBool>> {
        self.running.iter().find(|job| job.id == id).map(RunningJob::flag)
    }

    pub fn is_running(&self, kind: JobKind) -> bool {
        self.jobs.iter().any(|job| job.kind == kind)
    }

    /// The labels of an image by its index; empty while they are being read.
    pub fn labels(&self, image: usize) -> &[Label] {
        self.dataset.as_ref().and_then(|open| open.labels.get(image)).map_or(&[], |labels| &**labels)
    }

    fn read_dropped_rows(&mut self, image: usize) {
        if let Some(open) = &self.dataset
            && let Some(labels) = open.labels.get(image)
        {
            self.dropped_rows.request(&open.dataset, image, labels);
        }
    }

    fn save_settings(&mut self) {
        if let Err(error) = self.settings.save() {
            self.notice(&Failure::mendable(format!("settings were not saved: {error}"), None));
        }
    }

    /// Opens what a path turns out to be: a dataset, a run folder, or weights.
    fn open(&mut self, path: PathBuf) {
        match OpenTarget::of(&path) {
            OpenTarget::Weights(path) => self.weights = Some(path),
            OpenTarget::Run(_) if self.is_running(JobKind::Train) => {
                let hint = Some("wait for it or stop it first".to_owned());
                self.notice(&Failure::mendable("an earlier run cannot be shown while a training runs", hint));
            }
            OpenTarget::Dataset(path) | OpenTarget::Run(path) => self.start_job(Command::Open(path)),
        }
    }

    /// Of several runs only the one that was opened last is followed.
    fn follow_no_more(&mut self) {
        let ids: Vec<JobId> = self.jobs.iter().filter(|job| job.kind == JobKind::Follow).map(|job| job.id).collect();
        for job in self.running.iter().filter(|job| ids.contains(&job.id)) {
            job.cancel();
        }
    }

    fn steer(&mut self, order: TrainOrder) {
        if !self.is_running(JobKind::Train) {
            self.notice(&Failure::mendable("no training is running", None));
        } else if self.orders.0.try_send(order).is_err() {
            self.notice(&Failure::mendable("the training has not yet carried out what it was told before", None));
        }
    }

    /// Begins the next run of the queue, if nothing trains.
    fn start_queued(&mut self) {
        if !self.is_running(JobKind::Train)
            && let Some(config) = self.queue.take_next()
        {
            self.keep_queue();
            self.start_job(Command::Train(Box::new(config)));
        }
    }

    /// What waits is not lost with the program.
    fn keep_queue(&mut self) {
        if let Err(error) = self.queue.write(&self.settings.queue_path()) {
            self.notice(&Failure::mendable(format!("the queue was not saved: {error}"), None));
        }
    }

    fn start_job(&mut self, command: Command) {
        let Some(kind) = command.job_kind() else { return };
        if kind == JobKind::Follow {
            self.follow_no_more();
        } else if self.is_running(kind) {
            let text = format!("{} is already running", kind.title());
            self.notice(&Failure::mendable(text, Some("wait for it or stop it first".to_owned())));
            return;
        }
        let images = self.report.as_ref().map(|report| report.images.clone());
        self.prepare(&command);
        let id = JobId(self.next_id);
        self.next_id += 1;
        let open = self.dataset.clone();
        let (state_dir, sample_dir, orders) = (self.settings.state_dir.clone(), self.settings.sample_dir(), self.orders.1.clone());
        let inputs = tasks::Inputs { open, state_dir, sample_dir, images, orders };
        let wake = if matches!(kind, JobKind::Train | JobKind::Follow) { &self.calm_wake } else { &self.wake };
        match RunningJob::start(id, kind, self.sender.clone(), wake.clone(), move |context| tasks::run(command, &inputs, context)) {
            Ok(job) => {
                self.running.push(job);
                self.jobs.push(JobStatus { id, kind, done: 0, total: 0, stopping: false });
            }
            Err(error) => self.notice(&Failure::unexpected(format!("cannot start a thread: {error}"))),
        }
    }

    /// What a job replaces is cleared when it starts, so that old and new results are never mixed.
    fn prepare(&mut self, command: &Command) {
        match command {
            Command::Train(config) => {
                self.run = Some(RunView { epochs_wanted: config.epochs, ..RunView::default() });
                self.begin_training();
            }
            Command::Resume(_) => {
                self.run = Some(RunView::default());
                self.begin_training();
            }
            Command::Sweep(request) => {
                self.sweep.clear();
                self.run = Some(RunView { epochs_wanted: request.base.epochs, ..RunView::default() });
                self.begin_training();
            }
            Command::PreviewBatches(_) => self.batches = Arc::default(),
            Command::OverfitCheck { .. } => self.overfit = None,
            Command::PlanSplit(_) => {
                self.split_plan = None;
                self.split_of = self.dataset.as_ref().map(|open| open.dataset.clone());
            }
            Command::ReadLabels(_) => self.begin_reading(),
            Command::Detect(_) => self.detections.clear(),
            Command::Export { .. } => self.export = None,
            _ => {}
        }
    }

    fn begin_training(&mut self) {
        self.follow_no_more();
        // What an earlier training was told and did not take in is not meant for this one.
        self.orders = bounded(MAX_ORDERS);
    }

    /// Changes the state by one message of a job; returns it as an event.
    fn absorb(&mut self, message: JobMessage) -> Event {
        match message {
            JobMessage::Progress { job, done, total } => {
                for status in self.jobs.iter_mut().filter(|status| status.id == job) {
                    (status.done, status.total) = (done, total);
                }
                Event::Progress { job, done, total }
            }
            JobMessage::Event(event) => {
                self.take_in(&event);
                event
            }
            JobMessage::Finished { job, result } => {
                self.running.retain(|running| running.id != job);
                self.jobs.retain(|status| status.id != job);
                let event = match result {
                    Ok(done) => {
                        self.take_in_done(&done);
                        Event::Finished { job, done }
                    }
                    Err(failure) => {
                        // Who stopped a job knows it, and sees it end.
                        if failure.kind != FailureKind::Cancelled {
                            self.notice(&failure);
                        }
                        Event::Failed { job, failure }
                    }
                };
                self.read_if_outdated();
                self.start_queued();
                event
            }
        }
    }

    fn take_in(&mut self, event: &Event) {
        match event {
            Event::Labels { dataset, labels } => self.take_in_labels(dataset, labels),
            Event::ImageFacts { dataset, facts } => {
                if self.is_of_open(dataset)
                    && let Some(open) = &mut self.dataset
                {
                    open.facts = facts.clone();
                }
            }
            Event::Proposed { dataset, path, proposals } => self.propose(dataset, path, proposals),
            Event::ProposalsRead(read) => self.restore_proposals(read),
            Event::Ledger(reply) => self.take_in_ledger(reply),
            Event::Train(event) => self.run.get_or_insert_default().take_in(event),
            Event::Followed { dir, news } => {
                let Some(run) = self.run.as_mut().filter(|run| run.dir.as_ref() == Some(dir)) else { return };
                match news {
                    News::Event(event) => run.take_in(event),
                    News::Read(saved) => *run = RunView::of(saved),
                }
            }
            Event::SweepRow { row, summary } => {
                self.sweep.push(row.clone());
                if let Some(summary) = summary {
                    self.end_run(summary);
                }
            }
            Event::Detection { names, result } => {
                if self.detection_names != **names {
                    self.detection_names.clone_from(names);
                }
                self.detections.push((**result).clone());
            }
            Event::RunOpened(run) => {
                self.weights = Some(run.dir.join("weights").join("best.safetensors"));
                self.run = Some(RunView::of(run));
                if run.is_alive {
                    self.start_job(Command::Follow { dir: run.dir.clone(), len: run.events_len });
                }
            }
            Event::Opened(dataset) => {
                self.dataset = Some(OpenDataset::new(dataset.clone()));
                self.restore_proposals(&Arc::default());
                self.start_ledger();
                // Files may be others by now.
                self.pictures.forget();
                self.tiles.forget();
                self.report = None;
                self.receipt = None;
                self.counts = None;
                self.split_plan = None;
                self.batches = Arc::default();
                self.overfit = None;
                self.settings.remember(&dataset.source);
                self.save_settings();
            }
            Event::Finding(_)
            | Event::Progress { .. }
            | Event::Finished { .. }
            | Event::Failed { .. }
            | Event::ConvertPlanned(_)
            | Event::Note(_) => {}
        }
    }

    fn take_in_done(&mut self, done: &CommandDone) {
        match done {
            CommandDone::Checked(report) => self.report = Some(report.clone()),
            CommandDone::Fixed { receipt, dry_run } => {
                self.receipt = Some(receipt.clone());
                if !dry_run && !receipt.changes.is_empty() {
                    self.catch_up();
                    self.read_again();
                }
            }
            CommandDone::Undone(receipt) => {
                self.receipt = Some(receipt.clone());
                self.catch_up();
                self.read_again();
            }
            CommandDone::Counted(counts) => self.counts = Some(counts.clone()),
            CommandDone::SplitPlanned(plan) => self.split_plan = Some(plan.clone()),
            CommandDone::Trained(summary) => self.end_run(summary),
            CommandDone::BatchesPreviewed(pictures) => self.batches = pictures.clone(),
            CommandDone::OverfitChecked(report) => self.overfit = Some((**report).clone()),
            CommandDone::Prelabelled(report) => self.tell_prelabelled(report),
            CommandDone::Exported(report) => self.export = Some(report.clone()),
            CommandDone::HypRead { path, hyp } => self.hyp_file = Some((path.clone(), hyp.clone())),
            CommandDone::RunsListed { project, runs } => self.past_runs = Some((project.clone(), runs.clone())),
            CommandDone::RunsCompared(runs) => self.compared.clone_from(runs),
            CommandDone::NotesSaved { dir, text } => {
                for run in self.compared.iter_mut().filter(|run| run.saved.dir == *dir) {
                    Arc::make_mut(run).notes.clone_from(text);
                }
            }
            CommandDone::DevicesListed(devices) => self.devices.clone_from(devices),
            // Told by events, or only printed.
            _ => {}
        }
    }

    /// A training has come to its end, or was stopped.
    fn end_run(&mut self, summary: &TrainSummary) {
        self.weights = Some(summary.run_dir.join("weights").join("best.safetensors"));
        self.run.get_or_insert_default().summary = Some(summary.clone());
    }

    /// How closely the last check looked at images; a further one does the same.
    fn checked_depth(&self) -> Depth {
        self.report.as_ref().map_or_else(Depth::default, |report| report.images.depth)
    }

    /// Labels changed on disk: read them again and check once more.
    fn read_again(&mut self) {
        if let Some(open) = &self.dataset {
            let source = open.dataset.source.clone();
            self.start_job(Command::ReadLabels(source));
            self.start_job(Command::Check { path: None, images: self.checked_depth() });
        }
    }

    fn notice(&mut self, failure: &Failure) {
        self.tell(failure.kind != FailureKind::Cancelled, failure.message.clone(), failure.hint.clone());
    }

    fn tell(&mut self, is_error: bool, text: String, hint: Option<String>) {
        let id = self.next_id;
        self.next_id += 1;
        self.notices.push(Notice { id, is_error, text, hint });
    }
}
