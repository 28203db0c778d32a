//! What whole runs on three small pictures tell beside their losses, and what is asked before and instead of them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;

use super::config::TrainConfig;
use super::error::TrainError;
use super::event::EpochReport;
use super::event::StepReport;
use super::event::TrainEvent;
use super::overfit::OverfitVerdict;
use super::overfit::overfit_check;
use super::preview::preview_batches;
use super::saved_run::SavedRun;
use super::trainer_tests::config;
use super::trainer_tests::run;
use super::trainer_tests::write_dataset;
use crate::geom::Size;
use crate::media::decode::decode;

#[test]
fn a_run_tells_branches_rates_updates_pictures_and_samples_and_its_folder_keeps_them() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let (summary, events) = run(&config(root.path()));
    let dir = summary.unwrap().run_dir;

    let TrainEvent::Plan(plan) = events.iter().find(|event| matches!(event, TrainEvent::Plan(_))).unwrap() else { unreachable!() };
    assert_eq!((plan.epochs, plan.batch, plan.n_broken, plan.n_backgrounds), (2, 2, 1, 0));
    assert_eq!(plan.class_boxes.iter().map(|class| class.n_boxes).collect::<Vec<_>>(), [2, 1]);

    let steps: Vec<StepReport> =
        events.iter().filter_map(|event| if let TrainEvent::Step(step) = event { Some(*step) } else { None }).collect();
    for step in &steps {
        let (main, aux) = (step.main.unwrap(), step.aux.unwrap());
        let sums = [main.box_loss + aux.box_loss, main.cls_loss + aux.cls_loss, main.dfl_loss + aux.dfl_loss];
        for (sum, whole) in sums.into_iter().zip([step.box_loss, step.cls_loss, step.dfl_loss]) {
            assert!((sum - whole).abs() <= 1e-4 * whole.max(1.0), "{step:?}");
        }
        assert!(main.sum() > aux.sum(), "the auxiliary branch counts a quarter: {step:?}");
        assert_eq!((step.lrs[1], step.clipped), (step.lr, step.grad_norm > 10.0));
        assert!((0.0..=1.0).contains(&step.data_wait.unwrap()), "{step:?}");
    }
    // The rate of the first step is 0.
    assert_eq!(steps[0].update_ratio, Some(0.0));
    assert!(steps[1..].iter().all(|step| step.update_ratio.unwrap() > 0.0), "{steps:?}");

    let epochs: Vec<&EpochReport> =
        events.iter().filter_map(|event| if let TrainEvent::Epoch(epoch) = event { Some(epoch) } else { None }).collect();
    for (epoch, steps) in epochs.iter().zip(steps.chunks(2)) {
        let mean = |of: &dyn Fn(&StepReport) -> f32| steps.iter().map(of).sum::<f32>() / 2.0;
        assert!((epoch.main.unwrap().cls_loss - mean(&|step| step.main.unwrap().cls_loss)).abs() < 1e-4);
        assert!((epoch.clip_share - mean(&|step| f32::from(u8::from(step.clipped)))).abs() < 1e-6);
        assert!(epoch.images_per_sec > 0.0);
    }

    let saved = SavedRun::read(&dir).unwrap();
    assert_eq!(saved.steps, steps);
    assert_eq!(saved.batch_pictures.len(), 3);
    assert_eq!(decode(&saved.batch_pictures[0]).unwrap().size, Size::new(128, 64));
    assert_eq!(saved.samples.iter().map(|samples| (samples.epoch, samples.images.len())).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    assert!(saved.alarms.is_empty(), "{:?}", saved.alarms);
}

#[test]
fn more_than_one_broken_image_in_a_hundred_is_refused_unless_that_is_right() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let error = run(&TrainConfig { allow_broken: false, ..config(root.path()) }).0.unwrap_err();
    assert!(matches!(&error, TrainError::ManyBroken { n_broken: 1, n_images: 4, first } if first.contains("broken.png")), "{error}");
    assert!(error.hint().unwrap().contains("--allow-broken"));
    assert!(!root.path().join("runs").exists());
    std::fs::remove_file(root.path().join("images/train/broken.png")).unwrap();
    run(&TrainConfig { allow_broken: false, epochs: 1, ..config(root.path()) }).0.unwrap();
}

#[test]
fn the_first_batches_are_previewed_without_a_run() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let pictures = preview_batches(&config(root.path()), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(pictures.iter().map(|picture| picture.size).collect::<Vec<_>>(), [Size::new(128, 64), Size::square(64), Size::new(128, 64)]);
    assert!(!root.path().join("runs").exists());
    let (_, events) = run(&TrainConfig { epochs: 1, ..config(root.path()) });
    let Some(TrainEvent::BatchPictures(paths)) = events.iter().find(|event| matches!(event, TrainEvent::BatchPictures(_))) else {
        panic!("a run tells its batches")
    };
    let of_run = decode(&paths[0]).unwrap();
    let mean = |rgb: &[u8]| rgb.iter().map(|value| f64::from(*value)).sum::<f64>() / rgb.len() as f64;
    assert!((mean(&of_run.rgb) - mean(&pictures[0].rgb)).abs() < 3.0, "the same but for JPEG");
    assert!(matches!(preview_batches(&config(root.path()), &mut |_| ControlFlow::Break(())), Err(TrainError::Cancelled)));
}

#[test]
fn one_batch_is_learnt_where_boxes_lie_on_objects() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let mut told = 0;
    let report = overfit_check(&config(root.path()), 40, &mut |_| {
        told += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(
        (report.verdict, report.n_images, report.n_boxes, report.losses.len()),
        (OverfitVerdict::Learns, 2, 2, 40),
        "{}",
        report.text
    );
    assert!(told >= 40);
    assert!(matches!(overfit_check(&config(root.path()), 60, &mut |_| ControlFlow::Break(())), Err(TrainError::Cancelled)));
}
