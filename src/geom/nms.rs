//! Non-maximum suppression over the decoded output of one image.

use super::boxes::Xyxy;

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

/// Suppresses over `rows`: N rows of cx, cy, w, h, then one score a class (`4 + n_classes` numbers a row).
/// The result is sorted by score, descending; equal scores keep the order of rows.
pub fn nms(rows: &[f32], n_classes: usize, options: &NmsOptions) -> Vec<Detection> {
    let _ = (rows, n_classes, options);
    todo!("geom")
}
