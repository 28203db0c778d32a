//! What is trained after this run: those that wait, and sweeps over some values with a table of what came of them.

use egui::{Align, Button, ComboBox, DragValue, Grid, Layout, RichText, ScrollArea, Ui, vec2};

use super::action::Action;
use super::app::View;
use super::controls::{self, counted};
use super::theme::{self, palette};
use crate::session::Command;
use crate::session::QueuedRun;
use crate::train::sweep::FIELDS;
use crate::train::{SweepAxis, SweepRequest, SweepRow, TrainConfig};

/// What the page remembers between frames.
pub struct QueuePage {
    axes: Vec<Axis>,
    is_random: bool,
    n_random: usize,
    /// The sweep that was looked at last, and how many runs it has or why it has none.
    checked: Option<(SweepRequest, Result<usize, String>)>,
}

/// A value that is varied, as it is typed.
struct Axis {
    key: String,
    values: String,
}

impl Default for QueuePage {
    fn default() -> Self {
        let axis = Axis { key: "lr0".to_owned(), values: String::new() };
        Self { axes: vec![axis], is_random: false, n_random: 8, checked: None }
    }
}

impl QueuePage {
    /// Draws the page; `config` is the run that the form describes, `keys` the hyper-parameters that there are.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>, config: Option<&TrainConfig>, keys: &[String]) {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.set_max_width(ui.available_width() - 10.0);
            ui.spacing_mut().item_spacing.y = theme::GAP;
            controls::card(ui).show(ui, |ui| queue_ui(ui, view, config));
            controls::card(ui).show(ui, |ui| self.sweep_ui(ui, view, config, keys));
            if !view.session.sweep.is_empty() {
                controls::card(ui).show(ui, |ui| table_ui(ui, view, &view.session.sweep));
            }
            ui.add_space(6.0);
        });
    }

    fn sweep_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, config: Option<&TrainConfig>, keys: &[String]) {
        ui.set_width(ui.available_width());
        ui.spacing_mut().item_spacing.y = 6.0;
        let request = config.map(|config| self.request(config));
        let counted_runs = request.as_ref().map(|request| self.check(request));
        controls::section_with(ui, "Sweep", |ui| {
            let reason = match &counted_runs {
                None => Some("Open a dataset and fill in the form first".to_owned()),
                Some(Err(reason)) => Some(reason.clone()),
                Some(Ok(_)) => Action::StartTraining.unavailable(view.session).map(str::to_owned),
            };
            let text = match &counted_runs {
                Some(Ok(n)) => format!("Start {}", counted(*n, "run")),
                _ => "Start sweep".to_owned(),
            };
            let response = ui.add_enabled(reason.is_none(), Button::new(text));
            let response = response.on_hover_text("Train one run after another").on_disabled_hover_text(reason.clone().unwrap_or_default());
            if let Some(request) = request.filter(|_| response.clicked()) {
                view.ask(Command::Sweep(Box::new(request)));
            }
        });
        controls::weak(ui, "The run of the form, once for each combination of the values below");
        let mut removed = None;
        let n_axes = self.axes.len();
        for (index, axis) in self.axes.iter_mut().enumerate() {
            ui.horizontal(|ui| {
                let combo = ComboBox::from_id_salt(("axis", index)).width(150.0).selected_text(axis.key.as_str());
                let response = combo.show_ui(ui, |ui| {
                    for key in FIELDS.into_iter().chain(keys.iter().map(String::as_str)) {
                        ui.selectable_value(&mut axis.key, key.to_owned(), key);
                    }
                });
                response.response.accessible_name(format!("Varied value {}", index + 1));
                let width = (ui.available_width() - 40.0).clamp(120.0, 360.0);
                controls::text_field(ui, &format!("Values {}", index + 1), &mut axis.values, "0.01, 0.003, 0.001", width);
                if n_axes > 1 && controls::quiet_button(ui, "Remove", "Do not vary this").clicked() {
                    removed = Some(index);
                }
            });
        }
        if let Some(index) = removed {
            self.axes.remove(index);
        }
        ui.horizontal(|ui| {
            let new = self.new_key(keys).map(str::to_owned);
            let response = ui.add_enabled(new.is_some(), Button::new("Vary another")).on_hover_text("Add a value that is varied, too");
            if let Some(key) = new.filter(|_| response.on_disabled_hover_text("Everything is varied already").clicked()) {
                self.axes.push(Axis { key, values: String::new() });
            }
            ui.add_space(8.0);
            ui.checkbox(&mut self.is_random, "Only some, drawn at random").on_hover_text("For grids that are too large to try whole");
            if self.is_random {
                ui.add(DragValue::new(&mut self.n_random).range(1..=1000)).on_hover_text("Runs to draw").accessible_name("Runs to draw");
            }
        });
        match counted_runs {
            Some(Err(reason)) if self.axes.iter().any(|axis| !axis.values.trim().is_empty()) => {
                ui.label(RichText::new(reason).small().color(palette(ui).warn));
            }
            _ => {}
        }
    }

    /// A key that is not varied yet.
    fn new_key<'a>(&self, keys: &'a [String]) -> Option<&'a str> {
        let all = ["seed"].into_iter().chain(FIELDS).chain(keys.iter().map(String::as_str));
        all.into_iter().find(|key| self.axes.iter().all(|axis| axis.key != *key))
    }

    fn request(&self, config: &TrainConfig) -> SweepRequest {
        let axes = self.axes.iter().filter(|axis| !axis.values.trim().is_empty());
        let axes = axes.filter_map(|axis| {
            let values: Vec<&str> = axis.values.split(',').map(str::trim).filter(|value| !value.is_empty()).collect();
            SweepAxis::parse(&format!("{}={}", axis.key, values.join(","))).ok()
        });
        SweepRequest { base: config.clone(), axes: axes.collect(), random: self.is_random.then_some(self.n_random), seed: config.seed }
    }

    /// How many runs it has; worked out once for each change.
    fn check(&mut self, request: &SweepRequest) -> Result<usize, String> {
        match &self.checked {
            Some((checked, result)) if checked == request => result.clone(),
            _ => {
                let result = request.points().map(|points| points.len()).map_err(|error| error.to_string());
                self.checked = Some((request.clone(), result.clone()));
                result
            }
        }
    }
}

fn queue_ui(ui: &mut Ui, view: &mut View<'_>, config: Option<&TrainConfig>) {
    ui.set_width(ui.available_width());
    ui.spacing_mut().item_spacing.y = 4.0;
    let queue = &view.session.queue;
    controls::section_with(ui, "Waiting runs", |ui| {
        let reason = config.is_none().then_some("Open a dataset and fill in the form first");
        if controls::action_button(ui, Action::Enqueue, reason) {
            view.act(Action::Enqueue);
        }
        let mut is_held = queue.is_held;
        if ui.checkbox(&mut is_held, "Hold").on_hover_text("Begin no waiting run; the one that runs goes on").changed() {
            view.ask(Command::HoldQueue(is_held));
        }
    });
    if queue.runs.is_empty() {
        controls::weak(ui, "None. A run that is added begins as soon as nothing else trains");
    }
    for (place, run) in queue.runs.iter().enumerate() {
        queued_ui(ui, view, place, queue.runs.len(), run);
    }
}

fn queued_ui(ui: &mut Ui, view: &mut View<'_>, place: usize, n: usize, run: &QueuedRun) {
    let palette = palette(ui);
    let name = &run.config.name;
    ui.allocate_ui_with_layout(vec2(ui.available_width(), 28.0), Layout::right_to_left(Align::Center), |ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let button = |ui: &mut Ui, text: &str, label: String, is_enabled: bool| {
            let response = ui.add_enabled(is_enabled, Button::new(text).min_size(vec2(28.0, 24.0)));
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, is_enabled, &label));
            response.on_hover_text(label.as_str()).clicked()
        };
        if button(ui, "Remove", format!("Take {name} out"), true) {
            view.ask(Command::Unqueue(run.id));
        }
        if button(ui, "Down", format!("Move {name} down"), place + 1 < n) {
            view.ask(Command::MoveQueued { id: run.id, to: place + 1 });
        }
        if button(ui, "Up", format!("Move {name} up"), place > 0) {
            view.ask(Command::MoveQueued { id: run.id, to: place - 1 });
        }
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 10.0;
            ui.label(RichText::new(format!("{}", place + 1)).color(palette.faint));
            ui.label(RichText::new(name).color(palette.strong));
            ui.add(egui::Label::new(RichText::new(words(&run.config)).small().color(palette.weak)).truncate());
        });
    });
}

/// A run in some words.
fn words(config: &TrainConfig) -> String {
    let mut words = vec![config.model.to_string(), format!("{} epochs", config.epochs), format!("{} px", config.imgsz)];
    words.extend(config.set.iter().map(|(key, value)| format!("{key} {value}")));
    words.join(", ")
}

/// What came of the runs of the sweep.
fn table_ui(ui: &mut Ui, view: &View<'_>, rows: &[SweepRow]) {
    ui.set_width(ui.available_width());
    controls::section(ui, "Results of the sweep");
    let palette = palette(ui);
    let best = rows.iter().filter(|row| row.error.is_none()).max_by(|a, b| a.map50_95.total_cmp(&b.map50_95)).map(|row| row.run);
    let keys: Vec<&String> = rows.first().map(|row| row.values.keys().collect()).unwrap_or_default();
    ScrollArea::horizontal().id_salt("sweep").show(ui, |ui| {
        Grid::new("sweep rows").striped(true).spacing(vec2(22.0, 6.0)).show(ui, |ui| {
            controls::weak(ui, "run");
            for key in &keys {
                controls::weak(ui, key.as_str());
            }
            for name in ["mAP50-95", "mAP50", "precision", "recall", "epochs", "time", ""] {
                controls::weak(ui, name);
            }
            ui.end_row();
            for row in rows {
                let ink = if best == Some(row.run) { palette.good } else { palette.text };
                let cell = |ui: &mut Ui, text: String| ui.label(RichText::new(text).color(ink));
                cell(ui, row.run.to_string());
                for key in &keys {
                    let value = row.values.get(key.as_str());
                    cell(ui, value.map_or_else(String::new, |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
                }
                for value in [row.map50_95, row.map50, row.precision, row.recall] {
                    cell(ui, format!("{value:.4}"));
                }
                cell(ui, row.epochs.to_string());
                cell(ui, controls::duration(row.secs));
                let reason = row.error.clone().unwrap_or_default();
                ui.label(RichText::new(reason).small().color(palette.bad));
                ui.end_row();
            }
        });
    });
    if view.session.is_running(crate::session::JobKind::Train) {
        controls::note(ui, "More rows follow as runs end");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::path::Path;

    #[test]
    fn typed_values_become_the_axes_of_a_sweep() {
        let mut page = QueuePage::default();
        page.axes[0].values = "0.01, 0.001".to_owned();
        page.axes.push(Axis { key: "seed".to_owned(), values: "1,2, 3,".to_owned() });
        page.axes.push(Axis { key: "imgsz".to_owned(), values: " ".to_owned() });
        let config = TrainConfig::new(Path::new("d"));
        let request = page.request(&config);
        assert_eq!(request.axes.iter().map(|axis| (axis.key.as_str(), axis.values.len())).collect::<Vec<_>>(), [("lr0", 2), ("seed", 3)]);
        assert_eq!(page.check(&request), Ok(6));
        page.is_random = true;
        page.n_random = 4;
        let some = page.request(&config);
        assert_eq!(page.check(&some), Ok(4));
        page.axes[0].values = "fast".to_owned();
        let wrong = page.request(&config);
        assert!(page.check(&wrong).unwrap_err().contains("lr0"));
    }

    #[test]
    fn a_key_is_varied_once() {
        let mut page = QueuePage::default();
        let keys = ["lr0".to_owned(), "lrf".to_owned()];
        for wanted in ["seed", "model", "epochs", "batch", "imgsz", "lrf"] {
            let key = page.new_key(&keys).unwrap().to_owned();
            assert_eq!(key, wanted);
            page.axes.push(Axis { key, values: "1".to_owned() });
        }
        assert_eq!(page.new_key(&keys), None);
    }
}
