//! The bar that steers a training: what it does now in words, and what it can be told.

use std::path::PathBuf;

use egui::{Align, Button, DragValue, Layout, RichText, Ui, vec2};

use super::action::Action;
use super::app::View;
use super::controls::{self, thousands};
use super::theme::{self, Palette, palette};
use crate::session::Command;
use crate::session::JobKind;
use crate::session::RunView;
use crate::session::Session;
use crate::train::{ResumeRequest, TrainOrder};

/// What a training is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Nothing,
    Preparing,
    Learning,
    Paused,
    StopsAfterEpoch,
    Stopping,
    Diverged,
    Stopped,
    Ended,
    /// Another process trains it.
    Followed,
    /// A run of earlier without its end: it was killed.
    Unfinished,
}

impl State {
    fn of(session: &Session) -> Self {
        let job = session.jobs.iter().find(|job| job.kind == JobKind::Train);
        let Some(run) = &session.run else { return Self::Nothing };
        match job {
            Some(job) if job.stopping => Self::Stopping,
            Some(_) if run.steering.paused => Self::Paused,
            Some(_) if run.steering.stops_after_epoch => Self::StopsAfterEpoch,
            Some(_) if run.steps.is_empty() => Self::Preparing,
            Some(_) => Self::Learning,
            None if run.is_followed => Self::Followed,
            None if run.divergence.is_some() => Self::Diverged,
            None => match &run.summary {
                Some(summary) if summary.stopped => Self::Stopped,
                Some(_) => Self::Ended,
                None => Self::Unfinished,
            },
        }
    }

    fn color(self, palette: &Palette) -> egui::Color32 {
        match self {
            Self::Nothing => palette.faint,
            Self::Preparing | Self::Learning | Self::Followed => palette.accent,
            Self::Paused | Self::StopsAfterEpoch | Self::Stopping | Self::Stopped | Self::Unfinished => palette.warn,
            Self::Diverged => palette.bad,
            Self::Ended => palette.good,
        }
    }
}

/// The state in a sentence.
fn words(session: &Session) -> String {
    let (step, epoch, n_epochs) = session.run.as_ref().map_or((0, 0, 0), |run| {
        let last = run.steps.last();
        (last.map_or(0, |step| step.step + 1), last.map_or(0, |step| step.epoch + 1), run.epochs_wanted)
    });
    let place = format!("epoch {epoch} of {n_epochs}, step {}", thousands(step));
    match State::of(session) {
        State::Nothing => "Nothing has been trained yet".to_owned(),
        State::Preparing => "Getting ready: images are read and the network is planned".to_owned(),
        State::Learning => format!("Learning: {place}"),
        State::Paused => format!("Paused at {place}; its state is saved"),
        State::StopsAfterEpoch => format!("Learning: {place}; stops when this epoch is validated"),
        State::Stopping => "Stopping after this step".to_owned(),
        State::Diverged => format!("Ran away at {place}"),
        State::Stopped => format!("Stopped at {place}"),
        State::Ended => match session.run.as_ref().and_then(ended_early) {
            Some(done) => format!("Ended early: {} of {} epochs", thousands(done), thousands(n_epochs)),
            None => format!("Done: {} epochs, {} steps", thousands(n_epochs), thousands(step)),
        },
        State::Followed => format!("Another program trains this run: {place}"),
        State::Unfinished => format!("Not finished: last seen at {place}"),
    }
}

/// The epochs that were done, where a run ended by itself before all were.
fn ended_early(run: &RunView) -> Option<usize> {
    let summary = run.summary.as_ref()?;
    (!summary.stopped && summary.epochs_done < run.epochs_wanted).then_some(summary.epochs_done)
}

/// What an action tells the running training.
pub fn order(action: Action, session: &Session) -> Option<TrainOrder> {
    let steering = session.run.as_ref().map(|run| run.steering).unwrap_or_default();
    match action {
        Action::PauseTraining if steering.paused => Some(TrainOrder::Continue),
        Action::PauseTraining => Some(TrainOrder::Pause),
        // An order to go on takes it back.
        Action::StopAfterEpoch if steering.stops_after_epoch => Some(TrainOrder::Continue),
        Action::StopAfterEpoch => Some(TrainOrder::StopAfterEpoch),
        Action::ValidateNow => Some(TrainOrder::ValidateNow),
        Action::SaveNow => Some(TrainOrder::SaveNow),
        _ => None,
    }
}

/// What the bar remembers: how an earlier run shall go on.
#[derive(Default)]
pub struct ControlBar {
    /// The run that the values are for.
    dir: Option<PathBuf>,
    epochs: usize,
    lr_scale: f64,
}

impl ControlBar {
    /// The run that is shown goes on, if it can.
    pub fn resume_command(&mut self, session: &Session) -> Option<Command> {
        self.follow(session);
        if self.no_resume(session).is_some() {
            return None;
        }
        let run = session.run.as_ref()?;
        let dir = run.dir.clone()?;
        let request = ResumeRequest {
            project: dir.parent().map(PathBuf::from).unwrap_or_default(),
            run: Some(dir),
            data: None,
            epochs: (self.epochs != run.epochs_wanted).then_some(self.epochs),
            device: None,
            patience: None,
            lr_scale: (State::of(session) == State::Diverged && self.lr_scale != 1.0).then_some(self.lr_scale),
        };
        Some(Command::Resume(Box::new(request)))
    }

    /// Why the run that is shown cannot go on.
    fn no_resume(&self, session: &Session) -> Option<&'static str> {
        let run = session.run.as_ref()?;
        match State::of(session) {
            State::Stopped | State::Unfinished | State::Diverged if run.dir.is_some() => None,
            State::Ended if run.dir.is_some() && self.epochs > run.epochs_wanted => None,
            State::Ended if ended_early(run).is_some() => Some("No epoch was better for long: give it more epochs to go on"),
            State::Ended => Some("All its epochs are done: give it more to go on"),
            State::Followed => Some("Another program trains it"),
            _ => Some("There is no run that could go on"),
        }
    }

    fn follow(&mut self, session: &Session) {
        let Some(run) = &session.run else { return };
        if self.dir != run.dir || self.epochs == 0 {
            *self = Self { dir: run.dir.clone(), epochs: run.epochs_wanted, lr_scale: 0.5 };
        }
    }

    /// Draws the bar.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        self.follow(view.session);
        let palette = palette(ui);
        let state = State::of(view.session);
        let size = vec2(ui.available_width() - 10.0, 30.0);
        ui.allocate_ui_with_layout(size, Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            match state {
                State::Nothing | State::Followed => {}
                State::Stopped | State::Unfinished | State::Diverged | State::Ended => self.resume_ui(ui, view, state),
                _ => orders_ui(ui, view, state),
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                let (rect, _) = ui.allocate_exact_size(vec2(12.0, 12.0), egui::Sense::hover());
                ui.painter().circle_filled(rect.center(), 5.0, state.color(palette));
                let text = RichText::new(words(view.session)).text_style(theme::strong()).color(palette.strong);
                ui.add(egui::Label::new(text).truncate());
            });
        });
    }

    /// How the run that is shown shall go on; laid out from the right.
    fn resume_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, state: State) {
        if view.session.run.as_ref().is_none_or(|run| run.dir.is_none()) {
            return;
        }
        let reason = Action::ResumeTraining.unavailable(view.session).or(self.no_resume(view.session));
        let (text, tooltip) = match state {
            State::Diverged => ("Rewind and go on", "Go back to the last good state, and on from there"),
            State::Ended => ("Train on", "Go on to more epochs"),
            _ => ("Resume", "Go on at the exact step"),
        };
        let response = ui.add_enabled(reason.is_none(), Button::new(text)).on_hover_text(tooltip);
        if response.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
            view.act(Action::ResumeTraining);
        }
        let drag = DragValue::new(&mut self.epochs).range(1..=5000).suffix(" epochs");
        ui.add(drag).on_hover_text("Epochs in all, with those that are done").accessible_name("Epochs to train to");
        controls::note(ui, "to");
        if state == State::Diverged {
            let drag = DragValue::new(&mut self.lr_scale).range(0.01..=1.0).speed(0.01).max_decimals(2).prefix("× ");
            ui.add(drag).on_hover_text("Factor for the learning rate from there on").accessible_name("Learning rate factor");
            controls::note(ui, "Learning rate");
        }
    }
}

/// What a running training can be told; laid out from the right.
fn orders_ui(ui: &mut Ui, view: &mut View<'_>, state: State) {
    let pause = if state == State::Paused { "Continue" } else { "Pause" };
    let buttons = [
        (Action::SaveNow, Action::SaveNow.title()),
        (Action::ValidateNow, Action::ValidateNow.title()),
        (Action::StopTraining, Action::StopTraining.title()),
        (Action::StopAfterEpoch, if state == State::StopsAfterEpoch { "Do not stop" } else { Action::StopAfterEpoch.title() }),
        (Action::PauseTraining, pause),
    ];
    for (action, text) in buttons {
        let reason = action.unavailable(view.session).or((state == State::Stopping).then_some("It is stopping"));
        let response = ui.add_enabled(reason.is_none(), Button::new(text)).on_hover_text(action.tooltip(ui.ctx()));
        if response.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
            view.act(action);
        }
    }
}
