//! Which images does a person want to see, and in which order?
//!
//! In:  a line such as `split:val class:dent boxes>3 -tag:night`, or a [`Filter`] put together in code.
//! Out: the images that pass, in the order of a [`Sort`]; what could be typed next; or what is wrong with the line and where.
//!
//! Terms side by side must all hold; `OR` (or `|`) separates alternatives, `-` or `NOT` negates a term or a group in
//! parentheses. A bare word is part of the file name. Quotes keep blanks together and take everything as it stands.
//!
//! Box measures (`area`, `side`, `aspect`, `x`, `y`, `w`, `h`) side by side are about one and the same box, and where a
//! `class` stands beside them about a box of that class: `class:dent area<0.01` is an image with a small dent. Each
//! positive `class` term asks for a box of its own, and negated terms stand alone: `-class:dent` is an image without any dent.
//!
//! `a..b` holds its lower end and not its upper end; of whole numbers and dates it holds both. Dates are in UTC. A pattern
//! or regular expression may match the file name with or without its ending.
//!
//! `parse.rs` reads a line, `complete.rs` says how it may go on, `columns.rs` holds what is asked about as arrays, and
//! `select.rs` evaluates. Pure: never touches a file.

pub mod columns;
pub mod complete;
mod date;
mod key;
pub mod line;
pub mod measure;
pub mod parse;
mod pattern;
pub mod select;
mod token;

pub use columns::{Change, Columns, Source};
pub use complete::{Completion, complete};
pub use key::{Key, KeyKind};
pub use measure::{BoxMeasure, ImageMeasure};
pub use parse::{QueryError, parse};
pub use pattern::Pattern;
pub use select::Selection;

use std::collections::BTreeSet;

use super::edit::Review;
use super::label::{ClassId, Split};
use super::rule::Rule;

/// Which images pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Every one of these holds; none at all: every image passes.
    All(Vec<Filter>),
    /// At least one of these holds.
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Is(Condition),
}

impl Default for Filter {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl Filter {
    /// Whether every image passes, whatever the dataset.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::All(parts) if parts.is_empty())
    }
}

/// One thing that is true of an image or not.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// It is in one of these splits.
    Split(Vec<Split>),
    /// It has a box of one of these classes.
    Class(Vec<ClassId>),
    /// It has a box with this measure.
    Box(BoxMeasure, Bounds),
    /// The image itself has this measure; images whose measure is not known do not pass.
    Image(ImageMeasure, Bounds),
    /// The file name, with or without its ending.
    Name(Pattern),
    /// The path below the dataset's folder.
    Path(Pattern),
    Tag(Pattern),
    /// It is in one of these states.
    Review(Vec<Review>),
    /// The last check found something.
    Findings,
    /// The last check found this.
    Finding(Rule),
    HasTags,
}

/// An interval of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub low: f64,
    pub high: f64,
    /// Whether `low` itself is inside.
    pub with_low: bool,
    pub with_high: bool,
}

impl Bounds {
    /// From `low` to `high`, without `high`.
    pub fn half_open(low: f64, high: f64) -> Self {
        Self { low, high, with_low: true, with_high: false }
    }

    /// From `low` to `high`, with both.
    pub fn closed(low: f64, high: f64) -> Self {
        Self { low, high, with_low: true, with_high: true }
    }

    #[inline]
    pub fn holds(&self, value: f64) -> bool {
        let above = if self.with_low { value >= self.low } else { value > self.low };
        let below = if self.with_high { value <= self.high } else { value < self.high };
        above && below
    }
}

/// The order of images. Those that lack what is compared come last; ties stay in the order of the dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sort {
    pub by: SortBy,
    pub descending: bool,
}

/// What images are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortBy {
    /// By split, then path, as `Dataset::images`.
    #[default]
    Dataset,
    /// File name; numbers in it count as numbers.
    Name,
    /// When the image file was last changed.
    Date,
    Boxes,
    /// Area of the largest box, as a fraction of the image.
    LargestBox,
    SmallestBox,
    Split,
    /// The lowest class that the image has.
    Class,
    /// Number of pixels.
    Size,
    /// Bytes of the file.
    Bytes,
    /// Unreviewed, reviewed, empty on purpose.
    Review,
    /// Number of findings of the last check.
    Findings,
    /// The first tag that the image has.
    Tag,
}

impl SortBy {
    pub const ALL: [Self; 13] = [
        Self::Dataset,
        Self::Name,
        Self::Date,
        Self::Boxes,
        Self::LargestBox,
        Self::SmallestBox,
        Self::Split,
        Self::Class,
        Self::Size,
        Self::Bytes,
        Self::Review,
        Self::Findings,
        Self::Tag,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Dataset => "Path",
            Self::Name => "Name",
            Self::Date => "Date",
            Self::Boxes => "Number of boxes",
            Self::LargestBox => "Largest box",
            Self::SmallestBox => "Smallest box",
            Self::Split => "Split",
            Self::Class => "Class",
            Self::Size => "Image size",
            Self::Bytes => "File size",
            Self::Review => "Review",
            Self::Findings => "Findings",
            Self::Tag => "Tag",
        }
    }
}

/// The names that a line may use, beside its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// In the order of their ids.
    pub classes: Vec<String>,
    /// Tags that images have.
    pub tags: BTreeSet<String>,
}
