//! The least time that a plan can take on a device: what its nodes must compute and move.
//!
//! In:  a plan, and the rates of a device. Out: seconds.
//!
//! A node takes as long as its operations or its bytes, whichever is longer; every input is read once and every output written once.
//! Only convolutions count as operations. Fusing nodes would move less: this is the floor of the plan, not of the network.

use super::graph::{Graph, Node};
use super::op::{ConvSpec, Op};
use super::plan::Plan;

/// What a device does at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub bytes_per_sec: f64,
    pub flops_per_sec: f64,
}

/// The least seconds for a run of `plan`.
pub fn floor_secs(plan: &Plan, rates: Rates) -> f64 {
    let graph = &plan.graph;
    let of_node = |node: &Node| {
        let bytes = bytes(plan, node) as f64 / rates.bytes_per_sec;
        bytes.max(2.0 * macs(graph, node) as f64 / rates.flops_per_sec)
    };
    graph.nodes.iter().filter(|node| node.op != Op::Input).map(of_node).sum()
}

/// Multiply-accumulates of a run.
pub fn total_macs(graph: &Graph) -> usize {
    graph.nodes.iter().map(|node| macs(graph, node)).sum()
}

fn bytes(plan: &Plan, node: &Node) -> usize {
    let tensors: usize = node.inputs.iter().chain(&node.outputs).map(|&id| plan.graph.shape(id).len() * plan.element_bytes(id)).sum();
    // In the format of what they are applied to.
    let weights = convolution(node).map_or(0, |spec| spec.macs_per_pixel() * plan.element_bytes(node.inputs[0]));
    tensors + weights
}

fn convolution(node: &Node) -> Option<ConvSpec> {
    match node.op {
        Op::Conv { spec, .. } | Op::ConvBackwardInput { spec, .. } | Op::ConvBackwardWeight { spec, .. } => Some(spec),
        _ => None,
    }
}

/// Multiply-accumulates: as many backward as forward.
fn macs(graph: &Graph, node: &Node) -> usize {
    let Some(spec) = convolution(node) else { return 0 };
    let of_y = match node.op {
        Op::Conv { .. } => node.outputs[0],
        Op::ConvBackwardInput { .. } => node.inputs[0],
        _ => node.inputs[1],
    };
    graph.shape(of_y).n_pixels() * spec.macs_per_pixel()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::{DType, Shape};
    use crate::engine::op::Act;
    use crate::engine::params::ParamId;

    #[test]
    fn a_convolution_takes_as_long_as_its_operations_or_its_bytes() {
        let mut graph = Graph::default();
        let x = graph.input("x", Shape::new(1, 10, 10, 8), DType::Compute);
        let spec = ConvSpec { kernel: 1, stride: 1, pad: 0, groups: 1, in_channels: 8, out_channels: 16 };
        let y = graph.conv("y", x, spec, ParamId(0), None, Act::None, None);
        let plan = Plan::with_element_bytes(graph, &[y], 2);
        let bytes = 2.0 * (100.0 * 8.0 + 100.0 * 16.0 + 128.0);
        let slow_memory = Rates { bytes_per_sec: 1.0, flops_per_sec: 1e9 };
        assert!((floor_secs(&plan, slow_memory) - bytes).abs() < 1e-6);
        let slow_units = Rates { bytes_per_sec: 1e9, flops_per_sec: 1.0 };
        assert!((floor_secs(&plan, slow_units) - 2.0 * 100.0 * 128.0).abs() < 1e-6);
    }
}
