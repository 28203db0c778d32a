//! `boxwright check`: which findings are told, and as lines or as a document.
//!
//! In:  the command, what of its findings is asked for, a format. Out: findings or a document on stdout, the exit code:
//! 1 when a finding that was asked for is an error.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;

use super::print::Printer;
use crate::dataset::Dataset;
use crate::dataset::check::{CheckReport, Severity};
use crate::dataset::report::{Selection, counts, html, sarif};
use crate::session::{Command, CommandDone, Event, Failure};

/// How findings are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A line a finding, then counts by rule
    Text,
    /// A JSON object a line
    Json,
    /// One SARIF 2.1.0 document, for code hosts and editors
    Sarif,
    /// One page with pictures that needs no other file
    Html,
}

/// Checks the dataset at `path` and tells what was asked for.
pub(super) fn run(path: &Path, command: Command, selection: &Selection, format: Format) -> ExitCode {
    let mut session = match super::begun(command) {
        Ok(session) => session,
        Err(failure) => return super::fail(&failure),
    };
    let is_document = matches!(format, Format::Sarif | Format::Html);
    let mut printer = Printer::new(format == Format::Json);
    let mut code = ExitCode::SUCCESS;
    let mut n_told = 0;
    while let Some(event) = session.wait() {
        let is_told = match &event {
            Event::Finding(finding) => {
                let is_told = selection.asks_for(finding) && selection.max.is_none_or(|max| n_told < max);
                n_told += usize::from(is_told);
                is_told && !is_document
            }
            // Stdout is the document's; counts are of what is told.
            Event::Finished { .. } => !is_document && (format == Format::Json || *selection == Selection::default()),
            _ => true,
        };
        if let Err(error) = if is_told { printer.event(&event) } else { Ok(()) } {
            return if error.kind() == io::ErrorKind::BrokenPipe { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        match &event {
            Event::Failed { failure, .. } => code = super::fail(failure),
            Event::Finished { done: CommandDone::Checked(report), .. } => {
                if let Err(failure) = tell(path, report, selection, format) {
                    return super::fail(&failure);
                }
                if report.findings.iter().any(|finding| selection.asks_for(finding) && finding.severity == Severity::Error) {
                    code = ExitCode::from(1);
                }
            }
            _ => {}
        }
    }
    code
}

/// Writes the document, or how much was not told.
fn tell(path: &Path, report: &CheckReport, selection: &Selection, format: Format) -> Result<(), Failure> {
    let (findings, n_more) = selection.of(report);
    let document = match format {
        Format::Text if *selection != Selection::default() => {
            let counts = counts(&findings).into_iter().map(|(rule, count)| format!("{count:6}  {}\n", rule.id()));
            let all = report.findings.len();
            let more = if n_more > 0 { format!(", {n_more} more not told") } else { String::new() };
            format!("{}{} of {all} findings{more}", counts.collect::<String>(), findings.len())
        }
        Format::Text | Format::Json => return Ok(()),
        Format::Sarif => {
            let dataset = Dataset::open(path)?;
            let document = sarif::document(&findings, &dataset.root);
            serde_json::to_string_pretty(&document).map_err(|error| Failure::unexpected(error.to_string()))?
        }
        Format::Html => html::page(&findings, n_more, &Dataset::open(path)?, &|_, _| std::ops::ControlFlow::Continue(()))?,
    };
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", document.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::mendable(format!("cannot write the report: {error}"), None))
        }
        _ => Ok(()),
    }
}
