//! What the window asks for when a person does something.

use std::sync::Arc;

use boxwright::gui::action::Workspace;
use boxwright::session::{CommandDone, Event, JobId, JobKind};
use egui::Key;
use egui_kittest::kittest::Queryable;

use crate::fixture::{self, Driver};

const SIZE: [f32; 2] = [1280.0, 800.0];

struct Setup {
    harness: Driver,
    _dir: tempfile::TempDir,
}

/// A window over an open dataset, with more state put in by `fill`.
fn opened(fill: impl FnOnce(&mut boxwright::session::Session)) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("parts"));
    let mut session = fixture::session(dir.path());
    fixture::open(&mut session, &yaml);
    fill(&mut session);
    Setup { harness: fixture::harness(session, SIZE, false), _dir: dir }
}

impl Setup {
    fn click(&mut self, label: &str) {
        self.harness.get_by_label(label).click();
        self.harness.run_steps(3);
    }

    fn press(&mut self, modifiers: egui::Modifiers, key: Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.harness.run_steps(3);
    }

    fn show(&mut self, workspace: Workspace) {
        self.harness.state_mut().app().window.workspace = workspace;
        self.harness.run_steps(3);
    }

    fn asked(&mut self) -> Vec<String> {
        self.harness.state_mut().take_asked()
    }

    /// That exactly one command was asked for, which begins like this.
    #[track_caller]
    fn assert_asked(&mut self, beginning: &str) {
        let asked = self.asked();
        assert!(asked.len() == 1 && asked[0].starts_with(beginning), "{asked:#?}");
    }
}

#[test]
fn a_typed_path_is_opened_with_enter() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup { harness: fixture::harness(fixture::session(dir.path()), SIZE, false), _dir: dir };
    setup.harness.get_by_label("Dataset path").focus();
    setup.harness.run_steps(2);
    setup.harness.get_by_label("Dataset path").type_text("/data/parts");
    setup.harness.run_steps(2);
    setup.press(egui::Modifiers::NONE, Key::Enter);
    setup.assert_asked("Open(\"/data/parts\")");
}

#[test]
fn the_first_screen_offers_the_sample_and_the_file_dialog() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup { harness: fixture::harness(fixture::session(dir.path()), SIZE, false), _dir: dir };
    setup.click("Try the sample");
    setup.assert_asked("OpenSample");
    setup.press(egui::Modifiers::COMMAND, Key::O);
    setup.assert_asked("Browse(Dataset)");
}

#[test]
fn an_image_is_opened_from_the_grid_and_keys_go_on() {
    let mut setup = opened(|_| {});
    setup.click("image part1.png");
    assert!(setup.harness.query_by_label("canvas").is_none(), "a click chooses");
    fixture::double_click(&mut setup.harness, "image part1.png");
    setup.harness.get_by_label("canvas");
    setup.harness.get_by_label_contains("label dent");
    setup.press(egui::Modifiers::NONE, Key::D);
    setup.harness.get_by_label_contains("part2.png");
    setup.press(egui::Modifiers::NONE, Key::ArrowLeft);
    setup.harness.get_by_label_contains("part1.png");
    let asked = setup.asked();
    assert!(asked.iter().all(|command| command.starts_with("Look") || command.starts_with("ReadDroppedRows")), "{asked:?}");
}

#[test]
fn classes_and_splits_filter_the_grid() {
    let mut setup = opened(|_| {});
    setup.click("val 2");
    assert!(setup.harness.query_by_label("image part0.png").is_none());
    setup.harness.get_by_label("image part4.png");
    setup.click("dent 3");
    assert!(setup.harness.query_by_label("image part4.png").is_none());
    setup.click("Show every image");
    setup.harness.get_by_label("image part0.png");
}

#[test]
fn the_whole_main_job_is_asked_for_by_keys() {
    let mut setup = opened(|session| session.weights = Some("w.safetensors".into()));
    setup.press(egui::Modifiers::NONE, Key::F5);
    setup.assert_asked("Check { path: None, images: Header }");
    setup.press(egui::Modifiers::COMMAND, Key::Z);
    setup.assert_asked("Undo");
    setup.press(egui::Modifiers::NONE, Key::F7);
    setup.assert_asked("Train(TrainConfig");
    setup.press(egui::Modifiers::NONE, Key::F8);
    setup.assert_asked("Detect(DetectRequest { weights: \"w.safetensors\"");
    setup.press(egui::Modifiers::NONE, Key::F9);
    setup.assert_asked("Export { weights: \"w.safetensors\", format: Onnx, out: \"w.onnx\" }");
}

#[test]
fn fixes_are_applied_only_after_their_preview() {
    let mut setup = opened(|session| {
        session.report = Some(Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 30)));
        session.receipt = Some(fixture::receipt());
    });
    setup.show(Workspace::Check);
    assert!(setup.harness.query_by_label("Apply fixes").is_none());
    setup.click("Preview fixes…");
    setup.assert_asked("Fix { path: None, dry_run: true }");
    let app = setup.harness.state_mut().app();
    let done = CommandDone::Fixed { receipt: fixture::receipt(), dry_run: true };
    app.window.on_event(&Event::Finished { job: JobId(1), done }, &app.session);
    setup.harness.run_steps(3);
    setup.harness.get_by_label("0 0.925 0.5 0.15 0.2");
    setup.click("Apply fixes");
    setup.assert_asked("Fix { path: None, dry_run: false }");
}

#[test]
fn a_finding_shows_its_image_and_rules_filter() {
    let mut setup = opened(|session| {
        session.report = Some(Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 100_000)));
    });
    setup.show(Workspace::Check);
    setup.harness.get_by_label("canvas");
    setup.harness.get_by_label_contains("Row is repeated ").click();
    setup.harness.run_steps(3);
    assert!(setup.harness.query_by_label_contains("width is 0").is_none());
    setup.press(egui::Modifiers::NONE, Key::D);
    setup.harness.get_by_label("canvas");
}

#[test]
fn a_running_training_can_be_stopped_and_not_started_twice() {
    let mut setup = opened(|session| {
        session.run = Some(fixture::run(60, 12));
        session.jobs.push(fixture::job(5, JobKind::Train, 300, 1500));
    });
    setup.show(Workspace::Train);
    setup.press(egui::Modifiers::NONE, Key::F7);
    assert_eq!(setup.asked(), [""; 0]);
    setup.press(egui::Modifiers::SHIFT, Key::F7);
    setup.assert_asked("Cancel(JobId(5))");
    setup.click("Stop training");
    setup.assert_asked("Cancel(JobId(5))");
}

#[test]
fn a_finished_training_leads_to_detections_on_the_val_split() {
    let mut setup = opened(|session| {
        let mut run = fixture::run(60, 60);
        run.summary = Some(fixture::summary());
        session.run = Some(run);
        session.weights = Some("runs/parts/weights/best.safetensors".into());
    });
    setup.show(Workspace::Train);
    setup.click("Look at detections");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].starts_with("Detect(") && asked[0].contains("images/val"), "{asked:#?}");
}

#[test]
fn the_score_threshold_filters_without_running_again() {
    let mut setup = opened(|session| {
        session.detection_names = vec!["scratch".to_owned(), "dent".to_owned()];
        session.detections = fixture::detections(session);
    });
    setup.show(Workspace::Detect);
    setup.harness.get_by_label_contains("6 detections on 6 pictures");
    setup.harness.get_by_label("Score threshold").click();
    setup.harness.run_steps(3);
    assert!(setup.harness.query_by_label_contains("6 detections on").is_none());
    assert_eq!(setup.asked(), [""; 0]);
}

#[test]
fn an_error_stays_until_it_is_dismissed() {
    let mut setup = opened(|session| session.notices.push(fixture::error_notice()));
    setup.harness.get_by_label_contains("no dataset at");
    setup.click("Dismiss");
    setup.assert_asked("DismissNotice(9)");
}

#[test]
fn keys_do_nothing_while_text_is_typed() {
    let mut setup = opened(|_| {});
    setup.harness.get_by_label("Query").focus();
    setup.harness.run_steps(2);
    setup.press(egui::Modifiers::NONE, Key::G);
    assert!(setup.harness.query_by_label("canvas").is_none());
}

#[test]
fn the_theme_is_changed_from_the_top_bar() {
    let mut setup = opened(|_| {});
    setup.press(egui::Modifiers::COMMAND, Key::L);
    setup.assert_asked("SetTheme(");
}

#[test]
fn every_workspace_draws_with_and_without_a_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let mut empty = Setup { harness: fixture::harness(fixture::session(dir.path()), SIZE, false), _dir: dir };
    let mut full = opened(|_| {});
    for workspace in Workspace::ALL {
        empty.show(workspace);
        full.show(workspace);
    }
    assert_eq!(full.asked(), [""; 0]);
}
