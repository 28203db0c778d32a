//! Where the files of a dataset are: images below a folder or in a list, label files beside them, layouts without data.yaml.
//!
//! In:  folders and the places that a data.yaml names.
//! Out: sorted image paths by split, and for each image the path of its label file.
//!
//! Looks at folders and names only: no image and no label is opened, so that 100,000 images take well under a second.
//! Paths stay as the operating system gives them. Layouts are those of the public trainers and of Roboflow exports.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use walkdir::WalkDir;

use super::label::Split;
use super::open::DatasetError;
use crate::media::decode::is_image_path;

/// All images below a folder, sorted. Hidden files (such as macOS's `._x.jpg`) are no images.
pub(super) fn images_under(folder: &Path, notes: &mut Vec<String>) -> Result<Vec<PathBuf>, DatasetError> {
    let mut images = Vec::new();
    let mut unreadable = 0;
    // Sorting each folder by its names gives the order of whole paths, and compares less.
    let mut walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        match entry {
            Ok(entry) => {
                let hidden = entry.depth() > 0 && entry.file_name().as_encoded_bytes().starts_with(b".");
                if entry.file_type().is_dir() {
                    if hidden {
                        walk.skip_current_dir();
                    }
                } else if !hidden && is_image_path(entry.path()) {
                    images.push(entry.into_path());
                }
            }
            Err(error) if error.depth() == 0 => {
                let source = error.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                return Err(DatasetError::Io { path: folder.display().to_string(), source });
            }
            // A loop of links, a folder without permission, a link to nothing: the others still count.
            Err(_) => unreadable += 1,
        }
    }
    if unreadable > 0 {
        notes.push(format!("{unreadable} entries below {} could not be read and are left out", folder.display()));
    }
    debug_assert!(images.is_sorted());
    Ok(images)
}

/// All files below a folder that are not hidden, sorted.
pub(super) fn files_under(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let mut files = Vec::new();
    for entry in WalkDir::new(folder).follow_links(true) {
        match entry {
            Ok(entry) if entry.file_type().is_file() && !entry.file_name().as_encoded_bytes().starts_with(b".") => {
                files.push(entry.into_path());
            }
            Err(error) if error.depth() == 0 => {
                let source = error.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                return Err(DatasetError::Io { path: folder.display().to_string(), source });
            }
            _ => {}
        }
    }
    files.sort();
    Ok(files)
}

/// Finds label files of images; remembers each folder's answer.
#[derive(Default)]
pub(super) struct LabelPaths {
    folders: HashMap<PathBuf, PathBuf>,
    /// Folder of the last image, and of its label: images come folder by folder.
    last: (PathBuf, PathBuf),
}

impl LabelPaths {
    /// The label file of an image: the last folder called `images` becomes `labels`, the ending becomes `.txt`.
    ///
    /// Without such a folder the label lies beside the image; so it does when the `labels` folder does not exist and a
    /// label lies beside the image (a flat dataset below a folder that happens to be called `images`).
    pub(super) fn of(&mut self, image: &Path) -> PathBuf {
        let folder = image.parent().unwrap_or(Path::new(""));
        let beside = image.with_extension("txt");
        let Some(name) = beside.file_name() else { return beside };
        if self.last.0.as_os_str() == folder.as_os_str() {
            return self.last.1.join(name);
        }
        if let Some(labels) = self.folders.get(folder) {
            self.last = (folder.to_owned(), labels.clone());
            return labels.join(name);
        }
        let labels = labels_folder(folder);
        let labels = if labels != folder && !labels.is_dir() && beside.is_file() { folder.to_owned() } else { labels };
        let path = labels.join(name);
        self.folders.insert(folder.to_owned(), labels);
        path
    }
}

/// The folder with its last component `images` replaced by `labels`.
fn labels_folder(folder: &Path) -> PathBuf {
    replace_last(folder, "images", "labels")
}

/// The folder with its last component `labels` replaced by `images`: where the images of a label folder are.
pub(super) fn images_folder(folder: &Path) -> PathBuf {
    replace_last(folder, "labels", "images")
}

fn replace_last(folder: &Path, from: &str, to: &str) -> PathBuf {
    let parts: Vec<Component> = folder.components().collect();
    let Some(last) = parts.iter().rposition(|part| part.as_os_str() == from) else { return folder.to_owned() };
    parts.iter().enumerate().map(|(index, part)| if index == last { OsStr::new(to) } else { part.as_os_str() }).collect()
}

/// Where data.yaml's places are looked for.
pub(super) struct Places {
    /// The resolved `path`.
    pub(super) root: PathBuf,
    /// The folder of data.yaml.
    pub(super) base: PathBuf,
}

impl Places {
    /// Finds the folder that `path` means: absolute, beside data.yaml, below the current folder, or else data.yaml's own.
    pub(super) fn new(base: PathBuf, path: Option<&str>, notes: &mut Vec<String>) -> Self {
        let Some(path) = path else { return Self { root: base.clone(), base } };
        let found = spellings(path).into_iter().flat_map(|path| [base.join(&path), path]).find(|path| path.is_dir());
        let root = found.and_then(|path| std::path::absolute(path).ok()).map(tidy);
        let root = root.unwrap_or_else(|| {
            notes.push(format!("`path` of data.yaml ({path:?}) does not exist here; its own folder is used"));
            base.clone()
        });
        Self { root, base }
    }

    /// Finds one place of a split: below `path`, beside data.yaml, below the current folder; a leading `../` is dropped
    /// when nothing is found with it, as Roboflow's exports need.
    pub(super) fn find(&self, place: &str) -> Option<PathBuf> {
        let places = spellings(place).into_iter().flat_map(|place| {
            let without = place.strip_prefix("..").map(Path::to_owned).ok();
            let in_folder = |folder: &Path| [Some(folder.join(&place)), without.as_ref().map(|place| folder.join(place))];
            [in_folder(&self.root), in_folder(&self.base), [Some(place.clone()), None]].into_iter().flatten().flatten().collect::<Vec<_>>()
        });
        places.into_iter().find(|path| path.exists()).and_then(|path| std::path::absolute(path).ok()).map(tidy)
    }

    /// The images of a place: a folder, a list, or one image.
    pub(super) fn images(&self, place: &Path, notes: &mut Vec<String>) -> Result<Vec<PathBuf>, DatasetError> {
        if place.is_dir() {
            images_under(place, notes)
        } else if is_image_path(place) {
            Ok(vec![place.to_owned()])
        } else {
            self.listed_images(place, notes)
        }
    }

    /// The images that a `.txt` list names: absolute, relative to the list, to `path`, or to the current folder.
    fn listed_images(&self, list: &Path, notes: &mut Vec<String>) -> Result<Vec<PathBuf>, DatasetError> {
        let bytes = std::fs::read(list).map_err(|source| DatasetError::Io { path: list.display().to_string(), source })?;
        let beside = list.parent().unwrap_or(Path::new("")).to_owned();
        let current = std::path::absolute(".").unwrap_or_default();
        let mut folders = [beside, self.root.clone(), self.base.clone(), current];
        let mut images = Vec::new();
        let mut n_missing = 0;
        for line in text_lines(&bytes) {
            let spellings = line.to_str().map_or_else(|| vec![PathBuf::from(&line)], spellings);
            let candidates = spellings.iter().filter(|line| is_image_path(line));
            // Darknet's lists begin with `data/`, which is not in the archive.
            let candidates: Vec<PathBuf> =
                candidates.flat_map(|line| [Some(line.clone()), line.strip_prefix("data").map(Path::to_owned).ok()]).flatten().collect();
            let Some(first) = candidates.first() else { continue };
            let found = folders.iter().enumerate().find_map(|(index, folder)| {
                let path = candidates.iter().map(|candidate| folder.join(candidate)).find(|path| path.is_file())?;
                Some((index, path))
            });
            n_missing += usize::from(found.is_none());
            let path = match found {
                Some((index, path)) => {
                    folders.swap(0, index); // the next line is most likely there, too
                    path
                }
                None => folders[0].join(first),
            };
            images.push(tidy(path));
        }
        if n_missing > 0 {
            notes.push(format!("{n_missing} of {} images in {} do not exist", images.len(), list.display()));
        }
        Ok(images)
    }
}

/// A path as written, and as meant when it comes from Windows or from a shell.
fn spellings(text: &str) -> Vec<PathBuf> {
    let text = text.trim();
    let mut spellings = vec![PathBuf::from(text)];
    if text.contains('\\') {
        spellings.push(PathBuf::from(text.replace('\\', "/")));
    }
    if let (Some(rest), Some(home)) = (text.strip_prefix("~/"), std::env::home_dir()) {
        spellings.push(home.join(rest));
    }
    spellings
}

/// The path without `.` and `..`, if it is the same file then (it is not behind some links).
fn tidy(path: PathBuf) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if tidy.file_name().is_some() => {
                tidy.pop();
            }
            part => tidy.push(part),
        }
    }
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    let same = !has_parent || matches!((tidy.canonicalize(), path.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if same { tidy } else { path }
}

/// The lines of a text file that are not blank, trimmed, as paths may have them.
pub(super) fn text_lines(bytes: &[u8]) -> impl Iterator<Item = OsString> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = bytes.split(|&b| b == b'\n' || b == b'\r').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.map(os_string)
}

#[cfg(unix)]
pub(super) fn os_string(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(not(unix))]
pub(super) fn os_string(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// The class names of a `classes.txt`, one a line. Blank lines at the end are no classes.
pub(super) fn names_in(path: &Path) -> Option<Vec<String>> {
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let names: Vec<String> = text.trim_start_matches('\u{feff}').trim_end().lines().map(|line| line.trim().to_owned()).collect();
    names.iter().any(|name| !name.is_empty()).then_some(names)
}

/// The folders of the splits in a dataset without data.yaml; empty when it has none.
///
/// `train/images`, `images/train`, or just `train`, `val`, `test` with their other names.
pub(super) fn split_folders(root: &Path) -> Vec<(Split, PathBuf)> {
    let named: [(Split, &[&str]); 3] = [
        (Split::Train, &["train", "training", "train2017"]),
        (Split::Val, &["val", "valid", "validation", "val2017"]),
        (Split::Test, &["test", "testing", "test2017"]),
    ];
    let mut found = Vec::new();
    for (split, names) in named {
        for name in names {
            let places = [root.join(name).join("images"), root.join("images").join(name), root.join(name)];
            if let Some(folder) = places.into_iter().find(|folder| folder.is_dir()) {
                found.push((split, folder));
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_images_folder_becomes_labels() {
        let label = |image: &str| LabelPaths::default().of(Path::new(image));
        assert_eq!(label("/no/images/images/train/a.b.jpg"), Path::new("/no/images/labels/train/a.b.txt"));
        assert_eq!(label("/no/pictures/a.jpg"), Path::new("/no/pictures/a.txt"));
        assert_eq!(label("/no/images.d/a.jpeg"), Path::new("/no/images.d/a.txt"));
        assert_eq!(images_folder(Path::new("/labels/labels/train")), Path::new("/labels/images/train"));
    }

    #[test]
    fn lists_keep_odd_names() {
        let lines: Vec<_> = text_lines(b"\xEF\xBB\xBF./a b.jpg\r\n\r\n  #1.jpg \nx").collect();
        assert_eq!(lines, ["./a b.jpg", "#1.jpg", "x"]);
    }
}
