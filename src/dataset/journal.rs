//! The journals of earlier versions, which kept each batch of fixes in a file of its own, so that these can still be taken back; and the
//! folder in the user's state directory where what was done to a dataset is kept.
//!
//! In:  a folder with `NNNN.json`, each the original bytes of the files of a batch.
//! Out: the last batch that was not undone; an undone one is renamed to `NNNN.undone.json` and kept.
//!
//! Nothing new is written in this form: see `ledger.rs`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout;
use super::open::DatasetError;
use super::replace;

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

/// Whether there is a batch that was not undone.
pub(super) fn has_batch(folder: &Path) -> bool {
    numbers(folder).any(|number| folder.join(format!("{number:04}.json")).is_file())
}

/// Marks a batch as undone; it is kept.
pub(super) fn mark_undone(path: &Path) -> Result<(), DatasetError> {
    let failed = |source| DatasetError::Write { path: path.display().to_string(), source };
    std::fs::rename(path, path.with_extension("undone.json")).map_err(failed)?;
    path.parent().map_or(Ok(()), replace::sync_folder).map_err(failed)
}

/// The numbers of all batches, undone ones too.
fn numbers(folder: &Path) -> impl Iterator<Item = u32> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.split_once('.').filter(|(_, ending)| ending.ends_with("json"))?.0.parse().ok())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// As earlier versions wrote it.
    fn write(folder: &Path, number: u32, file: &str, original: &[u8], written: &[u8]) -> PathBuf {
        let path = folder.join(format!("{number:04}.json"));
        let hex: String = original.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let original = std::str::from_utf8(original).map_or_else(|_| Bytes::Hex(hex), |text| Bytes::Text(text.to_owned()));
        let written = blake3::hash(written).to_hex().to_string();
        let entry = Entry { path: Bytes::Text(file.to_owned()), original, written };
        let batch = Batch { boxwright_journal: 1, dataset: "/a".to_owned(), files: vec![entry] };
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(&path, serde_json::to_vec_pretty(&batch).unwrap()).unwrap();
        path
    }

    #[test]
    fn a_batch_reads_back_with_any_bytes() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path(), Path::new("/no/such/data set"));
        assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("dataset-"));
        assert!(last_batch(&folder).unwrap().is_none() && !has_batch(&folder));
        write(&folder, 1, "/a/ö.txt", b"\xFF\x00a\r\n", b"new");
        write(&folder, 2, "/a/b.txt", b"x", b"y");
        let (path, _) = last_batch(&folder).unwrap().unwrap();
        assert!(path.ends_with("0002.json") && has_batch(&folder));
        mark_undone(&path).unwrap();
        let entry = &last_batch(&folder).unwrap().unwrap().1.files[0];
        assert_eq!((entry.path().unwrap(), entry.original().unwrap()), (PathBuf::from("/a/ö.txt"), b"\xFF\x00a\r\n".to_vec()));
        assert!(entry.wrote(b"new") && !entry.wrote(b"other"));
    }

    #[test]
    fn a_damaged_journal_is_told() {
        let state = tempfile::tempdir().unwrap();
        let path = write(state.path(), 1, "/a.txt", b"x", b"y");
        for text in ["{", r#"{"boxwright_journal": 2, "dataset": "", "files": []}"#] {
            std::fs::write(&path, text).unwrap();
            let error = last_batch(state.path()).unwrap_err();
            assert!(matches!(error, DatasetError::Journal { .. }) && error.hint().is_some(), "{error}");
        }
    }
}
