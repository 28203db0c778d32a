//! Who writes the edits of the open dataset? One thread, in order, through a bounded channel.
//!
//! In:  edits as they were shown, undo, redo, and images that are looked at.
//! Out: one reply for each: what is durable now, what was refused and why, what another program changed.
//!
//! Edits are shown before they are written, so an edit may be made for labels that an earlier one did not bring about because it was
//! refused. Such images take no more edits until the session says that it shows what the files hold again.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
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
use super::ledger_news::{Edited, LedgerNews, LedgerReply, Refused, Reopened};
use super::path_index::PathIndex;
use crate::dataset::class_edit;
use crate::dataset::class_edit::ClassEdit;
use crate::dataset::edit::{Edit, Mark};
use crate::dataset::edit_files::{self, PlanError};
use crate::dataset::fix;
use crate::dataset::ledger::record::{Record, Scope};
use crate::dataset::ledger::{self, Ledger, NewEdit, Step, Written};
use crate::dataset::open::Format;
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
        /// Whose images the edit counts.
        dataset: Arc<Dataset>,
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

    /// Whether no more answers will come.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
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
    /// Images of refused edits, which the session shows otherwise than they are, with their labels before the first of these.
    stale: HashMap<usize, Arc<[Label]>>,
    n_steps: u64,
    /// The step that last made other images or classes of the dataset: what was asked for before it does not fit.
    reopened_at: u64,
}

impl Writer {
    fn new(id: u64, dataset: Arc<Dataset>, state_dir: PathBuf) -> Self {
        let by_label = PathIndex::new(dataset.images.iter().map(|image| &*image.label_path));
        let by_image = PathIndex::new(dataset.images.iter().map(|image| &*image.path));
        Self { id, dataset, state_dir, ledger: None, by_label, by_image, stale: HashMap::new(), n_steps: 0, reopened_at: 0 }
    }

    fn run(mut self, inbox: &Receiver<Request>, outbox: &Outbox) {
        let reply = self.guarded(false, &[], Self::first_news);
        outbox.send(reply);
        for request in inbox {
            let is_edit = matches!(request, Request::Edit { .. } | Request::Whole { .. } | Request::Undo | Request::Redo);
            let asked = match &request {
                Request::Edit { edit, before, dataset, .. } => self.asked(edit, before, dataset),
                _ => Vec::new(),
            };
            if let Request::Settled(images) = &request {
                for image in images {
                    self.stale.remove(image);
                }
                continue;
            }
            let reply = self.guarded(is_edit, &asked, |writer| writer.answer(request, &asked));
            outbox.send(reply);
            if let Some(ledger) = self.ledger.as_mut().filter(|_| is_edit) {
                ledger.rest();
            }
        }
    }

    fn answer(&mut self, request: Request, asked: &[(usize, Arc<[Label]>)]) -> Vec<LedgerNews> {
        match request {
            Request::Edit { edit, before, n_steps, .. } => self.edit(edit, &before, asked, n_steps),
            Request::Whole { edit, n_steps } => self.whole(edit, n_steps),
            Request::Undo => self.step(Step::Undo),
            Request::Redo => self.step(Step::Redo),
            Request::Look { image, shown, n_steps } => self.look(image, shown, n_steps),
            Request::Settled(_) => Vec::new(),
            Request::CatchUp => {
                let changed = self.opened().and_then(Ledger::catch_up).and_then(|()| self.changed_outside(true));
                match changed {
                    Ok(changed) => changed.map(|dataset| self.reopen_changed(dataset)).into_iter().collect(),
                    Err(error) => vec![LedgerNews::Note(Failure::from(error).message)],
                }
            }
        }
    }

    /// A fault of ours refuses what was asked for, and is told; the thread goes on with what the files say.
    fn guarded(&mut self, is_edit: bool, asked: &[(usize, Arc<[Label]>)], work: impl FnOnce(&mut Self) -> Vec<LedgerNews>) -> LedgerReply {
        let work = AssertUnwindSafe(|| {
            let news = work(self);
            self.reply(news, is_edit)
        });
        std::panic::catch_unwind(work).unwrap_or_else(|_| {
            self.ledger = None;
            let failure = Failure::unexpected("an edit was not done: writing it failed inside");
            let news = self.refuse("an edit".to_owned(), Some(failure), &[], asked);
            LedgerReply { of: self.id, n_steps: self.n_steps, is_edit, news: vec![news], undo: None, redo: None, colors: BTreeMap::new() }
        })
    }

    /// The images whose labels an edit changes, as they are numbered now, with the labels that it was made for.
    fn asked(&self, edit: &Edit, before: &[Arc<[Label]>], dataset: &Dataset) -> Vec<(usize, Arc<[Label]>)> {
        let changed = edit.images.iter().zip(before).filter(|(each, _)| !each.ops.is_empty());
        changed
            .filter_map(|(each, before)| {
                let path = &dataset.images.get(each.image)?.path;
                let is_here = self.dataset.images.get(each.image).is_some_and(|image| image.path == *path);
                let moved = || self.by_image.find(path, |index| &self.dataset.images[index].path).next();
                Some((if is_here { each.image } else { moved()? }, before.clone()))
            })
            .collect()
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
            Ok(ledger) => {
                let notes = ledger.take_notes();
                let mut news = vec![LedgerNews::Read { marks: self.marks() }];
                // An edit was perhaps carried out to its end beside the reading of the dataset.
                if !notes.is_empty() {
                    match self.open_again() {
                        Ok(dataset) => news.push(self.reopen_changed(dataset)),
                        Err(error) => news.push(LedgerNews::Note(Failure::from(error).message)),
                    }
                }
                news.extend(notes.into_iter().map(LedgerNews::Note));
                news
            }
            Err(error) => vec![refused("opening the ledger of edits".to_owned(), Some(error.into()))],
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let mark = |path: &Path| self.ledger.as_ref().map(|ledger| ledger.mark(path)).unwrap_or_default();
        self.dataset.images.iter().map(|image| mark(&image.path)).collect()
    }

    fn edit(&mut self, edit: Edit, before: &[Arc<[Label]>], asked: &[(usize, Arc<[Label]>)], n_steps: u64) -> Vec<LedgerNews> {
        let dataset = self.dataset.clone();
        if n_steps < self.reopened_at {
            // The numbers may be of other images or classes. All marks are told with these.
            let failure = outdated(&edit.name);
            return vec![self.refuse(edit.name, Some(failure), &[], asked)];
        }
        let images: Vec<usize> = edit.images.iter().map(|each| each.image).collect();
        if asked.iter().any(|(image, _)| self.stale.contains_key(image)) {
            return vec![self.refuse(edit.name, None, &images, asked)];
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
                    self.stale.insert(each.image, before.clone());
                    let mark = self.mark(each.image);
                    news.push(LedgerNews::Changed { image: each.image, base: before.clone(), theirs: now.into(), mark });
                }
                Err(PlanError::Changed { .. } | PlanError::NoSuchLabel) => {
                    let failure = outdated(&edit.name);
                    news.push(self.refuse(edit.name, Some(failure), &images, asked));
                    return news;
                }
                Err(PlanError::Dataset(error)) => {
                    let failure = Failure::from(error).about(&format!("{} was not done: ", edit.name));
                    news.push(self.refuse(edit.name, Some(failure), &images, asked));
                    return news;
                }
            }
        }
        // Two images with one label file: what is asked for twice is done once.
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes.dedup();
        if changes.windows(2).any(|pair| pair[0].path == pair[1].path) {
            let failure = Failure::mendable(format!("{} was not done: two images share one label file", edit.name), None);
            return vec![self.refuse(edit.name, Some(failure), &images, asked)];
        }
        if changes.is_empty() && marks.is_empty() {
            if news.is_empty() {
                let (images, marks) = (self.truth(asked), Vec::new());
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
                news.push(self.refuse(edit.name, Some(failure), &images, asked));
            }
            Ok(written) => {
                if !written.left.is_empty() || written.failed.is_some() {
                    self.make_stale(asked);
                }
                news.push(self.edited(written, asked));
            }
            Err(error) => {
                let failure = Failure::from(error).about(&format!("{} was not done: ", edit.name));
                news.push(self.refuse(edit.name, Some(failure), &images, asked));
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
        // What another process did meanwhile is not what the person saw: class numbers and images may be others.
        let changed =
            self.opened().and_then(Ledger::catch_up).and_then(|()| self.changed_outside(matches!(edit, WholeEdit::Splits { .. })));
        match changed {
            Ok(None) => {}
            Ok(Some(now)) => {
                let hint =
                    Some("classes or images of the dataset were changed by another program; look at them, then try again".to_owned());
                let failure = Failure::mendable(format!("{name} was not done"), hint);
                return vec![self.reopen_changed(now), refused(name, Some(failure))];
            }
            Err(error) => return vec![refused(name, Some(error.into()))],
        }
        let dataset = self.dataset.clone();
        let written = self.opened().and_then(|ledger| {
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
        let reopened = match scope {
            Scope::Labels | Scope::Fixes => return vec![self.edited(written, &[])],
            Scope::Classes => class_edit::reread_names(&self.dataset),
            Scope::Splits => self.open_again(),
        };
        // First, so that the files that were written are read with the classes that they were written for.
        let reopened = match reopened {
            Ok(dataset) => self.reopen(dataset, false),
            Err(error) => LedgerNews::Note(Failure::from(error).about("the dataset cannot be opened again: ").message),
        };
        vec![reopened, self.edited(written, &[])]
    }

    fn open_again(&self) -> Result<Dataset, DatasetError> {
        // data.yaml may have come or gone.
        let is_file = self.dataset.source.is_file();
        Dataset::open(if is_file { &self.dataset.source } else { &self.dataset.root })
    }

    /// The dataset as its files say by now, if its classes or, where it is asked for, its images are others.
    fn changed_outside(&self, with_images: bool) -> Result<Option<Dataset>, DatasetError> {
        if !with_images && class_edit::reread_names(&self.dataset)?.names == self.dataset.names {
            return Ok(None);
        }
        let now = self.open_again()?;
        Ok((now.names != self.dataset.names || now.images != self.dataset.images).then_some(now))
    }

    /// Takes in what another process made of the dataset: any label may be another one.
    fn reopen_changed(&mut self, dataset: Dataset) -> LedgerNews {
        self.n_steps += 1;
        self.reopen(dataset, true)
    }

    fn reopen(&mut self, dataset: Dataset, rereads: bool) -> LedgerNews {
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
        // Where rows hold names, they are of other classes now.
        let has_names = dataset.format == Format::PascalVoc && before.names != dataset.names;
        let labels = (is_new || has_names || rereads).then(|| {
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
        if n_steps != self.n_steps || self.stale.contains_key(&image) {
            return Vec::new();
        }
        let truth = self.truth(&[(image, shown.clone())]);
        let changed = truth.into_iter().find(|(each, theirs)| *each == image && !edit_files::is_same(&self.dataset, theirs, &shown));
        let Some((_, theirs)) = changed else { return Vec::new() };
        self.stale.insert(image, shown.clone());
        vec![LedgerNews::Changed { image, base: shown, theirs, mark: self.mark(image) }]
    }

    /// What came of a record: the labels and marks of the images that it touched, and of those that were asked for.
    fn edited(&self, written: Written, asked: &[(usize, Arc<[Label]>)]) -> LedgerNews {
        let Written { id, step, record, written, left, failed } = written;
        let mut images = asked.to_vec();
        let of_files = written.iter().chain(left.iter().map(|(path, _)| path));
        let of_files = of_files.flat_map(|path| self.by_label.find(path, |index| &self.dataset.images[index].label_path));
        images.extend(of_files.map(|image| (image, Arc::default())));
        // Stable: those that were asked for come first.
        images.sort_by_key(|(image, _)| *image);
        images.dedup_by_key(|(image, _)| *image);
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

    /// Refuses an edit of the marks of `images` and the labels of those that were `asked` for.
    fn refuse(&mut self, name: String, failure: Option<Failure>, images: &[usize], asked: &[(usize, Arc<[Label]>)]) -> LedgerNews {
        self.make_stale(asked);
        let marks = images.iter().map(|&image| (image, self.mark(image))).collect();
        LedgerNews::Refused(Refused { name, failure, marks, images: self.truth(asked) })
    }

    fn make_stale(&mut self, asked: &[(usize, Arc<[Label]>)]) {
        for (image, before) in asked {
            self.stale.entry(*image).or_insert_with(|| before.clone());
        }
    }

    fn mark(&self, image: usize) -> Mark {
        self.ledger.as_ref().map(|ledger| ledger.mark(&self.dataset.images[image].path)).unwrap_or_default()
    }

    /// What the label files of these images hold; where a file cannot be read, what was shown before anything was refused. Of a file
    /// that is no label file there are no labels.
    fn truth(&self, asked: &[(usize, Arc<[Label]>)]) -> Vec<(usize, Arc<[Label]>)> {
        let read = |(image, before): &(usize, Arc<[Label]>)| {
            let labels = match ledger::read(&self.dataset.images[*image].label_path) {
                Ok(bytes) => edit_files::labels(&self.dataset, *image, bytes.as_deref()).unwrap_or_default().into(),
                Err(_) => self.stale.get(image).unwrap_or(before).clone(),
            };
            (*image, labels)
        };
        asked.iter().map(read).collect()
    }
}

fn outdated(name: &str) -> Failure {
    Failure::mendable(format!("{name} was not done"), Some("the labels changed meanwhile; try again".to_owned()))
}

fn refused(name: String, failure: Option<Failure>) -> LedgerNews {
    LedgerNews::Refused(Refused { name, failure, images: Vec::new(), marks: Vec::new() })
}
