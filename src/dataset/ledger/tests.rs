//! The ledger on real files: undo over starts, crashes at every byte, other programs, disks that fail.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::edit::{Mark, Review};
use super::record::Scope;
use super::*;

struct Setup {
    temp: TempDir,
}

impl Setup {
    fn new(files: &[(&str, &str)]) -> Self {
        let setup = Self { temp: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            let path = setup.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        setup
    }

    fn root(&self) -> PathBuf {
        self.temp.path().join("parts")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    fn open(&self) -> Ledger {
        Ledger::open(&self.temp.path().join("state"), &self.root()).unwrap()
    }

    fn file(&self) -> PathBuf {
        journal::folder(&self.temp.path().join("state"), &self.root()).join("edits.ledger")
    }

    fn change(&self, name: &str, after: &str) -> Change {
        Change::whole(self.path(name), read(&self.path(name)).unwrap(), after.as_bytes().to_vec())
    }

    fn edit(&self, ledger: &mut Ledger, name: &str, changes: &[(&str, &str)]) -> Result<Written, DatasetError> {
        let files = changes.iter().map(|(file, after)| self.change(file, after)).collect();
        ledger.write(NewEdit { name: name.to_owned(), files, ..NewEdit::default() }, &go_on)
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }
}

fn go_on() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn edits_are_taken_back_and_done_again_over_files_and_starts() {
    let setup = Setup::new(&[("labels/a.txt", "0 1\r\nodd\r\n"), ("labels/b.txt", "x")]);
    let mut ledger = setup.open();
    assert_eq!((ledger.undo_name(), ledger.undo().unwrap().is_none()), (None, true));
    assert!(!setup.file().exists(), "looking writes nothing");
    setup.edit(&mut ledger, "Move box", &[("labels/a.txt", "0 2\r\nodd\r\n")]).unwrap();
    setup.edit(&mut ledger, "Draw box", &[("labels/new/c.txt", "1\n")]).unwrap();
    setup.edit(&mut ledger, "Delete box", &[("labels/b.txt", ""), ("labels/a.txt", "odd\r\n")]).unwrap();
    assert_eq!((setup.text("labels/b.txt").as_deref(), setup.text("labels/new/c.txt").as_deref()), (Some(""), Some("1\n")));

    let mut ledger = setup.open();
    assert_eq!((ledger.n_done(), ledger.undo_name().as_deref(), ledger.redo_name()), (3, Some("Delete box"), None));
    let undone = ledger.undo().unwrap().unwrap();
    assert_eq!((undone.record.name.as_str(), undone.step, undone.written.len()), ("Delete box", Step::Undo, 2));
    assert_eq!((setup.text("labels/a.txt").as_deref(), setup.text("labels/b.txt").as_deref()), (Some("0 2\r\nodd\r\n"), Some("x")));
    ledger.undo().unwrap().unwrap();
    assert_eq!(setup.text("labels/new/c.txt"), None, "there was no file before");

    let mut ledger = setup.open();
    assert_eq!((ledger.undo_name().as_deref(), ledger.redo_name().as_deref()), (Some("Move box"), Some("Draw box")));
    ledger.redo().unwrap().unwrap();
    ledger.redo().unwrap().unwrap();
    assert!(ledger.redo().unwrap().is_none());
    assert_eq!((setup.text("labels/a.txt").as_deref(), setup.text("labels/new/c.txt").as_deref()), (Some("odd\r\n"), Some("1\n")));
    ledger.undo().unwrap().unwrap();
    setup.edit(&mut ledger, "Another", &[("labels/b.txt", "y")]).unwrap();
    assert!(setup.open().redo().unwrap().is_none(), "an edit ends what could be done again");
    for _ in 0..3 {
        ledger.undo().unwrap().unwrap();
    }
    assert_eq!((setup.text("labels/a.txt").as_deref(), setup.text("labels/b.txt").as_deref()), (Some("0 1\r\nodd\r\n"), Some("x")));
}

#[test]
fn an_edit_whose_process_ended_before_the_file_was_replaced_is_carried_out() {
    let setup = Setup::new(&[("a.txt", "1"), ("b.txt", "1")]);
    let mut ledger = setup.open();
    setup.edit(&mut ledger, "First", &[("a.txt", "2")]).unwrap();
    ledger.rest();
    let before = std::fs::read(setup.file()).unwrap();
    setup.edit(&mut ledger, "Second", &[("a.txt", "3"), ("b.txt", "3")]).unwrap();
    ledger.rest();
    let after = std::fs::read(setup.file()).unwrap();
    let record_end = before.len() + after[before.len()..].iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for end in before.len()..=after.len() {
        std::fs::write(setup.file(), &after[..end]).unwrap();
        // As the disk can be then: no file was replaced before the record was whole, and one of two after it.
        std::fs::write(setup.path("a.txt"), "2").unwrap();
        std::fs::write(setup.path("b.txt"), if end < record_end { "1" } else { "3" }).unwrap();
        std::fs::write(setup.path(".boxwright-x.tmp"), "half").unwrap();
        let mut ledger = setup.open();
        let expected = match end {
            end if end < record_end => ("2", "1", "First"),
            end if end < after.len() => ("3", "3", "Second"),
            _ => ("2", "3", "Second"), // said to be done: who put the old content back meant it
        };
        assert_eq!(
            (setup.text("a.txt").unwrap(), setup.text("b.txt").unwrap(), ledger.undo_name().unwrap()),
            (expected.0.to_owned(), expected.1.to_owned(), expected.2.to_owned()),
            "cut at {end}"
        );
        let is_settled = end >= record_end && end < after.len();
        assert_eq!(
            (ledger.take_notes().len(), setup.path(".boxwright-x.tmp").exists()),
            (usize::from(is_settled), !is_settled),
            "cut at {end}"
        );
        assert!(setup.open().take_notes().is_empty(), "once");
        if end < record_end {
            setup.edit(&mut ledger, "Third", &[("b.txt", "9")]).unwrap();
            assert_eq!(setup.open().undo_name().as_deref(), Some("Third"), "the ledger goes on behind the cut");
        }
    }
}

#[test]
fn files_that_another_program_changed_are_left_alone() {
    let setup = Setup::new(&[("a.txt", "1"), ("b.txt", "1")]);
    let mut ledger = setup.open();
    setup.edit(&mut ledger, "First", &[("a.txt", "2")]).unwrap();
    setup.edit(&mut ledger, "Both", &[("a.txt", "3"), ("b.txt", "3")]).unwrap();
    std::fs::write(setup.path("a.txt"), "theirs").unwrap();
    let undone = ledger.undo().unwrap().unwrap();
    assert_eq!((undone.written, undone.left.len()), (vec![setup.path("b.txt")], 1));
    let undone = ledger.undo().unwrap().unwrap();
    assert_eq!((undone.record.name.as_str(), undone.written.len(), undone.left.len()), ("First", 0, 1), "it does not stand in the way");
    assert_eq!(setup.text("a.txt").as_deref(), Some("theirs"));

    let stale = setup.change("b.txt", "5");
    std::fs::write(setup.path("b.txt"), "theirs").unwrap();
    let written = ledger.write(NewEdit { name: "Late".to_owned(), files: vec![stale], ..NewEdit::default() }, &go_on).unwrap();
    assert_eq!((written.id, written.left.len()), (None, 1));
    assert_eq!((setup.text("b.txt").as_deref(), setup.open().undo_name()), (Some("theirs"), None));
}

#[test]
fn an_edit_that_the_disk_takes_in_part_is_taken_back_in_part() {
    let setup = Setup::new(&[("a.txt", "1"), ("file", "")]);
    let mut ledger = setup.open();
    // A file stands where a folder is needed.
    let written = setup.edit(&mut ledger, "Both", &[("a.txt", "2"), ("file/b.txt", "2")]).unwrap();
    assert!(matches!(written.failed, Some(DatasetError::Write { .. })), "{written:?}");
    assert_eq!(written.written, [setup.path("a.txt")]);
    let mut ledger = setup.open();
    let undone = ledger.undo().unwrap().unwrap();
    assert_eq!((setup.text("a.txt").as_deref(), undone.left.len()), (Some("1"), 0));

    assert!(setup.edit(&mut ledger, "None", &[("file/b.txt", "2")]).is_err());
    assert_eq!((setup.open().undo_name(), setup.open().redo_name().as_deref()), (None, Some("Both")), "as if it had not been tried");
}

#[test]
fn marks_and_colours_are_kept_and_taken_back() {
    let setup = Setup::new(&[]);
    let mut ledger = setup.open();
    let image = setup.path("images/a.jpg");
    let reviewed = Mark { review: Review::Reviewed, tags: vec!["night".to_owned()] };
    let marks = vec![ledger.mark_change(&image, reviewed.clone())];
    let colors = vec![ColorChange { class: 2, before: None, after: Some([1, 2, 3]) }];
    ledger.write(NewEdit { name: "Mark".to_owned(), marks, colors, ..NewEdit::default() }, &go_on).unwrap();
    let mut ledger = setup.open();
    assert_eq!((ledger.mark(&image), ledger.colors().get(&2)), (reviewed, Some(&[1, 2, 3])));
    ledger.undo().unwrap().unwrap();
    for ledger in [&ledger, &setup.open()] {
        assert_eq!((ledger.mark(&image), ledger.colors().len()), (Mark::default(), 0));
    }
}

#[test]
fn what_two_say_of_one_image_is_merged() {
    let setup = Setup::new(&[]);
    let image = setup.path("images/a.jpg");
    let mark = |review, tags: &[&str]| Mark { review, tags: tags.iter().map(|&tag| tag.to_owned()).collect() };
    let said = |ledger: &mut Ledger, marks| ledger.write(NewEdit { marks, ..NewEdit::default() }, &go_on).unwrap();
    let (mut one, mut other) = (setup.open(), setup.open());
    let first = vec![one.mark_change(&image, mark(Review::Unreviewed, &["blurred", "night"]))];
    said(&mut one, first);
    other.catch_up().unwrap();
    let theirs = vec![other.mark_change(&image, mark(Review::Unreviewed, &["night", "rain"]))];
    let mine = vec![one.mark_change(&image, mark(Review::Reviewed, &["blurred", "dusk", "night"]))];
    said(&mut other, theirs);
    let written = said(&mut one, mine);
    assert_eq!(written.record.marks[0].before, mark(Review::Unreviewed, &["night", "rain"]), "so that undo takes back the own part");
    assert_eq!(setup.open().mark(&image), mark(Review::Reviewed, &["dusk", "night", "rain"]));
    other.undo().unwrap().unwrap();
    assert_eq!(other.mark(&image), mark(Review::Unreviewed, &["night", "rain"]));
}

#[test]
fn two_ledgers_of_one_dataset_see_what_the_other_wrote() {
    let setup = Setup::new(&[("a.txt", "1")]);
    let (mut one, mut other) = (setup.open(), setup.open());
    setup.edit(&mut one, "One", &[("a.txt", "2")]).unwrap();
    setup.edit(&mut other, "Other", &[("a.txt", "3")]).unwrap();
    assert_eq!(one.undo().unwrap().unwrap().record.name, "Other");
    other.catch_up().unwrap();
    assert_eq!((other.undo_name().as_deref(), other.redo_name().as_deref()), (Some("One"), Some("Other")));
    std::fs::remove_file(setup.file()).unwrap();
    setup.edit(&mut one, "New", &[("a.txt", "4")]).unwrap();
    assert_eq!(setup.open().n_done(), 1, "a ledger that was removed is begun anew");
    // As an editor or a backup puts another file in its place.
    let (bytes, beside) = (std::fs::read(setup.file()).unwrap(), setup.file().with_extension("new"));
    std::fs::write(&beside, &bytes).unwrap();
    std::fs::rename(&beside, setup.file()).unwrap();
    setup.edit(&mut one, "Newer", &[("a.txt", "5")]).unwrap();
    assert_eq!((setup.open().n_done(), one.n_done()), (2, 2), "it is written to the file that is there");
}

#[test]
fn a_damaged_end_is_kept_aside_and_a_line_without_its_end_is_not() {
    let setup = Setup::new(&[("a.txt", "1")]);
    let mut ledger = setup.open();
    for after in ["2", "3"] {
        setup.edit(&mut ledger, after, &[("a.txt", after)]).unwrap();
    }
    ledger.rest();
    let whole = std::fs::read(setup.file()).unwrap();
    let files = || std::fs::read_dir(setup.file().parent().unwrap()).unwrap().count();
    std::fs::write(setup.file(), [&whole[..], b"half a li"].concat()).unwrap();
    assert_eq!((setup.open().take_notes().len(), files()), (0, 1));
    assert_eq!(std::fs::read(setup.file()).unwrap(), whole);

    let tail = b"0123456789abcdef undo 9 - {}\nhalf a li";
    std::fs::write(setup.file(), [&whole[..], tail].concat()).unwrap();
    let mut ledger = setup.open();
    assert_eq!((ledger.take_notes().len(), files(), ledger.n_done()), (1, 2, 2));
    let copy = setup.file().with_extension(format!("damaged-{}", whole.len()));
    assert_eq!(std::fs::read(copy).unwrap(), tail);
    assert_eq!(std::fs::read(setup.file()).unwrap(), whole);
    ledger.undo().unwrap().unwrap();
    assert_eq!(setup.text("a.txt").as_deref(), Some("2"));
}

#[test]
fn a_ledger_that_could_not_be_read_is_read_as_a_whole_the_next_time() {
    let setup = Setup::new(&[("a.txt", "1")]);
    let (mut one, mut other) = (setup.open(), setup.open());
    setup.edit(&mut one, "One", &[("a.txt", "2")]).unwrap();
    other.catch_up().unwrap();
    setup.edit(&mut one, "Two", &[("a.txt", "3")]).unwrap();
    let whole = std::fs::read(setup.file()).unwrap();
    // A later version ends the reading behind lines that were taken in.
    let later = record::to_line(Kind::Ledger, 0, false, b"{\"version\": 2}");
    std::fs::write(setup.file(), [&whole[..], &later].concat()).unwrap();
    for _ in 0..2 {
        assert!(other.catch_up().is_err());
    }
    std::fs::write(setup.file(), &whole).unwrap();
    other.catch_up().unwrap();
    assert_eq!((other.n_done(), other.undo_name().as_deref()), (2, Some("Two")));
}

#[test]
fn a_damaged_record_in_the_middle_ends_undo_and_nothing_else() {
    let setup = Setup::new(&[("a.txt", "1")]);
    let mut ledger = setup.open();
    for after in ["2", "3", "4"] {
        setup.edit(&mut ledger, after, &[("a.txt", after)]).unwrap();
    }
    let mut bytes = std::fs::read(setup.file()).unwrap();
    let place = bytes.windows(10).position(|part| part == b"\"name\":\"3\"").unwrap();
    bytes[place + 8] = b'x';
    std::fs::write(setup.file(), bytes).unwrap();
    let mut ledger = setup.open();
    assert_eq!((ledger.n_done(), ledger.undo_name().as_deref(), ledger.take_notes().len()), (1, Some("4"), 1));
    ledger.undo().unwrap().unwrap();
    assert_eq!(setup.text("a.txt").as_deref(), Some("3"));
}

#[test]
fn many_files_are_replaced_as_one_edit() {
    let names: Vec<String> = (0..40).map(|index| format!("labels/{index}.txt")).collect();
    let setup = Setup::new(&names.iter().map(|name| (name.as_str(), "1")).collect::<Vec<_>>());
    let mut ledger = setup.open();
    let files = names.iter().map(|name| setup.change(name, "2")).collect();
    let written = ledger.write(NewEdit { name: "Merge".to_owned(), scope: Scope::Classes, files, ..NewEdit::default() }, &go_on).unwrap();
    assert_eq!(written.written.len(), 40);
    let undone = setup.open().undo().unwrap().unwrap();
    assert_eq!((undone.record.scope, undone.written.len()), (Scope::Classes, 40));
    assert!(names.iter().all(|name| setup.text(name).as_deref() == Some("1")));
    assert!(Path::new(&setup.file()).is_file());
}
