//! Which room may name which: the arrows of the architecture, read from the `use crate::room::…` lines and paths of `src`.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A room and the rooms below it that it may name.
const ARROWS: [(&str, &[&str]); 12] = [
    ("geom", &[]),
    ("media", &["geom"]),
    ("dataset", &["geom", "media"]),
    ("engine", &[]),
    ("yolo", &["geom", "engine"]),
    ("detect", &["geom", "media", "engine", "yolo"]),
    ("eval", &["geom", "media", "dataset", "detect", "engine", "yolo"]),
    ("train", &["geom", "media", "dataset", "engine", "yolo", "eval"]),
    ("export", &["geom", "engine", "yolo"]),
    ("session", &["geom", "media", "dataset", "engine", "yolo", "detect", "eval", "train", "export"]),
    ("gui", &["session", "geom", "media", "dataset", "engine", "yolo", "detect", "eval", "train", "export"]),
    ("cli", &["session", "gui", "geom", "media", "dataset", "engine", "yolo", "detect", "eval", "train", "export"]),
];

/// What only one room may name, and which.
const OWNED: [(&str, &str); 5] = [("egui", "gui"), ("eframe", "gui"), ("egui_plot", "gui"), ("clap", "cli"), ("cudarc", "engine/cuda")];

/// What the window may never name: it asks the session.
const FORBIDDEN_IN_GUI: [&str; 3] = ["std::fs", "std::thread", "std::process"];

fn source_files() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(&src) {
        let entry = entry.unwrap();
        if entry.path().extension().is_some_and(|ending| ending == "rs") {
            let relative = entry.path().strip_prefix(&src).unwrap().to_owned();
            let name = relative.with_extension("").to_string_lossy().replace('\\', "/");
            files.push((name, relative, std::fs::read_to_string(entry.path()).unwrap()));
        }
    }
    assert!(files.len() > 20, "the source files were not found");
    files
}

/// The code of a file without comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

#[test]
fn rooms_name_only_the_rooms_below_them() {
    let arrows: BTreeMap<_, _> = ARROWS.into_iter().collect();
    let mut wrong = Vec::new();
    for (name, path, text) in source_files() {
        let room = name.split('/').next().unwrap().to_owned();
        let Some(allowed) = arrows.get(room.as_str()) else { continue };
        for (number, line) in code_lines(&text) {
            for rest in line.split("crate::").skip(1) {
                let named: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if arrows.contains_key(named.as_str()) && named != room && !allowed.contains(&named.as_str()) {
                    wrong.push(format!("src/{}:{number}: {room} may not name {named}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_belongs_to_a_room_and_says_what_it_is_for() {
    let rooms: Vec<_> = ARROWS.iter().map(|(room, _)| *room).collect();
    for (name, path, text) in source_files() {
        let room = name.split('/').next().unwrap();
        assert!(rooms.contains(&room) || ["lib", "main"].contains(&room), "src/{} is in no room", path.display());
        assert!(text.starts_with("//! "), "src/{} does not begin with its header", path.display());
    }
}

#[test]
fn libraries_stay_in_the_room_that_owns_them() {
    let mut wrong = Vec::new();
    for (name, path, text) in source_files() {
        for (number, line) in code_lines(&text) {
            for (library, owner) in OWNED {
                let names_it = line.contains(&format!("{library}::"));
                if names_it && !name.starts_with(owner) {
                    wrong.push(format!("src/{}:{number}: only {owner} may name {library}", path.display()));
                }
            }
            if name.starts_with("gui") {
                for forbidden in FORBIDDEN_IN_GUI.iter().filter(|forbidden| line.contains(**forbidden)) {
                    wrong.push(format!("src/{}:{number}: the window may not name {forbidden}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
