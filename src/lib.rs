//! Boxwright: from a folder of pictures to a deployed YOLOv9 detector.
//!
//! The library is what `main.rs` and `tests/` use; it promises nothing to other programs. Each module below is a room
//! of the architecture (see ARCHITECTURE.md); which room may name which is held by `tests/layers.rs`.

pub mod cli;
pub mod dataset;
pub mod detect;
pub mod engine;
pub mod eval;
pub mod export;
pub mod geom;
#[cfg(feature = "gui")]
pub mod gui;
pub mod media;
pub mod session;
pub mod train;
pub mod yolo;
