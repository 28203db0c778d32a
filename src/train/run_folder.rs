//! The run folder: run.yaml, results.csv, events.jsonl, weights.
//!
//! In:  what a run is made of, then its events and figures.
//! Out: files that are whole at any moment: each is written under another name, flushed and renamed; `events.jsonl`, which
//! only grows, is cut back to its last whole line when a write fails. So a full disk costs the newest line, never an older file.
//!
//! Never decides what is worth keeping. Source of `results.csv`: the published trainer, column for column.

use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::Value;

use super::config::Hyp;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::EpochReport;
use crate::dataset::Dataset;
use crate::engine::Device;

/// The columns of the public YOLOv9 trainer. `val/*` stay 0, as there with a dual model: validation does not compute the loss.
const COLUMNS: [&str; 14] = [
    "epoch",
    "train/box_loss",
    "train/cls_loss",
    "train/dfl_loss",
    "metrics/precision",
    "metrics/recall",
    "metrics/mAP_0.5",
    "metrics/mAP_0.5:0.95",
    "val/box_loss",
    "val/cls_loss",
    "val/dfl_loss",
    "x/lr0",
    "x/lr1",
    "x/lr2",
];
const COLUMN_WIDTH: usize = 20;

/// Which weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Last,
    Best,
}

/// An open run folder.
pub struct RunFolder {
    pub dir: PathBuf,
    /// Text of results.csv.
    results: String,
    events: File,
    /// Length of events.jsonl up to its last whole line.
    events_len: u64,
}

/// What `run.yaml` holds: everything needed to repeat the run.
#[derive(Debug, serde::Serialize)]
pub struct RunRecord {
    pub program: String,
    /// UTC.
    pub started: String,
    pub system: String,
    pub threads: usize,
    pub device: String,
    pub model: String,
    pub weights: Option<PathBuf>,
    pub epochs: usize,
    pub batch: usize,
    pub imgsz: u32,
    pub close_mosaic: usize,
    pub seed: u64,
    pub data: PathBuf,
    /// BLAKE3 of class names, splits, file names and labels; not of the pixels.
    pub data_blake3: String,
    pub names: Vec<String>,
    pub hyp: Hyp,
}

impl RunRecord {
    /// `config` with the batch and the hyper-parameters that it led to.
    pub fn new(config: &TrainConfig, batch: usize, hyp: &Hyp, dataset: &Dataset) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            program: concat!("boxwright ", env!("CARGO_PKG_VERSION")).into(),
            started: utc(SystemTime::now()),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            threads: rayon::current_num_threads(),
            device: match config.device {
                Device::Cpu => "cpu".into(),
                Device::Cuda(index) => index.to_string(),
            },
            model: config.model.to_string(),
            weights: config.weights.as_deref().map(absolute),
            epochs: config.epochs,
            batch,
            imgsz: config.imgsz,
            close_mosaic: config.close_mosaic,
            seed: config.seed,
            data: absolute(&dataset.source),
            data_blake3: dataset_hash(dataset),
            names: dataset.names.clone(),
            hyp: hyp.clone(),
        }
    }
}

impl RunFolder {
    /// Makes `project/name`, or `name2`, `name3`, … where that exists, with its subfolders and an empty `events.jsonl`.
    pub fn create(project: &Path, name: &str) -> Result<Self, TrainError> {
        fs::create_dir_all(project).map_err(|source| write_error(project, source))?;
        let mut dir = project.join(name);
        for number in 2.. {
            match fs::create_dir(&dir) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dir = project.join(format!("{name}{number}")),
                Err(source) => return Err(write_error(&dir, source)),
            }
        }
        for folder in ["weights", "report"] {
            let folder = dir.join(folder);
            fs::create_dir(&folder).map_err(|source| write_error(&folder, source))?;
        }
        let path = dir.join("events.jsonl");
        let events = File::create(&path).map_err(|source| write_error(&path, source))?;
        let mut results = String::new();
        for column in COLUMNS {
            write_cell(&mut results, column);
        }
        end_row(&mut results);
        Ok(Self { dir, results, events, events_len: 0 })
    }

    pub fn weights_path(&self, kept: Kept) -> PathBuf {
        self.dir.join("weights").join(match kept {
            Kept::Last => "last.safetensors",
            Kept::Best => "best.safetensors",
        })
    }

    pub fn write_record(&self, record: &RunRecord) -> Result<(), TrainError> {
        let path = self.dir.join("run.yaml");
        let text = serde_saphyr::to_string(record).map_err(|error| write_error(&path, io::Error::other(error.to_string())))?;
        write_whole(&path, text.as_bytes())
    }

    /// Appends a line to `events.jsonl`.
    pub fn write_event(&mut self, event: &Value) -> Result<(), TrainError> {
        let line = format!("{event}\n");
        if let Err(source) = self.events.write_all(line.as_bytes()) {
            // Half a line would make the whole file unreadable for strict readers; if cutting fails too, so be it.
            self.events.set_len(self.events_len).ok();
            return Err(write_error(&self.dir.join("events.jsonl"), source));
        }
        self.events_len += line.len() as u64;
        Ok(())
    }

    /// Adds a row to `results.csv`.
    pub fn write_results(&mut self, epoch: &EpochReport) -> Result<(), TrainError> {
        let metrics = &epoch.metrics;
        let values = [
            epoch.epoch as f64,
            f64::from(epoch.box_loss),
            f64::from(epoch.cls_loss),
            f64::from(epoch.dfl_loss),
            metrics.precision,
            metrics.recall,
            metrics.map50,
            metrics.map50_95,
            0.0,
            0.0,
            0.0,
            epoch.lr[0],
            epoch.lr[1],
            epoch.lr[2],
        ];
        for value in values {
            write_cell(&mut self.results, &five_digits(value));
        }
        end_row(&mut self.results);
        write_whole(&self.dir.join("results.csv"), self.results.as_bytes())
    }
}

/// Writes a file under a temporary name, flushes it to the disk, and renames it.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            // As any other file: temporary ones can be read by their owner alone.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.prefix(".writing-").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| write_error(path, source))
}

fn write_error(path: &Path, source: io::Error) -> TrainError {
    TrainError::Write { path: path.display().to_string(), source }
}

fn write_cell(row: &mut String, cell: &str) {
    write!(row, "{cell:>COLUMN_WIDTH$},").expect("writing to a String cannot fail");
}

/// The published file has no comma at the end of a line.
fn end_row(row: &mut String) {
    row.pop();
    row.push('\n');
}

/// As C's `%.5g`: five significant digits, no trailing zeros, an exponent where it is shorter.
fn five_digits(value: f64) -> String {
    const DIGITS: i32 = 5;
    if !value.is_finite() {
        return if value.is_nan() {
            "nan".into()
        } else if value > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    // The exponent after rounding, which may carry into the next power of ten.
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a whole exponent");
    let trimmed = |digits: &str| {
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.').to_owned() } else { digits.to_owned() }
    };
    if (-4..DIGITS).contains(&exponent) {
        trimmed(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize))
    } else {
        format!("{}e{}{:02}", trimmed(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

/// BLAKE3 over class names, and for every image its split, its path below the root and the bytes of its label file.
fn dataset_hash(dataset: &Dataset) -> String {
    let mut hasher = blake3::Hasher::new();
    // Lengths go in first, so that moving a byte from one field to the next changes the hash.
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for name in &dataset.names {
        field(name.as_bytes());
    }
    for image in &dataset.images {
        field(image.split.name().as_bytes());
        let path = image.path.strip_prefix(&dataset.root).unwrap_or(&image.path);
        field(path.to_string_lossy().as_bytes());
        // An absent file is a background image, as an empty one.
        field(&fs::read(&image.label_path).unwrap_or_default());
    }
    hasher.finalize().to_hex().to_string()
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
    use crate::eval::Metrics;
    use std::time::Duration;

    #[test]
    fn numbers_are_written_as_the_published_trainer_does() {
        for (value, expected) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.50371943, "0.50372"),
            (1.5, "1.5"),
            (0.0001, "0.0001"),
            (0.00001234567, "1.2346e-05"),
            (99999.6, "1e+05"),
            (12345.6, "12346"),
            (0.1, "0.1"),
            (-2.25, "-2.25"),
            (1e20, "1e+20"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(five_digits(value), expected);
        }
    }

    #[test]
    fn results_have_the_published_header_and_widths() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(folder.path(), "exp").unwrap();
        let metrics = Metrics { precision: 0.5, recall: 0.25, map50: 0.123456, map50_95: 0.01, ..Metrics::default() };
        let epoch = EpochReport { epoch: 0, box_loss: 2.5, cls_loss: 3.0, dfl_loss: 1.0, metrics, lr: [0.07, 0.001, 0.001], secs: 1.0 };
        run.write_results(&epoch).unwrap();
        run.write_results(&EpochReport { epoch: 1, ..epoch }).unwrap();
        let text = fs::read_to_string(run.dir.join("results.csv")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() == 14 * 21 - 1), "{text}");
        assert!(lines[0].starts_with("               epoch,      train/box_loss,"));
        assert!(lines[0].ends_with("               x/lr2"));
        let cells: Vec<&str> = lines[2].split(',').map(str::trim).collect();
        assert_eq!(cells, ["1", "2.5", "3", "1", "0.5", "0.25", "0.12346", "0.01", "0", "0", "0", "0.07", "0.001", "0.001"]);
    }

    #[test]
    fn a_name_that_exists_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..3)
            .map(|_| RunFolder::create(folder.path(), "exp").unwrap().dir.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["exp", "exp2", "exp3"]);
    }

    #[test]
    fn a_project_that_cannot_be_made_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = RunFolder::create(&file.join("runs"), "exp").err().unwrap();
        assert!(matches!(&error, TrainError::Write { .. }) && error.hint().is_some(), "{error}");
    }

    #[test]
    fn events_are_one_object_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(folder.path(), "exp").unwrap();
        for text in ["one", "two\nlines"] {
            run.write_event(&serde_json::json!({"event": "note", "text": text})).unwrap();
        }
        let text = fs::read_to_string(run.dir.join("events.jsonl")).unwrap();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events[1]["text"], "two\nlines");
        assert_eq!(events.len(), 2);
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
