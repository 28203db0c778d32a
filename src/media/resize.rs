//! Resizing, equal to the last bit to what the published trainer gets from OpenCV.

use super::Picture;
use crate::geom::{Letterbox, Size};

/// Bilinear, pixel centres aligned; 8-bit fixed point as OpenCV's `INTER_LINEAR`.
pub fn resize_linear(picture: &Picture, size: Size) -> Picture {
    let _ = (picture, size);
    todo!("media")
}

/// Box average as OpenCV's `INTER_AREA`, for shrinking.
pub fn resize_area(picture: &Picture, size: Size) -> Picture {
    let _ = (picture, size);
    todo!("media")
}

/// Scales and pads with gray 114 as `letterbox` says.
pub fn apply_letterbox(picture: &Picture, letterbox: &Letterbox) -> Picture {
    let _ = (picture, letterbox);
    todo!("media")
}
