//! Joins the two 1x1 convolutions that begin each `RepNCSP` into one of twice the width: they read the same value.
//!
//! In:  a network in train or deploy form. Out: a network that computes the same with fewer and larger steps, for executors on
//! which small ones are slow; and the way back for its parameters.
//!
//! A joined parameter is the other two, one after the other: of a convolution's weights and of all that a batch norm has, each
//! channel is on its own. So optimizers and averages, which treat each number on its own, give the same as for two. Names of
//! joined parameters are never written to a file.

use super::network::Network;
use crate::engine::params::{ParamSpec, Params};

/// The joined convolution's name in its block, in place of `cv1` and `cv2`.
pub(super) const JOINED: &str = "cv1+cv2";

/// The joined name of a parameter of `cv1`, and the name of its partner of `cv2`; `None` if it is of no pair.
fn partner(params: &Params, name: &str) -> Option<(String, String)> {
    let (block, rest) = name.split_once(".cv1.")?;
    // Only a `RepNCSP` has bottlenecks, which begin with a `RepConv`: two convolutions in train form, one in deploy form.
    let has = |part: &str| params.find(&format!("{block}.m.0.cv1.{part}.weight")).is_some();
    (has("conv1.conv") || has("conv")).then_some(())?;
    // Both learn alike, parameter by parameter, or they stay two.
    let frozen = |conv: &str| {
        let prefix = format!("{block}.{conv}.");
        let of_conv = params.ids().filter(move |&id| params.spec(id).name.starts_with(&prefix));
        of_conv.map(|id| params.frozen[id.0 as usize]).collect::<Vec<_>>()
    };
    (frozen("cv1") == frozen("cv2")).then(|| (format!("{block}.{JOINED}.{rest}"), format!("{block}.cv2.{rest}")))
}

/// The same network with joined pairs.
#[must_use]
pub fn joined(network: &Network) -> Network {
    let from = &network.params;
    let mut params = Params::default();
    let mut taken = Vec::new();
    for id in from.ids() {
        let spec = from.spec(id);
        if let Some((name, other)) = partner(from, &spec.name) {
            let other_id = from.find(&other).expect("a pair has two");
            let mut dims = spec.dims.clone();
            dims[0] += from.spec(other_id).dims[0];
            let joined = params.add(ParamSpec { name, kind: spec.kind, dims });
            params.frozen[joined.0 as usize] = from.frozen[id.0 as usize];
            let (first, second) = params.get_mut(joined).split_at_mut(spec.len());
            first.copy_from_slice(from.get(id));
            second.copy_from_slice(from.get(other_id));
            taken.push(other);
        } else if !taken.contains(&spec.name) {
            let copy = params.add(spec.clone());
            params.frozen[copy.0 as usize] = from.frozen[id.0 as usize];
            params.get_mut(copy).copy_from_slice(from.get(id));
        }
    }
    Network { params, ..network.clone() }
}

/// Takes the values of a network that [`joined`] made of this one.
pub fn take_joined(network: &mut Network, values: &Params) {
    for id in network.params.ids().collect::<Vec<_>>() {
        let name = network.params.spec(id).name.clone();
        if let Some((joined, other)) = partner(&network.params, &name) {
            let other = network.params.find(&other).expect("a pair has two");
            let joined = values.get(values.find(&joined).expect("the pair was joined"));
            let (first, second) = joined.split_at(network.params.spec(id).len());
            network.params.get_mut(id).copy_from_slice(first);
            network.params.get_mut(other).copy_from_slice(second);
        } else if let Some(same) = values.find(&name) {
            network.params.get_mut(id).copy_from_slice(values.get(same));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::Executor;
    use crate::engine::gradients::{GradientStyle, append_gradients};
    use crate::engine::op::{BnMode, LossSpec};
    use crate::engine::packed::pack_convolution_inputs;
    use crate::engine::plan::Plan;
    use crate::engine::recompute::recompute;
    use crate::yolo::{Model, ModelSize};

    fn input(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7919) % 1009) as f32 / 1009.0).collect()
    }

    fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
        let size = a.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / size
    }

    #[test]
    fn joining_and_parting_gives_every_value_back() {
        for network in [Network::new(Model::dual(ModelSize::S), 3, 1), Network::new(Model::single(ModelSize::C), 3, 1).to_deploy()] {
            let joined = joined(&network);
            assert!(joined.params.specs.len() < network.params.specs.len());
            let mut back = network.clone();
            back.params.values.fill(0.0);
            take_joined(&mut back, &joined.params);
            assert_eq!(back.params, network.params);
        }
    }

    #[test]
    fn a_joined_network_detects_the_same() {
        let network = Network::new(Model::single(ModelSize::T), 3, 2).to_deploy();
        let run = |network: &Network, packed: bool| {
            let mut graph = network.graph(1, 64, 96, BnMode::Running);
            let decoded = graph.append_decode();
            if packed {
                pack_convolution_inputs(&mut graph.graph);
            }
            let mut executor = Executor::new(Plan::new(graph.graph, &[decoded]));
            executor.write(graph.input, &input(64 * 96 * 3));
            executor.run_inference(&network.params);
            executor.read(decoded)
        };
        let expected = run(&network, false);
        for packed in [false, true] {
            assert!(largest_difference(&expected, &run(&joined(&network), packed)) < 1e-5);
        }
    }

    #[test]
    fn a_joined_network_has_the_same_loss_and_gradients() {
        let network = Network::new(Model::dual(ModelSize::T), 3, 3);
        let truth = [0.0, 10.0, 10.0, 50.0, 40.0, 2.0, 30.0, 5.0, 60.0, 60.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 3.0, 44.0, 61.0];
        let run = |network: &Network, style: GradientStyle| {
            let mut graph = network.graph(2, 64, 64, BnMode::Batch);
            let loss = graph.append_loss(2, LossSpec::published(3, true));
            if style == GradientStyle::Pieces {
                pack_convolution_inputs(&mut graph.graph);
            }
            let n_forward = graph.graph.nodes.len();
            append_gradients(&mut graph.graph, style);
            if style == GradientStyle::Pieces {
                recompute(&mut graph.graph, n_forward, |_, _, _| true);
            }
            let mut executor = Executor::new(Plan::new(graph.graph, &[loss.items]));
            executor.write(graph.input, &input(2 * 64 * 64 * 3));
            executor.write(loss.truth, &truth);
            let (mut params, mut gradients) = (network.params.clone(), network.params.zeros_like());
            executor.run(&mut params, &mut gradients);
            (executor.read(loss.items), gradients, params)
        };
        let (items, gradients, params) = run(&network, GradientStyle::Added);
        let (joined_items, joined_gradients, joined_params) = run(&joined(&network), GradientStyle::Pieces);
        assert!(largest_difference(&items, &joined_items) < 1e-5, "{items:?} {joined_items:?}");
        for (whole, parted) in [(gradients, joined_gradients), (params, joined_params)] {
            let mut back = network.clone();
            take_joined(&mut back, &parted);
            for id in whole.ids() {
                let difference = largest_difference(whole.get(id), back.params.get(id));
                assert!(difference < 1e-3 || whole.get(id).iter().all(|value| value.abs() < 1e-6), "{}: {difference}", whole.spec(id).name);
            }
        }
    }
}
