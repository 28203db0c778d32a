//! Speed of the browser below the window: opening, index, query, counts, thumbnails.
//!
//! `cargo bench --no-default-features --bench browse -- [FOLDER]` makes a dataset of 118,000 small images with 860,000 boxes in
//! a temporary folder below FOLDER, and prints what each step takes, the worst of some rounds. State the machine with the
//! figures: times are of a warm page cache, and a busy machine makes them longer.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use boxwright::dataset::Dataset;
use boxwright::dataset::distribution::{Counted, distributions};
use boxwright::dataset::edit::{Edit, LabelOp};
use boxwright::dataset::query::{Change, Columns, Filter, Sort, SortBy, Source, parse};
use boxwright::geom::Size;
use boxwright::media::Picture;
use boxwright::media::decode;
use boxwright::media::encode;
use boxwright::media::resize;
use boxwright::session::pictures::shrunk;
use boxwright::session::{Command, Event, OpenDataset, PictureKey, PictureState, Session, Settings};

#[path = "parts/photo.rs"]
mod photo;

use photo::photo;

const N_IMAGES: usize = 118_000;
const N_BOXES: usize = 860_000;
/// As many thumbnails as a large window shows at once.
const N_THUMBNAILS: usize = 60;
const THUMBNAIL_SIDE: u32 = 192;
const N_CLASSES: usize = 80;
const ROUNDS: usize = 7;
const TRAINING_SIDE: u32 = 640;

fn main() {
    let base = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::Builder::new().prefix("browse-").tempdir_in(&base).expect("a folder to write into");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("{N_IMAGES} images, {N_BOXES} boxes, {cores} cores");

    let start = Instant::now();
    let data = folder.path().join("data");
    generate(&data);
    println!("made in {:.1} s", start.elapsed().as_secs_f64());
    // What was written just now is not trusted by the index.
    std::thread::sleep(Duration::from_millis(500));

    let times = worst(3, || drop(black_box(Dataset::open(&data).expect("a dataset"))));
    println!("listing alone             {times}");
    let state = folder.path().join("state");
    let before = memory();
    drop(opened("cold", &data, &state));
    let (open, mut session) = opened("from the index", &data, &state);
    println!("memory of an open dataset {} MB, at most {} MB while opening", memory().0.saturating_sub(before.0), memory().1 - before.0);
    query(&open);
    edit(&mut session);
    drop(session);
    pictures(folder.path());
}

/// Some pictures with many names (hard links), and a label file each.
fn generate(root: &Path) {
    let mut random = Random(7);
    let templates: Vec<PathBuf> = (0..16).map(|template| root.join(format!("template{template}.jpg"))).collect();
    std::fs::create_dir_all(root).expect("a folder");
    for path in &templates {
        let size = Size::new(80 + random.below(80) as u32, 60 + random.below(60) as u32);
        encode::encode(path, &noise(size, &mut random), 85).expect("a picture");
    }
    let mut n_boxes = 0;
    for image in 0..N_IMAGES {
        let split = if image % 20 == 0 { "val" } else { "train" };
        if image < 2 {
            for kind in ["images", "labels"] {
                for split in ["train", "val"] {
                    std::fs::create_dir_all(root.join(kind).join(split)).expect("a folder");
                }
            }
        }
        let name = format!("{:012}", image * 7);
        let link = root.join("images").join(split).join(&name).with_extension("jpg");
        std::fs::hard_link(&templates[image % templates.len()], link).expect("a link");
        // Few boxes here, many there; the last image takes what is left.
        let (n_left, n_images_left) = (N_BOXES - n_boxes, N_IMAGES - image);
        let n = if n_images_left == 1 { n_left } else { random.below(2 * n_left / n_images_left + 1).min(n_left) };
        n_boxes += n;
        let mut text = String::new();
        for _ in 0..n {
            let [w, h] = [0; 2].map(|_| 0.01 + 0.4 * random.fraction() * random.fraction());
            let [x, y] = [w, h].map(|side| side / 2.0 + (1.0 - side) * random.fraction());
            writeln!(text, "{} {x:.6} {y:.6} {w:.6} {h:.6}", random.below(N_CLASSES)).expect("strings take everything");
        }
        std::fs::write(root.join("labels").join(split).join(name).with_extension("txt"), text).expect("a label file");
    }
    assert_eq!(n_boxes, N_BOXES);
    for path in &templates {
        std::fs::remove_file(path).expect("only one name goes");
    }
    let names: String = (0..N_CLASSES).fold(String::new(), |names, class| names + &format!("  - class {class}\n"));
    std::fs::write(root.join("data.yaml"), format!("train: images/train\nval: images/val\nnames:\n{names}")).expect("a data.yaml");
}

/// Opens through a session as the window does, and prints when what was there.
fn opened(name: &str, data: &Path, state: &Path) -> (OpenDataset, Session) {
    let (sender, woken) = crossbeam_channel::bounded(1);
    // A full channel has woken it already.
    let wake = move || sender.try_send(()).unwrap_or(());
    let mut session = Session::new(Settings::in_dir(state), Arc::new(wake));
    let start = Instant::now();
    session.apply(Command::Open(data.to_path_buf()));
    let mut thumbnails: Vec<PictureKey> = Vec::new();
    let (mut listing, mut labels, mut facts, mut shown) = (None, None, None, None);
    let mut is_finished = false;
    while !(is_finished && shown.is_some()) {
        woken.recv_timeout(Duration::from_millis(20)).ok();
        for event in session.poll(Duration::from_millis(4)) {
            let now = Some(start.elapsed());
            match event {
                Event::Opened(dataset) => {
                    listing = now;
                    let key = |image: usize| PictureKey { path: dataset.images[image].path.clone(), max_side: Some(THUMBNAIL_SIDE) };
                    thumbnails = (0..N_THUMBNAILS).map(key).collect();
                }
                Event::Labels { .. } => labels = now,
                Event::ImageFacts { .. } => facts = now,
                Event::Finished { .. } => is_finished = true,
                Event::Failed { failure, .. } => panic!("{failure:?}"),
                _ => {}
            }
        }
        for key in &thumbnails {
            session.apply(Command::LoadPicture(key.clone()));
        }
        let is_ready = |key: &PictureKey| matches!(session.pictures.get(key), Some(PictureState::Ready(_)));
        if shown.is_none() && !thumbnails.is_empty() && thumbnails.iter().all(is_ready) {
            shown = Some(start.elapsed());
        }
    }
    let all = start.elapsed();
    let secs = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64());
    println!(
        "opening, {name:<16} listing {:.2} s, first {N_THUMBNAILS} thumbnails {:.2} s, labels {:.2} s, facts {:.2} s, done {:.2} s",
        secs(listing),
        secs(shown),
        secs(labels),
        secs(facts),
        all.as_secs_f64()
    );
    let open = session.dataset.clone().expect("it was opened");
    assert_eq!(open.labels.iter().map(|labels| labels.len()).sum::<usize>(), N_BOXES);
    (open, session)
}

fn source(open: &OpenDataset) -> Source<'_> {
    let OpenDataset { dataset, labels, marks, facts, .. } = open;
    Source { dataset, labels, marks, facts, report: None, training_side: TRAINING_SIDE }
}

fn query(open: &OpenDataset) {
    let mut columns = Columns::default();
    println!(
        "columns                   {}",
        worst(ROUNDS, || {
            columns = Columns::default();
            columns.follow(source(open));
        })
    );
    let lines = [
        "split:val",
        "\"class:class 7\"",
        "\"class:class 7\" area<0.01 -\"class:class 3\"",
        "side:8..16 aspect>2",
        "boxes>12 OR area>0.15",
        "000012",
        "name:*99",
        "regex:^0+(1|2).*[05]$",
        "(x<0.1 OR y<0.1) w>0.2 date>2020 width>100",
    ];
    for line in lines {
        let filter = parse(line, columns.vocabulary()).expect("a right line");
        let mut n = 0;
        let times = worst(ROUNDS, || n = columns.select(&filter, Sort::default()).images.len());
        println!("filter {line:<44} {times} {n} images");
    }
    for by in SortBy::ALL {
        let times = worst(ROUNDS, || drop(black_box(columns.select(&Filter::default(), Sort { by, descending: true }))));
        println!("sort by {:<18} {times}", by.title());
    }
    let mut fresh = Columns::default();
    fresh.follow(source(open));
    let start = Instant::now();
    black_box(fresh.select(&Filter::default(), Sort { by: SortBy::Name, descending: false }));
    println!("first sort by name        {:.1} ms", start.elapsed().as_secs_f64() * 1e3);

    let OpenDataset { dataset, labels, facts, .. } = open.clone();
    let counted = Counted { dataset, labels, facts, images: None, training_side: TRAINING_SIDE };
    println!("counts                    {}", worst(ROUNDS, || drop(black_box(distributions(&counted)))));
}

/// What an edit of one image costs the session, the columns and a selection.
fn edit(session: &mut Session) {
    let open = session.dataset.clone().expect("it is open");
    let mut columns = Columns::default();
    columns.follow(source(&open));
    let filter = parse("boxes>3 area<0.05", columns.vocabulary()).expect("a right line");
    let mut selection = columns.select(&filter, Sort { by: SortBy::LargestBox, descending: true });
    drop(open);
    let (mut edits, mut follows, mut updates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..200 {
        let image = round * 577;
        let Some(&label) = session.labels(image).first() else { continue };
        let edit = Edit::of_image("Add box", image, vec![LabelOp::Add(label)]);
        let start = Instant::now();
        session.apply(Command::Edit(edit));
        edits.push(start.elapsed());
        let open = session.dataset.as_ref().expect("it is open");
        let start = Instant::now();
        let change = columns.follow(source(open));
        follows.push(start.elapsed());
        assert_eq!(change, Change::Images(vec![image as u32]));
        let start = Instant::now();
        selection.update(&columns, &change);
        updates.push(start.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    println!(
        "edit of one image         session {:.0} us, columns {:.0} us, selection {:.0} us",
        median(&mut edits),
        median(&mut follows),
        median(&mut updates)
    );
    assert_eq!(selection.images, columns.select(&selection.filter, selection.sort).images);
}

/// A photo of 12 megapixels, cold and as a thumbnail.
fn pictures(folder: &Path) {
    let path = folder.join("photo.jpg");
    let photo = photo(Size::new(4000, 3000));
    encode::encode(&path, &photo, 90).expect("a picture");
    println!("photo of 12 MP, {:.1} MB", std::fs::metadata(&path).expect("it was written").len() as f64 / 1e6);
    let whole = || drop(black_box(decode::decode(&path).expect("a picture")));
    let small = |side: u32| drop(black_box(shrunk(&path, side).expect("a picture")));
    let by_whole = || {
        let picture = decode::decode(&path).expect("a picture");
        black_box(resize::resize_area(&picture, Size::new(192, 144)));
    };
    println!("whole                     {}", worst(ROUNDS, whole));
    println!("for 1536 pixels           {}", worst(ROUNDS, || small(1536)));
    println!("for 768 pixels            {}", worst(ROUNDS, || small(768)));
    let (slow, fast) = (worst(ROUNDS, by_whole), worst(ROUNDS, || small(THUMBNAIL_SIDE)));
    println!("thumbnail by whole decode {slow}");
    println!("thumbnail, reduced        {fast} {:.1} times as fast", slow.median / fast.median);

    let (sender, woken) = crossbeam_channel::bounded(1);
    // A full channel has woken it already.
    let wake = move || sender.try_send(()).unwrap_or(());
    let mut session = Session::new(Settings::in_dir(&folder.join("state")), Arc::new(wake));
    // Another copy a round, since a picture is decoded once only; then thumbnails of all, made and from the disk.
    let copies: Vec<PathBuf> = (0..12).map(|copy| folder.join(format!("photo{copy}.jpg"))).collect();
    for copy in &copies {
        std::fs::copy(&path, copy).expect("a copy");
    }
    let ready = |session: &mut Session, paths: &[PathBuf], max_side: Option<u32>| {
        let start = Instant::now();
        let keys: Vec<PictureKey> = paths.iter().map(|path| PictureKey { path: path.clone(), max_side }).collect();
        loop {
            for key in &keys {
                session.apply(Command::LoadPicture(key.clone()));
            }
            if keys.iter().all(|key| matches!(session.pictures.get(key), Some(PictureState::Ready(_)))) {
                return start.elapsed().as_secs_f64() * 1e3;
            }
            woken.recv_timeout(Duration::from_millis(20)).ok();
            session.poll(Duration::from_millis(4));
        }
    };
    let first = ready(&mut session, &copies[..1], Some(768));
    let sharp = ready(&mut session, &copies[..1], Some(8192));
    println!("cold 12 MP in the session {first:.0} ms for the first look, {sharp:.0} ms more when it is whole");
    let prefetched = ready(&mut session, &copies[..1], Some(8192));
    println!("prefetched                {prefetched:.3} ms");
    let made = ready(&mut session, &copies, Some(THUMBNAIL_SIDE)) / copies.len() as f64;
    let mut session = Session::new(Settings::in_dir(&folder.join("state")), Arc::new(|| ()));
    let kept = ready(&mut session, &copies, Some(THUMBNAIL_SIDE)) / copies.len() as f64;
    println!("thumbnails of 12 MP       {made:.1} ms each when made, {kept:.1} ms each from the disk");
}

/// Times in milliseconds.
struct Times {
    median: f64,
    worst: f64,
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:8.1} ms, worst {:8.1} ms", self.median, self.worst)
    }
}

fn worst(rounds: usize, mut work: impl FnMut()) -> Times {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Times { median: times[rounds / 2], worst: times[rounds - 1] }
}

/// Memory of this process in MB: now, and at most so far (Linux; else zero).
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    (field("VmRSS:").unwrap_or(0) / 1024, field("VmHWM:").unwrap_or(0) / 1024)
}

/// Smooth light and shadow with the grain of a camera.
fn noise(size: Size, random: &mut Random) -> Picture {
    let rgb =
        (0..size.width as usize * size.height as usize * 3).map(|at| ((at / 97) as u8).wrapping_add(random.below(32) as u8)).collect();
    Picture { size, rgb }
}

/// A linear congruential generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn fraction(&mut self) -> f64 {
        f64::from(self.next()) / f64::from(1u32 << 31)
    }
}
