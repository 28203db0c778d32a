//! How long does the label editor take with very many boxes?
//!
//! `cargo bench --bench canvas [-- N_BOXES]` prints the time of a hit test, and the CPU time of a frame of the whole window
//! (layout, drawing and tessellation, as far as the graphics card) while the pointer moves over the image: with all boxes
//! in view, zoomed in, and with all of them selected. Nothing is painted.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boxwright::dataset::Dataset;
use boxwright::geom::Size;
use boxwright::gui::app::App;
use boxwright::gui::hit::HitIndex;
use boxwright::gui::viewport;
use boxwright::media::{Picture, encode};
use boxwright::session::{OpenDataset, Session, Settings};
use egui::{Context, Event, Key, Modifiers, RawInput, Rect, pos2, vec2};

const SIZE: Size = Size { width: 4000, height: 3000 };
const WINDOW: Rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(1920.0, 1080.0));
const N_FRAMES: usize = 120;

fn main() {
    let n_boxes = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(10_000);
    let dir = tempfile::tempdir().expect("a temporary folder");
    write_dataset(dir.path(), n_boxes);
    let mut window = Window::open(dir.path());
    hit_test(&window.app.session);
    window.frames("all in view", |_, _| Vec::new());
    window.frames("pointer moves", |_, frame| {
        let at = pos2(700.0 + (frame * 7 % 400) as f32, 300.0 + (frame * 5 % 300) as f32);
        vec![Event::PointerMoved(at)]
    });
    window.keys(Modifiers::COMMAND, Key::A);
    window.frames("all selected", |_, frame| vec![Event::PointerMoved(pos2(700.0 + frame as f32, 400.0))]);
    window.keys(Modifiers::NONE, Key::Escape);
    window.keys(Modifiers::NONE, Key::Z);
    window.frames("100 %, most out of view", |_, frame| vec![Event::PointerMoved(pos2(700.0 + frame as f32, 400.0))]);
}

/// One image with boxes in rows, of sides between 12 and 60 pixels.
fn write_dataset(root: &Path, n_boxes: usize) {
    for folder in ["images", "labels"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    let picture = Picture { size: SIZE, rgb: vec![110; (SIZE.width * SIZE.height * 3) as usize] };
    encode::encode(&root.join("images/a.jpg"), &picture, 90).expect("a picture");
    let mut rows = String::new();
    for index in 0..n_boxes {
        let at = |step: usize, side: u32| 0.02 + 0.96 * ((index * step) % 9973) as f64 / 9973.0 + 1e-9 * f64::from(side);
        let side = (12 + index * 31 % 48) as f64;
        let (cx, cy) = (at(7919, SIZE.width), at(104_729 % 9973, SIZE.height));
        writeln!(rows, "{} {cx:.6} {cy:.6} {:.6} {:.6}", index % 8, side / f64::from(SIZE.width), side / f64::from(SIZE.height))
            .expect("writing to a string cannot fail");
    }
    std::fs::write(root.join("labels/a.txt"), rows).expect("labels");
    std::fs::write(root.join("data.yaml"), "train: images\nval: images\nnames: [a, b, c, d, e, f, g, h]\n").expect("a data.yaml");
}

fn hit_test(session: &Session) {
    let rects: Vec<Rect> = session.labels(0).iter().map(|label| viewport::image_rect(label.bbox, SIZE)).collect();
    let start = Instant::now();
    let index = HitIndex::new(&rects);
    let built = start.elapsed();
    let n = 2000;
    let start = Instant::now();
    for step in 0..n {
        let point = pos2((step * 37 % 4000) as f32, (step * 53 % 3000) as f32);
        black_box(index.under(black_box(point), 3.0, |_| true));
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(n);
    println!("hit test: {each:.1} us a point over {} boxes; index made in {:.2} ms", rects.len(), built.as_secs_f64() * 1e3);
}

struct Window {
    ctx: Context,
    app: App,
    time: f64,
}

impl Window {
    fn open(root: &Path) -> Self {
        let mut session = Session::new(Settings::in_dir(&root.join("state")), Arc::new(|| {}));
        let dataset = Dataset::open(root).expect("a dataset");
        let labels = dataset.images.iter().map(|image| dataset.labels(image).expect("labels").into()).collect();
        session.dataset = Some(OpenDataset { labels: Arc::new(labels), ..OpenDataset::new(Arc::new(dataset)) });
        let ctx = Context::default();
        let app = App::new(&ctx, session);
        let mut window = Self { ctx, app, time: 0.0 };
        window.frame(Vec::new());
        window.keys(Modifiers::NONE, Key::G);
        // Until the picture is decoded and its texture made.
        for _ in 0..100 {
            window.frame(Vec::new());
            std::thread::sleep(Duration::from_millis(20));
        }
        window
    }

    /// Draws a frame; returns the time of all but painting, and how many triangles there were.
    fn frame(&mut self, events: Vec<Event>) -> (Duration, usize) {
        self.time += 1.0 / 60.0;
        let input = RawInput {
            screen_rect: Some(WINDOW.translate(vec2(0.0, 0.0))),
            time: Some(self.time),
            max_texture_side: Some(8192),
            focused: true,
            events,
            ..RawInput::default()
        };
        let Self { ctx, app, .. } = self;
        let start = Instant::now();
        app.logic(ctx);
        let mut output = ctx.run_ui(input, |ui| app.ui(ui));
        // Nobody paints: what textures would take is no part of it.
        output.textures_delta.clear();
        let primitives = ctx.tessellate(output.shapes, output.pixels_per_point);
        let took = start.elapsed();
        let n_triangles = primitives.iter().map(|each| match &each.primitive {
            egui::epaint::Primitive::Mesh(mesh) => mesh.indices.len() / 3,
            egui::epaint::Primitive::Callback(_) => 0,
        });
        (took, n_triangles.sum())
    }

    fn keys(&mut self, modifiers: Modifiers, key: Key) {
        for pressed in [true, false] {
            self.frame(vec![Event::Key { key, physical_key: None, pressed, repeat: false, modifiers }]);
        }
        self.frame(Vec::new());
    }

    fn frames(&mut self, what: &str, events: impl Fn(&Self, usize) -> Vec<Event>) {
        let mut times = Vec::with_capacity(N_FRAMES);
        let mut n_triangles = 0;
        for frame in 0..N_FRAMES {
            let events = events(self, frame);
            let (took, n) = self.frame(events);
            times.push(took.as_secs_f64() * 1e3);
            n_triangles = n;
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[(times.len() as f64 * part) as usize];
        println!("frame, {what}: median {:.2} ms, 95 % {:.2} ms, {n_triangles} triangles", at(0.5), at(0.95));
    }
}
