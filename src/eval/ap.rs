//! Average precision and the operating point, from matched predictions of a whole split.
//!
//! In:  the matched detections of all images, and the class of each label.
//! Out: precision, recall, AP50 and AP50-95 of each class that has labels, and their means.
//!
//! AP is the area under the precision envelope, interpolated linearly at 101 recalls and integrated by trapezoids.
//! Precision and recall are given at the score where the mean F1 over the classes, smoothed over a tenth of the score axis,
//! is largest.
//!
//! Never looks at boxes. Source: the published trainer's `ap_per_class`, checked against `tests/golden/metrics.json`.

use super::matching::{Matched, N_THRESHOLDS};

/// Points of the score axis, 0 to 1.
const N_SCORES: usize = 1000;
/// Points of the recall axis, 0 to 1.
const N_RECALLS: usize = 101;
/// Width of the box filter over the F1 curve.
const SMOOTHING: usize = 101;
const EPS: f64 = 1e-16;

/// Figures of one class.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ClassMetrics {
    pub class: usize,
    pub n_labels: usize,
    pub precision: f64,
    pub recall: f64,
    pub ap50: f64,
    pub ap50_95: f64,
}

/// Figures of a split. Means are over the classes that have labels.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Metrics {
    pub n_images: usize,
    pub n_labels: usize,
    pub precision: f64,
    pub recall: f64,
    pub map50: f64,
    pub map50_95: f64,
    /// Score at which precision and recall are given (largest smoothed F1).
    pub best_conf: f64,
    pub classes: Vec<ClassMetrics>,
}

impl Metrics {
    /// What `best` weights are chosen by: 0.1 mAP50 + 0.9 mAP50-95.
    pub fn fitness(&self) -> f64 {
        0.1 * self.map50 + 0.9 * self.map50_95
    }
}

/// The curves of one class over the score axis, and its AP at each threshold.
struct ClassCurves {
    class: usize,
    n_labels: usize,
    precision: Vec<f64>,
    recall: Vec<f64>,
    ap: [f64; N_THRESHOLDS],
}

/// The figures of a split of `n_images` images. `matched` may have any order; equal scores keep theirs.
pub fn evaluate(n_images: usize, matched: &[Matched], label_classes: &[usize]) -> Metrics {
    let n_classes = label_classes.iter().max().map_or(0, |largest| largest + 1);
    let mut n_labels = vec![0; n_classes];
    for &class in label_classes {
        n_labels[class] += 1;
    }
    let mut ranked: Vec<&Matched> = matched.iter().collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));

    let curves: Vec<ClassCurves> = (0..n_classes)
        .filter(|&class| n_labels[class] > 0)
        .map(|class| {
            let of_class: Vec<&Matched> = ranked.iter().copied().filter(|matched| matched.class == class).collect();
            class_curves(class, n_labels[class], &of_class)
        })
        .collect();
    if curves.is_empty() {
        return Metrics { n_images, ..Metrics::default() };
    }

    let point = operating_point(&curves);
    let classes: Vec<ClassMetrics> = curves
        .iter()
        .map(|curves| ClassMetrics {
            class: curves.class,
            n_labels: curves.n_labels,
            precision: curves.precision[point],
            recall: curves.recall[point],
            ap50: curves.ap[0],
            ap50_95: curves.ap.iter().sum::<f64>() / N_THRESHOLDS as f64,
        })
        .collect();
    let mean = |figure: fn(&ClassMetrics) -> f64| classes.iter().map(figure).sum::<f64>() / classes.len() as f64;
    Metrics {
        n_images,
        n_labels: label_classes.len(),
        precision: mean(|class| class.precision),
        recall: mean(|class| class.recall),
        map50: mean(|class| class.ap50),
        map50_95: mean(|class| class.ap50_95),
        best_conf: score_at(point),
        classes,
    }
}

/// `ranked` are the class's detections by score, descending. A class without detections has AP 0 and precision 0.
fn class_curves(class: usize, n_labels: usize, ranked: &[&Matched]) -> ClassCurves {
    let mut curves = ClassCurves { class, n_labels, precision: vec![0.0; N_SCORES], recall: vec![0.0; N_SCORES], ap: [0.0; N_THRESHOLDS] };
    if ranked.is_empty() {
        return curves;
    }
    for threshold in 0..N_THRESHOLDS {
        let mut recall = Vec::with_capacity(ranked.len());
        let mut precision = Vec::with_capacity(ranked.len());
        let mut n_right = 0.0;
        for (rank, matched) in ranked.iter().enumerate() {
            n_right += f64::from(u8::from(matched.correct[threshold]));
            recall.push(n_right / (n_labels as f64 + EPS));
            precision.push(n_right / (rank + 1) as f64);
        }
        curves.ap[threshold] = average_precision(&recall, &precision);
        if threshold == 0 {
            // Scores fall with the rank, so they are negated to get a rising axis. Above the highest score nothing is detected.
            let axis: Vec<f64> = ranked.iter().map(|matched| -f64::from(matched.score)).collect();
            for point in 0..N_SCORES {
                curves.recall[point] = interpolate(-score_at(point), &axis, &recall, 0.0);
                curves.precision[point] = interpolate(-score_at(point), &axis, &precision, 1.0);
            }
        }
    }
    curves
}

/// Area under the envelope of one precision-recall curve.
fn average_precision(recall: &[f64], precision: &[f64]) -> f64 {
    let recall: Vec<f64> = std::iter::once(0.0).chain(recall.iter().copied()).chain([1.0]).collect();
    let mut envelope: Vec<f64> = std::iter::once(1.0).chain(precision.iter().copied()).chain([0.0]).collect();
    for index in (0..envelope.len() - 1).rev() {
        envelope[index] = envelope[index].max(envelope[index + 1]);
    }
    let step = 1.0 / (N_RECALLS - 1) as f64;
    let heights: Vec<f64> = (0..N_RECALLS).map(|index| interpolate(index as f64 * step, &recall, &envelope, 1.0)).collect();
    heights.windows(2).map(|pair| f64::midpoint(pair[0], pair[1]) * step).sum()
}

/// Index on the score axis where the smoothed mean F1 is largest; the first among equals.
fn operating_point(curves: &[ClassCurves]) -> usize {
    let f1: Vec<f64> = (0..N_SCORES)
        .map(|point| {
            let of_class = |curves: &ClassCurves| {
                let (p, r) = (curves.precision[point], curves.recall[point]);
                2.0 * p * r / (p + r + EPS)
            };
            curves.iter().map(of_class).sum::<f64>() / curves.len() as f64
        })
        .collect();
    // Past its ends the curve goes on with its end values.
    let half = SMOOTHING as isize / 2;
    let padded = |index: isize| f1[index.clamp(0, N_SCORES as isize - 1) as usize];
    let smoothed = |point: usize| (-half..=half).map(|offset| padded(point as isize + offset)).sum::<f64>() / SMOOTHING as f64;
    let mut best = (0, f64::NEG_INFINITY);
    for point in 0..N_SCORES {
        let value = smoothed(point);
        if value > best.1 {
            best = (point, value);
        }
    }
    best.0
}

fn score_at(point: usize) -> f64 {
    point as f64 / (N_SCORES - 1) as f64
}

/// Linear interpolation on a rising axis: `left` before it, the last value after it; where the axis repeats a position, the
/// last value there counts.
fn interpolate(x: f64, axis: &[f64], values: &[f64], left: f64) -> f64 {
    let after = axis.partition_point(|&position| position <= x);
    if after == 0 {
        return left;
    }
    let before = after - 1;
    if after == axis.len() || axis[before] == x {
        return values[before];
    }
    let slope = (values[after] - values[before]) / (axis[after] - axis[before]);
    values[before] + slope * (x - axis[before])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::eval::matching::{Truth, match_image};
    use crate::geom::Xyxy;
    use crate::geom::nms::Detection;
    use serde_json::Value;

    fn golden() -> Value {
        serde_json::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.json"))).unwrap()
    }

    fn rows(value: &Value) -> Vec<Vec<f64>> {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// All images of the golden file, matched, in the file's order of predictions.
    fn golden_matches(golden: &Value) -> (Vec<Matched>, Vec<usize>) {
        let xyxy = |row: &[f64]| Xyxy::new(row[2] as f32, row[3] as f32, row[4] as f32, row[5] as f32);
        let (truths, predictions) = (rows(&golden["gts"]), rows(&golden["preds"]));
        let mut matched = Vec::new();
        for image in 0..golden["n_images"].as_u64().unwrap() {
            let of_image = |rows: &[Vec<f64>]| rows.iter().filter(|row| row[0] == image as f64).cloned().collect::<Vec<_>>();
            let truths: Vec<Truth> = of_image(&truths).iter().map(|row| Truth { class: row[1] as usize, bbox: xyxy(row) }).collect();
            let detections: Vec<Detection> = of_image(&predictions)
                .iter()
                .map(|row| Detection { bbox: xyxy(row), class: row[1] as usize, score: row[6] as f32 })
                .collect();
            matched.extend(match_image(&detections, &truths));
        }
        (matched, truths.iter().map(|row| row[1] as usize).collect())
    }

    #[test]
    fn the_golden_predictions_are_right_where_the_reference_says_so() {
        let golden = golden();
        let (matched, _) = golden_matches(&golden);
        let flags: Vec<String> =
            matched.iter().map(|matched| matched.correct.iter().map(|&right| if right { '1' } else { '0' }).collect()).collect();
        let expected: Vec<String> = serde_json::from_value(golden["correct_per_pred"].clone()).unwrap();
        assert_eq!(flags, expected);
    }

    #[test]
    fn the_golden_figures_come_out_within_a_millionth() {
        let golden = golden();
        let (matched, classes) = golden_matches(&golden);
        let metrics = evaluate(40, &matched, &classes);
        let reference = &golden["reference"];
        let close = |name: &str, ours: f64, theirs: &Value| {
            assert!((ours - theirs.as_f64().unwrap()).abs() < 1e-6, "{name}: {ours} instead of {theirs}");
        };
        close("precision", metrics.precision, &reference["mean_precision"]);
        close("recall", metrics.recall, &reference["mean_recall"]);
        close("map50", metrics.map50, &reference["map50"]);
        close("map50_95", metrics.map50_95, &reference["map50_95"]);
        close("fitness", metrics.fitness(), &reference["fitness"]);
        for class in &metrics.classes {
            close("class precision", class.precision, &reference["precision"][class.class]);
            close("class recall", class.recall, &reference["recall"][class.class]);
            close("ap50", class.ap50, &reference["ap50"][class.class]);
            close("ap", class.ap50_95, &reference["ap"][class.class]);
            assert_eq!(class.n_labels as u64, reference["n_targets_per_class"][class.class].as_u64().unwrap());
        }
        assert_eq!((metrics.classes.len(), metrics.n_labels, metrics.n_images), (5, 186, 40));
    }

    #[test]
    fn perfect_detections_have_average_precision_close_to_one() {
        let matched: Vec<Matched> =
            (0..10).map(|rank| Matched { correct: [true; N_THRESHOLDS], score: 0.9 - rank as f32 * 0.01, class: 0 }).collect();
        let metrics = evaluate(10, &matched, &[0; 10]);
        assert!((metrics.map50 - 0.995).abs() < 1e-9, "{}", metrics.map50);
        assert_eq!((metrics.precision, metrics.recall), (1.0, 1.0));
    }

    #[test]
    fn nothing_detected_or_nothing_labelled_gives_zero() {
        let metrics = evaluate(3, &[], &[1, 1]);
        assert_eq!((metrics.map50, metrics.precision, metrics.recall, metrics.n_labels), (0.0, 0.0, 0.0, 2));
        assert_eq!(evaluate(3, &[], &[]), Metrics { n_images: 3, ..Metrics::default() });
    }
}
