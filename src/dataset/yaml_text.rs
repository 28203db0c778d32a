//! How is data.yaml changed without rewriting it? Names of classes and places of splits, in the style that is there.
//!
//! In:  the text of a data.yaml, and the names or places that it is to have.
//! Out: the text with them; every other byte as it was.
//!
//! Names are found as a list or a map, in one line or in many. What was made is read again by the reader of `data_yaml.rs`, and must say
//! what was wanted: a form that is not understood is first rewritten as a plain map, and if that does not help, nothing is changed.

use std::fmt::Write as _;
use std::ops::Range;

use super::data_yaml;
use super::label::Split;

/// The text with these names, and with their number where it is given; `None` where the form is not understood.
pub(super) fn with_names(text: &str, names: &[String]) -> Option<String> {
    let says_so = |text: &String| data_yaml::parse(text).is_ok_and(|yaml| yaml.names == names);
    let old = data_yaml::parse(text).ok()?.names;
    let in_style = change_names(text, &old, names).map(|text| with_count(&text, old.len(), names.len()));
    in_style.filter(says_so).or_else(|| Some(with_count(&rewritten(text, names)?, old.len(), names.len())).filter(says_so))
}

/// The text in which each of these splits is one place, or none; `None` where the form is not understood.
pub(super) fn with_places(text: &str, places: &[(Split, Option<String>)]) -> Option<String> {
    let mut changed = text.to_owned();
    for (split, place) in places {
        let keys: &[&str] = match split {
            Split::Train => &["train"],
            Split::Val => &["val", "valid", "validation"],
            Split::Test => &["test"],
        };
        let mut written = false;
        for key in keys {
            let Some(entry) = Entry::find(&changed, key) else { continue };
            // The first key that is there says it; the others must not say something else.
            let value = place.as_deref().filter(|_| !written).map(|place| format!(" {}", data_yaml::quoted(place))).unwrap_or_default();
            written = true;
            let kept = entry.comment(&changed);
            let end = if changed[entry.value.clone()].ends_with('\n') { line_end(&changed) } else { "" };
            changed.replace_range(entry.value.clone(), &format!("{value}{kept}{end}"));
        }
        if !written && let Some(place) = place {
            let end = line_end(&changed).to_owned();
            if !changed.is_empty() && !changed.ends_with('\n') {
                changed.push_str(&end);
            }
            write!(changed, "{}: {}{end}", keys[0], data_yaml::quoted(place)).expect("writing to a string cannot fail");
        }
    }
    let (before, after) = (data_yaml::parse(text).ok()?, data_yaml::parse(&changed).ok()?);
    let is_right = places.iter().all(|(split, place)| after.places(*split).iter().eq(place));
    (is_right && before.names == after.names && before.path == after.path).then_some(changed)
}

/// A key at the start of a line, and where its value stands.
struct Entry {
    /// From behind the colon to before the line end of its last line, or for a value of several lines with that line end.
    value: Range<usize>,
}

impl Entry {
    fn find(text: &str, key: &str) -> Option<Self> {
        let mut start = 0;
        let lines: Vec<(usize, &str)> = text
            .split_inclusive('\n')
            .map(|line| {
                let place = start;
                start += line.len();
                (place, line)
            })
            .collect();
        let (index, at) = lines.iter().enumerate().find_map(|(index, (place, line))| {
            let rest = line.strip_prefix(key)?;
            let colon = rest.len() - rest.trim_start_matches(' ').len();
            rest[colon..].starts_with(':').then_some((index, place + key.len() + colon + 1))
        })?;
        let first_end = lines[index].0 + lines[index].1.trim_end_matches(['\r', '\n']).len();
        let is_inside = |line: &str| {
            let bare = line.trim_end();
            bare.is_empty() || bare.starts_with([' ', '\t', '#']) || bare == "-" || bare.starts_with("- ") || bare.starts_with([']', '}'])
        };
        let mut end = first_end;
        for (place, line) in &lines[index + 1..] {
            if !is_inside(line) {
                break;
            }
            // Blank lines and comments behind the value belong to what follows.
            if !line.trim().is_empty() && !line.starts_with('#') {
                end = place + line.len();
            }
        }
        Some(Self { value: at..end })
    }

    /// The comment behind a value of one line.
    fn comment<'a>(&self, text: &'a str) -> &'a str {
        let value = &text[self.value.clone()];
        if value.contains('\n') { "" } else { &value[scalar(value).end..] }
    }
}

/// The usual line end of a text.
fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// A name in the text.
struct Item {
    index: usize,
    /// The name alone.
    scalar: Range<usize>,
    /// The line that it stands in, if it has one of its own.
    line: Option<Range<usize>>,
    /// What stands before the name in a line of its own, up to the key: indentation and dash.
    prefix: String,
    is_keyed: bool,
}

fn change_names(text: &str, old: &[String], names: &[String]) -> Option<String> {
    let Some(entry) = Entry::find(text, "names") else {
        // Only `nc`: the names are written behind it.
        let count = Entry::find(text, "nc")?;
        let end = line_end(text);
        let mut changed = text.to_owned();
        changed.insert_str(count.value.end, &format!("{end}{}", as_map(names, end).trim_end()));
        return Some(changed);
    };
    let mut items = items(text, &entry)?;
    items.sort_by_key(|item| item.index);
    if items.len() != old.len() || items.iter().enumerate().any(|(place, item)| item.index != place) {
        return None;
    }
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for ((item, old), new) in items.iter().zip(old).zip(names) {
        if old != new {
            edits.push((item.scalar.clone(), data_yaml::quoted(new)));
        }
    }
    let last = items.iter().max_by_key(|item| item.scalar.start)?;
    let mut added = String::new();
    for (index, name) in names.iter().enumerate().skip(items.len()) {
        let key = if last.is_keyed { format!("{index}: ") } else { String::new() };
        match &last.line {
            Some(_) => write!(added, "{}{}{key}{}", line_end(text), last.prefix, data_yaml::quoted(name)),
            None => write!(added, ", {key}{}", data_yaml::quoted(name)),
        }
        .expect("writing to a string cannot fail");
    }
    if !added.is_empty() {
        let place = last.line.as_ref().map_or(last.scalar.end, |line| line.start + text[line.clone()].trim_end_matches(['\r', '\n']).len());
        edits.push((place..place, added));
    }
    for item in items.iter().skip(names.len()) {
        let range = if let Some(line) = &item.line {
            line.clone()
        } else {
            // With the comma and what else stands between it and the item before.
            items.iter().map(|other| other.scalar.end).filter(|&end| end <= item.scalar.start).max()?..item.scalar.end
        };
        edits.push((range, String::new()));
    }
    // From the end to the start, so that places stay right. Insertions come before replacements that end there.
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut changed = text.to_owned();
    for (range, new) in edits.into_iter().rev() {
        changed.replace_range(range, &new);
    }
    Some(changed)
}

/// The names of a value, wherever they stand.
fn items(text: &str, entry: &Entry) -> Option<Vec<Item>> {
    let value = &text[entry.value.clone()];
    let trimmed = value.trim_start();
    let at = entry.value.start + value.len() - trimmed.len();
    match trimmed.chars().next()? {
        open @ ('[' | '{') => flow_items(text, at + 1, open == '{'),
        _ => block_items(text, entry),
    }
}

/// Names in brackets.
fn flow_items(text: &str, start: usize, is_keyed: bool) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    let mut item_start = start;
    let mut quote: Option<char> = None;
    let mut before = ' ';
    let mut chars = text[start..].char_indices();
    while let Some((offset, c)) = chars.next() {
        let place = start + offset;
        match (quote, c) {
            (Some('"'), '\\') => drop(chars.next()),
            (Some(open), c) if c == open => quote = None,
            (None, '#') if before.is_whitespace() => return None, // a comment between names: rewritten instead
            (None, '[' | '{') => return None,
            (None, '"' | '\'') if text[item_start..place].trim_end().is_empty() || text[item_start..place].trim_end().ends_with(':') => {
                quote = Some(c);
            }
            (None, ',' | ']' | '}') => {
                let part = &text[item_start..place];
                if !part.trim().is_empty() {
                    let scalar = item_start + part.len() - part.trim_start().len()..item_start + part.trim_end().len();
                    let (index, scalar) = if is_keyed { keyed(text, scalar)? } else { (items.len(), scalar) };
                    items.push(Item { index, scalar, line: None, prefix: String::new(), is_keyed });
                }
                item_start = place + 1;
                if c != ',' {
                    return Some(items);
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}

/// Names in lines.
fn block_items(text: &str, entry: &Entry) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    let mut place = entry.value.start;
    for (number, line) in text[entry.value.clone()].split_inclusive('\n').enumerate() {
        let range = place..place + line.len();
        place = range.end;
        let bare = line.trim_end();
        let body = bare.trim_start();
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        if number == 0 {
            return None; // a value behind the key
        }
        let indent = bare.len() - body.len();
        let is_listed = body.starts_with("- ");
        let prefix_len = if is_listed { indent + 2 + body[2..].len() - body[2..].trim_start().len() } else { indent };
        let rest = &bare[prefix_len..];
        let start = range.start + prefix_len;
        let (index, scalar) = if is_listed {
            let scalar = scalar(rest);
            (items.len(), start + scalar.start..start + scalar.end)
        } else {
            keyed(text, start..start + rest.len())?
        };
        let prefix = bare[..prefix_len].to_owned();
        items.push(Item { index, scalar, line: Some(range), prefix, is_keyed: !is_listed });
    }
    Some(items)
}

/// Key and value of `0: name` or `'0': name`.
fn keyed(text: &str, range: Range<usize>) -> Option<(usize, Range<usize>)> {
    let (key, _) = text[range.clone()].split_once(':')?;
    let index = key.trim().trim_matches(['"', '\'']).parse().ok()?;
    let start = range.start + key.len() + 1;
    let scalar = scalar(&text[start..range.end]);
    Some((index, start + scalar.start..start + scalar.end))
}

/// Where the scalar of a line stands, without the blanks around it and the comment behind.
fn scalar(line: &str) -> Range<usize> {
    let start = line.len() - line.trim_start().len();
    let body = &line[start..];
    let end = match body.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let mut is_escaped = false;
            let close = body.char_indices().skip(1).find(|&(_, c)| {
                let closes = c == quote && !is_escaped;
                is_escaped = quote == '"' && c == '\\' && !is_escaped;
                closes
            });
            close.map_or(body.len(), |(place, _)| place + 1)
        }
        _ if body.starts_with('#') => 0,
        _ => body.find(" #").unwrap_or(body.len()),
    };
    start..start + body[..end].trim_end().len()
}

/// The value of `names` as a map in lines, whatever it was.
fn rewritten(text: &str, names: &[String]) -> Option<String> {
    let entry = Entry::find(text, "names")?;
    let end = line_end(text);
    let map = as_map(names, end);
    let map = map.strip_prefix("names:")?;
    let value = &text[entry.value.clone()];
    let map = if value.ends_with('\n') { map } else { map.trim_end() };
    let mut changed = text.to_owned();
    changed.replace_range(entry.value, map);
    Some(changed)
}

fn as_map(names: &[String], end: &str) -> String {
    let lines = names.iter().enumerate().map(|(index, name)| format!("  {index}: {}{end}", data_yaml::quoted(name)));
    std::iter::once(format!("names:{end}")).chain(lines).collect::<Vec<_>>().concat()
}

/// The text with `nc` as the number of names, where it has one and the number has changed.
fn with_count(text: &str, old: usize, new: usize) -> String {
    let mut changed = text.to_owned();
    if old != new
        && let Some(entry) = Entry::find(text, "nc")
    {
        let value = &text[entry.value.clone()];
        let scalar = scalar(value);
        changed.replace_range(entry.value.start + scalar.start..entry.value.start + scalar.end, &new.to_string());
    }
    changed
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn names_change_in_the_style_that_is_there() {
        for (before, wanted, after) in [
            (
                "train: a\nnc: 2 # so many\nnames: [x, 'y']  # mine\nval: b\n",
                &["x", "z w"][..],
                "train: a\nnc: 2 # so many\nnames: [x, \"z w\"]  # mine\nval: b\n",
            ),
            ("names: ['x', y]\nnc: 2\ntrain: a", &["x", "y", "z"], "names: ['x', y, z]\nnc: 3\ntrain: a"),
            ("train: a\nnames:\n- x # one\n- y\nnc: 2\n", &["x", "y", "no"], "train: a\nnames:\n- x # one\n- y\n- \"no\"\nnc: 3\n"),
            (
                "names:\r\n  0: x\r\n  1: y\r\n\r\n# end\r\ntrain: a\r\n",
                &["x2", "y", "z"],
                "names:\r\n  0: x2\r\n  1: y\r\n  2: z\r\n\r\n# end\r\ntrain: a\r\n",
            ),
            ("train: a\nnames:\n  '0': x\n  '1': y\n", &["x"], "train: a\nnames:\n  '0': x\n"),
            ("train: a\nnames: {0: x, 1: \"y, z\", 2: w}\n", &["x", "w"], "train: a\nnames: {0: x, 1: w}\n"),
            ("train: a\nnames: [\n  x,\n  y,\n]\n", &["x", "y", "z"], "train: a\nnames: [\n  x,\n  y, z,\n]\n"),
            ("train: a\nnames:\n  1: y\n  0: x\nval: b", &["q", "y"], "train: a\nnames:\n  1: y\n  0: q\nval: b"),
            ("nc: 2\ntrain: a\n", &["class_0", "bolt"], "nc: 2\nnames:\n  0: class_0\n  1: bolt\ntrain: a\n"),
            ("train: a\nnames: [x, # one\n y]\nval: b\n", &["z", "y"], "train: a\nnames:\n  0: z\n  1: \"y\"\nval: b\n"),
        ] {
            assert_eq!(with_names(before, &names(wanted)).as_deref(), Some(after), "{before}");
        }
        assert_eq!(with_names("train: a\n", &names(&["x"])), None, "no data.yaml");
    }

    #[test]
    fn places_change_and_other_keys_stay() {
        let places =
            |places: &[(Split, Option<&str>)]| places.iter().map(|(split, place)| (*split, place.map(str::to_owned))).collect::<Vec<_>>();
        let all = places(&[(Split::Train, Some("train.txt")), (Split::Val, Some("val.txt")), (Split::Test, None)]);
        for (before, after) in [
            (
                "path: .\ntrain: images/train # 128\nval: images/val\nnames: [x]\n",
                "path: .\ntrain: train.txt # 128\nval: val.txt\nnames: [x]\n",
            ),
            ("train:\n  - a\n  - b\nvalid: c\ntest: d\nnames: [x]\n", "train: train.txt\nvalid: val.txt\ntest:\nnames: [x]\n"),
            ("names: [x]\ntrain: [a,\n b]", "names: [x]\ntrain: train.txt\nval: val.txt\n"),
            ("names: [x]\r\ntrain: a\r\nval:\r\n", "names: [x]\r\ntrain: train.txt\r\nval: val.txt\r\n"),
        ] {
            assert_eq!(with_places(before, &all).as_deref(), Some(after), "{before}");
        }
    }

    proptest! {
        #[test]
        fn any_names_read_back(
            old in proptest::collection::vec("[a-z' :#,\\[\\]{}\"\\\\é-]{1,6}", 1..5),
            new in proptest::collection::vec("[a-z' :#,\\[\\]{}\"\\\\é-]{1,6}", 1..5),
            style in 0..4,
        ) {
            let quoted: Vec<String> = old.iter().map(|name| data_yaml::quoted(name)).collect();
            let lines = |f: &dyn Fn(usize, &String) -> String| quoted.iter().enumerate().map(|(i, name)| f(i, name)).collect::<Vec<_>>();
            let value = match style {
                0 => format!(" [{}]\n", lines(&|_, name| name.clone()).join(", ")),
                1 => format!(" {{{}}}\n", lines(&|i, name| format!("{i}: {name}")).join(",")),
                2 => format!("\n{}", lines(&|_, name| format!("- {name}\n")).concat()),
                _ => format!("\n{}", lines(&|i, name| format!("  {i}: {name} # {i}\n")).concat()),
            };
            let text = format!("# mine\ntrain: a\nnc: {}\nnames:{value}other: {{a: [1]}}\n", old.len());
            prop_assume!(data_yaml::parse(&text).is_ok_and(|yaml| yaml.names == old));
            let changed = with_names(&text, &new).unwrap();
            let yaml = data_yaml::parse(&changed).unwrap();
            prop_assert_eq!(yaml.names, new.clone());
            prop_assert_eq!(yaml.n_classes, Some(if old.len() == new.len() { old.len() } else { new.len() }));
            prop_assert!(changed.starts_with("# mine\ntrain: a\n") && changed.ends_with("other: {a: [1]}\n"), "{}", changed);
            prop_assert_eq!(with_names(&text, &old).unwrap(), text);
        }
    }
}
