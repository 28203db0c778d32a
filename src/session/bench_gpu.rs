//! `boxwright bench` on a GPU: training and running, with and without the way of the pictures to it.
//!
//! In:  a model and sizes. Out: one JSON object, and on demand a table of what each node took.
//!
//! Steps are given to the GPU back to back, [`WINDOW`] of them, and the clock stops when the last is done: nothing waits in
//! between, as in a training. Told are the median of the windows and their spread.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::bench::{BenchRequest, noise, secs_since_start, truth, write_profile};
use super::failure::Failure;
use crate::engine::Rule;
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::inference::{FrozenParams, Inference};
use crate::engine::cuda::inspect;
use crate::engine::cuda::nvml::{GpuFigures, GpuMonitor};
use crate::engine::cuda::optimizer::Settings;
use crate::engine::cuda::program::Planning;
use crate::engine::cuda::runtime::Runtime;
use crate::engine::cuda::training::{DeviceMemory, StepInput, StepPlan, Training};
use crate::engine::graph::Graph;
use crate::engine::plan::Plan;
use crate::engine::roofline::{Rates, floor_secs};
use crate::geom::nms::NmsOptions;
use crate::train::Hyp;
use crate::train::gpu_samples;
use crate::train::gpu_samples::Pictures;
use crate::train::loader::{Batch, Loader, LoaderOptions};
use crate::train::memory;
use crate::train::stepper::{PlannedStep, StepSpec};
use crate::train::train_set::TrainSet;
use crate::yolo::joined::joined;
use crate::yolo::predictor::nms_settings;
use crate::yolo::{InputShape, Network, PredictorPlan};

/// Steps between two looks at the clock.
const WINDOW: usize = 10;
/// Boxes of a picture: what COCO has on average.
const N_BOXES: usize = 7;
/// Rows of ground truth, of which the last ones are padding.
const TRUTH_ROWS: usize = 8;

type CheckIn<'a> = &'a dyn Fn(u64, u64) -> ControlFlow<()>;

/// Measures training.
pub(super) fn train(request: &BenchRequest, ordinal: usize, check_in: CheckIn) -> Result<Value, Failure> {
    let runtime = Runtime::open_default(ordinal)?;
    let gpu = &runtime.gpu;
    let network = joined(&Network::new(request.model, request.n_classes, 0));
    let hyp = Hyp::scratch_high();
    let spec = StepSpec { side: request.imgsz as usize, truth_rows: TRUTH_ROWS, hyp, weight_decay: 5e-4 };
    let free = gpu.free_bytes()?;
    let start = Instant::now();
    let PlannedStep { n_images, plan, input, truth: truth_id, items } =
        PlannedStep::for_gpu(&network, &spec, request.batch, runtime.precision());
    let (n_nodes, names) = (plan.graph.nodes.len(), node_names(&plan.graph));
    let measured = plan.clone();
    let plans = vec![StepPlan { n_images, plan, input, truth: truth_id, items }];
    let mut training = Training::new(&runtime, plans, &network.params, Rule::Sgd, &mut |_, _| {})?;
    let secs_to_plan = start.elapsed().as_secs_f64();

    let pixels = noise_bytes(n_images * spec.side * spec.side * 3);
    let rows = padded_rows(&truth(n_images, N_BOXES, request.n_classes, request.imgsz as f32));
    let settings = Settings {
        lr: [1e-3; 3],
        momentum: 0.937,
        beta2: 0.999,
        weight_decay: 5e-4,
        max_norm: 10.0,
        amsgrad: 0,
        scales: i32::from(runtime.precision() == Precision::F16),
        coupled: 0,
        ema_decay: 0.9999,
        ema_tau: 2000.0,
    };
    training.submit(n_images, StepInput::Bytes(&pixels), &rows, Some(&settings))?;
    gpu.synchronize()?;
    let secs_to_first_step = secs_since_start();
    let with_upload =
        windows(request, check_in, &runtime, || training.submit(n_images, StepInput::Bytes(&pixels), &rows, Some(&settings)))?;
    let gpu_only = windows(request, check_in, &runtime, || training.repeat(n_images))?;
    let clocks = clocks(ordinal, &runtime, || training.repeat(n_images))?;
    let used = free.saturating_sub(gpu.free_bytes()?);
    let [box_loss, cls_loss, dfl_loss, loss, ..] = training.results(0)?.items;
    let losses = [box_loss, cls_loss, dfl_loss, loss];
    let profile = training.profile(n_images)?;
    let rows = profile_rows(&profile, &names);
    write_profile(request, &rows)?;
    let DeviceMemory { parameters, optimizer, activations, workspace, input } = training.memory();
    let mut figures = common(request, "train", &runtime);
    figures.extend([
        ("images_per_sec".to_owned(), json!(per_sec(request, &with_upload))),
        ("step_ms".to_owned(), json!(median(&with_upload) * 1e3)),
        ("with_upload".to_owned(), spread(request, &with_upload)),
        ("gpu_only".to_owned(), spread(request, &gpu_only)),
        ("clocks".to_owned(), clocks),
        ("planned_bytes".to_owned(), json!(training.memory().total())),
        ("used_bytes".to_owned(), json!(used)),
        (
            "memory".to_owned(),
            json!({
                "parameters": parameters, "optimizer": optimizer, "activations": activations, "workspace": workspace, "input": input,
            }),
        ),
        ("losses".to_owned(), json!(losses)),
        ("roofline".to_owned(), roofline(&measured, ordinal, &gpu_only)),
        ("nodes".to_owned(), json!(n_nodes)),
        ("by_family".to_owned(), by_family(&profile)),
        ("secs_to_plan".to_owned(), json!(secs_to_plan)),
        ("secs_to_first_step".to_owned(), json!(secs_to_first_step)),
        ("fallback".to_owned(), json!(training.fallback())),
        ("peak_bytes".to_owned(), json!(memory::peak_bytes())),
    ]);
    Ok(figures.into())
}

/// Samples that are made a second from pictures on the GPU, with what the CPU decides about them, in `loader` batches; with the
/// device memory of the pictures.
pub(super) fn samples(set: &Arc<TrainSet>, loader: &LoaderOptions, ordinal: usize) -> Result<Value, Failure> {
    let runtime = Runtime::open_default(ordinal)?;
    let gpu = &runtime.gpu;
    let Some(pictures) = Pictures::new(set, &runtime, 0)? else { return Ok(Value::Null) };
    let out = gpu.alloc(loader.batch * set.sample_len())?;
    let mut tables = [gpu.alloc(16)?, gpu.alloc(16)?];
    let mut make = |batch: &Batch, turn: usize| -> Result<usize, Failure> {
        let table = gpu_samples::table(&batch.compositions, &pictures);
        let mut bytes = vec![0; table.n_bytes()];
        table.write_to(&mut bytes);
        let place = &mut tables[turn % 2];
        if place.bytes < bytes.len() {
            *place = gpu.alloc(bytes.len().next_power_of_two())?;
        }
        // Waits for the kernel before, which a training does not do.
        place.write(0, &bytes)?;
        gpu.launch(&table.launch(&runtime.kernels, place.address, out.address, set.imgsz as usize))?;
        Ok(batch.compositions.len())
    };
    let options = LoaderOptions { paints: false, ..loader.clone() };
    let (mut n_samples, mut start) = (0, Instant::now());
    for (turn, batch) in Loader::start(set, &options)?.enumerate() {
        let n = make(&batch, turn)?;
        if turn == 0 {
            // Not the start of the threads.
            gpu.synchronize()?;
            start = Instant::now();
        } else {
            n_samples += n;
        }
    }
    gpu.synchronize()?;
    Ok(json!({"samples_per_sec": n_samples as f64 / start.elapsed().as_secs_f64(), "picture_bytes": pictures.n_bytes()}))
}

/// Measures running.
pub(super) fn infer(request: &BenchRequest, ordinal: usize, check_in: CheckIn) -> Result<Value, Failure> {
    let runtime = Runtime::open_default(ordinal)?;
    let gpu = &runtime.gpu;
    let network = joined(&Network::new(request.model, request.n_classes, 0).to_deploy());
    let free = gpu.free_bytes()?;
    let side = request.imgsz as usize;
    let shape = InputShape { n_images: request.batch, height: side, width: side };
    let PredictorPlan { plan, layout, input, decoded } = PredictorPlan::for_gpu(&network, shape, runtime.precision());
    let names = node_names(&plan.graph);
    let measured = plan.clone();
    let params = Arc::new(FrozenParams::new(&runtime, &network.params)?);
    let mut inference = Inference::new(&params, plan, &layout, [input, decoded], Planning::Timed)?;
    let pixels = noise_bytes(shape.n_bytes());
    // `with_upload` is what `detect` does: pictures up, network, decoding, suppression, detections back. `gpu_only` ends with the
    // decoding. Random weights are sure of nothing, so suppression costs what a picture without objects costs.
    let settings = nms_settings(inference.output_shape(), &NmsOptions { max_detections: 300, ..NmsOptions::detect() });
    inference.detect(&pixels, &settings)?;
    let secs_to_first_step = secs_since_start();
    let whole = windows(request, check_in, &runtime, || inference.detect(&pixels, &settings).map(drop))?;
    let gpu_only = windows(request, check_in, &runtime, || inference.repeat())?;
    let clocks = clocks(ordinal, &runtime, || inference.repeat())?;
    let used = free.saturating_sub(gpu.free_bytes()?);
    let profile = inference.profile()?;
    write_profile(request, &profile_rows(&profile, &names))?;
    let parameters = network.params.values.len() * (size_of::<f32>() + runtime.precision().bytes());
    let mut figures = common(request, "infer", &runtime);
    figures.extend([
        ("images_per_sec".to_owned(), json!(per_sec(request, &whole))),
        ("ms".to_owned(), json!(median(&whole) * 1e3)),
        ("with_upload".to_owned(), spread(request, &whole)),
        ("gpu_only".to_owned(), spread(request, &gpu_only)),
        ("clocks".to_owned(), clocks),
        ("planned_bytes".to_owned(), json!(inference.bytes() + parameters)),
        ("used_bytes".to_owned(), json!(used)),
        ("roofline".to_owned(), roofline(&measured, ordinal, &gpu_only)),
        ("by_family".to_owned(), by_family(&profile)),
        ("secs_to_first_step".to_owned(), json!(secs_to_first_step)),
        ("peak_bytes".to_owned(), json!(memory::peak_bytes())),
    ]);
    Ok(figures.into())
}

fn common(request: &BenchRequest, what: &str, runtime: &Runtime) -> Map<String, Value> {
    let fields = json!({
        "bench": what, "model": request.model.to_string(), "batch": request.batch, "imgsz": request.imgsz,
        "classes": request.n_classes, "device": runtime.gpu.name, "precision": format!("{:?}", runtime.precision()).to_lowercase(),
        "repeats": request.repeats, "window": WINDOW,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => unreachable!("braces make an object"),
    }
}

/// What NVML says of the GPU while it works; null where there is no NVML.
fn clocks(ordinal: usize, runtime: &Runtime, mut step: impl FnMut() -> Result<(), CudaError>) -> Result<Value, Failure> {
    let Some(monitor) = GpuMonitor::open(ordinal) else { return Ok(Value::Null) };
    for _ in 0..WINDOW {
        step()?;
    }
    let GpuFigures { clock_mhz, max_clock_mhz, memory_clock_mhz, power_watts, temperature, throttle, .. } = monitor.read();
    runtime.gpu.synchronize()?;
    let throttle: Vec<&str> = throttle.iter().map(|reason| reason.title()).collect();
    Ok(json!({
        "mhz": clock_mhz, "max_mhz": max_clock_mhz, "memory_mhz": memory_clock_mhz, "watts": power_watts, "temperature": temperature,
        "throttle": throttle,
    }))
}

/// Seconds a step of each window after one that warms up, sorted.
fn windows(
    request: &BenchRequest,
    check_in: CheckIn,
    runtime: &Runtime,
    mut step: impl FnMut() -> Result<(), CudaError>,
) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::with_capacity(request.repeats);
    for index in 0..=request.repeats {
        if check_in(index as u64, request.repeats as u64).is_break() {
            return Err(Failure::cancelled());
        }
        let start = Instant::now();
        for _ in 0..WINDOW {
            step()?;
        }
        runtime.gpu.synchronize()?;
        if index > 0 {
            times.push(start.elapsed().as_secs_f64() / WINDOW as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// How fast this card copies and convolves, by its self-test.
fn measured_rates(ordinal: usize) -> Option<Rates> {
    let report = inspect::gpus().ok()?.into_iter().nth(ordinal)?.ok()?;
    let rate = |name: &str| {
        let (_, rate) = report.tests.iter().find(|(test, _)| *test == name)?;
        rate.as_ref().ok().map(|rate| rate.achieved)
    };
    Some(Rates { bytes_per_sec: rate("copy")? * 1e9, flops_per_sec: rate("convolution")? * 1e12 })
}

/// The least time of a plan by this card's own rates, and its share of the time that was taken.
fn roofline(plan: &Plan, ordinal: usize, times: &[f64]) -> Value {
    let Some(rates) = measured_rates(ordinal) else { return Value::Null };
    let floor = floor_secs(plan, rates);
    json!({
        "floor_ms": floor * 1e3, "share": floor / median(times),
        "copy_gb_per_sec": rates.bytes_per_sec / 1e9, "conv_tflops": rates.flops_per_sec / 1e12,
    })
}

fn median(times: &[f64]) -> f64 {
    times[times.len() / 2]
}

fn per_sec(request: &BenchRequest, times: &[f64]) -> f64 {
    request.batch as f64 / median(times)
}

fn spread(request: &BenchRequest, times: &[f64]) -> Value {
    let per_sec = |secs: f64| request.batch as f64 / secs;
    json!({
        "images_per_sec": per_sec(median(times)), "min": per_sec(times[times.len() - 1]), "max": per_sec(times[0]),
        "step_ms": median(times) * 1e3,
    })
}

/// Milliseconds of each family, the largest first.
fn by_family(profile: &[(usize, &'static str, f32)]) -> Value {
    let mut sums: HashMap<&str, f32> = HashMap::new();
    for &(_, family, ms) in profile {
        *sums.entry(family).or_default() += ms;
    }
    let mut sums: Vec<(&str, f32)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    sums.into_iter().map(|(family, ms)| (family.to_owned(), json!(ms))).collect::<Map<_, _>>().into()
}

fn node_names(graph: &Graph) -> Vec<String> {
    graph.nodes.iter().map(|node| node.name.clone()).collect()
}

/// Node, name, family, milliseconds. Work that belongs to no node has the number -1.
fn profile_rows(profile: &[(usize, &'static str, f32)], names: &[String]) -> Vec<(i64, String, &'static str, f32)> {
    let row = |&(node, family, ms): &(usize, &'static str, f32)| match names.get(node) {
        Some(name) => (node as i64, name.clone(), family, ms),
        None => (-1, family.to_owned(), family, ms),
    };
    profile.iter().map(row).collect()
}

fn noise_bytes(len: usize) -> Vec<u8> {
    noise(len, 1).into_iter().map(|value| (value * 255.0) as u8).collect()
}

/// Rows of each picture, filled up with padding.
fn padded_rows(rows: &[f32]) -> Vec<f32> {
    let mut padded = Vec::new();
    for rows in rows.chunks(N_BOXES * 5) {
        padded.extend_from_slice(rows);
        for _ in N_BOXES..TRUTH_ROWS {
            padded.extend([-1.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_summed_and_rows_without_a_node_are_marked() {
        let profile = [(0, "conv", 1.0), (1, "bn", 0.5), (2, "conv", 2.0), (usize::MAX, "optimizer", 0.25)];
        assert_eq!(by_family(&profile).to_string(), r#"{"conv":3.0,"bn":0.5,"optimizer":0.25}"#);
        let names = ["a", "b", "c"].map(str::to_owned);
        let rows = profile_rows(&profile, &names);
        assert_eq!((rows[1].0, rows[1].1.as_str(), rows[3].0), (1, "b", -1));
    }

    #[test]
    fn truth_is_filled_up_to_the_rows_of_the_plan() {
        let rows = padded_rows(&truth(2, N_BOXES, 80, 640.0));
        assert_eq!(rows.len(), 2 * TRUTH_ROWS * 5);
        assert_eq!(rows.chunks(5).filter(|row| row[0] < 0.0).count(), 2 * (TRUTH_ROWS - N_BOXES));
    }
}
