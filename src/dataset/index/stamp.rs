//! What the file system says of a file, by which a change is noticed.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytemuck::{Pod, Zeroable};

/// A file that changed less than this before it was looked at may change again within the same tick of its clock.
const TICK_NS: i64 = 100_000_000;
/// As much for file systems whose times are whole seconds, or two.
const COARSE_TICK_NS: i64 = 2_500_000_000;

const IS_THERE: u64 = 1;
/// It was left alone for long enough before it was looked at.
const IS_SETTLED: u64 = 2;

/// A file at one moment. Times are nanoseconds since 1970; inode and status change are 0 where there is no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(in crate::dataset) struct Stamp {
    flags: u64,
    pub(in crate::dataset) n_bytes: u64,
    pub(in crate::dataset) modified_ns: i64,
    status_ns: i64,
    inode: u64,
}

impl Stamp {
    /// Looks at a file (through links). Call it before the file is read.
    pub(in crate::dataset) fn of(path: &Path) -> Self {
        let Ok(metadata) = std::fs::metadata(path) else { return Self::default() };
        let modified_ns = metadata.modified().map_or(0, nanoseconds);
        let (status_ns, inode) = status(&metadata);
        let changed = modified_ns.max(status_ns);
        let tick = if changed % 1_000_000_000 == 0 { COARSE_TICK_NS } else { TICK_NS };
        let is_settled = nanoseconds(SystemTime::now()) - changed > tick;
        let flags = IS_THERE | if is_settled { IS_SETTLED } else { 0 };
        Self { flags, n_bytes: metadata.len(), modified_ns, status_ns, inode }
    }

    /// As if the file had been left alone for long before it was looked at.
    #[cfg(test)]
    pub(in crate::dataset) fn settle(&mut self) {
        self.flags |= if self.is_absent() { 0 } else { IS_SETTLED };
    }

    pub(in crate::dataset) fn is_absent(self) -> bool {
        self.flags & IS_THERE == 0
    }

    /// Whether the file is now what it was when this was taken, so that what was read of it then still holds.
    pub(in crate::dataset) fn holds(self, now: Self) -> bool {
        let is_safe = self.flags & IS_SETTLED != 0 || self.is_absent();
        is_safe && Self { flags: 0, ..self } == Self { flags: 0, ..now } && self.is_absent() == now.is_absent()
    }
}

fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

#[cfg(unix)]
fn status(metadata: &std::fs::Metadata) -> (i64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec()), metadata.ino())
}

#[cfg(not(unix))]
fn status(_: &std::fs::Metadata) -> (i64, u64) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(flags: u64, n_bytes: u64) -> Stamp {
        Stamp { flags, n_bytes, modified_ns: 5, status_ns: 6, inode: 7 }
    }

    #[test]
    fn a_settled_file_that_is_the_same_holds() {
        let settled = IS_THERE | IS_SETTLED;
        assert!(stamp(settled, 1).holds(stamp(settled, 1)) && stamp(settled, 1).holds(stamp(IS_THERE, 1)));
        assert!(!stamp(settled, 1).holds(stamp(settled, 2)), "another size");
        assert!(!stamp(IS_THERE, 1).holds(stamp(settled, 1)), "it was looked at while it may have been written");
        for other in [
            Stamp { modified_ns: 9, ..stamp(settled, 1) },
            Stamp { status_ns: 9, ..stamp(settled, 1) },
            Stamp { inode: 9, ..stamp(settled, 1) },
        ] {
            assert!(!stamp(settled, 1).holds(other));
        }
        assert!(Stamp::default().holds(Stamp::default()), "still not there");
        assert!(!Stamp::default().holds(stamp(settled, 1)) && !stamp(settled, 1).holds(Stamp::default()));
    }
}
