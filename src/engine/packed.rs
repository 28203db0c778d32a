//! Gives every convolution a packed input, for executors whose convolutions would copy anything else.
//!
//! In:  a forward graph. Out: the same graph, where the producer of a slice that a convolution reads writes one more copy of it.
//!
//! That costs one write where a copy would cost a read and a write. Outputs of convolutions are packed already in a graph in
//! train form; in deploy form the executor sees to it. Never adds a node. Run it before the backward nodes are appended.

use std::collections::HashMap;

use super::graph::{DType, Graph, TensorId};
use super::op::Op;

/// Replaces the inputs of convolutions that are slices by packed copies.
///
/// # Panics
/// If a convolution reads channels that no single node writes.
pub fn pack_convolution_inputs(graph: &mut Graph) {
    let mut copies: HashMap<(TensorId, usize, usize), TensorId> = HashMap::new();
    for index in 0..graph.nodes.len() {
        if !matches!(graph.nodes[index].op, Op::Conv { .. }) {
            continue;
        }
        let x = graph.nodes[index].inputs[0];
        let (root, channel) = graph.root(x);
        let shape = graph.shape(x);
        if root == x {
            continue;
        }
        let key = (root, channel, shape.c);
        let copy = if let Some(&copy) = copies.get(&key) {
            copy
        } else {
            let name = format!("{} packed", graph.tensor(x).name);
            let copy = graph.add_tensor(name, shape, DType::Compute);
            add_output(graph, index, key, copy);
            copies.insert(key, copy);
            copy
        };
        graph.nodes[index].inputs[0] = copy;
    }
}

/// Makes the node before `reader` that writes these channels of a buffer write `copy` too.
fn add_output(graph: &mut Graph, reader: usize, (root, channel, count): (TensorId, usize, usize), copy: TensorId) {
    for index in 0..reader {
        for output in 0..graph.nodes[index].outputs.len() {
            let y = graph.nodes[index].outputs[output];
            let (owner, start) = graph.root(y);
            let end = start + graph.shape(y).c;
            if owner != root || channel < start || channel + count > end {
                continue;
            }
            let value_channels = graph.shape(graph.nodes[index].outputs[0]).c;
            let first = graph.nodes[index].firsts[output] + channel - start;
            let is_whole = |id: TensorId| graph.shape(id).c == value_channels;
            // Parts of the value come after its whole copies.
            let n_whole = graph.nodes[index].outputs.iter().filter(|&&id| is_whole(id)).count();
            let place = if count == value_channels { n_whole } else { graph.nodes[index].outputs.len() };
            graph.nodes[index].outputs.insert(place, copy);
            graph.nodes[index].firsts.insert(place, first);
            return;
        }
    }
    panic!("{} reads channels that no single node writes", graph.nodes[reader].name);
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
