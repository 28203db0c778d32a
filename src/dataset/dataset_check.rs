//! What is wrong with a dataset as a whole: its classes, its balance, its files beside images and labels?
//!
//! In:  a dataset with its labels.
//! Out: findings about class names, how often classes occur, backgrounds, shared and strayed files.
//!
//! Rules about shares and counts are silent for a handful of images, where they would say nothing. Never writes.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;

use super::check::Finding;
use super::image_check::ImageLooks;
use super::label::Label;
use super::label::Split;
use super::leakage::capped;
use super::open::Dataset;
use super::open::Format;
use super::rule::Rule;
use super::rule::Severity;
use super::split;
use super::voc;
use crate::geom::Size;
use crate::media::decode;

/// Of fewer images, counts and shares say nothing. A proposal.
const MIN_IMAGES: usize = 50;
/// The most frequent class may have so many times the boxes of the rarest.
const MAX_IMBALANCE: usize = 20;
/// A class with fewer boxes in train is hardly learned.
const MIN_BOXES: usize = 20;
/// A larger share of train without boxes is worth a look; advice on it varies.
const MAX_BACKGROUNDS: f64 = 0.1;
/// Names are compared letter by letter from this length on: `cat` and `car` are two things.
const MIN_COMPARED_CHARS: usize = 5;
/// Names that are told one by one.
const MAX_NAMED: usize = 10;

/// What the rules look at.
pub(super) struct Whole<'a> {
    pub(super) dataset: &'a Dataset,
    /// By image of the dataset.
    pub(super) labels: &'a [&'a [Label]],
    pub(super) looks: &'a ImageLooks,
}

impl Whole<'_> {
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = self.names();
        findings.extend(self.balance());
        findings.extend(self.backgrounds());
        findings.extend(capped(self.shared_label_files()));
        findings.extend(self.same_names());
        findings.extend(capped(self.strayed_files()));
        findings.extend(capped(self.wrong_sizes()));
        findings
    }

    fn finding(&self, rule: Rule, severity: Severity, message: String) -> Finding {
        Finding::of_dataset(self.dataset, rule, severity, message)
    }

    fn names(&self) -> Vec<Finding> {
        let names = &self.dataset.names;
        let mut findings = Vec::new();
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (class, name) in names.iter().enumerate() {
            by_name.entry(name).or_default().push(class);
        }
        for (name, classes) in by_name.iter().filter(|(_, classes)| classes.len() > 1) {
            let message = format!("classes {} are all called {name:?}", listed(classes.iter().map(ToString::to_string)));
            findings.push(self.finding(Rule::DuplicateNames, Severity::Warning, message));
        }
        for (a, b) in similar_names(names) {
            let message = format!("classes {a} {:?} and {b} {:?} are spelled nearly the same; are they one?", names[a], names[b]);
            findings.push(self.finding(Rule::SimilarNames, Severity::Warning, message));
        }
        if self.dataset.format == Format::Yolo && unsorted_names(&self.dataset.source) {
            let message = "the numbers of `names` are not in order; they count, not the order of the lines".to_owned();
            findings.push(self.finding(Rule::NamesUnsorted, Severity::Info, message));
        }
        capped(findings)
    }

    /// Boxes by class, in a split or in all.
    fn boxes(&self, split: Option<Split>) -> Vec<usize> {
        let mut counts = vec![0; self.dataset.names.len()];
        for (image, labels) in self.dataset.images.iter().zip(self.labels) {
            if split.is_none_or(|split| image.split == split) {
                for label in *labels {
                    if let Some(count) = counts.get_mut(label.class.0 as usize) {
                        *count += 1;
                    }
                }
            }
        }
        counts
    }

    fn balance(&self) -> Vec<Finding> {
        let names = &self.dataset.names;
        let [all, train, val] = [None, Some(Split::Train), Some(Split::Val)].map(|split| self.boxes(split));
        let mut findings = Vec::new();
        let unused: Vec<usize> = (0..names.len()).filter(|&class| all[class] == 0).collect();
        if !unused.is_empty() && unused.len() < names.len() {
            let message =
                format!("{} of {} classes have no box: {}", unused.len(), names.len(), listed(unused.iter().map(|&c| names[c].clone())));
            findings.push(self.finding(Rule::UnusedName, Severity::Info, message));
        }
        if self.dataset.images.len() < MIN_IMAGES {
            return findings;
        }
        let used = || (0..names.len()).filter(|&class| train[class] > 0);
        if let (Some(most), Some(least)) = (used().max_by_key(|&class| train[class]), used().min_by_key(|&class| train[class]))
            && train[most] > MAX_IMBALANCE * train[least]
        {
            let message = format!(
                "{:?} has {} boxes in train, {:?} has {}: {:.0} times as many",
                names[most],
                train[most],
                names[least],
                train[least],
                train[most] as f64 / train[least] as f64
            );
            findings.push(self.finding(Rule::ClassImbalance, Severity::Info, message));
        }
        let rare = used().filter(|&class| train[class] < MIN_BOXES);
        let rare = rare.map(|class| format!("class {:?} has {} boxes in train, fewer than {MIN_BOXES}", names[class], train[class]));
        findings.extend(capped(rare.map(|message| self.finding(Rule::RareClass, Severity::Info, message)).collect()));
        if self.dataset.split(Split::Val).next().is_some() {
            let absent = used().filter(|&class| val[class] == 0);
            let absent = absent.map(|class| format!("class {:?} has {} boxes in train and none in val", names[class], train[class]));
            findings.extend(capped(absent.map(|message| self.finding(Rule::ClassNotInVal, Severity::Warning, message)).collect()));
        }
        findings
    }

    fn backgrounds(&self) -> Option<Finding> {
        let train = self.dataset.images.iter().zip(self.labels).filter(|(image, _)| image.split == Split::Train);
        let (n, n_empty) = train.fold((0, 0), |(n, n_empty), (_, labels)| (n + 1, n_empty + usize::from(labels.is_empty())));
        if n < MIN_IMAGES {
            return None;
        }
        let message = if n_empty == 0 {
            format!("none of {n} images in train is a background; a few help against false alarms")
        } else if n_empty as f64 > MAX_BACKGROUNDS * n as f64 {
            let share = 100.0 * n_empty as f64 / n as f64;
            format!("{n_empty} of {n} images in train have no box ({share:.0} %); right if nothing is to be found there")
        } else {
            return None;
        };
        Some(self.finding(Rule::BackgroundShare, Severity::Info, message))
    }

    /// `x.jpg` and `x.png` have one label file.
    fn shared_label_files(&self) -> Vec<Finding> {
        let mut images: BTreeMap<&Path, BTreeSet<(&Path, usize)>> = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        for (index, image) in self.dataset.images.iter().enumerate() {
            if seen.insert(&image.path) {
                images.entry(&image.label_path).or_default().insert((&image.path, index));
            }
        }
        let shared = images.into_values().filter(|images| images.len() > 1);
        let tell = |images: BTreeSet<(&Path, usize)>| {
            let (_, last) = *images.last()?;
            let names = listed(images.iter().map(|(path, _)| split::name(path)));
            let message = format!("{names} have one label file, so that each gets the boxes of all");
            Some(Finding::of_image(self.dataset, last, Rule::SharedLabelFile, Severity::Warning, message))
        };
        shared.filter_map(tell).collect()
    }

    /// File names that occur in several folders.
    fn same_names(&self) -> Option<Finding> {
        let mut folders: BTreeMap<&std::ffi::OsStr, BTreeSet<&Path>> = BTreeMap::new();
        for image in &self.dataset.images {
            if let (Some(name), Some(folder)) = (image.path.file_name(), image.path.parent()) {
                folders.entry(name).or_default().insert(folder);
            }
        }
        let mut repeated = folders.iter().filter(|(_, folders)| folders.len() > 1);
        let (name, places) = repeated.next()?;
        let places = listed(places.iter().map(|folder| self.dataset.relative(folder).display().to_string()));
        let n = repeated.count() + 1;
        let name = name.to_string_lossy();
        let message = format!(
            "{n} file names occur in several folders, such as {name:?} in {places}; tools that copy all images into one folder overwrite them"
        );
        Some(self.finding(Rule::SameBasename, Severity::Info, message))
    }

    /// Files beside images and labels that are not read, or that mislead other trainers.
    fn strayed_files(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let images: std::collections::HashSet<&Path> = self.dataset.images.iter().map(|image| image.path.as_path()).collect();
        let folders_of = |path: fn(&super::open::ImageEntry) -> &Path| -> BTreeSet<PathBuf> {
            self.dataset.images.iter().filter_map(|image| path(image).parent().map(Path::to_owned)).collect()
        };
        for path in folders_of(|image| &image.path).iter().flat_map(|folder| entries(folder)) {
            if let Some((rule, message)) = strayed_image(&path, &images) {
                findings.push(Finding::of_file(self.dataset, &path, rule, rule.info().severity, message));
            }
        }
        let mut folders: BTreeSet<PathBuf> = folders_of(|image| &image.label_path);
        folders.extend(folders.clone().iter().filter_map(|folder| folder.parent().map(Path::to_owned)));
        folders.insert(self.dataset.root.clone());
        for path in folders.iter().filter(|folder| folder.starts_with(&self.dataset.root)).flat_map(|folder| entries(folder)) {
            let ending = path.extension().unwrap_or_default();
            if (ending == "cache" || ending == "pache") && path.is_file() {
                let message =
                    "another trainer keeps its list of labels here and does not notice when labels change without changing the size of \
                               their files; it is not read here"
                        .to_owned();
                findings.push(Finding::of_file(self.dataset, &path, Rule::ForeignCache, Severity::Info, message));
            }
        }
        findings.sort_by(|a, b| a.file.cmp(&b.file));
        findings.dedup_by(|a, b| a.file == b.file && a.rule == b.rule);
        findings
    }

    /// Annotations that state another size than the picture has.
    fn wrong_sizes(&self) -> Vec<Finding> {
        if self.dataset.format != Format::PascalVoc {
            return Vec::new();
        }
        let stated = |path: &Path| voc::parse_voc(&self.dataset.label_bytes(path).ok()??).ok()?.size;
        let mut findings = Vec::new();
        for (index, image) in self.dataset.images.iter().enumerate() {
            let true_size = self.looks.get(&image.path).and_then(|look| look.size);
            let (Some(Size { width, height }), Some(stated)) = (true_size, stated(&image.label_path)) else { continue };
            if (stated.width, stated.height) != (width, height) {
                let turned =
                    if (stated.height, stated.width) == (width, height) { ", which is the picture turned on its side" } else { "" };
                let message = format!(
                    "the annotation says {} x {} pixels{turned}; the picture has {width} x {height}, which counts",
                    stated.width, stated.height
                );
                let file = self.dataset.relative(&image.label_path);
                let finding = Finding::of_image(self.dataset, index, Rule::ImageSizeDiffers, Severity::Warning, message);
                findings.push(Finding { file, ..finding });
            }
        }
        findings
    }
}

/// What lies in a folder, sorted; nothing where it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// A picture of a kind that is not read, or a link to nowhere.
fn strayed_image(path: &Path, images: &std::collections::HashSet<&Path>) -> Option<(Rule, String)> {
    const UNREAD: [&str; 7] = ["heic", "heif", "avif", "jp2", "jxl", "psd", "dng"];
    if images.contains(path) || split::name(path).starts_with('.') {
        return None;
    }
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if UNREAD.contains(&ending.as_str()) {
        return Some((Rule::UnsupportedImage, format!("pictures that end with .{ending} are not read; convert it to JPEG or PNG")));
    }
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    if !is_link || !(decode::is_image_path(path) || ending.is_empty()) {
        return None;
    }
    let target = std::fs::read_link(path).unwrap_or_default();
    let target = target.to_string_lossy();
    match std::fs::metadata(path) {
        Err(error) => Some((Rule::BrokenLink, format!("the link leads to {target:?}, which cannot be reached: {error}"))),
        Ok(metadata) if metadata.is_dir() => {
            let (there, here) = (path.canonicalize().ok()?, path.parent()?.canonicalize().ok()?);
            let loops = here.starts_with(there);
            loops.then(|| (Rule::BrokenLink, format!("the link leads back to {target:?}, a folder that it lies in; it is not followed")))
        }
        Ok(_) => None,
    }
}

fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let n_more = names.len().saturating_sub(MAX_NAMED);
    let text = names.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if n_more > 0 { format!("{text} and {n_more} more") } else { text }
}

/// Pairs of classes whose names differ by case, blanks, a plural ending, or one letter of several.
fn similar_names(names: &[String]) -> Vec<(usize, usize)> {
    let mut pairs = BTreeSet::new();
    // Names that differ by one letter are equal after one letter of each was left out, at most.
    let mut by_spelling: HashMap<String, Vec<usize>> = HashMap::new();
    for (class, name) in names.iter().enumerate() {
        let plain = plain_name(name);
        let mut spellings = BTreeSet::from([plain.clone()]);
        spellings.extend(plain.strip_suffix("es").map(str::to_owned));
        let chars: Vec<char> = plain.chars().collect();
        // Numbers tell classes apart: `class_1` and `class_2`.
        if (MIN_COMPARED_CHARS..=64).contains(&chars.len()) && !chars.iter().any(char::is_ascii_digit) {
            spellings.extend((0..chars.len()).map(|left_out| {
                let kept = chars.iter().enumerate().filter(|(at, _)| *at != left_out);
                kept.map(|(_, c)| *c).collect::<String>()
            }));
        } else {
            spellings.extend(plain.strip_suffix('s').filter(|rest| rest.len() > 2).map(str::to_owned));
        }
        for spelling in spellings {
            by_spelling.entry(spelling).or_default().push(class);
        }
    }
    for classes in by_spelling.into_values().filter(|classes| classes.len() > 1) {
        // A spelling that very many names share tells nothing.
        for (i, &a) in classes.iter().enumerate().take(100) {
            for &b in classes[i + 1..].iter().take(100) {
                if names[a] != names[b] && are_similar(&plain_name(&names[a]), &plain_name(&names[b])) {
                    pairs.insert((a, b));
                }
            }
        }
    }
    pairs.into_iter().collect()
}

fn plain_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace() && !"_-.".contains(*c)).flat_map(char::to_lowercase).collect()
}

fn are_similar(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let is_plural = long.strip_prefix(short).is_some_and(|ending| ["s", "es"].contains(&ending) && short.len() > 2);
    let n_chars = short.chars().count();
    a == b || is_plural || (n_chars >= MIN_COMPARED_CHARS && edit_distance_is_1(short, long))
}

/// Whether one letter more, less or else makes one text of the other; `short` is not longer in bytes.
fn edit_distance_is_1(short: &str, long: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (short.chars().collect(), long.chars().collect());
    let same_start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let same_end = a[same_start..].iter().rev().zip(b[same_start.min(b.len())..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (a.len() - same_start - same_end, b.len() - same_start - same_end);
    rest_a.max(rest_b) == 1
}

/// Whether data.yaml numbers its names, and not in order.
fn unsorted_names(source: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(source) else { return false };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("names:"));
    if lines.next().is_none_or(|line| !line["names:".len()..].split('#').next().unwrap_or_default().trim().is_empty()) {
        return false;
    }
    let entries = lines
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .take_while(|line| line.starts_with([' ', '\t']));
    let numbers: Vec<u64> = entries.filter_map(|line| line.split_once(':')?.0.trim().trim_matches(['"', '\'']).parse().ok()).collect();
    !numbers.is_sorted()
}

#[cfg(test)]
#[path = "dataset_check_tests.rs"]
mod tests;
