//! Launches kernels/decode.cu: box distributions and class logits into boxes and scores.

use super::gpu::Launch;
use super::kernels::Kernels;
use super::levels::Levels;

/// Pixels of a block; `TILE` in kernels/decode.cu.
const DECODE_TILE: usize = 64;

/// Decodes one head into `out`, (B, N, 4 + classes) f32, packed.
pub fn decode(kernels: &Kernels, levels: &Levels, out: u64) -> Launch {
    assert_eq!(levels.n_heads, 1, "heads to decode");
    let (first_tile, n_tiles) = levels.tiles(DECODE_TILE);
    Launch::linear(kernels.get("decode_boxes"), n_tiles, 4 * DECODE_TILE, levels.args().with(first_tile).with(out))
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::decode;
    use crate::engine::cpu;
    use crate::engine::cpu::view::View;
    use crate::engine::cuda::levels::{LevelTensors, Levels};
    use crate::engine::cuda::testing::{PRECISIONS, Random, Tolerance, assert_close, test_gpu, test_kernels};
    use crate::engine::cuda::tiling::Strided;
    use crate::engine::graph::Shape;

    #[test]
    fn boxes_and_scores_agree_with_the_cpu() {
        let test = test_gpu();
        let strides = [8, 16, 32];
        for precision in PRECISIONS {
            // Classes, channels between the two tensors of a pixel (0: each packed), images, sizes.
            for (n_classes, gap, batch, sizes) in [
                (1, 0, 1, [(1, 1), (1, 1), (1, 1)]),
                (3, 0, 2, [(12, 20), (6, 10), (3, 5)]),
                (80, 0, 3, [(16, 16), (8, 8), (4, 4)]),
                (5, 2, 2, [(7, 9), (4, 5), (2, 3)]),
                (80, 0, 4, [(80, 80), (40, 40), (20, 20)]),
            ] {
                let mut random = Random::new(7);
                let (mut buffers, mut tensors, mut values) = (Vec::new(), Vec::new(), Vec::new());
                for (h, w) in sizes {
                    let n = batch * h * w;
                    if gap == 0 {
                        let (reg, cls) = (random.values(n * 64, -6.0, 6.0, precision), random.values(n * n_classes, -8.0, 4.0, precision));
                        buffers.extend([test.upload(&reg, precision), test.upload(&cls, precision)]);
                        values.push((reg, cls, 64, n_classes));
                    } else {
                        let stride = 64 + gap + n_classes;
                        let both = random.values(n * stride, -6.0, 6.0, precision);
                        buffers.push(test.upload(&both, precision));
                        values.push((both.clone(), both[64 + gap..].to_vec(), stride, stride));
                    }
                    let (_, _, reg_stride, cls_stride) = values[values.len() - 1];
                    let cls_address = match gap {
                        0 => buffers[buffers.len() - 1].address,
                        _ => buffers[buffers.len() - 1].address + ((64 + gap) * precision.bytes()) as u64,
                    };
                    let reg_address = if gap == 0 { buffers[buffers.len() - 2].address } else { buffers[buffers.len() - 1].address };
                    tensors.push(LevelTensors {
                        height: h,
                        width: w,
                        reg: Strided { address: reg_address, pixel_stride: reg_stride },
                        cls: Strided { address: cls_address, pixel_stride: cls_stride },
                        ..LevelTensors::default()
                    });
                }
                let n_anchors: usize = sizes.iter().map(|(h, w)| h * w).sum();
                let out = test.gpu.alloc(batch * n_anchors * (4 + n_classes) * 4).unwrap();
                out.fill(0xff).unwrap();
                let levels = Levels::new(batch, n_classes, &strides, &tensors);
                test.gpu.launch(&decode(test_kernels(precision), &levels, out.address)).unwrap();
                let ours: Vec<f32> = out.read(0, batch * n_anchors * (4 + n_classes)).unwrap();

                let views: Vec<(View, View)> = values
                    .iter()
                    .zip(sizes)
                    .map(|((reg, cls, reg_stride, cls_stride), (h, w))| {
                        (
                            View { data: reg, shape: Shape::new(batch, h, w, 64), pixel_stride: *reg_stride },
                            View { data: cls, shape: Shape::new(batch, h, w, n_classes), pixel_stride: *cls_stride },
                        )
                    })
                    .collect();
                let mut expected = vec![0.0; ours.len()];
                cpu::decode::decode(&views, &strides, 16, &mut expected);
                // The output is f32 whatever the inputs are; a distance has errors of 1e-6 strides of up to 32 pixels.
                assert_close(&format!("{n_classes} classes, {precision:?}"), &ours, &expected, Tolerance { abs: 1e-4, rel: 2e-6 });
            }
        }
    }
}
