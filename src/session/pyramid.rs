//! How is a picture of hundreds of millions of pixels looked at? Decoded once, kept in halves, read in parts.
//!
//! In:  a path. Out: any part of the picture, at full size or halved some times, as RGB.
//!
//! Level 0 is the picture as the trainer sees it; each further level averages 2 x 2 pixels of the one before. A small pyramid
//! stays in memory, a large one goes to a file without a name in the system's temporary folder, which the system removes
//! with the process. `Pyramids` keeps a few. Never writes beside the picture.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::prelude::*;

use super::failure::Failure;
use crate::geom::Size;
use crate::media::Picture;
use crate::media::decode;
use crate::media::resize;

/// Pictures with a longer side, or with more pixels, are looked at in parts.
const MAX_SIDE: u32 = 8192;
const MAX_PIXELS: u64 = 1 << 24;
/// Pictures up to this are decoded by several threads at a time: 200 MB each.
const MAX_SHARED_PIXELS: u64 = 1 << 26;
/// Pyramids up to this stay in memory.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
/// So many are kept.
const MAX_PYRAMIDS: usize = 3;
/// The last level has no longer side than this.
const LEAST_SIDE: u32 = 512;

/// Whether a picture is too large for one texture, or for decoding it once a level.
pub fn is_large(size: Size) -> bool {
    size.width.max(size.height) > MAX_SIDE || u64::from(size.width) * u64::from(size.height) > MAX_PIXELS
}

/// A picture in halves.
#[derive(Debug)]
pub(super) struct Pyramid {
    levels: Vec<Level>,
    store: Store,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    size: Size,
    /// Of its first byte in the store.
    start: u64,
}

#[derive(Debug)]
enum Store {
    Memory(Vec<u8>),
    File(Mutex<File>),
}

impl Pyramid {
    /// Makes the pyramid of a decoded picture. Where the temporary folder is full it stays in memory.
    fn new(picture: Picture, max_memory_bytes: u64) -> Self {
        let mut levels = vec![Level { size: picture.size, start: 0 }];
        while let Some(last) = levels.last().filter(|level| level.size.width.max(level.size.height) > LEAST_SIDE) {
            let half = |side: u32| side.div_ceil(2);
            levels.push(Level { size: Size::new(half(last.size.width), half(last.size.height)), start: last.start + bytes_of(last.size) });
        }
        let n_bytes = levels.last().map_or(0, |level| level.start + bytes_of(level.size));
        let file = (n_bytes > max_memory_bytes).then(tempfile::tempfile).and_then(Result::ok);
        if let Some(file) = file
            && let Some(store) = written(&picture, levels.len(), file)
        {
            return Self { levels, store };
        }
        let Picture { mut size, rgb: mut all } = picture;
        let mut start = 0;
        for _ in 1..levels.len() {
            let half = halved(&all[start..], size);
            start = all.len();
            size = half.size;
            all.extend_from_slice(&half.rgb);
        }
        Self { levels, store: Store::Memory(all) }
    }

    pub(super) fn full_size(&self) -> Size {
        self.levels[0].size
    }

    pub(super) fn level_size(&self, level: usize) -> Option<Size> {
        self.levels.get(level).map(|level| level.size)
    }

    /// A part of a level: columns `x..x + size.width`, rows `y..y + size.height`. Beyond the edge its pixels are repeated.
    ///
    /// # Errors
    /// There is no such level; or the temporary file cannot be read.
    pub(super) fn part(&self, level: usize, (x, y): (i64, i64), size: Size) -> Result<Picture, String> {
        let Level { size: whole, start } = *self.levels.get(level).ok_or("there is no such level")?;
        let within = |at: i64, side: u32| at.clamp(0, i64::from(side) - 1) as u64;
        let (first, last) = (within(x, whole.width), within(x + i64::from(size.width) - 1, whole.width));
        let mut row = vec![0; (last - first + 1) as usize * 3];
        let mut rgb = Vec::with_capacity(bytes_of(size) as usize);
        let mut read_row = u64::MAX;
        for line in 0..i64::from(size.height) {
            let wanted = within(y + line, whole.height);
            if wanted != read_row {
                self.read(start + (wanted * u64::from(whole.width) + first) * 3, &mut row)?;
                read_row = wanted;
            }
            for column in 0..i64::from(size.width) {
                let at = (within(x + column, whole.width) - first) as usize * 3;
                rgb.extend_from_slice(&row[at..at + 3]);
            }
        }
        Ok(Picture { size, rgb })
    }

    /// The whole picture with its longer side at most `max_side`, shrunk from the level above.
    ///
    /// # Errors
    /// As [`Pyramid::part`].
    pub(super) fn shrunk(&self, max_side: u32) -> Result<Picture, String> {
        let longest = |size: Size| size.width.max(size.height);
        let level = self.levels.iter().rposition(|level| longest(level.size) >= max_side).unwrap_or(0);
        let size = self.levels[level].size;
        let picture = self.part(level, (0, 0), size)?;
        let full = self.full_size();
        if longest(size) <= max_side {
            return Ok(picture);
        }
        let scale = f64::from(max_side) / f64::from(longest(full));
        let side = |side: u32| ((f64::from(side) * scale) as u32).max(1);
        Ok(resize::resize_area(&picture, Size::new(side(full.width), side(full.height))))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), String> {
        match &self.store {
            Store::Memory(bytes) => {
                out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
                Ok(())
            }
            Store::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let done = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(out));
                done.map_err(|error| format!("the temporary file cannot be read: {error}"))
            }
        }
    }
}

/// Writes all levels to a file; `None` when there is no room for them.
fn written(picture: &Picture, n_levels: usize, mut file: File) -> Option<Store> {
    file.write_all(&picture.rgb).ok()?;
    let mut last: Option<Picture> = None;
    for _ in 1..n_levels {
        let half = last.as_ref().map_or_else(|| halved(&picture.rgb, picture.size), |last| halved(&last.rgb, last.size));
        file.write_all(&half.rgb).ok()?;
        last = Some(half);
    }
    Some(Store::File(Mutex::new(file)))
}

fn bytes_of(size: Size) -> u64 {
    u64::from(size.width) * u64::from(size.height) * 3
}

/// Averages 2 x 2 pixels; a last column or row without a partner stands for both.
fn halved(rgb: &[u8], size: Size) -> Picture {
    let half = Size::new(size.width.div_ceil(2), size.height.div_ceil(2));
    let (row, out_row) = (size.width as usize * 3, half.width as usize * 3);
    let mut out = vec![0; out_row * half.height as usize];
    out.par_chunks_exact_mut(out_row).enumerate().for_each(|(y, out)| {
        let upper = &rgb[2 * y * row..][..row];
        let lower = &rgb[(2 * y + 1).min(size.height as usize - 1) * row..][..row];
        for (x, pixel) in out.chunks_exact_mut(3).enumerate() {
            let (left, right) = (x * 6, (x * 6 + 3).min(row - 3));
            for channel in 0..3 {
                let sum = [upper[left + channel], upper[right + channel], lower[left + channel], lower[right + channel]].map(u16::from);
                pixel[channel] = ((sum.iter().sum::<u16>() + 2) / 4) as u8;
            }
        }
    });
    Picture { size: half, rgb: out }
}

/// The pyramids that were wanted last. Shared by worker threads; each picture is decoded once however many want it.
#[derive(Default)]
pub(super) struct Pyramids {
    /// The last used at the end.
    slots: Mutex<VecDeque<Slot>>,
    /// Held while a picture is decoded: two at once would take twice the memory.
    decoding: Mutex<()>,
}

struct Slot {
    path: PathBuf,
    pyramid: Arc<OnceLock<Result<Arc<Pyramid>, String>>>,
}

impl Pyramids {
    /// Held while a picture of this size is decoded elsewhere; the largest ones only.
    pub(super) fn alone(&self, size: Size) -> Option<MutexGuard<'_, ()>> {
        let is_huge = u64::from(size.width) * u64::from(size.height) > MAX_SHARED_PIXELS;
        is_huge.then(|| self.decoding.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Files may have changed.
    pub(super) fn forget(&self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The pyramid of a picture; decodes it, or waits for another thread that does.
    ///
    /// # Errors
    /// Why the picture cannot be decoded; it is tried again next time.
    pub(super) fn get(&self, path: &Path) -> Result<Arc<Pyramid>, String> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let known = slots.iter().position(|slot| slot.path == path).and_then(|place| slots.remove(place));
            let slot = known.unwrap_or_else(|| Slot { path: path.to_path_buf(), pyramid: Arc::default() });
            let pyramid = slot.pyramid.clone();
            slots.push_back(slot);
            while slots.len() > MAX_PYRAMIDS {
                slots.pop_front();
            }
            pyramid
        };
        let made = slot.get_or_init(|| {
            let _alone = self.decoding.lock().unwrap_or_else(PoisonError::into_inner);
            let picture = decode::decode(path).map_err(|error| Failure::from_error(&error, None).message)?;
            Ok(Arc::new(Pyramid::new(picture, MAX_MEMORY_BYTES)))
        });
        if made.is_err() {
            self.slots.lock().unwrap_or_else(PoisonError::into_inner).retain(|slot| slot.path != path);
        }
        made.clone()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn gradient(width: u32, height: u32) -> Picture {
        let rgb = (0..height).flat_map(|y| (0..width).flat_map(move |x| [(x % 251) as u8, (y % 241) as u8, ((x + y) % 239) as u8]));
        Picture { size: Size::new(width, height), rgb: rgb.collect() }
    }

    #[test]
    fn strips_and_gigapixels_are_large_and_photos_are_not() {
        assert!(is_large(Size::new(30_000, 200)) && is_large(Size::new(20_000, 20_000)) && is_large(Size::square(4097)));
        assert!(!is_large(Size::new(4000, 3000)) && !is_large(Size::new(8192, 2048)));
    }

    #[test]
    fn levels_halve_by_averaging_also_at_odd_edges() {
        let rgb = [[0; 3], [10; 3], [100; 3], [20; 3], [30; 3], [50; 3]].concat();
        let half = halved(&rgb, Size::new(3, 2));
        assert_eq!((half.size, half.rgb), (Size::new(2, 1), [[15; 3], [75; 3]].concat()));
    }

    #[test]
    fn memory_and_file_give_the_same_parts() {
        let picture = gradient(1301, 700);
        let (memory, file) = (Pyramid::new(picture.clone(), u64::MAX), Pyramid::new(picture.clone(), 0));
        assert!(matches!((&memory.store, &file.store), (Store::Memory(_), Store::File(_))));
        assert_eq!(memory.levels.iter().map(|level| level.size.width).collect::<Vec<_>>(), [1301, 651, 326]);
        for (level, at) in [(0, (-1, -1)), (0, (1200, 600)), (1, (500, 10)), (2, (0, 0))] {
            let part = memory.part(level, at, Size::new(130, 114)).unwrap();
            assert_eq!(part, file.part(level, at, Size::new(130, 114)).unwrap(), "level {level} at {at:?}");
        }
        let part = memory.part(0, (-1, -1), Size::new(3, 3)).unwrap();
        assert_eq!(part.rgb[..6], [picture.rgb[..3].to_vec(), picture.rgb[..3].to_vec()].concat(), "the edge is repeated");
        assert_eq!(part.rgb[24..], picture.rgb[1302 * 3..1303 * 3]);
        assert!(memory.part(9, (0, 0), Size::square(4)).is_err());
    }

    #[test]
    fn the_whole_picture_is_shrunk_from_the_level_above() {
        let pyramid = Pyramid::new(gradient(3000, 20), u64::MAX);
        assert_eq!(pyramid.shrunk(768).unwrap().size, Size::new(768, 5));
        assert_eq!(pyramid.shrunk(192).unwrap().size, Size::new(192, 1));
        assert_eq!(pyramid.shrunk(8000).unwrap().size, Size::new(3000, 20));
    }

    #[test]
    fn a_picture_is_decoded_once_and_a_broken_one_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        let pyramids = Pyramids::default();
        assert!(pyramids.get(&path).is_err());
        crate::media::encode::encode(&path, &gradient(60, 40), 90).unwrap();
        let first = pyramids.get(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &pyramids.get(&path).unwrap()));
        for index in 0..MAX_PYRAMIDS {
            pyramids.get(&dir.path().join(format!("{index}"))).unwrap_err();
        }
        assert!(pyramids.slots.lock().unwrap().len() <= MAX_PYRAMIDS);
    }
}
