//! The whole window: workspaces, bars, keys. Draws from `&Session` and gives back what was asked for as commands.
//!
//! `Window` is what the window remembers and can be drawn and tested without eframe; `App` puts a session below it and
//! carries out the commands after drawing, so that a frame never sees half-changed state.

use std::time::{Duration, Instant};

use egui::{Align, Button, CentralPanel, Frame, Key, Layout, Margin, Panel, RichText, Ui};

use super::action::{Action, KeyPlace, Workspace};
use super::check::CheckPanel;
use super::classes::ClassPanel;
use super::command_palette::{Chosen, CommandPalette, PaletteDone};
use super::controls;
use super::data::DataPanel;
use super::detect::DetectPanel;
use super::export::ExportPanel;
use super::focus;
use super::help::{self, HelpDone};
use super::keymap::KeyMap;
use super::keys_page::KeysPage;
use super::notices;
use super::splits::SplitForm;
use super::status;
use super::textures::Textures;
use super::theme::{self, palette};
use super::train::{TrainPage, TrainPanel};
use super::train_control;
use super::viewport::Zoom;
use super::welcome;
use super::welcome::Welcome;
use crate::session::Command;
use crate::session::JobKind;
use crate::session::KeySettings;
use crate::session::OpenTarget;
use crate::session::Session;
use crate::session::ThemeChoice;
use crate::session::{BrowseKind, CommandDone, Event};

/// What panels ask for while they draw.
#[derive(Default)]
pub struct Out {
    pub commands: Vec<Command>,
    pub actions: Vec<Action>,
}

/// What a panel draws from, and where it leaves its wishes.
pub struct View<'a> {
    pub session: &'a Session,
    pub textures: &'a mut Textures,
    pub out: &'a mut Out,
    /// The person wants to see pictures without boxes.
    pub hides_boxes: bool,
}

impl View<'_> {
    pub fn ask(&mut self, command: Command) {
        self.out.commands.push(command);
    }

    pub fn act(&mut self, action: Action) {
        self.out.actions.push(action);
    }
}

/// What the window remembers between frames.
#[derive(Default)]
pub struct Window {
    pub workspace: Workspace,
    pub textures: Textures,
    data: DataPanel,
    check: CheckPanel,
    train: TrainPanel,
    detect: DetectPanel,
    export: ExportPanel,
    welcome: Welcome,
    hides_boxes: bool,
    shows_help: bool,
    command_palette: Option<CommandPalette>,
    keys_page: Option<KeysPage>,
    classes: Option<ClassPanel>,
    splits: Option<SplitForm>,
    /// What the key map was made from.
    keys: Option<KeySettings>,
    /// Actions that wait until the edit before them is shown.
    later: Vec<Action>,
    /// A text field had the focus when the last frame ended.
    was_typing: bool,
}

impl Window {
    /// Draws everything, and returns what was asked for in this frame.
    #[must_use]
    pub fn ui(&mut self, ui: &mut Ui, session: &Session) -> Vec<Command> {
        let mut out = Out::default();
        self.follow_keys(ui, session, &mut out);
        theme::follow_class_colors(session.dataset.as_ref().map(|open| &open.colors));
        if self.workspace == Workspace::Data && !self.has_modal() {
            self.data.take_keys(ui.ctx());
        }
        if !self.keys_page.as_ref().is_some_and(KeysPage::is_capturing) {
            // A sheet in front has the keys, but for those that put it away or bring another.
            let has_modal = self.has_modal();
            let counts = |action| !has_modal || matches!(action, Action::Help | Action::OpenCommandPalette | Action::ChangeKeys);
            out.actions = std::mem::take(&mut self.later);
            out.actions.extend(KeyMap::of(ui.ctx()).pressed(ui.ctx(), self.place(session), counts));
        }
        // Escape has taken the focus from a text field already.
        let is_typing = self.was_typing || ui.ctx().text_edit_focused();
        let is_busy_elsewhere = self.has_modal() || egui::Popup::is_any_open(ui.ctx()) || is_typing;
        if !is_busy_elsewhere && ui.input(|input| input.key_pressed(Key::Escape)) && self.workspace == Workspace::Data {
            self.data.leave_image();
        }
        let before = self.workspace;
        self.data.follow(session);
        self.top_bar_ui(ui, session, &mut out);
        let hides_boxes = self.hides_boxes || KeyMap::of(ui.ctx()).is_down(ui.ctx(), Action::PeekBoxes);
        let mut view = View { session, textures: &mut self.textures, out: &mut out, hides_boxes };
        status::ui(ui, &mut view, self.data.n_labels(), self.workspace == Workspace::Data);
        CentralPanel::default().frame(Frame::new().fill(palette(ui).backdrop)).show(ui, |ui| match self.workspace {
            Workspace::Data if session.dataset.is_none() => self.welcome.ui(ui, &mut view),
            Workspace::Data => self.data.ui(ui, &mut view),
            Workspace::Check => self.check.ui(ui, &mut view),
            Workspace::Train => self.train.ui(ui, &mut view),
            Workspace::Detect => self.detect.ui(ui, &mut view),
            Workspace::Export => self.export.ui(ui, &mut view),
        });
        notices::ui(ui, &mut view);
        // After drawing, when it is known whether their field is still typed in.
        out.commands.extend(self.train.unsaved_notes(session));
        welcome::drop_hint_ui(ui);
        for path in ui.input(|input| input.raw.dropped_files.iter().map(|file| file.path().to_path_buf()).collect::<Vec<_>>()) {
            out.commands.push(Command::Open(path));
        }
        self.modals_ui(ui, session, &mut out);
        focus::ui(ui);
        self.was_typing = ui.ctx().text_edit_focused();
        self.act_all(ui, session, &mut out);
        if self.workspace != before {
            ui.ctx().request_repaint();
        }
        let missing = self.textures.requests().cloned().map(Command::LoadPicture);
        out.commands.extend(missing);
        out.commands.extend(self.textures.tiles.requests().cloned().map(Command::LoadTile));
        out.commands
    }

    /// Where keys are pressed.
    fn place(&self, session: &Session) -> KeyPlace {
        match self.workspace {
            Workspace::Data => self.data.place(session),
            Workspace::Check => KeyPlace::Check,
            Workspace::Train => KeyPlace::Train,
            Workspace::Detect => KeyPlace::Detect,
            Workspace::Export => KeyPlace::Export,
        }
    }

    fn has_modal(&self) -> bool {
        self.shows_help
            || self.command_palette.is_some()
            || self.keys_page.is_some()
            || self.data.has_form()
            || self.classes.is_some()
            || self.splits.is_some()
    }

    /// Shows one of the sheets in front of the workspaces, or puts it away if it is shown.
    fn toggle_modal(&mut self, action: Action) {
        let was = (self.shows_help, self.command_palette.is_some(), self.keys_page.is_some());
        (self.shows_help, self.command_palette, self.keys_page) = (false, None, None);
        match action {
            Action::Help => self.shows_help = !was.0,
            Action::OpenCommandPalette => self.command_palette = (!was.1).then(CommandPalette::default),
            Action::ChangeKeys => self.keys_page = (!was.2).then(KeysPage::default),
            _ => {}
        }
    }

    fn modals_ui(&mut self, ui: &Ui, session: &Session, out: &mut Out) {
        let place = self.place(session);
        if self.shows_help {
            match help::ui(ui, place) {
                HelpDone::Stay => {}
                HelpDone::Close => self.shows_help = false,
                HelpDone::ChangeKeys => self.toggle_modal(Action::ChangeKeys),
            }
        } else if self.data.has_form() {
            out.commands.extend(self.data.form_ui(ui, session));
        } else if let Some(classes) = &mut self.classes {
            let done = classes.ui(ui, session);
            out.commands.extend(done.command);
            if done.closes {
                self.classes = None;
            }
        } else if let Some(splits) = &mut self.splits {
            let done = splits.ui(ui, session);
            out.commands.extend(done.command);
            if done.closes {
                self.splits = None;
            }
        } else if let Some(page) = &mut self.keys_page {
            let done = page.ui(ui, &session.settings.keys);
            out.commands.extend(done.changed.map(Command::SetKeys));
            if done.closes {
                self.keys_page = None;
            }
        } else if let Some(commands) = &mut self.command_palette {
            let done = commands.ui(ui, session, place);
            if done != PaletteDone::Stay {
                self.command_palette = None;
            }
            match done {
                PaletteDone::Chosen(Chosen::Act(action)) => out.actions.push(action),
                PaletteDone::Chosen(Chosen::Open(path)) => out.commands.push(Command::Open(path)),
                PaletteDone::Chosen(Chosen::Image(image)) => {
                    self.workspace = Workspace::Data;
                    self.data.show_image(session, image);
                }
                PaletteDone::Chosen(Chosen::Class(class)) => {
                    self.workspace = Workspace::Data;
                    self.data.show_class(class);
                }
                PaletteDone::Stay | PaletteDone::Close => {}
            }
        }
    }

    /// Makes the key map again when the settings have changed, and tells what of them means nothing.
    fn follow_keys(&mut self, ui: &Ui, session: &Session, out: &mut Out) {
        if self.keys.as_ref() == Some(&session.settings.keys) {
            return;
        }
        let (map, problems) = KeyMap::new(&session.settings.keys);
        map.install(ui.ctx());
        self.keys = Some(session.settings.keys.clone());
        if !problems.is_empty() {
            let hint = Some("this part of the settings is left out".to_owned());
            out.commands.push(Command::Tell { text: format!("keys in the settings: {}", problems.join("; ")), hint });
        }
    }

    /// Follows what jobs report; returns what should happen next.
    pub fn on_event(&mut self, event: &Event, session: &Session) -> Vec<Command> {
        match event {
            Event::Opened(dataset) => {
                self.textures.clear();
                self.check.on_opened();
                self.train.on_opened(dataset, &session.settings);
            }
            Event::RunOpened(_) => self.train.show(TrainPage::Run),
            Event::Ledger(reply) => self.check.on_edited(reply),
            Event::Finished { done: CommandDone::SampleWritten { out, .. }, .. } => return vec![Command::Open(out.clone())],
            Event::Finished { done: CommandDone::Browsed { kind, path: Some(path) }, .. } => return self.take_path(*kind, path.clone()),
            Event::Finished { done, .. } => {
                self.check.on_done(done);
                self.train.on_done(done);
            }
            _ => {}
        }
        Vec::new()
    }

    /// A path that was chosen in the file dialog goes to the field that asked for it.
    fn take_path(&mut self, kind: BrowseKind, path: std::path::PathBuf) -> Vec<Command> {
        match kind {
            BrowseKind::Dataset => return vec![Command::Open(path)],
            BrowseKind::StartWeights => self.train.set_start_weights(path),
            BrowseKind::HypFile => self.train.set_hyp_file(path),
            BrowseKind::Weights => return vec![Command::UseWeights(path)],
            BrowseKind::Pictures => self.detect.set_source(path),
            BrowseKind::ExportFile => self.export.set_out(path),
        }
        Vec::new()
    }

    /// Carries out the actions of a frame. Those behind an edit wait for the next one, since they are about what is there after it.
    fn act_all(&mut self, ui: &Ui, session: &Session, out: &mut Out) {
        let mut actions = std::mem::take(&mut out.actions).into_iter();
        while let Some(action) = actions.next() {
            if action.unavailable(session).is_some() {
                continue;
            }
            out.commands.extend(self.data.settle(action, session));
            if out.commands.iter().any(|command| matches!(command, Command::Edit(_) | Command::RejectProposals { .. })) {
                self.later = std::iter::once(action).chain(actions).collect();
                ui.ctx().request_repaint();
                return;
            }
            self.act(ui, action, session, &mut out.commands);
        }
    }

    fn act(&mut self, ui: &Ui, action: Action, session: &Session, commands: &mut Vec<Command>) {
        match action {
            Action::Open => commands.push(Command::Browse(BrowseKind::Dataset)),
            Action::OpenSample => commands.push(Command::OpenSample),
            Action::NextImage => self.step(session, true),
            Action::PreviousImage => self.step(session, false),
            Action::ToggleGrid if self.workspace == Workspace::Data => self.data.toggle_grid(),
            // Of the second, the key is looked at as long as it is held.
            Action::ToggleGrid | Action::PeekBoxes => {}
            Action::ToggleBoxes => self.hides_boxes = !self.hides_boxes,
            Action::ZoomIn => self.zoom(Zoom::By(1.25)),
            Action::ZoomOut => self.zoom(Zoom::By(0.8)),
            Action::ZoomFit => self.zoom(Zoom::Fit),
            Action::ZoomActual => self.zoom(Zoom::Actual),
            Action::Check => {
                self.workspace = Workspace::Check;
                commands.push(Command::Check { path: None, images: self.check.depth });
            }
            Action::PreviewFix => {
                self.workspace = Workspace::Check;
                commands.push(Command::Fix { path: None, dry_run: true });
            }
            Action::ApplyFix => commands.push(Command::Fix { path: None, dry_run: false }),
            Action::Undo => commands.push(Command::UndoEdit),
            Action::Redo => commands.push(Command::RedoEdit),
            Action::StartTraining => {
                self.workspace = Workspace::Train;
                commands.extend(self.train.start_command(session));
            }
            Action::StopTraining => {
                let training = session.jobs.iter().filter(|job| job.kind == JobKind::Train);
                commands.extend(training.map(|job| Command::Cancel(job.id)));
            }
            Action::StopAfterEpoch | Action::PauseTraining | Action::ValidateNow | Action::SaveNow => {
                commands.extend(train_control::order(action, session).map(Command::Steer));
            }
            Action::ResumeTraining => {
                self.workspace = Workspace::Train;
                commands.extend(self.train.resume_command(session));
            }
            Action::Enqueue | Action::PreviewBatches | Action::OverfitCheck => {
                self.workspace = Workspace::Train;
                commands.extend(self.train.form_command(action, session));
            }
            Action::ResetZoom => self.train.reset_zoom(),
            Action::CompareRuns => {
                self.workspace = Workspace::Train;
                self.train.show(TrainPage::Compare);
            }
            Action::Detect => {
                self.workspace = Workspace::Detect;
                commands.extend(self.detect.start_command(session));
            }
            Action::LookAtDetections => {
                self.workspace = Workspace::Detect;
                self.detect.use_validation_pictures();
                commands.extend(self.detect.start_command(session));
            }
            Action::Export => {
                self.workspace = Workspace::Export;
                commands.extend(self.export.start_command(session));
            }
            Action::ShowData => self.workspace = Workspace::Data,
            Action::ShowCheck => self.workspace = Workspace::Check,
            Action::ShowTrain => self.workspace = Workspace::Train,
            Action::ShowDetect => self.workspace = Workspace::Detect,
            Action::ShowExport => self.workspace = Workspace::Export,
            Action::ToggleTheme => {
                let other = if ui.visuals().dark_mode { ThemeChoice::Light } else { ThemeChoice::Dark };
                commands.push(Command::SetTheme(other));
            }
            Action::Help | Action::OpenCommandPalette | Action::ChangeKeys => self.toggle_modal(action),
            Action::EditClasses => self.classes = Some(ClassPanel::default()),
            Action::SplitDataset => self.splits = Some(SplitForm::default()),
            of_data => {
                commands.extend(self.data.act(ui, of_data, session));
                ui.ctx().request_repaint();
            }
        }
    }

    fn step(&mut self, session: &Session, forward: bool) {
        match self.workspace {
            Workspace::Data => self.data.step(forward),
            Workspace::Check => self.check.step(session, forward),
            Workspace::Detect => self.detect.step(session, forward),
            Workspace::Train => self.train.step(session, forward),
            Workspace::Export => {}
        }
    }

    fn zoom(&mut self, zoom: Zoom) {
        match self.workspace {
            Workspace::Data => self.data.zoom(zoom),
            Workspace::Check => self.check.zoom(zoom),
            Workspace::Detect => self.detect.zoom(zoom),
            Workspace::Train | Workspace::Export => {}
        }
    }

    fn top_bar_ui(&mut self, ui: &mut Ui, session: &Session, out: &mut Out) {
        let palette = palette(ui);
        let frame = Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(14, 0));
        Panel::top("top bar").frame(frame).exact_size(48.0).show(ui, |ui| {
            ui.horizontal_centered(|ui| {
                ui.label(RichText::new("Boxwright").heading().color(palette.strong));
                ui.add_space(12.0);
                ui.spacing_mut().item_spacing.x = 0.0;
                for workspace in Workspace::ALL {
                    if self.tab_ui(ui, session, workspace) {
                        out.actions.push(workspace.action());
                    }
                }
                ui.spacing_mut().item_spacing.x = 8.0;
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                    let tooltip = Action::Help.tooltip(ui.ctx());
                    let response = ui.add(Button::new("?").min_size(egui::vec2(28.0, 28.0))).on_hover_text(tooltip);
                    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, Action::Help.title()));
                    if response.clicked() {
                        out.actions.push(Action::Help);
                    }
                    let text = if ui.visuals().dark_mode { "Light" } else { "Dark" };
                    if ui.button(text).on_hover_text(Action::ToggleTheme.tooltip(ui.ctx())).clicked() {
                        out.actions.push(Action::ToggleTheme);
                    }
                    if controls::action_button(ui, Action::Open, Action::Open.unavailable(session)) {
                        out.actions.push(Action::Open);
                    }
                });
            });
        });
    }

    /// A tab of the top bar, with what its workspace has to tell.
    fn tab_ui(&self, ui: &mut Ui, session: &Session, workspace: Workspace) -> bool {
        let palette = palette(ui);
        let is_shown = self.workspace == workspace;
        let (rect, response) = ui.allocate_exact_size(egui::vec2(76.0, 48.0), egui::Sense::click());
        response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, is_shown, workspace.title()));
        let response = response.on_hover_text(workspace.action().tooltip(ui.ctx()));
        let ink = if is_shown || response.hovered() || response.has_focus() { palette.strong } else { palette.weak };
        let style = if is_shown { theme::strong() } else { egui::TextStyle::Body };
        ui.painter().text(rect.center(), egui::Align2::CENTER_CENTER, workspace.title(), style.resolve(ui.style()), ink);
        if is_shown {
            let line = egui::Rect::from_min_max(rect.left_bottom() + egui::vec2(12.0, -4.0), rect.right_bottom() - egui::vec2(12.0, 2.0));
            ui.painter().rect_filled(line, 1.0, palette.accent);
        }
        let badge = match workspace {
            Workspace::Check => session.report.as_ref().filter(|report| !report.findings.is_empty()).map(|_| palette.warn),
            Workspace::Train => session.is_running(JobKind::Train).then_some(palette.accent),
            Workspace::Detect => session.is_running(JobKind::Detect).then_some(palette.accent),
            Workspace::Data | Workspace::Export => None,
        };
        if let Some(color) = badge {
            ui.painter().circle_filled(rect.right_top() + egui::vec2(-9.0, 18.0), 3.0, color);
        }
        response.clicked()
    }
}

/// The window with its session.
pub struct App {
    pub session: Session,
    pub window: Window,
}

/// Time that one frame gives to taking in what jobs report.
const POLL_BUDGET: Duration = Duration::from_millis(4);

impl App {
    pub fn new(ctx: &egui::Context, session: Session) -> Self {
        theme::install(ctx);
        theme::choose(ctx, session.settings.theme);
        Self { session, window: Window::default() }
    }

    /// Takes in what happened since the last frame.
    pub fn logic(&mut self, ctx: &egui::Context) -> Vec<Event> {
        let start = Instant::now();
        let events = self.session.poll(POLL_BUDGET);
        let is_behind = start.elapsed() >= POLL_BUDGET;
        for event in &events {
            for command in self.window.on_event(event, &self.session) {
                self.apply(ctx, command);
            }
        }
        if is_behind {
            // There may be more than the budget let in.
            ctx.request_repaint();
        }
        self.window.textures.take_in(ctx, &self.session.pictures, &self.session.tiles);
        events
    }

    /// Draws a frame and carries out what was asked for in it.
    pub fn ui(&mut self, ui: &mut Ui) {
        for command in self.window.ui(ui, &self.session) {
            self.apply(ui.ctx(), command);
        }
    }

    /// Keeps what was typed and is not kept yet, before the window is gone.
    pub fn close(&mut self) {
        loop {
            if self.session.is_running(JobKind::SaveNotes) || self.session.is_running(JobKind::CompareRuns) {
                self.session.wait();
            } else if let Some(command) = self.window.train.unsaved_notes(&self.session) {
                self.session.apply(command);
            } else {
                break;
            }
        }
        self.session.finish_edits();
    }

    /// Carries out a command, and shows the workspace where its effect will be seen.
    pub fn apply(&mut self, ctx: &egui::Context, command: Command) {
        match &command {
            Command::SetTheme(theme) => theme::choose(ctx, *theme),
            Command::Open(path) => {
                self.window.workspace = match OpenTarget::of(path) {
                    OpenTarget::Dataset(_) => Workspace::Data,
                    OpenTarget::Run(_) => Workspace::Train,
                    OpenTarget::Weights(_) => Workspace::Detect,
                }
            }
            _ => {}
        }
        self.session.apply(command);
    }
}
