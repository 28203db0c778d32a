//! The optimizers' rules: what turns gradients into steps, on any device.

/// What turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nesterov SGD; weight decay adds to the gradient.
    Sgd,
    /// Weight decay adds to the gradient.
    Adam,
    /// Weight decay shrinks the weights by itself. `amsgrad` divides by the largest mean square so far instead of the present one.
    AdamW { amsgrad: bool },
    /// Steps of one size in the direction of the sign; weight decay as in `AdamW`. arXiv:2302.06675.
    Lion,
}

impl Rule {
    /// Arenas of the size of the parameters that it keeps.
    pub fn n_remembered(self) -> usize {
        match self {
            Self::Sgd | Self::Lion => 1,
            Self::Adam | Self::AdamW { amsgrad: false } => 2,
            Self::AdamW { amsgrad: true } => 3,
        }
    }

    /// The share that its second mean keeps. The first one's is the momentum.
    pub fn beta2(self) -> f32 {
        match self {
            Self::Lion => 0.99,
            _ => 0.999,
        }
    }

    /// Whether its momentum is warmed up: only that of SGD, as in the published trainer.
    pub fn warms_momentum_up(self) -> bool {
        self == Self::Sgd
    }
}
