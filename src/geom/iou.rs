//! How much do two boxes overlap? Intersection over union.
//!
//! In:  two boxes in the same space.
//! Out: a number from 0 (apart) to 1 (equal).
//!
//! The complete IoU of the loss carries gradients and lives in the engine, not here.

use super::boxes::Xyxy;

/// Intersection over union; 0 for boxes that do not meet or have no area.
///
/// Areas are plain `width * height`, without the "+1 pixel" of older tools and without an epsilon.
pub fn iou(a: &Xyxy, b: &Xyxy) -> f32 {
    let width = (a.x2.min(b.x2) - a.x1.max(b.x1)).max(0.0);
    let height = (a.y2.min(b.y2) - a.y1.max(b.y1)).max(0.0);
    let intersection = width * height;
    // Also true of NaN, so that the result is always a number.
    if intersection > 0.0 { intersection / (a.area() + b.area() - intersection) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_box() -> impl Strategy<Value = Xyxy> {
        (-50.0f32..700.0, -50.0f32..700.0, 0.5f32..300.0, 0.5f32..300.0).prop_map(|(x, y, w, h)| Xyxy::new(x, y, x + w, y + h))
    }

    #[test]
    fn half_overlapping_squares_share_a_third() {
        let value = iou(&Xyxy::new(0.0, 0.0, 2.0, 2.0), &Xyxy::new(1.0, 0.0, 3.0, 2.0));
        assert!((value - 1.0 / 3.0).abs() < 1e-6, "{value}");
    }

    #[test]
    fn boxes_that_only_touch_or_have_no_area_do_not_overlap() {
        assert_eq!(iou(&Xyxy::new(0.0, 0.0, 1.0, 1.0), &Xyxy::new(1.0, 0.0, 2.0, 1.0)), 0.0);
        assert_eq!(iou(&Xyxy::new(3.0, 3.0, 3.0, 3.0), &Xyxy::new(3.0, 3.0, 3.0, 3.0)), 0.0);
        assert_eq!(iou(&Xyxy::new(f32::NAN, 0.0, 1.0, 1.0), &Xyxy::new(f32::NAN, 0.0, 1.0, 1.0)), 0.0);
    }

    proptest! {
        #[test]
        fn overlap_is_symmetric_and_between_zero_and_one(a in any_box(), b in any_box()) {
            let value = iou(&a, &b);
            prop_assert!((0.0..=1.0 + 1e-5).contains(&value));
            prop_assert_eq!(value, iou(&b, &a));
        }

        #[test]
        fn a_box_overlaps_itself_wholly(a in any_box()) {
            prop_assert!((iou(&a, &a) - 1.0).abs() < 1e-5);
        }
    }
}
