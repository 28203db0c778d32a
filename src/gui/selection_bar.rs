//! What can be done with the chosen images: a bar below the grid, the same in a menu, and the line that a tag is typed into.
//!
//! In:  the chosen images, the tags of the dataset. Out: actions; a tag to put on or take off.

use std::collections::BTreeSet;

use egui::containers::menu::menu_style;
use egui::{Align, Frame, Id, Key, Layout, Margin, Modal, Panel, Popup, PopupAnchor, PopupKind, RichText, SetOpenCommand, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, counted};
use super::selection_edits::{MarkChange, tag_of};
use super::theme::{self, palette};

const BUTTONS: [Action; 5] = [Action::MarkReviewed, Action::MarkUnreviewed, Action::MarkEmpty, Action::AddTag, Action::RemoveTag];

/// Draws the bar while images are chosen.
pub fn ui(ui: &mut Ui, view: &mut View<'_>, n_selected: usize, n_hidden: usize) {
    if n_selected == 0 {
        return;
    }
    let palette = palette(ui);
    let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(12, 0));
    Panel::bottom("selection bar").frame(frame).exact_size(40.0).show(ui, |ui| {
        ui.horizontal_centered(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            let text = format!("{} selected", controls::thousands(n_selected));
            ui.label(RichText::new(text).text_style(theme::strong()).color(palette.strong));
            if n_hidden > 0 {
                let tooltip = "They do not pass the query, and actions change them too";
                controls::note(ui, format!("{} not shown", controls::thousands(n_hidden))).on_hover_text(tooltip);
            }
            ui.add_space(6.0);
            for action in BUTTONS {
                if controls::action_button(ui, action, action.unavailable(view.session)) {
                    view.act(action);
                }
            }
            let (response, _) = egui::containers::menu::MenuButton::new("More").ui(ui, |ui| more_ui(ui, view));
            response.on_hover_text("Move to another split, copy paths, choose others");
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                if controls::quiet_button(ui, "Clear", &Action::SelectNone.tooltip(ui.ctx())).clicked() {
                    view.act(Action::SelectNone);
                }
            });
        });
    });
}

/// All that can be done, as a menu at the pointer.
pub fn menu(ui: &Ui, view: &mut View<'_>, opens: bool) {
    let menu = Popup::new(Id::unique("image menu"), ui.ctx().clone(), PopupAnchor::PointerFixed, ui.layer_id());
    let command = opens.then_some(SetOpenCommand::Bool(true));
    let menu = menu.kind(PopupKind::Menu).layout(Layout::top_down_justified(Align::Min)).style(menu_style).gap(0.0).open_memory(command);
    menu.show(|ui| {
        item_ui(ui, view, Action::OpenImage);
        ui.separator();
        for action in BUTTONS {
            item_ui(ui, view, action);
        }
        ui.separator();
        more_ui(ui, view);
    });
}

fn more_ui(ui: &mut Ui, view: &mut View<'_>) {
    for action in [Action::MoveToTrain, Action::MoveToVal, Action::MoveToTest, Action::CopyPaths] {
        item_ui(ui, view, action);
    }
    ui.separator();
    item_ui(ui, view, Action::SelectAllImages);
    item_ui(ui, view, Action::InvertSelection);
}

fn item_ui(ui: &mut Ui, view: &mut View<'_>, action: Action) {
    let reason = action.unavailable(view.session);
    let button = egui::Button::new(action.title()).shortcut_text(action.shortcut_text(ui.ctx()).unwrap_or_default());
    let response = ui.add_enabled(reason.is_none(), button).on_hover_text(action.info().tooltip);
    if response.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
        view.act(action);
        ui.close();
    }
}

/// The line that a tag is typed into, over everything else.
#[derive(Clone, Debug)]
pub struct TagLine {
    adds: bool,
    text: String,
    /// Among the tags that are offered.
    choice: Option<usize>,
    is_new: bool,
}

/// What came of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagDone {
    GoesOn,
    Closed,
    Chosen(MarkChange),
}

/// So many tags are offered.
const MAX_OFFERED: usize = 8;

impl TagLine {
    /// For a tag to put on, or one to take off.
    pub fn new(adds: bool) -> Self {
        Self { adds, text: String::new(), choice: None, is_new: true }
    }

    /// Draws the line; `tags` are those of the dataset, or of the chosen images when one is to be taken off.
    pub fn ui(&mut self, ui: &Ui, tags: &BTreeSet<String>, n_images: usize) -> TagDone {
        let offered = self.offered(tags);
        let mut done = TagDone::GoesOn;
        let frame = Frame::window(ui.style()).inner_margin(16);
        let modal = Modal::new(Id::unique("tag line")).frame(frame).show(ui.ctx(), |ui| {
            ui.set_width(340.0);
            let preposition = if self.adds { "Tag for" } else { "Take a tag off" };
            controls::section(ui, &format!("{preposition} {}", counted(n_images, "image")));
            if !self.adds && tags.is_empty() {
                controls::note(ui, "None of them has a tag");
                return;
            }
            // Before the field sees the keys.
            let (down, up) = ui.input_mut(|input| {
                let mut pressed = |key| input.consume_key(egui::Modifiers::NONE, key);
                (pressed(Key::ArrowDown), pressed(Key::ArrowUp))
            });
            self.choice = match (self.choice, down, up) {
                (None, true, _) if !offered.is_empty() => Some(0),
                (Some(at), true, _) => Some((at + 1).min(offered.len().saturating_sub(1))),
                (Some(at), _, true) => at.checked_sub(1),
                (at, ..) => at.filter(|&at| at < offered.len()),
            };
            let hint = if self.adds { "Such as blurred" } else { "Type or choose" };
            let response = controls::text_field(ui, "Tag", &mut self.text, hint, 340.0);
            if std::mem::take(&mut self.is_new) {
                response.request_focus();
            }
            if response.changed() {
                self.choice = None;
            }
            if response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter)) {
                let typed = self.choice.and_then(|at| offered.get(at).cloned()).or_else(|| tag_of(&self.text));
                match typed.filter(|tag| self.adds || tags.contains(tag)) {
                    Some(tag) => done = TagDone::Chosen(self.change(tag)),
                    None => response.request_focus(),
                }
            }
            ui.add_space(4.0);
            ui.spacing_mut().item_spacing.y = 2.0;
            for (index, tag) in offered.iter().enumerate() {
                let button = egui::Button::selectable(self.choice == Some(index), tag).min_size(egui::vec2(340.0, 26.0));
                if ui.add(button).clicked() {
                    done = TagDone::Chosen(self.change(tag.clone()));
                }
            }
        });
        if done == TagDone::GoesOn && modal.should_close() { TagDone::Closed } else { done }
    }

    fn change(&self, tag: String) -> MarkChange {
        if self.adds { MarkChange::AddTag(tag) } else { MarkChange::RemoveTag(tag) }
    }

    /// Tags that have in them what was typed, those that begin with it first.
    fn offered(&self, tags: &BTreeSet<String>) -> Vec<String> {
        let typed = self.text.trim().to_lowercase();
        let (first, others): (Vec<&String>, Vec<&String>) =
            tags.iter().filter(|tag| tag.to_lowercase().contains(&typed)).partition(|tag| tag.to_lowercase().starts_with(&typed));
        first.into_iter().chain(others).take(MAX_OFFERED).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_that_begin_with_what_was_typed_are_offered_first() {
        let tags: BTreeSet<String> = ["at night", "blurred", "night"].map(str::to_owned).into();
        let offered = |text: &str| TagLine { text: text.to_owned(), ..TagLine::new(true) }.offered(&tags);
        assert_eq!(offered("Ni"), ["night", "at night"]);
        assert_eq!(offered(""), ["at night", "blurred", "night"]);
        assert!(offered("dark").is_empty());
    }
}
