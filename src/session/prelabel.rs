//! Pre-labelling: what would a detector label on images of the open dataset?
//!
//! In:  weights and images. Out: proposals by image, kept apart from labels until a person accepts them.
//!
//! 1. Classes of the weights are those of the dataset with the same name; boxes of other classes are left out, and told.
//! 2. A proposal is *open* while no label of its class overlaps it with an IoU of 0.6 or more: accepting it makes a label, which closes it,
//!    and undoing that opens it again. Only rejections are taken out; the last ones can be brought back until the program ends.
//! 3. Everything is appended to a file with the project's state, a line an image; the last line of an image counts.
//!
//! Never changes labels: accepting gives an edit, which goes the way of every edit.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Session;
use super::device;
use super::event::{CommandDone, Event};
use super::failure::Failure;
use super::job::JobContext;
use super::tasks::Inputs;
use crate::dataset::edit::{Edit, ImageEdit, LabelOp, Mark, Review};
use crate::dataset::{ClassId, Dataset, Label};
use crate::detect::DetectError;
use crate::detect::{DetectOptions, Detector};
use crate::engine::Device;
use crate::geom::iou::iou;
use crate::geom::{Size, Xywhn};
use crate::media::decode;

/// Overlap with a label of the same class from which on a proposal says nothing new.
const SAME_BOX: f32 = 0.6;

/// So many rejections can be brought back.
const MAX_REJECTIONS: usize = 1000;

/// Which images are to be looked at, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct PrelabelRequest {
    /// Of the open dataset.
    pub images: Vec<usize>,
    pub weights: PathBuf,
    pub device: Device,
    /// Score from which on a box is proposed, 0 to 1.
    pub min_score: f32,
    /// Overlap above which the less sure box of the same class is dropped, 0 to 1.
    pub iou: f32,
}

/// A box that a detector found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    pub label: Label,
    /// 0 to 1.
    pub score: f32,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrelabelReport {
    pub n_images: usize,
    pub n_proposals: usize,
    pub n_unreadable: usize,
    /// Classes of the weights that the dataset has not, with the number of boxes left out.
    pub unknown: Vec<(String, usize)>,
}

/// Proposals of the open dataset.
#[derive(Debug, Default)]
pub struct Proposals {
    /// By the image's path, best first.
    by_path: HashMap<PathBuf, Arc<[Proposal]>>,
    /// Counts every change, so that panels see whether something they worked out still holds.
    pub revision: u64,
    file: Option<File>,
    /// What images had before a rejection, the last one at the end.
    rejected: VecDeque<(PathBuf, Arc<[Proposal]>)>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Relative to the dataset's folder, where it lies below it.
    image: PathBuf,
    boxes: Vec<LineBox>,
}

#[derive(Serialize, Deserialize)]
struct LineBox {
    class: String,
    score: f32,
    /// Centre and size as fractions of the image.
    xywhn: [f32; 4],
}

impl Proposals {
    /// All proposals of an image, also those that labels have taken up.
    pub fn of(&self, path: &Path) -> &[Proposal] {
        self.by_path.get(path).map_or(&[], |proposals| proposals)
    }

    pub fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// The image of which proposals were rejected last.
    pub fn last_rejected(&self) -> Option<&Path> {
        self.rejected.back().map(|(path, _)| path.as_path())
    }

    /// Sets what is proposed for an image, in memory alone.
    pub fn put(&mut self, path: PathBuf, proposals: Arc<[Proposal]>) {
        self.revision += 1;
        if proposals.is_empty() {
            self.by_path.remove(&path);
        } else {
            self.by_path.insert(path, proposals);
        }
    }

    /// Classes have other numbers or names now: each is found by its name, a renamed one by its number, and what belongs to a class
    /// that is gone goes with it. The file keeps the names of then; what of them is unknown at the next start is left out.
    pub(super) fn follow(&mut self, old: &[String], new: &[String]) {
        if old == new {
            return;
        }
        let place = |class: usize| {
            let by_name = old.get(class).and_then(|name| new.iter().position(|other| other == name));
            // A place that is kept free is no new name of what was there.
            let is_renamed = |name: &String| !old.contains(name) && !name.starts_with("unused_");
            by_name.or((old.len() == new.len() && new.get(class).is_some_and(is_renamed)).then_some(class))
        };
        for proposals in self.by_path.values_mut() {
            let moved = proposals.iter().filter_map(|each| {
                let class = ClassId(place(each.label.class.0 as usize)? as u32);
                Some(Proposal { label: Label { class, ..each.label }, ..*each })
            });
            *proposals = moved.collect();
        }
        self.by_path.retain(|_, proposals| !proposals.is_empty());
        self.rejected.clear();
        self.revision += 1;
    }

    /// Writes what an image has now.
    fn append(&mut self, state_dir: &Path, dataset: &Dataset, path: &Path) -> io::Result<()> {
        let line = line_of(dataset, path, self.of(path))?;
        let file = if let Some(file) = &mut self.file {
            file
        } else {
            let path = file_path(state_dir, dataset);
            std::fs::create_dir_all(path.parent().unwrap_or(state_dir))?;
            let mut file = File::options().create(true).read(true).append(true).open(path)?;
            // A process may have ended within a line.
            let mut last = [b'\n'];
            if file.seek(SeekFrom::End(-1)).is_ok() {
                file.read_exact(&mut last)?;
            }
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
            self.file.insert(file)
        };
        // One write, so that a line is there or not.
        file.write_all(&line)
    }
}

/// Proposals that are kept for a dataset; a line that cannot be read is left out.
pub(super) fn read(state_dir: &Path, dataset: &Dataset) -> HashMap<PathBuf, Arc<[Proposal]>> {
    let mut by_path = HashMap::new();
    // No file: nothing was proposed yet.
    let bytes = std::fs::read(file_path(state_dir, dataset)).unwrap_or_default();
    for line in bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
        let proposals: Vec<Proposal> = line.boxes.iter().filter_map(|each| proposal_of(dataset, each)).collect();
        by_path.insert(dataset.root.join(line.image), proposals.into());
    }
    by_path.retain(|_, proposals: &mut Arc<[Proposal]>| !proposals.is_empty());
    by_path
}

fn file_path(state_dir: &Path, dataset: &Dataset) -> PathBuf {
    let hash = blake3::hash(dataset.source.as_os_str().as_encoded_bytes()).to_hex();
    state_dir.join("proposals").join(format!("{}.jsonl", &hash.as_str()[..16]))
}

fn line_of(dataset: &Dataset, path: &Path, proposals: &[Proposal]) -> io::Result<Vec<u8>> {
    let boxes = proposals.iter().filter_map(|Proposal { label, score }| {
        let Xywhn { cx, cy, w, h } = label.bbox;
        Some(LineBox { class: dataset.names.get(label.class.0 as usize)?.clone(), score: *score, xywhn: [cx, cy, w, h] })
    });
    let line = Line { image: path.strip_prefix(&dataset.root).unwrap_or(path).to_owned(), boxes: boxes.collect() };
    // A path that is no text cannot be told.
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn proposal_of(dataset: &Dataset, each: &LineBox) -> Option<Proposal> {
    let class = dataset.names.iter().position(|name| *name == each.class)?;
    let [cx, cy, w, h] = each.xywhn;
    let is_sound = each.xywhn.iter().chain([&each.score]).all(|value| (0.0..=1.0).contains(value));
    is_sound.then_some(Proposal { label: Label { class: ClassId(class as u32), bbox: Xywhn { cx, cy, w, h } }, score: each.score })
}

/// For each class of the weights the dataset's class of the same name.
fn class_map(of_weights: &[String], of_dataset: &[String]) -> Vec<Option<ClassId>> {
    let place = |name: &String| of_dataset.iter().position(|other| other == name);
    of_weights.iter().map(|name| place(name).map(|class| ClassId(class as u32))).collect()
}

/// Detects on the images and sends what it proposes, image by image.
///
/// # Errors
/// Weights that cannot be read or share no class with the dataset, a device that cannot be used, cancellation.
pub(super) fn run(request: &PrelabelRequest, inputs: &Inputs, context: &JobContext) -> Result<CommandDone, Failure> {
    let Some(dataset) = inputs.open.as_ref().map(|open| open.dataset.clone()) else {
        return Err(Failure::mendable("no dataset is open", Some("open one first".to_owned())));
    };
    device::ready(request.device)?;
    let options = DetectOptions { conf: request.min_score, iou: request.iou, ..DetectOptions::default() };
    options.check()?;
    let mut detector = Detector::load(&request.weights, request.device)?;
    let classes = class_map(&detector.class_names, &dataset.names);
    if classes.iter().all(Option::is_none) {
        let listed = |names: &[String]| names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        let message = format!(
            "the weights know none of the dataset's classes: {} instead of {}",
            listed(&detector.class_names),
            listed(&dataset.names)
        );
        return Err(Failure::mendable(message, Some("classes are matched by their names; rename them, or take other weights".to_owned())));
    }
    let mut report = PrelabelReport::default();
    let mut n_unknown = vec![0; classes.len()];
    let total = request.images.len() as u64;
    for (done, entry) in request.images.iter().filter_map(|&image| dataset.images.get(image)).enumerate() {
        if context.check_in(done as u64, total) == ControlFlow::Break(()) {
            return Err(Failure::cancelled());
        }
        let Ok(picture) = decode::decode(&entry.path) else {
            report.n_unreadable += 1;
            continue;
        };
        let found = detector.detect(&picture, &options).map_err(DetectError::from)?;
        let mut proposals = Vec::with_capacity(found.detections.len());
        for detection in found.detections {
            let Some(class) = classes.get(detection.class).copied().flatten() else {
                n_unknown[detection.class] += 1;
                continue;
            };
            let bbox = detection.bbox.clipped(found.size).to_xywhn(found.size);
            if bbox.w > 0.0 && bbox.h > 0.0 {
                proposals.push(Proposal { label: Label { class, bbox }, score: detection.score });
            }
        }
        report.n_images += 1;
        report.n_proposals += proposals.len();
        let event = Event::Proposed { dataset: dataset.clone(), path: entry.path.clone(), proposals: proposals.into() };
        if context.emit(event) == ControlFlow::Break(()) {
            return Err(Failure::cancelled());
        }
    }
    let names = detector.class_names.iter().zip(n_unknown);
    report.unknown = names.filter(|(_, n)| *n > 0).map(|(name, n)| (name.clone(), n)).collect();
    Ok(CommandDone::Prelabelled(report))
}

impl Session {
    /// The proposals of an image that no label has taken up, with their places among all of the image; best first.
    pub fn open_proposals(&self, image: usize) -> Vec<(usize, Proposal)> {
        let Some(entry) = self.dataset.as_ref().and_then(|open| open.dataset.images.get(image)) else { return Vec::new() };
        let proposals = self.proposals.of(&entry.path);
        if proposals.is_empty() {
            return Vec::new();
        }
        let labels = self.labels(image);
        proposals.iter().copied().enumerate().filter(|(_, proposal)| !labels.iter().any(|label| is_same(label, &proposal.label))).collect()
    }

    /// The edit that makes labels of open proposals from this score on; `None` where there are none.
    pub fn acceptance(&self, images: impl Iterator<Item = usize>, min_score: f32) -> Option<Edit> {
        self.acceptance_of(images.map(|image| {
            let open = self.open_proposals(image).into_iter().map(|(_, proposal)| proposal);
            (image, open.filter(|proposal| proposal.score >= min_score).map(|proposal| proposal.label).collect())
        }))
    }

    /// The edit that adds these boxes.
    pub fn acceptance_of(&self, accepted: impl Iterator<Item = (usize, Vec<Label>)>) -> Option<Edit> {
        let marks = self.dataset.as_ref().map(|open| open.marks.clone()).unwrap_or_default();
        let mut n_boxes = 0;
        let mut images = Vec::new();
        for (image, labels) in accepted.filter(|(_, labels)| !labels.is_empty()) {
            n_boxes += labels.len();
            let mut edit = ImageEdit::new(image, labels.into_iter().map(LabelOp::Add).collect());
            // An image with boxes is not empty on purpose.
            let mark = marks.get(image).filter(|mark| mark.review == Review::Empty);
            edit.mark = mark.map(|mark| Mark { review: Review::Unreviewed, tags: mark.tags.clone() });
            images.push(edit);
        }
        let name = if n_boxes == 1 { "Accept proposal".to_owned() } else { format!("Accept {n_boxes} proposals") };
        (!images.is_empty()).then_some(Edit { name, images })
    }

    /// Images with open proposals, the most uncertain first: by the mean of `1 - 2 |score - 0.5|` over their open proposals.
    pub fn uncertain_first(&self) -> Vec<u32> {
        let Some(open) = &self.dataset else { return Vec::new() };
        let mut ranked: Vec<(f32, u32)> = Vec::new();
        for (image, entry) in open.dataset.images.iter().enumerate() {
            if !self.proposals.of(&entry.path).is_empty() {
                let scores: Vec<f32> = self.open_proposals(image).iter().map(|(_, proposal)| proposal.score).collect();
                ranked.extend(uncertainty(&scores).map(|value| (value, image as u32)));
            }
        }
        // Stable: equal ones stay in the order of the dataset.
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().map(|(_, image)| image).collect()
    }

    /// Keeps what a detector proposes for an image, instead of what it had.
    pub(super) fn propose(&mut self, dataset: &Arc<Dataset>, path: &Path, proposals: &Arc<[Proposal]>) {
        // Of a job that was begun for another dataset.
        if !self.dataset.as_ref().is_some_and(|open| open.dataset.source == dataset.source && open.dataset.names == dataset.names) {
            return;
        }
        self.proposals.put(path.to_owned(), proposals.clone());
        self.proposals.rejected.retain(|(rejected, _)| rejected != path);
        self.keep_proposals(path);
    }

    /// Takes proposals of an image away.
    pub(super) fn reject(&mut self, image: usize, indices: &[usize]) {
        let Some(entry) = self.dataset.as_ref().and_then(|open| open.dataset.images.get(image)) else { return };
        let path = entry.path.clone();
        let left = self.proposals.of(&path).iter().enumerate().filter(|(index, _)| !indices.contains(index));
        let left: Arc<[Proposal]> = left.map(|(_, proposal)| *proposal).collect();
        if self.proposals.rejected.len() == MAX_REJECTIONS {
            self.proposals.rejected.pop_front();
        }
        let before = self.proposals.of(&path).into();
        self.proposals.rejected.push_back((path.clone(), before));
        self.proposals.put(path.clone(), left);
        self.keep_proposals(&path);
    }

    /// Takes the last rejection back.
    pub(super) fn bring_proposals_back(&mut self) {
        if let Some((path, before)) = self.proposals.rejected.pop_back() {
            self.proposals.put(path.clone(), before);
            self.keep_proposals(&path);
        }
    }

    /// Takes in what was kept for the dataset that was opened.
    pub(super) fn restore_proposals(&mut self, read: &Arc<HashMap<PathBuf, Arc<[Proposal]>>>) {
        self.proposals = Proposals { by_path: (**read).clone(), revision: self.proposals.revision + 1, ..Proposals::default() };
    }

    /// Tells what a run left out.
    pub(super) fn tell_prelabelled(&mut self, report: &PrelabelReport) {
        if !report.unknown.is_empty() {
            let classes: Vec<String> = report.unknown.iter().map(|(name, n)| format!("{name} ({n} boxes)")).collect();
            let text = format!("classes of the weights that the dataset does not name were left out: {}", classes.join(", "));
            self.tell(false, text, Some("add a class of exactly this name to get its proposals".to_owned()));
        }
        if report.n_unreadable > 0 {
            self.tell(false, format!("{} images could not be read, and have no proposals", report.n_unreadable), None);
        }
    }

    fn keep_proposals(&mut self, path: &Path) {
        let Some(open) = &self.dataset else { return };
        if let Err(error) = self.proposals.append(&self.settings.state_dir, &open.dataset, path) {
            let failure = Failure::mendable(format!("proposals are not kept for the next start: {error}"), None);
            if !self.notices.iter().any(|notice| notice.text == failure.message) {
                self.notice(&failure);
            }
        }
    }
}

/// Whether they are one object of one class.
fn is_same(a: &Label, b: &Label) -> bool {
    // Fractions of the image will do: the overlap is the same in any unit.
    let unit = Size::square(1);
    a.class == b.class && iou(&a.bbox.to_xyxy(unit), &b.bbox.to_xyxy(unit)) >= SAME_BOX
}

/// Mean closeness of scores to one half, 0 to 1; `None` without scores.
fn uncertainty(scores: &[f32]) -> Option<f32> {
    let sum: f32 = scores.iter().map(|score| 1.0 - 2.0 * (score - 0.5).abs()).sum();
    (!scores.is_empty()).then(|| sum / scores.len() as f32)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::ImageEntry;
    use crate::dataset::Split;
    use crate::dataset::open::Format;
    use crate::detect::detector::tests::cell_network;
    use crate::media::Picture;
    use crate::media::encode;
    use crate::session::Command;
    use crate::session::{OpenDataset, Settings};
    use crate::yolo::weights;
    use crate::yolo::weights::WeightsInfo;

    fn label(class: u32, cx: f32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx, cy: 0.5, w: 0.2, h: 0.2 } }
    }

    fn proposal(class: u32, cx: f32, score: f32) -> Proposal {
        Proposal { label: label(class, cx), score }
    }

    fn dataset() -> Arc<Dataset> {
        let image = |name: &str| ImageEntry { path: Path::new("/d").join(name), label_path: "x.txt".into(), split: Split::Train };
        Arc::new(Dataset {
            root: "/d".into(),
            source: "/d/data.yaml".into(),
            format: Format::Yolo,
            names: vec!["scratch".to_owned(), "dent".to_owned()],
            images: vec![image("a.jpg"), image("b.jpg"), image("c.jpg")],
            notes: vec![],
            n_keypoint_fields: None,
            merged: None,
        })
    }

    fn session(state_dir: &Path) -> Session {
        let mut session = Session::new(Settings::in_dir(state_dir), Arc::new(|| {}));
        let labels = [vec![label(0, 0.5)], vec![], vec![]].map(Into::into).to_vec();
        session.dataset = Some(OpenDataset { labels: Arc::new(labels), ..OpenDataset::new(dataset()) });
        session
    }

    fn open_scores(session: &Session, image: usize) -> Vec<f32> {
        session.open_proposals(image).iter().map(|(_, proposal)| proposal.score).collect()
    }

    #[test]
    fn classes_are_matched_by_name_and_never_guessed() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let map = class_map(&names(&["dent", "Scratch", "scratch"]), &names(&["scratch", "dent"]));
        assert_eq!(map, [Some(ClassId(1)), None, Some(ClassId(0))]);
    }

    #[test]
    fn a_label_of_the_same_class_closes_a_proposal_and_undo_opens_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        // The first is the label; the second is of another class; the third lies elsewhere.
        let proposals = [proposal(0, 0.51, 0.9), proposal(1, 0.51, 0.8), proposal(0, 0.9, 0.3)];
        session.propose(&dataset(), Path::new("/d/a.jpg"), &proposals.into());
        assert_eq!(open_scores(&session, 0), [0.8, 0.3]);
        let edit = session.acceptance([0].into_iter(), 0.5).unwrap();
        assert_eq!((edit.name.as_str(), edit.images[0].ops.clone()), ("Accept proposal", vec![LabelOp::Add(proposals[1].label)]));
        let before = session.dataset.clone();
        session.edit(edit);
        assert_eq!(open_scores(&session, 0), [0.3]);
        session.dataset = before;
        assert_eq!(open_scores(&session, 0), [0.8, 0.3]);
    }

    #[test]
    fn rejections_and_proposals_are_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = session(dir.path());
        first.propose(&dataset(), Path::new("/d/b.jpg"), &[proposal(0, 0.2, 0.9), proposal(1, 0.5, 0.4)].into());
        first.propose(&dataset(), Path::new("/d/c.jpg"), &[proposal(0, 0.2, 0.7)].into());
        first.reject(1, &[0]);
        first.reject(2, &[0]);
        first.reject(1, &[0]);
        assert_eq!((open_scores(&first, 1), first.proposals.last_rejected()), (vec![], Some(Path::new("/d/b.jpg"))));
        first.bring_proposals_back();
        assert_eq!((open_scores(&first, 1), first.proposals.last_rejected()), (vec![0.4], Some(Path::new("/d/c.jpg"))));
        let read = read(dir.path(), &dataset());
        assert_eq!(read.len(), 1);
        assert_eq!(read[Path::new("/d/b.jpg")][..], [proposal(1, 0.5, 0.4)]);
        let mut second = session(dir.path());
        second.restore_proposals(&Arc::new(read));
        assert_eq!(open_scores(&second, 1), [0.4]);

        // The end of a process within a line, within a letter.
        let mut file = File::options().append(true).open(file_path(dir.path(), &dataset())).unwrap();
        file.write_all("{\"image\":\"K\u{e4}".as_bytes().split_last().unwrap().1).unwrap();
        second.propose(&dataset(), Path::new("/d/c.jpg"), &[proposal(0, 0.2, 0.7)].into());
        assert_eq!(super::read(dir.path(), &dataset()).len(), 2, "only the cut line is lost");
    }

    #[test]
    fn proposals_follow_their_classes_by_name_and_a_renamed_one_by_number() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut proposals = Proposals::default();
        let classes = |proposals: &Proposals| proposals.of(Path::new("a")).iter().map(|each| each.label.class.0).collect::<Vec<_>>();
        proposals.put("a".into(), [proposal(0, 0.1, 0.9), proposal(1, 0.5, 0.8), proposal(2, 0.9, 0.7)].into());
        proposals.follow(&names(&["x", "y", "z"]), &names(&["x", "why", "z"]));
        assert_eq!(classes(&proposals), [0, 1, 2]);
        proposals.follow(&names(&["x", "why", "z"]), &names(&["why", "z"]));
        assert_eq!(classes(&proposals), [0, 1]);
    }

    #[test]
    fn the_most_uncertain_image_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        for (name, scores) in [("a.jpg", &[0.99, 0.97][..]), ("b.jpg", &[0.5, 0.6]), ("c.jpg", &[0.3, 0.9])] {
            let proposals: Vec<Proposal> = scores.iter().map(|&score| proposal(1, score * 0.5, score)).collect();
            session.propose(&dataset(), &Path::new("/d").join(name), &proposals.into());
        }
        assert_eq!(session.uncertain_first(), [1, 2, 0]);
        assert_eq!(uncertainty(&[0.5]), Some(1.0));
        assert_eq!(uncertainty(&[1.0, 0.0]), Some(0.0));
        assert_eq!(uncertainty(&[]), None);
    }

    #[test]
    fn proposals_follow_the_names_of_their_classes() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        session.propose(&dataset(), Path::new("/d/a.jpg"), &[proposal(0, 0.2, 0.9), proposal(1, 0.9, 0.4)].into());
        session.propose(&dataset(), Path::new("/d/b.jpg"), &[proposal(0, 0.2, 0.9)].into());
        let names = ["scratch", "dent"].map(str::to_owned);
        session.proposals.follow(&names, &names[1..]);
        assert_eq!(session.proposals.of(Path::new("/d/a.jpg")), [proposal(0, 0.9, 0.4)]);
        assert!(session.proposals.of(Path::new("/d/b.jpg")).is_empty());
        assert!(
            !line_of(&dataset(), Path::new("/d/a.jpg"), &[proposal(9, 0.2, 0.9)]).unwrap().is_empty(),
            "a class without a name is left out"
        );
    }

    #[test]
    fn what_another_dataset_s_job_proposes_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = session(dir.path());
        let other = Arc::new(Dataset { source: "/elsewhere/data.yaml".into(), ..(*dataset()).clone() });
        session.propose(&other, Path::new("/d/a.jpg"), &[proposal(1, 0.2, 0.9)].into());
        assert!(session.proposals.is_empty());
    }

    /// Weights that see class 1 with score 0.75 at each cell of stride 32, as a box of half a cell, and nothing else.
    fn write_weights(path: &Path, class_names: [&str; 3]) {
        let info = WeightsInfo { class_names: class_names.map(str::to_owned).to_vec(), imgsz: 64 };
        weights::save(path, &cell_network(), &info).unwrap();
    }

    /// A session over two pictures of 64 x 64, with all jobs ended.
    fn opened(dir: &Path) -> Session {
        for folder in ["images", "labels"] {
            std::fs::create_dir_all(dir.join("set").join(folder)).unwrap();
        }
        for name in ["a", "b"] {
            let picture = Picture { size: Size::square(64), rgb: vec![90; 64 * 64 * 3] };
            encode::encode(&dir.join(format!("set/images/{name}.png")), &picture, 90).unwrap();
        }
        // Half a cell around the first of the four cells.
        std::fs::write(dir.join("set/labels/a.txt"), "1 0.25 0.25 0.25 0.25\n").unwrap();
        std::fs::write(dir.join("set/data.yaml"), "train: images\nval: images\nnames: [scratch, dent]\n").unwrap();
        let mut session = Session::new(Settings::in_dir(&dir.join("state")), Arc::new(|| {}));
        session.apply(Command::Open(dir.join("set/data.yaml")));
        while session.wait().is_some() {}
        session
    }

    fn prelabel(session: &mut Session, weights: &Path) {
        let request = PrelabelRequest { images: vec![0, 1], weights: weights.to_owned(), device: Device::Cpu, min_score: 0.25, iou: 0.45 };
        session.apply(Command::Prelabel(request));
        while session.wait().is_some() {}
    }

    #[test]
    fn a_run_proposes_by_class_name_and_is_there_when_the_dataset_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let weights = dir.path().join("w.safetensors");
        write_weights(&weights, ["other", "dent", "scratch"]);
        let mut session = opened(dir.path());
        prelabel(&mut session, &weights);
        assert_eq!(session.notices, []);
        // Of four boxes one is the label of the first image.
        assert_eq!(open_scores(&session, 0).len(), 3);
        let second = session.open_proposals(1);
        assert!(second.len() == 4 && second.iter().all(|(_, each)| each.label.class == ClassId(1)), "{second:?}");
        assert!(session.labels(1).is_empty(), "proposals are no labels");
        let again = opened(dir.path());
        assert_eq!(again.open_proposals(1), second);
    }

    #[test]
    fn classes_that_the_dataset_does_not_name_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let weights = dir.path().join("w.safetensors");
        write_weights(&weights, ["dent", "bolt", "nut"]);
        let mut session = opened(dir.path());
        prelabel(&mut session, &weights);
        assert!(session.proposals.is_empty());
        assert!(session.notices.len() == 1 && session.notices[0].text.contains("bolt (8 boxes)"), "{:?}", session.notices);
        write_weights(&weights, ["screw", "bolt", "nut"]);
        prelabel(&mut session, &weights);
        assert!(session.notices[1].is_error && session.notices[1].text.contains("none of the dataset's classes"), "{:?}", session.notices);
    }
}
