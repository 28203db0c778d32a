//! The one parser of YOLO label files: each row with its place and its verdict.
//!
//! In:  the bytes of a `.txt` label file, whatever they are; the number of classes; on demand the image's size.
//! Out: each row that is not blank, with line number, byte range, and whether training uses it, uses it cut at the
//!      image's edge, or drops it, with the reason.
//!
//! A row is `class cx cy w h` as fractions of the image, or a polygon `class x1 y1 x2 y2 x3 y3 …` whose enclosing box
//! counts. Each row is judged alone: a bad row never drops its neighbours, and a box row beside polygons stays a box.
//! A byte-order mark, CRLF, lone CR, tabs, runs of blanks and blank lines are fine, as is an integral float as class.
//! A row that plainly means something in another spelling (decimal commas, a class by its name) is dropped with the text that
//! would be used (`mend.rs`). Never writes, never panics, never looks at pixels. Checks, fixes, training and conversion all read
//! through here.
//!
//! Source: the label format of the published YOLO trainers. The thresholds at the image's edge are in `edge.rs`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use super::edge::{self, EDGE_EPSILON, xywhn_from_edges};
use super::label::{ClassId, Label, Polygon};
use super::mend;
use super::mend::Spelling;
use super::rule::{Fixability, Rule};
use crate::geom::Size;
use crate::geom::Xywhn;

/// How the rows of a dataset are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseOptions {
    pub n_classes: usize,
    /// For pose datasets: numbers that follow the box in a row; such rows are boxes, not polygons.
    pub n_keypoint_fields: Option<usize>,
}

/// A parsed label file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelFile {
    /// The rows that are not blank, in file order.
    pub rows: Vec<Row>,
    /// Why the file as a whole is no label file; there are no rows then.
    pub problem: Option<String>,
    /// What kind of problem it is, where it has a rule of its own.
    pub problem_rule: Option<Rule>,
    /// The file begins with a byte-order mark.
    pub has_bom: bool,
    /// Lines that hold nothing but blanks (and at least one) in a file with rows: 1-based number and bytes without line end.
    pub blank_lines: Vec<(usize, Range<usize>)>,
}

/// One row that is not blank.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// 1-based.
    pub line: usize,
    /// The row's bytes in the file, without byte-order mark and line end.
    pub bytes: Range<usize>,
    pub verdict: Verdict,
    /// The row is a polygon; its label is the enclosing box.
    pub polygon: bool,
    /// Of a polygon that could be read, else 0.
    pub n_points: usize,
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Used(Label),
    /// Reaches past the image, and may safely be cut at its edge.
    Clamped {
        written: Label,
        clamped: Label,
        /// Only by rounding.
        spill: bool,
    },
    Dropped(Dropped),
}

/// Why a row is not used.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    pub rule: Rule,
    pub fix: Fixability,
    pub reason: String,
    /// The text that says what was meant and that training would use; `fix` writes it. Without one `fix` removes the row.
    pub mended: Option<String>,
    /// The class, where it is one of the dataset's.
    pub class: Option<ClassId>,
    /// The class as written, where it is a whole number that is not one of the dataset's.
    pub foreign_class: Option<i64>,
    /// The box as written, where there is one with finite numbers.
    pub bbox: Option<Xywhn>,
    /// The row that it repeats, counted from 0 among the rows of the file.
    pub same_as: Option<usize>,
}

impl Verdict {
    /// The label that training uses.
    pub fn label(&self) -> Option<Label> {
        match self {
            Self::Used(label) | Self::Clamped { clamped: label, .. } => Some(*label),
            Self::Dropped(_) => None,
        }
    }
}

impl LabelFile {
    /// The labels that training uses, in file order.
    pub fn labels(&self) -> impl Iterator<Item = Label> {
        self.rows.iter().filter_map(|row| row.verdict.label())
    }

    /// The rows that repeat this one, and would count as soon as it says something else.
    pub(super) fn repeats(&self, row: usize) -> impl Iterator<Item = usize> {
        let is_repeat = move |each: &Row| matches!(&each.verdict, Verdict::Dropped(dropped) if dropped.same_as == Some(row));
        self.rows.iter().enumerate().filter(move |(_, each)| is_repeat(each)).map(|(index, _)| index)
    }

    /// Gives every label class 0.
    pub(super) fn merge_classes(&mut self) {
        for row in &mut self.rows {
            match &mut row.verdict {
                Verdict::Used(label) => label.class = ClassId(0),
                Verdict::Clamped { written, clamped, .. } => (written.class, clamped.class) = (ClassId(0), ClassId(0)),
                Verdict::Dropped(dropped) => dropped.class = dropped.class.map(|_| ClassId(0)),
            }
        }
    }
}

/// Parses one label file.
///
/// `image_size` is asked at most once, and only when a box reaches past the image; without it (`None`) only boxes that
/// are off by rounding may be cut.
pub fn parse(bytes: &[u8], options: ParseOptions, image_size: &dyn Fn() -> Option<Size>) -> LabelFile {
    parse_named(bytes, options, &[], image_size)
}

/// As [`parse`], where the names of the classes are known: a row may begin with one.
pub fn parse_named(bytes: &[u8], options: ParseOptions, names: &[String], image_size: &dyn Fn() -> Option<Size>) -> LabelFile {
    if let Some((problem_rule, problem)) = foreign_file(bytes) {
        return LabelFile { problem: Some(problem.to_owned()), problem_rule, ..LabelFile::default() };
    }
    let size = std::cell::OnceCell::new();
    let size = || *size.get_or_init(image_size);
    let mut rows: Vec<Row> = Vec::new();
    let mut blank_lines = Vec::new();
    let mut seen: HashMap<Vec<u32>, usize> = HashMap::new();
    for (index, range) in lines(bytes).enumerate() {
        let fields: Vec<&[u8]> = tokens(&bytes[range.clone()]).map(|token| &bytes[range.clone()][token]).collect();
        let line = index + 1;
        if fields.is_empty() {
            if !range.is_empty() {
                blank_lines.push((line, range));
            }
            continue;
        }
        let (verdict, polygon, n_points) = match read_row(&fields, options) {
            Err(dropped) => (Verdict::Dropped(dropped), false, 0),
            Ok(values) => {
                let mut verdict = judge(&values, size);
                if let Some(label) = verdict.label() {
                    let first = *seen.entry(values.identity(label)).or_insert(rows.len());
                    if first != rows.len() {
                        verdict = Verdict::Dropped(Dropped {
                            rule: Rule::DuplicateRow,
                            fix: Fixability::Auto,
                            reason: format!("the same class and coordinates as in line {}", rows[first].line),
                            same_as: Some(first),
                            ..Dropped::of(label)
                        });
                    }
                }
                (verdict, values.polygon, if values.polygon { values.numbers.len() / 2 } else { 0 })
            }
        };
        rows.push(Row { line, bytes: range, verdict, polygon, n_points });
    }
    let n_used = rows.iter().filter(|row| row.verdict.label().is_some()).count();
    if n_used == 0 && bytes.contains(&0) {
        return LabelFile { problem: Some("holds binary data, not text".to_owned()), ..LabelFile::default() };
    }
    let n_mended = mend::mend(bytes, &mut rows, &mut seen, &Spelling { options, names, size: &size });
    if n_used + n_mended == 0 {
        // Removing an image's only box would turn it into background: that is for a person to say.
        for row in &mut rows {
            if let Verdict::Dropped(dropped) = &mut row.verdict
                && matches!(dropped.rule, Rule::ZeroSize | Rule::NotANumber)
            {
                dropped.fix = Fixability::Ask;
            }
        }
    }
    if rows.is_empty() {
        blank_lines.clear(); // a background image, however it is spelled
    }
    LabelFile { rows, has_bom: bytes.starts_with(BOM), blank_lines, ..LabelFile::default() }
}

/// The text that a row has when it is used, and what makes it the same as another; `None` when it would not be used.
pub(super) fn used_text(text: &str, options: ParseOptions, size: &dyn Fn() -> Option<Size>) -> Option<(String, Vec<u32>)> {
    let bytes = text.as_bytes();
    let fields: Vec<&[u8]> = tokens(bytes).map(|token| &bytes[token]).collect();
    let values = read_row(&fields, options).ok()?;
    let verdict = judge(&values, size);
    let label = verdict.label()?;
    let row = Row { line: 1, bytes: 0..bytes.len(), verdict, polygon: values.polygon, n_points: 0 };
    let text = clamped_row(bytes, &row).and_then(|cut| String::from_utf8(cut).ok()).unwrap_or_else(|| text.to_owned());
    Some((text, values.identity(label)))
}

/// The text of a row after its box was cut at the image's edge; `None` unless the verdict is `Clamped`.
///
/// `bytes` is the whole file. Blanks, fields that need no change and columns after the box stay as they are; new numbers
/// are the shortest that read back to the same f32, and the row then parses as in range.
pub fn clamped_row(bytes: &[u8], row: &Row) -> Option<Vec<u8>> {
    let Verdict::Clamped { written, clamped, .. } = &row.verdict else { return None };
    let text = &bytes[row.bytes.clone()];
    let old = [written.bbox.cx, written.bbox.cy, written.bbox.w, written.bbox.h];
    let new = [clamped.bbox.cx, clamped.bbox.cy, clamped.bbox.w, clamped.bbox.h];
    // Which axes changed: x is fields 1 and 3, y is 2 and 4 (in a polygon: odd and even fields).
    let changed = [0, 1].map(|axis| old[axis].to_bits() != new[axis].to_bits() || old[axis + 2].to_bits() != new[axis + 2].to_bits());
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut copied = 0;
    for (index, token) in tokens(text).enumerate().skip(1) {
        let replacement = if row.polygon {
            let value = number(&text[token.clone()]).unwrap_or(0.0) as f32;
            (changed[(index - 1) % 2] && !(0.0..=1.0).contains(&value)).then_some(if value < 0.0 { 0.0 } else { 1.0 })
        } else {
            (index <= 4 && old[index - 1].to_bits() != new[index - 1].to_bits()).then(|| new[index - 1])
        };
        if let Some(value) = replacement {
            out.extend_from_slice(&text[copied..token.start]);
            out.extend_from_slice(value.to_string().as_bytes());
            copied = token.end;
        }
    }
    out.extend_from_slice(&text[copied..]);
    Some(out)
}

/// The outline that a row gives, cut at the image's edges; `None` where the row is a box or not used.
///
/// `bytes` is the whole file. Rows do not keep their points: few readers want them.
pub fn outline(bytes: &[u8], row: &Row) -> Option<Polygon> {
    row.verdict.label().filter(|_| row.polygon)?;
    let text = &bytes[row.bytes.clone()];
    let values: Vec<f32> = tokens(text).skip(1).map(|token| number(&text[token]).unwrap_or(0.0).clamp(0.0, 1.0) as f32).collect();
    Some(values.as_chunks().0.to_vec())
}

/// The row that is written for a label: the shortest numbers that read back to the same f32.
pub fn row_text(label: &Label) -> String {
    let Label { class: ClassId(class), bbox: Xywhn { cx, cy, w, h } } = label;
    let mut text = String::with_capacity(48);
    write!(text, "{class} {cx} {cy} {w} {h}").expect("writing to a string cannot fail");
    text
}

/// Files that are surely something else, known by their first bytes.
fn foreign_file(bytes: &[u8]) -> Option<(Option<Rule>, &'static str)> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Some((Some(Rule::Utf16Text), "is UTF-16 text; save it as UTF-8"));
    }
    let text = bytes.strip_prefix(BOM).unwrap_or(bytes).trim_ascii_start();
    if text.starts_with(b"version https://git-lfs") {
        Some((Some(Rule::LfsPointer), "is a Git LFS pointer, not labels; run `git lfs pull`"))
    } else if text.starts_with(b"<") && !text.starts_with(b"<<<<<<<") {
        Some((None, "is HTML or XML, not YOLO text"))
    } else if text.starts_with(b"{") || text.starts_with(b"[") {
        Some((None, "is JSON, not YOLO text"))
    } else {
        None
    }
}

/// The text of a UTF-16 file; `None` when it is none, or broken.
pub(super) fn from_utf16(bytes: &[u8]) -> Option<String> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xFF, 0xFE, ..] => u16::from_le_bytes,
        [0xFE, 0xFF, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let (pairs, rest) = bytes[2..].as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|&pair| unit(pair)).collect();
    String::from_utf16(&units).ok().filter(|_| rest.is_empty())
}

pub(super) const BOM: &[u8] = "\u{feff}".as_bytes();

/// The byte ranges of all lines, without line ends (LF, CRLF or CR) and byte-order mark. An empty last line is left out.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = if bytes.starts_with(BOM) { BOM.len() } else { 0 };
    std::iter::from_fn(move || {
        if start >= bytes.len() {
            return None;
        }
        let end = bytes[start..].iter().position(|&b| b == b'\n' || b == b'\r').map_or(bytes.len(), |length| start + length);
        let line = start..end;
        start = end + line_end(&bytes[end..]);
        Some(line)
    })
}

/// How many bytes the line end at the start of `rest` takes: 0 at the end of the file, 2 for CRLF, else 1.
pub(super) fn line_end(rest: &[u8]) -> usize {
    if rest.starts_with(b"\r\n") { 2 } else { usize::from(matches!(rest.first(), Some(b'\n' | b'\r'))) }
}

/// The byte ranges of a row's fields.
pub(super) fn tokens(row: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let blank = |b: u8| b.is_ascii_whitespace() || b == 0x0B;
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + row[at..].iter().position(|&b| !blank(b))?;
        at = row[start..].iter().position(|&b| blank(b)).map_or(row.len(), |length| start + length);
        Some(start..at)
    })
}

pub(super) fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The numbers of a row that has the right form.
struct Values {
    class: ClassId,
    /// Box fields, polygon points, or box and keypoints; finite also as f32. As f64, so that 0.995 - 0.014 / 2 cut at the
    /// edge gives decimals that a person would write.
    numbers: Vec<f64>,
    polygon: bool,
}

impl Values {
    fn written(&self) -> Label {
        let bbox = if self.polygon { xywhn_from_edges(self.edges()) } else { box_of(&self.numbers) };
        Label { class: self.class, bbox }
    }

    /// x1, y1, x2, y2.
    fn edges(&self) -> [f64; 4] {
        if self.polygon {
            let axis = |first: usize| {
                let values = self.numbers.iter().skip(first).step_by(2);
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
            };
            let ((x1, x2), (y1, y2)) = (axis(0), axis(1));
            [x1, y1, x2, y2]
        } else {
            let [cx, cy, w, h] = [0, 1, 2, 3].map(|i| self.numbers[i]);
            [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0]
        }
    }

    /// What makes two rows the same: class and all coordinates, a box as it is used.
    fn identity(&self, used: Label) -> Vec<u32> {
        let bbox = [used.bbox.cx, used.bbox.cy, used.bbox.w, used.bbox.h];
        // Two polygons in one box are two shapes.
        let rest = if self.polygon { &self.numbers[..] } else { &self.numbers[4..] };
        let values = bbox.into_iter().chain(rest.iter().map(|&value| value as f32));
        std::iter::once(self.class.0).chain(values.map(|value| (value + 0.0).to_bits())).collect() // + 0.0 makes one of both zeros
    }
}

fn box_of(numbers: &[f64]) -> Xywhn {
    Xywhn { cx: numbers[0] as f32, cy: numbers[1] as f32, w: numbers[2] as f32, h: numbers[3] as f32 }
}

impl Dropped {
    /// A row that is dropped without a class or box that could be told.
    pub(super) fn new(rule: Rule, fix: Fixability, reason: String) -> Self {
        Self { rule, fix, reason, mended: None, class: None, foreign_class: None, bbox: None, same_as: None }
    }

    /// What is known of a row whose label can be read; rule and reason are to be filled in.
    fn of(label: Label) -> Self {
        let mut dropped = Self::new(Rule::OutOfRange, Fixability::None, String::new());
        (dropped.class, dropped.bbox) = (Some(label.class), Some(label.bbox));
        dropped
    }
}

fn read_row(fields: &[&[u8]], options: ParseOptions) -> Result<Values, Dropped> {
    use Fixability::Ask;
    if let Some((rule, reason)) = foreign_row(fields) {
        return Err(Dropped::new(rule, Ask, reason));
    }
    let keypoints = options.n_keypoint_fields.is_some_and(|n| fields.len() == 5 + n);
    if !keypoints && looks_like_pose(fields) {
        let reason = format!("{} fields with {} visibilities of 0, 1 or 2 look like keypoints", fields.len(), (fields.len() - 5) / 3);
        return Err(Dropped::new(Rule::PoseRow, Ask, reason));
    }
    let polygon = !keypoints && fields.len() >= 7 && fields.len() % 2 == 1;
    if fields.len() != 5 && !keypoints && !polygon {
        return Err(match fields.len() {
            6 => Dropped::new(Rule::WrongFieldCount, Ask, sixth_field(fields[5])),
            n if n < 5 => {
                let reason = format!("{n} field{}, expected 5: class cx cy w h", if n == 1 { "" } else { "s" });
                Dropped::new(Rule::WrongFieldCount, Fixability::None, reason)
            }
            n => Dropped::new(Rule::OddPolygon, Ask, format!("{n} fields, expected 5, or an odd number from 7 for a polygon")),
        });
    }

    let mut numbers = Vec::with_capacity(fields.len() - 1);
    for (index, field) in fields.iter().enumerate() {
        match number(field) {
            Some(value) if (value as f32).is_finite() => numbers.push(value),
            Some(_) => {
                let reason = format!("field {} is {}, expected a finite number", index + 1, shown(field));
                return Err(Dropped::new(Rule::NotANumber, Fixability::Auto, reason));
            }
            None => {
                let what = if index == 0 { "the class" } else { &format!("field {}", index + 1) };
                return Err(Dropped::new(Rule::NotANumber, Ask, format!("{what} is {}, expected a number", shown(field))));
            }
        }
    }
    let class = numbers.remove(0);
    let n_classes = options.n_classes;
    if class.fract() != 0.0 || class < 0.0 || class >= n_classes as f64 {
        let (rule, reason) = if class.fract() != 0.0 {
            (Rule::ClassNotWhole, format!("class {class} is not a whole number"))
        } else if class < 0.0 {
            (Rule::NegativeClass, format!("class {class} is negative"))
        } else if n_classes == 0 {
            (Rule::ClassOutsideNames, format!("class {class}, but the dataset has no class names"))
        } else {
            (Rule::ClassOutsideNames, format!("class {class} is not one of the dataset's {n_classes} classes (0 to {})", n_classes - 1))
        };
        let mut dropped = Dropped::new(rule, Ask, reason);
        dropped.bbox = (!polygon).then(|| box_of(&numbers));
        dropped.foreign_class = (class.fract() == 0.0).then_some(class as i64);
        return Err(dropped);
    }
    Ok(Values { class: ClassId(class as u32), numbers, polygon })
}

/// A row that cannot be one as it is spelled, whatever its fields count.
fn foreign_row(fields: &[&[u8]]) -> Option<(Rule, String)> {
    let first = fields[0];
    if [&b"<<<<<<<"[..], b"=======", b">>>>>>>", b"|||||||"].iter().any(|marker| first.starts_with(marker)) {
        return Some((Rule::ConflictMarker, "a merge conflict was left in the file".to_owned()));
    }
    let n_numbers = fields.iter().take_while(|field| number(field).is_some()).count();
    if n_numbers == fields.len() {
        return None;
    }
    if n_numbers == 0 && fields.len() >= 5 && fields[fields.len() - 4..].iter().all(|field| number(field).is_some()) {
        let name = fields[..fields.len() - 4].join(&b' ');
        return Some((Rule::ClassByName, format!("the class is {}, expected a number", shown(&name))));
    }
    if fields.len() > 5 && n_numbers == 5 {
        return Some((Rule::TrailingText, format!("{} stands behind the five numbers", shown(fields[5]))));
    }
    let has_separator = |field: &&&[u8]| field.contains(&b',') || field.contains(&b';');
    if fields.iter().any(|field| has_separator(&field)) {
        return Some(if mend::with_points(fields).is_some() {
            (Rule::CommaDecimals, "the numbers have commas, expected decimal points".to_owned())
        } else {
            (Rule::CommaSeparated, "fields are separated by commas or semicolons, expected blanks".to_owned())
        });
    }
    None
}

/// What a sixth field may be: track ids are whole numbers from 1, confidences lie in 0 to 1.
fn sixth_field(field: &[u8]) -> String {
    let what = match number(field) {
        Some(value) if value >= 1.0 && value.fract() == 0.0 => "the last is probably a track id",
        Some(value) if (0.0..=1.0).contains(&value) => "the last is probably a confidence",
        _ => "the last may be a confidence or a track id",
    };
    format!("6 fields, expected 5: {what}")
}

/// A box with points in threes, each with a visibility of 0, 1 or 2 and, where it is visible, inside the box. One has to be 2, which
/// no coordinate of a polygon is: those at the image's edges are 0 and 1.
fn looks_like_pose(fields: &[&[u8]]) -> bool {
    if fields.len() < 8 || !(fields.len() - 5).is_multiple_of(3) {
        return false;
    }
    let values: Option<Vec<f64>> = fields[1..].iter().map(|field| number(field)).collect();
    let Some(values) = values else { return false };
    let [cx, cy, w, h] = [values[0], values[1], values[2], values[3]];
    let within = |value: f64, centre: f64, size: f64| (value - centre).abs() <= size / 2.0 + 0.01;
    let (points, _) = values[4..].as_chunks::<3>();
    let is_visible = |&[.., visibility]: &[f64; 3]| visibility == 2.0;
    points.iter().any(is_visible)
        && points.iter().all(|&[x, y, visibility]| match visibility {
            0.0 => (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y),
            1.0 | 2.0 => within(x, cx, w) && within(y, cy, h),
            _ => false,
        })
}

/// Judges the box of a well-formed row.
fn judge(values: &Values, size: impl Fn() -> Option<Size>) -> Verdict {
    let written = values.written();
    let Xywhn { cx, cy, w, h } = written.bbox;
    let dropped = |rule: Rule, fix: Fixability, reason: String| Verdict::Dropped(Dropped { rule, fix, reason, ..Dropped::of(written) });
    if w < 0.0 || h < 0.0 {
        return dropped(Rule::NegativeSize, Fixability::Ask, format!("width {w}, height {h}"));
    }
    if w == 0.0 || h == 0.0 {
        return dropped(Rule::ZeroSize, Fixability::Auto, format!("width {w}, height {h}"));
    }
    let edges = values.edges();
    // All sides of at least one, and something well past the image, can only be pixels (or nonsense).
    let pixels = if values.polygon {
        values.numbers.iter().all(|&v| v >= 0.0) && values.numbers.iter().any(|&v| v > 2.0) && w > 1.0 && h > 1.0
    } else {
        cx >= 0.0 && cy >= 0.0 && w >= 1.0 && h >= 1.0 && [cx, cy, w, h].into_iter().any(|v| v > 2.0)
    };
    if pixels {
        let reason = format!("centre {cx}, {cy} and size {w} x {h} look like pixels, expected fractions from 0 to 1");
        return dropped(Rule::CoordinatesInPixels, Fixability::Ask, reason);
    }

    let outside = |axis: usize| {
        let (low, high) = (edges[axis], edges[axis + 2]);
        // As f32, in which other trainers refuse a field over one.
        let fields = if values.polygon { [0.0; 2] } else { [values.numbers[axis] as f32, values.numbers[axis + 2] as f32] };
        low < -EDGE_EPSILON || high > 1.0 + EDGE_EPSILON || fields.into_iter().any(|field| !(0.0..=1.0).contains(&field))
    };
    let outside = [outside(0), outside(1)];
    if outside == [false, false] {
        return Verdict::Used(written);
    }
    match edge::clamp(edges, size()) {
        Err(reason) => dropped(Rule::OutOfRange, Fixability::Ask, reason),
        Ok((inside, spill)) => {
            let cut = xywhn_from_edges(inside);
            // An axis that is fine keeps its numbers to the bit.
            let (cx, w) = if outside[0] { (cut.cx, cut.w) } else { (cx, w) };
            let (cy, h) = if outside[1] { (cut.cy, cut.h) } else { (cy, h) };
            Verdict::Clamped { written, clamped: Label { class: values.class, bbox: Xywhn { cx, cy, w, h } }, spill }
        }
    }
}

/// A field for a message: quoted, escaped, not endless.
fn shown(field: &[u8]) -> String {
    const LONGEST: usize = 24;
    let text = String::from_utf8_lossy(&field[..field.len().min(LONGEST)]);
    format!("{text:?}{}", if field.len() > LONGEST { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    const OPTIONS: ParseOptions = ParseOptions { n_classes: 3, n_keypoint_fields: None };

    fn read(text: &[u8]) -> LabelFile {
        parse(text, OPTIONS, &|| Some(Size::new(100, 200)))
    }

    fn label(class: u32, cx: f32, cy: f32, w: f32, h: f32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx, cy, w, h } }
    }

    /// The verdict of a file's only row, as text.
    fn verdict(text: &[u8]) -> String {
        let file = read(text);
        assert_eq!(file.rows.len(), 1, "{file:?}");
        match &file.rows[0].verdict {
            Verdict::Used(label) => format!("used {}", row_text(label)),
            Verdict::Clamped { clamped, spill, .. } => format!("{} {}", if *spill { "spill" } else { "clamped" }, row_text(clamped)),
            Verdict::Dropped(dropped) => format!("{} {}", dropped.rule.id(), dropped.fix.name()),
        }
    }

    #[test]
    fn a_polygon_row_has_an_outline_and_a_box_row_has_none() {
        let text = b"0 .1 .2 .3 .2 .3 1.001\n1 .5 .5 .2 .2\n9 .1 .2 .3 .2 .3 .4\n";
        let file = read(text);
        let outlines: Vec<Option<Polygon>> = file.rows.iter().map(|row| outline(text, row)).collect();
        assert_eq!(outlines, [Some(vec![[0.1, 0.2], [0.3, 0.2], [0.3, 1.0]]), None, None]);
    }

    #[test]
    fn each_row_gets_its_verdict() {
        for (row, expected) in [
            ("0 .5 .5 .2 .4", "used 0 0.5 0.5 0.2 0.4"),
            ("1.0\t0.5  0.5 2e-1 0.4\t ", "used 1 0.5 0.5 0.2 0.4"),
            ("2 0.5 0.5 1 1", "used 2 0.5 0.5 1 1"),
            ("1.5 .5 .5 .2 .2", "class-not-whole ask"),
            ("3 .5 .5 .2 .2", "class-outside-names ask"),
            ("-1 .5 .5 .2 .2", "negative-class ask"),
            ("99999999999999999999 .5 .5 .2 .2", "class-outside-names ask"),
            ("car .5 .5 .2 .2", "class-by-name ask"),
            ("0 nan .5 .2 .2", "not-a-number ask"),
            ("0 .5 .5 inf .2", "not-a-number ask"),
            ("0 .5 .5 1e99 .2", "not-a-number ask"),
            ("0 0,5 0,5 0,2 0,2", "comma-decimals auto"),
            ("0,0.5,0.5,0.2,0.2", "comma-separated auto"),
            ("0 .5 .5 .2", "wrong-field-count none"),
            ("0 .5 .5 .2 .2 .9", "wrong-field-count ask"),
            ("0 .5 .5 .2 .2 # car", "trailing-text ask"),
            ("0 .1 .1 .3 .1 .3 .3 .2", "odd-polygon ask"),
            ("0 .1 .1 .3 .1 .3 .5", "used 0 0.2 0.3 0.2 0.4"),
            ("0 .5 .5 0 .2", "zero-size ask"),
            ("0 .5 .5 -.2 .2", "negative-size auto"),
            ("0 .05 .5 -.2 .2", "negative-size ask"),
            ("<<<<<<< HEAD", "conflict-marker ask"),
            ("0 .5 .5 .4 .4 .5 .5 2 .6 .4 0", "pose-row ask"),
            // Polygons in the corners of the image.
            ("0 .1 .1 .2 .1 .1 .2 0 .1 .1 0", "used 0 0.1 0.1 0.2 0.2"),
            ("0 .9 .9 .8 .9 .9 .8 1 .9 .9 1", "used 0 0.9 0.9 0.2 0.2"),
            ("0 50 60 20 30", "coordinates-in-pixels ask"),
            ("0 1 .5 .2 .2", "clamped 0 0.95 0.5 0.1 0.2"),
            ("0 .05 .05 .2 .2", "clamped 0 0.075 0.075 0.15 0.15"),
            ("0 .5 .9 1.2 .3", "clamped 0 0.5 0.875 1 0.25"),
            ("0 1.05 .5 .2 .2", "out-of-range ask"),
            ("0 1.5 .5 .2 .2", "out-of-range ask"),
            ("0 .5 .5 3 .2", "out-of-range ask"),
        ] {
            assert_eq!(verdict(row.as_bytes()), expected, "{row}");
        }
    }

    #[test]
    fn an_edge_past_the_image_is_cut_only_where_two_pixels_and_half_of_the_area_stay() {
        // The image is 100 x 200.
        assert_eq!(verdict(b"0 .995 .5 .014 .2"), "spill 0 0.994 0.5 0.012 0.2", "0.2 px past is rounding");
        assert_eq!(verdict(b"0 .99 .5 .034 .2"), "clamped 0 0.9865 0.5 0.027 0.2");
        assert_eq!(verdict(b"0 .995 .5 .024 .2"), "out-of-range ask", "0.7 px past leaves 1.7 px");
        assert_eq!(verdict(b"0 .5 .5 1.0000005 .2"), "spill 0 0.5 0.5 1 0.2", "a field over one is never left");
        assert_eq!(verdict(b"0 .9 .5 .2000005 .2"), "used 0 0.9 0.5 0.2000005 0.2", "rounding at the sixth decimal");
        let unknown = parse(b"0 1 .5 .2 .2\n0 .9 .4 .2001 .2", OPTIONS, &|| None);
        assert!(matches!(&unknown.rows[0].verdict, Verdict::Dropped(d) if d.fix == Fixability::Ask));
        assert!(matches!(&unknown.rows[1].verdict, Verdict::Clamped { spill: true, .. }));
    }

    #[test]
    fn the_image_is_not_asked_for_its_size_when_all_boxes_lie_inside() {
        let file = parse(b"0 .5 .5 .2 .2\n1 .5 .5 .2 .2\n", OPTIONS, &|| panic!("asked"));
        assert_eq!(file.labels().count(), 2);
    }

    #[test]
    fn bom_line_ends_and_blank_lines_keep_numbers_and_places_right() {
        let text = b"\xEF\xBB\xBF0 .5 .5 .2 .2\r\n\r\n   \t\r1 .5 .5 .2 .2\n\n2 .5 .5 .2 .2";
        let file = read(text);
        let places: Vec<_> = file.rows.iter().map(|row| (row.line, &text[row.bytes.clone()])).collect();
        assert_eq!(places, [(1, &b"0 .5 .5 .2 .2"[..]), (4, b"1 .5 .5 .2 .2"), (6, b"2 .5 .5 .2 .2")]);
    }

    #[test]
    fn one_bad_row_never_drops_the_others() {
        let file = read(b"0 .5 .5 .2 .2\nrubbish\n0 \xE9t\xE9 .5 .2 .2\n\x00\x00\n1 .5 .5 .2 .2\n");
        assert_eq!(file.labels().collect::<Vec<_>>(), [label(0, 0.5, 0.5, 0.2, 0.2), label(1, 0.5, 0.5, 0.2, 0.2)]);
        assert_eq!(file.rows.len(), 5);
    }

    #[test]
    fn a_box_row_beside_polygons_stays_a_box() {
        let file = read(b"1 .5 .6 .2 .2\n0 .1 .1 .3 .1 .3 .3\n");
        assert_eq!(file.rows[0].verdict, Verdict::Used(label(1, 0.5, 0.6, 0.2, 0.2)));
        assert!(file.rows[1].polygon);
    }

    #[test]
    fn keypoints_after_the_box_are_not_a_polygon() {
        let options = ParseOptions { n_keypoint_fields: Some(6), ..OPTIONS };
        let file = parse(b"1 .5 .6 .2 .2 .4 .5 2 .6 .7 1\n", options, &|| None);
        assert_eq!(file.rows[0].verdict, Verdict::Used(label(1, 0.5, 0.6, 0.2, 0.2)));
    }

    #[test]
    fn the_later_of_two_equal_rows_is_dropped() {
        let file = read(b"0 .5 .5 .2 .2\n0.0 0.5 0.50 2e-1 .2\n1 .5 .5 .2 .2\n");
        let Verdict::Dropped(dropped) = &file.rows[1].verdict else { panic!("{file:?}") };
        assert_eq!((dropped.rule, dropped.fix), (Rule::DuplicateRow, Fixability::Auto));
        assert!(dropped.reason.ends_with("line 1"));
        assert_eq!(file.repeats(0).collect::<Vec<_>>(), [1]);
        assert_eq!(file.labels().count(), 2);
    }

    #[test]
    fn an_empty_box_may_go_only_when_others_stay() {
        let file = read(b"0 .5 .5 0 .2\n1 .5 .5 .2 .2\n");
        assert!(matches!(&file.rows[0].verdict, Verdict::Dropped(d) if d.rule == Rule::ZeroSize && d.fix == Fixability::Auto));
    }

    #[test]
    fn files_that_are_something_else_are_named() {
        for (bytes, word) in [
            (&b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n"[..], "Git LFS"),
            (b"\xFF\xFE0\x00 \x00", "UTF-16"),
            (b"<!DOCTYPE html>", "HTML"),
            (b"{\"a\": 1}", "JSON"),
            (b"\x89PNG\r\n\x1a\n\x00\x00\x00", "binary"),
        ] {
            let file = read(bytes);
            assert!(file.problem.as_deref().is_some_and(|problem| problem.contains(word)), "{word}: {file:?}");
            assert!(file.rows.is_empty());
        }
        assert_eq!(read(b""), LabelFile::default());
        assert_eq!(read(b" \n\n"), LabelFile::default());
    }

    #[test]
    fn cutting_keeps_blanks_columns_and_untouched_numbers() {
        let cut = |row: &[u8]| {
            let file = read(row);
            String::from_utf8(clamped_row(row, &file.rows[0]).unwrap()).unwrap()
        };
        assert_eq!(cut(b" 0\t1.0  0.50 .2 .20\t"), " 0\t0.95  0.50 0.1 .20\t");
        assert_eq!(cut(b"0 -.1 .10 .3 1.01 .3 .300"), "0 0 .10 .3 1 .3 .300");
    }

    /// A row of any shape: mostly plausible numbers near the edges, some rubbish.
    fn any_row() -> impl Strategy<Value = String> {
        let field = prop_oneof![
            8 => (-0.3f32..1.3).prop_map(|v| v.to_string()),
            4 => (0.0f32..=1.0).prop_map(|v| format!("{v:.6}")),
            2 => (0i32..12).prop_map(|v| (v as f32 / 10.0).to_string()),
            1 => Just("nan".to_owned()),
            1 => Just("x".to_owned()),
        ];
        (0u32..4, proptest::collection::vec(field, 3..9)).prop_map(|(class, fields)| format!("{class} {}", fields.join(" ")))
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_all_ranges_lie_inside(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for row in read(&bytes).rows {
                prop_assert!(bytes.get(row.bytes.clone()).is_some());
                clamped_row(&bytes, &row);
            }
        }

        #[test]
        fn a_cut_row_parses_as_in_range_with_the_same_label(row in any_row(), width in 1u32..3000, height in 1u32..3000) {
            let size = || Some(Size::new(width, height));
            let file = parse(row.as_bytes(), OPTIONS, &size);
            if let Some(cut) = clamped_row(row.as_bytes(), &file.rows[0]) {
                let again = parse(&cut, OPTIONS, &size);
                prop_assert_eq!(&again.rows[0].verdict, &Verdict::Used(file.rows[0].verdict.label().unwrap()));
            }
        }

        #[test]
        fn a_written_row_reads_back_to_the_bit(cx in 0.0f32..1.0, cy in 0.0f32..1.0, w in 1e-6f32..1.0, h in 1e-6f32..1.0) {
            // The box is shrunk to lie inside.
            let label = label(1, cx, cy, w.min(cx * 2.0).min((1.0 - cx) * 2.0), h.min(cy * 2.0).min((1.0 - cy) * 2.0));
            prop_assume!(label.bbox.w > 0.0 && label.bbox.h > 0.0);
            let file = parse(row_text(&label).as_bytes(), OPTIONS, &|| None);
            prop_assert_eq!(file.labels().collect::<Vec<_>>(), [label]);
        }
    }
}
