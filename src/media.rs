//! Pixels: decoding and encoding of picture files, resizing, colour, drawing.

pub mod color;
pub mod decode;
pub mod draw;
pub mod encode;
pub mod resize;

use crate::geom::Size;

/// An 8-bit RGB picture, rows from the top, three bytes a pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub size: Size,
    pub rgb: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    #[error("cannot read {path}")]
    Io { path: String, source: std::io::Error },
    #[error("cannot decode {path}: {reason}")]
    Decode { path: String, reason: String },
    #[error("cannot write {path}")]
    Write { path: String, source: std::io::Error },
    #[error("cannot encode {path}: {reason}")]
    Encode { path: String, reason: String },
}
