//! The jobs around training: sweeps, the first batches as pictures, the overfit check.
//!
//! In:  commands' requests. Out: events while they run, and their results.
//!
//! Never trains itself: `train` does.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;

use super::device;
use super::event::{CommandDone, Event};
use super::failure::Failure;
use super::job::JobContext;
use crate::train;
use crate::train::sweep::write_table;
use crate::train::{SweepRequest, SweepRow, TrainConfig, TrainError, TrainEvent, TrainOrder};

type Done = Result<CommandDone, Failure>;

/// An event of a training as one of its job.
pub(super) fn pass_on(event: TrainEvent, context: &JobContext) -> ControlFlow<()> {
    match event {
        TrainEvent::Progress { done, total, .. } => context.check_in(done, total),
        event => context.emit(Event::Train(event)),
    }
}

/// Trains the points of a sweep one after another. A run that fails or is told to stop leaves that in the table, and the next one
/// begins; cancelling the job ends the sweep.
pub(super) fn sweep(request: &SweepRequest, orders: &Receiver<TrainOrder>, context: &JobContext) -> Done {
    let points = request.points().map_err(TrainError::from)?;
    device::ready(request.base.device)?;
    let (mut rows, mut tables) = (Vec::new(), Vec::new());
    let name = format!("{}-sweep", request.base.name);
    for (index, point) in points.iter().enumerate() {
        let told = context.emit(Event::Note(format!("run {} of {}: {}", index + 1, points.len(), words(&point.values))));
        if told.is_break() {
            break;
        }
        let start = Instant::now();
        let result = train::train(&point.config, orders, &mut |event| pass_on(event, context));
        let row = SweepRow::new(index + 1, point, &result, start.elapsed().as_secs_f64());
        rows.push(row.clone());
        let told = context.emit(Event::SweepRow { row, summary: result.ok() });
        if rows.iter().any(|row| row.run_dir.is_some()) {
            tables = write_table(&request.base.project, &name, &rows)?.into();
        }
        if told.is_break() {
            break;
        }
    }
    if rows.iter().all(|row| row.run_dir.is_none()) {
        let reason = rows.into_iter().find_map(|row| row.error);
        return Err(reason.map_or_else(Failure::cancelled, |reason| {
            Failure::mendable(format!("no run of the sweep came to its first step; the first: {reason}"), None)
        }));
    }
    Ok(CommandDone::Swept { rows, tables })
}

/// `lr0 0.01, optimizer sgd`.
fn words(values: &serde_json::Map<String, serde_json::Value>) -> String {
    let words: Vec<String> =
        values.iter().map(|(key, value)| format!("{key} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))).collect();
    words.join(", ")
}

pub(super) fn preview(config: &TrainConfig, context: &JobContext) -> Done {
    let pictures = train::preview::preview_batches(config, &mut |event| pass_on(event, context))?;
    Ok(CommandDone::BatchesPreviewed(Arc::new(pictures)))
}

pub(super) fn overfit_check(config: &TrainConfig, n_steps: usize, context: &JobContext) -> Done {
    device::ready(config.device)?;
    let report = train::overfit::overfit_check(config, n_steps, &mut |event| pass_on(event, context))?;
    Ok(CommandDone::OverfitChecked(Box::new(report)))
}
