//! What is half done on the canvas: a box being drawn, boxes being moved or resized, a rubber band.
//!
//! In:  points and steps in image pixels, from pointer or keys.
//! Out: how boxes look meanwhile, and in the end what has become of them. Dropping a draft is cancelling it.
//!
//! A draft becomes one edit, however long it took. What does not change stays the same to the bit: moving keeps the size,
//! and a handle keeps the axis that it does not touch. Pure: knows neither labels nor pointer.

use egui::{Pos2, Rect, Vec2};

use super::handles::{self, Handle, MIN_SIDE};
use crate::geom::{Size, Xywhn};

/// What corners hold to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Far corner of the image, in image pixels.
    pub far: Pos2,
    /// Image pixels from an edge of the image within which a point lies on it.
    pub slack: f32,
    /// Corners lie between pixels, and nowhere else.
    pub whole_pixels: bool,
}

impl Rules {
    fn point(&self, point: Pos2) -> Pos2 {
        let snapped = handles::snapped(point, self.far, self.slack);
        if self.whole_pixels { snapped.round() } else { snapped }
    }
}

/// How the second corner is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawBy {
    /// Where the button is let go.
    Drag,
    /// With a second click.
    Clicks,
    /// Enter.
    Keys,
}

/// Something half done.
#[derive(Clone, Debug, PartialEq)]
pub enum Draft {
    Draw {
        start: Pos2,
        end: Pos2,
        by: DrawBy,
    },
    /// Boxes as they were, by label, and the way so far.
    Move {
        boxes: Vec<(usize, Rect)>,
        start: Pos2,
        by: Vec2,
    },
    Resize {
        index: usize,
        from: Rect,
        handle: Handle,
        to: Rect,
    },
    /// By keys, as long as they are held: boxes as they were, the way, and how much larger.
    Nudge {
        boxes: Vec<(usize, Rect)>,
        by: Vec2,
        growth: Vec2,
    },
    Band {
        start: Pos2,
        end: Pos2,
    },
}

/// What has become of a draft.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A new box, in image pixels.
    Drawn(Rect),
    /// Boxes lie elsewhere, by label.
    Moved(Vec<usize>, Vec2),
    /// Boxes have another shape: by label, before and after.
    Resized(Vec<(usize, Rect, Rect)>),
    Band(Rect),
    Nothing,
}

impl Draft {
    pub fn draw(start: Pos2, by: DrawBy, rules: &Rules) -> Self {
        let start = rules.point(start);
        Self::Draw { start, end: start, by }
    }

    /// Takes a point of the pointer.
    pub fn drag_to(&mut self, point: Pos2, rules: &Rules) {
        match self {
            Self::Draw { end, .. } => *end = rules.point(point),
            Self::Move { boxes, start, by } => {
                let mut way = handles::clamped_move(boxes.iter().map(|(_, rect)| *rect), point - *start, rules.far);
                if let Some((_, first)) = boxes.first().filter(|_| rules.whole_pixels) {
                    way = (first.min + way).round() - first.min;
                }
                *by = way;
            }
            Self::Resize { from, handle, to, .. } => *to = handle.resized(*from, rules.point(point)),
            Self::Band { end, .. } => *end = point,
            Self::Nudge { .. } => {}
        }
    }

    /// Takes a step of the arrow keys: moves, or grows to the right and down.
    pub fn step(&mut self, step: Vec2, is_growing: bool, rules: &Rules) {
        match self {
            Self::Nudge { boxes, by, growth } if is_growing => {
                // As long as one of them can still follow.
                let wanted = *growth + step;
                if boxes.iter().any(|(_, rect)| {
                    handles::grown(rect.translate(*by), wanted, rules.far) != handles::grown(rect.translate(*by), *growth, rules.far)
                }) {
                    *growth = wanted;
                }
            }
            Self::Nudge { boxes, by, .. } => *by = handles::clamped_move(boxes.iter().map(|(_, rect)| *rect), *by + step, rules.far),
            Self::Draw { end, .. } => *end = handles::snapped(*end + step, rules.far, 0.0),
            Self::Move { .. } | Self::Resize { .. } | Self::Band { .. } => {}
        }
    }

    /// How boxes look meanwhile, in image pixels, by label; the others are as they were.
    pub fn shapes(&self, far: Pos2) -> Vec<(usize, Rect)> {
        match self {
            Self::Move { boxes, by, .. } => boxes.iter().map(|(index, rect)| (*index, rect.translate(*by))).collect(),
            Self::Nudge { boxes, by, growth } => {
                boxes.iter().map(|(index, rect)| (*index, handles::grown(rect.translate(*by), *growth, far))).collect()
            }
            Self::Resize { index, to, .. } => vec![(*index, *to)],
            Self::Draw { .. } | Self::Band { .. } => Vec::new(),
        }
    }

    /// The box being drawn, or the band.
    pub fn rect(&self) -> Option<Rect> {
        match self {
            Self::Draw { start, end, .. } | Self::Band { start, end } => Some(Rect::from_two_pos(*start, *end)),
            Self::Move { .. } | Self::Resize { .. } | Self::Nudge { .. } => None,
        }
    }

    /// What is left of it when the button or the key is let go. Boxes without a pixel of size are none.
    pub fn finish(self, far: Pos2) -> Outcome {
        let is_box = |rect: &Rect| rect.width() >= MIN_SIDE && rect.height() >= MIN_SIDE;
        match self {
            Self::Draw { start, end, .. } => {
                let drawn = Rect::from_two_pos(start, end);
                if is_box(&drawn) { Outcome::Drawn(drawn) } else { Outcome::Nothing }
            }
            Self::Move { boxes, by, .. } if by != Vec2::ZERO => Outcome::Moved(boxes.into_iter().map(|(index, _)| index).collect(), by),
            Self::Nudge { boxes, by, growth } if growth == Vec2::ZERO && by != Vec2::ZERO => {
                Outcome::Moved(boxes.into_iter().map(|(index, _)| index).collect(), by)
            }
            Self::Nudge { boxes, by, growth } => {
                let resized = |(index, rect): (usize, Rect)| (index, rect, handles::grown(rect.translate(by), growth, far));
                let changed: Vec<_> = boxes.into_iter().map(resized).filter(|(_, before, after)| before != after).collect();
                if changed.is_empty() { Outcome::Nothing } else { Outcome::Resized(changed) }
            }
            Self::Resize { index, from, to, .. } if is_box(&to) && from != to => Outcome::Resized(vec![(index, from, to)]),
            Self::Band { start, end } => Outcome::Band(Rect::from_two_pos(start, end)),
            Self::Move { .. } | Self::Resize { .. } => Outcome::Nothing,
        }
    }
}

/// A box as fractions of the image.
pub fn bbox_of(rect: Rect, size: Size) -> Xywhn {
    let ([cx, w], [cy, h]) = (axis(rect.left(), rect.right(), size.width), axis(rect.top(), rect.bottom(), size.height));
    Xywhn { cx, cy, w, h }
}

/// A box that was moved by so many image pixels. Its size stays, and so does an axis along which it was not moved.
pub fn moved(bbox: Xywhn, by: Vec2, size: Size) -> Xywhn {
    let center = |center: f32, extent: f32, by: f32, side: u32| {
        if by == 0.0 {
            return center;
        }
        let half = extent / 2.0;
        // Fractions of what already reaches past an edge are not judged here.
        let (low, high) = (half.min(center), (1.0 - half).max(center));
        (center + by / side as f32).clamp(low, high)
    };
    Xywhn { cx: center(bbox.cx, bbox.w, by.x, size.width), cy: center(bbox.cy, bbox.h, by.y, size.height), ..bbox }
}

/// A box whose sides were moved, in image pixels. An axis along which nothing changed stays.
pub fn resized(bbox: Xywhn, from: Rect, to: Rect, size: Size) -> Xywhn {
    let mut after = bbox;
    if (from.left(), from.right()) != (to.left(), to.right()) {
        [after.cx, after.w] = axis(to.left(), to.right(), size.width);
    }
    if (from.top(), from.bottom()) != (to.top(), to.bottom()) {
        [after.cy, after.h] = axis(to.top(), to.bottom(), size.height);
    }
    after
}

/// Centre and extent as fractions of a side.
fn axis(low: f32, high: f32, side: u32) -> [f32; 2] {
    let side = f64::from(side.max(1));
    let (low, high) = (f64::from(low).clamp(0.0, side), f64::from(high).clamp(0.0, side));
    [(f64::midpoint(low, high) / side) as f32, ((high - low) / side) as f32]
}

#[cfg(test)]
mod tests {
    use egui::{pos2, vec2};

    use super::*;

    const SIZE: Size = Size { width: 100, height: 50 };
    const RULES: Rules = Rules { far: pos2(100.0, 50.0), slack: 2.0, whole_pixels: false };
    const BOX: Rect = Rect::from_min_max(pos2(10.0, 10.0), pos2(30.0, 20.0));

    #[test]
    fn a_box_is_drawn_in_any_direction_and_snaps_to_the_edge() {
        let mut draft = Draft::draw(pos2(60.0, 40.0), DrawBy::Drag, &RULES);
        draft.drag_to(pos2(1.5, 20.0), &RULES);
        assert_eq!(draft.rect(), Some(Rect::from_min_max(pos2(0.0, 20.0), pos2(60.0, 40.0))));
        draft.drag_to(pos2(500.0, 55.0), &RULES);
        assert_eq!(draft.finish(RULES.far), Outcome::Drawn(Rect::from_min_max(pos2(60.0, 40.0), pos2(100.0, 50.0))));
    }

    #[test]
    fn a_box_without_a_pixel_of_size_is_none() {
        let mut draft = Draft::draw(pos2(60.0, 40.0), DrawBy::Clicks, &RULES);
        draft.drag_to(pos2(80.0, 40.5), &RULES);
        assert_eq!(draft.finish(RULES.far), Outcome::Nothing);
        let handle = Handle { x: 1, y: 0 };
        let mut draft = Draft::Resize { index: 0, from: BOX, handle, to: BOX };
        draft.drag_to(pos2(10.4, 0.0), &RULES);
        assert_eq!(draft.finish(RULES.far), Outcome::Nothing);
    }

    #[test]
    fn whole_pixels_hold_for_corners_and_for_moves() {
        let rules = Rules { whole_pixels: true, ..RULES };
        let mut draft = Draft::draw(pos2(10.4, 10.6), DrawBy::Drag, &rules);
        draft.drag_to(pos2(20.5, 30.2), &rules);
        assert_eq!(draft.rect(), Some(Rect::from_min_max(pos2(10.0, 11.0), pos2(21.0, 30.0))));
        let mut draft = Draft::Move { boxes: vec![(0, BOX.translate(vec2(0.25, 0.0)))], start: pos2(0.0, 0.0), by: Vec2::ZERO };
        draft.drag_to(pos2(3.5, 0.2), &rules);
        assert_eq!(draft.shapes(rules.far), [(0, BOX.translate(vec2(4.0, 0.0)))]);
    }

    #[test]
    fn boxes_are_moved_together_up_to_the_edge() {
        let boxes = vec![(3, BOX), (5, BOX.translate(vec2(60.0, 0.0)))];
        let mut draft = Draft::Move { boxes, start: pos2(20.0, 15.0), by: Vec2::ZERO };
        draft.drag_to(pos2(70.0, 17.0), &RULES);
        assert_eq!(draft.shapes(RULES.far), [(3, BOX.translate(vec2(10.0, 2.0))), (5, BOX.translate(vec2(70.0, 2.0)))]);
        assert_eq!(draft.finish(RULES.far), Outcome::Moved(vec![3, 5], vec2(10.0, 2.0)));
    }

    #[test]
    fn keys_move_and_grow_and_end_as_one_outcome() {
        let nudge = || Draft::Nudge { boxes: vec![(0, BOX)], by: Vec2::ZERO, growth: Vec2::ZERO };
        let mut draft = nudge();
        for _ in 0..3 {
            draft.step(vec2(-1.0, 0.0), false, &RULES);
        }
        assert_eq!(draft.clone().finish(RULES.far), Outcome::Moved(vec![0], vec2(-3.0, 0.0)));
        draft.step(vec2(0.0, 10.0), true, &RULES);
        let after = Rect::from_min_max(pos2(7.0, 10.0), pos2(27.0, 30.0));
        assert_eq!(draft.finish(RULES.far), Outcome::Resized(vec![(0, BOX, after)]));
        let mut draft = nudge();
        draft.step(vec2(-100.0, 0.0), false, &RULES);
        draft.step(vec2(10.0, 0.0), false, &RULES);
        assert_eq!(draft.shapes(RULES.far), [(0, BOX)], "the way ends at the edge and begins there again");
        assert_eq!(nudge().finish(RULES.far), Outcome::Nothing);
    }

    #[test]
    fn what_did_not_change_stays_to_the_bit() {
        let bbox = Xywhn { cx: 0.123_456_7, cy: 0.3, w: 0.033_333_335, h: 0.1 };
        let after = moved(bbox, vec2(5.0, 0.0), SIZE);
        assert_eq!((after.w, after.h, after.cy), (bbox.w, bbox.h, bbox.cy));
        assert!((after.cx - bbox.cx - 0.05).abs() < 1e-6);
        let taller = Rect::from_min_max(BOX.min, pos2(30.0, 25.0));
        let after = resized(bbox, BOX, taller, SIZE);
        assert_eq!((after.cx, after.w), (bbox.cx, bbox.w));
        assert_eq!((after.cy, after.h), (0.35, 0.3));
    }

    #[test]
    fn boxes_stay_inside_the_image_as_fractions() {
        let third = Xywhn { cx: 1.0 - 1.0 / 6.0, cy: 0.5, w: 1.0 / 3.0, h: 0.1 };
        let after = moved(Xywhn { cx: 0.5, ..third }, vec2(1000.0, 0.0), Size::new(3000, 50));
        assert!(after.cx + after.w / 2.0 <= 1.0 + 1e-6, "{after:?}");
        let whole = bbox_of(Rect::from_min_max(pos2(-3.0, 0.0), pos2(100.0, 51.0)), SIZE);
        assert_eq!(whole, Xywhn { cx: 0.5, cy: 0.5, w: 1.0, h: 1.0 });
    }
}
