//! The label editor: one image of the dataset with its boxes, and the list of them beside it.
//!
//! In:  the image, its labels as the session holds them, its neighbours in the listing; actions, pointer and keys.
//! Out: edits as commands; what is half drawn stays here until it is finished.
//!
//! An edit is asked for and shows when the session has carried it out. Never writes a file, never keeps labels of its own.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Context, Event, Key, Rect, Ui};

use super::action::Action;
use super::app::View;
use super::box_states::BoxStates;
use super::class_picker::{ClassPicker, Picked};
use super::conflict_bar;
use super::controls::counted;
use super::draft::{self, Outcome};
use super::edit_canvas::{EditCanvas, Scene};
use super::editor_bar::EditorBar;
use super::editor_side::{EditorSide, SideAsked};
use super::label_edits;
use super::picture_view::Drawn;
use super::tone;
use super::tone::Tone;
use super::viewport::Zoom;
use crate::dataset::edit::{Edit, ImageEdit, LabelOp, Mark, Review};
use crate::dataset::edit_files;
use crate::dataset::parse::{self, ParseOptions};
use crate::dataset::{ClassId, Dataset, Label};
use crate::geom::{Size, Xywhn};
use crate::session::Command;
use crate::session::Session;

/// Where the editor is: an image, and the listing that it is part of.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub session: &'a Session,
    /// Images of the dataset in the order of the listing.
    pub images: &'a [u32],
    /// Of the shown image in the listing.
    pub position: usize,
}

/// What an action of the editor comes to.
#[derive(Debug, Default)]
pub struct Asked {
    pub commands: Vec<Command>,
    /// Another place in the listing.
    pub position: Option<usize>,
}

/// Boxes that were copied.
struct Clip {
    /// `None`: they come from elsewhere.
    image: Option<usize>,
    labels: Vec<Label>,
    /// How often they were pasted on the image that they are from.
    n_beside: usize,
    /// As the system's clipboard has them.
    text: String,
    /// The system's clipboard does not have them yet.
    is_new: bool,
}

/// What the class is asked for.
struct Question {
    picker: ClassPicker,
    /// A box that was drawn and is added with the class; `None`: the selected boxes, or the next one.
    drawn: Option<Xywhn>,
}

/// What the editor remembers between frames.
#[derive(Default)]
pub struct Editor {
    canvas: EditCanvas,
    /// Brightness and contrast of the view.
    tone: Tone,
    /// Of the settings, for the keys.
    whole_pixels: bool,
    dataset: Option<Arc<Dataset>>,
    /// Whose boxes `boxes` are.
    image: Option<usize>,
    boxes: BoxStates,
    /// Of images that were left.
    left_boxes: HashMap<usize, BoxStates>,
    /// Of the next box that is drawn.
    class: usize,
    clip: Option<Clip>,
    question: Option<Question>,
    space: SpaceKey,
    /// The image that was drawn last, and in which frame.
    seen: Option<(usize, u64)>,
    /// Boxes cannot be seen, so they are not changed either.
    hides_boxes: bool,
    /// Why the last action did nothing.
    message: Option<String>,
}

/// The key that marks an image as reviewed when it is tapped, and moves the picture while it is held.
#[derive(Clone, Copy, Debug, Default)]
struct SpaceKey {
    /// The image that was shown when the key went down.
    asked: Option<usize>,
    /// Something was moved since it is down.
    is_used: bool,
}

impl Place<'_> {
    fn image(&self) -> Option<usize> {
        self.images.get(self.position).map(|&image| image as usize)
    }

    fn labels(&self, image: usize) -> &[Label] {
        self.session.labels(image)
    }

    fn mark(&self, image: usize) -> Mark {
        self.session.dataset.as_ref().and_then(|open| open.marks.get(image)).cloned().unwrap_or_default()
    }
}

impl Editor {
    /// Draws the image and takes what the pointer does on it.
    pub fn image_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, image: usize) {
        self.turn_to(view.session, image);
        let session = view.session;
        let Some(open) = &session.dataset else { return };
        self.hides_boxes = view.hides_boxes;
        self.look(ui, view, image);
        conflict_bar::ui(ui, view, image);
        let names = &open.dataset.names;
        let bar = EditorBar {
            is_drawing: self.canvas.is_drawing(),
            class: self.class,
            class_name: names.get(self.class).map(String::as_str),
            n_selected: self.boxes.selected().len(),
            review: open.marks.get(image).map_or(Review::Unreviewed, |mark| mark.review),
        };
        bar.ui(ui, view, &mut self.tone);
        self.whole_pixels = session.settings.editor.whole_pixels;
        let no_labels: Arc<[Label]> = Arc::default();
        let labels = open.labels.get(image).unwrap_or(&no_labels);
        let dropped = session.dropped_rows.get(&open.dataset, image, labels);
        // Rows are counted in the file, which says what is shown only when the edits are in it.
        if dropped.is_none() && open.labels.get(image).is_some() && open.history.n_pending == 0 {
            view.ask(Command::ReadDroppedRows(image));
        }
        let scene = Scene {
            path: &open.dataset.images[image].path,
            labels,
            names,
            dropped: dropped.map(|rows| &**rows),
            class: self.class,
            drawn: self.question.as_ref().and_then(|question| question.drawn),
            settings: session.settings.editor,
            tone: self.tone,
            hides_boxes: view.hides_boxes,
        };
        let rect = ui.available_rect_before_wrap();
        let done = self.canvas.ui(ui, view.textures, &scene, &mut self.boxes);
        for outcome in done.outcomes {
            let asked = self.take_outcome(session, image, outcome);
            view.out.commands.extend(asked.commands);
        }
        if done.wants_class {
            view.act(Action::ChooseClass);
        }
        self.clipboard(ui);
        self.space_key(ui, view);
        self.question_ui(ui, view, rect, image);
    }

    /// Draws classes, labels and hints beside the image.
    pub fn labels_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, image: usize) {
        self.turn_to(view.session, image);
        let session = view.session;
        let Some(open) = &session.dataset else { return };
        let dropped = open.labels.get(image).and_then(|labels| session.dropped_rows.get(&open.dataset, image, labels));
        let side = EditorSide {
            dataset: &open.dataset,
            entry: &open.dataset.images[image],
            labels: open.labels.get(image).map(|labels| &**labels),
            size: self.canvas.size(),
            review: open.marks.get(image).map_or(Review::Unreviewed, |mark| mark.review),
            dropped: dropped.map(|rows| &**rows),
            class: self.class,
            is_drawing: self.canvas.is_drawing(),
            message: self.message.as_deref(),
        };
        let asked = side.ui(ui, &mut self.boxes);
        if let Some(SideAsked::Class(class)) = asked {
            let asked = self.choose_class(session, image, class);
            view.out.commands.extend(asked.commands);
        }
    }

    /// The picture as it was drawn last, for what is laid over it.
    pub fn drawn(&self) -> Option<Drawn> {
        self.canvas.drawn()
    }

    pub fn has_selection(&self) -> bool {
        self.boxes.has_selection()
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.canvas.zoom(zoom);
    }

    /// Takes the keys that move boxes and the cursor. Call it before actions look at the keys.
    pub fn take_keys(&mut self, ctx: &Context) {
        if self.question.is_some() || !self.canvas.has_keys(ctx) {
            return;
        }
        self.canvas.take_keys(ctx, &self.boxes, self.whole_pixels);
        let pasted =
            ctx.input(|input| input.events.iter().find_map(|event| if let Event::Paste(text) = event { Some(text.clone()) } else { None }));
        if let Some(text) = pasted {
            self.take_clip(&text);
        }
    }

    /// Ends what another action would forget: a tap of Space that is not over, a box that waits for its class.
    pub fn settle(&mut self, action: Action, session: &Session) -> Vec<Command> {
        let mut commands = Vec::new();
        if action != Action::MarkReviewed
            && let Some(image) = self.space.asked.take().filter(|_| !self.space.is_used)
        {
            commands.extend(self.mark_reviewed(session, image));
        }
        if action != Action::ChooseClass {
            commands.extend(self.add_waiting(session));
        }
        commands
    }

    /// A box that waits for its class gets the last one, and nothing is asked any more.
    fn add_waiting(&mut self, session: &Session) -> Vec<Command> {
        let Some(image) = self.image else { return Vec::new() };
        let Some(drawn) = self.question.as_ref().and_then(|question| question.drawn) else { return Vec::new() };
        self.question = None;
        self.add(session, image, drawn).commands
    }

    /// Ends what is going on: a question, something half drawn, the selection. Returns whether there was something to end.
    pub fn cancel(&mut self) -> bool {
        self.message = None;
        if self.question.take().is_some() || self.canvas.cancel() {
            return true;
        }
        let had_selection = self.boxes.has_selection();
        self.boxes.select(&[]);
        had_selection
    }

    /// What was drawn, moved or resized becomes an edit.
    fn take_outcome(&mut self, session: &Session, image: usize, outcome: Outcome) -> Asked {
        let Some(size) = self.canvas.size() else { return Asked::default() };
        let labels = session.labels(image);
        match outcome {
            Outcome::Drawn(rect) => {
                let bbox = draft::bbox_of(rect, size);
                if session.settings.editor.asks_class {
                    self.question = Some(Question { picker: ClassPicker::new(self.class), drawn: Some(bbox) });
                    return Asked::default();
                }
                self.add(session, image, bbox)
            }
            Outcome::Moved(indices, by) => {
                let boxes: Vec<_> = indices.iter().filter_map(|&index| Some((index, labels.get(index)?.bbox))).collect();
                let moved: Vec<_> = boxes.into_iter().map(|(index, bbox)| (index, draft::moved(bbox, by, size))).collect();
                self.edit(session, image, label_edits::name("Move", moved.len()), label_edits::reshaped(labels, &moved))
            }
            Outcome::Resized(shapes) => {
                let resized = shapes.iter().filter_map(|&(index, before, after)| {
                    let bbox = labels.get(index)?.bbox;
                    Some((index, draft::resized(bbox, before, after, size)))
                });
                let ops = label_edits::reshaped(labels, &resized.collect::<Vec<_>>());
                self.edit(session, image, label_edits::name("Resize", ops.len()), ops)
            }
            Outcome::Band(_) | Outcome::Nothing => Asked::default(),
        }
    }

    /// A drawn box with the class of the next box.
    fn add(&mut self, session: &Session, image: usize, bbox: Xywhn) -> Asked {
        if session.dataset.as_ref().is_none_or(|open| self.class >= open.dataset.names.len()) {
            self.message = Some("The dataset names no class that the box could have".to_owned());
            return Asked::default();
        }
        let ops = label_edits::pasted(&[Label { class: ClassId(self.class as u32), bbox }], session.labels(image));
        self.edit(session, image, "Add box".to_owned(), ops)
    }

    /// Has another program changed the label file of an image that a person turns to, or comes back to?
    fn look(&mut self, ui: &Ui, view: &mut View<'_>, image: usize) {
        let frame = ui.ctx().cumulative_frame_nr();
        let is_seen = self.seen.is_some_and(|(seen, last)| seen == image && frame <= last + 1);
        let is_back = ui.input(|input| input.events.iter().any(|event| matches!(event, Event::WindowFocused(true))));
        if has_labels(view.session, image) {
            self.seen = Some((image, frame));
            if !is_seen || is_back {
                view.ask(Command::Look { image });
            }
        }
    }

    /// What was copied goes to the system's clipboard too.
    fn clipboard(&mut self, ui: &Ui) {
        if let Some(clip) = self.clip.as_mut().filter(|clip| clip.is_new) {
            clip.is_new = false;
            ui.ctx().copy_text(clip.text.clone());
        }
    }

    /// Rows of labels that were copied elsewhere, such as in a text editor.
    fn take_clip(&mut self, text: &str) {
        let n_classes = self.dataset.as_ref().map_or(0, |dataset| dataset.names.len());
        if self.clip.as_ref().is_some_and(|clip| clip.text == text) {
            return;
        }
        let options = ParseOptions { n_classes, n_keypoint_fields: None };
        let labels: Vec<Label> = parse::parse(text.as_bytes(), options, &|| None).labels().collect();
        if !labels.is_empty() {
            self.clip = Some(Clip { image: None, labels, n_beside: 0, text: text.to_owned(), is_new: false });
        }
    }

    /// A tap marks the image when the key is let go; a key that is held to move the picture marks nothing.
    fn space_key(&mut self, ui: &Ui, view: &mut View<'_>) {
        let is_down = ui.input(|input| input.key_down(Key::Space));
        self.space.is_used |= is_down && self.canvas.is_panning();
        if is_down {
            return;
        }
        let space = std::mem::take(&mut self.space);
        if let Some(image) = space.asked.filter(|_| !space.is_used) {
            view.out.commands.extend(self.mark_reviewed(view.session, image));
        }
    }

    /// Reviewed, or no longer so.
    fn mark_reviewed(&mut self, session: &Session, image: usize) -> Option<Command> {
        if !self.may_edit(session, image) {
            return None;
        }
        let mark = session.dataset.as_ref().and_then(|open| open.marks.get(image)).cloned().unwrap_or_default();
        let review = if mark.review == Review::Reviewed { Review::Unreviewed } else { Review::Reviewed };
        label_edits::reviewed(image, &mark, review).map(Command::Edit)
    }

    /// Whether the labels are there; if not, says so.
    fn may_edit(&mut self, session: &Session, image: usize) -> bool {
        let may_edit = has_labels(session, image);
        if !may_edit {
            self.message = Some("Labels are still being read; wait a moment".to_owned());
        }
        may_edit
    }

    fn question_ui(&mut self, ui: &Ui, view: &mut View<'_>, canvas: Rect, image: usize) {
        let Some(question) = &mut self.question else { return };
        let Some(open) = &view.session.dataset else { return };
        let n_selected = self.boxes.selected().len();
        let text = match (question.drawn, n_selected) {
            (Some(_), _) => "Class of the new box".to_owned(),
            (None, 0) => "Class of the next box".to_owned(),
            (None, 1) => "Class of the selected box".to_owned(),
            (None, n_selected) => format!("Class of {n_selected} boxes"),
        };
        let picked = question.picker.ui(ui, canvas, &open.dataset.names, &text);
        let Some(picked) = picked else { return };
        if picked == Picked::Left {
            let commands = self.add_waiting(view.session);
            view.out.commands.extend(commands);
        }
        let drawn = self.question.take().and_then(|question| question.drawn);
        if let Picked::Class(class) = picked {
            let asked = match drawn {
                Some(bbox) => {
                    self.class = class;
                    self.add(view.session, image, bbox)
                }
                None => self.choose_class(view.session, image, class),
            };
            view.out.commands.extend(asked.commands);
        }
    }

    /// Carries out an action of the editor on the image of `place`.
    pub fn act(&mut self, action: Action, place: &Place<'_>) -> Asked {
        self.message = None;
        let Some(image) = place.image() else { return Asked::default() };
        self.turn_to(place.session, image);
        let n_classes = place.session.dataset.as_ref().map_or(0, |open| open.dataset.names.len());
        if let Some(class) = action.class_place() {
            return self.choose_class(place.session, image, class);
        }
        match action {
            Action::DrawBox => {
                self.canvas.toggle_armed();
                self.boxes.select(&[]);
                Asked::default()
            }
            Action::ChooseClass if self.question.is_some() => {
                let commands = self.add_waiting(place.session);
                self.question = None;
                Asked { commands, position: None }
            }
            Action::ChooseClass if n_classes > 0 => {
                let labels = place.labels(image);
                let last = self.boxes.selected().first().and_then(|&index| labels.get(index)).map_or(self.class, |l| l.class.0 as usize);
                self.question = Some(Question { picker: ClassPicker::new(last), drawn: None });
                Asked::default()
            }
            Action::ZoomToBox => {
                if !self.canvas.zoom_to_selection(&self.boxes) {
                    self.message = Some("Select a box to zoom to it".to_owned());
                }
                Asked::default()
            }
            Action::ToggleCrosshair
            | Action::ToggleLoupe
            | Action::TogglePixelGrid
            | Action::ToggleWholePixels
            | Action::ToggleAskClass => {
                let mut settings = place.session.settings.editor;
                let setting = match action {
                    Action::ToggleCrosshair => &mut settings.shows_crosshair,
                    Action::ToggleLoupe => &mut settings.shows_loupe,
                    Action::ToggleWholePixels => &mut settings.whole_pixels,
                    Action::ToggleAskClass => &mut settings.asks_class,
                    _ => &mut settings.shows_pixel_grid,
                };
                *setting = !*setting;
                self.message = Some(format!("{} is {}", action.title(), if *setting { "on" } else { "off" }));
                Asked { commands: vec![Command::SetEditor(settings)], position: None }
            }
            Action::Brighten | Action::Darken | Action::RaiseContrast | Action::LowerContrast => {
                let step = if matches!(action, Action::Brighten | Action::RaiseContrast) { tone::STEP } else { -tone::STEP };
                let is_light = matches!(action, Action::Brighten | Action::Darken);
                let (name, value) =
                    if is_light { ("Brightness", &mut self.tone.brightness) } else { ("Contrast", &mut self.tone.contrast) };
                *value = (*value + step).clamp(-tone::MAX, tone::MAX);
                self.message = Some(format!("{name} {value:+}"));
                Asked::default()
            }
            Action::ResetTone => {
                self.tone = Tone::default();
                Asked::default()
            }
            Action::SelectAllBoxes => {
                let shown: Vec<usize> = (0..self.boxes.all().len()).filter(|&index| !self.boxes.get(index).is_hidden).collect();
                self.boxes.select(&shown);
                Asked::default()
            }
            Action::NextBox | Action::PreviousBox => {
                let neighbour = self.boxes.neighbour(action == Action::NextBox);
                self.boxes.select(&neighbour.into_iter().collect::<Vec<_>>());
                Asked::default()
            }
            Action::DeleteBoxes => {
                let selected = self.unlocked();
                self.edit(place.session, image, label_edits::name("Delete", selected.len()), label_edits::removed(&selected))
            }
            Action::CopyBoxes => {
                self.copy(place, image);
                Asked::default()
            }
            Action::PasteBoxes => self.paste(place, image),
            Action::DuplicateBoxes => {
                let labels = self.selected_labels(place, image);
                let copies = label_edits::beside(&labels, 1, self.canvas.size().unwrap_or(Size::square(1000)));
                let ops = label_edits::pasted(&copies, place.labels(image));
                self.edit(place.session, image, label_edits::name("Duplicate", ops.len()), ops)
            }
            Action::PastePrevious => self.paste_previous(place, image),
            Action::Propagate => self.propagate(place, image),
            Action::NextClass | Action::PreviousClass if n_classes > 0 => {
                let labels = place.labels(image);
                let current = self.boxes.selected().first().and_then(|&index| labels.get(index)).map_or(self.class, |l| l.class.0 as usize);
                let step = if action == Action::NextClass { 1 } else { n_classes - 1 };
                self.choose_class(place.session, image, (current + step) % n_classes)
            }
            Action::LockBoxes => {
                self.boxes.toggle_lock();
                Asked::default()
            }
            Action::HideBoxes => {
                self.boxes.toggle_hidden();
                Asked::default()
            }
            Action::MarkReviewed => {
                self.space.asked = Some(image);
                Asked::default()
            }
            Action::MarkEmpty => self.mark_empty(place, image),
            Action::NextUnreviewed => {
                let marks = place.session.dataset.as_ref().map(|open| open.marks.clone()).unwrap_or_default();
                let position = label_edits::next_unreviewed(place.images, place.position, &marks);
                if position.is_none() {
                    self.message = Some("No other image of the listing is unreviewed".to_owned());
                }
                Asked { position, ..Asked::default() }
            }
            _ => Asked::default(),
        }
    }

    /// Gives the selected boxes a class; without a selection the next box that is drawn.
    fn choose_class(&mut self, session: &Session, image: usize, class: usize) -> Asked {
        let names = session.dataset.as_ref().map_or(&[][..], |open| &open.dataset.names);
        if class >= names.len() {
            self.message = Some(format!("The dataset has no class {}", class + 1));
            return Asked::default();
        }
        self.class = class;
        let selected = self.unlocked();
        let ops = label_edits::reclassed(session.labels(image), &selected, ClassId(class as u32));
        self.edit(session, image, format!("Change class to {}", names[class]), ops)
    }

    fn copy(&mut self, place: &Place<'_>, image: usize) {
        let labels = self.selected_labels(place, image);
        if labels.is_empty() {
            self.message = Some("Select a box to copy it".to_owned());
        } else {
            let rows: Vec<String> = labels.iter().map(parse::row_text).collect();
            self.clip = Some(Clip { image: Some(image), labels, n_beside: 0, text: rows.join("\n"), is_new: true });
        }
    }

    fn paste(&mut self, place: &Place<'_>, image: usize) -> Asked {
        let Some(clip) = &mut self.clip else {
            self.message = Some("Nothing was copied".to_owned());
            return Asked::default();
        };
        let labels = if clip.image == Some(image) {
            clip.n_beside += 1;
            label_edits::beside(&clip.labels, clip.n_beside, self.canvas.size().unwrap_or(Size::square(1000)))
        } else {
            clip.labels.clone()
        };
        let ops = label_edits::pasted(&labels, place.labels(image));
        if ops.is_empty() {
            self.message = Some("These boxes are here already".to_owned());
        }
        self.edit(place.session, image, label_edits::name("Paste", ops.len()), ops)
    }

    fn paste_previous(&mut self, place: &Place<'_>, image: usize) -> Asked {
        let Some(previous) = place.position.checked_sub(1).and_then(|position| place.images.get(position)).map(|&image| image as usize)
        else {
            self.message = Some("This is the first image of the listing".to_owned());
            return Asked::default();
        };
        let ops = label_edits::pasted(place.labels(previous), place.labels(image));
        if ops.is_empty() {
            self.message = Some("The previous image has no other boxes than this one".to_owned());
        }
        self.edit(place.session, image, label_edits::name("Copy previous image's", ops.len()), ops)
    }

    fn propagate(&mut self, place: &Place<'_>, image: usize) -> Asked {
        let clip = if self.boxes.has_selection() { self.selected_labels(place, image) } else { place.labels(image).to_vec() };
        let targets = place
            .images
            .iter()
            .skip(place.position + 1)
            .take(place.session.settings.editor.n_propagated as usize)
            .map(|&image| image as usize);
        let images = label_edits::propagated(&clip, targets.map(|target| (target, place.labels(target))));
        let mut edit = Edit { name: format!("Propagate to {}", counted(images.len(), "image")), images };
        if edit.images.is_empty() {
            self.message = Some("The next images have these boxes already, or there is none".to_owned());
            return Asked::default();
        }
        for each in &mut edit.images {
            let mark = place.mark(each.image);
            label_edits::no_longer_empty(each, Some(&mark));
        }
        self.message = Some(edit.name.clone());
        Asked::of(Some(edit))
    }

    /// An image without boxes is meant so; one with boxes is not.
    fn mark_empty(&mut self, place: &Place<'_>, image: usize) -> Asked {
        if !self.may_edit(place.session, image) {
            return Asked::default();
        }
        let n_labels = place.labels(image).len();
        if n_labels > 0 {
            self.message = Some(format!("This image has {}; delete them first", label_edits::name("", n_labels).trim()));
            return Asked::default();
        }
        let next = place.position + 1;
        let position = (next < place.images.len()).then_some(next);
        Asked { position, ..Asked::of(label_edits::reviewed(image, &place.mark(image), Review::Empty)) }
    }

    /// An edit of the shown image; nothing where it has no operations.
    fn edit(&mut self, session: &Session, image: usize, name: String, ops: Vec<LabelOp>) -> Asked {
        if ops.is_empty() || !self.may_edit(session, image) {
            return Asked::default();
        }
        self.boxes.plan(&ops, true);
        let mut of_image = ImageEdit::new(image, ops);
        let marks = session.dataset.as_ref().map(|open| &open.marks);
        label_edits::no_longer_empty(&mut of_image, marks.and_then(|marks| marks.get(image)));
        Asked::of(Some(Edit { name, images: vec![of_image] }))
    }

    fn selected_labels(&self, place: &Place<'_>, image: usize) -> Vec<Label> {
        let labels = place.labels(image);
        self.boxes.selected().into_iter().filter_map(|index| labels.get(index).copied()).collect()
    }

    /// The selected boxes that may be changed.
    fn unlocked(&mut self) -> Vec<usize> {
        let selected = self.boxes.selected();
        let is_free = |index: &usize| !self.hides_boxes && self.boxes.get(*index).is_free();
        let free: Vec<usize> = selected.iter().copied().filter(is_free).collect();
        if free.is_empty() && !selected.is_empty() {
            self.message = Some("What is selected is locked or hidden".to_owned());
        }
        free
    }

    /// Follows the image that is shown, and its labels.
    /// The same dataset with other classes or splits: the view, the light and the class of the next box stay.
    pub fn follow_dataset(&mut self, before: &Dataset, now: &Dataset) {
        if let Some(clip) = &mut self.clip {
            // Images are numbered anew.
            clip.image = None;
        }
        if before.names != now.names {
            let name = before.names.get(self.class);
            let renamed = if before.names.len() == now.names.len() { self.class } else { 0 };
            self.class = now.names.iter().position(|other| Some(other) == name).unwrap_or(renamed);
            // Its numbers may mean other classes.
            self.clip = None;
        }
        self.question = None;
    }

    fn turn_to(&mut self, session: &Session, image: usize) {
        let Some(open) = &session.dataset else { return };
        if !self.dataset.as_ref().is_some_and(|dataset| Arc::ptr_eq(dataset, &open.dataset)) {
            self.dataset = Some(open.dataset.clone());
            (self.image, self.left_boxes) = (None, HashMap::new());
            (self.space, self.seen) = (SpaceKey::default(), None);
        }
        if self.image != Some(image) {
            let mut left = std::mem::take(&mut self.boxes);
            left.select(&[]);
            if let Some(before) = self.image.replace(image).filter(|_| !left.all().iter().all(|state| state.is_free())) {
                self.left_boxes.insert(before, left);
            }
            self.boxes = self.left_boxes.remove(&image).unwrap_or_default();
            self.canvas.turn();
            self.question = None;
            self.message = None;
        }
        if let Some(labels) = open.labels.get(image) {
            self.boxes.follow(labels, |a, b| edit_files::is_same(&open.dataset, a, b));
        }
    }
}

/// Whether the labels of an image were read.
fn has_labels(session: &Session, image: usize) -> bool {
    session.dataset.as_ref().is_some_and(|open| open.labels.get(image).is_some())
}

impl Asked {
    fn of(edit: Option<Edit>) -> Self {
        Self { commands: edit.map(Command::Edit).into_iter().collect(), position: None }
    }
}
