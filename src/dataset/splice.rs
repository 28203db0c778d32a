//! Which bytes of a file does a change replace? Places with what stood there and what stands there now.
//!
//! In:  the bytes of a file, or of two versions of it.
//! Out: the other version; the change that takes it back; splices as JSON that a person can read.
//!
//! Everything outside of the splices stays byte for byte, and what is replaced must be there: a splice never guesses.

use serde::{Deserialize, Serialize};

/// One replaced range of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splice {
    /// Where it begins in the file before the change.
    pub at: usize,
    #[serde(rename = "-")]
    pub removed: Bytes,
    #[serde(rename = "+")]
    pub inserted: Bytes,
}

/// Bytes of a file: text where they are UTF-8, else in hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Bytes(pub Vec<u8>);

impl Splice {
    pub fn new(at: usize, removed: &[u8], inserted: impl Into<Vec<u8>>) -> Self {
        Self { at, removed: Bytes(removed.to_vec()), inserted: Bytes(inserted.into()) }
    }
}

/// The file after the change; `None` where the splices overlap, are out of order, or something else stands in their places.
pub(super) fn apply(bytes: &[u8], splices: &[Splice]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let mut copied = 0;
    for Splice { at, removed, inserted } in splices {
        out.extend_from_slice(bytes.get(copied..*at)?);
        copied = at + removed.0.len();
        if bytes.get(*at..copied)? != removed.0 {
            return None;
        }
        out.extend_from_slice(&inserted.0);
    }
    out.extend_from_slice(bytes.get(copied..)?);
    Some(out)
}

/// The splices that take these back.
pub(super) fn inverse(splices: &[Splice]) -> Vec<Splice> {
    let mut shift = 0_isize;
    let back = splices.iter().map(|Splice { at, removed, inserted }| {
        let at = at.wrapping_add_signed(shift);
        shift += inserted.0.len() as isize - removed.0.len() as isize;
        Splice { at, removed: inserted.clone(), inserted: removed.clone() }
    });
    back.collect()
}

/// The one splice between two versions of a file; none where they are the same.
pub(super) fn between(before: &[u8], after: &[u8]) -> Vec<Splice> {
    if before == after {
        return Vec::new();
    }
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let rest = before[same..].iter().rev().zip(after[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    vec![Splice::new(same, &before[same..before.len() - rest], &after[same..after.len() - rest])]
}

/// As JSON: a string, or for other bytes `{"hex": "…"}`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written<'a> {
    Text(std::borrow::Cow<'a, str>),
    Hex { hex: String },
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = if let Ok(text) = std::str::from_utf8(&self.0) {
            Written::Text(text.into())
        } else {
            let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            Written::Hex { hex: digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect() }
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = match Written::deserialize(deserializer)? {
            Written::Text(text) => return Ok(Self(text.into_owned().into_bytes())),
            Written::Hex { hex } => hex,
        };
        let pairs = hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        pairs.collect::<Option<Vec<u8>>>().map(Self).ok_or_else(|| serde::de::Error::custom("bytes that are no hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn splices_replace_what_is_there_and_nothing_else() {
        let splices = [Splice::new(1, b"b", *b"XY"), Splice::new(3, b"", *b"-"), Splice::new(4, b"e", *b"")];
        let after = apply(b"abcde", &splices).unwrap();
        assert_eq!(after, b"aXYc-d");
        assert_eq!(apply(&after, &inverse(&splices)).unwrap(), b"abcde");
        assert_eq!(apply(b"aXcde", &splices), None, "something else stands there");
        assert_eq!(apply(b"ab", &splices), None, "the file is too short");
        assert_eq!(apply(b"abcde", &[splices[1].clone(), splices[0].clone()]), None, "out of order");
    }

    proptest! {
        #[test]
        fn what_lies_between_two_files_leads_there_and_back(a in proptest::collection::vec(0u8..4, 0..20), b in proptest::collection::vec(0u8..4, 0..20)) {
            let splices = between(&a, &b);
            prop_assert_eq!(apply(&a, &splices).unwrap(), b.clone());
            prop_assert_eq!(apply(&b, &inverse(&splices)).unwrap(), a);
            prop_assert_eq!(between(&b, &b), vec![]);
        }

        #[test]
        fn any_bytes_read_back_from_json(bytes in proptest::collection::vec(any::<u8>(), 0..20), text in "\\PC{0,12}") {
            for bytes in [bytes, text.into_bytes()] {
                let bytes = Bytes(bytes);
                prop_assert_eq!(serde_json::from_str::<Bytes>(&serde_json::to_string(&bytes).unwrap()).unwrap(), bytes);
            }
        }
    }
}
