//! The detection loss of one or two heads with its gradients: assignment, class loss, box loss, distribution loss.

use super::view::{View, ViewMut};
use crate::engine::op::LossSpec;

/// Computes the loss of all heads and the gradient of `B * (box + cls + dfl)` for every input.
///
/// `truth` is (B, 1, G, 5): class (-1: padding), x1, y1, x2, y2 in input pixels. `levels` are (reg, cls) of every level of
/// every head in order, `grads` the same for the gradients (overwritten). Returns box, cls, dfl (gains and head
/// weights applied), and the loss that is differentiated.
pub fn detection_loss(spec: &LossSpec, truth: View, levels: &[(View, View)], grads: &mut [(ViewMut, ViewMut)]) -> [f32; 4] {
    let _ = (spec, truth, levels, grads);
    todo!("loss")
}
