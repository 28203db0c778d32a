//! What a person does to the key map: give and take keys, swap, set back. Settings in, settings out.
//!
//! Settings hold only what differs from the preset, so that a preset that gets better reaches everybody.

use egui::KeyboardShortcut;

use super::action::Action;
use super::keymap::{KeyMap, keys_name};
use super::presets::Preset;
use crate::session::KeySettings;

/// The settings with these keys for an action.
#[must_use]
pub fn with_keys(settings: &KeySettings, action: Action, keys: &[KeyboardShortcut]) -> KeySettings {
    let mut changed = settings.clone();
    let preset = KeyMap::of_preset(preset_of(settings));
    let name = action.info().name.to_owned();
    if preset.keys(action) == keys {
        changed.changed.remove(&name);
    } else {
        changed.changed.insert(name, keys.iter().map(keys_name).collect());
    }
    changed
}

/// The settings where an action has these keys, too, and those it clashes with have not.
#[must_use]
pub fn taken(settings: &KeySettings, action: Action, keys: KeyboardShortcut) -> KeySettings {
    let map = KeyMap::new(settings).0;
    let mut changed = settings.clone();
    for other in map.clashes(action, keys) {
        let left: Vec<_> = map.keys(other).iter().copied().filter(|others| *others != keys).collect();
        changed = with_keys(&changed, other, &left);
    }
    let mut own = map.keys(action).to_vec();
    if !own.contains(&keys) {
        own.push(keys);
    }
    with_keys(&changed, action, &own)
}

/// The settings where an action has these keys first, and the one that had them has its first ones instead; `None` where
/// there is nothing to give in exchange, or it would clash with a third.
#[must_use]
pub fn swapped(settings: &KeySettings, action: Action, keys: KeyboardShortcut) -> Option<KeySettings> {
    let map = KeyMap::new(settings).0;
    let [other] = map.clashes(action, keys)[..] else { return None };
    let given = *map.keys(action).first()?;
    let replaced = |of: Action, from: KeyboardShortcut, to: KeyboardShortcut| -> Vec<KeyboardShortcut> {
        map.keys(of).iter().map(|keys| if *keys == from { to } else { *keys }).collect()
    };
    let changed = with_keys(settings, other, &replaced(other, keys, given));
    let changed = with_keys(&changed, action, &replaced(action, given, keys));
    let after = KeyMap::new(&changed).0;
    (after.clashes(other, given).is_empty() && after.clashes(action, keys).is_empty()).then_some(changed)
}

/// The settings where an action has the keys of the preset; what took one of them away gives it back.
#[must_use]
pub fn set_back(settings: &KeySettings, action: Action) -> KeySettings {
    let preset = KeyMap::of_preset(preset_of(settings));
    let mut changed = with_keys(settings, action, preset.keys(action));
    for keys in preset.keys(action) {
        let map = KeyMap::new(&changed).0;
        for other in map.clashes(action, *keys) {
            let left: Vec<_> = map.keys(other).iter().copied().filter(|others| others != keys).collect();
            changed = with_keys(&changed, other, &left);
        }
    }
    changed
}

/// The settings with another preset; what the person changed stays changed.
#[must_use]
pub fn with_preset(settings: &KeySettings, preset: Preset) -> KeySettings {
    let name = if preset == Preset::default() { String::new() } else { preset.title().to_owned() };
    KeySettings { preset: name, ..settings.clone() }
}

fn preset_of(settings: &KeySettings) -> Preset {
    Preset::from_name(&settings.preset).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use egui::Key;

    use super::*;
    use crate::gui::action::{ctrl, key};

    fn keys(settings: &KeySettings, action: Action) -> Vec<KeyboardShortcut> {
        let (map, problems) = KeyMap::new(settings);
        assert_eq!(problems, [""; 0]);
        map.keys(action).to_vec()
    }

    #[test]
    fn keys_are_taken_from_the_action_that_had_them() {
        let settings = taken(&KeySettings::default(), Action::ToggleGrid, key(Key::D));
        assert_eq!(keys(&settings, Action::ToggleGrid), [key(Key::G), key(Key::D)]);
        assert_eq!(keys(&settings, Action::NextImage), [key(Key::ArrowRight)]);
        let back = set_back(&settings, Action::NextImage);
        assert_eq!(keys(&back, Action::NextImage), [key(Key::D), key(Key::ArrowRight)]);
        assert_eq!(back, KeySettings::default(), "only differences are kept");
    }

    #[test]
    fn two_actions_swap_their_keys() {
        let settings = swapped(&KeySettings::default(), Action::ToggleGrid, key(Key::D)).unwrap();
        assert_eq!(keys(&settings, Action::ToggleGrid), [key(Key::D)]);
        assert_eq!(keys(&settings, Action::NextImage), [key(Key::G), key(Key::ArrowRight)]);
        assert_eq!(swapped(&settings, Action::OpenSample, key(Key::D)), None, "it has no keys to give");
    }

    #[test]
    fn unknown_names_of_another_version_stay_in_the_settings() {
        let mut settings = KeySettings::default();
        settings.changed.insert("Levitate".to_owned(), vec!["L".to_owned()]);
        let changed = with_keys(&settings, Action::Help, &[ctrl(Key::J)]);
        assert!(changed.changed.contains_key("Levitate"));
        let changed = with_preset(&changed, Preset::Cvat);
        assert_eq!(changed.preset, "CVAT");
        assert_eq!(with_preset(&changed, Preset::Boxwright).preset, "");
    }
}
