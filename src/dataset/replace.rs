//! Replacing a file as a whole or not at all, if it still holds what is expected.
//!
//! In:  a path, the content that it had when it was read, the content that it is to have.
//! Out: the file with the new content on disk; or unchanged, and why.
//!
//! A temporary file in the same folder is written, synced and renamed, so that whoever reads sees the old content or the new one. The
//! rename itself is durable once the folder is synced. Never merges: a file that something else changed is left alone.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;

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

/// Brings a file from one content to another, where `None` means that there is no file: as a whole or not at all.
///
/// A new file gets the usual mode, and the folder it needs; one that holds nothing stays as an empty file.
pub(super) fn put_file(path: &Path, expected: Option<&[u8]>, bytes: Option<&[u8]>) -> Result<(), ReplaceError> {
    match (expected, bytes) {
        (None, None) => Ok(()),
        (Some(expected), Some(bytes)) => replace_file(path, expected, bytes),
        (Some(expected), None) => match std::fs::read(path) {
            Ok(now) if now == expected => std::fs::remove_file(path).map_err(ReplaceError::Failed),
            Ok(_) => Err(ReplaceError::Refused("was changed by another program meanwhile".to_owned())),
            Err(error) => Err(ReplaceError::Refused(format!("cannot be read: {error}"))),
        },
        (None, Some(bytes)) => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            let write = || -> std::io::Result<tempfile::NamedTempFile> {
                std::fs::create_dir_all(folder)?;
                let builder = &mut tempfile::Builder::new();
                // Not as a private file, which tempfile would make of it.
                let mut temporary = builder.prefix(OsStr::new(".boxwright-")).suffix(".tmp").make_in(folder, |path| {
                    std::fs::File::create_new(path) //
                })?;
                temporary.write_all(bytes)?;
                temporary.as_file().sync_all()?;
                Ok(temporary)
            };
            write().map_err(ReplaceError::Failed)?.persist_noclobber(path).map(drop).map_err(|error| match error.error.kind() {
                std::io::ErrorKind::AlreadyExists => ReplaceError::Refused("was made by another program meanwhile".to_owned()),
                _ => ReplaceError::Failed(error.error),
            })
        }
    }
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

    #[test]
    fn files_come_into_being_with_their_folder_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels/train/a.txt");
        put_file(&path, None, Some(b"")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"", "an empty file is a file");
        assert!(matches!(put_file(&path, None, Some(b"x")), Err(ReplaceError::Refused(reason)) if reason.contains("made by another")));
        assert!(matches!(put_file(&path, Some(b"x"), None), Err(ReplaceError::Refused(_))));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o044, 0o044, "others may read it");
        }
        put_file(&path, Some(b""), Some(b"x")).unwrap();
        put_file(&path, Some(b"x"), None).unwrap();
        assert!(!path.exists());
    }
}
