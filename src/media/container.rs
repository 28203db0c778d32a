//! The parts that a picture file says it has: chunks of a PNG, blocks of a GIF, directories of a TIFF, the frame of a JPEG.
//!
//! In:  a file, which may lie about every length.
//! Out: where the picture ends, whether there are several, how samples are stored.
//!
//! Lengths are followed by seeking, never allocated; the number of steps is bounded. Never decodes, never panics.
//! Source: PNG 3rd edition, `GIF89a`, WebP container specification, TIFF 6.0, ITU-T T.81 (JPEG).

use std::collections::HashSet;
use std::io::BufRead;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;

/// No sound file has more chunks, blocks or directories that matter.
const MAX_STEPS: usize = 100_000;
/// More pages are not counted.
const MAX_PAGES: usize = 10_000;

/// What following the parts of a file told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// The first byte behind the picture; may lie behind the end of the file. `None`: the file ends before.
    pub(super) end: Option<u64>,
    pub(super) is_animated: bool,
}

/// How many components the frame of a JPEG has, from the bytes up to it.
pub(super) fn jpeg_components(head: &[u8]) -> Option<u8> {
    let mut at = 2;
    loop {
        if *head.get(at)? != 0xFF {
            return None;
        }
        while *head.get(at)? == 0xFF {
            at += 1; // filling
        }
        let marker = *head.get(at)?;
        let length = head.get(at + 1..at + 3)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        match marker {
            // Frames; the three between are tables.
            0xC0..=0xCF if ![0xC4, 0xC8, 0xCC].contains(&marker) => return head.get(at + 8).copied(),
            0xDA => return None,
            _ => at += 1 + length,
        }
    }
}

/// Follows the chunks of a PNG to `IEND`.
pub(super) fn png_parts(reader: &mut (impl BufRead + Seek)) -> Parts {
    let mut parts = Parts::default();
    let mut at = 8;
    for _ in 0..MAX_STEPS {
        let mut head = [0; 8];
        if seek_read(reader, at, &mut head).is_none() {
            return parts;
        }
        let length = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
        at += 12 + length; // length, name and checksum
        match &head[4..] {
            b"acTL" => parts.is_animated = true,
            b"IEND" => {
                parts.end = Some(at);
                return parts;
            }
            _ => {}
        }
    }
    parts
}

/// Follows the blocks of a GIF to its trailer.
pub(super) fn gif_parts(reader: &mut (impl BufRead + Seek)) -> Parts {
    let mut n_frames = 0;
    let end = gif_end(reader, &mut n_frames);
    Parts { end, is_animated: n_frames > 1 }
}

fn gif_end(reader: &mut (impl BufRead + Seek), n_frames: &mut usize) -> Option<u64> {
    let color_table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3u64 << ((flags & 7) + 1) };
    let mut screen = [0; 13];
    seek_read(reader, 0, &mut screen)?;
    let mut at = 13 + color_table(screen[10]);
    let mut steps = 0;
    while steps < MAX_STEPS {
        steps += 1;
        let mut introducer = [0];
        seek_read(reader, at, &mut introducer)?;
        match introducer[0] {
            0x3B => return Some(at + 1),
            0x21 => at += 2,
            0x2C => {
                let mut frame = [0; 10];
                seek_read(reader, at, &mut frame)?;
                *n_frames += 1;
                at += 10 + color_table(frame[9]) + 1;
            }
            _ => return None,
        }
        loop {
            let mut length = [0];
            seek_read(reader, at, &mut length)?;
            at += 1 + u64::from(length[0]);
            if length[0] == 0 {
                break;
            }
        }
    }
    None
}

/// What the outermost header of a WebP says.
pub(super) fn webp_parts(reader: &mut (impl BufRead + Seek)) -> Parts {
    const ANIMATION: u8 = 0x02;
    let mut head = [0; 21];
    if seek_read(reader, 0, &mut head).is_none() {
        return Parts::default();
    }
    let length = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
    let is_animated = &head[12..16] == b"VP8X" && head[20] & ANIMATION != 0;
    Parts { end: Some(8 + length + length % 2), is_animated }
}

/// What the directories of a TIFF say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Without thumbnails and masks.
    pub(super) count: usize,
    /// The samples of the first page are floating point numbers.
    pub(super) is_float: bool,
}

/// Follows the directories of a TIFF (of `BigTIFF` not: one page is assumed).
pub(super) fn tiff_pages(reader: &mut (impl BufRead + Seek)) -> Pages {
    let mut pages = Pages::default();
    let mut head = [0; 8];
    if seek_read(reader, 0, &mut head).is_none() {
        return pages;
    }
    let is_little = head[0] == b'I';
    let u16_of = |b: [u8; 2]| if is_little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) };
    let u32_of = |b: [u8; 4]| if is_little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) };
    if u16_of([head[2], head[3]]) != 42 {
        return Pages { count: 1, is_float: false };
    }
    let mut at = u32_of([head[4], head[5], head[6], head[7]]);
    let mut seen = HashSet::new();
    while at != 0 && seen.insert(at) && seen.len() <= MAX_PAGES {
        let mut count = [0; 2];
        if seek_read(reader, at.into(), &mut count).is_none() {
            break;
        }
        let mut is_page = true;
        for _ in 0..u16_of(count) {
            let mut entry = [0; 12];
            if reader.read_exact(&mut entry).is_err() {
                return pages;
            }
            let value = u16_of([entry[8], entry[9]]);
            let n_values = u32_of([entry[4], entry[5], entry[6], entry[7]]);
            match u16_of([entry[0], entry[1]]) {
                // Bits of the kind of page: a smaller version, a mask.
                254 => is_page = u32_of([entry[8], entry[9], entry[10], entry[11]]) & 0b101 == 0,
                // The format of samples; of three or more the values stand elsewhere.
                339 if pages.count == 0 => {
                    let format = if n_values <= 2 {
                        Some(value)
                    } else {
                        let back = reader.stream_position();
                        let mut first = [0; 2];
                        let place = u32_of([entry[8], entry[9], entry[10], entry[11]]);
                        let format = seek_read(reader, place.into(), &mut first).map(|()| u16_of(first));
                        if back.and_then(|back| reader.seek(SeekFrom::Start(back))).is_err() {
                            return pages;
                        }
                        format
                    };
                    pages.is_float = format == Some(3);
                }
                _ => {}
            }
        }
        pages.count += usize::from(is_page);
        let mut next = [0; 4];
        if reader.read_exact(&mut next).is_err() {
            break;
        }
        at = u32_of(next);
    }
    pages
}

fn seek_read(reader: &mut (impl Read + Seek), at: u64, bytes: &mut [u8]) -> Option<()> {
    // Seeking a `BufReader` to where it is throws its buffer away.
    if reader.stream_position().ok()? != at {
        let by = i64::try_from(at).ok()? - i64::try_from(reader.stream_position().ok()?).ok()?;
        reader.seek(SeekFrom::Current(by)).ok()?;
    }
    reader.read_exact(bytes).ok()
}
