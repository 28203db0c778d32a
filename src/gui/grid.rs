//! The grid of thumbnails: any number of images, of which only the rows in view are drawn and asked for.

use std::path::Path;

use egui::epaint::RectShape;
use egui::{Align2, Color32, CursorIcon, Rect, Role, ScrollArea, Sense, Stroke, StrokeKind, TextStyle, Ui, WidgetInfo, pos2, vec2};

use super::canvas::screen_rect;
use super::controls::paint_text;
use super::textures::{Look, Textures};
use super::theme::{self, palette};
use crate::geom::Xywhn;

/// A cell of the grid.
pub struct Cell<'a> {
    pub path: &'a Path,
    /// Boxes with their colours; `None` while labels are being read.
    pub boxes: Option<Vec<(Xywhn, Color32)>>,
}

/// What the grid remembers.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Width of a cell in points.
    pub cell_width: f32,
    scroll_to: Option<usize>,
}

impl Default for Grid {
    fn default() -> Self {
        Self { cell_width: 168.0, scroll_to: None }
    }
}

/// Space between cells, and height of the name below a thumbnail.
const SPACE: f32 = 10.0;
const NAME_HEIGHT: f32 = 22.0;

impl Grid {
    /// Brings a cell into view with the next drawing.
    pub fn scroll_to(&mut self, cell: usize) {
        self.scroll_to = Some(cell);
    }

    /// Draws `n_cells` cells; `cell` describes one when it is in view. Returns the cell that was clicked.
    pub fn ui<'a>(
        &mut self,
        ui: &mut Ui,
        textures: &mut Textures,
        n_cells: usize,
        selected: Option<usize>,
        cell: impl Fn(usize) -> Cell<'a>,
    ) -> Option<usize> {
        let width = ui.available_width() - 12.0;
        let n_columns = (((width + SPACE) / (self.cell_width + SPACE)).floor() as usize).max(1);
        let cell_width = ((width + SPACE) / n_columns as f32 - SPACE).floor();
        let cell_height = (cell_width * 0.75).floor() + NAME_HEIGHT;
        let n_rows = n_cells.div_ceil(n_columns);
        let mut clicked = None;
        ui.spacing_mut().item_spacing = vec2(SPACE, SPACE);

        let mut area = ScrollArea::vertical().auto_shrink(false);
        if let Some(target) = self.scroll_to.take() {
            let top = (target / n_columns) as f32 * (cell_height + SPACE);
            area = area.vertical_scroll_offset((top - ui.available_height() * 0.35).max(0.0));
        }
        area.show_rows(ui, cell_height, n_rows, |ui, rows| {
            for row in rows {
                ui.horizontal(|ui| {
                    for index in (row * n_columns..n_cells).take(n_columns) {
                        let size = vec2(cell_width, cell_height);
                        if cell_ui(ui, textures, size, &cell(index), selected == Some(index)) {
                            clicked = Some(index);
                        }
                    }
                });
            }
        });
        clicked
    }
}

fn cell_ui(ui: &mut Ui, textures: &mut Textures, size: egui::Vec2, cell: &Cell<'_>, is_selected: bool) -> bool {
    let palette = palette(ui);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let name = cell.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("image {name}")));
    if !ui.is_rect_visible(rect) {
        return false;
    }
    let (frame, below) = rect.split_top_bottom_at_y(rect.bottom() - NAME_HEIGHT);
    let painter = ui.painter_at(rect.expand(2.0));
    painter.rect_filled(frame, theme::RADIUS, palette.button);
    match textures.thumbnail(cell.path) {
        Look::Shown(shown) => {
            let (width, height) = (shown.full_size.width as f32, shown.full_size.height as f32);
            let scale = (frame.width() / width).min(frame.height() / height);
            let image_rect = Rect::from_center_size(frame.center(), vec2(width, height) * scale);
            let uv = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
            painter.add(RectShape::filled(image_rect, theme::RADIUS, Color32::WHITE).with_texture(shown.texture, uv));
            let inside = painter.with_clip_rect(image_rect.expand(1.0).intersect(painter.clip_rect()));
            for &(bbox, color) in cell.boxes.iter().flatten() {
                let each = screen_rect(image_rect, bbox);
                inside.rect_stroke(each, 0.0, Stroke::new(2.5, Color32::from_black_alpha(80)), StrokeKind::Middle);
                inside.rect_stroke(each, 0.0, Stroke::new(1.5, color), StrokeKind::Middle);
            }
        }
        Look::Loading => {}
        Look::Failed(_) => {
            let font = TextStyle::Small.resolve(ui.style());
            painter.text(frame.center(), Align2::CENTER_CENTER, "Cannot be decoded", font, palette.bad);
        }
    }
    let border = if is_selected {
        Stroke::new(2.0, palette.accent)
    } else if response.hovered() || response.has_focus() {
        Stroke::new(1.5, palette.faint)
    } else {
        Stroke::new(1.0, palette.border)
    };
    painter.rect_stroke(frame, theme::RADIUS, border, StrokeKind::Inside);

    let font = TextStyle::Small.resolve(ui.style());
    let middle = below.center().y + 1.0;
    let count = match &cell.boxes {
        Some(boxes) if boxes.is_empty() => "no labels".to_owned(),
        Some(boxes) => boxes.len().to_string(),
        None => String::new(),
    };
    let end = painter.text(pos2(below.right() - 2.0, middle), Align2::RIGHT_CENTER, count, font, palette.faint);
    let text = egui::RichText::new(&*name).small().color(if is_selected { palette.strong } else { palette.weak });
    paint_text(ui, pos2(below.left() + 2.0, middle), end.left() - below.left() - 8.0, text);
    response.on_hover_cursor(CursorIcon::PointingHand).clicked()
}
