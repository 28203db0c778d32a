//! Average and max pooling.
