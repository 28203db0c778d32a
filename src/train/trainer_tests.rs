//! Whole runs on three pictures of 64 pixels: what they leave on disk, also when stopped, broken or refused.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use super::config::BatchChoice;
use super::config::Hyp;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainSummary;
use super::hyp_choice::HypChoice;
use super::trainer::train;
use crate::engine::Device;
use crate::eval::validate::ValError;
use crate::geom::Size;
use crate::media::Picture;
use crate::media::encode::encode;
use crate::yolo::Model;
use crate::yolo::ModelSize;
use crate::yolo::weights;

/// Three training and two validation pictures with a white square each, and one file that is no picture.
pub(super) fn write_dataset(root: &Path) {
    for split in ["train", "val"] {
        for folder in ["images", "labels"] {
            fs::create_dir_all(root.join(folder).join(split)).unwrap();
        }
    }
    for (index, split) in ["train", "train", "train", "val", "val"].into_iter().enumerate() {
        let mut picture = Picture { size: Size::square(64), rgb: vec![40; 64 * 64 * 3] };
        for y in 16..48 {
            for x in 8 + index..40 + index {
                picture.rgb[(y * 64 + x) * 3..][..3].fill(220);
            }
        }
        encode(&root.join(format!("images/{split}/{index}.png")), &picture, 90).unwrap();
        let row = format!("{} {} 0.5 0.5 0.5\n", index % 2, (24 + index) as f32 / 64.0);
        fs::write(root.join(format!("labels/{split}/{index}.txt")), row).unwrap();
    }
    fs::write(root.join("images/train/broken.png"), b"not a picture").unwrap();
    fs::write(root.join("data.yaml"), "train: images/train\nval: images/val\nnames: [bolt, nut]\n").unwrap();
}

pub(super) fn config(root: &Path) -> TrainConfig {
    TrainConfig {
        epochs: 2,
        batch: BatchChoice::Count(2),
        imgsz: 64,
        project: root.join("runs"),
        name: "exp".into(),
        seed: 1,
        // One of the pictures that `write_dataset` makes is broken.
        allow_broken: true,
        ..TrainConfig::new(&root.join("data.yaml"))
    }
}

pub(super) fn run(config: &TrainConfig) -> (Result<TrainSummary, TrainError>, Vec<TrainEvent>) {
    let mut events = Vec::new();
    let result = train(config, &crossbeam_channel::never(), &mut |event| {
        events.push(event);
        ControlFlow::Continue(())
    });
    (result, events)
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_leaves_weights_figures_and_events() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let (summary, events) = run(&config(root.path()));
    let summary = summary.unwrap();
    assert_eq!((summary.epochs_done, summary.stopped, summary.metrics.n_images, summary.metrics.n_labels), (2, false, 2, 2));

    let TrainEvent::Plan(plan) = events.iter().find(|event| !matches!(event, TrainEvent::Progress { .. })).unwrap() else {
        panic!("the first event is the plan")
    };
    assert_eq!((plan.n_train_images, plan.n_val_images, plan.n_labels, plan.steps_per_epoch), (3, 2, 3, 2));
    assert_eq!(plan.dropped.len(), 1);
    assert!(plan.planned_bytes > 0);
    let steps: Vec<_> = events.iter().filter_map(|event| if let TrainEvent::Step(step) = event { Some(*step) } else { None }).collect();
    assert_eq!(steps.iter().map(|step| (step.epoch, step.step)).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 2), (1, 3)]);
    assert!(steps.iter().all(|step| step.box_loss.is_finite() && step.cls_loss > 0.0 && step.grad_norm > 0.0));
    assert!(events.iter().any(|event| matches!(event, TrainEvent::Note(text) if text.starts_with("WARNING: 1 of 4"))));

    let dir = &summary.run_dir;
    for kept in ["last", "best"] {
        let (network, info) = weights::load(&dir.join(format!("weights/{kept}.safetensors"))).unwrap();
        assert_eq!((network.model, info.imgsz, info.class_names.len()), (config(root.path()).model, 64, 2));
    }
    assert_eq!(fs::read_to_string(dir.join("results.csv")).unwrap().lines().count(), 3);
    let told = lines(&dir.join("events.jsonl"));
    assert_eq!((told[0]["event"].as_str(), told.last().unwrap()["event"].as_str()), (Some("plan"), Some("finished")));
    assert_eq!(told.iter().filter(|line| line["event"] == "step").count(), 4);
    let record: Value = serde_saphyr::from_str(&fs::read_to_string(dir.join("run.yaml")).unwrap()).unwrap();
    assert_eq!(
        (record["seed"].as_u64(), record["model"].as_str(), record["hyp"]["given"]["box"].as_f64()),
        (Some(1), Some("yolov9-t"), Some(7.5))
    );
    let metrics: Value = serde_json::from_str(&fs::read_to_string(dir.join("report/metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["classes"][0]["name"], "bolt");
    assert!(dir.join("report/val.jpg").exists());
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let weights = [1, 1, 2].map(|seed| {
        let summary = run(&TrainConfig { seed, epochs: 1, ..config(root.path()) }).0.unwrap();
        fs::read(summary.run_dir.join("weights/last.safetensors")).unwrap()
    });
    assert!(weights[0] == weights[1], "equal seeds");
    assert!(weights[0] != weights[2], "different seeds");
}

#[test]
fn an_automatic_batch_is_told_and_never_larger_than_the_split() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let (summary, events) = run(&TrainConfig { batch: BatchChoice::Auto, epochs: 1, ..config(root.path()) });
    assert!(events.iter().any(|event| matches!(event, TrainEvent::Note(text) if text.starts_with("batch 3,"))), "{events:?}");
    let plan = events.iter().find_map(|event| if let TrainEvent::Plan(plan) = event { Some(plan) } else { None }).unwrap();
    assert_eq!((plan.steps_per_epoch, plan.device_bytes), (1, None));
    let record: Value = serde_saphyr::from_str(&fs::read_to_string(summary.unwrap().run_dir.join("run.yaml")).unwrap()).unwrap();
    assert_eq!(record["batch"]["count"], 3);
}

#[cfg(feature = "gpu-tests")]
#[test]
fn a_run_on_a_gpu_leaves_what_one_on_the_cpu_does() {
    let _turn = crate::engine::cuda::testing::test_gpu();
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    for batch in [BatchChoice::Count(2), BatchChoice::Auto] {
        let (summary, events) = run(&TrainConfig { device: Device::Cuda(0), batch, ..config(root.path()) });
        let summary = summary.unwrap();
        assert_eq!((summary.epochs_done, summary.stopped, summary.metrics.n_images, summary.metrics.n_labels), (2, false, 2, 2));
        let plan = events.iter().find_map(|event| if let TrainEvent::Plan(plan) = event { Some(plan) } else { None }).unwrap();
        assert!(plan.device_bytes.is_some_and(|bytes| bytes > 0));
        let steps: Vec<_> = events
            .iter()
            .filter_map(|event| if let TrainEvent::Step(step) = event { Some((step.epoch, step.step)) } else { None })
            .collect();
        let per_epoch = plan.steps_per_epoch;
        assert_eq!(steps, (0..2 * per_epoch).map(|step| (step / per_epoch, step)).collect::<Vec<_>>());
        for kept in ["last", "best"] {
            let (network, _) = weights::load(&summary.run_dir.join(format!("weights/{kept}.safetensors"))).unwrap();
            assert!(network.params.values.iter().all(|value| value.is_finite()));
        }
    }
}

#[cfg(feature = "gpu-tests")]
#[test]
fn a_batch_that_no_gpu_holds_is_refused_before_anything_is_written() {
    let _turn = crate::engine::cuda::testing::test_gpu();
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    // Two pictures of 8192 pixels a side with the largest model: some 300 GB.
    let model = Model { size: ModelSize::E, dual: true };
    let error = run(&TrainConfig { device: Device::Cuda(0), model, imgsz: 8192, ..config(root.path()) }).0.unwrap_err();
    assert!(matches!(error, TrainError::BatchTooLarge { batch: 2, .. }) && error.hint().is_some(), "{error}");
    assert!(!root.path().join("runs").exists());
}

#[test]
fn a_stop_ends_after_the_step_and_leaves_a_whole_folder() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let mut n_steps = 0;
    let config = TrainConfig { epochs: 1000, ..config(root.path()) };
    let summary = train(&config, &crossbeam_channel::never(), &mut |event| {
        n_steps += usize::from(matches!(event, TrainEvent::Step(_)));
        if n_steps == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!((n_steps, summary.stopped, summary.epochs_done), (1, true, 0));
    for kept in ["last", "best"] {
        weights::load(&summary.run_dir.join(format!("weights/{kept}.safetensors"))).unwrap();
    }
    assert_eq!(lines(&summary.run_dir.join("events.jsonl")).last().unwrap()["stopped"], true);
}

#[test]
fn a_run_that_diverges_says_where_and_keeps_the_weights_before() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let hyp = Hyp { lr0: 1e20, warmup_epochs: 0.0, warmup_min_batches: 0, ..Hyp::small_data() };
    let error = run(&TrainConfig { hyp: HypChoice::Given(Box::new(hyp)), ..config(root.path()) }).0.unwrap_err();
    assert!(matches!(error, TrainError::Diverged { epoch: 0, step: 1, .. }), "{error}");
    assert!(error.hint().unwrap().contains("--lr-scale"));
    let dir = root.path().join("runs/exp");
    weights::load(&dir.join("weights/last.safetensors")).unwrap();
    assert_eq!(lines(&dir.join("events.jsonl")).last().unwrap()["event"], "error");
}

#[test]
fn a_run_can_start_from_weights_of_another_run() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let first = run(&TrainConfig { epochs: 1, ..config(root.path()) }).0.unwrap();
    let weights = Some(first.run_dir.join("weights/best.safetensors"));
    let (second, events) = run(&TrainConfig { epochs: 1, weights: weights.clone(), ..config(root.path()) });
    assert!(second.unwrap().run_dir.ends_with("exp2"));
    assert!(events.iter().any(|event| matches!(event, TrainEvent::Note(text) if text.starts_with("start weights"))));

    let small = Model { size: ModelSize::S, dual: true };
    let error = run(&TrainConfig { model: small, weights, ..config(root.path()) }).0.unwrap_err();
    assert!(matches!(error, TrainError::Transfer { taken: 0, .. }), "{error}");
}

#[test]
fn what_cannot_be_trained_is_refused_before_anything_is_written() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let refused = |config: TrainConfig| {
        let error = run(&config).0.unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        assert!(!root.path().join("runs").exists(), "{error}");
        error
    };
    assert!(matches!(refused(TrainConfig { device: Device::Cuda(99), ..config(root.path()) }), TrainError::Cuda(_)));
    assert!(matches!(refused(TrainConfig { data: "/nowhere".into(), ..config(root.path()) }), TrainError::Dataset(_)));
    assert!(matches!(refused(TrainConfig { epochs: 0, ..config(root.path()) }), TrainError::Config(_)));
    let missing = Some("/nowhere/best.safetensors".into());
    assert!(matches!(refused(TrainConfig { weights: missing, ..config(root.path()) }), TrainError::Weights(_)));

    for file in fs::read_dir(root.path().join("labels/train")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert!(matches!(refused(config(root.path())), TrainError::NoLabels { n_images: 3 }));
    fs::write(root.path().join("data.yaml"), "train: images/train\nval: images/none\nnames: [bolt, nut]\n").unwrap();
    assert!(matches!(refused(config(root.path())), TrainError::Val(ValError::EmptySplit { split: "val", .. })));
}

#[test]
fn a_project_folder_that_cannot_be_made_is_an_error_with_a_hint() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    fs::write(root.path().join("file"), "").unwrap();
    let error = run(&TrainConfig { project: root.path().join("file/runs"), ..config(root.path()) }).0.unwrap_err();
    assert!(matches!(error, TrainError::Write { .. }) && error.hint().is_some(), "{error}");
}
