//! Which device a job runs on, refused before anything is written when it cannot be had.

use super::failure::Failure;
use crate::engine::Device;
use crate::engine::cuda;

/// A device that a job can run on, as a person chooses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOption {
    pub device: Device,
    pub name: String,
}

impl DeviceOption {
    pub fn cpu() -> Self {
        Self { device: Device::Cpu, name: "CPU, all cores".to_owned() }
    }
}

/// The CPU, and each GPU that the driver lists. Whether one can be used is only known when it is opened.
pub fn list() -> Vec<DeviceOption> {
    let gpus = cuda::device_names().unwrap_or_default();
    let option = |(index, name): (usize, String)| DeviceOption { device: Device::Cuda(index), name: format!("GPU {index}, {name}") };
    std::iter::once(DeviceOption::cpu()).chain(gpus.into_iter().enumerate().map(option)).collect()
}

/// Opens `device`, so that jobs can run on it.
///
/// # Errors
/// A GPU was asked for that cannot be used: no driver, no such device, a library that is missing or too old.
pub fn ready(device: Device) -> Result<(), Failure> {
    let Device::Cuda(index) = device else { return Ok(()) };
    cuda::open(index).map_err(|error| {
        let hint = error.hint().map(str::to_owned);
        Failure::from_error(&error, hint).about(&format!("device {index} was asked for, but "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_ready_and_listed_first() {
        assert_eq!(ready(Device::Cpu), Ok(()));
        assert_eq!(list()[0].device, Device::Cpu);
    }

    #[test]
    fn a_device_that_cannot_be_used_says_what_to_do() {
        let failure = ready(Device::Cuda(99)).expect_err("there is no hundredth device");
        assert!(failure.message.contains("99"), "{failure:?}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("boxwright doctor")));
    }
}
