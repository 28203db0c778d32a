//! The checks of the label doctor: every finding with its rule, place, and whether it can be mended safely.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::open::{Dataset, DatasetError};
pub use super::rule::{Fixability, Rule, Severity};
use crate::geom::Xywhn;

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
