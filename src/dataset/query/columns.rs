//! What is asked about, as arrays: one entry an image, or one a box with the boxes of an image side by side.
//!
//! In:  the dataset with its labels, marks, facts and the last check, each shared and replaced when it changes.
//! Out: columns that are brought up to date by what changed, and which images that was.
//!
//! An edit of one image rewrites its own boxes only: in place where there is room, else at the end of the columns; when too
//! much lies idle, all are laid out anew.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::Vocabulary;
use super::measure::{BoxMeasure, Ruler};
use crate::dataset::check::CheckReport;
use crate::dataset::edit::Mark;
use crate::dataset::facts::ImageFacts;
use crate::dataset::label::{Label, Split};
use crate::dataset::open::Dataset;
use crate::dataset::rule::Rule;

/// The labels of each image.
type LabelTable = Vec<Arc<[Label]>>;

/// What columns are made from. Labels, marks and facts have an entry an image, or none at all until they were read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub dataset: &'a Arc<Dataset>,
    pub labels: &'a Arc<LabelTable>,
    pub marks: &'a Arc<Vec<Mark>>,
    pub facts: &'a Arc<Vec<ImageFacts>>,
    pub report: Option<&'a Arc<CheckReport>>,
    /// Side of the square that training fits images into, for boxes measured in its pixels.
    pub training_side: u32,
}

/// Which images may pass or be ordered differently from before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// By index, ascending.
    Images(Vec<u32>),
    All,
}

/// The columns. The default has no images; [`Columns::follow`] fills it.
#[derive(Default)]
pub struct Columns {
    seen: Option<Seen>,
    vocabulary: Vocabulary,
    pub(super) splits: Vec<Split>,
    pub(super) paths: Paths,
    pub(super) boxes: Boxes,
    /// A bit for each of `Rule::ALL` that was found.
    pub(super) findings: Vec<u128>,
    n_findings: Vec<u32>,
    name_ranks: OnceLock<Vec<u32>>,
}

/// What the columns were made from.
struct Seen {
    dataset: Arc<Dataset>,
    labels: Arc<LabelTable>,
    marks: Arc<Vec<Mark>>,
    facts: Arc<Vec<ImageFacts>>,
    report: Option<Arc<CheckReport>>,
    training_side: u32,
}

impl Columns {
    /// Takes in what changed since the last call. Cheap when nothing did, so that it may be called in every frame.
    pub fn follow(&mut self, source: Source<'_>) -> Change {
        let Some(seen) = &mut self.seen else {
            self.build(source);
            return Change::All;
        };
        if !Arc::ptr_eq(&seen.dataset, source.dataset) || seen.training_side != source.training_side {
            self.build(source);
            return Change::All;
        }
        let mut is_all = false;
        let mut images = Vec::new();
        if !Arc::ptr_eq(&seen.facts, source.facts) {
            seen.facts = source.facts.clone();
            seen.labels = source.labels.clone();
            self.boxes = Boxes::new(source);
            is_all = true;
        }
        if !Arc::ptr_eq(&seen.labels, source.labels) {
            let changed = changed_labels(&seen.labels, source.labels);
            seen.labels = source.labels.clone();
            if let Some(changed) = changed {
                for &image in &changed {
                    self.boxes.set(image as usize, &source.labels[image as usize], ruler(source, image as usize));
                }
                images = changed;
                if self.boxes.is_wasteful() {
                    self.boxes = Boxes::new(source);
                }
            } else {
                self.boxes = Boxes::new(source);
                is_all = true;
            }
        }
        if !Arc::ptr_eq(&seen.marks, source.marks) {
            let n_images = source.dataset.images.len();
            let (before, after) = (&seen.marks, source.marks);
            let differs = |image: &u32| before.get(*image as usize).unwrap_or(&UNMARKED) != after.get(*image as usize).unwrap_or(&UNMARKED);
            images.extend((0..n_images as u32).filter(differs));
            images.sort_unstable();
            images.dedup();
            seen.marks = source.marks.clone();
            self.vocabulary.tags = tags(source.marks);
        }
        let is_same_report = match (&seen.report, source.report) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if !is_same_report {
            seen.report = source.report.cloned();
            (self.findings, self.n_findings) = findings(source);
            is_all = true;
        }
        match (is_all, images.is_empty()) {
            (true, _) => Change::All,
            (false, true) => Change::Nothing,
            (false, false) => Change::Images(images),
        }
    }

    /// The names that a line may use.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub fn n_images(&self) -> usize {
        self.splits.len()
    }

    pub fn n_boxes(&self) -> usize {
        self.boxes.n.iter().map(|&n| n as usize).sum()
    }

    /// How much the last check found in an image.
    pub fn n_findings(&self, image: usize) -> usize {
        self.n_findings.get(image).map_or(0, |&count| count as usize)
    }

    /// Whether labels were read; without them every image counts as one without boxes.
    pub fn has_labels(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.labels.is_empty())
    }

    pub(super) fn fact(&self, image: usize) -> ImageFacts {
        self.seen.as_ref().and_then(|seen| seen.facts.get(image)).copied().unwrap_or_default()
    }

    pub(super) fn mark(&self, image: usize) -> &Mark {
        self.seen.as_ref().and_then(|seen| seen.marks.get(image)).unwrap_or(&UNMARKED)
    }

    /// The file name as written.
    pub(super) fn written_name(&self, image: usize) -> std::borrow::Cow<'_, str> {
        let path = self.seen.as_ref().and_then(|seen| seen.dataset.images.get(image)).map(|entry| entry.path.as_path());
        path.and_then(std::path::Path::file_name).map(std::ffi::OsStr::to_string_lossy).unwrap_or_default()
    }

    /// The place of each image when all are ordered by file name; worked out when first asked for.
    pub(super) fn name_ranks(&self) -> &[u32] {
        self.name_ranks.get_or_init(|| {
            let mut images: Vec<u32> = (0..self.n_images() as u32).collect();
            images.par_sort_by(|&a, &b| natural(self.paths.name(a as usize).as_bytes(), self.paths.name(b as usize).as_bytes()));
            let mut ranks = vec![0; images.len()];
            for (rank, &image) in images.iter().enumerate() {
                ranks[image as usize] = rank as u32;
            }
            ranks
        })
    }

    fn build(&mut self, source: Source<'_>) {
        let Source { dataset, labels, marks, facts, report, training_side } = source;
        let (findings, n_findings) = findings(source);
        *self = Self {
            vocabulary: Vocabulary { classes: dataset.names.clone(), tags: tags(marks) },
            splits: dataset.images.iter().map(|image| image.split).collect(),
            paths: Paths::new(dataset),
            boxes: Boxes::new(source),
            findings,
            n_findings,
            name_ranks: OnceLock::new(),
            seen: Some(Seen {
                dataset: dataset.clone(),
                labels: labels.clone(),
                marks: marks.clone(),
                facts: facts.clone(),
                report: report.cloned(),
                training_side,
            }),
        };
    }
}

static UNMARKED: Mark = Mark { review: crate::dataset::edit::Review::Unreviewed, tags: Vec::new() };

/// Images whose labels are not the same as before; `None` when it is better to take all for changed.
fn changed_labels(before: &LabelTable, after: &LabelTable) -> Option<Vec<u32>> {
    if before.len() != after.len() {
        return None;
    }
    let pairs = (0u32..).zip(before.iter().zip(after));
    let changed: Vec<u32> = pairs.filter(|(_, (before, after))| !Arc::ptr_eq(before, after)).map(|(image, _)| image).collect();
    (changed.len() * 8 <= before.len().max(64)).then_some(changed)
}

fn tags(marks: &[Mark]) -> BTreeSet<String> {
    let mut tags = BTreeSet::new();
    for tag in marks.iter().flat_map(|mark| &mark.tags) {
        if !tags.contains(tag) {
            tags.insert(tag.clone());
        }
    }
    tags
}

/// By image: which rules found something, and how much they found.
fn findings(source: Source<'_>) -> (Vec<u128>, Vec<u32>) {
    let n_images = source.dataset.images.len();
    let (mut masks, mut counts) = (vec![0; n_images], vec![0; n_images]);
    for finding in source.report.iter().flat_map(|report| &report.findings) {
        if let Some(image) = finding.image.filter(|&image| image < n_images) {
            masks[image] |= rule_bit(finding.rule);
            counts[image] += 1;
        }
    }
    (masks, counts)
}

pub(super) fn rule_bit(rule: Rule) -> u128 {
    Rule::ALL.iter().position(|each| *each == rule).map_or(0, |index| 1 << index)
}

fn ruler(source: Source<'_>, image: usize) -> Ruler {
    Ruler::new(source.facts.get(image).and_then(|facts| facts.size), source.training_side)
}

/// Paths below the dataset's folder, in lower case, one behind the other.
#[derive(Default)]
pub(super) struct Paths {
    text: String,
    /// By image: where its path ends, and how long the file name and its ending (with the dot) are.
    ends: Vec<(u32, u16, u16)>,
}

impl Paths {
    fn new(dataset: &Dataset) -> Self {
        let mut paths = Self { text: String::with_capacity(dataset.images.len() * 32), ends: Vec::with_capacity(dataset.images.len()) };
        for image in &dataset.images {
            let path = image.path.strip_prefix(&dataset.root).unwrap_or(&image.path);
            let text = path.to_string_lossy();
            let start = paths.text.len();
            if text.is_ascii() {
                paths.text.push_str(&text);
                paths.text[start..].make_ascii_lowercase();
            } else {
                paths.text.push_str(&text.to_lowercase());
            }
            let written = &paths.text[start..];
            let name = written.len() - written.rfind(std::path::is_separator).map_or(0, |at| at + 1);
            let ending = written.len() - written.rfind('.').filter(|at| written.len() - at < name).unwrap_or(written.len());
            paths.ends.push((paths.text.len() as u32, name as u16, ending as u16));
        }
        paths
    }

    pub(super) fn path(&self, image: usize) -> &str {
        let start = image.checked_sub(1).map_or(0, |before| self.ends[before].0 as usize);
        &self.text[start..self.ends[image].0 as usize]
    }

    pub(super) fn name(&self, image: usize) -> &str {
        let (end, name, _) = self.ends[image];
        &self.text[end as usize - usize::from(name)..end as usize]
    }

    /// The file name without its ending.
    pub(super) fn stem(&self, image: usize) -> &str {
        let (end, name, ending) = self.ends[image];
        &self.text[end as usize - usize::from(name)..end as usize - usize::from(ending)]
    }
}

/// Orders names as a person does: runs of digits by their value.
fn natural(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    let (mut i, mut j) = (0, 0);
    loop {
        match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let run = |text: &[u8], from: usize| {
                    let zeros = text[from..].iter().take_while(|&&byte| byte == b'0').count();
                    let digits = text[from + zeros..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    (from + zeros, from + zeros + digits)
                };
                let ((from_a, to_a), (from_b, to_b)) = (run(a, i), run(b, j));
                let order = (to_a - from_a).cmp(&(to_b - from_b)).then_with(|| a[from_a..to_a].cmp(&b[from_b..to_b]));
                if order != Ordering::Equal {
                    return order;
                }
                (i, j) = (to_a, to_b);
            }
            (Some(x), Some(y)) if x == y => (i, j) = (i + 1, j + 1),
            (x, y) => return x.cmp(&y),
        }
    }
}

/// The boxes of all images; those of one image lie side by side.
#[derive(Default)]
pub(super) struct Boxes {
    start: Vec<u32>,
    n: Vec<u32>,
    room: Vec<u32>,
    n_idle: usize,
    pub(super) class: Vec<u32>,
    area: Vec<f32>,
    side: Vec<f32>,
    aspect: Vec<f32>,
    x: Vec<f32>,
    y: Vec<f32>,
    w: Vec<f32>,
    h: Vec<f32>,
}

impl Boxes {
    fn new(source: Source<'_>) -> Self {
        let n_images = source.dataset.images.len();
        let mut boxes = Self { start: vec![0; n_images], n: vec![0; n_images], room: vec![0; n_images], ..Self::default() };
        let n_boxes = source.labels.iter().map(|labels| labels.len()).sum();
        boxes.reserve(n_boxes);
        for (image, labels) in source.labels.iter().enumerate().take(n_images) {
            let ruler = ruler(source, image);
            boxes.start[image] = boxes.class.len() as u32;
            (boxes.n[image], boxes.room[image]) = (labels.len() as u32, labels.len() as u32);
            labels.iter().for_each(|label| boxes.push(label, ruler));
        }
        boxes
    }

    /// The places of an image's boxes in the columns.
    pub(super) fn of(&self, image: usize) -> Range<usize> {
        let start = self.start[image] as usize;
        start..start + self.n[image] as usize
    }

    pub(super) fn n(&self, image: usize) -> u32 {
        self.n[image]
    }

    pub(super) fn areas(&self, image: usize) -> &[f32] {
        &self.area[self.of(image)]
    }

    pub(super) fn measure(&self, measure: BoxMeasure) -> &[f32] {
        match measure {
            BoxMeasure::Area => &self.area,
            BoxMeasure::Side => &self.side,
            BoxMeasure::Aspect => &self.aspect,
            BoxMeasure::X => &self.x,
            BoxMeasure::Y => &self.y,
            BoxMeasure::W => &self.w,
            BoxMeasure::H => &self.h,
        }
    }

    fn is_wasteful(&self) -> bool {
        self.n_idle > 65_536 && self.n_idle * 4 > self.class.len()
    }

    fn set(&mut self, image: usize, labels: &[Label], ruler: Ruler) {
        if labels.len() > self.room[image] as usize {
            // Room for some more, since a person who draws boxes draws several.
            let room = labels.len() + labels.len() / 4 + 2;
            self.n_idle += self.room[image] as usize;
            self.start[image] = self.class.len() as u32;
            self.room[image] = room as u32;
            self.resize(self.class.len() + room);
        }
        self.n[image] = labels.len() as u32;
        for (at, label) in self.of(image).zip(labels) {
            self.class[at] = label.class.0;
            self.area[at] = Ruler::area(label.bbox);
            self.side[at] = ruler.side(label.bbox);
            self.aspect[at] = ruler.aspect(label.bbox);
            [self.x[at], self.y[at], self.w[at], self.h[at]] = [label.bbox.cx, label.bbox.cy, label.bbox.w, label.bbox.h];
        }
    }

    fn push(&mut self, label: &Label, ruler: Ruler) {
        self.class.push(label.class.0);
        self.area.push(Ruler::area(label.bbox));
        self.side.push(ruler.side(label.bbox));
        self.aspect.push(ruler.aspect(label.bbox));
        self.x.push(label.bbox.cx);
        self.y.push(label.bbox.cy);
        self.w.push(label.bbox.w);
        self.h.push(label.bbox.h);
    }

    fn floats(&mut self) -> [&mut Vec<f32>; 7] {
        let Self { area, side, aspect, x, y, w, h, .. } = self;
        [area, side, aspect, x, y, w, h]
    }

    fn reserve(&mut self, n: usize) {
        self.class.reserve(n);
        self.floats().into_iter().for_each(|column| column.reserve(n));
    }

    fn resize(&mut self, n: usize) {
        self.class.resize(n, 0);
        self.floats().into_iter().for_each(|column| column.resize(n, 0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_ordered_by_value() {
        let mut names = ["img10.jpg", "img9.jpg", "img009b.jpg", "a", "img.jpg", "img10"];
        names.sort_by(|a, b| natural(a.as_bytes(), b.as_bytes()));
        assert_eq!(names, ["a", "img.jpg", "img9.jpg", "img009b.jpg", "img10", "img10.jpg"]);
    }
}
