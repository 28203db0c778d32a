//! The bar that steers a training: what it does now in words, and what it can be told.

use egui::{Align, Button, Layout, RichText, Ui, vec2};

use super::action::Action;
use super::app::View;
use super::controls::thousands;
use super::theme::{self, Palette, palette};
use crate::session::JobKind;
use crate::session::Session;
use crate::train::TrainOrder;

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
    /// A run of earlier, without its end: it was killed, or is still running elsewhere.
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
            Self::Preparing | Self::Learning => palette.accent,
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
        State::Diverged => format!("Stopped by itself at {place}: the numbers ran away"),
        State::Stopped => format!("Stopped at {place}"),
        State::Ended => format!("Done: {} epochs, {} steps", thousands(n_epochs), thousands(step)),
        State::Unfinished => format!("Not finished: last seen at {place}"),
    }
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

/// Draws the bar.
pub fn ui(ui: &mut Ui, view: &mut View<'_>) {
    let palette = palette(ui);
    let state = State::of(view.session);
    let size = vec2(ui.available_width() - 10.0, 30.0);
    ui.allocate_ui_with_layout(size, Layout::right_to_left(Align::Center), |ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        if view.session.is_running(JobKind::Train) {
            let pause = if state == State::Paused { "Continue" } else { "Pause" };
            // From the right.
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
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
            let (rect, _) = ui.allocate_exact_size(vec2(12.0, 12.0), egui::Sense::hover());
            ui.painter().circle_filled(rect.center(), 5.0, state.color(palette));
            let text = RichText::new(words(view.session)).text_style(theme::strong()).color(palette.strong);
            ui.add(egui::Label::new(text).truncate());
        });
    });
}
