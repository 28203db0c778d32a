//! The window, driven as a person does: by labels, keys and the pointer.
//!
//! Most tests draw `Window` from a session whose fields are filled by hand and look at the commands that come back; the
//! scripted ones let `App` carry them out on a small dataset on disk.
#![cfg(feature = "gui")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod access;
mod browser;
mod commands;
mod editor;
mod fixture;
#[cfg(feature = "gpu-tests")]
mod gpu;
mod keys;
mod pictures;
mod script;
mod train;
