//! Which predictions are right: each against the labels of its image, at ten IoU thresholds.
//!
//! In:  the detections of one image in score order, and its labels, both in the same space.
//! Out: for each detection ten flags, its score and its class.
//!
//! A detection can only be right about one label: the one of its class that it overlaps most. Where several detections
//! have the same label as their best, the one listed first (the highest score) gets it, not the one that overlaps most.
//! So a detection never falls back on its second best label, unlike in the COCO evaluation.
//!
//! Never ranks over several images; that is `ap.rs`. Source: the published trainer's validation, whose order this keeps.

use crate::geom::Xyxy;
use crate::geom::nms::Detection;

/// How many IoU thresholds there are: 0.50, 0.55, … 0.95.
pub const N_THRESHOLDS: usize = 10;

/// The threshold at `index`.
pub fn iou_threshold(index: usize) -> f32 {
    0.5 + 0.05 * index as f32
}

/// A label as the evaluation sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    pub class: usize,
    pub bbox: Xyxy,
}

/// A detection after matching: at which thresholds it is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matched {
    pub correct: [bool; N_THRESHOLDS],
    pub score: f32,
    pub class: usize,
}

/// Matches the detections of one image, given in score order, to its labels. The result has their order.
pub fn match_image(detections: &[Detection], truths: &[Truth]) -> Vec<Matched> {
    // For each detection: the label of its class that it overlaps most, and by how much. Which label is best does not depend
    // on the threshold; whether it counts does.
    let best: Vec<Option<(usize, f32)>> = detections.iter().map(|detection| best_label(detection, truths)).collect();

    let mut matched: Vec<Matched> = detections
        .iter()
        .map(|detection| Matched { correct: [false; N_THRESHOLDS], score: detection.score, class: detection.class })
        .collect();
    for threshold in 0..N_THRESHOLDS {
        let mut taken = vec![false; truths.len()];
        for (detection, best) in matched.iter_mut().zip(&best) {
            let Some((label, overlap)) = *best else { continue };
            if overlap >= iou_threshold(threshold) && !taken[label] {
                taken[label] = true;
                detection.correct[threshold] = true;
            }
        }
    }
    matched
}

/// The label of the same class with the largest overlap; the last among equals.
fn best_label(detection: &Detection, truths: &[Truth]) -> Option<(usize, f32)> {
    let mut best: Option<(usize, f32)> = None;
    for (index, truth) in truths.iter().enumerate().filter(|(_, truth)| truth.class == detection.class) {
        let overlap = overlap(&truth.bbox, &detection.bbox);
        if best.is_none_or(|(_, largest)| overlap >= largest) {
            best = Some((index, overlap));
        }
    }
    best
}

/// IoU with the published evaluation's guard against empty boxes, which is why it is not `geom::iou`.
fn overlap(a: &Xyxy, b: &Xyxy) -> f32 {
    let width = (a.x2.min(b.x2) - a.x1.max(b.x1)).max(0.0);
    let height = (a.y2.min(b.y2) - a.y1.max(b.y1)).max(0.0);
    let intersection = width * height;
    intersection / (a.area() + b.area() - intersection + 1e-7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detection(x1: f32, x2: f32, score: f32, class: usize) -> Detection {
        Detection { bbox: Xyxy::new(x1, 0.0, x2, 10.0), class, score }
    }

    fn truth(x1: f32, x2: f32, class: usize) -> Truth {
        Truth { class, bbox: Xyxy::new(x1, 0.0, x2, 10.0) }
    }

    #[test]
    fn a_detection_that_fills_a_label_is_right_at_every_threshold() {
        let matched = match_image(&[detection(0.0, 10.0, 0.9, 1)], &[truth(0.0, 10.0, 1)]);
        assert_eq!(matched[0].correct, [true; N_THRESHOLDS]);
    }

    #[test]
    fn the_higher_score_gets_the_label_although_it_overlaps_less() {
        let detections = [detection(0.0, 8.0, 0.9, 0), detection(0.0, 10.0, 0.8, 0)];
        let matched = match_image(&detections, &[truth(0.0, 10.0, 0)]);
        // The first overlaps by 0.8: it wins up to that threshold, above it the second does.
        assert!(matched[0].correct[0] && !matched[1].correct[0]);
        assert!(!matched[0].correct[9] && matched[1].correct[9]);
    }

    #[test]
    fn a_detection_never_falls_back_on_its_second_best_label() {
        let detections = [detection(0.0, 10.0, 0.9, 0), detection(0.0, 10.0, 0.8, 0)];
        let matched = match_image(&detections, &[truth(0.0, 10.0, 0), truth(1.0, 10.0, 0)]);
        assert!(matched[0].correct[0]);
        assert_eq!(matched[1].correct, [false; N_THRESHOLDS]);
    }

    #[test]
    fn another_class_or_no_label_is_wrong() {
        assert_eq!(match_image(&[detection(0.0, 10.0, 0.9, 0)], &[truth(0.0, 10.0, 1)])[0].correct, [false; N_THRESHOLDS]);
        assert_eq!(match_image(&[detection(0.0, 10.0, 0.9, 0)], &[])[0].correct, [false; N_THRESHOLDS]);
        assert!(match_image(&[], &[truth(0.0, 10.0, 0)]).is_empty());
    }
}
