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
use super::voc;
use crate::geom::{Size, Xywhn};

/// An object and the places of what may change in it.
#[derive(Default)]
struct Object {
    bytes: Range<usize>,
    /// What its name element holds.
    name: Option<Range<usize>>,
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
        let object = |row: usize| objects.get(row).ok_or("holds objects that are not read in order");
        let of_object = match label {
            Some(label) => set_object(bytes, object(row)?, shown, label, names, size)?,
            None => vec![remove_object(bytes, object(row)?)],
        };
        if !of_object.is_empty() {
            // Else an object that repeats this one would be the label that was there before.
            for repeat in file.repeats(row) {
                splices.push(remove_object(bytes, object(repeat)?));
            }
        }
        splices.extend(of_object);
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
    let file = voc::parse_voc(bytes).map_err(|(line, reason)| format!("is broken XML in line {line}: {reason}"))?;
    if file.objects.len() != objects.len() {
        return Err("holds objects that are not read in order".to_owned());
    }
    // However the name is written, such as in CDATA.
    let of_name = objects.iter().zip(&file.objects).filter(|(_, read)| read.name == name);
    let splices = of_name.map(|(object, _)| match new {
        Some(new) => set_name(bytes, object, new),
        None => Ok(remove_object(bytes, object)),
    });
    splices.collect()
}

/// Gives an object another name.
fn set_name(bytes: &[u8], object: &Object, name: &str) -> Result<Splice, String> {
    let range = object.name.clone().ok_or("holds an object without a name, which cannot get another one")?;
    Ok(Splice::new(range.start, &bytes[range], escape::escape(name).as_bytes()))
}

/// How many objects have this name.
pub(super) fn count(bytes: &[u8], name: &str) -> usize {
    voc::parse_voc(bytes).map_or(0, |file| file.objects.iter().filter(|object| object.name == name).count())
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
                    ["object", "name"] => object.name = Some(range),
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

fn set_object(bytes: &[u8], object: &Object, shown: Label, label: Label, names: &[String], size: Size) -> Result<Vec<Splice>, String> {
    let mut splices = Vec::new();
    if label.class != shown.class {
        splices.push(set_name(bytes, object, class_name(names, label.class))?);
    }
    if label.bbox == shown.bbox {
        return Ok(splices);
    }
    let (old, new) = (pixels(shown.bbox, size), pixels(label.bbox, size));
    let has_changed = [0, 1, 2, 3].map(|corner| (old[corner] - new[corner]).abs() > 1e-3);
    let written = [0, 1, 2, 3].map(|corner| parse::number(&bytes[object.corners[corner].clone()]).unwrap_or(0.0));
    for (corner, range) in object.corners.iter().enumerate() {
        let text = &bytes[range.clone()];
        let is_whole = text.iter().all(u8::is_ascii_digit);
        let value = corner_text(new[corner], is_whole);
        let axis = corner % 2;
        // A minimum beyond its maximum is read with both swapped: then only both together say what is meant.
        let is_reversed = written[axis] > written[axis + 2];
        let has_changed = if is_reversed { has_changed[axis] || has_changed[axis + 2] } else { has_changed[corner] };
        if has_changed && value.as_bytes() != text {
            splices.push(Splice::new(range.start, text, value));
        }
    }
    Ok(splices)
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
    fn repeats_of_an_object_that_changes_or_goes_go() {
        let object = "<object><name>cat</name><bndbox><xmin>50</xmin><ymin>5</ymin><xmax>70</xmax><ymax>25</ymax></bndbox></object>";
        let text = format!("<annotation>{object}\n{object}{object}\n<object/></annotation>");
        assert_eq!(edited(&text, &[LabelOp::Remove { index: 0 }]), "<annotation>\n<object/></annotation>");
        let shown = read(&text).labels().next().unwrap();
        let dog = LabelOp::Set { index: 0, label: Label { class: ClassId(0), ..shown } };
        assert_eq!(read(&edited(&text, &[dog])).rows.len(), 1);
        assert_eq!(edited(&text, &[LabelOp::Set { index: 0, label: shown }]), text);
    }

    #[test]
    fn corners_that_are_reversed_are_written_in_order() {
        let text = "<annotation><object><name>cat</name><bndbox><xmin>50</xmin><ymin>5</ymin><xmax>10</xmax><ymax>25</ymax></bndbox></object></annotation>";
        let wanted = label(1, [10.0, 5.0, 60.0, 25.0]);
        let after = edited(text, &[LabelOp::Set { index: 0, label: wanted }]);
        assert_eq!(after, text.replace(">10<", ">60<").replace(">50<", ">10<"));
        assert_eq!(read(&after).labels().collect::<Vec<_>>(), [wanted]);
    }

    #[test]
    fn names_are_found_however_they_are_written_and_none_is_made_up() {
        let text = "<annotation><object><name><![CDATA[d&g]]></name></object><object><name>d&#38;g</name></object></annotation>";
        let splices = renamed(text.as_bytes(), "d&g", Some("a<b")).unwrap();
        let after = splice::apply(text.as_bytes(), &splices).unwrap();
        let object = "<object><name>a&lt;b</name></object>";
        assert_eq!(String::from_utf8(after).unwrap(), format!("<annotation>{object}{object}</annotation>"));
        let nameless = b"<annotation><object><bndbox><xmin>1</xmin></bndbox></object></annotation>";
        assert!(renamed(nameless, "", Some("x")).unwrap_err().contains("without a name"));
        assert_eq!(renamed(nameless, "", None).unwrap().len(), 1);
    }

    #[test]
    fn other_encodings_are_refused() {
        let latin: Vec<u8> = XML.replace("dog", "K\u{e4}fer").chars().map(|c| c as u8).collect();
        assert!(renamed(&latin, "K\u{e4}fer", Some("x")).unwrap_err().contains("UTF-8"));
        assert_eq!(renamed(&latin, "fox", Some("x")), Ok(vec![]));
    }
}
