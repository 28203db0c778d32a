//! How does an edit of labels become changes of label files?
//!
//! In:  the edit of an image, and the labels that it was made for.
//! Out: the change of its label file; or that the file says something else by now, and what.
//!
//! The file is read anew: what it holds beside the labels is kept. Writes nothing.

use super::edit::{ImageEdit, LabelOp};
use super::label::Label;
use super::label_rows;
use super::ledger::Change;
use super::open::{Dataset, DatasetError, Format, ImageEntry};
use super::parse::LabelFile;
use super::splice::Splice;
use super::voc;
use super::voc_rows::{self, NewFile};
use crate::media::decode;

/// Coordinates that differ by less are the same: a polygon's box is worked out from its points each time, and Pascal VOC has whole
/// pixels.
const SAME: f32 = 1e-5;
const SAME_IN_VOC: f32 = 0.01;

/// Why an edit of an image cannot be written.
#[derive(Debug)]
pub enum PlanError {
    /// The file does not hold the labels that the edit was made for.
    Changed {
        now: Vec<Label>,
    },
    /// An index names no label, or one twice.
    NoSuchLabel,
    Dataset(DatasetError),
}

impl From<DatasetError> for PlanError {
    fn from(error: DatasetError) -> Self {
        Self::Dataset(error)
    }
}

/// The change of the image's label file; `None` where the edit changes no label.
///
/// # Errors
/// As the kinds of [`PlanError`] say.
pub fn plan(dataset: &Dataset, edit: &ImageEdit, expected: &[Label]) -> Result<Option<Change>, PlanError> {
    let image = &dataset.images[edit.image];
    if edit.ops.is_empty() {
        return Ok(None);
    }
    let before = dataset.label_bytes(&image.label_path)?;
    let bytes = before.as_deref().unwrap_or_default();
    let file = parse(dataset, edit.image, bytes)?;
    let now: Vec<Label> = file.labels().collect();
    if !is_same(dataset, &now, expected) {
        return Err(PlanError::Changed { now });
    }
    let splices = match dataset.format {
        Format::Yolo => label_rows::splices(bytes, &file, &edit.ops),
        Format::PascalVoc => voc_splices(dataset, image, bytes, &file, &edit.ops)?,
    };
    let splices = splices.ok_or(PlanError::NoSuchLabel)?;
    Ok((!splices.is_empty()).then(|| Change::spliced(image.label_path.clone(), before, splices)))
}

fn voc_splices(
    dataset: &Dataset,
    image: &ImageEntry,
    bytes: &[u8],
    file: &LabelFile,
    ops: &[LabelOp],
) -> Result<Option<Vec<Splice>>, DatasetError> {
    let failed = |reason: String| DatasetError::Label { path: dataset.relative(&image.label_path).display().to_string(), reason };
    let stated = || voc::parse_voc(bytes).ok().and_then(|file| file.size);
    let size = decode::probe(&image.path).ok().or_else(stated);
    let size = size.ok_or_else(|| failed("cannot be edited: the size of its image is not known".to_owned()))?;
    let image_name = image.path.file_name().unwrap_or_default().to_string_lossy();
    let new_file = NewFile { image_name: &image_name, size };
    voc_rows::splices(bytes, file, ops, &dataset.names, &new_file).map_err(failed)
}

/// The labels of an image by what its label file holds.
///
/// # Errors
/// The file is no label file.
pub fn labels(dataset: &Dataset, image: usize, bytes: Option<&[u8]>) -> Result<Vec<Label>, DatasetError> {
    Ok(parse(dataset, image, bytes.unwrap_or_default())?.labels().collect())
}

fn parse(dataset: &Dataset, image: usize, bytes: &[u8]) -> Result<LabelFile, DatasetError> {
    let image = &dataset.images[image];
    if bytes.is_empty() {
        return Ok(LabelFile::default());
    }
    let file = dataset.parse_bytes(bytes, &|| decode::probe(&image.path).ok());
    match file.problem {
        Some(reason) => Err(DatasetError::Label { path: dataset.relative(&image.label_path).display().to_string(), reason }),
        None => Ok(file),
    }
}

/// Whether two lists of labels say the same, up to rounding.
pub fn is_same(dataset: &Dataset, a: &[Label], b: &[Label]) -> bool {
    let bound = if dataset.format == Format::PascalVoc { SAME_IN_VOC } else { SAME };
    let is_near = |a: &Label, b: &Label| {
        let fields = |label: &Label| [label.bbox.cx, label.bbox.cy, label.bbox.w, label.bbox.h];
        a.class == b.class && fields(a).into_iter().zip(fields(b)).all(|(a, b)| (a - b).abs() <= bound)
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b))
}
