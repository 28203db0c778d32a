//! YOLO: data.yaml or one of the usual layouts, a text file of rows an image.
//!
//! In:  a dataset as `Dataset` opens it. Rows are those of its one parser; here their numbers are read with all digits, and
//!      rows with classes outside the names, empty boxes and boxes outside the image come along.
//! Out: the collection; or `images/SPLIT`, `labels/SPLIT`, `data.yaml`.
//!
//! A sixth column is a confidence or a track id: which, is decided over all files, and told. Polygons are not written:
//! the public trainers read a file with both kinds of rows as polygons alone.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::collection::{Collection, Coords, ImageRecord, Object};
use super::source::Source;
use super::target::Target;
use crate::dataset::data_yaml::DataYaml;
use crate::dataset::label::Split;
use crate::dataset::open::{Dataset, DatasetError, Format};
use crate::dataset::parse::{self, ParseOptions};

/// A data.yaml, if there is one that opens.
pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    open(source).into_iter().filter(|dataset| dataset.source.is_file()).map(|dataset| dataset.source).collect()
}

/// Any layout with labels beside its images.
pub(super) fn recognise_layout(source: &Source) -> Vec<PathBuf> {
    let labels = |dataset: Dataset| dataset.images.into_iter().map(|image| image.label_path).find(|path| path.is_file());
    open(source).and_then(labels).into_iter().collect()
}

fn open(source: &Source) -> Option<Dataset> {
    let path = source.file.as_deref().unwrap_or(&source.root);
    Dataset::open(path).ok().filter(|dataset| dataset.format == Format::Yolo)
}

/// What one label file gives.
struct FileRead {
    objects: Vec<Object>,
    left_out: Vec<String>,
    /// Objects with a sixth column, and its number.
    sixth: Vec<(usize, f64)>,
    n_keypoints: usize,
    is_labelled: bool,
    is_unknown: bool,
}

pub(super) fn read(source: &Source, _: &[PathBuf]) -> Result<Collection, DatasetError> {
    let dataset = Dataset::open(source.file.as_deref().unwrap_or(&source.root))?;
    read_dataset(source, &dataset)
}

pub(super) fn read_dataset(source: &Source, dataset: &Dataset) -> Result<Collection, DatasetError> {
    let mut collection = Collection { names: dataset.names.clone(), notes: dataset.notes.clone(), ..Collection::default() };
    let read: Vec<FileRead> = dataset
        .images
        .par_iter()
        .map(|image| {
            let bytes = dataset.label_bytes(&image.label_path)?;
            Ok(read_file(dataset, &source.shown(&image.label_path), bytes.as_deref()))
        })
        .collect::<Result<_, DatasetError>>()?;
    let sixths = || read.iter().flat_map(|file| &file.sixth).map(|(_, value)| *value);
    let meaning = sixth_column(sixths());
    match (meaning, sixths().count()) {
        (_, 0) => {}
        (Some(Sixth::Track), n) => {
            collection.notes.push(format!("the sixth column of {n} rows is a track id: all are whole numbers from 1"));
        }
        (Some(Sixth::Score), n) => collection.notes.push(format!("the sixth column of {n} rows is a confidence: all are from 0 to 1")),
        (None, n) => collection.left_out.push(format!("the sixth column of {n} rows, which is neither a confidence nor a track id")),
    }
    let n_keypoints: usize = read.iter().map(|file| file.n_keypoints).sum();
    if n_keypoints > 0 {
        collection.left_out.push(format!("keypoints of {n_keypoints} objects"));
    }
    for (image, mut file) in dataset.images.iter().zip(read) {
        collection.left_out.append(&mut file.left_out);
        if file.is_unknown {
            continue;
        }
        for (index, value) in file.sixth {
            match meaning {
                Some(Sixth::Track) => file.objects[index].track = Some(value as i64),
                Some(Sixth::Score) => file.objects[index].score = Some(value),
                None => {}
            }
        }
        collection.images.push(ImageRecord {
            name: source.name(&image.path),
            path: Some(image.path.clone()).filter(|path| path.is_file()),
            size: None,
            split: image.split,
            is_labelled: file.is_labelled,
            objects: file.objects,
        });
    }
    Ok(collection)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sixth {
    Score,
    Track,
}

fn sixth_column(values: impl Iterator<Item = f64> + Clone) -> Option<Sixth> {
    if values.clone().all(|value| value >= 1.0 && value.fract() == 0.0 && value < 9e15) {
        Some(Sixth::Track)
    } else {
        values.clone().all(|value| (0.0..=1.0).contains(&value)).then_some(Sixth::Score)
    }
}

fn read_file(dataset: &Dataset, shown: &str, bytes: Option<&[u8]>) -> FileRead {
    let mut read = FileRead {
        objects: Vec::new(),
        left_out: Vec::new(),
        sixth: Vec::new(),
        n_keypoints: 0,
        is_labelled: bytes.is_some(),
        is_unknown: false,
    };
    let Some(bytes) = bytes else { return read };
    let options = ParseOptions { n_classes: dataset.names.len(), n_keypoint_fields: dataset.n_keypoint_fields };
    let file = parse::parse(bytes, options, &|| None);
    if let Some(problem) = file.problem {
        // Without its labels the image would become background.
        read.left_out.push(format!("{shown}: the file {problem}; the image is left out"));
        read.is_unknown = true;
        return read;
    }
    for row in &file.rows {
        let text = &bytes[row.bytes.clone()];
        let fields: Vec<Range<usize>> = parse::tokens(text).collect();
        let number = |index: usize| parse::number(&text[fields[index].clone()]).filter(|value| value.is_finite());
        let numbers: Option<Vec<f64>> = (0..fields.len()).map(number).collect();
        let class = numbers.as_ref().map(|numbers| numbers[0]).filter(|class| class.fract() == 0.0 && class.abs() < 9e15);
        let (Some(numbers), Some(class)) = (numbers, class) else {
            read.left_out.push(format!("{shown} line {}: {}", row.line, reason(row)));
            continue;
        };
        let bbox = |numbers: &[f64]| Object::new(class as i64, Coords::Fractions([numbers[1], numbers[2], numbers[3], numbers[4]]));
        let has_keypoints = dataset.n_keypoint_fields.is_some_and(|n| numbers.len() == 5 + n);
        let object = match numbers.len() {
            5 => Some(bbox(&numbers)),
            6 => {
                read.sixth.push((read.objects.len(), numbers[5]));
                Some(bbox(&numbers))
            }
            _ if has_keypoints => {
                read.n_keypoints += 1;
                Some(bbox(&numbers))
            }
            n if n >= 7 && n % 2 == 1 => Object::outlined(class as i64, vec![numbers[1..].as_chunks().0.to_vec()], false),
            _ => None,
        };
        match object {
            Some(object) => read.objects.push(object),
            None => read.left_out.push(format!("{shown} line {}: {}", row.line, reason(row))),
        }
    }
    read
}

fn reason(row: &parse::Row) -> String {
    match &row.verdict {
        parse::Verdict::Dropped(dropped) => format!("{}: {}", dropped.rule.id(), dropped.reason),
        _ => "is no row of numbers".to_owned(),
    }
}

pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    for split in target.splits() {
        target.make_folder(&format!("labels/{}", split.name()))?;
    }
    target.place_images(|placed| format!("images/{}/{}", placed.split.name(), placed.file_name()))?;
    target.each(|placed, image| {
        // A background image gets an empty file: it was looked at, as far as its source says.
        if !image.is_labelled && image.objects.is_empty() {
            return Ok(());
        }
        target.write(&format!("labels/{}/{}.txt", placed.split.name(), placed.stem), &rows(image))
    })?;
    let splits: Vec<Split> = target.splits().collect();
    let place = |split: Split| if splits.contains(&split) { vec![format!("images/{}", split.name())] } else { Vec::new() };
    let yaml = DataYaml {
        train: place(Split::Train),
        val: place(Split::Val),
        test: place(Split::Test),
        names: target.collection.names.clone(),
        ..DataYaml::default()
    };
    target.write_with("data.yaml", |file| std::io::Write::write_all(file, yaml.to_text().as_bytes()))?;
    Ok(Path::new("data.yaml").to_owned())
}

/// The rows of an image.
pub(super) fn rows(image: &ImageRecord) -> String {
    let mut text = String::new();
    for object in &image.objects {
        let numbers: [String; 4] = match (object.coords, object.fractions(image.size)) {
            // As they were written.
            (Coords::Fractions(fractions), _) if object.outline.is_empty() => fractions.map(|value| value.to_string()),
            // The shortest that read back to the same f32: at 8000 pixels that is 0.0003 of one.
            (_, Some(fractions)) => fractions.map(|value| (value as f32).to_string()),
            (_, None) => continue,
        };
        text += &[&object.class.to_string(), " ", &numbers.join(" "), "\n"].concat();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn rows_come_over_as_they_are() {
        let rows = "0 .5 .5 .25 .25\n7 0.5 0.5 1.5 0\n-1 .1 .1 .1 .1\n1.0\t.2 .2 .1 .1\r\n1 .1 .1 .4 .1 .2 .6\n1.5 .5 .5 .1 .1\n0 nan .5 .1 .1\n0 .5 .5\n0 .5 .5 .25 .25\n";
        let root =
            folder(&[("data.yaml", "train: images\nval: images\nnames: [a, b]\n"), ("labels/x.txt", rows), ("labels/bad.txt", "<html>")]);
        for name in ["x", "y", "bad"] {
            png(root.path(), &format!("images/{name}.png"), 100, 50);
        }
        let read = read(&root.path().join("data.yaml"));
        assert_eq!(read.images.len(), 4, "train and val are the same folder, and the file that is no label file is left out");
        let x = read.images.iter().find(|image| image.name == "images/x.png").map(|image| &image.objects[..]).unwrap_or_default();
        let classes: Vec<i64> = x.iter().map(|object| object.class).collect();
        assert_eq!(classes, [0, 7, -1, 1, 1, 0]);
        assert_eq!(x[1].coords, Coords::Fractions([0.5, 0.5, 1.5, 0.0]));
        assert_eq!(x[4].outline, [[[0.1, 0.1], [0.4, 0.1], [0.2, 0.6]]]);
        let places: Vec<_> = read.left_out.iter().take(4).map(|text| text.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(places, ["labels/bad.txt", "labels/x.txt line 6", "labels/x.txt line 7", "labels/x.txt line 8"], "{:?}", read.left_out);
        let labelled: Vec<bool> = read.images.iter().take(2).map(|image| image.is_labelled).collect();
        assert_eq!(labelled, [true, false]);
    }

    #[test]
    fn a_sixth_column_is_told_apart_over_all_files() {
        assert_eq!(sixth_column([1.0, 12.0].into_iter()), Some(Sixth::Track));
        assert_eq!(sixth_column([1.0, 0.5].into_iter()), Some(Sixth::Score));
        assert_eq!(sixth_column([3.0, 0.5].into_iter()), None);
        let root = folder(&[
            ("images/a.png", ""),
            ("images/b.png", ""),
            ("labels/a.txt", "0 .5 .5 .1 .1 1\n"),
            ("labels/b.txt", "0 .5 .5 .1 .1 0.25\n"),
        ]);
        let read = read(root.path());
        let scores: Vec<_> = read.images.iter().map(|image| (image.objects[0].score, image.objects[0].track)).collect();
        assert_eq!(scores, [(Some(1.0), None), (Some(0.25), None)]);
        assert!(read.notes.iter().any(|note| note.starts_with("the sixth column of 2 rows is a confidence")), "{:?}", read.notes);
    }
}
