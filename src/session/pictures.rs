//! Decoded pictures for the window: loaded by worker threads on request, kept within a memory bound.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::failure::Failure;
use super::pyramid::{self, Pyramids};
use crate::geom::Size;
use crate::media::Picture;
use crate::media::decode;
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
/// Waiting requests; more are refused and asked for again by the next frame, so that scrolling past does not queue up.
const MAX_WAITING: usize = 64;

/// The cache. Reading (`get`) never blocks and never decodes.
pub struct Pictures {
    entries: HashMap<PictureKey, Entry>,
    bytes: usize,
    clock: u64,
    requests: Sender<PictureKey>,
    results: Receiver<(PictureKey, PictureState)>,
}

struct Entry {
    state: PictureState,
    last_request: u64,
}

impl Pictures {
    pub(super) fn new(pyramids: &Arc<Pyramids>, wake: &Arc<dyn Fn() + Send + Sync>) -> Self {
        let (requests, inbox) = bounded::<PictureKey>(MAX_WAITING);
        let (outbox, results) = bounded(MAX_WAITING);
        for index in 0..2 {
            let (inbox, outbox, pyramids, wake) = (inbox.clone(), outbox.clone(), pyramids.clone(), wake.clone());
            let worker = move || {
                for key in inbox {
                    let state = load(&pyramids, &key);
                    if outbox.send((key, state)).is_err() {
                        return;
                    }
                    wake();
                }
            };
            // Without its threads the cache stays empty, and the window shows pictures as loading.
            std::thread::Builder::new().name(format!("pictures {index}")).spawn(worker).ok();
        }
        Self { entries: HashMap::new(), bytes: 0, clock: 0, requests, results }
    }

    /// What is known of a picture; `None` when nobody asked for it (or it was dropped since).
    pub fn get(&self, key: &PictureKey) -> Option<&PictureState> {
        self.entries.get(key).map(|entry| &entry.state)
    }

    /// Asks for a picture, or says that it is still wanted.
    pub(super) fn request(&mut self, key: PictureKey) {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.last_request = self.clock;
        } else if self.requests.try_send(key.clone()).is_ok() {
            self.entries.insert(key, Entry { state: PictureState::Loading, last_request: self.clock });
        }
    }

    /// Takes in what the workers have decoded, and drops the longest unused above the bound.
    pub(super) fn poll(&mut self) {
        while let Ok((key, state)) = self.results.try_recv() {
            if let Some(entry) = self.entries.get_mut(&key) {
                self.bytes += bytes_of(&state);
                entry.state = state;
            }
        }
        while self.bytes > BUDGET_BYTES {
            let ready = self.entries.iter().filter(|(_, entry)| !matches!(entry.state, PictureState::Loading));
            let Some(oldest) = ready.min_by_key(|(_, entry)| entry.last_request).map(|(key, _)| key.clone()) else { return };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.bytes -= bytes_of(&entry.state);
            }
        }
    }
}

fn bytes_of(state: &PictureState) -> usize {
    match state {
        PictureState::Ready(loaded) => loaded.picture.rgb.len(),
        PictureState::Loading | PictureState::Failed(_) => 0,
    }
}

fn load(pyramids: &Pyramids, key: &PictureKey) -> PictureState {
    // A large picture is decoded once for all its sizes and tiles.
    if let Some(max_side) = key.max_side
        && decode::probe(&key.path).is_ok_and(pyramid::is_large)
    {
        let shrunk = pyramids.get(&key.path).and_then(|pyramid| Ok((pyramid.shrunk(max_side)?, pyramid.full_size())));
        return match shrunk {
            Ok((picture, full_size)) => PictureState::Ready(LoadedPicture { picture: Arc::new(picture), full_size }),
            Err(reason) => PictureState::Failed(reason),
        };
    }
    let picture = match decode::decode(&key.path) {
        Ok(picture) => picture,
        Err(error) => return PictureState::Failed(Failure::from_error(&error, None).message),
    };
    let full_size = picture.size;
    let longest = full_size.width.max(full_size.height);
    let picture = match key.max_side {
        Some(max_side) if longest > max_side => {
            let scale = f64::from(max_side) / f64::from(longest);
            let side = |side: u32| ((f64::from(side) * scale) as u32).max(1);
            resize::resize_area(&picture, Size::new(side(full_size.width), side(full_size.height)))
        }
        _ => picture,
    };
    PictureState::Ready(LoadedPicture { picture: Arc::new(picture), full_size })
}
