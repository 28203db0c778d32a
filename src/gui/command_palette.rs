//! Everything that can be asked for, found by typing: actions, workspaces, datasets, images and classes by their names.
//!
//! In:  what was typed, and what the session has. Out: what was chosen; the window carries it out.
//!
//! The list is worked out when the text changes, never in a frame that changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use egui::{Align2, Frame, Id, Key, Modal, Modifiers, Rect, RichText, Role, ScrollArea, Sense, TextStyle, Ui, WidgetInfo, pos2, vec2};

use super::action::{Action, KeyPlace};
use super::controls;
use super::fuzzy;
use super::theme::palette;
use crate::dataset::{ClassId, Dataset};
use crate::session::Session;

/// What cannot be done now is worth so much less than what can: two letters at the beginnings of words, of 16 x 17 each.
const UNAVAILABLE: i32 = 544;
/// So many entries are offered, and of these so many images.
const MAX_ENTRIES: usize = 60;
const MAX_IMAGES: usize = 20;
/// Image names are looked through from so many letters on.
const MIN_LETTERS: usize = 2;
const WIDTH: f32 = 620.0;
const HEIGHT: f32 = 380.0;

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    Act(Action),
    Open(PathBuf),
    Image(usize),
    Class(ClassId),
}

/// What came of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaletteDone {
    Stay,
    Close,
    Chosen(Chosen),
}

struct Entry {
    chosen: Chosen,
    title: String,
    detail: String,
    score: i32,
}

/// What the palette remembers while it is open.
#[derive(Default)]
pub struct CommandPalette {
    query: String,
    /// For which text and dataset the entries are.
    found_for: Option<(String, Option<Arc<Dataset>>)>,
    entries: Vec<Entry>,
    /// The entry that Enter takes.
    current: usize,
    has_moved: bool,
}

impl CommandPalette {
    pub fn ui(&mut self, ui: &Ui, session: &Session, place: KeyPlace) -> PaletteDone {
        let dataset = session.dataset.as_ref().map(|open| &open.dataset);
        let is_found = self
            .found_for
            .as_ref()
            .is_some_and(|(query, of)| *query == self.query && of.as_ref().map(Arc::as_ptr) == dataset.map(Arc::as_ptr));
        if !is_found {
            self.entries = find(&self.query, session, |chosen| reason(chosen, session, place).is_none());
            self.found_for = Some((self.query.clone(), dataset.cloned()));
            self.current = 0;
            self.has_moved = true;
        }
        self.take_keys(ui);
        let enters = ui.input_mut(|input| input.consume_key(Modifiers::NONE, Key::Enter));
        let mut clicked = None;
        let id = Id::unique("command palette");
        let area = Modal::default_area(id).anchor(Align2::CENTER_TOP, vec2(0.0, 72.0));
        let modal = Modal::new(id).area(area).frame(Frame::window(ui.style()).inner_margin(12)).show(ui.ctx(), |ui| {
            ui.set_width(WIDTH);
            let hint = "Type an action, a dataset, a class or an image";
            let response = controls::text_field(ui, "Command", &mut self.query, hint, WIDTH);
            if !response.has_focus() {
                response.request_focus();
            }
            ui.spacing_mut().item_spacing.y = 1.0;
            ScrollArea::vertical().max_height(HEIGHT).min_scrolled_height(HEIGHT).show(ui, |ui| {
                for (index, entry) in self.entries.iter().enumerate() {
                    let is_current = index == self.current;
                    let response = row_ui(ui, entry, reason(&entry.chosen, session, place), is_current);
                    if is_current && self.has_moved {
                        response.scroll_to_me(None);
                    }
                    if response.clicked() {
                        clicked = Some(index);
                    }
                }
                if self.entries.is_empty() {
                    ui.add_space(8.0);
                    controls::weak(ui, "Nothing is called like this");
                }
            });
        });
        self.has_moved = false;
        let taken = clicked.or(enters.then_some(self.current)).and_then(|index| self.entries.get(index));
        match taken {
            // What cannot be done now says why, and stays.
            Some(entry) if reason(&entry.chosen, session, place).is_none() => PaletteDone::Chosen(entry.chosen.clone()),
            _ if modal.should_close() => PaletteDone::Close,
            _ => PaletteDone::Stay,
        }
    }

    fn take_keys(&mut self, ui: &Ui) {
        let last = self.entries.len().saturating_sub(1);
        let press = |key| ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
        let page = 10;
        let moved = if press(Key::ArrowDown) {
            if self.current >= last { 0 } else { self.current + 1 }
        } else if press(Key::ArrowUp) {
            if self.current == 0 { last } else { self.current - 1 }
        } else if press(Key::PageDown) {
            (self.current + page).min(last)
        } else if press(Key::PageUp) {
            self.current.saturating_sub(page)
        } else {
            return;
        };
        self.current = moved;
        self.has_moved = true;
    }
}

/// Why it cannot be done now.
fn reason(chosen: &Chosen, session: &Session, place: KeyPlace) -> Option<&'static str> {
    match chosen {
        Chosen::Act(action) => action.unavailable(session).or_else(|| action.out_of_place(place)),
        Chosen::Open(_) => Action::Open.unavailable(session),
        Chosen::Image(_) | Chosen::Class(_) => None,
    }
}

/// What fits the text, best first; an action that cannot be done now comes behind what fits nearly as well, unless it is named.
fn find(query: &str, session: &Session, can_be_done: impl Fn(&Chosen) -> bool) -> Vec<Entry> {
    let query = query.trim();
    let mut entries = Vec::new();
    for &action in Action::ALL.iter().filter(|action| **action != Action::OpenCommandPalette) {
        let info = action.info();
        // A word of the explanation is enough, but comes after the titles.
        let by_tooltip = || info.tooltip.to_lowercase().contains(&query.to_lowercase()).then_some(-1000);
        if let Some(score) = fuzzy::score(query, info.title).or_else(by_tooltip) {
            let chosen = Chosen::Act(action);
            let now = if can_be_done(&chosen) || info.title.eq_ignore_ascii_case(query) { 0 } else { -UNAVAILABLE };
            let score = if query.is_empty() { now } else { score + now };
            entries.push(Entry { chosen, title: info.title.to_owned(), detail: info.tooltip.to_owned(), score });
        }
    }
    for path in &session.settings.recent {
        let folder = if path.is_file() || path.extension().is_some() { path.parent().unwrap_or(path) } else { path };
        let name = folder.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        if let Some(score) = fuzzy::score(query, &name) {
            let title = format!("Open {name}");
            let score = if query.is_empty() { -1 } else { score };
            entries.push(Entry { chosen: Chosen::Open(path.clone()), title, detail: path.display().to_string(), score });
        }
    }
    if let Some(open) = session.dataset.as_ref().filter(|_| !query.is_empty()) {
        for (index, name) in open.dataset.names.iter().enumerate() {
            if let Some(score) = fuzzy::score(query, name) {
                let detail = "Show the images with a label of this class".to_owned();
                entries.push(Entry { chosen: Chosen::Class(ClassId(index as u32)), title: format!("Class {name}"), detail, score });
            }
        }
        if query.len() >= MIN_LETTERS {
            entries.extend(images_called(query, open.dataset.images.iter().map(|image| image.path.as_path())));
        }
    }
    // Stable: what fits alike stays in the order of the table.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.score));
    entries.truncate(MAX_ENTRIES);
    entries
}

/// The first images whose file name holds the text, in any case.
fn images_called<'a>(query: &str, paths: impl Iterator<Item = &'a std::path::Path>) -> Vec<Entry> {
    let wanted = query.to_lowercase().into_bytes();
    let holds = |name: &[u8]| name.windows(wanted.len()).any(|window| window.eq_ignore_ascii_case(&wanted));
    let mut entries = Vec::new();
    for (index, path) in paths.enumerate() {
        let Some(name) = path.file_name().filter(|name| holds(name.as_encoded_bytes())) else { continue };
        let title = name.to_string_lossy().into_owned();
        let score = fuzzy::score(query, &title).unwrap_or(0);
        let detail = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        entries.push(Entry { chosen: Chosen::Image(index), title, detail, score });
        if entries.len() == MAX_IMAGES {
            break;
        }
    }
    entries
}

fn row_ui(ui: &mut Ui, entry: &Entry, reason: Option<&str>, is_current: bool) -> egui::Response {
    let palette = palette(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 28.0), Sense::click());
    response.widget_info(|| WidgetInfo::selected(Role::Button, reason.is_none(), is_current, &entry.title));
    if !ui.is_rect_visible(rect) {
        return response;
    }
    controls::row_background(ui, rect, &response, is_current);
    let keys = match &entry.chosen {
        Chosen::Act(action) => action.shortcut_text(ui.ctx()),
        _ => None,
    };
    let mut right = rect.right() - 8.0;
    if let Some(keys) = keys {
        let font = TextStyle::Monospace.resolve(ui.style());
        let text = ui.painter().text(pos2(right, rect.center().y), Align2::RIGHT_CENTER, keys, font, palette.weak);
        right = text.left() - 12.0;
    }
    let ink = if reason.is_some() { palette.faint } else { palette.strong };
    let left = rect.left() + 8.0;
    let titles = Rect::from_min_max(pos2(left, rect.top()), pos2(left + 210.0, rect.bottom()));
    controls::paint_text(ui, titles.left_center(), titles.width() - 10.0, RichText::new(&entry.title).color(ink));
    let detail = reason.unwrap_or(&entry.detail);
    let ink = if reason.is_some() { palette.warn } else { palette.weak };
    controls::paint_text(ui, titles.right_center(), right - titles.right(), RichText::new(detail).small().color(ink));
    response
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::path::Path;

    use super::*;

    #[test]
    fn images_are_found_by_a_part_of_their_name_in_any_case() {
        let paths = ["a/Part01.png", "a/part02.png", "part01/other.png"].map(Path::new);
        let found: Vec<_> = images_called("PART01", paths.into_iter()).into_iter().map(|entry| entry.chosen).collect();
        assert_eq!(found, [Chosen::Image(0)]);
    }

    #[test]
    fn every_action_is_found_by_its_title() {
        let session = Session::new(crate::session::Settings::in_dir(Path::new("unused")), std::sync::Arc::new(|| {}));
        for &action in Action::ALL.iter().filter(|action| **action != Action::OpenCommandPalette) {
            let found = find(action.title(), &session, |_| true);
            assert!(found.iter().take(4).any(|entry| entry.chosen == Chosen::Act(action)), "{action:?}");
        }
    }

    #[test]
    fn what_can_be_done_comes_before_what_cannot() {
        let session = Session::new(crate::session::Settings::in_dir(Path::new("unused")), std::sync::Arc::new(|| {}));
        let first = |query: &str, impossible: Action| {
            let found = find(query, &session, |chosen| *chosen != Chosen::Act(impossible));
            found.into_iter().next().unwrap().chosen
        };
        assert_eq!(first("zoom", Action::ZoomIn), Chosen::Act(Action::ZoomOut));
        assert_eq!(first("zoom", Action::ZoomOut), Chosen::Act(Action::ZoomIn));
        assert_eq!(first("zoom out", Action::ZoomOut), Chosen::Act(Action::ZoomOut), "it is named");
    }

    #[test]
    fn only_the_first_of_many_images_are_offered() {
        let paths: Vec<PathBuf> = (0..1000).map(|index| format!("part{index}.png").into()).collect();
        assert_eq!(images_called("part", paths.iter().map(PathBuf::as_path)).len(), MAX_IMAGES);
    }
}
