//! How did the detections grow from epoch to epoch? The same pictures of the val split, with a slider over the epochs.
//!
//! What was found is drawn in the class's colour; labels, where they belong to the open dataset, as thin white lines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egui::epaint::RectShape;
use egui::{Color32, FontId, Rect, RichText, ScrollArea, Sense, Slider, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};

use super::app::View;
use super::canvas::screen_rect;
use super::controls::{self, counted};
use super::textures::Look;
use super::theme::{self, palette};
use crate::dataset::{Dataset, Label};
use crate::session::RunView;
use crate::train::{SampleBox, SampleImage};

/// Below this score a box is not shown at first.
const SHOWN_CONF: f32 = 0.25;
/// Least width of a picture.
const CELL: f32 = 220.0;
const SPACE: f32 = 10.0;

/// What the page remembers between frames.
pub struct SamplesPage {
    /// `None`: the newest epoch.
    place: Option<usize>,
    conf: f32,
    shows_truth: bool,
    /// Where pictures of the open dataset stand in it.
    images: Option<(Arc<Dataset>, HashMap<PathBuf, usize>)>,
}

impl Default for SamplesPage {
    fn default() -> Self {
        Self { place: None, conf: SHOWN_CONF, shows_truth: true, images: None }
    }
}

impl SamplesPage {
    /// Goes to the next or the previous epoch.
    pub fn step(&mut self, run: &RunView, forward: bool) {
        let Some(last) = run.samples.len().checked_sub(1) else { return };
        let place = self.place.unwrap_or(last).min(last);
        let next = if forward { place + 1 } else { place.saturating_sub(1) };
        self.place = (next < last).then_some(next);
    }

    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>, run: &RunView) {
        let Some(last) = run.samples.len().checked_sub(1) else {
            let text = "After each epoch the network looks at the same pictures of the val split; what it finds is shown here";
            controls::empty_state(ui, "No epoch has ended yet", text, |_| ());
            return;
        };
        self.follow(view);
        let mut place = self.place.unwrap_or(last).min(last);
        ui.allocate_ui_with_layout(vec2(ui.available_width(), 30.0), egui::Layout::left_to_right(egui::Align::Center), |ui| {
            controls::note(ui, "Epoch");
            let slider = Slider::new(&mut place, 0..=last).show_value(false);
            let width = (ui.available_width() - 470.0).clamp(100.0, 460.0);
            controls::slider(ui, slider, "Epoch of the detections", "Go through the epochs, also with the arrow keys", width);
            ui.label(RichText::new((run.samples[place].epoch + 1).to_string()).text_style(theme::strong()).color(palette(ui).strong));
            if let Some(epoch) = run.epochs.iter().find(|epoch| epoch.epoch == run.samples[place].epoch) {
                controls::note(ui, format!("mAP50-95 {:.3}", epoch.metrics.map50_95));
            }
            ui.add_space(8.0);
            controls::note(ui, "Score from");
            let slider = Slider::new(&mut self.conf, 0.05..=0.95).show_value(false);
            controls::slider(ui, slider, "Score of the detections", "Boxes with a lower score are not shown", 90.0);
            controls::note(ui, format!("{:.2}", self.conf));
            ui.checkbox(&mut self.shows_truth, "Labels").on_hover_text("Lay the labels over as thin lines");
        });
        self.place = (place < last).then_some(place);
        ui.add_space(4.0);
        self.pictures_ui(ui, view, &run.samples[place].images);
    }

    fn follow(&mut self, view: &View<'_>) {
        let Some(open) = &view.session.dataset else {
            self.images = None;
            return;
        };
        if !self.images.as_ref().is_some_and(|(dataset, _)| Arc::ptr_eq(dataset, &open.dataset)) {
            let by_path = open.dataset.images.iter().enumerate().map(|(index, image)| (image.path.clone(), index));
            self.images = Some((open.dataset.clone(), by_path.collect()));
        }
    }

    fn pictures_ui(&self, ui: &mut Ui, view: &mut View<'_>, images: &[SampleImage]) {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            let width = ui.available_width() - 12.0;
            let n_columns = (((width + SPACE) / (CELL + SPACE)).floor() as usize).clamp(1, 6);
            let cell = ((width + SPACE) / n_columns as f32 - SPACE).floor();
            ui.spacing_mut().item_spacing = vec2(SPACE, SPACE);
            for row in images.chunks(n_columns) {
                ui.horizontal(|ui| {
                    for image in row {
                        self.picture_ui(ui, view, image, vec2(cell, (cell * 0.75).floor()));
                    }
                });
            }
        });
    }

    fn picture_ui(&self, ui: &mut Ui, view: &mut View<'_>, image: &SampleImage, size: egui::Vec2) {
        let palette = palette(ui);
        let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
        let name = file_name(&image.path);
        let shown: Vec<&SampleBox> = image.boxes.iter().filter(|found| found.score >= self.conf).collect();
        let label = format!("sample {name}: {}", counted(shown.len(), "detection"));
        response.widget_info(|| WidgetInfo::labeled(egui::Role::Image, true, &label));
        if !ui.is_rect_visible(rect) {
            return;
        }
        let painter = ui.painter_at(rect);
        painter.rect_filled(rect, theme::RADIUS, palette.button);
        match view.textures.picture(&image.path, size.x * ui.pixels_per_point(), false) {
            Look::Shown(look) => {
                let (width, height) = (look.full_size.width as f32, look.full_size.height as f32);
                let scale = (rect.width() / width).min(rect.height() / height);
                let inside = Rect::from_center_size(rect.center(), vec2(width, height) * scale);
                let uv = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
                painter.add(RectShape::filled(inside, theme::RADIUS, Color32::WHITE).with_texture(look.texture, uv));
                if self.shows_truth && !view.hides_boxes {
                    for label in self.labels(view, &image.path) {
                        let stroke = Stroke::new(1.0, Color32::from_white_alpha(200));
                        painter.rect_stroke(screen_rect(inside, label.bbox), 0.0, stroke, StrokeKind::Middle);
                    }
                }
                for found in shown.iter().rev().filter(|_| !view.hides_boxes) {
                    let [x1, y1, x2, y2] = found.corners.map(|corner| corner * scale);
                    let bbox = Rect::from_min_max(inside.min + vec2(x1, y1), inside.min + vec2(x2, y2));
                    let color = theme::class_color(found.class);
                    painter.rect_stroke(bbox, 0.0, Stroke::new(1.75, color), StrokeKind::Middle);
                    let font = FontId::proportional(10.0);
                    let tag = painter.layout_no_wrap(format!("{:.2}", found.score), font, theme::ink_on(color));
                    let back =
                        Rect::from_min_size(bbox.min - vec2(1.0, tag.size().y.min(bbox.top() - rect.top())), tag.size() + vec2(6.0, 0.0));
                    painter.rect_filled(back, 2.0, color);
                    painter.galley(back.min + vec2(3.0, 0.0), tag, Color32::WHITE);
                }
            }
            Look::Loading => {}
            Look::Failed(reason) => {
                let text = format!("Cannot be shown: {reason}");
                painter.text(rect.center(), egui::Align2::CENTER_CENTER, text, FontId::proportional(11.0), palette.bad);
            }
        }
        painter.rect_stroke(rect, theme::RADIUS, Stroke::new(1.0, palette.border), StrokeKind::Inside);
        response.on_hover_text(format!("{name}\n{} of {}", counted(shown.len(), "detection"), image.boxes.len()));
    }

    fn labels<'a>(&self, view: &View<'a>, path: &Path) -> &'a [Label] {
        let index = self.images.as_ref().and_then(|(_, by_path)| by_path.get(path));
        index.map_or(&[], |index| view.session.labels(*index))
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::EpochSamples;

    #[test]
    fn keys_go_through_the_epochs_and_the_end_follows_the_newest() {
        let samples = (0..3).map(|epoch| Arc::new(EpochSamples { epoch, images: Vec::new() })).collect();
        let run = RunView { samples, ..RunView::default() };
        let mut page = SamplesPage::default();
        page.step(&run, false);
        assert_eq!(page.place, Some(1));
        page.step(&run, false);
        page.step(&run, false);
        assert_eq!(page.place, Some(0));
        page.step(&run, true);
        page.step(&run, true);
        assert_eq!(page.place, None);
        page.step(&RunView::default(), true);
        assert_eq!(page.place, None);
    }
}
