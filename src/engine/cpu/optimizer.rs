//! Clipping, optimizer step and EMA over the parameter arenas.

use crate::engine::params::Params;

/// Settings of one SGD step; index 0 to 2 of `lr` is the optimizer group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    pub lr: [f32; 3],
    pub momentum: f32,
    /// Of group 1.
    pub weight_decay: f32,
}

/// Scales all gradients so that their global norm is at most `max_norm`; returns the norm before.
pub fn clip_gradients(gradients: &mut Params, max_norm: f32) -> f32 {
    let _ = (gradients, max_norm);
    todo!("optimizer")
}

/// Nesterov SGD as in PyTorch (no dampening): v = momentum * v + g, p -= lr * (g + momentum * v); on the very first step v = g.
pub fn sgd_step(params: &mut Params, gradients: &Params, velocity: &mut Params, first: bool, step: &SgdStep) {
    let _ = (params, gradients, velocity, first, step);
    todo!("optimizer")
}

/// `ema = decay * ema + (1 - decay) * params`, over every value, running statistics too.
pub fn ema_update(ema: &mut Params, params: &Params, decay: f32) {
    let _ = (ema, params, decay);
    todo!("optimizer")
}
