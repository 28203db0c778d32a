//! What is to be said about the rows of one label file: those that are changed or dropped, and boxes that are used but doubtful.
//!
//! In:  the rows with their verdicts, and the image's size.
//! Out: for each doubt its rule, severity, whether it can be mended, line, box and message, in the order of the lines.
//!
//! A box that is used is never changed on a suspicion: the doubts about good rows are there to be looked at. Never reads a file.

use super::label::Label;
use super::parse::{LabelFile, Row, Verdict};
use super::rule::{Fixability, Rule, Severity};
use crate::geom::iou::iou;
use crate::geom::{Size, Xywhn};

/// The side of the square that training fits images into by default.
const TRAINING_SIDE: f32 = 640.0;
/// A side below this many pixels of that square is tiny: the published trainer leaves such boxes out after augmentation.
const TINY_PIXELS: f32 = 2.0;
/// The share of the image that a huge box covers (our own).
const HUGE_AREA: f32 = 0.9;
/// How many times longer than wide, in pixels: the published trainer leaves boxes out beyond the second.
const EXTREME_ASPECT: f32 = 20.0;
const REFUSED_ASPECT: f32 = 100.0;
/// How much two boxes overlap (IoU) that probably mean one object (our own).
const NEAR_DUPLICATE: f32 = 0.85;
const SURE_DUPLICATE: f32 = 0.95;
const OTHER_CLASS_DUPLICATE: f32 = 0.9;
/// In which boxes are compared: an overlap does not depend on the image's size.
const UNIT: Size = Size { width: 1, height: 1 };
/// Files with more boxes are not searched for near duplicates.
const MAX_COMPARED: usize = 5000;

/// Something to say about a file of rows or one of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowFinding {
    pub(super) rule: Rule,
    pub(super) severity: Severity,
    pub(super) fix: Fixability,
    /// 1-based; `None` for the file as a whole.
    pub(super) line: Option<usize>,
    pub(super) bbox: Option<Xywhn>,
    pub(super) message: String,
}

/// All there is to say about a file that could be read.
pub(super) fn findings(file: &LabelFile, size: Option<Size>) -> Vec<RowFinding> {
    let mut findings: Vec<RowFinding> = file.rows.iter().filter_map(judged).collect();
    if file.has_bom {
        findings.push(of_rule(Rule::ByteOrderMark, Some(1), None, "the file begins with a byte-order mark (U+FEFF)".to_owned()));
    }
    let blank = |(line, _): &(usize, _)| of_rule(Rule::BlankRow, Some(*line), None, "the line holds only blanks".to_owned());
    findings.extend(file.blank_lines.iter().map(blank));
    findings.extend(mixed(file));
    let used: Vec<(usize, Label)> = file.rows.iter().filter_map(|row| Some((row.line, row.verdict.label()?))).collect();
    findings.extend(used.iter().flat_map(|(line, label)| doubtful(*line, label.bbox, size)));
    findings.extend(overlaps(&used));
    findings.sort_by_key(|finding| finding.line);
    findings
}

fn of_rule(rule: Rule, line: Option<usize>, bbox: Option<Xywhn>, message: String) -> RowFinding {
    RowFinding { rule, severity: rule.info().severity, fix: rule.info().fix, line, bbox, message }
}

/// What is to be said about a row that is changed or dropped.
fn judged(row: &Row) -> Option<RowFinding> {
    match &row.verdict {
        Verdict::Used(_) => None,
        Verdict::Clamped { written, spill, .. } => {
            let Xywhn { cx, cy, w, h } = written.bbox;
            let past = [("left", w / 2.0 - cx), ("top", h / 2.0 - cy), ("right", cx + w / 2.0 - 1.0), ("bottom", cy + h / 2.0 - 1.0)];
            let (side, past) = past.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            if *spill {
                let message = format!("the box passes the {side} edge by rounding; it is cut there");
                return Some(of_rule(Rule::RoundingSpill, Some(row.line), Some(written.bbox), message));
            }
            let message = format!("the box reaches {:.1} % of the image past its {side} edge; it is cut there", past * 100.0);
            Some(RowFinding { severity: Severity::Warning, ..of_rule(Rule::OutOfRange, Some(row.line), Some(written.bbox), message) })
        }
        Verdict::Dropped(dropped) => {
            let message = match &dropped.mended {
                Some(text) => format!("{}; it can be written as {text:?}", dropped.reason),
                None => dropped.reason.clone(),
            };
            Some(RowFinding { fix: dropped.fix, ..of_rule(dropped.rule, Some(row.line), dropped.bbox, message) })
        }
    }
}

/// Box rows and polygons in one file.
fn mixed(file: &LabelFile) -> Option<RowFinding> {
    let is_used = |row: &&Row| row.verdict.label().is_some();
    let n_polygons = file.rows.iter().filter(is_used).filter(|row| row.polygon).count();
    let n_boxes = file.rows.iter().filter(is_used).count() - n_polygons;
    let first = file.rows.iter().filter(is_used).find(|row| !row.polygon).filter(|_| n_polygons > 0)?;
    let message = format!("{n_boxes} box rows and {n_polygons} polygons stand in one file; the boxes of the polygons are used");
    Some(of_rule(Rule::PolygonRows, Some(first.line), None, message))
}

/// Sizes and shapes that are rarely meant.
fn doubtful(line: usize, bbox: Xywhn, size: Option<Size>) -> Vec<RowFinding> {
    let mut findings = Vec::new();
    if bbox.w * bbox.h > HUGE_AREA {
        let message = format!("the box covers {:.0} % of the image", bbox.w * bbox.h * 100.0);
        findings.push(of_rule(Rule::HugeBox, Some(line), Some(bbox), message));
    }
    let Some(size) = size else { return findings };
    let (w, h) = (bbox.w * size.width as f32, bbox.h * size.height as f32);
    let scale = TRAINING_SIDE / size.width.max(size.height) as f32;
    if w.min(h) * scale < TINY_PIXELS {
        let message = format!("the box is {:.1} x {:.1} pixels in an input of {TRAINING_SIDE}", w * scale, h * scale);
        findings.push(of_rule(Rule::TinyBox, Some(line), Some(bbox), message));
    }
    let aspect = w.max(h) / w.min(h);
    if aspect > EXTREME_ASPECT {
        let severity = if aspect > REFUSED_ASPECT { Severity::Warning } else { Severity::Info };
        let message = format!("one side is {aspect:.0} times as long as the other ({w:.0} x {h:.0} pixels)");
        findings.push(RowFinding { severity, ..of_rule(Rule::ExtremeShape, Some(line), Some(bbox), message) });
    }
    findings
}

/// Boxes that nearly cover one another; told at the later line, once a box.
fn overlaps(used: &[(usize, Label)]) -> Vec<RowFinding> {
    if used.len() > MAX_COMPARED {
        return Vec::new();
    }
    let left = |label: &Label| label.bbox.cx - label.bbox.w / 2.0;
    let mut by_left: Vec<&(usize, Label)> = used.iter().collect();
    by_left.sort_by(|a, b| left(&a.1).total_cmp(&left(&b.1)));
    let mut findings: Vec<RowFinding> = Vec::new();
    for (index, (line_a, a)) in by_left.iter().enumerate() {
        // Of boxes with this IoU the left edges differ by less than the rest of the width.
        let reach = left(a) + a.bbox.w * (1.0 - NEAR_DUPLICATE);
        for (line_b, b) in by_left[index + 1..].iter().take_while(|(_, b)| left(b) <= reach) {
            let iou = iou(&a.bbox.to_xyxy(UNIT), &b.bbox.to_xyxy(UNIT));
            let (first, later) = (line_a.min(line_b), line_a.max(line_b));
            let bbox = if later == line_a { a.bbox } else { b.bbox };
            let percent = iou * 100.0;
            if a.class != b.class && iou >= OTHER_CLASS_DUPLICATE {
                let message = format!(
                    "overlaps the box of class {} in line {first} by {percent:.0} %",
                    if later == line_a { b.class.0 } else { a.class.0 }
                );
                findings.push(of_rule(Rule::TwoClassesOneBox, Some(*later), Some(bbox), message));
            } else if a.class == b.class && iou >= NEAR_DUPLICATE {
                let severity = if iou >= SURE_DUPLICATE { Severity::Warning } else { Severity::Info };
                let message = format!("overlaps the box of the same class in line {first} by {percent:.0} %");
                findings.push(RowFinding { severity, ..of_rule(Rule::NearDuplicate, Some(*later), Some(bbox), message) });
            }
        }
    }
    findings.sort_by_key(|finding| (finding.line, finding.rule));
    findings.dedup_by_key(|finding| (finding.line, finding.rule));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::parse::{self, ParseOptions};
    use super::*;

    /// Findings as `rule severity line`.
    fn found(text: &str) -> Vec<String> {
        let options = ParseOptions { n_classes: 3, n_keypoint_fields: None };
        let size = Some(Size::new(1000, 500));
        let file = parse::parse(text.as_bytes(), options, &|| size);
        let shown = |finding: RowFinding| format!("{} {} {}", finding.rule.id(), finding.severity.name(), finding.line.unwrap_or(0));
        findings(&file, size).into_iter().map(shown).collect()
    }

    #[test]
    fn doubtful_boxes_are_told_and_good_ones_are_not() {
        for (text, expected) in [
            ("0 .5 .5 .2 .2\n1 .2 .2 .1 .1\n", &[][..]),
            ("0 .5 .5 .003 .005\n", &["tiny-box warning 1"]),
            ("0 .5 .5 .004 .01\n", &[]),
            ("0 .5 .5 .97 .97\n", &["huge-box info 1"]),
            ("0 .5 .5 .94 .94\n", &[]),
            ("0 .5 .5 .5 .02\n", &["extreme-shape info 1"]),
            ("0 .5 .5 .9 .01\n", &["extreme-shape warning 1"]),
            ("0 .5 .5 .2 .2\n0 .502 .5 .2 .2\n", &["near-duplicate warning 2"]),
            ("0 .5 .5 .2 .2\n0 .51 .5 .2 .2\n", &["near-duplicate info 2"]),
            ("0 .5 .5 .2 .2\n0 .53 .5 .2 .2\n", &[]),
            ("0 .502 .5 .2 .2\n1 .5 .5 .2 .2\n", &["two-classes-one-box warning 2"]),
            ("0 .5 .5 .2 .2\n1 .52 .5 .2 .2\n", &[]),
            ("\u{feff}0 .5 .5 .2 .2\n  \n\n1 .1 .1 .1 .1\n", &["byte-order-mark warning 1", "blank-row warning 2"]),
            ("0 .5 .5 .2 .2\n1 .1 .1 .3 .1 .3 .3\n", &["polygon-rows warning 1"]),
            ("0 .99995 .5 .0003 .2\n", &["rounding-spill info 1", "extreme-shape warning 1", "tiny-box warning 1"]),
        ] {
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            let mut found = found(text);
            found.sort_unstable();
            assert_eq!(found, expected, "{text}");
        }
    }
}
