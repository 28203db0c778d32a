//! Which size does a batch have when sizes change from batch to batch, and the batch in that size?
//!
//! In:  the input size of the run; then seed and position of a batch, and its pictures in the run's size.
//! Out: the sizes that may come; the size of the batch; its pictures and boxes in that size.
//!
//! The published trainer draws from all multiples of 32 between half and one and a half of the input size. Here each size has its
//! own plan and, on a GPU, its own captured graph, so the draw is among a few sizes of the same range, spread evenly, the run's
//! own among them. A last batch of an epoch with fewer pictures keeps the run's size.
//!
//! Never decides what is in a picture. Source: spec 7.6.

use super::draws::Draws;
use super::draws::Stage;
use super::loader;
use super::loader::Batch;
use super::stepper::BatchShape;
use crate::geom::Size;
use crate::media::Picture;
use crate::media::resize::resize_linear;

/// Sizes at most.
const N_SIZES: u32 = 7;
const STRIDE: u32 = 32;

/// The sides that batches of a run may have, ascending; `imgsz` is one of them.
pub fn sides(imgsz: u32) -> Vec<u32> {
    let (first, last) = ((imgsz / 2).next_multiple_of(STRIDE), imgsz * 3 / 2 / STRIDE * STRIDE);
    // As many steps down from `imgsz` as up.
    let half = N_SIZES / 2;
    let between = |from: u32, to: u32, step: u32| {
        let side = f64::from(from) + (f64::from(to) - f64::from(from)) * f64::from(step) / f64::from(half);
        (side / f64::from(STRIDE)).round() as u32 * STRIDE
    };
    let mut sides: Vec<u32> = (0..half).map(|step| between(first, imgsz, step)).collect();
    sides.extend((0..=half).map(|step| between(imgsz, last, step)));
    sides.dedup();
    sides
}

/// The shapes of batches of a train set of `n_images`; `sides` are those of whole batches, none: only `imgsz`.
pub fn shapes(n_images: usize, batch: usize, imgsz: u32, sides: &[u32]) -> Vec<BatchShape> {
    let sizes = loader::batch_sizes(n_images, batch);
    let own = sizes.into_iter().map(|n_images| BatchShape { n_images, side: imgsz as usize });
    let others = sides.iter().filter(|side| **side != imgsz);
    own.chain(others.map(|&side| BatchShape { n_images: batch.min(n_images), side: side as usize })).collect()
}

/// The side of the batch at a position, counted over all epochs.
pub fn side_at(sides: &[u32], seed: u64, position: usize) -> u32 {
    sides[Draws::new(seed, position, 0, Stage::Side).below(sides.len())]
}

/// Brings the square pictures of a batch, and its boxes, to another side.
pub fn resize(batch: &mut Batch, side: u32) {
    let before = batch.side;
    if side == before {
        return;
    }
    let len = before as usize * before as usize * 3;
    let mut resized = Vec::with_capacity(batch.n_images * side as usize * side as usize * 3);
    for rgb in batch.pixels.chunks_exact(len) {
        let picture = Picture { size: Size::square(before), rgb: rgb.to_vec() };
        resized.extend_from_slice(&resize_linear(&picture, Size::square(side)).rgb);
    }
    batch.pixels = resized;
    let factor = side as f32 / before as f32;
    for row in batch.truth.chunks_exact_mut(5) {
        row[1..].iter_mut().for_each(|corner| *corner *= factor);
    }
    batch.side = side;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_few_sides_and_the_runs_own_is_among_them() {
        assert_eq!(sides(640), [320, 416, 544, 640, 736, 864, 960]);
        assert_eq!(sides(64), [32, 64, 96]);
        for imgsz in (64..=1280).step_by(32) {
            let sides = sides(imgsz);
            assert!(
                sides.len() <= 7 && sides.contains(&imgsz) && sides.is_sorted() && sides.iter().all(|side| side % 32 == 0),
                "{sides:?}"
            );
            assert!(2 * sides[0] >= imgsz && 2 * sides[sides.len() - 1] <= 3 * imgsz, "{sides:?}");
        }
    }

    #[test]
    fn every_side_comes_as_often_and_depends_on_seed_and_position() {
        let sides = sides(640);
        let drawn: Vec<u32> = (0..7000).map(|position| side_at(&sides, 3, position)).collect();
        for side in &sides {
            let n = drawn.iter().filter(|drawn| *drawn == side).count();
            assert!((880..1120).contains(&n), "{side}: {n}");
        }
        assert_eq!(drawn, (0..7000).map(|position| side_at(&sides, 3, position)).collect::<Vec<_>>());
        assert_ne!(drawn, (0..7000).map(|position| side_at(&sides, 4, position)).collect::<Vec<_>>());
    }

    #[test]
    fn a_smaller_last_batch_has_one_shape() {
        let shape = |n_images, side| BatchShape { n_images, side };
        assert_eq!(shapes(10, 4, 64, &[32, 64, 96]), [shape(4, 64), shape(2, 64), shape(4, 32), shape(4, 96)]);
        assert_eq!(shapes(10, 4, 64, &[]), [shape(4, 64), shape(2, 64)]);
        assert_eq!(shapes(3, 8, 64, &[32, 64]), [shape(3, 64), shape(3, 32)]);
    }

    #[test]
    fn a_batch_in_another_size_shows_the_same() {
        let mut pixels = vec![0; 2 * 64 * 64 * 3];
        for (index, pixel) in pixels.chunks_exact_mut(3).enumerate() {
            let (x, y, image) = (index % 64, index / 64 % 64, index / 4096);
            pixel.fill(if (16..48).contains(&x) && (8..24).contains(&y) { 100 + 50 * image as u8 } else { 0 });
        }
        let truth = vec![0.0, 16.0, 8.0, 48.0, 24.0, -1.0, 0.0, 0.0, 0.0, 0.0];
        let batch = Batch {
            epoch: 0,
            n_images: 2,
            side: 64,
            images: vec![0, 1],
            pixels,
            compositions: vec![],
            truth: truth.repeat(2),
            faults: vec![],
        };
        for side in [32, 96] {
            let mut resized = batch.clone();
            resize(&mut resized, side);
            let (at, factor) = (side as usize, side as f32 / 64.0);
            assert_eq!((resized.side, resized.pixels.len()), (side, 2 * at * at * 3));
            for image in 0..2 {
                let truth = &resized.truth[image * 10..][..5];
                assert_eq!(truth, [0.0, 16.0 * factor, 8.0 * factor, 48.0 * factor, 24.0 * factor]);
                let value = |x: f32, y: f32| resized.pixels[((image * at + y as usize) * at + x as usize) * 3];
                assert_eq!(value(truth[1] + 1.5, truth[2] + 1.5), 100 + 50 * image as u8);
                assert_eq!((value(truth[1] - 2.5, truth[2] + 1.5), value(truth[1] + 1.5, truth[4] + 2.5)), (0, 0));
            }
        }
        let mut same = batch.clone();
        resize(&mut same, 64);
        assert_eq!(same, batch);
    }
}
