//! Detection on pictures: letterbox, network, decode, suppression; sources and annotated output.

pub mod detector;
pub mod error;
pub mod output;
pub mod source;

pub use detector::{DetectOptions, Detector, PictureDetections};
pub use error::DetectError;
pub use output::OutputFolder;
pub use source::Source;
