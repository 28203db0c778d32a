//! What a person at a terminal reads: results on stdout, progress on stderr.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use super::bar::{Recent, bar, duration};
use super::convert;
use super::json;
use crate::dataset::Split;
use crate::dataset::check::{CheckReport, Finding};
use crate::dataset::fix::Receipt;
use crate::dataset::ledger::Step;
use crate::dataset::split::SplitPlan;
use crate::eval::Metrics;
use crate::session::doctor::DoctorReport;
use crate::session::{CommandDone, Edited, Event, Failure, LedgerNews, PictureResult};
use crate::train::sweep::ranked;
use crate::train::{BranchLosses, Divergence, OverfitVerdict, Pace, StepReport, SweepRow, TrainEvent, TrainPlan};

/// Writes an error the way every command does.
pub(super) fn failure(failure: &Failure) {
    let mut err = io::stderr().lock();
    // Nobody is left to tell when stderr is closed.
    writeln!(err, "error: {}", failure.message.replace('\n', "\n       ")).ok();
    if let Some(hint) = &failure.hint {
        writeln!(err, "hint: {hint}").ok();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Json,
    Text,
    /// Text, and stderr is a terminal with a progress line that is overwritten in place.
    Live,
}

/// Prints events as they come.
pub(super) struct Printer {
    style: Style,
    progress_shown: bool,
    epoch_table_begun: bool,
    plan: Option<TrainPlan>,
    step_secs: Recent,
}

impl Printer {
    pub(super) fn new(json: bool) -> Self {
        let style = match (json, io::stderr().is_terminal()) {
            (true, _) => Style::Json,
            (false, true) => Style::Live,
            (false, false) => Style::Text,
        };
        Self { style, progress_shown: false, epoch_table_begun: false, plan: None, step_secs: Recent::default() }
    }

    /// Prints one event.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.style == Style::Json {
            if let Some(line) = json::line(event) {
                writeln!(out, "{line}")?;
                out.flush()?;
            }
            return Ok(());
        }
        match event {
            Event::Progress { done, total, .. } => self.progress(&format!("{} {done} / {total}", bar(*done, *total))),
            Event::Finding(finding) => {
                self.clear_progress();
                writeln!(out, "{}", finding_line(finding))?;
            }
            Event::Train(event) => self.train(event, &mut out)?,
            Event::SweepRow { row, .. } => {
                self.clear_progress();
                writeln!(out, "run {} ended: {}\n", row.run, sweep_result(row))?;
            }
            Event::Detection { names, result } => {
                self.clear_progress();
                writeln!(out, "{}", detection_line(names, result))?;
            }
            Event::Proposed { path, proposals, .. } => {
                self.clear_progress();
                writeln!(
                    out,
                    "{}: {}",
                    path.display(),
                    if proposals.len() == 1 { "1 box".to_owned() } else { format!("{} boxes", proposals.len()) }
                )?;
            }
            Event::Note(text) => {
                self.clear_progress();
                writeln!(out, "note: {text}")?;
            }
            Event::ConvertPlanned(report) => {
                self.clear_progress();
                convert::planned(report, &mut out)?;
            }
            Event::Finished { done, .. } => {
                self.clear_progress();
                finished(done, &mut out)?;
            }
            Event::Failed { .. } => self.clear_progress(),
            Event::Followed { .. }
            | Event::Opened(_)
            | Event::RunOpened(_)
            | Event::Labels { .. }
            | Event::ImageFacts { .. }
            | Event::ProposalsRead(_) => {}
            Event::Ledger(reply) => {
                self.clear_progress();
                for news in &reply.news {
                    match news {
                        LedgerNews::Edited(edited) => writeln!(out, "{}", edited_line(edited))?,
                        LedgerNews::Note(text) => writeln!(out, "note: {text}")?,
                        _ => {}
                    }
                }
            }
        }
        out.flush()
    }

    fn train(&mut self, event: &TrainEvent, out: &mut impl Write) -> io::Result<()> {
        match event {
            TrainEvent::Plan(plan) => {
                self.clear_progress();
                self.plan = Some(plan.clone());
                self.epoch_table_begun = false;
                self.step_secs = Recent::default();
                writeln!(out, "run folder   {}", plan.run_dir.display())?;
                writeln!(out, "pictures     {} train, {} val, {} boxes", plan.n_train_images, plan.n_val_images, plan.n_labels)?;
                writeln!(out, "network      {} parameters, {} steps an epoch", plan.n_parameters, plan.steps_per_epoch)?;
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                writeln!(out, "memory       {:.0} MiB planned", mib(plan.planned_bytes))?;
                if let Some(bytes) = plan.device_bytes {
                    writeln!(out, "GPU memory   {:.0} MiB planned", mib(bytes))?;
                }
                if !plan.class_boxes.is_empty() {
                    let boxes: Vec<String> = plan.class_boxes.iter().map(|class| format!("{} {}", class.name, class.n_boxes)).collect();
                    writeln!(out, "boxes        {}; {} pictures without a box", boxes.join(", "), plan.n_backgrounds)?;
                }
                for line in &plan.dropped {
                    writeln!(out, "left out     {line}")?;
                }
            }
            TrainEvent::Step(step) => {
                let line = self.step_line(step);
                self.progress(&line);
            }
            TrainEvent::Epoch(epoch) => {
                self.clear_progress();
                if !self.epoch_table_begun {
                    self.epoch_table_begun = true;
                    writeln!(out, "epoch      box      cls      dfl        P        R    mAP50  mAP50-95    lr      s")?;
                }
                let Metrics { precision, recall, map50, map50_95, .. } = epoch.metrics;
                writeln!(
                    out,
                    "{:5} {:8.4} {:8.4} {:8.4} {precision:8.4} {recall:8.4} {map50:8.4} {map50_95:9.4} {:7.5} {:6.1}",
                    epoch.epoch, epoch.box_loss, epoch.cls_loss, epoch.dfl_loss, epoch.lr[1], epoch.secs
                )?;
            }
            TrainEvent::Resumed { run, epoch, step } => {
                self.clear_progress();
                writeln!(out, "goes on      {} at step {step}, in epoch {epoch} of {}", run.dir.display(), run.epochs_wanted)?;
            }
            TrainEvent::Validated(report) => {
                self.clear_progress();
                let Metrics { precision, recall, map50, map50_95, .. } = report.metrics;
                writeln!(
                    out,
                    "validated    after step {}: P {precision:.4}  R {recall:.4}  mAP50 {map50:.4}  mAP50-95 {map50_95:.4}",
                    report.step
                )?;
            }
            TrainEvent::Steering(steering) => {
                self.clear_progress();
                let state = match (steering.paused, steering.stops_after_epoch) {
                    (true, _) => "paused",
                    (false, true) => "stops after this epoch",
                    (false, false) => "goes on",
                };
                writeln!(out, "{state}")?;
            }
            TrainEvent::Diverged(divergence) => {
                self.clear_progress();
                let Divergence { epoch, step, what, value, images } = divergence;
                writeln!(out, "diverged     the {what} is {value} at step {step} of epoch {epoch}, with these pictures:")?;
                for image in images {
                    writeln!(out, "             {}", image.display())?;
                }
            }
            TrainEvent::Progress { stage, done, total } => self.progress(&format!("{stage:?} {done} / {total}").to_lowercase()),
            TrainEvent::Note(text) => {
                self.clear_progress();
                writeln!(out, "note: {text}")?;
            }
            TrainEvent::Alarm(alarm) => {
                self.clear_progress();
                writeln!(out, "ALARM: epoch {} step {}: {}", alarm.epoch, alarm.step, alarm.what)?;
                writeln!(out, "       {}", alarm.explanation)?;
                writeln!(out, "       what to do: {}", alarm.action)?;
            }
            TrainEvent::Pace(pace) => {
                self.clear_progress();
                let Pace { images_per_sec, secs_per_epoch, secs_left, n_steps } = pace;
                writeln!(
                    out,
                    "pace         {images_per_sec:.1} images/s, {} an epoch and {} in all for the steps, from {n_steps} of them",
                    duration(*secs_per_epoch),
                    duration(*secs_left)
                )?;
            }
            TrainEvent::BatchPictures(paths) => {
                self.clear_progress();
                for path in paths {
                    writeln!(out, "batch        {}", path.display())?;
                }
            }
            // For the window.
            TrainEvent::Saved { .. } | TrainEvent::Machine(_) | TrainEvent::Samples(_) => {}
        }
        Ok(())
    }

    /// A bar of the epoch, losses, speed, and the time to the end of the run.
    fn step_line(&mut self, step: &StepReport) -> String {
        let StepReport { box_loss, cls_loss, dfl_loss, images_per_sec, .. } = step;
        // Counted from 1, as in the window.
        let epoch = step.epoch + 1;
        let losses = format!("box {box_loss:.3}  cls {cls_loss:.3}  dfl {dfl_loss:.3}  {images_per_sec:.1} img/s");
        let Some(plan) = &self.plan else { return format!("epoch {epoch}  {losses}") };
        let of = plan.steps_per_epoch.max(1);
        let images = plan.n_train_images as f64 / of as f64;
        let secs = self.step_secs.add(images / f64::from(*images_per_sec).max(1e-3));
        let left = (plan.epochs * of).saturating_sub(step.step + 1) as f64 * secs;
        let done = step.step % of + 1;
        let bar = bar(done as u64, of as u64);
        format!("epoch {epoch}/{} {bar} {done}/{of}  {losses}  {} left", plan.epochs, duration(left))
    }

    fn progress(&mut self, text: &str) {
        if self.style == Style::Live {
            // A lost progress line is no loss.
            // Without wrapping, so that a long line in a narrow window is one that can be overwritten.
            write!(io::stderr(), "\r\x1b[?7l\x1b[K{text}\x1b[?7h").ok();
            self.progress_shown = true;
        }
    }

    fn clear_progress(&mut self) {
        if std::mem::take(&mut self.progress_shown) {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }
}

/// What is on disk now.
fn edited_line(edited: &Edited) -> String {
    let what = match edited.step {
        Step::Edit => "",
        Step::Undo => "took back: ",
        Step::Redo => "did again: ",
    };
    let n_files = edited.files.len();
    let left: Vec<String> = edited.left.iter().map(|(file, reason)| format!("\n  {} was left alone: {reason}", file.display())).collect();
    format!("{what}{} ({n_files} {}){}", edited.name, if n_files == 1 { "file" } else { "files" }, left.concat())
}

fn finding_line(finding: &Finding) -> String {
    let place = match finding.line {
        Some(line) => format!("{}:{line}", finding.file.display()),
        None => finding.file.display().to_string(),
    };
    format!("{:7} {:20} {place}  {}", finding.severity.name(), finding.rule.id(), finding.message)
}

fn detection_line(names: &[String], result: &PictureResult) -> String {
    let path = result.path.display();
    match &result.outcome {
        Err(reason) => format!("{path}: skipped, {reason}"),
        Ok(found) => {
            let mut counts = vec![0_usize; names.len()];
            for detection in &found.detections {
                if let Some(count) = counts.get_mut(detection.class) {
                    *count += 1;
                }
            }
            let parts: Vec<String> =
                counts.iter().zip(names).filter(|(count, _)| **count > 0).map(|(count, name)| format!("{count} {name}")).collect();
            let what = if parts.is_empty() { "nothing found".to_owned() } else { parts.join(", ") };
            format!("{path}: {}x{} {what} ({:.1} ms)", found.size.width, found.size.height, found.network_ms)
        }
    }
}

fn split(plan: &SplitPlan, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "split    images  backgrounds    boxes")?;
    for (split, counts) in Split::ALL.iter().zip(&plan.counts) {
        let n_boxes: usize = counts.boxes.iter().sum();
        writeln!(out, "{:6} {:8} {:12} {n_boxes:8}", split.name(), counts.n_images, counts.n_backgrounds)?;
    }
    let [content, roboflow, videos] = plan.n_joined;
    writeln!(
        out,
        "{} groups stay whole; joined by content {content}, as copies of one picture {roboflow}, by names of videos {videos}",
        plan.n_groups
    )?;
    for note in &plan.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn finished(done: &CommandDone, out: &mut impl Write) -> io::Result<()> {
    match done {
        CommandDone::Opened
        | CommandDone::Followed
        | CommandDone::Browsed { .. }
        | CommandDone::PictureSaved(_)
        | CommandDone::ChartSaved(_)
        | CommandDone::NotesSaved { .. }
        | CommandDone::Counted(_)
        | CommandDone::HypRead { .. }
        | CommandDone::RunsListed { .. }
        | CommandDone::RunsCompared(_) => Ok(()),
        CommandDone::Checked(report) => checked(report, out),
        CommandDone::Fixed { receipt, dry_run } => {
            let verb = if *dry_run { "would change" } else { "changed" };
            fixed(receipt, &format!("{verb} {} rows in {} files", receipt.changes.len(), receipt.files.len()), out)
        }
        CommandDone::Undone(receipt) => {
            let text = format!("took back {:?}, restored {} files", receipt.name, receipt.files.len());
            fixed(receipt, &text, out)
        }
        CommandDone::SplitPlanned(plan) => split(plan, out),
        CommandDone::Converted(report) => convert::converted(report, out),
        CommandDone::SampleWritten { out: folder, n_images } => writeln!(out, "wrote {n_images} pictures to {}", folder.display()),
        CommandDone::Trained(summary) => {
            let state = if summary.stopped { "stopped after" } else { "done:" };
            let Metrics { precision, recall, map50, map50_95, .. } = summary.metrics;
            writeln!(out, "{state} {} epochs, best epoch {}", summary.epochs_done, summary.best_epoch)?;
            writeln!(out, "P {precision:.4}  R {recall:.4}  mAP50 {map50:.4}  mAP50-95 {map50_95:.4}")?;
            writeln!(out, "peak memory {:.0} MiB", summary.peak_bytes as f64 / f64::from(1 << 20))?;
            writeln!(out, "weights in {}", summary.run_dir.join("weights").display())?;
            if summary.stopped {
                writeln!(out, "to go on: boxwright train --resume {}", summary.run_dir.display())?;
            }
            Ok(())
        }
        CommandDone::BatchesPreviewed(pictures) => writeln!(out, "{} batches were made", pictures.len()),
        CommandDone::OverfitChecked(report) => {
            let verdict = match report.verdict {
                OverfitVerdict::Learns => "learns",
                OverfitVerdict::Slow => "SLOW",
                OverfitVerdict::Fails => "FAILS",
            };
            let parts =
                |losses: &BranchLosses| format!("box {:.3}  cls {:.3}  dfl {:.3}", losses.box_loss, losses.cls_loss, losses.dfl_loss);
            writeln!(out, "first steps  {}", parts(&report.first))?;
            writeln!(out, "last steps   {}", parts(&report.last))?;
            writeln!(out, "{verdict}: {}", report.text)?;
            writeln!(out, "{} steps took {}", report.losses.len(), duration(report.secs))
        }
        CommandDone::Swept { rows, tables } => swept(rows, tables, out),
        CommandDone::Validated { metrics, names, skipped } => {
            for line in skipped {
                writeln!(out, "skipped: {line}")?;
            }
            validated(metrics, names, out)
        }
        CommandDone::Detected { n_pictures, n_detections, n_unreadable, out: folder } => {
            writeln!(out, "{n_detections} boxes in {n_pictures} pictures, {n_unreadable} unreadable")?;
            folder.as_ref().map_or(Ok(()), |folder| writeln!(out, "wrote {}", folder.display()))
        }
        CommandDone::Prelabelled(report) => {
            writeln!(out, "{} boxes proposed on {} images, {} unreadable", report.n_proposals, report.n_images, report.n_unreadable)?;
            for (name, n_boxes) in &report.unknown {
                writeln!(out, "left out: {n_boxes} boxes of {name:?}, which the dataset does not name")?;
            }
            Ok(())
        }
        CommandDone::Exported(report) => {
            for line in &report.checks {
                writeln!(out, "checked: {line}")?;
            }
            writeln!(out, "wrote {} ({:.1} MiB)", report.path.display(), report.size_bytes as f64 / f64::from(1 << 20))
        }
        CommandDone::Benched(figures) => {
            let Some(figures) = figures.as_object() else { return writeln!(out, "{figures}") };
            for (name, value) in figures {
                match value.as_f64() {
                    Some(number) if !value.is_u64() => writeln!(out, "{name:24} {number:.3}")?,
                    _ => writeln!(out, "{name:24} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))?,
                }
            }
            Ok(())
        }
        CommandDone::Examined(report) => examined(report, out),
        CommandDone::DevicesListed(devices) => devices.iter().try_for_each(|option| writeln!(out, "{}", option.name)),
    }
}

fn examined(report: &DoctorReport, out: &mut impl Write) -> io::Result<()> {
    let gibibytes = |bytes: usize| bytes as f64 / f64::from(1 << 30);
    writeln!(out, "{:12} {}", "Boxwright", report.version)?;
    writeln!(out, "{:12} {}, {} threads", "CPU", report.cpu, report.n_threads)?;
    match &report.gpus {
        Err(reason) => writeln!(out, "{:12} none: {reason}", "GPU")?,
        Ok(gpus) => {
            for (index, gpu) in gpus.iter().enumerate() {
                let label = format!("GPU {index}");
                let gpu = match gpu {
                    Ok(gpu) => gpu,
                    Err(reason) => {
                        writeln!(out, "{label:12} cannot be opened: {reason}")?;
                        continue;
                    }
                };
                let [major, minor] = gpu.compute_capability;
                let (free, total) = (gibibytes(gpu.free_bytes), gibibytes(gpu.total_bytes));
                writeln!(out, "{label:12} {}, compute capability {major}.{minor}, {} multiprocessors", gpu.name, gpu.n_multiprocessors)?;
                writeln!(out, "{:12} {free:.1} of {total:.1} GiB free, the driver is of CUDA {}", "", gpu.cuda_version)?;
                for (name, result) in &gpu.tests {
                    match result {
                        Err(reason) => writeln!(out, "{:12} {name}: failed, {}", "", reason.replace('\n', ", "))?,
                        Ok(rate) => {
                            let of_peak = rate
                                .peak
                                .map_or_else(String::new, |peak| format!(" of {peak:.0} at most ({:.0} %)", 100.0 * rate.achieved / peak));
                            let low = if rate.is_low() { ": slow; is something else using this GPU?" } else { "" };
                            writeln!(out, "{:12} {name}: {:.0} {}{of_peak}{low}", "", rate.achieved, rate.unit)?;
                        }
                    }
                }
            }
        }
    }
    for library in &report.libraries {
        let purpose = if library.is_needed { library.purpose.to_owned() } else { format!("{}; optional", library.purpose) };
        match &library.outcome {
            Ok(found) => writeln!(out, "{:12} {:10} {}", library.name, found.version, found.path.display())?,
            Err(reason) => writeln!(out, "{:12} {reason} ({purpose})", library.name)?,
        }
    }
    if report.has_usable_gpu() {
        writeln!(out, "\nThe GPU has all that it needs.")?;
    } else {
        writeln!(out, "\nNo GPU can be used; everything works on the CPU.")?;
    }
    for advice in &report.advice {
        writeln!(out, "\n{}:", advice.what)?;
        for command in &advice.commands {
            writeln!(out, "    {command}")?;
        }
    }
    Ok(())
}

/// The runs of a sweep, the best first.
fn swept(rows: &[SweepRow], tables: &[PathBuf], out: &mut impl Write) -> io::Result<()> {
    for row in ranked(rows) {
        let values: Vec<String> = row.values.iter().map(|(key, value)| format!("{key}={}", value.to_string().trim_matches('"'))).collect();
        writeln!(out, "{:4}  {}  {}", row.run, sweep_result(row), values.join(" "))?;
    }
    tables.iter().try_for_each(|path| writeln!(out, "table        {}", path.display()))
}

fn sweep_result(row: &SweepRow) -> String {
    let figures = format!("mAP50 {:.4}  mAP50-95 {:.4}  {} epochs, {}", row.map50, row.map50_95, row.epochs, duration(row.secs));
    match &row.error {
        None => figures,
        Some(reason) if row.run_dir.is_some() => format!("{figures}, {reason}"),
        Some(reason) => format!("failed: {reason}"),
    }
}

fn checked(report: &CheckReport, out: &mut impl Write) -> io::Result<()> {
    for (rule, count) in report.counts() {
        writeln!(out, "{count:6}  {}", rule.id())?;
    }
    let CheckReport { findings, n_images, n_label_files, n_rows, .. } = report;
    writeln!(out, "{} findings in {n_images} images, {n_label_files} label files, {n_rows} rows", findings.len())
}

fn fixed(receipt: &Receipt, summary: &str, out: &mut impl Write) -> io::Result<()> {
    for change in &receipt.changes {
        let after = change.after.as_deref().unwrap_or("(removed)");
        writeln!(out, "{}:{} {}  {} -> {after}", change.file.display(), change.line, change.rule.id(), change.before)?;
    }
    for (file, reason) in &receipt.refused {
        writeln!(out, "left alone: {}: {reason}", file.display())?;
    }
    writeln!(out, "{summary}")?;
    receipt.path.as_ref().map_or(Ok(()), |path| writeln!(out, "receipt: {}", path.display()))
}

fn validated(metrics: &Metrics, names: &[String], out: &mut impl Write) -> io::Result<()> {
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    writeln!(out, "{:width$} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9}", "class", "images", "labels", "P", "R", "mAP50", "mAP50-95")?;
    let Metrics { n_images, n_labels, precision, recall, map50, map50_95, .. } = metrics;
    writeln!(out, "{:width$} {n_images:7} {n_labels:8} {precision:8.4} {recall:8.4} {map50:8.4} {map50_95:9.4}", "all")?;
    if metrics.classes.len() > 1 {
        for class in &metrics.classes {
            let name = names.get(class.class).map_or("?", String::as_str);
            let figures = (class.n_labels, class.precision, class.recall, class.ap50, class.ap50_95);
            let (n_labels, precision, recall, ap50, ap50_95) = figures;
            writeln!(out, "{name:width$} {:7} {n_labels:8} {precision:8.4} {recall:8.4} {ap50:8.4} {ap50_95:9.4}", "")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_step_counts_epochs_from_1() {
        let mut printer = Printer::new(false);
        let step = StepReport { epoch: 0, step: 1, images_per_sec: 10.0, ..StepReport::default() };
        assert_eq!(printer.step_line(&step), "epoch 1  box 0.000  cls 0.000  dfl 0.000  10.0 img/s");
        printer.plan = Some(TrainPlan { steps_per_epoch: 4, epochs: 2, n_train_images: 8, ..TrainPlan::default() });
        let line = printer.step_line(&step);
        assert!(line.starts_with("epoch 1/2 [") && line.contains("] 2/4  "), "{line}");
        let last = StepReport { epoch: 1, step: 7, ..step };
        assert!(printer.step_line(&last).starts_with("epoch 2/2 ["));
    }
}
