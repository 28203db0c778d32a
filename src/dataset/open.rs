//! Opening a dataset: which images belong to which split, where their labels are, and what the classes are called.
//!
//! In:  a data.yaml, a folder that holds one, a YOLO layout without one, or a Pascal VOC folder.
//! Out: `Dataset`, whose labels are read on demand.
//!
//! Opening a YOLO dataset decodes nothing and reads no label (only names that are written nowhere are counted from the
//! labels); Pascal VOC has its class names in the annotations, so they are read once. Never writes, never downloads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::data_yaml::{self, DataYaml};
use super::label::{Label, Polygon, Split};
use super::layout::{self, LabelPaths, Places};
use super::parse::{self, LabelFile, ParseOptions};
use super::voc::{self, VocFolder};
use crate::geom::Size;
use crate::media::decode;

/// Larger label files are a mistake, and would only cost memory.
const MAX_LABEL_BYTES: u64 = 8 << 20;
/// How many classes are made up from label files when no names are known.
const MAX_COUNTED_CLASSES: usize = 1000;

/// How labels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yolo,
    PascalVoc,
}

/// One image and the file that holds its labels (which need not exist: a background image).
#[derive(Clone, Debug, PartialEq)]
pub struct ImageEntry {
    pub path: PathBuf,
    pub label_path: PathBuf,
    pub split: Split,
}

/// An open dataset. Labels are read on demand.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The folder that findings name files relative to.
    pub root: PathBuf,
    /// data.yaml, or the folder for Pascal VOC and for layouts without one.
    pub source: PathBuf,
    pub format: Format,
    pub names: Vec<String>,
    /// Sorted by split, then path.
    pub images: Vec<ImageEntry>,
    /// Things about data.yaml that are worth saying, but do not stop anyone.
    pub notes: Vec<String>,
    /// Numbers after the box in a row of a pose dataset.
    pub n_keypoint_fields: Option<usize>,
    /// The classes that label files know, where all of them are taken for one: see [`Dataset::merge_classes`].
    pub merged: Option<Vec<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("cannot read {path}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: {reason}")]
    Yaml { path: String, reason: String },
    #[error("no dataset at {path}")]
    NotFound { path: String },
    #[error("no images in {path}")]
    NoImages { path: String },
    #[error("{path}: {split} is {place:?}, which does not exist")]
    SplitNotFound { path: String, split: &'static str, place: String },
    #[error("{path} is neither a data.yaml nor a folder")]
    NotADataset { path: String },
    #[error("label file {path} {reason}")]
    Label { path: String, reason: String },
    #[error("cannot write {path}")]
    Write { path: String, source: std::io::Error },
    #[error("cannot draw a sample: {reason}")]
    Sample { reason: String },
    #[error("output folder {path} is not empty")]
    OutNotEmpty { path: String },
    #[error("the labels of {path} are Pascal VOC, which cannot be fixed in place")]
    CannotFixVoc { path: String },
    #[error("{reason}")]
    Class { reason: String },
    #[error("class {name:?} has {n_boxes} boxes")]
    ClassHasBoxes { name: String, n_boxes: usize },
    #[error("{path} is written in a way that cannot be changed without rewriting it")]
    YamlForm { path: String },
    #[error("{reason}")]
    Split { reason: String },
    #[error("there is nothing of {path} to undo")]
    NothingToUndo { path: String },
    #[error("the journal {path} is damaged: {reason}")]
    Journal { path: String, reason: String },
    #[error("{path} is no dataset of a known format; looked for {}", looked_for.join("; "))]
    NotRecognised { path: String, looked_for: Vec<String> },
    #[error("cannot read {path}: {reason}")]
    Foreign { path: String, reason: String },
    #[error("cannot unpack {path}: {reason}")]
    Archive { path: String, reason: String },
    #[error("{format} is only read, not written")]
    OnlyRead { format: &'static str },
    #[error("nothing of {path} can be written as {format}")]
    NothingToWrite { path: String, format: &'static str },
    #[error("cancelled")]
    Cancelled,
}

impl DatasetError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        use std::io::ErrorKind;
        let hint = match self {
            Self::Io { source, .. } => match source.kind() {
                ErrorKind::NotFound => "check the spelling of the path",
                ErrorKind::PermissionDenied => "you have no permission to read it",
                _ => return None,
            },
            Self::Yaml { reason, .. } if reason.contains("tab") => "replace the tab at the start of the line by spaces",
            Self::Yaml { reason, .. } if reason.contains("`nor") || reason.contains("no class names") => {
                "add the class names, such as `names: [scratch, dent]`"
            }
            Self::Yaml { reason, .. } if reason.contains("`train`") => {
                "add where the images are, such as `train: images/train` and `val: images/val`"
            }
            Self::Yaml { .. } => "a data.yaml has `path`, `train`, `val` and `names`",
            Self::NotFound { .. } => "give a data.yaml, a folder that holds one, or a Pascal VOC folder",
            Self::NoImages { .. } => {
                return Some(format!("images end with {}; check `path`, `train` and `val`", decode::IMAGE_EXTENSIONS.join(", ")));
            }
            Self::SplitNotFound { .. } => "paths are relative to `path` in data.yaml, or to the folder of data.yaml",
            Self::NotADataset { .. } => "give a data.yaml, or the folder that holds the images and labels",
            Self::Label { .. } => "restore or remove the file; without it the image counts as background",
            Self::Write { source, .. } => match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk is full; free some space and try again",
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    "it cannot be written there; change the permission, or use another folder"
                }
                _ => return None,
            },
            Self::Sample { .. } => "160 images of 320 pixels are usual",
            Self::OutNotEmpty { .. } => "choose a new or empty folder",
            Self::CannotFixVoc { .. } => "convert the dataset first: `boxwright convert SRC DST --to yolo`; then fix the copy",
            Self::Class { .. } => "`boxwright classes DATASET` lists the classes",
            Self::ClassHasBoxes { .. } => "merge it into another class, or delete its boxes, too (`--with-boxes`)",
            Self::YamlForm { .. } => "change the file with a text editor, or give it `names` as a list and `train` and `val` as paths",
            Self::Split { .. } => "give shares from 0 to 1 that are less than 1 together, such as `--val 0.2 --test 0.1`",
            Self::NothingToUndo { .. } => "only what Boxwright changed can be undone",
            Self::Journal { .. } => "the label files were not touched; the journal can be read with a text editor",
            Self::NotRecognised { .. } => "give the folder that holds the labels and the images, or say the format with `--from`",
            Self::Foreign { .. } => "the file is damaged or of another format; export it again, or say the format with `--from`",
            Self::Archive { .. } => "have a look at it, unpack it by hand, and give the folder",
            Self::OnlyRead { .. } => "`boxwright convert --help` lists the formats that are written",
            Self::NothingToWrite { .. } => "see the lines above it for why each image is left out; `--dry-run` tells them alone",
            Self::Cancelled => return None,
        };
        Some(hint.to_owned())
    }
}

/// A label file, and the outlines of its labels.
#[derive(Debug, Default)]
pub struct OutlinedFile {
    pub file: LabelFile,
    /// Of the labels that training uses, in file order: `None` for a box.
    pub outlines: Vec<Option<Polygon>>,
}

impl Dataset {
    /// Opens a data.yaml, a folder that holds one (or YOLO layouts without), or a Pascal VOC folder.
    ///
    /// A split that is empty or missing is no error as long as there are images; notes and `check` tell it.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read, or has no images; data.yaml with line and reason.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        let shown = || path.display().to_string();
        let absolute = std::path::absolute(path).map_err(|source| DatasetError::Io { path: shown(), source })?;
        let metadata = std::fs::metadata(&absolute).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => DatasetError::NotFound { path: shown() },
            _ => DatasetError::Io { path: shown(), source },
        })?;
        if metadata.is_dir() {
            open_folder(absolute, 0)
        } else if is_yaml(&absolute) {
            open_yaml(&absolute)
        } else {
            Err(DatasetError::NotADataset { path: shown() })
        }
    }

    /// Takes all classes for one from now on, named `item` unless there was only one: labels that are read have class 0.
    pub fn merge_classes(&mut self) {
        if self.names.len() != 1 {
            self.merged = Some(std::mem::replace(&mut self.names, vec!["item".to_owned()]));
        }
    }

    pub fn split(&self, split: Split) -> impl Iterator<Item = &ImageEntry> {
        self.images.iter().filter(move |image| image.split == split)
    }

    /// The labels of an image that training uses, in file order: rows that are valid, and boxes that reach past the
    /// image cut at its edge where that is safe. Absent file: none (a background image).
    ///
    /// # Errors
    /// Only when the file exists and cannot be read as labels at all; bad rows are left out here and told by `check`.
    pub fn labels(&self, image: &ImageEntry) -> Result<Vec<Label>, DatasetError> {
        self.labels_with(image, &|| decode::probe(&image.path).ok())
    }

    /// As [`Dataset::labels`], with the image's size from `image_size`, which is asked only when it is needed.
    pub(super) fn labels_with(&self, image: &ImageEntry, image_size: &dyn Fn() -> Option<Size>) -> Result<Vec<Label>, DatasetError> {
        let Some(file) = self.label_file(image, image_size)? else { return Ok(Vec::new()) };
        match file.problem {
            None => Ok(file.labels().collect()),
            Some(reason) => Err(DatasetError::Label { path: self.shown(&image.label_path), reason }),
        }
    }

    /// The rows of an image's label file with their verdicts, whatever the format; `None` when there is no file.
    ///
    /// `image_size` gives the true size and is asked only when it is needed.
    ///
    /// # Errors
    /// When the file exists and cannot be read from disk.
    pub fn label_file(&self, image: &ImageEntry, image_size: &dyn Fn() -> Option<Size>) -> Result<Option<LabelFile>, DatasetError> {
        Ok(self.label_bytes(&image.label_path)?.map(|bytes| self.parse_bytes(&bytes, image_size)))
    }

    /// As [`Dataset::label_file`], with the outlines of the labels that training uses.
    ///
    /// # Errors
    /// When the file exists and cannot be read from disk.
    pub fn outlined_label_file(
        &self,
        image: &ImageEntry,
        image_size: &dyn Fn() -> Option<Size>,
    ) -> Result<Option<OutlinedFile>, DatasetError> {
        let Some(bytes) = self.label_bytes(&image.label_path)? else { return Ok(None) };
        let file = self.parse_bytes(&bytes, image_size);
        let used = file.rows.iter().filter(|row| row.verdict.label().is_some());
        let outlines = used.map(|row| parse::outline(&bytes, row)).collect();
        Ok(Some(OutlinedFile { file, outlines }))
    }

    pub(super) fn parse_bytes(&self, bytes: &[u8], image_size: &dyn Fn() -> Option<Size>) -> LabelFile {
        let mut file = self.parse_as_written(bytes, image_size);
        if self.merged.is_some() {
            file.merge_classes();
        }
        file
    }

    fn parse_as_written(&self, bytes: &[u8], image_size: &dyn Fn() -> Option<Size>) -> LabelFile {
        let names = self.merged.as_ref().unwrap_or(&self.names);
        if bytes.len() as u64 > MAX_LABEL_BYTES {
            let problem = format!("is larger than {} MB", MAX_LABEL_BYTES >> 20);
            return LabelFile { problem: Some(problem), ..LabelFile::default() };
        }
        match self.format {
            Format::Yolo => {
                let options = ParseOptions { n_classes: names.len(), n_keypoint_fields: self.n_keypoint_fields };
                parse::parse_named(bytes, options, names, image_size)
            }
            Format::PascalVoc => match voc::parse_voc(bytes) {
                Ok(file) => voc::rows(&file, names, image_size()),
                Err((line, reason)) => LabelFile { problem: Some(format!("is broken XML, line {line}: {reason}")), ..LabelFile::default() },
            },
        }
    }

    /// The bytes of a label file; `None` when there is no file. Of oversized files only a little more than the limit is read.
    pub(super) fn label_bytes(&self, path: &Path) -> Result<Option<Vec<u8>>, DatasetError> {
        use std::io::{ErrorKind, Read};
        let failed = |source| DatasetError::Io { path: self.shown(path), source };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_LABEL_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(bytes))
    }

    /// The path relative to the root where it lies below, for findings.
    pub fn relative(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => PathBuf::from("."),
            Ok(rest) => rest.to_owned(),
            Err(_) => path.to_owned(),
        }
    }

    fn shown(&self, path: &Path) -> String {
        self.relative(path).display().to_string()
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml"))
}

fn open_yaml(path: &Path) -> Result<Dataset, DatasetError> {
    let yaml = DataYaml::read(path)?;
    let mut notes = yaml.notes.clone();
    let base = path.parent().unwrap_or(Path::new("/")).to_owned();
    let places = Places::new(base, yaml.path.as_deref(), &mut notes);
    let mut images = Vec::new();
    let mut labels = LabelPaths::default();
    let mut missing = None;
    for split in Split::ALL {
        let mut paths = Vec::new();
        for place in yaml.places(split) {
            if let Some(found) = places.find(place) {
                paths.extend(places.images(&found, &mut notes)?);
            } else {
                notes.push(format!("{} is {place:?}, which does not exist", split.name()));
                missing.get_or_insert((split, place));
            }
        }
        paths.sort();
        paths.dedup();
        images.extend(paths.into_iter().map(|path| ImageEntry { label_path: labels.of(&path), path, split }));
    }
    if images.is_empty() {
        let path = path.display().to_string();
        return Err(match missing {
            Some((split, place)) => DatasetError::SplitNotFound { path, split: split.name(), place: place.clone() },
            None => DatasetError::NoImages { path },
        });
    }
    note_leaks(&images, &mut notes);
    Ok(Dataset {
        root: places.root,
        source: path.to_owned(),
        format: Format::Yolo,
        names: yaml.names,
        images,
        notes,
        n_keypoint_fields: yaml.n_keypoint_fields,
        merged: None,
    })
}

/// Says when the figures of a split will be too good because training has seen its images.
fn note_leaks(images: &[ImageEntry], notes: &mut Vec<String>) {
    let of = |split: Split| images.iter().filter(move |image| image.split == split).map(|image| image.path.as_path());
    let train: Vec<&Path> = of(Split::Train).collect(); // in order, as all images
    for split in [Split::Val, Split::Test] {
        let n_shared = of(split).filter(|path| train.binary_search(path).is_ok()).count();
        if n_shared > 0 {
            notes.push(format!("train and {} share {n_shared} images; figures of {0} will be too good", split.name()));
        }
    }
}

fn open_folder(root: PathBuf, depth: usize) -> Result<Dataset, DatasetError> {
    let entries = std::fs::read_dir(&root).map_err(|source| DatasetError::Io { path: root.display().to_string(), source })?;
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() {
            if !hidden && path.file_name() != Some("__MACOSX".as_ref()) {
                folders.push(path);
            }
        } else if !hidden {
            files.push(path);
        }
    }
    if let Some(yaml) = find_yaml(&files) {
        return open_yaml(yaml);
    }
    if let Some(folder) = VocFolder::find(&root) {
        return folder.open(root);
    }
    // An unpacked archive often has one folder that holds everything.
    let splits = layout::split_folders(&root);
    let has_images = files.iter().any(|path| decode::is_image_path(path));
    if let ([only], true, true) = (&folders[..], splits.is_empty() && !has_images, depth < 3)
        && only.file_name().is_some_and(|name| name != "images")
    {
        return open_folder(only.clone(), depth + 1);
    }
    open_without_yaml(root, splits)
}

/// The data.yaml among a folder's files; or its only YAML file, if that is one by content.
fn find_yaml(files: &[PathBuf]) -> Option<&Path> {
    let usual = ["data.yaml", "data.yml", "dataset.yaml", "dataset.yml"];
    let named = usual.iter().find_map(|usual| files.iter().find(|path| path.file_name().is_some_and(|name| name == *usual)));
    let mut others = files.iter().filter(|path| is_yaml(path));
    let only = others.next().filter(|_| others.next().is_none()).filter(|path| DataYaml::read(path).is_ok());
    named.or(only).map(PathBuf::as_path)
}

fn open_without_yaml(root: PathBuf, splits: Vec<(Split, PathBuf)>) -> Result<Dataset, DatasetError> {
    let mut notes = Vec::new();
    let mut labels = LabelPaths::default();
    let mut images = Vec::new();
    let splits = if splits.is_empty() { vec![(Split::Train, root.clone())] } else { splits };
    for (split, folder) in splits {
        for path in layout::images_under(&folder, &mut notes)? {
            images.push(ImageEntry { label_path: labels.of(&path), path, split });
        }
    }
    if images.is_empty() {
        return Err(DatasetError::NoImages { path: root.display().to_string() });
    }
    let names = known_names(&root, &images).map_or_else(
        || {
            let n = count_classes(&images);
            notes.push(format!("no data.yaml and no classes.txt; {n} classes were counted in the labels"));
            data_yaml::class_names(n)
        },
        |(_, names)| names,
    );
    Ok(Dataset { source: root.clone(), root, format: Format::Yolo, names, images, notes, n_keypoint_fields: None, merged: None })
}

/// Names from a list of classes in the root or in a label folder, and that list.
pub(super) fn known_names(root: &Path, images: &[ImageEntry]) -> Option<(PathBuf, Vec<String>)> {
    let mut folders = vec![root.to_owned(), root.join("labels")];
    let mut labels: Vec<PathBuf> = images.iter().filter_map(|image| image.label_path.parent().map(Path::to_owned)).collect();
    labels.dedup();
    folders.append(&mut labels);
    let files = ["classes.txt", "obj.names", "_darknet.labels"];
    let lists = folders.iter().take(64).flat_map(|folder| files.iter().map(|file| folder.join(file)));
    lists.into_iter().find_map(|list| layout::names_in(&list).map(|names| (list, names)))
}

/// One more than the largest class in all label files.
fn count_classes(images: &[ImageEntry]) -> usize {
    let options = ParseOptions { n_classes: MAX_COUNTED_CLASSES, n_keypoint_fields: None };
    let classes = images.par_iter().filter_map(|image| {
        let bytes = std::fs::read(&image.label_path).ok().filter(|bytes| bytes.len() as u64 <= MAX_LABEL_BYTES)?;
        parse::parse(&bytes, options, &|| None).labels().map(|label| label.class.0 as usize + 1).max()
    });
    classes.max().unwrap_or(0)
}

/// Whether a text file beside images holds at least one box.
pub(super) fn looks_like_labels(path: &Path) -> bool {
    let options = ParseOptions { n_classes: usize::MAX, n_keypoint_fields: None };
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_LABEL_BYTES);
    small && std::fs::read(path).is_ok_and(|bytes| parse::parse(&bytes, options, &|| None).labels().next().is_some())
}

/// Images that share one label file, by that file; in order of the first image.
pub(super) fn by_label_file(dataset: &Dataset) -> Vec<(&Path, Vec<usize>)> {
    let mut places: HashMap<&Path, usize> = HashMap::new();
    let mut files: Vec<(&Path, Vec<usize>)> = Vec::new();
    for (index, image) in dataset.images.iter().enumerate() {
        let place = *places.entry(&image.label_path).or_insert_with(|| {
            files.push((&image.label_path, Vec::new()));
            files.len() - 1
        });
        files[place].1.push(index);
    }
    files
}

#[cfg(test)]
pub(super) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tempfile::TempDir;

    use super::*;
    use crate::dataset::ClassId;

    /// A folder with these files; a name that ends like a picture needs no content, since opening decodes nothing.
    pub(in crate::dataset) fn folder(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    /// A gray picture.
    pub(in crate::dataset) fn png(root: &Path, path: &str, width: u32, height: u32) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let picture = crate::media::Picture { size: Size::new(width, height), rgb: vec![90; (width * height * 3) as usize] };
        crate::media::encode::encode(&path, &picture, 90).unwrap();
    }

    /// Images as `split image label`, relative to the root.
    fn listing(dataset: &Dataset) -> Vec<String> {
        let line =
            |image: &ImageEntry| format!("{} {} {}", image.split.name(), dataset.shown(&image.path), dataset.shown(&image.label_path));
        dataset.images.iter().map(line).collect()
    }

    fn error(path: &Path) -> String {
        let error = Dataset::open(path).unwrap_err();
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
        error.to_string()
    }

    #[test]
    fn a_data_yaml_with_folders_opens_sorted_by_split_and_path() {
        let root = folder(&[
            ("data.yaml", "train: images/train\nval: images/val\nnames: [a, b]\n"),
            ("images/val/2.png", ""),
            ("images/train/b.JPG", ""),
            ("images/train/sub/a.b.jpg", ""),
            ("images/train/._b.jpg", ""),
            ("images/train/notes.txt", ""),
            ("labels/train/b.txt", "1 .5 .5 .2 .2\nbad\n0 .5 .5 .2 .2\n"),
        ]);
        for path in [root.path().to_owned(), root.path().join("data.yaml")] {
            let dataset = Dataset::open(&path).unwrap();
            let expected = [
                "train images/train/b.JPG labels/train/b.txt",
                "train images/train/sub/a.b.jpg labels/train/sub/a.b.txt",
                "val images/val/2.png labels/val/2.txt",
            ];
            assert_eq!(listing(&dataset), expected);
            assert_eq!((dataset.names.len(), dataset.notes.len(), dataset.split(Split::Train).count()), (2, 0, 2));
            let classes: Vec<_> = dataset.labels(&dataset.images[0]).unwrap().iter().map(|label| label.class).collect();
            assert_eq!(classes, [ClassId(1), ClassId(0)]);
            assert_eq!(dataset.labels(&dataset.images[2]).unwrap(), []);
        }
    }

    #[test]
    fn a_roboflow_export_opens_though_its_paths_lead_nowhere() {
        let root = folder(&[
            ("data.yaml", "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnc: 1\nnames: ['x']\n"),
            ("train/images/a.jpg", ""),
            ("valid/images/b.jpg", ""),
        ]);
        let dataset = Dataset::open(root.path()).unwrap();
        assert_eq!(listing(&dataset), ["train train/images/a.jpg train/labels/a.txt", "val valid/images/b.jpg valid/labels/b.txt"]);
        assert_eq!(dataset.notes.len(), 1, "{:?}", dataset.notes);
    }

    #[test]
    fn paths_may_be_lists_backslashes_or_from_another_machine() {
        let root = folder(&[
            ("ds/data.yaml", "path: C:\\Users\\x\\ds\ntrain: [lists/train.txt, images\\more]\nval: images/val/v.jpg\nnames: {0: x}\n"),
            ("ds/lists/train.txt", "../images/a.jpg\r\nimages/b.jpg\n\ndata/images/c.jpg\nimages\\d.jpg\nimages/gone.jpg\n"),
            ("ds/images/a.jpg", ""),
            ("ds/images/b.jpg", ""),
            ("ds/images/c.jpg", ""),
            ("ds/images/d.jpg", ""),
            ("ds/images/more/e.jpg", ""),
            ("ds/images/val/v.jpg", ""),
        ]);
        let dataset = Dataset::open(root.path()).unwrap();
        let images: Vec<_> = dataset.images.iter().map(|image| dataset.shown(&image.path)).collect();
        let expected =
            ["images/a.jpg", "images/b.jpg", "images/c.jpg", "images/d.jpg", "images/gone.jpg", "images/more/e.jpg", "images/val/v.jpg"];
        assert_eq!(images, expected);
        assert_eq!(dataset.notes.len(), 2, "{:?}", dataset.notes);
    }

    #[test]
    fn path_may_lead_beside_the_yaml() {
        let root = folder(&[("cfg/x.yaml", "path: ../ds\ntrain: images\nval: images\nnames: [x]\n"), ("ds/images/a.jpg", "")]);
        let dataset = Dataset::open(&root.path().join("cfg/x.yaml")).unwrap();
        assert_eq!(listing(&dataset), ["train images/a.jpg labels/a.txt", "val images/a.jpg labels/a.txt"]);
        assert_eq!(dataset.root, root.path().join("ds"));
        assert!(dataset.notes[0].contains("share 1 images"), "{:?}", dataset.notes);
    }

    #[test]
    fn layouts_without_a_yaml_are_recognised() {
        let root = folder(&[
            ("unpacked/images/train/a.jpg", ""),
            ("unpacked/images/val/b.jpg", ""),
            ("unpacked/labels/train/a.txt", "4 .5 .5 .2 .2\n99999 .5 .5 .2 .2"),
        ]);
        let dataset = Dataset::open(root.path()).unwrap();
        assert_eq!(listing(&dataset), ["train images/train/a.jpg labels/train/a.txt", "val images/val/b.jpg labels/val/b.txt"]);
        assert_eq!(dataset.names, ["class_0", "class_1", "class_2", "class_3", "class_4"]);

        let root = folder(&[("images/a.jpg", ""), ("labels/a.txt", ""), ("labels/classes.txt", "cat\r\ndog\n\n")]);
        assert_eq!(Dataset::open(root.path()).unwrap().names, ["cat", "dog"]);

        let root = folder(&[("images/flat/a.jpg", ""), ("images/flat/a.txt", "0 .5 .5 .1 .1")]);
        let dataset = Dataset::open(&root.path().join("images/flat")).unwrap();
        assert_eq!(listing(&dataset), ["train a.jpg a.txt"]);
        assert_eq!(dataset.labels(&dataset.images[0]).unwrap().len(), 1);
    }

    #[test]
    fn merged_classes_are_one_and_wrong_ones_stay_wrong() {
        let yaml = "train: images/train\nval: images/val\nnames: [a, b]\n";
        let rows = "0 .5 .5 .2 .2\n1 .2 .2 .1 .1\n2 .2 .2 .1 .1\n1 .95 .5 .2 .2\n";
        let root = folder(&[("data.yaml", yaml), ("images/train/a.jpg", ""), ("images/val/b.jpg", ""), ("labels/train/a.txt", rows)]);
        let mut dataset = Dataset::open(root.path()).unwrap();
        let before = dataset.label_file(&dataset.images[0], &|| None).unwrap().unwrap();
        dataset.merge_classes();
        assert_eq!(dataset.names, ["item"]);
        let file = dataset.label_file(&dataset.images[0], &|| None).unwrap().unwrap();
        assert_eq!(file.labels().count(), before.labels().count());
        assert!(file.labels().all(|label| label.class == crate::dataset::ClassId(0)));
        assert!(matches!(&file.rows[2].verdict, parse::Verdict::Dropped(_)), "there is no class 2");

        let mut one = Dataset { names: vec!["bolt".into()], merged: None, ..dataset };
        one.merge_classes();
        assert_eq!((one.names, one.merged), (vec!["bolt".to_owned()], None));
    }

    #[test]
    fn a_pascal_voc_folder_opens_with_its_lists() {
        let object = |name: &str| format!("<annotation><filename>c.jpg</filename><object><name>{name}</name></object></annotation>");
        let root = folder(&[
            ("JPEGImages/a.jpg", ""),
            ("JPEGImages/b.jpg", ""),
            ("JPEGImages/c.jpg", ""),
            ("JPEGImages/d.jpg", ""),
            ("Annotations/a.xml", &object("dog")),
            ("Annotations/b.xml", &object("cat")),
            ("Annotations/other.xml", &object("dog")),
            ("Annotations/broken.xml", "<annotation>"),
            ("ImageSets/Main/train.txt", "a\nc.jpg\n"),
            ("ImageSets/Main/val.txt", "b  1\ngone\n"),
            ("ImageSets/Main/dog_train.txt", "a -1\n"),
        ]);
        let dataset = Dataset::open(root.path()).unwrap();
        let expected = [
            "train JPEGImages/a.jpg Annotations/a.xml",
            "train JPEGImages/c.jpg Annotations/other.xml",
            "val JPEGImages/b.jpg Annotations/b.xml",
        ];
        assert_eq!(listing(&dataset), expected);
        assert_eq!((dataset.format, dataset.names.as_slice()), (Format::PascalVoc, ["cat".to_owned(), "dog".to_owned()].as_slice()));
        assert!(dataset.notes.iter().any(|note| note.starts_with("1 images are in no list")), "{:?}", dataset.notes);
    }

    #[test]
    fn errors_say_what_and_where_and_have_a_hint() {
        let root = folder(&[
            ("tabs/data.yaml", "train: a\nnames:\n\t- x\n"),
            ("nowhere/data.yaml", "train: images/train\nval: images/val\nnames: [x]\n"),
            ("nothing/data.yaml", "train: .\nnames: [x]\n"),
            ("keys/data.yaml", "train: .\n"),
            ("file.txt", ""),
            ("empty/readme.md", ""),
        ]);
        let at = |path: &str| error(&root.path().join(path));
        assert!(at("gone").starts_with("no dataset at "));
        assert!(at("tabs").ends_with("data.yaml: line 3: is indented with a tab; YAML wants spaces"));
        assert!(at("nowhere").ends_with("data.yaml: train is \"images/train\", which does not exist"));
        assert!(at("nothing").starts_with("no images in "));
        assert!(at("keys").ends_with("has neither `names` nor `nc`"));
        assert!(at("file.txt").ends_with("is neither a data.yaml nor a folder"));
        assert!(at("empty").starts_with("no images in "));
    }

    #[test]
    fn a_label_file_that_is_no_text_is_an_error_and_not_background() {
        let root = folder(&[("images/a.jpg", ""), ("labels/a.txt", "\0\0\0"), ("classes.txt", "x")]);
        let dataset = Dataset::open(root.path()).unwrap();
        let error = dataset.labels(&dataset.images[0]).unwrap_err();
        assert_eq!(error.to_string(), "label file labels/a.txt holds binary data, not text");
    }
}
