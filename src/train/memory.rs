//! How much memory is free, and how much this process uses: what the system says of itself.
//!
//! In:  `/proc/meminfo`, `/proc/self/status`, the limit of the control group.
//! Out: bytes. Where a system does not tell (not Linux), free memory counts as 1 GiB and use as 0.

use std::fs;

/// What the cache may count on where the system does not tell.
const UNKNOWN_FREE: u64 = 1 << 30;

/// Memory that can be taken without pushing other programs out: what the kernel calls available, within the container's limit.
pub fn available_bytes() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib_field(&text, "MemAvailable:"));
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max");
    let used = number("/sys/fs/cgroup/memory.current").unwrap_or(0);
    let within_limit = limit.map(|limit| limit.saturating_sub(used));
    [system, within_limit].into_iter().flatten().min().unwrap_or(UNKNOWN_FREE)
}

/// The most memory that this process ever had in RAM.
pub fn peak_bytes() -> u64 {
    own_status("VmHWM:")
}

/// The memory that this process has in RAM now.
pub fn resident_bytes() -> u64 {
    own_status("VmRSS:")
}

fn own_status(field: &str) -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|text| kib_field(&text, field)).unwrap_or(0)
}

/// The value of a line `Name:   123 kB`, in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_in_bytes() {
        let text = "MemTotal:       24593408 kB\nMemAvailable:   100 kB\n";
        assert_eq!(kib_field(text, "MemAvailable:"), Some(102_400));
        assert_eq!(kib_field(text, "SwapFree:"), None);
        assert_eq!(kib_field("VmHWM: many kB", "VmHWM:"), None);
    }

    #[test]
    fn the_peak_is_not_below_what_is_used_now() {
        let now = resident_bytes();
        assert!(peak_bytes() >= now);
        assert!(available_bytes() > 0);
    }
}
