//! The journal of fixes: what the files held before, so that a batch can be taken back; and the atomic replacement of a file.
//!
//! In:  a batch: for each file its original bytes and the hash of the bytes that replace them.
//! Out: one JSON file a batch, synced to disk before the first file is replaced, in a folder for each dataset below
//!      `journals` in the user's state directory; a plain-text receipt beside it.
//!
//! A journal is readable with a text editor; bytes that are no UTF-8 are in hexadecimal. Batches are numbered from 1;
//! an undone one is renamed to `NNNN.undone.json` and kept. Never writes into the dataset except through `replace_file`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout;
use super::open::DatasetError;

/// One batch of replaced files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Batch {
    /// Version of this format.
    boxwright_journal: u32,
    pub(super) dataset: String,
    pub(super) files: Vec<Entry>,
}

/// One file of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    path: Bytes,
    original: Bytes,
    /// blake3 of what was written, in hexadecimal.
    written: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Bytes {
    Text(String),
    Hex(String),
}

impl Bytes {
    fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(
                bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect(),
            ),
        }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Hex(hex) if hex.len() % 2 == 0 && hex.is_ascii() => {
                (0..hex.len() / 2).map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()).collect()
            }
            Self::Hex(_) => None,
        }
    }
}

impl Entry {
    pub(super) fn new(path: &Path, original: &[u8], written: &[u8]) -> Self {
        let path = Bytes::new(path.as_os_str().as_encoded_bytes());
        Self { path, original: Bytes::new(original), written: blake3::hash(written).to_hex().to_string() }
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        self.path.bytes().map(|bytes| PathBuf::from(layout::os_string(&bytes)))
    }

    pub(super) fn original(&self) -> Option<Vec<u8>> {
        self.original.bytes()
    }

    /// Whether these are the bytes that the batch wrote.
    pub(super) fn wrote(&self, bytes: &[u8]) -> bool {
        blake3::hash(bytes).to_hex().as_str() == self.written
    }
}

impl Batch {
    pub(super) fn new(dataset: &Path, files: Vec<Entry>) -> Self {
        Self { boxwright_journal: 1, dataset: dataset.display().to_string(), files }
    }

    /// Writes the batch under the next number and waits until it is on disk.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf, DatasetError> {
        let failed = |path: &Path, source| DatasetError::Write { path: path.display().to_string(), source };
        std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let mut number = numbers(folder).max().unwrap_or(0) + 1;
        let (path, mut file) = loop {
            let path = folder.join(format!("{number:04}.json"));
            match std::fs::File::create_new(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1, // another program was faster
                Err(source) => return Err(failed(&path, source)),
            }
        };
        let text = serde_json::to_vec_pretty(self).expect("strings and numbers always serialize");
        let written = file.write_all(&text).and_then(|()| file.sync_all()).and_then(|()| sync_folder(folder));
        if let Err(source) = written {
            std::fs::remove_file(&path).ok(); // half a journal is worth nothing, and no file was touched yet
            return Err(failed(&path, source));
        }
        Ok(path)
    }

    fn read(path: &Path) -> Result<Self, DatasetError> {
        let bytes = std::fs::read(path).map_err(|source| DatasetError::Io { path: path.display().to_string(), source })?;
        let damaged = |reason: String| DatasetError::Journal { path: path.display().to_string(), reason };
        let batch: Self = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if batch.boxwright_journal == 1 { Ok(batch) } else { Err(damaged(format!("it has version {}", batch.boxwright_journal))) }
    }
}

/// The folder of a dataset's journals: named after its folder, and unique by the hash of the whole path.
pub(super) fn folder(state_dir: &Path, root: &Path) -> PathBuf {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    let name: String =
        root.file_name().unwrap_or_default().to_string_lossy().chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    state_dir.join("journals").join(format!("{name}-{}", &hash[..16]))
}

/// The last batch that was not undone, with its file.
pub(super) fn last_batch(folder: &Path) -> Result<Option<(PathBuf, Batch)>, DatasetError> {
    let last = numbers(folder).filter(|number| folder.join(format!("{number:04}.json")).is_file()).max();
    last.map(|number| folder.join(format!("{number:04}.json"))).map(|path| Batch::read(&path).map(|batch| (path, batch))).transpose()
}

/// Marks a batch as undone; it is kept.
pub(super) fn mark_undone(path: &Path) -> Result<(), DatasetError> {
    let failed = |source| DatasetError::Write { path: path.display().to_string(), source };
    std::fs::rename(path, path.with_extension("undone.json")).map_err(failed)?;
    path.parent().map_or(Ok(()), sync_folder).map_err(failed)
}

/// The numbers of all batches, undone ones too.
fn numbers(folder: &Path) -> impl Iterator<Item = u32> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.split_once('.').filter(|(_, ending)| ending.ends_with("json"))?.0.parse().ok())
}

/// Why a file was not replaced.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// The file is not as expected: left alone, others may go on.
    Refused(String),
    /// The disk does not take it.
    Failed(std::io::Error),
}

/// Replaces a file that holds `expected` by `bytes`, as a whole or not at all: temporary file in the same folder, sync,
/// rename. The mode is kept, a link is followed.
pub(super) fn replace_file(path: &Path, expected: &[u8], bytes: &[u8]) -> Result<(), ReplaceError> {
    let target = path.canonicalize().map_err(|error| ReplaceError::Refused(format!("cannot be found any more: {error}")))?;
    let metadata = std::fs::metadata(&target).map_err(|error| ReplaceError::Refused(format!("cannot be read: {error}")))?;
    if metadata.permissions().readonly() {
        return Err(ReplaceError::Refused("is read-only".to_owned()));
    }
    let folder = target.parent().unwrap_or(Path::new("/"));
    let write = || -> std::io::Result<tempfile::NamedTempFile> {
        let mut temporary = tempfile::Builder::new().prefix(OsStr::new(".boxwright-")).suffix(".tmp").tempfile_in(folder)?;
        temporary.write_all(bytes)?;
        std::fs::set_permissions(temporary.path(), metadata.permissions())?;
        temporary.as_file().sync_all()?;
        Ok(temporary)
    };
    let temporary = write().map_err(ReplaceError::Failed)?;
    // As late as possible: what somebody else wrote meanwhile must not be lost.
    match std::fs::read(&target) {
        Ok(now) if now == expected => {}
        Ok(_) => return Err(ReplaceError::Refused("was changed by another program meanwhile".to_owned())),
        Err(error) => return Err(ReplaceError::Refused(format!("cannot be read: {error}"))),
    }
    temporary.persist(&target).map_err(|error| ReplaceError::Failed(error.error))?;
    Ok(())
}

/// Makes renames in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { std::fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_batch_reads_back_with_any_bytes() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path(), Path::new("/no/such/data set"));
        assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("dataset-"));
        assert_eq!(last_batch(&folder).unwrap(), None);
        let entry = Entry::new(Path::new("/a/ö.txt"), b"\xFF\x00a\r\n", b"new");
        assert_eq!((entry.path().unwrap(), entry.original().unwrap()), (PathBuf::from("/a/ö.txt"), b"\xFF\x00a\r\n".to_vec()));
        assert!(entry.wrote(b"new") && !entry.wrote(b"other"));
        let first = Batch::new(Path::new("/a"), vec![entry]);
        let second = Batch::new(Path::new("/a"), vec![Entry::new(Path::new("/a/b.txt"), b"x", b"y")]);
        first.write(&folder).unwrap();
        second.write(&folder).unwrap();
        let (path, batch) = last_batch(&folder).unwrap().unwrap();
        assert_eq!(batch, second);
        mark_undone(&path).unwrap();
        assert_eq!(last_batch(&folder).unwrap().unwrap().1, first);
        assert!(second.write(&folder).unwrap().ends_with("0003.json"), "numbers are not used again");
    }

    #[test]
    fn a_damaged_journal_is_told() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("0001.json"), "{\"boxwright_journal\": 1").unwrap();
        assert!(matches!(last_batch(state.path()), Err(DatasetError::Journal { .. })));
    }

    #[test]
    fn a_file_that_changed_or_is_read_only_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "now").unwrap();
        assert!(matches!(replace_file(&path, b"before", b"after"), Err(ReplaceError::Refused(reason)) if reason.contains("changed")));
        assert_eq!(std::fs::read(&path).unwrap(), b"now");

        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions).unwrap();
        assert!(matches!(replace_file(&path, b"now", b"after"), Err(ReplaceError::Refused(reason)) if reason.contains("read-only")));
        assert!(matches!(replace_file(&folder.path().join("b.txt"), b"", b""), Err(ReplaceError::Refused(_))));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[cfg(unix)]
    #[test]
    fn the_mode_is_kept_and_a_link_stays_a_link() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.txt"), folder.path().join("link.txt"));
        std::fs::write(&path, "a").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("a.txt", &link).unwrap();
        replace_file(&link, b"a", b"b").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"b");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
