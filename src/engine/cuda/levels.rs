//! The levels of detection heads as kernels see them: where logits and their gradients are, and how anchor points are numbered.
//!
//! Anchor points of an image are numbered over the levels, each row by row, as on the CPU.

use super::gpu::Args;
use super::tiling::Strided;

/// Most heads and levels, and bins of a side; as in kernels/common.cuh.
pub const MAX_HEADS: usize = 2;
pub const MAX_LEVELS: usize = 4;
pub const BINS: usize = 16;

/// The tensors of one level of one head: box distributions, class logits, and their gradients if wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelTensors {
    pub height: usize,
    pub width: usize,
    pub reg: Strided,
    pub cls: Strided,
    pub d_reg: Strided,
    pub d_cls: Strided,
}

/// `Level` in kernels/common.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Level {
    reg: u64,
    cls: u64,
    d_reg: u64,
    d_cls: u64,
    reg_stride: i32,
    cls_stride: i32,
    d_reg_stride: i32,
    d_cls_stride: i32,
    height: i32,
    width: i32,
    first_anchor: i32,
    stride: f32,
}

/// `Levels` in kernels/common.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Table {
    level: [Level; MAX_HEADS * MAX_LEVELS],
    n_heads: i32,
    n_levels: i32,
    batch: i32,
    n_anchors: i32,
    n_classes: i32,
    unused: i32,
}

/// All levels of all heads, for a kernel that takes `Levels`.
#[derive(Clone, Debug)]
pub struct Levels {
    pub n_heads: usize,
    pub batch: usize,
    /// Of one image.
    pub n_anchors: usize,
    pub n_classes: usize,
    /// Cells of one image, for each level.
    pub n_cells: Vec<usize>,
    table: Table,
}

impl Levels {
    /// `levels` are those of every head in order, each head with one for each of `strides` (input pixels per cell).
    ///
    /// # Panics
    /// If there are too many, or heads differ in sizes.
    pub fn new(batch: usize, n_classes: usize, strides: &[usize], levels: &[LevelTensors]) -> Self {
        let (n_levels, n_heads) = (strides.len(), levels.len() / strides.len());
        assert_eq!(levels.len(), n_levels * n_heads, "levels of all heads");
        assert!((1..=MAX_HEADS).contains(&n_heads) && n_levels <= MAX_LEVELS, "{n_heads} heads of {n_levels} levels");
        let mut table = Table { n_levels: n_levels as i32, ..bytemuck::Zeroable::zeroed() };
        let n_cells: Vec<usize> = levels[..n_levels].iter().map(|level| level.height * level.width).collect();
        for (index, tensors) in levels.iter().enumerate() {
            let level = index % n_levels;
            assert_eq!((tensors.height, tensors.width), (levels[level].height, levels[level].width), "size of level {level}");
            table.level[index] = Level {
                reg: tensors.reg.address,
                cls: tensors.cls.address,
                d_reg: tensors.d_reg.address,
                d_cls: tensors.d_cls.address,
                reg_stride: tensors.reg.pixel_stride as i32,
                cls_stride: tensors.cls.pixel_stride as i32,
                d_reg_stride: tensors.d_reg.pixel_stride as i32,
                d_cls_stride: tensors.d_cls.pixel_stride as i32,
                height: tensors.height as i32,
                width: tensors.width as i32,
                first_anchor: n_cells[..level].iter().sum::<usize>() as i32,
                stride: strides[level] as f32,
            };
        }
        let n_anchors: usize = n_cells.iter().sum();
        // Kernels count threads, four an anchor point, and logits of a level in i32.
        let n_largest = batch * n_anchors * n_heads.max(4 * BINS).max(n_classes);
        assert!(i32::try_from(n_largest).is_ok(), "{batch} images of {n_anchors} anchor points are too many");
        table.n_heads = n_heads as i32;
        table.batch = batch as i32;
        table.n_anchors = n_anchors as i32;
        table.n_classes = n_classes as i32;
        Self { n_heads, batch, n_anchors, n_classes, n_cells, table }
    }

    /// Arguments that begin with the levels.
    pub fn args(&self) -> Args {
        Args::new().with(self.table)
    }

    /// Tiles of `length` pixels of one level each, over the batch: the first of each level, and how many there are.
    pub fn tiles(&self, length: usize) -> ([i32; MAX_LEVELS], usize) {
        let (mut first, mut n_tiles) = ([0; MAX_LEVELS], 0);
        for (first, n_cells) in first.iter_mut().zip(&self.n_cells) {
            *first = n_tiles as i32;
            n_tiles += (self.batch * n_cells).div_ceil(length);
        }
        (first, n_tiles)
    }
}
