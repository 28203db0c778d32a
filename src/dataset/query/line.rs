//! Changes a query line by a click: a term is put in, taken out, or looked for.
//!
//! In:  a line as typed, and one term such as `split:val`.
//! Out: the line with or without it; all else stays as it was typed.

use super::key::Key;
use super::token::{self, Token, TokenKind};

/// The term that asks for a word, such as `class:"big hole"`.
pub fn term(key: Key, value: &str) -> String {
    format!("{}:{}", key.name(), quoted(value))
}

/// A value as it must be typed: in quotes where it has blanks, commas or the like in it.
pub fn quoted(value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "\",()*?".contains(c));
    if is_plain { value.to_owned() } else { format!("\"{}\"", value.replace('"', "\\\"")) }
}

/// Whether the line asks for this term outside of groups and alternatives.
pub fn has_term(line: &str, term: &str) -> bool {
    place(line, term).is_some()
}

/// The line with the term if it is not there, else without it.
pub fn toggled(line: &str, term: &str) -> String {
    match place(line, term) {
        Some(span) => {
            let (before, after) = (line[..span.start].trim_end(), line[span.end..].trim_start());
            let blank = if before.is_empty() || after.is_empty() { "" } else { " " };
            format!("{before}{blank}{after}")
        }
        None => with_term(line, term),
    }
}

/// The line with the term at its end; alternatives are put in parentheses, so that it holds for each.
pub fn with_term(line: &str, term: &str) -> String {
    let line = line.trim();
    if line.is_empty() {
        return term.to_owned();
    }
    let has_alternatives = top_level(&token::tokens(line)).any(|(_, token)| token.kind == TokenKind::Or);
    if has_alternatives { format!("({line}) {term}") } else { format!("{line} {term}") }
}

/// The line with the term in place of every other term of its key outside of groups: a choice of one.
pub fn with_only(line: &str, key: Key, term: &str) -> String {
    let mut line = line.to_owned();
    loop {
        let tokens = token::tokens(&line);
        let of_key = |token: &Token| match &token.kind {
            TokenKind::Term(found) => found.key.as_ref().is_some_and(|(span, _)| Key::named(&line[span.clone()]) == Some(key)),
            _ => false,
        };
        if top_level(&tokens).any(|(_, token)| token.kind == TokenKind::Or) {
            break;
        }
        let Some((index, token)) = top_level(&tokens).find(|(_, token)| of_key(token)) else { break };
        let start = if index > 0 && tokens[index - 1].kind == TokenKind::Not { tokens[index - 1].span.start } else { token.span.start };
        let rest = format!("{} {}", line[..start].trim_end(), line[token.span.end..].trim_start());
        rest.trim().clone_into(&mut line);
    }
    if term.is_empty() { line } else { with_term(&line, term) }
}

/// Where the term stands, as typed.
fn place(line: &str, term: &str) -> Option<std::ops::Range<usize>> {
    let tokens = token::tokens(line);
    if top_level(&tokens).any(|(_, token)| token.kind == TokenKind::Or) {
        return None;
    }
    let (is_negated, bare) = term.strip_prefix('-').map_or((false, term), |bare| (true, bare));
    top_level(&tokens).find_map(|(index, token)| {
        let found_negated = index > 0 && tokens[index - 1].kind == TokenKind::Not;
        let is_it = line[token.span.clone()].eq_ignore_ascii_case(bare) && found_negated == is_negated;
        let start = if is_negated { tokens[index.checked_sub(1)?].span.start } else { token.span.start };
        is_it.then_some(start..token.span.end)
    })
}

/// Tokens outside of parentheses.
fn top_level(tokens: &[Token]) -> impl Iterator<Item = (usize, &Token)> {
    let mut depth = 0usize;
    tokens.iter().enumerate().filter(move |(_, token)| {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_put_in_and_taken_out() {
        assert_eq!(toggled("", "split:val"), "split:val");
        assert_eq!(toggled("a  boxes>3", "split:val"), "a  boxes>3 split:val");
        assert_eq!(toggled("a split:val b", "split:val"), "a b");
        assert_eq!(toggled("split:val", "split:val"), "");
        assert_eq!(toggled("a OR b", "split:val"), "(a OR b) split:val");
        assert_eq!(toggled("(a OR b) split:val", "split:val"), "(a OR b)");
        assert_eq!(toggled("-class:dent a", "-class:dent"), "a");
        assert_eq!(toggled("-class:dent a", "class:dent"), "-class:dent a class:dent");
        assert!(has_term("a Split:VAL", "split:val") && !has_term("(split:val)", "split:val"));
    }

    #[test]
    fn a_choice_replaces_the_others_of_its_key() {
        assert_eq!(with_only("split:val a -split:test", Key::Split, "split:train"), "a split:train");
        assert_eq!(with_only("split:val a", Key::Split, ""), "a");
    }

    #[test]
    fn values_are_quoted_where_they_must_be() {
        assert_eq!(term(Key::Class, "dent"), "class:dent");
        assert_eq!(term(Key::Class, "big \"hole\""), r#"class:"big \"hole\"""#);
        assert_eq!(quoted(""), "\"\"");
    }
}
