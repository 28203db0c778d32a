//! Is a run being trained right now, and by whom?
//!
//! In:  a run folder. Out: a lock that one process can hold; for others, whether somebody does.
//!
//! The lock is one of the operating system on `run.lock`, so it ends with the process that holds it, however that ends. The file's
//! text says who that is, for messages alone. Where a file system knows no locks, every run counts as not being trained.

use std::fs::File;
use std::fs::TryLockError;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use super::error::TrainError;
use super::run_folder::write_error;

/// Held as long as it lives.
pub struct RunLock {
    _file: File,
}

/// Who only looks holds the lock for some microseconds: so often a trainer tries again.
const TRIES: usize = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("run.lock")
}

impl RunLock {
    /// # Errors
    /// Another process trains this run, or the file cannot be written.
    pub fn take(run_dir: &Path) -> Result<Self, TrainError> {
        let path = path(run_dir);
        // What is in it is of a process that still runs, until the lock is ours.
        let mut file = File::options().create(true).truncate(false).write(true).open(&path).map_err(|source| write_error(&path, source))?;
        for attempt in 1.. {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if attempt < TRIES => std::thread::sleep(BETWEEN_TRIES),
                Err(TryLockError::WouldBlock) => {
                    let owner = std::fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                    return Err(TrainError::InUse { owner, path: run_dir.to_owned() });
                }
                // Without locks there is nothing to refuse.
                Ok(()) | Err(TryLockError::Error(_)) => break,
            }
        }
        let owner = format!("process {} on {}\n", std::process::id(), host());
        // Only messages would miss it.
        file.set_len(0).and_then(|()| file.write_all(owner.as_bytes())).ok();
        Ok(Self { _file: file })
    }

    /// Whether a process trains this run.
    pub fn is_held(run_dir: &Path) -> bool {
        let Ok(file) = File::open(path(run_dir)) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("COMPUTERNAME").ok());
    name.map_or_else(|| "this machine".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_at_a_time_trains_a_run_and_others_can_see_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!RunLock::is_held(dir.path()));
        let lock = RunLock::take(dir.path()).unwrap();
        assert!(RunLock::is_held(dir.path()));
        let error = RunLock::take(dir.path()).err().unwrap();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())) && error.hint().is_some(), "{error}");
        drop(lock);
        assert!(!RunLock::is_held(dir.path()));
        RunLock::take(dir.path()).unwrap();
    }
}
