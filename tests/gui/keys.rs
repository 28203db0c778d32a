//! The key map in the window: presets, changes of a person, scopes, text fields and focus.

use std::sync::Arc;

use boxwright::dataset::Split;
use boxwright::dataset::split::{SplitCounts, SplitPlan};
use boxwright::gui::action::Workspace;
use boxwright::session::{Command, KeySettings, Session};
use egui::accesskit::Role;
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
    assert_eq!(harness.state_mut().take_asked(), ["Check { path: None, images: Header }"]);
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
    assert_eq!(harness.state_mut().take_asked(), ["Check { path: None, images: Header }"]);
    assert_eq!(harness.ctx.memory(egui::Memory::focused), None);
}

#[test]
fn every_action_is_reached_by_typing_in_the_palette() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::P);
    harness.get_by_label("Command").type_text("show tr");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(harness.state_mut().app().window.workspace, Workspace::Train);
    assert!(harness.query_by_label("Command").is_none());
    press(&mut harness, Modifiers::COMMAND, Key::P);
    harness.get_by_label("Command").type_text("part3");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    harness.get_by_label("canvas");
    harness.get_by_label("part3.png");
}

#[test]
fn the_palette_finds_classes_and_goes_through_them_with_arrows() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    press(&mut harness, Modifiers::COMMAND, Key::P);
    harness.get_by_label("Command").type_text("dent");
    harness.run_steps(3);
    harness.get_by_label("Class dent");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert!(harness.query_by_label("image part4.png").is_none(), "it has no dent");
    harness.get_by_label("image part1.png");
}

#[test]
fn what_cannot_be_done_says_why_and_is_not_done() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    press(&mut harness, Modifiers::COMMAND, Key::P);
    harness.get_by_label("Command").type_text("propagate");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    harness.get_by_label("Command");
    assert_eq!(harness.state_mut().take_asked(), [""; 0]);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(harness.query_by_label("Command").is_none());
}

/// What was asked for as the new settings of keys.
#[track_caller]
fn changed(harness: &mut Driver) -> KeySettings {
    let asked = std::mem::take(&mut harness.state_mut().asked);
    let [Command::SetKeys(keys)] = &asked[..] else { panic!("{asked:?}") };
    harness.state_mut().app().session.settings.keys = keys.clone();
    harness.run_steps(3);
    keys.clone()
}

#[test]
fn keys_are_given_by_pressing_them_and_a_clash_is_taken_or_swapped() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    press(&mut harness, Modifiers::COMMAND, Key::K);
    harness.get_by_label("Add keys to Grid").click();
    harness.run_steps(3);
    harness.get_by_label("Press the keys for Grid");
    press(&mut harness, Modifiers::COMMAND, Key::J);
    assert_eq!(changed(&mut harness).changed["ToggleGrid"], ["G", "Ctrl+J"]);

    harness.get_by_label("Add keys to Grid").click();
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::D);
    assert_eq!(harness.state_mut().take_asked(), [""; 0], "it is Next's");
    harness.get_by_label_contains("D belongs to Next");
    harness.get_by_label("Swap").click();
    harness.run_steps(3);
    let keys = changed(&mut harness);
    assert_eq!((&keys.changed["ToggleGrid"][0], &keys.changed["NextImage"][0]), (&"D".to_owned(), &"G".to_owned()));

    harness.get_by_label("Take F10 from Pause or continue").scroll_to_me();
    harness.run_steps(3);
    harness.get_by_label("Take F10 from Pause or continue").click();
    harness.run_steps(3);
    assert_eq!(changed(&mut harness).changed["PauseTraining"], [""; 0]);
    harness.get_by_label("Reset all").click();
    harness.run_steps(3);
    assert_eq!(changed(&mut harness), KeySettings::default());
    harness.get_by_label("CVAT").click();
    harness.run_steps(3);
    assert_eq!(changed(&mut harness), preset("CVAT"));
}

#[test]
fn escape_ends_the_question_for_keys_and_then_the_page() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    press(&mut harness, Modifiers::COMMAND, Key::K);
    harness.get_by_label("Add keys to Grid").click();
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(harness.query_by_label("Press the keys for Grid").is_none());
    harness.get_by_label("Reset all");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(harness.query_by_label("Reset all").is_none());
}

/// A window whose first image has two proposals, one of them where its label is.
fn proposed() -> (Driver, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("parts"));
    let mut session = fixture::session(dir.path());
    fixture::open(&mut session, &yaml);
    fixture::propose(
        &mut session,
        0,
        &[(1, [0.7, 0.7, 0.2, 0.2], 0.82), (0, [0.5, 0.5, 0.25, 0.5], 0.95), (0, [0.2, 0.8, 0.1, 0.2], 0.41)],
    );
    fixture::propose(&mut session, 3, &[(1, [0.2, 0.2, 0.2, 0.2], 0.52)]);
    (fixture::harness(session, [1280.0, 800.0], true), dir)
}

fn n_labels(harness: &mut Driver, image: usize) -> usize {
    harness.state_mut().app().session.labels(image).len()
}

#[test]
fn proposals_are_accepted_and_rejected_by_keys_and_are_no_labels_before() {
    let (mut harness, _dir) = proposed();
    press(&mut harness, Modifiers::NONE, Key::G);
    harness.get_by_label("2 proposals");
    assert!(harness.query_by_label("proposal scratch 0.95").is_none(), "a label is there already");
    assert_eq!(n_labels(&mut harness, 0), 2);
    press(&mut harness, Modifiers::NONE, Key::ArrowDown);
    press(&mut harness, Modifiers::NONE, Key::J);
    harness.get_by_label("1 proposal");
    assert_eq!(n_labels(&mut harness, 0), 2);
    press(&mut harness, Modifiers::SHIFT, Key::J);
    assert!(harness.query_by_label_contains("proposal scratch").is_none());
    press(&mut harness, Modifiers::NONE, Key::D);
    for n_back in ["1 proposal", "2 proposals"] {
        press(&mut harness, Modifiers::SHIFT, Key::U);
        harness.get_by_label("part0.png");
        harness.get_by_label(n_back);
    }
    assert!(harness.query_by_label("Bring back").is_none(), "nothing is rejected any more");
    press(&mut harness, Modifiers::NONE, Key::ArrowDown);
    press(&mut harness, Modifiers::NONE, Key::J);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert!(harness.query_by_label("1 proposal").is_none());
    let app = harness.state_mut().app();
    assert_eq!(app.session.labels(0)[2].class.0, 1);
    assert_eq!(app.session.dataset.as_ref().unwrap().history.undo.as_deref(), Some("Accept proposal"));
}

#[test]
fn sure_proposals_are_accepted_together_and_the_uncertain_image_comes_first() {
    let (mut harness, _dir) = proposed();
    press(&mut harness, Modifiers::NONE, Key::U);
    harness.get_by_label("part3.png");
    harness.get_by_label("proposal dent 0.52");
    press(&mut harness, Modifiers::NONE, Key::U);
    harness.get_by_label("part0.png");
    press(&mut harness, Modifiers::SHIFT, Key::Enter);
    assert_eq!(n_labels(&mut harness, 0), 3, "only one has a score of 0.6");
    harness.get_by_label("proposal scratch 0.41");
}

#[test]
fn prelabelling_asks_for_images_and_weights() {
    let (mut harness, _dir) = opened(KeySettings::default(), |session| session.weights = Some("w.safetensors".into()));
    press(&mut harness, Modifiers::NONE, Key::I);
    harness.get_by_label("Propose on 6 images");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    let asked = harness.state_mut().take_asked();
    let expected =
        "Prelabel(PrelabelRequest { images: [0, 1, 2, 3, 4, 5], weights: \"w.safetensors\", device: Cpu, min_score: 0.25, iou: 0.45 })";
    assert_eq!(asked, [expected]);
    assert!(harness.query_by_label("Propose on 6 images").is_none());
}

/// The class edit that was asked for, as text.
#[track_caller]
fn class_edit(harness: &mut Driver) -> String {
    let asked = harness.state_mut().take_asked();
    let [edit] = &asked[..] else { panic!("{asked:?}") };
    edit.strip_prefix("EditClasses(").unwrap().strip_suffix(')').unwrap().to_owned()
}

fn click(harness: &mut Driver, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

#[test]
fn classes_are_added_renamed_merged_deleted_and_coloured() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::C);
    harness.get_by_label("New class").focus();
    harness.run_steps(2);
    harness.get_by_label("New class").type_text("crack");
    harness.run_steps(3);
    click(&mut harness, "Add");
    assert_eq!(class_edit(&mut harness), "Add { name: \"crack\" }");
    click(&mut harness, "Rename dent");
    fixture::write_field(&mut harness, Role::TextInput, "Class name", "bump");
    assert_eq!(class_edit(&mut harness), "Rename { class: ClassId(1), name: \"bump\" }");
    click(&mut harness, "Merge dent");
    click(&mut harness, "Merge 3 boxes");
    assert_eq!(class_edit(&mut harness), "Merge { from: ClassId(1), into: ClassId(0), ids: Keep }");
    click(&mut harness, "Delete dent");
    click(&mut harness, "Delete class");
    assert_eq!(harness.state_mut().take_asked(), [""; 0], "it has boxes");
    click(&mut harness, "Delete its 3 boxes, too");
    click(&mut harness, "Delete class");
    assert_eq!(class_edit(&mut harness), "Delete { class: ClassId(1), boxes: Delete, ids: Keep }");
    click(&mut harness, "Colour of scratch");
    click(&mut harness, "Sky blue");
    assert_eq!(class_edit(&mut harness), "Recolor { class: ClassId(0), color: Some([86, 180, 233]) }");
}

#[test]
fn a_split_is_previewed_before_it_is_applied() {
    let (mut harness, _dir) = opened(KeySettings::default(), |_| {});
    click(&mut harness, "Split…");
    click(&mut harness, "Apply");
    assert_eq!(harness.state_mut().take_asked(), [""; 0], "nothing was looked at");
    click(&mut harness, "Preview");
    let asked = harness.state_mut().take_asked();
    assert_eq!(asked, ["PlanSplit(SplitOptions { val: 0.2, test: 0.0, seed: 0, groups_by_name: true })"]);
    let counts = [4, 2, 0].map(|n_images| SplitCounts { n_images, n_backgrounds: 0, boxes: vec![n_images + 5, 1] });
    let plan = SplitPlan { splits: vec![Split::Train; 6], n_groups: 6, n_joined: [0; 3], counts, notes: vec![] };
    harness.state_mut().app().session.split_plan = Some(Arc::new(plan));
    harness.run_steps(3);
    harness.get_by_label("4  (67 %)");
    click(&mut harness, "Apply");
    assert_eq!(harness.state_mut().take_asked(), ["ApplySplit"]);
}
