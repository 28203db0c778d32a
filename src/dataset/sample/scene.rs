//! What is on a picture? A table with clutter, one metal part on it, and on the part the defects.
//!
//! In:  the dataset's seed and the number of the picture.
//! Out: the picture and the boxes of its defects.
//!
//! Every choice is drawn from a stream of this picture's own, so pictures can be drawn in any order and by any thread.

use super::canvas::Canvas;
use super::canvas::Color;
use super::canvas::Light;
use super::canvas::UNITS;
use super::canvas::scaled;
use super::clutter;
use super::clutter::Place;
use super::defect::DefectKind;
use super::defect::UnitBox;
use super::defect::draw_defect;
use super::random::Direction;
use super::random::Random;
use super::random::rough_noise;
use super::random::smooth_step;
use super::shape::Shape;
use super::shape::length;
use super::surface::Background;
use super::surface::Finish;
use crate::geom::Size;
use crate::geom::Xywhn;
use crate::geom::Xyxy;
use crate::media::Picture;

pub(super) struct Scene {
    pub(super) picture: Picture,
    /// What is wrong with the part and the tight box around it.
    pub(super) defects: Vec<(DefectKind, Xywhn)>,
}

/// A part as it lies on the table.
struct Part {
    shape: Shape,
    place: Place,
    scale: f32,
    color: Color,
    finish: Finish,
    chamfer: f32,
    seed: u32,
}

/// Draws picture `index`; without defects when it is to be a background image.
pub(super) fn draw_scene(seed: u64, index: u64, side: u32, is_background: bool) -> Scene {
    let random = &mut Random::new(seed, 1, index);
    let canvas = &mut Canvas::new(side);
    let light = Light {
        from: random.direction(),
        up: random.range(0.62, 0.78),
        level: random.range(0.78, 1.0),
        gradient: random.range(0.1, 0.45),
        tint: random.pick(&[[1.0, 1.0, 1.0], [1.03, 1.0, 0.94], [0.95, 0.99, 1.04]]),
    };
    let part = Part::random(random);

    let background = Background::random(random);
    canvas.paint_all(|x, y, surface| (surface.color, surface.height) = background.at(x, y));
    draw_things_under(canvas, &light, random);
    draw_things_beside(canvas, &light, &part, random);
    let whole = [0.0, 0.0, UNITS, UNITS];
    clutter::cast_shadow(canvas, whole, &light, 17.0, &|x, y| part.distance(x, y));
    part.draw(canvas);
    let engraved = draw_engraving(canvas, &part, random);

    let metal = |x: f32, y: f32| -part.distance(x, y);
    let mut taken: Vec<UnitBox> = engraved.into_iter().collect();
    let mut defects = Vec::new();
    if !is_background {
        let n_defects = random.pick(&[1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5]);
        for _ in 0..n_defects {
            let kind = random.pick(&DefectKind::ALL);
            if let Some(unit_box) = draw_defect(canvas, kind, &metal, &taken, random) {
                taken.push(unit_box);
                defects.push((kind, fractions(unit_box)));
            }
        }
    }
    draw_things_on(canvas, &light, &part, &taken, random);
    Scene { picture: canvas.photograph(&light, random.bits() as u32), defects }
}

fn fractions(unit_box: UnitBox) -> Xywhn {
    let [x1, y1, x2, y2] = unit_box;
    Xyxy::new(x1, y1, x2, y2).to_xywhn(Size::square(UNITS as u32))
}

impl Part {
    fn random(random: &mut Random) -> Self {
        let shape = Shape::random(random);
        let finish = Finish::random(random, shape.round);
        // Steel most often, then aluminium, cast iron, brass, bronze, blackened steel.
        let color: Color = random.pick(&[
            [0.56, 0.57, 0.59],
            [0.62, 0.63, 0.65],
            [0.50, 0.51, 0.52],
            [0.68, 0.69, 0.70],
            [0.42, 0.42, 0.43],
            [0.68, 0.56, 0.33],
            [0.58, 0.43, 0.31],
            [0.32, 0.33, 0.35],
        ]);
        let place =
            Place { x: UNITS / 2.0 + random.range(-45.0, 45.0), y: UNITS / 2.0 + random.range(-45.0, 45.0), turn: random.direction() };
        Self {
            shape,
            place,
            scale: random.range(0.92, 1.32),
            color: scaled(color, random.range(0.92, 1.06)),
            finish,
            chamfer: random.range(5.0, 11.0),
            seed: random.bits() as u32,
        }
    }

    /// Into the part's own frame.
    fn local(&self, x: f32, y: f32) -> (f32, f32) {
        let (u, v) = self.place.turn.local(x - self.place.x, y - self.place.y);
        (u / self.scale, v / self.scale)
    }

    /// To its outline, negative inside of the metal.
    fn distance(&self, x: f32, y: f32) -> f32 {
        let (u, v) = self.local(x, y);
        self.shape.distance(u, v) * self.scale
    }

    fn draw(&self, canvas: &mut Canvas) {
        let is_cast = matches!(self.finish, Finish::Cast);
        canvas.paint_all(|x, y, surface| {
            let (u, v) = self.local(x, y);
            let inside = -self.shape.distance(u, v) * self.scale;
            if inside <= 0.0 {
                return;
            }
            // Texture stays as fine as it is when the part is drawn larger.
            let grain = self.finish.at(u * self.scale, v * self.scale, self.seed);
            let edge = (inside / self.chamfer).min(1.0);
            let on_face = smooth_step(0.9, 1.15, inside / self.chamfer);
            // Castings have round edges, machined ones a facet.
            let rise = if is_cast { 1.0 - (1.0 - edge) * (1.0 - edge) } else { 0.8 * edge };
            let step =
                self.shape.step.map_or(0.0, |(outline, height)| height * smooth_step(4.0, -4.0, outline.distance(u, v) * self.scale));
            surface.height = self.chamfer * rise + step + grain.height * on_face;
            let cloudy = 1.0 + 0.05 * rough_noise(u * 0.011, v * 0.011, self.seed ^ 0x77);
            surface.color = scaled(self.color, (1.0 + (grain.tone - 1.0) * on_face) * cloudy);
            surface.gloss = self.finish.gloss() * (0.35 + 0.65 * on_face);
            let (grain_x, grain_y) = self.place.turn.global(grain.direction[0], grain.direction[1]);
            surface.grain = if on_face > 0.5 { [grain_x, grain_y] } else { [0.0; 2] };
        });
    }
}

fn anywhere(random: &mut Random) -> Place {
    Place { x: random.range(0.0, UNITS), y: random.range(0.0, UNITS), turn: random.direction() }
}

/// Large flat things that the part may cover.
fn draw_things_under(canvas: &mut Canvas, light: &Light, random: &mut Random) {
    if random.chance(0.3) {
        let mut place = anywhere(random);
        // Toward a corner, so that it is seen beside the part.
        place.x += if place.x < UNITS / 2.0 { -60.0 } else { 60.0 };
        place.y += if place.y < UNITS / 2.0 { -60.0 } else { 60.0 };
        clutter::sheet(canvas, place, light, random);
    }
    if random.chance(0.2) {
        let offset = random.range(20.0, 70.0);
        let (along, across) = (random.range(200.0, 440.0), if random.chance(0.5) { offset } else { UNITS - offset });
        let tilt = random.range(-0.02, 0.02);
        let place = if random.chance(0.5) {
            Place { x: along, y: across, turn: Direction::from_turns(tilt) }
        } else {
            Place { x: across, y: along, turn: Direction::from_turns(0.25 + tilt) }
        };
        clutter::ruler(canvas, place, light, random);
    }
}

/// Small things on the table, clear of the part.
fn draw_things_beside(canvas: &mut Canvas, light: &Light, part: &Part, random: &mut Random) {
    let mut placed: Vec<Place> = Vec::new();
    for _ in 0..random.below(9) {
        let place = anywhere(random);
        let crowded = placed.iter().any(|other| length(other.x - place.x, other.y - place.y) < 72.0);
        if part.distance(place.x, place.y) < 36.0 || crowded {
            continue;
        }
        placed.push(place);
        match random.below(6) {
            0 | 1 => clutter::screw(canvas, place, light, random),
            2 => clutter::nut_or_washer(canvas, place, light, random),
            _ => clutter::chip(canvas, place, light, random),
        }
    }
}

/// A part number on some parts; returns the box that it takes.
fn draw_engraving(canvas: &mut Canvas, part: &Part, random: &mut Random) -> Option<UnitBox> {
    const TRIES: usize = 30;
    if !random.chance(0.35) {
        return None;
    }
    let text = clutter::part_number(random);
    let dot = random.range(2.0, 3.0);
    let (width, height) = clutter::engraving_size(&text, dot);
    (0..TRIES).find_map(|_| {
        let turn = part.place.turn.turned(Direction::from_turns(random.pick(&[0.0, 0.25, 0.5, 0.75])));
        let place = Place { turn, ..anywhere(random) };
        let spread = [(-0.5, -0.5), (0.0, -0.5), (0.5, -0.5), (-0.5, 0.5), (0.0, 0.5), (0.5, 0.5), (0.0, 0.0), (-0.25, 0.0), (0.25, 0.0)];
        let fits = spread.iter().all(|(along, across)| {
            let (dx, dy) = turn.global(along * width, across * height);
            part.distance(place.x + dx, place.y + dy) < -14.0
        });
        if !fits {
            return None;
        }
        clutter::engraving(canvas, place, &text, dot);
        let half_width = length(width * turn.cos, height * turn.sin) / 2.0;
        let half_height = length(width * turn.sin, height * turn.cos) / 2.0;
        Some([place.x - half_width, place.y - half_height, place.x + half_width, place.y + half_height])
    })
}

/// Chips and coolant on the part, clear of the defects.
fn draw_things_on(canvas: &mut Canvas, light: &Light, part: &Part, taken: &[UnitBox], random: &mut Random) {
    for _ in 0..random.below(4) {
        let place = anywhere(random);
        let clear = taken.iter().all(|b| place.x < b[0] - 45.0 || place.x > b[2] + 45.0 || place.y < b[1] - 45.0 || place.y > b[3] + 45.0);
        if part.distance(place.x, place.y) > -30.0 || !clear {
            continue;
        }
        if random.chance(0.65) {
            clutter::coolant(canvas, place, light, random);
        } else {
            clutter::chip(canvas, place, light, random);
        }
    }
}
