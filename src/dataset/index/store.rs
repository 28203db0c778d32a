//! The file of an index.
//!
//! Layout: magic with version (8 bytes), blake3 of all that follows (32), then: a mark of the byte order (4), number of images
//! (4) and of labels (8), the key (32: what the meaning of labels depends on), a record an image, a row a label. Labels of
//! an image lie side by side, in the order of the images. Numbers are in the machine's byte order: an index does not travel.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::stamp::Stamp;
use super::{ImageFacts, Label, Size};
use crate::dataset::label::ClassId;
use crate::geom::Xywhn;

pub(super) const ENDING: &str = "bwindex";
/// The last byte is the version.
const MAGIC: &[u8; 8] = b"BWINDEX\x01";
const BYTE_ORDER: u32 = 0x0102_0304;
/// Indexes of other datasets that are kept: the last used.
const MAX_KEPT: usize = 16;

/// What comes after the checksum.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    byte_order: u32,
    n_images: u32,
    n_labels: u64,
    key: [u8; 32],
}

/// What is known of one image and its label file.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Record {
    /// Hash of the paths of image and label file.
    pub(super) path: [u8; 16],
    pub(super) label: Stamp,
    pub(super) image: Stamp,
    width: u32,
    height: u32,
    n_labels: u32,
    orientation: u8,
    /// The header of the image was looked at.
    has_header: u8,
    /// Its labels depend on the image's size.
    needs_size: u8,
    unused: u8,
}

/// A label.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Row {
    class: u32,
    bbox: [f32; 4],
}

impl Record {
    pub(super) fn new(path: [u8; 16]) -> Self {
        Self { path, ..Self::zeroed() }
    }

    pub(super) fn needs_size(&self) -> u8 {
        self.needs_size
    }

    pub(super) fn has_header(&self) -> bool {
        self.has_header != 0
    }

    pub(super) fn keep_labels(&mut self, before: &Self) {
        (self.n_labels, self.needs_size) = (before.n_labels, before.needs_size);
    }

    pub(super) fn read_labels(&mut self, n_labels: usize, needs_size: bool) {
        (self.n_labels, self.needs_size) = (n_labels as u32, needs_size.into());
    }

    pub(super) fn keep_header(&mut self, before: &Self) {
        (self.width, self.height) = (before.width, before.height);
        (self.orientation, self.has_header) = (before.orientation, before.has_header);
    }

    /// Size and orientation; `None` where there is no picture.
    pub(super) fn read_header(&mut self, header: Option<(Size, u8)>) {
        let (size, orientation) = header.unwrap_or((Size::new(0, 0), 0));
        (self.width, self.height, self.orientation, self.has_header) = (size.width, size.height, orientation, 1);
    }

    pub(super) fn facts(&self) -> ImageFacts {
        let size = (self.width > 0 && self.height > 0).then(|| Size::new(self.width, self.height));
        ImageFacts { size, orientation: self.orientation, n_bytes: self.image.n_bytes, modified_ns: self.image.modified_ns }
    }
}

/// A remembered index; the default remembers nothing.
#[derive(Default)]
pub(super) struct Store {
    records: Vec<Record>,
    /// Where the labels of each image begin; one more than images.
    starts: Vec<u32>,
    rows: Vec<Row>,
}

impl Store {
    /// The index at `path`, if it is one, whole, and of this key.
    pub(super) fn read(path: &Path, key: &[u8; 32]) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let body = bytes.strip_prefix(MAGIC)?;
        let (checksum, body) = body.split_at_checked(32)?;
        if blake3::hash(body).as_bytes() != checksum {
            return None;
        }
        let (head, body) = body.split_at_checked(size_of::<Head>())?;
        let head: Head = bytemuck::pod_read_unaligned(head);
        if head.byte_order != BYTE_ORDER || head.key != *key {
            return None;
        }
        let (records, rows) = body.split_at_checked((head.n_images as usize).checked_mul(size_of::<Record>())?)?;
        let records: Vec<Record> = bytemuck::pod_collect_to_vec(records);
        let mut starts = Vec::with_capacity(records.len() + 1);
        let mut n_labels = 0u32;
        for record in &records {
            starts.push(n_labels);
            n_labels = n_labels.checked_add(record.n_labels)?;
        }
        starts.push(n_labels);
        let is_whole = u64::from(n_labels) == head.n_labels && rows.len() == n_labels as usize * size_of::<Row>();
        is_whole.then(|| Self { records, starts, rows: bytemuck::pod_collect_to_vec(rows) })
    }

    pub(super) fn n_images(&self) -> usize {
        self.records.len()
    }

    pub(super) fn record(&self, place: u32) -> &Record {
        &self.records[place as usize]
    }

    pub(super) fn labels(&self, place: u32) -> Arc<[Label]> {
        let rows = &self.rows[self.starts[place as usize] as usize..self.starts[place as usize + 1] as usize];
        let label = |row: &Row| {
            let [cx, cy, w, h] = row.bbox;
            Label { class: ClassId(row.class), bbox: Xywhn { cx, cy, w, h } }
        };
        rows.iter().map(label).collect()
    }
}

/// Writes an index: as a whole or not at all.
pub(super) fn write(path: &Path, key: &[u8; 32], records: &[Record], labels: &[Arc<[Label]>]) -> std::io::Result<()> {
    let n_labels: usize = labels.iter().map(|labels| labels.len()).sum();
    let head = Head { byte_order: BYTE_ORDER, n_images: records.len() as u32, n_labels: n_labels as u64, key: *key };
    let mut body = Vec::with_capacity(size_of::<Head>() + size_of_val(records) + n_labels * size_of::<Row>());
    body.extend_from_slice(bytemuck::bytes_of(&head));
    body.extend_from_slice(bytemuck::cast_slice(records));
    for label in labels.iter().flat_map(|labels| labels.iter()) {
        let Xywhn { cx, cy, w, h } = label.bbox;
        body.extend_from_slice(bytemuck::bytes_of(&Row { class: label.class.0, bbox: [cx, cy, w, h] }));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(MAGIC)?;
    file.write_all(blake3::hash(&body).as_bytes())?;
    // Not synced: half an index fails its checksum and is made anew.
    file.write_all(&body)?;
    file.persist(path)?;
    Ok(())
}

/// Removes indexes that were not used for longest, and what an interrupted writing left.
pub(super) fn prune(folder: &Path, keep: &Path) -> std::io::Result<()> {
    let mut others = Vec::new();
    for entry in std::fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path != keep && path.extension().is_some_and(|ending| ending == ENDING) {
            others.push((entry.metadata().and_then(|metadata| metadata.modified())?, path));
        }
    }
    others.sort();
    let n_over = others.len().saturating_sub(MAX_KEPT);
    others.iter().take(n_over).try_for_each(|(_, path)| std::fs::remove_file(path))
}
