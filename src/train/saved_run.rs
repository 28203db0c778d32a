//! What did an earlier run tell? Its run folder read back.
//!
//! In:  a run folder. Out: its plan, steps, epochs, notes and summary, and which dataset it was trained on.
//!
//! A run that was killed has no summary and may end in half a line; what is there is taken. Never changes the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::event::{Divergence, EpochReport, Pace, StepReport, TrainEvent, TrainPlan, TrainSummary, ValReport};
use super::health::Alarm;
use super::machine::MachineReport;
use super::order::Steering;
use super::run_lock::RunLock;
use super::samples::EpochSamples;

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
    pub machine: Vec<MachineReport>,
    pub alarms: Vec<Alarm>,
    pub pace: Option<Pace>,
    /// Pictures of the first batches.
    pub batch_pictures: Vec<PathBuf>,
    /// Of the epochs, in order.
    pub samples: Vec<Arc<EpochSamples>>,
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
        match TrainEvent::from_json(&self.dir, &value) {
            Some(TrainEvent::Plan(plan)) => self.plan = Some(plan),
            Some(TrainEvent::Step(step)) => self.steps.push(step),
            Some(TrainEvent::Epoch(epoch)) => self.epochs.push(epoch),
            Some(TrainEvent::Validated(report)) => self.validations.push(report),
            Some(TrainEvent::Diverged(divergence)) => self.divergence = Some(divergence),
            Some(TrainEvent::Steering(steering)) => self.steering = steering,
            Some(TrainEvent::Note(note)) => self.notes.push(note),
            Some(TrainEvent::Machine(report)) => self.machine.push(report),
            Some(TrainEvent::Alarm(alarm)) => self.alarms.push(alarm),
            Some(TrainEvent::Pace(pace)) => self.pace = Some(pace),
            Some(TrainEvent::BatchPictures(paths)) => self.batch_pictures = paths,
            Some(TrainEvent::Samples(samples)) => self.samples.push(samples),
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
        let step = StepReport { step: 3, box_loss: 1.5, lr: 0.01, update_ratio: Some(0.5), n_skipped: 2, ..StepReport::default() };
        let metrics = Metrics { map50: 0.5, ..Metrics::default() };
        let epoch = EpochReport { box_loss: 1.0, metrics: metrics.clone(), lr: [0.01; 3], secs: 2.0, ..EpochReport::default() };
        let summary = TrainSummary { run_dir: "elsewhere".into(), epochs_done: 1, stopped: false, best_epoch: 0, metrics, peak_bytes: 1 };
        let pace = Pace { n_steps: 20, images_per_sec: 8.0, secs_per_epoch: 2.0, secs_left: 12.0 };
        let lines = [
            TrainEvent::Note("hello".into()).to_json(),
            TrainEvent::Step(step).to_json(),
            TrainEvent::Epoch(epoch.clone()).to_json(),
            TrainEvent::Pace(pace).to_json(),
            TrainEvent::BatchPictures(vec!["/elsewhere/report/train_batch0.jpg".into()]).to_json(),
            summary.to_json(),
        ];
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        fs::write(dir.path().join("events.jsonl"), text.join("\n") + "\n{\"event\":\"st").unwrap();
        fs::write(dir.path().join("run.yaml"), "program: boxwright 0.1.0\nepochs: 7\ndata: /d/data.yaml\n").unwrap();

        let run = SavedRun::read(dir.path()).unwrap();
        assert_eq!((run.steps, run.epochs, run.notes), (vec![step], vec![epoch], vec!["hello".to_owned()]));
        assert_eq!((run.epochs_wanted, run.data), (7, Some(PathBuf::from("/d/data.yaml"))));
        assert_eq!((run.pace, run.batch_pictures), (Some(pace), vec![dir.path().join("report/train_batch0.jpg")]));
        assert_eq!(run.summary.unwrap().run_dir, dir.path());
        assert!(!SavedRun::is_run(&dir.path().join("weights")));
    }
}
