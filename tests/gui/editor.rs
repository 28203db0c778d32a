//! The label editor, driven by pointer and keys, with edits carried out on a small dataset.

use boxwright::dataset::Label;
use boxwright::dataset::edit::Review;
use egui::{Key, Modifiers};

use crate::fixture::{self, Driver};
use crate::script::wait_for;

const SIZE: [f32; 2] = [1280.0, 800.0];

struct Editor {
    harness: Driver,
    _dir: tempfile::TempDir,
}

impl Editor {
    /// The first image of the small dataset in the editor.
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let yaml = fixture::write_dataset(&dir.path().join("parts"));
        let mut session = fixture::session(dir.path());
        fixture::open(&mut session, &yaml);
        let mut harness = fixture::harness(session, SIZE, true);
        harness.key_press(Key::G);
        wait_for(&mut harness, "canvas");
        // The size of the picture is known when it is decoded.
        for _ in 0..20 {
            harness.run_steps(1);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Self { harness, _dir: dir }
    }

    fn press(&mut self, modifiers: Modifiers, key: Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.harness.run_steps(3);
    }

    fn key(&mut self, key: Key) {
        self.press(Modifiers::NONE, key);
    }

    fn labels(&mut self, image: usize) -> Vec<Label> {
        self.harness.state_mut().app().session.labels(image).to_vec()
    }

    fn classes(&mut self, image: usize) -> Vec<u32> {
        self.labels(image).iter().map(|label| label.class.0).collect()
    }

    fn review(&mut self, image: usize) -> Review {
        self.harness.state_mut().app().session.dataset.as_ref().unwrap().marks.get(image).map_or(Review::Unreviewed, |mark| mark.review)
    }

    /// The name of the edit that undo would take back.
    fn last_edit(&mut self) -> String {
        self.harness.state_mut().app().session.dataset.as_ref().unwrap().history.undo.clone().unwrap_or_default()
    }
}

#[test]
fn boxes_are_cycled_reclassed_and_deleted_by_keys() {
    let mut editor = Editor::open();
    assert_eq!(editor.classes(0), [0, 1]);
    editor.key(Key::Tab);
    editor.key(Key::Num2);
    assert_eq!(editor.classes(0), [1, 1]);
    assert_eq!(editor.last_edit(), "Change class to dent");
    editor.key(Key::Q);
    assert_eq!(editor.classes(0), [0, 1]);
    editor.press(Modifiers::SHIFT, Key::Tab);
    editor.key(Key::Delete);
    assert_eq!(editor.classes(0), [0], "the box before the first is the last");
    editor.press(Modifiers::COMMAND, Key::A);
    editor.key(Key::Backspace);
    assert_eq!(editor.labels(0), []);
}

#[test]
fn boxes_are_copied_to_another_image_in_place_and_beside_on_their_own() {
    let mut editor = Editor::open();
    let first = editor.labels(0);
    editor.press(Modifiers::COMMAND, Key::A);
    editor.press(Modifiers::COMMAND, Key::C);
    editor.press(Modifiers::COMMAND, Key::V);
    let beside = editor.labels(0);
    assert_eq!((beside.len(), &beside[..2]), (4, &first[..]));
    assert!((beside[2].bbox.cx - first[0].bbox.cx - 10.0 / 96.0).abs() < 1e-6, "{beside:?}");
    editor.key(Key::D);
    editor.press(Modifiers::COMMAND, Key::V);
    assert_eq!(editor.labels(1)[1..], first[..]);
    editor.press(Modifiers::COMMAND, Key::V);
    assert_eq!(editor.labels(1).len(), 3, "equal boxes are not pasted twice");
}

#[test]
fn boxes_of_the_previous_image_are_copied_and_boxes_propagated() {
    let mut editor = Editor::open();
    editor.key(Key::D);
    editor.key(Key::Y);
    let expected = [editor.labels(1)[0], editor.labels(0)[0], editor.labels(0)[1]];
    assert_eq!(editor.labels(1), expected);
    editor.key(Key::Tab);
    editor.press(Modifiers::COMMAND, Key::B);
    assert_eq!(editor.labels(2).len(), 2);
    assert_eq!(editor.last_edit(), "Propagate to 1 image");
}

#[test]
fn locked_boxes_stay_and_hidden_ones_are_passed_by() {
    let mut editor = Editor::open();
    editor.key(Key::Tab);
    editor.key(Key::L);
    editor.key(Key::Delete);
    assert_eq!(editor.labels(0).len(), 2);
    editor.press(Modifiers::SHIFT, Key::H);
    editor.press(Modifiers::COMMAND, Key::A);
    editor.key(Key::Delete);
    assert_eq!(editor.classes(0), [0], "the hidden box was not selected");
}

#[test]
fn images_are_marked_empty_and_reviewed() {
    let mut editor = Editor::open();
    editor.key(Key::N);
    assert_eq!(editor.review(0), Review::Unreviewed, "it has boxes");
    editor.key(Key::Space);
    assert_eq!(editor.review(0), Review::Reviewed);
    editor.press(Modifiers::COMMAND, Key::A);
    editor.key(Key::Delete);
    editor.key(Key::N);
    assert_eq!(editor.review(0), Review::Empty);
    editor.key(Key::Space);
    assert_eq!(editor.review(1), Review::Reviewed, "it went on");
    editor.key(Key::A);
    editor.key(Key::PageDown);
    editor.key(Key::Space);
    assert_eq!(editor.review(2), Review::Reviewed);
}
