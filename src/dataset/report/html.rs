//! Findings as one page for people: what was found, why it matters, and pictures of it. Needs no other file and no network.
//!
//! In:  findings and the dataset, whose images are read again. Out: HTML with embedded pictures, of bounded size.
//!
//! A picture that cannot be read is left out, its finding is not.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rayon::prelude::*;

use super::counts;
use crate::dataset::Dataset;
use crate::dataset::check::Finding;
use crate::dataset::open::DatasetError;
use crate::dataset::rule::Rule;
use crate::geom::{Size, Xywhn, Xyxy};
use crate::media::decode::{ReducedPicture, decode_reduced};
use crate::media::encode::encode_jpeg;
use crate::media::resize::{resize_area, resize_linear};
use crate::media::{Picture, draw};

/// Findings with a picture, of each rule; at 240 x 180 pixels these are about 10 KB each.
const MAX_PICTURES: usize = 24;
/// Lines of a table, of each rule. The rest is counted.
const MAX_LINES: usize = 500;
/// Sides of a picture on the page.
const SIZE: Size = Size { width: 240, height: 180 };
/// Decoded so large that a small box can be cut out of it.
const DECODED_SIDE: u32 = 1280;
const COLOR: [u8; 3] = [255, 0, 170];

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884;--weak:#777}
body{font:15px/1.45 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .2rem}
p{margin:.3rem 0}.why,.more{color:var(--weak)}
table{border-collapse:collapse;width:100%;margin:.6rem 0}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}td.place{font-family:ui-monospace,monospace;font-size:.85rem;overflow-wrap:anywhere}
.pictures{display:flex;flex-wrap:wrap;gap:.8rem;margin:.6rem 0}
figure{margin:0;width:240px}figure img{display:block;border-radius:4px}
figcaption{font-size:.8rem;color:var(--weak);overflow-wrap:anywhere}
.error{color:#c62828}.warning{color:#b26a00}.info{color:#1565c0}
@media(prefers-color-scheme:dark){body{background:#15181d;color:#dde1e7}.error{color:#ff7b72}.warning{color:#f0b35c}.info{color:#79b8ff}}
";

/// The page; `n_more` findings were asked for, but are not among these. `check_in(done, total)` counts pictures and may stop it.
///
/// # Errors
/// `Cancelled` only.
pub fn page(
    findings: &[&Finding],
    n_more: usize,
    dataset: &Dataset,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<String, DatasetError> {
    let pictures = pictures(findings, dataset, check_in)?;
    let mut page = String::new();
    let name = escaped(&dataset.root.file_name().unwrap_or_default().to_string_lossy());
    let n = findings.len() + n_more;
    // Writing to a string does not fail.
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{name}: {n} findings</title><style>{STYLE}</style></head><body>\n<h1>{name}</h1>\n\
         <p>{n} findings in {} images. Boxwright {}.</p>\n<table><tr><th>Rule</th><th>Severity</th><th>Findings</th><th>Fix</th></tr>\n",
        dataset.images.len(),
        env!("CARGO_PKG_VERSION"),
    )
    .ok();
    let counts = counts(findings);
    for (rule, count) in &counts {
        let info = rule.info();
        let severity = findings.iter().filter(|finding| finding.rule == *rule).map(|finding| finding.severity).max();
        let severity = severity.unwrap_or(info.severity).name();
        writeln!(
            page,
            "<tr><td><a href=\"#{id}\">{}</a></td><td class=\"{severity}\">{severity}</td><td class=\"n\">{count}</td><td>{}</td></tr>",
            escaped(info.title),
            info.fix.name(),
            id = info.id,
        )
        .ok();
    }
    page.push_str("</table>\n");
    if n_more > 0 {
        writeln!(page, "<p class=\"more\">{n_more} more findings are not on this page.</p>").ok();
    }
    for (rule, count) in counts {
        section(&mut page, rule, count, findings, &pictures);
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn section(page: &mut String, rule: Rule, count: usize, findings: &[&Finding], pictures: &HashMap<usize, String>) {
    let info = rule.info();
    let (title, why) = (escaped(info.title), escaped(info.why));
    writeln!(page, "<h2 id=\"{}\">{title}</h2>\n<p class=\"why\">{}: {why}.</p>", info.id, info.id).ok();
    let of_rule: Vec<(usize, &&Finding)> = findings.iter().enumerate().filter(|(_, finding)| finding.rule == rule).collect();
    page.push_str("<div class=\"pictures\">\n");
    for (index, finding) in &of_rule {
        if let Some(data) = pictures.get(index) {
            let place = escaped(&place(finding));
            writeln!(page, "<figure><img alt=\"{place}\" src=\"data:image/jpeg;base64,{data}\"><figcaption>{place}</figcaption></figure>")
                .ok();
        }
    }
    page.push_str("</div>\n<table>\n");
    for (_, finding) in of_rule.iter().take(MAX_LINES) {
        let severity = finding.severity.name();
        let (place, message) = (escaped(&place(finding)), escaped(&finding.message));
        writeln!(page, "<tr><td class=\"{severity}\">{severity}</td><td class=\"place\">{place}</td><td>{message}</td></tr>").ok();
    }
    page.push_str("</table>\n");
    if count > MAX_LINES {
        writeln!(page, "<p class=\"more\">and {} more like these</p>", count - MAX_LINES).ok();
    }
}

fn place(finding: &Finding) -> String {
    match finding.line {
        Some(line) => format!("{}:{line}", finding.file.display()),
        None => finding.file.display().to_string(),
    }
}

/// Pictures as base64, by the finding's place among all.
fn pictures(
    findings: &[&Finding],
    dataset: &Dataset,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<HashMap<usize, String>, DatasetError> {
    let mut n_of_rule: HashMap<Rule, usize> = HashMap::new();
    let wanted: Vec<(usize, usize, Option<Xywhn>)> = findings
        .iter()
        .enumerate()
        .filter_map(|(index, finding)| Some((index, finding.image.filter(|&image| image < dataset.images.len())?, finding)))
        .filter(|(.., finding)| {
            let n = n_of_rule.entry(finding.rule).or_default();
            *n += 1;
            *n <= MAX_PICTURES
        })
        .map(|(index, image, finding)| (index, image, finding.bbox))
        .collect();
    let total = wanted.len() as u64;
    let done = std::sync::atomic::AtomicU64::new(0);
    let made: Vec<Option<(usize, String)>> = wanted
        .par_iter()
        .map(|&(index, image, bbox)| {
            let picture = decode_reduced(&dataset.images[image].path, DECODED_SIDE).ok().and_then(|reduced| shown(&reduced, bbox));
            match check_in(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, total) {
                ControlFlow::Continue(()) => Ok(picture.map(|jpeg| (index, STANDARD.encode(jpeg)))),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;
    Ok(made.into_iter().flatten().collect())
}

/// The box with as much around it, or the whole picture, as JPEG.
fn shown(reduced: &ReducedPicture, bbox: Option<Xywhn>) -> Option<Vec<u8>> {
    let picture = &reduced.picture;
    let (width, height) = (picture.size.width as f32, picture.size.height as f32);
    let bbox =
        bbox.map(|b| [(b.cx - b.w / 2.0) * width, (b.cy - b.h / 2.0) * height, (b.cx + b.w / 2.0) * width, (b.cy + b.h / 2.0) * height]);
    // Boxes of files may be anywhere; what is cut out lies inside.
    let bbox = bbox.filter(|sides| sides.iter().all(|side| side.is_finite()));
    let window = bbox.map_or([0.0, 0.0, width, height], |[x1, y1, x2, y2]| {
        let ratio = SIZE.width as f32 / SIZE.height as f32;
        let side = (2.0 * (y2 - y1).abs().max((x2 - x1).abs() / ratio)).clamp(48.0, height.max(width / ratio));
        let (w, h) = ((side * ratio).min(width), side.min(height));
        let left = (x1.midpoint(x2) - w / 2.0).clamp(0.0, width - w);
        let top = (y1.midpoint(y2) - h / 2.0).clamp(0.0, height - h);
        [left, top, left + w, top + h]
    });
    let [left, top, right, bottom] = window.map(|side| side as u32);
    let cut = cut_out(picture, left, top, right.max(left + 1), bottom.max(top + 1))?;
    let scale = (SIZE.width as f32 / cut.size.width as f32).min(SIZE.height as f32 / cut.size.height as f32);
    let side = |length: u32| ((length as f32 * scale).round() as u32).max(1);
    let size = Size::new(side(cut.size.width), side(cut.size.height));
    let mut page = if scale < 1.0 { resize_area(&cut, size) } else { resize_linear(&cut, size) };
    if let Some([x1, y1, x2, y2]) = bbox {
        let (x, y) = (|x: f32| (x - left as f32) * scale, |y: f32| (y - top as f32) * scale);
        draw::draw_box(&mut page, Xyxy::new(x(x1), y(y1), x(x2), y(y2)), COLOR, "");
    }
    encode_jpeg(&page, 80).ok()
}

fn cut_out(picture: &Picture, left: u32, top: u32, right: u32, bottom: u32) -> Option<Picture> {
    let (right, bottom) = (right.min(picture.size.width), bottom.min(picture.size.height));
    let size = Size::new(right.checked_sub(left)?, bottom.checked_sub(top)?);
    let row = picture.size.width as usize * 3;
    let columns = left as usize * 3..right as usize * 3;
    let rgb = picture.rgb.chunks_exact(row).skip(top as usize).take(size.height as usize).flat_map(|line| &line[columns.clone()]);
    (size.width > 0 && size.height > 0).then(|| Picture { size, rgb: rgb.copied().collect() })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::Selection;
    use super::super::tests::report;
    use super::*;
    use crate::dataset::open::tests::{folder, png};
    use crate::media::decode::decode;

    #[test]
    fn a_page_holds_every_finding_with_pictures_and_nothing_of_a_file_as_markup() {
        let root = folder(&[("data.yaml", "train: images\nval: images\nnames: [x]\n")]);
        png(root.path(), "images/a.png", 100, 50);
        let dataset = Dataset::open(&root.path().join("data.yaml")).unwrap();
        let mut report = report();
        for finding in &mut report.findings {
            finding.image = finding.line.map(|line| if line == 3 { 0 } else { 99 });
        }
        let (findings, _) = Selection::default().of(&report);
        let page = page(&findings, 5, &dataset, &|_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(page.matches("<img").count(), 1, "an image that there is");
        assert_eq!(page.matches("class=\"place\"").count(), 4);
        assert!(page.contains("&lt;out-of-range&gt; &amp; &quot;more&quot;") && !page.contains("<out-of-range>"));
        assert!(page.contains("9 findings in ") && page.contains("5 more findings are not on this page"));
        assert!(!page.contains("http"), "needs no network");
        let stopped = super::page(&findings, 0, &dataset, &|_, _| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(DatasetError::Cancelled)));
    }

    #[test]
    fn a_box_is_cut_out_with_what_is_around_it_wherever_it_lies() {
        let root = folder(&[]);
        let mut picture = Picture { size: Size::new(400, 300), rgb: vec![20; 400 * 300 * 3] };
        draw::draw_box(&mut picture, Xyxy::new(300.0, 200.0, 320.0, 220.0), [250; 3], "");
        let reduced = ReducedPicture { full_size: picture.size, picture };
        let path = root.path().join("cut.jpg");
        for (cx, cy, side, finds) in [
            (0.775, 0.7, 0.05, true),
            (0.2, 0.2, 0.05, false),
            (7.0, -3.0, 0.05, false),
            (0.5, 0.5, 40.0, true),
            (f32::NAN, 0.5, 0.1, true),
        ] {
            std::fs::write(&path, shown(&reduced, Some(Xywhn { cx, cy, w: side, h: side })).unwrap()).unwrap();
            let cut = decode(&path).unwrap();
            assert!(cut.size.width <= SIZE.width && cut.size.height <= SIZE.height);
            let is_bright = cut.rgb.chunks_exact(3).any(|pixel| pixel.iter().all(|&value| value > 90));
            assert_eq!(is_bright, finds, "{cx} {cy} {side}");
        }
        let whole = shown(&reduced, None).unwrap();
        std::fs::write(&path, whole).unwrap();
        assert_eq!(decode(&path).unwrap().size, SIZE);
    }
}
