//! Which of the many predictions of one image are the detections? Score threshold and non-maximum suppression.
//!
//! In:  the decoded output of one image: N rows of cx, cy, w, h (input pixels) and one score a class.
//! Out: detections as corners in input pixels, best score first.
//!
//! Classes are kept apart exactly: a candidate only meets the kept boxes of its own class. The published code shifts boxes by
//! 7680 pixels a class instead, which rounds edges; on its golden cases both agree. There is no time limit.
//! Source: spec 10.2.

use super::boxes::Xyxy;
use super::iou::iou;

/// Only so many of the best candidates are looked at, as in the published detector.
const MAX_CANDIDATES: usize = 30_000;

/// A box that passed the score threshold and suppression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    pub bbox: Xyxy,
    pub class: usize,
    pub score: f32,
}

/// Settings of the suppression; see `detect()` and `validate()` for the published ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NmsOptions {
    /// Score above which (strictly) a candidate counts.
    pub conf: f32,
    /// IoU above which (strictly) the lower score is suppressed.
    pub iou: f32,
    pub max_detections: usize,
    /// One candidate for each class above `conf`, instead of the best class alone.
    pub multi_label: bool,
    /// Boxes of different classes suppress each other.
    pub agnostic: bool,
}

impl NmsOptions {
    /// The published detector's settings.
    pub fn detect() -> Self {
        Self { conf: 0.25, iou: 0.45, max_detections: 1000, multi_label: false, agnostic: false }
    }

    /// The published validation's settings.
    pub fn validate() -> Self {
        Self { conf: 0.001, iou: 0.7, max_detections: 300, multi_label: true, agnostic: false }
    }
}

/// Suppresses over `rows`: N rows of cx, cy, w, h, then one score a class (`4 + n_classes` numbers a row).
/// The result is sorted by score, descending; equal scores keep the order of rows, then of classes.
///
/// A score that is not a number is no candidate. Of equal best classes the first counts.
///
/// # Panics
/// When the length of `rows` is no multiple of `4 + n_classes`, which is a bug of the caller.
pub fn nms(rows: &[f32], n_classes: usize, options: &NmsOptions) -> Vec<Detection> {
    let row_len = 4 + n_classes;
    assert_eq!(rows.len() % row_len, 0, "rows of {row_len} numbers, got {} numbers", rows.len());

    let mut candidates = candidates(rows, row_len, options);
    let by_score = |a: &Candidate, b: &Candidate| b.score.total_cmp(&a.score).then_with(|| (a.row, a.class).cmp(&(b.row, b.class)));
    if candidates.len() > MAX_CANDIDATES {
        candidates.select_nth_unstable_by(MAX_CANDIDATES, by_score);
        candidates.truncate(MAX_CANDIDATES);
    }
    candidates.sort_unstable_by(by_score);

    let mut detections: Vec<Detection> = Vec::new();
    // Kept boxes by class, so that a candidate meets few of them.
    let mut kept: Vec<Vec<Xyxy>> = vec![Vec::new(); if options.agnostic { 1 } else { n_classes }];
    for candidate in &candidates {
        if detections.len() >= options.max_detections {
            break;
        }
        let bbox = corners(&rows[candidate.row as usize * row_len..][..4]);
        let rivals = &mut kept[if options.agnostic { 0 } else { candidate.class as usize }];
        if rivals.iter().any(|rival| iou(rival, &bbox) > options.iou) {
            continue;
        }
        rivals.push(bbox);
        detections.push(Detection { bbox, class: candidate.class as usize, score: candidate.score });
    }
    detections
}

#[derive(Clone, Copy)]
struct Candidate {
    score: f32,
    row: u32,
    class: u32,
}

fn candidates(rows: &[f32], row_len: usize, options: &NmsOptions) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (row, numbers) in rows.chunks_exact(row_len).enumerate() {
        let row = row as u32;
        let scores = numbers[4..].iter().enumerate().map(|(class, &score)| Candidate { score, row, class: class as u32 });
        if options.multi_label {
            candidates.extend(scores.filter(|candidate| candidate.score > options.conf));
        } else {
            let above = scores.filter(|candidate| candidate.score > options.conf);
            candidates.extend(above.reduce(|best, next| if next.score > best.score { next } else { best }));
        }
    }
    candidates
}

fn corners(xywh: &[f32]) -> Xyxy {
    let (half_w, half_h) = (xywh[2] / 2.0, xywh[3] / 2.0);
    Xyxy::new(xywh[0] - half_w, xywh[1] - half_h, xywh[0] + half_w, xywh[1] + half_h)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use safetensors::SafeTensors;

    use super::*;

    const DETECT_300: NmsOptions = NmsOptions { conf: 0.25, iou: 0.45, max_detections: 300, multi_label: false, agnostic: false };
    const VAL: NmsOptions = NmsOptions { conf: 0.001, iou: 0.7, max_detections: 300, multi_label: true, agnostic: false };

    #[test]
    fn the_better_of_two_overlapping_boxes_wins_and_classes_do_not_meet() {
        let rows = [
            [10.0, 10.0, 8.0, 8.0, 0.6, 0.0],
            [11.0, 10.0, 8.0, 8.0, 0.9, 0.0],
            [10.5, 10.0, 8.0, 8.0, 0.0, 0.5],
            [90.0, 90.0, 8.0, 8.0, 0.3, f32::NAN],
        ]
        .concat();
        let found = nms(&rows, 2, &DETECT_300);
        let short: Vec<(usize, f32)> = found.iter().map(|d| (d.class, d.score)).collect();
        assert_eq!(short, [(0, 0.9), (1, 0.5), (0, 0.3)]);
        assert_eq!(found[0].bbox, Xyxy::new(7.0, 6.0, 15.0, 14.0));
        let agnostic = nms(&rows, 2, &NmsOptions { agnostic: true, ..DETECT_300 });
        assert_eq!(agnostic.len(), 2);
    }

    #[test]
    fn equal_scores_keep_the_order_of_rows_and_the_limit_holds() {
        let rows: Vec<f32> = (0..5).flat_map(|i| [100.0 * i as f32, 0.0, 10.0, 10.0, 0.5]).collect();
        let found = nms(&rows, 1, &NmsOptions { max_detections: 3, ..DETECT_300 });
        assert_eq!(found.iter().map(|d| d.bbox.x1).collect::<Vec<_>>(), [-5.0, 95.0, 195.0]);
        assert!(nms(&[], 3, &DETECT_300).is_empty());
        assert!(nms(&rows, 1, &NmsOptions { max_detections: 0, ..DETECT_300 }).is_empty());
    }

    #[test]
    fn rows_and_order_are_those_of_the_published_detector() {
        let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/nms.safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let numbers = |name: &str| -> Vec<f32> {
            let tensor = golden.tensor(name).unwrap();
            tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let mut n_checked = 0;
        for name in golden.names() {
            let Some((case, rest)) = name.split_once('.') else { continue };
            let Some((config, image)) = rest.split_once(".out") else { continue };
            let options = match config {
                "val" => VAL,
                "val_agnostic" => NmsOptions { agnostic: true, ..VAL },
                "detect" | "detect_classes_0_2" => DETECT_300,
                "detect_agnostic" => NmsOptions { agnostic: true, ..DETECT_300 },
                "max_det_20" => NmsOptions { max_detections: 20, ..DETECT_300 },
                other => panic!("unknown configuration {other}"),
            };
            let shape = golden.tensor(&format!("{case}.in")).unwrap().shape().to_vec();
            let (n_classes, n) = (shape[1] - 4, shape[2]);
            let all = numbers(&format!("{case}.in"));
            let planes = &all[image.parse::<usize>().unwrap() * shape[1] * n..][..shape[1] * n];
            let rows: Vec<f32> = (0..n).flat_map(|i| (0..shape[1]).map(move |c| planes[c * n + i])).collect();
            let mut found = nms(&rows, n_classes, &options);
            if config == "detect_classes_0_2" {
                // Classes do not meet, so that a filter may come afterwards as well.
                found.retain(|d| d.class != 1);
            }
            let found: Vec<f32> =
                found.iter().flat_map(|d| [d.bbox.x1, d.bbox.y1, d.bbox.x2, d.bbox.y2, d.score, d.class as f32]).collect();
            assert_eq!(found, numbers(name), "{name}");
            n_checked += 1;
        }
        assert_eq!(n_checked, 19);
    }
}
