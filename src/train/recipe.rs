//! Sample recipes: what will be done to which image, drawn from (seed, epoch, index) before any pixel is touched.
//!
//! In:  the seed of the run, the epoch, the image, the hyper-parameters.
//! Out: plain data that says flips and colour gains; the order of an epoch.
//!
//! Random numbers come from a counter, not from a state: draw `n` of a stage is a hash of (seed, epoch, index, stage, n). So
//! the stream of samples depends neither on the number of threads nor on where a run was resumed, and the same recipe can be
//! executed by other code (a GPU kernel) without changing the training.
//!
//! Never touches pixels. Source: spec 8.4 and 8.9; the hash is the finalizer of `SplitMix64` (Steele, Lea, Flood, 2014).

use super::config::Hyp;

/// What a draw is for; draws of different stages are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Order = 1,
    Flip = 2,
    Hsv = 3,
}

/// What is done to one image to make one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Index into the train split.
    pub image: usize,
    pub flip_vertical: bool,
    pub flip_horizontal: bool,
    /// Factors of hue, saturation and value; `None` leaves the colours alone.
    pub hsv_gains: Option<[f32; 3]>,
}

impl Recipe {
    /// The recipe of `image` in an epoch.
    pub fn draw(hyp: &Hyp, seed: u64, epoch: usize, image: usize) -> Self {
        let mut flips = Draws::new(seed, epoch, image, Stage::Flip);
        let flip_vertical = flips.unit() < hyp.flipud;
        let flip_horizontal = flips.unit() < hyp.fliplr;

        let ranges = [hyp.hsv_h, hyp.hsv_s, hyp.hsv_v];
        let mut draws = Draws::new(seed, epoch, image, Stage::Hsv);
        let gains = ranges.map(|range| (1.0 + (2.0 * draws.unit() - 1.0) * range) as f32);
        let hsv_gains = ranges.iter().any(|range| *range > 0.0).then_some(gains);
        Self { image, flip_vertical, flip_horizontal, hsv_gains }
    }
}

/// The images of an epoch in the order that they are learnt: a shuffle of `0..n_images`.
pub fn epoch_order(seed: u64, epoch: usize, n_images: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n_images).collect();
    let mut draws = Draws::new(seed, epoch, 0, Stage::Order);
    for last in (1..n_images).rev() {
        order.swap(last, draws.below(last + 1));
    }
    order
}

/// The draws of one stage of one sample.
struct Draws {
    key: u64,
    counter: u64,
}

impl Draws {
    fn new(seed: u64, epoch: usize, index: usize, stage: Stage) -> Self {
        let key = [epoch as u64, index as u64, stage as u64].into_iter().fold(mix(seed), |key, part| mix(key ^ mix(part)));
        Self { key, counter: 0 }
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        mix(self.key.wrapping_add(self.counter.wrapping_mul(GOLDEN)))
    }

    /// Uniform in 0 to 1, 1 excluded.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..n`; the bias is below n / 2^64.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// 2^64 / golden ratio: consecutive counters differ in half of their bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(hyp: &Hyp) -> Vec<Recipe> {
        (0..20)
            .flat_map(|epoch| (0..1000).map(move |image| (epoch, image)))
            .map(|(epoch, image)| Recipe::draw(hyp, 7, epoch, image))
            .collect()
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
        let hyp = Hyp::scratch_high();
        let forward: Vec<Recipe> = (0..100).map(|image| Recipe::draw(&hyp, 5, 9, image)).collect();
        let mut backward: Vec<Recipe> = (0..100).rev().map(|image| Recipe::draw(&hyp, 5, 9, image)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_ne!(Recipe::draw(&hyp, 5, 9, 1).hsv_gains, Recipe::draw(&hyp, 5, 10, 1).hsv_gains);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // The first three outputs of SplitMix64 from seed 1234567.
        let outputs = [0, 1, 2].map(|n| mix(1_234_567_u64.wrapping_add(GOLDEN.wrapping_mul(n))));
        assert_eq!(outputs, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }
}
