//! Nearest-neighbour enlargement: upsample by two, and the sum of enlarged maps.
//!
//! In:  maps whose sides are whole fractions of the output's.
//! Out: `out[y, x] = sum of map_i[y / f_i, x / f_i]`, written to several places; backward, sums over blocks of f x f.

use super::chunks::for_each_run;
use super::simd::{Kernel, dispatch};
use super::view::{View, ViewMut};
use crate::engine::graph::Shape;

/// The sum of `maps`, each enlarged to the size of `outs`; the same value to each of `outs`. Upsampling is the case of one map.
pub fn nearest_sum(maps: &[View], outs: &mut [ViewMut]) {
    let Some(shape) = outs.first().map(|out| out.shape) else { return };
    for map in maps {
        let factor = shape.h / map.shape.h.max(1);
        assert_eq!((map.shape.h * factor, map.shape.w * factor, map.shape.c), (shape.h, shape.w, shape.c), "a whole factor");
    }
    for_each_run(outs, shape.w, |first, outs| dispatch(Enlarge { maps, shape, first, outs }));
}

struct Enlarge<'a, 'o> {
    maps: &'a [View<'a>],
    /// Of the whole output.
    shape: Shape,
    first: usize,
    outs: &'a mut [ViewMut<'o>],
}

impl Kernel for Enlarge<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Shape { h, w, .. } = self.shape;
        let [out, others @ ..] = self.outs else { return };
        for index in 0..out.shape.n_pixels() {
            let pixel = self.first + index;
            let (row, x) = (pixel / w, pixel % w);
            let (n, y) = (row / h, row % h);
            let out = out.pixel(index);
            for (number, map) in self.maps.iter().enumerate() {
                let factor = h / map.shape.h;
                let source = map.pixel((n * map.shape.h + y / factor) * map.shape.w + x / factor);
                if number == 0 {
                    out.copy_from_slice(source);
                } else {
                    for (out, source) in out.iter_mut().zip(source) {
                        *out += source;
                    }
                }
            }
            for other in &mut *others {
                other.pixel(index).copy_from_slice(out);
            }
        }
    }
}

/// `d_x = (or +=) the sum of all d_ys over blocks of factor x factor`; factor 1 is a plain sum.
pub fn block_sum(d_ys: &[View], factor: usize, d_x: ViewMut, accumulate: bool) {
    let shape = d_x.shape;
    for d_y in d_ys {
        assert_eq!(d_y.shape, Shape { h: shape.h * factor, w: shape.w * factor, ..shape });
    }
    for_each_run(&mut [d_x], shape.w, |first, run| {
        dispatch(BlockSum { d_ys, factor, shape, first, d_x: run[0].reborrow(), accumulate });
    });
}

struct BlockSum<'a> {
    d_ys: &'a [View<'a>],
    factor: usize,
    shape: Shape,
    first: usize,
    d_x: ViewMut<'a>,
    accumulate: bool,
}

impl Kernel for BlockSum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let (w, factor) = (self.shape.w, self.factor);
        for index in 0..self.d_x.shape.n_pixels() {
            // The images of a batch are one tall image, for `h` is a multiple of the factor in all of them.
            let (row, x) = ((self.first + index) / w, (self.first + index) % w);
            let d_x = self.d_x.pixel(index);
            if !self.accumulate {
                d_x.fill(0.0);
            }
            for d_y in self.d_ys {
                for block_row in 0..factor {
                    for column in 0..factor {
                        let d_y = d_y.pixel((row * factor + block_row) * w * factor + x * factor + column);
                        for (d_x, d_y) in d_x.iter_mut().zip(d_y) {
                            *d_x += d_y;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upsampling_repeats_each_pixel_in_a_block() {
        let x = [1.0, 2.0, 3.0, 4.0];
        let mut y = [0.0; 16];
        nearest_sum(&[View::packed(&x, Shape::new(1, 2, 2, 1))], &mut [ViewMut::packed(&mut y, Shape::new(1, 4, 4, 1))]);
        assert_eq!(y, [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0]);
    }

    #[test]
    fn maps_of_several_sizes_are_summed_at_the_largest() {
        let (small, large) = ([10.0, 20.0], [1.0; 8]);
        let maps = [View::packed(&small, Shape::new(2, 1, 1, 1)), View::packed(&large, Shape::new(2, 2, 2, 1))];
        let mut y = [f32::NAN; 8];
        nearest_sum(&maps, &mut [ViewMut::packed(&mut y, Shape::new(2, 2, 2, 1))]);
        assert_eq!(y, [11.0, 11.0, 11.0, 11.0, 21.0, 21.0, 21.0, 21.0]);
    }

    #[test]
    fn the_gradient_of_an_enlarged_map_is_the_sum_over_its_blocks() {
        let d_y: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let view = View::packed(&d_y, Shape::new(1, 4, 4, 1));
        let mut d_x = [100.0; 4];
        block_sum(&[view], 2, ViewMut::packed(&mut d_x, Shape::new(1, 2, 2, 1)), true);
        assert_eq!(d_x, [110.0, 118.0, 142.0, 150.0]);
        block_sum(&[view, view], 4, ViewMut::packed(&mut d_x[..1], Shape::new(1, 1, 1, 1)), false);
        assert_eq!(d_x[0], 240.0);
    }
}
