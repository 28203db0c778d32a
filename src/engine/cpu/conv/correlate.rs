//! The kernel of the forward pass and of the input's gradient: correlation as a matrix product without the matrix.
//!
//! In:  a strided input, weights in panels, what to do with each sum (bias, activation, residual, accumulation).
//! Out: a strided output, of which a correlation makes the pixels on a grid of `step` x `step` (in the forward pass all).
//!
//! A tile is 6 output pixels x 16 output channels: 12 of AVX2's 16 registers hold its sums. For each product the tile
//! loads 2 vectors of weights and 6 numbers of the input, and does 12 fused multiply-adds, which take 6 cycles: the loads
//! do not limit it. A block of work is some rows of one image, whose window fits the second-level cache; a panel is used
//! for all tiles of the block before the next. Each sum is made by one tile, in the same order whatever the blocks are:
//! results do not depend on the number of threads.

use super::panels::{LANES, Panels};
use super::window::{Geometry, fill_window, with_scratch};
use crate::engine::cpu::silu::silu;
use crate::engine::cpu::simd::{Kernel, dispatch, mul_add};
use crate::engine::cpu::view::{View, ViewMut};
use crate::engine::op::Act;
use rayon::prelude::*;
use std::ops::Range;

/// Output pixels of a tile.
const TILE: usize = 6;
/// What a window may take of a core's second-level cache (512 KiB on the CPUs that this was measured on).
const WINDOW_BYTES: usize = 192 << 10;
/// Fewer multiply-adds than this are not worth a block of their own.
const BLOCK_MACS: usize = 1 << 18;

/// One input with one set of weights.
pub(super) struct Correlation<'a> {
    pub(super) geometry: Geometry,
    pub(super) panels: &'a Panels,
    /// Row and column of the output where the first result goes.
    pub(super) offset: [usize; 2],
}

/// What all correlations of an output share.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) x: View<'a>,
    pub(super) groups: usize,
    /// Rows and columns from one result of a correlation to the next.
    pub(super) step: usize,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) act: Act,
    pub(super) residual: Option<View<'a>>,
    /// Add to what is in the output.
    pub(super) accumulate: bool,
}

/// Runs all correlations; together they must cover each pixel of `y` once.
pub(super) fn correlate(job: Job, correlations: &[Correlation], y: ViewMut) {
    let ViewMut { mut data, shape, pixel_stride } = y;
    if shape.is_empty() {
        return;
    }
    let row_len = shape.w * pixel_stride;
    let rows = rows_per_block(&job, correlations, shape.h.div_ceil(job.step));
    let mut blocks = Vec::new();
    for image in 0..shape.n {
        for first_row in (0..shape.h).step_by(rows * job.step) {
            let n_rows = (shape.h - first_row).min(rows * job.step);
            let (block, rest) = data.split_at_mut(data.len().min(n_rows * row_len));
            data = rest;
            blocks.push(Block { job, correlations, image, first_row, n_rows, y: block, width: shape.w, height: shape.h, pixel_stride });
        }
    }
    let run = |block: Block| with_scratch(block.window_len(), |window| dispatch(BlockWithWindow { block, window }));
    if blocks.len() == 1 {
        blocks.into_iter().for_each(run); // no need to wake other threads
    } else {
        blocks.into_par_iter().for_each(run);
    }
}

/// Rows (in steps) of a block: what the cache holds, but several blocks for each thread.
fn rows_per_block(job: &Job, correlations: &[Correlation], n_rows: usize) -> usize {
    let channels = job.x.shape.c / job.groups;
    let geometry = &correlations[0].geometry;
    let row_bytes = geometry.window_width() * geometry.stride * channels * size_of::<f32>();
    let row_macs = geometry.out_width * correlations.iter().map(|correlation| correlation.panels.len()).sum::<usize>();
    let by_cache = (WINDOW_BYTES / row_bytes.max(1)).saturating_sub(geometry.kernel[0].saturating_sub(geometry.stride)).max(1);
    let by_threads = (n_rows * job.x.shape.n).div_ceil(4 * rayon::current_num_threads());
    let by_work = BLOCK_MACS.div_ceil(row_macs.max(1));
    by_threads.max(by_work).min(by_cache).min(n_rows)
}

/// Some rows of one image of the output.
struct Block<'a> {
    job: Job<'a>,
    correlations: &'a [Correlation<'a>],
    image: usize,
    first_row: usize,
    n_rows: usize,
    /// From the first row of the block on.
    y: &'a mut [f32],
    /// Of the output.
    width: usize,
    height: usize,
    pixel_stride: usize,
}

/// A block and memory for the largest of its windows.
struct BlockWithWindow<'a> {
    block: Block<'a>,
    window: &'a mut [f32],
}

impl Kernel for BlockWithWindow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { mut block, window } = self;
        for correlation in block.correlations {
            for group in 0..block.job.groups {
                block.group::<FMA>(correlation, group, window);
            }
        }
    }
}

impl Block<'_> {
    /// The results of a correlation that lie in the block: their rows in steps.
    #[inline(always)]
    fn rows(&self, correlation: &Correlation) -> Range<usize> {
        let first = self.first_row / self.job.step;
        first..first + self.n_rows.saturating_sub(correlation.offset[0]).div_ceil(self.job.step)
    }

    /// Whether the input itself can be read, without a copy.
    #[inline(always)]
    fn needs_no_window(&self, correlation: &Correlation) -> bool {
        let (geometry, x) = (&correlation.geometry, self.job.x.shape);
        geometry.is_pointwise() && geometry.out_width <= x.w && self.rows(correlation).end <= x.h
    }

    fn window_len(&self) -> usize {
        let windows = self.correlations.iter().filter(|correlation| !self.needs_no_window(correlation));
        let pixels = windows.map(|correlation| correlation.geometry.window_len(self.rows(correlation).len()));
        pixels.max().unwrap_or(0) * self.job.x.shape.c / self.job.groups
    }

    /// The output channels of one group.
    #[inline(always)]
    fn group<const FMA: bool>(&mut self, correlation: &Correlation, group: usize, window: &mut [f32]) {
        let geometry = &correlation.geometry;
        let rows = self.rows(correlation);
        if rows.is_empty() || geometry.out_width == 0 {
            return;
        }
        let x = self.job.x;
        let group_in = x.shape.c / self.job.groups;
        let channels = group * group_in..(group + 1) * group_in;
        let input = if self.needs_no_window(correlation) {
            let first = (self.image * x.shape.h + rows.start) * x.shape.w * x.pixel_stride + channels.start;
            Input {
                data: &x.data[first..],
                pixel_step: x.pixel_stride,
                row_step: x.shape.w * x.pixel_stride,
                run: group_in,
                run_step: 0,
                n_runs: 1,
            }
        } else {
            let window = &mut window[..geometry.window_len(rows.len()) * group_in];
            fill_window(geometry, x, self.image, &rows, &channels, window);
            let row_len = geometry.window_width() * group_in;
            Input {
                data: window,
                pixel_step: geometry.stride * group_in,
                row_step: geometry.stride * row_len,
                run: geometry.kernel[1] * group_in,
                run_step: row_len,
                n_runs: geometry.kernel[0],
            }
        };
        self.panels::<FMA>(correlation, &input, rows.len(), group);
    }

    #[inline(always)]
    fn panels<const FMA: bool>(&mut self, correlation: &Correlation, input: &Input, n_rows: usize, group: usize) {
        let group_out = correlation.panels.group_out();
        for panel in 0..group_out.div_ceil(LANES) {
            let channels = group * group_out + panel * LANES..group * group_out + group_out.min((panel + 1) * LANES);
            let mut bias = [0.0; LANES];
            if let Some(values) = self.job.bias {
                bias[..channels.len()].copy_from_slice(&values[channels.clone()]);
            }
            let mut walk =
                Walk { input, correlation, weights: correlation.panels.panel(group, panel), bias: &bias, channels, row: 0, column: 0 };
            let mut n_left = n_rows * correlation.geometry.out_width;
            while n_left >= TILE {
                self.tile::<FMA, TILE>(&mut walk);
                n_left -= TILE;
            }
            match n_left {
                5 => self.tile::<FMA, 5>(&mut walk),
                4 => self.tile::<FMA, 4>(&mut walk),
                3 => self.tile::<FMA, 3>(&mut walk),
                2 => self.tile::<FMA, 2>(&mut walk),
                1 => self.tile::<FMA, 1>(&mut walk),
                _ => (),
            }
        }
    }

    /// The next `M` pixels.
    #[inline(always)]
    fn tile<const FMA: bool, const M: usize>(&mut self, walk: &mut Walk) {
        let mut from = [0; M];
        let mut to = [0; M];
        for (from, to) in from.iter_mut().zip(&mut to) {
            *from = walk.row * walk.input.row_step + walk.column * walk.input.pixel_step;
            let [row, column] = walk.correlation.offset;
            *to = (walk.row * self.job.step + row) * self.width + walk.column * self.job.step + column;
            walk.column += 1;
            if walk.column == walk.correlation.geometry.out_width {
                walk.column = 0;
                walk.row += 1;
            }
        }
        let sums = walk.input.sums::<FMA, M>(from, walk.weights);
        for (mut sums, pixel) in sums.into_iter().zip(to) {
            for (sum, &bias) in sums.iter_mut().zip(walk.bias) {
                *sum += bias;
            }
            if self.job.act == Act::Silu {
                for sum in &mut sums {
                    *sum = silu::<FMA>(*sum);
                }
            }
            let n = walk.channels.len();
            if let Some(residual) = self.job.residual {
                let pixel = (self.image * self.height + self.first_row) * self.width + pixel;
                add(&mut sums, &residual.data[pixel * residual.pixel_stride + walk.channels.start..][..n]);
            }
            let y = &mut self.y[pixel * self.pixel_stride + walk.channels.start..][..n];
            if self.job.accumulate {
                add(&mut sums, y);
            }
            match y.as_mut_array::<LANES>() {
                Some(y) => *y = sums,
                None => y.copy_from_slice(&sums[..n]),
            }
        }
    }
}

#[inline(always)]
fn add(sums: &mut [f32; LANES], values: &[f32]) {
    if let Some(values) = values.as_array::<LANES>() {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    } else {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
}

/// Where a panel's next tile begins.
struct Walk<'a> {
    input: &'a Input<'a>,
    correlation: &'a Correlation<'a>,
    weights: &'a [f32],
    bias: &'a [f32; LANES],
    /// Of the output.
    channels: Range<usize>,
    row: usize,
    column: usize,
}

/// The input of a block: each output pixel needs `n_runs` runs of values.
struct Input<'a> {
    data: &'a [f32],
    /// From an output pixel to its right neighbour.
    pixel_step: usize,
    /// From an output pixel to the one below.
    row_step: usize,
    /// Length of a run.
    run: usize,
    /// From a run to the next.
    run_step: usize,
    n_runs: usize,
}

impl Input<'_> {
    /// The sums of `M` pixels, which begin at `from`, for the channels of a panel.
    #[inline(always)]
    fn sums<const FMA: bool, const M: usize>(&self, from: [usize; M], weights: &[f32]) -> [[f32; LANES]; M] {
        let mut sums = [[0.0; LANES]; M];
        for run in 0..self.n_runs {
            let mut pixels: [&[f32]; M] = [&[]; M];
            for (pixel, from) in pixels.iter_mut().zip(from) {
                *pixel = &self.data[from + run * self.run_step..][..self.run];
            }
            let weights = &weights[run * self.run * LANES..][..self.run * LANES];
            for (i, weights) in weights.as_chunks::<LANES>().0.iter().enumerate() {
                for (sums, pixel) in sums.iter_mut().zip(&pixels) {
                    let x = pixel[i];
                    for (sum, &weight) in sums.iter_mut().zip(weights) {
                        *sum = mul_add::<FMA>(x, weight, *sum);
                    }
                }
            }
        }
        sums
    }
}
