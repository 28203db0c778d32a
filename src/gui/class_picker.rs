//! Which class? A list that is narrowed by typing, over the canvas.
//!
//! In:  the dataset's class names, and the class that was taken last, which Enter takes at once.
//! Out: the class that was chosen, or that the person thought better of it.

use egui::{Align2, Area, Frame, Id, Key, Modifiers, Order, Rect, Role, ScrollArea, Sense, Ui, Vec2, WidgetInfo, vec2};

use super::controls;
use super::theme::{self, palette};

const WIDTH: f32 = 260.0;
const MAX_HEIGHT: f32 = 286.0;

/// What became of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picked {
    Class(usize),
    Cancelled,
    /// The person went on elsewhere.
    Left,
}

/// What the list remembers while it is open.
#[derive(Clone, Debug, Default)]
pub struct ClassPicker {
    filter: String,
    /// Among the classes that pass the filter.
    place: usize,
    is_drawn: bool,
}

impl ClassPicker {
    /// Opens with this class marked.
    pub fn new(last: usize) -> Self {
        Self { place: last, ..Self::default() }
    }

    /// Draws the list over `canvas`.
    pub fn ui(&mut self, ui: &Ui, canvas: Rect, names: &[String], question: &str) -> Option<Picked> {
        let take = |key| ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
        if take(Key::Escape) {
            return Some(Picked::Cancelled);
        }
        let found = matching(names, &self.filter);
        let (down, up, enter) = (take(Key::ArrowDown), take(Key::ArrowUp), take(Key::Enter));
        self.place = match (down, up) {
            (true, _) => self.place + 1,
            (_, true) => self.place.saturating_sub(1),
            _ => self.place,
        };
        self.place = self.place.min(found.len().saturating_sub(1));
        if enter {
            return found.get(self.place).map(|&class| Picked::Class(class));
        }
        let moved = down || up || !self.is_drawn;
        let area = Area::new(Id::unique("class picker")).order(Order::Foreground).fixed_pos(canvas.center_top() + vec2(0.0, 40.0));
        let shown = area.pivot(Align2::CENTER_TOP).constrain_to(canvas).show(ui.ctx(), |ui| {
            Frame::popup(ui.style()).inner_margin(8).show(ui, |ui| self.list_ui(ui, names, &found, question, moved)).inner
        });
        let was_drawn = std::mem::replace(&mut self.is_drawn, true);
        let clicked_elsewhere = was_drawn
            && ui.input(|input| {
                input.pointer.any_pressed() && input.pointer.interact_pos().is_some_and(|at| !shown.response.rect.contains(at))
            });
        shown.inner.map(Picked::Class).or_else(|| clicked_elsewhere.then_some(Picked::Left))
    }

    fn list_ui(&mut self, ui: &mut Ui, names: &[String], found: &[usize], question: &str, moved: bool) -> Option<usize> {
        ui.set_width(WIDTH);
        ui.spacing_mut().item_spacing.y = 4.0;
        controls::note(ui, question);
        let before = self.filter.clone();
        let field = controls::text_field(ui, "Class", &mut self.filter, "Type a part of the name", WIDTH);
        field.request_focus();
        if self.filter != before {
            self.place = 0;
        }
        if found.is_empty() {
            controls::note(ui, "No class has this in its name");
            return None;
        }
        let mut chosen = None;
        ui.spacing_mut().item_spacing.y = 1.0;
        ScrollArea::vertical().max_height(MAX_HEIGHT).auto_shrink([false, true]).show(ui, |ui| {
            for (place, &class) in found.iter().enumerate() {
                let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 24.0), Sense::click());
                let is_marked = place == self.place;
                response.widget_info(|| WidgetInfo::selected(Role::Button, true, is_marked, format!("class {}", names[class])));
                if is_marked && moved {
                    response.scroll_to_me(None);
                }
                if ui.is_rect_visible(rect) {
                    controls::row_background(ui, rect, &response, is_marked);
                    paint_class(ui, rect, class, &names[class]);
                }
                if response.on_hover_text("Take this class (Enter)").clicked() {
                    chosen = Some(class);
                }
            }
        });
        chosen
    }
}

/// A class in a row: its colour, its name, and the digit that stands for it.
pub fn paint_class(ui: &Ui, rect: Rect, class: usize, name: &str) {
    let swatch = Rect::from_center_size(egui::pos2(rect.left() + 13.0, rect.center().y), Vec2::splat(10.0));
    ui.painter().rect_filled(swatch, 3.0, theme::class_color(class));
    if let Some(digit) = digit(class) {
        let key = Rect::from_center_size(egui::pos2(rect.right() - 14.0, rect.center().y), Vec2::splat(17.0));
        ui.painter().rect(key, 3.0, palette(ui).field, egui::Stroke::new(1.0, palette(ui).border), egui::StrokeKind::Inside);
        let font = egui::TextStyle::Small.resolve(ui.style());
        ui.painter().text(key.center(), Align2::CENTER_CENTER, digit, font, palette(ui).weak);
    }
    controls::paint_text(ui, egui::pos2(rect.left() + 26.0, rect.center().y), rect.width() - 56.0, name);
}

/// The key that stands for a class: 1 to 9, then 0.
pub fn digit(class: usize) -> Option<char> {
    "1234567890".chars().nth(class)
}

/// Classes with this in their name, those that begin with it first.
fn matching(names: &[String], filter: &str) -> Vec<usize> {
    let wanted = filter.trim().to_lowercase();
    let mut found: Vec<(bool, usize)> = Vec::new();
    for (class, name) in names.iter().enumerate() {
        let name = name.to_lowercase();
        if name.contains(&wanted) {
            found.push((!name.starts_with(&wanted), class));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, class)| class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_with_what_is_typed_come_first() {
        let names = ["big bus", "Bus", "car", "bumper"].map(str::to_owned);
        assert_eq!(matching(&names, "bu"), [1, 3, 0]);
        assert_eq!(matching(&names, ""), [0, 1, 2, 3]);
        assert_eq!(matching(&names, "x"), [0; 0]);
    }

    #[test]
    fn ten_classes_have_a_digit() {
        assert_eq!((digit(0), digit(8), digit(9), digit(10)), (Some('1'), Some('9'), Some('0'), None));
    }
}
