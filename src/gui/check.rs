//! The workspace *Check*: what is wrong with the labels, and what do the safe fixes do about it?
//!
//! Left the rules that found something, with counts; in the middle the findings or the preview of fixes; right the image
//! with the box in question. Nothing is written before Apply, and Undo takes the last batch back.

use std::sync::Arc;

use egui::{Align, Frame, Layout, Margin, Panel, RichText, ScrollArea, Sense, Ui};
use egui_extras::{Column, TableBuilder};

use super::action::Action;
use super::app::View;
use super::canvas::{Canvas, CanvasBox, Outline, label_box};
use super::controls::{self, counted};
use super::status;
use super::theme::{self, palette};
use super::viewport::Zoom;
use super::welcome;
use crate::dataset::check::Finding;
use crate::dataset::check::{CheckReport, Fixability, Rule, Severity};
use crate::dataset::fix::Receipt;
use crate::dataset::image_check::Depth;
use crate::dataset::ledger::Step;
use crate::dataset::ledger::record::Scope;
use crate::geom::Xywhn;
use crate::session::CommandDone;
use crate::session::JobKind;
use crate::session::Session;
use crate::session::{LedgerNews, LedgerReply};

/// What the receipt in the session is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReceiptOf {
    #[default]
    Nothing,
    Preview,
    Fix,
    Undo,
}

/// Counts of one report, and the findings that pass the filter.
struct Listing {
    report: Arc<CheckReport>,
    rule: Option<Rule>,
    /// Rules that found something, the most severe first.
    rules: Vec<RuleCount>,
    n_errors: usize,
    n_warnings: usize,
    n_fixable: usize,
    findings: Vec<usize>,
}

struct RuleCount {
    rule: Rule,
    severity: Severity,
    count: usize,
    n_fixable: usize,
}

/// What the workspace remembers between frames.
#[derive(Default)]
pub struct CheckPanel {
    /// How closely the next check looks at images.
    pub depth: Depth,
    rule: Option<Rule>,
    listing: Option<Listing>,
    /// Position among the shown findings.
    position: Option<usize>,
    scrolls: bool,
    receipt_of: ReceiptOf,
    canvas: Canvas,
}

impl CheckPanel {
    pub fn ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        if let Some(report) = &view.session.report {
            self.update_listing(report);
        }
        self.bar_ui(ui, view);
        if view.session.dataset.is_none() {
            welcome::no_dataset_ui(ui, view, "Open one, and its labels can be checked");
            return;
        }
        if self.receipt_of == ReceiptOf::Preview
            && let Some(receipt) = &view.session.receipt
        {
            self.preview_ui(ui, view, receipt);
            return;
        }
        let Some(report) = &view.session.report else {
            no_report_ui(ui, view);
            return;
        };
        let Some(listing) = self.listing.take() else { return };
        if listing.report.findings.is_empty() {
            let text = format!("{} and {} were read", counted(report.n_images, "image"), counted(report.n_rows, "label row"));
            controls::empty_state(ui, "Nothing is wrong with this dataset", &text, |_| ());
        } else {
            self.findings_ui(ui, view, &listing);
        }
        self.listing = Some(listing);
    }

    /// Remembers what the session's receipt is of.
    pub fn on_done(&mut self, done: &CommandDone) {
        self.receipt_of = match done {
            CommandDone::Fixed { dry_run: true, .. } => ReceiptOf::Preview,
            CommandDone::Fixed { dry_run: false, .. } => ReceiptOf::Fix,
            CommandDone::Undone(_) => ReceiptOf::Undo,
            _ => return,
        };
    }

    /// Fixes were taken back, or done again.
    pub fn on_edited(&mut self, reply: &LedgerReply) {
        for news in &reply.news {
            match news {
                LedgerNews::Edited(edited) if edited.scope == Scope::Fixes => {
                    self.receipt_of = if edited.step == Step::Undo { ReceiptOf::Undo } else { ReceiptOf::Nothing };
                }
                _ => {}
            }
        }
    }

    /// Another dataset was opened.
    pub fn on_opened(&mut self) {
        *self = Self { depth: self.depth, ..Self::default() };
    }

    /// Goes to another finding.
    pub fn step(&mut self, session: &Session, forward: bool) {
        let Some(report) = &session.report else { return };
        self.update_listing(report);
        let n_findings = self.listing.as_ref().map_or(0, |listing| listing.findings.len());
        let next = match (self.position, forward) {
            (None, _) => 0,
            (Some(position), true) => position + 1,
            (Some(position), false) => position.saturating_sub(1),
        };
        if next < n_findings {
            (self.position, self.scrolls) = (Some(next), true);
        }
    }

    pub fn zoom(&mut self, zoom: Zoom) {
        self.canvas.zoom(zoom);
    }

    fn update_listing(&mut self, report: &Arc<CheckReport>) {
        let is_current = |listing: &Listing| Arc::ptr_eq(&listing.report, report) && listing.rule == self.rule;
        if self.listing.as_ref().is_some_and(is_current) {
            return;
        }
        if self.rule.is_some_and(|rule| !report.findings.iter().any(|finding| finding.rule == rule)) {
            self.rule = None;
        }
        let listing = Listing::new(report, self.rule);
        self.position = (!listing.findings.is_empty()).then_some(0);
        self.listing = Some(listing);
    }

    fn bar_ui(&mut self, ui: &mut Ui, view: &mut View<'_>) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(12, 0));
        Panel::top("check bar").frame(frame).exact_size(52.0).show(ui, |ui| {
            ui.horizontal_centered(|ui| {
                let reason = Action::Check.unavailable(view.session);
                if controls::action_button(ui, Action::Check, reason) {
                    view.act(Action::Check);
                }
                self.depth_ui(ui);
                let n_fixable = self.listing.as_ref().filter(|_| view.session.report.is_some()).map(|listing| listing.n_fixable);
                let reason = Action::PreviewFix.unavailable(view.session).or(match n_fixable {
                    None => Some("Check the labels first"),
                    Some(0) => Some("No finding can be fixed without asking you"),
                    Some(_) => None,
                });
                if controls::action_button(ui, Action::PreviewFix, reason) {
                    view.act(Action::PreviewFix);
                }
                for action in [Action::Undo, Action::Redo] {
                    if status::step_button(ui, view.session, action, None) {
                        view.act(action);
                    }
                }
                ui.add_space(6.0);
                self.outcome_ui(ui, view.session);
            });
        });
    }

    fn depth_ui(&mut self, ui: &mut Ui) {
        let mut decodes = self.depth == Depth::Pixels;
        let tooltip = "The next check decodes every image as training does and compares pixels: damaged files, copies, leaks between splits. \
                       Without it headers are read, which is much faster";
        if ui.checkbox(&mut decodes, "Decode images").on_hover_text(tooltip).changed() {
            self.depth = if decodes { Depth::Pixels } else { Depth::Header };
        }
    }

    /// What the last fix or undo did, else what the check counted.
    fn outcome_ui(&self, ui: &mut Ui, session: &Session) {
        let receipt = session.receipt.as_ref();
        match (self.receipt_of, receipt) {
            (ReceiptOf::Fix, Some(receipt)) => {
                let text = format!("Fixed {} in {}", counted(receipt.changes.len(), "row"), counted(receipt.files.len(), "file"));
                controls::chip(ui, &text, palette(ui).good);
                receipt_path_ui(ui, receipt);
            }
            (ReceiptOf::Undo, Some(receipt)) => {
                let text = if receipt.files.is_empty() {
                    "There was nothing to undo".to_owned()
                } else {
                    format!("Restored {}", counted(receipt.files.len(), "file"))
                };
                controls::chip(ui, &text, palette(ui).good);
                receipt_path_ui(ui, receipt);
            }
            _ => {
                if let Some(report) = &session.report {
                    let text = format!(
                        "{}, {} and {} read",
                        counted(report.n_images, "image"),
                        counted(report.n_label_files, "label file"),
                        counted(report.n_rows, "row")
                    );
                    controls::weak(ui, text);
                }
            }
        }
    }

    fn findings_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin { left: 10, right: 8, top: 8, bottom: 0 });
        Panel::left("check rules").frame(frame).default_size(262.0).min_size(200.0).show(ui, |ui| {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| self.rules_ui(ui, listing));
        });
        let width = (ui.available_width() * 0.46).max(320.0);
        Panel::right("check image").default_size(width).min_size(280.0).frame(Frame::new()).show(ui, |ui| self.image_ui(ui, view, listing));
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin { left: 10, right: 2, top: 6, bottom: 0 });
        egui::CentralPanel::default().frame(frame).show(ui, |ui| self.table_ui(ui, listing));
    }

    fn rules_ui(&mut self, ui: &mut Ui, listing: &Listing) {
        ui.spacing_mut().item_spacing.y = 2.0;
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 24.0;
            controls::figure(ui, &controls::thousands(listing.n_errors), "errors");
            controls::figure(ui, &controls::thousands(listing.n_warnings), "warnings");
            controls::figure(ui, &controls::thousands(listing.n_fixable), "safe to fix");
        });
        ui.add_space(10.0);
        controls::section(ui, "Findings by rule");
        let all = listing.report.findings.len();
        let row = controls::CountRow { name: "All findings", count: all, color: None, is_selected: self.rule.is_none(), tooltip: "" };
        if row.ui(ui).clicked() {
            self.rule = None;
        }
        for each in &listing.rules {
            let info = each.rule.info();
            let is_selected = self.rule == Some(each.rule);
            let fixable = match each.n_fixable {
                0 => "A person has to decide about these".to_owned(),
                n if n == each.count => "The safe fixes mend all of these".to_owned(),
                n => format!("The safe fixes mend {n} of these"),
            };
            let tooltip = format!("{}\n\n{fixable}", capitalized(info.why));
            let color = Some(severity_color(ui, each.severity));
            let row = controls::CountRow { name: info.title, count: each.count, color, is_selected, tooltip: &tooltip };
            if row.ui(ui).clicked() {
                self.rule = if is_selected { None } else { Some(each.rule) };
            }
        }
    }

    fn table_ui(&mut self, ui: &mut Ui, listing: &Listing) {
        let palette = palette(ui);
        let Self { position, scrolls, .. } = self;
        ui.spacing_mut().item_spacing = egui::vec2(8.0, 0.0);
        let mut table = TableBuilder::new(ui)
            .id_salt("findings")
            .sense(Sense::click())
            .striped(false)
            .auto_shrink(false)
            .cell_layout(Layout::left_to_right(Align::Center))
            .column(Column::exact(14.0))
            .column(Column::remainder().at_least(150.0).clip(true))
            .column(Column::exact(150.0).clip(true))
            .column(Column::exact(38.0));
        if std::mem::take(scrolls)
            && let Some(row) = *position
        {
            table = table.scroll_to_row(row, None);
        }
        let header = table.header(24.0, |mut header| {
            for text in ["", "Finding", "File", "Fix"] {
                header.col(|ui| {
                    controls::note(ui, text);
                });
            }
        });
        header.body(|body| {
            body.rows(28.0, listing.findings.len(), |mut row| {
                let index = row.index();
                let finding = &listing.report.findings[listing.findings[index]];
                row.set_selected(*position == Some(index));
                row.col(|ui| {
                    let (rect, _) = ui.allocate_exact_size(egui::vec2(10.0, 10.0), Sense::hover());
                    ui.painter().circle_filled(rect.center(), 4.0, severity_color(ui, finding.severity));
                });
                row.col(|ui| {
                    ui.add(egui::Label::new(RichText::new(&finding.message).color(palette.text)).truncate());
                });
                row.col(|ui| {
                    let name = finding.file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                    let place = finding.line.map_or_else(|| name.to_string(), |line| format!("{name}:{line}"));
                    ui.add(egui::Label::new(RichText::new(place).small().color(palette.weak)).truncate());
                });
                row.col(|ui| {
                    let (text, color) = match finding.fix {
                        Fixability::Auto => ("safe", palette.good),
                        Fixability::Ask => ("ask", palette.weak),
                        Fixability::None => ("", palette.weak),
                    };
                    ui.label(RichText::new(text).small().color(color));
                });
                let response = row.response();
                let label = format!("finding {}", finding.message);
                response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, *position == Some(index), &label));
                if response.on_hover_cursor(egui::CursorIcon::PointingHand).clicked() {
                    *position = Some(index);
                }
            });
        });
    }

    fn image_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, listing: &Listing) {
        let finding = self.position.and_then(|position| listing.findings.get(position)).map(|&index| &listing.report.findings[index]);
        let (Some(finding), Some(open)) = (finding, &view.session.dataset) else {
            controls::empty_state(ui, "No finding is selected", "Click one to see its image", |_| ());
            return;
        };
        let frame = Frame::new().fill(palette(ui).panel).inner_margin(Margin::symmetric(14, 10));
        Panel::bottom("finding details").frame(frame).show(ui, |ui| details_ui(ui, finding));
        let Some(entry) = finding.image.and_then(|image| open.dataset.images.get(image)) else {
            controls::empty_state(ui, "No image belongs to this finding", &capitalized(finding.rule.info().why), |_| ());
            return;
        };
        let mut boxes = Vec::new();
        if !view.hides_boxes {
            let labels = finding.image.map_or(&[][..], |image| view.session.labels(image));
            let is_other = |bbox: Xywhn| finding.bbox != Some(bbox);
            boxes.extend(labels.iter().filter(|label| is_other(label.bbox)).map(|label| label_box(&open.dataset.names, label, false)));
            if let Some(bbox) = finding.bbox {
                let color = severity_color(ui, finding.severity);
                boxes.push(CanvasBox { bbox, color, tag: finding.rule.info().title.into(), outline: Outline::Solid, is_selected: true });
            }
        }
        self.canvas.ui(ui, view.textures, &entry.path, &boxes);
    }

    fn preview_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, receipt: &Receipt) {
        let palette = palette(ui);
        let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(14, 10));
        Panel::bottom("fix preview bar").frame(frame).show(ui, |ui| {
            ui.horizontal(|ui| {
                let reason = Action::ApplyFix.unavailable(view.session).or(receipt.changes.is_empty().then_some("Nothing would change"));
                if controls::primary_button(ui, Action::ApplyFix, reason) {
                    view.act(Action::ApplyFix);
                }
                if ui.button("Cancel").on_hover_text("Back to the findings; nothing was written").clicked() {
                    self.receipt_of = ReceiptOf::Nothing;
                }
                controls::weak(ui, "All other bytes of the files stay as they are, and Undo brings the old rows back");
            });
        });
        egui::CentralPanel::default().frame(Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(14, 10))).show(ui, |ui| {
            let removed = receipt.changes.iter().filter(|change| change.after.is_none()).count();
            let changed = receipt.changes.len() - removed;
            ui.label(RichText::new("What the safe fixes would change").heading().color(palette.strong));
            let files = counted(receipt.files.len(), "file");
            controls::weak(ui, format!("{} changed and {} removed in {files}", counted(changed, "row"), counted(removed, "row")));
            for (file, reason) in &receipt.refused {
                ui.label(RichText::new(format!("Left alone: {}: {reason}", file.display())).color(palette.warn));
            }
            ui.add_space(6.0);
            changes_ui(ui, receipt);
        });
    }
}

fn changes_ui(ui: &mut Ui, receipt: &Receipt) {
    let palette = palette(ui);
    ui.spacing_mut().item_spacing = egui::vec2(12.0, 0.0);
    let table = TableBuilder::new(ui)
        .id_salt("changes")
        .auto_shrink(false)
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::exact(230.0).clip(true))
        .column(Column::exact(210.0).clip(true))
        .column(Column::remainder().clip(true))
        .column(Column::remainder().clip(true));
    let table = table.header(24.0, |mut header| {
        for text in ["File", "Why", "Before", "After"] {
            header.col(|ui| {
                controls::note(ui, text);
            });
        }
    });
    table.body(|body| {
        body.rows(26.0, receipt.changes.len(), |mut row| {
            let change = &receipt.changes[row.index()];
            let mut cell = |text: RichText| {
                row.col(|ui| {
                    ui.add(egui::Label::new(text).truncate());
                });
            };
            let name = change.file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            cell(RichText::new(format!("{name}:{}", change.line)).color(palette.text));
            cell(RichText::new(change.rule.info().title).color(palette.weak));
            cell(RichText::new(change.before.trim_end()).monospace().color(palette.bad));
            let after = change.after.as_deref().map_or_else(
                || RichText::new("removed").color(palette.faint),
                |after| RichText::new(after.trim_end()).monospace().color(palette.good),
            );
            cell(after);
        });
    });
}

fn details_ui(ui: &mut Ui, finding: &Finding) {
    let palette = palette(ui);
    let info = finding.rule.info();
    ui.horizontal(|ui| {
        ui.label(RichText::new(info.title).text_style(theme::strong()).color(palette.strong));
        controls::chip(ui, finding.severity.name(), severity_color(ui, finding.severity));
        if finding.fix == Fixability::Auto {
            controls::chip(ui, "safe to fix", palette.good);
        }
    });
    ui.spacing_mut().item_spacing.y = 3.0;
    ui.add(egui::Label::new(&finding.message).wrap().selectable(true));
    controls::note(ui, capitalized(info.why));
    let place = finding.line.map_or_else(|| finding.file.display().to_string(), |line| format!("{}, line {line}", finding.file.display()));
    ui.add(egui::Label::new(RichText::new(place).small().color(palette.faint)).truncate().selectable(true));
}

fn no_report_ui(ui: &mut Ui, view: &mut View<'_>) {
    if view.session.is_running(JobKind::Check) {
        controls::empty_state(ui, "Checking", "Every label row and every image is looked at", |ui| {
            ui.add(egui::Spinner::new().size(20.0));
        });
        return;
    }
    let text = "The check reads every label row and looks at every image: boxes past the edge, unknown classes, copies, broken files. It writes nothing";
    controls::empty_state(ui, "Find bad labels before they are learned", text, |ui| {
        if controls::primary_button(ui, Action::Check, Action::Check.unavailable(view.session)) {
            view.act(Action::Check);
        }
    });
}

fn receipt_path_ui(ui: &mut Ui, receipt: &Receipt) {
    let Some(path) = &receipt.path else { return };
    let text = RichText::new(format!("Receipt: {}", path.display())).small().color(palette(ui).weak);
    ui.add(egui::Label::new(text).truncate().selectable(true)).on_hover_text("What was changed, row by row, as plain text");
}

fn severity_color(ui: &Ui, severity: Severity) -> egui::Color32 {
    match severity {
        Severity::Error => palette(ui).bad,
        Severity::Warning => palette(ui).warn,
        Severity::Info => palette(ui).accent,
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl Listing {
    fn new(report: &Arc<CheckReport>, rule: Option<Rule>) -> Self {
        let mut rules: Vec<RuleCount> = Vec::new();
        let mut findings = Vec::new();
        let (mut n_errors, mut n_warnings, mut n_fixable) = (0, 0, 0);
        for (index, finding) in report.findings.iter().enumerate() {
            n_errors += usize::from(finding.severity == Severity::Error);
            n_warnings += usize::from(finding.severity == Severity::Warning);
            let is_fixable = usize::from(finding.fix == Fixability::Auto);
            n_fixable += is_fixable;
            match rules.iter_mut().find(|each| each.rule == finding.rule) {
                Some(each) => {
                    each.count += 1;
                    each.n_fixable += is_fixable;
                    each.severity = each.severity.max(finding.severity);
                }
                None => rules.push(RuleCount { rule: finding.rule, severity: finding.severity, count: 1, n_fixable: is_fixable }),
            }
            if rule.is_none_or(|rule| rule == finding.rule) {
                findings.push(index);
            }
        }
        rules.sort_by_key(|each| (std::cmp::Reverse(each.severity), std::cmp::Reverse(each.count)));
        Self { report: report.clone(), rule, rules, n_errors, n_warnings, n_fixable, findings }
    }
}
