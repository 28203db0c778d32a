//! Reads a query line.
//!
//! In:  a line and the names that it may use.
//! Out: a filter, or what is wrong and where.

use std::ops::Range;

use regex::RegexBuilder;

use super::date;
use super::key::{Key, KeyKind};
use super::measure::ImageMeasure;
use super::pattern::Pattern;
use super::token::{self, Operator, Part, Term, Token, TokenKind};
use super::{Bounds, Condition, Filter, Vocabulary};
use crate::dataset::edit::Review;
use crate::dataset::label::{ClassId, Split};
use crate::dataset::rule::Rule;

/// A compiled regular expression may take so much memory.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// So many parentheses may be open at once: reading and filtering go into each.
const MAX_DEPTH: usize = 100;

/// What is wrong with a line, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct QueryError {
    /// In bytes; empty at the end of the line when something is missing there.
    pub span: Range<usize>,
    pub problem: QueryProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryProblem {
    #[error("there is no key {key:?}")]
    UnknownKey { key: String },
    #[error("no class is called {name:?}")]
    UnknownClass { name: String, nearest: Option<String> },
    #[error("{value:?} is not {expected}")]
    BadValue { value: String, expected: &'static str },
    #[error("{key} is followed by `:`, not by a comparison")]
    NotComparable { key: &'static str },
    #[error("{key} has no value")]
    MissingValue { key: &'static str },
    #[error("the regular expression is wrong: {reason}")]
    Regex { reason: String },
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("a parenthesis is not closed")]
    OpenParenthesis,
    #[error("nothing opens this parenthesis")]
    StrayParenthesis,
    #[error("more than {MAX_DEPTH} parentheses are open here")]
    TooDeep,
    #[error("something is missing here")]
    Missing,
}

impl QueryError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match &self.problem {
            QueryProblem::UnknownKey { key } => {
                let near = nearest(key, Key::ALL.iter().map(|key| key.name()));
                let quotes = "put it in quotes to search for it in file names";
                Some(near.map_or_else(|| quotes.to_owned(), |near| format!("did you mean `{near}`? Else {quotes}")))
            }
            QueryProblem::UnknownClass { nearest: Some(near), .. } => Some(format!("did you mean {near:?}?")),
            QueryProblem::MissingValue { .. } | QueryProblem::Missing => Some("go on typing, or remove it".to_owned()),
            _ => None,
        }
    }
}

/// Reads a line; an empty one lets every image pass.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(line: &str, vocabulary: &Vocabulary) -> Result<Filter, QueryError> {
    let tokens = token::tokens(line);
    if tokens.is_empty() {
        return Ok(Filter::default());
    }
    let mut parser = Parser { line, vocabulary, tokens: &tokens, at: 0, depth: 0 };
    let filter = parser.any()?;
    match parser.next() {
        None => Ok(filter),
        Some(token) => Err(QueryError { span: token.span.clone(), problem: QueryProblem::StrayParenthesis }),
    }
}

struct Parser<'a> {
    line: &'a str,
    vocabulary: &'a Vocabulary,
    tokens: &'a [Token],
    at: usize,
    /// Parentheses that are open.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn next(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn missing(&self) -> QueryError {
        let span = self.next().map_or(self.line.len()..self.line.len(), |token| token.span.clone());
        QueryError { span, problem: QueryProblem::Missing }
    }

    fn any(&mut self) -> Result<Filter, QueryError> {
        let mut parts = vec![self.all()?];
        while self.next().is_some_and(|token| token.kind == TokenKind::Or) {
            self.at += 1;
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::Any(parts) })
    }

    fn all(&mut self) -> Result<Filter, QueryError> {
        let mut parts = Vec::new();
        while let Some(token) = self.next()
            && !matches!(token.kind, TokenKind::Or | TokenKind::Close)
        {
            parts.push(self.item()?);
        }
        match parts.len() {
            0 => Err(self.missing()),
            1 => Ok(parts.remove(0)),
            _ => Ok(Filter::All(parts)),
        }
    }

    fn item(&mut self) -> Result<Filter, QueryError> {
        let mut is_negated = false;
        while self.next().is_some_and(|token| token.kind == TokenKind::Not) {
            is_negated = !is_negated;
            self.at += 1;
        }
        let Some(token) = self.next() else { return Err(self.missing()) };
        let filter = match &token.kind {
            TokenKind::Open => {
                self.at += 1;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(QueryError { span: token.span.clone(), problem: QueryProblem::TooDeep });
                }
                let inner = self.any()?;
                self.depth -= 1;
                if self.next().is_none_or(|token| token.kind != TokenKind::Close) {
                    return Err(QueryError { span: token.span.clone(), problem: QueryProblem::OpenParenthesis });
                }
                self.at += 1;
                inner
            }
            TokenKind::Term(term) => {
                self.at += 1;
                self.term(term, token.span.clone())?
            }
            TokenKind::Or | TokenKind::Close | TokenKind::Not => return Err(self.missing()),
        };
        Ok(if is_negated { Filter::Not(Box::new(filter)) } else { filter })
    }

    fn term(&self, term: &Term, span: Range<usize>) -> Result<Filter, QueryError> {
        if term.is_open {
            return Err(QueryError { span, problem: QueryProblem::OpenQuote });
        }
        let Some((key_span, operator)) = &term.key else {
            return Ok(Filter::Is(Condition::Name(Pattern::new(&term.text))));
        };
        let name = &self.line[key_span.clone()];
        let Some(key) = Key::named(name) else {
            if self.line[key_span.end..].starts_with('=') {
                // File names may have that in them.
                return Ok(Filter::Is(Condition::Name(Pattern::new(&self.line[span]))));
            }
            return Err(QueryError { span: key_span.clone(), problem: QueryProblem::UnknownKey { key: name.to_owned() } });
        };
        if term.text.is_empty() {
            return Err(QueryError { span, problem: QueryProblem::MissingValue { key: key.name() } });
        }
        if key.kind() == KeyKind::Word && !matches!(operator, Operator::Is | Operator::IsNot) {
            return Err(QueryError { span, problem: QueryProblem::NotComparable { key: key.name() } });
        }
        let whole = Part { text: term.text.clone(), span: term.parts[0].span.start..span.end };
        let filter = match key {
            Key::Name => Filter::Is(Condition::Name(Pattern::new(&term.text))),
            Key::Path => Filter::Is(Condition::Path(Pattern::new(&term.text))),
            Key::Regex => Filter::Is(Condition::Name(regex(&whole)?)),
            Key::Split => {
                let word = |split: Split| (split.name(), split);
                Filter::Is(Condition::Split(words(&term.parts, &Split::ALL.map(word), "a split: train, val or test")?.concat()))
            }
            Key::Class => {
                let classes: Result<Vec<_>, _> = term.parts.iter().map(|part| self.classes(part)).collect();
                Filter::Is(Condition::Class(classes?.concat()))
            }
            Key::Reviewed => Filter::Is(Condition::Review(
                words(&term.parts, &[("yes", 0), ("no", 1), ("empty", 2)], "one of yes, no, empty")?
                    .concat()
                    .into_iter()
                    .flat_map(|word| match word {
                        0 => vec![Review::Reviewed, Review::Empty],
                        1 => vec![Review::Unreviewed],
                        _ => vec![Review::Empty],
                    })
                    .collect(),
            )),
            Key::Has => {
                let some_boxes = Condition::Image(ImageMeasure::Boxes, Bounds::closed(1.0, f64::INFINITY));
                let known = [("boxes", some_boxes), ("findings", Condition::Findings), ("tags", Condition::HasTags)];
                any_of(words(&term.parts, &known, "one of boxes, findings, tags")?.concat())
            }
            Key::Finding => {
                let known = Rule::ALL.map(|rule| (rule.info().id, rule));
                any_of(words(&term.parts, &known, "a kind of finding")?.concat().into_iter().map(Condition::Finding).collect())
            }
            Key::Tag => any_of(term.parts.iter().map(|part| Condition::Tag(Pattern::new(&part.text))).collect()),
            Key::Box(measure) => {
                let bounds = each(&term.parts, |part| numbers(part, *operator, false))?;
                any_of(bounds.into_iter().map(|bounds| Condition::Box(measure, bounds)).collect())
            }
            Key::Image(ImageMeasure::Date) => {
                let bounds = each(&term.parts, |part| dates(part, *operator))?;
                any_of(bounds.into_iter().map(|bounds| Condition::Image(ImageMeasure::Date, bounds)).collect())
            }
            Key::Image(measure) => {
                let bounds = each(&term.parts, |part| numbers(part, *operator, true))?;
                any_of(bounds.into_iter().map(|bounds| Condition::Image(measure, bounds)).collect())
            }
        };
        Ok(if *operator == Operator::IsNot { Filter::Not(Box::new(filter)) } else { filter })
    }

    /// The classes that a word means: by name, by pattern, or by number.
    fn classes(&self, part: &Part) -> Result<Vec<ClassId>, QueryError> {
        let names = &self.vocabulary.classes;
        let ids = |passes: &dyn Fn(&str) -> bool| -> Vec<ClassId> {
            names.iter().enumerate().filter(|(_, name)| passes(name)).map(|(index, _)| ClassId(index as u32)).collect()
        };
        let pattern = Pattern::new(&part.text);
        let attempts: [&dyn Fn(&str) -> bool; 2] = [&|name| name == part.text, &|name| pattern.matches_word(name)];
        if let Some(found) = attempts.into_iter().map(ids).find(|found| !found.is_empty()) {
            return Ok(found);
        }
        match part.text.parse::<u32>() {
            Ok(id) if (id as usize) < names.len() => Ok(vec![ClassId(id)]),
            _ => {
                let nearest = nearest(&part.text, names.iter().map(String::as_str));
                Err(QueryError { span: part.span.clone(), problem: QueryProblem::UnknownClass { name: part.text.clone(), nearest } })
            }
        }
    }
}

fn each<T>(parts: &[Part], read: impl Fn(&Part) -> Result<T, QueryError>) -> Result<Vec<T>, QueryError> {
    parts.iter().map(read).collect()
}

fn any_of(mut conditions: Vec<Condition>) -> Filter {
    if conditions.len() == 1 {
        return Filter::Is(conditions.remove(0));
    }
    Filter::Any(conditions.into_iter().map(Filter::Is).collect())
}

fn bad(part: &Part, expected: &'static str) -> QueryError {
    QueryError { span: part.span.clone(), problem: QueryProblem::BadValue { value: part.text.clone(), expected } }
}

fn words<T: Clone>(parts: &[Part], known: &[(&str, T)], expected: &'static str) -> Result<Vec<Vec<T>>, QueryError> {
    each(parts, |part| {
        let found = known.iter().find(|(word, _)| word.eq_ignore_ascii_case(&part.text));
        found.map(|(_, value)| vec![value.clone()]).ok_or_else(|| bad(part, expected))
    })
}

fn regex(part: &Part) -> Result<Pattern, QueryError> {
    let built = RegexBuilder::new(&part.text).size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).build();
    built.map(Pattern::Regex).map_err(|error| {
        // The message ends with its reason; before it comes a drawing of several lines.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        QueryError { span: part.span.clone(), problem: QueryProblem::Regex { reason } }
    })
}

/// The interval that an operator and a number, or a range of numbers, mean.
fn numbers(part: &Part, operator: Operator, is_whole: bool) -> Result<Bounds, QueryError> {
    let expected = "a number, such as 3, 0.01, 25 % or 2..5";
    let value = |text: &str| number(text).ok_or_else(|| bad(part, expected));
    if let Some((low, high)) = part.text.split_once("..") {
        if !matches!(operator, Operator::Is | Operator::IsNot) || (low.is_empty() && high.is_empty()) {
            return Err(bad(part, expected));
        }
        let low = if low.is_empty() { f64::NEG_INFINITY } else { value(low)? };
        let high = if high.is_empty() { f64::INFINITY } else { value(high)? };
        let with_high = is_whole || high == f64::INFINITY;
        return Ok(Bounds { low, high, with_low: true, with_high });
    }
    let value = value(&part.text)?;
    Ok(compared(operator, value, value))
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let n_unit = text.chars().rev().take_while(|c| c.is_ascii_alphabetic() || *c == '%').count();
    let (digits, unit) = text.split_at(text.len() - n_unit);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "px" => 1.0,
        "%" => return digits.trim().parse::<f64>().ok().filter(|value| value.is_finite()).map(|value| value / 100.0),
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|value| value * factor).filter(|value| value.is_finite())
}

fn dates(part: &Part, operator: Operator) -> Result<Bounds, QueryError> {
    let expected = "a date, such as 2026, 2026-01 or 2026-01-31";
    let period = |text: &str| date::period(text).map(|(first, after)| (first as f64, after as f64)).ok_or_else(|| bad(part, expected));
    if let Some((low, high)) = part.text.split_once("..") {
        if !matches!(operator, Operator::Is | Operator::IsNot) || (low.is_empty() && high.is_empty()) {
            return Err(bad(part, expected));
        }
        let low = if low.is_empty() { f64::NEG_INFINITY } else { period(low)?.0 };
        let high = if high.is_empty() { f64::INFINITY } else { period(high)?.1 };
        return Ok(Bounds::half_open(low, high));
    }
    let (first, after) = period(&part.text)?;
    Ok(match operator {
        Operator::Is | Operator::IsNot => Bounds::half_open(first, after),
        // After a day means from the next day on.
        Operator::More => Bounds::half_open(after, f64::INFINITY),
        Operator::AtLeast => Bounds::half_open(first, f64::INFINITY),
        Operator::Less => Bounds::half_open(f64::NEG_INFINITY, first),
        Operator::AtMost => Bounds::half_open(f64::NEG_INFINITY, after),
    })
}

fn compared(operator: Operator, low: f64, high: f64) -> Bounds {
    let (none, all) = (f64::NEG_INFINITY, f64::INFINITY);
    match operator {
        Operator::Is | Operator::IsNot => Bounds::closed(low, high),
        Operator::Less => Bounds { low: none, high: low, with_low: true, with_high: false },
        Operator::AtMost => Bounds::closed(none, high),
        Operator::More => Bounds { low: high, high: all, with_low: false, with_high: true },
        Operator::AtLeast => Bounds::closed(low, all),
    }
}

/// The name that differs least, if it is near enough to have been meant.
fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let word = word.to_lowercase();
    let best = names.map(|name| (distance(&word, &name.to_lowercase()), name)).min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, name)| *distance * 2 <= name.chars().count()).map(|(_, name)| name.to_owned())
}

/// How many characters must be put in, taken out or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::super::BoxMeasure;
    use super::*;

    fn vocabulary() -> Vocabulary {
        let classes = ["scratch", "dent", "big hole", "7"].map(str::to_owned).to_vec();
        Vocabulary { classes, tags: ["night".to_owned()].into() }
    }

    fn read(line: &str) -> Filter {
        parse(line, &vocabulary()).unwrap()
    }

    fn is(condition: Condition) -> Filter {
        Filter::Is(condition)
    }

    fn not(filter: Filter) -> Filter {
        Filter::Not(Box::new(filter))
    }

    #[test]
    fn a_line_with_every_kind_of_term_is_read() {
        let line = r#"split:val class:dent boxes>3 area<0.01 name:part0* tag:night reviewed:no has:findings width>1000 date>2026-01-01 -class:scratch "regex:^a.*\d+$""#;
        let Filter::All(parts) = read(line) else { panic!("terms side by side must all hold") };
        let over = |low| Bounds { low, high: f64::INFINITY, with_low: false, with_high: true };
        let expected = [
            is(Condition::Split(vec![Split::Val])),
            is(Condition::Class(vec![ClassId(1)])),
            is(Condition::Image(ImageMeasure::Boxes, over(3.0))),
            is(Condition::Box(BoxMeasure::Area, Bounds { low: f64::NEG_INFINITY, high: 0.01, with_low: true, with_high: false })),
            is(Condition::Name(Pattern::Whole("part0*".to_owned()))),
            is(Condition::Tag(Pattern::Part("night".to_owned()))),
            is(Condition::Review(vec![Review::Unreviewed])),
            is(Condition::Findings),
            is(Condition::Image(ImageMeasure::Width, over(1000.0))),
            is(Condition::Image(ImageMeasure::Date, Bounds::half_open(1_767_312_000.0, f64::INFINITY))),
            not(is(Condition::Class(vec![ClassId(0)]))),
        ];
        assert_eq!(parts[..11], expected);
        let is_regex = matches!(&parts[11], Filter::Is(Condition::Name(Pattern::Regex(regex))) if regex.as_str() == r"^a.*\d+$");
        assert!(is_regex, "{:?}", parts[11]);
    }

    #[test]
    fn alternatives_groups_and_negation_nest() {
        let (a, b, c) = (read("a"), read("b"), read("c"));
        assert_eq!(read("a b OR c"), Filter::Any(vec![Filter::All(vec![a.clone(), b.clone()]), c.clone()]));
        assert_eq!(read("a (b|c)"), Filter::All(vec![a.clone(), Filter::Is(Condition::Name(Pattern::new("b|c")))]));
        assert_eq!(read("a -(b | c)"), Filter::All(vec![a.clone(), not(Filter::Any(vec![b.clone(), c.clone()]))]));
        assert_eq!(read("NOT -a AND b"), Filter::All(vec![a, b]));
        assert_eq!((read(""), read("  ")), (Filter::default(), Filter::default()));
        assert_eq!(read("regex:^(x|y)$").clone(), read("\"regex:^(x|y)$\""));
    }

    #[test]
    fn values_are_words_numbers_ranges_and_lists() {
        let image = |measure, bounds| is(Condition::Image(measure, bounds));
        let bounds = |measure, bounds| is(Condition::Box(measure, bounds));
        for (line, expected) in [
            ("boxes:2..5", image(ImageMeasure::Boxes, Bounds::closed(2.0, 5.0))),
            ("boxes=0", image(ImageMeasure::Boxes, Bounds::closed(0.0, 0.0))),
            ("bytes>=2MB", image(ImageMeasure::Bytes, Bounds::closed(2e6, f64::INFINITY))),
            ("area:1%..25%", bounds(BoxMeasure::Area, Bounds::half_open(0.01, 0.25))),
            ("side:..32", bounds(BoxMeasure::Side, Bounds::half_open(f64::NEG_INFINITY, 32.0))),
            ("x:.5..", bounds(BoxMeasure::X, Bounds::closed(0.5, f64::INFINITY))),
            ("date:1970-01-01..1970-01-02", image(ImageMeasure::Date, Bounds::half_open(0.0, 172_800.0))),
            ("date<=1970-01-01", image(ImageMeasure::Date, Bounds::half_open(f64::NEG_INFINITY, 86_400.0))),
            ("SPLIT:Train,test", is(Condition::Split(vec![Split::Train, Split::Test]))),
            ("class:\"big hole\",DENT", is(Condition::Class(vec![ClassId(2), ClassId(1)]))),
            ("\"class:big hole\"", is(Condition::Class(vec![ClassId(2)]))),
            ("class:*e*", is(Condition::Class(vec![ClassId(1), ClassId(2)]))),
            ("class:7", is(Condition::Class(vec![ClassId(3)]))),
            ("class:0", is(Condition::Class(vec![ClassId(0)]))),
            ("class!=0", not(is(Condition::Class(vec![ClassId(0)])))),
            ("reviewed:yes", is(Condition::Review(vec![Review::Reviewed, Review::Empty]))),
            ("finding:duplicate-row", is(Condition::Finding(Rule::DuplicateRow))),
            ("\"two words\"", is(Condition::Name(Pattern::Part("two words".to_owned())))),
            ("a=b", is(Condition::Name(Pattern::Part("a=b".to_owned())))),
            ("name:a,b", is(Condition::Name(Pattern::Part("a,b".to_owned())))),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn errors_say_what_and_where() {
        for (line, place, message, hint) in [
            ("clas:dent", "clas", "there is no key \"clas\"", "did you mean `class`?"),
            ("a boxs>3", "boxs", "there is no key \"boxs\"", "`boxes`"),
            ("-class:dnet", "dnet", "no class is called \"dnet\"", "\"dent\""),
            ("class:dent,hole", "hole", "no class is called \"hole\"", ""),
            ("boxes>many", "many", "\"many\" is not a number, such as 3, 0.01, 25 % or 2..5", ""),
            ("boxes>2..4", "2..4", "\"2..4\" is not a number, such as 3, 0.01, 25 % or 2..5", ""),
            ("date:soon", "soon", "\"soon\" is not a date, such as 2026, 2026-01 or 2026-01-31", ""),
            ("split>val", "split>val", "split is followed by `:`, not by a comparison", ""),
            ("x class:", "class:", "class has no value", "go on typing"),
            ("name:\"ab", "name:\"ab", "a quote is not closed", ""),
            ("(a OR b", "(", "a parenthesis is not closed", ""),
            ("a) b", ")", "nothing opens this parenthesis", ""),
            ("a OR", "", "something is missing here", "go on typing"),
            ("OR a", "OR", "something is missing here", ""),
            ("()", ")", "something is missing here", ""),
            ("regex:a[", "a[", "the regular expression is wrong: unclosed character class", ""),
        ] {
            let error = parse(line, &vocabulary()).unwrap_err();
            assert_eq!((&line[error.span.clone()], error.to_string().as_str()), (place, message), "{line}");
            assert!(error.hint().unwrap_or_default().contains(hint), "{line}: {:?}", error.hint());
        }
    }

    #[test]
    fn parentheses_nest_to_a_depth_that_the_stack_holds() {
        let nested = |depth: usize| parse(&format!("{}a{}", "(".repeat(depth), ")".repeat(depth)), &vocabulary());
        assert_eq!(nested(MAX_DEPTH).unwrap(), read("a"));
        assert_eq!(nested(1_000_000).unwrap_err(), QueryError { span: MAX_DEPTH..MAX_DEPTH + 1, problem: QueryProblem::TooDeep });
        assert!(parse(&"(a) ".repeat(300), &vocabulary()).is_ok());
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "[-a-z:<>=!()\"\\\\.,*?|0-9 äOR]{0,40}") {
            let _ = parse(&line, &vocabulary());
        }
    }
}
