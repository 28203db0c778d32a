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

    /// Channels `first..first + count`.
    #[must_use]
    pub fn channels(&self, first: usize, count: usize) -> View<'a> {
        assert!(first + count <= self.shape.c);
        View { data: &self.data[first.min(self.data.len())..], shape: Shape { c: count, ..self.shape }, pixel_stride: self.pixel_stride }
    }

    /// The packed value.
    pub fn to_vec(&self) -> Vec<f32> {
        let mut packed = vec![0.0; self.shape.len()];
        ViewMut::packed(&mut packed, self.shape).copy_from(*self);
        packed
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

    /// The same tensor for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { data: self.data, shape: self.shape, pixel_stride: self.pixel_stride }
    }

    /// The same tensor to read.
    pub fn as_view(&self) -> View<'_> {
        View { data: self.data, shape: self.shape, pixel_stride: self.pixel_stride }
    }

    /// Takes the value of a tensor of the same shape.
    pub fn copy_from(&mut self, x: View) {
        assert_eq!(self.shape, x.shape);
        if self.shape.is_empty() {
            return;
        }
        if self.pixel_stride == self.shape.c && x.pixel_stride == self.shape.c {
            let len = self.shape.len();
            self.data[..len].copy_from_slice(&x.data[..len]);
            return;
        }
        copy_pixels(x.data, x.pixel_stride, self.data, self.pixel_stride, [self.shape.n_pixels(), self.shape.c]);
    }

    pub fn fill(&mut self, value: f32) {
        for index in 0..self.shape.n_pixels() {
            self.pixel(index).fill(value);
        }
    }
}

/// Copies `n` pixels of `c` channels between buffers with different pixel strides.
///
/// A call of `memcpy` costs more than a narrow pixel itself, so usual widths are copied by code of that width.
#[inline(always)]
pub fn copy_pixels(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize, [n, c]: [usize; 2]) {
    let pixels = from.chunks(from_stride).zip(to.chunks_mut(to_stride)).take(n);
    match c {
        16 => pixels.for_each(|(from, to)| copy::<16>(from, to)),
        24 => pixels.for_each(|(from, to)| copy::<24>(from, to)),
        32 => pixels.for_each(|(from, to)| copy::<32>(from, to)),
        48 => pixels.for_each(|(from, to)| copy::<48>(from, to)),
        64 => pixels.for_each(|(from, to)| copy::<64>(from, to)),
        _ => pixels.for_each(|(from, to)| to[..c].copy_from_slice(&from[..c])),
    }
}

#[inline(always)]
fn copy<const C: usize>(from: &[f32], to: &mut [f32]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<C>(), to.first_chunk_mut::<C>()) {
        *to = *from;
    }
}
