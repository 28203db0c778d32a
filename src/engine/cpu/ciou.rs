//! Complete IoU with its gradient.
