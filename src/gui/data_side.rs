//! The left side of the Data workspace: splits, review states, classes and tags with their counts.
//!
//! A row is a shortcut: it writes its term into the query line or takes it out. With Ctrl a class is asked for beside the
//! others instead of in their place.

use egui::Ui;

use super::controls::{self, CountRow};
use super::listing::Listing;
use super::theme;
use crate::dataset::Split;
use crate::dataset::query::{ImageMeasure, Key, line};

/// What the side remembers.
#[derive(Clone, Debug, Default)]
pub struct DataSide {
    class_filter: String,
}

impl DataSide {
    /// Draws the rows; a click changes the query.
    pub fn ui(&mut self, ui: &mut Ui, listing: &Listing, query: &mut String) {
        ui.spacing_mut().item_spacing.y = 2.0;
        let totals = &listing.totals;
        controls::section(ui, "Images");
        let n_images = listing.dataset.images.len();
        let is_all = query.trim().is_empty();
        let tooltip = "Every image of the dataset: clears the query";
        if (CountRow { name: "All", count: n_images, color: None, is_selected: is_all, tooltip }).ui(ui).clicked() {
            query.clear();
        }
        for (split, &count) in Split::ALL.into_iter().zip(&totals.n_splits) {
            if count > 0 {
                let tooltip = "Only images of this split";
                choice_ui(ui, query, Key::Split, &line::term(Key::Split, split.name()), split.name(), count, tooltip);
            }
        }
        let tooltip = "Images without a label: the detector learns from them what is nothing";
        choice_ui(ui, query, Key::Image(ImageMeasure::Boxes), "boxes:0", "Background", totals.n_background, tooltip);

        ui.add_space(12.0);
        controls::section(ui, "Review");
        let [n_unreviewed, n_reviewed, n_empty] = totals.n_reviews;
        let rows = [
            ("no", "Unreviewed", n_unreviewed, "Nobody has looked at these labels yet"),
            ("yes", "Reviewed", n_reviewed + n_empty, "A person looked at the labels, or said that there is nothing to label"),
            ("empty", "Empty", n_empty, "Without boxes on purpose"),
        ];
        for (word, name, count, tooltip) in rows {
            choice_ui(ui, query, Key::Reviewed, &line::term(Key::Reviewed, word), name, count, tooltip);
        }
        if listing.has_report() {
            let tooltip = "The last check found something here";
            choice_ui(ui, query, Key::Has, "has:findings", "With findings", totals.n_with_findings, tooltip);
        }

        ui.add_space(12.0);
        self.classes_ui(ui, listing, query);
        if !totals.n_tags.is_empty() {
            ui.add_space(12.0);
            controls::section(ui, "Tags");
            for (tag, &count) in &totals.n_tags {
                choice_ui(ui, query, Key::Tag, &line::term(Key::Tag, tag), tag, count, "Only images with this tag");
            }
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

    fn classes_ui(&mut self, ui: &mut Ui, listing: &Listing, query: &mut String) {
        controls::section(ui, "Classes");
        let names = &listing.dataset.names;
        if names.len() > 8 {
            ui.add_space(4.0);
            let width = ui.available_width();
            controls::text_field(ui, "Filter classes", &mut self.class_filter, "Filter classes", width);
            ui.add_space(4.0);
        } else {
            self.class_filter.clear();
        }
        let wanted = self.class_filter.to_lowercase();
        let mut n_rows = 0;
        for (index, name) in names.iter().enumerate().filter(|(_, name)| name.to_lowercase().contains(&wanted)) {
            n_rows += 1;
            let term = line::term(Key::Class, name);
            let count = listing.totals.n_class_labels.get(index).copied().unwrap_or(0);
            let is_selected = line::has_term(query, &term);
            let tooltip = "Only images with a label of this class; with Ctrl, beside the classes asked for already";
            let color = Some(theme::class_color(index));
            if (CountRow { name, count, color, is_selected, tooltip }).ui(ui).clicked() {
                *query =
                    if ui.input(|input| input.modifiers.command) { line::toggled(query, &term) } else { chosen(query, Key::Class, &term) };
            }
        }
        if n_rows == 0 {
            controls::note(ui, if names.is_empty() { "The dataset names no classes" } else { "No class has this in its name" });
        }
    }
}

/// The line with this term instead of others of its key; without it where it was there.
pub fn chosen(query: &str, key: Key, term: &str) -> String {
    line::with_only(query, key, if line::has_term(query, term) { "" } else { term })
}

fn choice_ui(ui: &mut Ui, query: &mut String, key: Key, term: &str, name: &str, count: usize, tooltip: &str) {
    let is_selected = line::has_term(query, term);
    if (CountRow { name, count, color: None, is_selected, tooltip }).ui(ui).clicked() {
        *query = chosen(query, key, term);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_asks_for_its_term_alone_and_takes_it_back() {
        assert_eq!(chosen("class:dent split:val", Key::Split, "split:train"), "class:dent split:train");
        assert_eq!(chosen("class:dent split:val", Key::Split, "split:val"), "class:dent");
    }
}
