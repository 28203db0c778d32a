//! Whole small graphs through the executor: values, and gradients against finite differences.
//!
//! Every run starts from an arena full of NaN, so that a value nobody wrote cannot go unnoticed.

use super::Executor;
use crate::engine::gradients::{GradientStyle, append_gradients_from};
use crate::engine::graph::{DType, Graph, Shape, TensorId};
use crate::engine::op::{Act, BnMode, BnParams, ConvSpec, Op};
use crate::engine::packed::pack_convolution_inputs;
use crate::engine::params::{ParamId, ParamKind, ParamSpec, Params};
use crate::engine::plan::Plan;
use crate::engine::recompute::recompute;

/// A small deterministic generator: uniform in -1..1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

/// A graph under construction, with its parameters.
#[derive(Default)]
struct Builder {
    graph: Graph,
    params: Params,
    inputs: Vec<TensorId>,
}

impl Builder {
    fn input(&mut self, shape: Shape) -> TensorId {
        let id = self.graph.input(&format!("input{}", self.inputs.len()), shape, DType::Compute);
        self.inputs.push(id);
        id
    }

    fn param(&mut self, kind: ParamKind, dims: &[usize]) -> ParamId {
        self.params.add(ParamSpec { name: format!("p{}", self.params.specs.len()), kind, dims: dims.to_vec() })
    }

    fn conv(&mut self, x: TensorId, out: usize, kernel: usize, stride: usize, bias: bool) -> TensorId {
        let c = self.graph.shape(x).c;
        let spec = ConvSpec { kernel, stride, pad: kernel / 2, groups: 1, in_channels: c, out_channels: out };
        let weight = self.param(ParamKind::ConvWeight, &[out, kernel, kernel, c]);
        let bias = bias.then(|| self.param(ParamKind::ConvBias, &[out]));
        self.graph.conv("conv", x, spec, weight, bias, Act::None, None)
    }

    fn bn(&mut self, c: usize) -> BnParams {
        let mut vector = |kind| self.param(kind, &[c]);
        BnParams {
            gamma: vector(ParamKind::BnGamma),
            beta: vector(ParamKind::BnBeta),
            running_mean: vector(ParamKind::BnMean),
            running_var: vector(ParamKind::BnVar),
        }
    }

    /// Convolution, batch norm, SiLU.
    fn conv_bn(&mut self, x: TensorId, out: usize, kernel: usize, stride: usize) -> TensorId {
        let y = self.conv(x, out, kernel, stride, false);
        let bn = self.bn(out);
        self.graph.bn_act("bn", &[(y, bn)], BnMode::Batch, Act::Silu, None)
    }
}

struct Step {
    executor: Executor,
    params: Params,
    inputs: Vec<(TensorId, Vec<f32>)>,
    /// (output, its seed gradient).
    seeds: Vec<(TensorId, Vec<f32>)>,
}

impl Step {
    /// The sum of all outputs times their seeds, and the gradients of parameters.
    fn run(&mut self) -> (f64, Params) {
        self.executor.arena.values_mut().fill(f32::NAN);
        self.executor.scratch.fill(f32::NAN);
        for (id, values) in &self.inputs {
            self.executor.write(*id, values);
        }
        let mut gradients = self.params.zeros_like();
        self.executor.run(&mut self.params, &mut gradients);
        let mut loss = 0.0;
        for (id, seed) in &self.seeds {
            for (y, d) in self.executor.read(*id).iter().zip(seed) {
                loss += f64::from(*y) * f64::from(*d);
            }
        }
        (loss, gradients)
    }
}

/// Compares all gradients of the graph that `build` makes with finite differences, in both styles. `build` returns the outputs.
fn check(name: &str, build: impl Fn(&mut Builder) -> Vec<TensorId>) {
    check_style(name, GradientStyle::Added, false, &build);
    check_style(name, GradientStyle::Pieces, false, &build);
    check_style(name, GradientStyle::Pieces, true, &build);
}

fn check_style(name: &str, style: GradientStyle, again: bool, build: impl Fn(&mut Builder) -> Vec<TensorId>) {
    let mut random = Random(name.len() as u64 * 77 + 1);
    let mut builder = Builder::default();
    let outputs = build(&mut builder);
    let Builder { mut graph, mut params, inputs } = builder;
    for id in params.ids().collect::<Vec<_>>() {
        let offset = if params.spec(id).kind == ParamKind::BnGamma { 1.0 } else { 0.0 };
        params.get_mut(id).fill_with(|| 0.5 * random.next() + offset);
    }

    let mut values = Vec::new();
    let mut seeds = Vec::new();
    let mut seed_tensors = Vec::new();
    for &x in &inputs {
        values.push((x, random.values(graph.shape(x).len())));
    }
    for &y in &outputs {
        let seed = graph.input("seed", graph.shape(y), DType::Compute);
        let value = random.values(graph.shape(y).len());
        values.push((seed, value.clone()));
        seeds.push((y, value));
        seed_tensors.push((y, seed));
    }
    if style == GradientStyle::Pieces {
        pack_convolution_inputs(&mut graph);
    }
    let n_forward = graph.nodes.len();
    let wanted = append_gradients_from(&mut graph, &seed_tensors, &inputs, style, &|_| true);
    if again {
        recompute(&mut graph, n_forward, |_, _, _| true);
    }
    let keep: Vec<TensorId> = outputs.iter().copied().chain(wanted.iter().flatten().copied()).collect();
    let plan = Plan::new(graph, &keep);
    let mut step = Step { executor: Executor::new(plan), params, inputs: values, seeds };

    let (_, d_params) = step.run();
    let d_inputs: Vec<Vec<f32>> = wanted.iter().map(|d| step.executor.read(d.expect("outputs depend on all inputs"))).collect();
    let (_, again) = step.run();
    assert_eq!(d_params.values, again.values, "{name}: a second run differs");

    const STEP: f32 = 1.0 / 512.0;
    let (here, _) = step.run();
    let compare = |what: String, analytic: f32, up: f64, down: f64| {
        // Max pools have kinks: if one is in reach of the step, the slope is that on the other side of it.
        let (right, left) = ((up - here) / f64::from(STEP), (here - down) / f64::from(STEP));
        // A sum of some hundred products of f32 is good to about 1e-5, the difference of two of them over the step to 4e-3.
        let tolerance = 5e-3 + 2e-3 * right.abs();
        let range = right.min(left) - tolerance..right.max(left) + tolerance;
        assert!(range.contains(&f64::from(analytic)), "{name}: {what}: {analytic} against {left} and {right}");
    };
    for (number, d_x) in d_inputs.iter().enumerate() {
        for index in (0..d_x.len()).step_by(d_x.len() / 25 + 1) {
            let old = step.inputs[number].1[index];
            step.inputs[number].1[index] = old + STEP;
            let (up, _) = step.run();
            step.inputs[number].1[index] = old - STEP;
            let (down, _) = step.run();
            step.inputs[number].1[index] = old;
            compare(format!("input {number} at {index}"), d_x[index], up, down);
        }
    }
    for id in step.params.ids().collect::<Vec<_>>() {
        if !step.params.spec(id).kind.is_trained() {
            continue;
        }
        let range = step.params.range(id);
        for index in range.clone().step_by(range.len() / 12 + 1) {
            let old = step.params.values[index];
            step.params.values[index] = old + STEP;
            let (up, _) = step.run();
            step.params.values[index] = old - STEP;
            let (down, _) = step.run();
            step.params.values[index] = old;
            compare(format!("{} at {index}", step.params.spec(id).name), d_params.values[index], up, down);
        }
    }
}

#[test]
fn gradients_of_a_convolution_with_bias() {
    for shape in [Shape::new(1, 1, 1, 1), Shape::new(2, 5, 3, 3)] {
        check("conv", |b| {
            let x = b.input(shape);
            vec![b.conv(x, 4, 3, 1, true)]
        });
    }
}

#[test]
fn gradients_of_convolution_batch_norm_and_silu() {
    for (shape, out, stride) in [(Shape::new(1, 2, 2, 1), 1, 1), (Shape::new(2, 7, 5, 3), 19, 2), (Shape::new(2, 4, 4, 16), 8, 1)] {
        check("conv_bn", |b| {
            let x = b.input(shape);
            vec![b.conv_bn(x, out, 3, stride)]
        });
    }
}

#[test]
fn gradients_of_two_branches_with_a_residual() {
    for c in [3, 16, 21] {
        check("two branches", |b| {
            let x = b.input(Shape::new(2, 3, 5, c));
            let x = b.conv_bn(x, c, 1, 1);
            let (y1, y2) = (b.conv(x, c, 3, 1, false), b.conv(x, c, 1, 1, false));
            let branches = [(y1, b.bn(c)), (y2, b.bn(c))];
            vec![b.graph.bn_act("rep", &branches, BnMode::Batch, Act::Silu, Some(x))]
        });
    }
}

#[test]
fn gradients_of_batch_norm_without_activation() {
    check("linear", |b| {
        let x = b.input(Shape::new(3, 4, 3, 9));
        let bn = b.bn(9);
        vec![b.graph.bn_act("bn", &[(x, bn)], BnMode::Batch, Act::None, None)]
    });
}

#[test]
fn gradients_through_split_halves_with_two_readers() {
    check("elan", |b| {
        let x = b.input(Shape::new(2, 4, 3, 5));
        let whole = b.conv_bn(x, 8, 1, 1);
        let half = b.graph.channels(whole, 4, 4);
        let y = b.conv_bn(half, 4, 3, 1);
        let z = b.conv_bn(y, 4, 3, 1);
        let joined = b.graph.concat("joined", &[whole, y, z]);
        vec![b.conv_bn(joined, 6, 1, 1)]
    });
}

#[test]
fn gradients_of_a_tensor_in_two_concatenations() {
    check("two concats", |b| {
        let x = b.input(Shape::new(1, 3, 3, 4));
        let a = b.conv_bn(x, 4, 1, 1);
        let c = b.conv_bn(a, 3, 3, 1);
        let first = b.graph.concat("first", &[a, c]);
        let first = b.conv_bn(first, 5, 1, 1);
        let second = b.graph.concat("second", &[first, a, a]);
        vec![b.conv_bn(second, 4, 1, 1)]
    });
}

#[test]
fn gradients_where_only_some_channels_are_read() {
    check("partly read", |b| {
        let x = b.input(Shape::new(1, 3, 4, 3));
        let whole = b.conv_bn(x, 9, 1, 1);
        let (middle, all) = (b.graph.channels(whole, 3, 3), b.graph.channels(whole, 2, 6));
        let y = b.conv_bn(middle, 2, 3, 1);
        let z = b.conv_bn(all, 2, 3, 1);
        vec![y, z]
    });
}

#[test]
fn gradients_of_pools_that_write_the_buffer_they_read() {
    check("sppelan", |b| {
        let x = b.input(Shape::new(2, 4, 5, 3));
        let y = b.conv_bn(x, 4, 1, 1);
        let p1 = b.graph.max_pool("p1", y, 5, 1, 2);
        let p2 = b.graph.max_pool("p2", p1, 5, 1, 2);
        let joined = b.graph.concat("joined", &[y, p1, p2]);
        vec![b.conv(joined, 3, 1, 1, true)]
    });
}

#[test]
fn gradients_of_a_downsampling_block() {
    check("adown", |b| {
        // Nothing with parameters comes before the max pool: they would move all of its windows, many of them over a kink.
        let x = b.input(Shape::new(2, 6, 9, 8));
        let pooled = b.graph.avg_pool2("avg", x);
        let (left, right) = (b.graph.channels(pooled, 0, 4), b.graph.channels(pooled, 4, 4));
        let left = b.conv_bn(left, 4, 3, 2);
        let right = b.graph.max_pool("max", right, 3, 2, 1);
        let right = b.conv_bn(right, 4, 1, 1);
        vec![b.graph.concat("joined", &[left, right])]
    });
}

#[test]
fn gradients_of_enlarged_maps() {
    check("enlarged", |b| {
        let x = b.input(Shape::new(2, 2, 3, 3));
        let large = b.input(Shape::new(2, 8, 12, 4));
        let y = b.conv(x, 10, 1, 1, true);
        let (first, second) = (b.graph.channels(y, 0, 4), b.graph.channels(y, 6, 4));
        let up = b.graph.upsample2("up", first);
        let sum = b.graph.nearest_sum("sum", &[second, up, up], large);
        let same = b.graph.nearest_sum("same", &[sum, large], large);
        let up_up = b.graph.upsample2("up2", up);
        vec![b.graph.concat("joined", &[same, up_up, up_up])]
    });
}

#[test]
fn gradients_where_a_value_is_branch_residual_and_output_at_once() {
    check("aliases", |b| {
        let x = b.input(Shape::new(2, 3, 3, 8));
        let y = b.conv(x, 8, 1, 1, false);
        let (bn1, bn2) = (b.bn(8), b.bn(8));
        let out = b.graph.bn_act("both", &[(y, bn1), (y, bn2)], BnMode::Batch, Act::Silu, Some(y));
        let joined = b.graph.concat("joined", &[y, out]);
        let half = b.graph.channels(joined, 4, 8);
        vec![joined, half, out]
    });
}

/// The convolutions of this graph take statistics from running ones.
fn running_graph(batch: usize) -> (Builder, TensorId, TensorId) {
    let mut b = Builder::default();
    let x = b.input(Shape::new(batch, 6, 6, 3));
    let y = b.conv(x, 8, 3, 1, false);
    let bn = b.bn(8);
    let y = b.graph.bn_act("bn", &[(y, bn)], BnMode::Running, Act::Silu, None);
    (b, x, y)
}

#[test]
fn inference_gives_the_same_frozen_or_not_and_changes_no_parameter() {
    let (b, x, y) = running_graph(2);
    let mut random = Random(3);
    let mut params = b.params;
    params.values.fill_with(|| random.next().abs());
    let before = params.clone();
    let values = random.values(b.graph.shape(x).len());
    let plan = Plan::new(b.graph, &[y]);

    let mut plain = Executor::new(plan.clone());
    plain.write(x, &values);
    plain.run_inference(&params);
    let mut frozen = Executor::frozen(plan.clone(), &params);
    frozen.write(x, &values);
    frozen.run_inference(&params);
    let mut timed = Executor::new(plan);
    timed.write(x, &values);
    let times = timed.run_timed(&mut params, &mut before.zeros_like());

    assert_eq!(plain.read(y), frozen.read(y));
    assert_eq!(plain.read(y), timed.read(y));
    assert_eq!(params, before);
    assert_eq!(times.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["input", "conv", "bn_stats", "bn_act"]);
}

#[test]
fn running_statistics_move_by_the_momentum_towards_the_unbiased_variance() {
    let mut b = Builder::default();
    let x = b.input(Shape::new(1, 2, 2, 1));
    let bn = b.bn(1);
    let y = b.graph.bn_act("bn", &[(x, bn)], BnMode::Batch, Act::None, None);
    let mut params = b.params;
    params.get_mut(bn.gamma)[0] = 1.0;
    params.get_mut(bn.running_mean)[0] = 10.0;
    params.get_mut(bn.running_var)[0] = 1.0;
    let mut executor = Executor::new(Plan::new(b.graph, &[y]));
    executor.write(x, &[1.0, 2.0, 3.0, 6.0]); // mean 3, sum of squares 14
    let mut gradients = params.zeros_like();
    executor.run(&mut params, &mut gradients);
    assert!((params.get(bn.running_mean)[0] - (0.97 * 10.0 + 0.03 * 3.0)).abs() < 1e-6);
    assert!((params.get(bn.running_var)[0] - (0.97 + 0.03 * 14.0 / 3.0)).abs() < 1e-6);
    assert!((executor.read(y)[3] - 3.0 / (14.0f32 / 4.0 + 1e-3).sqrt()).abs() < 1e-6);
    assert_eq!(gradients, params.zeros_like());
}

#[test]
fn values_written_to_a_slice_leave_its_neighbours() {
    let mut graph = Graph::default();
    let a = graph.input("a", Shape::new(1, 2, 1, 2), DType::Compute);
    let b = graph.input("b", Shape::new(1, 2, 1, 1), DType::Compute);
    let joined = graph.concat("joined", &[a, b]);
    let y = graph.add_tensor("y", Shape::new(1, 2, 1, 3), DType::Compute);
    graph.push("y", Op::NearestSum, vec![joined], vec![y]);
    let mut executor = Executor::new(Plan::new(graph, &[joined, y]));
    executor.write(a, &[1.0, 2.0, 3.0, 4.0]);
    executor.write(b, &[5.0, 6.0]);
    executor.run_inference(&Params::default());
    assert_eq!(executor.read(joined), [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
    assert_eq!(executor.read(y), executor.read(joined));
}
