//! `boxwright bench`: how fast this machine trains, infers and reads data.
//!
//! In:  a model and sizes. Out: one JSON object; on the CPU times are the best and the median of the repetitions after one
//! warm-up run. A GPU is measured by `bench_gpu`.
//!
//! Pictures are random numbers for `train` and `infer`: the work does not depend on their content. Writes no file but the table
//! of what each node took, where it was asked for.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::failure::Failure;
use crate::dataset::Dataset;
use crate::engine::cpu::Executor;
use crate::engine::cpu::optimizer::{Memory, Step, clip_gradients, ema_update, step};
use crate::engine::gradients::{GradientStyle, append_gradients};
use crate::engine::{BnMode, Device, LossSpec, Plan, Rule};
use crate::train::Hyp;
use crate::train::loader::{Loader, LoaderOptions};
use crate::train::loader_clock::LoaderStats;
use crate::train::memory;
use crate::train::recipe::Stream;
use crate::train::train_set::TrainSet;
use crate::train::truth_rows::truth_rows;
use crate::yolo::{Model, Network};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchKind {
    Train,
    Infer,
    /// Reading the pictures of a dataset, and making augmented samples of them.
    Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchRequest {
    pub kind: BenchKind,
    pub model: Model,
    pub n_classes: usize,
    pub batch: usize,
    pub imgsz: u32,
    pub device: Device,
    pub repeats: usize,
    /// The dataset of [`BenchKind::Data`].
    pub data: Option<PathBuf>,
    /// Where a table of what each node took is written.
    pub profile: Option<PathBuf>,
}

static START: OnceLock<Instant> = OnceLock::new();

/// To be called when the program starts: what comes before the first step counts, too.
pub fn program_starts() {
    START.get_or_init(Instant::now);
}

/// Seconds since the program started.
#[cfg(feature = "cuda")]
pub(super) fn secs_since_start() -> f64 {
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Boxes of each picture of the training benchmark.
const N_BOXES: usize = 8;

/// Measures. `check_in(done, total)` reports repetitions and may stop.
pub fn run(request: &BenchRequest, check_in: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<Value, Failure> {
    match (request.kind, request.device) {
        #[cfg(not(feature = "cuda"))]
        (BenchKind::Data, Device::Cuda(ordinal)) => {
            crate::engine::cuda::open(ordinal)?;
            unreachable!("without the feature no GPU opens")
        }
        (BenchKind::Data, _) => data(request, check_in),
        (BenchKind::Train, Device::Cpu) => train(request, check_in),
        (BenchKind::Infer, Device::Cpu) => infer(request, check_in),
        #[cfg(feature = "cuda")]
        (BenchKind::Train, Device::Cuda(ordinal)) => super::bench_gpu::train(request, ordinal, check_in),
        #[cfg(feature = "cuda")]
        (BenchKind::Infer, Device::Cuda(ordinal)) => super::bench_gpu::infer(request, ordinal, check_in),
        #[cfg(not(feature = "cuda"))]
        (BenchKind::Train | BenchKind::Infer, Device::Cuda(ordinal)) => {
            crate::engine::cuda::open(ordinal)?;
            unreachable!("without the feature no GPU opens")
        }
    }
}

fn infer(request: &BenchRequest, check_in: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<Value, Failure> {
    let side = request.imgsz as usize;
    let network = Network::new(request.model, request.n_classes, 0).to_deploy();
    let mut net = network.graph(request.batch, side, side, BnMode::Running);
    let decoded = net.append_decode();
    let input = net.input;
    let plan = Plan::new(net.graph, &[input, decoded]);
    let memory = plan.memory(&network.params);
    let mut executor = Executor::frozen(plan, &network.params);
    executor.write(input, &noise(request.batch * side * side * 3, 1));
    let times = repeat(request.repeats, check_in, || executor.run_inference(&network.params))?;
    if request.profile.is_some() {
        let (mut params, mut gradients) = (network.params.clone(), network.params.zeros_like());
        let profile = executor.run_timed(&mut params, &mut gradients);
        write_profile(request, &profile_rows(&executor.plan, &profile))?;
    }
    let (best, median) = (times[0], times[times.len() / 2]);
    Ok(json!({
        "bench": "infer", "model": request.model.to_string(), "batch": request.batch, "imgsz": request.imgsz, "device": "cpu",
        "threads": rayon::current_num_threads(), "repeats": request.repeats,
        "ms": best * 1e3, "median_ms": median * 1e3, "images_per_sec": request.batch as f64 / best, "planned_bytes": memory.total(),
    }))
}

fn train(request: &BenchRequest, check_in: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<Value, Failure> {
    let before = memory::resident_bytes();
    let side = request.imgsz as usize;
    let mut network = Network::new(request.model, request.n_classes, 0);
    let mut net = network.graph(request.batch, side, side, BnMode::Batch);
    let loss = net.append_loss(N_BOXES, LossSpec::published(request.n_classes, request.model.dual));
    append_gradients(&mut net.graph, GradientStyle::Added);
    let input = net.input;
    let plan = Plan::new(net.graph, &[input, loss.truth, loss.items]);
    let planned = plan.memory(&network.params);
    let mut executor = Executor::new(plan);
    let mut gradients = network.params.zeros_like();
    let mut velocities = Memory::new(Rule::Sgd, &network.params);
    let mut ema = network.params.clone();
    executor.write(input, &noise(request.batch * side * side * 3, 1));
    executor.write(loss.truth, &truth(request.batch, N_BOXES, request.n_classes, side as f32));

    let sgd = Step { rule: Rule::Sgd, lr: [1e-3; 3], momentum: 0.937, weight_decay: 5e-4 };
    let times = repeat(request.repeats, check_in, || {
        executor.run(&mut network.params, &mut gradients);
        clip_gradients(&mut gradients, 10.0);
        step(&mut network.params, &gradients, &mut velocities, &sgd);
        gradients.values.fill(0.0);
        ema_update(&mut ema, &network.params, 0.99);
    })?;
    if request.profile.is_some() {
        let profile = executor.run_timed(&mut network.params, &mut gradients);
        write_profile(request, &profile_rows(&executor.plan, &profile))?;
    }
    let (best, median) = (times[0], times[times.len() / 2]);
    Ok(json!({
        "bench": "train", "model": request.model.to_string(), "batch": request.batch, "imgsz": request.imgsz, "device": "cpu",
        "threads": rayon::current_num_threads(), "repeats": request.repeats,
        "images_per_sec": request.batch as f64 / best, "median_images_per_sec": request.batch as f64 / median, "step_ms": best * 1e3,
        "planned_bytes": planned.total() as u64 + before, "peak_bytes": memory::peak_bytes(),
    }))
}

/// Samples of a repetition of `bench data` at least.
const MIN_SAMPLES: usize = 512;

/// Pictures a second into memory, and samples a second from there, as a training makes them; with all threads.
fn data(request: &BenchRequest, check_in: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<Value, Failure> {
    let Some(path) = &request.data else {
        return Err(Failure::mendable("`bench data` reads a dataset, and none was named", Some("add --data data.yaml".to_owned())));
    };
    let dataset = Dataset::open(path)?;
    let n_workers = rayon::current_num_threads();
    let start = Instant::now();
    let read = TrainSet::read(&dataset, request.imgsz, memory::available_bytes() / 2, &mut |done, total| check_in(done, total))?;
    let read_secs = start.elapsed().as_secs_f64();
    let Some(set) = read.map(Arc::new) else { return Err(Failure::cancelled()) };

    let n_images = set.images.len();
    let n_epochs = MIN_SAMPLES.div_ceil(n_images);
    let n_samples = n_epochs * n_images;
    let stream = Stream { hyp: Hyp::scratch_high(), seed: 0, n_images, mosaic_ends: n_epochs };
    let truth_rows = truth_rows(&set, &stream, n_epochs);
    let options = LoaderOptions {
        stream,
        truth_rows,
        batch: request.batch,
        n_epochs,
        first_batch: 0,
        n_workers,
        sides: vec![],
        orders: None,
        paints: true,
    };
    let mut failure = None;
    let mut stats = LoaderStats::default();
    let times = repeat(request.repeats, check_in, || match Loader::start(&set, &options) {
        Ok(loader) => {
            let clock = loader.clock();
            loader.for_each(drop);
            stats = clock.read();
        }
        Err(error) => failure = Some(error),
    })?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    let on_gpu = match request.device {
        Device::Cpu => Value::Null,
        #[cfg(feature = "cuda")]
        Device::Cuda(ordinal) => super::bench_gpu::samples(&set, &options, ordinal)?,
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(_) => unreachable!("without the feature no GPU opens"),
    };
    Ok(json!({
        "bench": "data", "hyp": "scratch-high", "batch": request.batch, "imgsz": request.imgsz, "threads": n_workers, "images": n_images,
        "unreadable": set.dropped.len(), "kept": n_images - set.n_not_kept(), "images_per_sec": n_images as f64 / read_secs,
        "samples_per_sec": n_samples as f64 / times[0], "median_samples_per_sec": n_samples as f64 / times[times.len() / 2],
        "decode_ms": stats.decode_secs * 1e3 / n_samples as f64, "augment_ms": stats.augment_secs * 1e3 / n_samples as f64,
        "on_gpu": on_gpu,
    }))
}

/// Node, name, op and milliseconds.
fn profile_rows(plan: &Plan, times: &[(&'static str, Duration)]) -> Vec<(i64, String, &'static str, f32)> {
    let nodes = plan.graph.nodes.iter().zip(times).enumerate();
    nodes.map(|(index, (node, (op, time)))| (index as i64, node.name.clone(), *op, time.as_secs_f32() * 1e3)).collect()
}

/// Writes the table of what each node took, if one was asked for: a header, then tab-separated node, name, family, ms.
pub(super) fn write_profile(request: &BenchRequest, rows: &[(i64, String, &'static str, f32)]) -> Result<(), Failure> {
    let Some(path) = &request.profile else { return Ok(()) };
    let mut text = "node\tname\tfamily\tms\n".to_owned();
    for (node, name, family, ms) in rows {
        writeln!(text, "{node}\t{name}\t{family}\t{ms:.5}").expect("writing to a string never fails");
    }
    std::fs::write(path, text).map_err(|error| {
        let hint = Some("name a file in a folder that exists and may be written to with --profile".to_owned());
        Failure::mendable(format!("cannot write {}: {error}", path.display()), hint)
    })
}

/// Seconds of each repetition after a warm-up, sorted.
fn repeat(repeats: usize, check_in: &dyn Fn(u64, u64) -> ControlFlow<()>, mut work: impl FnMut()) -> Result<Vec<f64>, Failure> {
    work();
    let mut times = Vec::with_capacity(repeats);
    for index in 0..repeats {
        if check_in(index as u64, repeats as u64).is_break() {
            return Err(Failure::cancelled());
        }
        let start = Instant::now();
        work();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Numbers between 0 and 1 from a counter.
pub(super) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let value = |index: u64| {
        let mut bits = (index ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ bits >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (bits >> 40) as f32 / (1 << 24) as f32
    };
    (0..len as u64).map(value).collect()
}

/// Boxes of all sizes inside the picture: class, x1, y1, x2, y2.
pub(super) fn truth(batch: usize, n_boxes: usize, n_classes: usize, side: f32) -> Vec<f32> {
    let numbers = noise(batch * n_boxes * 5, 2);
    let row = |row: &[f32]| {
        let (width, height) = (16.0 + row[3] * side * 0.4, 16.0 + row[4] * side * 0.4);
        let (x, y) = (row[1] * (side - width), row[2] * (side - height));
        [(row[0] * n_classes as f32).floor(), x, y, x + width, y + height]
    };
    numbers.chunks(5).flat_map(row).collect()
}
