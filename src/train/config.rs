//! Everything a person can choose about a training run.
//!
//! In:  options of the command line or the window.
//! Out: [`TrainConfig`], and the presets of the hyper-parameters [`Hyp`].
//!
//! Three presets: `scratch-high` holds the published values, made for 118,000 pictures and 500 epochs; `small` is for a few
//! hundred pictures on a CPU, where those values would end the run inside the warm-up; `fine-tune` is for a network that starts
//! from weights. `auto` picks by the beginning and the number of pictures (see `hyp_choice.rs`).
//!
//! Never reads pictures or labels. Source: the published `hyp.scratch-high.yaml`.

use std::path::{Path, PathBuf};

use serde_json::Map;
use serde_json::Value;

use super::freeze::Freeze;
use super::hyp_choice::HypChoice;
use super::hyp_choice::Start;
use crate::engine::Device;
use crate::engine::Rule;
use crate::yolo::Model;
use crate::yolo::ModelSize;

/// Train splits below this many pictures are small: `auto` takes the `small` preset.
pub const SMALL_DATASET: usize = 1000;

/// What turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Nesterov SGD, as published.
    Sgd,
    /// `momentum` is its first beta; the second is 0.999. Weight decay is part of the gradient.
    Adam,
    /// `momentum` is its first beta; the second is 0.999. Weight decay goes beside the gradient.
    AdamW,
    /// `momentum` is its first beta; the second is 0.99. Wants a learning rate a tenth of AdamW's.
    Lion,
}

/// How the learning rate goes from `lr0` to `lr0 * lrf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LrSchedule {
    /// A straight line, as published.
    Linear,
    Cosine,
    /// `lr0` for the first half, a cosine in the second.
    FlatCosine,
    /// `lr0` all the way.
    Fixed,
}

/// Hyper-parameters, named as in the published `hyp.*.yaml`; `optimizer`, `amsgrad`, `label_smoothing`, `fit_first_boxes`
/// and those from `nominal_batch` on are ours.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hyp {
    pub optimizer: OptimizerKind,
    /// AdamW divides by the largest mean square so far, as in the published trainer, instead of the present one.
    pub amsgrad: bool,
    /// Learning rate after the warm-up, and its final fraction.
    pub lr0: f64,
    pub lrf: f64,
    pub momentum: f64,
    pub weight_decay: f64,
    pub warmup_epochs: f64,
    pub warmup_momentum: f64,
    pub warmup_bias_lr: f64,
    #[serde(rename = "box")]
    pub box_gain: f64,
    pub cls: f64,
    pub dfl: f64,
    /// Positive weight of the class loss.
    pub cls_pw: f64,
    /// Of a label's certainty a half of this share goes to each other class. The published trainer reads the value and does nothing
    /// with it.
    pub label_smoothing: f64,
    /// A new network starts with boxes of the median side of the train split's, instead of 15 cells as published. Small objects
    /// overlap those so little that on some hundred pictures their class may never be learnt.
    pub fit_first_boxes: bool,
    /// Ranges of the gains: each is drawn from `1 - x ..= 1 + x`.
    pub hsv_h: f64,
    pub hsv_s: f64,
    pub hsv_v: f64,
    /// Probabilities of a flip upside down and left to right.
    pub flipud: f64,
    pub fliplr: f64,
    /// Probability that a sample is a mosaic of four pictures, and that a mosaic is mixed with a second one.
    pub mosaic: f64,
    pub mixup: f64,
    /// Share of a mosaic's objects that are repeated mirrored where there is room; needs outlines.
    pub copy_paste: f64,
    /// Ranges of rotation and shear in degrees, of the shift as a fraction of the input, of the scale around 1, and of the tilt.
    pub degrees: f64,
    pub shear: f64,
    pub translate: f64,
    pub scale: f64,
    pub perspective: f64,
    /// Batch that gradients are accumulated to (64 in the published trainer); 0 is the batch itself.
    pub nominal_batch: usize,
    /// The warm-up lasts at least this many batches.
    pub warmup_min_batches: usize,
    pub lr_schedule: LrSchedule,
    /// The EMA's decay is `ema_decay * (1 - exp(-updates / ema_tau))`.
    pub ema_decay: f64,
    pub ema_tau: f64,
}

impl Hyp {
    /// The published values for training from scratch, as far as this version has what they name.
    pub fn scratch_high() -> Self {
        Self {
            optimizer: OptimizerKind::Sgd,
            amsgrad: true,
            lr0: 0.01,
            lrf: 0.01,
            momentum: 0.937,
            weight_decay: 0.0005,
            warmup_epochs: 3.0,
            warmup_momentum: 0.8,
            warmup_bias_lr: 0.1,
            box_gain: 7.5,
            cls: 0.5,
            dfl: 1.5,
            cls_pw: 1.0,
            label_smoothing: 0.0,
            fit_first_boxes: false,
            hsv_h: 0.015,
            hsv_s: 0.7,
            hsv_v: 0.4,
            flipud: 0.0,
            fliplr: 0.5,
            mosaic: 1.0,
            mixup: 0.15,
            copy_paste: 0.3,
            degrees: 0.0,
            shear: 0.0,
            translate: 0.1,
            scale: 0.9,
            perspective: 0.0,
            nominal_batch: 64,
            warmup_min_batches: 100,
            lr_schedule: LrSchedule::Linear,
            ema_decay: 0.9999,
            ema_tau: 2000.0,
        }
    }

    /// Values for some hundred pictures trained from scratch: every batch is a step, AdamW finds its way sooner than SGD, and the
    /// EMA follows within some hundred steps.
    pub fn small_data() -> Self {
        Self {
            optimizer: OptimizerKind::AdamW,
            amsgrad: false,
            lr0: 0.0015,
            momentum: 0.9,
            weight_decay: 0.01,
            warmup_bias_lr: 0.0,
            warmup_min_batches: 50,
            nominal_batch: 0,
            lr_schedule: LrSchedule::Cosine,
            ema_decay: 0.999,
            ema_tau: 200.0,
            fit_first_boxes: true,
            mosaic: 0.0,
            mixup: 0.0,
            copy_paste: 0.0,
            translate: 0.0,
            scale: 0.0,
            ..Self::scratch_high()
        }
    }

    /// Values for a network that starts from weights of another dataset.
    ///
    /// What it knows must not be washed out before the new head gives gradients that mean something: so the rate is a third of the
    /// one from scratch, comes up from zero for biases, too, and is full after one epoch, since nothing but the head is far from
    /// where it will end. AdamW, a step for every batch and a fast average are as in `small`: runs are short. The end of the rate
    /// is at a twentieth, so that the last epochs still learn.
    pub fn fine_tune() -> Self {
        Self { lr0: 0.0005, lrf: 0.05, warmup_epochs: 1.0, warmup_min_batches: 20, fit_first_boxes: false, ..Self::small_data() }
    }

    /// The optimizer's rule.
    pub fn rule(&self) -> Rule {
        match self.optimizer {
            OptimizerKind::Sgd => Rule::Sgd,
            OptimizerKind::Adam => Rule::Adam,
            OptimizerKind::AdamW => Rule::AdamW { amsgrad: self.amsgrad },
            OptimizerKind::Lion => Rule::Lion,
        }
    }

    /// Batch that gradients are accumulated to when `batch` pictures are computed at once.
    pub fn accumulated_batch(&self, batch: usize) -> usize {
        if self.nominal_batch == 0 { batch } else { self.nominal_batch }
    }

    /// Says which value is outside of its range.
    pub(super) fn check(&self) -> Result<(), String> {
        let above = |key: &str, value: f64, least: f64| {
            if value >= least && value.is_finite() { Ok(()) } else { Err(format!("{key:?} is {value}, expected at least {least}")) }
        };
        let within = |key: &str, value: f64| {
            if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(format!("{key:?} is {value}, expected 0 to 1")) }
        };
        if !(self.lr0 > 0.0 && self.lr0.is_finite()) {
            return Err(format!("\"lr0\" is {}, expected more than 0", self.lr0));
        }
        if !(self.ema_tau > 0.0 && self.ema_tau.is_finite()) {
            return Err(format!("\"ema_tau\" is {}, expected more than 0", self.ema_tau));
        }
        for (key, value) in [
            ("weight_decay", self.weight_decay),
            ("warmup_epochs", self.warmup_epochs),
            ("warmup_bias_lr", self.warmup_bias_lr),
            ("box", self.box_gain),
            ("cls", self.cls),
            ("dfl", self.dfl),
            ("cls_pw", self.cls_pw),
        ] {
            above(key, value, 0.0)?;
        }
        for (key, value) in [
            ("lrf", self.lrf),
            ("label_smoothing", self.label_smoothing),
            ("warmup_momentum", self.warmup_momentum),
            ("hsv_h", self.hsv_h),
            ("hsv_s", self.hsv_s),
            ("hsv_v", self.hsv_v),
            ("flipud", self.flipud),
            ("fliplr", self.fliplr),
            ("mosaic", self.mosaic),
            ("mixup", self.mixup),
            ("copy_paste", self.copy_paste),
            ("translate", self.translate),
            ("scale", self.scale),
            ("ema_decay", self.ema_decay),
        ] {
            within(key, value)?;
        }
        // Adam divides by one less its powers.
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(format!("\"momentum\" is {}, expected 0 to less than 1", self.momentum));
        }
        // The published ranges; a box with a corner that a tilt puts behind the viewer is left out.
        for (key, value, most) in [("degrees", self.degrees, 180.0), ("shear", self.shear, 60.0), ("perspective", self.perspective, 0.001)]
        {
            if !(0.0..=most).contains(&value) {
                return Err(format!("{key:?} is {value}, expected 0 to {most}"));
            }
        }
        Ok(())
    }
}

/// How many pictures are computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchChoice {
    /// The largest that fits: on a GPU into nine tenths of its free memory, on the CPU up to 16.
    Auto,
    Count(usize),
}

impl BatchChoice {
    /// A number from 1 up, or `auto`, which the public trainers call -1.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" | "-1" => Ok(Self::Auto),
            _ => text.parse().map(Self::Count).map_err(|_| "expected a number of pictures, or `auto`".to_owned()),
        }
    }
}

/// One training run. What is missing where one is read is as in [`TrainConfig::new`].
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "options that are on or off, each on its own")]
pub struct TrainConfig {
    pub data: PathBuf,
    pub model: Model,
    /// Weights to start from.
    pub weights: Option<PathBuf>,
    /// These may give few of the network's parameters, not only most.
    pub allow_partial: bool,
    pub epochs: usize,
    pub batch: BatchChoice,
    pub imgsz: u32,
    pub device: Device,
    pub project: PathBuf,
    pub name: String,
    pub hyp: HypChoice,
    /// Hyper-parameters that are changed on top, by their key in a `hyp.yaml`.
    pub set: Map<String, Value>,
    /// The last epochs, that have no mosaic.
    pub close_mosaic: usize,
    /// Parameters that are left as they are.
    pub freeze: Freeze,
    /// All classes are one.
    pub single_cls: bool,
    /// Training pictures with fewer labels are left out.
    pub min_items: usize,
    /// Pictures of rare and badly found classes come more often.
    pub image_weights: bool,
    /// Batches change their size.
    pub multi_scale: bool,
    pub seed: u64,
    /// Epochs without a better one after which the run ends; 0: it never does.
    pub patience: usize,
    /// Epochs between weights that are kept as `weights/epochN.safetensors`; 0: none are.
    pub save_period: usize,
    /// Only the last epoch is validated.
    pub noval: bool,
    /// Trains although more than one in a hundred training images cannot be used.
    pub allow_broken: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self::new(Path::new(""))
    }
}

impl TrainConfig {
    /// A run on `data` with the values of the public trainer, where that has them.
    pub fn new(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            model: Model::dual(ModelSize::T),
            weights: None,
            allow_partial: false,
            epochs: 100,
            batch: BatchChoice::Count(16),
            imgsz: 640,
            device: Device::Cpu,
            project: "runs".into(),
            name: "train".into(),
            hyp: HypChoice::Auto,
            set: Map::new(),
            close_mosaic: 0,
            freeze: Freeze::Nothing,
            single_cls: false,
            min_items: 0,
            image_weights: false,
            multi_scale: false,
            seed: 0,
            patience: 100,
            save_period: 0,
            noval: false,
            allow_broken: false,
        }
    }

    /// The hyper-parameters of the run for a split of `n_images` pictures, and what is worth telling about them.
    ///
    /// # Errors
    /// A file that cannot be read, a key that is none, or a value that its key cannot take.
    pub fn resolve_hyp(&self, n_images: usize) -> Result<(Hyp, Vec<String>), ConfigError> {
        let start = if self.weights.is_some() { Start::Weights } else { Start::Scratch };
        let (hyp, mut notes) = self.hyp.resolve(n_images, start)?;
        if start == Start::Weights && self.freeze == Freeze::Nothing && n_images < SMALL_DATASET {
            notes.push("with few pictures `--freeze 10` keeps what the first ten layers know, and steps cost less".to_owned());
        }
        if !self.set.is_empty() {
            let changes: Vec<String> = self.set.iter().map(|(key, value)| format!("{key} {value}")).collect();
            notes.push(format!("hyper-parameters changed on top: {}", changes.join(", ")));
        }
        Ok((hyp.with(&self.set)?, notes))
    }

    /// The same run with values that work, and what was changed.
    ///
    /// # Errors
    /// A count of zero, an input larger than 8192, or a name that would leave the project folder.
    pub fn checked(&self) -> Result<(Self, Vec<String>), ConfigError> {
        let mut config = self.clone();
        let mut notes = Vec::new();
        for (option, is_zero) in [("epochs", self.epochs == 0), ("batch", self.batch == BatchChoice::Count(0)), ("imgsz", self.imgsz == 0)]
        {
            if is_zero {
                return Err(ConfigError::Zero { option });
            }
        }
        if self.imgsz > MAX_IMGSZ {
            return Err(ConfigError::TooLarge { imgsz: self.imgsz });
        }
        let name = Path::new(&self.name);
        if self.name.is_empty() || name.file_name() != Some(name.as_os_str()) {
            return Err(ConfigError::Name { name: self.name.clone() });
        }
        config.imgsz = self.imgsz.next_multiple_of(32).max(64);
        if config.imgsz != self.imgsz {
            notes.push(format!("imgsz {} becomes {}, a multiple of 32 and at least 64", self.imgsz, config.imgsz));
        }
        Ok((config, notes))
    }
}

const MAX_IMGSZ: u32 = 8192;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{option} is 0, expected at least 1")]
    Zero { option: &'static str },
    #[error("imgsz is {imgsz}, expected at most {MAX_IMGSZ}")]
    TooLarge { imgsz: u32 },
    #[error("the name {name:?} is not a plain folder name")]
    Name { name: String },
    #[error("cannot read the hyper-parameters\nFile: {path:?}")]
    ReadHyp { path: PathBuf, source: std::io::Error },
    #[error("hyper-parameters: {reason}\nFile: {path:?}")]
    Hyp { reason: String, path: PathBuf },
    #[error("hyper-parameters: {reason}")]
    Set { reason: String },
    #[error("layer {layer} cannot be frozen, the network has {n_layers}")]
    FreezeLayer { layer: usize, n_layers: usize },
    #[error("no parameter's name contains {name:?}, so it cannot be frozen")]
    FreezeName { name: String },
    #[error("with all layers frozen there is nothing left to train")]
    FreezeAll,
}

impl ConfigError {
    /// What the person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Zero { option } => format!("give --{option} a number from 1 up"),
            Self::TooLarge { .. } => "usual sizes are 320 to 1280".into(),
            Self::Name { .. } => "give --name a name without slashes, and the folder with --project".into(),
            Self::ReadHyp { .. } => "--hyp takes auto, small, fine-tune, scratch-high, or the path of a YAML file".into(),
            Self::FreezeLayer { n_layers, .. } => format!(
                "layers are counted from 0; --freeze 10 freezes the first ten, and at most {} can be frozen",
                n_layers.saturating_sub(1)
            ),
            Self::FreezeName { .. } => "names are those of weight files, such as model.4.cv2.0.cv1.conv.weight".into(),
            Self::FreezeAll => "freeze fewer layers: the last one is the head".into(),
            Self::Set { .. } => "`run.yaml` of any run lists all keys with their values under `hyp`".into(),
            Self::Hyp { .. } => "the file holds a line `key: number` for each value, such as `lr0: 0.01`".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn config() -> TrainConfig {
        TrainConfig { imgsz: 160, ..TrainConfig::new(Path::new("data.yaml")) }
    }

    #[test]
    fn the_input_size_grows_to_a_multiple_of_the_stride() {
        let (checked, notes) = TrainConfig { imgsz: 150, ..config() }.checked().unwrap();
        assert_eq!((checked.imgsz, notes.len()), (160, 1));
        assert_eq!(config().checked().unwrap(), (config(), vec![]));
    }

    #[test]
    fn a_batch_is_a_number_or_auto() {
        assert_eq!(["16", "auto", "-1"].map(BatchChoice::parse), [BatchChoice::Count(16), BatchChoice::Auto, BatchChoice::Auto].map(Ok));
        assert!(BatchChoice::parse("-2").is_err() && BatchChoice::parse("many").is_err());
    }

    #[test]
    fn zero_counts_and_names_with_slashes_are_refused() {
        assert!(matches!(TrainConfig { epochs: 0, ..config() }.checked(), Err(ConfigError::Zero { option: "epochs" })));
        assert!(matches!(TrainConfig { batch: BatchChoice::Count(0), ..config() }.checked(), Err(ConfigError::Zero { option: "batch" })));
        for name in ["", "a/b", "..", "a/"] {
            assert!(matches!(TrainConfig { name: name.into(), ..config() }.checked(), Err(ConfigError::Name { .. })), "{name}");
        }
    }

    #[test]
    fn a_run_is_read_back_from_what_was_written() {
        let changed = TrainConfig {
            model: Model::single(ModelSize::E),
            weights: Some("w.pt".into()),
            batch: BatchChoice::Auto,
            device: Device::Cuda(1),
            hyp: HypChoice::Given(Box::new(Hyp::small_data())),
            freeze: Freeze::Layers(vec![1, 2]),
            set: [("lr0".to_owned(), 0.5.into()), ("optimizer".to_owned(), "sgd".into())].into_iter().collect(),
            seed: u64::MAX,
            ..config()
        };
        for run in [config(), changed, TrainConfig { hyp: HypChoice::File("h.yaml".into()), ..config() }] {
            let yaml = serde_saphyr::to_string(&run).unwrap();
            assert_eq!(serde_saphyr::from_str::<TrainConfig>(&yaml).unwrap(), run, "{yaml}");
            assert_eq!(serde_json::from_str::<TrainConfig>(&serde_json::to_string(&run).unwrap()).unwrap(), run);
        }
        let few: TrainConfig = serde_saphyr::from_str("data: d\nmodel: gelan-c\ndevice: cpu\n").unwrap();
        assert_eq!(few, TrainConfig { model: Model::single(ModelSize::C), ..TrainConfig::new(Path::new("d")) });
    }
}
