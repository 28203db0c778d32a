//! The panel beside the canvas: classes with their digits, the labels of the image, rows that training drops, and keys.
//!
//! In:  the image, its labels, what is remembered of each box. Out: actions; selecting, locking and hiding happen here.
//!
//! Only the rows in view are drawn, however many labels there are.

use egui::{Align2, Label, Rect, Response, RichText, Role, ScrollArea, Sense, TextStyle, Ui, Vec2, WidgetInfo, pos2, vec2};

use super::action::Action;
use super::box_states::BoxStates;
use super::class_picker;
use super::controls::{self, counted};
use super::theme::{self, palette};
use super::viewport;
use crate::dataset::edit::Review;
use crate::dataset::{Dataset, ImageEntry};
use crate::geom::Size;
use crate::session::{DroppedRow, ImageRows};

use crate::dataset::Label as BoxLabel;

const ROW_HEIGHT: f32 = 24.0;
/// Rows of classes that are in view before they scroll.
const N_CLASS_ROWS: f32 = 10.0;

/// What the panel is about.
pub struct EditorSide<'a> {
    pub dataset: &'a Dataset,
    pub entry: &'a ImageEntry,
    /// `None`: they are being read.
    pub labels: Option<&'a [BoxLabel]>,
    pub size: Option<Size>,
    pub review: Review,
    pub dropped: Option<&'a ImageRows>,
    /// The class of the next box.
    pub class: usize,
    pub is_drawing: bool,
    pub message: Option<&'a str>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideAsked {
    Class(usize),
}

impl EditorSide<'_> {
    pub fn ui(&self, ui: &mut Ui, states: &mut BoxStates) -> Option<SideAsked> {
        let name = self.entry.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        ui.add(Label::new(RichText::new(&*name).text_style(theme::strong()).color(palette(ui).strong)).truncate())
            .on_hover_text(self.entry.path.display().to_string());
        let mut words = vec![self.entry.split.name().to_owned()];
        words.extend(self.size.map(|size| format!("{} × {}", size.width, size.height)));
        words.extend(match self.review {
            Review::Unreviewed => None,
            Review::Reviewed => Some("reviewed".to_owned()),
            Review::Empty => Some("empty on purpose".to_owned()),
        });
        controls::note(ui, words.join(",  "));
        ui.add_space(6.0);
        let hint_height = 76.0;
        let bottom = ui.max_rect().bottom() - hint_height;
        let asked = self.classes_ui(ui, bottom);
        ui.add_space(8.0);
        self.labels_ui(ui, states, bottom);
        let hints = Rect::from_min_max(pos2(ui.max_rect().left(), bottom), ui.max_rect().max);
        ui.scope_builder(egui::UiBuilder::new().max_rect(hints), |ui| self.hints_ui(ui, states));
        asked
    }

    fn classes_ui(&self, ui: &mut Ui, bottom: f32) -> Option<SideAsked> {
        controls::section(ui, "Classes");
        let names = &self.dataset.names;
        let room = (bottom - ui.cursor().top()) * 0.45;
        let mut asked = None;
        ui.spacing_mut().item_spacing.y = 1.0;
        let rows = ScrollArea::vertical().id_salt("editor classes").max_height(room.min(N_CLASS_ROWS * (ROW_HEIGHT + 1.0)));
        rows.auto_shrink([false, true]).show_rows(ui, ROW_HEIGHT, names.len(), |ui, rows| {
            for class in rows {
                let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::click());
                let is_next = class == self.class;
                response.widget_info(|| WidgetInfo::selected(Role::Button, true, is_next, format!("draw class {}", names[class])));
                controls::row_background(ui, rect, &response, is_next);
                class_picker::paint_class(ui, rect, class, &names[class]);
                if response.on_hover_text("Class of the selected boxes, or of the next one").clicked() {
                    asked = Some(SideAsked::Class(class));
                }
            }
        });
        asked
    }

    fn labels_ui(&self, ui: &mut Ui, states: &mut BoxStates, bottom: f32) {
        let Some(labels) = self.labels else {
            controls::section(ui, "Labels");
            controls::note(ui, "Labels are being read…");
            return;
        };
        let n_labels = labels.len();
        controls::section(ui, &counted(n_labels, "label"));
        let dropped = self.dropped.map_or(&[][..], |dropped| &dropped.rows);
        let problem = self.dropped.and_then(|dropped| dropped.problem.as_deref());
        if n_labels == 0 && dropped.is_empty() && problem.is_none() {
            let text = match self.review {
                Review::Empty => "There is nothing here, and that is meant so",
                _ => "A background image, from which the detector learns what is nothing",
            };
            controls::note(ui, text);
            return;
        }
        // Below the labels stand the rows that training does not use, one under the other.
        let n_dropped = dropped.len() + usize::from(problem.is_some());
        let n_rows = n_labels + if n_dropped > 0 { n_dropped + 1 } else { 0 };
        let room = (bottom - ui.cursor().top()).max(ROW_HEIGHT * 3.0);
        ui.spacing_mut().item_spacing.y = 1.0;
        let rows = ScrollArea::vertical().id_salt("editor labels").max_height(room).auto_shrink(false);
        rows.show_rows(ui, ROW_HEIGHT, n_rows, |ui, rows| {
            for row in rows {
                match row.checked_sub(n_labels) {
                    None => self.label_ui(ui, states, row, &labels[row]),
                    Some(0) => {
                        let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::hover());
                        let text = RichText::new("Not used by training").small().color(palette(ui).weak);
                        controls::paint_text(ui, pos2(rect.left() + 8.0, rect.center().y), rect.width() - 8.0, text);
                    }
                    Some(place) => match (problem, dropped.get(place - 1)) {
                        (_, Some(row)) => dropped_row_ui(ui, Some(row), &row.reason),
                        (problem, None) => dropped_row_ui(ui, None, problem.unwrap_or_default()),
                    },
                }
            }
        });
    }

    /// A label: a click selects it, with Ctrl or Shift as well; a lock and an eye at its end.
    fn label_ui(&self, ui: &mut Ui, states: &mut BoxStates, index: usize, label: &BoxLabel) {
        let class = label.class.0 as usize;
        let name = self.dataset.names.get(class).map_or("?", String::as_str);
        let state = states.get(index);
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::click());
        response.widget_info(|| WidgetInfo::selected(Role::Button, true, state.is_selected, format!("label {name}")));
        controls::row_background(ui, rect, &response, state.is_selected);
        let swatch = Rect::from_center_size(pos2(rect.left() + 13.0, rect.center().y), Vec2::splat(10.0));
        ui.painter().rect_filled(swatch, 3.0, theme::class_color(class));
        let is_over = ui.rect_contains_pointer(rect);
        let mut right = rect.right() - 4.0;
        let mut icon = |ui: &Ui, text: &str, what: &str, is_on: bool| {
            let place = Rect::from_center_size(pos2(right - 9.0, rect.center().y), Vec2::splat(18.0));
            let button = ui.interact(place, ui.scope_id().with((what, index)), Sense::click());
            button.widget_info(|| WidgetInfo::selected(Role::Button, true, is_on, format!("{what} box {}", index + 1)));
            if is_on || is_over || button.has_focus() {
                let ink = if is_on { palette(ui).strong } else { palette(ui).faint };
                ui.painter().text(place.center(), Align2::CENTER_CENTER, text, TextStyle::Small.resolve(ui.style()), ink);
                right -= 19.0;
            }
            button.on_hover_text(format!("{what} this box")).clicked()
        };
        if icon(ui, "👁", "Hide", state.is_hidden) {
            states.set_hidden(index, !state.is_hidden);
        }
        if icon(ui, "🔒", "Lock", state.is_locked) {
            states.set_locked(index, !state.is_locked);
        }
        let text = match self.size {
            Some(size) => {
                let rect = viewport::image_rect(label.bbox, size);
                format!("{:.0} × {:.0}", rect.width(), rect.height())
            }
            None => format!("{:.0} × {:.0} %", label.bbox.w * 100.0, label.bbox.h * 100.0),
        };
        let font = TextStyle::Small.resolve(ui.style());
        let end = ui.painter().text(pos2(right - 4.0, rect.center().y), Align2::RIGHT_CENTER, text, font, palette(ui).faint);
        let ink = if state.is_hidden { palette(ui).faint } else { palette(ui).text };
        let width = end.left() - rect.left() - 34.0;
        controls::paint_text(ui, pos2(rect.left() + 26.0, rect.center().y), width, RichText::new(name).color(ink));
        select(&response.on_hover_text(place_text(label)), ui, states, index);
    }

    /// What the keys do now, or why the last one did nothing.
    fn hints_ui(&self, ui: &mut Ui, states: &BoxStates) {
        ui.separator();
        if let Some(message) = self.message {
            ui.label(RichText::new(message).small().color(palette(ui).warn));
            return;
        }
        let fixed: &[(&str, &str)] = match (self.is_drawing, states.has_selection()) {
            (true, _) => &[("Drag", "or two clicks"), ("Arrows", "move"), ("Enter", "corner"), ("Esc", "end")],
            (false, true) => &[("Arrows", "move"), ("Ctrl+arrows", "resize")],
            (false, false) => &[("Drag", "draw"), ("Shift+drag", "select")],
        };
        let actions: &[(Action, &str)] = match (self.is_drawing, states.has_selection()) {
            (true, _) => &[],
            (false, true) => &[(Action::Class1, "class"), (Action::DeleteBoxes, "delete"), (Action::LockBoxes, "lock")],
            (false, false) => &[(Action::NextBox, "next box"), (Action::MarkReviewed, "reviewed"), (Action::MarkEmpty, "empty")],
        };
        ui.spacing_mut().item_spacing = vec2(5.0, 3.0);
        ui.horizontal_wrapped(|ui| {
            let keyed = actions.iter().filter_map(|(action, word)| Some((action.shortcut_text(ui.ctx())?, *word)));
            let all: Vec<(String, &str)> = fixed.iter().map(|(key, word)| ((*key).to_owned(), *word)).chain(keyed).collect();
            for (key, word) in all {
                // One label, so that a line never ends between a key and its word.
                let mut text = egui::text::LayoutJob::default();
                let font = TextStyle::Small.resolve(ui.style());
                text.append(&key, 0.0, egui::TextFormat::simple(font.clone(), palette(ui).text));
                text.append(word, 5.0, egui::TextFormat::simple(font, palette(ui).weak));
                ui.add(Label::new(text).extend());
                ui.add_space(3.0);
            }
        });
    }
}

/// A click selects, or takes out again; with Ctrl or Shift beside the others.
fn select(response: &Response, ui: &Ui, states: &mut BoxStates, index: usize) {
    if !response.clicked() {
        return;
    }
    let modifiers = ui.input(|input| input.modifiers);
    if modifiers.command || modifiers.shift {
        states.toggle(index);
    } else if states.only_selected() == Some(index) {
        states.select(&[]);
    } else {
        states.select(&[index]);
    }
}

fn place_text(label: &BoxLabel) -> String {
    let (bbox, class) = (label.bbox, label.class.0);
    format!("Class {class}\nCentre {:.4}, {:.4}\nSize {:.4} × {:.4} of the image", bbox.cx, bbox.cy, bbox.w, bbox.h)
}

/// A row that training does not use, with the reason.
fn dropped_row_ui(ui: &mut Ui, row: Option<&DroppedRow>, reason: &str) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW_HEIGHT), Sense::hover());
    let place = row.map_or_else(|| "file".to_owned(), |row| format!("line {}", row.line));
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("dropped {place}: {reason}")));
    let font = TextStyle::Small.resolve(ui.style());
    let line = ui.painter().text(pos2(rect.left() + 8.0, rect.center().y), Align2::LEFT_CENTER, &place, font, palette(ui).weak);
    let text = RichText::new(reason).small().color(palette(ui).faint);
    controls::paint_text(ui, pos2(line.right() + 8.0, rect.center().y), rect.right() - line.right() - 12.0, text);
    response.on_hover_text(format!("{place} of the label file: {reason}"));
}
