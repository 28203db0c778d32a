//! Which images have this path? By hashes, without keeping a second copy of hundreds of thousands of paths.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

/// Finds images by a path of theirs, without keeping the paths.
pub(super) struct PathIndex(Vec<(u64, u32)>);

impl PathIndex {
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let mut entries: Vec<(u64, u32)> = paths.enumerate().map(|(index, path)| (Self::hash(path), index as u32)).collect();
        entries.sort_unstable();
        Self(entries)
    }

    /// The images whose path this is; `path_of` gives the path of an image.
    pub(super) fn find<'a>(&'a self, path: &'a Path, path_of: impl Fn(usize) -> &'a Path + 'a) -> impl Iterator<Item = usize> + 'a {
        let hash = Self::hash(path);
        let first = self.0.partition_point(|(each, _)| *each < hash);
        let same = self.0[first..].iter().take_while(move |(each, _)| *each == hash).map(|(_, index)| *index as usize);
        same.filter(move |&index| path_of(index) == path)
    }

    fn hash(path: &Path) -> u64 {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish()
    }
}
