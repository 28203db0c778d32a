//! The workspace *Export*: weights for other programs, and the check of what was written.

use std::path::PathBuf;

use egui::{Frame, Margin, RichText, ScrollArea, Ui};

use super::action::Action;
use super::app::View;
use super::controls::{self, path_of, shell_word};
use super::theme::{self, palette};
use crate::export::ExportFormat;
use crate::export::ExportReport;
use crate::session::Session;
use crate::session::{BrowseKind, Command};

/// What the workspace remembers between frames.
pub struct ExportPanel {
    weights: String,
    weights_seen: Option<PathBuf>,
    format: ExportFormat,
    out: String,
    /// The person has written an own path, which is left alone.
    keeps_out: bool,
}

impl Default for ExportPanel {
    fn default() -> Self {
        Self { weights: String::new(), weights_seen: None, format: ExportFormat::Onnx, out: String::new(), keeps_out: false }
    }
}

impl ExportPanel {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        self.follow(view.session);
        let margin = Margin { left: 24, right: 8, top: 20, bottom: 0 };
        Frame::new().inner_margin(margin).show(ui, |ui| {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
                ui.vertical_centered(|ui| {
                    ui.set_max_width(720.0);
                    ui.vertical(|ui| {
                        ui.spacing_mut().item_spacing.y = theme::GAP;
                        controls::card(ui).inner_margin(Margin::same(18)).show(ui, |ui| self.form_ui(ui, view));
                        if let Some(report) = &view.session.export {
                            report_ui(ui, report);
                        }
                    });
                });
            });
        });
    }

    pub fn set_out(&mut self, path: PathBuf) {
        self.out = path.display().to_string();
        self.keeps_out = true;
    }

    /// The export that the form describes, if it can start.
    pub fn start_command(&mut self, session: &Session) -> Option<Command> {
        self.follow(session);
        Some(Command::Export { weights: path_of(&self.weights)?, format: self.format, out: path_of(&self.out)? })
    }

    fn follow(&mut self, session: &Session) {
        if self.weights_seen != session.weights {
            self.weights_seen.clone_from(&session.weights);
            if let Some(path) = &session.weights {
                self.weights = path.display().to_string();
            }
        }
        if !self.keeps_out {
            self.out = path_of(&self.weights).map_or_else(String::new, |weights| suggested(&weights, self.format));
        }
    }

    fn form_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 5.0;
        ui.label(RichText::new("Export a detector").heading().color(palette(ui).strong));
        controls::weak(ui, "The auxiliary branch is left out and batch norm folded in, so the file holds only what detection needs");
        ui.add_space(8.0);
        controls::note(ui, "Weights");
        if controls::path_field(ui, "Weights", &mut self.weights, "runs/…/weights/best.safetensors").browse {
            view.ask(Command::Browse(BrowseKind::Weights));
        }
        ui.add_space(8.0);
        controls::note(ui, "Format");
        let formats = [
            (ExportFormat::Onnx, "ONNX", "Runs in ONNX Runtime, OpenCV, TensorRT and others"),
            (ExportFormat::Safetensors, "safetensors", "The folded weights for this program or Python"),
        ];
        if controls::segmented(ui, &mut self.format, &formats) {
            self.keeps_out = false;
        }
        controls::note(ui, describe(self.format));
        ui.add_space(8.0);
        controls::note(ui, "File to write");
        let field = controls::path_field(ui, "Output file", &mut self.out, "detector.onnx");
        self.keeps_out |= field.changed;
        if field.browse {
            view.ask(Command::Browse(BrowseKind::ExportFile));
        }
        ui.add_space(12.0);
        let reason = Action::Export.unavailable(view.session).or(self.problem());
        if controls::primary_button(ui, Action::Export, reason) {
            view.act(Action::Export);
        }
        if let Some(reason) = reason {
            controls::note(ui, reason);
            return;
        }
        ui.add_space(8.0);
        controls::note(ui, "The same from the command line");
        controls::command_line(ui, &self.command_line());
    }

    fn problem(&self) -> Option<&'static str> {
        if path_of(&self.weights).is_none() {
            return Some("Choose weights: train a detector, or browse for a .safetensors file");
        }
        path_of(&self.out).is_none().then_some("Say which file to write")
    }

    fn command_line(&self) -> String {
        let format = match self.format {
            ExportFormat::Onnx => "onnx",
            ExportFormat::Safetensors => "safetensors",
        };
        format!("boxwright export --weights {} --format {format} --out {}", shell_word(self.weights.trim()), shell_word(self.out.trim()))
    }
}

/// A file beside the weights, named after the run.
fn suggested(weights: &std::path::Path, format: ExportFormat) -> String {
    let ending = match format {
        ExportFormat::Onnx => "onnx",
        ExportFormat::Safetensors => "deploy.safetensors",
    };
    weights.with_extension(ending).display().to_string()
}

fn describe(format: ExportFormat) -> &'static str {
    match format {
        ExportFormat::Onnx => "Input `images`: batch, 3, height, width, RGB from 0 to 1. Output `output0`: batch, 4 + classes, boxes",
        ExportFormat::Safetensors => "Names as in the public YOLOv9 code, with class names and input size in the metadata",
    }
}

fn report_ui(ui: &mut Ui, report: &ExportReport) {
    let palette = palette(ui);
    let frame = controls::card(ui).inner_margin(Margin::same(18)).stroke(egui::Stroke::new(1.0, palette.good.gamma_multiply(0.6)));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 5.0;
        controls::section_with(ui, "Written and checked", |ui| {
            controls::weak(ui, controls::bytes(report.size_bytes));
        });
        ui.add(egui::Label::new(RichText::new(report.path.display().to_string()).color(palette.text)).truncate().selectable(true));
        ui.add_space(4.0);
        for check in &report.checks {
            ui.horizontal_wrapped(|ui| {
                ui.label(RichText::new("✓").color(palette.good));
                ui.label(RichText::new(check).color(palette.weak));
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_follows_weights_and_format_until_one_is_typed() {
        let mut panel = ExportPanel { weights: "runs/a/weights/best.safetensors".to_owned(), ..ExportPanel::default() };
        let session = Session::new(crate::session::Settings::default(), std::sync::Arc::new(|| {}));
        panel.follow(&session);
        assert_eq!(panel.out, "runs/a/weights/best.onnx");
        panel.format = ExportFormat::Safetensors;
        panel.follow(&session);
        assert_eq!(panel.out, "runs/a/weights/best.deploy.safetensors");
        panel.set_out("mine.onnx".into());
        panel.follow(&session);
        assert_eq!(panel.out, "mine.onnx");
    }
}
