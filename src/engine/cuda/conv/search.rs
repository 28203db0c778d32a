//! Choosing among cuDNN's plans: which are acceptable, and which is fastest.
//!
//! In:  an operation graph and, to time, memory. Out: a plan.
//!
//! Acceptable are deterministic engines without algorithms that lose accuracy, and for f32 without tensor cores, which would
//! round to TF32. Where nothing is left, one demand after the other is dropped, in the order of [`Compromise`].

use std::sync::Arc;

use super::{Compromise, ConvCall, ConvPointers, variant_pack};
use crate::engine::cuda::Precision;
use crate::engine::cuda::cudnn::{EngineConfig, Handle, OperationGraph, Plan, Source, note};
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::gpu::{Args, Function, Gpu, Launch};

/// Plans that need more are left out.
pub(super) const WORKSPACE_CAP: usize = 256 << 20;
/// Plans that are timed for a call at most: cuDNN lists the best guesses first.
const MAX_TIMED: usize = 14;
/// A candidate whose first run is so many times slower than the best is not timed further.
const HOPELESS: f32 = 4.0;
/// How long one series of runs should last.
const SERIES_US: f32 = 2_000.0;
const SERIES: usize = 3;

/// Memory for timing: the tensors of a call, then workspace.
pub(super) struct Scratch {
    pub(super) pointers: ConvPointers,
    workspace_bytes: usize,
}

impl Scratch {
    /// Bytes of a call's tensors, each aligned.
    pub(super) fn tensor_bytes(call: &ConvCall, precision: Precision) -> usize {
        let [a, b, out] = call.lens().map(|len| aligned(len * precision.bytes()));
        a + b + out + aligned(call.spec.out_channels * size_of::<f32>())
    }

    /// # Panics
    /// If there is no room for the tensors.
    pub(super) fn new(call: &ConvCall, precision: Precision, address: u64, bytes: usize) -> Self {
        let tensor_bytes = Self::tensor_bytes(call, precision);
        assert!(tensor_bytes <= bytes, "{call} needs {tensor_bytes} bytes to be timed, not {bytes}");
        let [a_bytes, b_bytes, out_bytes] = call.lens().map(|len| aligned(len * precision.bytes()) as u64);
        let b = address + a_bytes;
        let out = b + b_bytes;
        let bias = out + out_bytes;
        let pointers = ConvPointers { a: address, b, bias, out, workspace: address + tensor_bytes as u64 };
        Self { pointers, workspace_bytes: (bytes - tensor_bytes).min(WORKSPACE_CAP) }
    }

    /// Random numbers in all inputs.
    pub(super) fn fill(&self, gpu: &Arc<Gpu>, fill: Function, call: &ConvCall, precision: Precision) -> Result<(), CudaError> {
        let [a, b, _] = call.lens();
        let bias = call.spec.out_channels * size_of::<f32>() / precision.bytes();
        for (seed, (address, len)) in [(self.pointers.a, a), (self.pointers.b, b), (self.pointers.bias, bias)].into_iter().enumerate() {
            let args = Args::new().with(address).with(len as u64).with(seed as u32 * 0x1234_5677 + 1);
            gpu.launch(&Launch::linear(fill, len.div_ceil(1024).min(2048), 256, args))?;
        }
        Ok(())
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}

/// A plan, and the configuration it is remembered by.
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) config: EngineConfig,
    pub(super) compromise: Compromise,
    pub(super) time_us: Option<f32>,
}

/// The fastest plan with the smallest compromise; without memory, the first one. `None` if there is none at all.
pub(super) fn fastest(
    handle: &Handle,
    graph: &OperationGraph,
    precision: Precision,
    call: &ConvCall,
    scratch: Option<&Scratch>,
) -> Result<Option<Found>, CudaError> {
    // By what is given up; later sources are asked only if earlier ones had nothing good.
    let mut groups: [Vec<EngineConfig>; 4] = Default::default();
    for source in [Source::Heuristic, Source::Fallback, Source::EveryEngine] {
        for config in graph.configs(source)? {
            groups[compromise_of(&config.notes()?, precision) as usize].push(config);
        }
        if let Some(found) = best(handle, std::mem::take(&mut groups[0]), call, scratch)? {
            return Ok(Some(Found { compromise: Compromise::None, ..found }));
        }
    }
    let compromises = [Compromise::Winograd, Compromise::Precision, Compromise::Determinism];
    for (configs, compromise) in groups.into_iter().skip(1).zip(compromises) {
        if let Some(found) = best(handle, configs, call, scratch)? {
            return Ok(Some(Found { compromise, ..found }));
        }
    }
    Ok(None)
}

fn compromise_of(notes: &[i32], precision: Precision) -> Compromise {
    let has = |note| notes.contains(&note);
    let rounds = has(note::DOWN_CONVERT_INPUTS)
        || has(note::REDUCED_PRECISION_REDUCTION)
        || has(note::FFT)
        || (has(note::TENSOR_CORE) && precision == Precision::F32);
    if has(note::NONDETERMINISTIC) {
        Compromise::Determinism
    } else if rounds {
        Compromise::Precision
    } else if has(note::WINOGRAD) {
        Compromise::Winograd
    } else {
        Compromise::None
    }
}

/// The fastest of the configurations that can be built and need no more than the workspace.
fn best(handle: &Handle, configs: Vec<EngineConfig>, call: &ConvCall, scratch: Option<&Scratch>) -> Result<Option<Found>, CudaError> {
    let cap = scratch.map_or(WORKSPACE_CAP, |scratch| scratch.workspace_bytes);
    let mut best: Option<Found> = None;
    let mut n_timed = 0;
    for config in configs {
        let Ok(plan) = Plan::new(handle, &config) else { continue };
        if plan.workspace_bytes > cap {
            continue;
        }
        let compromise = Compromise::None; // The caller knows.
        let Some(scratch) = scratch else {
            return Ok(Some(Found { plan, config, compromise, time_us: None }));
        };
        let best_us = best.as_ref().and_then(|best| best.time_us).unwrap_or(f32::INFINITY);
        let pack = variant_pack(call, &scratch.pointers)?;
        // A plan may still refuse to run, or to be captured.
        let Ok(time) = time_us(handle.gpu(), best_us, &|| handle.execute(&plan, &pack)) else {
            handle.gpu().synchronize()?; // An error that is more than a refusal stays.
            continue;
        };
        if time < best_us {
            best = Some(Found { plan, config, compromise, time_us: Some(time) });
        }
        n_timed += 1;
        if n_timed == MAX_TIMED {
            break;
        }
    }
    Ok(best)
}

/// Microseconds that one run takes on the GPU, as part of a captured graph: the time to give it to the stream does not count.
///
/// A run that is hopelessly slower than `best_us` is timed once, roughly.
pub(super) fn time_us(gpu: &Arc<Gpu>, best_us: f32, issue: &dyn Fn() -> Result<(), CudaError>) -> Result<f32, CudaError> {
    let (start, end) = (gpu.event()?, gpu.event()?);
    let timed = |work: &dyn Fn() -> Result<(), CudaError>| {
        start.record()?;
        work()?;
        end.record()?;
        end.wait()?;
        Ok::<f32, CudaError>(end.ms_since(&start)? * 1_000.0)
    };
    issue()?; // Loads the kernels.
    gpu.synchronize()?;
    let first = timed(issue)?;
    // A short run's first time is mostly that of the call.
    if first > best_us * HOPELESS + 50.0 {
        return Ok(first);
    }
    let n_runs = (SERIES_US / first).clamp(2.0, 20.0) as usize;
    let graph = gpu.capture(|| (0..n_runs).try_for_each(|_| issue()))?;
    graph.launch()?; // Uploads the graph.
    let mut least = f32::INFINITY;
    for _ in 0..SERIES {
        least = least.min(timed(&|| graph.launch())?);
    }
    Ok(least / n_runs as f32)
}
