//! Convolutions on the GPU: which plan computes one fastest, and running it.
//!
//! In:  a geometry and addresses of packed tensors. Out: work on the GPU's stream.
//!
//! Activations are packed NHWC (cuDNN copies anything else), weights OHWI (I per group), both in the compute type; biases are
//! f32; sums are f32. The gradient of weights comes in the compute type, too: cuDNN has one plan for f32, a hundred times
//! slower than the others. What cuDNN guesses to be the best plan is up to 180 times slower than the best one, so plans
//! are built in several threads (`prepare`), timed once (`search`) and remembered in a file (`cache`). Our own kernels
//! (`own`) are timed beside them.
//!
//! Two runs of one plan give the same bits unless [`Convolutions::compromise`] says otherwise.

mod cache;
mod own;
mod prepare;
mod search;
#[cfg(all(test, feature = "gpu-tests"))]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use self::cache::{Entry, PlanCache, Way};
use self::own::Kernel;
use self::prepare::{Builder, Built, Candidates, Prepared};
use self::search::{Candidate, MAX_CANDIDATES, Round, Scratch, WORKSPACE_CAP};
use super::Precision;
use super::cudnn::{Handle, Operation, OperationGraph, Plan, Recipe, Tensor, VariantPack};
use super::error::CudaError;
use super::gpu::{Args, Function, Gpu, Launch};
use super::kernels::Kernels;
use crate::engine::op::{Act, ConvSpec};

/// What a convolution computes from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvPass {
    /// x, w -> y
    Forward,
    /// x, w, bias -> y = act(convolution + bias), plus a tensor like y with `residual`; for inference.
    ForwardBias { act: Act, residual: bool },
    /// `d_y`, w -> `d_x`, overwritten
    BackwardInput,
    /// x, `d_y` -> `d_w`, overwritten
    BackwardWeight,
}

/// A convolution with its sizes: what plans are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvCall {
    pub pass: ConvPass,
    pub spec: ConvSpec,
    pub n: usize,
    /// Of the input x, in all passes.
    pub h: usize,
    pub w: usize,
}

impl fmt::Display for ConvCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = match self.pass {
            ConvPass::Forward => "forward",
            ConvPass::ForwardBias { act: Act::None, residual: false } => "forward-bias",
            ConvPass::ForwardBias { act: Act::Silu, residual: false } => "forward-bias-silu",
            ConvPass::ForwardBias { act: Act::None, residual: true } => "forward-bias-add",
            ConvPass::ForwardBias { act: Act::Silu, residual: true } => "forward-bias-silu-add",
            ConvPass::BackwardInput => "backward-input",
            ConvPass::BackwardWeight => "backward-weight",
        };
        let ConvSpec { kernel, stride, pad, groups, in_channels, out_channels } = self.spec;
        write!(f, "{pass} {kernel}x{kernel} stride {stride} pad {pad} groups {groups} {in_channels}->{out_channels} ")?;
        write!(f, "of {}x{}x{}", self.n, self.h, self.w)
    }
}

impl ConvCall {
    fn x_len(&self) -> usize {
        self.n * self.h * self.w * self.spec.in_channels
    }

    fn y_len(&self) -> usize {
        self.n * self.spec.out_side(self.h) * self.spec.out_side(self.w) * self.spec.out_channels
    }

    fn has_residual(&self) -> bool {
        matches!(self.pass, ConvPass::ForwardBias { residual: true, .. })
    }

    /// Elements of the first and second input and of the output; see [`ConvPointers`].
    pub fn lens(&self) -> [usize; 3] {
        let (x, w, y) = (self.x_len(), self.spec.macs_per_pixel(), self.y_len());
        match self.pass {
            ConvPass::Forward | ConvPass::ForwardBias { .. } => [x, w, y],
            ConvPass::BackwardInput => [y, w, x],
            ConvPass::BackwardWeight => [x, y, w],
        }
    }
}

/// How plans are chosen.
#[derive(Clone, Copy, Debug)]
pub enum Search {
    /// cuDNN's first guess: at once, and possibly very slow to run.
    Heuristic,
    /// The fastest of the candidates. Overwrites this memory, aligned to 256 bytes, at least
    /// [`Convolutions::timing_bytes`] long.
    Timed { address: u64, bytes: usize },
}

/// Index of a plan in its [`Convolutions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvPlanId(usize);

/// What had to be given up to have a plan at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Compromise {
    None,
    /// Winograd's algorithm: fewer multiplications, larger rounding errors.
    Winograd,
    /// Products or sums in a format smaller than promised (TF32, half).
    Precision,
    /// Two runs may differ in the last bits.
    Determinism,
}

/// Addresses of a call's tensors, each aligned to 16 bytes and packed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvPointers {
    /// x; for [`ConvPass::BackwardInput`] `d_y`.
    pub a: u64,
    /// w; for [`ConvPass::BackwardWeight`] `d_y`.
    pub b: u64,
    /// Of [`ConvPass::ForwardBias`] only.
    pub bias: u64,
    /// Of [`ConvPass::ForwardBias`] with a residual only.
    pub residual: u64,
    /// y, `d_x` or `d_w`.
    pub out: u64,
    /// At least [`Convolutions::workspace_bytes`] long; its content is lost.
    pub workspace: u64,
}

/// A plan with its addresses, to be run any number of times.
pub struct BoundConv {
    /// Comes first.
    cudnn: Option<(ConvPlanId, VariantPack)>,
    launches: Vec<Launch>,
}

/// A way to compute a call.
enum Method {
    Cudnn(Plan, Builder),
    /// Without bias by another plan, then bias and activation in place.
    Split {
        forward: ConvPlanId,
    },
    /// By a kernel of ours.
    Own(Kernel),
}

struct Chosen {
    call: ConvCall,
    method: Method,
    compromise: Compromise,
    time_us: Option<f32>,
}

impl Chosen {
    /// Gives up less, or is faster where that is known. A guess stays.
    fn is_better_than(&self, other: &Self) -> bool {
        let is_faster = || self.time_us.zip(other.time_us).is_some_and(|(a, b)| a < b);
        self.compromise < other.compromise || (self.compromise == other.compromise && is_faster())
    }
}

/// The best so far, with what the file needs to remember it.
struct Best {
    chosen: Chosen,
    way: Option<Way>,
    /// The text of a compiled plan.
    compiled: Option<String>,
}

/// The plans of one GPU for one compute type.
pub struct Convolutions {
    precision: Precision,
    bias_act: Function,
    fill: Function,
    own: Vec<Kernel>,
    plans: Vec<Chosen>,
    ids: HashMap<ConvCall, ConvPlanId>,
    /// Timed calls of each convolution: with pictures of other sizes.
    relatives: HashMap<(ConvPass, ConvSpec), Vec<ConvCall>>,
    /// Built, and not asked for yet.
    prepared: HashMap<ConvCall, Prepared>,
    /// By [`Builder`]; after all that was built with them, because fields are dropped in this order. Never empty.
    handles: Vec<Handle>,
    gpu: Arc<Gpu>,
    cache: PlanCache,
    /// Calls whose plans were timed, not found in the file.
    pub n_searched: usize,
}

impl Convolutions {
    /// `kernels` must stay loaded for as long as this and what it binds are used.
    ///
    /// # Errors
    /// cuDNN is missing, too old, or does not start.
    pub fn open(kernels: &Kernels) -> Result<Self, CudaError> {
        let handle = Handle::open(kernels.gpu())?;
        let cache = PlanCache::of_device(kernels.gpu(), handle.version);
        Ok(Self {
            precision: kernels.precision(),
            bias_act: kernels.get("conv_bias_act"),
            fill: kernels.get("conv_fill"),
            own: Kernel::all(kernels),
            plans: Vec::new(),
            ids: HashMap::new(),
            relatives: HashMap::new(),
            prepared: HashMap::new(),
            handles: vec![handle],
            gpu: Arc::clone(kernels.gpu()),
            cache,
            n_searched: 0,
        })
    }

    fn handle(&self, builder: Builder) -> &Handle {
        &self.handles[builder.0]
    }

    /// Memory that [`Search::Timed`] needs for a call.
    pub fn timing_bytes(&self, call: &ConvCall) -> usize {
        Scratch::tensor_bytes(call, self.precision) + WORKSPACE_CAP
    }

    /// Builds in several threads what [`Self::plan`] will need for these calls. Plans stay in memory until they are asked for, with
    /// compiled kernels: some dozens of calls at once are enough.
    ///
    /// It only saves time: what cannot be built is left to [`Self::plan`], which tells the error.
    pub fn prepare(&mut self, calls: &[ConvCall]) {
        self.prepare_up_to(calls, MAX_CANDIDATES);
    }

    /// With at most `limit` plans to choose from for each call.
    fn prepare_up_to(&mut self, calls: &[ConvCall], limit: usize) {
        let mut seen = HashSet::new();
        let mut work = Vec::new();
        let without_bias = |call: &ConvCall| match call.pass {
            ConvPass::ForwardBias { .. } => Some(ConvCall { pass: ConvPass::Forward, ..*call }),
            _ => None,
        };
        for call in calls {
            // The plan without bias is needed where it may be, or was, the better one.
            let is_split_possible = self.cache.get(call, self.precision).is_none_or(|entry| matches!(entry.way, Way::Split));
            for call in [Some(*call), without_bias(call).filter(|_| is_split_possible)].into_iter().flatten() {
                let is_timed = self.ids.get(&call).is_some_and(|id| self.plans[id.0].time_us.is_some());
                if is_timed || self.prepared.contains_key(&call) || !seen.insert(call) {
                    continue;
                }
                let entry = self.cache.get(&call, self.precision);
                if entry.is_none_or(|entry| matches!(entry.way, Way::Cudnn { .. })) {
                    work.push(call);
                }
            }
        }
        // One is built as fast by whoever asks for it.
        if work.len() > 1 {
            prepare::open_handles(&self.gpu, &mut self.handles, work.len());
            self.prepared.extend(prepare::build_all(&mut self.handles, &work, self.precision, &self.cache, limit));
        }
    }

    /// The plan for a call: the one it has, or from the file, or a new one.
    ///
    /// A plan that was guessed is replaced when timing is asked for; what is bound to it stays valid.
    ///
    /// # Errors
    /// cuDNN has no plan for the call, or a timed plan makes the GPU fail.
    pub fn plan(&mut self, call: &ConvCall, search: Search) -> Result<ConvPlanId, CudaError> {
        if let (Search::Heuristic, Some(&guessed)) = (search, self.ids.get(call)) {
            return Ok(guessed);
        }
        if let Some(id) = self.known(call) {
            return Ok(id);
        }
        self.gpu.bind()?;
        let chosen = self.choose(call, search)?;
        Ok(self.add(chosen))
    }

    /// The plan for a call, if it was timed before, in this run of the program or an earlier one.
    pub fn known(&mut self, call: &ConvCall) -> Option<ConvPlanId> {
        if let Some(&id) = self.ids.get(call)
            && self.plans[id.0].time_us.is_some()
        {
            return Some(id);
        }
        self.gpu.bind().ok()?;
        let chosen = self.recall(call)?;
        Some(self.add(chosen))
    }

    /// Whether a call has a plan that was timed, now or in an earlier run of the program.
    pub fn is_timed(&self, call: &ConvCall) -> bool {
        let is_here = self.ids.get(call).is_some_and(|id| self.plans[id.0].time_us.is_some());
        is_here || self.cache.get(call, self.precision).is_some_and(|entry| !entry.is_borrowed)
    }

    /// Plans made as for the most similar calls that were timed: the same convolutions of pictures of other sizes. They take a part of
    /// the time that timing takes, and are kept in the file as what they are.
    ///
    /// By call in the result; calls are missing that have no relatives, or to which their plans do not fit.
    pub fn plan_like_others(&mut self, calls: &[ConvCall]) -> HashMap<ConvCall, ConvPlanId> {
        // What was borrowed before, and what was timed.
        let mut work: Vec<(ConvCall, Recipe, Option<String>)> = Vec::new();
        let mut ways = Vec::new();
        let forward = |call: &ConvCall| ConvCall { pass: ConvPass::Forward, ..*call };
        let mut ids = HashMap::new();
        for call in calls {
            if let Some(&id) = self.ids.get(call) {
                ids.insert(*call, id);
                continue;
            }
            let Some(entry) = self.borrowed_entry(call) else { continue };
            let of_cudnn = match &entry.way {
                Way::Split => self.borrowed_entry(&forward(call)).map(|entry| (forward(call), entry)),
                _ => Some((*call, entry.clone())),
            };
            if let Some((call, Entry { way: Way::Cudnn { recipe, compiled }, .. })) = of_cudnn
                && !self.ids.contains_key(&call)
                && !work.iter().any(|(other, ..)| *other == call)
            {
                work.push((call, recipe, compiled));
            }
            ways.push((*call, entry));
        }
        if self.gpu.bind().is_err() {
            return HashMap::new();
        }
        prepare::open_handles(&self.gpu, &mut self.handles, work.len());
        let built = prepare::build_recipes(&mut self.handles, &work, self.precision, &self.cache);
        let mut built: HashMap<ConvCall, Built> = built.into_iter().map(|built| (built.call, built)).collect();

        for (call, entry) in ways {
            let id = match &entry.way {
                Way::Split => {
                    let forward = forward(&call);
                    // Another call may share it.
                    let of_forward = self.ids.get(&forward).copied().or_else(|| {
                        let entry = self.borrowed_entry(&forward)?;
                        self.add_borrowed(&forward, entry, &mut built)
                    });
                    of_forward.map(|forward| {
                        let chosen = Chosen { call, method: Method::Split { forward }, compromise: entry.compromise, time_us: None };
                        self.cache.put(&call, self.precision, entry, None);
                        self.add(chosen)
                    })
                }
                _ => self.add_borrowed(&call, entry, &mut built),
            };
            ids.extend(id.map(|id| (call, id)));
        }
        ids
    }

    /// What the file has for a call, or for its nearest relative.
    fn borrowed_entry(&self, call: &ConvCall) -> Option<Entry> {
        if let Some(entry) = self.cache.get(call, self.precision) {
            return Some(entry.clone());
        }
        let n_pixels = |call: &ConvCall| call.n * call.h * call.w;
        let relatives = self.relatives.get(&(call.pass, call.spec))?;
        let nearest = relatives.iter().min_by_key(|other| n_pixels(other).abs_diff(n_pixels(call)))?;
        let mut entry = self.cache.get(nearest, self.precision)?.clone();
        entry.is_borrowed = true;
        if let Way::Cudnn { compiled, .. } = &mut entry.way {
            // It is made for the relative's sizes.
            *compiled = None;
        }
        Some(entry)
    }

    fn add_borrowed(&mut self, call: &ConvCall, entry: Entry, built: &mut HashMap<ConvCall, Built>) -> Option<ConvPlanId> {
        let mut text = None;
        let method = match &entry.way {
            Way::Split => return None,
            Way::Own { kernel } => Method::Own(*self.own.iter().find(|own| own.name() == kernel && own.supports(call))?),
            Way::Cudnn { compiled, .. } => {
                let Built { plan, builder, is_compiled, .. } = built.remove(call)?;
                if compiled.is_none() && is_compiled {
                    text = plan.to_json().ok();
                }
                Method::Cudnn(plan, builder)
            }
        };
        let chosen = Chosen { call: *call, method, compromise: entry.compromise, time_us: None };
        self.cache.put(call, self.precision, entry, text);
        Some(self.add(chosen))
    }

    fn add(&mut self, chosen: Chosen) -> ConvPlanId {
        let id = ConvPlanId(self.plans.len());
        if chosen.time_us.is_some() {
            self.relatives.entry((chosen.call.pass, chosen.call.spec)).or_default().push(chosen.call);
        }
        self.ids.insert(chosen.call, id);
        self.plans.push(chosen);
        id
    }

    /// Builds again what the file remembers; nothing if that fails.
    fn recall(&mut self, call: &ConvCall) -> Option<Chosen> {
        let entry = self.cache.get(call, self.precision).filter(|entry| !entry.is_borrowed)?.clone();
        let method = match &entry.way {
            Way::Split => {
                let forward = self.plan(&ConvCall { pass: ConvPass::Forward, ..*call }, Search::Heuristic).ok()?;
                self.time_us(forward)?; // A guess is no replacement for what was timed.
                Method::Split { forward }
            }
            Way::Own { kernel } => Method::Own(*self.own.iter().find(|own| own.name() == kernel && own.supports(call))?),
            Way::Cudnn { .. } => match self.prepared.remove(call) {
                Some(Prepared::Known(plan, builder)) => Method::Cudnn(plan, builder),
                // That what the file remembers cannot be built was found out before.
                Some(candidates) => {
                    self.prepared.insert(*call, candidates);
                    return None;
                }
                None => {
                    let plan = prepare::rebuild(self.handle(Builder::FIRST), call, self.precision, &self.cache)?;
                    Method::Cudnn(plan, Builder::FIRST)
                }
            },
        };
        Some(Chosen { call: *call, method, compromise: entry.compromise, time_us: Some(entry.time_us) })
    }

    /// The best of cuDNN's plans, of the plan without bias with the rest after it, and of our own kernels.
    fn choose(&mut self, call: &ConvCall, search: Search) -> Result<Chosen, CudaError> {
        let scratch = match search {
            Search::Heuristic => None,
            Search::Timed { address, bytes } => Some(Scratch::new(call, self.precision, address, bytes)),
        };
        // First, because it leaves other numbers in the memory.
        let forward = match call.pass {
            ConvPass::ForwardBias { .. } => Some(self.plan(&ConvCall { pass: ConvPass::Forward, ..*call }, search)?),
            _ => None,
        };
        if let Some(scratch) = &scratch {
            scratch.fill(&self.gpu, self.fill, call, self.precision)?;
            self.n_searched += 1;
        }

        let mut best = match self.best_of_cudnn(call, scratch.as_ref()) {
            Ok(best) => best,
            Err(CudaError::Cudnn { .. }) if forward.is_some() => None,
            Err(error) => return Err(error),
        };

        let split = forward.map(|forward| (Method::Split { forward }, self.compromise(forward), Way::Split));
        // Untimed they are no better than a guess.
        let is_own_wanted = scratch.is_some() || best.is_none();
        let own = self.own.iter().filter(|own| is_own_wanted && own.supports(call));
        let own = own.map(|own| (Method::Own(*own), Compromise::None, Way::Own { kernel: own.name().to_owned() }));
        for (method, compromise, way) in split.into_iter().chain(own) {
            let best_us = best.as_ref().and_then(|best| best.chosen.time_us).unwrap_or(f32::INFINITY);
            let time_us = match &scratch {
                None => None,
                Some(scratch) => {
                    let launches = self.launches(call, &method, scratch.pointers)?;
                    let Ok(time_us) = search::time_us(&self.gpu, best_us, &|| self.run(&launches)) else { continue };
                    Some(time_us)
                }
            };
            let chosen = Chosen { call: *call, method, compromise, time_us };
            if best.as_ref().is_none_or(|best| chosen.is_better_than(&best.chosen)) {
                best = Some(Best { chosen, way: Some(way), compiled: None });
            }
        }

        let Best { chosen, way, compiled } = best.ok_or_else(|| CudaError::NoPlan { what: call.to_string() })?;
        if let (Some(way), Some(time_us)) = (way, chosen.time_us) {
            let entry = Entry { way, compromise: chosen.compromise, time_us, is_borrowed: false };
            self.cache.put(call, self.precision, entry, compiled);
        }
        Ok(chosen)
    }

    /// The best of cuDNN's plans, and how the file should remember it; without memory the first one, which is not remembered.
    fn best_of_cudnn(&mut self, call: &ConvCall, scratch: Option<&Scratch>) -> Result<Option<Best>, CudaError> {
        let limit = if scratch.is_some() { MAX_CANDIDATES } else { 1 };
        let candidates = match self.prepared.remove(call) {
            Some(Prepared::Candidates(candidates)) => candidates,
            _ => Candidates::build(self.handle(Builder::FIRST), Builder::FIRST, call, self.precision, limit)?,
        };
        let Candidates { mut round, mut rounds, builder } = candidates;
        let handle = self.handle(builder);
        while let Some(Round { compromise, candidates }) = round {
            let found = match scratch {
                None => candidates.into_iter().next().map(|candidate| (candidate, None)),
                Some(scratch) => {
                    let found = search::fastest(handle, candidates, call, scratch)?;
                    found.map(|(candidate, time_us)| (candidate, Some(time_us)))
                }
            };
            if let Some((Candidate { plan, config }, time_us)) = found {
                // Only a compiled kernel is worth its megabyte in the file.
                let is_text_wanted = time_us.is_some() && config.is_compiled_late().unwrap_or(false);
                let compiled = if is_text_wanted { plan.to_json().ok() } else { None };
                let way = config.recipe().ok().map(|recipe| Way::Cudnn { recipe, compiled: None });
                let chosen = Chosen { call: *call, method: Method::Cudnn(plan, builder), compromise, time_us };
                return Ok(Some(Best { chosen, way, compiled }));
            }
            round = rounds.next(handle, limit)?;
        }
        Ok(None)
    }

    /// Bytes that a plan's runs may overwrite; 0 for none.
    pub fn workspace_bytes(&self, plan: ConvPlanId) -> usize {
        match &self.plans[plan.0].method {
            Method::Cudnn(plan, _) => plan.workspace_bytes,
            Method::Split { forward } => self.workspace_bytes(*forward),
            Method::Own(kernel) => kernel.workspace_bytes(&self.plans[plan.0].call),
        }
    }

    /// What a run took when the plan was chosen, if it was timed.
    pub fn time_us(&self, plan: ConvPlanId) -> Option<f32> {
        self.plans[plan.0].time_us
    }

    pub fn compromise(&self, plan: ConvPlanId) -> Compromise {
        self.plans[plan.0].compromise
    }

    /// Gives a plan its addresses, which must stay valid for as long as the result is run.
    pub fn bind(&self, plan: ConvPlanId, pointers: ConvPointers) -> Result<BoundConv, CudaError> {
        let Chosen { call, method, .. } = &self.plans[plan.0];
        match method {
            Method::Cudnn(..) => Ok(BoundConv { cudnn: Some((plan, variant_pack(call, &pointers)?)), launches: Vec::new() }),
            Method::Split { .. } | Method::Own(_) => self.launches(call, method, pointers),
        }
    }

    /// Binds what is no plan of cuDNN's alone.
    fn launches(&self, call: &ConvCall, method: &Method, pointers: ConvPointers) -> Result<BoundConv, CudaError> {
        match method {
            Method::Cudnn(..) => unreachable!("a plan of cuDNN's has no launches"),
            Method::Own(kernel) => Ok(BoundConv { cudnn: None, launches: kernel.launches(call, &pointers) }),
            Method::Split { forward } => {
                let mut bound = self.bind(*forward, pointers)?;
                bound.launches.push(bias_act(self.bias_act, self.precision, call, &pointers));
                Ok(bound)
            }
        }
    }

    /// Gives the work to the stream; may be captured. The first run of a plan loads its kernels, which a capture may not
    /// allow: run everything once before.
    pub fn run(&self, bound: &BoundConv) -> Result<(), CudaError> {
        self.run_in_lane(bound, 0)
    }

    /// As [`run`](Self::run), for a lane of a recording.
    pub fn run_in_lane(&self, bound: &BoundConv, lane: usize) -> Result<(), CudaError> {
        if let Some((id, pack)) = &bound.cudnn {
            let Method::Cudnn(plan, builder) = &self.plans[id.0].method else { unreachable!("`bind` names a plan of cuDNN's") };
            self.handle(*builder).execute_in_lane(plan, pack, lane)?;
        }
        bound.launches.iter().try_for_each(|launch| self.gpu.launch_in_lane(launch, lane))
    }

    /// Writes newly timed plans to the file, for the next start. Failing to is no error: it costs time, nothing else.
    pub fn save(&mut self) {
        self.cache.save();
    }
}

const UID_A: i64 = 1;
const UID_B: i64 = 2;
const UID_BIAS: i64 = 3;
const UID_OUT: i64 = 4;
const UID_CONVOLUTION: i64 = 5;
const UID_BIASED: i64 = 6;
const UID_ACTIVATED: i64 = 7;
const UID_RESIDUAL: i64 = 8;

/// The call in cuDNN's terms.
fn graph(handle: &Handle, call: &ConvCall, precision: Precision) -> Result<OperationGraph, CudaError> {
    let ConvCall { pass, spec, n, h, w } = *call;
    let ConvSpec { kernel, stride, pad, groups, in_channels, out_channels } = spec;
    let tensor = |uid, dims| Tensor { uid, dims, precision, is_virtual: false };
    let x = |uid| tensor(uid, [n, in_channels, h, w]);
    let y = |uid| tensor(uid, [n, out_channels, spec.out_side(h), spec.out_side(w)]);
    // cuDNN sees the groups from the depth of the weights.
    let weight = |uid| tensor(uid, [out_channels, in_channels / groups, kernel, kernel]);
    let between = |uid| Tensor { precision: Precision::F32, is_virtual: true, ..y(uid) };
    match pass {
        ConvPass::Forward => {
            OperationGraph::new(handle, &[Operation::Convolution { x: x(UID_A), w: weight(UID_B), y: y(UID_OUT), stride, pad }])
        }
        ConvPass::ForwardBias { act, residual } => {
            let sum = between(UID_CONVOLUTION);
            let bias = Tensor { precision: Precision::F32, ..tensor(UID_BIAS, [1, out_channels, 1, 1]) };
            let mut operations = vec![Operation::Convolution { x: x(UID_A), w: weight(UID_B), y: sum, stride, pad }];
            let activated = if residual { between(UID_ACTIVATED) } else { y(UID_OUT) };
            match act {
                Act::None => operations.push(Operation::Add { a: sum, b: bias, y: activated }),
                Act::Silu => {
                    let biased = between(UID_BIASED);
                    operations.push(Operation::Add { a: sum, b: bias, y: biased });
                    operations.push(Operation::Silu { x: biased, y: activated });
                }
            }
            if residual {
                operations.push(Operation::Add { a: activated, b: y(UID_RESIDUAL), y: y(UID_OUT) });
            }
            OperationGraph::new(handle, &operations)
        }
        ConvPass::BackwardInput => {
            let operation = Operation::ConvolutionBackwardInput { dy: y(UID_A), w: weight(UID_B), dx: x(UID_OUT), stride, pad };
            OperationGraph::new(handle, &[operation])
        }
        ConvPass::BackwardWeight => {
            let operation = Operation::ConvolutionBackwardWeight { x: x(UID_A), dy: y(UID_B), dw: weight(UID_OUT), stride, pad };
            OperationGraph::new(handle, &[operation])
        }
    }
}

fn variant_pack(call: &ConvCall, pointers: &ConvPointers) -> Result<VariantPack, CudaError> {
    let ConvPointers { a, b, bias, residual, out, workspace } = *pointers;
    let tensors = [(UID_A, a), (UID_B, b), (UID_OUT, out), (UID_BIAS, bias), (UID_RESIDUAL, residual)];
    let n_tensors = match call.pass {
        ConvPass::ForwardBias { residual: true, .. } => 5,
        ConvPass::ForwardBias { residual: false, .. } => 4,
        _ => 3,
    };
    VariantPack::new(&tensors[..n_tensors], workspace)
}

/// `out = act(out + bias)`, plus the residual if there is one.
fn bias_act(function: Function, precision: Precision, call: &ConvCall, pointers: &ConvPointers) -> Launch {
    const THREADS: usize = 256;
    let [_, _, n_elements] = call.lens();
    let silu = matches!(call.pass, ConvPass::ForwardBias { act: Act::Silu, .. });
    let has_residual = call.has_residual();
    let args = Args::new()
        .with(pointers.out)
        .with(pointers.bias)
        .with(if has_residual { pointers.residual } else { 0 })
        .with(i32::try_from(n_elements).expect("an output of fewer than 2^31 elements"))
        .with(call.spec.out_channels as i32)
        .with(i32::from(silu));
    Launch::linear(function, n_elements.div_ceil(16 / precision.bytes() * THREADS), THREADS, args)
}
