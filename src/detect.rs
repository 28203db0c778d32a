//! Detection on pictures: letterbox, network, decode, suppression; sources and annotated output.

pub mod detector;
pub mod output;
pub mod source;

pub use detector::{DetectError, DetectOptions, Detector, PictureDetections};
