//! A composition becomes pixels, on the CPU.
//!
//! In:  a composition, the fitted pictures that it names.
//! Out: RGB bytes of the sample (height, width, 3).
//!
//! The canvas is never laid out as long as the map is upright (no rotation, shear or tilt): each of its rows is put together from
//! tiles when the warp asks for it. Buffers stay for the next sample, so nothing is allocated in the long run.
//!
//! Never decides anything: the arithmetic is told in `composition.rs`.

use super::composition::Composition;
use super::composition::Layer;
use crate::media::Picture;
use crate::media::color::shift_hsv;
use crate::media::resize::PADDING;
use crate::media::warp::Warp;
use crate::media::warp::WarpBuffers;
use crate::media::warp::warp;

/// Buffers of one thread.
#[derive(Default)]
pub struct Painter {
    buffers: WarpBuffers,
    /// The second layer of a mixup.
    second: Vec<u8>,
    /// A canvas row without pastes.
    plain: Vec<u8>,
}

impl Painter {
    /// Fills `pixels`. `picture(image)` gives the fitted picture of that index.
    pub fn paint<'a>(&mut self, composition: &Composition, picture: &dyn Fn(usize) -> &'a Picture, pixels: &mut [u8]) {
        self.paint_layer(composition, &composition.layer, picture, pixels);
        if let Some(second) = &composition.mixup {
            let mut behind = std::mem::take(&mut self.second);
            behind.resize(pixels.len(), 0);
            self.paint_layer(composition, &second.layer, picture, &mut behind);
            mix(pixels, &behind, second.share);
            self.second = behind;
        }
        if let Some(gains) = composition.hsv_gains {
            shift_hsv(pixels, gains);
        }
    }

    fn paint_layer<'a>(&mut self, composition: &Composition, layer: &Layer, picture: &dyn Fn(usize) -> &'a Picture, pixels: &mut [u8]) {
        let pictures: Vec<&Picture> = layer.tiles.iter().map(|tile| picture(tile.image)).collect();
        let job = Warp {
            map: layer.map,
            source: layer.canvas,
            output: crate::geom::Size::square(composition.side),
            flip_horizontal: composition.flip_horizontal,
            flip_vertical: composition.flip_vertical,
        };
        let plain = &mut self.plain;
        let mut row = |y: u32, line: &mut [u8]| {
            canvas_row(layer, &pictures, y, line);
            let first = layer.pastes.partition_point(|span| span.y < y);
            let spans = layer.pastes[first..].iter().take_while(|span| span.y == y);
            if layer.pastes.get(first).is_some_and(|span| span.y == y) {
                plain.clear();
                plain.extend_from_slice(line);
            }
            for span in spans {
                let (start, end, width) = (span.start as usize, span.end as usize, layer.canvas.width as usize);
                let mirrored = plain[(width - end) * 3..(width - start) * 3].as_chunks::<3>().0;
                for (pixel, mirrored) in line[start * 3..end * 3].as_chunks_mut::<3>().0.iter_mut().zip(mirrored.iter().rev()) {
                    *pixel = *mirrored;
                }
            }
        };
        warp(&job, &mut row, &mut self.buffers, pixels);
    }
}

/// A row of the canvas without pastes.
fn canvas_row(layer: &Layer, pictures: &[&Picture], y: u32, line: &mut [u8]) {
    line.fill(PADDING);
    for (tile, picture) in layer.tiles.iter().zip(pictures) {
        if y.wrapping_sub(tile.place[1]) < tile.size.height {
            let source_row = (tile.source[1] + y - tile.place[1]) as usize;
            let from = (source_row * picture.size.width as usize + tile.source[0] as usize) * 3;
            let length = tile.size.width as usize * 3;
            line[tile.place[0] as usize * 3..][..length].copy_from_slice(&picture.rgb[from..][..length]);
        }
    }
}

fn mix(first: &mut [u8], second: &[u8], share: u32) {
    for (first, second) in first.iter_mut().zip(second) {
        *first = ((u32::from(*first) * share + u32::from(*second) * (65536 - share)) >> 16) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixing_cuts_the_fraction_off_and_keeps_what_is_equal() {
        let mut first = [0, 255, 100, 100, 7];
        mix(&mut first, &[255, 255, 101, 100, 0], 32768);
        assert_eq!(first, [127, 255, 100, 100, 3]);
        let mut first = [0, 255, 100];
        mix(&mut first, &[200, 0, 100], 16384);
        assert_eq!(first, [150, 63, 100]);
    }
}
