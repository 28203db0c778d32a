//! VIA (VGG Image Annotator) JSON: regions by image, with free attributes. Only read.
//!
//! In:  a project, or its exported annotations: an object with an entry an image, regions as a list or (version 1) by number.
//! Out: the collection. Which attribute says the class is free: `label`, `class`, `name`, `type` or `category`, else the
//!      first; the others stay attributes.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::coco::value_text;
use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object};
use super::json_head::json_head;
use super::source::{self, Source};
use crate::dataset::open::DatasetError;

/// Attributes that are usual for the class, in order of preference.
const CLASS_KEYS: [&str; 5] = ["label", "class", "name", "type", "category"];

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_via = |head: &[u8]| {
        json_head(head).is_some_and(|head| {
            head.has("_via_img_metadata") || !head.is_list && head.deeper.contains("filename") && head.deeper.contains("regions")
        })
    };
    source.heads("json").filter(|(_, head)| is_via(head)).map(|(path, _)| path.to_owned()).collect()
}

#[derive(Deserialize)]
struct Entry {
    filename: String,
    #[serde(default)]
    regions: Value,
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let mut collection = Collection::default();
    let mut classes = ClassTable::default();
    for path in files {
        let shown = source.shown(path);
        let foreign = |reason| DatasetError::Foreign { path: shown.clone(), reason };
        let bytes = source::read(source, path).map_err(foreign)?;
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        let mut all: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| foreign(format!("is no VIA file: {error}")))?;
        if let Some(Value::Object(images)) = all.remove("_via_img_metadata") {
            all = images;
        }
        for (key, value) in all {
            let Ok(entry) = serde_json::from_value::<Entry>(value) else {
                collection.left_out.push(format!("{shown}: {key:?} is no image"));
                continue;
            };
            let image = source.find_image(&entry.filename, path).map(Path::to_owned);
            let split = image.as_ref().and_then(|image| source.split_of(image)).unwrap_or_else(|| source.split_of_list(path));
            let regions: Vec<Value> = match entry.regions {
                Value::Array(regions) => regions,
                Value::Object(regions) => regions.into_iter().map(|(_, region)| region).collect(),
                _ => Vec::new(),
            };
            let mut objects = Vec::new();
            for (number, region) in regions.iter().enumerate() {
                match object(region, &mut classes) {
                    Ok(object) => objects.push(object),
                    Err(reason) => collection.left_out.push(format!("{shown}: {}: region {}: {reason}", entry.filename, number + 1)),
                }
            }
            collection.images.push(ImageRecord { name: entry.filename, path: image, size: None, split, is_labelled: true, objects });
        }
    }
    classes.finish(0, &mut collection);
    Ok(collection)
}

fn object(region: &Value, classes: &mut ClassTable) -> Result<Object, String> {
    let shape = &region["shape_attributes"];
    let number = |key: &str| shape[key].as_f64().ok_or_else(|| format!("{key} is no number"));
    let kind = shape["name"].as_str().unwrap_or_default();
    let around = |cx: f64, cy: f64, rx: f64, ry: f64| Object::new(0, Coords::Pixels([cx - rx, cy - ry, cx + rx, cy + ry]));
    let mut object = match kind {
        "rect" => {
            let [x, y, w, h] = [number("x")?, number("y")?, number("width")?, number("height")?];
            Object::new(0, Coords::Pixels([x, y, x + w, y + h]))
        }
        "circle" => around(number("cx")?, number("cy")?, number("r")?, number("r")?),
        "ellipse" if shape["theta"].as_f64().unwrap_or(0.0) == 0.0 => around(number("cx")?, number("cy")?, number("rx")?, number("ry")?),
        "polygon" => {
            let axis = |key: &str| -> Option<Vec<f64>> { shape[key].as_array()?.iter().map(Value::as_f64).collect() };
            let (xs, ys) = axis("all_points_x").zip(axis("all_points_y")).ok_or("a polygon without points")?;
            let ring: Vec<[f64; 2]> = xs.into_iter().zip(ys).map(|(x, y)| [x, y]).collect();
            if ring.len() < 3 {
                return Err(format!("a polygon of {} points", ring.len()));
            }
            Object::outlined(0, vec![ring], true).ok_or("a polygon without points")?
        }
        other => return Err(format!("{:?} is read neither as box nor as polygon", other.chars().take(24).collect::<String>())),
    };
    let attributes = region["region_attributes"].as_object().cloned().unwrap_or_default();
    let key = CLASS_KEYS.iter().find(|key| attributes.contains_key(**key)).map(|key| (*key).to_owned());
    let key = key.or_else(|| attributes.keys().next().cloned()).unwrap_or_default();
    for (name, value) in attributes {
        // Check boxes are an object of what is set.
        let text = match &value {
            Value::Object(set) => set.keys().cloned().collect::<Vec<_>>().join(" "),
            other => value_text(other),
        };
        if name == key { object.class = classes.class(text.trim()) } else { object.attributes.push((name, text)) }
    }
    if key.is_empty() {
        object.class = classes.class("object");
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{format_of, read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn regions_of_both_versions_are_read() {
        let rect = r#"{"shape_attributes": {"name": "rect", "x": 1, "y": 2.5, "width": 10, "height": 20}, "region_attributes": {"size": "big", "class": "cat"}}"#;
        let polygon = r#"{"shape_attributes": {"name": "polygon", "all_points_x": [1, 5, 3], "all_points_y": [2, 2, 9]}, "region_attributes": {"kind": {"dog": true}}}"#;
        let point = r#"{"shape_attributes": {"name": "point", "cx": 1, "cy": 2}, "region_attributes": {}}"#;
        let text = format!(
            r#"{{"_via_settings": {{"x": [1]}}, "_via_img_metadata": {{"a.png123": {{"filename": "a.png", "size": 123, "regions": [{rect}, {polygon}, {point}]}},
                "b.png1": {{"filename": "b.png", "size": 1, "regions": {{"0": {rect}}}}}, "bad": 7}}}}"#
        );
        let root = folder(&[("via_project.json", &text)]);
        png(root.path(), "val/a.png", 100, 50);
        assert_eq!(format_of(root.path()), "via");
        let read = read(root.path());
        assert_eq!(read.names, ["cat", "dog"]);
        let first = &read.images[0].objects;
        assert_eq!((first[0].coords, first[0].attribute("size")), (Coords::Pixels([1.0, 2.5, 11.0, 22.5]), Some("big")));
        assert_eq!((first[1].class, first[1].outline.len(), read.images[1].objects.len()), (1, 1, 1));
        assert_eq!(read.left_out.len(), 2, "{:?}", read.left_out);
    }
}
