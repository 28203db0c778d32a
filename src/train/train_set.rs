//! The train split in memory: which pictures are used, their labels and outlines, and the fitted pictures themselves.
//!
//! In:  a dataset.
//! Out: sizes and labels, which a recipe is resolved against (`composition.rs`), and pictures whose longer side is the input's
//!      (bilinear), which `paint.rs` puts together.
//!
//! Every picture is decoded once before the first step, fitted to the input size and kept, as long as there is room; the
//! others are decoded each time. A picture that does not decode is left out and told, never fatal. Source: spec 8.1.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;

use rayon::prelude::*;

use super::error::TrainError;
use super::event::ClassBoxes;
use crate::dataset::Dataset;
use crate::dataset::ImageEntry;
use crate::dataset::Label;
use crate::dataset::Polygon;
use crate::dataset::Split;
use crate::dataset::open::OutlinedFile;
use crate::dataset::parse::Verdict;
use crate::geom::Size;
use crate::geom::letterbox::fit_longer_side;
use crate::media::MediaError;
use crate::media::Picture;
use crate::media::decode::ReducedPicture;
use crate::media::decode::decode_reduced_truly;
use crate::media::decode::probe;
use crate::media::resize::resize_linear;

/// Pictures that are decoded between two looks at whether to stop.
const CHUNK: usize = 64;

/// A truth box as the loss reads it: class, x1, y1, x2, y2 in input pixels.
pub type TruthRow = [f32; 5];

/// One picture of the split.
pub struct TrainImage {
    pub path: PathBuf,
    /// After fitting the longer side to the input.
    pub fitted: Size,
    pub labels: Vec<Label>,
    /// Of each label; empty where not all labels of the split have one.
    pub polygons: Vec<Polygon>,
    /// The fitted picture, if there was room for it.
    pub kept: Option<Picture>,
}

/// The pictures that are trained on.
pub struct TrainSet {
    pub images: Vec<TrainImage>,
    /// Side of the square input.
    pub imgsz: u32,
    /// Every label has an outline, so outlines count and objects may be copied.
    pub has_polygons: bool,
    /// Labels with an outline, used or not.
    pub n_polygons: usize,
    /// Pictures that are left out, with the reason.
    pub dropped: Vec<String>,
    /// Label rows that are left out, with the reason.
    pub dropped_rows: Vec<String>,
}

impl TrainSet {
    /// Reads labels and decodes the pictures, of which fitted ones are kept up to `keep_bytes`.
    /// `None`: `check_in(done, total)` said to stop.
    ///
    /// # Errors
    /// A split without a usable picture or without a label.
    pub fn read(
        dataset: &Dataset,
        imgsz: u32,
        keep_bytes: u64,
        check_in: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<Self>, TrainError> {
        let entries: Vec<_> = dataset.split(Split::Train).collect();
        let total = entries.len() as u64;
        let mut set = Self {
            images: Vec::with_capacity(entries.len()),
            imgsz,
            has_polygons: false,
            n_polygons: 0,
            dropped: Vec::new(),
            dropped_rows: Vec::new(),
        };
        let mut room = keep_bytes;
        for (index, chunk) in entries.chunks(CHUNK).enumerate() {
            if check_in((index * CHUNK) as u64, total).is_break() {
                return Ok(None);
            }
            // Whether a chunk is kept is decided before it is decoded, so that it does not depend on the order of threads.
            let keep = (chunk.len() as u64) * u64::from(imgsz) * u64::from(imgsz) * 3 <= room;
            let read: Vec<Result<(TrainImage, Vec<String>), String>> =
                chunk.par_iter().map(|entry| read_image(dataset, entry, imgsz, keep)).collect();
            for read in read {
                match read {
                    Ok((image, dropped_rows)) => {
                        room -= image.kept.as_ref().map_or(0, |picture| picture.rgb.len() as u64);
                        set.n_polygons += image.polygons.iter().filter(|polygon| !polygon.is_empty()).count();
                        set.dropped_rows.extend(dropped_rows);
                        set.images.push(image);
                    }
                    Err(reason) => set.dropped.push(reason),
                }
            }
        }
        if set.images.is_empty() {
            let reason = set.dropped.first().cloned().unwrap_or_else(|| "the split is empty".into());
            return Err(TrainError::NoTrainImages { n_images: entries.len(), reason });
        }
        let n_labels = set.n_labels();
        if n_labels == 0 {
            return Err(TrainError::NoLabels { n_images: set.images.len() });
        }
        set.has_polygons = set.n_polygons == n_labels;
        if !set.has_polygons {
            set.images.iter_mut().for_each(|image| image.polygons = Vec::new());
        }
        Ok(Some(set))
    }

    /// Leaves out the pictures with fewer than `min_items` labels. Returns how many these are, and how many of them have none.
    ///
    /// # Errors
    /// No picture is left.
    pub fn leave_out_below(&mut self, min_items: usize) -> Result<[usize; 2], TrainError> {
        let n_images = self.images.len();
        let few = self.images.iter().filter(|image| image.labels.len() < min_items);
        let counts = few.fold([0, 0], |[few, none], image| [few + 1, none + usize::from(image.labels.is_empty())]);
        self.images.retain(|image| image.labels.len() >= min_items);
        if self.images.is_empty() {
            let reason = format!("every picture has fewer than {min_items} labels");
            return Err(TrainError::NoTrainImages { n_images, reason });
        }
        Ok(counts)
    }

    /// The median side of all boxes, in input pixels; the side of a box is the root of its area.
    pub fn median_side(&self) -> Option<f32> {
        let side = |image: &TrainImage, label: &Label| {
            let bbox = label.bbox.to_xyxy(image.fitted);
            ((bbox.x2 - bbox.x1) * (bbox.y2 - bbox.y1)).sqrt()
        };
        let mut sides: Vec<f32> = self
            .images
            .iter()
            .flat_map(|image| image.labels.iter().map(move |label| side(image, label)))
            .filter(|side| *side > 0.0)
            .collect();
        sides.sort_by(f32::total_cmp);
        sides.get(sides.len() / 2).copied()
    }

    pub fn n_labels(&self) -> usize {
        self.images.iter().map(|image| image.labels.len()).sum()
    }

    /// How many boxes each class has, in the order of the classes.
    pub fn class_boxes(&self, names: &[String]) -> Vec<ClassBoxes> {
        let mut boxes: Vec<ClassBoxes> = names.iter().map(|name| ClassBoxes { name: name.clone(), n_boxes: 0 }).collect();
        for label in self.images.iter().flat_map(|image| &image.labels) {
            boxes[label.class.0 as usize].n_boxes += 1;
        }
        boxes
    }

    /// Pictures without a box.
    pub fn n_backgrounds(&self) -> usize {
        self.images.iter().filter(|image| image.labels.is_empty()).count()
    }

    /// Pictures that are decoded again for every sample.
    pub fn n_not_kept(&self) -> usize {
        self.images.iter().filter(|image| image.kept.is_none()).count()
    }

    /// Bytes of one sample's pixels.
    pub fn sample_len(&self) -> usize {
        self.imgsz as usize * self.imgsz as usize * 3
    }

    /// A picture fitted to the input, from memory or from its file.
    ///
    /// # Errors
    /// A picture that is not kept and does not decode.
    pub fn fitted_picture(&self, image: usize) -> Result<Cow<'_, Picture>, MediaError> {
        let image = &self.images[image];
        if let Some(picture) = &image.kept {
            return Ok(Cow::Borrowed(picture));
        }
        let (picture, _) = read_fitted(&image.path, self.imgsz)?;
        if picture.size != image.fitted {
            let reason = format!("it changed its size during the training, to {} x {}", picture.size.width, picture.size.height);
            return Err(MediaError::Decode { path: image.path.display().to_string(), reason });
        }
        Ok(Cow::Owned(picture))
    }
}

/// One picture with its labels and the rows that are left out; or why the picture cannot be used.
fn read_image(dataset: &Dataset, entry: &ImageEntry, imgsz: u32, keep: bool) -> Result<(TrainImage, Vec<String>), String> {
    let (size, kept) = if keep {
        let (picture, size) = read_fitted(&entry.path, imgsz).map_err(|error| error.to_string())?;
        (size, Some(picture))
    } else {
        (probe(&entry.path).map_err(|error| error.to_string())?, None)
    };
    let labelled = dataset.outlined_label_file(entry, &|| Some(size)).map_err(|error| error.to_string())?;
    let OutlinedFile { file, outlines } = labelled.unwrap_or_default();
    let label_path = dataset.relative(&entry.label_path);
    if let Some(problem) = file.problem {
        // As a background image it would teach the opposite of what its labels may say.
        return Err(format!("{}: its label file {} {problem}", dataset.relative(&entry.path).display(), label_path.display()));
    }
    let labels = file.labels().collect();
    let n_outlines = outlines.iter().flatten().count();
    let polygons = if n_outlines == 0 { Vec::new() } else { outlines.into_iter().map(Option::unwrap_or_default).collect() };
    let dropped = file.rows.iter().filter_map(|row| match &row.verdict {
        Verdict::Dropped(dropped) => Some(format!("{} line {}: {}", label_path.display(), row.line, dropped.reason)),
        _ => None,
    });
    let fitted = fit_longer_side(size, imgsz);
    Ok((TrainImage { path: entry.path.clone(), fitted, labels, polygons, kept }, dropped.collect()))
}

/// The picture with its longer side at `imgsz`, and the size of the whole.
///
/// A JPEG of at least twice that size is not decoded as a whole. That is faster (`benches/augment.rs`), and finer: every pixel
/// counts, where the published loader reads 2 x 2 pixels of each 6 x 6.
fn read_fitted(path: &Path, imgsz: u32) -> Result<(Picture, Size), MediaError> {
    let ReducedPicture { picture, full_size } = decode_reduced_truly(path, imgsz)?;
    let fitted = fit_longer_side(full_size, imgsz);
    let picture = if fitted == picture.size { picture } else { resize_linear(&picture, fitted) };
    Ok((picture, full_size))
}

#[cfg(test)]
pub(super) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::ClassId;
    use crate::geom::Xyxy;
    use crate::media::decode::decode;
    use crate::media::encode::encode;

    /// A black picture of `size` with a white rectangle that is labelled; kept in memory.
    pub(in crate::train) fn drawn(size: Size, rectangle: Xyxy) -> TrainImage {
        let mut picture = Picture { size, rgb: vec![0; size.width as usize * size.height as usize * 3] };
        for y in rectangle.y1 as usize..rectangle.y2 as usize {
            for x in rectangle.x1 as usize..rectangle.x2 as usize {
                picture.rgb[(y * size.width as usize + x) * 3..][..3].fill(255);
            }
        }
        let labels = vec![Label { class: ClassId(1), bbox: rectangle.to_xywhn(size) }];
        TrainImage { path: "drawn".into(), fitted: size, labels, polygons: vec![], kept: Some(picture) }
    }

    /// A set of such pictures.
    pub(in crate::train) fn set_of(images: Vec<TrainImage>, imgsz: u32) -> TrainSet {
        TrainSet { images, imgsz, has_polygons: false, n_polygons: 0, dropped: vec![], dropped_rows: vec![] }
    }

    /// The train split of `rows`, a label file a picture.
    fn read(rows: &[&str]) -> TrainSet {
        let root = tempfile::tempdir().unwrap();
        for folder in ["images", "labels"] {
            std::fs::create_dir_all(root.path().join(folder).join("train")).unwrap();
        }
        for (index, rows) in rows.iter().enumerate() {
            let picture = Picture { size: Size::new(60, 30), rgb: vec![index as u8; 60 * 30 * 3] };
            encode(&root.path().join(format!("images/train/{index}.png")), &picture, 90).unwrap();
            std::fs::write(root.path().join(format!("labels/train/{index}.txt")), rows).unwrap();
        }
        std::fs::write(root.path().join("data.yaml"), "train: images/train\nval: images/train\nnames: [a, b]\n").unwrap();
        let dataset = Dataset::open(&root.path().join("data.yaml")).unwrap();
        TrainSet::read(&dataset, 64, u64::MAX, &mut |_, _| ControlFlow::Continue(())).unwrap().unwrap()
    }

    #[test]
    fn outlines_count_only_where_every_label_has_one() {
        const POLYGON: &str = "1 0.1 0.1 0.5 0.1 0.3 0.6\n";
        const BOX: &str = "0 0.5 0.5 0.2 0.2\n";
        let all = read(&[POLYGON, POLYGON, ""]);
        assert!(all.has_polygons && all.n_polygons == 2);
        assert_eq!(all.images[0].polygons, [vec![[0.1, 0.1], [0.5, 0.1], [0.3, 0.6]]]);
        for rows in [[POLYGON, BOX], [&format!("{POLYGON}{BOX}"), POLYGON]] {
            let some = read(&rows);
            assert!(!some.has_polygons && some.n_polygons > 0);
            assert!(some.images.iter().all(|image| image.polygons.is_empty()));
        }
        assert_eq!(read(&[BOX]).n_polygons, 0);
    }

    #[test]
    fn pictures_are_fitted_once_and_the_same_when_read_again() {
        let mut set = set_of(vec![drawn(Size::square(64), Xyxy::new(0.0, 0.0, 8.0, 8.0))], 64);
        assert!(matches!(set.fitted_picture(0), Ok(Cow::Borrowed(_))));
        assert_eq!((set.n_labels(), set.n_not_kept()), (1, 0));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.png");
        encode(&path, &Picture { size: Size::new(20, 10), rgb: vec![9; 600] }, 90).unwrap();
        (set.images[0].path, set.images[0].kept, set.images[0].fitted) = (path, None, Size::new(64, 32));
        assert_eq!(set.fitted_picture(0).unwrap().size, Size::new(64, 32));
        // Another picture under the same name would not lie where its composition says.
        set.images[0].fitted = Size::square(64);
        assert!(set.fitted_picture(0).unwrap_err().to_string().contains("changed its size"));
    }

    /// A photo-like picture: shades that bend, and a bright rectangle with edges at 3/8 and 5/8 of each side.
    fn shades(size: Size) -> Picture {
        let inside = |at: u32, side: u32| (3 * side..5 * side).contains(&(8 * at));
        let shade = |x: u32, y: u32| {
            let light = (x as f32 * 0.02).sin() * 40.0 + (y as f32 * 0.03).cos() * 40.0 + 100.0;
            if inside(x, size.width) && inside(y, size.height) { 250 } else { light as u8 }
        };
        let rgb = (0..size.height).flat_map(|y| (0..size.width).flat_map(move |x| [shade(x, y); 3])).collect();
        Picture { size, rgb }
    }

    #[test]
    fn a_large_jpeg_is_read_reduced_and_lies_where_the_whole_does() {
        let folder = tempfile::tempdir().unwrap();
        for (size, is_reduced) in [
            (Size::new(1000, 752), true),
            (Size::new(752, 1000), true),
            (Size::new(512, 384), true),
            (Size::new(250, 188), false),
            // A reduced row or column more would move boxes.
            (Size::new(257, 193), false),
        ] {
            let path = folder.path().join(format!("{}x{}.jpg", size.width, size.height));
            encode(&path, &shades(size), 95).unwrap();
            let (read, full_size) = read_fitted(&path, 128).unwrap();
            let whole = resize_linear(&decode(&path).unwrap(), fit_longer_side(size, 128));
            assert_eq!((read.size, full_size, read != whole), (whole.size, size, is_reduced), "{size:?}");
            // Where the middle row crosses into the rectangle: as far as the shades on both sides say.
            let crossing = |picture: &Picture| {
                let (width, row) = (picture.size.width as usize, picture.size.height as usize / 2);
                let at = |x: usize| f32::from(picture.rgb[(row * width + x) * 3]);
                let (outside, x) = (at(width * 3 / 8 - 4), (width * 3 / 8 - 3..width).find(|&x| at(x) > 200.0).unwrap());
                let middle = outside.midpoint(250.0);
                x as f32 - (at(x) - middle) / (at(x) - at(x - 1))
            };
            assert!((crossing(&read) - crossing(&whole)).abs() < 0.3, "{size:?}: {} {}", crossing(&read), crossing(&whole));
            let difference: f64 = read.rgb.iter().zip(&whole.rgb).map(|(a, b)| f64::from(a.abs_diff(*b))).sum();
            assert!(difference / (read.rgb.len() as f64) < 2.0, "{size:?}: {difference}");
        }
    }

    #[test]
    fn pictures_with_few_labels_are_left_out_and_counted() {
        let images = [0, 1, 3, 0, 2].map(|n_labels| {
            let image = drawn(Size::square(64), Xyxy::new(0.0, 0.0, 64.0, 64.0));
            TrainImage { labels: vec![image.labels[0]; n_labels], ..image }
        });
        let mut set = set_of(images.into(), 64);
        assert_eq!(set.leave_out_below(0).unwrap(), [0, 0]);
        assert_eq!(set.leave_out_below(2).unwrap(), [3, 2]);
        assert_eq!(set.images.iter().map(|image| image.labels.len()).collect::<Vec<_>>(), [3, 2]);
        assert!(matches!(set.leave_out_below(9), Err(TrainError::NoTrainImages { n_images: 2, .. })));
    }
}
