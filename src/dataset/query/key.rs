//! The keys of the query line: their names, what may follow them, and what they mean.

use super::measure::{BoxMeasure, ImageMeasure};

/// What stands before the operator of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Split,
    Class,
    Box(BoxMeasure),
    Image(ImageMeasure),
    Name,
    Path,
    Regex,
    Tag,
    Reviewed,
    Has,
    Finding,
}

/// What may follow a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// One of some names, after `:`.
    Word,
    /// A number or a range of numbers, after any operator.
    Number,
    Date,
}

/// The words of `reviewed:`.
pub(super) const REVIEW_WORDS: [(&str, &str); 3] = [
    ("yes", "A person looked at the labels, or said that there is nothing to label"),
    ("no", "Nobody looked at the labels yet"),
    ("empty", "Empty on purpose"),
];

/// The words of `has:`.
pub(super) const HAS_WORDS: [(&str, &str); 3] =
    [("boxes", "At least one box"), ("findings", "The last check found something"), ("tags", "At least one tag")];

impl Key {
    pub const ALL: [Self; 21] = [
        Self::Split,
        Self::Class,
        Self::Image(ImageMeasure::Boxes),
        Self::Box(BoxMeasure::Area),
        Self::Box(BoxMeasure::Side),
        Self::Box(BoxMeasure::Aspect),
        Self::Tag,
        Self::Reviewed,
        Self::Has,
        Self::Finding,
        Self::Name,
        Self::Path,
        Self::Regex,
        Self::Image(ImageMeasure::Date),
        Self::Image(ImageMeasure::Width),
        Self::Image(ImageMeasure::Height),
        Self::Image(ImageMeasure::Bytes),
        Self::Box(BoxMeasure::X),
        Self::Box(BoxMeasure::Y),
        Self::Box(BoxMeasure::W),
        Self::Box(BoxMeasure::H),
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Class => "class",
            Self::Box(BoxMeasure::Area) => "area",
            Self::Box(BoxMeasure::Side) => "side",
            Self::Box(BoxMeasure::Aspect) => "aspect",
            Self::Box(BoxMeasure::X) => "x",
            Self::Box(BoxMeasure::Y) => "y",
            Self::Box(BoxMeasure::W) => "w",
            Self::Box(BoxMeasure::H) => "h",
            Self::Image(ImageMeasure::Boxes) => "boxes",
            Self::Image(ImageMeasure::Width) => "width",
            Self::Image(ImageMeasure::Height) => "height",
            Self::Image(ImageMeasure::Bytes) => "bytes",
            Self::Image(ImageMeasure::Date) => "date",
            Self::Name => "name",
            Self::Path => "path",
            Self::Regex => "regex",
            Self::Tag => "tag",
            Self::Reviewed => "reviewed",
            Self::Has => "has",
            Self::Finding => "finding",
        }
    }

    /// What it means, for help and completion.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Split => "In this split: train, val or test",
            Self::Class => "Has a box of this class; several separated by commas: of any of them",
            Self::Box(BoxMeasure::Area) => "Has a box of this area, as a fraction of the image",
            Self::Box(BoxMeasure::Side) => "Has a box of this size in pixels as training sees it (root of its area)",
            Self::Box(BoxMeasure::Aspect) => "Has a box with this ratio of width to height",
            Self::Box(BoxMeasure::X) => "Has a box whose centre is there, as a fraction of the image's width",
            Self::Box(BoxMeasure::Y) => "Has a box whose centre is there, as a fraction of the image's height",
            Self::Box(BoxMeasure::W) => "Has a box of this width, as a fraction of the image's",
            Self::Box(BoxMeasure::H) => "Has a box of this height, as a fraction of the image's",
            Self::Image(ImageMeasure::Boxes) => "Has so many boxes",
            Self::Image(ImageMeasure::Width) => "The image's width in pixels",
            Self::Image(ImageMeasure::Height) => "The image's height in pixels",
            Self::Image(ImageMeasure::Bytes) => "Size of the image file, such as bytes>2MB",
            Self::Image(ImageMeasure::Date) => "When the image file was last changed, such as date>2026-01-31",
            Self::Name => "Part of the file name, or with * and ? all of it",
            Self::Path => "Part of the path in the dataset, or with * and ? all of it",
            Self::Regex => "A regular expression that the file name matches",
            Self::Tag => "Has this tag",
            Self::Reviewed => "Whether a person looked at the labels: yes, no, or empty on purpose",
            Self::Has => "Has boxes, findings or tags",
            Self::Finding => "The last check found this",
        }
    }

    pub fn kind(self) -> KeyKind {
        match self {
            Self::Image(ImageMeasure::Date) => KeyKind::Date,
            Self::Box(_) | Self::Image(_) => KeyKind::Number,
            _ => KeyKind::Word,
        }
    }

    /// The key with this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name().eq_ignore_ascii_case(name))
    }
}
