//! Convolutions of cuDNN against those of the CPU, and what is remembered of them.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::{Compromise, ConvCall, ConvPass, ConvPlanId, ConvPointers, Convolutions, Kernel, Method, PlanCache, Search};
use crate::engine::cpu::conv::{PackedWeights, conv_backward_input, conv_backward_weight, conv_forward};
use crate::engine::cpu::view::{View, ViewMut};
use crate::engine::cuda::Precision;
use crate::engine::cuda::testing::{PRECISIONS, Random, TestGpu, test_gpu, test_kernels};
use crate::engine::graph::Shape;
use crate::engine::op::{Act, ConvSpec};

const PASSES: [ConvPass; 6] = [
    ConvPass::Forward,
    ConvPass::ForwardBias { act: Act::None, residual: false },
    ConvPass::ForwardBias { act: Act::Silu, residual: false },
    ConvPass::ForwardBias { act: Act::Silu, residual: true },
    ConvPass::BackwardInput,
    ConvPass::BackwardWeight,
];

fn spec(kernel: usize, stride: usize, groups: usize, in_channels: usize, out_channels: usize) -> ConvSpec {
    ConvSpec { kernel, stride, pad: kernel / 2, groups, in_channels, out_channels }
}

/// Geometry, batch, height and width.
const fn sizes() -> [(usize, usize, usize); 2] {
    [(2, 8, 8), (1, 5, 7)]
}

/// Every kind of convolution that the networks have, small; then one of real size.
fn calls(pass: ConvPass) -> Vec<ConvCall> {
    let specs = [
        spec(1, 1, 1, 16, 32),
        spec(3, 1, 1, 16, 32),
        spec(3, 2, 1, 16, 32),
        spec(3, 1, 4, 64, 64),
        spec(1, 1, 4, 64, 64),
        spec(3, 2, 1, 3, 16),
        spec(1, 1, 1, 64, 3),
        spec(1, 1, 1, 64, 80),
        spec(3, 1, 1, 24, 12),
        spec(3, 1, 1, 32, 32),
    ];
    let small = specs.into_iter().flat_map(|spec| sizes().map(|(n, h, w)| ConvCall { pass, spec, n, h, w }));
    small.chain([ConvCall { pass, spec: spec(3, 1, 1, 64, 64), n: 2, h: 40, w: 40 }]).collect()
}

/// Convolutions that leave the files of whoever runs the tests alone.
fn convolutions(precision: Precision) -> Convolutions {
    let mut convolutions = Convolutions::open(test_kernels(precision)).unwrap();
    convolutions.cache = PlanCache::open(None);
    convolutions
}

/// What computes a call in a test.
enum Planned {
    Id(ConvPlanId),
    Own(Kernel),
}

/// Inputs in the order of the pointers, and the bias.
struct Inputs {
    a: Vec<f32>,
    b: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
}

impl Inputs {
    fn random(call: &ConvCall, precision: Precision) -> Self {
        let mut random = Random::new(call.lens().iter().sum::<usize>() as u64);
        let [a, b] = [call.lens()[0], call.lens()[1]].map(|len| random.values(len, -1.0, 1.0, precision));
        let bias = random.values(call.spec.out_channels, -1.0, 1.0, Precision::F32);
        Self { a, b, bias, residual: random.values(call.lens()[2], -1.0, 1.0, precision) }
    }

    fn on_cpu(&self, call: &ConvCall) -> Vec<f32> {
        let ConvCall { pass, spec, n, h, w } = *call;
        let x = Shape::new(n, h, w, spec.in_channels);
        let y = Shape::new(n, spec.out_side(h), spec.out_side(w), spec.out_channels);
        let mut out = vec![0.0; call.lens()[2]];
        let Self { a, b, bias, residual } = self;
        let mut forward = |bias, act| {
            let weights = PackedWeights::pack(spec, b);
            let residual = call.has_residual().then(|| View::packed(residual, y));
            conv_forward(View::packed(a, x), &weights, bias, act, residual, ViewMut::packed(&mut out, y));
        };
        match pass {
            ConvPass::Forward => forward(None, Act::None),
            ConvPass::ForwardBias { act, .. } => forward(Some(bias), act),
            ConvPass::BackwardInput => conv_backward_input(spec, View::packed(a, y), b, ViewMut::packed(&mut out, x), false),
            ConvPass::BackwardWeight => conv_backward_weight(spec, View::packed(a, x), View::packed(b, y), &mut out, None),
        }
        out
    }

    /// Runs the call with a chosen method, with a poisoned workspace.
    fn by(&self, test: &TestGpu, convolutions: &Convolutions, call: &ConvCall, plan: &Planned) -> Vec<f32> {
        let precision = convolutions.precision;
        let [a, b] = [&self.a, &self.b].map(|values| test.upload(values, precision));
        let bias = test.gpu.upload(&self.bias).unwrap();
        let n_out = call.lens()[2];
        let out = test.poisoned(n_out, precision);
        let bytes = match plan {
            Planned::Id(id) => convolutions.workspace_bytes(*id),
            Planned::Own(kernel) => kernel.workspace_bytes(call),
        };
        let workspace = test.gpu.alloc(bytes).unwrap();
        workspace.fill(0xff).unwrap();
        let residual = test.upload(&self.residual, precision);
        let pointers = ConvPointers {
            a: a.address,
            b: b.address,
            bias: bias.address,
            residual: residual.address,
            out: out.address,
            workspace: workspace.address,
        };
        let bound = match plan {
            Planned::Id(id) => convolutions.bind(*id, pointers).unwrap(),
            Planned::Own(kernel) => convolutions.launches(call, &Method::Own(*kernel), pointers).unwrap(),
        };
        convolutions.run(&bound).unwrap();
        test.download(&out, n_out, precision)
    }

    /// Runs the call twice and holds the bits against each other, if they are promised to be the same.
    fn on_gpu(&self, test: &TestGpu, convolutions: &mut Convolutions, call: &ConvCall, search: Search) -> Vec<f32> {
        let id = convolutions.plan(call, search).unwrap();
        let plan = Planned::Id(id);
        let out = self.by(test, convolutions, call, &plan);
        if convolutions.compromise(id) != Compromise::Determinism {
            assert_eq!(out, self.by(test, convolutions, call, &plan), "{call} in {:?}: two runs", convolutions.precision);
        }
        out
    }
}

/// Distance of the two as vectors, relative to the length of the expected one.
fn relative_error(actual: &[f32], expected: &[f32]) -> f64 {
    let square = |sum: f64, value: f64| sum + value * value;
    let length = expected.iter().map(|&value| f64::from(value)).fold(0.0, square).sqrt();
    let pairs = actual.iter().zip(expected);
    pairs.map(|(&actual, &expected)| f64::from(actual) - f64::from(expected)).fold(0.0, square).sqrt() / length
}

/// Rounding of inputs does not count, that of the output (and of the sum before the bias) does.
fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::F16 => 2e-3,
        Precision::Bf16 => 1e-2,
    }
}

/// With the first plan that cuDNN guesses for each call, and with the fastest for the one of real size: a search takes long.
fn assert_matches_the_cpu(pass: ConvPass) {
    let test = test_gpu();
    for precision in PRECISIONS {
        let mut convolutions = convolutions(precision);
        let calls = calls(pass);
        convolutions.prepare_up_to(&calls, 1);
        let real = calls.last().unwrap();
        let memory = test.gpu.alloc(convolutions.timing_bytes(real)).unwrap();
        let timed = Search::Timed { address: memory.address, bytes: memory.bytes };
        for (call, search) in calls.iter().map(|call| (call, Search::Heuristic)).chain([(real, timed)]) {
            let inputs = Inputs::random(call, precision);
            let actual = inputs.on_gpu(&test, &mut convolutions, call, search);
            let error = relative_error(&actual, &inputs.on_cpu(call));
            assert!(error <= tolerance(precision), "{call} in {precision:?}, {search:?}: off by {error:e}");
        }
    }
}

#[test]
fn forward_matches_the_cpu() {
    assert_matches_the_cpu(ConvPass::Forward);
}

#[test]
fn forward_with_bias_matches_the_cpu() {
    assert_matches_the_cpu(ConvPass::ForwardBias { act: Act::None, residual: false });
}

#[test]
fn forward_with_bias_and_activation_matches_the_cpu() {
    assert_matches_the_cpu(ConvPass::ForwardBias { act: Act::Silu, residual: false });
}

#[test]
fn forward_with_bias_activation_and_residual_matches_the_cpu() {
    assert_matches_the_cpu(ConvPass::ForwardBias { act: Act::Silu, residual: true });
}

#[test]
fn backward_input_matches_the_cpu() {
    assert_matches_the_cpu(ConvPass::BackwardInput);
}

#[test]
fn backward_weight_matches_the_cpu() {
    assert_matches_the_cpu(ConvPass::BackwardWeight);
}

/// All own kernels for a call against the CPU and themselves, also where they are not the fastest.
fn assert_own_match_the_cpu(test: &TestGpu, convolutions: &Convolutions, call: &ConvCall) {
    let precision = convolutions.precision;
    let own: Vec<Kernel> = convolutions.own.iter().filter(|own| own.supports(call)).copied().collect();
    assert!(!own.is_empty() || test.gpu.sm < 80, "{call}");
    let inputs = Inputs::random(call, precision);
    let expected = inputs.on_cpu(call);
    for kernel in own {
        let plan = Planned::Own(kernel);
        let actual = inputs.by(test, convolutions, call, &plan);
        let error = relative_error(&actual, &expected);
        assert!(error <= tolerance(precision), "{call} in {precision:?} by {}: off by {error:e}", kernel.name());
        assert_eq!(actual, inputs.by(test, convolutions, call, &plan), "{call} by {}: two runs", kernel.name());
    }
}

/// Our own kernels add no residual.
fn own_passes() -> impl Iterator<Item = ConvPass> {
    PASSES.into_iter().filter(|pass| !matches!(pass, ConvPass::ForwardBias { residual: true, .. }))
}

#[test]
fn own_3x3_kernels_match_the_cpu() {
    let test = test_gpu();
    for precision in [Precision::Bf16, Precision::F16] {
        let convolutions = convolutions(precision);
        let specs = [spec(3, 1, 1, 16, 16), spec(3, 1, 1, 32, 32), spec(3, 1, 1, 48, 48), spec(3, 1, 4, 64, 64)];
        for (spec, pass) in specs.into_iter().flat_map(|spec| own_passes().map(move |pass| (spec, pass))) {
            for (n, h, w) in [(1, 1, 1), (1, 5, 7), (2, 21, 35), (8, 40, 40)] {
                assert_own_match_the_cpu(&test, &convolutions, &ConvCall { pass, spec, n, h, w });
            }
        }
    }
}

/// Widths that are no multiple of 8 are read another way.
#[test]
fn the_own_stem_matches_the_cpu() {
    let test = test_gpu();
    for precision in [Precision::Bf16, Precision::F16] {
        let convolutions = convolutions(precision);
        for (out_channels, pass) in [16, 32, 64].into_iter().flat_map(|out| own_passes().map(move |pass| (out, pass))) {
            let spec = spec(3, 2, 1, 3, out_channels);
            for (n, h, w) in [(1, 1, 1), (1, 5, 7), (2, 21, 131), (3, 13, 136), (2, 320, 320)] {
                if pass != ConvPass::BackwardInput {
                    assert_own_match_the_cpu(&test, &convolutions, &ConvCall { pass, spec, n, h, w });
                }
            }
        }
    }
}

/// Once each by whoever asks, once by several threads in advance.
#[test]
fn timed_plans_are_built_again_from_the_file() {
    let test = test_gpu();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plans.json");
    let precision = Precision::F16;
    let mut first = convolutions(precision);
    first.cache = PlanCache::open(Some(path.clone()));
    let calls = PASSES.map(|pass| ConvCall { pass, spec: spec(3, 1, 1, 32, 64), n: 2, h: 20, w: 20 });
    let memory = test.gpu.alloc(calls.iter().map(|call| first.timing_bytes(call)).max().unwrap()).unwrap();
    let search = Search::Timed { address: memory.address, bytes: memory.bytes };
    first.prepare(&calls);
    assert!(!first.prepared.is_empty());
    let expected = calls.map(|call| Inputs::random(&call, precision).on_gpu(&test, &mut first, &call, search));
    assert_eq!(first.n_searched, calls.len());
    assert!(first.prepared.is_empty(), "all that was built was asked for");
    first.save();

    for is_prepared in [false, true] {
        let mut second = convolutions(precision);
        second.cache = PlanCache::open(Some(path.clone()));
        if is_prepared {
            second.prepare(&calls);
        }
        for (call, expected) in calls.iter().zip(&expected) {
            let actual = Inputs::random(call, precision).on_gpu(&test, &mut second, call, search);
            assert_eq!(&actual, expected, "{call}");
            let times = [&first, &second].map(|convolutions| convolutions.time_us(convolutions.ids[call]).unwrap());
            assert!((times[0] - times[1]).abs() < 1e-3 * times[0], "{call}: {times:?} us");
        }
        assert_eq!(second.n_searched, 0);
        assert!(second.prepared.is_empty());
    }
}

/// Without a file, and in a captured graph, as a step runs it.
#[test]
fn a_bound_convolution_can_be_captured() {
    let test = test_gpu();
    let mut convolutions = convolutions(Precision::F32);
    let call = ConvCall { pass: ConvPass::ForwardBias { act: Act::Silu, residual: false }, spec: spec(3, 1, 1, 8, 8), n: 1, h: 9, w: 9 };
    let inputs = Inputs::random(&call, Precision::F32);
    let expected = inputs.on_gpu(&test, &mut convolutions, &call, Search::Heuristic);
    let plan = convolutions.plan(&call, Search::Heuristic).unwrap();
    let [a, b, bias] = [&inputs.a, &inputs.b, &inputs.bias].map(|values| test.gpu.upload(values).unwrap());
    let workspace = test.gpu.alloc(convolutions.workspace_bytes(plan)).unwrap();
    let out = test.poisoned(expected.len(), Precision::F32);
    let pointers = ConvPointers {
        a: a.address,
        b: b.address,
        bias: bias.address,
        out: out.address,
        workspace: workspace.address,
        ..ConvPointers::default()
    };
    let bound = convolutions.bind(plan, pointers).unwrap();
    test.gpu.capture(|| convolutions.run(&bound)).unwrap().launch().unwrap();
    assert_eq!(test.download(&out, expected.len(), Precision::F32), expected);
}
