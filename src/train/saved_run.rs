//! What did an earlier run tell? Its run folder read back.
//!
//! In:  a run folder. Out: its plan, steps, epochs, notes and summary, and which dataset it was trained on.
//!
//! A run that was killed has no summary and may end in half a line; what is there is taken. Never changes the folder.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::event::{Divergence, EpochReport, StepReport, TrainEvent, TrainPlan, TrainSummary, ValReport};
use super::order::Steering;
use super::run_lock::RunLock;

/// A run as its folder holds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedRun {
    pub dir: PathBuf,
    /// data.yaml that it was trained on, as it was called then.
    pub data: Option<PathBuf>,
    pub epochs_wanted: usize,
    pub plan: Option<TrainPlan>,
    pub steps: Vec<StepReport>,
    pub epochs: Vec<EpochReport>,
    pub validations: Vec<ValReport>,
    pub divergence: Option<Divergence>,
    pub notes: Vec<String>,
    pub steering: Steering,
    pub summary: Option<TrainSummary>,
    /// Whether a process trains it.
    pub is_alive: bool,
    /// What was read of `events.jsonl`, up to its last whole line.
    pub events_len: u64,
}

/// The part of `run.yaml` that is read back here.
#[derive(Deserialize)]
struct Record {
    epochs: usize,
    data: PathBuf,
}

impl SavedRun {
    /// Whether a folder looks like a run.
    pub fn is_run(dir: &Path) -> bool {
        dir.join("events.jsonl").is_file()
    }

    /// Reads a run folder.
    ///
    /// # Errors
    /// `events.jsonl` cannot be read. Lines of it that say nothing known are passed over.
    pub fn read(dir: &Path) -> std::io::Result<Self> {
        let is_alive = RunLock::is_held(dir);
        let text = String::from_utf8_lossy(&fs::read(dir.join("events.jsonl"))?).into_owned();
        let events_len = text.rfind('\n').map_or(0, |at| at as u64 + 1);
        let mut run = Self { dir: dir.to_path_buf(), is_alive, events_len, ..Self::default() };
        for line in text.lines() {
            run.take_in(line);
        }
        // Run folders are moved; the weights lie where the folder is now.
        if let Some(summary) = &mut run.summary {
            summary.run_dir = dir.to_path_buf();
        }
        let record = fs::read_to_string(dir.join("run.yaml")).ok().and_then(|text| serde_saphyr::from_str::<Record>(&text).ok());
        let last_epoch = run.epochs.last().map_or(0, |epoch| epoch.epoch + 1);
        run.epochs_wanted = record.as_ref().map_or(last_epoch, |record| record.epochs);
        run.data = record.map(|record| record.data);
        Ok(run)
    }

    fn take_in(&mut self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { return };
        if value["event"] == "finished" {
            self.summary = serde_json::from_value(value).ok();
            return;
        }
        match TrainEvent::from_json(&value) {
            Some(TrainEvent::Plan(plan)) => self.plan = Some(plan),
            Some(TrainEvent::Step(step)) => self.steps.push(step),
            Some(TrainEvent::Epoch(epoch)) => self.epochs.push(epoch),
            Some(TrainEvent::Validated(report)) => self.validations.push(report),
            Some(TrainEvent::Diverged(divergence)) => self.divergence = Some(divergence),
            Some(TrainEvent::Steering(steering)) => self.steering = steering,
            Some(TrainEvent::Note(note)) => self.notes.push(note),
            Some(TrainEvent::Resumed { .. } | TrainEvent::Saved { .. } | TrainEvent::Progress { .. }) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::eval::Metrics;
    use crate::train::TrainEvent;

    #[test]
    fn what_a_run_wrote_is_read_back_up_to_half_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let step =
            StepReport { epoch: 0, step: 3, box_loss: 1.5, cls_loss: 2.0, dfl_loss: 0.5, lr: 0.01, grad_norm: 3.0, images_per_sec: 20.0 };
        let metrics = Metrics { map50: 0.5, ..Metrics::default() };
        let epoch =
            EpochReport { epoch: 0, box_loss: 1.0, cls_loss: 1.0, dfl_loss: 1.0, metrics: metrics.clone(), lr: [0.01; 3], secs: 2.0 };
        let summary = TrainSummary { run_dir: "elsewhere".into(), epochs_done: 1, stopped: false, best_epoch: 0, metrics, peak_bytes: 1 };
        let lines = [
            TrainEvent::Note("hello".into()).to_json(),
            TrainEvent::Step(step).to_json(),
            TrainEvent::Epoch(epoch.clone()).to_json(),
            summary.to_json(),
        ];
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        fs::write(dir.path().join("events.jsonl"), text.join("\n") + "\n{\"event\":\"st").unwrap();
        fs::write(dir.path().join("run.yaml"), "program: boxwright 0.1.0\nepochs: 7\ndata: /d/data.yaml\n").unwrap();

        let run = SavedRun::read(dir.path()).unwrap();
        assert_eq!((run.steps, run.epochs, run.notes), (vec![step], vec![epoch], vec!["hello".to_owned()]));
        assert_eq!((run.epochs_wanted, run.data), (7, Some(PathBuf::from("/d/data.yaml"))));
        assert_eq!(run.summary.unwrap().run_dir, dir.path());
        assert!(!SavedRun::is_run(&dir.path().join("weights")));
    }
}
