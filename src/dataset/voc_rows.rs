//! Which bytes of a Pascal VOC annotation does an edit of its labels change?
//!
//! In:  the bytes of the XML, its objects as rows, and operations on the labels that training uses, counted from 0.
//! Out: splices that touch nothing but names and corners of the objects in question, or whole objects that come or go.
//!
//! Corners are pixels. Where a corner is written as a whole number, a whole number replaces it, since many readers take nothing else; so
//! what is drawn may end half a pixel aside. Only UTF-8 is edited: in other encodings places in the text are not places in the file.

use std::fmt::Write as _;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape;
use quick_xml::events::Event;

use super::edit::LabelOp;
use super::label::{ClassId, Label};
use super::parse::{self, LabelFile};
use super::splice::Splice;
use crate::geom::{Size, Xywhn};

/// An object and the places of what may change in it.
#[derive(Default)]
struct Object {
    bytes: Range<usize>,
    name: Range<usize>,
    /// xmin, ymin, xmax, ymax; empty where it has none.
    corners: [Range<usize>; 4],
}

const CORNERS: [&str; 4] = ["xmin", "ymin", "xmax", "ymax"];

/// What an annotation without a file is made from.
pub(super) struct NewFile<'a> {
    pub(super) image_name: &'a str,
    pub(super) size: Size,
}

/// The splices of operations; `None` when an index names no label, or one is named twice.
///
/// # Errors
/// Why the file cannot be edited.
pub(super) fn splices(
    bytes: &[u8],
    file: &LabelFile,
    ops: &[LabelOp],
    names: &[String],
    new_file: &NewFile<'_>,
) -> Result<Option<Vec<Splice>>, String> {
    let size = new_file.size;
    if bytes.trim_ascii().is_empty() {
        let added: Vec<Label> = ops.iter().filter_map(|op| if let LabelOp::Add(label) = op { Some(*label) } else { None }).collect();
        return Ok((added.len() == ops.len()).then(|| vec![Splice::new(0, bytes, new_text(&added, names, new_file))]));
    }
    let (objects, end) = objects(bytes)?;
    let used: Vec<(usize, Label)> = file.rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.verdict.label()?))).collect();
    let mut splices = Vec::new();
    let mut touched = Vec::new();
    let mut added = String::new();
    let first = objects.first().map(|object| object.bytes.start);
    let line_end = if bytes.windows(2).any(|pair| pair == b"\r\n") { "\r\n" } else { "\n" };
    for op in ops {
        let (index, label) = match *op {
            LabelOp::Add(label) => {
                let indent = first.map_or("  ", |first| indent_before(bytes, first));
                added += &object_text(&label, names, size, indent, line_end);
                continue;
            }
            LabelOp::Set { index, label } => (index, Some(label)),
            LabelOp::Remove { index } => (index, None),
        };
        if touched.contains(&index) {
            return Ok(None);
        }
        touched.push(index);
        let Some(&(row, shown)) = used.get(index) else { return Ok(None) };
        let object = objects.get(row).ok_or("holds objects that are not read in order")?;
        match label {
            Some(label) => set_object(bytes, object, shown, label, names, size, &mut splices),
            None => splices.push(remove_object(bytes, object)),
        }
    }
    if !added.is_empty() {
        let place = objects.last().map_or(end, |object| object.bytes.end);
        // Behind the last object the new ones begin a line; before the end of the annotation they end one.
        let text = if objects.is_empty() { format!("{}{line_end}", added.trim_start_matches(['\r', '\n'])) } else { added };
        splices.push(Splice::new(place, b"", text));
    }
    splices.sort_by_key(|splice| splice.at);
    Ok(Some(splices))
}

/// The splices that give all objects with this name another one, or take them away.
///
/// # Errors
/// Why the file cannot be edited, if it has such an object.
pub(super) fn renamed(bytes: &[u8], name: &str, new: Option<&str>) -> Result<Vec<Splice>, String> {
    if count(bytes, name) == 0 {
        return Ok(Vec::new());
    }
    let (objects, _) = objects(bytes)?;
    let of_name = objects.iter().filter(|object| {
        let text = std::str::from_utf8(&bytes[object.name.clone()]).unwrap_or_default();
        escape::unescape(text).is_ok_and(|text| text.trim() == name)
    });
    let splices = of_name.map(|object| match new {
        Some(new) => Splice::new(object.name.start, &bytes[object.name.clone()], escape::escape(new).as_bytes()),
        None => remove_object(bytes, object),
    });
    Ok(splices.collect())
}

/// How many objects have this name.
pub(super) fn count(bytes: &[u8], name: &str) -> usize {
    super::voc::parse_voc(bytes).map_or(0, |file| file.objects.iter().filter(|object| object.name == name).count())
}

/// The objects with their places, and where the annotation's end tag stands.
fn objects(bytes: &[u8]) -> Result<(Vec<Object>, usize), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8, in which alone annotations are edited".to_owned())?;
    let offset = if bytes.starts_with(parse::BOM) { parse::BOM.len() } else { 0 };
    let mut reader = Reader::from_str(&text[offset..]);
    let mut path: Vec<String> = Vec::new();
    let mut content = 0;
    let mut object = Object::default();
    let mut objects = Vec::new();
    loop {
        let position = reader.buffer_position() as usize + offset;
        let event = reader.read_event().map_err(|error| format!("is broken XML: {error}"))?;
        match event {
            Event::Start(element) => {
                path.push(element.name().as_ref().to_owned());
                content = reader.buffer_position() as usize + offset;
                if path.len() == 2 && path[1] == "object" {
                    object = Object { bytes: position..position, ..Object::default() };
                }
            }
            Event::End(_) => {
                let range = trimmed(text, content..position);
                match path.iter().skip(1).map(String::as_str).collect::<Vec<_>>()[..] {
                    ["object", "name"] => object.name = range,
                    ["object", "bndbox", field] => {
                        if let Some(corner) = CORNERS.iter().position(|corner| *corner == field) {
                            object.corners[corner] = range;
                        }
                    }
                    ["object"] => {
                        object.bytes.end = reader.buffer_position() as usize + offset;
                        objects.push(std::mem::take(&mut object));
                    }
                    [] => return Ok((objects, position)),
                    _ => {}
                }
                path.pop();
                content = reader.buffer_position() as usize + offset;
            }
            Event::Eof => return Err("has no <annotation>".to_owned()),
            _ => {}
        }
    }
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = text.get(range.clone()).unwrap_or_default();
    let start = range.start + part.len() - part.trim_start().len();
    start..(range.start + part.trim_end().len()).max(start)
}

/// xmin, ymin, xmax, ymax in pixels.
fn pixels(bbox: Xywhn, size: Size) -> [f64; 4] {
    let [cx, cy, w, h] = [bbox.cx, bbox.cy, bbox.w, bbox.h].map(f64::from);
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    [(cx - w / 2.0) * width, (cy - h / 2.0) * height, (cx + w / 2.0) * width, (cy + h / 2.0) * height]
}

/// A corner as it is written: whole where it was, else to a hundredth of a pixel.
fn corner_text(value: f64, is_whole: bool) -> String {
    if is_whole { format!("{:.0}", value.round().max(0.0)) } else { format!("{}", ((value * 100.0).round() / 100.0).max(0.0)) }
}

fn set_object(bytes: &[u8], object: &Object, shown: Label, label: Label, names: &[String], size: Size, splices: &mut Vec<Splice>) {
    if label.class != shown.class {
        let name = escape::escape(class_name(names, label.class)).into_owned();
        splices.push(Splice::new(object.name.start, &bytes[object.name.clone()], name));
    }
    if label.bbox == shown.bbox {
        return;
    }
    let (old, new) = (pixels(shown.bbox, size), pixels(label.bbox, size));
    for (axis, range) in object.corners.iter().enumerate() {
        let text = &bytes[range.clone()];
        let is_whole = text.iter().all(u8::is_ascii_digit);
        let value = corner_text(new[axis], is_whole);
        if (old[axis] - new[axis]).abs() > 1e-3 && value.as_bytes() != text {
            splices.push(Splice::new(range.start, text, value));
        }
    }
}

/// An object with the line that it begins.
fn remove_object(bytes: &[u8], object: &Object) -> Splice {
    let mut start = object.bytes.start - indent_before(bytes, object.bytes.start).len();
    if bytes[..start].ends_with(b"\n") {
        start -= if bytes[..start].ends_with(b"\r\n") { 2 } else { 1 };
    } else {
        start = object.bytes.start;
    }
    Splice::new(start, &bytes[start..object.bytes.end], "")
}

/// The blanks before a place, back to its line's beginning.
fn indent_before(bytes: &[u8], place: usize) -> &str {
    let line = bytes[..place].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let indent = &bytes[line..place];
    if indent.iter().all(|byte| matches!(byte, b' ' | b'\t')) { std::str::from_utf8(indent).unwrap_or_default() } else { "" }
}

fn class_name(names: &[String], class: ClassId) -> &str {
    names.get(class.0 as usize).map_or("", String::as_str)
}

/// An object as a new one begins its line.
fn object_text(label: &Label, names: &[String], size: Size, indent: &str, line_end: &str) -> String {
    let deeper =
        if indent.starts_with('\t') { format!("{indent}\t") } else { format!("{indent}{}", if indent.is_empty() { "  " } else { indent }) };
    let corners = pixels(label.bbox, size).map(|value| corner_text(value, true));
    let mut bndbox = String::new();
    for (field, value) in CORNERS.iter().zip(corners) {
        write!(bndbox, "<{field}>{value}</{field}>").expect("writing to a string cannot fail");
    }
    let name = escape::escape(class_name(names, label.class));
    let lines = [
        format!("{indent}<object>"),
        format!("{deeper}<name>{name}</name>"),
        format!("{deeper}<pose>Unspecified</pose>"),
        format!("{deeper}<truncated>0</truncated>"),
        format!("{deeper}<difficult>0</difficult>"),
        format!("{deeper}<bndbox>{bndbox}</bndbox>"),
        format!("{indent}</object>"),
    ];
    lines.iter().flat_map(|line| [line_end, line]).collect()
}

fn new_text(labels: &[Label], names: &[String], new_file: &NewFile<'_>) -> String {
    let NewFile { image_name, size } = new_file;
    let objects: String = labels.iter().map(|label| object_text(label, names, *size, "  ", "\n")).collect();
    format!(
        "<annotation>\n  <filename>{}</filename>\n  <size><width>{}</width><height>{}</height><depth>3</depth></size>{objects}\n</annotation>\n",
        escape::escape(*image_name),
        size.width,
        size.height
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::edit::ImageEdit;
    use super::super::splice;
    use super::super::voc;
    use super::*;

    const SIZE: Size = Size { width: 100, height: 50 };
    const XML: &str = "<annotation>\n\t<filename>a.jpg</filename>\n\t<object>\n\t\t<name> dog </name><!-- mine -->\n\t\t<bndbox><ymin>5</ymin><xmin>10</xmin>\n\t\t<xmax>30.5</xmax><ymax>25</ymax></bndbox>\n\t</object>\n\t<object>\n\t\t<name>none</name>\n\t</object>\n\t<object><name>cat</name><bndbox><xmin>50</xmin><ymin>5</ymin><xmax>70</xmax><ymax>25</ymax></bndbox></object>\n</annotation>";

    fn names() -> Vec<String> {
        ["dog", "cat", "<fox>"].map(str::to_owned).to_vec()
    }

    fn read(text: &str) -> LabelFile {
        if text.is_empty() { LabelFile::default() } else { voc::rows(&voc::parse_voc(text.as_bytes()).unwrap(), &names(), Some(SIZE)) }
    }

    fn edited(text: &str, ops: &[LabelOp]) -> String {
        let splices = splices(text.as_bytes(), &read(text), ops, &names(), &NewFile { image_name: "a.jpg", size: SIZE }).unwrap().unwrap();
        let after = splice::apply(text.as_bytes(), &splices).unwrap();
        assert_eq!(splice::apply(&after, &splice::inverse(&splices)).unwrap(), text.as_bytes());
        String::from_utf8(after).unwrap()
    }

    fn label(class: u32, [x1, y1, x2, y2]: [f32; 4]) -> Label {
        let bbox = Xywhn { cx: (x1 + x2) / 200.0, cy: (y1 + y2) / 100.0, w: (x2 - x1) / 100.0, h: (y2 - y1) / 50.0 };
        Label { class: ClassId(class), bbox }
    }

    #[test]
    fn only_names_and_corners_of_the_object_change() {
        let shown: Vec<Label> = read(XML).labels().collect();
        let set = |index: usize, label| [LabelOp::Set { index, label }];
        assert_eq!(edited(XML, &set(1, Label { class: ClassId(2), ..shown[1] })), XML.replace("cat", "&lt;fox&gt;"));
        assert_eq!(edited(XML, &set(0, label(0, [12.3, 5.0, 40.25, 25.0]))), XML.replace(">10<", ">12<").replace("30.5", "40.25"));
        assert_eq!(edited(XML, &set(0, shown[0])), XML);
    }

    #[test]
    fn objects_come_and_go_in_the_style_of_the_file() {
        let added = edited(XML, &[LabelOp::Add(label(2, [0.0, 0.0, 20.0, 10.0]))]);
        assert!(
            added.contains("</object>\n\t<object>\n\t\t<name>&lt;fox&gt;</name>\n") && added.ends_with("\n\t</object>\n</annotation>"),
            "{added}"
        );
        let labels: Vec<Label> = read(&added).labels().collect();
        assert_eq!(labels[2], label(2, [0.0, 0.0, 20.0, 10.0]));
        let both = [LabelOp::Remove { index: 0 }, LabelOp::Remove { index: 1 }];
        let wanted = ImageEdit::new(0, both.to_vec()).applied(&labels[..2]).unwrap();
        let removed = edited(XML, &both);
        assert_eq!(read(&removed).labels().collect::<Vec<_>>(), wanted);
        assert!(removed.contains("a.jpg</filename>\n\t<object>\n\t\t<name>none"), "{removed}");
        let empty = "<annotation>\n</annotation>\n";
        assert_eq!(read(&edited(empty, &[LabelOp::Add(labels[2])])).labels().collect::<Vec<_>>(), [labels[2]]);
        assert_eq!(read(&edited("", &[LabelOp::Add(labels[2])])).labels().collect::<Vec<_>>(), [labels[2]]);
    }

    #[test]
    fn other_encodings_are_refused() {
        let latin: Vec<u8> = XML.replace("dog", "K\u{e4}fer").chars().map(|c| c as u8).collect();
        assert!(renamed(&latin, "K\u{e4}fer", Some("x")).unwrap_err().contains("UTF-8"));
        assert_eq!(renamed(&latin, "fox", Some("x")), Ok(vec![]));
    }
}
