//! What is known of an image file without its pixels: size, orientation, bytes, when it was changed.
//!
//! Read from the file's header and its entry in the folder; a damaged picture may still have facts.

use crate::geom::Size;

/// Facts of one image file. All are zero or `None` until they were read, or where they cannot be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// As displayed: orientation applied.
    pub size: Option<Size>,
    /// EXIF orientation, 1 to 8; 0 until the header was read.
    pub orientation: u8,
    pub n_bytes: u64,
    /// When the file was last changed: nanoseconds since 1970 (UTC).
    pub modified_ns: i64,
}
