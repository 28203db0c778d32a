//! Which bytes of a YOLO label file does an edit of its labels change?
//!
//! In:  the bytes of the file, its parsed rows, and operations on the labels that training uses, counted from 0.
//! Out: splices that touch nothing but the rows in question.
//!
//! A field that keeps its value keeps its text; a new value is the shortest number that reads back to the same f32. Blanks, other
//! columns, line ends, the byte-order mark, a missing last line end and rows that are not used stay as they are, except repeats of a row
//! that changes or goes: they go. A polygon whose box is moved is moved and scaled with it. In a file of polygons an added box is written as one, since other trainers read such a file as
//! polygons only.

use std::fmt::Write as _;
use std::ops::Range;

use super::edit::LabelOp;
use super::label::{ClassId, Label};
use super::parse::{self, LabelFile, Row};
use super::splice::Splice;
use crate::geom::Xywhn;

/// The splices of operations; `None` when an index names no label, or one is named twice.
pub(super) fn splices(bytes: &[u8], file: &LabelFile, ops: &[LabelOp]) -> Option<Vec<Splice>> {
    let used: Vec<(usize, Label)> = file.rows.iter().enumerate().filter_map(|(row, each)| Some((row, each.verdict.label()?))).collect();
    let mut changes: Vec<(usize, Option<Label>)> = Vec::new();
    let mut added = Vec::new();
    for op in ops {
        match *op {
            LabelOp::Add(label) => added.push(label),
            LabelOp::Set { index, label } => changes.push((index, Some(label))),
            LabelOp::Remove { index } => changes.push((index, None)),
        }
    }
    changes.sort_by_key(|(index, _)| *index);
    if changes.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let mut splices = Vec::new();
    for (index, label) in changes {
        let (row, shown) = *used.get(index)?;
        let of_row = match label {
            Some(label) => set_row(bytes, &file.rows[row], shown, label),
            None => vec![remove_row(bytes, file.rows[row].bytes.clone())],
        };
        if !of_row.is_empty() {
            // Else a row that repeats this one would be the label that was there before.
            splices.extend(file.repeats(row).map(|repeat| remove_row(bytes, file.rows[repeat].bytes.clone())));
        }
        splices.extend(of_row);
    }
    splices.sort_by_key(|splice| splice.at);
    if !added.is_empty() {
        let as_polygons = file.rows.iter().any(|row| row.polygon);
        let rows: Vec<String> = added.iter().map(|label| if as_polygons { polygon_text(label) } else { parse::row_text(label) }).collect();
        append(bytes, &mut splices, &rows);
    }
    Some(splices)
}

/// Gives a row another class; the rest of it stays.
pub(super) fn set_class(bytes: &[u8], row: &Range<usize>, class: ClassId) -> Option<Splice> {
    let text = &bytes[row.clone()];
    let token = parse::tokens(text).next()?;
    Some(Splice::new(row.start + token.start, &text[token], class.0.to_string()))
}

/// Takes a row away, with its line end.
pub(super) fn remove_row(bytes: &[u8], row: Range<usize>) -> Splice {
    let end = row.end + parse::line_end(&bytes[row.end..]);
    Splice::new(row.start, &bytes[row.start..end], "")
}

/// The fields of a row that change.
fn set_row(bytes: &[u8], row: &Row, shown: Label, label: Label) -> Vec<Splice> {
    let text = &bytes[row.bytes.clone()];
    let mut splices = Vec::new();
    if label.class != shown.class {
        splices.extend(set_class(bytes, &row.bytes, label.class));
    }
    let fields = |bbox: Xywhn| [bbox.cx, bbox.cy, bbox.w, bbox.h];
    let (old, new) = (fields(shown.bbox), fields(label.bbox));
    if old.map(f32::to_bits) == new.map(f32::to_bits) {
        return splices;
    }
    for (index, token) in parse::tokens(text).enumerate().skip(1) {
        let written = parse::number(&text[token.clone()]).unwrap_or(0.0);
        let (value, new_text) = if row.polygon {
            let axis = (index - 1) % 2;
            if old[axis].to_bits() == new[axis].to_bits() && old[axis + 2].to_bits() == new[axis + 2].to_bits() {
                continue;
            }
            let point = moved(written, [old[axis], old[axis + 2]], [new[axis], new[axis + 2]]);
            (point as f32, point.to_string())
        } else if index <= 4 {
            (new[index - 1], new[index - 1].to_string())
        } else {
            break; // keypoints stay where they are in the picture
        };
        if (written as f32).to_bits() != value.to_bits() {
            splices.push(Splice::new(row.bytes.start + token.start, &text[token], new_text));
        }
    }
    splices
}

/// A coordinate of a point in a box (centre and size on this axis) that becomes another one.
fn moved(point: f64, [old_centre, old_size]: [f32; 2], [centre, size]: [f32; 2]) -> f64 {
    let inside = (point.clamp(0.0, 1.0) - f64::from(old_centre)) / f64::from(old_size);
    rounded(f64::from(centre) + inside * f64::from(size))
}

/// A coordinate that was worked out, with the digits that an f32 has.
fn rounded(value: f64) -> f64 {
    (value.clamp(0.0, 1.0) * 1e7).round() / 1e7
}

/// A box as the polygon of its corners.
fn polygon_text(label: &Label) -> String {
    let Label { class: ClassId(class), bbox } = label;
    let edge = |centre: f32, size: f32, side: f64| rounded(f64::from(centre) + side * f64::from(size));
    let [x1, x2] = [-0.5, 0.5].map(|side| edge(bbox.cx, bbox.w, side));
    let [y1, y2] = [-0.5, 0.5].map(|side| edge(bbox.cy, bbox.h, side));
    let mut text = String::with_capacity(96);
    write!(text, "{class} {x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2}").expect("writing to a string cannot fail");
    text
}

/// Puts rows at the end, in the style of the file: its line end, and none behind the last row where there was none.
fn append(bytes: &[u8], splices: &mut Vec<Splice>, rows: &[String]) {
    let line_end = match bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
        Some(place) => &bytes[place..place + parse::line_end(&bytes[place..])],
        None => b"\n",
    };
    let is_end = |byte: Option<&u8>| matches!(byte, None | Some(b'\n' | b'\r'));
    let text = bytes.strip_prefix(parse::BOM).unwrap_or(bytes);
    let ends_open = !is_end(text.last());
    // What stands before the new rows once the others have changed.
    let last_kept = {
        let mut end = bytes.len();
        for splice in splices.iter().rev().take_while(|splice| splice.inserted.0.is_empty()) {
            if splice.at + splice.removed.0.len() == end {
                end = splice.at;
            }
        }
        bytes[bytes.len() - text.len()..end.max(bytes.len() - text.len())].last()
    };
    let mut inserted = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 || !is_end(last_kept) {
            inserted.extend_from_slice(line_end);
        }
        inserted.extend_from_slice(row.as_bytes());
    }
    if !ends_open {
        inserted.extend_from_slice(line_end);
    }
    splices.push(Splice::new(bytes.len(), b"", inserted));
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::super::edit::ImageEdit;
    use super::super::parse::{ParseOptions, Verdict};
    use super::super::splice;
    use super::*;
    use crate::geom::Size;

    const OPTIONS: ParseOptions = ParseOptions { n_classes: 3, n_keypoint_fields: None };

    fn read(bytes: &[u8]) -> LabelFile {
        parse::parse(bytes, OPTIONS, &|| Some(Size::new(100, 200)))
    }

    fn label(class: u32, [cx, cy, w, h]: [f32; 4]) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx, cy, w, h } }
    }

    fn edited(text: &str, ops: &[LabelOp]) -> String {
        let splices = splices(text.as_bytes(), &read(text.as_bytes()), ops).unwrap();
        String::from_utf8(splice::apply(text.as_bytes(), &splices).unwrap()).unwrap()
    }

    const ODD: &str = "\u{feff}0 .50  .5 .20 .2 \r\n\r\nrubbish\r\n2.0\t.3 .3 .1 .1 # a\r\n1 .30 .3 .1 .1";

    #[test]
    fn only_the_fields_that_change_are_written() {
        let set = |index, label| [LabelOp::Set { index, label }];
        assert_eq!(edited(ODD, &set(0, label(2, [0.5, 0.5, 0.2, 0.2]))), ODD.replace("0 .50", "2 .50"), "a class");
        assert_eq!(edited(ODD, &set(1, label(1, [0.3, 0.35, 0.1, 0.1]))), ODD.replace("1 .30 .3", "1 .30 0.35"), "one coordinate");
        assert_eq!(edited(ODD, &set(1, label(1, [0.3, 0.3, 0.1, 0.1]))), ODD, "nothing");
    }

    #[test]
    fn rows_come_and_go_in_the_style_of_the_file() {
        let add = LabelOp::Add(label(0, [0.25, 0.5, 0.1, 0.2]));
        assert_eq!(edited(ODD, &[add]), format!("{ODD}\r\n0 0.25 0.5 0.1 0.2"), "no line end behind the last row, as before");
        assert_eq!(edited("", &[add, add]), "0 0.25 0.5 0.1 0.2\n0 0.25 0.5 0.1 0.2\n");
        assert_eq!(edited("\u{feff}", &[add]), "\u{feff}0 0.25 0.5 0.1 0.2\n");
        assert_eq!(edited("0 .5 .5 .1 .1\n", &[add]), "0 .5 .5 .1 .1\n0 0.25 0.5 0.1 0.2\n");
        assert_eq!(edited("0 .5 .5 .1 .1", &[add]), "0 .5 .5 .1 .1\n0 0.25 0.5 0.1 0.2");
        let remove = LabelOp::Remove { index: 0 };
        assert_eq!(edited("0 .5 .5 .1 .1\n", &[remove]), "", "the file stays, and is empty");
        assert_eq!(edited("0 .5 .5 .1 .1", &[remove, add]), "0 0.25 0.5 0.1 0.2", "no blank line before it");
        assert_eq!(edited("x\n0 .5 .5 .1 .1", &[remove, add]), "x\n0 0.25 0.5 0.1 0.2");
        assert_eq!(edited(ODD, &[remove]), ODD.replace("0 .50  .5 .20 .2 \r\n", ""));
    }

    #[test]
    fn repeats_of_a_row_that_changes_or_goes_go() {
        let text = "0 .5 .5 .2 .2\n1 .3 .3 .1 .1\n0 0.5 .5 .20 .2\r\nodd\n0 .5 .5 .2 .2";
        assert_eq!(edited(text, &[LabelOp::Remove { index: 0 }]), "1 .3 .3 .1 .1\nodd\n");
        let set = |index, label| [LabelOp::Set { index, label }];
        assert_eq!(edited(text, &set(0, label(2, [0.5, 0.5, 0.2, 0.2]))), "2 .5 .5 .2 .2\n1 .3 .3 .1 .1\nodd\n");
        assert_eq!(edited(text, &set(0, label(0, [0.5, 0.5, 0.2, 0.2]))), text, "nothing changes");
        assert_eq!(edited(text, &[LabelOp::Remove { index: 1 }]), text.replace("1 .3 .3 .1 .1\n", ""), "they repeat another one");
    }

    #[test]
    fn a_polygon_moves_with_its_box_and_keeps_its_shape_with_another_class() {
        let text = "1 .2 .2 .4 .2 .3 .6\n";
        let shown = read(text.as_bytes()).labels().next().unwrap();
        let class = Label { class: ClassId(2), ..shown };
        assert_eq!(edited(text, &[LabelOp::Set { index: 0, label: class }]), "2 .2 .2 .4 .2 .3 .6\n");
        let wider = Label { bbox: Xywhn { cx: 0.5, w: 0.4, ..shown.bbox }, ..shown };
        let after = edited(text, &[LabelOp::Set { index: 0, label: wider }]);
        assert!(after.starts_with("1 0.3 .2 0.7 .2 0.5 .6"), "{after}");
        let added = edited(text, &[LabelOp::Add(label(0, [0.5, 0.5, 0.5, 0.5]))]);
        assert_eq!(added, format!("{text}0 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75\n"));
        assert_eq!(read(added.as_bytes()).labels().nth(1), Some(label(0, [0.5, 0.5, 0.5, 0.5])));
    }

    #[test]
    fn a_box_that_was_cut_at_the_edge_is_written_whole_when_it_is_moved() {
        let text = "0 0.95 .5 .2 .2\n";
        let shown = read(text.as_bytes()).labels().next().unwrap();
        let class = Label { class: ClassId(1), ..shown };
        assert_eq!(edited(text, &[LabelOp::Set { index: 0, label: class }]), "1 0.95 .5 .2 .2\n", "its text stays");
        let moved = Label { bbox: Xywhn { cy: 0.6, ..shown.bbox }, ..shown };
        assert_eq!(edited(text, &[LabelOp::Set { index: 0, label: moved }]), "0 0.925 0.6 0.15 .2\n");
    }

    fn any_label() -> impl Strategy<Value = Label> {
        (0u32..3, 0.2f32..0.8, 0.2f32..0.8, 0.01f32..0.4, 0.01f32..0.4).prop_map(|(class, cx, cy, w, h)| label(class, [cx, cy, w, h]))
    }

    proptest! {
        #[test]
        fn the_file_then_says_what_the_edit_says_and_other_rows_stay(
            rows in proptest::collection::vec((any_label(), 0..4usize, 0..3usize), 0..6),
            added in proptest::collection::vec(any_label(), 0..3),
            chosen in proptest::collection::vec((0..3usize, any_label()), 6),
            ends_open in any::<bool>(),
        ) {
            let odd = ["", "\r\n", "9 .5 .5 .1 .1\n", "not a row\n"];
            let row = |label: &Label| parse::row_text(label) + "\n";
            let mut text: String = rows.iter().flat_map(|(label, n, _)| [odd[*n].to_owned(), row(label)]).collect();
            // Some rows are there twice or three times.
            text.extend(rows.iter().flat_map(|(label, _, n)| vec![row(label); *n]));
            if ends_open {
                text.pop();
            }
            let file = read(text.as_bytes());
            let labels: Vec<Label> = file.labels().collect();
            let mut ops: Vec<LabelOp> = added.into_iter().map(LabelOp::Add).collect();
            for (index, (what, label)) in chosen.into_iter().enumerate().take(labels.len()) {
                match what {
                    0 => ops.push(LabelOp::Remove { index }),
                    1 => ops.push(LabelOp::Set { index, label }),
                    _ => {}
                }
            }
            let wanted = ImageEdit::new(0, ops.clone()).applied(&labels).unwrap();
            let splices = splices(text.as_bytes(), &file, &ops).unwrap();
            let after = splice::apply(text.as_bytes(), &splices).unwrap();
            prop_assert_eq!(read(&after).labels().collect::<Vec<_>>(), wanted);
            prop_assert_eq!(splice::apply(&after, &splice::inverse(&splices)).unwrap(), text.as_bytes());
            let is_odd = |row: &&Row| matches!(&row.verdict, Verdict::Dropped(dropped) if dropped.same_as.is_none());
            let n_odd = |bytes: &[u8]| read(bytes).rows.iter().filter(is_odd).count();
            prop_assert_eq!(n_odd(&after), n_odd(text.as_bytes()));
        }
    }
}
