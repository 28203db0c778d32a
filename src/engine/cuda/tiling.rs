//! How the blocks of a kernel share the pixels and channels of a tensor.
//!
//! In:  pixels, channels, and the addresses, strides and channel ranges of all tensors that a kernel touches.
//! Out: how many elements an access moves, and the grid.
//!
//! A block is `threadIdx.x` over groups of that many channels and `threadIdx.y` over pixels; `blockIdx.y` picks the channels.
//! So a thread keeps its channels and walks over pixels, and neighbouring threads touch neighbouring addresses.

use super::Precision;
use super::gpu::{Args, Function, Launch};
use super::pieces::Piece;

/// All channels of a tensor in the compute type, which may be a slice of another; address 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strided {
    /// Of pixel 0, channel 0.
    pub address: u64,
    /// In elements.
    pub pixel_stride: usize,
}

/// Where a gradient goes, and whether it is added to what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub tensor: Strided,
    pub accumulate: bool,
}

/// The size of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Of the whole batch.
    pub n_pixels: usize,
    pub n_channels: usize,
}

/// How a kernel's accesses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Several elements at a time: this many, all of them aligned.
    Packets(usize),
    /// One element at a time.
    Elements,
}

impl Access {
    /// Packets of `lanes` elements if everything is aligned to them.
    ///
    /// # Panics
    /// If a piece is outside the value's channels, or a tensor has less between two pixels than it holds.
    pub fn of(precision: Precision, lanes: usize, n_channels: usize, tensors: &[Strided], pieces: &[Piece]) -> Self {
        let n = |number: i32| usize::try_from(number).expect("sizes of pieces are no less than 0");
        let mut aligned = n_channels.is_multiple_of(lanes);
        let mut add = |address: u64, pixel_stride: usize, count: usize| {
            assert!(pixel_stride >= count, "{count} channels at a stride of {pixel_stride}");
            aligned &= address.is_multiple_of((lanes * precision.bytes()) as u64) && pixel_stride.is_multiple_of(lanes);
        };
        for tensor in tensors {
            add(tensor.address, tensor.pixel_stride, n_channels);
        }
        for piece in pieces {
            add(piece.address, n(piece.pixel_stride), n(piece.count));
            assert!(n(piece.first) + n(piece.count) <= n_channels, "{piece:?} of {n_channels} channels");
        }
        aligned &= pieces.iter().all(|piece| n(piece.first).is_multiple_of(lanes) && n(piece.count).is_multiple_of(lanes));
        if aligned { Self::Packets(lanes) } else { Self::Elements }
    }

    /// Packets of 16 bytes if everything is aligned to them.
    pub fn widest(precision: Precision, n_channels: usize, tensors: &[Strided], pieces: &[Piece]) -> Self {
        Self::of(precision, 16 / precision.bytes(), n_channels, tensors, pieces)
    }

    /// Elements that one access moves.
    pub fn lanes(self) -> usize {
        match self {
            Self::Packets(lanes) => lanes,
            Self::Elements => 1,
        }
    }

    /// The kernel for this kind of access.
    pub fn pick(self, packets: &'static str, elements: &'static str) -> &'static str {
        match self {
            Self::Packets(_) => packets,
            Self::Elements => elements,
        }
    }
}

/// How pixels are dealt out: block b takes the runs b, b + `n_blocks`, and so on, of `run_pixels` each (the last may be shorter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    pub n_blocks: usize,
    pub run_pixels: usize,
}

/// The shape of a block, and how many of them the channels need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Threads along the channels.
    pub groups: usize,
    /// Threads along the pixels.
    pub rows: usize,
    /// Blocks along the channels.
    pub n_chunks: usize,
}

impl Tiling {
    /// Blocks of at most `n_threads` threads for at most `max_channels` channels each; chunks of channels are equally wide.
    pub fn new(access: Access, n_channels: usize, max_channels: usize, n_threads: usize) -> Self {
        let n_groups = n_channels.div_ceil(access.lanes()).max(1);
        let groups = n_groups.div_ceil(n_groups.div_ceil(max_channels / access.lanes()));
        Self { groups, rows: n_threads / groups, n_chunks: n_groups.div_ceil(groups) }
    }

    /// A launch with `n_blocks` blocks along the pixels.
    pub fn launch(self, function: Function, n_blocks: usize, args: Args) -> Launch {
        let grid = [n_blocks.max(1) as u32, self.n_chunks as u32, 1];
        Launch { function, grid, block: [self.groups as u32, self.rows as u32, 1], shared_bytes: 0, args }
    }

    /// Blocks along the pixels so that at most `max_blocks` run in all, each with as many runs of `rows * pixels_per_thread`
    /// pixels as the others, or one less.
    pub fn n_blocks(self, n_pixels: usize, pixels_per_thread: usize, max_blocks: usize) -> usize {
        let n_runs = n_pixels.div_ceil(self.rows * pixels_per_thread).max(1);
        let most = (max_blocks / self.n_chunks).max(1);
        n_runs.div_ceil(n_runs.div_ceil(most))
    }

    /// Runs of at most `rows * pixels_per_thread` pixels for at most `max_blocks` in all. Where each block takes few of them, they
    /// are so short that all blocks take as many; else they have all pixels that a block can take, which needs no guards.
    pub fn runs(self, n_pixels: usize, pixels_per_thread: usize, max_blocks: usize) -> Runs {
        const MANY_ROUNDS: usize = 8;
        let most_pixels = self.rows * pixels_per_thread;
        let most_blocks = (max_blocks / self.n_chunks).max(1);
        let n_rounds = n_pixels.div_ceil(most_pixels * most_blocks).max(1);
        let equal_share = n_pixels.div_ceil(n_rounds * most_blocks).max(self.rows);
        let run_pixels = if n_rounds < MANY_ROUNDS { equal_share } else { most_pixels };
        Runs { n_blocks: n_pixels.div_ceil(run_pixels).clamp(1, most_blocks), run_pixels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_to_be_aligned_for_packets() {
        let tensor = |address, pixel_stride| Strided { address, pixel_stride };
        let piece = |first, count| Piece { address: 256, pixel_stride: 64, first, count, unused: 0 };
        let access = |c, tensors: &[Strided], pieces: &[Piece]| Access::widest(Precision::Bf16, c, tensors, pieces);
        assert_eq!(access(16, &[tensor(256, 24)], &[piece(8, 8)]), Access::Packets(8));
        assert_eq!(access(12, &[tensor(256, 24)], &[]), Access::Elements);
        assert_eq!(access(16, &[tensor(264, 24)], &[]), Access::Elements);
        assert_eq!(access(16, &[tensor(256, 20)], &[]), Access::Elements);
        assert_eq!(access(16, &[], &[piece(4, 8)]), Access::Elements);
        assert_eq!(access(16, &[], &[piece(0, 4)]), Access::Elements);
        assert_eq!(Access::widest(Precision::F32, 12, &[tensor(16, 12)], &[]), Access::Packets(4));
    }

    #[test]
    fn few_runs_are_as_many_for_each_block() {
        // 1,020 threads of 12 groups: rows of 85 pixels.
        let tiling = Tiling::new(Access::Packets(4), 48, 64, 1024);
        assert_eq!(tiling.runs(102_400, 4, 132), Runs { n_blocks: 132, run_pixels: 259 });
        assert_eq!(tiling.runs(6_553_600, 4, 132), Runs { n_blocks: 132, run_pixels: 340 });
        assert_eq!(tiling.runs(1, 4, 132), Runs { n_blocks: 1, run_pixels: 85 });
    }

    #[test]
    fn blocks_cover_all_channels_and_pixels() {
        for access in [Access::Packets(8), Access::Packets(4), Access::Elements] {
            for n_channels in [1, 3, 16, 24, 80, 96, 512, 1000, 2048] {
                let tiling = Tiling::new(access, n_channels, 64, 256);
                assert!(tiling.groups * tiling.n_chunks * access.lanes() >= n_channels);
                assert!(tiling.groups * (tiling.n_chunks - 1) * access.lanes() < n_channels, "no chunk is empty");
                assert!(tiling.rows >= 1 && tiling.groups * tiling.rows <= 256 && tiling.groups * access.lanes() <= 64);
                for n_pixels in [1, 7, 6400, 6_553_600] {
                    let n_blocks = tiling.n_blocks(n_pixels, 4, 528);
                    assert!(n_blocks >= 1 && (n_blocks == 1 || n_blocks * tiling.n_chunks <= 528));
                    let Runs { n_blocks, run_pixels } = tiling.runs(n_pixels, 4, 132);
                    assert!(n_blocks >= 1 && (n_blocks == 1 || n_blocks * tiling.n_chunks <= 132));
                    assert!((tiling.rows..=4 * tiling.rows).contains(&run_pixels));
                    assert!((n_blocks - 1) * run_pixels < n_pixels, "each block has a run");
                }
            }
        }
    }
}
