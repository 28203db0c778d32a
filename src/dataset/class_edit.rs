//! What changes when a class is added, renamed, merged, deleted or gets another colour? One edit over the whole dataset.
//!
//! In:  a dataset, and what is to become of one of its classes.
//! Out: the changes of data.yaml (or classes.txt) and of all label files that name the class.
//!
//! Class numbers stay what they are unless renumbering was asked for: a class that goes leaves a name `unused_N` behind, except the last
//! one, whose number nobody needs. In label files only the class of the rows in question changes, of rows that training does not use,
//! too. Colours are kept with the project, never in the dataset. Pascal VOC has names instead of numbers, and nothing to renumber.

use std::path::PathBuf;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::data_yaml::DataYaml;
use super::label::ClassId;
use super::label_rows;
use super::layout;
use super::ledger::record::{ColorChange, Scope};
use super::ledger::{self, Change, Ledger, NewEdit};
use super::open::{self, Dataset, DatasetError, Format};
use super::parse;
use super::splice::Splice;
use super::voc_rows;
use super::yaml_text;

/// A change of the classes of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassEdit {
    Add {
        name: String,
    },
    Rename {
        class: ClassId,
        name: String,
    },
    /// The boxes of a class get another one, and the class goes.
    Merge {
        from: ClassId,
        into: ClassId,
        ids: Ids,
    },
    Delete {
        class: ClassId,
        boxes: Boxes,
        ids: Ids,
    },
    /// `None`: the usual colour.
    Recolor {
        class: ClassId,
        color: Option<[u8; 3]>,
    },
}

/// What becomes of the numbers of other classes when one goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ids {
    #[default]
    Keep,
    /// Those behind it move up by one, in all label files.
    Renumber,
}

/// What becomes of the boxes of a class that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Boxes {
    /// There must be none.
    #[default]
    Refuse,
    Delete,
}

/// What becomes of a row by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFate {
    Keep,
    Become(ClassId),
    Remove,
}

/// The edit of the whole dataset. Reads the label files where their rows may change.
///
/// # Errors
/// A class that is not there, a name that is empty or taken, boxes that are in the way, a data.yaml that is not understood.
pub fn plan(dataset: &Dataset, ledger: &Ledger, edit: &ClassEdit) -> Result<NewEdit, DatasetError> {
    let names = &dataset.names;
    let name_of = |class: ClassId| {
        let n_classes = names.len();
        names
            .get(class.0 as usize)
            .cloned()
            .ok_or(DatasetError::Class { reason: format!("there is no class {}; there are {n_classes}", class.0) })
    };
    let new_name = |name: &str, but: Option<ClassId>| {
        let name = name.trim();
        let taken = names.iter().enumerate().any(|(index, each)| each == name && but.is_none_or(|but| but.0 as usize != index));
        match name {
            "" => Err(DatasetError::Class { reason: "a class needs a name".to_owned() }),
            name if taken => Err(DatasetError::Class { reason: format!("there is a class {name:?} already") }),
            name if name.contains(['\n', '\r']) => Err(DatasetError::Class { reason: "a name is one line".to_owned() }),
            name => Ok(name.to_owned()),
        }
    };
    let mut after = names.clone();
    let mut colors = Vec::new();
    let mut files = Vec::new();
    let color = |class: u32| ledger.colors().get(&class).copied();
    let title = match edit {
        ClassEdit::Add { name } => {
            let name = new_name(name, None)?;
            let title = format!("Add class {name}");
            after.push(name);
            title
        }
        ClassEdit::Rename { class, name } => {
            let (old, name) = (name_of(*class)?, new_name(name, Some(*class))?);
            let title = format!("Rename class {old} to {name}");
            if dataset.format == Format::PascalVoc {
                files = renamed_objects(dataset, &old, Some(&name))?;
            }
            after[class.0 as usize] = name;
            title
        }
        ClassEdit::Merge { from, into, ids } => {
            let (old, new) = (name_of(*from)?, name_of(*into)?);
            if from == into {
                return Err(DatasetError::Class { reason: format!("{old:?} cannot be merged into itself") });
            }
            files = match dataset.format {
                Format::Yolo => {
                    // The class that takes them may itself move up.
                    let target = if *ids == Ids::Renumber && into.0 > from.0 { ClassId(into.0 - 1) } else { *into };
                    changed_rows(dataset, &|class| fate(class, *from, *ids, RowFate::Become(target)))?
                }
                Format::PascalVoc => renamed_objects(dataset, &old, Some(&new))?,
            };
            remove_name(dataset, &mut after, *from, *ids);
            colors = moved_colors(ledger, names.len(), *from, *ids);
            format!("Merge class {old} into {new}")
        }
        ClassEdit::Delete { class, boxes, ids } => {
            let old = name_of(*class)?;
            let n_boxes = count(dataset, *class, &old)?;
            if n_boxes > 0 && *boxes == Boxes::Refuse {
                return Err(DatasetError::ClassHasBoxes { name: old, n_boxes });
            }
            files = match dataset.format {
                Format::Yolo => changed_rows(dataset, &|each| fate(each, *class, *ids, RowFate::Remove))?,
                Format::PascalVoc => renamed_objects(dataset, &old, None)?,
            };
            remove_name(dataset, &mut after, *class, *ids);
            colors = moved_colors(ledger, names.len(), *class, *ids);
            format!("Delete class {old}")
        }
        ClassEdit::Recolor { class, color: new } => {
            let title = format!("Colour of class {}", name_of(*class)?);
            colors.push(ColorChange { class: class.0, before: color(class.0), after: *new });
            title
        }
    };
    if after.is_empty() {
        return Err(DatasetError::Class { reason: "a dataset needs a class".to_owned() });
    }
    if after != *names {
        files.extend(names_change(dataset, &after)?);
    }
    Ok(NewEdit { name: title, scope: Scope::Classes, files, colors, ..NewEdit::default() })
}

/// What becomes of a row when a class goes.
fn fate(class: ClassId, gone: ClassId, ids: Ids, fate: RowFate) -> RowFate {
    match ids {
        _ if class == gone => fate,
        Ids::Renumber if class.0 > gone.0 => RowFate::Become(ClassId(class.0 - 1)),
        _ => RowFate::Keep,
    }
}

fn remove_name(dataset: &Dataset, names: &mut Vec<String>, class: ClassId, ids: Ids) {
    let index = class.0 as usize;
    if ids == Ids::Renumber || index + 1 == names.len() || dataset.format == Format::PascalVoc {
        names.remove(index);
        return;
    }
    let mut unused = format!("unused_{index}");
    while names.contains(&unused) {
        unused.push('_');
    }
    names[index] = unused;
}

/// Colours go with their classes.
fn moved_colors(ledger: &Ledger, n_classes: usize, gone: ClassId, ids: Ids) -> Vec<ColorChange> {
    let old = ledger.colors();
    let before = |class: u32| old.get(&class).copied();
    let after = |class: u32| match ids {
        Ids::Keep => before(class).filter(|_| class != gone.0),
        Ids::Renumber => before(if class < gone.0 { class } else { class + 1 }),
    };
    let changes = (0..n_classes as u32).map(|class| ColorChange { class, before: before(class), after: after(class) });
    changes.filter(|change| change.before != change.after).collect()
}

/// The label files in which a row changes.
fn changed_rows(dataset: &Dataset, fate: &(dyn Fn(ClassId) -> RowFate + Sync)) -> Result<Vec<Change>, DatasetError> {
    let change = |path: PathBuf| -> Result<Option<Change>, DatasetError> {
        let Some(bytes) = dataset.label_bytes(&path)? else { return Ok(None) };
        let mut splices: Vec<Splice> = Vec::new();
        for row in &dataset.parse_bytes(&bytes, &|| None).rows {
            let Some(class) = row_class(&bytes[row.bytes.clone()]) else { continue };
            match fate(class) {
                RowFate::Keep => {}
                RowFate::Become(class) => splices.extend(label_rows::set_class(&bytes, &row.bytes, class)),
                RowFate::Remove => splices.push(label_rows::remove_row(&bytes, row.bytes.clone())),
            }
        }
        Ok((!splices.is_empty()).then(|| Change::spliced(path, Some(bytes), splices)))
    };
    over_label_files(dataset, &change)
}

fn row_class(row: &[u8]) -> Option<ClassId> {
    let token = parse::tokens(row).next()?;
    let class = parse::number(&row[token])?;
    (class.fract() == 0.0 && (0.0..1e9).contains(&class)).then_some(ClassId(class as u32))
}

/// The annotations in which an object has this name, with another one or without the object.
fn renamed_objects(dataset: &Dataset, name: &str, new: Option<&str>) -> Result<Vec<Change>, DatasetError> {
    let change = |path: PathBuf| -> Result<Option<Change>, DatasetError> {
        let Some(bytes) = dataset.label_bytes(&path)? else { return Ok(None) };
        let splices = voc_rows::renamed(&bytes, name, new);
        let splices = splices.map_err(|reason| DatasetError::Label { path: dataset.relative(&path).display().to_string(), reason })?;
        Ok((!splices.is_empty()).then(|| Change::spliced(path, Some(bytes), splices)))
    };
    over_label_files(dataset, &change)
}

fn over_label_files(
    dataset: &Dataset,
    change: &(dyn Fn(PathBuf) -> Result<Option<Change>, DatasetError> + Sync),
) -> Result<Vec<Change>, DatasetError> {
    let paths = open::by_label_file(dataset);
    let changes: Vec<Option<Change>> = paths.par_iter().map(|(path, _)| change(path.to_path_buf())).collect::<Result<_, _>>()?;
    Ok(changes.into_iter().flatten().collect())
}

/// How many rows or objects have this class.
fn count(dataset: &Dataset, class: ClassId, name: &str) -> Result<usize, DatasetError> {
    let paths = open::by_label_file(dataset);
    let counts: Vec<usize> = paths
        .par_iter()
        .map(|(path, _)| {
            let Some(bytes) = dataset.label_bytes(path)? else { return Ok(0) };
            Ok(match dataset.format {
                Format::Yolo => {
                    let rows = dataset.parse_bytes(&bytes, &|| None).rows;
                    rows.iter().filter(|row| row_class(&bytes[row.bytes.clone()]) == Some(class)).count()
                }
                Format::PascalVoc => voc_rows::count(&bytes, name),
            })
        })
        .collect::<Result<_, DatasetError>>()?;
    Ok(counts.into_iter().sum())
}

/// The change of the file that names the classes, which is made where there is none.
fn names_change(dataset: &Dataset, names: &[String]) -> Result<Option<Change>, DatasetError> {
    let path = names_file(dataset);
    let before = ledger::read(&path).map_err(|source| DatasetError::Io { path: path.display().to_string(), source })?;
    let is_yaml = dataset.source.is_file() && path == dataset.source;
    let after = match &before {
        Some(bytes) if is_yaml => {
            let text = std::str::from_utf8(bytes).ok().and_then(|text| yaml_text::with_names(text, names));
            text.ok_or_else(|| DatasetError::YamlForm { path: path.display().to_string() })?.into_bytes()
        }
        Some(bytes) => in_lines(bytes, names),
        None if dataset.format == Format::PascalVoc && names.iter().all(|name| dataset.names.contains(name)) => return Ok(None),
        None => in_lines(b"", names),
    };
    Ok((before.as_deref() != Some(&after)).then(|| Change::whole(path, before, after)))
}

/// Where the names are written.
fn names_file(dataset: &Dataset) -> PathBuf {
    if dataset.source.is_file() {
        return dataset.source.clone();
    }
    match dataset.format {
        Format::Yolo => {
            open::known_names(&dataset.root, &dataset.images).map_or_else(|| dataset.root.join("classes.txt"), |(path, _)| path)
        }
        Format::PascalVoc => {
            let lists = ["classes.txt", "labels.txt"].map(|file| dataset.root.join(file));
            lists.iter().find(|path| layout::names_in(path).is_some()).unwrap_or(&lists[0]).clone()
        }
    }
}

/// A list with a name a line, in which the lines that stay keep their bytes.
fn in_lines(bytes: &[u8], names: &[String]) -> Vec<u8> {
    let line_end: &[u8] = if bytes.windows(2).any(|pair| pair == b"\r\n") { b"\r\n" } else { b"\n" };
    let mut old: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    // Blank lines at the end are no classes.
    let is_blank = |line: &[u8]| line.trim_ascii().is_empty();
    let n_lines = old.iter().rposition(|line| !is_blank(line)).map_or(0, |last| last + 1);
    let blank_tail: Vec<&[u8]> = old.split_off(n_lines);
    let mut out = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let line = old.get(index).copied();
        let text = line.map(|line| line.strip_prefix(parse::BOM).unwrap_or(line).trim_ascii());
        match (line, text) {
            // As it was read: in another encoding than UTF-8, too.
            (Some(line), Some(text)) if String::from_utf8_lossy(text).trim() == name => out.extend_from_slice(line),
            (line, _) => {
                if line.is_some_and(|line| line.starts_with(parse::BOM)) {
                    out.extend_from_slice(parse::BOM);
                }
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(line_end);
            }
        }
        let ends = out.last() == Some(&b'\n');
        if !ends && index + 1 < names.len() {
            out.extend_from_slice(line_end);
        }
    }
    let had_end = bytes.is_empty() || bytes.last() == Some(&b'\n');
    if !had_end && out.ends_with(line_end) {
        out.truncate(out.len() - line_end.len());
    }
    out.extend(blank_tail.concat());
    out
}

/// The dataset with the names that its files give by now, and the same images.
///
/// # Errors
/// As opening it.
pub fn reread_names(dataset: &Dataset) -> Result<Dataset, DatasetError> {
    if !dataset.source.is_file() {
        // Names come from lists and label files there.
        return Dataset::open(&dataset.source);
    }
    let names = DataYaml::read(&dataset.source)?.names;
    Ok(Dataset { names, ..dataset.clone() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::ops::ControlFlow;

    use tempfile::TempDir;

    use super::super::open::tests::folder;
    use super::*;

    const ROWS: &str = "0 .5  .5 .2 .2\r\n2 .3 .3 .1 .1\r\n2 .3 .3 0 .1\r\nodd\r\n1.0 .1 .1 .1 .1";

    struct Setup {
        root: TempDir,
        state: TempDir,
    }

    impl Setup {
        fn new(files: &[(&str, &str)]) -> Self {
            Self { root: folder(files), state: tempfile::tempdir().unwrap() }
        }

        fn yaml() -> Self {
            Self::new(&[
                ("data.yaml", "train: images\nval: images # the same\nnc: 3\nnames: [a, b, c] # mine\n"),
                ("images/x.jpg", ""),
                ("images/y.jpg", ""),
                ("labels/x.txt", ROWS),
                ("labels/y.txt", "1 .5 .5 .2 .2\n"),
            ])
        }

        fn apply(&self, edit: &ClassEdit) -> Result<String, DatasetError> {
            let dataset = Dataset::open(self.root.path()).unwrap();
            let mut ledger = Ledger::open(self.state.path(), &dataset.root).unwrap();
            let new = plan(&dataset, &ledger, edit)?;
            let written = ledger.write(new, &|| ControlFlow::Continue(())).unwrap();
            assert!(written.left.is_empty() && written.failed.is_none());
            Ok(written.record.name)
        }

        fn undo(&self) {
            Ledger::open(self.state.path(), self.root.path()).unwrap().undo().unwrap().unwrap();
        }

        fn text(&self, name: &str) -> String {
            std::fs::read_to_string(self.root.path().join(name)).unwrap_or_default()
        }

        fn all(&self) -> Vec<(PathBuf, Vec<u8>)> {
            let files = layout::files_under(self.root.path()).unwrap();
            files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
        }
    }

    #[test]
    fn numbers_stay_and_only_rows_of_the_class_change() {
        let setup = Setup::yaml();
        let before = setup.all();
        let merge = ClassEdit::Merge { from: ClassId(1), into: ClassId(2), ids: Ids::Keep };
        assert_eq!(setup.apply(&merge).unwrap(), "Merge class b into c");
        assert_eq!(setup.text("labels/x.txt"), ROWS.replace("1.0 .1", "2 .1"));
        assert_eq!(setup.text("labels/y.txt"), "2 .5 .5 .2 .2\n");
        assert!(setup.text("data.yaml").ends_with("nc: 3\nnames: [a, unused_1, c] # mine\n"), "{}", setup.text("data.yaml"));
        setup.undo();
        assert_eq!(setup.all(), before);

        let delete = |boxes| ClassEdit::Delete { class: ClassId(2), boxes, ids: Ids::Keep };
        let error = setup.apply(&delete(Boxes::Refuse)).unwrap_err();
        assert!(error.to_string().contains("2 boxes") && error.hint().is_some(), "{error}");
        setup.apply(&delete(Boxes::Delete)).unwrap();
        assert_eq!(setup.text("labels/x.txt"), "0 .5  .5 .2 .2\r\nodd\r\n1.0 .1 .1 .1 .1");
        assert!(setup.text("data.yaml").ends_with("nc: 2\nnames: [a, b] # mine\n"), "nobody needs the last number");
        setup.undo();
        assert_eq!(setup.all(), before);
    }

    #[test]
    fn numbers_move_up_when_that_was_asked_for() {
        let setup = Setup::yaml();
        let before = setup.all();
        setup.apply(&ClassEdit::Recolor { class: ClassId(2), color: Some([9, 9, 9]) }).unwrap();
        setup.apply(&ClassEdit::Merge { from: ClassId(0), into: ClassId(2), ids: Ids::Renumber }).unwrap();
        assert_eq!(setup.text("labels/x.txt"), "1 .5  .5 .2 .2\r\n1 .3 .3 .1 .1\r\n1 .3 .3 0 .1\r\nodd\r\n0 .1 .1 .1 .1");
        assert!(setup.text("data.yaml").ends_with("nc: 2\nnames: [b, c] # mine\n"));
        let colors = || Ledger::open(setup.state.path(), setup.root.path()).unwrap().colors().clone();
        assert_eq!(colors().into_iter().collect::<Vec<_>>(), [(1, [9, 9, 9])], "the colour goes with its class");
        setup.undo();
        assert_eq!((setup.all(), colors().into_keys().collect::<Vec<_>>()), (before, vec![2]));
        setup.apply(&ClassEdit::Delete { class: ClassId(1), boxes: Boxes::Delete, ids: Ids::Renumber }).unwrap();
        assert_eq!(
            (setup.text("labels/x.txt").as_str(), setup.text("labels/y.txt").as_str()),
            ("0 .5  .5 .2 .2\r\n1 .3 .3 .1 .1\r\n1 .3 .3 0 .1\r\nodd\r\n", "")
        );
    }

    #[test]
    fn names_come_and_change_and_bad_ones_are_refused() {
        let setup = Setup::yaml();
        setup.apply(&ClassEdit::Add { name: " no ".to_owned() }).unwrap();
        setup.apply(&ClassEdit::Rename { class: ClassId(0), name: "A".to_owned() }).unwrap();
        assert!(setup.text("data.yaml").ends_with("nc: 4\nnames: [A, b, c, \"no\"] # mine\n"), "{}", setup.text("data.yaml"));
        assert_eq!(setup.text("labels/x.txt"), ROWS);
        for edit in [
            ClassEdit::Add { name: "b".to_owned() },
            ClassEdit::Add { name: " ".to_owned() },
            ClassEdit::Rename { class: ClassId(9), name: "x".to_owned() },
            ClassEdit::Merge { from: ClassId(1), into: ClassId(1), ids: Ids::Keep },
        ] {
            let error = setup.apply(&edit).unwrap_err();
            assert!(error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn a_dataset_without_data_yaml_keeps_its_list_or_gets_one() {
        let setup = Setup::new(&[("images/x.jpg", ""), ("labels/x.txt", "1 .5 .5 .1 .1\n"), ("labels/classes.txt", "a\r\nb")]);
        setup.apply(&ClassEdit::Add { name: "c".to_owned() }).unwrap();
        assert_eq!(setup.text("labels/classes.txt"), "a\r\nb\r\nc");
        setup.apply(&ClassEdit::Merge { from: ClassId(0), into: ClassId(1), ids: Ids::Renumber }).unwrap();
        assert_eq!((setup.text("labels/classes.txt").as_str(), setup.text("labels/x.txt").as_str()), ("b\r\nc", "0 .5 .5 .1 .1\n"));

        std::fs::write(setup.root.path().join("labels/classes.txt"), b"K\xE4fer\nb\n").unwrap();
        setup.apply(&ClassEdit::Add { name: "c".to_owned() }).unwrap();
        assert_eq!(std::fs::read(setup.root.path().join("labels/classes.txt")).unwrap(), b"K\xE4fer\nb\nc\n", "Latin-1 stays");

        let setup = Setup::new(&[("images/x.jpg", ""), ("labels/x.txt", "1 .5 .5 .1 .1\n")]);
        setup.apply(&ClassEdit::Rename { class: ClassId(1), name: "bolt".to_owned() }).unwrap();
        assert_eq!(setup.text("classes.txt"), "class_0\nbolt\n");
        assert_eq!(Dataset::open(setup.root.path()).unwrap().names, ["class_0", "bolt"]);
    }

    #[test]
    fn pascal_voc_is_renamed_object_by_object() {
        let xml = "<annotation>\n  <object>\n    <name>dog</name>\n    <part><name>dog</name></part>\n  </object>\n  <object><name>cat</name></object>\n</annotation>\n";
        let setup = Setup::new(&[("JPEGImages/x.jpg", ""), ("Annotations/x.xml", xml)]);
        setup.apply(&ClassEdit::Rename { class: ClassId(1), name: "d&g".to_owned() }).unwrap();
        assert_eq!(setup.text("Annotations/x.xml"), xml.replacen("dog", "d&amp;g", 1));
        setup.apply(&ClassEdit::Delete { class: ClassId(0), boxes: Boxes::Delete, ids: Ids::Keep }).unwrap();
        assert_eq!(Dataset::open(setup.root.path()).unwrap().names, ["d&g"]);
        setup.undo();
        setup.undo();
        assert_eq!(setup.text("Annotations/x.xml"), xml);
    }
}
