//! Every writer read back by its reader: boxes equal within a hundredth of a pixel, images without boxes kept.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use super::collection::{Collection, Coords, ImageRecord, Object};
use super::*;
use crate::dataset::convert::{self, ConvertReport, ConvertRequest};
use crate::dataset::open::tests::{folder, png};

pub(super) fn read(path: &Path) -> Collection {
    try_read(path).unwrap()
}

pub(super) fn try_read(path: &Path) -> Result<Collection, DatasetError> {
    let source = Source::open(path)?;
    recognise(&source, None)?.read(&source)
}

pub(super) fn format_of(path: &Path) -> &'static str {
    recognise(&Source::open(path).unwrap(), None).unwrap().format.name
}

pub(super) fn convert_to(source: &Path, out: &Path, to: FormatId) -> ConvertReport {
    let request = ConvertRequest { source: source.to_owned(), out: Some(out.to_owned()), from: None, to, dry_run: false };
    convert::convert(&request, &|_, _| ControlFlow::Continue(()), &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Class and corners in pixels of each object, by split and stem.
type Boxes = BTreeMap<(&'static str, String), Vec<(String, [f64; 4])>>;

fn boxes(collection: &Collection) -> Boxes {
    let of_image = |image: &ImageRecord| {
        let stem = Path::new(&image.name).file_stem().unwrap().to_string_lossy().into_owned();
        let of_object = |object: &Object| {
            let [x1, y1, x2, y2] = object.pixels(image.size).unwrap();
            // Fractions have no reversed corners.
            (collection.class_name(object.class), [x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2)])
        };
        ((image.split.name(), stem), image.objects.iter().map(of_object).collect())
    };
    collection.images.iter().map(of_image).collect()
}

/// The number of boxes, all of them within a hundredth of a pixel.
#[track_caller]
pub(super) fn assert_same(before: &Collection, after: &Collection, what: &str) -> usize {
    let (before, after) = (boxes(before), boxes(after));
    let images = |boxes: &Boxes| boxes.keys().cloned().collect::<Vec<_>>();
    assert_eq!(images(&before), images(&after), "{what}: images");
    let mut n = 0;
    for (image, old) in &before {
        let new = &after[image];
        assert_eq!(old.len(), new.len(), "{what}: {image:?}");
        for ((old_name, old), (new_name, new)) in old.iter().zip(new) {
            let off = old.iter().zip(new).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(old_name == new_name && off < 0.01, "{what}: {image:?}: {old_name} {old:?}, then {new_name} {new:?}");
            n += 1;
        }
    }
    n
}

/// Formats that are written, with names and splits.
fn written() -> impl Iterator<Item = &'static FormatInfo> {
    FORMATS.iter().filter(|format| format.naming.is_some() && !format.has(Trait::OneVideo))
}

/// Two splits, classes whose order is not the alphabet's, odd names, boxes over the edge and of no size, a background image.
fn sample() -> tempfile::TempDir {
    let root = folder(&[
        ("data.yaml", "train: images/train\nval: images/val\nnames: [zebra, 'a & <b>', \"it's\", unused]\n"),
        ("labels/train/a.b c.txt", "0 0.5 0.5 0.25 0.3333333\n1 0.98 0.5 0.1 0.2\n2 0.3 0.3 0 0\n1 0.123456789 0.2 0.1 0.1\n"),
        ("labels/train/empty.txt", ""),
        ("labels/val/v.txt", "2 0.7 0.2 0.1 0.1\n"),
    ]);
    png(root.path(), "images/train/a.b c.png", 641, 479);
    png(root.path(), "images/train/empty.png", 32, 32);
    png(root.path(), "images/val/v.png", 100, 50);
    root
}

#[test]
fn every_writer_is_read_back_with_all_boxes_and_images() {
    let root = sample();
    let before = read(root.path());
    assert_eq!((before.images.len(), before.n_objects()), (3, 5));
    for format in written() {
        let out = root.path().join("out").join(format.name);
        let report = convert_to(root.path(), &out, format.id);
        assert_eq!(format_of(&out), format.name);
        let after = read(&out);
        assert_eq!(assert_same(&before, &after, format.name), 5);
        assert_eq!(after.names, before.names, "{}: names with their order", format.name);
        assert_eq!((report.n_images, report.n_empty, report.n_labels, &report.losses[..]), (3, 1, 5, &[][..]), "{}", format.name);
        assert!(after.images.iter().all(|image| image.path.is_some() && image.is_labelled), "{}", format.name);
        // And back, into the same bytes.
        let back = root.path().join("back").join(format.name);
        convert_to(&out, &back, FormatId::Yolo);
        assert_eq!(assert_same(&before, &read(&back), format.name), 5);
        let yaml = std::fs::read_to_string(back.join("data.yaml")).unwrap();
        assert!(yaml.contains("0: zebra") && yaml.contains("3: unused"), "{yaml}");
    }
}

#[test]
fn a_video_keeps_frames_boxes_and_tracks() {
    let root = sample();
    std::fs::write(root.path().join("labels/train/a.b c.txt"), "0 .5 .5 .2 .2 7\n1 .3 .3 .2 .2 8\n0 .98 .5 .1 .2 9\n").unwrap();
    std::fs::write(root.path().join("labels/val/v.txt"), "0 .7 .2 .1 .1 7\n2 .3 .3 0 0 8\n").unwrap();
    let before = read(root.path());
    let out = root.path().join("out");
    let report = convert_to(root.path(), &out, FormatId::CvatVideo);
    assert_eq!(report.losses.iter().map(|loss| (loss.kind, loss.n)).collect::<Vec<_>>(), [("names", 3)]);
    let after = read(&out);
    assert_eq!((format_of(&out), after.images.len(), after.n_objects()), ("cvat", 3, 5));
    let of_image = |collection: &Collection, image: &ImageRecord| {
        let of_object = |object: &Object| {
            let corners = object.pixels(image.size).unwrap().map(|value| (value * 100.0).round());
            (object.track, collection.class_name(object.class), corners)
        };
        let mut objects: Vec<_> = image.objects.iter().map(of_object).collect();
        objects.sort_by(|a, b| a.partial_cmp(b).unwrap());
        objects
    };
    for (old, new) in before.images.iter().zip(&after.images) {
        let (old, new) = (of_image(&before, old), of_image(&after, new));
        // A second track 8, of another class, gets a number of its own.
        let same = |a: &(Option<i64>, String, [f64; 4]), b: &(Option<i64>, String, [f64; 4])| {
            a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || a.1 == "it's")
        };
        assert_eq!(old.len(), new.len());
        assert!(old.iter().all(|a| new.iter().any(|b| same(a, b))), "{old:?}, then {new:?}");
    }
}

#[test]
fn only_what_cannot_be_opened_as_it_is_is_foreign() {
    let root = sample();
    assert!(foreign(root.path()).is_none());
    for (id, is_foreign) in [(FormatId::Coco, true), (FormatId::Voc, false), (FormatId::LabelMe, true)] {
        let out = root.path().join("out").join(id.info().name);
        convert_to(root.path(), &out, id);
        assert_eq!(foreign(&out).map(|format| format.id), is_foreign.then_some(id));
    }
}

#[test]
fn real_data_goes_through_every_format_and_back() {
    let Some(shared) = std::env::var_os("BOXWRIGHT_SHARED") else {
        eprintln!("skipped: BOXWRIGHT_SHARED is not set");
        return;
    };
    // The data.yaml of COCO128 has one folder for train and val: each image counts twice.
    for (name, n_images, n_boxes) in [("bccd-voc", 364, 4888), ("coco128", 256, 1858)] {
        let source = Path::new(&shared).join("data").join(name);
        let before = read(&source);
        assert_eq!((before.images.len(), before.n_objects()), (n_images, n_boxes), "{name}");
        let n_empty = before.images.iter().filter(|image| image.objects.is_empty()).count();
        let root = tempfile::tempdir().unwrap();
        let mut last = source.clone();
        // Each format is written from the one before it, so that errors would add up.
        for format in written().chain([FormatId::Yolo.info()]) {
            let out = root.path().join(format!("{}{}", format.name, if last == source { "" } else { "-again" }));
            let report = convert_to(&last, &out, format.id);
            let after = read(&out);
            assert_eq!(assert_same(&before, &after, format.name), n_boxes);
            assert_eq!(report.n_empty, n_empty, "{name} as {}", format.name);
            eprintln!("{name} as {}: {n_boxes} boxes within 0.01 px, {n_empty} images without boxes", format.title);
            last = out;
        }
    }
}

#[test]
fn nothing_known_is_an_error_that_lists_what_was_looked_for() {
    let root = folder(&[("notes.txt", "hello"), ("x.json", "[1, 2]"), ("y.xml", "<svg/>")]);
    let error = try_read(root.path()).unwrap_err();
    let text = error.to_string();
    for format in &FORMATS {
        assert!(text.contains(format.looked_for), "{text}");
    }
    assert!(error.hint().is_some());
}

#[test]
fn what_a_format_cannot_hold_is_told_before_it_is_written() {
    let root = sample();
    let mut collection = read(root.path());
    let image = &mut collection.images[0];
    let outline = vec![vec![[0.1, 0.1], [0.4, 0.1], [0.2, 0.6]]];
    let mut polygon = Object { score: Some(0.5), track: Some(7), ..Object::outlined(0, outline, false).unwrap() };
    polygon.mark("truncated");
    polygon.attributes.push(("colour".to_owned(), "red".to_owned()));
    let mut crowd = Object::new(9, Coords::Pixels([1.0, 2.0, 3.0, 4.0]));
    crowd.mark(collection::CROWD);
    image.objects = vec![polygon, crowd, Object::new(-1, Coords::Pixels([5.0, 6.0, 7.0, 8.0]))];
    collection.images[1].is_labelled = false;
    collection.class_ids = Some(vec![1, 2, 5, 90]);
    let told = |collection: &Collection, id: FormatId| {
        let losses = loss::losses(&mut collection.clone(), id.info());
        losses.into_iter().map(|loss| (loss.kind, loss.n)).collect::<Vec<_>>()
    };
    let yolo = [("crowds", 1), ("polygons", 1), ("scores", 1), ("tracks", 1), ("attributes", 1), ("attributes", 1), ("class-ids", 4)];
    assert_eq!(told(&collection, FormatId::Yolo), yolo);
    assert_eq!(told(&collection, FormatId::Coco), [("unlabelled", 1), ("unnamed-classes", 2)]);
    let voc = [("crowds", 1), ("polygons", 1), ("scores", 1), ("tracks", 1), ("attributes", 1), ("class-ids", 4), ("unnamed-classes", 1)];
    assert_eq!(told(&collection, FormatId::Voc), voc);
    collection.images[2].path = None;
    collection.images[2].size = None;
    assert!(
        told(&collection, FormatId::Coco).contains(&("image-left-out", 1)) && told(&collection, FormatId::Yolo).contains(&("pictures", 1))
    );
}

/// Label files, damaged a little at thousands of places: an error or a collection, never a panic.
#[test]
fn damaged_files_are_errors_or_fewer_boxes_and_never_a_panic() {
    let root = sample();
    for format in written() {
        let out = root.path().join("out").join(format.name);
        convert_to(root.path(), &out, format.id);
        let n = n_damaged();
        let (n_read, n_refused) = damage(&out, n);
        eprintln!("{}: {n} damaged files, {n_read} read, {n_refused} refused", format.title);
        assert!(n_read > 0, "{}", format.name);
    }
}

/// How many damaged files each parser gets; more by hand, with `BOXWRIGHT_DAMAGED`.
fn n_damaged() -> usize {
    std::env::var("BOXWRIGHT_DAMAGED").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)
}

/// Changes a byte, cuts, repeats or inserts something telling; deterministic. How many were read, and refused.
pub(super) fn damage(folder: &Path, n: usize) -> (usize, usize) {
    const TELLING: [&[u8]; 12] = [
        b"NaN",
        b"1e999",
        b"-",
        b"99999999999999999999",
        b"[[[[[[[[",
        b"{\"a\":",
        b"</",
        b"<!DOCTYPE a [<!ENTITY b \"c\">]>",
        b"&b;",
        b"\0",
        b"\xff",
        b"../",
    ];
    let is_label = |path: &Path| !crate::media::decode::is_image_path(path);
    let files: Vec<_> = crate::dataset::layout::files_under(folder).unwrap().into_iter().filter(|path| is_label(path)).collect();
    let contents: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let source = Source::open(folder).unwrap();
    let found = recognise(&source, None).unwrap();
    let (mut n_read, mut n_refused) = (0, 0);
    for _ in 0..n {
        let index = random(files.len());
        let mut bytes = contents[index].clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len() + 1);
            match random(5) {
                0 if at < bytes.len() => bytes[at] ^= 1 << random(8),
                1 => bytes.truncate(at),
                2 => {
                    let end = (at + random(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                3 => drop(bytes.drain(at..(at + random(12)).min(bytes.len()))),
                _ => drop(bytes.splice(at..at, TELLING[random(TELLING.len())].iter().copied())),
            }
        }
        std::fs::write(&files[index], &bytes).unwrap();
        json_head::json_head(&bytes);
        xml::root_name(&bytes);
        match (found.format.read)(&source, &found.files) {
            Ok(collection) => {
                n_read += 1;
                loss::losses(&mut collection.clone(), FormatId::Cvat.info());
            }
            Err(error) => {
                n_refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        std::fs::write(&files[index], &contents[index]).unwrap();
    }
    (n_read, n_refused)
}

/// As above, for formats that are only read, and for tracks.
#[test]
fn damaged_files_of_the_other_formats_never_panic() {
    let box_at = |frame: u64| format!("<box frame=\"{frame}\" xtl=\"1\" ytl=\"0\" xbr=\"9\" ybr=\"10\" outside=\"0\" occluded=\"1\"/>");
    let tracks = format!("<annotations><track id=\"3\" label=\"car\">{}{}</track></annotations>", box_at(0), box_at(5));
    let via = r#"{"a": {"filename": "a.png", "regions": [{"shape_attributes": {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4}, "region_attributes": {"c": "x"}}]}}"#;
    let open_images = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsOccluded\na,/m/01,0.1,0.5,0.2,0.4,1\n";
    let kitti = "Car 0.25 1 1.85 387.6 181.5 423.8 203.1 1.6 1.8 3.2 -16.5 2.3 58.4 1.5\n";
    for (name, file, text) in [
        ("cvat", "x.xml", tracks.as_str()),
        ("via", "x.json", via),
        ("openimages", "x.csv", open_images),
        ("mot", "gt.txt", "1,7,10.5,20,30,40,1,1,0.5\n3,7,12,20,30,40,0,3,1\n"),
        ("kitti", "a.txt", kitti),
    ] {
        let root = folder(&[(file, text)]);
        png(root.path(), "a.png", 8, 8);
        assert_eq!(format_of(root.path()), name);
        let n = n_damaged();
        let (n_read, n_refused) = damage(root.path(), n);
        eprintln!("{name}: {n} damaged files, {n_read} read, {n_refused} refused");
        assert!(n_read > 0, "{name}");
    }
}
