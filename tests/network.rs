//! The network against the reference implementation's numbers: names and shapes, forward passes, whole training steps;
//! and exported models against another runtime.
//!
//! The small cases lie in tests/golden and always run. The large ones (all sizes, all files) are read from the folder
//! `BOXWRIGHT_SHARED`/golden when that is set. Weights are made from a formula, so no file holds any.

#[path = "network/deterministic.rs"]
mod deterministic;
#[path = "network/forward.rs"]
mod forward;
#[path = "network/onnx.rs"]
mod onnx;
#[path = "network/train_step.rs"]
mod train_step;
