//! The list of images: a row each with what is known of it, of which only those in view are drawn and asked for.
//!
//! A click on the head of a column sorts by it, another one turns the order round. Where the window is narrow, columns that
//! matter less are left out.

use egui::{Align2, Color32, CursorIcon, FontId, Pos2, Rect, Role, ScrollArea, Sense, TextStyle, Ui, WidgetInfo, pos2, vec2};

use super::controls::{self, ROW_HEIGHT, paint_text};
use super::grid::{self, Page};
use super::image_item::{self, Band, BandDone, Block, ImageItem, ItemsDone};
use super::theme::{self, palette};
use crate::dataset::edit::Review;
use crate::dataset::query::{Sort, SortBy};

/// A column of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Split,
    Boxes,
    Classes,
    Size,
    Reviewed,
    Findings,
    Tags,
    Date,
}

impl Column {
    const ALL: [Self; 9] =
        [Self::Name, Self::Split, Self::Boxes, Self::Classes, Self::Size, Self::Reviewed, Self::Findings, Self::Tags, Self::Date];
    /// The first go last where there is no room.
    const BY_WEIGHT: [Self; 9] =
        [Self::Name, Self::Split, Self::Boxes, Self::Reviewed, Self::Classes, Self::Tags, Self::Findings, Self::Size, Self::Date];

    fn title(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Split => "Split",
            Self::Boxes => "Boxes",
            Self::Classes => "Classes",
            Self::Size => "Size",
            Self::Reviewed => "Reviewed",
            Self::Findings => "Findings",
            Self::Tags => "Tags",
            Self::Date => "Date",
        }
    }

    fn sort_by(self) -> SortBy {
        match self {
            Self::Name => SortBy::Name,
            Self::Split => SortBy::Split,
            Self::Boxes => SortBy::Boxes,
            Self::Classes => SortBy::Class,
            Self::Size => SortBy::Size,
            Self::Reviewed => SortBy::Review,
            Self::Findings => SortBy::Findings,
            Self::Tags => SortBy::Tag,
            Self::Date => SortBy::Date,
        }
    }

    /// Least width, and the share of what is left over.
    fn width(self) -> (f32, f32) {
        match self {
            Self::Name => (170.0, 2.0),
            Self::Split => (58.0, 0.0),
            Self::Boxes => (66.0, 0.0),
            Self::Classes => (130.0, 1.5),
            Self::Size => (96.0, 0.0),
            Self::Findings => (82.0, 0.0),
            Self::Tags => (110.0, 1.0),
            Self::Reviewed | Self::Date => (92.0, 0.0),
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Boxes | Self::Findings | Self::Size)
    }
}

/// What the list remembers.
#[derive(Clone, Debug, Default)]
pub struct ImageList {
    scroll_to: Option<usize>,
    centers: bool,
    n_rows: usize,
    band: Band,
}

/// What was done to the list.
#[derive(Debug, Default)]
pub struct ListDone {
    pub items: ItemsDone,
    pub sort: Option<Sort>,
}

const HEAD_HEIGHT: f32 = 28.0;

impl ImageList {
    /// Brings a row into the middle of the view with the next drawing.
    pub fn show_row(&mut self, row: usize) {
        (self.scroll_to, self.centers) = (Some(row), true);
    }

    /// Scrolls as far as needed to see a row.
    pub fn keep_in_view(&mut self, row: usize) {
        (self.scroll_to, self.centers) = (Some(row), false);
    }

    /// As it was drawn last.
    pub fn page(&self) -> Page {
        Page { n_columns: 1, n_rows: self.n_rows.max(1) }
    }

    /// Draws `n_images` rows; `item` describes one when it is in view.
    pub fn ui<'a>(
        &mut self,
        ui: &mut Ui,
        names: &[String],
        n_images: usize,
        sort: Sort,
        item: impl Fn(usize) -> ImageItem<'a>,
    ) -> ListDone {
        let mut done = ListDone::default();
        let columns = columns_in(ui.available_width() - 14.0);
        ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
        done.sort = head_ui(ui, &columns, sort);
        let height = ui.available_height();
        self.n_rows = (height / ROW_HEIGHT) as usize;

        let mut area = ScrollArea::vertical().id_salt("image list").auto_shrink(false);
        let target = self.scroll_to.take().map(|row| row as f32 * ROW_HEIGHT);
        if let Some(top) = target.filter(|_| self.centers) {
            area = area.vertical_scroll_offset((top - height * 0.35).max(0.0));
        }
        area.show_viewport(ui, |ui, viewport| {
            ui.set_height(ROW_HEIGHT * n_images as f32);
            let content = ui.max_rect().min;
            let width = ui.max_rect().width();
            if let Some(top) = target.filter(|_| !self.centers) {
                let row = Rect::from_min_size(content + vec2(0.0, top), vec2(1.0, ROW_HEIGHT));
                ui.scroll_to_rect_animation(row, None, egui::style::ScrollAnimation::none());
            }
            let band = self.band.follow(ui, content);
            if let Some((band, has_begun)) = band {
                let adds = ui.input(|input| input.modifiers.command || input.modifiers.shift);
                let block = Block::within(band, vec2(f32::INFINITY, ROW_HEIGHT), 1);
                done.items.band = Some(BandDone { has_begun, adds, block });
            }
            let first = (viewport.min.y / ROW_HEIGHT).floor().max(0.0) as usize;
            let last = ((viewport.max.y / ROW_HEIGHT).ceil().max(0.0) as usize).min(n_images);
            for index in first..last {
                let rect = Rect::from_min_size(content + vec2(0.0, index as f32 * ROW_HEIGHT), vec2(width - 10.0, ROW_HEIGHT));
                let item = item(index);
                let response = ui.interact(rect, ui.scope_id().with(item.path), Sense::CLICK);
                item.describe(&response);
                row_ui(ui, &response, names, &columns, &item);
                done.items.take(index, &response);
            }
            if let Some((band, _)) = band {
                Band::paint(ui, band, content);
            }
        });
        done
    }
}

/// The columns that fit, with where they begin and how wide they are.
fn columns_in(width: f32) -> Vec<(Column, f32, f32)> {
    let mut left = width;
    let mut shown = Vec::new();
    for column in Column::BY_WEIGHT {
        left -= column.width().0;
        if left < 0.0 && !shown.is_empty() {
            left += column.width().0;
            break;
        }
        shown.push(column);
    }
    let shares: f32 = shown.iter().map(|column| column.width().1).sum();
    let mut at = 0.0;
    let place = |column: Column| {
        let (least, share) = column.width();
        let width = least + left.max(0.0) * share / shares;
        at += width;
        (column, at - width, width)
    };
    Column::ALL.into_iter().filter(|column| shown.contains(column)).map(place).collect()
}

fn head_ui(ui: &mut Ui, columns: &[(Column, f32, f32)], sort: Sort) -> Option<Sort> {
    let palette = palette(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), HEAD_HEIGHT), Sense::hover());
    ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, egui::Stroke::new(1.0, palette.border));
    let mut asked = None;
    for &(column, at, width) in columns {
        let by = column.sort_by();
        let is_sorted = sort.by == by;
        let cell = Rect::from_min_size(rect.left_top() + vec2(at, 0.0), vec2(width, HEAD_HEIGHT - 1.0));
        let response = ui.interact(cell, ui.scope_id().with(("head", column.title())), Sense::click());
        let order = match (is_sorted, sort.descending) {
            (false, _) => "",
            (true, false) => ", ascending",
            (true, true) => ", descending",
        };
        response.widget_info(|| {
            WidgetInfo::selected(Role::Button, true, is_sorted, format!("Sort by {}{order}", column.title().to_lowercase()))
        });
        let ink = if is_sorted || response.hovered() || response.has_focus() { palette.strong } else { palette.weak };
        let title = if is_sorted {
            format!("{} {}", column.title(), if sort.descending { "⏷" } else { "⏶" })
        } else {
            column.title().to_owned()
        };
        let text = egui::RichText::new(title).small().color(ink);
        paint_text(ui, pos2(cell.left() + 8.0, cell.center().y), cell.width() - 10.0, text);
        if response
            .on_hover_cursor(CursorIcon::PointingHand)
            .on_hover_text("Click to sort by this, again to turn the order round")
            .clicked()
        {
            asked = Some(Sort { by, descending: is_sorted && !sort.descending });
        }
    }
    asked
}

fn row_ui(ui: &Ui, response: &egui::Response, names: &[String], columns: &[(Column, f32, f32)], item: &ImageItem<'_>) {
    let palette = palette(ui);
    let rect = response.rect;
    controls::row_background(ui, rect, response, item.is_selected);
    if item.is_current {
        ui.painter().rect_stroke(rect.shrink(0.5), theme::RADIUS, egui::Stroke::new(1.5, palette.accent), egui::StrokeKind::Inside);
    }
    let font = TextStyle::Small.resolve(ui.style());
    for &(column, at, width) in columns {
        let left = pos2(rect.left() + at + 8.0, rect.center().y);
        let room = width - 16.0;
        let plain = |text: String, ink: Color32| paint_cell(ui, column, left, room, text, &font, ink);
        match column {
            Column::Name => {
                let ink = if item.is_current || item.is_selected { palette.strong } else { palette.text };
                paint_text(ui, left, room, egui::RichText::new(&*item.name()).color(ink));
            }
            Column::Split => plain(item.split.name().to_owned(), palette.weak),
            Column::Boxes => plain(item.labels.map_or_else(String::new, |labels| controls::thousands(labels.len())), palette.text),
            Column::Classes => paint_classes(ui, names, item, left, room, &font),
            Column::Size => {
                let size = item.facts.size.map_or_else(String::new, |size| format!("{} × {}", size.width, size.height));
                plain(size, palette.weak);
            }
            Column::Reviewed => {
                if item.review() != Review::Unreviewed {
                    let (center, review) = (left + vec2(7.0, 0.0), item.review());
                    image_item::paint_review(ui.painter(), center, 7.0, review, palette.good, palette.panel);
                    let word = if review == Review::Empty { "empty" } else { "reviewed" };
                    ui.painter().text(left + vec2(20.0, 0.0), Align2::LEFT_CENTER, word, font.clone(), palette.weak);
                }
            }
            Column::Findings if item.n_findings > 0 => plain(controls::thousands(item.n_findings), palette.warn),
            Column::Findings => {}
            Column::Tags => plain(item.tags().join(", "), palette.weak),
            Column::Date => {
                let is_known = item.facts.modified_ns != 0;
                let date = if is_known { date_text(item.facts.modified_ns.div_euclid(1_000_000_000)) } else { String::new() };
                plain(date, palette.weak);
            }
        }
    }
    if response.hovered() {
        response.clone().on_hover_cursor(CursorIcon::PointingHand).on_hover_ui_at_pointer(|ui| grid::tooltip_ui(ui, item));
    }
}

/// Numbers end under each other.
fn paint_cell(ui: &Ui, column: Column, left: Pos2, room: f32, text: String, font: &FontId, ink: Color32) {
    if text.is_empty() {
    } else if column.is_number() {
        ui.painter().text(left + vec2(room - 12.0, 0.0), Align2::RIGHT_CENTER, text, font.clone(), ink);
    } else {
        paint_text(ui, left, room, egui::RichText::new(text).small().color(ink));
    }
}

/// The classes of an image with their colours, as many as there is room for.
fn paint_classes(ui: &Ui, names: &[String], item: &ImageItem<'_>, left: Pos2, room: f32, font: &FontId) {
    let palette = palette(ui);
    let mut classes: Vec<usize> = item.labels.unwrap_or_default().iter().map(|label| label.class.0 as usize).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut at = left;
    for class in classes {
        let rest = left.x + room - at.x;
        if rest < 26.0 {
            ui.painter().text(at, Align2::LEFT_CENTER, "…", font.clone(), palette.faint);
            break;
        }
        let swatch = Rect::from_center_size(at + vec2(4.0, 0.0), vec2(8.0, 8.0));
        ui.painter().rect_filled(swatch, 2.0, theme::class_color(class));
        let name = names.get(class).map_or("?", String::as_str);
        let galley = egui::WidgetText::from(egui::RichText::new(name).small().color(palette.text)).into_galley(
            ui,
            Some(egui::TextWrapMode::Truncate),
            rest - 12.0,
            TextStyle::Small,
        );
        let size = galley.size();
        ui.painter().galley(at + vec2(12.0, -size.y / 2.0), galley, palette.text);
        at.x += 12.0 + size.x + 8.0;
    }
}

/// Seconds since 1970 as `2026-11-30`, in universal time.
pub fn date_text(unix_secs: i64) -> String {
    // Days since 0000-03-01, so that the day that leap years add is the last of a year.
    let days = unix_secs.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let dates = [0, 86_399, 951_782_400, 951_868_800, 1_796_083_200, -1].map(date_text);
        assert_eq!(dates, ["1970-01-01", "1970-01-01", "2000-02-29", "2000-03-01", "2026-12-01", "1969-12-31"]);
    }

    #[test]
    fn columns_fill_the_width_and_leave_out_what_matters_less() {
        let wide = columns_in(1200.0);
        assert_eq!(wide.len(), 9);
        let (_, at, width) = wide[8];
        assert!((at + width - 1200.0).abs() < 0.1);
        let narrow: Vec<Column> = columns_in(430.0).into_iter().map(|(column, ..)| column).collect();
        assert_eq!(narrow, [Column::Name, Column::Split, Column::Boxes, Column::Reviewed]);
        assert_eq!(columns_in(20.0).len(), 1);
    }
}
