//! Our own stem: the 3x3 convolution with stride 2 of a picture with 3 channels, timed against cuDNN's plans.
//!
//! In:  a call that a `Kernel` supports, and addresses. Out: launches.
//!
//! Only for bf16 and f16, from `sm_80` on. A picture has no gradient, so there is none here.

use super::Precision;
use super::conv::{ConvCall, ConvPass, ConvPointers};
use super::conv3x3::weight_sum;
use super::gpu::{Args, Function, Launch};
use super::kernels::Kernels;
use crate::engine::op::{Act, ConvSpec};

/// As in `kernels/conv_stem.cu`: tiles in shared memory, threads of a block, output pixels of a tile's row, rows of a tile
/// forward, bytes of a row of the picture in shared memory, channels' bytes beside a pixel.
const STAGES: usize = 3;
const THREADS: usize = 256;
const TILE_W: usize = 64;
const TILE_H: usize = 4;
const ROW_BYTES: usize = TILE_W * 12 + 16;
const PADDING: usize = 16;
/// Weights of an output channel.
const TAPS: usize = 27;

/// A pair of kernels of `kernels/conv_stem.cu`.
#[derive(Clone, Copy, Debug)]
struct Variant {
    forward: &'static str,
    backward_weight: &'static str,
    out_channels: usize,
    /// Blocks a multiprocessor.
    blocks: usize,
    weight_blocks: usize,
    /// Rows of a tile of the weights' gradient.
    weight_tile_h: usize,
}

const VARIANTS: [Variant; 3] = [
    Variant {
        forward: "conv_stem_forward_16",
        backward_weight: "conv_stem_backward_weight_16",
        out_channels: 16,
        blocks: 4,
        weight_blocks: 3,
        weight_tile_h: 4,
    },
    Variant {
        forward: "conv_stem_forward_32",
        backward_weight: "conv_stem_backward_weight_32",
        out_channels: 32,
        blocks: 3,
        weight_blocks: 2,
        weight_tile_h: 4,
    },
    Variant {
        forward: "conv_stem_forward_64",
        backward_weight: "conv_stem_backward_weight_64",
        out_channels: 64,
        blocks: 2,
        weight_blocks: 2,
        weight_tile_h: 2,
    },
];

impl Variant {
    /// Dynamic shared memory of forward and of backward weight.
    fn shared_bytes(&self) -> [usize; 2] {
        let rows = |tile_h: usize| (2 * tile_h + 1) * ROW_BYTES;
        let dy = self.weight_tile_h * TILE_W * (self.out_channels * 2 + PADDING);
        [STAGES * rows(TILE_H), STAGES * (rows(self.weight_tile_h) + dy)]
    }

    /// Elements of the weights.
    fn weight_len(&self) -> usize {
        self.out_channels * TAPS
    }
}

/// The loaded kernels of a variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    variant: Variant,
    forward: Function,
    backward_weight: Function,
    sum: Function,
    n_multiprocessors: usize,
}

impl Kernel {
    /// All variants that this card can run.
    pub(super) fn all(kernels: &Kernels) -> Vec<Self> {
        let gpu = kernels.gpu();
        if kernels.precision() == Precision::F32 || gpu.sm < 80 || gpu.bind().is_err() {
            return Vec::new();
        }
        let kernel = |&variant: &Variant| {
            let [forward, backward_weight] = [variant.forward, variant.backward_weight].map(|name| kernels.get(name));
            let [shared, weight_shared] = variant.shared_bytes();
            // Refused where a multiprocessor has less.
            forward.allow_shared_bytes(shared).ok()?;
            backward_weight.allow_shared_bytes(weight_shared).ok()?;
            let sum = kernels.get("conv3x3_weight_sum");
            Some(Self { variant, forward, backward_weight, sum, n_multiprocessors: gpu.n_multiprocessors })
        };
        VARIANTS.iter().filter_map(kernel).collect()
    }

    /// By which a file remembers it.
    pub(super) fn name(&self) -> &'static str {
        self.variant.forward
    }

    pub(super) fn supports(&self, call: &ConvCall) -> bool {
        let spec = ConvSpec { kernel: 3, stride: 2, pad: 1, groups: 1, in_channels: 3, out_channels: self.variant.out_channels };
        call.spec == spec && call.pass != ConvPass::BackwardInput && i32::try_from(call.n * call.h * call.w).is_ok()
    }

    fn n_tiles(call: &ConvCall, tile_h: usize) -> usize {
        call.n * call.spec.out_side(call.h).div_ceil(tile_h) * call.spec.out_side(call.w).div_ceil(TILE_W)
    }

    /// Blocks of the weights' gradient, each with a partial result.
    fn n_partials(&self, call: &ConvCall) -> usize {
        let Variant { weight_blocks, weight_tile_h, .. } = self.variant;
        Self::n_tiles(call, weight_tile_h).min(self.n_multiprocessors * weight_blocks)
    }

    pub(super) fn workspace_bytes(&self, call: &ConvCall) -> usize {
        match call.pass {
            ConvPass::BackwardWeight => self.n_partials(call) * self.variant.weight_len() * size_of::<f32>(),
            _ => 0,
        }
    }

    /// What computes a call, in this order.
    pub(super) fn launches(&self, call: &ConvCall, pointers: &ConvPointers) -> Vec<Launch> {
        assert!(self.supports(call), "{call} by {self:?}");
        let ConvPointers { a, b, bias, out, workspace, .. } = *pointers;
        let [shared, weight_shared] = self.variant.shared_bytes();
        let sizes = |args: Args| args.with(call.n as i32).with(call.h as i32).with(call.w as i32);
        let linear = |function, n_blocks, shared: usize, args| Launch {
            shared_bytes: shared as u32,
            ..Launch::linear(function, n_blocks, THREADS, args)
        };
        let forward = |bias: u64, silu: bool| {
            let args = sizes(Args::new().with(a).with(b).with(bias).with(out)).with(i32::from(silu));
            let n_blocks = Self::n_tiles(call, TILE_H).min(self.n_multiprocessors * self.variant.blocks);
            vec![linear(self.forward, n_blocks, shared, args)]
        };
        match call.pass {
            ConvPass::Forward => forward(0, false),
            ConvPass::ForwardBias { act, .. } => forward(bias, act == Act::Silu),
            ConvPass::BackwardInput => unreachable!("not supported"),
            ConvPass::BackwardWeight => {
                let n_partials = self.n_partials(call);
                let args = sizes(Args::new().with(a).with(b).with(workspace));
                vec![
                    linear(self.backward_weight, n_partials, weight_shared, args),
                    weight_sum(self.sum, workspace, out, n_partials, self.variant.weight_len()),
                ]
            }
        }
    }
}
