//! Edits of the open dataset: what the window shows after them, and what becomes of them on disk.
//!
//! An edit is shown at once and given to the ledger's thread. Its answer says what the files hold then: normally what is shown; if the
//! edit was refused, what was there before; if another program wrote meanwhile, a conflict that a person decides.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use super::command::Command;
use super::failure::Failure;
use super::job::JobKind;
use super::ledger::{LedgerThread, Request, WholeEdit};
use super::ledger_news::{Edited, LedgerNews, LedgerReply, Refused, Reopened};
use super::{Notice, Session};
use crate::dataset::class_edit::ClassEdit;
use crate::dataset::edit;
use crate::dataset::edit::{Edit, Mark};
use crate::dataset::fix::Receipt;
use crate::dataset::ledger::Step;
use crate::dataset::ledger::record::Scope;
use crate::dataset::split;
use crate::dataset::{ClassId, Dataset, Label, Split};

/// Two versions of an image's labels: a person's, and another program's.
#[derive(Clone, Debug)]
pub struct Conflict {
    pub image: usize,
    /// What both began with.
    pub base: Arc<[Label]>,
    /// With the edits that could not be written.
    pub mine: Arc<[Label]>,
    /// What the label file holds, and what is shown meanwhile.
    pub theirs: Arc<[Label]>,
}

/// How a conflict ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    Theirs,
    Mine,
    /// What either removed is gone, what either added is there.
    Merge,
}

/// What waits for the ledger's thread.
#[derive(Default)]
pub(super) struct Awaited {
    /// The images of each edit that is not durable yet, oldest first.
    edits: VecDeque<Vec<usize>>,
    /// Answers that are still to come.
    pub(super) n_replies: usize,
    /// Undo, redo and whole-dataset edits that are shown.
    n_steps: u64,
    /// Labels that were changed while a job reads all of them.
    fresh: BTreeMap<usize, Arc<[Label]>>,
    /// What a job read belongs to the dataset before it changed.
    reads_again: bool,
}

impl Session {
    /// The conflict of an image, if there is one.
    pub fn conflict(&self, image: usize) -> Option<&Conflict> {
        self.conflicts.iter().find(|conflict| conflict.image == image)
    }

    /// Waits until every edit is on disk.
    pub fn finish_edits(&mut self) {
        while self.dataset.as_ref().is_some_and(|open| open.history.n_pending > 0) && self.wait().is_some() {}
    }

    /// Shows an edit at once, and has it written.
    pub(super) fn edit(&mut self, edit: Edit) {
        let Some(open) = &self.dataset else { return };
        if let Some(conflict) = edit.images.iter().find_map(|each| self.conflict(each.image)) {
            let file = open.dataset.relative(&open.dataset.images[conflict.image].label_path);
            let hint = Some("choose the labels of the file, yours, or both first".to_owned());
            self.notice(&Failure::mendable(format!("another program changed {}", file.display()), hint));
            return;
        }
        self.show_and_write(edit);
    }

    /// `false` when the edit was not taken.
    fn show_and_write(&mut self, edit: Edit) -> bool {
        let Some(open) = &self.dataset else { return false };
        let fitted = edit.images.iter().map(|each| {
            let before = open.labels.get(each.image)?;
            let each = each.fitted(before)?;
            let after: Arc<[Label]> = each.applied(before)?.into();
            Some((each, before.clone(), after))
        });
        let Some(fitted) = fitted.collect::<Option<Vec<_>>>() else {
            let hint = Some("the labels changed meanwhile, or a box lies outside of the image; try again".to_owned());
            self.notice(&Failure::mendable(format!("{} was not done", edit.name), hint));
            return false;
        };
        let before = fitted.iter().map(|(_, before, _)| before.clone()).collect();
        let images: Vec<usize> = fitted.iter().map(|(each, ..)| each.image).collect();
        let written = Edit { name: edit.name, images: fitted.iter().map(|(each, ..)| each.clone()).collect() };
        let (name, n_steps, dataset) = (written.name.clone(), self.awaited.n_steps, open.dataset.clone());
        if !self.ask_ledger(Request::Edit { edit: written, before, dataset, n_steps }, Some(images)) {
            return false;
        }
        for (each, _, after) in fitted {
            if !each.ops.is_empty() {
                self.show_labels(each.image, after);
            }
            if let Some(mark) = each.mark {
                self.show_mark(each.image, mark);
            }
        }
        if let Some(open) = &mut self.dataset {
            open.history.undo = Some(name);
            open.history.redo = None;
        }
        true
    }

    pub(super) fn edit_classes(&mut self, edit: ClassEdit) {
        let n_steps = self.awaited.n_steps;
        self.ask_ledger(Request::Whole { edit: WholeEdit::Classes(edit), n_steps }, Some(Vec::new()));
    }

    /// Writes the split that was planned.
    pub(super) fn apply_split(&mut self) {
        let (Some(plan), Some(open)) = (&self.split_plan, &self.dataset) else {
            self.notice(&Failure::mendable("no split was planned", None));
            return;
        };
        if self.split_of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, &open.dataset) && of.images != open.dataset.images) {
            self.notice(&Failure::mendable("the split is of another dataset", Some("plan it again".to_owned())));
            return;
        }
        let splits = plan.splits.clone();
        self.write_splits("Split the dataset".to_owned(), splits);
    }

    pub(super) fn move_to_split(&mut self, images: &[usize], split: Split) {
        let Some(open) = &self.dataset else { return };
        let splits = split::moved(&open.dataset, images, split);
        let n_images = images.len();
        let name = format!("Move {n_images} {} to {}", if n_images == 1 { "image" } else { "images" }, split.name());
        self.write_splits(name, splits);
    }

    fn write_splits(&mut self, name: String, splits: Vec<Split>) {
        let n_steps = self.awaited.n_steps;
        if self.ask_ledger(Request::Whole { edit: WholeEdit::Splits { name, splits }, n_steps }, Some(Vec::new())) {
            self.split_plan = None;
        }
    }

    pub(super) fn undo_edit(&mut self) {
        self.ask_ledger(Request::Undo, Some(Vec::new()));
    }

    pub(super) fn redo_edit(&mut self) {
        self.ask_ledger(Request::Redo, Some(Vec::new()));
    }

    /// A person turns to an image: has its file changed?
    pub(super) fn look(&mut self, image: usize) {
        let shown = self.dataset.as_ref().and_then(|open| open.labels.get(image)).cloned();
        if let Some(shown) = shown.filter(|_| self.conflict(image).is_none()) {
            self.ask_ledger(Request::Look { image, shown, n_steps: self.awaited.n_steps }, None);
        }
    }

    pub(super) fn resolve(&mut self, image: usize, resolution: Resolution) {
        let Some(Conflict { base, mine, .. }) = self.conflict(image).cloned() else { return };
        // What is shown, which the indices of the edit are of.
        let theirs = self.labels(image).to_vec();
        let (name, labels) = match resolution {
            Resolution::Theirs => ("", theirs.clone()),
            Resolution::Mine => ("Keep my labels", mine.to_vec()),
            Resolution::Merge => ("Merge labels", edit::merged(&base, &mine, &theirs)),
        };
        let ops = edit::ops_between(&theirs, &labels);
        if ops.is_empty() || self.show_and_write(Edit::of_image(name, image, ops)) {
            self.conflicts.retain(|conflict| conflict.image != image);
        }
    }

    /// A job has written to the ledger, too.
    pub(super) fn catch_up(&mut self) {
        if self.ledger.is_some() {
            self.ask_ledger(Request::CatchUp, None);
        }
    }

    /// Puts a new ledger below the dataset that was opened.
    pub(super) fn start_ledger(&mut self) {
        // Waits until the edits of the dataset before are on disk.
        self.ledger = None;
        self.awaited = Awaited::default();
        self.conflicts.clear();
        let Some(open) = &self.dataset else { return };
        let id = self.next_id;
        self.next_id += 1;
        let (dataset, state_dir) = (open.dataset.clone(), self.settings.state_dir.clone());
        match LedgerThread::start(id, dataset, state_dir, self.sender.clone(), self.wake.clone()) {
            Ok(thread) => {
                self.ledger = Some(thread);
                self.awaited.n_replies = 1;
            }
            Err(error) => self.notice(&Failure::unexpected(format!("cannot start a thread: {error}"))),
        }
    }

    /// Sends a request; `images` are those of an edit.
    pub(super) fn ask_ledger(&mut self, request: Request, images: Option<Vec<usize>>) -> bool {
        if self.ledger.is_none() {
            self.start_ledger();
        }
        let Some(thread) = &self.ledger else { return false };
        let is_edit = images.is_some();
        if !thread.ask(request) {
            if is_edit {
                let hint = Some("wait until the disk has taken them".to_owned());
                self.notice(&Failure::mendable("too many edits wait for the disk", hint));
            }
            return false;
        }
        self.awaited.n_replies += 1;
        self.awaited.edits.extend(images);
        self.count_pending();
        true
    }

    pub(super) fn take_in_ledger(&mut self, reply: &LedgerReply) {
        if self.ledger.as_ref().is_none_or(|thread| thread.id != reply.of) {
            return;
        }
        self.awaited.n_replies = self.awaited.n_replies.saturating_sub(1);
        if reply.is_edit {
            self.awaited.edits.pop_front();
        }
        self.awaited.n_steps = reply.n_steps;
        self.count_pending();
        for news in &reply.news {
            match news {
                LedgerNews::Read { marks } => self.take_in_marks(marks),
                LedgerNews::Edited(edited) => self.take_in_edited(edited),
                LedgerNews::Refused(refused) => self.take_in_refused(refused),
                LedgerNews::Changed { image, base, theirs, mark } => {
                    let mine = self.dataset.as_ref().and_then(|open| open.labels.get(*image)).cloned();
                    self.conflicts.retain(|conflict| conflict.image != *image);
                    let (image, base, theirs) = (*image, base.clone(), theirs.clone());
                    self.conflicts.push(Conflict { image, mine: mine.unwrap_or_else(|| base.clone()), base, theirs: theirs.clone() });
                    self.show_labels(image, theirs);
                    self.show_mark(image, mark.clone());
                    self.settled(vec![image]);
                }
                LedgerNews::Reopened(reopened) => self.take_in_reopened(reopened),
                LedgerNews::Note(text) => {
                    self.next_id += 1;
                    self.notices.push(Notice { id: self.next_id - 1, is_error: false, text: text.clone(), hint: None });
                }
            }
        }
        if let Some(open) = &mut self.dataset
            && *open.colors != reply.colors
        {
            open.colors = Arc::new(reply.colors.clone());
        }
        // With edits on their way, the last of these is what undo takes back.
        if let Some(open) = &mut self.dataset
            && open.history.n_pending == 0
        {
            (open.history.undo, open.history.redo) = (reply.undo.clone(), reply.redo.clone());
        }
    }

    /// Shows marks as the ledger has them; those that were put on since, and are on their way there, stay.
    fn take_in_marks(&mut self, marks: &[Mark]) {
        let Some(open) = &mut self.dataset else { return };
        let shown = std::mem::replace(&mut open.marks, Arc::new(marks.to_vec()));
        let awaited: HashSet<usize> = self.awaited.edits.iter().flatten().copied().collect();
        for image in awaited {
            if let Some(mark) = shown.get(image).filter(|mark| **mark != Mark::default()) {
                self.show_mark(image, mark.clone());
            }
        }
    }

    fn take_in_edited(&mut self, edited: &Edited) {
        let Edited { name, step, scope, files, left, failed, images, marks, .. } = edited;
        self.show_truth(images, marks);
        if let Some(failure) = failed {
            let text = format!("{name} was done in part, in {} files: ", files.len());
            self.notice(&failure.clone().about(&text));
        }
        for (file, reason) in left.iter().take(3) {
            let hint = Some("the other files were written; turn to the image to see what its file holds".to_owned());
            self.notice(&Failure::mendable(format!("{}: {} {reason}", name, file.display()), hint));
        }
        if *step == Step::Edit && (!left.is_empty() || failed.is_some()) {
            self.settled(images.iter().map(|(image, _)| *image).collect());
        }
        if *scope == Scope::Fixes && *step != Step::Edit {
            self.receipt = Some(Receipt { name: name.clone(), files: files.clone(), refused: left.clone(), ..Receipt::default() });
            if self.report.is_some() && !self.is_running(JobKind::Check) {
                self.start_job(Command::Check { path: None, images: self.checked_depth() });
            }
        }
    }

    fn take_in_reopened(&mut self, reopened: &Reopened) {
        let Some(open) = &mut self.dataset else { return };
        let before = std::mem::replace(&mut open.dataset, reopened.dataset.clone());
        let (old_names, names) = (&before.names, &reopened.dataset.names);
        if old_names != names {
            self.proposals.follow(old_names, names);
            for conflict in &mut self.conflicts {
                conflict.base = renamed(&conflict.base, old_names, names);
                conflict.mine = renamed(&conflict.mine, old_names, names);
            }
        }
        open.marks = Arc::new(reopened.marks.clone());
        match (&reopened.labels, &reopened.order) {
            (Some(labels), _) => open.labels = labels.clone(),
            (None, Some(order)) if !open.labels.is_empty() => {
                let old = |index: &Option<usize>| index.and_then(|index| open.labels.get(index)).cloned().unwrap_or_default();
                open.labels = Arc::new(order.iter().map(old).collect());
            }
            (None, _) => {}
        }
        if let Some(order) = &reopened.order {
            if !open.facts.is_empty() {
                let old = |index: &Option<usize>| index.and_then(|index| open.facts.get(index)).copied().unwrap_or_default();
                open.facts = Arc::new(order.iter().map(old).collect());
            }
            // What names images by their number means others now.
            let conflicts: BTreeMap<usize, Conflict> = self.conflicts.drain(..).map(|conflict| (conflict.image, conflict)).collect();
            for (image, old) in order.iter().enumerate() {
                if let Some(conflict) = old.and_then(|old| conflicts.get(&old)) {
                    self.conflicts.push(Conflict { image, ..conflict.clone() });
                }
            }
            self.awaited.edits.iter_mut().for_each(Vec::clear);
            self.awaited.fresh.clear();
            self.split_plan = None;
            self.report = None;
            self.batches = Arc::default();
        }
        self.counts = None;
    }

    fn take_in_refused(&mut self, refused: &Refused) {
        self.show_truth(&refused.images, &refused.marks);
        if let Some(failure) = &refused.failure {
            self.notice(failure);
        }
        if !refused.images.is_empty() {
            self.settled(refused.images.iter().map(|(image, _)| *image).collect());
        }
    }

    fn settled(&mut self, images: Vec<usize>) {
        // Without it the images would take no edit; a full channel is full of edits of theirs, so they are told again.
        if let Some(thread) = &self.ledger
            && !thread.ask(Request::Settled(images))
        {
            self.notice(&Failure::mendable("too many edits wait for the disk", Some("open the dataset again".to_owned())));
        }
    }

    /// Shows what the files hold, where no later edit is on its way.
    fn show_truth(&mut self, images: &[(usize, Arc<[Label]>)], marks: &[(usize, Mark)]) {
        let Some(open) = &self.dataset else { return };
        let differs = |(image, labels): &&(usize, Arc<[Label]>)| open.labels.get(*image).is_none_or(|shown| **shown != **labels);
        let mut images: Vec<_> = if self.is_being_read() { images.to_vec() } else { images.iter().filter(differs).cloned().collect() };
        let differs = |(image, mark): &&(usize, Mark)| open.marks.get(*image) != Some(mark);
        let mut marks: Vec<_> = marks.iter().filter(differs).cloned().collect();
        if images.is_empty() && marks.is_empty() {
            return;
        }
        let awaited: HashSet<usize> = self.awaited.edits.iter().flatten().copied().collect();
        images.retain(|(image, _)| !awaited.contains(image));
        marks.retain(|(image, _)| !awaited.contains(image));
        for (image, labels) in images {
            self.show_labels(image, labels);
        }
        for (image, mark) in marks {
            self.show_mark(image, mark);
        }
    }

    fn is_being_read(&self) -> bool {
        self.is_running(JobKind::ReadLabels) || self.is_running(JobKind::Open)
    }

    fn show_labels(&mut self, image: usize, labels: Arc<[Label]>) {
        if self.is_being_read() {
            self.awaited.fresh.insert(image, labels.clone());
        }
        if let Some(open) = &mut self.dataset
            && image < open.labels.len()
        {
            Arc::make_mut(&mut open.labels)[image] = labels;
        }
    }

    fn show_mark(&mut self, image: usize, mark: Mark) {
        let Some(open) = &mut self.dataset else { return };
        let marks = Arc::make_mut(&mut open.marks);
        marks.resize(open.dataset.images.len(), Mark::default());
        if let Some(place) = marks.get_mut(image) {
            *place = mark;
        }
    }

    /// All labels are about to be read, some of them perhaps before the edits that are on their way are written.
    pub(super) fn begin_reading(&mut self) {
        self.awaited.reads_again = false;
        self.awaited.fresh.clear();
        let Some(open) = &self.dataset else { return };
        let pending = self.awaited.edits.iter().flatten();
        self.awaited.fresh = pending.filter_map(|&image| Some((image, open.labels.get(image)?.clone()))).collect();
    }

    /// Whether what was read is of the open dataset. Of a dataset that changed since, it is read once more.
    pub(super) fn is_of_open(&mut self, dataset: &Arc<Dataset>) -> bool {
        let Some(open) = &self.dataset else { return false };
        let is_same = Arc::ptr_eq(&open.dataset, dataset);
        self.awaited.reads_again |= !is_same && open.dataset.source == dataset.source;
        is_same
    }

    /// A job has ended.
    pub(super) fn read_if_outdated(&mut self) {
        if self.awaited.reads_again
            && !self.is_being_read()
            && let Some(open) = &self.dataset
        {
            let source = open.dataset.source.clone();
            self.start_job(Command::ReadLabels(source));
        }
    }

    /// The ledger's thread is gone: nothing will be answered any more.
    pub(super) fn await_no_more(&mut self) {
        self.awaited = Awaited::default();
        self.count_pending();
    }

    /// Labels were read from disk while edits may have been made.
    pub(super) fn take_in_labels(&mut self, dataset: &Arc<Dataset>, labels: &Arc<super::LabelTable>) {
        if !self.is_of_open(dataset) {
            return;
        }
        let Some(open) = &mut self.dataset else { return };
        open.labels = labels.clone();
        let fresh = std::mem::take(&mut self.awaited.fresh);
        if !fresh.is_empty() && fresh.keys().all(|&image| image < open.labels.len()) {
            let labels = Arc::make_mut(&mut open.labels);
            for (image, fresh) in fresh {
                labels[image] = fresh;
            }
        }
    }

    fn count_pending(&mut self) {
        let n_pending = self.awaited.edits.len();
        if let Some(open) = &mut self.dataset {
            open.history.n_pending = n_pending;
        }
    }
}

/// Labels with the numbers that their classes have by now. A class whose name is gone keeps its number where only names changed;
/// its labels are left out where numbers did.
fn renamed(labels: &[Label], old: &[String], new: &[String]) -> Arc<[Label]> {
    let of_class = |class: ClassId| {
        let place = new.iter().position(|name| old.get(class.0 as usize) == Some(name)).map(|place| ClassId(place as u32));
        place.or_else(|| (old.len() == new.len()).then_some(class))
    };
    labels.iter().filter_map(|label| Some(Label { class: of_class(label.class)?, ..*label })).collect()
}
