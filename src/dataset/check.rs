//! The checks of the label doctor: every finding with its rule, place, and whether it can be mended safely.
//!
//! In:  an open dataset.
//! Out: findings: those of the dataset as a whole, then by image and line, then files that belong to nothing.
//!
//! Each label file is parsed once and each image looked at once, in parallel: its header, or all of its pixels. The verdicts on rows are
//! those of the parser that training reads with, so a row is told here exactly when training changes or drops it. Never writes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde_json::{Value, json};

use super::data_yaml::DataYaml;
use super::dataset_check::Whole;
use super::image_check;
use super::image_check::Depth;
use super::image_check::ImageLooks;
use super::label::Label;
use super::label::Split;
use super::layout;
use super::leakage;
use super::open::{self, Dataset, DatasetError, Format};
use super::reading::Evidence;
use super::row_check::{self, RowFinding};
pub use super::rule::{Fixability, Rule, Severity};
use crate::geom::Xywhn;
use crate::media::decode;

/// A file that is rubbish from end to end must not fill the list (and the memory).
const MAX_FINDINGS_PER_FILE: usize = 1000;

/// One fault at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub rule: Rule,
    pub severity: Severity,
    pub fix: Fixability,
    /// Relative to the dataset's root.
    pub file: PathBuf,
    /// Index into `Dataset::images` where the finding is about an image or its labels.
    pub image: Option<usize>,
    /// 1-based line of a label file.
    pub line: Option<usize>,
    pub bbox: Option<Xywhn>,
    pub message: String,
}

impl Finding {
    /// About an image of the dataset.
    pub(super) fn of_image(dataset: &Dataset, image: usize, rule: Rule, severity: Severity, message: String) -> Self {
        Self { image: Some(image), ..Self::of_file(dataset, &dataset.images[image].path, rule, severity, message) }
    }

    /// About a file.
    pub(super) fn of_file(dataset: &Dataset, path: &Path, rule: Rule, severity: Severity, message: String) -> Self {
        let fix = rule.info().fix;
        Self { rule, severity, fix, file: dataset.relative(path), image: None, line: None, bbox: None, message }
    }

    /// About the dataset as a whole.
    pub(super) fn of_dataset(dataset: &Dataset, rule: Rule, severity: Severity, message: String) -> Self {
        Self::of_file(dataset, &dataset.source, rule, severity, message)
    }

    /// As a line of `--json`: event, rule, severity, file, line, box (cx, cy, w, h), message, fix. Absent ones are left out.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "event": "finding",
            "rule": self.rule.id(),
            "severity": self.severity.name(),
            "file": self.file.to_string_lossy(),
        });
        let fields = value.as_object_mut().expect("made as an object above");
        if let Some(line) = self.line {
            fields.insert("line".to_owned(), line.into());
        }
        if let Some(Xywhn { cx, cy, w, h }) = self.bbox {
            fields.insert("box".to_owned(), [cx, cy, w, h].map(shortest).to_vec().into());
        }
        fields.insert("message".to_owned(), self.message.as_str().into());
        fields.insert("fix".to_owned(), self.fix.name().into());
        value
    }
}

/// The number with the few digits that f32 has, not the many that its f64 neighbour needs.
fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// What a check found, and what it looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    pub findings: Vec<Finding>,
    pub n_images: usize,
    pub n_label_files: usize,
    pub n_rows: usize,
    /// What was found out about each image, which spares the next check from looking again.
    pub images: Arc<ImageLooks>,
}

impl CheckReport {
    pub fn n_errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    /// How many findings `fix` mends.
    pub fn n_fixable(&self) -> usize {
        self.findings.iter().filter(|finding| finding.fix == Fixability::Auto).count()
    }

    /// The rules that have findings, with their counts, in the order of `Rule::ALL`.
    pub fn counts(&self) -> Vec<(Rule, usize)> {
        let count = |rule| self.findings.iter().filter(|finding| finding.rule == rule).count();
        Rule::ALL.into_iter().map(|rule| (rule, count(rule))).filter(|&(_, n)| n > 0).collect()
    }
}

/// Checks every label row, and images by their headers. `check_in(done, total)` reports progress and may stop it.
///
/// # Errors
/// `Cancelled` only: whatever is wrong with a file is a finding.
pub fn check(dataset: &Dataset, check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync)) -> Result<CheckReport, DatasetError> {
    check_to(dataset, Depth::Header, None, check_in)
}

/// As [`check`], with images looked at as closely as `depth` says; what `known` tells of unchanged images is taken over.
///
/// # Errors
/// As [`check`].
pub fn check_to(
    dataset: &Dataset,
    depth: Depth,
    known: Option<&ImageLooks>,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<CheckReport, DatasetError> {
    let groups = open::by_label_file(dataset);
    let total = (dataset.images.len() + groups.len()) as u64;
    let done = AtomicU64::new(0);
    let looks = image_check::look_at_all(dataset, depth, known, &|| check_in(done.fetch_add(1, Ordering::Relaxed) + 1, total))?;
    let files: Vec<FileReport> = groups
        .par_iter()
        .map(|(label_path, images)| {
            let report = check_file(dataset, label_path, images, &looks);
            match check_in(done.fetch_add(1, Ordering::Relaxed) + 1, total) {
                ControlFlow::Continue(()) => Ok(report),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;

    let mut report = CheckReport { findings: about_the_whole(dataset), n_images: dataset.images.len(), ..CheckReport::default() };
    let mut n_unlabelled: HashMap<Split, usize> = HashMap::new();
    let mut labels: Vec<&[Label]> = vec![&[]; dataset.images.len()];
    for ((_, images), file) in groups.iter().zip(&files) {
        for &image in images {
            labels[image] = &file.labels;
        }
    }
    let of_dataset = Whole { dataset, labels: &labels, looks: &looks }.findings();
    let leaks = leakage::findings(dataset, &labels, &looks, &|_, _| check_in(total, total))?;
    report.findings.extend(of_dataset.into_iter().chain(leaks));
    let mut evidence = Evidence::default();
    for ((_, images), mut file) in groups.iter().zip(files) {
        report.n_label_files += usize::from(file.exists);
        report.n_rows += file.n_rows;
        evidence.add(&file.evidence);
        report.findings.append(&mut file.findings);
        if !file.exists {
            for &image in images {
                *n_unlabelled.entry(dataset.images[image].split).or_default() += 1;
            }
        }
    }
    report.findings.extend(labels_without_image(dataset));
    if dataset.format == Format::Yolo {
        let readings = evidence.findings(dataset.names.len());
        report
            .findings
            .extend(readings.into_iter().map(|(rule, message)| Finding::of_dataset(dataset, rule, rule.info().severity, message)));
    }
    for split in Split::ALL {
        if let Some(n) = n_unlabelled.get(&split) {
            let of = dataset.split(split).count();
            let message = format!("{n} of {of} images in {} have no label file; they count as background", split.name());
            report.findings.push(Finding::of_dataset(dataset, Rule::ImageWithoutLabel, Severity::Info, message));
        }
    }
    report.images = Arc::new(looks);
    Ok(report)
}

/// What is found at one label file and its image (or images: `x.jpg` and `x.png` share one).
#[derive(Default)]
struct FileReport {
    findings: Vec<Finding>,
    /// That training uses.
    labels: Vec<Label>,
    exists: bool,
    n_rows: usize,
    evidence: Evidence,
}

fn check_file(dataset: &Dataset, label_path: &Path, images: &[usize], looks: &ImageLooks) -> FileReport {
    let mut report = FileReport::default();
    let mut size = None;
    let mut seen: Vec<&Path> = Vec::new();
    for &index in images {
        let path = dataset.images[index].path.as_path();
        if seen.contains(&path) {
            continue; // the same image in two splits
        }
        seen.push(path);
        let Some(look) = looks.get(path) else { continue };
        size = size.or(look.size);
        let faults = look.faults.iter();
        report.findings.extend(faults.map(|fault| Finding::of_image(dataset, index, fault.rule, fault.severity, fault.message.clone())));
    }

    let image = images[0];
    let file = dataset.relative(label_path);
    let finding = |rule, severity, fix, message| Finding {
        rule,
        severity,
        fix,
        file: file.clone(),
        image: Some(image),
        line: None,
        bbox: None,
        message,
    };
    let unreadable = |message| finding(Rule::LabelUnreadable, Severity::Error, Fixability::None, message);
    let labels = match dataset.label_file(&dataset.images[image], &|| size) {
        Ok(None) => return report,
        Ok(Some(labels)) => labels,
        Err(error) => {
            report.exists = true;
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            report.findings.push(unreadable(format!("{error}{cause}")));
            return report;
        }
    };
    report.exists = true;
    report.n_rows = labels.rows.len();
    report.labels = if labels.problem.is_some() { Vec::new() } else { labels.labels().collect() };
    report.findings.extend(labels.problem.as_ref().map(|problem| {
        let rule = labels.problem_rule.unwrap_or(Rule::LabelUnreadable);
        finding(rule, rule.info().severity, rule.info().fix, format!("the file {problem}"))
    }));

    report.evidence = Evidence::of(&labels);
    let mut rows = row_check::findings(&labels, size).into_iter().map(|RowFinding { rule, severity, fix, line, bbox, message }| {
        let fix = if dataset.format == Format::PascalVoc && fix == Fixability::Auto { Fixability::Ask } else { fix };
        Finding { line, bbox, ..finding(rule, severity, fix, message) }
    });
    report.findings.extend(rows.by_ref().take(MAX_FINDINGS_PER_FILE));
    let n_more = rows.count();
    if let (1.., Some(last)) = (n_more, report.findings.last_mut()) {
        last.message = format!("{}; and {n_more} more findings in this file", last.message);
    }
    report
}

fn about_the_whole(dataset: &Dataset) -> Vec<Finding> {
    let mut findings = Vec::new();
    let declared = if dataset.format == Format::Yolo && dataset.source.is_file() { DataYaml::read(&dataset.source).ok() } else { None };
    if let Some(n) = declared.and_then(|yaml| yaml.n_classes).filter(|&n| n != dataset.names.len()) {
        let message = format!("nc is {n}, but there are {} names; the names count", dataset.names.len());
        findings.push(Finding::of_dataset(dataset, Rule::NamesCount, Severity::Warning, message));
    }
    for (split, severity) in [(Split::Train, Severity::Error), (Split::Val, Severity::Warning)] {
        if dataset.split(split).next().is_none() {
            let message = format!("there are no images in {}", split.name());
            findings.push(Finding::of_dataset(dataset, Rule::EmptySplit, severity, message));
        }
    }
    findings
}

/// Files in the label folders that no image answers to.
fn labels_without_image(dataset: &Dataset) -> Vec<Finding> {
    let used: HashSet<&Path> = dataset.images.iter().map(|image| image.label_path.as_path()).collect();
    let mut image_folders = StemsByFolder::default();
    let voc_folders: Vec<&Path> = match dataset.format {
        Format::Yolo => Vec::new(),
        Format::PascalVoc => unique(dataset.images.iter().filter_map(|image| image.path.parent())),
    };
    let tops = unique(used.iter().filter_map(|path| path.parent()).map(|folder| label_top(folder, dataset.format)));
    let mut findings = Vec::new();
    for top in tops {
        for path in candidates(top, dataset.format) {
            let (Some(stem), Some(folder)) = (path.file_stem(), path.parent()) else { continue };
            if used.contains(path.as_path()) {
                continue;
            }
            let upper_case = dataset.format == Format::Yolo && path.extension().is_some_and(|extension| extension != "txt");
            let has_image = match dataset.format {
                Format::Yolo => image_folders.holds(&layout::images_folder(folder), stem),
                Format::PascalVoc => voc_folders.iter().any(|folder| image_folders.holds(folder, stem)),
            };
            let message = match (has_image, upper_case) {
                (true, false) => continue, // an image that is in no split
                (true, true) => "the ending is not in lower case, so that the file is not read; rename it to .txt".to_owned(),
                (false, _) => format!("no image is called {:?}", stem.to_string_lossy()),
            };
            findings.push(Finding {
                rule: if has_image { Rule::LabelEnding } else { Rule::LabelWithoutImage },
                severity: Severity::Warning,
                fix: Fixability::Ask,
                file: dataset.relative(&path),
                image: None,
                line: None,
                bbox: None,
                message,
            });
        }
    }
    findings.sort_by(|a, b| a.file.cmp(&b.file));
    findings.dedup_by(|a, b| a.file == b.file);
    findings
}

fn unique<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<&'a Path> {
    let mut paths: Vec<&Path> = paths.collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The folder to search below: the last `labels` folder above; without one the folder itself.
fn label_top(folder: &Path, format: Format) -> &Path {
    let is_top = |folder: &&Path| format == Format::Yolo && folder.file_name().is_some_and(|name| name == "labels");
    folder.ancestors().find(is_top).unwrap_or(folder)
}

/// Files that look like label files: below `labels` everything but the well-known others; beside images only what parses.
fn candidates(top: &Path, format: Format) -> Vec<PathBuf> {
    let ending = if format == Format::Yolo { "txt" } else { "xml" };
    let in_labels = top.components().any(|part| part.as_os_str() == "labels");
    let mut files = if in_labels {
        layout::files_under(top).unwrap_or_default()
    } else {
        let entries = std::fs::read_dir(top).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
    };
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let known = ["classes.txt", "labels.txt", "notes.txt", "train.txt", "val.txt", "valid.txt", "test.txt"];
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
            && !name.starts_with('.')
            && !name.starts_with("readme")
            && !known.contains(&name.as_str())
            && (in_labels || format == Format::PascalVoc || open::looks_like_labels(path))
    });
    files
}

/// The stems of the images in each folder, listed once.
#[derive(Default)]
struct StemsByFolder {
    stems: HashMap<PathBuf, HashSet<OsString>>,
}

impl StemsByFolder {
    fn holds(&mut self, folder: &Path, stem: &std::ffi::OsStr) -> bool {
        if !self.stems.contains_key(folder) {
            let paths = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            let stems = paths.filter(|path| decode::is_image_path(path)).filter_map(|path| path.file_stem().map(OsString::from));
            self.stems.insert(folder.to_owned(), stems.collect());
        }
        self.stems[folder].contains(stem)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::open::tests::{folder, png};
    use super::*;

    fn never() -> impl Fn(u64, u64) -> ControlFlow<()> + Sync {
        |_, _| ControlFlow::Continue(())
    }

    /// Findings as `rule severity fix file:line`.
    fn found(root: &Path) -> Vec<String> {
        let report = check(&Dataset::open(root).unwrap(), &never()).unwrap();
        let line = |finding: &Finding| {
            let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
            let (severity, fix) = (finding.severity.name(), finding.fix.name());
            format!("{} {severity} {fix} {}{line}", finding.rule.id(), finding.file.display())
        };
        report.findings.iter().map(line).collect()
    }

    #[test]
    fn each_fault_is_found_at_its_place() {
        let root = folder(&[
            ("data.yaml", "train: images/train\nval: images/val\nnc: 3\nnames: [a, b]\n"),
            ("images/train/empty.png", ""),
            ("images/train/text.jpg", "not a picture"),
            ("labels/train/good.txt", "0 .5 .5 .2 .2\n1 .95 .5 .2 .2\n1 .5 .5 .2\n7 .5 .5 .2 .2\n0 .5 .5 .2 .2\n0 .5 .5 0 .2\n0 9 9 9 9\n"),
            ("labels/train/text.txt", "\0\0"),
            ("labels/train/gone.txt", "0 .5 .5 .2 .2\n"),
            ("labels/train/upper.TXT", ""),
            ("labels/train/classes.txt", "a\nb\n"),
            ("labels/train/.hidden.txt", ""),
            ("labels/other/unused.txt", ""),
            ("images/other/unused.jpg", ""),
        ]);
        png(root.path(), "images/train/good.png", 40, 20);
        png(root.path(), "images/train/upper.png", 40, 21);
        let mut expected = vec![
            "names-count warning none data.yaml",
            "empty-split warning none data.yaml",
            "image-empty error none images/train/empty.png",
            "out-of-range warning auto labels/train/good.txt:2",
            "wrong-field-count error none labels/train/good.txt:3",
            "class-outside-names error ask labels/train/good.txt:4",
            "duplicate-row warning auto labels/train/good.txt:5",
            "zero-size error auto labels/train/good.txt:6",
            "coordinates-in-pixels error ask labels/train/good.txt:7",
            "image-unreadable error none images/train/text.jpg",
            "label-unreadable error none labels/train/text.txt",
            "label-without-image warning ask labels/train/gone.txt",
            "label-ending warning ask labels/train/upper.TXT",
            "image-without-label info none data.yaml",
        ];
        let findings = found(root.path());
        expected.retain(|line| !findings.iter().any(|found| found == line));
        assert!(expected.is_empty() && findings.len() == 14, "missing {expected:?} in {findings:#?}");
    }

    #[test]
    fn a_sound_dataset_has_no_findings() {
        let root = folder(&[
            ("data.yaml", "train: train/images\nval: val/images\nnames: [a]\n"),
            ("train/labels/a.txt", "0 .5 .5 .2 .2\n"),
            ("val/labels/b.txt", ""),
        ]);
        png(root.path(), "train/images/a.png", 12, 12);
        png(root.path(), "val/images/b.png", 12, 13);
        assert_eq!(found(root.path()), [""; 0]);
        let report = check(&Dataset::open(root.path()).unwrap(), &never()).unwrap();
        assert_eq!((report.n_images, report.n_label_files, report.n_rows, report.n_errors()), (2, 2, 1, 0));
    }

    #[test]
    fn pascal_voc_is_checked_by_the_same_rules() {
        let object = |x2: u32| {
            format!("<object><name>x</name><bndbox><xmin>5</xmin><ymin>1</ymin><xmax>{x2}</xmax><ymax>9</ymax></bndbox></object>\n")
        };
        let annotation = |objects: &str| format!("<annotation>\n{objects}</annotation>");
        let root = folder(&[
            ("Annotations/a.xml", &annotation(&(object(5) + &object(12) + &object(8)))),
            ("Annotations/b.xml", "<annotation>"),
            ("Annotations/c.xml", &annotation("")),
        ]);
        png(root.path(), "JPEGImages/a.png", 10, 10);
        png(root.path(), "JPEGImages/b.png", 10, 11);
        let expected = [
            "empty-split warning none .",
            "zero-size error ask Annotations/a.xml:2",
            "out-of-range warning ask Annotations/a.xml:3",
            "label-unreadable error none Annotations/b.xml",
            "label-without-image warning ask Annotations/c.xml",
        ];
        assert_eq!(found(root.path()), expected);
    }

    #[test]
    fn it_stops_when_asked() {
        let root = folder(&[("images/a.png", ""), ("labels/a.txt", "")]);
        let dataset = Dataset::open(root.path()).unwrap();
        assert!(matches!(check(&dataset, &|_, _| ControlFlow::Break(())), Err(DatasetError::Cancelled)));
    }

    #[test]
    fn a_file_of_rubbish_does_not_fill_the_list() {
        let root = folder(&[("labels/a.txt", &("0 .5 .5 .1 .1\n".to_owned() + &"x\n".repeat(5000))), ("classes.txt", "x")]);
        png(root.path(), "images/a.png", 12, 12);
        let report = check(&Dataset::open(root.path()).unwrap(), &never()).unwrap();
        assert_eq!(report.findings.len(), 1 + MAX_FINDINGS_PER_FILE);
        assert!(report.findings.last().unwrap().message.ends_with("and 4000 more findings in this file"));
    }

    #[test]
    fn the_json_has_short_numbers_and_leaves_absent_fields_out() {
        let finding = Finding {
            rule: Rule::OutOfRange,
            severity: Severity::Warning,
            fix: Fixability::Auto,
            file: PathBuf::from("labels/a.txt"),
            image: Some(0),
            line: Some(2),
            bbox: Some(Xywhn { cx: 0.95, cy: 0.1, w: 0.2, h: 1.0 }),
            message: "m".to_owned(),
        };
        let expected = concat!(
            r#"{"event":"finding","rule":"out-of-range","severity":"warning","file":"labels/a.txt","line":2,"#,
            r#""box":[0.95,0.1,0.2,1.0],"message":"m","fix":"auto"}"#
        );
        assert_eq!(finding.to_json().to_string(), expected);
        let without = Finding { line: None, bbox: None, ..finding };
        let expected = r#"{"event":"finding","rule":"out-of-range","severity":"warning","file":"labels/a.txt","message":"m","fix":"auto"}"#;
        assert_eq!(without.to_json().to_string(), expected);
    }
}
