//! Sample recipes: what will be done to which images, drawn from (seed, epoch, sample) before any pixel is touched.
//!
//! In:  what a run's recipes have in common, the epoch, the sample.
//! Out: plain data that says images, places, perspective, copy-paste, mixup, flips and colour gains; the order of an epoch.
//!
//! Random numbers come from a counter, not from a state (`draws.rs`): so the stream of samples depends neither on the number of
//! threads nor on where a run was resumed, and the same recipe can be executed by other code (a GPU kernel) without changing
//! the training. Sizes and labels are not known here: `composition.rs` resolves a recipe against them.
//!
//! Never touches pixels. Source: spec 8.4 to 8.9, and 7.9 for the epochs without mosaic.

use super::config::Hyp;
use super::draws::Draws;
use super::draws::Stage;
use super::perspective::Perspective;

/// Parameters of the mixing ratio's Beta distribution.
const MIXUP_BETA: usize = 32;

/// What all recipes of a run have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    pub hyp: Hyp,
    pub seed: u64,
    /// Pictures of the train split, from all of which partners are drawn.
    pub n_images: usize,
    /// The first epoch without mosaic, and so without mixup and copy-paste.
    pub mosaic_ends: usize,
}

/// What is done to make one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub layer: LayerRecipe,
    pub mixup: Option<Mixup>,
    pub flip_vertical: bool,
    pub flip_horizontal: bool,
    /// Factors of hue, saturation and value; `None` leaves the colours alone.
    pub hsv_gains: Option<[f32; 3]>,
}

/// A second layer that shines through the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixup {
    pub layer: LayerRecipe,
    /// Share of the first layer.
    pub ratio: f64,
}

/// Pictures on a canvas, and how the canvas is seen.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRecipe {
    pub place: Place,
    pub perspective: Perspective,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// One picture in the middle of a canvas of the output's size.
    Letterbox {
        image: usize,
    },
    Mosaic(Mosaic),
}

/// Four pictures on a canvas of twice the output's side.
#[derive(Clone, Debug, PartialEq)]
pub struct Mosaic {
    /// Top left, top right, bottom left, bottom right; indices into the train split.
    pub images: [usize; 4],
    /// Where the four meet, x and y as fractions of the canvas: 0.25 to 0.75.
    pub centre: [f64; 2],
    pub copy_paste: Option<CopyPaste>,
}

/// Objects are repeated mirrored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyPaste {
    /// Of the objects whose mirrored place is free.
    pub share: f64,
    /// Which of them: the key of further draws.
    pub key: u64,
}

impl Recipe {
    /// The recipe of a sample. Sample `image + n * n_images` is the n-th repetition of `image` in the epoch.
    pub fn draw(stream: &Stream, epoch: usize, sample: usize) -> Self {
        let Stream { hyp, seed, n_images, .. } = stream;
        let draws = |stage| Draws::new(*seed, epoch, sample, stage);
        let image = sample % n_images;

        let mut choice = draws(Stage::Mosaic);
        let has_mosaic = epoch < stream.mosaic_ends && choice.unit() < hyp.mosaic;
        let mut mixup = None;
        let place = if has_mosaic {
            let mut mixing = draws(Stage::Mixup);
            if mixing.unit() < hyp.mixup {
                let partner = mixing.below(*n_images);
                let mosaic = Mosaic::draw(stream, partner, &mut draws(Stage::PartnerMosaic), &mut draws(Stage::PartnerCopyPaste));
                let perspective = Perspective::draw(hyp, &mut draws(Stage::PartnerPerspective));
                let layer = LayerRecipe { place: Place::Mosaic(mosaic), perspective };
                mixup = Some(Mixup { layer, ratio: mixing.beta(MIXUP_BETA) });
            }
            Place::Mosaic(Mosaic::draw(stream, image, &mut choice, &mut draws(Stage::CopyPaste)))
        } else {
            Place::Letterbox { image }
        };
        let perspective = Perspective::draw(hyp, &mut draws(Stage::Perspective));

        let mut flips = draws(Stage::Flip);
        let flip_vertical = flips.unit() < hyp.flipud;
        let flip_horizontal = flips.unit() < hyp.fliplr;

        let ranges = [hyp.hsv_h, hyp.hsv_s, hyp.hsv_v];
        let mut draws = draws(Stage::Hsv);
        let gains = ranges.map(|range| draws.around(1.0, range) as f32);
        let hsv_gains = ranges.iter().any(|range| *range > 0.0).then_some(gains);
        Self { layer: LayerRecipe { place, perspective }, mixup, flip_vertical, flip_horizontal, hsv_gains }
    }

    /// The pictures that are needed, in the order of their tiles; some may be the same.
    pub fn images(&self) -> Vec<usize> {
        let layers = std::iter::once(&self.layer).chain(self.mixup.as_ref().map(|mixup| &mixup.layer));
        layers.flat_map(|layer| layer.place.images().iter().copied()).collect()
    }

    /// Takes another picture wherever `image` was meant.
    pub fn replace(&mut self, image: usize, by: usize) {
        let layers = std::iter::once(&mut self.layer).chain(self.mixup.as_mut().map(|mixup| &mut mixup.layer));
        for place in layers.flat_map(|layer| layer.place.images_mut()).filter(|place| **place == image) {
            *place = by;
        }
    }
}

impl Place {
    fn images(&self) -> &[usize] {
        match self {
            Self::Letterbox { image } => std::slice::from_ref(image),
            Self::Mosaic(mosaic) => &mosaic.images,
        }
    }

    fn images_mut(&mut self) -> &mut [usize] {
        match self {
            Self::Letterbox { image } => std::slice::from_mut(image),
            Self::Mosaic(mosaic) => &mut mosaic.images,
        }
    }
}

impl Mosaic {
    fn draw(stream: &Stream, image: usize, draws: &mut Draws, pastes: &mut Draws) -> Self {
        let centre = [draws.around(0.5, 0.25), draws.around(0.5, 0.25)];
        let mut images = [image, draws.below(stream.n_images), draws.below(stream.n_images), draws.below(stream.n_images)];
        draws.shuffle(&mut images);
        let share = stream.hyp.copy_paste;
        Self { images, centre, copy_paste: (share > 0.0).then(|| CopyPaste { share, key: pastes.next() }) }
    }
}

/// The samples of an epoch in the order that they are learnt: a shuffle of `0..n_images`.
pub fn epoch_order(seed: u64, epoch: usize, n_images: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n_images).collect();
    Draws::new(seed, epoch, 0, Stage::Order).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn stream(hyp: Hyp) -> Stream {
        Stream { hyp, seed: 7, n_images: 1000, mosaic_ends: 20 }
    }

    fn many(hyp: &Hyp) -> Vec<Recipe> {
        let stream = stream(hyp.clone());
        let samples = (0..20).flat_map(|epoch| (0..1000).map(move |sample| (epoch, sample)));
        samples.map(|(epoch, sample)| Recipe::draw(&stream, epoch, sample)).collect()
    }

    fn mosaic(layer: &LayerRecipe) -> Option<&Mosaic> {
        if let Place::Mosaic(mosaic) = &layer.place { Some(mosaic) } else { None }
    }

    fn mean_and_variance(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn flips_come_as_often_as_asked() {
        let recipes = many(&Hyp { flipud: 0.25, fliplr: 0.5, ..Hyp::scratch_high() });
        let share = |is: fn(&Recipe) -> bool| recipes.iter().filter(|recipe| is(recipe)).count() as f64 / recipes.len() as f64;
        // Four standard deviations of 20,000 draws.
        assert!((share(|recipe| recipe.flip_vertical) - 0.25).abs() < 0.0123);
        assert!((share(|recipe| recipe.flip_horizontal) - 0.5).abs() < 0.0142);
        assert!((share(|recipe| recipe.flip_horizontal && recipe.flip_vertical) - 0.125).abs() < 0.0094);
    }

    #[test]
    fn gains_fill_their_ranges_evenly_and_do_not_hang_together() {
        let hyp = Hyp::scratch_high();
        let gains: Vec<[f32; 3]> = many(&hyp).iter().filter_map(|recipe| recipe.hsv_gains).collect();
        assert_eq!(gains.len(), 20_000);
        for (axis, range) in [hyp.hsv_h, hyp.hsv_s, hyp.hsv_v].into_iter().enumerate() {
            let units: Vec<f64> = gains.iter().map(|gains| (f64::from(gains[axis]) - 1.0) / range).collect();
            assert!(units.iter().all(|unit| unit.abs() <= 1.0 + 1e-5));
            let mean = units.iter().sum::<f64>() / units.len() as f64;
            let variance = units.iter().map(|unit| unit * unit).sum::<f64>() / units.len() as f64;
            assert!(mean.abs() < 0.017 && (variance - 1.0 / 3.0).abs() < 0.01, "axis {axis}: mean {mean}, variance {variance}");
        }
        let product = gains.iter().map(|gains| f64::from((gains[1] - 1.0) * (gains[2] - 1.0))).sum::<f64>() / gains.len() as f64;
        assert!(product.abs() < 0.7 * 0.4 / 3.0 * 0.03, "{product}");
    }

    #[test]
    fn no_flip_and_no_gain_where_none_is_asked() {
        let hyp = Hyp { flipud: 0.0, fliplr: 0.0, hsv_h: 0.0, hsv_s: 0.0, hsv_v: 0.0, ..Hyp::scratch_high() };
        assert!(many(&hyp).iter().all(|recipe| !recipe.flip_vertical && !recipe.flip_horizontal && recipe.hsv_gains.is_none()));
    }

    #[test]
    fn an_epoch_has_every_image_once_and_another_order_each_time() {
        let first = epoch_order(3, 0, 500);
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..500).collect::<Vec<_>>());
        assert_ne!(first, epoch_order(3, 1, 500));
        assert_ne!(first, epoch_order(4, 0, 500));
        assert_eq!(first, epoch_order(3, 0, 500));
        assert!(epoch_order(0, 0, 0).is_empty());
    }

    #[test]
    fn every_place_is_as_likely_for_every_image() {
        let mut counts = [[0; 5]; 5];
        for epoch in 0..5000 {
            for (place, image) in epoch_order(1, epoch, 5).into_iter().enumerate() {
                counts[image][place] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_recipe_depends_on_nothing_but_its_key() {
        let stream = stream(Hyp::scratch_high());
        let forward: Vec<Recipe> = (0..100).map(|sample| Recipe::draw(&stream, 9, sample)).collect();
        let mut backward: Vec<Recipe> = (0..100).rev().map(|sample| Recipe::draw(&stream, 9, sample)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        let drawn = Recipe::draw(&stream, 9, 1);
        for other in [Recipe::draw(&stream, 10, 1), Recipe::draw(&stream, 9, 1001)] {
            assert_ne!(drawn.hsv_gains, other.hsv_gains);
            assert_ne!(drawn.layer.perspective, other.layer.perspective);
            assert_ne!(mosaic(&drawn.layer).map(|mosaic| mosaic.centre), mosaic(&other.layer).map(|mosaic| mosaic.centre));
        }
    }

    #[test]
    fn mosaic_and_mixup_come_as_often_as_asked() {
        let recipes = many(&Hyp { mosaic: 0.6, mixup: 0.25, copy_paste: 0.0, ..Hyp::scratch_high() });
        let share = |is: fn(&Recipe) -> bool| recipes.iter().filter(|recipe| is(recipe)).count() as f64 / recipes.len() as f64;
        assert!((share(|recipe| mosaic(&recipe.layer).is_some()) - 0.6).abs() < 0.0139);
        assert!((share(|recipe| recipe.mixup.is_some()) - 0.15).abs() < 0.0101);
        assert!(recipes.iter().all(|recipe| recipe.mixup.is_none() || mosaic(&recipe.layer).is_some()), "mixup only after mosaic");
        assert!(recipes.iter().filter_map(|recipe| mosaic(&recipe.layer)).all(|mosaic| mosaic.copy_paste.is_none()));
        let ratios: Vec<f64> = recipes.iter().filter_map(|recipe| recipe.mixup.as_ref()).map(|mixup| mixup.ratio).collect();
        let (mean, variance) = mean_and_variance(&ratios);
        assert!((mean - 0.5).abs() < 0.005 && (variance * 260.0 - 1.0).abs() < 0.11, "{mean}, {variance}");
    }

    #[test]
    fn a_mosaic_holds_its_sample_anywhere_and_partners_from_everywhere() {
        let recipes = many(&Hyp::scratch_high());
        let (mut places, mut partners, mut centres) = ([0; 4], Vec::new(), [Vec::new(), Vec::new()]);
        for (sample, recipe) in recipes.iter().enumerate() {
            let mosaic = mosaic(&recipe.layer).unwrap();
            let place = mosaic.images.iter().position(|image| *image == sample % 1000).unwrap();
            places[place] += 1;
            partners.extend(mosaic.images.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, image)| *image as f64));
            for (centres, centre) in centres.iter_mut().zip(mosaic.centre) {
                assert!((0.25..0.75).contains(&centre));
                centres.push(centre);
            }
        }
        assert!(places.iter().all(|count| (4750..5250).contains(count)), "{places:?}");
        let (mean, variance) = mean_and_variance(&partners);
        assert!((mean - 499.5).abs() < 4.8 && (variance / (1e6 / 12.0) - 1.0).abs() < 0.02, "{mean}, {variance}");
        for centres in centres {
            let (mean, variance) = mean_and_variance(&centres);
            assert!((mean - 0.5).abs() < 0.005 && (variance * 48.0 - 1.0).abs() < 0.03, "{mean}, {variance}");
        }
    }

    #[test]
    fn perspective_fills_its_ranges() {
        let hyp = Hyp { degrees: 10.0, shear: 4.0, perspective: 0.001, ..Hyp::scratch_high() };
        let recipes = many(&hyp);
        let number = |of: fn(&Perspective) -> f64| recipes.iter().map(|recipe| of(&recipe.layer.perspective)).collect::<Vec<f64>>();
        for (values, centre, range) in [
            (number(|p| p.scale), 1.0, 0.9),
            (number(|p| p.translate[0]), 0.5, 0.1),
            (number(|p| p.translate[1]), 0.5, 0.1),
            (number(|p| p.degrees), 0.0, 10.0),
            (number(|p| p.shear[0]), 0.0, 4.0),
            (number(|p| p.shear[1]), 0.0, 4.0),
            (number(|p| p.perspective[0]), 0.0, 0.001),
            (number(|p| p.perspective[1]), 0.0, 0.001),
        ] {
            let units: Vec<f64> = values.iter().map(|value| (value - centre) / range).collect();
            assert!(units.iter().all(|unit| unit.abs() <= 1.0 + 1e-9));
            let (mean, variance) = mean_and_variance(&units);
            assert!(mean.abs() < 0.017 && (variance - 1.0 / 3.0).abs() < 0.01, "{mean}, {variance}");
        }
    }

    #[test]
    fn the_last_epochs_have_no_mosaic() {
        let stream = Stream { mosaic_ends: 3, ..stream(Hyp::scratch_high()) };
        for epoch in 0..6 {
            let recipes: Vec<Recipe> = (0..100).map(|sample| Recipe::draw(&stream, epoch, sample)).collect();
            assert!(recipes.iter().all(|recipe| mosaic(&recipe.layer).is_some() == (epoch < 3)), "epoch {epoch}");
            assert!(epoch < 3 || recipes.iter().all(|recipe| recipe.mixup.is_none()), "epoch {epoch}");
            // The rest goes on.
            assert!(recipes.iter().all(|recipe| recipe.hsv_gains.is_some() && recipe.layer.perspective != Perspective::NONE));
        }
    }

    #[test]
    fn a_replaced_picture_is_gone_everywhere() {
        let stream = Stream { n_images: 2, ..stream(Hyp { mixup: 1.0, ..Hyp::scratch_high() }) };
        let mut recipe = Recipe::draw(&stream, 0, 1);
        recipe.replace(1, 0);
        assert_eq!(recipe.images(), [0; 8]);
    }
}
