//! The table of dataset formats: what each is recognised by, what it can hold, who reads and writes it.
//!
//! In:  a folder or file of some format.
//! Out: its format by content, never by its name; or an error that lists what was looked for.
//!
//! All readers give a `Collection` and all writers take one, so that each format is one file and a row of the table.

pub(super) mod archive;
mod coco;
pub mod collection;
mod cvat;
mod darknet;
mod json_head;
mod kitti;
mod label_studio;
mod labelme;
pub mod loss;
mod mot;
mod open_images;
mod source;
pub mod target;
mod via;
mod voc;
mod xml;
mod yolo;

use std::path::{Path, PathBuf};

use super::open::DatasetError;
use collection::Collection;
pub use source::Source;
use target::{Naming, Target};

/// A dataset format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FormatId {
    Yolo,
    Darknet,
    Coco,
    Voc,
    Cvat,
    CvatVideo,
    LabelMe,
    LabelStudio,
    Via,
    OpenImages,
    Mot,
    Kitti,
}

/// How boxes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    Pixels,
    Fractions,
}

/// Which attributes of an object a format holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    All,
    Only(&'static [&'static str]),
}

/// What else a format holds, or needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// Holds outlines of any number of rings beside a box.
    Outlines,
    /// Holds a polygon instead of a box.
    OneRing,
    Scores,
    Tracks,
    /// Tells an image that nobody labelled from a background image.
    Unlabelled,
    /// Holds the numbers that the source gave to its classes.
    ClassIds,
    /// Objects name their class.
    ByName,
    /// A class without a name cannot be written.
    NamesAllClasses,
    /// Writes the size of each image.
    StatesSize,
    /// Images are frames, without names and splits of their own.
    OneVideo,
}

/// Reads a collection from the files that told the format.
type Read = fn(&Source, &[PathBuf]) -> Result<Collection, DatasetError>;
/// Writes, and tells which file below the folder is to be opened.
type Write = fn(&Target<'_>) -> Result<PathBuf, DatasetError>;

/// One row of the table: what is told about a format, and what it can hold.
pub struct FormatInfo {
    pub id: FormatId,
    /// As on the command line.
    pub name: &'static str,
    pub title: &'static str,
    /// What it is recognised by, for the message when nothing is; nothing where another row reads it.
    pub looked_for: &'static str,
    pub units: Units,
    pub attributes: Attributes,
    pub traits: &'static [Trait],
    /// How images are named when it is written; `None`: it is only read.
    pub naming: Option<Naming>,
    /// The files that tell it, none if it is another format.
    recognise: fn(&Source) -> Vec<PathBuf>,
    read: Read,
    write: Option<Write>,
}

/// All formats, in the order in which they are looked for: what leaves the least doubt first.
pub static FORMATS: [FormatInfo; 12] = [
    FormatInfo {
        id: FormatId::Yolo,
        name: "yolo",
        title: "YOLO",
        looked_for: "a data.yaml; or a folder of images with label files of the same stem",
        units: Units::Fractions,
        attributes: Attributes::Only(&[]),
        traits: &[Trait::Unlabelled],
        naming: Some(Naming::PerSplit),
        recognise: yolo::recognise,
        read: yolo::read,
        write: Some(yolo::write),
    },
    FormatInfo {
        id: FormatId::Darknet,
        name: "darknet",
        title: "Darknet",
        looked_for: "a .data file with `names =` and `train =`",
        units: Units::Fractions,
        attributes: Attributes::Only(&[]),
        traits: &[Trait::Unlabelled],
        naming: Some(Naming::PerSplit),
        recognise: darknet::recognise,
        read: darknet::read,
        write: Some(darknet::write),
    },
    FormatInfo {
        id: FormatId::Coco,
        name: "coco",
        title: "COCO",
        looked_for: "a JSON object with `images` and `annotations`",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[Trait::Outlines, Trait::Scores, Trait::Tracks, Trait::ClassIds, Trait::NamesAllClasses, Trait::StatesSize],
        naming: Some(Naming::PerSplit),
        recognise: coco::recognise,
        read: coco::read,
        write: Some(coco::write),
    },
    FormatInfo {
        id: FormatId::Cvat,
        name: "cvat",
        title: "CVAT",
        looked_for: "an XML file with <annotations>",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[Trait::OneRing, Trait::Scores, Trait::Tracks, Trait::ByName, Trait::NamesAllClasses, Trait::StatesSize],
        naming: Some(Naming::PerSplit),
        recognise: cvat::recognise,
        read: cvat::read,
        write: Some(cvat::write),
    },
    FormatInfo {
        id: FormatId::CvatVideo,
        name: "cvat-video",
        title: "CVAT video",
        looked_for: "",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[Trait::OneRing, Trait::Scores, Trait::Tracks, Trait::ByName, Trait::NamesAllClasses, Trait::StatesSize, Trait::OneVideo],
        naming: Some(Naming::PerSplit),
        recognise: |_| Vec::new(),
        read: cvat::read,
        write: Some(cvat::write_video),
    },
    FormatInfo {
        id: FormatId::Voc,
        name: "voc",
        title: "Pascal VOC",
        looked_for: "XML files with <annotation>",
        units: Units::Pixels,
        attributes: Attributes::Only(&voc::FLAGS),
        traits: &[Trait::Unlabelled, Trait::ByName, Trait::NamesAllClasses],
        naming: Some(Naming::Overall),
        recognise: voc::recognise,
        read: |source, files| Ok(voc::read(source, files)),
        write: Some(voc::write),
    },
    FormatInfo {
        id: FormatId::LabelMe,
        name: "labelme",
        title: "LabelMe",
        looked_for: "JSON objects with `shapes`",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[Trait::OneRing, Trait::Scores, Trait::Tracks, Trait::Unlabelled, Trait::ByName, Trait::NamesAllClasses],
        naming: Some(Naming::PerSplit),
        recognise: labelme::recognise,
        read: |source, files| Ok(labelme::read(source, files)),
        write: Some(labelme::write),
    },
    FormatInfo {
        id: FormatId::LabelStudio,
        name: "labelstudio",
        title: "Label Studio",
        looked_for: "a JSON list of tasks with `data` and `annotations`, or with `rectanglelabels`",
        units: Units::Fractions,
        attributes: Attributes::Only(&[]),
        traits: &[Trait::OneRing, Trait::Unlabelled, Trait::ByName, Trait::NamesAllClasses, Trait::StatesSize],
        naming: Some(Naming::PerSplit),
        recognise: label_studio::recognise,
        read: label_studio::read,
        write: Some(label_studio::write),
    },
    FormatInfo {
        id: FormatId::Via,
        name: "via",
        title: "VIA",
        looked_for: "a JSON object with images that have `filename` and `regions`",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[],
        naming: None,
        recognise: via::recognise,
        read: via::read,
        write: None,
    },
    FormatInfo {
        id: FormatId::OpenImages,
        name: "openimages",
        title: "OpenImages",
        looked_for: "a CSV table with `ImageID`, `LabelName` and `XMin`",
        units: Units::Fractions,
        attributes: Attributes::All,
        traits: &[],
        naming: None,
        recognise: open_images::recognise,
        read: open_images::read,
        write: None,
    },
    FormatInfo {
        id: FormatId::Mot,
        name: "mot",
        title: "MOT",
        looked_for: "text files of `frame,id,left,top,width,height,…`",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[],
        naming: None,
        recognise: mot::recognise,
        read: mot::read,
        write: None,
    },
    FormatInfo {
        id: FormatId::Kitti,
        name: "kitti",
        title: "KITTI",
        looked_for: "text files of a class and 14 or 15 numbers a row",
        units: Units::Pixels,
        attributes: Attributes::All,
        traits: &[],
        naming: None,
        recognise: kitti::recognise,
        read: |source, files| Ok(kitti::read(source, files)),
        write: None,
    },
];

impl FormatId {
    pub fn info(self) -> &'static FormatInfo {
        FORMATS.iter().find(|format| format.id == self).expect("each format has a row in the table")
    }
}

impl FormatInfo {
    pub fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }
}

/// A format that was recognised, and the files that told it.
pub struct Found {
    pub format: &'static FormatInfo,
    files: Vec<PathBuf>,
}

/// Which format a dataset has, by what is in it; `wanted` asks for that one only.
///
/// # Errors
/// When it is none of the table's; the message lists what was looked for.
pub fn recognise(source: &Source, wanted: Option<FormatId>) -> Result<Found, DatasetError> {
    let formats = FORMATS.iter().filter(|format| wanted.is_none_or(|wanted| wanted == format.id));
    for format in formats.clone() {
        let files = (format.recognise)(source);
        if !files.is_empty() {
            return Ok(Found { format, files });
        }
    }
    // Label files beside images are nothing that another format could not have, too: they count last.
    let yolo = FormatId::Yolo.info();
    if wanted.is_none_or(|wanted| wanted == FormatId::Yolo) {
        let files = yolo::recognise_layout(source);
        if !files.is_empty() || wanted.is_some() && !source.images().is_empty() {
            return Ok(Found { format: yolo, files });
        }
    }
    let looked_for =
        formats.filter(|format| !format.looked_for.is_empty()).map(|format| format!("{}: {}", format.title, format.looked_for)).collect();
    Err(DatasetError::NotRecognised { path: source.file.as_ref().unwrap_or(&source.root).display().to_string(), looked_for })
}

impl Found {
    /// Reads all of it; sizes are as decoded.
    pub fn read(&self, source: &Source) -> Result<Collection, DatasetError> {
        let mut collection = (self.format.read)(source, &self.files)?;
        collection.measure();
        Ok(collection)
    }
}

/// Writes a collection; the file or folder below `target` that opens it.
pub fn write(target: &Target<'_>, format: &FormatInfo) -> Result<PathBuf, DatasetError> {
    match format.write {
        Some(write) => write(target),
        None => Err(DatasetError::OnlyRead { format: format.title }),
    }
}

/// The format of a folder that can only be opened after it was converted; `None` where it is YOLO or Pascal VOC.
pub fn foreign(path: &Path) -> Option<&'static FormatInfo> {
    let format = recognise(&Source::open(path).ok()?, None).ok()?.format;
    (!matches!(format.id, FormatId::Yolo | FormatId::Voc | FormatId::Darknet)).then_some(format)
}

/// The format with this name.
pub fn named(name: &str) -> Option<&'static FormatInfo> {
    FORMATS.iter().find(|format| format.name == name)
}

#[cfg(test)]
mod tests;
