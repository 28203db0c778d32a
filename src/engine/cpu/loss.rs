//! The detection loss of one or two heads with its gradients: assignment, class loss, box loss, distribution loss.
//!
//! In:  ground truth in input pixels, and the logits of every level of every head. Out: the loss in parts, and the gradient
//! for every logit.
//!
//! Each head is on its own: its assignment comes from its own predictions, and its sums are divided by the sum of its own
//! target scores (at least 1). The assignment, the target scores and that divisor are constants to the gradient.
//!
//! Logits and gradients are f32, sums f64. Work is cut into pieces of fixed size, whose sums are added in order, so that
//! the result does not depend on the number of threads. Never allocates per logit.
//! Source: the published YOLOv9; its parts are in `assigner`, `bce`, `ciou`, `dfl`.

use rayon::prelude::*;

use super::assigner::{Positive, Predictions, TruthBox, assign};
use super::bce::{background_loss, positive_correction};
use super::ciou::ciou_gradient;
use super::decode::Ltrb;
use super::dfl::{Distribution, MAX_BINS, Target, dfl_loss};
use super::silu::sigmoid;
use super::simd::dispatch;
use super::view::{View, ViewMut};
use crate::engine::op::{LOSS_ITEMS, LossSpec, MAX_LOSS_HEADS};

/// Pixels of one piece of work.
const BLOCK: usize = 512;

/// Computes the loss of all heads and the gradient of `B * (box + cls + dfl)` for every input.
///
/// `truth` is (B, 1, G, 5): class (-1: padding), x1, y1, x2, y2 in input pixels. `levels` are (reg, cls) of every level of
/// every head in order, `grads` the same for the gradients (overwritten). Returns box, cls, dfl (gains and head
/// weights applied), the loss that is differentiated, then box, cls, dfl of each head in order (0 for one that is not there).
///
/// # Panics
/// If shapes do not belong together, or a class is not below `n_classes`.
pub fn detection_loss(spec: &LossSpec, truth: View, levels: &[(View, View)], grads: &mut [(ViewMut, ViewMut)]) -> [f32; LOSS_ITEMS] {
    let n_levels = spec.strides.len();
    assert_eq!(levels.len(), n_levels * spec.head_weights.len(), "levels of all heads");
    assert_eq!(levels.len(), grads.len(), "gradients of all levels");
    assert!(spec.head_weights.len() <= MAX_LOSS_HEADS, "{} heads", spec.head_weights.len());
    assert!(spec.reg_max <= MAX_BINS, "{} bins a side, at most {MAX_BINS}", spec.reg_max);
    let batch = levels[0].0.shape.n;
    let truth: Vec<Vec<TruthBox>> = (0..batch).map(|image| truth_of_image(spec, truth, image)).collect();

    let (mut sums, mut items) = ([0.0; 3], [0.0; LOSS_ITEMS]);
    let heads = levels.chunks(n_levels).zip(grads.chunks_mut(n_levels)).zip(&spec.head_weights);
    for (head, ((levels, grads), &head_weight)) in heads.enumerate() {
        for (index, part) in head_loss(spec, &truth, levels, grads, head_weight).into_iter().enumerate() {
            sums[index] += part;
            items[4 + 3 * head + index] = part as f32;
        }
    }
    for (item, sum) in items.iter_mut().zip(sums) {
        *item = sum as f32;
    }
    items[3] = (batch as f64 * sums.iter().sum::<f64>()) as f32;
    items
}

/// The rows of one image that hold a box. A box whose corners sum to zero or less is padding too, as in the published trainer.
fn truth_of_image(spec: &LossSpec, truth: View, image: usize) -> Vec<TruthBox> {
    let n_rows = truth.shape.h * truth.shape.w;
    let rows = (image * n_rows..(image + 1) * n_rows).map(|row| truth.pixel(row));
    let is_box = |row: &&[f32]| row[0] >= 0.0 && row[1..5].iter().sum::<f32>() > 0.0;
    rows.filter(is_box)
        .map(|row| {
            let class = row[0] as usize;
            assert!(class < spec.n_classes, "class {class} of {}", spec.n_classes);
            TruthBox { class, corners: [row[1], row[2], row[3], row[4]] }
        })
        .collect()
}

/// What one head predicts for one image.
struct HeadPredictions<'a> {
    levels: &'a [(View<'a>, View<'a>)],
    strides: &'a [usize],
    image: usize,
    /// Index of each level's first anchor point.
    first: &'a [usize],
    /// Of all levels, in input pixels.
    points: &'a [[f32; 2]],
}

impl HeadPredictions<'_> {
    /// Level of an anchor point, and its pixel in the level's tensors.
    fn place(&self, anchor: usize) -> (usize, usize) {
        let level = self.first.partition_point(|&first| first <= anchor) - 1;
        let shape = self.levels[level].0.shape;
        (level, self.image * shape.h * shape.w + anchor - self.first[level])
    }
}

impl Predictions for HeadPredictions<'_> {
    fn corners(&self, anchor: usize) -> [f32; 4] {
        let (level, pixel) = self.place(anchor);
        let stride = self.strides[level] as f32;
        let [x, y] = self.points[anchor];
        let [left, top, right, bottom] = dispatch(Ltrb(self.levels[level].0.pixel(pixel))).map(|distance| distance * stride);
        [x - left, y - top, x + right, y + bottom]
    }

    fn score(&self, anchor: usize, class: usize) -> f32 {
        let (level, pixel) = self.place(anchor);
        sigmoid::<false>(self.levels[level].1.pixel(pixel)[class])
    }
}

/// A positive anchor point of one level.
struct LevelPositive {
    /// Counted over the batch.
    pixel: usize,
    truth: TruthBox,
    score: f32,
}

/// Box, class and distribution loss of one head, with gains and head weight; writes its gradients.
fn head_loss(
    spec: &LossSpec,
    truth: &[Vec<TruthBox>],
    levels: &[(View, View)],
    grads: &mut [(ViewMut, ViewMut)],
    head_weight: f32,
) -> [f64; 3] {
    let (first, points) = anchor_points(levels, &spec.strides);
    let assigned: Vec<Vec<Positive>> = truth
        .par_iter()
        .enumerate()
        .map(|(image, truth)| {
            assign(spec, truth, &points, &HeadPredictions { levels, strides: &spec.strides, image, first: &first, points: &points })
        })
        .collect();

    let score_sum: f64 = assigned.iter().flatten().map(|positive| f64::from(positive.score)).sum();
    let share = f64::from(head_weight) / score_sum.max(1.0);
    let factors = [spec.box_gain, spec.cls_gain, spec.dfl_gain].map(|gain| f64::from(gain) * share);

    let mut losses = [0.0; 3];
    for (level, ((reg, cls), (d_reg, d_cls))) in levels.iter().zip(grads).enumerate() {
        let n_cells = reg.shape.h * reg.shape.w;
        let of_level = first[level]..first[level] + n_cells;
        let positives: Vec<LevelPositive> = (0..truth.len())
            .flat_map(|image| assigned[image].iter().map(move |positive| (image, positive)))
            .filter(|(_, positive)| of_level.contains(&positive.anchor))
            .map(|(image, positive)| LevelPositive {
                pixel: image * n_cells + positive.anchor - of_level.start,
                truth: truth[image][positive.truth],
                score: positive.score,
            })
            .collect();
        let part = level_loss(spec, (*reg, *cls), (d_reg, d_cls), &positives, spec.strides[level], factors);
        for (loss, part) in losses.iter_mut().zip(part) {
            *loss += part;
        }
    }
    std::array::from_fn(|part| losses[part] * factors[part])
}

/// Index of the first anchor point of each level, and all points in input pixels.
fn anchor_points(levels: &[(View, View)], strides: &[usize]) -> (Vec<usize>, Vec<[f32; 2]>) {
    let (mut first, mut points) = (Vec::new(), Vec::new());
    for ((reg, _), &stride) in levels.iter().zip(strides) {
        first.push(points.len());
        for y in 0..reg.shape.h {
            points.extend((0..reg.shape.w).map(|x| [(x as f32 + 0.5) * stride as f32, (y as f32 + 0.5) * stride as f32]));
        }
    }
    (first, points)
}

/// Sums of box, class and distribution loss over one level, without factors; the gradients have them, times the batch.
fn level_loss(
    spec: &LossSpec,
    (reg, cls): (View, View),
    (d_reg, d_cls): (&mut ViewMut, &mut ViewMut),
    positives: &[LevelPositive],
    stride: usize,
    factors: [f64; 3],
) -> [f64; 3] {
    assert_eq!(reg.shape.c, 4 * spec.reg_max, "channels of the box distributions");
    assert_eq!(cls.shape.c, spec.n_classes, "channels of the class logits");
    assert_eq!((d_reg.shape, d_cls.shape), (reg.shape, cls.shape), "shapes of the gradients");
    let (n_pixels, n_cells) = (reg.shape.n_pixels(), reg.shape.h * reg.shape.w);
    let (d_reg_stride, d_cls_stride) = (d_reg.pixel_stride, d_cls.pixel_stride);
    let d_factors = factors.map(|factor| factor * reg.shape.n as f64);

    let parts: Vec<[f64; 3]> = d_reg
        .data
        .par_chunks_mut(BLOCK * d_reg_stride)
        .zip(d_cls.data.par_chunks_mut(BLOCK * d_cls_stride))
        .take(n_pixels.div_ceil(BLOCK))
        .enumerate()
        .map(|(block, (d_reg, d_cls))| {
            let pixels = block * BLOCK..((block + 1) * BLOCK).min(n_pixels);
            let mut losses = [0.0, background_block(cls, pixels.clone(), d_factors[1] as f32, d_cls, d_cls_stride), 0.0];
            for d_reg in d_reg.chunks_mut(d_reg_stride).take(pixels.len()) {
                d_reg[..reg.shape.c].fill(0.0);
            }
            let from = positives.partition_point(|positive| positive.pixel < pixels.start);
            for positive in positives[from..].iter().take_while(|positive| positive.pixel < pixels.end) {
                let at = positive.pixel - pixels.start;

                let [of_class, of_others] = spec.class_shares().map(|share| positive.score * share);
                let logits = &cls.pixel(positive.pixel)[..spec.n_classes];
                for (class, &logit) in logits.iter().enumerate() {
                    let target = if class == positive.truth.class { of_class } else { of_others };
                    if target == 0.0 {
                        continue;
                    }
                    let (loss, gradient) = positive_correction(logit, target, spec.cls_pw);
                    losses[1] += loss;
                    d_cls[at * d_cls_stride + class] += (gradient * d_factors[1]) as f32;
                }

                let cell = positive.pixel % n_cells;
                let point = [(cell % reg.shape.w) as f64 + 0.5, (cell / reg.shape.w) as f64 + 0.5];
                let target = positive.truth.corners.map(|corner| f64::from(corner) / stride as f64);
                let weights = [d_factors[0], d_factors[2]].map(|factor| factor * f64::from(positive.score));
                let d_reg = &mut d_reg[at * d_reg_stride..][..reg.shape.c];
                let (box_loss, dfl) = box_and_distribution_loss(reg.pixel(positive.pixel), point, target, weights, d_reg);
                losses[0] += box_loss * f64::from(positive.score);
                losses[2] += dfl * f64::from(positive.score);
            }
            losses
        })
        .collect();

    let mut losses = [0.0; 3];
    for part in parts {
        for (loss, part) in losses.iter_mut().zip(part) {
            *loss += part;
        }
    }
    losses
}

/// Class loss of a block of pixels as if all were background.
fn background_block(cls: View, pixels: std::ops::Range<usize>, scale: f32, d_cls: &mut [f32], d_stride: usize) -> f64 {
    let n_classes = cls.shape.c;
    if cls.pixel_stride == n_classes && d_stride == n_classes {
        let logits = &cls.data[pixels.start * n_classes..pixels.end * n_classes];
        return background_loss(logits, scale, &mut d_cls[..logits.len()]);
    }
    let rows = d_cls.chunks_mut(d_stride);
    pixels.zip(rows).map(|(pixel, d_cls)| background_loss(cls.pixel(pixel), scale, &mut d_cls[..n_classes])).sum()
}

/// `1 - CIoU` and the mean distribution loss of the four sides, for one anchor point; writes the gradient of
/// `weights[0] * box + weights[1] * distribution`. All in strides.
fn box_and_distribution_loss(logits: &[f32], point: [f64; 2], target: [f64; 4], weights: [f64; 2], gradient: &mut [f32]) -> (f64, f64) {
    let reg_max = logits.len() / 4;
    let sides: [Distribution; 4] = std::array::from_fn(|side| Distribution::new(&logits[side * reg_max..][..reg_max]));
    let corners = corners_from_ltrb(point, sides.each_ref().map(|side| side.mean));
    let (ciou, d_corners) = ciou_gradient(corners, target);
    let target_ltrb = [point[0] - target[0], point[1] - target[1], target[2] - point[0], target[3] - point[1]];

    let mut dfl = 0.0;
    for (side, distribution) in sides.iter().enumerate() {
        let logits = &logits[side * reg_max..][..reg_max];
        let target = Target::new(target_ltrb[side], reg_max);
        dfl += dfl_loss(logits, distribution, &target) / 4.0;
        // Left and top move their corner down: d corner / d distance is -1. The loss is 1 - CIoU: another minus.
        let d_distance = weights[0] * if side < 2 { d_corners[side] } else { -d_corners[side] };
        for (bin, gradient) in gradient[side * reg_max..][..reg_max].iter_mut().enumerate() {
            let d_dfl = weights[1] / 4.0 * (distribution.share[bin] - target.share(bin));
            *gradient = (d_distance * distribution.d_mean(bin) + d_dfl) as f32;
        }
    }
    (1.0 - ciou, dfl)
}

fn corners_from_ltrb(point: [f64; 2], [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
    [point[0] - left, point[1] - top, point[0] + right, point[1] + bottom]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{box_and_distribution_loss, corners_from_ltrb, detection_loss};
    use crate::engine::cpu::ciou::ciou_gradient;
    use crate::engine::cpu::dfl::Distribution;
    use crate::engine::cpu::view::{View, ViewMut};
    use crate::engine::golden::{Golden, assert_close};
    use crate::engine::graph::Shape;
    use crate::engine::op::{LOSS_ITEMS, LossSpec};

    fn spec(n_classes: usize, head_weights: &[f32]) -> LossSpec {
        LossSpec { head_weights: head_weights.to_vec(), ..LossSpec::published(n_classes, false) }
    }

    /// Of (reg, cls) of every level of every head, packed.
    type Gradients = Vec<(Vec<f32>, Vec<f32>)>;

    /// Logits of all levels of all heads, each level packed.
    struct Logits {
        n_classes: usize,
        batch: usize,
        levels: Vec<(usize, usize, Vec<f32>, Vec<f32>)>,
    }

    impl Logits {
        /// Anything but constant: boxes of a few strides, scores around 0.2.
        fn made_up(batch: usize, input: (usize, usize), n_classes: usize, n_heads: usize) -> Self {
            let mut state = 12345u64;
            let mut value = |scale: f32| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * scale
            };
            let mut levels = Vec::new();
            for _ in 0..n_heads {
                for stride in [8, 16, 32] {
                    let (h, w) = (input.0 / stride, input.1 / stride);
                    let n = batch * h * w;
                    let reg = (0..n * 64).map(|i| value(3.0) - (i % 16) as f32 * 0.3).collect();
                    let cls = (0..n * n_classes).map(|_| value(4.0) - 1.4).collect();
                    levels.push((h, w, reg, cls));
                }
            }
            Self { n_classes, batch, levels }
        }

        /// Loss and packed gradients of all levels.
        fn loss(&self, spec: &LossSpec, truth: View) -> ([f32; LOSS_ITEMS], Gradients) {
            let shapes: Vec<(Shape, Shape)> = self
                .levels
                .iter()
                .map(|&(h, w, ..)| (Shape::new(self.batch, h, w, 64), Shape::new(self.batch, h, w, self.n_classes)))
                .collect();
            let views: Vec<(View, View)> =
                self.levels.iter().zip(&shapes).map(|((_, _, reg, cls), s)| (View::packed(reg, s.0), View::packed(cls, s.1))).collect();
            let mut grads: Gradients = shapes.iter().map(|(reg, cls)| (vec![f32::NAN; reg.len()], vec![f32::NAN; cls.len()])).collect();
            let mut grad_views: Vec<(ViewMut, ViewMut)> =
                grads.iter_mut().zip(&shapes).map(|((reg, cls), s)| (ViewMut::packed(reg, s.0), ViewMut::packed(cls, s.1))).collect();
            let loss = detection_loss(spec, truth, &views, &mut grad_views);
            (loss, grads)
        }
    }

    fn truth_rows(rows: &[[f32; 5]], batch: usize) -> (Vec<f32>, Shape) {
        (rows.concat(), Shape::new(batch, 1, rows.len() / batch, 5))
    }

    const TWO_IMAGES: [[f32; 5]; 4] =
        [[0.0, 4.0, 6.0, 50.0, 40.0], [1.0, 30.0, 10.0, 60.0, 63.0], [1.0, 2.0, 2.0, 61.0, 60.0], [-1.0, 0.0, 0.0, 0.0, 0.0]];

    #[test]
    fn without_truth_only_the_class_loss_is_left() {
        let (spec, logits) = (spec(2, &[1.0]), Logits::made_up(2, (64, 64), 2, 1));
        let empty = View::packed(&[], Shape::new(2, 1, 0, 5));
        let ([box_loss, cls_loss, dfl_loss, total, of_heads @ ..], grads) = logits.loss(&spec, empty);
        let all = logits.levels.iter().flat_map(|(_, _, _, cls)| cls);
        let expected: f64 = all.map(|&x| f64::from(x).exp().ln_1p()).sum::<f64>() * 0.5;
        assert_eq!((box_loss, dfl_loss), (0.0, 0.0));
        assert!((f64::from(cls_loss) - expected).abs() < 1e-5 * expected, "{cls_loss} but {expected}");
        assert_eq!(total, 2.0 * cls_loss);
        assert_eq!(of_heads, [0.0, cls_loss, 0.0, 0.0, 0.0, 0.0], "the one head has it all");
        assert!(grads.iter().all(|(d_reg, _)| d_reg.iter().all(|&d| d == 0.0)));
        for ((_, d_cls), (_, _, _, cls)) in grads.iter().zip(&logits.levels) {
            let exact: Vec<f32> = cls.iter().map(|&x| 1.0 / (1.0 + (-x).exp())).collect(); // 2 images * gain 0.5
            assert_close("gradient", d_cls, &exact, 1e-6, 0.0);
        }
    }

    #[test]
    fn smoothed_labels_want_less_of_the_class_and_a_little_of_the_others_at_positives_alone() {
        const SMOOTHING: f32 = 0.2;
        let (sharp, logits) = (spec(3, &[1.0]), Logits::made_up(2, (64, 64), 3, 1));
        let soft = LossSpec { label_smoothing: SMOOTHING, ..sharp.clone() };
        let (rows, shape) = truth_rows(&TWO_IMAGES, 2);
        let ((sharp_items, sharp), (soft_items, soft)) =
            (logits.loss(&sharp, View::packed(&rows, shape)), logits.loss(&soft, View::packed(&rows, shape)));
        assert_eq!((sharp_items[0], sharp_items[2]), (soft_items[0], soft_items[2]));
        assert!((sharp_items[1] - soft_items[1]).abs() > 1e-3);
        let (mut n_positives, mut scales) = (0, Vec::new());
        for (((_, sharp), (_, soft)), (_, _, _, cls)) in sharp.iter().zip(&soft).zip(&logits.levels) {
            for ((sharp, soft), cls) in sharp.chunks(3).zip(soft.chunks(3)).zip(cls.chunks(3)) {
                // A gradient is scale * (sigmoid(logit) - target).
                let moved: Vec<f32> = soft.iter().zip(sharp).map(|(soft, sharp)| soft - sharp).collect();
                let sigmoid = |class: usize| 1.0 / (1.0 + (-cls[class]).exp());
                let Some(class) = moved.iter().position(|moved| *moved > 0.0) else {
                    assert_eq!(moved, [0.0; 3]);
                    scales.push(sharp[0] / sigmoid(0));
                    continue;
                };
                n_positives += 1;
                let others = moved.iter().enumerate().filter(|(other, _)| *other != class);
                assert!(others.into_iter().all(|(_, other)| (other + moved[class]).abs() < 1e-6), "{moved:?}");
                scales.push((sharp[class] + moved[class] / (SMOOTHING / 2.0)) / sigmoid(class));
            }
        }
        assert!(n_positives > 5, "{n_positives}");
        assert!(scales.iter().all(|scale| (scale - scales[0]).abs() < 1e-4 * scales[0]), "{scales:?}");
    }

    #[test]
    fn padding_rows_change_nothing() {
        let (spec, logits) = (spec(2, &[0.25, 1.0]), Logits::made_up(2, (64, 64), 2, 2));
        let (rows, shape) = truth_rows(&TWO_IMAGES, 2);
        let [a, b, c, pad] = TWO_IMAGES;
        let (padded, padded_shape) = truth_rows(&[a, b, pad, c, pad, pad], 2);
        let plain = logits.loss(&spec, View::packed(&rows, shape));
        assert!(plain.0[0] > 0.1 && plain.0[2] > 0.1, "{:?}", plain.0);
        for part in 0..3 {
            let (aux, main, both) = (plain.0[4 + part], plain.0[7 + part], plain.0[part]);
            assert!(aux > 0.0 && main > aux && (aux + main - both).abs() < 1e-5 * both, "part {part}: {aux} + {main} is not {both}");
        }
        assert_eq!(plain, logits.loss(&spec, View::packed(&padded, padded_shape)));
    }

    #[test]
    fn threads_and_memory_layout_change_nothing() {
        let (spec, logits) = (spec(3, &[0.25, 1.0]), Logits::made_up(2, (256, 192), 3, 2));
        let (rows, shape) = truth_rows(&TWO_IMAGES, 2);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| logits.loss(&spec, View::packed(&rows, shape)))
        };
        let plain = run(1);
        assert_eq!(plain, run(3));

        // The same logits as slices of one wider tensor a level.
        let width = 64 + 3 + 2;
        let mut wide = Vec::new();
        for (_, _, reg, cls) in &logits.levels {
            wide.push(reg.chunks(64).zip(cls.chunks(3)).flat_map(|(reg, cls)| [reg, &[9.0], cls, &[9.0]].concat()).collect::<Vec<f32>>());
        }
        let mut d_reg: Vec<Vec<f32>> = wide.iter().map(|wide| vec![7.0; wide.len()]).collect();
        let mut d_cls = d_reg.clone();
        let (mut views, mut grads) = (Vec::new(), Vec::new());
        for ((wide, (h, w, ..)), (d_reg, d_cls)) in wide.iter().zip(&logits.levels).zip(d_reg.iter_mut().zip(&mut d_cls)) {
            let (reg_shape, cls_shape) = (Shape::new(2, *h, *w, 64), Shape::new(2, *h, *w, 3));
            views.push((
                View { data: wide, shape: reg_shape, pixel_stride: width },
                View { data: &wide[65..], shape: cls_shape, pixel_stride: width },
            ));
            grads.push((
                ViewMut { data: d_reg, shape: reg_shape, pixel_stride: width },
                ViewMut { data: &mut d_cls[65..], shape: cls_shape, pixel_stride: width },
            ));
        }
        let loss = detection_loss(&spec, View::packed(&rows, shape), &views, &mut grads);
        assert!((loss[3] - plain.0[3]).abs() <= 1e-6 * loss[3]);
        for (level, (d_reg, d_cls)) in d_reg.iter().zip(&d_cls).enumerate() {
            let reg: Vec<f32> = d_reg.chunks(width).flat_map(|pixel| pixel[..64].to_vec()).collect();
            let cls: Vec<f32> = d_cls.chunks(width).flat_map(|pixel| pixel[65..68].to_vec()).collect();
            assert_eq!((&reg, &cls), (&plain.1[level].0, &plain.1[level].1));
            assert!(d_reg.chunks(width).all(|pixel| pixel[64..].iter().all(|&other| other == 7.0)), "wrote beside its channels");
        }
    }

    #[test]
    fn gradients_of_a_positive_agree_with_finite_differences() {
        let logits: Vec<f32> = (0..64).map(|i| ((i * 37) % 19) as f32 * 0.2 - (i % 16) as f32 * 0.25).collect();
        let (point, target) = ([6.5, 4.5], [3.2, 2.9, 9.1, 6.3]);
        let corners =
            |logits: &[f32]| corners_from_ltrb(point, std::array::from_fn(|side| Distribution::new(&logits[side * 16..][..16]).mean));
        // CIoU's aspect weight is a constant to its gradient, so the box loss is compared as a linear function of the corners.
        let (_, d_corners) = ciou_gradient(corners(&logits), target);
        let linear = |logits: &[f32]| -> f64 { -corners(logits).iter().zip(d_corners).map(|(corner, d)| corner * d).sum::<f64>() };
        let step = 1.0 / 256.0;
        for (weights, value) in [([3.0, 0.0], 0), ([0.0, 2.0], 1)] {
            let mut gradient = [0.0; 64];
            box_and_distribution_loss(&logits, point, target, weights, &mut gradient);
            for bin in 0..64 {
                let at = |step: f32| {
                    let mut logits = logits.clone();
                    logits[bin] += step;
                    if value == 0 {
                        3.0 * linear(&logits)
                    } else {
                        2.0 * box_and_distribution_loss(&logits, point, target, weights, &mut [0.0; 64]).1
                    }
                };
                let difference = (at(step) - at(-step)) / (2.0 * f64::from(step));
                assert!((f64::from(gradient[bin]) - difference).abs() < 2e-5, "bin {bin}: {} but {difference}", gradient[bin]);
            }
        }
    }

    #[test]
    fn loss_and_gradients_agree_with_the_reference() {
        let Some(golden) = Golden::open_shared("components/loss_dual.safetensors") else { return };
        for case in ["mixed", "no_targets", "only_unmatched"] {
            let names = ["aux.p3", "aux.p4", "aux.p5", "main.p3", "main.p4", "main.p5"];
            let levels = names.map(|name| {
                let name = format!("{case}.{name}");
                let (shape, nchw) = (golden.shape(&name), golden.f32s(&name));
                let (reg, cls) = split_nhwc(&nchw, &shape);
                (shape[2], shape[3], reg, cls)
            });
            let (height, width) = (levels[0].0 as f32 * 8.0, levels[0].1 as f32 * 8.0);
            let logits = Logits { n_classes: 3, batch: 3, levels: levels.to_vec() };

            let targets = golden.f32s(&format!("{case}.targets"));
            let n_rows = targets.len() / 6;
            let mut truth = vec![-1.0; 3 * n_rows * 5];
            for (row, target) in targets.chunks(6).enumerate() {
                let (cx, cy, w, h) = (target[2] * width, target[3] * height, target[4] * width, target[5] * height);
                let corners = [target[1], cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0];
                truth[(target[0] as usize * n_rows + row) * 5..][..5].copy_from_slice(&corners);
            }
            let (loss, grads) = logits.loss(&spec(3, &[0.25, 1.0]), View::packed(&truth, Shape::new(3, 1, n_rows, 5)));

            assert_close(case, &loss[..3], &golden.f32s(&format!("{case}.loss_items")), 0.0, 1e-5);
            assert_close(case, &loss[3..4], &golden.f32s(&format!("{case}.loss_total")), 0.0, 1e-5);
            for (name, (d_reg, d_cls)) in names.iter().zip(&grads) {
                let name = format!("{case}.grad.{name}");
                let (reg, cls) = split_nhwc(&golden.f32s(&name), &golden.shape(&name));
                assert_close(&name, d_reg, &reg, 5e-6, 0.0);
                assert_close(&name, d_cls, &cls, 5e-6, 0.0);
            }
        }
    }

    /// (B, 64 + nc, H, W) into distributions and class logits, both NHWC.
    fn split_nhwc(nchw: &[f32], shape: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let (channels, n_cells) = (shape[1], shape[2] * shape[3]);
        let pixel = |image: usize, cell: usize, channels_of: std::ops::Range<usize>| {
            channels_of.map(move |channel| nchw[(image * channels + channel) * n_cells + cell])
        };
        let pixels = || (0..shape[0]).flat_map(|image| (0..n_cells).map(move |cell| (image, cell)));
        (
            pixels().flat_map(|(image, cell)| pixel(image, cell, 0..64)).collect(),
            pixels().flat_map(|(image, cell)| pixel(image, cell, 64..channels)).collect(),
        )
    }
}
