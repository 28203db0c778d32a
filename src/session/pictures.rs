//! Decoded pictures for the window: loaded by worker threads on request, kept within a memory bound.
//!
//! What was asked for last is decoded first (`request_queue.rs`). Small versions of large pictures come from a reduced
//! decoding, and stay on disk (`thumbnail_cache.rs`).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};

use super::failure::Failure;
use super::pyramid::{self, Pyramids};
use super::request_queue::RequestQueue;
use super::thumbnail_cache::{ThumbnailCache, ThumbnailKey};
use crate::geom::Size;
use crate::media::MediaError;
use crate::media::Picture;
use crate::media::decode;
use crate::media::decode::ReducedPicture;
use crate::media::resize;

/// A picture file at full size, or shrunk so that its longer side is at most `max_side`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PictureKey {
    pub path: PathBuf,
    pub max_side: Option<u32>,
}

/// A picture on its way to the screen.
#[derive(Clone, Debug)]
pub enum PictureState {
    Loading,
    Ready(LoadedPicture),
    /// Why it cannot be shown.
    Failed(String),
}

/// Pixels, and the size of the picture before shrinking.
#[derive(Clone, Debug)]
pub struct LoadedPicture {
    pub picture: Arc<Picture>,
    pub full_size: Size,
}

/// Bytes of decoded pictures that are kept.
const BUDGET_BYTES: usize = 512 << 20;
/// Results that wait to be taken in.
const MAX_RESULTS: usize = 64;
/// Threads that decode: as many as the machine has, within these.
const N_WORKERS: (usize, usize) = (2, 8);
/// Pictures up to this side are kept on disk, if making them took a large picture.
const MAX_KEPT_SIDE: u32 = 512;
const MIN_KEPT_PIXELS: u64 = 1 << 20;
/// Bytes of thumbnails on disk.
const CACHE_BYTES: u64 = 512 << 20;

/// The cache. Reading (`get`) never blocks and never decodes.
pub struct Pictures {
    entries: HashMap<PictureKey, Entry>,
    bytes: usize,
    /// Counts the calls of `poll`: a turn each.
    turn: u64,
    queue: Arc<RequestQueue>,
    results: Receiver<(PictureKey, PictureState)>,
}

struct Entry {
    state: PictureState,
    /// The turn in which it was last asked for.
    turn: u64,
}

impl Pictures {
    /// Starts the threads. Thumbnails are kept below `cache_dir`.
    pub(super) fn new(pyramids: &Arc<Pyramids>, cache_dir: &Path, wake: &Arc<dyn Fn() + Send + Sync>) -> Self {
        let queue = Arc::new(RequestQueue::default());
        let cache = Arc::new(ThumbnailCache::new(cache_dir.join("thumbnails"), CACHE_BYTES));
        let (outbox, results) = bounded(MAX_RESULTS);
        let n_workers = std::thread::available_parallelism().map_or(1, usize::from).clamp(N_WORKERS.0, N_WORKERS.1);
        for index in 0..n_workers {
            let (queue, cache, pyramids, outbox, wake) = (queue.clone(), cache.clone(), pyramids.clone(), outbox.clone(), wake.clone());
            let worker = move || {
                while let Some(key) = queue.take() {
                    // A fault in a decoder must not take the thread along.
                    let state = std::panic::catch_unwind(AssertUnwindSafe(|| load(&key, &pyramids, &cache)))
                        .unwrap_or_else(|_| PictureState::Failed("decoding failed inside".to_owned()));
                    if outbox.send((key, state)).is_err() {
                        return;
                    }
                    wake();
                }
            };
            // Without its threads the cache stays empty, and the window shows pictures as loading.
            std::thread::Builder::new().name(format!("pictures {index}")).spawn(worker).ok();
        }
        Self { entries: HashMap::new(), bytes: 0, turn: 0, queue, results }
    }

    /// What is known of a picture; `None` when nobody asked for it (or it was dropped since).
    pub fn get(&self, key: &PictureKey) -> Option<&PictureState> {
        self.entries.get(key).map(|entry| &entry.state)
    }

    /// Asks for a picture, or says that it is still wanted.
    pub(super) fn request(&mut self, key: PictureKey) {
        let Self { entries, turn, queue, .. } = self;
        if let Some(entry) = entries.get_mut(&key) {
            entry.turn = *turn;
            if matches!(entry.state, PictureState::Loading) {
                queue.renew(&key, *turn);
            }
            return;
        }
        let let_go = queue.ask(&key, *turn);
        entries.insert(key, Entry { state: PictureState::Loading, turn: *turn });
        if let Some(other) = let_go {
            entries.remove(&other);
        }
    }

    /// Lets what failed be asked for again.
    pub(super) fn forget(&mut self) {
        self.entries.retain(|_, entry| matches!(entry.state, PictureState::Loading));
        self.bytes = 0;
    }

    /// Takes in what the workers have decoded, lets go of what scrolled past, and drops the longest unused above the bound.
    pub(super) fn poll(&mut self) {
        self.turn += 1;
        for key in self.queue.let_go(self.turn) {
            self.entries.remove(&key);
        }
        while let Ok((key, state)) = self.results.try_recv() {
            if let Some(entry) = self.entries.get_mut(&key) {
                self.bytes = self.bytes + bytes_of(&state) - bytes_of(&entry.state);
                entry.state = state;
            }
        }
        if self.bytes > BUDGET_BYTES {
            self.drop_unused();
        }
    }

    /// A good deal at once, since looking for the longest unused takes time.
    fn drop_unused(&mut self) {
        let decoded = self.entries.iter().filter(|(_, entry)| !matches!(entry.state, PictureState::Loading));
        let mut decoded: Vec<(u64, PictureKey)> = decoded.map(|(key, entry)| (entry.turn, key.clone())).collect();
        decoded.sort_unstable_by_key(|(turn, _)| *turn);
        for (_, key) in decoded {
            if self.bytes <= BUDGET_BYTES / 8 * 7 {
                return;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= bytes_of(&entry.state);
            }
        }
    }
}

impl Drop for Pictures {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn bytes_of(state: &PictureState) -> usize {
    match state {
        PictureState::Ready(loaded) => loaded.picture.rgb.len(),
        PictureState::Loading | PictureState::Failed(_) => 0,
    }
}

fn load(key: &PictureKey, pyramids: &Pyramids, cache: &ThumbnailCache) -> PictureState {
    let reason = |error: MediaError| Failure::from_error(&error, None).message;
    let Some(max_side) = key.max_side else {
        return match decode::decode(&key.path) {
            Ok(picture) => PictureState::Ready(LoadedPicture { full_size: picture.size, picture: Arc::new(picture) }),
            Err(error) => PictureState::Failed(reason(error)),
        };
    };
    let kept = if max_side <= MAX_KEPT_SIDE { ThumbnailKey::of(&key.path, max_side) } else { None };
    if let Some(found) = kept.as_ref().and_then(|kept| cache.get(kept)) {
        return PictureState::Ready(found);
    }
    let size = || decode::probe(&key.path).ok();
    let is_large = || size().is_some_and(pyramid::is_large);
    let by_pyramid = || {
        let pyramid = pyramids.get(&key.path)?;
        Ok(LoadedPicture { picture: Arc::new(pyramid.shrunk(max_side)?), full_size: pyramid.full_size() })
    };
    let loaded = if kept.is_none() && is_large() {
        // Looked at closely: decoded once for all sizes and tiles.
        by_pyramid()
    } else {
        let shrunk = {
            let _alone = size().and_then(|size| pyramids.alone(size));
            shrunk(&key.path, max_side)
        };
        // Some are too large to be decoded at once.
        shrunk.map_err(reason).or_else(|reason| if is_large() { by_pyramid() } else { Err(reason) })
    };
    match loaded {
        Ok(loaded) => {
            let LoadedPicture { picture, full_size } = &loaded;
            let n_pixels = u64::from(full_size.width) * u64::from(full_size.height);
            if let Some(kept) = kept
                && n_pixels >= MIN_KEPT_PIXELS
                && *full_size != picture.size
            {
                // A disk that is full costs time at the next visit, and nothing else.
                cache.put(&kept, &loaded).ok();
            }
            PictureState::Ready(loaded)
        }
        Err(reason) => PictureState::Failed(reason),
    }
}

/// A picture whose longer side is at most `max_side`.
///
/// # Errors
/// As `decode::decode`.
pub fn shrunk(path: &Path, max_side: u32) -> Result<LoadedPicture, MediaError> {
    let ReducedPicture { picture, full_size } = decode::decode_reduced(path, max_side)?;
    let longest = full_size.width.max(full_size.height);
    let picture = if longest > max_side {
        let scale = f64::from(max_side) / f64::from(longest);
        let side = |side: u32| ((f64::from(side) * scale) as u32).max(1);
        resize::resize_area(&picture, Size::new(side(full_size.width), side(full_size.height)))
    } else {
        picture
    };
    Ok(LoadedPicture { picture: Arc::new(picture), full_size })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::media::encode;

    /// Polls until a picture is there.
    fn wait(pictures: &mut Pictures, key: &PictureKey, woken: &Receiver<()>) -> LoadedPicture {
        loop {
            pictures.poll();
            match pictures.get(key) {
                Some(PictureState::Ready(loaded)) => return loaded.clone(),
                Some(PictureState::Failed(reason)) => panic!("{reason}"),
                _ => woken.recv().unwrap(),
            }
            pictures.request(key.clone());
        }
    }

    #[test]
    fn a_large_picture_is_shrunk_and_its_thumbnail_kept_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        let gray = |gray: u8| Picture { size: Size::new(1600, 800), rgb: vec![gray; 1600 * 800 * 3] };
        encode::encode(&path, &gray(60), 90).unwrap();
        let (sender, woken) = bounded(64);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || sender.send(()).unwrap());
        let key = |max_side| PictureKey { path: path.clone(), max_side };
        let start = || Pictures::new(&Arc::default(), folder.path(), &wake);

        let mut pictures = start();
        for (max_side, expected) in
            [(Some(200), Size::new(200, 100)), (Some(1000), Size::new(1000, 500)), (Some(4000), Size::new(1600, 800))]
        {
            pictures.request(key(max_side));
            let loaded = wait(&mut pictures, &key(max_side), &woken);
            assert_eq!((loaded.picture.size, loaded.full_size), (expected, Size::new(1600, 800)));
            assert!(loaded.picture.rgb.iter().all(|value| value.abs_diff(60) <= 1));
        }
        let thumbnails = || {
            walkdir::WalkDir::new(folder.path().join("thumbnails"))
                .into_iter()
                .filter(|entry| entry.as_ref().unwrap().file_type().is_file())
                .count()
        };
        assert_eq!(thumbnails(), 1, "only what is small");
        encode::encode(&path, &gray(200), 90).unwrap();
        let mut pictures = start();
        pictures.request(key(Some(200)));
        assert!(wait(&mut pictures, &key(Some(200)), &woken).picture.rgb[0] >= 199, "not the thumbnail of before");
        assert_eq!(thumbnails(), 2);
    }

    #[test]
    fn a_file_that_is_no_picture_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, "text").unwrap();
        let cache = ThumbnailCache::new(folder.path().join("thumbnails"), 1 << 20);
        for max_side in [None, Some(100)] {
            let state = load(&PictureKey { path: path.clone(), max_side }, &Pyramids::default(), &cache);
            assert!(matches!(&state, PictureState::Failed(reason) if reason.contains("no picture")), "{state:?}");
        }
    }
}
