//! The workspace *Train*: the settings of a run, and how it goes.
//!
//! Left the form, right the run: its plan in figures, curves, numbers and notes, and at the end what it reached.

use std::path::PathBuf;
use std::sync::Arc;

use egui::{Align, Frame, Layout, Margin, Panel, RichText, ScrollArea, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, thousands};
use super::curves::{self, CurveStyle, Smoothed};
use super::theme::{self, palette};
use super::train_form::TrainForm;
use crate::dataset::{Dataset, Split};
use crate::session::Command;
use crate::session::JobKind;
use crate::session::RunView;
use crate::session::Session;
use crate::session::Settings;
use crate::train::{TrainPlan, TrainSummary};

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct TrainPanel {
    form: TrainForm,
    style: CurveStyle,
    smoothed: Smoothed,
}

impl TrainPanel {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(14, 10));
        Panel::left("train form").frame(frame).default_size(320.0).size_range(290.0..=420.0).show(ui, |ui| self.form_ui(ui, view));
        let frame = Frame::new().fill(palette(ui).backdrop).inner_margin(Margin { left: 14, right: 6, top: 14, bottom: 0 });
        egui::CentralPanel::default().frame(frame).show(ui, |ui| match &view.session.run {
            Some(run) => {
                self.smoothed.update(&run.steps);
                let height = ui.available_height();
                ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
                    ui.set_max_width(ui.available_width() - 10.0);
                    self.run_ui(ui, view, run, height);
                });
            }
            None => no_run_ui(ui, view),
        });
    }

    /// The form takes defaults that fit a dataset when one is opened.
    pub fn on_opened(&mut self, dataset: &Arc<Dataset>, settings: &Settings) {
        self.form = TrainForm { device: self.form.device, ..TrainForm::for_dataset(dataset, settings) };
    }

    pub fn set_start_weights(&mut self, path: PathBuf) {
        self.form.set_start_weights(path);
    }

    /// The run that the form describes, if it can start.
    pub fn start_command(&self, session: &Session) -> Option<Command> {
        if self.form.problem().is_some() {
            return None;
        }
        self.form.config(session).map(|config| Command::Train(Box::new(config)))
    }

    fn form_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let is_running = view.session.is_running(JobKind::Train);
        Panel::bottom("train start").frame(Frame::new().inner_margin(Margin { top: 10, ..Margin::ZERO })).show_separator_line(false).show(
            ui,
            |ui| {
                let width = ui.available_width();
                if is_running {
                    let is_stopping = view.session.jobs.iter().any(|job| job.kind == JobKind::Train && job.stopping);
                    let button = egui::Button::new(if is_stopping { "Stopping after this step" } else { "Stop" });
                    let tooltip = Action::StopTraining.tooltip(ui.ctx());
                    let response = ui.add_enabled_ui(!is_stopping, |ui| ui.add_sized([width, 32.0], button)).inner;
                    if response.on_hover_text(tooltip).clicked() {
                        view.act(Action::StopTraining);
                    }
                } else {
                    let reason = Action::StartTraining.unavailable(view.session).or(self.form.problem());
                    if controls::primary_button_wide(ui, Action::StartTraining, reason, width) {
                        view.act(Action::StartTraining);
                    }
                    if let Some(reason) = reason {
                        controls::note(ui, reason);
                    }
                }
            },
        );
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.label(RichText::new("New training").heading().color(palette(ui).strong));
            ui.add_enabled_ui(!is_running, |ui| {
                ui.spacing_mut().item_spacing.y = 10.0;
                self.form.ui(ui, view);
            });
            ui.add_space(8.0);
            if let Some(open) = &view.session.dataset {
                self.estimate_ui(ui, &open.dataset);
                ui.add_space(8.0);
                controls::note(ui, "The same from the command line");
                controls::command_line(ui, &self.form.command_line(&open.dataset.source));
            }
        });
    }

    /// What the form amounts to on the open dataset.
    fn estimate_ui(&self, ui: &mut Ui, dataset: &Dataset) {
        let n_train = dataset.split(Split::Train).count();
        let n_val = dataset.split(Split::Val).count();
        let n_steps = n_train.div_ceil(self.form.batch.max(1));
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 20.0;
            controls::figure(ui, &thousands(n_train), "train images");
            controls::figure(ui, &thousands(n_val), "val images");
            controls::figure(ui, &thousands(n_steps * self.form.epochs), "steps");
        });
        if n_train == 0 {
            ui.label(RichText::new("The dataset has no train split").small().color(palette(ui).bad));
        } else if n_val == 0 {
            let text = "Without a val split nothing shows how good the detector is";
            ui.label(RichText::new(text).small().color(palette(ui).warn));
        }
    }

    fn run_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, run: &RunView, height: f32) {
        ui.spacing_mut().item_spacing.y = theme::GAP;
        let is_running = view.session.is_running(JobKind::Train);
        match &run.summary {
            Some(summary) if !is_running => summary_ui(ui, view, summary),
            _ => numbers_ui(ui, run, is_running),
        }
        // The plots share the height that is left, so that a run fits without scrolling where the window allows it.
        let plot_height = ((height - if run.summary.is_some() { 400.0 } else { 340.0 }) / 2.0).clamp(120.0, 420.0);
        controls::card(ui).show(ui, |ui| {
            let size = egui::vec2(ui.available_width(), 32.0);
            ui.allocate_ui_with_layout(size, Layout::left_to_right(Align::Center), |ui| {
                plot_title_ui(ui, "Loss by step");
                curves::loss_key_ui(ui, &self.smoothed);
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    let scales = [(false, "Linear", "Linear scale"), (true, "Log", "Logarithmic scale")];
                    controls::segmented(ui, &mut self.style.is_log, &scales);
                    ui.spacing_mut().item_spacing.x = 12.0;
                    let text = "Running mean over about 10 steps, before the single steps";
                    ui.checkbox(&mut self.style.is_smooth, "Smooth").on_hover_text(text);
                });
            });
            curves::losses_ui(ui, run, &self.smoothed, self.style, plot_height);
        });
        ui.columns(2, |columns| {
            let [scores, rate] = columns else { return };
            controls::card(scores).show(scores, |ui| {
                ui.horizontal(|ui| {
                    plot_title_ui(ui, "Average precision by epoch");
                    curves::score_key_ui(ui, &run.epochs);
                });
                curves::scores_ui(ui, &run.epochs, run.epochs_wanted, plot_height);
            });
            controls::card(rate).show(rate, |ui| {
                ui.horizontal(|ui| {
                    plot_title_ui(ui, "Learning rate by step");
                });
                curves::rate_ui(ui, &run.steps, plot_height);
            });
        });
        if let Some(plan) = &run.plan {
            plan_ui(ui, plan);
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
    }
}

fn plot_title_ui(ui: &mut Ui, title: &str) {
    ui.label(RichText::new(title).text_style(theme::strong()).color(palette(ui).strong));
    ui.add_space(8.0);
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
        batch / f64::from(last.images_per_sec).max(1e-3)
    } else {
        let secs: f64 = run.epochs.iter().map(|epoch| epoch.secs).sum();
        secs / (run.epochs.len() * plan.steps_per_epoch.max(1)) as f64
    };
    Some(steps_left * secs_per_step)
}

fn plan_ui(ui: &mut Ui, plan: &TrainPlan) {
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

fn no_run_ui(ui: &mut Ui, view: &mut View<'_>) {
    if view.session.dataset.is_none() {
        controls::empty_state(ui, "No dataset is open", "A detector learns from labelled images: open some first", |ui| {
            if controls::action_button(ui, Action::Open, Action::Open.unavailable(view.session)) {
                view.act(Action::Open);
            }
        });
        return;
    }
    let text = "Loss curves, average precision and speed appear here while the detector learns. You can go on working in the other workspaces meanwhile";
    controls::empty_state(ui, "No training yet", text, |_| ());
}
