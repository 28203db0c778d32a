//! Edits of the open dataset: what the window shows after them, and what becomes of them on disk.
//!
//! An edit is shown at once and given to the ledger's thread. Its answer says what the files hold then: normally what is shown; if the
//! edit was refused, what was there before; if another program wrote meanwhile, a conflict that a person decides.

use std::sync::Arc;

use super::command::Command;
use super::failure::Failure;
use super::job::JobKind;
use super::ledger::{Edited, LedgerNews, LedgerReply, LedgerThread, Refused, Reopened, Request, WholeEdit};
use super::{Notice, Session};
use crate::dataset::class_edit::ClassEdit;
use crate::dataset::edit;
use crate::dataset::edit::{Edit, Mark};
use crate::dataset::fix::Receipt;
use crate::dataset::ledger::Step;
use crate::dataset::ledger::record::Scope;
use crate::dataset::split;
use crate::dataset::{Label, Split};

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
    edits: std::collections::VecDeque<Vec<usize>>,
    /// Answers that are still to come.
    pub(super) n_replies: usize,
    /// Undo, redo and whole-dataset edits that are shown.
    n_steps: u64,
    /// Labels that were changed while a job reads all of them.
    fresh: std::collections::BTreeMap<usize, Arc<[Label]>>,
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
        let fitted = edit.images.iter().map(|each| {
            let before = open.labels.get(each.image)?;
            let each = each.fitted(before)?;
            let after: Arc<[Label]> = each.applied(before)?.into();
            Some((each, before.clone(), after))
        });
        let Some(fitted) = fitted.collect::<Option<Vec<_>>>() else {
            let hint = Some("the labels changed meanwhile, or a box lies outside of the image; try again".to_owned());
            self.notice(&Failure::mendable(format!("{} was not done", edit.name), hint));
            return;
        };
        let before = fitted.iter().map(|(_, before, _)| before.clone()).collect();
        let images: Vec<usize> = fitted.iter().map(|(each, ..)| each.image).collect();
        let written = Edit { name: edit.name, images: fitted.iter().map(|(each, ..)| each.clone()).collect() };
        let (name, n_steps) = (written.name.clone(), self.awaited.n_steps);
        if !self.ask_ledger(Request::Edit { edit: written, before, n_steps }, Some(images)) {
            return;
        }
        for (each, _, after) in fitted {
            self.show_labels(each.image, after);
            if let Some(mark) = each.mark {
                self.show_mark(each.image, mark);
            }
        }
        if let Some(open) = &mut self.dataset {
            open.history.undo = Some(name);
            open.history.redo = None;
        }
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
        if plan.splits.len() != open.dataset.images.len() {
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
        let Some(place) = self.conflicts.iter().position(|conflict| conflict.image == image) else { return };
        let Conflict { base, mine, theirs, .. } = self.conflicts.remove(place);
        let (name, labels) = match resolution {
            Resolution::Theirs => return,
            Resolution::Mine => ("Keep my labels", mine.to_vec()),
            Resolution::Merge => ("Merge labels", edit::merged(&base, &mine, &theirs)),
        };
        let ops = edit::ops_between(&theirs, &labels);
        if !ops.is_empty() {
            self.edit(Edit::of_image(name, image, ops));
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
    fn ask_ledger(&mut self, request: Request, images: Option<Vec<usize>>) -> bool {
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
                LedgerNews::Read { marks } => {
                    if let Some(open) = &mut self.dataset {
                        open.marks = Arc::new(marks.clone());
                    }
                }
                LedgerNews::Edited(edited) => self.take_in_edited(edited),
                LedgerNews::Refused(refused) => self.take_in_refused(refused),
                LedgerNews::Changed { image, base, theirs } => {
                    let mine = self.dataset.as_ref().and_then(|open| open.labels.get(*image)).cloned();
                    self.conflicts.retain(|conflict| conflict.image != *image);
                    let (image, base, theirs) = (*image, base.clone(), theirs.clone());
                    self.conflicts.push(Conflict { image, mine: mine.unwrap_or_else(|| base.clone()), base, theirs: theirs.clone() });
                    self.show_labels(image, theirs);
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
                self.start_job(Command::Check { path: None });
            }
        }
    }

    fn take_in_reopened(&mut self, reopened: &Reopened) {
        let Some(open) = &mut self.dataset else { return };
        open.dataset = reopened.dataset.clone();
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
            self.conflicts.clear();
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
        let is_awaited = |session: &Self, image: &usize| session.awaited.edits.iter().any(|edit| edit.contains(image));
        for (image, labels) in images {
            let is_shown = self.dataset.as_ref().and_then(|open| open.labels.get(*image)).is_some_and(|shown| **shown == **labels);
            if !is_shown && !is_awaited(self, image) {
                self.show_labels(*image, labels.clone());
            }
        }
        for (image, mark) in marks {
            let is_shown = self.dataset.as_ref().and_then(|open| open.marks.get(*image)).is_some_and(|shown| shown == mark);
            if !is_shown && !is_awaited(self, image) {
                self.show_mark(*image, mark.clone());
            }
        }
    }

    fn show_labels(&mut self, image: usize, labels: Arc<[Label]>) {
        let is_being_read = self.is_running(JobKind::ReadLabels) || self.is_running(JobKind::Open);
        if is_being_read {
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

    /// Labels were read from disk while edits may have been made.
    pub(super) fn take_in_labels(&mut self, labels: &Arc<super::LabelTable>) {
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
