//! Random perspective: how a sample is turned, scaled, sheared, shifted and tilted, and where its boxes come to lie.
//!
//! In:  the seven numbers that were drawn, the sizes of canvas and output; boxes or polygons in canvas pixels.
//! Out: the matrix from canvas to output pixels; boxes in output pixels, of which too small, thin or hidden ones are left out.
//!
//! Matrices act on columns (x, y, 1). Never touches pixels. Source: spec 8.7, held by the golden numbers.

use super::config::Hyp;
use super::draws::Draws;
use crate::geom::Size;

/// Rows of a matrix of homogeneous coordinates.
pub type Matrix = [[f64; 3]; 3];

/// Corners x1, y1, x2, y2.
pub type Corners = [f64; 4];

/// Points that a polygon is resampled to before it is moved.
const POLYGON_POINTS: usize = 1000;
/// A box that is not wider or not higher than this is left out.
const MIN_SIDE: f64 = 2.0;
/// A box that is so many times longer than wide is left out.
const MAX_ASPECT: f64 = 100.0;
/// The part of its area that must be left of a box.
const MIN_AREA_OF_BOX: f64 = 0.10;
const MIN_AREA_OF_POLYGON: f64 = 0.01;
const EPSILON: f64 = 1e-16;

/// What was drawn. Angles in degrees, translation as a fraction of the output (0.5 keeps the centre).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perspective {
    pub perspective: [f64; 2],
    pub degrees: f64,
    pub scale: f64,
    pub shear: [f64; 2],
    pub translate: [f64; 2],
}

impl Perspective {
    /// Leaves everything where it is, as long as output and canvas have the same size.
    pub const NONE: Self = Self { perspective: [0.0; 2], degrees: 0.0, scale: 1.0, shear: [0.0; 2], translate: [0.5; 2] };

    pub(super) fn draw(hyp: &Hyp, draws: &mut Draws) -> Self {
        let mut two = |centre, range| [draws.around(centre, range), draws.around(centre, range)];
        let perspective = two(0.0, hyp.perspective);
        let shear = two(0.0, hyp.shear);
        let translate = two(0.5, hyp.translate);
        Self { perspective, degrees: draws.around(0.0, hyp.degrees), scale: draws.around(1.0, hyp.scale), shear, translate }
    }

    /// From canvas pixels to output pixels.
    pub fn matrix(&self, canvas: Size, output: Size) -> Matrix {
        let shift = |x: f64, y: f64| [[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]];
        let centre = shift(-f64::from(canvas.width) / 2.0, -f64::from(canvas.height) / 2.0);
        let tilt = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [self.perspective[0], self.perspective[1], 1.0]];
        let (sin, cos) = self.degrees.to_radians().sin_cos();
        let (sin, cos) = (sin * self.scale, cos * self.scale);
        let turn = [[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]];
        let [shear_x, shear_y] = self.shear.map(|degrees| degrees.to_radians().tan());
        let shear = [[1.0, shear_x, 0.0], [shear_y, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let place = shift(self.translate[0] * f64::from(output.width), self.translate[1] * f64::from(output.height));
        [shear, turn, tilt, centre].iter().fold(place, |left, right| product(&left, right))
    }
}

fn product(left: &Matrix, right: &Matrix) -> Matrix {
    std::array::from_fn(|row| std::array::from_fn(|column| (0..3).map(|k| left[row][k] * right[k][column]).sum()))
}

/// Where a point comes to lie; `None` where a strong tilt put it behind the viewer.
fn moved(matrix: &Matrix, [x, y]: [f64; 2]) -> Option<[f64; 2]> {
    let [x, y, w] = std::array::from_fn(|row| matrix[row][0] * x + matrix[row][1] * y + matrix[row][2]);
    // Of an affine matrix w is exactly 1.
    (w > 0.0).then(|| [x / w, y / w])
}

/// The box around the four moved corners, cut at the output; `None` where it is to be left out.
pub fn move_box(matrix: &Matrix, scale: f64, bbox: &Corners, output: Size) -> Option<Corners> {
    let [x1, y1, x2, y2] = *bbox;
    let (width, height) = (f64::from(output.width), f64::from(output.height));
    let corners = [moved(matrix, [x1, y1])?, moved(matrix, [x2, y2])?, moved(matrix, [x1, y2])?, moved(matrix, [x2, y1])?];
    let [x1, y1, x2, y2] = around(&corners)?;
    let moved = [x1.clamp(0.0, width), y1.clamp(0.0, height), x2.clamp(0.0, width), y2.clamp(0.0, height)];
    is_candidate(bbox, scale, &moved, MIN_AREA_OF_BOX).then_some(moved)
}

/// The box around what of a moved polygon lies in the output; `None` where it is to be left out.
///
/// `bbox` is the box of the object before it was moved.
pub fn move_polygon(matrix: &Matrix, scale: f64, bbox: &Corners, polygon: &[[f64; 2]], output: Size) -> Option<Corners> {
    let (width, height) = (f64::from(output.width), f64::from(output.height));
    let inside = |point: &[f64; 2]| (0.0..=width).contains(&point[0]) && (0.0..=height).contains(&point[1]);
    let moved = resampled(polygon).filter_map(|point| moved(matrix, point)).filter(inside);
    let moved = moved.fold(None, |found: Option<Corners>, point| Some(found.map_or(at(point), |corners| grown(corners, point))))?;
    is_candidate(bbox, scale, &moved, MIN_AREA_OF_POLYGON).then_some(moved)
}

/// The points of the closed polygon at equal steps of the vertex index, not of the length.
fn resampled(polygon: &[[f64; 2]]) -> impl Iterator<Item = [f64; 2]> {
    let n = polygon.len();
    (0..if n == 0 { 0 } else { POLYGON_POINTS }).map(move |index| {
        let position = index as f64 * n as f64 / (POLYGON_POINTS - 1) as f64;
        let whole = (position as usize).min(n - 1);
        let (from, to) = (polygon[whole], polygon[(whole + 1) % n]);
        let part = position - whole as f64;
        [from[0] + (to[0] - from[0]) * part, from[1] + (to[1] - from[1]) * part]
    })
}

fn at([x, y]: [f64; 2]) -> Corners {
    [x, y, x, y]
}

fn grown([x1, y1, x2, y2]: Corners, [x, y]: [f64; 2]) -> Corners {
    [x1.min(x), y1.min(y), x2.max(x), y2.max(y)]
}

/// The box around points; `None` where there is none.
fn around(points: &[[f64; 2]]) -> Option<Corners> {
    let (first, rest) = points.split_first()?;
    Some(rest.iter().fold(at(*first), |corners, point| grown(corners, *point)))
}

fn is_candidate(before: &Corners, scale: f64, after: &Corners, min_area: f64) -> bool {
    let sides = |corners: &Corners| [corners[2] - corners[0], corners[3] - corners[1]];
    let [w1, h1] = sides(before).map(|side| side * scale);
    let [w2, h2] = sides(after);
    let aspect = (w2 / (h2 + EPSILON)).max(h2 / (w2 + EPSILON));
    w2 > MIN_SIDE && h2 > MIN_SIDE && w2 * h2 / (w1 * h1 + EPSILON) > min_area && aspect < MAX_ASPECT
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::engine::golden::Golden;

    /// What the reference drew, of the cases of `random_perspective.safetensors`: perspective, degrees, scale, shear, translate.
    const DRAWN: [Perspective; 6] = [
        Perspective { scale: 0.64, translate: [0.58, 0.44], ..Perspective::NONE },
        Perspective { degrees: 16.0, scale: 1.2, shear: [-8.0, 7.0], translate: [0.42, 0.54], ..Perspective::NONE },
        Perspective { perspective: [0.0008, -0.0007], degrees: -3.0, scale: 1.06, shear: [2.0, -1.0], translate: [0.51, 0.49] },
        Perspective { scale: 1.09, translate: [0.48, 0.54], ..Perspective::NONE },
        Perspective { degrees: 3.0, scale: 0.154, shear: [-1.2, 1.6], translate: [0.86, 0.82], ..Perspective::NONE },
        Perspective { scale: 0.64, translate: [0.58, 0.44], ..Perspective::NONE },
    ];
    const CANVAS: Size = Size { width: 80, height: 60 };

    fn output(case: usize) -> Size {
        if case == 3 { Size::new(40, 30) } else { CANVAS }
    }

    #[test]
    fn matrices_are_those_of_the_published_trainer() {
        let golden = Golden::open("random_perspective.safetensors");
        for (case, drawn) in DRAWN.iter().enumerate() {
            let matrix = drawn.matrix(CANVAS, output(case));
            let reference = golden.f64s(&format!("case{case}.M"));
            for (ours, reference) in matrix.iter().flatten().zip(reference) {
                assert!((ours - reference).abs() < 1e-12 * reference.abs().max(1.0), "case {case}: {ours} and {reference}");
            }
        }
    }

    #[test]
    fn boxes_are_those_of_the_published_trainer() {
        let golden = Golden::open("random_perspective.safetensors");
        for (case, drawn) in DRAWN.iter().enumerate() {
            let matrix = drawn.matrix(CANVAS, output(case));
            let targets = golden.f32s(&format!("case{case}.targets_in"));
            let mut ours = Vec::new();
            for (index, row) in targets.chunks_exact(5).enumerate() {
                let bbox = std::array::from_fn(|side| f64::from(row[side + 1]));
                let moved = if case == 5 {
                    let points = golden.f32s(&format!("case5.segment{index}"));
                    let polygon: Vec<[f64; 2]> = points.chunks_exact(2).map(|point| [f64::from(point[0]), f64::from(point[1])]).collect();
                    move_polygon(&matrix, drawn.scale, &bbox, &polygon, output(case))
                } else {
                    move_box(&matrix, drawn.scale, &bbox, output(case))
                };
                ours.extend(moved.into_iter().flat_map(|moved| [f64::from(row[0]), moved[0], moved[1], moved[2], moved[3]]));
            }
            let reference = golden.f32s(&format!("case{case}.targets_out"));
            assert_eq!(ours.len(), reference.len(), "case {case}: other boxes are kept");
            for (ours, reference) in ours.iter().zip(reference) {
                assert!((ours - f64::from(reference)).abs() < 1e-4, "case {case}: {ours} and {reference}");
            }
        }
    }

    #[test]
    fn nothing_drawn_is_no_change() {
        let matrix = Perspective::NONE.matrix(Size::square(64), Size::square(64));
        assert_eq!(matrix, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        let bbox = [3.0, 4.0, 10.0, 30.0];
        assert_eq!(move_box(&matrix, 1.0, &bbox, Size::square(64)), Some(bbox));
    }

    #[test]
    fn small_thin_and_hidden_boxes_are_left_out() {
        let matrix = Perspective::NONE.matrix(Size::square(640), Size::square(640));
        let kept = |bbox: Corners| move_box(&matrix, 1.0, &bbox, Size::square(640)).is_some();
        assert!(kept([10.0, 10.0, 12.5, 12.5]) && !kept([10.0, 10.0, 12.0, 14.0]), "two pixels");
        assert!(kept([0.0, 10.0, 300.0, 13.1]) && !kept([0.0, 10.0, 300.0, 12.9]), "a hundred times longer than wide");
        assert!(kept([-85.0, 0.0, 15.0, 50.0]) && !kept([-95.0, 0.0, 5.0, 50.0]), "a tenth of its area");
    }

    #[test]
    fn a_polygon_counts_by_what_of_it_lies_in_the_output() {
        let matrix = Perspective::NONE.matrix(Size::square(100), Size::square(100));
        // A triangle whose box reaches into the output only with an empty corner.
        let outside = [[-50.0, 0.0], [-50.0, 60.0], [-1.0, 60.0]];
        let bbox = around(&outside).unwrap();
        assert_eq!(move_polygon(&matrix, 1.0, &bbox, &outside, Size::square(100)), None);
        let half = [[-50.0, 0.0], [50.0, 0.0], [50.0, 40.0], [-50.0, 40.0]];
        let moved = move_polygon(&matrix, 1.0, &around(&half).unwrap(), &half, Size::square(100)).unwrap();
        assert!(moved[0] < 0.5 && moved[1..] == [0.0, 50.0, 40.0], "{moved:?}");
        assert_eq!(move_polygon(&matrix, 1.0, &bbox, &[], Size::square(100)), None);
    }
}
