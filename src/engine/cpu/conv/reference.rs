//! Convolution and its gradients as plain loops in f64: what the fast kernels are tested against.
//!
//! In:  packed NHWC activations and OHWI weights.
//! Out: packed NHWC or OHWI. Slow on purpose.

use crate::engine::graph::Shape;
use crate::engine::op::{Act, ConvSpec};

/// One product of a convolution, as positions in its packed tensors.
struct Product {
    x: usize,
    weight: usize,
    y: usize,
}

pub(super) fn out_shape(spec: ConvSpec, x: Shape) -> Shape {
    Shape { h: spec.out_side(x.h), w: spec.out_side(x.w), c: spec.out_channels, ..x }
}

/// Calls `visit` with every product that does not fall on padding.
fn for_each_product(spec: ConvSpec, x: Shape, mut visit: impl FnMut(Product)) {
    let ConvSpec { kernel, stride, pad, groups, in_channels, out_channels } = spec;
    let (group_in, group_out) = (in_channels / groups, out_channels / groups);
    let y = out_shape(spec, x);
    for (n, oy, ox) in (0..y.n).flat_map(|n| (0..y.h).flat_map(move |oy| (0..y.w).map(move |ox| (n, oy, ox)))) {
        for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
            let (Some(iy), Some(ix)) = ((oy * stride + ky).checked_sub(pad), (ox * stride + kx).checked_sub(pad)) else { continue };
            if iy >= x.h || ix >= x.w {
                continue;
            }
            for (o, i) in (0..out_channels).flat_map(|o| (0..group_in).map(move |i| (o, i))) {
                visit(Product {
                    x: ((n * x.h + iy) * x.w + ix) * in_channels + o / group_out * group_in + i,
                    weight: ((o * kernel + ky) * kernel + kx) * group_in + i,
                    y: ((n * y.h + oy) * y.w + ox) * out_channels + o,
                });
            }
        }
    }
}

/// `y = act(conv(x) + bias) + residual`.
pub(super) fn forward(
    spec: ConvSpec,
    shape: Shape,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    act: Act,
    residual: Option<&[f32]>,
) -> Vec<f64> {
    let mut y: Vec<f64> = (0..out_shape(spec, shape).len()).map(|i| bias.map_or(0.0, |bias| f64::from(bias[i % bias.len()]))).collect();
    for_each_product(spec, shape, |at| y[at.y] += f64::from(x[at.x]) * f64::from(weight[at.weight]));
    for (i, y) in y.iter_mut().enumerate() {
        if act == Act::Silu {
            *y /= 1.0 + (-*y).exp();
        }
        *y += residual.map_or(0.0, |residual| f64::from(residual[i]));
    }
    y
}

/// The gradient of the input, added to `dx`.
pub(super) fn backward_input(spec: ConvSpec, shape: Shape, dy: &[f32], weight: &[f32], dx: &[f32]) -> Vec<f64> {
    let mut dx: Vec<f64> = dx.iter().map(|&value| f64::from(value)).collect();
    for_each_product(spec, shape, |at| dx[at.x] += f64::from(dy[at.y]) * f64::from(weight[at.weight]));
    dx
}

/// The gradients of weight and bias.
pub(super) fn backward_weight(spec: ConvSpec, shape: Shape, x: &[f32], dy: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let mut d_weight = vec![0.0; spec.macs_per_pixel()];
    for_each_product(spec, shape, |at| d_weight[at.weight] += f64::from(dy[at.y]) * f64::from(x[at.x]));
    let mut d_bias = vec![0.0; spec.out_channels];
    for (i, &dy) in dy.iter().enumerate() {
        d_bias[i % spec.out_channels] += f64::from(dy);
    }
    (d_weight, d_bias)
}
