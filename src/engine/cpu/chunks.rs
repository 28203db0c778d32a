//! The fixed partition of a tensor's pixels into tasks for threads.
//!
//! In:  tensors to write, and what to do with a run of their pixels.
//! Out: nothing of its own; or the partial results of all runs in order.
//!
//! The partition depends on shapes alone, never on the number of threads, so sums over partial results don't either.

use rayon::prelude::*;

use super::view::ViewMut;
use crate::engine::graph::Shape;

/// Elements of one tensor in a task: few enough for the second-level cache, enough to be worth handing to a thread.
const TASK_LEN: usize = 16 * 1024;

/// Pixels in a task: a multiple of `unit`, `channels` each.
fn pixels_per_task(channels: usize, unit: usize) -> usize {
    (TASK_LEN / (channels * unit).max(1)).max(1) * unit
}

/// Calls `f` in parallel with the first pixel of each run and the run of each of `outs`, which have the same pixels.
///
/// A run is a tensor of shape (1, 1, pixels, c). Runs begin at multiples of `unit` pixels: 1, or a row's width.
pub fn for_each_run(outs: &mut [ViewMut], unit: usize, f: impl Fn(usize, &mut [ViewMut]) + Sync) {
    let Some(first) = outs.first() else { return };
    let n_pixels = first.shape.n_pixels();
    if first.shape.is_empty() {
        return;
    }
    let step = pixels_per_task(first.shape.c, unit);
    let mut tasks: Vec<Vec<ViewMut>> = (0..n_pixels.div_ceil(step)).map(|_| Vec::with_capacity(outs.len())).collect();
    for out in outs {
        assert_eq!(out.shape.n_pixels(), n_pixels);
        let (c, pixel_stride) = (out.shape.c, out.pixel_stride);
        for (index, (task, data)) in tasks.iter_mut().zip(out.data.chunks_mut(step * pixel_stride)).enumerate() {
            let shape = Shape::new(1, 1, step.min(n_pixels - index * step), c);
            task.push(ViewMut { data, shape, pixel_stride });
        }
    }
    tasks.into_par_iter().enumerate().for_each(|(index, mut run)| f(index * step, &mut run));
}

/// Calls `f` in parallel with the range of pixels of each run; returns the results in order.
pub fn map_runs<T: Send>(shape: Shape, f: impl Fn(std::ops::Range<usize>) -> T + Sync) -> Vec<T> {
    let (n_pixels, step) = (shape.n_pixels(), pixels_per_task(shape.c, 1));
    (0..n_pixels.div_ceil(step)).into_par_iter().map(|index| f(index * step..n_pixels.min((index + 1) * step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_is_in_one_run_and_other_channels_stay() {
        for (pixels, c, stride, unit) in [(1, 1, 1, 1), (50_000, 3, 7, 1), (40_000, 1, 1, 200), (70, 1024, 1030, 7)] {
            let mut data = vec![1.0; (pixels - 1) * stride + c];
            let shape = Shape::new(1, pixels / unit, unit, c);
            for_each_run(&mut [ViewMut { data: &mut data, shape, pixel_stride: stride }], unit, |first, run| {
                assert_eq!(first % unit, 0);
                for index in 0..run[0].shape.n_pixels() {
                    for value in run[0].pixel(index) {
                        *value += (first + index) as f32;
                    }
                }
            });
            for (index, &value) in data.iter().enumerate() {
                let expected = if index % stride < c { 1.0 + (index / stride) as f32 } else { 1.0 };
                assert_eq!(value, expected);
            }
            let total: usize = map_runs(shape, |range| range.len()).into_iter().sum();
            assert_eq!(total, pixels);
        }
    }

    #[test]
    fn an_empty_tensor_has_no_runs() {
        for_each_run(&mut [ViewMut { data: &mut [], shape: Shape::new(0, 4, 4, 8), pixel_stride: 8 }], 4, |_, _| panic!("a run"));
        assert!(map_runs(Shape::new(0, 4, 4, 8), |_| ()).is_empty());
    }
}
