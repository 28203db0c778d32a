//! Convolution on the CPU: forward, gradient of the input, gradient of the weights.

use super::view::{View, ViewMut};
use crate::engine::op::{Act, ConvSpec};

/// Weights in the order that the forward kernel reads them.
#[derive(Clone, Debug)]
pub struct PackedWeights {
    spec: ConvSpec,
    data: Vec<f32>,
}

impl PackedWeights {
    /// From OHWI.
    pub fn pack(spec: ConvSpec, weight: &[f32]) -> Self {
        Self { spec, data: weight.to_vec() }
    }
}

/// `y = act(conv(x) + bias) + residual`.
pub fn conv_forward(x: View, weights: &PackedWeights, bias: Option<&[f32]>, act: Act, residual: Option<View>, y: ViewMut) {
    let _ = (x, weights.spec, &weights.data, bias, act, residual, y);
    todo!("conv")
}

/// `dx = (or +=) gradient of the input`. `weight` is OHWI.
pub fn conv_backward_input(spec: ConvSpec, dy: View, weight: &[f32], dx: ViewMut, accumulate: bool) {
    let _ = (spec, dy, weight, dx, accumulate);
    todo!("conv")
}

/// Adds the gradients of weight (OHWI) and bias. The order of sums does not depend on the number of threads.
pub fn conv_backward_weight(spec: ConvSpec, x: View, dy: View, d_weight: &mut [f32], d_bias: Option<&mut [f32]>) {
    let _ = (spec, x, dy, d_weight, d_bias);
    todo!("conv")
}
