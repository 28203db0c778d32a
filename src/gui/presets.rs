//! The keys of other labelling programs, for hands that know them.
//!
//! A preset states only where it differs from the table of actions. What it states goes first: where the table has the same
//! keys for another action of an overlapping scope, that action loses them in this preset (CVAT's `D` is *previous*, so `D`
//! is no longer *next*; its `F` is *next*, so it no longer fits the picture into view).

use egui::{Key, KeyboardShortcut};

use super::action::Action;
use super::action::{ctrl, key, shift};

/// A set of keys by the program that it is known from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    #[default]
    Boxwright,
    LabelImg,
    Cvat,
    XAnyLabeling,
    Darknet,
}

/// Keys of an action where they are not those of the table.
pub type PresetRow = (Action, &'static [KeyboardShortcut]);

impl Preset {
    pub const ALL: [Self; 5] = [Self::Boxwright, Self::LabelImg, Self::Cvat, Self::XAnyLabeling, Self::Darknet];

    /// As it is shown and stands in the settings file.
    pub fn title(self) -> &'static str {
        match self {
            Self::Boxwright => "Boxwright",
            Self::LabelImg => "labelImg",
            Self::Cvat => "CVAT",
            Self::XAnyLabeling => "X-AnyLabeling",
            Self::Darknet => "Darknet",
        }
    }

    /// By its title in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.title().eq_ignore_ascii_case(name))
    }

    pub fn rows(self) -> &'static [PresetRow] {
        match self {
            Self::Boxwright => &[],
            Self::LabelImg => LABEL_IMG,
            Self::Cvat => CVAT,
            Self::XAnyLabeling => X_ANYLABELING,
            Self::Darknet => DARKNET,
        }
    }
}

/// Its `Ctrl+Shift+D` deletes the image, so it means nothing here.
const LABEL_IMG: &[PresetRow] = &[
    (Action::DrawBox, &[key(Key::W)]),
    (Action::NextUnreviewed, &[key(Key::PageDown)]),
    (Action::ZoomFit, &[ctrl(Key::F), ctrl(Key::Num0)]),
    (Action::ZoomActual, &[ctrl(Key::Equals), ctrl(Key::Num1)]),
    (Action::ZoomIn, &[ctrl(Key::Plus)]),
];

/// `F` is next and `D` previous; `N` draws, so that *empty* moves to `Shift+N`; `Ctrl` with a digit is a class, so that the
/// zooms lose `Ctrl+0` and `Ctrl+1`.
const CVAT: &[PresetRow] = &[
    (Action::NextImage, &[key(Key::F), key(Key::ArrowRight)]),
    (Action::PreviousImage, &[key(Key::D), key(Key::ArrowLeft)]),
    (Action::DrawBox, &[key(Key::N)]),
    (Action::MarkEmpty, &[shift(Key::N)]),
    (Action::ZoomFit, &[shift(Key::F)]),
    (Action::ZoomActual, &[key(Key::Z)]),
    (Action::Class1, &[ctrl(Key::Num1), key(Key::Num1)]),
    (Action::Class2, &[ctrl(Key::Num2), key(Key::Num2)]),
    (Action::Class3, &[ctrl(Key::Num3), key(Key::Num3)]),
    (Action::Class4, &[ctrl(Key::Num4), key(Key::Num4)]),
    (Action::Class5, &[ctrl(Key::Num5), key(Key::Num5)]),
    (Action::Class6, &[ctrl(Key::Num6), key(Key::Num6)]),
    (Action::Class7, &[ctrl(Key::Num7), key(Key::Num7)]),
    (Action::Class8, &[ctrl(Key::Num8), key(Key::Num8)]),
    (Action::Class9, &[ctrl(Key::Num9), key(Key::Num9)]),
    (Action::Class10, &[ctrl(Key::Num0), key(Key::Num0)]),
];

/// As in labelme, too: `R` draws, `Ctrl+P` copies the boxes of the previous image, `W` and `S` show and hide.
const X_ANYLABELING: &[PresetRow] = &[
    (Action::DrawBox, &[key(Key::R)]),
    (Action::HideBoxes, &[key(Key::S), key(Key::W)]),
    (Action::PastePrevious, &[ctrl(Key::P)]),
    (Action::ZoomFit, &[ctrl(Key::F)]),
];

/// As in `DarkMark`, `Yolo_mark` and `Yolo_Label`: `W` and `S` go through the classes, `R` removes a box, `P` and `Y` copy the previous
/// image's boxes. Their keys that delete an image mean nothing here.
const DARKNET: &[PresetRow] = &[
    (Action::NextImage, &[key(Key::ArrowRight), key(Key::D)]),
    (Action::PreviousImage, &[key(Key::ArrowLeft), key(Key::A)]),
    (Action::DrawBox, &[key(Key::B)]),
    (Action::DeleteBoxes, &[key(Key::Delete), key(Key::Backspace), key(Key::R)]),
    (Action::PreviousClass, &[key(Key::W), key(Key::Q)]),
    (Action::NextClass, &[key(Key::S), key(Key::E)]),
    (Action::PastePrevious, &[key(Key::P), key(Key::Y)]),
    (Action::NextUnreviewed, &[key(Key::PageDown)]),
];
