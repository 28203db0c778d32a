//! Speed of making training samples on the CPU, by stage.
//!
//! `cargo bench --no-default-features --bench augment -- DATASET [SIDE [THREADS]]` prints samples a second of the loader with the
//! published hyper-parameters, and what each stage of one sample takes in one thread. Pictures are kept in memory.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use boxwright::dataset::Dataset;
use boxwright::geom::Size;
use boxwright::geom::letterbox::fit_longer_side;
use boxwright::media::Picture;
use boxwright::media::color::shift_hsv;
use boxwright::media::decode::{decode, decode_reduced_truly};
use boxwright::media::encode::encode;
use boxwright::media::resize::resize_linear;
use boxwright::train::Hyp;
use boxwright::train::composition::Composition;
use boxwright::train::loader::{Loader, LoaderOptions};
use boxwright::train::paint::Painter;
use boxwright::train::recipe::{Recipe, Stream};
use boxwright::train::train_set::TrainSet;
use boxwright::train::truth_rows::truth_rows;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

#[path = "parts/photo.rs"]
mod photo;

/// Samples of each measurement.
const N_SAMPLES: usize = 512;
const ROUNDS: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let number = |index: usize, default: usize| args.get(index).map_or(default, |text| text.parse().expect("a whole number"));
    let path = args.first().map_or("datasets/parts", String::as_str);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (side, threads) = (number(1, 640), number(2, cores));

    let dataset = Dataset::open(Path::new(path)).expect("a dataset");
    let start = Instant::now();
    let set = TrainSet::read(&dataset, side as u32, u64::MAX, &mut |_, _| ControlFlow::Continue(())).expect("pictures with labels");
    let set = Arc::new(set.expect("nobody stops it"));
    let n_images = set.images.len();
    println!("{path}: {n_images} pictures read into memory, {:.0} a second", n_images as f64 / start.elapsed().as_secs_f64());

    let n_epochs = N_SAMPLES.div_ceil(n_images);
    let stream = |hyp: Hyp| Stream { hyp, seed: 0, n_images, mosaic_ends: n_epochs };
    let published = stream(Hyp::scratch_high());
    let rows = truth_rows(&set, &published, n_epochs);
    let options = LoaderOptions {
        stream: published.clone(),
        truth_rows: rows,
        batch: 16,
        n_epochs,
        first_batch: 0,
        n_workers: threads,
        sides: vec![],
        orders: None,
        paints: true,
    };
    let best = best(|| Loader::start(&set, &options).expect("threads start").for_each(drop));
    println!("scratch-high, {side} px, {threads} threads: {:.0} samples a second", (n_epochs * n_images) as f64 / best);

    println!("one thread, ms a sample:");
    stage("draw and compose", || compositions(&set, &published).len());
    for (name, hyp) in [
        ("paint, published", Hyp::scratch_high()),
        ("paint without colours and mixup", Hyp { mixup: 0.0, ..colourless() }),
        ("paint every one mixed, without colours", Hyp { mixup: 1.0, ..colourless() }),
        ("paint turned, without colours and mixup", Hyp { mixup: 0.0, degrees: 10.0, ..colourless() }),
        ("paint one picture, without colours", Hyp { mosaic: 0.0, ..colourless() }),
    ] {
        let compositions = compositions(&set, &stream(hyp));
        let picture = |image: usize| set.images[image].kept.as_ref().expect("all pictures are kept");
        let (mut painter, mut pixels) = (Painter::default(), vec![0; set.sample_len()]);
        stage(name, || compositions.iter().for_each(|composition| paint(&mut painter, composition, &picture, &mut pixels)));
    }
    let mut pixels = vec![0; set.sample_len()];
    pixels.iter_mut().zip((0u32..).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)).for_each(|(pixel, noise)| *pixel = noise);
    photos(side as u32);
    stage("colours", || (0..N_SAMPLES).for_each(|_| shift_hsv(black_box(&mut pixels), [1.01, 1.2, 0.9])));
}

/// Pictures of cameras, read and fitted: as a whole and reduced, and how far the pixels are apart.
fn photos(side: u32) {
    let folder = tempfile::tempdir().expect("a folder to write into");
    for (width, height) in [(4000, 3000), (2560, 1920), (1920, 1080), (1280, 960)] {
        let path = folder.path().join(format!("{width}.jpg"));
        encode(&path, &photo::photo(Size::new(width, height)), 90).expect("a picture");
        let fitted = fit_longer_side(Size::new(width, height), side);
        let whole = || resize_linear(&decode(&path).expect("a picture"), fitted);
        let reduced = || resize_linear(&decode_reduced_truly(&path, side).expect("a picture").picture, fitted);
        let (slow, fast) = (best(|| drop(black_box(whole()))), best(|| drop(black_box(reduced()))));
        let (a, b) = (whole(), reduced());
        let mean = a.rgb.iter().zip(&b.rgb).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.rgb.len() as f64;
        let (slow, fast, ratio) = (slow * 1e3, fast * 1e3, slow / fast);
        println!(
            "  photo {width} x {height}: whole {slow:.1}, reduced {fast:.1}, {ratio:.1} times as fast; pixels differ by {mean:.2} of 255"
        );
    }
}

fn colourless() -> Hyp {
    Hyp { hsv_h: 0.0, hsv_s: 0.0, hsv_v: 0.0, ..Hyp::scratch_high() }
}

fn compositions(set: &TrainSet, stream: &Stream) -> Vec<Composition> {
    (0..N_SAMPLES).map(|index| set.compose(&Recipe::draw(stream, index / stream.n_images, index % stream.n_images))).collect()
}

fn paint<'a>(painter: &mut Painter, composition: &Composition, picture: &dyn Fn(usize) -> &'a Picture, pixels: &mut [u8]) {
    painter.paint(composition, picture, pixels);
    black_box(pixels);
}

fn stage<T>(name: &str, mut work: impl FnMut() -> T) {
    let secs = best(|| {
        black_box(work());
    });
    println!("  {name:<40} {:.3}", secs * 1e3 / N_SAMPLES as f64);
}

fn best(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}
