//! The settings of a training as they are typed, and the run that they describe.

use std::path::{Path, PathBuf};

use egui::{ComboBox, DragValue, Ui};

use super::app::View;
use super::controls::{self, path_of, shell_word};
use crate::dataset::{Dataset, Split};
use crate::engine::Device;
use crate::session::BrowseKind;
use crate::session::Command;
use crate::session::Session;
use crate::session::Settings;
use crate::train::{BatchChoice, TrainConfig};
use crate::yolo::Model;

/// Sides of the input that are offered; all multiples of the largest stride.
const SIDES: [u32; 7] = [96, 128, 160, 320, 416, 640, 1280];

/// What is typed.
pub struct TrainForm {
    pub model: Model,
    pub epochs: usize,
    pub batch: usize,
    pub imgsz: u32,
    pub device: Device,
    pub name: String,
    pub project: String,
    pub start_weights: String,
}

impl Default for TrainForm {
    fn default() -> Self {
        Self {
            model: Model::ALL[0],
            epochs: 50,
            batch: 8,
            imgsz: 320,
            device: Device::Cpu,
            name: "exp".to_owned(),
            project: "runs".to_owned(),
            start_weights: String::new(),
        }
    }
}

impl TrainForm {
    /// Defaults that fit a dataset: what a CPU trains in minutes where it is small.
    pub fn for_dataset(dataset: &Dataset, settings: &Settings) -> Self {
        let n_train = dataset.split(Split::Train).count();
        let is_sample = dataset.root == settings.sample_dir() || dataset.root.file_name().is_some_and(|name| name == "parts");
        let name = dataset.root.file_name().map_or_else(|| "exp".to_owned(), |name| name.to_string_lossy().into_owned());
        let (imgsz, epochs) = match n_train {
            _ if is_sample => (160, 70),
            0..=1000 => (320, 100),
            _ => (640, 100),
        };
        let batch = if n_train < 64 { 4 } else { 8 };
        Self { epochs, batch, imgsz, name, ..Self::default() }
    }

    /// Why it cannot be started.
    pub fn problem(&self) -> Option<&'static str> {
        if self.name.trim().is_empty() || self.name.contains(['/', '\\']) {
            return Some("Give the run a name without slashes");
        }
        path_of(&self.project).is_none().then_some("Say in which folder runs are kept")
    }

    /// The run on the open dataset.
    pub fn config(&self, session: &Session) -> Option<TrainConfig> {
        let open = session.dataset.as_ref()?;
        Some(TrainConfig {
            model: self.model,
            weights: path_of(&self.start_weights),
            epochs: self.epochs,
            batch: BatchChoice::Count(self.batch),
            imgsz: self.imgsz,
            device: self.device,
            project: path_of(&self.project)?,
            name: self.name.trim().to_owned(),
            ..TrainConfig::new(&open.dataset.source)
        })
    }

    /// The same run from the command line.
    pub fn command_line(&self, data: &Path) -> String {
        let word = |path: &Path| shell_word(&path.display().to_string());
        let Self { model, epochs, batch, imgsz, .. } = self;
        let device = match self.device {
            Device::Cpu => String::new(),
            device @ Device::Cuda(_) => format!(" --device {}", controls::device_word(device)),
        };
        let start = path_of(&self.start_weights).map_or_else(String::new, |weights| format!(" --weights {}", word(&weights)));
        format!(
            "boxwright train --data {} --model {model} --epochs {epochs} --batch {batch} --imgsz {imgsz}{device}{start} --project {} --name {}",
            word(data),
            shell_word(self.project.trim()),
            shell_word(self.name.trim())
        )
    }

    /// Draws the fields. All are locked while a training runs.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let width = ui.available_width();
        field_ui(
            ui,
            "Model",
            "t is the smallest and fastest, e the largest; yolov9 learns with an auxiliary branch, gelan without",
            |ui| {
                let combo = ComboBox::from_id_salt("model").width(width).selected_text(self.model.to_string());
                let response = combo.show_ui(ui, |ui| {
                    for model in Model::ALL {
                        ui.selectable_value(&mut self.model, model, model.to_string());
                    }
                });
                response.response.accessible_name("Model");
            },
        );
        ui.columns(3, |columns| {
            let [epochs, batch, side] = columns else { return };
            field_ui(epochs, "Epochs", "How often the whole train split is seen", |ui| {
                number_ui(ui, "Epochs", &mut self.epochs, 1..=5000, 1.0);
            });
            field_ui(batch, "Batch", "Images that are computed at once; more need more memory", |ui| {
                number_ui(ui, "Batch", &mut self.batch, 1..=256, 0.2);
            });
            field_ui(
                side,
                "Image size",
                "Pixels along a side of the network's input: a small one is fast, a large one sees small objects",
                |ui| {
                    let width = ui.available_width();
                    let combo = ComboBox::from_id_salt("imgsz").width(width).selected_text(self.imgsz.to_string());
                    let response = combo.show_ui(ui, |ui| {
                        for side in SIDES {
                            ui.selectable_value(&mut self.imgsz, side, format!("{side} px"));
                        }
                    });
                    response.response.accessible_name("Image size");
                },
            );
        });
        field_ui(ui, "Start from", "Weights to begin with: far fewer epochs are needed than from scratch", |ui| {
            let field = controls::path_field(ui, "Start weights", &mut self.start_weights, "Nothing: from scratch");
            if field.browse {
                view.ask(Command::Browse(BrowseKind::StartWeights));
            }
        });
        field_ui(ui, "Run name", "The run's folder; a number is added when it exists", |ui| {
            controls::text_field(ui, "Run name", &mut self.name, "exp", width);
        });
        field_ui(ui, "Runs folder", "Where the run's folder is made, relative to where the program was started", |ui| {
            controls::text_field(ui, "Runs folder", &mut self.project, "runs", width);
        });
        field_ui(ui, "Device", "Where it is computed: an NVIDIA GPU is many times faster than the CPU", |ui| {
            controls::device_ui(ui, &mut self.device, &view.session.devices);
        });
    }

    pub fn set_start_weights(&mut self, path: PathBuf) {
        self.start_weights = path.display().to_string();
    }
}

fn field_ui(ui: &mut Ui, name: &str, tooltip: &str, add: impl FnOnce(&mut Ui)) {
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 3.0;
        controls::note(ui, name).on_hover_text(tooltip);
        add(ui);
    });
}

fn number_ui(ui: &mut Ui, name: &str, value: &mut usize, range: std::ops::RangeInclusive<usize>, speed: f64) {
    let drag = DragValue::new(value).range(range).speed(speed);
    ui.add_sized([ui.available_width(), 28.0], drag).accessible_name(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_what_the_form_says() {
        let form = TrainForm { name: "my run".to_owned(), start_weights: "w.safetensors".to_owned(), ..TrainForm::default() };
        assert_eq!(
            form.command_line(Path::new("/d/data.yaml")),
            "boxwright train --data /d/data.yaml --model yolov9-t --epochs 50 --batch 8 --imgsz 320 --weights w.safetensors \
             --project runs --name 'my run'"
        );
    }

    #[test]
    fn a_gpu_is_named_by_its_number() {
        let form = TrainForm { device: Device::Cuda(1), ..TrainForm::default() };
        assert!(form.command_line(Path::new("d")).contains("--imgsz 320 --device 1 --project"));
    }

    #[test]
    fn a_name_with_slashes_is_refused_before_the_start() {
        let form = TrainForm { name: "a/b".to_owned(), ..TrainForm::default() };
        assert!(form.problem().is_some());
        assert_eq!(TrainForm::default().problem(), None);
    }
}
