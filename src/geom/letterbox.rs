//! How does a picture lie in a network input? Scale to fit, keep the aspect, pad the rest; and the way back for boxes.
//!
//! In:  the size of the picture, the target size, and whether to pad to the target or only to the next stride.
//! Out: scale and padding (whole pixels for pixels, real halves for boxes), and boxes moved both ways.
//!
//! Never touches pixels: `media::resize::apply_letterbox` does what is computed here.
//! Source: the published trainer's letterbox and its mapping of boxes, spec 8.2 and 10.3.

use super::boxes::{Size, Xyxy};

/// How a picture of size `image` lies in an input of size `input`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Letterbox {
    pub image: Size,
    /// The picture after scaling.
    pub resized: Size,
    pub input: Size,
    /// Input pixels per image pixel.
    pub scale: f64,
    /// Left and top padding in whole pixels.
    pub left: u32,
    pub top: u32,
    /// Half of the padding as real numbers, which the published trainer uses for boxes.
    pub pad: (f64, f64),
}

/// Choices of a letterbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterboxOptions {
    /// `Some(stride)`: pad only to the next multiple of the stride (smallest rectangle).
    pub auto: Option<u32>,
    /// Whether small pictures are enlarged.
    pub scale_up: bool,
}

impl Letterbox {
    /// Fits `image` into `target`.
    ///
    /// A side never shrinks below one pixel (a 10,000 x 1 line stays a line), and an image or target without area counts as
    /// one pixel, so the sizes are always usable.
    pub fn new(image: Size, target: Size, options: LetterboxOptions) -> Self {
        let image = at_least_one_pixel(image);
        let target = at_least_one_pixel(target);
        let (width, height) = (f64::from(image.width), f64::from(image.height));
        let mut scale = (f64::from(target.height) / height).min(f64::from(target.width) / width);
        if !options.scale_up {
            scale = scale.min(1.0);
        }
        // Half to even, as Python's `round`.
        let fit = |side: f64, limit: u32| ((side * scale).round_ties_even() as u32).clamp(1, limit);
        let resized = Size::new(fit(width, target.width), fit(height, target.height));

        let mut spare = Size::new(target.width - resized.width, target.height - resized.height);
        if let Some(stride) = options.auto.filter(|stride| *stride > 0) {
            spare = Size::new(spare.width % stride, spare.height % stride);
        }
        let pad = (f64::from(spare.width) / 2.0, f64::from(spare.height) / 2.0);
        // The odd pixel goes to the right and the bottom.
        let whole = |half: f64| (half - 0.1).round_ties_even().max(0.0) as u32;
        Self {
            image,
            resized,
            input: Size::new(resized.width + spare.width, resized.height + spare.height),
            scale,
            left: whole(pad.0),
            top: whole(pad.1),
            pad,
        }
    }

    /// The mapping that the published detector assumes when it knows nothing but the two sizes.
    ///
    /// Its padding is that of the exact, unrounded picture, so it differs by up to a quarter of a pixel from [`Self::new`].
    pub fn between(image: Size, input: Size) -> Self {
        let (image, input) = (at_least_one_pixel(image), at_least_one_pixel(input));
        let mut letterbox = Self::new(image, input, LetterboxOptions { auto: None, scale_up: true });
        let spare = |input: u32, image: u32| (f64::from(input) - f64::from(image) * letterbox.scale) / 2.0;
        letterbox.pad = (spare(input.width, image.width), spare(input.height, image.height));
        letterbox
    }

    /// From image pixels to input pixels. Not clipped.
    pub fn input_from_image(&self, bbox: Xyxy) -> Xyxy {
        let scale = self.scale as f32;
        let (left, top) = (self.pad.0 as f32, self.pad.1 as f32);
        Xyxy { x1: bbox.x1 * scale + left, y1: bbox.y1 * scale + top, x2: bbox.x2 * scale + left, y2: bbox.y2 * scale + top }
    }

    /// Back to image pixels, clipped to the image.
    pub fn image_from_input(&self, bbox: Xyxy) -> Xyxy {
        let scale = self.scale as f32;
        let (left, top) = (self.pad.0 as f32, self.pad.1 as f32);
        Xyxy { x1: (bbox.x1 - left) / scale, y1: (bbox.y1 - top) / scale, x2: (bbox.x2 - left) / scale, y2: (bbox.y2 - top) / scale }
            .clipped(self.image)
    }
}

/// The size of a picture whose longer side becomes `side`, as the published loader resizes before anything else: both sides
/// are truncated, so the longer one may come out a pixel short (77 to 639 at 640).
pub fn fit_longer_side(image: Size, side: u32) -> Size {
    let image = at_least_one_pixel(image);
    let scale = f64::from(side) / f64::from(image.width.max(image.height));
    let fit = |length: u32| ((f64::from(length) * scale) as u32).max(1);
    Size::new(fit(image.width), fit(image.height))
}

fn at_least_one_pixel(size: Size) -> Size {
    Size::new(size.width.max(1), size.height.max(1))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use safetensors::SafeTensors;

    use super::*;

    const DETECT: LetterboxOptions = LetterboxOptions { auto: Some(32), scale_up: true };

    #[test]
    fn the_published_examples_come_out() {
        let wide = Letterbox::new(Size::new(1280, 720), Size::square(640), DETECT);
        assert_eq!((wide.resized, wide.input, wide.top), (Size::new(640, 360), Size::new(640, 384), 12));
        let coco = Letterbox::new(Size::new(640, 427), Size::square(640), DETECT);
        assert_eq!((coco.resized, coco.input, coco.top, coco.pad.1), (Size::new(640, 427), Size::new(640, 448), 10, 10.5));
        let tall = Letterbox::new(Size::new(333, 500), Size::square(640), DETECT);
        assert_eq!((tall.resized, tall.input), (Size::new(426, 640), Size::new(448, 640)));
    }

    #[test]
    fn a_small_picture_is_only_enlarged_when_asked() {
        let kept = Letterbox::new(Size::new(53, 37), Size::square(64), LetterboxOptions { auto: None, scale_up: false });
        assert_eq!((kept.scale, kept.resized, kept.pad, kept.left, kept.top), (1.0, Size::new(53, 37), (5.5, 13.5), 5, 13));
        let grown = Letterbox::new(Size::new(53, 37), Size::square(64), LetterboxOptions { auto: None, scale_up: true });
        assert_eq!((grown.scale, grown.resized, grown.pad), (64.0 / 53.0, Size::new(64, 45), (0.0, 9.5)));
    }

    #[test]
    fn fitting_the_longer_side_truncates_as_the_published_loader() {
        assert_eq!(fit_longer_side(Size::new(1280, 720), 640), Size::new(640, 360));
        assert_eq!(fit_longer_side(Size::new(50, 77), 640), Size::new(415, 639));
        assert_eq!(fit_longer_side(Size::new(640, 640), 640), Size::square(640));
        assert_eq!(fit_longer_side(Size::new(10_000, 1), 640), Size::new(640, 1));
    }

    #[test]
    fn lines_and_nothing_at_all_still_fit() {
        let line = Letterbox::new(Size::new(10_000, 1), Size::square(640), DETECT);
        assert_eq!((line.resized, line.input), (Size::new(640, 1), Size::new(640, 32)));
        let nothing = Letterbox::new(Size::new(0, 0), Size::new(0, 0), DETECT);
        assert_eq!((nothing.resized, nothing.input), (Size::square(1), Size::square(1)));
    }

    #[test]
    fn boxes_come_back_as_from_the_published_detector() {
        let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/scale_boxes.safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let rows = |name: &str| -> Vec<Xyxy> {
            let data = golden.tensor(name).unwrap().data().to_vec();
            let numbers: Vec<f32> = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            numbers.chunks_exact(4).map(|r| Xyxy::new(r[0], r[1], r[2], r[3])).collect()
        };
        let recorded = |image: Size, input: Size, scale: f64, pad: (f64, f64)| Letterbox { scale, pad, ..Letterbox::between(image, input) };
        let cases = [
            Letterbox::between(Size::new(53, 37), Size::new(96, 64)),
            Letterbox::between(Size::new(641, 480), Size::new(96, 96)),
            recorded(Size::new(67, 101), Size::new(64, 64), 0.6336633663366337, (10.0, 0.0)),
            recorded(Size::new(333, 500), Size::new(640, 384), 0.75, (194.5, 4.5)),
            Letterbox::between(Size::new(640, 640), Size::new(640, 640)),
        ];
        for (index, letterbox) in cases.iter().enumerate() {
            for (bbox, expected) in rows("boxes").into_iter().zip(rows(&format!("out{index}"))) {
                assert_eq!(letterbox.image_from_input(bbox), expected, "case {index}, box {bbox:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_box_survives_the_way_to_the_input_and_back(
            (width, height) in (2u32..5000, 2u32..5000),
            (target_w, target_h) in (32u32..1400, 32u32..1400),
            auto in proptest::bool::ANY,
            scale_up in proptest::bool::ANY,
            corners in (0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0),
        ) {
            let image = Size::new(width, height);
            let options = LetterboxOptions { auto: auto.then_some(32), scale_up };
            let letterbox = Letterbox::new(image, Size::new(target_w, target_h), options);
            let (w, h) = (width as f32, height as f32);
            let bbox = Xyxy::new(
                corners.0.min(corners.2) * w, corners.1.min(corners.3) * h, corners.0.max(corners.2) * w, corners.1.max(corners.3) * h,
            );
            let back = letterbox.image_from_input(letterbox.input_from_image(bbox));
            // One f32 rounding at the input's size, seen in image pixels.
            let slack = (2e-4 / letterbox.scale) as f32 + 1e-3;
            for (a, b) in [(bbox.x1, back.x1), (bbox.y1, back.y1), (bbox.x2, back.x2), (bbox.y2, back.y2)] {
                prop_assert!((a - b).abs() <= slack, "{bbox:?} came back as {back:?}");
            }
        }

        #[test]
        fn the_picture_and_its_padding_fill_the_input(
            (width, height) in (1u32..9000, 1u32..9000),
            (target_w, target_h) in (1u32..1400, 1u32..1400),
            stride in proptest::option::of(1u32..65),
            scale_up in proptest::bool::ANY,
        ) {
            let letterbox = Letterbox::new(Size::new(width, height), Size::new(target_w, target_h), LetterboxOptions { auto: stride, scale_up });
            prop_assert!(letterbox.input.width <= target_w && letterbox.input.height <= target_h);
            prop_assert!(letterbox.left + letterbox.resized.width <= letterbox.input.width);
            prop_assert!(letterbox.top + letterbox.resized.height <= letterbox.input.height);
            prop_assert!(scale_up || letterbox.resized.width <= width);
        }
    }
}
