//! Rows that are not used as they are spelled, but plainly mean something: what text would say it?
//!
//! In:  the rows of one label file with their verdicts, and how rows are read.
//! Out: for the rows that can be spelled anew without guessing, the new text; they stay dropped until it is written.
//!
//! Decimal commas and comma-separated fields only where all rows of the file are like that and then lie in the image; a class
//! name only where it is exactly one of the dataset's and stands among them once; a negative size only where the box of that
//! size lies in the image. Never touches a number.

use std::collections::HashMap;

use super::edge::EDGE_EPSILON;
use super::parse::{self, ParseOptions, Row, Verdict};
use super::rule::{Fixability, Rule};
use crate::geom::Size;

/// How the rows of a file are read.
pub(super) struct Spelling<'a> {
    pub(super) options: ParseOptions,
    pub(super) names: &'a [String],
    pub(super) size: &'a dyn Fn() -> Option<Size>,
}

/// Marks the rows that can be mended, and returns how many will be used then. `seen` holds what makes rows the same.
pub(super) fn mend(bytes: &[u8], rows: &mut [Row], seen: &mut HashMap<Vec<u32>, usize>, spelling: &Spelling<'_>) -> usize {
    let whole_file = whole_file_rule(bytes, rows, spelling);
    let mut n_mended = 0;
    for (index, row) in rows.iter_mut().enumerate() {
        let Some((rule, text)) = respelled(bytes, row, spelling) else { continue };
        if matches!(rule, Rule::CommaDecimals | Rule::CommaSeparated) && whole_file != Some(rule) {
            continue;
        }
        let Some((text, identity)) = parse::used_text(&text, spelling.options, spelling.size) else { continue };
        let Verdict::Dropped(dropped) = &mut row.verdict else { continue };
        dropped.fix = Fixability::Auto;
        // A row that would repeat another one goes.
        if *seen.entry(identity).or_insert(index) == index {
            dropped.mended = Some(text);
            n_mended += 1;
        }
    }
    n_mended
}

/// The one way in which all rows of the file are spelled wrongly, if that is so and all can be read then.
fn whole_file_rule(bytes: &[u8], rows: &[Row], spelling: &Spelling<'_>) -> Option<Rule> {
    let rule = match &rows.first()?.verdict {
        Verdict::Dropped(dropped) if matches!(dropped.rule, Rule::CommaDecimals | Rule::CommaSeparated) => dropped.rule,
        _ => return None,
    };
    let is_like_it = |row: &Row| {
        let text = respelled(bytes, row, spelling).filter(|(of_row, _)| *of_row == rule).map(|(_, text)| text);
        text.is_some_and(|text| text.split(' ').count() == 5 && parse::used_text(&text, spelling.options, spelling.size).is_some())
    };
    rows.iter().all(is_like_it).then_some(rule)
}

/// The text that a dropped row means, whether or not it would be used.
fn respelled(bytes: &[u8], row: &Row, spelling: &Spelling<'_>) -> Option<(Rule, String)> {
    let Verdict::Dropped(dropped) = &row.verdict else { return None };
    let text = &bytes[row.bytes.clone()];
    let fields: Vec<&[u8]> = parse::tokens(text).map(|token| &text[token]).collect();
    let fields = match dropped.rule {
        Rule::CommaDecimals => with_points(&fields)?,
        Rule::CommaSeparated => {
            let text = std::str::from_utf8(text).ok()?;
            let separator = if text.contains(';') { ';' } else { ',' };
            let parts = text.trim().trim_end_matches(separator).split(separator);
            parts.map(|part| part.trim().replace(',', ".")).collect()
        }
        Rule::ClassByName => with_class_number(&fields, spelling.names)?,
        Rule::NegativeSize if fields.len() == 5 => with_positive_size(&fields)?,
        _ => return None,
    };
    Some((dropped.rule, fields.join(" ")))
}

/// The fields of a row with decimal commas, with points; `None` where a comma stands elsewhere or there are not five fields.
pub(super) fn with_points(fields: &[&[u8]]) -> Option<Vec<String>> {
    if fields.len() != 5 {
        return None;
    }
    let point = |field: &&[u8]| {
        let text = std::str::from_utf8(field).ok()?;
        let Some((whole, rest)) = text.split_once(',') else { return parse::number(field).map(|_| text.to_owned()) };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        (digits(whole.trim_start_matches('-')) && digits(rest)).then(|| format!("{whole}.{rest}"))
    };
    fields.iter().map(point).collect()
}

/// The row with its class as a number. A name may hold blanks, as long as four numbers follow.
fn with_class_number(fields: &[&[u8]], names: &[String]) -> Option<Vec<String>> {
    let texts: Option<Vec<&str>> = fields.iter().map(|field| std::str::from_utf8(field).ok()).collect();
    let texts = texts.filter(|texts| texts.len() >= 5)?;
    let (name, numbers) = texts.split_at(texts.len() - 4);
    let name = name.join(" ");
    let mut same = names.iter().enumerate().filter(|(_, each)| **each == name);
    let (class, _) = same.next().filter(|_| same.next().is_none())?;
    Some(std::iter::once(class.to_string()).chain(numbers.iter().map(|text| (*text).to_owned())).collect())
}

/// The row without the minus signs of its size, where the box then lies in the image.
fn with_positive_size(fields: &[&[u8]]) -> Option<Vec<String>> {
    let values: Option<Vec<f64>> = fields.iter().map(|field| parse::number(field)).collect();
    let values = values?;
    let lies_inside = |centre: f64, size: f64| {
        let half = size.abs() / 2.0;
        centre - half >= -EDGE_EPSILON && centre + half <= 1.0 + EDGE_EPSILON
    };
    if !lies_inside(values[1], values[3]) || !lies_inside(values[2], values[4]) {
        return None;
    }
    let text = |(index, field): (usize, &&[u8])| {
        let text = String::from_utf8_lossy(field);
        if index >= 3 { text.trim_start_matches('-').to_owned() } else { text.into_owned() }
    };
    Some(fields.iter().enumerate().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: ParseOptions = ParseOptions { n_classes: 3, n_keypoint_fields: None };

    /// What `fix` does with each row: `-` nothing, `x` removes it, or the new text.
    fn mended(text: &str) -> Vec<String> {
        let names = ["car", "traffic light", "bus"].map(str::to_owned);
        let file = parse::parse_named(text.as_bytes(), OPTIONS, &names, &|| Some(Size::new(100, 100)));
        let outcome = |row: &Row| match &row.verdict {
            Verdict::Dropped(dropped) if dropped.fix == Fixability::Auto => dropped.mended.clone().unwrap_or_else(|| "x".to_owned()),
            _ => "-".to_owned(),
        };
        file.rows.iter().map(outcome).collect()
    }

    #[test]
    fn commas_are_mended_only_where_the_whole_file_has_them() {
        assert_eq!(mended("0 0,5 0,5 0,2 0,2\n1 0,3 0,5 0,1 1\n"), ["0 0.5 0.5 0.2 0.2", "1 0.3 0.5 0.1 1"]);
        assert_eq!(mended("0 0,5 0,5 0,2 0,2\n1 0.3 0.2 0.1 0.1\n"), ["-", "-"], "a mixed file");
        assert_eq!(mended("0,0.5,0.5,0.2,0.2\n1, .3, .3, .1, .1\n"), ["0 0.5 0.5 0.2 0.2", "1 .3 .3 .1 .1"]);
        assert_eq!(mended("0;0,5;0,5;0,2;0,2\n"), ["0 0.5 0.5 0.2 0.2"]);
        assert_eq!(mended("0,0.5,0.5,0.2\n"), ["-"], "four fields");
        assert_eq!(mended("0,50,60,20,20\n"), ["-"], "pixels");
    }

    #[test]
    fn a_class_name_is_mended_only_where_it_is_exactly_one() {
        assert_eq!(mended("bus .5 .5 .2 .2\ntraffic light .3 .3 .1 .1\n"), ["2 .5 .5 .2 .2", "1 .3 .3 .1 .1"]);
        assert_eq!(mended("Bus .5 .5 .2 .2\nbus .5 .5 .2\n"), ["-", "-"]);
    }

    #[test]
    fn a_negative_size_is_mended_only_where_the_box_lies_inside() {
        assert_eq!(mended("0 .5 .50 -.20 .2\n0 .05 .5 -.2 .2\n"), ["0 .5 .50 .20 .2", "-"]);
    }

    #[test]
    fn a_row_that_would_repeat_another_goes() {
        assert_eq!(mended("car .5 .5 .2 .2\n0 .5 .5 .2 .2\n"), ["x", "-"]);
    }

    #[test]
    fn not_a_number_goes_only_beside_others() {
        assert_eq!(mended("0 nan .5 .2 .2\n"), ["-"]);
        assert_eq!(mended("0 nan .5 .2 .2\nbus .5 .5 .2 .2\n"), ["x", "2 .5 .5 .2 .2"]);
    }
}
