//! Writing picture files; atomic (temporary name, then rename).

use std::path::Path;

use super::{MediaError, Picture};

/// Writes JPEG, PNG or another format by the ending of `path`; `quality` (1 to 100) matters for JPEG.
pub fn encode(path: &Path, picture: &Picture, quality: u8) -> Result<(), MediaError> {
    let _ = (path, picture, quality);
    todo!("media")
}
