//! Box distributions and class logits into boxes and scores.
//!
//! In:  for each level, P3 first, logits of the box distribution (channel `side * reg_max + bin`, sides left, top, right,
//! bottom) and of the classes. Out: a row for each anchor point, levels in order, each row by row: cx, cy, w, h in input
//! pixels, then a score a class.
//!
//! Never suppresses or sorts: `geom::nms` does.

use rayon::prelude::*;

use super::dfl::expected_bin;
use super::silu::sigmoid;
use super::simd::{Kernel, dispatch};
use super::view::View;

/// Anchor points of one piece of work.
const BLOCK: usize = 256;

/// Decodes all images of a batch; `out` is (B, N, 4 + classes), packed.
pub fn decode(levels: &[(View, View)], strides: &[usize], reg_max: usize, out: &mut [f32]) {
    assert_eq!(levels.len(), strides.len());
    let (batch, n_classes) = (levels[0].0.shape.n, levels[0].1.shape.c);
    let n_anchors: usize = levels.iter().map(|(reg, _)| reg.shape.h * reg.shape.w).sum();
    let row = 4 + n_classes;
    assert_eq!(out.len(), batch * n_anchors * row);

    for (image, mut out) in out.chunks_exact_mut(n_anchors * row).enumerate() {
        for ((reg, cls), &stride) in levels.iter().zip(strides) {
            assert_eq!(reg.shape.c, 4 * reg_max, "channels of the box distributions");
            assert_eq!(cls.shape.c, n_classes, "channels of the class logits");
            let n_cells = reg.shape.h * reg.shape.w;
            let of_level = out.split_off_mut(..n_cells * row).expect("the levels together have all anchor points");
            of_level.par_chunks_mut(BLOCK * row).enumerate().for_each(|(block, rows)| {
                dispatch(DecodeBlock { reg: *reg, cls: *cls, first_pixel: image * n_cells, first_cell: block * BLOCK, stride, rows });
            });
        }
    }
}

/// Some anchor points of one level of one image.
struct DecodeBlock<'a> {
    reg: View<'a>,
    cls: View<'a>,
    /// Of the image, in the level's tensors.
    first_pixel: usize,
    /// Of the block, in the image.
    first_cell: usize,
    stride: usize,
    rows: &'a mut [f32],
}

impl Kernel for DecodeBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (width, stride) = (self.reg.shape.w, self.stride as f32);
        for (i, row) in self.rows.chunks_exact_mut(4 + self.cls.shape.c).enumerate() {
            let cell = self.first_cell + i;
            let (x, y) = ((cell % width) as f32 + 0.5, (cell / width) as f32 + 0.5);
            let [left, top, right, bottom] = ltrb::<FMA>(self.reg.pixel(self.first_pixel + cell));
            let (bbox, scores) = row.split_at_mut(4);
            bbox[0] = (x + (right - left) / 2.0) * stride;
            bbox[1] = (y + (bottom - top) / 2.0) * stride;
            bbox[2] = (left + right) * stride;
            bbox[3] = (top + bottom) * stride;
            for (score, &logit) in scores.iter_mut().zip(self.cls.pixel(self.first_pixel + cell)) {
                *score = sigmoid::<FMA>(logit);
            }
        }
    }
}

/// Distances of one anchor point to the sides of its box (left, top, right, bottom), in strides.
pub struct Ltrb<'a>(pub &'a [f32]);

impl Kernel for Ltrb<'_> {
    type Output = [f32; 4];

    #[inline(always)]
    fn run<const FMA: bool>(self) -> [f32; 4] {
        ltrb::<FMA>(self.0)
    }
}

#[inline(always)]
fn ltrb<const FMA: bool>(reg: &[f32]) -> [f32; 4] {
    let reg_max = reg.len() / 4;
    let mut distances = [0.0; 4];
    for (distance, logits) in distances.iter_mut().zip(reg.chunks_exact(reg_max)) {
        *distance = expected_bin::<FMA>(logits);
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::decode;
    use crate::engine::cpu::view::View;
    use crate::engine::golden::{Golden, assert_close};
    use crate::engine::graph::Shape;

    #[test]
    fn a_flat_distribution_gives_a_box_of_15_strides_around_the_point() {
        let (reg, cls) = (vec![0.0; 2 * 3 * 64], vec![0.0; 2 * 3]);
        let levels = [(View::packed(&reg, Shape::new(1, 2, 3, 64)), View::packed(&cls, Shape::new(1, 2, 3, 1)))];
        let mut out = vec![0.0; 6 * 5];
        decode(&levels, &[8], 16, &mut out);
        assert_eq!(out[..5], [4.0, 4.0, 120.0, 120.0, 0.5]);
        assert_eq!(out[5 * 5..], [20.0, 12.0, 120.0, 120.0, 0.5]); // last column, last row
    }

    #[test]
    fn slices_of_wider_tensors_decode_as_packed_ones() {
        let value = |i: usize| ((i * 7919) % 97) as f32 * 0.05 - 2.0;
        let (n, c) = (2 * 5 * 4, 32 + 3);
        let wide: Vec<f32> = (0..n * c).map(value).collect();
        let reg: Vec<f32> = wide.chunks(c).flat_map(|pixel| pixel[..32].to_vec()).collect();
        let cls: Vec<f32> = wide.chunks(c).flat_map(|pixel| pixel[32..].to_vec()).collect();
        let (reg_shape, cls_shape) = (Shape::new(2, 5, 4, 32), Shape::new(2, 5, 4, 3));
        let (mut from_wide, mut from_packed) = (vec![0.0; n * 7], vec![0.0; n * 7]);
        let wide_levels =
            [(View { data: &wide, shape: reg_shape, pixel_stride: c }, View { data: &wide[32..], shape: cls_shape, pixel_stride: c })];
        decode(&wide_levels, &[16], 8, &mut from_wide);
        decode(&[(View::packed(&reg, reg_shape), View::packed(&cls, cls_shape))], &[16], 8, &mut from_packed);
        assert_eq!(from_wide, from_packed);
    }

    #[test]
    fn boxes_agree_with_the_reference() {
        let golden = Golden::open("dfl.safetensors");
        let (raw, cls) = (golden.f32s("decode_raw"), vec![0.0; 84]);
        let mut first = 0;
        let levels: Vec<(View, View)> = [8, 4, 2]
            .into_iter()
            .map(|side: usize| {
                let range = first..first + side * side;
                first = range.end;
                let reg = View::packed(&raw[range.start * 64..range.end * 64], Shape::new(1, side, side, 64));
                (reg, View::packed(&cls[range], Shape::new(1, side, side, 1)))
            })
            .collect();
        let mut out = vec![0.0; 84 * 5];
        decode(&levels, &[8, 16, 32], 16, &mut out);
        let boxes: Vec<f32> = out.chunks(5).flat_map(|row| row[..4].to_vec()).collect();
        let strides = golden.f32s("decode_strides");
        let in_strides = golden.f32s("decode_xywh");
        let reference: Vec<f32> = in_strides.iter().enumerate().map(|(i, value)| value * strides[i / 4]).collect();
        assert_close("boxes", &boxes, &reference, 5e-4, 0.0);
    }
}
