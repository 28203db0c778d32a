//! Before the start: what the run will learn from in figures, its first batches as pictures, and a check in seconds.

use std::sync::Arc;

use egui::{Color32, ColorImage, RichText, ScrollArea, TextureHandle, TextureOptions, Ui, vec2};
use egui_plot::PlotPoint;

use super::action::Action;
use super::app::View;
use super::controls::{self, counted, thousands};
use super::curves::{self, NamedLine};
use super::plots::Along;
use super::textures::Look;
use super::theme::{self, palette};
use super::train::NO_IMAGES;
use super::train_run::sentence;
use super::welcome;
use crate::dataset::Split;
use crate::dataset::check::Severity;
use crate::media::Picture;
use crate::session::JobKind;
use crate::session::OpenDataset;
use crate::session::RunView;
use crate::train::{OverfitReport, OverfitVerdict, TrainConfig};

/// What the page remembers between frames.
#[derive(Default)]
pub struct BeforePage {
    /// The pictures that are on the graphics card.
    batches: Option<(Arc<Vec<Picture>>, Vec<TextureHandle>)>,
    figures: Option<Figures>,
}

/// What is counted once for a dataset and its labels.
struct Figures {
    of: OpenDataset,
    n_train: usize,
    n_val: usize,
    n_backgrounds: usize,
    /// Boxes of the train split by class.
    boxes: Vec<usize>,
}

impl BeforePage {
    /// Draws the page; `config` is the run that the form describes, `problem` why it cannot start.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>, config: Option<&TrainConfig>, problem: Option<&'static str>) {
        let Some(open) = &view.session.dataset else {
            welcome::no_dataset_ui(ui, view, NO_IMAGES);
            return;
        };
        self.count(open);
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.set_max_width(ui.available_width() - 10.0);
            ui.spacing_mut().item_spacing.y = theme::GAP;
            controls::card(ui).show(ui, |ui| self.data_ui(ui, view, open, config));
            controls::card(ui).show(ui, |ui| overfit_ui(ui, view, problem));
            controls::card(ui).show(ui, |ui| self.batches_ui(ui, view, problem));
            ui.add_space(6.0);
        });
    }

    fn count(&mut self, open: &OpenDataset) {
        let is_same = |figures: &Figures| Arc::ptr_eq(&figures.of.dataset, &open.dataset) && Arc::ptr_eq(&figures.of.labels, &open.labels);
        if self.figures.as_ref().is_some_and(is_same) {
            return;
        }
        let dataset = &open.dataset;
        let mut figures = Figures {
            of: open.clone(),
            n_train: dataset.split(Split::Train).count(),
            n_val: dataset.split(Split::Val).count(),
            n_backgrounds: 0,
            boxes: vec![0; dataset.names.len()],
        };
        let train = dataset.images.iter().zip(&*open.labels).filter(|(image, _)| image.split == Split::Train);
        for (_, labels) in train {
            figures.n_backgrounds += usize::from(labels.is_empty());
            for label in &**labels {
                if let Some(n) = figures.boxes.get_mut(label.class.0 as usize) {
                    *n += 1;
                }
            }
        }
        self.figures = Some(figures);
    }

    fn data_ui(&self, ui: &mut Ui, view: &mut View<'_>, open: &OpenDataset, config: Option<&TrainConfig>) {
        ui.set_width(ui.available_width());
        let Some(figures) = &self.figures else { return };
        controls::section_with(ui, "What it will learn from", |ui| findings_ui(ui, view));
        let n_boxes: usize = figures.boxes.iter().sum();
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 32.0;
            controls::figure(ui, &thousands(figures.n_train), "train images");
            controls::figure(ui, &thousands(figures.n_val), "val images");
            if !open.labels.is_empty() {
                controls::figure(ui, &thousands(n_boxes), "boxes to learn");
                controls::figure(ui, &thousands(figures.n_backgrounds), "train images without a box");
            }
            if let Some(config) = config
                && let crate::train::BatchChoice::Count(batch) = config.batch
            {
                let n_steps = figures.n_train.div_ceil(batch.max(1));
                controls::figure(ui, &thousands(n_steps), "batches an epoch");
                controls::figure(ui, &thousands(n_steps * config.epochs), "batches in all");
            }
        });
        controls::note(ui, "Memory, speed and what is dropped are told as soon as the run has planned its first step");
        if open.labels.is_empty() {
            controls::note(ui, "Labels are being read");
            return;
        }
        ui.spacing_mut().item_spacing.y = 3.0;
        let most = figures.boxes.iter().copied().max().unwrap_or_default().max(1);
        const MOST_CLASSES: usize = 12;
        for (class, n) in figures.boxes.iter().enumerate().take(MOST_CLASSES) {
            class_ui(ui, class, &open.dataset.names[class], *n, *n as f32 / most as f32);
        }
        if figures.boxes.len() > MOST_CLASSES {
            controls::note(ui, format!("and {} more classes", thousands(figures.boxes.len() - MOST_CLASSES)));
        }
        for (class, _) in figures.boxes.iter().enumerate().filter(|(_, n)| **n == 0).take(3) {
            let text = format!("No train image has a {}: it cannot be learnt", open.dataset.names[class]);
            ui.label(RichText::new(text).small().color(palette(ui).warn));
        }
    }

    /// The first batches as the network will see them.
    fn batches_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, problem: Option<&'static str>) {
        ui.set_width(ui.available_width());
        controls::section_with(ui, "First batches", |ui| {
            let reason = Action::PreviewBatches.unavailable(view.session).or(problem);
            if controls::action_button(ui, Action::PreviewBatches, reason) {
                view.act(Action::PreviewBatches);
            }
            if view.session.is_running(JobKind::Preview) {
                ui.add(egui::Spinner::new().size(14.0));
            }
        });
        controls::weak(ui, "Images as the network will see them, with all augmentation, and the boxes that it is told to find");
        let pictures = &view.session.batches;
        if !self.batches.as_ref().is_some_and(|(shown, _)| Arc::ptr_eq(shown, pictures)) {
            let upload = |(index, picture): (usize, &Picture)| {
                let size = [picture.size.width as usize, picture.size.height as usize];
                let image = ColorImage::from_rgb(size, &picture.rgb);
                ui.ctx().load_texture(format!("first batch {index}"), image, TextureOptions::LINEAR)
            };
            self.batches = Some((pictures.clone(), pictures.iter().enumerate().map(upload).collect()));
        }
        for (index, texture) in self.batches.iter().flat_map(|(_, textures)| textures).enumerate() {
            let [width, height] = texture.size().map(|side| side as f32);
            let shown = ui.available_width().min(width);
            let image = egui::Image::new((texture.id(), vec2(shown, shown * height / width))).corner_radius(theme::RADIUS);
            ui.add(image.alt_text(format!("batch {}", index + 1)));
        }
        if pictures.is_empty()
            && let Some(run) = &view.session.run
        {
            kept_batches_ui(ui, view, run);
        }
    }
}

/// Batches that the run that is shown has kept; it need not be of the open dataset.
fn kept_batches_ui(ui: &mut Ui, view: &mut View<'_>, run: &RunView) {
    if !run.batch_pictures.is_empty() {
        let name = run.dir.as_ref().and_then(|dir| dir.file_name()).map(|name| name.to_string_lossy().into_owned());
        controls::note(ui, format!("From run {}", name.unwrap_or_default()));
    }
    for path in &run.batch_pictures {
        let width = ui.available_width();
        if let Look::Shown(shown) = view.textures.picture(path, width * ui.pixels_per_point(), false) {
            let size = vec2(shown.full_size.width as f32, shown.full_size.height as f32);
            let scale = (width / size.x).min(1.0);
            ui.add(egui::Image::new((shown.texture, size * scale)).corner_radius(theme::RADIUS));
        }
    }
}

/// What the check of the dataset found, with the way there.
fn findings_ui(ui: &mut Ui, view: &mut View<'_>) {
    let palette = palette(ui);
    let Some(report) = &view.session.report else {
        let reason = Action::Check.unavailable(view.session);
        if controls::action_button(ui, Action::Check, reason) {
            view.act(Action::Check);
        }
        controls::note(ui, "Labels are not checked yet");
        return;
    };
    let n_errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let (text, color) = match (n_errors, report.findings.len()) {
        (0, 0) => ("No findings".to_owned(), palette.good),
        (0, n) => (counted(n, "finding"), palette.warn),
        (n, _) => (format!("{} in the labels", counted(n, "error")), palette.bad),
    };
    if controls::quiet_button(ui, "Look", "Show what the check found").clicked() {
        view.act(Action::ShowCheck);
    }
    controls::chip(ui, &text, color);
}

/// How many boxes a class has, as a bar.
fn class_ui(ui: &mut Ui, class: usize, name: &str, n: usize, share: f32) {
    let palette = palette(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let (rect, _) = ui.allocate_exact_size(vec2(150.0, 16.0), egui::Sense::hover());
        controls::paint_text(ui, rect.left_center(), rect.width(), RichText::new(name).color(palette.text));
        let (rect, response) = ui.allocate_exact_size(vec2((ui.available_width() - 70.0).max(60.0), 16.0), egui::Sense::hover());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, format!("{name}: {} boxes", thousands(n))));
        let bar = egui::Rect::from_min_size(rect.min + vec2(0.0, 4.0), vec2(rect.width(), 8.0));
        ui.painter().rect_filled(bar, 4.0, palette.field);
        let filled = egui::Rect::from_min_size(bar.min, vec2(bar.width() * share, bar.height()));
        ui.painter().rect_filled(filled, 4.0, theme::class_color(class));
        ui.label(RichText::new(thousands(n)).color(palette.weak));
    });
}

/// The check whether one batch can be learnt by heart.
fn overfit_ui(ui: &mut Ui, view: &mut View<'_>, problem: Option<&'static str>) {
    ui.set_width(ui.available_width());
    let palette = palette(ui);
    let job = view.session.jobs.iter().find(|job| job.kind == JobKind::OverfitCheck);
    controls::section_with(ui, "Can one batch be learnt?", |ui| {
        let reason = Action::OverfitCheck.unavailable(view.session).or(problem);
        if controls::action_button(ui, Action::OverfitCheck, reason) {
            view.act(Action::OverfitCheck);
        }
        if let Some(job) = job {
            let text = if job.total > 0 { format!("{} of {}", job.done, job.total) } else { "Getting ready".to_owned() };
            controls::note(ui, text);
            ui.add(egui::Spinner::new().size(14.0));
        }
    });
    let Some(report) = &view.session.overfit else {
        let text = "Some seconds on a handful of images: a network that cannot learn these by heart will not learn thousands";
        controls::weak(ui, text);
        return;
    };
    let (word, color) = match report.verdict {
        OverfitVerdict::Learns => ("learns", palette.good),
        OverfitVerdict::Slow => ("slow", palette.warn),
        OverfitVerdict::Fails => ("fails", palette.bad),
    };
    ui.horizontal_wrapped(|ui| {
        controls::chip(ui, word, color);
        ui.label(RichText::new(sentence(&report.text)).color(palette.text));
    });
    losses_ui(ui, report, color);
}

fn losses_ui(ui: &mut Ui, report: &OverfitReport, color: Color32) {
    let points = report.losses.iter().enumerate().map(|(step, loss)| PlotPoint::new(step as f64 + 1.0, f64::from(*loss)));
    let points: Vec<PlotPoint> = points.collect();
    let line = NamedLine { name: "loss", color, points: &points };
    curves::quantity_ui(ui, "overfit losses", Along::Steps, [line].into_iter(), 110.0);
}
