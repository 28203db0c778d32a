//! Convolution on the CPU: forward, gradient of the input, gradient of the weights.
//!
//! In:  strided NHWC views and OHWI weights.
//! Out: strided NHWC views, or sums added to OHWI gradients.

mod correlate;
mod panels;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
mod weight_gradient;
mod window;

use self::correlate::{Correlation, Job, correlate};
use self::panels::{LANES, Panels};
use self::weight_gradient::{bias_gradient, n_chunks, weight_gradient};
use self::window::Geometry;
use super::view::{View, ViewMut};
use crate::engine::graph::Shape;
use crate::engine::op::{Act, ConvSpec};

/// Weights in the order that the forward kernel reads them.
#[derive(Clone, Debug)]
pub struct PackedWeights {
    spec: ConvSpec,
    panels: Panels,
}

impl PackedWeights {
    /// From OHWI.
    pub fn pack(spec: ConvSpec, weight: &[f32]) -> Self {
        assert_eq!(weight.len(), spec.macs_per_pixel(), "weights of {spec:?}");
        let (group_out, depth) = (spec.out_channels / spec.groups, weight.len() / spec.out_channels);
        let panels = Panels::new(spec.groups, group_out, depth, |group, first, panel| {
            let filters = weight[group * group_out * depth..].chunks_exact(depth).take(group_out).skip(first);
            for (lane, filter) in filters.take(LANES).enumerate() {
                for (row, &weight) in panel.iter_mut().zip(filter) {
                    row[lane] = weight;
                }
            }
        });
        debug_assert_eq!(panels.len(), packed_len(spec));
        Self { spec, panels }
    }
}

/// Elements of the packed weights of one convolution.
pub fn packed_len(spec: ConvSpec) -> usize {
    let group_out = (spec.out_channels / spec.groups).next_multiple_of(LANES);
    spec.groups * group_out * (spec.macs_per_pixel() / spec.out_channels)
}

/// Elements that [`conv_backward_weight`] allocates during a call, with `dy` of this shape.
pub fn backward_weight_workspace_len(spec: ConvSpec, dy: Shape) -> usize {
    n_chunks(dy) * packed_len(spec)
}

/// `y = act(conv(x) + bias) + residual`.
///
/// # Panics
/// If the shapes do not fit the geometry that the weights were packed for.
pub fn conv_forward(x: View, weights: &PackedWeights, bias: Option<&[f32]>, act: Act, residual: Option<View>, y: ViewMut) {
    let PackedWeights { spec, panels } = weights;
    assert_eq!(out_shape(*spec, x.shape), y.shape, "output of {spec:?} from {:?}", x.shape);
    assert!(bias.is_none_or(|bias| bias.len() == spec.out_channels), "bias of {spec:?}");
    assert!(residual.is_none_or(|residual| residual.shape == y.shape), "residual of {spec:?}");
    let geometry = Geometry { kernel: [spec.kernel; 2], stride: spec.stride, pad: [spec.pad as isize; 2], out_width: y.shape.w };
    let job = Job { x, groups: spec.groups, step: 1, bias, act, residual, accumulate: false };
    correlate(job, &[Correlation { geometry, panels, offset: [0, 0] }], y);
}

fn out_shape(spec: ConvSpec, x: Shape) -> Shape {
    assert_eq!(x.c, spec.in_channels, "input of {spec:?}");
    Shape { h: spec.out_side(x.h), w: spec.out_side(x.w), c: spec.out_channels, ..x }
}

/// `dx = (or +=) gradient of the input`. `weight` is OHWI.
///
/// A pixel of the input meets only every `stride`-th row and column of the kernel, which ones depends on its row and column
/// modulo `stride`. So this is `stride`² correlations of `dy` with a part of the turned kernel each.
///
/// # Panics
/// If the shapes do not fit the geometry.
pub fn conv_backward_input(spec: ConvSpec, dy: View, weight: &[f32], dx: ViewMut, accumulate: bool) {
    assert_eq!(weight.len(), spec.macs_per_pixel(), "weights of {spec:?}");
    assert_eq!(out_shape(spec, dx.shape), dy.shape, "output of {spec:?} from {:?}", dx.shape);
    let ConvSpec { kernel, stride, groups, .. } = spec;
    let (group_in, group_out) = (spec.in_channels / groups, spec.out_channels / groups);
    let depth_of_filter = kernel * kernel * group_in;
    let phases: Vec<Phase> = (0..stride).map(|offset| Phase::new(spec, offset)).collect();
    let pairs = || phases.iter().flat_map(|y| phases.iter().map(move |x| (y, x)));
    let panels: Vec<Panels> = pairs()
        .map(|(y, x)| {
            // Sums over the kernel's rows and columns that reach this phase and the output channels of the group.
            let depth = y.n_taps * x.n_taps * group_out;
            Panels::new(groups, group_in, depth, |group, first, panel| {
                let n_lanes = LANES.min(group_in - first);
                for (tap, rows) in panel.chunks_exact_mut(group_out).enumerate() {
                    let at = (y.tap(tap / x.n_taps) * kernel + x.tap(tap % x.n_taps)) * group_in + first;
                    let filters = weight[group * group_out * depth_of_filter..].chunks_exact(depth_of_filter);
                    for (row, filter) in rows.iter_mut().zip(filters) {
                        row[..n_lanes].copy_from_slice(&filter[at..][..n_lanes]);
                    }
                }
            })
        })
        .collect();
    let correlations: Vec<Correlation> = pairs()
        .zip(&panels)
        .map(|((y, x), panels)| {
            let out_width = dx.shape.w.saturating_sub(x.offset).div_ceil(stride);
            let geometry = Geometry { kernel: [y.n_taps, x.n_taps], stride: 1, pad: [y.pad, x.pad], out_width };
            Correlation { geometry, panels, offset: [y.offset, x.offset] }
        })
        .collect();
    let job = Job { x: dy, groups, step: stride, bias: None, act: Act::None, residual: None, accumulate };
    correlate(job, &correlations, dx);
}

/// The rows (or columns) of an input that are `offset` modulo the stride.
///
/// Row `offset + stride * a` is met by row `first + stride * t` of the kernel at output row `a + shift - t`.
struct Phase {
    offset: usize,
    stride: usize,
    /// First of the kernel's rows.
    first: usize,
    n_taps: usize,
    /// Padding of the correlation over the gradient of the output.
    pad: isize,
}

impl Phase {
    fn new(spec: ConvSpec, offset: usize) -> Self {
        let ConvSpec { kernel, stride, pad, .. } = spec;
        let first = (offset + pad) % stride;
        let n_taps = kernel.saturating_sub(first).div_ceil(stride);
        let shift = (offset + pad - first) / stride;
        Self { offset, stride, first, n_taps, pad: n_taps as isize - 1 - shift as isize }
    }

    /// The kernel's row that meets the `index`-th row of the window: the last comes first.
    fn tap(&self, index: usize) -> usize {
        self.first + (self.n_taps - 1 - index) * self.stride
    }
}

/// Adds the gradients of weight (OHWI) and bias. The order of sums does not depend on the number of threads.
///
/// # Panics
/// If the shapes do not fit the geometry.
pub fn conv_backward_weight(spec: ConvSpec, x: View, dy: View, d_weight: &mut [f32], d_bias: Option<&mut [f32]>) {
    assert_eq!(d_weight.len(), spec.macs_per_pixel(), "weights of {spec:?}");
    assert_eq!(out_shape(spec, x.shape), dy.shape, "output of {spec:?} from {:?}", x.shape);
    weight_gradient(spec, x, dy, d_weight);
    if let Some(d_bias) = d_bias {
        assert_eq!(d_bias.len(), spec.out_channels, "bias of {spec:?}");
        bias_gradient(dy, d_bias);
    }
}
