//! How are the numbers of a dataset meant? Signs that all rows together say something else than `class cx cy w h`.
//!
//! In:  the rows of every label file, counted.
//! Out: for each other reading that fits better a finding with the numbers that say so. A person decides.
//!
//! One odd file says nothing: the counts are those of the whole dataset, and small datasets are left in peace. Thresholds
//! are our own, but for the shares of corners, which the table of defects gives.

use super::label::Label;
use super::parse::{LabelFile, Verdict};
use super::rule::Rule;
use crate::geom::Xywhn;

/// Fewer rows prove nothing.
const MIN_ROWS: usize = 10;
/// Corners: this share of rows has the second point right of and below the first, and this share reaches outside as written.
const IN_ORDER: f64 = 0.95;
const OUTSIDE: f64 = 0.2;
/// The other reading has to put nearly all boxes inside.
const INSIDE: f64 = 0.99;
/// The share of rows in pixels, or with four corners.
const NEARLY_ALL: f64 = 0.9;
/// How far a box may reach past the image and still lie inside, as a fraction of the image.
const SLACK: f32 = 1e-3;

/// Counts over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    n_rows: usize,
    n_boxes: usize,
    n_outside: usize,
    n_in_order: usize,
    n_inside_as_corners: usize,
    n_past_left: usize,
    n_past_right: usize,
    n_inside_from_top_left: usize,
    n_inside_swapped: usize,
    n_in_pixels: usize,
    n_four_corners: usize,
    /// Smallest and largest class as written.
    classes: Option<(i64, i64)>,
}

impl Evidence {
    /// Of one file.
    pub(super) fn of(file: &LabelFile) -> Self {
        let mut evidence = Self { n_rows: file.rows.len(), ..Self::default() };
        for row in &file.rows {
            let (bbox, class) = match &row.verdict {
                Verdict::Used(Label { class, bbox }) | Verdict::Clamped { written: Label { class, bbox }, .. } => {
                    (Some(*bbox), Some(i64::from(class.0)))
                }
                Verdict::Dropped(dropped) => {
                    evidence.n_in_pixels += usize::from(dropped.rule == Rule::CoordinatesInPixels);
                    (dropped.bbox, dropped.class.map(|class| i64::from(class.0)).or(dropped.foreign_class))
                }
            };
            if let Some(class) = class {
                let (low, high) = evidence.classes.unwrap_or((class, class));
                evidence.classes = Some((low.min(class), high.max(class)));
            }
            if row.polygon {
                evidence.n_four_corners += usize::from(row.n_points == 4);
            } else if let Some(bbox) = bbox {
                evidence.count(bbox);
            }
        }
        evidence
    }

    fn count(&mut self, Xywhn { cx, cy, w, h }: Xywhn) {
        let inside = |low: f32, high: f32| low >= -SLACK && high <= 1.0 + SLACK;
        let around = |centre: f32, size: f32| inside(centre - size / 2.0, centre + size / 2.0);
        self.n_boxes += 1;
        self.n_outside += usize::from(!around(cx, w) || !around(cy, h));
        self.n_in_order += usize::from(w > cx && h > cy);
        self.n_inside_as_corners += usize::from(w > cx && h > cy && inside(cx, w) && inside(cy, h));
        self.n_past_left += usize::from(cx - w / 2.0 < -SLACK || cy - h / 2.0 < -SLACK);
        self.n_past_right += usize::from(cx + w / 2.0 > 1.0 + SLACK || cy + h / 2.0 > 1.0 + SLACK);
        self.n_inside_from_top_left += usize::from(inside(cx, cx + w) && inside(cy, cy + h));
        self.n_inside_swapped += usize::from(around(cx, h) && around(cy, w));
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.n_rows += other.n_rows;
        self.n_boxes += other.n_boxes;
        self.n_outside += other.n_outside;
        self.n_in_order += other.n_in_order;
        self.n_inside_as_corners += other.n_inside_as_corners;
        self.n_past_left += other.n_past_left;
        self.n_past_right += other.n_past_right;
        self.n_inside_from_top_left += other.n_inside_from_top_left;
        self.n_inside_swapped += other.n_inside_swapped;
        self.n_in_pixels += other.n_in_pixels;
        self.n_four_corners += other.n_four_corners;
        self.classes = match (self.classes, other.classes) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// The readings that fit better than the usual one, with the numbers that say so.
    pub(super) fn findings(&self, n_classes: usize) -> Vec<(Rule, String)> {
        let mut findings = Vec::new();
        let Self { n_rows, n_boxes, n_outside, .. } = *self;
        if n_rows < MIN_ROWS {
            return findings;
        }
        let share = |n: usize, of: usize| n as f64 / of.max(1) as f64;
        if share(self.n_in_pixels, n_rows) >= NEARLY_ALL {
            let message = format!(
                "{} of {n_rows} rows hold pixels; dividing all of them by the sizes of their images may be what is needed",
                self.n_in_pixels
            );
            findings.push((Rule::CoordinatesInPixels, message));
        } else if n_boxes >= MIN_ROWS && share(n_outside, n_boxes) >= OUTSIDE {
            let as_written = format!("as written {n_outside} of {n_boxes} boxes reach outside");
            if share(self.n_in_order, n_boxes) >= IN_ORDER && share(self.n_inside_as_corners, n_boxes) >= IN_ORDER {
                let n = self.n_inside_as_corners;
                findings.push((Rule::CoordinatesAreCorners, format!("{as_written}; read as x1 y1 x2 y2, {n} are boxes inside")));
            } else if self.n_past_left > 0 && self.n_past_right == 0 && self.n_inside_from_top_left == n_boxes {
                let message = format!("{as_written}, all past the left or top edge; read from the top left corner, all lie inside");
                findings.push((Rule::CoordinatesFromTopLeft, message));
            } else if share(self.n_inside_swapped, n_boxes) >= INSIDE {
                let n = self.n_inside_swapped;
                findings.push((Rule::AxesSwapped, format!("{as_written}; with width and height swapped, {n} lie inside")));
            }
        }
        if share(self.n_four_corners, n_rows) >= NEARLY_ALL {
            let message = format!("{} of {n_rows} rows have four corners; the boxes around them are used", self.n_four_corners);
            findings.push((Rule::OrientedBoxes, message));
        }
        if let Some((low, high)) = self.classes
            && (low, high) == (1, n_classes as i64)
        {
            let message = format!("the classes in {n_rows} rows go from 1 to {high}, those of {n_classes} names from 0 to {}", high - 1);
            findings.push((Rule::ClassesFromOne, message));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{self, ParseOptions};
    use super::*;

    fn found(rows: &[String]) -> Vec<&'static str> {
        let options = ParseOptions { n_classes: 3, n_keypoint_fields: None };
        // In files of three rows.
        let mut evidence = Evidence::default();
        for rows in rows.chunks(3) {
            evidence.add(&Evidence::of(&parse::parse(rows.join("\n").as_bytes(), options, &|| None)));
        }
        evidence.findings(3).into_iter().map(|(rule, _)| rule.id()).collect()
    }

    /// Boxes as left, top, right, bottom all over the image.
    fn boxes() -> Vec<[f64; 4]> {
        let places = (0..6).flat_map(|x| (0..5).map(move |y| (f64::from(x) * 0.13, f64::from(y) * 0.12)));
        places.map(|(x, y)| [x, y, x + 0.3, y + 0.15 + x / 4.0]).collect()
    }

    fn rows(row: impl Fn(usize, [f64; 4]) -> String) -> Vec<String> {
        boxes().into_iter().enumerate().map(|(index, edges)| row(index, edges)).collect()
    }

    #[test]
    fn rows_as_they_should_be_say_nothing() {
        let sound =
            rows(|i, [x1, y1, x2, y2]| format!("{} {} {} {} {}", i % 3, f64::midpoint(x1, x2), f64::midpoint(y1, y2), x2 - x1, y2 - y1));
        assert_eq!(found(&sound), [""; 0]);
    }

    #[test]
    fn each_other_reading_is_recognised() {
        let corners = rows(|i, [x1, y1, x2, y2]| format!("{} {x1} {y1} {x2} {y2}", i % 3));
        assert_eq!(found(&corners), ["coordinates-are-corners"]);
        let top_left = rows(|i, [x1, y1, ..]| format!("{} {} {} 0.3 0.3", i % 3, x1 * 0.6, y1));
        assert_eq!(found(&top_left), ["coordinates-from-top-left"]);
        let swapped = rows(|i, [_, y1, ..]| format!("{} 0.5 {} 0.1 0.8", i % 3, 0.1 + y1));
        assert_eq!(found(&swapped), ["axes-swapped"]);
        let pixels = rows(|i, [x1, y1, x2, y2]| {
            format!("{} {} {} {} {}", i % 3, x1 * 640.0 + 90.0, y1 * 480.0 + 50.0, (x2 - x1) * 640.0, (y2 - y1) * 480.0)
        });
        assert_eq!(found(&pixels), ["coordinates-in-pixels"]);
        let turned = rows(|i, [x1, y1, x2, y2]| format!("{} {x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2}", i % 3));
        assert_eq!(found(&turned), ["oriented-boxes"]);
        let from_one = rows(|i, _| format!("{} .5 .5 .2 .2{i}", i % 3 + 1));
        assert_eq!(found(&from_one), ["classes-from-one"]);
    }

    #[test]
    fn a_few_odd_rows_say_nothing() {
        let corners = rows(|i, [x1, y1, x2, y2]| format!("{} {x1} {y1} {x2} {y2}", i % 3));
        assert_eq!(found(&corners[..9]), [""; 0]);
    }
}
