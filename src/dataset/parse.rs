//! The one parser of YOLO label files: each row with its verdict.
