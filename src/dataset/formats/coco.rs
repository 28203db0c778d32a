//! COCO JSON: images, annotations and categories in one file a split.
//!
//! In:  one or several such files, their top-level keys in any order; ids that are numbers or text, with gaps.
//! Out: the collection; classes in the order of their ids, which stay known. Or `annotations/instances_SPLIT.json` and
//!      `images/SPLIT`.
//!
//! A file is read as a stream: what is kept is what is needed, never its text. Boxes are left, top, width and height in
//! pixels from 0. Run-length masks are not kept, polygons are. `iscrowd` is an attribute. Source: the COCO data format.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::collection::{CROWD, Collection, Coords, ImageRecord, Object, stated_size};
use super::json_head::json_head;
use super::source::Source;
use super::target::Target;
use crate::dataset::label::Split;
use crate::dataset::open::DatasetError;

/// The files that are COCO JSON.
pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_coco = |head: &[u8]| {
        json_head(head).is_some_and(|head| {
            !head.is_list && !head.has("shapes") && (head.has("annotations") || head.has("images")) && !head.has("_via_img_metadata")
        })
    };
    source.heads("json").filter(|(_, head)| is_coco(head)).map(|(path, _)| path.to_owned()).collect()
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let mut collection = Collection::default();
    let is_instances = |path: &&PathBuf| path.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with("instances"));
    let instances: Vec<&PathBuf> = files.iter().filter(is_instances).collect();
    let files = if instances.is_empty() { files.iter().collect() } else { instances };

    let mut read = Vec::new();
    let mut categories: BTreeSet<(Key, String)> = BTreeSet::new();
    for path in files {
        let file = read_file(path).map_err(|reason| DatasetError::Foreign { path: source.shown(path), reason })?;
        for category in &file.categories {
            categories.insert((category.id.clone(), category.name().into_owned()));
        }
        read.push((path, file));
    }
    let mut classes: HashMap<(Key, String), i64> = HashMap::new();
    let mut ids = Vec::new();
    for (index, (key, name)) in categories.into_iter().enumerate() {
        ids.push(if let Key::Number(id) = key { Some(id) } else { None });
        collection.names.push(name.clone());
        classes.insert((key, name), index as i64);
    }
    for (path, file) in read {
        add(source, path, file, &mut classes, &mut collection);
    }
    // Categories that annotations name and no list holds are at the end.
    ids.resize(collection.names.len(), None);
    let ids: Option<Vec<i64>> = ids.into_iter().collect();
    collection.class_ids = ids.filter(|ids| {
        let mut sorted = ids.clone();
        sorted.dedup();
        sorted.len() == ids.len()
    });
    Ok(collection)
}

/// Adds what one file says.
fn add(source: &Source, path: &Path, file: CocoFile, classes: &mut HashMap<(Key, String), i64>, collection: &mut Collection) {
    let split = source.split_of_list(path);
    let shown = source.shown(path);
    let mut class_of: HashMap<Key, i64> = HashMap::new();
    for category in &file.categories {
        if let Some(&class) = classes.get(&(category.id.clone(), category.name().into_owned())) {
            class_of.entry(category.id.clone()).or_insert(class);
        }
    }
    let first = collection.images.len();
    let mut place: HashMap<Key, usize> = HashMap::new();
    let mut n_repeated = 0;
    for image in file.images {
        let Some(name) = image.file_name.filter(|name| !name.is_empty()) else {
            collection.left_out.push(format!("{shown}: image {} has no file_name", image.id));
            continue;
        };
        if place.insert(image.id, collection.images.len()).is_some() {
            n_repeated += 1;
        }
        collection.images.push(ImageRecord {
            path: source.find_image(&name, path).map(Path::to_owned),
            name,
            size: image.width.zip(image.height).and_then(|(width, height)| stated_size(width, height)),
            split,
            is_labelled: true,
            objects: Vec::new(),
        });
    }
    if n_repeated > 0 {
        collection.notes.push(format!("{shown}: {n_repeated} image ids stand there twice; their boxes go to the later image"));
    }
    let mut n_masks = 0;
    for annotation in file.annotations {
        let id = annotation.id.as_ref().map_or_else(|| "without id".to_owned(), Key::to_string);
        let Some(&image) = annotation.image_id.as_ref().and_then(|id| place.get(id)) else {
            collection.left_out.push(format!("{shown}: annotation {id} belongs to no image of the file"));
            continue;
        };
        let class = match annotation.category_id {
            None => {
                collection.left_out.push(format!("{shown}: annotation {id} has no category_id"));
                continue;
            }
            Some(key) => *class_of.entry(key.clone()).or_insert_with(|| {
                let name = format!("category_{key}");
                *classes.entry((key, name.clone())).or_insert_with(|| {
                    collection.notes.push(format!("{shown}: {name} is not among the categories"));
                    collection.names.push(name);
                    collection.names.len() as i64 - 1
                })
            }),
        };
        let outline = match annotation.segmentation {
            Some(Segmentation::Rings(rings)) => rings.iter().map(|ring| points(ring)).filter(|ring| ring.len() > 2).collect(),
            Some(Segmentation::Flat(ring)) if ring.len() > 4 => vec![points(&ring)],
            Some(Segmentation::Mask { .. }) => {
                n_masks += 1;
                Vec::new()
            }
            _ => Vec::new(),
        };
        let object = match annotation.bbox.as_deref() {
            Some(&[x, y, w, h]) => Some(Object { outline, ..Object::new(class, Coords::Pixels([x, y, x + w, y + h])) }),
            None | Some([]) => Object::outlined(class, outline, true),
            Some(_) => None,
        };
        let Some(mut object) = object else {
            collection.left_out.push(format!("{shown}: annotation {id} has no bbox of four numbers"));
            continue;
        };
        object.score = annotation.score;
        for (key, value) in annotation.attributes.unwrap_or_default() {
            let text = value_text(&value);
            match (key.as_str(), text.parse()) {
                ("track_id", Ok(track)) => object.track = Some(track),
                _ => object.attributes.push((key, text)),
            }
        }
        if annotation.iscrowd.is_some_and(Flag::is_set) {
            object.mark(CROWD);
        }
        collection.images[image].objects.push(object);
    }
    if n_masks > 0 {
        collection.left_out.push(format!("{shown}: {n_masks} run-length masks; their boxes are kept"));
    }
    if collection.images.len() == first {
        collection.notes.push(format!("{shown} names no images"));
    }
}

fn points(ring: &[f64]) -> Vec<[f64; 2]> {
    ring.as_chunks().0.to_vec()
}

/// A value of an attribute as text.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn read_file(path: &Path) -> Result<CocoFile, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    skip_bom(&mut reader).map_err(|error| error.to_string())?;
    parse(reader)
}

fn skip_bom(reader: &mut BufReader<File>) -> std::io::Result<()> {
    use std::io::BufRead as _;
    if reader.fill_buf()?.starts_with("\u{feff}".as_bytes()) {
        reader.consume(3);
    }
    Ok(())
}

pub(super) fn parse(reader: impl std::io::Read) -> Result<CocoFile, String> {
    serde_json::from_reader(reader).map_err(|error| format!("is no COCO JSON: {error}"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CocoFile {
    images: Vec<CocoImage>,
    annotations: Vec<CocoAnnotation>,
    categories: Vec<CocoCategory>,
}

#[derive(Debug, Deserialize)]
struct CocoImage {
    id: Key,
    file_name: Option<String>,
    width: Option<f64>,
    height: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct CocoAnnotation {
    id: Option<Key>,
    image_id: Option<Key>,
    category_id: Option<Key>,
    bbox: Option<Vec<f64>>,
    segmentation: Option<Segmentation>,
    iscrowd: Option<Flag>,
    score: Option<f64>,
    attributes: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct CocoCategory {
    id: Key,
    name: Option<Key>,
}

impl CocoCategory {
    fn name(&self) -> std::borrow::Cow<'_, str> {
        match &self.name {
            None => format!("category_{}", self.id).into(),
            Some(name) => name.to_string().into(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Segmentation {
    Rings(Vec<Vec<f64>>),
    Flat(Vec<f64>),
    Mask {
        #[serde(rename = "counts")]
        _counts: serde::de::IgnoredAny,
    },
    Other(serde::de::IgnoredAny),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Flag {
    Number(f64),
    Bool(bool),
}

impl Flag {
    fn is_set(self) -> bool {
        match self {
            Self::Number(number) => number != 0.0,
            Self::Bool(flag) => flag,
        }
    }
}

/// An id: a number, or a text that is none.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(from = "RawKey")]
pub(super) enum Key {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawKey {
    Number(i64),
    Float(f64),
    Text(String),
}

impl From<RawKey> for Key {
    fn from(raw: RawKey) -> Self {
        match raw {
            RawKey::Number(number) => Self::Number(number),
            RawKey::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => Self::Number(number as i64),
            RawKey::Float(number) => Self::Text(number.to_string()),
            // As the usual `"7"`, but not `"007"`, which names another thing.
            RawKey::Text(text) => match text.parse::<i64>() {
                Ok(number) if number.to_string() == text => Self::Number(number),
                _ => Self::Text(text),
            },
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Writes a file a split; all of them with the same categories.
pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    let collection = target.collection;
    let classes = Categories::of(collection);
    target.make_folder("annotations")?;
    target.place_images(|placed| format!("images/{}/{}", placed.split.name(), placed.file_name()))?;
    let mut entry = PathBuf::from("annotations");
    for split in target.splits() {
        let path = format!("annotations/instances_{}.json", split.name());
        target.write_with(&path, |file| write_split(target, split, &classes, file))?;
        if target.splits().next() == Some(split) {
            entry = PathBuf::from(path);
        }
    }
    Ok(entry)
}

fn write_split(target: &Target<'_>, split: Split, classes: &Categories, file: &mut BufWriter<File>) -> std::io::Result<()> {
    file.write_all(b"{\"images\": [")?;
    for (index, (number, placed, image)) in target.of_split(split).enumerate() {
        let (width, height) = image.size.map_or((0, 0), |size| (size.width, size.height));
        let value = json!({"id": number + 1, "file_name": placed.file_name(), "width": width, "height": height});
        write!(file, "{}\n{value}", if index > 0 { "," } else { "" })?;
    }
    file.write_all(b"],\n\"annotations\": [")?;
    let mut id = 0;
    for (number, _, image) in target.of_split(split) {
        for object in &image.objects {
            let Some([x1, y1, x2, y2]) = object.pixels(image.size) else { continue };
            let rings: Vec<Vec<f64>> = object.outline_pixels(image.size).iter().map(|ring| ring.concat()).collect();
            let mut value = json!({
                "id": id + 1, "image_id": number + 1, "category_id": classes.id(object.class), "bbox": [x1, y1, x2 - x1, y2 - y1],
                "area": (x2 - x1) * (y2 - y1), "iscrowd": u8::from(object.is(CROWD)), "segmentation": rings,
            });
            if let Some(score) = object.score {
                value["score"] = score.into();
            }
            let mut attributes: Map<String, Value> =
                object.attributes.iter().filter(|(key, _)| key != CROWD).map(|(key, text)| (key.clone(), text.clone().into())).collect();
            if let Some(track) = object.track {
                attributes.insert("track_id".to_owned(), track.into());
            }
            if !attributes.is_empty() {
                value["attributes"] = attributes.into();
            }
            write!(file, "{}\n{value}", if id > 0 { "," } else { "" })?;
            id += 1;
        }
    }
    file.write_all(b"],\n\"categories\": [")?;
    for (index, (id, name)) in classes.list.iter().enumerate() {
        write!(file, "{}\n{}", if index > 0 { "," } else { "" }, json!({"id": id, "name": name}))?;
    }
    file.write_all(b"]}\n")
}

/// The categories that are written: all names with the ids of the source, else from 1; then classes without a name.
struct Categories {
    list: Vec<(i64, String)>,
    unnamed: BTreeMap<i64, i64>,
}

impl Categories {
    fn of(collection: &Collection) -> Self {
        let ids = collection.class_ids.clone().filter(|ids| ids.len() == collection.names.len());
        let ids = ids.unwrap_or_else(|| (1..=collection.names.len() as i64).collect());
        let mut next = ids.iter().max().map_or(1, |max| max.saturating_add(1));
        let mut list: Vec<(i64, String)> = ids.into_iter().zip(collection.names.iter().cloned()).collect();
        let mut unnamed = BTreeMap::new();
        for class in collection.unnamed_classes() {
            list.push((next, collection.class_name(class)));
            unnamed.insert(class, next);
            next = next.saturating_add(1);
        }
        Self { list, unnamed }
    }

    fn id(&self, class: i64) -> i64 {
        self.unnamed.get(&class).copied().unwrap_or_else(|| self.list[class as usize].0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, try_read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    /// Keys in an order of their own, ids as text and with gaps, floats, a crowd, a mask, an image without boxes.
    const TRAPS: &str = r#"{
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 90, "bbox": [1.25, 2.5, 10, 20.125], "iscrowd": 0, "segmentation": [[1, 2, 11, 2, 5, 22]]},
            {"id": 2, "image_id": "7", "category_id": 3, "bbox": [-4, 5, 1000, 6], "segmentation": []},
            {"id": 3, "image_id": 7, "category_id": 3, "bbox": [0, 0, 5, 5], "iscrowd": 1, "segmentation": {"counts": [1, 2], "size": [9, 9]}},
            {"id": 4, "image_id": 99, "category_id": 3, "bbox": [0, 0, 5, 5]},
            {"id": 5, "image_id": "b", "category_id": 55, "bbox": [3, 3, 0, 0], "attributes": {"occluded": true, "track_id": 4}},
            {"id": 6, "image_id": "b", "category_id": 3, "bbox": [1, 2, 3]}
        ],
        "info": {"year": 2017, "nested": [[{"x": null}]]},
        "images": [
            {"id": 7, "file_name": "sub\\a.png", "width": 50, "height": 100, "extra": [1]},
            {"id": "b", "file_name": "https://host/x/b.png?sig=1", "width": 40, "height": 30},
            {"id": 9, "file_name": "../../outside.png", "width": 40, "height": 30}
        ],
        "categories": [{"id": 90, "name": "cat"}, {"id": 3, "name": "dog", "supercategory": null}]
    }"#;

    #[test]
    fn its_traps_are_read() {
        let root = folder(&[("annotations/instances_val2017.json", TRAPS), ("outside.png.txt", "")]);
        png(root.path(), "val2017/sub/a.png", 100, 50);
        png(root.path(), "val2017/b.png", 40, 30);
        let read = read(root.path());
        assert_eq!((read.names.as_slice(), read.class_ids.as_deref()), (["dog", "cat", "category_55"].map(str::to_owned).as_slice(), None));
        assert_eq!(read.images.iter().map(|image| image.path.is_some()).collect::<Vec<_>>(), [true, true, false]);
        assert!(read.images.iter().all(|image| image.split == Split::Val && image.is_labelled));
        let first = &read.images[0].objects;
        assert_eq!(first[0].coords, Coords::Pixels([1.25, 2.5, 11.25, 22.625]));
        assert_eq!((first[0].class, &first[0].outline), (1, &vec![vec![[1.0, 2.0], [11.0, 2.0], [5.0, 22.0]]]));
        assert_eq!((first[1].class, first[1].coords), (0, Coords::Pixels([-4.0, 5.0, 996.0, 11.0])));
        assert!(first[2].is(CROWD) && first.len() == 3);
        let second = &read.images[1].objects;
        assert_eq!((second.len(), second[0].class, second[0].track, second[0].is("occluded")), (1, 2, Some(4), true));
        assert_eq!(read.left_out.len(), 3, "{:?}", read.left_out);
        assert!(read.left_out[0].ends_with("annotation 4 belongs to no image of the file"), "{:?}", read.left_out);
        assert!(read.notes.iter().any(|note| note.contains("sub\\a.png (100x50, not 50x100)")), "{:?}", read.notes);
    }

    #[test]
    fn ids_with_gaps_are_written_as_they_were() {
        let text = TRAPS.replace("\"category_id\": 55", "\"category_id\": 3");
        let root = folder(&[("annotations/instances_val2017.json", &text)]);
        png(root.path(), "val2017/sub/a.png", 100, 50);
        png(root.path(), "val2017/b.png", 40, 30);
        assert_eq!(read(root.path()).class_ids, Some(vec![3, 90]));
        let out = root.path().join("out");
        super::super::tests::convert_to(root.path(), &out, super::super::FormatId::Coco);
        let again = read(&out);
        assert_eq!(again.class_ids, Some(vec![3, 90]));
        assert!(again.images[0].objects[2].is(CROWD) && again.images[0].objects[0].outline.len() == 1);
        assert_eq!(again.images.len(), 3, "also the image without boxes, of which there is no picture");
    }

    #[test]
    fn broken_files_are_told_with_their_place() {
        let deep = format!("{{\"images\": [], \"info\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        for (text, reason) in [
            (&TRAPS[..TRAPS.len() / 2], "EOF while parsing"),
            (&*TRAPS.replace("1.25", "NaN"), "line 3 column"),
            (&*TRAPS.replace("1.25", "1e999"), "number out of range"),
            (&*TRAPS.replace("\"file_name\"", "\"id\""), "duplicate field"),
            (&*deep, ""),
        ] {
            let root = folder(&[("annotations/instances_val2017.json", text)]);
            match try_read(root.path()) {
                Ok(read) => assert!(reason.is_empty() && read.images.is_empty(), "{reason}"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(told.contains(reason) && told.contains("instances_val2017.json") && error.hint().is_some(), "{told}");
                }
            }
        }
    }
}
