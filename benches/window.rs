//! What does the window cost? The same short training without it, and with it drawn whenever it asks to be, in turns.
//!
//! `cargo bench --bench window -- [DATA [DEVICE [MODEL [BATCH [IMGSZ [EPOCHS [ROUNDS]]]]]]]` prints the seconds an epoch of both
//! (all but the first, which plans and warms up), their ratio, and what a frame takes of this program's own time, without
//! painting. The window shows the run with all its plots, and is painted with whatever the machine paints with.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use boxwright::engine::Device;
use boxwright::gui::action::Workspace;
use boxwright::gui::app::App;
use boxwright::session::{Command, Event, JobKind, Session, Settings};
use boxwright::train::{BatchChoice, TrainConfig, TrainEvent};
use egui_kittest::Harness;

/// Between two frames at least, as on a screen.
const FRAME: Duration = Duration::from_micros(16_667);
/// After which the window draws what a training told.
const CALM: Duration = Duration::from_millis(100);
/// In points.
const SIZE: [f32; 2] = [1920.0, 1080.0];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let arg = |index: usize, default: &str| args.get(index).map_or_else(|| default.to_owned(), Clone::clone);
    let number = |index: usize, default: &str| arg(index, default).parse::<usize>().expect("a whole number");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let config = TrainConfig {
        model: arg(2, "yolov9-t").parse().expect("a model's name"),
        batch: BatchChoice::Count(number(3, "8")),
        imgsz: number(4, "160") as u32,
        epochs: number(5, "3"),
        device: arg(1, "cpu").parse::<usize>().map_or(Device::Cpu, Device::Cuda),
        project: dir.path().join("runs"),
        ..TrainConfig::new(Path::new(&arg(0, "datasets/parts")))
    };
    let (mut without, mut with, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..number(6, "2") {
        without.extend(headless(dir.path(), &config));
        let (secs, ms) = in_window(dir.path(), &config);
        println!("round {}: {} epochs without, {} with the window, {} frames", round + 1, without.len(), secs.len(), ms.len());
        with.extend(secs);
        frames.extend(ms);
    }
    let [plain, drawn] = [&mut without, &mut with].map(|secs| at(secs, 0.5));
    println!("seconds an epoch, median: {plain:.4} without, {drawn:.4} with the window; lost {:.2} %", (drawn / plain - 1.0) * 100.0);
    let [median, most] = [0.5, 0.99].map(|share| at(&mut frames, share));
    println!("a frame's own work: {median:.2} ms median, {most:.2} ms p99, {:.2} ms most", at(&mut frames, 1.0));
}

/// A session whose jobs set a flag when they have told something: at once, or when it can wait.
fn session(dir: &Path, [now, later]: &[Arc<AtomicBool>; 2]) -> Session {
    let set = |flag: &Arc<AtomicBool>| {
        let flag = Arc::clone(flag);
        Arc::new(move || flag.store(true, Ordering::Relaxed))
    };
    let mut session = Session::new(Settings::in_dir(&dir.join("state")), set(now));
    session.set_calm_wake(set(later));
    session
}

fn secs_of(events: &[Event], secs: &mut Vec<f64>) {
    secs.extend(events.iter().filter_map(|event| match event {
        Event::Train(TrainEvent::Epoch(report)) if report.epoch > 0 => Some(report.secs),
        Event::Failed { failure, .. } => panic!("{}", failure.message),
        _ => None,
    }));
}

fn headless(dir: &Path, config: &TrainConfig) -> Vec<f64> {
    let mut session = session(dir, &Default::default());
    session.apply(Command::Train(Box::new(config.clone())));
    let mut secs = Vec::new();
    while let Some(event) = session.wait() {
        secs_of(&[event], &mut secs);
    }
    secs
}

/// Seconds of the epochs, and milliseconds of the frames.
fn in_window(dir: &Path, config: &TrainConfig) -> (Vec<f64>, Vec<f64>) {
    let flags = <[Arc<AtomicBool>; 2]>::default();
    let mut harness = Harness::builder().with_size(SIZE).wgpu().build_ui_state(
        |ui, (app, ms, secs): &mut (Option<App>, Vec<f64>, Vec<f64>)| {
            let builder = egui::UiBuilder::new().max_rect(ui.ctx().content_rect());
            let ui = &mut ui.new_child(builder);
            ui.set_clip_rect(ui.max_rect());
            let Some(app) = app else {
                let mut new = App::new(ui.ctx(), session(dir, &flags));
                new.window.workspace = Workspace::Train;
                *app = Some(new);
                return;
            };
            let start = Instant::now();
            let events = app.logic(ui.ctx());
            app.ui(ui);
            ms.push(start.elapsed().as_secs_f64() * 1e3);
            secs_of(&events, secs);
        },
        (None, Vec::new(), Vec::new()),
    );
    for _ in 0..4 {
        harness.step();
        harness.render().expect("a picture of the window");
    }
    harness.state_mut().0.as_mut().expect("made in the first frame").session.apply(Command::Train(Box::new(config.clone())));
    // Fonts and shaders were loaded.
    harness.state_mut().1.clear();
    let mut drawn = Instant::now();
    while harness.state().0.as_ref().is_some_and(|app| app.session.is_running(JobKind::Train)) {
        std::thread::sleep(FRAME.saturating_sub(drawn.elapsed()));
        let asked = harness.output().viewport_output.values().map(|output| output.repaint_delay).min().unwrap_or(Duration::MAX);
        let [now, later] = &flags;
        let is_calm = drawn.elapsed() < CALM;
        if now.swap(false, Ordering::Relaxed) || (!is_calm && later.swap(false, Ordering::Relaxed)) || drawn.elapsed() >= asked {
            drawn = Instant::now();
            harness.step();
            harness.render().expect("a picture of the window");
        } else {
            std::thread::sleep(FRAME);
        }
    }
    let (_, ms, secs) = harness.state_mut();
    (std::mem::take(secs), std::mem::take(ms))
}

/// The value that this share of the values does not exceed.
fn at(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * share).ceil() as usize).clamp(1, values.len()) - 1]
}
