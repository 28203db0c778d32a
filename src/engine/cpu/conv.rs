//! Convolution on the CPU: forward, gradient of the input, gradient of the weights.
//!
//! In:  strided NHWC views and OHWI weights.
//! Out: strided NHWC views, or sums added to OHWI gradients.

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use super::silu::silu;
use super::simd::{Kernel, dispatch, mul_add};
use super::view::{View, ViewMut};
use crate::engine::op::{Act, ConvSpec};
use rayon::prelude::*;

/// Weights in the order that the forward kernel reads them.
#[derive(Clone, Debug)]
pub struct PackedWeights {
    spec: ConvSpec,
    /// Ky, kx, input channel of the group, output channel.
    data: Vec<f32>,
}

impl PackedWeights {
    /// From OHWI.
    pub fn pack(spec: ConvSpec, weight: &[f32]) -> Self {
        assert_eq!(weight.len(), spec.macs_per_pixel());
        let depth = weight.len() / spec.out_channels;
        let data = (0..weight.len()).map(|i| weight[i % spec.out_channels * depth + i / spec.out_channels]).collect();
        Self { spec, data }
    }
}

/// `y = act(conv(x) + bias) + residual`.
pub fn conv_forward(x: View, weights: &PackedWeights, bias: Option<&[f32]>, act: Act, residual: Option<View>, y: ViewMut) {
    let ViewMut { data, shape, pixel_stride } = y;
    assert_eq!(shape.c, weights.spec.out_channels);
    data.par_chunks_mut(shape.w * pixel_stride).take(shape.n * shape.h).enumerate().for_each(|(row, data)| {
        dispatch(ForwardRow { x, weights, bias, act, residual, row, width: shape.w, height: shape.h, pixel_stride, y: data });
    });
}

struct ForwardRow<'a> {
    x: View<'a>,
    weights: &'a PackedWeights,
    bias: Option<&'a [f32]>,
    act: Act,
    residual: Option<View<'a>>,
    row: usize,
    width: usize,
    height: usize,
    pixel_stride: usize,
    y: &'a mut [f32],
}

impl Kernel for ForwardRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ConvSpec { kernel, stride, pad, groups, in_channels, out_channels } = self.weights.spec;
        let (group_in, group_out) = (in_channels / groups, out_channels / groups);
        let (n, oy) = (self.row / self.height, self.row % self.height);
        for (ox, y) in self.y.chunks_mut(self.pixel_stride).enumerate().take(self.width) {
            let y = &mut y[..out_channels];
            y.fill(0.0);
            for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
                let (Some(iy), Some(ix)) = ((oy * stride + ky).checked_sub(pad), (ox * stride + kx).checked_sub(pad)) else { continue };
                if iy >= self.x.shape.h || ix >= self.x.shape.w {
                    continue;
                }
                let x = self.x.pixel((n * self.x.shape.h + iy) * self.x.shape.w + ix);
                for group in 0..groups {
                    let y = &mut y[group * group_out..][..group_out];
                    for i in 0..group_in {
                        let weights = &self.weights.data[((ky * kernel + kx) * group_in + i) * out_channels + group * group_out..];
                        let x = x[group * group_in + i];
                        for (y, &weight) in y.iter_mut().zip(weights) {
                            *y = mul_add::<FMA>(x, weight, *y);
                        }
                    }
                }
            }
            for (y, &bias) in y.iter_mut().zip(self.bias.unwrap_or_default()) {
                *y += bias;
            }
            if self.act == Act::Silu {
                for y in &mut *y {
                    *y = silu::<FMA>(*y);
                }
            }
            if let Some(residual) = self.residual {
                for (y, &residual) in y.iter_mut().zip(residual.pixel(self.row * self.width + ox)) {
                    *y += residual;
                }
            }
        }
    }
}

/// `dx = (or +=) gradient of the input`. `weight` is OHWI.
pub fn conv_backward_input(spec: ConvSpec, dy: View, weight: &[f32], dx: ViewMut, accumulate: bool) {
    let ViewMut { data, shape, pixel_stride } = dx;
    assert_eq!(shape.c, spec.in_channels);
    data.par_chunks_mut(shape.w * pixel_stride).take(shape.n * shape.h).enumerate().for_each(|(row, data)| {
        dispatch(BackwardRow { spec, dy, weight, row, width: shape.w, height: shape.h, pixel_stride, dx: data, accumulate });
    });
}

struct BackwardRow<'a> {
    spec: ConvSpec,
    dy: View<'a>,
    weight: &'a [f32],
    row: usize,
    width: usize,
    height: usize,
    pixel_stride: usize,
    dx: &'a mut [f32],
    accumulate: bool,
}

impl Kernel for BackwardRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ConvSpec { kernel, stride, pad, groups, in_channels, out_channels } = self.spec;
        let (group_in, group_out) = (in_channels / groups, out_channels / groups);
        let (n, iy) = (self.row / self.height, self.row % self.height);
        for (ix, dx) in self.dx.chunks_mut(self.pixel_stride).enumerate().take(self.width) {
            let dx = &mut dx[..in_channels];
            if !self.accumulate {
                dx.fill(0.0);
            }
            for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
                let (Some(oy), Some(ox)) = ((iy + pad).checked_sub(ky), (ix + pad).checked_sub(kx)) else { continue };
                if oy % stride != 0 || ox % stride != 0 || oy / stride >= self.dy.shape.h || ox / stride >= self.dy.shape.w {
                    continue;
                }
                let dy = self.dy.pixel((n * self.dy.shape.h + oy / stride) * self.dy.shape.w + ox / stride);
                for (o, &dy) in dy.iter().enumerate() {
                    let weight = &self.weight[((o * kernel + ky) * kernel + kx) * group_in..][..group_in];
                    for (dx, &weight) in dx[o / group_out * group_in..].iter_mut().zip(weight) {
                        *dx = mul_add::<FMA>(dy, weight, *dx);
                    }
                }
            }
        }
    }
}

/// Adds the gradients of weight (OHWI) and bias. The order of sums does not depend on the number of threads.
pub fn conv_backward_weight(spec: ConvSpec, x: View, dy: View, d_weight: &mut [f32], d_bias: Option<&mut [f32]>) {
    assert_eq!(d_weight.len(), spec.macs_per_pixel());
    d_weight.par_chunks_mut(d_weight.len() / spec.out_channels).enumerate().for_each(|(out_channel, d_weight)| {
        dispatch(BackwardFilter { spec, x, dy, out_channel, d_weight });
    });
    for (channel, d_bias) in d_bias.into_iter().flatten().enumerate() {
        *d_bias += (0..dy.shape.n_pixels()).map(|pixel| f64::from(dy.pixel(pixel)[channel])).sum::<f64>() as f32;
    }
}

struct BackwardFilter<'a> {
    spec: ConvSpec,
    x: View<'a>,
    dy: View<'a>,
    out_channel: usize,
    d_weight: &'a mut [f32],
}

impl Kernel for BackwardFilter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ConvSpec { kernel, stride, pad, groups, in_channels, out_channels } = self.spec;
        let (group_in, group_out) = (in_channels / groups, out_channels / groups);
        let (x, y) = (self.x.shape, self.dy.shape);
        for (n, oy, ox) in (0..y.n).flat_map(|n| (0..y.h).flat_map(move |oy| (0..y.w).map(move |ox| (n, oy, ox)))) {
            let dy = self.dy.pixel((n * y.h + oy) * y.w + ox)[self.out_channel];
            for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
                let (Some(iy), Some(ix)) = ((oy * stride + ky).checked_sub(pad), (ox * stride + kx).checked_sub(pad)) else { continue };
                if iy >= x.h || ix >= x.w {
                    continue;
                }
                let pixel = &self.x.pixel((n * x.h + iy) * x.w + ix)[self.out_channel / group_out * group_in..][..group_in];
                for (d_weight, &x) in self.d_weight[(ky * kernel + kx) * group_in..].iter_mut().zip(pixel) {
                    *d_weight = mul_add::<FMA>(dy, x, *d_weight);
                }
            }
        }
    }
}
