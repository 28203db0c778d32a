//! Choosing among cuDNN's plans: which are acceptable, and which is fastest.
//!
//! In:  an operation graph and, to time, memory. Out: plans in rounds; a plan.
//!
//! Acceptable are deterministic engines without algorithms that lose accuracy, and for f32 without tensor cores, which would
//! round to TF32. Where nothing is left, one demand after the other is dropped, in the order of [`Compromise`].
//!
//! A round is built as a whole before any of its plans is timed, so that rounds of many calls can be built at once (`prepare`).
//! All candidates of a round are timed once, the best few again.

use std::sync::Arc;

use super::{Compromise, ConvCall, ConvPointers, variant_pack};
use crate::engine::cuda::Precision;
use crate::engine::cuda::cudnn::{EngineConfig, Handle, OperationGraph, Plan, Source, note};
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::gpu::{Args, CapturedGraph, Event, Function, Gpu, Launch};

/// Plans that need more are left out.
pub(super) const WORKSPACE_CAP: usize = 256 << 20;
/// Plans in a round at most: cuDNN lists the best guesses first.
pub(super) const MAX_CANDIDATES: usize = 8;
/// Of these, engines that are compiled for the call: they take most of the time, and those listed later are variants.
const MAX_COMPILED: usize = 4;
/// A candidate whose first run is so many times slower than the best is not timed further, nor is one that is so many times
/// slower than the best of its round timed again.
const HOPELESS: f32 = 1.5;
/// What the call itself may add to the time of a run that is given to the stream alone.
const CALL_US: f32 = 40.0;
/// How long one series of runs should last.
const SERIES_US: f32 = 500.0;
/// Series by which the best of a round are told apart, after the one that all of them had.
const SERIES: usize = 3;
const FINALISTS: usize = 3;

/// Memory for timing: the tensors of a call, then workspace.
pub(super) struct Scratch {
    pub(super) pointers: ConvPointers,
    workspace_bytes: usize,
}

impl Scratch {
    /// Bytes of a call's tensors, each aligned.
    pub(super) fn tensor_bytes(call: &ConvCall, precision: Precision) -> usize {
        let [a, b, out] = call.lens().map(|len| aligned(len * precision.bytes()));
        let residual = if call.has_residual() { out } else { 0 };
        a + b + out + aligned(call.spec.out_channels * size_of::<f32>()) + residual
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
        let residual = bias + aligned(call.spec.out_channels * size_of::<f32>()) as u64;
        let pointers = ConvPointers { a: address, b, bias, residual, out, workspace: address + tensor_bytes as u64 };
        Self { pointers, workspace_bytes: (bytes - tensor_bytes).min(WORKSPACE_CAP) }
    }

    /// Random numbers in all inputs.
    pub(super) fn fill(&self, gpu: &Arc<Gpu>, fill: Function, call: &ConvCall, precision: Precision) -> Result<(), CudaError> {
        let [a, b, out] = call.lens();
        let residual = if call.has_residual() { out } else { 0 };
        let bias = call.spec.out_channels * size_of::<f32>() / precision.bytes();
        for (seed, (address, len)) in
            [(self.pointers.a, a), (self.pointers.b, b), (self.pointers.bias, bias), (self.pointers.residual, residual)]
                .into_iter()
                .filter(|&(_, len)| len > 0)
                .enumerate()
        {
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
pub(super) struct Candidate {
    pub(super) plan: Plan,
    pub(super) config: EngineConfig,
}

/// Plans for one call that give up the same.
pub(super) struct Round {
    pub(super) compromise: Compromise,
    /// Never empty.
    pub(super) candidates: Vec<Candidate>,
}

const SOURCES: [Source; 3] = [Source::Heuristic, Source::Fallback, Source::EveryEngine];
const COMPROMISES: [Compromise; 4] = [Compromise::None, Compromise::Winograd, Compromise::Precision, Compromise::Determinism];

/// The rounds of a call, built when asked for; later ones are worse.
pub(super) struct Rounds {
    graph: OperationGraph,
    precision: Precision,
    n_asked: usize,
    /// Not built yet, by what is given up.
    groups: [Vec<EngineConfig>; COMPROMISES.len()],
}

impl Rounds {
    pub(super) fn new(graph: OperationGraph, precision: Precision) -> Self {
        Self { graph, precision, n_asked: 0, groups: Default::default() }
    }

    /// At most `limit` plans, built with the handle of the graph. `None` if there are no more.
    ///
    /// Sources are asked one by one, only while the earlier ones had nothing good.
    pub(super) fn next(&mut self, handle: &Handle, limit: usize) -> Result<Option<Round>, CudaError> {
        loop {
            let candidates = build(handle, &mut self.groups[Compromise::None as usize], limit);
            if !candidates.is_empty() {
                return Ok(Some(Round { compromise: Compromise::None, candidates }));
            }
            let Some(&source) = SOURCES.get(self.n_asked) else { break };
            self.n_asked += 1;
            for config in self.graph.configs(source)? {
                self.groups[compromise_of(&config.notes()?, self.precision) as usize].push(config);
            }
        }
        for (compromise, group) in COMPROMISES.into_iter().zip(&mut self.groups) {
            let candidates = build(handle, group, limit);
            if !candidates.is_empty() {
                return Ok(Some(Round { compromise, candidates }));
            }
        }
        Ok(None)
    }
}

/// The first configurations that can be built and need no more than the workspace; takes what it looked at.
fn build(handle: &Handle, configs: &mut Vec<EngineConfig>, limit: usize) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let mut later = Vec::new();
    let mut n_compiled = 0;
    for config in std::mem::take(configs) {
        let is_full = candidates.len() == limit;
        let is_compiled = !is_full && config.is_compiled_late().unwrap_or(false);
        if is_full || (is_compiled && n_compiled == MAX_COMPILED) {
            later.push(config);
            continue;
        }
        let Ok(plan) = Plan::new(handle, &config) else { continue };
        if plan.workspace_bytes <= WORKSPACE_CAP {
            n_compiled += usize::from(is_compiled);
            candidates.push(Candidate { plan, config });
        }
    }
    *configs = later;
    candidates
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

/// The fastest of the candidates that run and fit into the memory, and its time in microseconds.
pub(super) fn fastest(
    handle: &Handle,
    candidates: Vec<Candidate>,
    call: &ConvCall,
    scratch: &Scratch,
) -> Result<Option<(Candidate, f32)>, CudaError> {
    let pack = variant_pack(call, &scratch.pointers)?;
    let stopwatch = Stopwatch::new(handle.gpu())?;
    let mut least = f32::INFINITY;
    let mut tried = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        if candidate.plan.workspace_bytes > scratch.workspace_bytes {
            continue;
        }
        // A plan may still refuse to run, or to be captured.
        if let Ok(trial) = stopwatch.try_out(least, &|| handle.execute(&candidate.plan, &pack)) {
            least = least.min(trial.time_us);
            tried.push((trial, candidate));
        } else {
            handle.gpu().synchronize()?; // An error that is more than a refusal stays.
        }
    }
    tried.sort_by(|(a, _), (b, _)| a.time_us.total_cmp(&b.time_us));
    tried.truncate(FINALISTS);
    for (trial, _) in tried.iter_mut().filter(|(trial, _)| trial.time_us <= least * HOPELESS) {
        stopwatch.repeat(trial)?;
    }
    let best = tried.into_iter().min_by(|(a, _), (b, _)| a.time_us.total_cmp(&b.time_us));
    Ok(best.map(|(trial, candidate)| (candidate, trial.time_us)))
}

/// Microseconds that one run takes on the GPU, as part of a captured graph: the time to give it to the stream does not count.
///
/// A run that is hopelessly slower than `best_us` is timed once, roughly.
pub(super) fn time_us(gpu: &Arc<Gpu>, best_us: f32, issue: &dyn Fn() -> Result<(), CudaError>) -> Result<f32, CudaError> {
    let stopwatch = Stopwatch::new(gpu)?;
    let mut trial = stopwatch.try_out(best_us, issue)?;
    if trial.time_us <= best_us * HOPELESS {
        stopwatch.repeat(&mut trial)?;
    }
    Ok(trial.time_us)
}

/// What was timed, to be timed again.
struct Trial {
    /// Several runs; none after a hopeless first one.
    series: Option<CapturedGraph>,
    n_runs: usize,
    time_us: f32,
}

struct Stopwatch {
    gpu: Arc<Gpu>,
    start: Event,
    end: Event,
}

impl Stopwatch {
    fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Ok(Self { gpu: Arc::clone(gpu), start: gpu.event()?, end: gpu.event()? })
    }

    /// Microseconds until what `work` gives to the stream is done.
    fn timed(&self, work: &dyn Fn() -> Result<(), CudaError>) -> Result<f32, CudaError> {
        self.start.record()?;
        work()?;
        self.end.record()?;
        self.end.wait()?;
        Ok(self.end.ms_since(&self.start)? * 1_000.0)
    }

    /// One series, after as much as loads the kernels and the graph.
    fn try_out(&self, best_us: f32, issue: &dyn Fn() -> Result<(), CudaError>) -> Result<Trial, CudaError> {
        issue()?; // Loads the kernels.
        self.gpu.synchronize()?;
        let first = self.timed(issue)?;
        if first > best_us * HOPELESS + CALL_US {
            return Ok(Trial { series: None, n_runs: 1, time_us: first });
        }
        let n_runs = (SERIES_US / first).clamp(1.0, 20.0) as usize;
        let series = self.gpu.capture(|| (0..n_runs).try_for_each(|_| issue()))?;
        series.launch()?; // Uploads the graph.
        let time_us = self.timed(&|| series.launch())? / n_runs as f32;
        Ok(Trial { series: Some(series), n_runs, time_us })
    }

    /// More series, of which the fastest counts.
    fn repeat(&self, trial: &mut Trial) -> Result<(), CudaError> {
        let Some(series) = &trial.series else { return Ok(()) };
        for _ in 0..SERIES {
            trial.time_us = trial.time_us.min(self.timed(&|| series.launch())? / trial.n_runs as f32);
        }
        Ok(())
    }
}
