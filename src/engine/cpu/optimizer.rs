//! Clipping, optimizer step and EMA over the parameter arenas.
//!
//! In:  arenas of the same table: parameters, gradients, velocities, averages. Out: the same, changed in place.
//!
//! Each value is changed on its own, and the one sum (the norm) is added in pieces of fixed size, so results do not depend on
//! the number of threads. Never decides a learning rate: `train::schedule` does. Source: PyTorch's `SGD`, `AdamW` and
//! `clip_grad_norm_`.

use rayon::prelude::*;

use crate::engine::params::Params;

/// Settings of one SGD step; index 0 to 2 of `lr` is the optimizer group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    pub lr: [f32; 3],
    pub momentum: f32,
    /// Of group 1.
    pub weight_decay: f32,
}

/// Settings of one AdamW step; index 0 to 2 of `lr` is the optimizer group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    pub lr: [f32; 3],
    /// Share of the old mean and of the old mean square that is kept.
    pub betas: [f32; 2],
    /// Of group 1; it shrinks the weights by itself, apart from the gradient.
    pub weight_decay: f32,
    /// Divides by the largest mean square so far, as the published trainer does, instead of the present one.
    pub amsgrad: bool,
}

/// What AdamW remembers of earlier gradients.
#[derive(Clone, Debug)]
pub struct AdamWState {
    mean: Params,
    square: Params,
    /// Only used with `amsgrad`.
    largest: Params,
    n_steps: i32,
}

impl AdamWState {
    /// Before the first step.
    pub fn new(params: &Params) -> Self {
        let zeros = params.zeros_like();
        Self { mean: zeros.clone(), square: zeros, largest: Params::default(), n_steps: 0 }
    }
}

/// Added to the root of the mean square.
const ADAM_EPS: f32 = 1e-8;

/// Values of one piece of work.
const BLOCK: usize = 1 << 14;

/// Scales all gradients so that their global norm is at most `max_norm`; returns the norm before.
pub fn clip_gradients(gradients: &mut Params, max_norm: f32) -> f32 {
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

/// Nesterov SGD as in PyTorch (no dampening): v = momentum * v + g, p -= lr * (g + momentum * v); on the very first step v = g.
///
/// Weight decay adds to g. Running statistics are not touched.
pub fn sgd_step(params: &mut Params, gradients: &Params, velocity: &mut Params, first: bool, step: &SgdStep) {
    assert_eq!(params.specs.len(), gradients.specs.len());
    let SgdStep { lr, momentum, weight_decay } = *step;
    let kept = if first { 0.0 } else { momentum };

    let (mut values, mut velocities) = (params.values.as_mut_slice(), velocity.values.as_mut_slice());
    let mut tensors = Vec::with_capacity(params.specs.len());
    let mut position = 0;
    for (spec, &offset) in params.specs.iter().zip(&params.offsets) {
        let skipped_and_own = ..offset - position + spec.len();
        let values = values.split_off_mut(skipped_and_own).expect("the arena holds all parameters");
        let velocities = velocities.split_off_mut(skipped_and_own).expect("the arena holds all velocities");
        let (values, velocities) = (&mut values[offset - position..], &mut velocities[offset - position..]);
        position = offset + spec.len();
        if let Some(group) = spec.kind.group() {
            tensors.push((group, values, velocities, &gradients.values[offset..offset + spec.len()]));
        }
    }
    tensors.into_par_iter().for_each(|(group, values, velocities, gradients)| {
        let (lr, decay) = (lr[group], if group == 1 { weight_decay } else { 0.0 });
        for ((value, velocity), &gradient) in values.iter_mut().zip(velocities).zip(gradients) {
            let gradient = gradient + decay * *value;
            *velocity = kept * *velocity + gradient;
            *value -= lr * (gradient + momentum * *velocity);
        }
    });
}

/// AdamW as in PyTorch: decay first, then the bias-corrected mean over the root of the bias-corrected mean square.
///
/// Running statistics are not touched.
pub fn adamw_step(params: &mut Params, gradients: &Params, state: &mut AdamWState, step: &AdamWStep) {
    assert_eq!(params.values.len(), gradients.values.len());
    let AdamWStep { lr, betas: [beta1, beta2], weight_decay, amsgrad } = *step;
    state.n_steps += 1;
    let correction = |beta: f32| (1.0 - f64::from(beta).powi(state.n_steps)) as f32;
    let (correction1, correction2) = (correction(beta1), correction(beta2).sqrt());
    if amsgrad && state.largest.values.is_empty() {
        state.largest = params.zeros_like();
    }
    for id in params.ids() {
        let Some(group) = params.spec(id).kind.group() else { continue };
        let (lr, decay) = (lr[group], if group == 1 { weight_decay } else { 0.0 });
        let range = params.range(id);
        let values = params.values[range.clone()].par_chunks_mut(BLOCK);
        let means = state.mean.values[range.clone()].par_chunks_mut(BLOCK);
        let squares = state.square.values[range.clone()].par_chunks_mut(BLOCK);
        let gradients = gradients.values[range.clone()].par_chunks(BLOCK);
        let blocks = values.zip(means).zip(squares).zip(gradients);
        let update = |value: &mut f32, mean: &mut f32, square: f32| {
            *value -= lr * decay * *value;
            *value -= lr / correction1 * *mean / (square.sqrt() / correction2 + ADAM_EPS);
        };
        let remember = |mean: &mut f32, square: &mut f32, gradient: f32| {
            *mean += (1.0 - beta1) * (gradient - *mean);
            *square = beta2 * *square + (1.0 - beta2) * gradient * gradient;
        };
        if amsgrad {
            let largest = state.largest.values[range].par_chunks_mut(BLOCK);
            blocks.zip(largest).for_each(|((((values, means), squares), gradients), largest)| {
                for (index, &gradient) in gradients.iter().enumerate() {
                    remember(&mut means[index], &mut squares[index], gradient);
                    largest[index] = largest[index].max(squares[index]);
                    update(&mut values[index], &mut means[index], largest[index]);
                }
            });
        } else {
            blocks.for_each(|(((values, means), squares), gradients)| {
                for (index, &gradient) in gradients.iter().enumerate() {
                    remember(&mut means[index], &mut squares[index], gradient);
                    update(&mut values[index], &mut means[index], squares[index]);
                }
            });
        }
    }
}

/// `ema = decay * ema + (1 - decay) * params`, over every value, running statistics too.
pub fn ema_update(ema: &mut Params, params: &Params, decay: f64) {
    assert_eq!(ema.values.len(), params.values.len());
    let (keep, take) = (decay as f32, (1.0 - decay) as f32);
    ema.values.par_chunks_mut(BLOCK).zip(params.values.par_chunks(BLOCK)).for_each(|(averages, values)| {
        for (average, &value) in averages.iter_mut().zip(values) {
            *average = keep * *average + take * value;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{AdamWState, AdamWStep, SgdStep, adamw_step, clip_gradients, ema_update, sgd_step};
    use crate::engine::golden::{Golden, assert_close};
    use crate::engine::params::{ParamKind, ParamSpec, Params};

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
        let step = SgdStep { lr: [0.1, 0.1, 0.1], momentum: 0.5, weight_decay: 0.0 };
        let mut params = params_of(&[("a", ParamKind::ConvBias, vec![1.0])]);
        let gradients = params_of(&[("a", ParamKind::ConvBias, vec![1.0])]);
        let mut velocity = params.zeros_like();
        sgd_step(&mut params, &gradients, &mut velocity, true, &step);
        assert_close("first", &all_values(&params), &[1.0 - 0.1 * 1.5], 1e-7, 0.0); // v = 1, g + 0.5 v
        sgd_step(&mut params, &gradients, &mut velocity, false, &step);
        assert_close("second", &all_values(&params), &[0.85 - 0.1 * 1.75], 1e-7, 0.0); // v = 1.5
    }

    #[test]
    fn running_statistics_are_not_trained_but_averaged() {
        let mut params = params_of(&[("mean", ParamKind::BnMean, vec![2.0]), ("gamma", ParamKind::BnGamma, vec![1.0])]);
        let gradients = params_of(&[("mean", ParamKind::BnMean, vec![5.0]), ("gamma", ParamKind::BnGamma, vec![1.0])]);
        let mut ema = params.clone();
        let mut velocity = params.zeros_like();
        let step = SgdStep { lr: [0.0, 0.0, 1.0], momentum: 0.0, weight_decay: 1.0 };
        sgd_step(&mut params, &gradients, &mut velocity, true, &step);
        assert_eq!(all_values(&params), [2.0, 0.0]);
        params.values[0] = 4.0;
        ema_update(&mut ema, &params, 0.75);
        assert_eq!(all_values(&ema), [2.5, 0.75]);
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
    fn adamw_agrees_with_the_reference() {
        let golden = Golden::open("optimizers.safetensors");
        let mut params = golden_params(&golden, "AdamW.step0");
        let mut state = AdamWState::new(&params);
        for number in 1..=3 {
            let step = AdamWStep { lr: [0.001; 3], betas: [0.937, 0.999], weight_decay: 0.0005, amsgrad: true };
            adamw_step(&mut params, &golden_params(&golden, &format!("grad{number}")), &mut state, &step);
            let reference = golden_params(&golden, &format!("AdamW.step{number}"));
            assert_close(&format!("step {number}"), &params.values, &reference.values, 1e-6, 0.0);
        }
    }

    #[test]
    fn a_first_step_of_adamw_moves_each_value_by_the_learning_rate() {
        let mut params = params_of(&[("a", ParamKind::ConvBias, vec![1.0, 1.0]), ("mean", ParamKind::BnMean, vec![3.0])]);
        let gradients = params_of(&[("a", ParamKind::ConvBias, vec![5.0, -0.001]), ("mean", ParamKind::BnMean, vec![1.0])]);
        let mut state = AdamWState::new(&params);
        let step = AdamWStep { lr: [0.1; 3], betas: [0.9, 0.999], weight_decay: 0.0, amsgrad: false };
        adamw_step(&mut params, &gradients, &mut state, &step);
        assert_close("values", &all_values(&params), &[0.9, 1.1, 3.0], 1e-4, 0.0);
    }

    #[test]
    fn sgd_agrees_with_the_reference() {
        let golden = Golden::open("optimizers.safetensors");
        let read = |prefix: &str| golden_params(&golden, prefix);
        let mut params = read("SGD.step0");
        let mut velocity = params.zeros_like();
        for number in 1..=3 {
            let step = SgdStep { lr: [0.01; 3], momentum: 0.937, weight_decay: 0.0005 };
            sgd_step(&mut params, &read(&format!("grad{number}")), &mut velocity, number == 1, &step);
            let reference = read(&format!("SGD.step{number}"));
            assert_close(&format!("step {number}"), &params.values, &reference.values, 1e-6, 0.0);
        }
    }
}
