//! KITTI: a text file an image, with a class, a box in pixels and numbers in space a row. Only read.
//!
//! In:  files of rows `type truncated occluded alpha x1 y1 x2 y2` and seven (with a score: eight) numbers more.
//! Out: the collection. What is said about space is counted as left out; `DontCare` regions are a class as any other.

use std::path::{Path, PathBuf};

use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object};
use super::source::{self, Source};
use crate::dataset::label::Split;

/// Fields of a row, without and with a score.
const N_FIELDS: [usize; 2] = [15, 16];

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_kitti = |head: &[u8]| {
        let text = String::from_utf8_lossy(head);
        text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| row(line).is_ok())
    };
    let found = source.heads("txt").any(|(_, head)| is_kitti(&head));
    if found { source.with_ending("txt").map(Path::to_owned).collect() } else { Vec::new() }
}

struct Row {
    name: String,
    corners: [f64; 4],
    truncated: f64,
    occluded: f64,
    score: Option<f64>,
}

fn row(line: &str) -> Result<Row, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if !N_FIELDS.contains(&fields.len()) {
        return Err(format!("{} fields, expected 15, or 16 with a score", fields.len()));
    }
    if fields[0].parse::<f64>().is_ok() {
        return Err("begins with a number, expected a class".to_owned());
    }
    let number = |index: usize| {
        let value = fields[index].parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| format!("field {} is {:?}, expected a number", index + 1, fields[index].chars().take(24).collect::<String>()))
    };
    for index in 1..fields.len() {
        number(index)?;
    }
    Ok(Row {
        name: fields[0].to_owned(),
        corners: [number(4)?, number(5)?, number(6)?, number(7)?],
        truncated: number(1)?,
        occluded: number(2)?,
        score: if fields.len() == 16 { Some(number(15)?) } else { None },
    })
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Collection {
    let mut collection = Collection::default();
    let mut classes = ClassTable::default();
    let stems = source.stems();
    let mut n_in_space = 0;
    let mut seen = std::collections::HashSet::new();
    for path in files {
        let shown = source.shown(path);
        // Lists and notes have no picture of their name.
        let Some(image) = source.image_of_stem(path, &stems).map(Path::to_owned) else {
            collection.notes.push(format!("{shown} has no picture and is left out"));
            continue;
        };
        seen.insert(image.clone());
        let text = match source::read(source, path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(reason) => {
                collection.left_out.push(format!("{reason}; the image is left out"));
                continue;
            }
        };
        let mut objects = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match row(line) {
                Err(reason) => collection.left_out.push(format!("{shown} line {}: {reason}", number + 1)),
                Ok(row) => {
                    n_in_space += 1;
                    let mut object = Object { score: row.score, ..Object::new(classes.class(&row.name), Coords::Pixels(row.corners)) };
                    // -1 says that it is not known.
                    for (key, value) in [("truncated", row.truncated), ("occluded", row.occluded)] {
                        if value > 0.0 {
                            object.attributes.push((key.to_owned(), value.to_string()));
                        }
                    }
                    objects.push(object);
                }
            }
        }
        collection.images.push(record(source, image, true, objects));
    }
    let rest = source.images().iter().filter(|image| !seen.contains(*image));
    collection.images.extend(rest.map(|image| record(source, image.clone(), false, Vec::new())));
    if n_in_space > 0 {
        collection.left_out.push(format!("sizes, places and angles in space of {n_in_space} objects"));
    }
    classes.finish(0, &mut collection);
    collection
}

fn record(source: &Source, image: PathBuf, is_labelled: bool, objects: Vec<Object>) -> ImageRecord {
    let split = source.split_of(&image).unwrap_or(Split::Train);
    ImageRecord { name: source.name(&image), path: Some(image), size: None, split, is_labelled, objects }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{format_of, read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn rows_are_read_with_what_is_known() {
        let rows = "Car 0.25 1 1.85 387.6 181.5 423.8 203.1 1.6 1.8 3.2 -16.5 2.3 58.4 1.5\n\
                    DontCare -1 -1 -10 5 6 7 8 -1 -1 -1 -1000 -1000 -1000 -10\n\
                    Car 0 0 0 1 2 3 4 0 0 0 0 0 0 0 0.75\nCar 0 0 nan 1 2 3 4 0 0 0 0 0 0 0\n";
        let root = folder(&[("training/label_2/000001.txt", rows), ("training/label_2/000002.txt", ""), ("readme.txt", "hello")]);
        for name in ["000001", "000002", "000003"] {
            png(root.path(), &format!("training/image_2/{name}.png"), 640, 480);
        }
        assert_eq!(format_of(root.path()), "kitti");
        let read = read(root.path());
        assert_eq!(read.names, ["Car", "DontCare"]);
        let listed: Vec<_> = read.images.iter().map(|image| (image.is_labelled, image.objects.len())).collect();
        assert_eq!(listed, [(true, 3), (true, 0), (false, 0)]);
        let objects = &read.images[0].objects;
        assert_eq!(objects[0].coords, Coords::Pixels([387.6, 181.5, 423.8, 203.1]));
        assert_eq!((objects[0].attribute("truncated"), objects[1].attributes.len(), objects[2].score), (Some("0.25"), 0, Some(0.75)));
        assert!(read.left_out[0].ends_with("line 4: field 4 is \"nan\", expected a number"), "{:?}", read.left_out);
    }
}
