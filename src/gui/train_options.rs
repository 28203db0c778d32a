//! Options of a run that are no hyper-parameters: what is frozen, what is left out, when it ends.
//!
//! Each stands in a line with a button that sets it back, and on the command line only where it was changed.

use egui::{CollapsingHeader, DragValue, RichText, Ui};

use super::controls::{self, shell_word};
use super::theme::palette;
use super::train_settings::{CONTROL_WIDTH, Row};
use crate::train::TrainConfig;
use crate::train::freeze::Freeze;

/// The options as they are typed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "options that are on or off, each on its own")]
pub struct RunOptions {
    /// The last epochs, that have no mosaic.
    pub close_mosaic: usize,
    /// As [`Freeze`] reads it.
    pub freeze: String,
    pub single_cls: bool,
    pub min_items: usize,
    pub image_weights: bool,
    pub multi_scale: bool,
    pub allow_partial: bool,
    pub patience: usize,
    pub save_period: usize,
    pub noval: bool,
    pub allow_broken: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            close_mosaic: 0,
            freeze: String::new(),
            single_cls: false,
            min_items: 0,
            image_weights: false,
            multi_scale: false,
            allow_partial: false,
            patience: 100,
            save_period: 0,
            noval: false,
            allow_broken: false,
        }
    }
}

impl RunOptions {
    /// Why a run cannot have these.
    pub fn problem(&self) -> Option<&'static str> {
        let is_wrong = self.freeze.parse::<Freeze>().is_err();
        is_wrong.then_some("Freeze takes a count of layers, a list of layers, or parts of names, not both")
    }

    /// The run with these options; partial weights are allowed only where it starts from weights.
    pub fn apply(&self, config: TrainConfig) -> TrainConfig {
        let Self { close_mosaic, single_cls, min_items, image_weights, multi_scale, patience, save_period, noval, allow_broken, .. } =
            *self;
        TrainConfig {
            close_mosaic,
            freeze: self.freeze.parse().unwrap_or_default(),
            single_cls,
            min_items,
            image_weights,
            multi_scale,
            allow_partial: self.allow_partial && config.weights.is_some(),
            patience,
            save_period,
            noval,
            allow_broken,
            ..config
        }
    }

    /// The words of the command line for what was changed. `has_weights`: the run starts from weights.
    pub fn words(&self, has_weights: bool) -> Vec<String> {
        let plain = Self::default();
        let mut words = Vec::new();
        let numbers = [
            ("--close-mosaic", self.close_mosaic, plain.close_mosaic),
            ("--min-items", self.min_items, plain.min_items),
            ("--patience", self.patience, plain.patience),
            ("--save-period", self.save_period, plain.save_period),
        ];
        words.extend(numbers.into_iter().filter(|(_, value, usual)| value != usual).map(|(option, value, _)| format!("{option} {value}")));
        let switches = [
            ("--single-cls", self.single_cls),
            ("--image-weights", self.image_weights),
            ("--multi-scale", self.multi_scale),
            ("--allow-partial", self.allow_partial && has_weights),
            ("--noval", self.noval),
            ("--allow-broken", self.allow_broken),
        ];
        words.extend(switches.into_iter().filter(|(_, is_on)| *is_on).map(|(option, _)| option.to_owned()));
        match self.freeze.parse() {
            Ok(Freeze::Nothing) | Err(_) => {}
            Ok(freeze) => words.push(format!("--freeze {}", shell_word(&freeze.to_string()))),
        }
        words
    }

    /// How many differ from the usual.
    pub fn n_changed(&self) -> usize {
        self.words(true).len()
    }

    pub fn ui(&mut self, ui: &mut Ui) {
        let mut title = RichText::new("Run");
        if self.n_changed() > 0 {
            title = RichText::new(format!("Run  ({} changed)", self.n_changed())).color(palette(ui).accent);
        }
        CollapsingHeader::new(title).id_salt("run options").show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 4.0;
            let plain = Self::default();
            let row = Row {
                title: "Freeze",
                tooltip: "Layers that are left as they are: a count from the input on, several layer numbers, or parts of parameter names. \
                          Saves time and memory when starting from weights\n\n`--freeze`",
                is_changed: !matches!(self.freeze.parse(), Ok(Freeze::Nothing)),
            };
            let is_reset = row.ui(ui, |ui| {
                controls::text_field(ui, "Freeze", &mut self.freeze, "Nothing", CONTROL_WIDTH);
            });
            if is_reset {
                self.freeze.clear();
            }
            count_ui(
                ui,
                ["Patience", "Epochs without a better one after which the run ends; 0: never", "--patience"],
                &mut self.patience,
                plain.patience,
            );
            let tooltip = "The last so many epochs have no mosaic, so that the network ends with images as they are";
            count_ui(ui, ["Close mosaic", tooltip, "--close-mosaic"], &mut self.close_mosaic, plain.close_mosaic);
            let tooltip = "Training images with fewer labels are left out; 0 keeps all";
            count_ui(ui, ["Least labels", tooltip, "--min-items"], &mut self.min_items, plain.min_items);
            let tooltip = "Keep the weights of every so many epochs, beside the last and the best; 0: none";
            count_ui(ui, ["Keep every", tooltip, "--save-period"], &mut self.save_period, plain.save_period);
            switch_ui(ui, ["One class", "Take all classes for one", "--single-cls"], &mut self.single_cls);
            let tooltip = "Images of rare and badly found classes come more often";
            switch_ui(ui, ["Weigh images", tooltip, "--image-weights"], &mut self.image_weights);
            switch_ui(
                ui,
                ["Multi-scale", "Batches change their size, from half to one and a half", "--multi-scale"],
                &mut self.multi_scale,
            );
            let tooltip = "Start from weights that give less than four fifths of the network, too";
            switch_ui(ui, ["Partial weights", tooltip, "--allow-partial"], &mut self.allow_partial);
            let tooltip = "Train although more than one image of a hundred cannot be read; these are left out";
            switch_ui(ui, ["Broken images", tooltip, "--allow-broken"], &mut self.allow_broken);
            let tooltip = "Validate only the last epoch: faster, but no curve shows how good it is";
            switch_ui(ui, ["No validation", tooltip, "--noval"], &mut self.noval);
        });
    }
}

/// A number from 0 up: its name, what it does, and its option.
fn count_ui(ui: &mut Ui, [title, what, option]: [&str; 3], value: &mut usize, usual: usize) {
    let row = Row { title, tooltip: &format!("{what}\n\n`{option}`, usually {usual}"), is_changed: *value != usual };
    let is_reset = row.ui(ui, |ui| {
        ui.add_sized([CONTROL_WIDTH, 24.0], DragValue::new(value).range(0..=100_000).speed(0.2)).on_hover_text(what).accessible_name(title);
    });
    if is_reset {
        *value = usual;
    }
}

/// Something that is off by itself.
fn switch_ui(ui: &mut Ui, [title, what, option]: [&str; 3], is_on: &mut bool) {
    let row = Row { title, tooltip: &format!("{what}\n\n`{option}`"), is_changed: *is_on };
    let is_reset = row.ui(ui, |ui| {
        ui.checkbox(is_on, "").on_hover_text(what).accessible_name(title);
    });
    if is_reset {
        *is_on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_usual_options_are_those_of_a_new_configuration_and_have_no_words() {
        let config = TrainConfig::new(Path::new("d"));
        assert_eq!(RunOptions::default().apply(config.clone()), config);
        assert_eq!(RunOptions::default().words(true), [""; 0]);
        assert_eq!(RunOptions::default().n_changed(), 0);
    }

    #[test]
    fn what_is_frozen_may_be_a_count_layers_or_names_but_no_mixture() {
        let with = |freeze: &str| RunOptions { freeze: freeze.to_owned(), ..RunOptions::default() };
        assert_eq!(with("10").words(false), ["--freeze 10"]);
        assert_eq!(with("0 2 5").words(false), ["--freeze 0,2,5"]);
        assert_eq!(with("model.3.* model.4").words(false), ["--freeze 'model.3.*,model.4'"]);
        assert!(with("3 model.4").problem().is_some());
        assert_eq!(with("").problem(), None);
    }
}
