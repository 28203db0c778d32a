//! What can a person ask for with a key or a button? Title, tooltip and shortcut of each action, in one table.
//!
//! Buttons, key map and help sheet come from here. Actions carry no values: what they act on is what the window shows.

use egui::{Context, Key, KeyboardShortcut, Modifiers};

use crate::session::JobKind;
use crate::session::JobStatus;
use crate::session::Session;

/// A place in the window for one part of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workspace {
    #[default]
    Data,
    Check,
    Train,
    Detect,
    Export,
}

impl Workspace {
    pub const ALL: [Self; 5] = [Self::Data, Self::Check, Self::Train, Self::Detect, Self::Export];

    pub fn title(self) -> &'static str {
        match self {
            Self::Data => "Data",
            Self::Check => "Check",
            Self::Train => "Train",
            Self::Detect => "Detect",
            Self::Export => "Export",
        }
    }

    /// The action that shows it.
    pub fn action(self) -> Action {
        match self {
            Self::Data => Action::ShowData,
            Self::Check => Action::ShowCheck,
            Self::Train => Action::ShowTrain,
            Self::Detect => Action::ShowDetect,
            Self::Export => Action::ShowExport,
        }
    }

    /// By its title in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workspace| workspace.title().eq_ignore_ascii_case(name))
    }
}

/// Something that a person can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Open,
    OpenSample,
    NextImage,
    PreviousImage,
    ToggleGrid,
    ToggleBoxes,
    ZoomIn,
    ZoomOut,
    ZoomFit,
    ZoomActual,
    Check,
    PreviewFix,
    ApplyFix,
    Undo,
    StartTraining,
    StopTraining,
    StopAfterEpoch,
    PauseTraining,
    ValidateNow,
    SaveNow,
    ResumeTraining,
    Enqueue,
    PreviewBatches,
    OverfitCheck,
    ResetZoom,
    CompareRuns,
    Detect,
    LookAtDetections,
    Export,
    ShowData,
    ShowCheck,
    ShowTrain,
    ShowDetect,
    ShowExport,
    ToggleTheme,
    Help,
    DrawBox,
    SelectAllBoxes,
    PreviousBox,
    NextBox,
    DeleteBoxes,
    CopyBoxes,
    PasteBoxes,
    DuplicateBoxes,
    PastePrevious,
    Propagate,
    ChooseClass,
    PreviousClass,
    NextClass,
    Class1,
    Class2,
    Class3,
    Class4,
    Class5,
    Class6,
    Class7,
    Class8,
    Class9,
    Class10,
    LockBoxes,
    HideBoxes,
    PeekBoxes,
    MarkReviewed,
    MarkEmpty,
    NextUnreviewed,
    ZoomToBox,
    ToggleCrosshair,
    ToggleLoupe,
    TogglePixelGrid,
    ResetTone,
}

/// What there is to say about an action.
pub struct ActionInfo {
    pub title: &'static str,
    pub tooltip: &'static str,
    /// The first is shown, all work.
    pub shortcuts: &'static [KeyboardShortcut],
}

const fn key(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::NONE, key)
}

const fn ctrl(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::COMMAND, key)
}

const fn shift(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::SHIFT, key)
}

const SHIFT_D: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::D);
const SHIFT_V: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::V);
const SHIFT_R: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::R);
const SHIFT_Q: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::Q);
const SHIFT_P: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::P);
const SHIFT_B: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::B);
const SHIFT_S: KeyboardShortcut = KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), Key::S);

impl Action {
    pub const ALL: [Self; 70] = [
        Self::Open,
        Self::OpenSample,
        Self::NextImage,
        Self::PreviousImage,
        Self::ToggleGrid,
        Self::ToggleBoxes,
        Self::ZoomIn,
        Self::ZoomOut,
        Self::ZoomFit,
        Self::ZoomActual,
        Self::Check,
        Self::PreviewFix,
        Self::ApplyFix,
        Self::Undo,
        Self::StopTraining, // before the start: egui lets F7 match Shift+F7
        Self::StopAfterEpoch,
        Self::StartTraining,
        Self::PauseTraining,
        Self::ValidateNow,
        Self::SaveNow,
        Self::ResumeTraining,
        Self::Enqueue,
        Self::PreviewBatches,
        Self::OverfitCheck,
        Self::ResetZoom,
        Self::CompareRuns,
        Self::Detect,
        Self::LookAtDetections,
        Self::Export,
        Self::ShowData,
        Self::ShowCheck,
        Self::ShowTrain,
        Self::ShowDetect,
        Self::ShowExport,
        Self::ToggleTheme,
        Self::Help,
        // With more modifiers before those with less.
        Self::NextUnreviewed,
        Self::PreviousBox,
        Self::HideBoxes,
        Self::DrawBox,
        Self::SelectAllBoxes,
        Self::NextBox,
        Self::DeleteBoxes,
        Self::CopyBoxes,
        Self::PasteBoxes,
        Self::DuplicateBoxes,
        Self::PastePrevious,
        Self::Propagate,
        Self::ChooseClass,
        Self::PreviousClass,
        Self::NextClass,
        Self::Class1,
        Self::Class2,
        Self::Class3,
        Self::Class4,
        Self::Class5,
        Self::Class6,
        Self::Class7,
        Self::Class8,
        Self::Class9,
        Self::Class10,
        Self::LockBoxes,
        Self::PeekBoxes,
        Self::MarkReviewed,
        Self::MarkEmpty,
        Self::ZoomToBox,
        Self::ToggleCrosshair,
        Self::ToggleLoupe,
        Self::TogglePixelGrid,
        Self::ResetTone,
    ];

    pub fn info(self) -> ActionInfo {
        let info = |title, tooltip, shortcuts| ActionInfo { title, tooltip, shortcuts };
        match self {
            Self::Open => info("Open…", "Open a dataset, a run or weights", &const { [ctrl(Key::O)] }),
            Self::OpenSample => info("Try the sample", "Draw a small dataset of metal parts with scratches, dents and cracks", &[]),
            Self::NextImage => info("Next", "Go to the next image", &const { [key(Key::D), key(Key::ArrowRight)] }),
            Self::PreviousImage => info("Previous", "Go to the previous image", &const { [key(Key::A), key(Key::ArrowLeft)] }),
            Self::ToggleGrid => info("Grid", "Switch between the grid and a single image", &const { [key(Key::G)] }),
            Self::ToggleBoxes => info("Boxes", "Show or hide all boxes", &const { [ctrl(Key::H)] }),
            Self::PeekBoxes => info("Peek", "Hide all boxes as long as the key is held", &const { [key(Key::H)] }),
            Self::ZoomIn => info("Zoom in", "Zoom in", &const { [ctrl(Key::Plus), ctrl(Key::Equals)] }),
            Self::ZoomOut => info("Zoom out", "Zoom out", &const { [ctrl(Key::Minus)] }),
            Self::ZoomFit => info("Fit", "Fit the image into view (or double click)", &const { [ctrl(Key::Num0), key(Key::F)] }),
            Self::ZoomActual => info("100 %", "One image pixel a screen pixel", &const { [key(Key::Z)] }),
            Self::Check => info("Check labels", "Read every label row and decode every image", &const { [key(Key::F5)] }),
            Self::PreviewFix => info("Preview fixes…", "List what the safe fixes would change", &const { [key(Key::F6)] }),
            Self::ApplyFix => info("Apply fixes", "Write the listed changes; they can be undone", &[]),
            Self::Undo => info("Undo", "Take the last batch of fixes back", &const { [ctrl(Key::Z)] }),
            Self::StartTraining => info("Start training", "Train with the settings on this page", &const { [key(Key::F7)] }),
            Self::StopTraining => info(
                "Stop",
                "Stop after this step; the weights so far are kept",
                &const { [KeyboardShortcut::new(Modifiers::SHIFT, Key::F7)] },
            ),
            Self::StopAfterEpoch => info(
                "Stop after epoch",
                "Stop when this epoch is learnt and validated",
                &const { [KeyboardShortcut::new(Modifiers::COMMAND, Key::F7)] },
            ),
            Self::PauseTraining => {
                info("Pause or continue", "Wait after this step with the state saved, or go on", &const { [key(Key::F10)] })
            }
            Self::ValidateNow => info("Validate now", "Measure the averaged weights as they are; changes nothing", &const { [SHIFT_V] }),
            Self::SaveNow => info("Save now", "Save weights and state after this step", &const { [SHIFT_S] }),
            Self::ResumeTraining => info("Resume", "The run that is shown goes on", &const { [SHIFT_R] }),
            Self::Enqueue => info("Add to queue", "Train with these settings when nothing else trains", &const { [SHIFT_Q] }),
            Self::PreviewBatches => info("Preview", "Make the first batches as pictures, without training", &const { [SHIFT_P] }),
            Self::OverfitCheck => info("Try one batch", "Train some steps on one batch and judge", &const { [SHIFT_B] }),
            Self::ResetZoom => info("Show the whole run", "Show the whole run in all plots", &const { [key(Key::Home)] }),
            Self::CompareRuns => info("Compare runs", "Earlier runs side by side", &const { [ctrl(Key::R)] }),
            Self::Detect => info("Detect", "Run the weights on the pictures", &const { [key(Key::F8)] }),
            Self::LookAtDetections => info("Look at detections", "Run the trained weights on the validation pictures", &[]),
            Self::Export => info("Export", "Write the weights for other programs", &const { [key(Key::F9)] }),
            Self::ShowData => info("Show Data", "Images and labels", &const { [ctrl(Key::Num1)] }),
            Self::ShowCheck => info("Show Check", "Find and fix bad labels", &const { [ctrl(Key::Num2)] }),
            Self::ShowTrain => info("Show Train", "Train a detector and watch it learn", &const { [ctrl(Key::Num3)] }),
            Self::ShowDetect => info("Show Detect", "Look at what the detector finds", &const { [ctrl(Key::Num4)] }),
            Self::ShowExport => info("Show Export", "Weights for other programs", &const { [ctrl(Key::Num5)] }),
            Self::ToggleTheme => info("Light or dark", "Switch between light and dark", &const { [ctrl(Key::L)] }),
            Self::DrawBox => info(
                "Draw",
                "Draw a box: drag, click two corners, or move the cursor with the arrows and press Enter at two corners",
                &const { [key(Key::W), key(Key::R)] },
            ),
            Self::SelectAllBoxes => info("Select all", "Select every box of the image", &const { [ctrl(Key::A)] }),
            Self::PreviousBox => info("Previous box", "Select the box before", &const { [shift(Key::Tab)] }),
            Self::NextBox => info("Next box", "Select the next box", &const { [key(Key::Tab)] }),
            Self::DeleteBoxes => info("Delete", "Delete the selected boxes", &const { [key(Key::Delete), key(Key::Backspace)] }),
            Self::CopyBoxes => info("Copy", "Copy the selected boxes", &const { [ctrl(Key::C)] }),
            Self::PasteBoxes => {
                info("Paste", "Paste the copied boxes: in place, or beside them on their own image", &const { [ctrl(Key::V)] })
            }
            Self::DuplicateBoxes => info("Duplicate", "Copy the selected boxes beside themselves", &const { [ctrl(Key::D)] }),
            Self::PastePrevious => {
                info("Boxes of previous", "Copy the boxes of the previous image into this one", &const { [key(Key::Y)] })
            }
            Self::Propagate => info("Propagate", "Copy the selected boxes, or all, to the next images", &const { [ctrl(Key::B)] }),
            Self::ChooseClass => info("Class…", "Choose the class of the selected boxes by typing", &const { [ctrl(Key::E)] }),
            Self::PreviousClass => info("Previous class", "The class before, for the selection or the next box", &const { [key(Key::Q)] }),
            Self::NextClass => info("Next class", "The class after, for the selection or the next box", &const { [key(Key::E)] }),
            Self::Class1 => info("Class 1", "First class, for the selection or the next box", &const { [key(Key::Num1)] }),
            Self::Class2 => info("Class 2", "Second class, for the selection or the next box", &const { [key(Key::Num2)] }),
            Self::Class3 => info("Class 3", "Third class, for the selection or the next box", &const { [key(Key::Num3)] }),
            Self::Class4 => info("Class 4", "Fourth class, for the selection or the next box", &const { [key(Key::Num4)] }),
            Self::Class5 => info("Class 5", "Fifth class, for the selection or the next box", &const { [key(Key::Num5)] }),
            Self::Class6 => info("Class 6", "Sixth class, for the selection or the next box", &const { [key(Key::Num6)] }),
            Self::Class7 => info("Class 7", "Seventh class, for the selection or the next box", &const { [key(Key::Num7)] }),
            Self::Class8 => info("Class 8", "Eighth class, for the selection or the next box", &const { [key(Key::Num8)] }),
            Self::Class9 => info("Class 9", "Ninth class, for the selection or the next box", &const { [key(Key::Num9)] }),
            Self::Class10 => info("Class 10", "Tenth class, for the selection or the next box", &const { [key(Key::Num0)] }),
            Self::LockBoxes => info("Lock", "Protect the selected boxes from the pointer, or free them", &const { [key(Key::L)] }),
            Self::HideBoxes => info("Hide", "Hide the selected boxes; without a selection, show all again", &const { [shift(Key::H)] }),
            Self::MarkReviewed => info("Reviewed", "The labels of this image are right, or not yet", &const { [key(Key::Space)] }),
            Self::MarkEmpty => info("Empty", "There is nothing to label here, which is meant so; go on", &const { [key(Key::N)] }),
            Self::NextUnreviewed => {
                info("Next unreviewed", "Go to the next image that nobody has looked at", &const { [SHIFT_D, key(Key::PageDown)] })
            }
            Self::ZoomToBox => info("Zoom to box", "Fit the selected boxes into view", &const { [key(Key::X)] }),
            Self::ToggleCrosshair => info("Crosshair", "Lines through the pointer while drawing", &[]),
            Self::ToggleLoupe => info("Magnifier", "Enlarge the place of the pointer while drawing and resizing", &const { [key(Key::M)] }),
            Self::TogglePixelGrid => info("Pixel grid", "Lines between pixels when zoomed in far", &[]),
            Self::ResetTone => info("Reset light", "Brightness and contrast as the trainer sees them", &[]),
            Self::Help => info("Keyboard shortcuts", "List what the keys do", &const { [key(Key::Questionmark), key(Key::F1)] }),
        }
    }

    pub fn title(self) -> &'static str {
        self.info().title
    }

    /// The shown shortcut as text, such as `Ctrl+O`.
    pub fn shortcut_text(self, ctx: &Context) -> Option<String> {
        self.info().shortcuts.first().map(|shortcut| keys_text(ctx, shortcut))
    }

    /// Tooltip with the shortcut behind it.
    pub fn tooltip(self, ctx: &Context) -> String {
        let tooltip = self.info().tooltip;
        self.shortcut_text(ctx).map_or_else(|| tooltip.to_owned(), |keys| format!("{tooltip} ({keys})"))
    }

    /// Why it cannot be done now, as far as the session knows; `None` when it can.
    pub fn unavailable(self, session: &Session) -> Option<&'static str> {
        let running = |kind, reason| session.is_running(kind).then_some(reason);
        let no_dataset = || session.dataset.is_none().then_some("Open a dataset first");
        match self {
            Self::Open => running(JobKind::Open, "A dataset is being opened"),
            Self::OpenSample => running(JobKind::Sample, "The sample is being drawn"),
            Self::Check => no_dataset().or_else(|| running(JobKind::Check, "The check is running")),
            Self::PreviewFix | Self::ApplyFix => no_dataset()
                .or_else(|| running(JobKind::Fix, "Fixes are being worked out"))
                .or_else(|| running(JobKind::Check, "Wait for the check to end")),
            Self::Undo => no_dataset()
                .or_else(|| running(JobKind::Undo, "The fixes are being taken back"))
                .or_else(|| running(JobKind::Fix, "Fixes are being written")),
            Self::Enqueue => no_dataset(),
            Self::ResumeTraining => running(JobKind::Train, "A training is running"),
            Self::PreviewBatches => no_dataset().or_else(|| running(JobKind::Preview, "The batches are being made")),
            Self::OverfitCheck => no_dataset()
                .or_else(|| running(JobKind::OverfitCheck, "The check is running"))
                .or_else(|| running(JobKind::Train, "A training is running")),
            Self::StartTraining => no_dataset().or_else(|| running(JobKind::Train, "A training is running")),
            Self::StopAfterEpoch | Self::PauseTraining | Self::ValidateNow | Self::SaveNow => {
                let is_stopping = |job: &JobStatus| job.kind == JobKind::Train && job.stopping;
                let no_training = (!session.is_running(JobKind::Train)).then_some("No training is running");
                no_training.or_else(|| session.jobs.iter().any(is_stopping).then_some("It is stopping"))
            }
            Self::StopTraining => (!session.is_running(JobKind::Train)).then_some("No training is running"),
            Self::Detect => running(JobKind::Detect, "A detection is running"),
            Self::LookAtDetections => session
                .weights
                .is_none()
                .then_some("Train first, or open weights")
                .or_else(no_dataset)
                .or_else(|| running(JobKind::Detect, "A detection is running")),
            Self::Export => running(JobKind::Export, "An export is running"),
            _ => None,
        }
    }

    /// Whether it acts on the boxes of the image in the label editor.
    pub fn is_editing(self) -> bool {
        matches!(
            self,
            Self::DrawBox
                | Self::SelectAllBoxes
                | Self::PreviousBox
                | Self::NextBox
                | Self::DeleteBoxes
                | Self::CopyBoxes
                | Self::PasteBoxes
                | Self::DuplicateBoxes
                | Self::PastePrevious
                | Self::Propagate
                | Self::ChooseClass
                | Self::PreviousClass
                | Self::NextClass
                | Self::LockBoxes
                | Self::HideBoxes
                | Self::MarkReviewed
                | Self::MarkEmpty
                | Self::NextUnreviewed
                | Self::ZoomToBox
                | Self::ToggleCrosshair
                | Self::ToggleLoupe
                | Self::TogglePixelGrid
                | Self::ResetTone
        ) || self.class_place().is_some()
    }

    /// Of the class actions: which class by its place, from 0.
    pub fn class_place(self) -> Option<usize> {
        const CLASSES: [Action; 10] = [
            Action::Class1,
            Action::Class2,
            Action::Class3,
            Action::Class4,
            Action::Class5,
            Action::Class6,
            Action::Class7,
            Action::Class8,
            Action::Class9,
            Action::Class10,
        ];
        CLASSES.iter().position(|class| *class == self)
    }

    /// The actions whose keys were pressed; those of the label editor only where it is shown. While text is typed, only
    /// keys with Ctrl and the function keys count, and none of the editor.
    pub fn pressed(ctx: &Context, is_editor_shown: bool) -> Vec<Self> {
        let typing = ctx.text_edit_focused();
        let is_typed = |shortcut: &KeyboardShortcut| shortcut.modifiers.is_none() && !is_function_key(shortcut.logical_key);
        // Ctrl+Z in a text field belongs to the text.
        let is_text_edit = |shortcut: &KeyboardShortcut| is_typed(shortcut) || shortcut.logical_key == Key::Z;
        ctx.input_mut(|input| {
            let mut consume = |shortcut: &KeyboardShortcut| {
                if typing && is_text_edit(shortcut) {
                    return false;
                }
                input.consume_shortcut(shortcut)
            };
            let counts = |action: &Self| !action.is_editing() || (is_editor_shown && !typing);
            Self::ALL.into_iter().filter(counts).filter(|action| action.info().shortcuts.iter().any(&mut consume)).collect()
        })
    }
}

impl Action {
    /// Whether a key without modifiers that stands for it is down, and nothing is typed.
    pub fn is_held(self, ctx: &Context) -> bool {
        let is_plain = |shortcut: &&KeyboardShortcut| shortcut.modifiers.is_none();
        let is_down = |shortcut: &KeyboardShortcut| ctx.input(|input| input.key_down(shortcut.logical_key) && input.modifiers.is_none());
        !ctx.text_edit_focused() && self.info().shortcuts.iter().filter(is_plain).any(is_down)
    }
}

/// A shortcut as it stands on the keys.
pub fn keys_text(ctx: &Context, shortcut: &KeyboardShortcut) -> String {
    let text = ctx.format_shortcut(shortcut);
    [("Questionmark", "?"), ("Plus", "+"), ("Equals", "="), ("Minus", "-"), ("Left", "←"), ("Right", "→")]
        .into_iter()
        .fold(text, |text, (word, sign)| text.replace(word, sign))
}

fn is_function_key(key: Key) -> bool {
    matches!(key, Key::F1 | Key::F5 | Key::F6 | Key::F7 | Key::F8 | Key::F9 | Key::F10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_actions_share_a_key() {
        let mut seen: Vec<KeyboardShortcut> = Vec::new();
        for action in Action::ALL {
            for shortcut in action.info().shortcuts {
                assert!(!seen.contains(shortcut), "{action:?} shares {shortcut:?}");
                seen.push(*shortcut);
            }
        }
    }

    #[test]
    fn every_workspace_has_a_key_and_is_found_by_its_name() {
        for workspace in Workspace::ALL {
            assert_eq!(workspace.action().info().shortcuts.len(), 1);
            assert_eq!(Workspace::from_name(&workspace.title().to_lowercase()), Some(workspace));
        }
        assert_eq!(Workspace::from_name("elsewhere"), None);
    }
}
