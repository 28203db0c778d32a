//! Thumbnails on disk, so that a large picture is decoded once and not at every visit.
//!
//! In:  a thumbnail and the file that it was made of, as the file system describes it.
//! Out: the same thumbnail the next time, unless the file changed.
//!
//! One file a thumbnail, named by the hash of path, size, time of change and side, spread over 256 folders; a JPEG behind a
//! checksum. Files are written under a temporary name and renamed; damaged ones count as absent. Above the bound those that
//! were not looked at for longest go. The folder is the user's cache: whoever empties it loses nothing but time.

use std::fs::{File, FileTimes};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::pictures::LoadedPicture;
use crate::geom::Size;
use crate::media::decode;
use crate::media::encode;

/// The last byte is the version.
const MAGIC: &[u8; 8] = b"BWTHUMB\x01";
const N_CHECKSUM: usize = 16;
/// Files take whole blocks.
const BLOCK_BYTES: u64 = 4096;
const QUALITY: u8 = 90;
/// When a thumbnail was last looked at is written down at most so often.
const TOUCHED_EVERY: Duration = Duration::from_hours(24);

/// The cache; workers share it.
pub(super) struct ThumbnailCache {
    folder: PathBuf,
    max_bytes: u64,
    /// Bytes on disk; `None` until they were counted.
    n_bytes: Mutex<Option<u64>>,
}

/// A picture file as it is now, and the side of its thumbnail.
pub(super) struct ThumbnailKey(String);

impl ThumbnailKey {
    /// `None` when there is no such file.
    pub(super) fn of(path: &Path, max_side: u32) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let mut hasher = blake3::Hasher::new();
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(format!("\0{} {modified} {max_side}", metadata.len()).as_bytes());
        Some(Self(hasher.finalize().to_hex()[..32].to_owned()))
    }
}

impl ThumbnailCache {
    /// Reads nothing yet; the folder need not exist.
    pub(super) fn new(folder: PathBuf, max_bytes: u64) -> Self {
        Self { folder, max_bytes, n_bytes: Mutex::new(None) }
    }

    /// The thumbnail, if it is there and whole.
    pub(super) fn get(&self, key: &ThumbnailKey) -> Option<LoadedPicture> {
        let path = self.path(key);
        let bytes = std::fs::read(&path).ok()?;
        let (checksum, body) = bytes.strip_prefix(MAGIC)?.split_at_checked(N_CHECKSUM)?;
        if blake3::hash(body).as_bytes()[..N_CHECKSUM] != *checksum {
            return None;
        }
        let (size, jpeg) = body.split_at_checked(8)?;
        let side = |at: usize| size[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let full_size = Size::new(side(0)?, side(4)?);
        let picture = decode::decode_bytes(jpeg).ok()?;
        touch(&path);
        Some(LoadedPicture { picture: picture.into(), full_size })
    }

    /// Keeps a thumbnail. A disk that does not take it costs time later, and nothing else.
    pub(super) fn put(&self, key: &ThumbnailKey, loaded: &LoadedPicture) -> std::io::Result<()> {
        let jpeg = encode::encode_jpeg(&loaded.picture, QUALITY).map_err(std::io::Error::other)?;
        let size = [loaded.full_size.width, loaded.full_size.height].map(u32::to_le_bytes).concat();
        let body = [size, jpeg].concat();
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(MAGIC)?;
        file.write_all(&blake3::hash(&body).as_bytes()[..N_CHECKSUM])?;
        file.write_all(&body)?;
        file.persist(&path)?;
        self.count(blocks(body.len() as u64 + 24));
        Ok(())
    }

    fn path(&self, key: &ThumbnailKey) -> PathBuf {
        self.folder.join(&key.0[..2]).join(format!("{}.bwthumb", &key.0[2..]))
    }

    /// Adds up what is on disk, and drops what is too much.
    fn count(&self, added: u64) {
        let mut n_bytes = self.n_bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let total = match *n_bytes {
            Some(before) => before + added,
            None => self.files().map(|file| file.n_bytes).sum(),
        };
        *n_bytes = Some(if total > self.max_bytes { self.drop_oldest() } else { total });
    }

    /// Brings the files well below the bound; returns what is left.
    fn drop_oldest(&self) -> u64 {
        let mut files: Vec<CachedFile> = self.files().collect();
        files.sort_by_key(|file| file.used);
        let mut left: u64 = files.iter().map(|file| file.n_bytes).sum();
        for file in files {
            if left <= self.max_bytes / 10 * 9 {
                break;
            }
            // Another process may have been faster.
            if std::fs::remove_file(&file.path).is_ok() {
                left -= file.n_bytes;
            }
        }
        left
    }

    /// Everything in the folders, also what an interrupted writing left.
    fn files(&self) -> impl Iterator<Item = CachedFile> {
        let folders = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
        files.filter_map(|file| {
            let metadata = file.metadata().ok()?;
            Some(CachedFile { path: file.path(), used: metadata.modified().ok()?, n_bytes: blocks(metadata.len()) })
        })
    }
}

struct CachedFile {
    path: PathBuf,
    used: SystemTime,
    n_bytes: u64,
}

fn blocks(n_bytes: u64) -> u64 {
    n_bytes.next_multiple_of(BLOCK_BYTES)
}

/// Notes that a thumbnail was looked at.
fn touch(path: &Path) {
    let now = SystemTime::now();
    let is_old = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age > TOUCHED_EVERY);
    if std::fs::metadata(path).and_then(|metadata| metadata.modified()).is_ok_and(is_old) {
        // Without it the thumbnail may be dropped early and is made anew.
        File::options().append(true).open(path).and_then(|file| file.set_times(FileTimes::new().set_modified(now))).ok();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::media::Picture;

    fn loaded(gray: u8) -> LoadedPicture {
        let picture = Picture { size: Size::new(16, 8), rgb: vec![gray; 16 * 8 * 3] };
        LoadedPicture { picture: picture.into(), full_size: Size::new(1600, 800) }
    }

    fn key(name: u32) -> ThumbnailKey {
        ThumbnailKey(blake3::hash(&name.to_le_bytes()).to_hex()[..32].to_owned())
    }

    #[test]
    fn a_thumbnail_comes_back_unless_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ThumbnailCache::new(folder.path().join("thumbnails"), 1 << 20);
        assert!(cache.get(&key(1)).is_none());
        cache.put(&key(1), &loaded(80)).unwrap();
        let found = cache.get(&key(1)).unwrap();
        assert_eq!((found.full_size, found.picture.size, found.picture.rgb[0]), (Size::new(1600, 800), Size::new(16, 8), 80));
        let path = cache.path(&key(1));
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(11) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert!(cache.get(&key(1)).is_none(), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(cache.get(&key(1)).is_none(), "{at} bytes");
        }
        cache.put(&key(1), &loaded(80)).unwrap();
        assert!(cache.get(&key(1)).is_some());
    }

    #[test]
    fn above_the_bound_the_longest_unused_go() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ThumbnailCache::new(folder.path().to_owned(), 10 * BLOCK_BYTES);
        for name in 0..10 {
            cache.put(&key(name), &loaded(1)).unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(1_000_000 - 1000 * u64::from(name % 5));
            File::options().append(true).open(cache.path(&key(name))).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
        }
        // One that is looked at becomes young.
        assert!(cache.get(&key(4)).is_some());
        cache.put(&key(10), &loaded(1)).unwrap();
        let kept: Vec<u32> = (0..=10).filter(|&name| cache.path(&key(name)).exists()).collect();
        assert_eq!(kept, [0, 1, 2, 4, 5, 6, 7, 8, 10], "3 and 9 were the oldest");
    }

    #[test]
    fn a_picture_that_changed_has_another_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, "1").unwrap();
        let before = ThumbnailKey::of(&path, 64).unwrap().0;
        assert_ne!(before, ThumbnailKey::of(&path, 128).unwrap().0);
        std::fs::write(&path, "12").unwrap();
        assert_ne!(before, ThumbnailKey::of(&path, 64).unwrap().0);
        assert!(ThumbnailKey::of(&folder.path().join("b.jpg"), 64).is_none());
    }
}
