//! What detection leaves behind: drawn pictures, text files, and JSON.
//!
//! In:  a picture, its detections and the class names. Out: files in one folder, or a JSON object.
//!
//! ```text
//! OUT/NAME.jpg           the picture with boxes, in the format of the source (JPEG where it is neither PNG nor BMP)
//! OUT/labels/NAME.txt    a row `class cx cy w h score` a box, fractions of the picture, the surest box last
//! ```
//!
//! NAME is that of the source file; where two sources share it, the later ones get `-2`, `-3`, … Files are whole or absent.
//!
//! Never replaces a source picture. Source of the text format: the published detector with `--save-txt --save-conf`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::detector::PictureDetections;
use super::error::DetectError;
use crate::media::Picture;
use crate::media::draw::{class_color, draw_box};
use crate::media::encode::encode;

/// JPEG quality of drawn pictures.
const QUALITY: u8 = 92;

/// The folder that one detection writes to.
pub struct OutputFolder {
    root: PathBuf,
    save_img: bool,
    save_txt: bool,
    /// Names given so far, without ending.
    used: HashSet<String>,
}

impl OutputFolder {
    /// Makes the folder, and `labels` in it if text files are wanted, so that a folder that cannot be written to is told before
    /// the first picture.
    pub fn create(root: &Path, save_img: bool, save_txt: bool) -> Result<Self, DetectError> {
        let deepest = if save_txt { root.join("labels") } else { root.to_owned() };
        std::fs::create_dir_all(&deepest).map_err(|source| write_error(&deepest, source))?;
        tempfile::tempfile_in(&deepest).map_err(|source| write_error(&deepest, source))?;
        Ok(Self { root: root.to_owned(), save_img, save_txt, used: HashSet::new() })
    }

    /// Writes what was asked for of one picture. A picture without detections gets an empty text file: a background image.
    pub fn write(&mut self, path: &Path, picture: &Picture, found: &PictureDetections, names: &[String]) -> Result<(), DetectError> {
        let name = self.free_name(path);
        if self.save_img {
            let target = self.root.join(format!("{name}.{}", drawn_extension(path)));
            if let (Ok(target), Ok(source)) = (target.canonicalize(), path.canonicalize())
                && target == source
            {
                return Err(DetectError::Overwrite { path: path.display().to_string() });
            }
            encode(&target, &drawn(picture, found, names), QUALITY)?;
        }
        if self.save_txt {
            let target = self.root.join("labels").join(format!("{name}.txt"));
            write_whole(&target, &text_rows(found)).map_err(|source| write_error(&target, source))?;
        }
        Ok(())
    }

    fn free_name(&mut self, path: &Path) -> String {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut name = stem.to_string();
        let mut number = 2;
        while !self.used.insert(name.clone()) {
            name = format!("{stem}-{number}");
            number += 1;
        }
        name
    }
}

fn drawn_extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let kept = ["png", "bmp", "jpg", "jpeg"].iter().any(|known| extension.eq_ignore_ascii_case(known));
    if kept { extension.into_owned() } else { "jpg".to_owned() }
}

/// The picture with boxes and their names and scores, the surest on top.
pub fn drawn(picture: &Picture, found: &PictureDetections, names: &[String]) -> Picture {
    let mut drawn = picture.clone();
    for detection in found.detections.iter().rev() {
        let text = format!("{} {:.2}", class_name(names, detection.class), detection.score);
        draw_box(&mut drawn, detection.bbox, class_color(detection.class), &text);
    }
    drawn
}

/// Rows `class cx cy w h score`, the surest last, as the published detector writes them.
pub fn text_rows(found: &PictureDetections) -> String {
    let mut rows = String::new();
    for detection in found.detections.iter().rev() {
        let bbox = detection.bbox.to_xywhn(found.size);
        let numbers = [bbox.cx, bbox.cy, bbox.w, bbox.h, detection.score].map(six_digits);
        writeln!(rows, "{} {}", detection.class, numbers.join(" ")).expect("a string takes any text");
    }
    rows
}

/// One picture's detections as JSON: corners in its pixels, the surest first.
pub fn to_json(path: &Path, found: &PictureDetections, names: &[String]) -> serde_json::Value {
    let detections: Vec<_> = found
        .detections
        .iter()
        .map(|detection| {
            let bbox = detection.bbox;
            json!({
                "class": detection.class,
                "name": class_name(names, detection.class),
                "score": detection.score,
                "xyxy": [bbox.x1, bbox.y1, bbox.x2, bbox.y2],
            })
        })
        .collect();
    json!({
        "path": path.display().to_string(),
        "width": found.size.width,
        "height": found.size.height,
        "letterbox_ms": found.letterbox_ms,
        "network_ms": found.network_ms,
        "nms_ms": found.nms_ms,
        "detections": detections,
    })
}

fn class_name(names: &[String], class: usize) -> String {
    names.get(class).cloned().unwrap_or_else(|| format!("class {class}"))
}

/// C's `%g`: six significant digits without trailing zeros, small numbers with an exponent.
fn six_digits(value: f32) -> String {
    let value = f64::from(value);
    if value == 0.0 {
        return "0".to_owned();
    }
    // Rust's exponent form rounds first, so 0.9999999 counts as 1.
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed =
        |text: &str| if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() };
    if (-4..6).contains(&exponent) {
        trimmed(&format!("{value:.*}", (5 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
    }
}

fn write_error(path: &Path, source: std::io::Error) -> DetectError {
    DetectError::Write { path: path.display().to_string(), source }
}

/// Under a temporary name first, so that nobody reads half a file.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".boxwright-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private; this one is as readable as the person's settings (umask) say.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::{OutputFolder, six_digits, text_rows, to_json};
    use crate::detect::detector::PictureDetections;
    use crate::detect::error::DetectError;
    use crate::geom::nms::Detection;
    use crate::geom::{Size, Xyxy};
    use crate::media::Picture;
    use crate::media::decode::decode;

    fn two_boxes() -> PictureDetections {
        PictureDetections {
            size: Size::new(80, 40),
            detections: vec![
                Detection { bbox: Xyxy::new(8.0, 4.0, 24.0, 20.0), class: 1, score: 0.875 },
                Detection { bbox: Xyxy::new(0.0, 0.0, 80.0, 40.0), class: 0, score: 0.333_333 },
            ],
            letterbox_ms: 1.0,
            network_ms: 2.0,
            nms_ms: 0.5,
        }
    }

    fn gray() -> Picture {
        Picture { size: Size::new(80, 40), rgb: vec![90; 80 * 40 * 3] }
    }

    fn names() -> Vec<String> {
        vec!["dent".to_owned(), "crack".to_owned()]
    }

    #[test]
    fn rows_are_fractions_with_the_surest_box_last() {
        assert_eq!(text_rows(&two_boxes()), "0 0.5 0.5 1 1 0.333333\n1 0.2 0.3 0.2 0.4 0.875\n");
        assert_eq!(text_rows(&PictureDetections { detections: vec![], ..two_boxes() }), "");
    }

    #[test]
    fn numbers_have_six_digits_as_in_c() {
        let expected = [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (0.123_456_79, "0.123457"),
            (0.000_123_456_79, "0.000123457"),
            (0.000_012_345_679, "1.23457e-05"),
            (0.999_999_94, "1"),
            (123_456.78, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (-0.25, "-0.25"),
        ];
        for (value, text) in expected {
            assert_eq!(six_digits(value), text);
        }
    }

    #[test]
    fn json_holds_corners_names_and_times() {
        let value = to_json(Path::new("a.jpg"), &two_boxes(), &names());
        assert_eq!(value["detections"][0]["name"], "crack");
        assert_eq!(value["detections"][0]["xyxy"], serde_json::json!([8.0, 4.0, 24.0, 20.0]));
        assert_eq!((value["path"].as_str(), value["width"].as_u64()), (Some("a.jpg"), Some(80)));
    }

    #[test]
    fn pictures_and_rows_are_written_and_names_never_clash() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/out");
        let mut output = OutputFolder::create(&out, true, true).unwrap();
        for path in ["x/a.png", "y/a.png", "z/a.webp"] {
            output.write(Path::new(path), &gray(), &two_boxes(), &names()).unwrap();
        }
        let drawn = decode(&out.join("a.png")).unwrap();
        assert_eq!(drawn.size, Size::new(80, 40));
        assert_ne!(drawn, gray());
        assert!(out.join("a-2.png").is_file() && out.join("a-3.jpg").is_file());
        assert_eq!(std::fs::read_to_string(out.join("labels/a-2.txt")).unwrap(), text_rows(&two_boxes()));
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 4); // no temporary file stays
    }

    #[test]
    fn a_source_picture_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        crate::media::encode::encode(&path, &gray(), 90).unwrap();
        let before = std::fs::read(&path).unwrap();
        let mut output = OutputFolder::create(folder.path(), true, false).unwrap();
        let error = output.write(&path, &gray(), &two_boxes(), &names()).unwrap_err();
        assert!(matches!(error, DetectError::Overwrite { .. }));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = OutputFolder::create(&folder.path().join("file/out"), true, true).err().unwrap();
        assert!(matches!(&error, DetectError::Write { .. }), "{error}");
        assert!(error.hint().is_some());
    }
}
