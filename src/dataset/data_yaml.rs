//! data.yaml in its usual variants, read and written.
