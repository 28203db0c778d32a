//! The kinds of faults that a check can find: one table with id, title, severity, whether it can be mended, and why it matters.
//!
//! Every reader of labels names a fault by its `Rule`; the command line, the window and the documentation take their
//! words from `Rule::info`. A finding may be milder or less mendable than its rule's entry, never the other way round.
//! Thresholds of the rules live where they are applied (`parse.rs`, `voc.rs`).

/// How much a fault matters. `Error`: something is not used in training, or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Whether a finding can be mended without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fixability {
    /// `fix` does it.
    Auto,
    /// Only a person can say what was meant.
    Ask,
    None,
}

impl Fixability {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ask => "ask",
            Self::None => "none",
        }
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    OutOfRange,
    ClassOutsideNames,
    WrongFieldCount,
    NotANumber,
    ZeroSize,
    NegativeSize,
    DuplicateRow,
    CoordinatesInPixels,
    LabelUnreadable,
    ImageUnreadable,
    LabelWithoutImage,
    ImageWithoutLabel,
    EmptySplit,
    NamesCount,
}

/// What there is to say about a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// Stable, kebab-case.
    pub id: &'static str,
    pub title: &'static str,
    /// The most severe that a finding of this rule gets.
    pub severity: Severity,
    /// The best that can be done about a finding of this rule.
    pub fix: Fixability,
    pub why: &'static str,
}

impl Rule {
    pub const ALL: [Self; 14] = [
        Self::OutOfRange,
        Self::ClassOutsideNames,
        Self::WrongFieldCount,
        Self::NotANumber,
        Self::ZeroSize,
        Self::NegativeSize,
        Self::DuplicateRow,
        Self::CoordinatesInPixels,
        Self::LabelUnreadable,
        Self::ImageUnreadable,
        Self::LabelWithoutImage,
        Self::ImageWithoutLabel,
        Self::EmptySplit,
        Self::NamesCount,
    ];

    pub fn info(self) -> &'static RuleInfo {
        use Fixability::{Ask, Auto, None};
        use Severity::{Error, Info, Warning};
        match self {
            Self::OutOfRange => &RuleInfo {
                id: "out-of-range",
                title: "Box reaches past the image",
                severity: Error,
                fix: Auto,
                why: "some trainers drop the whole image for it, others learn a box that nobody can see; it is cut at the image's \
                      edge when at least half of it lies inside",
            },
            Self::ClassOutsideNames => &RuleInfo {
                id: "class-outside-names",
                title: "Class is not among the names",
                severity: Error,
                fix: Ask,
                why: "the row cannot be learned, and other trainers stop in the middle of a run",
            },
            Self::WrongFieldCount => &RuleInfo {
                id: "wrong-field-count",
                title: "Row has the wrong number of fields",
                severity: Error,
                fix: Ask,
                why: "a box row is `class cx cy w h`; a missing number cannot be guessed, a sixth may be a confidence or a track",
            },
            Self::NotANumber => &RuleInfo {
                id: "not-a-number",
                title: "Field is not a finite number",
                severity: Error,
                fix: Ask,
                why: "the row cannot be read, and other trainers drop the whole image for it",
            },
            Self::ZeroSize => &RuleInfo {
                id: "zero-size",
                title: "Box without width or height",
                severity: Error,
                fix: Auto,
                why: "nothing can be learned from an empty box; it is usually a stray click",
            },
            Self::NegativeSize => &RuleInfo {
                id: "negative-size",
                title: "Box with negative width or height",
                severity: Error,
                fix: Ask,
                why: "the corners were swapped or the columns mean something else",
            },
            Self::DuplicateRow => &RuleInfo {
                id: "duplicate-row",
                title: "Row is repeated",
                severity: Warning,
                fix: Auto,
                why: "the same object would count twice in training and in the metrics",
            },
            Self::CoordinatesInPixels => &RuleInfo {
                id: "coordinates-in-pixels",
                title: "Coordinates look like pixels",
                severity: Error,
                fix: Ask,
                why: "YOLO labels are fractions of the image; whether pixels were meant, and of which picture size, must be asked",
            },
            Self::LabelUnreadable => &RuleInfo {
                id: "label-unreadable",
                title: "Label file cannot be read",
                severity: Error,
                fix: None,
                why: "all its boxes are missing from training, so that the image teaches that nothing is there",
            },
            Self::ImageUnreadable => &RuleInfo {
                id: "image-unreadable",
                title: "Image cannot be decoded",
                severity: Error,
                fix: None,
                why: "the image and its labels are missing from training",
            },
            Self::LabelWithoutImage => &RuleInfo {
                id: "label-without-image",
                title: "Label file without an image",
                severity: Warning,
                fix: Ask,
                why: "the work in it is not used; often the image was renamed or not copied",
            },
            Self::ImageWithoutLabel => &RuleInfo {
                id: "image-without-label",
                title: "Images without a label file",
                severity: Info,
                fix: None,
                why: "they are trained as background; harmful if they were only not labelled yet",
            },
            Self::EmptySplit => &RuleInfo {
                id: "empty-split",
                title: "Split without images",
                severity: Error,
                fix: None,
                why: "without training images nothing is learned, without validation images nobody knows how well",
            },
            Self::NamesCount => &RuleInfo {
                id: "names-count",
                title: "Class count and names disagree",
                severity: Warning,
                fix: None,
                why: "other trainers refuse the dataset or ignore `nc`; the names count here",
            },
        }
    }

    pub fn id(self) -> &'static str {
        self.info().id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_kebab_case_and_unique() {
        let ids: HashSet<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        assert!(ids.iter().all(|id| id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }
}
