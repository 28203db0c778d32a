//! The command line: parses into one command, prints its events, sets the exit code.
//!
//! Exit codes: 0 done, 1 what the person can mend (also findings that are errors), 2 unexpected. Results go to stdout,
//! progress and errors (`error:` and `hint:` lines) to stderr. With `--json` stdout holds one JSON object a line.

mod args;
mod bar;
mod check;
mod convert;
mod edit;
mod json;
mod print;
mod script;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::session::bench;
use crate::session::{Command, CommandDone, Event, Failure, FailureKind, Session, Settings};
use crate::train::OverfitVerdict;
use args::Wish;
use print::Printer;

/// Runs the program.
pub fn main() -> ExitCode {
    bench::program_starts();
    match args::wish(std::env::args_os()) {
        Ok(Wish::Window(window)) => open_window(window),
        Ok(Wish::Run { command, json }) => run(*command, json),
        Ok(Wish::Check { path, command, selection, format }) => check::run(&path, *command, &selection, format),
        Ok(Wish::Edit { dataset, edits, json }) => edit::run(dataset, &edits, json),
        Err(failure) => fail(&failure),
    }
}

#[cfg(feature = "gui")]
fn open_window(window: args::Window) -> ExitCode {
    match crate::gui::run(Settings::load(), window.into()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

#[cfg(not(feature = "gui"))]
fn open_window(_: args::Window) -> ExitCode {
    let hint = Some("`boxwright --help` lists the commands that need no window".to_owned());
    fail(&Failure::mendable("this build was made without the window (feature `gui`)", hint))
}

/// Carries out one command and prints what happens.
fn run(command: Command, json: bool) -> ExitCode {
    let mut session = match begun(command) {
        Ok(session) => session,
        Err(failure) => return fail(&failure),
    };
    let mut printer = Printer::new(json);
    let mut code = ExitCode::SUCCESS;
    while let Some(event) = session.wait() {
        if let Err(error) = printer.event(&event) {
            // The reader of our output went away (such as `| head`): stop as it did.
            return if error.kind() == std::io::ErrorKind::BrokenPipe { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        match &event {
            Event::Failed { failure, .. } => code = fail(failure),
            Event::Finished { done: CommandDone::Checked(report), .. } if report.n_errors() > 0 => code = ExitCode::from(1),
            // Nothing was taken back.
            Event::Finished { done: CommandDone::Undone(receipt), .. } if receipt.files.is_empty() && !receipt.refused.is_empty() => {
                code = ExitCode::from(1);
            }
            Event::Finished { done: CommandDone::OverfitChecked(report), .. } if report.verdict == OverfitVerdict::Fails => {
                code = ExitCode::from(1);
            }
            _ => {}
        }
    }
    code
}

/// A session that carries out a command, and stops it at Ctrl-C.
fn begun(command: Command) -> Result<Session, Failure> {
    let mut session = Session::new(Settings::load(), Arc::new(|| {}));
    session.apply(command);
    if let Some(notice) = session.notices.first() {
        // The command was refused before a job began.
        return Err(Failure::mendable(notice.text.clone(), notice.hint.clone()));
    }
    if let Some(status) = session.jobs.first()
        && let Some(flag) = session.cancel_flag(status.id)
    {
        stop_on_interrupt(flag);
    }
    Ok(session)
}

/// The first Ctrl-C asks the job to stop and leave its files whole; the second ends the program at once.
fn stop_on_interrupt(flag: Arc<AtomicBool>) {
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without the handler Ctrl-C ends the program as usual.
    ctrlc::set_handler(handler).ok();
}

fn fail(failure: &Failure) -> ExitCode {
    print::failure(failure);
    match failure.kind {
        FailureKind::Mendable | FailureKind::Cancelled => ExitCode::from(1),
        FailureKind::Unexpected => ExitCode::from(2),
    }
}
