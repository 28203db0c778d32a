//! Making train, val and test: shares and a seed, then a table to look at, then one edit.
//!
//! In:  what was planned, as the session holds it. Out: commands that plan and apply.
//!
//! What is applied is what was looked at: after a change of the shares it has to be planned again.

use egui::{Button, DragValue, Frame, Grid, Id, Modal, RichText, ScrollArea, Slider, Ui};

use super::controls::{self, counted};
use super::theme::palette;
use crate::dataset::Split;
use crate::dataset::split::{SplitOptions, SplitPlan};
use crate::session::Command;
use crate::session::JobKind;
use crate::session::Session;

/// So many classes have a row of their own.
const MAX_ROWS: usize = 40;

/// What the form remembers while it is open.
#[derive(Default)]
pub struct SplitForm {
    options: SplitOptions,
    /// What the session's plan was made with.
    planned: Option<SplitOptions>,
}

/// What came of a frame.
#[derive(Debug, Default)]
pub struct SplitDone {
    pub command: Option<Command>,
    pub closes: bool,
}

impl SplitForm {
    pub fn ui(&mut self, ui: &Ui, session: &Session) -> SplitDone {
        let mut done = SplitDone::default();
        let Some(open) = &session.dataset else { return SplitDone { closes: true, ..done } };
        let frame = Frame::window(ui.style()).inner_margin(24);
        let modal = Modal::new(Id::unique("splits")).frame(frame).show(ui.ctx(), |ui| {
            ui.set_width(680.0);
            done.closes = controls::section_with(ui, "Split the dataset", |ui| ui.button("Close").clicked());
            controls::note(
                ui,
                "Images of one content, copies of one picture and frames of one video stay together; each class is spread over the splits. \
                 No image is moved: lists say which is which",
            );
            ui.add_space(8.0);
            self.options_ui(ui);
            ui.add_space(10.0);
            let is_planning = session.is_running(JobKind::PlanSplit);
            let plan = session.split_plan.as_ref().filter(|_| self.planned.as_ref() == Some(&self.options));
            let leaves_nothing = self.options.val + self.options.test >= 1.0;
            ui.horizontal(|ui| {
                let reason = match () {
                    () if leaves_nothing => Some("Nothing would be left for training"),
                    () if is_planning => Some("It is being worked out"),
                    () => None,
                };
                let button = ui.add_enabled(reason.is_none(), Button::new("Preview")).on_hover_text("Work out a split, and write nothing");
                if button.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
                    self.planned = Some(self.options.clone());
                    done.command = Some(Command::PlanSplit(self.options.clone()));
                }
                let reason = plan.is_none().then_some("Preview it first");
                let button = ui.add_enabled(reason.is_none(), Button::new("Apply")).on_hover_text("Write it, as one step of undo");
                if button.on_disabled_hover_text(reason.unwrap_or_default()).clicked() {
                    done.command = Some(Command::ApplySplit);
                    done.closes = true;
                }
                if is_planning {
                    ui.spinner();
                }
            });
            if let Some(plan) = plan {
                ui.add_space(8.0);
                plan_ui(ui, plan, &open.dataset.names);
            }
        });
        done.closes |= modal.should_close();
        done
    }

    fn options_ui(&mut self, ui: &mut Ui) {
        let SplitOptions { val, test, seed, groups_by_name } = &mut self.options;
        Grid::new("split options").num_columns(2).spacing([14.0, 6.0]).show(ui, |ui| {
            for (name, share, tooltip) in [
                ("Validation", val, "Share of the images that is only measured on"),
                ("Test", test, "Share of the images that is kept for the very end"),
            ] {
                controls::weak(ui, name);
                let mut percent = *share * 100.0;
                let slider = Slider::new(&mut percent, 0.0..=50.0).max_decimals(0).suffix(" %");
                // Only what a person does changes it: the slider rounds what it shows.
                if controls::slider(ui, slider, name, tooltip, 200.0).changed() {
                    *share = percent.round() / 100.0;
                }
                ui.end_row();
            }
            controls::weak(ui, "Seed");
            ui.add(DragValue::new(seed)).on_hover_text("The same seed gives the same split").accessible_name("Seed");
            ui.end_row();
            controls::weak(ui, "Groups");
            ui.checkbox(groups_by_name, "Keep frames of one video together")
                .on_hover_text("As far as names tell, such as clip_0001 and clip_0002. Equal images stay together anyway");
            ui.end_row();
        });
    }
}

/// What each split would hold.
fn plan_ui(ui: &mut Ui, plan: &SplitPlan, names: &[String]) {
    let [by_content, by_copy, by_name] = plan.n_joined;
    let joined =
        format!("{}: {by_content} of equal images, {by_copy} of copies of one picture, {by_name} by name", counted(plan.n_groups, "group"));
    controls::note(ui, joined);
    ui.add_space(4.0);
    ScrollArea::both().max_height(260.0).show(ui, |ui| {
        Grid::new("split plan").num_columns(4).min_col_width(80.0).spacing([18.0, 3.0]).striped(true).show(ui, |ui| {
            ui.label("");
            for split in Split::ALL {
                ui.label(RichText::new(split.name()).color(palette(ui).strong));
            }
            ui.end_row();
            let row = |ui: &mut Ui, name: &str, counts: [usize; 3]| {
                let all: usize = counts.iter().sum();
                controls::weak(ui, name);
                for count in counts {
                    let share = if all == 0 { 0.0 } else { 100.0 * count as f64 / all as f64 };
                    ui.label(format!("{}  ({share:.0} %)", controls::thousands(count)));
                }
                ui.end_row();
            };
            row(ui, "Images", [0, 1, 2].map(|split: usize| plan.counts[split].n_images));
            row(ui, "Background", [0, 1, 2].map(|split: usize| plan.counts[split].n_backgrounds));
            for (class, name) in names.iter().enumerate().take(MAX_ROWS) {
                row(ui, name, [0, 1, 2].map(|split: usize| plan.counts[split].boxes.get(class).copied().unwrap_or(0)));
            }
        });
    });
    if names.len() > MAX_ROWS {
        controls::note(ui, format!("and {} more classes", names.len() - MAX_ROWS));
    }
    for note in &plan.notes {
        controls::note(ui, note);
    }
}
