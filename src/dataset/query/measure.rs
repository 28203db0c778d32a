//! What can be measured of a box and of an image.
//!
//! One place, so that a bar of a histogram and the query that it stands for count the same boxes to the bit.

use crate::geom::Size;
use crate::geom::Xywhn;

/// A measure of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoxMeasure {
    /// Fraction of the image's area.
    Area,
    /// Root of the area in pixels, after the image was fitted to the training size.
    Side,
    /// Width over height, in pixels.
    Aspect,
    /// Centre and size as fractions of the image.
    X,
    Y,
    W,
    H,
}

/// A measure of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageMeasure {
    /// Number of boxes.
    Boxes,
    /// In pixels, as displayed.
    Width,
    Height,
    /// Of the file.
    Bytes,
    /// When the file was last changed, in seconds since 1970 (UTC).
    Date,
}

/// How the boxes of one image are measured: an image whose size is not known counts as a square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ruler {
    width: f32,
    height: f32,
}

impl Ruler {
    /// For an image that is fitted into `training_side` x `training_side` pixels.
    pub fn new(size: Option<Size>, training_side: u32) -> Self {
        let side = training_side as f32;
        match size.filter(|size| size.width > 0 && size.height > 0) {
            Some(size) => {
                let scale = side / size.width.max(size.height) as f32;
                Self { width: size.width as f32 * scale, height: size.height as f32 * scale }
            }
            None => Self { width: side, height: side },
        }
    }

    pub fn area(bbox: Xywhn) -> f32 {
        bbox.w * bbox.h
    }

    pub fn side(self, bbox: Xywhn) -> f32 {
        (bbox.w * self.width * bbox.h * self.height).max(0.0).sqrt()
    }

    pub fn aspect(self, bbox: Xywhn) -> f32 {
        let height = bbox.h * self.height;
        if height > 0.0 { bbox.w * self.width / height } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_measured_as_training_sees_it() {
        let bbox = Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.2 };
        let ruler = Ruler::new(Some(Size::new(1280, 640)), 640);
        assert_eq!((Ruler::area(bbox) * 1000.0).round(), 20.0);
        assert_eq!(ruler.side(bbox), 64.0, "64 x 64 pixels");
        assert_eq!(ruler.aspect(bbox), 1.0);
        assert_eq!(Ruler::new(None, 640).aspect(bbox), 0.5, "an image of unknown size counts as a square");
    }
}
