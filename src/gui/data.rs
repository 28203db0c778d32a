//! The workspace *Data*: which images are there, and what is labelled on them?
//!
//! Left the splits and classes with their counts, which filter; in the middle the grid or one image; right its labels.
//! Lists over the whole dataset are worked out once after each change, never in a frame that changes nothing.

use std::sync::Arc;

use egui::{Align, Frame, Layout, Margin, Panel, RichText, ScrollArea, Slider, Ui};

use super::action::Action;
use super::app::View;
use super::canvas::{Canvas, CanvasBox, Outline, Zoom};
use super::controls::{self, CountRow, counted};
use super::grid::{Cell, Grid};
use super::theme::{self, palette};
use crate::dataset::{ClassId, Split};
use crate::dataset::{Dataset, Label};
use crate::session::OpenDataset;
use crate::session::Session;

/// What is shown of all images.
#[derive(Clone, Debug, Default, PartialEq)]
struct Filter {
    split: Option<Split>,
    class: Option<ClassId>,
    only_background: bool,
    /// Part of the file name.
    name: String,
}

/// Counts over the dataset, and the images that pass the filter; for one state of dataset and filter.
struct Listing {
    dataset: Arc<Dataset>,
    labels: Arc<Vec<Vec<Label>>>,
    filter: Filter,
    n_splits: [usize; 3],
    n_class_labels: Vec<usize>,
    n_background: usize,
    n_labels: usize,
    images: Vec<usize>,
}

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct DataPanel {
    filter: Filter,
    class_filter: String,
    listing: Option<Listing>,
    /// Position in the listing.
    position: usize,
    shows_one: bool,
    grid: Grid,
    canvas: Canvas,
    selected_label: Option<usize>,
}

impl DataPanel {
    /// Draws the open dataset.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let Some(open) = &view.session.dataset else { return };
        self.update_listing(open);
        let Some(listing) = self.listing.take() else { return };
        let side = Frame::new().fill(palette(ui).panel).inner_margin(Margin { left: 10, right: 8, top: 8, bottom: 0 });
        Panel::left("data filters").frame(side).default_size(228.0).min_size(180.0).show(ui, |ui| {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| self.filters_ui(ui, &listing));
        });
        let image = listing.images.get(self.position).copied();
        if self.shows_one
            && let Some(image) = image
        {
            Panel::right("data labels")
                .frame(side)
                .default_size(236.0)
                .min_size(180.0)
                .show(ui, |ui| self.labels_ui(ui, view.session, image));
        }
        egui::CentralPanel::default().frame(Frame::new().fill(palette(ui).backdrop)).show(ui, |ui| {
            self.bar_ui(ui, view, &listing);
            match image {
                None => no_images_ui(ui, &listing, &mut self.filter),
                Some(image) if self.shows_one => self.image_ui(ui, view, &listing, image),
                Some(_) => self.grid_ui(ui, view, &listing),
            }
        });
        self.listing = Some(listing);
    }

    /// Takes note of what is open, also while another workspace is shown.
    pub fn follow(&mut self, session: &Session) {
        if let Some(open) = &session.dataset {
            self.update_listing(open);
        }
    }

    /// Goes to another image of the listing.
    pub fn step(&mut self, forward: bool) {
        let n_images = self.listing.as_ref().map_or(0, |listing| listing.images.len());
        let position = if forward { self.position + 1 } else { self.position.saturating_sub(1) };
        if position < n_images {
            self.select(position);
        }
    }

    /// Shows one image of the dataset.
    pub fn show_image(&mut self, session: &Session, image: usize) {
        let Some(open) = &session.dataset else { return };
        self.filter = Filter::default();
        self.update_listing(open);
        self.select(image);
        self.shows_one = true;
    }

    pub fn toggle_grid(&mut self) {
        self.shows_one = !self.shows_one;
        self.grid.scroll_to(self.position);
    }

    /// Back to the grid, if one image is shown.
    pub fn leave_image(&mut self) {
        if self.shows_one {
            self.toggle_grid();
        }
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.canvas.zoom(zoom);
    }

    fn select(&mut self, position: usize) {
        self.position = position;
        self.selected_label = None;
        self.grid.scroll_to(position);
    }

    fn update_listing(&mut self, open: &OpenDataset) {
        let current = self.listing.as_ref().is_some_and(|listing| {
            Arc::ptr_eq(&listing.dataset, &open.dataset) && Arc::ptr_eq(&listing.labels, &open.labels) && listing.filter == self.filter
        });
        if current {
            return;
        }
        let before = self.listing.take();
        let is_same_dataset = before.as_ref().is_some_and(|listing| Arc::ptr_eq(&listing.dataset, &open.dataset));
        if !is_same_dataset {
            *self = Self { grid: self.grid.clone(), ..Self::default() };
        }
        let image = before.and_then(|listing| listing.images.get(self.position).copied());
        let listing = Listing::new(open, &self.filter);
        // The image stays in view where it still passes.
        self.position = image.and_then(|image| listing.images.binary_search(&image).ok()).unwrap_or(0);
        self.listing = Some(listing);
    }

    fn filters_ui(&mut self, ui: &mut Ui, listing: &Listing) {
        let Self { filter, class_filter, .. } = self;
        ui.spacing_mut().item_spacing.y = 2.0;
        controls::section(ui, "Images");
        let n_images = listing.dataset.images.len();
        let is_all = filter.split.is_none() && !filter.only_background;
        let row = CountRow { name: "All", count: n_images, color: None, is_selected: is_all, tooltip: "Every image of the dataset" };
        if row.ui(ui).clicked() {
            (filter.split, filter.only_background) = (None, false);
        }
        for (split, &count) in Split::ALL.into_iter().zip(&listing.n_splits) {
            if count > 0 {
                let is_selected = filter.split == Some(split);
                if (CountRow { name: split.name(), count, color: None, is_selected, tooltip: "" }).ui(ui).clicked() {
                    filter.split = if is_selected { None } else { Some(split) };
                }
            }
        }
        let tooltip = "Images without a label: the detector learns from them what is nothing";
        let count = listing.n_background;
        if (CountRow { name: "Background", count, color: None, is_selected: filter.only_background, tooltip }).ui(ui).clicked() {
            filter.only_background = !filter.only_background;
            filter.class = None;
        }

        ui.add_space(12.0);
        controls::section_with(ui, "Classes", |ui| {
            if filter.class.is_some() && controls::quiet_button(ui, "Clear", "Show images of every class").clicked() {
                filter.class = None;
            }
        });
        let names = &listing.dataset.names;
        if names.len() > 8 {
            ui.add_space(4.0);
            let width = ui.available_width();
            controls::text_field(ui, "Filter classes", class_filter, "Filter classes", width);
            ui.add_space(4.0);
        } else {
            class_filter.clear();
        }
        let wanted = class_filter.to_lowercase();
        let mut n_rows = 0;
        for (index, name) in names.iter().enumerate().filter(|(_, name)| name.to_lowercase().contains(&wanted)) {
            n_rows += 1;
            let class = ClassId(index as u32);
            let is_selected = filter.class == Some(class);
            let count = listing.n_class_labels.get(index).copied().unwrap_or(0);
            let tooltip = "Show only images with a label of this class";
            let row = CountRow { name, count, color: Some(theme::class_color(index)), is_selected, tooltip };
            if row.ui(ui).clicked() {
                filter.class = if is_selected { None } else { Some(class) };
                filter.only_background = false;
            }
        }
        if n_rows == 0 {
            controls::note(ui, if names.is_empty() { "The dataset names no classes" } else { "No class has this in its name" });
        }
        if !listing.dataset.notes.is_empty() {
            ui.add_space(12.0);
            controls::section(ui, "Notes on data.yaml");
            ui.add_space(2.0);
            for text in &listing.dataset.notes {
                controls::note(ui, text);
                ui.add_space(2.0);
            }
        }
    }

    fn bar_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let palette = palette(ui);
        let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(12, 8));
        Panel::top("data bar").frame(frame).exact_size(45.0).show(ui, |ui| {
            ui.horizontal_centered(|ui| {
                let mut shows_one = self.shows_one;
                let choices = [(false, "Grid", "All images as thumbnails (G)"), (true, "Image", "One image with its labels (G)")];
                if controls::segmented(ui, &mut shows_one, &choices) {
                    self.toggle_grid();
                }
                controls::text_field(ui, "Filter by file name", &mut self.filter.name, "Filter by file name", 190.0);
                let shown = listing.images.len();
                let all = listing.dataset.images.len();
                let text = if shown == all {
                    counted(all, "image")
                } else {
                    format!("{} of {}", controls::thousands(shown), counted(all, "image"))
                };
                controls::weak(ui, text);
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    if self.shows_one {
                        image_controls_ui(ui, view, self.position, shown);
                    } else {
                        let slider = Slider::new(&mut self.grid.cell_width, 96.0..=320.0).show_value(false);
                        controls::slider(ui, slider, "Thumbnail size", "Size of the thumbnails", 90.0);
                        controls::weak(ui, "Size");
                    }
                });
            });
        });
    }

    fn grid_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let selected = Some(self.position);
        let hides_boxes = view.hides_boxes;
        let clicked = Frame::new()
            .inner_margin(Margin { left: 12, right: 4, top: 10, bottom: 0 })
            .show(ui, |ui| {
                self.grid.ui(ui, view.textures, listing.images.len(), selected, |index| {
                    let image = listing.images[index];
                    let boxes = listing.labels.get(image).map(|labels| {
                        labels
                            .iter()
                            .filter(|_| !hides_boxes)
                            .map(|label| (label.bbox, theme::class_color(label.class.0 as usize)))
                            .collect()
                    });
                    Cell { path: &listing.dataset.images[image].path, boxes }
                })
            })
            .inner;
        if let Some(index) = clicked {
            self.select(index);
            self.shows_one = true;
        }
    }

    fn image_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing, image: usize) {
        let labels = view.session.labels(image);
        let boxes: Vec<CanvasBox<'_>> = if view.hides_boxes {
            Vec::new()
        } else {
            labels
                .iter()
                .enumerate()
                .map(|(index, label)| label_box(&listing.dataset.names, label, self.selected_label == Some(index)))
                .collect()
        };
        let done = self.canvas.ui(ui, view.textures, &listing.dataset.images[image].path, &boxes);
        if done.clicked.is_some() || done.clicked_empty {
            self.selected_label = done.clicked;
        }
        // The neighbours are decoded ahead, so that the next image is there at once.
        for neighbour in [self.position + 1, self.position.wrapping_sub(1)] {
            if let Some(&image) = listing.images.get(neighbour) {
                view.textures.prefetch(&listing.dataset.images[image].path);
            }
        }
    }

    fn labels_ui(&mut self, ui: &mut Ui, session: &Session, image: usize) {
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
                let is_selected = self.selected_label == Some(index);
                if label_row_ui(ui, name, class, label, is_selected).clicked() {
                    self.selected_label = if is_selected { None } else { Some(index) };
                }
            }
        });
    }
}

impl Listing {
    fn new(open: &OpenDataset, filter: &Filter) -> Self {
        let OpenDataset { dataset, labels } = open;
        let mut n_splits = [0; 3];
        let mut n_class_labels = vec![0; dataset.names.len()];
        let (mut n_background, mut n_labels) = (0, 0);
        let name_part = filter.name.to_lowercase();
        let mut images = Vec::new();
        for (index, image) in dataset.images.iter().enumerate() {
            if let Some(position) = Split::ALL.iter().position(|split| *split == image.split) {
                n_splits[position] += 1;
            }
            let of_image = labels.get(index).map(Vec::as_slice);
            for label in of_image.into_iter().flatten() {
                n_labels += 1;
                if let Some(count) = n_class_labels.get_mut(label.class.0 as usize) {
                    *count += 1;
                }
            }
            let is_background = of_image.is_some_and(<[Label]>::is_empty);
            n_background += usize::from(is_background);
            let has_class = |class| of_image.is_some_and(|labels| labels.iter().any(|label| label.class == class));
            let passes = filter.split.is_none_or(|split| image.split == split)
                && filter.class.is_none_or(has_class)
                && (!filter.only_background || is_background)
                && (name_part.is_empty()
                    || image.path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains(&name_part)));
            if passes {
                images.push(index);
            }
        }
        let (dataset, labels) = (dataset.clone(), labels.clone());
        Self { dataset, labels, filter: filter.clone(), n_splits, n_class_labels, n_background, n_labels, images }
    }
}

/// A label as the canvas draws it.
pub fn label_box<'a>(names: &'a [String], label: &Label, is_selected: bool) -> CanvasBox<'a> {
    let class = label.class.0 as usize;
    let tag = names.get(class).map_or("?", String::as_str).into();
    CanvasBox { bbox: label.bbox, color: theme::class_color(class), tag, outline: Outline::Solid, is_selected }
}

/// Previous, position, next, and the zoom; drawn from the right.
fn image_controls_ui(ui: &mut Ui, view: &mut View<'_>, position: usize, n_images: usize) {
    let mut button = |ui: &mut Ui, action: Action, text: &str, reason: Option<&str>| {
        let tooltip = action.tooltip(ui.ctx());
        let response = ui.add_enabled(reason.is_none(), egui::Button::new(text)).on_hover_text(tooltip);
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, reason.is_none(), action.title()));
        if response.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
            view.out.actions.push(action);
        }
    };
    button(ui, Action::ZoomActual, "100 %", None);
    button(ui, Action::ZoomFit, "Fit", None);
    ui.separator();
    button(ui, Action::NextImage, "›", (position + 1 >= n_images).then_some("This is the last image"));
    controls::weak(ui, format!("{} / {}", controls::thousands(position + 1), controls::thousands(n_images)));
    button(ui, Action::PreviousImage, "‹", (position == 0).then_some("This is the first image"));
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

fn no_images_ui(ui: &mut Ui, listing: &Listing, filter: &mut Filter) {
    if listing.dataset.images.is_empty() {
        controls::empty_state(ui, "No images", "The splits of this dataset hold no picture files", |_| ());
        return;
    }
    controls::empty_state(ui, "No image passes the filter", "Choose another split or class, or another part of a file name", |ui| {
        if ui.button("Clear the filter").clicked() {
            *filter = Filter::default();
        }
    });
}

impl DataPanel {
    /// Labels of the whole dataset, once they are read.
    pub fn n_labels(&self) -> Option<usize> {
        self.listing.as_ref().filter(|listing| !listing.labels.is_empty()).map(|listing| listing.n_labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ImageEntry;
    use crate::dataset::open::Format;
    use crate::geom::Xywhn;

    fn open() -> OpenDataset {
        let image = |name: &str, split| ImageEntry { path: name.into(), label_path: "x.txt".into(), split };
        let images = vec![image("a.jpg", Split::Train), image("b.jpg", Split::Train), image("c.jpg", Split::Val)];
        let label = |class| Label { class: ClassId(class), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.1 } };
        let names = vec!["scratch".to_owned(), "dent".to_owned()];
        let dataset = Dataset {
            root: "/".into(),
            source: "/data.yaml".into(),
            format: Format::Yolo,
            names,
            images,
            notes: vec![],
            n_keypoint_fields: None,
            merged: None,
        };
        OpenDataset { dataset: Arc::new(dataset), labels: Arc::new(vec![vec![label(0), label(1)], vec![], vec![label(1)]]) }
    }

    fn images(filter: Filter) -> Vec<usize> {
        Listing::new(&open(), &filter).images
    }

    #[test]
    fn filters_narrow_the_images_together() {
        assert_eq!(images(Filter::default()), [0, 1, 2]);
        assert_eq!(images(Filter { split: Some(Split::Train), ..Filter::default() }), [0, 1]);
        assert_eq!(images(Filter { class: Some(ClassId(1)), ..Filter::default() }), [0, 2]);
        assert_eq!(images(Filter { class: Some(ClassId(1)), split: Some(Split::Val), ..Filter::default() }), [2]);
        assert_eq!(images(Filter { only_background: true, ..Filter::default() }), [1]);
        assert_eq!(images(Filter { name: "C.J".into(), ..Filter::default() }), [2]);
    }

    #[test]
    fn counts_cover_the_whole_dataset_whatever_the_filter() {
        let listing = Listing::new(&open(), &Filter { name: "nothing".into(), ..Filter::default() });
        assert_eq!((listing.n_splits, listing.n_background, listing.n_labels), ([2, 1, 0], 1, 3));
        assert_eq!(listing.n_class_labels, [1, 2]);
    }
}
