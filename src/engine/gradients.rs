//! The backward pass: more nodes of the same graph, in reverse order of the forward ones.

use super::graph::Graph;

/// Appends the backward nodes of everything that `DetectionLoss` depends on, back to the parameters.
///
/// Gradients of activations live in tensors with the same slices as the activations they belong to. The first writer of a
/// range of channels overwrites, later ones add (`accumulate`), and where a writer meets a range that is only partly
/// written, a `Zero` node fills the rest first. Gradients of parameters always add to the gradient arena.
pub fn append_gradients(graph: &mut Graph) {
    let _ = graph;
    todo!("engine")
}
