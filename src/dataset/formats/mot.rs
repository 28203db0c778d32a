//! MOT: a text file of tracked boxes a sequence, beside a folder with its frames. Only read.
//!
//! In:  rows `frame,id,left,top,width,height,flag,class,visibility`, or of the first benchmark without a class. Frames count
//!      from 1. Left and top count from 1, too; the numbers are kept.
//! Out: the collection; boxes that the benchmark leaves out of its score are marked `ignored`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object, stated_size};
use super::source::{self, Source};
use crate::dataset::label::Split;
use crate::dataset::open::DatasetError;

/// Classes 1, 2, … of MOT16 and later.
const CLASSES: [&str; 13] = [
    "pedestrian",
    "person on vehicle",
    "car",
    "bicycle",
    "motorbike",
    "non motorized vehicle",
    "static person",
    "distractor",
    "occluder",
    "occluder on the ground",
    "occluder full",
    "reflection",
    "crowd",
];

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_mot = |head: &[u8]| {
        let text = String::from_utf8_lossy(head);
        let first = text.lines().find(|line| !line.trim().is_empty());
        // Detections, which lie beside, have no track.
        first.is_some_and(|line| row(line).is_ok_and(|row| row.track >= 1))
    };
    source.heads("txt").filter(|(_, head)| is_mot(head)).map(|(path, _)| path.to_owned()).collect()
}

struct Row {
    frame: u64,
    track: i64,
    corners: [f64; 4],
    is_ignored: bool,
    class: usize,
    visibility: Option<f64>,
}

fn row(line: &str) -> Result<Row, String> {
    let fields: Vec<f64> = line
        .split(',')
        .map(|field| {
            let value = field.trim().parse::<f64>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| format!("{:?} is no number", field.chars().take(24).collect::<String>()))
        })
        .collect::<Result<_, _>>()?;
    if !(6..=10).contains(&fields.len()) {
        return Err(format!("{} fields, expected 6 to 10", fields.len()));
    }
    let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 1e9).then_some(value as i64);
    let frame = whole(fields[0]).filter(|&frame| frame >= 1).ok_or("the frame is no whole number from 1")?;
    let track = whole(fields[1]).ok_or("the track is no whole number")?;
    let [x, y, w, h] = [fields[2], fields[3], fields[4], fields[5]];
    let has_class = fields.len() == 9;
    let class = if has_class { whole(fields[7]).unwrap_or(0) } else { 1 };
    Ok(Row {
        frame: frame as u64,
        track,
        corners: [x, y, x + w, y + h],
        is_ignored: fields.get(6) == Some(&0.0),
        class: usize::try_from(class).unwrap_or(0),
        visibility: fields.get(8).copied().filter(|_| has_class),
    })
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let mut collection = Collection::default();
    let mut classes = ClassTable::default();
    let mut n_ignored = 0;
    for path in files {
        let shown = source.shown(path);
        let bytes = source::read(source, path).map_err(|reason| DatasetError::Foreign { path: shown.clone(), reason })?;
        let text = String::from_utf8_lossy(&bytes);
        // `SEQUENCE/gt/gt.txt` beside `SEQUENCE/img1`.
        let folder = path.parent().unwrap_or(&source.root);
        let sequence = folder.parent().filter(|above| above.starts_with(&source.root)).unwrap_or(folder);
        let mut frames: BTreeMap<u64, (Option<PathBuf>, Vec<Object>)> = BTreeMap::new();
        for image in source.images().iter().filter(|image| image.starts_with(sequence)) {
            let stem = image.file_stem().unwrap_or_default().to_string_lossy();
            let digits = stem.trim_start_matches(|c: char| !c.is_ascii_digit());
            if let Ok(frame) = digits.parse() {
                frames.insert(frame, (Some(image.clone()), Vec::new()));
            }
        }
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match row(line) {
                Err(reason) => collection.left_out.push(format!("{shown} line {}: {reason}", number + 1)),
                Ok(row) => {
                    let name =
                        CLASSES.get(row.class.wrapping_sub(1)).map_or_else(|| format!("class_{}", row.class), |name| (*name).to_owned());
                    let mut object = Object { track: Some(row.track), ..Object::new(classes.class(&name), Coords::Pixels(row.corners)) };
                    if row.is_ignored {
                        object.mark("ignored");
                        n_ignored += 1;
                    }
                    object.attributes.extend(row.visibility.map(|share| ("visibility".to_owned(), share.to_string())));
                    frames.entry(row.frame).or_default().1.push(object);
                }
            }
        }
        let size = sequence_size(source, sequence);
        for (frame, (picture, objects)) in frames {
            let name = picture.as_ref().map_or_else(|| format!("{}/{frame:06}.jpg", source.name(sequence)), |path| source.name(path));
            let split = source.split_of(path).unwrap_or(Split::Train);
            collection.images.push(ImageRecord { name, path: picture, size, split, is_labelled: true, objects });
        }
    }
    if n_ignored > 0 {
        collection.notes.push(format!("{n_ignored} boxes do not count in the benchmark; they are marked \"ignored\" and kept"));
    }
    classes.finish(0, &mut collection);
    Ok(collection)
}

/// What `seqinfo.ini` says, for frames that are not there.
fn sequence_size(source: &Source, sequence: &Path) -> Option<crate::geom::Size> {
    let path = source.with_ending("ini").find(|path| path.parent() == Some(sequence))?;
    let bytes = source::read(source, path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let side = |key: &str| text.lines().find_map(|line| line.split_once('=').filter(|(name, _)| name.trim() == key)?.1.trim().parse().ok());
    stated_size(side("imWidth")?, side("imHeight")?)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{format_of, read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn frames_count_from_one_and_those_without_boxes_stay() {
        let rows = "1,7,10.5,20,30,40,1,1,0.5\n3,7,12,20,30,40,0,3,1\n3,8,12,20,30,x,1,1,1\n4,7,1,1,2,2,1,99,1\n";
        let root = folder(&[
            ("train/S/gt/gt.txt", rows),
            ("train/S/det/det.txt", "1,-1,1,1,5,5,0.5\n"),
            ("train/S/seqinfo.ini", "[Sequence]\nimWidth=64\nimHeight=48\n"),
        ]);
        for frame in 1..=3 {
            png(root.path(), &format!("train/S/img1/{frame:06}.png"), 64, 48);
        }
        assert_eq!(format_of(root.path()), "mot");
        let read = read(root.path());
        assert_eq!(read.names, ["car", "class_99", "pedestrian"]);
        let listed: Vec<_> = read.images.iter().map(|image| (image.path.is_some(), image.objects.len(), image.size.is_some())).collect();
        assert_eq!(listed, [(true, 1, true), (true, 0, true), (true, 1, true), (false, 1, true)]);
        let first = &read.images[0].objects[0];
        assert_eq!((first.coords, first.track, first.class), (Coords::Pixels([10.5, 20.0, 40.5, 60.0]), Some(7), 2));
        assert!(read.images[2].objects[0].is("ignored") && read.left_out[0].contains("line 3: \"x\" is no number"), "{:?}", read.left_out);
    }
}
