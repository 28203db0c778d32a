//! Training: sample recipes, loader, schedules, optimizer, EMA, the loop, and the run folder.

pub mod batch_size;
pub mod composition;
pub mod config;
pub mod copy_paste;
pub mod dataset_print;
mod draws;
pub mod ema;
pub mod error;
pub mod event;
pub mod follow;
pub mod freeze;
pub mod hyp_choice;
pub mod image_weights;
pub mod loader;
pub mod loader_clock;
pub mod memory;
pub mod multi_scale;
#[cfg(test)]
mod options_tests;
pub mod order;
pub mod paint;
pub mod perspective;
pub mod progress;
pub mod recipe;
pub mod report;
pub mod reporter;
pub mod resume;
#[cfg(test)]
mod resume_tests;
pub mod run_folder;
pub mod run_lock;
pub mod run_record;
pub mod saved_run;
pub mod schedule;
pub mod setup;
pub mod state;
pub mod state_writer;
pub mod stepper;
pub mod train_set;
pub mod trainer;
#[cfg(test)]
mod trainer_tests;
pub mod truth_rows;

pub use config::{BatchChoice, Hyp, TrainConfig};
pub use error::TrainError;
pub use event::{Divergence, EpochReport, StepReport, TrainEvent, TrainPlan, TrainStage, TrainSummary, ValReport};
pub use hyp_choice::HypChoice;
pub use order::{Steering, TrainOrder};
pub use resume::{ResumeRequest, resume};
pub use saved_run::SavedRun;
pub use trainer::train;
