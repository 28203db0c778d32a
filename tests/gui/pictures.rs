//! Pictures of every workspace, to be looked at: written into the folder that `BOXWRIGHT_PICTURES` names, for the dataset
//! that `BOXWRIGHT_PICTURES_DATA` names. Without these variables nothing happens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwright::gui::action::Workspace;
use boxwright::gui::plots::PlotKind;
use boxwright::session::{CommandDone, Conflict, Event, JobId, JobKind, Settings, ThemeChoice};

use egui::accesskit::Role;
use egui_kittest::kittest::Queryable;

use crate::fixture;
use crate::script::wait_for;

#[test]
fn pictures_of_every_workspace() {
    let Some(out) = std::env::var_os("BOXWRIGHT_PICTURES").map(PathBuf::from) else { return };
    let data = std::env::var_os("BOXWRIGHT_PICTURES_DATA").map(PathBuf::from).unwrap();
    let only = std::env::var("BOXWRIGHT_PICTURES_ONLY").unwrap_or_default();
    std::fs::create_dir_all(&out).unwrap();
    for theme in [ThemeChoice::Dark, ThemeChoice::Light] {
        for size in [[1280.0, 800.0], [1920.0, 1080.0]] {
            for scene in SCENES {
                let name = format!("{}-{}-{theme:?}.png", scene.0, size[0]).to_lowercase();
                if name.contains(&only) {
                    draw(&out.join(&name), &data, theme, size, *scene);
                }
            }
        }
    }
}

type Scene = (&'static str, Workspace, bool);

const SCENES: &[Scene] = &[
    ("welcome", Workspace::Data, false),
    ("grid", Workspace::Data, true),
    ("list", Workspace::Data, true),
    ("query", Workspace::Data, true),
    ("wrong", Workspace::Data, true),
    ("statistics", Workspace::Data, true),
    ("map", Workspace::Data, true),
    ("menu", Workspace::Data, true),
    ("tags", Workspace::Data, true),
    ("nothing", Workspace::Data, true),
    ("image", Workspace::Data, true),
    ("conflict", Workspace::Data, true),
    ("edit", Workspace::Data, true),
    ("draw", Workspace::Data, true),
    ("pixels", Workspace::Data, true),
    ("classes", Workspace::Data, true),
    ("view", Workspace::Data, true),
    ("uncheck", Workspace::Check, true),
    ("check", Workspace::Check, true),
    ("fix", Workspace::Check, true),
    ("untrain", Workspace::Train, true),
    ("running", Workspace::Train, true),
    ("trained", Workspace::Train, true),
    ("settings", Workspace::Train, true),
    ("plots", Workspace::Train, true),
    ("compare", Workspace::Train, true),
    ("before", Workspace::Train, true),
    ("samples", Workspace::Train, true),
    ("queue", Workspace::Train, true),
    ("diverged", Workspace::Train, true),
    ("undetect", Workspace::Detect, true),
    ("detect", Workspace::Detect, true),
    ("export", Workspace::Export, true),
    ("help", Workspace::Data, true),
    ("keys", Workspace::Data, true),
    ("palette", Workspace::Data, true),
    ("prelabel", Workspace::Data, true),
    ("proposals", Workspace::Data, true),
    ("class-page", Workspace::Data, true),
    ("splits", Workspace::Data, true),
];

/// The label editor in the middle of some work.
fn editor_scene(harness: &mut fixture::Driver, name: &str) {
    harness.run_steps(2);
    harness.key_press(egui::Key::G);
    harness.key_press(egui::Key::D);
    wait_for(harness, "canvas");
    for _ in 0..60 {
        harness.run_steps(1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let canvas = harness.get_by_label("canvas").rect();
    match name {
        "edit" => {
            harness.key_press(egui::Key::Tab);
            harness.run_steps(2);
            harness.key_press(egui::Key::L);
            harness.key_press(egui::Key::Tab);
        }
        "draw" => {
            harness.key_press(egui::Key::W);
            harness.drag_at(canvas.center() - egui::vec2(120.0, 90.0));
            harness.run_steps(1);
            harness.hover_at(canvas.center() + egui::vec2(60.0, 40.0));
        }
        "pixels" => {
            harness.key_press(egui::Key::Tab);
            harness.run_steps(2);
            harness.key_press(egui::Key::X);
            harness.run_steps(2);
            for _ in 0..5 {
                harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::Plus);
            }
        }
        "classes" => {
            harness.key_press(egui::Key::Tab);
            harness.run_steps(2);
            harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::E);
        }
        _ => harness.get_by_label("View").click(),
    }
    harness.run_steps(3);
}

fn draw(path: &Path, data: &Path, theme: ThemeChoice, size: [f32; 2], (name, workspace, has_data): Scene) {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::in_dir(dir.path());
    settings.theme = theme;
    if name == "welcome" {
        settings.recent = vec!["/home/mira/datasets/parts/data.yaml".into(), "/data/bccd/data.yaml".into()];
    }
    let mut session = boxwright::session::Session::new(settings, Arc::new(|| {}));
    if has_data {
        fixture::open(&mut session, data);
    }
    match name {
        "check" => session.report = Some(Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 137))),
        "fix" => {
            session.report = Some(Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 137)));
            session.receipt = Some(fixture::receipt());
        }
        "running" | "plots" => {
            session.run = Some(fixture::run(60, 38));
            session.jobs.push(fixture::job(1, JobKind::Train, 950, 1500));
        }
        "before" => {
            session.report = Some(Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 137)));
            session.overfit = Some(fixture::overfit_report());
        }
        "samples" => {
            let mut run = fixture::run(60, 38);
            run.samples = fixture::samples(&session, 38);
            session.run = Some(run);
        }
        "diverged" => {
            let mut run = fixture::run(60, 38);
            let images = session.dataset.as_ref().unwrap().dataset.images.iter().take(8).map(|image| image.path.clone()).collect();
            let (what, value) = ("loss".to_owned(), "NaN".to_owned());
            run.divergence = Some(boxwright::train::Divergence { epoch: 37, step: 949, what, value, images });
            run.alarms = fixture::alarms();
            session.run = Some(run);
        }
        "queue" => {
            session.sweep = fixture::sweep_rows();
            session.queue.is_held = true;
            for name in ["parts-small", "parts-large"] {
                let config = boxwright::train::TrainConfig { name: name.to_owned(), ..boxwright::train::TrainConfig::new(data) };
                session.apply(boxwright::session::Command::Enqueue(Box::new(config)));
            }
        }
        "trained" => {
            let mut run = fixture::run(60, 60);
            run.summary = Some(fixture::summary());
            session.run = Some(run);
            session.weights = Some("runs/parts/weights/best.safetensors".into());
        }
        "detect" => {
            session.weights = Some("runs/parts/weights/best.safetensors".into());
            let names = session.dataset.as_ref().unwrap().dataset.names.clone();
            session.detection_names = names;
            session.detections = fixture::detections(&session);
        }
        "export" => {
            session.weights = Some("runs/parts/weights/best.safetensors".into());
            session.export = Some(fixture::export_report());
        }
        "prelabel" => session.weights = Some("runs/parts/weights/best.safetensors".into()),
        "proposals" => {
            let boxes = [(0, [0.3, 0.35, 0.12, 0.2], 0.91), (1, [0.62, 0.6, 0.2, 0.16], 0.57), (2, [0.75, 0.3, 0.08, 0.22], 0.33)];
            fixture::propose(&mut session, 0, &boxes);
        }
        "grid" | "list" | "statistics" | "menu" | "tags" => fixture::look_through(&mut session),
        "undetect" => session.notices.push(fixture::error_notice()),
        _ => {}
    }
    let dataset = session.dataset.as_ref().map(|open| open.dataset.clone());
    let mut harness = fixture::harness(session, size, true);
    let app = harness.state_mut().app();
    app.window.workspace = workspace;
    if let Some(dataset) = dataset {
        app.window.on_event(&Event::Opened(dataset), &app.session);
        app.window.workspace = workspace;
    }
    match name {
        "fix" => {
            let done = CommandDone::Fixed { receipt: fixture::receipt(), dry_run: true };
            app.window.on_event(&Event::Finished { job: JobId(1), done }, &app.session);
        }
        "image" | "conflict" => {
            harness.run_steps(2);
            harness.key_press(egui::Key::G);
            harness.key_press(egui::Key::D);
            if name == "conflict" {
                harness.run_steps(2);
                let session = &mut harness.state_mut().app().session;
                let shown = session.labels(1).to_vec();
                session.conflicts.push(Conflict { image: 1, base: shown[..].into(), mine: shown[1..].into(), theirs: shown.into() });
            }
        }
        "edit" | "draw" | "pixels" | "classes" | "view" => editor_scene(&mut harness, name),
        "list" => {
            harness.run_steps(2);
            harness.key_press(egui::Key::V);
            harness.run_steps(2);
            harness.get_by_label("Sort by boxes").click();
            for _ in 0..3 {
                harness.key_press_modifiers(egui::Modifiers::SHIFT, egui::Key::ArrowDown);
                harness.run_steps(2);
            }
        }
        "query" | "wrong" | "nothing" => {
            harness.run_steps(2);
            harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::F);
            harness.run_steps(2);
            let text = match name {
                "query" => "class:dent -split:val re",
                "wrong" => "split:train class:dnet boxes>1",
                _ => "boxes>100",
            };
            harness.event(egui::Event::Text(text.to_owned()));
            harness.run_steps(3);
            if name == "wrong" {
                harness.key_press(egui::Key::Escape);
            }
        }
        "statistics" | "map" => {
            harness.run_steps(2);
            harness.get_by_label("Statistics").click();
            wait_for(&mut harness, "bar dent of classes");
            if name == "map" {
                harness.get_by_label("boxes by place").scroll_to_me();
            } else {
                harness.get_all_by_label_contains("bar ").last().unwrap().click();
            }
        }
        "menu" | "tags" => {
            harness.run_steps(2);
            for key in [egui::Key::ArrowDown, egui::Key::ArrowRight] {
                harness.key_press_modifiers(egui::Modifiers::SHIFT, key);
                harness.run_steps(2);
            }
            if name == "tags" {
                harness.key_press(egui::Key::T);
            } else {
                harness.get_all_by_label_contains("image ").nth(3).unwrap().click_secondary();
            }
        }
        "help" => harness.key_press(egui::Key::F1),
        "keys" => {
            harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::K);
            harness.run_steps(3);
            harness.get_by_label("Add keys to Grid").click();
            harness.run_steps(3);
            harness.key_press(egui::Key::D);
        }
        "palette" => {
            harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::P);
            harness.run_steps(3);
            harness.get_by_label("Command").type_text("pro");
        }
        "prelabel" => harness.key_press(egui::Key::I),
        "class-page" => {
            harness.key_press_modifiers(egui::Modifiers::COMMAND | egui::Modifiers::SHIFT, egui::Key::C);
            harness.run_steps(3);
            harness.get_by_label("Colour of dent").click();
        }
        "splits" => {
            harness.run_steps(3);
            harness.get_by_label("Split…").click();
            harness.run_steps(3);
            harness.get_by_label("Preview").click();
            wait_for(&mut harness, "Background");
        }
        "proposals" => harness.key_press(egui::Key::G),
        "settings" => {
            harness.run_steps(3);
            for label in ["All settings", "Optimizer", "Augmentation"] {
                harness.get_by_label(label).click();
                harness.run_steps(3);
            }
            fixture::write_field(&mut harness, Role::SpinButton, "Learning rate", "0.002");
            harness.get_by_label("Augmentation").scroll_to_me();
        }
        "plots" => {
            harness.run_steps(3);
            harness.get_by_label("Plots").click();
            harness.run_steps(3);
            for kind in PlotKind::ALL {
                let title = kind.info().title;
                if harness.query_by_label(&format!("Menu of {title}")).is_none() {
                    harness.get_by_role_and_label(Role::CheckBox, title).click();
                    harness.run_steps(2);
                }
            }
            harness.key_press(egui::Key::Escape);
        }
        "before" | "samples" | "queue" => {
            harness.run_steps(3);
            let page = match name {
                "before" => "Before",
                "samples" => "Detections",
                _ => "Queue",
            };
            harness.get_by_label(page).click();
            harness.run_steps(3);
            if name == "before" {
                harness.get_by_label("Preview").click();
                wait_for(&mut harness, "batch 1");
            }
            if name == "queue" {
                fixture::write_field(&mut harness, Role::TextInput, "Values 1", "0.01, 0.003, 0.001");
            }
        }
        "compare" => {
            harness.run_steps(3);
            for (name, lr0) in [("first", 0.01), ("slower", 0.002), ("between", 0.006)] {
                fixture::write_run(&dir.path().join("runs").join(name), lr0);
            }
            fixture::write_field(&mut harness, Role::TextInput, "Runs folder", &dir.path().join("runs").display().to_string());
            harness.get_by_label("Compare").click();
            wait_for(&mut harness, "run first");
            for name in ["run first", "run slower", "run between"] {
                harness.get_by_label(name).click();
                harness.run_steps(3);
            }
            wait_for(&mut harness, "hyp.lr0");
        }
        _ => {}
    }
    // Pictures come from worker threads.
    for _ in 0..60 {
        harness.run_steps(1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    harness.render().unwrap().save(path).unwrap();
}
