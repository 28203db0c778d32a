//! Several runs over chosen values: which ones, and what came of them.
//!
//! In:  a configuration and axes such as `lr0=0.01,0.001`.
//! Out: a configuration for each point of the grid, or for some of its points drawn at random; a table of results as CSV and JSON.
//!
//! An axis is a field of the configuration (`model`, `epochs`, `batch`, `imgsz`, `seed`) or a key of a `hyp.yaml`. Every point is checked
//! before the first run. Never trains itself.

use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Map;
use serde_json::Value;

use super::config::BatchChoice;
use super::config::ConfigError;
use super::config::Hyp;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::TrainSummary;
use super::hyp_choice::parse_change;
use super::recipe::epoch_order;
use super::run_folder::write_whole;

/// Runs that a sweep may have; more is a slip of the pen.
const MAX_RUNS: usize = 1000;
/// Fields of the configuration that can be an axis; all other keys are hyper-parameters.
pub const FIELDS: [&str; 5] = ["model", "epochs", "batch", "imgsz", "seed"];

/// One value that is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepAxis {
    pub key: String,
    pub values: Vec<Value>,
}

impl SweepAxis {
    /// `KEY=A,B,C`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').ok_or("expected KEY=VALUE,VALUE, such as lr0=0.01,0.001")?;
        let values: Result<Vec<Value>, String> =
            values.split(',').map(|value| parse_change(&format!("{key}={value}")).map(|(_, value)| value)).collect();
        let axis = Self { key: key.trim().to_owned(), values: values? };
        if axis.key.is_empty() || axis.values.iter().any(|value| value.as_str().is_some_and(str::is_empty)) {
            return Err("expected KEY=VALUE,VALUE, such as lr0=0.01,0.001".to_owned());
        }
        Ok(axis)
    }
}

/// What to try.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRequest {
    pub base: TrainConfig,
    pub axes: Vec<SweepAxis>,
    /// So many points of the grid, drawn at random; all of them in order without it.
    pub random: Option<usize>,
    /// Of the draw.
    pub seed: u64,
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// The value of each axis.
    pub values: Map<String, Value>,
    pub config: TrainConfig,
}

impl SweepRequest {
    /// The runs in order; names are `NAME-01`, `NAME-02`, …
    ///
    /// # Errors
    /// No axis, a key that is varied twice, too many points, a key that is none, or a value that its key cannot take.
    pub fn points(&self) -> Result<Vec<SweepPoint>, ConfigError> {
        let fault = |reason: String| ConfigError::Set { reason };
        let is_repeated = |(place, axis): &(usize, &SweepAxis)| self.axes[..*place].iter().any(|before| before.key == axis.key);
        if let Some((_, SweepAxis { key, .. })) = self.axes.iter().enumerate().find(is_repeated) {
            return Err(fault(format!("{key:?} is varied twice: give all its values at once, such as {key}=A,B,C")));
        }
        let n_all = self.axes.iter().map(|axis| axis.values.len()).try_fold(1usize, usize::checked_mul).unwrap_or(usize::MAX);
        let n_runs = self.random.map_or(n_all, |n| n.min(n_all));
        if self.axes.is_empty() || n_runs == 0 {
            return Err(fault("a sweep needs at least one value to vary".to_owned()));
        }
        if n_runs > MAX_RUNS || n_all > MAX_RUNS * MAX_RUNS {
            return Err(fault(format!("the grid has {n_all} points, of which at most {MAX_RUNS} can be tried")));
        }
        let order = match self.random {
            Some(n) => {
                let mut order = epoch_order(self.seed, 0, n_all);
                order.truncate(n);
                order
            }
            None => (0..n_all).collect(),
        };
        let width = n_runs.to_string().len().max(2);
        let point = |(number, place): (usize, usize)| {
            let values = self.values_of(place);
            let mut config = self.base.clone();
            config.name = format!("{}-{:0width$}", self.base.name, number + 1);
            for (key, value) in &values {
                config = changed(config, key, value).map_err(fault)?;
            }
            Hyp::scratch_high().with(&config.set)?;
            config.checked()?;
            Ok(SweepPoint { values, config })
        };
        order.into_iter().enumerate().map(point).collect()
    }

    /// The values of a place of the grid, whose last axis moves fastest.
    fn values_of(&self, mut place: usize) -> Map<String, Value> {
        let mut values: Vec<(String, Value)> = Vec::new();
        for axis in self.axes.iter().rev() {
            values.push((axis.key.clone(), axis.values[place % axis.values.len()].clone()));
            place /= axis.values.len();
        }
        values.into_iter().rev().collect()
    }
}

/// The configuration with one value changed.
fn changed(mut config: TrainConfig, key: &str, value: &Value) -> Result<TrainConfig, String> {
    if !FIELDS.contains(&key) {
        config.set.insert(key.to_owned(), value.clone());
        return Ok(config);
    }
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if key == "batch" {
        config.batch = BatchChoice::parse(&text)?;
        return Ok(config);
    }
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&config) else {
        return Err("paths that are no text cannot be varied".to_owned());
    };
    fields.insert(key.to_owned(), value.clone());
    serde_json::from_value(fields.into()).map_err(|error| format!("{key:?} is {text}: {error}"))
}

/// What came of one run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SweepRow {
    /// Counted from 1.
    pub run: usize,
    pub values: Map<String, Value>,
    pub run_dir: Option<PathBuf>,
    pub epochs: usize,
    pub best_epoch: usize,
    pub precision: f64,
    pub recall: f64,
    pub map50: f64,
    pub map50_95: f64,
    pub secs: f64,
    /// Why it has no figures, or none of its end.
    pub error: Option<String>,
}

impl SweepRow {
    pub fn new(run: usize, point: &SweepPoint, result: &Result<TrainSummary, TrainError>, secs: f64) -> Self {
        let mut row = Self {
            run,
            values: point.values.clone(),
            run_dir: None,
            epochs: 0,
            best_epoch: 0,
            precision: 0.0,
            recall: 0.0,
            map50: 0.0,
            map50_95: 0.0,
            secs,
            error: None,
        };
        match result {
            Ok(summary) => {
                let metrics = &summary.metrics;
                row.run_dir = Some(summary.run_dir.clone());
                (row.epochs, row.best_epoch) = (summary.epochs_done, summary.best_epoch);
                (row.precision, row.recall, row.map50, row.map50_95) = (metrics.precision, metrics.recall, metrics.map50, metrics.map50_95);
                row.error = summary.stopped.then(|| "stopped".to_owned());
            }
            Err(error) => row.error = Some(error.to_string()),
        }
        row
    }
}

/// The rows, the best first.
pub fn ranked(rows: &[SweepRow]) -> Vec<&SweepRow> {
    let mut ranked: Vec<&SweepRow> = rows.iter().collect();
    ranked.sort_by(|a, b| b.map50_95.total_cmp(&a.map50_95).then(a.run.cmp(&b.run)));
    ranked
}

/// Writes `NAME.csv` and `NAME.json` in `folder`; each is whole at any moment.
pub fn write_table(folder: &Path, name: &str, rows: &[SweepRow]) -> Result<[PathBuf; 2], TrainError> {
    let paths = ["csv", "json"].map(|ending| folder.join(format!("{name}.{ending}")));
    write_whole(&paths[0], csv(rows).as_bytes())?;
    let text = serde_json::to_string_pretty(rows)
        .map_err(|error| TrainError::Write { path: paths[1].display().to_string(), source: std::io::Error::other(error) })?;
    write_whole(&paths[1], format!("{text}\n").as_bytes())?;
    Ok(paths)
}

/// A row a run, a column an axis.
fn csv(rows: &[SweepRow]) -> String {
    let keys: Vec<&String> = rows.first().map(|row| row.values.keys().collect()).unwrap_or_default();
    let mut text = "run".to_owned();
    for name in keys.iter().map(|key| key.as_str()).chain([
        "epochs",
        "best_epoch",
        "precision",
        "recall",
        "mAP_0.5",
        "mAP_0.5:0.95",
        "secs",
        "run_dir",
        "error",
    ]) {
        write!(text, ",{}", cell(name)).expect("writing to a String cannot fail");
    }
    text.push('\n');
    for row in rows {
        write!(text, "{}", row.run).expect("writing to a String cannot fail");
        let of_axes = keys.iter().map(|key| match row.values.get(*key) {
            Some(Value::String(value)) => value.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        });
        let figures = [
            row.epochs.to_string(),
            row.best_epoch.to_string(),
            format!("{:.5}", row.precision),
            format!("{:.5}", row.recall),
            format!("{:.5}", row.map50),
            format!("{:.5}", row.map50_95),
            format!("{:.1}", row.secs),
            row.run_dir.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default(),
            row.error.clone().unwrap_or_default(),
        ];
        for value in of_axes.chain(figures) {
            write!(text, ",{}", cell(&value)).expect("writing to a String cannot fail");
        }
        text.push('\n');
    }
    text
}

/// Quoted where it must be (RFC 4180).
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::eval::Metrics;

    fn request(axes: &[&str]) -> SweepRequest {
        let axes = axes.iter().map(|text| SweepAxis::parse(text).unwrap()).collect();
        SweepRequest { base: TrainConfig::new(Path::new("data.yaml")), axes, random: None, seed: 0 }
    }

    #[test]
    fn a_grid_has_every_combination_once_in_order() {
        let points = request(&["lr0=0.01,0.001", "optimizer=sgd,adamw", "epochs=3"]).points().unwrap();
        let values: Vec<String> = points.iter().map(|point| Value::Object(point.values.clone()).to_string()).collect();
        assert_eq!(
            values,
            [
                r#"{"lr0":0.01,"optimizer":"sgd","epochs":3}"#,
                r#"{"lr0":0.01,"optimizer":"adamw","epochs":3}"#,
                r#"{"lr0":0.001,"optimizer":"sgd","epochs":3}"#,
                r#"{"lr0":0.001,"optimizer":"adamw","epochs":3}"#,
            ]
        );
        assert_eq!(points[3].config.name, "train-04");
        assert_eq!((points[3].config.epochs, points[3].config.set["lr0"].as_f64()), (3, Some(0.001)));
        let hyp = points[3].config.resolve_hyp(10).unwrap().0;
        assert_eq!((hyp.lr0, hyp.optimizer), (0.001, crate::train::config::OptimizerKind::AdamW));
    }

    #[test]
    fn fields_of_the_configuration_are_set_as_such() {
        let points = request(&["model=yolov9-s", "batch=auto,8", "imgsz=320", "seed=7"]).points().unwrap();
        assert_eq!((points[0].config.batch, points[1].config.batch), (BatchChoice::Auto, BatchChoice::Count(8)));
        assert_eq!((points[0].config.model.to_string().as_str(), points[0].config.imgsz, points[0].config.seed), ("yolov9-s", 320, 7));
    }

    #[test]
    fn random_points_are_different_and_the_same_for_a_seed() {
        let grid = request(&["lr0=1,2,3,4", "lrf=0.1,0.2,0.3"]);
        let drawn = |seed| SweepRequest { random: Some(5), seed, ..grid.clone() }.points().unwrap();
        let first = drawn(1);
        assert_eq!(first.len(), 5);
        for (index, point) in first.iter().enumerate() {
            assert!(first[..index].iter().all(|other| other.values != point.values));
        }
        assert_eq!(first, drawn(1));
        assert_ne!(first, drawn(2));
        assert_eq!(SweepRequest { random: Some(99), ..grid.clone() }.points().unwrap().len(), 12);
    }

    #[test]
    fn what_cannot_be_tried_is_refused_before_the_first_run() {
        for axes in [["lr9=1"], ["lr0=fast"], ["model=yolov3"], ["epochs=0"], ["batch=many"], ["imgsz=x"]] {
            assert!(request(&axes).points().is_err(), "{axes:?}");
        }
        assert!(request(&[]).points().is_err());
        let twice = request(&["lr0=0.1", "seed=1", "lr0=0.2"]).points().unwrap_err();
        assert!(twice.to_string().contains("\"lr0\" is varied twice"), "{twice}");
        let thousand = format!("seed={}", (0..1001).map(|seed| seed.to_string()).collect::<Vec<_>>().join(","));
        assert!(request(&[&thousand]).points().is_err());
        for text in ["lr0", "=1", "lr0=", "lr0=1,,2"] {
            assert!(SweepAxis::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_table_has_a_row_a_run_and_the_best_comes_first() {
        let root = tempfile::tempdir().unwrap();
        let points = request(&["lr0=0.01,0.001,0.1"]).points().unwrap();
        let summary = |map50_95: f64, stopped: bool| TrainSummary {
            run_dir: "runs/a, b".into(),
            epochs_done: 3,
            stopped,
            best_epoch: 2,
            metrics: Metrics { map50: 0.5, map50_95, ..Metrics::default() },
            peak_bytes: 0,
        };
        let results = [Ok(summary(0.2, false)), Ok(summary(0.3, true)), Err(TrainError::NoLabels { n_images: 2 })];
        let rows: Vec<SweepRow> =
            results.iter().zip(&points).enumerate().map(|(index, (result, point))| SweepRow::new(index + 1, point, result, 1.5)).collect();
        assert_eq!(ranked(&rows).iter().map(|row| row.run).collect::<Vec<_>>(), [2, 1, 3]);
        let [csv, json] = write_table(root.path(), "train-sweep", &rows).unwrap();
        let text = std::fs::read_to_string(csv).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "run,lr0,epochs,best_epoch,precision,recall,mAP_0.5,mAP_0.5:0.95,secs,run_dir,error");
        assert_eq!(lines[1], "1,0.01,3,2,0.00000,0.00000,0.50000,0.20000,1.5,\"runs/a, b\",");
        assert!(lines[2].ends_with(",stopped") && lines[3].ends_with(",,the train split has 2 images but not one label"), "{text}");
        let back: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!((back[0]["values"]["lr0"].as_f64(), back[2]["error"].is_string()), (Some(0.01), true));
    }
}
