//! The pictures of a split as validation sees them: rectangular batches, pictures fitted and padded, labels in image space.
//!
//! In:  a dataset, a split, the input size and the batch size.
//! Out: batches of pictures of alike shape, their input as NHWC bytes, and the way back from input to image pixels.
//!
//! Pictures are sorted by height / width, so that those of a batch need little padding. The longer side becomes `imgsz`
//! (a shrinking picture by area averages), and the input is the smallest rectangle of whole strides around the batch's widest
//! and tallest picture, plus half a stride of padding.
//!
//! Never runs a network. Source: the published validation loader (`rect`, `pad` 0.5), spec 8.1 to 8.3 and 10.3.

use std::path::PathBuf;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::matching::Truth;
use super::validate::ValError;
use crate::dataset::Dataset;
use crate::dataset::Label;
use crate::dataset::Split;
use crate::geom::Letterbox;
use crate::geom::Size;
use crate::geom::Xyxy;
use crate::geom::letterbox::LetterboxOptions;
use crate::geom::letterbox::fit_longer_side;
use crate::media::MediaError;
use crate::media::Picture;
use crate::media::decode::decode;
use crate::media::decode::probe;
use crate::media::resize::apply_letterbox;
use crate::media::resize::resize_area;
use crate::media::resize::resize_linear;

/// Inputs are whole multiples of this.
const STRIDE: u32 = 32;
/// Padding around a batch, in strides.
const PAD: f64 = 0.5;

/// One picture of the split.
pub struct ValImage {
    /// Index into `Dataset::images`.
    pub index: usize,
    pub path: PathBuf,
    /// As decoded.
    pub size: Size,
    /// After fitting the longer side to `imgsz`, before padding.
    pub fitted: Size,
    pub labels: Vec<Label>,
    /// The fitted picture, kept between runs where there is room.
    kept: OnceLock<Picture>,
    may_keep: bool,
}

/// Pictures of alike shape, `first..first + n` of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValBatch {
    pub first: usize,
    pub n: usize,
    pub input: Size,
}

/// A split, ready to be validated.
pub struct ValSet {
    /// By height / width, ascending.
    pub images: Vec<ValImage>,
    imgsz: u32,
    pub batches: Vec<ValBatch>,
    /// Pictures whose header or labels cannot be read, with the reason.
    pub dropped: Vec<String>,
}

impl ValSet {
    /// Reads the headers of all pictures and all labels. Fitted pictures are kept between runs up to `keep_bytes` in all.
    ///
    /// # Errors
    /// A split without images or without a readable one.
    pub fn new(dataset: &Dataset, split: Split, imgsz: u32, batch: usize, keep_bytes: usize) -> Result<Self, ValError> {
        let entries: Vec<(usize, &crate::dataset::ImageEntry)> =
            dataset.images.iter().enumerate().filter(|(_, entry)| entry.split == split).collect();
        if entries.is_empty() {
            return Err(ValError::EmptySplit { split: split.name(), dataset: dataset.source.display().to_string() });
        }
        let n_images = entries.len();
        let read: Vec<Result<(Size, Vec<Label>), String>> = entries
            .par_iter()
            .map(|(_, entry)| {
                let size = probe(&entry.path).map_err(|error| error.to_string())?;
                Ok((size, dataset.labels(entry).map_err(|error| error.to_string())?))
            })
            .collect();

        let mut images = Vec::with_capacity(n_images);
        let mut dropped = Vec::new();
        let mut room = keep_bytes;
        for ((index, entry), read) in entries.into_iter().zip(read) {
            match read {
                Ok((size, labels)) => {
                    let fitted = fit_longer_side(size, imgsz);
                    let bytes = fitted.width as usize * fitted.height as usize * 3;
                    let may_keep = bytes <= room;
                    room -= if may_keep { bytes } else { 0 };
                    images.push(ValImage { index, path: entry.path.clone(), size, fitted, labels, kept: OnceLock::new(), may_keep });
                }
                Err(reason) => dropped.push(reason),
            }
        }
        if images.is_empty() {
            let reason = dropped.first().cloned().unwrap_or_default();
            return Err(ValError::NothingDecodes { split: split.name(), n_images, reason });
        }
        images.sort_by(|a, b| aspect(a.size).total_cmp(&aspect(b.size)));
        let batches = batches(&images, imgsz, batch);
        Ok(Self { images, imgsz, batches, dropped })
    }

    /// Makes batches of another size.
    pub fn set_batch(&mut self, batch: usize) {
        self.batches = batches(&self.images, self.imgsz, batch);
    }

    /// The input of a batch, (n, height, width, 3) RGB; and for each picture what is wrong if it does not decode (its part of
    /// the input is then gray).
    pub fn input(&self, batch: &ValBatch) -> (Vec<u8>, Vec<Option<String>>) {
        let len = batch.input.width as usize * batch.input.height as usize * 3;
        let mut pixels = vec![114; batch.n * len];
        let faults = pixels
            .par_chunks_mut(len)
            .zip(&self.images[batch.first..batch.first + batch.n])
            .map(|(pixels, image)| match image.with_fitted(|picture| apply_letterbox(picture, &image.letterbox(batch.input))) {
                Ok(padded) => {
                    pixels.copy_from_slice(&padded.rgb);
                    None
                }
                Err(error) => Some(error.to_string()),
            })
            .collect();
        (pixels, faults)
    }

    /// Memory of the pictures that are kept between runs.
    pub fn keep_bytes(&self) -> usize {
        self.images.iter().filter(|image| image.may_keep).map(|image| image.fitted.width as usize * image.fitted.height as usize * 3).sum()
    }
}

impl ValImage {
    /// How the fitted picture lies in the input of its batch.
    pub fn letterbox(&self, input: Size) -> Letterbox {
        Letterbox::new(self.fitted, input, LetterboxOptions { auto: None, scale_up: false })
    }

    /// Boxes in pixels of the picture, from input pixels: the height's scale counts for both axes.
    pub fn image_from_input(&self, input: Size, bbox: Xyxy) -> Xyxy {
        let gain = self.fitted.height as f32 / self.size.height as f32;
        let (left, top) = self.letterbox(input).pad;
        let (left, top) = (left as f32, top as f32);
        Xyxy::new((bbox.x1 - left) / gain, (bbox.y1 - top) / gain, (bbox.x2 - left) / gain, (bbox.y2 - top) / gain).clipped(self.size)
    }

    /// The labels on the way that detections go: into the input and back, so that both are shifted alike.
    pub fn truths(&self, input: Size) -> Vec<Truth> {
        let (left, top) = self.letterbox(input).pad;
        let (left, top) = (left as f32, top as f32);
        let in_input = |label: &Label| {
            let fitted = label.bbox.to_xyxy(self.fitted);
            Xyxy::new(fitted.x1 + left, fitted.y1 + top, fitted.x2 + left, fitted.y2 + top).clipped(input)
        };
        let truth = |label: &Label| Truth { class: label.class.0 as usize, bbox: self.image_from_input(input, in_input(label)) };
        self.labels.iter().map(truth).collect()
    }

    fn with_fitted<T>(&self, use_picture: impl FnOnce(&Picture) -> T) -> Result<T, MediaError> {
        if let Some(picture) = self.kept.get() {
            return Ok(use_picture(picture));
        }
        let picture = fit(decode(&self.path)?, self.fitted);
        let picture = if self.may_keep { self.kept.get_or_init(|| picture) } else { &picture };
        Ok(use_picture(picture))
    }
}

/// Shrinks by area averages, enlarges bilinearly.
fn fit(picture: Picture, fitted: Size) -> Picture {
    if picture.size == fitted {
        picture
    } else if fitted.width > picture.size.width || fitted.height > picture.size.height {
        resize_linear(&picture, fitted)
    } else {
        resize_area(&picture, fitted)
    }
}

fn aspect(size: Size) -> f64 {
    f64::from(size.height) / f64::from(size.width)
}

/// Batches of up to `batch` pictures, which are in order of their aspect.
fn batches(images: &[ValImage], imgsz: u32, batch: usize) -> Vec<ValBatch> {
    let of_first = |first| {
        let n = batch.max(1).min(images.len() - first);
        ValBatch { first, n, input: batch_input(&images[first..first + n], imgsz) }
    };
    (0..images.len()).step_by(batch.max(1)).map(of_first).collect()
}

/// `images` are in order of their aspect.
fn batch_input(images: &[ValImage], imgsz: u32) -> Size {
    let (flattest, tallest) = (aspect(images[0].size), aspect(images[images.len() - 1].size));
    let (height, width) = if tallest < 1.0 {
        (tallest, 1.0)
    } else if flattest > 1.0 {
        (1.0, 1.0 / flattest)
    } else {
        (1.0, 1.0)
    };
    let side = |share: f64| (share * f64::from(imgsz) / f64::from(STRIDE) + PAD).ceil() as u32 * STRIDE;
    Size::new(side(width), side(height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ClassId;
    use crate::geom::Xywhn;

    fn image(width: u32, height: u32) -> ValImage {
        let size = Size::new(width, height);
        ValImage {
            index: 0,
            path: PathBuf::new(),
            size,
            fitted: fit_longer_side(size, 640),
            labels: vec![],
            kept: OnceLock::new(),
            may_keep: false,
        }
    }

    #[test]
    fn batch_shapes_are_the_published_ones() {
        assert_eq!(batch_input(&[image(640, 640)], 640), Size::square(672));
        assert_eq!(batch_input(&[image(1000, 500), image(640, 480)], 640), Size::new(672, 512));
        assert_eq!(batch_input(&[image(480, 640)], 640), Size::new(512, 672));
        assert_eq!(batch_input(&[image(640, 480), image(480, 640)], 640), Size::square(672));
    }

    #[test]
    fn a_label_comes_back_where_it_was() {
        let bbox = Xywhn { cx: 0.5, cy: 0.25, w: 0.2, h: 0.1 };
        let image = ValImage { labels: vec![Label { class: ClassId(2), bbox }], ..image(1280, 720) };
        let truth = image.truths(Size::new(672, 384))[0];
        let expected = bbox.to_xyxy(image.size);
        assert_eq!(truth.class, 2);
        for (ours, there) in
            [(truth.bbox.x1, expected.x1), (truth.bbox.y1, expected.y1), (truth.bbox.x2, expected.x2), (truth.bbox.y2, expected.y2)]
        {
            assert!((ours - there).abs() < 1e-3, "{ours} instead of {there}");
        }
    }
}
