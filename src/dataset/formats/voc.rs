//! Pascal VOC: an XML file of pixel boxes an image.
//!
//! In:  annotations wherever they lie, matched to pictures by stem, then by what they name; splits from `ImageSets/Main`
//!      or from folders.
//! Out: the collection; or `JPEGImages`, `Annotations`, `ImageSets/Main`, and `classes.txt`, since the order of classes is
//!      nowhere else in this format.
//!
//! Whether pixels count from 0 or from 1 is nowhere written: numbers are kept as they are, reversed corners too.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object};
use super::source::{self, Source};
use super::target::{Placed, Target};
use super::xml;
use crate::dataset::label::Split;
use crate::dataset::layout;
use crate::dataset::open::{Dataset, DatasetError, Format};
use crate::dataset::voc::{self, VocFile};

/// The marks of an object that the format has elements for.
pub(super) const FLAGS: [&str; 3] = ["truncated", "difficult", "occluded"];

/// The annotations.
pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_voc = source.heads("xml").any(|(_, head)| xml::root_name(&head).as_deref() == Some("annotation"));
    if is_voc { source.with_ending("xml").map(Path::to_owned).collect() } else { Vec::new() }
}

/// An annotation or a picture without one.
struct Entry {
    image: Option<PathBuf>,
    annotation: Option<PathBuf>,
    split: Split,
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Collection {
    let mut collection = Collection::default();
    let dataset = Dataset::open(&source.root).ok().filter(|dataset| dataset.format == Format::PascalVoc && source.file.is_none());
    let listed = ["classes.txt", "labels.txt"].iter().find_map(|file| layout::names_in(&source.root.join(file))).unwrap_or_default();
    let n_listed = listed.len();
    let mut classes = ClassTable::with(listed);
    let entries = match dataset {
        Some(dataset) => of_dataset(source, dataset, files, &mut collection),
        None => of_files(source, files),
    };
    let read: Vec<Option<Result<VocFile, String>>> = entries
        .par_iter()
        .map(|entry| {
            let path = entry.annotation.as_ref()?;
            let parsed = source::read(source, path).and_then(|bytes| {
                voc::parse_voc(&bytes).map_err(|(line, reason)| format!("{} line {line}: broken XML: {reason}", source.shown(path)))
            });
            Some(parsed)
        })
        .collect();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    for (entry, parsed) in entries.into_iter().zip(read) {
        // An annotation may have found this picture by the name that it gives.
        if entry.annotation.is_none() && entry.image.as_ref().is_some_and(|image| seen.contains(image)) {
            continue;
        }
        let shown = entry.annotation.as_ref().map(|path| source.shown(path)).unwrap_or_default();
        let file = match parsed {
            None => None,
            Some(Ok(file)) => Some(file),
            Some(Err(reason)) => {
                // Without its labels the image would become background.
                collection.left_out.push(format!("{reason}; the image is left out"));
                continue;
            }
        };
        let image = entry.image.or_else(|| {
            let named = file.as_ref()?.file_name.as_deref()?;
            source.find_image(named, entry.annotation.as_ref()?).map(Path::to_owned)
        });
        if file.is_some() {
            seen.extend(image.clone());
        }
        let named = || file.as_ref().and_then(|file| file.file_name.clone()).unwrap_or_else(|| format!("{shown}.jpg"));
        let mut record = ImageRecord {
            name: image.as_ref().map_or_else(named, |path| source.name(path)),
            path: image,
            size: file.as_ref().and_then(|file| file.size),
            split: entry.split,
            is_labelled: file.is_some(),
            objects: Vec::new(),
        };
        for object in file.map(|file| file.objects).unwrap_or_default() {
            match object.corners {
                Err(reason) => collection.left_out.push(format!("{shown} line {}: bndbox {reason}", object.line)),
                Ok(corners) => {
                    let mut read = Object::new(classes.class(&object.name), Coords::Pixels(corners));
                    for (flag, is_set) in FLAGS.iter().zip([object.truncated, object.difficult, object.occluded]) {
                        if is_set {
                            read.mark(flag);
                        }
                    }
                    record.objects.push(read);
                }
            }
        }
        collection.images.push(record);
    }
    if n_listed == 0 {
        collection.notes.push("Pascal VOC has no list of classes; they are in alphabetical order".to_owned());
    }
    classes.finish(n_listed, &mut collection);
    collection
}

/// The images of a folder as the format has it, and annotations without a picture.
fn of_dataset(source: &Source, dataset: Dataset, files: &[PathBuf], collection: &mut Collection) -> Vec<Entry> {
    collection.notes.extend(dataset.notes.into_iter().filter(|note| note.contains("ImageSets")));
    let known: HashSet<PathBuf> = dataset.images.iter().map(|image| image.label_path.clone()).collect();
    let stems = source.stems();
    let mut entries: Vec<Entry> = dataset
        .images
        .into_iter()
        .map(|image| Entry {
            annotation: Some(image.label_path).filter(|path| path.is_file()),
            image: Some(image.path),
            split: image.split,
        })
        .collect();
    let alone = files.iter().filter(|path| !known.contains(*path) && !stems.contains_key(path.file_stem().unwrap_or_default()));
    entries.extend(alone.map(|path| Entry { image: None, annotation: Some(path.clone()), split: Split::Train }));
    entries
}

/// Annotations anywhere, each with its picture; then pictures without annotations.
fn of_files(source: &Source, files: &[PathBuf]) -> Vec<Entry> {
    let stems = source.stems();
    let mut used: HashSet<PathBuf> = HashSet::new();
    let mut entries = Vec::new();
    for path in files {
        let image = source.image_of_stem(path, &stems).map(Path::to_owned);
        used.extend(image.clone());
        entries.push(Entry { image, annotation: Some(path.clone()), split: source.split_of(path).unwrap_or(Split::Train) });
    }
    if source.file.is_none() {
        let rest = source.images().iter().filter(|image| !used.contains(*image));
        entries.extend(rest.map(|image| Entry {
            image: Some(image.clone()),
            annotation: None,
            split: source.split_of(image).unwrap_or(Split::Train),
        }));
    }
    entries
}

pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    for folder in ["JPEGImages", "Annotations", "ImageSets/Main"] {
        target.make_folder(folder)?;
    }
    target.place_images(|placed| format!("JPEGImages/{}", placed.file_name()))?;
    target.each(|placed, image| {
        if placed.is_repeated || !image.is_labelled && image.objects.is_empty() {
            return Ok(());
        }
        target.write(&format!("Annotations/{}.xml", placed.stem), &text(target.collection, placed, image))
    })?;
    let mut lists: HashMap<Split, String> = HashMap::new();
    for (_, placed, _) in target.images() {
        *lists.entry(placed.split).or_default() += &[&placed.stem, "\n"].concat();
    }
    for (split, list) in lists {
        target.write(&format!("ImageSets/Main/{}.txt", split.name()), &list)?;
    }
    let mut names = target.collection.names.clone();
    names.extend(target.collection.unnamed_classes().into_iter().map(|class| target.collection.class_name(class)));
    target.write("classes.txt", &xml::lines(&names))?;
    Ok(PathBuf::new())
}

fn text(collection: &Collection, placed: &Placed, image: &ImageRecord) -> String {
    let mut text = format!("<annotation>\n  <filename>{}</filename>\n", xml::text(&placed.file_name()));
    if let Some(size) = image.size {
        let (width, height) = (size.width, size.height);
        writeln!(text, "  <size><width>{width}</width><height>{height}</height><depth>3</depth></size>").ok();
    }
    for object in &image.objects {
        let Some(corners) = object.pixels(image.size) else { continue };
        writeln!(text, "  <object>\n    <name>{}</name>", xml::text(&collection.class_name(object.class))).ok();
        for flag in FLAGS {
            // Readers expect the first two always.
            if flag != "occluded" || object.is(flag) {
                writeln!(text, "    <{flag}>{}</{flag}>", u8::from(object.is(flag))).ok();
            }
        }
        text += "    <bndbox>";
        for (name, value) in ["xmin", "ymin", "xmax", "ymax"].iter().zip(corners) {
            write!(text, "<{name}>{value}</{name}>").ok();
        }
        text += "</bndbox>\n  </object>\n";
    }
    text + "</annotation>\n"
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn its_traps_are_read() {
        // Numbers from 1, floats, reversed and by name in any order; a part, a rotated box, an entity bomb, a wrong `filename`.
        let objects = "<object><name>dog</name><truncated>1</truncated><difficult>Unspecified</difficult><part><name>tail</name><bndbox><xmin>9</xmin><ymin>9</ymin><xmax>10</xmax><ymax>10</ymax></bndbox></part>\
             <bndbox><ymax>50</ymax><xmax>100</xmax><ymin>1</ymin><xmin>1</xmin></bndbox></object>\n\
             <object><name>&a;&lt;cat&gt;</name><bndbox><xmin>30.5</xmin><ymin>5</ymin><xmax>10.25</xmax><ymax>25</ymax></bndbox></object>\n\
             <object><name>dog</name><robndbox><cx>1</cx></robndbox></object>\n";
        let bomb = "<!DOCTYPE x [<!ENTITY a \"lol\"><!ENTITY b \"&a;&a;&a;\">]>";
        let size = "<size><width>0</width><height>0</height></size>";
        let root = folder(&[
            ("train/a.xml", &format!("{bomb}<annotation><filename>other</filename>{size}{objects}</annotation>")),
            ("valid/x.xml", "<annotation><filename>b.png</filename></annotation>"),
            ("valid/alone.xml", "<annotation><filename>gone.jpg</filename><size><width>8</width><height>9</height></size></annotation>"),
            ("valid/broken.xml", "<annotation><object>"),
        ]);
        png(root.path(), "train/a.png", 100, 50);
        png(root.path(), "train/c.png", 100, 50);
        png(root.path(), "valid/b.png", 100, 50);
        let read = read(root.path());
        assert_eq!(read.names, ["?<cat>", "dog"]);
        let listed: Vec<_> =
            read.images.iter().map(|image| (image.name.as_str(), image.split, image.is_labelled, image.path.is_some())).collect();
        let expected = [
            ("train/a.png", Split::Train, true, true),
            ("gone.jpg", Split::Val, true, false),
            ("valid/b.png", Split::Val, true, true),
            ("train/c.png", Split::Train, false, true),
        ];
        assert_eq!(listed, expected);
        let objects = &read.images[0].objects;
        assert_eq!((objects[0].class, objects[0].coords), (1, Coords::Pixels([1.0, 1.0, 100.0, 50.0])));
        assert_eq!(objects[0].attributes, [("truncated".to_owned(), "1".to_owned())]);
        assert_eq!(objects[1].coords, Coords::Pixels([30.5, 5.0, 10.25, 25.0]), "as written");
        assert_eq!(read.left_out.len(), 2, "{:?}", read.left_out);
        assert!(read.left_out[0].contains("line 3: bndbox has no xmin"), "{:?}", read.left_out);
    }
}
