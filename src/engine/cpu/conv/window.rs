//! The part of an input that a block of output rows sees, with its padding, as one packed buffer.
//!
//! In:  a strided view, the channels of one group, the geometry of the kernel.
//! Out: rows of packed pixels with zeros where padding is. In it, each row of the kernel over one output pixel is one
//!      contiguous run of columns x channels, so the innermost loops are long and know no border.
//!
//! The copy costs one read and one write a value, against (kernel² x output channels) multiply-adds that use it.

use crate::engine::cpu::view::View;
use std::cell::Cell;
use std::ops::Range;

/// Where the kernel of a convolution looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Height and width of the kernel; zero if no product reaches the output.
    pub(super) kernel: [usize; 2],
    pub(super) stride: usize,
    /// Rows above and columns left of the input that the first output sees; negative if it begins inside.
    pub(super) pad: [isize; 2],
    /// Columns of the output.
    pub(super) out_width: usize,
}

impl Geometry {
    /// The kernel covers one pixel, the one with the output's row and column: where the input has it, no window is needed.
    pub(super) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == 1 && self.pad == [0, 0]
    }

    /// Rows of the window for so many output rows.
    pub(super) fn window_rows(&self, out_rows: usize) -> usize {
        (out_rows * self.stride + self.kernel[0]).saturating_sub(self.stride)
    }

    /// Columns of the window.
    pub(super) fn window_width(&self) -> usize {
        (self.out_width * self.stride + self.kernel[1]).saturating_sub(self.stride)
    }

    /// Pixels of the window for so many output rows.
    pub(super) fn window_len(&self, out_rows: usize) -> usize {
        self.window_rows(out_rows) * self.window_width()
    }
}

/// Copies what output rows `out_rows` of an image see of `channels` into `window`, which must have room for exactly that.
pub(super) fn fill_window(
    geometry: &Geometry,
    x: View,
    image: usize,
    out_rows: &Range<usize>,
    channels: &Range<usize>,
    window: &mut [f32],
) {
    let count = channels.len();
    let width = geometry.window_width();
    assert_eq!(window.len(), geometry.window_len(out_rows.len()) * count);
    let left = geometry.pad[1].clamp(0, width as isize) as usize;
    let first_column = (-geometry.pad[1]).max(0) as usize;
    let n_columns = x.shape.w.saturating_sub(first_column).min(width - left);

    for (row, window) in window.chunks_exact_mut(width * count).enumerate() {
        let y = (out_rows.start * geometry.stride + row) as isize - geometry.pad[0];
        if y < 0 || y >= x.shape.h as isize || n_columns == 0 {
            window.fill(0.0);
            continue;
        }
        let (padding, rest) = window.split_at_mut(left * count);
        let (inside, padding_right) = rest.split_at_mut(n_columns * count);
        padding.fill(0.0);
        padding_right.fill(0.0);
        let pixel = (image * x.shape.h + y as usize) * x.shape.w + first_column;
        let data = &x.data[pixel * x.pixel_stride + channels.start..];
        if x.pixel_stride == count {
            inside.copy_from_slice(&data[..inside.len()]);
        } else {
            for (to, from) in inside.chunks_exact_mut(count).zip(data.chunks(x.pixel_stride)) {
                copy_channels(to, &from[..count]);
            }
        }
    }
}

/// A copy in blocks of eight: channels are too few for a call of `memcpy` a pixel.
#[inline(always)]
fn copy_channels(to: &mut [f32], from: &[f32]) {
    let ((to, to_rest), (from, from_rest)) = (to.as_chunks_mut::<8>(), from.as_chunks::<8>());
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
    for (to, from) in to_rest.iter_mut().zip(from_rest) {
        *to = *from;
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Lends `len` values of this thread's scratch memory, with unspecified content, to `work`.
pub(super) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    if scratch.len() < len {
        scratch.resize(len, 0.0);
    }
    let result = work(&mut scratch[..len]);
    SCRATCH.set(scratch);
    result
}

#[cfg(test)]
mod tests {
    use super::{Geometry, fill_window};
    use crate::engine::cpu::view::View;
    use crate::engine::graph::Shape;

    #[test]
    fn padding_is_zero_and_foreign_channels_are_left_out() {
        // Two images of 2 x 2 pixels, two channels; the first of each is wanted.
        let data: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let x = View::packed(&data, Shape::new(2, 2, 2, 2));
        let geometry = Geometry { kernel: [3, 3], stride: 1, pad: [1, 1], out_width: 2 };
        let mut window = vec![f32::NAN; 3 * 4];
        fill_window(&geometry, x, 1, &(0..1), &(0..1), &mut window);
        assert_eq!(window, [0.0, 0.0, 0.0, 0.0, 0.0, 8.0, 10.0, 0.0, 0.0, 12.0, 14.0, 0.0]);
    }

    #[test]
    fn negative_padding_begins_inside_the_input() {
        let data: Vec<f32> = (0..9).map(|i| i as f32).collect();
        let x = View::packed(&data, Shape::new(1, 3, 3, 1));
        let geometry = Geometry { kernel: [1, 2], stride: 1, pad: [-1, -2], out_width: 1 };
        let mut window = vec![f32::NAN; 2 * 2];
        fill_window(&geometry, x, 0, &(0..2), &(0..1), &mut window);
        assert_eq!(window, [5.0, 0.0, 8.0, 0.0]);
    }
}
