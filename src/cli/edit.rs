//! Editing a dataset from the command line: a script, a split, or changes of its classes, through the same session as the window.
//!
//! In:  a dataset, and what is to be done with it.
//! Out: a line for each edit once it is on disk; the exit code. The first step that fails ends it; what was acknowledged stays.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;

use super::print::Printer;
use super::script::{self, ClassStep, ScriptStep};
use crate::dataset::class_edit::{Boxes, ClassEdit, Ids};
use crate::dataset::edit::{Edit, ImageEdit, LabelOp, Mark};
use crate::dataset::split::SplitOptions;
use crate::dataset::{ClassId, Label};
use crate::session::{Command, Event, Failure, OpenDataset, Session, Settings};

/// What is to be done.
pub(super) enum Edits {
    /// The file, or `-` for standard input.
    Script(PathBuf),
    Split {
        options: SplitOptions,
        dry_run: bool,
    },
    /// None: the classes are listed.
    Classes(Vec<ClassStep>),
}

impl Edits {
    /// From the options of `classes`; what goes comes before what is new.
    pub(super) fn of_classes(
        rename: &[String],
        merge: &[String],
        delete: &[String],
        add: &[String],
        with_boxes: bool,
        renumber: bool,
    ) -> Result<Self, Failure> {
        let pair = |option: &str, text: &String| {
            let pair = text.split_once('=').map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()));
            pair.ok_or_else(|| {
                Failure::mendable(format!("{option} {text:?} has no `=`"), Some(format!("give two names, such as `{option} dent=scratch`")))
            })
        };
        let mut steps = Vec::new();
        for text in rename {
            let (class, name) = pair("--rename", text)?;
            steps.push(ClassStep::Rename { class, name });
        }
        for text in merge {
            let (from, into) = pair("--merge", text)?;
            steps.push(ClassStep::Merge { from, into, renumber });
        }
        steps.extend(delete.iter().map(|class| ClassStep::Delete { class: class.clone(), with_boxes, renumber }));
        steps.extend(add.iter().cloned().map(ClassStep::Add));
        Ok(Self::Classes(steps))
    }
}

/// Opens the dataset and does it.
pub(super) fn run(dataset: PathBuf, edits: &Edits, json: bool) -> ExitCode {
    let mut editor = Editor { session: Session::new(Settings::load(), Arc::new(|| {})), printer: Printer::new(json), json };
    match editor.open(dataset).and_then(|()| editor.carry_out(edits)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failure(failure)) => super::fail(&failure),
        // The reader of our output went away (such as `| head`): stop as it did.
        Err(Stop::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Stop::Output(_)) => ExitCode::from(2),
    }
}

/// Why it ends early.
enum Stop {
    Failure(Failure),
    Output(std::io::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

struct Editor {
    session: Session,
    printer: Printer,
    json: bool,
}

impl Editor {
    fn open(&mut self, dataset: PathBuf) -> Result<(), Stop> {
        self.session.apply(Command::Open(dataset.clone()));
        self.wait()?;
        if self.session.dataset.is_some() {
            return Ok(());
        }
        let hint = Some("give a data.yaml, or the folder that holds the images and labels".to_owned());
        Err(Failure::mendable(format!("{} is no dataset", dataset.display()), hint).into())
    }

    /// Prints what happens until everything that was asked for is done.
    fn wait(&mut self) -> Result<(), Stop> {
        while let Some(event) = self.session.wait() {
            if let Event::Failed { failure, .. } = &event {
                return Err(failure.clone().into());
            }
            // Reading the dataset is no result.
            if !matches!(event, Event::Progress { .. } | Event::Finished { .. } | Event::Note(_)) {
                self.printer.event(&event).map_err(Stop::Output)?;
            }
        }
        match self.session.notices.iter().find(|notice| notice.is_error) {
            Some(notice) => Err(Failure::mendable(notice.text.clone(), notice.hint.clone()).into()),
            None if !self.session.conflicts.is_empty() => {
                let hint = Some("nothing of this step was written to it; run the script again from here".to_owned());
                Err(Failure::mendable("a label file was changed by another program meanwhile", hint).into())
            }
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, edits: &Edits) -> Result<(), Stop> {
        match edits {
            Edits::Script(path) => self.script(path),
            Edits::Split { options, dry_run } => self.split(options.clone(), *dry_run),
            Edits::Classes(steps) if steps.is_empty() => self.list_classes(),
            Edits::Classes(steps) => steps.iter().try_for_each(|step| self.apply(Command::EditClasses(self.class_edit(step)?))),
        }
    }

    fn script(&mut self, path: &Path) -> Result<(), Stop> {
        let failed = |error: &std::io::Error| Failure::mendable(format!("cannot read {}: {error}", path.display()), None);
        let reader: Box<dyn BufRead> = if path == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(BufReader::new(std::fs::File::open(path).map_err(|error| failed(&error))?))
        };
        for (index, line) in reader.lines().enumerate() {
            let line = line.map_err(|error| failed(&error))?;
            let at = |failure: Failure| failure.about(&format!("line {}: ", index + 1));
            let hint = || Some("`boxwright edit --help` lists the steps".to_owned());
            match script::parse(&line).map_err(|reason| at(Failure::mendable(reason, hint())))? {
                None => {}
                Some(ScriptStep::Split(options)) => self.split(options, false)?,
                Some(step) => {
                    let command = self.command(step).map_err(at)?;
                    self.apply(command).map_err(|stop| match stop {
                        Stop::Failure(failure) => Stop::Failure(at(failure)),
                        stop @ Stop::Output(_) => stop,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn split(&mut self, options: SplitOptions, dry_run: bool) -> Result<(), Stop> {
        self.session.apply(Command::PlanSplit(options));
        while let Some(event) = self.session.wait() {
            match &event {
                Event::Failed { failure, .. } => return Err(failure.clone().into()),
                event => self.printer.event(event).map_err(Stop::Output)?,
            }
        }
        if dry_run { Ok(()) } else { self.apply(Command::ApplySplit) }
    }

    fn apply(&mut self, command: Command) -> Result<(), Stop> {
        self.session.apply(command);
        self.wait()
    }

    fn opened(&self) -> Result<&OpenDataset, Failure> {
        self.session.dataset.as_ref().ok_or_else(|| Failure::mendable("no dataset is open", None))
    }

    fn list_classes(&self) -> Result<(), Stop> {
        let open = self.opened()?;
        let mut counts = vec![0_usize; open.dataset.names.len()];
        for label in open.labels.iter().flat_map(|labels| labels.iter()) {
            if let Some(count) = counts.get_mut(label.class.0 as usize) {
                *count += 1;
            }
        }
        let mut out = std::io::stdout().lock();
        for (class, (name, n_boxes)) in open.dataset.names.iter().zip(counts).enumerate() {
            if self.json {
                writeln!(out, "{}", json!({"event": "class", "class": class, "name": name, "boxes": n_boxes}))
            } else {
                writeln!(out, "{class:5}  {n_boxes:8}  {name}")
            }
            .map_err(Stop::Output)?;
        }
        Ok(())
    }

    fn command(&self, step: ScriptStep) -> Result<Command, Failure> {
        let of_image = |name: &str, image: usize, op: LabelOp| Command::Edit(Edit::of_image(name, image, vec![op]));
        Ok(match step {
            ScriptStep::Add { image, class, bbox } => {
                of_image("Draw box", self.image(&image)?, LabelOp::Add(Label { class: self.class(&class)?, bbox }))
            }
            ScriptStep::Set { image, index, class, bbox } => {
                let (image, class) = (self.image(&image)?, self.class(&class)?);
                let before = self.label(image, index)?;
                let name = if bbox.is_some() { "Move box" } else { "Change class" };
                of_image(name, image, LabelOp::Set { index, label: Label { class, bbox: bbox.unwrap_or(before.bbox) } })
            }
            ScriptStep::Remove { image, index } => {
                let image = self.image(&image)?;
                self.label(image, index)?;
                of_image("Delete box", image, LabelOp::Remove { index })
            }
            ScriptStep::Mark { image, review, tags } => {
                let image = self.image(&image)?;
                // Without tags those stay that it has.
                let kept = if tags.is_empty() { self.opened()?.marks.get(image).map(|mark| mark.tags.clone()) } else { None };
                let mark = Some(Mark { review, tags: kept.unwrap_or(tags) });
                let images = vec![ImageEdit { image, ops: Vec::new(), mark }];
                Command::Edit(Edit { name: "Mark image".to_owned(), images })
            }
            ScriptStep::Undo => Command::UndoEdit,
            ScriptStep::Redo => Command::RedoEdit,
            ScriptStep::Class(step) => Command::EditClasses(self.class_edit(&step)?),
            ScriptStep::Move { image, split } => Command::MoveToSplit { images: vec![self.image(&image)?], split },
            ScriptStep::Split(options) => Command::PlanSplit(options),
        })
    }

    fn class_edit(&self, step: &ClassStep) -> Result<ClassEdit, Failure> {
        let ids = |renumber: &bool| if *renumber { Ids::Renumber } else { Ids::Keep };
        Ok(match step {
            ClassStep::Add(name) => ClassEdit::Add { name: name.clone() },
            ClassStep::Rename { class, name } => ClassEdit::Rename { class: self.class(class)?, name: name.clone() },
            ClassStep::Merge { from, into, renumber } => {
                ClassEdit::Merge { from: self.class(from)?, into: self.class(into)?, ids: ids(renumber) }
            }
            ClassStep::Delete { class, with_boxes, renumber } => {
                let boxes = if *with_boxes { Boxes::Delete } else { Boxes::Refuse };
                ClassEdit::Delete { class: self.class(class)?, boxes, ids: ids(renumber) }
            }
            ClassStep::Recolor { class, color } => ClassEdit::Recolor { class: self.class(class)?, color: *color },
        })
    }

    /// An image by its path, by a file name that only one has, or by its number.
    fn image(&self, name: &str) -> Result<usize, Failure> {
        let dataset = &self.opened()?.dataset;
        let path = dataset.root.join(name);
        let by_path = dataset.images.iter().position(|image| image.path == path);
        let by_name = || {
            let mut named = dataset.images.iter().enumerate().filter(|(_, image)| image.path.file_name().is_some_and(|file| file == name));
            let (index, first) = named.next()?;
            named.all(|(_, image)| image.path == first.path).then_some(index)
        };
        let by_number = || name.parse::<usize>().ok().filter(|&index| index < dataset.images.len());
        by_path.or_else(by_name).or_else(by_number).ok_or_else(|| {
            let hint = Some("give its path below the dataset's folder, or its number from 0".to_owned());
            Failure::mendable(format!("there is no one image {name:?}"), hint)
        })
    }

    /// A class by its name or number.
    fn class(&self, name: &str) -> Result<ClassId, Failure> {
        let names = &self.opened()?.dataset.names;
        let by_name = names.iter().position(|each| each == name);
        let by_number = || name.parse::<usize>().ok().filter(|&index| index < names.len());
        by_name.or_else(by_number).map(|index| ClassId(index as u32)).ok_or_else(|| {
            let hint = Some(format!("the classes are {}", names.join(", ")));
            Failure::mendable(format!("there is no class {name:?}"), hint)
        })
    }

    fn label(&self, image: usize, index: usize) -> Result<Label, Failure> {
        let labels = self.session.labels(image);
        labels.get(index).copied().ok_or_else(|| {
            let hint = Some("labels are counted from 0, in the order of the label file".to_owned());
            Failure::mendable(format!("the image has {} labels, and no label {index}", labels.len()), hint)
        })
    }
}
