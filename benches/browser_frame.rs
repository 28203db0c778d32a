//! What a frame of the Data workspace costs the processor with 118,000 images and 860,000 boxes.
//!
//! `cargo bench --bench browser_frame` makes the dataset in memory (no files, so thumbnails stay placeholders with their
//! boxes), drags the scroll bar to random places, types queries, changes the order and edits images. It prints median, 99th
//! percentile and maximum of the milliseconds from input to triangles; painting on the graphics card is not in it.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::Arc;
use std::time::Instant;

use boxwright::dataset::edit::{Edit, LabelOp};
use boxwright::dataset::facts::ImageFacts;
use boxwright::dataset::open::Format;
use boxwright::dataset::{ClassId, Dataset, ImageEntry, Label, Split};
use boxwright::geom::{Size, Xywhn};
use boxwright::gui::app::App;
use boxwright::session::{Command, OpenDataset, Session, Settings};
use egui::{Event, Key, Modifiers, PointerButton, Pos2, RawInput, Rect, pos2, vec2};

const N_IMAGES: usize = 118_000;
const N_CLASSES: u64 = 80;
const SIZE: egui::Vec2 = vec2(1280.0, 800.0);

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn fraction(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1 << 24) as f32
    }
}

fn label(random: &mut Random) -> Label {
    let side = 0.02 + 0.3 * random.fraction() * random.fraction();
    let bbox = Xywhn { cx: 0.2 + 0.6 * random.fraction(), cy: 0.2 + 0.6 * random.fraction(), w: side, h: side * 0.8 };
    Label { class: ClassId(random.below(N_CLASSES) as u32), bbox }
}

fn dataset(random: &mut Random) -> OpenDataset {
    let mut images = Vec::with_capacity(N_IMAGES);
    let mut labels: Vec<Arc<[Label]>> = Vec::with_capacity(N_IMAGES);
    let mut facts = Vec::with_capacity(N_IMAGES);
    for index in 0..N_IMAGES {
        let split = if index < 113_000 { Split::Train } else { Split::Val };
        let path = format!("/data/images/{}/{:012}.jpg", split.name(), index * 7);
        images.push(ImageEntry { path: path.into(), label_path: format!("/data/labels/{index}.txt").into(), split });
        let n_labels = random.below(random_most(index));
        labels.push((0..n_labels).map(|_| label(random)).collect());
        let size = Some(Size::new(640, 420 + random.below(80) as u32));
        facts.push(ImageFacts {
            size,
            orientation: 1,
            n_bytes: 90_000 + random.below(200_000),
            modified_ns: 1_700_000_000_000_000_000 + index as i64,
        });
    }
    let dataset = Dataset {
        root: "/data".into(),
        source: "/data/data.yaml".into(),
        format: Format::Yolo,
        names: (0..N_CLASSES).map(|class| format!("class {class}")).collect(),
        images,
        notes: Vec::new(),
        n_keypoint_fields: None,
        merged: None,
    };
    OpenDataset { labels: Arc::new(labels), facts: Arc::new(facts), ..OpenDataset::new(Arc::new(dataset)) }
}

/// Most images have some boxes, few have many: 7.3 on average.
fn random_most(index: usize) -> u64 {
    match index % 10 {
        0 => 1,
        9 => 58,
        _ => 12,
    }
}

struct Bench {
    ctx: egui::Context,
    app: App,
    time: f64,
    pointer: Pos2,
    /// The first image name that the last frame wrote on the screen.
    first_name: String,
}

impl Bench {
    /// One frame; returns its milliseconds.
    fn frame(&mut self, events: Vec<Event>) -> f64 {
        self.time += 1.0 / 60.0;
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, SIZE)),
            time: Some(self.time),
            predicted_dt: 1.0 / 60.0,
            focused: true,
            max_texture_side: Some(8192),
            events,
            ..RawInput::default()
        };
        let start = Instant::now();
        self.app.logic(&self.ctx);
        let app = &mut self.app;
        let mut commands = Vec::new();
        let mut output = self.ctx.run_ui(input, |ui| commands.extend(app.window.ui(ui, &app.session)));
        let drawn_ms = start.elapsed().as_secs_f64() * 1e3;
        // Nothing is painted here.
        output.textures_delta.clear();
        let names = output.shapes.iter().filter_map(|clipped| match &clipped.shape {
            egui::Shape::Text(text) if text.galley.text().starts_with("0000") => Some(text.galley.text()),
            _ => None,
        });
        names.min().unwrap_or_default().clone_into(&mut self.first_name);
        let start = Instant::now();
        std::hint::black_box(self.ctx.tessellate(output.shapes, output.pixels_per_point));
        for command in commands.into_iter().filter(|command| !matches!(command, Command::LoadPicture(_))) {
            self.app.session.apply(command);
        }
        drawn_ms + start.elapsed().as_secs_f64() * 1e3
    }

    fn key(&mut self, key: Key, modifiers: Modifiers) -> f64 {
        let event = |pressed| Event::Key { key, physical_key: None, pressed, repeat: false, modifiers };
        self.frame(vec![Event::ModifiersChanged(modifiers), event(true), event(false), Event::ModifiersChanged(Modifiers::NONE)])
    }

    fn button(&mut self, pressed: bool) -> Event {
        Event::PointerButton { pos: self.pointer, button: PointerButton::Primary, pressed, modifiers: Modifiers::NONE }
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            self.frame(Vec::new());
        }
    }

    /// The scroll bar is dragged to random places, a frame each.
    fn scroll(&mut self, random: &mut Random, n: usize) -> Vec<f64> {
        self.pointer = pos2(SIZE.x - 6.0, 300.0);
        self.frame(vec![Event::PointerMoved(self.pointer)]);
        let press = self.button(true);
        self.frame(vec![press]);
        let mut seen = std::collections::BTreeSet::new();
        let times = (0..n)
            .map(|_| {
                self.pointer.y = 120.0 + 620.0 * random.fraction();
                let ms = self.frame(vec![Event::PointerMoved(self.pointer)]);
                seen.insert(self.first_name.clone());
                ms
            })
            .collect();
        let release = self.button(false);
        self.frame(vec![release]);
        assert!(seen.len() > n / 2, "the scroll bar did not move: {} places", seen.len());
        times
    }

    /// Types a query a letter a frame, and takes it back at once.
    fn query(&mut self, text: &str) -> Vec<f64> {
        self.key(Key::F, Modifiers::COMMAND);
        self.settle();
        let times = text.chars().flat_map(|letter| {
            let typed = self.frame(vec![Event::Text(letter.to_string())]);
            [typed, self.frame(Vec::new())]
        });
        let times = times.collect();
        self.key(Key::A, Modifiers::COMMAND);
        self.key(Key::Delete, Modifiers::NONE);
        self.key(Key::Escape, Modifiers::NONE);
        self.key(Key::Escape, Modifiers::NONE);
        self.settle();
        times
    }
}

fn report(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!("{name:<46} {:>5} frames   median {:>7.2}   p99 {:>7.2}   max {:>7.2} ms", times.len(), at(0.5), at(0.99), at(1.0));
}

fn main() {
    let mut random = Random(7);
    let open = dataset(&mut random);
    let n_labels: usize = open.labels.iter().map(|labels| labels.len()).sum();
    println!("{N_IMAGES} images, {n_labels} boxes, {} x {} points", SIZE.x, SIZE.y);
    let dir = std::env::temp_dir().join("boxwright-browser-frame");
    let mut session = Session::new(Settings::in_dir(&dir), Arc::new(|| ()));
    session.dataset = Some(open);
    let ctx = egui::Context::default();
    let app = App::new(&ctx, session);
    let mut bench = Bench { ctx, app, time: 0.0, pointer: Pos2::ZERO, first_name: String::new() };

    let first: Vec<f64> = (0..3).map(|_| bench.frame(Vec::new())).collect();
    println!("first three frames (columns are made): {first:.1?} ms");
    bench.settle();
    report("grid, nothing changes", (0..300).map(|_| bench.frame(Vec::new())).collect());
    report("grid, scroll to anywhere", bench.scroll(&mut random, 600));
    bench.key(Key::V, Modifiers::NONE);
    bench.settle();
    report("list, nothing changes", (0..300).map(|_| bench.frame(Vec::new())).collect());
    report("list, scroll to anywhere", bench.scroll(&mut random, 600));
    bench.key(Key::V, Modifiers::NONE);
    bench.settle();
    report("query by name, typed", bench.query("name:0077"));
    report("query by boxes, typed", bench.query("class:\"class 7\" area<0.01 -split:val"));
    report("query by expression, typed", bench.query("regex:^0+[13].*7$"));
    let edits = (0..100).map(|_| {
        let image = random.below(N_IMAGES as u64) as usize;
        let edit = Edit::of_image("Add", image, vec![LabelOp::Add(label(&mut random))]);
        let start = Instant::now();
        bench.app.session.apply(Command::Edit(edit));
        start.elapsed().as_secs_f64() * 1e3 + bench.frame(Vec::new())
    });
    report("an edit of one image and its frame", edits.collect());
    report(
        "all images chosen and given up",
        (0..20).flat_map(|_| [bench.key(Key::A, Modifiers::COMMAND), bench.key(Key::Escape, Modifiers::NONE)]).collect(),
    );
}
