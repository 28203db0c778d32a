//! Launches of nearest-neighbour enlargement and of plain sums: kernels/nearest.cu.
//!
//! In:  addresses of strided NHWC maps and of pieces. Out: launches; nothing runs here.

use super::gpu::{Args, Launch};
use super::kernels::Kernels;
use super::pieces::{Piece, Pieces};
use super::tiling::{Access, Extent, Strided, Target, Tiling};
use crate::engine::graph::Shape;

/// Most maps of one sum; as in kernels/nearest.cu.
const MAX_MAPS: usize = 8;
const MAX_CHANNELS: usize = 256;
const N_THREADS: usize = 256;

/// `SmallMap` in kernels/nearest.cu.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct MapArg {
    address: u64,
    pixel_stride: i32,
    factor: i32,
}

/// `SmallMaps` in kernels/nearest.cu.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct MapsArg {
    maps: [MapArg; MAX_MAPS],
    n: i32,
    unused: i32,
}

/// A map, and how many times larger the output's sides are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enlarged {
    pub map: Strided,
    pub factor: usize,
}

/// The sum of `maps`, each enlarged to `shape`; the same value to each of `outs`. One map of factor 2 is an upsampling.
pub fn nearest_sum(kernels: &Kernels, maps: &[Enlarged], shape: Shape, outs: &[Piece]) -> Launch {
    assert!(maps.len() <= MAX_MAPS, "{} maps, at most {MAX_MAPS}", maps.len());
    let mut arg = MapsArg { n: maps.len() as i32, ..MapsArg::default() };
    for (arg, &Enlarged { map, factor }) in arg.maps.iter_mut().zip(maps) {
        assert!(shape.h.is_multiple_of(factor) && shape.w.is_multiple_of(factor), "{shape:?} is no multiple of {factor}");
        *arg = MapArg { address: map.address, pixel_stride: map.pixel_stride as i32, factor: factor as i32 };
    }
    let tensors: Vec<Strided> = maps.iter().map(|enlarged| enlarged.map).collect();
    let access = Access::widest(kernels.precision(), shape.c, &tensors, outs);
    let tiling = Tiling::new(access, shape.c, MAX_CHANNELS, N_THREADS);
    let args = Args::new().with(arg).with((shape.n * shape.h) as i32).with(shape.w as i32).with(shape.c as i32).with(Pieces::new(outs));
    let function = kernels.get(access.pick("nearest_sum_vec", "nearest_sum_scalar"));
    tiling.launch(function, shape.n_pixels().div_ceil(tiling.rows), args)
}

/// The sum of `d_ys` over blocks of `factor` x `factor` into `d_x`, which has `shape`.
pub fn block_sum(kernels: &Kernels, d_ys: &[Piece], factor: usize, shape: Shape, d_x: Target) -> Launch {
    let access = Access::widest(kernels.precision(), shape.c, &[d_x.tensor], d_ys);
    let tiling = Tiling::new(access, shape.c, MAX_CHANNELS, N_THREADS);
    let args = Args::new()
        .with(Pieces::new(d_ys))
        .with(factor as i32)
        .with((shape.n * shape.h) as i32)
        .with(shape.w as i32)
        .with(shape.c as i32)
        .with(d_x.tensor.address)
        .with(d_x.tensor.pixel_stride as i32)
        .with(i32::from(d_x.accumulate));
    let function = kernels.get(access.pick("block_sum_vec", "block_sum_scalar"));
    tiling.launch(function, shape.n_pixels().div_ceil(tiling.rows), args)
}

/// The sum of pieces as one tensor; channels that none holds are 0.
pub fn sum_pieces(kernels: &Kernels, pieces: &[Piece], extent: Extent, to: Target) -> Launch {
    block_sum(kernels, pieces, 1, Shape::new(1, 1, extent.n_pixels, extent.n_channels), to)
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    use super::super::test_tensors::{ALIGNED, InPieces, Layout, ODD, PACKED, Spread, Tensor, launch_all};
    use super::super::testing::{PRECISIONS, Random, Tolerance, assert_close, test_gpu, test_kernels};
    use super::*;
    use crate::engine::cpu::nearest as cpu;
    use crate::engine::cpu::view::{View, ViewMut};

    /// Shapes of the largest map, factors of all.
    fn cases() -> Vec<(Shape, &'static [usize], Layout, Spread)> {
        vec![
            (Shape::new(1, 2, 2, 1), &[2], PACKED, Spread::Whole),
            (Shape::new(2, 12, 6, 19), &[6, 3, 1], ODD, Spread::Many),
            (Shape::new(2, 8, 24, 24), &[8, 4, 2, 1], ALIGNED, Spread::Gap),
            (Shape::new(3, 40, 40, 80), &[2], ALIGNED, Spread::Halves),
            (Shape::new(2, 80, 80, 256), &[4, 2, 1], PACKED, Spread::Whole),
        ]
    }

    #[test]
    fn sums_of_enlarged_maps_match_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(21);
        for precision in PRECISIONS {
            for (shape, factors, layout, spread) in cases() {
                let mut map = |factor: &usize| {
                    let shape = Shape { h: shape.h / factor, w: shape.w / factor, ..shape };
                    Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision)
                };
                let maps: Vec<Tensor> = factors.iter().map(&mut map).collect();
                let views: Vec<View> = maps.iter().map(Tensor::view).collect();
                let mut want = vec![f32::NAN; shape.len()];
                cpu::nearest_sum(&views, &mut [ViewMut::packed(&mut want, shape)]);

                let outs = InPieces::new(shape, spread, |shape| Tensor::poisoned(&gpu, shape, layout, precision));
                let enlarged: Vec<Enlarged> =
                    maps.iter().zip(factors).map(|(map, &factor)| Enlarged { map: map.strided(), factor }).collect();
                launch_all(&gpu, &[nearest_sum(test_kernels(precision), &enlarged, shape, &outs.pieces())]);
                for [out, want] in outs.with_expected(&gpu, &want) {
                    assert_close(&format!("{precision:?} {shape:?} {factors:?}"), &out, &want, Tolerance::rounding(precision));
                }
            }
        }
    }

    #[test]
    fn an_upsampling_repeats_each_pixel_in_a_block() {
        let gpu = test_gpu();
        let precision = PRECISIONS[0];
        let x = Tensor::packed(&gpu, vec![1.0, 2.0, 3.0, 4.0], Shape::new(1, 2, 2, 1), precision);
        let out = Tensor::poisoned(&gpu, Shape::new(1, 4, 4, 1), PACKED, precision);
        launch_all(&gpu, &[nearest_sum(test_kernels(precision), &[Enlarged { map: x.strided(), factor: 2 }], out.shape, &[out.piece(0)])]);
        let want = [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0];
        assert_eq!(out.read(&gpu), want);
    }

    #[test]
    fn sums_over_blocks_match_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(22);
        for precision in PRECISIONS {
            for (large, factors, layout, spread) in cases() {
                for &factor in factors {
                    for accumulate in [false, true] {
                        let shape = Shape { h: large.h / factor, w: large.w / factor, ..large };
                        let d_ys =
                            InPieces::new(large, spread, |shape| Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision));
                        let widened = d_ys.widened();
                        let views: Vec<View> = widened.iter().map(|data| View::packed(data, large)).collect();
                        let d_x = Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision);
                        let mut want = d_x.view().to_vec();
                        cpu::block_sum(&views, factor, ViewMut::packed(&mut want, shape), accumulate);
                        let target = Target { tensor: d_x.strided(), accumulate };
                        launch_all(&gpu, &[block_sum(test_kernels(precision), &d_ys.pieces(), factor, shape, target)]);
                        let what = format!("{precision:?} {large:?} {factor} {accumulate}");
                        // Blocks of up to 64 pixels in up to 8 pieces are added.
                        let Tolerance { abs, rel } = Tolerance::rounding(precision);
                        assert_close(&what, &d_x.read(&gpu), &want, Tolerance { abs: abs.max(2e-5), rel });
                        if factor == 1 {
                            let extent = Extent { n_pixels: shape.n_pixels(), n_channels: shape.c };
                            let sum = Tensor::poisoned(&gpu, shape, layout, precision);
                            let target = Target { tensor: sum.strided(), accumulate: false };
                            launch_all(&gpu, &[sum_pieces(test_kernels(precision), &d_ys.pieces(), extent, target)]);
                            cpu::block_sum(&views, 1, ViewMut::packed(&mut want, shape), false);
                            assert_close(&what, &sum.read(&gpu), &want, Tolerance { abs: abs.max(2e-5), rel });
                        }
                    }
                }
            }
        }
    }
}
