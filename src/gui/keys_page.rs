//! Where keys are changed: a preset, and the keys of each action, given by pressing them.
//!
//! In:  the settings. Out: the settings as they should be. Keys that another action has in the same place are given only when
//! the person says whether they are taken from it or swapped.

use egui::{Button, Event, FocusDirection, Frame, Grid, Id, Key, KeyboardShortcut, Modal, RichText, ScrollArea, Ui};

use super::action::{Action, Group};
use super::controls;
use super::key_changes;
use super::keymap::{KeyMap, belongs_to_text, captured, keys_text, press_of};
use super::presets::Preset;
use super::theme::palette;
use crate::session::KeySettings;

const WIDTH: f32 = 860.0;

/// An action that is to get keys.
struct Wanted {
    action: Action,
    /// `None` until they are pressed; then another action has them.
    keys: Option<KeyboardShortcut>,
}

/// What the page remembers while it is open.
#[derive(Default)]
pub struct KeysPage {
    filter: String,
    wanted: Option<Wanted>,
}

/// What came of a frame.
#[derive(Clone, Debug, Default)]
pub struct KeysDone {
    pub changed: Option<KeySettings>,
    pub closes: bool,
}

impl KeysPage {
    /// Whether the next keys are for the page, whatever they do elsewhere.
    pub fn is_capturing(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.keys.is_none())
    }

    pub fn ui(&mut self, ui: &Ui, settings: &KeySettings) -> KeysDone {
        let map = KeyMap::of(ui.ctx());
        let mut done = KeysDone { changed: self.capture(ui, settings, &map), closes: false };
        let frame = Frame::window(ui.style()).inner_margin(24);
        let height = ui.ctx().content_rect().height() - 260.0;
        let modal = Modal::new(Id::unique("keys")).frame(frame).show(ui.ctx(), |ui| {
            ui.set_width(WIDTH);
            controls::section_with(ui, "Keys", |ui| {
                done.closes = ui.button("Close").clicked();
                let reason = settings.changed.is_empty().then_some("Nothing differs from the preset");
                let button = ui.add_enabled(reason.is_none(), Button::new("Reset all")).on_hover_text("Every action has the preset's keys");
                if button.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
                    done.changed = Some(KeySettings { changed: std::collections::BTreeMap::new(), ..settings.clone() });
                }
            });
            ui.add_space(4.0);
            ui.horizontal(|ui| {
                let mut preset = map.preset;
                let choices = Preset::ALL.map(|preset| (preset, preset.title(), "As hands know them from there"));
                if controls::segmented(ui, &mut preset, &choices) {
                    done.changed = Some(key_changes::with_preset(settings, preset));
                }
                let width = ui.available_width();
                controls::text_field(ui, "Filter actions", &mut self.filter, "Filter by action or keys", width);
            });
            ui.add_space(6.0);
            self.wanted_ui(ui, settings, &map, &mut done);
            ui.add_space(6.0);
            ScrollArea::vertical()
                .max_height(height)
                .min_scrolled_height(height)
                .show(ui, |ui| self.list_ui(ui, settings, &map, &mut done));
        });
        // While keys are asked for, Esc and a click beside take the question back.
        done.closes |= modal.should_close() && self.wanted.is_none();
        done
    }

    /// Takes the keys that were pressed for an action.
    fn capture(&mut self, ui: &Ui, settings: &KeySettings, map: &KeyMap) -> Option<KeySettings> {
        let wanted = self.wanted.as_mut().filter(|wanted| wanted.keys.is_none())?;
        let mut pressed = None;
        ui.input_mut(|input| {
            input.events.retain(|event| {
                if let Some((keys, false)) = press_of(event) {
                    pressed = pressed.or(Some(keys));
                }
                !matches!(event, Event::Key { .. } | Event::Text(_) | Event::Copy | Event::Cut | Event::Paste(_))
            });
        });
        ui.memory_mut(|memory| memory.move_focus(FocusDirection::None));
        let keys = captured(pressed?);
        let action = wanted.action;
        if keys.logical_key == Key::Escape {
            self.wanted = None;
            return None;
        }
        if map.clashes(action, keys).is_empty() {
            self.wanted = None;
            return Some(key_changes::taken(settings, action, keys));
        }
        wanted.keys = Some(keys);
        None
    }

    /// What is asked for, or what stands against it.
    fn wanted_ui(&mut self, ui: &mut Ui, settings: &KeySettings, map: &KeyMap, done: &mut KeysDone) {
        let Some(Wanted { action, keys }) = &self.wanted else {
            controls::note(
                ui,
                "Keys work where their action makes sense, so one key may do two things in two places. Text fields keep theirs",
            );
            return;
        };
        let title = action.title();
        let mut is_over = false;
        ui.horizontal(|ui| {
            let Some(keys) = *keys else {
                ui.label(RichText::new(format!("Press the keys for {title}")).color(palette(ui).accent));
                is_over = ui.button("Cancel").on_hover_text("Esc").clicked();
                return;
            };
            let text = keys_text(ui.ctx(), &keys);
            let clashes = map.clashes(*action, keys);
            let others: Vec<String> = clashes.iter().map(|other| format!("{} ({})", other.title(), other.info().scope.title())).collect();
            ui.label(RichText::new(format!("{text} belongs to {}", others.join(", "))).color(palette(ui).warn));
            if ui.button("Take").on_hover_text(format!("{text} is for {title} alone")).clicked() {
                done.changed = Some(key_changes::taken(settings, *action, keys));
                is_over = true;
            }
            let swapped = key_changes::swapped(settings, *action, keys);
            let button = ui.add_enabled(swapped.is_some(), Button::new("Swap"));
            let button = button.on_hover_text(format!("{title} gets {text} and gives its own in exchange"));
            if button.on_disabled_hover_text("There is nothing to give in exchange").clicked() {
                done.changed = swapped;
                is_over = true;
            }
            is_over |= ui.button("Cancel").on_hover_text("All stays as it is").clicked();
        });
        if is_over {
            self.wanted = None;
        }
    }

    fn list_ui(&mut self, ui: &mut Ui, settings: &KeySettings, map: &KeyMap, done: &mut KeysDone) {
        let filter = self.filter.trim().to_lowercase();
        let mut is_empty = true;
        for group in Group::ALL {
            let fits = |action: &Action| {
                let info = action.info();
                let has = |text: &str| text.to_lowercase().contains(&filter);
                info.group == group
                    && (has(info.title) || has(info.tooltip) || map.keys(*action).iter().any(|keys| has(&keys_text(ui.ctx(), keys))))
            };
            let actions: Vec<Action> = Action::ALL.iter().copied().filter(fits).collect();
            if actions.is_empty() {
                continue;
            }
            is_empty = false;
            controls::section(ui, group.title());
            Grid::new(group.title()).num_columns(3).min_col_width(120.0).spacing([12.0, 3.0]).striped(true).show(ui, |ui| {
                ui.spacing_mut().interact_size.y = 22.0;
                ui.spacing_mut().button_padding.y = 2.0;
                for action in actions {
                    self.row_ui(ui, action, settings, map, done);
                    ui.end_row();
                }
            });
            ui.add_space(10.0);
        }
        if is_empty {
            controls::weak(ui, "No action is called like this");
        }
    }

    fn row_ui(&mut self, ui: &mut Ui, action: Action, settings: &KeySettings, map: &KeyMap, done: &mut KeysDone) {
        let info = action.info();
        ui.scope(|ui| {
            ui.set_width(190.0);
            ui.label(RichText::new(info.title).color(palette(ui).strong)).on_hover_text(info.tooltip);
        });
        ui.scope(|ui| {
            ui.set_width(140.0);
            controls::note(ui, info.scope.title());
        });
        ui.horizontal(|ui| {
            ui.set_width(WIDTH - 190.0 - 140.0 - 60.0);
            ui.spacing_mut().item_spacing.x = 4.0;
            for keys in map.keys(action) {
                let text = keys_text(ui.ctx(), keys);
                let response = ui.add(Button::new(RichText::new(format!("{text}  ×")).monospace()));
                let label = format!("Take {text} from {}", info.title);
                response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
                let stays = if belongs_to_text(*keys) { "; text fields keep it while they are typed in" } else { "" };
                if response.on_hover_text(format!("Take these keys away{stays}")).clicked() {
                    let left: Vec<_> = map.keys(action).iter().copied().filter(|other| other != keys).collect();
                    done.changed = Some(key_changes::with_keys(settings, action, &left));
                }
            }
            let response = controls::quiet_button(ui, "Add…", "Give it keys by pressing them");
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("Add keys to {}", info.title)));
            if response.clicked() {
                self.wanted = Some(Wanted { action, keys: None });
            }
            if settings.changed.contains_key(info.name) {
                let response = controls::quiet_button(ui, "Reset", "The keys of the preset");
                response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("Reset {}", info.title)));
                if response.clicked() {
                    done.changed = Some(key_changes::set_back(settings, action));
                }
            }
        });
    }
}
