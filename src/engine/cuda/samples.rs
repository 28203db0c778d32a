//! Training samples made on the GPU: tiles of pictures on a canvas, warped, mixed, with changed colours and flipped.
//!
//! In:  pictures in device memory, and for each sample plain data that needs no more decisions. Out: bytes (n, side, side, 3).
//!
//! The kernel repeats the arithmetic of the CPU exactly, so both give the same bytes. Tables are written to pinned memory by the
//! caller; they are some kilobytes a sample, where pixels would be a megabyte.

use super::gpu::{Args, DeviceBuffer, Launch};
use super::kernels::Kernels;

/// Tiles of a layer at most. As in kernels/samples.cu, like all structs here.
pub const MAX_TILES: usize = 4;

/// A rectangle of a picture, copied to a canvas.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleTile {
    /// Address of the picture's first byte.
    pub picture: u64,
    pub picture_width: i32,
    /// Left and top in the picture, then on the canvas; width and height.
    pub source: [i32; 2],
    pub place: [i32; 2],
    pub size: [i32; 2],
    pub unused: i32,
}

/// Tiles on a canvas, and how it is seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleLayer {
    /// Rows, from output to canvas pixels; the third counts only where the map is projective.
    pub map: [f64; 9],
    pub is_projective: i32,
    pub canvas: [i32; 2],
    pub n_tiles: i32,
    pub tiles: [SampleTile; MAX_TILES],
    /// Into the table of spans.
    pub first_span: i32,
    pub n_spans: i32,
}

/// One sample.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Sample {
    pub layers: [SampleLayer; 2],
    /// Of the first layer, out of 65536, which means that there is no second.
    pub share: u32,
    pub flip_horizontal: i32,
    pub flip_vertical: i32,
    /// Index into the table of colours, or -1.
    pub colors: i32,
}

/// A part of a canvas row that shows what is mirrored about the middle. Sorted by row and start within a layer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleSpan {
    pub y: i32,
    pub start: i32,
    pub end: i32,
    pub unused: i32,
}

/// What a hue, a saturation and a value before the change mean after it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleColors {
    /// How far into its sector of the colour circle a hue is.
    pub fraction: [f32; 256],
    pub saturation: [f32; 256],
    pub value: [f32; 256],
    /// Which of the six.
    pub sector: [u8; 256],
}

/// Samples of a batch with what they refer to.
#[derive(Clone, Debug, Default)]
pub struct SampleTable {
    pub samples: Vec<Sample>,
    pub spans: Vec<SampleSpan>,
    pub colors: Vec<SampleColors>,
}

impl SampleTable {
    /// Bytes of all three tables.
    pub fn n_bytes(&self) -> usize {
        size_of_val(self.samples.as_slice()) + size_of_val(self.spans.as_slice()) + size_of_val(self.colors.as_slice())
    }

    /// Writes the tables one after the other: all have sizes of whole 16 bytes.
    pub fn write_to(&self, bytes: &mut [u8]) {
        let tables: [&[u8]; 3] =
            [bytemuck::cast_slice(&self.samples), bytemuck::cast_slice(&self.spans), bytemuck::cast_slice(&self.colors)];
        let mut at = 0;
        for table in tables {
            bytes[at..at + table.len()].copy_from_slice(table);
            at += table.len();
        }
    }

    /// Makes samples of `side` pixels from tables that were written to `tables` in device memory.
    pub fn launch(&self, kernels: &Kernels, tables: u64, out: u64, side: usize) -> Launch {
        const THREADS: usize = 256;
        let spans = tables + size_of_val(self.samples.as_slice()) as u64;
        let colors = spans + size_of_val(self.spans.as_slice()) as u64;
        let args = Args::new().with(tables).with(spans).with(colors).with(out).with(side as i32);
        let grid = [(side * side).div_ceil(THREADS) as u32, self.samples.len() as u32, 1];
        Launch { function: kernels.get("make_samples"), grid, block: [THREADS as u32, 1, 1], shared_bytes: 0, args }
    }
}

/// Pictures in device memory.
pub struct PictureStore {
    buffer: DeviceBuffer,
    /// By picture.
    offsets: Vec<usize>,
}

impl PictureStore {
    /// Bytes that pictures of these lengths take.
    pub fn bytes_for(lens: impl Iterator<Item = usize>) -> usize {
        lens.map(|len| len.next_multiple_of(STEP)).sum()
    }

    /// Brings pictures to the device.
    ///
    /// # Errors
    /// No room.
    pub fn new<'a>(
        gpu: &std::sync::Arc<super::gpu::Gpu>,
        pictures: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<Self, super::error::CudaError> {
        let buffer = gpu.alloc(Self::bytes_for(pictures.clone().map(<[u8]>::len)))?;
        let (mut offsets, mut at) = (Vec::new(), 0);
        for picture in pictures {
            buffer.write(at, picture)?;
            offsets.push(at);
            at += picture.len().next_multiple_of(STEP);
        }
        Ok(Self { buffer, offsets })
    }

    pub fn address(&self, picture: usize) -> u64 {
        self.buffer.address + self.offsets[picture] as u64
    }

    pub fn n_bytes(&self) -> usize {
        self.buffer.bytes
    }
}

/// Bytes that pictures begin at multiples of.
const STEP: usize = 16;
