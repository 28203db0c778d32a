//! The bar at the bottom: what is open, and what is running, with its progress and a way to stop it.

use egui::{Align, Frame, Label, Layout, Margin, Panel, ProgressBar, RichText, Spinner, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, counted};
use super::theme::palette;
use crate::session::Command;
use crate::session::JobKind;
use crate::session::JobStatus;
use crate::session::Session;

/// Draws the bar. `n_labels` is absent while labels are being read.
pub fn ui(ui: &mut Ui, view: &mut View<'_>, n_labels: Option<usize>, shows_history: bool) {
    let palette = palette(ui);
    let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(14, 0));
    Panel::bottom("status bar").frame(frame).exact_size(30.0).show(ui, |ui| {
        ui.horizontal_centered(|ui| {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                if shows_history {
                    history_ui(ui, view);
                }
                let shown = view.session.jobs.iter().filter(|job| !matches!(job.kind, JobKind::Browse | JobKind::ListDevices));
                let mut cancelled = None;
                for job in shown {
                    if job_ui(ui, job, progress(view.session, job)) {
                        cancelled = Some(job.id);
                    }
                    ui.add_space(8.0);
                }
                if let Some(id) = cancelled {
                    view.ask(Command::Cancel(id));
                }
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| dataset_ui(ui, view, n_labels));
            });
        });
    });
}

/// Whether edits are on disk, and the ways back and on again; drawn from the right.
fn history_ui(ui: &mut Ui, view: &mut View<'_>) {
    let session = view.session;
    let Some(history) = session.dataset.as_ref().map(|open| &open.history) else { return };
    ui.spacing_mut().interact_size.y = 20.0;
    ui.spacing_mut().button_padding.y = 1.0;
    let is_settled = history.n_pending == 0;
    for action in [Action::Redo, Action::Undo] {
        let nothing = (action == Action::Undo && is_settled && history.undo.is_none()).then_some("There is nothing to undo");
        if step_button(ui, session, action, nothing) {
            view.act(action);
        }
    }
    let text = if is_settled { "Saved".to_owned() } else { format!("Saving {}", counted(history.n_pending, "edit")) };
    controls::note(ui, text).on_hover_text("Every edit is written to the disk as soon as it is made");
    ui.add_space(8.0);
}

/// A button for undo or redo, whose tooltip names the edit.
pub fn step_button(ui: &mut Ui, session: &Session, action: Action, reason: Option<&str>) -> bool {
    let history = session.dataset.as_ref().map(|open| &open.history);
    let name = history.and_then(|history| if action == Action::Undo { history.undo.as_ref() } else { history.redo.as_ref() });
    let tooltip = action.tooltip(ui.ctx());
    let tooltip = name.map_or_else(|| tooltip.clone(), |name| format!("{}: {name}\n{tooltip}", action.title()));
    let reason = action.unavailable(session).or(reason);
    let response = ui.add_enabled(reason.is_none(), egui::Button::new(action.title())).on_hover_text(tooltip);
    response.on_disabled_hover_text(reason.unwrap_or_default()).clicked()
}

fn dataset_ui(ui: &mut Ui, view: &View<'_>, n_labels: Option<usize>) {
    let Some(open) = &view.session.dataset else {
        controls::note(ui, "No dataset is open");
        return;
    };
    let dataset = &open.dataset;
    let name = dataset.root.file_name().map_or_else(|| dataset.root.display().to_string(), |name| name.to_string_lossy().into_owned());
    ui.label(RichText::new(name).small().color(palette(ui).strong)).on_hover_text(dataset.source.display().to_string());
    let mut counts = vec![counted(dataset.images.len(), "image")];
    counts.extend(n_labels.map(|n_labels| counted(n_labels, "label")));
    counts.push(if dataset.names.len() == 1 { "1 class".to_owned() } else { format!("{} classes", dataset.names.len()) });
    ui.add(Label::new(RichText::new(counts.join(",  ")).small().color(palette(ui).weak)).truncate());
}

/// Draws a job from the right; returns whether it should stop.
fn job_ui(ui: &mut Ui, job: &JobStatus, (done, total): (u64, u64)) -> bool {
    let palette = palette(ui);
    let title = job.kind.title();
    ui.spacing_mut().interact_size.y = 20.0;
    ui.spacing_mut().button_padding.y = 1.0;
    let text = if job.stopping { "Stopping" } else { "Stop" };
    let button = egui::Button::new(RichText::new(text).small());
    let response = ui.add_enabled(!job.stopping, button).on_hover_text(format!("Stop: {}", title.to_lowercase()));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, !job.stopping, format!("Stop {}", title.to_lowercase())));
    let stop = response.on_disabled_hover_text("It ends with the step that it is in").clicked();
    if total > 0 {
        let fraction = done as f32 / total as f32;
        let bar = ProgressBar::new(fraction).desired_width(120.0).desired_height(6.0).corner_radius(3.0).fill(palette.accent);
        ui.add(bar).on_hover_text(format!("{} of {}", controls::thousands(done as usize), controls::thousands(total as usize)));
    } else {
        ui.add(Spinner::new().size(12.0).color(palette.accent));
    }
    ui.label(RichText::new(title).small().color(palette.text));
    stop
}

/// Of a training all steps, as its job reports only the stages between them; else what the job says.
fn progress(session: &Session, job: &JobStatus) -> (u64, u64) {
    let run = session.run.as_ref().filter(|run| job.kind == JobKind::Train && !run.steps.is_empty());
    match run.and_then(|run| Some((run, run.plan.as_ref()?))) {
        Some((run, plan)) => (run.steps.len() as u64, (plan.steps_per_epoch * run.epochs_wanted) as u64),
        None => (job.done, job.total),
    }
}
