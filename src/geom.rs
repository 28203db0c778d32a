//! Boxes and the spaces they live in: pure arithmetic, no pixels, no files.

pub mod boxes;
pub mod iou;
pub mod letterbox;
pub mod nms;

pub use boxes::{Size, Xywhn, Xyxy};
pub use letterbox::Letterbox;
