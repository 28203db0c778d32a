//! The sheet of keyboard shortcuts: what the keys do at the place that is shown, from the table of actions and the key map.

use egui::{Frame, Id, KeyboardShortcut, Label, Modal, RichText, ScrollArea, Ui};

use super::action::{Action, Group, KeyPlace};
use super::controls;
use super::keymap::{KeyMap, keys_text};
use super::theme::palette;

const N_COLUMNS: usize = 2;
const MAX_WIDTH: f32 = 1040.0;
/// Of the keys in a column.
const KEYS_WIDTH: f32 = 152.0;

/// What came of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpDone {
    Stay,
    Close,
    ChangeKeys,
}

/// Draws the sheet.
pub fn ui(ui: &Ui, place: KeyPlace) -> HelpDone {
    let map = KeyMap::of(ui.ctx());
    let frame = Frame::window(ui.style()).inner_margin(24);
    let height = (ui.ctx().content_rect().height() - 180.0).max(120.0);
    let modal = Modal::new(Id::unique("keyboard shortcuts")).frame(frame).show(ui.ctx(), |ui| {
        ui.set_width((ui.ctx().content_rect().width() - 96.0).min(MAX_WIDTH));
        let (closed, changes) = controls::section_with(ui, "Keyboard shortcuts", |ui| {
            let closed = ui.button("Close").clicked();
            (closed, ui.button(Action::ChangeKeys.title()).on_hover_text(Action::ChangeKeys.tooltip(ui.ctx())).clicked())
        });
        controls::note(ui, format!("What the keys do {}. Preset {}", place_words(place), map.preset.title()));
        ui.add_space(8.0);
        ScrollArea::vertical().max_height(height).min_scrolled_height(height).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 3.0;
            ui.columns(N_COLUMNS, |columns| {
                for (column, groups) in columns.iter_mut().zip(arranged(&map, place)) {
                    for (group, actions) in groups {
                        group_ui(column, &map, group.title(), &actions, place);
                        if group == Group::Look {
                            mouse_ui(column);
                        }
                    }
                }
            });
        });
        (closed, changes)
    });
    match modal.inner {
        (_, true) => HelpDone::ChangeKeys,
        (true, _) => HelpDone::Close,
        _ if modal.should_close() => HelpDone::Close,
        _ => HelpDone::Stay,
    }
}

fn place_words(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::Grid => "in the grid",
        KeyPlace::Editor => "on an image",
        KeyPlace::Selection => "with boxes selected",
        KeyPlace::Proposal => "on an image with proposals",
        KeyPlace::Check => "in Check",
        KeyPlace::Train => "in Train",
        KeyPlace::Detect => "in Detect",
        KeyPlace::Export => "in Export",
    }
}

/// The keys of an action that nothing goes before in this place.
fn working_keys(map: &KeyMap, action: Action, place: KeyPlace) -> Vec<KeyboardShortcut> {
    map.keys(action).iter().copied().filter(|keys| map.action_of(*keys, place) == Some(action)).collect()
}

/// The groups with actions that have keys in this place, each in the column that is shortest so far.
fn arranged(map: &KeyMap, place: KeyPlace) -> [Vec<(Group, Vec<Action>)>; N_COLUMNS] {
    let mut columns: [Vec<_>; N_COLUMNS] = Default::default();
    let mut heights = [0; N_COLUMNS];
    for group in Group::ALL {
        let has_keys = |action: &Action| {
            let info = action.info();
            info.group == group && info.scope.contains(place) && !working_keys(map, *action, place).is_empty()
        };
        let actions: Vec<Action> = Action::ALL.iter().copied().filter(has_keys).collect();
        if actions.is_empty() {
            continue;
        }
        let shortest = (0..N_COLUMNS).min_by_key(|column| heights[*column]).unwrap_or(0);
        // The pointer's part stands below the first.
        heights[shortest] += actions.len() + if group == Group::Look { 7 } else { 2 };
        columns[shortest].push((group, actions));
    }
    columns
}

/// What the pointer does on a picture, below the keys that do the like.
fn mouse_ui(ui: &mut Ui) {
    controls::section(ui, "With the pointer on a picture");
    for (gesture, effect) in [
        ("Wheel", "Zoom at the pointer"),
        ("Drag", "In Data draw, move and resize boxes, elsewhere move the picture"),
        ("Space or Ctrl + drag", "Move the picture; so does the middle button"),
        ("Shift + drag", "Select the boxes inside"),
        ("Click again", "Select the box below"),
        ("Double click", "Class of a box; beside boxes, fit the picture into view"),
    ] {
        line_ui(ui, gesture, effect);
    }
    ui.add_space(14.0);
}

fn group_ui(ui: &mut Ui, map: &KeyMap, title: &str, actions: &[Action], place: KeyPlace) {
    controls::section(ui, title);
    for action in actions {
        let keys: Vec<String> = working_keys(map, *action, place).iter().map(|keys| keys_text(ui.ctx(), keys)).collect();
        line_ui(ui, &keys.join("  "), action.info().tooltip);
    }
    ui.add_space(14.0);
}

/// Keys or a gesture, and what they do.
fn line_ui(ui: &mut Ui, keys: &str, effect: &str) {
    ui.horizontal_top(|ui| {
        ui.spacing_mut().interact_size.y = 20.0;
        ui.scope(|ui| {
            ui.set_width(KEYS_WIDTH);
            ui.add(Label::new(RichText::new(keys).monospace().color(palette(ui).strong)).truncate());
        });
        ui.add(Label::new(RichText::new(effect).color(palette(ui).weak)).wrap());
    });
}
