//! Which images pass the filter, in which order, and what there is to count over all of them?
//!
//! In:  the open dataset, the last check, and what was asked for. Out: images and counts, worked out once a change.

use std::sync::Arc;

use crate::dataset::check::CheckReport;
use crate::dataset::{ClassId, Split};
use crate::dataset::{Dataset, Label};
use crate::session::LabelTable;
use crate::session::OpenDataset;
use crate::session::Session;

/// What is shown of all images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    pub split: Option<Split>,
    pub class: Option<ClassId>,
    pub only_background: bool,
    /// Part of the file name.
    pub name: String,
}

/// Counts over the dataset, and the images that pass the filter; for one state of dataset and filter.
pub struct Listing {
    pub dataset: Arc<Dataset>,
    pub labels: Arc<LabelTable>,
    filter: Filter,
    pub n_splits: [usize; 3],
    pub n_class_labels: Vec<usize>,
    pub n_background: usize,
    pub n_labels: usize,
    pub images: Vec<u32>,
    report: Option<Arc<CheckReport>>,
    /// By image, of the last check; empty before it.
    pub n_findings: Vec<u32>,
}

impl Listing {
    pub fn new(open: &OpenDataset, filter: &Filter) -> Self {
        let OpenDataset { dataset, labels, .. } = open;
        let mut n_splits = [0; 3];
        let mut n_class_labels = vec![0; dataset.names.len()];
        let (mut n_background, mut n_labels) = (0, 0);
        let name_part = filter.name.to_lowercase();
        let mut images = Vec::new();
        for (index, image) in dataset.images.iter().enumerate() {
            if let Some(position) = Split::ALL.iter().position(|split| *split == image.split) {
                n_splits[position] += 1;
            }
            let of_image = labels.get(index).map(|labels| &**labels);
            for label in of_image.into_iter().flatten() {
                n_labels += 1;
                if let Some(count) = n_class_labels.get_mut(label.class.0 as usize) {
                    *count += 1;
                }
            }
            let is_background = of_image.is_some_and(<[Label]>::is_empty);
            n_background += usize::from(is_background);
            let has_class = |class| of_image.is_some_and(|labels| labels.iter().any(|label| label.class == class));
            let passes = filter.split.is_none_or(|split| image.split == split)
                && filter.class.is_none_or(has_class)
                && (!filter.only_background || is_background)
                && (name_part.is_empty()
                    || image.path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains(&name_part)));
            if passes {
                images.push(index as u32);
            }
        }
        Self {
            dataset: dataset.clone(),
            labels: labels.clone(),
            filter: filter.clone(),
            n_splits,
            n_class_labels,
            n_background,
            n_labels,
            images,
            report: None,
            n_findings: Vec::new(),
        }
    }

    /// Whether it still holds.
    pub fn is_current(&self, open: &OpenDataset, filter: &Filter) -> bool {
        Arc::ptr_eq(&self.dataset, &open.dataset) && Arc::ptr_eq(&self.labels, &open.labels) && self.filter == *filter
    }

    /// Counts the findings of each image, when there is another report.
    pub fn count_findings(&mut self, session: &Session) {
        let report = session.report.as_ref();
        if self.report.as_ref().map(Arc::as_ptr) == report.map(Arc::as_ptr) {
            return;
        }
        self.report = report.cloned();
        self.n_findings.clear();
        if let Some(report) = report {
            self.n_findings.resize(self.dataset.images.len(), 0);
            for image in report.findings.iter().filter_map(|finding| finding.image) {
                self.n_findings[image] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ImageEntry;
    use crate::dataset::open::Format;
    use crate::geom::Xywhn;

    fn open() -> OpenDataset {
        let image = |name: &str, split| ImageEntry { path: name.into(), label_path: "x.txt".into(), split };
        let images = vec![image("a.jpg", Split::Train), image("b.jpg", Split::Train), image("c.jpg", Split::Val)];
        let label = |class| Label { class: ClassId(class), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.1 } };
        let names = vec!["scratch".to_owned(), "dent".to_owned()];
        let dataset = Dataset {
            root: "/".into(),
            source: "/data.yaml".into(),
            format: Format::Yolo,
            names,
            images,
            notes: vec![],
            n_keypoint_fields: None,
            merged: None,
        };
        let labels = [vec![label(0), label(1)], vec![], vec![label(1)]].map(Into::into).to_vec();
        OpenDataset { labels: Arc::new(labels), ..OpenDataset::new(Arc::new(dataset)) }
    }

    fn images(filter: Filter) -> Vec<u32> {
        Listing::new(&open(), &filter).images
    }

    #[test]
    fn filters_narrow_the_images_together() {
        assert_eq!(images(Filter::default()), [0, 1, 2]);
        assert_eq!(images(Filter { split: Some(Split::Train), ..Filter::default() }), [0, 1]);
        assert_eq!(images(Filter { class: Some(ClassId(1)), ..Filter::default() }), [0, 2]);
        assert_eq!(images(Filter { class: Some(ClassId(1)), split: Some(Split::Val), ..Filter::default() }), [2]);
        assert_eq!(images(Filter { only_background: true, ..Filter::default() }), [1]);
        assert_eq!(images(Filter { name: "C.J".into(), ..Filter::default() }), [2]);
    }

    #[test]
    fn counts_cover_the_whole_dataset_whatever_the_filter() {
        let listing = Listing::new(&open(), &Filter { name: "nothing".into(), ..Filter::default() });
        assert_eq!((listing.n_splits, listing.n_background, listing.n_labels), ([2, 1, 0], 1, 3));
        assert_eq!(listing.n_class_labels, [1, 2]);
    }
}
