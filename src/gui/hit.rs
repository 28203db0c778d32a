//! Which boxes are under the pointer, or inside a rubber band?
//!
//! In:  boxes in image pixels. Out: places of boxes, the smallest box first, so that a small box on a large one is picked.
//!
//! Boxes are sorted by area once after each change of the labels; a question then looks at them one after the other. That
//! is some ten microseconds for 10,000 boxes (`benches/canvas.rs`), for which no tree or grid need be kept.

use egui::{Pos2, Rect};

/// Boxes of one image, sorted by area.
#[derive(Clone, Debug, Default)]
pub struct HitIndex {
    /// The smallest first.
    rects: Vec<Rect>,
    /// Which label each of them is.
    labels: Vec<usize>,
}

impl HitIndex {
    pub fn new(rects: &[Rect]) -> Self {
        let mut labels: Vec<usize> = (0..rects.len()).collect();
        labels.sort_by(|&a, &b| rects[a].area().total_cmp(&rects[b].area()));
        Self { rects: labels.iter().map(|&label| rects[label]).collect(), labels }
    }

    /// The boxes under a point or at most `slack` image pixels beside it, that pass; the smallest first.
    pub fn under(&self, point: Pos2, slack: f32, passes: impl Fn(usize) -> bool) -> Vec<usize> {
        let near = self.rects.iter().zip(&self.labels).filter(|(rect, _)| rect.expand(slack).contains(point));
        near.map(|(_, &label)| label).filter(|&label| passes(label)).collect()
    }

    /// The boxes that lie wholly inside a band, that pass; in the order of the labels.
    pub fn inside(&self, band: Rect, passes: impl Fn(usize) -> bool) -> Vec<usize> {
        let whole = self.rects.iter().zip(&self.labels).filter(|(rect, _)| band.contains_rect(**rect));
        let mut inside: Vec<usize> = whole.map(|(_, &label)| label).filter(|&label| passes(label)).collect();
        inside.sort_unstable();
        inside
    }
}

/// The hit after the one that is selected; the first where none of them is. So repeated clicks go through all of them.
pub fn cycled(hits: &[usize], selected: Option<usize>) -> Option<usize> {
    let place = selected.and_then(|selected| hits.iter().position(|&hit| hit == selected));
    place.map_or(hits.first(), |place| hits.get((place + 1) % hits.len())).copied()
}

#[cfg(test)]
mod tests {
    use egui::{pos2, vec2};

    use super::*;

    fn square(x: f32, y: f32, side: f32) -> Rect {
        Rect::from_min_size(pos2(x, y), vec2(side, side))
    }

    fn index() -> HitIndex {
        HitIndex::new(&[square(0.0, 0.0, 100.0), square(40.0, 40.0, 10.0), square(30.0, 30.0, 40.0)])
    }

    #[test]
    fn the_smallest_box_comes_first_and_clicks_go_through_all() {
        let hits = index().under(pos2(45.0, 45.0), 0.0, |_| true);
        assert_eq!(hits, [1, 2, 0]);
        let mut selected = None;
        let mut seen = Vec::new();
        for _ in 0..4 {
            selected = cycled(&hits, selected);
            seen.extend(selected);
        }
        assert_eq!(seen, [1, 2, 0, 1]);
        assert_eq!(cycled(&[], Some(1)), None);
    }

    #[test]
    fn boxes_that_do_not_pass_are_left_out_and_slack_reaches_beside() {
        assert_eq!(index().under(pos2(45.0, 45.0), 0.0, |label| label != 2), [1, 0]);
        assert!(index().under(pos2(102.0, 50.0), 1.0, |_| true).is_empty());
        assert_eq!(index().under(pos2(102.0, 50.0), 3.0, |_| true), [0]);
    }

    #[test]
    fn a_band_takes_what_is_wholly_inside() {
        let band = Rect::from_min_max(pos2(20.0, 20.0), pos2(80.0, 80.0));
        assert_eq!(index().inside(band, |_| true), [1, 2]);
    }
}
