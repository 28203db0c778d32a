//! A box that reaches past the image: whether it may be cut at the edge, and what is left of it.
//!
//! In:  corners as fractions of the image, and the image's size where it is known.
//! Out: the corners inside, or why a person has to look at it.
//!
//! Shared by the readers of all formats, so that a box means the same wherever it was written. Pure; thresholds are our own.

use crate::geom::Size;
use crate::geom::Xywhn;

/// How far an edge may lie past the image without a word, as a fraction of it: what rounding centre and size to six
/// decimals can cost, and well above the rounding of f32.
pub(super) const EDGE_EPSILON: f64 = 1e-6;
/// An edge this little past the image is rounding, not a wrong box: a fraction of the image, or half a pixel.
const SPILL: f64 = 1e-4;
const SPILL_PIXELS: f64 = 0.5;
/// Cutting a box at the image's edge is safe when this much of its area stays, and so many pixels on each side.
const KEEP_AREA: f64 = 0.5;
const KEEP_PIXELS: f64 = 2.0;

/// Cuts x1, y1, x2, y2 at the image's edge where that is safe; the flag says that only rounding was cut off.
///
/// # Errors
/// Why a person has to look at it.
pub(super) fn clamp(edges: [f64; 4], size: Option<Size>) -> Result<([f64; 4], bool), String> {
    let [x1, y1, x2, y2] = edges;
    let inside = [x1.clamp(0.0, 1.0), y1.clamp(0.0, 1.0), x2.clamp(0.0, 1.0), y2.clamp(0.0, 1.0)];
    let (w, h) = (inside[2] - inside[0], inside[3] - inside[1]);
    let kept = (w * h) / ((x2 - x1) * (y2 - y1));
    if kept <= 0.0 || w <= 0.0 || h <= 0.0 {
        return Err("the box lies outside of the image".to_owned());
    }
    if kept < KEEP_AREA - 1e-6 {
        return Err(format!("only {:.0} % of the box lies inside the image", kept * 100.0));
    }
    let (past_x, past_y) = ((-x1).max(x2 - 1.0), (-y1).max(y2 - 1.0));
    let pixels = size.map(|size| (f64::from(size.width), f64::from(size.height)));
    let spill = (past_x <= SPILL && past_y <= SPILL)
        || pixels.is_some_and(|(width, height)| past_x * width <= SPILL_PIXELS && past_y * height <= SPILL_PIXELS);
    if !spill {
        let Some((width, height)) = pixels else {
            return Err("the box reaches past the image, whose size is not known".to_owned());
        };
        if w * width < KEEP_PIXELS || h * height < KEEP_PIXELS {
            return Err("less than 2 pixels of the box lie inside the image".to_owned());
        }
    }
    Ok((inside, spill))
}

pub(super) fn xywhn_from_edges([x1, y1, x2, y2]: [f64; 4]) -> Xywhn {
    Xywhn { cx: f64::midpoint(x1, x2) as f32, cy: f64::midpoint(y1, y2) as f32, w: (x2 - x1) as f32, h: (y2 - y1) as f32 }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const IMAGE: Option<Size> = Some(Size { width: 100, height: 200 });

    #[test]
    fn a_box_is_cut_when_half_of_it_and_two_pixels_stay() {
        assert_eq!(clamp([0.9, 0.5, 1.05, 0.6], IMAGE), Ok(([0.9, 0.5, 1.0, 0.6], false)));
        assert_eq!(clamp([0.9, -0.05, 1.0, 0.05], IMAGE), Ok(([0.9, 0.0, 1.0, 0.05], false)), "exactly half");
        for (edges, reason) in
            [([1.1, 0.5, 1.2, 0.6], "outside"), ([0.95, 0.5, 1.1, 0.6], "only 33 %"), ([0.985, 0.5, 1.008, 0.6], "less than 2 pixels")]
        {
            assert!(clamp(edges, IMAGE).unwrap_err().contains(reason), "{reason}");
        }
    }

    #[test]
    fn rounding_is_cut_however_small_the_box_is() {
        assert_eq!(clamp([0.99, 0.5, 1.004, 0.6], IMAGE), Ok(([0.99, 0.5, 1.0, 0.6], true)), "0.4 of a pixel");
        assert_eq!(clamp([0.9, 0.5, 1.00009, 0.6], None), Ok(([0.9, 0.5, 1.0, 0.6], true)), "of any image");
        assert!(clamp([0.9, 0.5, 1.004, 0.6], None).unwrap_err().contains("not known"));
    }
}
