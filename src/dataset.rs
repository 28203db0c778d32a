//! Labels on disk: where they are, what they say, what is wrong with them, and how they are changed without loss.

pub mod check;
pub mod convert;
pub mod data_yaml;
pub mod distribution;
mod edge;
pub mod edit;
pub mod facts;
pub mod fix;
mod journal;
pub mod label;
mod layout;
pub mod open;
pub mod parse;
pub mod query;
pub mod rule;
pub mod sample;
pub mod stats;
pub mod voc;

pub use label::{ClassId, Label, Polygon, Split};
pub use open::{Dataset, DatasetError, ImageEntry};
