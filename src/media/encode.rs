//! How is a picture written? In the format of the name's ending, and whole or not at all.
//!
//! In:  a path and an RGB picture.
//! Out: the file. It is written under a temporary name beside it, then renamed, so that nobody ever reads half of it.

use std::io::BufWriter;
use std::io::Write;
use std::path::Path;

use image::ExtendedColorType;
use image::ImageEncoder;
use image::ImageFormat;
use image::codecs::jpeg::JpegEncoder;

use super::MediaError;
use super::Picture;

/// Writes JPEG, PNG or another format by the ending of `path`; `quality` (1 to 100) matters for JPEG.
///
/// # Errors
/// An ending that is unknown or cannot be written, or what the file system says. An existing file then stays as it was.
pub fn encode(path: &Path, picture: &Picture, quality: u8) -> Result<(), MediaError> {
    let format = ImageFormat::from_path(path).map_err(|_| encode_error(path, "the ending names no picture format, use .jpg or .png"))?;
    let bytes = encode_bytes(picture, format, quality).map_err(|error| encode_error(path, &error.to_string()))?;
    write_atomically(path, &bytes).map_err(|source| MediaError::Write { path: path.display().to_string(), source })
}

fn encode_error(path: &Path, reason: &str) -> MediaError {
    MediaError::Encode { path: path.display().to_string(), reason: reason.to_owned() }
}

/// The picture as the bytes of a file.
///
/// # Errors
/// Formats that hold no 8-bit RGB, and sizes that do not fit into the format (65,535 pixels a side for JPEG).
pub fn encode_bytes(picture: &Picture, format: ImageFormat, quality: u8) -> Result<Vec<u8>, image::ImageError> {
    let (width, height) = (picture.size.width, picture.size.height);
    let mut bytes = std::io::Cursor::new(Vec::new());
    if format == ImageFormat::Jpeg {
        let encoder = JpegEncoder::new_with_quality(&mut bytes, quality.clamp(1, 100));
        encoder.write_image(&picture.rgb, width, height, ExtendedColorType::Rgb8)?;
    } else {
        image::write_buffer_with_format(&mut bytes, &picture.rgb, width, height, ExtendedColorType::Rgb8, format)?;
    }
    Ok(bytes.into_inner())
}

/// The picture as the bytes of a JPEG file; `quality` from 1 to 100.
///
/// # Errors
/// A side of more than 65,535 pixels, or of none.
pub fn encode_jpeg(picture: &Picture, quality: u8) -> Result<Vec<u8>, image::ImageError> {
    encode_bytes(picture, ImageFormat::Jpeg, quality)
}

fn write_atomically(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".boxwright-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private; a picture is as readable as the person's settings (umask) say.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    let mut writer = BufWriter::new(file.as_file_mut());
    writer.write_all(bytes)?;
    writer.flush()?;
    drop(writer);
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::decode::decode;
    use super::*;
    use crate::geom::Size;

    fn picture() -> Picture {
        Picture { size: Size::new(5, 3), rgb: (0..45).map(|i| i * 5).collect() }
    }

    #[test]
    fn a_png_comes_back_as_it_was_and_a_jpeg_nearly() {
        let folder = tempfile::tempdir().unwrap();
        encode(&folder.path().join("a.png"), &picture(), 0).unwrap();
        assert_eq!(decode(&folder.path().join("a.png")).unwrap(), picture());
        let flat = Picture { size: Size::new(16, 16), rgb: [200, 40, 90].repeat(256) };
        encode(&folder.path().join("a.jpg"), &flat, 95).unwrap();
        let back = decode(&folder.path().join("a.jpg")).unwrap();
        assert!(back.rgb.iter().zip(&flat.rgb).all(|(a, b)| a.abs_diff(*b) <= 3));
    }

    #[test]
    fn a_name_that_is_no_picture_or_a_missing_folder_is_an_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(encode(&folder.path().join("a.txt"), &picture(), 90), Err(MediaError::Encode { .. })));
        assert!(matches!(encode(&folder.path().join("no/a.png"), &picture(), 90), Err(MediaError::Write { .. })));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
