//! Which hyper-parameters does a run use: a preset, a file, and single values on top.
//!
//! In:  the choice of a person, the number of training pictures.
//! Out: the [`Hyp`] that the run really uses, and what is worth telling about it.
//!
//! Only what takes effect is listed: a key of a `hyp.yaml` that this version does not use is told, never taken in silence, and so
//! are those that the published files have and nothing ever used. Single values are given by key, as in such a file; a key that
//! nothing knows is an error there.
//!
//! Never reads pictures or labels. Source: the published `hyp.scratch-high.yaml`.

use std::path::Path;
use std::path::PathBuf;

use serde_json::Map;
use serde_json::Value;

use super::config::ConfigError;
use super::config::Hyp;
use super::config::SMALL_DATASET;

/// Keys of the published files that have no effect in the published trainer either: leftovers of detectors with anchors.
const WITHOUT_EFFECT: [&str; 5] = ["obj", "obj_pw", "iou_t", "anchor_t", "anchors"];
/// Focal loss, which is off at 0, as it is in the published files.
const FOCAL: &str = "fl_gamma";

/// Where the hyper-parameters of a run come from.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HypChoice {
    /// `fine-tune` with start weights, else `small` below [`SMALL_DATASET`] pictures, else `scratch-high`.
    #[default]
    Auto,
    Small,
    FineTune,
    ScratchHigh,
    File(PathBuf),
    /// Values set one by one, such as in a window.
    Given(Box<Hyp>),
}

impl HypChoice {
    /// `auto`, `small`, `fine-tune`, `scratch-high`, or the path of a YAML file.
    pub fn parse(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "small" => Self::Small,
            "fine-tune" => Self::FineTune,
            "scratch-high" => Self::ScratchHigh,
            path => Self::File(path.into()),
        }
    }

    /// The hyper-parameters for a split of `n_images` pictures and this beginning, and what is worth telling about the choice.
    ///
    /// # Errors
    /// A file that cannot be read or has a value that its key cannot take.
    pub fn resolve(&self, n_images: usize, start: Start) -> Result<(Hyp, Vec<String>), ConfigError> {
        match self {
            Self::Auto if start == Start::Weights => {
                Ok((Hyp::fine_tune(), vec!["hyper-parameters `fine-tune`, because training starts from weights".to_owned()]))
            }
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
            Self::FineTune => Ok((Hyp::fine_tune(), vec![])),
            Self::ScratchHigh => Ok((Hyp::scratch_high(), vec![])),
            Self::File(path) => Hyp::read(path),
            Self::Given(hyp) => Ok((Hyp::clone(hyp), vec![])),
        }
    }
}

/// What a run begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new network.
    Scratch,
    Weights,
}

impl Hyp {
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
        let given: Map<String, Value> = serde_saphyr::from_str(text).map_err(|error| fault(first_line(&error.to_string())))?;
        if let Some(gamma) = given.get(FOCAL).filter(|gamma| gamma.as_f64() != Some(0.0)) {
            return Err(fault(format!("{FOCAL:?} is {gamma}, expected 0: focal loss is not offered")));
        }
        let (hyp, unknown) = Self::scratch_high().changed(&given).map_err(fault)?;
        let (useless, unused): (Vec<String>, Vec<String>) =
            unknown.into_iter().partition(|key| key == FOCAL || WITHOUT_EFFECT.contains(&key.as_str()));
        let told = [("without effect, as in the published trainer", useless), ("this version does not use", unused)];
        let notes = told.into_iter().filter(|(_, keys)| !keys.is_empty());
        Ok((hyp, notes.map(|(what, keys)| format!("{}: {what}: {}", path.display(), keys.join(", "))).collect()))
    }

    /// The same values with some changed by key.
    ///
    /// # Errors
    /// A key that is none, or a value that its key cannot take.
    pub fn with(&self, changes: &Map<String, Value>) -> Result<Self, ConfigError> {
        let (hyp, unknown) = self.changed(changes).map_err(|reason| ConfigError::Set { reason })?;
        match unknown.first() {
            None => Ok(hyp),
            Some(key) => Err(ConfigError::Set { reason: format!("there is no value {key:?}") }),
        }
    }

    /// With some values changed, and the keys that are none. The error is a sentence.
    fn changed(&self, changes: &Map<String, Value>) -> Result<(Self, Vec<String>), String> {
        let Ok(Value::Object(mut values)) = serde_json::to_value(self) else { unreachable!("plain values are a JSON object") };
        let mut unknown = Vec::new();
        for (key, value) in changes {
            match values.get_mut(key) {
                Some(slot) => *slot = typed(slot, value).ok_or_else(|| format!("{key:?} is {value}, expected {}", kind(slot)))?,
                None => unknown.push(key.clone()),
            }
        }
        let hyp: Self = serde_json::from_value(values.into()).map_err(|error| error.to_string())?;
        hyp.check()?;
        Ok((hyp, unknown))
    }
}

/// A change as it is typed, such as `lr0=0.001`: the key and its value.
pub fn parse_change(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as lr0=0.001")?;
    let (key, value) = (key.trim(), value.trim());
    let plain = serde_json::from_str(value).ok().filter(|value: &Value| value.is_number() || value.is_boolean());
    Ok((key.to_owned(), plain.unwrap_or_else(|| value.into())))
}

/// `value` in the type that `slot` has; `None` where it is of another kind.
fn typed(slot: &Value, value: &Value) -> Option<Value> {
    match slot {
        Value::Bool(_) => value.as_bool().map(Into::into),
        Value::String(_) => value.as_str().map(Into::into),
        Value::Number(number) if number.is_u64() => {
            let whole =
                value.as_u64().or_else(|| value.as_f64().filter(|real| *real >= 0.0 && real.fract() == 0.0).map(|real| real as u64));
            whole.map(Into::into)
        }
        _ => value.as_f64().map(Into::into),
    }
}

fn kind(slot: &Value) -> &'static str {
    match slot {
        Value::Bool(_) => "true or false",
        Value::String(_) => "a word",
        Value::Number(number) if number.is_u64() => "a whole number",
        _ => "a number",
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::train::config::LrSchedule;

    fn parse(text: &str) -> Result<(Hyp, Vec<String>), ConfigError> {
        Hyp::parse(text, Path::new("hyp.yaml"))
    }

    #[test]
    fn a_hyp_file_changes_what_it_names_and_tells_what_is_not_used() {
        let (hyp, notes) =
            parse("lr0: 0.1\nbox: 5\nlr_schedule: flat-cosine\namsgrad: false\nno_such: 1.0\nobj: 0.7\nfl_gamma: 0.0\nnor_this: 0.15\n")
                .unwrap();
        assert_eq!(hyp, Hyp { lr0: 0.1, box_gain: 5.0, lr_schedule: LrSchedule::FlatCosine, amsgrad: false, ..Hyp::scratch_high() });
        let expected = [
            "hyp.yaml: without effect, as in the published trainer: obj, fl_gamma",
            "hyp.yaml: this version does not use: no_such, nor_this",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn a_wrong_value_is_named_with_what_was_expected() {
        for (text, expected) in [
            ("lr0: fast", "\"lr0\" is \"fast\", expected a number"),
            ("nominal_batch: 1.5", "\"nominal_batch\" is 1.5, expected a whole number"),
            ("lr0: 0", "\"lr0\" is 0, expected more than 0"),
            ("fliplr: 2", "\"fliplr\" is 2, expected 0 to 1"),
            ("mosaic: -1", "\"mosaic\" is -1, expected 0 to 1"),
            ("perspective: 0.01", "\"perspective\" is 0.01, expected 0 to 0.001"),
            ("fl_gamma: 1.5", "\"fl_gamma\" is 1.5, expected 0"),
            ("amsgrad: 3", "\"amsgrad\" is 3, expected true or false"),
            ("lr_schedule: steep", "unknown variant `steep`, expected one of `linear`"),
            ("optimizer: newton", "unknown variant `newton`, expected"),
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
    fn auto_picks_by_the_beginning_and_the_number_of_pictures_and_says_so() {
        let auto = |n_images, start| HypChoice::parse("auto").resolve(n_images, start).unwrap();
        for (n_images, start, expected) in [
            (128, Start::Scratch, Hyp::small_data()),
            (SMALL_DATASET, Start::Scratch, Hyp::scratch_high()),
            (128, Start::Weights, Hyp::fine_tune()),
            (SMALL_DATASET, Start::Weights, Hyp::fine_tune()),
        ] {
            let (hyp, notes) = auto(n_images, start);
            assert_eq!((hyp, notes.len()), (expected, 1));
        }
        let named = |name: &str| HypChoice::parse(name).resolve(128, Start::Weights).unwrap();
        assert_eq!(named("small"), (Hyp::small_data(), vec![]));
        assert_eq!(named("fine-tune"), (Hyp::fine_tune(), vec![]));
        assert!(matches!(HypChoice::parse("no/such.yaml").resolve(1, Start::Scratch), Err(ConfigError::ReadHyp { .. })));
    }

    #[test]
    fn single_values_are_changed_by_key_and_unknown_keys_refused() {
        let changes: Map<String, Value> = ["lr0=0.001", "optimizer = adamw", "fit_first_boxes=true", "nominal_batch=32"]
            .map(|text| parse_change(text).unwrap())
            .into_iter()
            .collect();
        let hyp = Hyp::scratch_high().with(&changes).unwrap();
        assert_eq!((hyp.lr0, hyp.fit_first_boxes, hyp.nominal_batch), (0.001, true, 32));
        assert_eq!(serde_json::to_value(hyp.optimizer).unwrap(), "adamw");
        let wrong = |text: &str| Hyp::scratch_high().with(&[parse_change(text).unwrap()].into_iter().collect()).unwrap_err().to_string();
        assert!(wrong("lrO=1").contains("there is no value \"lrO\""));
        assert!(wrong("lr0=fast").contains("expected a number"));
        assert!(parse_change("lr0").is_err());
    }
}
