//! What a conversion tells on the command line: what is lost, before anything is written; then what was written.

use std::io::Write;

use serde_json::{Value, json};

use crate::dataset::convert::{ConvertReport, FormatId};

/// The report before writing, as text.
pub(super) fn planned(report: &ConvertReport, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "found {}: {}", report.from.info().title, counts(report))?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for loss in &report.losses {
        writeln!(out, "lost: {}", loss.text)?;
    }
    Ok(())
}

/// What was written, as text.
pub(super) fn converted(report: &ConvertReport, out: &mut dyn Write) -> std::io::Result<()> {
    match &report.written {
        Some(path) => writeln!(out, "wrote {} with {} images and {} boxes", path.display(), report.n_images, report.n_labels),
        None => writeln!(out, "nothing was written: {} would get {}", report.to.info().title, counts(report)),
    }
}

fn counts(report: &ConvertReport) -> String {
    let ConvertReport { n_images, n_empty, n_labels, names, .. } = report;
    format!("{n_images} images, {n_empty} of them without boxes, {n_labels} boxes of {} classes", names.len())
}

/// The same as a JSON object, `data_yaml` as long as it is one.
pub(super) fn value(report: &ConvertReport) -> Value {
    let texts: Vec<&str> = report.losses.iter().map(|loss| loss.text.as_str()).collect();
    let kinds: Vec<Value> = report.losses.iter().map(|loss| json!({"kind": loss.kind, "n": loss.n, "text": loss.text})).collect();
    let mut value = json!({
        "from": report.from.info().name, "to": report.to.info().name, "images": report.n_images, "empty_images": report.n_empty,
        "boxes": report.n_labels, "names": report.names, "losses": texts, "loss_report": kinds, "notes": report.notes,
        "written": report.written,
    });
    if report.to == FormatId::Yolo {
        value["data_yaml"] = json!(report.written);
    }
    value
}
