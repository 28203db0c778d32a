//! How a query line that is being typed may go on.
//!
//! In:  the line, where the cursor stands, and the names that the line may use.
//! Out: what could stand there, best first.

use std::ops::Range;

use super::Vocabulary;
use super::key::{HAS_WORDS, Key, KeyKind, REVIEW_WORDS};
use super::line;
use super::token::{self, Part, Term, Token, TokenKind};
use crate::dataset::label::Split;
use crate::dataset::rule::Rule;

/// So many are offered.
const MAX_COMPLETIONS: usize = 12;

/// Something that could stand at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The bytes of the line that it takes the place of.
    pub replace: Range<usize>,
    pub text: String,
    /// What it means; may be empty.
    pub detail: String,
    /// The term is whole with it; else a value follows.
    pub is_whole: bool,
}

impl Completion {
    /// The line with it, and where the cursor stands then.
    pub fn applied(&self, line: &str) -> (String, usize) {
        let after = &line[self.replace.end..];
        let blank = if self.is_whole && !after.starts_with(' ') { " " } else { "" };
        let before = format!("{}{}{blank}", &line[..self.replace.start], self.text);
        let cursor = before.len() + usize::from(self.is_whole && blank.is_empty());
        (format!("{before}{after}"), cursor)
    }
}

/// What could stand at the cursor (in bytes); nothing inside of a word that is whole already.
pub fn complete(line: &str, cursor: usize, vocabulary: &Vocabulary) -> Vec<Completion> {
    let mut cursor = cursor.min(line.len());
    while !line.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let tokens = token::tokens(line);
    let at_cursor = tokens.iter().find(|token| token.span.start < cursor && cursor <= token.span.end);
    let mut found = match at_cursor {
        Some(Token { kind: TokenKind::Term(term), span }) => match &term.key {
            Some((key, _)) => match Key::named(&line[key.clone()]) {
                Some(key) if key.kind() == KeyKind::Word => values(line, cursor, key, term, span, vocabulary),
                _ => Vec::new(),
            },
            None if term.is_quoted => Vec::new(),
            None => words(&line[span.start..cursor], span.clone(), vocabulary),
        },
        Some(Token { kind: TokenKind::Or | TokenKind::Close, .. }) => Vec::new(),
        _ => words("", cursor..cursor, vocabulary),
    };
    found.truncate(MAX_COMPLETIONS);
    found
}

/// Keys, and terms whose value begins like the word.
fn words(typed: &str, replace: Range<usize>, vocabulary: &Vocabulary) -> Vec<Completion> {
    let typed = typed.to_lowercase();
    let mut found = Vec::new();
    for key in Key::ALL.into_iter().filter(|key| key.name().starts_with(&typed)) {
        let operator = if key.kind() == KeyKind::Word { ":" } else { ">" };
        let text = format!("{}{operator}", key.name());
        found.push(Completion { replace: replace.clone(), text, detail: key.detail().to_owned(), is_whole: false });
    }
    if typed.is_empty() {
        return found;
    }
    for key in [Key::Class, Key::Split, Key::Tag] {
        for (value, detail) in known(key, vocabulary).into_iter().filter(|(value, _)| value.to_lowercase().starts_with(&typed)) {
            found.push(Completion { replace: replace.clone(), text: line::term(key, &value), detail, is_whole: true });
        }
    }
    found
}

/// Values of a key that begin like what was typed of one, then those that have it in them.
fn values(line: &str, cursor: usize, key: Key, term: &Term, span: &Range<usize>, vocabulary: &Vocabulary) -> Vec<Completion> {
    let Some(part) = term.parts.iter().find(|part| part.span.start <= cursor && cursor <= part.span.end) else { return Vec::new() };
    let Part { text, span: part_span } = part;
    let is_wrapped = line[span.start..].starts_with('"');
    let typed = text.to_lowercase();
    let (first, others): (Vec<_>, Vec<_>) = known(key, vocabulary)
        .into_iter()
        .filter(|(value, _)| value.to_lowercase().contains(&typed))
        .partition(|(value, _)| value.to_lowercase().starts_with(&typed));
    let completion = |(value, detail): (String, String)| {
        let (replace, text) = if is_wrapped { (span.clone(), line::term(key, &value)) } else { (part_span.clone(), line::quoted(&value)) };
        Completion { replace, text, detail, is_whole: true }
    };
    first.into_iter().chain(others).map(completion).collect()
}

/// The values that a key is known to have, with what they mean.
fn known(key: Key, vocabulary: &Vocabulary) -> Vec<(String, String)> {
    let described = |(word, detail): &(&str, &str)| ((*word).to_owned(), (*detail).to_owned());
    match key {
        Key::Class => vocabulary.classes.iter().enumerate().map(|(id, name)| (name.clone(), format!("Class {id}"))).collect(),
        Key::Split => Split::ALL.iter().map(|split| (split.name().to_owned(), "Split".to_owned())).collect(),
        Key::Tag => vocabulary.tags.iter().map(|tag| (tag.clone(), "Tag".to_owned())).collect(),
        Key::Reviewed => REVIEW_WORDS.iter().map(described).collect(),
        Key::Has => HAS_WORDS.iter().map(described).collect(),
        Key::Finding => Rule::ALL.iter().map(|rule| (rule.info().id.to_owned(), rule.info().title.to_owned())).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn vocabulary() -> Vocabulary {
        Vocabulary { classes: ["dent", "big hole", "decay"].map(str::to_owned).to_vec(), tags: ["night".to_owned()].into() }
    }

    /// Completions at the `|`.
    fn at(line: &str) -> Vec<Completion> {
        complete(&line.replace('|', ""), line.find('|').unwrap(), &vocabulary())
    }

    fn texts(line: &str) -> Vec<String> {
        at(line).into_iter().map(|completion| completion.text).collect()
    }

    #[test]
    fn keys_and_values_are_offered_where_they_fit() {
        assert_eq!(texts("|")[..3], ["split:", "class:", "boxes>"]);
        assert_eq!(texts("split:val |")[..1], ["split:"]);
        assert_eq!(texts("de|"), ["class:dent", "class:decay"]);
        assert_eq!(texts("-t|"), ["tag:", "split:train", "split:test"]);
        assert_eq!(texts("n|"), ["name:", "tag:night"]);
        assert_eq!(texts("class:|"), ["dent", "\"big hole\"", "decay"]);
        assert_eq!(texts("class:dent,e|"), ["dent", "\"big hole\"", "decay"]);
        assert_eq!(texts("class:\"big h|"), ["\"big hole\""]);
        assert_eq!(texts("\"class:big h|\""), ["class:\"big hole\""]);
        assert_eq!(texts("has:f|"), ["findings"]);
        assert_eq!(texts("finding:zero|"), ["zero-size"]);
        assert!(texts("boxes>|").is_empty() && texts("\"ab|\"").is_empty() && texts("a OR|").is_empty());
    }

    #[test]
    fn a_completion_takes_the_place_of_what_was_typed() {
        let applied = |line: &str, choice: usize| at(line)[choice].applied(&line.replace('|', ""));
        assert_eq!(applied("a cla|", 0), ("a class:".to_owned(), 8));
        assert_eq!(applied("class:d| b", 0), ("class:dent b".to_owned(), 11));
        assert_eq!(applied("class:dent,h|", 0), ("class:dent,\"big hole\" ".to_owned(), 22));
        assert_eq!(applied("-de|", 1), ("-class:decay ".to_owned(), 13));
    }
}
