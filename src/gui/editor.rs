//! The label editor: one image of the dataset with its boxes, and the list of them beside it.
//!
//! In:  the image, its labels as the session holds them, its neighbours in the listing; actions, pointer and keys.
//! Out: edits as commands; what is half drawn stays here until it is finished.
//!
//! An edit is asked for and shows when the session has carried it out. Never writes a file, never keeps labels of its own.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui};

use super::action::Action;
use super::app::View;
use super::box_states::BoxStates;
use super::canvas::{Canvas, CanvasBox, Outline, Zoom};
use super::controls::{self, counted};
use super::label_edits;
use super::theme::{self, palette};
use crate::dataset::edit::{Edit, ImageEdit, LabelOp, Mark, Review};
use crate::dataset::{ClassId, Dataset, Label};
use crate::geom::Size;
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
    image: usize,
    labels: Vec<Label>,
    /// How often they were pasted on the image that they are from.
    n_beside: usize,
}

/// What the editor remembers between frames.
#[derive(Default)]
pub struct Editor {
    canvas: Canvas,
    dataset: Option<Arc<Dataset>>,
    /// Whose boxes `boxes` are.
    image: Option<usize>,
    boxes: BoxStates,
    /// Of images that were left.
    left_boxes: HashMap<usize, BoxStates>,
    /// Of the next box that is drawn.
    class: usize,
    clip: Option<Clip>,
    /// So many images get the boxes that are propagated.
    n_propagated: usize,
    size: Option<Size>,
    /// Why the last action did nothing.
    message: Option<String>,
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
        let Some(open) = &view.session.dataset else { return };
        let labels = view.session.labels(image);
        let boxes: Vec<CanvasBox<'_>> = if view.hides_boxes {
            Vec::new()
        } else {
            let boxes = labels.iter().enumerate();
            boxes.map(|(index, label)| label_box(&open.dataset.names, label, self.boxes.get(index).is_selected)).collect()
        };
        let done = self.canvas.ui(ui, view.textures, &open.dataset.images[image].path, &boxes);
        self.size = done.size;
        if done.clicked.is_some() || done.clicked_empty {
            self.boxes.select(&done.clicked.into_iter().collect::<Vec<_>>());
        }
    }

    /// Draws the list of the image's labels.
    pub fn labels_ui(&mut self, ui: &mut Ui, session: &Session, image: usize) {
        self.turn_to(session, image);
        let Some(open) = &session.dataset else { return };
        let entry = &open.dataset.images[image];
        let labels = session.labels(image);
        let name = entry.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        ui.add(egui::Label::new(RichText::new(&*name).text_style(theme::strong()).color(palette(ui).strong)).truncate())
            .on_hover_text(entry.path.display().to_string());
        controls::note(ui, format!("{} split, {}", entry.split.name(), counted(labels.len(), "label")));
        if let Some(message) = &self.message {
            controls::note(ui, message);
        }
        ui.add_space(6.0);
        ui.separator();
        if labels.is_empty() {
            controls::note(ui, "No labels: a background image, from which the detector learns what is nothing");
            return;
        }
        ui.spacing_mut().item_spacing.y = 2.0;
        ScrollArea::vertical().auto_shrink(false).show_rows(ui, controls::ROW_HEIGHT, labels.len(), |ui, rows| {
            for index in rows {
                let label = &labels[index];
                let class = label.class.0 as usize;
                let name = open.dataset.names.get(class).map_or("?", String::as_str);
                let is_selected = self.boxes.get(index).is_selected;
                if label_row_ui(ui, name, class, label, is_selected).clicked() {
                    self.boxes.select(if is_selected { &[] } else { std::slice::from_ref(&index) });
                }
            }
        });
    }

    pub fn has_selection(&self) -> bool {
        self.boxes.has_selection()
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.canvas.zoom(zoom);
    }

    /// Carries out an action of the editor on the image of `place`.
    pub fn act(&mut self, action: Action, place: &Place<'_>) -> Asked {
        self.message = None;
        let Some(image) = place.image() else { return Asked::default() };
        self.turn_to(place.session, image);
        let n_classes = place.session.dataset.as_ref().map_or(0, |open| open.dataset.names.len());
        if let Some(class) = action.class_place() {
            return self.choose_class(place, image, class);
        }
        match action {
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
                self.edit(place, image, label_edits::name("Delete", selected.len()), label_edits::removed(&selected))
            }
            Action::CopyBoxes => {
                self.copy(place, image);
                Asked::default()
            }
            Action::PasteBoxes => self.paste(place, image),
            Action::DuplicateBoxes => {
                let labels = self.selected_labels(place, image);
                let copies = label_edits::beside(&labels, 1, self.size.unwrap_or(Size::square(1000)));
                let ops = label_edits::pasted(&copies, place.labels(image));
                self.edit(place, image, label_edits::name("Duplicate", ops.len()), ops)
            }
            Action::PastePrevious => self.paste_previous(place, image),
            Action::Propagate => self.propagate(place, image),
            Action::NextClass | Action::PreviousClass if n_classes > 0 => {
                let labels = place.labels(image);
                let current = self.boxes.selected().first().and_then(|&index| labels.get(index)).map_or(self.class, |l| l.class.0 as usize);
                let step = if action == Action::NextClass { 1 } else { n_classes - 1 };
                self.choose_class(place, image, (current + step) % n_classes)
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
                let mark = place.mark(image);
                let review = if mark.review == Review::Reviewed { Review::Unreviewed } else { Review::Reviewed };
                Asked::of(label_edits::reviewed(image, &mark, review))
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
    fn choose_class(&mut self, place: &Place<'_>, image: usize, class: usize) -> Asked {
        let names = place.session.dataset.as_ref().map_or(&[][..], |open| &open.dataset.names);
        if class >= names.len() {
            self.message = Some(format!("The dataset has no class {}", class + 1));
            return Asked::default();
        }
        self.class = class;
        let selected = self.unlocked();
        let ops = label_edits::reclassed(place.labels(image), &selected, ClassId(class as u32));
        self.edit(place, image, format!("Change class to {}", names[class]), ops)
    }

    fn copy(&mut self, place: &Place<'_>, image: usize) {
        let labels = self.selected_labels(place, image);
        if labels.is_empty() {
            self.message = Some("Select a box to copy it".to_owned());
        } else {
            self.clip = Some(Clip { image, labels, n_beside: 0 });
        }
    }

    fn paste(&mut self, place: &Place<'_>, image: usize) -> Asked {
        let Some(clip) = &mut self.clip else {
            self.message = Some("Nothing was copied".to_owned());
            return Asked::default();
        };
        let labels = if clip.image == image {
            clip.n_beside += 1;
            label_edits::beside(&clip.labels, clip.n_beside, self.size.unwrap_or(Size::square(1000)))
        } else {
            clip.labels.clone()
        };
        let ops = label_edits::pasted(&labels, place.labels(image));
        if ops.is_empty() {
            self.message = Some("These boxes are here already".to_owned());
        }
        self.edit(place, image, label_edits::name("Paste", ops.len()), ops)
    }

    fn paste_previous(&mut self, place: &Place<'_>, image: usize) -> Asked {
        let Some(previous) = place.position.checked_sub(1).and_then(|position| place.images.get(position)).map(|&image| image as usize) else {
            self.message = Some("This is the first image of the listing".to_owned());
            return Asked::default();
        };
        let ops = label_edits::pasted(place.labels(previous), place.labels(image));
        if ops.is_empty() {
            self.message = Some("The previous image has no other boxes than this one".to_owned());
        }
        self.edit(place, image, label_edits::name("Copy previous image's", ops.len()), ops)
    }

    fn propagate(&mut self, place: &Place<'_>, image: usize) -> Asked {
        let clip = if self.boxes.has_selection() { self.selected_labels(place, image) } else { place.labels(image).to_vec() };
        let targets = place.images.iter().skip(place.position + 1).take(self.n_propagated.max(1)).map(|&image| image as usize);
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
    fn edit(&mut self, place: &Place<'_>, image: usize, name: String, ops: Vec<LabelOp>) -> Asked {
        if ops.is_empty() {
            return Asked::default();
        }
        self.boxes.plan(&ops, true);
        let mut of_image = ImageEdit::new(image, ops);
        label_edits::no_longer_empty(&mut of_image, Some(&place.mark(image)));
        Asked::of(Some(Edit { name, images: vec![of_image] }))
    }

    fn selected_labels(&self, place: &Place<'_>, image: usize) -> Vec<Label> {
        let labels = place.labels(image);
        self.boxes.selected().into_iter().filter_map(|index| labels.get(index).copied()).collect()
    }

    /// The selected boxes that may be changed.
    fn unlocked(&mut self) -> Vec<usize> {
        let (locked, free): (Vec<usize>, Vec<usize>) =
            self.boxes.selected().into_iter().partition(|&index| self.boxes.get(index).is_locked);
        if free.is_empty() && !locked.is_empty() {
            self.message = Some("What is selected is locked".to_owned());
        }
        free
    }

    /// Follows the image that is shown, and its labels.
    fn turn_to(&mut self, session: &Session, image: usize) {
        let Some(open) = &session.dataset else { return };
        if !self.dataset.as_ref().is_some_and(|dataset| Arc::ptr_eq(dataset, &open.dataset)) {
            self.dataset = Some(open.dataset.clone());
            (self.image, self.left_boxes) = (None, HashMap::new());
        }
        if self.image != Some(image) {
            let mut left = std::mem::take(&mut self.boxes);
            left.select(&[]);
            if let Some(before) = self.image.replace(image).filter(|_| !left.all().iter().all(|state| state.is_free())) {
                self.left_boxes.insert(before, left);
            }
            self.boxes = self.left_boxes.remove(&image).unwrap_or_default();
            self.size = None;
            self.message = None;
        }
        if let Some(labels) = open.labels.get(image) {
            self.boxes.follow(labels);
        }
    }
}

impl Asked {
    fn of(edit: Option<Edit>) -> Self {
        Self { commands: edit.map(Command::Edit).into_iter().collect(), position: None }
    }
}
/// A label as the canvas draws it.
pub fn label_box<'a>(names: &'a [String], label: &Label, is_selected: bool) -> CanvasBox<'a> {
    let class = label.class.0 as usize;
    let tag = names.get(class).map_or("?", String::as_str).into();
    CanvasBox { bbox: label.bbox, color: theme::class_color(class), tag, outline: Outline::Solid, is_selected }
}

fn label_row_ui(ui: &mut Ui, name: &str, class: usize, label: &Label, is_selected: bool) -> egui::Response {
    let (rect, response) = ui.allocate_exact_size(egui::vec2(ui.available_width(), controls::ROW_HEIGHT), egui::Sense::click());
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, is_selected, format!("label {name}")));
    controls::row_background(ui, rect, &response, is_selected);
    let swatch = egui::Rect::from_center_size(egui::pos2(rect.left() + 13.0, rect.center().y), egui::Vec2::splat(10.0));
    ui.painter().rect_filled(swatch, 3.0, theme::class_color(class));
    let font = egui::TextStyle::Small.resolve(ui.style());
    let size = format!("{:.0} × {:.0} %", label.bbox.w * 100.0, label.bbox.h * 100.0);
    let end = ui.painter().text(egui::pos2(rect.right() - 8.0, rect.center().y), egui::Align2::RIGHT_CENTER, size, font, palette(ui).faint);
    controls::paint_text(ui, egui::pos2(rect.left() + 26.0, rect.center().y), end.left() - rect.left() - 34.0, RichText::new(name));
    let bbox = label.bbox;
    response.on_hover_text(format!("Class {class}\nCentre {:.4}, {:.4}\nSize {:.4} × {:.4} of the image", bbox.cx, bbox.cy, bbox.w, bbox.h))
}
