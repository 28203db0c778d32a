//! What training tells while it runs; the same values are the lines of `events.jsonl`.
//!
//! Never prints or writes. Field names are those that the window, `--json` and `events.jsonl` share.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::order::Steering;
use super::saved_run::SavedRun;
use crate::eval::Metrics;

/// Known before the first step.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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
}

/// After a batch.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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
}

/// After an epoch and its validation.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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
            Self::Note(text) => json!({"event": "note", "text": text}),
        }
    }
}

impl TrainEvent {
    /// The event of a line of `events.jsonl`, if that is one that is kept there.
    pub fn from_json(line: &Value) -> Option<Self> {
        fn parse<T: serde::de::DeserializeOwned>(line: &Value) -> Option<T> {
            serde_json::from_value(line.clone()).ok()
        }
        match line["event"].as_str()? {
            "plan" => parse(line).map(Self::Plan),
            "step" => parse(line).map(Self::Step),
            "epoch" => parse(line).map(Self::Epoch),
            "validated" => parse(line).map(Self::Validated),
            "diverged" => parse(line).map(Self::Diverged),
            "steering" => parse(line).map(Self::Steering),
            // It holds to nothing that it was told before.
            "resumed" => Some(Self::Steering(Steering::default())),
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
    fn a_line_begins_with_its_event_and_holds_every_field() {
        let step =
            StepReport { epoch: 1, step: 17, box_loss: 1.5, cls_loss: 2.0, dfl_loss: 0.5, lr: 0.01, grad_norm: 3.0, images_per_sec: 20.0 };
        assert_eq!(
            TrainEvent::Step(step).to_json().to_string(),
            r#"{"event":"step","epoch":1,"step":17,"box_loss":1.5,"cls_loss":2.0,"dfl_loss":0.5,"lr":0.01,"grad_norm":3.0,"images_per_sec":20.0}"#
        );
        assert_eq!(TrainEvent::Note("a \"b\"".into()).to_json().to_string(), r#"{"event":"note","text":"a \"b\""}"#);
        let progress = TrainEvent::Progress { stage: TrainStage::Preparing, done: 1, total: 2 };
        assert_eq!(progress.to_json().to_string(), r#"{"event":"progress","stage":"preparing","done":1,"total":2}"#);
    }
}
