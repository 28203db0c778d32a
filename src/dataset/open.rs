//! Opening a dataset: which images belong to which split, where their labels are, and what the classes are called.

use std::path::{Path, PathBuf};

use super::label::{Label, Split};

/// How labels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yolo,
    PascalVoc,
}

/// One image and the file that holds its labels (which need not exist: a background image).
#[derive(Clone, Debug, PartialEq)]
pub struct ImageEntry {
    pub path: PathBuf,
    pub label_path: PathBuf,
    pub split: Split,
}

/// An open dataset. Labels are read on demand.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The folder that findings name files relative to.
    pub root: PathBuf,
    /// data.yaml, or the folder for Pascal VOC.
    pub source: PathBuf,
    pub format: Format,
    pub names: Vec<String>,
    /// Sorted by split, then path.
    pub images: Vec<ImageEntry>,
    /// Things about data.yaml that are worth saying, but do not stop anyone.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("cannot read {path}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: {reason}")]
    Yaml { path: String, reason: String },
    #[error("no dataset at {path}")]
    NotFound { path: String },
    #[error("no images in {path}")]
    NoImages { path: String },
    #[error("cancelled")]
    Cancelled,
}

impl DatasetError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        todo!("dataset")
    }
}

impl Dataset {
    /// Opens a data.yaml, a folder that holds one (or YOLO layouts without), or a Pascal VOC folder.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        let _ = path;
        todo!("dataset")
    }

    pub fn split(&self, split: Split) -> impl Iterator<Item = &ImageEntry> {
        self.images.iter().filter(move |image| image.split == split)
    }

    /// The labels of an image that training uses: rows that are valid, in file order. Absent file: none.
    ///
    /// # Errors
    /// Only when the file exists and cannot be read; bad rows are left out here and told by `check`.
    pub fn labels(&self, image: &ImageEntry) -> Result<Vec<Label>, DatasetError> {
        let _ = image;
        todo!("dataset")
    }
}
