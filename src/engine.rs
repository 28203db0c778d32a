//! Tensors, the static graph, its gradients, its plan, and the executors. Knows nothing of images or detectors.

pub mod cpu;
pub mod cuda;
#[cfg(test)]
pub(crate) mod golden;
pub mod gradients;
pub mod graph;
pub mod lanes;
pub mod latency;
pub mod op;
pub mod packed;
pub mod params;
pub mod plan;
pub mod recompute;
pub mod roofline;
pub mod rule;

pub use graph::{Graph, Node, Shape, Tensor, TensorId};
pub use op::{Act, BnMode, BnParams, ConvSpec, LOSS_ITEMS, LossSpec, Op};
pub use params::{ParamId, ParamKind, ParamSpec, Params};
pub use plan::Plan;
pub use rule::Rule;

/// Where a graph runs. Written as `cpu`, or as the number of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    Cpu,
    /// By NVIDIA's index.
    Cuda(usize),
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `cpu` or the number of one GPU, such as 0")]
pub struct UnknownDevice;

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "{index}"),
        }
    }
}

impl std::str::FromStr for Device {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        match text {
            "cpu" => Ok(Self::Cpu),
            _ => text.parse().map(Self::Cuda).map_err(|_| UnknownDevice),
        }
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl TryFrom<String> for Device {
    type Error = UnknownDevice;

    fn try_from(text: String) -> Result<Self, UnknownDevice> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_cpu_or_a_number() {
        assert_eq!("cpu".parse(), Ok(Device::Cpu));
        assert_eq!("1".parse(), Ok(Device::Cuda(1)));
        assert_eq!("cuda".parse::<Device>(), Err(UnknownDevice));
    }
}
