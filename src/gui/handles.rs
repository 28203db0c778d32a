//! Where can a box be taken hold of, and what shape does it get? Eight handles, moving, growing by keys.
//!
//! In:  a box and a point, in image pixels (for finding a handle: screen points).
//! Out: a box inside the image. Pure: knows neither labels nor pointer.

use egui::{CursorIcon, Pos2, Rect, Vec2, pos2, vec2};

/// The shortest side that a box may have, in image pixels.
pub const MIN_SIDE: f32 = 1.0;
/// Screen points around a handle that count as it.
const REACH: f32 = 6.0;
/// Below this side on the screen, in points, a box has corners only.
const MIN_ROOM: f32 = 26.0;

/// A corner or the middle of a side: -1 left or top, 0 middle, 1 right or bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub x: i8,
    pub y: i8,
}

impl Handle {
    /// Corners first: they win where handles are close together.
    pub const ALL: [Self; 8] = [
        Self { x: -1, y: -1 },
        Self { x: 1, y: -1 },
        Self { x: 1, y: 1 },
        Self { x: -1, y: 1 },
        Self { x: 0, y: -1 },
        Self { x: 1, y: 0 },
        Self { x: 0, y: 1 },
        Self { x: -1, y: 0 },
    ];

    fn is_corner(self) -> bool {
        self.x != 0 && self.y != 0
    }

    /// Where it lies on a box.
    pub fn place(self, rect: Rect) -> Pos2 {
        rect.center() + vec2(f32::from(self.x), f32::from(self.y)) * rect.size() / 2.0
    }

    /// The handles of a box of this size on the screen.
    pub fn shown(screen: Rect) -> impl Iterator<Item = Self> {
        let is_shown =
            move |handle: &Self| handle.is_corner() || if handle.x == 0 { screen.width() >= MIN_ROOM } else { screen.height() >= MIN_ROOM };
        Self::ALL.into_iter().filter(is_shown)
    }

    /// The handle of a box under the pointer, both on the screen.
    pub fn under(screen: Rect, pointer: Pos2) -> Option<Self> {
        let distance = |handle: &Self| (handle.place(screen) - pointer).abs().max_elem();
        Self::shown(screen).filter(|handle| distance(handle) <= REACH).min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }

    pub fn cursor(self) -> CursorIcon {
        match (self.x * self.y, self.x) {
            (0, 0) => CursorIcon::ResizeVertical,
            (0, _) => CursorIcon::ResizeHorizontal,
            (1, _) => CursorIcon::ResizeNwSe,
            _ => CursorIcon::ResizeNeSw,
        }
    }

    /// The box with this handle at `to`; a side that passes the one opposite turns the box over.
    pub fn resized(self, rect: Rect, to: Pos2) -> Rect {
        let side = |which: i8, (low, high): (f32, f32), to: f32| {
            let (low, high) = match which {
                -1 => (to, high),
                1 => (low, to),
                _ => (low, high),
            };
            (low.min(high), low.max(high))
        };
        let (left, right) = side(self.x, (rect.left(), rect.right()), to.x);
        let (top, bottom) = side(self.y, (rect.top(), rect.bottom()), to.y);
        Rect::from_min_max(pos2(left, top), pos2(right, bottom))
    }
}

/// A way for boxes, no longer than all of them stay inside the image. `far` is the image's far corner.
pub fn clamped_move(boxes: impl Iterator<Item = Rect>, by: Vec2, far: Pos2) -> Vec2 {
    let bounds = boxes.fold(Rect::NOTHING, Rect::union);
    if !bounds.is_finite() {
        return Vec2::ZERO;
    }
    // What already reaches past an edge may come back, and not go farther.
    let clamp = |by: f32, low: f32, high: f32, far: f32| by.clamp((-low).min(0.0), (far - high).max(0.0));
    vec2(clamp(by.x, bounds.left(), bounds.right(), far.x), clamp(by.y, bounds.top(), bounds.bottom(), far.y))
}

/// The right and lower side moved by keys; a box keeps at least one pixel, and stays inside the image.
pub fn grown(rect: Rect, by: Vec2, far: Pos2) -> Rect {
    let side = |low: f32, high: f32, by: f32, far: f32| {
        if by == 0.0 { high } else { (high + by).max((low + MIN_SIDE).min(high)).min(far.max(high)) }
    };
    let right = side(rect.left(), rect.right(), by.x, far.x);
    Rect::from_min_max(rect.min, pos2(right, side(rect.top(), rect.bottom(), by.y, far.y)))
}

/// A point on the image; one that is at most `slack` from an edge lies on it.
pub fn snapped(point: Pos2, far: Pos2, slack: f32) -> Pos2 {
    let axis = |value: f32, far: f32| {
        if value <= slack {
            0.0
        } else if value >= far - slack {
            far
        } else {
            value
        }
    };
    pos2(axis(point.x, far.x), axis(point.y, far.y))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECT: Rect = Rect::from_min_max(pos2(10.0, 20.0), pos2(50.0, 80.0));
    const FAR: Pos2 = pos2(100.0, 90.0);

    #[test]
    fn each_handle_moves_its_sides_only() {
        let to = pos2(30.0, 40.0);
        let sides = |handle: Handle| {
            let rect = handle.resized(RECT, to);
            [rect.left(), rect.top(), rect.right(), rect.bottom()]
        };
        let expected = [
            [30.0, 40.0, 50.0, 80.0],
            [10.0, 40.0, 30.0, 80.0],
            [10.0, 20.0, 30.0, 40.0],
            [30.0, 20.0, 50.0, 40.0],
            [10.0, 40.0, 50.0, 80.0],
            [10.0, 20.0, 30.0, 80.0],
            [10.0, 20.0, 50.0, 40.0],
            [30.0, 20.0, 50.0, 80.0],
        ];
        assert_eq!(Handle::ALL.map(sides), expected);
    }

    #[test]
    fn a_handle_dragged_past_the_other_side_turns_the_box_over() {
        let turned = Handle { x: 1, y: 1 }.resized(RECT, pos2(4.0, 5.0));
        assert_eq!(turned, Rect::from_min_max(pos2(4.0, 5.0), pos2(10.0, 20.0)));
    }

    #[test]
    fn handles_are_found_where_they_are_drawn_and_small_boxes_have_corners_only() {
        for handle in Handle::ALL {
            assert_eq!(Handle::under(RECT, handle.place(RECT) + vec2(2.0, -2.0)), Some(handle));
        }
        assert_eq!(Handle::under(RECT, RECT.center()), None);
        let small = Rect::from_min_size(pos2(0.0, 0.0), vec2(20.0, 20.0));
        assert_eq!(Handle::shown(small).count(), 4);
        assert_eq!(Handle::under(small, pos2(10.0, 0.0)), None);
    }

    #[test]
    fn boxes_move_together_and_stop_at_the_edge() {
        let other = Rect::from_min_max(pos2(60.0, 0.0), pos2(95.0, 10.0));
        assert_eq!(clamped_move([RECT, other].into_iter(), vec2(50.0, -50.0), FAR), vec2(5.0, 0.0));
        assert_eq!(clamped_move([RECT].into_iter(), vec2(-50.0, 3.0), FAR), vec2(-10.0, 3.0));
        assert_eq!(clamped_move(std::iter::empty(), vec2(1.0, 1.0), FAR), Vec2::ZERO);
        let outside = Rect::from_min_max(pos2(-5.0, 0.0), pos2(20.0, 10.0));
        assert_eq!(clamped_move([outside].into_iter(), vec2(-3.0, 0.0), FAR), Vec2::ZERO);
        assert_eq!(clamped_move([outside].into_iter(), vec2(3.0, 0.0), FAR), vec2(3.0, 0.0));
    }

    #[test]
    fn keys_grow_and_shrink_down_to_a_pixel_and_up_to_the_edge() {
        assert_eq!(grown(RECT, vec2(-1.0, 1.0), FAR).max, pos2(49.0, 81.0));
        assert_eq!(grown(RECT, vec2(-100.0, 100.0), FAR).max, pos2(11.0, 90.0));
        assert_eq!(grown(RECT, vec2(0.0, 5.0), FAR).right(), 50.0);
    }

    #[test]
    fn points_near_an_edge_lie_on_it_and_those_outside_too() {
        assert_eq!(snapped(pos2(2.0, 88.5), FAR, 2.0), pos2(0.0, 90.0));
        assert_eq!(snapped(pos2(2.5, 50.0), FAR, 2.0), pos2(2.5, 50.0));
        assert_eq!(snapped(pos2(-20.0, 120.0), FAR, 0.0), pos2(0.0, 90.0));
    }
}
