//! What training tells while it runs; the same values are the lines of `events.jsonl`.
//!
//! Never prints or writes. Field names are those that the window, `--json` and `events.jsonl` share.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::health::Alarm;
use super::machine::MachineReport;
use super::order::Steering;
use super::samples::EpochSamples;
use super::saved_run::SavedRun;
use crate::eval::Metrics;

/// Known before the first step.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TrainPlan {
    pub run_dir: PathBuf,
    pub n_train_images: usize,
    pub n_val_images: usize,
    pub n_labels: usize,
    pub steps_per_epoch: usize,
    #[serde(default)]
    pub epochs: usize,
    pub n_parameters: usize,
    /// Peak memory of the process while it trains, planned.
    pub planned_bytes: u64,
    /// Memory on the GPU, taken and planned; absent on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Images and rows that will not be used, with the reason.
    pub dropped: Vec<String>,
    /// Pictures of a batch; 0 in runs of earlier versions.
    #[serde(default)]
    pub batch: usize,
    /// Boxes of the train split by class, in the order of the classes.
    #[serde(default)]
    pub class_boxes: Vec<ClassBoxes>,
    /// Train images without a box.
    #[serde(default)]
    pub n_backgrounds: usize,
    /// Train images that cannot be used.
    #[serde(default)]
    pub n_broken: usize,
}

/// How many boxes a class has.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClassBoxes {
    pub name: String,
    pub n_boxes: usize,
}

/// How long it will take, told once after the first steps were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Pace {
    /// Steps that were measured; the first ones, which are slower, are not among them.
    pub n_steps: usize,
    pub images_per_sec: f32,
    /// Of the steps of an epoch, without its validation.
    pub secs_per_epoch: f64,
    /// Of all steps that are left.
    pub secs_left: f64,
}

/// Losses of one branch, with gains and the branch's weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BranchLosses {
    pub box_loss: f32,
    pub cls_loss: f32,
    pub dfl_loss: f32,
}

impl BranchLosses {
    pub fn sum(&self) -> f32 {
        self.box_loss + self.cls_loss + self.dfl_loss
    }
}

/// After a batch. What is optional or has a default is not in runs of earlier versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct StepReport {
    /// Counted from 0.
    pub epoch: usize,
    /// Counted from 0 since the start of training.
    pub step: usize,
    /// Means over the batch, with gains and the auxiliary branch's share.
    pub box_loss: f32,
    pub cls_loss: f32,
    pub dfl_loss: f32,
    /// Of the convolution weights.
    pub lr: f64,
    /// Of the accumulated gradient before clipping; of the last optimizer step where this batch made none.
    pub grad_norm: f32,
    pub images_per_sec: f32,
    /// The losses above by branch; a network without an auxiliary branch has none of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<BranchLosses>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aux: Option<BranchLosses>,
    /// Of the three optimizer groups.
    #[serde(default)]
    pub lrs: [f64; 3],
    /// Whether the last update had to shorten the gradient.
    #[serde(default)]
    pub clipped: bool,
    /// Norm of the last update over the norm of the weights that it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_ratio: Option<f32>,
    /// Share of the time since the step before that the training waited for pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_wait: Option<f32>,
    /// Updates that this process left out so far, because a gradient was not finite.
    #[serde(default)]
    pub n_skipped: usize,
}

/// After an epoch and its validation. What is optional or has a default is not in runs of earlier versions.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct EpochReport {
    /// Counted from 0.
    pub epoch: usize,
    /// Means over the epoch.
    pub box_loss: f32,
    pub cls_loss: f32,
    pub dfl_loss: f32,
    pub metrics: Metrics,
    /// Learning rate of the three optimizer groups.
    pub lr: [f64; 3],
    pub secs: f64,
    /// Means over the epoch, as in the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<BranchLosses>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aux: Option<BranchLosses>,
    /// Share of the updates whose gradient was shortened.
    #[serde(default)]
    pub clip_share: f32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_ratio: Option<f32>,
    /// Share of the steps' time that the training waited for pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_wait: Option<f32>,
    /// Over the steps of the epoch, without its validation.
    #[serde(default)]
    pub images_per_sec: f32,
    /// Updates of this epoch that were left out.
    #[serde(default)]
    pub n_skipped: usize,
}

/// After a validation that was asked for between two steps.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ValReport {
    /// Of the last step before it.
    pub epoch: usize,
    pub step: usize,
    pub metrics: Metrics,
}

/// Where the numbers of a run ceased to be numbers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Divergence {
    pub epoch: usize,
    pub step: usize,
    /// `loss` or `gradient norm`, and what it was: `NaN`, `inf`.
    pub what: String,
    pub value: String,
    /// Of the step's batch.
    pub images: Vec<PathBuf>,
}

/// At the end, also after a stop.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TrainSummary {
    pub run_dir: PathBuf,
    pub epochs_done: usize,
    pub stopped: bool,
    pub best_epoch: usize,
    /// Of the best weights.
    pub metrics: Metrics,
    pub peak_bytes: u64,
}

impl TrainSummary {
    /// The last line of `events.jsonl` and of `--json`.
    pub fn to_json(&self) -> Value {
        with_event("finished", json!(self))
    }
}

/// What takes long enough beside the steps to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainStage {
    /// Reading and decoding the pictures.
    Preparing,
    /// Choosing how a GPU computes each convolution; what was chosen is kept for later runs.
    Planning,
    Validating,
    /// Waiting for the order to go on.
    Paused,
    /// Steps of the overfit check.
    Overfitting,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TrainEvent {
    Plan(TrainPlan),
    Step(StepReport),
    Epoch(EpochReport),
    Validated(ValReport),
    /// An earlier run goes on after what is in `run`; `step` is the next one.
    Resumed {
        run: Box<SavedRun>,
        epoch: usize,
        step: usize,
    },
    /// The state up to before this step is on the disk; not kept in `events.jsonl`.
    Saved {
        step: usize,
    },
    /// The run is ended by it.
    Diverged(Divergence),
    /// An order was taken in.
    Steering(Steering),
    /// How far a stage between the steps is; not kept in `events.jsonl`.
    Progress {
        stage: TrainStage,
        done: u64,
        total: u64,
    },
    /// What the machine is doing, about every second.
    Machine(MachineReport),
    /// Something about the run is not as it was, or not as it should be; told once when it begins.
    Alarm(Alarm),
    Pace(Pace),
    /// Pictures of the first batches, as they are learnt, were written to these files.
    BatchPictures(Vec<PathBuf>),
    /// What the averaged network finds on some pictures of the val split, after an epoch.
    Samples(Arc<EpochSamples>),
    /// Something worth telling that does not stop the run.
    Note(String),
}

impl TrainEvent {
    /// One line of `events.jsonl` and of `--json`: an object with `"event"` first.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Plan(plan) => with_event("plan", json!(plan)),
            Self::Step(step) => with_event("step", json!(step)),
            Self::Epoch(epoch) => with_event("epoch", json!(epoch)),
            Self::Resumed { run, epoch, step } => {
                json!({"event": "resumed", "run_dir": run.dir, "epochs": run.epochs_wanted, "epoch": epoch, "step": step})
            }
            Self::Saved { step } => json!({"event": "saved", "step": step}),
            Self::Validated(report) => with_event("validated", json!(report)),
            Self::Diverged(divergence) => with_event("diverged", json!(divergence)),
            Self::Steering(steering) => with_event("steering", json!(steering)),
            Self::Progress { stage, done, total } => json!({"event": "progress", "stage": stage, "done": done, "total": total}),
            Self::Machine(machine) => with_event("machine", json!(machine)),
            Self::Alarm(alarm) => with_event("alarm", json!(alarm)),
            Self::Pace(pace) => with_event("pace", json!(pace)),
            Self::BatchPictures(paths) => {
                json!({"event": "batch_pictures", "paths": paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>()})
            }
            // The boxes are in a file of the run folder.
            Self::Samples(samples) => json!({"event": "samples", "epoch": samples.epoch, "images": samples.images.len()}),
            Self::Note(text) => json!({"event": "note", "text": text}),
        }
    }
}

impl TrainEvent {
    /// The event of a line of `events.jsonl` in a run folder, if that is one that is kept there.
    pub fn from_json(run_dir: &Path, line: &Value) -> Option<Self> {
        fn parse<T: serde::de::DeserializeOwned>(line: &Value) -> Option<T> {
            serde_json::from_value(line.clone()).ok()
        }
        match line["event"].as_str()? {
            // Run folders are moved, and other processes may name them from elsewhere: everything lies where the folder is now.
            "plan" => parse(line).map(|plan| Self::Plan(TrainPlan { run_dir: run_dir.to_owned(), ..plan })),
            "step" => parse(line).map(Self::Step),
            "epoch" => parse(line).map(Self::Epoch),
            "validated" => parse(line).map(Self::Validated),
            "diverged" => parse(line).map(Self::Diverged),
            "steering" => parse(line).map(Self::Steering),
            // It holds to nothing that it was told before.
            "resumed" => Some(Self::Steering(Steering::default())),
            "machine" => parse(line).map(Self::Machine),
            "alarm" => parse(line).map(Self::Alarm),
            "pace" => parse(line).map(Self::Pace),
            "batch_pictures" => {
                let paths: Vec<PathBuf> = serde_json::from_value(line["paths"].clone()).ok()?;
                let names = paths.iter().filter_map(|path| path.file_name());
                Some(Self::BatchPictures(names.map(|name| run_dir.join("report").join(name)).collect()))
            }
            "samples" => EpochSamples::read(run_dir, parse(&line["epoch"])?).map(|samples| Self::Samples(Arc::new(samples))),
            "note" => line["text"].as_str().map(|text| Self::Note(text.to_owned())),
            _ => None,
        }
    }
}

fn with_event(name: &str, fields: Value) -> Value {
    let mut line = serde_json::Map::new();
    line.insert("event".into(), name.into());
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let step = r#"{"event":"step","epoch":1,"step":17,"box_loss":1.5,"cls_loss":2.0,"dfl_loss":0.5,"lr":0.01,"grad_norm":3.0,"images_per_sec":20.0}"#;
        let step: StepReport = serde_json::from_str(step).expect("a step");
        assert_eq!((step.step, step.main, step.update_ratio, step.n_skipped), (17, None, None, 0));
        let plan = r#"{"event":"plan","run_dir":"r","n_train_images":3,"n_val_images":1,"n_labels":4,"steps_per_epoch":2,"n_parameters":5,"planned_bytes":6,"dropped":[]}"#;
        let plan: TrainPlan = serde_json::from_str(plan).expect("a plan");
        assert_eq!((plan.n_labels, plan.batch, plan.class_boxes.len()), (4, 0, 0));
    }

    #[test]
    fn a_line_begins_with_its_event_and_holds_every_field() {
        let main = Some(BranchLosses { box_loss: 1.0, cls_loss: 1.5, dfl_loss: 0.25 });
        let step = StepReport { epoch: 1, step: 17, box_loss: 1.5, lr: 0.01, grad_norm: 3.0, main, clipped: true, ..StepReport::default() };
        assert_eq!(
            TrainEvent::Step(step).to_json().to_string(),
            concat!(
                r#"{"event":"step","epoch":1,"step":17,"box_loss":1.5,"cls_loss":0.0,"dfl_loss":0.0,"lr":0.01,"grad_norm":3.0,"#,
                r#""images_per_sec":0.0,"main":{"box_loss":1.0,"cls_loss":1.5,"dfl_loss":0.25},"lrs":[0.0,0.0,0.0],"clipped":true,"n_skipped":0}"#
            )
        );
        assert_eq!(TrainEvent::Note("a \"b\"".into()).to_json().to_string(), r#"{"event":"note","text":"a \"b\""}"#);
        let progress = TrainEvent::Progress { stage: TrainStage::Preparing, done: 1, total: 2 };
        assert_eq!(progress.to_json().to_string(), r#"{"event":"progress","stage":"preparing","done":1,"total":2}"#);
    }
}
