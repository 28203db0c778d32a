//! What is odd about a picture file: what keeps it from being decoded, and what training sees otherwise than a viewer shows it?
//!
//! In:  a path, and whether the pixels are wanted.
//! Out: the kind by content, size, oddities, why it cannot be decoded, and the pixels as training reads them.
//!
//! Without pixels only headers are read, and the last bytes, which tell most files that were cut off. Of a container (TIFF, GIF, PNG,
//! WebP) the list of its parts is followed, each step bounded, since files may lie. With pixels the decoder of `decode.rs` has the
//! last word. Nothing is allocated by what a header claims. Never writes, never panics on bad files.
//! Source: ITU-T T.81 (JPEG), PNG 3rd edition, `GIF89a`, WebP container specification, TIFF 6.0, ISO 14496-12 (file types of HEIC, AVIF).

use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Cursor;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;

use image::ExtendedColorType;
use image::ImageDecoder;
use image::Limits;

use super::MediaError;
use super::Picture;
use super::container;
use super::decode;
use super::decode::Header;
use super::decode::JPEG_HEAD_BYTES;
use super::decode::MAX_PIXELS;
use crate::geom::Size;

/// The content of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Jpeg,
    Png,
    Gif,
    Bmp,
    Tiff,
    WebP,
    Heic,
    Avif,
    Jpeg2000,
    JpegXl,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
            Self::WebP => "WebP",
            Self::Heic => "HEIC",
            Self::Avif => "AVIF",
            Self::Jpeg2000 => "JPEG 2000",
            Self::JpegXl => "JPEG XL",
        }
    }

    /// Endings that a file of this kind has, lower case; the first is the usual one.
    pub fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Jpeg => &["jpg", "jpeg"],
            Self::Png => &["png"],
            Self::Gif => &["gif"],
            Self::Bmp => &["bmp"],
            Self::Tiff => &["tif", "tiff"],
            Self::WebP => &["webp"],
            Self::Heic => &["heic", "heif"],
            Self::Avif => &["avif"],
            Self::Jpeg2000 => &["jp2"],
            Self::JpegXl => &["jxl"],
        }
    }

    /// Whether the decoder reads this kind.
    pub fn is_supported(self) -> bool {
        !matches!(self, Self::Heic | Self::Avif | Self::Jpeg2000 | Self::JpegXl)
    }

    fn of(head: &[u8]) -> Option<Self> {
        let at = |start: usize, bytes: &[u8]| head.get(start..start + bytes.len()) == Some(bytes);
        match head {
            _ if head.starts_with(&decode::JPEG_START) => Some(Self::Jpeg),
            _ if at(0, b"\x89PNG\r\n\x1a\n") => Some(Self::Png),
            _ if at(0, b"GIF8") => Some(Self::Gif),
            _ if at(0, b"BM") => Some(Self::Bmp),
            _ if at(0, b"II*\0") || at(0, b"MM\0*") || at(0, b"II+\0") || at(0, b"MM\0+") => Some(Self::Tiff),
            _ if at(0, b"RIFF") && at(8, b"WEBP") => Some(Self::WebP),
            _ if at(0, b"\0\0\0\x0cjP  ") => Some(Self::Jpeg2000),
            _ if at(0, b"\xff\x0a") || at(0, b"\0\0\0\x0cJXL ") => Some(Self::JpegXl),
            _ if at(4, b"ftypavif") || at(4, b"ftypavis") => Some(Self::Avif),
            _ if at(4, b"ftyp") && ["heic", "heix", "hevc", "heim", "heis", "mif1", "msf1"].iter().any(|brand| at(8, brand.as_bytes())) => {
                Some(Self::Heic)
            }
            _ => None,
        }
    }
}

/// Why training cannot read a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Missing, no permission, no regular file.
    Unreadable(String),
    Empty,
    /// It ends before its picture does.
    Truncated(String),
    /// A picture, but of a kind that is not decoded.
    Unsupported(Kind),
    /// 32-bit or floating point samples.
    FloatSamples,
    TooManyPixels,
    /// Anything else that the decoder says.
    Undecodable(String),
}

/// What is unusual about a picture that may still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// So many bytes behind the end.
    TrailingBytes(u64),
    Cmyk,
    /// 16 bits a sample, of which the upper eight count. `Some`: the brightest of these, where the pixels were looked at.
    SixteenBit(Option<u8>),
    Gray,
    Alpha,
    /// So many pages, of which the first counts.
    Pages(usize),
    /// More than one frame, of which the first counts.
    Animated,
}

/// What was found out about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    pub kind: Option<Kind>,
    /// As displayed, orientation applied.
    pub size: Option<Size>,
    /// EXIF orientation, 1 to 8; 0 where no header was read.
    pub orientation: u8,
    pub oddities: Vec<Oddity>,
    pub failure: Option<Failure>,
}

/// Files of more bytes, and pictures of more pixels, are decoded one at a time, so that memory does not grow with the number of cores.
const LARGE_BYTES: u64 = 64 << 20;
const LARGE_PIXELS: u64 = 32 << 20;

/// Looks at picture files, from many threads at once.
#[derive(Default)]
pub struct Inspector {
    large: Mutex<()>,
}

impl Inspector {
    /// What the header and the last bytes of a file tell.
    pub fn header(&self, path: &Path) -> Inspection {
        match open(path) {
            Ok((file, n_bytes)) => {
                let mut reader = BufReader::new(file);
                let mut found = header_facts(&mut reader, n_bytes);
                if found.failure.is_none() {
                    found.look_at_end(&mut reader, n_bytes);
                }
                found
            }
            Err(failure) => Inspection { failure: Some(failure), ..Inspection::default() },
        }
    }

    /// Decodes the whole picture, too. The pixels are those that training reads.
    pub fn pixels(&self, path: &Path) -> (Inspection, Option<Picture>) {
        let failed = |failure| (Inspection { failure: Some(failure), ..Inspection::default() }, None);
        let n_bytes = match open(path) {
            Ok((_, n_bytes)) => n_bytes,
            Err(failure) => return failed(failure),
        };
        let alone = || self.large.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = (n_bytes > LARGE_BYTES).then(alone);
        let bytes = match decode::read_all(path) {
            Ok(bytes) => bytes,
            Err(error) => return failed(unreadable(&error)),
        };
        let n_bytes = bytes.len() as u64;
        let mut reader = Cursor::new(bytes.as_slice());
        let mut found = header_facts(&mut reader, n_bytes);
        if found.failure.is_some() {
            return (found, None);
        }
        found.look_at_end(&mut reader, n_bytes);
        let is_large = found.size.is_some_and(|size| u64::from(size.width) * u64::from(size.height) > LARGE_PIXELS);
        if guard.is_none() && is_large {
            guard = Some(alone());
        }
        let cut = found.failure.take();
        let picture = match decode::decode_bytes(&bytes) {
            Ok(picture) => Some(picture),
            Err(reason) => {
                found.failure = cut.or(Some(Failure::Undecodable(reason)));
                None
            }
        };
        drop(guard);
        if let Some(picture) = &picture {
            found.size = Some(picture.size);
            for oddity in &mut found.oddities {
                if let Oddity::SixteenBit(brightest) = oddity {
                    *brightest = picture.rgb.iter().max().copied();
                }
            }
        }
        (found, picture)
    }
}

/// The file and its size, if it is a regular one that is not empty.
fn open(path: &Path) -> Result<(File, u64), Failure> {
    let file = decode::open(path).map_err(|error| unreadable(&error))?;
    let n_bytes = file.metadata().map_err(|error| Failure::Unreadable(error.to_string()))?.len();
    if n_bytes == 0 { Err(Failure::Empty) } else { Ok((file, n_bytes)) }
}

fn unreadable(error: &MediaError) -> Failure {
    Failure::Unreadable(match error {
        MediaError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => "the image does not exist".to_owned(),
        MediaError::Io { source, .. } => format!("the image cannot be read: {source}"),
        MediaError::Decode { reason, .. } => format!("the image cannot be read: {reason}"),
        other => other.to_string(),
    })
}

/// Kind, size, orientation and how samples are stored.
fn header_facts(reader: &mut (impl BufRead + Seek), n_bytes: u64) -> Inspection {
    let mut head = Vec::new();
    let mut found = Inspection::default();
    if let Err(error) = read_more(reader, &mut head, 512) {
        found.failure = Some(Failure::Unreadable(format!("the image cannot be read: {error}")));
        return found;
    }
    found.kind = Kind::of(&head);
    match found.kind {
        None => found.failure = Some(Failure::Undecodable(no_picture(&head).to_owned())),
        Some(kind) if !kind.is_supported() => found.failure = Some(Failure::Unsupported(kind)),
        Some(Kind::Jpeg) => found.read_jpeg_header(reader, head, n_bytes),
        Some(kind) => found.read_header(reader, kind),
    }
    if let Some(size) = found.size
        && u64::from(size.width) * u64::from(size.height) > MAX_PIXELS
    {
        found.failure = Some(Failure::TooManyPixels);
    }
    found
}

/// What a file is that is no picture, as far as its first bytes tell.
fn no_picture(head: &[u8]) -> &'static str {
    let text = head.trim_ascii_start();
    if head.starts_with(b"version https://git-lfs") {
        "it is a pointer of Git LFS, the picture was not fetched; run `git lfs pull`"
    } else if [&b"<!doctype"[..], b"<html", b"<?xml"]
        .iter()
        .any(|start| text.len() >= start.len() && text[..start.len()].eq_ignore_ascii_case(start))
    {
        "it is a web page or XML, probably an error message that was saved as a picture"
    } else if head.iter().all(|&byte| byte == 0) {
        "it holds zeros only; the disk or the download failed"
    } else {
        "the content is no picture in a known format"
    }
}

fn read_more(reader: &mut impl Read, head: &mut Vec<u8>, n_bytes: u64) -> std::io::Result<()> {
    reader.take(n_bytes.saturating_sub(head.len() as u64)).read_to_end(head).map(drop)
}

impl Inspection {
    fn read_jpeg_header(&mut self, reader: &mut (impl BufRead + Seek), mut head: Vec<u8>, n_bytes: u64) {
        // The decoder reads all that it is given before it looks at the header, so it is first given the beginning alone.
        let mut reason = String::new();
        for limit in [JPEG_HEAD_BYTES[0], JPEG_HEAD_BYTES[1], n_bytes.min(LARGE_BYTES)] {
            if let Err(error) = read_more(reader, &mut head, limit) {
                self.failure = Some(Failure::Unreadable(format!("the image cannot be read: {error}")));
                return;
            }
            match decode::header_in(Cursor::new(&head)) {
                Ok(header) => {
                    self.take(header);
                    match container::jpeg_components(&head) {
                        Some(1) => self.oddities.push(Oddity::Gray),
                        Some(4) => self.oddities.push(Oddity::Cmyk),
                        _ => {}
                    }
                    return;
                }
                Err(error) => reason = error,
            }
            if head.len() as u64 == n_bytes {
                break;
            }
        }
        let is_cut = decode::jpeg_end(&head).is_none();
        self.failure = Some(if is_cut { Failure::Truncated("it ends within its header".to_owned()) } else { Failure::Undecodable(reason) });
    }

    fn take(&mut self, header: Header) {
        self.size = Some(header.size);
        self.orientation = header.orientation;
    }

    fn read_header(&mut self, reader: &mut (impl BufRead + Seek), kind: Kind) {
        if kind == Kind::Tiff {
            let pages = container::tiff_pages(reader);
            if pages.is_float {
                self.failure = Some(Failure::FloatSamples);
            }
            if pages.count > 1 {
                self.oddities.push(Oddity::Pages(pages.count));
            }
        }
        if reader.rewind().is_err() {
            return;
        }
        match decode::decoder(&mut *reader, Limits::no_limits()) {
            Ok(mut decoder) => {
                self.take(decode::header_of(&mut decoder));
                let color = decoder.color_type();
                let n_bits = color.bits_per_pixel() / u16::from(color.channel_count());
                if n_bits == 32 {
                    self.failure = Some(Failure::FloatSamples);
                }
                if n_bits == 16 {
                    self.oddities.push(Oddity::SixteenBit(None));
                }
                if matches!(decoder.original_color_type(), ExtendedColorType::Cmyk8 | ExtendedColorType::Cmyk16) {
                    self.oddities.push(Oddity::Cmyk);
                }
                if !color.has_color() {
                    self.oddities.push(Oddity::Gray);
                }
                // Frames of a GIF are always decoded with alpha.
                if color.has_alpha() && kind != Kind::Gif {
                    self.oddities.push(Oddity::Alpha);
                }
            }
            Err(reason) if self.failure.is_none() => self.failure = Some(Failure::Undecodable(reason)),
            Err(_) => {}
        }
    }

    /// Whether the picture is whole, and what follows it.
    fn look_at_end(&mut self, reader: &mut (impl BufRead + Seek), n_bytes: u64) {
        let end = match self.kind {
            Some(Kind::Jpeg) => jpeg_end(reader, n_bytes),
            Some(Kind::Png) => container::png_parts(reader),
            Some(Kind::Gif) => container::gif_parts(reader),
            Some(Kind::WebP) => container::webp_parts(reader),
            _ => return,
        };
        if end.is_animated {
            self.oddities.push(Oddity::Animated);
        }
        match end.end {
            Some(end) if end < n_bytes => self.oddities.push(Oddity::TrailingBytes(n_bytes - end)),
            Some(end) if end == n_bytes => {}
            _ => self.failure = Some(Failure::Truncated(format!("its end is missing behind {n_bytes} bytes"))),
        }
    }
}

/// The end of a JPEG: at the last bytes, where it nearly always is, else by following its parts.
fn jpeg_end(reader: &mut (impl BufRead + Seek), n_bytes: u64) -> container::Parts {
    let whole = |end| container::Parts { end, is_animated: false };
    let mut last = [0; 2];
    let ends = reader.seek(SeekFrom::End(-2)).and_then(|_| reader.read_exact(&mut last));
    if ends.is_ok() && last == [0xFF, 0xD9] {
        return whole(Some(n_bytes));
    }
    let mut bytes = Vec::new();
    let read = reader.rewind().and_then(|()| reader.take(decode::MAX_FILE_BYTES).read_to_end(&mut bytes));
    whole(read.ok().and_then(|_| decode::jpeg_end(&bytes)).map(|end| end as u64))
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
