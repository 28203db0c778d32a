//! Tests of the index: it gives what reading gives, whatever happened to files and index in between.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::super::open::tests::{folder, png};
use super::*;

/// Labels, facts, and how many label files and headers were read.
type Found = (Vec<Arc<[Label]>>, Vec<ImageFacts>, (u64, u64));

/// Opens, reads through the index, and keeps it; asserts that labels are those of plain reading.
fn read(root: &Path, state: &Path) -> Found {
    let dataset = Dataset::open(root).unwrap();
    let mut index = Index::load(&dataset, state);
    let go_on = |_, _| ControlFlow::Continue(());
    let labels = index.labels(&go_on).unwrap();
    let facts = index.facts(&go_on).unwrap();
    index.save(&labels).unwrap();
    for (image, labels) in dataset.images.iter().zip(&labels) {
        assert_eq!(dataset.labels(image).unwrap_or_default(), **labels, "{:?}", image.path);
    }
    (labels, facts, index.n_read())
}

/// Makes all files of a folder as old as files usually are; the clock of the machine says nothing then.
fn settle(root: &Path) {
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            set_modified(entry.path(), SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5));
        }
    }
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().append(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// Where the status of a file changes with its times, it was changed just now, whatever its times say: what is remembered of
/// it does not hold yet. Takes that back in the index, as if the file had been left alone before.
fn age(state: &Path) {
    let path = index_file(state);
    let bytes = std::fs::read(&path).unwrap();
    let head: [u8; 32] = bytes[40 + 16..40 + 48].try_into().unwrap();
    let store = Store::read(&path, &head).unwrap();
    let mut records: Vec<Record> = (0..store.n_images() as u32).map(|place| *store.record(place)).collect();
    for record in &mut records {
        record.label.settle();
        record.image.settle();
    }
    let labels: Vec<Arc<[Label]>> = (0..store.n_images() as u32).map(|place| store.labels(place)).collect();
    store::write(&path, &head, &records, &labels).unwrap();
}

fn index_file(state: &Path) -> PathBuf {
    std::fs::read_dir(state.join("index")).unwrap().next().unwrap().unwrap().path()
}

/// Three images, one without labels and one whose box depends on the image's size; and a folder for the index.
fn fixture() -> (TempDir, TempDir) {
    let root = folder(&[
        ("data.yaml", "train: images\nval: images\nnames: [a, b]\n"),
        ("labels/1.txt", "0 .5 .5 .2 .2\n1 .25 .5 .2 .2\n"),
        ("labels/2.txt", "1 0.9995 .5 .019 .2\n"),
    ]);
    png(root.path(), "images/1.png", 40, 30);
    png(root.path(), "images/2.png", 400, 100);
    png(root.path(), "images/3.png", 8, 8);
    settle(root.path());
    (root, tempfile::tempdir().unwrap())
}

#[test]
fn what_is_remembered_is_what_was_read() {
    let (root, state) = fixture();
    let (labels, facts, n_read) = read(root.path(), state.path());
    assert_eq!(n_read, (6, 6), "each image is in train and val");
    assert_eq!(
        facts[..3].iter().map(|facts| facts.size).collect::<Vec<_>>(),
        [(40, 30), (400, 100), (8, 8)].map(|(w, h)| Some(Size::new(w, h)))
    );
    assert_eq!((facts[0].orientation, facts[0].modified_ns), (1, 1_700_000_000_000_000_005));
    age(state.path());
    assert_eq!(read(root.path(), state.path()), (labels, facts, (0, 0)));
}

#[test]
fn a_file_that_changed_is_read_again() {
    let (root, state) = fixture();
    let (before, ..) = read(root.path(), state.path());
    age(state.path());
    // As many bytes, another time.
    std::fs::write(root.path().join("labels/1.txt"), "1 .5 .5 .2 .2\n1 .25 .5 .2 .2\n").unwrap();
    let (after, _, n_read) = read(root.path(), state.path());
    assert_eq!((n_read, before[1] == after[1], before[0] == after[0]), ((2, 0), true, false));
    age(state.path());
    // One more, one less.
    std::fs::write(root.path().join("labels/3.txt"), "0 .5 .5 .2 .2\n").unwrap();
    std::fs::remove_file(root.path().join("labels/1.txt")).unwrap();
    let (after, _, n_read) = read(root.path(), state.path());
    assert_eq!((n_read, after[0].len(), after[2].len()), ((4, 0), 0, 1));
}

#[cfg(unix)]
#[test]
fn a_file_of_the_same_size_and_time_is_noticed_by_its_inode() {
    let (root, state) = fixture();
    read(root.path(), state.path());
    age(state.path());
    let path = root.path().join("labels/1.txt");
    std::fs::write(root.path().join("new.txt"), "1 .5 .5 .2 .2\n1 .25 .5 .2 .2\n").unwrap();
    std::fs::rename(root.path().join("new.txt"), &path).unwrap();
    set_modified(&path, SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5));
    let (labels, _, n_read) = read(root.path(), state.path());
    assert_eq!((n_read.0, labels[0][0].class.0), (2, 1));
}

#[test]
fn labels_that_depend_on_the_image_are_read_again_when_it_changes() {
    let (root, state) = fixture();
    let (before, ..) = read(root.path(), state.path());
    age(state.path());
    png(root.path(), "images/2.png", 100, 100);
    let (after, facts, n_read) = read(root.path(), state.path());
    assert_eq!((before[1].len(), after[1].len()), (1, 0), "less than 2 pixels of the box are left");
    assert_eq!((n_read, facts[1].size), ((2, 2), Some(Size::new(100, 100))));
}

#[test]
fn files_that_were_just_written_are_not_trusted() {
    let (root, state) = fixture();
    let path = root.path().join("labels/1.txt");
    // Later than any clock, as a file written after it was looked at.
    set_modified(&path, SystemTime::now() + Duration::from_hours(1));
    read(root.path(), state.path());
    let (_, _, n_read) = read(root.path(), state.path());
    assert!(n_read.0 >= 2, "{n_read:?}");
}

#[test]
fn images_that_come_and_go_leave_the_others_remembered() {
    let (root, state) = fixture();
    read(root.path(), state.path());
    age(state.path());
    std::fs::remove_file(root.path().join("images/1.png")).unwrap();
    png(root.path(), "images/0.png", 5, 5);
    let (labels, facts, n_read) = read(root.path(), state.path());
    assert_eq!((n_read, labels.len(), facts[0].size, facts[1].size), ((2, 2), 6, Some(Size::new(5, 5)), Some(Size::new(400, 100))));
}

#[test]
fn other_classes_need_another_index() {
    let (root, state) = fixture();
    read(root.path(), state.path());
    age(state.path());
    std::fs::write(root.path().join("data.yaml"), "train: images\nval: images\nnames: [a]\n").unwrap();
    let (labels, _, n_read) = read(root.path(), state.path());
    assert_eq!((n_read, labels[0].len()), ((6, 6), 1));
}

#[test]
fn a_damaged_or_foreign_index_is_as_good_as_none() {
    let (root, state) = fixture();
    let (labels, facts, _) = read(root.path(), state.path());
    age(state.path());
    let path = index_file(state.path());
    let whole = std::fs::read(&path).unwrap();
    let mut cases = vec![Vec::new(), b"something else".to_vec(), [&whole[..], b"more"].concat()];
    cases.extend((0..whole.len()).step_by(37).flat_map(|at| {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        [flipped, whole[..at].to_vec()]
    }));
    for damaged in cases {
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(read(root.path(), state.path()), (labels.clone(), facts.clone(), (6, 6)));
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(read(root.path(), state.path()).2, (0, 0));
}

#[test]
fn any_label_file_reads_the_same_through_the_index() {
    // Pieces of label files, whole and broken, in many combinations.
    let rows = [
        "0 .5 .5 .2 .2\n",
        "1 .97 .5 .1 .2\r\n",
        "7 .5 .5 .1 .1\n",
        "0 .5 .5 0 .1\n",
        "1 nan .5 .1 .1\n",
        "0 1 2 3\n",
        "\n",
        "  \t\r",
        "0 .1 .1 .3 .1 .3 .4\n",
        "1 1.2 .5 .1 .1\n",
        "0 300 200 40 40\n",
        "\u{feff}1 .5 .5 .2 .2\n",
        "<html>",
        "{",
        "x,y\n",
        "0 .5 .5 .2 .2 .9\n",
        "1 1.004 .5 .01 .1\n",
        "\0\0",
        "0 -.01 .5 .2 .2\n",
        "1e0 .5 .5 2e-1 .2",
    ]; //
    let mut files = vec![("data.yaml".to_owned(), "train: images\nval: images\nnames: [a, b]\n".to_owned())];
    let mut state = 1u64;
    for file in 0..150 {
        let mut text = String::new();
        for _ in 0..file % 7 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(rows[(state >> 33) as usize % rows.len()]);
        }
        files.push((format!("labels/{file}.txt"), text));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let root = folder(&files);
    for file in 0..150 {
        png(root.path(), &format!("images/{file}.png"), 100 + file, 50);
    }
    settle(root.path());
    let state = tempfile::tempdir().unwrap();
    let (cold, cold_facts, n_cold) = read(root.path(), state.path());
    age(state.path());
    let (warm, warm_facts, n_warm) = read(root.path(), state.path());
    assert_eq!((&cold, &cold_facts, n_cold, n_warm), (&warm, &warm_facts, (300, 300), (0, 0)));
    let n_labels: usize = cold.iter().map(|labels| labels.len()).sum();
    assert!(n_labels > 100, "{n_labels} labels are few");
}

#[test]
fn reading_stops_when_told() {
    let (root, state) = fixture();
    let dataset = Dataset::open(root.path()).unwrap();
    let mut index = Index::load(&dataset, state.path());
    let stop = |_, _| ControlFlow::Break(());
    assert!(matches!(index.labels(&stop), Err(DatasetError::Cancelled)) && matches!(index.facts(&stop), Err(DatasetError::Cancelled)));
}
