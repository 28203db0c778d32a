//! Opens a dataset for the window: first what there is, then the labels, then what is known of the image files.
//!
//! Each is told as soon as it is known, so that the first pictures are drawn while labels are being read. What did not change
//! since the last time comes from the index.

use std::path::Path;
use std::sync::Arc;

use super::event::{CommandDone, Event};
use super::failure::Failure;
use super::job::JobContext;
use super::prelabel;
use super::tasks::{Done, go_on};
use crate::dataset::Dataset;
use crate::dataset::formats;
use crate::dataset::index::Index;

/// Opens the dataset at a path, and reads all of it.
pub(super) fn open(path: &Path, state_dir: &Path, context: &JobContext) -> Done {
    let dataset = Arc::new(dataset_at(path)?);
    for note in &dataset.notes {
        go_on(context.emit(Event::Note(note.clone())))?;
    }
    go_on(context.emit(Event::Opened(dataset.clone())))?;
    read(&dataset, state_dir, context)?;
    let proposals = prelabel::read(state_dir, &dataset);
    if !proposals.is_empty() {
        go_on(context.emit(Event::ProposalsRead(Arc::new(proposals))))?;
    }
    Ok(CommandDone::Opened)
}

/// Reads the open dataset once more, or the one at another path.
pub(super) fn read_labels(path: &Path, open: Option<&Arc<Dataset>>, state_dir: &Path, context: &JobContext) -> Done {
    let dataset = match open.filter(|dataset| dataset.source == path) {
        Some(dataset) => dataset.clone(),
        None => Arc::new(dataset_at(path)?),
    };
    read(&dataset, state_dir, context)?;
    Ok(CommandDone::Opened)
}

/// Opens the dataset at a path; one of another format is told by name, instead of as images without labels.
///
/// # Errors
/// As [`Dataset::open`], and for formats that must be converted first, with the command that does it.
pub(super) fn dataset_at(path: &Path) -> Result<Dataset, Failure> {
    let opened = Dataset::open(path);
    let is_sure = opened.as_ref().is_ok_and(|dataset| {
        dataset.source.is_file() || dataset.images.iter().any(|image| image.label_path.is_file()) //
    });
    let foreign = if is_sure { None } else { formats::foreign(path) };
    match foreign {
        Some(format) => Err(Failure::mendable(
            format!("{} is a dataset in the format {}, which must be converted first", path.display(), format.title),
            Some(format!("`boxwright convert {} NEW_FOLDER` writes it as YOLO", path.display())),
        )),
        None => Ok(opened?),
    }
}

fn read(dataset: &Arc<Dataset>, state_dir: &Path, context: &JobContext) -> Result<(), Failure> {
    let mut index = Index::load(dataset, state_dir);
    // A label file that cannot be read is a finding of the check; here its image shows no boxes.
    let labels = Arc::new(index.labels(&|done, total| context.check_in(done, 2 * total))?);
    go_on(context.emit(Event::Labels { dataset: dataset.clone(), labels: labels.clone() }))?;
    let facts = index.facts(&|done, total| context.check_in(total + done, 2 * total))?;
    go_on(context.emit(Event::ImageFacts { dataset: dataset.clone(), facts: Arc::new(facts) }))?;
    if let Err(error) = index.save(&labels) {
        go_on(context.emit(Event::Note(format!("the index of the dataset was not kept, so that it opens slower next time: {error}"))))?;
    }
    Ok(())
}
