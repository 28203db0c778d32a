//! What a run leaves to look at: the final figures, and detections on the first validation pictures.
//!
//! In:  the outcome of the last validation. Out: `report/metrics.json` and `report/val.jpg`.
//!
//! Never validates itself.

use std::path::Path;

use serde_json::json;

use super::error::TrainError;
use super::run_folder::write_whole;
use crate::dataset::Dataset;
use crate::eval::ValOutcome;
use crate::geom::Letterbox;
use crate::geom::Size;
use crate::geom::letterbox::LetterboxOptions;
use crate::media::MediaError;
use crate::media::Picture;
use crate::media::decode::decode;
use crate::media::draw::class_color;
use crate::media::draw::draw_box;
use crate::media::encode::encode;
use crate::media::resize::apply_letterbox;

/// Pictures in a row and in a column of the grid, and the side of each.
const GRID: usize = 3;
const TILE: u32 = 320;

/// Writes `metrics.json`: the figures, with class names.
pub fn write_metrics(folder: &Path, outcome: &ValOutcome, dataset: &Dataset) -> Result<(), TrainError> {
    let mut metrics = json!(outcome.metrics);
    if let Some(classes) = metrics["classes"].as_array_mut() {
        for class in classes {
            let index = class["class"].as_u64().and_then(|index| usize::try_from(index).ok());
            class["name"] = index.and_then(|index| dataset.names.get(index)).cloned().unwrap_or_default().into();
        }
    }
    write_whole(&folder.join("metrics.json"), format!("{metrics:#}\n").as_bytes())
}

/// Writes `val.jpg`: the first pictures with their detections. Pictures that do not decode leave a gray tile.
pub fn write_grid(folder: &Path, outcome: &ValOutcome, dataset: &Dataset) -> Result<(), MediaError> {
    let shown = &outcome.detections[..outcome.detections.len().min(GRID * GRID)];
    let n_columns = shown.len().clamp(1, GRID);
    let n_rows = shown.len().div_ceil(n_columns).max(1);
    let size = Size::new(n_columns as u32 * TILE, n_rows as u32 * TILE);
    let mut grid = Picture { size, rgb: vec![114; size.width as usize * size.height as usize * 3] };
    for (place, (index, detections)) in shown.iter().enumerate() {
        let Ok(picture) = decode(&dataset.images[*index].path) else { continue };
        let letterbox = Letterbox::new(picture.size, Size::square(TILE), LetterboxOptions { auto: None, scale_up: true });
        let mut tile = apply_letterbox(&picture, &letterbox);
        for detection in detections {
            let name = dataset.names.get(detection.class).map_or("?", String::as_str);
            let text = format!("{name} {:.2}", detection.score);
            draw_box(&mut tile, letterbox.input_from_image(detection.bbox), class_color(detection.class), &text);
        }
        paste(&mut grid, &tile, place % n_columns * TILE as usize, place / n_columns * TILE as usize);
    }
    encode(&folder.join("val.jpg"), &grid, 90)
}

/// Copies a tile to (`left`, `top`) of the grid, inside of which it lies.
fn paste(grid: &mut Picture, tile: &Picture, left: usize, top: usize) {
    let (grid_row, tile_row) = (grid.size.width as usize * 3, tile.size.width as usize * 3);
    for (y, row) in tile.rgb.chunks_exact(tile_row).enumerate() {
        grid.rgb[(top + y) * grid_row + left * 3..][..tile_row].copy_from_slice(row);
    }
}
