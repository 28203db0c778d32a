//! Which keys do what at present: a preset, with what the person has changed of it.
//!
//! In:  key presses of a frame and the place where the person is. Out: actions.
//!
//! Modifiers must match exactly: egui's own `consume_shortcut` lets `F7` answer to `Shift+F7`. Text fields keep the keys that
//! type, move and edit; a focused button keeps those that press it and go on to the next one. The map lies in egui's memory,
//! so that whatever shows a shortcut shows the present one. Copy, cut and paste reach a program as events of their own, and
//! are the keys Ctrl+C, Ctrl+X and Ctrl+V here; with an empty clipboard the desktop sends no paste at all.

use std::sync::{Arc, OnceLock};

use egui::{Context, Event, FocusDirection, Id, Key, KeyboardShortcut, Modifiers};

use super::action::{Action, KeyPlace, ctrl};
use super::presets::Preset;
use crate::session::KeySettings;

/// The keys of each action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMap {
    pub preset: Preset,
    /// By the position in `Action::ALL`.
    keys: Vec<Vec<KeyboardShortcut>>,
}

impl Default for KeyMap {
    fn default() -> Self {
        Self::of_preset(Preset::default())
    }
}

impl KeyMap {
    /// A preset as it comes.
    pub fn of_preset(preset: Preset) -> Self {
        let mut stated = vec![false; Action::ALL.len()];
        let mut keys: Vec<Vec<KeyboardShortcut>> = Action::ALL.iter().map(|action| action.info().shortcuts.to_vec()).collect();
        for (action, of_preset) in preset.rows() {
            keys[*action as usize] = of_preset.to_vec();
            stated[*action as usize] = true;
        }
        let mut map = Self { preset, keys };
        map.let_win(&stated);
        map
    }

    /// The map that the settings describe, and what of them means nothing here, as sentences.
    pub fn new(settings: &KeySettings) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let preset = Preset::from_name(&settings.preset).unwrap_or_else(|| {
            if !settings.preset.is_empty() {
                problems.push(format!("there is no preset of keys {:?}", settings.preset));
            }
            Preset::default()
        });
        let mut map = Self::of_preset(preset);
        let mut changed = vec![false; Action::ALL.len()];
        for (name, texts) in &settings.changed {
            let Some(action) = Action::from_name(name) else {
                problems.push(format!("there is no action {name:?} to give keys to"));
                continue;
            };
            let mut keys = Vec::new();
            for text in texts {
                match parse_keys(text) {
                    Some(parsed) => keys.push(parsed),
                    None => problems.push(format!("{text:?} names no keys (of {:?})", action.title())),
                }
            }
            map.keys[action as usize] = keys;
            changed[action as usize] = true;
        }
        for &action in Action::ALL.iter().filter(|action| changed[**action as usize]) {
            for keys in map.keys(action).to_vec() {
                let twice = |other: &Action| changed[*other as usize] && *other as usize > action as usize;
                if let Some(other) = map.clashes(action, keys).into_iter().find(twice) {
                    problems.push(format!("{} is given twice: to {:?} and to {:?}", keys_name(&keys), action.title(), other.title()));
                }
            }
        }
        map.let_win(&changed);
        (map, problems)
    }

    /// The present map.
    pub fn of(ctx: &Context) -> Arc<Self> {
        static DEFAULT: OnceLock<Arc<KeyMap>> = OnceLock::new();
        let installed = ctx.data(|data| data.get_temp::<Arc<Self>>(map_id()));
        installed.unwrap_or_else(|| DEFAULT.get_or_init(Arc::default).clone())
    }

    /// Makes it the present map.
    pub fn install(self, ctx: &Context) {
        ctx.data_mut(|data| data.insert_temp(map_id(), Arc::new(self)));
    }

    /// The keys of an action; the first is shown, all work.
    pub fn keys(&self, action: Action) -> &[KeyboardShortcut] {
        &self.keys[action as usize]
    }

    /// Other actions that these keys would trigger in a place where they trigger `action`.
    pub fn clashes(&self, action: Action, keys: KeyboardShortcut) -> Vec<Action> {
        let scope = action.info().scope;
        let has_them = |other: &Action| self.keys(*other).contains(&keys) && other.info().scope.overlaps(scope);
        Action::ALL.iter().copied().filter(|other| *other != action).filter(has_them).collect()
    }

    /// What the keys of a press do in a place.
    pub fn action_of(&self, pressed: KeyboardShortcut, place: KeyPlace) -> Option<Action> {
        let is_meant = |keys: &KeyboardShortcut, pressed: KeyboardShortcut| {
            keys.logical_key == pressed.logical_key && pressed.modifiers.matches_exact(keys.modifiers)
        };
        let found = |pressed: KeyboardShortcut, first: bool| {
            Action::ALL.iter().copied().find(|action| {
                let scope = action.info().scope;
                scope.contains(place) && scope.goes_first() == first && self.keys(*action).iter().any(|keys| is_meant(keys, pressed))
            })
        };
        // A sign that needs Shift on some keyboard is meant without it.
        let unshifted = KeyboardShortcut::new(Modifiers { shift: false, ..pressed.modifiers }, pressed.logical_key);
        let is_shifted_sign = pressed.modifiers.shift && is_shifted_sign(pressed.logical_key);
        let any = |pressed| found(pressed, true).or_else(|| found(pressed, false));
        any(pressed).or_else(|| if is_shifted_sign { any(unshifted) } else { None })
    }

    /// Takes the key presses of this frame that mean something in this place and count now, and returns what they mean.
    pub fn pressed(&self, ctx: &Context, place: KeyPlace, counts: impl Fn(Action) -> bool) -> Vec<Action> {
        let is_typing = ctx.text_edit_focused();
        let has_focus = ctx.memory(egui::Memory::focused).is_some_and(|id| !is_canvas(ctx, id));
        let mut actions = Vec::new();
        let mut took_focus_key = false;
        ctx.input_mut(|input| {
            input.events.retain(|event| {
                let Some((keys, repeat)) = press_of(event) else { return true };
                if (is_typing && belongs_to_text(keys)) || (has_focus && belongs_to_widget(keys)) {
                    return true;
                }
                let Some(action) = self.action_of(keys, place).filter(|action| counts(*action)) else { return true };
                if !repeat || action.repeats() {
                    actions.push(action);
                }
                took_focus_key |= belongs_to_widget(keys);
                false
            });
        });
        if took_focus_key {
            // egui has seen the key already and would move the focus with it.
            ctx.memory_mut(|memory| memory.move_focus(FocusDirection::None));
        }
        actions
    }

    /// Whether keys of an action are held down, for what lasts as long as they are.
    pub fn is_down(&self, ctx: &Context, action: Action) -> bool {
        !ctx.text_edit_focused()
            && ctx.input(|input| {
                self.keys(action).iter().any(|keys| input.key_down(keys.logical_key) && input.modifiers.matches_exact(keys.modifiers))
            })
    }

    /// Those that were stated take their keys from those that were not.
    fn let_win(&mut self, stated: &[bool]) {
        for &action in Action::ALL.iter().filter(|action| stated[**action as usize]) {
            for keys in self.keys(action).to_vec() {
                for other in self.clashes(action, keys).into_iter().filter(|other| !stated[*other as usize]) {
                    self.keys[other as usize].retain(|others| *others != keys);
                }
            }
        }
    }
}

fn map_id() -> Id {
    Id::unique("key map")
}

fn canvas_id() -> Id {
    Id::unique("key map canvas")
}

/// Says that the widget with this id leaves all keys to the map when it has the focus: a canvas, which Enter does not press.
pub fn leave_keys_to_map(ctx: &Context, id: Id) {
    ctx.data_mut(|data| data.insert_temp(canvas_id(), id));
}

/// Whether the widget with this id leaves its keys to the map.
pub fn is_canvas(ctx: &Context, id: Id) -> bool {
    ctx.data(|data| data.get_temp::<Id>(canvas_id())) == Some(id)
}

/// The keys that an event is the press of, and whether they are held.
pub fn press_of(event: &Event) -> Option<(KeyboardShortcut, bool)> {
    match event {
        Event::Key { key, pressed: true, repeat, modifiers, .. } => Some((KeyboardShortcut::new(*modifiers, *key), *repeat)),
        Event::Copy => Some((ctrl(Key::C), false)),
        Event::Cut => Some((ctrl(Key::X), false)),
        Event::Paste(_) | Event::PasteImage(_) => Some((ctrl(Key::V), false)),
        _ => None,
    }
}

/// The keys of a press as the map keeps them: `?` is itself, whichever keys type it.
pub fn captured(pressed: KeyboardShortcut) -> KeyboardShortcut {
    let Modifiers { alt, shift, command, ctrl, .. } = pressed.modifiers;
    let shift = shift && !is_shifted_sign(pressed.logical_key);
    KeyboardShortcut::new(Modifiers { alt, shift, command: command || ctrl, ..Modifiers::NONE }, pressed.logical_key)
}

/// Whether a text field needs these keys: those that type, move and edit.
pub fn belongs_to_text(keys: KeyboardShortcut) -> bool {
    let Modifiers { alt, command, ctrl, .. } = keys.modifiers;
    if is_function_key(keys.logical_key) {
        return false;
    }
    let moves = matches!(
        keys.logical_key,
        Key::ArrowLeft | Key::ArrowRight | Key::ArrowUp | Key::ArrowDown | Key::Home | Key::End | Key::Backspace | Key::Delete
    );
    let edits = matches!(keys.logical_key, Key::A | Key::C | Key::X | Key::V | Key::Z | Key::Y | Key::H | Key::K | Key::U | Key::W);
    let edits = edits && !(keys.modifiers.shift && keys.logical_key != Key::Z);
    !(alt || command || ctrl) || moves || edits
}

/// Whether a focused button, list or slider needs these keys.
fn belongs_to_widget(keys: KeyboardShortcut) -> bool {
    let arrows = [Key::ArrowLeft, Key::ArrowRight, Key::ArrowUp, Key::ArrowDown];
    match keys.logical_key {
        Key::Tab => !keys.modifiers.command && !keys.modifiers.alt,
        Key::Space | Key::Enter => keys.modifiers.is_none(),
        key => keys.modifiers.is_none() && arrows.contains(&key),
    }
}

fn is_function_key(key: Key) -> bool {
    let mut letters = key.name().chars();
    letters.next() == Some('F') && letters.clone().next().is_some() && letters.all(|letter| letter.is_ascii_digit())
}

fn is_shifted_sign(key: Key) -> bool {
    use Key::{CloseCurlyBracket, Colon, Equals, Exclamationmark, OpenCurlyBracket, Pipe, Plus, Questionmark, Slash};
    matches!(key, CloseCurlyBracket | Colon | Equals | Exclamationmark | OpenCurlyBracket | Pipe | Plus | Questionmark | Slash)
}

/// Keys as the settings file names them, such as `Ctrl+Shift+P`.
pub fn keys_name(keys: &KeyboardShortcut) -> String {
    let Modifiers { alt, shift, command, ctrl, .. } = keys.modifiers;
    let mut name = String::new();
    for (is_held, word) in [(command || ctrl, "Ctrl+"), (alt, "Alt+"), (shift, "Shift+")] {
        if is_held {
            name.push_str(word);
        }
    }
    name + keys.logical_key.name()
}

/// Reads what [`keys_name`] writes, in any case and order of the modifiers.
pub fn parse_keys(text: &str) -> Option<KeyboardShortcut> {
    let (before, last) = match text.strip_suffix('+') {
        Some(before) => (before.strip_suffix('+').unwrap_or(before), "+"),
        None => text.rsplit_once('+').unwrap_or(("", text)),
    };
    let mut modifiers = Modifiers::NONE;
    for word in before.split('+').map(str::trim).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "ctrl" | "cmd" | "control" => modifiers.command = true,
            "alt" => modifiers.alt = true,
            "shift" => modifiers.shift = true,
            _ => return None,
        }
    }
    let last = last.trim();
    let key = Key::from_name(last).or_else(|| Key::ALL.iter().copied().find(|key| key.name().eq_ignore_ascii_case(last)))?;
    Some(KeyboardShortcut::new(modifiers, key))
}

/// Keys as they stand on the keyboard.
pub fn keys_text(ctx: &Context, keys: &KeyboardShortcut) -> String {
    let modifiers = ctx.format_shortcut(&KeyboardShortcut::new(keys.modifiers, Key::A));
    let key = match keys.logical_key {
        Key::ArrowLeft => "←",
        Key::ArrowRight => "→",
        Key::ArrowUp => "↑",
        Key::ArrowDown => "↓",
        Key::Minus => "-",
        Key::Delete => "Del",
        Key::Escape => "Esc",
        Key::PageDown => "Page down",
        Key::PageUp => "Page up",
        other => other.symbol_or_name(),
    };
    modifiers.strip_suffix('A').unwrap_or_default().to_owned() + key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gui::action::{alt, ctrl_shift, key, shift};

    fn settings(preset: &str, changed: &[(&str, &[&str])]) -> KeySettings {
        let changed =
            changed.iter().map(|(name, keys)| ((*name).to_owned(), keys.iter().map(|keys| (*keys).to_owned()).collect())).collect();
        KeySettings { preset: preset.to_owned(), changed }
    }

    #[test]
    fn no_keys_mean_two_things_in_one_place() {
        for preset in Preset::ALL {
            let map = KeyMap::of_preset(preset);
            for &action in Action::ALL {
                for keys in map.keys(action) {
                    assert_eq!(map.clashes(action, *keys), [], "{preset:?}: {action:?} {}", keys_name(keys));
                }
            }
        }
    }

    #[test]
    fn a_preset_takes_keys_from_what_it_does_not_state() {
        let cvat = KeyMap::of_preset(Preset::Cvat);
        assert_eq!(cvat.action_of(key(Key::F), KeyPlace::Grid), Some(Action::NextImage));
        assert_eq!(cvat.action_of(key(Key::D), KeyPlace::Grid), Some(Action::PreviousImage));
        assert_eq!(cvat.action_of(ctrl(Key::Num1), KeyPlace::Editor), Some(Action::Class1));
        let darknet = KeyMap::of_preset(Preset::Darknet);
        assert_eq!(darknet.keys(Action::DrawBox), [key(Key::B)]);
        let labelme = KeyMap::of_preset(Preset::XAnyLabeling);
        assert_eq!(labelme.action_of(key(Key::W), KeyPlace::Editor), Some(Action::HideBoxes), "the table draws with it");
    }

    #[test]
    fn modifiers_must_match_exactly_and_signs_may_need_shift() {
        let map = KeyMap::default();
        assert_eq!(map.action_of(key(Key::F7), KeyPlace::Grid), Some(Action::StartTraining));
        assert_eq!(map.action_of(shift(Key::F7), KeyPlace::Grid), Some(Action::StopTraining));
        assert_eq!(map.action_of(ctrl_shift(Key::F7), KeyPlace::Grid), None);
        assert_eq!(map.action_of(alt(Key::F7), KeyPlace::Grid), None);
        assert_eq!(map.action_of(shift(Key::Questionmark), KeyPlace::Train), Some(Action::Help));
        let pressed_ctrl = KeyboardShortcut::new(Modifiers { ctrl: true, command: true, ..Modifiers::NONE }, Key::O);
        assert_eq!(map.action_of(pressed_ctrl, KeyPlace::Train), Some(Action::Open));
    }

    #[test]
    fn keys_work_only_in_their_scope() {
        let map = KeyMap::default();
        assert_eq!(map.action_of(ctrl(Key::Z), KeyPlace::Check), Some(Action::Undo));
        assert_eq!(map.action_of(ctrl(Key::Z), KeyPlace::Grid), Some(Action::Undo));
        assert_eq!(map.action_of(ctrl(Key::Z), KeyPlace::Train), None);
        assert_eq!(map.action_of(key(Key::D), KeyPlace::Export), None);
    }

    #[test]
    fn what_the_person_changed_goes_before_the_preset() {
        let (map, problems) = KeyMap::new(&settings("labelimg", &[("ToggleGrid", &["D", "Ctrl+Alt+Plus"])]));
        assert_eq!(problems, [""; 0]);
        assert_eq!(map.preset, Preset::LabelImg);
        assert_eq!(map.action_of(key(Key::D), KeyPlace::Grid), Some(Action::ToggleGrid));
        assert_eq!(map.keys(Action::NextImage), [key(Key::ArrowRight)]);
        let (map, _) = KeyMap::new(&settings("", &[("Help", &[])]));
        assert_eq!(map.keys(Action::Help), []);
    }

    #[test]
    fn what_means_nothing_is_told_and_left_out() {
        let (map, problems) = KeyMap::new(&settings("emacs", &[("Levitate", &["L"]), ("Help", &["Hyper+X", "F2"])]));
        assert_eq!(map.preset, Preset::Boxwright);
        assert_eq!(map.keys(Action::Help), [key(Key::F2)]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let (_, problems) = KeyMap::new(&settings("", &[("Help", &["F2"]), ("Open", &["F2"])]));
        assert!(problems.len() == 1 && problems[0].starts_with("F2 is given twice"), "{problems:?}");
    }

    #[test]
    fn names_of_keys_are_read_as_they_are_written() {
        for &key_of in Key::ALL {
            for keys in [key(key_of), ctrl(key_of), ctrl_shift(key_of), alt(key_of)] {
                assert_eq!(parse_keys(&keys_name(&keys)), Some(keys), "{}", keys_name(&keys));
            }
        }
        assert_eq!(parse_keys("shift+ctrl+p"), Some(ctrl_shift(Key::P)));
        assert_eq!(parse_keys("Ctrl++"), Some(ctrl(Key::Plus)));
        assert_eq!(parse_keys("+"), Some(key(Key::Plus)));
        assert_eq!(parse_keys(""), None);
    }

    #[test]
    fn text_fields_keep_what_types_moves_and_edits() {
        for keys in [key(Key::G), key(Key::Space), shift(Key::D), ctrl(Key::Z), ctrl(Key::A), ctrl(Key::ArrowLeft), ctrl_shift(Key::Z)] {
            assert!(belongs_to_text(keys), "{}", keys_name(&keys));
        }
        for keys in [key(Key::F5), ctrl(Key::O), ctrl_shift(Key::P), alt(Key::Num1), ctrl_shift(Key::V)] {
            assert!(!belongs_to_text(keys), "{}", keys_name(&keys));
        }
    }
}
