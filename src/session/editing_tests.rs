//! Edits through a session over a dataset on disk: shown at once, durable, taken back, refused, in conflict.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::editing::Resolution;
use super::ledger::Request;
use super::ledger_news::LedgerNews;
use super::{Command, Event, Session, Settings};
use crate::dataset::class_edit::{Boxes, ClassEdit, Ids};
use crate::dataset::edit::{Edit, ImageEdit, LabelOp, Mark, Review};
use crate::dataset::split::SplitOptions;
use crate::dataset::{ClassId, Label, Split};
use crate::geom::Xywhn;

const A: &str = "labels/a.txt";

struct Setup {
    temp: TempDir,
    session: Session,
}

impl Setup {
    /// Two images, of which the first has two labels.
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut setup = Self { session: Session::new(Settings::in_dir(&temp.path().join("state")), Arc::new(|| {})), temp };
        for (name, text) in [
            ("data.yaml", "train: images\nnames: [a, b]\n"),
            ("images/a.jpg", ""),
            ("images/b.jpg", ""),
            (A, "0 .5 .5 .2 .2\n1 .3 .3 .1 .1\n"),
        ] {
            let path = setup.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        setup.open();
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join("parts").join(name)
    }

    fn open(&mut self) {
        self.session.apply(Command::Open(self.path("data.yaml")));
        self.wait();
    }

    /// A program that starts anew.
    fn restart(&mut self) {
        self.session = Session::new(Settings::in_dir(&self.temp.path().join("state")), Arc::new(|| {}));
        self.open();
    }

    fn wait(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.wait()).collect()
    }

    fn edit(&mut self, name: &str, image: usize, op: LabelOp) {
        self.session.apply(Command::Edit(Edit::of_image(name, image, vec![op])));
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    fn shown(&self, image: usize) -> Vec<f32> {
        self.session.labels(image).iter().map(|label| label.bbox.cx).collect()
    }

    fn history(&self) -> (Option<&str>, Option<&str>, usize) {
        let history = &self.session.dataset.as_ref().unwrap().history;
        (history.undo.as_deref(), history.redo.as_deref(), history.n_pending)
    }
}

fn at(cx: f32) -> Label {
    Label { class: ClassId(0), bbox: Xywhn { cx, cy: 0.5, w: 0.1, h: 0.1 } }
}

#[test]
fn edits_are_shown_at_once_and_on_disk_a_little_later() {
    let mut setup = Setup::new();
    setup.edit("Draw box", 1, LabelOp::Add(at(0.25)));
    setup.edit("Move box", 1, LabelOp::Set { index: 0, label: at(0.75) });
    assert_eq!((setup.shown(1), setup.history()), (vec![0.75], (Some("Move box"), None, 2)));
    let events = setup.wait();
    let names: Vec<String> = events
        .iter()
        .filter_map(|event| if let Event::Ledger(reply) = event { Some(&reply.news) } else { None })
        .flatten()
        .filter_map(|news| if let LedgerNews::Edited(edited) = news { Some(edited.name.clone()) } else { None })
        .collect();
    assert_eq!(names, ["Draw box", "Move box"]);
    assert_eq!((setup.text("labels/b.txt").as_deref(), setup.history()), (Some("0 0.75 0.5 0.1 0.1\n"), (Some("Move box"), None, 0)));
    assert_eq!(setup.text(A).as_deref(), Some("0 .5 .5 .2 .2\n1 .3 .3 .1 .1\n"), "another image's file");
    assert!(setup.session.notices.is_empty());
}

#[test]
fn undo_and_redo_go_over_images_and_starts() {
    let mut setup = Setup::new();
    let original = setup.text(A);
    setup.edit("Delete box", 0, LabelOp::Remove { index: 1 });
    let mark = Mark { review: Review::Empty, tags: vec![] };
    let both = Edit {
        name: "Propagate".to_owned(),
        images: vec![
            ImageEdit::new(0, vec![LabelOp::Add(at(0.25))]),
            ImageEdit { mark: Some(mark.clone()), ..ImageEdit::new(1, vec![LabelOp::Add(at(0.25))]) },
        ],
    };
    setup.session.apply(Command::Edit(both));
    setup.wait();
    setup.restart();
    assert_eq!((setup.history(), setup.shown(0), setup.shown(1)), ((Some("Propagate"), None, 0), vec![0.5, 0.25], vec![0.25]));
    assert_eq!(setup.session.dataset.as_ref().unwrap().marks[1], mark);

    setup.session.apply(Command::UndoEdit);
    setup.wait();
    assert_eq!((setup.history(), setup.shown(0), setup.shown(1)), ((Some("Delete box"), Some("Propagate"), 0), vec![0.5], vec![]));
    assert_eq!((setup.session.dataset.as_ref().unwrap().marks[1].clone(), setup.text("labels/b.txt")), (Mark::default(), None));
    setup.session.apply(Command::UndoEdit);
    setup.wait();
    assert_eq!((setup.text(A), setup.shown(0)), (original, vec![0.5, 0.3]));
    setup.session.apply(Command::UndoEdit);
    setup.wait();
    assert_eq!(setup.session.notices.pop().unwrap().text, "there is nothing to undo");
    setup.session.apply(Command::RedoEdit);
    setup.session.apply(Command::RedoEdit);
    setup.wait();
    assert_eq!((setup.history(), setup.shown(0), setup.shown(1)), ((Some("Propagate"), None, 0), vec![0.5, 0.25], vec![0.25]));
}

#[test]
fn what_the_disk_does_not_take_is_shown_no_more_and_told() {
    let mut setup = Setup::new();
    let mut permissions = std::fs::metadata(setup.path(A)).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(setup.path(A), permissions).unwrap();
    setup.edit("Delete box", 0, LabelOp::Remove { index: 1 });
    setup.edit("Move box", 0, LabelOp::Set { index: 0, label: at(0.75) });
    assert_eq!(setup.shown(0), [0.75]);
    setup.wait();
    assert_eq!((setup.shown(0), setup.history()), (vec![0.5, 0.3], (None, None, 0)));
    assert!(!setup.session.notices.is_empty() && setup.session.notices[0].text.contains("read-only"), "{:?}", setup.session.notices);
    assert!(setup.session.notices[0].hint.is_some() && setup.session.conflicts.is_empty());

    setup.edit("Draw box", 1, LabelOp::Add(at(1.5)));
    assert!(setup.session.notices.last().unwrap().text.contains("Draw box was not done"), "a box outside of the image");
}

#[test]
fn a_file_that_another_program_changed_is_a_conflict_that_a_person_ends() {
    let theirs = "0 .5 .5 .2 .2\n1 .9 .3 .1 .1\n";
    for (resolution, expected) in
        [(Resolution::Theirs, vec![0.5, 0.9]), (Resolution::Mine, vec![0.25, 0.5]), (Resolution::Merge, vec![0.25, 0.5, 0.9])]
    {
        let mut setup = Setup::new();
        std::fs::write(setup.path(A), theirs).unwrap();
        // They moved the second box, which we deleted before we drew another one.
        setup.edit("Delete box", 0, LabelOp::Remove { index: 1 });
        setup.edit("Draw box", 0, LabelOp::Add(at(0.25)));
        setup.wait();
        let conflict = setup.session.conflict(0).unwrap();
        assert_eq!((conflict.mine.len(), conflict.theirs[1].bbox.cx, setup.shown(0)), (2, 0.9, vec![0.5, 0.9]));
        assert_eq!(setup.text(A).as_deref(), Some(theirs));
        setup.edit("Early", 0, LabelOp::Remove { index: 0 });
        assert!(setup.session.notices.last().unwrap().hint.is_some(), "first the conflict");
        setup.session.apply(Command::ResolveConflict { image: 0, resolution });
        setup.wait();
        let mut shown = setup.shown(0);
        shown.sort_by(f32::total_cmp);
        assert_eq!((shown, setup.session.conflicts.len()), (expected, 0), "{resolution:?}");
        setup.restart();
        let n_undos = usize::from(resolution != Resolution::Theirs);
        assert_eq!(setup.history().0.is_some(), n_undos == 1);
        setup.session.apply(Command::UndoEdit);
        setup.wait();
        assert_eq!(setup.text(A).as_deref(), Some(theirs));
    }
}

#[test]
fn turning_to_an_image_finds_what_changed() {
    let mut setup = Setup::new();
    setup.session.apply(Command::Look { image: 0 });
    setup.wait();
    assert!(setup.session.conflicts.is_empty());
    std::fs::write(setup.path(A), "0 .5 .5 .2 .2\n").unwrap();
    setup.session.apply(Command::Look { image: 0 });
    setup.wait();
    assert_eq!((setup.session.conflict(0).unwrap().mine.len(), setup.shown(0)), (2, vec![0.5]));
    setup.session.apply(Command::ResolveConflict { image: 0, resolution: Resolution::Theirs });
    setup.edit("Delete box", 0, LabelOp::Remove { index: 0 });
    setup.wait();
    assert_eq!(setup.text(A).as_deref(), Some(""));
}

#[test]
fn an_edit_that_was_made_before_undo_was_shown_is_refused_without_a_conflict() {
    let mut setup = Setup::new();
    setup.edit("Delete box", 0, LabelOp::Remove { index: 1 });
    setup.wait();
    setup.session.apply(Command::UndoEdit);
    setup.edit("Draw box", 0, LabelOp::Add(at(0.25)));
    setup.wait();
    assert_eq!((setup.shown(0), setup.session.conflicts.len(), setup.history().0), (vec![0.5, 0.3], 0, None));
    setup.edit("Draw box", 0, LabelOp::Add(at(0.25)));
    setup.wait();
    assert_eq!(setup.shown(0), [0.5, 0.3, 0.25]);
}

#[test]
fn closing_the_session_waits_for_the_disk() {
    let mut setup = Setup::new();
    for n in 0..50 {
        setup.edit("Draw box", 1, LabelOp::Add(at(0.1 + 0.01 * n as f32)));
    }
    let Setup { temp, session } = setup;
    drop(session);
    let text = std::fs::read_to_string(temp.path().join("parts/labels/b.txt")).unwrap();
    assert_eq!(text.lines().count(), 50);
}

impl Setup {
    fn classes(&mut self, edit: ClassEdit) {
        self.session.apply(Command::EditClasses(edit));
    }

    fn names(&self) -> Vec<&str> {
        self.session.dataset.as_ref().unwrap().dataset.names.iter().map(String::as_str).collect()
    }

    /// Opens another dataset of the same session.
    fn open_files(&mut self, root: &str, files: &[(&str, &str)]) {
        let root = self.temp.path().join(root);
        for (name, text) in files {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), text).unwrap();
        }
        self.session.apply(Command::Open(root));
        self.wait();
    }
}

fn add_class(name: &str) -> ClassEdit {
    ClassEdit::Add { name: name.to_owned() }
}

#[test]
fn what_was_read_of_a_dataset_that_is_no_longer_open_is_dropped() {
    let mut setup = Setup::new();
    let stale = Arc::new((*setup.session.dataset.as_ref().unwrap().dataset).clone());
    let labels = Arc::new(vec![Arc::default(), Arc::default()]);
    let same = setup.session.dataset.as_ref().unwrap().dataset.clone();
    setup.session.take_in(&Event::Labels { dataset: stale.clone(), labels: Arc::clone(&labels) });
    setup.session.take_in(&Event::ImageFacts { dataset: stale, facts: Arc::default() });
    assert_eq!((setup.shown(0), setup.session.dataset.as_ref().unwrap().facts.len()), (vec![0.5, 0.3], 2));
    setup.session.take_in(&Event::Labels { dataset: same, labels });
    assert!(setup.shown(0).is_empty());
}

#[test]
fn reading_does_not_take_edits_back_that_are_on_their_way() {
    let mut setup = Setup::new();
    let open = setup.session.dataset.as_ref().unwrap();
    let (dataset, labels) = (open.dataset.clone(), open.labels.clone());
    setup.edit("Draw box", 1, LabelOp::Add(at(0.25)));
    setup.session.begin_reading();
    // As it was read before the edit was written.
    setup.session.take_in(&Event::Labels { dataset, labels });
    assert_eq!(setup.shown(1), [0.25]);
    setup.wait();
    assert_eq!(setup.shown(1), [0.25]);
}

#[test]
fn an_edit_that_a_class_edit_overtakes_is_refused_and_shown_no_more() {
    let mut setup = Setup::new();
    setup.classes(add_class("c"));
    setup.edit("Draw box", 1, LabelOp::Add(at(0.25)));
    assert_eq!(setup.shown(1), [0.25]);
    setup.wait();
    assert_eq!((setup.names(), setup.shown(1), setup.text("labels/b.txt")), (vec!["a", "b", "c"], vec![], None));
    assert!(setup.session.notices.last().unwrap().text.contains("Draw box was not done"));
    setup.edit("Draw box", 1, LabelOp::Add(at(0.25)));
    setup.wait();
    assert_eq!((setup.shown(1), setup.text("labels/b.txt").is_some()), (vec![0.25], true));
}

#[test]
fn edits_of_a_file_that_cannot_be_read_are_shown_no_more_and_told_each_time() {
    let mut setup = Setup::new();
    std::fs::remove_file(setup.path(A)).unwrap();
    std::fs::create_dir(setup.path(A)).unwrap();
    setup.edit("Delete box", 0, LabelOp::Remove { index: 1 });
    setup.edit("Move box", 0, LabelOp::Set { index: 0, label: at(0.75) });
    setup.wait();
    assert_eq!((setup.shown(0), setup.history(), setup.session.notices.len()), (vec![0.5, 0.3], (None, None, 0), 1));
    setup.edit("Delete box", 0, LabelOp::Remove { index: 0 });
    setup.wait();
    assert_eq!((setup.shown(0), setup.session.notices.len()), (vec![0.5, 0.3], 2));
}

#[test]
fn classes_that_another_program_changed_are_looked_at_before_they_are_changed() {
    let mut setup = Setup::new();
    let theirs = "train: images\nnames: [b]\n";
    std::fs::write(setup.path("data.yaml"), theirs).unwrap();
    std::fs::write(setup.path(A), "0 .3 .3 .1 .1\n").unwrap();
    setup.classes(add_class("c"));
    setup.wait();
    assert_eq!((setup.names(), setup.shown(0), setup.text("data.yaml").as_deref()), (vec!["b"], vec![0.3], Some(theirs)));
    assert!(setup.session.notices.last().unwrap().hint.is_some());
    setup.classes(add_class("c"));
    setup.wait();
    assert_eq!(setup.names(), ["b", "c"]);
}

#[test]
fn what_was_interrupted_is_shown_as_it_was_carried_out() {
    let mut setup = Setup::new();
    let (yaml, a) = (setup.text("data.yaml").unwrap(), setup.text(A).unwrap());
    setup.classes(ClassEdit::Delete { class: ClassId(0), boxes: Boxes::Delete, ids: Ids::Renumber });
    setup.wait();
    assert_eq!((setup.names(), setup.session.labels(0)[0].class), (vec!["b"], ClassId(0)));
    // As if the process had ended before the first file was replaced.
    setup.session = Session::new(Settings::in_dir(&setup.temp.path().join("elsewhere")), Arc::new(|| {}));
    let entries = walkdir::WalkDir::new(setup.temp.path().join("state")).into_iter().map(Result::unwrap);
    let ledger = entries.map(walkdir::DirEntry::into_path).find(|path| path.ends_with("edits.ledger")).unwrap();
    let text = std::fs::read_to_string(&ledger).unwrap();
    let (lines, done) = text.trim_end().rsplit_once('\n').unwrap();
    assert!(done.contains(" done "));
    std::fs::write(&ledger, format!("{lines}\n")).unwrap();
    std::fs::write(setup.path("data.yaml"), yaml).unwrap();
    std::fs::write(setup.path(A), a).unwrap();
    setup.restart();
    assert_eq!((setup.names(), setup.shown(0), setup.session.labels(0)[0].class), (vec!["b"], vec![0.3], ClassId(0)));
    assert_eq!(setup.session.dataset.as_ref().unwrap().facts.len(), 2);
    assert!(setup.session.notices.iter().any(|notice| notice.text.contains("carried out to its end")));
}

#[test]
fn boxes_of_a_class_that_is_renamed_stay_in_view_where_files_hold_names() {
    let mut setup = Setup::new();
    let xml = "<annotation><size><width>100</width><height>100</height></size><object><name>dog</name>\
               <bndbox><xmin>10</xmin><ymin>10</ymin><xmax>50</xmax><ymax>50</ymax></bndbox></object></annotation>";
    setup.open_files("voc", &[("JPEGImages/a.jpg", ""), ("Annotations/a.xml", xml), ("classes.txt", "cat\ndog\n")]);
    assert_eq!((setup.names(), setup.shown(0).len()), (vec!["cat", "dog"], 1));
    setup.classes(ClassEdit::Rename { class: ClassId(1), name: "ant".to_owned() });
    setup.wait();
    let class = setup.session.labels(0)[0].class.0 as usize;
    assert_eq!(setup.names()[class], "ant", "{:?}", setup.session.notices);
    setup.session.apply(Command::UndoEdit);
    setup.wait();
    let class = setup.session.labels(0)[0].class.0 as usize;
    assert_eq!(setup.names()[class], "dog");
}

#[test]
fn a_split_of_other_images_is_not_applied() {
    let mut setup = Setup::new();
    setup.session.apply(Command::PlanSplit(SplitOptions::default()));
    setup.wait();
    let mut other = (*setup.session.dataset.as_ref().unwrap().dataset).clone();
    other.images.reverse();
    setup.session.split_of = Some(Arc::new(other));
    let before = setup.text("data.yaml");
    setup.session.apply(Command::ApplySplit);
    setup.wait();
    assert_eq!((setup.text("data.yaml"), setup.session.notices.last().unwrap().text.as_str()), (before, "the split is of another dataset"));
}

#[test]
fn a_mark_stays_when_the_ledger_is_read_after_it_was_put_on() {
    let mut setup = Setup::new();
    let tagged = Mark { review: Review::Unreviewed, tags: vec!["dark".to_owned()] };
    let image = ImageEdit { mark: Some(tagged.clone()), ..ImageEdit::new(1, vec![]) };
    setup.session.start_ledger();
    setup.session.apply(Command::Edit(Edit { name: "Tag".to_owned(), images: vec![image] }));
    while setup.session.dataset.as_ref().unwrap().history.n_pending > 0 {
        setup.session.wait();
        assert_eq!(setup.session.dataset.as_ref().unwrap().marks[1], tagged);
    }
}

#[test]
fn a_mark_that_was_not_kept_is_shown_no_more() {
    let mut setup = Setup::new();
    let labels = setup.session.dataset.as_ref().unwrap().labels.clone();
    let marked = |ops| Edit {
        name: "Mark".to_owned(),
        images: vec![ImageEdit { mark: Some(Mark { review: Review::Reviewed, tags: vec![] }), ..ImageEdit::new(0, ops) }],
    };
    std::fs::write(setup.path(A), "0 .5 .5 .2 .2\n").unwrap();
    setup.session.apply(Command::Edit(marked(vec![LabelOp::Remove { index: 1 }])));
    setup.wait();
    assert_eq!(setup.session.dataset.as_ref().unwrap().marks[0], Mark::default());
    assert_eq!(setup.session.conflict(0).unwrap().base, labels[0]);

    setup.session.apply(Command::ResolveConflict { image: 0, resolution: Resolution::Theirs });
    let labels = setup.session.dataset.as_ref().unwrap().labels.clone();
    setup.session.apply(Command::Edit(marked(vec![])));
    setup.wait();
    let open = setup.session.dataset.as_ref().unwrap();
    assert_eq!(open.marks[0].review, Review::Reviewed);
    assert!(Arc::ptr_eq(&labels, &open.labels), "marks change no labels");
}

#[test]
fn a_fault_in_writing_is_told_and_ends_nothing() {
    let mut setup = Setup::new();
    let dataset = setup.session.dataset.as_ref().unwrap().dataset.clone();
    let edit = Edit::of_image("No such image", 99, vec![LabelOp::Add(at(0.25))]);
    setup.session.ask_ledger(Request::Edit { edit, before: vec![Arc::default()], dataset, n_steps: 0 }, Some(vec![99]));
    setup.wait();
    assert!(setup.session.notices.last().unwrap().text.contains("failed inside"));
    setup.edit("Draw box", 1, LabelOp::Add(at(0.25)));
    setup.wait();
    assert_eq!((setup.shown(1), setup.history()), (vec![0.25], (Some("Draw box"), None, 0)));
}

#[test]
fn a_conflict_lasts_until_its_end_was_taken() {
    let mut setup = Setup::new();
    std::fs::write(setup.path(A), "0 .5 .5 .2 .2\n").unwrap();
    setup.session.apply(Command::Look { image: 0 });
    setup.wait();
    let mine = setup.session.conflict(0).unwrap().mine.clone();
    setup.session.conflicts[0].mine = [at(1.5)].into();
    setup.session.apply(Command::ResolveConflict { image: 0, resolution: Resolution::Mine });
    assert!(setup.session.conflict(0).is_some(), "a box outside of the image");
    setup.session.conflicts[0].mine = mine;
    // The images get other numbers, the classes others, too.
    setup.session.apply(Command::MoveToSplit { images: vec![0], split: Split::Val });
    setup.wait();
    setup.classes(ClassEdit::Delete { class: ClassId(0), boxes: Boxes::Delete, ids: Ids::Renumber });
    setup.wait();
    let conflict = setup.session.conflicts[0].clone();
    let images = &setup.session.dataset.as_ref().unwrap().dataset.images;
    assert!(images[conflict.image].path.ends_with("a.jpg") && conflict.image != 0, "{images:?}");
    assert_eq!(conflict.mine.iter().map(|label| (label.class, label.bbox.cx)).collect::<Vec<_>>(), [(ClassId(0), 0.3)]);
    setup.session.apply(Command::ResolveConflict { image: conflict.image, resolution: Resolution::Mine });
    setup.wait();
    assert_eq!((setup.shown(conflict.image), setup.session.conflicts.len()), (vec![0.3], 0));
}
