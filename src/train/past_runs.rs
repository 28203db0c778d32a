//! Which runs lie below a project folder, and how do they differ?
//!
//! In:  a project folder, or a run folder.
//! Out: a line for each run from its small files; for a run that is looked at, its events, its settings one by one, and the
//! person's notes.
//!
//! Of the run folder only `notes.md` is ever written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::TrainError;
use super::run_folder;
use super::saved_run::SavedRun;

/// What a list of runs shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastRun {
    pub dir: PathBuf,
    pub name: String,
    /// UTC, as written in `run.yaml`.
    pub started: String,
    pub model: String,
    pub epochs_done: usize,
    pub epochs_wanted: usize,
    /// Of the best epoch by mAP50-95.
    pub map50: f64,
    pub map50_95: f64,
}

/// A run beside others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparedRun {
    pub saved: SavedRun,
    /// The settings of `run.yaml`; those of a group are named `group.key`.
    pub settings: Vec<(String, String)>,
    /// Text of `notes.md`; empty where there is none.
    pub notes: String,
}

/// The runs directly below `project`, the newest first. A folder that does not exist has none.
///
/// # Errors
/// The folder exists and cannot be read.
pub fn list(project: &Path) -> io::Result<Vec<PastRun>> {
    let entries = match fs::read_dir(project) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut runs = Vec::new();
    for entry in entries {
        let dir = entry?.path();
        if SavedRun::is_run(&dir) {
            runs.push(glance(&dir));
        }
    }
    runs.sort_by(|a, b| b.started.cmp(&a.started).then_with(|| a.name.cmp(&b.name)));
    Ok(runs)
}

impl ComparedRun {
    /// Reads a run folder with its settings and notes.
    ///
    /// # Errors
    /// `events.jsonl` cannot be read.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let notes = fs::read_to_string(notes_path(dir)).unwrap_or_default();
        Ok(Self { saved: SavedRun::read(dir)?, settings: settings_of(dir), notes })
    }

    pub fn name(&self) -> String {
        name_of(&self.saved.dir)
    }
}

/// Keeps a person's notes on a run; empty ones remove the file.
///
/// # Errors
/// The file cannot be written or removed.
pub fn write_notes(dir: &Path, text: &str) -> Result<(), TrainError> {
    let path = notes_path(dir);
    if !text.trim().is_empty() {
        return run_folder::write_whole(&path, text.as_bytes());
    }
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(TrainError::Write { path: path.display().to_string(), source }),
        _ => Ok(()),
    }
}

/// The settings in which the runs are not all alike: name, and the value of each run in their order (empty where it has none).
pub fn differences(runs: &[&ComparedRun]) -> Vec<(String, Vec<String>)> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|run| &run.settings) {
        if !names.contains(&name.as_str()) && !NO_SETTINGS.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let value = |run: &ComparedRun, name: &str| run.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let rows = names.into_iter().map(|name| (name.to_owned(), runs.iter().map(|run| value(run, name).unwrap_or_default()).collect()));
    rows.filter(|(_, values): &(String, Vec<String>)| values.iter().any(|each| *each != values[0])).collect()
}

/// What `run.yaml` tells beside the settings.
const NO_SETTINGS: [&str; 1] = ["started"];

fn notes_path(dir: &Path) -> PathBuf {
    dir.join("notes.md")
}

fn name_of(dir: &Path) -> String {
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// From `run.yaml` and `results.csv`, which stay small however long the run.
fn glance(dir: &Path) -> PastRun {
    let settings = settings_of(dir);
    let setting = |key: &str| settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone()).unwrap_or_default();
    let mut run = PastRun {
        dir: dir.to_path_buf(),
        name: name_of(dir),
        started: setting("started"),
        model: setting("model"),
        epochs_wanted: setting("epochs").parse().unwrap_or_default(),
        ..PastRun::default()
    };
    let results = fs::read_to_string(dir.join("results.csv")).unwrap_or_default();
    let mut rows = results.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let header = rows.next().unwrap_or_default();
    let column = |name: &str| header.iter().position(|each| *each == name);
    let (map50, map50_95) = (column("metrics/mAP_0.5"), column("metrics/mAP_0.5:0.95"));
    for row in rows {
        let cell = |column: Option<usize>| column.and_then(|column| row.get(column)?.parse::<f64>().ok()).unwrap_or_default();
        run.epochs_done += 1;
        if cell(map50_95) >= run.map50_95 {
            (run.map50, run.map50_95) = (cell(map50), cell(map50_95));
        }
    }
    run
}

/// The settings of `run.yaml` one by one; none where it cannot be read.
fn settings_of(dir: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(dir.join("run.yaml")).unwrap_or_default();
    let values: serde_json::Map<String, Value> = serde_saphyr::from_str(&text).unwrap_or_default();
    let mut settings = Vec::new();
    for (key, value) in values {
        flatten(key, &value, &mut settings);
    }
    settings
}

/// Adds a value, or the values of a group one by one.
fn flatten(name: String, value: &Value, settings: &mut Vec<(String, String)>) {
    let Value::Object(group) = value else {
        settings.push((name, shown(value)));
        return;
    };
    for (key, value) in group {
        // How a value was chosen is no part of its name.
        let name = if matches!(key.as_str(), "given" | "count") { name.clone() } else { format!("{name}.{key}") };
        flatten(name, value, settings);
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn write_run(project: &Path, name: &str, started: &str, lr0: f64) -> PathBuf {
        let dir = project.join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("events.jsonl"), "").unwrap();
        let record = format!(
            "started: {started}\nmodel: yolov9-t\nweights: null\nepochs: 9\nbatch:\n  count: 8\nhyp:\n  given:\n    lr0: {lr0}\n    amsgrad: true\n"
        );
        fs::write(dir.join("run.yaml"), record).unwrap();
        let rows = " epoch, metrics/mAP_0.5, metrics/mAP_0.5:0.95\n 0, 0.5, 0.2\n 1, 0.7, 0.4\n 2, 0.6, 0.3\n";
        fs::write(dir.join("results.csv"), rows).unwrap();
        dir
    }

    #[test]
    fn runs_are_listed_from_the_newest_with_their_best_epoch() {
        let project = tempfile::tempdir().unwrap();
        write_run(project.path(), "old", "2026-01-01T00:00:00Z", 0.01);
        write_run(project.path(), "new", "2026-02-01T00:00:00Z", 0.01);
        fs::create_dir(project.path().join("no run")).unwrap();
        let runs = list(project.path()).unwrap();
        assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["new", "old"]);
        assert_eq!((runs[0].epochs_done, runs[0].epochs_wanted, runs[0].map50, runs[0].map50_95), (3, 9, 0.7, 0.4));
        assert_eq!(list(&project.path().join("nothing")).unwrap(), []);
    }

    #[test]
    fn only_settings_that_differ_are_shown_side_by_side() {
        let project = tempfile::tempdir().unwrap();
        let dirs = [("a", "2026-01-01T00:00:00Z", 0.01), ("b", "2026-02-01T00:00:00Z", 0.002)]
            .map(|(name, started, lr0)| write_run(project.path(), name, started, lr0));
        let runs = dirs.map(|dir| ComparedRun::read(&dir).unwrap());
        let rows = differences(&[&runs[0], &runs[1]]);
        assert_eq!(rows, [("hyp.lr0".to_owned(), vec!["0.01".to_owned(), "0.002".to_owned()])]);
        assert!(runs[0].settings.contains(&("batch".to_owned(), "8".to_owned())));
        assert!(runs[0].settings.contains(&("weights".to_owned(), "none".to_owned())));
        assert_eq!(differences(&[]), []);
    }

    #[test]
    fn notes_are_kept_and_taken_away_in_the_run_folder() {
        let project = tempfile::tempdir().unwrap();
        let dir = write_run(project.path(), "a", "2026-01-01T00:00:00Z", 0.01);
        write_notes(&dir, "more light\n").unwrap();
        assert_eq!(ComparedRun::read(&dir).unwrap().notes, "more light\n");
        write_notes(&dir, "  ").unwrap();
        write_notes(&dir, "").unwrap();
        assert!(!dir.join("notes.md").exists());
        assert!(write_notes(&project.path().join("gone"), "text").is_err());
    }
}
