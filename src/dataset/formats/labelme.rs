//! LabelMe: a JSON file an image, with shapes of labelled points.
//!
//! In:  such files; the picture is what `imagePath` names, with slashes of any system, or else has the stem of the file.
//! Out: the collection; or `SPLIT/x.jpg`, `SPLIT/x.json`, and `labels.txt` with the order of classes.
//!
//! A rectangle is two opposite corners in any order; X-AnyLabeling writes four. `imageData` is skipped while reading.
//! Coordinates are those of the turned picture. Flags that are set, `attributes`, `description` and `group_id` are kept.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::coco::value_text;
use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object, enclosing, stated_size};
use super::json_head::json_head;
use super::source::{self, Source};
use super::target::{Placed, Target};
use super::xml;
use crate::dataset::label::Split;
use crate::dataset::layout;
use crate::dataset::open::DatasetError;

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_labelme = |head: &[u8]| {
        json_head(head).is_some_and(|head| !head.is_list && (head.has("shapes") || head.has("imageData") || head.has("imagePath")))
    };
    let found = source.heads("json").any(|(_, head)| is_labelme(&head));
    if found { source.with_ending("json").map(Path::to_owned).collect() } else { Vec::new() }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LabelMeFile {
    shapes: Vec<Shape>,
    image_path: Option<String>,
    image_width: Option<f64>,
    image_height: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Shape {
    label: Option<Value>,
    #[serde(default)]
    points: Vec<Vec<f64>>,
    /// Absent in old files: a polygon.
    #[serde(rename = "shape_type")]
    kind: Option<String>,
    group_id: Option<Value>,
    score: Option<f64>,
    description: Option<String>,
    flags: Option<Map<String, Value>>,
    attributes: Option<Map<String, Value>>,
    difficult: Option<bool>,
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Collection {
    let mut collection = Collection::default();
    let listed = ["labels.txt", "classes.txt"].iter().find_map(|file| layout::names_in(&source.root.join(file))).unwrap_or_default();
    let n_listed = listed.len();
    let mut classes = ClassTable::with(listed);
    let stems = source.stems();
    let read: Vec<Result<LabelMeFile, String>> = files
        .par_iter()
        .map(|path| {
            let bytes = source::read(source, path)?;
            let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
            serde_json::from_slice(bytes).map_err(|error| format!("{}: is no LabelMe file: {error}", source.shown(path)))
        })
        .collect();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    for (path, file) in files.iter().zip(read) {
        let of_stem = source.image_of_stem(path, &stems);
        let file = match file {
            Ok(file) => file,
            Err(reason) => {
                // Its picture must not count as one without objects.
                seen.extend(of_stem.map(Path::to_owned));
                collection.left_out.push(format!("{reason}; its image is left out"));
                continue;
            }
        };
        let named = file.image_path.as_deref().and_then(|name| source.find_image(name, path));
        let image = named.or(of_stem).map(Path::to_owned);
        seen.extend(image.clone());
        let shown = source.shown(path);
        let split = source.split_of(path).or_else(|| image.as_ref().and_then(|image| source.split_of(image)));
        let mut record = ImageRecord {
            name: image.as_ref().map_or_else(|| file.image_path.clone().unwrap_or_else(|| shown.clone()), |image| source.name(image)),
            path: image,
            size: file.image_width.zip(file.image_height).and_then(|(width, height)| stated_size(width, height)),
            split: split.unwrap_or(Split::Train),
            is_labelled: true,
            objects: Vec::new(),
        };
        for (number, shape) in file.shapes.into_iter().enumerate() {
            match object(shape, &mut classes) {
                Ok(object) => record.objects.push(object),
                Err(reason) => collection.left_out.push(format!("{shown}: shape {}: {reason}", number + 1)),
            }
        }
        collection.images.push(record);
    }
    if source.file.is_none() {
        for image in source.images().iter().filter(|image| !seen.contains(*image)) {
            collection.images.push(ImageRecord {
                name: source.name(image),
                path: Some(image.clone()),
                size: None,
                split: source.split_of(image).unwrap_or(Split::Train),
                is_labelled: false,
                objects: Vec::new(),
            });
        }
    }
    classes.finish(n_listed, &mut collection);
    collection
}

fn object(shape: Shape, classes: &mut ClassTable) -> Result<Object, String> {
    let points: Vec<[f64; 2]> = shape.points.iter().filter_map(|point| point.first_chunk().copied()).collect();
    if points.len() < shape.points.len() {
        return Err("has a point that is no pair of numbers".to_owned());
    }
    let kind = shape.kind.as_deref().unwrap_or("polygon");
    let boxed = |[x1, y1, x2, y2]: [f64; 4]| Some(Object::new(0, Coords::Pixels([x1, y1, x2, y2])));
    let read = match (kind, &points[..]) {
        ("rectangle", [_, _, ..]) => enclosing(points.iter()).and_then(boxed),
        ("circle", &[[cx, cy], [x, y]]) => {
            let radius = (x - cx).hypot(y - cy);
            boxed([cx - radius, cy - radius, cx + radius, cy + radius])
        }
        ("polygon" | "rotation", [_, _, _, ..]) => Object::outlined(0, vec![points], true),
        ("rectangle" | "circle" | "polygon" | "rotation", found) => return Err(format!("{kind} of {} points", found.len())),
        _ => {
            return Err(format!(
                "{:?} encloses nothing; rectangles, polygons and circles are read",
                kind.chars().take(24).collect::<String>()
            ));
        }
    };
    let mut object = read.ok_or("has no points")?;
    object.class = classes.class(&shape.label.as_ref().map(value_text).unwrap_or_default());
    object.score = shape.score;
    object.track = shape.group_id.as_ref().and_then(Value::as_i64);
    if shape.difficult == Some(true) {
        object.mark("difficult");
    }
    for (flag, value) in shape.flags.unwrap_or_default() {
        if value == Value::Bool(true) {
            object.mark(&flag);
        }
    }
    if let Some(text) = shape.description.filter(|text| !text.is_empty()) {
        object.attributes.push(("description".to_owned(), text));
    }
    object.attributes.extend(shape.attributes.unwrap_or_default().into_iter().map(|(key, value)| (key, value_text(&value))));
    Ok(object)
}

pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    target.place_images(|placed| format!("{}/{}", placed.split.name(), placed.file_name()))?;
    target.each(|placed, image| {
        if !image.is_labelled && image.objects.is_empty() {
            return Ok(());
        }
        let text = format!("{:#}\n", value(target.collection, placed, image));
        target.write(&format!("{}/{}.json", placed.split.name(), placed.stem), &text)
    })?;
    let mut names = target.collection.names.clone();
    names.extend(target.collection.unnamed_classes().into_iter().map(|class| target.collection.class_name(class)));
    target.write("labels.txt", &xml::lines(&names))?;
    Ok(PathBuf::new())
}

fn value(collection: &Collection, placed: &Placed, image: &ImageRecord) -> Value {
    let shapes = image.objects.iter().filter_map(|object| {
        let [x1, y1, x2, y2] = object.pixels(image.size)?;
        let (kind, points) = match object.ring(image.size) {
            Some(ring) => ("polygon", ring),
            None => ("rectangle", vec![[x1, y1], [x2, y2]]),
        };
        let is_flag = |(_, value): &&(String, String)| value == "1";
        let flags: Map<String, Value> = object.attributes.iter().filter(is_flag).map(|(key, _)| (key.clone(), Value::Bool(true))).collect();
        let others: Map<String, Value> =
            object.attributes.iter().filter(|pair| !is_flag(pair)).map(|(key, value)| (key.clone(), value.clone().into())).collect();
        let mut shape = json!({
            "label": collection.class_name(object.class), "points": points, "group_id": object.track, "shape_type": kind, "flags": flags,
        });
        if let Some(score) = object.score {
            shape["score"] = score.into();
        }
        if !others.is_empty() {
            shape["attributes"] = others.into();
        }
        Some(shape)
    });
    json!({
        "version": "5.5.0", "flags": {}, "shapes": shapes.collect::<Vec<_>>(), "imagePath": placed.file_name(), "imageData": null,
        "imageHeight": image.size.map(|size| size.height), "imageWidth": image.size.map(|size| size.width),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn its_traps_are_read() {
        let text = r#"{"imageData": "AAAA", "version": "5.0", "imagePath": "..\\pictures\\a.png", "imageHeight": 9, "imageWidth": 9, "shapes": [
            {"label": "cat", "points": [[60.5, 40], [10, 5.25]], "shape_type": "rectangle", "group_id": 7, "flags": {"hard": true, "no": false}, "description": ""},
            {"label": "cat", "points": [[60, 5], [60, 40], [10, 40], [10, 5]], "shape_type": "rectangle", "score": 0.5, "attributes": {"colour": "red"}},
            {"label": 7, "points": [[1, 1], [5, 1], [3, 8]]},
            {"label": "cat", "points": [[50, 25], [53, 29]], "shape_type": "circle"},
            {"label": "cat", "points": [[50, 25]], "shape_type": "point"},
            {"label": "cat", "points": [[50, 25]], "shape_type": "rectangle"}
        ]}"#;
        let root = folder(&[("labels/a.json", text), ("pictures/bad.json", "{\"shapes\": [{\"points\": [[1, NaN]]}]}")]);
        for name in ["a", "bad", "none"] {
            png(root.path(), &format!("pictures/{name}.png"), 100, 50);
        }
        let read = read(root.path());
        assert_eq!(read.names, ["7", "cat"]);
        let listed: Vec<_> = read.images.iter().map(|image| (image.name.as_str(), image.is_labelled)).collect();
        assert_eq!(listed, [("pictures/a.png", true), ("pictures/none.png", false)]);
        let objects = &read.images[0].objects;
        let corners: Vec<_> = objects.iter().map(|object| object.pixels(None).unwrap_or_default()).collect();
        assert_eq!(corners, [[10.0, 5.25, 60.5, 40.0], [10.0, 5.0, 60.0, 40.0], [1.0, 1.0, 5.0, 8.0], [45.0, 20.0, 55.0, 30.0]]);
        assert_eq!((objects[0].track, &objects[0].attributes[..]), (Some(7), &[("hard".to_owned(), "1".to_owned())][..]));
        assert_eq!((objects[1].score, objects[1].attribute("colour"), objects[2].class), (Some(0.5), Some("red"), 0));
        assert_eq!(read.left_out.len(), 3, "{:?}", read.left_out);
        assert!(read.notes.iter().any(|note| note.contains("100x50, not 9x9")), "{:?}", read.notes);
    }
}
