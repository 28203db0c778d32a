//! What does a line of an edit script ask for?
//!
//! In:  a line of words, or a JSON array of strings and numbers, for names with blanks in them.
//! Out: a step with names as they were written; which image and class they mean is found out when it is carried out.
//!
//! Blank lines and lines that begin with `#` ask for nothing.

use crate::dataset::Split;
use crate::dataset::edit::Review;
use crate::dataset::split::SplitOptions;
use crate::geom::Xywhn;

/// One line. Images and classes are names, or numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptStep {
    Add {
        image: String,
        class: String,
        bbox: Xywhn,
    },
    /// Without a box only the class changes.
    Set {
        image: String,
        index: usize,
        class: String,
        bbox: Option<Xywhn>,
    },
    Remove {
        image: String,
        index: usize,
    },
    Mark {
        image: String,
        review: Review,
        tags: Vec<String>,
    },
    Undo,
    Redo,
    Class(ClassStep),
    Split(SplitOptions),
    Move {
        image: String,
        split: Split,
    },
}

/// A change of classes by their names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClassStep {
    Add(String),
    Rename { class: String, name: String },
    Merge { from: String, into: String, renumber: bool },
    Delete { class: String, with_boxes: bool, renumber: bool },
    Recolor { class: String, color: Option<[u8; 3]> },
}

/// Reads a line; `None` where it asks for nothing.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(line: &str) -> Result<Option<ScriptStep>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let words: Vec<String> = if line.starts_with('[') {
        let values: Vec<serde_json::Value> = serde_json::from_str(line).map_err(|error| format!("no JSON array: {error}"))?;
        values.into_iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
    } else {
        line.split_whitespace().map(str::to_owned).collect()
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let owned = |word: &&str| (*word).to_owned();
    let step = match &words[..] {
        ["add", image, class, numbers @ ..] => ScriptStep::Add { image: owned(image), class: owned(class), bbox: bbox(numbers)? },
        ["set", image, index, class, numbers @ ..] => {
            let bbox = if numbers.is_empty() { None } else { Some(bbox(numbers)?) };
            ScriptStep::Set { image: owned(image), index: number(index)?, class: owned(class), bbox }
        }
        ["remove", image, index] => ScriptStep::Remove { image: owned(image), index: number(index)? },
        ["mark", image, review, tags @ ..] => {
            let review = match *review {
                "reviewed" => Review::Reviewed,
                "empty" => Review::Empty,
                "unreviewed" => Review::Unreviewed,
                other => return Err(format!("{other:?} is not reviewed, empty or unreviewed")),
            };
            let mut tags: Vec<String> = tags.iter().map(owned).collect();
            tags.sort();
            tags.dedup();
            ScriptStep::Mark { image: owned(image), review, tags }
        }
        ["undo"] => ScriptStep::Undo,
        ["redo"] => ScriptStep::Redo,
        ["class", rest @ ..] => ScriptStep::Class(class_step(rest)?),
        ["split", rest @ ..] => ScriptStep::Split(split_options(rest)?),
        ["move", image, split] => ScriptStep::Move { image: owned(image), split: split_of(split)? },
        [word, ..] => return Err(format!("{word:?} with {} words behind it is no step", words.len() - 1)),
        [] => return Ok(None),
    };
    Ok(Some(step))
}

fn class_step(words: &[&str]) -> Result<ClassStep, String> {
    let has = |options: &[&str], option: &str| options.contains(&option);
    let checked = |options: &[&str], known: &[&str]| match options.iter().find(|option| !known.contains(*option)) {
        Some(other) => Err(format!("{other:?} is none of {}", known.join(", "))),
        None => Ok(()),
    };
    Ok(match words {
        ["add", name] => ClassStep::Add((*name).to_owned()),
        ["rename", class, name] => ClassStep::Rename { class: (*class).to_owned(), name: (*name).to_owned() },
        ["merge", from, into, options @ ..] => {
            checked(options, &["renumber"])?;
            ClassStep::Merge { from: (*from).to_owned(), into: (*into).to_owned(), renumber: has(options, "renumber") }
        }
        ["delete", class, options @ ..] => {
            checked(options, &["with-boxes", "renumber"])?;
            ClassStep::Delete { class: (*class).to_owned(), with_boxes: has(options, "with-boxes"), renumber: has(options, "renumber") }
        }
        ["color", class, color] => ClassStep::Recolor { class: (*class).to_owned(), color: color_of(color)? },
        _ => return Err("a class is changed by add NAME, rename OLD NEW, merge FROM INTO, delete CLASS, or color CLASS #RRGGBB".to_owned()),
    })
}

/// `#RRGGBB`, or `usual`.
fn color_of(text: &str) -> Result<Option<[u8; 3]>, String> {
    if text == "usual" {
        return Ok(None);
    }
    let part = |at: usize| text.get(at..at + 2).and_then(|part| u8::from_str_radix(part, 16).ok());
    match (text.len() == 7 && text.starts_with('#'), part(1), part(3), part(5)) {
        (true, Some(red), Some(green), Some(blue)) => Ok(Some([red, green, blue])),
        _ => Err(format!("{text:?} is no colour such as #ff8800, or usual")),
    }
}

fn split_options(words: &[&str]) -> Result<SplitOptions, String> {
    let mut options = SplitOptions::default();
    for word in words {
        match word.split_once('=') {
            Some(("val", value)) => options.val = number(value)?,
            Some(("test", value)) => options.test = number(value)?,
            Some(("seed", value)) => options.seed = number(value)?,
            _ => return Err(format!("{word:?} is not val=SHARE, test=SHARE or seed=N")),
        }
    }
    Ok(options)
}

fn split_of(word: &str) -> Result<Split, String> {
    Split::ALL.into_iter().find(|split| split.name() == word).ok_or_else(|| format!("{word:?} is not train, val or test"))
}

fn bbox(words: &[&str]) -> Result<Xywhn, String> {
    let [cx, cy, w, h] = words else { return Err(format!("{} numbers behind the class, expected CX CY W H", words.len())) };
    Ok(Xywhn { cx: number(cx)?, cy: number(cy)?, w: number(w)?, h: number(h)? })
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no such number"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn lines_are_words_or_json() {
        let bbox = Xywhn { cx: 0.5, cy: 0.25, w: 0.1, h: 1.0 };
        let add = ScriptStep::Add { image: "a.jpg".to_owned(), class: "dent".to_owned(), bbox };
        assert_eq!(parse("  add a.jpg dent .5 .25 .1 1 ").unwrap(), Some(add.clone()));
        assert_eq!(parse(r#"["add", "a.jpg", "dent", 0.5, 0.25, 0.1, 1]"#).unwrap(), Some(add));
        assert_eq!(parse(" # a comment"), Ok(None));
        assert_eq!(parse(r#"["class", "add", "two words"]"#).unwrap(), Some(ScriptStep::Class(ClassStep::Add("two words".to_owned()))));
        let merge = ClassStep::Merge { from: "a".to_owned(), into: "b".to_owned(), renumber: true };
        assert_eq!(parse("class merge a b renumber").unwrap(), Some(ScriptStep::Class(merge)));
        let split = SplitOptions { val: 0.1, seed: 4, ..SplitOptions::default() };
        assert_eq!(parse("split val=.1 seed=4").unwrap(), Some(ScriptStep::Split(split)));
        let color = ClassStep::Recolor { class: "a".to_owned(), color: Some([255, 136, 0]) };
        assert_eq!(parse("class color a #ff8800").unwrap(), Some(ScriptStep::Class(color)));
    }

    #[test]
    fn faults_are_told() {
        for (line, part) in [
            ("add a.jpg 0 .5 .5 .1", "3 numbers"),
            ("set a.jpg x 0", "\"x\" is no such number"),
            ("mark a.jpg seen", "\"seen\" is not reviewed"),
            ("class merge a b now", "\"now\" is none of renumber"),
            ("class color a red", "#ff8800"),
            ("move a.jpg dev", "\"dev\" is not train"),
            ("[\"add\"", "no JSON array"),
            ("delete a.jpg 0", "is no step"),
        ] {
            let reason = parse(line).unwrap_err();
            assert!(reason.contains(part), "{line}: {reason}");
        }
    }
}
