//! How many truth boxes does a sample have at most? The network's truth has a fixed number of rows, padded.
//!
//! In:  the train set, the stream of its recipes, the epochs.
//! Out: rows that suffice.
//!
//! Samples are composed without their pixels and counted: all of a short run; of a long one so many that a quarter more
//! suffices for the rest but for rare cases, in which the loader leaves the smallest boxes out and tells it.

use rayon::prelude::*;

use super::recipe::Recipe;
use super::recipe::Stream;
use super::recipe::epoch_order;
use super::train_set::TrainSet;

/// Samples that are counted at most.
const MOST_COUNTED: usize = 1 << 15;
/// As many where outlines are moved, which takes a hundred times longer.
const MOST_COUNTED_WITH_OUTLINES: usize = 1 << 11;

/// Rows for a stream that draws other samples than those that were counted (image weights).
pub fn with_room(rows: usize) -> usize {
    rounded_up(rows + rows.div_ceil(4))
}

/// Rows of a sample's truth: 8, 16, 32, 64, then multiples of 32, so that similar datasets give the same shapes.
pub fn truth_rows(set: &TrainSet, stream: &Stream, n_epochs: usize) -> usize {
    let single = set.images.iter().map(|image| image.labels.len()).max().unwrap_or(0);
    if stream.hyp.mosaic == 0.0 || stream.mosaic_ends == 0 {
        return rounded_up(single);
    }
    let n_samples = n_epochs.saturating_mul(stream.n_images);
    let most_counted = if set.has_polygons { MOST_COUNTED_WITH_OUTLINES } else { MOST_COUNTED };
    let n_counted = n_samples.min(most_counted);
    let samples =
        (0..n_epochs).flat_map(|epoch| epoch_order(stream.seed, epoch, stream.n_images).into_iter().map(move |image| (epoch, image)));
    let samples: Vec<(usize, usize)> = samples.take(n_counted).collect();
    let n_rows = |&(epoch, sample): &(usize, usize)| set.compose(&Recipe::draw(stream, epoch, sample)).truth.len();
    let most = samples.par_iter().map(n_rows).max().unwrap_or(0);
    let most = if n_counted < n_samples { most + most.div_ceil(4) } else { most };
    rounded_up(most.max(single))
}

fn rounded_up(rows: usize) -> usize {
    if rows <= 64 { rows.next_power_of_two().max(8) } else { rows.next_multiple_of(32) }
}

#[cfg(test)]
mod tests {
    use super::super::config::Hyp;
    use super::super::train_set::tests::drawn;
    use super::super::train_set::tests::set_of;
    use super::*;
    use crate::geom::Size;
    use crate::geom::Xyxy;

    #[test]
    fn rows_suffice_for_every_sample_and_are_those_of_one_picture_without_mosaic() {
        let mut images: Vec<_> = (0..6).map(|_| drawn(Size::square(64), Xyxy::new(4.0, 4.0, 60.0, 60.0))).collect();
        for image in &mut images {
            image.labels = vec![image.labels[0]; 9];
        }
        let set = set_of(images, 64);
        let stream = |mosaic: f64, mosaic_ends: usize| Stream {
            hyp: Hyp { mosaic, mixup: 0.5, ..Hyp::scratch_high() },
            seed: 2,
            n_images: 6,
            mosaic_ends,
        };
        assert_eq!([truth_rows(&set, &stream(0.0, 9), 9), truth_rows(&set, &stream(1.0, 0), 9)], [16, 16]);
        let rows = truth_rows(&set, &stream(1.0, 9), 9);
        assert!((32..=96).contains(&rows), "{rows}: eight pictures have 72 boxes");
        for (epoch, sample) in (0..9).flat_map(|epoch| (0..6).map(move |sample| (epoch, sample))) {
            assert!(set.compose(&Recipe::draw(&stream(1.0, 9), epoch, sample)).truth.len() <= rows);
        }
    }

    #[test]
    fn rows_grow_in_steps() {
        assert_eq!([0, 8, 9, 33, 64, 65, 96, 97].map(rounded_up), [8, 8, 16, 64, 64, 96, 96, 128]);
    }
}
