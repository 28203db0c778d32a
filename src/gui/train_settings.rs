//! Every hyper-parameter in plain words, grouped; those that were changed are marked and can be set back.
//!
//! In:  the values that the preset gives, by key. Out: the values that a person changed on top, by key.
//!
//! Which keys there are comes from the values themselves; the words for them stand in one table here.

use egui::{Button, CollapsingHeader, ComboBox, DragValue, RichText, Ui, vec2};
use serde_json::{Map, Number, Value};

use super::controls;
use super::theme::palette;
use crate::media::chart::trimmed;

/// What settings are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Optimizer,
    Schedule,
    Loss,
    Augmentation,
    Network,
    /// Keys that the table has no words for.
    Other,
}

impl Group {
    const ALL: [Self; 6] = [Self::Optimizer, Self::Schedule, Self::Loss, Self::Augmentation, Self::Network, Self::Other];

    fn title(self) -> &'static str {
        match self {
            Self::Optimizer => "Optimizer",
            Self::Schedule => "Schedule",
            Self::Loss => "Loss",
            Self::Augmentation => "Augmentation",
            Self::Network => "Network and average",
            Self::Other => "Other",
        }
    }
}

/// The words for a key.
#[derive(Clone, Copy)]
struct Setting<'a> {
    key: &'a str,
    group: Group,
    title: &'a str,
    tooltip: &'a str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// 0 to 1.
    Share,
    /// From 0 up.
    Amount,
    Count,
    Switch,
    Words(&'static [&'static str]),
}

impl Kind {
    /// The kind of a value that the table does not name.
    fn of(value: &Value) -> Self {
        match value {
            Value::Bool(_) => Self::Switch,
            Value::String(_) => Self::Words(&[]),
            Value::Number(number) if number.is_u64() => Self::Count,
            _ => Self::Amount,
        }
    }
}

const fn setting(key: &'static str, group: Group, title: &'static str, tooltip: &'static str, kind: Kind) -> Setting<'static> {
    Setting { key, group, title, tooltip, kind }
}

#[rustfmt::skip]
static SETTINGS: &[Setting<'static>] = &[
    setting("optimizer", Group::Optimizer, "Method", "What turns gradients into steps: SGD as published; AdamW finds its way sooner on few pictures; Lion wants a tenth of AdamW's learning rate", Kind::Words(&["sgd", "adam", "adamw", "lion"])),
    setting("amsgrad", Group::Optimizer, "AMSGrad", "AdamW never lets its steps grow again, as in the public trainer", Kind::Switch),
    setting("lr0", Group::Optimizer, "Learning rate", "How far a step goes after the warm-up. Too high diverges, too low learns nothing", Kind::Amount),
    setting("momentum", Group::Optimizer, "Momentum", "How much of the last steps' direction is kept", Kind::Share),
    setting("weight_decay", Group::Optimizer, "Weight decay", "How strongly weights are drawn towards zero, against learning by heart", Kind::Amount),
    setting("nominal_batch", Group::Optimizer, "Images an update", "Gradients of several batches are added up to so many images; 0: every batch is an update", Kind::Count),
    setting("warmup_epochs", Group::Schedule, "Warm-up epochs", "The learning rate grows from nothing over so many epochs", Kind::Amount),
    setting("warmup_min_batches", Group::Schedule, "Warm-up batches", "The warm-up lasts at least so many batches", Kind::Count),
    setting("warmup_momentum", Group::Schedule, "Warm-up momentum", "Momentum at the start of the warm-up", Kind::Share),
    setting("warmup_bias_lr", Group::Schedule, "Warm-up bias rate", "Learning rate of the biases at the start of the warm-up, from where it falls", Kind::Amount),
    setting("lrf", Group::Schedule, "Final rate", "Learning rate of the last epoch, as a fraction of the first", Kind::Share),
    setting("lr_schedule", Group::Schedule, "Course", "How the learning rate falls: along a line as published, a cosine, a cosine in the second half only, or not at all", Kind::Words(&["linear", "cosine", "flat-cosine", "fixed"])),
    setting("box", Group::Loss, "Box gain", "Weight of the boxes' overlap with the labels", Kind::Amount),
    setting("cls", Group::Loss, "Class gain", "Weight of the classes", Kind::Amount),
    setting("dfl", Group::Loss, "DFL gain", "Weight of the exact place of the boxes' sides", Kind::Amount),
    setting("cls_pw", Group::Loss, "Positive weight", "Weight of found objects in the class loss: above 1 finds more, and more that is wrong", Kind::Amount),
    setting("label_smoothing", Group::Loss, "Label smoothing", "Labels are taken as a little less certain, against overconfidence", Kind::Share),
    setting("hsv_h", Group::Augmentation, "Hue", "Colours are shifted at random by up to this share", Kind::Share),
    setting("hsv_s", Group::Augmentation, "Saturation", "Colours become stronger or weaker by up to this share", Kind::Share),
    setting("hsv_v", Group::Augmentation, "Brightness", "Images become brighter or darker by up to this share", Kind::Share),
    setting("mosaic", Group::Augmentation, "Mosaic", "Share of the images that are put together from four, which shows more objects at more sizes", Kind::Share),
    setting("mixup", Group::Augmentation, "Mixup", "Share of the mosaics that are laid half transparent over another", Kind::Share),
    setting("copy_paste", Group::Augmentation, "Copy and paste", "Share of a mosaic's objects that are repeated where there is room; needs labels with outlines", Kind::Share),
    setting("degrees", Group::Augmentation, "Rotation", "Images are turned at random by up to so many degrees", Kind::Amount),
    setting("translate", Group::Augmentation, "Shift", "Images are shifted at random by up to this share of their side", Kind::Share),
    setting("scale", Group::Augmentation, "Scale", "Images become larger or smaller by up to this share", Kind::Share),
    setting("shear", Group::Augmentation, "Shear", "Images are slanted at random by up to so many degrees", Kind::Amount),
    setting("perspective", Group::Augmentation, "Tilt", "Images are tilted as if seen from the side; 0.001 is much", Kind::Share),
    setting("fliplr", Group::Augmentation, "Flip left to right", "Share of the images that are mirrored. Set it to 0 where left and right differ", Kind::Share),
    setting("flipud", Group::Augmentation, "Flip upside down", "Share of the images that are turned upside down: good for pictures from above", Kind::Share),
    setting("fit_first_boxes", Group::Network, "Fit first boxes", "A new network starts with boxes as large as the dataset's, so that small objects are learnt", Kind::Switch),
    setting("ema_decay", Group::Network, "Average decay", "How slowly the averaged weights, which are kept, follow the trained ones", Kind::Share),
    setting("ema_tau", Group::Network, "Average start", "The average follows fast in about the first so many updates", Kind::Amount),
];

/// Draws all settings. `base` is what the preset gives, `changes` what differs from it.
pub fn settings_ui(ui: &mut Ui, base: &Map<String, Value>, changes: &mut Map<String, Value>) {
    changes.retain(|key, value| base.get(key).is_some_and(|given| given != value));
    let settings = settings_of(base);
    for group in Group::ALL {
        let of_group: Vec<&Setting<'_>> = settings.iter().filter(|setting| setting.group == group).collect();
        if of_group.is_empty() {
            continue;
        }
        let n_changed = of_group.iter().filter(|setting| changes.contains_key(setting.key)).count();
        let mut title = RichText::new(group.title());
        if n_changed > 0 {
            title = RichText::new(format!("{}  ({n_changed} changed)", group.title())).color(palette(ui).accent);
        }
        CollapsingHeader::new(title).id_salt(group.title()).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 4.0;
            for setting in of_group {
                setting_ui(ui, setting, &base[setting.key], changes);
            }
        });
    }
}

/// The settings that there are, in the order of the table; those without words come last.
fn settings_of(base: &Map<String, Value>) -> Vec<Setting<'_>> {
    let known = SETTINGS.iter().filter(|setting| base.contains_key(setting.key)).copied();
    let others = base.iter().filter(|(key, _)| SETTINGS.iter().all(|setting| setting.key != key.as_str()));
    let others = others.map(|(key, value)| Setting { key, group: Group::Other, title: key, tooltip: "", kind: Kind::of(value) });
    known.chain(others).collect()
}

fn setting_ui(ui: &mut Ui, setting: &Setting<'_>, given: &Value, changes: &mut Map<String, Value>) {
    let mut value = changes.get(setting.key).unwrap_or(given).clone();
    let row = Row {
        title: setting.title,
        tooltip: &format!("{}\n\n`{}`, {given} in the preset", setting.tooltip, setting.key),
        is_changed: changes.contains_key(setting.key),
    };
    if row.ui(ui, |ui| value_ui(ui, setting, &mut value)) || value == *given {
        changes.remove(setting.key);
    } else {
        changes.insert(setting.key.to_owned(), value);
    }
}

/// A setting in a line: its name, its control, and a button that sets it back.
pub struct Row<'a> {
    pub title: &'a str,
    pub tooltip: &'a str,
    pub is_changed: bool,
}

impl Row<'_> {
    /// Draws the row; says whether it shall be set back.
    pub fn ui(&self, ui: &mut Ui, control: impl FnOnce(&mut Ui)) -> bool {
        let Self { title, tooltip, is_changed } = *self;
        let palette = palette(ui);
        let size = vec2(ui.available_width(), 26.0);
        ui.allocate_ui_with_layout(size, egui::Layout::right_to_left(egui::Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            let ink = if is_changed { palette.accent } else { palette.faint.gamma_multiply(0.5) };
            let button = Button::new(RichText::new("⟲").color(ink)).frame_when_inactive(false).min_size(vec2(22.0, 22.0));
            let reset = ui.add_enabled(is_changed, button);
            reset.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, is_changed, format!("Reset {title}")));
            let is_reset = reset.on_hover_text("Set it back").clicked();
            control(ui);
            ui.with_layout(egui::Layout::left_to_right(egui::Align::Center), |ui| {
                let ink = if is_changed { palette.accent } else { palette.text };
                ui.add(egui::Label::new(RichText::new(title).color(ink)).truncate()).on_hover_text(tooltip);
            });
            is_reset
        })
        .inner
    }
}

/// Width of the controls.
pub const CONTROL_WIDTH: f32 = 92.0;

/// Draws the control for a value, which keeps its type.
fn value_ui(ui: &mut Ui, setting: &Setting<'_>, value: &mut Value) {
    let drag_ui = |ui: &mut Ui, drag: DragValue<'_>| {
        ui.add_sized([CONTROL_WIDTH, 24.0], drag).on_hover_text(setting.tooltip).accessible_name(setting.title);
    };
    match (setting.kind, &mut *value) {
        (Kind::Switch, Value::Bool(is_on)) => {
            ui.checkbox(is_on, "").on_hover_text(setting.tooltip).accessible_name(setting.title);
        }
        (Kind::Words([]), Value::String(word)) => {
            controls::text_field(ui, setting.title, word, "", CONTROL_WIDTH);
        }
        (Kind::Words(words), Value::String(word)) => {
            let combo = ComboBox::from_id_salt(setting.key).width(CONTROL_WIDTH).selected_text(word.as_str());
            let response = combo.show_ui(ui, |ui| {
                for each in words {
                    ui.selectable_value(word, (*each).to_owned(), *each);
                }
            });
            response.response.accessible_name(setting.title);
        }
        (Kind::Count, Value::Number(number)) => {
            let mut count = number.as_u64().unwrap_or_default();
            drag_ui(ui, DragValue::new(&mut count).range(0..=1_000_000).speed(0.25));
            *number = count.into();
        }
        (kind, Value::Number(number)) => {
            let before = number.as_f64().unwrap_or_default();
            let mut amount = before;
            let most = if matches!(kind, Kind::Share) { 1.0 } else { 1e6 };
            let speed = (amount.abs() * 0.01).max(1e-5);
            drag_ui(ui, DragValue::new(&mut amount).range(0.0..=most).speed(speed).custom_formatter(|number, _| plain(number)));
            if amount != before
                && let Some(changed) = Number::from_f64(amount)
            {
                *number = changed;
            }
        }
        // A kind that the table does not foresee is at least shown.
        (_, value) => {
            controls::weak(ui, value.to_string());
        }
    }
}

/// Six decimals without zeros at the end.
fn plain(number: f64) -> String {
    trimmed(&format!("{number:.6}")).to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::train::Hyp;

    fn values() -> Map<String, Value> {
        let Value::Object(values) = serde_json::to_value(Hyp::scratch_high()).unwrap() else { unreachable!() };
        values
    }

    #[test]
    fn every_hyper_parameter_has_its_words_and_a_control_of_its_type() {
        for (key, value) in values() {
            let setting = SETTINGS.iter().find(|setting| setting.key == key).unwrap_or_else(|| panic!("{key} is not in the table"));
            let fits = match setting.kind {
                Kind::Switch => value.is_boolean(),
                Kind::Words(words) => value.as_str().is_some_and(|word| words.contains(&word)),
                Kind::Count => value.is_u64(),
                Kind::Share => value.is_f64() && value.as_f64() <= Some(1.0),
                Kind::Amount => value.is_f64(),
            };
            assert!(fits, "{key} is {value}");
        }
    }

    #[test]
    fn no_words_are_for_nothing_or_twice() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(values().contains_key(setting.key), "{}", setting.key);
            assert!(SETTINGS[..index].iter().all(|other| other.key != setting.key && other.title != setting.title), "{}", setting.key);
        }
    }
}
