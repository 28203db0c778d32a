//! Which dataset was a run trained on, and is it still the same?
//!
//! In:  a dataset; later the same or another one.
//! Out: one hash of it, a file that names every image, and in words what has changed.
//!
//! What counts: class names, and for each image of the train and the val split its path below the root, the size of its file
//! and the bytes of its label file. Pixels are not read.
//!
//! Never changes a dataset.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rayon::prelude::*;

use super::error::TrainError;
use super::run_folder::write_whole;
use crate::dataset::Dataset;
use crate::dataset::Split;

/// An image: what would teach something else if it changed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct ImagePrint {
    split: String,
    path: String,
    n_bytes: u64,
    /// BLAKE3 of the label file; an absent file is a background image, as an empty one.
    labels: String,
}

/// What a run needs to know its dataset again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetPrint {
    names: Vec<String>,
    images: Vec<ImagePrint>,
}

impl DatasetPrint {
    /// Reads all label files of the train and val splits.
    pub fn of(dataset: &Dataset) -> Self {
        let entries: Vec<_> = dataset.images.iter().filter(|image| matches!(image.split, Split::Train | Split::Val)).collect();
        let print = |image: &&crate::dataset::ImageEntry| ImagePrint {
            split: image.split.name().to_owned(),
            path: image.path.strip_prefix(&dataset.root).unwrap_or(&image.path).to_string_lossy().into_owned(),
            n_bytes: fs::metadata(&image.path).map_or(0, |file| file.len()),
            labels: blake3::hash(&fs::read(&image.label_path).unwrap_or_default()).to_hex()[..32].to_owned(),
        };
        Self { names: dataset.names.clone(), images: entries.par_iter().map(print).collect() }
    }

    /// BLAKE3 of everything that counts.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        // Lengths go in first, so that moving a byte from one field to the next changes the hash.
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for name in &self.names {
            field(name.as_bytes());
        }
        for image in &self.images {
            field(image.split.as_bytes());
            field(image.path.as_bytes());
            field(&image.n_bytes.to_le_bytes());
            field(image.labels.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Writes a line of JSON an image.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        let mut text = String::new();
        for image in &self.images {
            text += &serde_json::json!(image).to_string();
            text.push('\n');
        }
        write_whole(path, text.as_bytes())
    }

    /// What [`DatasetPrint::write`] wrote, with the class names of the run; `None` if there is no such file.
    pub fn read(path: &Path, names: &[String]) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let images = text.lines().map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
        Some(Self { names: names.to_vec(), images })
    }

    /// What is other in `now`, in words.
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.names != now.names {
            return Some(format!("its classes were {}, now they are {}", self.names.join(", "), now.names.join(", ")));
        }
        let by_path = |print: &Self| -> BTreeMap<String, ImagePrint> {
            print.images.iter().map(|image| (format!("{} {}", image.split, image.path), image.clone())).collect()
        };
        let (was, is) = (by_path(self), by_path(now));
        let missing: Vec<&ImagePrint> = was.iter().filter(|(key, _)| !is.contains_key(*key)).map(|(_, image)| image).collect();
        let new: Vec<&ImagePrint> = is.iter().filter(|(key, _)| !was.contains_key(*key)).map(|(_, image)| image).collect();
        let both: Vec<(&ImagePrint, &ImagePrint)> = was.iter().filter_map(|(key, image)| Some((image, is.get(key)?))).collect();
        let changed = |what: fn(&ImagePrint, &ImagePrint) -> bool| -> Vec<&ImagePrint> {
            both.iter().filter(|(was, is)| what(was, is)).map(|(was, _)| *was).collect()
        };
        let labels = changed(|was, is| was.labels != is.labels);
        let pictures = changed(|was, is| was.n_bytes != is.n_bytes);
        let list = [(missing, "missing"), (new, "new"), (labels, "with other labels"), (pictures, "with other pixels")];
        let parts: Vec<String> = list
            .into_iter()
            .filter_map(|(images, what)| {
                let first = images.first()?;
                let (n, noun) = (images.len(), if images.len() == 1 { "image" } else { "images" });
                Some(format!("{n} {noun} {what} (such as {})", first.path))
            })
            .collect();
        if parts.is_empty() {
            // The same images in another order are another stream of samples.
            return (self.images != now.images).then(|| "its images are in another order".to_owned());
        }
        Some(parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn dataset(root: &Path) -> Dataset {
        Dataset::open(root).unwrap()
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn every_change_that_would_teach_something_else_is_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "data.yaml", "train: images/train\nval: images/val\nnames: [bolt, nut]\n");
        for name in ["train/a", "train/b", "val/c"] {
            write(root, &format!("images/{name}.png"), "picture");
            write(root, &format!("labels/{name}.txt"), "0 0.5 0.5 0.5 0.5\n");
        }
        let before = DatasetPrint::of(&dataset(root));
        assert_eq!(before.difference(&DatasetPrint::of(&dataset(root))), None);
        before.write(&root.join("print.jsonl")).unwrap();
        let again = DatasetPrint::read(&root.join("print.jsonl"), &dataset(root).names).unwrap();
        assert_eq!((again.hash(), &again), (before.hash(), &before));

        let expect = |words: &str| {
            let now = DatasetPrint::of(&dataset(root));
            assert_ne!(now.hash(), before.hash(), "{words}");
            let difference = before.difference(&now).unwrap();
            assert!(difference.contains(words), "{difference}");
        };
        write(root, "labels/train/a.txt", "1 0.5 0.5 0.5 0.5\n");
        expect("1 image with other labels (such as images/train/a.png)");
        write(root, "images/train/d.png", "picture");
        expect("1 image new (such as images/train/d.png)");
        fs::remove_file(root.join("images/val/c.png")).unwrap();
        write(root, "images/val/e.png", "picture");
        expect("1 image missing (such as images/val/c.png)");
        write(root, "images/train/b.png", "another picture");
        expect("1 image with other pixels (such as images/train/b.png)");
        write(root, "data.yaml", "train: images/train\nval: images/val\nnames: [nut, bolt]\n");
        expect("its classes were bolt, nut, now they are nut, bolt");
    }
}
