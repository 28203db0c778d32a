//! Tiles of large pictures for the window: cut by a worker thread on request, kept within a memory bound.
//!
//! In:  which tile of which level. Out: its pixels with one pixel of its neighbours around, so that enlarged tiles meet
//! without a seam. A tile at the edge of the picture is smaller, and repeats the edge instead.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::pyramid::Pyramids;
use crate::geom::Size;
use crate::media::Picture;

/// Pixels of a side, without what lies around.
pub const TILE_SIDE: u32 = 512;
/// Pixels of the neighbours on each side.
pub const TILE_BORDER: u32 = 1;
/// Bytes of tiles that are kept.
const BUDGET_BYTES: usize = 192 << 20;
/// Waiting requests; more are refused and asked for again by the next frame.
const MAX_WAITING: usize = 64;

/// A tile: column and row of a level, where level 0 is the picture at full size and each next one half of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileKey {
    pub path: PathBuf,
    pub level: u32,
    pub column: u32,
    pub row: u32,
}

#[derive(Clone, Debug)]
pub enum TileState {
    Loading,
    Ready(Arc<Picture>),
    /// Why it cannot be shown.
    Failed(String),
}

/// The cache. Reading (`get`) never blocks.
pub struct Tiles {
    entries: HashMap<TileKey, Entry>,
    n_bytes: usize,
    clock: u64,
    pyramids: Arc<Pyramids>,
    requests: Sender<TileKey>,
    results: Receiver<(TileKey, TileState)>,
}

struct Entry {
    state: TileState,
    last_request: u64,
}

impl Tiles {
    pub(super) fn new(pyramids: Arc<Pyramids>, wake: &Arc<dyn Fn() + Send + Sync>) -> Self {
        let (requests, inbox) = bounded::<TileKey>(MAX_WAITING);
        let (outbox, results) = bounded(MAX_WAITING);
        let (wake, shared) = (wake.clone(), pyramids.clone());
        let worker = move || {
            for key in inbox {
                let state = cut(&shared, &key);
                if outbox.send((key, state)).is_err() {
                    return;
                }
                wake();
            }
        };
        // Without its thread the cache stays empty, and the window shows large pictures less sharp.
        std::thread::Builder::new().name("tiles".to_owned()).spawn(worker).ok();
        Self { entries: HashMap::new(), n_bytes: 0, clock: 0, pyramids, requests, results }
    }

    /// What is known of a tile; `None` when nobody asked for it (or it was dropped since).
    pub fn get(&self, key: &TileKey) -> Option<&TileState> {
        self.entries.get(key).map(|entry| &entry.state)
    }

    /// Asks for a tile, or says that it is still wanted.
    pub(super) fn request(&mut self, key: TileKey) {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.last_request = self.clock;
        } else if self.requests.try_send(key.clone()).is_ok() {
            self.entries.insert(key, Entry { state: TileState::Loading, last_request: self.clock });
        }
    }

    /// Lets what failed be asked for again.
    pub(super) fn forget(&mut self) {
        self.entries.retain(|_, entry| matches!(entry.state, TileState::Loading));
        self.n_bytes = 0;
        self.pyramids.forget();
    }

    /// Takes in what was cut, and drops the longest unused above the bound.
    pub(super) fn poll(&mut self) {
        while let Ok((key, state)) = self.results.try_recv() {
            if let Some(entry) = self.entries.get_mut(&key) {
                self.n_bytes += bytes_of(&state);
                entry.state = state;
            }
        }
        while self.n_bytes > BUDGET_BYTES {
            let ready = self.entries.iter().filter(|(_, entry)| !matches!(entry.state, TileState::Loading));
            let Some(oldest) = ready.min_by_key(|(_, entry)| entry.last_request).map(|(key, _)| key.clone()) else { return };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.n_bytes -= bytes_of(&entry.state);
            }
        }
    }
}

fn bytes_of(state: &TileState) -> usize {
    match state {
        TileState::Ready(picture) => picture.rgb.len(),
        TileState::Loading | TileState::Failed(_) => 0,
    }
}

fn cut(pyramids: &Pyramids, key: &TileKey) -> TileState {
    let tile = pyramids.get(&key.path).and_then(|pyramid| {
        let level = pyramid.level_size(key.level as usize).ok_or("there is no such level")?;
        let (left, top) = (key.column * TILE_SIDE, key.row * TILE_SIDE);
        let side = |start: u32, whole: u32| whole.saturating_sub(start).min(TILE_SIDE);
        let inner = Size::new(side(left, level.width), side(top, level.height));
        if inner.width == 0 || inner.height == 0 {
            return Err("the tile lies outside of the picture".to_owned());
        }
        let border = i64::from(TILE_BORDER);
        let size = Size::new(inner.width + 2 * TILE_BORDER, inner.height + 2 * TILE_BORDER);
        pyramid.part(key.level as usize, (i64::from(left) - border, i64::from(top) - border), size)
    });
    tile.map_or_else(TileState::Failed, |picture| TileState::Ready(Arc::new(picture)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(path: &std::path::Path, level: u32, column: u32, row: u32) -> TileKey {
        TileKey { path: path.to_path_buf(), level, column, row }
    }

    #[test]
    fn tiles_cover_the_picture_and_share_their_borders() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        let size = Size::new(700, 530);
        let rgb = (0..530u32).flat_map(|y| (0..700u32).flat_map(move |x| [(x % 251) as u8, (y % 241) as u8, 7])).collect();
        crate::media::encode::encode(&path, &Picture { size, rgb }, 90).unwrap();
        let pyramids = Pyramids::default();
        let tile = |level, column, row| match cut(&pyramids, &key(&path, level, column, row)) {
            TileState::Ready(picture) => picture,
            other => panic!("{other:?}"),
        };
        assert_eq!(tile(0, 0, 0).size, Size::new(514, 514));
        assert_eq!(tile(0, 1, 1).size, Size::new(700 - 512 + 2, 530 - 512 + 2));
        assert_eq!(tile(1, 0, 0).size, Size::new(352, 267));
        let at = |picture: &Picture, x: u32, y: u32| picture.rgb[((y * picture.size.width + x) * 3) as usize];
        assert_eq!(at(&tile(0, 0, 0), 513, 5), at(&tile(0, 1, 0), 1, 5), "the border is the neighbour's first column");
        assert!(matches!(cut(&pyramids, &key(&path, 0, 2, 0)), TileState::Failed(_)));
    }

    #[test]
    fn the_cache_answers_after_a_poll_and_stays_within_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        let picture = Picture { size: Size::new(40, 30), rgb: vec![9; 40 * 30 * 3] };
        crate::media::encode::encode(&path, &picture, 90).unwrap();
        let (woken, waiting) = bounded(1);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || woken.send(()).unwrap());
        let mut tiles = Tiles::new(Arc::default(), &wake);
        tiles.request(key(&path, 0, 0, 0));
        assert!(matches!(tiles.get(&key(&path, 0, 0, 0)), Some(TileState::Loading)));
        waiting.recv().unwrap();
        tiles.poll();
        assert!(matches!(tiles.get(&key(&path, 0, 0, 0)), Some(TileState::Ready(_))));
        tiles.n_bytes += BUDGET_BYTES;
        tiles.poll();
        assert!(tiles.get(&key(&path, 0, 0, 0)).is_none());
        tiles.request(key(&dir.path().join("none.png"), 0, 0, 0));
        waiting.recv().unwrap();
        tiles.poll();
        tiles.forget();
        assert!(tiles.entries.is_empty());
    }
}
