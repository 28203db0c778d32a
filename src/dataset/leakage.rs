//! Which images are the same as others, and which of them let a split know another one?
//!
//! In:  a dataset with its labels, and fingerprints of its images where they were decoded.
//! Out: findings: copies, near copies, copies with other labels; images, copies, Roboflow copies and videos that two splits share.
//!
//! Copies are those of equal pixels, or of equal bytes where nothing was decoded. What belongs together by its name is told by the same
//! functions that plan a split (`split.rs`), so that a split planned here is not complained about. Never writes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use super::check::Finding;
use super::duplicates;
use super::duplicates::NearPictures;
use super::image_check::Depth;
use super::image_check::ImageLooks;
use super::label::Label;
use super::label::Split;
use super::open::Dataset;
use super::open::DatasetError;
use super::rule::Rule;
use super::rule::Severity;
use super::split;
use crate::media::fingerprint::Fingerprint;

/// More findings of one rule are counted in the last one.
pub(super) const MAX_FINDINGS_PER_RULE: usize = 1000;
/// Boxes whose sides all differ by less, in fractions of the image, are the same: six decimals and a half pixel of rounding.
const SAME_BOX: f32 = 1e-3;
/// Beyond so many boxes the labels of copies are compared in their order.
const MAX_MATCHED_BOXES: usize = 2000;

/// The image files of a dataset, each once, with the splits that it is in.
struct Places<'a> {
    dataset: &'a Dataset,
    /// An index into the dataset's images.
    images: Vec<usize>,
    paths: Vec<&'a Path>,
    splits: Vec<[bool; 3]>,
}

impl<'a> Places<'a> {
    fn new(dataset: &'a Dataset) -> Self {
        let (images, of_image) = split::unique_images(dataset);
        let paths = images.iter().map(|&index| dataset.images[index].path.as_path()).collect();
        let mut splits = vec![[false; 3]; images.len()];
        for (image, &place) in dataset.images.iter().zip(&of_image) {
            splits[place][image.split as usize] = true;
        }
        Self { dataset, images, paths, splits }
    }

    fn shown(&self, place: usize) -> String {
        self.dataset.relative(self.paths[place]).display().to_string()
    }

    fn finding(&self, place: usize, rule: Rule, severity: Severity, message: String) -> Finding {
        Finding::of_image(self.dataset, self.images[place], rule, severity, message)
    }

    /// The splits that a group is in, with the first place in each.
    fn firsts(&self, group: &[usize]) -> Vec<(Split, usize)> {
        let first = |split: &Split| Some((*split, *group.iter().find(|&&place| self.splits[place][*split as usize])?));
        Split::ALL.iter().filter_map(first).collect()
    }

    /// Whether two images have no split in common.
    fn are_apart(&self, a: usize, b: usize) -> bool {
        (0..3).all(|split| !(self.splits[a][split] && self.splits[b][split]))
    }
}

/// Finds copies and leaks. `labels` by image of the dataset.
///
/// # Errors
/// `Cancelled` only.
pub(super) fn findings(
    dataset: &Dataset,
    labels: &[&[Label]],
    looks: &ImageLooks,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<Vec<Finding>, DatasetError> {
    let places = Places::new(dataset);
    let prints: Vec<Option<Fingerprint>> = places.paths.iter().map(|path| looks.get(path)?.print).collect();
    let (copies, what) = match looks.depth {
        Depth::Pixels => (duplicates::same_pixels(&prints), "pixels"),
        Depth::Header => (not_empty(split::same_content(&places.paths, check_in)?, looks, &places), "bytes"),
    };
    let mut findings = same_images(&places);
    findings.extend(capped(copied(&places, &copies, what)));
    findings.extend(capped(labelled_otherwise(&places, &copies, labels)));
    let near = NearPictures::find(&prints);
    findings.extend(capped(nearly_copied(&places, &near)));
    let mut leaks = leaked_copies(&places, &copies, what);
    leaks.extend(leaked_near_copies(&places, &near, &copies));
    leaks.extend(leaked_names(&places));
    findings.extend(capped(leaks));
    Ok(findings)
}

/// Without the groups of files that are no pictures: empty ones are all the same.
fn not_empty(mut groups: Vec<Vec<usize>>, looks: &ImageLooks, places: &Places<'_>) -> Vec<Vec<usize>> {
    groups.retain(|group| looks.get(places.paths[group[0]]).is_some_and(|look| look.size.is_some()));
    groups
}

/// At most so many findings, the last of which tells how many more there are.
pub(super) fn capped(mut findings: Vec<Finding>) -> Vec<Finding> {
    let n_more = findings.len().saturating_sub(MAX_FINDINGS_PER_RULE);
    findings.truncate(MAX_FINDINGS_PER_RULE);
    if let (1.., Some(last)) = (n_more, findings.last_mut()) {
        last.message = format!("{}; and {n_more} more findings of this rule", last.message);
    }
    findings
}

/// Images that two splits list.
fn same_images(places: &Places<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (a, b) in [(Split::Train, Split::Val), (Split::Train, Split::Test), (Split::Val, Split::Test)] {
        let count = |split: Split| places.splits.iter().filter(|splits| splits[split as usize]).count();
        let n = places.splits.iter().filter(|splits| splits[a as usize] && splits[b as usize]).count();
        if n == 0 {
            continue;
        }
        let message = if n == count(a) && n == count(b) {
            format!("{} and {} are the same {n} images; the figures say nothing about new images", a.name(), b.name())
        } else {
            format!("{} and {} share {n} images; the figures of {1} will be too good", a.name(), b.name())
        };
        findings.push(Finding::of_dataset(places.dataset, Rule::SameImagesInSplits, Severity::Warning, message));
    }
    findings
}

fn copied(places: &Places<'_>, copies: &[Vec<usize>], what: &str) -> Vec<Finding> {
    let copy = |(place, first): (usize, usize)| {
        let message = format!("the image has the same {what} as {}", places.shown(first));
        places.finding(place, Rule::DuplicateImage, Severity::Warning, message)
    };
    copies.iter().flat_map(|group| group[1..].iter().map(|&place| (place, group[0]))).map(copy).collect()
}

fn labelled_otherwise(places: &Places<'_>, copies: &[Vec<usize>], labels: &[&[Label]]) -> Vec<Finding> {
    let of = |place: usize| labels.get(places.images[place]).copied().unwrap_or_default();
    let mut findings = Vec::new();
    for group in copies {
        for &place in &group[1..] {
            if !are_same(of(group[0]), of(place)) {
                let (n, n_first) = (of(place).len(), of(group[0]).len());
                let message =
                    format!("the image is a copy of {}, but its labels differ: {n} boxes here, {n_first} there", places.shown(group[0]));
                findings.push(places.finding(place, Rule::DuplicateLabelsDiffer, Severity::Warning, message));
            }
        }
    }
    findings
}

/// Whether two sets of labels are the same but for rounding, in any order.
fn are_same(a: &[Label], b: &[Label]) -> bool {
    let is_same = |a: &Label, b: &Label| {
        let sides = [a.bbox.cx - b.bbox.cx, a.bbox.cy - b.bbox.cy, a.bbox.w - b.bbox.w, a.bbox.h - b.bbox.h];
        a.class == b.class && sides.iter().all(|side| side.abs() < SAME_BOX)
    };
    if a.len() != b.len() {
        return false;
    }
    if a.len() > MAX_MATCHED_BOXES {
        return a.iter().zip(b).all(|(a, b)| is_same(a, b));
    }
    let mut left: Vec<&Label> = b.iter().collect();
    a.iter().all(|a| left.iter().position(|b| is_same(a, b)).map(|at| left.swap_remove(at)).is_some())
}

fn nearly_copied(places: &Places<'_>, near: &NearPictures<'_>) -> Vec<Finding> {
    let found = |place: usize| {
        let other = near.nearest(place, |other| other < place)?;
        let message = format!("the image shows nearly the same as {} ({} of 64 bits differ)", places.shown(other.place), other.distance);
        Some(places.finding(place, Rule::NearDuplicateImage, Severity::Info, message))
    };
    (0..places.paths.len()).filter_map(found).collect()
}

fn leaked_copies(places: &Places<'_>, copies: &[Vec<usize>], what: &str) -> Vec<Finding> {
    let leak = |group: &Vec<usize>| {
        let [(split, first), .., (other, last)] = places.firsts(group)[..] else { return None };
        let place = if first == last { return None } else { last };
        let message = format!(
            "{} has the same {what} as {} in {}; the figures of {0} will be too good",
            other.name(),
            places.shown(first),
            split.name()
        );
        Some(places.finding(place, Rule::SplitLeak, Severity::Warning, message))
    };
    copies.iter().filter_map(leak).collect()
}

/// Images outside of train that show nearly the same as one in train.
fn leaked_near_copies(places: &Places<'_>, near: &NearPictures<'_>, copies: &[Vec<usize>]) -> Vec<Finding> {
    let is_told: std::collections::HashSet<usize> = copies.iter().flatten().copied().collect();
    let in_train = |place: usize| places.splits[place][Split::Train as usize];
    let leak = |place: usize| {
        let other = near.nearest(place, |other| in_train(other) && places.are_apart(place, other))?;
        let split = places.dataset.images[places.images[place]].split.name();
        let message = format!(
            "the image in {split} shows nearly the same as {} in train ({} of 64 bits differ)",
            places.shown(other.place),
            other.distance
        );
        Some(places.finding(place, Rule::SplitLeak, Severity::Warning, message))
    };
    (0..places.paths.len()).filter(|place| !in_train(*place) && !is_told.contains(place)).filter_map(leak).collect()
}

/// Copies by Roboflow and frames of videos, which their names tell.
fn leaked_names(places: &Places<'_>) -> Vec<Finding> {
    let copies = split::by_key(&places.paths, |path| split::roboflow_stem(&split::name(path)));
    let videos = split::videos(places.dataset, &places.paths, &mut Vec::new());
    let mut findings = Vec::new();
    for (groups, what) in [(copies, "copies that Roboflow made of one picture"), (videos, "frames of one video or burst, by their names,")]
    {
        for group in groups {
            let firsts = places.firsts(&group);
            let [(split, first), .., (other, last)] = firsts[..] else { continue };
            if group.windows(2).all(|pair| !places.are_apart(pair[0], pair[1])) {
                continue; // the same images in both, which is told elsewhere
            }
            let n_of = |split: Split| group.iter().filter(|&&place| places.splits[place][split as usize]).count();
            let adjacent = adjacent_frames(places, &group);
            let adjacent = adjacent.map_or(String::new(), |(n, a, b)| format!(", {n} of them adjacent, such as {a} and {b}"));
            let message = format!(
                "{what} are in {} ({}) and {} ({}){adjacent}; {} and {} are two of them",
                split.name(),
                n_of(split),
                other.name(),
                n_of(other),
                places.shown(first),
                places.shown(last)
            );
            findings.push(places.finding(last, Rule::SplitLeak, Severity::Warning, message));
        }
    }
    findings
}

/// How many frames of a video follow each other by number but lie in two splits, with the first two.
fn adjacent_frames(places: &Places<'_>, group: &[usize]) -> Option<(usize, String, String)> {
    let number = |place: usize| {
        let stem = places.paths[place].file_stem()?.to_str()?;
        stem[stem.trim_end_matches(|c: char| c.is_ascii_digit()).len()..].parse::<u64>().ok()
    };
    let frames: BTreeMap<u64, usize> = group.iter().filter_map(|&place| Some((number(place)?, place))).collect();
    let pairs = frames.iter().zip(frames.iter().skip(1));
    let mut adjacent = pairs.filter(|((a, place), (b, next))| *a + 1 == **b && places.are_apart(**place, **next));
    let ((_, first), (_, second)) = adjacent.next()?;
    Some((adjacent.count() + 1, split::name(places.paths[*first]), split::name(places.paths[*second])))
}

#[cfg(test)]
#[path = "leakage_tests.rs"]
mod tests;
