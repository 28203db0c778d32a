//! Pascal VOC: one XML file of pixel boxes for each image, and lists of stems as splits.
//!
//! In:  the bytes of an annotation; a folder `JPEGImages` / `Annotations` / `ImageSets/Main`, or with the usual other names.
//! Out: the objects with their lines; rows with the same verdicts as those of a YOLO label file.
//!
//! Elements are read by name, in any order. A `part` holds a `bndbox` of its own and is no object. Corners may be floats
//! and reversed. Whether corners count from 0 or from 1 is nowhere written: the numbers are kept. `size` is not trusted:
//! boxes become fractions of the true image. The list of classes is nowhere either: all names, sorted.
//!
//! Never writes, never panics on any bytes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use quick_xml::Reader;
use quick_xml::events::Event;
use rayon::prelude::*;

use super::edge;
use super::label::{ClassId, Label, Split};
use super::layout;
use super::open::{Dataset, DatasetError, Format, ImageEntry};
use super::parse::{Dropped, LabelFile, Row, Verdict};
use super::rule::{Fixability, Rule};
use crate::geom::Size;

/// What an annotation says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VocFile {
    /// `filename`: the image, often wrong.
    pub file_name: Option<String>,
    /// `size`, if it is there and not zero.
    pub size: Option<Size>,
    pub objects: Vec<VocObject>,
}

/// One `object`.
#[derive(Clone, Debug, PartialEq)]
pub struct VocObject {
    /// 1-based line of `<object>`.
    pub line: usize,
    pub bytes: Range<usize>,
    pub name: String,
    /// xmin, ymin, xmax, ymax in pixels as written; a missing one or one that is no finite number is the error.
    pub corners: Result<[f64; 4], String>,
    pub difficult: bool,
    pub truncated: bool,
    pub occluded: bool,
}

impl VocObject {
    /// Whether a minimum lies beyond its maximum; such boxes are read with both swapped.
    pub fn reversed(&self) -> bool {
        self.corners.as_ref().is_ok_and(|[x1, y1, x2, y2]| x1 > x2 || y1 > y2)
    }
}

/// Parses an annotation.
///
/// # Errors
/// Line (1-based) and reason when it is no well-formed XML; what stands before is not used then.
pub fn parse_voc(bytes: &[u8]) -> Result<VocFile, (usize, String)> {
    let text = text_of(bytes);
    let mut reader = Reader::from_str(&text);
    let mut lines = LineCounter { text: &text, at: 0, line: 1 };
    let mut file = VocFile::default();
    let mut path: Vec<String> = Vec::new();
    let mut content = String::new();
    let mut fields: HashMap<String, String> = HashMap::new();
    let mut start = (1, 0);
    let (mut width, mut height) = (0.0, 0.0);
    loop {
        let position = reader.buffer_position() as usize;
        let event = reader.read_event().map_err(|error| (lines.line_at(reader.error_position() as usize), error.to_string()))?;
        match event {
            Event::Start(element) => {
                path.push(element.name().as_ref().to_owned());
                content.clear();
                if path.len() == 2 && path[1] == "object" {
                    fields.clear();
                    start = (lines.line_at(position), position);
                }
            }
            Event::End(_) => {
                let value = content.trim();
                match path.iter().skip(1).map(String::as_str).collect::<Vec<_>>()[..] {
                    ["filename"] => file.file_name = Some(value.to_owned()),
                    ["size", "width"] => width = value.parse().unwrap_or(0.0),
                    ["size", "height"] => height = value.parse().unwrap_or(0.0),
                    ["object", field] if field != "bndbox" && field != "part" => {
                        fields.insert(field.to_owned(), value.to_owned());
                    }
                    ["object", "bndbox", field] => {
                        fields.insert(format!("bndbox/{field}"), value.to_owned());
                    }
                    ["object"] => {
                        let end = reader.buffer_position() as usize;
                        file.objects.push(object(start.0, start.1..end, &fields));
                    }
                    _ => {}
                }
                content.clear();
                path.pop();
            }
            Event::Text(part) => content.push_str(&part.xml10_content()),
            Event::CData(part) => content.push_str(&part.xml10_content()),
            Event::GeneralRef(entity) => match entity.resolve_char_ref() {
                Ok(Some(c)) => content.push(c),
                _ => content.push_str(match &*entity.xml10_content() {
                    "lt" => "<",
                    "gt" => ">",
                    "amp" => "&",
                    "apos" => "'",
                    "quot" => "\"",
                    _ => "?",
                }),
            },
            Event::Eof if !path.is_empty() => {
                let open = path.pop().unwrap_or_default();
                return Err((lines.line_at(text.len()), format!("the file ends within <{open}>")));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let side = |value: f64| (value >= 1.0 && value <= f64::from(u32::MAX)).then_some(value as u32);
    file.size = side(width).zip(side(height)).map(|(width, height)| Size::new(width, height));
    Ok(file)
}

fn object(line: usize, bytes: Range<usize>, fields: &HashMap<String, String>) -> VocObject {
    // `1` by the format; other tools write words. Empty and `Unspecified` mean no.
    let flag = |key: &str| fields.get(key).is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes"));
    let corner = |key: &str| match fields.get(&format!("bndbox/{key}")) {
        None => Err(format!("has no {key}")),
        Some(text) => text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
            let text: String = text.chars().take(24).collect();
            format!("{key} is {text:?}, expected a number")
        }),
    };
    let corners = (|| Ok([corner("xmin")?, corner("ymin")?, corner("xmax")?, corner("ymax")?]))();
    VocObject {
        line,
        bytes,
        name: fields.get("name").cloned().unwrap_or_default(),
        corners,
        difficult: flag("difficult"),
        truncated: flag("truncated"),
        occluded: flag("occluded"),
    }
}

/// The objects as rows, with the verdicts that YOLO rows get. Nothing here can be mended by `fix`.
///
/// `image_size` is the true size; `None` falls back to what the annotation says.
pub fn rows(file: &VocFile, names: &[String], image_size: Option<Size>) -> LabelFile {
    let mut seen: HashMap<(ClassId, [u32; 4]), usize> = HashMap::new();
    let rows = file.objects.iter().enumerate().map(|(index, object)| {
        let mut verdict = judge(object, names, image_size.or(file.size));
        if let Some(Label { class, bbox }) = verdict.label() {
            let first = *seen.entry((class, [bbox.cx, bbox.cy, bbox.w, bbox.h].map(f32::to_bits))).or_insert(index);
            if first != index {
                let reason = format!("the same class and box as the object in line {}", file.objects[first].line);
                verdict = Verdict::Dropped(Dropped {
                    class: Some(class),
                    bbox: Some(bbox),
                    same_as: Some(first),
                    ..Dropped::new(Rule::DuplicateRow, Fixability::Ask, reason)
                });
            }
        }
        Row { line: object.line, bytes: object.bytes.clone(), verdict, polygon: false, n_points: 0 }
    });
    LabelFile { rows: rows.collect(), ..LabelFile::default() }
}

fn judge(object: &VocObject, names: &[String], size: Option<Size>) -> Verdict {
    let dropped = |rule, reason| Verdict::Dropped(Dropped::new(rule, Fixability::Ask, reason));
    let Some(class) = names.iter().position(|name| *name == object.name) else {
        return dropped(Rule::ClassOutsideNames, format!("class {:?} is not among the dataset's names", object.name));
    };
    let class = ClassId(class as u32);
    let [x1, y1, x2, y2] = match &object.corners {
        Ok(corners) => *corners,
        Err(reason) => return dropped(Rule::NotANumber, format!("bndbox {reason}")),
    };
    let Some(size) = size else {
        return dropped(Rule::OutOfRange, "the image's size is not known, so that pixels cannot become fractions".to_owned());
    };
    let (x1, y1, x2, y2) = (x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2));
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let edges = [x1 / width, y1 / height, x2 / width, y2 / height];
    let written = Label { class, bbox: edge::xywhn_from_edges(edges) };
    let dropped = |rule, reason| {
        let (class, bbox) = (Some(class), Some(written.bbox));
        Verdict::Dropped(Dropped { class, bbox, ..Dropped::new(rule, Fixability::Ask, reason) })
    };
    if written.bbox.w == 0.0 || written.bbox.h == 0.0 {
        return dropped(Rule::ZeroSize, format!("width {}, height {} pixels", x2 - x1, y2 - y1));
    }
    if edges.iter().all(|edge| (-edge::EDGE_EPSILON..=1.0 + edge::EDGE_EPSILON).contains(edge)) {
        return Verdict::Used(written);
    }
    match edge::clamp(edges, Some(size)) {
        Err(reason) => dropped(Rule::OutOfRange, reason),
        Ok((inside, spill)) => Verdict::Clamped { written, clamped: Label { class, bbox: edge::xywhn_from_edges(inside) }, spill },
    }
}

/// Where the parts of a Pascal VOC folder are.
pub(super) struct VocFolder {
    images: PathBuf,
    annotations: PathBuf,
    sets: Option<PathBuf>,
}

impl VocFolder {
    /// Recognises the layout: annotations that hold XML, and a folder of images beside them.
    pub(super) fn find(root: &Path) -> Option<Self> {
        let folders: Vec<PathBuf> =
            std::fs::read_dir(root).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        let named = |name: &str| folders.iter().find(|path| path.file_name().is_some_and(|found| found.eq_ignore_ascii_case(name)));
        let annotations = named("Annotations")?.clone();
        let has_xml = std::fs::read_dir(&annotations).ok()?.flatten().any(|entry| is_xml(&entry.path()));
        if !has_xml {
            return None;
        }
        let images = named("JPEGImages").or_else(|| named("images"))?.clone();
        let sets = named("ImageSets").map(|sets| sets.join("Main")).filter(|sets| sets.is_dir());
        Some(Self { images, annotations, sets })
    }

    /// Opens the folder: images by split, annotations by stem, names from all annotations.
    pub(super) fn open(self, root: PathBuf) -> Result<Dataset, DatasetError> {
        let mut notes = Vec::new();
        let mut by_stem: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
        for image in layout::images_under(&self.images, &mut notes)? {
            by_stem.entry(image.file_stem().unwrap_or_default().to_owned()).or_default().push(image);
        }
        let mut annotations: Vec<PathBuf> = layout::files_under(&self.annotations)?;
        annotations.retain(|path| is_xml(path));
        let read: Vec<(PathBuf, Option<VocFile>)> = annotations
            .into_par_iter()
            .map(|path| {
                let file = std::fs::read(&path).ok().and_then(|bytes| parse_voc(&bytes).ok());
                (path, file)
            })
            .collect();
        let names: BTreeSet<String> = read
            .iter()
            .filter_map(|(_, file)| file.as_ref())
            .flat_map(|file| file.objects.iter().map(|object| object.name.clone()))
            .collect();
        let names = order_names(&root, names, &mut notes);

        // By the annotation's stem first; `filename` only for annotations that no image answers to.
        let mut label_of: HashMap<OsString, PathBuf> = HashMap::new();
        for (path, file) in &read {
            let stem = path.file_stem().unwrap_or_default().to_owned();
            let stem = if by_stem.contains_key(&stem) {
                stem
            } else {
                let named =
                    file.as_ref().and_then(|file| file.file_name.as_deref()).map(|name| Path::new(name).file_stem().unwrap_or_default());
                match named.filter(|name| by_stem.contains_key(*name) && !label_of.contains_key(*name)) {
                    Some(name) => name.to_owned(),
                    None => continue,
                }
            };
            label_of.insert(stem, path.clone());
        }

        let split_of = self.splits(&mut notes);
        let mut images = Vec::new();
        let mut n_left_out = 0;
        for (stem, paths) in by_stem {
            let splits: Vec<Split> = match &split_of {
                None => vec![Split::Train],
                Some(splits) => {
                    Split::ALL.into_iter().filter(|split| splits.get(split).is_some_and(|stems| stems.contains(&stem))).collect()
                }
            };
            n_left_out += usize::from(splits.is_empty()) * paths.len();
            let label_path = label_of.get(&stem).cloned().unwrap_or_else(|| self.annotations.join(&stem).with_extension("xml"));
            for split in splits {
                images.extend(paths.iter().map(|path| ImageEntry { path: path.clone(), label_path: label_path.clone(), split }));
            }
        }
        if n_left_out > 0 {
            notes.push(format!("{n_left_out} images are in no list of ImageSets/Main and are left out"));
        }
        if images.is_empty() {
            return Err(DatasetError::NoImages { path: self.images.display().to_string() });
        }
        images.sort_by(|a, b| (a.split, &a.path).cmp(&(b.split, &b.path)));
        Ok(Dataset { source: root.clone(), root, format: Format::PascalVoc, names, images, notes, n_keypoint_fields: None, merged: None })
    }

    /// The stems of each split; `None` without usable lists.
    fn splits(&self, notes: &mut Vec<String>) -> Option<HashMap<Split, BTreeSet<OsString>>> {
        let sets = self.sets.as_ref()?;
        let read = |name: &str| -> Option<BTreeSet<OsString>> {
            let bytes = std::fs::read(sets.join(name)).ok()?;
            // A line is a stem, in some lists followed by a flag; some tools write file names.
            let stems = layout::text_lines(&bytes).filter_map(|line| {
                let line = line.to_str().map_or(line.clone(), |line| {
                    let mut words = line.rsplitn(2, char::is_whitespace);
                    let last = words.next().unwrap_or_default();
                    let stem = if matches!(last, "1" | "-1" | "0") { words.next().unwrap_or(last).trim_end() } else { line };
                    OsString::from(stem)
                });
                let path = Path::new(&line);
                let ends_like_image = crate::media::decode::is_image_path(path);
                if ends_like_image { path.file_stem() } else { path.file_name() }.map(OsString::from)
            });
            Some(stems.collect())
        };
        let mut splits = HashMap::new();
        for split in Split::ALL {
            if let Some(stems) = read(&format!("{}.txt", split.name())) {
                splits.insert(split, stems);
            }
        }
        if !splits.contains_key(&Split::Train)
            && let Some(mut stems) = read("trainval.txt")
        {
            for split in [Split::Val, Split::Test] {
                stems.retain(|stem| !splits.get(&split).is_some_and(|others| others.contains(stem)));
            }
            notes.push("ImageSets/Main has no train.txt; trainval.txt is used for training".to_owned());
            splits.insert(Split::Train, stems);
        }
        (!splits.is_empty()).then_some(splits)
    }
}

/// Names in the order of a `classes.txt` or `labels.txt` beside the folders, if there is one; the others sorted.
fn order_names(root: &Path, mut names: BTreeSet<String>, notes: &mut Vec<String>) -> Vec<String> {
    let listed = ["classes.txt", "labels.txt"].iter().find_map(|file| layout::names_in(&root.join(file)));
    let mut ordered = listed.unwrap_or_default();
    for name in &ordered {
        names.remove(name);
    }
    if ordered.is_empty() {
        notes.push("Pascal VOC has no list of classes; they are in alphabetical order".to_owned());
    } else if !names.is_empty() {
        notes.push(format!("{} classes of the annotations are not in the list of classes; they come last", names.len()));
    }
    ordered.extend(names);
    ordered
}

fn is_xml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"))
}

/// The file as text: UTF-8, UTF-16 with a byte-order mark, else Latin-1 (in which any byte is a letter).
fn text_of(bytes: &[u8]) -> String {
    let utf16 = |from: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].chunks_exact(2).map(|pair| from([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xFF, 0xFE, ..] => utf16(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => utf16(u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
            Err(_) => bytes.iter().map(|&b| char::from(b)).collect(),
        },
    }
}

/// Line numbers of growing byte positions, counted once.
struct LineCounter<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl LineCounter<'_> {
    fn line_at(&mut self, position: usize) -> usize {
        let position = position.clamp(self.at, self.text.len());
        self.line += self.text.as_bytes()[self.at..position].split(|&b| b == b'\n').count() - 1;
        self.at = position;
        self.line
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;
    use crate::geom::Xywhn;

    fn annotation(objects: &str) -> String {
        format!("<annotation>\n<filename>a.jpg</filename>\n<size><width>0</width><height>0</height></size>\n{objects}</annotation>\n")
    }

    fn bndbox(corners: [&str; 4]) -> String {
        let [x1, y1, x2, y2] = corners;
        format!("<bndbox><xmax>{x2}</xmax><xmin>{x1}</xmin><ymin>{y1}</ymin><ymax>{y2}</ymax></bndbox>")
    }

    fn verdicts(objects: &str) -> Vec<Verdict> {
        let file = parse_voc(annotation(objects).as_bytes()).unwrap();
        rows(&file, &["cat".to_owned(), "dog".to_owned()], Some(Size::new(100, 50))).rows.into_iter().map(|row| row.verdict).collect()
    }

    #[test]
    fn objects_are_read_by_name_and_parts_are_not_objects() {
        let part = format!("<part><name>tail</name>{}</part>", bndbox(["1", "1", "2", "2"]));
        let text = annotation(&format!(
            "<object><difficult>1</difficult>{}{part}<name> d&amp;g </name><truncated>Unspecified</truncated></object>\n<object>\n<name>cat</name></object>\n",
            bndbox(["10", "5.5", " 50 ", "30"])
        ));
        let file = parse_voc(text.as_bytes()).unwrap();
        assert_eq!((file.file_name.as_deref(), file.size, file.objects.len()), (Some("a.jpg"), None, 2));
        let first = &file.objects[0];
        assert_eq!((first.name.as_str(), first.line, first.difficult, first.truncated), ("d&g", 4, true, false));
        assert_eq!(first.corners, Ok([10.0, 5.5, 50.0, 30.0]));
        assert_eq!(file.objects[1].corners, Err("has no xmin".to_owned()));
        assert_eq!(file.objects[1].line, 5);
        assert!(text[first.bytes.clone()].starts_with("<object>") && text[first.bytes.clone()].ends_with("</object>"));
    }

    #[test]
    fn boxes_become_fractions_of_the_true_image() {
        let object = |corners| format!("<object><name>dog</name>{}</object>", bndbox(corners));
        let label = |cx, cy, w, h| Label { class: ClassId(1), bbox: Xywhn { cx, cy, w, h } };
        assert_eq!(verdicts(&object(["10", "5", "50", "30"])), [Verdict::Used(label(0.3, 0.35, 0.4, 0.5))]);
        assert_eq!(verdicts(&object(["50", "30", "10", "5"])), [Verdict::Used(label(0.3, 0.35, 0.4, 0.5))], "reversed");
        let cut = &verdicts(&object(["60", "10", "120", "40"]))[0];
        assert!(matches!(cut, Verdict::Clamped { clamped, spill: false, .. } if *clamped == label(0.8, 0.5, 0.4, 0.6)), "{cut:?}");
    }

    #[test]
    fn bad_objects_are_dropped_with_a_reason() {
        let object = |name: &str, corners| format!("<object><name>{name}</name>{}</object>\n", bndbox(corners));
        for (text, rule) in [
            (object("cat", ["10", "5", "10", "30"]), Rule::ZeroSize),
            (object("cow", ["10", "5", "20", "30"]), Rule::ClassOutsideNames),
            (object("cat", ["10", "x", "20", "30"]), Rule::NotANumber),
            (object("cat", ["NaN", "1", "20", "30"]), Rule::NotANumber),
            (object("cat", ["200", "1", "220", "30"]), Rule::OutOfRange),
            (object("cat", ["1", "1", "20", "30"]).repeat(2), Rule::DuplicateRow),
        ] {
            let found = verdicts(&text);
            assert!(matches!(found.last().unwrap(), Verdict::Dropped(dropped) if dropped.rule == rule), "{rule:?}: {found:?}");
        }
    }

    #[test]
    fn broken_xml_is_told_with_its_line() {
        let (line, reason) = parse_voc(b"<annotation>\n<object>\n").unwrap_err();
        assert_eq!((line, reason.as_str()), (3, "the file ends within <object>"));
        assert_eq!(parse_voc(b"<annotation>\n<a></b>\n</annotation>").unwrap_err().0, 2);
        assert_eq!(parse_voc(b"").unwrap(), VocFile::default());
    }

    #[test]
    fn latin_1_and_utf_16_names_are_read() {
        let text = annotation("<object><name>K\u{e4}fer</name></object>");
        let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
        let utf16: Vec<u8> = [0xFF, 0xFE].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
        for bytes in [text.as_bytes(), &latin, &utf16] {
            assert_eq!(parse_voc(bytes).unwrap().objects[0].name, "Käfer");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[<>/a-c&;# \n!\\[\\]?-]{0,80}") {
            let _ = parse_voc(&bytes);
            let _ = parse_voc(format!("<annotation><object>{text}</object></annotation>").as_bytes());
        }
    }
}
