//! The table's entries of label rows and of what label rows say together.
//!
//! Where each is decided: `parse.rs` (a row alone), `mend.rs` (spelling), `row_check.rs` (boxes that are used),
//! `reading.rs` (all rows of a dataset). Source: the table of defects that the published trainers drop or misread.

use super::Fixability::{Ask, Auto, None};
use super::RuleInfo;
use super::Severity::{Error, Info, Warning};

pub(super) const ROUNDING_SPILL: RuleInfo = RuleInfo {
    id: "rounding-spill",
    title: "Edge passes the image by rounding",
    severity: Info,
    fix: Auto,
    why: "harmless here; trainers that refuse any number over 1 drop the whole image for it",
};

pub(super) const CLASS_NOT_WHOLE: RuleInfo = RuleInfo {
    id: "class-not-whole",
    title: "Class is not a whole number",
    severity: Error,
    fix: Ask,
    why: "the published trainer learns some class from it without a word",
};

pub(super) const NEGATIVE_CLASS: RuleInfo = RuleInfo {
    id: "negative-class",
    title: "Class is negative",
    severity: Error,
    fix: Ask,
    why: "there is no such class; other trainers drop the whole image",
};

pub(super) const CLASS_BY_NAME: RuleInfo = RuleInfo {
    id: "class-by-name",
    title: "Class is written as a name",
    severity: Error,
    fix: Auto,
    why: "a row begins with the number of its class; a name that is exactly one of the dataset's can be replaced by it",
};

pub(super) const COMMA_DECIMALS: RuleInfo = RuleInfo {
    id: "comma-decimals",
    title: "Numbers have decimal commas",
    severity: Error,
    fix: Auto,
    why: "the numbers cannot be read; they can be spelled anew where all rows of the file are like this",
};

pub(super) const COMMA_SEPARATED: RuleInfo = RuleInfo {
    id: "comma-separated",
    title: "Fields are separated by commas or semicolons",
    severity: Error,
    fix: Auto,
    why: "the row cannot be read; it can be spelled anew where all rows of the file then have five numbers",
};

pub(super) const TRAILING_TEXT: RuleInfo = RuleInfo {
    id: "trailing-text",
    title: "Text behind the box",
    severity: Error,
    fix: Ask,
    why: "the numbers can be read, but other trainers drop the whole image; what the text is for must be asked",
};

pub(super) const ODD_POLYGON: RuleInfo = RuleInfo {
    id: "odd-polygon",
    title: "Polygon with an odd count of coordinates",
    severity: Error,
    fix: Ask,
    why: "one coordinate is missing, and nobody knows which",
};

pub(super) const POSE_ROW: RuleInfo = RuleInfo {
    id: "pose-row",
    title: "Row looks like keypoints",
    severity: Error,
    fix: Ask,
    why: "without `kpt_shape` in data.yaml trainers take the keypoints for a polygon",
};

pub(super) const CONFLICT_MARKER: RuleInfo = RuleInfo {
    id: "conflict-marker",
    title: "Marker of a merge conflict",
    severity: Error,
    fix: Ask,
    why: "two versions of the labels stand in the file; a person has to choose",
};

pub(super) const POLYGON_ROWS: RuleInfo = RuleInfo {
    id: "polygon-rows",
    title: "Polygons in a file of boxes",
    severity: Warning,
    fix: None,
    why: "other trainers then read every row of the file as a polygon, and make wrong boxes of the box rows",
};

pub(super) const ORIENTED_BOXES: RuleInfo = RuleInfo {
    id: "oriented-boxes",
    title: "Rows look like turned boxes",
    severity: Warning,
    fix: Ask,
    why: "four corners a row are turned boxes or polygons of four points; training takes the enclosing box",
};

pub(super) const BYTE_ORDER_MARK: RuleInfo = RuleInfo {
    id: "byte-order-mark",
    title: "File begins with a byte-order mark",
    severity: Warning,
    fix: Auto,
    why: "harmless here; other trainers drop the whole image for it",
};

pub(super) const BLANK_ROW: RuleInfo = RuleInfo {
    id: "blank-row",
    title: "Line that holds only blanks",
    severity: Warning,
    fix: Auto,
    why: "harmless here; other trainers drop the whole image for it",
};

pub(super) const UTF16_TEXT: RuleInfo = RuleInfo {
    id: "utf-16-text",
    title: "Label file is UTF-16",
    severity: Error,
    fix: Auto,
    why: "all its boxes are missing from training until it is written as UTF-8",
};

pub(super) const LFS_POINTER: RuleInfo = RuleInfo {
    id: "lfs-pointer",
    title: "Git LFS pointer in place of the file",
    severity: Error,
    fix: None,
    why: "the content was never fetched; run `git lfs pull`",
};

pub(super) const TINY_BOX: RuleInfo = RuleInfo {
    id: "tiny-box",
    title: "Box is tiny at the training size",
    severity: Warning,
    fix: None,
    why: "a side under two pixels of the network's input can hardly be learned; a larger input or tiles help",
};

pub(super) const HUGE_BOX: RuleInfo = RuleInfo {
    id: "huge-box",
    title: "Box covers nearly the whole image",
    severity: Info,
    fix: None,
    why: "often a stray drag or a label of the image as a whole",
};

pub(super) const EXTREME_SHAPE: RuleInfo = RuleInfo {
    id: "extreme-shape",
    title: "Box is very long and thin",
    severity: Info,
    fix: None,
    why: "often a slip of the mouse; the published trainer leaves boxes out whose sides differ over a hundredfold",
};

pub(super) const NEAR_DUPLICATE: RuleInfo = RuleInfo {
    id: "near-duplicate",
    title: "Two boxes of one class nearly cover each other",
    severity: Warning,
    fix: None,
    why: "the same object may be labelled twice, which counts twice in training and in the metrics",
};

pub(super) const TWO_CLASSES_ONE_BOX: RuleInfo = RuleInfo {
    id: "two-classes-one-box",
    title: "Two classes in nearly the same place",
    severity: Warning,
    fix: Ask,
    why: "one object taught as two classes confuses both",
};

pub(super) const COORDINATES_ARE_CORNERS: RuleInfo = RuleInfo {
    id: "coordinates-are-corners",
    title: "Coordinates look like corners",
    severity: Warning,
    fix: Ask,
    why: "x1 y1 x2 y2 read as centre and size gives wrong boxes without any error",
};

pub(super) const COORDINATES_FROM_TOP_LEFT: RuleInfo = RuleInfo {
    id: "coordinates-from-top-left",
    title: "Coordinates look like top left corner and size",
    severity: Warning,
    fix: Ask,
    why: "a corner read as the centre moves every box by half its size",
};

pub(super) const AXES_SWAPPED: RuleInfo = RuleInfo {
    id: "axes-swapped",
    title: "Width and height look swapped",
    severity: Warning,
    fix: Ask,
    why: "every box has the wrong shape",
};

pub(super) const CLASSES_FROM_ONE: RuleInfo = RuleInfo {
    id: "classes-from-one",
    title: "Class numbers start at 1",
    severity: Error,
    fix: Ask,
    why: "the last class is refused and every other one is taught under the next name",
};
