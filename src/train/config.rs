//! Everything a person can choose about a training run.
//!
//! In:  options of the command line or the window; a `hyp.yaml`.
//! Out: [`TrainConfig`] and the hyper-parameters [`Hyp`] that a run really uses.
//!
//! Two presets: `scratch-high` holds the published values, made for 118,000 pictures and 500 epochs; `small` is for a few
//! hundred pictures on a CPU, where those values would end the run inside the warm-up. `auto` picks by the number of pictures.
//!
//! Only what takes effect is listed: a key of a `hyp.yaml` that this version does not use is told, never taken in silence.
//!
//! Never reads pictures or labels. Source: the published `hyp.scratch-high.yaml`.

use std::path::{Path, PathBuf};

use crate::engine::Device;
use crate::yolo::Model;

/// Train splits below this many pictures are small: `auto` takes the `small` preset.
pub const SMALL_DATASET: usize = 1000;

/// What turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Nesterov SGD, as published.
    Sgd,
    /// `momentum` is its first beta; the second is 0.999.
    AdamW,
}

/// Hyper-parameters, named as in the published `hyp.*.yaml`; `optimizer` and those from `nominal_batch` on are ours.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hyp {
    pub optimizer: OptimizerKind,
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
    /// Batch that gradients are accumulated to (64 in the published trainer); 0 is the batch itself.
    pub nominal_batch: usize,
    /// The warm-up lasts at least this many batches.
    pub warmup_min_batches: usize,
    /// A cosine instead of a straight line from `lr0` to `lr0 * lrf`.
    pub cos_lr: bool,
    /// The EMA's decay is `ema_decay * (1 - exp(-updates / ema_tau))`.
    pub ema_decay: f64,
    pub ema_tau: f64,
}

impl Hyp {
    /// The published values for training from scratch, as far as this version has what they name.
    pub fn scratch_high() -> Self {
        Self {
            optimizer: OptimizerKind::Sgd,
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
            fit_first_boxes: false,
            hsv_h: 0.015,
            hsv_s: 0.7,
            hsv_v: 0.4,
            flipud: 0.0,
            fliplr: 0.5,
            nominal_batch: 64,
            warmup_min_batches: 100,
            cos_lr: false,
            ema_decay: 0.9999,
            ema_tau: 2000.0,
        }
    }

    /// Values for some hundred pictures trained from scratch: every batch is a step, AdamW finds its way sooner than SGD, and the
    /// EMA follows within some hundred steps.
    pub fn small_data() -> Self {
        Self {
            optimizer: OptimizerKind::AdamW,
            lr0: 0.0015,
            momentum: 0.9,
            weight_decay: 0.01,
            warmup_bias_lr: 0.0,
            warmup_min_batches: 50,
            nominal_batch: 0,
            cos_lr: true,
            ema_decay: 0.999,
            ema_tau: 200.0,
            fit_first_boxes: true,
            ..Self::scratch_high()
        }
    }

    /// Batch that gradients are accumulated to when `batch` pictures are computed at once.
    pub fn accumulated_batch(&self, batch: usize) -> usize {
        if self.nominal_batch == 0 { batch } else { self.nominal_batch }
    }

    /// Reads a `hyp.yaml`: keys that it lacks keep their published value. Also returns what is worth telling: keys that this
    /// version does not use.
    ///
    /// # Errors
    /// A file that cannot be read, is no mapping, or has a value that its key cannot take.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::ReadHyp { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// As [`Hyp::read`], from a text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let fault = |reason: String| ConfigError::Hyp { reason, path: path.to_owned() };
        let given: serde_json::Map<String, serde_json::Value> =
            serde_saphyr::from_str(text).map_err(|error| fault(first_line(&error.to_string())))?;
        let published = serde_json::to_value(Self::scratch_high()).expect("plain numbers are valid JSON");
        let serde_json::Value::Object(mut values) = published else { unreachable!("a struct is a JSON object") };

        let mut unused = Vec::new();
        for (key, value) in given {
            match values.get_mut(&key) {
                Some(slot) => *slot = typed(slot, &value).ok_or_else(|| fault(format!("{key:?} is {value}, expected {}", kind(slot))))?,
                None => unused.push(key),
            }
        }
        let hyp: Self = serde_json::from_value(values.into()).map_err(|error| fault(error.to_string()))?;
        hyp.check().map_err(fault)?;
        let notes = match unused.as_slice() {
            [] => vec![],
            keys => vec![format!("{}: this version does not use {}", path.display(), keys.join(", "))],
        };
        Ok((hyp, notes))
    }

    /// Says which value is outside of its range.
    fn check(&self) -> Result<(), String> {
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
            ("momentum", self.momentum),
            ("warmup_momentum", self.warmup_momentum),
            ("hsv_h", self.hsv_h),
            ("hsv_s", self.hsv_s),
            ("hsv_v", self.hsv_v),
            ("flipud", self.flipud),
            ("fliplr", self.fliplr),
            ("ema_decay", self.ema_decay),
        ] {
            within(key, value)?;
        }
        Ok(())
    }
}

/// `value` in the type that `slot` has; `None` where it is of another kind.
fn typed(slot: &serde_json::Value, value: &serde_json::Value) -> Option<serde_json::Value> {
    match slot {
        serde_json::Value::Bool(_) => value.as_bool().map(Into::into),
        serde_json::Value::String(_) => value.as_str().map(Into::into),
        serde_json::Value::Number(number) if number.is_u64() => {
            let whole =
                value.as_u64().or_else(|| value.as_f64().filter(|real| *real >= 0.0 && real.fract() == 0.0).map(|real| real as u64));
            whole.map(Into::into)
        }
        _ => value.as_f64().map(Into::into),
    }
}

fn kind(slot: &serde_json::Value) -> &'static str {
    match slot {
        serde_json::Value::Bool(_) => "true or false",
        serde_json::Value::String(_) => "`sgd` or `adamw`",
        serde_json::Value::Number(number) if number.is_u64() => "a whole number",
        _ => "a number",
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Where the hyper-parameters of a run come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HypChoice {
    /// `small` below [`SMALL_DATASET`] pictures, else `scratch-high`.
    #[default]
    Auto,
    Small,
    ScratchHigh,
    File(PathBuf),
    /// Values set one by one, such as in a window.
    Given(Hyp),
}

impl HypChoice {
    /// `auto`, `small`, `scratch-high`, or the path of a YAML file.
    pub fn parse(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "small" => Self::Small,
            "scratch-high" => Self::ScratchHigh,
            path => Self::File(path.into()),
        }
    }

    /// The hyper-parameters for a split of `n_images` pictures, and what is worth telling about the choice.
    pub fn resolve(&self, n_images: usize) -> Result<(Hyp, Vec<String>), ConfigError> {
        match self {
            Self::Auto if n_images < SMALL_DATASET => {
                let note =
                    format!("hyper-parameters `small`, because the train split has fewer than {SMALL_DATASET} pictures ({n_images})");
                Ok((Hyp::small_data(), vec![note]))
            }
            Self::Auto => {
                let note = format!("hyper-parameters `scratch-high`, the published values, for {n_images} pictures");
                Ok((Hyp::scratch_high(), vec![note]))
            }
            Self::Small => Ok((Hyp::small_data(), vec![])),
            Self::ScratchHigh => Ok((Hyp::scratch_high(), vec![])),
            Self::File(path) => Hyp::read(path),
            Self::Given(hyp) => Ok((hyp.clone(), vec![])),
        }
    }
}

/// How many pictures are computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// One training run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    pub data: PathBuf,
    pub model: Model,
    /// Weights to start from.
    pub weights: Option<PathBuf>,
    pub epochs: usize,
    pub batch: BatchChoice,
    pub imgsz: u32,
    pub device: Device,
    pub project: PathBuf,
    pub name: String,
    pub hyp: HypChoice,
    pub seed: u64,
}

impl TrainConfig {
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
}

impl ConfigError {
    /// What the person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Zero { option } => format!("give --{option} a number from 1 up"),
            Self::TooLarge { .. } => "usual sizes are 320 to 1280".into(),
            Self::Name { .. } => "give --name a name without slashes, and the folder with --project".into(),
            Self::ReadHyp { .. } => "--hyp takes auto, small, scratch-high, or the path of a YAML file".into(),
            Self::Hyp { .. } => "the file holds a line `key: number` for each value, such as `lr0: 0.01`".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::yolo::ModelSize;

    fn parse(text: &str) -> Result<(Hyp, Vec<String>), ConfigError> {
        Hyp::parse(text, Path::new("hyp.yaml"))
    }

    fn config() -> TrainConfig {
        TrainConfig {
            data: "data.yaml".into(),
            model: Model { size: ModelSize::T, dual: true },
            weights: None,
            epochs: 1,
            batch: BatchChoice::Count(8),
            imgsz: 160,
            device: Device::Cpu,
            project: "runs".into(),
            name: "exp".into(),
            hyp: HypChoice::Auto,
            seed: 0,
        }
    }

    #[test]
    fn a_hyp_file_changes_what_it_names_and_tells_what_is_not_used() {
        let (hyp, notes) = parse("lr0: 0.1\nbox: 5\nmosaic: 1.0\nmixup: 0.15\ncos_lr: true\n").unwrap();
        assert_eq!(hyp, Hyp { lr0: 0.1, box_gain: 5.0, cos_lr: true, ..Hyp::scratch_high() });
        assert_eq!(notes, ["hyp.yaml: this version does not use mosaic, mixup"]);
    }

    #[test]
    fn a_wrong_value_is_named_with_what_was_expected() {
        for (text, expected) in [
            ("lr0: fast", "\"lr0\" is \"fast\", expected a number"),
            ("nominal_batch: 1.5", "\"nominal_batch\" is 1.5, expected a whole number"),
            ("lr0: 0", "\"lr0\" is 0, expected more than 0"),
            ("fliplr: 2", "\"fliplr\" is 2, expected 0 to 1"),
            ("cos_lr: 3", "\"cos_lr\" is 3, expected true or false"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(parse("- 1\n- 2\n").is_err());
        assert!(parse("lr0: [").is_err());
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let text = serde_saphyr::to_string(&Hyp::small_data()).unwrap();
        assert_eq!(parse(&text).unwrap(), (Hyp::small_data(), vec![]));
    }

    #[test]
    fn auto_picks_by_the_number_of_pictures_and_says_so() {
        let (hyp, notes) = HypChoice::parse("auto").resolve(128).unwrap();
        assert_eq!((hyp, notes.len()), (Hyp::small_data(), 1));
        assert_eq!(HypChoice::Auto.resolve(SMALL_DATASET).unwrap().0, Hyp::scratch_high());
        assert!(matches!(HypChoice::parse("no/such.yaml").resolve(1), Err(ConfigError::ReadHyp { .. })));
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
}
