//! The checks of the label doctor: every finding with its rule, place, and whether it can be mended safely.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::open::{Dataset, DatasetError};
use crate::geom::Xywhn;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// Whether a finding can be mended without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixability {
    Auto,
    Ask,
    None,
}

/// A kind of fault. Id (kebab-case), title, severity and reason come from one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    OutOfRange,
}

/// One fault at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub rule: Rule,
    pub severity: Severity,
    pub fix: Fixability,
    /// Relative to the dataset's root.
    pub file: PathBuf,
    /// Index into `Dataset::images` where the finding is about an image or its labels.
    pub image: Option<usize>,
    /// 1-based line of a label file.
    pub line: Option<usize>,
    pub bbox: Option<Xywhn>,
    pub message: String,
}

/// What a check found, and what it looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    pub findings: Vec<Finding>,
    pub n_images: usize,
    pub n_label_files: usize,
    pub n_rows: usize,
}

/// Checks every label row and decodes every image. `check_in(done, total)` reports progress and may stop it.
pub fn check(dataset: &Dataset, check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync)) -> Result<CheckReport, DatasetError> {
    let _ = (dataset, check_in);
    todo!("dataset")
}
