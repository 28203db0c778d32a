//! What pixels does the trainer see of a picture file? 8 bits, RGB, EXIF orientation applied.
//!
//! In:  a path. The content says the format, the name's ending does not.
//! Out: an RGB picture, or its size as displayed; or an error that says what is wrong with the file.
//!
//! Alpha is ignored, not blended; gray is replicated; of 16 bits the upper 8 count; of an animation the first frame. A file
//! that ends early is an error here, where other readers return a half-gray picture. Never writes, never panics on bad files.
//! Source: spec 8.1; damage as in formats-and-defects E2.

use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Cursor;
use std::io::Read;
use std::io::Seek;
use std::path::Path;

use image::DynamicImage;
use image::ImageDecoder;
use image::ImageReader;
use image::Limits;
use image::metadata::Orientation;

use super::MediaError;
use super::Picture;
use super::reduced_jpeg;
use crate::geom::Size;

/// File name endings that count as pictures, lower case.
pub const IMAGE_EXTENSIONS: [&str; 8] = ["bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp"];

/// Pictures of more pixels are refused: 23170 x 23170, which are 1.6 GB as RGB.
pub const MAX_PIXELS: u64 = 1 << 29;
/// Larger files are refused before they are read.
pub(super) const MAX_FILE_BYTES: u64 = 2 << 30;
/// A decoder may allocate so much.
const MAX_ALLOC_BYTES: u64 = 3 << 30;
/// Size and orientation of most JPEGs are told within the first of these many bytes, of nearly every one within the second.
pub(super) const JPEG_HEAD_BYTES: [u64; 2] = [16 * 1024, 128 * 1024];

pub(super) const JPEG_START: [u8; 3] = [0xFF, 0xD8, 0xFF];

/// Whether the file name ends like a picture (any case).
pub fn is_image_path(path: &Path) -> bool {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { return false };
    IMAGE_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Decodes a whole picture.
///
/// # Errors
/// The file cannot be read; is empty, no picture, truncated or damaged; has 32-bit pixels; or is larger than
/// 536 million pixels (decompression bombs are refused by what the header says, before memory is taken).
pub fn decode(path: &Path) -> Result<Picture, MediaError> {
    let bytes = read_all(path)?;
    decode_bytes(&bytes).map_err(|reason| MediaError::Decode { path: path.display().to_string(), reason })
}

/// Width and height as displayed (orientation applied), from the header alone.
///
/// A picture whose header is whole but whose pixels are damaged has a size.
///
/// # Errors
/// As [`decode`], as far as the header tells; large sizes are told, not refused.
pub fn probe(path: &Path) -> Result<Size, MediaError> {
    header(path).map(|header| header.size)
}

/// What the header of a picture file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// As displayed: orientation applied.
    pub size: Size,
    /// As in EXIF data, 1 to 8; 1 where they say nothing.
    pub orientation: u8,
}

/// As [`probe`], with the orientation.
///
/// # Errors
/// As [`probe`].
pub fn header(path: &Path) -> Result<Header, MediaError> {
    let io = |source| MediaError::Io { path: path.display().to_string(), source };
    let undecodable = |reason| MediaError::Decode { path: path.display().to_string(), reason };

    let mut file = open(path)?;
    let mut head = Vec::new();
    for n_bytes in JPEG_HEAD_BYTES {
        file.by_ref().take(n_bytes - head.len() as u64).read_to_end(&mut head).map_err(io)?;
        if head.is_empty() {
            return Err(undecodable(EMPTY.to_owned()));
        }
        if !head.starts_with(&JPEG_START) {
            break;
        }
        // The JPEG decoder reads the whole file before it looks at the header, so it is first given the beginning alone.
        if let Ok(header) = header_in(Cursor::new(&head)) {
            return Ok(header);
        }
    }
    file.rewind().map_err(io)?;
    header_in(BufReader::new(file)).map_err(undecodable)
}

const EMPTY: &str = "the file is empty";
const TRUNCATED: &str = "the JPEG is truncated, its end marker is missing";

pub(super) fn header_in(reader: impl BufRead + Seek) -> Result<Header, String> {
    Ok(header_of(&mut decoder(reader, Limits::no_limits())?))
}

pub(super) fn header_of(decoder: &mut impl ImageDecoder) -> Header {
    let (width, height) = decoder.dimensions();
    let orientation = orientation(decoder);
    Header { size: displayed(Size::new(width, height), orientation), orientation: orientation.to_exif() }
}

/// A picture that may be smaller than its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReducedPicture {
    pub picture: Picture,
    /// As [`decode`] gives it.
    pub full_size: Size,
}

/// Decodes a picture for showing it small: its longer side is at least `min_side`, or else it is whole.
///
/// A JPEG is decoded at an eighth, a quarter or half of its size in much less time than as a whole; its pixels are nearly
/// averages of those that [`decode`] gives, and lie where these lie, but for 1 % of a side. Other formats are decoded as a whole.
///
/// # Errors
/// As [`decode`].
pub fn decode_reduced(path: &Path, min_side: u32) -> Result<ReducedPicture, MediaError> {
    decode_stretched(path, min_side, 0.01)
}

/// As [`decode_reduced`], but boxes stay true: nothing moves by more than a quarter of a pixel of a picture with sides of `side`.
///
/// # Errors
/// As [`decode`].
pub fn decode_reduced_truly(path: &Path, side: u32) -> Result<ReducedPicture, MediaError> {
    decode_stretched(path, side, 0.25 / f64::from(side.max(1)))
}

fn decode_stretched(path: &Path, min_side: u32, max_stretch: f64) -> Result<ReducedPicture, MediaError> {
    let bytes = read_all(path)?;
    let undecodable = |reason| MediaError::Decode { path: path.display().to_string(), reason };
    if bytes.starts_with(&JPEG_START)
        && let Ok(Header { size: full_size, orientation }) = header_in(Cursor::new(&bytes))
        && u64::from(full_size.width) * u64::from(full_size.height) <= MAX_PIXELS
        && let Some(orientation) = Orientation::from_exif(orientation)
        // Turned twice is as stored. What it cannot read is left to the decoder that training reads with, and to its reasons.
        && let Some((stored, rgb)) = reduced_jpeg::decode(&bytes, displayed(full_size, orientation), min_side, max_stretch)
    {
        if !jpeg_has_end(&bytes) {
            return Err(undecodable(TRUNCATED.to_owned()));
        }
        let picture = turned(stored, rgb, orientation).map_err(undecodable)?;
        return Ok(ReducedPicture { picture, full_size });
    }
    let picture = decode_bytes(&bytes).map_err(undecodable)?;
    Ok(ReducedPicture { full_size: picture.size, picture })
}

pub(super) fn open(path: &Path) -> Result<File, MediaError> {
    let io = |source| MediaError::Io { path: path.display().to_string(), source };
    // A pipe would block for ever, a device never end.
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(MediaError::Decode { path: path.display().to_string(), reason: "not a regular file".to_owned() });
    }
    File::open(path).map_err(io)
}

pub(super) fn read_all(path: &Path) -> Result<Vec<u8>, MediaError> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|source| MediaError::Io { path: path.display().to_string(), source })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let reason = format!("the file is larger than {} MB", MAX_FILE_BYTES >> 20);
        return Err(MediaError::Decode { path: path.display().to_string(), reason });
    }
    Ok(bytes)
}

/// Decodes a picture file that is in memory.
///
/// # Errors
/// As [`decode`], as a reason without the path.
pub fn decode_bytes(bytes: &[u8]) -> Result<Picture, String> {
    if bytes.is_empty() {
        return Err(EMPTY.to_owned());
    }
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_ALLOC_BYTES);
    let mut decoder = decoder(Cursor::new(bytes), limits)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(format!("{width} x {height} pixels are too many, the limit is {} million", MAX_PIXELS / 1_000_000));
    }
    let orientation = orientation(&mut decoder);
    let decoded = DynamicImage::from_decoder(decoder).map_err(|error| error.to_string())?;
    // The JPEG decoder fills what is missing with gray and says nothing.
    if bytes.starts_with(&JPEG_START) && !jpeg_has_end(bytes) {
        return Err(TRUNCATED.to_owned());
    }
    let rgb = rgb8(decoded)?;
    turned(Size::new(width, height), rgb, orientation)
}

/// A picture as stored, turned as it is displayed.
fn turned(stored: Size, rgb: Vec<u8>, orientation: Orientation) -> Result<Picture, String> {
    let size = displayed(stored, orientation);
    if orientation == Orientation::NoTransforms {
        return Ok(Picture { size, rgb });
    }
    let buffer = image::RgbImage::from_raw(stored.width, stored.height, rgb).ok_or("the decoder returned too few pixels")?;
    let mut turned = DynamicImage::ImageRgb8(buffer);
    turned.apply_orientation(orientation);
    Ok(Picture { size, rgb: turned.into_rgb8().into_raw() })
}

pub(super) fn decoder<'a>(reader: impl BufRead + Seek + 'a, limits: Limits) -> Result<impl ImageDecoder + 'a, String> {
    let mut reader = ImageReader::new(reader).with_guessed_format().map_err(|error| error.to_string())?;
    if reader.format().is_none() {
        return Err("the content is no picture in a known format".to_owned());
    }
    reader.limits(limits);
    reader.into_decoder().map_err(|error| error.to_string())
}

/// Damaged or absent EXIF data mean that the picture lies as it is stored.
fn orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    decoder.orientation().unwrap_or(Orientation::NoTransforms)
}

fn displayed(stored: Size, orientation: Orientation) -> Size {
    // EXIF values 5 to 8 lie on their side.
    if orientation.to_exif() >= 5 { Size::new(stored.height, stored.width) } else { stored }
}

fn rgb8(decoded: DynamicImage) -> Result<Vec<u8>, String> {
    fn gray<T: Copy>(samples: &[T], n_channels: usize, top8: impl Fn(T) -> u8) -> Vec<u8> {
        samples.chunks_exact(n_channels).flat_map(|pixel| [top8(pixel[0]); 3]).collect()
    }
    fn color<T: Copy>(samples: &[T], n_channels: usize, top8: impl Fn(T) -> u8) -> Vec<u8> {
        samples.chunks_exact(n_channels).flat_map(|pixel| [top8(pixel[0]), top8(pixel[1]), top8(pixel[2])]).collect()
    }
    let top8 = |value: u16| (value >> 8) as u8;
    let same = |value: u8| value;
    match decoded {
        DynamicImage::ImageRgb8(picture) => Ok(picture.into_raw()),
        DynamicImage::ImageRgba8(picture) => Ok(color(&picture, 4, same)),
        DynamicImage::ImageLuma8(picture) => Ok(gray(&picture, 1, same)),
        DynamicImage::ImageLumaA8(picture) => Ok(gray(&picture, 2, same)),
        DynamicImage::ImageLuma16(picture) => Ok(gray(&picture, 1, top8)),
        DynamicImage::ImageLumaA16(picture) => Ok(gray(&picture, 2, top8)),
        DynamicImage::ImageRgb16(picture) => Ok(color(&picture, 3, top8)),
        DynamicImage::ImageRgba16(picture) => Ok(color(&picture, 4, top8)),
        other => Err(format!("pixels of kind {:?} are not supported, convert the picture to 8 bits", other.color())),
    }
}

fn jpeg_has_end(bytes: &[u8]) -> bool {
    jpeg_end(bytes).is_some()
}

/// Where the end marker behind the scans of a JPEG ends. Bytes behind it, and end markers inside of thumbnails, do not count.
pub(super) fn jpeg_end(bytes: &[u8]) -> Option<usize> {
    const END: u8 = 0xD9;
    let mut at = 2;
    loop {
        // To the next marker: 0xFF, then neither stuffing (0x00), filling (0xFF), nor a restart inside a scan.
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0xFF)? + 1;
        match *bytes.get(at)? {
            END => return Some(at + 1),
            0x00 | 0x01 | 0xD0..=0xD8 => at += 1,
            0xFF => {}
            _ => {
                let length = bytes.get(at + 1..at + 3)?;
                at += 1 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::PathBuf;

    use image::ImageEncoder;
    use image::ImageFormat;

    use super::*;

    /// Writes `bytes` under `name` into a folder that lives as long as the returned guard.
    fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn gradient(width: u32, height: u32) -> DynamicImage {
        DynamicImage::ImageRgb8(image::RgbImage::from_fn(width, height, |x, y| image::Rgb([(x * 5) as u8, (y * 7) as u8, 90])))
    }

    /// A JPEG, 48 x 32 as stored, with this orientation in its EXIF data.
    fn jpeg_with_orientation(orientation: u8) -> Vec<u8> {
        let tiff_header = [b'I', b'I', 42, 0, 8, 0, 0, 0];
        let entry = [1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0];
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 95);
        encoder.set_exif_metadata([&tiff_header[..], &entry[..]].concat()).unwrap();
        encoder.encode_image(&gradient(48, 32)).unwrap();
        bytes
    }

    fn reason(path: &Path) -> String {
        match decode(path) {
            Err(MediaError::Decode { reason, .. }) => reason,
            other => panic!("expected a decoding error, got {:?}", other.map(|picture| picture.size)),
        }
    }

    #[test]
    fn every_format_gives_the_pixels_that_went_in() {
        for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP] {
            let (_folder, path) = file("a.png", &encoded(&gradient(20, 11), format));
            let picture = decode(&path).unwrap();
            assert_eq!((picture.size, probe(&path).unwrap()), (Size::new(20, 11), Size::new(20, 11)), "{format:?}");
            assert_eq!(picture.rgb, gradient(20, 11).into_bytes(), "{format:?}");
        }
    }

    #[test]
    fn the_content_counts_and_not_the_ending() {
        let (_folder, path) = file("really_a_png.jpg", &encoded(&gradient(9, 9), ImageFormat::Png));
        assert_eq!(decode(&path).unwrap().size, Size::new(9, 9));
        assert!(is_image_path(Path::new("x/A.JPG")) && is_image_path(Path::new("b.Tiff")) && !is_image_path(Path::new("jpg")));
    }

    #[test]
    fn the_picture_is_turned_as_its_exif_data_say() {
        let (_folder, path) = file("a.jpg", &jpeg_with_orientation(1));
        let upright = decode(&path).unwrap();
        let at = |p: &Picture, x: u32, y: u32| -> [u8; 3] { p.rgb[((y * p.size.width + x) * 3) as usize..][..3].try_into().unwrap() };
        for orientation in 1..=8u8 {
            let (_folder, path) = file("a.jpg", &jpeg_with_orientation(orientation));
            let picture = decode(&path).unwrap();
            assert_eq!(picture.size, probe(&path).unwrap());
            let (w, h) = (47, 31);
            // Where the stored top left corner is displayed.
            let corner = match orientation {
                1 | 5 => (0, 0),
                2 => (w, 0),
                3 => (w, h),
                4 => (0, h),
                6 => (h, 0),
                7 => (h, w),
                _ => (0, w),
            };
            assert_eq!(picture.size.width == 32, orientation >= 5);
            assert_eq!(at(&picture, corner.0, corner.1), at(&upright, 0, 0), "orientation {orientation}");
        }
    }

    #[test]
    fn a_reduced_picture_lies_where_the_whole_does() {
        for orientation in 1..=8u8 {
            let (_folder, path) = file("a.jpg", &jpeg_with_orientation(orientation));
            let whole = decode(&path).unwrap();
            for (min_side, factor) in [(4, 8), (12, 4), (13, 2), (24, 2)] {
                let ReducedPicture { picture, full_size } = decode_reduced(&path, min_side).unwrap();
                let expected = Size::new(whole.size.width / factor, whole.size.height / factor);
                assert_eq!((picture.size, full_size), (expected, whole.size), "orientation {orientation}, {min_side}");
                let averaged = crate::media::resize::resize_area(&whole, expected);
                let differences = picture.rgb.iter().zip(&averaged.rgb).map(|(a, b)| a.abs_diff(*b));
                assert!(differences.clone().all(|difference| difference <= 8), "{:?}", differences.max());
            }
            assert_eq!(decode_reduced(&path, 25).unwrap().picture, whole, "no reduction is large enough");
        }
    }

    #[test]
    fn a_jpeg_that_is_marked_as_rgb_has_the_same_colors_reduced() {
        let mut bytes = encoded(&gradient(64, 64), ImageFormat::Jpeg);
        let usual = file("a.jpg", &bytes);
        assert_eq!(decode_reduced(&usual.1, 8).unwrap().picture.size, Size::square(8));
        // Version 100, no flags, colour transform 0.
        bytes.splice(2..2, *b"\xFF\xEE\0\x0EAdobe\0\x64\0\0\0\0\0");
        let (_folder, path) = file("b.jpg", &bytes);
        assert_eq!(decode_reduced(&path, 8).unwrap().picture, decode(&path).unwrap());
    }

    #[test]
    fn a_picture_is_reduced_only_as_far_as_its_edges_allow() {
        let side = |width, height, min_side| {
            let (_folder, path) = file("a.jpg", &encoded(&gradient(width, height), ImageFormat::Jpeg));
            let ReducedPicture { picture, full_size } = decode_reduced(&path, min_side).unwrap();
            assert_eq!(full_size, Size::new(width, height));
            picture.size
        };
        assert_eq!(side(400, 299, 40), Size::new(100, 75), "an eighth would be more than 1 % too high");
        assert_eq!(side(400, 5, 40), Size::new(400, 5));
        assert_eq!(side(1600, 803, 10), Size::new(200, 101));
        let (_folder, path) = file("a.png", &encoded(&gradient(64, 64), ImageFormat::Png));
        assert_eq!(decode_reduced(&path, 8).unwrap().picture, decode(&path).unwrap(), "only a JPEG can be reduced");
        let gray = image::GrayImage::from_pixel(64, 64, image::Luma([77]));
        let (_folder, path) = file("c.jpg", &encoded(&DynamicImage::ImageLuma8(gray), ImageFormat::Jpeg));
        assert_eq!(decode_reduced(&path, 8).unwrap().picture.rgb, [77; 8 * 8 * 3]);
    }

    #[test]
    fn a_progressive_jpeg_is_reduced_too() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/jpeg_420_progressive.jpg");
        let ReducedPicture { picture, full_size } = decode_reduced(&path, 30).unwrap();
        assert_eq!((picture.size, full_size), (Size::new(30, 22), Size::new(120, 88)));
        let averaged = crate::media::resize::resize_area(&decode(&path).unwrap(), picture.size);
        assert!(picture.rgb.iter().zip(&averaged.rgb).all(|(a, b)| a.abs_diff(*b) <= 16));
    }

    #[test]
    fn alpha_is_ignored_gray_replicated_and_16_bits_lose_the_lower_8() {
        let hidden = image::RgbaImage::from_pixel(4, 4, image::Rgba([200, 10, 30, 0]));
        let (_folder, path) = file("a.png", &encoded(&DynamicImage::ImageRgba8(hidden), ImageFormat::Png));
        assert_eq!(decode(&path).unwrap().rgb[..3], [200, 10, 30]);
        let dark = image::ImageBuffer::<image::Luma<u16>, _>::from_pixel(4, 4, image::Luma([3000]));
        let (_folder, path) = file("b.png", &encoded(&DynamicImage::ImageLuma16(dark), ImageFormat::Png));
        assert_eq!(decode(&path).unwrap().rgb[..3], [11, 11, 11]);
        let gray = image::GrayImage::from_pixel(8, 8, image::Luma([77]));
        let (_folder, path) = file("c.jpg", &encoded(&DynamicImage::ImageLuma8(gray), ImageFormat::Jpeg));
        assert_eq!(decode(&path).unwrap().rgb, [77; 8 * 8 * 3]);
    }

    #[test]
    fn a_cmyk_jpeg_has_the_colours_that_the_published_trainer_reads() {
        // 16 x 16 as printing programs write it, with two colours side by side; what OpenCV 4 reads of them stands below.
        let hex = "ffd8ffee000e41646f626500640000000000ffdb0043000302020302020303030304030304050805050404050a070706080c0a0c0c0b0a \
                   0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffc000140800100010044311004d11005911004b1100ff \
                   c400160001010100000000000000000000000000090807ffc40014100100000000000000000000000000000000ffda000e0443004d0059 \
                   004b00003f008f081ab323a7ec0232f454010fdb505aa7ec0232f454ffd9";
        let digits: Vec<u8> = hex.bytes().filter_map(|digit| (digit as char).to_digit(16)).map(|digit| digit as u8).collect();
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect();
        let (_folder, path) = file("a.jpg", &bytes);
        let picture = decode(&path).unwrap();
        for (x, expected) in [(3, [52, 208, 180]), (12, [149, 22, 101])] {
            let pixel = &picture.rgb[(4 * 16 + x) * 3..][..3];
            assert!(pixel.iter().zip(expected).all(|(a, b): (&u8, u8)| a.abs_diff(b) <= 2), "{pixel:?}, expected {expected:?}");
        }
    }

    #[test]
    fn a_truncated_jpeg_is_an_error_wherever_it_ends() {
        let whole = jpeg_with_orientation(6);
        for end in (1..whole.len()).step_by(13) {
            let (_folder, path) = file("a.jpg", &whole[..end]);
            assert!(decode(&path).is_err() && decode_reduced(&path, 8).is_err(), "{end} of {} bytes", whole.len());
        }
        let (_folder, path) = file("a.jpg", &whole[..whole.len() - 40]);
        assert!(reason(&path).contains("truncated"), "{}", reason(&path));
        assert_eq!(probe(&path).unwrap(), Size::new(32, 48));
        let (_folder, path) = file("a.jpg", &[&whole[..], b"trailing bytes"].concat());
        assert!(decode(&path).is_ok());
    }

    #[test]
    fn empty_files_texts_and_folders_give_reasons() {
        let (folder, path) = file("a.jpg", b"");
        assert_eq!(reason(&path), "the file is empty");
        assert!(probe(&path).is_err());
        assert_eq!(reason(folder.path()), "not a regular file");
        let (_folder, path) = file("a.jpg", b"version https://git-lfs.github.com/spec/v1");
        assert_eq!(reason(&path), "the content is no picture in a known format");
        assert!(matches!(decode(Path::new("/no/such/file.png")), Err(MediaError::Io { .. })));
    }

    #[test]
    fn a_decompression_bomb_is_refused_by_its_header() {
        let mut bytes = Vec::new();
        image::codecs::png::PngEncoder::new(&mut bytes).write_image(&[0; 3], 1, 1, image::ExtendedColorType::Rgb8).unwrap();
        // Width and height stand in the first chunk; its checksum follows.
        bytes[16..24].copy_from_slice(&[0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60]);
        let checksum = crc32(&bytes[12..29]).to_be_bytes();
        bytes[29..33].copy_from_slice(&checksum);
        let (_folder, path) = file("bomb.png", &bytes);
        assert!(reason(&path).contains("60000 x 60000 pixels are too many"), "{}", reason(&path));
        assert_eq!(probe(&path).unwrap(), Size::new(60_000, 60_000));
    }

    #[test]
    fn damaged_bytes_never_panic() {
        for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Jpeg] {
            let whole = encoded(&gradient(16, 16), format);
            for position in (0..whole.len()).step_by(7) {
                let mut damaged = whole.clone();
                damaged[position] ^= 0x5A;
                // Some damage cannot be seen; only a panic or endless memory would be wrong.
                let _ = decode_bytes(&damaged);
                let _ = decode_bytes(&damaged[..position]);
            }
        }
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
        })
    }
}
