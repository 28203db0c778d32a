//! The workspace *Train*: the settings of a run, how it goes, and how it compares with earlier ones.
//!
//! Left the form, right one of a few pages: the run, and earlier runs side by side.

use std::path::PathBuf;
use std::sync::Arc;

use egui::{Frame, Margin, Panel, RichText, ScrollArea, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, path_of, thousands};
use super::theme::palette;
use super::train_compare::ComparePage;
use super::train_control;
use super::train_form::TrainForm;
use super::train_run::RunPage;
use crate::dataset::{Dataset, Split};
use crate::session::Command;
use crate::session::CommandDone;
use crate::session::JobKind;
use crate::session::Session;
use crate::session::Settings;

/// What the right side shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrainPage {
    #[default]
    Run,
    Compare,
}

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct TrainPanel {
    form: TrainForm,
    page: TrainPage,
    run: RunPage,
    compare: ComparePage,
}

impl TrainPanel {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(14, 10));
        Panel::left("train form").frame(frame).default_size(320.0).size_range(290.0..=420.0).show(ui, |ui| self.form_ui(ui, view));
        let frame = Frame::new().fill(palette(ui).backdrop).inner_margin(Margin { left: 14, right: 6, top: 10, bottom: 0 });
        egui::CentralPanel::default().frame(frame).show(ui, |ui| {
            train_control::ui(ui, view);
            self.pages_ui(ui);
            match self.page {
                TrainPage::Run => match &view.session.run {
                    Some(run) => self.run.ui(ui, view, run),
                    None => no_run_ui(ui, view),
                },
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
            CommandDone::Trained(_) => self.compare.refresh(),
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

    /// Shows the whole run again in all plots.
    pub fn reset_zoom(&mut self) {
        self.run.reset_zoom();
    }

    /// The run that the form describes, if it can start.
    pub fn start_command(&self, session: &Session) -> Option<Command> {
        if self.form.problem().is_some() {
            return None;
        }
        let open = session.dataset.as_ref()?;
        self.form.config(&open.dataset.source).map(|config| Command::Train(Box::new(config)))
    }

    fn pages_ui(&mut self, ui: &mut Ui) {
        let pages = [
            (TrainPage::Run, "Run", "How the training goes"),
            (TrainPage::Compare, "Compare", "Earlier runs side by side: curves, figures, settings, notes"),
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
                let reason = Action::StartTraining.unavailable(view.session).or(self.form.problem());
                if controls::primary_button_wide(ui, Action::StartTraining, reason, width) {
                    view.act(Action::StartTraining);
                }
                if let Some(reason) = reason {
                    controls::note(ui, reason);
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
