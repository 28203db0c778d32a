//! Which operations does a wish of the editor come to? Delete, class, paste, propagate, marks: as parts of one edit.
//!
//! In:  labels of an image, which of them are selected, what is to be done.
//! Out: operations for `Edit`; none where nothing would change.
//!
//! Coordinates that a wish does not concern stay as they are to the bit, so that only what was meant changes in a label file.
//! Pure: knows neither window nor session.

use std::collections::HashSet;

use crate::dataset::edit::{Edit, ImageEdit, LabelOp, Mark, Review};
use crate::dataset::{ClassId, Label};
use crate::geom::{Size, Xywhn};

/// Image pixels between a box and its copy on the same image.
const PASTE_SHIFT: f32 = 10.0;

/// The name of an edit: `Move box`, `Move 3 boxes`.
pub fn name(verb: &str, n_boxes: usize) -> String {
    if n_boxes == 1 { format!("{verb} box") } else { format!("{verb} {n_boxes} boxes") }
}

pub fn removed(selected: &[usize]) -> Vec<LabelOp> {
    selected.iter().map(|&index| LabelOp::Remove { index }).collect()
}

/// Gives boxes a class; those that have it already are left out.
pub fn reclassed(labels: &[Label], selected: &[usize], class: ClassId) -> Vec<LabelOp> {
    let others = selected.iter().filter_map(|&index| Some((index, labels.get(index)?))).filter(|(_, label)| label.class != class);
    others.map(|(index, label)| LabelOp::Set { index, label: Label { class, ..*label } }).collect()
}

/// Puts boxes elsewhere; those that would not change are left out.
pub fn reshaped(labels: &[Label], boxes: &[(usize, Xywhn)]) -> Vec<LabelOp> {
    let others = boxes.iter().filter_map(|&(index, bbox)| Some((index, bbox, labels.get(index)?)));
    let changed = others.filter(|(_, bbox, label)| *bbox != label.bbox);
    changed.map(|(index, bbox, label)| LabelOp::Set { index, label: Label { bbox, ..*label } }).collect()
}

/// Adds those of `clip` that are not there yet: an equal row twice would be dropped by the trainer.
pub fn pasted(clip: &[Label], labels: &[Label]) -> Vec<LabelOp> {
    let mut there: HashSet<[u32; 5]> = labels.iter().map(identity).collect();
    clip.iter().filter(|label| there.insert(identity(label))).map(|label| LabelOp::Add(*label)).collect()
}

/// What makes two labels the same: class and coordinates, to the bit.
pub fn identity(label: &Label) -> [u32; 5] {
    let Label { class, bbox } = label;
    [class.0, bbox.cx.to_bits(), bbox.cy.to_bits(), bbox.w.to_bits(), bbox.h.to_bits()]
}

/// Copies that lie `times` steps beside their originals, to the right and down; to the left or up where there is no room.
pub fn beside(clip: &[Label], times: usize, size: Size) -> Vec<Label> {
    let step = |side: u32| PASTE_SHIFT * times as f32 / (side.max(1) as f32);
    let shifted = |center: f32, extent: f32, by: f32| {
        let by = if center + extent / 2.0 + by <= 1.0 { by } else { -by };
        (center + by).clamp((extent / 2.0).min(0.5), (1.0 - extent / 2.0).max(0.5))
    };
    let copy = |label: &Label| {
        let Xywhn { cx, cy, w, h } = label.bbox;
        let bbox = Xywhn { cx: shifted(cx, w, step(size.width)), cy: shifted(cy, h, step(size.height)), w, h };
        Label { bbox, ..*label }
    };
    clip.iter().map(copy).collect()
}

/// Copies labels to other images, in place; images that have them all already are left out.
pub fn propagated<'a>(clip: &[Label], targets: impl Iterator<Item = (usize, &'a [Label])>) -> Vec<ImageEdit> {
    let edits = targets.map(|(image, labels)| ImageEdit::new(image, pasted(clip, labels)));
    edits.filter(|edit| !edit.ops.is_empty()).collect()
}

/// An edit that says how an image was found; `None` where that was said before.
pub fn reviewed(image: usize, mark: &Mark, review: Review) -> Option<Edit> {
    if mark.review == review {
        return None;
    }
    let name = match review {
        Review::Unreviewed => "Mark not reviewed",
        Review::Reviewed => "Mark reviewed",
        Review::Empty => "Mark empty",
    };
    let mark = Some(Mark { review, tags: mark.tags.clone() });
    Some(Edit { name: name.to_owned(), images: vec![ImageEdit { image, ops: Vec::new(), mark }] })
}

/// An image that gets boxes is no longer empty on purpose.
pub fn no_longer_empty(edit: &mut ImageEdit, mark: Option<&Mark>) {
    let adds = edit.ops.iter().any(|op| matches!(op, LabelOp::Add(_)));
    if let Some(mark) = mark.filter(|mark| adds && mark.review == Review::Empty) {
        edit.mark = Some(Mark { review: Review::Unreviewed, tags: mark.tags.clone() });
    }
}

/// The next place in the listing whose image nobody has looked at; the search goes on from the beginning.
pub fn next_unreviewed(images: &[u32], position: usize, marks: &[Mark]) -> Option<usize> {
    let is_open = |image: usize| marks.get(image).is_none_or(|mark| mark.review == Review::Unreviewed);
    let n = images.len();
    (1..n).map(|step| (position + step) % n).find(|&place| is_open(images[place] as usize))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SIZE: Size = Size { width: 100, height: 50 };

    fn label(class: u32, cx: f32, w: f32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx, cy: 0.5, w, h: 0.2 } }
    }

    #[test]
    fn a_class_is_set_only_where_it_differs() {
        let labels = [label(0, 0.5, 0.1), label(1, 0.5, 0.1)];
        assert_eq!(reclassed(&labels, &[0, 1, 7], ClassId(1)), [LabelOp::Set { index: 0, label: label(1, 0.5, 0.1) }]);
    }

    #[test]
    fn a_box_that_did_not_move_is_no_operation() {
        let labels = [label(0, 0.5, 0.1)];
        assert_eq!(reshaped(&labels, &[(0, labels[0].bbox)]), []);
        let moved = Xywhn { cx: 0.6, ..labels[0].bbox };
        assert_eq!(reshaped(&labels, &[(0, moved)]), [LabelOp::Set { index: 0, label: label(0, 0.6, 0.1) }]);
    }

    #[test]
    fn copies_lie_beside_and_inside() {
        let copies = beside(&[label(0, 0.5, 0.1), label(0, 0.94, 0.1)], 1, SIZE);
        assert_eq!((copies[0].bbox.cx, copies[0].bbox.cy), (0.6, 0.7));
        assert!((copies[1].bbox.cx - 0.84).abs() < 1e-6, "there is no room to the right: {:?}", copies[1]);
        let whole = Label { class: ClassId(0), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 1.0, h: 1.0 } };
        assert_eq!(beside(&[whole], 1, SIZE), [whole]);
    }

    #[test]
    fn equal_labels_are_not_pasted_twice() {
        let (a, b) = (label(0, 0.5, 0.1), label(1, 0.5, 0.1));
        assert_eq!(pasted(&[a, b, b], &[a]), [LabelOp::Add(b)]);
        let edits = propagated(&[a], [(3, &[][..]), (4, &[a][..])].into_iter());
        assert_eq!(edits, [ImageEdit::new(3, vec![LabelOp::Add(a)])]);
    }

    #[test]
    fn marks_keep_their_tags_and_boxes_end_emptiness() {
        let mark = Mark { review: Review::Empty, tags: vec!["night".to_owned()] };
        assert_eq!(reviewed(2, &mark, Review::Empty), None);
        let edit = reviewed(2, &mark, Review::Reviewed).unwrap();
        assert_eq!(edit.images[0].mark, Some(Mark { review: Review::Reviewed, ..mark.clone() }));
        let mut adds = ImageEdit::new(2, vec![LabelOp::Add(label(0, 0.5, 0.1))]);
        no_longer_empty(&mut adds, Some(&mark));
        assert_eq!(adds.mark.unwrap().review, Review::Unreviewed);
        let mut removes = ImageEdit::new(2, vec![LabelOp::Remove { index: 0 }]);
        no_longer_empty(&mut removes, Some(&mark));
        assert_eq!(removes.mark, None);
    }

    #[test]
    fn the_next_unreviewed_image_is_searched_round_about() {
        let marks = [Review::Unreviewed, Review::Reviewed, Review::Empty].map(|review| Mark { review, tags: vec![] });
        assert_eq!(next_unreviewed(&[0, 1, 2], 1, &marks), Some(0));
        assert_eq!(next_unreviewed(&[0, 1, 2], 0, &marks), None, "it is the only one, and shown already");
        assert_eq!(next_unreviewed(&[2, 1, 9], 0, &marks), Some(2), "of which nothing is known");
        assert_eq!(next_unreviewed(&[], 0, &marks), None);
    }
}
