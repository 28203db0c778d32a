//! The window on a machine with a GPU: a training is started there by hand and runs on it.

use boxwright::gui::action::Workspace;
use boxwright::session::Command;
use boxwright::train::TrainPlan;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable;

use crate::fixture;
use crate::script::wait_for;

/// With `BOXWRIGHT_PICTURES` a picture of the finished run is kept there, to be looked at.
#[test]
fn a_training_is_started_on_a_gpu_through_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("tiny"));
    let mut session = fixture::session(dir.path());
    session.apply(Command::ListDevices);
    session.apply(Command::Open(yaml));
    let mut harness = fixture::harness(session, [1280.0, 800.0], true);
    wait_for(&mut harness, "image part0.png");
    harness.state_mut().app().window.workspace = Workspace::Train;
    harness.run_steps(2);
    fixture::write_field(&mut harness, Role::SpinButton, "Epochs", "30");
    fixture::write_field(&mut harness, Role::TextInput, "Runs folder", &dir.path().join("runs").display().to_string());
    harness.get_by_role_and_label(Role::ComboBox, "Device").click();
    harness.run_steps(2);
    harness.get_by_label_contains("GPU 0, ").click();
    harness.run_steps(2);
    harness.key_press(egui::Key::F7);
    wait_for(&mut harness, "Training is done");
    let run = harness.state_mut().app().session.run.clone().unwrap();
    assert!(matches!(run.plan, Some(TrainPlan { device_bytes: Some(bytes), .. }) if bytes > 0), "{:?}", run.plan);
    assert_eq!((run.steps.len() % 30, run.epochs.len()), (0, 30));
    assert!(run.machine.iter().any(|report| report.gpu.is_some()), "{:?}", run.machine);
    harness.get_by_label("Look at detections").click();
    wait_for(&mut harness, "on 2 pictures");
    if let Some(out) = std::env::var_os("BOXWRIGHT_PICTURES") {
        let out = std::path::PathBuf::from(out);
        std::fs::create_dir_all(&out).unwrap();
        harness.render().unwrap().save(out.join("gpu-detect.png")).unwrap();
        harness.state_mut().app().window.workspace = Workspace::Train;
        harness.run_steps(8);
        harness.render().unwrap().save(out.join("gpu-train.png")).unwrap();
    }
}
