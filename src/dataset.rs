//! Labels on disk: where they are, what they say, what is wrong with them, and how they are changed without loss.

pub mod check;
pub mod class_edit;
pub mod convert;
pub mod data_yaml;
mod dataset_check;
pub mod distribution;
mod duplicates;
mod edge;
pub mod edit;
pub mod edit_files;
pub mod facts;
pub mod fix;
pub mod formats;
pub mod image_check;
pub mod index;
mod journal;
pub mod label;
mod label_rows;
mod layout;
mod leakage;
pub mod ledger;
pub mod open;
pub mod parse;
pub mod query;
mod replace;
pub mod report;
pub mod rule;
pub mod sample;
mod splice;
pub mod split;
pub mod stats;
pub mod voc;
mod voc_rows;
mod yaml_text;

pub use label::{ClassId, Label, Polygon, Split};
pub use open::{Dataset, DatasetError, ImageEntry};
