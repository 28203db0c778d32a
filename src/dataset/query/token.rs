//! The pieces of a query line: words, quotes, parentheses, `OR`, `-`.
//!
//! In:  a line, also one that is being typed.
//! Out: tokens with their places; a quote that is not closed ends with the line, and is told.

use std::ops::Range;

/// A piece of the line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// In bytes.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Open,
    Close,
    Or,
    Not,
    Term(Term),
}

/// A word, or what stands on both sides of an operator.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    /// The letters before the operator, with the operator; `None` for a word without one.
    pub(super) key: Option<(Range<usize>, Operator)>,
    /// Separated by commas outside of quotes; at least one, perhaps empty.
    pub(super) parts: Vec<Part>,
    /// All of the value without its quotes.
    pub(super) text: String,
    pub(super) is_quoted: bool,
    /// A quote in it is not closed.
    pub(super) is_open: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Is,
    IsNot,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// As they are typed; longer ones first.
const OPERATORS: [(&str, Operator); 7] = [
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("!=", Operator::IsNot),
    ("<", Operator::Less),
    (">", Operator::More),
    (":", Operator::Is),
    ("=", Operator::Is),
];

/// Cuts a line into tokens.
pub(super) fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at += line[at..].len() - line[at..].trim_start().len();
        let rest = &line[at..];
        let Some(first) = rest.chars().next() else { return tokens };
        let follows = rest[first.len_utf8()..].chars().next();
        let (kind, end) = match first {
            '(' => (TokenKind::Open, at + 1),
            ')' => (TokenKind::Close, at + 1),
            '-' if follows.is_some_and(|next| !next.is_whitespace()) => (TokenKind::Not, at + 1),
            _ => term(line, at),
        };
        if let Some(kind) = kind.or_none() {
            tokens.push(Token { kind, span: at..end });
        }
        at = end;
    }
}

impl TokenKind {
    /// The words that join others; `AND` says nothing.
    fn or_none(self) -> Option<Self> {
        match &self {
            Self::Term(term) if !term.is_quoted && term.key.is_none() => match term.text.as_str() {
                "OR" | "|" | "||" => Some(Self::Or),
                "NOT" => Some(Self::Not),
                "AND" | "&&" => None,
                _ => Some(self),
            },
            _ => Some(self),
        }
    }
}

/// The term at `start`, and its end.
fn term(line: &str, start: usize) -> (TokenKind, usize) {
    if line[start..].starts_with('"') {
        // Quotes around all of it: the key may stand inside of them.
        let (text, inside, end, is_open) = quoted(line, start);
        let key = key(line, inside.start).filter(|(key, _, value)| {
            *value <= inside.end && super::key::Key::named(&line[key.clone()]).is_some() //
        });
        let from = key.as_ref().map_or(0, |(_, _, value)| value - inside.start);
        // Before the operator there is nothing escaped, so places in the text are places in the line.
        let text = text[from..].to_owned();
        let parts = vec![Part { text: text.clone(), span: inside.start + from..inside.end }];
        let key = key.map(|(key, operator, _)| (key, operator));
        return (TokenKind::Term(Term { key, parts, text, is_quoted: true, is_open }), end);
    }
    let key = key(line, start);
    let mut at = key.as_ref().map_or(start, |(_, _, value)| *value);
    let has_key = key.is_some();
    let key = key.map(|(key, operator, _)| (key, operator));
    let mut term =
        Term { key, parts: vec![Part { text: String::new(), span: at..at }], text: String::new(), is_quoted: false, is_open: false };
    let mut depth = 0;
    while let Some(next) = line[at..].chars().next() {
        match next {
            '"' if has_key && term.parts.last().is_some_and(|part| part.text.is_empty()) => {
                let (text, _, end, is_open) = quoted(line, at);
                term.is_quoted = true;
                term.is_open = is_open;
                term.text.push_str(&text);
                if let Some(part) = term.parts.last_mut() {
                    part.text.push_str(&text);
                    part.span.end = end;
                }
                at = end;
                continue;
            }
            ')' if depth == 0 => break,
            next if next.is_whitespace() => break,
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        at += next.len_utf8();
        term.text.push(next);
        if next == ',' && has_key {
            term.parts.push(Part { text: String::new(), span: at..at });
        } else if let Some(part) = term.parts.last_mut() {
            part.text.push(next);
            part.span.end = at;
        }
    }
    (TokenKind::Term(term), at)
}

/// Letters and an operator at `start`, with the place behind them.
fn key(line: &str, start: usize) -> Option<(Range<usize>, Operator, usize)> {
    let n_letters = line[start..].bytes().take_while(u8::is_ascii_alphabetic).count();
    let end = start + n_letters;
    let (text, operator) = OPERATORS.into_iter().find(|(text, _)| line[end..].starts_with(text)).filter(|_| n_letters > 0)?;
    Some((start..end, operator, end + text.len()))
}

/// What stands between the quote at `start` and the next one (`\"` is a quote inside): the text, its place, the place
/// behind it, and whether there is no next quote.
fn quoted(line: &str, start: usize) -> (String, Range<usize>, usize, bool) {
    let mut text = String::new();
    let mut chars = line[start + 1..].char_indices().peekable();
    while let Some((offset, next)) = chars.next() {
        let at = start + 1 + offset;
        match next {
            '"' => return (text, start + 1..at, at + 1, false),
            '\\' if chars.peek().is_some_and(|(_, follows)| *follows == '"') => {
                text.push('"');
                chars.next();
            }
            _ => text.push(next),
        }
    }
    (text, start + 1..line.len(), line.len(), true)
}
