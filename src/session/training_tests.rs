//! A training that is steered through one session and watched by another, as a window does with a run of the command line.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::command::Command;
use super::event::{CommandDone, Event};
use super::job::JobKind;
use super::{RunView, Session, Settings};
use crate::dataset::sample::{SampleOptions, write_sample};
use crate::media::Picture;
use crate::train::{BatchChoice, ResumeRequest, Steering, TrainConfig, TrainEvent, TrainOrder};
use crate::train::{SweepAxis, SweepRequest};
use crate::yolo::{Model, ModelSize};

fn session() -> Session {
    Session::new(Settings::default(), Arc::new(|| {}))
}

/// Waits for events until one is `wanted`, and returns the run as it is then.
fn until(session: &mut Session, wanted: impl Fn(&Event, &RunView) -> bool) -> RunView {
    let none = RunView::default();
    loop {
        let event = session.wait().expect("the event comes before the last job ends");
        assert!(!matches!(event, Event::Failed { .. }), "{event:?}");
        if wanted(&event, session.run.as_ref().unwrap_or(&none)) {
            return session.run.clone().unwrap_or_default();
        }
    }
}

fn config(root: &Path) -> TrainConfig {
    TrainConfig {
        model: Model::single(ModelSize::T),
        epochs: 3,
        batch: BatchChoice::Count(4),
        imgsz: 64,
        project: root.join("runs"),
        ..TrainConfig::new(&root.join("parts"))
    }
}

/// A few pictures that are quick to train on.
fn write_parts(root: &Path) {
    let sample = SampleOptions { n_images: 10, size: 96, ..SampleOptions::default() };
    write_sample(&root.join("parts"), &sample, &|_, _| ControlFlow::Continue(())).unwrap();
}

#[test]
fn a_run_is_paused_here_followed_there_and_goes_on_after_its_end() {
    let root = tempfile::tempdir().unwrap();
    write_parts(root.path());
    let dir = root.path().join("runs/train");

    let mut ours = session();
    ours.apply(Command::Steer(TrainOrder::Pause));
    assert_eq!(ours.notices.len(), 1, "there is nothing to steer yet");
    ours.apply(Command::Train(Box::new(config(root.path()))));
    ours.apply(Command::Steer(TrainOrder::Pause));
    let run = until(&mut ours, |event, run| run.steering.paused && matches!(event, Event::Train(TrainEvent::Saved { .. })));
    assert_eq!((run.dir.as_deref(), run.is_followed, run.steps.len()), (Some(dir.as_path()), false, 0));

    let mut other = session();
    other.apply(Command::Open(dir.clone()));
    let run = until(&mut other, |event, _| matches!(event, Event::Finished { done: CommandDone::Opened, .. }));
    assert!(run.is_followed && run.steering.paused && run.summary.is_none());
    assert!(other.is_running(JobKind::Follow));

    ours.apply(Command::Steer(TrainOrder::Continue));
    ours.apply(Command::Steer(TrainOrder::StopAfterEpoch));
    let run = until(&mut other, |_, run| run.epochs.len() == 1);
    assert_eq!((run.steps.len(), run.steering), (2, Steering { paused: false, stops_after_epoch: true }));
    let ended = until(&mut ours, |event, _| matches!(event, Event::Finished { done: CommandDone::Trained(_), .. }));
    assert_eq!(ended.summary.as_ref().map(|summary| (summary.epochs_done, summary.stopped)), Some((1, true)));
    let seen = until(&mut other, |event, _| matches!(event, Event::Finished { done: CommandDone::Followed, .. }));
    assert_eq!((seen.is_followed, seen.summary.map(|summary| summary.epochs_done), &seen.steps), (false, Some(1), &ended.steps));

    let project = root.path().join("runs");
    let request = ResumeRequest { run: None, project, data: None, epochs: None, device: None, patience: None, lr_scale: None };
    ours.apply(Command::Resume(Box::new(request)));
    let run = until(&mut ours, |event, _| matches!(event, Event::Finished { done: CommandDone::Trained(_), .. }));
    assert_eq!((run.epochs_wanted, run.epochs.len(), run.steps.len(), run.is_followed), (3, 3, 6, false));
    assert_eq!(run.steps[..2], ended.steps[..]);
}

#[test]
fn each_run_of_a_sweep_has_its_own_epochs_and_its_end_is_known() {
    let root = tempfile::tempdir().unwrap();
    write_parts(root.path());
    let mut session = session();
    let axes = vec![SweepAxis::parse("epochs=1,2").unwrap()];
    let request = SweepRequest { base: config(root.path()), axes, random: None, seed: 0 };
    session.apply(Command::Sweep(Box::new(request)));
    for n_epochs in [1, 2] {
        let run = until(&mut session, |event, _| matches!(event, Event::Train(TrainEvent::Step(_))));
        assert_eq!((run.epochs_wanted, run.summary), (n_epochs, None));
        let run = until(&mut session, |event, _| matches!(event, Event::SweepRow { .. }));
        assert_eq!(run.summary.map(|summary| (summary.epochs_done, summary.stopped)), Some((n_epochs, false)));
        let weights = root.path().join(format!("runs/train-0{n_epochs}/weights/best.safetensors"));
        assert_eq!(session.weights.as_ref(), Some(&weights));
    }
    let run = until(&mut session, |event, _| matches!(event, Event::Finished { done: CommandDone::Swept { .. }, .. }));
    assert_eq!((session.sweep.len(), run.summary.is_some()), (2, true));
}

#[test]
fn opening_a_dataset_puts_away_what_was_made_of_the_one_before() {
    let root = tempfile::tempdir().unwrap();
    write_parts(root.path());
    let mut session = Session::new(Settings::in_dir(&root.path().join("state")), Arc::new(|| {}));
    session.apply(Command::OverfitCheck { config: Box::new(config(root.path())), n_steps: 1 });
    until(&mut session, |event, _| matches!(event, Event::Finished { .. }));
    assert!(session.overfit.is_some());
    session.batches = Arc::new(vec![Picture { size: crate::geom::Size::new(1, 1), rgb: vec![0; 3] }]);
    session.apply(Command::Open(root.path().join("parts")));
    until(&mut session, |event, _| matches!(event, Event::Finished { .. }));
    assert!(session.dataset.is_some() && session.overfit.is_none() && session.batches.is_empty());
}
