//! The safe fixes: applied as one batch, with the original bytes in a journal, a receipt, and undo.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::check::Rule;
use super::open::{Dataset, DatasetError};

/// What a fix did (or would do) to one row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowChange {
    pub file: PathBuf,
    pub line: usize,
    pub rule: Rule,
    pub before: String,
    /// `None`: the row is removed.
    pub after: Option<String>,
}

/// The outcome of `fix` or `undo`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Receipt {
    pub changes: Vec<RowChange>,
    pub files: Vec<PathBuf>,
    /// Files left alone, with the reason (such as changed on disk meanwhile).
    pub refused: Vec<(PathBuf, String)>,
    /// The plain-text receipt on disk; `None` for a dry run or when nothing changed.
    pub path: Option<PathBuf>,
}

/// Applies (or with `dry_run` only lists) the automatic fixes. `state_dir` holds journals, outside of the dataset.
pub fn fix(
    dataset: &Dataset,
    state_dir: &std::path::Path,
    dry_run: bool,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<Receipt, DatasetError> {
    let _ = (dataset, state_dir, dry_run, check_in);
    todo!("dataset")
}

/// Takes the last batch of fixes back: writes the original bytes again, file by file, where nothing changed since.
pub fn undo(dataset: &Dataset, state_dir: &std::path::Path) -> Result<Receipt, DatasetError> {
    let _ = (dataset, state_dir);
    todo!("dataset")
}
