//! How good a detector is: matching, average precision, operating point, and validation over a split.

pub mod ap;
pub mod matching;
pub mod val_set;
pub mod validate;

pub use ap::{ClassMetrics, Metrics};
pub use validate::{ValOptions, ValOutcome, Validator, validate};
