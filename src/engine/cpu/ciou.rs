//! Complete IoU with its gradient.
//!
//! In:  two boxes by their corners, in any one unit. Out: CIoU (at most 1, negative for boxes far apart), and its gradient
//! for the corners of the first box.
//!
//! `CIoU = IoU - (rho^2 / c^2 + v * a)`: squared distance of the centres over the squared diagonal of the enclosing box, and a
//! penalty for another aspect. `a` counts as a constant in the gradient. 1e-7 is added to heights, union and diagonal, but not
//! to widths, as the published code does. At a tie each side of a minimum or maximum gets half the gradient; where boxes just
//! touch, the intersection gives none (what the reference numbers show).
//!
//! In f64 throughout: it runs for few pairs, and tiny boxes cancel. Never clamps: the assigner does.
//! Source: arXiv:2005.03572; constants as in the published YOLOv9.

use std::f64::consts::PI;

const EPS: f64 = 1e-7;
const ASPECT_FACTOR: f64 = 4.0 / (PI * PI);

/// What value and gradient share.
struct Terms {
    w: [f64; 2],
    h: [f64; 2],
    /// Width and height of the intersection, negative when the boxes do not meet.
    inter_w: f64,
    inter_h: f64,
    inter: f64,
    union: f64,
    iou: f64,
    /// Width and height of the enclosing box.
    cw: f64,
    ch: f64,
    diagonal2: f64,
    /// Twice the distance of the centres.
    dx: f64,
    dy: f64,
    rho2: f64,
    /// Difference of the aspects' angles, second less first.
    angle: f64,
    v: f64,
    a: f64,
}

fn terms(first: [f64; 4], second: [f64; 4]) -> Terms {
    let w = [first[2] - first[0], second[2] - second[0]];
    let h = [first[3] - first[1] + EPS, second[3] - second[1] + EPS];
    let inter_w = first[2].min(second[2]) - first[0].max(second[0]);
    let inter_h = first[3].min(second[3]) - first[1].max(second[1]);
    let inter = inter_w.max(0.0) * inter_h.max(0.0);
    let union = w[0] * h[0] + w[1] * h[1] - inter + EPS;
    let iou = inter / union;
    let cw = first[2].max(second[2]) - first[0].min(second[0]);
    let ch = first[3].max(second[3]) - first[1].min(second[1]);
    let diagonal2 = cw * cw + ch * ch + EPS;
    let dx = second[0] + second[2] - first[0] - first[2];
    let dy = second[1] + second[3] - first[1] - first[3];
    let rho2 = (dx * dx + dy * dy) / 4.0;
    let angle = (w[1] / h[1]).atan() - (w[0] / h[0]).atan();
    let v = ASPECT_FACTOR * angle * angle;
    let a = v / (v - iou + 1.0 + EPS);
    Terms { w, h, inter_w, inter_h, inter, union, iou, cw, ch, diagonal2, dx, dy, rho2, angle, v, a }
}

impl Terms {
    fn ciou(&self) -> f64 {
        self.iou - (self.rho2 / self.diagonal2 + self.v * self.a)
    }
}

/// CIoU of two boxes x1, y1, x2, y2.
pub fn ciou(first: [f64; 4], second: [f64; 4]) -> f64 {
    terms(first, second).ciou()
}

/// `max(0, CIoU)`, which is what the assigner compares; cheap for boxes that do not meet.
pub fn overlap(first: [f32; 4], second: [f32; 4]) -> f32 {
    // CIoU is at most IoU, so boxes without common area need no more.
    if first[2].min(second[2]) <= first[0].max(second[0]) || first[3].min(second[3]) <= first[1].max(second[1]) {
        return 0.0;
    }
    ciou(first.map(f64::from), second.map(f64::from)).max(0.0) as f32
}

/// CIoU and its gradient for the corners of `first`.
pub fn ciou_gradient(first: [f64; 4], second: [f64; 4]) -> (f64, [f64; 4]) {
    let t = terms(first, second);

    // Which corners the intersection and the enclosing box take from `first`.
    let smaller = |a: f64, b: f64| {
        if a < b {
            1.0
        } else if a == b {
            0.5
        } else {
            0.0
        }
    };
    let open_w = if t.inter_w > 0.0 { 1.0 } else { 0.0 };
    let open_h = if t.inter_h > 0.0 { 1.0 } else { 0.0 };
    let d_inter = [
        -smaller(second[0], first[0]) * open_w * t.inter_h.max(0.0),
        -smaller(second[1], first[1]) * open_h * t.inter_w.max(0.0),
        smaller(first[2], second[2]) * open_w * t.inter_h.max(0.0),
        smaller(first[3], second[3]) * open_h * t.inter_w.max(0.0),
    ];
    let d_area = [-t.h[0], -t.w[0], t.h[0], t.w[0]];
    let d_diagonal2 = [
        -2.0 * t.cw * smaller(first[0], second[0]),
        -2.0 * t.ch * smaller(first[1], second[1]),
        2.0 * t.cw * smaller(second[2], first[2]),
        2.0 * t.ch * smaller(second[3], first[3]),
    ];
    let d_rho2 = [-t.dx / 2.0, -t.dy / 2.0, -t.dx / 2.0, -t.dy / 2.0];
    let size2 = t.w[0] * t.w[0] + t.h[0] * t.h[0];
    let d_v_d_angle = -2.0 * ASPECT_FACTOR * t.angle / size2;
    let (d_v_dw, d_v_dh) = (d_v_d_angle * t.h[0], -d_v_d_angle * t.w[0]);
    let d_v = [-d_v_dw, -d_v_dh, d_v_dw, d_v_dh];

    let gradient = std::array::from_fn(|i| {
        let d_union = d_area[i] - d_inter[i];
        let d_iou = d_inter[i] / t.union - t.inter / (t.union * t.union) * d_union;
        let d_distance = d_rho2[i] / t.diagonal2 - t.rho2 / (t.diagonal2 * t.diagonal2) * d_diagonal2[i];
        d_iou - d_distance - t.a * d_v[i]
    });
    (t.ciou(), gradient)
}

#[cfg(test)]
mod tests {
    use super::{ciou, ciou_gradient, overlap, terms};
    use crate::engine::golden::Golden;

    #[test]
    fn a_box_overlaps_itself_wholly() {
        let bbox = [1.0, 2.0, 5.0, 9.0];
        assert!((ciou(bbox, bbox) - 1.0).abs() < 1e-7);
    }

    #[test]
    fn two_squares_side_by_side_lose_the_distance_of_their_centres() {
        // No intersection, same aspect: -rho^2 / c^2 = -(2^2) / (4^2 + 2^2).
        assert!((ciou([0.0, 0.0, 2.0, 2.0], [2.0, 0.0, 4.0, 2.0]) + 0.2).abs() < 1e-7);
        assert_eq!(overlap([0.0, 0.0, 2.0, 2.0], [2.0, 0.0, 4.0, 2.0]), 0.0);
    }

    #[test]
    fn a_shifted_square_has_the_value_known_by_hand() {
        // IoU = 2 / 6, rho^2 / c^2 = 1 / (9 + 4), aspects equal.
        let expected = 1.0 / 3.0 - 1.0 / 13.0;
        assert!((ciou([0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]) - expected).abs() < 1e-7);
        assert!((f64::from(overlap([0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0])) - expected).abs() < 1e-6);
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let boxes = [
            ([10.0, 12.0, 30.0, 40.0], [14.0, 9.0, 37.0, 33.0]),
            ([0.5, 0.5, 4.5, 2.0], [1.0, 0.75, 3.0, 1.5]),
            ([1.0, 1.0, 3.0, 9.0], [4.0, 2.0, 12.0, 3.0]),
        ];
        for (first, second) in boxes {
            let (value, gradient) = ciou_gradient(first, second);
            assert_eq!(value, ciou(first, second));
            // The weight of the aspect is a constant to the gradient, so it must be one here too.
            let a = terms(first, second).a;
            let with_fixed_a = |first| {
                let t = terms(first, second);
                t.iou - t.rho2 / t.diagonal2 - t.v * a
            };
            for i in 0..4 {
                let (mut up, mut down) = (first, first);
                up[i] += 1e-5;
                down[i] -= 1e-5;
                let difference = (with_fixed_a(up) - with_fixed_a(down)) / 2e-5;
                assert!((gradient[i] - difference).abs() < 1e-8, "{first:?} side {i}: {} but {difference}", gradient[i]);
            }
        }
    }

    #[test]
    fn value_and_gradients_agree_with_the_reference() {
        let golden = Golden::open("ciou.safetensors");
        let boxes = |name: &str| -> Vec<[f64; 4]> { golden.f32s(name).as_chunks().0.iter().map(|b: &[f32; 4]| b.map(f64::from)).collect() };
        let (first, second) = (boxes("box1"), boxes("box2"));
        let values = golden.f32s("ciou");
        let exact = golden.f64s("f64.ciou");
        let ious = golden.f64s("f64.iou");
        for i in 0..first.len() {
            let (value, gradient) = ciou_gradient(first[i], second[i]);
            let (_, gradient_second) = ciou_gradient(second[i], first[i]);
            assert!((terms(first[i], second[i]).iou - ious[i]).abs() < 1e-12, "IoU of pair {i}");
            assert!((value - exact[i]).abs() < 1e-12, "pair {i}: {value} but {}", exact[i]);
            let tiny = i == 14; // "tiny boxes": f32 cancels, up to 2e-4 of the largest side of the gradient
            assert!((value - f64::from(values[i])).abs() <= if tiny { 2e-4 } else { 1e-6 }, "pair {i} in f32");
            for (ours, name) in [(gradient, "grad_box1"), (gradient_second, "grad_box2")] {
                let reference = &golden.f64s(&format!("f64.{name}"))[i * 4..][..4];
                let reference_f32 = &golden.f32s(name)[i * 4..][..4];
                for side in 0..4 {
                    let error = (ours[side] - reference[side]).abs();
                    assert!(
                        error <= 1e-9 + 1e-9 * reference[side].abs(),
                        "{name} of pair {i}, side {side}: {} but {}",
                        ours[side],
                        reference[side]
                    );
                    let expected = f64::from(reference_f32[side]);
                    let largest = reference.iter().fold(0.0f64, |largest, side| largest.max(side.abs()));
                    let tolerance = 1e-7 + if tiny { 2e-4 * largest } else { 1e-4 * expected.abs() };
                    assert!(
                        (ours[side] - expected).abs() <= tolerance,
                        "{name} of pair {i}, side {side}: {} but {expected} in f32",
                        ours[side]
                    );
                }
            }
        }
    }
}
