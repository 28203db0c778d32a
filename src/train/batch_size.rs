//! How many pictures fit: the largest batch for a device, known before anything is allocated.
//!
//! In:  a network, what its steps have in common, the validation that follows them, free memory.
//! Out: predicted bytes of a batch; the largest batch that stays below what is free.
//!
//! A tenth of what is free is left alone: for the driver's own needs, which it does not tell, and for other programs.
//!
//! Never allocates what it predicts.

use super::error::TrainError;
use super::loader;
use super::memory;
use super::stepper::{PlannedStep, StepSpec};
use super::train_set::TrainSet;
use crate::engine::Device;
use crate::engine::Plan;
use crate::engine::cuda::INPUT_COPIES;
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
use crate::eval::Validator;
use crate::yolo::Network;
use crate::yolo::joined::joined;

/// Batches that `auto` takes at most: on a CPU more is no faster, on a GPU nobody needs more.
const MOST_ON_CPU: usize = 16;
const MOST_ON_GPU: usize = 1024;
/// Pictures of a validation batch at most.
const MAX_VAL_BATCH: usize = 32;
/// Workspace that a convolution on a GPU may take.
const CONV_WORKSPACE: usize = 256 << 20;
/// Partial sums, tables and other small things on a GPU.
const SMALL_THINGS: usize = 64 << 20;

/// Pictures of a validation batch beside training batches of `batch`.
pub fn validation_batch(batch: usize) -> usize {
    (2 * batch).min(MAX_VAL_BATCH)
}

/// What the prediction depends on.
pub struct Fit<'a> {
    pub network: &'a Network,
    pub spec: &'a StepSpec,
    pub set: &'a TrainSet,
    pub device: Device,
}

/// A GPU's memory, and how it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    precision: Precision,
    free: usize,
}

impl Fit<'_> {
    /// The batch that `auto` means. Leaves `validator` with the batch that goes with it.
    pub fn largest(&self, validator: &mut Validator) -> Result<usize, TrainError> {
        let n_images = self.set.images.len();
        let batch = match self.device {
            Device::Cpu => {
                let usable = usable(usize::try_from(memory::available_bytes()).unwrap_or(usize::MAX));
                largest(MOST_ON_CPU.min(n_images), |batch| self.bytes_on_cpu(batch) <= usable).max(1)
            }
            Device::Cuda(ordinal) => {
                let room = room(ordinal)?;
                let batch = self.largest_on_gpu(room, validator);
                if batch == 0 {
                    return Err(self.too_large(1, room, validator));
                }
                batch
            }
        };
        validator.set_batch(validation_batch(batch));
        Ok(batch)
    }

    /// Refuses a batch that a GPU has no room for. Leaves `validator` with the batch that goes with it.
    ///
    /// # Errors
    /// The batch is too large; the largest that fits is told.
    pub fn check(&self, batch: usize, validator: &mut Validator) -> Result<(), TrainError> {
        if let Device::Cuda(ordinal) = self.device {
            let room = room(ordinal)?;
            if !self.fits_on_gpu(batch, room, validator) {
                return Err(self.too_large(batch, room, validator));
            }
        }
        validator.set_batch(validation_batch(batch));
        Ok(())
    }

    fn too_large(&self, batch: usize, room: Room, validator: &mut Validator) -> TrainError {
        TrainError::BatchTooLarge {
            batch,
            needed: self.bytes_on_gpu(batch, room.precision, validator),
            free: room.free,
            largest: self.largest_on_gpu(room, validator),
            nominal: self.spec.hyp.nominal_batch,
        }
    }

    fn largest_on_gpu(&self, room: Room, validator: &mut Validator) -> usize {
        largest(MOST_ON_GPU.min(self.set.images.len()), |batch| self.fits_on_gpu(batch, room, validator))
    }

    fn fits_on_gpu(&self, batch: usize, room: Room, validator: &mut Validator) -> bool {
        self.bytes_on_gpu(batch, room.precision, validator) <= usable(room.free)
    }

    fn bytes_on_cpu(&self, batch: usize) -> usize {
        let planned = PlannedStep::new(self.network, self.spec, batch.min(self.set.images.len())).plan.memory(&self.network.params);
        // A plan counts one arena that the optimizer remembers.
        let remembered = planned.optimizer * self.spec.hyp.rule().n_remembered().saturating_sub(1);
        let batches = loader::planned_bytes(self.set, self.spec.truth_rows, batch, loader::default_workers(Device::Cpu));
        let scale = self.spec.side as f64 / f64::from(self.set.imgsz);
        planned.total() + remembered + (batches as f64 * scale * scale) as usize
    }

    /// Bytes on a GPU, of training and of the validation beside it; `usize::MAX` for a batch of which a tensor has more elements
    /// than kernels can count.
    fn bytes_on_gpu(&self, batch: usize, precision: Precision, validator: &mut Validator) -> usize {
        let batch = batch.min(self.set.images.len());
        let step = PlannedStep::for_gpu(&joined(self.network), self.spec, batch, precision);
        let Some(workspace) = workspace_bytes(&step.plan, precision) else { return usize::MAX };
        validator.set_batch(validation_batch(batch));
        let n_parameters = self.network.params.values.len();
        let remembered = self.spec.hyp.rule().n_remembered();
        // Values, averages twice, gradients and what the optimizer remembers; copies and gradients in compute type.
        let parameters = n_parameters * ((4 + remembered) * size_of::<f32>() + 2 * precision.bytes());
        let pixels = INPUT_COPIES * batch * self.spec.side * self.spec.side * 3;
        let validation = validator.device_bytes(self.network, precision) + 2 * CONV_WORKSPACE;
        step.plan.arena_bytes + workspace + parameters + pixels + SMALL_THINGS + validation
    }
}

/// What nodes need beside the arena: a convolution's own workspace, with a packed copy of its output; or the loss.
fn workspace_bytes(plan: &Plan, precision: Precision) -> Option<usize> {
    let most = plan.graph.tensors.iter().map(|tensor| tensor.shape.len()).max().unwrap_or(0);
    i32::try_from(most).ok()?;
    Some(CONV_WORKSPACE + most * precision.bytes())
}

/// Without the headroom.
fn usable(free: usize) -> usize {
    free / 10 * 9
}

/// The largest number up to `most` that fits, if all below it do; 0 where not even 1 does.
fn largest(most: usize, mut fits: impl FnMut(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, most + 1);
    let mut next = 1;
    while good + 1 < bad {
        if fits(next) {
            good = next;
        } else {
            bad = next;
        }
        // Doubled as long as nothing failed, then halved between the two.
        next = if bad > most { (2 * good).min(most) } else { good.midpoint(bad) };
    }
    good
}

#[cfg(feature = "cuda")]
fn room(ordinal: usize) -> Result<Room, CudaError> {
    let runtime = crate::engine::cuda::runtime::Runtime::open_default(ordinal)?;
    Ok(Room { precision: runtime.precision(), free: runtime.gpu.free_bytes()? })
}

#[cfg(not(feature = "cuda"))]
fn room(_: usize) -> Result<Room, CudaError> {
    Err(crate::engine::cuda::CudaUnavailable::NotBuilt.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_is_found_with_few_questions() {
        for most in [1, 2, 5, 16, 1000] {
            for border in 0..=most {
                let mut n_asked = 0;
                let found = largest(most, |number| {
                    n_asked += 1;
                    assert!((1..=most).contains(&number), "{number} of {most}");
                    number <= border
                });
                assert_eq!(found, border, "of {most}");
                assert!(n_asked <= 21, "{n_asked} questions for {border} of {most}");
            }
        }
    }

    #[test]
    fn a_tenth_stays_free() {
        assert_eq!(usable(1000), 900);
        assert_eq!((validation_batch(8), validation_batch(64)), (16, 32));
    }
}
