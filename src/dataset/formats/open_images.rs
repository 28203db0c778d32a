//! Open Images: a CSV file of boxes a split, as fractions of the image. Only read.
//!
//! In:  a table with `ImageID`, `LabelName`, `XMin`, `XMax`, `YMin`, `YMax` (in this format x before y), read line by line;
//!      a table of two columns with the names of labels such as `/m/01g317`, if it lies beside.
//! Out: the collection. Rows of images that are not there are counted, not kept: the lists are far larger than most
//!      people's part of the images.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::collection::{CROWD, ClassTable, Collection, Coords, ImageRecord, Object};
use super::source::Source;
use crate::dataset::label::Split;
use crate::dataset::open::DatasetError;

const COLUMNS: [&str; 6] = ["ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"];
/// Marks of a box, and what they are called here.
const MARKS: [(&str, &str); 5] =
    [("IsOccluded", "occluded"), ("IsTruncated", "truncated"), ("IsGroupOf", CROWD), ("IsDepiction", "depiction"), ("IsInside", "inside")];
/// A longer line is no row.
const MAX_LINE_BYTES: u64 = 1 << 16;

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_table = |head: &[u8]| {
        let text = String::from_utf8_lossy(head);
        let first = fields(text.trim_start_matches('\u{feff}').lines().next().unwrap_or_default());
        COLUMNS.iter().all(|column| first.iter().any(|field| field == column))
    };
    source.heads("csv").filter(|(_, head)| is_table(head)).map(|(path, _)| path.to_owned()).collect()
}

/// The fields of a line, quotes taken off.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.trim_end_matches(['\r', '\n']).chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is one field from the start").push(c),
        }
    }
    fields
}

/// Calls `row` with each line and its number from 1.
fn each_line(path: &Path, mut row: impl FnMut(usize, &str) -> Result<(), String>) -> Result<(), String> {
    let mut reader = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let n = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        if n == 0 {
            break;
        }
        if n as u64 == MAX_LINE_BYTES {
            return Err(format!("line {number} is longer than {MAX_LINE_BYTES} bytes"));
        }
        row(number, String::from_utf8_lossy(&line).trim_start_matches('\u{feff}'))?;
    }
    Ok(())
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let mut collection = Collection::default();
    let mut classes = ClassTable::default();
    let names = label_names(source, files);
    let mut places: HashMap<String, usize> = HashMap::new();
    for image in source.images() {
        places.insert(image.file_stem().unwrap_or_default().to_string_lossy().into_owned(), collection.images.len());
        collection.images.push(ImageRecord {
            name: source.name(image),
            path: Some(image.clone()),
            size: None,
            split: source.split_of(image).unwrap_or(Split::Train),
            is_labelled: false,
            objects: Vec::new(),
        });
    }
    for path in files {
        let shown = source.shown(path);
        let mut columns: HashMap<String, usize> = HashMap::new();
        let mut n_absent = 0;
        let split = source.split_of_list(path);
        each_line(path, |number, line| {
            let row = fields(line);
            if number == 1 {
                columns = row.into_iter().zip(0..).collect();
                return Ok(());
            }
            if line.trim().is_empty() {
                return Ok(());
            }
            let field = |column: &str| columns.get(column).and_then(|&index| row.get(index)).map(|text| text.trim());
            let Some(&place) = field("ImageID").and_then(|id| places.get(id)) else {
                n_absent += 1;
                return Ok(());
            };
            let image = &mut collection.images[place];
            if !image.is_labelled && source.split_of(Path::new(&image.name)).is_none() {
                image.split = split;
            }
            image.is_labelled = true;
            let number_of = |column: &str| field(column).and_then(|text| text.parse::<f64>().ok()).filter(|value| value.is_finite());
            let edges = (number_of("XMin"), number_of("XMax"), number_of("YMin"), number_of("YMax"));
            let (Some(x1), Some(x2), Some(y1), Some(y2)) = edges else {
                collection.left_out.push(format!("{shown} line {number}: a side of the box is no number"));
                return Ok(());
            };
            let label = field("LabelName").unwrap_or_default();
            let class = classes.class(names.get(label).map_or(label, String::as_str));
            let mut object = Object::new(class, Coords::Fractions([f64::midpoint(x1, x2), f64::midpoint(y1, y2), x2 - x1, y2 - y1]));
            for (column, mark) in MARKS {
                if field(column) == Some("1") {
                    object.mark(mark);
                }
            }
            image.objects.push(object);
            Ok(())
        })
        .map_err(|reason| DatasetError::Foreign { path: shown.clone(), reason })?;
        if n_absent > 0 {
            collection.notes.push(format!("{shown}: {n_absent} rows are about images that are not here"));
        }
    }
    classes.finish(0, &mut collection);
    Ok(collection)
}

/// What labels are called, from tables of two columns.
fn label_names(source: &Source, files: &[PathBuf]) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for path in source.with_ending("csv").filter(|path| !files.iter().any(|file| file == path)) {
        // Another table beside the boxes is none of our business.
        each_line(path, |_, line| match &fields(line)[..] {
            [label, name] => {
                names.insert(label.trim().to_owned(), name.trim().to_owned());
                Ok(())
            }
            _ => Err("has not two columns".to_owned()),
        })
        .ok();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tests::{format_of, read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn its_columns_are_read_by_name() {
        let table = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf\n\
                     a1,x,/m/01,1,0.1,0.5,0.2,0.4,1,0\na1,x,/m/02,1,0,1,0,1,0,1\na1,x,/m/01,1,nan,1,0,1,0,1\ngone,x,/m/01,1,0,1,0,1,0,1\n";
        let root = folder(&[("validation-annotations-bbox.csv", table), ("class-descriptions.csv", "/m/01,\"Cat, small\"\n/m/02,Dog\n")]);
        png(root.path(), "images/a1.png", 100, 50);
        png(root.path(), "images/b2.png", 100, 50);
        assert_eq!(format_of(root.path()), "openimages");
        let read = read(root.path());
        assert_eq!(read.names, ["Cat, small", "Dog"]);
        let listed: Vec<_> = read.images.iter().map(|image| (image.split, image.is_labelled, image.objects.len())).collect();
        assert_eq!(listed, [(Split::Val, true, 2), (Split::Train, false, 0)]);
        let first = &read.images[0].objects[0];
        let corners = first.pixels(read.images[0].size).unwrap_or_default();
        assert!(corners.iter().zip([10.0, 10.0, 50.0, 20.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{corners:?}");
        assert!(first.is("occluded") && read.images[0].objects[1].is(CROWD));
        assert!(read.left_out[0].contains("line 4") && read.notes[0].contains("1 rows are about images"), "{read:?}");
    }
}
