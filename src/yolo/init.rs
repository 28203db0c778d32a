//! Values of a new network's parameters.
//!
//! In: parameters (names, kinds, shapes) and a seed. Out: their values.
//!
//! Convolution weights and biases are uniform within 1 / sqrt(fan in), batch norms the identity, and the last biases of the head
//! say that objects are rare. Each value depends on seed, parameter name and position alone, so neither the order of
//! parameters nor threads change a network.
//!
//! The published trainer's running variances start at 0.9, an accident of how it measures strides (one batch of zeros). Here they
//! start at 1: after a few steps nothing is left of either. Source: the project's YOLOv9 specification, section 4.

use super::blocks::STRIDES;
use crate::engine::params::{ParamId, ParamKind, ParamSpec, Params};

/// Fills a network's parameters. `head` is the name of the head row, such as `model.29`.
pub(super) fn fill(params: &mut Params, head: &str, n_classes: usize, seed: u64) {
    let ids: Vec<ParamId> = params.ids().collect();
    for id in ids {
        let spec = params.spec(id).clone();
        let values = params.get_mut(id);
        match spec.kind {
            ParamKind::ConvWeight => fill_uniform(values, fan_in(&spec), seed, &spec.name),
            ParamKind::BnGamma | ParamKind::BnVar => values.fill(1.0),
            // Biases get their values below.
            ParamKind::ConvBias | ParamKind::BnBeta | ParamKind::BnMean => values.fill(0.0),
        }
    }
    let biases: Vec<ParamId> = params.ids().filter(|&id| params.spec(id).kind == ParamKind::ConvBias).collect();
    for id in biases {
        let name = params.spec(id).name.clone();
        if let Some(value) = name.strip_prefix(head).and_then(|branch| head_bias(branch, n_classes)) {
            params.get_mut(id).fill(value);
        } else {
            // A convolution with bias has a weight of the same name, whose fan in is the bias' too.
            let weight = params.find(&name.replace(".bias", ".weight")).expect("a bias belongs to a weight");
            let fan_in = fan_in(params.spec(weight));
            fill_uniform(params.get_mut(id), fan_in, seed, &name);
        }
    }
}

/// The bias of a head's last layer by its name after the head row's (`.cv3.1.2.bias`): 1 for distributions; for classes the
/// logit of about 5 objects in a 640-pixel picture, spread over classes and cells.
fn head_bias(branch: &str, n_classes: usize) -> Option<f32> {
    let mut parts = branch.strip_suffix(".2.bias")?.strip_prefix(".cv")?.split('.');
    let branch: usize = parts.next()?.parse().ok()?;
    let stride = *STRIDES.get(parts.next()?.parse::<usize>().ok()?)?;
    if branch.is_multiple_of(2) {
        return Some(1.0);
    }
    let cells = (640.0 / stride as f64).powi(2);
    Some((5.0 / n_classes as f64 / cells).ln() as f32)
}

/// Sets the last biases of the box branches so that a new network's boxes have about this side (input pixels), at every level,
/// instead of 15 cells.
///
/// A box learns with the weight of its overlap. Objects far smaller than the first boxes overlap them so little that their class can
/// be given up before its boxes fit; on some hundred pictures that is not made good later.
pub(super) fn fill_box_side(params: &mut Params, head: &str, side: f32) {
    for id in params.ids().collect::<Vec<_>>() {
        let name = params.spec(id).name.clone();
        let Some(level) = name.strip_prefix(head).and_then(box_branch_level) else { continue };
        let values = params.get_mut(id);
        let reg_max = values.len() / 4;
        let distance = f64::from(side) / 2.0 / STRIDES[level] as f64;
        let distribution = distribution_around(distance.min(reg_max as f64 - 1.5), reg_max);
        for side in values.chunks_exact_mut(reg_max) {
            side.copy_from_slice(&distribution);
        }
    }
}

/// The level of a box branch's last bias by its name after the head row's (`.cv4.1.2.bias`).
fn box_branch_level(branch: &str) -> Option<usize> {
    let mut parts = branch.strip_suffix(".2.bias")?.strip_prefix(".cv")?.split('.');
    let branch: usize = parts.next()?.parse().ok()?;
    let level: usize = parts.next()?.parse().ok()?;
    (branch.is_multiple_of(2) && level < STRIDES.len()).then_some(level)
}

/// Logits of a broad distribution over bins with this mean.
fn distribution_around(mean: f64, reg_max: usize) -> Vec<f32> {
    /// Bins: wide enough that every bin keeps a share to learn from.
    const WIDTH: f64 = 2.0;
    let logits = |centre: f64| -> Vec<f64> { (0..reg_max).map(|bin| -((bin as f64 - centre) / WIDTH).powi(2) / 2.0).collect() };
    let mean_of = |logits: &[f64]| {
        let shares: Vec<f64> = logits.iter().map(|logit| logit.exp()).collect();
        shares.iter().enumerate().map(|(bin, share)| bin as f64 * share).sum::<f64>() / shares.iter().sum::<f64>()
    };
    // The bell is cut off at both ends, so its centre is searched for: the mean grows with it.
    let (mut low, mut high) = (-20.0, reg_max as f64 + 20.0);
    for _ in 0..60 {
        let centre = f64::midpoint(low, high);
        if mean_of(&logits(centre)) < mean { low = centre } else { high = centre }
    }
    let logits = logits(low);
    let peak = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logits.into_iter().map(|logit| (logit - peak) as f32).collect()
}

fn fan_in(spec: &ParamSpec) -> usize {
    spec.dims[1..].iter().product()
}

fn fill_uniform(values: &mut [f32], fan_in: usize, seed: u64, name: &str) {
    let bound = 1.0 / (fan_in as f64).sqrt();
    let key = mix(seed ^ name.bytes().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)));
    for (index, value) in values.iter_mut().enumerate() {
        // 24 bits are exact in f32.
        let unit = (mix(key.wrapping_add((index as u64 + 1).wrapping_mul(GOLDEN))) >> 40) as f64 / f64::from(1 << 24);
        *value = ((2.0 * unit - 1.0) * bound) as f32;
    }
}

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of splitmix64: every bit of the result depends on every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::yolo::network::Network;
    use crate::yolo::variant::{Model, ModelSize};

    #[test]
    fn head_biases_are_the_published_ones() {
        for (n_classes, expected) in [(80, [-11.536642, -10.150348, -8.764053]), (3, [-8.253228, -6.866933, -5.480639])] {
            for (level, value) in expected.into_iter().enumerate() {
                let bias = head_bias(&format!(".cv5.{level}.2.bias"), n_classes).unwrap();
                assert!((bias - value).abs() < 1e-5, "{bias} {value}");
            }
        }
        let network = Network::new(Model::dual(ModelSize::T), 3, 0);
        let bias = |name| network.params.get(network.params.find(name).unwrap());
        assert_eq!(bias("model.29.cv4.1.2.bias"), [1.0; 64]);
        assert!((bias("model.29.cv3.2.2.bias")[2] + 5.480639).abs() < 1e-5);
    }

    #[test]
    fn first_boxes_have_the_side_that_was_asked_for() {
        let mut network = Network::new(Model::dual(ModelSize::T), 3, 0);
        network.start_with_boxes_of(24.0);
        for (level, stride) in STRIDES.into_iter().enumerate() {
            let id = network.params.find(&format!("model.29.cv2.{level}.2.bias")).unwrap();
            for logits in network.params.get(id).chunks(16) {
                let shares: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
                let mean = shares.iter().enumerate().map(|(bin, share)| bin as f64 * share).sum::<f64>() / shares.iter().sum::<f64>();
                assert!((2.0 * mean * stride as f64 - 24.0).abs() < 0.1, "level {level}: {mean}");
                assert!(logits.iter().all(|logit| logit.is_finite()));
            }
        }
    }

    #[test]
    fn weights_fill_their_range_and_depend_on_the_seed() {
        let model = Model::single(ModelSize::T);
        let network = Network::new(model, 3, 7);
        let id = network.params.find("model.8.cv4.conv.weight").unwrap();
        let values = network.params.get(id);
        let bound = 1.0 / 256.0_f32.sqrt();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let deviation = (values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32).sqrt();
        assert!(values.iter().all(|value| value.abs() <= bound));
        assert!(mean.abs() < bound * 0.01, "{mean}");
        assert!((deviation - bound / 3.0_f32.sqrt()).abs() < bound * 0.01, "{deviation}");
        assert_eq!(Network::new(model, 3, 7).params, network.params);
        assert_ne!(Network::new(model, 3, 8).params.get(id), values);
    }
}
