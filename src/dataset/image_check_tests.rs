//! Each fault of an image file, planted alone; and that training leaves out just the images with an error.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Cursor;

use image::DynamicImage;
use image::ImageFormat;

use super::super::check;
use super::super::open::tests::folder;
use super::*;

fn picture() -> DynamicImage {
    DynamicImage::ImageRgb8(image::RgbImage::from_fn(40, 30, |x, y| image::Rgb([(x * 5) as u8, (y * 7) as u8, 90])))
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// What the check says of an image file beside a sound one, looked at so closely.
fn told(name: &str, bytes: &[u8], depth: Depth) -> Vec<String> {
    let root = folder(&[("data.yaml", "train: images\nval: images\nnames: [a]\n"), ("labels/sound.txt", "0 .5 .5 .2 .2\n")]);
    std::fs::create_dir_all(root.path().join("images")).unwrap();
    std::fs::write(root.path().join("images/sound.png"), encoded(&picture().rotate90(), ImageFormat::Png)).unwrap();
    std::fs::write(root.path().join("images").join(name), bytes).unwrap();
    let dataset = Dataset::open(root.path()).unwrap();
    let looks = look_at_all(&dataset, depth, None, &|| ControlFlow::Continue(())).unwrap();
    assert_eq!(looks.get(&root.path().join("images/sound.png")).unwrap().faults, []);
    let look = looks.get(&root.path().join("images").join(name)).unwrap();
    look.faults.iter().map(|fault| format!("{} {}", fault.rule.id(), fault.severity.name())).collect()
}

fn check(name: &str, bytes: &[u8], expected: &[&str]) {
    for depth in [Depth::Header, Depth::Pixels] {
        assert_eq!(told(name, bytes, depth), expected, "{name} {depth:?}");
    }
}

#[test]
fn sound_images_have_no_fault() {
    for (format, ending) in [(ImageFormat::Jpeg, "jpg"), (ImageFormat::Png, "png"), (ImageFormat::Tiff, "tif"), (ImageFormat::WebP, "webp")]
    {
        check(&format!("Ä b.{ending}"), &encoded(&picture(), format), &[]);
    }
    check("a.JPEG", &encoded(&picture(), ImageFormat::Jpeg), &[]);
}

#[test]
fn broken_files_are_errors() {
    let jpeg = encoded(&picture(), ImageFormat::Jpeg);
    check("a.jpg", b"", &["image-empty error"]);
    check("a.jpg", &jpeg[..jpeg.len() * 6 / 10], &["image-truncated error"]);
    check("a.jpg", b"text", &["image-unreadable error"]);
    check("a.jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1", &["unsupported-image error"]);
    check("a.tif", &encoded(&DynamicImage::ImageRgb32F(picture().to_rgb32f()), ImageFormat::Tiff), &["float-image error"]);
    let mut bomb = encoded(&picture(), ImageFormat::Bmp);
    bomb[18..26].copy_from_slice(&[0x60, 0xEA, 0, 0, 0x60, 0xEA, 0, 0]);
    check("a.bmp", &bomb, &["image-too-large error"]);
}

#[test]
fn damage_inside_of_a_file_is_found_by_decoding() {
    let mut png = encoded(&picture(), ImageFormat::Png);
    let middle = png.len() / 2;
    png[middle] ^= 0xFF;
    assert_eq!(told("a.png", &png, Depth::Header), [""; 0]);
    assert_eq!(told("a.png", &png, Depth::Pixels), ["image-unreadable error"]);
}

#[test]
fn readable_oddities_are_told_and_no_errors() {
    let jpeg = encoded(&picture(), ImageFormat::Jpeg);
    check("a.jpg", &[&jpeg[..], &[0; 9]].concat(), &["trailing-bytes info"]);
    check("a.jpg", &encoded(&picture(), ImageFormat::Png), &["wrong-suffix warning"]);
    check("a.png", &encoded(&picture().crop_imm(0, 0, 20, 9), ImageFormat::Png), &["image-too-small warning"]);
    check("a.png", &encoded(&picture().crop_imm(0, 0, 20, 10), ImageFormat::Png), &[]);
    check("a.png", &encoded(&DynamicImage::ImageLuma8(picture().to_luma8()), ImageFormat::Png), &["gray-image info"]);
    check("a.png", &encoded(&DynamicImage::ImageRgba8(picture().to_rgba8()), ImageFormat::Png), &["alpha-channel info"]);
    let wide = DynamicImage::ImageLuma8(image::GrayImage::new(16_385, 10));
    check("a.png", &encoded(&wide, ImageFormat::Png), &["image-too-large warning", "gray-image info"]);
    let light = DynamicImage::ImageRgb16(picture().to_rgb16());
    check("a.png", &encoded(&light, ImageFormat::Png), &["sixteen-bit-image info"]);
    let dark = DynamicImage::ImageRgb16(image::ImageBuffer::from_pixel(20, 20, image::Rgb([3000, 100, 9])));
    assert_eq!(told("a.png", &encoded(&dark, ImageFormat::Png), Depth::Pixels), ["sixteen-bit-image warning"]);
    let frame = || image::Frame::new(picture().to_rgba8());
    let mut animation = Vec::new();
    image::codecs::gif::GifEncoder::new(&mut animation).encode_frames([frame(), frame()]).unwrap();
    check("a.gif", &animation, &["animated-image warning"]);
    check("a.jpg", CMYK_JPEG, &["cmyk-image info"]);
}

const CMYK_JPEG: &[u8] = include_bytes!("sample/cmyk.jpg");

#[test]
fn each_orientation_but_the_first_is_told() {
    for orientation in 1..=8 {
        let tiff = [&[b'I', b'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0][..], &[orientation, 0, 0, 0, 0, 0, 0, 0]].concat();
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 90);
        image::ImageEncoder::set_exif_metadata(&mut encoder, tiff).unwrap();
        encoder.encode_image(&picture()).unwrap();
        let expected: &[&str] = if orientation == 1 { &[] } else { &["image-turned info"] };
        check("a.jpg", &bytes, expected);
    }
}

#[test]
fn odd_names_are_told() {
    let jpeg = encoded(&picture(), ImageFormat::Jpeg);
    for (name, severity) in
        [("a\nb.jpg", "warning"), ("a .jpg", "warning"), (" a.jpg", "warning"), ("a#1.jpg", "info"), ("50%.jpg", "info")]
    {
        check(name, &jpeg, &[&format!("odd-name {severity}")]);
    }
    check(&format!("{}.jpg", "x".repeat(251)), &jpeg, &["odd-name info"]);
    check("a (1)_b-c.d é.jpg", &jpeg, &[]);
}

#[cfg(unix)]
#[test]
fn names_that_are_no_utf_8_links_to_nothing_and_files_without_permission_are_told() {
    use std::os::unix::ffi::OsStrExt;
    let root = folder(&[("data.yaml", "train: list.txt\nval: list.txt\nnames: [a]\n"), ("list.txt", "./loop.jpg\n./gone.jpg\n")]);
    let name = std::ffi::OsStr::from_bytes(b"\xFFa.jpg");
    assert_eq!(odd_name(Path::new(name)).unwrap().severity, Severity::Warning);
    std::os::unix::fs::symlink("loop.jpg", root.path().join("loop.jpg")).unwrap();
    let report = check::check(&Dataset::open(root.path()).unwrap(), &|_, _| ControlFlow::Continue(())).unwrap();
    let of = |file: &str| {
        report.findings.iter().filter(|finding| finding.file == Path::new(file)).map(|finding| finding.rule.id()).collect::<Vec<_>>()
    };
    assert_eq!(of("loop.jpg"), ["broken-link", "broken-link"][..1]);
    assert_eq!(of("gone.jpg"), ["image-unreadable"]);
}

#[test]
fn an_image_that_did_not_change_is_not_looked_at_again() {
    let root = folder(&[("data.yaml", "train: images\nval: images\nnames: [a]\n")]);
    std::fs::create_dir_all(root.path().join("images")).unwrap();
    let path = root.path().join("images/a.png");
    std::fs::write(&path, encoded(&picture(), ImageFormat::Png)).unwrap();
    let dataset = Dataset::open(root.path()).unwrap();
    let look = |depth, known| look_at_all(&dataset, depth, known, &|| ControlFlow::Continue(())).unwrap();
    let mut known = look(Depth::Pixels, None);
    let marked = |known: &mut ImageLooks| {
        let look = known.looks.get_mut(&path).unwrap();
        look.stamp.settle();
        look.faults = vec![ImageFault { rule: Rule::OddName, severity: Severity::Info, message: "known".to_owned() }];
    };
    marked(&mut known);
    assert_eq!(look(Depth::Header, Some(&known)).get(&path).unwrap().faults[0].message, "known");
    assert_eq!(look(Depth::Pixels, Some(&known)).get(&path).unwrap().faults[0].message, "known");
    let mut shallow = look(Depth::Header, None);
    marked(&mut shallow);
    assert_eq!(look(Depth::Pixels, Some(&shallow)).get(&path).unwrap().faults, []);
    std::fs::write(&path, b"").unwrap();
    assert_eq!(look(Depth::Pixels, Some(&known)).get(&path).unwrap().faults[0].rule, Rule::ImageEmpty);
}
