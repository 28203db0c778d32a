//! The window without eyes and without a pointer: every control has a name, and shows when the keyboard is on it.

use std::sync::Arc;

use boxwright::gui::action::Workspace;
use boxwright::session::JobKind;
use egui::accesskit::{Action, Role};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable, by};

use crate::fixture::{self, Driver};

/// Controls that a screen reader would call nothing, as `role at rectangle`. Text that can be selected is its own name.
fn nameless(harness: &Driver) -> Vec<String> {
    let is_control = |role: Role, clicks: bool| {
        let typed = matches!(role, Role::TextInput | Role::MultilineTextInput | Role::Slider | Role::SpinButton | Role::ComboBox);
        (clicks || typed)
            && !matches!(role, Role::Label | Role::Window | Role::GenericContainer | Role::Document | Role::ScrollView | Role::ScrollBar)
    };
    let controls = harness.query_all(by().predicate(move |node| {
        let data = node.data();
        is_control(node.role(), data.supports_action(Action::Click)) && node.label().is_none_or(|label| label.trim().is_empty())
    }));
    controls.map(|node| format!("{:?} at {:?}", node.accesskit_node().role(), node.rect())).collect()
}

/// A window with something in every workspace.
fn full() -> (Driver, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let yaml = fixture::write_dataset(&dir.path().join("parts"));
    let mut session = fixture::session(dir.path());
    fixture::open(&mut session, &yaml);
    session.settings.recent = vec![yaml];
    session.report = Some(Arc::new(fixture::report(&session.dataset.as_ref().unwrap().dataset, 30)));
    session.receipt = Some(fixture::receipt());
    session.run = Some(fixture::run(60, 12));
    session.jobs.push(fixture::job(5, JobKind::Train, 300, 1500));
    session.notices.push(fixture::error_notice());
    session.weights = Some("w.safetensors".into());
    session.detection_names = vec!["scratch".to_owned(), "dent".to_owned()];
    session.detections = fixture::detections(&session);
    (fixture::harness(session, [1280.0, 800.0], false), dir)
}

#[test]
fn every_control_of_every_workspace_has_a_name() {
    let (mut harness, _dir) = full();
    let mut found = Vec::new();
    let mut look = |harness: &Driver, place: &str| found.extend(nameless(harness).into_iter().map(|control| format!("{place}: {control}")));
    for workspace in Workspace::ALL {
        harness.state_mut().app().window.workspace = workspace;
        harness.run_steps(3);
        look(&harness, workspace.title());
    }
    harness.state_mut().app().window.workspace = Workspace::Train;
    harness.run_steps(3);
    for page in ["Before", "Detections", "Queue", "Compare"] {
        harness.get_by_label(page).click();
        harness.run_steps(3);
        look(&harness, page);
    }
    harness.state_mut().app().window.workspace = Workspace::Data;
    for (place, modifiers, key) in [
        ("image", Modifiers::NONE, Key::G),
        ("help", Modifiers::NONE, Key::F1),
        ("palette", Modifiers::COMMAND, Key::P),
        ("keys", Modifiers::COMMAND, Key::K),
        ("keys away", Modifiers::COMMAND, Key::K),
        ("classes", Modifiers::COMMAND | Modifiers::SHIFT, Key::C),
        ("classes away", Modifiers::NONE, Key::Escape),
        ("pre-label", Modifiers::NONE, Key::I),
    ] {
        harness.run_steps(2);
        harness.key_press_modifiers(modifiers, key);
        harness.run_steps(3);
        look(&harness, place);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_first_screen_has_names_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = fixture::session(dir.path());
    session.settings.recent = vec!["/data/parts/data.yaml".into()];
    let harness = fixture::harness(session, [1280.0, 800.0], false);
    assert_eq!(nameless(&harness), [""; 0]);
}

#[test]
fn the_control_that_has_the_focus_has_a_ring() {
    let (mut harness, _dir) = full();
    for workspace in Workspace::ALL {
        harness.state_mut().app().window.workspace = workspace;
        harness.run_steps(3);
        for _ in 0..12 {
            harness.key_press(Key::Tab);
            harness.run_steps(2);
            let id = harness.ctx.memory(egui::Memory::focused).unwrap();
            if egui::text_edit::TextEditState::load(&harness.ctx, id).is_some() {
                continue;
            }
            let focused = harness.ctx.read_response(id).unwrap();
            // What is laid out may still settle by a fraction of a point.
            let near = |ring: egui::Rect| {
                (ring.min - focused.rect.min).abs().max_elem() < 4.0 && (ring.max - focused.rect.max).abs().max_elem() < 4.0
            };
            let is_ring = |shape: &egui::epaint::ClippedShape| match &shape.shape {
                egui::Shape::Rect(rect) => rect.stroke.width == 2.0 && near(rect.rect),
                _ => false,
            };
            assert!(harness.output().shapes.iter().any(is_ring), "{workspace:?}: {:?}", focused.rect);
        }
    }
}
