//! The query line: which images does a person want to see, typed, with what could stand at the cursor.
//!
//! In:  the names that a line may use, and what is wrong with it. Out: whether the line changed.
//!
//! The list of completions opens while the line has the focus: arrows choose, Tab takes, Enter ends the line, Escape closes
//! the list until the word changes. Nothing is offered before a word is begun. What is wrong is underlined where it stands and told below the line. The line may be wrong while it is typed:
//! who shows images keeps those of the last line that was right.

use std::cell::Cell;
use std::ops::Range;

use egui::text::CharIndex;
use egui::{Atom, AtomExt as _, CompletionPopup, Frame, Id, Key, Margin, Panel, RectAlign, RichText, Suggestion, TextEdit, Ui, vec2};

use super::action::Action;
use super::controls;
use super::theme::palette;
use crate::dataset::query::{Completion, QueryError, Vocabulary, complete};

/// What the line remembers.
#[derive(Clone, Debug, Default)]
pub struct QueryLine {
    pub text: String,
    /// What images are filtered by: the text without a word that is only begun and may become a key.
    asked: String,
    /// With the next drawing.
    takes_focus: bool,
    is_open: bool,
}

fn field_id() -> Id {
    Id::unique("query line")
}

impl QueryLine {
    /// Gives the line the focus with the next drawing.
    pub fn focus(&mut self) {
        self.takes_focus = true;
    }

    /// Draws the line over `width`, with a button that clears it.
    pub fn ui(&mut self, ui: &mut Ui, width: f32, vocabulary: &Vocabulary, error: Option<&QueryError>) {
        let button_width = if self.text.is_empty() { 0.0 } else { 26.0 };
        let edit = TextEdit::singleline(&mut self.text)
            .hint_text("Filter, such as class:dent boxes>3 or part of a name")
            .margin(Margin { left: 8, right: 8 + button_width as i8, top: 5, bottom: 5 })
            .desired_width(width - 16.0 - button_width)
            .min_size(vec2(width, 28.0));
        let popup = CompletionPopup::new(field_id())
            // The whole line up to the cursor is the word, since quotes may keep blanks together.
            .word_boundary(|_| false)
            .align(RectAlign::BOTTOM_START)
            .accept_keys([Key::Tab])
            .max_height(320.0);
        let begun = Cell::new(None);
        let output = popup.show(ui, edit, |query| {
            let (suggestions, word) = suggestions(query.text, query.word.len(), vocabulary);
            begun.set(word);
            suggestions
        });
        self.is_open = output.is_open;
        let response = output.text_edit.response.response.clone();
        response.clone().accessible_name("Query");
        if std::mem::take(&mut self.takes_focus) {
            response.request_focus();
        }
        if let Some(error) = error.filter(|_| self.asked == self.text) {
            underline(ui, &output.text_edit, &self.text, error);
        }
        if !self.text.is_empty() && clear_ui(ui, response.rect) {
            self.text.clear();
        }
        self.asked.clone_from(&self.text);
        if let Some(word) = begun.take().filter(|word| self.is_open && word.end <= self.asked.len()) {
            self.asked.replace_range(word, "");
        }
    }

    /// The line that images are filtered by.
    pub fn asked(&self) -> &str {
        // What somebody else wrote into the line counts as it is.
        if self.is_open { &self.asked } else { &self.text }
    }

    /// Below the bar: what is wrong with the line, unless it is still being completed.
    pub fn error_ui(&self, ui: &mut Ui, error: Option<&QueryError>) {
        let Some(error) = error.filter(|_| !self.is_open) else { return };
        let palette = palette(ui);
        let frame = Frame::new().fill(palette.panel).inner_margin(Margin { left: 14, right: 12, top: 0, bottom: 6 });
        Panel::top("query error").frame(frame).show_separator_line(false).show(ui, |ui| {
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 8.0;
                ui.label(RichText::new(sentence(&error.to_string())).small().color(palette.bad));
                if let Some(hint) = error.hint() {
                    controls::note(ui, sentence(&hint));
                }
                controls::note(ui, "The images are those of the last query that was right");
            });
        });
    }
}

/// The cross at the end of the line; returns whether it was clicked.
fn clear_ui(ui: &Ui, field: egui::Rect) -> bool {
    let place = egui::Rect::from_center_size(field.right_center() - vec2(15.0, 0.0), vec2(22.0, 22.0));
    let response = ui.interact(place, field_id().with("clear"), egui::Sense::click());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, Action::ClearQuery.title()));
    let is_lit = response.hovered() || response.has_focus();
    let stroke = egui::Stroke::new(1.4, if is_lit { palette(ui).strong } else { palette(ui).weak });
    for side in [1.0, -1.0] {
        let arm = vec2(4.0, 4.0 * side);
        ui.painter().line_segment([place.center() - arm, place.center() + arm], stroke);
    }
    response.on_hover_cursor(egui::CursorIcon::PointingHand).on_hover_text(Action::ClearQuery.tooltip(ui.ctx())).clicked()
}

/// What could stand at the cursor (in bytes), each with the whole line up to it: that is what the list puts in its place. And
/// the word that is begun, if it may become a key.
fn suggestions(text: &str, cursor: usize, vocabulary: &Vocabulary) -> (Vec<Suggestion>, Option<Range<usize>>) {
    let typed = &text[..cursor];
    // What follows the cursor stays, so only what ends at it can be completed.
    let completions = complete(text, cursor, vocabulary).into_iter().filter(|completion| completion.replace.end <= cursor);
    let completions = completions.filter(|completion| typed.get(completion.replace.clone()) != Some(completion.text.as_str()));
    let completions = completions.filter(|completion| !completion.replace.is_empty() || typed.ends_with([':', ',', '=', '"']));
    let mut begun = None;
    let suggestion = |completion: Completion| {
        let before = &typed[..completion.replace.start];
        // After `:` or `,` stands a value, and of that the query knows whether it is right.
        if !before.ends_with([':', ',', '=', '"']) && !completion.replace.is_empty() {
            begun = Some(completion.replace.clone());
        }
        let blank = if completion.is_whole && !text[cursor..].starts_with(' ') { " " } else { "" };
        let insert = format!("{before}{}{blank}", completion.text);
        let detail = RichText::new(completion.detail).small().weak();
        Suggestion::new(insert).content((completion.text, Atom::grow(), detail.atom_shrink(true)))
    };
    (completions.map(suggestion).collect(), begun)
}

/// A wavy line below what is wrong; below the end of the line where something is missing.
fn underline(ui: &Ui, output: &egui::text_edit::TextEditOutput, text: &str, error: &QueryError) {
    let chars = |byte: usize| CharIndex(text[..byte].chars().count());
    let x = |index: CharIndex| {
        let cursor = egui::text::CCursor::new(index);
        output.galley_pos.x + output.galley.pos_from_cursor(cursor).left()
    };
    let (left, right) = (x(chars(error.span.start)), x(chars(error.span.end)));
    let right = right.max(left + 6.0);
    let bottom = output.galley_pos.y + output.galley.size().y + 0.5;
    let n_waves = ((right - left) / 3.0).ceil() as usize;
    let points = (0..=n_waves).map(|wave| egui::pos2(left + wave as f32 * 3.0, bottom + if wave % 2 == 0 { 1.5 } else { -0.5 }));
    let painter = ui.painter().with_clip_rect(output.text_clip_rect.expand2(vec2(0.0, 4.0)));
    painter.line(points.collect(), egui::Stroke::new(1.2, palette(ui).bad));
}

/// Begins with a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::query::parse;

    fn vocabulary() -> Vocabulary {
        Vocabulary { classes: vec!["dent".to_owned(), "big hole".to_owned()], ..Vocabulary::default() }
    }

    /// What the line up to the cursor becomes, for a cursor at the `|`.
    fn taken(line: &str) -> Vec<String> {
        let cursor = line.find('|').unwrap();
        suggestions(&line.replace('|', ""), cursor, &vocabulary()).0.into_iter().map(|suggestion| suggestion.insert).collect()
    }

    #[test]
    fn what_is_taken_keeps_the_rest_of_the_line() {
        assert_eq!(taken("split:val cl|"), ["split:val class:"]);
        assert_eq!(taken("class:d| x"), ["class:dent"]);
        assert_eq!(taken("class:\"big h|"), ["class:\"big hole\" "]);
        assert!(
            taken("class:dent|").is_empty() && taken("|").is_empty() && taken("class:dent |").is_empty(),
            "there is nothing to complete"
        );
        assert_eq!(taken("split:|")[0], "split:train ");
        assert!(parse(&taken("class:b|")[0], &vocabulary()).is_ok());
    }

    #[test]
    fn a_word_that_may_become_a_key_does_not_filter_yet() {
        let begun = |line: &str| suggestions(line, line.len(), &vocabulary()).1;
        assert_eq!((begun("split:val cl"), begun("-de")), (Some(10..12), Some(1..3)));
        assert_eq!((begun("class:d"), begun("class:dent,b"), begun("part0"), begun("")), (None, None, None, None));
    }
}
