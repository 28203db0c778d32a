//! Task-aligned assignment: which anchor points learn which ground-truth boxes.
