//! The workspace *Data*: which images are there, and what is labelled on them?
//!
//! Left the splits, review states and classes with their counts; in the middle the query line over the grid, the list or one
//! image; right its labels, or the statistics. Lists over the whole dataset are worked out once after each change, never in a
//! frame that changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use egui::{Align, ComboBox, Frame, Layout, Margin, Panel, ScrollArea, Slider, Ui};

use super::action::{Action, KeyPlace};
use super::app::View;
use super::browser::{self, Browser, Step};
use super::controls::{self, counted};
use super::data_side::DataSide;
use super::editor::{Editor, Place};
use super::image_item::ImageItem;
use super::listing::{Followed, Listing};
use super::prelabel_form::{Choice, PrelabelForm};
use super::proposals::ProposalPanel;
use super::query_line::QueryLine;
use super::selection_bar::{self, TagDone, TagLine};
use super::selection_edits::{self, MarkChange, Subject};
use super::statistics::Statistics;
use super::theme::palette;
use super::viewport::Zoom;
use crate::dataset::edit::Review;
use crate::dataset::query::{Key, Sort, SortBy, line};
use crate::dataset::{ClassId, Split};
use crate::session::Command;
use crate::session::JobKind;
use crate::session::OpenDataset;
use crate::session::Session;

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct DataPanel {
    query: QueryLine,
    sort: Sort,
    listing: Option<Listing>,
    browser: Browser,
    side: DataSide,
    statistics: Statistics,
    tag_line: Option<TagQuestion>,
    /// Chosen images that are not listed, with the state of both.
    hidden: ((u64, u64), usize),
    shows_one: bool,
    editor: Editor,
    proposals: ProposalPanel,
    prelabel: Option<PrelabelForm>,
}

/// Which tag is put on these images, or taken off?
struct TagQuestion {
    line: TagLine,
    images: Vec<usize>,
    /// That are offered.
    tags: BTreeSet<String>,
}

/// What the middle shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Grid,
    List,
    Image,
}

impl DataPanel {
    /// Draws the open dataset.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let Some(open) = &view.session.dataset else { return };
        self.update_listing(view.session, open);
        let Some(listing) = self.listing.take() else { return };
        let (line, sort) = (self.query.asked().to_owned(), self.sort);
        let side = Frame::new().fill(palette(ui).panel).inner_margin(Margin { left: 10, right: 8, top: 8, bottom: 0 });
        Panel::left("data filters").frame(side).default_size(228.0).min_size(180.0).show(ui, |ui| {
            let scroll = ScrollArea::vertical().auto_shrink(false);
            scroll.show(ui, |ui| {
                self.side.ui(ui, &listing, &mut self.query.text);
                ui.add_space(14.0);
                ui.spacing_mut().item_spacing.y = 6.0;
                ui.horizontal_wrapped(|ui| {
                    for action in [Action::EditClasses, Action::SplitDataset, Action::Prelabel] {
                        if controls::action_button(ui, action, action.unavailable(view.session)) {
                            view.act(action);
                        }
                    }
                });
            });
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
            self.query.error_ui(ui, listing.error.as_ref());
            match image {
                Some(image) if self.shows_one => {
                    self.editor.image_ui(ui, view, image);
                    if let Some(drawn) = self.editor.drawn().filter(|_| !view.hides_boxes) {
                        self.proposals.paint(ui, &drawn, view.session, image);
                    }
                    self.prefetch(view, &listing);
                }
                _ => self.browser_ui(ui, view, &listing, side),
            }
        });
        self.tag_line_ui(ui, view, &listing);
        self.listing = Some(listing);
        if self.query.asked() != line || self.sort != sort {
            // The listing follows before the next drawing.
            ui.ctx().request_repaint();
        }
    }

    /// Takes note of what is open, also while another workspace is shown.
    pub fn follow(&mut self, session: &Session) {
        if let Some(open) = &session.dataset {
            self.update_listing(session, open);
        }
    }

    /// Goes to another image of the listing.
    pub fn step(&mut self, forward: bool) {
        let Some(listing) = &self.listing else { return };
        if self.shows_one {
            self.browser.turn(listing.images(), forward);
        } else {
            self.browser.step(listing.images(), if forward { Step::Next } else { Step::Previous }, false);
        }
    }

    /// Shows one image of the dataset.
    pub fn show_image(&mut self, session: &Session, image: usize) {
        let Some(open) = &session.dataset else { return };
        if image >= open.dataset.images.len() {
            return;
        }
        if !self.listing.as_ref().is_some_and(|listing| listing.images().contains(&(image as u32))) {
            self.query.text.clear();
        }
        self.update_listing(session, open);
        if let Some(listing) = &self.listing {
            self.browser.turn_to(listing.images(), image);
        }
        self.shows_one = true;
    }

    /// Shows the images with a label of a class.
    pub fn show_class(&mut self, class: ClassId) {
        let name = self.listing.as_ref().and_then(|listing| listing.dataset.names.get(class.0 as usize));
        if let Some(name) = name {
            self.query.text = line::term(Key::Class, name);
            self.shows_one = false;
        }
    }

    pub fn toggle_grid(&mut self) {
        self.shows_one = !self.shows_one;
        self.browser.show_current();
    }

    /// Ends what the editor is at; or goes back to the grid, if one image is shown; in the grid nothing is chosen any more.
    pub fn leave_image(&mut self) {
        if !self.shows_one {
            self.browser.selection.clear();
        } else if !self.editor.cancel() {
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

    /// Ends what another action would forget; see [`Editor::settle`].
    pub fn settle(&mut self, action: Action, session: &Session) -> Vec<Command> {
        self.editor.settle(action, session)
    }

    /// Carries out an action of browsing, or one of the label editor where it is shown.
    pub fn act(&mut self, ui: &Ui, action: Action, session: &Session) -> Vec<Command> {
        match action {
            Action::Prelabel => {
                let form = self.choice().map(|choice| PrelabelForm::new(&choice));
                self.prelabel = form;
                Vec::new()
            }
            Action::AcceptAllProposals => self.proposals.accept_everywhere(session).into_iter().collect(),
            Action::BringProposalsBack => {
                let rejected = session.proposals.last_rejected();
                let images = session.dataset.as_ref().map(|open| &open.dataset.images);
                let place = images.and_then(|images| images.iter().position(|image| Some(image.path.as_path()) == rejected));
                if let Some(image) = place {
                    self.show_image(session, image);
                }
                vec![Command::BringProposalsBack]
            }
            Action::NextUncertain => {
                if let Some(image) = self.proposals.next_uncertain(session) {
                    self.show_image(session, image);
                }
                Vec::new()
            }
            Action::AcceptProposal
            | Action::RejectProposal
            | Action::NextProposal
            | Action::PreviousProposal
            | Action::AcceptProposals
            | Action::RejectProposals => {
                let shown = self.browser.current().filter(|_| self.shows_one);
                shown.map(|image| self.proposals.act(action, session, image)).unwrap_or_default()
            }
            _ => self.browse(ui, action, session),
        }
    }

    fn browse(&mut self, ui: &Ui, action: Action, session: &Session) -> Vec<Command> {
        let Some(listing) = &self.listing else { return Vec::new() };
        match action {
            Action::FocusQuery => self.query.focus(),
            Action::ClearQuery => self.query.text.clear(),
            Action::ToggleStatistics => self.statistics.is_shown = !self.statistics.is_shown,
            _ if self.shows_one => {
                let place = Place { session, images: listing.images(), position: self.browser.position() };
                let asked = self.editor.act(action, &place);
                if let Some(position) = asked.position {
                    self.browser.go_to(listing.images(), position);
                }
                return asked.commands;
            }
            Action::OpenImage => self.shows_one = true,
            Action::ToggleList => {
                let is_grid = self.browser.layout == browser::Layout::Grid;
                self.browser.layout = if is_grid { browser::Layout::List } else { browser::Layout::Grid };
                self.browser.show_current();
            }
            Action::SelectAllImages => self.browser.choose_all(listing.images()),
            Action::SelectNone => self.browser.selection.clear(),
            Action::InvertSelection => self.browser.selection.invert(listing.images()),
            Action::MarkReviewed => {
                let subjects = self.browser.subjects();
                let is_done = subjects.iter().all(|&image| listing.mark(image).is_some_and(|mark| mark.review == Review::Reviewed));
                let review = if is_done { Review::Unreviewed } else { Review::Reviewed };
                return mark_command(listing, &subjects, &MarkChange::Review(review));
            }
            Action::MarkUnreviewed => {
                return mark_command(listing, &self.browser.subjects(), &MarkChange::Review(Review::Unreviewed));
            }
            Action::MarkEmpty => return mark_command(listing, &self.browser.subjects(), &MarkChange::Review(Review::Empty)),
            Action::AddTag | Action::RemoveTag => {
                let (adds, images) = (action == Action::AddTag, self.browser.subjects());
                let tags = if adds {
                    listing.vocabulary().tags.clone()
                } else {
                    images.iter().filter_map(|&image| listing.mark(image)).flat_map(|mark| mark.tags.iter().cloned()).collect()
                };
                self.tag_line = Some(TagQuestion { line: TagLine::new(adds), images, tags });
            }
            Action::MoveToTrain | Action::MoveToVal | Action::MoveToTest => {
                let split = match action {
                    Action::MoveToTrain => Split::Train,
                    Action::MoveToVal => Split::Val,
                    _ => Split::Test,
                };
                let mut images = self.browser.subjects();
                images.retain(|&image| listing.dataset.images[image].split != split);
                return if images.is_empty() { Vec::new() } else { vec![Command::MoveToSplit { images, split }] };
            }
            Action::CopyPaths => {
                let paths = self.browser.subjects().into_iter().map(|image| listing.dataset.images[image].path.display().to_string());
                ui.ctx().copy_text(paths.collect::<Vec<_>>().join("\n"));
            }
            _ => {
                if let Some((step, extends)) = step_of(action) {
                    self.browser.step(listing.images(), step, extends);
                }
            }
        }
        Vec::new()
    }

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

    /// Whether something is asked above everything else: how to pre-label, or which tag.
    pub fn has_form(&self) -> bool {
        self.prelabel.is_some() || self.tag_line.is_some()
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
        Some(Choice { shown: self.browser.current().filter(|_| self.shows_one), chosen, listed: listing.images() })
    }

    /// Labels of the whole dataset, once they are read.
    pub fn n_labels(&self) -> Option<usize> {
        self.listing.as_ref().filter(|listing| listing.has_labels()).map(|listing| listing.totals.n_labels)
    }

    fn update_listing(&mut self, session: &Session, open: &OpenDataset) {
        if let Some(before) = self.listing.take_if(|listing| !Arc::ptr_eq(&listing.dataset, &open.dataset)) {
            if before.dataset.source == open.dataset.source {
                self.browser.follow_dataset(&before.dataset, &open.dataset);
                self.editor.follow_dataset(&before.dataset, &open.dataset);
                self.tag_line = None;
            } else {
                self.browser.reset();
                self.statistics.reset();
                let (browser, statistics) = (std::mem::take(&mut self.browser), std::mem::take(&mut self.statistics));
                *self = Self { browser, statistics, sort: self.sort, ..Self::default() };
            }
        }
        let listing = self.listing.get_or_insert_with(|| Listing::new(&open.dataset));
        match listing.follow(session, open, self.query.asked(), self.sort, self.browser.current()) {
            Followed::Same => {}
            Followed::Edited => self.browser.follow(listing.images()),
            Followed::Chosen => {
                self.browser.follow(listing.images());
                self.browser.show_current();
            }
        }
    }

    fn bar_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(12, 8));
        Panel::top("data bar").frame(frame).exact_size(45.0).show(ui, |ui| {
            ui.horizontal_centered(|ui| {
                self.shown_ui(ui);
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    if self.shows_one {
                        image_controls_ui(ui, view, self.browser.position(), listing.images().len());
                    } else {
                        self.layout_controls_ui(ui);
                    }
                    count_ui(ui, view.session, listing);
                    ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                        let width = ui.available_width().max(120.0);
                        self.query.ui(ui, width, listing.vocabulary(), listing.error.as_ref());
                    });
                });
            });
        });
    }

    /// Grid, list or one image.
    fn shown_ui(&mut self, ui: &mut Ui) {
        let layout = self.browser.layout;
        let before = match (self.shows_one, layout) {
            (true, _) => Shown::Image,
            (false, browser::Layout::Grid) => Shown::Grid,
            (false, browser::Layout::List) => Shown::List,
        };
        let tooltip =
            |text: &str, action: Action| action.shortcut_text(ui.ctx()).map_or_else(|| text.to_owned(), |keys| format!("{text} ({keys})"));
        let grid = tooltip("Images as thumbnails", Action::ToggleList);
        let list = tooltip("Images as rows with what is known of them", Action::ToggleList);
        let image = tooltip("One image with its labels", Action::ToggleGrid);
        let choices = [(Shown::Grid, "Grid", grid.as_str()), (Shown::List, "List", list.as_str()), (Shown::Image, "Image", image.as_str())];
        let mut shown = before;
        if controls::segmented(ui, &mut shown, &choices) {
            self.shows_one = shown == Shown::Image;
            self.browser.layout = match shown {
                Shown::Grid => browser::Layout::Grid,
                Shown::List => browser::Layout::List,
                Shown::Image => layout,
            };
            self.browser.show_current();
        }
    }

    /// Statistics, order and size, drawn from the right.
    fn layout_controls_ui(&mut self, ui: &mut Ui) {
        let button = egui::Button::new("Statistics").selected(self.statistics.is_shown);
        if ui.add(button).on_hover_text(Action::ToggleStatistics.tooltip(ui.ctx())).clicked() {
            self.statistics.is_shown = !self.statistics.is_shown;
        }
        if self.browser.layout == browser::Layout::Grid {
            let slider = Slider::new(&mut self.browser.grid.cell_width, 96.0..=320.0).show_value(false);
            controls::slider(ui, slider, "Thumbnail size", "Size of the thumbnails", 74.0);
        }
        let (sign, order) = if self.sort.descending { ("⏷", "Descending order") } else { ("⏶", "Ascending order") };
        let response = ui.add(egui::Button::new(sign).min_size(egui::vec2(26.0, 28.0)));
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, order));
        if response.on_hover_text(format!("{order}; click to turn it round")).clicked() {
            self.sort.descending = !self.sort.descending;
        }
        let combo = ComboBox::from_id_salt("sort").width(112.0).selected_text(self.sort.by.title()).truncate();
        let response = combo.show_ui(ui, |ui| {
            for by in SortBy::ALL {
                ui.selectable_value(&mut self.sort.by, by, by.title());
            }
        });
        response.response.on_hover_text("Order of the images").accessible_name("Sort by");
    }

    fn browser_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing, side: Frame) {
        selection_bar::ui(ui, view, self.browser.selection.len(), self.n_hidden(listing));
        if self.statistics.is_shown {
            Panel::right("statistics panel").frame(side).default_size(330.0).min_size(260.0).max_size(520.0).show(ui, |ui| {
                self.statistics.ui(ui, view, listing, &mut self.query.text);
            });
        }
        let margin = match self.browser.layout {
            browser::Layout::Grid => Margin { left: 12, right: 4, top: 10, bottom: 0 },
            browser::Layout::List => Margin { left: 4, right: 4, top: 2, bottom: 0 },
        };
        egui::CentralPanel::default().frame(Frame::new().inner_margin(margin)).show(ui, |ui| {
            if listing.images().is_empty() {
                no_images_ui(ui, listing, &mut self.query.text);
            } else {
                self.items_ui(ui, view, listing);
            }
        });
    }

    /// How many of the chosen images are not listed; looked at again only when one of both has changed.
    fn n_hidden(&mut self, listing: &Listing) -> usize {
        let selection = &self.browser.selection;
        let state = (listing.version, selection.version());
        if self.hidden.0 != state {
            self.hidden = (state, selection.len() - selection.n_within(listing.images()));
        }
        self.hidden.1
    }

    fn items_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let Self { browser, sort, shows_one, .. } = self;
        let Some(open) = &view.session.dataset else { return };
        let (images, hides_boxes) = (listing.images(), view.hides_boxes);
        let (current, selection) = (browser.current(), &browser.selection);
        let item = |position: usize| {
            let image = images[position] as usize;
            let entry = &listing.dataset.images[image];
            ImageItem {
                path: &entry.path,
                split: entry.split,
                labels: listing.labels(image),
                mark: listing.mark(image),
                facts: open.facts.get(image).copied().unwrap_or_default(),
                n_findings: listing.n_findings(image),
                is_current: current == Some(image),
                is_selected: selection.contains(image),
            }
        };
        let done = match browser.layout {
            browser::Layout::Grid => browser.grid.ui(ui, view.textures, images.len(), hides_boxes, item),
            browser::Layout::List => {
                let done = browser.list.ui(ui, &listing.dataset.names, images.len(), *sort, item);
                *sort = done.sort.unwrap_or(*sort);
                done.items
            }
        };
        *shows_one |= browser.take(images, &done);
        selection_bar::menu(ui, view, done.menu.is_some());
    }

    /// Asks for a tag, while one is to be put on or taken off.
    fn tag_line_ui(&mut self, ui: &Ui, view: &mut View<'_>, listing: &Listing) {
        let Some(TagQuestion { line, images, tags }) = &mut self.tag_line else { return };
        match line.ui(ui, tags, images.len()) {
            TagDone::GoesOn => return,
            TagDone::Closed => {}
            TagDone::Chosen(change) => view.out.commands.extend(mark_command(listing, images, &change)),
        }
        self.tag_line = None;
    }

    /// The neighbours are decoded ahead, so that the next image is there at once.
    fn prefetch(&self, view: &mut View<'_>, listing: &Listing) {
        let position = self.browser.position();
        for neighbour in [position + 1, position.wrapping_sub(1)] {
            if let Some(&image) = listing.images().get(neighbour) {
                view.textures.prefetch(&listing.dataset.images[image as usize].path);
            }
        }
    }
}

/// The step that a key asks for, and whether it extends the choice.
fn step_of(action: Action) -> Option<(Step, bool)> {
    Some(match action {
        Action::RowAbove => (Step::Up, false),
        Action::RowBelow => (Step::Down, false),
        Action::PageBack => (Step::PageUp, false),
        Action::PageOn => (Step::PageDown, false),
        Action::FirstImage => (Step::First, false),
        Action::LastImage => (Step::Last, false),
        Action::ExtendPrevious => (Step::Previous, true),
        Action::ExtendNext => (Step::Next, true),
        Action::ExtendAbove => (Step::Up, true),
        Action::ExtendBelow => (Step::Down, true),
        Action::ExtendToFirst => (Step::First, true),
        Action::ExtendToLast => (Step::Last, true),
        _ => return None,
    })
}

/// Changes the marks of images, if any of them changes.
fn mark_command(listing: &Listing, images: &[usize], change: &MarkChange) -> Vec<Command> {
    if !listing.has_labels() {
        return vec![Command::Tell { text: "labels are still being read".to_owned(), hint: Some("try again in a moment".to_owned()) }];
    }
    let subjects =
        images.iter().map(|&image| Subject { image, mark: listing.mark(image), labels: listing.labels(image).unwrap_or_default() });
    let done = selection_edits::marked(change, subjects);
    let mut commands: Vec<Command> = done.edit.map(Command::Edit).into_iter().collect();
    if done.n_left_out > 0 {
        let text = format!("{} with boxes cannot be marked empty", counted(done.n_left_out, "image"));
        commands.push(Command::Tell { text, hint: Some("delete the boxes first, or mark them reviewed".to_owned()) });
    }
    commands
}

/// How many of all images are shown; where the labels are missing, why.
fn count_ui(ui: &mut Ui, session: &Session, listing: &Listing) {
    let (shown, all) = (listing.images().len(), listing.dataset.images.len());
    let text = if shown == all { counted(all, "image") } else { format!("{} of {}", controls::thousands(shown), counted(all, "image")) };
    controls::weak(ui, text);
    if !listing.has_labels() && (session.is_running(JobKind::Open) || session.is_running(JobKind::ReadLabels)) {
        controls::note(ui, "reading labels…").on_hover_text("Filters on boxes and classes find nothing before that");
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

fn no_images_ui(ui: &mut Ui, listing: &Listing, query: &mut String) {
    if listing.dataset.images.is_empty() {
        controls::empty_state(ui, "No images", "The splits of this dataset hold no picture files", |_| ());
        return;
    }
    let text = if listing.has_labels() {
        "Ask for less, or clear the query"
    } else {
        "Labels are still being read: boxes and classes find nothing before that"
    };
    controls::empty_state(ui, "No image passes the query", text, |ui| {
        if ui.button("Show every image").clicked() {
            query.clear();
        }
    });
}
