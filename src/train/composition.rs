//! From a recipe to plain data that needs no more decisions: which part of which picture lies where, and where the boxes are.
//!
//! In:  a recipe; the sizes, labels and polygons of the train set.
//! Out: a [`Composition`], which `paint.rs` executes on the CPU and which any other executor can.
//!
//! How an executor makes output pixel (x, y), all in integers:
//!
//! 1. Undo the flips: x becomes `width - 1 - x`, y becomes `height - 1 - y`.
//! 2. For each layer, sample its canvas as `media/warp.rs` says. A canvas pixel is that of the tile that covers it, else gray 114;
//!    where a paste covers it, it is the canvas pixel mirrored about the middle, at `canvas.width - 1 - x` (of the canvas without
//!    pastes).
//! 3. With two layers: `(first * share + second * (65536 - share)) >> 16`.
//! 4. Colour gains as `media/color.rs` says.
//!
//! The truth is final: clipped to the output less 0.001 pixels, then flipped.
//!
//! A fitted picture that came out a pixel short of the input is padded by that pixel; the published trainer stretches it a second
//! time. A repetition of step 1 to 4 with the same composition gives the same bytes. Never touches pixels.
//! Source: spec 8.4, 8.5, 8.7, 8.8; S38: polygons count only where every label of the train set has one.

use super::copy_paste;
use super::copy_paste::Span;
use super::perspective;
use super::perspective::Corners;
use super::recipe::LayerRecipe;
use super::recipe::Mosaic;
use super::recipe::Place;
use super::recipe::Recipe;
use super::train_set::TrainImage;
use super::train_set::TrainSet;
use super::train_set::TruthRow;
use crate::geom::Letterbox;
use crate::geom::Size;
use crate::geom::letterbox::LetterboxOptions;
use crate::media::warp::Map;

/// Distance that clipped boxes keep from the right and lower edge.
pub(super) const EDGE: f32 = 1e-3;

/// A sample without decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    /// Side of the square output.
    pub side: u32,
    pub layer: Layer,
    pub mixup: Option<SecondLayer>,
    pub flip_vertical: bool,
    pub flip_horizontal: bool,
    pub hsv_gains: Option<[f32; 3]>,
    /// Class and corners in output pixels.
    pub truth: Vec<TruthRow>,
}

/// A layer that is mixed into the first.
#[derive(Clone, Debug, PartialEq)]
pub struct SecondLayer {
    pub layer: Layer,
    /// Share of the first layer, out of 65536.
    pub share: u32,
}

/// Tiles on a canvas, and how it is seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub canvas: Size,
    /// They do not overlap.
    pub tiles: Vec<Tile>,
    /// Parts of rows, ordered by row and column, that do not overlap.
    pub pastes: Vec<Span>,
    /// From output to canvas pixels.
    pub map: Map,
    /// Whether boxes came from polygons.
    pub used_polygons: bool,
}

/// A rectangle of a fitted picture, copied as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Index into the train set.
    pub image: usize,
    /// Left and top in the fitted picture.
    pub source: [u32; 2],
    /// Left and top on the canvas.
    pub place: [u32; 2],
    pub size: Size,
}

impl Composition {
    /// The pictures that are needed, once each.
    pub fn images(&self) -> Vec<usize> {
        let layers = std::iter::once(&self.layer).chain(self.mixup.as_ref().map(|second| &second.layer));
        let mut images: Vec<usize> = layers.flat_map(|layer| layer.tiles.iter().map(|tile| tile.image)).collect();
        images.sort_unstable();
        images.dedup();
        images
    }
}

/// A labelled object on a canvas.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub class: f32,
    pub bbox: Corners,
    /// Empty where polygons are not used.
    pub polygon: Vec<[f64; 2]>,
}

impl TrainSet {
    /// Resolves a recipe against sizes and labels.
    pub fn compose(&self, recipe: &Recipe) -> Composition {
        let (layer, mut truth) = self.compose_layer(&recipe.layer);
        let mixup = recipe.mixup.as_ref().map(|mixup| {
            let (layer, rows) = self.compose_layer(&mixup.layer);
            truth.extend(rows);
            SecondLayer { layer, share: (mixup.ratio * 65536.0).round() as u32 }
        });
        let truth = truth.into_iter().filter_map(|row| self.finished(row, recipe)).collect();
        let Recipe { flip_vertical, flip_horizontal, hsv_gains, .. } = *recipe;
        Composition { side: self.imgsz, layer, mixup, flip_vertical, flip_horizontal, hsv_gains, truth }
    }

    /// A layer, and its objects in output pixels before they are clipped and flipped.
    fn compose_layer(&self, recipe: &LayerRecipe) -> (Layer, Vec<TruthRow>) {
        let output = Size::square(self.imgsz);
        let (canvas, tiles, pastes, objects, used_polygons) = match &recipe.place {
            Place::Letterbox { image } => {
                let (tile, objects) = self.letterboxed(*image);
                (output, vec![tile], Vec::new(), objects, false)
            }
            Place::Mosaic(mosaic) => {
                let canvas = Size::square(2 * self.imgsz);
                let (tiles, mut objects) = self.mosaic(mosaic, canvas);
                let pastes = match mosaic.copy_paste {
                    Some(choice) if self.has_polygons => copy_paste::paste(choice, canvas, &mut objects),
                    _ => Vec::new(),
                };
                (canvas, tiles, pastes, objects, self.has_polygons)
            }
        };
        let matrix = recipe.perspective.matrix(canvas, output);
        let scale = recipe.perspective.scale;
        let rows = objects.iter().filter_map(|Object { class, bbox, polygon }| {
            let moved = if used_polygons {
                perspective::move_polygon(&matrix, scale, bbox, polygon, output)
            } else {
                perspective::move_box(&matrix, scale, bbox, output)
            }?;
            let [x1, y1, x2, y2] = moved.map(|side| side as f32);
            Some([*class, x1, y1, x2, y2])
        });
        let rows = rows.collect();
        (Layer { canvas, tiles, pastes, map: Map::inverse(&matrix), used_polygons }, rows)
    }

    fn letterboxed(&self, image: usize) -> (Tile, Vec<Object>) {
        let TrainImage { fitted, labels, .. } = &self.images[image];
        let letterbox = Letterbox::new(*fitted, Size::square(self.imgsz), LetterboxOptions { auto: None, scale_up: false });
        let objects = labels.iter().map(|label| {
            let bbox = letterbox.input_from_image(label.bbox.to_xyxy(*fitted));
            Object { class: label.class.0 as f32, bbox: [bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from), polygon: Vec::new() }
        });
        (Tile { image, source: [0, 0], place: [letterbox.left, letterbox.top], size: *fitted }, objects.collect())
    }

    fn mosaic(&self, mosaic: &Mosaic, canvas: Size) -> (Vec<Tile>, Vec<Object>) {
        let side = f64::from(canvas.width);
        let centre = mosaic.centre.map(|part| (part * side) as u32);
        let (mut tiles, mut objects) = (Vec::with_capacity(4), Vec::new());
        for (place, &image) in mosaic.images.iter().enumerate() {
            let TrainImage { fitted, labels, polygons, .. } = &self.images[image];
            // Each axis alone: before the centre the picture's end counts, after it its beginning.
            let axis = |axis: usize, length: u32| {
                let centre = centre[axis];
                if (place >> axis) & 1 == 0 {
                    let shown = length.min(centre);
                    (length - shown, centre - shown, shown)
                } else {
                    (0, centre, length.min(canvas.width - centre))
                }
            };
            let ((left, x, width), (top, y, height)) = (axis(0, fitted.width), axis(1, fitted.height));
            tiles.push(Tile { image, source: [left, top], place: [x, y], size: Size::new(width, height) });
            let shift = [f64::from(x) - f64::from(left), f64::from(y) - f64::from(top)];
            let clipped = |at: f64, axis: usize| (at + shift[axis]).clamp(0.0, side);
            for (index, label) in labels.iter().enumerate() {
                let bbox = label.bbox.to_xyxy(*fitted);
                let corners = [bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from);
                let bbox = [clipped(corners[0], 0), clipped(corners[1], 1), clipped(corners[2], 0), clipped(corners[3], 1)];
                let (width, height) = (f64::from(fitted.width), f64::from(fitted.height));
                let point = |[x, y]: &[f32; 2]| [clipped(f64::from(*x) * width, 0), clipped(f64::from(*y) * height, 1)];
                let polygon = polygons.get(index).map_or_else(Vec::new, |polygon| polygon.iter().map(point).collect());
                objects.push(Object { class: label.class.0 as f32, bbox, polygon });
            }
        }
        (tiles, objects)
    }

    /// Clipped and flipped; `None` where nothing of the box lies inside.
    fn finished(&self, [class, x1, y1, x2, y2]: TruthRow, recipe: &Recipe) -> Option<TruthRow> {
        let side = self.imgsz as f32;
        let [mut x1, mut y1, mut x2, mut y2] = [x1, y1, x2, y2].map(|at| at.clamp(0.0, side - EDGE));
        if recipe.flip_horizontal {
            (x1, x2) = (side - x2, side - x1);
        }
        if recipe.flip_vertical {
            (y1, y2) = (side - y2, side - y1);
        }
        (x2 > x1 && y2 > y1).then_some([class, x1, y1, x2, y2])
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Hyp;
    use super::super::paint::Painter;
    use super::super::perspective::Perspective;
    use super::super::recipe::CopyPaste;
    use super::super::recipe::Mixup;
    use super::super::recipe::Stream;
    use super::super::train_set::tests::drawn;
    use super::super::train_set::tests::set_of;
    use super::*;
    use crate::dataset::ClassId;
    use crate::dataset::Label;
    use crate::geom::Xyxy;
    use crate::media::Picture;

    fn painted(set: &TrainSet, composition: &Composition) -> Vec<u8> {
        let picture = |image: usize| set.images[image].kept.as_ref().expect("the picture is kept");
        let mut pixels = vec![0; set.sample_len()];
        Painter::default().paint(composition, &picture, &mut pixels);
        pixels
    }

    fn letterbox(image: usize) -> Recipe {
        let layer = LayerRecipe { place: Place::Letterbox { image }, perspective: Perspective::NONE };
        Recipe { layer, mixup: None, flip_vertical: false, flip_horizontal: false, hsv_gains: None }
    }

    fn mosaic(images: [usize; 4], centre: [f64; 2]) -> LayerRecipe {
        LayerRecipe { place: Place::Mosaic(Mosaic { images, centre, copy_paste: None }), perspective: Perspective::NONE }
    }

    /// The box around the white pixels inside of a part of a picture of 64 pixels.
    fn white_within(pixels: &[u8], part: [usize; 4]) -> Option<[f32; 4]> {
        let lit = (part[1]..part[3]).flat_map(|y| (part[0]..part[2]).map(move |x| (x, y))).filter(|(x, y)| pixels[(y * 64 + x) * 3] > 185);
        lit.fold(None, |found: Option<[f32; 4]>, (x, y)| {
            let [x1, y1, x2, y2] = [x, y, x + 1, y + 1].map(|at| at as f32);
            Some(found.map_or([x1, y1, x2, y2], |[a, b, c, d]| [a.min(x1), b.min(y1), c.max(x2), d.max(y2)]))
        })
    }

    #[test]
    fn a_single_pictures_boxes_lie_on_the_pixels_that_were_drawn() {
        for size in [Size::new(64, 40), Size::new(40, 64), Size::square(64), Size::square(63)] {
            let set = set_of(vec![drawn(size, Xyxy::new(6.0, 10.0, 20.0, 18.0))], 64);
            for (flip_horizontal, flip_vertical) in [(false, false), (true, false), (false, true), (true, true)] {
                let composition = set.compose(&Recipe { flip_vertical, flip_horizontal, ..letterbox(0) });
                assert_eq!((composition.truth.len(), composition.truth[0][0]), (1, 1.0));
                let edges = white_within(&painted(&set, &composition), [0, 0, 64, 64]).expect("white pixels");
                for (edge, truth) in edges.iter().zip(&composition.truth[0][1..]) {
                    // Odd padding shifts pixels by half a pixel against boxes.
                    assert!((edge - truth).abs() <= 0.51, "{size:?}: pixels {edges:?}, box {:?}", composition.truth[0]);
                }
            }
        }
    }

    #[test]
    fn boxes_lie_on_the_pixels_that_were_drawn_whatever_is_done_to_them() {
        let hyp = Hyp {
            degrees: 25.0,
            scale: 0.4,
            shear: 6.0,
            perspective: 0.001,
            flipud: 0.5,
            hsv_h: 0.0,
            hsv_s: 0.0,
            hsv_v: 0.0,
            mixup: 0.0,
            mosaic: 0.8,
            ..Hyp::scratch_high()
        };
        // One white rectangle in one of two pictures, so that a box can be told from others only where it is alone.
        let plain = || TrainImage { labels: vec![], ..drawn(Size::new(64, 48), Xyxy::new(0.0, 0.0, 0.0, 0.0)) };
        let images = vec![drawn(Size::new(64, 50), Xyxy::new(20.0, 12.0, 44.0, 38.0)), plain(), plain(), plain(), plain(), plain()];
        let set = set_of(images, 64);
        let (mut n_checked, mut n_upright) = (0, 0);
        for upright in [false, true] {
            let hyp = if upright { Hyp { degrees: 0.0, shear: 0.0, perspective: 0.0, ..hyp.clone() } } else { hyp.clone() };
            let stream = Stream { hyp, seed: 1, n_images: 6, mosaic_ends: 1000 };
            for epoch in 0..300 {
                let recipe = Recipe::draw(&stream, epoch, 0);
                if recipe.images().iter().filter(|image| **image == 0).count() > 1 {
                    continue;
                }
                let composition = set.compose(&recipe);
                let Some([_, truth @ ..]) = composition.truth.first() else { continue };
                let Some(edges) = white_within(&painted(&set, &composition), [0, 0, 64, 64]) else { continue };
                // A box that the output or a tile cuts holds its pixels, but may be larger than what is seen of a turned rectangle.
                let is_cut = truth.iter().any(|at| *at <= 0.5 || *at >= 63.0)
                    || composition.layer.tiles.iter().any(|tile| tile.image == 0 && tile.size != set.images[0].fitted);
                let [x1, y1, x2, y2] = [edges[0] - truth[0], edges[1] - truth[1], truth[2] - edges[2], truth[3] - edges[3]];
                assert!([x1, y1, x2, y2].iter().all(|gap| *gap > -1.6), "{recipe:?}: pixels {edges:?}, box {truth:?}");
                if !is_cut {
                    assert!([x1, y1, x2, y2].iter().all(|gap| *gap < 1.6), "{recipe:?}: pixels {edges:?}, box {truth:?}");
                    n_checked += 1;
                    n_upright += usize::from(upright);
                }
            }
        }
        assert!(n_checked - n_upright > 60 && n_upright > 60, "too few samples to judge: {n_checked}, {n_upright}");
    }

    #[test]
    fn the_four_tiles_meet_in_the_centre() {
        let gray = |shade: u8, size: Size| TrainImage {
            kept: Some(Picture { size, rgb: vec![shade; size.width as usize * size.height as usize * 3] }),
            ..drawn(size, Xyxy::new(0.0, 0.0, 0.0, 0.0))
        };
        let sizes = [Size::new(64, 40), Size::new(30, 64), Size::square(64), Size::new(64, 20)];
        let set = set_of(sizes.iter().enumerate().map(|(index, size)| gray(10 * (index as u8 + 1), *size)).collect(), 64);
        let recipe = Recipe { layer: mosaic([0, 1, 2, 3], [0.5, 0.25]), ..letterbox(0) };
        let composition = set.compose(&recipe);
        let tile = |image, source, place, (width, height)| Tile { image, source, place, size: Size::new(width, height) };
        assert_eq!(
            composition.layer.tiles,
            [
                tile(0, [0, 8], [0, 0], (64, 32)),
                tile(1, [0, 32], [64, 0], (30, 32)),
                tile(2, [0, 0], [0, 32], (64, 64)),
                tile(3, [0, 0], [64, 32], (64, 20)),
            ]
        );
        // The middle 64 x 64 of the canvas.
        let pixels = painted(&set, &composition);
        let at = |x: usize, y: usize| pixels[(y * 64 + x) * 3];
        assert_eq!([at(0, 0), at(0, 1), at(31, 63), at(32, 0), at(63, 19), at(63, 20), at(32, 63)], [30, 30, 30, 40, 40, 114, 114]);
        let shifted = Perspective { translate: [1.0, 1.0], ..Perspective::NONE };
        let recipe = Recipe { layer: LayerRecipe { perspective: shifted, ..recipe.layer }, ..recipe };
        let pixels = painted(&set, &set.compose(&recipe));
        let at = |x: usize, y: usize| pixels[(y * 64 + x) * 3];
        assert_eq!([at(0, 0), at(63, 31), at(63, 32)], [10, 10, 30], "the upper left quarter");
    }

    #[test]
    fn mixup_mixes_pixels_and_keeps_all_boxes() {
        let set = set_of(
            vec![drawn(Size::square(64), Xyxy::new(0.0, 0.0, 64.0, 64.0)), drawn(Size::square(64), Xyxy::new(40.0, 40.0, 60.0, 60.0))],
            64,
        );
        let layer = LayerRecipe { place: Place::Letterbox { image: 1 }, perspective: Perspective::NONE };
        let mixed = Recipe { mixup: Some(Mixup { layer, ratio: 0.25 }), ..letterbox(0) };
        let composition = set.compose(&mixed);
        assert_eq!(composition.truth.len(), 2);
        assert_eq!(composition.images(), [0, 1]);
        let pixels = painted(&set, &composition);
        assert_eq!((pixels[0], pixels[(50 * 64 + 50) * 3]), (63, 255), "a quarter of white over black, and white over white");
    }

    #[test]
    fn padding_is_gray_and_gains_change_the_colours() {
        let set = set_of(vec![drawn(Size::new(64, 32), Xyxy::new(0.0, 0.0, 64.0, 32.0))], 64);
        let pixels = painted(&set, &set.compose(&letterbox(0)));
        assert_eq!((pixels[0], pixels[32 * 64 * 3]), (114, 255));
        let pixels = painted(&set, &set.compose(&Recipe { hsv_gains: Some([1.0, 1.0, 0.5]), ..letterbox(0) }));
        assert_eq!((pixels[0], pixels[32 * 64 * 3]), (57, 127));
    }

    #[test]
    fn boxes_are_clipped_to_the_input_and_dropped_outside() {
        let mut image = drawn(Size::square(64), Xyxy::new(0.0, 0.0, 64.0, 64.0));
        image.labels.push(Label { class: ClassId(0), bbox: Xyxy::new(-20.0, -20.0, -10.0, -10.0).to_xywhn(Size::square(64)) });
        let set = set_of(vec![image], 64);
        let truth = set.compose(&Recipe { flip_horizontal: true, ..letterbox(0) }).truth;
        assert_eq!(truth, [[1.0, 64.0 - (64.0 - EDGE), 0.0, 64.0, 64.0 - EDGE]]);
    }

    /// A set of one picture with a white square whose outline is known.
    fn outlined() -> TrainSet {
        let mut image = drawn(Size::square(64), Xyxy::new(8.0, 8.0, 24.0, 24.0));
        let (low, high) = (8.0 / 64.0, 23.0 / 64.0);
        image.polygons = vec![vec![[low, low], [high, low], [high, high], [low, high]]];
        TrainSet { has_polygons: true, ..set_of(vec![image], 64) }
    }

    #[test]
    fn a_copied_object_is_seen_mirrored_under_its_box() {
        let set = outlined();
        let choice = CopyPaste { share: 1.0, key: 3 };
        // The picture fills the upper left quarter of the canvas but 20 pixels; the other tiles are the same picture, off the canvas
        // as far as they go.
        let place = Place::Mosaic(Mosaic { images: [0; 4], centre: [0.25, 0.25], copy_paste: Some(choice) });
        let perspective = Perspective { scale: 0.5, ..Perspective::NONE };
        let recipe = Recipe { layer: LayerRecipe { place, perspective }, ..letterbox(0) };
        let with = set.compose(&recipe);
        let without = TrainSet { has_polygons: false, ..outlined() }.compose(&recipe);
        assert!(with.layer.used_polygons && !without.layer.used_polygons && without.layer.pastes.is_empty());
        let n_pasted = with.truth.len() - without.truth.len();
        assert!(n_pasted > 0 && !with.layer.pastes.is_empty());
        let (pixels, plain) = (painted(&set, &with), painted(&set, &without));
        for row in &with.truth[without.truth.len()..] {
            let middle = (f32::midpoint(row[2], row[4]) as usize * 64 + f32::midpoint(row[1], row[3]) as usize) * 3;
            assert!(pixels[middle] > 200 && plain[middle] < 200, "{row:?}: {} and {}", pixels[middle], plain[middle]);
        }
        // Nothing else changed.
        let inside = |x: f32, y: f32, row: &TruthRow| x >= row[1] - 1.5 && x <= row[3] + 1.5 && y >= row[2] - 1.5 && y <= row[4] + 1.5;
        for at in 0..64 * 64 {
            let (x, y) = ((at % 64) as f32, (at / 64) as f32);
            if !with.truth[without.truth.len()..].iter().any(|row| inside(x, y, row)) {
                assert_eq!(pixels[at * 3], plain[at * 3], "{x}, {y}");
            }
        }
    }

    #[test]
    fn without_mosaic_boxes_count_not_outlines() {
        let composition = outlined().compose(&letterbox(0));
        assert!(!composition.layer.used_polygons);
        assert_eq!(composition.truth[0][1..], [8.0, 8.0, 24.0, 24.0]);
    }
}
