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
    assert!(setup.harness.query_by_label("Menu of Gradient norm").is_none());
    setup.click("Plots");
    setup.harness.get_by_role_and_label(Role::CheckBox, "Gradient norm").click();
    setup.harness.run_steps(3);
    setup.harness.key_press(Key::Escape);
    setup.harness.run_steps(3);
    setup.click("Menu of Gradient norm");
    setup.click("Save as SVG drawing");
    let asked = setup.asked();
    assert!(asked.len() == 1 && asked[0].starts_with("SaveChart { path: \"runs/parts/report/gradient.svg\""), "{asked:#?}");
    setup.done(CommandDone::ChartSaved("runs/parts/report/gradient.svg".into()));
    setup.harness.get_by_label("Saved runs/parts/report/gradient.svg");
    setup.click("Menu of Loss");
    setup.click("Hide this plot");
    assert!(setup.harness.query_by_label("Menu of Loss").is_none());
}

#[test]
fn runs_are_picked_compared_and_noted() {
    let mut setup = train(SIZE, |session, dir| {
        for (name, lr0) in [("first", 0.01), ("second", 0.002)] {
            fixture::write_run(&dir.join("runs").join(name), lr0);
        }
        session.past_runs = Some(("runs".into(), boxwright::train::past_runs::list(&dir.join("runs")).unwrap()));
    });
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

/// Vertices of a frame of the workspace over a run, and the times of some frames in milliseconds, sorted.
fn frame_cost(n_epochs: usize) -> (usize, Vec<f64>) {
    let mut setup = train([1920.0, 1080.0], |session, _| {
        session.run = Some(fixture::run(n_epochs, n_epochs));
        session.jobs.push(fixture::job(5, JobKind::Train, 1, 2));
    });
    // Curves are taken in over some frames.
    setup.harness.run_steps(60);
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
