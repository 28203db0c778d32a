//! YOLOv9 as data: variants, blocks, heads, weight names, and the forms of the network.

pub mod blocks;
pub mod init;
pub mod joined;
pub mod network;
pub mod predictor;
pub mod variant;
pub mod weights;

pub use network::{Form, Head, LossTensors, Network, NetworkGraph};
pub use predictor::{InputShape, Predictor, PredictorPlan};
pub use variant::{Model, ModelSize, UnknownModel};
