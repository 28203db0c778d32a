//! The label editor, driven by pointer and keys, with edits carried out on a small dataset.

use boxwright::dataset::Label;
use boxwright::dataset::edit::Review;
use boxwright::geom::Size;
use egui::accesskit::Role;
use egui::{Event, Key, Modifiers, PointerButton, Pos2, Rect, pos2, vec2};
use egui_kittest::kittest::{NodeT, Queryable};

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

    fn event(&mut self, event: Event) {
        self.harness.event(event);
        self.harness.run_steps(1);
    }

    /// A point of the image, in its pixels, on the screen.
    fn at(&self, x: f32, y: f32) -> Pos2 {
        // 96 x 64 pixels are enlarged eight times, which is as much as a fitted picture may be.
        self.harness.get_by_label("canvas").rect().center() + vec2(x - 48.0, y - 32.0) * 8.0
    }

    fn button(&mut self, pos: Pos2, pressed: bool, modifiers: Modifiers) {
        self.harness.event_modifiers(Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers }, modifiers);
        self.harness.run_steps(1);
    }

    /// Drags from one point of the image to another.
    fn drag_with(&mut self, modifiers: Modifiers, from: (f32, f32), to: (f32, f32)) {
        let (from, to) = (self.at(from.0, from.1), self.at(to.0, to.1));
        self.event(Event::PointerMoved(from));
        self.button(from, true, modifiers);
        self.event(Event::PointerMoved(from + (to - from) / 2.0));
        self.event(Event::PointerMoved(to));
        self.button(to, false, modifiers);
        self.harness.run_steps(3);
    }

    fn drag(&mut self, from: (f32, f32), to: (f32, f32)) {
        self.drag_with(Modifiers::NONE, from, to);
    }

    fn click_with(&mut self, modifiers: Modifiers, x: f32, y: f32) {
        let at = self.at(x, y);
        self.event(Event::PointerMoved(at));
        self.button(at, true, modifiers);
        self.button(at, false, modifiers);
        // Longer than two clicks of a double click.
        self.harness.run_steps(4);
    }

    fn click(&mut self, x: f32, y: f32) {
        self.click_with(Modifiers::NONE, x, y);
    }

    /// Boxes of an image in its pixels, to a hundredth.
    fn rects(&mut self, image: usize) -> Vec<Rect> {
        let round = |value: f32| (value * 100.0).round() / 100.0;
        let rect = |label: &Label| {
            let bbox = label.bbox.to_xyxy(Size::new(96, 64));
            Rect::from_min_max(pos2(round(bbox.x1), round(bbox.y1)), pos2(round(bbox.x2), round(bbox.y2)))
        };
        self.labels(image).iter().map(rect).collect()
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

    /// Draws frames until the first image has so many labels, and all is on disk.
    #[track_caller]
    fn wait_for_labels(&mut self, n: usize) {
        for _ in 0..2000 {
            self.harness.run_steps(1);
            let n_pending = self.harness.state_mut().app().session.dataset.as_ref().unwrap().history.n_pending;
            if self.labels(0).len() == n && n_pending == 0 {
                self.harness.run_steps(2);
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("there are {} labels, not {n}", self.labels(0).len());
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

/// The boxes of the first image, in its pixels.
const FIRST: Rect = Rect::from_min_max(pos2(36.0, 16.0), pos2(60.0, 48.0));
const SECOND: Rect = Rect::from_min_max(pos2(9.6, 6.4), pos2(28.8, 25.6));

fn rect(left: f32, top: f32, right: f32, bottom: f32) -> Rect {
    Rect::from_min_max(pos2(left, top), pos2(right, bottom))
}

#[test]
fn a_drag_on_an_empty_place_draws_a_box_and_selects_it() {
    let mut editor = Editor::open();
    editor.key(Key::Num2);
    editor.drag((85.0, 25.0), (65.0, 5.0));
    assert_eq!(editor.rects(0), [FIRST, SECOND, rect(65.0, 5.0, 85.0, 25.0)]);
    assert_eq!((editor.classes(0), editor.last_edit()), (vec![0, 1, 1], "Add box".to_owned()));
    editor.key(Key::Delete);
    assert_eq!(editor.rects(0), [FIRST, SECOND]);
}

#[test]
fn two_clicks_draw_a_box_also_above_others() {
    let mut editor = Editor::open();
    editor.key(Key::W);
    editor.click(40.0, 20.0);
    assert_eq!(editor.labels(0).len(), 2, "the first corner is no box");
    editor.click(70.0, 50.0);
    assert_eq!(editor.rects(0)[2..], [rect(40.0, 20.0, 70.0, 50.0)]);
    editor.key(Key::R);
    editor.drag((38.0, 18.0), (50.0, 30.0));
    assert_eq!(editor.rects(0)[3..], [rect(38.0, 18.0, 50.0, 30.0)], "after R a drag on a box draws too");
}

#[test]
fn a_box_is_drawn_by_keys_alone() {
    let mut editor = Editor::open();
    editor.key(Key::W);
    for _ in 0..2 {
        editor.press(Modifiers::SHIFT, Key::ArrowRight);
    }
    editor.key(Key::ArrowUp);
    editor.key(Key::Enter);
    editor.press(Modifiers::SHIFT, Key::ArrowDown);
    editor.press(Modifiers::SHIFT, Key::ArrowRight);
    editor.key(Key::ArrowRight);
    editor.key(Key::Enter);
    assert_eq!(editor.rects(0)[2..], [rect(68.0, 31.0, 79.0, 41.0)], "from the middle of the view");
    editor.harness.get_by_label_contains("part0.png");
    editor.key(Key::Escape);
    editor.key(Key::ArrowRight);
    editor.harness.get_by_label_contains("part1.png");
}

#[test]
fn corners_near_the_edge_of_the_image_lie_on_it() {
    let mut editor = Editor::open();
    editor.drag((70.0, 50.0), (95.6, 63.8));
    assert_eq!(editor.rects(0)[2..], [rect(70.0, 50.0, 96.0, 64.0)]);
}

#[test]
fn boxes_are_moved_and_resized_by_the_pointer_up_to_the_edge() {
    let mut editor = Editor::open();
    editor.click(48.0, 32.0);
    editor.drag((60.0, 48.0), (70.0, 56.0));
    assert_eq!(editor.rects(0), [rect(36.0, 16.0, 70.0, 56.0), SECOND]);
    assert_eq!(editor.last_edit(), "Resize box");
    editor.drag((36.0, 36.0), (80.0, 40.0));
    assert_eq!(editor.rects(0)[0], rect(70.0, 16.0, 80.0, 56.0), "the left side went past the right one");
    editor.drag((75.0, 30.0), (5.0, 200.0));
    assert_eq!(editor.rects(0)[0], rect(0.0, 24.0, 10.0, 64.0));
    assert_eq!(editor.last_edit(), "Move box");
}

#[test]
fn arrows_move_and_resize_what_is_selected() {
    let mut editor = Editor::open();
    let before = editor.labels(0);
    editor.key(Key::Tab);
    editor.key(Key::ArrowRight);
    editor.press(Modifiers::SHIFT, Key::ArrowUp);
    assert_eq!(editor.rects(0), [rect(37.0, 6.0, 61.0, 38.0), SECOND]);
    editor.press(Modifiers::COMMAND, Key::ArrowLeft);
    editor.press(Modifiers::COMMAND | Modifiers::SHIFT, Key::ArrowDown);
    assert_eq!(editor.rects(0), [rect(37.0, 6.0, 60.0, 48.0), SECOND]);
    assert_eq!(editor.labels(0)[1], before[1]);
    editor.harness.get_by_label_contains("part0.png");
}

#[test]
fn several_boxes_are_selected_by_a_band_and_by_clicks() {
    let mut editor = Editor::open();
    editor.drag_with(Modifiers::SHIFT, (2.0, 2.0), (64.0, 52.0));
    editor.drag((48.0, 32.0), (50.0, 33.0));
    assert_eq!(editor.rects(0), [FIRST, SECOND].map(|rect| rect.translate(vec2(2.0, 1.0))));
    assert_eq!(editor.last_edit(), "Move 2 boxes");
    editor.click(90.0, 5.0);
    editor.click_with(Modifiers::COMMAND, 50.0, 33.0);
    editor.click_with(Modifiers::COMMAND, 15.0, 15.0);
    editor.click_with(Modifiers::COMMAND, 50.0, 33.0);
    editor.key(Key::Delete);
    assert_eq!(editor.classes(0), [0], "the first was taken out of the selection again");
}

#[test]
fn repeated_clicks_go_from_the_small_box_to_the_large_one_below() {
    let mut editor = Editor::open();
    editor.key(Key::W);
    editor.drag((2.0, 2.0), (90.0, 60.0));
    editor.key(Key::Escape);
    editor.click(48.0, 32.0);
    editor.click(48.0, 32.0);
    editor.key(Key::Delete);
    assert_eq!(editor.rects(0), [FIRST, SECOND], "the second click took the large one");
}

#[test]
fn the_pointer_passes_through_locked_boxes() {
    let mut editor = Editor::open();
    editor.click(48.0, 32.0);
    editor.key(Key::L);
    editor.key(Key::Escape);
    editor.drag((40.0, 20.0), (50.0, 30.0));
    assert_eq!(editor.rects(0), [FIRST, SECOND, rect(40.0, 20.0, 50.0, 30.0)]);
    editor.harness.get_by_label("Lock box 2").click();
    editor.harness.run_steps(3);
    editor.click(20.0, 15.0);
    editor.key(Key::Delete);
    assert_eq!(editor.labels(0).len(), 3);
}

#[test]
fn a_class_is_found_by_typing() {
    let mut editor = Editor::open();
    editor.click(48.0, 32.0);
    editor.press(Modifiers::COMMAND, Key::E);
    editor.event(Event::Text("en".to_owned()));
    editor.key(Key::Enter);
    assert_eq!((editor.classes(0), editor.last_edit()), (vec![1, 1], "Change class to dent".to_owned()));
    editor.press(Modifiers::COMMAND, Key::E);
    editor.key(Key::Escape);
    editor.harness.get_by_label("canvas");
    assert!(editor.harness.query_by_label("class dent").is_none(), "Escape closed the list and nothing else");
}

#[test]
fn a_drawn_box_asks_for_its_class_where_that_is_wished_and_enter_takes_the_last() {
    let mut editor = Editor::open();
    editor.harness.get_by_label("View").click();
    editor.harness.run_steps(3);
    editor.harness.get_by_label("Ask for the class").click();
    editor.harness.run_steps(3);
    editor.key(Key::Escape);
    editor.drag((65.0, 5.0), (85.0, 25.0));
    assert_eq!(editor.labels(0).len(), 2, "it waits for its class");
    editor.event(Event::Text("dent".to_owned()));
    editor.key(Key::Enter);
    assert_eq!(editor.classes(0), [0, 1, 1]);
    assert_eq!(editor.last_edit(), "Add box", "one step of undo");
    editor.drag((65.0, 35.0), (85.0, 55.0));
    editor.key(Key::Enter);
    assert_eq!(editor.classes(0), [0, 1, 1, 1]);
    editor.drag((4.0, 35.0), (25.0, 55.0));
    editor.key(Key::Escape);
    assert_eq!(editor.labels(0).len(), 4, "Escape gives the box up");
    editor.drag((4.0, 35.0), (25.0, 55.0));
    editor.press(Modifiers::COMMAND, Key::E);
    assert_eq!(editor.classes(0), [0, 1, 1, 1, 1], "so does nothing else");
}

#[test]
fn light_and_drawing_are_set_by_keys_and_hold_when_classes_change() {
    let mut editor = Editor::open();
    editor.key(Key::CloseBracket);
    editor.press(Modifiers::SHIFT, Key::OpenBracket);
    editor.harness.get_by_label("View •").click();
    editor.harness.run_steps(3);
    let value = |editor: &Editor, name: &str| editor.harness.get_by_role_and_label(Role::Slider, name).accesskit_node().numeric_value();
    assert_eq!((value(&editor, "Brightness"), value(&editor, "Contrast")), (Some(10.0), Some(-10.0)));
    editor.key(Key::Escape);
    editor.key(Key::Backslash);
    editor.harness.get_by_label("View");
}

#[test]
fn escape_drops_a_draft_and_never_saves_it() {
    let mut editor = Editor::open();
    let before = editor.labels(0);
    editor.key(Key::W);
    editor.click(40.0, 20.0);
    editor.key(Key::Escape);
    editor.click(70.0, 50.0);
    assert_eq!(editor.labels(0), before);
    let (from, to) = (editor.at(48.0, 32.0), editor.at(60.0, 40.0));
    editor.event(Event::PointerMoved(from));
    editor.button(from, true, Modifiers::NONE);
    editor.event(Event::PointerMoved(to));
    editor.key(Key::Escape);
    editor.button(to, false, Modifiers::NONE);
    editor.harness.run_steps(3);
    assert_eq!(editor.labels(0), before);
    assert_eq!(editor.last_edit(), "");
    editor.harness.get_by_label("canvas");
    editor.key(Key::Escape);
    editor.key(Key::Escape);
    assert!(editor.harness.query_by_label("canvas").is_none(), "with nothing left to end, it leads back to the grid");
}

#[test]
fn space_held_moves_the_picture_and_marks_nothing() {
    let mut editor = Editor::open();
    editor.harness.key_down(Key::Space);
    editor.harness.run_steps(1);
    editor.drag((48.0, 32.0), (60.0, 40.0));
    editor.harness.key_up(Key::Space);
    editor.harness.run_steps(3);
    assert_eq!(editor.review(0), Review::Unreviewed);
    assert_eq!(editor.rects(0), [FIRST, SECOND]);
    // The picture lies twelve pixels farther right now.
    editor.click(60.0, 40.0);
    editor.key(Key::Delete);
    assert_eq!(editor.rects(0), [SECOND]);
}

#[test]
fn space_marks_the_image_on_which_it_went_down() {
    let mut editor = Editor::open();
    editor.harness.key_down(Key::Space);
    editor.harness.run_steps(1);
    editor.key(Key::D);
    assert_eq!((editor.review(0), editor.review(1)), (Review::Reviewed, Review::Unreviewed));
    editor.harness.key_up(Key::Space);
    editor.harness.run_steps(3);
    assert_eq!((editor.review(0), editor.review(1)), (Review::Reviewed, Review::Unreviewed));
    editor.harness.key_down(Key::Space);
    editor.harness.run_steps(1);
    editor.key(Key::G);
    editor.harness.key_up(Key::Space);
    editor.key(Key::G);
    assert_eq!(editor.review(1), Review::Reviewed, "also when the grid comes before the key is up");
}

#[test]
fn moving_the_picture_leaves_half_a_box_as_it_is() {
    let mut editor = Editor::open();
    editor.key(Key::W);
    editor.click(40.0, 20.0);
    editor.harness.key_down(Key::Space);
    editor.harness.run_steps(1);
    editor.drag((48.0, 32.0), (50.0, 34.0));
    editor.harness.key_up(Key::Space);
    editor.drag_with(Modifiers::COMMAND, (48.0, 32.0), (50.0, 34.0));
    assert_eq!(editor.rects(0), [FIRST, SECOND]);
    // The picture lies four pixels farther right and down now.
    editor.click(74.0, 54.0);
    assert_eq!(editor.rects(0)[2..], [rect(40.0, 20.0, 70.0, 50.0)]);
}

#[test]
fn two_keys_of_one_frame_are_about_what_is_there_after_the_first() {
    let mut editor = Editor::open();
    editor.key(Key::Tab);
    let press = Event::Key { key: Key::Delete, physical_key: None, pressed: true, repeat: false, modifiers: Modifiers::NONE };
    editor.harness.input_mut().events.extend([press.clone(), press]);
    editor.harness.run_steps(4);
    assert_eq!(editor.classes(0), [1], "the second was never selected");
}

#[test]
fn boxes_that_are_hidden_are_not_changed() {
    let mut editor = Editor::open();
    editor.key(Key::Tab);
    editor.press(Modifiers::COMMAND, Key::H);
    editor.key(Key::Delete);
    editor.key(Key::Num2);
    editor.press(Modifiers::SHIFT, Key::ArrowDown);
    assert_eq!((editor.rects(0), editor.classes(0)), (vec![FIRST, SECOND], vec![0, 1]));
    editor.press(Modifiers::COMMAND, Key::H);
    editor.key(Key::Delete);
    assert_eq!(editor.rects(0), [SECOND]);
}

#[test]
fn edits_are_undone_and_redone_by_keys_and_buttons() {
    let mut editor = Editor::open();
    wait_for(&mut editor.harness, "Saved");
    editor.key(Key::Tab);
    editor.key(Key::Delete);
    assert_eq!(editor.rects(0), [SECOND]);
    editor.press(Modifiers::COMMAND, Key::Z);
    editor.wait_for_labels(2);
    editor.press(Modifiers::COMMAND, Key::Y);
    editor.wait_for_labels(1);
    editor.harness.get_by_label("Undo").click();
    editor.wait_for_labels(2);
    editor.press(Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    editor.wait_for_labels(1);
}

#[test]
fn what_another_program_wrote_is_a_conflict_when_the_image_is_turned_to() {
    let mut editor = Editor::open();
    let file = editor.harness.state_mut().app().session.dataset.as_ref().unwrap().dataset.images[0].label_path.clone();
    editor.key(Key::D);
    wait_for(&mut editor.harness, "Saved");
    std::fs::write(&file, "0 0.5 0.5 0.25 0.5\n").unwrap();
    editor.key(Key::A);
    wait_for(&mut editor.harness, "Another program changed");
    assert_eq!(editor.rects(0), [FIRST]);
    editor.harness.get_by_label("Mine").click();
    editor.wait_for_labels(2);
    assert_eq!(editor.rects(0), [FIRST, SECOND]);
    assert!(editor.harness.query_by_label_contains("Another program changed").is_none());
}

#[test]
fn rows_that_training_drops_are_listed_with_their_reason() {
    let mut editor = Editor::open();
    for _ in 0..3 {
        editor.key(Key::D);
    }
    wait_for(&mut editor.harness, "dropped line 2: the same class and coordinates as in line 1");
}

#[test]
fn another_change_of_the_labels_drops_selection_and_draft() {
    let mut editor = Editor::open();
    editor.click(48.0, 32.0);
    let (from, to) = (editor.at(48.0, 32.0), editor.at(60.0, 40.0));
    editor.event(Event::PointerMoved(from));
    editor.button(from, true, Modifiers::NONE);
    editor.event(Event::PointerMoved(to));
    let elsewhere = boxwright::dataset::edit::Edit::of_image("Elsewhere", 0, vec![boxwright::dataset::edit::LabelOp::Remove { index: 0 }]);
    editor.harness.state_mut().app().session.apply(boxwright::session::Command::Edit(elsewhere));
    editor.harness.run_steps(2);
    editor.button(to, false, Modifiers::NONE);
    editor.key(Key::Delete);
    assert_eq!(editor.rects(0), [SECOND]);
}
