//! Tensors that a test has on the host and on the GPU, and the pieces that they are of a value.

use super::Precision;
use super::gpu::{DeviceBuffer, Launch};
use super::pieces::Piece;
use super::testing::{Random, TestGpu};
use super::tiling::Strided;
use crate::engine::cpu::view::View;
use crate::engine::graph::Shape;

/// Where a tensor lies in its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Elements before the first one.
    pub(crate) offset: usize,
    /// Elements between the channels of two pixels.
    pub(crate) gap: usize,
}

pub(crate) const PACKED: Layout = Layout { offset: 0, gap: 0 };
/// A slice that allows 16-byte accesses if its channels do.
pub(crate) const ALIGNED: Layout = Layout { offset: 8, gap: 24 };
/// A slice that does not.
pub(crate) const ODD: Layout = Layout { offset: 3, gap: 5 };

/// A strided tensor with the same content on both sides; the elements around it are part of the content.
pub(crate) struct Tensor {
    pub(crate) shape: Shape,
    layout: Layout,
    precision: Precision,
    data: Vec<f32>,
    buffer: DeviceBuffer,
}

impl Tensor {
    /// Values in `low..high` that the compute type holds.
    pub(crate) fn random(gpu: &TestGpu, random: &mut Random, shape: Shape, layout: Layout, range: [f32; 2], precision: Precision) -> Self {
        let n = layout.offset + shape.n_pixels() * (shape.c + layout.gap);
        Self::new(gpu, random.values(n, range[0], range[1], precision), shape, layout, precision)
    }

    /// NaN everywhere.
    pub(crate) fn poisoned(gpu: &TestGpu, shape: Shape, layout: Layout, precision: Precision) -> Self {
        let n = layout.offset + shape.n_pixels() * (shape.c + layout.gap);
        Self::new(gpu, vec![f32::NAN; n], shape, layout, precision)
    }

    fn new(gpu: &TestGpu, data: Vec<f32>, shape: Shape, layout: Layout, precision: Precision) -> Self {
        let buffer = gpu.upload(&data, precision);
        Self { shape, layout, precision, data, buffer }
    }

    /// A packed tensor with these values.
    pub(crate) fn packed(gpu: &TestGpu, values: Vec<f32>, shape: Shape, precision: Precision) -> Self {
        assert_eq!(values.len(), shape.len());
        Self::new(gpu, values, shape, PACKED, precision)
    }

    fn pixel_stride(&self) -> usize {
        self.shape.c + self.layout.gap
    }

    /// The host's side.
    pub(crate) fn view(&self) -> View<'_> {
        View { data: &self.data[self.layout.offset..], shape: self.shape, pixel_stride: self.pixel_stride() }
    }

    /// The GPU's side.
    pub(crate) fn strided(&self) -> Strided {
        let address = self.buffer.address + (self.layout.offset * self.precision.bytes()) as u64;
        Strided { address, pixel_stride: self.pixel_stride() }
    }

    /// This tensor as the channels from `first` on of a value.
    pub(crate) fn piece(&self, first: usize) -> Piece {
        let Strided { address, pixel_stride } = self.strided();
        Piece { address, pixel_stride: pixel_stride as i32, first: first as i32, count: self.shape.c as i32, unused: 0 }
    }

    /// The packed content on the GPU. Panics if anything around the tensor has changed.
    pub(crate) fn read(&self, gpu: &TestGpu) -> Vec<f32> {
        let now = gpu.download(&self.buffer, self.data.len(), self.precision);
        let (offset, c) = (self.layout.offset, self.shape.c);
        for (index, (now, before)) in now.iter().zip(&self.data).enumerate() {
            let outside = index < offset || (index - offset) % self.pixel_stride() >= c;
            assert!(
                !outside || now == before || (now.is_nan() && before.is_nan()),
                "element {index} is outside, but {before} became {now}"
            );
        }
        View { data: &now[offset..], shape: self.shape, pixel_stride: self.pixel_stride() }.to_vec()
    }
}

/// How a value is spread over pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spread {
    /// One piece.
    Whole,
    /// All of it, and each half again.
    Halves,
    /// Only the second half.
    Gap,
    /// All of it, so many times.
    Copies(usize),
    /// As many pieces as there can be.
    Many,
}

impl Spread {
    /// First channel and count of each piece.
    fn ranges(self, c: usize) -> Vec<[usize; 2]> {
        let (low, high, all) = ([0, c / 2], [c / 2, c - c / 2], [0, c]);
        let ranges = match self {
            Self::Whole => vec![all],
            Self::Halves => vec![all, low, high],
            Self::Gap => vec![high],
            Self::Copies(n) => vec![all; n],
            Self::Many => vec![low, high, all, high, low, all, all, high],
        };
        ranges.into_iter().filter(|range| range[1] > 0).collect()
    }
}

/// A value in pieces.
pub(crate) struct InPieces {
    shape: Shape,
    firsts: Vec<usize>,
    tensors: Vec<Tensor>,
}

impl InPieces {
    pub(crate) fn new(shape: Shape, spread: Spread, mut tensor: impl FnMut(Shape) -> Tensor) -> Self {
        let ranges = spread.ranges(shape.c);
        let tensors = ranges.iter().map(|&[_, count]| tensor(Shape { c: count, ..shape })).collect();
        Self { shape, firsts: ranges.iter().map(|range| range[0]).collect(), tensors }
    }

    pub(crate) fn pieces(&self) -> Vec<Piece> {
        self.tensors.iter().zip(&self.firsts).map(|(tensor, &first)| tensor.piece(first)).collect()
    }

    /// Each piece with zeros in the channels that it does not hold, packed.
    pub(crate) fn widened(&self) -> Vec<Vec<f32>> {
        let c = self.shape.c;
        let widen = |(tensor, &first): (&Tensor, &usize)| {
            let mut wide = vec![0.0; self.shape.len()];
            for pixel in 0..self.shape.n_pixels() {
                wide[pixel * c + first..][..tensor.shape.c].copy_from_slice(tensor.view().pixel(pixel));
            }
            wide
        };
        self.tensors.iter().zip(&self.firsts).map(widen).collect()
    }

    /// Each piece on the GPU with its channels of a packed value.
    pub(crate) fn with_expected(&self, gpu: &TestGpu, value: &[f32]) -> Vec<[Vec<f32>; 2]> {
        let expected = |(tensor, &first): (&Tensor, &usize)| {
            let part = View { data: &value[first..], shape: tensor.shape, pixel_stride: self.shape.c };
            [tensor.read(gpu), part.to_vec()]
        };
        self.tensors.iter().zip(&self.firsts).map(expected).collect()
    }
}

/// Gives launches to the stream.
#[expect(clippy::unwrap_used, reason = "tests")]
pub(crate) fn launch_all(gpu: &TestGpu, launches: &[Launch]) {
    for launch in launches {
        gpu.gpu.launch(launch).unwrap();
    }
}
