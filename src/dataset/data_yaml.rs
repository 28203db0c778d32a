//! data.yaml in its usual variants, read and written.
//!
//! In:  the file's text: `path`, `train`, `val` (also `valid`, `validation`), `test`, each a text or a list; `names` as a
//!      list or a map from index to name; or `nc` alone.
//! Out: `DataYaml` with names in class order and the places as written; the file with line and reason when it is wrong.
//!
//! Scalars are taken as text, so that a class may be called `no`, `on` or `3`. A `download` script is never run, only
//! noted. Where the places are on disk is found out in `open.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::label::Split;
use super::open::DatasetError;

/// Class numbers above this are taken for a mistake, not for that many names.
const MAX_CLASSES: usize = 100_000;

/// What a data.yaml says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataYaml {
    /// `path`: the folder that the splits are relative to.
    pub path: Option<String>,
    pub train: Vec<String>,
    pub val: Vec<String>,
    pub test: Vec<String>,
    pub names: Vec<String>,
    /// `nc`, if given.
    pub n_classes: Option<usize>,
    /// Numbers after the box in a row of a pose dataset, from `kpt_shape`.
    pub n_keypoint_fields: Option<usize>,
    /// Worth saying, but nothing to stop for.
    pub notes: Vec<String>,
}

impl DataYaml {
    /// Reads a data.yaml.
    ///
    /// # Errors
    /// When the file cannot be read, is not YAML, has a value of the wrong kind, or has neither names nor `nc`; with line.
    pub fn read(path: &Path) -> Result<Self, DatasetError> {
        let bytes = std::fs::read(path).map_err(|source| DatasetError::Io { path: path.display().to_string(), source })?;
        let failed = |(line, reason): (Option<u64>, String)| DatasetError::Yaml {
            path: path.display().to_string(),
            reason: line.map_or_else(|| reason.clone(), |line| format!("line {line}: {reason}")),
        };
        let text = String::from_utf8(bytes).map_err(|error| failed((None, format!("is not UTF-8 text ({})", error.utf8_error()))))?;
        parse(&text).map_err(failed)
    }

    /// The places of a split, as written.
    pub fn places(&self, split: Split) -> &[String] {
        match split {
            Split::Train => &self.train,
            Split::Val => &self.val,
            Split::Test => &self.test,
        }
    }

    /// The text of a data.yaml that Boxwright and the public trainers read.
    ///
    /// Names are quoted, since YAML takes `no` for a boolean and `012` for a number.
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for (key, places) in [("path", self.path.as_slice()), ("train", &self.train), ("val", &self.val), ("test", &self.test)] {
            match places {
                [] => {}
                [one] => lines.push(format!("{key}: {}", quoted(one))),
                many => {
                    lines.push(format!("{key}:"));
                    lines.extend(many.iter().map(|one| format!("  - {}", quoted(one))));
                }
            }
        }
        lines.push(format!("nc: {}", self.names.len()));
        lines.push("names:".to_owned());
        lines.extend(self.names.iter().enumerate().map(|(index, name)| format!("  {index}: {}", quoted(name))));
        lines.join("\n") + "\n"
    }
}

/// A YAML scalar that reads back as this very text: plain where that is safe, else in double quotes.
pub(super) fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.' || c == '/')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
        && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'e' || b == b'E')
        && !["true", "false", "yes", "no", "on", "off", "null", "y", "n", ".nan", ".inf"].contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            c if c.is_control() => out.extend(format!("\\U{:08X}", u32::from(c)).chars()),
            c => out.push(c),
        }
    }
    out + "\""
}

pub(super) type Reason = (Option<u64>, String);

pub(super) fn parse(text: &str) -> Result<DataYaml, Reason> {
    let options = || {
        serde_saphyr::options! {
            strict_booleans: true,
            underscored_numbers_as_strings: true,
            with_snippet: false,
        }
    };
    let raw: Raw = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let line = error.location().map(|location| location.line());
        let tab = line.and_then(|line| text.lines().nth(line as usize - 1)).is_some_and(|line| {
            line.trim_start_matches(' ').starts_with('\t') // YAML forbids it, editors insert it
        });
        match line {
            Some(line) if tab => (Some(line), "is indented with a tab; YAML wants spaces".to_owned()),
            line => (line.filter(|&line| line > 0), plain_reason(&error.without_snippet().to_string())),
        }
    })?;

    let mut notes = Vec::new();
    let n_classes = match &raw.nc {
        None => None,
        Some(Text(nc)) => match nc.trim().parse::<usize>() {
            Ok(n) if n <= MAX_CLASSES => Some(n),
            _ => return Err((key_line(text, "nc"), format!("`nc` is {nc:?}, expected a number of classes"))),
        },
    };
    let names = match (raw.names, n_classes) {
        (Some(Names(names)), _) => dense_names(names).map_err(|reason| (key_line(text, "names"), reason))?,
        (None, Some(n)) => {
            notes.push(format!("data.yaml has no `names`; the {n} classes are called class_0, class_1, …"));
            class_names(n)
        }
        (None, None) => return Err((None, "has neither `names` nor `nc`".to_owned())),
    };
    if names.is_empty() {
        return Err((key_line(text, "names").or_else(|| key_line(text, "nc")), "has no class names".to_owned()));
    }
    if let Some(n) = n_classes.filter(|&n| n != names.len()) {
        notes.push(format!("data.yaml says nc: {n}, but names {} classes; the names count", names.len()));
    }
    if raw.download.is_some() {
        notes.push("data.yaml has a `download` entry; it was not run".to_owned());
    }
    // Other programs' keys must not stop anyone, whatever they hold: read apart.
    let pose: Option<Pose> = serde_saphyr::from_str_with_options(text, options()).ok();
    let n_keypoint_fields = pose.and_then(|pose| match pose.kpt_shape.as_deref() {
        Some([n, dims @ (2 | 3)]) if (1..10_000).contains(n) => Some((n * dims) as usize),
        _ => None,
    });
    if n_keypoint_fields.is_some() {
        notes.push("this is a pose dataset; its boxes are used, its keypoints are not".to_owned());
    }
    let val: Vec<String> =
        [raw.val, raw.valid, raw.validation].into_iter().flatten().find(|places| !places.0.is_empty()).unwrap_or_default().0;
    let (train, test) = (raw.train.unwrap_or_default().0, raw.test.unwrap_or_default().0);
    if train.is_empty() && val.is_empty() && test.is_empty() {
        return Err((None, "has no `train`, `val` or `test`".to_owned()));
    }
    let path = raw.path.map(|Text(path)| path).filter(|path| !path.trim().is_empty());
    Ok(DataYaml { path, train, val, test, names, n_classes, n_keypoint_fields, notes })
}

/// Names for classes that have none.
pub(super) fn class_names(n: usize) -> Vec<String> {
    (0..n).map(|index| format!("class_{index}")).collect()
}

/// The names in order of their index; every index from 0 must be there.
fn dense_names(names: BTreeMap<usize, String>) -> Result<Vec<String>, String> {
    let missing = (0..).zip(names.keys()).find(|&(expected, &index)| expected != index);
    match missing {
        Some((0, index)) => Err(format!("`names` starts at index {index}, expected 0")),
        Some((expected, index)) => Err(format!("`names` has no index {expected} (the next one is {index})")),
        None => Ok(names.into_values().collect()),
    }
}

/// The line of a top-level key, for messages.
fn key_line(text: &str, key: &str) -> Option<u64> {
    let found = text.lines().position(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')));
    found.map(|index| index as u64 + 1)
}

/// One line without the position, which stands in front already.
fn plain_reason(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    line.rsplit_once(" at line ").map_or(line, |(reason, _)| reason).to_owned()
}

#[derive(Deserialize)]
struct Raw {
    path: Option<Text>,
    train: Option<Places>,
    val: Option<Places>,
    valid: Option<Places>,
    validation: Option<Places>,
    test: Option<Places>,
    nc: Option<Text>,
    names: Option<Names>,
    download: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Pose {
    kpt_shape: Option<Vec<u32>>,
}

/// A scalar as text, whatever it looks like.
#[derive(Deserialize)]
struct Text(String);

/// A text or a list of texts.
#[derive(Default)]
struct Places(Vec<String>);

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PlacesVisitor;
        impl<'de> Visitor<'de> for PlacesVisitor {
            type Value = Places;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a folder, a .txt list, or a list of those")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Places, E> {
                Ok(Places(if text.trim().is_empty() { Vec::new() } else { vec![text.to_owned()] }))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Places, E> {
                self.visit_str(&number.to_string()) // a folder called 2017
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Places, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Places, E> {
                Ok(Places::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Places, A::Error> {
                let mut places = Vec::new();
                while let Some(place) = list.next_element::<Option<String>>()? {
                    places.extend(place.filter(|place| !place.trim().is_empty()));
                }
                Ok(Places(places))
            }
        }
        deserializer.deserialize_any(PlacesVisitor)
    }
}

/// A list of names, or a map from index to name.
struct Names(BTreeMap<usize, String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of names, or a map from class number to name")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
                let mut names = BTreeMap::new();
                while let Some(name) = list.next_element::<String>()? {
                    names.insert(names.len(), name);
                }
                Ok(Names(names))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut names = BTreeMap::new();
                while let Some((key, name)) = map.next_entry::<String, String>()? {
                    let index = key.trim().parse().ok().filter(|&index| index < MAX_CLASSES);
                    let index =
                        index.ok_or_else(|| serde::de::Error::custom(format!("class number {key:?} in `names`, expected 0, 1, …")))?;
                    if names.insert(index, name).is_some() {
                        return Err(serde::de::Error::custom(format!("class number {index} is there twice in `names`")));
                    }
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(NamesVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(&format!("train: images/train\n{text}")).unwrap().names
    }

    fn reason(text: &str) -> String {
        let (line, reason) = parse(text).unwrap_err();
        line.map_or_else(|| reason.clone(), |line| format!("{line}: {reason}"))
    }

    #[test]
    fn names_come_as_list_map_or_count() {
        assert_eq!(names("names: [person, no, 3, on, 1e3, 012]"), ["person", "no", "3", "on", "1e3", "012"]);
        assert_eq!(names("names:\n  1: b\n  0: off"), ["off", "b"]);
        assert_eq!(names("names:\n  '0': a\n  '1': yes\n  \"2\": null_"), ["a", "yes", "null_"]);
        assert_eq!(names("nc: 2"), ["class_0", "class_1"]);
        assert_eq!(names("\nnc: 1\r\nnames:\r\n- a b\r\n- 'c: d'\r\n"), ["a b", "c: d"]);
    }

    #[test]
    fn places_come_as_text_or_list_and_under_other_names() {
        let yaml = parse("path: ../data\ntrain: [a, b.txt]\nvalid: c\ntest:\nnames: [x]\nroboflow: {a: 1}\n").unwrap();
        assert_eq!(yaml.train, ["a", "b.txt"]);
        assert_eq!((yaml.val, yaml.test, yaml.path), (vec!["c".to_owned()], vec![], Some("../data".to_owned())));
        assert_eq!(parse("train: a\nvalidation: v\nval:\nnames: [x]").unwrap().val, ["v"]);
        assert_eq!(parse("train: 2017\nnames: [x]").unwrap().train, ["2017"]);
    }

    #[test]
    fn odd_things_are_noted() {
        let yaml = parse("train: a\nnc: 3\nnames: [x, y]\ndownload: |\n  import os\nkpt_shape: [17, 3]\n").unwrap();
        assert_eq!((yaml.names.len(), yaml.n_classes, yaml.n_keypoint_fields), (2, Some(3), Some(51)));
        assert_eq!(yaml.notes.len(), 3, "{:?}", yaml.notes);
        assert_eq!(parse("train: a\nnames: [x]\nkpt_shape: {a: b}\n").unwrap().n_keypoint_fields, None);
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, expected) in [
            ("train: a\nnames:\n\t- x\n", "3: is indented with a tab; YAML wants spaces"),
            ("train: a\n", "has neither `names` nor `nc`"),
            ("names: [x]\n", "has no `train`, `val` or `test`"),
            ("train: a\nnames: []\n", "2: has no class names"),
            ("train: a\nnames:\n  1: x\n  2: y\n", "2: `names` starts at index 1, expected 0"),
            ("train: a\nnames:\n  0: x\n  2: y\n", "2: `names` has no index 1 (the next one is 2)"),
            ("train: a\nnc: many\n", "2: `nc` is \"many\", expected a number of classes"),
        ] {
            assert_eq!(reason(text), expected);
        }
        for (text, line) in [("train: a\nnames: [x\n", "2: "), ("train: a\nnames: x: y\n", "2: "), ("train: {a: b}\nnames: [x]\n", "1: ")] {
            assert!(reason(text).starts_with(line), "{}", reason(text));
        }
        for text in ["", "- a\n- b\n", "just text", "\0\0", "train: a\ntrain: b\nnames: [x]", "names: {a: b}\ntrain: x"] {
            assert!(!reason(text).contains('\n'), "{}", reason(text));
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let names =
            ["no", "012", "a: b", "x", "1.0", "# c", "\"q\"\\", "Größe", "", " pad ", "tab\tnew\nline", "~", "null", "1e5", ".5", "-"];
        let yaml = DataYaml {
            path: Some("/some where/#1".to_owned()),
            train: vec!["images/train".to_owned()],
            val: vec!["a".to_owned(), "b c".to_owned()],
            names: names.map(str::to_owned).to_vec(),
            n_classes: Some(names.len()),
            ..DataYaml::default()
        };
        assert_eq!(parse(&yaml.to_text()).unwrap(), yaml);
    }
}
