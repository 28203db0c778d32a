//! Pixels: decoding and encoding of picture files, resizing, colour, drawing.

mod baseline_jpeg;
pub mod chart;
pub mod color;
mod container;
pub mod decode;
pub mod draw;
pub mod encode;
pub mod fingerprint;
pub mod inspect;
mod reduced_jpeg;
pub mod resize;
pub mod warp;

#[cfg(test)]
mod golden {
    //! Reference pictures, which are BGR.

    use safetensors::SafeTensors;

    use super::Picture;
    use crate::geom::Size;

    pub(super) fn golden_picture(file: &SafeTensors<'_>, name: &str) -> Picture {
        let tensor = file.tensor(name).expect("the reference picture is in its file");
        let (height, width) = (tensor.shape()[0] as u32, tensor.shape()[1] as u32);
        let rgb = tensor.data().chunks_exact(3).flat_map(|bgr| [bgr[2], bgr[1], bgr[0]]).collect();
        Picture { size: Size::new(width, height), rgb }
    }
}

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
