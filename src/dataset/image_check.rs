//! What is wrong with each image file, and will training use it?
//!
//! In:  a dataset, how closely to look, and what an earlier look found.
//! Out: for each image file its size, its faults, and a fingerprint where it was decoded.
//!
//! This is the one place that says which images training uses: those without an error here. At the depth of pixels that is what the
//! train set finds, since both decode with the same decoder; at the depth of headers, files that are damaged inside pass.
//! A file that did not change since an earlier look is not looked at again. Decoded pictures are not kept. Never writes.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;

use rayon::prelude::*;

use super::index::stamp::Stamp;
use super::open::Dataset;
use super::open::DatasetError;
use super::rule::Rule;
use super::rule::Severity;
use crate::geom::Size;
use crate::media::decode::MAX_PIXELS;
use crate::media::fingerprint::Fingerprint;
use crate::media::fingerprint::fingerprint;
use crate::media::inspect::Failure;
use crate::media::inspect::Inspection;
use crate::media::inspect::Inspector;
use crate::media::inspect::Oddity;

/// Sides below this are dropped by the published trainer (`verify_image_label`).
const MIN_SIDE: u32 = 10;
/// Longer sides are slow everywhere, and many tools refuse them. A proposal.
const MAX_SIDE: u32 = 16_384;
/// A 16-bit picture whose upper 8 bits stay below this is nearly black for training. A proposal.
const NEARLY_BLACK: u8 = 16;
/// What file systems allow for one name, and what many archives allow for a path, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// How closely images are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Headers and the end of the file: fast.
    #[default]
    Header,
    /// Every pixel, as training reads it.
    Pixels,
}

/// One fault of an image file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFault {
    pub rule: Rule,
    pub severity: Severity,
    pub message: String,
}

/// What is known of an image file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageLook {
    stamp: Stamp,
    depth: Depth,
    /// As displayed.
    pub size: Option<Size>,
    pub faults: Vec<ImageFault>,
    /// Where the pixels were looked at.
    pub print: Option<Fingerprint>,
}

impl ImageLook {
    /// Whether training uses the image, as far as it was looked at.
    pub fn is_used(&self) -> bool {
        self.faults.iter().all(|fault| fault.severity != Severity::Error)
    }
}

/// What is known of all image files of a dataset, by path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageLooks {
    pub depth: Depth,
    looks: HashMap<PathBuf, ImageLook>,
}

impl ImageLooks {
    pub fn get(&self, path: &Path) -> Option<&ImageLook> {
        self.looks.get(path)
    }
}

/// Looks at every image file once, in parallel. What `known` says of a file that did not change since is taken over.
///
/// # Errors
/// `Cancelled` only.
pub(super) fn look_at_all(
    dataset: &Dataset,
    depth: Depth,
    known: Option<&ImageLooks>,
    check_in: &(dyn Fn() -> ControlFlow<()> + Sync),
) -> Result<ImageLooks, DatasetError> {
    let mut paths: Vec<&Path> = dataset.images.iter().map(|image| image.path.as_path()).collect();
    paths.sort_unstable();
    paths.dedup();
    let inspector = Inspector::default();
    let looks = paths
        .par_iter()
        .map(|&path| {
            let look = look_again(dataset, path, depth, known.and_then(|known| known.get(path)), &inspector);
            match check_in() {
                ControlFlow::Continue(()) => Ok((path.to_owned(), look)),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;
    Ok(ImageLooks { depth, looks })
}

fn look_again(dataset: &Dataset, path: &Path, depth: Depth, known: Option<&ImageLook>, inspector: &Inspector) -> ImageLook {
    let stamp = Stamp::of(path);
    if let Some(known) = known.filter(|known| known.depth >= depth && known.stamp.holds(stamp)) {
        return known.clone();
    }
    let (found, print) = match depth {
        Depth::Header => (inspector.header(path), None),
        Depth::Pixels => {
            let (found, picture) = inspector.pixels(path);
            (found, picture.as_ref().map(fingerprint))
        }
    };
    let mut faults = faults(path, &found);
    faults.extend(odd_name(&dataset.relative(path)));
    ImageLook { stamp, depth, size: found.size, faults, print }
}

/// What is to be said about a file.
fn faults(path: &Path, found: &Inspection) -> Vec<ImageFault> {
    let mut faults = Vec::new();
    let mut tell = |rule: Rule, severity, message: String| faults.push(ImageFault { rule, severity, message });
    if let Some(failure) = &found.failure {
        let (rule, message) = failed(path, failure, found.size);
        tell(rule, Severity::Error, message);
    }
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if let Some(kind) = found.kind.filter(|kind| kind.is_supported() && !kind.endings().contains(&ending.as_str())) {
        let message = format!("the content is {}, but the name ends with .{ending}; other tools may refuse it", kind.name());
        tell(Rule::WrongSuffix, Severity::Warning, message);
    }
    if let Some(Size { width, height }) = found.size {
        if width.min(height) < MIN_SIDE {
            let message = format!("the image has {width} x {height} pixels; other trainers drop images with a side below {MIN_SIDE}");
            tell(Rule::ImageTooSmall, Severity::Warning, message);
        }
        if width.max(height) > MAX_SIDE && found.failure.is_none() {
            let message =
                format!("the image has {width} x {height} pixels; small objects vanish when it is fitted to the input, tiles help");
            tell(Rule::ImageTooLarge, Severity::Warning, message);
        }
    }
    if (2..=8).contains(&found.orientation) {
        let message = match found.orientation {
            5 | 7 => "the picture is turned by its EXIF orientation {}; the published trainer takes its width for its height",
            6 | 8 => "the picture is turned on its side by its EXIF orientation {}; labels must be drawn on the turned picture",
            _ => "the picture is turned or mirrored by its EXIF orientation {}; labels must be drawn on the turned picture",
        };
        tell(Rule::ImageTurned, Severity::Info, message.replace("{}", &found.orientation.to_string()));
    }
    for oddity in &found.oddities {
        let (rule, severity, message) = odd(*oddity);
        tell(rule, severity, message);
    }
    faults
}

fn failed(path: &Path, failure: &Failure, size: Option<Size>) -> (Rule, String) {
    match failure {
        Failure::Unreadable(_) if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) => {
            let target = std::fs::read_link(path).unwrap_or_default();
            let target = target.to_string_lossy();
            (Rule::BrokenLink, format!("the link leads to {target:?}, which cannot be reached"))
        }
        Failure::Unreadable(reason) => (Rule::ImageUnreadable, reason.clone()),
        Failure::Empty => (Rule::ImageEmpty, "the image file is empty (0 bytes)".to_owned()),
        Failure::Truncated(reason) => (Rule::ImageTruncated, format!("the image is cut off: {reason}")),
        Failure::Unsupported(kind) => {
            (Rule::UnsupportedImage, format!("the content is {}, which is not read; convert it to JPEG or PNG", kind.name()))
        }
        Failure::FloatSamples => {
            (Rule::FloatImage, "the samples are 32-bit numbers, which are not read; convert the picture to 8 bits".to_owned())
        }
        Failure::TooManyPixels => {
            let Size { width, height } = size.unwrap_or(Size::new(0, 0));
            (Rule::ImageTooLarge, format!("{width} x {height} pixels are too many, the limit is {} million", MAX_PIXELS / 1_000_000))
        }
        Failure::Undecodable(reason) => (Rule::ImageUnreadable, format!("the image cannot be decoded: {reason}")),
    }
}

fn odd(oddity: Oddity) -> (Rule, Severity, String) {
    use Severity::{Info, Warning};
    match oddity {
        Oddity::TrailingBytes(n) => (
            Rule::TrailingBytes,
            Info,
            format!("{n} bytes follow the end of the picture; harmless here, the published trainer re-encodes such a JPEG"),
        ),
        Oddity::Cmyk => {
            (Rule::CmykImage, Info, "the picture is CMYK; training sees other colours than a colour-managed viewer shows".to_owned())
        }
        Oddity::SixteenBit(Some(brightest)) if brightest < NEARLY_BLACK => {
            let message = format!("of 16 bits only the upper 8 count, and these reach {brightest} of 255: training sees a black picture");
            (Rule::SixteenBitImage, Warning, message)
        }
        Oddity::SixteenBit(_) => (Rule::SixteenBitImage, Info, "of 16 bits only the upper 8 count".to_owned()),
        Oddity::Gray => (Rule::GrayImage, Info, "the picture is gray; its values are used for red, green and blue".to_owned()),
        Oddity::Alpha => (Rule::AlphaChannel, Info, "transparency is ignored: training sees the colours below it".to_owned()),
        Oddity::Pages(n) => (Rule::MultiPageImage, Warning, format!("the file has {n} pages, of which only the first is used")),
        Oddity::Animated => (Rule::AnimatedImage, Warning, "the file is an animation, of which only the first frame is used".to_owned()),
    }
}

/// What is wrong with a name, relative to the dataset.
fn odd_name(relative: &Path) -> Option<ImageFault> {
    let name = relative.file_name()?;
    let stem = relative.file_stem()?.to_string_lossy().into_owned();
    let text = name.to_str();
    let shown = name.to_string_lossy();
    let (severity, what) = if text.is_none() {
        (Severity::Warning, "is not valid UTF-8; lists of images and other tools lose it".to_owned())
    } else if shown.chars().any(char::is_control) {
        (Severity::Warning, "holds a line break or another control character; a list of images cannot name it".to_owned())
    } else if stem.starts_with(' ') || stem.ends_with([' ', '.']) {
        (Severity::Warning, "begins or ends with a blank or a dot, which Windows and many lists take away".to_owned())
    } else if name.len() > MAX_NAME_BYTES || relative.as_os_str().len() > MAX_NAME_BYTES {
        (Severity::Info, format!("has a path of more than {MAX_NAME_BYTES} bytes, which archives and Windows cut"))
    } else {
        let odd = shown.chars().find(|c| "<>:\"|?*\\#%".contains(*c))?;
        (Severity::Info, format!("holds {odd:?}, which Windows or web addresses do not take"))
    };
    Some(ImageFault { rule: Rule::OddName, severity, message: format!("the name {shown:?} {what}") })
}

#[cfg(test)]
#[path = "image_check_tests.rs"]
mod tests;
