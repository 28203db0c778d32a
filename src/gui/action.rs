//! What can a person ask for with a key or a button? Title, tooltip, scope and shortcuts of each action, in one table.
//!
//! Buttons, key map, palette and help sheet come from here. Actions carry no values: what they act on is what the window
//! shows. A new action is a row of the table and an arm of `Window::act`; which keys it really has is the key map's matter
//! (`keymap.rs`: preset and the person's own changes), so ask [`Action::tooltip`] and [`Action::shortcut_text`], never the table.

use egui::{Context, Key, KeyboardShortcut, Modifiers};

use super::keymap::{KeyMap, keys_text};
use crate::session::JobKind;
use crate::session::JobStatus;
use crate::session::OpenDataset;
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

/// Where the person is, as far as keys are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// The Data workspace with many images.
    Grid,
    /// The Data workspace with one image.
    Editor,
    /// The same with boxes selected.
    Selection,
    /// The same with proposals to decide on, and no boxes selected.
    Proposal,
    Check,
    Train,
    Detect,
    Export,
}

impl KeyPlace {
    pub const ALL: [Self; 8] =
        [Self::Grid, Self::Editor, Self::Selection, Self::Proposal, Self::Check, Self::Train, Self::Detect, Self::Export];
}

/// Where the keys of an action work. The same keys may do two things in two scopes that have no place in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Global,
    /// Wherever pictures are gone through: everywhere but in Export.
    Pictures,
    /// Grid and editor.
    Data,
    /// Where labels are changed: grid, editor and Check.
    Labels,
    Grid,
    Editor,
    /// In the editor while proposals are to be decided on. What a key does there goes before all else that it does.
    Proposal,
    Check,
    Train,
    Detect,
}

impl Scope {
    pub fn contains(self, place: KeyPlace) -> bool {
        match self {
            Self::Global => true,
            Self::Pictures => place != KeyPlace::Export,
            Self::Data => matches!(place, KeyPlace::Grid | KeyPlace::Editor | KeyPlace::Selection | KeyPlace::Proposal),
            Self::Labels => Self::Data.contains(place) || place == KeyPlace::Check,
            Self::Grid => place == KeyPlace::Grid,
            Self::Editor => matches!(place, KeyPlace::Editor | KeyPlace::Selection | KeyPlace::Proposal),
            Self::Proposal => place == KeyPlace::Proposal,
            Self::Check => place == KeyPlace::Check,
            Self::Train => place == KeyPlace::Train,
            Self::Detect => place == KeyPlace::Detect,
        }
    }

    /// Whether its keys go before those of other scopes.
    pub fn goes_first(self) -> bool {
        self == Self::Proposal
    }

    /// Whether one key cannot do both: there is a place where nothing says which of the two is meant.
    pub fn overlaps(self, other: Self) -> bool {
        self.goes_first() == other.goes_first() && KeyPlace::ALL.into_iter().any(|place| self.contains(place) && other.contains(place))
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Global => "everywhere",
            Self::Pictures => "where pictures are shown",
            Self::Data => "in Data",
            Self::Labels => "in Data and Check",
            Self::Grid => "in the grid",
            Self::Editor => "on an image",
            Self::Proposal => "with proposals",
            Self::Check => "in Check",
            Self::Train => "in Train",
            Self::Detect => "in Detect",
        }
    }
}

/// What actions are listed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Look,
    Label,
    Review,
    Go,
    Check,
    Train,
    Deploy,
    Program,
}

impl Group {
    pub const ALL: [Self; 8] = [Self::Look, Self::Label, Self::Review, Self::Go, Self::Check, Self::Train, Self::Deploy, Self::Program];

    pub fn title(self) -> &'static str {
        match self {
            Self::Look => "Look at pictures",
            Self::Label => "Label",
            Self::Review => "Review and arrange",
            Self::Go => "Go",
            Self::Check => "Check",
            Self::Train => "Train",
            Self::Deploy => "Detect and export",
            Self::Program => "Program",
        }
    }
}

/// What there is to say about an action.
pub struct ActionInfo {
    /// As the settings file names it.
    pub name: &'static str,
    pub title: &'static str,
    pub tooltip: &'static str,
    pub scope: Scope,
    pub group: Group,
    /// In the program's own preset. The first is shown, all work.
    pub shortcuts: &'static [KeyboardShortcut],
}

const COMMAND_SHIFT: Modifiers = Modifiers::COMMAND.plus(Modifiers::SHIFT);

pub(super) const fn key(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::NONE, key)
}

pub(super) const fn shift(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::SHIFT, key)
}

pub(super) const fn alt(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::ALT, key)
}

pub(super) const fn ctrl(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::COMMAND, key)
}

pub(super) const fn ctrl_shift(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(COMMAND_SHIFT, key)
}

/// The table as the enum, the list of all, and what there is to say about each.
macro_rules! actions {
    ($($action:ident: $title:literal, $tooltip:literal, $scope:ident, $group:ident, [$($shortcut:expr),*];)*) => {
        /// Something that a person can ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $($action,)*
        }

        impl Action {
            /// In the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$action),*];

            pub fn info(self) -> ActionInfo {
                match self {
                    $(Self::$action => ActionInfo {
                        name: stringify!($action),
                        title: $title,
                        tooltip: $tooltip,
                        scope: Scope::$scope,
                        group: Group::$group,
                        shortcuts: const { &[$($shortcut),*] },
                    },)*
                }
            }
        }
    };
}

actions! {
    Open: "Open…", "Open a dataset, a run or weights", Global, Go, [ctrl(Key::O)];
    OpenSample: "Try the sample", "Draw a small dataset of metal parts with scratches, dents and cracks", Global, Go, [];
    ShowData: "Show Data", "Images and labels", Global, Go, [alt(Key::Num1)];
    ShowCheck: "Show Check", "Find and fix bad labels", Global, Go, [alt(Key::Num2)];
    ShowTrain: "Show Train", "Train a detector and watch it learn", Global, Go, [alt(Key::Num3)];
    ShowDetect: "Show Detect", "Look at what the detector finds", Global, Go, [alt(Key::Num4)];
    ShowExport: "Show Export", "Weights for other programs", Global, Go, [alt(Key::Num5)];

    NextImage: "Next", "Go to the next image", Pictures, Look, [key(Key::D), key(Key::ArrowRight)];
    PreviousImage: "Previous", "Go to the previous image", Pictures, Look, [key(Key::A), key(Key::ArrowLeft)];
    ToggleGrid: "Grid", "Switch between the grid and a single image", Data, Look, [key(Key::G)];
    OpenImage: "Open image", "Show the current image with its labels (or double click)", Grid, Look, [key(Key::Enter)];
    ToggleList: "List", "Switch between thumbnails and rows", Grid, Look, [key(Key::V)];
    FocusQuery: "Query", "Type which images to see", Data, Look, [ctrl(Key::F)];
    ClearQuery: "Clear the query", "Show every image again", Data, Look, [];
    ToggleStatistics: "Statistics", "How images and boxes are distributed", Grid, Look, [ctrl(Key::I)];
    RowAbove: "Row above", "Go to the image above", Grid, Look, [key(Key::ArrowUp)];
    RowBelow: "Row below", "Go to the image below", Grid, Look, [key(Key::ArrowDown)];
    PageBack: "Page back", "Go a page of images back", Grid, Look, [key(Key::PageUp)];
    PageOn: "Page on", "Go a page of images on", Grid, Look, [key(Key::PageDown)];
    FirstImage: "First", "Go to the first image", Grid, Look, [key(Key::Home)];
    LastImage: "Last", "Go to the last image", Grid, Look, [key(Key::End)];
    ExtendPrevious: "Choose to the left", "Choose up to the previous image", Grid, Review, [shift(Key::ArrowLeft)];
    ExtendNext: "Choose to the right", "Choose up to the next image", Grid, Review, [shift(Key::ArrowRight)];
    ExtendAbove: "Choose upwards", "Choose up to the image above", Grid, Review, [shift(Key::ArrowUp)];
    ExtendBelow: "Choose downwards", "Choose up to the image below", Grid, Review, [shift(Key::ArrowDown)];
    ExtendToFirst: "Choose to the first", "Choose up to the first image", Grid, Review, [shift(Key::Home)];
    ExtendToLast: "Choose to the last", "Choose up to the last image", Grid, Review, [shift(Key::End)];
    ToggleBoxes: "Boxes", "Show or hide all boxes", Pictures, Look, [ctrl(Key::H)];
    PeekBoxes: "Peek", "Hide all boxes as long as the key is held", Pictures, Look, [key(Key::H)];
    ZoomIn: "Zoom in", "Zoom in", Pictures, Look, [ctrl(Key::Plus), ctrl(Key::Equals)];
    ZoomOut: "Zoom out", "Zoom out", Pictures, Look, [ctrl(Key::Minus)];
    ZoomFit: "Fit", "Fit the image into view (or double click)", Pictures, Look, [ctrl(Key::Num0), key(Key::F)];
    ZoomActual: "100 %", "One image pixel a screen pixel", Pictures, Look, [ctrl(Key::Num1), key(Key::Z)];
    ZoomToBox: "Zoom to box", "Fit the selected boxes into view", Editor, Look, [key(Key::X)];
    ToggleCrosshair: "Crosshair", "Lines through the pointer while drawing", Editor, Look, [];
    ToggleLoupe: "Magnifier", "Enlarge the place of the pointer while drawing and resizing", Editor, Look, [key(Key::M)];
    TogglePixelGrid: "Pixel grid", "Lines between pixels when zoomed in far", Editor, Look, [];
    Brighten: "Brighter", "Show the picture brighter; the trainer sees it as it is", Editor, Look, [key(Key::CloseBracket)];
    Darken: "Darker", "Show the picture darker; the trainer sees it as it is", Editor, Look, [key(Key::OpenBracket)];
    RaiseContrast: "More contrast", "Show the picture with more contrast; the trainer sees it as it is", Editor, Look, [shift(Key::CloseBracket)];
    LowerContrast: "Less contrast", "Show the picture with less contrast; the trainer sees it as it is", Editor, Look, [shift(Key::OpenBracket)];
    ResetTone: "Reset light", "Brightness and contrast as the trainer sees them", Editor, Look, [key(Key::Backslash)];

    DrawBox: "Draw", "Draw a box: drag, click two corners, or move the cursor with the arrows and press Enter at two corners", Editor, Label, [key(Key::W), key(Key::R)];
    SelectAllBoxes: "Select all", "Select every box of the image", Editor, Label, [ctrl(Key::A)];
    NextBox: "Next box", "Select the next box", Editor, Label, [key(Key::Tab)];
    PreviousBox: "Previous box", "Select the box before", Editor, Label, [shift(Key::Tab)];
    DeleteBoxes: "Delete", "Delete the selected boxes", Editor, Label, [key(Key::Delete), key(Key::Backspace)];
    CopyBoxes: "Copy", "Copy the selected boxes", Editor, Label, [ctrl(Key::C)];
    PasteBoxes: "Paste", "Paste the copied boxes: in place, or beside them on their own image", Editor, Label, [ctrl(Key::V)];
    DuplicateBoxes: "Duplicate", "Copy the selected boxes beside themselves", Editor, Label, [ctrl(Key::D)];
    PastePrevious: "Boxes of previous", "Copy the boxes of the previous image into this one", Editor, Label, [key(Key::Y)];
    Propagate: "Propagate", "Copy the selected boxes, or all, to the next images", Editor, Label, [ctrl(Key::B)];
    ChooseClass: "Class…", "Choose the class of the selected boxes by typing", Editor, Label, [ctrl(Key::E)];
    PreviousClass: "Previous class", "The class before, for the selection or the next box", Editor, Label, [key(Key::Q)];
    NextClass: "Next class", "The class after, for the selection or the next box", Editor, Label, [key(Key::E)];
    Class1: "Class 1", "First class, for the selection or the next box", Editor, Label, [key(Key::Num1)];
    Class2: "Class 2", "Second class, for the selection or the next box", Editor, Label, [key(Key::Num2)];
    Class3: "Class 3", "Third class, for the selection or the next box", Editor, Label, [key(Key::Num3)];
    Class4: "Class 4", "Fourth class, for the selection or the next box", Editor, Label, [key(Key::Num4)];
    Class5: "Class 5", "Fifth class, for the selection or the next box", Editor, Label, [key(Key::Num5)];
    Class6: "Class 6", "Sixth class, for the selection or the next box", Editor, Label, [key(Key::Num6)];
    Class7: "Class 7", "Seventh class, for the selection or the next box", Editor, Label, [key(Key::Num7)];
    Class8: "Class 8", "Eighth class, for the selection or the next box", Editor, Label, [key(Key::Num8)];
    Class9: "Class 9", "Ninth class, for the selection or the next box", Editor, Label, [key(Key::Num9)];
    Class10: "Class 10", "Tenth class, for the selection or the next box", Editor, Label, [key(Key::Num0)];
    LockBoxes: "Lock", "Protect the selected boxes from the pointer, or free them", Editor, Label, [key(Key::L)];
    HideBoxes: "Hide", "Hide the selected boxes; without a selection, show all again", Editor, Label, [shift(Key::H)];
    ToggleWholePixels: "Whole pixels", "Corners that are drawn or dragged lie between pixels", Editor, Label, [];
    ToggleAskClass: "Ask for the class", "Choose the class of each box when it was drawn", Editor, Label, [];

    Prelabel: "Pre-label…", "Let weights propose labels, which are drawn dashed until they are accepted", Data, Review, [key(Key::I)];
    AcceptProposal: "Accept proposal", "Make a label of the proposal that is marked", Proposal, Review, [key(Key::Enter)];
    RejectProposal: "Reject proposal", "Take the proposal that is marked away", Proposal, Review, [key(Key::J)];
    NextProposal: "Next proposal", "Mark the next proposal", Proposal, Review, [key(Key::ArrowDown)];
    PreviousProposal: "Previous proposal", "Mark the proposal before", Proposal, Review, [key(Key::ArrowUp)];
    AcceptProposals: "Accept these", "Make labels of all proposals of the image from the chosen score on", Proposal, Review, [shift(Key::Enter)];
    RejectProposals: "Reject these", "Take all proposals of the image away", Proposal, Review, [shift(Key::J)];
    BringProposalsBack: "Bring back", "Take the last rejection of proposals back, and go to its image", Data, Review, [shift(Key::U)];
    AcceptAllProposals: "Accept everywhere", "Make labels of all proposals of the dataset from the chosen score on", Data, Review, [];
    NextUncertain: "Next uncertain", "Go through images with proposals, those the detector is least sure of first", Data, Review, [key(Key::U)];
    EditClasses: "Classes…", "Add, rename, merge, delete and colour the classes of the dataset", Data, Review, [ctrl_shift(Key::C)];
    SplitDataset: "Split…", "Choose which images are for training, validation and test", Data, Review, [];
    MarkReviewed: "Reviewed", "The labels of this image, or of those chosen, are right, or not yet", Data, Review, [key(Key::Space)];
    MarkUnreviewed: "Not reviewed", "Somebody has to look at the labels of the chosen images again", Grid, Review, [];
    MarkEmpty: "Empty", "There is nothing to label here, which is meant so; go on", Data, Review, [key(Key::N)];
    NextUnreviewed: "Next unreviewed", "Go to the next image that nobody has looked at", Editor, Review, [ctrl_shift(Key::D), key(Key::PageDown)];
    AddTag: "Tag…", "Put a tag on the chosen images", Grid, Review, [key(Key::T)];
    RemoveTag: "Untag…", "Take a tag off the chosen images", Grid, Review, [shift(Key::T)];
    MoveToTrain: "Move to train", "List the chosen images in the train split; no file is moved", Grid, Review, [];
    MoveToVal: "Move to val", "List the chosen images in the val split; no file is moved", Grid, Review, [];
    MoveToTest: "Move to test", "List the chosen images in the test split; no file is moved", Grid, Review, [];
    CopyPaths: "Copy paths", "Copy the paths of the chosen images, a line each", Grid, Review, [ctrl(Key::C)];
    SelectAllImages: "Choose all", "Choose every image that passes the query", Grid, Review, [ctrl(Key::A)];
    SelectNone: "Choose none", "Give up what is chosen (or Escape)", Grid, Review, [ctrl_shift(Key::A)];
    InvertSelection: "Choose the others", "Of the images that pass the query, choose those that are not chosen", Grid, Review, [ctrl(Key::U)];

    Check: "Check labels", "Read every label row and look at every image", Global, Check, [key(Key::F5)];
    PreviewFix: "Preview fixes…", "List what the safe fixes would change", Global, Check, [key(Key::F6)];
    ApplyFix: "Apply fixes", "Write the listed changes; they can be undone", Check, Check, [];
    Undo: "Undo", "Take the last change of labels, classes or splits back, also that of an earlier start", Labels, Label, [ctrl(Key::Z)];
    Redo: "Redo", "Do again what was undone last", Labels, Label, [ctrl(Key::Y), ctrl_shift(Key::Z)];

    StartTraining: "Start training", "Train with the settings on this page", Global, Train, [key(Key::F7)];
    StopTraining: "Stop", "Stop after this step; the weights so far are kept", Global, Train, [shift(Key::F7)];
    StopAfterEpoch: "Stop after epoch", "Stop when this epoch is learnt and validated", Global, Train, [ctrl(Key::F7)];
    PauseTraining: "Pause or continue", "Wait after this step with the state saved, or go on", Global, Train, [key(Key::F10)];
    ValidateNow: "Validate now", "Measure the averaged weights as they are; changes nothing", Train, Train, [ctrl_shift(Key::V)];
    SaveNow: "Save now", "Save weights and state after this step", Train, Train, [ctrl_shift(Key::S)];
    ResumeTraining: "Resume", "The run that is shown goes on", Train, Train, [ctrl_shift(Key::R)];
    Enqueue: "Add to queue", "Train with these settings when nothing else trains", Train, Train, [ctrl_shift(Key::Q)];
    PreviewBatches: "Preview", "Make the first batches as pictures, without training", Train, Train, [ctrl_shift(Key::F)];
    OverfitCheck: "Try one batch", "Train some steps on one batch and judge", Train, Train, [ctrl_shift(Key::B)];
    ResetZoom: "Show the whole run", "Show the whole run in all plots", Train, Train, [key(Key::Home)];
    CompareRuns: "Compare runs", "Earlier runs side by side", Global, Train, [ctrl(Key::R)];

    Detect: "Detect", "Run the weights on the pictures", Global, Deploy, [key(Key::F8)];
    LookAtDetections: "Look at detections", "Run the trained weights on the validation pictures", Global, Deploy, [];
    Export: "Export", "Write the weights for other programs", Global, Deploy, [key(Key::F9)];

    ToggleTheme: "Light or dark", "Switch between light and dark", Global, Program, [ctrl(Key::L)];
    OpenCommandPalette: "Commands…", "Find actions, datasets, images and classes by typing", Global, Program, [ctrl_shift(Key::P), ctrl(Key::P)];
    ChangeKeys: "Change keys…", "Choose a preset of keys, or give actions keys of your own", Global, Program, [ctrl(Key::K)];
    Help: "Keyboard shortcuts", "List what the keys do", Global, Program, [key(Key::Questionmark), key(Key::F1)];
}

impl Action {
    pub fn title(self) -> &'static str {
        self.info().title
    }

    /// The shown shortcut as text, such as `Ctrl+O`.
    pub fn shortcut_text(self, ctx: &Context) -> Option<String> {
        KeyMap::of(ctx).keys(self).first().map(|keys| keys_text(ctx, keys))
    }

    /// Tooltip with the shortcut behind it.
    pub fn tooltip(self, ctx: &Context) -> String {
        let tooltip = self.info().tooltip;
        self.shortcut_text(ctx).map_or_else(|| tooltip.to_owned(), |keys| format!("{tooltip} ({keys})"))
    }

    /// Whether it is done again and again while its keys are held.
    pub fn repeats(self) -> bool {
        matches!(
            self,
            Self::NextImage
                | Self::PreviousImage
                | Self::RowAbove
                | Self::RowBelow
                | Self::PageBack
                | Self::PageOn
                | Self::ExtendPrevious
                | Self::ExtendNext
                | Self::ExtendAbove
                | Self::ExtendBelow
                | Self::ZoomIn
                | Self::ZoomOut
                | Self::Undo
                | Self::Redo
                | Self::NextBox
                | Self::PreviousBox
                | Self::NextClass
                | Self::PreviousClass
        )
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

    /// By its name in the settings file.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.info().name == name)
    }

    /// Why it means nothing in a place, where its keys do not work either.
    pub fn out_of_place(self, place: KeyPlace) -> Option<&'static str> {
        let scope = self.info().scope;
        let reason = match scope {
            Scope::Editor => "Show one image in Data first",
            Scope::Proposal => "Show an image with proposals, and select no box",
            Scope::Grid => "Show the grid in Data first",
            Scope::Data | Scope::Labels => "Go to Data first",
            Scope::Pictures => "No pictures are gone through here",
            // These bring what they need.
            Scope::Global | Scope::Check | Scope::Train | Scope::Detect => return None,
        };
        (!scope.contains(place)).then_some(reason)
    }

    /// Why it cannot be done now, as far as the session knows; `None` when it can.
    pub fn unavailable(self, session: &Session) -> Option<&'static str> {
        let running = |kind, reason| session.is_running(kind).then_some(reason);
        let no_dataset = || session.dataset.is_none().then_some("Open a dataset first");
        let unread = || {
            let is_unread = |open: &OpenDataset| open.labels.is_empty() && !open.dataset.images.is_empty();
            session.dataset.as_ref().is_some_and(is_unread).then_some("Labels are still being read")
        };
        match self {
            Self::Open => running(JobKind::Open, "A dataset is being opened"),
            Self::OpenSample => running(JobKind::Sample, "The sample is being drawn"),
            Self::Check => no_dataset().or_else(|| running(JobKind::Check, "The check is running")),
            Self::PreviewFix | Self::ApplyFix => no_dataset()
                .or_else(|| running(JobKind::Fix, "Fixes are being worked out"))
                .or_else(|| running(JobKind::Check, "Wait for the check to end")),
            Self::Redo => {
                let history = session.dataset.as_ref().map(|open| &open.history);
                let can_redo = history.is_some_and(|history| history.redo.is_some() || history.n_pending > 0);
                no_dataset().or_else(unread).or_else(|| (!can_redo).then_some("Nothing was undone"))
            }
            Self::EditClasses | Self::SplitDataset | Self::Enqueue => no_dataset(),
            Self::Undo => no_dataset()
                .or_else(unread)
                .or_else(|| running(JobKind::Undo, "The fixes are being taken back"))
                .or_else(|| running(JobKind::Fix, "Fixes are being written")),
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
            Self::Prelabel => no_dataset().or_else(|| running(JobKind::Prelabel, "Proposals are being made already")),
            Self::BringProposalsBack => session.proposals.last_rejected().is_none().then_some("No proposal was rejected"),
            Self::NextUncertain | Self::AcceptAllProposals => {
                session.proposals.is_empty().then_some("Nothing is proposed; pre-label some images first")
            }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workspace_has_a_key_and_is_found_by_its_name() {
        for workspace in Workspace::ALL {
            assert_eq!(workspace.action().info().shortcuts.len(), 1);
            assert_eq!(Workspace::from_name(&workspace.title().to_lowercase()), Some(workspace));
        }
        assert_eq!(Workspace::from_name("elsewhere"), None);
    }

    #[test]
    fn every_action_is_found_by_its_name_and_says_what_it_does() {
        for &action in Action::ALL {
            let info = action.info();
            assert_eq!(Action::from_name(info.name), Some(action));
            assert!(!info.title.is_empty() && !info.tooltip.ends_with('.'), "{action:?}");
        }
        assert_eq!(Action::from_name("Nothing"), None);
    }

    #[test]
    fn scopes_overlap_where_they_share_a_place() {
        assert!(Scope::Global.overlaps(Scope::Train));
        assert!(Scope::Pictures.overlaps(Scope::Editor));
        assert!(!Scope::Grid.overlaps(Scope::Editor));
        assert!(!Scope::Data.overlaps(Scope::Check));
        assert!(!Scope::Proposal.overlaps(Scope::Pictures), "with proposals their keys go first");
        assert!(Scope::Proposal.overlaps(Scope::Proposal));
    }
}
