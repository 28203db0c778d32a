//! Computes values again in the backward pass instead of keeping them from the forward pass: less memory for a little time.
//!
//! In:  a graph with its backward nodes, and which outputs of batch norms are worth it. Out: the same graph, where a copy of the
//! batch norm runs before the first backward node that reads the value, and writes a new tensor.
//!
//! The convolution output and its statistics are kept for the backward of the batch norm anyway, so nothing else is needed.
//! The copy computes the same bits. Outputs with a residual are never computed again: their residual may be gone.

use std::collections::HashMap;

use super::graph::{Graph, Node, TensorId};
use super::op::Op;

/// Inserts copies of batch norms for their packed outputs that `is_worth_it` names, where only convolutions' weight gradients
/// read these in the backward pass.
///
/// `n_forward` is the number of nodes before the first backward node.
pub fn recompute(graph: &mut Graph, n_forward: usize, is_worth_it: impl Fn(&Graph, &Node, TensorId) -> bool) {
    // By output: which channels of which node's value it is.
    let mut sources: HashMap<TensorId, (usize, usize)> = HashMap::new();
    for (index, node) in graph.nodes[..n_forward].iter().enumerate() {
        if !matches!(node.op, Op::BnAct { residual: false, .. }) {
            continue;
        }
        for (&y, &first) in node.outputs.iter().zip(&node.firsts) {
            if graph.tensor(y).slice_of.is_none() && is_worth_it(graph, node, y) {
                sources.insert(y, (index, first));
            }
        }
    }
    for node in &graph.nodes[n_forward..] {
        if !matches!(node.op, Op::ConvBackwardWeight { .. }) {
            for x in &node.inputs {
                sources.remove(&graph.root(*x).0);
            }
        }
    }

    let backward = graph.nodes.split_off(n_forward);
    let mut copies: HashMap<TensorId, TensorId> = HashMap::new();
    for mut node in backward {
        for place in 0..node.inputs.len() {
            let x = node.inputs[place];
            if let Some(&(index, first)) = sources.get(&x) {
                node.inputs[place] = *copies.entry(x).or_insert_with(|| append_copy(graph, index, x, first));
            }
        }
        graph.nodes.push(node);
    }
}

/// Appends a node that computes `x` again: channels from `first` on of the value of node `index`.
fn append_copy(graph: &mut Graph, index: usize, x: TensorId, first: usize) -> TensorId {
    let (name, shape, dtype) = (format!("{} again", graph.tensor(x).name), graph.shape(x), graph.tensor(x).dtype);
    let copy = graph.add_tensor(name, shape, dtype);
    let Node { op, inputs, name, .. } = graph.nodes[index].clone();
    graph.nodes.push(Node { op, inputs, outputs: vec![copy], firsts: vec![first], name: format!("{name}.again") });
    copy
}

/// What is worth it on a GPU by default: packed copies beside the first place of a value, and the largest maps (half of the
/// input's side), which are few, narrow and big. Saves a tenth of the activations for a hundredth of the time.
pub fn is_cheap(graph: &Graph, node: &Node, y: TensorId) -> bool {
    let is_copy = node.outputs[0] != y;
    let most_pixels = graph.tensors.iter().map(|tensor| tensor.shape.n_pixels()).max().unwrap_or(0);
    is_copy || 4 * graph.shape(y).n_pixels() >= most_pixels
}
