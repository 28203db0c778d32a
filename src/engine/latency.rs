//! Makes the longest chain of launches of an inference graph shorter, for a few small pictures.
//!
//! In:  a forward graph in deploy form with packed convolution inputs, and the layout of its parameters. Out: the same graph with
//! more nodes, of which fewer wait for each other, and a layout that also names ranges of parameters.
//!
//! With few pixels a GPU computes a convolution in less time than it takes to begin the next one, so the number of launches that
//! wait for each other decides, not the work. Two things make nodes wait without need:
//!
//! 1. A convolution whose value is split: one half is read by the next convolution, the other half only much later. It becomes
//!    two, each with its rows of the weights.
//! 2. A convolution whose value is needed packed (by the next convolution) and in a slice of a concatenation (much later). It
//!    writes the packed one, and a copy follows that nothing waits for but the concatenation's reader.
//!
//! What is off the chain runs beside it: see `lanes`. Never changes a value.

use super::graph::{Graph, Node, TensorId};
use super::op::{ConvSpec, Op};
use super::params::{ParamId, ParamSpec, Params};

/// Channels that convolutions take in multiples of, so that 16 bytes are never cut.
const CHANNEL_STEP: usize = 8;

/// Rearranges `graph`; `layout` gets a parameter for each range of rows that is read by itself.
pub fn shorten_chain(graph: &mut Graph, layout: &mut Params) {
    let nodes = std::mem::take(&mut graph.nodes);
    for node in nodes {
        for part in split_convolution(graph, layout, node) {
            push_with_copies(graph, part);
        }
    }
}

/// A convolution whose value is read in two halves, as two; any other node as it is.
fn split_convolution(graph: &mut Graph, layout: &mut Params, node: Node) -> Vec<Node> {
    let Op::Conv { spec, weight, bias: Some(bias), act } = node.op else { return vec![node] };
    let packed_parts: Vec<usize> = (0..node.outputs.len())
        .filter(|&index| graph.tensor(node.outputs[index]).slice_of.is_none() && graph.shape(node.outputs[index]).c < spec.out_channels)
        .collect();
    let &[index] = packed_parts.as_slice() else { return vec![node] };
    let (first, count) = (node.firsts[index], graph.shape(node.outputs[index]).c);
    let rest = if first == 0 { count..spec.out_channels } else { 0..first };
    let is_half = rest.len() + count == spec.out_channels && count % CHANNEL_STEP == 0 && rest.len() % CHANNEL_STEP == 0;
    if !is_half || spec.groups != 1 || node.inputs.len() > 1 {
        return vec![node];
    }

    let halves = [first..first + count, rest];
    let mut made = Vec::with_capacity(2);
    for (half, is_packed) in halves.into_iter().zip([true, false]) {
        let (mut outputs, mut firsts) = (Vec::new(), Vec::new());
        if is_packed {
            outputs.push(node.outputs[index]);
            firsts.push(0);
        }
        for (place, (&y, &start)) in node.outputs.iter().zip(&node.firsts).enumerate() {
            let common = half.start.max(start)..half.end.min(start + graph.shape(y).c);
            if place == index || common.is_empty() {
                continue;
            }
            outputs.push(if common.len() == graph.shape(y).c { y } else { graph.channels(y, common.start - start, common.len()) });
            firsts.push(common.start - half.start);
        }
        if outputs.is_empty() {
            continue;
        }
        let op = Op::Conv {
            spec: ConvSpec { out_channels: half.len(), ..spec },
            weight: rows(layout, weight, half.start, half.len()),
            bias: Some(rows(layout, bias, half.start, half.len())),
            act,
        };
        let name = format!("{}[{}..{}]", node.name, half.start, half.end);
        made.push(Node { op, inputs: node.inputs.clone(), outputs, firsts, name });
    }
    made
}

/// Rows of a parameter, as one of its own that lies in the same place.
fn rows(layout: &mut Params, of: ParamId, first: usize, count: usize) -> ParamId {
    let spec = layout.spec(of);
    let row_len = spec.len() / spec.dims[0];
    let dims = std::iter::once(count).chain(spec.dims[1..].iter().copied()).collect();
    let spec = ParamSpec { name: format!("{}[{first}..{}]", spec.name, first + count), kind: spec.kind, dims };
    layout.add_alias(spec, layout.offsets[of.0 as usize] + first * row_len)
}

/// Appends a node. A convolution that writes its whole value packed and elsewhere is followed by a copy to these other places.
fn push_with_copies(graph: &mut Graph, mut node: Node) {
    let n_channels = graph.value_channels(&node);
    let is_whole = |&y: &TensorId| graph.tensor(y).slice_of.is_none() && graph.shape(y).c == n_channels;
    let packed = node.outputs.iter().position(is_whole);
    let (Op::Conv { .. }, Some(packed), true) = (&node.op, packed, node.outputs.len() > 1) else {
        graph.nodes.push(node);
        return;
    };
    let value = node.outputs[packed];
    // A node has its widest outputs first.
    let mut others: Vec<(TensorId, usize)> = std::mem::take(&mut node.outputs).into_iter().zip(std::mem::take(&mut node.firsts)).collect();
    others.remove(packed);
    let name = format!("{}.copy", node.name);
    graph.nodes.push(Node { outputs: vec![value], firsts: vec![0], ..node });
    for (y, first) in others {
        let count = graph.shape(y).c;
        let x = if count == n_channels { value } else { graph.channels(value, first, count) };
        graph.nodes.push(Node { op: Op::NearestSum, inputs: vec![x], outputs: vec![y], firsts: vec![0], name: name.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::{DType, Shape};
    use crate::engine::op::Act;
    use crate::engine::packed::pack_convolution_inputs;
    use crate::engine::params::ParamKind;

    fn add_conv(graph: &mut Graph, params: &mut Params, x: TensorId, out_channels: usize) -> TensorId {
        let in_channels = graph.shape(x).c;
        let spec = ConvSpec { kernel: 1, stride: 1, pad: 0, groups: 1, in_channels, out_channels };
        let name = format!("conv{}", params.specs.len());
        let dims = vec![out_channels, 1, 1, in_channels];
        let weight = params.add(ParamSpec { name: format!("{name}.weight"), kind: ParamKind::ConvWeight, dims });
        let bias = params.add(ParamSpec { name: format!("{name}.bias"), kind: ParamKind::ConvBias, dims: vec![out_channels] });
        graph.conv(&name, x, spec, weight, Some(bias), Act::Silu, None)
    }

    #[test]
    fn a_split_value_comes_from_two_convolutions_with_their_rows() {
        let (mut graph, mut params) = (Graph::default(), Params::default());
        let x = graph.input("x", Shape::new(1, 4, 4, 8), DType::Compute);
        let y = add_conv(&mut graph, &mut params, x, 24);
        let half = graph.channels(y, 8, 16);
        let z = add_conv(&mut graph, &mut params, half, 8);
        let both = graph.concat("both", &[y, z]);
        add_conv(&mut graph, &mut params, both, 8);
        pack_convolution_inputs(&mut graph);
        let layout = params.clone();
        shorten_chain(&mut graph, &mut params);

        let convs: Vec<&Node> = graph.nodes.iter().filter(|node| matches!(node.op, Op::Conv { .. })).collect();
        let names: Vec<&str> = convs.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["conv0[8..24]", "conv0[0..8]", "conv2", "conv4"]);
        let Op::Conv { weight, bias, .. } = convs[0].op else { unreachable!() };
        assert_eq!(params.offsets[weight.0 as usize], layout.offsets[0] + 8 * 8);
        assert_eq!(bias.map(|bias| params.offsets[bias.0 as usize]), Some(layout.offsets[1] + 8));
        assert_eq!(params.values, layout.values);
        // The packed half is copied to its place beside the other half, which is written there at once.
        let copy = graph.nodes.iter().find(|node| node.op == Op::NearestSum).map(|node| (node.inputs[0], graph.root(node.outputs[0]).1));
        assert_eq!(copy, Some((convs[0].outputs[0], 8)));
        assert_eq!((graph.root(convs[1].outputs[0]).1, graph.shape(convs[1].outputs[0]).c), (0, 8));
    }

    #[test]
    fn what_is_not_split_stays_as_it_is() {
        let (mut graph, mut params) = (Graph::default(), Params::default());
        let x = graph.input("x", Shape::new(1, 4, 4, 8), DType::Compute);
        let y = add_conv(&mut graph, &mut params, x, 12);
        // A third of 12 channels is no multiple of 8.
        let part = graph.channels(y, 0, 4);
        let z = add_conv(&mut graph, &mut params, part, 8);
        let both = graph.concat("both", &[y, z]);
        add_conv(&mut graph, &mut params, both, 8);
        pack_convolution_inputs(&mut graph);
        let before = graph.clone();
        shorten_chain(&mut graph, &mut params);
        assert_eq!(graph, before);
    }
}
