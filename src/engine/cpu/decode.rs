//! Box distributions and class logits into boxes and scores.
