//! Which keys a JSON file begins with, without reading it to its end.
//!
//! In:  the first bytes of a file, cut off anywhere.
//! Out: whether it is an object or a list, and the keys at its first two levels that stand in these bytes.

use std::collections::BTreeSet;

/// What the beginning of a JSON file shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JsonHead {
    pub(super) is_list: bool,
    /// Keys of the outermost object; of a list: of its objects.
    pub(super) keys: BTreeSet<String>,
    /// Keys of all objects at any depth below.
    pub(super) deeper: BTreeSet<String>,
}

impl JsonHead {
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }
}

/// Reads the beginning of a JSON file; `None` where it is none.
pub(super) fn json_head(bytes: &[u8]) -> Option<JsonHead> {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start();
    let is_list = match text.first()? {
        b'{' => false,
        b'[' => true,
        _ => return None,
    };
    let mut head = JsonHead { is_list, ..JsonHead::default() };
    let top = if is_list { 2 } else { 1 };
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let start = at + 1;
                at = start;
                while at < text.len() && text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                let is_key = text.get(at + 1..).unwrap_or_default().iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':');
                if is_key && at - start <= 64 {
                    let key = String::from_utf8_lossy(&text[start..at.min(text.len())]).into_owned();
                    if depth == top {
                        head.keys.insert(key)
                    } else {
                        head.deeper.insert(key)
                    };
                }
            }
            _ => {}
        }
        at += 1;
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_depth_though_the_file_is_cut_off() {
        let head = json_head(br#" {"info": {"year": 2017}, "annotations": [{"bbox": [1, 2], "name": "a:b\"}"#).unwrap_or_default();
        assert!(!head.is_list && head.has("annotations") && head.deeper.contains("bbox") && !head.has("bbox"), "{head:?}");
        let list = json_head(br#"[{"data": {"image": "x"}}, {"id": 1}]"#).unwrap_or_default();
        assert!(list.is_list && list.has("data") && list.has("id") && list.deeper.contains("image"), "{list:?}");
        assert_eq!(json_head(b"no"), None);
        assert_eq!(json_head(b"{]]}}"), None);
    }
}
