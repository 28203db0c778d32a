//! Which trainings wait for the one that runs?
//!
//! In:  configurations, in the order in which they were asked for. Out: the next one, when nothing trains.
//!
//! A run that fails or is stopped makes room for the next one; only emptying the queue ends it. Never starts a job: the session
//! does.

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

#[cfg(test)]
mod tests {
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
    fn a_held_queue_gives_nothing_and_loses_nothing() {
        let mut queue = queue(&["a"]);
        queue.is_held = true;
        assert_eq!((queue.take_next(), queue.runs.len()), (None, 1));
        queue.is_held = false;
        assert!(queue.take_next().is_some() && queue.take_next().is_none());
    }
}
