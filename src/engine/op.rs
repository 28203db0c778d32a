//! Every kind of computation that a graph can hold, as one flat enum.
//!
//! Parameters are named inside the op (`ParamId`), activations are the node's inputs and outputs. Where an op lists
//! several outputs "same value", it writes one result, or a range of its channels, to several places: that is how concatenation
//! costs nothing.
//! Gradients of parameters always **add** to the gradient arena; gradients of activations overwrite or add as `accumulate` says.

use super::params::ParamId;

/// Activation applied by the op that produces a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    None,
    Silu,
}

/// The geometry of a 2-D convolution; padding is the same on all sides, dilation is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvSpec {
    pub kernel: usize,
    pub stride: usize,
    pub pad: usize,
    pub groups: usize,
    pub in_channels: usize,
    pub out_channels: usize,
}

impl ConvSpec {
    /// Height or width of the output for one of the input.
    pub fn out_side(&self, side: usize) -> usize {
        (side + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Multiply-accumulates for one output pixel.
    pub fn macs_per_pixel(&self) -> usize {
        self.kernel * self.kernel * self.in_channels / self.groups * self.out_channels
    }
}

/// The four vectors of one batch norm; each has one value a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BnParams {
    pub gamma: ParamId,
    pub beta: ParamId,
    pub running_mean: ParamId,
    pub running_var: ParamId,
}

/// Where a batch norm takes its statistics from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BnMode {
    /// From the batch; the running statistics are moved towards them.
    Batch,
    /// From the running statistics.
    Running,
}

/// `eps` of every batch norm in YOLOv9.
pub const BN_EPS: f32 = 1e-3;
/// Share of the batch in the running statistics: new = (1 - momentum) * old + momentum * batch.
pub const BN_MOMENTUM: f32 = 0.03;

/// Heads that a loss may have.
pub const MAX_LOSS_HEADS: usize = 2;
/// Numbers that a loss gives: box, cls, dfl, the loss to differentiate, then box, cls, dfl of each head.
pub const LOSS_ITEMS: usize = 4 + 3 * MAX_LOSS_HEADS;

/// The constants of the detection loss; `LossSpec::published` holds the published values.
#[derive(Clone, Debug, PartialEq)]
pub struct LossSpec {
    pub n_classes: usize,
    /// Bins a side of the box distribution.
    pub reg_max: usize,
    /// Input pixels per cell of each level.
    pub strides: Vec<usize>,
    /// Weight of each head (branch pair) in the order of the inputs: auxiliary 0.25, main 1.
    pub head_weights: Vec<f32>,
    pub box_gain: f32,
    pub cls_gain: f32,
    pub dfl_gain: f32,
    pub top_k: usize,
    pub alpha: f32,
    pub beta: f32,
    /// Added to the largest metric of a box before it divides.
    pub score_eps: f32,
    /// Positive weight of the class loss.
    pub cls_pw: f32,
    /// Of a positive's target score, a half of this share is taken from its class, and as much is given to each other class.
    pub label_smoothing: f32,
}

impl LossSpec {
    /// Shares of a positive's score: for its class, and for each other one.
    pub fn class_shares(&self) -> [f32; 2] {
        [1.0 - self.label_smoothing / 2.0, self.label_smoothing / 2.0]
    }
}

impl LossSpec {
    /// The published constants. `dual`: the loss of an auxiliary and a main head, else of one head.
    pub fn published(n_classes: usize, dual: bool) -> Self {
        Self {
            n_classes,
            reg_max: 16,
            strides: vec![8, 16, 32],
            head_weights: if dual { vec![0.25, 1.0] } else { vec![1.0] },
            box_gain: 7.5,
            cls_gain: 0.5,
            dfl_gain: 1.5,
            top_k: 10,
            alpha: 0.5,
            beta: 6.0,
            score_eps: 1e-9,
            cls_pw: 1.0,
            label_smoothing: 0.0,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Filled by the caller before a step.
    Input,
    /// `[x]` or `[x, residual]` -> `[y…]` same value. `y = act(conv(x) + bias) + residual`. Weights are OHWI.
    Conv { spec: ConvSpec, weight: ParamId, bias: Option<ParamId>, act: Act },
    /// `[y]` -> `[stats]` of shape (1, 1, 2, C): row 0 mean, row 1 1/sqrt(var + eps).
    BnStats { bn: BnParams, mode: BnMode },
    /// `[y1, stats1, (y2, stats2), (residual)]` -> `[out…]` same value.
    /// `out = act(sum of bn_i(y_i)) + residual`.
    BnAct { bns: Vec<BnParams>, act: Act, residual: bool },
    /// Mean of 2x2, stride 1, no padding: (H, W) -> (H-1, W-1). `[x]` -> `[y…]` same value.
    AvgPool2,
    /// Padding counts as minus infinity. `[x]` -> `[y…]` same value.
    MaxPool { kernel: usize, stride: usize, pad: usize },
    /// Nearest, factor 2. `[x]` -> `[y…]` same value.
    Upsample2,
    /// Sum of the last input and all others enlarged to its size by whole factors. `[small…, x]` -> `[y…]` same value.
    NearestSum,
    /// Distributions and class logits of the levels -> boxes and scores.
    /// `[reg_0, cls_0, reg_1, cls_1, …]` -> `[out]` of shape (B, 1, N, 4 + nc): cx, cy, w, h in input pixels, then scores.
    Decode { strides: Vec<usize>, reg_max: usize },
    /// `[truth, (reg, cls) for each level, for each head]` -> `[items, (d_reg, d_cls) in the same order]`.
    /// `truth` is (B, 1, G, 5): class, x1, y1, x2, y2 in input pixels; a row that pads has class -1.
    /// `items` is (1, 1, 1, [`LOSS_ITEMS`]): box, cls, dfl with gains and head weights, the loss to differentiate, B * their sum, then
    /// box, cls, dfl of each head in order; 0 for a head that is not there.
    DetectionLoss(LossSpec),

    /// `[]` -> `[x]` = 0.
    Zero,
    /// `[dy]` -> `[dx]`
    ConvBackwardInput { spec: ConvSpec, weight: ParamId, accumulate: bool },
    /// `[x, dy]` -> `[]`; adds to the gradients of weight and bias.
    ConvBackwardWeight { spec: ConvSpec, weight: ParamId, bias: Option<ParamId> },
    /// `[d_out…, y1, stats1, (y2, stats2)]` -> `[sums]` of shape (1, 1, 2 * branches, C): for each branch the sums of g and
    /// of g * xhat over the batch, g being the gradient before the activation. Adds them to the gradients of beta and gamma.
    ///
    /// Here and below, `grads` has the first channel of each `d_out`: a gradient comes in pieces whose sum is meant, and a piece
    /// may cover only some channels.
    BnActBackwardReduce { bns: Vec<BnParams>, act: Act, grads: Vec<usize> },
    /// `[d_out…, y1, stats1, (y2, stats2), sums]` -> `[d_y1, (d_y2), (d_residual)]`. `accumulate_residual` is for the last.
    BnActBackward { bns: Vec<BnParams>, act: Act, grads: Vec<usize>, residual: bool, accumulate_residual: bool },
    /// `[d_y…]` -> `[d_x]`
    AvgPool2Backward { grads: Vec<usize>, accumulate: bool },
    /// `[x, d_y…]` -> `[d_x]`; the gradient goes to the first maximum of each window.
    MaxPoolBackward { kernel: usize, stride: usize, pad: usize, grads: Vec<usize>, accumulate: bool },
    /// `[d_y…]` -> `[d_x]`
    Upsample2Backward { grads: Vec<usize>, accumulate: bool },
    /// `[d_y…]` -> `[d_x]`, sums over blocks of `factor` x `factor` (1: a plain sum).
    NearestSumBackward { factor: usize, grads: Vec<usize>, accumulate: bool },
}

impl Op {
    /// What a profile calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Conv { .. } => "conv",
            Self::BnStats { .. } => "bn_stats",
            Self::BnAct { .. } => "bn_act",
            Self::AvgPool2 => "avg_pool2",
            Self::MaxPool { .. } => "max_pool",
            Self::Upsample2 => "upsample2",
            Self::NearestSum => "nearest_sum",
            Self::Decode { .. } => "decode",
            Self::DetectionLoss(_) => "detection_loss",
            Self::Zero => "zero",
            Self::ConvBackwardInput { .. } => "conv_backward_input",
            Self::ConvBackwardWeight { .. } => "conv_backward_weight",
            Self::BnActBackwardReduce { .. } => "bn_act_backward_reduce",
            Self::BnActBackward { .. } => "bn_act_backward",
            Self::AvgPool2Backward { .. } => "avg_pool2_backward",
            Self::MaxPoolBackward { .. } => "max_pool_backward",
            Self::Upsample2Backward { .. } => "upsample2_backward",
            Self::NearestSumBackward { .. } => "nearest_sum_backward",
        }
    }
}
