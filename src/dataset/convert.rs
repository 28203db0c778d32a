//! Conversion between formats, with a report of what the target cannot hold.
//!
//! In:  an open dataset, YOLO or Pascal VOC.
//! Out: a new folder `images/SPLIT`, `labels/SPLIT`, `data.yaml`; what was left out or changed, with file and line.
//!
//! Images are hard-linked where the file system can, else copied; never re-encoded. Boxes are cut at the image's edge;
//! boxes of which nothing is left are left out. Everything is written into a hidden folder beside the target, which gets
//! the target's name at the very end: an interrupted, cancelled or failed conversion leaves nothing behind that looks done.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::data_yaml::DataYaml;
use super::edge;
use super::label::{Label, Split};
use super::open::{Dataset, DatasetError, Format, ImageEntry};
use super::parse::{self, Verdict};
use super::rule::Rule;
use super::voc;
use crate::geom::Size;
use crate::geom::Xywhn;
use crate::media::decode;

/// What was written and what was lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertReport {
    pub data_yaml: PathBuf,
    pub n_images: usize,
    pub n_labels: usize,
    /// One line for each thing that the target cannot hold or that was left out, with its place.
    pub losses: Vec<String>,
}

/// Writes `dataset` as YOLO into `out` (new or empty folder): images copied or hard-linked, labels, data.yaml.
///
/// # Errors
/// When `out` has something in it or cannot be written, or on cancellation; nothing stays behind then.
pub fn to_yolo(
    dataset: &Dataset,
    out: &Path,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<ConvertReport, DatasetError> {
    let shown = || out.display().to_string();
    let failed = |source| DatasetError::Write { path: shown(), source };
    let out = std::path::absolute(out).map_err(failed)?;
    let exists = match std::fs::read_dir(&out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => true,
        Ok(false) => return Err(DatasetError::OutNotEmpty { path: shown() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    let parent = out.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(failed)?;
    // Removed with all it holds when this function returns early.
    let staging = tempfile::Builder::new().prefix(".boxwright-").tempdir_in(parent).map_err(failed)?;
    let folder = staging.path().join("yolo");
    let mut report = write_all(dataset, &folder, check_in)?;
    if exists {
        std::fs::remove_dir(&out).map_err(failed)?;
    }
    std::fs::rename(&folder, &out).map_err(failed)?;
    report.data_yaml = out.join("data.yaml");
    Ok(report)
}

/// What became of one image.
#[derive(Default)]
struct ImageReport {
    written: bool,
    n_labels: usize,
    losses: Vec<String>,
    counts: Counts,
}

/// Losses of which only the number is worth telling.
#[derive(Default)]
struct Counts {
    cut: usize,
    polygons: usize,
    difficult: usize,
    truncated: usize,
    occluded: usize,
}

fn write_all(
    dataset: &Dataset,
    folder: &Path,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<ConvertReport, DatasetError> {
    let splits: Vec<Split> = Split::ALL.into_iter().filter(|&split| dataset.split(split).next().is_some()).collect();
    for split in &splits {
        for kind in ["images", "labels"] {
            let path = folder.join(kind).join(split.name());
            std::fs::create_dir_all(&path).map_err(|source| DatasetError::Write { path: path.display().to_string(), source })?;
        }
    }
    let stems = unique_stems(&dataset.images);
    let total = dataset.images.len() as u64;
    let done = AtomicU64::new(0);
    let images: Vec<ImageReport> = dataset
        .images
        .par_iter()
        .zip(&stems)
        .map(|(image, stem)| {
            let report = write_image(dataset, image, stem, folder)?;
            match check_in(done.fetch_add(1, Ordering::Relaxed) + 1, total) {
                ControlFlow::Continue(()) => Ok(report),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;

    let mut report = ConvertReport::default();
    let mut counts = Counts::default();
    for image in images {
        report.n_images += usize::from(image.written);
        report.n_labels += image.n_labels;
        report.losses.extend(image.losses);
        counts.cut += image.counts.cut;
        counts.polygons += image.counts.polygons;
        counts.difficult += image.counts.difficult;
        counts.truncated += image.counts.truncated;
        counts.occluded += image.counts.occluded;
    }
    for (n, what) in [
        (counts.cut, "boxes reached past the image and were cut at its edge"),
        (counts.polygons, "polygons were written as their enclosing boxes"),
        (counts.difficult, "objects are marked difficult, which YOLO cannot hold"),
        (counts.truncated, "objects are marked truncated, which YOLO cannot hold"),
        (counts.occluded, "objects are marked occluded, which YOLO cannot hold"),
    ] {
        if n > 0 {
            report.losses.push(format!("{n} {what}"));
        }
    }
    if dataset.n_keypoint_fields.is_some() {
        report.losses.push("keypoints are left out".to_owned());
    }

    let place = |split: Split| if splits.contains(&split) { vec![format!("images/{}", split.name())] } else { Vec::new() };
    let yaml = DataYaml {
        train: place(Split::Train),
        val: place(Split::Val),
        test: place(Split::Test),
        names: dataset.names.clone(),
        ..DataYaml::default()
    };
    // Last, and on disk before the folder gets its name.
    let path = folder.join("data.yaml");
    let write = || {
        let mut file = std::fs::File::create_new(&path)?;
        file.write_all(yaml.to_text().as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| DatasetError::Write { path: path.display().to_string(), source })?;
    Ok(report)
}

/// A stem for each image that no other image of its split has, also not with other capitals.
fn unique_stems(images: &[ImageEntry]) -> Vec<OsString> {
    let mut taken: HashSet<(Split, String)> = HashSet::new();
    let mut take = |split: Split, stem: &OsString| taken.insert((split, stem.to_string_lossy().to_lowercase()));
    images
        .iter()
        .map(|image| {
            let stem = image.path.file_stem().unwrap_or_default().to_owned();
            let mut unique = stem.clone();
            for number in 2.. {
                if take(image.split, &unique) {
                    break;
                }
                unique.clone_from(&stem);
                unique.push(format!("-{number}"));
            }
            unique
        })
        .collect()
}

fn write_image(dataset: &Dataset, image: &ImageEntry, stem: &OsString, folder: &Path) -> Result<ImageReport, DatasetError> {
    let mut report = ImageReport::default();
    let shown_image = dataset.relative(&image.path);
    let size = match decode::probe(&image.path) {
        Ok(size) => size,
        Err(error) => {
            report.losses.push(format!("{}: {error}; the image is left out", shown_image.display()));
            return Ok(report);
        }
    };
    let Some(labels) = read_labels(dataset, image, size, &mut report)? else { return Ok(report) };
    let in_split = |kind: &str, ending: &str| {
        let mut name = stem.clone();
        name.push(".");
        name.push(ending);
        folder.join(kind).join(image.split.name()).join(name)
    };

    let ending = image.path.extension().unwrap_or_default().to_string_lossy();
    let target = in_split("images", &ending);
    // Links are followed, so that the copy does not depend on where they lead from.
    let source = image.path.canonicalize().unwrap_or_else(|_| image.path.clone());
    std::fs::hard_link(&source, &target)
        .or_else(|_| std::fs::copy(&source, &target).map(drop))
        .map_err(|source| DatasetError::Write { path: target.display().to_string(), source })?;

    // A background image gets an empty file: it was looked at, as far as its source says.
    let mut text = String::new();
    for label in &labels {
        text += &parse::row_text(label);
        text.push('\n');
    }
    if !labels.is_empty() || image.label_path.is_file() {
        let target = in_split("labels", "txt");
        std::fs::write(&target, text).map_err(|source| DatasetError::Write { path: target.display().to_string(), source })?;
    }
    report.written = true;
    report.n_labels = labels.len();
    Ok(report)
}

/// The labels to write; what is left out or cut goes into the report. `None`: they cannot be known, so the image must
/// not become background.
fn read_labels(dataset: &Dataset, image: &ImageEntry, size: Size, report: &mut ImageReport) -> Result<Option<Vec<Label>>, DatasetError> {
    let Some(file) = dataset.label_file(image, &|| Some(size))? else { return Ok(Some(Vec::new())) };
    let shown = dataset.relative(&image.label_path);
    if let Some(problem) = &file.problem {
        report.losses.push(format!("{}: the file {problem}; the image is left out", shown.display()));
        return Ok(None);
    }
    if dataset.format == Format::PascalVoc
        && let Some(voc) = dataset.label_bytes(&image.label_path)?.and_then(|bytes| voc::parse_voc(&bytes).ok())
    {
        report.counts.difficult = voc.objects.iter().filter(|object| object.difficult).count();
        report.counts.truncated = voc.objects.iter().filter(|object| object.truncated).count();
        report.counts.occluded = voc.objects.iter().filter(|object| object.occluded).count();
    }
    let mut labels = Vec::new();
    for row in &file.rows {
        report.counts.polygons += usize::from(row.polygon);
        match &row.verdict {
            Verdict::Used(label) => labels.push(*label),
            Verdict::Clamped { clamped, .. } => {
                report.counts.cut += 1;
                labels.push(*clamped);
            }
            Verdict::Dropped(dropped) => {
                // A small rest of a box is doubtful for training, but here losing it without a word is worse.
                let rest = dropped.bbox.filter(|_| dropped.rule == Rule::OutOfRange).and_then(inside);
                let outcome = match (rest, dropped.class) {
                    (Some(bbox), Some(class)) => {
                        labels.push(Label { class, bbox });
                        "cut at the image's edge"
                    }
                    _ => "left out",
                };
                report.losses.push(format!("{} line {}: {}: {}; {outcome}", shown.display(), row.line, dropped.rule.id(), dropped.reason));
            }
        }
    }
    Ok(Some(labels))
}

/// The part of a box inside the image, if there is any.
fn inside(bbox: Xywhn) -> Option<Xywhn> {
    let [cx, cy, w, h] = [bbox.cx, bbox.cy, bbox.w, bbox.h].map(f64::from);
    let edges = [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0].map(|edge| edge.clamp(0.0, 1.0));
    let inside = edge::xywhn_from_edges(edges);
    (inside.w > 0.0 && inside.h > 0.0).then_some(inside)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::open::tests::{folder, png};
    use super::*;
    use crate::dataset::check;
    use crate::dataset::stats;

    fn never(_: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn object(name: &str, [x1, y1, x2, y2]: [i32; 4]) -> String {
        format!(
            "<object><name>{name}</name><difficult>1</difficult><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>\n"
        )
    }

    #[test]
    fn pascal_voc_becomes_yolo_and_losses_are_told_by_place() {
        let objects = [
            object("dog", [10, 5, 50, 25]),
            object("cat", [60, 10, 104, 20]),
            object("cat", [90, 10, 150, 20]),
            object("cat", [30, 10, 30, 20]),
        ];
        let root = folder(&[
            ("Annotations/a.xml", &format!("<annotation>\n{}</annotation>", objects.concat())),
            ("Annotations/b.xml", "<annotation/>"),
            ("ImageSets/Main/train.txt", "a\nb\nc\n"),
            ("ImageSets/Main/val.txt", "d\n"),
            ("JPEGImages/d.jpg", "broken"),
        ]);
        for stem in ["a", "b", "c"] {
            png(root.path(), &format!("JPEGImages/{stem}.png"), 100, 50);
        }
        let out = root.path().join("new/out");
        let report = to_yolo(&Dataset::open(root.path()).unwrap(), &out, &never).unwrap();
        assert_eq!((report.n_images, report.n_labels, &report.data_yaml), (3, 3, &out.join("data.yaml")));
        let labels = std::fs::read_to_string(out.join("labels/train/a.txt")).unwrap();
        assert!(labels.starts_with("1 0.3 0.3 0.4 0.4\n0 0.8 0.3 0.4 0.2\n0 0.95"), "{labels}");
        assert!(out.join("labels/train/b.txt").is_file() && !out.join("labels/train/c.txt").exists());
        assert_eq!(report.losses.len(), 5, "{:#?}", report.losses);
        assert!(report.losses[0].starts_with("Annotations/a.xml line 4: out-of-range: only 17 % of the box"), "{}", report.losses[0]);
        assert!(report.losses[1].ends_with("line 5: zero-size: width 0, height 10 pixels; left out"), "{}", report.losses[1]);
        assert!(report.losses[2].starts_with("JPEGImages/d.jpg: "));

        let written = Dataset::open(&out).unwrap();
        assert_eq!(written.names, ["cat", "dog"]);
        let findings = check::check(&written, &never).unwrap().findings;
        assert!(findings.iter().all(|finding| finding.line.is_none()), "{findings:#?}");
    }

    /// Counts found by another program over the XML (Python's `ElementTree`).
    #[test]
    fn bccd_converts_with_two_empty_boxes_left_out() {
        let Some(shared) = std::env::var_os("BOXWRIGHT_SHARED") else { return };
        let dataset = Dataset::open(&Path::new(&shared).join("data/bccd-voc")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("bccd");
        let report = to_yolo(&dataset, &out, &never).unwrap();
        assert_eq!((report.n_images, report.n_labels), (364, 4886), "{:#?}", report.losses);
        let expected = [
            "Annotations/BloodImage_00338.xml",
            "Annotations/BloodImage_00343.xml",
            "1131 objects are marked truncated, which YOLO cannot hold",
        ];
        assert_eq!(report.losses.len(), expected.len());
        for start in expected {
            assert!(report.losses.iter().any(|loss| loss.starts_with(start)), "{start} in {:#?}", report.losses);
        }

        let written = Dataset::open(&out).unwrap();
        let counts = stats::statistics(&written, &never).unwrap();
        assert_eq!(written.names, ["Platelets", "RBC", "WBC"]);
        let per_split = counts.splits.map(|split| (split.n_images, split.labels_per_class));
        assert_eq!(per_split, [(205, vec![209, 2381, 214]), (87, vec![83, 967, 87]), (72, vec![69, 805, 71])]);
        assert_eq!(stats::statistics(&dataset, &never).unwrap(), stats::statistics(&written, &never).unwrap());
        assert_eq!(check::check(&written, &never).unwrap().findings, []);
        let rules: Vec<_> = check::check(&dataset, &never).unwrap().counts();
        assert_eq!(rules, [(Rule::ZeroSize, 2)]);
    }

    #[test]
    fn images_of_one_name_stay_apart() {
        let root = folder(&[
            ("data.yaml", "train: [one/images, two/images]\nval: one/images\nnames: [x, 'no']\n"),
            ("one/labels/a.txt", "0 .5 .5 .2 .2\n"),
            ("two/labels/A.txt", "1 .5 .5 .2 .2\n0 .1 .1 .3 .1 .3 .3\n"),
        ]);
        png(root.path(), "one/images/a.png", 10, 10);
        png(root.path(), "two/images/A.png", 10, 10);
        let out = root.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let report = to_yolo(&Dataset::open(root.path()).unwrap(), &out, &never).unwrap();
        assert_eq!((report.n_images, report.n_labels, report.losses.len()), (3, 4, 1));
        let read = |path: &str| std::fs::read_to_string(out.join(path)).unwrap();
        assert_eq!((read("labels/train/a.txt"), read("labels/val/a.txt")), ("0 0.5 0.5 0.2 0.2\n".into(), "0 0.5 0.5 0.2 0.2\n".into()));
        assert_eq!(read("labels/train/A-2.txt"), "1 0.5 0.5 0.2 0.2\n0 0.2 0.2 0.2 0.2\n");
        assert_eq!(std::fs::read(out.join("images/train/A-2.png")).unwrap(), std::fs::read(root.path().join("two/images/A.png")).unwrap());
        assert_eq!(Dataset::open(&out).unwrap().names, ["x", "no"]);
    }

    #[test]
    fn a_cancelled_or_refused_conversion_leaves_nothing_behind() {
        let root = folder(&[("images/a.png", ""), ("labels/a.txt", ""), ("full/x", "")]);
        png(root.path(), "images/a.png", 10, 10);
        let dataset = Dataset::open(root.path()).unwrap();
        let before = || std::fs::read_dir(root.path()).unwrap().count();
        let n = before();
        assert!(matches!(to_yolo(&dataset, &root.path().join("out"), &|_, _| ControlFlow::Break(())), Err(DatasetError::Cancelled)));
        assert!(matches!(to_yolo(&dataset, &root.path().join("full"), &never), Err(DatasetError::OutNotEmpty { .. })));
        assert!(matches!(to_yolo(&dataset, &root.path().join("full/x"), &never), Err(DatasetError::Write { .. })));
        assert!(matches!(to_yolo(&dataset, &root.path().join("full/x/y"), &never), Err(DatasetError::Write { .. })));
        assert_eq!((before(), std::fs::read_dir(root.path().join("full")).unwrap().count()), (n, 1));
    }
}
