//! The safe fixes: applied as one edit of the dataset's ledger, with a receipt, and undo.
//!
//! In:  a YOLO dataset and the user's state directory.
//! Out: label files in which boxes are cut at the image's edge, rows that plainly mean something are spelled so that they are
//! used, repeated rows, empty boxes and lines of blanks are gone, UTF-16 and byte-order marks too; what was changed.
//!
//! Only what the parser calls `Fixability::Auto` is done, so training keeps every label that it saw before, and a second
//! fix finds nothing. Rows that need no change stay byte for byte, as do line ends and a missing last line end. Files are
//! planned first; then the edit is recorded; then each file is replaced as a whole, unless it changed since it was read. Never
//! touches an image, never guesses.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::journal;
use super::label_rows;
use super::ledger::record::Scope;
use super::ledger::{Change, Ledger, NewEdit};
use super::open::{self, Dataset, DatasetError, Format, ImageEntry};
use super::parse::{self, Verdict};
use super::replace::{self, ReplaceError};
use super::rule::{Fixability, Rule};
use super::splice;
use super::splice::Splice;
use crate::media::decode;

/// What a fix did (or would do) to one row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowChange {
    pub file: PathBuf,
    /// 1-based, in the file before the fix.
    pub line: usize,
    pub rule: Rule,
    pub before: String,
    /// `None`: the row is removed.
    pub after: Option<String>,
}

/// The outcome of `fix` or `undo`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Receipt {
    /// Of the edit, such as `Fix 3 rows`.
    pub name: String,
    /// Of a fix; undo names only files.
    pub changes: Vec<RowChange>,
    /// Relative to the dataset's root, as are all paths here but `path`.
    pub files: Vec<PathBuf>,
    /// Files left alone, with the reason (such as changed on disk meanwhile).
    pub refused: Vec<(PathBuf, String)>,
    /// The plain-text receipt on disk; `None` for a dry run or when nothing changed.
    pub path: Option<PathBuf>,
}

/// Applies (or with `dry_run` only lists) the automatic fixes. `state_dir` holds journals, outside of the dataset.
///
/// # Errors
/// Pascal VOC; a disk that cannot be written; cancellation. What was replaced until then is whole and can be undone.
pub fn fix(
    dataset: &Dataset,
    state_dir: &Path,
    dry_run: bool,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<Receipt, DatasetError> {
    if dataset.format == Format::PascalVoc {
        return Err(DatasetError::CannotFixVoc { path: dataset.source.display().to_string() });
    }
    let groups = open::by_label_file(dataset);
    let total = groups.len() as u64;
    let done = AtomicU64::new(0);
    let plans: Vec<Option<FilePlan>> = groups
        .par_iter()
        .map(|(label_path, images)| {
            let plan = plan_file(dataset, label_path, &dataset.images[images[0]]);
            match check_in(done.fetch_add(1, Ordering::Relaxed) + 1, total) {
                ControlFlow::Continue(()) => Ok(plan),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;
    let plans: Vec<FilePlan> = plans.into_iter().flatten().collect();

    let mut receipt = Receipt::default();
    if dry_run {
        for plan in plans {
            receipt.files.push(dataset.relative(plan.path));
            receipt.changes.extend(plan.changes);
        }
        return Ok(receipt);
    }
    if plans.is_empty() {
        return Ok(receipt);
    }
    let mut ledger = Ledger::open(state_dir, &dataset.root)?;
    let n_rows: usize = plans.iter().map(|plan| plan.changes.len()).sum();
    let mut changes = Vec::new();
    let mut files = Vec::new();
    for FilePlan { path, original, splices, changes: of_file } in plans {
        files.push(Change::spliced(path.to_owned(), Some(original), splices));
        changes.extend(of_file);
    }
    let name = format!("Fix {n_rows} {}", if n_rows == 1 { "row" } else { "rows" });
    let edit = NewEdit { name: name.clone(), scope: Scope::Fixes, files, ..NewEdit::default() };
    let written = ledger.write(edit, &|| check_in(total, total))?;
    ledger.rest();
    let files: Vec<PathBuf> = written.written.iter().map(|path| dataset.relative(path)).collect();
    changes.retain(|change| files.contains(&change.file));
    let refused = written.left.iter().map(|(path, reason)| (dataset.relative(path), reason.clone())).collect();
    receipt = Receipt { name, changes, files, refused, path: None };
    if let Some(id) = written.id {
        let text = receipt_text(dataset, &receipt, written.failed.as_ref());
        let path = journal::folder(state_dir, &dataset.root).join(format!("edit-{id:04}.txt"));
        match std::fs::write(&path, text) {
            Ok(()) => receipt.path = Some(path),
            // The files are mended and the ledger holds; a missing receipt is told only if nothing worse is.
            Err(source) if written.failed.is_none() => return Err(DatasetError::Write { path: path.display().to_string(), source }),
            Err(_) => {}
        }
    }
    written.failed.map_or(Ok(receipt), Err)
}

/// Takes the last edit of the dataset back, of whatever kind, where no file changed since.
///
/// # Errors
/// When there is none, its record is damaged, or the disk cannot be written (then undo can be called again).
pub fn undo(dataset: &Dataset, state_dir: &Path) -> Result<Receipt, DatasetError> {
    let mut ledger = Ledger::open(state_dir, &dataset.root)?;
    let Some(written) = ledger.undo()? else { return undo_batch(dataset, state_dir) };
    ledger.rest();
    let files = written.written.iter().map(|path| dataset.relative(path)).collect();
    let refused = written.left.into_iter().map(|(path, reason)| (dataset.relative(&path), reason)).collect();
    let receipt = Receipt { name: written.record.name, files, refused, ..Receipt::default() };
    written.failed.map_or(Ok(receipt), Err)
}

/// Takes back the last batch of fixes of a version that kept each in a journal of its own.
///
/// # Errors
/// As [`undo`].
pub fn undo_batch(dataset: &Dataset, state_dir: &Path) -> Result<Receipt, DatasetError> {
    let folder = journal::folder(state_dir, &dataset.root);
    let Some((journal, batch)) = journal::last_batch(&folder)? else {
        return Err(DatasetError::NothingToUndo { path: dataset.source.display().to_string() });
    };
    let damaged = || DatasetError::Journal { path: journal.display().to_string(), reason: "bytes are not as written".to_owned() };
    let mut receipt = Receipt { name: "Fix".to_owned(), ..Receipt::default() };
    for entry in &batch.files {
        let (path, original) = entry.path().zip(entry.original()).ok_or_else(damaged)?;
        let shown = dataset.relative(&path);
        let now = match std::fs::read(&path) {
            Ok(now) => now,
            Err(error) => {
                receipt.refused.push((shown, format!("cannot be read: {error}")));
                continue;
            }
        };
        if now == original {
            continue; // taken back before, or never replaced
        }
        if !entry.wrote(&now) {
            receipt.refused.push((shown, "was changed after the fix".to_owned()));
            continue;
        }
        match replace::replace_file(&path, &now, &original) {
            Ok(()) => receipt.files.push(shown),
            Err(ReplaceError::Refused(reason)) => receipt.refused.push((shown, reason)),
            Err(ReplaceError::Failed(source)) => return Err(DatasetError::Write { path: path.display().to_string(), source }),
        }
    }
    journal::mark_undone(&journal)?;
    Ok(receipt)
}

/// Whether [`undo_batch`] has something to take back.
pub fn has_batch(dataset: &Dataset, state_dir: &Path) -> bool {
    journal::has_batch(&journal::folder(state_dir, &dataset.root))
}

/// What is to be done to one file.
struct FilePlan<'a> {
    path: &'a Path,
    original: Vec<u8>,
    splices: Vec<Splice>,
    changes: Vec<RowChange>,
}

/// Plans one label file; `None` when there is nothing to mend, or it cannot be read (`check` tells that).
fn plan_file<'a>(dataset: &Dataset, path: &'a Path, image: &ImageEntry) -> Option<FilePlan<'a>> {
    let original = dataset.label_bytes(path).ok().flatten()?;
    let file = dataset.relative(path);
    if let Some(text) = parse::from_utf16(&original) {
        // The whole file changes: with what there is to mend in the text.
        let (splices, mut changes) = plan_text(dataset, &file, text.as_bytes(), image);
        let text = splice::apply(text.as_bytes(), &splices)?;
        let before = format!("UTF-16, {} bytes", original.len());
        let after = Some(format!("UTF-8, {} bytes", text.len()));
        changes.insert(0, RowChange { file, line: 1, rule: Rule::Utf16Text, before, after });
        let splices = vec![Splice::new(0, &original, text)];
        return Some(FilePlan { path, original, splices, changes });
    }
    let (splices, changes) = plan_text(dataset, &file, &original, image);
    (!changes.is_empty()).then_some(FilePlan { path, original, splices, changes })
}

/// What is to be done to the text of a label file, in the order of its bytes.
fn plan_text(dataset: &Dataset, file: &Path, original: &[u8], image: &ImageEntry) -> (Vec<Splice>, Vec<RowChange>) {
    let labels = dataset.parse_bytes(original, &|| decode::probe(&image.path).ok());
    let mut planned: Vec<(Splice, RowChange)> = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let mut plan = |line: usize, rule: Rule, row: std::ops::Range<usize>, after: Option<Vec<u8>>| {
        let splice = match &after {
            Some(text) => Splice::new(row.start, &original[row.clone()], text.as_slice()),
            None => label_rows::remove_row(original, row.clone()),
        };
        let change = RowChange { file: file.to_owned(), line, rule, before: text(&original[row]), after: after.as_deref().map(text) };
        planned.push((splice, change));
    };
    if labels.has_bom {
        plan(1, Rule::ByteOrderMark, 0..parse::BOM.len(), Some(Vec::new()));
    }
    for row in &labels.rows {
        let (rule, after) = match &row.verdict {
            Verdict::Clamped { spill, .. } => {
                (if *spill { Rule::RoundingSpill } else { Rule::OutOfRange }, parse::clamped_row(original, row)) //
            }
            Verdict::Dropped(dropped) if dropped.fix == Fixability::Auto => (dropped.rule, dropped.mended.clone().map(String::into_bytes)),
            _ => continue,
        };
        plan(row.line, rule, row.bytes.clone(), after);
    }
    for (line, bytes) in &labels.blank_lines {
        plan(*line, Rule::BlankRow, bytes.clone(), None);
    }
    planned.sort_by_key(|(splice, _)| splice.at);
    planned.into_iter().unzip()
}

fn receipt_text(dataset: &Dataset, receipt: &Receipt, stopped: Option<&DatasetError>) -> String {
    let (n_rows, n_files) = (receipt.changes.len(), receipt.files.len());
    let mut lines = vec![
        "Boxwright fix".to_owned(),
        format!("Dataset {}", dataset.root.display()),
        format!("{n_rows} rows in {n_files} files changed"), //
    ];
    lines.extend(stopped.map(|error| format!("Stopped early: {error}")));
    let mut file: &OsStr = OsStr::new("");
    for change in &receipt.changes {
        if change.file.as_os_str() != file {
            file = change.file.as_os_str();
            lines.extend([String::new(), change.file.display().to_string()]);
        }
        let RowChange { line, rule, before, after, .. } = change;
        lines.push(match after {
            Some(after) => format!("  line {line}, {}: {before} -> {after}", rule.id()),
            None => format!("  line {line}, {}: {before} removed", rule.id()),
        });
    }
    if !receipt.refused.is_empty() {
        lines.extend([String::new(), "Left alone".to_owned()]);
        lines.extend(receipt.refused.iter().map(|(file, reason)| format!("  {}: {reason}", file.display())));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::super::open::tests::{folder, png};
    use super::*;

    const LABELS: &str = "\u{feff}0 .5  .5 .2 .2\r\n0 0.95\t.5 .2 .2  \r\n\r\nbad row\r\n1 .5 .5 0 .2\r\n0 .50 .5 .2 .2\r\n1 .3 1.0 .2 .1";
    const FIXED: &str = "0 .5  .5 .2 .2\r\n0 0.925\t.5 0.15 .2  \r\n\r\nbad row\r\n1 .3 0.975 .2 0.05";

    fn never(_: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A dataset with two images of 200 x 100 pixels.
    fn dataset(labels: &str) -> (TempDir, Dataset) {
        let root = folder(&[
            ("data.yaml", "train: images\nval: images\nnames: [a, b]\n"),
            ("labels/a.txt", labels),
            ("labels/b.txt", "1 .5 .5 .1 .1"), //
        ]);
        png(root.path(), "images/a.png", 200, 100);
        png(root.path(), "images/b.png", 200, 100);
        let dataset = Dataset::open(root.path()).unwrap();
        (root, dataset)
    }

    fn read(root: &TempDir) -> String {
        std::fs::read_to_string(root.path().join("labels/a.txt")).unwrap()
    }

    #[test]
    fn only_touched_rows_change_and_undo_brings_every_byte_back() {
        let (root, dataset) = dataset(LABELS);
        let state = tempfile::tempdir().unwrap();
        let labels = dataset.labels(&dataset.images[0]).unwrap();

        let dry = fix(&dataset, state.path(), true, &never).unwrap();
        let changes: Vec<_> = dry.changes.iter().map(|change| (change.line, change.rule.id(), change.after.as_deref())).collect();
        let expected = [
            (1, "byte-order-mark", Some("")),
            (2, "out-of-range", Some("0 0.925\t.5 0.15 .2")),
            (5, "zero-size", None),
            (6, "duplicate-row", None),
            (7, "out-of-range", Some("1 .3 0.975 .2 0.05")),
        ];
        assert_eq!(changes, expected);
        assert_eq!((read(&root).as_str(), dry.path, std::fs::read_dir(state.path()).unwrap().count()), (LABELS, None, 0));

        let receipt = fix(&dataset, state.path(), false, &never).unwrap();
        assert_eq!(read(&root), FIXED);
        assert_eq!((receipt.changes, receipt.files), (dry.changes, vec![PathBuf::from("labels/a.txt")]));
        let text = std::fs::read_to_string(receipt.path.unwrap()).unwrap();
        assert!(text.contains("line 5, zero-size: 1 .5 .5 0 .2 removed"), "{text}");
        assert_eq!(dataset.labels(&dataset.images[0]).unwrap(), labels, "training sees the same");
        assert_eq!(fix(&dataset, state.path(), false, &never).unwrap(), Receipt::default(), "a second fix finds nothing");

        let undone = undo(&dataset, state.path()).unwrap();
        assert_eq!((undone.files, undone.refused, read(&root).as_str()), (vec![PathBuf::from("labels/a.txt")], vec![], LABELS));
        assert!(matches!(undo(&dataset, state.path()), Err(DatasetError::NothingToUndo { .. })));
    }

    #[test]
    fn undo_leaves_files_alone_that_changed_since() {
        let (root, dataset) = dataset(LABELS);
        let state = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("labels/b.txt"), "1 0 .5 .1 .1").unwrap();
        fix(&dataset, state.path(), false, &never).unwrap();
        std::fs::write(root.path().join("labels/a.txt"), "0 .1 .1 .1 .1\n").unwrap();
        let receipt = undo(&dataset, state.path()).unwrap();
        assert_eq!(receipt.refused, [(PathBuf::from("labels/a.txt"), "was changed by another program after this edit".to_owned())]);
        assert_eq!(receipt.files, [PathBuf::from("labels/b.txt")]);
        assert_eq!(read(&root), "0 .1 .1 .1 .1\n");
    }

    #[test]
    fn a_file_that_changes_while_fixing_is_refused() {
        let (root, dataset) = dataset(LABELS);
        let state = tempfile::tempdir().unwrap();
        let path = root.path().join("labels/a.txt");
        // Planning checks in once for each of the two files, replacing before each file.
        let calls = AtomicU64::new(0);
        let meddle = |_, _| {
            if calls.fetch_add(1, Ordering::Relaxed) == 2 {
                std::fs::write(&path, "0 .1 .1 .1 .1\n").unwrap();
            }
            ControlFlow::Continue(())
        };
        let receipt = fix(&dataset, state.path(), false, &meddle).unwrap();
        assert_eq!(receipt.refused.len(), 1);
        assert_eq!((receipt.files, receipt.path, read(&root).as_str()), (vec![], None, "0 .1 .1 .1 .1\n"));
        assert!(matches!(undo(&dataset, state.path()), Err(DatasetError::NothingToUndo { .. })));
    }

    #[test]
    fn a_cancelled_fix_leaves_whole_files_and_can_be_undone() {
        let (root, dataset) = dataset(LABELS);
        std::fs::write(root.path().join("labels/b.txt"), "1 0 .5 .1 .1").unwrap();
        let state = tempfile::tempdir().unwrap();
        let calls = AtomicU64::new(0);
        let stop = |_, _| if calls.fetch_add(1, Ordering::Relaxed) == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        assert!(matches!(fix(&dataset, state.path(), false, &stop), Err(DatasetError::Cancelled)));
        assert_eq!(read(&root), FIXED);
        assert_eq!(std::fs::read_to_string(root.path().join("labels/b.txt")).unwrap(), "1 0 .5 .1 .1");
        assert_eq!(undo(&dataset, state.path()).unwrap().files, [PathBuf::from("labels/a.txt")]);
        assert_eq!(read(&root), LABELS);
    }

    #[test]
    fn a_state_folder_that_cannot_be_written_stops_before_any_change() {
        let (root, dataset) = dataset(LABELS);
        let state = root.path().join("data.yaml"); // a file where a folder is needed
        let error = fix(&dataset, &state, false, &never).unwrap_err();
        assert!(matches!(error, DatasetError::Write { .. }));
        assert_eq!(read(&root), LABELS);
    }

    #[test]
    fn an_only_box_and_doubtful_boxes_stay() {
        for labels in ["0 .5 .5 0 .2\n", "0 1.2 .5 .2 .2\n1 .5 .5 .1 .1\n", "0 nan .5 .2 .2\n", "9 1 .5 .2 .2\n"] {
            let (_root, dataset) = dataset(labels);
            assert_eq!(fix(&dataset, Path::new("/nowhere"), false, &never).unwrap(), Receipt::default(), "{labels}");
        }
    }

    #[test]
    fn pascal_voc_is_refused_with_a_hint() {
        let root = folder(&[("JPEGImages/a.jpg", ""), ("Annotations/a.xml", "<annotation></annotation>")]);
        let error = fix(&Dataset::open(root.path()).unwrap(), Path::new("/nowhere"), true, &never).unwrap_err();
        assert!(error.hint().unwrap().contains("convert"));
    }

    /// Rows near the edges, repeated and empty ones, some rubbish, with both line ends.
    fn any_file() -> impl Strategy<Value = String> {
        let value = prop_oneof![(-0.2f32..1.2).prop_map(|v| v.to_string()), (0u8..=10).prop_map(|v| format!("{:.1}", f32::from(v) / 10.0))];
        let row = (0u32..3, proptest::collection::vec(value, 4..8)).prop_map(|(class, values)| format!("{class} {}", values.join(" ")));
        let row = prop_oneof![9 => row, 1 => Just("rubbish".to_owned()), 1 => Just(String::new())];
        proptest::collection::vec((row, prop_oneof![Just("\n"), Just("\r\n")]), 0..12).prop_flat_map(|rows| {
            let text: String = rows.iter().flat_map(|(row, end)| [row.as_str(), end]).collect();
            let repeated = rows.first().map(|(row, _)| row.clone()).unwrap_or_default();
            prop_oneof![Just(text.clone()), Just(text + &repeated)]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_second_fix_finds_nothing_and_training_loses_nothing(text in any_file()) {
            let (root, dataset) = dataset(&text);
            let state = tempfile::tempdir().unwrap();
            let image = dataset.images[0].clone();
            let labels = dataset.labels(&image).unwrap();
            let receipt = fix(&dataset, state.path(), false, &never).unwrap();
            let now = dataset.labels(&image).unwrap();
            prop_assert!(labels.iter().all(|label| now.contains(label)), "{:?} in {:?}", labels, now);
            // Rows that are not in the receipt are still there, in order.
            let touched: Vec<usize> = receipt.changes.iter().map(|change| change.line).collect();
            let mut after: Vec<_> = receipt.changes.iter().filter_map(|change| change.after.clone()).collect();
            after.extend(text.lines().enumerate().filter(|(index, _)| !touched.contains(&(index + 1))).map(|(_, row)| row.trim().to_owned()));
            let mut now: Vec<String> = read(&root).lines().map(|row| row.trim().to_owned()).collect();
            after.sort();
            now.sort();
            prop_assert_eq!(now, after);
            prop_assert_eq!(fix(&dataset, state.path(), true, &never).unwrap().changes, []);
            if !receipt.files.is_empty() {
                undo(&dataset, state.path()).unwrap();
            }
            prop_assert_eq!(read(&root), text);
        }
    }
}
