//! What all writers need: a folder that does not exist yet for anybody else, names that do not collide, pictures in it.
//!
//! In:  a collection, and the hidden folder beside the target.
//! Out: pictures hard-linked or copied to where a format wants them, and files written.
//!
//! Sources are never written, moved or re-encoded. Stems that are unique are so without regard to capitals.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::collection::{Collection, ImageRecord};
use crate::dataset::label::Split;
use crate::dataset::open::DatasetError;

pub struct Target<'a> {
    pub folder: &'a Path,
    pub collection: &'a Collection,
    placed: Vec<Placed>,
    done: AtomicU64,
    check_in: &'a (dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
}

/// What an image is called in the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its place among all images.
    pub number: usize,
    pub split: Split,
    pub stem: String,
    pub ending: String,
    /// The same picture stands in another split already, and both share one folder.
    pub is_repeated: bool,
}

impl Placed {
    pub fn file_name(&self) -> String {
        if self.ending.is_empty() { self.stem.clone() } else { format!("{}.{}", self.stem, self.ending) }
    }
}

impl<'a> Target<'a> {
    pub fn new(
        folder: &'a Path,
        collection: &'a Collection,
        naming: Naming,
        check_in: &'a (dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
    ) -> Self {
        Self { folder, collection, placed: place(&collection.images, naming), done: AtomicU64::new(0), check_in }
    }

    /// The splits that have images.
    pub fn splits(&self) -> impl Iterator<Item = Split> {
        Split::ALL.into_iter().filter(|&split| self.placed.iter().any(|placed| placed.split == split))
    }

    /// Number, name and content of each image.
    pub fn images(&self) -> impl Iterator<Item = (usize, &Placed, &ImageRecord)> {
        self.placed.iter().zip(&self.collection.images).enumerate().map(|(number, (placed, image))| (number, placed, image))
    }

    pub fn of_split(&self, split: Split) -> impl Iterator<Item = (usize, &Placed, &ImageRecord)> {
        self.images().filter(move |(_, placed, _)| placed.split == split)
    }

    /// Puts each picture that there is to its path below the folder; tells progress.
    pub fn place_images(&self, path_of: impl Fn(&Placed) -> String + Sync) -> Result<(), DatasetError> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for placed in &self.placed {
            let folder = Path::new(&path_of(placed)).parent().unwrap_or(Path::new("")).to_owned();
            if folders.last() != Some(&folder) && !folders.contains(&folder) {
                self.make_folder(&folder.to_string_lossy())?;
                folders.push(folder);
            }
        }
        self.each(|placed, image| {
            let Some(source) = image.path.as_ref().filter(|_| !placed.is_repeated) else { return Ok(()) };
            let target = self.folder.join(path_of(placed));
            // Links are followed, so that the copy does not depend on where they lead from.
            let source = source.canonicalize().unwrap_or_else(|_| source.clone());
            std::fs::hard_link(&source, &target)
                .or_else(|_| copy(&source, &target))
                .map_err(|source| DatasetError::Write { path: target.display().to_string(), source })
        })
    }

    /// Does something for each image, several at a time.
    pub fn each(&self, work: impl Fn(&Placed, &ImageRecord) -> Result<(), DatasetError> + Sync) -> Result<(), DatasetError> {
        // Each writer goes over the images at most twice: pictures, then labels.
        let total = 2 * self.placed.len() as u64;
        self.placed.par_iter().zip(&self.collection.images).try_for_each(|(placed, image)| {
            work(placed, image)?;
            match (self.check_in)(self.done.fetch_add(1, Ordering::Relaxed) + 1, total) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
    }

    pub fn make_folder(&self, path: &str) -> Result<(), DatasetError> {
        let path = self.folder.join(path);
        std::fs::create_dir_all(&path).map_err(|source| DatasetError::Write { path: path.display().to_string(), source })
    }

    pub fn write(&self, path: &str, text: &str) -> Result<(), DatasetError> {
        let path = self.folder.join(path);
        std::fs::write(&path, text).map_err(|source| DatasetError::Write { path: path.display().to_string(), source })
    }

    /// Writes a file piece by piece, and to the disk.
    pub fn write_with(&self, path: &str, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<(), DatasetError> {
        let path = self.folder.join(path);
        let write = || {
            let mut file = BufWriter::new(File::create_new(&path)?);
            fill(&mut file)?;
            file.flush()?;
            file.get_ref().sync_all()
        };
        write().map_err(|source| DatasetError::Write { path: path.display().to_string(), source })
    }
}

/// Copies to a file that does not exist yet: one that does may be a link to the source itself.
fn copy(source: &Path, target: &Path) -> std::io::Result<()> {
    std::io::copy(&mut File::open(source)?, &mut File::create_new(target)?).map(drop)
}

/// Among which images a stem must be the only one of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Splits have folders of their own.
    PerSplit,
    /// All images lie in one folder.
    Overall,
}

/// A name for each image that no other image has, also not with other capitals.
fn place(images: &[ImageRecord], naming: Naming) -> Vec<Placed> {
    let mut taken: HashSet<(Option<Split>, String)> = HashSet::new();
    let mut known: HashMap<&Path, String> = HashMap::new();
    let mut next: HashMap<(Option<Split>, String), usize> = HashMap::new();
    images
        .iter()
        .enumerate()
        .map(|(number, image)| {
            // The file's own name, where there is one: a label file may call it differently.
            let found = image.path.as_ref().map(|path| path.file_name().unwrap_or_default().to_string_lossy());
            let name = found.unwrap_or_else(|| image.name.rsplit(['/', '\\']).next().unwrap_or_default().into());
            let (stem, ending) = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).unwrap_or((&name, ""));
            let stem = if matches!(stem, "" | "." | "..") { "image" } else { stem };
            let before = image.path.as_deref().and_then(|path| known.get(path)).filter(|_| naming == Naming::Overall);
            if let Some(stem) = before {
                return Placed { number, split: image.split, stem: stem.clone(), ending: ending.to_owned(), is_repeated: true };
            }
            let among = (naming == Naming::PerSplit).then_some(image.split);
            let mut unique = stem.to_owned();
            let suffix = next.entry((among, stem.to_lowercase())).or_insert(2);
            while !taken.insert((among, unique.to_lowercase())) {
                unique = format!("{stem}-{suffix}");
                *suffix += 1;
            }
            known.extend(image.path.as_deref().map(|path| (path, unique.clone())));
            Placed { number, split: image.split, stem: unique, ending: ending.to_owned(), is_repeated: false }
        })
        .collect()
}

/// How many images get another name than their file has.
pub fn n_renamed(collection: &Collection, naming: Naming) -> usize {
    let placed = place(&collection.images, naming);
    let name = |image: &ImageRecord| image.path.as_ref().map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    collection.images.iter().zip(&placed).filter(|(image, placed)| name(image).is_some_and(|name| name != placed.file_name())).count()
}
