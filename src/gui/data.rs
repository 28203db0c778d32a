//! The workspace *Data*: which images are there, and what is labelled on them?
//!
//! Left the splits and classes with their counts, which filter; in the middle the grid or one image; right its labels.
//! Lists over the whole dataset are worked out once after each change, never in a frame that changes nothing.

use egui::{Align, Frame, Layout, Margin, Panel, ScrollArea, Slider, Ui};

use super::action::{Action, KeyPlace};
use super::app::View;
use super::browser::Browser;
use super::controls::{self, CountRow, counted};
use super::editor::{Editor, Place};
use super::image_item::ImageItem;
use super::listing::{Filter, Listing};
use super::prelabel_form::{Choice, PrelabelForm};
use super::proposals::ProposalPanel;
use super::theme::{self, palette};
use super::viewport::Zoom;
use crate::dataset::{ClassId, Split};
use crate::session::Command;
use crate::session::OpenDataset;
use crate::session::Session;

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct DataPanel {
    filter: Filter,
    class_filter: String,
    listing: Option<Listing>,
    browser: Browser,
    shows_one: bool,
    editor: Editor,
    proposals: ProposalPanel,
    prelabel: Option<PrelabelForm>,
}

impl DataPanel {
    /// Draws the open dataset.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let Some(open) = &view.session.dataset else { return };
        self.update_listing(view.session, open);
        let Some(listing) = self.listing.take() else { return };
        let side = Frame::new().fill(palette(ui).panel).inner_margin(Margin { left: 10, right: 8, top: 8, bottom: 0 });
        Panel::left("data filters").frame(side).default_size(228.0).min_size(180.0).show(ui, |ui| {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| self.filters_ui(ui, &listing));
        });
        let image = self.browser.current();
        if self.shows_one
            && let Some(image) = image
        {
            Panel::right("data labels").frame(side).default_size(236.0).min_size(180.0).show(ui, |ui| {
                self.proposals.side_ui(ui, view, image);
                self.editor.labels_ui(ui, view, image);
            });
        }
        egui::CentralPanel::default().frame(Frame::new().fill(palette(ui).backdrop)).show(ui, |ui| {
            self.bar_ui(ui, view, &listing);
            match image {
                None => no_images_ui(ui, &listing, &mut self.filter),
                Some(image) if self.shows_one => {
                    self.editor.image_ui(ui, view, image);
                    if let Some(drawn) = self.editor.drawn().filter(|_| !view.hides_boxes) {
                        self.proposals.paint(ui, &drawn, view.session, image);
                    }
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
            self.update_listing(session, open);
        }
    }

    /// Goes to another image of the listing.
    pub fn step(&mut self, forward: bool) {
        if let Some(listing) = &self.listing {
            self.browser.turn(&listing.images, forward);
        }
    }

    /// Shows one image of the dataset.
    pub fn show_image(&mut self, session: &Session, image: usize) {
        let Some(open) = &session.dataset else { return };
        self.filter = Filter::default();
        self.update_listing(session, open);
        if let Some(listing) = &self.listing {
            self.browser.go_to(&listing.images, image);
        }
        self.shows_one = true;
    }

    /// Shows the images with a label of a class.
    pub fn show_class(&mut self, class: ClassId) {
        self.filter = Filter { class: Some(class), ..Filter::default() };
        self.shows_one = false;
    }

    pub fn toggle_grid(&mut self) {
        self.shows_one = !self.shows_one;
        self.browser.show_current();
    }

    /// Ends what the editor is at; or goes back to the grid, if one image is shown.
    pub fn leave_image(&mut self) {
        if self.shows_one && !self.editor.cancel() {
            self.toggle_grid();
        }
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.editor.zoom(zoom);
    }

    /// Whether one image with its boxes is shown.
    pub fn shows_editor(&self) -> bool {
        self.shows_one && self.browser.current().is_some()
    }

    /// Takes the keys that move boxes; see [`Editor::take_keys`].
    pub fn take_keys(&mut self, ctx: &egui::Context) {
        if self.shows_editor() {
            self.editor.take_keys(ctx);
        }
    }

    /// Carries out an action of the label editor; does nothing where no image is shown.
    pub fn act(&mut self, action: Action, session: &Session) -> Vec<Command> {
        match action {
            Action::Prelabel => {
                let form = self.choice().map(|choice| PrelabelForm::new(&choice));
                self.prelabel = form;
                return Vec::new();
            }
            Action::AcceptAllProposals => return self.proposals.accept_everywhere(session).into_iter().collect(),
            Action::NextUncertain => {
                if let Some(image) = self.proposals.next_uncertain(session) {
                    self.show_image(session, image);
                }
                return Vec::new();
            }
            Action::AcceptProposal
            | Action::RejectProposal
            | Action::NextProposal
            | Action::PreviousProposal
            | Action::AcceptProposals
            | Action::RejectProposals => {
                let shown = self.browser.current().filter(|_| self.shows_one);
                return shown.map(|image| self.proposals.act(action, session, image)).unwrap_or_default();
            }
            _ => {}
        }
        let Some(listing) = self.listing.as_ref().filter(|_| self.shows_one) else { return Vec::new() };
        let asked = self.editor.act(action, &Place { session, images: &listing.images, position: self.browser.position() });
        if let Some(position) = asked.position {
            self.browser.go_to(&listing.images, position);
        }
        asked.commands
    }

    fn update_listing(&mut self, session: &Session, open: &OpenDataset) {
        if self.listing.as_ref().is_none_or(|listing| !listing.is_current(open, &self.filter)) {
            let before = self.listing.take();
            if before.is_none_or(|listing| !std::sync::Arc::ptr_eq(&listing.dataset, &open.dataset)) {
                self.browser.reset();
                *self = Self { browser: std::mem::take(&mut self.browser), ..Self::default() };
            }
            let listing = Listing::new(open, &self.filter);
            self.browser.follow(&listing.images);
            self.listing = Some(listing);
        }
        if let Some(listing) = &mut self.listing {
            listing.count_findings(session);
        }
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
                let keys = Action::ToggleGrid.shortcut_text(ui.ctx()).map(|keys| format!(" ({keys})")).unwrap_or_default();
                let tooltips = ["All images as thumbnails", "One image with its labels"].map(|tooltip| format!("{tooltip}{keys}"));
                let choices = [(false, "Grid", tooltips[0].as_str()), (true, "Image", tooltips[1].as_str())];
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
                if !self.browser.selection.is_empty() {
                    controls::weak(ui, format!("{} selected", controls::thousands(self.browser.selection.len())));
                }
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    if self.shows_one {
                        image_controls_ui(ui, view, self.browser.position(), shown);
                    } else {
                        let slider = Slider::new(&mut self.browser.grid.cell_width, 96.0..=320.0).show_value(false);
                        controls::slider(ui, slider, "Thumbnail size", "Size of the thumbnails", 90.0);
                        controls::weak(ui, "Size");
                    }
                });
            });
        });
    }

    fn grid_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let Self { browser, shows_one, .. } = self;
        let (current, selection) = (browser.current(), &browser.selection);
        let open = view.session.dataset.as_ref();
        let item = |position: usize| {
            let image = listing.images[position] as usize;
            let entry = &listing.dataset.images[image];
            ImageItem {
                path: &entry.path,
                split: entry.split,
                labels: listing.labels.get(image).map(|labels| &**labels),
                mark: open.and_then(|open| open.marks.get(image)),
                n_findings: listing.n_findings.get(image).map_or(0, |&count| count as usize),
                is_current: current == Some(image),
                is_selected: selection.contains(image),
            }
        };
        let (n_images, hides_boxes) = (listing.images.len(), view.hides_boxes);
        let grid = &mut browser.grid;
        let frame = Frame::new().inner_margin(Margin { left: 12, right: 4, top: 10, bottom: 0 });
        let done = frame.show(ui, |ui| grid.ui(ui, view.textures, n_images, hides_boxes, item)).inner;
        if browser.take(&listing.images, &done) {
            *shows_one = true;
        }
    }

    /// The neighbours are decoded ahead, so that the next image is there at once.
    fn prefetch(&self, view: &mut View<'_>, listing: &Listing) {
        let position = self.browser.position();
        for neighbour in [position + 1, position.wrapping_sub(1)] {
            if let Some(&image) = listing.images.get(neighbour) {
                view.textures.prefetch(&listing.dataset.images[image as usize].path);
            }
        }
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
    /// Where keys are pressed.
    pub fn place(&self, session: &Session) -> KeyPlace {
        let has_proposals = || self.browser.current().is_some_and(|image| ProposalPanel::has_any(session, image));
        match self.shows_editor() {
            true if self.editor.has_selection() => KeyPlace::Selection,
            true if has_proposals() => KeyPlace::Proposal,
            true => KeyPlace::Editor,
            false => KeyPlace::Grid,
        }
    }

    /// Whether it is asked how to pre-label.
    pub fn has_form(&self) -> bool {
        self.prelabel.is_some()
    }

    /// Draws what is asked before pre-labelling.
    pub fn form_ui(&mut self, ui: &Ui, session: &Session) -> Option<Command> {
        let mut form = self.prelabel.take()?;
        let done = form.ui(ui, session, &self.choice()?);
        if !done.closes {
            self.prelabel = Some(form);
        }
        done.command
    }

    /// The images that are to choose from.
    fn choice(&self) -> Option<Choice<'_>> {
        let listing = self.listing.as_ref()?;
        let chosen = self.browser.selection.images().collect();
        Some(Choice { shown: self.browser.current().filter(|_| self.shows_one), chosen, listed: &listing.images })
    }

    /// Labels of the whole dataset, once they are read.
    pub fn n_labels(&self) -> Option<usize> {
        self.listing.as_ref().filter(|listing| !listing.labels.is_empty()).map(|listing| listing.n_labels)
    }
}
