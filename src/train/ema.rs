//! How much an exponential moving average keeps at each update.
//!
//! The average covers every floating-point value of a network, running statistics too; it is what is validated and kept. It
//! follows quickly at first and slowly later: `decay * (1 - exp(-updates / tau))`.
//!
//! The averaging itself is `engine::cpu::optimizer::ema_update`. Source: spec 7.7.

use super::config::Hyp;

/// The share that the average keeps at update `n_updates`, counted from 1.
pub fn decay(hyp: &Hyp, n_updates: usize) -> f64 {
    hyp.ema_decay * (1.0 - (-(n_updates as f64) / hyp.ema_tau).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decay_grows_as_published() {
        // Of the golden numbers, `info_loss.json`.
        for (n_updates, expected) in [
            (1, 0.000_499_825_033_328_626),
            (100, 0.048_765_698_441_736_054),
            (2000, 0.632_057_346_772_674_8),
            (10_000, 0.993_162_726_795_614_5),
            (200_000, 0.9999),
        ] {
            let ours = decay(&Hyp::scratch_high(), n_updates);
            assert!((ours - expected).abs() < 1e-12, "{n_updates}: {ours}");
        }
    }
}
