//! A label: a person's box and its class.

use crate::geom::Xywhn;

/// Index into the dataset's class names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// A person's box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    pub class: ClassId,
    pub bbox: Xywhn,
}

/// The outline of an object: x and y as fractions of the image, without the first point again at the end.
pub type Polygon = Vec<[f32; 2]>;

/// Part of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Split {
    Train,
    Val,
    Test,
}

impl Split {
    pub const ALL: [Self; 3] = [Self::Train, Self::Val, Self::Test];

    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}
