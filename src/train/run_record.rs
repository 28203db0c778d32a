//! `run.yaml`: everything that is needed to repeat a run, or to go on with it.
//!
//! In:  the configuration with the batch and the hyper-parameters that it led to, and the dataset.
//! Out: one YAML file; read back, the same configuration.
//!
//! Never guesses: a file that lacks an option was written by another version, which may have done something else.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::Deserialize;
use serde::Serialize;

use super::config::BatchChoice;
use super::config::Hyp;
use super::config::TrainConfig;
use super::error::TrainError;
use super::hyp_choice::HypChoice;
use super::run_folder::write_error;
use super::run_folder::write_whole;

const PROGRAM: &str = concat!("boxwright ", env!("CARGO_PKG_VERSION"));

/// What `run.yaml` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub program: String,
    /// UTC.
    pub started: String,
    pub system: String,
    pub threads: usize,
    /// With the batch and the hyper-parameters that were really used.
    #[serde(flatten)]
    pub config: TrainConfig,
    /// BLAKE3 of class names, splits, file names, file sizes and labels; not of the pixels.
    pub data_blake3: String,
    pub names: Vec<String>,
}

impl RunRecord {
    /// `config` with the batch and the hyper-parameters that it led to. `data` is the dataset as it was opened.
    pub fn new(config: &TrainConfig, batch: usize, hyp: &Hyp, data: &Path, names: &[String], data_blake3: String) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let config = TrainConfig {
            data: absolute(data),
            weights: config.weights.as_deref().map(absolute),
            batch: BatchChoice::Count(batch),
            hyp: HypChoice::Given(Box::new(hyp.clone())),
            set: serde_json::Map::new(),
            ..config.clone()
        };
        Self {
            program: PROGRAM.into(),
            started: utc(SystemTime::now()),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            threads: rayon::current_num_threads(),
            config,
            data_blake3,
            names: names.to_vec(),
        }
    }

    pub fn path(run_dir: &Path) -> PathBuf {
        run_dir.join("run.yaml")
    }

    pub fn write(&self, run_dir: &Path) -> Result<(), TrainError> {
        let path = Self::path(run_dir);
        let text = serde_saphyr::to_string(self).map_err(|error| write_error(&path, std::io::Error::other(error.to_string())))?;
        write_whole(&path, text.as_bytes())
    }

    /// # Errors
    /// The file cannot be read, or another version of the program wrote it with other options.
    pub fn read(run_dir: &Path) -> Result<Self, TrainError> {
        let path = Self::path(run_dir);
        let text = fs::read_to_string(&path).map_err(|source| TrainError::NoRun { path: path.clone(), source })?;
        let fault =
            |reason: String| TrainError::Record { reason: reason.lines().next().unwrap_or_default().to_owned(), path: path.clone() };
        let values: serde_json::Value = serde_saphyr::from_str(&text).map_err(|error| fault(error.to_string()))?;
        let program = values["program"].as_str().unwrap_or("another program").to_owned();
        serde_json::from_value(values)
            .map_err(|error| fault(if program == PROGRAM { error.to_string() } else { format!("{program} wrote it, and {error}") }))
    }
}

/// `2026-03-01T12:00:00Z`. Source of the calendar: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn utc(time: SystemTime) -> String {
    let secs = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, secs) = (secs / 86_400 + 719_468, secs % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months count from March, so that the leap day is the year's last.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", secs / 3600, secs / 60 % 60, secs % 60)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_record_is_read_back_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let hyp = Hyp { lr0: 0.1 + 0.2, lrf: 1e-7, ema_tau: 1e20 / 3.0, ..Hyp::small_data() };
        let names = ["1", "true", "a: b", "bolt"].map(str::to_owned);
        let config = TrainConfig { epochs: 7, patience: 3, ..TrainConfig::new(Path::new("data.yaml")) };
        let record = RunRecord::new(&config, 5, &hyp, Path::new("/d/data.yaml"), &names, "00ff".to_owned());
        record.write(dir.path()).unwrap();
        assert_eq!(RunRecord::read(dir.path()).unwrap(), record);
        assert_eq!(record.config.resolve_hyp(1).unwrap(), (hyp, vec![]));
    }

    #[test]
    fn a_record_that_cannot_be_read_says_why() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(RunRecord::read(dir.path()), Err(TrainError::NoRun { .. })));
        for text in ["- 1\n", "program: boxwright 0.0.1\nepochs: [\n", "program: boxwright 0.0.1\nhyp: {given: {lr0: 1}}\n"] {
            fs::write(RunRecord::path(dir.path()), text).unwrap();
            let error = RunRecord::read(dir.path()).unwrap_err();
            assert!(matches!(&error, TrainError::Record { .. }) && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn the_calendar_knows_leap_years() {
        let at = |secs| utc(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_772_323_199), "2026-02-28T23:59:59Z");
        assert_eq!(at(1_772_323_200), "2026-03-01T00:00:00Z");
    }
}
