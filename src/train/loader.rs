//! Pictures into batches, ahead of the training step: threads execute recipes and hand finished batches over.
//!
//! In:  the train set, seed, batch size, and the position to begin at.
//! Out: batches in order: pixels (n, height, width, 3) and truth (n, 1, G, 5), padded with class -1.
//!
//! Worker `w` of `n` makes the batches `w, w + n, w + 2n, …` and sends them through its own bounded channel; the loader takes
//! from the channels in turn. So the order is fixed, nobody waits for a lock, and epochs follow each other without a pause.
//! What is in a batch depends on its position alone (see `recipe.rs`). What the stages take is counted in `loader_clock.rs`.
//!
//! Never decides what a sample looks like. Dropping the loader ends the threads.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use crossbeam_channel::Receiver;
use crossbeam_channel::RecvTimeoutError;
use crossbeam_channel::Sender;
use crossbeam_channel::bounded;

use super::composition::Composition;
use super::composition::Tile;
use super::copy_paste::Span;
use super::error::TrainError;
use super::image_weights::Orders;
use super::loader_clock::LoaderClock;
use super::multi_scale;
use super::paint::Painter;
use super::recipe::Recipe;
use super::recipe::Stream;
use super::recipe::epoch_order;
use super::train_set::TrainSet;
use super::train_set::TruthRow;
use crate::engine::Device;
use crate::media::resize::PADDING;

/// Between two looks at what the device does while a batch is not there.
const TICK: Duration = Duration::from_millis(1);
/// Finished batches that wait, for each worker.
const AHEAD: usize = 2;

/// What a loader goes through.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    pub stream: Stream,
    /// Rows of a sample's truth (see `truth_rows.rs`).
    pub truth_rows: usize,
    pub batch: usize,
    pub n_epochs: usize,
    /// Position of the first batch, counted over all epochs.
    pub first_batch: usize,
    pub n_workers: usize,
    /// Sides that whole batches may have (see `multi_scale.rs`); none: always the run's own.
    pub sides: Vec<u32>,
    /// Where the samples of each epoch come from (see `image_weights.rs`); `None`: every picture once, shuffled.
    pub orders: Option<Arc<Orders>>,
    /// Samples become pixels here; else their compositions are handed over, for a GPU that holds the pictures.
    pub paints: bool,
}

/// A batch ready for the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub epoch: usize,
    /// Pictures; the last batch of an epoch may have fewer.
    pub n_images: usize,
    /// Height and width of the pictures.
    pub side: u32,
    /// What they show, by index into the train set; of a mosaic the picture that it was made for.
    pub images: Vec<usize>,
    /// (n, height, width, 3), RGB; empty where nothing was painted.
    pub pixels: Vec<u8>,
    /// Of each picture; empty where it was painted.
    pub compositions: Vec<Composition>,
    /// (n, 1, `truth_rows`, 5): class, x1, y1, x2, y2 in input pixels; class -1 is padding.
    pub truth: Vec<f32>,
    /// What is worth telling: pictures that did not decode, with the reason (another took their place), boxes without a row.
    pub faults: Vec<String>,
}

/// Batches in order; an iterator.
pub struct Loader {
    channels: Vec<Receiver<Batch>>,
    workers: Vec<JoinHandle<()>>,
    next: usize,
    remaining: usize,
    clock: Arc<LoaderClock>,
    orders: Option<Arc<Orders>>,
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

/// Memory of the batches that exist at once, and of what their makers need.
pub fn planned_bytes(set: &TrainSet, truth_rows: usize, batch: usize, n_workers: usize) -> u64 {
    let batch = batch.min(set.images.len());
    let one = batch * (set.sample_len() + truth_rows * 5 * size_of::<f32>());
    // A canvas and a second layer; the pictures of two mosaics that are not kept.
    let n_pictures = if set.n_not_kept() > 0 { 5 + 8 } else { 5 };
    // Batches that wait, are being made, and the one that the step reads.
    (one * (n_workers * (AHEAD + 1) + 1) + n_workers * n_pictures * set.sample_len()) as u64
}

/// As [`planned_bytes`], where samples are not painted: a composition has tiles, boxes and perhaps pastes, no pixels.
pub fn planned_bytes_of_compositions(set: &TrainSet, truth_rows: usize, batch: usize, n_workers: usize) -> u64 {
    // A few spans in each row of two canvases.
    let pastes = if set.has_polygons { 2 * 2 * set.imgsz as usize * 4 * size_of::<Span>() } else { 0 };
    let of_sample = size_of::<Composition>() + 8 * size_of::<Tile>() + 2 * truth_rows * size_of::<TruthRow>() + pastes;
    (batch.min(set.images.len()) * of_sample * (n_workers * (AHEAD + 1) + 1)) as u64
}

impl Loader {
    /// Starts the worker threads.
    pub fn start(set: &Arc<TrainSet>, options: &LoaderOptions) -> Result<Self, TrainError> {
        assert_eq!(options.stream.n_images, set.images.len(), "the stream is of this train set");
        let total = batches_per_epoch(set.images.len(), options.batch) * options.n_epochs;
        let remaining = total.saturating_sub(options.first_batch);
        let clock = Arc::default();
        let mut loader = Self { channels: Vec::new(), workers: Vec::new(), next: 0, remaining, clock, orders: options.orders.clone() };
        for index in 0..options.n_workers.max(1) {
            let (sender, receiver) = bounded(AHEAD);
            let (set, options, clock) = (Arc::clone(set), options.clone(), Arc::clone(&loader.clock));
            let positions = (options.first_batch + index..total).step_by(options.n_workers.max(1));
            let worker = std::thread::Builder::new()
                .name(format!("loader-{index}"))
                .spawn(move || work(&set, &options, positions, &sender, &clock))
                .map_err(|source| TrainError::Thread { source })?;
            loader.channels.push(receiver);
            loader.workers.push(worker);
        }
        Ok(loader)
    }

    /// What the stages took so far; goes on counting while the loader is iterated.
    pub fn clock(&self) -> Arc<LoaderClock> {
        Arc::clone(&self.clock)
    }

    /// The next batch. As long as it is not there, `waiting` hears about every millisecond how much time has gone by.
    pub fn next_watched(&mut self, waiting: &mut dyn FnMut(Duration)) -> Option<Batch> {
        if self.remaining == 0 {
            return None;
        }
        let index = self.next;
        self.next = (index + 1) % self.channels.len();
        self.remaining -= 1;
        let mut start = Instant::now();
        loop {
            let received = self.channels[index].recv_timeout(TICK);
            let now = Instant::now();
            waiting(now - start);
            self.clock.wait.add(now - start);
            start = now;
            match received {
                Ok(batch) => return Some(batch),
                Err(RecvTimeoutError::Timeout) => {}
                // Only a panic ends a worker early: it becomes ours.
                Err(RecvTimeoutError::Disconnected) => match self.workers.swap_remove(index).join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => unreachable!("a loader thread ended before its last batch"),
                },
            }
        }
    }
}

impl Iterator for Loader {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        self.next_watched(&mut |_| {})
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Some(orders) = &self.orders {
            orders.close();
        }
        // Without receivers the next send fails, and the threads return.
        self.channels.clear();
        for worker in self.workers.drain(..) {
            // A panic of a worker was already passed on by `next`, or nobody asked for its batch.
            worker.join().ok();
        }
    }
}

fn work(set: &TrainSet, options: &LoaderOptions, positions: impl Iterator<Item = usize>, sender: &Sender<Batch>, clock: &LoaderClock) {
    let n_images = set.images.len();
    let per_epoch = batches_per_epoch(n_images, options.batch);
    let mut maker = Maker { set, options, painter: Painter::default(), clock };
    let mut order = (usize::MAX, Arc::default());
    for position in positions {
        let (epoch, index) = (position / per_epoch, position % per_epoch);
        if order.0 != epoch {
            let samples = match &options.orders {
                None => Arc::new(epoch_order(options.stream.seed, epoch, n_images)),
                Some(orders) => match orders.wait(epoch) {
                    Some(samples) => samples,
                    None => return,
                },
            };
            order = (epoch, samples);
        }
        let first = index * options.batch;
        let mut batch = maker.batch(epoch, &order.1[first..(first + options.batch).min(n_images)]);
        if !options.sides.is_empty() && batch.n_images == options.batch.min(n_images) {
            multi_scale::resize(&mut batch, multi_scale::side_at(&options.sides, options.stream.seed, position));
        }
        let made = Instant::now();
        if sender.send(batch).is_err() {
            return;
        }
        clock.full.add(made.elapsed());
    }
}

/// Makes batches in one thread.
struct Maker<'a> {
    set: &'a TrainSet,
    options: &'a LoaderOptions,
    painter: Painter,
    clock: &'a LoaderClock,
}

impl Maker<'_> {
    fn batch(&mut self, epoch: usize, samples: &[usize]) -> Batch {
        let (sample_len, truth_len) = (self.set.sample_len(), self.options.truth_rows * 5);
        let mut batch = Batch {
            epoch,
            n_images: samples.len(),
            side: self.set.imgsz,
            images: samples.iter().map(|sample| sample % self.set.images.len()).collect(),
            pixels: if self.options.paints { vec![0; samples.len() * sample_len] } else { Vec::new() },
            compositions: Vec::new(),
            truth: vec![0.0; samples.len() * truth_len],
            faults: Vec::new(),
        };
        let mut places = batch.pixels.chunks_exact_mut(sample_len);
        for (&sample, truth) in samples.iter().zip(batch.truth.chunks_exact_mut(truth_len)) {
            let recipe = Recipe::draw(&self.options.stream, epoch, sample);
            let mut rows = if let Some(pixels) = places.next() {
                self.sample_or_next(recipe, pixels, &mut batch.faults)
            } else {
                let start = Instant::now();
                let composition = self.set.compose(&recipe);
                self.clock.augment.add(start.elapsed());
                self.clock.n_samples.fetch_add(1, Ordering::Relaxed);
                let rows = composition.truth.clone();
                batch.compositions.push(composition);
                rows
            };
            if rows.len() > self.options.truth_rows {
                batch.faults.push(format!("some samples have more than {} boxes; their smallest are left out", self.options.truth_rows));
                rows.sort_by(|a, b| area(b).total_cmp(&area(a)));
            }
            for (index, place) in truth.chunks_exact_mut(5).enumerate() {
                place.copy_from_slice(rows.get(index).unwrap_or(&[-1.0, 0.0, 0.0, 0.0, 0.0]));
            }
        }
        batch
    }

    /// A picture that broke since the start gives its place to the next one that decodes; if none does, all is gray.
    fn sample_or_next(&mut self, mut recipe: Recipe, pixels: &mut [u8], faults: &mut Vec<String>) -> Vec<TruthRow> {
        const TRIES: usize = 16;
        for _ in 0..TRIES {
            let start = Instant::now();
            let composition = self.set.compose(&recipe);
            let composed = start.elapsed();
            let start = Instant::now();
            let images = composition.images();
            let mut pictures = Vec::with_capacity(images.len());
            let mut broken = None;
            for &image in &images {
                match self.set.fitted_picture(image) {
                    Ok(picture) => pictures.push(picture),
                    Err(error) => {
                        faults.push(format!("left out, another picture took its place: {error}"));
                        broken = Some(image);
                        break;
                    }
                }
            }
            self.clock.decode.add(start.elapsed());
            if let Some(broken) = broken {
                recipe.replace(broken, (broken + 1) % self.set.images.len());
                continue;
            }
            let start = Instant::now();
            let place = |image: usize| images.binary_search(&image).expect("the composition names its pictures in order");
            self.painter.paint(&composition, &|image| &*pictures[place(image)], pixels);
            self.clock.augment.add(start.elapsed() + composed);
            self.clock.n_samples.fetch_add(1, Ordering::Relaxed);
            return composition.truth;
        }
        pixels.fill(PADDING);
        Vec::new()
    }
}

fn area([_, x1, y1, x2, y2]: &TruthRow) -> f32 {
    (x2 - x1) * (y2 - y1)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::config::Hyp;
    use super::super::train_set::tests::drawn;
    use super::super::train_set::tests::set_of;
    use super::super::truth_rows::truth_rows;
    use super::*;
    use crate::geom::Size;
    use crate::geom::Xyxy;
    use std::collections::HashSet;

    fn set(n_images: usize) -> Arc<TrainSet> {
        let images = (0..n_images).map(|index| drawn(Size::square(64), Xyxy::new(index as f32, 0.0, index as f32 + 8.0, 8.0))).collect();
        Arc::new(set_of(images, 64))
    }

    fn stream(hyp: Hyp, n_images: usize) -> Stream {
        Stream { hyp, seed: 11, n_images, mosaic_ends: 2 }
    }

    /// All that is published, and more.
    fn everything() -> Hyp {
        Hyp { degrees: 5.0, shear: 2.0, perspective: 0.0005, mosaic: 0.8, mixup: 0.5, flipud: 0.2, ..Hyp::scratch_high() }
    }

    fn options() -> LoaderOptions {
        LoaderOptions {
            stream: stream(everything(), 10),
            truth_rows: 16,
            batch: 3,
            n_epochs: 3,
            first_batch: 0,
            n_workers: 1,
            sides: vec![],
            orders: None,
            paints: true,
        }
    }

    /// Without anything that moves boxes.
    fn plain(n_images: usize) -> LoaderOptions {
        let stream = stream(Hyp { fliplr: 0.0, ..Hyp::small_data() }, n_images);
        LoaderOptions { stream, truth_rows: 8, n_epochs: 1, ..options() }
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
        for n_workers in [2, 3, 8] {
            assert_eq!(one, all(&set, LoaderOptions { n_workers, ..options() }), "{n_workers} threads");
        }
        let hash = |batch: &Batch| blake3::hash(&[batch.pixels.as_slice(), bytemuck::cast_slice(&batch.truth)].concat());
        let mut hashes: Vec<String> = one.iter().map(|batch| hash(batch).to_string()).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 12, "no batch comes twice");
    }

    #[test]
    fn whole_batches_change_their_size_and_nothing_else() {
        let set = set(10);
        let options = LoaderOptions { n_epochs: 20, ..options() };
        let plain = all(&set, options.clone());
        let sides = vec![32, 64, 96];
        let scaled = all(&set, LoaderOptions { sides: sides.clone(), n_workers: 3, ..options });
        let mut seen = HashSet::new();
        for (position, (plain, scaled)) in plain.iter().zip(&scaled).enumerate() {
            let side = if plain.n_images == 3 { multi_scale::side_at(&sides, 11, position) } else { 64 };
            assert_eq!((scaled.side, &scaled.images, scaled.epoch), (side, &plain.images, plain.epoch));
            assert_eq!(scaled.pixels.len(), scaled.n_images * side as usize * side as usize * 3);
            for (scaled, plain) in scaled.truth.chunks(5).zip(plain.truth.chunks(5)) {
                let factor = side as f32 / 64.0;
                assert!(scaled[0] == plain[0] && scaled[1..].iter().zip(&plain[1..]).all(|(a, b)| (a - b * factor).abs() < 1e-4));
            }
            seen.insert(side);
        }
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn samples_of_an_epoch_may_be_given_and_are_waited_for() {
        let set = set(4);
        let orders = Arc::new(Orders::default());
        let options = LoaderOptions { batch: 2, n_epochs: 3, n_workers: 2, orders: Some(Arc::clone(&orders)), ..plain(4) };
        let mut loader = Loader::start(&set, &options).unwrap();
        orders.publish(0, vec![3, 7, 1, 11]);
        let first: Vec<Batch> = loader.by_ref().take(2).collect();
        assert_eq!(first.iter().flat_map(|batch| batch.images.clone()).collect::<Vec<_>>(), [3, 3, 1, 3]);
        orders.publish(1, vec![0, 0, 2, 2]);
        assert_eq!(loader.by_ref().take(2).flat_map(|batch| batch.images).collect::<Vec<_>>(), [0, 0, 2, 2]);
        // The third epoch is never told: the threads end all the same.
        drop(loader);
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
        let batch = &all(&set(1), plain(1))[0];
        assert_eq!(batch.truth.len(), 8 * 5);
        assert_eq!(batch.truth[0], 1.0);
        assert!(batch.truth[5..].chunks(5).all(|row| row == [-1.0, 0.0, 0.0, 0.0, 0.0]));
    }

    #[test]
    fn a_picture_that_vanished_gives_its_place_to_the_next() {
        let mut images: Vec<_> = (0..2).map(|_| drawn(Size::square(64), Xyxy::new(0.0, 0.0, 8.0, 8.0))).collect();
        images[0].kept = None;
        images[0].path = "/nowhere/0.png".into();
        let set = Arc::new(set_of(images, 64));
        let batch = &all(&set, LoaderOptions { batch: 2, ..plain(2) })[0];
        assert_eq!(batch.faults.len(), 1);
        assert!(batch.truth.chunks(40).all(|rows| rows[0] == 1.0));
        // Also as a partner in a mosaic.
        let stream = stream(everything(), 2);
        let truth_rows = truth_rows(&set, &stream, 1);
        let batch = &all(&set, LoaderOptions { stream, truth_rows, batch: 2, n_epochs: 1, ..options() })[0];
        assert!(!batch.faults.is_empty() && batch.faults.iter().all(|fault| fault.contains("/nowhere/0.png")), "{:?}", batch.faults);
    }

    #[test]
    fn where_rows_do_not_suffice_the_largest_boxes_stay() {
        let mut images = vec![drawn(Size::square(64), Xyxy::new(0.0, 0.0, 8.0, 8.0))];
        images[0].labels = (0..12).map(|index| drawn(Size::square(64), Xyxy::new(0.0, 0.0, 4.0 + index as f32, 8.0)).labels[0]).collect();
        let batch = &all(&Arc::new(set_of(images, 64)), plain(1))[0];
        assert_eq!(batch.faults, ["some samples have more than 8 boxes; their smallest are left out"]);
        let widths: Vec<f32> = batch.truth.chunks(5).map(|row| row[3]).collect();
        assert!(
            widths.iter().zip([15.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0]).all(|(ours, width)| (ours - width).abs() < 0.01),
            "{widths:?}"
        );
    }

    #[test]
    fn the_clock_counts_every_sample() {
        let mut loader = Loader::start(&set(10), &options()).unwrap();
        let clock = loader.clock();
        assert_eq!(loader.by_ref().count(), 12);
        drop(loader);
        assert_eq!(clock.read().n_samples, 30);
    }

    #[test]
    fn waiting_for_a_batch_is_told_as_it_passes() {
        let mut loader = Loader::start(&set(10), &LoaderOptions { n_epochs: 1, ..options() }).unwrap();
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        while loader.next_watched(&mut |time| waited += time).is_some() {}
        assert!(Duration::ZERO < waited && waited <= start.elapsed());
        assert!(loader.next().is_none());
    }

    #[test]
    fn dropping_a_loader_early_ends_its_threads() {
        let mut loader = Loader::start(&set(10), &LoaderOptions { n_epochs: 1000, n_workers: 2, ..options() }).unwrap();
        assert!(loader.next().is_some());
        drop(loader);
    }
}
