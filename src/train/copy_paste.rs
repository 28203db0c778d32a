//! Copy-paste: objects whose mirrored place is free are repeated there, cut out along their polygons.
//!
//! In:  the objects on a mosaic's canvas, with polygons; the share of candidates, the key of the draws.
//! Out: the objects with the repeated ones behind them; the parts of rows whose pixels come from the mirrored place.
//!
//! A candidate is an object whose mirrored box hides less than 0.3 of every object's box (its own, too). Among the repeated ones
//! nothing is compared. A polygon's pixels are those inside or on its lines, its corners cut to whole pixels, before mirroring.
//!
//! Never touches pixels. Source: spec 8.6.

use super::composition::Object;
use super::draws::Draws;
use super::perspective::Corners;
use super::recipe::CopyPaste;
use crate::geom::Size;

/// The part of any box that a repeated one may hide.
const MOST_HIDDEN: f64 = 0.30;
const EPSILON: f64 = 1e-7;

/// A part of a canvas row that shows the mirrored pixels: columns `start..end` of row `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub y: u32,
    pub start: u32,
    pub end: u32,
}

/// Repeats objects.
pub(super) fn paste(choice: CopyPaste, canvas: Size, objects: &mut Vec<Object>) -> Vec<Span> {
    let width = f64::from(canvas.width);
    let mirrored = |bbox: &Corners| [width - bbox[2], bbox[1], width - bbox[0], bbox[3]];
    let is_free = |bbox: &Corners| objects.iter().all(|other| hidden_part(&mirrored(bbox), &other.bbox) < MOST_HIDDEN);
    let mut candidates: Vec<usize> = (0..objects.len()).filter(|&index| is_free(&objects[index].bbox)).collect();
    Draws::from_key(choice.key).shuffle(&mut candidates);
    candidates.truncate((choice.share * candidates.len() as f64).round_ties_even() as usize);

    let mut spans = Vec::new();
    for index in candidates {
        let Object { class, bbox, polygon } = &objects[index];
        fill(polygon, canvas, &mut spans);
        let polygon = polygon.iter().map(|[x, y]| [width - x, *y]).collect();
        let repeated = Object { class: *class, bbox: mirrored(bbox), polygon };
        objects.push(repeated);
    }
    for span in &mut spans {
        (span.start, span.end) = (canvas.width - span.end, canvas.width - span.start);
    }
    merged(spans)
}

/// The part of `other` that `bbox` hides.
fn hidden_part(bbox: &Corners, other: &Corners) -> f64 {
    let width = (bbox[2].min(other[2]) - bbox[0].max(other[0])).max(0.0);
    let height = (bbox[3].min(other[3]) - bbox[1].max(other[1])).max(0.0);
    width * height / ((other[2] - other[0]) * (other[3] - other[1]) + EPSILON)
}

/// The pixels of a polygon, on the canvas.
fn fill(polygon: &[[f64; 2]], canvas: Size, spans: &mut Vec<Span>) {
    let points: Vec<[i64; 2]> = polygon.iter().map(|point| point.map(|at| at as i64)).collect();
    let Some(last) = points.last() else { return };
    let mut add = |y: i64, start: i64, end: i64| {
        let (start, end) = (start.max(0), end.min(i64::from(canvas.width)));
        if start < end && (0..i64::from(canvas.height)).contains(&y) {
            spans.push(Span { y: y as u32, start: start as u32, end: end as u32 });
        }
    };
    // The lines: in each row the columns that a line passes through.
    for ([x1, y1], [x2, y2]) in std::iter::once(last).chain(&points).copied().zip(points.iter().copied()) {
        let ([x1, y1], [x2, y2]) = if y1 <= y2 { ([x1, y1], [x2, y2]) } else { ([x2, y2], [x1, y1]) };
        if y1 == y2 {
            add(y1, x1.min(x2), x1.max(x2) + 1);
            continue;
        }
        let slope = (x2 - x1) as f64 / (y2 - y1) as f64;
        for y in y1..=y2 {
            let at = |y: f64| x1 as f64 + slope * (y.clamp(y1 as f64, y2 as f64) - y1 as f64);
            let (from, to) = (at(y as f64 - 0.5), at(y as f64 + 0.5));
            add(y, from.min(to).round() as i64, from.max(to).round() as i64 + 1);
        }
    }
    // The inside: between the first and second crossing of a row, the third and fourth, and so on.
    let (top, bottom) = points.iter().fold((i64::MAX, i64::MIN), |(top, bottom), point| (top.min(point[1]), bottom.max(point[1])));
    let mut crossings = Vec::new();
    for y in top..bottom {
        crossings.clear();
        for ([x1, y1], [x2, y2]) in std::iter::once(last).chain(&points).copied().zip(points.iter().copied()) {
            if (y1 <= y) != (y2 <= y) {
                crossings.push(x1 as f64 + (x2 - x1) as f64 * (y - y1) as f64 / (y2 - y1) as f64);
            }
        }
        crossings.sort_by(f64::total_cmp);
        for pair in crossings.chunks_exact(2) {
            add(y, pair[0].ceil() as i64, pair[1].floor() as i64 + 1);
        }
    }
}

/// Ordered, with overlapping and touching ones joined.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut().filter(|last| last.y == span.y && span.start <= last.end) {
            Some(last) => last.end = last.end.max(span.end),
            None => joined.push(span),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANVAS: Size = Size { width: 100, height: 80 };

    fn square(x: f64, y: f64, side: f64) -> Object {
        let polygon = vec![[x, y], [x + side, y], [x + side, y + side], [x, y + side]];
        Object { class: 2.0, bbox: [x, y, x + side, y + side], polygon }
    }

    fn all() -> CopyPaste {
        CopyPaste { share: 1.0, key: 5 }
    }

    #[test]
    fn an_object_is_repeated_on_the_other_side() {
        let mut objects = vec![square(10.0, 20.0, 8.0)];
        let spans = paste(all(), CANVAS, &mut objects);
        assert_eq!(objects.len(), 2);
        assert_eq!((objects[1].class, objects[1].bbox), (2.0, [82.0, 20.0, 90.0, 28.0]));
        assert_eq!(objects[1].polygon[0], [90.0, 20.0]);
        // Columns 10 to 18 of rows 20 to 28, lines included, seen from the right.
        assert_eq!(spans, (20..=28).map(|y| Span { y, start: 81, end: 90 }).collect::<Vec<_>>());
    }

    #[test]
    fn a_place_that_is_taken_is_not_covered() {
        // In the middle an object hides itself; two that face each other hide each other.
        for mut objects in [vec![square(46.0, 20.0, 8.0)], vec![square(10.0, 20.0, 8.0), square(82.0, 20.0, 8.0)]] {
            let n = objects.len();
            assert!(paste(all(), CANVAS, &mut objects).is_empty());
            assert_eq!(objects.len(), n);
        }
        // Less than 0.3 of the other.
        let mut objects = vec![square(10.0, 20.0, 8.0), square(88.0, 20.0, 8.0)];
        assert!(!paste(all(), CANVAS, &mut objects).is_empty());
    }

    #[test]
    fn the_share_is_of_the_candidates_and_the_choice_differs_by_key() {
        let row: Vec<Object> = (0..7).map(|index| square(5.0, 10.0 * f64::from(index), 6.0)).collect();
        let chosen = |key: u64, share: f64| {
            let mut objects = row.clone();
            paste(CopyPaste { share, key }, CANVAS, &mut objects);
            objects[7..].iter().map(|object| object.bbox[1] as i32).collect::<Vec<_>>()
        };
        // 0.3 * 7 = 2.1 and 0.5 * 7 = 3.5, which becomes 4.
        assert_eq!((chosen(1, 0.3).len(), chosen(1, 0.5).len(), chosen(1, 0.0).len()), (2, 4, 0));
        assert_eq!(chosen(1, 0.3), chosen(1, 0.3));
        let different: std::collections::BTreeSet<Vec<i32>> = (0..20).map(|key| chosen(key, 0.3)).collect();
        assert!(different.len() > 5, "{different:?}");
        let mut twice = chosen(9, 1.0);
        twice.sort_unstable();
        twice.dedup();
        assert_eq!(twice.len(), 7, "without replacement");
    }

    #[test]
    fn polygons_are_filled_with_their_lines_and_cut_at_the_canvas() {
        let mut spans = Vec::new();
        fill(&[[1.9, 1.2], [5.5, 1.0], [1.0, 5.9]], CANVAS, &mut spans);
        let rows: Vec<(u32, u32, u32)> = merged(spans).iter().map(|span| (span.y, span.start, span.end)).collect();
        assert_eq!(rows.first(), Some(&(1, 1, 6)));
        assert_eq!(rows.last().map(|row| (row.0, row.1)), Some((5, 1)));
        assert!(rows.windows(2).all(|pair| pair[1].2 <= pair[0].2 && pair[1].1 == 1), "a triangle: {rows:?}");

        let mut spans = Vec::new();
        fill(&[[90.0, 70.0], [100.0, 70.0], [100.0, 80.0], [90.0, 80.0]], CANVAS, &mut spans);
        assert!(merged(spans).iter().all(|span| span.end <= 100 && span.y < 80));
        let mut none = Vec::new();
        fill(&[], CANVAS, &mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn a_hole_between_two_arms_stays_open() {
        let mut spans = Vec::new();
        let u = [[0.0, 0.0], [4.0, 0.0], [4.0, 20.0], [16.0, 20.0], [16.0, 0.0], [20.0, 0.0], [20.0, 30.0], [0.0, 30.0]];
        fill(&u, CANVAS, &mut spans);
        let row: Vec<Span> = merged(spans).into_iter().filter(|span| span.y == 10).collect();
        assert_eq!(row, [Span { y: 10, start: 0, end: 5 }, Span { y: 10, start: 16, end: 21 }]);
    }
}
