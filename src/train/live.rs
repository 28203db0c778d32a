//! The figures of a run while it trains: what each step and epoch tells beside its losses, the machine, the pace, alarms.
//!
//! In:  outcomes of steps, epochs, and how long the device had nothing to do because no batch was there.
//! Out: filled reports, and the events that follow from them.
//!
//! Nothing here waits for a device: outcomes come one step late on a GPU, as the losses do. Never decides anything about the run.

use std::time::Duration;

use super::event::BranchLosses;
use super::event::EpochReport;
use super::event::Pace;
use super::event::StepReport;
use super::event::TrainEvent;
use super::health::Alarm;
use super::health::Health;
use super::health::HealthOptions;
use super::machine::MachineMonitor;
use super::stepper::StepOutcome;
use crate::engine::Device;

/// First steps of a process, which make room and warm caches up; they are not part of the pace.
const SLOW_STEPS: usize = 5;
/// Steps that the pace is measured over.
const PACE_STEPS: usize = 20;

/// What is the same during the whole run.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    pub device: Device,
    pub is_dual: bool,
    /// Largest norm of the gradient.
    pub max_norm: f32,
    pub steps_per_epoch: usize,
    /// Up to when the machine was looked at before a resume.
    pub machine_secs: f64,
    pub health: HealthOptions,
}

/// Sums over the epoch so far.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct EpochSums {
    n_steps: usize,
    n_images: usize,
    n_updates: usize,
    n_clipped: usize,
    n_skipped: usize,
    /// Losses of the heads in order.
    of_heads: [[f64; 3]; 2],
    update_ratios: f64,
    secs: f64,
    waited_secs: f64,
}

impl EpochSums {
    /// Steps of which there are losses.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }
}

/// A step of which the outcome has come.
#[derive(Clone, Copy, Debug)]
pub struct StepFacts<'a> {
    pub epoch: usize,
    pub step: usize,
    pub n_images: usize,
    /// It ended with an update.
    pub updates: bool,
    pub lrs: [f64; 3],
    /// Norm of the gradient at the last update that was made.
    pub grad_norm: f32,
    /// Since the outcome of the step before.
    pub secs: f32,
    pub outcome: &'a StepOutcome,
}

/// The figures of a run.
pub struct Live {
    options: LiveOptions,
    health: Health,
    monitor: MachineMonitor,
    /// Since the outcome of the step before.
    waited: Duration,
    n_skipped: usize,
    pace: PaceMeter,
}

impl Live {
    pub fn new(options: LiveOptions) -> Self {
        Self {
            options,
            health: Health::new(options.health),
            monitor: MachineMonitor::start(options.device, options.machine_secs),
            waited: Duration::ZERO,
            n_skipped: 0,
            pace: PaceMeter::default(),
        }
    }

    /// The device had nothing to do for so long, because no batch was there.
    pub fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// What the run needs of the process's memory, as planned.
    pub fn set_planned_bytes(&mut self, bytes: u64) {
        self.health.set_planned_bytes(bytes);
    }

    /// Names the stage of the loader that takes the most time.
    pub fn set_slowest_stage(&mut self, stage: &'static str) {
        self.health.set_slowest_stage(stage);
    }

    /// An update was left out, of a step of which there is nothing else to tell.
    pub fn skipped(&mut self, sums: &mut EpochSums) {
        self.n_skipped += 1;
        sums.n_skipped += 1;
    }

    /// A step's report, and what follows from it; the events come after the report. Adds the step to the epoch's sums.
    pub fn step(&mut self, facts: &StepFacts, sums: &mut EpochSums) -> (StepReport, Vec<TrainEvent>) {
        let StepFacts { epoch, step, n_images, updates, lrs, grad_norm, secs, outcome } = *facts;
        let [box_loss, cls_loss, dfl_loss, ..] = outcome.items;
        if outcome.skipped {
            self.skipped(sums);
        }
        let secs = secs.max(1e-6);
        let waited = std::mem::take(&mut self.waited).as_secs_f32().min(secs);
        let heads = [branch(&outcome.items[4..7]), branch(&outcome.items[7..10])];
        let (aux, main) = if self.options.is_dual { (Some(heads[0]), heads[1]) } else { (None, heads[0]) };
        let clipped = grad_norm > self.options.max_norm;
        let report = StepReport {
            epoch,
            step,
            box_loss,
            cls_loss,
            dfl_loss,
            lr: lrs[1],
            grad_norm,
            images_per_sec: n_images as f32 / secs,
            main: Some(main),
            aux,
            lrs,
            clipped,
            update_ratio: Some(outcome.update_ratio),
            data_wait: Some(waited / secs),
            n_skipped: self.n_skipped,
        };

        sums.n_steps += 1;
        sums.n_images += n_images;
        sums.secs += f64::from(secs);
        sums.waited_secs += f64::from(waited);
        for (sums, head) in sums.of_heads.iter_mut().zip(heads) {
            for (sum, loss) in sums.iter_mut().zip([head.box_loss, head.cls_loss, head.dfl_loss]) {
                *sum += f64::from(loss);
            }
        }
        if updates && !outcome.skipped {
            sums.n_updates += 1;
            sums.n_clipped += usize::from(clipped);
            sums.update_ratios += f64::from(outcome.update_ratio);
        }

        let mut events = alarms(self.health.step(&report));
        let n_steps = self.options.steps_per_epoch * self.options.health.epochs;
        let left = n_steps.saturating_sub(step + 1);
        events.extend(self.pace.step(f64::from(secs), n_images, self.options.steps_per_epoch, left).map(TrainEvent::Pace));
        events.extend(self.machine());
        (report, events)
    }

    /// What the machine did since the last call. Costs nothing where nothing new is there.
    pub fn machine(&mut self) -> Vec<TrainEvent> {
        let mut events = Vec::new();
        for report in self.monitor.take() {
            let found = self.health.machine(&report);
            events.push(TrainEvent::Machine(report));
            events.extend(alarms(found));
        }
        events
    }

    /// Fills the report of an epoch with the means of its steps. The events come after the report.
    pub fn epoch(&mut self, report: EpochReport, sums: &EpochSums) -> (EpochReport, Vec<TrainEvent>) {
        let n = sums.n_steps.max(1) as f64;
        let means = sums.of_heads.map(|head| branch(&head.map(|sum| (sum / n) as f32)));
        let (aux, main) = if self.options.is_dual { (Some(means[0]), means[1]) } else { (None, means[0]) };
        let n_updates = sums.n_updates.max(1) as f64;
        let secs = sums.secs.max(1e-6);
        let report = EpochReport {
            main: Some(main),
            aux,
            clip_share: (sums.n_clipped as f64 / n_updates) as f32,
            update_ratio: (sums.n_updates > 0).then_some((sums.update_ratios / n_updates) as f32),
            data_wait: Some((sums.waited_secs / secs) as f32),
            images_per_sec: (sums.n_images as f64 / secs) as f32,
            n_skipped: sums.n_skipped,
            ..report
        };
        let events = alarms(self.health.epoch(&report));
        (report, events)
    }
}

fn alarms(found: Vec<Alarm>) -> Vec<TrainEvent> {
    found.into_iter().map(TrainEvent::Alarm).collect()
}

fn branch(items: &[f32]) -> BranchLosses {
    BranchLosses { box_loss: items[0], cls_loss: items[1], dfl_loss: items[2] }
}

/// Measures the first steps.
#[derive(Default)]
struct PaceMeter {
    n_steps: usize,
    n_images: usize,
    secs: f64,
}

impl PaceMeter {
    /// Takes a step in; tells the pace once.
    fn step(&mut self, secs: f64, n_images: usize, steps_per_epoch: usize, steps_left: usize) -> Option<Pace> {
        self.n_steps += 1;
        if self.n_steps <= SLOW_STEPS || self.n_steps > SLOW_STEPS + PACE_STEPS {
            return None;
        }
        self.secs += secs;
        self.n_images += n_images;
        if self.n_steps < SLOW_STEPS + PACE_STEPS {
            return None;
        }
        let secs_per_step = self.secs / PACE_STEPS as f64;
        Some(Pace {
            n_steps: PACE_STEPS,
            images_per_sec: (self.n_images as f64 / self.secs) as f32,
            secs_per_epoch: secs_per_step * steps_per_epoch as f64,
            secs_left: secs_per_step * steps_left as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(is_dual: bool) -> Live {
        let health = HealthOptions { warmup_steps: 0, epochs: 10, planned_bytes: 0 };
        Live::new(LiveOptions { device: Device::Cpu, is_dual, max_norm: 10.0, steps_per_epoch: 4, machine_secs: 0.0, health })
    }

    const OUTCOME: StepOutcome = StepOutcome {
        step: 0,
        items: [3.0, 6.0, 1.5, 42.0, 1.0, 2.0, 0.5, 2.0, 4.0, 1.0],
        grad_norm: 12.0,
        update_ratio: 0.002,
        skipped: false,
    };

    const FACTS: StepFacts =
        StepFacts { epoch: 0, step: 0, n_images: 4, updates: true, lrs: [0.1, 0.01, 0.02], grad_norm: 12.0, secs: 0.5, outcome: &OUTCOME };

    #[test]
    fn a_step_tells_both_branches_clipping_speed_and_waiting() {
        let mut live = live(true);
        live.waited(Duration::from_millis(125));
        let mut sums = EpochSums::default();
        let (report, _) = live.step(&FACTS, &mut sums);
        assert_eq!(report.aux, Some(BranchLosses { box_loss: 1.0, cls_loss: 2.0, dfl_loss: 0.5 }));
        assert_eq!(report.main.map(|main| main.sum()), Some(7.0));
        assert_eq!((report.images_per_sec, report.data_wait, report.clipped, report.lr), (8.0, Some(0.25), true, 0.01));
        let (next, _) = live.step(&StepFacts { step: 1, grad_norm: 9.0, ..FACTS }, &mut sums);
        assert_eq!((next.data_wait, next.clipped), (Some(0.0), false));
    }

    #[test]
    fn without_an_auxiliary_branch_the_first_head_is_the_main_one() {
        let (report, _) = live(false).step(&FACTS, &mut EpochSums::default());
        assert_eq!((report.main.map(|main| main.sum()), report.aux), (Some(3.5), None));
    }

    #[test]
    fn an_epoch_has_the_means_of_its_steps_and_counts_updates_alone() {
        let mut live = live(true);
        let mut sums = EpochSums::default();
        live.waited(Duration::from_millis(500));
        live.step(&FACTS, &mut sums);
        // No update: its norm is that of the one before.
        live.step(&StepFacts { step: 1, updates: false, ..FACTS }, &mut sums);
        let skipped = StepOutcome { skipped: true, ..OUTCOME };
        live.step(&StepFacts { step: 2, outcome: &skipped, ..FACTS }, &mut sums);
        let short = StepOutcome { update_ratio: 0.004, items: [0.0; 10], ..OUTCOME };
        let (last, _) = live.step(&StepFacts { step: 3, grad_norm: 1.0, outcome: &short, ..FACTS }, &mut sums);
        assert_eq!(last.n_skipped, 1);
        let (epoch, _) = live.epoch(EpochReport::default(), &sums);
        assert_eq!((epoch.clip_share, epoch.n_skipped, epoch.images_per_sec, epoch.data_wait), (0.5, 1, 8.0, Some(0.25)));
        assert!(epoch.update_ratio.is_some_and(|ratio| (ratio - 0.003).abs() < 1e-6), "{:?}", epoch.update_ratio);
        assert_eq!(epoch.main, Some(BranchLosses { box_loss: 1.5, cls_loss: 3.0, dfl_loss: 0.75 }));
    }

    #[test]
    fn the_pace_is_told_once_after_the_first_steps_were_measured() {
        let mut live = live(true);
        let paces: Vec<(usize, Pace)> = (0..40)
            .flat_map(|step| {
                let secs = if step < SLOW_STEPS { 100.0 } else { 0.5 };
                let (_, events) = live.step(&StepFacts { step, secs, ..FACTS }, &mut EpochSums::default());
                events.into_iter().filter_map(move |event| if let TrainEvent::Pace(pace) = event { Some((step, pace)) } else { None })
            })
            .collect();
        let expected = Pace { n_steps: 20, images_per_sec: 8.0, secs_per_epoch: 2.0, secs_left: 7.5 };
        assert_eq!(paces, [(24, expected)]);
    }
}
