//! Learning rate, momentum and accumulation of every step.
//!
//! In:  hyper-parameters, batch size, batches per epoch, epochs; then the position of a batch.
//! Out: what the optimizer does after that batch.
//!
//! A straight line, a cosine, a cosine in the second half, or always `lr0`; after a warm-up in which biases come down from a high
//! rate and everything else comes up from zero. As published, the rate lags one epoch behind after the warm-up: epoch `e` runs with the
//! factor of `e - 1`, except the epoch in which the warm-up ends, which goes on with its own.
//!
//! Never touches parameters. Source: spec 7.3 to 7.5; checked against `tests/golden/schedule.json`.

use std::f64::consts::PI;

use super::config::Hyp;
use super::config::LrSchedule;

/// What the optimizer does after a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSettings {
    /// Of the three groups: biases, weights with decay, batch-norm factors.
    pub lr: [f64; 3],
    pub momentum: f64,
    /// Batches between two updates.
    pub accumulate: usize,
}

/// The schedule of a whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    hyp: Hyp,
    batch: usize,
    nominal_batch: usize,
    batches_per_epoch: usize,
    epochs: usize,
    /// Position of the last batch of the warm-up.
    warmup: usize,
}

impl Schedule {
    pub fn new(hyp: &Hyp, batch: usize, batches_per_epoch: usize, epochs: usize) -> Self {
        let asked = (hyp.warmup_epochs * batches_per_epoch as f64).round_ties_even() as usize;
        Self {
            hyp: hyp.clone(),
            batch,
            nominal_batch: hyp.accumulated_batch(batch),
            batches_per_epoch,
            epochs,
            warmup: asked.max(hyp.warmup_min_batches),
        }
    }

    /// The settings after batch `position`, counted over all epochs from 0.
    pub fn at(&self, position: usize) -> StepSettings {
        let hyp = &self.hyp;
        let epoch = position / self.batches_per_epoch;
        let ratio = self.nominal_batch as f64 / self.batch as f64;
        if position <= self.warmup && self.warmup > 0 {
            let done = position as f64 / self.warmup as f64;
            let between = |from: f64, to: f64| from + done * (to - from);
            let lr = hyp.lr0 * self.factor(epoch);
            return StepSettings {
                lr: [between(hyp.warmup_bias_lr, lr), between(0.0, lr), between(0.0, lr)],
                momentum: between(hyp.warmup_momentum, hyp.momentum),
                accumulate: between(1.0, ratio).round_ties_even().max(1.0) as usize,
            };
        }
        let warmup_epoch = self.warmup / self.batches_per_epoch;
        let lr = hyp.lr0 * self.factor(if epoch == warmup_epoch { epoch } else { epoch - 1 });
        StepSettings { lr: [lr; 3], momentum: hyp.momentum, accumulate: ratio.round_ties_even().max(1.0) as usize }
    }

    /// Batches in which rates come up.
    pub fn warmup_steps(&self) -> usize {
        self.warmup
    }

    /// Of the second group, scaled to the pictures that one update sees.
    pub fn weight_decay(&self) -> f64 {
        let accumulate = (self.nominal_batch as f64 / self.batch as f64).round_ties_even().max(1.0);
        self.hyp.weight_decay * self.batch as f64 * accumulate / self.nominal_batch as f64
    }

    /// Share of `lr0` in an epoch.
    fn factor(&self, epoch: usize) -> f64 {
        let last = self.hyp.lrf;
        let line = |done: f64| (1.0 - done) * (1.0 - last) + last;
        let cosine = |done: f64| (1.0 - (PI * done).cos()) / 2.0 * (last - 1.0) + 1.0;
        let half = self.epochs / 2;
        match self.hyp.lr_schedule {
            LrSchedule::Linear => line(epoch as f64 / self.epochs as f64),
            LrSchedule::Cosine => cosine(epoch as f64 / self.epochs as f64),
            LrSchedule::FlatCosine if epoch <= half => 1.0,
            // With an odd number of epochs the last would begin to climb again.
            LrSchedule::FlatCosine => cosine(((epoch - half) as f64 / half.max(1) as f64).min(1.0)),
            LrSchedule::Fixed => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::Value;

    fn golden() -> Value {
        serde_json::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/schedule.json"))).unwrap()
    }

    fn close(ours: f64, theirs: f64, what: &str) {
        assert!((ours - theirs).abs() < 1e-12, "{what}: {ours} instead of {theirs}");
    }

    #[test]
    fn every_batch_has_the_published_rates_momentum_and_accumulation() {
        let schedule = Schedule::new(&Hyp::scratch_high(), 16, 25, 20);
        let rows: Vec<Vec<f64>> = serde_json::from_value(golden()["linear_iterations"].clone()).unwrap();
        assert_eq!(rows.len(), 500);
        let mut last_update = 0;
        for row in rows {
            let position = row[0] as usize;
            let settings = schedule.at(position);
            for group in 0..3 {
                close(settings.lr[group], row[2 + group], &format!("batch {position}, lr of group {group}"));
                close(settings.momentum, row[5 + group], &format!("batch {position}, momentum"));
            }
            assert_eq!(settings.accumulate, row[8] as usize, "batch {position}");
            // As the training loop decides.
            let updates = position + 1 - last_update >= settings.accumulate;
            assert_eq!(updates, row[9] == 1.0, "batch {position}");
            if updates {
                last_update = position + 1;
            }
        }
    }

    #[test]
    fn every_schedule_ends_each_epoch_as_published() {
        let schedules = [
            ("linear", LrSchedule::Linear),
            ("cosine", LrSchedule::Cosine),
            ("flat_cosine", LrSchedule::FlatCosine),
            ("fixed", LrSchedule::Fixed),
        ];
        for (name, lr_schedule) in schedules {
            let schedule = Schedule::new(&Hyp { lr_schedule, ..Hyp::scratch_high() }, 16, 25, 20);
            for epoch in golden()[name]["epochs"].as_array().unwrap() {
                let index = epoch["epoch"].as_u64().unwrap() as usize;
                let logged: Vec<f64> = serde_json::from_value(epoch["lr_logged"].clone()).unwrap();
                let ours = schedule.at(index * 25 + 24).lr;
                for group in 0..3 {
                    close(ours[group], logged[group], &format!("{name}, epoch {index}, group {group}"));
                }
            }
        }
    }

    #[test]
    fn weight_decay_is_scaled_to_the_pictures_of_an_update() {
        for (batch, decay) in golden()["weight_decay_scaled_for_batch"].as_object().unwrap() {
            let schedule = Schedule::new(&Hyp::scratch_high(), batch.parse().unwrap(), 25, 20);
            close(schedule.weight_decay(), decay.as_f64().unwrap(), batch);
        }
        close(Schedule::new(&Hyp { nominal_batch: 0, ..Hyp::scratch_high() }, 8, 25, 20).weight_decay(), 0.0005, "own batch");
    }

    #[test]
    fn without_a_warm_up_the_first_batch_runs_at_full_rate() {
        let hyp = Hyp { warmup_epochs: 0.0, warmup_min_batches: 0, nominal_batch: 0, ..Hyp::scratch_high() };
        let settings = Schedule::new(&hyp, 8, 1, 10).at(0);
        assert_eq!(settings, StepSettings { lr: [0.01; 3], momentum: 0.937, accumulate: 1 });
    }

    #[test]
    fn a_flat_cosine_of_an_odd_number_of_epochs_stays_down() {
        let hyp = Hyp { lr_schedule: LrSchedule::FlatCosine, warmup_epochs: 0.0, warmup_min_batches: 0, ..Hyp::scratch_high() };
        for epochs in [1, 3, 7] {
            let schedule = Schedule::new(&hyp, 16, 1, epochs);
            let rates: Vec<f64> = (0..epochs).map(|epoch| schedule.at(epoch).lr[0]).collect();
            assert!(rates.is_sorted_by(|a, b| a >= b) && rates.iter().all(|rate| (0.0001..=0.01).contains(rate)), "{rates:?}");
        }
    }

    #[test]
    fn a_run_shorter_than_its_warm_up_is_no_trouble() {
        let schedule = Schedule::new(&Hyp::scratch_high(), 8, 1, 2);
        assert!(schedule.at(1).lr[1] < 0.001);
    }
}
