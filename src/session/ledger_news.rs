//! What has become of edits of the open dataset? The answers of the thread that writes them.
//!
//! In:  what the thread did or refused, and what it found. Out: values that the session takes in, and that are printed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::LabelTable;
use super::failure::Failure;
use crate::dataset::edit::Mark;
use crate::dataset::ledger::Step;
use crate::dataset::ledger::record::Scope;
use crate::dataset::{Dataset, Label};

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
        /// What is known of the image, whatever an edit showed that was not done.
        mark: Mark,
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

impl Edited {
    /// Of an edit that changes nothing.
    pub(super) fn of_nothing(name: String, images: Vec<(usize, Arc<[Label]>)>, marks: Vec<(usize, Mark)>) -> Self {
        Self { id: 0, name, step: Step::Edit, scope: Scope::Labels, files: Vec::new(), left: Vec::new(), failed: None, images, marks }
    }
}
