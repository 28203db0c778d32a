//! Writes states beside the training: a disk takes longer than a step.
//!
//! In:  states, now and then. Out: files (see `state.rs`); what went wrong with one is told at the next call.
//!
//! One state is written at a time; who hands over the next waits for it. Dropping the writer waits, too.

use std::path::PathBuf;
use std::thread::JoinHandle;

use crossbeam_channel::Receiver;
use crossbeam_channel::Sender;
use crossbeam_channel::bounded;

use super::error::TrainError;
use super::run_folder::sync_grown;
use super::state;
use super::state::TrainState;
use crate::engine::Params;

pub(super) struct StateWriter {
    /// `None` once it ends.
    states: Option<Sender<TrainState>>,
    /// Up to which step.
    results: Receiver<Result<usize, TrainError>>,
    is_writing: bool,
    thread: Option<JoinHandle<()>>,
}

impl StateWriter {
    /// Of the states of a network with this parameter table.
    pub(super) fn start(run_dir: PathBuf, table: Params) -> Result<Self, TrainError> {
        let (states, inbox) = bounded::<TrainState>(0);
        let (outbox, results) = bounded(1);
        let work = move || {
            for state in inbox {
                let step = state.progress.step;
                let written = sync_grown(&run_dir).and_then(|()| state::write(&run_dir, &state, &table));
                if outbox.send(written.map(|()| step)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("state".to_owned()).spawn(work).map_err(|source| TrainError::Thread { source })?;
        Ok(Self { states: Some(states), results, is_writing: false, thread: Some(thread) })
    }

    /// Up to which step a state has reached the disk since the last call, if one has.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn finished(&mut self) -> Result<Option<usize>, TrainError> {
        if !self.is_writing {
            return Ok(None);
        }
        let Ok(result) = self.results.try_recv() else { return Ok(None) };
        self.is_writing = false;
        result.map(Some)
    }

    /// Whether a state is still being written.
    pub(super) fn is_busy(&self) -> bool {
        self.is_writing
    }

    /// Hands a state over, when the one before is written.
    pub(super) fn write(&mut self, state: TrainState) -> Result<(), TrainError> {
        self.wait()?;
        let states = self.states.as_ref().expect("the writer has not ended");
        states.send(state).expect("the writer's thread takes states until it is dropped");
        self.is_writing = true;
        Ok(())
    }

    /// Waits until what was handed over is on the disk.
    pub(super) fn wait(&mut self) -> Result<(), TrainError> {
        if std::mem::take(&mut self.is_writing) {
            self.results.recv().expect("the writer's thread answers each state")?;
        }
        Ok(())
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        self.states = None;
        // A panic in it was the state's alone; who waits for a result hears of it.
        self.thread.take().map(JoinHandle::join);
    }
}
