//! The classes of the dataset: names, colours, how many boxes, which key; and what can be done to them.
//!
//! In:  the session's dataset and labels. Out: one edit of the whole dataset at a time, which undo takes back as one step.
//!
//! Counts are worked out once a change of the labels. Numbers of other classes stay unless it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use egui::{Button, Color32, Frame, Grid, Id, Key, Modal, RichText, Role, ScrollArea, Sense, Ui, WidgetInfo, vec2};

use super::action::Action;
use super::controls;
use super::theme::{self, palette};
use crate::dataset::ClassId;
use crate::dataset::class_edit::{Boxes, ClassEdit, Ids};
use crate::session::Command;
use crate::session::LabelTable;
use crate::session::Session;

const WIDTH: f32 = 640.0;

/// Colours that people who see red and green alike tell apart. Source: Okabe and Ito, Color Universal Design (2008).
const SAFE_COLORS: [([u8; 3], &str); 8] = [
    ([0xe6, 0x9f, 0x00], "Orange"),
    ([0x56, 0xb4, 0xe9], "Sky blue"),
    ([0x00, 0x9e, 0x73], "Bluish green"),
    ([0xf0, 0xe4, 0x42], "Yellow"),
    ([0x00, 0x72, 0xb2], "Blue"),
    ([0xd5, 0x5e, 0x00], "Vermilion"),
    ([0xcc, 0x79, 0xa7], "Reddish purple"),
    ([0x99, 0x99, 0x99], "Gray"),
];

/// What is being asked about a class.
enum Asked {
    Rename { class: usize, name: String },
    Merge { from: usize, into: usize, renumbers: bool },
    Delete { class: usize, takes_boxes: bool, renumbers: bool },
    Color { class: usize, own: [u8; 3] },
}

/// What the page remembers while it is open.
#[derive(Default)]
pub struct ClassPanel {
    new_name: String,
    asked: Option<Asked>,
    counts: Option<(Arc<LabelTable>, Vec<usize>)>,
}

/// What came of a frame.
#[derive(Debug, Default)]
pub struct ClassesDone {
    pub command: Option<Command>,
    pub closes: bool,
}

impl ClassPanel {
    pub fn ui(&mut self, ui: &Ui, session: &Session) -> ClassesDone {
        let mut done = ClassesDone::default();
        let Some(open) = &session.dataset else { return ClassesDone { closes: true, ..done } };
        self.count(&open.labels, open.dataset.names.len());
        let frame = Frame::window(ui.style()).inner_margin(24);
        let height = (ui.ctx().content_rect().height() - 280.0).max(120.0);
        let modal = Modal::new(Id::unique("classes")).frame(frame).show(ui.ctx(), |ui| {
            ui.set_width(WIDTH);
            done.closes = controls::section_with(ui, "Classes", |ui| ui.button("Close").clicked());
            controls::note(ui, "Each change is one step of undo, also in all label files that it touches");
            ui.add_space(8.0);
            ScrollArea::vertical().max_height(height).show(ui, |ui| {
                Grid::new("classes").num_columns(5).spacing([12.0, 4.0]).striped(true).show(ui, |ui| {
                    for (class, name) in open.dataset.names.iter().enumerate() {
                        self.row_ui(ui, class, name, &open.dataset.names, &mut done);
                        ui.end_row();
                    }
                });
            });
            ui.add_space(8.0);
            self.question_ui(ui, &open.dataset.names, &open.colors, &mut done);
            ui.separator();
            ui.horizontal(|ui| {
                let response = controls::text_field(ui, "New class", &mut self.new_name, "Name of a new class", 220.0);
                let entered = response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
                let reason = name_problem(&self.new_name, None, &open.dataset.names);
                let button = ui.add_enabled(reason.is_none(), Button::new("Add")).on_hover_text("Add a class behind the others");
                let clicked = button.on_disabled_hover_text(reason.unwrap_or_default()).clicked();
                if reason.is_none() && (clicked || entered) {
                    done.command = Some(Command::EditClasses(ClassEdit::Add { name: self.new_name.trim().to_owned() }));
                    self.new_name.clear();
                }
            });
        });
        // Esc takes the question back first.
        if modal.should_close() && self.asked.take().is_none() {
            done.closes = true;
        }
        done
    }

    fn count(&mut self, labels: &Arc<LabelTable>, n_classes: usize) {
        if self.counts.as_ref().is_some_and(|(of, counts)| Arc::ptr_eq(of, labels) && counts.len() == n_classes) {
            return;
        }
        let mut counts = vec![0; n_classes];
        for label in labels.iter().flat_map(|labels| labels.iter()) {
            if let Some(count) = counts.get_mut(label.class.0 as usize) {
                *count += 1;
            }
        }
        self.counts = Some((labels.clone(), counts));
    }

    fn n_boxes(&self, class: usize) -> usize {
        self.counts.as_ref().and_then(|(_, counts)| counts.get(class)).copied().unwrap_or(0)
    }

    fn row_ui(&mut self, ui: &mut Ui, class: usize, name: &str, names: &[String], done: &mut ClassesDone) {
        let keys = Action::ALL.iter().find(|action| action.class_place() == Some(class)).and_then(|action| action.shortcut_text(ui.ctx()));
        ui.label(RichText::new(keys.unwrap_or_default()).monospace().color(palette(ui).weak)).on_hover_text("Its key in the editor");
        let color = theme::class_color(class);
        if swatch_ui(ui, color, &format!("Colour of {name}"), "Choose another colour", false).clicked() {
            let [r, g, b, _] = color.to_array();
            self.asked = Some(Asked::Color { class, own: [r, g, b] });
        }
        match &mut self.asked {
            Some(Asked::Rename { class: asked, name: text }) if *asked == class => {
                let response = controls::text_field(ui, "Class name", text, "Name", 220.0);
                let enters = response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
                if !response.has_focus() && !response.lost_focus() {
                    response.request_focus();
                }
                let is_new = text.trim() != name && name_problem(text, Some(class), names).is_none();
                if enters && is_new {
                    let name = text.trim().to_owned();
                    done.command = Some(Command::EditClasses(ClassEdit::Rename { class: id(class), name }));
                }
                if response.lost_focus() {
                    self.asked = None;
                }
            }
            _ => {
                ui.scope(|ui| {
                    ui.set_width(220.0);
                    let text = RichText::new(name).color(palette(ui).strong);
                    let response = ui.add(Button::new(text).frame_when_inactive(false).truncate()).on_hover_text("Rename");
                    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Rename {name}")));
                    if response.clicked() {
                        self.asked = Some(Asked::Rename { class, name: name.to_owned() });
                    }
                });
            }
        }
        let n_boxes = self.n_boxes(class);
        controls::weak(ui, if n_boxes == 1 { "1 box".to_owned() } else { format!("{} boxes", controls::thousands(n_boxes)) });
        ui.horizontal(|ui| {
            if named_button(ui, "Merge…", &format!("Merge {name}"), "Give its boxes another class", names.len() > 1) {
                let into = usize::from(class == 0);
                self.asked = Some(Asked::Merge { from: class, into, renumbers: false });
            }
            if named_button(ui, "Delete…", &format!("Delete {name}"), "Take the class away", true) {
                self.asked = Some(Asked::Delete { class, takes_boxes: false, renumbers: false });
            }
        });
    }

    /// What must be said before a class is merged, deleted or coloured.
    fn question_ui(&mut self, ui: &mut Ui, names: &[String], colors: &BTreeMap<u32, [u8; 3]>, done: &mut ClassesDone) {
        let n_boxes = match &self.asked {
            Some(Asked::Merge { from: class, .. } | Asked::Delete { class, .. }) => self.n_boxes(*class),
            _ => 0,
        };
        let mut is_over = false;
        let name_of = |class: usize| names.get(class).map_or("?", String::as_str);
        match &mut self.asked {
            None | Some(Asked::Rename { .. }) => return,
            Some(Asked::Merge { from, into, renumbers }) => {
                controls::section(ui, &format!("Merge {} into", name_of(*from)));
                ui.horizontal_wrapped(|ui| {
                    for (class, name) in names.iter().enumerate().filter(|(class, _)| class != from) {
                        ui.radio_value(into, class, name.as_str()).on_hover_text(format!("Its boxes become {name}"));
                    }
                });
                renumber_ui(ui, renumbers);
                ui.horizontal(|ui| {
                    let text = format!("Merge {}", counted_boxes(n_boxes));
                    if ui.button(text).on_hover_text("Change the rows in all label files").clicked() {
                        let edit = ClassEdit::Merge { from: id(*from), into: id(*into), ids: ids(*renumbers) };
                        done.command = Some(Command::EditClasses(edit));
                        is_over = true;
                    }
                    is_over |= ui.button("Cancel").on_hover_text("Esc").clicked();
                });
            }
            Some(Asked::Delete { class, takes_boxes, renumbers }) => {
                controls::section(ui, &format!("Delete {}", name_of(*class)));
                if n_boxes > 0 {
                    let text = format!("Delete its {}, too", counted_boxes(n_boxes));
                    ui.checkbox(takes_boxes, text).on_hover_text("To keep them, merge the class into another");
                }
                renumber_ui(ui, renumbers);
                ui.horizontal(|ui| {
                    let reason =
                        (n_boxes > 0 && !*takes_boxes).then_some("Say what becomes of its boxes: delete them here, or merge instead");
                    let button = ui.add_enabled(reason.is_none(), Button::new("Delete class")).on_hover_text("Take the class away");
                    if button.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
                        let boxes = if *takes_boxes { Boxes::Delete } else { Boxes::Refuse };
                        done.command = Some(Command::EditClasses(ClassEdit::Delete { class: id(*class), boxes, ids: ids(*renumbers) }));
                        is_over = true;
                    }
                    is_over |= ui.button("Cancel").on_hover_text("Esc").clicked();
                });
            }
            Some(Asked::Color { class, own }) => {
                controls::section(ui, &format!("Colour of {}", name_of(*class)));
                let mut chosen = None;
                ui.horizontal(|ui| {
                    for (color, name) in SAFE_COLORS {
                        let is_chosen = colors.get(&(*class as u32)) == Some(&color);
                        let [r, g, b] = color;
                        let tooltip = "From a palette that is told apart with every kind of colour vision";
                        if swatch_ui(ui, Color32::from_rgb(r, g, b), name, tooltip, is_chosen).clicked() {
                            chosen = Some(Some(color));
                        }
                    }
                    let response = ui.color_edit_button_srgb(own).on_hover_text("Any other colour").accessible_name("Own colour");
                    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Own colour"));
                    if ui.button("Take this").on_hover_text("The colour on the left").clicked() {
                        chosen = Some(Some(*own));
                    }
                    if ui.button("Usual").on_hover_text("The colour that the number of the class has anyway").clicked() {
                        chosen = Some(None);
                    }
                    is_over |= ui.button("Cancel").on_hover_text("Esc").clicked();
                });
                if let Some(color) = chosen {
                    done.command = Some(Command::EditClasses(ClassEdit::Recolor { class: id(*class), color }));
                    is_over = true;
                }
            }
        }
        if is_over {
            self.asked = None;
        }
    }
}

fn id(class: usize) -> ClassId {
    ClassId(class as u32)
}

fn ids(renumbers: bool) -> Ids {
    if renumbers { Ids::Renumber } else { Ids::Keep }
}

fn counted_boxes(n_boxes: usize) -> String {
    if n_boxes == 1 { "1 box".to_owned() } else { format!("{} boxes", controls::thousands(n_boxes)) }
}

/// Why a class cannot be called so.
fn name_problem(name: &str, but: Option<usize>, names: &[String]) -> Option<&'static str> {
    let name = name.trim();
    if name.is_empty() {
        Some("A class needs a name")
    } else if names.iter().enumerate().any(|(class, other)| other == name && but != Some(class)) {
        Some("There is a class of this name")
    } else {
        None
    }
}

fn renumber_ui(ui: &mut Ui, renumbers: &mut bool) {
    ui.checkbox(renumbers, "Renumber the classes behind it")
        .on_hover_text("Rewrites the numbers in all label files. Weights that were trained before then mean other classes");
}

fn named_button(ui: &mut Ui, text: &str, name: &str, tooltip: &str, is_enabled: bool) -> bool {
    let response = ui.add_enabled(is_enabled, Button::new(RichText::new(text).small())).on_hover_text(tooltip);
    response.widget_info(|| WidgetInfo::labeled(Role::Button, is_enabled, name));
    response.clicked()
}

fn swatch_ui(ui: &mut Ui, color: Color32, name: &str, tooltip: &str, is_chosen: bool) -> egui::Response {
    let (rect, response) = ui.allocate_exact_size(vec2(22.0, 22.0), Sense::click());
    response.widget_info(|| WidgetInfo::selected(Role::Button, true, is_chosen, name));
    ui.painter().rect_filled(rect.shrink(3.0), 4.0, color);
    if is_chosen || response.hovered() {
        ui.painter().rect_stroke(rect, 5.0, egui::Stroke::new(1.5, palette(ui).strong), egui::StrokeKind::Inside);
    }
    response.on_hover_text(format!("{name}: {}", tooltip.to_lowercase()))
}
