//! Launches of conversions into the compute type, and of copies and zeros: kernels/cast.cu.
//!
//! In:  addresses of bytes, of f32 arenas and of strided tensors. Out: launches; nothing runs here.

use super::gpu::{Args, Launch};
use super::kernels::Kernels;
use super::tiling::{Access, Extent, Strided, Tiling};

const MAX_CHANNELS: usize = 256;
const N_THREADS: usize = 256;
/// Blocks that a multiprocessor holds at once.
const BLOCKS: usize = 8;

/// RGB bytes / 255 of `n_pixels` pixels as packed images of 3, 4 or 8 channels, those from the fourth on 0. `images` begins at
/// a multiple of 16.
pub fn u8_to_compute(kernels: &Kernels, rgb: u64, n_pixels: usize, n_channels: usize, images: u64) -> Launch {
    let name = match n_channels {
        3 => "u8_to_compute_3",
        4 => "u8_to_compute_4",
        8 => "u8_to_compute_8",
        _ => panic!("images with {n_channels} channels"),
    };
    assert!(images.is_multiple_of(16), "images at {images:#x}");
    let args = Args::new().with(rgb).with(n_pixels as i32).with(images);
    let n_blocks = n_pixels.div_ceil(N_THREADS).min(8 * BLOCKS * kernels.gpu().n_multiprocessors);
    Launch::linear(kernels.get(name), n_blocks, N_THREADS, args)
}

/// `n` numbers from f32 to the compute type.
pub fn f32_to_compute(kernels: &Kernels, from: u64, n: usize, to: u64) -> Launch {
    let lanes = 16 / kernels.precision().bytes();
    let (name, lanes) =
        if from.is_multiple_of(16) && to.is_multiple_of(16) { ("f32_to_compute_vec", lanes) } else { ("f32_to_compute_scalar", 1) };
    let args = Args::new().with(from).with(n as u64).with(to);
    let n_blocks = n.div_ceil(lanes * N_THREADS).min(BLOCKS * kernels.gpu().n_multiprocessors);
    Launch::linear(kernels.get(name), n_blocks, N_THREADS, args)
}

/// Copies all channels of all pixels.
pub fn copy_pixels(kernels: &Kernels, from: Strided, to: Strided, extent: Extent) -> Launch {
    let access = Access::widest(kernels.precision(), extent.n_channels, &[from, to], &[]);
    let args = Args::new()
        .with(from.address)
        .with(from.pixel_stride as i32)
        .with(to.address)
        .with(to.pixel_stride as i32)
        .with(extent.n_pixels as i32)
        .with(extent.n_channels as i32);
    launch(kernels, access, ["copy_pixels_vec", "copy_pixels_scalar"], extent, args)
}

/// Zeros all channels of all pixels.
pub fn zero(kernels: &Kernels, to: Strided, extent: Extent) -> Launch {
    let access = Access::widest(kernels.precision(), extent.n_channels, &[to], &[]);
    let args = Args::new().with(to.address).with(to.pixel_stride as i32).with(extent.n_pixels as i32).with(extent.n_channels as i32);
    launch(kernels, access, ["zero_pixels_vec", "zero_pixels_scalar"], extent, args)
}

fn launch(kernels: &Kernels, access: Access, names: [&'static str; 2], extent: Extent, args: Args) -> Launch {
    let tiling = Tiling::new(access, extent.n_channels, MAX_CHANNELS, N_THREADS);
    let n_blocks = tiling.n_blocks(extent.n_pixels, 4, BLOCKS * kernels.gpu().n_multiprocessors);
    tiling.launch(kernels.get(access.pick(names[0], names[1])), n_blocks, args)
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::Precision;
    use super::super::test_tensors::{ALIGNED, ODD, PACKED, Tensor, launch_all};
    use super::super::testing::Tolerance;
    use super::super::testing::{PRECISIONS, Random, assert_close, rounded, test_gpu, test_kernels};
    use super::*;
    use crate::engine::graph::Shape;

    #[test]
    fn bytes_become_shares_of_255_and_other_channels_zero() {
        let gpu = test_gpu();
        for precision in PRECISIONS {
            for n_pixels in [1, 100, 640 * 640] {
                for n_channels in [3, 4, 8] {
                    let rgb: Vec<u8> = (0..n_pixels * 3).map(|i| (i * 7 % 256) as u8).collect();
                    let mut want = vec![0.0; n_pixels * n_channels];
                    for (pixel, rgb) in want.chunks_exact_mut(n_channels).zip(rgb.chunks_exact(3)) {
                        for (value, &byte) in pixel.iter_mut().zip(rgb) {
                            *value = rounded(f32::from(byte) / 255.0, precision);
                        }
                    }
                    let rgb = gpu.gpu.upload(&rgb).unwrap();
                    let images = gpu.poisoned(want.len(), precision);
                    let launch = u8_to_compute(test_kernels(precision), rgb.address, n_pixels, n_channels, images.address);
                    launch_all(&gpu, &[launch]);
                    assert_eq!(gpu.download(&images, want.len(), precision), want);
                }
            }
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_compute_type() {
        let gpu = test_gpu();
        for precision in PRECISIONS {
            for (n, offset) in [(1, 0), (1003, 0), (1003, 1), (3_000_000, 0)] {
                let values = Random::new(31).values(n + offset, -100.0, 100.0, Precision::F32);
                let want: Vec<f32> = values[offset..].iter().map(|&value| rounded(value, precision)).collect();
                let from = gpu.gpu.upload(&values).unwrap();
                let to = gpu.poisoned(n, precision);
                launch_all(&gpu, &[f32_to_compute(test_kernels(precision), from.address + 4 * offset as u64, n, to.address)]);
                assert_eq!(gpu.download(&to, n, precision), want);
            }
        }
    }

    #[test]
    fn copies_and_zeros_leave_what_is_around_them() {
        let gpu = test_gpu();
        let random = &mut Random::new(32);
        for precision in PRECISIONS {
            for shape in [Shape::new(1, 1, 1, 1), Shape::new(1, 3, 5, 19), Shape::new(2, 20, 20, 80), Shape::new(1, 80, 80, 512)] {
                for (from_layout, to_layout) in [(PACKED, PACKED), (PACKED, ALIGNED), (ALIGNED, PACKED), (ODD, ALIGNED)] {
                    let extent = Extent { n_pixels: shape.n_pixels(), n_channels: shape.c };
                    let from = Tensor::random(&gpu, random, shape, from_layout, [-1.0, 1.0], precision);
                    let to = Tensor::poisoned(&gpu, shape, to_layout, precision);
                    launch_all(&gpu, &[copy_pixels(test_kernels(precision), from.strided(), to.strided(), extent)]);
                    let exact = Tolerance { abs: 0.0, rel: 0.0 };
                    assert_close(&format!("{precision:?} {shape:?}"), &to.read(&gpu), &from.view().to_vec(), exact);
                    launch_all(&gpu, &[zero(test_kernels(precision), to.strided(), extent)]);
                    assert_eq!(to.read(&gpu), vec![0.0; shape.len()]);
                }
            }
        }
    }
}
