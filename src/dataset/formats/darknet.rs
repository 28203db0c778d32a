//! Darknet: `obj.data` with lists of images and a list of names, label files beside the images.
//!
//! In:  such a file; its paths may begin with `data/`, and its lists may name pictures that are not there.
//! Out: the collection, whose rows are read as those of YOLO; or `obj.data`, `obj.names`, a list and a folder a split.
//!
//! Blank lines at the end of the names are no classes. Splits besides train and valid are known to other tools only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::collection::Collection;
use super::source::{self, Source};
use super::target::Target;
use super::xml;
use super::yolo;
use crate::dataset::label::Split;
use crate::dataset::layout::{self, LabelPaths};
use crate::dataset::open::{Dataset, DatasetError, Format, ImageEntry};

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_darknet = |head: &[u8]| {
        let keys = pairs(head);
        keys.contains_key("names") && (keys.contains_key("train") || keys.contains_key("valid"))
    };
    source.heads("data").filter(|(_, head)| is_darknet(head)).map(|(path, _)| path.to_owned()).take(1).collect()
}

/// `key = value` lines.
fn pairs(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let pair = |line: &str| {
        let (key, value) = line.split('#').next()?.split_once('=')?;
        Some((key.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    text.trim_start_matches('\u{feff}').lines().filter_map(pair).filter(|(_, value)| !value.is_empty()).collect()
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let path = files.first().cloned().or_else(|| source.file.clone()).unwrap_or_else(|| source.root.join("obj.data"));
    let foreign = |path: &Path, reason: String| DatasetError::Foreign { path: source.shown(path), reason };
    let keys = pairs(&source::read(source, &path).map_err(|reason| foreign(&path, reason))?);
    let mut notes = Vec::new();
    let names = match keys.get("names").and_then(|names| source.find_file(names, &path)) {
        Some(names) => layout::names_in(names).unwrap_or_default(),
        None => return Err(foreign(&path, format!("names is {:?}, which does not exist", keys.get("names").map_or("", String::as_str)))),
    };
    if let Some(n) = keys.get("classes").and_then(|n| n.parse::<usize>().ok()).filter(|&n| n != names.len()) {
        notes.push(format!("classes = {n}, but there are {} names; the names count", names.len()));
    }
    let mut labels = LabelPaths::default();
    let mut images = Vec::new();
    let mut n_missing = 0;
    for (key, value) in &keys {
        let split = match key.as_str() {
            "train" => Split::Train,
            "valid" | "val" => Split::Val,
            "test" => Split::Test,
            _ => continue,
        };
        let Some(list) = source.find_file(value, &path) else {
            notes.push(format!("{key} is {value:?}, which does not exist"));
            continue;
        };
        let bytes = source::read(source, list).map_err(|reason| foreign(list, reason))?;
        for line in layout::text_lines(&bytes) {
            let line = line.to_string_lossy();
            let picture = source.find_image(&line, list).map(Path::to_owned);
            let beside = picture.as_ref().map(|picture| labels.of(picture)).filter(|label| label.is_file());
            let stem = line.rsplit_once('.').map_or(&*line, |(stem, _)| stem);
            let found = beside.or_else(|| source.find_file(&format!("{stem}.txt"), list).map(Path::to_owned));
            n_missing += usize::from(picture.is_none());
            // A name below the root, wherever the list says that the picture is.
            let below = || {
                source.root.join(line.replace('\\', "/").split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect::<PathBuf>())
            };
            let path = picture.unwrap_or_else(below);
            let label_path = found.unwrap_or_else(|| path.with_extension("txt"));
            images.push(ImageEntry { path, label_path, split });
        }
    }
    if n_missing > 0 {
        notes.push(format!("{n_missing} pictures of the lists are not there"));
    }
    images.sort_by_key(|image| image.split);
    let root = source.root.clone();
    let dataset = Dataset { source: path, root, format: Format::Yolo, names, images, notes, n_keypoint_fields: None, merged: None };
    yolo::read_dataset(source, &dataset)
}

fn folder(split: Split) -> &'static str {
    match split {
        Split::Train => "obj_train_data",
        Split::Val => "obj_valid_data",
        Split::Test => "obj_test_data",
    }
}

pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    target.place_images(|placed| format!("{}/{}", folder(placed.split), placed.file_name()))?;
    target.each(|placed, image| {
        if !image.is_labelled && image.objects.is_empty() {
            return Ok(());
        }
        target.write(&format!("{}/{}.txt", folder(placed.split), placed.stem), &yolo::rows(image))
    })?;
    let mut data = format!("classes = {}\n", target.collection.names.len());
    for split in target.splits() {
        let key = if split == Split::Val { "valid" } else { split.name() };
        let lines = target.of_split(split).map(|(_, placed, _)| format!("data/{}/{}\n", folder(split), placed.file_name()));
        target.write(&format!("{key}.txt"), &lines.collect::<String>())?;
        data += &[key, " = data/", key, ".txt\n"].concat();
    }
    data += "names = data/obj.names\nbackup = backup/\n";
    target.write("obj.names", &xml::lines(&target.collection.names))?;
    target.write("obj.data", &data)?;
    Ok(PathBuf::from("obj.data"))
}

#[cfg(test)]
mod tests {
    use super::super::collection::Coords;
    use super::super::tests::read;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn its_traps_are_read() {
        let root = folder(&[
            ("obj.data", "classes=3\ntrain  = data/train.txt\nvalid=data/gone.txt\nnames = data/obj.names\nbackup = backup/\n"),
            ("obj.names", "b\na\n\n\n"),
            ("train.txt", "data/obj_train_data/x.png\ndata\\obj_train_data\\y.png\ndata/obj_train_data/../../../z.png\n"),
            ("obj_train_data/x.txt", "1 .5 .5 .25 .25\n"),
            ("obj_train_data/y.txt", "0 .5 .5 .25 .25\n5 .5 .5 .25 .25\n"),
            ("obj_train_data/z.txt", ""),
        ]);
        png(root.path(), "obj_train_data/x.png", 100, 50);
        let read = read(root.path());
        assert_eq!(read.names, ["b", "a"]);
        let listed: Vec<_> = read.images.iter().map(|image| (image.name.as_str(), image.path.is_some(), image.objects.len())).collect();
        assert_eq!(
            listed,
            [("obj_train_data/x.png", true, 1), ("data/obj_train_data/y.png", false, 2), ("data/obj_train_data/z.png", false, 0)]
        );
        assert_eq!((read.images[0].objects[0].class, read.images[0].objects[0].coords), (1, Coords::Fractions([0.5, 0.5, 0.25, 0.25])));
        assert!(read.images[2].is_labelled);
        for start in ["classes = 3, but there are 2 names", "valid is \"data/gone.txt\"", "2 pictures of the lists are not there"] {
            assert!(read.notes.iter().any(|note| note.starts_with(start)), "{:?}", read.notes);
        }
    }
}
