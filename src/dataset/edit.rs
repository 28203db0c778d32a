//! What is a person's change to labels? A value with a name that applies to the labels of some images.
//!
//! In:  the labels of an image before the edit, in the order of its label file.
//! Out: the labels after it.
//!
//! An edit is one step of undo, however many images it touches. Indices count the labels *before* the edit, so the order of
//! its operations does not matter. Pure data: what the files say is changed elsewhere.

use serde::{Deserialize, Serialize};

use super::label::Label;

/// One step of undo.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// As undo names it, such as `Move box`.
    pub name: String,
    pub images: Vec<ImageEdit>,
}

/// What an edit does to one image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageEdit {
    /// Index into the dataset's images.
    pub image: usize,
    pub ops: Vec<LabelOp>,
    /// What is known of the image from now on, if that changes.
    pub mark: Option<Mark>,
}

/// A change of one label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LabelOp {
    /// At the end of the file.
    Add(Label),
    Set {
        index: usize,
        label: Label,
    },
    Remove {
        index: usize,
    },
}

/// What a person has said of an image beside its labels; kept with the project, never in the dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub review: Review,
    /// Sorted, each once.
    pub tags: Vec<String>,
}

/// Whether a person has looked at an image's labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Review {
    #[default]
    Unreviewed,
    /// The labels are right.
    Reviewed,
    /// There is nothing to label, which is meant so.
    Empty,
}

impl ImageEdit {
    pub fn new(image: usize, ops: Vec<LabelOp>) -> Self {
        Self { image, ops, mark: None }
    }

    /// The labels after the edit; `None` when an index names no label, or one is named twice.
    pub fn applied(&self, labels: &[Label]) -> Option<Vec<Label>> {
        let mut after: Vec<Option<Label>> = labels.iter().copied().map(Some).collect();
        let mut touched = vec![false; labels.len()];
        for op in &self.ops {
            let (index, label) = match *op {
                LabelOp::Add(label) => {
                    after.push(Some(label));
                    continue;
                }
                LabelOp::Set { index, label } => (index, Some(label)),
                LabelOp::Remove { index } => (index, None),
            };
            if std::mem::replace(touched.get_mut(index)?, true) {
                return None;
            }
            after[index] = label;
        }
        Some(after.into_iter().flatten().collect())
    }
}

impl Edit {
    /// An edit of one image.
    pub fn of_image(name: impl Into<String>, image: usize, ops: Vec<LabelOp>) -> Self {
        Self { name: name.into(), images: vec![ImageEdit::new(image, ops)] }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::label::ClassId;
    use super::*;
    use crate::geom::Xywhn;

    fn label(class: u32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.1 } }
    }

    #[test]
    fn indices_count_the_labels_before_the_edit() {
        let before = [label(0), label(1), label(2)];
        let ops = vec![LabelOp::Remove { index: 0 }, LabelOp::Add(label(9)), LabelOp::Set { index: 2, label: label(7) }];
        assert_eq!(ImageEdit::new(0, ops).applied(&before).unwrap(), [label(1), label(7), label(9)]);
    }

    #[test]
    fn an_index_without_a_label_or_named_twice_is_refused() {
        assert_eq!(ImageEdit::new(0, vec![LabelOp::Remove { index: 1 }]).applied(&[label(0)]), None);
        let twice = vec![LabelOp::Remove { index: 0 }, LabelOp::Set { index: 0, label: label(1) }];
        assert_eq!(ImageEdit::new(0, twice).applied(&[label(0)]), None);
    }
}
