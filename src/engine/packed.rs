//! Gives every convolution a packed input, for executors whose convolutions would copy anything else.
//!
//! In:  a forward graph. Out: the same graph, where the producer of a slice that a convolution reads writes one more copy of it.
//!
//! That costs one write where a copy would cost a read and a write. Outputs of convolutions are packed already in a graph in
//! train form; in deploy form the executor sees to it. Places of values that nobody reads any more are dropped. Never adds a
//! node. Run it before the backward nodes are appended.

use std::collections::HashMap;
use std::ops::Range;

use super::graph::{DType, Graph, Node, TensorId};
use super::op::Op;

/// Replaces the inputs of convolutions that are slices by packed copies.
///
/// # Panics
/// If a convolution reads channels that no single node writes.
pub fn pack_convolution_inputs(graph: &mut Graph) {
    let mut copies: HashMap<(TensorId, usize, usize), TensorId> = HashMap::new();
    for index in 0..graph.nodes.len() {
        let x = match &graph.nodes[index] {
            Node { op: Op::Conv { .. }, inputs, .. } if graph.tensor(inputs[0]).slice_of.is_some() => inputs[0],
            _ => continue,
        };
        let (shape, name) = (graph.shape(x), format!("{} packed", graph.tensor(x).name));
        copies.entry(place(graph, x)).or_insert_with(|| {
            let copy = graph.add_tensor(name, shape, DType::Compute);
            graph.add_copy(x, copy);
            copy
        });
    }
    // Whoever else reads such a slice reads the copy, too: then the slice may not be needed at all.
    for index in 0..graph.nodes.len() {
        for input in 0..graph.nodes[index].inputs.len() {
            let x = graph.nodes[index].inputs[input];
            if let Some(&copy) = copies.get(&place(graph, x)) {
                graph.nodes[index].inputs[input] = copy;
            }
        }
    }
    drop_unread_outputs(graph);
}

/// The owner of a tensor's buffer, and which channels of it the tensor is.
fn place(graph: &Graph, x: TensorId) -> (TensorId, usize, usize) {
    let (root, channel) = graph.root(x);
    (root, channel, graph.shape(x).c)
}

/// Removes places of values that nobody reads, where another place is left.
fn drop_unread_outputs(graph: &mut Graph) {
    let mut read: HashMap<TensorId, Vec<Range<usize>>> = HashMap::new();
    for &x in graph.nodes.iter().flat_map(|node| &node.inputs) {
        let (root, channel, count) = place(graph, x);
        read.entry(root).or_default().push(channel..channel + count);
    }
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        if !matches!(node.op, Op::BnAct { .. } | Op::Conv { .. }) {
            continue;
        }
        let is_read = |&y: &TensorId| {
            let (root, channel, count) = place(graph, y);
            read.get(&root).is_some_and(|ranges| ranges.iter().any(|range| range.start < channel + count && channel < range.end))
        };
        let kept: Vec<bool> = node.outputs.iter().map(is_read).collect();
        if kept.contains(&true) {
            let node = &mut graph.nodes[index];
            let mut flags = kept.iter();
            node.outputs.retain(|_| *flags.next().expect("a flag an output"));
            let mut flags = kept.iter();
            node.firsts.retain(|_| *flags.next().expect("a flag an output"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::Shape;
    use crate::engine::op::{Act, ConvSpec};
    use crate::engine::params::ParamId;

    const SHAPE: Shape = Shape { n: 1, h: 4, w: 4, c: 8 };

    fn conv(graph: &mut Graph, x: TensorId) -> TensorId {
        let spec = ConvSpec { kernel: 1, stride: 1, pad: 0, groups: 1, in_channels: graph.shape(x).c, out_channels: 8 };
        graph.conv("conv", x, spec, ParamId(0), None, Act::None, None)
    }

    #[test]
    fn a_slice_that_convolutions_read_is_copied_once_by_its_producer() {
        let mut graph = Graph::default();
        let x = graph.input("x", SHAPE, DType::Compute);
        let up = graph.upsample2("up", x);
        let half = graph.channels(up, 4, 4);
        let (a, b) = (conv(&mut graph, half), conv(&mut graph, half));
        let whole = conv(&mut graph, up);
        pack_convolution_inputs(&mut graph);

        let producer = &graph.nodes[1];
        assert_eq!((producer.outputs.len(), producer.firsts.as_slice()), (2, [0, 4].as_slice()));
        let reader = |y: TensorId| graph.nodes.iter().find(|node| node.outputs[0] == y).map(|node| node.inputs[0]);
        assert_eq!(reader(a), Some(producer.outputs[1]));
        assert_eq!(reader(a), reader(b));
        assert_eq!(reader(whole), Some(up));
        assert_eq!(graph.tensor(producer.outputs[1]).slice_of, None);
    }

    #[test]
    fn whole_copies_come_before_parts() {
        let mut graph = Graph::default();
        let x = graph.input("x", SHAPE, DType::Compute);
        let up = graph.upsample2("up", x);
        let other = graph.upsample2("other", x);
        let half = graph.channels(up, 0, 4);
        graph.concat("both", &[up, other]);
        conv(&mut graph, half);
        conv(&mut graph, up);
        pack_convolution_inputs(&mut graph);
        let widths: Vec<usize> = graph.nodes[1].outputs.iter().map(|&id| graph.shape(id).c).collect();
        assert_eq!(widths, [8, 8, 4]);
    }
}
