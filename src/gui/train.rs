//! The workspace *Train*: the settings of a run, how it goes, and how it compares with earlier ones.
//!
//! Left the form, right the bar that steers and one of a few pages: what there is to see before the start, the run, its
//! detections from epoch to epoch, earlier runs side by side, and runs that wait.

use std::path::PathBuf;
use std::sync::Arc;

use egui::{Frame, Margin, Panel, RichText, ScrollArea, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, path_of, thousands};
use super::theme::palette;
use super::train_before::BeforePage;
use super::train_compare::ComparePage;
use super::train_control::ControlBar;
use super::train_form::TrainForm;
use super::train_queue::QueuePage;
use super::train_run::RunPage;
use super::train_samples::SamplesPage;
use super::welcome;
use crate::dataset::{Dataset, Split};
use crate::session::Command;
use crate::session::CommandDone;
use crate::session::JobKind;
use crate::session::Session;
use crate::session::Settings;
use crate::train::TrainConfig;
use crate::train::overfit::DEFAULT_STEPS;

/// Why a page of this workspace needs a dataset.
pub const NO_IMAGES: &str = "A detector learns from labelled images: open some first";

/// What the right side shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrainPage {
    Before,
    #[default]
    Run,
    Samples,
    Compare,
    Queue,
}

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct TrainPanel {
    form: TrainForm,
    page: TrainPage,
    control: ControlBar,
    before: BeforePage,
    run: RunPage,
    samples: SamplesPage,
    compare: ComparePage,
    queue: QueuePage,
}

impl TrainPanel {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(14, 10));
        Panel::left("train form").frame(frame).default_size(320.0).size_range(290.0..=420.0).show(ui, |ui| self.form_ui(ui, view));
        let frame = Frame::new().fill(palette(ui).backdrop).inner_margin(Margin { left: 14, right: 6, top: 10, bottom: 0 });
        egui::CentralPanel::default().frame(frame).show(ui, |ui| {
            self.control.ui(ui, view);
            self.pages_ui(ui);
            match self.page {
                TrainPage::Run => match &view.session.run {
                    Some(run) => self.run.ui(ui, view, run),
                    None => no_run_ui(ui, view),
                },
                TrainPage::Before => {
                    let config = self.config(view.session);
                    self.before.ui(ui, view, config.as_ref(), self.form.problem());
                }
                TrainPage::Samples => match &view.session.run {
                    Some(run) => self.samples.ui(ui, view, run),
                    None => no_run_ui(ui, view),
                },
                TrainPage::Queue => {
                    let config = self.config(view.session);
                    let keys = self.form.keys(view.session);
                    self.queue.ui(ui, view, config.as_ref(), &keys);
                }
                TrainPage::Compare => {
                    let project = path_of(&self.form.project).unwrap_or_else(|| PathBuf::from("runs"));
                    self.compare.ui(ui, view, &project);
                }
            }
        });
    }

    /// The form takes defaults that fit a dataset when one is opened.
    pub fn on_opened(&mut self, dataset: &Arc<Dataset>, settings: &Settings) {
        self.form = TrainForm { device: self.form.device, ..TrainForm::for_dataset(dataset, settings) };
    }

    /// Follows what jobs have done.
    pub fn on_done(&mut self, done: &CommandDone) {
        match done {
            CommandDone::ChartSaved(path) => self.run.on_saved(path.clone()),
            CommandDone::Trained(_) | CommandDone::Swept { .. } => self.compare.refresh(),
            _ => {}
        }
    }

    pub fn set_start_weights(&mut self, path: PathBuf) {
        self.form.set_start_weights(path);
    }

    pub fn set_hyp_file(&mut self, path: PathBuf) {
        self.form.set_hyp_file(path);
    }

    pub fn show(&mut self, page: TrainPage) {
        self.page = page;
    }

    /// Notes that are typed and not kept yet, once their field is left; asked for after drawing.
    pub fn unsaved_notes(&mut self, session: &Session) -> Option<Command> {
        self.compare.unsaved_notes(session)
    }

    /// Shows the whole run again in all plots.
    pub fn reset_zoom(&mut self) {
        self.run.reset_zoom();
    }

    /// The run that the form describes, if it can start.
    fn config(&self, session: &Session) -> Option<TrainConfig> {
        if self.form.problem().is_some() {
            return None;
        }
        self.form.config(&session.dataset.as_ref()?.dataset.source)
    }

    /// Starts the run of the form.
    pub fn start_command(&mut self, session: &Session) -> Option<Command> {
        let config = self.config(session)?;
        self.page = TrainPage::Run;
        Some(Command::Train(Box::new(config)))
    }

    /// Does something else with the run of the form.
    pub fn form_command(&mut self, action: Action, session: &Session) -> Option<Command> {
        let config = Box::new(self.config(session)?);
        let (page, command) = match action {
            Action::Enqueue => (TrainPage::Queue, Command::Enqueue(config)),
            Action::PreviewBatches => (TrainPage::Before, Command::PreviewBatches(config)),
            Action::OverfitCheck => (TrainPage::Before, Command::OverfitCheck { config, n_steps: DEFAULT_STEPS }),
            _ => return None,
        };
        self.page = page;
        Some(command)
    }

    /// The run that is shown goes on.
    pub fn resume_command(&mut self, session: &Session) -> Option<Command> {
        let command = self.control.resume_command(session)?;
        self.page = TrainPage::Run;
        Some(command)
    }

    /// Goes to the next or the previous epoch of the detections.
    pub fn step(&mut self, session: &Session, forward: bool) {
        if let (TrainPage::Samples, Some(run)) = (self.page, &session.run) {
            self.samples.step(run, forward);
        }
    }

    fn pages_ui(&mut self, ui: &mut Ui) {
        let pages = [
            (TrainPage::Before, "Before", "What will be learnt from: figures, first batches, a check in seconds"),
            (TrainPage::Run, "Run", "How the training goes"),
            (TrainPage::Samples, "Detections", "What is found on the same pictures from epoch to epoch"),
            (TrainPage::Compare, "Compare", "Earlier runs side by side: curves, figures, settings, notes"),
            (TrainPage::Queue, "Queue", "Runs that wait, and sweeps over some values"),
        ];
        ui.horizontal(|ui| {
            controls::segmented(ui, &mut self.page, &pages);
        });
        ui.add_space(4.0);
    }

    fn form_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let is_running = view.session.is_running(JobKind::Train);
        Panel::bottom("train start").frame(Frame::new().inner_margin(Margin { top: 10, ..Margin::ZERO })).show_separator_line(false).show(
            ui,
            |ui| {
                let width = ui.available_width();
                // While one trains, the next can wait.
                let action = if is_running { Action::Enqueue } else { Action::StartTraining };
                let reason = action.unavailable(view.session).or(self.form.problem());
                if controls::primary_button_wide(ui, action, reason, width) {
                    view.act(action);
                }
                if let Some(reason) = reason {
                    controls::note(ui, reason);
                }
            },
        );
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            // The scroll bar lies on nothing.
            ui.set_max_width(ui.available_width() - 10.0);
            ui.label(RichText::new("New training").heading().color(palette(ui).strong));
            ui.scope(|ui| {
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
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 20.0;
            controls::figure(ui, &thousands(n_train), "train images");
            controls::figure(ui, &thousands(n_val), "val images");
            if !self.form.is_batch_auto {
                let n_steps = n_train.div_ceil(self.form.batch.max(1));
                controls::figure(ui, &thousands(n_steps * self.form.epochs), "steps");
            }
        });
        if n_train == 0 {
            ui.label(RichText::new("The dataset has no train split").small().color(palette(ui).bad));
        } else if n_val == 0 {
            let text = "Without a val split nothing shows how good the detector is";
            ui.label(RichText::new(text).small().color(palette(ui).warn));
        }
    }
}

fn no_run_ui(ui: &mut Ui, view: &mut View<'_>) {
    if view.session.dataset.is_none() {
        welcome::no_dataset_ui(ui, view, NO_IMAGES);
        return;
    }
    let text = "Loss curves, average precision and speed appear here while the detector learns. You can go on working in the other workspaces meanwhile";
    controls::empty_state(ui, "No training yet", text, |_| ());
}
