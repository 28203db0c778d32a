//! Events as JSON, one object a line with an `"event"` field; the last one of a command that went well is `finished`.

use serde_json::{Map, Value, json};

use super::convert;
use crate::dataset::Split;
use crate::dataset::fix::Receipt;
use crate::dataset::split::SplitPlan;
use crate::eval::Metrics;
use crate::session::{CommandDone, Event, LedgerNews, LedgerReply, PictureResult};
use crate::session::{PrelabelReport, Proposal};

/// The line of an event; `None` for those that only the window needs. Failures go to stderr as text.
pub(super) fn line(event: &Event) -> Option<String> {
    let value = match event {
        Event::Progress { done, total, .. } => json!({"event": "progress", "done": done, "total": total}),
        Event::Finding(finding) => finding.to_json(),
        Event::Train(event) => event.to_json(),
        Event::SweepRow { row, .. } => {
            let mut line = json!({"event": "sweep_row"});
            if let (Value::Object(line), Value::Object(fields)) = (&mut line, json!(row)) {
                line.extend(fields);
            }
            line
        }
        Event::Detection { names, result } => detection(names, result),
        Event::Proposed { dataset, path, proposals } => {
            let boxes = proposals.iter().map(|Proposal { label, score }| {
                let bbox = label.bbox;
                let class = label.class.0 as usize;
                json!({"class": class, "name": dataset.names.get(class), "score": score, "xywhn": [bbox.cx, bbox.cy, bbox.w, bbox.h]})
            });
            json!({"event": "proposed", "file": path.to_string_lossy(), "boxes": boxes.collect::<Vec<_>>()})
        }
        Event::Note(text) => json!({"event": "note", "text": text}),
        Event::ConvertPlanned(report) => {
            let mut value = convert::value(report);
            value["event"] = "convert_plan".into();
            value
        }
        Event::Finished { done, .. } => finished(done),
        Event::Ledger(reply) => return edited(reply),
        Event::Followed { .. }
        | Event::Opened(_)
        | Event::RunOpened(_)
        | Event::Labels { .. }
        | Event::ProposalsRead(_)
        | Event::ImageFacts { .. }
        | Event::Failed { .. } => return None,
    };
    Some(value.to_string())
}

/// The edits that are durable now.
fn edited(reply: &LedgerReply) -> Option<String> {
    let edits = reply.news.iter().filter_map(|news| match news {
        LedgerNews::Edited(edited) => {
            let left: Vec<Value> = edited.left.iter().map(|(file, reason)| json!({"file": file, "reason": reason})).collect();
            let step = format!("{:?}", edited.step).to_lowercase();
            let mut line = json!({"event": "edited", "id": edited.id, "name": edited.name, "step": step, "files": edited.files.len()});
            if !left.is_empty() {
                line["left"] = left.into();
            }
            Some(line.to_string())
        }
        _ => None,
    });
    let lines: Vec<String> = edits.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn detection(names: &[String], result: &PictureResult) -> Value {
    let path = result.path.to_string_lossy();
    match &result.outcome {
        Err(reason) => json!({"event": "skipped", "file": path, "reason": reason}),
        Ok(found) => {
            let boxes: Vec<Value> = found
                .detections
                .iter()
                .map(|detection| {
                    let bbox = detection.bbox;
                    let name = names.get(detection.class);
                    json!({"class": detection.class, "name": name, "score": detection.score, "box": [bbox.x1, bbox.y1, bbox.x2, bbox.y2]})
                })
                .collect();
            json!({
                "event": "picture", "file": path, "width": found.size.width, "height": found.size.height,
                "letterbox_ms": found.letterbox_ms, "network_ms": found.network_ms, "nms_ms": found.nms_ms, "detections": boxes,
            })
        }
    }
}

fn finished(done: &CommandDone) -> Value {
    let result = match done {
        CommandDone::Opened | CommandDone::Followed | CommandDone::Browsed { .. } => json!({}),
        CommandDone::PictureSaved(path) | CommandDone::ChartSaved(path) => json!({"path": path}),
        CommandDone::NotesSaved { dir, .. } => json!({"path": dir}),
        CommandDone::HypRead { path, hyp } => json!({"path": path, "error": hyp.as_ref().err()}),
        CommandDone::RunsListed { runs, .. } => json!({"runs": runs.iter().map(|run| &run.dir).collect::<Vec<_>>()}),
        CommandDone::RunsCompared(runs) => json!({"runs": runs.iter().map(|run| &run.saved.dir).collect::<Vec<_>>()}),
        CommandDone::Checked(report) => {
            let counts: Map<String, Value> =
                report.counts().into_iter().map(|(rule, count)| (rule.id().to_owned(), count.into())).collect();
            json!({
                "findings": report.findings.len(), "errors": report.n_errors(), "images": report.n_images,
                "label_files": report.n_label_files, "rows": report.n_rows, "by_rule": counts,
            })
        }
        CommandDone::Fixed { receipt, dry_run } => {
            let mut value = receipt_json(receipt);
            value["dry_run"] = (*dry_run).into();
            value
        }
        CommandDone::Undone(receipt) => receipt_json(receipt),
        CommandDone::Counted(counts) => json!({"images": counts.distributions.n_images, "boxes": counts.distributions.n_boxes}),
        CommandDone::SplitPlanned(plan) => split_json(plan),
        CommandDone::Converted(report) => convert::value(report),
        CommandDone::SampleWritten { out, n_images } => json!({"out": out, "images": n_images}),
        CommandDone::Trained(summary) => json!({
            "run_dir": summary.run_dir, "epochs": summary.epochs_done, "stopped": summary.stopped, "best_epoch": summary.best_epoch,
            "peak_bytes": summary.peak_bytes, "metrics": metrics(&summary.metrics, &[]),
        }),
        CommandDone::BatchesPreviewed(pictures) => json!({"pictures": pictures.len()}),
        CommandDone::OverfitChecked(report) => json!(report),
        CommandDone::Swept { rows, tables } => json!({"rows": rows, "tables": tables}),
        CommandDone::Validated { metrics: figures, names, skipped } => json!({"metrics": metrics(figures, names), "skipped": skipped}),
        CommandDone::Detected { n_pictures, n_detections, n_unreadable, out } => {
            json!({"pictures": n_pictures, "detections": n_detections, "unreadable": n_unreadable, "out": out})
        }
        CommandDone::Prelabelled(report) => {
            let PrelabelReport { n_images, n_proposals, n_unreadable, unknown } = report;
            json!({"images": n_images, "proposals": n_proposals, "unreadable": n_unreadable, "unknown_classes": unknown})
        }
        CommandDone::Exported(report) => json!({"path": report.path, "size_bytes": report.size_bytes, "checks": report.checks}),
        CommandDone::Benched(figures) => figures.clone(),
        CommandDone::Examined(report) => report.to_json(),
        CommandDone::DevicesListed(devices) => json!({"devices": devices.iter().map(|option| &option.name).collect::<Vec<_>>()}),
    };
    json!({"event": "finished", "result": result})
}

fn split_json(plan: &SplitPlan) -> Value {
    let mut value = json!({"groups": plan.n_groups, "same_content": plan.n_joined[0], "roboflow": plan.n_joined[1], "videos": plan.n_joined[2], "notes": plan.notes});
    for (split, counts) in Split::ALL.iter().zip(&plan.counts) {
        value[split.name()] = json!({"images": counts.n_images, "backgrounds": counts.n_backgrounds, "boxes": counts.boxes});
    }
    value
}

fn receipt_json(receipt: &Receipt) -> Value {
    let changes: Vec<Value> = receipt
        .changes
        .iter()
        .map(|change| json!({"file": change.file, "line": change.line, "rule": change.rule.id(), "before": change.before, "after": change.after}))
        .collect();
    let refused: Vec<Value> = receipt.refused.iter().map(|(file, reason)| json!({"file": file, "reason": reason})).collect();
    json!({"name": receipt.name, "changes": changes, "files": receipt.files.len(), "refused": refused, "receipt": receipt.path})
}

fn metrics(figures: &Metrics, names: &[String]) -> Value {
    let classes: Vec<Value> = figures
        .classes
        .iter()
        .map(|class| {
            json!({
                "class": class.class, "name": names.get(class.class), "labels": class.n_labels, "precision": class.precision,
                "recall": class.recall, "ap50": class.ap50, "ap50_95": class.ap50_95,
            })
        })
        .collect();
    json!({
        "images": figures.n_images, "labels": figures.n_labels, "precision": figures.precision, "recall": figures.recall,
        "map50": figures.map50, "map50_95": figures.map50_95, "best_conf": figures.best_conf, "classes": classes,
    })
}
