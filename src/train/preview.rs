//! How do the batches look that a run learns from? Pictures with their boxes, as the network gets them.
//!
//! In:  batches of the loader, or a configuration whose first ones are made. Out: pictures, and files in the run folder.
//!
//! Never changes a batch.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use super::config::BatchChoice;
use super::config::TrainConfig;
use super::error::TrainError;
use super::event::TrainEvent;
use super::event::TrainStage;
use super::loader::Batch;
use super::loader::Loader;
use super::loader::LoaderOptions;
use super::multi_scale;
use super::paint::Painter;
use super::recipe::Stream;
use super::reporter::Sink;
use super::train_set::TrainSet;
use super::truth_rows::truth_rows;
use crate::dataset::Dataset;
use crate::geom::Size;
use crate::geom::Xyxy;
use crate::media::MediaError;
use crate::media::Picture;
use crate::media::draw::class_color;
use crate::media::draw::draw_box;
use crate::media::encode::encode;
use crate::media::resize::resize_area;

/// Batches that are shown.
pub const N_BATCHES: usize = 3;
/// Pictures of a batch that are shown, in rows of four.
const MAX_TILES: usize = 16;
const N_COLUMNS: usize = 4;
/// Longest side of a picture of a batch.
const MAX_SIDE: usize = 1920;

/// The first pictures of a batch in a grid, with their boxes and class names.
pub fn batch_picture(batch: &Batch, names: &[String]) -> Picture {
    let n_tiles = batch.n_images.clamp(1, MAX_TILES);
    let side = batch.side as usize;
    let sample_len = side * side * 3;
    let n_columns = N_COLUMNS.min(n_tiles);
    let n_rows = n_tiles.div_ceil(n_columns);
    let tile_side = side.min(MAX_SIDE / n_columns.max(n_rows));
    let size = Size::new((n_columns * tile_side) as u32, (n_rows * tile_side) as u32);
    let mut grid = Picture { size, rgb: vec![114; n_columns * tile_side * n_rows * tile_side * 3] };

    let truth_len = batch.truth.len() / batch.n_images.max(1);
    let samples = batch.pixels.chunks_exact(sample_len.max(1)).zip(batch.truth.chunks(truth_len.max(1)));
    for (place, (pixels, truth)) in samples.take(n_tiles).enumerate() {
        let whole = Picture { size: Size::square(side as u32), rgb: pixels.to_vec() };
        let mut tile = if tile_side == side { whole } else { resize_area(&whole, Size::square(tile_side as u32)) };
        let scale = tile_side as f32 / side as f32;
        for row in truth.chunks_exact(5).filter(|row| row[0] >= 0.0) {
            let class = row[0] as usize;
            let bbox = Xyxy::new(row[1] * scale, row[2] * scale, row[3] * scale, row[4] * scale);
            draw_box(&mut tile, bbox, class_color(class), names.get(class).map_or("?", String::as_str));
        }
        let (left, top) = (place % n_columns * tile_side, place / n_columns * tile_side);
        for (y, row) in tile.rgb.chunks_exact(tile_side * 3).enumerate() {
            let start = ((top + y) * n_columns * tile_side + left) * 3;
            grid.rgb[start..start + tile_side * 3].copy_from_slice(row);
        }
    }
    grid
}

/// The first pictures of a batch whose samples are made on a GPU, painted here. A batch that has pixels is given back as it is.
pub fn painted<'a>(batch: &'a Batch, set: &TrainSet) -> Result<Cow<'a, Batch>, MediaError> {
    let n_images = batch.compositions.len().min(MAX_TILES);
    if n_images == 0 {
        return Ok(Cow::Borrowed(batch));
    }
    let mut pixels = vec![0; n_images * set.sample_len()];
    let mut painter = Painter::default();
    for (composition, pixels) in batch.compositions.iter().zip(pixels.chunks_exact_mut(set.sample_len())) {
        let images = composition.images();
        let pictures = images.iter().map(|&image| set.fitted_picture(image)).collect::<Result<Vec<_>, _>>()?;
        let place = |image: usize| images.binary_search(&image).expect("the composition names its pictures in order");
        painter.paint(composition, &|image| &*pictures[place(image)], pixels);
    }
    let truth = batch.truth[..batch.truth.len() / batch.n_images * n_images].to_vec();
    let images = batch.images[..n_images].to_vec();
    Ok(Cow::Owned(Batch { n_images, images, pixels, truth, compositions: Vec::new(), faults: Vec::new(), ..*batch }))
}

/// Writes a batch as `report/train_batchN.jpg` of a run folder.
pub fn write_batch(run_dir: &Path, number: usize, batch: &Batch, names: &[String]) -> Result<PathBuf, MediaError> {
    let path = run_dir.join("report").join(format!("train_batch{number}.jpg"));
    encode(&path, &batch_picture(batch, names), 90)?;
    Ok(path)
}

/// The first batches of the run that `config` describes, as pictures. Nothing is trained or written.
///
/// # Errors
/// As those of a run before its first step; [`TrainError::Cancelled`] when `sink` breaks.
pub fn preview_batches(config: &TrainConfig, sink: &mut Sink) -> Result<Vec<Picture>, TrainError> {
    let (config, _) = config.checked()?;
    let mut dataset = Dataset::open(&config.data)?;
    if config.single_cls {
        dataset.merge_classes();
    }
    let mut check_in = |done, total| sink(TrainEvent::Progress { stage: TrainStage::Preparing, done, total });
    // Without room to keep pictures only headers and labels are read; the few that are shown are decoded by the loader.
    let Some(mut set) = TrainSet::read(&dataset, config.imgsz, 0, &mut check_in)? else { return Err(TrainError::Cancelled) };
    set.leave_out_below(config.min_items)?;
    let (hyp, _) = config.resolve_hyp(set.images.len())?;
    let batch = match config.batch {
        BatchChoice::Count(count) => count.min(MAX_TILES),
        BatchChoice::Auto => MAX_TILES,
    };
    let stream =
        Stream { hyp, seed: config.seed, n_images: set.images.len(), mosaic_ends: config.epochs.saturating_sub(config.close_mosaic) };
    let truth_rows = truth_rows(&set, &stream, 1);
    let sides = if config.multi_scale { multi_scale::sides(config.imgsz) } else { Vec::new() };
    let n_epochs = config.epochs;
    let options = LoaderOptions { stream, truth_rows, batch, n_epochs, first_batch: 0, n_workers: 1, sides, orders: None, paints: true };
    let mut pictures = Vec::new();
    for batch in Loader::start(&Arc::new(set), &options)?.take(N_BATCHES) {
        pictures.push(batch_picture(&batch, &dataset.names));
        let event = TrainEvent::Progress { stage: TrainStage::Preparing, done: pictures.len() as u64, total: N_BATCHES as u64 };
        if let ControlFlow::Break(()) = sink(event) {
            return Err(TrainError::Cancelled);
        }
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::media::decode::decode;
    use crate::train::config::Hyp;
    use crate::train::train_set::tests::drawn;
    use crate::train::train_set::tests::set_of;

    /// Gray pictures, each with one box around its left upper quarter, then padding.
    fn batch(n_images: usize, side: usize) -> Batch {
        let row = [1.0, 0.0, 0.0, side as f32 / 2.0, side as f32 / 2.0, -1.0, 0.0, 0.0, 0.0, 0.0];
        let (images, pixels) = ((0..n_images).collect(), vec![50; n_images * side * side * 3]);
        Batch { epoch: 0, n_images, side: side as u32, images, pixels, compositions: vec![], truth: row.repeat(n_images), faults: vec![] }
    }

    fn at(picture: &Picture, x: usize, y: usize) -> [u8; 3] {
        let start = (y * picture.size.width as usize + x) * 3;
        [picture.rgb[start], picture.rgb[start + 1], picture.rgb[start + 2]]
    }

    #[test]
    fn each_picture_has_its_place_and_its_boxes() {
        let names = ["bolt".to_owned(), "nut".to_owned()];
        let picture = batch_picture(&batch(5, 64), &names);
        assert_eq!(picture.size, Size::new(256, 128));
        for left in [0, 64, 128, 192] {
            assert_eq!(at(&picture, left + 20, 31), class_color(1), "the lower edge of the box at {left}");
            assert_eq!(at(&picture, left + 50, 50), [50; 3]);
        }
        assert_eq!(at(&picture, 20, 64 + 31), class_color(1));
        assert_eq!(at(&picture, 64 + 20, 64 + 31), [114; 3], "there is no sixth picture");
    }

    #[test]
    fn large_batches_are_cut_to_sixteen_and_made_smaller() {
        let picture = batch_picture(&batch(20, 640), &[]);
        assert_eq!(picture.size, Size::new(1920, 1920));
        assert_eq!(at(&picture, 100, 239), class_color(1));
        let one = batch_picture(&batch(1, 96), &[]);
        assert_eq!(one.size, Size::square(96));
    }

    #[test]
    fn samples_of_a_gpu_look_as_those_that_are_painted() {
        let images = (0..5).map(|index| drawn(Size::square(64), Xyxy::new(index as f32, 0.0, index as f32 + 30.0, 30.0)));
        let set = Arc::new(set_of(images.collect(), 64));
        let first = |paints: bool| {
            let stream = Stream { hyp: Hyp::scratch_high(), seed: 1, n_images: 5, mosaic_ends: 9 };
            let options = LoaderOptions {
                truth_rows: truth_rows(&set, &stream, 1),
                stream,
                batch: 3,
                n_epochs: 1,
                first_batch: 0,
                n_workers: 1,
                sides: vec![],
                orders: None,
                paints,
            };
            Loader::start(&set, &options).unwrap().next().unwrap()
        };
        let (composed, pixels) = (first(false), first(true));
        assert!(composed.pixels.is_empty() && !composed.compositions.is_empty());
        let picture = batch_picture(&painted(&composed, &set).unwrap(), &[]);
        assert_eq!(picture, batch_picture(&pixels, &[]));
        assert_ne!(picture, batch_picture(&composed, &[]), "nothing but gray");
    }

    #[test]
    fn a_batch_is_written_into_the_report() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("report")).unwrap();
        let path = write_batch(root.path(), 2, &batch(2, 64), &[]).unwrap();
        assert!(path.ends_with("report/train_batch2.jpg"));
        assert_eq!(decode(&path).unwrap().size, Size::new(128, 64));
        assert!(write_batch(&root.path().join("nowhere"), 0, &batch(1, 64), &[]).is_err());
    }
}
