//! The files of a dataset that is to be read: what is there, and which picture a name means.
//!
//! In:  a folder, or one file of labels.
//! Out: all files below it, and pictures by the names that label files give them.
//!
//! A picture is only ever one of the files that were found below the folder: a name such as `../../etc/x.png` finds
//! nothing else. Looks at names only, and at the first bytes of few files.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::dataset::label::Split;
use crate::dataset::layout;
use crate::dataset::open::DatasetError;
use crate::media::decode::is_image_path;

/// How much of a file is read to recognise it.
const HEAD_BYTES: u64 = 256 << 10;
/// So many files of one ending are looked at to recognise a format.
const MAX_LOOKED_AT: usize = 64;
/// A label file of one image is not larger; one of a whole dataset is read as a stream and may be.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 20;

pub struct Source {
    pub root: PathBuf,
    /// The one file that was given, where it was no folder.
    pub file: Option<PathBuf>,
    /// All files that are not hidden, sorted.
    files: Vec<PathBuf>,
    /// Other files than pictures.
    others: HashMap<OsString, Vec<usize>>,
    images: Vec<PathBuf>,
    by_name: HashMap<OsString, Vec<usize>>,
}

impl Source {
    /// Lists a folder, or the folder of a file.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        let failed = |source| DatasetError::Io { path: path.display().to_string(), source };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let metadata = std::fs::metadata(&absolute).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => DatasetError::NotFound { path: path.display().to_string() },
            _ => failed(source),
        })?;
        let (root, file) = if metadata.is_dir() {
            (absolute, None)
        } else {
            let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
            // Pictures of `annotations/instances_val.json` lie beside `annotations`.
            let is_apart = folder.file_name().is_some_and(|name| name.eq_ignore_ascii_case("annotations"));
            (folder.parent().filter(|_| is_apart).map(Path::to_owned).unwrap_or(folder), Some(absolute))
        };
        let files = layout::files_under(&root)?;
        let images: Vec<PathBuf> = files.iter().filter(|path| is_image_path(path)).cloned().collect();
        let mut by_name: HashMap<OsString, Vec<usize>> = HashMap::new();
        for (index, image) in images.iter().enumerate() {
            by_name.entry(image.file_name().unwrap_or_default().to_owned()).or_default().push(index);
        }
        let mut others: HashMap<OsString, Vec<usize>> = HashMap::new();
        for (index, path) in files.iter().enumerate().filter(|(_, path)| !is_image_path(path)) {
            others.entry(path.file_name().unwrap_or_default().to_owned()).or_default().push(index);
        }
        Ok(Self { root, file, files, others, images, by_name })
    }

    /// The files with an ending, or the one that was given.
    pub fn with_ending(&self, ending: &str) -> impl Iterator<Item = &Path> {
        let all = if self.file.is_some() { &[] } else { &self.files[..] };
        let has_ending = move |path: &&Path| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
        all.iter().chain(&self.file).map(PathBuf::as_path).filter(has_ending)
    }

    /// As [`Source::with_ending`], with the first bytes of each; no more than are needed to recognise a format.
    pub fn heads(&self, ending: &str) -> impl Iterator<Item = (&Path, Vec<u8>)> {
        self.with_ending(ending).take(MAX_LOOKED_AT).filter_map(|path| Some((path, head(path)?)))
    }

    pub fn images(&self) -> &[PathBuf] {
        &self.images
    }

    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// The name of a file relative to the root, with `/`.
    pub fn name(&self, path: &Path) -> String {
        self.shown(path).replace('\\', "/")
    }

    /// The picture that a label file means by `name`: with folders, back-slashes, as a URL, or as a path of another machine.
    ///
    /// Of several with that file name the one that shares most folders with `name`, then with `near`, is meant.
    pub fn find_image(&self, name: &str, near: &Path) -> Option<&Path> {
        self.find(&self.images, &self.by_name, name, near)
    }

    /// As [`Source::find_image`], of files that are no pictures.
    pub fn find_file(&self, name: &str, near: &Path) -> Option<&Path> {
        self.find(&self.files, &self.others, name, near)
    }

    fn find<'a>(&self, files: &'a [PathBuf], by_name: &HashMap<OsString, Vec<usize>>, name: &str, near: &Path) -> Option<&'a Path> {
        let name = name.split(['?', '#']).next().filter(|_| name.contains("://")).unwrap_or(name).replace('\\', "/");
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let candidates = by_name.get(&OsString::from(*parts.last()?))?;
        let shared_end = |path: &Path| {
            let found = path.strip_prefix(&self.root).unwrap_or(path).components().rev();
            found.zip(parts.iter().rev()).take_while(|(found, part)| found.as_os_str() == **part).count()
        };
        let shared_start = |path: &Path| path.components().zip(near.components()).take_while(|(a, b)| a == b).count();
        let best = candidates.iter().map(|&index| &files[index]).max_by_key(|path| {
            (shared_end(path), shared_start(path), std::cmp::Reverse(path.components().count())) //
        });
        best.map(PathBuf::as_path)
    }

    /// The picture with the stem of a label file: beside it, else wherever there is just one.
    pub fn image_of_stem(&self, label: &Path, by_stem: &HashMap<OsString, Vec<usize>>) -> Option<&Path> {
        let found = by_stem.get(label.file_stem()?)?;
        let beside = found.iter().find(|&&index| self.images[index].parent() == label.parent());
        let swapped = || {
            // `train/Annotations/a.xml` and `train/JPEGImages/a.jpg`.
            let above = label.parent()?.parent()?;
            found.iter().find(|&&index| self.images[index].parent().and_then(Path::parent) == Some(above))
        };
        let index = beside.or_else(swapped).or_else(|| found.first().filter(|_| found.len() == 1))?;
        Some(&self.images[*index])
    }

    /// Pictures by stem.
    pub fn stems(&self) -> HashMap<OsString, Vec<usize>> {
        let mut stems: HashMap<OsString, Vec<usize>> = HashMap::new();
        for (index, image) in self.images.iter().enumerate() {
            stems.entry(image.file_stem().unwrap_or_default().to_owned()).or_default().push(index);
        }
        stems
    }

    /// The split that a folder of this file is named after.
    pub fn split_of(&self, path: &Path) -> Option<Split> {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.parent()?.components().rev().find_map(|part| split_named(part.as_os_str().to_str()?))
    }

    /// The split that a file of many images is named after, or a folder of it: `instances_val2017.json`.
    pub fn split_of_list(&self, path: &Path) -> Split {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let named = stem.split(|c: char| !c.is_alphanumeric()).rev().find_map(split_named);
        named.or_else(|| self.split_of(path)).unwrap_or(Split::Train)
    }
}

/// The split with this name, be it `train`, `Validation` or `val2017`.
pub(super) fn split_named(name: &str) -> Option<Split> {
    match name.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase().as_str() {
        "train" | "training" | "trainval" => Some(Split::Train),
        "val" | "valid" | "validation" => Some(Split::Val),
        "test" | "testing" => Some(Split::Test),
        _ => None,
    }
}

/// The whole of a label file that is not a stream.
pub(super) fn read(source: &Source, path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", source.shown(path));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{}: is larger than {} MB", source.shown(path), MAX_FILE_BYTES >> 20));
    }
    Ok(bytes)
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
