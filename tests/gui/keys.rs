//! The key map in the window: presets, changes of a person, scopes, text fields and focus.

use boxwright::gui::action::Workspace;
use boxwright::session::{KeySettings, Session};
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;

use crate::fixture::{self, Driver};

/// A window over an open dataset with these keys.
fn opened(keys: KeySettings, fill: impl FnOnce(&mut Session)) -> (Driver, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("parts"));
    let mut session = fixture::session(dir.path());
    session.settings.keys = keys;
    fixture::open(&mut session, &yaml);
    fill(&mut session);
    (fixture::harness(session, [1280.0, 800.0], false), dir)
}

fn preset(name: &str) -> KeySettings {
    KeySettings { preset: name.to_owned(), ..KeySettings::default() }
}

fn press(harness: &mut Driver, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    harness.run_steps(3);
}

#[test]
fn with_the_preset_of_cvat_f_is_next_and_d_is_previous() {
    let (mut harness, _dir) = opened(preset("CVAT"), |_| {});
    harness.get_by_label("image part1.png").click();
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::F);
    harness.get_by_label_contains("part2.png");
    press(&mut harness, Modifiers::NONE, Key::D);
    press(&mut harness, Modifiers::NONE, Key::D);
    harness.get_by_label_contains("part0.png");
}

#[test]
fn keys_of_the_settings_that_mean_nothing_are_told() {
    let mut keys = preset("CVAT");
    keys.changed.insert("Levitate".to_owned(), vec!["L".to_owned()]);
    let (mut harness, _dir) = opened(keys, |_| {});
    let asked = harness.state_mut().take_asked();
    assert!(asked.len() == 1 && asked[0].starts_with("Tell") && asked[0].contains("Levitate"), "{asked:?}");
}

#[test]
fn the_sheet_shows_the_keys_of_the_place_as_they_are() {
    let (mut harness, _dir) = opened(preset("labelImg"), |_| {});
    press(&mut harness, Modifiers::SHIFT, Key::Questionmark);
    harness.get_by_label_contains("What the keys do in the grid. Preset labelImg");
    harness.get_by_label("Ctrl+F  Ctrl+0");
    assert!(harness.query_by_label("Validate now").is_none());
    press(&mut harness, Modifiers::NONE, Key::F7);
    assert_eq!(harness.state_mut().take_asked(), [""; 0], "the sheet is in front");
    press(&mut harness, Modifiers::NONE, Key::F1);
    assert!(harness.query_by_label_contains("What the keys do").is_none());
}

#[test]
fn a_focused_button_keeps_the_keys_that_press_it() {
    let mut keys = KeySettings::default();
    keys.changed.insert("Check".to_owned(), vec!["Enter".to_owned()]);
    let (mut harness, _dir) = opened(keys, |_| {});
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(harness.state_mut().take_asked(), ["Check { path: None }"]);
    harness.state_mut().app().window.workspace = Workspace::Data;
    harness.run_steps(2);
    harness.get_by_label("Open…").focus();
    harness.run_steps(2);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(harness.state_mut().take_asked(), ["Browse(Dataset)"]);
}

#[test]
fn a_key_of_the_map_does_not_move_the_focus() {
    let mut keys = KeySettings::default();
    keys.changed.insert("Check".to_owned(), vec!["Tab".to_owned()]);
    let (mut harness, _dir) = opened(keys, |_| {});
    press(&mut harness, Modifiers::NONE, Key::Tab);
    assert_eq!(harness.state_mut().take_asked(), ["Check { path: None }"]);
    assert_eq!(harness.ctx.memory(egui::Memory::focused), None);
}
