//! How fast is the check that decodes every image, against what the JPEG library alone decodes of the same files on the same cores?
//!
//! `cargo bench --no-default-features --bench decode_check -- [N_IMAGES [SIDE]]` draws JPEG files into a temporary folder and times, turn
//! by turn: reading and decoding each with the library, and the look of `check --images` (headers, ends, hashes).

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use boxwright::dataset::Dataset;
use boxwright::dataset::check::check_to;
use boxwright::dataset::image_check::Depth;
use boxwright::geom::Size;
use boxwright::media::Picture;
use boxwright::media::encode::encode;
use rayon::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;
use std::time::Instant;

const ROUNDS: usize = 5;

fn main() {
    let args: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (n_images, side) = (args.first().copied().unwrap_or(300), args.get(1).copied().unwrap_or(640));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let paths = draw(folder.path(), n_images, side);
    let dataset = Dataset::open(folder.path()).expect("the dataset that was written");
    let (mut alone, mut checked) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(timed(|| {
            let n_bytes: usize = paths.par_iter().map(|path| decoded_bytes(path)).sum();
            assert_eq!(n_bytes, paths.len() * (side * side * 3) as usize);
        }));
        checked.push(timed(|| {
            let report = check_to(&dataset, Depth::Pixels, None, &|_, _| ControlFlow::Continue(())).expect("nobody cancels");
            assert_eq!((report.n_images, report.n_errors()), (paths.len(), 0));
        }));
    }
    let per_second = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        f64::from(n_images) / times[ROUNDS / 2]
    };
    let (alone, checked) = (per_second(&mut alone), per_second(&mut checked));
    println!("{n_images} JPEG files of {side} x {side}, {} threads, median of {ROUNDS} rounds", rayon::current_num_threads());
    println!("library alone  {alone:8.1} images/s");
    println!("decode check   {checked:8.1} images/s, {:.1} % of it", 100.0 * checked / alone);
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn decoded_bytes(path: &Path) -> usize {
    let bytes = std::fs::read(path).expect("a file that was written");
    image::load_from_memory_with_format(&bytes, image::ImageFormat::Jpeg).expect("a JPEG that was written").into_bytes().len()
}

/// Pictures of shades and grain, as photos have them, each different.
fn draw(folder: &Path, n_images: u32, side: u32) -> Vec<PathBuf> {
    std::fs::create_dir_all(folder.join("images/train")).expect("a folder");
    let paths: Vec<PathBuf> = (0..n_images).map(|index| folder.join(format!("images/train/{index}.jpg"))).collect();
    paths.par_iter().enumerate().for_each(|(index, path)| {
        let mut state = index as u32 + 1;
        let mut rgb = Vec::with_capacity((side * side * 3) as usize);
        for at in 0..side * side {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (x, y) = ((at % side) as f32, (at / side) as f32);
            let shade = 120.0 + 60.0 * (x * 0.01 + index as f32).sin() + 50.0 * (y * 0.013 * (1 + index % 7) as f32).cos();
            rgb.extend([0.9, 1.0, 0.8].map(|tint| (shade * tint + (state >> 28) as f32) as u8));
        }
        encode(path, &Picture { size: Size::square(side), rgb }, 85).expect("a picture can be written");
    });
    paths
}
