//! Launches of average and max pooling: kernels/pool.cu.
//!
//! In:  addresses of strided NHWC maps and of pieces. Out: launches; nothing runs here.

use super::gpu::{Args, Launch};
use super::kernels::Kernels;
use super::pieces::{Piece, Pieces};
use super::tiling::{Access, Strided, Target, Tiling};
use crate::engine::graph::Shape;

pub use crate::engine::cpu::pool::Window;

const MAX_CHANNELS: usize = 256;
const N_THREADS: usize = 256;

/// `Map` in kernels/pool.cu.
fn map_arg(shape: Shape) -> [i32; 3] {
    [shape.n, shape.h, shape.w].map(|n| n as i32)
}

/// `Window` in kernels/pool.cu.
fn window_arg(window: Window) -> [i32; 3] {
    [window.kernel, window.stride, window.pad].map(|n| n as i32)
}

/// A thread for each group of channels of each of `n_pixels` pixels.
fn launch(kernels: &Kernels, access: Access, names: [&'static str; 2], shape: Shape, args: Args) -> Launch {
    let tiling = Tiling::new(access, shape.c, MAX_CHANNELS, N_THREADS);
    tiling.launch(kernels.get(access.pick(names[0], names[1])), shape.n_pixels().div_ceil(tiling.rows), args)
}

/// Mean of 2x2 at stride 1: `x` of `shape` -> (H-1, W-1), the same value to each of `outs`.
pub fn avg_pool2(kernels: &Kernels, x: Strided, shape: Shape, outs: &[Piece]) -> Launch {
    let out = Shape { h: shape.h - 1, w: shape.w - 1, ..shape };
    let access = Access::widest(kernels.precision(), shape.c, &[x], outs);
    let args = Args::new().with(x.address).with(x.pixel_stride as i32).with(map_arg(out)).with(shape.c as i32).with(Pieces::new(outs));
    launch(kernels, access, ["avg_pool2_vec", "avg_pool2_scalar"], out, args)
}

/// The gradient of the input, which has `shape`.
pub fn avg_pool2_backward(kernels: &Kernels, d_ys: &[Piece], shape: Shape, d_x: Target) -> Launch {
    let access = Access::widest(kernels.precision(), shape.c, &[d_x.tensor], d_ys);
    let args = Args::new()
        .with(Pieces::new(d_ys))
        .with(map_arg(shape))
        .with(shape.c as i32)
        .with(d_x.tensor.address)
        .with(d_x.tensor.pixel_stride as i32)
        .with(i32::from(d_x.accumulate));
    launch(kernels, access, ["avg_pool2_backward_vec", "avg_pool2_backward_scalar"], shape, args)
}

/// The shape of a max pool's output.
fn pooled(shape: Shape, window: Window) -> Shape {
    assert!(window.pad < window.kernel, "a window of padding alone has no maximum");
    let side = |side: usize| (side + 2 * window.pad - window.kernel) / window.stride + 1;
    Shape { h: side(shape.h), w: side(shape.w), ..shape }
}

/// What both kernels that search windows begin with.
fn search_args(x: Strided, shape: Shape, window: Window) -> Args {
    Args::new()
        .with(x.address)
        .with(x.pixel_stride as i32)
        .with(map_arg(shape))
        .with(window_arg(window))
        .with(map_arg(pooled(shape, window)))
        .with(shape.c as i32)
}

/// The largest value of each window of `x`, which has `shape`; the same to each of `outs`.
pub fn max_pool(kernels: &Kernels, x: Strided, shape: Shape, window: Window, outs: &[Piece]) -> Launch {
    let access = Access::widest(kernels.precision(), shape.c, &[x], outs);
    let args = search_args(x, shape, window).with(Pieces::new(outs));
    launch(kernels, access, ["max_pool_vec", "max_pool_scalar"], pooled(shape, window), args)
}

/// Bytes of workspace for [`max_pool_backward`]; it begins at a multiple of 16.
pub fn max_pool_backward_bytes(shape: Shape, window: Window) -> usize {
    pooled(shape, window).len()
}

/// The gradient of the input `x`, which has `shape`: it goes to the first maximum of each window.
pub fn max_pool_backward(
    kernels: &Kernels,
    x: Strided,
    d_ys: &[Piece],
    shape: Shape,
    window: Window,
    d_x: Target,
    workspace: u64,
) -> Vec<Launch> {
    assert!(window.kernel <= 16, "places in a window of {0} x {0} do not fit a byte", window.kernel);
    // One access for both: the workspace is read as it was written.
    let access = Access::widest(kernels.precision(), shape.c, &[x, d_x.tensor], d_ys);
    let out = pooled(shape, window);
    let search = search_args(x, shape, window).with(workspace);
    let gather = Args::new()
        .with(workspace)
        .with(Pieces::new(d_ys))
        .with(map_arg(shape))
        .with(window_arg(window))
        .with(map_arg(out))
        .with(shape.c as i32)
        .with(d_x.tensor.address)
        .with(d_x.tensor.pixel_stride as i32)
        .with(i32::from(d_x.accumulate));
    vec![
        launch(kernels, access, ["max_pool_codes_vec", "max_pool_codes_scalar"], out, search),
        launch(kernels, access, ["max_pool_gather_vec", "max_pool_gather_scalar"], shape, gather),
    ]
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::Precision;
    use super::super::test_tensors::{ALIGNED, InPieces, Layout, ODD, PACKED, Spread, Tensor, launch_all};
    use super::super::testing::{PRECISIONS, Random, TestGpu, Tolerance, assert_close, test_gpu, test_kernels};
    use super::*;
    use crate::engine::cpu::pool as cpu;
    use crate::engine::cpu::view::{View, ViewMut};

    const SPP: Window = Window { kernel: 5, stride: 1, pad: 2 };
    const DOWN: Window = Window { kernel: 3, stride: 2, pad: 1 };

    fn cases() -> Vec<(Shape, Layout, Spread)> {
        vec![
            (Shape::new(1, 2, 2, 1), PACKED, Spread::Whole),
            (Shape::new(2, 5, 8, 19), ODD, Spread::Many),
            (Shape::new(2, 13, 7, 24), ALIGNED, Spread::Gap),
            (Shape::new(3, 20, 20, 80), ALIGNED, Spread::Halves),
            (Shape::new(4, 20, 20, 256), PACKED, Spread::Whole),
            (Shape::new(1, 41, 39, 1024), PACKED, Spread::Whole),
        ]
    }

    /// Random values on a coarse grid, so that windows have several maxima.
    fn coarse(gpu: &TestGpu, random: &mut Random, shape: Shape, layout: Layout, precision: Precision) -> Tensor {
        let fine = Tensor::random(gpu, random, shape, layout, [-4.0, 4.0], precision);
        if layout.gap > 0 {
            return fine;
        }
        Tensor::packed(gpu, fine.view().to_vec().into_iter().map(f32::round).collect(), shape, precision)
    }

    #[test]
    fn averages_match_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(11);
        for precision in PRECISIONS {
            for (shape, layout, spread) in cases() {
                let what = format!("{precision:?} {shape:?} {layout:?} {spread:?}");
                let kernels = test_kernels(precision);
                let small = Shape { h: shape.h - 1, w: shape.w - 1, ..shape };
                let x = Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision);
                let mut want = vec![f32::NAN; small.len()];
                cpu::avg_pool2(x.view(), &mut [ViewMut::packed(&mut want, small)]);
                let outs = InPieces::new(small, spread, |shape| Tensor::poisoned(&gpu, shape, layout, precision));
                launch_all(&gpu, &[avg_pool2(kernels, x.strided(), shape, &outs.pieces())]);
                for [out, want] in outs.with_expected(&gpu, &want) {
                    assert_close(&what, &out, &want, Tolerance::rounding(precision));
                }

                for accumulate in [false, true] {
                    let d_ys = InPieces::new(small, spread, |shape| Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision));
                    let widened = d_ys.widened();
                    let views: Vec<View> = widened.iter().map(|data| View::packed(data, small)).collect();
                    let d_x = Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision);
                    let mut want = d_x.view().to_vec();
                    cpu::avg_pool2_backward(&views, ViewMut::packed(&mut want, shape), accumulate);
                    let target = Target { tensor: d_x.strided(), accumulate };
                    launch_all(&gpu, &[avg_pool2_backward(kernels, &d_ys.pieces(), shape, target)]);
                    assert_close(&format!("gradient, {what}"), &d_x.read(&gpu), &want, Tolerance::rounding(precision));
                }
            }
        }
    }

    #[test]
    fn maxima_match_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(12);
        for precision in PRECISIONS {
            for window in [SPP, DOWN] {
                for (shape, layout, spread) in cases() {
                    let what = format!("{precision:?} {window:?} {shape:?} {layout:?} {spread:?}");
                    let kernels = test_kernels(precision);
                    let small = pooled(shape, window);
                    let x = coarse(&gpu, random, shape, layout, precision);
                    let mut want = vec![f32::NAN; small.len()];
                    cpu::max_pool(x.view(), window, &mut [ViewMut::packed(&mut want, small)]);
                    let outs = InPieces::new(small, spread, |shape| Tensor::poisoned(&gpu, shape, layout, precision));
                    launch_all(&gpu, &[max_pool(kernels, x.strided(), shape, window, &outs.pieces())]);
                    for [out, want] in outs.with_expected(&gpu, &want) {
                        assert_eq!(out, want, "{what}");
                    }

                    let workspace = gpu.gpu.alloc(max_pool_backward_bytes(shape, window)).unwrap();
                    for accumulate in [false, true] {
                        let d_ys =
                            InPieces::new(small, spread, |shape| Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision));
                        let widened = d_ys.widened();
                        let views: Vec<View> = widened.iter().map(|data| View::packed(data, small)).collect();
                        let d_x = Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision);
                        let mut want = d_x.view().to_vec();
                        cpu::max_pool_backward(x.view(), &views, window, ViewMut::packed(&mut want, shape), accumulate);
                        workspace.fill(0xff).unwrap();
                        let target = Target { tensor: d_x.strided(), accumulate };
                        let launches = max_pool_backward(kernels, x.strided(), &d_ys.pieces(), shape, window, target, workspace.address);
                        launch_all(&gpu, &launches);
                        // Gradients of up to 25 windows are added.
                        let Tolerance { abs, rel } = Tolerance::rounding(precision);
                        assert_close(&format!("gradient, {what}"), &d_x.read(&gpu), &want, Tolerance { abs: abs.max(5e-6), rel });
                    }
                }
            }
        }
    }

    #[test]
    fn a_window_with_nan_gives_nan() {
        let gpu = test_gpu();
        for precision in PRECISIONS {
            let shape = Shape::new(1, 7, 7, 8);
            let mut x = vec![1.0; shape.len()];
            x[(3 * 7 + 3) * 8] = f32::NAN;
            let x = Tensor::packed(&gpu, x, shape, precision);
            let out = Tensor::poisoned(&gpu, shape, PACKED, precision);
            launch_all(&gpu, &[max_pool(test_kernels(precision), x.strided(), shape, SPP, &[out.piece(0)])]);
            for (index, value) in out.read(&gpu).into_iter().enumerate() {
                let (row, column, channel) = (index / 56, index / 8 % 7, index % 8);
                let near = row.abs_diff(3) <= 2 && column.abs_diff(3) <= 2 && channel == 0;
                assert!(if near { value.is_nan() } else { value == 1.0 }, "{value} at {row} {column} {channel}");
            }
        }
    }
}
