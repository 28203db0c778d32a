//! Edits of the open dataset: what the window shows after them.

use std::sync::Arc;

use super::Session;
use super::failure::Failure;
use crate::dataset::edit::Edit;
use crate::dataset::edit::Mark;

impl Session {
    /// Shows an edit at once.
    pub(super) fn edit(&mut self, edit: &Edit) {
        let Some(open) = &mut self.dataset else { return };
        let after: Option<Vec<_>> = edit.images.iter().map(|each| Some((each, each.applied(open.labels.get(each.image)?)?))).collect();
        let Some(after) = after else {
            let hint = Some("the labels changed meanwhile; try again".to_owned());
            self.notice(&Failure::mendable(format!("{} was not done", edit.name), hint));
            return;
        };
        let labels = Arc::make_mut(&mut open.labels);
        for (each, after) in after {
            labels[each.image] = after.into();
            if let Some(mark) = &each.mark {
                let marks = Arc::make_mut(&mut open.marks);
                marks.resize(open.dataset.images.len(), Mark::default());
                marks[each.image] = mark.clone();
            }
        }
        open.history.undo = Some(edit.name.clone());
        open.history.redo = None;
    }
}
