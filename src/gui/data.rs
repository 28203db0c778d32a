//! The workspace *Data*: which images are there, and what is labelled on them?
//!
//! Left the splits and classes with their counts, which filter; in the middle the grid or one image; right its labels.
//! Lists over the whole dataset are worked out once after each change, never in a frame that changes nothing.

use std::sync::Arc;

use egui::{Align, Frame, Layout, Margin, Panel, ScrollArea, Slider, Ui};

use super::action::Action;
use super::app::View;
use super::canvas::Zoom;
use super::controls::{self, CountRow, counted};
use super::editor::{Editor, Place};
use super::grid::{Cell, Grid};
use super::theme::{self, palette};
use crate::dataset::{ClassId, Split};
use crate::dataset::{Dataset, Label};
use crate::session::Command;
use crate::session::LabelTable;
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
    labels: Arc<LabelTable>,
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
    editor: Editor,
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
                .show(ui, |ui| self.editor.labels_ui(ui, view.session, image));
        }
        egui::CentralPanel::default().frame(Frame::new().fill(palette(ui).backdrop)).show(ui, |ui| {
            self.bar_ui(ui, view, &listing);
            match image {
                None => no_images_ui(ui, &listing, &mut self.filter),
                Some(image) if self.shows_one => {
                    self.editor.image_ui(ui, view, image);
                    self.prefetch(view, &listing);
                }
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
        self.editor.zoom(zoom);
    }

    /// Whether one image with its boxes is shown.
    pub fn shows_editor(&self) -> bool {
        self.shows_one && self.listing.as_ref().is_some_and(|listing| self.position < listing.images.len())
    }

    /// Carries out an action of the label editor; does nothing where no image is shown.
    pub fn act(&mut self, action: Action, session: &Session) -> Vec<Command> {
        let Some(listing) = self.listing.as_ref().filter(|_| self.shows_one) else { return Vec::new() };
        let asked = self.editor.act(action, &Place { session, images: &listing.images, position: self.position });
        if let Some(position) = asked.position {
            self.select(position);
        }
        asked.commands
    }

    fn select(&mut self, position: usize) {
        self.position = position;
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

    /// The neighbours are decoded ahead, so that the next image is there at once.
    fn prefetch(&self, view: &mut View<'_>, listing: &Listing) {
        for neighbour in [self.position + 1, self.position.wrapping_sub(1)] {
            if let Some(&image) = listing.images.get(neighbour) {
                view.textures.prefetch(&listing.dataset.images[image].path);
            }
        }
    }
}

impl Listing {
    fn new(open: &OpenDataset, filter: &Filter) -> Self {
        let OpenDataset { dataset, labels, .. } = open;
        let mut n_splits = [0; 3];
        let mut n_class_labels = vec![0; dataset.names.len()];
        let (mut n_background, mut n_labels) = (0, 0);
        let name_part = filter.name.to_lowercase();
        let mut images = Vec::new();
        for (index, image) in dataset.images.iter().enumerate() {
            if let Some(position) = Split::ALL.iter().position(|split| *split == image.split) {
                n_splits[position] += 1;
            }
            let of_image = labels.get(index).map(|labels| &**labels);
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
        let labels = [vec![label(0), label(1)], vec![], vec![label(1)]].map(Into::into).to_vec();
        OpenDataset { labels: Arc::new(labels), ..OpenDataset::new(Arc::new(dataset)) }
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
