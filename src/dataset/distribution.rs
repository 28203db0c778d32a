//! How are images and boxes of a dataset distributed: over classes and splits, size, shape, number and place?
//!
//! In:  the dataset with its labels and facts, and which images to count.
//! Out: counts and histograms; each bar can say the query that filters to it.
//!
//! Every box is counted, every image of the choice too. Bars of one histogram do not overlap and leave nothing out. Measures
//! are those of the query, so a bar and its query agree to the last box.

use std::sync::Arc;

use rayon::prelude::*;

use super::facts::ImageFacts;
use super::label::{ClassId, Label, Split};
use super::open::Dataset;
use super::query::Key;
use super::query::line;
use super::query::measure::{BoxMeasure, ImageMeasure, Ruler};

/// Cells of the map of centres on each side.
pub const MAP_SIDE: usize = 32;

/// Lower ends of the bars; each holds its lower end and not the next one.
const SIDE_EDGES: [f64; 15] = [0.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0];
const AREA_EDGES: [f64; 10] = [0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6];
const ASPECT_EDGES: [f64; 11] = [0.0, 0.2, 0.33, 0.5, 0.67, 0.8, 1.25, 1.5, 2.0, 3.0, 5.0];
const BOXES_EDGES: [f64; 11] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0, 21.0, 51.0, 101.0];

/// Images that one thread counts before another may help.
const CHUNK: usize = 2048;

/// What is counted.
#[derive(Clone, Debug)]
pub struct Counted {
    pub dataset: Arc<Dataset>,
    pub labels: Arc<Vec<Arc<[Label]>>>,
    pub facts: Arc<Vec<ImageFacts>>,
    /// `None`: every image.
    pub images: Option<Arc<[u32]>>,
    /// Side of the square that training fits images into.
    pub training_side: u32,
}

/// The counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributions {
    pub n_images: usize,
    pub n_boxes: usize,
    /// For each of `Split::ALL`.
    pub splits: [SplitCount; 3],
    /// In the order of `Dataset::names`.
    pub classes: Vec<ClassCount>,
    /// Boxes by the root of their area in pixels, as training sees them.
    pub side: Histogram,
    /// Boxes by their area as a fraction of the image.
    pub area: Histogram,
    /// Boxes by width over height.
    pub aspect: Histogram,
    /// Images by their number of boxes.
    pub boxes: Histogram,
    pub centres: CentreMap,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitCount {
    pub n_images: usize,
    /// Images without a box.
    pub n_background: usize,
    pub n_boxes: usize,
}

/// Of one class, by split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// Images with at least one box of it.
    pub n_images: [usize; 3],
    pub n_boxes: [usize; 3],
}

/// Bars side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    key: Key,
    /// Lower ends; the last bar has no upper end.
    edges: &'static [f64],
    pub counts: Vec<usize>,
}

/// How many boxes have their centre where: rows from the top, `MAP_SIDE` cells each.
#[derive(Clone, Debug, PartialEq)]
pub struct CentreMap {
    pub counts: Vec<usize>,
}

impl ClassCount {
    pub fn images(&self) -> usize {
        self.n_images.iter().sum()
    }

    pub fn boxes(&self) -> usize {
        self.n_boxes.iter().sum()
    }
}

/// The term that filters to a class.
pub fn class_query(dataset: &Dataset, class: ClassId) -> String {
    line::term(Key::Class, dataset.names.get(class.0 as usize).map_or("", String::as_str))
}

/// The term that filters to a split.
pub fn split_query(split: Split) -> String {
    line::term(Key::Split, split.name())
}

impl Histogram {
    fn new(key: Key, edges: &'static [f64]) -> Self {
        Self { key, edges, counts: vec![0; edges.len()] }
    }

    fn count(&mut self, value: f64) {
        // What is below the first bar (or no number) is counted in it.
        let bar = self.edges.partition_point(|&edge| edge <= value).max(1) - 1;
        self.counts[bar] += 1;
    }

    /// Lower and upper end of a bar; the last one has no upper end.
    pub fn range(&self, bar: usize) -> (f64, Option<f64>) {
        (self.edges[bar], self.edges.get(bar + 1).copied())
    }

    fn is_whole(&self) -> bool {
        matches!(self.key, Key::Image(_))
    }

    /// Below the bar, such as `8–12` or `512+`.
    pub fn label(&self, bar: usize) -> String {
        match self.range(bar) {
            (low, None) => format!("{low}+"),
            (low, Some(high)) if self.is_whole() && high == low + 1.0 => format!("{low}"),
            (low, Some(high)) if self.is_whole() => format!("{low}–{}", high - 1.0),
            (low, Some(high)) => format!("{low}–{high}"),
        }
    }

    /// The term that filters to the bar.
    pub fn query(&self, bar: usize) -> String {
        let key = self.key.name();
        match self.range(bar) {
            (low, None) => format!("{key}:{low}.."),
            (low, Some(high)) if self.is_whole() && high == low + 1.0 => format!("{key}:{low}"),
            (low, Some(high)) if self.is_whole() => format!("{key}:{low}..{}", high - 1.0),
            // Nothing lies below the first bar.
            (_, Some(high)) if bar == 0 => format!("{key}:..{high}"),
            (low, Some(high)) => format!("{key}:{low}..{high}"),
        }
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, n)| *sum += n);
    }
}

impl CentreMap {
    /// The terms that filter to a cell.
    pub fn query(&self, column: usize, row: usize) -> String {
        let range = |key: BoxMeasure, cell: usize| {
            let edge =
                |cell: usize| if (1..MAP_SIDE).contains(&cell) { (cell as f64 / MAP_SIDE as f64).to_string() } else { String::new() };
            format!("{}:{}..{}", Key::Box(key).name(), edge(cell), edge(cell + 1))
        };
        format!("{} {}", range(BoxMeasure::X, column), range(BoxMeasure::Y, row))
    }

    fn cell(x: f32, y: f32) -> usize {
        let cell = |at: f32| ((at * MAP_SIDE as f32).max(0.0) as usize).min(MAP_SIDE - 1);
        cell(y) * MAP_SIDE + cell(x)
    }
}

/// Counts.
pub fn distributions(counted: &Counted) -> Distributions {
    let n_classes = counted.dataset.names.len();
    let all: Vec<u32>;
    let images = if let Some(images) = &counted.images {
        &images[..]
    } else {
        all = (0..counted.dataset.images.len() as u32).collect();
        &all
    };
    let parts = images.par_chunks(CHUNK).map(|images| {
        let mut sums = Distributions::none(n_classes);
        // The image that a class was last seen in.
        let mut last_seen = vec![u32::MAX; n_classes];
        for &image in images {
            sums.count(counted, image, &mut last_seen);
        }
        sums
    });
    parts.reduce(
        || Distributions::none(n_classes),
        |mut sum, part| {
            sum.add(&part);
            sum
        },
    )
}

impl Distributions {
    fn none(n_classes: usize) -> Self {
        Self {
            n_images: 0,
            n_boxes: 0,
            splits: [SplitCount::default(); 3],
            classes: vec![ClassCount::default(); n_classes],
            side: Histogram::new(Key::Box(BoxMeasure::Side), &SIDE_EDGES),
            area: Histogram::new(Key::Box(BoxMeasure::Area), &AREA_EDGES),
            aspect: Histogram::new(Key::Box(BoxMeasure::Aspect), &ASPECT_EDGES),
            boxes: Histogram::new(Key::Image(ImageMeasure::Boxes), &BOXES_EDGES),
            centres: CentreMap { counts: vec![0; MAP_SIDE * MAP_SIDE] },
        }
    }

    fn count(&mut self, counted: &Counted, image: u32, last_seen: &mut [u32]) {
        let index = image as usize;
        let Some(entry) = counted.dataset.images.get(index) else { return };
        let labels = counted.labels.get(index).map_or(&[][..], |labels| labels);
        let split = entry.split as usize;
        self.n_images += 1;
        self.n_boxes += labels.len();
        self.splits[split].n_images += 1;
        self.splits[split].n_background += usize::from(labels.is_empty());
        self.splits[split].n_boxes += labels.len();
        self.boxes.count(labels.len() as f64);
        let ruler = Ruler::new(counted.facts.get(index).and_then(|facts| facts.size), counted.training_side);
        for label in labels {
            let class = label.class.0 as usize;
            if let Some(count) = self.classes.get_mut(class) {
                count.n_boxes[split] += 1;
                if last_seen[class] != image {
                    last_seen[class] = image;
                    count.n_images[split] += 1;
                }
            }
            self.side.count(f64::from(ruler.side(label.bbox)));
            self.area.count(f64::from(Ruler::area(label.bbox)));
            self.aspect.count(f64::from(ruler.aspect(label.bbox)));
            self.centres.counts[CentreMap::cell(label.bbox.cx, label.bbox.cy)] += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.n_images += other.n_images;
        self.n_boxes += other.n_boxes;
        for (sum, split) in self.splits.iter_mut().zip(&other.splits) {
            sum.n_images += split.n_images;
            sum.n_background += split.n_background;
            sum.n_boxes += split.n_boxes;
        }
        for (sum, class) in self.classes.iter_mut().zip(&other.classes) {
            sum.n_images.iter_mut().zip(class.n_images).for_each(|(sum, n)| *sum += n);
            sum.n_boxes.iter_mut().zip(class.n_boxes).for_each(|(sum, n)| *sum += n);
        }
        self.side.add(&other.side);
        self.area.add(&other.area);
        self.aspect.add(&other.aspect);
        self.boxes.add(&other.boxes);
        self.centres.counts.iter_mut().zip(&other.centres.counts).for_each(|(sum, n)| *sum += n);
    }
}

#[cfg(test)]
mod tests {
    use super::super::open::{Format, ImageEntry};
    use super::super::query::{Columns, Sort, Source, parse};
    use super::*;
    use crate::geom::Size;
    use crate::geom::Xywhn;

    /// Images with boxes all over the place, also at the ends of bars.
    fn counted() -> Counted {
        let places = [0.0, 1.0 / 32.0, 0.03, 0.5, 31.0 / 32.0, 1.0];
        let sides = [0.0, 0.0125, 0.05, 0.1, 0.3, 0.99, 1.0];
        let mut images = Vec::new();
        let mut labels: Vec<Arc<[Label]>> = Vec::new();
        let mut facts = Vec::new();
        for image in 0..120usize {
            let split = Split::ALL[image % 3];
            images.push(ImageEntry { path: format!("/d/{image}.jpg").into(), label_path: "".into(), split });
            let bbox = |each: usize| {
                let at = |step: usize| places[(image + each * step) % places.len()];
                Xywhn { cx: at(1), cy: at(5), w: sides[(image + each) % sides.len()], h: sides[(image * 3 + each) % sides.len()] }
            };
            labels.push((0..image).map(|each| Label { class: ClassId((each % 3) as u32), bbox: bbox(each) }).collect());
            let size = (image % 4 != 0).then(|| Size::new(640, 320 + image as u32));
            facts.push(ImageFacts { size, ..ImageFacts::default() });
        }
        let dataset = Dataset {
            root: "/d".into(),
            source: "/d".into(),
            format: Format::Yolo,
            names: ["a", "big b", "c", "none"].map(str::to_owned).to_vec(),
            images,
            notes: Vec::new(),
            n_keypoint_fields: None,
            merged: None,
        };
        Counted { dataset: Arc::new(dataset), labels: Arc::new(labels), facts: Arc::new(facts), images: None, training_side: 640 }
    }

    #[test]
    fn each_bar_filters_to_the_images_that_it_counted() {
        let counted = counted();
        let result = distributions(&counted);
        let mut columns = Columns::default();
        let Counted { dataset, labels, facts, training_side, .. } = counted.clone();
        let marks = Arc::default();
        columns.follow(Source { dataset: &dataset, labels: &labels, marks: &marks, facts: &facts, report: None, training_side });
        let images_of = |query: &str| {
            let filter = parse(query, columns.vocabulary()).unwrap_or_else(|error| panic!("{query}: {error}"));
            columns.select(&filter, Sort::default()).images
        };
        // Counting a bar's images alone gives as many boxes in it as counting all images.
        let again = |query: &str| distributions(&Counted { images: Some(images_of(query).into()), ..counted.clone() });
        let pick: [fn(&Distributions) -> &Histogram; 4] = [|d| &d.side, |d| &d.area, |d| &d.aspect, |d| &d.boxes];
        for pick in pick {
            let histogram = pick(&result);
            assert!(histogram.counts.iter().filter(|&&n| n > 0).count() >= 4, "{histogram:?}");
            for (bar, &n) in histogram.counts.iter().enumerate() {
                let query = histogram.query(bar);
                assert_eq!(pick(&again(&query)).counts[bar], n, "{query}");
                assert_eq!(images_of(&query).is_empty(), n == 0, "{query}");
            }
        }
        for (cell, &n) in result.centres.counts.iter().enumerate() {
            let query = result.centres.query(cell % MAP_SIDE, cell / MAP_SIDE);
            assert_eq!(again(&query).centres.counts[cell], n, "{query}");
        }
        for (class, count) in result.classes.iter().enumerate() {
            assert_eq!(images_of(&class_query(&dataset, ClassId(class as u32))).len(), count.images());
        }
        for (split, count) in Split::ALL.into_iter().zip(&result.splits) {
            assert_eq!(images_of(&split_query(split)).len(), count.n_images);
        }
    }

    #[test]
    fn everything_is_counted_once() {
        let result = distributions(&counted());
        let n_boxes: usize = (0..120).sum();
        assert_eq!((result.n_images, result.n_boxes), (120, n_boxes));
        for histogram in [&result.side, &result.area, &result.aspect] {
            assert_eq!(histogram.counts.iter().sum::<usize>(), n_boxes);
        }
        assert_eq!(result.boxes.counts, [1, 1, 1, 1, 1, 1, 5, 10, 30, 50, 19]);
        assert_eq!(result.centres.counts.iter().sum::<usize>(), n_boxes);
        assert_eq!(result.classes.iter().map(ClassCount::boxes).sum::<usize>(), n_boxes);
        assert_eq!(result.classes.iter().map(ClassCount::images).collect::<Vec<_>>(), [119, 118, 117, 0]);
        assert_eq!(result.splits.map(|split| (split.n_images, split.n_background)), [(40, 1), (40, 0), (40, 0)]);
    }

    #[test]
    fn bars_have_labels_that_a_person_reads() {
        let result = distributions(&counted());
        let labels = |histogram: &Histogram| (0..histogram.counts.len()).map(|bar| histogram.label(bar)).collect::<Vec<_>>();
        assert_eq!(labels(&result.boxes), ["0", "1", "2", "3", "4", "5", "6–10", "11–20", "21–50", "51–100", "101+"]);
        assert_eq!(labels(&result.side)[2..4], ["8–12", "12–16"]);
        assert_eq!(result.side.query(0), "side:..4");
    }
}
