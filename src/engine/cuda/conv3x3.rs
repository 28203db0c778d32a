//! Our own 3x3 convolutions for few channels, which are timed against cuDNN's plans.
//!
//! In:  a call that a `Kernel` supports, and addresses. Out: launches.
//!
//! Only for bf16 and f16, from `sm_80` on.

use super::Precision;
use super::conv::{ConvCall, ConvPass, ConvPointers};
use super::gpu::{Args, Function, Launch};
use super::kernels::Kernels;
use crate::engine::op::Act;

/// Tiles in shared memory, rows of a tile, channels' bytes beside a pixel: as in kernels/conv3x3.cu.
const STAGES: usize = 3;
const TILE_H: usize = 8;
const PADDING: usize = 16;

/// A line `CONV3X3(…)` of kernels/conv3x3.cu.
#[derive(Clone, Copy, Debug)]
struct Variant {
    /// Of the kernels for forward, backward input, backward weight.
    names: [&'static str; 3],
    groups: usize,
    /// In a group, in and out.
    channels: usize,
    tile_w: usize,
    /// Threads and blocks a multiprocessor, of forward and backward input.
    threads: usize,
    blocks: usize,
    /// The same of backward weight.
    weight_threads: usize,
    weight_blocks: usize,
}

macro_rules! names {
    ($name:literal) => {
        [concat!("conv3x3_forward_", $name), concat!("conv3x3_backward_input_", $name), concat!("conv3x3_backward_weight_", $name)]
    };
}

const VARIANTS: [Variant; 6] = [
    Variant { names: names!("16"), groups: 1, channels: 16, tile_w: 16, threads: 128, blocks: 4, weight_threads: 256, weight_blocks: 2 },
    Variant { names: names!("32"), groups: 1, channels: 32, tile_w: 16, threads: 128, blocks: 2, weight_threads: 384, weight_blocks: 1 },
    Variant {
        names: names!("32_narrow"),
        groups: 1,
        channels: 32,
        tile_w: 8,
        threads: 128,
        blocks: 2,
        weight_threads: 384,
        weight_blocks: 1,
    },
    Variant { names: names!("48"), groups: 1, channels: 48, tile_w: 8, threads: 384, blocks: 1, weight_threads: 288, weight_blocks: 1 },
    Variant { names: names!("4x16"), groups: 4, channels: 16, tile_w: 16, threads: 128, blocks: 2, weight_threads: 256, weight_blocks: 1 },
    Variant {
        names: names!("4x16_narrow"),
        groups: 4,
        channels: 16,
        tile_w: 8,
        threads: 128,
        blocks: 2,
        weight_threads: 256,
        weight_blocks: 2,
    },
];

impl Variant {
    fn pixel_bytes(&self) -> usize {
        self.groups * self.channels * 2 + PADDING
    }

    /// Elements of the weights.
    fn weight_len(&self) -> usize {
        self.groups * self.channels * 9 * self.channels
    }

    /// Dynamic shared memory of forward and backward input, and of backward weight.
    fn shared_bytes(&self) -> [usize; 2] {
        let halo = (TILE_H + 2) * (self.tile_w + 2) * self.pixel_bytes();
        let tile = TILE_H * self.tile_w * self.pixel_bytes();
        [STAGES * halo, (STAGES * (halo + tile)).max(self.weight_len() * size_of::<f32>())]
    }
}

/// The loaded kernels of a variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    variant: Variant,
    functions: [Function; 3],
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
        let sum = kernels.get("conv3x3_weight_sum");
        let kernel = |&variant: &Variant| {
            let functions = variant.names.map(|name| kernels.get(name));
            let [shared, weight_shared] = variant.shared_bytes();
            // Refused where a multiprocessor has less.
            for (function, bytes) in functions.iter().zip([shared, shared, weight_shared]) {
                function.allow_shared_bytes(bytes).ok()?;
            }
            Some(Self { variant, functions, sum, n_multiprocessors: gpu.n_multiprocessors })
        };
        VARIANTS.iter().filter_map(kernel).collect()
    }

    /// By which a file remembers it.
    pub(super) fn name(&self) -> &'static str {
        self.variant.names[0]
    }

    pub(super) fn supports(&self, call: &ConvCall) -> bool {
        let Variant { groups, channels, .. } = self.variant;
        let spec = &call.spec;
        (spec.kernel, spec.stride, spec.pad, spec.groups) == (3, 1, 1, groups)
            && [spec.in_channels, spec.out_channels] == [groups * channels; 2]
            && i32::try_from(call.n * call.h * call.w).is_ok()
    }

    fn n_tiles(&self, call: &ConvCall) -> usize {
        call.n * call.h.div_ceil(TILE_H) * call.w.div_ceil(self.variant.tile_w)
    }

    /// Blocks of the weights' gradient, each with a partial result.
    fn n_partials(&self, call: &ConvCall) -> usize {
        self.n_tiles(call).min(self.n_multiprocessors * self.variant.weight_blocks)
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
        let Variant { threads, blocks, weight_threads, .. } = self.variant;
        let ConvPointers { a, b, bias, out, workspace, .. } = *pointers;
        let [shared, weight_shared] = self.variant.shared_bytes();
        let [forward, backward_input, backward_weight] = self.functions;
        let sizes = |args: Args| args.with(call.n as i32).with(call.h as i32).with(call.w as i32);
        let n_blocks = self.n_tiles(call).min(self.n_multiprocessors * blocks);
        let linear = |function, n_blocks, threads, shared: usize, args| Launch {
            shared_bytes: shared as u32,
            ..Launch::linear(function, n_blocks, threads, args)
        };
        let forward = |bias: u64, silu: bool| {
            let args = sizes(Args::new().with(a).with(b).with(bias).with(out)).with(i32::from(silu));
            vec![linear(forward, n_blocks, threads, shared, args)]
        };
        match call.pass {
            ConvPass::Forward => forward(0, false),
            ConvPass::ForwardBias { act, .. } => forward(bias, act == Act::Silu),
            ConvPass::BackwardInput => {
                vec![linear(backward_input, n_blocks, threads, shared, sizes(Args::new().with(a).with(b).with(out)))]
            }
            ConvPass::BackwardWeight => {
                let (n_partials, len) = (self.n_partials(call), self.variant.weight_len());
                let args = sizes(Args::new().with(a).with(b).with(workspace));
                vec![
                    linear(backward_weight, n_partials, weight_threads, weight_shared, args),
                    weight_sum(self.sum, workspace, out, n_partials, len),
                ]
            }
        }
    }
}

/// Adds partial gradients of `len` weights in a fixed order; `function` is `conv3x3_weight_sum`.
pub(super) fn weight_sum(function: Function, partials: u64, out: u64, n_partials: usize, len: usize) -> Launch {
    let args = Args::new().with(partials).with(out).with(n_partials as i32).with(len as i32);
    Launch { block: [32, 8, 1], ..Launch::linear(function, len.div_ceil(32), 32, args) }
}
