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
use super::view::{View, ViewMut, copy_pixels};
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

/// Elements that the loops below treat at once: short enough that all of a block's buffers stay in the first-level cache.
const BLOCK_LEN: usize = 512;

/// Pixels in a block. A block is a packed run of whole pixels, so loops over it are long whatever the channel count.
fn block_pixels(c: usize) -> usize {
    (BLOCK_LEN / c.max(1)).max(1)
}

/// A vector of one value a channel, repeated for each pixel of a block.
fn tile(vector: &[f32]) -> Vec<f32> {
    vector.repeat(block_pixels(vector.len()))
}

/// The packed channels of `n` pixels from `first` on: in place if they are packed, else copied to `buffer`.
#[inline(always)]
fn block<'a>(x: &View<'a>, first: usize, n: usize, buffer: &'a mut [f32]) -> &'a [f32] {
    let c = x.shape.c;
    if x.pixel_stride == c {
        return &x.data[first * c..(first + n) * c];
    }
    copy_pixels(&x.data[first * x.pixel_stride..], x.pixel_stride, buffer, c, [n, c]);
    &buffer[..n * c]
}

/// Adds the channels of pixels from `first` on to those in `sums`.
#[inline(always)]
fn add_block(x: &View, first: usize, sums: &mut [f32]) {
    for (pixel, sums) in sums.chunks_exact_mut(x.shape.c).enumerate() {
        for (sum, value) in sums.iter_mut().zip(x.pixel(first + pixel)) {
            *sum += value;
        }
    }
}

/// What turns the branches into the value before the activation: `z = sum of scale_i * y_i + shift`; all tiled.
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
            scales.push(tile(&scale));
        }
        Self { ys: branches.iter().map(|branch| branch.y).collect(), scales, shift: tile(&shift) }
    }

    /// `z` of the pixels from `first` on that fill `z`.
    #[inline(always)]
    fn evaluate<const FMA: bool>(&self, first: usize, z: &mut [f32], buffer: &mut [f32]) {
        z.copy_from_slice(&self.shift[..z.len()]);
        for (y, scale) in self.ys.iter().zip(&self.scales) {
            let y = block(y, first, z.len() / y.shape.c, buffer);
            for ((z, y), scale) in z.iter_mut().zip(y).zip(scale) {
                *z = mul_add::<FMA>(*y, *scale, *z);
            }
        }
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
    fn run<const FMA: bool>(self) {
        let shape = self.outs[0].shape;
        let step = block_pixels(shape.c);
        let mut value = vec![0.0; step * shape.c];
        let mut buffer = value.clone();
        for start in (0..shape.n_pixels()).step_by(step) {
            let n = step.min(shape.n_pixels() - start);
            let value = &mut value[..n * shape.c];
            self.affine.evaluate::<FMA>(self.first + start, value, &mut buffer);
            if self.act == Act::Silu {
                for value in &mut *value {
                    *value = silu::<FMA>(*value);
                }
            }
            if let Some(residual) = &self.residual {
                add_block(residual, self.first + start, value);
            }
            for out in &mut *self.outs {
                put_block(value, out, start);
            }
        }
    }
}

/// Writes packed pixels to those of `out` from `start` on.
#[inline(always)]
fn put_block(values: &[f32], out: &mut ViewMut, start: usize) {
    let c = out.shape.c;
    if out.pixel_stride == c {
        out.data[start * c..][..values.len()].copy_from_slice(values);
        return;
    }
    copy_pixels(values, c, &mut out.data[start * out.pixel_stride..], out.pixel_stride, [values.len() / c, c]);
}

/// What both backward passes know.
struct Backward<'a> {
    affine: Affine<'a>,
    /// Tiled.
    means: Vec<Vec<f32>>,
    act: Act,
    d_outs: &'a [View<'a>],
}

impl<'a> Backward<'a> {
    fn new(d_outs: &'a [View<'a>], branches: &'a [Branch<'a>], act: Act) -> Self {
        let means = branches.iter().map(|branch| tile(branch.mean())).collect();
        Self { affine: Affine::new(branches), means, act, d_outs }
    }

    /// The gradient of the output for the pixels from `first` on that fill `d`.
    #[inline(always)]
    fn d_out(&self, first: usize, d: &mut [f32]) {
        let [d_out, others @ ..] = self.d_outs else { return };
        if d_out.pixel_stride == d_out.shape.c {
            d.copy_from_slice(&d_out.data[first * d_out.shape.c..][..d.len()]);
        } else {
            block(d_out, first, d.len() / d_out.shape.c, d);
        }
        for other in others {
            add_block(other, first, d);
        }
    }

    /// Turns the gradient of the output into that before the activation.
    #[inline(always)]
    fn through_act<const FMA: bool>(&self, first: usize, d: &mut [f32], z: &mut [f32], buffer: &mut [f32]) {
        if self.act == Act::Silu {
            let z = &mut z[..d.len()];
            self.affine.evaluate::<FMA>(first, z, buffer);
            for (d, z) in d.iter_mut().zip(z) {
                *d *= silu_derivative::<FMA>(*z);
            }
        }
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
        let Backward { affine, means, .. } = self.backward;
        let c = affine.ys[0].shape.c;
        let step = block_pixels(c);
        let [mut d, mut z, mut buffer] = [(); 3].map(|()| vec![0.0f32; step * c]);
        // Each place of a block has its own sum, so an f32 sum is over few values: one of each block.
        let mut sums_g = vec![0.0f32; step * c];
        let mut sums_gx: Vec<Vec<f32>> = means.iter().map(|_| sums_g.clone()).collect();
        for first in self.pixels.clone().step_by(step) {
            let n = step.min(self.pixels.end - first);
            let d = &mut d[..n * c];
            self.backward.d_out(first, d);
            self.backward.through_act::<FMA>(first, d, &mut z, &mut buffer);
            for (sum, g) in sums_g.iter_mut().zip(&*d) {
                *sum += g;
            }
            for ((y, mean), sums) in affine.ys.iter().zip(means).zip(&mut sums_gx) {
                let y = block(y, first, n, &mut buffer);
                for (((sum, g), y), mean) in sums.iter_mut().zip(&*d).zip(y).zip(mean) {
                    *sum = mul_add::<FMA>(*g, y - mean, *sum);
                }
            }
        }
        let mut totals = vec![0.0f64; (1 + means.len()) * c];
        for (totals, sums) in totals.chunks_exact_mut(c).zip(std::iter::once(&sums_g).chain(&sums_gx)) {
            for sums in sums.chunks_exact(c) {
                for (total, sum) in totals.iter_mut().zip(sums) {
                    *total += f64::from(*sum);
                }
            }
        }
        totals
    }
}

/// Gradients of the branches (overwritten) and of the residual. `sums` is what [`bn_act_backward_reduce`] gave.
///
/// `outs` are `d_y` of each branch, then that of the residual if `residual` says so; its flag is whether to add.
pub fn bn_act_backward(d_outs: &[View], branches: &[Branch], act: Act, sums: &[f32], residual: Option<bool>, outs: &mut [ViewMut]) {
    let c = branches[0].y.shape.c;
    let n = branches[0].y.shape.n_pixels() as f32;
    let mut terms = Vec::with_capacity(branches.len());
    for (branch, sums) in branches.iter().zip(sums.chunks_exact(2 * c)) {
        let (mut b, mut offset) = (vec![0.0; c], vec![0.0; c]);
        for channel in 0..c {
            let rstd = branch.rstd()[channel];
            let a = branch.gamma[channel] * rstd;
            b[channel] = -a * rstd * sums[c + channel] / n;
            offset[channel] = -a * sums[channel] / n;
        }
        terms.push(Term { b: tile(&b), offset: tile(&offset) });
    }
    let backward = Backward::new(d_outs, branches, act);
    for_each_run(outs, 1, |first, outs| dispatch(Spread { backward: &backward, terms: &terms, residual, first, outs }));
}

/// `d_y = scale * g + b * (y - mean) + offset`, tiled.
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
    fn run<const FMA: bool>(self) {
        let Backward { affine, means, .. } = self.backward;
        let shape = self.outs[0].shape;
        let c = shape.c;
        let step = block_pixels(c);
        let [mut d, mut z, mut buffer] = [(); 3].map(|()| vec![0.0f32; step * c]);
        let (d_ys, d_residual) = self.outs.split_at_mut(self.terms.len());
        for start in (0..shape.n_pixels()).step_by(step) {
            let n = step.min(shape.n_pixels() - start);
            let first = self.first + start;
            let d = &mut d[..n * c];
            self.backward.d_out(first, d);
            if let (Some(accumulate), [d_residual]) = (self.residual, &mut *d_residual) {
                if accumulate {
                    for (pixel, d) in d.chunks_exact(c).enumerate() {
                        for (sum, d) in d_residual.pixel(start + pixel).iter_mut().zip(d) {
                            *sum += d;
                        }
                    }
                } else {
                    put_block(d, d_residual, start);
                }
            }
            self.backward.through_act::<FMA>(first, d, &mut z, &mut buffer);
            for (branch, (term, d_y)) in self.terms.iter().zip(&mut *d_ys).enumerate() {
                let value = &mut z[..n * c];
                let y = block(&affine.ys[branch], first, n, &mut buffer);
                spread::<FMA>(value, d, y, &affine.scales[branch], &means[branch], term);
                put_block(value, d_y, start);
            }
        }
    }
}

/// `value = scale * g + b * (y - mean) + offset`.
#[inline(always)]
fn spread<const FMA: bool>(value: &mut [f32], g: &[f32], y: &[f32], scale: &[f32], mean: &[f32], term: &Term) {
    let n = value.len();
    let (g, y, scale, mean, b, offset) = (&g[..n], &y[..n], &scale[..n], &mean[..n], &term.b[..n], &term.offset[..n]);
    for index in 0..n {
        let straight = mul_add::<FMA>(scale[index], g[index], offset[index]);
        value[index] = mul_add::<FMA>(b[index], y[index] - mean[index], straight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::Shape;

    /// A tensor in the middle of wider pixels, and a generator of its values.
    struct Strided {
        data: Vec<f32>,
        shape: Shape,
        pixel_stride: usize,
    }

    impl Strided {
        fn random(shape: Shape, gap: usize, seed: u32) -> Self {
            let pixel_stride = shape.c + gap;
            let value = |i: u32| (i.wrapping_mul(2654435761).wrapping_add(seed.wrapping_mul(40503)) >> 8) as f32 / 8388608.0 - 1.0;
            let data = (0..(shape.n_pixels() * pixel_stride) as u32).map(|i| 2.0 * value(i.wrapping_mul(i | 1))).collect();
            Self { data, shape, pixel_stride }
        }

        fn view(&self) -> View<'_> {
            View { data: &self.data, shape: self.shape, pixel_stride: self.pixel_stride }
        }

        fn view_mut(&mut self) -> ViewMut<'_> {
            ViewMut { data: &mut self.data, shape: self.shape, pixel_stride: self.pixel_stride }
        }
    }

    /// The op and its gradients in f64, channel by channel, as the paper has it.
    struct Reference {
        out: Vec<f64>,
        /// By branch.
        d_y: Vec<Vec<f64>>,
        d_gamma: Vec<Vec<f64>>,
        d_beta: Vec<f64>,
    }

    fn reference(ys: &[Vec<f32>], gammas: &[Vec<f32>], betas: &[Vec<f32>], d_out: &[f64], c: usize, act: Act) -> Reference {
        let n = d_out.len() / c;
        let mut result = Reference {
            out: vec![0.0; n * c],
            d_y: vec![vec![0.0; n * c]; ys.len()],
            d_gamma: vec![vec![0.0; c]; ys.len()],
            d_beta: vec![0.0; c],
        };
        for channel in 0..c {
            let at = |pixel: usize| pixel * c + channel;
            let mut xhats = Vec::new();
            let mut rstds = Vec::new();
            for y in ys {
                let values: Vec<f64> = (0..n).map(|pixel| f64::from(y[at(pixel)])).collect();
                let mean = values.iter().sum::<f64>() / n as f64;
                let var = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n as f64;
                let rstd = 1.0 / (var + f64::from(BN_EPS)).sqrt();
                xhats.push(values.iter().map(|value| (value - mean) * rstd).collect::<Vec<f64>>());
                rstds.push(rstd);
            }
            let mut g = vec![0.0; n];
            for pixel in 0..n {
                let mut z = 0.0;
                for branch in 0..ys.len() {
                    z += f64::from(gammas[branch][channel]) * xhats[branch][pixel] + f64::from(betas[branch][channel]);
                }
                let s = 1.0 / (1.0 + (-z).exp());
                let (value, slope) = if act == Act::Silu { (z * s, s + z * s * (1.0 - s)) } else { (z, 1.0) };
                result.out[at(pixel)] = value;
                g[pixel] = d_out[at(pixel)] * slope;
            }
            let sum_g: f64 = g.iter().sum();
            result.d_beta[channel] = sum_g;
            for branch in 0..ys.len() {
                let sum_gx: f64 = g.iter().zip(&xhats[branch]).map(|(g, x)| g * x).sum();
                result.d_gamma[branch][channel] = sum_gx;
                for pixel in 0..n {
                    let centered = g[pixel] - sum_g / n as f64 - xhats[branch][pixel] * sum_gx / n as f64;
                    result.d_y[branch][at(pixel)] = f64::from(gammas[branch][channel]) * rstds[branch] * centered;
                }
            }
        }
        result
    }

    fn assert_close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
        assert_eq!(got.len(), want.len());
        for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
            assert!((f64::from(got) - want).abs() <= tolerance * (1.0 + want.abs()), "{what} at {index}: {got} against {want}");
        }
    }

    /// Forward and backward with every tensor strided, against the reference.
    fn check(shape: Shape, n_branches: usize, n_grads: usize, act: Act) {
        let c = shape.c;
        let ys: Vec<Strided> = (0..n_branches).map(|index| Strided::random(shape, index, 1 + index as u32)).collect();
        let residual = Strided::random(shape, 5, 9);
        let d_outs: Vec<Strided> = (0..n_grads).map(|index| Strided::random(shape, 3 * index, 20 + index as u32)).collect();
        let vector = |seed: u32| Strided::random(Shape::new(1, 1, 1, c), 0, seed).data;
        let gammas: Vec<Vec<f32>> = (0..n_branches).map(|index| vector(30 + index as u32)).collect();
        let betas: Vec<Vec<f32>> = (0..n_branches).map(|index| vector(40 + index as u32)).collect();

        let d_views: Vec<View> = d_outs.iter().map(Strided::view).collect();
        let mut d_out = vec![0.0f64; shape.len()];
        for view in &d_views {
            for (sum, value) in d_out.iter_mut().zip(view.to_vec()) {
                *sum += f64::from(value);
            }
        }
        let packed: Vec<Vec<f32>> = ys.iter().map(|y| y.view().to_vec()).collect();
        let want = reference(&packed, &gammas, &betas, &d_out, c, act);

        let stats: Vec<Vec<f32>> = ys
            .iter()
            .map(|y| {
                let mut stats = vec![f32::NAN; 2 * c];
                bn_stats_batch(y.view(), &mut stats, None);
                stats
            })
            .collect();
        let branches: Vec<Branch> = (0..n_branches)
            .map(|index| Branch { y: ys[index].view(), stats: &stats[index], gamma: &gammas[index], beta: &betas[index] })
            .collect();

        let (mut first, mut second) = (Strided::random(shape, 0, 50), Strided::random(shape, 7, 51));
        let untouched = second.data[c];
        bn_act(&branches, act, Some(residual.view()), &mut [first.view_mut(), second.view_mut()]);
        let added: Vec<f64> = want.out.iter().zip(residual.view().to_vec()).map(|(out, r)| out + f64::from(r)).collect();
        assert_close("out", &first.view().to_vec(), &added, 1e-5);
        assert_eq!(first.view().to_vec(), second.view().to_vec());
        assert_eq!(second.data[c], untouched);

        let mut sums = vec![f32::NAN; 2 * n_branches * c];
        bn_act_backward_reduce(&d_views, &branches, act, &mut sums);
        let mut d_ys: Vec<Strided> = (0..n_branches).map(|index| Strided::random(shape, 2 * index, 60)).collect();
        let mut d_residual = Strided::random(shape, 4, 70);
        let before = d_residual.view().to_vec();
        let mut outs: Vec<ViewMut> = d_ys.iter_mut().map(Strided::view_mut).collect();
        outs.push(d_residual.view_mut());
        bn_act_backward(&d_views, &branches, act, &sums, Some(true), &mut outs);
        for branch in 0..n_branches {
            let rows = &sums[2 * branch * c..];
            // Sums over the batch: their error grows with the values summed, not with the sum.
            assert_close("d_beta", &rows[..c], &want.d_beta, 2e-5 * (shape.n_pixels() as f64).sqrt());
            assert_close("d_gamma", &rows[c..2 * c], &want.d_gamma[branch], 2e-5 * (shape.n_pixels() as f64).sqrt());
            // A variance of almost nothing makes 1/sqrt(var + eps) large, and with it the rounding of y - mean.
            assert_close("d_y", &d_ys[branch].view().to_vec(), &want.d_y[branch], 1e-4);
        }
        let moved: Vec<f64> = before.iter().zip(&d_out).map(|(before, d)| f64::from(*before) + d).collect();
        assert_close("d_residual", &d_residual.view().to_vec(), &moved, 1e-6);
    }

    #[test]
    fn forward_and_backward_match_the_formulas() {
        for (shape, n_branches, n_grads, act) in [
            (Shape::new(1, 1, 1, 1), 1, 1, Act::Silu),
            (Shape::new(2, 3, 5, 19), 2, 1, Act::Silu),
            (Shape::new(1, 9, 9, 5), 1, 3, Act::None),
            (Shape::new(2, 40, 40, 64), 2, 2, Act::Silu),
        ] {
            check(shape, n_branches, n_grads, act);
        }
    }

    #[test]
    fn a_small_deviation_from_a_large_mean_keeps_its_variance() {
        let shape = Shape::new(1, 100, 100, 2);
        let y: Vec<f32> = (0..shape.len()).map(|i| 1000.0 + if i % 4 < 2 { 0.25 } else { -0.25 }).collect();
        let mut stats = [0.0; 4];
        bn_stats_batch(View::packed(&y, shape), &mut stats, None);
        let rstd = 1.0 / (0.0625f32 + BN_EPS).sqrt();
        assert_eq!(stats[..2], [1000.0; 2]);
        assert!((stats[2] / rstd - 1.0).abs() < 1e-6 && (stats[3] / rstd - 1.0).abs() < 1e-6, "{stats:?} against {rstd}");
    }

    #[test]
    fn statistics_do_not_depend_on_the_number_of_threads() {
        let y = Strided::random(Shape::new(3, 61, 47, 24), 3, 5);
        let stats = |n_threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads");
            let mut stats = vec![0.0; 48];
            pool.install(|| bn_stats_batch(y.view(), &mut stats, None));
            stats
        };
        assert_eq!(stats(1), stats(5));
    }

    #[test]
    fn one_pixel_leaves_the_running_variance() {
        let (mut stats, mut mean, mut var) = ([0.0; 2], [1.0], [2.0]);
        let running = Running { mean: &mut mean, var: &mut var };
        bn_stats_batch(View::packed(&[5.0], Shape::new(1, 1, 1, 1)), &mut stats, Some(running));
        assert_eq!((stats[0], var[0]), (5.0, 2.0));
        assert!((mean[0] - 1.12).abs() < 1e-6);
    }
}
