//! The kinds of faults that a check can find: one table with id, title, severity, whether it can be mended, and why it matters.
//!
//! Every reader of labels names a fault by its `Rule`; the command line, the window and the documentation take their
//! words from `Rule::info`. A finding may be milder or less mendable than its rule's entry, never the other way round.
//! Thresholds of the rules live where they are applied (`parse.rs`, `row_check.rs`, `reading.rs`, `voc.rs`).

mod label_rows;

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

    // Of label rows (`parse.rs`, `mend.rs`, `row_check.rs`, `reading.rs`).
    RoundingSpill,
    ClassNotWhole,
    NegativeClass,
    ClassByName,
    CommaDecimals,
    CommaSeparated,
    TrailingText,
    OddPolygon,
    PoseRow,
    ConflictMarker,
    PolygonRows,
    OrientedBoxes,
    ByteOrderMark,
    BlankRow,
    Utf16Text,
    LfsPointer,
    TinyBox,
    HugeBox,
    ExtremeShape,
    NearDuplicate,
    TwoClassesOneBox,
    CoordinatesAreCorners,
    CoordinatesFromTopLeft,
    AxesSwapped,
    ClassesFromOne,

    // Of files and datasets.
    LabelUnreadable,
    ImageUnreadable,
    LabelWithoutImage,
    ImageWithoutLabel,
    EmptySplit,
    NamesCount,

    // Files, images and datasets (`image_check.rs`, `leakage.rs`, `dataset_check.rs`).
    ImageEmpty,
    ImageTruncated,
    TrailingBytes,
    WrongSuffix,
    ImageTooSmall,
    ImageTooLarge,
    ImageTurned,
    CmykImage,
    SixteenBitImage,
    GrayImage,
    AlphaChannel,
    MultiPageImage,
    FloatImage,
    AnimatedImage,
    UnsupportedImage,
    OddName,
    BrokenLink,
    DuplicateImage,
    NearDuplicateImage,
    DuplicateLabelsDiffer,
    SplitLeak,
    SameImagesInSplits,
    ClassImbalance,
    RareClass,
    ClassNotInVal,
    SimilarNames,
    DuplicateNames,
    UnusedName,
    NamesUnsorted,
    BackgroundShare,
    SharedLabelFile,
    SameBasename,
    LabelEnding,
    ForeignCache,
    ImageSizeDiffers,
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
    pub const ALL: [Self; 74] = [
        Self::OutOfRange,
        Self::ClassOutsideNames,
        Self::WrongFieldCount,
        Self::NotANumber,
        Self::ZeroSize,
        Self::NegativeSize,
        Self::DuplicateRow,
        Self::CoordinatesInPixels,
        Self::RoundingSpill,
        Self::ClassNotWhole,
        Self::NegativeClass,
        Self::ClassByName,
        Self::CommaDecimals,
        Self::CommaSeparated,
        Self::TrailingText,
        Self::OddPolygon,
        Self::PoseRow,
        Self::ConflictMarker,
        Self::PolygonRows,
        Self::OrientedBoxes,
        Self::ByteOrderMark,
        Self::BlankRow,
        Self::Utf16Text,
        Self::LfsPointer,
        Self::TinyBox,
        Self::HugeBox,
        Self::ExtremeShape,
        Self::NearDuplicate,
        Self::TwoClassesOneBox,
        Self::CoordinatesAreCorners,
        Self::CoordinatesFromTopLeft,
        Self::AxesSwapped,
        Self::ClassesFromOne,
        Self::LabelUnreadable,
        Self::ImageUnreadable,
        Self::LabelWithoutImage,
        Self::ImageWithoutLabel,
        Self::EmptySplit,
        Self::NamesCount,
        Self::ImageEmpty,
        Self::ImageTruncated,
        Self::TrailingBytes,
        Self::WrongSuffix,
        Self::ImageTooSmall,
        Self::ImageTooLarge,
        Self::ImageTurned,
        Self::CmykImage,
        Self::SixteenBitImage,
        Self::GrayImage,
        Self::AlphaChannel,
        Self::MultiPageImage,
        Self::FloatImage,
        Self::AnimatedImage,
        Self::UnsupportedImage,
        Self::OddName,
        Self::BrokenLink,
        Self::DuplicateImage,
        Self::NearDuplicateImage,
        Self::DuplicateLabelsDiffer,
        Self::SplitLeak,
        Self::SameImagesInSplits,
        Self::ClassImbalance,
        Self::RareClass,
        Self::ClassNotInVal,
        Self::SimilarNames,
        Self::DuplicateNames,
        Self::UnusedName,
        Self::NamesUnsorted,
        Self::BackgroundShare,
        Self::SharedLabelFile,
        Self::SameBasename,
        Self::LabelEnding,
        Self::ForeignCache,
        Self::ImageSizeDiffers,
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
            Self::RoundingSpill => &label_rows::ROUNDING_SPILL,
            Self::ClassNotWhole => &label_rows::CLASS_NOT_WHOLE,
            Self::NegativeClass => &label_rows::NEGATIVE_CLASS,
            Self::ClassByName => &label_rows::CLASS_BY_NAME,
            Self::CommaDecimals => &label_rows::COMMA_DECIMALS,
            Self::CommaSeparated => &label_rows::COMMA_SEPARATED,
            Self::TrailingText => &label_rows::TRAILING_TEXT,
            Self::OddPolygon => &label_rows::ODD_POLYGON,
            Self::PoseRow => &label_rows::POSE_ROW,
            Self::ConflictMarker => &label_rows::CONFLICT_MARKER,
            Self::PolygonRows => &label_rows::POLYGON_ROWS,
            Self::OrientedBoxes => &label_rows::ORIENTED_BOXES,
            Self::ByteOrderMark => &label_rows::BYTE_ORDER_MARK,
            Self::BlankRow => &label_rows::BLANK_ROW,
            Self::Utf16Text => &label_rows::UTF16_TEXT,
            Self::LfsPointer => &label_rows::LFS_POINTER,
            Self::TinyBox => &label_rows::TINY_BOX,
            Self::HugeBox => &label_rows::HUGE_BOX,
            Self::ExtremeShape => &label_rows::EXTREME_SHAPE,
            Self::NearDuplicate => &label_rows::NEAR_DUPLICATE,
            Self::TwoClassesOneBox => &label_rows::TWO_CLASSES_ONE_BOX,
            Self::CoordinatesAreCorners => &label_rows::COORDINATES_ARE_CORNERS,
            Self::CoordinatesFromTopLeft => &label_rows::COORDINATES_FROM_TOP_LEFT,
            Self::AxesSwapped => &label_rows::AXES_SWAPPED,
            Self::ClassesFromOne => &label_rows::CLASSES_FROM_ONE,
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
            Self::ImageEmpty => &RuleInfo {
                id: "image-empty",
                title: "Image file is empty",
                severity: Error,
                fix: None,
                why: "the image and its labels are missing from training; the copy or download failed",
            },
            Self::ImageTruncated => &RuleInfo {
                id: "image-truncated",
                title: "Image is cut off",
                severity: Error,
                fix: None,
                why: "the image is missing from training; readers that forgive it show a half-gray picture with boxes on nothing",
            },
            Self::TrailingBytes => &RuleInfo {
                id: "trailing-bytes",
                title: "Bytes behind the end of the image",
                severity: Info,
                fix: None,
                why: "harmless here; the published trainer writes such JPEG files anew, with other pixels",
            },
            Self::WrongSuffix => &RuleInfo {
                id: "wrong-suffix",
                title: "Name does not fit the content",
                severity: Warning,
                fix: None,
                why: "the content counts here; other tools go by the name and fail",
            },
            Self::ImageTooSmall => &RuleInfo {
                id: "image-too-small",
                title: "Image is tiny",
                severity: Warning,
                fix: None,
                why: "there is hardly anything to learn from it, and other trainers drop it",
            },
            Self::ImageTooLarge => &RuleInfo {
                id: "image-too-large",
                title: "Image is very large",
                severity: Error,
                fix: None,
                why: "it is slow to read, and small objects vanish when it is fitted to the input; beyond 536 million pixels it is refused",
            },
            Self::ImageTurned => &RuleInfo {
                id: "image-turned",
                title: "Image is turned by its EXIF orientation",
                severity: Info,
                fix: None,
                why: "training turns the picture as viewers do; labels that were drawn on the stored picture lie elsewhere then",
            },
            Self::CmykImage => &RuleInfo {
                id: "cmyk-image",
                title: "Image is CMYK",
                severity: Info,
                fix: None,
                why: "its colours are converted without a colour profile, so that they differ from what a viewer shows",
            },
            Self::SixteenBitImage => &RuleInfo {
                id: "sixteen-bit-image",
                title: "Image has 16 bits a sample",
                severity: Warning,
                fix: None,
                why: "only the upper 8 bits are used; where these are empty, training sees a black picture",
            },
            Self::GrayImage => &RuleInfo {
                id: "gray-image",
                title: "Image is gray",
                severity: Info,
                fix: None,
                why: "its values are used for all three colours; a mix of gray and coloured images can tell classes apart by accident",
            },
            Self::AlphaChannel => &RuleInfo {
                id: "alpha-channel",
                title: "Image has transparency",
                severity: Info,
                fix: None,
                why: "transparency is ignored, so that colours which a viewer hides are seen by training",
            },
            Self::MultiPageImage => &RuleInfo {
                id: "multi-page-image",
                title: "File has several pages",
                severity: Warning,
                fix: None,
                why: "only the first page is used; labels of the others lie on it",
            },
            Self::FloatImage => &RuleInfo {
                id: "float-image",
                title: "Image has 32-bit samples",
                severity: Error,
                fix: None,
                why: "it is not read, and stops other trainers in the middle of a run",
            },
            Self::AnimatedImage => &RuleInfo {
                id: "animated-image",
                title: "Image is an animation",
                severity: Warning,
                fix: None,
                why: "only the first frame is used",
            },
            Self::UnsupportedImage => &RuleInfo {
                id: "unsupported-image",
                title: "Picture of a kind that is not read",
                severity: Error,
                fix: None,
                why: "HEIC, AVIF and the like are missing from training until they are converted",
            },
            Self::OddName => &RuleInfo {
                id: "odd-name",
                title: "Odd file name",
                severity: Warning,
                fix: None,
                why: "lists, archives and other systems change or lose such names, and with them the label",
            },
            Self::BrokenLink => &RuleInfo {
                id: "broken-link",
                title: "Link leads nowhere",
                severity: Error,
                fix: None,
                why: "the image behind it is missing from training",
            },
            Self::DuplicateImage => &RuleInfo {
                id: "duplicate-image",
                title: "Image is a copy",
                severity: Warning,
                fix: None,
                why: "it counts twice in training and in the figures",
            },
            Self::NearDuplicateImage => &RuleInfo {
                id: "near-duplicate-image",
                title: "Image is nearly a copy",
                severity: Info,
                fix: None,
                why: "it adds little, and in another split it makes the figures too good",
            },
            Self::DuplicateLabelsDiffer => &RuleInfo {
                id: "duplicate-labels-differ",
                title: "Copies have different labels",
                severity: Warning,
                fix: None,
                why: "one picture with two truths teaches neither; look at both and keep one",
            },
            Self::SplitLeak => &RuleInfo {
                id: "split-leak",
                title: "Splits know each other",
                severity: Warning,
                fix: None,
                why: "what was learned is asked again, so that the figures are too good; a new split keeps such groups whole",
            },
            Self::SameImagesInSplits => &RuleInfo {
                id: "same-images-in-splits",
                title: "Splits share images",
                severity: Warning,
                fix: None,
                why: "the figures tell how well images are remembered, not how well new ones are understood",
            },
            Self::ClassImbalance => &RuleInfo {
                id: "class-imbalance",
                title: "Classes are out of balance",
                severity: Info,
                fix: None,
                why: "the rare class is hardly seen in training",
            },
            Self::RareClass => &RuleInfo {
                id: "rare-class",
                title: "Class has few boxes",
                severity: Info,
                fix: None,
                why: "from so few examples hardly anything is learned that holds elsewhere",
            },
            Self::ClassNotInVal => &RuleInfo {
                id: "class-not-in-val",
                title: "Class is missing from val",
                severity: Warning,
                fix: None,
                why: "nobody knows how well it is found, and it does not count for choosing the best weights",
            },
            Self::SimilarNames => &RuleInfo {
                id: "similar-names",
                title: "Class names are nearly the same",
                severity: Warning,
                fix: None,
                why: "often two spellings of one class, each of which makes the other wrong",
            },
            Self::DuplicateNames => &RuleInfo {
                id: "duplicate-names",
                title: "Class name occurs twice",
                severity: Warning,
                fix: None,
                why: "two classes that nobody can tell apart, each of which makes the other wrong",
            },
            Self::UnusedName => &RuleInfo {
                id: "unused-name",
                title: "Classes without a box",
                severity: Info,
                fix: None,
                why: "they cost a little in training and count for nothing",
            },
            Self::NamesUnsorted => &RuleInfo {
                id: "names-unsorted",
                title: "Numbers of the names are not in order",
                severity: Info,
                fix: None,
                why: "some tools take the order of the lines for the numbers",
            },
            Self::BackgroundShare => &RuleInfo {
                id: "background-share",
                title: "Share of backgrounds",
                severity: Info,
                fix: None,
                why: "images without boxes teach what to leave alone; too many slow training, none invites false alarms",
            },
            Self::SharedLabelFile => &RuleInfo {
                id: "shared-label-file",
                title: "Two images have one label file",
                severity: Warning,
                fix: None,
                why: "the boxes of one picture are learned on the other",
            },
            Self::SameBasename => &RuleInfo {
                id: "same-basename",
                title: "File names occur twice",
                severity: Info,
                fix: None,
                why: "tools that copy all images into one folder overwrite them",
            },
            Self::LabelEnding => &RuleInfo {
                id: "label-ending",
                title: "Label file does not end with .txt in lower case",
                severity: Warning,
                fix: Ask,
                why: "the file is not read, so that its image counts as background",
            },
            Self::ForeignCache => &RuleInfo {
                id: "foreign-cache",
                title: "Cache of another trainer",
                severity: Info,
                fix: None,
                why: "it goes stale without being noticed there; delete it before training with that trainer",
            },
            Self::ImageSizeDiffers => &RuleInfo {
                id: "image-size-differs",
                title: "Annotation states another size",
                severity: Warning,
                fix: None,
                why: "the size of the picture counts; boxes that were drawn on another size lie elsewhere",
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
        assert!(ids.iter().all(|id| id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')));
    }
}
