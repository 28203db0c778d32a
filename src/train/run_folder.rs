//! The run folder: results.csv, events.jsonl, weights; who holds it is the one process that trains the run.
//!
//! In:  the events and figures of a run that begins or goes on.
//! Out: files that are whole at any moment: each is written under another name, flushed and renamed; `events.jsonl` and
//! `results.csv`, which only grow, are cut back to the last whole line when a write fails. So a full disk costs the newest line,
//! never an older file. They are flushed before a state that builds on them is written.
//!
//! Never decides what is worth keeping. Source of `results.csv`: the published trainer, column for column.

use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::io::Seek as _;
use std::io::SeekFrom;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;

use super::error::TrainError;
use super::event::EpochReport;
use super::run_lock::RunLock;

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
    /// Those after this epoch.
    Epoch(usize),
}

impl Kept {
    pub fn path(self, run_dir: &Path) -> PathBuf {
        run_dir.join("weights").join(match self {
            Self::Last => "last.safetensors".to_owned(),
            Self::Best => "best.safetensors".to_owned(),
            Self::Epoch(epoch) => format!("epoch{epoch}.safetensors"),
        })
    }
}

/// An open run folder.
pub struct RunFolder {
    pub dir: PathBuf,
    /// What stands before the next row of results.csv: the header, where it has none.
    unwritten: String,
    events: File,
    /// Length of events.jsonl up to its last whole line.
    pub events_len: u64,
    _lock: RunLock,
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
        let lock = RunLock::take(&dir)?;
        Self::open(&dir, lock, 0, 0)
    }

    /// Opens the folder of a run that goes on. Of `events.jsonl` the first `events_len` bytes stay, of `results.csv` the rows
    /// of epochs below `epochs_done`; the rest is of steps that come again.
    pub fn open(dir: &Path, lock: RunLock, events_len: u64, epochs_done: usize) -> Result<Self, TrainError> {
        for folder in ["weights", "state", "report"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).map_err(|source| write_error(&folder, source))?;
        }
        let path = dir.join("events.jsonl");
        let open = || -> io::Result<(File, u64)> {
            let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            let mut kept = Vec::new();
            (&mut file).take(events_len).read_to_end(&mut kept)?;
            let whole = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
            file.set_len(whole)?;
            file.seek(SeekFrom::Start(whole))?;
            Ok((file, whole))
        };
        let (events, events_len) = open().map_err(|source| write_error(&path, source))?;

        let mut results = String::new();
        for column in COLUMNS {
            write_cell(&mut results, column);
        }
        end_row(&mut results);
        let path = dir.join("results.csv");
        let before = fs::read_to_string(&path).unwrap_or_default();
        for row in before.lines().skip(1).filter(|row| epoch_of(row).is_some_and(|epoch| epoch < epochs_done)) {
            results += row;
            results.push('\n');
        }
        if !before.is_empty() && before != results {
            write_whole(&path, results.as_bytes())?;
        }
        let unwritten = if before.is_empty() { results } else { String::new() };
        Ok(Self { dir: dir.to_owned(), unwritten, events, events_len, _lock: lock })
    }

    pub fn weights_path(&self, kept: Kept) -> PathBuf {
        kept.path(&self.dir)
    }

    /// Where the names of the images are that the run was begun with.
    pub fn dataset_path(run_dir: &Path) -> PathBuf {
        run_dir.join("state").join("dataset.jsonl")
    }

    /// Appends a line to `events.jsonl`.
    pub fn write_event(&mut self, event: &Value) -> Result<(), TrainError> {
        let line = format!("{event}\n");
        if let Err(source) = self.events.write_all(line.as_bytes()) {
            // Half a line would make the whole file unreadable for strict readers; if cutting fails too, so be it.
            self.events.set_len(self.events_len).ok();
            self.events.seek(SeekFrom::Start(self.events_len)).ok();
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
        let mut row = std::mem::take(&mut self.unwritten);
        for value in values {
            write_cell(&mut row, &five_digits(value));
        }
        end_row(&mut row);
        let path = self.dir.join("results.csv");
        let append = || -> io::Result<()> {
            let mut file = File::options().append(true).create(true).open(&path)?;
            let len = file.metadata()?.len();
            file.write_all(row.as_bytes()).inspect_err(|_| {
                // As for events.
                file.set_len(len).ok();
            })
        };
        append().map_err(|source| write_error(&path, source))
    }
}

/// Waits until the files that only grow are on the disk as far as they were written.
pub(super) fn sync_grown(run_dir: &Path) -> Result<(), TrainError> {
    for name in ["events.jsonl", "results.csv"] {
        let path = run_dir.join(name);
        match File::open(&path).and_then(|file| file.sync_data()) {
            // Before the first epoch there are no results.
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(write_error(&path, source)),
            _ => {}
        }
    }
    Ok(())
}

/// The epoch of a row of `results.csv`.
fn epoch_of(row: &str) -> Option<usize> {
    row.split(',').next()?.trim().parse().ok()
}

/// Writes a file under a temporary name, flushes it to the disk, and renames it.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    write_parts(path, std::iter::once(bytes), || Ok(()))
}

/// As [`write_whole`], from parts. `before_rename` is called when all of them are on the disk.
pub(super) fn write_parts<'a>(
    path: &Path,
    parts: impl Iterator<Item = &'a [u8]>,
    before_rename: impl FnOnce() -> io::Result<()>,
) -> Result<(), TrainError> {
    let write = move || -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            // As any other file: temporary ones can be read by their owner alone.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.prefix(".writing-").tempfile_in(folder)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.as_file().sync_all()?;
        before_rename()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| write_error(path, source))
}

pub(super) fn write_error(path: &Path, source: io::Error) -> TrainError {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::eval::Metrics;

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
        let lr = [0.07, 0.001, 0.001];
        let epoch = EpochReport { box_loss: 2.5, cls_loss: 3.0, dfl_loss: 1.0, metrics, lr, secs: 1.0, ..EpochReport::default() };
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
    fn a_run_that_goes_on_loses_the_rows_of_later_steps_and_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(folder.path(), "exp").unwrap();
        let dir = run.dir.clone();
        let metrics = Metrics::default();
        let mut lens = Vec::new();
        for epoch in 0..3 {
            lens.push(run.events_len);
            run.write_event(&serde_json::json!({"event": "note", "text": epoch})).unwrap();
            let (lr, metrics) = ([0.1; 3], metrics.clone());
            run.write_results(&EpochReport { epoch, box_loss: 1.0, metrics, lr, secs: 1.0, ..EpochReport::default() }).unwrap();
        }
        let events = fs::read_to_string(dir.join("events.jsonl")).unwrap();
        fs::write(dir.join("events.jsonl"), events.clone() + "{\"event\":\"no").unwrap();
        drop(run);

        let run = RunFolder::open(&dir, RunLock::take(&dir).unwrap(), u64::MAX, 3).unwrap();
        assert_eq!(fs::read_to_string(dir.join("events.jsonl")).unwrap(), events, "half a line is cut");
        drop(run);
        let mut run = RunFolder::open(&dir, RunLock::take(&dir).unwrap(), lens[2], 2).unwrap();
        run.write_event(&serde_json::json!({"event": "note", "text": "again"})).unwrap();
        let texts: Vec<Value> = fs::read_to_string(dir.join("events.jsonl"))
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].clone())
            .collect();
        assert_eq!(texts, [serde_json::json!(0), serde_json::json!(1), serde_json::json!("again")]);
        let results = fs::read_to_string(dir.join("results.csv")).unwrap();
        assert_eq!(results.lines().skip(1).map(|row| epoch_of(row).unwrap()).collect::<Vec<_>>(), [0, 1]);
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
}
