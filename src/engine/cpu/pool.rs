//! Average and max pooling.
//!
//! In:  strided NHWC maps. Out: pooled maps, written to several places; and the gradients of the input.
//!
//! Average: 2x2, stride 1, no padding. Max: any square window; padding never wins, and the first maximum of a window (by row,
//! then column) takes the gradient.

use rayon::prelude::*;

use super::chunks::for_each_run;
use super::simd::{Kernel, dispatch};
use super::view::{View, ViewMut};
use crate::engine::graph::Shape;

/// Geometry of a max pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub kernel: usize,
    pub stride: usize,
    pub pad: usize,
}

impl Window {
    /// The part of an axis of length `side` that output `index` looks at. Never empty if `pad < kernel` and the output exists.
    fn range(self, index: usize, side: usize) -> std::ops::Range<usize> {
        let start = index * self.stride;
        start.saturating_sub(self.pad)..(start + self.kernel).saturating_sub(self.pad).min(side)
    }
}

/// Splits a pixel's index into image, row and column.
#[inline(always)]
fn position(pixel: usize, shape: Shape) -> (usize, usize, usize) {
    let (row, x) = (pixel / shape.w, pixel % shape.w);
    (row / shape.h, row % shape.h, x)
}

/// Mean of 2x2 at stride 1: (H, W) -> (H-1, W-1); the same value to each of `outs`.
pub fn avg_pool2(x: View, outs: &mut [ViewMut]) {
    let Some(shape) = outs.first().map(|out| out.shape) else { return };
    assert_eq!(x.shape, Shape { h: shape.h + 1, w: shape.w + 1, ..shape });
    for_each_run(outs, shape.w, |first, outs| dispatch(AvgPool { x, shape, first, outs }));
}

struct AvgPool<'a, 'o> {
    x: View<'a>,
    shape: Shape,
    first: usize,
    outs: &'a mut [ViewMut<'o>],
}

impl Kernel for AvgPool<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let [out, others @ ..] = self.outs else { return };
        for index in 0..out.shape.n_pixels() {
            let (n, y, x) = position(self.first + index, self.shape);
            let corner = (n * self.x.shape.h + y) * self.x.shape.w + x;
            let [a, b] = [corner, corner + 1].map(|pixel| self.x.pixel(pixel));
            let [c, d] = [corner, corner + 1].map(|pixel| self.x.pixel(pixel + self.x.shape.w));
            let out = out.pixel(index);
            for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *out = ((a + b) + (c + d)) * 0.25;
            }
            for other in &mut *others {
                other.pixel(index).copy_from_slice(out);
            }
        }
    }
}

/// `d_x = (or +=)` a quarter of each output that the pixel is part of.
pub fn avg_pool2_backward(d_ys: &[View], d_x: ViewMut, accumulate: bool) {
    let shape = d_x.shape;
    for d_y in d_ys {
        assert_eq!(d_y.shape, Shape { h: shape.h - 1, w: shape.w - 1, ..shape });
    }
    for_each_run(&mut [d_x], shape.w, |first, run| {
        dispatch(AvgPoolBackward { d_ys, shape, first, d_x: run[0].reborrow(), accumulate });
    });
}

struct AvgPoolBackward<'a> {
    d_ys: &'a [View<'a>],
    shape: Shape,
    first: usize,
    d_x: ViewMut<'a>,
    accumulate: bool,
}

impl Kernel for AvgPoolBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let Shape { h, w, .. } = self.shape;
        for index in 0..self.d_x.shape.n_pixels() {
            let (n, y, x) = position(self.first + index, self.shape);
            let d_x = self.d_x.pixel(index);
            if !self.accumulate {
                d_x.fill(0.0);
            }
            for d_y in self.d_ys {
                for row in y.saturating_sub(1)..(y + 1).min(h - 1) {
                    for column in x.saturating_sub(1)..(x + 1).min(w - 1) {
                        let d_y = d_y.pixel((n * (h - 1) + row) * (w - 1) + column);
                        for (d_x, d_y) in d_x.iter_mut().zip(d_y) {
                            *d_x += d_y * 0.25;
                        }
                    }
                }
            }
        }
    }
}

/// The largest value of each window; the same to each of `outs`.
pub fn max_pool(x: View, window: Window, outs: &mut [ViewMut]) {
    assert!(window.pad < window.kernel, "a window of padding alone has no maximum");
    let Some(shape) = outs.first().map(|out| out.shape) else { return };
    for_each_run(outs, shape.w, |first, outs| dispatch(MaxPool { x, window, shape, first, outs }));
}

struct MaxPool<'a, 'o> {
    x: View<'a>,
    window: Window,
    shape: Shape,
    first: usize,
    outs: &'a mut [ViewMut<'o>],
}

impl Kernel for MaxPool<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let [out, others @ ..] = self.outs else { return };
        let Shape { h, w, .. } = self.x.shape;
        for index in 0..out.shape.n_pixels() {
            let (n, y, x) = position(self.first + index, self.shape);
            let out = out.pixel(index);
            out.fill(f32::NEG_INFINITY);
            for row in self.window.range(y, h) {
                for column in self.window.range(x, w) {
                    let value = self.x.pixel((n * h + row) * w + column);
                    for (out, &value) in out.iter_mut().zip(value) {
                        // Written so, it is one instruction.
                        *out = if *out > value { *out } else { value };
                    }
                }
            }
            for other in &mut *others {
                other.pixel(index).copy_from_slice(out);
            }
        }
    }
}

/// `d_x = (or +=)` the gradients of the windows whose first maximum the element is.
pub fn max_pool_backward(x: View, d_ys: &[View], window: Window, d_x: ViewMut, accumulate: bool) {
    let (shape, pixel_stride) = (d_x.shape, d_x.pixel_stride);
    assert_eq!(x.shape, shape);
    if shape.is_empty() {
        return;
    }
    let image = Shape { n: 1, ..shape };
    // Windows overlap, so an image is one task.
    d_x.data.par_chunks_mut(shape.h * shape.w * pixel_stride).take(shape.n).enumerate().for_each(|(n, data)| {
        let mut d_x = ViewMut { data, shape: image, pixel_stride };
        if !accumulate {
            d_x.fill(0.0);
        }
        dispatch(MaxPoolBackward { x, d_ys, window, n, d_x });
    });
}

struct MaxPoolBackward<'a> {
    x: View<'a>,
    d_ys: &'a [View<'a>],
    window: Window,
    n: usize,
    d_x: ViewMut<'a>,
}

impl Kernel for MaxPoolBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Shape { h, w, c, .. } = self.x.shape;
        let Some(out) = self.d_ys.first().map(|d_y| d_y.shape) else { return };
        let mut best = vec![0.0f32; c];
        let mut winner = vec![0u32; c];
        let mut d = vec![0.0f32; c];
        for y in 0..out.h {
            for x in 0..out.w {
                best.fill(f32::NEG_INFINITY);
                let (rows, columns) = (self.window.range(y, h), self.window.range(x, w));
                // A window of minus infinities gives its gradient to its first element.
                winner.fill((rows.start * w + columns.start) as u32);
                for row in rows {
                    for column in columns.clone() {
                        let value = self.x.pixel((self.n * h + row) * w + column);
                        let place = (row * w + column) as u32;
                        for ((best, winner), &value) in best.iter_mut().zip(&mut winner).zip(value) {
                            let wins = value > *best;
                            *winner = if wins { place } else { *winner };
                            *best = if wins { value } else { *best };
                        }
                    }
                }
                d.fill(0.0);
                for d_y in self.d_ys {
                    for (d, d_y) in d.iter_mut().zip(d_y.pixel((self.n * out.h + y) * out.w + x)) {
                        *d += d_y;
                    }
                }
                for (channel, (&winner, &d)) in winner.iter().zip(&d).enumerate() {
                    self.d_x.data[winner as usize * self.d_x.pixel_stride + channel] += d;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPP: Window = Window { kernel: 5, stride: 1, pad: 2 };

    #[test]
    fn an_average_is_that_of_four_neighbours() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut y = [0.0; 2];
        avg_pool2(View::packed(&x, Shape::new(1, 2, 3, 1)), &mut [ViewMut::packed(&mut y, Shape::new(1, 1, 2, 1))]);
        assert_eq!(y, [3.0, 4.0]);
        let mut d_x = [0.0; 6];
        avg_pool2_backward(&[View::packed(&[4.0, 8.0], Shape::new(1, 1, 2, 1))], ViewMut::packed(&mut d_x, Shape::new(1, 2, 3, 1)), false);
        assert_eq!(d_x, [1.0, 3.0, 2.0, 1.0, 3.0, 2.0]);
    }

    #[test]
    fn padding_never_is_the_maximum() {
        let x = [-1.0, -2.0, -3.0, -4.0];
        let mut y = [0.0; 4];
        max_pool(View::packed(&x, Shape::new(1, 2, 2, 1)), SPP, &mut [ViewMut::packed(&mut y, Shape::new(1, 2, 2, 1))]);
        assert_eq!(y, [-1.0; 4]);
    }

    #[test]
    fn the_first_of_equal_maxima_takes_the_gradient() {
        let x = [0.0, 7.0, 7.0, 7.0];
        let shape = Shape::new(1, 2, 2, 1);
        let mut d_x = [1.0; 4];
        max_pool_backward(View::packed(&x, shape), &[View::packed(&[1.0; 4], shape)], SPP, ViewMut::packed(&mut d_x, shape), true);
        assert_eq!(d_x, [1.0, 5.0, 1.0, 1.0]);
    }

    #[test]
    fn a_strided_window_sees_its_rows_and_columns() {
        let x: Vec<f32> = (0..25).map(|i| i as f32).collect();
        let mut y = [0.0; 9];
        let window = Window { kernel: 3, stride: 2, pad: 1 };
        max_pool(View::packed(&x, Shape::new(1, 5, 5, 1)), window, &mut [ViewMut::packed(&mut y, Shape::new(1, 3, 3, 1))]);
        assert_eq!(y, [6.0, 8.0, 9.0, 16.0, 18.0, 19.0, 21.0, 23.0, 24.0]);
    }
}
