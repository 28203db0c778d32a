//! What a dataset says, whatever its format: the form between all readers and all writers.
//!
//! In:  what a reader found, nothing mended: boxes outside the image, empty boxes and classes without a name stay.
//! Out: the same, with the true size of each image.
//!
//! Coordinates stay in the unit that they were written in, as f64, so that a format read and written again loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rayon::prelude::*;

use crate::dataset::label::Split;
use crate::geom::Size;
use crate::media::decode;

/// All images and objects of a dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collection {
    pub names: Vec<String>,
    /// The numbers that the source gives to its classes, where they are not simply 0, 1, 2, …
    pub class_ids: Option<Vec<i64>>,
    pub images: Vec<ImageRecord>,
    /// What could not be taken over, each with its place.
    pub left_out: Vec<String>,
    /// Worth saying, but nothing is lost.
    pub notes: Vec<String>,
}

/// One image and what is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageRecord {
    /// As the source calls it, with `/` between folders.
    pub name: String,
    /// The picture; `None` where there is none.
    pub path: Option<PathBuf>,
    /// As decoded, or as the source says where that cannot be known.
    pub size: Option<Size>,
    pub split: Split,
    /// The source has labels for it, be it none: a background image. Else nobody has looked at it, as far as one knows.
    pub is_labelled: bool,
    pub objects: Vec<Object>,
}

/// One object of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Index into the names; outside of them where the source says so.
    pub class: i64,
    pub coords: Coords,
    /// Rings of an outline, in the unit of `coords`; none for a plain box.
    pub outline: Vec<Vec<[f64; 2]>>,
    pub score: Option<f64>,
    pub track: Option<i64>,
    /// Such as `truncated`, `occluded`, `iscrowd` with "1", or what the source calls them.
    pub attributes: Vec<(String, String)>,
}

/// Where a box is, as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coords {
    /// x1, y1, x2, y2; a minimum may lie beyond its maximum.
    Pixels([f64; 4]),
    /// Centre and size as fractions of the image.
    Fractions([f64; 4]),
}

/// The attribute of a region of many objects that are not told apart.
pub const CROWD: &str = "iscrowd";

impl Object {
    pub fn new(class: i64, coords: Coords) -> Self {
        Self { class, coords, outline: Vec::new(), score: None, track: None, attributes: Vec::new() }
    }

    /// An object with an outline; its box encloses it. `None` without points.
    pub fn outlined(class: i64, outline: Vec<Vec<[f64; 2]>>, is_pixels: bool) -> Option<Self> {
        let [x1, y1, x2, y2] = enclosing(outline.iter().flatten())?;
        let coords = if is_pixels {
            Coords::Pixels([x1, y1, x2, y2])
        } else {
            Coords::Fractions([f64::midpoint(x1, x2), f64::midpoint(y1, y2), x2 - x1, y2 - y1])
        };
        Some(Self { outline, ..Self::new(class, coords) })
    }

    /// x1, y1, x2, y2 in pixels; `None` where that needs the image's size and it is not known.
    pub fn pixels(&self, size: Option<Size>) -> Option<[f64; 4]> {
        match self.coords {
            Coords::Pixels(corners) => Some(corners),
            Coords::Fractions([cx, cy, w, h]) => {
                let (width, height) = sides(size?);
                Some([(cx - w / 2.0) * width, (cy - h / 2.0) * height, (cx + w / 2.0) * width, (cy + h / 2.0) * height])
            }
        }
    }

    /// Centre and size as fractions; `None` where that needs the image's size and it is not known.
    pub fn fractions(&self, size: Option<Size>) -> Option<[f64; 4]> {
        match self.coords {
            Coords::Fractions(fractions) => Some(fractions),
            Coords::Pixels([x1, y1, x2, y2]) => {
                let (width, height) = sides(size?);
                let (x1, y1, x2, y2) = (x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2));
                Some([f64::midpoint(x1, x2) / width, f64::midpoint(y1, y2) / height, (x2 - x1) / width, (y2 - y1) / height])
            }
        }
    }

    /// The rings of the outline in pixels.
    pub fn outline_pixels(&self, size: Option<Size>) -> Vec<Vec<[f64; 2]>> {
        match (self.coords, size) {
            (Coords::Pixels(_), _) | (Coords::Fractions(_), None) => self.outline.clone(),
            (Coords::Fractions(_), Some(size)) => {
                let (width, height) = sides(size);
                self.outline.iter().map(|ring| ring.iter().map(|[x, y]| [x * width, y * height]).collect()).collect()
            }
        }
    }

    /// The outline in pixels where it is one ring that the box encloses, so that it alone says both.
    pub fn ring(&self, size: Option<Size>) -> Option<Vec<[f64; 2]>> {
        let [ring] = &self.outline_pixels(size)[..] else { return None };
        let (around, corners) = (enclosing(ring.iter())?, self.pixels(size)?);
        around.iter().zip(corners).all(|(a, b)| (a - b).abs() < 0.01).then(|| ring.clone())
    }

    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether an attribute is there and does not say no.
    pub fn is(&self, key: &str) -> bool {
        self.attribute(key).is_some_and(|value| !matches!(value, "" | "0" | "false" | "False" | "no"))
    }

    /// Marks the object with an attribute that is simply there.
    pub fn mark(&mut self, key: &str) {
        self.attributes.push((key.to_owned(), "1".to_owned()));
    }
}

impl Collection {
    /// What a class is called; one without a name after its number.
    pub fn class_name(&self, class: i64) -> String {
        let name = usize::try_from(class).ok().and_then(|index| self.names.get(index));
        name.cloned().unwrap_or_else(|| format!("class_{class}"))
    }

    /// The classes of objects that have no name, ascending.
    pub fn unnamed_classes(&self) -> BTreeSet<i64> {
        let objects = self.images.iter().flat_map(|image| &image.objects);
        objects.map(|object| object.class).filter(|&class| class < 0 || class >= self.names.len() as i64).collect()
    }

    pub fn n_objects(&self) -> usize {
        self.images.iter().map(|image| image.objects.len()).sum()
    }

    /// Gives each image the size that it has when it is decoded; only the header is read.
    ///
    /// Where the source says another size the decoded one counts, and a note tells it.
    pub fn measure(&mut self) {
        let measured: Vec<Option<Size>> = self
            .images
            .par_iter()
            .map(|image| image.path.as_ref().and_then(|path| decode::probe(path).ok()).filter(|size| size.width > 0 && size.height > 0))
            .collect();
        let mut differing = Vec::new();
        for (image, size) in self.images.iter_mut().zip(measured) {
            let Some(size) = size else { continue };
            if let Some(stated) = image.size.filter(|stated| *stated != size) {
                differing.push(format!("{} ({}x{}, not {}x{})", image.name, size.width, size.height, stated.width, stated.height));
            }
            image.size = Some(size);
        }
        if let [first, ..] = &differing[..] {
            self.notes.push(format!(
                "{} images have another size than their labels say; the decoded size counts: {first}{}",
                differing.len(),
                if differing.len() > 1 { ", …" } else { "" }
            ));
        }
    }
}

/// Classes by name, for formats that have no list of them.
#[derive(Default)]
pub struct ClassTable {
    names: Vec<String>,
    by_name: BTreeMap<String, i64>,
}

impl ClassTable {
    /// A table that begins with these names, in this order.
    pub fn with(names: Vec<String>) -> Self {
        let mut table = Self::default();
        for name in names {
            table.by_name.entry(name.clone()).or_insert(table.names.len() as i64);
            table.names.push(name);
        }
        table
    }

    /// The class of a name, which comes to the table if it is new.
    pub fn class(&mut self, name: &str) -> i64 {
        if let Some(&class) = self.by_name.get(name) {
            return class;
        }
        let class = self.names.len() as i64;
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), class);
        class
    }

    /// Gives the collection its names: those of a list in its order, all others sorted behind them.
    pub fn finish(self, n_listed: usize, collection: &mut Collection) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order[n_listed.min(self.names.len())..].sort_by(|&a, &b| self.names[a].cmp(&self.names[b]));
        let mut place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new as i64;
        }
        for object in collection.images.iter_mut().flat_map(|image| &mut image.objects) {
            if let Some(&new) = usize::try_from(object.class).ok().and_then(|class| place.get(class)) {
                object.class = new;
            }
        }
        collection.names = order.into_iter().map(|old| self.names[old].clone()).collect();
    }
}

/// The box around points.
pub fn enclosing<'a>(points: impl Iterator<Item = &'a [f64; 2]>) -> Option<[f64; 4]> {
    points.fold(None, |found: Option<[f64; 4]>, &[x, y]| {
        let [x1, y1, x2, y2] = found.unwrap_or([x, y, x, y]);
        Some([x1.min(x), y1.min(y), x2.max(x), y2.max(y)])
    })
}

/// A size from what a file says; `None` unless both sides are whole numbers from 1 on.
pub fn stated_size(width: f64, height: f64) -> Option<Size> {
    let side = |value: f64| (value >= 1.0 && value <= f64::from(u32::MAX)).then_some(value as u32);
    side(width).zip(side(height)).map(|(width, height)| Size::new(width, height))
}

fn sides(size: Size) -> (f64, f64) {
    (f64::from(size.width), f64::from(size.height))
}
