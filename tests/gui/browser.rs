//! Browsing many images: query line and completion, choosing, order, list, tags, statistics, all by pointer and keys.

use boxwright::dataset::edit::{Mark, Review};
use boxwright::gui::action::Workspace;
use egui::accesskit::Toggled;
use egui::{Key, Modifiers, PointerButton};
use egui_kittest::kittest::{NodeT, Queryable};

use crate::fixture::{self, Driver};
use crate::script::wait_for;

struct Browser {
    harness: Driver,
    _dir: tempfile::TempDir,
}

impl Browser {
    /// The small dataset in the grid: four images to train with, two to validate, `part5.png` without labels.
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let yaml = fixture::write_dataset(&dir.path().join("parts"));
        let mut session = fixture::session(dir.path());
        fixture::open(&mut session, &yaml);
        Self { harness: fixture::harness(session, [1280.0, 800.0], true), _dir: dir }
    }

    fn steps(&mut self) {
        self.harness.run_steps(4);
    }

    fn key(&mut self, key: Key) {
        self.press(Modifiers::NONE, key);
    }

    fn press(&mut self, modifiers: Modifiers, key: Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.steps();
    }

    fn click(&mut self, label: &str) {
        self.harness.get_by_label(label).click();
        self.steps();
    }

    fn click_with(&mut self, modifiers: Modifiers, label: &str) {
        self.harness.get_by_label(label).click_modifiers(modifiers);
        self.steps();
    }

    fn type_query(&mut self, text: &str) {
        self.press(Modifiers::COMMAND, Key::F);
        self.press(Modifiers::COMMAND, Key::A);
        self.harness.event(egui::Event::Text(text.to_owned()));
        self.steps();
    }

    fn query(&self) -> String {
        self.harness.get_by_label("Query").value().unwrap_or_default()
    }

    /// The images in view by their numbers, in the order of the screen.
    fn images(&self) -> Vec<usize> {
        let mut places: Vec<(i32, i32, usize)> = (0..6)
            .filter_map(|index| {
                let name = format!("image part{index}.png");
                let corner = self.harness.query_by_label(&name)?.rect().min;
                Some((corner.y as i32, corner.x as i32, index))
            })
            .collect();
        places.sort_unstable();
        places.into_iter().map(|(.., index)| index).collect()
    }

    fn chosen(&self) -> Vec<usize> {
        let is_chosen = |index: &usize| {
            let name = format!("image part{index}.png");
            let node = self.harness.query_by_label(&name);
            node.is_some_and(|node| node.accesskit_node().toggled() == Some(Toggled::True))
        };
        (0..6).filter(is_chosen).collect()
    }

    fn has(&self, text: &str) -> bool {
        self.harness.query_by_label_contains(text).is_some()
    }

    fn marks(&mut self) -> Vec<Mark> {
        let mut marks = self.harness.state_mut().app().session.dataset.as_ref().unwrap().marks.to_vec();
        marks.resize(6, Mark::default());
        marks
    }

    fn reviews(&mut self) -> Vec<Review> {
        self.marks().into_iter().map(|mark| mark.review).collect()
    }
}

#[test]
fn a_query_narrows_the_grid_and_a_wrong_one_is_told_in_place() {
    let mut browser = Browser::open();
    browser.type_query("class:dent -split:val");
    assert_eq!(browser.images(), [0, 1, 3]);
    assert!(browser.has("3 of 6 images"));
    browser.type_query("class:dnet");
    browser.key(Key::Escape);
    assert!(browser.has("No class is called \"dnet\"") && browser.has("Did you mean \"dent\"?"));
    assert_eq!(browser.images(), [0, 1, 3], "the images stay those of the last right query");
    browser.click("Clear the query");
    assert_eq!((browser.images(), browser.query()), (vec![0, 1, 2, 3, 4, 5], String::new()));
    browser.type_query("boxes>100");
    assert!(browser.has("No image passes the query"));
}

#[test]
fn completions_are_taken_by_keys() {
    let mut browser = Browser::open();
    browser.type_query("cl");
    assert!(browser.has("Has a box of this class"));
    browser.key(Key::Tab);
    assert_eq!(browser.query(), "class:");
    browser.key(Key::ArrowDown);
    browser.key(Key::Tab);
    assert_eq!((browser.query(), browser.images()), ("class:dent ".to_owned(), vec![0, 1, 3]));
    browser.harness.event(egui::Event::Text("sp".to_owned()));
    browser.steps();
    assert!(browser.has("In this split"));
    browser.key(Key::Escape);
    assert!(!browser.has("In this split") && browser.query() == "class:dent sp", "Escape closes the list alone");
}

#[test]
fn rows_of_the_side_write_into_the_query() {
    let mut browser = Browser::open();
    browser.click("val 2");
    assert_eq!((browser.query(), browser.images()), ("split:val".to_owned(), vec![4, 5]));
    browser.click("Background 1");
    assert_eq!((browser.query(), browser.images()), ("split:val boxes:0".to_owned(), vec![5]));
    browser.click("val 2");
    browser.click("Unreviewed 6");
    assert_eq!(browser.query(), "boxes:0 reviewed:no");
    browser.click("All 6");
    assert_eq!(browser.query(), "");
    browser.click("dent 3");
    browser.click_with(Modifiers::COMMAND, "scratch 3");
    assert_eq!((browser.query(), browser.images()), ("class:dent class:scratch".to_owned(), vec![0]));
}

#[test]
fn images_are_chosen_with_the_pointer() {
    let mut browser = Browser::open();
    browser.click("image part1.png");
    assert_eq!(browser.chosen(), [1]);
    browser.click_with(Modifiers::SHIFT, "image part3.png");
    assert_eq!(browser.chosen(), [1, 2, 3]);
    browser.click_with(Modifiers::COMMAND, "image part2.png");
    browser.click_with(Modifiers::COMMAND, "image part5.png");
    assert_eq!(browser.chosen(), [1, 3, 5]);
    assert!(browser.has("3 selected"));
    browser.click("val 2");
    assert!(browser.has("2 not shown"), "what is chosen stays chosen while it is filtered out");
    browser.click("val 2");
    browser.key(Key::Escape);
    assert_eq!(browser.chosen(), [0; 0]);
}

#[test]
fn a_rubber_band_chooses_what_it_touches() {
    let mut browser = Browser::open();
    let first = browser.harness.get_by_label("image part0.png").rect();
    let second = browser.harness.get_by_label("image part1.png").rect();
    let from = first.center();
    let to = second.center();
    browser.harness.hover_at(from);
    browser.harness.drag_at(from);
    browser.harness.run_steps(1);
    for step in 1..=4 {
        browser.harness.hover_at(from.lerp(to, step as f32 / 4.0));
        browser.harness.run_steps(1);
    }
    assert_eq!(browser.chosen(), [0, 1]);
    browser.harness.drop_at(to);
    browser.steps();
    assert_eq!(browser.chosen(), [0, 1]);
}

#[test]
fn keys_go_through_the_grid_and_open_the_editor() {
    let mut browser = Browser::open();
    browser.key(Key::End);
    assert_eq!(browser.chosen(), [5]);
    browser.key(Key::Home);
    browser.key(Key::ArrowRight);
    assert_eq!(browser.chosen(), [1]);
    browser.press(Modifiers::SHIFT, Key::ArrowRight);
    browser.press(Modifiers::SHIFT, Key::ArrowRight);
    assert_eq!(browser.chosen(), [1, 2, 3]);
    browser.press(Modifiers::SHIFT, Key::End);
    assert_eq!(browser.chosen(), [1, 2, 3, 4, 5]);
    browser.key(Key::PageUp);
    browser.press(Modifiers::COMMAND, Key::A);
    assert_eq!(browser.chosen(), [0, 1, 2, 3, 4, 5]);
    browser.key(Key::Home);
    browser.key(Key::Enter);
    browser.harness.get_by_label("canvas");
    assert!(browser.has("1 / 6"));
    browser.key(Key::D);
    assert!(browser.has("2 / 6"));
    browser.key(Key::G);
    assert!(!browser.has("canvas") && browser.images().len() == 6);
}

#[test]
fn the_list_is_sorted_by_a_click_on_a_column() {
    let mut browser = Browser::open();
    browser.key(Key::V);
    assert_eq!(browser.images(), [0, 1, 2, 3, 4, 5]);
    browser.click("Sort by boxes");
    browser.click("Sort by boxes, ascending");
    let by_boxes = browser.images();
    assert_eq!((by_boxes[0], by_boxes[5]), (0, 5), "{by_boxes:?}");
    browser.harness.get_by_label("Sort by boxes, descending");
    browser.key(Key::Home);
    browser.press(Modifiers::SHIFT, Key::ArrowDown);
    assert_eq!(browser.chosen().len(), 2);
    browser.click("Sort by name");
    assert_eq!(browser.images(), [0, 1, 2, 3, 4, 5]);
    browser.click("Ascending order");
    assert_eq!(browser.images(), [5, 4, 3, 2, 1, 0]);
}

/// Draws frames until the review states are such: edits go through a file.
#[track_caller]
fn wait_until(browser: &mut Browser, holds: impl Fn(&[Mark]) -> bool) {
    for _ in 0..2000 {
        browser.harness.run_steps(1);
        if holds(&browser.marks()) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{:?}", browser.marks());
}

#[test]
fn review_states_of_what_is_chosen_are_changed_as_one_edit() {
    use Review::{Empty, Reviewed, Unreviewed};
    let mut browser = Browser::open();
    browser.press(Modifiers::COMMAND, Key::A);
    browser.click("Empty");
    wait_until(&mut browser, |marks| marks[5].review == Empty);
    assert_eq!(browser.reviews(), [Unreviewed, Unreviewed, Unreviewed, Unreviewed, Unreviewed, Empty], "only without boxes");
    assert!(browser.has("5 images with boxes cannot be marked empty"));
    browser.click("image part0.png");
    browser.click_with(Modifiers::SHIFT, "image part2.png");
    browser.click("Reviewed");
    assert_eq!(browser.reviews()[..4], [Reviewed, Reviewed, Reviewed, Unreviewed]);
    browser.press(Modifiers::COMMAND, Key::Z);
    wait_until(&mut browser, |marks| marks[0].review == Unreviewed);
    browser.press(Modifiers::COMMAND, Key::Y);
    wait_until(&mut browser, |marks| marks[2].review == Reviewed);
    browser.type_query("reviewed:no");
    browser.key(Key::Escape);
    browser.key(Key::Escape);
    assert_eq!(browser.images(), [3, 4]);
    browser.type_query("reviewed:yes");
    assert_eq!(browser.images(), [0, 1, 2, 5]);
}

#[test]
fn tags_are_typed_offered_and_asked_for() {
    let mut browser = Browser::open();
    browser.click("image part1.png");
    browser.key(Key::T);
    browser.harness.event(egui::Event::Text("too dark".to_owned()));
    browser.steps();
    browser.key(Key::Enter);
    wait_until(&mut browser, |marks| marks[1].tags == ["too dark"]);
    browser.click("image part4.png");
    browser.key(Key::T);
    browser.key(Key::ArrowDown);
    browser.key(Key::Enter);
    wait_until(&mut browser, |marks| marks[4].tags == ["too dark"]);
    browser.click("too dark 2");
    assert_eq!((browser.query(), browser.images()), ("tag:\"too dark\"".to_owned(), vec![1, 4]));
    browser.click("image part4.png");
    browser.press(Modifiers::SHIFT, Key::T);
    browser.harness.event(egui::Event::Text("too".to_owned()));
    browser.steps();
    browser.key(Key::ArrowDown);
    browser.key(Key::Enter);
    wait_until(&mut browser, |marks| marks[4].tags.is_empty());
    assert_eq!(browser.images(), [1, 4], "the image at work stays until it is left");
}

#[test]
fn a_click_on_a_bar_of_the_statistics_filters() {
    let mut browser = Browser::open();
    browser.click("Statistics");
    wait_for(&mut browser.harness, "bar dent of classes");
    browser.harness.get_by_label_contains("bar dent of classes").click();
    browser.steps();
    assert_eq!((browser.query(), browser.images()), ("class:dent".to_owned(), vec![0, 1, 3]));
    browser.harness.get_by_label_contains("bar dent of classes").click();
    browser.steps();
    assert_eq!(browser.query(), "");
    browser.harness.get_by_label_contains("bar val of splits").click();
    browser.steps();
    assert_eq!(browser.query(), "split:val");
    browser.click("All 6");
    // The map is below: its middle is where most boxes are.
    browser.harness.get_by_label("boxes by place").scroll_to_me();
    browser.steps();
    let place = browser.harness.get_by_label("boxes by place").rect().center() + egui::vec2(1.0, 1.0);
    browser.harness.hover_at(place);
    browser.harness.drag_at(place);
    browser.harness.drop_at(place);
    browser.steps();
    assert_eq!(browser.query(), "x:0.5..0.53125 y:0.5..0.53125");
    assert!(!browser.images().is_empty());
}

#[test]
fn a_right_click_offers_what_can_be_done() {
    let mut browser = Browser::open();
    browser.harness.get_by_label("image part2.png").click_button(PointerButton::Secondary);
    browser.steps();
    browser.harness.get_by_label_contains("Open image").click();
    browser.steps();
    browser.harness.get_by_label("canvas");
    assert!(browser.has("3 / 6"));
    assert_eq!(browser.harness.state_mut().app().window.workspace, Workspace::Data);
}

#[test]
fn chosen_images_are_moved_to_another_split() {
    let mut browser = Browser::open();
    browser.click("image part1.png");
    browser.click_with(Modifiers::COMMAND, "image part2.png");
    browser.click("More");
    browser.harness.get_by_label_contains("Move to val").click();
    browser.steps();
    wait_for(&mut browser.harness, "val 4");
    browser.click("val 4");
    assert_eq!(browser.images(), [1, 2, 4, 5]);
    assert_eq!(browser.chosen(), [1, 2], "what was chosen stays so when the order of images changes");
}
