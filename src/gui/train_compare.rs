//! Earlier runs side by side: their curves in one plot, their figures and settings in one table, and notes on each.
//!
//! Runs are those below the project folder of the form. What is picked is read by the session; until it has, the last
//! picked runs stay on the screen.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egui::{Color32, Frame, Grid, Margin, Panel, Rect, RichText, ScrollArea, Sense, TextEdit, Ui, WidgetInfo, pos2, vec2};
use egui_plot::PlotPoint;

use super::app::View;
use super::controls;
use super::curves::{self, NamedLine};
use super::plots::Along;
use super::theme::{self, palette};
use crate::session::Command;
use crate::session::JobKind;
use crate::session::Session;
use crate::train::past_runs;
use crate::train::{ComparedRun, EpochReport, PastRun};

/// What the page remembers between frames.
#[derive(Default)]
pub struct ComparePage {
    picked: Vec<PathBuf>,
    /// What was asked for last, so that nothing is asked for twice.
    listed: Option<PathBuf>,
    read: Vec<PathBuf>,
    /// Notes as they are typed, by run.
    drafts: HashMap<PathBuf, Draft>,
    /// The run whose notes have the focus in this frame.
    typed: Option<PathBuf>,
    shown: Shown,
}

/// Notes as they are typed.
struct Draft {
    text: String,
    /// What the file holds, or will hold.
    kept: String,
    /// What was in the file when it was read last.
    read: String,
}

impl Draft {
    fn new(notes: &str) -> Self {
        Self { text: notes.to_owned(), kept: notes.to_owned(), read: notes.to_owned() }
    }

    /// Takes in what the file holds; a text that a person has changed stays.
    fn follow(&mut self, notes: &str) {
        if self.read == notes {
            return;
        }
        if self.text == self.kept {
            notes.clone_into(&mut self.text);
        }
        notes.clone_into(&mut self.kept);
        notes.clone_into(&mut self.read);
    }
}

/// What is worked out once for the runs that are compared.
#[derive(Default)]
struct Shown {
    of: Vec<Arc<ComparedRun>>,
    names: Vec<String>,
    /// For each quantity the points of each run.
    lines: Vec<Vec<Vec<PlotPoint>>>,
    /// Settings that differ, as [`past_runs::differences`] gives them.
    differences: Vec<(String, Vec<String>)>,
}

impl Shown {
    fn follow(&mut self, runs: &[Arc<ComparedRun>]) {
        if self.of.len() == runs.len() && self.of.iter().zip(runs).all(|(shown, run)| Arc::ptr_eq(shown, run)) {
            return;
        }
        let lines = |quantity: &Quantity| runs.iter().map(|run| points(run, quantity)).collect();
        *self = Self {
            of: runs.to_vec(),
            names: runs.iter().map(|run| run.name()).collect(),
            lines: QUANTITIES.iter().map(lines).collect(),
            differences: past_runs::differences(&runs.iter().map(|run| &**run).collect::<Vec<_>>()),
        };
    }
}

/// A curve that is compared.
struct Quantity {
    title: &'static str,
    value: fn(&EpochReport) -> f64,
}

static QUANTITIES: [Quantity; 6] = [
    Quantity { title: "mAP50-95", value: |epoch| epoch.metrics.map50_95 },
    Quantity { title: "mAP50", value: |epoch| epoch.metrics.map50 },
    Quantity { title: "Loss", value: |epoch| f64::from(epoch.box_loss + epoch.cls_loss + epoch.dfl_loss) },
    Quantity { title: "Learning rate", value: |epoch| epoch.lr[1] },
    Quantity { title: "Precision", value: |epoch| epoch.metrics.precision },
    Quantity { title: "Recall", value: |epoch| epoch.metrics.recall },
];

const ROW_HEIGHT: f32 = 40.0;

impl ComparePage {
    /// Looks for runs again, such as after one has ended.
    pub fn refresh(&mut self) {
        self.listed = None;
        self.read.clear();
    }

    /// Draws the page for the runs below `project`.
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>, project: &Path) {
        self.ask(ui, view, project);
        let mut runs: &[PastRun] = &[];
        if let Some((listed, past_runs)) = &view.session.past_runs
            && listed == project
        {
            runs = past_runs;
            self.picked.retain(|dir| runs.iter().any(|run| run.dir == *dir));
        }
        let frame = Frame::new().inner_margin(Margin { left: 0, right: 10, top: 0, bottom: 0 });
        Panel::left("past runs").frame(frame).default_size(250.0).size_range(200.0..=360.0).show_separator_line(false).show(ui, |ui| {
            controls::section_with(ui, "Runs", |ui| {
                if controls::quiet_button(ui, "Refresh", "Look into the runs folder again").clicked() {
                    self.refresh();
                }
            });
            controls::note(ui, format!("In {}", project.display()));
            self.list_ui(ui, runs);
        });
        egui::CentralPanel::default().frame(Frame::new()).show(ui, |ui| {
            let compared = &view.session.compared;
            if compared.is_empty() || self.picked.is_empty() {
                let text = "Pick runs on the left: their curves are drawn over one another, and their settings compared";
                controls::empty_state(ui, if runs.is_empty() { "No runs yet" } else { "Compare runs" }, text, |_| ());
                return;
            }
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
                ui.set_max_width(ui.available_width() - 10.0);
                ui.spacing_mut().item_spacing.y = theme::GAP;
                self.shown.follow(compared);
                curves_ui(ui, &self.shown);
                controls::card(ui).show(ui, |ui| figures_ui(ui, view, compared));
                controls::card(ui).show(ui, |ui| settings_ui(ui, &self.shown));
                controls::card(ui).show(ui, |ui| self.notes_ui(ui, compared));
                ui.add_space(6.0);
            });
        });
    }

    /// Asks for what is shown and not read yet.
    fn ask(&mut self, ui: &Ui, view: &mut View<'_>, project: &Path) {
        // Not at every key while a folder is typed.
        if self.listed.as_deref() != Some(project) && !view.session.is_running(JobKind::ListRuns) && !ui.ctx().text_edit_focused() {
            self.listed = Some(project.to_path_buf());
            view.ask(Command::ListRuns(project.to_path_buf()));
        }
        let is_busy = view.session.is_running(JobKind::CompareRuns) || view.session.is_running(JobKind::SaveNotes);
        if self.read != self.picked && !is_busy {
            self.read.clone_from(&self.picked);
            view.ask(Command::CompareRuns(self.picked.clone()));
        }
    }

    fn list_ui(&mut self, ui: &mut Ui, runs: &[PastRun]) {
        ui.spacing_mut().item_spacing.y = 2.0;
        ScrollArea::vertical().auto_shrink(false).show_rows(ui, ROW_HEIGHT, runs.len(), |ui, rows| {
            for run in &runs[rows] {
                let place = self.picked.iter().position(|dir| *dir == run.dir);
                if row_ui(ui, run, place) {
                    match place {
                        Some(place) => {
                            self.picked.remove(place);
                        }
                        None => self.picked.push(run.dir.clone()),
                    }
                }
            }
        });
    }

    /// Keeps notes that differ from their file and are not typed in. Asked for once after drawing, whether this page is shown or
    /// not, so that nothing is lost when it is left; one file after another.
    pub fn unsaved_notes(&mut self, session: &Session) -> Option<Command> {
        let typed = self.typed.take();
        // What is read while it is written may be the text of before.
        if session.is_running(JobKind::SaveNotes) || session.is_running(JobKind::CompareRuns) {
            return None;
        }
        let is_unsaved = |(dir, draft): &(&PathBuf, &mut Draft)| draft.text != draft.kept && typed.as_ref() != Some(*dir);
        let (dir, draft) = self.drafts.iter_mut().find(is_unsaved)?;
        draft.kept.clone_from(&draft.text);
        Some(Command::SaveNotes { dir: dir.clone(), text: draft.text.clone() })
    }

    fn notes_ui(&mut self, ui: &mut Ui, runs: &[Arc<ComparedRun>]) {
        ui.set_width(ui.available_width());
        controls::section(ui, "Notes");
        for (index, run) in runs.iter().enumerate() {
            let dir = &run.saved.dir;
            ui.horizontal(|ui| controls::key(ui, run_color(ui, index), &run.name()));
            let draft = self.drafts.entry(dir.clone()).or_insert_with(|| Draft::new(&run.notes));
            draft.follow(&run.notes);
            let edit = TextEdit::multiline(&mut draft.text)
                .hint_text("What was tried, and what came of it")
                .desired_rows(2)
                .desired_width(f32::INFINITY);
            let response = ui.add(edit).accessible_name(format!("Notes on {}", run.name()));
            if response.has_focus() {
                self.typed = Some(dir.clone());
            }
        }
        controls::note(ui, "Kept as notes.md in the run's folder");
    }
}

/// The colour of a run by its place among those that are picked.
fn run_color(ui: &Ui, place: usize) -> Color32 {
    let colors = &palette(ui).runs;
    colors[place % colors.len()]
}

/// A run of the list; says whether it was clicked.
fn row_ui(ui: &mut Ui, run: &PastRun, place: Option<usize>) -> bool {
    let palette = palette(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width() - 8.0, ROW_HEIGHT), Sense::click());
    let label = format!("run {}", run.name);
    response.widget_info(|| WidgetInfo::selected(egui::Role::CheckBox, true, place.is_some(), &label));
    controls::row_background(ui, rect, &response, place.is_some());
    let dot = Rect::from_center_size(pos2(rect.left() + 13.0, rect.top() + 14.0), vec2(10.0, 10.0));
    match place {
        Some(place) => ui.painter().circle_filled(dot.center(), 5.0, run_color(ui, place)),
        None => ui.painter().circle_stroke(dot.center(), 4.5, egui::Stroke::new(1.0, palette.faint)),
    };
    let (left, right) = (rect.left() + 26.0, rect.right() - 8.0);
    let font = egui::TextStyle::Body.resolve(ui.style());
    let end = pos2(right, rect.top() + 14.0);
    let score = ui.painter().text(end, egui::Align2::RIGHT_CENTER, format!("{:.3}", run.map50_95), font, palette.weak);
    let name = RichText::new(&run.name).color(if place.is_some() { palette.strong } else { palette.text });
    controls::paint_text(ui, pos2(left, rect.top() + 14.0), score.left() - left - 8.0, name);
    let below = format!("{}, {}/{}, {}", run.model, run.epochs_done, run.epochs_wanted, day(&run.started));
    controls::paint_text(ui, pos2(left, rect.top() + 29.0), right - left, RichText::new(below).small().color(palette.faint));
    let tooltip = format!("{}\nmAP50 {:.3}, mAP50-95 {:.3}\nStarted {}", run.dir.display(), run.map50, run.map50_95, run.started);
    response.on_hover_text(tooltip).on_hover_cursor(egui::CursorIcon::PointingHand).clicked()
}

/// `2026-03-01` of `2026-03-01T12:00:00Z`.
fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or_default()
}

fn curves_ui(ui: &mut Ui, shown: &Shown) {
    let n_columns = if ui.available_width() > 1000.0 { 3 } else { 2 };
    let rows = QUANTITIES.chunks(n_columns).zip(shown.lines.chunks(n_columns));
    for (quantities, lines) in rows {
        ui.columns(n_columns, |columns| {
            for ((ui, quantity), lines) in columns.iter_mut().zip(quantities).zip(lines) {
                controls::card(ui).inner_margin(Margin::symmetric(12, 8)).show(ui, |ui| {
                    ui.label(RichText::new(quantity.title).text_style(theme::strong()).color(palette(ui).strong));
                    let colors = &palette(ui).runs;
                    let lines = lines.iter().zip(&shown.names).zip(colors.iter().cycle());
                    let lines = lines.map(|((points, name), color)| NamedLine { name, color: *color, points });
                    curves::quantity_ui(ui, quantity.title, Along::Epochs, lines, 150.0);
                });
            }
        });
    }
}

fn points(run: &ComparedRun, quantity: &Quantity) -> Vec<PlotPoint> {
    let epochs = run.saved.epochs.iter().map(|epoch| PlotPoint::new(epoch.epoch as f64 + 1.0, (quantity.value)(epoch)));
    epochs.filter(|point| point.y.is_finite()).collect()
}

/// The names of the runs as the head of a table.
fn head_ui(ui: &mut Ui, runs: &[Arc<ComparedRun>]) {
    ui.label("");
    for (index, run) in runs.iter().enumerate() {
        ui.horizontal(|ui| controls::key(ui, run_color(ui, index), &run.name()));
    }
    ui.end_row();
}

/// What came out of each run.
fn figures_ui(ui: &mut Ui, view: &mut View<'_>, runs: &[Arc<ComparedRun>]) {
    ui.set_width(ui.available_width());
    controls::section(ui, "Figures of the best epoch");
    let best: Vec<Option<&EpochReport>> = runs.iter().map(|run| best_epoch(&run.saved.epochs)).collect();
    type Figure = (&'static str, fn(&EpochReport) -> String);
    let figures: [Figure; 5] = [
        ("mAP50-95", |epoch| format!("{:.4}", epoch.metrics.map50_95)),
        ("mAP50", |epoch| format!("{:.4}", epoch.metrics.map50)),
        ("precision", |epoch| format!("{:.4}", epoch.metrics.precision)),
        ("recall", |epoch| format!("{:.4}", epoch.metrics.recall)),
        ("epoch", |epoch| (epoch.epoch + 1).to_string()),
    ];
    table(ui, "figures", |ui| {
        head_ui(ui, runs);
        for (name, figure) in figures {
            controls::weak(ui, name);
            for epoch in &best {
                ui.label(epoch.map_or_else(|| "–".to_owned(), figure));
            }
            ui.end_row();
        }
        controls::weak(ui, "epochs");
        for run in runs {
            ui.label(format!("{} of {}", run.saved.epochs.len(), run.saved.epochs_wanted));
        }
        ui.end_row();
        controls::weak(ui, "time");
        for run in runs {
            ui.label(controls::duration(run.saved.epochs.iter().map(|epoch| epoch.secs).sum()));
        }
        ui.end_row();
        ui.label("");
        for run in runs {
            let reason = busy(view.session);
            let open = ui.add_enabled(reason.is_none(), egui::Button::new("Open"));
            open.widget_info(|| WidgetInfo::labeled(egui::Role::Button, true, format!("Open run {}", run.name())));
            let open = open.on_hover_text("Show this run").on_disabled_hover_text(reason.unwrap_or_default());
            if open.clicked() {
                view.ask(Command::Open(run.saved.dir.clone()));
            }
        }
        ui.end_row();
    });
}

fn busy(session: &Session) -> Option<&'static str> {
    session.is_running(JobKind::Train).then_some("A training is running")
}

fn best_epoch(epochs: &[EpochReport]) -> Option<&EpochReport> {
    epochs.iter().max_by(|a, b| a.metrics.fitness().total_cmp(&b.metrics.fitness()))
}

/// The settings in which the runs differ.
fn settings_ui(ui: &mut Ui, Shown { of: runs, differences, .. }: &Shown) {
    ui.set_width(ui.available_width());
    controls::section(ui, "Settings that differ");
    if differences.is_empty() {
        controls::weak(
            ui,
            if runs.len() < 2 { "Pick a second run to see how they differ" } else { "None: these runs have the same settings" },
        );
        return;
    }
    table(ui, "settings", |ui| {
        head_ui(ui, runs);
        for (name, values) in differences {
            controls::weak(ui, name);
            for value in values {
                ui.add(egui::Label::new(shortened(value)).selectable(true)).on_hover_text(value);
            }
            ui.end_row();
        }
    });
}

fn table(ui: &mut Ui, id: &str, rows: impl FnOnce(&mut Ui)) {
    ScrollArea::horizontal().id_salt(id).show(ui, |ui| {
        Grid::new(id).striped(true).spacing(vec2(24.0, 6.0)).min_col_width(90.0).show(ui, rows);
    });
}

fn shortened(text: &str) -> String {
    const MOST: usize = 36;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::Metrics;

    #[test]
    fn the_best_epoch_is_the_one_whose_weights_are_kept() {
        let epoch = |epoch, map50_95| {
            let metrics = Metrics { map50_95, ..Metrics::default() };
            EpochReport { epoch, metrics, ..EpochReport::default() }
        };
        assert_eq!(best_epoch(&[epoch(0, 0.1), epoch(1, 0.4), epoch(2, 0.3)]).map(|epoch| epoch.epoch), Some(1));
        assert!(best_epoch(&[]).is_none());
    }

    #[test]
    fn notes_follow_their_file_until_a_person_changes_them() {
        let mut draft = Draft::new("old");
        draft.follow("new");
        assert_eq!((draft.text.as_str(), draft.kept.as_str()), ("new", "new"));
        draft.text = "mine".to_owned();
        draft.follow("theirs");
        assert_eq!((draft.text.as_str(), draft.kept.as_str()), ("mine", "theirs"));
        // Kept, and not read yet: the text of before does not come back.
        draft.kept = "mine".to_owned();
        draft.follow("theirs");
        draft.follow("mine");
        assert_eq!((draft.text.as_str(), draft.kept.as_str()), ("mine", "mine"));
    }

    #[test]
    fn curves_and_differences_are_worked_out_once_for_the_same_runs() {
        let run = |lr0: &str| {
            let settings = vec![("hyp.lr0".to_owned(), lr0.to_owned())];
            Arc::new(ComparedRun { settings, ..ComparedRun::default() })
        };
        let mut shown = Shown::default();
        let runs = [run("0.01"), run("0.02")];
        shown.follow(&runs);
        assert_eq!((shown.lines.len(), shown.lines[0].len(), shown.differences.len()), (QUANTITIES.len(), 2, 1));
        shown.differences.clear();
        shown.follow(&runs);
        assert!(shown.differences.is_empty(), "worked out again");
        shown.follow(&[runs[1].clone(), runs[0].clone()]);
        assert_eq!(shown.differences[0].1, ["0.02", "0.01"]);
    }

    #[test]
    fn long_values_are_shortened() {
        assert_eq!(shortened("0.01"), "0.01");
        assert_eq!(shortened(&"x".repeat(50)).chars().count(), 37);
        assert_eq!(day("2026-03-01T12:00:00Z"), "2026-03-01");
    }
}
