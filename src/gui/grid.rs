//! The grid of thumbnails: any number of images, of which only the rows in view are drawn and asked for.

use egui::epaint::RectShape;
use egui::{Align2, Color32, CursorIcon, Rect, ScrollArea, Sense, Stroke, StrokeKind, TextStyle, Ui, Vec2, pos2, vec2};

use super::canvas::screen_rect;
use super::controls::paint_text;
use super::image_item::{self, Band, BandDone, Block, ImageItem, ItemsDone};
use super::textures::{Look, Textures};
use super::theme::{self, palette};
use crate::dataset::edit::Review;
use crate::geom::Size;

/// What the grid remembers.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Wished width of a cell in points.
    pub cell_width: f32,
    scroll_to: Option<ScrollTo>,
    /// As it was drawn last.
    pub page: Page,
    band: Band,
}

/// How many images are side by side, and how many rows are seen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub n_columns: usize,
    pub n_rows: usize,
}

#[derive(Clone, Copy, Debug)]
struct ScrollTo {
    cell: usize,
    /// Otherwise only as far as it must, to see the whole cell.
    centered: bool,
}

impl Default for Grid {
    fn default() -> Self {
        Self { cell_width: 168.0, scroll_to: None, page: Page { n_columns: 1, n_rows: 1 }, band: Band::default() }
    }
}

/// Space between cells, and height of the name below a thumbnail.
const SPACE: f32 = 10.0;
const NAME_HEIGHT: f32 = 22.0;
/// More boxes of an image are not drawn on its thumbnail: they would be a blot.
const MAX_BOXES: usize = 120;

impl Grid {
    /// Brings a cell into the middle of the view with the next drawing.
    pub fn show_cell(&mut self, cell: usize) {
        self.scroll_to = Some(ScrollTo { cell, centered: true });
    }

    /// Scrolls as far as needed to see a cell.
    pub fn keep_in_view(&mut self, cell: usize) {
        self.scroll_to = Some(ScrollTo { cell, centered: false });
    }

    /// Draws `n_cells` cells; `item` describes one when it is in view.
    pub fn ui<'a>(
        &mut self,
        ui: &mut Ui,
        textures: &mut Textures,
        n_cells: usize,
        hides_boxes: bool,
        item: impl Fn(usize) -> ImageItem<'a>,
    ) -> ItemsDone {
        let width = ui.available_width() - 12.0;
        let n_columns = (((width + SPACE) / (self.cell_width + SPACE)).floor() as usize).max(1);
        let cell_width = ((width + SPACE) / n_columns as f32 - SPACE).floor();
        let size = vec2(cell_width, (cell_width * 0.75).floor() + NAME_HEIGHT);
        let pitch = size + Vec2::splat(SPACE);
        let n_rows = n_cells.div_ceil(n_columns);
        let height = ui.available_height();
        self.page = Page { n_columns, n_rows: ((height / pitch.y) as usize).max(1) };
        let mut done = ItemsDone::default();

        let mut area = ScrollArea::vertical().id_salt("grid").auto_shrink(false);
        let target = self.scroll_to.take().map(|target| (target.centered, (target.cell / n_columns) as f32 * pitch.y));
        if let Some((true, top)) = target {
            area = area.vertical_scroll_offset((top - height * 0.35).max(0.0));
        }
        area.show_viewport(ui, |ui, viewport| {
            ui.set_height((pitch.y * n_rows as f32 - SPACE).max(0.0));
            let content = ui.max_rect().min;
            if let Some((false, top)) = target {
                let row = Rect::from_min_size(content + vec2(0.0, top), vec2(1.0, size.y)).expand2(vec2(0.0, SPACE));
                ui.scroll_to_rect_animation(row, None, egui::style::ScrollAnimation::none());
            }
            let band = self.band.follow(ui, content);
            if let Some((band, has_begun)) = band {
                let adds = ui.input(|input| input.modifiers.command || input.modifiers.shift);
                done.band = Some(BandDone { has_begun, adds, block: Block::within(band, pitch, n_columns) });
            }
            let first = (viewport.min.y / pitch.y).floor().max(0.0) as usize;
            let last = ((viewport.max.y / pitch.y).ceil().max(0.0) as usize).min(n_rows);
            for index in first * n_columns..(last * n_columns).min(n_cells) {
                let corner = content + vec2((index % n_columns) as f32, (index / n_columns) as f32) * pitch;
                let item = item(index);
                let id = ui.scope_id().with(item.path);
                let response = ui.interact(Rect::from_min_size(corner, size), id, Sense::CLICK);
                item.describe(&response);
                cell_ui(ui, textures, &response, &item, hides_boxes);
                done.take(index, &response);
            }
            if let Some((band, _)) = band {
                Band::paint(ui, band, content);
            }
        });
        done
    }
}

fn cell_ui(ui: &Ui, textures: &mut Textures, response: &egui::Response, item: &ImageItem<'_>, hides_boxes: bool) {
    let palette = palette(ui);
    let rect = response.rect;
    let (frame, below) = rect.split_top_bottom_at_y(rect.bottom() - NAME_HEIGHT);
    let painter = ui.painter_at(rect.expand(2.0).intersect(ui.clip_rect()));
    painter.rect_filled(frame, theme::RADIUS, palette.button);
    let fitted = |size: Size| {
        let (width, height) = (size.width.max(1) as f32, size.height.max(1) as f32);
        let scale = (frame.width() / width).min(frame.height() / height);
        Rect::from_center_size(frame.center(), vec2(width, height) * scale)
    };
    let mut failed = None;
    let image_rect = match textures.thumbnail(item.path) {
        Look::Shown(shown) => {
            let image_rect = fitted(shown.full_size);
            let uv = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
            painter.add(RectShape::filled(image_rect, theme::RADIUS, Color32::WHITE).with_texture(shown.texture, uv));
            Some(image_rect)
        }
        Look::Loading => {
            let bar = Rect::from_center_size(frame.center(), vec2(28.0, 3.0));
            painter.rect_filled(bar, 1.5, palette.border);
            // Boxes are there before the picture, where its shape is known.
            item.facts.size.map(fitted)
        }
        Look::Failed(reason) => {
            let font = TextStyle::Small.resolve(ui.style());
            painter.text(frame.center(), Align2::CENTER_CENTER, "Cannot be decoded", font, palette.bad);
            failed = Some(reason.to_owned());
            None
        }
    };
    if let Some(image_rect) = image_rect.filter(|_| !hides_boxes) {
        let inside = painter.with_clip_rect(image_rect.expand(1.0).intersect(painter.clip_rect()));
        for label in item.labels.unwrap_or_default().iter().take(MAX_BOXES) {
            let each = screen_rect(image_rect, label.bbox);
            let color = theme::class_color(label.class.0 as usize);
            inside.rect_stroke(each, 0.0, Stroke::new(2.5, Color32::from_black_alpha(80)), StrokeKind::Middle);
            inside.rect_stroke(each, 0.0, Stroke::new(1.5, color), StrokeKind::Middle);
        }
    }
    if item.is_selected {
        painter.rect_filled(frame, theme::RADIUS, palette.accent.gamma_multiply(0.22));
    }
    badges_ui(ui, &painter, frame, item);
    let border = if item.is_current {
        Stroke::new(2.5, palette.accent)
    } else if item.is_selected {
        Stroke::new(2.0, palette.accent_hover)
    } else if response.hovered() {
        Stroke::new(1.5, palette.faint)
    } else {
        Stroke::new(1.0, palette.border)
    };
    painter.rect_stroke(frame, theme::RADIUS, border, StrokeKind::Inside);

    let font = TextStyle::Small.resolve(ui.style());
    let middle = below.center().y + 1.0;
    let count = match item.labels {
        Some([]) => "no labels".to_owned(),
        Some(labels) => labels.len().to_string(),
        None => String::new(),
    };
    let end = painter.text(pos2(below.right() - 2.0, middle), Align2::RIGHT_CENTER, count, font, palette.faint);
    let ink = if item.is_current || item.is_selected { palette.strong } else { palette.weak };
    let text = egui::RichText::new(&*item.name()).small().color(ink);
    paint_text(ui, pos2(below.left() + 2.0, middle), end.left() - below.left() - 8.0, text);
    if response.hovered() {
        response.clone().on_hover_cursor(CursorIcon::PointingHand).on_hover_ui_at_pointer(|ui| {
            tooltip_ui(ui, item);
            if let Some(reason) = failed {
                ui.label(egui::RichText::new(reason).color(palette.bad));
            }
        });
    }
}

/// Reviewed or empty, findings and tags, over the thumbnail.
fn badges_ui(ui: &Ui, painter: &egui::Painter, frame: Rect, item: &ImageItem<'_>) {
    let palette = palette(ui);
    let mut right = frame.right() - 14.0;
    let middle = frame.top() + 14.0;
    if item.review() != Review::Unreviewed {
        image_item::paint_review(painter, pos2(right, middle), 8.0, item.review(), palette.good, palette.panel);
        right -= 22.0;
    }
    if item.n_findings > 0 {
        image_item::paint_warning(painter, pos2(right, middle), 8.0, palette.warn);
    }
    let mut corner = frame.right_bottom() + vec2(-5.0, -22.0);
    for (index, tag) in item.tags().iter().enumerate() {
        let rest = item.tags().len() - index;
        // The last one that fits tells how many there are more.
        let is_narrow = corner.x - frame.left() < 70.0;
        let text = if is_narrow && rest > 1 { format!("+{rest}") } else { shortened(tag) };
        corner = image_item::badge(ui, painter, corner, &text, Color32::WHITE) - vec2(4.0, 0.0);
        if is_narrow {
            break;
        }
    }
}

fn shortened(tag: &str) -> String {
    if tag.chars().count() <= 14 { tag.to_owned() } else { format!("{}…", tag.chars().take(13).collect::<String>()) }
}

/// Everything that is known of an image.
pub fn tooltip_ui(ui: &mut Ui, item: &ImageItem<'_>) {
    let n_labels = item.labels.map_or_else(|| "labels are being read".to_owned(), |labels| super::controls::counted(labels.len(), "label"));
    let mut lines = vec![
        item.path.display().to_string(),
        format!("{} split, {n_labels}, {}", item.split.name(), image_item::review_name(item.review())),
    ];
    if item.n_findings > 0 {
        lines.push(super::controls::counted(item.n_findings, "finding"));
    }
    if !item.tags().is_empty() {
        lines.push(format!("Tags: {}", item.tags().join(", ")));
    }
    ui.label(lines.join("\n"));
}
