//! What does the view remember of each box of an image? Whether it is selected, locked, hidden.
//!
//! In:  the labels as the session holds them, and the operations of the editor's own edits before they are carried out.
//! Out: a state for each label, in the same order.
//!
//! The labels may change in other ways too: by undo, or on disk. After an edit of the editor the states go where the edit put
//! the boxes; after any other change the selection is dropped, and labels that are still there keep being locked or hidden.
//! Never changes a label.

use std::collections::HashMap;
use std::sync::Arc;

use super::label_edits::identity;
use crate::dataset::Label;
use crate::dataset::edit::LabelOp;

/// Of one box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxState {
    pub is_selected: bool,
    /// The pointer passes through it.
    pub is_locked: bool,
    pub is_hidden: bool,
}

impl BoxState {
    /// Whether the pointer can take hold of it.
    pub fn is_free(self) -> bool {
        !self.is_locked && !self.is_hidden
    }
}

/// Of all boxes of one image.
#[derive(Clone, Debug)]
pub struct BoxStates {
    labels: Arc<[Label]>,
    states: Vec<BoxState>,
    /// Labels and states after an edit that was asked for and is not yet seen.
    planned: Option<(Vec<Label>, Vec<BoxState>)>,
}

impl Default for BoxStates {
    fn default() -> Self {
        Self { labels: Arc::from([]), states: Vec::new(), planned: None }
    }
}

impl BoxStates {
    /// Takes the labels as they are now; returns whether they changed. Labels that say the same after all, as `is_same` finds, keep
    /// their states: coordinates may be rounded in their file.
    pub fn follow(&mut self, labels: &Arc<[Label]>, is_same: impl Fn(&[Label], &[Label]) -> bool) -> bool {
        if Arc::ptr_eq(&self.labels, labels) {
            return false;
        }
        if let Some((_, states)) = self.planned.take_if(|(planned, _)| is_same(planned, labels)) {
            self.states = states;
        } else if !is_same(&self.labels, labels) {
            self.planned = None;
            self.states = self.carried_over(labels);
        }
        self.labels = labels.clone();
        true
    }

    /// Says what the editor asks for, so that the states follow it. Boxes that it adds are selected where `selects_added`.
    pub fn plan(&mut self, ops: &[LabelOp], selects_added: bool) {
        let mut after: Vec<Option<(Label, BoxState)>> = self.labels.iter().copied().zip(self.states.iter().copied()).map(Some).collect();
        let is_adding = ops.iter().any(|op| matches!(op, LabelOp::Add(_)));
        if is_adding && selects_added {
            after.iter_mut().flatten().for_each(|(_, state)| state.is_selected = false);
        }
        for op in ops {
            match *op {
                LabelOp::Add(label) => after.push(Some((label, BoxState { is_selected: selects_added, ..BoxState::default() }))),
                LabelOp::Set { index, label } => {
                    if let Some(Some((old, _))) = after.get_mut(index) {
                        *old = label;
                    }
                }
                LabelOp::Remove { index } => {
                    if let Some(old) = after.get_mut(index) {
                        *old = None;
                    }
                }
            }
        }
        self.planned = Some(after.into_iter().flatten().unzip());
    }

    /// By label; at most as many as there are labels.
    pub fn all(&self) -> &[BoxState] {
        &self.states
    }

    pub fn get(&self, index: usize) -> BoxState {
        self.states.get(index).copied().unwrap_or_default()
    }

    /// The selected boxes, in the order of the labels.
    pub fn selected(&self) -> Vec<usize> {
        self.states.iter().enumerate().filter(|(_, state)| state.is_selected).map(|(index, _)| index).collect()
    }

    /// The only selected box.
    pub fn only_selected(&self) -> Option<usize> {
        let mut selected = self.states.iter().enumerate().filter(|(_, state)| state.is_selected).map(|(index, _)| index);
        selected.next().filter(|_| selected.next().is_none())
    }

    pub fn has_selection(&self) -> bool {
        self.states.iter().any(|state| state.is_selected)
    }

    pub fn has_hidden(&self) -> bool {
        self.states.iter().any(|state| state.is_hidden)
    }

    /// Selects these and no others.
    pub fn select(&mut self, selected: &[usize]) {
        self.states.iter_mut().for_each(|state| state.is_selected = false);
        self.add(selected);
    }

    /// Selects these too.
    pub fn add(&mut self, selected: &[usize]) {
        for &index in selected {
            if let Some(state) = self.states.get_mut(index) {
                state.is_selected = true;
            }
        }
    }

    pub fn toggle(&mut self, index: usize) {
        if let Some(state) = self.states.get_mut(index) {
            state.is_selected = !state.is_selected;
        }
    }

    /// Locks the selected boxes, or frees them where all of them are locked.
    pub fn toggle_lock(&mut self) {
        let locks = self.states.iter().any(|state| state.is_selected && !state.is_locked);
        self.states.iter_mut().filter(|state| state.is_selected).for_each(|state| state.is_locked = locks);
    }

    pub fn set_locked(&mut self, index: usize, is_locked: bool) {
        if let Some(state) = self.states.get_mut(index) {
            state.is_locked = is_locked;
        }
    }

    /// Hides the selected boxes, which are selected no more; without a selection shows all again.
    pub fn toggle_hidden(&mut self) {
        let hides = self.has_selection();
        for state in &mut self.states {
            state.is_hidden = if hides { state.is_hidden || state.is_selected } else { false };
            state.is_selected &= !hides;
        }
    }

    pub fn set_hidden(&mut self, index: usize, is_hidden: bool) {
        if let Some(state) = self.states.get_mut(index) {
            state.is_hidden = is_hidden;
            state.is_selected &= !is_hidden;
        }
    }

    /// The box after (or before) the selected one, in the order of the labels and round about; hidden ones are passed by.
    pub fn neighbour(&self, forward: bool) -> Option<usize> {
        let n = self.states.len();
        let last = self.states.iter().rposition(|state| state.is_selected);
        let first = self.states.iter().position(|state| state.is_selected);
        let start = match (forward, first, last) {
            (true, _, Some(last)) => last + 1,
            (false, Some(first), _) => first + n - 1,
            (true, ..) => 0,
            (false, ..) => n.checked_sub(1)?,
        };
        (0..n).map(|step| if forward { start + step } else { start + n - step } % n).find(|&index| !self.states[index].is_hidden)
    }

    /// States of labels that are the same as before; nothing is selected.
    fn carried_over(&self, labels: &[Label]) -> Vec<BoxState> {
        let marked = self.labels.iter().zip(&self.states).filter(|(_, state)| !state.is_free());
        let kept: HashMap<[u32; 5], BoxState> = marked.map(|(label, state)| (identity(label), *state)).collect();
        let of = |label: &Label| {
            let old = kept.get(&identity(label)).copied().unwrap_or_default();
            BoxState { is_selected: false, ..old }
        };
        labels.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ClassId;
    use crate::geom::Xywhn;

    fn label(class: u32) -> Label {
        Label { class: ClassId(class), bbox: Xywhn { cx: 0.5, cy: 0.5, w: 0.1, h: 0.1 } }
    }

    fn equal(a: &[Label], b: &[Label]) -> bool {
        a == b
    }

    fn states(n: u32) -> BoxStates {
        let mut states = BoxStates::default();
        states.follow(&(0..n).map(label).collect(), equal);
        states
    }

    #[test]
    fn states_follow_the_boxes_of_an_own_edit() {
        let mut states = states(4);
        states.select(&[1, 3]);
        states.set_locked(2, true);
        states.plan(&[LabelOp::Remove { index: 0 }, LabelOp::Set { index: 1, label: label(9) }], true);
        assert!(states.follow(&[label(9), label(2), label(3)].into(), equal));
        assert_eq!(states.selected(), [0, 2]);
        assert!(states.get(1).is_locked);

        states.plan(&[LabelOp::Add(label(5))], true);
        states.follow(&[label(9), label(2), label(3), label(5)].into(), equal);
        assert_eq!(states.selected(), [3], "what was drawn is selected, and nothing else");
    }

    #[test]
    fn labels_that_were_rounded_in_their_file_keep_their_states() {
        let near = |a: &[Label], b: &[Label]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.class == b.class && (a.bbox.cx - b.bbox.cx).abs() < 0.01)
        };
        let rounded = |class| Label { bbox: Xywhn { cx: 0.501, ..label(class).bbox }, ..label(class) };
        let mut states = states(2);
        states.plan(&[LabelOp::Add(label(5))], true);
        states.follow(&[label(0), label(1), rounded(5)].into(), near);
        assert_eq!(states.selected(), [2]);
        states.follow(&[label(0), rounded(1), label(5)].into(), near);
        assert_eq!(states.selected(), [2]);
        states.follow(&[label(0), rounded(1), label(6)].into(), near);
        assert!(!states.has_selection());
    }

    #[test]
    fn after_another_change_nothing_is_selected_and_locks_stay_where_the_labels_are() {
        let mut states = states(4);
        states.set_locked(2, true);
        states.set_hidden(3, true);
        states.select(&[1]);
        states.plan(&[LabelOp::Remove { index: 1 }], false);
        states.follow(&[label(2), label(0), label(7)].into(), equal);
        assert!(!states.has_selection());
        assert_eq!(
            states.all().iter().map(|state| (state.is_locked, state.is_hidden)).collect::<Vec<_>>(),
            [(true, false), (false, false), (false, false)]
        );
    }

    #[test]
    fn cycling_goes_round_and_passes_by_hidden_boxes() {
        let mut states = states(4);
        states.set_hidden(0, true);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let next = states.neighbour(true);
            states.select(&next.into_iter().collect::<Vec<_>>());
            seen.extend(next);
        }
        assert_eq!(seen, [1, 2, 3, 1]);
        assert_eq!(states.neighbour(false), Some(3));
        assert_eq!(BoxStates::default().neighbour(false), None);
    }

    #[test]
    fn hiding_drops_the_selection_and_hiding_nothing_shows_all() {
        let mut states = states(3);
        states.select(&[1]);
        states.toggle_hidden();
        assert!(states.get(1).is_hidden && !states.has_selection());
        states.toggle_hidden();
        assert!(!states.has_hidden());
    }

    #[test]
    fn locking_a_mixed_selection_locks_all_of_it() {
        let mut states = states(3);
        states.set_locked(0, true);
        states.select(&[0, 1]);
        states.toggle_lock();
        assert!(states.get(0).is_locked && states.get(1).is_locked);
        states.toggle_lock();
        assert!(states.get(0).is_free() && states.get(1).is_free());
    }
}
