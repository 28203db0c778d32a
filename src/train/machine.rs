//! What is the machine doing while it trains: the GPU, the CPU, the process's memory, the disk.
//!
//! In:  the device that trains. Out: a report about every second, taken by a thread of its own, so that no step waits for it.
//!
//! Figures that a system does not tell (not Linux, no NVML) are absent. Never slows a step: the reports wait in a bounded
//! channel until the loop takes them, and the oldest ones stay where it does not.
//!
//! Source: `proc(5)` for `/proc/stat`, `/proc/self/stat`, `/proc/self/io`.

use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::memory;
use crate::engine::Device;
use crate::engine::cuda::nvml::{GpuFigures, GpuMonitor};

/// Between two reports.
const PERIOD: Duration = Duration::from_secs(1);
/// Reports that wait while a step or a validation takes long.
const WAITING: usize = 256;
/// Ticks of a second in `/proc`: the kernel's `USER_HZ`, which is 100 on every system that Linux runs on.
const TICKS_PER_SEC: f64 = 100.0;

/// What the machine was doing in the last second. Shares are 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct MachineReport {
    /// Seconds since the run began, without those between a stop and a resume.
    pub secs: f64,
    /// Of the card that trains; absent on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuFigures>,
    /// Share of all cores that was busy, with whatever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_load: Option<f32>,
    /// Cores that this process kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_cores: Option<f32>,
    /// Memory that this process has in RAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
    /// What this process read from disks, without what was cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_sec: Option<f64>,
}

/// A thread that looks at the machine. Dropping it ends the thread.
pub struct MachineMonitor {
    reports: Receiver<MachineReport>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MachineMonitor {
    /// Starts the thread; the run was looked at for `secs` before. Without a thread (the system has none left) there is nothing to tell.
    pub fn start(device: Device, secs: f64) -> Self {
        let (sender, reports) = bounded(WAITING);
        let (stop, stopped) = bounded::<()>(0);
        let work = move || watch(device, secs, &sender, &stopped);
        let thread = std::thread::Builder::new().name("machine monitor".to_owned()).spawn(work).ok();
        Self { reports, stop: Some(stop), thread }
    }

    /// The reports since the last call, in order.
    pub fn take(&self) -> Vec<MachineReport> {
        self.reports.try_iter().collect()
    }
}

impl Drop for MachineMonitor {
    fn drop(&mut self) {
        // The thread waits for this with a time limit, so it wakes at once.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of this thread costs figures, not the run.
            thread.join().ok();
        }
    }
}

fn watch(device: Device, before_secs: f64, sender: &Sender<MachineReport>, stopped: &Receiver<()>) {
    let start = Instant::now();
    let card = match device {
        Device::Cpu => None,
        Device::Cuda(ordinal) => GpuMonitor::open(ordinal),
    };
    let mut before = Counters::read();
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let now = Counters::read();
        let report = MachineReport {
            secs: before_secs + start.elapsed().as_secs_f64(),
            gpu: card.as_ref().map(GpuMonitor::read),
            process_bytes: Some(memory::resident_bytes()).filter(|bytes| *bytes > 0),
            ..now.since(&before)
        };
        before = now;
        // A full channel means a step of minutes: its middle is as good as its end.
        sender.try_send(report).ok();
    }
}

/// What the kernel counts.
struct Counters {
    at: Instant,
    /// Busy and all ticks of all cores.
    cpu: Option<[u64; 2]>,
    /// Ticks of this process.
    process: Option<u64>,
    read_bytes: Option<u64>,
}

impl Counters {
    fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        Self {
            at: Instant::now(),
            cpu: text("/proc/stat").and_then(|text| cpu_ticks(&text)),
            process: text("/proc/self/stat").and_then(|text| process_ticks(&text)),
            read_bytes: text("/proc/self/io").and_then(|text| read_bytes(&text)),
        }
    }

    /// What happened between two readings.
    fn since(&self, before: &Self) -> MachineReport {
        let secs = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let between = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?) as f64);
        let cpu_load = self.cpu.zip(before.cpu).and_then(|([busy, all], [busy_before, all_before])| {
            let ticks = all.saturating_sub(all_before);
            (ticks > 0).then(|| (busy.saturating_sub(busy_before) as f64 / ticks as f64) as f32)
        });
        MachineReport {
            cpu_load,
            process_cores: between(self.process, before.process).map(|ticks| (ticks / TICKS_PER_SEC / secs) as f32),
            disk_read_bytes_per_sec: between(self.read_bytes, before.read_bytes).map(|bytes| bytes / secs),
            ..MachineReport::default()
        }
    }
}

/// Busy and all ticks, from the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, then guests, which
/// are in user already.
fn cpu_ticks(text: &str) -> Option<[u64; 2]> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
    let all: u64 = ticks.iter().sum();
    Some([all - idle, all])
}

/// User and system ticks of a process: fields 14 and 15. The name, field 2, stands in brackets and may hold anything.
fn process_ticks(text: &str) -> Option<u64> {
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn read_bytes(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let stat = "cpu  100 5 45 800 50 2 3 0 9 0\ncpu0 1 2 3 4\n";
        assert_eq!(cpu_ticks(stat), Some([155, 1005]));
        assert_eq!(cpu_ticks("intr 5"), None);
        let own = "4242 (a) weird (name) R 1 1 1 0 -1 4194304 100 0 0 0 250 30 0 0 20 0 4 0 100 1000 50\n";
        assert_eq!(process_ticks(own), Some(280));
        assert_eq!(process_ticks("4242 cut"), None);
        assert_eq!(read_bytes("rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n"), Some(4096));
        assert_eq!(read_bytes("rchar: 9\n"), None);
    }

    #[test]
    fn figures_are_differences_over_the_time_between() {
        let at = Instant::now();
        let before = Counters { at, cpu: Some([100, 1000]), process: Some(10), read_bytes: Some(0) };
        let now = Counters { at: at + Duration::from_secs(2), cpu: Some([250, 1200]), process: Some(310), read_bytes: Some(3_000_000) };
        let report = now.since(&before);
        assert_eq!((report.cpu_load, report.process_cores, report.disk_read_bytes_per_sec), (Some(0.75), Some(1.5), Some(1_500_000.0)));
        let unknown = Counters { at, cpu: None, process: None, read_bytes: None };
        assert_eq!(now.since(&unknown), MachineReport::default());
    }

    #[test]
    fn a_monitor_ends_when_it_is_dropped() {
        let monitor = MachineMonitor::start(Device::Cpu, 100.0);
        let start = Instant::now();
        drop(monitor);
        // Far more than it takes, and far less than it would wait for a thread that does not hear.
        assert!(start.elapsed() < Duration::from_mins(1));
    }

    #[test]
    fn reports_of_other_versions_are_read() {
        let report: Option<MachineReport> = serde_json::from_str(r#"{"event":"machine","secs":3.0,"cpu_load":0.5,"new":1}"#).ok();
        assert_eq!(report, Some(MachineReport { secs: 3.0, cpu_load: Some(0.5), ..MachineReport::default() }));
    }
}
