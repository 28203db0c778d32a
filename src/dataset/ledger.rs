//! What was done to a dataset, in order: an append-only file of edits that are durable, and can be taken back without limit.
//!
//! In:  changes of files, marks and colours, as one edit with a name; wishes to undo and redo.
//! Out: the files changed, as a whole or not at all; after a crash the last edit carried out to its end.
//!
//! 1. An edit is appended as one line and synced to disk. From here on it is not lost.
//! 2. Each file is replaced, if it still has the content that the edit was made for.
//! 3. A line says that this is done. Where it is missing, the process ended in between: whoever opens the ledger next cuts a half-written
//!    line off, and carries the last edit out where a file still has its old content.
//!
//! Undo and redo are lines of their own, so what lies on disk is always what the lines say, one after the other. A file that something
//! else changed is left alone, and told. Only places in the file are kept in memory, and marks. Several processes may share a ledger:
//! each locks it for as long as it writes. It lies in `journals` in the user's state directory, never inside a dataset.

pub mod record;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::prelude::*;

use super::edit::Mark;
use super::journal;
use super::open::DatasetError;
use super::replace::{self, ReplaceError};
use super::splice::{self, Splice};
use record::{ColorChange, FileChange, Kind, Line, MarkChange, Record, Scope};

/// So many files are replaced one after the other; more at once.
const FEW_FILES: usize = 8;

/// The ledger of one dataset.
pub struct Ledger {
    root: PathBuf,
    path: PathBuf,
    /// Absent as long as nothing was ever written.
    file: Option<File>,
    /// Bytes that were read.
    len: u64,
    next_id: u64,
    /// Edits that undo would take back, and those that redo would do again; the next one last.
    done: Vec<Place>,
    undone: Vec<Place>,
    /// Files of a record that were left alone, by the record's number.
    left: HashMap<u64, Vec<usize>>,
    /// The last record, while no line says that it is carried out.
    unsettled: Option<(u64, Place)>,
    /// Files of the last record whose new names may not be on disk yet.
    unsynced: Vec<PathBuf>,
    marks: HashMap<PathBuf, Mark>,
    colors: BTreeMap<u32, [u8; 3]>,
    notes: Vec<String>,
}

/// Where a record's line is.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    len: u32,
}

/// An edit before it is written.
#[derive(Clone, Debug, Default)]
pub struct NewEdit {
    /// As undo will name it.
    pub name: String,
    pub scope: Scope,
    pub files: Vec<Change>,
    pub marks: Vec<MarkChange>,
    pub colors: Vec<ColorChange>,
}

/// A change of one file; `None`: there is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    pub splices: Vec<Splice>,
}

/// Which way a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Edit,
    Undo,
    Redo,
}

/// What has come of an edit, an undo or a redo.
#[derive(Debug)]
pub struct Written {
    /// The number of the record; `None` where nothing could be changed, so that nothing was recorded.
    pub id: Option<u64>,
    pub step: Step,
    /// What was asked for, without its files.
    pub record: Record,
    pub written: Vec<PathBuf>,
    /// Files that were left alone, with the reason.
    pub left: Vec<(PathBuf, String)>,
    /// Why not everything was done that could have been; the rest was left alone, too.
    pub failed: Option<DatasetError>,
}

impl Change {
    /// A change by splices of what was read.
    ///
    /// # Panics
    /// If something else stands where the splices are.
    pub fn spliced(path: PathBuf, before: Option<Vec<u8>>, splices: Vec<Splice>) -> Self {
        let after = splice::apply(before.as_deref().unwrap_or_default(), &splices);
        Self { path, before, after: Some(after.expect("splices are of the bytes that were read")), splices }
    }

    /// A new content.
    pub fn whole(path: PathBuf, before: Option<Vec<u8>>, after: Vec<u8>) -> Self {
        let splices = splice::between(before.as_deref().unwrap_or_default(), &after);
        Self { path, before, after: Some(after), splices }
    }
}

impl Ledger {
    /// Opens the ledger of the dataset with this root, and brings a last edit to its end that a crash interrupted.
    ///
    /// # Errors
    /// When it cannot be read, or is of a later version.
    pub fn open(state_dir: &Path, root: &Path) -> Result<Self, DatasetError> {
        let path = journal::folder(state_dir, root).join("edits.ledger");
        let mut ledger = Self::empty(root, &path);
        ledger.catch_up()?;
        Ok(ledger)
    }

    /// Reads what other processes have written.
    pub fn catch_up(&mut self) -> Result<(), DatasetError> {
        self.locked(false, |_| Ok(()))
    }

    /// Makes an edit durable and carries it out.
    ///
    /// # Errors
    /// When it cannot be recorded, or no file could be written; then nothing is changed.
    pub fn write(&mut self, edit: NewEdit, go_on: &(dyn Fn() -> ControlFlow<()> + Sync)) -> Result<Written, DatasetError> {
        self.locked(true, |ledger| {
            let NewEdit { name, scope, files, marks, colors } = edit;
            let marks = marks.into_iter().map(|change| ledger.merged_mark(change)).collect();
            let record = Record { name, scope, marks, colors, ..Record::default() };
            ledger.append(Kind::Edit, record, files, Vec::new(), go_on)
        })
    }

    /// Takes back the last edit that is not taken back; `None` when there is none.
    ///
    /// # Errors
    /// As [`Ledger::write`]; or the record is damaged.
    pub fn undo(&mut self) -> Result<Option<Written>, DatasetError> {
        self.step(Kind::Undo)
    }

    /// Does again what was undone last; `None` when there is nothing.
    ///
    /// # Errors
    /// As [`Ledger::write`]; or the record is damaged.
    pub fn redo(&mut self) -> Result<Option<Written>, DatasetError> {
        self.step(Kind::Redo)
    }

    /// Makes the replaced files' names durable and says that the last edit is carried out. Nothing is lost without it, since whoever opens
    /// the ledger next would look at that edit once more; so it may come after the edit was acknowledged. Each new edit does it, too.
    pub fn rest(&mut self) {
        if self.unsettled.is_some() {
            self.locked(false, |ledger| {
                ledger.say_done();
                Ok(())
            })
            .ok();
        }
    }

    fn say_done(&mut self) {
        sync_folders(&std::mem::take(&mut self.unsynced));
        let Some((id, _)) = self.unsettled else { return };
        if self.write_line(&record::to_line(Kind::Done, id, false, b""), false).is_ok() {
            self.unsettled = None;
        }
    }

    /// The name of the edit that undo would take back.
    pub fn undo_name(&self) -> Option<String> {
        self.name_at(*self.done.last()?)
    }

    pub fn redo_name(&self) -> Option<String> {
        self.name_at(*self.undone.last()?)
    }

    /// How many edits undo could take back.
    pub fn n_done(&self) -> usize {
        self.done.len()
    }

    /// What is known of an image.
    pub fn mark(&self, image: &Path) -> Mark {
        self.marks.get(image).cloned().unwrap_or_default()
    }

    /// Colours that were chosen for classes.
    pub fn colors(&self) -> &BTreeMap<u32, [u8; 3]> {
        &self.colors
    }

    /// What is worth saying about the ledger since the last time.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The change of a mark as it is by now: what another process has said of the image meanwhile stays.
    fn merged_mark(&self, change: MarkChange) -> MarkChange {
        let MarkChange { image, before, after } = change;
        let now = self.mark(&record::to_path(&self.root, &image));
        let review = if after.review == before.review { now.review } else { after.review };
        let kept = now.tags.iter().filter(|tag| !before.tags.contains(tag) || after.tags.contains(tag));
        let added = after.tags.iter().filter(|tag| !before.tags.contains(tag));
        let mut tags: Vec<String> = kept.chain(added).cloned().collect();
        tags.sort();
        tags.dedup();
        MarkChange { image, before: now, after: Mark { review, tags } }
    }

    /// How an image is named in a record; `before` is what is known of it now, against which `after` is a change.
    pub fn mark_change(&self, image: &Path, after: Mark) -> MarkChange {
        MarkChange { image: record::to_bytes(&self.root, image), before: self.mark(image), after }
    }

    fn step(&mut self, kind: Kind) -> Result<Option<Written>, DatasetError> {
        self.locked(false, |ledger| {
            let from = if kind == Kind::Undo { &ledger.done } else { &ledger.undone };
            let Some(&place) = from.last() else { return Ok(None) };
            let (id, record) = ledger.record_at(place)?;
            let skipped = ledger.left.get(&id).cloned().unwrap_or_default();
            let mut changes = Vec::new();
            let mut left = Vec::new();
            for (_, file) in record.files.iter().enumerate().filter(|(index, _)| !skipped.contains(index)) {
                let path = record::to_path(&ledger.root, &file.path);
                let is_undo = kind == Kind::Undo;
                let (from, to) = if is_undo { (&file.after, &file.before) } else { (&file.before, &file.after) };
                let now = match read(&path) {
                    Ok(now) => now,
                    Err(error) => {
                        left.push((path, format!("cannot be read: {error}")));
                        continue;
                    }
                };
                let hash = now.as_deref().map(record::hash);
                if hash == *to {
                    continue; // never carried out, or taken back by hand
                }
                let splices = if is_undo { splice::inverse(&file.splices) } else { file.splices.clone() };
                let after = splice::apply(now.as_deref().unwrap_or_default(), &splices);
                match after {
                    Some(after) if hash == *from => {
                        let after = to.as_ref().map(|_| after);
                        changes.push(Change { path, before: now, after, splices });
                    }
                    _ => left.push((path, "was changed by another program after this edit".to_owned())),
                }
            }
            let mut marks = record.marks;
            let mut colors = record.colors;
            if kind == Kind::Undo {
                for change in &mut marks {
                    std::mem::swap(&mut change.before, &mut change.after);
                }
                for change in &mut colors {
                    std::mem::swap(&mut change.before, &mut change.after);
                }
            }
            let record = Record { name: record.name, scope: record.scope, marks, colors, ..Record::default() };
            ledger.append(kind, record, changes, left, &|| ControlFlow::Continue(())).map(Some)
        })
    }

    /// Records, replaces, and says that it is done. The ledger is locked and read to its end.
    fn append(
        &mut self,
        kind: Kind,
        mut record: Record,
        changes: Vec<Change>,
        mut left: Vec<(PathBuf, String)>,
        go_on: &(dyn Fn() -> ControlFlow<()> + Sync),
    ) -> Result<Written, DatasetError> {
        self.say_done();
        record.time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        record.files = changes
            .iter()
            .map(|change| FileChange {
                path: record::to_bytes(&self.root, &change.path),
                before: change.before.as_deref().map(record::hash),
                after: change.after.as_deref().map(record::hash),
                splices: change.splices.clone(),
            })
            .collect();
        let id = self.next_id;
        let json = serde_json::to_vec(&record).expect("strings and numbers always serialize");
        let line = record::to_line(kind, id, record.has_marks(), &json);
        if self.len == 0 {
            let json = serde_json::json!({"version": 1, "dataset": record::to_bytes(Path::new(""), &self.root)}).to_string();
            self.write_line(&record::to_line(Kind::Ledger, 0, false, json.as_bytes()), false)?;
        }
        let start = self.len;
        self.write_line(&line, true)?;

        let outcomes = replace_all(&changes, go_on);
        let mut written = Vec::new();
        let mut left_indices = Vec::new();
        let mut failed = None;
        let mut stopped = None;
        for (index, (change, outcome)) in changes.into_iter().zip(outcomes).enumerate() {
            match outcome {
                Ok(()) => {
                    written.push(change.path);
                    continue;
                }
                Err(Some(ReplaceError::Refused(reason))) => left.push((change.path, reason)),
                Err(Some(ReplaceError::Failed(source))) if failed.is_none() => {
                    failed = Some(DatasetError::Write { path: change.path.display().to_string(), source });
                }
                Err(Some(ReplaceError::Failed(_))) => {}
                Err(None) => stopped = Some(DatasetError::Cancelled),
            }
            left_indices.push(index);
        }
        // After a disk that failed the others were not tried, which is not what there is to tell.
        let mut failed = failed.or(stopped);
        let step = match kind {
            Kind::Undo => Step::Undo,
            Kind::Redo => Step::Redo,
            _ => Step::Edit,
        };
        record.files.clear();
        // Nothing of a new edit could be done: it never was. An undo goes on to the edit before, unless the disk is the reason.
        let is_void = !left_indices.is_empty() && written.is_empty() && (kind == Kind::Edit || failed.is_some());
        if is_void {
            self.cut(start)?;
            return match failed {
                Some(error) => Err(error),
                None => Ok(Written { id: None, step, record, written, left, failed: None }),
            };
        }
        self.unsynced.clone_from(&written);
        self.take_in(&record::of_line(&line[..line.len() - 1]).expect("it was just made"), start, line.len());
        if !left_indices.is_empty() {
            let json = serde_json::to_vec(&left_indices).expect("numbers always serialize");
            // Files have changed by now: that the disk is full is no reason to say that they have not.
            let noted = self.write_line(&record::to_line(Kind::Left, id, false, &json), true);
            failed = failed.or(noted.err());
            self.left.insert(id, left_indices);
        }
        Ok(Written { id: Some(id), step, record, written, left, failed })
    }

    /// Writes a line at the end; if that fails, it is as if it had never been tried.
    fn write_line(&mut self, line: &[u8], is_synced: bool) -> Result<(), DatasetError> {
        let file = self.file.as_mut().expect("the ledger is open while it is locked");
        let mut write = || {
            file.seek(SeekFrom::Start(self.len))?;
            file.write_all(line)?;
            if is_synced { file.sync_data() } else { Ok(()) }
        };
        if let Err(source) = write() {
            let path = self.path.display().to_string();
            // The bytes are cut off by whoever opens it next, if not now.
            file.set_len(self.len).ok();
            return Err(DatasetError::Write { path, source });
        }
        self.len += line.len() as u64;
        Ok(())
    }

    /// Takes a record back that was not carried out.
    fn cut(&mut self, start: u64) -> Result<(), DatasetError> {
        let failed = |source| DatasetError::Write { path: self.path.display().to_string(), source };
        let file = self.file.as_mut().expect("the ledger is open while it is locked");
        file.set_len(start).and_then(|()| file.sync_data()).map_err(failed)?;
        self.len = start;
        Ok(())
    }

    /// Runs `work` while no other process writes, after having read what they wrote. Without a file and without `creates`, there is
    /// nothing to lock.
    fn locked<T>(&mut self, creates: bool, work: impl FnOnce(&mut Self) -> Result<T, DatasetError>) -> Result<T, DatasetError> {
        if self.file.as_ref().is_some_and(|file| !is_at(file, &self.path)) {
            // Somebody removed it, or put another in its place: what it said is gone.
            *self = Self { notes: std::mem::take(&mut self.notes), ..Self::empty(&self.root, &self.path) };
        }
        if self.file.is_none() {
            self.file = self.open_file(creates)?;
        }
        let Some(file) = &self.file else { return work(self) };
        let lock = file.try_clone().ok();
        if let Some(lock) = &lock {
            // A file system without locks has at least one process that writes.
            lock.lock().ok();
        }
        let result = self.read_on().and_then(|()| work(self));
        if let Some(lock) = &lock {
            lock.unlock().ok();
        }
        result
    }

    fn empty(root: &Path, path: &Path) -> Self {
        Self {
            root: root.to_owned(),
            path: path.to_owned(),
            file: None,
            len: 0,
            next_id: 1,
            done: Vec::new(),
            undone: Vec::new(),
            left: HashMap::new(),
            unsettled: None,
            unsynced: Vec::new(),
            marks: HashMap::new(),
            colors: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    fn open_file(&self, creates: bool) -> Result<Option<File>, DatasetError> {
        let failed = |source| DatasetError::Write { path: self.path.display().to_string(), source };
        match File::options().read(true).write(true).open(&self.path) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound && !creates => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&self.path).map_err(failed)?;
        let folders = folder.ancestors().take(3);
        // A file system that cannot sync folders is no reason to fail.
        folders.for_each(|folder| drop(replace::sync_folder(folder)));
        Ok(Some(file))
    }

    /// Reads the lines behind what is known; cuts off what is not whole at the end; carries out a record that was not.
    fn read_on(&mut self) -> Result<(), DatasetError> {
        let failed = |source| DatasetError::Io { path: self.path.display().to_string(), source };
        let Some(file) = &self.file else { return Ok(()) };
        let size = file.metadata().map_err(failed)?.len();
        if size == self.len {
            return Ok(());
        }
        let mut file = file.try_clone().map_err(failed)?;
        if size < self.len {
            // Restored from elsewhere, such as a backup.
            self.forget();
        }
        if let Err(error) = self.read_lines(&mut file, size) {
            // What was taken in until then is read again the next time.
            self.forget();
            return Err(error);
        }
        self.settle()
    }

    /// As if nothing had been read.
    fn forget(&mut self) {
        *self = Self { file: self.file.take(), notes: std::mem::take(&mut self.notes), ..Self::empty(&self.root, &self.path) };
    }

    /// Takes the lines in from what is known to `size`; cuts off what is not whole at the end.
    fn read_lines(&mut self, file: &mut File, size: u64) -> Result<(), DatasetError> {
        let failed = |source| DatasetError::Io { path: self.path.display().to_string(), source };
        file.seek(SeekFrom::Start(self.len)).map_err(failed)?;
        let mut reader = BufReader::with_capacity(1 << 20, file.take(size - self.len));
        let (mut offset, mut whole_to) = (self.len, self.len);
        let mut n_open = 0;
        let mut damaged: Option<u64> = None;
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let n = reader
                .read_until(b'\n', &mut buffer)
                .map_err(|source| DatasetError::Io { path: self.path.display().to_string(), source })?;
            if n == 0 {
                break;
            }
            n_open = if buffer.ends_with(b"\n") { 0 } else { n as u64 };
            match buffer.strip_suffix(b"\n").and_then(record::of_line) {
                None => damaged = damaged.or(Some(offset)),
                Some(line) => {
                    if let Some(place) = damaged.take() {
                        self.notes.push(format!(
                            "the ledger of edits is damaged at byte {place}; edits before it cannot be undone\nFile: {}",
                            self.path.display()
                        ));
                        self.done.clear();
                        self.undone.clear();
                    }
                    if line.kind == Kind::Ledger {
                        self.check_version(line.json)?;
                    } else {
                        self.take_in(&line, offset, n);
                    }
                    whole_to = offset + n as u64;
                }
            }
            offset += n as u64;
        }
        if whole_to < size {
            // The end of a process leaves one line without its end; anything else is not ours to throw away.
            if whole_to + n_open < size {
                let copy = self.keep_tail(whole_to)?;
                self.notes.push(format!(
                    "the end of the ledger of edits is damaged; the edits there cannot be undone, and were kept aside\nFile: {}",
                    copy.display()
                ));
            }
            self.cut_tail(whole_to)?;
        }
        self.len = whole_to;
        Ok(())
    }

    /// Copies what stands behind a place into a file beside the ledger.
    fn keep_tail(&self, start: u64) -> Result<PathBuf, DatasetError> {
        let copy = self.path.with_extension(format!("damaged-{start}"));
        let failed = |source| DatasetError::Write { path: copy.display().to_string(), source };
        let bytes = std::fs::read(&self.path).map_err(failed)?;
        let tail = bytes.get(start as usize..).unwrap_or_default();
        std::fs::write(&copy, tail).and_then(|()| File::open(&copy)?.sync_all()).map_err(failed)?;
        Ok(copy)
    }

    fn check_version(&self, json: &[u8]) -> Result<(), DatasetError> {
        #[derive(serde::Deserialize)]
        struct Header {
            version: u32,
        }
        let damaged = |reason: String| DatasetError::Journal { path: self.path.display().to_string(), reason };
        let header: Header = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        if header.version == 1 { Ok(()) } else { Err(damaged(format!("it has version {}", header.version))) }
    }

    fn cut_tail(&self, len: u64) -> Result<(), DatasetError> {
        let Some(file) = &self.file else { return Ok(()) };
        file.set_len(len)
            .and_then(|()| file.sync_data())
            .map_err(|source| DatasetError::Write { path: self.path.display().to_string(), source })
    }

    /// Keeps in memory what has to be known of a line.
    fn take_in(&mut self, line: &Line<'_>, offset: u64, len: usize) {
        let place = Place { offset, len: len as u32 };
        match line.kind {
            Kind::Ledger => return,
            Kind::Done => {
                self.unsettled = self.unsettled.filter(|(id, _)| *id != line.id);
                return;
            }
            Kind::Left => {
                self.left.insert(line.id, serde_json::from_slice(line.json).unwrap_or_default());
                return;
            }
            Kind::Edit => {
                self.done.push(place);
                self.undone.clear();
            }
            Kind::Undo => self.undone.extend(self.done.pop()),
            Kind::Redo => self.done.extend(self.undone.pop()),
        }
        self.unsettled = Some((line.id, place));
        self.next_id = self.next_id.max(line.id + 1);
        if line.has_marks
            && let Ok(record) = serde_json::from_slice::<Record>(line.json)
        {
            for MarkChange { image, after, .. } in record.marks {
                let image = record::to_path(&self.root, &image);
                if after == Mark::default() {
                    self.marks.remove(&image)
                } else {
                    self.marks.insert(image, after)
                };
            }
            for ColorChange { class, after, .. } in record.colors {
                match after {
                    Some(color) => self.colors.insert(class, color),
                    None => self.colors.remove(&class),
                };
            }
        }
    }

    /// Carries out the last record where the process ended before it was.
    fn settle(&mut self) -> Result<(), DatasetError> {
        let Some((id, place)) = self.unsettled else { return Ok(()) };
        let (_, record) = self.record_at(place)?;
        let skipped = self.left.get(&id).cloned().unwrap_or_default();
        remove_temporaries(record.files.iter().map(|file| record::to_path(&self.root, &file.path)));
        let mut changes = Vec::new();
        for (_, file) in record.files.iter().enumerate().filter(|(index, _)| !skipped.contains(index)) {
            let path = record::to_path(&self.root, &file.path);
            let Ok(now) = read(&path) else { continue };
            if now.as_deref().map(record::hash) == file.before
                && file.before != file.after
                && let Some(after) = splice::apply(now.as_deref().unwrap_or_default(), &file.splices)
            {
                let after = file.after.as_ref().map(|_| after);
                changes.push(Change { path, before: now, after, splices: Vec::new() });
            }
        }
        let outcomes = replace_all(&changes, &|| ControlFlow::Continue(()));
        let written: Vec<PathBuf> =
            changes.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|(change, _)| change.path.clone()).collect();
        // Also of files that were replaced before the process ended: their new names may not be on disk.
        sync_folders(&record.files.iter().map(|file| record::to_path(&self.root, &file.path)).collect::<Vec<_>>());
        if !written.is_empty() {
            self.notes.push(format!("{:?} was carried out to its end after the program had been interrupted", record.name));
        }
        let has_failed = outcomes.iter().any(|outcome| matches!(outcome, Err(Some(ReplaceError::Failed(_)))));
        // What the disk does not take now is tried again when the ledger is opened next.
        if !has_failed && self.write_line(&record::to_line(Kind::Done, id, false, b""), false).is_ok() {
            self.unsettled = None;
        }
        Ok(())
    }

    fn line_at(&self, place: Place) -> Option<Vec<u8>> {
        let mut file = self.file.as_ref()?.try_clone().ok()?;
        let mut line = vec![0; place.len as usize];
        file.seek(SeekFrom::Start(place.offset)).ok()?;
        file.read_exact(&mut line).ok()?;
        line.pop();
        Some(line)
    }

    fn record_at(&self, place: Place) -> Result<(u64, Record), DatasetError> {
        let damaged = |reason: &str| DatasetError::Journal {
            path: self.path.display().to_string(),
            reason: format!("the record at byte {} {reason}", place.offset),
        };
        let line = self.line_at(place).ok_or_else(|| damaged("cannot be read"))?;
        let line = record::of_line(&line).ok_or_else(|| damaged("is not as it was written"))?;
        let record = serde_json::from_slice(line.json).map_err(|error| damaged(&error.to_string()))?;
        Ok((line.id, record))
    }

    fn name_at(&self, place: Place) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Named {
            name: String,
        }
        let line = self.line_at(place)?;
        serde_json::from_slice::<Named>(record::of_line(&line)?.json).ok().map(|named| named.name)
    }
}

/// Whether the path leads to this open file, and not to another one or none.
fn is_at(file: &File, path: &Path) -> bool {
    let Ok(now) = std::fs::metadata(path) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        file.metadata().is_ok_and(|opened| (opened.dev(), opened.ino()) == (now.dev(), now.ino()))
    }
    // Elsewhere an open file cannot be replaced.
    #[cfg(not(unix))]
    {
        let _ = file;
        now.is_file()
    }
}

/// The bytes of a file; `None` when there is none.
pub fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces files; an error without a reason means that `go_on` said no.
fn replace_all(changes: &[Change], go_on: &(dyn Fn() -> ControlFlow<()> + Sync)) -> Vec<Result<(), Option<ReplaceError>>> {
    // After the first failure of the disk, or when asked to stop, the others are not tried.
    let stops = AtomicBool::new(false);
    let replace = |change: &Change| {
        if stops.load(Ordering::Relaxed) || go_on().is_break() {
            stops.store(true, Ordering::Relaxed);
            return Err(None);
        }
        let put = replace::put_file(&change.path, change.before.as_deref(), change.after.as_deref());
        put.map_err(|error| {
            if matches!(error, ReplaceError::Failed(_)) {
                stops.store(true, Ordering::Relaxed);
            }
            Some(error)
        })
    };
    if changes.len() <= FEW_FILES { changes.iter().map(replace).collect() } else { changes.par_iter().map(replace).collect() }
}

/// Makes the renames durable, once for each folder. A file system without that is no reason to fail: the files are whole.
fn sync_folders(files: &[PathBuf]) {
    for folder in folders_of(files.iter().cloned()) {
        replace::sync_folder(&folder).ok();
    }
}

/// Removes what a process left beside the files that it was about to replace when it ended.
fn remove_temporaries(files: impl Iterator<Item = PathBuf>) {
    let entries = folders_of(files).into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b".boxwright-") && name.ends_with(b".tmp") {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// Their folders, each once.
fn folders_of(files: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = files.filter_map(|file| file.parent().map(Path::to_owned)).collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests;
