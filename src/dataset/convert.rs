//! Conversion of a dataset from any format to any that is written, with a report of what the target cannot hold.
//!
//! In:  a folder, a zip of one, or a file of labels, in a format of the table `formats`.
//! Out: first the report; then a new folder in the other format.
//!
//! Nothing is mended on the way: boxes outside the image, empty boxes and classes without a name go over as they are, so
//! that a check finds them afterwards. Images are hard-linked where the file system can, else copied; never re-encoded.
//! Everything is written into a hidden folder beside the target, which gets the target's name at the very end: an
//! interrupted, cancelled or failed conversion leaves nothing behind that looks done.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::formats;
use super::formats::Source;
use super::formats::archive;
use super::formats::loss::{self, Loss};
use super::formats::target::Target;
use super::open::DatasetError;

pub use super::formats::FormatId;

/// What to convert to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertRequest {
    pub source: PathBuf,
    /// New or empty folder; not needed for a dry run.
    pub out: Option<PathBuf>,
    /// `None`: recognised by content.
    pub from: Option<FormatId>,
    pub to: FormatId,
    /// Only the report.
    pub dry_run: bool,
}

/// What is, or was, written, and what is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertReport {
    pub from: FormatId,
    pub to: FormatId,
    pub n_images: usize,
    /// Images without boxes among them.
    pub n_empty: usize,
    pub n_labels: usize,
    pub names: Vec<String>,
    pub losses: Vec<Loss>,
    /// Worth saying, but nothing is lost.
    pub notes: Vec<String>,
    /// What opens the new dataset; `None` before it is written.
    pub written: Option<PathBuf>,
}

/// Converts; `report` gets the report before anything is written.
///
/// # Errors
/// When the source is of no known format or cannot be read, the target has something in it or cannot be written, or on
/// cancellation; nothing stays behind then.
pub fn convert(
    request: &ConvertRequest,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
    report: &mut dyn FnMut(&ConvertReport) -> ControlFlow<()>,
) -> Result<ConvertReport, DatasetError> {
    let format = request.to.info();
    let Some(naming) = format.naming else { return Err(DatasetError::OnlyRead { format: format.title }) };
    let shown = request.out.as_deref().unwrap_or(Path::new("")).display().to_string();
    let failed = |source| DatasetError::Write { path: shown.clone(), source };
    let out = match &request.out {
        Some(out) if !request.dry_run => Some(Out::new(out, &shown)?),
        _ => None,
    };

    // Beside the target, so that pictures can be linked from there; gone when this function returns.
    let unpacked = if archive::is_zip(&request.source) {
        let parent = out.as_ref().map_or_else(std::env::temp_dir, |out| out.parent.clone());
        std::fs::create_dir_all(&parent).map_err(failed)?;
        let folder = tempfile::Builder::new().prefix(".boxwright-").tempdir_in(parent).map_err(failed)?;
        let inside = folder.path().join("unpacked");
        std::fs::create_dir(&inside).map_err(failed)?;
        archive::unpack(&request.source, &inside, check_in)?;
        Some((folder, inside))
    } else {
        None
    };
    let source = Source::open(unpacked.as_ref().map_or(&request.source, |(_, inside)| inside))?;
    let found = formats::recognise(&source, request.from)?;
    let mut collection = found.read(&source)?;
    let losses = loss::losses(&mut collection, format);
    let mut told = ConvertReport {
        from: found.format.id,
        to: request.to,
        n_images: collection.images.len(),
        n_empty: collection.images.iter().filter(|image| image.objects.is_empty()).count(),
        n_labels: collection.n_objects(),
        names: collection.names.clone(),
        losses,
        notes: collection.notes.clone(),
        written: None,
    };
    if report(&told).is_break() {
        return Err(DatasetError::Cancelled);
    }
    let Some(out) = out else { return Ok(told) };
    if collection.images.is_empty() {
        return Err(DatasetError::NothingToWrite { path: request.source.display().to_string(), format: format.title });
    }

    std::fs::create_dir_all(&out.parent).map_err(failed)?;
    // Removed with all it holds when this function returns early.
    let staging = tempfile::Builder::new().prefix(".boxwright-").tempdir_in(&out.parent).map_err(failed)?;
    let folder = staging.path().join("dataset");
    std::fs::create_dir(&folder).map_err(failed)?;
    let entry = formats::write(&Target::new(&folder, &collection, naming, check_in), format)?;
    if out.exists {
        std::fs::remove_dir(&out.path).map_err(failed)?;
    }
    std::fs::rename(&folder, &out.path).map_err(failed)?;
    told.written = Some(out.path.join(entry));
    Ok(told)
}

/// The target, which is new or empty.
struct Out {
    path: PathBuf,
    parent: PathBuf,
    exists: bool,
}

impl Out {
    fn new(out: &Path, shown: &str) -> Result<Self, DatasetError> {
        let failed = |source| DatasetError::Write { path: shown.to_owned(), source };
        let path = std::path::absolute(out).map_err(failed)?;
        let exists = match std::fs::read_dir(&path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => true,
            Ok(false) => return Err(DatasetError::OutNotEmpty { path: shown.to_owned() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        let parent = path.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { path, parent, exists })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::open::Dataset;
    use super::super::open::tests::{folder, png};
    use super::super::rule::Rule;
    use super::*;
    use crate::dataset::check;
    use crate::dataset::stats;

    fn never(_: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn to_yolo(source: &Path, out: &Path, check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync)) -> Result<ConvertReport, DatasetError> {
        let request =
            ConvertRequest { source: source.to_owned(), out: Some(out.to_owned()), from: None, to: FormatId::Yolo, dry_run: false };
        convert(&request, check_in, &mut |_| ControlFlow::Continue(()))
    }

    fn texts(report: &ConvertReport) -> Vec<&str> {
        report.losses.iter().map(|loss| loss.text.as_str()).collect()
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
        let report = to_yolo(root.path(), &out, &never).unwrap();
        assert_eq!((report.n_images, report.n_labels, report.written.as_deref()), (4, 4, Some(&*out.join("data.yaml"))));
        let labels = std::fs::read_to_string(out.join("labels/train/a.txt")).unwrap();
        assert_eq!(labels, "1 0.3 0.3 0.4 0.4\n0 0.82 0.3 0.44 0.2\n0 1.2 0.3 0.6 0.2\n0 0.3 0.3 0 0.2\n");
        assert!(out.join("labels/train/b.txt").is_file() && !out.join("labels/train/c.txt").exists());
        assert_eq!(std::fs::read(out.join("images/val/d.jpg")).unwrap(), b"broken");
        assert_eq!(texts(&report), ["4 objects are marked difficult, which YOLO cannot hold"]);

        let written = Dataset::open(&out).unwrap();
        assert_eq!(written.names, ["cat", "dog"]);
        // What was wrong is wrong still, and is told.
        let findings = check::check(&written, &never).unwrap().findings;
        let mut lines: Vec<_> = findings.iter().filter_map(|finding| Some((finding.line?, finding.rule))).collect();
        lines.sort();
        assert_eq!(lines, [(2, Rule::OutOfRange), (3, Rule::OutOfRange), (4, Rule::ZeroSize)]);
    }

    /// Counts found by another program over the XML (Python's `ElementTree`).
    #[test]
    fn bccd_converts_with_its_two_empty_boxes() {
        let Some(shared) = std::env::var_os("BOXWRIGHT_SHARED") else { return };
        let source = Path::new(&shared).join("data/bccd-voc");
        let dataset = Dataset::open(&source).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("bccd");
        let report = to_yolo(&source, &out, &never).unwrap();
        assert_eq!((report.n_images, report.n_labels), (364, 4888), "{:#?}", report.losses);
        assert_eq!(texts(&report), ["1131 objects are marked truncated, which YOLO cannot hold"]);

        let written = Dataset::open(&out).unwrap();
        let counts = stats::statistics(&written, &never).unwrap();
        assert_eq!(written.names, ["Platelets", "RBC", "WBC"]);
        let per_split = counts.splits.map(|split| (split.n_images, split.labels_per_class));
        assert_eq!(per_split, [(205, vec![209, 2381, 214]), (87, vec![83, 967, 87]), (72, vec![69, 805, 71])]);
        assert_eq!(stats::statistics(&dataset, &never).unwrap(), stats::statistics(&written, &never).unwrap());
        assert_eq!(check::check(&written, &never).unwrap().counts(), check::check(&dataset, &never).unwrap().counts());
        assert!(check::check(&written, &never).unwrap().counts().contains(&(Rule::ZeroSize, 2)));
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
        let report = to_yolo(root.path(), &out, &never).unwrap();
        assert_eq!((report.n_images, report.n_labels, report.losses.len()), (3, 4, 2));
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
        let dataset = root.path();
        let before = || std::fs::read_dir(root.path()).unwrap().count();
        let n = before();
        assert!(matches!(to_yolo(dataset, &root.path().join("out"), &|_, _| ControlFlow::Break(())), Err(DatasetError::Cancelled)));
        assert!(matches!(to_yolo(dataset, &root.path().join("full"), &never), Err(DatasetError::OutNotEmpty { .. })));
        assert!(matches!(to_yolo(dataset, &root.path().join("full/x"), &never), Err(DatasetError::Write { .. })));
        assert!(matches!(to_yolo(dataset, &root.path().join("full/x/y"), &never), Err(DatasetError::Write { .. })));
        assert_eq!((before(), std::fs::read_dir(root.path().join("full")).unwrap().count()), (n, 1));
    }
}
