//! Is a training run healthy? Bands learned from the run itself, and alarms with what to do about them.
//!
//! In:  the reports of steps, epochs and the machine, in order.
//! Out: alarms, each told once when it begins. It may be told again after everything was as before.
//!
//! A band is the median of the last steps, plus and minus some times their median absolute deviation (MAD), for what is a ratio by
//! nature on a logarithmic scale. What is compared with it is the median of the newest few steps, so that a single odd batch says
//! nothing. While a figure is outside, its band stays as it was; what stays outside for a whole window is the new normal,
//! but for waiting beyond the share that is always too much.
//! Nothing is learned of losses and gradients before the end of the warm-up, when they are meant to change.
//!
//! Never looks at a clock or a file: the same reports always give the same alarms.

use std::collections::VecDeque;

use super::event::{EpochReport, StepReport};
use super::machine::MachineReport;
use super::memory_watch::GpuMemory;
use super::memory_watch::Growth;
use super::memory_watch::ProcessMemory;

/// Steps that a band is learned from, at most and at least.
const WINDOW: usize = 128;
const MIN_LEARNED: usize = 40;
/// A MAD of normal noise, times this, is a standard deviation.
const MAD_TO_DEVIATION: f64 = 1.4826;
/// Share of waiting from which on it is too much, whatever was learned.
const MOST_WAITING: f64 = 0.3;
/// Reports of the machine that are looked at together.
const RECENT_REPORTS: usize = 10;
/// Epochs of a process after which memory has its size: every shape was trained and validated.
const SETTLED_EPOCHS: usize = 2;
/// Updates of so many steps, of which so many may be left out.
const SKIP_WINDOW: usize = 100;
const MOST_SKIPPED: usize = 5;

/// What went wrong; the kebab-case name is the `id` in `events.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlarmKind {
    LossRises,
    GradientGrows,
    GradientVanishes,
    UpdatesTooLarge,
    UpdatesTooSmall,
    UpdatesSkipped,
    Slower,
    WaitsForData,
    MemoryGrows,
    GpuMemoryGrows,
    GpuHeldBack,
    NothingFound,
}

/// Something that is not as it was, or not as it should be.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Alarm {
    #[serde(rename = "id")]
    pub kind: AlarmKind,
    pub epoch: usize,
    pub step: usize,
    /// What, in one sentence with figures.
    pub what: String,
    /// Where to look: a figure, a stage, a device.
    #[serde(rename = "where")]
    pub place: String,
    /// Why it matters and what it usually comes from.
    pub explanation: String,
    /// What to do.
    pub action: String,
    pub value: f64,
    /// What was usual, where that was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Band>,
}

/// What is usual for a figure.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Band {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

/// A figure of the steps that has a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Loss,
    GradNorm,
    UpdateRatio,
    Speed,
    DataWait,
}

impl Signal {
    pub const ALL: [Self; 5] = [Self::Loss, Self::GradNorm, Self::UpdateRatio, Self::Speed, Self::DataWait];

    pub fn title(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::GradNorm => "gradient norm",
            Self::UpdateRatio => "update/weight ratio",
            Self::Speed => "images/s",
            Self::DataWait => "data-wait share",
        }
    }

    /// The figure in a report, if it is there and a number.
    pub fn value(self, step: &StepReport) -> Option<f64> {
        let value = match self {
            Self::Loss => f64::from(step.box_loss) + f64::from(step.cls_loss) + f64::from(step.dfl_loss),
            Self::GradNorm => f64::from(step.grad_norm),
            Self::UpdateRatio => f64::from(step.update_ratio?),
            Self::Speed => f64::from(step.images_per_sec),
            Self::DataWait => f64::from(step.data_wait?),
        };
        // Ratios need more than 0; a gradient norm of 0 is that of steps before the first update.
        (value.is_finite() && (value > 0.0 || self == Self::DataWait)).then_some(value)
    }

    /// Newest steps that are compared with the band. Waiting comes in bursts, one for each turn of the loader's threads.
    fn n_recent(self) -> usize {
        if self == Self::DataWait { 32 } else { 8 }
    }

    fn recent(self, values: &[f64]) -> f64 {
        if self == Self::DataWait { values.iter().sum::<f64>() / values.len() as f64 } else { median(values) }
    }

    /// Deviations around the median, and the least half width: a factor, or for waiting a difference.
    fn width(self) -> (f64, f64) {
        match self {
            Self::Loss => (6.0, 1.5),
            Self::GradNorm | Self::UpdateRatio => (8.0, 4.0),
            Self::Speed => (6.0, 1.6),
            Self::DataWait => (6.0, 0.15),
        }
    }

    /// The band of earlier values; `None` for fewer than can tell.
    pub fn band(self, values: &[f64]) -> Option<Band> {
        if values.len() < MIN_LEARNED {
            return None;
        }
        let (deviations, least) = self.width();
        if self == Self::DataWait {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let half = (deviations * deviation(values, mean) / (self.n_recent() as f64).sqrt()).max(least);
            return Some(Band { low: 0.0, median: mean, high: (mean + half).min(MOST_WAITING) });
        }
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let middle = median(&logs);
        let half = (deviations * deviation(&logs, middle)).max(least.ln());
        Some(Band { low: (middle - half).exp(), median: middle.exp(), high: (middle + half).exp() })
    }
}

/// The middle value; of an even number the upper one of two. 0 for none.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The standard deviation that the MAD stands for.
fn deviation(values: &[f64], middle: f64) -> f64 {
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    MAD_TO_DEVIATION * median(&distances)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

/// One signal over the run.
struct Watch {
    signal: Signal,
    /// The window and the newest ones.
    values: VecDeque<f64>,
    /// Which side of which band it is on, and for how many steps.
    outside: Option<(Side, Band, usize)>,
}

impl Watch {
    fn new(signal: Signal) -> Self {
        Self { signal, values: VecDeque::new(), outside: None }
    }

    /// Takes a value in; tells where it went when it left its band just now: side, newest value, band.
    fn push(&mut self, value: f64) -> Option<(Side, f64, Band)> {
        let signal = self.signal;
        self.values.push_back(value);
        if self.values.len() > WINDOW + signal.n_recent() {
            self.values.pop_front();
        }
        let values = self.values.make_contiguous();
        let (learned, newest) = values.split_at(values.len().checked_sub(signal.n_recent())?);
        let recent = signal.recent(newest);
        if let Some((_, band, n_steps)) = &mut self.outside {
            *n_steps += 1;
            let is_within = |band: &Band| (band.low..=band.high).contains(&recent);
            // Too much waiting stays too much however long it lasts, so what is usual by now must hold the newest steps, too.
            if is_within(band) || (*n_steps > WINDOW && signal.band(learned).is_some_and(|usual| is_within(&usual))) {
                self.outside = None;
            }
            return None;
        }
        // Too much waiting is too much from the start.
        let unlearned = Band { low: 0.0, median: 0.0, high: MOST_WAITING };
        let band = signal.band(learned).or((signal == Signal::DataWait).then_some(unlearned))?;
        let side = if recent > band.high {
            Side::Above
        } else if recent < band.low {
            Side::Below
        } else {
            return None;
        };
        self.outside = Some((side, band, 0));
        Some((side, recent, band))
    }
}

/// What is known of a run before its first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthOptions {
    /// Steps in which rates come up.
    pub warmup_steps: usize,
    pub epochs: usize,
    /// Memory of the process, as planned; 0 where that is not known.
    pub planned_bytes: u64,
}

/// Follows a run.
pub struct Health {
    options: HealthOptions,
    watches: [Watch; 5],
    /// Updates that were left out, after each of the last steps.
    skipped: VecDeque<usize>,
    /// As the newest report counts them.
    n_skipped: usize,
    skips_told: bool,
    process: ProcessMemory,
    gpu: GpuMemory,
    /// Whether the card was held back, in the last reports.
    held_back: VecDeque<bool>,
    held_back_told: bool,
    nothing_found_told: bool,
    /// The loader's slowest stage, as it says.
    slowest_stage: Option<&'static str>,
    /// The first epoch of this process; a resumed run begins later than at 0.
    first_epoch: Option<usize>,
    epoch: usize,
    step: usize,
}

impl Health {
    pub fn new(options: HealthOptions) -> Self {
        Self {
            options,
            watches: Signal::ALL.map(Watch::new),
            skipped: VecDeque::new(),
            n_skipped: 0,
            skips_told: false,
            process: ProcessMemory::default(),
            gpu: GpuMemory::default(),
            held_back: VecDeque::new(),
            held_back_told: false,
            nothing_found_told: false,
            slowest_stage: None,
            first_epoch: None,
            epoch: 0,
            step: 0,
        }
    }

    /// What the run needs of the process's memory, as planned.
    pub fn set_planned_bytes(&mut self, bytes: u64) {
        self.options.planned_bytes = bytes;
    }

    /// Names the stage of the loader that takes the most time, for explanations.
    pub fn set_slowest_stage(&mut self, stage: &'static str) {
        self.slowest_stage = Some(stage);
    }

    /// Takes a step in.
    pub fn step(&mut self, step: &StepReport) -> Vec<Alarm> {
        (self.epoch, self.step) = (step.epoch, step.step);
        self.first_epoch.get_or_insert(step.epoch);
        let mut alarms = Vec::new();
        for watch in &mut self.watches {
            let learns_at_once = matches!(watch.signal, Signal::Speed | Signal::DataWait);
            if step.step < if learns_at_once { 5 } else { self.options.warmup_steps } {
                continue;
            }
            let Some(value) = watch.signal.value(step) else { continue };
            if let Some((side, value, band)) = watch.push(value)
                && let Some(words) = words_of(watch.signal, side, value, &band, self.slowest_stage)
            {
                alarms.push(words.alarm(step.epoch, step.step, value, Some(band)));
            }
        }
        alarms.extend(self.skips(step));
        alarms
    }

    /// Gradients that were not finite, too many of them after the loss scale had time to find its value.
    fn skips(&mut self, step: &StepReport) -> Option<Alarm> {
        // A norm that is no number is an update that could not be made, also where nobody counted it.
        let new = step.n_skipped.saturating_sub(self.n_skipped).max(usize::from(!step.grad_norm.is_finite()));
        self.n_skipped = step.n_skipped;
        let n_before = self.skipped.back().copied().unwrap_or(0);
        self.skipped.push_back(n_before + new);
        if self.skipped.len() > SKIP_WINDOW {
            self.skipped.pop_front();
        }
        let n = n_before + new - self.skipped.front().copied().unwrap_or(0);
        // Told again only after there were few: the number swings around the limit when they come evenly.
        let least = if self.skips_told { MOST_SKIPPED / 2 } else { MOST_SKIPPED };
        let is_many = step.step >= SKIP_WINDOW + SKIP_WINDOW / 2 && n >= least;
        let begins = is_many && !self.skips_told;
        self.skips_told = is_many;
        begins.then(|| {
            let words = Words {
                kind: AlarmKind::UpdatesSkipped,
                what: format!("{n} updates of the last {SKIP_WINDOW} steps were left out, because a gradient was not finite"),
                place: "gradient",
                explanation: "such a gradient changes nothing, so the network stands still for that step; with fp16 now and then one is \
                              normal, many mean that numbers overflow"
                    .to_owned(),
                action: "lower the learning rate (`lr0` a half or a tenth); look at the boxes of the first batches for wild ones",
            };
            words.alarm(step.epoch, step.step, n as f64, None)
        })
    }

    /// Takes a report of the machine in.
    pub fn machine(&mut self, report: &MachineReport) -> Vec<Alarm> {
        let (epoch, step) = (self.epoch, self.step);
        let is_settling = self.first_epoch.is_none_or(|first| epoch < first + SETTLED_EPOCHS);
        let mut alarms = Vec::new();
        let settled_epoch = (!is_settling).then_some(epoch);
        if let Some(growth) = report.process_bytes.and_then(|bytes| self.process.push(bytes, settled_epoch, self.options.planned_bytes)) {
            let (now, what, explanation) = match growth {
                Growth::PastPlan { now, planned } => (
                    now,
                    format!("the process has {} of memory, and {} were planned", gib(now), gib(planned)),
                    "memory is planned before the first step, and no more should be needed; when it is used up, the system ends the program",
                ),
                Growth::Leak { now, grown, n_epochs } => (
                    now,
                    format!("the process's memory grows from epoch to epoch: by {} in {n_epochs} epochs, to {}", gib(grown), gib(now)),
                    "after the first epochs every epoch needs the same; what is never given back uses all memory up in the end, and the \
                     system ends the program",
                ),
            };
            let words = Words {
                kind: AlarmKind::MemoryGrows,
                what,
                place: "memory of the process",
                explanation: explanation.to_owned(),
                action: "stop after this epoch and go on with --resume, which starts with fresh memory; please report it as a fault",
            };
            alarms.push(words.alarm(epoch, step, now as f64, None));
        }
        let Some(gpu) = &report.gpu else { return alarms };
        if let Some((now, usual)) = gpu.memory_used_bytes.and_then(|bytes| self.gpu.push(bytes, is_settling)) {
            let words = Words {
                kind: AlarmKind::GpuMemoryGrows,
                what: format!("{} of the GPU's memory are in use, and {} were usual", gib(now), gib(usual)),
                place: "memory of the GPU",
                explanation: "training takes its memory before the first step and no more, so another program took the rest".to_owned(),
                action: "`nvidia-smi` lists the programs on the card; end those that need not be there",
            };
            alarms.push(words.alarm(epoch, step, now as f64, None));
        }
        let faults: Vec<&str> = gpu.throttle.iter().filter(|reason| reason.is_fault()).map(|reason| reason.title()).collect();
        self.held_back.push_back(!faults.is_empty());
        if self.held_back.len() > RECENT_REPORTS {
            self.held_back.pop_front();
        }
        let n_held = self.held_back.iter().filter(|held| **held).count();
        if n_held >= RECENT_REPORTS - 2 && !self.held_back_told {
            self.held_back_told = true;
            let degrees = gpu.temperature.map(|degrees| format!(" at {degrees} degrees")).unwrap_or_default();
            let clock = gpu.clock_mhz.zip(gpu.max_clock_mhz).map(|(now, most)| format!(", {now} of {most} MHz")).unwrap_or_default();
            let words = Words {
                kind: AlarmKind::GpuHeldBack,
                what: format!(
                    "the GPU is held back by {}{degrees}{clock}",
                    if faults.is_empty() { "itself".to_owned() } else { faults.join(" and ") }
                ),
                place: "GPU clocks",
                explanation: "the card lowers its clocks to protect itself, so every step takes longer".to_owned(),
                action: "let more air through the case, clean the fans, check the card's power cables",
            };
            alarms.push(words.alarm(epoch, step, f64::from(gpu.temperature.unwrap_or(0)), None));
        } else if n_held == 0 {
            self.held_back_told = false;
        }
        alarms
    }

    /// Takes an epoch in.
    pub fn epoch(&mut self, report: &EpochReport) -> Vec<Alarm> {
        let done = report.epoch + 1;
        let is_late = done >= 10 && done as f64 >= 0.4 * self.options.epochs as f64;
        if !is_late || report.metrics.map50 >= 0.001 || report.metrics.n_labels == 0 || self.nothing_found_told {
            return Vec::new();
        }
        self.nothing_found_told = true;
        let words = Words {
            kind: AlarmKind::NothingFound,
            what: format!(
                "after {done} of {} epochs mAP50 is {:.4}: nothing of the val split is found",
                self.options.epochs, report.metrics.map50
            ),
            place: "validation",
            explanation:
                "by now something should be found; usual causes are labels that do not belong to their pictures, classes in another \
                          order in train and val, or a learning rate far off"
                    .to_owned(),
            action: "look at the pictures of the first batches, run `boxwright check`, and try the overfit check: it tells in seconds whether \
                     one batch can be learnt",
        };
        vec![words.alarm(report.epoch, self.step, report.metrics.map50, None)]
    }
}

/// The words of an alarm.
struct Words {
    kind: AlarmKind,
    what: String,
    place: &'static str,
    explanation: String,
    action: &'static str,
}

impl Words {
    fn alarm(self, epoch: usize, step: usize, value: f64, band: Option<Band>) -> Alarm {
        let Self { kind, what, place, explanation, action } = self;
        Alarm { kind, epoch, step, what, place: place.to_owned(), explanation, action: action.to_owned(), value, band }
    }
}

/// What leaving a band means; `None` where that side is no trouble.
fn words_of(signal: Signal, side: Side, value: f64, band: &Band, slowest_stage: Option<&str>) -> Option<Words> {
    let usual = band.median;
    let (kind, what, explanation, action) = match (signal, side) {
        (Signal::Loss, Side::Above) => (
            AlarmKind::LossRises,
            format!("the loss has risen to {value:.3}, and {usual:.3} was usual"),
            "the network gets worse on what it learns: steps are too large, or batches came that are unlike the others".to_owned(),
            "wait for some dozen steps; if it does not come back, stop and go on from the best weights with a lower `lr0`",
        ),
        (Signal::GradNorm, Side::Above) => (
            AlarmKind::GradientGrows,
            format!("the gradient norm has grown to {value:.1}, and {usual:.1} was usual"),
            "gradients longer than 10 are shortened, so the network is safe, but one that keeps growing comes before losses that are no numbers"
                .to_owned(),
            "lower `lr0`, or lengthen the warm-up (`warmup_epochs`); check the labels of the newest pictures",
        ),
        (Signal::GradNorm, Side::Below) => (
            AlarmKind::GradientVanishes,
            format!("the gradient norm has fallen to {value:.2e}, and {usual:.2e} was usual"),
            "there is nothing left to learn from: everything is learnt, or the network sees pictures without boxes".to_owned(),
            "look at the pictures of the batches; if mAP no longer rises, stop here",
        ),
        (Signal::UpdateRatio, Side::Above) => (
            AlarmKind::UpdatesTooLarge,
            format!("an update now changes the weights by {:.3} %, and {:.3} % was usual", 100.0 * value, 100.0 * usual),
            "around 0.1 % is healthy; much more forgets what was learnt".to_owned(),
            "lower `lr0`, or take a larger batch",
        ),
        // Rates that go to 0 at the end of the schedule make small updates, as they should.
        (Signal::UpdateRatio, Side::Below) if value > 1e-7 => return None,
        (Signal::UpdateRatio, Side::Below) => (
            AlarmKind::UpdatesTooSmall,
            format!("an update now changes the weights by {value:.1e} of their size, and {usual:.1e} was usual"),
            "steps this small are lost in rounding, so nothing more is learnt".to_owned(),
            "raise `lr0` or `lrf`, or stop here",
        ),
        (Signal::Speed, Side::Below) => (
            AlarmKind::Slower,
            format!("{value:.1} images/s, and {usual:.1} were usual"),
            "something else uses this machine, the GPU has lowered its clocks, or pictures come more slowly".to_owned(),
            "see the machine's figures: load by other programs, clocks and temperature, data-wait share",
        ),
        (Signal::DataWait, Side::Above) => (
            AlarmKind::WaitsForData,
            format!("the training waits {:.0} % of the time for pictures", 100.0 * value),
            match slowest_stage {
                Some(stage) => format!("reading and preparing pictures is slower than learning from them: {stage} is the slowest stage"),
                None => "reading and preparing pictures is slower than learning from them".to_owned(),
            },
            "keep the dataset on a local disk and close programs that use the processor; pictures that fit into memory are read only once, \
             and smaller files decode faster",
        ),
        (Signal::Loss | Signal::DataWait, Side::Below) | (Signal::Speed, Side::Above) => return None,
    };
    Some(Words { kind, what, place: signal.title(), explanation, action })
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
