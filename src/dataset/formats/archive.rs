//! Unpacking a zip of a dataset, however it was made.
//!
//! In:  a zip file, which may have been made to do harm.
//! Out: its files below a folder that is empty before; or an error, and then nothing that anybody reads.
//!
//! Entries with `..`, absolute names, drive letters and links are refused, so is what is encrypted. What entries say about
//! their size is not trusted: bytes are counted while they are written.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use crate::dataset::open::DatasetError;

/// Pictures hardly shrink, text does by 20 to 50: more than this is made to fill a disk.
const MAX_RATIO: u64 = 200;
/// Up to this size any ratio is fine.
const SMALL_BYTES: u64 = 256 << 20;
const MAX_BYTES: u64 = 200 << 30;
const MAX_ENTRIES: usize = 5_000_000;
/// The kind of a file in a Unix mode, and that of a link.
const KIND_MASK: u32 = 0o170_000;
const LINK: u32 = 0o120_000;

/// Whether a file begins as a zip does.
pub(in crate::dataset) fn is_zip(path: &Path) -> bool {
    let mut head = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *b"PK\x03\x04"
}

/// Unpacks an archive into an empty folder.
///
/// # Errors
/// When it is damaged, has an entry that leads out of the folder, or is far larger than it looks; on cancellation.
pub(in crate::dataset) fn unpack(
    path: &Path,
    folder: &Path,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<(), DatasetError> {
    let failed = |reason: String| DatasetError::Archive { path: path.display().to_string(), reason };
    let io = |error: std::io::Error| failed(error.to_string());
    let file = File::open(path).map_err(io)?;
    let packed = file.metadata().map_err(io)?.len();
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| failed(error.to_string()))?;
    if archive.len() > MAX_ENTRIES {
        return Err(failed(format!("has {} entries", archive.len())));
    }
    let limit = packed.saturating_mul(MAX_RATIO).clamp(SMALL_BYTES, MAX_BYTES);
    let mut left = limit;
    let n_entries = archive.len();
    for index in 0..n_entries {
        let mut entry = archive.by_index(index).map_err(|error| failed(format!("entry {}: {error}", index + 1)))?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let refused = |why: &str| failed(format!("entry {:?} {why}", name.chars().take(80).collect::<String>()));
        if entry.unix_mode().is_some_and(|mode| mode & KIND_MASK == LINK) {
            return Err(refused("is a link"));
        }
        let relative = safe_path(&name).map_err(&refused)?;
        if entry.is_dir() || is_clutter(&relative) {
            continue;
        }
        let target = folder.join(relative);
        let written = (|| {
            std::fs::create_dir_all(target.parent().unwrap_or(folder))?;
            let mut file = File::create_new(&target)?;
            std::io::copy(&mut (&mut entry).take(left + 1), &mut file)
        })();
        let n = written.map_err(|error| refused(&format!("cannot be unpacked: {error}")))?;
        left = left.checked_sub(n).ok_or_else(|| {
            refused(&format!("unpacks to more than {} MB, from an archive of {} MB", limit >> 20, packed.div_ceil(1 << 20))) //
        })?;
        if check_in(index as u64, n_entries as u64).is_break() {
            return Err(DatasetError::Cancelled);
        }
    }
    Ok(())
}

/// The path of an entry below the folder.
fn safe_path(name: &str) -> Result<PathBuf, &'static str> {
    let name = name.replace('\\', "/");
    if name.starts_with('/') {
        return Err("has an absolute name");
    }
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("leads out of its folder with \"..\"");
    }
    if parts.first().is_some_and(|part| part.len() == 2 && part.ends_with(':')) {
        return Err("has an absolute name");
    }
    if parts.is_empty() || name.contains('\0') {
        return Err("has no usable name");
    }
    Ok(parts.iter().collect())
}

/// What the archiver of macOS adds.
fn is_clutter(path: &Path) -> bool {
    path.starts_with("__MACOSX") || path.file_name().is_some_and(|name| name == ".DS_Store" || name.as_encoded_bytes().starts_with(b"._"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::super::FormatId;
    use super::super::tests::{convert_to, read};
    use super::*;
    use crate::dataset::open::tests::{folder, png};

    fn zipped(path: &Path, entries: &[(&str, &[u8], u32)]) {
        let mut zip = ZipWriter::new(File::create(path).unwrap());
        for (name, content, mode) in entries {
            zip.start_file(*name, SimpleFileOptions::default().unix_permissions(*mode)).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap();
    }

    fn refusal(path: &Path) -> String {
        let out = tempfile::tempdir().unwrap();
        let error = unpack(path, out.path(), &|_, _| ControlFlow::Continue(())).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string()
    }

    #[test]
    fn a_zip_is_converted_as_its_folder() {
        let root = folder(&[]);
        png(root.path(), "a.png", 100, 50);
        let picture = std::fs::read(root.path().join("a.png")).unwrap();
        let path = root.path().join("data.zip");
        let entries: [(&str, &[u8], u32); 5] = [
            ("set/data.yaml", b"train: images\nval: images\nnames: [x]\n", 0o644),
            ("set/images/a.png", &picture, 0o644),
            ("set/labels/a.txt", b"0 .5 .5 .2 .2\n", 0o644),
            ("__MACOSX/set/images/._a.png", b"x", 0o644),
            ("set/images\\b.png", &picture, 0o644),
        ];
        zipped(&path, &entries);
        let out = root.path().join("out");
        let report = convert_to(&path, &out, FormatId::Coco);
        assert_eq!((report.from, report.n_images, report.n_labels), (FormatId::Yolo, 4, 2));
        assert_eq!(read(&out).images.len(), 4);
        let left: Vec<_> = std::fs::read_dir(root.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left.len(), 3, "nothing unpacked stays: {left:?}");
    }

    #[test]
    fn entries_that_lead_out_and_links_are_refused() {
        let root = folder(&[]);
        let path = root.path().join("x.zip");
        for (name, reason) in
            [("../x.txt", "leads out"), ("a/..\\..\\x", "leads out"), ("/etc/x", "absolute"), ("C:\\x", "absolute"), ("C:/x", "absolute")]
        {
            zipped(&path, &[("fine.txt", b"x", 0o644), (name, b"x", 0o644)]);
            assert!(refusal(&path).contains(reason), "{name}: {}", refusal(&path));
        }
        let mut zip = ZipWriter::new(File::create(&path).unwrap());
        zip.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
        zip.finish().unwrap();
        assert!(refusal(&path).contains("is a link"), "{}", refusal(&path));
    }

    #[test]
    fn a_bomb_and_a_cut_off_archive_are_refused() {
        let root = folder(&[]);
        let path = root.path().join("x.zip");
        zipped(&path, &[("zeros", &vec![0; (SMALL_BYTES + 1) as usize], 0o644)]);
        assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
        assert!(refusal(&path).contains("unpacks to more than 256 MB"), "{}", refusal(&path));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(is_zip(&path) && !refusal(&path).is_empty());
    }
}
