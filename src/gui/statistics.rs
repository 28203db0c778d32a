//! How is the dataset distributed? Images and boxes by split and class, and charts of size, shape, number and place of boxes.
//!
//! In:  counts that the session made. Out: a command that counts; a query to which a bar or a cell filters.
//!
//! Counting is asked for when the panel is open and something that it counts has changed. A click writes the term of the bar
//! into the query and, where it is there already, takes it out.

use std::sync::Arc;

use egui::{Align, CursorIcon, Layout, Rect, RichText, Role, ScrollArea, Sense, Spinner, Ui, WidgetInfo, pos2, vec2};

use super::app::View;
use super::charts::{self, Bar};
use super::controls::{self, thousands};
use super::data_side::chosen;
use super::listing::{Listing, TRAINING_SIDE};
use super::theme::palette;
use crate::dataset::distribution::{self, Counted, Distributions, Histogram, MAP_SIDE};
use crate::dataset::query::{BoxMeasure, ImageMeasure, Key, line};
use crate::dataset::{ClassId, Split};
use crate::session::Command;
use crate::session::DatasetCounts;
use crate::session::JobKind;
use crate::session::OpenDataset;

/// Which images are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    /// Those that pass the query.
    Shown,
}

/// What the panel remembers.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    pub is_shown: bool,
    scope: Scope,
    /// The listed images as they were counted last, with the version of the listing.
    shown: Option<(u64, Arc<[u32]>)>,
    by_images: bool,
}

impl Statistics {
    /// For another dataset: as open as before.
    pub fn reset(&mut self) {
        *self = Self { is_shown: self.is_shown, ..Self::default() };
    }

    /// Draws the panel; a click changes the query.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing, query: &mut String) {
        let Some(open) = &view.session.dataset else { return };
        let images = self.images(listing);
        let counts = view.session.counts.as_deref().filter(|counts| Arc::ptr_eq(&counts.of.dataset, &open.dataset));
        let is_current = counts.is_some_and(|counts| is_of(&counts.of, open, images.as_ref()));
        if !is_current && listing.has_labels() && !view.session.is_running(JobKind::Count) {
            view.ask(Command::Count { images, training_side: TRAINING_SIDE });
        }
        controls::section_with(ui, "Statistics", |ui| {
            if controls::quiet_button(ui, "Close", "Close the statistics").clicked() {
                self.is_shown = false;
            }
            let choices = [
                (Scope::All, "All", "Count every image of the dataset"),
                (Scope::Shown, "Filtered", "Count the images that pass the query"),
            ];
            controls::segmented(ui, &mut self.scope, &choices);
            if !is_current && counts.is_some() {
                ui.add(Spinner::new().size(12.0));
            }
        });
        let Some(counts) = counts else {
            let text = if listing.has_labels() { "Boxes are being counted" } else { "Labels are being read" };
            controls::empty_state(ui, "No figures yet", text, |_| ());
            return;
        };
        ScrollArea::vertical().id_salt("statistics").auto_shrink(false).show(ui, |ui| {
            ui.set_width(ui.available_width() - 10.0);
            self.counts_ui(ui, listing, counts, query);
        });
    }

    fn counts_ui(&mut self, ui: &mut Ui, listing: &Listing, counts: &DatasetCounts, query: &mut String) {
        let found = &counts.distributions;
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 22.0;
            controls::figure(ui, &thousands(found.n_images), "images");
            controls::figure(ui, &thousands(found.n_boxes), "boxes");
            let mean = found.n_boxes as f64 / (found.n_images.max(1)) as f64;
            controls::figure(ui, &format!("{mean:.2}"), "boxes an image");
        });
        ui.add_space(8.0);
        splits_ui(ui, found, query);
        ui.add_space(10.0);
        self.classes_ui(ui, listing, found, query);
        let side = format!("Size of boxes in pixels, images fitted to {TRAINING_SIDE}");
        let charts = [
            (side.as_str(), "boxes", Key::Box(BoxMeasure::Side), &found.side),
            ("Width over height", "boxes", Key::Box(BoxMeasure::Aspect), &found.aspect),
            ("Part of the image's area", "boxes", Key::Box(BoxMeasure::Area), &found.area),
            ("Boxes an image", "images", Key::Image(ImageMeasure::Boxes), &found.boxes),
        ];
        for (title, noun, key, histogram) in charts {
            ui.add_space(12.0);
            histogram_ui(ui, title, noun, key, histogram, query);
        }
        ui.add_space(12.0);
        map_ui(ui, found, query);
        ui.add_space(12.0);
    }

    fn classes_ui(&mut self, ui: &mut Ui, listing: &Listing, found: &Distributions, query: &mut String) {
        controls::section_with(ui, "Classes", |ui| {
            let choices = [(false, "Boxes", "Count boxes of each class"), (true, "Images", "Count images with each class")];
            controls::segmented(ui, &mut self.by_images, &choices);
        });
        let count = |class: usize| if self.by_images { found.classes[class].images() } else { found.classes[class].boxes() };
        let most = (0..found.classes.len()).map(count).max().unwrap_or(0);
        ui.spacing_mut().item_spacing.y = 0.0;
        for (class, of_class) in found.classes.iter().enumerate() {
            let term = distribution::class_query(&listing.dataset, ClassId(class as u32));
            let by_split: Vec<String> = Split::ALL
                .into_iter()
                .filter(|split| of_class.n_images[*split as usize] > 0)
                .map(|split| {
                    format!("{}: {} boxes in {} images", split.name(), of_class.n_boxes[split as usize], of_class.n_images[split as usize])
                })
                .collect();
            let bar = Bar { count: count(class), most, is_chosen: line::has_term(query, &term) };
            let name = listing.dataset.names.get(class).map_or("?", String::as_str);
            let tooltip =
                format!("{name}\n{}\n\nClick to filter", if by_split.is_empty() { "no boxes".to_owned() } else { by_split.join("\n") });
            if charts::row_ui(ui, name, class, bar).on_hover_text(tooltip).clicked() {
                *query = chosen(query, Key::Class, &term);
            }
        }
        ui.spacing_mut().item_spacing.y = 8.0;
    }

    /// The images to count; `None`: all.
    fn images(&mut self, listing: &Listing) -> Option<Arc<[u32]>> {
        if self.scope == Scope::All {
            self.shown = None;
            return None;
        }
        if self.shown.as_ref().is_none_or(|(version, _)| *version != listing.version) {
            self.shown = Some((listing.version, listing.images().into()));
        }
        self.shown.as_ref().map(|(_, images)| images.clone())
    }
}

/// Whether these counts are of what is open and asked for.
fn is_of(counted: &Counted, open: &OpenDataset, images: Option<&Arc<[u32]>>) -> bool {
    let is_same_choice = match (&counted.images, images) {
        (None, None) => true,
        (Some(counted), Some(images)) => Arc::ptr_eq(counted, images),
        _ => false,
    };
    is_same_choice && Arc::ptr_eq(&counted.labels, &open.labels) && Arc::ptr_eq(&counted.facts, &open.facts)
}

/// A table of the splits with a bar of their share of the images.
fn splits_ui(ui: &mut Ui, found: &Distributions, query: &mut String) {
    let palette = palette(ui);
    controls::section(ui, "Splits");
    let font = egui::TextStyle::Small.resolve(ui.style());
    let width = ui.available_width();
    let columns = [width * 0.46, width * 0.73, width - 4.0];
    ui.spacing_mut().item_spacing.y = 0.0;
    let (head, _) = ui.allocate_exact_size(vec2(width, 20.0), Sense::hover());
    for (right, text) in columns.iter().zip(["images", "no boxes", "boxes"]) {
        ui.painter().text(pos2(head.left() + right, head.center().y), egui::Align2::RIGHT_CENTER, text, font.clone(), palette.faint);
    }
    for (split, count) in Split::ALL.into_iter().zip(&found.splits).filter(|(_, count)| count.n_images > 0) {
        let term = distribution::split_query(split);
        let is_chosen = line::has_term(query, &term);
        let (rect, response) = ui.allocate_exact_size(vec2(width, 26.0), Sense::click());
        let name = format!("bar {} of splits, {} images", split.name(), count.n_images);
        response.widget_info(|| WidgetInfo::selected(Role::Button, true, is_chosen, &name));
        controls::row_background(ui, rect, &response, is_chosen);
        let body = egui::TextStyle::Body.resolve(ui.style());
        ui.painter().text(pos2(rect.left() + 6.0, rect.center().y), egui::Align2::LEFT_CENTER, split.name(), body, palette.text);
        for (right, number) in columns.iter().zip([count.n_images, count.n_background, count.n_boxes]) {
            let place = pos2(rect.left() + right, rect.center().y);
            ui.painter().text(place, egui::Align2::RIGHT_CENTER, thousands(number), font.clone(), palette.text);
        }
        let share = count.n_images as f32 / found.n_images.max(1) as f32;
        let bar = Rect::from_min_size(rect.left_bottom() + vec2(6.0, -3.0), vec2((width - 12.0) * share, 2.0));
        ui.painter().rect_filled(bar, 1.0, palette.accent);
        let tooltip = format!("{:.1} % of the images\n\nClick to filter", share * 100.0);
        if response.on_hover_cursor(CursorIcon::PointingHand).on_hover_text(tooltip).clicked() {
            *query = chosen(query, Key::Split, &term);
        }
    }
    ui.spacing_mut().item_spacing.y = 8.0;
}

fn histogram_ui(ui: &mut Ui, title: &str, noun: &str, key: Key, histogram: &Histogram, query: &mut String) {
    controls::section(ui, title);
    let most = histogram.counts.iter().copied().max().unwrap_or(0);
    let total: usize = histogram.counts.iter().sum();
    let bars: Vec<(Bar, String)> = (0..histogram.counts.len())
        .map(|bar| {
            let is_chosen = line::has_term(query, &histogram.query(bar));
            (Bar { count: histogram.counts[bar], most, is_chosen }, histogram.label(bar))
        })
        .collect();
    let short = title.split(" in ").next().unwrap_or(title).to_lowercase();
    let clicked = charts::columns_ui(ui, &short, noun, total, &bars);
    if let Some(bar) = clicked {
        *query = chosen(query, key, &histogram.query(bar));
    }
}

/// Where the centres of boxes are in their images.
fn map_ui(ui: &mut Ui, found: &Distributions, query: &mut String) {
    ui.with_layout(Layout::top_down(Align::Min), |ui| {
        controls::section(ui, "Where boxes are");
        let is_chosen = |cell: usize| {
            let terms = found.centres.query(cell % MAP_SIDE, cell / MAP_SIDE);
            terms.split(' ').all(|term| line::has_term(query, term))
        };
        let chosen_cell = if query.contains("x:") { (0..found.centres.counts.len()).find(|&cell| is_chosen(cell)) } else { None };
        let clicked = charts::map_ui(ui, "boxes by place", MAP_SIDE, &found.centres.counts, chosen_cell);
        if let Some(cell) = clicked {
            let without = line::with_only(&line::with_only(query, Key::Box(BoxMeasure::X), ""), Key::Box(BoxMeasure::Y), "");
            *query = if chosen_cell == Some(cell) {
                without
            } else {
                let terms = found.centres.query(cell % MAP_SIDE, cell / MAP_SIDE);
                terms.split(' ').fold(without, |query, term| line::with_term(&query, term))
            };
        }
        let note = RichText::new("Centres of boxes within their images").small().color(palette(ui).weak);
        ui.label(note);
    });
}
