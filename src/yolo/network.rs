//! A network: model, class count, form and parameters; and its graph for one input shape.

use super::variant::Model;
use crate::engine::graph::{Graph, TensorId};
use crate::engine::op::BnMode;
use crate::engine::params::Params;

/// How the parameters are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As trained: batch norms, two branches in each RepConv, the auxiliary branch if the model has one.
    Train,
    /// Batch norms folded and RepConv merged; only the main branch (a `gelan-*` network).
    Deploy,
}

/// A network with its parameters.
#[derive(Clone, Debug)]
pub struct Network {
    pub model: Model,
    pub form: Form,
    pub n_classes: usize,
    /// Names as upstream (`model.0.conv.weight`).
    pub params: Params,
}

/// Distribution and class logits of one head, P3 to P5: (reg, cls), shapes (B, H, W, 64) and (B, H, W, nc).
#[derive(Clone, Debug)]
pub struct Head {
    pub levels: Vec<(TensorId, TensorId)>,
}

/// The graph of a network for one input shape.
#[derive(Clone, Debug)]
pub struct NetworkGraph {
    pub graph: Graph,
    /// (B, H, W, 3), RGB, 0 to 1.
    pub input: TensorId,
    pub main: Head,
    /// The auxiliary head, in dual models and train form.
    pub aux: Option<Head>,
    /// The outputs of each row of the layer table, for inspection (a CBLinear has several).
    pub layers: Vec<Vec<TensorId>>,
}

impl Network {
    /// A new network in train form, with published initial values drawn from `seed`.
    pub fn new(model: Model, n_classes: usize, seed: u64) -> Self {
        let _ = (model, n_classes, seed);
        todo!("yolo")
    }

    /// The forward graph. `bn` says where batch norms of the train form take their statistics; a deploy form has none.
    pub fn graph(&self, batch: usize, height: usize, width: usize, bn: BnMode) -> NetworkGraph {
        let _ = (batch, height, width, bn);
        todo!("yolo")
    }

    /// The same detector in deploy form: auxiliary branch dropped, RepConv merged, batch norms folded.
    pub fn to_deploy(&self) -> Self {
        todo!("yolo")
    }
}
