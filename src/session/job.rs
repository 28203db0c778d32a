//! Jobs: named threads that report progress and results, and stop when asked or when the session goes away.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;

use super::event::{CommandDone, Event};
use super::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// What a job does; two of a kind never run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    Open,
    ReadLabels,
    Check,
    Fix,
    Undo,
    Count,
    Convert,
    Sample,
    Train,
    Follow,
    Preview,
    OverfitCheck,
    Val,
    Detect,
    Prelabel,
    Export,
    Bench,
    Doctor,
    ListDevices,
    Browse,
    SavePicture,
    ReadHyp,
    ListRuns,
    CompareRuns,
    SaveNotes,
    PlanSplit,
}

impl JobKind {
    pub fn title(self) -> &'static str {
        match self {
            Self::Open => "Opening",
            Self::ReadLabels => "Reading labels",
            Self::Check => "Checking",
            Self::Fix => "Fixing",
            Self::Undo => "Undoing",
            Self::Count => "Counting",
            Self::Convert => "Converting",
            Self::Sample => "Drawing samples",
            Self::Train => "Training",
            Self::Follow => "Following a run",
            Self::Preview => "Making batches",
            Self::OverfitCheck => "Learning one batch",
            Self::Val => "Validating",
            Self::Detect => "Detecting",
            Self::Prelabel => "Pre-labelling",
            Self::Export => "Exporting",
            Self::Bench => "Measuring",
            Self::Doctor => "Looking at the machine",
            Self::ListDevices => "Looking for GPUs",
            Self::Browse => "Choosing a file",
            Self::SavePicture => "Writing a picture",
            Self::ReadHyp => "Reading hyper-parameters",
            Self::ListRuns => "Looking for runs",
            Self::CompareRuns => "Reading runs",
            Self::SaveNotes => "Writing notes",
            Self::PlanSplit => "Planning a split",
        }
    }
}

/// A running job as the window shows it; `total` 0 means not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    pub id: JobId,
    pub kind: JobKind,
    pub done: u64,
    pub total: u64,
    /// Asked to stop, and not yet gone.
    pub stopping: bool,
}

/// What jobs send to the session.
#[derive(Debug)]
pub enum JobMessage {
    Progress { job: JobId, done: u64, total: u64 },
    Event(Event),
    Finished { job: JobId, result: Result<CommandDone, Failure> },
}

/// A job's end of the channel.
pub struct JobContext {
    id: JobId,
    sender: Sender<JobMessage>,
    cancelled: Arc<AtomicBool>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl JobContext {
    /// Reports progress, and says whether it is time to stop. Progress is dropped where the front end is slow.
    pub fn check_in(&self, done: u64, total: u64) -> ControlFlow<()> {
        if self.is_cancelled() {
            return ControlFlow::Break(());
        }
        // A full channel means a slow front end: it can do without this tick.
        if self.sender.try_send(JobMessage::Progress { job: self.id, done, total }).is_ok() {
            (self.wake)();
        }
        ControlFlow::Continue(())
    }

    /// Sends an event; waits where the front end is slow. Breaks when the job should stop.
    pub fn emit(&self, event: Event) -> ControlFlow<()> {
        let gone = self.sender.send(JobMessage::Event(event)).is_err();
        (self.wake)();
        if gone || self.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// The session's end of a job. Dropping it asks the job to stop.
pub struct RunningJob {
    pub id: JobId,
    cancelled: Arc<AtomicBool>,
}

impl RunningJob {
    /// Starts `work` on a thread of its own. A panic in it becomes a failure of the job, not of the program.
    pub fn start(
        id: JobId,
        kind: JobKind,
        sender: Sender<JobMessage>,
        wake: Arc<dyn Fn() + Send + Sync>,
        work: impl FnOnce(&JobContext) -> Result<CommandDone, Failure> + Send + 'static,
    ) -> std::io::Result<Self> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let context = JobContext { id, sender, cancelled: cancelled.clone(), wake };
        std::thread::Builder::new().name(format!("job {}", kind.title().to_lowercase())).spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&context)));
            let result = outcome.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
                Err(Failure::unexpected(format!("{} failed inside: {}", kind.title(), text.unwrap_or("no message"))))
            });
            // A closed channel means that the session is gone, and nobody is left to tell.
            if context.sender.send(JobMessage::Finished { job: id, result }).is_ok() {
                (context.wake)();
            }
        })?;
        Ok(Self { id, cancelled })
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn flag(&self) -> Arc<AtomicBool> {
        self.cancelled.clone()
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.cancel();
    }
}
