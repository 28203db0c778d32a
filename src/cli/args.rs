//! The arguments, named as users of the public trainers know them, and the command that they mean.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::check;
use super::edit::Edits;
use crate::dataset::Split;
use crate::dataset::convert::{ConvertRequest, FormatId};
use crate::dataset::formats;
use crate::dataset::formats::FORMATS;
use crate::dataset::image_check::Depth;
use crate::dataset::report::Selection;
use crate::dataset::rule::{Rule, Severity};
use crate::dataset::sample::SampleOptions;
use crate::dataset::split::SplitOptions;
use crate::detect::DetectOptions;
use crate::engine::Device;
use crate::eval::ValOptions;
use crate::export::ExportFormat;
use crate::session::bench::{BenchKind, BenchRequest};
use crate::session::{Command, DetectRequest, Failure};
use crate::train::freeze::Freeze;
use crate::train::hyp_choice::parse_change;
use crate::train::overfit::DEFAULT_STEPS;
use crate::train::{BatchChoice, HypChoice, ResumeRequest, SweepAxis, SweepRequest, TrainConfig};
use crate::yolo::Model;

/// From a folder of pictures to a deployed YOLOv9 detector: label, check, train, look, export.
#[derive(Debug, Parser)]
#[command(name = "boxwright", version, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    window: Window,
}

/// What the window shows first.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Window {
    /// Dataset folder, data.yaml, run folder or weights to open
    pub(super) path: Option<PathBuf>,
    /// Write a picture of the window to this PNG file and end (for documentation)
    #[arg(long, value_name = "FILE")]
    pub(super) screenshot: Option<PathBuf>,
    /// Workspace to show first
    #[arg(long, value_enum)]
    pub(super) workspace: Option<WorkspaceArg>,
    /// Size of the window in points
    #[arg(long, value_name = "WxH", value_parser = parse_size)]
    pub(super) size: Option<[u16; 2]>,
    #[arg(long, value_enum)]
    pub(super) theme: Option<ThemeArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum WorkspaceArg {
    Data,
    Check,
    Train,
    Detect,
    Export,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ThemeArg {
    System,
    Light,
    Dark,
}

#[cfg(feature = "gui")]
impl From<Window> for crate::gui::Start {
    fn from(window: Window) -> Self {
        use crate::gui::action::Workspace;
        use crate::session::ThemeChoice;

        let workspace = window.workspace.map(|workspace| match workspace {
            WorkspaceArg::Data => Workspace::Data,
            WorkspaceArg::Check => Workspace::Check,
            WorkspaceArg::Train => Workspace::Train,
            WorkspaceArg::Detect => Workspace::Detect,
            WorkspaceArg::Export => Workspace::Export,
        });
        let theme = window.theme.map(|theme| match theme {
            ThemeArg::System => ThemeChoice::System,
            ThemeArg::Light => ThemeChoice::Light,
            ThemeArg::Dark => ThemeChoice::Dark,
        });
        let size = window.size.map(|size| size.map(f32::from));
        Self { path: window.path, workspace, size, theme, screenshot: window.screenshot }
    }
}

#[derive(Debug, Subcommand)]
enum Task {
    /// List what is wrong with a dataset; exit code 1 when any finding is an error
    Check {
        /// data.yaml, or a dataset folder (YOLO or Pascal VOC)
        dataset: PathBuf,
        /// Decode every image, too, and compare their pixels
        #[arg(long)]
        images: bool,
        /// Only findings of this rule; may be given several times
        #[arg(long = "rule", value_name = "ID", value_parser = rule_named)]
        rules: Vec<Rule>,
        /// Only findings at least as severe: info, warning, error
        #[arg(long, value_name = "LEVEL", value_parser = severity_named)]
        severity: Option<Severity>,
        /// No more findings than these
        #[arg(long, value_name = "N")]
        max: Option<usize>,
        #[arg(long, value_enum, default_value = "text", conflicts_with = "json")]
        format: check::Format,
        /// The same as `--format json`
        #[arg(long)]
        json: bool,
    },
    /// Apply the safe fixes; take them back with `undo`
    Fix {
        dataset: PathBuf,
        /// Only list what would change
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
    /// Take the last edit back: a fix, a change of labels, classes or splits, also one made in the window
    Undo {
        dataset: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Carry out a script of edits; each line is acknowledged when it is on disk
    ///
    /// A line is words, or a JSON array of them: `add IMAGE CLASS CX CY W H`, `set IMAGE N CLASS [CX CY W H]`, `remove IMAGE N`,
    /// `mark IMAGE reviewed|empty|unreviewed [TAG …]` (without tags its tags stay), `undo`, `redo`, `class add|rename|merge|delete …`, `split val=0.2 test=0.1 seed=0`,
    /// `move IMAGE train|val|test`. Labels of an image are counted from 0; coordinates are fractions of the image.
    #[command(verbatim_doc_comment)]
    Edit {
        dataset: PathBuf,
        /// The script; - for standard input
        #[arg(long, value_name = "FILE")]
        script: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Divide the images into train, val and test by lists beside data.yaml; no image is moved
    Split {
        dataset: PathBuf,
        /// Share of the images for validation
        #[arg(long, default_value_t = 0.2)]
        val: f64,
        /// Share of the images for the test
        #[arg(long, default_value_t = 0.0)]
        test: f64,
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Names such as `clip_0001` and `clip_0002` do not hold images together
        #[arg(long)]
        ignore_names: bool,
        /// Only show what each split would hold
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
    /// List the classes, or change them over the whole dataset; take each change back with `undo`
    Classes {
        dataset: PathBuf,
        #[arg(long, value_name = "OLD=NEW")]
        rename: Vec<String>,
        /// Give the boxes of a class another one
        #[arg(long, value_name = "FROM=INTO")]
        merge: Vec<String>,
        #[arg(long, value_name = "CLASS")]
        delete: Vec<String>,
        #[arg(long, value_name = "NAME")]
        add: Vec<String>,
        /// Delete the boxes of classes that are deleted, too
        #[arg(long, requires = "delete")]
        with_boxes: bool,
        /// Close the gap in the class numbers that a class leaves behind
        #[arg(long)]
        renumber: bool,
        #[arg(long)]
        json: bool,
    },
    /// Write a dataset in another format, with a report of what that format cannot hold
    Convert {
        /// Folder, or file of labels, in any known format
        source: PathBuf,
        /// New or empty folder
        #[arg(required_unless_present = "dry_run")]
        out: Option<PathBuf>,
        #[arg(long, value_name = "FORMAT", value_parser = format_parser(true), default_value = "yolo")]
        to: String,
        /// The format of the source [default: recognised by content]
        #[arg(long, value_name = "FORMAT", value_parser = format_parser(false))]
        from: Option<String>,
        /// Only tell what would be written and lost
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
    /// Draw the sample dataset: machined metal parts with scratches, dents and cracks
    Sample {
        /// New or empty folder
        out: PathBuf,
        #[arg(long, default_value_t = 160)]
        images: usize,
        /// Side of the pictures in pixels
        #[arg(long, default_value_t = 320)]
        size: u32,
        #[arg(long, default_value_t = 7)]
        seed: u64,
        /// Plant known label and image faults
        #[arg(long)]
        broken: bool,
        #[arg(long)]
        json: bool,
    },
    /// Train a detector
    Train(Box<TrainArgs>),
    /// Train one run after another over a grid of values, and compare them in a table
    Sweep {
        #[command(flatten)]
        args: Box<TrainArgs>,
        /// Values to try: a key of a YAML file for --hyp, or model, epochs, batch, imgsz, seed; may be repeated
        #[arg(long, required = true, value_name = "KEY=A,B,C", value_parser = SweepAxis::parse)]
        grid: Vec<SweepAxis>,
        /// Try so many points of the grid, drawn at random by --seed
        #[arg(long, value_name = "N")]
        random: Option<usize>,
    },
    /// Measure precision, recall and mAP of weights on a split
    Val {
        #[arg(long)]
        data: PathBuf,
        #[arg(long)]
        weights: PathBuf,
        #[arg(long, value_enum, default_value = "val")]
        split: SplitArg,
        /// Input size; the size that the weights were trained with if absent
        #[arg(long)]
        imgsz: Option<u32>,
        #[arg(long, default_value_t = 16)]
        batch: usize,
        #[arg(long, default_value_t = 0.001)]
        conf: f32,
        #[arg(long, default_value_t = 0.7)]
        iou: f32,
        /// cpu, or the number of a GPU
        #[arg(long, default_value = "cpu")]
        device: Device,
        #[arg(long)]
        json: bool,
    },
    /// Find objects in pictures
    Detect {
        #[arg(long)]
        weights: PathBuf,
        /// Picture, folder, or pattern such as 'images/*.jpg'
        #[arg(long)]
        source: PathBuf,
        #[arg(long)]
        imgsz: Option<u32>,
        #[arg(long, default_value_t = 0.25)]
        conf: f32,
        #[arg(long, default_value_t = 0.45)]
        iou: f32,
        #[arg(long, default_value_t = 1000)]
        max_det: usize,
        /// Write the pictures with their boxes drawn
        #[arg(long)]
        save_img: bool,
        /// Write `labels/NAME.txt` with a row `class cx cy w h score` for each box
        #[arg(long)]
        save_txt: bool,
        #[arg(long, default_value = "runs/detect")]
        out: PathBuf,
        /// cpu, or the number of a GPU
        #[arg(long, default_value = "cpu")]
        device: Device,
        #[arg(long)]
        json: bool,
    },
    /// Write weights for other programs
    Export {
        #[arg(long)]
        weights: PathBuf,
        #[arg(long, value_enum, default_value = "onnx")]
        format: FormatArg,
        #[arg(long)]
        out: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Measure how fast this machine trains, infers or reads data
    Bench {
        #[arg(value_enum)]
        what: BenchArg,
        #[arg(long, default_value = "yolov9-t")]
        model: Model,
        #[arg(long)]
        batch: Option<usize>,
        #[arg(long)]
        imgsz: Option<u32>,
        #[arg(long, default_value_t = 80)]
        classes: usize,
        /// Dataset whose pictures `bench data` reads
        #[arg(long)]
        data: Option<PathBuf>,
        /// Measured repetitions after the warm-up; on a GPU one is a series of 10 steps
        #[arg(long, default_value_t = 5)]
        repeats: usize,
        /// Write what each node of the graph took to this file, tab-separated
        #[arg(long, value_name = "FILE")]
        profile: Option<PathBuf>,
        /// cpu, or the number of a GPU
        #[arg(long, default_value = "cpu")]
        device: Device,
        #[arg(long)]
        json: bool,
    },
    /// Look for GPUs and the libraries they need; say what is missing and how to get it
    Doctor {
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "options that are given or not")]
struct TrainArgs {
    /// data.yaml, or a dataset folder
    #[arg(long, required_unless_present = "resume")]
    data: Option<PathBuf>,
    /// Go on with this run at the step where it was stopped or killed, with its own options; without a folder with the run below
    /// --project that was trained last. --epochs, --device, --data, --patience and --lr-scale change it
    #[arg(long, value_name = "RUN_DIR")]
    #[expect(clippy::option_option, reason = "absent, without a value, and with one")]
    resume: Option<Option<PathBuf>>,
    /// Factor for the learning rate of a run that goes on, such as 0.5 after it diverged
    #[arg(long, value_name = "FACTOR", requires = "resume")]
    lr_scale: Option<f64>,
    #[arg(long, default_value = "yolov9-t")]
    model: Model,
    /// Weights to start from
    #[arg(long)]
    weights: Option<PathBuf>,
    /// Start from weights that give less than four fifths of the network's parameters, too
    #[arg(long, requires = "weights")]
    allow_partial: bool,
    #[arg(long, default_value_t = 100)]
    epochs: usize,
    /// Pictures that are computed at once; auto (or -1): the largest number that fits
    #[arg(long, default_value = "16", value_name = "N|auto", allow_hyphen_values = true, value_parser = BatchChoice::parse)]
    batch: BatchChoice,
    #[arg(long, default_value_t = 640)]
    imgsz: u32,
    /// cpu, or the number of a GPU
    #[arg(long, default_value = "cpu")]
    device: Device,
    #[arg(long, default_value = "runs")]
    project: PathBuf,
    #[arg(long, default_value = "train")]
    name: String,
    /// auto, small, fine-tune, scratch-high, or a YAML file
    #[arg(long, default_value = "auto", value_name = "NAME|FILE")]
    hyp: String,
    /// Change one hyper-parameter on top, by its key in a YAML file for --hyp; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_change)]
    set: Vec<(String, serde_json::Value)>,
    /// The last N epochs have no mosaic, and so no mixup and no copy-paste
    #[arg(long, default_value_t = 0, value_name = "N")]
    close_mosaic: usize,
    #[command(flatten)]
    rule: RuleArgs,
    /// Take all classes for one
    #[arg(long)]
    single_cls: bool,
    /// Show pictures of rare and badly found classes more often
    #[arg(long)]
    image_weights: bool,
    /// Change the size of batches, between half and one and a half of --imgsz
    #[arg(long)]
    multi_scale: bool,
    /// Leave out training pictures with fewer labels than this
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_items: usize,
    /// Layers that are left as they are: a count from the input on, several layer numbers, or parts of parameter names
    #[arg(long, num_args = 1.., value_name = "N|LAYERS|NAMES")]
    freeze: Vec<String>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// End when no epoch was better for so many; 0: never
    #[arg(long, default_value_t = 100, value_name = "EPOCHS")]
    patience: usize,
    /// Keep weights/epochN.safetensors every so many epochs; 0: never
    #[arg(long, default_value_t = 0, value_name = "EPOCHS")]
    save_period: usize,
    /// Validate the last epoch alone
    #[arg(long)]
    noval: bool,
    /// Train although more than one in a hundred images of the train split cannot be used
    #[arg(long)]
    allow_broken: bool,
    /// Only train some steps on one batch, and say whether it can be learnt; exit code 1 when not
    #[arg(long, conflicts_with = "resume")]
    overfit_check: bool,
    /// Steps of the overfit check
    #[arg(long, value_name = "N", default_value_t = DEFAULT_STEPS, requires = "overfit_check")]
    overfit_steps: usize,
    #[arg(long)]
    json: bool,
}

/// Hyper-parameters that the public trainer has as options of their own.
#[derive(Debug, clap::Args)]
struct RuleArgs {
    /// What turns gradients into steps, instead of what --hyp says
    #[arg(long, value_enum, ignore_case = true)]
    optimizer: Option<OptimizerArg>,
    /// Learning rate along a cosine
    #[arg(long, group = "schedule")]
    cos_lr: bool,
    /// Learning rate level for the first half of the epochs, then along a cosine
    #[arg(long, group = "schedule")]
    flat_cos_lr: bool,
    /// Learning rate that stays the same
    #[arg(long, group = "schedule")]
    fixed_lr: bool,
    /// Soften labels: a place that learns an object wants 1 - SHARE/2 of its class and SHARE/2 of each other one
    #[arg(long, value_name = "SHARE")]
    label_smoothing: Option<f64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OptimizerArg {
    Sgd,
    Adam,
    #[value(name = "adamw")]
    AdamW,
    Lion,
}

impl RuleArgs {
    /// As values of a YAML file for --hyp.
    fn changes(&self) -> impl Iterator<Item = (String, serde_json::Value)> {
        let optimizer = self.optimizer.map(|optimizer| match optimizer {
            OptimizerArg::Sgd => "sgd",
            OptimizerArg::Adam => "adam",
            OptimizerArg::AdamW => "adamw",
            OptimizerArg::Lion => "lion",
        });
        let schedules = [(self.cos_lr, "cosine"), (self.flat_cos_lr, "flat-cosine"), (self.fixed_lr, "fixed")];
        let schedule = schedules.into_iter().find(|(chosen, _)| *chosen).map(|(_, name)| name);
        let values = [
            ("optimizer", optimizer.map(Into::into)),
            ("lr_schedule", schedule.map(Into::into)),
            ("label_smoothing", self.label_smoothing.map(Into::into)),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)))
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SplitArg {
    Train,
    Val,
    Test,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    Onnx,
    Safetensors,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BenchArg {
    Train,
    Infer,
    Data,
}

/// Takes the names of the formats, or of those that are written.
fn format_parser(is_written: bool) -> PossibleValuesParser {
    let formats = FORMATS.iter().filter(|format| if is_written { format.naming.is_some() } else { !format.looked_for.is_empty() });
    PossibleValuesParser::new(formats.map(|format| PossibleValue::new(format.name).help(format.title)))
}

/// What the arguments ask for.
pub(super) enum Wish {
    Window(Window),
    Run {
        command: Box<Command>,
        json: bool,
    },
    /// Check a dataset and tell some of what is found.
    Check {
        path: PathBuf,
        command: Box<Command>,
        selection: Selection,
        format: check::Format,
    },
    /// Open a dataset and edit it.
    Edit {
        dataset: PathBuf,
        edits: Edits,
        json: bool,
    },
}

/// Parses the arguments. Ends the program where they are none, or help was asked for.
pub(super) fn wish(args: impl IntoIterator<Item = OsString>) -> Result<Wish, Failure> {
    let matches = Args::command().get_matches_from(args);
    let given = matches.subcommand().map(|(_, matches)| given(matches)).unwrap_or_default();
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).wish(given)
}

fn rule_named(id: &str) -> Result<Rule, String> {
    Rule::ALL.into_iter().find(|rule| rule.id() == id).ok_or_else(|| {
        let ids: Vec<&str> = Rule::ALL.into_iter().map(Rule::id).collect();
        format!("there is no such rule; there are {}", ids.join(", "))
    })
}

fn severity_named(name: &str) -> Result<Severity, String> {
    let all = [Severity::Info, Severity::Warning, Severity::Error];
    all.into_iter().find(|severity| severity.name() == name).ok_or_else(|| "there are info, warning and error".to_owned())
}

/// Names of the options that were given, and do not have their usual value by themselves.
fn given(matches: &ArgMatches) -> Vec<String> {
    let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    matches.ids().map(clap::Id::as_str).filter(is_given).map(str::to_owned).collect()
}

impl Args {
    fn wish(self, given: Vec<String>) -> Result<Wish, Failure> {
        let Some(task) = self.task else { return Ok(Wish::Window(self.window)) };
        let (command, json) = match task {
            Task::Edit { dataset, script, json } => return Ok(Wish::Edit { dataset, edits: Edits::Script(script), json }),
            Task::Split { dataset, val, test, seed, ignore_names, dry_run, json } => {
                let options = SplitOptions { val, test, seed, groups_by_name: !ignore_names };
                return Ok(Wish::Edit { dataset, edits: Edits::Split { options, dry_run }, json });
            }
            Task::Classes { dataset, rename, merge, delete, add, with_boxes, renumber, json } => {
                let edits = Edits::of_classes(&rename, &merge, &delete, &add, with_boxes, renumber)?;
                return Ok(Wish::Edit { dataset, edits, json });
            }
            Task::Check { dataset: path, images, rules, severity, max, format, json } => {
                let images = if images { Depth::Pixels } else { Depth::Header };
                let command = Box::new(Command::Check { path: Some(path.clone()), images });
                let format = if json { check::Format::Json } else { format };
                return Ok(Wish::Check { path, command, selection: Selection { rules, severity, max }, format });
            }
            Task::Fix { dataset, dry_run, json } => (Command::Fix { path: Some(dataset), dry_run }, json),
            Task::Undo { dataset, json } => (Command::Undo { path: Some(dataset) }, json),
            Task::Convert { source, out, to, from, dry_run, json } => {
                let from = from.as_deref().and_then(formats::named).map(|format| format.id);
                // The parser lets only names of the table pass.
                let to = formats::named(&to).map_or(FormatId::Yolo, |format| format.id);
                (Command::Convert(ConvertRequest { source, out, from, to, dry_run }), json)
            }
            Task::Sample { out, images, size, seed, broken, json } => {
                (Command::Sample { out, options: SampleOptions { n_images: images, size, seed, broken } }, json)
            }
            Task::Train(args) => {
                let (json, is_check, n_steps) = (args.json, args.overfit_check, args.overfit_steps);
                let command = match &args.resume {
                    Some(_) => Command::Resume(Box::new(args.into_resume(&given)?)),
                    None if is_check => Command::OverfitCheck { config: Box::new(args.into_config()?), n_steps },
                    None => Command::Train(Box::new(args.into_config()?)),
                };
                (command, json)
            }
            Task::Sweep { args, grid, random } => {
                let (json, seed) = (args.json, args.seed);
                if args.resume.is_some() || args.overfit_check {
                    let hint = "a sweep begins new runs; each can be gone on with by `boxwright train --resume`".to_owned();
                    return Err(Failure::mendable("--resume and --overfit-check are not for sweeps", Some(hint)));
                }
                (Command::Sweep(Box::new(SweepRequest { base: args.into_config()?, axes: grid, random, seed })), json)
            }
            Task::Val { data, weights, split, imgsz, batch, conf, iou, device, json } => {
                let split = match split {
                    SplitArg::Train => Split::Train,
                    SplitArg::Val => Split::Val,
                    SplitArg::Test => Split::Test,
                };
                let options =
                    ValOptions { batch: at_least_one("--batch", batch)?, conf, iou, device, ..ValOptions::new(split, imgsz.unwrap_or(0)) };
                (Command::Val { data, weights, options }, json)
            }
            Task::Detect { weights, source, imgsz, conf, iou, max_det, save_img, save_txt, out, device, json } => {
                let options = DetectOptions { conf, iou, max_detections: max_det, imgsz };
                let out = (save_img || save_txt).then_some(out);
                (Command::Detect(DetectRequest { weights, source, options, device, out, save_img, save_txt }), json)
            }
            Task::Export { weights, format, out, json } => {
                let format = match format {
                    FormatArg::Onnx => ExportFormat::Onnx,
                    FormatArg::Safetensors => ExportFormat::Safetensors,
                };
                (Command::Export { weights, format, out }, json)
            }
            Task::Bench { what, model, batch, imgsz, classes, data, repeats, profile, device, json } => {
                let (kind, default_batch, default_imgsz) = match what {
                    BenchArg::Train => (BenchKind::Train, 8, 320),
                    BenchArg::Infer => (BenchKind::Infer, 1, 640),
                    BenchArg::Data => (BenchKind::Data, 16, 640),
                };
                let batch = at_least_one("--batch", batch.unwrap_or(default_batch))?;
                let imgsz = imgsz.unwrap_or(default_imgsz).next_multiple_of(32);
                let n_classes = at_least_one("--classes", classes)?;
                let repeats = at_least_one("--repeats", repeats)?;
                (Command::Bench(BenchRequest { kind, model, n_classes, batch, imgsz, device, repeats, data, profile }), json)
            }
            Task::Doctor { json } => (Command::Doctor, json),
        };
        Ok(Wish::Run { command: Box::new(command), json })
    }
}

impl TrainArgs {
    fn into_config(self) -> Result<TrainConfig, Failure> {
        let freeze = self.freeze.join(",").parse::<Freeze>();
        Ok(TrainConfig {
            model: self.model,
            weights: self.weights,
            allow_partial: self.allow_partial,
            epochs: self.epochs,
            batch: self.batch,
            imgsz: self.imgsz,
            device: self.device,
            project: self.project,
            name: self.name,
            hyp: HypChoice::parse(&self.hyp),
            set: self.rule.changes().chain(self.set).collect(),
            freeze: freeze.map_err(|error| Failure::mendable(format!("--freeze: {error}"), None))?,
            single_cls: self.single_cls,
            min_items: self.min_items,
            image_weights: self.image_weights,
            multi_scale: self.multi_scale,
            seed: self.seed,
            close_mosaic: self.close_mosaic,
            patience: self.patience,
            save_period: self.save_period,
            noval: self.noval,
            allow_broken: self.allow_broken,
            ..TrainConfig::new(&self.data.unwrap_or_default())
        })
    }

    /// `given` are the options that were given: the others are the run's own.
    fn into_resume(self, given: &[String]) -> Result<ResumeRequest, Failure> {
        const CHANGEABLE: [&str; 8] = ["resume", "project", "data", "epochs", "device", "patience", "lr_scale", "json"];
        if let Some(other) = given.iter().find(|id| !CHANGEABLE.contains(&id.as_str()) && *id != "TrainArgs") {
            let text = format!("--{} cannot be changed when a run goes on", other.replace('_', "-"));
            return Err(Failure::mendable(text, Some("leave it out, or begin a new run from its weights with --weights".to_owned())));
        }
        let is_given = |id: &str| given.iter().any(|given| given == id);
        Ok(ResumeRequest {
            run: self.resume.flatten(),
            project: self.project,
            data: self.data,
            epochs: is_given("epochs").then_some(self.epochs),
            device: is_given("device").then_some(self.device),
            patience: is_given("patience").then_some(self.patience),
            lr_scale: self.lr_scale,
        })
    }
}

fn at_least_one(option: &str, value: usize) -> Result<usize, Failure> {
    if value > 0 { Ok(value) } else { Err(Failure::mendable(format!("{option} is 0"), Some("give a number from 1 up".to_owned()))) }
}

fn parse_size(text: &str) -> Result<[u16; 2], String> {
    let parts = text.split_once('x').and_then(|(w, h)| Some([w.parse().ok()?, h.parse().ok()?]));
    parts.ok_or_else(|| "expected a size such as 1280x800".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_argument_table_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_run_goes_on_with_its_own_options_but_for_those_that_are_given() {
        let wish = |args: &[&str]| wish(["boxwright", "train"].iter().chain(args).map(OsString::from));
        let resume = |args: &[&str]| match wish(args) {
            Ok(Wish::Run { command, .. }) => match *command {
                Command::Resume(request) => *request,
                other => panic!("{other:?}"),
            },
            _ => panic!("{args:?} goes on with a run"),
        };
        let newest =
            ResumeRequest { run: None, project: "runs".into(), data: None, epochs: None, device: None, patience: None, lr_scale: None };
        assert_eq!(resume(&["--resume"]), newest);
        let changed = ResumeRequest { run: Some("runs/a".into()), epochs: Some(100), device: Some(Device::Cpu), ..newest.clone() };
        assert_eq!(resume(&["--resume", "runs/a", "--epochs", "100", "--device", "cpu", "--json"]), changed);
        assert_eq!(resume(&["--resume", "--lr-scale", "0.5"]), ResumeRequest { lr_scale: Some(0.5), ..newest });
        let Err(failure) = wish(&["--resume", "--batch", "16"]) else { panic!("another batch is another run") };
        assert!(failure.message.contains("--batch"), "{failure:?}");
    }

    #[test]
    fn a_sweep_has_axes_and_an_overfit_check_has_steps() {
        let sweep = ["boxwright", "sweep", "--data", "d", "--grid", "lr0=0.01,0.001", "--grid", "epochs=3", "--random", "2", "--seed", "5"];
        let Ok(Wish::Run { command, .. }) = wish(sweep.map(OsString::from)) else { panic!("a sweep") };
        let Command::Sweep(request) = *command else { panic!("{command:?} is no sweep") };
        assert_eq!((request.axes.len(), request.axes[0].values.len(), request.random, request.seed), (2, 2, Some(2), 5));
        let check = ["boxwright", "train", "--data", "d", "--overfit-check", "--overfit-steps", "20", "--allow-broken"];
        let Ok(Wish::Run { command, .. }) = wish(check.map(OsString::from)) else { panic!("a check") };
        let Command::OverfitCheck { config, n_steps: 20 } = *command else { panic!("{command:?} is no check") };
        assert!(config.allow_broken);
        assert!(Args::try_parse_from(["boxwright", "sweep", "--data", "d"]).is_err(), "no axis");
        assert!(Args::try_parse_from(["boxwright", "train", "--data", "d", "--overfit-steps", "20"]).is_err());
    }

    #[test]
    fn a_batch_may_be_chosen_by_the_program() {
        for (text, expected) in [("8", BatchChoice::Count(8)), ("auto", BatchChoice::Auto), ("-1", BatchChoice::Auto)] {
            let args = Args::try_parse_from(["boxwright", "train", "--data", "d", "--batch", text, "--device", "0"]);
            let Ok(Args { task: Some(Task::Train(args)), .. }) = args else { panic!("--batch {text} is a training") };
            assert_eq!((args.batch, args.device), (expected, Device::Cuda(0)));
        }
    }

    fn train_config(options: &[&str]) -> Result<TrainConfig, Failure> {
        let args = Args::try_parse_from(["boxwright", "train", "--data", "d"].iter().chain(options));
        match args.map(|args| args.task) {
            Ok(Some(Task::Train(args))) => args.into_config(),
            other => panic!("{options:?} is no training: {other:?}"),
        }
    }

    #[test]
    fn options_of_the_public_trainer_become_a_configuration() {
        let config = train_config(&[]).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(config, TrainConfig::new(std::path::Path::new("d")));
        let options = "--optimizer AdamW --flat-cos-lr --label-smoothing 0.1 --set lr0=0.002 --freeze 0 2 5 --single-cls --min-items 2 --image-weights --multi-scale \
                       --weights w.pt --allow-partial";
        let config = train_config(&options.split(' ').collect::<Vec<_>>()).unwrap_or_else(|failure| panic!("{failure:?}"));
        let set =
            [("optimizer", "adamw".into()), ("lr_schedule", "flat-cosine".into()), ("label_smoothing", 0.1.into()), ("lr0", 0.002.into())];
        assert_eq!(config.set, set.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        assert_eq!(config.freeze, Freeze::Layers(vec![0, 2, 5]));
        assert!(config.single_cls && config.allow_partial && config.image_weights && config.multi_scale && config.min_items == 2);
        assert!(config.resolve_hyp(10).is_ok());
        assert!(train_config(&["--freeze", "10", "model.3."]).is_err());
        assert!(Args::try_parse_from(["boxwright", "train", "--data", "d", "--cos-lr", "--fixed-lr"]).is_err());
    }

    /// The words of a command line, quoted as a shell takes them.
    #[cfg(feature = "gui")]
    fn shell_words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for sign in line.chars() {
            match sign {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                sign => words.last_mut().expect("there is always one").push(sign),
            }
        }
        words
    }

    #[cfg(feature = "gui")]
    #[test]
    fn the_line_below_the_windows_form_gives_the_run_that_the_form_describes() {
        use crate::gui::train_form::{Preset, TrainForm};
        use crate::gui::train_options::RunOptions;
        use std::path::Path;

        let data = Path::new("/data/my set/data.yaml");
        let changes = [("lr0".to_owned(), 0.001.into()), ("optimizer".to_owned(), "sgd".into()), ("amsgrad".to_owned(), false.into())];
        let changed = TrainForm {
            model: Model::ALL[3],
            epochs: 7,
            is_batch_auto: true,
            imgsz: 416,
            device: Device::Cuda(1),
            name: "my run".to_owned(),
            project: "/tmp/all runs".to_owned(),
            start_weights: "w.safetensors".to_owned(),
            preset: Preset::File,
            hyp_file: "my hyp.yaml".to_owned(),
            changes: changes.into_iter().collect(),
            options: RunOptions {
                close_mosaic: 10,
                freeze: "0 2 5".to_owned(),
                single_cls: true,
                min_items: 2,
                image_weights: true,
                multi_scale: true,
                allow_partial: true,
                patience: 7,
                save_period: 4,
                noval: true,
                allow_broken: true,
            },
            seed: 3,
            ..TrainForm::default()
        };
        let of_preset = |preset| TrainForm { preset, ..TrainForm::default() };
        let presets = [Preset::Auto, Preset::Small, Preset::FineTune, Preset::ScratchHigh].map(of_preset);
        for form in presets.into_iter().chain([changed]) {
            let line = form.command_line(data);
            let Ok(Args { task: Some(Task::Train(args)), .. }) = Args::try_parse_from(shell_words(&line)) else {
                panic!("{line} is a training")
            };
            assert_eq!(args.into_config().ok(), form.config(data), "{line}");
        }
    }
}
