//! The canvas on which boxes are edited: what pointer and keys do to them, and how they look meanwhile.
//!
//! In:  a picture, its labels and what is remembered of each box; pointer and keys.
//! Out: outcomes of drafts (a box drawn, boxes moved or resized) in image pixels; what is selected changes here.
//!
//! Drag on an empty place draws, on a box moves, on a handle resizes; with Shift a rubber band selects. Space, Ctrl or the
//! middle button pan. After `arm` every drag draws, two clicks do, and so do arrows with Enter. Never makes an edit itself.

use std::path::Path;
use std::sync::Arc;

use egui::epaint::Mesh;
use egui::{
    Color32, CursorIcon, EventFilter, Id, Key, Modifiers, PointerButton, Pos2, Rect, Response, Role, Sense, Shape, Stroke, StrokeKind, Ui,
    Vec2, WidgetInfo, pos2, vec2,
};

use super::box_states::BoxStates;
use super::canvas::{self, MAX_TAGS};
use super::draft::{Draft, DrawBy, Outcome, Rules};
use super::handles::Handle;
use super::hit::{self, HitIndex};
use super::keymap;
use super::loupe;
use super::outlines::{OutlinedBox, Outlines};
use super::picture_view::{Drawn, PictureView};
use super::textures::Textures;
use super::theme::{self, palette};
use super::tone::Tone;
use super::viewport::{self, Zoom};
use crate::dataset::Label;
use crate::geom::{Size, Xywhn};
use crate::session::EditorSettings;
use crate::session::ImageRows;

/// Screen points that a press may move and still be a click.
const CLICK_REACH: f32 = 4.0;
/// Screen points around a box that count as it.
const BOX_SLACK: f32 = 3.0;
/// Screen points from the image's edge within which a corner lies on it.
const EDGE_SLACK: f32 = 5.0;
/// Screen pixels an image pixel, from which on the pixel grid is drawn.
const GRID_SCALE: f32 = 12.0;

/// What is drawn.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub path: &'a Path,
    pub labels: &'a Arc<[Label]>,
    pub names: &'a [String],
    /// Rows that training does not use, which are drawn gray.
    pub dropped: Option<&'a ImageRows>,
    /// The class that a drawn box gets.
    pub class: usize,
    /// A box that was drawn and has no class yet.
    pub drawn: Option<Xywhn>,
    pub settings: EditorSettings,
    pub tone: Tone,
    pub hides_boxes: bool,
}

/// What was done on the canvas in a frame.
#[derive(Debug, Default)]
pub struct CanvasDone {
    pub outcomes: Vec<Outcome>,
    /// A box was double clicked, to choose its class.
    pub wants_class: bool,
}

/// The button is down.
#[derive(Clone, Debug)]
struct Press {
    /// On the screen, and on the image.
    origin: Pos2,
    image: Pos2,
    on: PressOn,
    /// It has moved too far for a click.
    is_drag: bool,
}

#[derive(Clone, Debug)]
enum PressOn {
    Pan,
    /// Drawing was asked for.
    Armed,
    Handle(usize, Handle),
    Boxes(Vec<usize>),
    /// With Ctrl: a click changes the selection, a drag pans.
    Toggle(Vec<usize>),
    /// With Shift: a click adds, a drag is a rubber band.
    Band(Vec<usize>),
    Empty,
}

/// What the canvas remembers between frames.
#[derive(Default)]
pub struct EditCanvas {
    picture: PictureView,
    draft: Option<Draft>,
    press: Option<Press>,
    /// The next drag draws, wherever it begins.
    is_armed: bool,
    /// Moved by the arrows, in image pixels.
    cursor: Option<Pos2>,
    /// In image pixels, by label; of `rects_of` on an image of this size.
    rects: Vec<Rect>,
    hits: HitIndex,
    rects_of: Option<(Arc<[Label]>, Size)>,
    /// Of the last frame.
    drawn: Option<Drawn>,
    id: Option<Id>,
    /// Boxes cannot be seen, so they cannot be taken hold of either.
    hides_boxes: bool,
    /// Finished by keys since the last frame.
    outcomes: Vec<Outcome>,
}

impl EditCanvas {
    /// Of the picture, once it is known.
    pub fn size(&self) -> Option<Size> {
        self.picture.size()
    }

    /// The picture as it was drawn last, for what is laid over it.
    pub fn drawn(&self) -> Option<Drawn> {
        self.drawn
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.picture.viewport.zoom(zoom);
    }

    /// Zooms so that the selected boxes fill the view.
    pub fn zoom_to_selection(&mut self, states: &BoxStates) -> bool {
        let selected = states.selected();
        let bounds = selected.iter().filter_map(|&index| self.rects.get(index)).fold(Rect::NOTHING, |all, rect| all.union(*rect));
        if bounds.is_finite() {
            self.picture.viewport.zoom(Zoom::To(bounds));
        }
        bounds.is_finite()
    }

    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Whether a box is half drawn, or the next drag draws one.
    pub fn is_drawing(&self) -> bool {
        self.is_armed || matches!(self.draft, Some(Draft::Draw { .. }))
    }

    /// The next drag draws; or no longer.
    pub fn toggle_armed(&mut self) {
        self.is_armed = !self.is_drawing();
        (self.draft, self.press, self.cursor) = (None, None, None);
    }

    /// Whether the picture is being moved by the pointer.
    pub fn is_panning(&self) -> bool {
        matches!(self.press, Some(Press { on: PressOn::Pan, .. }))
    }

    /// Drops what is half done; returns whether there was something.
    pub fn cancel(&mut self) -> bool {
        let was_busy = self.is_armed || self.draft.is_some();
        (self.draft, self.press, self.cursor, self.is_armed) = (None, None, None, false);
        was_busy
    }

    /// Another image is shown.
    pub fn turn(&mut self) {
        self.cancel();
        self.outcomes.clear();
        (self.rects_of, self.drawn) = (None, None);
        self.rects.clear();
        self.hits = HitIndex::default();
    }

    /// Whether keys are meant for the canvas: nothing else has the focus.
    pub fn has_keys(&self, ctx: &egui::Context) -> bool {
        let focused = ctx.memory(egui::Memory::focused);
        (focused.is_none() || focused == self.id) && !egui::Popup::is_any_open(ctx)
    }

    /// Takes the arrows where a box is drawn or selected, and Enter while drawing. Call it before actions look at the keys.
    pub fn take_keys(&mut self, ctx: &egui::Context, states: &BoxStates, whole_pixels: bool) {
        let Some(drawn) = self.drawn else { return };
        let rules = Rules { far: viewport::far_corner(drawn.size), slack: 0.0, whole_pixels };
        if self.is_drawing() {
            let (step, _) = arrows(ctx, [1.0, 10.0, 50.0, 50.0]);
            if step != Vec2::ZERO {
                self.move_cursor(&drawn, step, &rules);
            }
            if entered(ctx) {
                self.enter(&drawn, &rules);
            }
        } else if states.has_selection() && self.press.is_none() && !self.hides_boxes {
            let (step, is_growing) = arrows(ctx, [1.0, 10.0, 1.0, 10.0]);
            if step != Vec2::ZERO {
                self.nudge(states, step, is_growing, &rules);
            }
        }
    }

    fn move_cursor(&mut self, drawn: &Drawn, step: Vec2, rules: &Rules) {
        let visible = drawn.projection.visible().intersect(Rect::from_min_max(Pos2::ZERO, rules.far));
        let before = self.cursor.unwrap_or_else(|| visible.center().round());
        let after = super::handles::snapped(before + step, rules.far, 0.0);
        self.cursor = Some(after);
        if let Some(draft) = &mut self.draft {
            draft.drag_to(after, rules);
        }
        self.picture.viewport.reveal(drawn.projection.canvas, after);
    }

    /// Sets a corner at the cursor.
    fn enter(&mut self, drawn: &Drawn, rules: &Rules) {
        if let Some(draft) = self.draft.take() {
            (self.is_armed, self.cursor) = (false, None);
            self.outcomes.push(draft.finish(rules.far));
        } else {
            self.move_cursor(drawn, Vec2::ZERO, rules);
            let start = self.cursor.unwrap_or_default();
            self.draft = Some(Draft::draw(start, DrawBy::Keys, rules));
        }
    }

    fn nudge(&mut self, states: &BoxStates, step: Vec2, is_growing: bool, rules: &Rules) {
        if self.draft.is_none() {
            let boxes = self.movable(states);
            self.draft = Some(Draft::Nudge { boxes, by: Vec2::ZERO, growth: Vec2::ZERO });
        }
        if let Some(draft) = &mut self.draft {
            draft.step(step, is_growing, rules);
        }
    }

    fn is_grabbable(&self, states: &BoxStates, index: usize) -> bool {
        !self.hides_boxes && states.get(index).is_free()
    }

    /// The selected boxes that are not locked, with their places.
    fn movable(&self, states: &BoxStates) -> Vec<(usize, Rect)> {
        let free = states.selected().into_iter().filter(|&index| states.get(index).is_free());
        free.filter_map(|index| Some((index, *self.rects.get(index)?))).collect()
    }

    /// Draws the picture with its boxes over the space that is there, and takes what the pointer does.
    pub fn ui(&mut self, ui: &mut Ui, textures: &mut Textures, scene: &Scene<'_>, states: &mut BoxStates) -> CanvasDone {
        let (rect, response) = ui.allocate_exact_size(ui.available_size(), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Image, true, "canvas"));
        self.id = Some(response.id);
        keep_focus(ui, &response);
        keymap::leave_keys_to_map(ui.ctx(), response.id);
        let drawn = self.picture.ui(ui, &response, textures, scene.path, scene.tone);
        self.drawn = drawn;
        let mut done = CanvasDone { outcomes: std::mem::take(&mut self.outcomes), wants_class: false };
        let Some(drawn) = drawn else { return done };
        self.follow(scene.labels, drawn.size);
        let rules = Rules {
            far: viewport::far_corner(drawn.size),
            slack: if ui.input(|input| input.modifiers.alt) { 0.0 } else { EDGE_SLACK / drawn.projection.scale },
            whole_pixels: scene.settings.whole_pixels,
        };
        self.hides_boxes = scene.hides_boxes;
        self.pointer(ui, &response, &drawn, &rules, states, &mut done);
        if matches!(self.draft, Some(Draft::Nudge { .. })) && !ui.input(|input| ARROWS.iter().any(|(key, _)| input.key_down(*key))) {
            done.outcomes.extend(self.draft.take().map(|draft| draft.finish(rules.far)));
        }
        let hovered = self.hovered(ui, &response, &drawn, states);
        self.paint(ui, rect, textures, scene, states, &drawn, hovered, &rules);
        done
    }

    /// Boxes in image pixels; worked out again after a change of the labels.
    fn follow(&mut self, labels: &Arc<[Label]>, size: Size) {
        let is_known = self.rects_of.as_ref().is_some_and(|(known, of)| Arc::ptr_eq(known, labels) && *of == size);
        if is_known {
            return;
        }
        if self.rects_of.is_some() && matches!(self.draft, Some(Draft::Move { .. } | Draft::Resize { .. } | Draft::Nudge { .. })) {
            // It holds places of boxes that are no longer there.
            self.cancel();
        }
        self.rects = labels.iter().map(|label| viewport::image_rect(label.bbox, size)).collect();
        self.hits = HitIndex::new(&self.rects);
        self.rects_of = Some((labels.clone(), size));
    }

    fn pointer(&mut self, ui: &Ui, response: &Response, drawn: &Drawn, rules: &Rules, states: &mut BoxStates, done: &mut CanvasDone) {
        let (position, pressed, released, is_down, modifiers, is_space_down, is_double) = ui.input(|input| {
            let pointer = &input.pointer;
            let position = pointer.interact_pos();
            let double = pointer.button_double_clicked(PointerButton::Primary);
            let space = input.key_down(Key::Space);
            (position, pointer.primary_pressed(), pointer.primary_released(), pointer.primary_down(), input.modifiers, space, double)
        });
        if response.secondary_clicked() {
            self.cancel();
        }
        let Some(position) = position else {
            return;
        };
        let image = drawn.projection.image_from_screen(position);
        if matches!(self.draft, Some(Draft::Draw { by: DrawBy::Clicks, .. }))
            && let Some(draft) = &mut self.draft
        {
            draft.drag_to(image, rules);
        }
        if pressed && response.contains_pointer() {
            response.request_focus();
            self.press(position, image, drawn, rules, states, modifiers, is_space_down, done);
        }
        if self.press.is_some() && (is_down || released) {
            self.drag(response, position, image, drawn, rules, states, ui.input(|input| input.pointer.delta()));
        }
        if released || !is_down {
            self.release(image, rules, states, is_double, done);
        }
    }

    fn press(
        &mut self,
        origin: Pos2,
        image: Pos2,
        drawn: &Drawn,
        rules: &Rules,
        states: &BoxStates,
        modifiers: Modifiers,
        is_space_down: bool,
        done: &mut CanvasDone,
    ) {
        let slack = BOX_SLACK / drawn.projection.scale;
        let hits = self.hits.under(image, slack, |index| self.is_grabbable(states, index));
        let resizable = states.only_selected().filter(|&index| self.is_grabbable(states, index));
        let handle = resizable.and_then(|index| {
            let screen = drawn.projection.screen_rect(*self.rects.get(index)?);
            Handle::under(screen, origin).map(|handle| (index, handle))
        });
        let pans = is_space_down || (modifiers.command && self.is_drawing());
        if !pans {
            // From here on the pointer says where.
            self.cursor = None;
        }
        let on = if pans {
            PressOn::Pan
        } else if let Some(draft) = self.draft.take_if(|draft| matches!(draft, Draft::Draw { .. })) {
            // The second corner of two clicks.
            let mut draft = draft;
            draft.drag_to(image, rules);
            (self.is_armed, self.cursor) = (false, None);
            done.outcomes.push(draft.finish(rules.far));
            return;
        } else if self.is_armed {
            self.draft = Some(Draft::draw(image, DrawBy::Drag, rules));
            PressOn::Armed
        } else if let Some((index, handle)) = handle {
            PressOn::Handle(index, handle)
        } else if modifiers.shift {
            PressOn::Band(hits)
        } else if modifiers.command {
            PressOn::Toggle(hits)
        } else if hits.is_empty() {
            PressOn::Empty
        } else {
            PressOn::Boxes(hits)
        };
        self.press = Some(Press { origin, image, on, is_drag: false });
    }

    /// The pointer moved with its button down.
    fn drag(
        &mut self,
        response: &Response,
        position: Pos2,
        image: Pos2,
        drawn: &Drawn,
        rules: &Rules,
        states: &mut BoxStates,
        delta: Vec2,
    ) {
        let Some(press) = &mut self.press else { return };
        if !press.is_drag && (position - press.origin).length() >= CLICK_REACH {
            press.is_drag = true;
            let (start, on) = (press.image, press.on.clone());
            self.begin(start, on, rules, states);
        }
        let Some(press) = self.press.as_ref().filter(|press| press.is_drag) else { return };
        if matches!(press.on, PressOn::Pan | PressOn::Toggle(_)) {
            self.picture.viewport.pan(response, viewport::far_corner(drawn.size), delta);
        } else if let Some(draft) = &mut self.draft {
            draft.drag_to(image, rules);
        }
    }

    /// A press turned out to be a drag.
    fn begin(&mut self, start: Pos2, on: PressOn, rules: &Rules, states: &mut BoxStates) {
        let draft = match on {
            PressOn::Pan | PressOn::Toggle(_) | PressOn::Armed => return,
            PressOn::Handle(index, handle) => {
                let Some(&from) = self.rects.get(index) else { return };
                Draft::Resize { index, from, handle, to: from }
            }
            PressOn::Boxes(hits) => {
                if !hits.iter().any(|&hit| states.get(hit).is_selected) {
                    states.select(&hits[..1]);
                }
                Draft::Move { boxes: self.movable(states), start, by: Vec2::ZERO }
            }
            PressOn::Band(_) => Draft::Band { start, end: start },
            PressOn::Empty => {
                states.select(&[]);
                Draft::draw(start, DrawBy::Drag, rules)
            }
        };
        self.draft = Some(draft);
    }

    fn release(&mut self, image: Pos2, rules: &Rules, states: &mut BoxStates, is_double: bool, done: &mut CanvasDone) {
        let Some(press) = self.press.take() else { return };
        if press.is_drag && matches!(press.on, PressOn::Pan | PressOn::Toggle(_)) {
            // The picture was moved; what is half drawn stays so.
            return;
        }
        if press.is_drag {
            let outcome = self.draft.take().map(|draft| draft.finish(rules.far));
            match outcome {
                Some(Outcome::Band(band)) => {
                    let inside = self.hits.inside(band, |index| self.is_grabbable(states, index));
                    states.add(&inside);
                }
                Some(outcome) => {
                    if matches!(press.on, PressOn::Armed) {
                        (self.is_armed, self.cursor) = (false, None);
                    }
                    done.outcomes.push(outcome);
                }
                None => {}
            }
            return;
        }
        match press.on {
            PressOn::Armed => {
                if let Some(Draft::Draw { by, .. }) = &mut self.draft {
                    *by = DrawBy::Clicks;
                }
                if let Some(draft) = &mut self.draft {
                    draft.drag_to(image, rules);
                }
            }
            // The second click of two stays with the box of the first.
            PressOn::Boxes(_) | PressOn::Handle(..) if is_double => done.wants_class = states.has_selection(),
            PressOn::Boxes(hits) => {
                let selected = states.only_selected();
                states.select(&hit::cycled(&hits, selected).into_iter().collect::<Vec<_>>());
            }
            PressOn::Toggle(hits) | PressOn::Band(hits) => {
                if let Some(&first) = hits.first() {
                    states.toggle(first);
                }
            }
            PressOn::Empty if is_double => self.picture.viewport.zoom(Zoom::Fit),
            PressOn::Empty => states.select(&[]),
            PressOn::Pan | PressOn::Handle(..) => {}
        }
    }

    /// The box under the pointer; sets the pointer's shape.
    fn hovered(&self, ui: &Ui, response: &Response, drawn: &Drawn, states: &BoxStates) -> Option<usize> {
        let pointer = response.hover_pos()?;
        let cursor = |icon: CursorIcon| ui.ctx().set_cursor_icon(icon);
        if matches!(self.press, Some(Press { on: PressOn::Pan | PressOn::Toggle(_), is_drag: true, .. })) {
            cursor(CursorIcon::Grabbing);
            return None;
        }
        match &self.draft {
            Some(Draft::Resize { handle, .. }) => {
                cursor(handle.cursor());
                return None;
            }
            Some(Draft::Move { .. }) => {
                cursor(CursorIcon::Grabbing);
                return None;
            }
            Some(Draft::Draw { .. } | Draft::Band { .. }) => {
                cursor(CursorIcon::Crosshair);
                return None;
            }
            Some(Draft::Nudge { .. }) | None => {}
        }
        if self.is_armed {
            cursor(CursorIcon::Crosshair);
            return None;
        }
        if ui.input(|input| input.key_down(Key::Space)) {
            cursor(CursorIcon::Grab);
            return None;
        }
        if let Some(index) = states.only_selected().filter(|&index| self.is_grabbable(states, index))
            && let Some(rect) = self.rects.get(index)
            && let Some(handle) = Handle::under(drawn.projection.screen_rect(*rect), pointer)
        {
            cursor(handle.cursor());
            return None;
        }
        let image = drawn.projection.image_from_screen(pointer);
        let hits = self.hits.under(image, BOX_SLACK / drawn.projection.scale, |index| self.is_grabbable(states, index));
        let selected = hits.iter().copied().find(|&hit| states.get(hit).is_selected);
        let hovered = selected.or(hits.first().copied());
        if hovered.is_some() {
            cursor(if selected.is_some() { CursorIcon::Move } else { CursorIcon::PointingHand });
        }
        hovered
    }

    fn paint(
        &self,
        ui: &Ui,
        rect: Rect,
        textures: &mut Textures,
        scene: &Scene<'_>,
        states: &BoxStates,
        drawn: &Drawn,
        hovered: Option<usize>,
        rules: &Rules,
    ) {
        let painter = ui.painter_at(rect);
        let projection = &drawn.projection;
        let pixels_per_point = ui.ctx().pixels_per_point();
        if scene.settings.shows_pixel_grid && projection.scale * pixels_per_point >= GRID_SCALE {
            painter.add(Shape::mesh(pixel_grid(drawn, pixels_per_point)));
        }
        let draft_color = theme::class_color(scene.class);
        let shapes = self.draft.as_ref().map(|draft| draft.shapes(rules.far)).unwrap_or_default();
        if !scene.hides_boxes {
            let gray = palette(ui).faint;
            let mut outlines = Outlines::new(rect, pixels_per_point);
            for bbox in scene.dropped.iter().flat_map(|dropped| &dropped.rows).filter_map(|row| row.bbox) {
                outlines.add(OutlinedBox::new(projection.screen_rect(viewport::image_rect(bbox, drawn.size)), gray, false, true));
            }
            let moved: std::collections::HashMap<usize, Rect> = shapes.iter().copied().collect();
            let is_marked = |index: usize| hovered == Some(index) || states.get(index).is_selected;
            let screen = |index: usize| {
                let image = moved.get(&index).copied().unwrap_or(self.rects[index]);
                projection.screen_rect(image)
            };
            // What is marked lies above the others.
            let mut marked = Vec::new();
            let mut in_view = Vec::new();
            for (index, label) in scene.labels.iter().enumerate().filter(|(index, _)| !states.get(*index).is_hidden) {
                let on_screen = screen(index);
                if !rect.expand(24.0).intersects(on_screen) {
                    continue;
                }
                if is_marked(index) {
                    marked.push((index, on_screen));
                    continue;
                }
                let color = theme::class_color(label.class.0 as usize);
                let color = if states.get(index).is_locked { color.gamma_multiply(0.55) } else { color };
                outlines.add(OutlinedBox::new(on_screen, color, false, false));
                if in_view.len() <= MAX_TAGS {
                    in_view.push((index, on_screen));
                }
            }
            for &(index, on_screen) in &marked {
                outlines.add(OutlinedBox::new(on_screen, theme::class_color(scene.labels[index].class.0 as usize), true, false));
            }
            painter.add(Shape::mesh(outlines.mesh()));
            let shows_tags = in_view.len() + marked.len() <= MAX_TAGS;
            let tagged = in_view.iter().filter(|(_, on_screen)| shows_tags && canvas::has_room_for_tag(*on_screen));
            for &(index, on_screen) in tagged.chain(marked.iter().take(MAX_TAGS)) {
                let class = scene.labels[index].class.0 as usize;
                let name = scene.names.get(class).map_or("?", String::as_str);
                canvas::draw_tag(ui, &painter, on_screen, name, theme::class_color(class));
            }
            if let Some(index) = states.only_selected().filter(|&index| states.get(index).is_free() && index < self.rects.len()) {
                paint_handles(ui, &painter, screen(index));
            }
        }
        let undecided = scene.drawn.map(|bbox| viewport::image_rect(bbox, drawn.size));
        let drafted = self.draft.as_ref().and_then(Draft::rect).or(undecided);
        if let Some(image) = drafted {
            let on_screen = projection.screen_rect(image);
            let is_band = matches!(self.draft, Some(Draft::Band { .. }));
            let color = if is_band { palette(ui).accent } else { draft_color };
            painter.rect_filled(on_screen, 0.0, color.gamma_multiply(0.16));
            painter.rect_stroke(on_screen, 0.0, Stroke::new(1.5, color), StrokeKind::Middle);
        }
        let point = self.busy_point(ui, drawn);
        if let Some(point) = point {
            if self.is_drawing() && scene.settings.shows_crosshair {
                paint_crosshair(&painter, rect, projection.screen_from_image(point), draft_color);
            }
            let changed = drafted.or(shapes.first().map(|(_, rect)| *rect));
            if let Some(changed) = changed.filter(|_| !matches!(self.draft, Some(Draft::Band { .. }))) {
                let text = format!("{:.0} × {:.0}", changed.width(), changed.height());
                let below = projection.screen_rect(changed).intersect(rect.shrink(20.0));
                canvas::draw_tag(ui, &painter, Rect::from_min_size(below.left_bottom() + vec2(0.0, 22.0), Vec2::ZERO), &text, draft_color);
            }
            let needs_loupe = self.is_drawing() || matches!(self.draft, Some(Draft::Resize { .. }));
            if scene.settings.shows_loupe && needs_loupe {
                loupe::ui(ui, drawn, textures, scene.path, scene.tone, point, changed);
            }
        }
    }

    /// Where something is being drawn or changed, in image pixels.
    fn busy_point(&self, ui: &Ui, drawn: &Drawn) -> Option<Pos2> {
        if self.cursor.is_some() {
            return self.cursor;
        }
        if !self.is_drawing() && self.draft.is_none() {
            return None;
        }
        let pointer = ui.input(|input| input.pointer.latest_pos()).filter(|pointer| drawn.projection.canvas.contains(*pointer))?;
        let far = viewport::far_corner(drawn.size);
        Some(super::handles::snapped(drawn.projection.image_from_screen(pointer), far, 0.0))
    }
}

const ARROWS: [(Key, Vec2); 4] = [
    (Key::ArrowLeft, Vec2::new(-1.0, 0.0)),
    (Key::ArrowRight, Vec2::new(1.0, 0.0)),
    (Key::ArrowUp, Vec2::new(0.0, -1.0)),
    (Key::ArrowDown, Vec2::new(0.0, 1.0)),
];

/// Takes Enter, and says whether it was pressed; a key that is held counts once.
fn entered(ctx: &egui::Context) -> bool {
    let mut is_pressed = false;
    ctx.input_mut(|input| {
        input.events.retain(|event| match event {
            egui::Event::Key { key: Key::Enter, pressed: true, repeat, modifiers, .. } if modifiers.is_none() => {
                is_pressed |= !repeat;
                false
            }
            _ => true,
        });
    });
    is_pressed
}

/// Takes the arrow keys: the way, and whether Ctrl was held. `steps`: alone, with Shift, with Ctrl, with both.
fn arrows(ctx: &egui::Context, steps: [f32; 4]) -> (Vec2, bool) {
    let held = [Modifiers::COMMAND | Modifiers::SHIFT, Modifiers::COMMAND, Modifiers::SHIFT, Modifiers::NONE];
    let [alone, shift, ctrl, both] = steps;
    ctx.input_mut(|input| {
        let mut way = Vec2::ZERO;
        let mut has_ctrl = false;
        // More modifiers first: those that are asked for must be there, others may.
        for (modifiers, length) in held.into_iter().zip([both, ctrl, shift, alone]) {
            for (key, direction) in ARROWS {
                let n = input.count_and_consume_key(modifiers, key);
                way += direction * length * n as f32;
                has_ctrl |= n > 0 && modifiers.command;
            }
        }
        (way, has_ctrl)
    })
}

/// The canvas has the keys whenever nothing else has them, and Tab, arrows and Escape are its own.
fn keep_focus(ui: &Ui, response: &Response) {
    if ui.ctx().memory(|memory| memory.focused().is_none()) && !egui::Popup::is_any_open(ui.ctx()) {
        response.request_focus();
    }
    let own = EventFilter { tab: true, horizontal_arrows: true, vertical_arrows: true, escape: true };
    ui.ctx().memory_mut(|memory| memory.set_focus_lock_filter(response.id, own));
}

fn paint_handles(ui: &Ui, painter: &egui::Painter, screen: Rect) {
    for handle in Handle::shown(screen) {
        let square = Rect::from_center_size(handle.place(screen), Vec2::splat(7.0));
        painter.rect(square, 1.5, Color32::WHITE, Stroke::new(1.5, palette(ui).accent), StrokeKind::Middle);
    }
}

/// Lines through a point, over the whole canvas; a dark one beside the coloured one is seen on any picture.
fn paint_crosshair(painter: &egui::Painter, rect: Rect, point: Pos2, color: Color32) {
    for (ink, shift) in [(Color32::from_black_alpha(110), 1.0), (color, 0.0)] {
        painter.hline(rect.x_range(), point.y + shift, Stroke::new(1.0, ink));
        painter.vline(point.x + shift, rect.y_range(), Stroke::new(1.0, ink));
    }
}

/// Thin lines between the pixels in view.
fn pixel_grid(drawn: &Drawn, pixels_per_point: f32) -> Mesh {
    let projection = &drawn.projection;
    let whole = Rect::from_min_max(Pos2::ZERO, viewport::far_corner(drawn.size));
    let part = projection.visible().intersect(whole);
    let ink = Color32::from_rgba_unmultiplied(128, 128, 128, 70);
    let screen = projection.screen_rect(part);
    let thin = 1.0 / pixels_per_point;
    let mut mesh = Mesh::default();
    let round = |value: f32| (value * pixels_per_point).round() / pixels_per_point;
    for column in part.left().ceil() as i32..=part.right().floor() as i32 {
        let x = round(projection.screen_from_image(pos2(column as f32, 0.0)).x);
        mesh.add_colored_rect(Rect::from_min_max(pos2(x, screen.top()), pos2(x + thin, screen.bottom())), ink);
    }
    for row in part.top().ceil() as i32..=part.bottom().floor() as i32 {
        let y = round(projection.screen_from_image(pos2(0.0, row as f32)).y);
        mesh.add_colored_rect(Rect::from_min_max(pos2(screen.left(), y), pos2(screen.right(), y + thin)), ink);
    }
    mesh
}
