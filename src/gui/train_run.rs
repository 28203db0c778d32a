//! A run as it goes: its numbers, its plots, its plan and notes, and at the end what it reached.

use std::path::PathBuf;
use std::sync::Arc;

use egui::containers::menu::{MenuButton, MenuConfig};
use egui::{PopupCloseBehavior, RichText, ScrollArea, Slider, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, thousands};
use super::curves::{self, ChartFormat, CurveStyle, PlotLook};
use super::plots::{Curves, PlotKind};
use super::textures::Look;
use super::theme::{self, palette};
use crate::session::Command;
use crate::session::JobKind;
use crate::session::RunView;
use crate::train::{Alarm, Divergence, TrainPlan, TrainSummary};

/// What the page remembers between frames.
pub struct RunPage {
    curves: Curves,
    style: CurveStyle,
    /// The plots that are shown.
    shown: Vec<PlotKind>,
    is_zoomed: bool,
    resets: bool,
    /// The file that was written last, of the run in this folder.
    saved: Option<PathBuf>,
    saved_of: Option<PathBuf>,
}

impl Default for RunPage {
    fn default() -> Self {
        let shown = vec![PlotKind::Losses, PlotKind::AveragePrecision, PlotKind::LearningRate, PlotKind::Gradient, PlotKind::Speed];
        let (curves, style) = (Curves::default(), CurveStyle::default());
        Self { curves, style, shown, is_zoomed: false, resets: false, saved: None, saved_of: None }
    }
}

/// Height of a plot's title and margins, and of the bar above the plots.
const PLOT_FRAME: f32 = 44.0;
const TOOLBAR: f32 = 34.0;

impl RunPage {
    /// A plot was written to this file.
    pub fn on_saved(&mut self, path: PathBuf) {
        self.saved = Some(path);
    }

    /// Shows the whole run again in all plots.
    pub fn reset_zoom(&mut self) {
        self.resets = true;
    }

    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>, run: &RunView) {
        if self.curves.update(run, self.style.smoothing) {
            ui.ctx().request_repaint();
        }
        if self.saved_of != run.dir {
            self.saved_of.clone_from(&run.dir);
            self.saved = None;
        }
        let height = ui.available_height();
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.set_max_width(ui.available_width() - 10.0);
            ui.spacing_mut().item_spacing.y = theme::GAP;
            let top = ui.cursor().top();
            let is_running = view.session.is_running(JobKind::Train);
            match &run.summary {
                Some(summary) if !is_running => summary_ui(ui, view, summary),
                _ => numbers_ui(ui, run, is_running),
            }
            if let Some(divergence) = &run.divergence {
                divergence_ui(ui, view, divergence);
            }
            if !run.alarms.is_empty() {
                alarms_ui(ui, &run.alarms);
            }
            self.toolbar_ui(ui);
            self.plots_ui(ui, view, run, height - (ui.cursor().top() - top));
            if let Some(plan) = &run.plan {
                plan_ui(ui, run, plan);
            }
            if !run.notes.is_empty() {
                controls::card(ui).show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    controls::section(ui, "Notes");
                    for note in &run.notes {
                        controls::note(ui, note);
                    }
                });
            }
            ui.add_space(6.0);
        });
    }

    fn toolbar_ui(&mut self, ui: &mut Ui) {
        let size = egui::vec2(ui.available_width(), TOOLBAR);
        ui.allocate_ui_with_layout(size, egui::Layout::left_to_right(egui::Align::Center), |ui| {
            let config = MenuConfig::new().close_behavior(PopupCloseBehavior::CloseOnClickOutside);
            let (response, _) = MenuButton::new("Plots").config(config).ui(ui, |ui| {
                for kind in PlotKind::ALL {
                    let mut is_shown = self.shown.contains(&kind);
                    if ui.checkbox(&mut is_shown, kind.info().title).on_hover_text(kind.info().tooltip).changed() {
                        if is_shown {
                            self.shown.push(kind);
                            self.shown.sort_by_key(|kind| PlotKind::ALL.iter().position(|each| each == kind));
                        } else {
                            self.shown.retain(|each| *each != kind);
                        }
                    }
                }
            });
            response.on_hover_text("Choose which plots are shown");
            let scales = [(false, "Linear", "Linear scale"), (true, "Log", "Logarithmic scale for losses, rates and norms")];
            controls::segmented(ui, &mut self.style.is_log, &scales);
            ui.add_space(6.0);
            controls::note(ui, "Smoothing");
            let slider = Slider::new(&mut self.style.smoothing, 0.0..=0.99).show_value(false);
            let tooltip = "How much of the past is in the thick line; the thin one behind it is every step";
            controls::slider(ui, slider, "Smoothing", tooltip, 110.0);
            if self.is_zoomed {
                let tooltip = Action::ResetZoom.tooltip(ui.ctx());
                if ui.button("Whole run").on_hover_text(tooltip).clicked() {
                    self.resets = true;
                }
            }
            if let Some(path) = &self.saved {
                let text = format!("Saved {}", path.display());
                ui.add(egui::Label::new(RichText::new(text).small().color(palette(ui).good)).truncate().selectable(true));
            } else if !self.is_zoomed {
                let text = "Ctrl and the wheel zoom along the run, dragging moves, a double click shows all";
                ui.add(egui::Label::new(RichText::new(text).small().color(palette(ui).faint)).truncate());
            }
        });
    }

    /// The grid of plots; the first is wide where the last row would not be full.
    fn plots_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, run: &RunView, height: f32) {
        let n_columns = if ui.available_width() > 1150.0 { 3 } else { 2 };
        let n_columns = n_columns.min(self.shown.len().max(1));
        let first_spans = 1 + (n_columns - self.shown.len() % n_columns) % n_columns;
        let n_rows = (self.shown.len() + first_spans - 1) / n_columns;
        let each = (height - theme::GAP * n_rows as f32) / n_rows.max(1) as f32 - PLOT_FRAME;
        let look = PlotLook {
            style: self.style,
            height: each.clamp(130.0, 420.0),
            n_epochs: run.epochs_wanted,
            resets: std::mem::take(&mut self.resets),
            alarms: &run.alarms,
        };
        let gap = theme::GAP;
        let cell = ((ui.available_width() - gap * (n_columns - 1) as f32) / n_columns as f32).floor();
        let mut is_zoomed = false;
        let (mut hidden, mut saved) = (None, None);
        let mut next = 0;
        for row in 0..n_rows {
            ui.horizontal_top(|ui| {
                ui.spacing_mut().item_spacing.x = gap;
                let mut column = 0;
                while column < n_columns && next < self.shown.len() {
                    let spans = if row == 0 && column == 0 { first_spans } else { 1 };
                    let kind = self.shown[next];
                    let width = cell * spans as f32 + gap * (spans - 1) as f32;
                    let size = egui::vec2(width, look.height + PLOT_FRAME);
                    let done = ui.allocate_ui(size, |ui| ui.vertical(|ui| curves::plot_ui(ui, kind, &self.curves, look)).inner).inner;
                    is_zoomed |= done.is_zoomed;
                    hidden = if done.hide { Some(kind) } else { hidden };
                    saved = done.save_as.map(|format| (kind, format)).or(saved);
                    (next, column) = (next + 1, column + spans);
                }
            });
        }
        self.is_zoomed = is_zoomed;
        self.shown.retain(|kind| Some(*kind) != hidden);
        if let Some((kind, format)) = saved
            && let Some(dir) = run.dir.as_ref().or(run.plan.as_ref().map(|plan| &plan.run_dir))
        {
            let path = dir.join("report").join(kind.info().id).with_extension(format.ending());
            let chart = self.curves.chart(kind, self.style.is_log, format == ChartFormat::Csv, theme::paper());
            view.ask(Command::SaveChart { path, chart: Arc::new(chart) });
        }
    }
}

/// Where the numbers ran away, and on which images.
fn divergence_ui(ui: &mut Ui, view: &mut View<'_>, divergence: &Divergence) {
    let palette = palette(ui);
    controls::card(ui).stroke(egui::Stroke::new(1.0, palette.bad)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 4.0;
        let Divergence { epoch, step, what, value, images } = divergence;
        controls::section(ui, &format!("The {what} became {value} at step {} of epoch {}", thousands(step + 1), epoch + 1));
        let text = "Nothing of this step was kept. Going back to the last good state with a smaller learning rate usually helps; \
                    look whether the boxes of these images are right";
        controls::weak(ui, text);
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 8.0;
            egui::ScrollArea::horizontal().id_salt("images of the step").show(ui, |ui| {
                for path in images {
                    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                    let (rect, response) = ui.allocate_exact_size(egui::vec2(96.0, 72.0), egui::Sense::hover());
                    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, format!("image of the step {name}")));
                    ui.painter().rect_filled(rect, theme::RADIUS, palette.button);
                    if let Look::Shown(shown) = view.textures.thumbnail(path) {
                        let size = egui::vec2(shown.full_size.width as f32, shown.full_size.height as f32);
                        let inside =
                            egui::Rect::from_center_size(rect.center(), size * (rect.width() / size.x).min(rect.height() / size.y));
                        let uv = egui::Rect::from_min_max(egui::Pos2::ZERO, egui::pos2(1.0, 1.0));
                        ui.painter().image(shown.texture, inside, uv, egui::Color32::WHITE);
                    }
                    response.on_hover_text(path.display().to_string());
                }
            });
        });
    });
}

/// What is not as it should be, the newest first, with what to do about it.
fn alarms_ui(ui: &mut Ui, alarms: &[Alarm]) {
    let palette = palette(ui);
    controls::card(ui).stroke(egui::Stroke::new(1.0, palette.warn.gamma_multiply(0.6))).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 3.0;
        let newest = alarms.last().into_iter();
        for alarm in newest {
            alarm_ui(ui, alarm);
        }
        if alarms.len() > 1 {
            let title = RichText::new(format!("{} earlier", thousands(alarms.len() - 1))).small().color(palette.weak);
            egui::CollapsingHeader::new(title).id_salt("alarms").show(ui, |ui| {
                ScrollArea::vertical().max_height(220.0).show(ui, |ui| {
                    for alarm in alarms.iter().rev().skip(1) {
                        alarm_ui(ui, alarm);
                        ui.add_space(4.0);
                    }
                });
            });
        }
    });
}

fn alarm_ui(ui: &mut Ui, alarm: &Alarm) {
    let palette = palette(ui);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        controls::chip(ui, &format!("epoch {}, step {}", alarm.epoch + 1, thousands(alarm.step + 1)), palette.warn);
        ui.label(RichText::new(sentence(&alarm.what)).text_style(theme::strong()).color(palette.strong));
    });
    controls::weak(ui, sentence(&alarm.explanation));
    ui.label(RichText::new(format!("What to do: {}", alarm.action)).color(palette.text));
}

/// With a capital at its start.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Where the run is now.
fn numbers_ui(ui: &mut Ui, run: &RunView, is_running: bool) {
    controls::card(ui).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 32.0;
            let last = run.steps.last();
            let epoch = last.map_or(0, |step| step.epoch + 1);
            controls::figure(ui, &format!("{epoch} / {}", run.epochs_wanted), "epoch");
            controls::figure(ui, &last.map_or_else(|| "–".to_owned(), |step| thousands(step.step + 1)), "step");
            let speed = last.map(|step| f64::from(step.images_per_sec));
            controls::figure(ui, &speed.map_or_else(|| "–".to_owned(), |speed| format!("{speed:.1}")), "images a second");
            if is_running {
                controls::figure(ui, &time_left(run).map_or_else(|| "–".to_owned(), controls::duration), "left");
            }
            if let Some(step) = last {
                controls::figure(ui, &format!("{:.3}", step.box_loss + step.cls_loss + step.dfl_loss), "loss");
                controls::figure(ui, &format!("{:.1}", step.grad_norm), "gradient norm");
            }
            if let Some(epoch) = run.epochs.last() {
                controls::figure(ui, &format!("{:.3}", epoch.metrics.map50), "mAP50");
                controls::figure(ui, &format!("{:.3}", epoch.metrics.map50_95), "mAP50-95");
            }
            if last.is_none() && is_running {
                ui.vertical(|ui| {
                    ui.add_space(10.0);
                    ui.horizontal(|ui| {
                        ui.add(egui::Spinner::new().size(14.0));
                        controls::weak(ui, "Reading pictures and building the network");
                    });
                });
            }
        });
    });
}

/// Seconds to the end: by the time that whole epochs took, or by the speed of the first one.
fn time_left(run: &RunView) -> Option<f64> {
    let plan = run.plan.as_ref()?;
    let last = run.steps.last()?;
    let steps_left = (run.epochs_wanted * plan.steps_per_epoch).checked_sub(last.step + 1)? as f64;
    let secs_per_step = if run.epochs.is_empty() {
        let batch = plan.n_train_images as f64 / plan.steps_per_epoch.max(1) as f64;
        let speed = run.pace.map_or(last.images_per_sec, |pace| pace.images_per_sec);
        batch / f64::from(speed).max(1e-3)
    } else {
        let secs: f64 = run.epochs.iter().map(|epoch| epoch.secs).sum();
        secs / (run.epochs.len() * plan.steps_per_epoch.max(1)) as f64
    };
    Some(steps_left * secs_per_step)
}

fn plan_ui(ui: &mut Ui, run: &RunView, plan: &TrainPlan) {
    controls::card(ui).show(ui, |ui| {
        ui.set_width(ui.available_width());
        controls::section(ui, "Plan");
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 32.0;
            controls::figure(ui, &thousands(plan.n_train_images), "train images");
            controls::figure(ui, &thousands(plan.n_val_images), "val images");
            controls::figure(ui, &thousands(plan.n_labels), "labels");
            controls::figure(ui, &thousands(plan.steps_per_epoch), "steps an epoch");
            controls::figure(ui, &format!("{:.2} M", plan.n_parameters as f64 / 1e6), "parameters");
            controls::figure(ui, &controls::bytes(plan.planned_bytes), "memory planned");
            if let Some(pace) = &run.pace {
                controls::figure(ui, &controls::duration(pace.secs_per_epoch), "an epoch, measured");
            }
            if let Some(bytes) = plan.device_bytes {
                controls::figure(ui, &controls::bytes(bytes), "GPU memory planned");
            }
        });
        controls::note(ui, format!("Run folder: {}", plan.run_dir.display()));
        if !plan.dropped.is_empty() {
            let title = format!("{} images or rows are not used", thousands(plan.dropped.len()));
            egui::CollapsingHeader::new(title).show(ui, |ui| {
                ScrollArea::vertical().max_height(160.0).show_rows(ui, 18.0, plan.dropped.len(), |ui, rows| {
                    for index in rows {
                        controls::note(ui, &plan.dropped[index]);
                    }
                });
            });
        }
    });
}

fn summary_ui(ui: &mut Ui, view: &mut View<'_>, summary: &TrainSummary) {
    let palette = palette(ui);
    let frame = controls::card(ui).stroke(egui::Stroke::new(1.0, palette.good.gamma_multiply(0.6)));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        let title = if summary.stopped { "Training was stopped" } else { "Training is done" };
        controls::section_with(ui, title, |ui| {
            let reason = Action::LookAtDetections.unavailable(view.session);
            if controls::primary_button(ui, Action::LookAtDetections, reason) {
                view.act(Action::LookAtDetections);
            }
            if ui.button("Export…").on_hover_text("Write these weights for other programs").clicked() {
                view.act(Action::ShowExport);
            }
        });
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 32.0;
            controls::figure(ui, &format!("{:.3}", summary.metrics.map50), "mAP50");
            controls::figure(ui, &format!("{:.3}", summary.metrics.map50_95), "mAP50-95");
            controls::figure(ui, &format!("{:.3}", summary.metrics.precision), "precision");
            controls::figure(ui, &format!("{:.3}", summary.metrics.recall), "recall");
            controls::figure(ui, &(summary.best_epoch + 1).to_string(), "best epoch");
            controls::figure(ui, &summary.epochs_done.to_string(), "epochs done");
        });
        let text = format!("Best weights: {}", summary.run_dir.join("weights").join("best.safetensors").display());
        ui.add(egui::Label::new(RichText::new(text).small().color(palette.weak)).truncate().selectable(true));
    });
}
