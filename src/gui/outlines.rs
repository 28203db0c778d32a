//! How are many boxes drawn at once? All outlines of a picture as one mesh.
//!
//! In:  boxes on the screen with colour and style. Out: triangles; no shape, text or allocation a box.
//!
//! A shape a box is tessellated with feathering and costs some microseconds; 10,000 of them are more than a frame. Here each
//! outline is a ring of eight corners on whole screen pixels, crisp without feathering, and boxes out of view cost a comparison.

use egui::epaint::{Mesh, Vertex, WHITE_UV};
use egui::{Color32, Pos2, Rect, pos2};

/// The dark line around the coloured one goes when so many boxes are in view: it can no longer be told.
const MAX_HALOS: usize = 2000;

/// A box to draw.
#[derive(Clone, Copy, Debug)]
pub struct OutlinedBox {
    /// On the screen.
    pub rect: Rect,
    pub color: Color32,
    /// Of the line, in points.
    pub width: f32,
    pub fill: Color32,
    /// Drawn with gaps.
    pub is_dashed: bool,
}

impl OutlinedBox {
    /// In the usual style; marked: selected, or under the pointer.
    pub fn new(rect: Rect, color: Color32, is_marked: bool, is_dashed: bool) -> Self {
        let fill = if is_marked { color.gamma_multiply(0.22) } else { Color32::TRANSPARENT };
        Self { rect, color, width: if is_marked { 2.5 } else { 1.75 }, fill, is_dashed }
    }
}

/// Collects boxes of one picture.
pub struct Outlines {
    boxes: Vec<OutlinedBox>,
    view: Rect,
    pixels_per_point: f32,
}

impl Outlines {
    /// `view`: the canvas; what lies outside is left out.
    pub fn new(view: Rect, pixels_per_point: f32) -> Self {
        Self { boxes: Vec::new(), view, pixels_per_point }
    }

    pub fn add(&mut self, each: OutlinedBox) {
        if self.view.expand(each.width).intersects(each.rect) {
            self.boxes.push(each);
        }
    }

    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// The mesh of all boxes, later ones above.
    pub fn mesh(&self) -> Mesh {
        let mut mesh = Mesh::default();
        let has_halos = self.boxes.len() <= MAX_HALOS;
        let n_rings = self.boxes.len() * if has_halos { 2 } else { 1 };
        mesh.reserve_vertices(n_rings * 8);
        mesh.reserve_triangles(n_rings * 8);
        for each in &self.boxes {
            // Lines far outside of the canvas need not be exact, but must not lose their place to rounding.
            let rect = each.rect.intersect(self.view.expand(64.0));
            if each.fill != Color32::TRANSPARENT {
                mesh.add_colored_rect(rect.intersect(self.view), each.fill);
            }
            let rect = self.on_pixels(rect);
            let width = (each.width * self.pixels_per_point).round().max(1.0) / self.pixels_per_point;
            if has_halos {
                let halo = Color32::from_black_alpha(if each.width > 2.0 { 150 } else { 90 });
                let thin = 1.0 / self.pixels_per_point;
                ring(&mut mesh, rect.expand(width / 2.0 + thin), width + 2.0 * thin, halo);
            }
            if each.is_dashed {
                dashes(&mut mesh, rect, width, each.color);
            } else {
                ring(&mut mesh, rect.expand(width / 2.0), width, each.color);
            }
        }
        mesh
    }

    fn on_pixels(&self, rect: Rect) -> Rect {
        let round = |value: f32| (value * self.pixels_per_point).round() / self.pixels_per_point;
        Rect::from_min_max(pos2(round(rect.left()), round(rect.top())), pos2(round(rect.right()), round(rect.bottom())))
    }
}

/// A frame between `outer` and the rectangle that is `width` smaller on each side.
fn ring(mesh: &mut Mesh, outer: Rect, width: f32, color: Color32) {
    let inner = outer.shrink2(egui::vec2(width.min(outer.width() / 2.0), width.min(outer.height() / 2.0)));
    let first = mesh.vertices.len() as u32;
    let vertex = |pos: Pos2| Vertex { pos, uv: WHITE_UV, color };
    for rect in [outer, inner] {
        mesh.vertices.extend([rect.left_top(), rect.right_top(), rect.right_bottom(), rect.left_bottom()].map(vertex));
    }
    for corner in 0..4 {
        let next = (corner + 1) % 4;
        let [a, b, c, d] = [corner, next, next + 4, corner + 4].map(|place| first + place);
        mesh.indices.extend([a, b, c, a, c, d]);
    }
}

/// A dashed frame.
fn dashes(mesh: &mut Mesh, rect: Rect, width: f32, color: Color32) {
    const DASH: f32 = 6.0;
    const PERIOD: f32 = 10.0;
    let half = width / 2.0;
    let along = |from: f32, to: f32| {
        let n = ((to - from) / PERIOD).ceil().max(1.0) as usize;
        (0..n.min(2000)).map(move |index| {
            let start = from + index as f32 * PERIOD;
            (start, (start + DASH).min(to))
        })
    };
    for (start, end) in along(rect.left(), rect.right()) {
        for y in [rect.top(), rect.bottom()] {
            mesh.add_colored_rect(Rect::from_min_max(pos2(start, y - half), pos2(end, y + half)), color);
        }
    }
    for (start, end) in along(rect.top(), rect.bottom()) {
        for x in [rect.left(), rect.right()] {
            mesh.add_colored_rect(Rect::from_min_max(pos2(x - half, start), pos2(x + half, end)), color);
        }
    }
}

#[cfg(test)]
mod tests {
    use egui::vec2;

    use super::*;

    const VIEW: Rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(400.0, 300.0));

    fn outlined(x: f32, y: f32, side: f32) -> OutlinedBox {
        let rect = Rect::from_min_size(pos2(x, y), vec2(side, side));
        OutlinedBox { rect, color: Color32::RED, width: 1.75, fill: Color32::TRANSPARENT, is_dashed: false }
    }

    #[test]
    fn boxes_out_of_view_are_left_out() {
        let mut outlines = Outlines::new(VIEW, 1.0);
        for x in [-500.0, 10.0, 390.0, 500.0] {
            outlines.add(outlined(x, 10.0, 50.0));
        }
        assert_eq!(outlines.len(), 2);
        let mesh = outlines.mesh();
        assert!(mesh.is_valid());
        assert_eq!(mesh.vertices.len(), 2 * 2 * 8, "a ring and its halo");
    }

    #[test]
    fn many_boxes_have_no_halos() {
        let mut outlines = Outlines::new(VIEW, 1.0);
        for index in 0..=MAX_HALOS {
            outlines.add(outlined((index % 350) as f32, (index % 250) as f32, 20.0));
        }
        assert_eq!(outlines.mesh().vertices.len(), (MAX_HALOS + 1) * 8);
    }

    #[test]
    fn a_box_much_larger_than_the_view_stays_near_it() {
        let mut outlines = Outlines::new(VIEW, 1.0);
        outlines.add(outlined(-1e6, -1e6, 3e6));
        outlines.add(OutlinedBox { is_dashed: true, ..outlined(-1e6, 10.0, 3e6) });
        let bounds = outlines.mesh().calc_bounds();
        assert!(VIEW.expand(80.0).contains_rect(bounds), "{bounds:?}");
    }

    #[test]
    fn lines_lie_on_whole_pixels() {
        let mut outlines = Outlines::new(VIEW, 2.0);
        outlines.add(OutlinedBox { width: 1.0, ..outlined(10.3, 20.6, 50.0) });
        for vertex in outlines.mesh().vertices {
            let on_pixel = |value: f32| ((value * 2.0).round() - value * 2.0).abs() < 1e-3;
            assert!(on_pixel(vertex.pos.x) && on_pixel(vertex.pos.y), "{:?}", vertex.pos);
        }
    }
}
