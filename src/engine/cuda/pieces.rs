//! Tensors as kernels see them: a pointer, a pixel stride, and which channels of a value they hold.

/// Most pieces of one value; `MAX_PIECES` in kernels/common.cuh.
pub const MAX_PIECES: usize = 8;

/// A tensor that holds channels `first..first + count` of a value with the same pixels; `Piece` in kernels/common.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Piece {
    /// Of pixel 0, channel `first`.
    pub address: u64,
    /// In elements.
    pub pixel_stride: i32,
    pub first: i32,
    pub count: i32,
    pub unused: i32,
}

/// Places to write a value to, or gradients whose sum is wanted; `Pieces` in kernels/common.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Pieces {
    piece: [Piece; MAX_PIECES],
    n: i32,
    unused: i32,
}

impl Pieces {
    /// # Panics
    /// If there are more than [`MAX_PIECES`]: the graph was not prepared for the GPU.
    pub fn new(pieces: &[Piece]) -> Self {
        assert!(pieces.len() <= MAX_PIECES, "{} pieces, at most {MAX_PIECES}", pieces.len());
        let mut all = Self { n: pieces.len() as i32, ..Self::default() };
        all.piece[..pieces.len()].copy_from_slice(pieces);
        all
    }
}
