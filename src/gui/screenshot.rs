//! A picture of the window for documentation: waits until everything is drawn, saves it, closes the window.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use egui::{ColorImage, Context, ViewportCommand};

use super::app::App;
use crate::geom::Size;
use crate::media::Picture;
use crate::session::Command;
use crate::session::CommandDone;
use crate::session::Event;

/// Frames without a job or a missing picture, after which the window counts as drawn.
const CALM_FRAMES: usize = 12;

/// On its way from the window to a file.
pub struct Screenshot {
    path: PathBuf,
    calm_frames: usize,
    is_asked: bool,
    image: Arc<Mutex<Option<Arc<ColorImage>>>>,
}

impl Screenshot {
    pub fn new(path: PathBuf) -> Self {
        Self { path, calm_frames: 0, is_asked: false, image: Arc::default() }
    }

    /// Looks after each frame whether it is time; returns the command that writes the file.
    pub fn next(&mut self, ctx: &Context, app: &App, events: &[Event]) -> Option<Command> {
        let is_over = |event: &Event| match event {
            Event::Finished { done: CommandDone::PictureSaved(path), .. } => *path == self.path,
            Event::Failed { .. } => self.is_asked,
            _ => false,
        };
        if events.iter().any(is_over) {
            ctx.send_viewport_cmd(ViewportCommand::Close);
            return None;
        }
        ctx.request_repaint();
        if !self.is_asked {
            let is_calm = app.session.jobs.is_empty() && app.window.textures.requests().next().is_none();
            self.calm_frames = if is_calm { self.calm_frames + 1 } else { 0 };
            if self.calm_frames >= CALM_FRAMES {
                self.is_asked = true;
                let image = self.image.clone();
                ctx.request_screenshot(move |shot| *image.lock().unwrap_or_else(PoisonError::into_inner) = Some(shot));
            }
            return None;
        }
        let shot = self.image.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let [width, height] = shot.size.map(|side| side as u32);
        let rgb = shot.pixels.iter().flat_map(|pixel| [pixel.r(), pixel.g(), pixel.b()]).collect();
        let picture = Picture { size: Size::new(width, height), rgb };
        Some(Command::SavePicture { path: self.path.clone(), picture: Arc::new(picture) })
    }
}
