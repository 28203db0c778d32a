//! The workspace *Detect*: what does the detector find?
//!
//! Pictures are run once at a low score; the slider then filters what is shown without running again. Where a picture
//! belongs to the open dataset, its labels can be laid over.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use egui::{Align, Frame, Layout, Margin, Panel, RichText, ScrollArea, Sense, Slider, Ui, WidgetInfo};

use super::action::Action;
use super::app::View;
use super::canvas::{Canvas, CanvasBox, Outline, label_box};
use super::controls::{self, counted, path_of};
use super::theme::{self, palette};
use super::viewport::Zoom;
use crate::dataset::{Dataset, Split};
use crate::detect::DetectOptions;
use crate::detect::PictureDetections;
use crate::engine::Device;
use crate::session::JobKind;
use crate::session::PictureResult;
use crate::session::Session;
use crate::session::{BrowseKind, Command, DetectRequest};

/// Score at which pictures are run; the slider goes no lower.
const RUN_CONF: f32 = 0.05;
/// The published score threshold.
const SHOWN_CONF: f32 = 0.25;

/// What the workspace remembers between frames.
pub struct DetectPanel {
    weights: String,
    /// The session's weights that the field shows; when they change, so does the field.
    weights_seen: Option<PathBuf>,
    source: String,
    device: Device,
    conf: f32,
    shows_truth: bool,
    position: usize,
    selected: Option<usize>,
    scrolls: bool,
    canvas: Canvas,
    /// Where pictures of the open dataset stand in it.
    images: Option<(Arc<Dataset>, HashMap<PathBuf, usize>)>,
    /// The validation pictures are wanted as source, once the dataset is at hand.
    wants_validation: bool,
}

impl Default for DetectPanel {
    fn default() -> Self {
        Self {
            weights: String::new(),
            weights_seen: None,
            source: String::new(),
            device: Device::Cpu,
            conf: SHOWN_CONF,
            shows_truth: true,
            position: 0,
            selected: None,
            scrolls: false,
            canvas: Canvas::default(),
            images: None,
            wants_validation: true,
        }
    }
}

impl DetectPanel {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        self.follow(view.session);
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(14, 10));
        Panel::left("detect form").frame(frame).default_size(320.0).size_range(280.0..=420.0).show(ui, |ui| {
            self.form_ui(ui, view);
            ui.add_space(4.0);
            ui.separator();
            self.list_ui(ui, view.session);
        });
        let session = view.session;
        egui::CentralPanel::default().frame(Frame::new().fill(palette(ui).backdrop)).show(ui, |ui| {
            match session.detections.get(self.position) {
                Some(result) => self.result_ui(ui, view, result),
                None => no_result_ui(ui, session),
            }
        });
    }

    pub fn set_source(&mut self, path: PathBuf) {
        self.source = path.display().to_string();
    }

    /// Takes the open dataset's validation pictures as source.
    pub fn use_validation_pictures(&mut self) {
        self.wants_validation = true;
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.canvas.zoom(zoom);
    }

    /// Goes to another picture.
    pub fn step(&mut self, session: &Session, forward: bool) {
        let next = if forward { self.position + 1 } else { self.position.saturating_sub(1) };
        if next < session.detections.len() {
            self.select(next);
            self.scrolls = true;
        }
    }

    /// The detection that the form describes, if it can start.
    pub fn start_command(&mut self, session: &Session) -> Option<Command> {
        self.follow(session);
        if self.problem().is_some() {
            return None;
        }
        self.select(0);
        Some(Command::Detect(DetectRequest {
            weights: path_of(&self.weights)?,
            source: path_of(&self.source)?,
            options: DetectOptions { conf: RUN_CONF, ..DetectOptions::default() },
            device: self.device,
            out: None,
            save_img: false,
            save_txt: false,
        }))
    }

    fn select(&mut self, position: usize) {
        self.position = position;
        self.selected = None;
    }

    fn problem(&self) -> Option<&'static str> {
        if path_of(&self.weights).is_none() {
            return Some("Choose weights: train a detector, or browse for a .safetensors file");
        }
        path_of(&self.source).is_none().then_some("Say which pictures to look at")
    }

    /// Keeps the fields in step with what the session has.
    fn follow(&mut self, session: &Session) {
        if self.weights_seen != session.weights {
            self.weights_seen.clone_from(&session.weights);
            if let Some(path) = &session.weights {
                self.weights = path.display().to_string();
            }
        }
        let Some(open) = &session.dataset else { return };
        if !self.images.as_ref().is_some_and(|(dataset, _)| Arc::ptr_eq(dataset, &open.dataset)) {
            let by_path = open.dataset.images.iter().enumerate().map(|(index, image)| (image.path.clone(), index));
            self.images = Some((open.dataset.clone(), by_path.collect()));
            self.wants_validation = true;
        }
        if self.wants_validation
            && let Some(folder) = validation_folder(&open.dataset)
        {
            self.source = folder.display().to_string();
            self.wants_validation = false;
        }
    }

    fn form_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        ui.spacing_mut().item_spacing.y = 4.0;
        controls::note(ui, "Weights");
        if controls::path_field(ui, "Weights", &mut self.weights, "runs/…/weights/best.safetensors").browse {
            view.ask(Command::Browse(BrowseKind::Weights));
        }
        ui.add_space(4.0);
        controls::note(ui, "Pictures").on_hover_text("A folder, a file, or a pattern with * and ?");
        if controls::path_field(ui, "Pictures", &mut self.source, "A folder, a file, or a pattern").browse {
            view.ask(Command::Browse(BrowseKind::Pictures));
        }
        ui.add_space(4.0);
        controls::note(ui, "Device").on_hover_text("Where it is computed");
        controls::device_ui(ui, &mut self.device, &view.session.devices);
        ui.add_space(8.0);
        let reason = Action::Detect.unavailable(view.session).or(self.problem());
        let width = ui.available_width();
        if controls::primary_button_wide(ui, Action::Detect, reason, width) {
            view.act(Action::Detect);
        }
        ui.add_space(6.0);
    }

    fn list_ui(&mut self, ui: &mut Ui, session: &Session) {
        let results = &session.detections;
        if results.is_empty() {
            controls::note(ui, "Pictures and what was found on them are listed here");
            return;
        }
        let conf = self.conf;
        let n_shown: usize = results.iter().map(|result| count_above(result, conf)).sum();
        controls::weak(ui, format!("{} on {}", counted(n_shown, "detection"), counted(results.len(), "picture")));
        ui.spacing_mut().item_spacing.y = 2.0;
        let mut area = ScrollArea::vertical().auto_shrink(false);
        if std::mem::take(&mut self.scrolls) {
            let top = self.position as f32 * (controls::ROW_HEIGHT + 2.0);
            area = area.vertical_scroll_offset((top - ui.available_height() / 2.0).max(0.0));
        }
        let mut clicked = None;
        area.show_rows(ui, controls::ROW_HEIGHT, results.len(), |ui, rows| {
            for index in rows {
                let result = &results[index];
                let name = result.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                let is_selected = self.position == index;
                let response = match &result.outcome {
                    Ok(_) => {
                        let row =
                            controls::CountRow { name: &name, count: count_above(result, conf), color: None, is_selected, tooltip: "" };
                        row.ui(ui)
                    }
                    Err(reason) => unreadable_row_ui(ui, &name, reason, is_selected),
                };
                if response.clicked() {
                    clicked = Some(index);
                }
            }
        });
        if let Some(index) = clicked {
            self.select(index);
        }
    }

    fn result_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, result: &PictureResult) {
        let palette = palette(ui);
        let image = self.images.as_ref().and_then(|(_, images)| images.get(&result.path)).copied();
        let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(12, 0));
        Panel::top("detect bar").frame(frame).exact_size(45.0).show(ui, |ui| {
            ui.horizontal_centered(|ui| {
                controls::weak(ui, "Score at least");
                let slider = Slider::new(&mut self.conf, RUN_CONF..=0.95).step_by(0.01).show_value(false);
                let tooltip = "Hides detections below this score; nothing is computed again";
                controls::slider(ui, slider, "Score threshold", tooltip, 150.0);
                ui.label(RichText::new(format!("{:.2}", self.conf)).color(palette.strong));
                ui.add_space(6.0);
                let reason = if image.is_none() {
                    Some("This picture is not in the open dataset")
                } else if view.session.labels(image.unwrap_or_default()).is_empty() {
                    Some("This picture has no labels")
                } else {
                    None
                };
                ui.add_enabled(reason.is_none(), egui::Checkbox::new(&mut self.shows_truth, "Labels"))
                    .on_hover_text("Lay the labels of the dataset over the picture, dashed")
                    .on_disabled_hover_text(reason.unwrap_or_default());
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    for (action, text) in [(Action::ZoomActual, "100 %"), (Action::ZoomFit, "Fit")] {
                        if ui.button(text).on_hover_text(action.tooltip(ui.ctx())).clicked() {
                            view.act(action);
                        }
                    }
                    let name = result.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                    ui.add(egui::Label::new(RichText::new(&*name).color(palette.weak)).truncate())
                        .on_hover_text(result.path.display().to_string());
                });
            });
        });
        let detections = match &result.outcome {
            Ok(detections) => detections,
            Err(reason) => {
                controls::empty_state(ui, "This picture could not be read", reason, |_| ());
                return;
            }
        };
        let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(14, 6));
        let names = &view.session.detection_names;
        let conf = self.conf;
        let shown: Vec<_> = detections.detections.iter().filter(|each| each.score >= conf).collect();
        Panel::bottom("detect details").frame(frame).show(ui, |ui| stages_ui(ui, detections, shown.len()));

        let mut boxes = Vec::new();
        if !view.hides_boxes {
            if self.shows_truth
                && let (Some(image), Some(open)) = (image, &view.session.dataset)
            {
                let labels = view.session.labels(image).iter();
                // White, so that a label stands out beside a detection of its class.
                boxes.extend(labels.map(|label| CanvasBox {
                    outline: Outline::Dashed,
                    color: egui::Color32::WHITE,
                    tag: "".into(),
                    ..label_box(&open.dataset.names, label, false)
                }));
            }
            let n_truth = boxes.len();
            boxes.extend(shown.iter().enumerate().map(|(index, each)| {
                let name = names.get(each.class).map_or("?", String::as_str);
                CanvasBox {
                    bbox: each.bbox.to_xywhn(detections.size),
                    color: theme::class_color(each.class),
                    tag: format!("{name} {:.2}", each.score).into(),
                    outline: Outline::Solid,
                    is_selected: self.selected == Some(n_truth + index),
                }
            }));
        }
        let done = self.canvas.ui(ui, view.textures, &result.path, &boxes);
        if done.clicked.is_some() || done.clicked_empty {
            self.selected = done.clicked;
        }
        for neighbour in [self.position + 1, self.position.wrapping_sub(1)] {
            if let Some(next) = view.session.detections.get(neighbour) {
                view.textures.prefetch(&next.path);
            }
        }
    }
}

fn stages_ui(ui: &mut Ui, detections: &PictureDetections, n_shown: usize) {
    let PictureDetections { size, letterbox_ms, network_ms, nms_ms, .. } = detections;
    ui.horizontal(|ui| {
        controls::note(ui, format!("{} × {} pixels", size.width, size.height));
        ui.separator();
        controls::note(ui, counted(n_shown, "detection"));
        ui.separator();
        controls::note(ui, format!("letterbox {letterbox_ms:.1} ms"));
        controls::note(ui, format!("network {network_ms:.1} ms"));
        controls::note(ui, format!("suppression {nms_ms:.1} ms"));
    });
}

fn unreadable_row_ui(ui: &mut Ui, name: &str, reason: &str, is_selected: bool) -> egui::Response {
    let (rect, response) = ui.allocate_exact_size(egui::vec2(ui.available_width(), controls::ROW_HEIGHT), Sense::click());
    response.widget_info(|| WidgetInfo::selected(egui::Role::Button, true, is_selected, format!("{name} unreadable")));
    controls::row_background(ui, rect, &response, is_selected);
    let text = RichText::new(name).color(palette(ui).bad);
    controls::paint_text(ui, egui::pos2(rect.left() + 8.0, rect.center().y), rect.width() - 16.0, text);
    response.on_hover_text(reason)
}

fn count_above(result: &PictureResult, conf: f32) -> usize {
    // Detections come best first.
    result.outcome.as_ref().map_or(0, |found| found.detections.partition_point(|each| each.score >= conf))
}

/// The folder of the first validation picture, or of any picture without that split.
fn validation_folder(dataset: &Dataset) -> Option<PathBuf> {
    let image = dataset.split(Split::Val).next().or_else(|| dataset.images.first())?;
    image.path.parent().map(PathBuf::from)
}

fn no_result_ui(ui: &mut Ui, session: &Session) {
    if session.is_running(JobKind::Detect) {
        controls::empty_state(ui, "Detecting", "The first picture will be here in a moment", |ui| {
            ui.add(egui::Spinner::new().size(20.0));
        });
    } else {
        let text = "Choose weights and pictures on the left. Each picture appears here with its boxes as soon as it is done";
        controls::empty_state(ui, "Nothing detected yet", text, |_| ());
    }
}
