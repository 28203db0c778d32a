//! The workspace *Train*: what its form describes, what its plots and pages ask for, and what a frame of it costs.

use std::path::Path;

use boxwright::gui::action::Workspace;
use boxwright::session::{CommandDone, Event, JobId, JobKind, Session};
use egui::Key;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable;

use crate::fixture::{self, Driver};

struct Setup {
    harness: Driver,
    dir: tempfile::TempDir,
}

/// The workspace over an open dataset, with more state put in by `fill`.
fn train(size: [f32; 2], fill: impl FnOnce(&mut Session, &Path)) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("parts"));
    let mut session = fixture::session(dir.path());
    fixture::open(&mut session, &yaml);
    fill(&mut session, dir.path());
    let mut harness = fixture::harness(session, size, false);
    harness.state_mut().app().window.workspace = Workspace::Train;
    harness.run_steps(3);
    Setup { harness, dir }
}

impl Setup {
    #[track_caller]
    fn click(&mut self, label: &str) {
        self.harness.get_by_label(label).click();
        self.harness.run_steps(3);
    }

    fn asked(&mut self) -> Vec<String> {
        self.harness.state_mut().take_asked()
    }

    /// The job that a command asked for has done this.
    fn done(&mut self, done: CommandDone) {
        let app = self.harness.state_mut().app();
        app.window.on_event(&Event::Finished { job: JobId(1), done }, &app.session);
        self.harness.run_steps(3);
    }
}

const SIZE: [f32; 2] = [1280.0, 1400.0];

#[test]
fn a_changed_setting_is_marked_told_and_set_back() {
    let mut setup = train(SIZE, |_, _| {});
    setup.click("All settings");
    setup.click("Optimizer");
    fixture::write_field(&mut setup.harness, Role::SpinButton, "Learning rate", "0.002");
    setup.harness.get_by_label("All settings  (1 changed)");
    setup.harness.get_by_label("Optimizer  (1 changed)");
    setup.harness.get_by_label_contains("--set lr0=0.002");
    setup.harness.key_press(Key::F7);
    setup.harness.run_steps(3);
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].contains("set: {\"lr0\": Number(0.002)}"), "{asked:#?}");
    setup.click("Reset Learning rate");
    setup.harness.get_by_label("All settings");
    assert!(setup.harness.query_by_label_contains("--set").is_none());
}

#[test]
fn batch_seed_and_preset_are_part_of_the_run() {
    let mut setup = train(SIZE, |_, _| {});
    setup.click("Automatic batch");
    fixture::write_field(&mut setup.harness, Role::SpinButton, "Seed", "7");
    setup.harness.get_by_role_and_label(Role::ComboBox, "Preset").click();
    setup.harness.run_steps(2);
    setup.click("scratch-high: as published");
    setup.harness.get_by_label_contains("--batch auto");
    setup.harness.get_by_label_contains("--hyp scratch-high --seed 7");
    setup.harness.key_press(Key::F7);
    setup.harness.run_steps(3);
    let asked = setup.asked();
    let is_told = |word: &str| asked.iter().any(|command| command.contains(word));
    assert!(is_told("batch: Auto") && is_told("hyp: ScratchHigh") && is_told("seed: 7"), "{asked:#?}");
}

#[test]
fn plots_are_chosen_hidden_and_saved_beside_the_run() {
    let mut setup = train(SIZE, |session, _| session.run = Some(fixture::run(60, 12)));
    assert!(setup.harness.query_by_label("Menu of Update to weight ratio").is_none());
    setup.click("Plots");
    setup.harness.get_by_role_and_label(Role::CheckBox, "Update to weight ratio").click();
    setup.harness.run_steps(3);
    setup.harness.key_press(Key::Escape);
    setup.harness.run_steps(3);
    setup.click("Menu of Update to weight ratio");
    setup.click("Save as SVG drawing");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].starts_with("SaveChart { path: \"runs/parts/report/update-ratio.svg\""), "{asked:#?}");
    setup.done(CommandDone::ChartSaved("runs/parts/report/update-ratio.svg".into()));
    setup.harness.get_by_label("Saved runs/parts/report/update-ratio.svg");
    setup.click("Menu of Loss");
    setup.click("Hide this plot");
    assert!(setup.harness.query_by_label("Menu of Loss").is_none());
}

#[test]
fn a_part_of_the_run_is_shown_until_the_whole_is_asked_for() {
    let mut setup = train(SIZE, |session, _| session.run = Some(fixture::run(60, 12)));
    let menu = setup.harness.get_by_label("Menu of Loss").rect();
    setup.harness.event(egui::Event::PointerMoved(menu.center() + egui::vec2(-300.0, 80.0)));
    setup.harness.run_steps(2);
    setup.harness.event(egui::Event::Zoom(3.0));
    setup.harness.run_steps(3);
    setup.click("Whole run");
    assert!(setup.harness.query_by_label("Whole run").is_none());
    setup.harness.event(egui::Event::PointerMoved(menu.center() + egui::vec2(-300.0, 80.0)));
    setup.harness.run_steps(2);
    setup.harness.event(egui::Event::Zoom(3.0));
    setup.harness.run_steps(3);
    setup.harness.get_by_label("Whole run");
    setup.harness.key_press(Key::Home);
    setup.harness.run_steps(3);
    assert!(setup.harness.query_by_label("Whole run").is_none());
}

#[test]
fn every_key_of_the_learning_rates_has_room() {
    for size in [[1280.0, 800.0], [1920.0, 1080.0]] {
        let setup = train(size, |session, _| session.run = Some(fixture::run(60, 38)));
        for name in ["weights", "batch norm", "biases"] {
            let key = setup.harness.query_all_by_role(Role::Label).find(|node| node.value().is_some_and(|text| text.starts_with(name)));
            assert!(key.is_some(), "{name} at {size:?}");
        }
    }
}

#[test]
fn what_was_saved_of_a_run_is_told_until_another_begins() {
    let mut setup = train(SIZE, |session, _| session.run = Some(fixture::run(60, 12)));
    setup.done(CommandDone::ChartSaved("runs/parts/report/loss.svg".into()));
    setup.harness.get_by_label("Saved runs/parts/report/loss.svg");
    setup.harness.state_mut().app().session.run.as_mut().unwrap().dir = None;
    setup.harness.run_steps(3);
    assert!(setup.harness.query_by_label_contains("Saved runs").is_none());
}

/// Two runs below the folder of runs.
fn write_runs(session: &mut Session, dir: &Path) {
    for (name, lr0) in [("first", 0.01), ("second", 0.002)] {
        fixture::write_run(&dir.join("runs").join(name), lr0);
    }
    session.past_runs = Some(("runs".into(), boxwright::train::past_runs::list(&dir.join("runs")).unwrap()));
}

impl Setup {
    /// Picks both runs, as if they had been read.
    fn compare(&mut self) {
        self.click("Compare");
        self.click("run first");
        self.click("run second");
        let dirs = ["first", "second"].map(|name| self.dir.path().join("runs").join(name));
        let runs = dirs.map(|dir| std::sync::Arc::new(boxwright::train::ComparedRun::read(&dir).unwrap()));
        self.harness.state_mut().app().session.compared = runs.into();
        self.harness.run_steps(3);
        self.asked();
    }

    fn type_notes(&mut self, name: &str, text: &str) {
        let label = format!("Notes on {name}");
        self.harness.get_by_label(&label).focus();
        self.harness.run_steps(2);
        self.harness.get_by_label(&label).type_text(text);
        self.harness.run_steps(2);
    }
}

#[test]
fn notes_are_kept_when_the_page_or_the_window_is_left_while_typing() {
    let mut setup = train(SIZE, write_runs);
    setup.compare();
    setup.type_notes("second", "slower");
    assert_eq!(setup.asked(), [""; 0], "it is still typed");
    setup.harness.key_press_modifiers(egui::Modifiers::ALT, Key::Num1);
    setup.harness.run_steps(3);
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].contains("SaveNotes") && asked[0].contains("text: \"slower\""), "{asked:#?}");

    setup.harness.state_mut().app().window.workspace = Workspace::Train;
    setup.harness.run_steps(2);
    setup.type_notes("first", "good");
    setup.harness.state_mut().app().close();
    let kept = std::fs::read_to_string(setup.dir.path().join("runs/first/notes.md")).unwrap();
    assert_eq!(kept, "good");
}

#[test]
fn runs_of_another_folder_are_picked_no_more_and_folders_are_not_listed_while_typed() {
    let mut setup = train(SIZE, write_runs);
    setup.compare();
    setup.harness.get_by_label("hyp.lr0");
    setup.harness.get_by_role_and_label(Role::TextInput, "Runs folder").focus();
    setup.harness.run_steps(2);
    setup.harness.get_by_role_and_label(Role::TextInput, "Runs folder").type_text("/old");
    setup.harness.run_steps(3);
    assert_eq!(setup.asked(), [""; 0]);
    setup.harness.key_press(Key::Enter);
    setup.harness.run_steps(3);
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].starts_with("ListRuns(\"") && asked[0].contains("/old"), "{asked:#?}");
    let listed = asked[0].trim_start_matches("ListRuns(\"").trim_end_matches("\")").to_owned();
    setup.harness.state_mut().app().session.past_runs = Some((listed.into(), Vec::new()));
    setup.harness.run_steps(3);
    assert_eq!(setup.asked(), ["CompareRuns([])"]);
    assert!(setup.harness.query_by_label("hyp.lr0").is_none());
    setup.harness.get_by_label("No runs yet");
}

#[test]
fn a_run_that_is_opened_is_shown() {
    let mut setup = train(SIZE, write_runs);
    setup.compare();
    let app = setup.harness.state_mut().app();
    app.session.run = Some(fixture::run(60, 12));
    let run = boxwright::train::SavedRun::read(&setup.dir.path().join("runs/second")).unwrap();
    let app = setup.harness.state_mut().app();
    app.window.on_event(&Event::RunOpened(Box::new(run)), &app.session);
    setup.harness.run_steps(3);
    setup.harness.get_by_label("Menu of Loss");
}

#[test]
fn runs_are_picked_compared_and_noted() {
    let mut setup = train(SIZE, write_runs);
    setup.click("Compare");
    assert_eq!(setup.asked(), ["ListRuns(\"runs\")"]);
    setup.click("run first");
    setup.click("run second");
    let asked = setup.asked();
    assert!(asked.last().is_some_and(|command| command.starts_with("CompareRuns([") && command.contains("second")), "{asked:#?}");
    let dirs = ["first", "second"].map(|name| setup.dir.path().join("runs").join(name));
    let runs = dirs.map(|dir| std::sync::Arc::new(boxwright::train::ComparedRun::read(&dir).unwrap()));
    setup.harness.state_mut().app().session.compared = runs.into();
    setup.harness.run_steps(3);
    setup.harness.get_by_label("hyp.lr0");
    setup.harness.get_by_label("0.002");
    setup.harness.get_by_label("Notes on second").focus();
    setup.harness.run_steps(2);
    setup.harness.get_by_label("Notes on second").type_text("slower");
    setup.harness.run_steps(2);
    setup.harness.get_by_label("Notes on first").focus();
    setup.harness.run_steps(3);
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].contains("SaveNotes") && asked[0].contains("text: \"slower\""), "{asked:#?}");
    setup.click("Open run second");
    assert!(setup.asked().iter().any(|command| command.starts_with("Open(") && command.contains("second")));
}

#[test]
fn a_file_of_hyper_parameters_is_read_and_its_fault_shown() {
    let mut setup = train(SIZE, |_, _| {});
    setup.harness.get_by_role_and_label(Role::ComboBox, "Preset").click();
    setup.harness.run_steps(2);
    setup.click("A file…");
    setup.click("Browse for hyper-parameter file");
    assert_eq!(setup.asked(), ["Browse(HypFile)"]);
    setup.done(CommandDone::Browsed { kind: boxwright::session::BrowseKind::HypFile, path: Some("hyp.yaml".into()) });
    assert!(setup.asked().contains(&"ReadHyp(\"hyp.yaml\")".to_owned()));
    setup.harness.state_mut().app().session.hyp_file = Some(("hyp.yaml".into(), Err("lr0 is fast".to_owned())));
    setup.click("All settings");
    setup.harness.get_by_label("lr0 is fast");
}

#[test]
fn a_running_training_is_paused_continued_validated_saved_and_ended_after_the_epoch() {
    let mut setup = train(SIZE, |session, _| {
        session.run = Some(fixture::run(60, 12));
        session.jobs.push(fixture::job(5, JobKind::Train, 300, 1500));
    });
    setup.harness.get_by_label("Learning: epoch 12 of 60, step 300");
    for (label, asked) in
        [("Pause", "Pause"), ("Validate now", "ValidateNow"), ("Save now", "SaveNow"), ("Stop after epoch", "StopAfterEpoch")]
    {
        setup.click(label);
        assert_eq!(setup.asked(), [format!("Steer({asked})")]);
    }
    let run = setup.harness.state_mut().app().session.run.as_mut().unwrap();
    run.steering.paused = true;
    setup.harness.run_steps(2);
    setup.harness.get_by_label_contains("Paused at epoch 12 of 60");
    setup.click("Continue");
    assert_eq!(setup.asked(), ["Steer(Continue)"]);
    setup.harness.key_press(Key::F10);
    setup.harness.run_steps(3);
    assert_eq!(setup.asked(), ["Steer(Continue)"]);
}

#[test]
fn a_stopped_run_goes_on_and_a_finished_one_gets_more_epochs() {
    let mut setup = train(SIZE, |session, _| {
        let mut run = fixture::run(60, 12);
        run.summary = Some(boxwright::train::TrainSummary { stopped: true, ..fixture::summary() });
        session.run = Some(run);
    });
    setup.harness.get_by_label("Stopped at epoch 12 of 60, step 300");
    setup.click("Resume");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].contains("run: Some(\"runs/parts\")") && asked[0].contains("epochs: None"), "{asked:#?}");
    setup.harness.state_mut().app().session.run.as_mut().unwrap().summary = Some(fixture::summary());
    setup.harness.run_steps(2);
    setup.click("Train on");
    assert_eq!(setup.asked(), [""; 0], "all epochs are done");
    fixture::write_field(&mut setup.harness, Role::SpinButton, "Epochs to train to", "90");
    setup.click("Train on");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].contains("epochs: Some(90)"), "{asked:#?}");
}

#[test]
fn a_run_that_ended_early_says_so() {
    let setup = train(SIZE, |session, _| {
        let mut run = fixture::run(100, 40);
        run.summary = Some(boxwright::train::TrainSummary { epochs_done: 40, ..fixture::summary() });
        session.run = Some(run);
    });
    setup.harness.get_by_label("Ended early: 40 of 100 epochs");
}

#[test]
fn a_run_whose_numbers_ran_away_names_step_and_images_and_rewinds() {
    let mut setup = train(SIZE, |session, _| {
        let mut run = fixture::run(60, 12);
        let image = session.dataset.as_ref().unwrap().dataset.images[0].path.clone();
        let (what, value) = ("loss".to_owned(), "NaN".to_owned());
        run.divergence = Some(boxwright::train::Divergence { epoch: 11, step: 299, what, value, images: vec![image] });
        session.run = Some(run);
    });
    setup.harness.get_by_label("The loss became NaN at step 300 of epoch 12");
    setup.harness.get_by_label("image of the step part0.png");
    setup.click("Rewind and go on");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].contains("Resume(") && asked[0].contains("lr_scale: Some(0.5)"), "{asked:#?}");
}

#[test]
fn before_the_start_batches_are_shown_one_is_tried_and_findings_lead_to_the_check() {
    let mut setup = train(SIZE, |session, _| {
        session.report = Some(std::sync::Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 30)));
    });
    setup.click("Before");
    setup.harness.get_by_label("scratch: 2 boxes");
    setup.click("Preview");
    assert!(setup.asked()[0].starts_with("PreviewBatches(TrainConfig"));
    setup.click("Try one batch");
    assert!(setup.asked()[0].starts_with("OverfitCheck { config: TrainConfig"));
    setup.harness.state_mut().app().session.overfit = Some(fixture::overfit_report());
    setup.harness.run_steps(2);
    setup.harness.get_by_label("learns");
    setup.harness.get_by_label_contains(" in the labels");
    let mut run = fixture::run(60, 12);
    run.batch_pictures = vec!["runs/parts/report/train_batch0.jpg".into()];
    setup.harness.state_mut().app().session.run = Some(run);
    setup.harness.run_steps(2);
    setup.harness.get_by_label("From run parts");
    setup.click("Look");
    assert_eq!(setup.harness.state_mut().app().window.workspace, Workspace::Check);
}

#[test]
fn detections_are_looked_at_from_epoch_to_epoch() {
    let mut setup = train(SIZE, |session, _| {
        let mut run = fixture::run(60, 12);
        run.samples = fixture::samples(session, 12);
        session.run = Some(run);
    });
    setup.click("Detections");
    setup.harness.get_by_label("sample part0.png: 2 detections");
    for _ in 0..11 {
        setup.harness.key_press(Key::ArrowLeft);
        setup.harness.run_steps(1);
    }
    setup.harness.get_by_label("sample part0.png: 2 detections");
    setup.harness.get_by_role_and_label(Role::Slider, "Epoch of the detections");
    setup.harness.key_press(Key::D);
    setup.harness.run_steps(2);
    assert_eq!(setup.asked(), [""; 0]);
}

#[test]
fn runs_wait_move_and_leave_and_a_sweep_is_started() {
    let mut setup = train(SIZE, |session, _| {
        session.queue.is_held = true;
        for name in ["one", "two"] {
            let config = boxwright::train::TrainConfig { name: name.to_owned(), ..boxwright::train::TrainConfig::new(Path::new("d")) };
            session.apply(boxwright::session::Command::Enqueue(Box::new(config)));
        }
        session.sweep = fixture::sweep_rows();
    });
    setup.click("Queue");
    setup.click("Move two up");
    assert_eq!(setup.asked(), ["MoveQueued { id: 2, to: 0 }"]);
    setup.click("Take one out");
    assert_eq!(setup.asked(), ["Unqueue(1)"]);
    setup.click("Add to queue");
    assert!(setup.asked()[0].starts_with("Enqueue(TrainConfig"));
    setup.harness.get_by_label("step 12 of epoch 0: the loss is NaN");
    fixture::write_field(&mut setup.harness, Role::TextInput, "Values 1", "0.01, 0.001");
    setup.click("Vary another");
    setup.harness.get_by_role_and_label(Role::ComboBox, "Varied value 2").click();
    setup.harness.run_steps(2);
    setup.harness.get_by_role_and_label(Role::Button, "lr0").click_accesskit();
    setup.harness.run_steps(3);
    fixture::write_field(&mut setup.harness, Role::TextInput, "Values 2", "0.02");
    setup.harness.get_by_label_contains("\"lr0\" is varied twice");
    setup.click("Start sweep");
    assert_eq!(setup.asked(), [""; 0]);
    setup.harness.get_all_by_label("Remove").last().unwrap().click();
    setup.harness.run_steps(3);
    setup.click("Start 2 runs");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].starts_with("Sweep(SweepRequest") && asked[0].contains("key: \"lr0\""), "{asked:#?}");
}

#[test]
fn an_alarm_says_what_why_and_what_to_do() {
    let mut setup = train(SIZE, |session, _| {
        let mut run = fixture::run(60, 38);
        run.alarms = fixture::alarms();
        session.run = Some(run);
    });
    setup.harness.get_by_label("The training waits 41 % of its time for images, and 5 % was usual");
    setup.harness.get_by_label("What to do: put the images on a faster disk, or make them smaller");
    setup.click("1 earlier");
    setup.harness.get_by_label("The gradient norm is 31.0, and 9.1 was usual");
}

/// Vertices of a frame of the workspace over a run, and the times of some frames in milliseconds, sorted.
fn frame_cost(n_epochs: usize) -> (usize, Vec<f64>) {
    let mut setup = train([1920.0, 1080.0], |session, _| {
        session.run = Some(fixture::run(n_epochs, n_epochs));
        session.jobs.push(fixture::job(5, JobKind::Train, 1, 2));
    });
    // Curves are taken in over some frames.
    let mut taking_in: f64 = 0.0;
    for _ in 0..60 {
        setup.harness.run_steps(1);
        taking_in = taking_in.max(setup.harness.state().frame_ms);
    }
    eprintln!("{} steps are taken in within {taking_in:.1} ms a frame", n_epochs * 25);
    let mut times = Vec::new();
    let mut n_vertices = 0;
    for _ in 0..200 {
        setup.harness.run_steps(1);
        let start = std::time::Instant::now();
        let output = setup.harness.output();
        let meshes = setup.harness.ctx.tessellate(output.shapes.clone(), output.pixels_per_point);
        times.push(setup.harness.state().frame_ms + start.elapsed().as_secs_f64() * 1e3);
        n_vertices = meshes
            .iter()
            .map(|mesh| match &mesh.primitive {
                egui::epaint::Primitive::Mesh(mesh) => mesh.vertices.len(),
                egui::epaint::Primitive::Callback(_) => 0,
            })
            .sum();
    }
    times.sort_by(f64::total_cmp);
    (n_vertices, times)
}

#[test]
fn a_frame_draws_as_much_for_a_hundred_thousand_steps_as_for_some_thousand() {
    let (few, _) = frame_cost(200);
    let (many, times) = frame_cost(4000);
    eprintln!(
        "100,000 steps: {many} vertices a frame (5,000 steps: {few}); frame work p50 {:.2} ms, p99 {:.2} ms",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    assert!(many < few * 3 / 2, "{many} vertices for 100,000 steps, {few} for 5,000");
}
