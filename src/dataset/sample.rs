//! The sample dataset: pictures of machined metal parts with scratches, dents and cracks, drawn from a seed.

use std::ops::ControlFlow;
use std::path::Path;

use super::open::DatasetError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    pub n_images: usize,
    /// Side of the square pictures in pixels.
    pub size: u32,
    pub seed: u64,
    /// Plants known label and image faults, listed in `FAULTS.md` beside data.yaml.
    pub broken: bool,
}

/// Writes the dataset into `out` (new or empty folder). The same options give the same bytes on every machine.
pub fn write_sample(
    out: &Path,
    options: &SampleOptions,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<(), DatasetError> {
    let _ = (out, options, check_in);
    todo!("sample")
}
