//! Batch norm, activation and residual as one op, and its backward.
