//! What is a box? Corners in pixels, or centre and size as fractions of the image, and the way between the two.
//!
//! In:  numbers in one of the two forms, and the size of the image.
//! Out: the other form. Nothing is clipped unless the name says so.

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    pub fn square(side: u32) -> Self {
        Self { width: side, height: side }
    }
}

/// A box by its corners, in pixels of whatever space the name says (image, input, screen).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xyxy {
    pub x1: f32,
    pub y1: f32,
    pub x2: f32,
    pub y2: f32,
}

impl Xyxy {
    pub fn new(x1: f32, y1: f32, x2: f32, y2: f32) -> Self {
        Self { x1, y1, x2, y2 }
    }

    pub fn width(&self) -> f32 {
        self.x2 - self.x1
    }

    pub fn height(&self) -> f32 {
        self.y2 - self.y1
    }

    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// The part inside an image of this size; empty boxes collapse onto its edge.
    #[must_use]
    pub fn clipped(&self, size: Size) -> Self {
        let (w, h) = (size.width as f32, size.height as f32);
        Self { x1: self.x1.clamp(0.0, w), y1: self.y1.clamp(0.0, h), x2: self.x2.clamp(0.0, w), y2: self.y2.clamp(0.0, h) }
    }

    /// As fractions of an image of this size.
    pub fn to_xywhn(&self, size: Size) -> Xywhn {
        let (w, h) = (size.width as f32, size.height as f32);
        Xywhn {
            cx: f32::midpoint(self.x1, self.x2) / w,
            cy: f32::midpoint(self.y1, self.y2) / h,
            w: self.width() / w,
            h: self.height() / h,
        }
    }
}

/// A box by centre and size, as fractions of the image (0 to 1 when it lies inside).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xywhn {
    pub cx: f32,
    pub cy: f32,
    pub w: f32,
    pub h: f32,
}

impl Xywhn {
    /// In pixels of an image of this size.
    pub fn to_xyxy(&self, size: Size) -> Xyxy {
        let (w, h) = (size.width as f32, size.height as f32);
        Xyxy {
            x1: (self.cx - self.w / 2.0) * w,
            y1: (self.cy - self.h / 2.0) * h,
            x2: (self.cx + self.w / 2.0) * w,
            y2: (self.cy + self.h / 2.0) * h,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_box_past_the_edge_is_cut_there_and_one_outside_collapses() {
        let size = Size::new(100, 50);
        assert_eq!(Xyxy::new(-5.0, 10.0, 120.0, 60.0).clipped(size), Xyxy::new(0.0, 10.0, 100.0, 50.0));
        assert_eq!(Xyxy::new(150.0, -30.0, 160.0, -20.0).clipped(size).area(), 0.0);
    }

    #[test]
    fn the_whole_image_is_one_by_one_around_a_half() {
        let whole = Xyxy::new(0.0, 0.0, 640.0, 480.0).to_xywhn(Size::new(640, 480));
        assert_eq!(whole, Xywhn { cx: 0.5, cy: 0.5, w: 1.0, h: 1.0 });
    }

    proptest! {
        #[test]
        fn corners_survive_the_way_through_fractions(
            (width, height) in (1u32..8000, 1u32..8000),
            (cx, cy, w, h) in (0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0, 0.0f32..1.0),
        ) {
            let size = Size::new(width, height);
            let start = Xywhn { cx, cy, w, h };
            let back = start.to_xyxy(size).to_xywhn(size);
            for (a, b) in [(cx, back.cx), (cy, back.cy), (w, back.w), (h, back.h)] {
                prop_assert!((a - b).abs() < 1e-5, "{start:?} came back as {back:?}");
            }
        }
    }
}
