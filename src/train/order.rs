//! What a running training can be told.
//!
//! In:  wishes of a person. Out: plain data; `reporter.rs` takes the orders in, `trainer.rs` carries them out between two steps.

/// A wish of the person, carried out after the step that is being computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainOrder {
    /// Waits, with the state saved, until it is told to go on or to stop.
    Pause,
    /// Goes on, and takes `StopAfterEpoch` back.
    Continue,
    /// Ends after the step, with the state saved.
    Stop,
    /// Ends after the epoch and its validation.
    StopAfterEpoch,
    /// Validates the averaged weights as they are now; changes nothing.
    ValidateNow,
    /// Saves the state and the averaged weights.
    SaveNow,
}

/// What a run was told and still holds to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Steering {
    pub paused: bool,
    pub stops_after_epoch: bool,
}
