//! Which trainings wait for the one that runs?
//!
//! In:  configurations, in the order in which they were asked for. Out: the next one, when nothing trains.
//!
//! A run that fails or is stopped makes room for the next one; only emptying the queue ends it. What waits outlives the program:
//! each change is written to a file, and a queue that is read back is held, so that nothing starts by itself. Never starts a job:
//! the session does.

use std::io::{self, Write};
use std::path::Path;

use crate::train::TrainConfig;

/// A run that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedRun {
    pub id: u64,
    pub config: TrainConfig,
}

/// Runs that wait, the next one first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    pub runs: Vec<QueuedRun>,
    /// While set, no run is begun; the one that runs goes on.
    pub is_held: bool,
    next_id: u64,
}

impl Queue {
    /// Writes what waits, as a whole or not at all; the file goes where nothing waits.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if self.runs.is_empty() {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        // The program may be started from another folder next time.
        let configs = self.runs.iter().map(|run| absolute(&run.config)).collect::<io::Result<Vec<_>>>()?;
        serde_json::to_writer_pretty(&mut file, &configs)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }

    /// What was waiting, held; empty where there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not one that this version wrote.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            bytes => bytes?,
        };
        let configs: Vec<TrainConfig> = serde_json::from_slice(&bytes)?;
        let mut queue = Self { is_held: !configs.is_empty(), ..Self::default() };
        for config in configs {
            queue.push(config);
        }
        Ok(queue)
    }

    /// Adds a run at the end.
    pub fn push(&mut self, config: TrainConfig) {
        self.next_id += 1;
        self.runs.push(QueuedRun { id: self.next_id, config });
    }

    /// Takes a run out; nothing where it has begun already.
    pub fn remove(&mut self, id: u64) {
        self.runs.retain(|run| run.id != id);
    }

    /// Moves a run to a place, counted from 0; past the end is the end.
    pub fn move_to(&mut self, id: u64, place: usize) {
        if let Some(index) = self.runs.iter().position(|run| run.id == id) {
            let run = self.runs.remove(index);
            self.runs.insert(place.min(self.runs.len()), run);
        }
    }

    /// The next run, which then waits no more; `None` while the queue is held.
    pub fn take_next(&mut self) -> Option<TrainConfig> {
        if self.is_held || self.runs.is_empty() { None } else { Some(self.runs.remove(0).config) }
    }
}

/// With paths that mean the same from any folder.
fn absolute(config: &TrainConfig) -> io::Result<TrainConfig> {
    let weights = config.weights.as_deref().map(std::path::absolute).transpose()?;
    let (data, project) = (std::path::absolute(&config.data)?, std::path::absolute(&config.project)?);
    Ok(TrainConfig { data, weights, project, ..config.clone() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::path::Path;

    fn queue(names: &[&str]) -> Queue {
        let mut queue = Queue::default();
        for name in names {
            queue.push(TrainConfig { name: (*name).to_owned(), ..TrainConfig::new(Path::new("d")) });
        }
        queue
    }

    fn names(queue: &Queue) -> Vec<&str> {
        queue.runs.iter().map(|run| run.config.name.as_str()).collect()
    }

    #[test]
    fn runs_come_in_order_and_can_be_moved_and_taken_out() {
        let mut queue = queue(&["a", "b", "c", "d"]);
        let id = |queue: &Queue, place: usize| queue.runs[place].id;
        let d = id(&queue, 3);
        queue.move_to(d, 0);
        assert_eq!(names(&queue), ["d", "a", "b", "c"]);
        queue.move_to(d, 99);
        assert_eq!(names(&queue), ["a", "b", "c", "d"]);
        queue.remove(id(&queue, 1));
        queue.remove(12_345);
        queue.move_to(12_345, 0);
        assert_eq!(queue.take_next().map(|config| config.name), Some("a".to_owned()));
        assert_eq!(names(&queue), ["c", "d"]);
    }

    #[test]
    fn a_queue_is_read_back_held_and_leaves_no_file_when_it_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/queue.json");
        assert_eq!(Queue::read(&path).unwrap(), Queue::default());
        let mut queue = queue(&["a", "b"]);
        queue.write(&path).unwrap();
        let read = Queue::read(&path).unwrap();
        assert_eq!((names(&read), read.is_held), (vec!["a", "b"], true));
        assert_eq!(read.runs[0].config, absolute(&queue.runs[0].config).unwrap());
        queue.runs.clear();
        queue.write(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "[{").unwrap();
        assert!(Queue::read(&path).is_err());
    }

    #[test]
    fn a_held_queue_gives_nothing_and_loses_nothing() {
        let mut queue = queue(&["a"]);
        queue.is_held = true;
        assert_eq!((queue.take_next(), queue.runs.len()), (None, 1));
        queue.is_held = false;
        assert!(queue.take_next().is_some() && queue.take_next().is_none());
    }
}
