//! CVAT XML: "for images 1.1" with boxes below images, "for video 1.1" with tracks over frames.
//!
//! In:  such a file. Frames between two keyframes are interpolated, `outside` ends a stretch, frames count from 0.
//! Out: the collection; or `annotations.xml` and `images/SPLIT`, or for a video `images/frame_000000.jpg` and so on.
//!
//! A box with a rotation becomes the outline of its four corners. What is neither box nor polygon is counted, not read.
//! A score and a track id are attributes, as other tools write them here. Source: CVAT's description of the format.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use super::collection::{ClassTable, Collection, Coords, ImageRecord, Object, stated_size};
use super::source::{self, Source, split_named};
use super::target::Target;
use super::xml;
use crate::dataset::label::Split;
use crate::dataset::open::DatasetError;
use crate::geom::Size;

/// More boxes of tracks than this are a damaged frame number.
const MAX_TRACK_BOXES: u64 = 20_000_000;

pub(super) fn recognise(source: &Source) -> Vec<PathBuf> {
    let is_cvat = |head: &[u8]| xml::root_name(head).as_deref() == Some("annotations");
    source.heads("xml").filter(|(_, head)| is_cvat(head)).map(|(path, _)| path.to_owned()).collect()
}

pub(super) fn read(source: &Source, files: &[PathBuf]) -> Result<Collection, DatasetError> {
    let mut collection = Collection::default();
    let mut parsed = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    for path in files {
        let foreign = |reason| DatasetError::Foreign { path: source.shown(path), reason };
        let bytes = source::read(source, path).map_err(foreign)?;
        let file = parse(&String::from_utf8_lossy(&bytes)).map_err(foreign)?;
        for label in &file.labels {
            if !labels.contains(label) {
                labels.push(label.clone());
            }
        }
        parsed.push((path, file));
    }
    let n_listed = labels.len();
    let mut classes = ClassTable::with(labels);
    for (path, file) in parsed {
        let shown = source.shown(path);
        for (kind, n) in &file.skipped {
            collection.left_out.push(format!("{shown}: {n} of kind {kind}; boxes and polygons are read"));
        }
        collection.left_out.extend(file.faults.iter().map(|fault| format!("{shown}: {fault}")));
        if file.n_rotated > 0 {
            collection.notes.push(format!("{shown}: {} rotated boxes are read as outlines of their corners", file.n_rotated));
        }
        let frames = file.frames(source, path).map_err(|reason| DatasetError::Foreign { path: shown.clone(), reason })?;
        for image in file.images {
            let found = source.find_image(&image.name, path).map(Path::to_owned);
            let of_folder = || found.as_ref().and_then(|found| source.split_of(found));
            let split = image.subset.as_deref().and_then(split_named).or_else(of_folder);
            collection.images.push(ImageRecord {
                split: split.unwrap_or_else(|| source.split_of_list(path)),
                path: found,
                name: image.name,
                size: image.size,
                is_labelled: true,
                objects: image.shapes.into_iter().filter_map(|shape| shape.object(&mut classes)).collect(),
            });
        }
        for frame in frames {
            let objects = frame.shapes.into_iter().filter_map(|shape| shape.object(&mut classes)).collect();
            collection.images.push(ImageRecord { objects, ..frame.record });
        }
    }
    classes.finish(n_listed, &mut collection);
    Ok(collection)
}

/// What a file says.
#[derive(Debug, Default)]
struct CvatFile {
    labels: Vec<String>,
    images: Vec<CvatImage>,
    tracks: Vec<Track>,
    /// Frames of the task, where it says how many there are.
    n_frames: Option<u64>,
    frame_size: Option<Size>,
    skipped: BTreeMap<String, usize>,
    faults: Vec<String>,
    n_rotated: usize,
}

#[derive(Debug, Default)]
struct CvatImage {
    name: String,
    subset: Option<String>,
    size: Option<Size>,
    shapes: Vec<Shape>,
}

#[derive(Debug, Default)]
struct Track {
    id: i64,
    label: String,
    /// By frame.
    shapes: BTreeMap<u64, Shape>,
}

/// A box or a polygon.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shape {
    label: String,
    corners: [f64; 4],
    outline: Vec<[f64; 2]>,
    is_outside: bool,
    track: Option<i64>,
    attributes: Vec<(String, String)>,
}

impl Shape {
    fn object(self, classes: &mut ClassTable) -> Option<Object> {
        let class = classes.class(&self.label);
        let mut object = if self.outline.is_empty() {
            Object::new(class, Coords::Pixels(self.corners))
        } else {
            Object::outlined(class, vec![self.outline], true)?
        };
        object.track = self.track;
        for (key, value) in self.attributes {
            match (key.as_str(), value.parse(), value.parse()) {
                ("track_id", Ok(track), _) => object.track = Some(track),
                ("score", _, Ok(score)) => object.score = Some(score),
                _ => object.attributes.push((key, value)),
            }
        }
        Some(object)
    }

    /// The box at a share of the way to another one.
    fn towards(&self, next: &Self, share: f64) -> Self {
        let corners = [0, 1, 2, 3].map(|side| self.corners[side] + (next.corners[side] - self.corners[side]) * share);
        Self { corners, ..self.clone() }
    }
}

/// A frame of a video with its shapes.
struct Frame {
    record: ImageRecord,
    shapes: Vec<Shape>,
}

impl CvatFile {
    /// All frames that have a picture or a shape, in order.
    fn frames(&self, source: &Source, path: &Path) -> Result<Vec<Frame>, String> {
        if self.tracks.is_empty() && self.n_frames.is_none_or(|_| !self.images.is_empty()) {
            return Ok(Vec::new());
        }
        let pictures = pictures_by_frame(source);
        let in_tracks = self.tracks.iter().filter_map(|track| track.shapes.keys().max()).max().map_or(0, |last| last + 1);
        let n_frames = self.n_frames.unwrap_or_else(|| in_tracks.max(pictures.keys().max().map_or(0, |last| last + 1)));
        let mut shapes: BTreeMap<u64, Vec<Shape>> = pictures.keys().map(|&frame| (frame, Vec::new())).collect();
        let mut n = 0;
        for track in &self.tracks {
            let mut keys = track.shapes.iter().peekable();
            while let Some((&frame, shape)) = keys.next() {
                if shape.is_outside {
                    continue;
                }
                let next = keys.peek().copied();
                // The last one stays until the video ends.
                let end = next.map_or(n_frames.max(frame + 1), |(&next, _)| next);
                n += end - frame;
                if n > MAX_TRACK_BOXES {
                    return Err(format!("track {} reaches from frame {frame} to {end}, with too many boxes", track.id));
                }
                for at in frame..end {
                    let moved = match next {
                        Some((_, next)) if shape.outline.is_empty() && next.outline.is_empty() => {
                            shape.towards(next, (at - frame) as f64 / (end - frame) as f64)
                        }
                        _ if at > frame && !shape.outline.is_empty() => break,
                        _ => shape.clone(),
                    };
                    shapes.entry(at).or_default().push(Shape { track: Some(track.id), label: track.label.clone(), ..moved });
                }
            }
        }
        let frame = |(frame, shapes): (u64, Vec<Shape>)| {
            let picture = pictures.get(&frame).cloned();
            let name = picture.as_ref().map_or_else(|| format!("frame_{frame:06}.jpg"), |path| source.name(path));
            let split = picture.as_ref().and_then(|path| source.split_of(path)).unwrap_or_else(|| source.split_of_list(path));
            let record = ImageRecord { name, path: picture, size: self.frame_size, split, is_labelled: true, objects: Vec::new() };
            Frame { record, shapes }
        };
        Ok(shapes.into_iter().map(frame).collect())
    }
}

/// The pictures of a video: by the number that their names end with, or else by their order.
fn pictures_by_frame(source: &Source) -> BTreeMap<u64, PathBuf> {
    let number = |path: &PathBuf| {
        let stem = path.file_stem()?.to_str()?;
        let digits = stem.len() - stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        stem[stem.len() - digits..].parse().ok()
    };
    let numbers: Option<Vec<u64>> = source.images().iter().map(number).collect();
    let mut by_number: BTreeMap<u64, PathBuf> = BTreeMap::new();
    if let Some(numbers) = numbers {
        by_number.extend(numbers.into_iter().zip(source.images().iter().cloned()));
    }
    if by_number.len() == source.images().len() { by_number } else { (0..).zip(source.images().iter().cloned()).collect() }
}

/// The attributes of an element.
fn fields(element: &BytesStart<'_>) -> Result<HashMap<String, String>, String> {
    let mut fields = HashMap::new();
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        // An entity that only a DOCTYPE declares is no text here: nothing is ever expanded.
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| error.to_string())?;
        fields.insert(attribute.key.as_ref().to_owned(), value.into_owned());
    }
    Ok(fields)
}

fn parse(text: &str) -> Result<CvatFile, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader::from_str(text);
    let mut parser = Parser::default();
    loop {
        let at = reader.buffer_position() as usize;
        let line = || text.as_bytes()[..at.min(text.len())].split(|&b| b == b'\n').count();
        let failed = |reason: String| format!("line {}: {reason}", line());
        match reader.read_event().map_err(|error| failed(error.to_string()))? {
            Event::Start(element) => parser.start(&element, &line).map_err(failed)?,
            Event::Empty(element) => {
                parser.start(&element, &line).map_err(failed)?;
                parser.end();
            }
            Event::End(_) => parser.end(),
            Event::Text(part) => parser.content.push_str(&part.xml10_content()),
            Event::CData(part) => parser.content.push_str(&part.xml10_content()),
            Event::GeneralRef(entity) => {
                let decoded = match entity.resolve_char_ref() {
                    Ok(Some(c)) => c.to_string(),
                    _ => quick_xml::escape::resolve_predefined_entity(&entity.xml10_content()).unwrap_or("?").to_owned(),
                };
                parser.content.push_str(&decoded);
            }
            Event::Eof if !parser.path.is_empty() => return Err(format!("the file ends within <{}>", parser.path.join("><"))),
            Event::Eof => return Ok(parser.file),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Parser {
    file: CvatFile,
    path: Vec<String>,
    content: String,
    image: Option<CvatImage>,
    track: Option<Track>,
    shape: Option<(u64, Shape)>,
    attribute: Option<String>,
    size: [f64; 2],
}

impl Parser {
    fn start(&mut self, element: &BytesStart<'_>, line: &dyn Fn() -> usize) -> Result<(), String> {
        let name = element.name().as_ref().to_owned();
        self.content.clear();
        if self.path.len() > 64 {
            return Err("elements are nested too deeply".to_owned());
        }
        let is_top = self.path.len() == 1;
        let in_shapes = self.path.len() == 2 && (self.image.is_some() || self.track.is_some());
        match name.as_str() {
            "image" if is_top => {
                let mut fields = fields(element)?;
                let side = |key: &str| fields.get(key).and_then(|text| text.parse().ok()).unwrap_or(0.0);
                let size = stated_size(side("width"), side("height"));
                let (name, subset) = (fields.remove("name").unwrap_or_default(), fields.remove("subset"));
                self.image = Some(CvatImage { name, subset, size, shapes: Vec::new() });
            }
            "track" if is_top => {
                let mut fields = fields(element)?;
                let id = fields.get("id").and_then(|id| id.parse().ok()).unwrap_or(self.file.tracks.len() as i64);
                self.track = Some(Track { id, label: fields.remove("label").unwrap_or_default(), shapes: BTreeMap::new() });
            }
            "box" | "polygon" if in_shapes => match self.read_shape(&name, fields(element)?) {
                Ok(shape) => self.shape = Some(shape),
                Err(reason) => self.file.faults.push(format!("line {}: {name} {reason}", line())),
            },
            "attribute" if self.shape.is_some() => self.attribute = fields(element)?.remove("name"),
            other if in_shapes => *self.file.skipped.entry(other.to_owned()).or_default() += 1,
            _ => {}
        }
        self.path.push(name);
        Ok(())
    }

    fn read_shape(&mut self, kind: &str, mut fields: HashMap<String, String>) -> Result<(u64, Shape), String> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        let mut shape = Shape { label: fields.remove("label").unwrap_or_default(), ..Shape::default() };
        if kind == "box" {
            for (corner, key) in shape.corners.iter_mut().zip(["xtl", "ytl", "xbr", "ybr"]) {
                let text = fields.get(key).ok_or_else(|| format!("has no {key}"))?;
                *corner = number(text).ok_or_else(|| format!("has {key} {:?}, expected a number", head(text)))?;
            }
            let degrees = fields.get("rotation").and_then(|text| number(text)).unwrap_or(0.0);
            if degrees != 0.0 {
                self.file.n_rotated += 1;
                shape.outline = turned(shape.corners, degrees);
            }
        } else {
            let points = fields.get("points").map(String::as_str).unwrap_or_default();
            let point = |text: &str| text.split_once(',').and_then(|(x, y)| Some([number(x)?, number(y)?]));
            shape.outline = points.split(';').map(point).collect::<Option<_>>().ok_or_else(|| format!("has points {:?}", head(points)))?;
        }
        shape.is_outside = fields.get("outside").is_some_and(|text| text == "1");
        if fields.get("occluded").is_some_and(|text| text == "1") {
            shape.attributes.push(("occluded".to_owned(), "1".to_owned()));
        }
        let frame = match fields.get("frame") {
            Some(text) => text.parse().map_err(|_| format!("has frame {:?}", head(text)))?,
            None if self.track.is_some() => return Err("has no frame".to_owned()),
            None => 0,
        };
        Ok((frame, shape))
    }

    fn end(&mut self) {
        let Some(name) = self.path.pop() else { return };
        let value = self.content.trim();
        match (self.path.len(), name.as_str()) {
            (1, "image") => self.file.images.extend(self.image.take()),
            (1, "track") => self.file.tracks.extend(self.track.take()),
            (2, "box" | "polygon") => {
                if let Some((frame, shape)) = self.shape.take() {
                    if let Some(image) = &mut self.image {
                        image.shapes.push(shape);
                    } else if let Some(track) = &mut self.track {
                        track.shapes.insert(frame, shape);
                    }
                }
            }
            (_, "attribute") => {
                if let (Some(key), Some((_, shape))) = (self.attribute.take(), &mut self.shape) {
                    shape.attributes.push((key, value.to_owned()));
                }
            }
            (_, "name") if self.path.ends_with(&["labels".to_owned(), "label".to_owned()]) => self.file.labels.push(value.to_owned()),
            (3, "size") => self.file.n_frames = value.parse().ok(),
            (_, "width") if self.path.last().is_some_and(|parent| parent == "original_size") => self.size[0] = value.parse().unwrap_or(0.0),
            (_, "height") if self.path.last().is_some_and(|parent| parent == "original_size") => {
                self.size[1] = value.parse().unwrap_or(0.0);
            }
            (_, "original_size") => self.file.frame_size = stated_size(self.size[0], self.size[1]),
            _ => {}
        }
        self.content.clear();
    }
}

fn head(text: &str) -> String {
    text.chars().take(24).collect()
}

/// The corners of a box that is turned about its centre, clockwise on the screen.
fn turned([x1, y1, x2, y2]: [f64; 4], degrees: f64) -> Vec<[f64; 2]> {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (cx, cy) = (f64::midpoint(x1, x2), f64::midpoint(y1, y2));
    let turn = |[x, y]: [f64; 2]| [cx + (x - cx) * cos - (y - cy) * sin, cy + (x - cx) * sin + (y - cy) * cos];
    [[x1, y1], [x2, y1], [x2, y2], [x1, y2]].map(turn).to_vec()
}

pub(super) fn write(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    target.place_images(|placed| format!("images/{}/{}", placed.split.name(), placed.file_name()))?;
    target.write_with("annotations.xml", |file| {
        use std::io::Write as _;
        let collection = target.collection;
        file.write_all(meta(collection, "").as_bytes())?;
        for (number, placed, image) in target.images() {
            let (width, height) = image.size.map_or((0, 0), |size| (size.width, size.height));
            let subset = match placed.split {
                Split::Train => "Train",
                Split::Val => "Validation",
                Split::Test => "Test",
            };
            let name = xml::text(&placed.file_name());
            writeln!(file, "  <image id=\"{number}\" name=\"{name}\" subset=\"{subset}\" width=\"{width}\" height=\"{height}\">")?;
            for object in &image.objects {
                let label = xml::text(&collection.class_name(object.class));
                file.write_all(shape_text(image, object, &format!("label=\"{label}\" source=\"manual\""), object.track).as_bytes())?;
            }
            file.write_all(b"  </image>\n")?;
        }
        file.write_all(b"</annotations>\n")
    })?;
    Ok(PathBuf::from("annotations.xml"))
}

/// Writes a video: objects of one class and track id are one track, every other object is a track of one frame.
pub(super) fn write_video(target: &Target<'_>) -> Result<PathBuf, DatasetError> {
    target.place_images(|placed| format!("images/frame_{:06}.{}", placed.number, placed.ending))?;
    let collection = target.collection;
    let mut by_id: BTreeMap<(i64, i64), BTreeMap<usize, &Object>> = BTreeMap::new();
    let mut tracks: Vec<(Option<i64>, BTreeMap<usize, &Object>)> = Vec::new();
    for (frame, _, image) in target.images() {
        for object in &image.objects {
            match object.track.map(|track| by_id.entry((track, object.class)).or_default()) {
                Some(track) if !track.contains_key(&frame) => drop(track.insert(frame, object)),
                _ => tracks.push((None, BTreeMap::from([(frame, object)]))),
            }
        }
    }
    let mut taken: BTreeSet<i64> = BTreeSet::new();
    let of_ids = by_id.into_iter().filter(|(_, frames)| !frames.is_empty());
    let of_ids: Vec<_> = of_ids.map(|((id, _), frames)| (Some(id).filter(|&id| taken.insert(id)), frames)).collect();
    let n_frames = collection.images.len();
    let size = collection.images.iter().find_map(|image| image.size).map_or((0, 0), |size| (size.width, size.height));
    let task = format!("<size>{n_frames}</size><original_size><width>{}</width><height>{}</height></original_size>", size.0, size.1);
    target.write_with("annotations.xml", |file| {
        use std::io::Write as _;
        file.write_all(meta(collection, &task).as_bytes())?;
        let mut next = 0;
        for (id, frames) in of_ids.iter().chain(&tracks) {
            let id = id.unwrap_or_else(|| {
                while !taken.insert(next) {
                    next += 1;
                }
                next
            });
            let class = frames.values().next().map_or(0, |object| object.class);
            writeln!(file, "  <track id=\"{id}\" label=\"{}\" source=\"manual\">", xml::text(&collection.class_name(class)))?;
            for (&frame, &object) in frames {
                let place = |frame: usize, outside: u8| format!("frame=\"{frame}\" keyframe=\"1\" outside=\"{outside}\"");
                let image = &collection.images[frame];
                file.write_all(shape_text(image, object, &place(frame, 0), None).as_bytes())?;
                if frame + 1 < n_frames && !frames.contains_key(&(frame + 1)) {
                    file.write_all(shape_text(image, object, &place(frame + 1, 1), None).as_bytes())?;
                }
            }
            file.write_all(b"  </track>\n")?;
        }
        file.write_all(b"</annotations>\n")
    })?;
    Ok(PathBuf::from("annotations.xml"))
}

/// What stands before the images or tracks.
fn meta(collection: &Collection, task: &str) -> String {
    let head = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<annotations>\n  <version>1.1</version>\n";
    let mut text = format!("{head}  <meta><task>{task}<labels>\n");
    let unnamed = collection.unnamed_classes().into_iter().map(|class| collection.class_name(class));
    for name in collection.names.iter().cloned().chain(unnamed) {
        writeln!(text, "    <label><name>{}</name><attributes></attributes></label>", xml::text(&name)).ok();
    }
    text + "  </labels></task></meta>\n"
}

/// A box or polygon with these fields; `track` becomes an attribute.
fn shape_text(image: &ImageRecord, object: &Object, fields: &str, track: Option<i64>) -> String {
    let Some([x1, y1, x2, y2]) = object.pixels(image.size) else { return String::new() };
    let occluded = u8::from(object.is("occluded"));
    let common = format!("{fields} occluded=\"{occluded}\" z_order=\"0\"");
    let (kind, place) = match object.ring(image.size) {
        Some(ring) => {
            let points: Vec<String> = ring.iter().map(|[x, y]| format!("{x},{y}")).collect();
            ("polygon", format!("points=\"{}\"", points.join(";")))
        }
        None => ("box", format!("xtl=\"{x1}\" ytl=\"{y1}\" xbr=\"{x2}\" ybr=\"{y2}\"")),
    };
    let mut text = format!("    <{kind} {common} {place}>\n");
    let mut attributes: Vec<(&str, String)> =
        object.attributes.iter().filter(|(key, _)| key != "occluded").map(|(key, value)| (key.as_str(), value.clone())).collect();
    attributes.extend(track.map(|track| ("track_id", track.to_string())));
    attributes.extend(object.score.map(|score| ("score", score.to_string())));
    for (key, value) in attributes {
        writeln!(text, "      <attribute name=\"{}\">{}</attribute>", xml::text(key), xml::text(&value)).ok();
    }
    text + &format!("    </{kind}>\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, try_read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    #[test]
    fn images_with_their_traps_are_read() {
        let text = r#"<?xml version="1.0"?><!DOCTYPE a [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]><annotations><version>1.1</version>
            <meta><task><size>2</size><labels><label><name>zebra</name></label><label><name>a &amp; b</name></label></labels></task></meta>
            <image id="0" name="sub/a.png" subset="Validation" width="100" height="50">
              <box label="a &amp; b" occluded="1" xtl="-3.5" ytl="4" xbr="120.25" ybr="9" z_order="0"><attribute name="colour">red</attribute></box>
              <box label="zebra" occluded="0" xtl="40" ytl="20" xbr="60" ybr="30" rotation="90"/>
              <polygon label="zebra" points="1,2;5.5,2;3,9"/>
              <polyline label="zebra" points="1,2;5.5,2"/>
              <box label="zebra" xtl="nan" ytl="4" xbr="120.25" ybr="9"/>
            </image><image id="1" name="b.png" width="100" height="50"/></annotations>"#;
        let root = folder(&[("annotations.xml", text)]);
        png(root.path(), "images/sub/a.png", 100, 50);
        let read = read(root.path());
        assert_eq!(read.names, ["zebra", "a & b"]);
        let [a, b] = &read.images[..] else { panic!("{:?}", read.images) };
        assert_eq!((a.split, a.path.is_some(), b.path.is_some(), b.is_labelled, b.objects.len()), (Split::Val, true, false, true, 0));
        assert_eq!((a.objects[0].class, a.objects[0].coords), (1, Coords::Pixels([-3.5, 4.0, 120.25, 9.0])));
        assert!(a.objects[0].is("occluded") && a.objects[0].attribute("colour") == Some("red"));
        let Coords::Pixels(corners) = a.objects[1].coords else { panic!("pixels") };
        assert!(corners.iter().zip([45.0, 15.0, 55.0, 35.0]).all(|(a, b)| (a - b).abs() < 1e-9), "turned about its centre: {corners:?}");
        assert_eq!(a.objects[2].outline, [[[1.0, 2.0], [5.5, 2.0], [3.0, 9.0]]]);
        assert_eq!(read.left_out.len(), 2, "{:?}", read.left_out);
        assert!(read.left_out[1].contains("line 8: box has xtl \"nan\""), "{:?}", read.left_out);
    }

    #[test]
    fn tracks_are_interpolated_and_end_where_they_leave() {
        let key = |frame: u64, x: f64, outside: u8| {
            format!(
                "<box frame=\"{frame}\" xtl=\"{x}\" ytl=\"0\" xbr=\"{}\" ybr=\"10\" outside=\"{outside}\" occluded=\"0\" keyframe=\"1\"/>",
                x + 10.0
            )
        };
        let text = format!(
            "<annotations><meta><task><size>8</size><original_size><width>64</width><height>32</height></original_size></task></meta>\
             <track id=\"3\" label=\"car\">{}{}{}</track><track id=\"4\" label=\"dog\">{}</track></annotations>",
            key(0, 0.0, 0),
            key(4, 20.0, 0),
            key(5, 20.0, 1),
            key(6, 1.0, 0)
        );
        let root = folder(&[("annotations.xml", &text)]);
        for frame in [0, 1, 2, 3, 4, 5, 6, 7] {
            png(root.path(), &format!("images/frame_{frame:06}.png"), 64, 32);
        }
        let read = read(root.path());
        let found: Vec<Vec<(Option<i64>, f64)>> = read
            .images
            .iter()
            .map(|image| {
                image.objects.iter().map(|object| (object.track, object.pixels(None).map_or(-1.0, |corners| corners[0]))).collect()
            })
            .collect();
        let car = |x: f64| vec![(Some(3), x)];
        let dog = vec![(Some(4), 1.0)];
        assert_eq!(found, [car(0.0), car(5.0), car(10.0), car(15.0), car(20.0), vec![], dog.clone(), dog]);
        assert!(read.images.iter().all(|image| image.path.is_some() && image.size == Some(Size::new(64, 32))));

        let far = text.replace("frame=\"5\"", "frame=\"4000000000000\"");
        let root = folder(&[("annotations.xml", &far)]);
        let told = try_read(root.path()).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(told.contains("too many boxes"), "{told}");
    }

    #[test]
    fn broken_files_are_told_with_their_line() {
        let deep = format!("<annotations>\n{}", "<a>".repeat(100_000));
        for (text, reason) in [
            ("<annotations>\n<image name=\"a\">", "ends within <annotations><image>"),
            ("<annotations>\n<image name=\"a\"></track></annotations>", "line 2"),
            ("<annotations>\n<image name=\"&lol;\"/></annotations>", "line 2"),
            (&deep, "nested too deeply"),
        ] {
            let root = folder(&[("annotations.xml", text)]);
            let told = try_read(root.path()).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(told.contains(reason), "{reason}: {told}");
        }
    }
}
