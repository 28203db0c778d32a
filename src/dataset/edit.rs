//! What is a person's change to labels? A value with a name that applies to the labels of some images.
//!
//! In:  the labels of an image before the edit, in the order of its label file.
//! Out: the labels after it.
//!
//! An edit is one step of undo, however many images it touches. Indices count the labels *before* the edit, so the order of
//! its operations does not matter. Pure data: what the files say is changed elsewhere.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::edge;
use super::label::Label;
use crate::geom::iou::iou;
use crate::geom::{Size, Xywhn};

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

    /// The same edit as a label file can hold it: boxes cut at the image's edge, and no label twice. `None` when a box has no size or
    /// lies outside of the image, an index names no label, or one is named twice.
    pub fn fitted(&self, labels: &[Label]) -> Option<Self> {
        self.applied(labels)?;
        let index_of = |op: &LabelOp| if let LabelOp::Set { index, .. } | LabelOp::Remove { index } = op { Some(*index) } else { None };
        let touched: HashSet<usize> = self.ops.iter().filter_map(index_of).collect();
        let key = |label: &Label| {
            let bbox = label.bbox;
            (label.class, [bbox.cx, bbox.cy, bbox.w, bbox.h].map(f32::to_bits))
        };
        let kept = labels.iter().enumerate().filter(|(index, _)| !touched.contains(index));
        let mut seen: HashSet<_> = kept.map(|(_, label)| key(label)).collect();
        let mut ops = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            match *op {
                LabelOp::Add(label) => {
                    let label = inside(label)?;
                    if seen.insert(key(&label)) {
                        ops.push(LabelOp::Add(label));
                    }
                }
                LabelOp::Set { index, label } => {
                    // A class alone changes nothing of the box as it is written.
                    let label = if label.bbox == labels[index].bbox { label } else { inside(label)? };
                    ops.push(if seen.insert(key(&label)) { LabelOp::Set { index, label } } else { LabelOp::Remove { index } });
                }
                remove @ LabelOp::Remove { .. } => ops.push(remove),
            }
        }
        Some(Self { ops, ..self.clone() })
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

/// The part of a box that lies inside the image, if that has a size; to the bit the same where all of it does.
fn inside(label: Label) -> Option<Label> {
    let Xywhn { cx, cy, w, h } = label.bbox;
    let [cx64, cy64, w64, h64] = [cx, cy, w, h].map(f64::from);
    let edges = [cx64 - w64 / 2.0, cy64 - h64 / 2.0, cx64 + w64 / 2.0, cy64 + h64 / 2.0];
    let is_inside = edges.iter().all(|edge| (-edge::EDGE_EPSILON..=1.0 + edge::EDGE_EPSILON).contains(edge));
    let bbox = if is_inside { label.bbox } else { edge::xywhn_from_edges(edges.map(|edge| edge.clamp(0.0, 1.0))) };
    (bbox.w > 0.0 && bbox.h > 0.0 && bbox.cx.is_finite() && bbox.cy.is_finite()).then_some(Label { bbox, ..label })
}

/// The operations that make one list of labels into another; labels that are in both stay where they are, and one that overlaps with
/// one of its class is moved, so that a polygon stays one.
pub fn ops_between(from: &[Label], to: &[Label]) -> Vec<LabelOp> {
    let mut missing: Vec<Label> = to.to_vec();
    let mut rest = Vec::new();
    for (index, label) in from.iter().enumerate() {
        match missing.iter().position(|each| each == label) {
            Some(place) => drop(missing.remove(place)),
            None => rest.push((index, label)),
        }
    }
    let unit = Size::square(1);
    let mut ops = Vec::new();
    for (index, label) in rest {
        let overlap =
            |other: &Label| if other.class == label.class { iou(&label.bbox.to_xyxy(unit), &other.bbox.to_xyxy(unit)) } else { 0.0 };
        let best = (0..missing.len()).max_by(|&a, &b| overlap(&missing[a]).total_cmp(&overlap(&missing[b])));
        ops.push(match best.filter(|&best| overlap(&missing[best]) > 0.0) {
            Some(best) => LabelOp::Set { index, label: missing.remove(best) },
            None => LabelOp::Remove { index },
        });
    }
    ops.extend(missing.into_iter().map(LabelOp::Add));
    ops
}

/// What two people made of the same labels, in one: what either took away is gone, what either added is there.
pub fn merged(base: &[Label], mine: &[Label], theirs: &[Label]) -> Vec<Label> {
    let without = |labels: &[Label], others: &[Label]| -> Vec<Label> {
        let mut others = others.to_vec();
        let mut rest = labels.to_vec();
        rest.retain(|label| others.iter().position(|other| other == label).map(|place| others.remove(place)).is_none());
        rest
    };
    let mut result = without(theirs, &without(base, mine));
    let added = without(&without(mine, base), &without(theirs, base));
    result.extend(added);
    result
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
    fn a_file_can_hold_what_was_fitted() {
        let at = |cx: f32| Label { bbox: Xywhn { cx, ..label(0).bbox }, ..label(0) };
        let before = [at(0.5), at(0.3)];
        let fitted = |op| ImageEdit::new(0, vec![op]).fitted(&before).map(|edit| edit.ops);
        assert_eq!(fitted(LabelOp::Add(at(0.5))), Some(vec![]), "it is there already");
        assert_eq!(fitted(LabelOp::Set { index: 1, label: at(0.5) }), Some(vec![LabelOp::Remove { index: 1 }]));
        let edge = Label { bbox: Xywhn { cx: 0.975, w: 0.05, ..label(0).bbox }, ..label(0) };
        let cut = fitted(LabelOp::Add(at(1.0))).unwrap();
        assert!(matches!(cut[..], [LabelOp::Add(cut)] if (cut.bbox.cx - edge.bbox.cx).abs() < 1e-6), "{cut:?}");
        assert_eq!(fitted(LabelOp::Add(at(1.2))), None, "outside");
        assert_eq!(fitted(LabelOp::Add(at(f32::NAN))), None);
        assert_eq!(fitted(LabelOp::Add(Label { bbox: Xywhn { w: 0.0, ..label(0).bbox }, ..label(0) })), None);
    }

    #[test]
    fn two_versions_are_merged_and_lead_from_one_to_the_other() {
        let base = [label(0), label(1), label(2)];
        let mine = [label(0), label(2), label(5)];
        let theirs = [label(0), label(1), label(7), label(5)];
        assert_eq!(merged(&base, &mine, &theirs), [label(0), label(7), label(5)]);
        let ops = ops_between(&theirs, &mine);
        let mut after = ImageEdit::new(0, ops).applied(&theirs).unwrap();
        after.sort_by_key(|label| label.class);
        assert_eq!(after, mine);
        assert_eq!(ops_between(&mine, &mine), []);
        let moved = Label { bbox: Xywhn { cx: 0.52, ..label(1).bbox }, ..label(1) };
        assert_eq!(ops_between(&theirs[..2], &[label(0), moved]), [LabelOp::Set { index: 1, label: moved }]);
    }

    #[test]
    fn an_index_without_a_label_or_named_twice_is_refused() {
        assert_eq!(ImageEdit::new(0, vec![LabelOp::Remove { index: 1 }]).applied(&[label(0)]), None);
        let twice = vec![LabelOp::Remove { index: 0 }, LabelOp::Set { index: 0, label: label(1) }];
        assert_eq!(ImageEdit::new(0, twice).applied(&[label(0)]), None);
    }
}
