//! Edits of a dataset through the built program: scripts, kills at any moment, round trips.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "program/dir.rs"]
mod dir;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use boxwright::dataset::Dataset;
use boxwright::dataset::edit::{Edit, LabelOp};
use boxwright::session::{Command as Wish, Session, Settings};
use dir::Dir;

impl Dir {
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs and asserts that it went well; returns the lines of stdout.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> Vec<String> {
        let output = self.boxwright(args);
        assert!(output.status.success(), "boxwright {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn script(&self, text: &str) -> Output {
        self.write("script.txt", text);
        self.boxwright(&["edit", "parts", "--script", "script.txt", "--json"])
    }

    /// Ten images, of which the first two have labels, in odd style.
    fn dataset(&self) {
        self.write("parts/data.yaml", "train: images # all\nval: images\nnc: 2\nnames: [dent, crack]\n");
        for index in 0..10 {
            self.write(&format!("parts/images/{index}.jpg"), &index.to_string());
        }
        self.write("parts/labels/0.txt", "\u{feff}0 .50 .5 .2 .2\r\nodd row\r\n\r\n1\t.3 .3 .1 .1");
        self.write("parts/labels/1.txt", "1 .5 .5 .1 .1\n");
    }
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(dir).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file());
    entries.map(|entry| (entry.path().to_owned(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_script_is_acknowledged_line_by_line_and_taken_back_edit_by_edit() {
    let dir = Dir::new();
    dir.dataset();
    let before = files(&dir.path("parts"));
    let output = dir.script(
        "# labels\nadd images/2.jpg dent .5 .5 .1 .1\nset 0.jpg 1 dent\nremove 1.jpg 0\nmark 3.jpg empty\nundo\nundo\nredo\n\
         class add \"two\"\n[\"class\", \"rename\", \"dent\", \"a dent\"]\nmove 9.jpg val\n",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<String> =
        lines.iter().map(|line| format!("{} {}", line["step"].as_str().unwrap(), line["name"].as_str().unwrap())).collect();
    let expected = [
        "edit Draw box",
        "edit Change class",
        "edit Delete box",
        "edit Mark image",
        "undo Mark image",
        "undo Delete box",
        "redo Delete box",
        "edit Add class \"two\"",
        "edit Rename class dent to a dent",
        "edit Move 1 image to val",
    ];
    assert_eq!(said, expected);
    assert!(lines.iter().all(|line| line["event"] == "edited" && line["id"].as_u64() > Some(0)));
    assert_eq!(dir.text("parts/labels/0.txt"), "\u{feff}0 .50 .5 .2 .2\r\nodd row\r\n\r\n0\t.3 .3 .1 .1");
    assert_eq!((dir.text("parts/labels/1.txt").as_str(), dir.text("parts/labels/2.txt").as_str()), ("", "0 0.5 0.5 0.1 0.1\n"));
    assert_eq!(dir.text("parts/data.yaml"), "train: train.txt # all\nval: val.txt\nnc: 3\nnames: [\"a dent\", crack, \"\\\"two\\\"\"]\n");

    // What is left to take back, over several starts of the program.
    for name in ["Move 1 image to val", "Rename class", "Add class", "Delete box", "Change class", "Draw box"] {
        let line = dir.ok(&["undo", "parts"]).concat();
        assert!(line.contains(name), "{line}");
    }
    assert_eq!(files(&dir.path("parts")), before, "every byte is back");
    assert_eq!(dir.boxwright(&["undo", "parts"]).status.code(), Some(1), "there is nothing more");

    // Tags stay when only the review changes; an undo that finds no file as it was left does not succeed.
    let output = dir.script("mark 3.jpg unreviewed night\nmark 3.jpg reviewed\nremove 1.jpg 0\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ledger = walkdir::WalkDir::new(dir.path("home")).into_iter().flatten().find(|entry| entry.file_name() == "edits.ledger").unwrap();
    let ledger = String::from_utf8(std::fs::read(ledger.path()).unwrap()).unwrap();
    assert!(ledger.contains(r#""after":{"review":"reviewed","tags":["night"]}"#), "{ledger}");
    dir.write("parts/labels/1.txt", "0 .1 .1 .1 .1\n");
    assert_eq!(dir.boxwright(&["undo", "parts"]).status.code(), Some(1));
    assert_eq!(dir.text("parts/labels/1.txt"), "0 .1 .1 .1 .1\n");
}

#[test]
fn a_step_that_fails_ends_the_script_with_its_line_and_a_hint() {
    let dir = Dir::new();
    dir.dataset();
    for (line, part) in [
        ("set 0.jpg 5 dent", "line 2: the image has 2 labels"),
        ("add 77.jpg dent .5 .5 .1 .1", "line 2: there is no one image"),
        ("add 2.jpg scratch .5 .5 .1 .1", "line 2: there is no class"),
        ("add 2.jpg dent 1.5 .5 .1 .1", "line 2: Draw box was not done"),
        ("class delete crack", "line 2: class \"crack\" has 2 boxes"),
        ("frobnicate", "line 2: \"frobnicate\""),
    ] {
        let before = files(&dir.path("parts"));
        let output = dir.script(&format!("mark 0.jpg reviewed\n{line}\nremove 1.jpg 0\n"));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(part) && stderr.contains("hint: "), "{line}: {stderr}");
        assert_eq!(files(&dir.path("parts")), before, "{line}");
    }
}

#[test]
fn classes_and_splits_are_changed_from_the_command_line() {
    let dir = Dir::new();
    dir.dataset();
    assert_eq!(dir.ok(&["classes", "parts"]), ["    0         2  dent", "    1         4  crack"], "each image is in train and in val");
    let before = files(&dir.path("parts"));
    let plan = dir.ok(&["split", "parts", "--val", "0.3", "--dry-run", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(plan.last().unwrap()).unwrap();
    assert_eq!((&plan["result"]["train"]["images"], &plan["result"]["val"]["images"]), (&7.into(), &3.into()), "{plan}");
    assert_eq!(files(&dir.path("parts")), before);
    dir.ok(&["split", "parts", "--val", "0.3"]);
    assert_eq!(Dataset::open(&dir.path("parts")).unwrap().images.len(), 10);
    dir.ok(&["classes", "parts", "--merge", "dent=crack", "--renumber", "--add", "scratch"]);
    assert!(dir.text("parts/data.yaml").ends_with("nc: 2\nnames: [crack, scratch]\n"));
    assert_eq!(dir.text("parts/labels/0.txt"), "\u{feff}0 .50 .5 .2 .2\r\nodd row\r\n\r\n0\t.3 .3 .1 .1");
    assert_eq!(dir.boxwright(&["split", "parts", "--val", "1"]).status.code(), Some(1));
}

/// What the labels are after each acknowledged step of the script of `a_kill_at_any_moment…`.
struct Model {
    text: Vec<BTreeMap<PathBuf, Vec<u8>>>,
}

/// Steps over a few images, with undo and redo between them.
fn long_script(seed: u64, n_steps: usize) -> String {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut n_labels = [2_u64, 1, 0, 0];
    let mut n_done = 0;
    let mut lines = Vec::new();
    while lines.len() < n_steps {
        let image = random(4) as usize;
        let class = random(2);
        match random(10) {
            0..=3 => {
                let (cx, cy) = (0.2 + random(6000) as f64 / 10000.0, 0.2 + random(6000) as f64 / 10000.0);
                lines.push(format!("add images/{image}.jpg {class} {cx} {cy} 0.1 0.1"));
                n_labels[image] += 1;
                n_done += 1;
            }
            4 | 5 if n_labels[image] > 0 => {
                let (cx, w) = (0.3 + random(4000) as f64 / 10000.0, 0.05 + random(2000) as f64 / 10000.0);
                lines.push(format!("set images/{image}.jpg {} {class} {cx} 0.5 {w} 0.1", random(n_labels[image])));
                n_done += 1;
            }
            6 => {
                lines.push(format!("mark images/{image}.jpg reviewed tag{}", random(3)));
                n_done += 1;
            }
            7 if n_done > 0 => {
                // Whatever it takes back comes again, so that the counts above stay right.
                lines.push("undo".to_owned());
                lines.push("redo".to_owned());
            }
            8 if n_labels[image] > 1 => {
                lines.push(format!("remove images/{image}.jpg {}", n_labels[image] - 1));
                n_labels[image] -= 1;
                n_done += 1;
            }
            9 if lines.len() % 7 == 0 => {
                lines.push(format!("class add c{}", lines.len()));
                n_done += 1;
            }
            _ => {}
        }
    }
    lines.join("\n") + "\n"
}

impl Model {
    /// Runs the script undisturbed, one step at a time, and keeps what the files hold after each.
    fn of(script: &str) -> Self {
        let dir = Dir::new();
        dir.dataset();
        let mut text = vec![relative(&dir)];
        let mut child =
            dir.command(&["edit", "parts", "--script", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in script.lines() {
            writeln!(input, "{line}").unwrap();
            let said = output.next().unwrap().unwrap();
            assert!(said.contains("\"edited\""), "{line}: {said}");
            text.push(relative(&dir));
        }
        drop(input);
        assert!(child.wait().unwrap().success());
        Self { text }
    }
}

/// The dataset's files by their names in it.
fn relative(dir: &Dir) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = dir.path("parts");
    files(&root).into_iter().map(|(path, bytes)| (path.strip_prefix(&root).unwrap().to_owned(), bytes)).collect()
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged_and_damages_no_file() {
    let n_kills: u64 = std::env::var("BOXWRIGHT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let n_steps = 40;
    let script = long_script(7, n_steps);
    let model = Model::of(&script);
    let n_steps = script.lines().count();
    let (mut n_midway, mut n_carried_out, mut n_cut) = (0, 0, 0);
    for kill in 0..n_kills {
        let dir = Dir::new();
        dir.dataset();
        dir.write("script.txt", &script);
        let mut child = dir
            .command(&["edit", "parts", "--script", "script.txt", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // After a step that differs from kill to kill, and some part of the time that a step takes.
        let after = (kill as usize * 17) % n_steps;
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged =
            output.by_ref().take(after).filter(|line| line.as_ref().is_ok_and(|line| line.contains("\"edited\""))).count();
        let pause = Duration::from_micros(kill.wrapping_mul(2_654_435_761) % 9000);
        let start = std::time::Instant::now();
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        // What it still said before it ended counts, too; a line that was cut does not.
        acknowledged += output.map_while(Result::ok).filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count();
        child.wait().unwrap();

        let on_disk = relative(&dir);
        let ledger = walkdir::WalkDir::new(dir.path("home")).into_iter().flatten().find(|entry| entry.file_name() == "edits.ledger");
        let is_cut = ledger.is_some_and(|ledger| std::fs::read(ledger.path()).unwrap().last() != Some(&b'\n'));
        // The next start brings the last edit to its end.
        dir.write("nothing.txt", "# nothing\n");
        dir.ok(&["edit", "parts", "--script", "nothing.txt"]);
        let after_restart = relative(&dir);
        // At most the step that was being written is there without having been acknowledged.
        let candidates = acknowledged..=(acknowledged + 1).min(n_steps);
        let found = candidates.clone().find(|&step| model.text[step] == after_restart);
        let Some(found) = found else {
            let missing: Vec<_> = after_restart.iter().filter(|(path, bytes)| model.text[acknowledged].get(*path) != Some(bytes)).collect();
            panic!("kill {kill} after {acknowledged} acknowledged steps: no state of the script; {missing:?}");
        };
        // No file is damaged, even before the next start: each holds one of the two contents around the kill.
        for (path, bytes) in &on_disk {
            let is_temporary = path.file_name().unwrap().to_string_lossy().starts_with(".boxwright-");
            let is_whole = candidates.clone().any(|step| model.text[step].get(path) == Some(bytes));
            assert!(is_temporary || is_whole, "kill {kill}: {path:?} is damaged");
        }
        n_midway += u64::from(found > acknowledged);
        n_carried_out += u64::from(on_disk != after_restart);
        n_cut += u64::from(is_cut);

        // The rest of the script goes on where it stopped, and everything can be taken back.
        if kill % 10 == 0 {
            let rest: String = script.lines().skip(found).flat_map(|line| [line, "\n"]).collect();
            dir.write("rest.txt", &rest);
            dir.ok(&["edit", "parts", "--script", "rest.txt"]);
            assert_eq!(relative(&dir), model.text[n_steps], "kill {kill}");
            while dir.boxwright(&["undo", "parts"]).status.success() {}
            assert_eq!(relative(&dir), model.text[0], "kill {kill}: every byte is back");
        }
    }
    eprintln!(
        "{n_kills} kills: {n_midway} between record and acknowledgement, {n_carried_out} carried out by the next start, {n_cut} lines cut off"
    );
}

/// Opens a dataset in a session of its own.
fn opened(path: &Path, state: &Path) -> Session {
    let mut session = Session::new(Settings::in_dir(state), std::sync::Arc::new(|| {}));
    session.apply(Wish::Open(path.to_owned()));
    while session.wait().is_some() {}
    assert!(session.dataset.is_some(), "{:?}", session.notices);
    session
}

/// Looks at every image and changes nothing; then moves one box of every image that has one, and takes all back.
fn round_trip(path: &Path) -> usize {
    let root = Dataset::open(path).unwrap().root;
    let before = files(&root);
    let state = tempfile::tempdir().unwrap();
    let mut session = opened(path, state.path());
    let images = session.dataset.as_ref().unwrap().dataset.images.clone();
    let mut n_moved = 0;
    for (image, entry) in images.iter().enumerate() {
        session.apply(Wish::Look { image });
        let Some(&label) = session.labels(image).first() else { continue };
        // Saving what is there already.
        session.apply(Wish::Edit(Edit::of_image("Move box", image, vec![LabelOp::Set { index: 0, label }])));
        while session.wait().is_some() {}
        // Written, and written back.
        let path = &entry.label_path;
        let old = std::fs::read(path).unwrap();
        session.apply(Wish::Edit(Edit::of_image("Delete box", image, vec![LabelOp::Remove { index: 0 }])));
        while session.wait().is_some() {}
        assert!(std::fs::read(path).unwrap() != old, "{} was written", path.display());
        session.apply(Wish::UndoEdit);
        while session.wait().is_some() {}
        assert!(std::fs::read(path).unwrap() == old, "{} is as it was", path.display());
    }
    assert!(session.conflicts.is_empty() && session.notices.is_empty(), "{:?}", session.notices);
    assert!(files(&root) == before, "0 bytes differ");

    for (image, entry) in images.iter().enumerate().step_by(7) {
        let labels = session.labels(image).to_vec();
        let Some(index) = labels.len().checked_sub(1) else { continue };
        let mut label = labels[index];
        label.bbox.cx = (label.bbox.cx * 0.9).max(label.bbox.w / 2.0);
        if label.bbox.cx.to_bits() == labels[index].bbox.cx.to_bits() {
            continue;
        }
        let old = std::fs::read(&entry.label_path).unwrap();
        session.apply(Wish::Edit(Edit::of_image("Move box", image, vec![LabelOp::Set { index, label }])));
        while session.wait().is_some() {}
        let new = std::fs::read(&entry.label_path).unwrap();
        let lines = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (old, new) = (lines(&old), lines(&new));
        assert_eq!(old.len(), new.len());
        assert_eq!(old.iter().zip(&new).filter(|(a, b)| a != b).count(), 1, "exactly one row of {} differs", entry.label_path.display());
        n_moved += 1;
    }
    assert!(session.notices.is_empty() && session.conflicts.is_empty(), "{:?}", session.notices);
    for _ in 0..n_moved {
        session.apply(Wish::UndoEdit);
    }
    while session.wait().is_some() {}
    assert!(files(&root) == before, "every byte is back");
    n_moved
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from).into_iter().map(Result::unwrap) {
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            std::fs::create_dir_all(target).unwrap();
        } else {
            // Not with its mode, which may be read-only.
            std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

#[test]
fn opening_and_saving_changes_nothing_and_moving_a_box_one_row() {
    let dir = Dir::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/parts"), &dir.path("parts"));
    assert!(round_trip(&dir.path("parts")) > 10);
    // Real data, where there is some.
    if let Some(shared) = std::env::var_os("BOXWRIGHT_SHARED").map(PathBuf::from) {
        copy(&shared.join("data/coco128"), &dir.path("coco128"));
        let n_coco = round_trip(&dir.path("coco128"));
        let bccd = shared.join("data/bccd-voc").display().to_string();
        dir.ok(&["convert", &bccd, "bccd", "--to", "yolo"]);
        let n_bccd = round_trip(&dir.path("bccd"));
        eprintln!("0 bytes differ; one row of each of {n_coco} files of COCO128 and {n_bccd} of BCCD");
        assert!(n_coco > 10 && n_bccd > 40);
    }
}
