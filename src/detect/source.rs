//! What to detect on: a file, a folder, or a pattern with `*` and `?`, as a list of picture files.
