//! Letterbox: scale to fit, keep the aspect, pad the rest; and the way back for boxes.

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
    pub fn new(image: Size, target: Size, options: LetterboxOptions) -> Self {
        let _ = (image, target, options);
        todo!("geom")
    }

    pub fn input_from_image(&self, bbox: Xyxy) -> Xyxy {
        let _ = bbox;
        todo!("geom")
    }

    /// Back to image pixels, clipped to the image.
    pub fn image_from_input(&self, bbox: Xyxy) -> Xyxy {
        let _ = bbox;
        todo!("geom")
    }
}
