//! Drawing on pictures: boxes with a name tag, for annotated output.

use super::Picture;
use crate::geom::Xyxy;

/// A colour for each class, told apart also by colour-blind people; repeats after its length.
pub fn class_color(class: usize) -> [u8; 3] {
    let _ = class;
    todo!("media")
}

/// Draws a box outline and a tag with `text` above it (inside, where there is no room).
pub fn draw_box(picture: &mut Picture, bbox: Xyxy, color: [u8; 3], text: &str) {
    let _ = (picture, bbox, color, text);
    todo!("media")
}
