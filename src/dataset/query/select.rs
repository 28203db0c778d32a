//! Which images pass a filter, in order.
//!
//! In:  columns, a filter, an order.
//! Out: a selection, which an edit of few images brings up to date without looking at the others.

use rayon::prelude::*;

use super::columns::{Change, Columns, rule_bit};
use super::measure::{BoxMeasure, ImageMeasure};
use super::pattern::Pattern;
use super::{Bounds, Condition, Filter, Sort, SortBy};
use crate::dataset::label::ClassId;

/// More changed images than this are looked at together with all others.
const MAX_SINGLE_CHANGES: usize = 64;
/// Images that one thread looks at before another may help.
const CHUNK: usize = 2048;

/// The images that pass a filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Indices into `Dataset::images`, in the order that was asked for.
    pub images: Vec<u32>,
    pub filter: Filter,
    pub sort: Sort,
}

impl Columns {
    /// The images that pass, in order.
    pub fn select(&self, filter: &Filter, sort: Sort) -> Selection {
        let test = Test::of(filter);
        let images = (0..self.n_images() as u32).into_par_iter().with_min_len(CHUNK);
        let mut images: Vec<u32> = images.filter(|&image| test.passes(self, image as usize)).collect();
        if sort.by != SortBy::Dataset {
            let mut keyed: Vec<(u64, u32)> =
                images.par_iter().with_min_len(CHUNK).map(|&image| (self.sort_key(image, sort), image)).collect();
            keyed.par_sort_unstable();
            images.clear();
            images.extend(keyed.iter().map(|(_, image)| *image));
        } else if sort.descending {
            images.reverse();
        }
        Selection { images, filter: filter.clone(), sort }
    }

    /// Whether one image passes.
    pub fn passes(&self, filter: &Filter, image: usize) -> bool {
        image < self.n_images() && Test::of(filter).passes(self, image)
    }

    /// Ascending keys give the order; equal keys leave it to the image's index.
    fn sort_key(&self, image: u32, sort: Sort) -> u64 {
        let index = image as usize;
        let facts = || self.fact(index);
        let areas = || self.boxes.areas(index).iter().copied();
        let key = match sort.by {
            SortBy::Dataset => Some(u64::from(image)),
            SortBy::Name => Some(u64::from(self.name_ranks()[index])),
            // Also times before 1970 are in order.
            SortBy::Date => Some(facts().modified_ns).filter(|&time| time != 0).map(|time| (time as u64) ^ (1 << 63)),
            SortBy::Boxes => Some(u64::from(self.boxes.n(index))),
            // Floats that are not negative are ordered as their bits.
            SortBy::LargestBox => areas().reduce(f32::max).map(|area| u64::from(area.to_bits())),
            SortBy::SmallestBox => areas().reduce(f32::min).map(|area| u64::from(area.to_bits())),
            SortBy::Split => Some(self.splits[index] as u64),
            SortBy::Class => self.boxes.class[self.boxes.of(index)].iter().min().map(|&class| u64::from(class)),
            SortBy::Size => facts().size.map(|size| u64::from(size.width) * u64::from(size.height)),
            SortBy::Bytes => Some(facts().n_bytes).filter(|&n| n > 0),
            SortBy::Review => Some(self.mark(index).review as u64),
            SortBy::Findings => Some(self.n_findings(index) as u64).filter(|&n| n > 0),
            SortBy::Tag => {
                let first = self.mark(index).tags.first();
                first.and_then(|tag| self.vocabulary().tags.iter().position(|each| each == tag)).map(|place| place as u64)
            }
        };
        match key {
            None => u64::MAX,
            Some(key) if sort.descending => u64::MAX - 1 - key.min(u64::MAX - 1),
            Some(key) => key.min(u64::MAX - 1),
        }
    }
}

impl Selection {
    /// Brings the selection up to date; returns whether it may be another one now.
    pub fn update(&mut self, columns: &Columns, change: &Change) -> bool {
        match change {
            Change::Nothing => false,
            Change::Images(changed) if changed.len() <= MAX_SINGLE_CHANGES => self.update_images(columns, changed),
            Change::Images(_) | Change::All => {
                *self = columns.select(&self.filter, self.sort);
                true
            }
        }
    }

    /// The place of an image in the selection.
    pub fn position(&self, image: u32) -> Option<usize> {
        self.images.iter().position(|&each| each == image)
    }

    fn update_images(&mut self, columns: &Columns, changed: &[u32]) -> bool {
        let test = Test::of(&self.filter);
        let before = if let [image] = *changed { self.position(image) } else { None };
        match changed {
            [_] => {
                if let Some(position) = before {
                    self.images.remove(position);
                }
            }
            _ => self.images.retain(|image| changed.binary_search(image).is_err()),
        }
        let key = |image: u32| {
            let image_key = if self.sort.descending { u32::MAX - image } else { image };
            match self.sort.by {
                SortBy::Dataset => (0, image_key),
                _ => (columns.sort_key(image, self.sort), image),
            }
        };
        let mut after = None;
        for &image in changed.iter().filter(|&&image| test.passes(columns, image as usize)) {
            let place = self.images.partition_point(|&other| key(other) < key(image));
            self.images.insert(place, image);
            after = Some(place);
        }
        changed.len() > 1 || before != after
    }
}

/// A filter as it is evaluated.
enum Test<'a> {
    All { tests: Vec<Test<'a>>, boxes: Vec<BoxTest<'a>> },
    Any(Vec<Test<'a>>),
    Not(Box<Test<'a>>),
    Is(&'a Condition),
}

/// There must be a box that passes.
struct BoxTest<'a> {
    /// `None`: of any class.
    classes: Option<&'a [ClassId]>,
    measures: Vec<(BoxMeasure, Bounds)>,
}

impl<'a> Test<'a> {
    fn of(filter: &'a Filter) -> Self {
        match filter {
            Filter::All(parts) => Self::all(parts),
            Filter::Any(parts) => Self::Any(parts.iter().map(Self::of).collect()),
            Filter::Not(part) => Self::Not(Box::new(Self::of(part))),
            Filter::Is(Condition::Class(_) | Condition::Box(..)) => Self::all(std::slice::from_ref(filter)),
            Filter::Is(condition) => Self::Is(condition),
        }
    }

    /// Conditions on boxes that stand side by side are about the same box.
    fn all(parts: &'a [Filter]) -> Self {
        let (mut tests, mut classes, mut measures) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match part {
                Filter::Is(Condition::Class(each)) => classes.push(&each[..]),
                Filter::Is(Condition::Box(measure, bounds)) => measures.push((*measure, *bounds)),
                other => tests.push(Self::of(other)),
            }
        }
        let boxes = match (classes.is_empty(), measures.is_empty()) {
            (true, true) => Vec::new(),
            (true, false) => vec![BoxTest { classes: None, measures }],
            (false, _) => classes.into_iter().map(|each| BoxTest { classes: Some(each), measures: measures.clone() }).collect(),
        };
        Self::All { tests, boxes }
    }

    fn passes(&self, columns: &Columns, image: usize) -> bool {
        match self {
            Self::All { tests, boxes } => {
                tests.iter().all(|test| test.passes(columns, image)) && boxes.iter().all(|test| test.passes(columns, image))
            }
            Self::Any(tests) => tests.iter().any(|test| test.passes(columns, image)),
            Self::Not(test) => !test.passes(columns, image),
            Self::Is(condition) => holds(condition, columns, image),
        }
    }
}

impl BoxTest<'_> {
    fn passes(&self, columns: &Columns, image: usize) -> bool {
        let boxes = &columns.boxes;
        boxes.of(image).any(|at| {
            self.classes.is_none_or(|classes| classes.iter().any(|class| class.0 == boxes.class[at]))
                && self.measures.iter().all(|(measure, bounds)| bounds.holds(f64::from(boxes.measure(*measure)[at])))
        })
    }
}

fn holds(condition: &Condition, columns: &Columns, image: usize) -> bool {
    match condition {
        Condition::Split(splits) => splits.contains(&columns.splits[image]),
        Condition::Image(measure, bounds) => image_measure(*measure, columns, image).is_some_and(|value| bounds.holds(value)),
        Condition::Name(pattern) => {
            let (name, stem) = (columns.paths.name(image), columns.paths.stem(image));
            match pattern {
                Pattern::Regex(regex) => {
                    let written = columns.written_name(image);
                    let stem = written.rfind('.').filter(|&dot| dot > 0).map(|dot| &written[..dot]);
                    regex.is_match(&written) || stem.is_some_and(|stem| regex.is_match(stem))
                }
                Pattern::Part(_) => pattern.matches(name, name),
                Pattern::Whole(_) => pattern.matches(name, name) || pattern.matches(stem, stem),
            }
        }
        Condition::Path(pattern) => pattern.matches(columns.paths.path(image), columns.paths.path(image)),
        Condition::Tag(pattern) => columns.mark(image).tags.iter().any(|tag| pattern.matches_word(tag)),
        Condition::Review(states) => states.contains(&columns.mark(image).review),
        Condition::Findings => columns.findings[image] != 0,
        Condition::Finding(rule) => columns.findings[image] & rule_bit(*rule) != 0,
        Condition::HasTags => !columns.mark(image).tags.is_empty(),
        Condition::Class(classes) => BoxTest { classes: Some(classes), measures: Vec::new() }.passes(columns, image),
        Condition::Box(measure, bounds) => BoxTest { classes: None, measures: vec![(*measure, *bounds)] }.passes(columns, image),
    }
}

fn image_measure(measure: ImageMeasure, columns: &Columns, image: usize) -> Option<f64> {
    let facts = || columns.fact(image);
    match measure {
        ImageMeasure::Boxes => Some(f64::from(columns.boxes.n(image))),
        ImageMeasure::Width => facts().size.map(|size| f64::from(size.width)),
        ImageMeasure::Height => facts().size.map(|size| f64::from(size.height)),
        ImageMeasure::Bytes => Some(facts().n_bytes).filter(|&n| n > 0).map(|n| n as f64),
        // Whole seconds are enough, and exact in f64.
        ImageMeasure::Date => Some(facts().modified_ns).filter(|&time| time != 0).map(|time| time.div_euclid(1_000_000_000) as f64),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::super::{Source, parse};
    use super::*;
    use crate::dataset::check::{CheckReport, Finding};
    use crate::dataset::edit::{Mark, Review};
    use crate::dataset::facts::ImageFacts;
    use crate::dataset::label::{Label, Split};
    use crate::dataset::open::{Dataset, Format, ImageEntry};
    use crate::dataset::rule::{Fixability, Rule, Severity};
    use crate::geom::Size;
    use crate::geom::Xywhn;

    fn label(class: u32, side: f32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx: 0.25, cy: 0.75, w: side, h: side } }
    }

    /// All that is known of a small dataset.
    struct Fixture {
        dataset: Arc<Dataset>,
        labels: Arc<Vec<Arc<[Label]>>>,
        marks: Arc<Vec<Mark>>,
        facts: Arc<Vec<ImageFacts>>,
        report: Option<Arc<CheckReport>>,
    }

    impl Fixture {
        /// Four images: boxes and squares of several sizes, one without boxes.
        fn new() -> Self {
            let entry = |path: &str, split| ImageEntry { path: PathBuf::from("/d").join(path), label_path: PathBuf::new(), split };
            let images = vec![
                entry("images/part10.jpg", Split::Train),
                entry("images/part9.jpg", Split::Train),
                entry("images/Other.png", Split::Val),
                entry("more/x.y.jpg", Split::Test),
            ];
            let dataset = Dataset {
                root: "/d".into(),
                source: "/d".into(),
                format: Format::Yolo,
                names: vec!["scratch".to_owned(), "dent".to_owned()],
                images,
                notes: Vec::new(),
                n_keypoint_fields: None,
                merged: None,
            };
            let labels = [
                vec![label(0, 0.1), label(1, 0.5)],
                vec![label(1, 0.05)],
                vec![],
                vec![label(0, 0.2), label(0, 0.3), label(1, 0.9)], //
            ];
            let mark = |review, tags: &[&str]| Mark { review, tags: tags.iter().map(|&tag| tag.to_owned()).collect() };
            let marks = vec![
                mark(Review::Reviewed, &["night"]),
                mark(Review::Unreviewed, &[]),
                mark(Review::Empty, &["day", "night"]),
                Mark::default(), //
            ];
            let fact = |width, n_bytes, day: i64| ImageFacts {
                size: (width > 0).then(|| Size::new(width, 100)),
                orientation: 1,
                n_bytes,
                modified_ns: day * 86_400_000_000_000,
            };
            let facts = vec![fact(100, 5, 3), fact(200, 9, 1), fact(0, 0, 0), fact(50, 7, 2)];
            let finding = Finding {
                rule: Rule::DuplicateRow,
                severity: Severity::Warning,
                fix: Fixability::Auto,
                file: PathBuf::new(),
                image: Some(1),
                line: None,
                bbox: None,
                message: String::new(),
            };
            let report = CheckReport { findings: vec![finding], ..CheckReport::default() };
            Self {
                dataset: Arc::new(dataset),
                labels: Arc::new(labels.into_iter().map(Into::into).collect()),
                marks: Arc::new(marks),
                facts: Arc::new(facts),
                report: Some(Arc::new(report)),
            }
        }

        fn source(&self) -> Source<'_> {
            let Self { dataset, labels, marks, facts, report } = self;
            Source { dataset, labels, marks, facts, report: report.as_ref(), training_side: 640 }
        }

        fn columns(&self) -> Columns {
            let mut columns = Columns::default();
            assert_eq!(columns.follow(self.source()), Change::All);
            columns
        }
    }

    fn found(columns: &Columns, line: &str) -> Vec<u32> {
        columns.select(&parse(line, columns.vocabulary()).unwrap(), Sort::default()).images
    }

    #[test]
    fn each_condition_finds_its_images() {
        let columns = Fixture::new().columns();
        for (line, expected) in [
            ("", &[0, 1, 2, 3][..]),
            ("split:train,test", &[0, 1, 3]),
            ("class:dent", &[0, 1, 3]),
            ("-class:dent", &[2]),
            ("class:scratch class:dent", &[0, 3]),
            ("class:dent area<0.01", &[1]),
            ("class:scratch area>0.08", &[3]),
            ("area>0.2", &[0, 3]),
            ("-area>0.2", &[1, 2]),
            ("side:..33", &[1]),
            ("x:0.2..0.3 y>0.7", &[0, 1, 3]),
            ("boxes:0", &[2]),
            ("boxes:1..2", &[0, 1]),
            ("has:boxes -has:tags", &[1, 3]),
            ("part", &[0, 1]),
            ("name:part1*", &[0]),
            ("name:*9", &[1]),
            ("path:images/", &[0, 1, 2]),
            ("OTHER", &[2]),
            ("regex:^P", &[]),
            ("regex:^[a-z]+\\d+$", &[0, 1]),
            ("regex:\\.png$", &[2]),
            ("tag:night", &[0, 2]),
            ("tag:d*", &[2]),
            ("reviewed:no", &[1, 3]),
            ("reviewed:yes", &[0, 2]),
            ("reviewed:empty", &[2]),
            ("has:findings", &[1]),
            ("finding:duplicate-row", &[1]),
            ("finding:not-a-number", &[]),
            ("width>=100", &[0, 1]),
            ("-width>=100", &[2, 3]),
            ("bytes<8b", &[0, 3]),
            ("date:1970-01-02..1970-01-03", &[1, 3]),
            ("split:val OR boxes>2", &[2, 3]),
            ("-(split:val OR boxes>2)", &[0, 1]),
        ] {
            assert_eq!(found(&columns, line), expected, "{line}");
        }
    }

    #[test]
    fn every_order_puts_what_is_unknown_last() {
        let columns = Fixture::new().columns();
        let order = |by, descending| columns.select(&Filter::default(), Sort { by, descending }).images;
        assert_eq!((order(SortBy::Dataset, false), order(SortBy::Dataset, true)), (vec![0, 1, 2, 3], vec![3, 2, 1, 0]));
        assert_eq!((order(SortBy::Name, false), order(SortBy::Name, true)), (vec![2, 1, 0, 3], vec![3, 0, 1, 2]));
        assert_eq!((order(SortBy::Date, false), order(SortBy::Date, true)), (vec![1, 3, 0, 2], vec![0, 3, 1, 2]));
        assert_eq!((order(SortBy::Boxes, false), order(SortBy::Boxes, true)), (vec![2, 1, 0, 3], vec![3, 0, 1, 2]));
        assert_eq!((order(SortBy::LargestBox, false), order(SortBy::LargestBox, true)), (vec![1, 0, 3, 2], vec![3, 0, 1, 2]));
        assert_eq!(order(SortBy::SmallestBox, false), [1, 0, 3, 2]);
        assert_eq!((order(SortBy::Class, false), order(SortBy::Class, true)), (vec![0, 3, 1, 2], vec![1, 0, 3, 2]));
        assert_eq!(order(SortBy::Split, true), [3, 2, 0, 1]);
        assert_eq!((order(SortBy::Size, false), order(SortBy::Bytes, true)), (vec![3, 0, 1, 2], vec![1, 3, 0, 2]));
    }

    #[test]
    fn an_edit_updates_a_selection_to_what_a_new_one_would_be() {
        let mut fixture = Fixture::new();
        let mut columns = fixture.columns();
        let sorts = SortBy::ALL.into_iter().flat_map(|by| [false, true].map(|descending| Sort { by, descending }));
        let lines = ["", "class:dent", "boxes:2..", "area<0.01 OR split:val", "tag:night"];
        let filters: Vec<Filter> = lines.iter().map(|line| parse(line, columns.vocabulary()).unwrap()).collect();
        let mut selections: Vec<Selection> = sorts
            .flat_map(|sort| filters.iter().map(move |filter| (sort, filter)))
            .map(|(sort, filter)| columns.select(filter, sort))
            .collect();
        assert_eq!(columns.follow(fixture.source()), Change::Nothing);
        // Grows beyond its room, shrinks, grows within it; a tag comes; two at once.
        let edits: [&[(usize, &[Label])]; 5] = [
            &[(1, &[label(0, 0.9), label(0, 0.8), label(1, 0.7)])],
            &[(1, &[])],
            &[(1, &[label(1, 0.01)])],
            &[(2, &[label(1, 0.3)])],
            &[(0, &[label(0, 0.6)]), (3, &[label(1, 0.02), label(1, 0.02)])],
        ];
        for edit in edits {
            for (image, labels) in edit {
                Arc::make_mut(&mut fixture.labels)[*image] = (*labels).into();
            }
            let marks = Arc::make_mut(&mut fixture.marks);
            marks[edit[0].0].tags.push("night".to_owned());
            let change = columns.follow(fixture.source());
            assert_eq!(change, Change::Images(edit.iter().map(|(image, _)| *image as u32).collect()));
            for selection in &mut selections {
                let fresh = columns.select(&selection.filter, selection.sort);
                let before = selection.images.clone();
                let is_told = selection.update(&columns, &change);
                assert_eq!(selection.images, fresh.images, "{:?} {:?}", selection.filter, selection.sort);
                assert!(is_told || before == fresh.images);
            }
        }
        assert_eq!(columns.n_boxes(), 5);
    }

    #[test]
    fn facts_and_findings_that_come_later_are_taken_in() {
        let fixture = Fixture::new();
        let early = Fixture { labels: Arc::default(), facts: Arc::default(), marks: Arc::default(), report: None, ..Fixture::new() };
        let early = Fixture { dataset: fixture.dataset.clone(), ..early };
        let mut columns = early.columns();
        assert_eq!((found(&columns, "boxes:0"), found(&columns, "width>1"), columns.has_labels()), (vec![0, 1, 2, 3], vec![], false));
        assert_eq!(columns.follow(fixture.source()), Change::All);
        assert_eq!((found(&columns, "width>100"), found(&columns, "has:findings"), columns.n_boxes()), (vec![1], vec![1], 6));
        assert_eq!(columns.vocabulary().tags.iter().collect::<Vec<_>>(), ["day", "night"]);
    }
}
