//! Which images pass the query, in which order, and what there is to count over all of them?
//!
//! In:  the open dataset with its labels, marks, facts and last check; a query line; an order.
//! Out: images in order, counts over the dataset, and what is wrong with the line.
//!
//! Worked out when something changed, never in a frame that changes nothing. An edit of some images costs what these images
//! cost. A line that is wrong leaves the images as they were. The image that a person works on stays in the listing as long as
//! they are at it, even where an edit makes it fail the query.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dataset::check::CheckReport;
use crate::dataset::edit::{Mark, Review};
use crate::dataset::query::select::Selection;
use crate::dataset::query::{Change, Columns, Filter, QueryError, Sort, Source, Vocabulary, parse};
use crate::dataset::{Dataset, Label, Split};
use crate::session::LabelTable;
use crate::session::OpenDataset;
use crate::session::Session;

/// Side of the square that training fits images into, unless a run says otherwise.
pub const TRAINING_SIDE: u32 = 640;

/// What became of the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Followed {
    Same,
    /// Some images may have come, gone or moved.
    Edited,
    /// Others were asked for.
    Chosen,
}

/// How many there are, over the whole dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// For each of `Split::ALL`.
    pub n_splits: [usize; 3],
    /// Images that are unreviewed, reviewed, empty on purpose.
    pub n_reviews: [usize; 3],
    /// Boxes by class.
    pub n_class_labels: Vec<usize>,
    /// Images without a box.
    pub n_background: usize,
    pub n_labels: usize,
    /// Images by tag.
    pub n_tags: BTreeMap<String, usize>,
    /// Images in which the last check found something.
    pub n_with_findings: usize,
}

/// The images that pass, and the totals.
pub struct Listing {
    pub dataset: Arc<Dataset>,
    columns: Columns,
    selection: Selection,
    /// The line that was read last.
    line: String,
    pub error: Option<QueryError>,
    pub totals: Totals,
    labels: Arc<LabelTable>,
    marks: Arc<Vec<Mark>>,
    report: Option<Arc<CheckReport>>,
    /// The image that is listed although it does not pass, or out of order.
    kept: Option<u32>,
    /// Counts the changes of `images`.
    pub version: u64,
}

impl Listing {
    /// Of which nothing was read yet; [`Self::follow`] does.
    pub fn new(dataset: &Arc<Dataset>) -> Self {
        Self {
            dataset: dataset.clone(),
            columns: Columns::default(),
            selection: Selection::default(),
            line: String::new(),
            error: None,
            totals: Totals::default(),
            labels: Arc::default(),
            marks: Arc::default(),
            report: None,
            kept: None,
            version: 0,
        }
    }

    /// Takes in what changed since the last call; cheap when nothing did. Returns whether the images may be others now, and why.
    ///
    /// `current` is the image that a person is at.
    pub fn follow(&mut self, session: &Session, open: &OpenDataset, line: &str, sort: Sort, current: Option<usize>) -> Followed {
        let OpenDataset { dataset, labels, marks, facts, .. } = open;
        let report = session.report.as_ref();
        let change = self.columns.follow(Source { dataset, labels, marks, facts, report, training_side: TRAINING_SIDE });
        let had_labels = self.has_labels();
        self.count(open, &change);
        self.count_findings(report);

        let (mut is_changed, mut is_chosen) = (false, false);
        let position = current.and_then(|image| self.selection.position(image as u32));
        if change != Change::Nothing {
            is_changed |= self.selection.update(&self.columns, &change);
            let is_edit = matches!(change, Change::Images(_));
            if let (Some(position), Some(image)) = (position, current)
                && (is_edit || had_labels)
            {
                is_changed |= self.keep(position, image as u32, is_edit);
            }
        }
        if self.kept.is_some_and(|kept| current != Some(kept as usize)) {
            is_changed |= self.drop_kept();
        }
        if self.line != line || self.version == 0 {
            line.clone_into(&mut self.line);
            match parse(line, self.columns.vocabulary()) {
                Ok(filter) => {
                    self.error = None;
                    is_chosen |= self.select(&filter, sort);
                }
                Err(error) => self.error = Some(error),
            }
        }
        if self.selection.sort != sort {
            let filter = self.selection.filter.clone();
            is_chosen |= self.select(&filter, sort);
        }
        self.version += u64::from(is_changed || is_chosen || self.version == 0);
        match (is_chosen, is_changed) {
            (true, _) => Followed::Chosen,
            (false, true) => Followed::Edited,
            (false, false) => Followed::Same,
        }
    }

    /// Indices of the dataset's images in the order that was asked for.
    pub fn images(&self) -> &[u32] {
        &self.selection.images
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        self.columns.vocabulary()
    }

    pub fn labels(&self, image: usize) -> Option<&[Label]> {
        self.labels.get(image).map(|labels| &**labels)
    }

    pub fn mark(&self, image: usize) -> Option<&Mark> {
        self.marks.get(image)
    }

    pub fn n_findings(&self, image: usize) -> usize {
        self.columns.n_findings(image)
    }

    /// Whether the labels were checked.
    pub fn has_report(&self) -> bool {
        self.report.is_some()
    }

    pub fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    fn select(&mut self, filter: &Filter, sort: Sort) -> bool {
        if self.version > 0 && self.selection.filter == *filter && self.selection.sort == sort {
            return false;
        }
        self.selection = self.columns.select(filter, sort);
        self.kept = None;
        true
    }

    /// The image at work stays where it was, at least in the listing, or where `in_place` also in the order.
    fn keep(&mut self, position: usize, image: u32, in_place: bool) -> bool {
        let images = &mut self.selection.images;
        match images.iter().position(|&each| each == image) {
            Some(now) if now == position || !in_place => return false,
            Some(now) => drop(images.remove(now)),
            None => {}
        }
        images.insert(position.min(images.len()), image);
        self.kept = Some(image);
        true
    }

    /// The image that was kept is left: it goes, or to the place where the order has it.
    fn drop_kept(&mut self) -> bool {
        self.kept.take().is_some_and(|kept| self.selection.update(&self.columns, &Change::Images(vec![kept])))
    }

    fn count(&mut self, open: &OpenDataset, change: &Change) {
        let n_images = open.dataset.images.len();
        match change {
            Change::Nothing => return,
            Change::Images(images) if self.labels.len() == open.labels.len() => {
                for &image in images {
                    let image = image as usize;
                    let before = self.labels.get(image).map(|labels| &**labels);
                    self.totals.count(before, self.marks.get(image), open.dataset.images[image].split, false);
                    let after = open.labels.get(image).map(|labels| &**labels);
                    self.totals.count(after, open.marks.get(image), open.dataset.images[image].split, true);
                }
            }
            Change::Images(_) | Change::All => {
                let n_with_findings = self.totals.n_with_findings;
                self.totals = Totals { n_class_labels: vec![0; open.dataset.names.len()], n_with_findings, ..Totals::default() };
                for image in 0..n_images {
                    let labels = open.labels.get(image).map(|labels| &**labels);
                    self.totals.count(labels, open.marks.get(image), open.dataset.images[image].split, true);
                }
            }
        }
        (self.labels, self.marks) = (open.labels.clone(), open.marks.clone());
    }

    fn count_findings(&mut self, report: Option<&Arc<CheckReport>>) {
        if self.report.as_ref().map(Arc::as_ptr) != report.map(Arc::as_ptr) {
            self.report = report.cloned();
            let n_images = self.dataset.images.len();
            self.totals.n_with_findings = (0..n_images).filter(|&image| self.columns.n_findings(image) > 0).count();
        }
    }
}

impl Totals {
    /// Takes an image in, or out.
    fn count(&mut self, labels: Option<&[Label]>, mark: Option<&Mark>, split: Split, is_in: bool) {
        let change = |count: &mut usize| *count = if is_in { *count + 1 } else { count.saturating_sub(1) };
        change(&mut self.n_splits[split as usize]);
        change(&mut self.n_reviews[mark.map_or(Review::Unreviewed, |mark| mark.review) as usize]);
        for tag in mark.iter().flat_map(|mark| &mark.tags) {
            let count = self.n_tags.entry(tag.clone()).or_default();
            change(count);
            if *count == 0 {
                self.n_tags.remove(tag);
            }
        }
        let Some(labels) = labels else { return };
        if labels.is_empty() {
            change(&mut self.n_background);
        }
        for label in labels {
            change(&mut self.n_labels);
            if let Some(count) = self.n_class_labels.get_mut(label.class.0 as usize) {
                change(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::path::Path;

    use super::*;
    use crate::dataset::edit::{Edit, ImageEdit, LabelOp};
    use crate::dataset::open::Format;
    use crate::dataset::query::SortBy;
    use crate::dataset::{ClassId, ImageEntry};
    use crate::geom::Xywhn;
    use crate::session::Command;
    use crate::session::Settings;

    fn label(class: u32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.1 } }
    }

    /// Three images: a scratch and a dent, nothing, a dent.
    fn session(dir: &Path) -> Session {
        let image = |name: &str, split| ImageEntry { path: dir.join(name).with_extension("jpg"), label_path: dir.join(name), split };
        let images = vec![image("a.txt", Split::Train), image("b.txt", Split::Train), image("c.txt", Split::Val)];
        let dataset = Dataset {
            root: dir.into(),
            source: dir.join("data.yaml"),
            format: Format::Yolo,
            names: vec!["scratch".to_owned(), "dent".to_owned()],
            images,
            notes: vec![],
            n_keypoint_fields: None,
            merged: None,
        };
        let labels = [vec![label(0), label(1)], vec![], vec![label(1)]].map(Into::into).to_vec();
        let mut session = Session::new(Settings::in_dir(&dir.join("state")), Arc::new(|| ()));
        session.dataset = Some(OpenDataset { labels: Arc::new(labels), ..OpenDataset::new(Arc::new(dataset)) });
        session
    }

    fn follow(listing: &mut Listing, session: &Session, line: &str, current: Option<usize>) -> Followed {
        let Some(open) = &session.dataset else { return Followed::Same };
        listing.follow(session, open, line, Sort::default(), current)
    }

    fn listing(session: &Session, line: &str) -> Listing {
        let mut listing = Listing::new(&session.dataset.as_ref().unwrap().dataset);
        follow(&mut listing, session, line, None);
        listing
    }

    fn review(image: usize, review: Review) -> Command {
        let mark = Some(Mark { review, tags: vec![] });
        Command::Edit(Edit { name: "Review".to_owned(), images: vec![ImageEdit { image, ops: vec![], mark }] })
    }

    #[test]
    fn a_line_narrows_and_a_wrong_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path());
        let mut listing = listing(&session, "");
        assert_eq!(listing.images(), [0, 1, 2]);
        assert_eq!(follow(&mut listing, &session, "class:dent split:val", None), Followed::Chosen);
        assert_eq!(listing.images(), [2]);
        assert_eq!(follow(&mut listing, &session, "class:dnet", None), Followed::Same);
        assert_eq!((listing.images(), listing.error.as_ref().map(|error| error.span.clone())), (&[2][..], Some(6..10)));
        assert_eq!(follow(&mut listing, &session, "class:dent  split:val", None), Followed::Same, "the same with other blanks");
        assert!(listing.error.is_none());
    }

    #[test]
    fn totals_cover_the_whole_dataset_and_follow_edits() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        let mut listing = listing(&session, "name:nothing");
        assert!(listing.images().is_empty());
        let expected = |listing: &Listing| {
            let mut totals = Totals { n_class_labels: vec![0; 2], ..Totals::default() };
            for image in 0..3 {
                totals.count(listing.labels(image), listing.mark(image), listing.dataset.images[image].split, true);
            }
            totals
        };
        assert_eq!((listing.totals.n_splits, listing.totals.n_background, listing.totals.n_labels), ([2, 1, 0], 1, 3));
        assert_eq!(listing.totals.n_class_labels, [1, 2]);
        session.apply(Command::Edit(Edit::of_image("Add", 1, vec![LabelOp::Add(label(0))])));
        session.apply(review(2, Review::Empty));
        follow(&mut listing, &session, "name:nothing", None);
        assert_eq!(listing.totals, expected(&listing));
        assert_eq!((listing.totals.n_background, &listing.totals.n_class_labels, listing.totals.n_reviews), (0, &vec![2, 2], [2, 0, 1]));
    }

    #[test]
    fn the_image_at_work_stays_until_it_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        let mut listing = listing(&session, "reviewed:no");
        session.apply(review(1, Review::Reviewed));
        follow(&mut listing, &session, "reviewed:no", Some(1));
        assert_eq!(listing.images(), [0, 1, 2]);
        session.apply(review(2, Review::Reviewed));
        assert_eq!(follow(&mut listing, &session, "reviewed:no", Some(1)), Followed::Edited);
        assert_eq!(listing.images(), [0, 1]);
        assert_eq!(follow(&mut listing, &session, "reviewed:no", Some(0)), Followed::Edited);
        assert_eq!(listing.images(), [0]);
        session.apply(review(1, Review::Unreviewed));
        follow(&mut listing, &session, "reviewed:no", Some(0));
        assert_eq!(listing.images(), [0, 1]);
    }

    #[test]
    fn the_image_at_work_keeps_its_place_in_an_order_until_it_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        let mut listing = listing(&session, "");
        let sort = Sort { by: SortBy::Boxes, descending: true };
        let mut sorted = |session: &Session, current| {
            let open = session.dataset.as_ref().unwrap();
            listing.follow(session, open, "", sort, current);
            listing.images().to_vec()
        };
        assert_eq!(sorted(&session, Some(1)), [0, 2, 1]);
        for (step, class) in [0, 1, 0].into_iter().enumerate() {
            let bbox = Xywhn { cx: 0.2 + 0.1 * step as f32, ..label(class).bbox };
            session.apply(Command::Edit(Edit::of_image("Add", 1, vec![LabelOp::Add(Label { bbox, ..label(class) })])));
            assert_eq!(sorted(&session, Some(1)), [0, 2, 1]);
        }
        assert_eq!(sorted(&session, Some(2)), [1, 0, 2]);
    }

    #[test]
    fn a_frame_without_a_change_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path());
        let mut listing = listing(&session, "");
        let version = listing.version;
        assert_eq!(follow(&mut listing, &session, "", Some(1)), Followed::Same);
        assert_eq!(listing.version, version);
        let Some(open) = &session.dataset else { return };
        let sort = Sort { by: SortBy::Boxes, descending: true };
        assert_eq!(listing.follow(&session, open, "", sort, None), Followed::Chosen);
        assert_eq!(listing.images(), [0, 2, 1]);
    }
}
