//! Strided NHWC views into a buffer: how kernels see tensors that are slices of others.

use crate::engine::graph::Shape;

/// A tensor to read. `data[0]` is pixel 0, channel 0; pixel `p`, channel `c` is `data[p * pixel_stride + c]`, pixels
/// counted over n, y, x. The slice ends at or after the last channel of the last pixel.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub data: &'a [f32],
    pub shape: Shape,
    pub pixel_stride: usize,
}

/// A tensor to write; layout as in [`View`]. Elements between the channels of two pixels belong to other tensors: they are
/// neither read nor written.
#[derive(Debug)]
pub struct ViewMut<'a> {
    pub data: &'a mut [f32],
    pub shape: Shape,
    pub pixel_stride: usize,
}

impl<'a> View<'a> {
    /// A packed tensor.
    pub fn packed(data: &'a [f32], shape: Shape) -> Self {
        assert_eq!(data.len(), shape.len());
        Self { data, shape, pixel_stride: shape.c }
    }

    /// The channels of pixel `index`.
    pub fn pixel(&self, index: usize) -> &'a [f32] {
        &self.data[index * self.pixel_stride..][..self.shape.c]
    }
}

impl<'a> ViewMut<'a> {
    /// A packed tensor.
    pub fn packed(data: &'a mut [f32], shape: Shape) -> Self {
        assert_eq!(data.len(), shape.len());
        Self { data, shape, pixel_stride: shape.c }
    }

    /// The channels of pixel `index`.
    pub fn pixel(&mut self, index: usize) -> &mut [f32] {
        &mut self.data[index * self.pixel_stride..][..self.shape.c]
    }
}
