//! A small dataset on disk, sessions with content, and the harness.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwright::dataset::check::{CheckReport, Finding, Fixability, Rule, Severity};
use boxwright::dataset::edit::{Mark, Review};
use boxwright::dataset::fix::{Receipt, RowChange};
use boxwright::dataset::{ClassId, Dataset, Label};
use boxwright::detect::PictureDetections;
use boxwright::engine::cuda::nvml::GpuFigures;
use boxwright::eval::{ClassMetrics, Metrics};
use boxwright::export::ExportReport;
use boxwright::geom::nms::Detection;
use boxwright::geom::{Size, Xywhn};
use boxwright::gui::app::App;
use boxwright::media::{Picture, encode};
use boxwright::session::{Command, JobId, JobKind, JobStatus, Notice, OpenDataset, PictureResult, Proposal, RunView, Session, Settings};
use boxwright::train::{Alarm, AlarmKind, BranchLosses, EpochReport, EpochSamples, MachineReport, OverfitReport, OverfitVerdict};
use boxwright::train::{SampleBox, SampleImage, StepReport, SweepRow, TrainPlan, TrainSummary};
use egui::accesskit::Role;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;

/// Writes six pictures of 96 x 64 with labels: four to train, two to validate, one of them without labels.
pub(crate) fn write_dataset(root: &Path) -> PathBuf {
    let labels = [
        "0 0.5 0.5 0.25 0.5\n1 0.2 0.25 0.2 0.3\n",
        "1 0.4 0.4 0.3 0.3\n",
        "0 0.95 0.5 0.2 0.2\n",                   // reaches past the right edge
        "1 0.5 0.5 0.2 0.2\n1 0.5 0.5 0.2 0.2\n", // the second is a duplicate
        "0 0.3 0.6 0.2 0.3\n",
        "",
    ];
    for (index, text) in labels.iter().enumerate() {
        let split = if index < 4 { "train" } else { "val" };
        for folder in ["images", "labels"] {
            std::fs::create_dir_all(root.join(folder).join(split)).unwrap();
        }
        let picture = picture(Size::new(96, 64), index as u8);
        encode::encode(&root.join(format!("images/{split}/part{index}.png")), &picture, 90).unwrap();
        if !text.is_empty() {
            std::fs::write(root.join(format!("labels/{split}/part{index}.txt")), text).unwrap();
        }
    }
    let yaml = root.join("data.yaml");
    std::fs::write(&yaml, format!("path: {}\ntrain: images/train\nval: images/val\nnames: [scratch, dent]\n", root.display())).unwrap();
    yaml
}

/// A gray gradient with a brighter square, different for each seed.
fn picture(size: Size, seed: u8) -> Picture {
    let mut rgb = Vec::new();
    for y in 0..size.height {
        for x in 0..size.width {
            let is_part = x.abs_diff(size.width / 2) < 20 && y.abs_diff(size.height / 2) < 16;
            let shade = (x + y) as u8 / 2 + seed * 12 + if is_part { 70 } else { 20 };
            rgb.extend([shade, shade, shade.saturating_add(8)]);
        }
    }
    Picture { size, rgb }
}

/// A session that keeps its files in `dir`.
pub(crate) fn session(dir: &Path) -> Session {
    Session::new(Settings::in_dir(&dir.join("state")), Arc::new(|| {}))
}

/// Opens a dataset without a job.
pub(crate) fn open(session: &mut Session, path: &Path) {
    let dataset = Dataset::open(path).unwrap();
    let labels = dataset.images.iter().map(|image| dataset.labels(image).unwrap().into()).collect();
    session.dataset = Some(OpenDataset { labels: Arc::new(labels), ..OpenDataset::new(Arc::new(dataset)) });
}

/// Findings as a check would make them, `n` of them spread over the dataset.
pub(crate) fn report(dataset: &Dataset, n: usize) -> CheckReport {
    let kinds = [
        (Rule::OutOfRange, Severity::Error, Fixability::Auto, "box ends at x = 1.0500, 5 % of its width past the right edge"),
        (Rule::DuplicateRow, Severity::Warning, Fixability::Auto, "the same as line 1"),
        (Rule::ClassOutsideNames, Severity::Error, Fixability::Ask, "class 7 is not one of the dataset's 2 classes"),
        (Rule::ZeroSize, Severity::Error, Fixability::Auto, "width is 0"),
        (Rule::ImageWithoutLabel, Severity::Info, Fixability::None, "no label file: a background image"),
    ];
    let findings = (0..n).map(|index| {
        let (rule, severity, fix, message) = kinds[(index * 7 / 3) % kinds.len()];
        let image = index % dataset.images.len();
        let file = dataset.images[image].label_path.strip_prefix(&dataset.root).unwrap_or(&dataset.images[image].label_path).to_owned();
        let bbox = (rule != Rule::ImageWithoutLabel).then_some(Xywhn { cx: 0.95, cy: 0.5, w: 0.2, h: 0.2 });
        Finding { rule, severity, fix, file, image: Some(image), line: bbox.map(|_| index % 5 + 1), bbox, message: message.to_owned() }
    });
    CheckReport {
        findings: findings.collect(),
        n_images: dataset.images.len(),
        n_label_files: dataset.images.len(),
        n_rows: 3 * n,
        images: Arc::default(),
    }
}

/// Marks as a person leaves them who looked through the first images, and a check with some findings.
pub(crate) fn look_through(session: &mut Session) {
    let open = session.dataset.as_mut().unwrap();
    let mark = |image: usize| {
        let is_background = open.labels[image].is_empty();
        let review = match image {
            0..9 if is_background => Review::Empty,
            0..9 => Review::Reviewed,
            _ => Review::Unreviewed,
        };
        let tags: &[&str] = match image % 7 {
            1 => &["blurred"],
            4 => &["blurred", "night shift", "reflection"],
            _ => &[],
        };
        Mark { review, tags: tags.iter().map(|&tag| tag.to_owned()).collect() }
    };
    open.marks = Arc::new((0..open.dataset.images.len()).map(mark).collect());
    session.report = Some(Arc::new(report(&session.dataset.as_ref().unwrap().dataset, 11)));
}

/// What a dry run would list.
pub(crate) fn receipt() -> Receipt {
    let change = |file: &str, line, rule, before: &str, after: Option<&str>| RowChange {
        file: file.into(),
        line,
        rule,
        before: before.to_owned(),
        after: after.map(ToOwned::to_owned),
    };
    let changes = vec![
        change("labels/train/part2.txt", 1, Rule::OutOfRange, "0 0.95 0.5 0.2 0.2", Some("0 0.925 0.5 0.15 0.2")),
        change("labels/train/part3.txt", 2, Rule::DuplicateRow, "1 0.5 0.5 0.2 0.2", None),
    ];
    let files = changes.iter().map(|change| change.file.clone()).collect();
    Receipt { changes, files, ..Receipt::default() }
}

fn metrics(map50: f64) -> Metrics {
    let class = |class, ap50: f64| ClassMetrics { class, n_labels: 40, precision: 0.9, recall: 0.84, ap50, ap50_95: ap50 * 0.6 };
    Metrics {
        n_images: 40,
        n_labels: 96,
        precision: (map50 * 0.98).min(1.0),
        recall: map50 * 0.93,
        map50,
        map50_95: map50 * 0.62,
        best_conf: 0.41,
        classes: vec![class(0, map50), class(1, map50 * 0.95)],
    }
}

/// A run of `n_wanted` epochs of which `n_done` are over.
pub(crate) fn run(n_wanted: usize, n_done: usize) -> RunView {
    let steps_per_epoch = 25;
    let noise = |index: usize| ((index * 7919 + 13) % 101) as f32 / 101.0 - 0.5;
    let steps = (0..steps_per_epoch * n_done).map(|step| {
        let t = step as f32 / (steps_per_epoch * n_wanted) as f32;
        let decay = (-4.0 * t).exp();
        StepReport {
            epoch: step / steps_per_epoch,
            step,
            box_loss: 1.1 + 2.6 * decay + 0.5 * noise(step),
            cls_loss: 0.5 + 3.4 * decay + 0.6 * noise(step + 31),
            dfl_loss: 0.9 + 1.2 * decay + 0.2 * noise(step + 57),
            lr: f64::from(0.02 * (0.5 + 0.5 * (std::f32::consts::PI * t).cos()) * (step as f32 / 60.0).min(1.0)),
            grad_norm: 9.0 + 4.0 * noise(step + 3),
            images_per_sec: 41.0 + 3.0 * noise(step + 11),
            main: Some(branch(0.6 + decay, noise(step))),
            aux: Some(branch(0.4 + 0.6 * decay, noise(step + 7))),
            lrs: [0.1, 0.02, 0.02].map(|rate| rate * f64::from(0.5 + 0.5 * (std::f32::consts::PI * t).cos())),
            clipped: step % 9 == 0,
            update_ratio: Some(0.002 * (1.0 + 0.4 * noise(step + 5)) * (0.2 + decay)),
            data_wait: Some(0.05 + 0.04 * noise(step + 2)),
            ..StepReport::default()
        }
    });
    let epochs = (0..n_done).map(|epoch| {
        let t = epoch as f64 / n_wanted as f64;
        let map50 = (0.93 * (1.0 - (-5.0 * (t - 0.05).max(0.0)).exp())).max(0.0) + 0.02 * f64::from(noise(epoch * 3));
        let (metrics, lr) = (metrics(map50.max(0.0)), [0.02; 3]);
        EpochReport { epoch, box_loss: 1.4, cls_loss: 0.8, dfl_loss: 1.0, metrics, lr, secs: 5.2, ..EpochReport::default() }
    });
    RunView {
        plan: Some(TrainPlan {
            run_dir: "runs/parts".into(),
            n_train_images: 200,
            n_val_images: 40,
            n_labels: 486,
            steps_per_epoch,
            epochs: n_wanted,
            n_parameters: 2_658_454,
            planned_bytes: 612_000_000,
            device_bytes: None,
            dropped: vec!["labels/train/part17.txt line 3: box without width".to_owned()],
            batch: 8,
            class_boxes: Vec::new(),
            n_backgrounds: 0,
            n_broken: 0,
        }),
        steps: steps.collect(),
        epochs: epochs.collect(),
        dir: Some("runs/parts".into()),
        machine: (0..n_done * 5).map(|second| machine(second as f64, noise(second))).collect(),
        notes: vec!["hyper-parameters `small`, because the train split has fewer than 1000 pictures (200)".to_owned()],
        epochs_wanted: n_wanted,
        ..RunView::default()
    }
}

fn branch(size: f32, noise: f32) -> BranchLosses {
    BranchLosses { box_loss: size + 0.2 * noise, cls_loss: size, dfl_loss: 0.5 * size }
}

fn machine(secs: f64, noise: f32) -> MachineReport {
    let gpu = GpuFigures {
        load: Some(0.93 + 0.1 * noise),
        memory_load: Some(0.6 + 0.1 * noise),
        memory_used_bytes: Some(21_000_000_000),
        memory_total_bytes: Some(150_000_000_000),
        power_watts: Some(520.0 + 60.0 * noise),
        power_limit_watts: Some(700.0),
        temperature: Some((58.0 + 6.0 * noise) as u32),
        ..GpuFigures::default()
    };
    MachineReport {
        secs,
        gpu: Some(gpu),
        cpu_load: Some(0.4 + 0.1 * noise),
        process_bytes: Some(2_100_000_000),
        disk_read_bytes_per_sec: Some(4e6 * f64::from(0.5 + noise)),
        ..MachineReport::default()
    }
}

/// Something that is not as it should be, and something else before.
pub(crate) fn alarms() -> Vec<Alarm> {
    let alarm = |kind, step, what: &str, explanation: &str, action: &str| Alarm {
        kind,
        epoch: step / 25,
        step,
        what: what.to_owned(),
        place: "loader".to_owned(),
        explanation: explanation.to_owned(),
        action: action.to_owned(),
        value: 0.4,
        band: None,
    };
    vec![
        alarm(
            AlarmKind::GradientGrows,
            210,
            "the gradient norm is 31.0, and 9.1 was usual",
            "a batch pulls much harder than before",
            "lower `lr0`",
        ),
        alarm(
            AlarmKind::WaitsForData,
            700,
            "the training waits 41 % of its time for images, and 5 % was usual",
            "the network is idle meanwhile; decoding is the slowest stage",
            "put the images on a faster disk, or make them smaller",
        ),
    ]
}

/// What was found after some epochs on images of the open dataset, better from one to the next.
pub(crate) fn samples(session: &Session, n_epochs: usize) -> Vec<Arc<EpochSamples>> {
    let open = session.dataset.as_ref().unwrap();
    let of_epoch = |epoch: usize| {
        let images = open.dataset.images.iter().enumerate().rev().take(16).map(|(index, image)| {
            let size = boxwright::media::decode::probe(&image.path).unwrap();
            let boxes = open.labels[index].iter().map(|label| {
                let bbox = label.bbox.to_xyxy(size);
                let off = 0.3 * bbox.width() / (epoch + 1) as f32;
                let corners = [bbox.x1 + off, bbox.y1, bbox.x2 + off, bbox.y2];
                SampleBox { class: label.class.0 as usize, score: 1.0 - 0.7 / (epoch + 1) as f32, corners }
            });
            SampleImage { path: image.path.clone(), boxes: boxes.collect() }
        });
        Arc::new(EpochSamples { epoch, images: images.collect() })
    };
    (0..n_epochs).map(of_epoch).collect()
}

/// Rows of a sweep, of which one failed.
pub(crate) fn sweep_rows() -> Vec<SweepRow> {
    let row = |run: usize, lr0: f64, map50_95: f64, error: Option<&str>| SweepRow {
        run,
        values: [("lr0".to_owned(), lr0.into()), ("imgsz".to_owned(), 160.into())].into_iter().collect(),
        run_dir: Some(format!("runs/parts-{run:02}").into()),
        epochs: 40,
        best_epoch: 31,
        precision: 0.9,
        recall: 0.8,
        map50: map50_95 * 1.5,
        map50_95,
        secs: 131.0,
        error: error.map(str::to_owned),
    };
    vec![row(1, 0.01, 0.41, None), row(2, 0.003, 0.52, None), row(3, 1.0, 0.0, Some("step 12 of epoch 0: the loss is NaN"))]
}

pub(crate) fn overfit_report() -> OverfitReport {
    OverfitReport {
        n_images: 4,
        n_boxes: 11,
        losses: (0..60).map(|step| 2.0 + 9.0 * (-(step as f32) / 14.0).exp()).collect(),
        first: branch(4.0, 0.0),
        last: branch(0.8, 0.0),
        verdict: OverfitVerdict::Learns,
        text: "the loss on 4 pictures with 11 boxes went from 10.90 to 2.21 in 60 steps: one batch can be learnt, so labels and network \
               fit together"
            .to_owned(),
        secs: 7.2,
    }
}

/// Writes a run folder with a few epochs.
pub(crate) fn write_run(dir: &Path, lr0: f64) {
    std::fs::create_dir_all(dir).unwrap();
    let started = if lr0 < 0.005 { "2026-02-01T10:00:00Z" } else { "2026-01-01T10:00:00Z" };
    let record = format!("started: {started}\nmodel: yolov9-t\nepochs: 30\ndata: data.yaml\nhyp:\n  lr0: {lr0}\n  momentum: 0.9\n");
    std::fs::write(dir.join("run.yaml"), record).unwrap();
    let mut rows = "epoch, metrics/mAP_0.5, metrics/mAP_0.5:0.95\n".to_owned();
    let mut lines = String::new();
    for mut epoch in run(30, 24).epochs {
        epoch.metrics.map50_95 *= 1.0 - lr0 * 10.0;
        epoch.metrics.map50 *= 1.0 - lr0 * 8.0;
        epoch.metrics.precision *= 1.0 - lr0 * 9.0;
        epoch.metrics.recall *= 1.0 - lr0 * 3.0;
        epoch.box_loss = (1.4 + lr0 as f32 * 30.0) * (-(epoch.epoch as f32) / 12.0).exp() + 0.8;
        epoch.lr = [lr0 * (1.0 - epoch.epoch as f64 / 30.0); 3];
        writeln!(rows, "{}, {}, {}", epoch.epoch, epoch.metrics.map50, epoch.metrics.map50_95).unwrap();
        writeln!(lines, "{}", boxwright::train::TrainEvent::Epoch(epoch).to_json()).unwrap();
    }
    std::fs::write(dir.join("results.csv"), rows).unwrap();
    std::fs::write(dir.join("events.jsonl"), lines).unwrap();
}

pub(crate) fn summary() -> TrainSummary {
    TrainSummary {
        run_dir: "runs/parts".into(),
        epochs_done: 60,
        stopped: false,
        best_epoch: 57,
        metrics: metrics(0.912),
        peak_bytes: 640_000_000,
    }
}

/// Detections near the labels of each picture of the dataset.
pub(crate) fn detections(session: &Session) -> Vec<PictureResult> {
    let open = session.dataset.as_ref().unwrap();
    let images = open.dataset.images.iter().enumerate().rev().take(40);
    let results = images.map(|(index, image)| {
        let size = boxwright::media::decode::probe(&image.path).unwrap();
        let mut found: Vec<Detection> = Vec::new();
        for (n, label) in open.labels[index].iter().enumerate() {
            let mut bbox = label.bbox.to_xyxy(size);
            let shift = 0.04 * bbox.width();
            (bbox.x1, bbox.x2) = (bbox.x1 + shift, bbox.x2 + shift);
            found.push(Detection { bbox, class: label.class.0 as usize, score: 0.93 - 0.13 * ((n * 5 + index) % 6) as f32 });
        }
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        let outcome = Ok(PictureDetections { size, detections: found, letterbox_ms: 0.4, network_ms: 21.7, nms_ms: 0.2 });
        PictureResult { path: image.path.clone(), outcome }
    });
    results.collect()
}

pub(crate) fn export_report() -> ExportReport {
    ExportReport {
        path: "runs/parts/weights/best.onnx".into(),
        size_bytes: 8_120_000,
        checks: vec![
            "read back: 1 input, 1 output, 7 values an anchor point for 525 points".to_owned(),
            "evaluated on 3 random inputs: largest difference to the trained network 0.00004".to_owned(),
        ],
    }
}

pub(crate) fn job(id: u64, kind: JobKind, done: u64, total: u64) -> JobStatus {
    JobStatus { id: JobId(id), kind, done, total, stopping: false }
}

pub(crate) fn error_notice() -> Notice {
    Notice {
        id: 9,
        is_error: true,
        text: "no dataset at /data/partz".to_owned(),
        hint: Some("give the folder that holds data.yaml, or data.yaml itself".to_owned()),
    }
}

/// What the harness drives: an app, or before the first frame what makes one.
pub(crate) struct Driven {
    pub(crate) app: Option<App>,
    pub(crate) session: Option<Session>,
    /// Commands of the last frame, instead of carrying them out.
    pub(crate) asked: Vec<Command>,
    /// Carry commands out.
    pub(crate) is_live: bool,
    /// What the last frame took, without painting.
    pub(crate) frame_ms: f64,
}

pub(crate) type Driver = Harness<'static, Driven>;

/// A window over `session`. Not live: pictures are loaded, all other commands are only kept in `asked`.
pub(crate) fn harness(session: Session, size: [f32; 2], is_live: bool) -> Driver {
    let driven = Driven { app: None, session: Some(session), asked: Vec::new(), is_live, frame_ms: 0.0 };
    let mut harness = Harness::builder().with_size(size).with_max_steps(64).wgpu().build_ui_state(
        |ui, driven: &mut Driven| {
            // The whole window: the harness leaves a margin that eframe does not.
            let builder = egui::UiBuilder::new().max_rect(ui.ctx().content_rect());
            let ui = &mut ui.new_child(builder);
            ui.set_clip_rect(ui.max_rect());
            if let Some(session) = driven.session.take() {
                driven.app = Some(App::new(ui.ctx(), session));
                // Fonts are in place with the next frame.
                return;
            }
            let start = std::time::Instant::now();
            let app = driven.app.as_mut().unwrap();
            app.logic(ui.ctx());
            if driven.is_live {
                app.ui(ui);
                return;
            }
            let commands = app.window.ui(ui, &app.session);
            driven.frame_ms = start.elapsed().as_secs_f64() * 1e3;
            for command in commands {
                if matches!(command, Command::LoadPicture(_)) {
                    app.session.apply(command);
                } else {
                    driven.asked.push(command);
                }
            }
        },
        driven,
    );
    harness.input_mut().max_texture_side = Some(8192);
    harness.run_steps(4);
    harness
}

impl Driven {
    pub(crate) fn app(&mut self) -> &mut App {
        self.app.as_mut().unwrap()
    }

    /// The commands since the last look, as text.
    pub(crate) fn take_asked(&mut self) -> Vec<String> {
        std::mem::take(&mut self.asked).iter().map(|command| format!("{command:?}")).collect()
    }
}

/// Clicks twice within one frame: the harness lets a quarter of a second pass between frames.
pub(crate) fn double_click(harness: &mut Driver, label: &str) {
    let pos = harness.get_by_label(label).rect().center();
    let button =
        |pressed| egui::Event::PointerButton { pos, button: egui::PointerButton::Primary, pressed, modifiers: egui::Modifiers::NONE };
    harness.input_mut().events.extend([egui::Event::PointerMoved(pos), button(true), button(false), button(true), button(false)]);
    harness.run_steps(3);
}

/// Replaces what stands in a field.
pub(crate) fn write_field(harness: &mut Driver, role: Role, field: &str, text: &str) {
    harness.get_by_role_and_label(role, field).click();
    harness.run_steps(2);
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::A);
    harness.run_steps(1);
    harness.event(egui::Event::Text(text.to_owned()));
    harness.run_steps(1);
    harness.key_press(egui::Key::Enter);
    harness.run_steps(2);
}

/// Proposals of an image as (class, centre and size, score), kept as a run would keep them.
pub(crate) fn propose(session: &mut Session, image: usize, boxes: &[(u32, [f32; 4], f32)]) {
    let dataset = session.dataset.as_ref().unwrap().dataset.clone();
    let proposals: Vec<Proposal> = boxes
        .iter()
        .map(|&(class, [cx, cy, w, h], score)| Proposal { label: Label { class: ClassId(class), bbox: Xywhn { cx, cy, w, h } }, score })
        .collect();
    session.proposals.put(dataset.images[image].path.clone(), proposals.into());
}
