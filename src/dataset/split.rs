//! Which images are for training, which for validation, which for test? Chosen by a seed, so that no two parts know each other.
//!
//! In:  a dataset with its labels, the wanted shares, a seed.
//! Out: a split for each image, with counts to look at first; then the change of the files that say so.
//!
//! 1. Images that belong together stay together: same content, copies that Roboflow made of one picture (`x_jpg.rf.…`), and frames of one
//!    video or burst by their names (`clip_0001`, `clip_0002`).
//! 2. Groups are given out by class, the rarest first, each to the split that lacks most of it (iterative stratification). An image
//!    without labels counts as of a class of its own.
//! 3. No image is moved: `train.txt`, `val.txt` and `test.txt` list them, and data.yaml points at these.
//!
//! Names that only count (`IMG_0001`, or one name for nearly the whole dataset) are no videos. The same seed gives the same split.
//! Source: Sechidis, Tsoumakas, Vlahavas, On the Stratification of Multi-Label Data (2011).

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::data_yaml::DataYaml;
use super::label::{Label, Split};
use super::ledger::record::Scope;
use super::ledger::{self, Change, NewEdit};
use super::open::{Dataset, DatasetError, Format};
use super::sample::random::Random;
use super::yaml_text;

/// How a dataset is to be split.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitOptions {
    /// Share of the images for validation, from 0 to 1; the rest is for training.
    pub val: f64,
    pub test: f64,
    pub seed: u64,
    /// Frames of one video or burst stay together, as far as names tell.
    pub groups_by_name: bool,
}

impl Default for SplitOptions {
    fn default() -> Self {
        Self { val: 0.2, test: 0.0, seed: 0, groups_by_name: true }
    }
}

/// A split before it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitPlan {
    /// By image of the dataset; images with the same path have the same.
    pub splits: Vec<Split>,
    pub n_groups: usize,
    /// Groups of more than one image, by what holds them together: content, Roboflow copies, names.
    pub n_joined: [usize; 3],
    /// Of train, val and test.
    pub counts: [SplitCounts; 3],
    /// What is worth knowing before it is applied.
    pub notes: Vec<String>,
}

/// What a split holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitCounts {
    pub n_images: usize,
    pub n_backgrounds: usize,
    /// Boxes by class.
    pub boxes: Vec<usize>,
}

/// Where one name covers nearly the whole dataset, it is numbered, not filmed.
const LARGEST_VIDEO: f64 = 0.9;
/// Names that cameras and exports give to any picture.
const COUNTED: [&str; 10] = ["img", "image", "dsc", "dscn", "dscf", "pict", "photo", "picture", "p", "pxl"];

/// Chooses a split for each image. Reads images only to compare those of the same size in bytes.
///
/// # Errors
/// Shares that leave nothing for training; cancellation.
pub fn plan(
    dataset: &Dataset,
    labels: &[impl AsRef<[Label]> + Sync],
    options: &SplitOptions,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<SplitPlan, DatasetError> {
    let SplitOptions { val, test, .. } = *options;
    if !(val >= 0.0 && test >= 0.0 && val + test < 1.0) {
        return Err(DatasetError::Split { reason: format!("shares of {val} for val and {test} for test leave nothing for training") });
    }
    let mut notes = Vec::new();
    let (images, of_image) = unique_images(dataset);
    let paths: Vec<&Path> = images.iter().map(|&index| &*dataset.images[index].path).collect();
    let mut joined = Joined::new(paths.len());
    let by_content = joined.join(same_content(&paths, check_in)?);
    let by_copy = joined.join(by_key(&paths, |path| roboflow_stem(&name(path))));
    let by_name = if options.groups_by_name { joined.join(videos(dataset, &paths, &mut notes)) } else { 0 };
    let groups = joined.groups();

    let n_classes = dataset.names.len();
    let classes_of = |place: usize| -> Vec<usize> {
        let labels = labels.get(images[place]).map_or(&[][..], AsRef::as_ref);
        if labels.is_empty() { vec![n_classes] } else { labels.iter().map(|label| label.class.0 as usize).collect() }
    };
    let counted: Vec<Group> = groups.into_iter().map(|images| Group::new(images, &classes_of)).collect();
    let chosen = stratified(&counted, [1.0 - val - test, val, test], options.seed);
    let mut split_of = vec![Split::Train; paths.len()];
    for (group, split) in counted.iter().zip(&chosen) {
        for &place in &group.images {
            split_of[place] = *split;
        }
    }
    let splits: Vec<Split> = of_image.iter().map(|&place| split_of[place]).collect();
    let counts = Split::ALL.map(|split| {
        let mut counts = SplitCounts { boxes: vec![0; n_classes], ..SplitCounts::default() };
        for place in (0..paths.len()).filter(|&place| split_of[place] == split) {
            counts.n_images += 1;
            for class in classes_of(place) {
                match counts.boxes.get_mut(class) {
                    Some(count) => *count += 1,
                    None => counts.n_backgrounds += usize::from(class == n_classes),
                }
            }
        }
        counts
    });
    for (split, share) in [(1, val), (2, test)] {
        let name = Split::ALL[split].name();
        if share > 0.0 {
            let missing: Vec<&str> = (0..n_classes)
                .filter(|&class| counts[0].boxes[class] > 0 && counts[split].boxes[class] == 0)
                .map(|class| dataset.names[class].as_str())
                .collect();
            if !missing.is_empty() {
                notes.push(format!("{name} has no box of {}", missing.join(", ")));
            }
            let got = counts[split].n_images as f64 / paths.len().max(1) as f64;
            if (got - share).abs() > 0.05 {
                notes.push(format!("{name} gets {:.0} % of the images, since groups stay whole", got * 100.0));
            }
        }
    }
    Ok(SplitPlan { splits, n_groups: counted.len(), n_joined: [by_content, by_copy, by_name], counts, notes })
}

/// The first image of each path, and by image of the dataset where it stands among these: the same image may be in two splits.
pub(super) fn unique_images(dataset: &Dataset) -> (Vec<usize>, Vec<usize>) {
    let mut places: HashMap<&Path, usize> = HashMap::new();
    let mut images: Vec<usize> = Vec::new();
    let mut of_image = Vec::with_capacity(dataset.images.len());
    for (index, image) in dataset.images.iter().enumerate() {
        let place = *places.entry(&image.path).or_insert_with(|| {
            images.push(index);
            images.len() - 1
        });
        of_image.push(place);
    }
    (images, of_image)
}

/// Images that belong together.
struct Group {
    images: Vec<usize>,
    /// How many boxes it has of each class that it has.
    classes: BTreeMap<usize, usize>,
}

impl Group {
    fn new(images: Vec<usize>, classes_of: &dyn Fn(usize) -> Vec<usize>) -> Self {
        let mut classes = BTreeMap::new();
        for class in images.iter().flat_map(|&image| classes_of(image)) {
            *classes.entry(class).or_default() += 1;
        }
        Self { images, classes }
    }
}

/// A split for each group.
fn stratified(groups: &[Group], shares: [f64; 3], seed: u64) -> Vec<Split> {
    let mut random = Random::new(seed, 0x5917, 0);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    random.shuffle(&mut order);
    let n_images: usize = groups.iter().map(|group| group.images.len()).sum();
    let mut wanted_images = shares.map(|share| share * n_images as f64);
    let mut left: BTreeMap<usize, usize> = BTreeMap::new();
    let mut having: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &index in &order {
        for (&class, &count) in &groups[index].classes {
            *left.entry(class).or_default() += count;
            having.entry(class).or_default().push(index);
        }
    }
    let mut wanted: BTreeMap<usize, [f64; 3]> =
        left.iter().map(|(&class, &count)| (class, shares.map(|share| share * count as f64))).collect();
    let mut chosen: Vec<Option<Split>> = vec![None; groups.len()];
    while let Some((&class, _)) = left.iter().min_by_key(|(_, count)| **count) {
        left.remove(&class);
        // Large groups first: small ones then even out.
        let mut members = having.remove(&class).unwrap_or_default();
        members.retain(|&index| chosen[index].is_none());
        members.sort_by_key(|&index| std::cmp::Reverse(groups[index].classes[&class]));
        for index in members {
            let group = &groups[index];
            let of_class = wanted[&class];
            let best = (0..3)
                .filter(|&split| shares[split] > 0.0)
                .max_by(|&a, &b| of_class[a].total_cmp(&of_class[b]).then(wanted_images[a].total_cmp(&wanted_images[b])).then(b.cmp(&a)));
            let split = best.unwrap_or(0);
            chosen[index] = Some(Split::ALL[split]);
            wanted_images[split] -= group.images.len() as f64;
            for (class, &count) in &group.classes {
                if let Some(wanted) = wanted.get_mut(class) {
                    wanted[split] -= count as f64;
                }
                if let Some(left) = left.get_mut(class) {
                    *left = left.saturating_sub(count);
                }
            }
        }
    }
    chosen.into_iter().map(|split| split.unwrap_or(Split::Train)).collect()
}

/// Which images are in one group.
struct Joined {
    parents: Vec<usize>,
}

impl Joined {
    fn new(n: usize) -> Self {
        Self { parents: (0..n).collect() }
    }

    fn root(&mut self, mut index: usize) -> usize {
        while self.parents[index] != index {
            self.parents[index] = self.parents[self.parents[index]];
            index = self.parents[index];
        }
        index
    }

    /// Joins each of these sets; returns how many there were.
    fn join(&mut self, sets: Vec<Vec<usize>>) -> usize {
        for set in &sets {
            for pair in set.windows(2) {
                let (a, b) = (self.root(pair[0]), self.root(pair[1]));
                self.parents[a.max(b)] = a.min(b);
            }
        }
        sets.len()
    }

    fn groups(mut self) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in 0..self.parents.len() {
            groups.entry(self.root(index)).or_default().push(index);
        }
        groups.into_values().collect()
    }
}

/// Sets of more than one image with the same key.
pub(super) fn by_key<K: Ord>(paths: &[&Path], key: impl Fn(&Path) -> Option<K>) -> Vec<Vec<usize>> {
    let mut sets: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (index, path) in paths.iter().enumerate() {
        if let Some(key) = key(path) {
            sets.entry(key).or_default().push(index);
        }
    }
    sets.into_values().filter(|set| set.len() > 1).collect()
}

pub(super) fn same_content(
    paths: &[&Path],
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<Vec<Vec<usize>>, DatasetError> {
    let sizes: Vec<Option<u64>> = paths.par_iter().map(|path| std::fs::metadata(path).ok().map(|metadata| metadata.len())).collect();
    let mut by_size: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, size) in sizes.iter().enumerate() {
        if let Some(size) = size {
            by_size.entry(*size).or_default().push(index);
        }
    }
    let twins: Vec<usize> = by_size.into_values().filter(|set| set.len() > 1).flatten().collect();
    let (done, total) = (std::sync::atomic::AtomicU64::new(0), twins.len() as u64);
    let hashes: Vec<(usize, Option<blake3::Hash>)> = twins
        .par_iter()
        .map(|&index| {
            let n = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            match check_in(n, total) {
                ControlFlow::Continue(()) => Ok((index, std::fs::read(paths[index]).ok().map(|bytes| blake3::hash(&bytes)))),
                ControlFlow::Break(()) => Err(DatasetError::Cancelled),
            }
        })
        .collect::<Result<_, _>>()?;
    let hash_of: HashMap<usize, [u8; 32]> = hashes.into_iter().filter_map(|(index, hash)| Some((index, *hash?.as_bytes()))).collect();
    let mut sets: BTreeMap<[u8; 32], Vec<usize>> = BTreeMap::new();
    for index in 0..paths.len() {
        if let Some(hash) = hash_of.get(&index) {
            sets.entry(*hash).or_default().push(index);
        }
    }
    Ok(sets.into_values().filter(|set| set.len() > 1).collect())
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What stands before `_jpg.rf.`, by which Roboflow names copies of one picture.
pub(super) fn roboflow_stem(name: &str) -> Option<String> {
    let (stem, _) = name.split_once(".rf.")?;
    let (stem, ending) = stem.rsplit_once('_')?;
    ["jpg", "jpeg", "png", "bmp", "webp"].contains(&ending.to_ascii_lowercase().as_str()).then(|| stem.to_owned())
}

/// Folder without the names of splits, and name without the number at its end; and how many digits that has.
fn video_key(dataset: &Dataset, path: &Path) -> Option<((PathBuf, String), usize)> {
    let file = name(path);
    let stem = roboflow_stem(&file).unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let prefix = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let n_digits = stem.len() - prefix.len();
    let prefix = prefix.trim_end_matches(['_', '-', '.', ' ', '(', '#']);
    let folder = dataset.relative(path.parent().unwrap_or(Path::new("")));
    let is_split = |part: &std::ffi::OsStr| {
        ["train", "training", "val", "valid", "validation", "test", "testing", "images", "JPEGImages"].iter().any(|name| part == *name)
    };
    let folder: PathBuf = folder.components().map(std::path::Component::as_os_str).filter(|part| !is_split(part)).collect();
    let is_counted = COUNTED.contains(&prefix.to_ascii_lowercase().as_str()) && folder.as_os_str().is_empty();
    (n_digits >= 1 && prefix.chars().any(char::is_alphanumeric) && !is_counted).then(|| ((folder, prefix.to_owned()), n_digits))
}

/// Sets of frames of one video or burst.
pub(super) fn videos(dataset: &Dataset, paths: &[&Path], notes: &mut Vec<String>) -> Vec<Vec<usize>> {
    let mut sets = by_key(paths, |path| video_key(dataset, path).map(|(key, _)| key));
    // `x_1` and `x_2` may be anything; with `x_10` they are frames.
    let is_long = |&place: &usize| video_key(dataset, paths[place]).is_some_and(|(_, n_digits)| n_digits >= 2);
    sets.retain(|set| set.iter().any(is_long));
    let largest = (paths.len() as f64 * LARGEST_VIDEO).max(2.0);
    sets.retain(|set| {
        let is_video = set.len() as f64 <= largest;
        if !is_video {
            let key = video_key(dataset, paths[set[0]]).map(|((_, prefix), _)| prefix).unwrap_or_default();
            notes.push(format!(
                "{} images are called {key:?} and a number; so many are taken for single pictures, not for a video",
                set.len()
            ));
        }
        is_video
    });
    sets
}

/// The edit that brings a dataset's files to a split: `splits` by image of the dataset.
///
/// # Errors
/// A data.yaml in a form that is not understood, or files that cannot be read.
pub fn edit(dataset: &Dataset, splits: &[Split], name: String) -> Result<NewEdit, DatasetError> {
    let files = match dataset.format {
        Format::Yolo => yolo_files(dataset, splits)?,
        Format::PascalVoc => voc_files(dataset, splits)?,
    };
    Ok(NewEdit { name, scope: Scope::Splits, files, ..NewEdit::default() })
}

/// The splits of a dataset when some images go to another one; images with the same path go together.
pub fn moved(dataset: &Dataset, images: &[usize], split: Split) -> Vec<Split> {
    let paths: std::collections::HashSet<&Path> = images.iter().filter_map(|&index| Some(&*dataset.images.get(index)?.path)).collect();
    dataset.images.iter().map(|image| if paths.contains(&*image.path) { split } else { image.split }).collect()
}

/// The paths of each split, each path once in it.
fn listed<'a>(dataset: &'a Dataset, splits: &[Split], split: Split) -> Vec<&'a Path> {
    let mut paths: Vec<&Path> =
        dataset.images.iter().zip(splits).filter(|(_, each)| **each == split).map(|(image, _)| &*image.path).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn whole(path: PathBuf, text: Vec<u8>) -> Result<Option<Change>, DatasetError> {
    let before = ledger::read(&path).map_err(|source| DatasetError::Io { path: path.display().to_string(), source })?;
    Ok((before.as_deref() != Some(&text)).then(|| Change::whole(path, before, text)))
}

fn yolo_files(dataset: &Dataset, splits: &[Split]) -> Result<Vec<Change>, DatasetError> {
    let mut files = Vec::new();
    let mut places = Vec::new();
    for split in Split::ALL {
        let paths = listed(dataset, splits, split);
        let file = format!("{}.txt", split.name());
        let mut text = Vec::new();
        for path in &paths {
            // `./` is taken from the list's folder by the public trainers, other relative paths from the current one.
            if let Ok(below) = path.strip_prefix(&dataset.root) {
                text.extend_from_slice(b"./");
                let below = below.as_os_str().as_encoded_bytes();
                text.extend(below.iter().map(|&byte| if cfg!(windows) && byte == b'\\' { b'/' } else { byte }));
            } else {
                text.extend_from_slice(path.as_os_str().as_encoded_bytes());
            }
            text.push(b'\n');
        }
        if !paths.is_empty() {
            files.extend(whole(dataset.root.join(&file), text)?);
        }
        places.push((split, (!paths.is_empty()).then_some(file)));
    }
    let yaml_path = if dataset.source.is_file() { dataset.source.clone() } else { dataset.root.join("data.yaml") };
    let unreadable = |source| DatasetError::Io { path: yaml_path.display().to_string(), source };
    let before = ledger::read(&yaml_path).map_err(unreadable)?;
    let text = if let Some(bytes) = &before {
        let text = std::str::from_utf8(bytes).ok().and_then(|text| yaml_text::with_places(text, &places));
        text.ok_or_else(|| DatasetError::YamlForm { path: yaml_path.display().to_string() })?
    } else {
        let place = |index: usize| places.get(index).and_then(|(_, place)| place.clone()).into_iter().collect();
        DataYaml { train: place(0), val: place(1), test: place(2), names: dataset.names.clone(), ..DataYaml::default() }.to_text()
    };
    files.extend(whole(yaml_path, text.into_bytes())?);
    Ok(files)
}

/// Lists of stems, as Pascal VOC has them.
fn voc_files(dataset: &Dataset, splits: &[Split]) -> Result<Vec<Change>, DatasetError> {
    let folder = dataset.root.join("ImageSets").join("Main");
    let mut files = Vec::new();
    for split in Split::ALL {
        let mut text = Vec::new();
        for path in listed(dataset, splits, split) {
            text.extend_from_slice(path.file_stem().unwrap_or_default().as_encoded_bytes());
            text.push(b'\n');
        }
        let path = folder.join(format!("{}.txt", split.name()));
        if !text.is_empty() || path.exists() {
            files.extend(whole(path, text)?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::ledger::Ledger;
    use super::super::open::tests::folder;
    use super::*;

    fn never(_: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn labels(dataset: &Dataset) -> Vec<Vec<Label>> {
        dataset.images.iter().map(|image| dataset.labels(image).unwrap()).collect()
    }

    /// 200 images: nine of ten have class 0, every tenth class 1 alone, some nothing; with `names` as file names.
    fn many(names: impl Fn(usize) -> String) -> (tempfile::TempDir, Dataset) {
        let mut files = vec![("data.yaml".to_owned(), "train: images # all\nval: images\nnames: [a, b]\n".to_owned())];
        for index in 0..200 {
            let name = names(index);
            files.push((format!("images/{name}.jpg"), format!("{index}")));
            let text = match index {
                _ if index % 10 == 0 => "1 .5 .5 .1 .1\n",
                _ if index % 10 == 1 => "",
                _ => "0 .5 .5 .1 .1\n0 .2 .2 .1 .1\n",
            };
            files.push((format!("labels/{name}.txt"), text.to_owned()));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let root = folder(&files);
        let dataset = Dataset::open(root.path()).unwrap();
        (root, dataset)
    }

    #[test]
    fn classes_are_shared_out_and_a_seed_gives_the_same_again() {
        let (_root, dataset) = many(|index| format!("{index:05}"));
        let labels = labels(&dataset);
        let options = SplitOptions { val: 0.2, test: 0.1, ..SplitOptions::default() };
        let plan = super::plan(&dataset, &labels, &options, &never).unwrap();
        let of = |index: usize| (plan.counts[index].n_images, plan.counts[index].n_backgrounds, plan.counts[index].boxes.clone());
        assert_eq!([of(0), of(1), of(2)], [(140, 14, vec![224, 14]), (40, 4, vec![64, 4]), (20, 2, vec![32, 2])]);
        assert_eq!((plan.n_groups, plan.n_joined, plan.notes.len()), (200, [0, 0, 0], 0), "{:?}", plan.notes);
        assert_eq!(super::plan(&dataset, &labels, &options, &never).unwrap(), plan);
        assert_ne!(super::plan(&dataset, &labels, &SplitOptions { seed: 1, ..options }, &never).unwrap().splits, plan.splits);
        let error = super::plan(&dataset, &labels, &SplitOptions { val: 1.0, ..SplitOptions::default() }, &never).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
    }

    #[test]
    fn what_belongs_together_stays_together() {
        // Ten videos of 16 frames, 20 pictures with a Roboflow copy each.
        let (root, _) = many(|index| {
            if index < 160 {
                format!("clip{}_{:04}", index / 16, index % 16)
            } else {
                format!("x{}_jpg.rf.{:02}", (b'a' + (index as u8 - 160) / 2) as char, index % 2)
            }
        });
        std::fs::write(root.path().join("images/clip0_0000.jpg"), "copy").unwrap();
        std::fs::write(root.path().join("images/clip1_0000.jpg"), "copy").unwrap();
        let dataset = Dataset::open(root.path()).unwrap();
        let options = SplitOptions { val: 0.3, ..SplitOptions::default() };
        let plan = super::plan(&dataset, &labels(&dataset), &options, &never).unwrap();
        assert_eq!(plan.n_joined, [1, 20, 10]);
        assert_eq!(plan.n_groups, 29, "two videos share a picture");
        let mut seen: BTreeMap<String, Split> = BTreeMap::new();
        for (image, split) in dataset.images.iter().zip(&plan.splits) {
            let name = name(&image.path);
            let key = roboflow_stem(&name).unwrap_or_else(|| name[..5].replace("clip1", "clip0"));
            assert_eq!(*seen.entry(key.clone()).or_insert(*split), *split, "{key}");
        }
        assert!((40..=80).contains(&plan.counts[1].n_images), "{:?}", plan.counts);
        let apart = super::plan(&dataset, &labels(&dataset), &SplitOptions { groups_by_name: false, ..options }, &never).unwrap();
        assert_eq!(apart.n_joined, [1, 20, 0]);
    }

    #[test]
    fn frames_stay_together_in_few_long_videos_and_with_numbers_of_any_length() {
        // Three videos of about a third each, whose numbers have one to two digits; and two pictures of whatever.
        let (_root, dataset) =
            many(|index| if index < 198 { format!("vid{}_{}", ["a", "b", "c"][index % 3], index / 3) } else { format!("x_{index}") });
        let plan = super::plan(&dataset, &labels(&dataset), &SplitOptions::default(), &never).unwrap();
        let mut seen: BTreeMap<String, Split> = BTreeMap::new();
        for (image, split) in dataset.images.iter().zip(&plan.splits) {
            let key = name(&image.path)[..4].to_owned();
            assert_eq!(*seen.entry(key.clone()).or_insert(*split), *split, "{key}");
        }
        assert_eq!(plan.n_joined, [0, 0, 4]);
        let (_root, dataset) = many(|index| format!("{}_{}", index / 2, index % 2 + 1));
        assert_eq!(super::plan(&dataset, &labels(&dataset), &SplitOptions::default(), &never).unwrap().n_joined, [0, 0, 0]);
    }

    #[test]
    fn numbered_pictures_are_no_video() {
        for prefix in ["IMG_", "part_"] {
            let (_root, dataset) = many(|index| format!("{prefix}{index:04}"));
            let plan = super::plan(&dataset, &labels(&dataset), &SplitOptions::default(), &never).unwrap();
            assert_eq!((plan.n_groups, plan.notes.len()), (200, usize::from(prefix == "part_")), "{:?}", plan.notes);
        }
    }

    #[test]
    fn a_split_is_written_as_lists_and_taken_back() {
        let (root, dataset) = many(|index| format!("{index:05}"));
        let state = tempfile::tempdir().unwrap();
        let plan = super::plan(&dataset, &labels(&dataset), &SplitOptions::default(), &never).unwrap();
        let mut ledger = Ledger::open(state.path(), &dataset.root).unwrap();
        ledger.write(edit(&dataset, &plan.splits, "Split".to_owned()).unwrap(), &|| ControlFlow::Continue(())).unwrap();
        let yaml = std::fs::read_to_string(root.path().join("data.yaml")).unwrap();
        assert_eq!(yaml, "train: train.txt # all\nval: val.txt\nnames: [a, b]\n");
        let after = Dataset::open(root.path()).unwrap();
        assert_eq!(
            (after.split(Split::Train).count(), after.split(Split::Val).count(), after.notes.len()),
            (160, 40, 0),
            "{:?}",
            after.notes
        );
        let list = std::fs::read_to_string(root.path().join("val.txt")).unwrap();
        assert!(list.lines().all(|line| line.starts_with("./images/")));

        let first = after.images.iter().position(|image| image.split == Split::Val).unwrap();
        let splits = moved(&after, &[first], Split::Test);
        ledger.write(edit(&after, &splits, "Move to test".to_owned()).unwrap(), &|| ControlFlow::Continue(())).unwrap();
        assert_eq!(Dataset::open(root.path()).unwrap().split(Split::Test).count(), 1);
        ledger.undo().unwrap().unwrap();
        ledger.undo().unwrap().unwrap();
        assert!(!root.path().join("val.txt").exists());
        assert_eq!(Dataset::open(root.path()).unwrap().images, dataset.images);
    }

    #[test]
    fn a_dataset_without_data_yaml_gets_one_and_pascal_voc_its_lists() {
        let root = folder(&[("images/a.jpg", "1"), ("images/b.jpg", "2"), ("labels/a.txt", "0 .5 .5 .1 .1"), ("classes.txt", "no\nb")]);
        let dataset = Dataset::open(root.path()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(state.path(), &dataset.root).unwrap();
        let new = edit(&dataset, &moved(&dataset, &[1], Split::Val), "Move to val".to_owned()).unwrap();
        ledger.write(new, &|| ControlFlow::Continue(())).unwrap();
        let after = Dataset::open(root.path()).unwrap();
        assert_eq!((after.names.clone(), after.split(Split::Val).count()), (dataset.names.clone(), 1));
        ledger.undo().unwrap().unwrap();
        assert!(!root.path().join("data.yaml").exists());

        let object = "<annotation><object><name>dog</name></object></annotation>";
        let root = folder(&[("JPEGImages/a.jpg", "1"), ("JPEGImages/b.jpg", "2"), ("Annotations/a.xml", object)]);
        let dataset = Dataset::open(root.path()).unwrap();
        let new = edit(&dataset, &moved(&dataset, &[1], Split::Val), "Move to val".to_owned()).unwrap();
        Ledger::open(state.path(), &dataset.root).unwrap().write(new, &|| ControlFlow::Continue(())).unwrap();
        let after = Dataset::open(root.path()).unwrap();
        assert_eq!((after.split(Split::Train).count(), after.split(Split::Val).count()), (1, 1));
    }
}
