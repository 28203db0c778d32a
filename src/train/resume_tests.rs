//! Runs that are stopped, killed, damaged and go on: what they end with is what the undisturbed run ends with, bit for bit.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;

use crossbeam_channel::bounded;
use crossbeam_channel::never;
use serde_json::Value;

use super::config::BatchChoice;
use super::config::Hyp;
use super::config::OptimizerKind;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainStage;
use super::event::TrainSummary;
use super::hyp_choice::HypChoice;
use super::order::Steering;
use super::order::TrainOrder;
use super::resume::ResumeRequest;
use super::resume::resume;
use super::saved_run::SavedRun;
use super::state::Generation;
use super::trainer::begin;
use super::trainer::go;
use super::trainer::train;
use super::trainer_tests::write_dataset;
use crate::yolo::Model;
use crate::yolo::ModelSize;
use crate::yolo::weights;

/// Three epochs of two steps; gradients are accumulated over three of them once the short warm-up is over.
fn config(root: &Path, name: &str, optimizer: OptimizerKind) -> TrainConfig {
    let hyp = Hyp { optimizer, nominal_batch: 6, warmup_epochs: 0.0, warmup_min_batches: 2, ..Hyp::small_data() };
    TrainConfig {
        model: Model::single(ModelSize::T),
        epochs: 3,
        batch: BatchChoice::Count(2),
        imgsz: 64,
        project: root.join("runs"),
        name: name.into(),
        hyp: HypChoice::Given(Box::new(hyp)),
        seed: 1,
        allow_broken: true,
        ..TrainConfig::new(&root.join("data.yaml"))
    }
}

fn request(dir: &Path) -> ResumeRequest {
    ResumeRequest {
        run: Some(dir.to_owned()),
        project: "runs".into(),
        data: None,
        epochs: None,
        device: None,
        patience: None,
        lr_scale: None,
    }
}

fn to_the_end(request: &ResumeRequest) -> Result<(TrainSummary, Vec<TrainEvent>), TrainError> {
    let mut events = Vec::new();
    let summary = resume(request, &never(), &mut |event| {
        events.push(event);
        ControlFlow::Continue(())
    })?;
    Ok((summary, events))
}

/// What must not depend on interruptions: weights, figures by epoch, and losses by step.
fn results(dir: &Path) -> (Vec<Vec<u8>>, String, Vec<String>) {
    let weights = ["last", "best"].map(|name| fs::read(dir.join(format!("weights/{name}.safetensors"))).unwrap());
    let events = fs::read_to_string(dir.join("events.jsonl")).unwrap();
    let steps = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|line| line["event"] == "step");
    let steps = steps.map(|step| format!("{} {} {} {} {}", step["epoch"], step["step"], step["box_loss"], step["lr"], step["grad_norm"]));
    (weights.into(), fs::read_to_string(dir.join("results.csv")).unwrap(), steps.collect())
}

fn undisturbed(config: &TrainConfig) -> (Vec<Vec<u8>>, String, Vec<String>) {
    let summary = train(config, &never(), &mut |_| ControlFlow::Continue(())).unwrap();
    let results = results(&summary.run_dir);
    assert_eq!((results.1.lines().count(), results.2.len()), (4, 6));
    results
}

/// Stops after each number of steps in turn, and goes on. A GPU, which is a step ahead, ends a step later than it was asked to.
fn stopped_again_and_again(config: &TrainConfig, steps: &[usize]) -> PathBuf {
    let mut dir: Option<PathBuf> = None;
    for n_steps in steps {
        let mut left = *n_steps;
        let mut sink = |event| {
            left = left.saturating_sub(usize::from(matches!(event, TrainEvent::Step(_))));
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let summary = match &dir {
            None => train(config, &never(), &mut sink),
            Some(dir) => resume(&request(dir), &never(), &mut sink),
        };
        let summary = summary.unwrap();
        assert!(summary.stopped);
        dir = Some(summary.run_dir);
    }
    let dir = dir.unwrap();
    assert!(!to_the_end(&request(&dir)).unwrap().0.stopped);
    dir
}

#[test]
fn a_run_that_is_stopped_after_any_step_ends_as_if_it_had_not_been() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
        let expected = undisturbed(&config(root.path(), "whole", optimizer));
        // The last two stops are at the end of an epoch, before it is validated; the last one at the end of all.
        let dir = stopped_again_and_again(&config(root.path(), "stopped", optimizer), &[1, 2, 1, 2]);
        assert!(results(&dir) == expected, "{optimizer:?}: {:?} instead of {:?}", results(&dir).2, expected.2);
    }
}

#[test]
fn an_epoch_that_is_validated_beside_the_next_changes_no_result() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let config = |name| TrainConfig { epochs: 5, save_period: 2, ..config(root.path(), name, OptimizerKind::AdamW) };
    let expected = train(&config("whole"), &never(), &mut |_| ControlFlow::Continue(())).unwrap();
    // To the end, and stopped while an epoch may still be validated.
    for n_steps in [usize::MAX, 5, 7] {
        let mut left = n_steps;
        let mut sink = |event| {
            left = left.saturating_sub(usize::from(matches!(event, TrainEvent::Step(_))));
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut begun = begin(&config("beside"), &mut sink).unwrap();
        begun.setup.validates_beside = true;
        let summary = go(begun, &never(), &mut sink).unwrap();
        assert_eq!(summary.stopped, n_steps < 10);
        if summary.stopped {
            assert_eq!(summary.epochs_done, n_steps / 2);
            to_the_end(&request(&summary.run_dir)).unwrap();
        }
        assert!(results(&summary.run_dir) == results(&expected.run_dir), "{n_steps}");
        assert_eq!(fs::read_dir(summary.run_dir.join("weights")).unwrap().count(), 4, "last, best and two epochs");
        for epoch in ["weights/epoch1.safetensors", "weights/epoch3.safetensors"] {
            assert!(fs::read(summary.run_dir.join(epoch)).unwrap() == fs::read(expected.run_dir.join(epoch)).unwrap(), "{n_steps} {epoch}");
        }
    }
}

#[test]
fn samples_that_depend_on_validations_and_sizes_that_change_go_on_the_same() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let config = |name| {
        let plain = config(root.path(), name, OptimizerKind::AdamW);
        TrainConfig { image_weights: true, multi_scale: true, close_mosaic: 1, ..plain }
    };
    let expected = undisturbed(&config("whole"));
    let dir = stopped_again_and_again(&config("stopped"), &[2, 1, 2]);
    assert!(results(&dir) == expected, "{:?} instead of {:?}", results(&dir).2, expected.2);
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        // A file that is being written may be renamed meanwhile, as at a kill.
        let Ok(entry) = entry else { continue };
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(target).unwrap();
        } else {
            fs::copy(entry.path(), target).ok();
        }
    }
}

#[test]
fn a_run_that_is_killed_anywhere_ends_as_if_it_had_not_been() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let config = config(root.path(), "exp", OptimizerKind::AdamW);
    let dir = root.path().join("runs/exp");
    let (sender, orders) = bounded(16);
    // What a kill would leave after each step: before the first state, after one, with older and newer ones.
    let mut copies = Vec::new();
    train(&config, &orders, &mut |event| {
        if let TrainEvent::Step(step) = event {
            if step.step % 2 == 0 {
                sender.send(TrainOrder::SaveNow).unwrap();
            }
            copies.push(root.path().join(format!("killed{}", step.step)));
            copy(&dir, copies.last().unwrap());
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let expected = results(&dir);
    for copy in &copies {
        let (summary, events) = to_the_end(&request(copy)).unwrap();
        assert_eq!(summary.run_dir, *copy);
        let TrainEvent::Resumed { run, step, .. } = events.iter().find(|event| !matches!(event, TrainEvent::Progress { .. })).unwrap()
        else {
            panic!("{:?}", events[0])
        };
        assert_eq!(run.steps.len(), *step, "what is told to have been is before the step that comes");
        assert!(results(copy) == expected, "{}: {:?} instead of {:?}", copy.display(), results(copy).2, expected.2);
    }
}

#[test]
fn of_a_damaged_state_the_one_before_is_taken_and_none_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let expected = undisturbed(&config(root.path(), "whole", OptimizerKind::AdamW));
    let (sender, orders) = bounded(16);
    let summary = train(&config(root.path(), "exp", OptimizerKind::AdamW), &orders, &mut |event| {
        if let TrainEvent::Step(step) = event {
            sender.send(if step.step == 2 { TrainOrder::Stop } else { TrainOrder::SaveNow }).unwrap();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let dir = summary.run_dir;
    let (last, previous) = (Generation::Last.path(&dir), Generation::Previous.path(&dir));
    let whole = fs::read(&last).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let both = root.path().join("both");
    for damaged in [&whole[..whole.len() - 1], &whole[..7], &flipped[..]] {
        let copy_dir = tempfile::tempdir_in(root.path()).unwrap().keep();
        copy(&dir, &copy_dir);
        fs::write(Generation::Last.path(&copy_dir), damaged).unwrap();
        let (_, events) = to_the_end(&request(&copy_dir)).unwrap();
        assert!(events.iter().any(|event| matches!(event, TrainEvent::Note(note) if note.contains("last.safetensors cannot be used"))));
        assert!(results(&copy_dir) == expected);
    }
    copy(&dir, &both);
    for generation in [Generation::Last, Generation::Previous] {
        fs::write(generation.path(&both), b"no state").unwrap();
    }
    let before = results(&both);
    let error = to_the_end(&request(&both)).unwrap_err();
    assert!(matches!(error, TrainError::State { .. }) && error.hint().is_some(), "{error}");
    assert!(results(&both) == before, "a refusal changes nothing");
    // Between the two renames there is no last one.
    fs::remove_file(&last).unwrap();
    assert!(previous.exists());
    to_the_end(&request(&dir)).unwrap();
    assert!(results(&dir) == expected);
}

#[test]
fn a_state_that_cannot_be_written_is_an_error_and_costs_no_older_one() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let expected = undisturbed(&config(root.path(), "whole", OptimizerKind::Sgd));
    let dir = root.path().join("runs/exp");
    let (sender, orders) = bounded(16);
    let error = train(&config(root.path(), "exp", OptimizerKind::Sgd), &orders, &mut |event| {
        match event {
            TrainEvent::Step(step) if step.step == 0 => sender.send(TrainOrder::SaveNow).unwrap(),
            TrainEvent::Step(step) if step.step == 1 => {
                // As if the disk were full: nothing can be written there.
                fs::rename(dir.join("state"), dir.join("aside")).unwrap();
                fs::write(dir.join("state"), "").unwrap();
                sender.send(TrainOrder::SaveNow).unwrap();
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(matches!(error, TrainError::Write { .. }) && error.hint().is_some(), "{error}");
    fs::remove_file(dir.join("state")).unwrap();
    fs::rename(dir.join("aside"), dir.join("state")).unwrap();
    to_the_end(&request(&dir)).unwrap();
    assert!(results(&dir) == expected);
}

#[test]
fn what_cannot_go_on_is_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let refused = |request: &ResumeRequest| {
        let error = to_the_end(request).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        error
    };
    let newest = ResumeRequest { run: None, project: root.path().join("runs"), ..request(root.path()) };
    assert!(matches!(refused(&newest), TrainError::NoRun { .. }));
    let config = TrainConfig { epochs: 1, ..config(root.path(), "exp", OptimizerKind::Sgd) };
    let dir = train(&config, &never(), &mut |_| ControlFlow::Continue(())).unwrap().run_dir;
    assert!(matches!(refused(&request(&dir)), TrainError::Finished { epochs: 1, .. }));
    assert!(matches!(refused(&ResumeRequest { lr_scale: Some(0.0), ..request(&dir) }), TrainError::LrScale { .. }));
    let more = ResumeRequest { epochs: Some(2), ..newest };

    let label = root.path().join("labels/train/1.txt");
    let before = fs::read(&label).unwrap();
    fs::write(&label, "0 0.5 0.5 0.1 0.1\n").unwrap();
    let error = refused(&more);
    assert!(
        matches!(error, TrainError::DatasetChanged { .. }) && error.to_string().contains("labels (such as images/train/1.png)"),
        "{error}"
    );
    fs::write(&label, before).unwrap();

    // Another process trains it: here the same one, from inside.
    let mut inner = None;
    let summary = resume(&more, &never(), &mut |event| {
        if matches!(event, TrainEvent::Step(_)) {
            inner = Some(to_the_end(&request(&dir)).unwrap_err());
            assert!(SavedRun::read(&dir).unwrap().is_alive);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(matches!(inner, Some(TrainError::InUse { .. })), "{inner:?}");
    assert_eq!((summary.epochs_done, SavedRun::read(&dir).unwrap().is_alive), (2, false));
}

#[test]
fn a_finished_run_goes_on_to_more_epochs_and_tells_its_learning_rate() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let config = TrainConfig { noval: true, save_period: 2, ..config(root.path(), "exp", OptimizerKind::Sgd) };
    let dir = train(&config, &never(), &mut |_| ControlFlow::Continue(())).unwrap().run_dir;
    assert!(dir.join("weights/epoch1.safetensors").is_file() && !dir.join("weights/epoch2.safetensors").exists());
    let first = results(&dir);
    let (summary, events) = to_the_end(&ResumeRequest { epochs: Some(5), ..request(&dir) }).unwrap();
    assert_eq!((summary.epochs_done, summary.stopped), (5, false));
    assert!(events.iter().any(|event| matches!(event, TrainEvent::Note(note) if note.contains("the learning rate was"))));
    let (_, figures, steps) = results(&dir);
    assert_eq!((figures.lines().count(), steps.len()), (6, 10));
    assert!(figures.starts_with(&first.1) && steps.starts_with(&first.2));
    let run = SavedRun::read(&dir).unwrap();
    assert_eq!((run.epochs_wanted, run.epochs.len(), run.summary.map(|summary| summary.epochs_done)), (5, 5, Some(5)));
    // Without validations in between only the last epoch has figures.
    assert!(run.epochs.iter().all(|epoch| (epoch.metrics.n_images > 0) == (epoch.epoch == 2 || epoch.epoch == 4)));
}

#[test]
fn orders_are_carried_out_between_two_steps() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let expected = undisturbed(&config(root.path(), "whole", OptimizerKind::AdamW));
    let (sender, orders) = bounded(16);
    let order = |order| sender.send(order).unwrap();
    let mut told = Vec::new();
    let summary = train(&config(root.path(), "exp", OptimizerKind::AdamW), &orders, &mut |event| {
        match &event {
            TrainEvent::Step(step) if step.step == 0 => order(TrainOrder::Pause),
            TrainEvent::Progress { stage: TrainStage::Paused, done: 1, total: 6 } if !told.contains(&"asked") => {
                told.push("asked");
                order(TrainOrder::ValidateNow);
            }
            TrainEvent::Validated(report) => {
                assert_eq!((report.epoch, report.step, report.metrics.n_images), (0, 0, 2));
                told.push("validated");
                order(TrainOrder::Continue);
                order(TrainOrder::StopAfterEpoch);
            }
            TrainEvent::Step(_) => told.push("step"),
            TrainEvent::Saved { step } => told.push(if *step == 1 { "saved in the pause" } else { "saved at the end" }),
            TrainEvent::Steering(Steering { paused: true, .. }) => told.push("paused"),
            TrainEvent::Steering(Steering { stops_after_epoch: true, .. }) => told.push("stops after the epoch"),
            TrainEvent::Steering(_) => told.push("goes on"),
            TrainEvent::Epoch(_) => told.push("epoch"),
            _ => {}
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let story =
        ["paused", "saved in the pause", "asked", "validated", "goes on", "stops after the epoch", "step", "epoch", "saved at the end"];
    assert_eq!(told, story);
    assert_eq!((summary.epochs_done, summary.stopped), (1, true));
    to_the_end(&request(&summary.run_dir)).unwrap();
    assert!(results(&summary.run_dir) == expected, "validating and pausing change nothing");
}

#[test]
fn a_run_that_diverged_names_its_pictures_and_goes_on_with_a_lower_rate() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let hyp = Hyp { lr0: 1e20, warmup_epochs: 0.0, warmup_min_batches: 0, ..Hyp::small_data() };
    let config = TrainConfig { hyp: HypChoice::Given(Box::new(hyp)), ..config(root.path(), "exp", OptimizerKind::AdamW) };
    let mut diverged = None;
    let error = train(&config, &never(), &mut |event| {
        if let TrainEvent::Diverged(divergence) = event {
            diverged = Some(divergence);
        }
        ControlFlow::Continue(())
    })
    .unwrap_err();
    let TrainError::Diverged { step, .. } = error else { panic!("{error}") };
    let diverged = diverged.unwrap();
    assert_eq!(diverged.step, step);
    assert!(!diverged.images.is_empty() && diverged.images.iter().all(|image| image.starts_with(root.path().join("images/train"))));

    let dir = root.path().join("runs/exp");
    assert_eq!(SavedRun::read(&dir).unwrap().divergence, Some(diverged));
    let (summary, _) = to_the_end(&ResumeRequest { lr_scale: Some(1e-23), ..request(&dir) }).unwrap();
    assert_eq!(summary.epochs_done, 3);
    assert_eq!(SavedRun::read(&dir).unwrap().divergence, None);
    let (network, _) = weights::load(&dir.join("weights/last.safetensors")).unwrap();
    assert!(network.params.values.iter().all(|value| value.is_finite()));
}

#[cfg(feature = "gpu-tests")]
#[test]
fn a_run_on_a_gpu_that_is_stopped_ends_as_if_it_had_not_been() {
    let _turn = crate::engine::cuda::testing::test_gpu();
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
        let config = |name| TrainConfig { device: crate::engine::Device::Cuda(0), ..config(root.path(), name, optimizer) };
        // The first run may time convolutions; what was chosen holds for the others.
        undisturbed(&config("first"));
        let expected = undisturbed(&config("whole"));
        // It ends after each epoch's two steps, before they are validated.
        let dir = stopped_again_and_again(&config("stopped"), &[1, 2, 1]);
        assert!(results(&dir) == expected, "{optimizer:?}: {:?} instead of {:?}", results(&dir).2, expected.2);
        // What began on a GPU can end on the CPU.
        let dir = root.path().join(format!("runs/moved{optimizer:?}"));
        train(&TrainConfig { name: format!("moved{optimizer:?}"), ..config("x") }, &never(), &mut |event| {
            if matches!(event, TrainEvent::Step(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        let moved = ResumeRequest { device: Some(crate::engine::Device::Cpu), ..request(&dir) };
        assert_eq!(to_the_end(&moved).unwrap().0.epochs_done, 3);
    }
}
