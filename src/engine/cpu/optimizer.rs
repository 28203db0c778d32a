//! Clipping, optimizer step and EMA over the parameter arenas.
//!
//! In:  arenas of the same table: parameters, gradients, velocities, averages. Out: the same, changed in place.
//!
//! Each value is changed on its own, and the one sum (the norm) is added in pieces of fixed size, so results do not depend on
//! the number of threads. Never decides a learning rate: `train::schedule` does. Source: PyTorch's `SGD`, `Adam`,
//! `AdamW` and `clip_grad_norm_`; Lion, arXiv:2302.06675.

use rayon::prelude::*;

use crate::engine::params::Params;
use crate::engine::rule::Rule;

/// Settings of one step; index 0 to 2 of `lr` is the optimizer group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub rule: Rule,
    pub lr: [f32; 3],
    /// Share of the old mean that is kept; the first beta of Adam and Lion.
    pub momentum: f32,
    /// Of group 1.
    pub weight_decay: f32,
}

/// What a rule remembers of earlier gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Velocities; or means, mean squares, and with amsgrad the largest of these so far.
    pub arenas: Vec<Params>,
    /// Steps so far.
    pub n_steps: usize,
}

impl Memory {
    /// Before the first step.
    pub fn new(rule: Rule, params: &Params) -> Self {
        Self { arenas: vec![params.zeros_like(); rule.n_remembered()], n_steps: 0 }
    }
}

/// Added to the root of the mean square.
const ADAM_EPS: f32 = 1e-8;

/// Values of one piece of work.
const BLOCK: usize = 1 << 14;

/// Scales all gradients so that their global norm is at most `max_norm`; returns the norm before. Gradients of frozen parameters
/// become 0.
pub fn clip_gradients(gradients: &mut Params, max_norm: f32) -> f32 {
    for id in gradients.frozen_ids() {
        gradients.get_mut(id).fill(0.0);
    }
    let sums: Vec<f64> = gradients
        .values
        .par_chunks(BLOCK)
        .map(|values| {
            // Lanes, so that the sum becomes vector instructions.
            let (whole, rest) = values.as_chunks::<8>();
            let mut lanes = [0.0f64; 8];
            for values in whole {
                for (lane, &value) in lanes.iter_mut().zip(values) {
                    *lane += f64::from(value) * f64::from(value);
                }
            }
            lanes.iter().sum::<f64>() + rest.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>()
        })
        .collect();
    let norm = sums.iter().sum::<f64>().sqrt();
    let factor = (f64::from(max_norm) / (norm + 1e-6)) as f32;
    // Not for a norm that is not a number: nothing would mend it.
    if factor < 1.0 {
        gradients.values.par_chunks_mut(BLOCK).for_each(|values| values.iter_mut().for_each(|value| *value *= factor));
    }
    norm as f32
}

/// One step of any rule. Frozen parameters and running statistics are not touched. Returns the norm of the update over the norm of
/// the values before it, of what is trained.
pub fn step(params: &mut Params, gradients: &Params, memory: &mut Memory, step: &Step) -> f32 {
    let rule = step.rule;
    memory.n_steps += 1;
    match (rule, memory.arenas.as_mut_slice()) {
        (Rule::Sgd, [velocity]) => sgd_step(params, gradients, velocity, memory.n_steps == 1, step),
        (Rule::Lion, [mean]) => lion_step(params, gradients, mean, step),
        (Rule::Adam | Rule::AdamW { .. }, arenas) => adam_step(params, gradients, arenas, memory.n_steps, step),
        _ => panic!("{rule:?} remembers {} arenas, not {}", rule.n_remembered(), memory.arenas.len()),
    }
}

/// Nesterov SGD as in PyTorch (no dampening): v = momentum * v + g, p -= lr * (g + momentum * v); on the very first step v = g.
///
/// Weight decay adds to g. Frozen parameters and running statistics are not touched. Returns what [`step`] does.
fn sgd_step(params: &mut Params, gradients: &Params, velocity: &mut Params, first: bool, step: &Step) -> f32 {
    let Step { lr, momentum, weight_decay, .. } = *step;
    let kept = if first { 0.0 } else { momentum };
    for_each_block(params, gradients, std::slice::from_mut(velocity), |group, values, gradients, [velocities]| {
        let (lr, decay) = (lr[group], if group == 1 { weight_decay } else { 0.0 });
        for ((value, velocity), &gradient) in values.iter_mut().zip(velocities.iter_mut()).zip(gradients) {
            let gradient = gradient + decay * *value;
            *velocity = kept * *velocity + gradient;
            *value -= lr * (gradient + momentum * *velocity);
        }
    })
}

/// Adam and AdamW as in PyTorch: the bias-corrected mean over the root of the bias-corrected mean square. Decay adds to the
/// gradient (Adam) or comes first by itself (AdamW).
fn adam_step(params: &mut Params, gradients: &Params, arenas: &mut [Params], n_steps: usize, step: &Step) -> f32 {
    let Step { rule, lr, momentum: beta1, weight_decay } = *step;
    let beta2 = rule.beta2();
    let is_coupled = rule == Rule::Adam;
    let correction = |beta: f32| 1.0 - f64::from(beta).powi(i32::try_from(n_steps).unwrap_or(i32::MAX));
    let (correction1, correction2) = (correction(beta1) as f32, correction(beta2).sqrt() as f32);
    let rates = |group: usize| (lr[group], if group == 1 { weight_decay } else { 0.0 });
    let remember = |value: f32, gradient: f32, decay: f32, mean: &mut f32, square: &mut f32| {
        let gradient = if is_coupled { gradient + decay * value } else { gradient };
        *mean += (1.0 - beta1) * (gradient - *mean);
        *square = beta2 * *square + (1.0 - beta2) * gradient * gradient;
    };
    let update = |value: &mut f32, lr: f32, decay: f32, mean: f32, square: f32| {
        if !is_coupled {
            *value -= lr * decay * *value;
        }
        *value -= lr / correction1 * mean / (square.sqrt() / correction2 + ADAM_EPS);
    };
    if rule == (Rule::AdamW { amsgrad: true }) {
        for_each_block(params, gradients, arenas, |group, values, gradients, [means, squares, largest]| {
            let (lr, decay) = rates(group);
            for (index, &gradient) in gradients.iter().enumerate() {
                remember(values[index], gradient, decay, &mut means[index], &mut squares[index]);
                largest[index] = largest[index].max(squares[index]);
                update(&mut values[index], lr, decay, means[index], largest[index]);
            }
        })
    } else {
        for_each_block(params, gradients, arenas, |group, values, gradients, [means, squares]| {
            let (lr, decay) = rates(group);
            for (index, &gradient) in gradients.iter().enumerate() {
                remember(values[index], gradient, decay, &mut means[index], &mut squares[index]);
                update(&mut values[index], lr, decay, means[index], squares[index]);
            }
        })
    }
}

/// Lion: a step of the size `lr` against the sign of a mean that weighs the new gradient more than the remembered mean does.
fn lion_step(params: &mut Params, gradients: &Params, mean: &mut Params, step: &Step) -> f32 {
    let Step { rule, lr, momentum, weight_decay } = *step;
    let beta2 = rule.beta2();
    for_each_block(params, gradients, std::slice::from_mut(mean), |group, values, gradients, [means]| {
        let (lr, decay) = (lr[group], if group == 1 { weight_decay } else { 0.0 });
        for ((value, mean), &gradient) in values.iter_mut().zip(means.iter_mut()).zip(gradients) {
            *value *= 1.0 - lr * decay;
            let direction = momentum * *mean + (1.0 - momentum) * gradient;
            // Of 0 there is no sign, unlike in `f32::signum`.
            *value -= if direction == 0.0 { 0.0 } else { lr.copysign(direction) };
            *mean = beta2 * *mean + (1.0 - beta2) * gradient;
        }
    })
}

/// Calls `change(group, values, gradients, remembered)` in parallel for pieces of all parameters that are trained. Returns the norm of
/// what it changed over the norm of the values before.
fn for_each_block<const N: usize>(
    params: &mut Params,
    gradients: &Params,
    arenas: &mut [Params],
    change: impl Fn(usize, &mut [f32], &[f32], [&mut [f32]; N]) + Sync,
) -> f32 {
    assert_eq!(params.values.len(), gradients.values.len());
    let trained: Vec<_> = params.ids().filter_map(|id| Some((params.group(id)?, params.range(id)))).collect();
    let mut values = params.values.as_mut_slice();
    let arenas: Vec<&mut [f32]> = arenas.iter_mut().map(|arena| arena.values.as_mut_slice()).collect();
    let mut arenas: [&mut [f32]; N] = arenas.try_into().expect("as many arenas as the rule remembers");
    let mut blocks = Vec::new();
    let mut position = 0;
    for (group, range) in trained {
        for start in range.clone().step_by(BLOCK) {
            let (skipped, len) = (start - position, BLOCK.min(range.end - start));
            let remembered = arenas.each_mut().map(|arena| take(arena, skipped, len));
            blocks.push((group, take(&mut values, skipped, len), &gradients.values[start..start + len], remembered));
            position = start + len;
        }
    }
    let of_blocks: Vec<Squares> = blocks
        .into_par_iter()
        .map(|(group, values, gradients, mut remembered)| {
            let mut sums = Squares::default();
            for (part, (values, gradients)) in values.chunks_mut(PART).zip(gradients.chunks(PART)).enumerate() {
                let range = part * PART..part * PART + values.len();
                let remembered = remembered.each_mut().map(|arena| &mut arena[range.clone()]);
                sums.add(Squares::around(values, |values| change(group, values, gradients, remembered)));
            }
            sums
        })
        .collect();
    let mut sums = Squares::default();
    for of_block in of_blocks {
        sums.add(of_block);
    }
    sums.ratio()
}

/// Values that are changed between two looks at how far they went.
const PART: usize = 256;

/// Sums of squares: of changes, and of the values before.
#[derive(Clone, Copy, Debug, Default)]
struct Squares {
    change: f64,
    value: f64,
}

impl Squares {
    /// Of what `change` does to at most [`PART`] values.
    fn around(values: &mut [f32], change: impl FnOnce(&mut [f32])) -> Self {
        let mut before = [0.0; PART];
        before[..values.len()].copy_from_slice(values);
        change(values);
        // Lanes, so that the sums become vector instructions; a part is short enough for f32.
        let (mut changes, mut squares) = ([0.0f32; 8], [0.0f32; 8]);
        for (after, before) in values.chunks(8).zip(before.chunks(8)) {
            for (lane, (after, before)) in after.iter().zip(before).enumerate() {
                changes[lane] += (after - before) * (after - before);
                squares[lane] += before * before;
            }
        }
        let sum = |lanes: [f32; 8]| lanes.into_iter().map(f64::from).sum();
        Self { change: sum(changes), value: sum(squares) }
    }

    fn add(&mut self, other: Self) {
        self.change += other.change;
        self.value += other.value;
    }

    fn ratio(self) -> f32 {
        if self.value > 0.0 { (self.change / self.value).sqrt() as f32 } else { 0.0 }
    }
}

/// Takes `len` values off the front of a slice, after those that are skipped.
#[expect(clippy::mut_mut, reason = "what is left of a slice is changed by taking from it")]
fn take<'a>(rest: &mut &'a mut [f32], skipped: usize, len: usize) -> &'a mut [f32] {
    let taken = rest.split_off_mut(..skipped + len).expect("the arena holds all parameters");
    &mut taken[skipped..]
}

/// `ema = decay * ema + (1 - decay) * params`, over every value, running statistics too. Frozen parameters are as they are.
pub fn ema_update(ema: &mut Params, params: &Params, decay: f64) {
    assert_eq!(ema.values.len(), params.values.len());
    let (keep, take) = (decay as f32, (1.0 - decay) as f32);
    ema.values.par_chunks_mut(BLOCK).zip(params.values.par_chunks(BLOCK)).for_each(|(averages, values)| {
        for (average, &value) in averages.iter_mut().zip(values) {
            *average = keep * *average + take * value;
        }
    });
    // Which only rounding would move.
    for id in params.frozen_ids() {
        ema.get_mut(id).copy_from_slice(params.get(id));
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Step, clip_gradients, ema_update, step};
    use crate::engine::golden::{Golden, assert_close};
    use crate::engine::params::{ParamKind, ParamSpec, Params};
    use crate::engine::rule::Rule;

    fn params_of(tensors: &[(&str, ParamKind, Vec<f32>)]) -> Params {
        let mut params = Params::default();
        for (name, kind, values) in tensors {
            let id = params.add(ParamSpec { name: (*name).to_owned(), kind: *kind, dims: vec![values.len()] });
            params.get_mut(id).copy_from_slice(values);
        }
        params
    }

    /// All values, without what lies between parameters.
    fn all_values(params: &Params) -> Vec<f32> {
        params.ids().flat_map(|id| params.get(id).to_vec()).collect()
    }

    #[test]
    fn a_long_gradient_is_cut_to_the_norm_and_a_short_one_kept() {
        let mut gradients = params_of(&[("a", ParamKind::ConvWeight, vec![30.0, 40.0]), ("b", ParamKind::ConvBias, vec![0.0; 40_000])]);
        assert_eq!(clip_gradients(&mut gradients, 10.0), 50.0);
        assert_close("cut", &gradients.values[..2], &[6.0, 8.0], 1e-5, 0.0);
        let before = gradients.clone();
        assert!((clip_gradients(&mut gradients, 20.0) - 10.0).abs() < 1e-5);
        assert_eq!(gradients, before);
    }

    #[test]
    fn two_steps_of_momentum_are_as_known_by_hand() {
        let sgd = Step { rule: Rule::Sgd, lr: [0.1, 0.1, 0.1], momentum: 0.5, weight_decay: 0.0 };
        let mut params = params_of(&[("a", ParamKind::ConvBias, vec![1.0])]);
        let gradients = params_of(&[("a", ParamKind::ConvBias, vec![1.0])]);
        let mut memory = Memory::new(Rule::Sgd, &params);
        let ratio = step(&mut params, &gradients, &mut memory, &sgd);
        assert_close("first", &all_values(&params), &[1.0 - 0.1 * 1.5], 1e-7, 0.0); // v = 1, g + 0.5 v
        assert_close("ratio", &[ratio], &[0.15], 1e-6, 0.0);
        let ratio = step(&mut params, &gradients, &mut memory, &sgd);
        assert_close("ratio", &[ratio], &[0.175 / 0.85], 1e-6, 0.0);
        assert_close("second", &all_values(&params), &[0.85 - 0.1 * 1.75], 1e-7, 0.0); // v = 1.5
    }

    #[test]
    fn running_statistics_are_not_trained_but_averaged() {
        let mut params = params_of(&[("mean", ParamKind::BnMean, vec![2.0]), ("gamma", ParamKind::BnGamma, vec![1.0])]);
        let gradients = params_of(&[("mean", ParamKind::BnMean, vec![5.0]), ("gamma", ParamKind::BnGamma, vec![1.0])]);
        let mut ema = params.clone();
        let mut memory = Memory::new(Rule::Sgd, &params);
        step(&mut params, &gradients, &mut memory, &Step { rule: Rule::Sgd, lr: [0.0, 0.0, 1.0], momentum: 0.0, weight_decay: 1.0 });
        assert_eq!(all_values(&params), [2.0, 0.0]);
        params.values[0] = 4.0;
        ema_update(&mut ema, &params, 0.75);
        assert_eq!(all_values(&ema), [2.5, 0.75]);
    }

    #[test]
    fn the_ratio_counts_what_is_trained_alone_with_any_number_of_threads() {
        let mut before = params_of(&[
            ("weight", ParamKind::ConvWeight, (0..50_001).map(|i| ((i * 37) % 101) as f32 * 0.01 - 0.5).collect()),
            ("mean", ParamKind::BnMean, vec![1e6; 70]),
            ("frozen", ParamKind::ConvWeight, vec![1e6; 70]),
            ("bias", ParamKind::ConvBias, vec![0.25; 333]),
        ]);
        before.frozen[2] = true;
        let mut gradients = before.zeros_like();
        for (index, value) in gradients.values.iter_mut().enumerate() {
            *value = ((index * 53) % 97) as f32 * 0.02 - 1.0;
        }
        for rule in [Rule::Sgd, Rule::Adam, Rule::AdamW { amsgrad: true }, Rule::Lion] {
            let run = |threads: usize| {
                let (mut params, mut memory) = (before.clone(), Memory::new(rule, &before));
                let settings = Step { rule, lr: [0.01, 0.02, 0.03], momentum: 0.9, weight_decay: 0.1 };
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                let ratio = pool.install(|| step(&mut params, &gradients, &mut memory, &settings));
                (ratio, params.values)
            };
            let (ratio, values) = run(1);
            let trained = || before.ids().filter(|&id| before.group(id).is_some()).flat_map(|id| before.range(id));
            let change: f64 = trained().map(|index| f64::from(values[index] - before.values[index]).powi(2)).sum();
            let square: f64 = trained().map(|index| f64::from(before.values[index]).powi(2)).sum();
            let expected = (change / square).sqrt() as f32;
            assert!(expected > 1e-3 && (ratio - expected).abs() < 1e-5 * expected, "{rule:?}: {ratio} but {expected}");
            assert_eq!(run(3), (ratio, values), "{rule:?}");
        }
    }

    fn golden_params(golden: &Golden, prefix: &str) -> Params {
        let tensors = [
            ("conv.weight", ParamKind::ConvWeight),
            ("bn.weight", ParamKind::BnGamma),
            ("bn.bias", ParamKind::BnBeta),
            ("head.weight", ParamKind::ConvWeight),
            ("head.bias", ParamKind::ConvBias),
        ];
        params_of(&tensors.map(|(name, kind)| (name, kind, golden.f32s(&format!("{prefix}.{name}")))))
    }

    #[test]
    fn every_rule_agrees_with_the_reference() {
        let golden = Golden::open("optimizers.safetensors");
        let rules = [
            ("SGD", Rule::Sgd, 0.01),
            ("Adam", Rule::Adam, 0.001),
            ("AdamW", Rule::AdamW { amsgrad: true }, 0.001),
            ("LION", Rule::Lion, 0.0001),
        ];
        for (name, rule, lr) in rules {
            let mut params = golden_params(&golden, &format!("{name}.step0"));
            let mut memory = Memory::new(rule, &params);
            for number in 1..=3 {
                let settings = Step { rule, lr: [lr; 3], momentum: 0.937, weight_decay: 0.0005 };
                step(&mut params, &golden_params(&golden, &format!("grad{number}")), &mut memory, &settings);
                let reference = golden_params(&golden, &format!("{name}.step{number}"));
                assert_close(&format!("{name}, step {number}"), &params.values, &reference.values, 1e-6, 0.0);
            }
        }
    }

    #[test]
    fn decay_of_adam_goes_through_its_means_and_that_of_adamw_does_not() {
        let start = params_of(&[("w", ParamKind::ConvWeight, vec![2.0]), ("bias", ParamKind::ConvBias, vec![2.0])]);
        let gradients = start.zeros_like();
        let after = |rule| {
            let (mut params, mut memory) = (start.clone(), Memory::new(rule, &start));
            step(&mut params, &gradients, &mut memory, &Step { rule, lr: [0.1; 3], momentum: 0.9, weight_decay: 0.01 });
            all_values(&params)
        };
        // A gradient of 0.02 alone makes a whole step; by itself the decay takes a thousandth.
        assert_close("Adam", &after(Rule::Adam), &[1.9, 2.0], 1e-5, 0.0);
        assert_close("AdamW", &after(Rule::AdamW { amsgrad: false }), &[1.998, 2.0], 1e-6, 0.0);
        assert_close("Lion", &after(Rule::Lion), &[1.998, 2.0], 1e-6, 0.0);
    }

    #[test]
    fn frozen_parameters_stay_and_their_gradients_do_not_count() {
        for rule in [Rule::Sgd, Rule::Adam, Rule::AdamW { amsgrad: true }, Rule::Lion] {
            let mut params = params_of(&[("a", ParamKind::ConvWeight, vec![1.0; 3]), ("b", ParamKind::ConvWeight, vec![1.0; 2])]);
            params.frozen[0] = true;
            let mut gradients = params.zeros_like();
            gradients.ids().for_each(|id| gradients.get_mut(id).fill(3.0));
            assert_close("norm", &[clip_gradients(&mut gradients, 10.0)], &[18.0f32.sqrt()], 1e-6, 0.0);
            let mut memory = Memory::new(rule, &params);
            step(&mut params, &gradients, &mut memory, &Step { rule, lr: [0.1; 3], momentum: 0.9, weight_decay: 0.1 });
            assert_eq!(params.values[..3], [1.0; 3], "{rule:?}");
            assert!(all_values(&params)[3..].iter().all(|&value| value < 1.0), "{rule:?}");
        }
    }

    #[test]
    fn a_first_step_of_adamw_moves_each_value_by_the_learning_rate() {
        let mut params = params_of(&[("a", ParamKind::ConvBias, vec![1.0, 1.0]), ("mean", ParamKind::BnMean, vec![3.0])]);
        let gradients = params_of(&[("a", ParamKind::ConvBias, vec![5.0, -0.001]), ("mean", ParamKind::BnMean, vec![1.0])]);
        let rule = Rule::AdamW { amsgrad: false };
        let mut memory = Memory::new(rule, &params);
        step(&mut params, &gradients, &mut memory, &Step { rule, lr: [0.1; 3], momentum: 0.9, weight_decay: 0.0 });
        assert_close("values", &all_values(&params), &[0.9, 1.1, 3.0], 1e-4, 0.0);
    }
}
