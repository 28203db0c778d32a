//! The window over a dataset on disk, with commands carried out: open, check, fix, undo.

use boxwright::gui::action::Workspace;
use boxwright::session::Command;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable;

use crate::fixture::{self, Driver};

/// Draws frames until the window shows a text that begins like this.
#[track_caller]
pub(crate) fn wait_for(harness: &mut Driver, text: &str) {
    for _ in 0..6000 {
        harness.run_steps(1);
        if harness.query_by_label_contains(text).is_some() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{text:?} did not appear; notices: {:?}", harness.state_mut().app().session.notices);
}

fn click(harness: &mut Driver, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(2);
}

#[test]
fn a_dataset_is_opened_checked_fixed_and_restored_through_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("parts");
    fixture::write_dataset(&root);
    let repeated = root.join("labels/train/part3.txt");
    let original = std::fs::read_to_string(&repeated).unwrap();
    let mut harness = fixture::harness(fixture::session(dir.path()), [1280.0, 800.0], true);

    harness.get_by_label("Dataset path").focus();
    harness.run_steps(1);
    harness.get_by_label("Dataset path").type_text(&root.display().to_string());
    harness.run_steps(1);
    click(&mut harness, "Open");
    wait_for(&mut harness, "image part0.png");

    harness.state_mut().app().window.workspace = Workspace::Check;
    harness.run_steps(2);
    harness.get_all_by_label("Check labels").next().unwrap().click();
    wait_for(&mut harness, "Findings by rule");
    click(&mut harness, "Preview fixes…");
    wait_for(&mut harness, "What the safe fixes would change");
    assert_eq!(std::fs::read_to_string(&repeated).unwrap(), original, "a preview writes nothing");
    click(&mut harness, "Apply fixes");
    wait_for(&mut harness, "Fixed ");
    assert_eq!(std::fs::read_to_string(&repeated).unwrap(), "1 0.5 0.5 0.2 0.2\n");

    click(&mut harness, "Undo");
    wait_for(&mut harness, "Restored ");
    assert_eq!(std::fs::read_to_string(&repeated).unwrap(), original);
}

#[test]
fn a_detector_is_trained_looked_at_and_exported_through_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("tiny"));
    let mut session = fixture::session(dir.path());
    session.apply(Command::Open(yaml));
    let mut harness = fixture::harness(session, [1280.0, 800.0], true);
    wait_for(&mut harness, "image part0.png");

    harness.state_mut().app().window.workspace = Workspace::Train;
    harness.run_steps(2);
    fixture::write_field(&mut harness, Role::SpinButton, "Epochs", "1");
    fixture::write_field(&mut harness, Role::TextInput, "Runs folder", &dir.path().join("runs").display().to_string());
    harness.get_by_role_and_label(Role::ComboBox, "Image size").click();
    harness.run_steps(2);
    click(&mut harness, "96 px");
    harness.key_press(egui::Key::F7);
    wait_for(&mut harness, "Training is done");
    assert!(dir.path().join("runs/tiny/weights/best.safetensors").is_file());

    // The finished run gets another epoch, and a plot of it is kept.
    fixture::write_field(&mut harness, Role::SpinButton, "Epochs to train to", "2");
    click(&mut harness, "Train on");
    wait_for(&mut harness, "Done: 2 epochs");
    click(&mut harness, "Menu of Loss");
    click(&mut harness, "Save as CSV table");
    wait_for(&mut harness, "Saved ");
    let table = std::fs::read_to_string(dir.path().join("runs/tiny/report/loss.csv")).unwrap();
    assert!(table.starts_with("step,box,class,dfl\n1,") && table.lines().count() == 3, "{table}");

    // The first batches are looked at.
    click(&mut harness, "Before");
    click(&mut harness, "Preview");
    wait_for(&mut harness, "batch 1");
    click(&mut harness, "Run");

    // The run folder, opened later, shows the same and brings its dataset.
    let run_dir = dir.path().join("runs/tiny");
    let mut later = fixture::session(dir.path());
    later.apply(Command::Open(run_dir));
    while later.wait().is_some() {}
    let run = later.run.as_ref().unwrap();
    assert_eq!((run.steps.len(), run.epochs.len(), run.epochs_wanted), (2, 2, 2));
    assert_eq!(later.dataset.as_ref().unwrap().dataset.images.len(), 6);
    assert!(later.weights.as_ref().unwrap().is_file());

    click(&mut harness, "Look at detections");
    wait_for(&mut harness, "on 2 pictures");
    harness.get_by_label("canvas");

    harness.state_mut().app().window.workspace = Workspace::Export;
    harness.run_steps(2);
    harness.key_press(egui::Key::F9);
    wait_for(&mut harness, "Written and checked");
    assert!(dir.path().join("runs/tiny/weights/best.onnx").is_file());
}
