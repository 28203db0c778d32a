//! Picture files with one oddity each, and their clean twins.
#![expect(clippy::unwrap_used, reason = "tests")]

use image::DynamicImage;
use image::ImageFormat;

use super::*;

fn picture() -> DynamicImage {
    DynamicImage::ImageRgb8(image::RgbImage::from_fn(40, 30, |x, y| image::Rgb([(x * 5) as u8, (y * 7) as u8, 90])))
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// What the header tells, and what the pixels do.
fn looked_at(bytes: &[u8]) -> [Inspection; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jpg");
    std::fs::write(&path, bytes).unwrap();
    let inspector = Inspector::default();
    let (pixels, picture) = inspector.pixels(&path);
    assert_eq!(picture.is_none(), pixels.failure.is_some());
    [inspector.header(&path), pixels]
}

fn check(bytes: &[u8], oddities: &[Oddity], failure: Option<Failure>) {
    for found in looked_at(bytes) {
        assert_eq!((&found.oddities[..], &found.failure), (oddities, &failure));
    }
}

const FORMATS: [ImageFormat; 6] =
    [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Gif, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP];

#[test]
fn sound_files_have_no_oddity_and_their_kind() {
    for (format, kind) in FORMATS.iter().zip([Kind::Jpeg, Kind::Png, Kind::Gif, Kind::Bmp, Kind::Tiff, Kind::WebP]) {
        for found in looked_at(&encoded(&picture(), *format)) {
            let expected = Inspection { kind: Some(kind), size: Some(Size::new(40, 30)), orientation: 1, ..Inspection::default() };
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_file_that_ends_early_is_told_by_its_header_where_it_has_an_end() {
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
        let whole = encoded(&picture(), format);
        for n in [whole.len() * 6 / 10, whole.len() - 20] {
            for found in looked_at(&whole[..n]) {
                assert!(matches!(found.failure, Some(Failure::Truncated(_))), "{format:?} {n}: {found:?}");
            }
        }
    }
    for found in looked_at(b"") {
        assert_eq!(found.failure, Some(Failure::Empty));
    }
}

#[test]
fn bytes_behind_the_end_are_counted() {
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Gif, ImageFormat::WebP] {
        check(&[&encoded(&picture(), format)[..], b"behind"].concat(), &[Oddity::TrailingBytes(6)], None);
    }
}

#[test]
fn gray_alpha_and_sixteen_bits_are_told() {
    let gray = DynamicImage::ImageLuma8(picture().to_luma8());
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Tiff] {
        check(&encoded(&gray, format), &[Oddity::Gray], None);
    }
    for format in [ImageFormat::Png, ImageFormat::WebP] {
        check(&encoded(&DynamicImage::ImageRgba8(picture().to_rgba8()), format), &[Oddity::Alpha], None);
    }
    // 3000 of 65,535 is 11 of 255.
    let dark = DynamicImage::ImageLuma16(image::ImageBuffer::from_pixel(20, 20, image::Luma([3000])));
    for format in [ImageFormat::Png, ImageFormat::Tiff] {
        let [header, pixels] = looked_at(&encoded(&dark, format));
        assert_eq!(header.oddities, [Oddity::SixteenBit(None), Oddity::Gray]);
        assert_eq!(pixels.oddities, [Oddity::SixteenBit(Some(11)), Oddity::Gray]);
    }
}

#[test]
fn four_components_are_cmyk() {
    // A frame header with four components stands in for a whole file: the library encodes none.
    let head = [&[0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 0, 0, 0xFF, 0xC0, 0, 20, 8, 0, 16, 0, 16, 4][..], &[1, 0x11, 0].repeat(4)].concat();
    assert_eq!(container::jpeg_components(&head), Some(4));
    assert_eq!(container::jpeg_components(&encoded(&picture(), ImageFormat::Jpeg)), Some(3));
    assert_eq!(container::jpeg_components(&head[..15]), None);
}

#[test]
fn pages_frames_and_float_samples_are_told() {
    check(&two_pages(&encoded(&picture(), ImageFormat::Tiff)), &[Oddity::Pages(2)], None);
    let frame = || image::Frame::new(picture().to_rgba8());
    let mut animation = Vec::new();
    image::codecs::gif::GifEncoder::new(&mut animation).encode_frames([frame(), frame()]).unwrap();
    check(&animation, &[Oddity::Animated], None);
    let float = DynamicImage::ImageRgb32F(picture().to_rgb32f());
    check(&encoded(&float, ImageFormat::Tiff), &[], Some(Failure::FloatSamples));
}

/// A TIFF (little-endian) whose only directory follows itself as a second page.
fn two_pages(tiff: &[u8]) -> Vec<u8> {
    let mut bytes = tiff.to_vec();
    let at = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let n = usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let directory = bytes[at..at + 2 + n * 12 + 4].to_vec();
    let second = bytes.len() as u32;
    bytes[at + 2 + n * 12..][..4].copy_from_slice(&second.to_le_bytes());
    bytes.extend(directory);
    bytes
}

#[test]
fn a_tiff_whose_directories_go_in_a_circle_ends() {
    let mut bytes = two_pages(&encoded(&picture(), ImageFormat::Tiff));
    let first: [u8; 4] = bytes[4..8].try_into().unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&first);
    check(&bytes, &[Oddity::Pages(2)], None);
}

#[test]
fn other_content_is_named() {
    check(b"\0\0\0\x18ftypheic\0\0\0\0mif1", &[], Some(Failure::Unsupported(Kind::Heic)));
    check(b"\0\0\0\x1cftypavif\0\0\0\0mif1", &[], Some(Failure::Unsupported(Kind::Avif)));
    for (bytes, word) in [
        (&b"version https://git-lfs.github.com/spec/v1"[..], "git lfs pull"),
        (b"<!DOCTYPE html><p>404", "web page"),
        (&[0; 100], "zeros"),
        (b"text", "no picture"),
    ] {
        for found in looked_at(bytes) {
            assert!(matches!(&found.failure, Some(Failure::Undecodable(reason)) if reason.contains(word)), "{found:?}");
        }
    }
}

#[test]
fn a_claim_of_too_many_pixels_is_refused_before_memory_is_taken() {
    let mut bytes = encoded(&picture(), ImageFormat::Bmp);
    bytes[18..26].copy_from_slice(&[0x60, 0xEA, 0, 0, 0x60, 0xEA, 0, 0]);
    check(&bytes, &[], Some(Failure::TooManyPixels));
}

#[test]
fn damaged_bytes_never_panic() {
    for format in FORMATS {
        let whole = encoded(&picture(), format);
        for position in (0..whole.len()).step_by(11) {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x5A;
            let _ = looked_at(&damaged);
            let _ = looked_at(&whole[..position]);
        }
    }
}
