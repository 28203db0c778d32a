//! How is an edit written down? One line of the ledger.
//!
//! In:  what an edit changed: label files by their splices, marks, colours.
//! Out: a line `CHECKSUM KIND ID FLAGS JSON`, and back.
//!
//! The checksum covers the rest of the line, so that a line that was cut off by the end of the process is known as such. Kind, number
//! and flags stand before the JSON: reading a long ledger does not look into its records. Readable with a text editor.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::edit::Mark;
use super::super::layout;
use super::super::splice::{Bytes, Splice};

/// What one edit, undo or redo changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// As undo names it.
    pub name: String,
    /// Seconds since 1970.
    pub time: u64,
    /// What has to be read anew after it.
    #[serde(default)]
    pub scope: Scope,
    #[serde(default)]
    pub files: Vec<FileChange>,
    #[serde(default)]
    pub marks: Vec<MarkChange>,
    #[serde(default)]
    pub colors: Vec<ColorChange>,
}

/// How far an edit reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The labels and marks of some images.
    #[default]
    Labels,
    /// Safe fixes of label files.
    Fixes,
    /// The names of classes, too.
    Classes,
    /// Which images belong to which split.
    Splits,
}

/// A change of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to the dataset's root where it lies below.
    pub path: Bytes,
    /// Hash of the content before; `None`: there was no file.
    pub before: Option<String>,
    pub after: Option<String>,
    pub splices: Vec<Splice>,
}

/// A change of what is known of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkChange {
    /// The image, relative to the dataset's root where it lies below.
    pub image: Bytes,
    pub before: Mark,
    pub after: Mark,
}

impl MarkChange {
    /// The image.
    pub fn path(&self, root: &Path) -> PathBuf {
        to_path(root, &self.image)
    }
}

/// A change of the colour in which a class is drawn; `None`: the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColorChange {
    pub class: u32,
    pub before: Option<[u8; 3]>,
    pub after: Option<[u8; 3]>,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first line: which dataset this is of.
    Ledger,
    Edit,
    /// Takes the last edit back that is not taken back.
    Undo,
    /// Does again what was undone last.
    Redo,
    /// The files of the record with this number are as it says, as far as they could be.
    Done,
    /// Some files of the record with this number were left alone.
    Left,
}

const KINDS: [(&str, Kind); 6] = [
    ("ledger", Kind::Ledger),
    ("edit", Kind::Edit),
    ("undo", Kind::Undo),
    ("redo", Kind::Redo),
    ("done", Kind::Done),
    ("left", Kind::Left),
];

/// A line without having looked into its JSON.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line<'a> {
    pub(super) kind: Kind,
    pub(super) id: u64,
    /// It changes marks or colours, which are kept in memory.
    pub(super) has_marks: bool,
    pub(super) json: &'a [u8],
}

/// Writes a line with its end.
pub(super) fn to_line(kind: Kind, id: u64, has_marks: bool, json: &[u8]) -> Vec<u8> {
    let word = KINDS.iter().find(|(_, each)| *each == kind).map_or("", |(word, _)| word);
    let flags = if has_marks { "m" } else { "-" };
    let mut rest = format!("{word} {id} {flags} ").into_bytes();
    rest.extend_from_slice(json);
    let mut line = checksum(&rest).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&rest);
    line.push(b'\n');
    line
}

/// Reads a line without its end; `None` where it is not whole.
pub(super) fn of_line(line: &[u8]) -> Option<Line<'_>> {
    let (sum, rest) = line.split_at_checked(CHECKSUM_LEN)?;
    let rest = rest.strip_prefix(b" ")?;
    if checksum(rest).as_bytes() != sum {
        return None;
    }
    let mut words = rest.splitn(4, |&byte| byte == b' ');
    let mut word = || words.next().and_then(|word| std::str::from_utf8(word).ok());
    let (kind, id, flags) = (word()?, word()?.parse().ok()?, word()?);
    let kind = KINDS.iter().find(|(each, _)| *each == kind)?.1;
    Some(Line { kind, id, has_marks: flags.contains('m'), json: words.next()? })
}

const CHECKSUM_LEN: usize = 16;

fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..CHECKSUM_LEN].to_owned()
}

/// What a file's content is known by.
pub fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

impl Record {
    /// Whether it changes what the ledger keeps in memory.
    pub(super) fn has_marks(&self) -> bool {
        !self.marks.is_empty() || !self.colors.is_empty()
    }
}

/// A path as it is written down.
pub(super) fn to_bytes(root: &Path, path: &Path) -> Bytes {
    Bytes(path.strip_prefix(root).unwrap_or(path).as_os_str().as_encoded_bytes().to_vec())
}

/// The path that was written down.
pub(super) fn to_path(root: &Path, bytes: &Bytes) -> PathBuf {
    root.join(layout::os_string(&bytes.0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_line_reads_back_and_any_cut_or_changed_one_does_not() {
        let record = Record {
            name: "Move box".to_owned(),
            files: vec![FileChange {
                path: Bytes(b"labels/\xFF.txt".to_vec()),
                before: None,
                after: Some(hash(b"x")),
                splices: vec![Splice::new(0, b"", *b"x")],
            }],
            ..Record::default()
        };
        let line = to_line(Kind::Edit, 7, true, &serde_json::to_vec(&record).unwrap());
        let whole = line.strip_suffix(b"\n").unwrap();
        let read = of_line(whole).unwrap();
        assert_eq!((read.kind, read.id, read.has_marks), (Kind::Edit, 7, true));
        assert_eq!(serde_json::from_slice::<Record>(read.json).unwrap(), record);
        for end in 0..whole.len() {
            assert_eq!(of_line(&whole[..end]), None);
        }
        for place in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[place] ^= 1;
            assert_eq!(of_line(&changed), None, "byte {place}");
        }
    }
}
