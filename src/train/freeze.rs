//! Which parameters does a run leave as they are, and what does that save?
//!
//! In:  the choice of a person: a number of layers, some layers, or names.
//! Out: the marks of a network's frozen parameters; a sentence on what a step no longer computes and keeps.
//!
//! As in the published trainer one number is a count of layers from the input on, several are the layers themselves, and running
//! statistics of frozen layers keep moving. Unlike there nothing is computed that only frozen parameters would need: the
//! backward pass ends at the first layer that learns.
//!
//! Never decides what is worth freezing. Source: spec 7.9.

use std::fmt;
use std::str::FromStr;

use super::config::ConfigError;
use super::stepper::PlannedStep;
use super::stepper::StepSpec;
use crate::engine::Op;
use crate::engine::ParamSpec;
use crate::engine::Params;
use crate::engine::cuda::Precision;
use crate::engine::roofline::total_macs;
use crate::yolo::Network;
use crate::yolo::joined::joined;

/// What is not trained. Written as it is typed: `10`, `0,2,5`, `model.2.*,cv4`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Freeze {
    #[default]
    Nothing,
    /// The first layers, at least one.
    First(usize),
    /// Two layers or more.
    Layers(Vec<usize>),
    /// Parameters whose name contains one of these; `*` is any text.
    Names(Vec<String>),
}

/// A text that says nothing of the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} mixes layer numbers and names; give a count of layers, a list of layers, or parts of names")]
pub struct FreezeSyntax {
    pub text: String,
}

impl FromStr for Freeze {
    type Err = FreezeSyntax;

    fn from_str(text: &str) -> Result<Self, FreezeSyntax> {
        let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).collect();
        let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
        match numbers.as_slice() {
            [] | [0] if words.len() == numbers.len() => Ok(Self::Nothing),
            [count] if words.len() == 1 => Ok(Self::First(*count)),
            [] => Ok(Self::Names(words.into_iter().map(str::to_owned).collect())),
            _ if words.len() == numbers.len() => Ok(Self::Layers(numbers)),
            _ => Err(FreezeSyntax { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("0"),
            Self::First(count) => write!(f, "{count}"),
            Self::Layers(layers) => f.write_str(&layers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
            Self::Names(names) => f.write_str(&names.join(",")),
        }
    }
}

impl From<Freeze> for String {
    fn from(freeze: Freeze) -> Self {
        freeze.to_string()
    }
}

impl TryFrom<String> for Freeze {
    type Error = FreezeSyntax;

    fn try_from(text: String) -> Result<Self, FreezeSyntax> {
        text.parse()
    }
}

impl Freeze {
    /// Marks the parameters of a network that are frozen.
    ///
    /// # Errors
    /// A layer that the network does not have, a name that is of no parameter, or nothing left to train.
    pub fn apply(&self, params: &mut Params) -> Result<(), ConfigError> {
        let n_layers = params.specs.iter().filter_map(|spec| layer_of(&spec.name)).max().map_or(0, |last| last + 1);
        let is_frozen: Box<dyn Fn(&str) -> bool> = match self {
            Self::Nothing => return Ok(()),
            Self::First(count) => {
                check_layer(count.saturating_sub(1), n_layers)?;
                Box::new(move |name| layer_of(name).is_some_and(|layer| layer < *count))
            }
            Self::Layers(layers) => {
                layers.iter().try_for_each(|&layer| check_layer(layer, n_layers))?;
                Box::new(move |name| layer_of(name).is_some_and(|layer| layers.contains(&layer)))
            }
            Self::Names(names) => {
                if let Some(name) = names.iter().find(|name| !params.specs.iter().any(|spec| contains(&spec.name, name))) {
                    return Err(ConfigError::FreezeName { name: name.clone() });
                }
                Box::new(move |name| names.iter().any(|pattern| contains(name, pattern)))
            }
        };
        for (spec, frozen) in params.specs.iter().zip(&mut params.frozen) {
            *frozen = spec.kind.is_trained() && is_frozen(&spec.name);
        }
        if params.ids().any(|id| params.is_trained(id)) { Ok(()) } else { Err(ConfigError::FreezeAll) }
    }
}

/// The layer of a parameter: 4 for `model.4.cv1.conv.weight`.
fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("model.")?.split('.').next()?.parse().ok()
}

fn check_layer(layer: usize, n_layers: usize) -> Result<(), ConfigError> {
    if layer < n_layers { Ok(()) } else { Err(ConfigError::FreezeLayer { layer, n_layers }) }
}

/// Whether the parts of a pattern between its stars come in a text one after the other.
fn contains(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    pattern.split('*').all(|part| {
        let found = rest.find(part);
        rest = found.map_or("", |at| &rest[at + part.len()..]);
        found.is_some()
    })
}

/// What a step saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saving {
    /// Values that are frozen, and all that could be trained.
    pub values: [usize; 2],
    /// Backward nodes with nothing frozen, and now.
    pub backward_nodes: [usize; 2],
    /// Multiply-accumulates of a step with nothing frozen, and now.
    pub macs: [usize; 2],
    /// Bytes of activations and their gradients with nothing frozen, and now.
    pub activation_bytes: [usize; 2],
}

impl Saving {
    /// Plans a step of `batch` pictures with and without the network's frozen parameters; on the CPU, or on a GPU that computes in
    /// a precision.
    pub fn of(network: &Network, spec: &StepSpec, batch: usize, gpu: Option<Precision>) -> Self {
        let plan = |network: &Network| match gpu {
            None => PlannedStep::new(network, spec, batch).plan,
            Some(precision) => PlannedStep::for_gpu(&joined(network), spec, batch, precision).plan,
        };
        let mut thawed = network.clone();
        thawed.params.frozen.fill(false);
        let plans = [plan(&thawed), plan(network)];
        let params = &network.params;
        let n_backward = |nodes: &[crate::engine::Node]| {
            let loss = nodes.iter().position(|node| matches!(node.op, Op::DetectionLoss(_))).unwrap_or(nodes.len());
            nodes.len().saturating_sub(loss + 1)
        };
        Self {
            values: [
                params.frozen_ids().into_iter().map(|id| params.spec(id).len()).sum(),
                params.specs.iter().filter(|spec| spec.kind.is_trained()).map(ParamSpec::len).sum(),
            ],
            backward_nodes: plans.each_ref().map(|plan| n_backward(&plan.graph.nodes)),
            macs: plans.each_ref().map(|plan| total_macs(&plan.graph)),
            activation_bytes: plans.each_ref().map(|plan| plan.arena_bytes),
        }
    }

    /// As a sentence.
    pub fn note(&self, freeze: &Freeze) -> String {
        let share = |[before, now]: [usize; 2]| 100.0 * (1.0 - now as f64 / before.max(1) as f64);
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let [frozen, all] = self.values.map(|values| values as f64 / 1e6);
        let [before, now] = self.activation_bytes;
        format!(
            "frozen ({freeze}): {frozen:.2} of {all:.2} million values; {:.0} % of the backward nodes and {:.0} % of a step's \
             multiplications are skipped, activations take {:.0} MiB instead of {:.0}",
            share(self.backward_nodes),
            share(self.macs),
            mib(now),
            mib(before)
        )
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::engine::cpu::Executor;
    use crate::engine::op::BnMode;
    use crate::train::config::Hyp;
    use crate::yolo::{Model, ModelSize};

    fn network(freeze: &str) -> Network {
        let mut network = Network::new(Model::dual(ModelSize::T), 3, 5);
        freeze.parse::<Freeze>().unwrap().apply(&mut network.params).unwrap();
        network
    }

    fn spec() -> StepSpec {
        StepSpec { side: 64, truth_rows: 8, hyp: Hyp::scratch_high(), weight_decay: 0.0 }
    }

    fn frozen_names(freeze: &str) -> Vec<String> {
        let params = network(freeze).params;
        params.frozen_ids().into_iter().map(|id| params.spec(id).name.clone()).collect()
    }

    #[test]
    fn one_number_counts_layers_and_several_are_layers() {
        for (text, expected) in [
            ("", Freeze::Nothing),
            ("0", Freeze::Nothing),
            ("10", Freeze::First(10)),
            ("0 2 5", Freeze::Layers(vec![0, 2, 5])),
            ("0,2", Freeze::Layers(vec![0, 2])),
            ("model.3.,cv1", Freeze::Names(vec!["model.3.".into(), "cv1".into()])),
        ] {
            let freeze: Freeze = text.parse().unwrap();
            assert_eq!(freeze, expected);
            assert_eq!(freeze.to_string().parse(), Ok(expected));
        }
        assert!("3,model.4.".parse::<Freeze>().is_err());
    }

    #[test]
    fn parameters_are_frozen_by_layer_and_by_name() {
        let first = frozen_names("3");
        assert!(first.iter().all(|name| ["model.0.", "model.1.", "model.2."].iter().any(|start| name.starts_with(start))), "{first:?}");
        assert!(first.iter().any(|name| name.starts_with("model.2.")) && !first.iter().any(|name| name.contains("running")));
        assert!(frozen_names("2,12").iter().all(|name| name.starts_with("model.2.") || name.starts_with("model.12.")));
        let by_name = frozen_names("model.4.*bn.weight");
        assert!(!by_name.is_empty() && by_name.iter().all(|name| name.starts_with("model.4.") && name.ends_with("bn.weight")));
        assert!(frozen_names("0").is_empty());
    }

    #[test]
    fn what_is_not_there_and_what_leaves_nothing_is_refused() {
        let refused = |text: &str| text.parse::<Freeze>().unwrap().apply(&mut network("0").params).unwrap_err();
        assert!(matches!(refused("31"), ConfigError::FreezeLayer { layer: 30, n_layers: 30 }));
        assert!(matches!(refused("1,99"), ConfigError::FreezeLayer { layer: 99, .. }));
        assert!(matches!(refused("backbone"), ConfigError::FreezeName { .. }));
        assert!(matches!(refused("30"), ConfigError::FreezeAll));
    }

    /// Gradients of one step, the moved parameters, and the losses, in the plan of the CPU or of a GPU.
    fn pass(network: &Network, like_gpu: bool) -> (Params, Params, Vec<f32>) {
        let network = if like_gpu { joined(network) } else { network.clone() };
        let step =
            if like_gpu { PlannedStep::for_gpu(&network, &spec(), 2, Precision::F32) } else { PlannedStep::new(&network, &spec(), 2) };
        let mut executor = Executor::new(step.plan);
        let bytes: Vec<u8> = (0..2 * 64 * 64 * 3u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut truth = vec![[-1.0, 0.0, 0.0, 0.0, 0.0]; 16];
        (truth[0], truth[1], truth[8]) = ([0.0, 4.0, 4.0, 40.0, 30.0], [2.0, 20.0, 10.0, 60.0, 60.0], [1.0, 8.0, 8.0, 50.0, 50.0]);
        executor.write_bytes(step.input, &bytes);
        executor.write(step.truth, truth.as_flattened());
        let (mut params, mut gradients) = (network.params.clone(), network.params.zeros_like());
        executor.run(&mut params, &mut gradients);
        (gradients, params, executor.read(step.items))
    }

    #[test]
    fn what_learns_has_the_same_gradients_and_frozen_statistics_still_move() {
        // A prefix, layers in the middle, single parameters, and one of two convolutions that a GPU would join.
        for text in ["9", "4,6,12,25", "model.0.,bn.weight,model.6.cv2.*conv1", "model.4.cv2.0.cv1"] {
            for like_gpu in [false, true] {
                let frozen = network(text);
                let (gradients, params, items) = pass(&frozen, like_gpu);
                let (reference, reference_params, reference_items) = {
                    let mut thawed = frozen.clone();
                    thawed.params.frozen.fill(false);
                    // As the frozen one is joined, so that names and sums are the same.
                    if like_gpu && joined(&thawed).params.specs.len() != joined(&frozen).params.specs.len() {
                        continue;
                    }
                    pass(&thawed, like_gpu)
                };
                assert_eq!(items, reference_items, "{text}");
                assert_eq!(params.values, reference_params.values, "{text}: statistics");
                let mut n_compared = 0;
                for id in gradients.ids().filter(|&id| gradients.is_trained(id)) {
                    assert_eq!(gradients.get(id), reference.get(id), "{text}, {like_gpu}: {}", gradients.spec(id).name);
                    n_compared += usize::from(reference.get(id).iter().any(|value| *value != 0.0));
                }
                assert!(n_compared > 20, "{text}: {n_compared}");
            }
        }
    }

    #[test]
    fn a_frozen_prefix_is_not_differentiated_and_not_kept() {
        let spec = spec();
        for gpu in [None, Some(Precision::Bf16)] {
            let network = network("9");
            let saving = Saving::of(&network, &spec, 2, gpu);
            let shrinks = |[before, now]: [usize; 2], share: f64| assert!((now as f64) < share * before as f64, "{saving:?}");
            shrinks(saving.backward_nodes, 0.8);
            shrinks(saving.macs, 0.9);
            shrinks(saving.activation_bytes, 0.8);
            assert!(saving.values[0] > 0 && saving.values[0] < saving.values[1]);

            let network = if gpu.is_some() { joined(&network) } else { network };
            let step = gpu.map_or_else(|| PlannedStep::new(&network, &spec, 2), |gpu| PlannedStep::for_gpu(&network, &spec, 2, gpu));
            for node in &step.plan.graph.nodes {
                let parameter = match &node.op {
                    Op::ConvBackwardWeight { weight, .. } | Op::ConvBackwardInput { weight, .. } => *weight,
                    Op::BnActBackwardReduce { bns, .. } | Op::BnActBackward { bns, .. } => bns[0].gamma,
                    _ => continue,
                };
                assert!(network.params.is_trained(parameter), "{} is of a frozen layer", node.name);
            }
            // The first layer's output is dead when the second layer has read it.
            let forward = network.graph(2, 64, 64, BnMode::Batch).graph.nodes.len();
            assert!(step.plan.graph.nodes.len() < 2 * forward);
        }
        let none = Saving::of(&network("0"), &spec, 2, None);
        assert_eq!(none.backward_nodes[0], none.backward_nodes[1]);
        assert!(none.note(&Freeze::Nothing).contains("0 % of the backward nodes"));
    }

    #[test]
    fn a_pair_of_which_one_half_learns_is_not_joined() {
        let n_joined = |network: &Network| joined(network).params.specs.iter().filter(|spec| spec.name.contains("cv1+cv2")).count();
        let (all, half) = (n_joined(&network("0")), n_joined(&network("model.4.cv2.0.cv1")));
        assert!(half < all && half > 0);
        assert_eq!(n_joined(&network("9")), all);
    }
}
