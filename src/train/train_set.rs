//! The train split in memory: which pictures are used, their labels, and the execution of a recipe on one of them.
//!
//! In:  a dataset; then recipes.
//! Out: for each recipe the pixels of one sample (RGB bytes) and its truth boxes in input pixels.
//!
//! Every picture is decoded once before the first step, fitted to the input size and kept, as long as there is room; the
//! others are decoded each time. A picture that does not decode is left out and told, never fatal.
//!
//! Order of a sample: fit the longer side (bilinear), letterbox to a square, colour gains, flips. Boxes are clipped to the
//! input less 0.001 pixels before they are flipped. Source: spec 8.1, 8.2, 8.4, 8.9.

use std::ops::ControlFlow;
use std::path::PathBuf;

use rayon::prelude::*;

use super::error::TrainError;
use super::recipe::Recipe;
use crate::dataset::Dataset;
use crate::dataset::ImageEntry;
use crate::dataset::Label;
use crate::dataset::Split;
use crate::dataset::parse::Verdict;
use crate::geom::Letterbox;
use crate::geom::Size;
use crate::geom::letterbox::LetterboxOptions;
use crate::geom::letterbox::fit_longer_side;
use crate::media::MediaError;
use crate::media::Picture;
use crate::media::color::shift_hsv;
use crate::media::decode::decode;
use crate::media::decode::probe;
use crate::media::resize::apply_letterbox;
use crate::media::resize::resize_linear;

/// Pictures that are decoded between two looks at whether to stop.
const CHUNK: usize = 64;
/// Distance that clipped boxes keep from the right and lower edge.
const EDGE: f32 = 1e-3;

/// A truth box as the loss reads it: class, x1, y1, x2, y2 in input pixels.
pub type TruthRow = [f32; 5];

/// One picture of the split.
pub struct TrainImage {
    pub path: PathBuf,
    /// After fitting the longer side to the input.
    pub fitted: Size,
    pub labels: Vec<Label>,
    /// The fitted picture, if there was room for it.
    pub kept: Option<Picture>,
}

/// The pictures that are trained on.
pub struct TrainSet {
    pub images: Vec<TrainImage>,
    /// Side of the square input.
    pub imgsz: u32,
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
        let mut set = Self { images: Vec::with_capacity(entries.len()), imgsz, dropped: Vec::new(), dropped_rows: Vec::new() };
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
        if set.n_labels() == 0 {
            return Err(TrainError::NoLabels { n_images: set.images.len() });
        }
        Ok(Some(set))
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

    /// Pictures that are decoded again for every sample.
    pub fn n_not_kept(&self) -> usize {
        self.images.iter().filter(|image| image.kept.is_none()).count()
    }

    /// Bytes of one sample's pixels.
    pub fn sample_len(&self) -> usize {
        self.imgsz as usize * self.imgsz as usize * 3
    }

    /// Truth rows that a picture needs at most: 8, 16, 32, … so that similar datasets give the same shapes.
    pub fn truth_rows(&self) -> usize {
        let most = self.images.iter().map(|image| image.labels.len()).max().unwrap_or(0);
        most.next_power_of_two().max(8)
    }

    /// Executes a recipe: fills `pixels` (height, width, 3) and returns the truth boxes in input pixels.
    ///
    /// # Errors
    /// A picture that is not kept and does not decode.
    pub fn sample(&self, recipe: &Recipe, pixels: &mut [u8]) -> Result<Vec<TruthRow>, MediaError> {
        let image = &self.images[recipe.image];
        let letterbox = Letterbox::new(image.fitted, Size::square(self.imgsz), LetterboxOptions { auto: None, scale_up: true });
        let mut padded = match &image.kept {
            Some(picture) => apply_letterbox(picture, &letterbox),
            None => apply_letterbox(&fit(decode(&image.path)?, self.imgsz), &letterbox),
        };
        if let Some(gains) = recipe.hsv_gains {
            shift_hsv(&mut padded, gains);
        }
        write_flipped(&padded, recipe, pixels);
        Ok(image.labels.iter().filter_map(|label| truth_row(label, image.fitted, &letterbox, recipe)).collect())
    }
}

/// One picture with its labels and the rows that are left out; or why the picture cannot be used.
fn read_image(dataset: &Dataset, entry: &ImageEntry, imgsz: u32, keep: bool) -> Result<(TrainImage, Vec<String>), String> {
    let (size, kept) = if keep {
        let picture = decode(&entry.path).map_err(|error| error.to_string())?;
        (picture.size, Some(fit(picture, imgsz)))
    } else {
        (probe(&entry.path).map_err(|error| error.to_string())?, None)
    };
    let file = dataset.label_file(entry, &|| Some(size)).map_err(|error| error.to_string())?.unwrap_or_default();
    let label_path = dataset.relative(&entry.label_path);
    if let Some(problem) = file.problem {
        // As a background image it would teach the opposite of what its labels may say.
        return Err(format!("{}: its label file {} {problem}", dataset.relative(&entry.path).display(), label_path.display()));
    }
    let labels = file.labels().collect();
    let dropped = file.rows.iter().filter_map(|row| match &row.verdict {
        Verdict::Dropped(dropped) => Some(format!("{} line {}: {}", label_path.display(), row.line, dropped.reason)),
        _ => None,
    });
    Ok((TrainImage { path: entry.path.clone(), fitted: fit_longer_side(size, imgsz), labels, kept }, dropped.collect()))
}

/// `None` where nothing of the box lies inside the input.
fn truth_row(label: &Label, fitted: Size, letterbox: &Letterbox, recipe: &Recipe) -> Option<TruthRow> {
    let bbox = letterbox.input_from_image(label.bbox.to_xyxy(fitted));
    let (width, height) = (letterbox.input.width as f32, letterbox.input.height as f32);
    let (mut x1, mut x2) = (bbox.x1.clamp(0.0, width - EDGE), bbox.x2.clamp(0.0, width - EDGE));
    let (mut y1, mut y2) = (bbox.y1.clamp(0.0, height - EDGE), bbox.y2.clamp(0.0, height - EDGE));
    if recipe.flip_horizontal {
        (x1, x2) = (width - x2, width - x1);
    }
    if recipe.flip_vertical {
        (y1, y2) = (height - y2, height - y1);
    }
    (x2 > x1 && y2 > y1).then_some([label.class.0 as f32, x1, y1, x2, y2])
}

fn write_flipped(picture: &Picture, recipe: &Recipe, pixels: &mut [u8]) {
    let row_len = picture.size.width as usize * 3;
    let height = picture.size.height as usize;
    for (y, row) in pixels.chunks_exact_mut(row_len).enumerate() {
        let source_y = if recipe.flip_vertical { height - 1 - y } else { y };
        let source = &picture.rgb[source_y * row_len..][..row_len];
        if recipe.flip_horizontal {
            for (pixel, source) in row.chunks_exact_mut(3).zip(source.chunks_exact(3).rev()) {
                pixel.copy_from_slice(source);
            }
        } else {
            row.copy_from_slice(source);
        }
    }
}

fn fit(picture: Picture, imgsz: u32) -> Picture {
    let fitted = fit_longer_side(picture.size, imgsz);
    if fitted == picture.size { picture } else { resize_linear(&picture, fitted) }
}

#[cfg(test)]
pub(super) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::ClassId;
    use crate::geom::Xyxy;

    /// A black picture of `size` with a white rectangle that is labelled; kept in memory.
    pub(in crate::train) fn drawn(size: Size, rectangle: Xyxy) -> TrainImage {
        let mut picture = Picture { size, rgb: vec![0; size.width as usize * size.height as usize * 3] };
        for y in rectangle.y1 as usize..rectangle.y2 as usize {
            for x in rectangle.x1 as usize..rectangle.x2 as usize {
                picture.rgb[(y * size.width as usize + x) * 3..][..3].fill(255);
            }
        }
        let labels = vec![Label { class: ClassId(1), bbox: rectangle.to_xywhn(size) }];
        TrainImage { path: "drawn".into(), fitted: size, labels, kept: Some(picture) }
    }

    #[test]
    fn truth_boxes_lie_on_the_pixels_that_were_drawn() {
        for size in [Size::new(64, 40), Size::new(40, 64), Size::square(64), Size::square(63)] {
            let set =
                TrainSet { images: vec![drawn(size, Xyxy::new(6.0, 10.0, 20.0, 18.0))], imgsz: 64, dropped: vec![], dropped_rows: vec![] };
            for (flip_horizontal, flip_vertical) in [(false, false), (true, false), (false, true), (true, true)] {
                let recipe = Recipe { image: 0, flip_vertical, flip_horizontal, hsv_gains: None };
                let mut pixels = vec![0; set.sample_len()];
                let rows = set.sample(&recipe, &mut pixels).unwrap();
                assert_eq!((rows.len(), rows[0][0]), (1, 1.0));

                let white = |x: usize, y: usize| pixels[(y * 64 + x) * 3] > 229;
                let lit: Vec<(usize, usize)> = (0..64 * 64).map(|at| (at % 64, at / 64)).filter(|&(x, y)| white(x, y)).collect();
                let edges = [
                    lit.iter().map(|at| at.0).min().unwrap() as f32,
                    lit.iter().map(|at| at.1).min().unwrap() as f32,
                    lit.iter().map(|at| at.0).max().unwrap() as f32 + 1.0,
                    lit.iter().map(|at| at.1).max().unwrap() as f32 + 1.0,
                ];
                for (edge, truth) in edges.iter().zip(&rows[0][1..]) {
                    // Odd padding shifts pixels by half a pixel against boxes, and the enlarged picture has soft edges.
                    assert!((edge - truth).abs() <= 1.0, "{size:?} {recipe:?}: pixels {edges:?}, box {:?}", &rows[0]);
                }
            }
        }
    }

    #[test]
    fn padding_is_gray_and_gains_change_the_colours() {
        let set = TrainSet {
            images: vec![drawn(Size::new(64, 32), Xyxy::new(0.0, 0.0, 64.0, 32.0))],
            imgsz: 64,
            dropped: vec![],
            dropped_rows: vec![],
        };
        let mut pixels = vec![0; set.sample_len()];
        let plain = Recipe { image: 0, flip_vertical: false, flip_horizontal: false, hsv_gains: None };
        set.sample(&plain, &mut pixels).unwrap();
        assert_eq!(pixels[0], 114);
        assert_eq!(pixels[32 * 64 * 3], 255);
        set.sample(&Recipe { hsv_gains: Some([1.0, 1.0, 0.5]), ..plain }, &mut pixels).unwrap();
        assert_eq!(pixels[0], 57);
        assert_eq!(pixels[32 * 64 * 3], 127);
    }

    #[test]
    fn boxes_are_clipped_to_the_input_and_dropped_outside() {
        let mut image = drawn(Size::square(64), Xyxy::new(0.0, 0.0, 64.0, 64.0));
        image.labels.push(Label { class: ClassId(0), bbox: Xyxy::new(-20.0, -20.0, -10.0, -10.0).to_xywhn(Size::square(64)) });
        let set = TrainSet { images: vec![image], imgsz: 64, dropped: vec![], dropped_rows: vec![] };
        let mut pixels = vec![0; set.sample_len()];
        let recipe = Recipe { image: 0, flip_vertical: false, flip_horizontal: true, hsv_gains: None };
        let rows = set.sample(&recipe, &mut pixels).unwrap();
        assert_eq!(rows, [[1.0, 64.0 - (64.0 - EDGE), 0.0, 64.0, 64.0 - EDGE]]);
    }

    #[test]
    fn truth_rows_grow_in_steps() {
        let mut image = drawn(Size::square(64), Xyxy::new(0.0, 0.0, 64.0, 64.0));
        image.labels = vec![image.labels[0]; 9];
        let set = TrainSet { images: vec![image], imgsz: 64, dropped: vec![], dropped_rows: vec![] };
        assert_eq!((set.truth_rows(), set.n_labels(), set.n_not_kept()), (16, 9, 0));
    }
}
