//! The gradient of convolution weights: sums of outer products over all pixels of the batch.
//!
//! In:  the input, the gradient of the output (strided views).
//! Out: sums added to the gradient of the weights (OHWI).
//!
//! A tile is 6 neighbouring values of the input (columns of the kernel x channels) x 16 output channels; its 12 registers of
//! sums stay while it walks over the pixels of a block. The block's input lies in a window (see `window`) and 16 channels of
//! the output's gradient are packed beside it, so both walks are regular.
//!
//! The pixels are cut into chunks whose number depends on the shape only. A chunk has a buffer of sums of its own, and these
//! are added in order at the end: results do not depend on the number of threads.

use super::panels::LANES;
use super::window::{Geometry, fill_window, with_scratch};
use crate::engine::cpu::simd::{Kernel, dispatch, mul_add};
use crate::engine::cpu::view::View;
use crate::engine::graph::Shape;
use crate::engine::op::ConvSpec;
use rayon::prelude::*;
use std::ops::Range;

/// Input values of a tile.
const TILE: usize = 6;
/// Pixels that a tile walks over: enough to forget the cost of its first and last step, few enough that their input stays
/// in the first two levels of cache for the next tile.
const BLOCK_PIXELS: usize = 256;
/// Pixels of a chunk: enough to forget the cost of adding up the chunks.
const CHUNK_PIXELS: usize = 1024;
const MAX_CHUNKS: usize = 16;
/// Chunks x ranges of output channels.
const MAX_TASKS: usize = 32;

/// Adds the gradient of the weights to `d_weight`.
pub(super) fn weight_gradient(spec: ConvSpec, x: View, dy: View, d_weight: &mut [f32]) {
    let group_out = spec.out_channels / spec.groups;
    let depth = d_weight.len() / spec.out_channels;
    let panels_per_group = group_out.div_ceil(LANES);
    let n_panels = spec.groups * panels_per_group;
    let panel_len = depth * LANES;
    let n_rows = dy.shape.n * dy.shape.h;
    if n_rows * dy.shape.w == 0 {
        return;
    }

    let n_chunks = n_chunks(dy.shape);
    let n_ranges = (MAX_TASKS / n_chunks).clamp(1, n_panels.div_ceil(2));
    let panels_per_range = n_panels.div_ceil(n_ranges);
    let mut sums = vec![0.0; n_chunks * n_panels * panel_len];
    let mut tasks = Vec::new();
    for (chunk, sums) in sums.chunks_mut(n_panels * panel_len).enumerate() {
        for (range, sums) in sums.chunks_mut(panels_per_range * panel_len).enumerate() {
            let rows = chunk * n_rows / n_chunks..(chunk + 1) * n_rows / n_chunks;
            tasks.push(Task { spec, x, dy, rows, first_panel: range * panels_per_range, sums });
        }
    }
    let run = |task: Task| with_scratch(task.scratch_len(), |scratch| dispatch(TaskWithScratch { task, scratch }));
    tasks.into_par_iter().for_each(run);

    let filters: Vec<&mut [f32]> = d_weight.chunks_mut(group_out * depth).flat_map(|group| group.chunks_mut(LANES * depth)).collect();
    filters.into_par_iter().enumerate().for_each(|(panel, filters)| {
        let chunks = sums.chunks(n_panels * panel_len).map(|chunk| &chunk[panel * panel_len..][..panel_len]);
        add_sums(chunks, filters);
    });
}

/// Chunks of pixels, each with sums of its own.
pub(super) fn n_chunks(dy: Shape) -> usize {
    (dy.n_pixels() / CHUNK_PIXELS).clamp(1, MAX_CHUNKS.min(dy.n * dy.h).max(1))
}

/// Adds the chunks' sums of one panel (depth, lane) to its filters (lane, depth).
fn add_sums<'a>(chunks: impl Iterator<Item = &'a [f32]>, filters: &mut [f32]) {
    let mut total: Vec<f32> = Vec::new();
    for chunk in chunks {
        if total.is_empty() {
            total.extend_from_slice(chunk);
        } else {
            for (total, &value) in total.iter_mut().zip(chunk) {
                *total += value;
            }
        }
    }
    let depth = total.len() / LANES;
    for (lane, filter) in filters.chunks_exact_mut(depth).enumerate() {
        for (d_weight, total) in filter.iter_mut().zip(total.as_chunks::<LANES>().0) {
            *d_weight += total[lane];
        }
    }
}

/// The sums of some panels over some rows of the batch.
struct Task<'a> {
    spec: ConvSpec,
    x: View<'a>,
    dy: View<'a>,
    /// Of the output, counted over all images.
    rows: Range<usize>,
    first_panel: usize,
    /// Panel, depth, lane.
    sums: &'a mut [f32],
}

impl Task<'_> {
    #[inline(always)]
    fn geometry(&self) -> Geometry {
        let ConvSpec { kernel, stride, pad, .. } = self.spec;
        Geometry { kernel: [kernel; 2], stride, pad: [pad as isize; 2], out_width: self.dy.shape.w }
    }

    #[inline(always)]
    fn rows_per_block(&self) -> usize {
        BLOCK_PIXELS.div_ceil(self.dy.shape.w).min(self.dy.shape.h)
    }

    /// Values of the window, and with the packed gradient.
    #[inline(always)]
    fn window_len(&self) -> usize {
        self.geometry().window_len(self.rows_per_block()) * self.spec.in_channels / self.spec.groups
    }

    #[inline(always)]
    fn scratch_len(&self) -> usize {
        self.window_len() + self.rows_per_block() * self.dy.shape.w * LANES
    }
}

struct TaskWithScratch<'a> {
    task: Task<'a>,
    scratch: &'a mut [f32],
}

impl Kernel for TaskWithScratch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { task, scratch } = self;
        let ConvSpec { kernel, groups, .. } = task.spec;
        let geometry = task.geometry();
        let (group_in, group_out) = (task.spec.in_channels / groups, task.spec.out_channels / groups);
        let panels_per_group = group_out.div_ceil(LANES);
        let depth = kernel * kernel * group_in;
        let (window, packed_dy) = scratch.split_at_mut(task.window_len());
        let (x, dy) = (task.x, task.dy);

        let mut next_row = task.rows.start;
        while next_row < task.rows.end {
            let (image, row) = (next_row / dy.shape.h, next_row % dy.shape.h);
            let n_rows = task.rows_per_block().min(dy.shape.h - row).min(task.rows.end - next_row);
            let first_pixel = next_row * dy.shape.w;
            next_row += n_rows;

            let mut group_in_window = usize::MAX;
            for (index, sums) in task.sums.chunks_exact_mut(depth * LANES).enumerate() {
                let (group, panel) = ((task.first_panel + index) / panels_per_group, (task.first_panel + index) % panels_per_group);
                let out = group * group_out + panel * LANES..group * group_out + group_out.min((panel + 1) * LANES);
                let dy_data = &dy.data[first_pixel * dy.pixel_stride + out.start..];
                let (dy_data, dy_step) = if geometry.is_pointwise() && out.len() == LANES {
                    (dy_data, dy.pixel_stride) // each value is used for few products: not worth a copy
                } else {
                    let packed = &mut packed_dy[..n_rows * dy.shape.w * LANES];
                    pack(dy_data, dy.pixel_stride, out.len(), packed);
                    (&*packed, LANES)
                };
                if geometry.is_pointwise() {
                    let x_data = &x.data[first_pixel * x.pixel_stride + group * group_in..];
                    let width = n_rows * dy.shape.w; // as if the rows were one, for the output's pixels are the input's
                    let pixels = Pixels { x: x_data, x_row: 0, x_step: x.pixel_stride, dy: dy_data, dy_step, n_rows: 1, width };
                    pixels.add_run::<FMA>(group_in, 0, sums);
                    continue;
                }
                let window = &mut window[..geometry.window_len(n_rows) * group_in];
                if group_in_window != group {
                    group_in_window = group;
                    fill_window(&geometry, x, image, &(row..row + n_rows), &(group * group_in..(group + 1) * group_in), window);
                }
                let row_len = geometry.window_width() * group_in;
                let (x_row, x_step) = (geometry.stride * row_len, geometry.stride * group_in);
                let pixels = Pixels { x: window, x_row, x_step, dy: dy_data, dy_step, n_rows, width: dy.shape.w };
                let run = kernel * group_in;
                for (ky, sums) in sums.chunks_exact_mut(run * LANES).enumerate() {
                    pixels.add_run::<FMA>(run, ky * row_len, sums);
                }
            }
        }
    }
}

/// `count` channels of each pixel, filled up with zeros.
#[inline(always)]
fn pack(data: &[f32], pixel_stride: usize, count: usize, packed: &mut [f32]) {
    for (to, from) in packed.as_chunks_mut::<LANES>().0.iter_mut().zip(data.chunks(pixel_stride)) {
        if let Some(from) = from.first_chunk::<LANES>()
            && count == LANES
        {
            *to = *from;
        } else {
            *to = [0.0; LANES];
            to[..count].copy_from_slice(&from[..count]);
        }
    }
}

/// Two walks over the pixels of a block: one over the input, one over the gradient of 16 output channels.
struct Pixels<'a> {
    x: &'a [f32],
    /// From one row to the next.
    x_row: usize,
    /// From one pixel to the next.
    x_step: usize,
    dy: &'a [f32],
    dy_step: usize,
    n_rows: usize,
    width: usize,
}

impl Pixels<'_> {
    /// Adds the products of `run` neighbouring values of the input, which begin at `from`, with the gradients.
    #[inline(always)]
    fn add_run<const FMA: bool>(&self, run: usize, from: usize, sums: &mut [f32]) {
        let (tiles, rest) = sums.as_chunks_mut::<LANES>().0[..run].as_chunks_mut::<TILE>();
        let n_tiled = tiles.len() * TILE;
        for (tile, sums) in tiles.iter_mut().enumerate() {
            self.add_tile::<FMA, TILE>(from + tile * TILE, sums);
        }
        let from = from + n_tiled;
        if let Some(sums) = rest.as_mut_array::<5>() {
            self.add_tile::<FMA, 5>(from, sums);
        } else if let Some(sums) = rest.as_mut_array::<4>() {
            self.add_tile::<FMA, 4>(from, sums);
        } else if let Some(sums) = rest.as_mut_array::<3>() {
            self.add_tile::<FMA, 3>(from, sums);
        } else if let Some(sums) = rest.as_mut_array::<2>() {
            self.add_tile::<FMA, 2>(from, sums);
        } else if let Some(sums) = rest.as_mut_array::<1>() {
            self.add_tile::<FMA, 1>(from, sums);
        }
    }

    #[inline(always)]
    fn add_tile<const FMA: bool, const M: usize>(&self, from: usize, totals: &mut [[f32; LANES]; M]) {
        let mut sums = [[0.0; LANES]; M];
        for row in 0..self.n_rows {
            let x = &self.x[from + row * self.x_row..];
            let dy = &self.dy[row * self.width * self.dy_step..];
            for pixel in 0..self.width {
                // Both are there for each pixel; a panic in this loop would cost it its registers.
                let (Some(x), Some(dy)) = (x.get(pixel * self.x_step..), dy.get(pixel * self.dy_step..)) else { break };
                let (Some(x), Some(dy)) = (x.first_chunk::<M>(), dy.first_chunk::<LANES>()) else { break };
                for (sums, &x) in sums.iter_mut().zip(x) {
                    for (sum, &dy) in sums.iter_mut().zip(dy) {
                        *sum = mul_add::<FMA>(x, dy, *sum);
                    }
                }
            }
        }
        for (total, sums) in totals.iter_mut().zip(&sums) {
            for (total, &sum) in total.iter_mut().zip(sums) {
                *total += sum;
            }
        }
    }
}

/// Adds the sums of the output's gradient over all pixels.
pub(super) fn bias_gradient(dy: View, d_bias: &mut [f32]) {
    // Sums in f64 over fixed numbers of pixels, then over these.
    let starts: Vec<usize> = (0..dy.shape.n_pixels()).step_by(CHUNK_PIXELS).collect();
    let chunks: Vec<Vec<f64>> = starts
        .into_par_iter()
        .map(|start| {
            let mut sums = vec![0.0; dy.shape.c];
            for pixel in start..(start + CHUNK_PIXELS).min(dy.shape.n_pixels()) {
                for (sum, &dy) in sums.iter_mut().zip(dy.pixel(pixel)) {
                    *sum += f64::from(dy);
                }
            }
            sums
        })
        .collect();
    for (channel, d_bias) in d_bias.iter_mut().enumerate() {
        *d_bias += chunks.iter().map(|sums| sums[channel]).sum::<f64>() as f32;
    }
}
