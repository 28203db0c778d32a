//! Which predictions are right: each against the labels of its image, at ten IoU thresholds.
