//! Label Studio JSON: a list of tasks, with results in percent of the image.
//!
//! In:  an export as JSON or JSON-MIN; classes in the order of `label_config.xml`, if it lies beside.
//! Out: the collection; or `tasks.json`, `label_config.xml` and `images/SPLIT`.
//!
//! Of several people's annotations the ground truth counts, else the one that was changed last; cancelled ones and
//! predictions never do. A rotation is about the top-left corner: such a box is read as the outline of its corners. Names
//! of controls are user-chosen, so results are told by what they hold.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::Event;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object, stated_size};
use super::json_head::json_head;
use super::source::{self, Source, split_named};
use super::target::{Placed, Target};
use super::xml;
use crate::dataset::open::DatasetError;
use crate::geom::Size;
use crate::media::decode::is_image_path;

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_tasks = |head: &[u8]| {
        json_head(head).is_some_and(|head| {
            let is_full = head.has("data") && (head.has("annotations") || head.has("completions") || head.has("predictions"));
            head.is_list && (is_full || ["rectanglelabels", "polygonlabels"].iter().any(|kind| head.deeper.contains(*kind)))
        })
    };
    source.heads("json").filter(|(_, head)| is_tasks(head)).map(|(path, _)| path.to_owned()).collect()
}

#[derive(Debug, Deserialize)]
struct Task {
    id: Option<Value>,
    data: Option<Map<String, Value>>,
    #[serde(alias = "completions")]
    annotations: Option<Vec<Annotation>>,
    predictions: Option<Vec<serde::de::IgnoredAny>>,
    /// JSON-MIN: the fields of `data`, and results by the name of their control.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Annotation {
    #[serde(default)]
    result: Vec<Value>,
    was_cancelled: Option<bool>,
    ground_truth: Option<bool>,
    updated_at: Option<Value>,
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let mut collection = Collection::default();
    let listed = source.find_file("label_config.xml", &source.root).map(|path| config_names(source, path)).unwrap_or_default();
    let n_listed = listed.len();
    let mut classes = ClassTable::with(listed);
    let (mut n_predictions, mut n_disputed, mut n_cancelled) = (0, 0, 0);
    for path in files {
        let shown = source.shown(path);
        let foreign = |reason| DatasetError::Foreign { path: shown.clone(), reason };
        let bytes = source::read(source, path).map_err(foreign)?;
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        let tasks: Vec<Task> = serde_json::from_slice(bytes).map_err(|error| foreign(format!("is no list of tasks: {error}")))?;
        for (number, task) in tasks.into_iter().enumerate() {
            let id = task.id.as_ref().map_or_else(|| format!("number {}", number + 1), Value::to_string);
            let is_min = task.annotations.is_none() && task.data.is_none();
            let data = task.data.as_ref().unwrap_or(&task.rest);
            let Some(url) = image_of(data) else {
                collection.left_out.push(format!("{shown}: task {id} names no image"));
                continue;
            };
            n_predictions += task.predictions.as_ref().map_or(0, Vec::len);
            let all = task.annotations.unwrap_or_default();
            let n_all = all.len();
            let mut valid: Vec<Annotation> = all.into_iter().filter(|annotation| annotation.was_cancelled != Some(true)).collect();
            let is_answered = !valid.is_empty();
            n_cancelled += n_all - valid.len();
            n_disputed += usize::from(valid.len() > 1);
            valid.sort_by_key(|annotation| (annotation.ground_truth == Some(true), annotation.updated_at.as_ref().map(Value::to_string)));
            let chosen = valid.pop();
            let results: Vec<Value> = match (chosen.is_some(), is_min) {
                (false, true) => task.rest.values().filter_map(Value::as_array).flatten().cloned().collect(),
                _ => chosen.unwrap_or_default().result,
            };
            let is_labelled = is_min || is_answered;
            let names = local_names(url);
            let image = names.iter().find_map(|name| source.find_image(name, path));
            let split = data.get("split").and_then(Value::as_str).and_then(split_named);
            let mut record = ImageRecord {
                name: names.into_iter().next().unwrap_or_default(),
                split: split.or_else(|| source.split_of(image?)).unwrap_or_else(|| source.split_of_list(path)),
                path: image.map(Path::to_owned),
                size: None,
                is_labelled,
                objects: Vec::new(),
            };
            for result in &results {
                let value = result.get("value").unwrap_or(result);
                let side = |key: &str| result.get(key).and_then(Value::as_f64).unwrap_or(0.0);
                let size = stated_size(side("original_width"), side("original_height"));
                record.size = record.size.or(size);
                match object(value, size, &mut classes) {
                    Ok(Some(object)) => record.objects.push(object),
                    Ok(None) => {}
                    Err(reason) => collection.left_out.push(format!("{shown}: task {id}: {reason}")),
                }
            }
            collection.images.push(record);
        }
    }
    for (n, what) in [
        (n_predictions, "predictions of models are not taken for labels"),
        (n_cancelled, "cancelled annotations do not count"),
        (n_disputed, "tasks were annotated several times; the ground truth counts, else the last one"),
    ] {
        if n > 0 {
            collection.notes.push(format!("{n} {what}"));
        }
    }
    classes.finish(n_listed, &mut collection);
    Ok(collection)
}

/// One result; `None` where it is about no place, such as a choice.
fn object(value: &Value, size: Option<Size>, classes: &mut ClassTable) -> Result<Option<Object>, String> {
    let number = |key: &str| value.get(key).and_then(Value::as_f64);
    let label = |kind: &str| value.get(kind).and_then(Value::as_array).and_then(|names| names.first()).and_then(Value::as_str);
    if let Some(name) = label("rectanglelabels") {
        let (Some(x), Some(y), Some(w), Some(h)) = (number("x"), number("y"), number("width"), number("height")) else {
            return Err("a rectangle without x, y, width and height".to_owned());
        };
        let degrees = number("rotation").unwrap_or(0.0);
        let class = classes.class(name);
        if degrees == 0.0 {
            return Ok(Some(Object::new(class, Coords::Fractions([(x + w / 2.0) / 100.0, (y + h / 2.0) / 100.0, w / 100.0, h / 100.0]))));
        }
        let size = size.ok_or("a rotated rectangle, but not the size of the image")?;
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let (sin, cos) = degrees.to_radians().sin_cos();
        let (across, down) = (w / 100.0 * width, h / 100.0 * height);
        let corner = |u: f64, v: f64| {
            [(x / 100.0 * width + u * cos - v * sin) / width, (y / 100.0 * height + u * sin + v * cos) / height] //
        };
        let ring = vec![corner(0.0, 0.0), corner(across, 0.0), corner(across, down), corner(0.0, down)];
        return Ok(Object::outlined(class, vec![ring], false));
    }
    if let Some(name) = label("polygonlabels") {
        let point = |point: &Value| Some([point.get(0)?.as_f64()? / 100.0, point.get(1)?.as_f64()? / 100.0]);
        let ring: Option<Vec<[f64; 2]>> =
            value.get("points").and_then(Value::as_array).and_then(|points| points.iter().map(point).collect());
        let ring = ring.filter(|ring| ring.len() > 2).ok_or("a polygon without three points")?;
        return Ok(Object::outlined(classes.class(name), vec![ring], false));
    }
    let other = value.as_object().and_then(|fields| fields.keys().find(|key| key.ends_with("labels")));
    match other {
        Some(kind) => Err(format!("a result of kind {kind}; rectangles and polygons are read")),
        None => Ok(None),
    }
}

/// The image of a task: `image`, or else the first text that ends like a picture.
fn image_of(data: &Map<String, Value>) -> Option<&str> {
    let is_image = |text: &&str| local_names(text).first().is_some_and(|name| is_image_path(Path::new(name)));
    data.get("image").and_then(Value::as_str).or_else(|| data.values().filter_map(Value::as_str).find(is_image))
}

/// What the file of a URL may be called: of a local file its path, of an upload also without the eight digits in front.
fn local_names(url: &str) -> Vec<String> {
    let path = match url.split_once("?d=") {
        Some((_, path)) => path,
        None => url.split('?').next().unwrap_or(url),
    };
    let name = percent_decoded(path.split('&').next().unwrap_or(path));
    let short = name.rsplit('/').next().unwrap_or(&name);
    let rest = short.split_once('-').filter(|(digits, _)| digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let without = rest.map(|(_, rest)| rest.to_owned());
    std::iter::once(name.clone()).chain(without).collect()
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok())).flatten();
        decoded.push(digits.unwrap_or(bytes[at]));
        at += if digits.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").ok();
        }
    }
    encoded
}

/// The names of a labelling configuration, in its order.
fn config_names(source: &Source, path: &Path) -> Vec<String> {
    let Ok(bytes) = source::read(source, path) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let mut reader = Reader::from_str(&text);
    let mut names = Vec::new();
    while let Ok(event) = reader.read_event() {
        match event {
            Event::Eof => break,
            Event::Start(element) | Event::Empty(element) if element.name().as_ref() == "Label" => {
                let value = element.try_get_attribute("value").ok().flatten();
                names.extend(value.and_then(|value| Some(value.normalized_value(XmlVersion::Implicit1_0).ok()?.into_owned())));
            }
            _ => {}
        }
    }
    names
}

pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    let collection = target.collection;
    target.place_images(|placed| format!("images/{}/{}", placed.split.name(), placed.file_name()))?;
    target.write_with("tasks.json", |file| {
        use std::io::Write as _;
        file.write_all(b"[")?;
        for (number, placed, image) in target.images() {
            write!(file, "{}\n{}", if number > 0 { "," } else { "" }, task(collection, number, placed, image))?;
        }
        file.write_all(b"\n]\n")
    })?;
    let unnamed = collection.unnamed_classes().into_iter().map(|class| collection.class_name(class));
    let names: Vec<String> = collection.names.iter().cloned().chain(unnamed).map(|name| xml::text(&name)).collect();
    let mut config = "<View>\n  <Image name=\"image\" value=\"$image\"/>\n  <RectangleLabels name=\"label\" toName=\"image\">\n".to_owned();
    for name in names {
        writeln!(config, "    <Label value=\"{name}\"/>").ok();
    }
    config += "  </RectangleLabels>\n</View>\n";
    target.write("label_config.xml", &config)?;
    Ok(PathBuf::from("tasks.json"))
}

fn task(collection: &Collection, number: usize, placed: &Placed, image: &ImageRecord) -> Value {
    let path = format!("images/{}/{}", placed.split.name(), placed.file_name());
    let (width, height) = image.size.map_or((0, 0), |size| (size.width, size.height));
    let results = image.objects.iter().enumerate().filter_map(|(index, object)| {
        let name = collection.class_name(object.class);
        let [cx, cy, w, h] = object.fractions(image.size)?;
        let (kind, value) = if let Some(ring) = object.ring(image.size) {
            let percent = |[x, y]: &[f64; 2]| [x / f64::from(width) * 100.0, y / f64::from(height) * 100.0];
            ("polygonlabels", json!({"points": ring.iter().map(percent).collect::<Vec<_>>(), "polygonlabels": [name]}))
        } else {
            let [x, y, w, h] = [cx - w / 2.0, cy - h / 2.0, w, h].map(|share| share * 100.0);
            ("rectanglelabels", json!({"x": x, "y": y, "width": w, "height": h, "rotation": 0, "rectanglelabels": [name]}))
        };
        Some(json!({
            "id": format!("{number}-{index}"), "type": kind, "from_name": "label", "to_name": "image", "original_width": width,
            "original_height": height, "image_rotation": 0, "value": value,
        }))
    });
    let results: Vec<Value> = results.collect();
    let is_annotated = image.is_labelled || !results.is_empty();
    let annotations = if is_annotated { json!([{"result": results, "was_cancelled": false}]) } else { json!([]) };
    json!({
        "id": number + 1, "data": {"image": format!("/data/local-files/?d={}", percent_encoded(&path)), "split": placed.split.name()},
        "annotations": annotations, "predictions": [],
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;
    use crate::dataset::label::Split;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn its_traps_are_read() {
        let rectangle = |x: f64, y: f64, rotation: f64, name: &str| {
            format!(
                r#"{{"type": "rectanglelabels", "from_name": "mine", "original_width": 200, "original_height": 100,
                    "value": {{"x": {x}, "y": {y}, "width": 20, "height": 10, "rotation": {rotation}, "rectanglelabels": ["{name}"]}}}}"#
            )
        };
        let text = format!(
            r#"[{{"id": 1, "data": {{"picture": "/data/upload/39/a3cc06f3-a%20b.png", "text": "x"}}, "predictions": [{{"result": [{}]}}], "annotations": [
                {{"was_cancelled": true, "result": [{}]}},
                {{"updated_at": "2024-02-01", "result": [{}, {{"type": "choices", "value": {{"choices": ["y"]}}}}]}},
                {{"updated_at": "2024-01-01", "result": []}}]}},
               {{"id": 2, "data": {{"image": "/data/local-files/?d=sub%2Fc.png"}}, "annotations": [{{"result": [{}, {{"value": {{"brushlabels": ["dog"]}}}}]}}]}},
               {{"id": 3, "data": {{"image": "s3://bucket/d.png"}}, "annotations": []}},
               {{"id": 4, "data": {{"text": "no"}}, "annotations": []}}]"#,
            rectangle(0.0, 0.0, 0.0, "ghost"),
            rectangle(0.0, 0.0, 0.0, "cancelled"),
            rectangle(10.0, 20.0, 0.0, "cat"),
            rectangle(50.0, 50.0, 90.0, "dog"),
        );
        let root =
            folder(&[("export.json", &text), ("label_config.xml", "<View><X><Label value=\"dog\"/><Label value='c&amp;d'/></X></View>")]);
        for name in ["a b", "val/c", "d"] {
            png(root.path(), &format!("images/{name}.png"), 200, 100);
        }
        let read = read(root.path());
        assert_eq!(read.names, ["dog", "c&d", "cat"]);
        let listed: Vec<_> =
            read.images.iter().map(|image| (image.split, image.path.is_some(), image.is_labelled, image.objects.len())).collect();
        assert_eq!(listed, [(Split::Train, true, true, 1), (Split::Val, true, true, 1), (Split::Train, true, false, 0)]);
        let near = |index: usize, wanted: [f64; 4]| {
            let corners = read.images[index].objects[0].pixels(read.images[index].size).unwrap_or_default();
            assert!(corners.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{corners:?}");
        };
        near(0, [20.0, 20.0, 60.0, 30.0]);
        // 40 by 10 pixels, turned clockwise by a quarter about (100, 50).
        near(1, [90.0, 50.0, 100.0, 90.0]);
        assert_eq!(read.left_out.len(), 2, "{:?}", read.left_out);
        assert_eq!(read.notes.len(), 3, "{:?}", read.notes);
    }

    #[test]
    fn the_flat_export_is_read() {
        let text = r#"[{"image": "/data/upload/1/0123abcd-a.png", "id": 1, "annotator": 1, "lead_time": 2.5,
            "tag": [{"x": 10, "y": 20, "width": 20, "height": 10, "rotation": 0, "rectanglelabels": ["cat"], "original_width": 9, "original_height": 9}]}]"#;
        let root = folder(&[("project.json", text)]);
        png(root.path(), "a.png", 200, 100);
        let read = read(root.path());
        assert_eq!(read.images[0].objects[0].coords, Coords::Fractions([0.2, 0.25, 0.2, 0.1]));
        assert!(read.images[0].path.is_some() && read.names == ["cat"]);
    }
}
