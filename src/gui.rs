//! The window: one page for each part of the work, drawn from the session's state.
//!
//! In:  `&Session`. Out: commands, carried out after drawing. Nothing here touches files, threads or processes; whatever
//! takes longer than a frame is a job of the session.

pub mod action;
pub mod app;
pub mod box_states;
pub mod browser;
pub mod canvas;
pub mod charts;
pub mod check;
pub mod class_picker;
pub mod classes;
pub mod command_palette;
pub mod conflict_bar;
pub mod controls;
pub mod curves;
pub mod data;
pub mod data_side;
pub mod detect;
pub mod draft;
pub mod edit_canvas;
pub mod editor;
pub mod editor_bar;
pub mod editor_side;
pub mod export;
pub mod focus;
pub mod fuzzy;
pub mod grid;
pub mod handles;
pub mod help;
pub mod hit;
pub mod image_item;
pub mod image_list;
pub mod key_changes;
pub mod keymap;
pub mod keys_page;
pub mod label_edits;
pub mod listing;
pub mod loupe;
pub mod notices;
pub mod outlines;
pub mod picture_view;
pub mod plots;
pub mod prelabel_form;
pub mod presets;
pub mod proposals;
pub mod query_line;
pub mod screenshot;
pub mod selection;
pub mod selection_bar;
pub mod selection_edits;
pub mod series;
pub mod splits;
pub mod statistics;
pub mod status;
pub mod textures;
pub mod theme;
pub mod tiles;
pub mod tone;
pub mod train;
pub mod train_before;
pub mod train_compare;
pub mod train_control;
pub mod train_form;
pub mod train_options;
pub mod train_queue;
pub mod train_run;
pub mod train_samples;
pub mod train_settings;
pub mod viewport;
pub mod welcome;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eframe::NativeOptions;
use egui::ViewportBuilder;

use crate::session::Command;
use crate::session::Failure;
use crate::session::ThemeChoice;
use crate::session::{Session, Settings};
use action::Workspace;
use app::App;
use screenshot::Screenshot;

/// How the window starts.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Dataset, run folder or weights to open.
    pub path: Option<PathBuf>,
    /// `None`: the one that fits what is opened.
    pub workspace: Option<Workspace>,
    /// Width and height in points.
    pub size: Option<[f32; 2]>,
    /// Instead of the one in the settings, for this start only.
    pub theme: Option<ThemeChoice>,
    /// Write a picture of the window to this PNG file when all jobs have ended, and close.
    pub screenshot: Option<PathBuf>,
}

const DEFAULT_SIZE: [f32; 2] = [1280.0, 800.0];
const LEAST_SIZE: [f32; 2] = [960.0, 600.0];

/// Opens the window and returns when it is closed.
///
/// # Errors
/// No display, or no way to draw on it.
pub fn run(settings: Settings, start: Start) -> Result<(), Failure> {
    let viewport = ViewportBuilder::default()
        .with_title("Boxwright")
        .with_app_id("boxwright")
        .with_inner_size(start.size.unwrap_or(DEFAULT_SIZE))
        .with_min_inner_size(LEAST_SIZE)
        .with_drag_and_drop(true);
    let options = NativeOptions { viewport, ..NativeOptions::default() };
    let create: eframe::AppCreator<'_> = Box::new(move |context| Ok(Box::new(Main::new(&context.egui_ctx, settings, start))));
    eframe::run_native("Boxwright", options, create).map_err(|error| {
        let hint =
            "the window needs a display (DISPLAY or WAYLAND_DISPLAY) and Vulkan or OpenGL; `boxwright --help` lists what works without";
        Failure::mendable(format!("cannot open the window: {error}"), Some(hint.to_owned()))
    })
}

/// After this time what a training tells is seen at the latest.
const CALM: Duration = Duration::from_millis(100);

/// The application as eframe runs it.
struct Main {
    app: App,
    screenshot: Option<Screenshot>,
}

impl Main {
    fn new(ctx: &egui::Context, settings: Settings, start: Start) -> Self {
        // The session is made before the first frame; its jobs may wake the window from any thread.
        let waker: Arc<OnceLock<egui::Context>> = Arc::new(OnceLock::new());
        let woken = waker.clone();
        let wake = move || {
            if let Some(ctx) = woken.get() {
                ctx.request_repaint();
            }
        };
        let seen = waker.clone();
        let calm = move || {
            if let Some(ctx) = seen.get() {
                ctx.request_repaint_after(CALM);
            }
        };
        let mut session = Session::new(settings, Arc::new(wake));
        session.set_calm_wake(Arc::new(calm));
        let mut app = App::new(ctx, session);
        waker.get_or_init(|| ctx.clone());
        if let Some(theme) = start.theme {
            theme::choose(ctx, theme);
        }
        app.apply(ctx, Command::ListDevices);
        app.apply(ctx, Command::RestoreQueue);
        if let Some(path) = start.path {
            app.apply(ctx, Command::Open(path));
        }
        if let Some(workspace) = start.workspace {
            app.window.workspace = workspace;
        }
        Self { app, screenshot: start.screenshot.map(Screenshot::new) }
    }
}

impl eframe::App for Main {
    fn logic(&mut self, ctx: &egui::Context, _: &mut eframe::Frame) {
        let events = self.app.logic(ctx);
        if let Some(screenshot) = &mut self.screenshot
            && let Some(command) = screenshot.next(ctx, &self.app, &events)
        {
            self.app.session.apply(command);
        }
    }

    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        self.app.ui(ui);
    }

    fn on_exit(&mut self) {
        self.app.close();
    }
}
