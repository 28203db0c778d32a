//! Who writes the edits of the open dataset? One thread, in order, through a bounded channel.
//!
//! In:  edits as they were shown, undo, redo, and images that are looked at.
//! Out: one reply for each: what is durable now, what was refused and why, what another program changed.
//!
//! Edits are shown before they are written, so an edit may be made for labels that an earlier one did not bring about because it was
//! refused. Such images take no more edits until the session says that it shows what the files hold again.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded};
use rayon::prelude::*;

use super::LabelTable;
use super::event::Event;
use super::failure::Failure;
use super::job::JobMessage;
use crate::dataset::class_edit;
use crate::dataset::class_edit::ClassEdit;
use crate::dataset::edit::{Edit, Mark};
use crate::dataset::edit_files::{self, PlanError};
use crate::dataset::fix;
use crate::dataset::ledger::record::{Record, Scope};
use crate::dataset::ledger::{self, Ledger, NewEdit, Step, Written};
use crate::dataset::split;
use crate::dataset::{Dataset, DatasetError, ImageEntry, Label, Split};

/// So many requests may wait; a person does not get there unless the disk stands still.
const MAX_WAITING: usize = 1024;

/// What the thread is asked for.
pub(super) enum Request {
    Edit {
        edit: Edit,
        /// The labels of each image of the edit, for which it was made.
        before: Vec<Arc<[Label]>>,
        /// Steps that the session knew of.
        n_steps: u64,
    },
    /// A change of the whole dataset.
    Whole {
        edit: WholeEdit,
        n_steps: u64,
    },
    Undo,
    Redo,
    /// Whether the label file of an image still says what is shown.
    Look {
        image: usize,
        shown: Arc<[Label]>,
        n_steps: u64,
    },
    /// These images show what their files hold again.
    Settled(Vec<usize>),
    /// Another job has written to the ledger.
    CatchUp,
}

/// A change of more than labels.
#[derive(Clone, Debug)]
pub(super) enum WholeEdit {
    Classes(ClassEdit),
    /// A split for each image.
    Splits {
        name: String,
        splits: Vec<Split>,
    },
}

/// An answer to one request.
#[derive(Debug)]
pub struct LedgerReply {
    /// The thread that it comes from: those of a dataset that is no longer open mean nothing.
    pub(super) of: u64,
    /// Undo, redo and whole-dataset edits so far.
    pub(super) n_steps: u64,
    /// The request was an edit, undo or redo.
    pub(super) is_edit: bool,
    pub news: Vec<LedgerNews>,
    /// What undo and redo would do now.
    pub undo: Option<String>,
    pub redo: Option<String>,
    /// Colours that were chosen for classes.
    pub(super) colors: BTreeMap<u32, [u8; 3]>,
}

#[derive(Debug)]
pub enum LedgerNews {
    /// The ledger was opened: what is known of each image.
    Read {
        marks: Vec<Mark>,
    },
    /// An edit, undo or redo is durable.
    Edited(Edited),
    Refused(Refused),
    /// The label file of an image says something else than what was shown.
    Changed {
        image: usize,
        base: Arc<[Label]>,
        theirs: Arc<[Label]>,
    },
    /// Classes or splits are others now.
    Reopened(Reopened),
    Note(String),
}

/// The dataset after a change of the whole.
#[derive(Debug)]
pub struct Reopened {
    pub(super) dataset: Arc<Dataset>,
    /// For each image its number in the dataset before; `None` where all are as before.
    pub(super) order: Option<Vec<Option<usize>>>,
    /// All labels, where more than those of files that were written may be others.
    pub(super) labels: Option<Arc<LabelTable>>,
    pub(super) marks: Vec<Mark>,
}

/// What is on disk now.
#[derive(Debug)]
pub struct Edited {
    /// The number of the record; 0 where there was nothing to write.
    pub id: u64,
    pub name: String,
    pub step: Step,
    pub scope: Scope,
    /// Files that were written.
    pub files: Vec<PathBuf>,
    /// Files that were left alone, with the reason.
    pub left: Vec<(PathBuf, String)>,
    /// Why not everything was written, if the disk was the reason.
    pub failed: Option<Failure>,
    pub images: Vec<(usize, Arc<[Label]>)>,
    pub marks: Vec<(usize, Mark)>,
}

/// What could not be done, and what the files hold.
#[derive(Debug)]
pub struct Refused {
    pub name: String,
    /// `None` where the reason was told with an earlier edit.
    pub failure: Option<Failure>,
    pub images: Vec<(usize, Arc<[Label]>)>,
    pub marks: Vec<(usize, Mark)>,
}

/// The session's end. Dropping it waits until everything that was asked for is on disk.
pub(super) struct LedgerThread {
    pub(super) id: u64,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    /// Nobody listens any more.
    is_closing: Arc<AtomicBool>,
}

impl LedgerThread {
    /// Starts the thread, which sends a first reply when it has read the ledger.
    pub(super) fn start(
        id: u64,
        dataset: Arc<Dataset>,
        state_dir: PathBuf,
        sender: Sender<JobMessage>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let (requests, inbox) = bounded(MAX_WAITING);
        let is_closing = Arc::new(AtomicBool::new(false));
        let outbox = Outbox { sender, wake, is_closing: is_closing.clone() };
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            Writer::new(id, dataset, state_dir).run(&inbox, &outbox);
        })?;
        Ok(Self { id, requests: Some(requests), thread: Some(thread), is_closing })
    }

    /// Asks for something; `false` when too much waits already.
    pub(super) fn ask(&self, request: Request) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.try_send(request).is_ok())
    }
}

impl Drop for LedgerThread {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told on stderr; there is nothing left to do about it.
            thread.join().ok();
        }
    }
}

struct Outbox {
    sender: Sender<JobMessage>,
    wake: Arc<dyn Fn() + Send + Sync>,
    is_closing: Arc<AtomicBool>,
}

impl Outbox {
    /// Sends a reply, unless nobody listens: then edits are still written.
    fn send(&self, reply: LedgerReply) {
        let mut message = JobMessage::Event(Event::Ledger(Arc::new(reply)));
        while !self.is_closing.load(Ordering::Relaxed) {
            match self.sender.send_timeout(message, Duration::from_millis(20)) {
                Err(SendTimeoutError::Timeout(again)) => message = again,
                Ok(()) | Err(SendTimeoutError::Disconnected(_)) => break,
            }
        }
        (self.wake)();
    }
}

/// The thread's state.
struct Writer {
    id: u64,
    dataset: Arc<Dataset>,
    state_dir: PathBuf,
    ledger: Option<Ledger>,
    by_label: PathIndex,
    by_image: PathIndex,
    /// Images of refused edits, which the session shows otherwise than they are.
    stale: HashSet<usize>,
    n_steps: u64,
    /// The step that last made other images or classes of the dataset: what was asked for before it does not fit.
    reopened_at: u64,
}

impl Writer {
    fn new(id: u64, dataset: Arc<Dataset>, state_dir: PathBuf) -> Self {
        let by_label = PathIndex::new(dataset.images.iter().map(|image| &*image.label_path));
        let by_image = PathIndex::new(dataset.images.iter().map(|image| &*image.path));
        Self { id, dataset, state_dir, ledger: None, by_label, by_image, stale: HashSet::new(), n_steps: 0, reopened_at: 0 }
    }

    fn run(mut self, inbox: &Receiver<Request>, outbox: &Outbox) {
        let news = self.first_news();
        outbox.send(self.reply(news, false));
        for request in inbox {
            let is_edit = matches!(request, Request::Edit { .. } | Request::Whole { .. } | Request::Undo | Request::Redo);
            let news = match request {
                Request::Edit { edit, before, n_steps } => self.edit(edit, &before, n_steps),
                Request::Whole { edit, n_steps } => self.whole(edit, n_steps),
                Request::Undo => self.step(Step::Undo),
                Request::Redo => self.step(Step::Redo),
                Request::Look { image, shown, n_steps } => self.look(image, shown, n_steps),
                Request::Settled(images) => {
                    self.stale.retain(|image| !images.contains(image));
                    continue;
                }
                Request::CatchUp => match self.opened().and_then(Ledger::catch_up) {
                    Ok(()) => Vec::new(),
                    Err(error) => vec![LedgerNews::Note(Failure::from(error).message)],
                },
            };
            outbox.send(self.reply(news, is_edit));
        }
    }

    fn reply(&mut self, mut news: Vec<LedgerNews>, is_edit: bool) -> LedgerReply {
        let (undo, redo, colors) = match &mut self.ledger {
            Some(ledger) => {
                news.extend(ledger.take_notes().into_iter().map(LedgerNews::Note));
                let undo = ledger.undo_name().or_else(|| fix::has_batch(&self.dataset, &self.state_dir).then(|| "Fix".to_owned()));
                (undo, ledger.redo_name(), ledger.colors().clone())
            }
            None => (None, None, BTreeMap::new()),
        };
        LedgerReply { of: self.id, n_steps: self.n_steps, is_edit, news, undo, redo, colors }
    }

    fn opened(&mut self) -> Result<&mut Ledger, DatasetError> {
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => Ledger::open(&self.state_dir, &self.dataset.root)?,
        };
        Ok(self.ledger.insert(ledger))
    }

    fn first_news(&mut self) -> Vec<LedgerNews> {
        match self.opened() {
            Ok(_) => vec![LedgerNews::Read { marks: self.marks() }],
            Err(error) => vec![refused("opening the ledger of edits".to_owned(), Some(error.into()))],
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let mark = |path: &Path| self.ledger.as_ref().map(|ledger| ledger.mark(path)).unwrap_or_default();
        self.dataset.images.iter().map(|image| mark(&image.path)).collect()
    }

    fn edit(&mut self, edit: Edit, before: &[Arc<[Label]>], n_steps: u64) -> Vec<LedgerNews> {
        let dataset = self.dataset.clone();
        let images: Vec<usize> = edit.images.iter().map(|each| each.image).collect();
        if n_steps < self.reopened_at {
            // The numbers are of other images.
            return vec![refused(edit.name.clone(), Some(outdated(&edit.name)))];
        }
        if images.iter().any(|image| self.stale.contains(image)) {
            return vec![self.refuse(edit.name, None, &images)];
        }
        let mut news = Vec::new();
        let mut changes = Vec::new();
        let mut marks = Vec::new();
        for (each, before) in edit.images.iter().zip(before) {
            match edit_files::plan(&dataset, each, before) {
                Ok(change) => {
                    changes.extend(change);
                    marks.extend(each.mark.clone().map(|mark| (each.image, mark)));
                }
                Err(PlanError::Changed { now }) if n_steps == self.n_steps => {
                    self.stale.insert(each.image);
                    news.push(LedgerNews::Changed { image: each.image, base: before.clone(), theirs: now.into() });
                }
                Err(PlanError::Changed { .. } | PlanError::NoSuchLabel) => {
                    let failure = outdated(&edit.name);
                    news.push(self.refuse(edit.name, Some(failure), &images));
                    return news;
                }
                Err(PlanError::Dataset(error)) => {
                    let failure = Failure::from(error).about(&format!("{} was not done: ", edit.name));
                    news.push(self.refuse(edit.name, Some(failure), &images));
                    return news;
                }
            }
        }
        // Two images with one label file: what is asked for twice is done once.
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes.dedup();
        if changes.windows(2).any(|pair| pair[0].path == pair[1].path) {
            let failure = Failure::mendable(format!("{} was not done: two images share one label file", edit.name), None);
            return vec![self.refuse(edit.name, Some(failure), &images)];
        }
        if changes.is_empty() && marks.is_empty() {
            if news.is_empty() {
                let (images, marks) = (self.truth(&images), Vec::new());
                news.push(LedgerNews::Edited(Edited::of_nothing(edit.name, images, marks)));
            }
            return news;
        }
        let written = self.opened().and_then(|ledger| {
            let marks = marks.into_iter().map(|(image, mark)| ledger.mark_change(&dataset.images[image].path, mark)).collect();
            let new = NewEdit { name: edit.name.clone(), files: changes, marks, ..NewEdit::default() };
            ledger.write(new, &|| ControlFlow::Continue(()))
        });
        match written {
            Ok(Written { id: None, left, .. }) => {
                let (path, reason) = left.first().cloned().unwrap_or_default();
                let text = format!("{} was not done: {} {reason}", edit.name, dataset.relative(&path).display());
                let failure = Failure::mendable(text, Some("see to the file, then try again".to_owned()));
                news.push(self.refuse(edit.name, Some(failure), &images));
            }
            Ok(written) => {
                if !written.left.is_empty() || written.failed.is_some() {
                    self.stale.extend(&images);
                }
                news.push(self.edited(written, &images));
            }
            Err(error) => {
                let failure = Failure::from(error).about(&format!("{} was not done: ", edit.name));
                news.push(self.refuse(edit.name, Some(failure), &images));
            }
        }
        news
    }

    fn step(&mut self, step: Step) -> Vec<LedgerNews> {
        let what = if step == Step::Undo { "undo" } else { "redo" };
        let written = self.opened().and_then(|ledger| if step == Step::Undo { ledger.undo() } else { ledger.redo() });
        match written {
            Ok(Some(written)) => {
                self.n_steps += 1;
                self.edited_and_reopened(written)
            }
            Ok(None) if step == Step::Undo && fix::has_batch(&self.dataset, &self.state_dir) => self.undo_batch(),
            Ok(None) => {
                let failure = Failure::mendable(format!("there is nothing to {what}"), None);
                vec![refused(what.to_owned(), Some(failure))]
            }
            Err(error) => vec![refused(what.to_owned(), Some(Failure::from(error).about(&format!("{what} was not done: "))))],
        }
    }

    /// Changes classes or splits.
    fn whole(&mut self, edit: WholeEdit, n_steps: u64) -> Vec<LedgerNews> {
        let name = match &edit {
            WholeEdit::Classes(_) => "changing classes".to_owned(),
            WholeEdit::Splits { name, .. } => name.clone(),
        };
        if n_steps < self.reopened_at {
            return vec![refused(name.clone(), Some(outdated(&name)))];
        }
        let dataset = self.dataset.clone();
        let written = self.opened().and_then(|ledger| {
            ledger.catch_up()?;
            let new = match edit {
                WholeEdit::Classes(edit) => class_edit::plan(&dataset, ledger, &edit)?,
                WholeEdit::Splits { name, splits } => split::edit(&dataset, &splits, name)?,
            };
            ledger.write(new, &|| ControlFlow::Continue(()))
        });
        match written {
            Ok(Written { id: None, left, .. }) if !left.is_empty() => {
                let (path, reason) = left.first().cloned().unwrap_or_default();
                let text = format!("{name} was not done: {} {reason}", dataset.relative(&path).display());
                vec![refused(name, Some(Failure::mendable(text, Some("see to the file, then try again".to_owned()))))]
            }
            Ok(written) => {
                self.n_steps += 1;
                self.edited_and_reopened(written)
            }
            Err(error) => vec![refused(name, Some(error.into()))],
        }
    }

    fn edited_and_reopened(&mut self, written: Written) -> Vec<LedgerNews> {
        let scope = written.record.scope;
        let mut news = vec![self.edited(written, &[])];
        let reopened = match scope {
            Scope::Labels | Scope::Fixes => return news,
            Scope::Classes => class_edit::reread_names(&self.dataset),
            // data.yaml may have come or gone.
            Scope::Splits if self.dataset.source.is_file() => Dataset::open(&self.dataset.source),
            Scope::Splits => Dataset::open(&self.dataset.root),
        };
        match reopened {
            Ok(dataset) => news.push(self.reopen(dataset)),
            Err(error) => news.push(LedgerNews::Note(Failure::from(error).about("the dataset cannot be opened again: ").message)),
        }
        news
    }

    fn reopen(&mut self, dataset: Dataset) -> LedgerNews {
        let before = std::mem::replace(&mut self.dataset, Arc::new(dataset));
        self.reopened_at = self.n_steps;
        let dataset = self.dataset.clone();
        let is_same = before.images == dataset.images;
        let order = (!is_same).then(|| {
            let of = |image: &ImageEntry| self.by_image.find(&image.path, |index| &before.images[index].path).next();
            dataset.images.iter().map(of).collect::<Vec<_>>()
        });
        if !is_same {
            self.by_label = PathIndex::new(dataset.images.iter().map(|image| &*image.label_path));
            self.by_image = PathIndex::new(dataset.images.iter().map(|image| &*image.path));
            self.stale.clear();
        }
        // Rows of a class that was not there before are labels now, wherever they are.
        let is_new = before.names.len() != dataset.names.len() || order.as_ref().is_some_and(|order| order.contains(&None));
        let labels = is_new.then(|| {
            let read = |image: &ImageEntry| dataset.labels(image).unwrap_or_default().into();
            Arc::new(dataset.images.par_iter().map(read).collect::<LabelTable>())
        });
        let marks = self.marks();
        LedgerNews::Reopened(Reopened { dataset, order, labels, marks })
    }

    /// Takes back what an earlier version of the program fixed.
    fn undo_batch(&mut self) -> Vec<LedgerNews> {
        match fix::undo_batch(&self.dataset, &self.state_dir) {
            Ok(receipt) => {
                self.n_steps += 1;
                let record = Record { name: receipt.name, scope: Scope::Fixes, ..Record::default() };
                let absolute = |path: PathBuf| self.dataset.root.join(path);
                let written = receipt.files.into_iter().map(absolute).collect();
                let left = receipt.refused.into_iter().map(|(path, reason)| (absolute(path), reason)).collect();
                vec![self.edited(Written { id: None, step: Step::Undo, record, written, left, failed: None }, &[])]
            }
            Err(error) => vec![refused("undo".to_owned(), Some(Failure::from(error)))],
        }
    }

    fn look(&mut self, image: usize, shown: Arc<[Label]>, n_steps: u64) -> Vec<LedgerNews> {
        if n_steps != self.n_steps || self.stale.contains(&image) {
            return Vec::new();
        }
        let truth = self.truth(&[image]);
        let changed = truth.into_iter().find(|(each, theirs)| *each == image && !edit_files::is_same(&self.dataset, theirs, &shown));
        let Some((_, theirs)) = changed else { return Vec::new() };
        self.stale.insert(image);
        vec![LedgerNews::Changed { image, base: shown, theirs }]
    }

    /// What came of a record: the labels and marks of the images that it touched, and of those that were asked for.
    fn edited(&self, written: Written, asked: &[usize]) -> LedgerNews {
        let Written { id, step, record, written, left, failed } = written;
        let mut images: Vec<usize> = asked.to_vec();
        let of_files = written.iter().chain(left.iter().map(|(path, _)| path));
        images.extend(of_files.flat_map(|path| self.by_label.find(path, |index| &self.dataset.images[index].label_path)));
        images.sort_unstable();
        images.dedup();
        let ledger = self.ledger.as_ref();
        let marked = record.marks.iter().map(|change| change.path(&self.dataset.root));
        let marks = marked
            .flat_map(|path| self.by_image.find(&path, |index| &self.dataset.images[index].path).collect::<Vec<_>>())
            .filter_map(|index| Some((index, ledger?.mark(&self.dataset.images[index].path))))
            .collect();
        LedgerNews::Edited(Edited {
            id: id.unwrap_or(0),
            name: record.name,
            step,
            scope: record.scope,
            files: written,
            left: left.into_iter().map(|(path, reason)| (self.dataset.relative(&path), reason)).collect(),
            failed: failed.map(Failure::from),
            images: self.truth(&images),
            marks,
        })
    }

    fn refuse(&mut self, name: String, failure: Option<Failure>, images: &[usize]) -> LedgerNews {
        self.stale.extend(images);
        let marks = images.iter().filter_map(|&image| Some((image, self.ledger.as_ref()?.mark(&self.dataset.images[image].path))));
        LedgerNews::Refused(Refused { name, failure, marks: marks.collect(), images: self.truth(images) })
    }

    /// What the label files of these images hold. Of a file that is no label file there are no labels.
    fn truth(&self, images: &[usize]) -> Vec<(usize, Arc<[Label]>)> {
        let read = |&image: &usize| {
            let bytes = ledger::read(&self.dataset.images[image].label_path).ok()?;
            Some((image, edit_files::labels(&self.dataset, image, bytes.as_deref()).unwrap_or_default().into()))
        };
        images.iter().filter_map(read).collect()
    }
}

impl Edited {
    fn of_nothing(name: String, images: Vec<(usize, Arc<[Label]>)>, marks: Vec<(usize, Mark)>) -> Self {
        Self { id: 0, name, step: Step::Edit, scope: Scope::Labels, files: Vec::new(), left: Vec::new(), failed: None, images, marks }
    }
}

fn outdated(name: &str) -> Failure {
    Failure::mendable(format!("{name} was not done"), Some("the labels changed meanwhile; try again".to_owned()))
}

fn refused(name: String, failure: Option<Failure>) -> LedgerNews {
    LedgerNews::Refused(Refused { name, failure, images: Vec::new(), marks: Vec::new() })
}

/// Finds images by a path of theirs, without keeping the paths.
struct PathIndex(Vec<(u64, u32)>);

impl PathIndex {
    fn new<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let mut entries: Vec<(u64, u32)> = paths.enumerate().map(|(index, path)| (Self::hash(path), index as u32)).collect();
        entries.sort_unstable();
        Self(entries)
    }

    fn find<'a>(&'a self, path: &'a Path, path_of: impl Fn(usize) -> &'a Path + 'a) -> impl Iterator<Item = usize> + 'a {
        let hash = Self::hash(path);
        let first = self.0.partition_point(|(each, _)| *each < hash);
        let same = self.0[first..].iter().take_while(move |(each, _)| *each == hash).map(|(_, index)| *index as usize);
        same.filter(move |&index| path_of(index) == path)
    }

    fn hash(path: &Path) -> u64 {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish()
    }
}
