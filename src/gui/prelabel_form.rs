//! What is asked before weights propose labels: which images, which weights, from which score on.

use std::path::PathBuf;

use egui::{Frame, Grid, Id, Key, Modal, Modifiers, Slider, Ui};

use super::controls::{self, counted, path_of};
use crate::engine::Device;
use crate::session::JobKind;
use crate::session::Session;
use crate::session::{BrowseKind, Command, PrelabelRequest};

/// Which images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Shown,
    Chosen,
    Listed,
}

/// What the form remembers while it is open.
pub struct PrelabelForm {
    which: Which,
    only_unlabelled: bool,
    weights: String,
    weights_seen: Option<PathBuf>,
    device: Device,
    min_score: f32,
    iou: f32,
}

/// The images among which one chooses.
pub struct Choice<'a> {
    /// The image that is shown alone, if one is.
    pub shown: Option<usize>,
    /// Chosen in the grid.
    pub chosen: Vec<usize>,
    /// All that pass the filter.
    pub listed: &'a [u32],
}

/// What came of a frame.
#[derive(Debug, Default)]
pub struct FormDone {
    pub command: Option<Command>,
    pub closes: bool,
}

impl PrelabelForm {
    pub fn new(choice: &Choice<'_>) -> Self {
        let which = match choice {
            Choice { shown: Some(_), .. } => Which::Shown,
            Choice { chosen, .. } if !chosen.is_empty() => Which::Chosen,
            Choice { .. } => Which::Listed,
        };
        Self { which, only_unlabelled: false, weights: String::new(), weights_seen: None, device: Device::Cpu, min_score: 0.25, iou: 0.45 }
    }

    pub fn ui(&mut self, ui: &Ui, session: &Session, choice: &Choice<'_>) -> FormDone {
        if session.weights != self.weights_seen {
            self.weights_seen.clone_from(&session.weights);
            self.weights = session.weights.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        }
        let mut done = FormDone::default();
        let enters = ui.input_mut(|input| input.consume_key(Modifiers::NONE, Key::Enter));
        let frame = Frame::window(ui.style()).inner_margin(24);
        let modal = Modal::new(Id::unique("pre-label")).frame(frame).show(ui.ctx(), |ui| {
            ui.set_width(520.0);
            done.closes = controls::section_with(ui, "Pre-label", |ui| ui.button("Close").clicked());
            controls::note(ui, "Weights propose labels. They are drawn dashed, and become labels only when you accept them");
            ui.add_space(8.0);
            Grid::new("pre-label form").num_columns(2).spacing([14.0, 8.0]).show(ui, |ui| {
                controls::weak(ui, "Images");
                ui.vertical(|ui| self.images_ui(ui, choice));
                ui.end_row();
                controls::weak(ui, "Weights");
                if controls::path_field(ui, "Weights", &mut self.weights, "A .safetensors file").browse {
                    done.command = Some(Command::Browse(BrowseKind::Weights));
                }
                ui.end_row();
                controls::weak(ui, "Score from");
                let slider = Slider::new(&mut self.min_score, 0.01..=1.0).max_decimals(2);
                controls::slider(ui, slider, "Score from", "Boxes with a lower score are not proposed", 180.0);
                ui.end_row();
                controls::weak(ui, "Overlap");
                let slider = Slider::new(&mut self.iou, 0.1..=0.95).max_decimals(2);
                controls::slider(ui, slider, "Overlap", "Of two boxes of a class that overlap more, the surer one is kept", 180.0);
                ui.end_row();
                controls::weak(ui, "Device");
                controls::device_ui(ui, &mut self.device, &session.devices);
                ui.end_row();
            });
            ui.add_space(10.0);
            let images = self.images(session, choice);
            let reason = self.problem(session, &images);
            let text = format!("Propose on {}", counted(images.len(), "image"));
            let button = ui.add_enabled(reason.is_none(), egui::Button::new(text)).on_hover_text("Start (Enter)");
            let clicked = button.on_disabled_hover_text(reason.unwrap_or_default()).clicked();
            if let Some(reason) = reason {
                controls::note(ui, reason);
            } else if clicked || enters {
                let weights = path_of(&self.weights).unwrap_or_default();
                let Self { device, min_score, iou, .. } = *self;
                done.command = Some(Command::Prelabel(PrelabelRequest { images, weights, device, min_score, iou }));
                done.closes = true;
            }
        });
        done.closes |= modal.should_close();
        done
    }

    fn images_ui(&mut self, ui: &mut Ui, choice: &Choice<'_>) {
        let chosen = format!("Selected ({})", controls::thousands(choice.chosen.len()));
        let listed = format!("All listed ({})", controls::thousands(choice.listed.len()));
        let mut choices = Vec::new();
        if choice.shown.is_some() {
            choices.push((Which::Shown, "This image", "The image that is shown"));
        }
        if !choice.chosen.is_empty() {
            choices.push((Which::Chosen, chosen.as_str(), "What is selected in the grid"));
        }
        choices.push((Which::Listed, listed.as_str(), "All that pass the filter"));
        controls::segmented(ui, &mut self.which, &choices);
        ui.checkbox(&mut self.only_unlabelled, "Only those without labels").on_hover_text("Leave out images that have labels already");
    }

    fn images(&self, session: &Session, choice: &Choice<'_>) -> Vec<usize> {
        let mut images: Vec<usize> = match self.which {
            Which::Shown => choice.shown.into_iter().collect(),
            Which::Chosen => choice.chosen.clone(),
            Which::Listed => choice.listed.iter().map(|&image| image as usize).collect(),
        };
        images.retain(|&image| !self.only_unlabelled || session.labels(image).is_empty());
        images
    }

    fn problem(&self, session: &Session, images: &[usize]) -> Option<&'static str> {
        if path_of(&self.weights).is_none() {
            Some("Choose weights")
        } else if images.is_empty() {
            Some("There is no such image")
        } else if session.is_running(JobKind::Prelabel) {
            Some("Proposals are being made already")
        } else {
            None
        }
    }
}
