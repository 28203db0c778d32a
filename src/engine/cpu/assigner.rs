//! Task-aligned assignment: which anchor points learn which ground-truth boxes.
//!
//! In:  class scores and decoded boxes of one image, and its ground truth (xyxy, input pixels).
//! Out: the positive anchor points, each with a ground-truth box and a soft score; all others are background.
//!
//! An anchor point is a candidate if its centre lies inside the box. Each box takes the `top_k` candidates with the highest
//! `score^alpha * overlap^beta`, overlap being CIoU clamped at zero; a point wanted by several boxes goes to the one it overlaps
//! most, **of all boxes of the image**, be it one that did not want it. Each box's scores are scaled so that its best point gets
//! the largest overlap among its points.
//!
//! A candidate whose metric is zero is never taken. The published code may take one where a box has fewer than `top_k`
//! others; it would have score zero and no weight.
//!
//! Never touches pixels or weights. Source: TOOD, arXiv:2108.07755; constants as in the published YOLOv9.

use super::ciou::overlap;
use crate::engine::op::LossSpec;

/// A ground-truth box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TruthBox {
    pub class: usize,
    /// x1, y1, x2, y2 in input pixels.
    pub corners: [f32; 4],
}

/// What the network says of one image. Asked only for anchor points that lie inside some box.
pub trait Predictions {
    /// Corners of the box that anchor point `anchor` predicts, in input pixels.
    fn corners(&self, anchor: usize) -> [f32; 4];
    fn score(&self, anchor: usize, class: usize) -> f32;
}

/// An anchor point that learns a box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Positive {
    pub anchor: usize,
    /// Index of the ground-truth box.
    pub truth: usize,
    /// What the score of its class should become.
    pub score: f32,
}

/// A centre this near to an edge (in pixels) counts as outside.
const EDGE: f32 = 1e-9;

/// Assigns the boxes of one image. `points` are the anchor points in input pixels. The result is in the order of anchors.
pub fn assign(spec: &LossSpec, truth: &[TruthBox], points: &[[f32; 2]], predictions: &impl Predictions) -> Vec<Positive> {
    let mut corners: Vec<Option<[f32; 4]>> = vec![None; points.len()];
    let metric =
        |truth: &TruthBox, anchor: usize, overlap: f32| predictions.score(anchor, truth.class).powf(spec.alpha) * overlap.powf(spec.beta);

    let mut claims = Vec::with_capacity(truth.len() * spec.top_k);
    let mut best = Vec::with_capacity(spec.top_k + 1);
    for (index, truth) in truth.iter().enumerate() {
        best.clear();
        let [x1, y1, x2, y2] = truth.corners;
        for (anchor, &[x, y]) in points.iter().enumerate() {
            if (x - x1).min(y - y1).min(x2 - x).min(y2 - y) <= EDGE {
                continue;
            }
            let predicted = *corners[anchor].get_or_insert_with(|| predictions.corners(anchor));
            let overlap = overlap(truth.corners, predicted);
            if overlap > 0.0 {
                let claim = Claim { anchor, truth: index, overlap, metric: metric(truth, anchor, overlap) };
                insert_best(&mut best, claim, spec.top_k);
            }
        }
        claims.extend_from_slice(&best);
    }

    // Boxes come in order, so a stable sort leaves the claims of one point in the order of boxes.
    claims.sort_by_key(|claim| claim.anchor);
    let settled: Vec<Claim> = claims
        .chunk_by(|a, b| a.anchor == b.anchor)
        .map(|rivals| {
            if let [claim] = rivals {
                return *claim;
            }
            let anchor = rivals[0].anchor;
            let predicted = corners[anchor].expect("a claimed point was decoded");
            let (mut winner, mut most) = (0, f32::NEG_INFINITY);
            for (index, truth) in truth.iter().enumerate() {
                let overlap = overlap(truth.corners, predicted);
                if overlap > most {
                    (winner, most) = (index, overlap);
                }
            }
            Claim { anchor, truth: winner, overlap: most, metric: metric(&truth[winner], anchor, most) }
        })
        .collect();

    let mut largest = vec![(0.0f32, 0.0f32); truth.len()];
    for claim in &settled {
        let (metric, overlap) = &mut largest[claim.truth];
        *metric = metric.max(claim.metric);
        *overlap = overlap.max(claim.overlap);
    }
    let positive = |claim: &Claim| {
        let (metric, overlap) = largest[claim.truth];
        Positive { anchor: claim.anchor, truth: claim.truth, score: claim.metric * overlap / (metric + spec.score_eps) }
    };
    settled.iter().map(positive).collect()
}

/// A box that wants an anchor point.
#[derive(Clone, Copy)]
struct Claim {
    anchor: usize,
    truth: usize,
    overlap: f32,
    metric: f32,
}

/// Keeps the `top_k` largest metrics, descending; the earlier anchor goes before among equals.
fn insert_best(best: &mut Vec<Claim>, claim: Claim, top_k: usize) {
    let wanted = claim.metric > best.get(top_k - 1).map_or(0.0, |last| last.metric);
    if wanted {
        let place = best.partition_point(|other| other.metric >= claim.metric);
        best.insert(place, claim);
        best.truncate(top_k);
    }
}

#[cfg(test)]
mod tests {
    use super::{Positive, Predictions, TruthBox, assign};
    use crate::engine::golden::{Golden, assert_close};
    use crate::engine::op::LossSpec;

    fn spec(n_classes: usize) -> LossSpec {
        LossSpec::published(n_classes, false)
    }

    /// Predictions that are written down.
    struct Written {
        corners: Vec<[f32; 4]>,
        scores: Vec<Vec<f32>>,
    }

    impl Predictions for Written {
        fn corners(&self, anchor: usize) -> [f32; 4] {
            self.corners[anchor]
        }

        fn score(&self, anchor: usize, class: usize) -> f32 {
            self.scores[anchor][class]
        }
    }

    fn row_of_points(n: usize) -> Vec<[f32; 2]> {
        (0..n).map(|i| [i as f32 * 8.0 + 4.0, 4.0]).collect()
    }

    #[test]
    fn a_lone_box_takes_ten_points_and_its_best_gets_its_overlap() {
        let truth = [TruthBox { class: 0, corners: [0.0, 0.0, 160.0, 8.0] }];
        let written = Written { corners: (0..20).map(|i| [0.0, 0.0, 160.0 - 2.0 * i as f32, 8.0]).collect(), scores: vec![vec![0.5]; 20] };
        let positives = assign(&spec(1), &truth, &row_of_points(20), &written);
        assert_eq!(positives.iter().map(|positive| positive.anchor).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert!((positives[0].score - 1.0).abs() < 1e-6, "{}", positives[0].score);
        assert!(positives.windows(2).all(|pair| pair[0].score > pair[1].score));
    }

    #[test]
    fn a_point_on_the_edge_is_outside() {
        let truth = [TruthBox { class: 0, corners: [4.0, 0.0, 12.0, 8.0] }];
        let written = Written { corners: vec![[4.0, 0.0, 12.0, 8.0]; 2], scores: vec![vec![0.5]; 2] };
        assert_eq!(assign(&spec(1), &truth, &row_of_points(2), &written), []);
    }

    #[test]
    fn a_contested_point_goes_to_the_box_it_overlaps_most() {
        let truth = [
            TruthBox { class: 0, corners: [0.0, 0.0, 40.0, 8.0] },
            TruthBox { class: 1, corners: [0.0, 0.0, 16.0, 8.0] },
            // Does not hold the point, but is what the point predicts.
            TruthBox { class: 2, corners: [8.5, 0.0, 40.0, 8.0] },
        ];
        let written = Written { corners: vec![[8.5, 0.0, 40.0, 8.0]], scores: vec![vec![0.5; 3]] };
        let positives = assign(&spec(3), &truth, &row_of_points(1), &written);
        assert_eq!(positives.len(), 1);
        assert_eq!((positives[0].anchor, positives[0].truth), (0, 2));
    }

    #[test]
    fn nothing_is_assigned_where_nothing_is() {
        let written = Written { corners: vec![[0.0, 0.0, 8.0, 8.0]], scores: vec![vec![0.5]] };
        assert_eq!(assign(&spec(1), &[], &row_of_points(1), &written), []);
        let far = [TruthBox { class: 0, corners: [100.0, 100.0, 120.0, 120.0] }];
        assert_eq!(assign(&spec(1), &far, &row_of_points(1), &written), []);
    }

    #[test]
    fn assignments_agree_with_the_reference() {
        let golden = Golden::open("tal.safetensors");
        for case in ["case0", "case1", "case2"] {
            let (points, n_classes) = (golden.f32s(&format!("{case}.in.anc_points")), golden.shape(&format!("{case}.in.pd_scores"))[2]);
            let points = points.as_chunks().0;
            let n_truth = golden.shape(&format!("{case}.in.gt_bboxes"))[1];
            let (scores, corners) = (golden.f32s(&format!("{case}.in.pd_scores")), golden.f32s(&format!("{case}.in.pd_bboxes")));
            let (truth_corners, labels) = (golden.f32s(&format!("{case}.in.gt_bboxes")), golden.f32s(&format!("{case}.in.gt_labels")));
            let valid = golden.f32s(&format!("{case}.in.mask_gt"));
            let foreground = golden.u8s(&format!("{case}.out.fg_mask"));
            let target_scores = golden.f32s(&format!("{case}.out.target_scores"));
            for image in 0..2 {
                let rows: Vec<usize> = (0..n_truth).filter(|row| valid[image * n_truth + row] > 0.0).collect();
                let truth: Vec<TruthBox> = rows
                    .iter()
                    .map(|row| TruthBox {
                        class: labels[image * n_truth + row] as usize,
                        corners: truth_corners.as_chunks().0[image * n_truth + row],
                    })
                    .collect();
                let of_image = image * points.len()..(image + 1) * points.len();
                let written = Written {
                    corners: corners.as_chunks().0[of_image.clone()].to_vec(),
                    scores: scores.chunks(n_classes).skip(of_image.start).take(points.len()).map(<[f32]>::to_vec).collect(),
                };
                let positives = assign(&spec(n_classes), &truth, points, &written);

                let mut ours = vec![0.0; points.len() * n_classes];
                let mut is_foreground = vec![0; points.len()];
                for &Positive { anchor, truth: index, score } in &positives {
                    ours[anchor * n_classes + truth[index].class] = score;
                    is_foreground[anchor] = 1;
                    let reference = golden.i32s(&format!("{case}.out.target_gt_idx"))[of_image.start + anchor];
                    assert_eq!(rows[index], reference as usize, "{case}, image {image}, point {anchor}");
                }
                assert_eq!(is_foreground, foreground[of_image.clone()], "{case}, image {image}");
                let reference = &target_scores[of_image.start * n_classes..of_image.end * n_classes];
                assert_close(case, &ours, reference, 2e-6, 0.0);
            }
        }
    }
}
