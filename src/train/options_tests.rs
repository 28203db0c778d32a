//! The options beside augmentation in whole runs of three pictures: that they take effect, are told, and survive a stop.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use crossbeam_channel::never;
use serde_json::Value;

use super::config::BatchChoice;
use super::config::Hyp;
use super::config::LrSchedule;
use super::config::OptimizerKind;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainSummary;
use super::freeze::Freeze;
use super::hyp_choice::HypChoice;
use super::resume::ResumeRequest;
use super::resume::resume;
use super::trainer::train;
use super::trainer_tests::write_dataset;
use crate::yolo::Model;
use crate::yolo::ModelSize;
use crate::yolo::Network;
use crate::yolo::weights;

fn config(root: &Path, name: &str) -> TrainConfig {
    TrainConfig {
        epochs: 2,
        batch: BatchChoice::Count(2),
        imgsz: 64,
        project: root.join("runs"),
        name: name.into(),
        seed: 1,
        allow_broken: true,
        ..TrainConfig::new(&root.join("data.yaml"))
    }
}

fn run(config: &TrainConfig) -> Result<(TrainSummary, Vec<String>), TrainError> {
    let mut notes = Vec::new();
    let summary = train(config, &never(), &mut |event| {
        if let TrainEvent::Note(text) = event {
            notes.push(text);
        }
        ControlFlow::Continue(())
    })?;
    Ok((summary, notes))
}

fn note<'a>(notes: &'a [String], start: &str) -> &'a str {
    notes.iter().find(|note| note.starts_with(start)).unwrap_or_else(|| panic!("no note {start:?} in {notes:?}"))
}

/// Averaged weights of a run's end.
fn last(summary: &TrainSummary) -> Network {
    weights::load(&summary.run_dir.join("weights/last.safetensors")).unwrap().0
}

#[test]
fn frozen_layers_end_as_they_began_but_for_their_statistics() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let hyp = Hyp { fit_first_boxes: false, warmup_epochs: 0.0, warmup_min_batches: 0, ..Hyp::small_data() };
    let config = TrainConfig { freeze: Freeze::First(9), hyp: HypChoice::Given(Box::new(hyp)), ..config(root.path(), "frozen") };
    let (summary, notes) = run(&config).unwrap();
    let note = note(&notes, "frozen (9): ");
    assert!(note.contains("of the backward nodes") && note.contains("MiB instead of"), "{note}");
    let (before, after) = (Network::new(config.model, 2, config.seed).params, last(&summary).params);
    let mut n_moved = [0; 2];
    for id in before.ids() {
        let spec = before.spec(id);
        let is_frozen = (0..9).any(|layer| spec.name.starts_with(&format!("model.{layer}.")));
        let same = before.get(id) == after.get(id);
        if is_frozen && spec.kind.is_trained() {
            assert!(same, "{} is frozen", spec.name);
        } else {
            n_moved[usize::from(is_frozen)] += usize::from(!same);
        }
    }
    assert!(n_moved[0] > 100 && n_moved[1] > 50, "{n_moved:?}: what learns, and statistics of what is frozen");
}

/// All at once, so that they are tried together.
fn everything(root: &Path, name: &str) -> TrainConfig {
    TrainConfig {
        model: Model::single(ModelSize::T),
        epochs: 3,
        freeze: Freeze::First(3),
        single_cls: true,
        min_items: 1,
        image_weights: true,
        multi_scale: true,
        set: [("optimizer", "adam".into()), ("lr_schedule", "flat-cosine".into()), ("label_smoothing", 0.1.into())]
            .into_iter()
            .map(|(key, value): (&str, Value)| (key.to_owned(), value))
            .collect(),
        ..config(root, name)
    }
}

#[test]
fn all_options_work_together_and_a_stopped_run_goes_on_to_the_same_bits() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    fs::write(root.path().join("labels/train/1.txt"), "").unwrap();
    let whole = everything(root.path(), "whole");
    let (summary, notes) = run(&whole).unwrap();
    assert_eq!(note(&notes, "1 of 3 training"), "1 of 3 training pictures have fewer than 1 labels (1 have none) and are left out");
    assert!(note(&notes, "multi-scale").contains("[32, 64, 96]"));
    let record: Value = serde_saphyr::from_str(&fs::read_to_string(summary.run_dir.join("run.yaml")).unwrap()).unwrap();
    assert!(record.to_string().contains("\"lr_schedule\":\"flat-cosine\"") && record.to_string().contains("\"optimizer\":\"adam\""));
    let (network, info) = weights::load(&summary.run_dir.join("weights/last.safetensors")).unwrap();
    assert_eq!((network.n_classes, info.class_names), (1, vec!["item".to_owned()]));

    let mut n_steps = 0;
    let stopped = train(&everything(root.path(), "stopped"), &never(), &mut |event| {
        n_steps += usize::from(matches!(event, TrainEvent::Step(_)));
        if n_steps >= 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert!(stopped.stopped);
    let request = ResumeRequest {
        run: Some(stopped.run_dir),
        project: "runs".into(),
        data: None,
        epochs: None,
        device: None,
        patience: None,
        lr_scale: None,
    };
    let resumed = resume(&request, &never(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(last(&resumed).params.values, network.params.values);
}

#[cfg(feature = "gpu-tests")]
#[test]
fn all_options_work_on_a_gpu_and_frozen_layers_stay_there() {
    use crate::engine::Device;

    let _turn = crate::engine::cuda::testing::test_gpu();
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    for (optimizer, batch) in [("adam", BatchChoice::Count(2)), ("lion", BatchChoice::Auto)] {
        let mut config = TrainConfig { device: Device::Cuda(0), batch, ..everything(root.path(), optimizer) };
        config.set.insert("optimizer".to_owned(), optimizer.into());
        config.set.insert("fit_first_boxes".to_owned(), false.into());
        let (summary, notes) = run(&config).unwrap();
        eprintln!("{}", note(&notes, "frozen"));
        assert_eq!((summary.epochs_done, summary.stopped), (3, false));
        let (before, after) = (Network::new(config.model, 1, config.seed).params, last(&summary).params);
        assert!(after.values.iter().all(|value| value.is_finite()));
        let mut n_moved = 0;
        for id in before.ids().filter(|&id| before.spec(id).kind.is_trained()) {
            let name = &before.spec(id).name;
            let same = before.get(id) == after.get(id);
            if (0..3).any(|layer| name.starts_with(&format!("model.{layer}."))) {
                assert!(same, "{name} is frozen");
            } else {
                n_moved += usize::from(!same);
            }
        }
        assert!(n_moved > 300, "{n_moved}");
    }
}

#[test]
fn every_rule_and_schedule_trains() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let schedules = [LrSchedule::Linear, LrSchedule::Cosine, LrSchedule::FlatCosine, LrSchedule::Fixed];
    let optimizers = [OptimizerKind::Sgd, OptimizerKind::Adam, OptimizerKind::AdamW, OptimizerKind::Lion];
    let mut ends = Vec::new();
    for (optimizer, lr_schedule) in optimizers.into_iter().zip(schedules) {
        let hyp =
            Hyp { optimizer, lr_schedule, amsgrad: true, lr0: 0.0001, warmup_epochs: 0.0, warmup_min_batches: 0, ..Hyp::small_data() };
        let config = TrainConfig {
            model: Model::single(ModelSize::T),
            hyp: HypChoice::Given(Box::new(hyp)),
            epochs: 1,
            ..config(root.path(), "rule")
        };
        let (summary, _) = run(&config).unwrap();
        let values = last(&summary).params.values;
        assert!(values.iter().all(|value| value.is_finite()), "{optimizer:?}");
        assert!(!ends.contains(&values), "{optimizer:?}");
        ends.push(values);
    }
}

#[test]
fn weights_that_give_little_are_refused_until_they_may() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let path = root.path().join("gelan.safetensors");
    let info = weights::WeightsInfo { class_names: vec!["bolt".into(), "nut".into()], imgsz: 64 };
    weights::save(&path, &Network::new(Model::single(ModelSize::T), 2, 0), &info).unwrap();
    let config = TrainConfig { epochs: 1, weights: Some(path), ..config(root.path(), "partial") };
    let error = run(&config).unwrap_err();
    assert!(matches!(error, TrainError::Transfer { taken, .. } if taken > 0), "{error}");
    assert!(error.hint().unwrap().contains("--allow-partial"));
    let (_, notes) = run(&TrainConfig { allow_partial: true, ..config }).unwrap();
    assert!(note(&notes, "start weights").contains("left as new"));
    note(&notes, "hyper-parameters `fine-tune`");
    note(&notes, "with few pictures `--freeze 10`");
}
