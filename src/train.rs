//! Training: sample recipes, loader, schedules, optimizer, EMA, the loop, and the run folder.

pub mod batch_size;
mod beside;
pub mod composition;
pub mod config;
pub mod copy_paste;
pub mod dataset_print;
mod draws;
pub mod ema;
pub mod error;
pub mod event;
#[cfg(test)]
mod figures_tests;
pub mod follow;
pub mod freeze;
#[cfg(feature = "cuda")]
pub mod gpu_samples;
pub mod health;
#[cfg(test)]
mod health_tests;
pub mod hyp_choice;
pub mod image_weights;
pub mod live;
pub mod loader;
pub mod loader_clock;
pub mod machine;
pub mod memory;
pub mod memory_watch;
pub mod multi_scale;
#[cfg(test)]
mod options_tests;
pub mod order;
pub mod overfit;
pub mod paint;
pub mod past_runs;
pub mod perspective;
pub mod preview;
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
pub mod samples;
pub mod saved_run;
pub mod schedule;
pub mod setup;
pub mod state;
pub mod state_writer;
pub mod stepper;
pub mod sweep;
pub mod train_set;
pub mod trainer;
#[cfg(test)]
mod trainer_tests;
pub mod truth_rows;

pub use config::{BatchChoice, Hyp, TrainConfig};
pub use error::TrainError;
pub use event::{
    BranchLosses, ClassBoxes, Divergence, EpochReport, Pace, StepReport, TrainEvent, TrainPlan, TrainStage, TrainSummary, ValReport,
};
pub use health::{Alarm, AlarmKind};
pub use hyp_choice::HypChoice;
pub use machine::MachineReport;
pub use order::{Steering, TrainOrder};
pub use overfit::{OverfitReport, OverfitVerdict};
pub use past_runs::{ComparedRun, PastRun};
pub use resume::{ResumeRequest, resume};
pub use samples::{EpochSamples, SampleBox, SampleImage};
pub use saved_run::SavedRun;
pub use sweep::{SweepAxis, SweepRequest, SweepRow};
pub use trainer::train;
