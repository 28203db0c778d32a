//! A piece of text that names are held against: a part, a pattern with `*` and `?`, or a regular expression.
//!
//! Parts and patterns know no case; a regular expression does, unless it begins with `(?i)`.

use regex::Regex;

/// What a name must look like.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Lower case; somewhere in the name.
    Part(String),
    /// Lower case, with `*` for any run of characters and `?` for one; the whole name.
    Whole(String),
    /// Somewhere in the name as written.
    Regex(Regex),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Part(a), Self::Part(b)) | (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Pattern {
    /// A part, or a pattern where there is a `*` or `?` in it.
    pub fn new(text: &str) -> Self {
        let text = text.to_lowercase();
        if text.contains(['*', '?']) { Self::Whole(text) } else { Self::Part(text) }
    }

    /// Whether a name passes, given as written and in lower case.
    pub fn matches(&self, written: &str, lower: &str) -> bool {
        match self {
            Self::Part(part) => lower.contains(part.as_str()),
            Self::Whole(pattern) => glob(pattern.as_bytes(), lower.as_bytes()),
            Self::Regex(regex) => regex.is_match(written),
        }
    }

    /// As [`Pattern::matches`], for a word that is meant as a whole, such as a tag.
    pub(super) fn matches_word(&self, word: &str) -> bool {
        let lower = word.to_lowercase();
        match self {
            Self::Part(part) => lower == *part,
            other => other.matches(word, &lower),
        }
    }
}

/// Whether a text fits a pattern of bytes; `?` takes one character, also one of several bytes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let is_inner = |byte: u8| byte & 0xC0 == 0x80; // a later byte of a character in UTF-8
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                t += 1;
                while text.get(t).copied().is_some_and(is_inner) {
                    t += 1;
                }
            }
            Some(&byte) if byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn parts_patterns_and_expressions_match_as_they_are_meant() {
        let matches = |pattern: Pattern, name: &str| pattern.matches(name, &name.to_lowercase());
        assert!(matches(Pattern::new("ART0"), "Part012.jpg") && !matches(Pattern::new("part1"), "Part012.jpg"));
        assert!(matches(Pattern::new("part0*"), "Part012.jpg") && !matches(Pattern::new("art0*"), "Part012.jpg"));
        assert!(matches(Pattern::new("*1?.jpg"), "Part012.jpg") && !matches(Pattern::new("*0?.jpg"), "Part012.jpg"));
        assert!(matches(Pattern::new("gr?n*"), "grün.png") && matches(Pattern::new("a**b"), "aXb") && !matches(Pattern::new("a?"), "a"));
        assert!(matches(Pattern::Regex(Regex::new(r"^P.*\d{3}").unwrap()), "Part012.jpg"));
        assert!(Pattern::new("night").matches_word("Night") && !Pattern::new("nigh").matches_word("night"));
    }
}
