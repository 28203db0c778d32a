//! Our own kernels for convolutions, whatever file they come from.

use super::{ConvCall, ConvPointers};
use crate::engine::cuda::gpu::Launch;
use crate::engine::cuda::kernels::Kernels;
use crate::engine::cuda::{conv_stem, conv3x3};

/// One that can compute some calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    Conv3x3(conv3x3::Kernel),
    Stem(conv_stem::Kernel),
}

impl Kernel {
    /// All that this card can run.
    pub(super) fn all(kernels: &Kernels) -> Vec<Self> {
        let conv3x3 = conv3x3::Kernel::all(kernels).into_iter().map(Self::Conv3x3);
        conv3x3.chain(conv_stem::Kernel::all(kernels).into_iter().map(Self::Stem)).collect()
    }

    /// By which a file remembers it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Conv3x3(kernel) => kernel.name(),
            Self::Stem(kernel) => kernel.name(),
        }
    }

    pub(super) fn supports(&self, call: &ConvCall) -> bool {
        // None adds a residual.
        !call.has_residual()
            && match self {
                Self::Conv3x3(kernel) => kernel.supports(call),
                Self::Stem(kernel) => kernel.supports(call),
            }
    }

    pub(super) fn workspace_bytes(&self, call: &ConvCall) -> usize {
        match self {
            Self::Conv3x3(kernel) => kernel.workspace_bytes(call),
            Self::Stem(kernel) => kernel.workspace_bytes(call),
        }
    }

    /// What computes a call, in this order.
    pub(super) fn launches(&self, call: &ConvCall, pointers: &ConvPointers) -> Vec<Launch> {
        match self {
            Self::Conv3x3(kernel) => kernel.launches(call, pointers),
            Self::Stem(kernel) => kernel.launches(call, pointers),
        }
    }
}
