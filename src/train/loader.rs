//! Pictures into batches, ahead of the training step: threads execute recipes and hand finished batches over.
//!
//! In:  the train set, seed, batch size, and the position to begin at.
//! Out: batches in order: pixels (n, height, width, 3) and truth (n, 1, G, 5), padded with class -1.
//!
//! Worker `w` of `n` makes the batches `w, w + n, w + 2n, …` and sends them through its own bounded channel; the loader takes
//! from the channels in turn. So the order is fixed, nobody waits for a lock, and epochs follow each other without a pause.
//! What is in a batch depends on its position alone (see `recipe.rs`).
//!
//! Never decides what a sample looks like. Dropping the loader ends the threads.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Receiver;
use crossbeam_channel::Sender;
use crossbeam_channel::bounded;

use super::config::Hyp;
use super::error::TrainError;
use super::recipe::Recipe;
use super::recipe::epoch_order;
use super::train_set::TrainSet;
use super::train_set::TruthRow;
use crate::engine::Device;

/// Finished batches that wait, for each worker.
const AHEAD: usize = 2;

/// What a loader goes through.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    pub hyp: Hyp,
    pub seed: u64,
    pub batch: usize,
    pub n_epochs: usize,
    /// Position of the first batch, counted over all epochs.
    pub first_batch: usize,
    pub n_workers: usize,
}

/// A batch ready for the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub epoch: usize,
    /// Pictures; the last batch of an epoch may have fewer.
    pub n_images: usize,
    /// What they show, by index into the train set.
    pub images: Vec<usize>,
    /// (n, height, width, 3), RGB.
    pub pixels: Vec<u8>,
    /// (n, 1, `truth_rows`, 5): class, x1, y1, x2, y2 in input pixels; class -1 is padding.
    pub truth: Vec<f32>,
    /// Pictures that did not decode, with the reason; another picture took their place.
    pub faults: Vec<String>,
}

/// Batches in order; an iterator.
pub struct Loader {
    channels: Vec<Receiver<Batch>>,
    workers: Vec<JoinHandle<()>>,
    next: usize,
    remaining: usize,
}

/// Worker threads for this machine: decoding and colours cost little beside a training step on the CPU, and are all that the
/// cores have to do while a GPU trains.
pub fn default_workers(device: Device) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    match device {
        Device::Cpu => (cores / 4).clamp(1, 4),
        // One core feeds the GPU, one is for everybody else.
        Device::Cuda(_) => cores.saturating_sub(2).clamp(1, 16),
    }
}

/// Batches of an epoch.
pub fn batches_per_epoch(n_images: usize, batch: usize) -> usize {
    n_images.div_ceil(batch)
}

/// The sizes of an epoch's batches: of the whole ones, and of the last if it is smaller.
pub fn batch_sizes(n_images: usize, batch: usize) -> Vec<usize> {
    let mut sizes = vec![batch.min(n_images), n_images - (batches_per_epoch(n_images, batch) - 1) * batch];
    sizes.dedup();
    sizes
}

/// Memory of the batches that exist at once.
pub fn planned_bytes(set: &TrainSet, batch: usize, n_workers: usize) -> u64 {
    let one = batch * (set.sample_len() + set.truth_rows() * 5 * size_of::<f32>());
    // Waiting, being made, and the one that the step reads.
    (one * (n_workers * (AHEAD + 1) + 1)) as u64
}

impl Loader {
    /// Starts the worker threads.
    pub fn start(set: &Arc<TrainSet>, options: &LoaderOptions) -> Result<Self, TrainError> {
        let total = batches_per_epoch(set.images.len(), options.batch) * options.n_epochs;
        let mut loader = Self { channels: Vec::new(), workers: Vec::new(), next: 0, remaining: total.saturating_sub(options.first_batch) };
        for index in 0..options.n_workers.max(1) {
            let (sender, receiver) = bounded(AHEAD);
            let (set, options) = (Arc::clone(set), options.clone());
            let positions = (options.first_batch + index..total).step_by(options.n_workers.max(1));
            let worker = std::thread::Builder::new()
                .name(format!("loader-{index}"))
                .spawn(move || work(&set, &options, positions, &sender))
                .map_err(|source| TrainError::Thread { source })?;
            loader.channels.push(receiver);
            loader.workers.push(worker);
        }
        Ok(loader)
    }
}

impl Iterator for Loader {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if self.remaining == 0 {
            return None;
        }
        let index = self.next;
        self.next = (index + 1) % self.channels.len();
        self.remaining -= 1;
        match self.channels[index].recv() {
            Ok(batch) => Some(batch),
            // Only a panic ends a worker early: it becomes ours.
            Err(_) => match self.workers.swap_remove(index).join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("a loader thread ended before its last batch"),
            },
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Without receivers the next send fails, and the threads return.
        self.channels.clear();
        for worker in self.workers.drain(..) {
            // A panic of a worker was already passed on by `next`, or nobody asked for its batch.
            worker.join().ok();
        }
    }
}

fn work(set: &TrainSet, options: &LoaderOptions, positions: impl Iterator<Item = usize>, sender: &Sender<Batch>) {
    let per_epoch = batches_per_epoch(set.images.len(), options.batch);
    let mut order = (usize::MAX, Vec::new());
    for position in positions {
        let (epoch, index) = (position / per_epoch, position % per_epoch);
        if order.0 != epoch {
            order = (epoch, epoch_order(options.seed, epoch, set.images.len()));
        }
        let first = index * options.batch;
        let images = &order.1[first..(first + options.batch).min(set.images.len())];
        if sender.send(make_batch(set, options, epoch, images)).is_err() {
            return;
        }
    }
}

fn make_batch(set: &TrainSet, options: &LoaderOptions, epoch: usize, images: &[usize]) -> Batch {
    let truth_len = set.truth_rows() * 5;
    let mut batch = Batch {
        epoch,
        n_images: images.len(),
        images: images.to_vec(),
        pixels: vec![0; images.len() * set.sample_len()],
        truth: vec![0.0; images.len() * truth_len],
        faults: Vec::new(),
    };
    let places = batch.pixels.chunks_exact_mut(set.sample_len()).zip(batch.truth.chunks_exact_mut(truth_len));
    for (&image, (pixels, truth)) in images.iter().zip(places) {
        let recipe = Recipe::draw(&options.hyp, options.seed, epoch, image);
        let rows = sample_or_next(set, recipe, pixels, &mut batch.faults);
        for (index, place) in truth.chunks_exact_mut(5).enumerate() {
            place.copy_from_slice(rows.get(index).unwrap_or(&[-1.0, 0.0, 0.0, 0.0, 0.0]));
        }
    }
    batch
}

/// A picture that broke since the start gives its place to the next one that decodes; if none does, to a gray one.
fn sample_or_next(set: &TrainSet, mut recipe: Recipe, pixels: &mut [u8], faults: &mut Vec<String>) -> Vec<TruthRow> {
    const TRIES: usize = 16;
    for _ in 0..TRIES {
        match set.sample(&recipe, pixels) {
            Ok(rows) => return rows,
            Err(error) => faults.push(error.to_string()),
        }
        recipe.image = (recipe.image + 1) % set.images.len();
    }
    pixels.fill(114);
    Vec::new()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::train_set::tests::drawn;
    use super::*;
    use crate::geom::Size;
    use crate::geom::Xyxy;

    fn set(n_images: usize) -> Arc<TrainSet> {
        let images = (0..n_images).map(|index| drawn(Size::square(64), Xyxy::new(index as f32, 0.0, index as f32 + 8.0, 8.0))).collect();
        Arc::new(TrainSet { images, imgsz: 64, dropped: vec![], dropped_rows: vec![] })
    }

    fn options() -> LoaderOptions {
        LoaderOptions { hyp: Hyp::scratch_high(), seed: 11, batch: 3, n_epochs: 3, first_batch: 0, n_workers: 1 }
    }

    fn all(set: &Arc<TrainSet>, options: LoaderOptions) -> Vec<Batch> {
        Loader::start(set, &options).unwrap().collect()
    }

    #[test]
    fn the_stream_is_the_same_with_any_number_of_threads() {
        let set = set(10);
        let one = all(&set, options());
        assert_eq!(one.len(), 12);
        assert_eq!(one.iter().map(|batch| batch.n_images).collect::<Vec<_>>(), [3, 3, 3, 1].repeat(3));
        assert_eq!(one, all(&set, LoaderOptions { n_workers: 3, ..options() }));
    }

    #[test]
    fn the_last_batch_of_an_epoch_may_be_smaller() {
        assert_eq!(batch_sizes(10, 3), [3, 1]);
        assert_eq!(batch_sizes(9, 3), [3]);
        assert_eq!(batch_sizes(2, 8), [2]);
    }

    #[test]
    fn a_resumed_stream_goes_on_where_it_stopped() {
        let set = set(10);
        let whole = all(&set, options());
        assert_eq!(whole[5..], all(&set, LoaderOptions { first_batch: 5, n_workers: 2, ..options() }));
        assert!(all(&set, LoaderOptions { first_batch: 12, ..options() }).is_empty());
    }

    #[test]
    fn truth_is_padded_with_class_minus_one() {
        let batch = &all(&set(1), LoaderOptions { n_epochs: 1, ..options() })[0];
        assert_eq!(batch.truth.len(), 8 * 5);
        assert_eq!(batch.truth[0], 1.0);
        assert!(batch.truth[5..].chunks(5).all(|row| row == [-1.0, 0.0, 0.0, 0.0, 0.0]));
    }

    #[test]
    fn a_picture_that_vanished_gives_its_place_to_the_next() {
        let mut images: Vec<_> = (0..2).map(|_| drawn(Size::square(64), Xyxy::new(0.0, 0.0, 8.0, 8.0))).collect();
        images[0].kept = None;
        images[0].path = "/nowhere/0.png".into();
        let set = Arc::new(TrainSet { images, imgsz: 64, dropped: vec![], dropped_rows: vec![] });
        let batch = &all(&set, LoaderOptions { batch: 2, n_epochs: 1, ..options() })[0];
        assert_eq!(batch.faults.len(), 1);
        assert!(batch.truth.chunks(40).all(|rows| rows[0] == 1.0));
    }

    #[test]
    fn dropping_a_loader_early_ends_its_threads() {
        let mut loader = Loader::start(&set(10), &LoaderOptions { n_epochs: 1000, n_workers: 2, ..options() }).unwrap();
        assert!(loader.next().is_some());
        drop(loader);
    }
}
