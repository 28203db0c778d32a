//! Building plans in several threads: cuDNN compiles many of them, which takes much longer than to run them.
//!
//! In:  calls, each with what the file remembers of it. Out: plans, each with the handle that it was built with.
//!
//! Each thread has a handle of its own, because no two may use one at once; a plan is later run with the handle that built it.
//! Nothing runs on the GPU here, and which plan is the best is not decided.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cache::{Entry, PlanCache, Way};
use super::search::{Round, Rounds, WORKSPACE_CAP};
use super::{ConvCall, graph};
use crate::engine::cuda::Precision;
use crate::engine::cuda::cudnn::{Handle, Plan, Recipe};
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::gpu::Gpu;

/// Threads at most; each has a handle that stays open.
const MAX_THREADS: usize = 8;
/// As much as a program's first thread has: compilers recurse.
const STACK_BYTES: usize = 8 << 20;

/// Index of the handle that a plan was built with and is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Builder(pub(super) usize);

impl Builder {
    /// The one that is always there.
    pub(super) const FIRST: Self = Self(0);
}

/// What was built for a call.
pub(super) enum Prepared {
    /// What the file remembers.
    Known(Plan, Builder),
    /// To choose from.
    Candidates(Candidates),
}

/// The first round of a call, and what else there is.
pub(super) struct Candidates {
    pub(super) round: Option<Round>,
    pub(super) rounds: Rounds,
    pub(super) builder: Builder,
}

impl Candidates {
    /// At most `limit` plans.
    pub(super) fn build(handle: &Handle, builder: Builder, call: &ConvCall, precision: Precision, limit: usize) -> Result<Self, CudaError> {
        let mut rounds = Rounds::new(graph(handle, call, precision)?, precision);
        let round = rounds.next(handle, limit)?;
        Ok(Self { round, rounds, builder })
    }
}

/// The plan that the file tells of, if it is one of cuDNN's and can be built.
pub(super) fn rebuild(handle: &Handle, call: &ConvCall, precision: Precision, cache: &PlanCache) -> Option<Plan> {
    let Some(Entry { way: Way::Cudnn { recipe, compiled }, .. }) = cache.get(call, precision) else { return None };
    let text = compiled.as_deref().and_then(|name| cache.text(name));
    let compiled = text.and_then(|text| Plan::from_json(handle, &text).ok());
    let built = || {
        let graph = graph(handle, call, precision).ok()?;
        Plan::new(handle, &graph.config(recipe).ok()?).ok()
    };
    compiled.or_else(built)
}

/// Handles for building that many calls at once, of which the first ones are there already.
pub(super) fn open_handles(gpu: &Arc<Gpu>, handles: &mut Vec<Handle>, n_calls: usize) {
    let n_cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let n_missing = n_cores.min(MAX_THREADS).min(n_calls).saturating_sub(handles.len());
    let opened = Mutex::new(Vec::new());
    in_threads(0..n_missing, |_| {
        // With fewer handles it only takes longer.
        if let Ok(handle) = Handle::open(gpu) {
            opened.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        }
    });
    handles.append(&mut opened.into_inner().unwrap_or_else(PoisonError::into_inner));
}

/// Builds what the file remembers and, for other calls, at most `limit` plans each. Calls for which that fails are missing in
/// the result: they are for a place that can tell the error.
pub(super) fn build_all(
    handles: &mut [Handle],
    calls: &[ConvCall],
    precision: Precision,
    cache: &PlanCache,
    limit: usize,
) -> Vec<(ConvCall, Prepared)> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(calls.len()));
    in_threads(handles.iter_mut().enumerate(), |(index, handle)| {
        let builder = Builder(index);
        if handle.gpu().bind().is_err() {
            return;
        }
        while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
            let known = rebuild(handle, call, precision, cache);
            let candidates = || Candidates::build(handle, builder, call, precision, limit).ok().map(Prepared::Candidates);
            let prepared = known.map(|plan| Prepared::Known(plan, builder)).or_else(candidates);
            if let Some(prepared) = prepared {
                done.lock().unwrap_or_else(PoisonError::into_inner).push((*call, prepared));
            }
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A plan that was built by a recipe.
pub(super) struct Built {
    pub(super) call: ConvCall,
    pub(super) plan: Plan,
    pub(super) builder: Builder,
    /// cuDNN compiled a kernel for it.
    pub(super) is_compiled: bool,
}

/// Builds calls by recipes, or from the texts of plans that the file names. What cannot be built, or needs too much memory, is missing.
pub(super) fn build_recipes(
    handles: &mut [Handle],
    work: &[(ConvCall, Recipe, Option<String>)],
    precision: Precision,
    cache: &PlanCache,
) -> Vec<Built> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(work.len()));
    in_threads(handles.iter_mut().enumerate(), |(index, handle)| {
        if handle.gpu().bind().is_err() {
            return;
        }
        while let Some((call, recipe, compiled)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let text = compiled.as_deref().and_then(|name| cache.text(name));
            let from_text = text.and_then(|text| Plan::from_json(handle, &text).ok()).map(|plan| (plan, true));
            let build = || {
                let config = graph(handle, call, precision).ok()?.config(recipe).ok()?;
                Some((Plan::new(handle, &config).ok()?, config.is_compiled_late().unwrap_or(false)))
            };
            if let Some((plan, is_compiled)) = from_text.or_else(build)
                && plan.workspace_bytes <= WORKSPACE_CAP
            {
                let built = Built { call: *call, plan, builder: Builder(index), is_compiled };
                done.lock().unwrap_or_else(PoisonError::into_inner).push(built);
            }
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `job` with each of the values in a thread of its own, and waits for all. A thread that cannot be started does nothing.
fn in_threads<T: Send>(values: impl Iterator<Item = T>, job: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for value in values {
            let job = &job;
            let builder = std::thread::Builder::new().name("convolutions".to_owned()).stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, move || job(value)).ok();
        }
    });
}
