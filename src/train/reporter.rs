//! Between the loop and the outside: tells what happens, listens to orders.
//!
//! In:  events of the loop, orders of the person.
//! Out: events in the file that keeps them and in the sink; which orders are still to be carried out.
//!
//! Never carries an order out itself.

use std::ops::ControlFlow;
use std::time::Duration;

use crossbeam_channel::Receiver;
use crossbeam_channel::RecvTimeoutError;

use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainStage;
use super::order::Steering;
use super::order::TrainOrder;
use super::run_folder::RunFolder;

/// Where events go. A stop is asked for by breaking.
pub type Sink<'a> = dyn FnMut(TrainEvent) -> ControlFlow<()> + 'a;

/// How long a paused run waits for an order before it looks whether the sink wants it to end.
const PAUSE_TICK: Duration = Duration::from_millis(100);

/// The sink with the file that keeps what it was told, and what the person has asked for.
pub(super) struct Reporter<'a, 'b> {
    pub(super) folder: RunFolder,
    sink: &'a mut Sink<'b>,
    orders: &'a Receiver<TrainOrder>,
    pub(super) steering: Steering,
    /// Asked to end after the step.
    pub(super) stopped: bool,
    /// Asked for once each, and not done yet.
    pub(super) wants_validation: bool,
    pub(super) wants_save: bool,
}

impl<'a, 'b> Reporter<'a, 'b> {
    pub(super) fn new(folder: RunFolder, orders: &'a Receiver<TrainOrder>, sink: &'a mut Sink<'b>) -> Self {
        let steering = Steering::default();
        Self { folder, sink, orders, steering, stopped: false, wants_validation: false, wants_save: false }
    }

    pub(super) fn tell(&mut self, event: TrainEvent) -> Result<(), TrainError> {
        self.folder.write_event(&event.to_json())?;
        self.pass_on(event);
        Ok(())
    }

    /// Tells the sink alone: what passes by and is not kept.
    pub(super) fn pass_on(&mut self, event: TrainEvent) {
        self.stopped |= (self.sink)(event).is_break();
    }

    /// Takes in the orders that came since the last call.
    pub(super) fn listen(&mut self) -> Result<(), TrainError> {
        while let Ok(order) = self.orders.try_recv() {
            self.take_in(order)?;
        }
        Ok(())
    }

    /// Waits while the run is paused, until it is told to go on or to stop. `done` of `total` steps are for the sink.
    pub(super) fn wait(&mut self, done: u64, total: u64) -> Result<(), TrainError> {
        while self.steering.paused && !self.stopped {
            match self.orders.recv_timeout(PAUSE_TICK) {
                Ok(order) => self.take_in(order)?,
                Err(RecvTimeoutError::Timeout) => self.pass_on(TrainEvent::Progress { stage: TrainStage::Paused, done, total }),
                // Nobody is left who could let it go on.
                Err(RecvTimeoutError::Disconnected) => self.stopped = true,
            }
            if self.wants_validation || self.wants_save {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_in(&mut self, order: TrainOrder) -> Result<(), TrainError> {
        let before = self.steering;
        match order {
            TrainOrder::Pause => self.steering.paused = true,
            TrainOrder::Continue => self.steering = Steering::default(),
            TrainOrder::Stop => self.stopped = true,
            TrainOrder::StopAfterEpoch => self.steering.stops_after_epoch = true,
            TrainOrder::ValidateNow => self.wants_validation = true,
            TrainOrder::SaveNow => self.wants_save = true,
        }
        if self.steering == before { Ok(()) } else { self.tell(TrainEvent::Steering(self.steering)) }
    }
}
