//! The label editor: one image of the dataset with its boxes, and the list of them beside it.
//!
//! In:  the image, its labels as the session holds them, its neighbours in the listing.
//! Out: edits as commands; what is half drawn stays here until it is finished.

use egui::{RichText, ScrollArea, Ui};

use super::app::View;
use super::canvas::{Canvas, CanvasBox, Outline, Zoom};
use super::controls::{self, counted};
use super::theme::{self, palette};
use crate::dataset::Label;
use crate::session::Session;

/// What the editor remembers between frames.
#[derive(Default)]
pub struct Editor {
    canvas: Canvas,
    /// Of the image, whose selection it is.
    image: Option<usize>,
    selected: Option<usize>,
}

impl Editor {
    /// Draws the image and takes what the pointer does on it.
    pub fn image_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, image: usize) {
        let Some(open) = &view.session.dataset else { return };
        self.turn_to(image);
        let labels = view.session.labels(image);
        let boxes: Vec<CanvasBox<'_>> = if view.hides_boxes {
            Vec::new()
        } else {
            labels.iter().enumerate().map(|(index, label)| label_box(&open.dataset.names, label, self.selected == Some(index))).collect()
        };
        let done = self.canvas.ui(ui, view.textures, &open.dataset.images[image].path, &boxes);
        if done.clicked.is_some() || done.clicked_empty {
            self.selected = done.clicked;
        }
    }

    /// Draws the list of the image's labels.
    pub fn labels_ui(&mut self, ui: &mut Ui, session: &Session, image: usize) {
        self.turn_to(image);
        let Some(open) = &session.dataset else { return };
        let entry = &open.dataset.images[image];
        let labels = session.labels(image);
        let name = entry.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        ui.add(egui::Label::new(RichText::new(&*name).text_style(theme::strong()).color(palette(ui).strong)).truncate())
            .on_hover_text(entry.path.display().to_string());
        controls::note(ui, format!("{} split, {}", entry.split.name(), counted(labels.len(), "label")));
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
                let is_selected = self.selected == Some(index);
                if label_row_ui(ui, name, class, label, is_selected).clicked() {
                    self.selected = if is_selected { None } else { Some(index) };
                }
            }
        });
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.canvas.zoom(zoom);
    }

    fn turn_to(&mut self, image: usize) {
        if self.image != Some(image) {
            self.image = Some(image);
            self.selected = None;
        }
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
