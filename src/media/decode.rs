//! Reading picture files as the trainer sees them: 8 bits, RGB, EXIF orientation applied, alpha ignored, gray replicated.

use std::path::Path;

use super::{MediaError, Picture};
use crate::geom::Size;

/// File name endings that count as pictures, lower case.
pub const IMAGE_EXTENSIONS: [&str; 8] = ["bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp"];

/// Whether the file name ends like a picture (any case).
pub fn is_image_path(path: &Path) -> bool {
    let _ = path;
    todo!("media")
}

/// Decodes a whole picture.
pub fn decode(path: &Path) -> Result<Picture, MediaError> {
    let _ = path;
    todo!("media")
}

/// Width and height as displayed (orientation applied), from the header alone.
pub fn probe(path: &Path) -> Result<Size, MediaError> {
    let _ = path;
    todo!("media")
}
