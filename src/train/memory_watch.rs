//! Does memory grow that should not? The process against its plan and from epoch to epoch, the GPU against what was usual.
//!
//! In:  bytes in use, about every second, and the epoch that they belong to.
//! Out: growth, told once when it begins.
//!
//! What a process uses goes up and down with validations and with what the allocator keeps, and that is no fault as long as it was
//! planned. A leak is another thing: the least of an epoch rises, and goes on to rise, long before the plan is passed.
//! On a GPU the training takes all at once, so whatever comes later is another program's or a validation's.
//!
//! Never looks at a clock or at the system.

use std::collections::VecDeque;

/// Reports that are looked at together.
const RECENT_REPORTS: usize = 10;
/// What the process may have beyond its plan: a tenth, and at least this.
const PLAN_SLACK: u64 = 512 << 20;
/// Epochs that a leak is looked for in, and the parts of them that are compared.
const LEAK_EPOCHS: usize = 12;
const LEAK_PARTS: usize = 4;
/// What they must have added.
const LEAK_SLACK: u64 = 256 << 20;
/// What a GPU's memory may grow by: a tenth, and at least this, which is more than most validations take.
const GPU_SLACK: u64 = 1 << 30;

/// What the process has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    PastPlan {
        now: u64,
        planned: u64,
    },
    /// The least of an epoch has risen by so much within so many epochs.
    Leak {
        now: u64,
        grown: u64,
        n_epochs: usize,
    },
}

/// Memory of the process.
#[derive(Default)]
pub struct ProcessMemory {
    recent: Recent,
    /// The last epochs that had a report, and the least of each. The newest one has not ended.
    epochs: VecDeque<(usize, u64)>,
    is_past: bool,
    leaks: bool,
}

impl ProcessMemory {
    /// Takes a report in. `epoch` is absent until memory has its size; a plan of 0 is none.
    pub fn push(&mut self, bytes: u64, epoch: Option<usize>, planned: u64) -> Option<Growth> {
        if let Some(epoch) = epoch {
            self.count(epoch, bytes);
        }
        let now = self.recent.push(bytes)?;
        let was_told = self.is_past || self.leaks;
        let slack = PLAN_SLACK.max(planned / 10);
        self.is_past = planned > 0 && is_beyond(now.saturating_sub(planned), slack, self.is_past);
        let grown = self.grown();
        self.leaks = grown.is_some_and(|(grown, is_steady)| (self.leaks || is_steady) && is_beyond(grown, LEAK_SLACK, self.leaks));
        if was_told {
            None
        } else if self.is_past {
            Some(Growth::PastPlan { now, planned })
        } else if self.leaks {
            grown.map(|(grown, _)| Growth::Leak { now, grown, n_epochs: LEAK_EPOCHS })
        } else {
            None
        }
    }

    fn count(&mut self, epoch: usize, bytes: u64) {
        match self.epochs.back_mut() {
            Some((last, least)) if *last == epoch => *least = bytes.min(*least),
            _ => self.epochs.push_back((epoch, bytes)),
        }
        if self.epochs.len() > LEAK_EPOCHS + 1 {
            self.epochs.pop_front();
        }
    }

    /// How much the last epochs have added, and whether each part of them did: a single step up is no leak. `None` for too few.
    fn grown(&self) -> Option<(u64, bool)> {
        if self.epochs.len() <= LEAK_EPOCHS {
            return None;
        }
        let least: Vec<u64> = self.epochs.iter().take(LEAK_EPOCHS).map(|(_, least)| *least).collect();
        let parts: Vec<u64> = least.chunks(LEAK_EPOCHS / LEAK_PARTS).filter_map(|part| part.iter().copied().min()).collect();
        let grown = parts[LEAK_PARTS - 1].saturating_sub(parts[0]);
        // Half of what it would be if all parts added the same.
        let least_share = grown / (2 * (LEAK_PARTS as u64 - 1));
        Some((grown, parts.windows(2).all(|pair| pair[1].saturating_sub(pair[0]) >= least_share)))
    }
}

/// Memory of a GPU, whoever uses it.
#[derive(Default)]
pub struct GpuMemory {
    recent: Recent,
    /// The most while every shape was met for the first time.
    usual: u64,
    is_past: bool,
}

impl GpuMemory {
    /// Takes a report in; tells what is used now and what was usual when it has just grown.
    pub fn push(&mut self, bytes: u64, is_settling: bool) -> Option<(u64, u64)> {
        let now = self.recent.push(bytes);
        if is_settling {
            self.usual = self.usual.max(bytes);
            return None;
        }
        // Nothing was seen before: the first reports are what is usual.
        let Some(now) = now.filter(|_| self.usual > 0) else {
            self.usual = self.usual.max(bytes);
            return None;
        };
        let was_told = self.is_past;
        self.is_past = is_beyond(now.saturating_sub(self.usual), GPU_SLACK.max(self.usual / 10), was_told);
        (self.is_past && !was_told).then_some((now, self.usual))
    }
}

/// Whether it is too much. What was is so until half of it is gone, so that nothing is told again and again at the edge.
fn is_beyond(excess: u64, slack: u64, was: bool) -> bool {
    excess > if was { slack / 2 } else { slack }
}

/// The newest reports.
#[derive(Default)]
struct Recent(VecDeque<u64>);

impl Recent {
    /// Takes a report in; the median, once there are enough of them.
    fn push(&mut self, bytes: u64) -> Option<u64> {
        self.0.push_back(bytes);
        if self.0.len() > RECENT_REPORTS {
            self.0.pop_front();
        }
        let mut sorted: Vec<u64> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        (sorted.len() == RECENT_REPORTS).then(|| sorted[RECENT_REPORTS / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANNED: u64 = 4000;

    /// What 30 epochs of 5 reports tell, in MiB; the first two are not looked at for leaks.
    fn told(mib: impl Fn(u64) -> u64) -> Vec<Growth> {
        let mut memory = ProcessMemory::default();
        (0..150).filter_map(|index| memory.push(mib(index) << 20, (index >= 10).then_some(index as usize / 5), PLANNED << 20)).collect()
    }

    #[test]
    fn what_was_planned_may_be_used() {
        assert_eq!(told(|index| if index < 40 { 3600 } else { 3900 }), [], "a step up within the plan");
        assert_eq!(told(|index| if index % 5 == 4 { 4400 } else { 3600 }), [], "each validation");
        assert_eq!(told(|_| 4500), [], "a little more than the plan");
        assert_eq!(told(|index| 1000 + 300 * (index / 50)), [], "three steps up");
        assert_eq!(told(|index| 3000 - 2000 / (index + 1)), [], "slower and slower");
    }

    #[test]
    fn more_than_the_plan_is_told_once_and_again_after_it_was_well() {
        let past = |mib: u64| Growth::PastPlan { now: mib << 20, planned: PLANNED << 20 };
        assert_eq!(told(|_| 4600), [past(4600)]);
        assert_eq!(told(|index| if index < 60 { 3000 } else { 4513 - index % 2 * 20 }), [past(4513)], "at the edge");
        assert_eq!(told(|index| if index / 30 % 2 == 0 { 3000 } else { 5000 }), [past(5000); 2]);
    }

    #[test]
    fn a_leak_is_told_once_long_before_the_plan_is_passed() {
        // 40 MiB an epoch, under the noise of validations.
        let told = told(|index| 1000 + 8 * index + if index % 5 == 4 { 500 } else { 0 });
        let [Growth::Leak { now, grown, n_epochs: LEAK_EPOCHS }] = told[..] else { panic!("{told:?}") };
        assert_eq!(grown >> 20, 9 * 40);
        assert!(now < 2000 << 20, "{now}");
    }

    #[test]
    fn a_gpu_that_another_program_takes_is_told_once_and_what_the_first_epochs_took_is_usual() {
        let told = |n_settling: usize, mib: fn(usize) -> u64| {
            let mut memory = GpuMemory::default();
            (0..100)
                .filter_map(|index| memory.push(mib(index) << 20, index < n_settling))
                .map(|(now, usual)| [now >> 20, usual >> 20])
                .collect::<Vec<_>>()
        };
        assert_eq!(told(20, |index| if index % 10 < 4 { 5600 } else { 5050 }), [] as [[u64; 2]; 0]);
        assert_eq!(told(20, |index| if index < 60 { 8000 } else { 12_000 }), [[12_000, 8000]]);
        assert_eq!(told(0, |_| 8000), [] as [[u64; 2]; 0], "nothing was seen before");
        assert_eq!(told(0, |index| if index < 60 { 8000 } else { 12_000 }), [[12_000, 8000]]);
    }
}
