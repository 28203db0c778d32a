//! Training steps on a device: forward, loss, backward, and where one is due an update with its moving average.
//!
//! In:  a network, then batches in order, with the settings of an update or none.
//! Out: losses and norms of the steps; the averaged network.
//!
//! On the CPU a step is over when `step` returns. On a GPU it goes on: what a step gave is told when the next one was
//! submitted, so that the GPU never waits for the host; `flush` waits for what is still on its way.
//!
//! A gradient that is not finite changes nothing. Never decides a learning rate, and never whether a run goes on.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(test)]
mod tests;

#[cfg(feature = "cuda")]
use std::sync::Arc;

use self::cpu::OnCpu;
use super::config::Hyp;
use super::loader::Batch;
use super::schedule::StepSettings;
use super::state::DeviceState;
use super::train_set::TrainSet;
use crate::engine::BnMode;
use crate::engine::Device;
use crate::engine::LOSS_ITEMS;
use crate::engine::LossSpec;
use crate::engine::Plan;
use crate::engine::TensorId;
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
use crate::engine::gradients::{GradientStyle, append_gradients_of};
use crate::engine::packed::pack_convolution_inputs;
use crate::engine::recompute::{is_cheap, recompute};
use crate::yolo::Network;

/// Largest norm of the gradient.
pub const MAX_GRAD_NORM: f32 = 10.0;

/// What the steps of a run have in common.
#[derive(Clone, Debug)]
pub struct StepSpec {
    /// Side of the square input.
    pub side: usize,
    /// Rows of ground truth an image.
    pub truth_rows: usize,
    pub hyp: Hyp,
    /// As the schedule scales it.
    pub weight_decay: f64,
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    pub n_images: usize,
    /// Of the square input.
    pub side: usize,
}

impl BatchShape {
    /// What a step of this shape has in common with those of `spec`.
    fn spec(self, spec: &StepSpec) -> StepSpec {
        StepSpec { side: self.side, ..spec.clone() }
    }
}

/// A training step planned for one batch shape.
pub struct PlannedStep {
    pub n_images: usize,
    pub plan: Plan,
    /// (B, side, side, 3).
    pub input: TensorId,
    pub truth: TensorId,
    pub items: TensorId,
}

impl PlannedStep {
    /// For the CPU.
    pub fn new(network: &Network, spec: &StepSpec, n_images: usize) -> Self {
        Self::make(network, spec, n_images, None)
    }

    /// For a GPU that computes in `precision`. The network had better be `joined`.
    pub fn for_gpu(network: &Network, spec: &StepSpec, n_images: usize, precision: Precision) -> Self {
        Self::make(network, spec, n_images, Some(precision))
    }

    fn make(network: &Network, spec: &StepSpec, n_images: usize, gpu: Option<Precision>) -> Self {
        let hyp = &spec.hyp;
        let mut graph = network.graph(n_images, spec.side, spec.side, BnMode::Batch);
        let loss_spec = LossSpec {
            box_gain: hyp.box_gain as f32,
            cls_gain: hyp.cls as f32,
            dfl_gain: hyp.dfl as f32,
            cls_pw: hyp.cls_pw as f32,
            label_smoothing: hyp.label_smoothing as f32,
            ..LossSpec::published(network.n_classes, network.model.dual)
        };
        let loss = graph.append_loss(spec.truth_rows, loss_spec);
        let learns = |id| network.params.is_trained(id);
        let plan = if let Some(precision) = gpu {
            pack_convolution_inputs(&mut graph.graph);
            let n_forward = graph.graph.nodes.len();
            append_gradients_of(&mut graph.graph, GradientStyle::Pieces, &learns);
            recompute(&mut graph.graph, n_forward, is_cheap);
            // The ground truth is kept, so that a step can be repeated on the same batch.
            Plan::with_element_bytes(graph.graph, &[loss.truth, loss.items], precision.bytes())
        } else {
            append_gradients_of(&mut graph.graph, GradientStyle::Added, &learns);
            Plan::new(graph.graph, &[loss.items])
        };
        Self { n_images, plan, input: graph.input, truth: loss.truth, items: loss.items }
    }
}

/// What a finished step gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Counted from 0 since the run began.
    pub step: usize,
    /// As `Op::DetectionLoss` says.
    pub items: [f32; LOSS_ITEMS],
    /// Of the gradient at the last update, before clipping.
    pub grad_norm: f32,
    /// Norm of the last update over the norm of the weights that it changed.
    pub update_ratio: f32,
    /// The update of this step was left out, because the gradient is not finite.
    pub skipped: bool,
}

/// Trains a network step by step on a device.
pub struct Stepper {
    spec: StepSpec,
    /// Steps begun so far.
    n_steps: usize,
    on: On,
}

/// The averaged network as it was after some step.
pub struct Average(AverageOn);

enum AverageOn {
    Host(Network),
    #[cfg(feature = "cuda")]
    Gpu(Box<gpu::AverageLater>),
}

impl Average {
    /// Waits for it where it is still on its way.
    pub fn network(self) -> Result<Network, CudaError> {
        match self.0 {
            AverageOn::Host(network) => Ok(network),
            #[cfg(feature = "cuda")]
            AverageOn::Gpu(later) => later.network(),
        }
    }
}

enum On {
    Cpu(Box<OnCpu>),
    #[cfg(feature = "cuda")]
    Cuda(Box<gpu::OnGpu>),
}

impl Stepper {
    /// Brings a network to a device and plans the steps of every batch shape. `check_in(done, total)` hears of each
    /// convolution that a GPU planned.
    ///
    /// # Errors
    /// A GPU that cannot be opened or has no room. Never for the CPU.
    pub fn new(
        network: Network,
        spec: StepSpec,
        shapes: &[BatchShape],
        device: Device,
        check_in: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let on = match device {
            Device::Cpu => On::Cpu(Box::new(OnCpu::new(network, &spec, shapes))),
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => {
                let runtime = crate::engine::cuda::runtime::Runtime::open_default(ordinal)?;
                return Self::on_gpu(network, spec, shapes, &runtime, check_in);
            }
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) => {
                let _ = check_in;
                return Err(crate::engine::cuda::CudaUnavailable::NotBuilt.into());
            }
        };
        Ok(Self { spec, n_steps: 0, on })
    }

    /// As [`new`](Self::new), on a GPU that was opened for a chosen precision.
    #[cfg(feature = "cuda")]
    pub fn on_gpu(
        network: Network,
        spec: StepSpec,
        shapes: &[BatchShape],
        runtime: &Arc<crate::engine::cuda::runtime::Runtime>,
        check_in: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let on = On::Cuda(Box::new(gpu::OnGpu::new(network, &spec, shapes, runtime, check_in)?));
        Ok(Self { spec, n_steps: 0, on })
    }

    /// Brings the pictures of a train set to a GPU, so that samples are made there from compositions. False where it cannot be: on the
    /// CPU, where pictures are not all in memory, or where less than `leave` bytes would be left on the GPU.
    pub fn take_pictures(&mut self, set: &TrainSet, leave: usize) -> Result<bool, CudaError> {
        match &mut self.on {
            On::Cpu(_) => {
                let _ = (set, leave);
                Ok(false)
            }
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.take_pictures(set, leave),
        }
    }

    /// Computes a batch, which must have one of the planned shapes, and ends with an update where there are settings for one;
    /// else gradients are kept for the next. Returns what was finished meanwhile.
    pub fn step(&mut self, batch: &Batch, update: Option<&StepSettings>) -> Result<Option<StepOutcome>, CudaError> {
        let step = self.n_steps;
        self.n_steps += 1;
        match &mut self.on {
            On::Cpu(on) => Ok(Some(on.step(&self.spec, step, batch, update))),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.step(&self.spec, step, batch, update),
        }
    }

    /// Waits for the step that is still on its way, if there is one.
    pub fn flush(&mut self) -> Result<Option<StepOutcome>, CudaError> {
        match &mut self.on {
            On::Cpu(_) => Ok(None),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.flush(),
        }
    }

    /// Whether the device has nothing to do until the next step. Never waits.
    pub fn is_idle(&self) -> bool {
        match &self.on {
            On::Cpu(_) => true,
            // What is wrong with the device is told by the next step.
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.is_idle().unwrap_or(true),
        }
    }

    /// The network with averaged parameters: what is validated and kept.
    pub fn average(&mut self) -> Result<&Network, CudaError> {
        match &mut self.on {
            On::Cpu(on) => Ok(&on.average),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.average(),
        }
    }

    /// As [`average`](Self::average) is now, for another thread, while steps go on. On a GPU there is room for one at a time.
    pub fn average_later(&mut self) -> Result<Average, CudaError> {
        Ok(Average(match &mut self.on {
            On::Cpu(on) => AverageOn::Host(on.average.clone()),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => AverageOn::Gpu(Box::new(on.average_later()?)),
        }))
    }

    /// All that a step reads and changes. No step may be on its way.
    pub fn state(&mut self) -> Result<DeviceState, CudaError> {
        match &mut self.on {
            On::Cpu(on) => Ok(on.state()),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.state(),
        }
    }

    /// Goes on from the state after `n_steps` steps: of the same network and optimizer, on whatever device.
    ///
    /// # Panics
    /// If it is of another network or optimizer.
    pub fn restore(&mut self, state: &DeviceState, n_steps: usize) -> Result<(), CudaError> {
        self.n_steps = n_steps;
        match &mut self.on {
            On::Cpu(on) => {
                on.restore(state);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.restore(state),
        }
    }

    /// Whether an update that is left out is nothing to worry about: the loss was scaled too high for fp16, and the scale has come
    /// down.
    pub fn scales_loss(&self) -> bool {
        match &self.on {
            On::Cpu(_) => false,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.scales_loss(),
        }
    }

    /// How a GPU computes.
    pub fn precision(&self) -> Option<Precision> {
        match &self.on {
            On::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => Some(on.precision),
        }
    }

    /// Memory of the process that steps will take and that is not in use yet: arenas are reserved, but untouched before the
    /// first step. With what the optimizer remembers, and the file image while weights are written.
    pub fn planned_bytes(&self) -> u64 {
        match &self.on {
            On::Cpu(on) => on.planned_bytes(),
            // Of the host's copies, the averages that are brought back, those that are written and the file image are new.
            #[cfg(feature = "cuda")]
            On::Cuda(on) => 3 * on.parameter_bytes() as u64,
        }
    }

    /// Memory that was taken on a GPU.
    pub fn device_bytes(&self) -> Option<usize> {
        match &self.on {
            On::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => Some(on.device_bytes()),
        }
    }

    /// Why the GPU's work is given to it piece by piece, if it is.
    pub fn fallback(&self) -> Option<String> {
        match &self.on {
            On::Cpu(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.fallback(),
        }
    }
}
