//! The settings of a training as they are typed, and the run that they describe.

use std::path::{Path, PathBuf};

use egui::{CollapsingHeader, ComboBox, DragValue, RichText, Ui};
use serde_json::{Map, Value};

use super::app::View;
use super::controls::{self, path_of, shell_word};
use super::theme::palette;
use super::train_options::RunOptions;
use super::train_settings;
use crate::dataset::{Dataset, Split};
use crate::engine::Device;
use crate::session::BrowseKind;
use crate::session::Command;
use crate::session::Session;
use crate::session::Settings;
use crate::train::hyp_choice::Start;
use crate::train::{BatchChoice, Hyp, HypChoice, TrainConfig};
use crate::yolo::Model;

/// Sides of the input that are offered; all multiples of the largest stride.
const SIDES: [u32; 7] = [96, 128, 160, 320, 416, 640, 1280];

/// Where the hyper-parameters come from, as a person chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    #[default]
    Auto,
    Small,
    FineTune,
    ScratchHigh,
    File,
}

impl Preset {
    const ALL: [Self; 5] = [Self::Auto, Self::Small, Self::FineTune, Self::ScratchHigh, Self::File];

    fn title(self) -> &'static str {
        match self {
            Self::Auto => "Auto: by start and number of images",
            Self::Small => "small: some hundred images",
            Self::FineTune => "fine-tune: from trained weights",
            Self::ScratchHigh => "scratch-high: as published",
            Self::File => "A file…",
        }
    }
}

/// What is typed.
pub struct TrainForm {
    pub model: Model,
    pub epochs: usize,
    pub batch: usize,
    pub is_batch_auto: bool,
    pub imgsz: u32,
    pub device: Device,
    pub name: String,
    pub project: String,
    pub start_weights: String,
    pub preset: Preset,
    pub hyp_file: String,
    /// Hyper-parameters that differ from the preset, by key.
    pub changes: Map<String, Value>,
    pub options: RunOptions,
    pub seed: u64,
}

impl Default for TrainForm {
    fn default() -> Self {
        Self {
            model: Model::ALL[0],
            epochs: 50,
            batch: 8,
            is_batch_auto: false,
            imgsz: 320,
            device: Device::Cpu,
            name: "exp".to_owned(),
            project: "runs".to_owned(),
            start_weights: String::new(),
            preset: Preset::Auto,
            hyp_file: String::new(),
            changes: Map::new(),
            options: RunOptions::default(),
            seed: 0,
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
        if self.preset == Preset::File && path_of(&self.hyp_file).is_none() {
            return Some("Say which file holds the hyper-parameters, or choose another preset");
        }
        path_of(&self.project).is_none().then_some("Say in which folder runs are kept").or_else(|| self.options.problem())
    }

    /// The run on the dataset at `data`.
    pub fn config(&self, data: &Path) -> Option<TrainConfig> {
        let config = TrainConfig {
            model: self.model,
            weights: path_of(&self.start_weights),
            epochs: self.epochs,
            batch: if self.is_batch_auto { BatchChoice::Auto } else { BatchChoice::Count(self.batch) },
            imgsz: self.imgsz,
            device: self.device,
            project: path_of(&self.project)?,
            name: self.name.trim().to_owned(),
            hyp: match self.preset {
                Preset::Auto => HypChoice::Auto,
                Preset::Small => HypChoice::Small,
                Preset::FineTune => HypChoice::FineTune,
                Preset::ScratchHigh => HypChoice::ScratchHigh,
                Preset::File => HypChoice::File(path_of(&self.hyp_file)?),
            },
            set: self.changes.clone(),
            seed: self.seed,
            ..TrainConfig::new(data)
        };
        Some(self.options.apply(config))
    }

    /// The same run from the command line.
    pub fn command_line(&self, data: &Path) -> String {
        let word = |path: &Path| shell_word(&path.display().to_string());
        let Self { model, epochs, imgsz, seed, .. } = self;
        let batch = if self.is_batch_auto { "auto".to_owned() } else { self.batch.to_string() };
        let mut line = format!("boxwright train --data {} --model {model} --epochs {epochs} --batch {batch} --imgsz {imgsz}", word(data));
        let mut add = |option: &str, value: &str| line.extend([" ", option, if value.is_empty() { "" } else { " " }, value]);
        if let device @ Device::Cuda(_) = self.device {
            add("--device", &controls::device_word(device));
        }
        if let Some(weights) = path_of(&self.start_weights) {
            add("--weights", &word(&weights));
        }
        match self.preset {
            Preset::Auto => {}
            Preset::Small => add("--hyp", "small"),
            Preset::FineTune => add("--hyp", "fine-tune"),
            Preset::ScratchHigh => add("--hyp", "scratch-high"),
            Preset::File => {
                if let Some(path) = path_of(&self.hyp_file) {
                    add("--hyp", &word(&path));
                }
            }
        }
        for (key, value) in &self.changes {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            add("--set", &shell_word(&format!("{key}={text}")));
        }
        for words in self.options.words(path_of(&self.start_weights).is_some()) {
            add(&words, "");
        }
        if *seed != 0 {
            add("--seed", &seed.to_string());
        }
        if let Some(project) = path_of(&self.project) {
            add("--project", &word(&project));
        }
        add("--name", &shell_word(self.name.trim()));
        line
    }

    /// Draws the fields.
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
        ui.columns(2, |columns| {
            let [left, right] = columns else { return };
            field_ui(left, "Epochs", "How often the whole train split is seen", |ui| {
                number_ui(ui, "Epochs", &mut self.epochs, 1..=5000, 1.0);
            });
            field_ui(
                right,
                "Image size",
                "Pixels along a side of the network's input: a small one is fast, a large one sees small objects",
                |ui| {
                    let width = ui.available_width();
                    let combo = ComboBox::from_id_salt("imgsz").width(width).selected_text(format!("{} px", self.imgsz));
                    let response = combo.show_ui(ui, |ui| {
                        for side in SIDES {
                            ui.selectable_value(&mut self.imgsz, side, format!("{side} px"));
                        }
                    });
                    response.response.accessible_name("Image size");
                },
            );
        });
        ui.columns(2, |columns| {
            let [left, right] = columns else { return };
            field_ui(left, "Batch", "Images that are computed at once; more need more memory", |ui| self.batch_ui(ui));
            field_ui(right, "Seed", "The same seed gives the same run again", |ui| {
                let drag = DragValue::new(&mut self.seed).speed(0.1);
                ui.add_sized([ui.available_width(), 28.0], drag).accessible_name("Seed");
            });
        });
        field_ui(ui, "Start from", "Weights to begin with: far fewer epochs are needed than from scratch", |ui| {
            let field = controls::path_field(ui, "Start weights", &mut self.start_weights, "Nothing: from scratch");
            if field.browse {
                view.ask(Command::Browse(BrowseKind::StartWeights));
            }
        });
        ui.columns(2, |columns| {
            let [left, right] = columns else { return };
            field_ui(left, "Run name", "The run's folder; a number is added when it exists", |ui| {
                let width = ui.available_width();
                controls::text_field(ui, "Run name", &mut self.name, "exp", width);
            });
            field_ui(right, "Runs folder", "Where the run's folder is made, relative to where the program was started", |ui| {
                let width = ui.available_width();
                controls::text_field(ui, "Runs folder", &mut self.project, "runs", width);
            });
        });
        field_ui(ui, "Device", "Where it is computed: an NVIDIA GPU is many times faster than the CPU", |ui| {
            controls::device_ui(ui, &mut self.device, &view.session.devices);
        });
        field_ui(ui, "Preset", "Where the values below come from, before you change any", |ui| self.preset_ui(ui, view));
        self.all_settings_ui(ui, view.session);
    }

    /// A number, or as many as fit.
    fn batch_ui(&mut self, ui: &mut Ui) {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            let width = ui.available_width() - 60.0;
            ui.add_enabled_ui(!self.is_batch_auto, |ui| {
                let drag = DragValue::new(&mut self.batch).range(1..=1024).speed(0.2);
                ui.add_sized([width, 28.0], drag).accessible_name("Batch");
            });
            let auto = egui::Button::selectable(self.is_batch_auto, "Auto").min_size(egui::vec2(50.0, 28.0));
            let response = ui.add(auto).on_hover_text("The largest batch that fits into the device's memory");
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::CheckBox, true, self.is_batch_auto, "Automatic batch"));
            if response.clicked() {
                self.is_batch_auto = !self.is_batch_auto;
            }
        });
    }

    fn preset_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let combo = ComboBox::from_id_salt("preset").width(ui.available_width()).selected_text(self.preset.title());
        let response = combo.show_ui(ui, |ui| {
            for preset in Preset::ALL {
                ui.selectable_value(&mut self.preset, preset, preset.title());
            }
        });
        response.response.accessible_name("Preset");
        if self.preset != Preset::File {
            return;
        }
        if controls::path_field(ui, "Hyper-parameter file", &mut self.hyp_file, "hyp.yaml").browse {
            view.ask(Command::Browse(BrowseKind::HypFile));
        }
        if let Some(path) = path_of(&self.hyp_file)
            && view.session.hyp_file.as_ref().is_none_or(|(read, _)| *read != path)
            && !view.session.is_running(crate::session::JobKind::ReadHyp)
            && !ui.ctx().text_edit_focused()
        {
            view.ask(Command::ReadHyp(path));
        }
    }

    /// The values of the preset for the open dataset; absent while a file is not read, or cannot be.
    fn base(&self, session: &Session) -> Result<Hyp, String> {
        let n_train = session.dataset.as_ref().map_or(0, |open| open.dataset.split(Split::Train).count());
        let choice = match self.preset {
            Preset::Auto => HypChoice::Auto,
            Preset::Small => HypChoice::Small,
            Preset::FineTune => HypChoice::FineTune,
            Preset::ScratchHigh => HypChoice::ScratchHigh,
            Preset::File => {
                let path = path_of(&self.hyp_file).ok_or("Choose a file to see its values")?;
                return match &session.hyp_file {
                    Some((read, Ok(hyp))) if *read == path => Ok((**hyp).clone()),
                    Some((read, Err(reason))) if *read == path => Err(reason.clone()),
                    _ => Err("The file is being read".to_owned()),
                };
            }
        };
        let start = if path_of(&self.start_weights).is_some() { Start::Weights } else { Start::Scratch };
        choice.resolve(n_train, start).map(|(hyp, _)| hyp).map_err(|error| error.to_string())
    }

    /// The keys of the hyper-parameters.
    pub fn keys(&self, session: &Session) -> Vec<String> {
        match self.base(session).ok().and_then(|hyp| serde_json::to_value(&hyp).ok()) {
            Some(Value::Object(base)) => base.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    fn all_settings_ui(&mut self, ui: &mut Ui, session: &Session) {
        let title = match self.n_changed() {
            0 => RichText::new("All settings"),
            n => RichText::new(format!("All settings  ({n} changed)")).color(palette(ui).accent),
        };
        CollapsingHeader::new(title).id_salt("all settings").show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 4.0;
            match self.base(session) {
                Ok(hyp) => {
                    let Ok(Value::Object(base)) = serde_json::to_value(&hyp) else { return };
                    train_settings::settings_ui(ui, &base, &mut self.changes);
                    self.options.ui(ui);
                    if self.n_changed() > 0 && ui.button("Reset all").on_hover_text("Back to the values of the preset").clicked() {
                        self.changes.clear();
                        self.options = RunOptions::default();
                    }
                }
                Err(reason) => {
                    controls::note(ui, reason);
                }
            }
        });
    }

    fn n_changed(&self) -> usize {
        self.changes.len() + self.options.n_changed()
    }

    pub fn set_start_weights(&mut self, path: PathBuf) {
        self.start_weights = path.display().to_string();
    }

    pub fn set_hyp_file(&mut self, path: PathBuf) {
        self.hyp_file = path.display().to_string();
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
    fn what_differs_from_the_defaults_is_on_the_command_line() {
        let changes = [("lr0".to_owned(), 0.001.into()), ("optimizer".to_owned(), "sgd".into())].into_iter().collect();
        let form = TrainForm {
            device: Device::Cuda(1),
            is_batch_auto: true,
            preset: Preset::File,
            // As pasted from a file manager.
            hyp_file: "\"my hyp.yaml\"".to_owned(),
            project: " '/data/my runs' ".to_owned(),
            changes,
            options: RunOptions { close_mosaic: 5, single_cls: true, ..RunOptions::default() },
            seed: 7,
            ..TrainForm::default()
        };
        assert_eq!(
            form.command_line(Path::new("d")),
            "boxwright train --data d --model yolov9-t --epochs 50 --batch auto --imgsz 320 --device 1 --hyp 'my hyp.yaml' \
             --set lr0=0.001 --set optimizer=sgd --close-mosaic 5 --single-cls --seed 7 --project '/data/my runs' --name exp"
        );
    }

    #[test]
    fn a_name_with_slashes_is_refused_before_the_start() {
        let form = TrainForm { name: "a/b".to_owned(), ..TrainForm::default() };
        assert!(form.problem().is_some());
        assert_eq!(TrainForm::default().problem(), None);
        assert!(TrainForm { preset: Preset::File, ..TrainForm::default() }.problem().is_some());
    }
}
