//! What do actions on several images change? Review states and tags, as one edit of undo.
//!
//! In:  images with their marks and labels. Out: an edit, or nothing where everything is so already.

use super::controls::counted;
use crate::dataset::Label;
use crate::dataset::edit::{Edit, ImageEdit, Mark, Review};

/// A change of what is known of an image beside its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkChange {
    Review(Review),
    AddTag(String),
    RemoveTag(String),
}

/// An image with what the change needs to know of it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub image: usize,
    pub mark: Option<&'a Mark>,
    pub labels: &'a [Label],
}

/// The edit, and how many images it leaves out because they have boxes and so cannot be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarkEdit {
    pub edit: Option<Edit>,
    pub n_left_out: usize,
}

/// Changes the marks of images.
pub fn marked<'a>(change: &MarkChange, subjects: impl Iterator<Item = Subject<'a>>) -> MarkEdit {
    let mut images = Vec::new();
    let mut n_left_out = 0;
    for Subject { image, mark, labels } in subjects {
        if *change == MarkChange::Review(Review::Empty) && !labels.is_empty() {
            n_left_out += 1;
            continue;
        }
        let before = mark.cloned().unwrap_or_default();
        let after = change.applied(&before);
        if after != before {
            images.push(ImageEdit { image, ops: Vec::new(), mark: Some(after) });
        }
    }
    let name = || format!("{} {}", change.verb(), counted(images.len(), "image"));
    let edit = (!images.is_empty()).then(|| Edit { name: name(), images: Vec::new() });
    MarkEdit { edit: edit.map(|edit| Edit { images, ..edit }), n_left_out }
}

impl MarkChange {
    fn applied(&self, mark: &Mark) -> Mark {
        let mut after = mark.clone();
        match self {
            Self::Review(review) => after.review = *review,
            Self::AddTag(tag) => {
                if let Err(place) = after.tags.binary_search(tag) {
                    after.tags.insert(place, tag.clone());
                }
            }
            Self::RemoveTag(tag) => after.tags.retain(|each| each != tag),
        }
        after
    }

    /// As undo names it, before the number of images.
    fn verb(&self) -> String {
        match self {
            Self::Review(Review::Unreviewed) => "Mark not reviewed:".to_owned(),
            Self::Review(Review::Reviewed) => "Mark reviewed:".to_owned(),
            Self::Review(Review::Empty) => "Mark empty:".to_owned(),
            Self::AddTag(tag) => format!("Tag {tag}:"),
            Self::RemoveTag(tag) => format!("Untag {tag}:"),
        }
    }
}

/// A tag as it is kept; `None` for what is none. Blanks within are one blank.
pub fn tag_of(text: &str) -> Option<String> {
    let tag = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::ClassId;
    use crate::geom::Xywhn;

    fn mark(review: Review, tags: &[&str]) -> Mark {
        Mark { review, tags: tags.iter().map(|&tag| tag.to_owned()).collect() }
    }

    fn edited(change: &MarkChange, marks: &[Mark], n_labels: &[usize]) -> (Vec<(usize, Mark)>, usize) {
        let label = Label { class: ClassId(0), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.1 } };
        let labels: Vec<Vec<Label>> = n_labels.iter().map(|&n| vec![label; n]).collect();
        let subjects = labels.iter().enumerate().map(|(image, labels)| Subject { image, mark: marks.get(image), labels });
        let MarkEdit { edit, n_left_out } = marked(change, subjects);
        let images = edit.map(|edit| edit.images).unwrap_or_default();
        (images.into_iter().map(|each| (each.image, each.mark.unwrap())).collect(), n_left_out)
    }

    #[test]
    fn tags_stay_sorted_and_only_what_changes_is_edited() {
        let marks = [mark(Review::Reviewed, &["day", "wet"]), mark(Review::Unreviewed, &["night"])];
        let (images, _) = edited(&MarkChange::AddTag("night".to_owned()), &marks, &[0, 1, 2]);
        assert_eq!(images, [(0, mark(Review::Reviewed, &["day", "night", "wet"])), (2, mark(Review::Unreviewed, &["night"]))]);
        let (images, _) = edited(&MarkChange::RemoveTag("wet".to_owned()), &marks, &[0, 1, 2]);
        assert_eq!(images, [(0, mark(Review::Reviewed, &["day"]))]);
    }

    #[test]
    fn an_image_with_boxes_is_not_empty() {
        let (images, n_left_out) = edited(&MarkChange::Review(Review::Empty), &[], &[0, 3]);
        assert_eq!((images, n_left_out), (vec![(0, mark(Review::Empty, &[]))], 1));
        let change = MarkChange::Review(Review::Unreviewed);
        assert_eq!(marked(&change, std::iter::once(Subject { image: 0, mark: None, labels: &[] })), MarkEdit::default());
    }

    #[test]
    fn a_tag_is_one_line_without_blanks_around_it() {
        assert_eq!((tag_of("  too \n dark "), tag_of(" ")), (Some("too dark".to_owned()), None));
    }
}
