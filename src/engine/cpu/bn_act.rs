//! Batch norm, activation and residual as one op, and its backward.
//!
//! In:  one or two convolution outputs with their statistics, and an optional residual.
//! Out: `act(sum of gamma_i * (y_i - mean_i) * rstd_i + beta_i) + residual`, written to several places; the statistics
//! themselves; and the gradients of all of these.
//!
//! The backward is two passes: the first sums g (the gradient before the activation) and g * xhat over the batch, the second
//! gives `d_y = gamma * rstd * (g - mean(g) - xhat * mean(g * xhat))`. Both recompute g, which costs less than storing it.
//! Sums run over short runs of pixels in f32 and over these in f64, in an order that the number of threads doesn't change.
//!
//! Never holds parameters: the executor lends them. Source: Ioffe and Szegedy, arXiv:1502.03167, without the running average.

use super::chunks::{for_each_run, map_runs};
use super::silu::{silu, silu_derivative};
use super::simd::{Kernel, dispatch, mul_add};
use super::view::{View, ViewMut};
use crate::engine::op::{Act, BN_EPS, BN_MOMENTUM};

/// Pixels that are summed in f32 before their sum goes to f64.
const SHORT_RUN: usize = 64;

/// One batch norm and what it is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    pub y: View<'a>,
    /// Mean of each channel, then 1 / sqrt(var + eps) of each.
    pub stats: &'a [f32],
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
}

impl Branch<'_> {
    fn mean(&self) -> &[f32] {
        &self.stats[..self.y.shape.c]
    }

    fn rstd(&self) -> &[f32] {
        &self.stats[self.y.shape.c..]
    }
}

/// Running mean and variance of one batch norm.
pub struct Running<'a> {
    pub mean: &'a mut [f32],
    pub var: &'a mut [f32],
}

/// Statistics of the batch: mean and 1 / sqrt(var + eps) with the biased variance into `stats`. Moves the running statistics
/// towards the mean and the unbiased variance; a batch of one pixel, which has no unbiased variance, leaves the latter.
pub fn bn_stats_batch(y: View, stats: &mut [f32], running: Option<Running>) {
    let (c, n) = (y.shape.c, y.shape.n_pixels());
    let mut total = Moments::new(c);
    for part in map_runs(y.shape, |pixels| dispatch(RunMoments { y, pixels })) {
        total.merge(&part);
    }
    let (means, rstds) = stats.split_at_mut(c);
    for channel in 0..c {
        means[channel] = total.mean[channel] as f32;
        rstds[channel] = (1.0 / (total.m2[channel] / n as f64 + f64::from(BN_EPS)).sqrt()) as f32;
    }
    if let Some(Running { mean, var }) = running {
        for channel in 0..c {
            let move_towards = |old: &mut f32, new: f64| *old += BN_MOMENTUM * (new as f32 - *old);
            move_towards(&mut mean[channel], total.mean[channel]);
            if n > 1 {
                move_towards(&mut var[channel], total.m2[channel] / (n - 1) as f64);
            }
        }
    }
}

/// Statistics from the running ones.
pub fn bn_stats_running(mean: &[f32], var: &[f32], stats: &mut [f32]) {
    let (means, rstds) = stats.split_at_mut(mean.len());
    means.copy_from_slice(mean);
    for (rstd, &var) in rstds.iter_mut().zip(var) {
        *rstd = (1.0 / (f64::from(var) + f64::from(BN_EPS)).sqrt()) as f32;
    }
}

/// Count, mean and sum of squared deviations of each channel.
struct Moments {
    n: f64,
    mean: Vec<f64>,
    m2: Vec<f64>,
}

impl Moments {
    fn new(c: usize) -> Self {
        Self { n: 0.0, mean: vec![0.0; c], m2: vec![0.0; c] }
    }

    /// Adds those of other pixels (Chan and others, 1979).
    fn merge(&mut self, other: &Self) {
        let share = other.n / (self.n + other.n);
        for channel in 0..self.mean.len() {
            let delta = other.mean[channel] - self.mean[channel];
            self.mean[channel] += delta * share;
            self.m2[channel] += other.m2[channel] + delta * delta * self.n * share;
        }
        self.n += other.n;
    }
}

/// Moments of a run of pixels.
struct RunMoments<'a> {
    y: View<'a>,
    pixels: std::ops::Range<usize>,
}

impl Kernel for RunMoments<'_> {
    type Output = Moments;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Moments {
        let c = self.y.shape.c;
        let mut total = Moments::new(c);
        let mut part = Moments::new(c);
        for first in self.pixels.clone().step_by(SHORT_RUN) {
            let end = self.pixels.end.min(first + SHORT_RUN);
            part.n = (end - first) as f64;
            let data = &self.y.data[first * self.y.pixel_stride..];
            let mut channel = 0;
            while channel + 16 <= c {
                self.moments::<16, FMA>(data, end - first, channel, &mut part);
                channel += 16;
            }
            while channel < c {
                self.moments::<1, FMA>(data, end - first, channel, &mut part);
                channel += 1;
            }
            total.merge(&part);
        }
        total
    }
}

impl RunMoments<'_> {
    /// Of `L` channels from `channel` on, over the first `n` pixels of `data`: the mean, then the deviations from it, while
    /// the pixels are in the cache.
    #[inline(always)]
    fn moments<const L: usize, const FMA: bool>(&self, data: &[f32], n: usize, channel: usize, part: &mut Moments) {
        let stride = self.y.pixel_stride;
        let mut sum = [0.0f32; L];
        for pixel in 0..n {
            let x = lanes::<L>(data, pixel * stride + channel);
            for lane in 0..L {
                sum[lane] += x[lane];
            }
        }
        let mean = sum.map(|sum| sum / n as f32);
        let mut m2 = [0.0f32; L];
        // The rounding of the f32 mean is taken back out: the deviations from it need not sum to zero.
        let mut rest = [0.0f32; L];
        for pixel in 0..n {
            let x = lanes::<L>(data, pixel * stride + channel);
            for lane in 0..L {
                let deviation = x[lane] - mean[lane];
                rest[lane] += deviation;
                m2[lane] = mul_add::<FMA>(deviation, deviation, m2[lane]);
            }
        }
        for lane in 0..L {
            let correction = f64::from(rest[lane]) / n as f64;
            part.mean[channel + lane] = f64::from(mean[lane]) + correction;
            part.m2[channel + lane] = f64::from(m2[lane]) - correction * correction * n as f64;
        }
    }
}

/// `L` values from `at` on.
#[inline(always)]
fn lanes<const L: usize>(data: &[f32], at: usize) -> &[f32; L] {
    data[at..at + L].try_into().expect("the range has L elements")
}

#[inline(always)]
fn lanes_mut<const L: usize>(data: &mut [f32], at: usize) -> &mut [f32; L] {
    (&mut data[at..at + L]).try_into().expect("the range has L elements")
}

/// Channels that the loops below treat at once: one AVX register, two of SSE.
const LANES: usize = 8;

/// What turns the branches into the value before the activation: `z = sum of scale_i * y_i + shift`.
struct Affine<'a> {
    ys: Vec<View<'a>>,
    scales: Vec<Vec<f32>>,
    shift: Vec<f32>,
}

impl<'a> Affine<'a> {
    fn new(branches: &[Branch<'a>]) -> Self {
        let mut shift = vec![0.0; branches[0].y.shape.c];
        let mut scales = Vec::with_capacity(branches.len());
        for branch in branches {
            let scale: Vec<f32> = branch.gamma.iter().zip(branch.rstd()).map(|(gamma, rstd)| gamma * rstd).collect();
            for (((shift, beta), mean), scale) in shift.iter_mut().zip(branch.beta).zip(branch.mean()).zip(&scale) {
                *shift += beta - mean * scale;
            }
            scales.push(scale);
        }
        Self { ys: branches.iter().map(|branch| branch.y).collect(), scales, shift }
    }

    /// `z` of `L` channels of a pixel.
    #[inline(always)]
    fn z<const L: usize, const FMA: bool>(&self, pixel: usize, channel: usize) -> [f32; L] {
        let mut z = *lanes::<L>(&self.shift, channel);
        for (y, scale) in self.ys.iter().zip(&self.scales) {
            let y = lanes::<L>(y.data, pixel * y.pixel_stride + channel);
            let scale = lanes::<L>(scale, channel);
            for lane in 0..L {
                z[lane] = mul_add::<FMA>(y[lane], scale[lane], z[lane]);
            }
        }
        z
    }
}

/// `out = act(sum of bn_i(y_i)) + residual`, the same value to each of `outs`.
pub fn bn_act(branches: &[Branch], act: Act, residual: Option<View>, outs: &mut [ViewMut]) {
    let affine = Affine::new(branches);
    for_each_run(outs, 1, |first, outs| dispatch(Forward { affine: &affine, act, residual, first, outs }));
}

struct Forward<'a, 'o> {
    affine: &'a Affine<'a>,
    act: Act,
    residual: Option<View<'a>>,
    first: usize,
    outs: &'a mut [ViewMut<'o>],
}

impl Kernel for Forward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let shape = self.outs[0].shape;
        for index in 0..shape.n_pixels() {
            let mut channel = 0;
            while channel + LANES <= shape.c {
                self.group::<LANES, FMA>(index, channel);
                channel += LANES;
            }
            while channel < shape.c {
                self.group::<1, FMA>(index, channel);
                channel += 1;
            }
        }
    }
}

impl Forward<'_, '_> {
    #[inline(always)]
    fn group<const L: usize, const FMA: bool>(&mut self, index: usize, channel: usize) {
        let pixel = self.first + index;
        let mut value = self.affine.z::<L, FMA>(pixel, channel);
        if self.act == Act::Silu {
            for value in &mut value {
                *value = silu::<FMA>(*value);
            }
        }
        if let Some(residual) = self.residual {
            let residual = lanes::<L>(residual.data, pixel * residual.pixel_stride + channel);
            for lane in 0..L {
                value[lane] += residual[lane];
            }
        }
        for out in &mut *self.outs {
            *lanes_mut::<L>(out.data, index * out.pixel_stride + channel) = value;
        }
    }
}

/// What both backward passes know.
struct Backward<'a> {
    affine: Affine<'a>,
    means: Vec<&'a [f32]>,
    act: Act,
    d_outs: &'a [View<'a>],
}

impl<'a> Backward<'a> {
    fn new(d_outs: &'a [View<'a>], branches: &'a [Branch<'a>], act: Act) -> Self {
        let means = branches.iter().map(Branch::mean).collect();
        Self { affine: Affine::new(branches), means, act, d_outs }
    }

    /// The gradient of the output.
    #[inline(always)]
    fn d_out<const L: usize>(&self, pixel: usize, channel: usize) -> [f32; L] {
        let mut d = [0.0; L];
        for d_out in self.d_outs {
            let d_out = lanes::<L>(d_out.data, pixel * d_out.pixel_stride + channel);
            for lane in 0..L {
                d[lane] += d_out[lane];
            }
        }
        d
    }

    /// The gradient before the activation from that of the output.
    #[inline(always)]
    fn g<const L: usize, const FMA: bool>(&self, d_out: [f32; L], pixel: usize, channel: usize) -> [f32; L] {
        let mut g = d_out;
        if self.act == Act::Silu {
            let z = self.affine.z::<L, FMA>(pixel, channel);
            for lane in 0..L {
                g[lane] *= silu_derivative::<FMA>(z[lane]);
            }
        }
        g
    }

    /// `y - mean` of a branch.
    #[inline(always)]
    fn deviation<const L: usize>(&self, branch: usize, pixel: usize, channel: usize) -> [f32; L] {
        let y = &self.affine.ys[branch];
        let mut deviation = *lanes::<L>(y.data, pixel * y.pixel_stride + channel);
        let mean = lanes::<L>(self.means[branch], channel);
        for lane in 0..L {
            deviation[lane] -= mean[lane];
        }
        deviation
    }
}

/// Sums over the batch: for each branch a row of g and a row of g * xhat, into `sums` (2 * branches rows of C).
pub fn bn_act_backward_reduce(d_outs: &[View], branches: &[Branch], act: Act, sums: &mut [f32]) {
    let c = branches[0].y.shape.c;
    let backward = Backward::new(d_outs, branches, act);
    // Row 0 is the sum of g, row 1 + i that of g * (y_i - mean_i).
    let mut totals = vec![0.0f64; (1 + branches.len()) * c];
    for part in map_runs(branches[0].y.shape, |pixels| dispatch(Reduce { backward: &backward, pixels })) {
        for (total, part) in totals.iter_mut().zip(part) {
            *total += part;
        }
    }
    for (index, (branch, sums)) in branches.iter().zip(sums.chunks_exact_mut(2 * c)).enumerate() {
        for channel in 0..c {
            sums[channel] = totals[channel] as f32;
            sums[c + channel] = (totals[(1 + index) * c + channel] * f64::from(branch.rstd()[channel])) as f32;
        }
    }
}

struct Reduce<'a> {
    backward: &'a Backward<'a>,
    pixels: std::ops::Range<usize>,
}

impl Kernel for Reduce<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Vec<f64> {
        let c = self.backward.affine.shift.len();
        let mut totals = vec![0.0f64; (1 + self.backward.means.len()) * c];
        for first in self.pixels.clone().step_by(SHORT_RUN) {
            let pixels = first..self.pixels.end.min(first + SHORT_RUN);
            let mut channel = 0;
            while channel + LANES <= c {
                self.group::<LANES, FMA>(pixels.clone(), channel, &mut totals);
                channel += LANES;
            }
            while channel < c {
                self.group::<1, FMA>(pixels.clone(), channel, &mut totals);
                channel += 1;
            }
        }
        totals
    }
}

impl Reduce<'_> {
    #[inline(always)]
    fn group<const L: usize, const FMA: bool>(&self, pixels: std::ops::Range<usize>, channel: usize, totals: &mut [f64]) {
        let backward = self.backward;
        let n_branches = backward.means.len();
        let mut sum_g = [0.0f32; L];
        let mut sums_gx = [[0.0f32; L]; 2];
        for pixel in pixels {
            let g = backward.g::<L, FMA>(backward.d_out::<L>(pixel, channel), pixel, channel);
            for lane in 0..L {
                sum_g[lane] += g[lane];
            }
            for (branch, sum_gx) in sums_gx.iter_mut().enumerate().take(n_branches) {
                let deviation = backward.deviation::<L>(branch, pixel, channel);
                for lane in 0..L {
                    sum_gx[lane] = mul_add::<FMA>(g[lane], deviation[lane], sum_gx[lane]);
                }
            }
        }
        let c = backward.affine.shift.len();
        for (row, sums) in [sum_g, sums_gx[0], sums_gx[1]].iter().enumerate().take(1 + n_branches) {
            for (total, &sum) in totals[row * c + channel..].iter_mut().zip(sums) {
                *total += f64::from(sum);
            }
        }
    }
}

/// Gradients of the branches (overwritten) and of the residual. `sums` is what [`bn_act_backward_reduce`] gave.
///
/// `outs` are `d_y` of each branch, then that of the residual if `residual` says so; its flag is whether to add.
pub fn bn_act_backward(d_outs: &[View], branches: &[Branch], act: Act, sums: &[f32], residual: Option<bool>, outs: &mut [ViewMut]) {
    let c = branches[0].y.shape.c;
    let n = branches[0].y.shape.n_pixels() as f32;
    // d_y = a * g + b * (y - mean) + offset.
    let mut terms = Vec::with_capacity(branches.len());
    for (branch, sums) in branches.iter().zip(sums.chunks_exact(2 * c)) {
        let mut term = Term { b: vec![0.0; c], offset: vec![0.0; c] };
        for channel in 0..c {
            let rstd = branch.rstd()[channel];
            let a = branch.gamma[channel] * rstd;
            term.b[channel] = -a * rstd * sums[c + channel] / n;
            term.offset[channel] = -a * sums[channel] / n;
        }
        terms.push(term);
    }
    let backward = Backward::new(d_outs, branches, act);
    for_each_run(outs, 1, |first, outs| dispatch(Spread { backward: &backward, terms: &terms, residual, first, outs }));
}

struct Term {
    b: Vec<f32>,
    offset: Vec<f32>,
}

struct Spread<'a, 'o> {
    backward: &'a Backward<'a>,
    terms: &'a [Term],
    residual: Option<bool>,
    first: usize,
    outs: &'a mut [ViewMut<'o>],
}

impl Kernel for Spread<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let shape = self.outs[0].shape;
        for index in 0..shape.n_pixels() {
            let mut channel = 0;
            while channel + LANES <= shape.c {
                self.group::<LANES, FMA>(index, channel);
                channel += LANES;
            }
            while channel < shape.c {
                self.group::<1, FMA>(index, channel);
                channel += 1;
            }
        }
    }
}

impl Spread<'_, '_> {
    #[inline(always)]
    fn group<const L: usize, const FMA: bool>(&mut self, index: usize, channel: usize) {
        let pixel = self.first + index;
        let d_out = self.backward.d_out::<L>(pixel, channel);
        let g = self.backward.g::<L, FMA>(d_out, pixel, channel);
        let (d_ys, d_residual) = self.outs.split_at_mut(self.terms.len());
        for (branch, (term, d_y)) in self.terms.iter().zip(d_ys).enumerate() {
            let a = lanes::<L>(&self.backward.affine.scales[branch], channel);
            let b = lanes::<L>(&term.b, channel);
            let mut value = *lanes::<L>(&term.offset, channel);
            let deviation = self.backward.deviation::<L>(branch, pixel, channel);
            for lane in 0..L {
                value[lane] = mul_add::<FMA>(b[lane], deviation[lane], mul_add::<FMA>(a[lane], g[lane], value[lane]));
            }
            *lanes_mut::<L>(d_y.data, index * d_y.pixel_stride + channel) = value;
        }
        if let (Some(accumulate), [d_residual]) = (self.residual, d_residual) {
            let place = lanes_mut::<L>(d_residual.data, index * d_residual.pixel_stride + channel);
            for lane in 0..L {
                place[lane] = if accumulate { place[lane] + d_out[lane] } else { d_out[lane] };
            }
        }
    }
}
