//! Pascal VOC folders: XML annotations and ImageSets.
