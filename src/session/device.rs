//! Which device a job runs on, refused before anything is written when it cannot be had.

use super::failure::Failure;
use crate::engine::Device;
use crate::engine::cuda;

/// Says whether jobs can run on `device`.
///
/// # Errors
/// A GPU was asked for: no driver, no such device, or a device for which this version has no engine.
pub fn ready(device: Device) -> Result<(), Failure> {
    let Device::Cuda(index) = device else { return Ok(()) };
    let hint = |text: &str| Some(format!("{text}; `--device cpu` works everywhere"));
    match cuda::device_names() {
        Err(error) => Err(Failure::mendable(
            format!("device {index} was asked for, but {error}"),
            hint("install NVIDIA's driver and look with `nvidia-smi`"),
        )),
        Ok(names) => match names.get(index) {
            None => Err(Failure::mendable(
                format!("device {index} was asked for, but the driver lists {}", numbered(&names)),
                hint("choose one of these numbers"),
            )),
            Some(name) => Err(Failure::mendable(
                format!("device {index} is {name}; this version computes on the CPU only"),
                hint("leave `--device` out"),
            )),
        },
    }
}

fn numbered(names: &[String]) -> String {
    names.iter().enumerate().map(|(index, name)| format!("{index} ({name})")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_ready() {
        assert_eq!(ready(Device::Cpu), Ok(()));
    }

    #[test]
    fn a_device_that_cannot_be_used_says_what_to_do() {
        let failure = ready(Device::Cuda(99)).expect_err("there is no hundredth device");
        assert!(failure.message.contains("99"), "{failure:?}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("--device cpu")));
    }
}
