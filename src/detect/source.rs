//! What to detect on: a file, a folder, or a pattern with `*` and `?`, as a list of picture files.
//!
//! In:  a path as a person types it. Out: the pictures, sorted by path (those of a list in its order), or an error that names what was
//! looked for.
//!
//! Goes by names alone: whether a picture can be decoded shows when its turn comes. Never follows a folder into its subfolders;
//! a pattern can (`photos/*/*.jpg`).

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::error::DetectError;
use crate::media::decode::is_image_path;

/// Endings of videos that people try, lower case.
const VIDEO_EXTENSIONS: [&str; 14] = ["asf", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "ts", "webm", "wmv"];

/// The pictures of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub pictures: Vec<PathBuf>,
    /// One picture was named by itself: if it cannot be read, nothing is left to do. In a folder it is skipped and listed.
    pub single: bool,
}

impl Source {
    /// Finds the pictures of a file, a folder, a `.txt` list (one path a line, relative to the list), or a pattern.
    ///
    /// A name that exists counts as it is, even if it holds a `*`.
    ///
    /// # Errors
    /// Nothing there; nothing there that is named like a picture; a video; a list that cannot be read.
    pub fn find(source: &Path) -> Result<Self, DetectError> {
        let many = |mut pictures: Vec<PathBuf>| {
            pictures.sort();
            Self { pictures, single: false }
        };
        let found = if source.is_dir() {
            let files = entries(source)?.into_iter().filter(|path| path.is_file()).collect();
            many(pictures_among(files, source)?)
        } else if source.is_file() {
            if has_extension(source, &["txt"]) {
                Self { pictures: pictures_among(read_list(source)?, source)?, single: false }
            } else if is_image_path(source) {
                Self { pictures: vec![source.to_owned()], single: true }
            } else if has_extension(source, &VIDEO_EXTENSIONS) {
                return Err(DetectError::Video { path: source.display().to_string() });
            } else {
                return Err(DetectError::NotAPicture { path: source.display().to_string() });
            }
        } else if is_pattern(source.as_os_str()) {
            many(pictures_among(matches_of(source), source)?)
        } else {
            return Err(DetectError::Missing { path: source.display().to_string() });
        };
        Ok(found)
    }
}

/// Those named like pictures; an error that says why there are none.
fn pictures_among(files: Vec<PathBuf>, source: &Path) -> Result<Vec<PathBuf>, DetectError> {
    let video = files.iter().find(|path| has_extension(path, &VIDEO_EXTENSIONS)).cloned();
    let pictures: Vec<PathBuf> = files.into_iter().filter(|path| is_image_path(path)).collect();
    match (pictures.is_empty(), video) {
        (false, _) => Ok(pictures),
        (true, Some(video)) => Err(DetectError::Video { path: video.display().to_string() }),
        (true, None) => Err(DetectError::NoPictures { path: source.display().to_string() }),
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

/// What a folder holds, hidden entries left out.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, DetectError> {
    let read = |source| DetectError::Read { path: folder.display().to_string(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn read_list(list: &Path) -> Result<Vec<PathBuf>, DetectError> {
    let read = |source| DetectError::Read { path: list.display().to_string(), source };
    let text = std::fs::read_to_string(list).map_err(read)?;
    let folder = list.parent().unwrap_or(Path::new(""));
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(|line| folder.join(line.strip_prefix("./").unwrap_or(line))).collect())
}

fn is_pattern(text: &OsStr) -> bool {
    text.as_encoded_bytes().iter().any(|byte| b"*?".contains(byte))
}

/// Files that a pattern matches. A folder that cannot be read has no matches.
fn matches_of(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        found = match component {
            Component::Normal(name) if is_pattern(name) => {
                let name = name.to_string_lossy();
                let in_folder = |folder: &PathBuf| {
                    // An empty path is the current folder, but does not read as one.
                    let here = folder.as_os_str().is_empty();
                    let entries = entries(if here { Path::new(".") } else { folder }).unwrap_or_default();
                    let matching = |path: &PathBuf| path.file_name().is_some_and(|entry| matches(&name, &entry.to_string_lossy()));
                    entries.into_iter().filter(matching).map(|path| folder.join(path.file_name().unwrap_or_default())).collect::<Vec<_>>()
                };
                found.iter().flat_map(in_folder).collect()
            }
            other => found.into_iter().map(|path| path.join(other)).filter(|path| path.exists()).collect(),
        };
    }
    found.retain(|path| path.is_file());
    found
}

/// Whether a name fits a pattern of one path component: `*` is any signs, `?` is one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star is, and up to where of the name it reaches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|&sign| sign == '?' || sign == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, reach)) = star {
            star = Some((at, reach + 1));
            p = at + 1;
            n = reach + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&sign| sign == '*')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::{Source, matches};
    use crate::detect::error::DetectError;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        folder
    }

    /// Names relative to the folder.
    fn found(folder: &Path, source: &str) -> Vec<String> {
        let source = Source::find(&folder.join(source)).unwrap();
        source.pictures.iter().map(|path| path.strip_prefix(folder).unwrap().to_str().unwrap().replace('\\', "/")).collect()
    }

    #[test]
    fn a_folder_gives_its_pictures_sorted() {
        let folder = folder_with(&["b.PNG", "a.jpg", "c.txt", ".hidden.jpg", "sub/d.jpg", "film.mp4"]);
        assert_eq!(found(folder.path(), ""), ["a.jpg", "b.PNG"]);
        assert!(!Source::find(folder.path()).unwrap().single);
    }

    #[test]
    fn a_file_is_a_single_picture() {
        let folder = folder_with(&["a*.jpg"]);
        let source = Source::find(&folder.path().join("a*.jpg")).unwrap();
        assert!(source.single);
        assert_eq!(source.pictures.len(), 1);
    }

    #[test]
    fn a_pattern_matches_in_every_part_of_the_path() {
        let folder = folder_with(&["x/img_1.jpg", "x/img_12.jpg", "x/img_2.txt", "y/img_3.jpg", "y/other.jpg", "z.jpg"]);
        assert_eq!(found(folder.path(), "x/*.jpg"), ["x/img_1.jpg", "x/img_12.jpg"]);
        assert_eq!(found(folder.path(), "*/img_?.*"), ["x/img_1.jpg", "y/img_3.jpg"]);
        assert_eq!(found(folder.path(), "?/other.jpg"), ["y/other.jpg"]);
    }

    #[test]
    fn a_list_keeps_its_order() {
        let folder = folder_with(&["b.jpg", "sub/a.jpg"]);
        std::fs::write(folder.path().join("list.txt"), "\u{feff}./sub/a.jpg\r\n\r\nb.jpg\r\n").unwrap();
        assert_eq!(found(folder.path(), "list.txt"), ["sub/a.jpg", "b.jpg"]);
    }

    #[test]
    fn nothing_found_says_what_was_looked_for_and_what_is_accepted() {
        let folder = folder_with(&["notes.md", "film.MP4", "videos/film.avi", "empty/x.md"]);
        let error = |name: &str| Source::find(&folder.path().join(name)).unwrap_err();
        assert!(matches!(error("none.jpg"), DetectError::Missing { path } if path.ends_with("none.jpg")));
        assert!(matches!(error("notes.md"), DetectError::NotAPicture { .. }));
        assert!(matches!(error("film.MP4"), DetectError::Video { .. }));
        assert!(matches!(error("videos"), DetectError::Video { path } if path.ends_with("film.avi")));
        let nothing = error("empty/*.jpg");
        assert!(nothing.to_string().ends_with("empty/*.jpg"), "{nothing}");
        assert!(nothing.hint().unwrap().contains("png"));
        assert!(matches!(error("empty"), DetectError::NoPictures { .. }));
    }

    #[test]
    fn stars_and_question_marks_match_as_in_a_shell() {
        for (pattern, name) in [("*", "a"), ("*.jpg", "a.b.jpg"), ("a*b*c", "a1b2b3c"), ("??", "äö"), ("a**", "a")] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("?", ""), ("*.jpg", "a.jpeg"), ("a*b", "ba"), ("a", "ab"), ("", "a")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
