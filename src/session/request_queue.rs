//! Which picture is decoded next? The one that was asked for last: what scrolled past waits, and is let go.
//!
//! The window asks in turns (a frame each), and again in every turn in which it still wants a picture. Of one turn, what
//! was asked for first comes first. Workers wait here for something to do. Nothing in here takes time under the lock.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::pictures::PictureKey;

/// So many wait at most.
const MAX_WAITING: usize = 512;
/// What was not asked for again in so many turns has scrolled past.
const MAX_TURNS: u64 = 8;

/// Requests that wait for a worker.
#[derive(Default)]
pub(super) struct RequestQueue {
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<Request>,
    n_asked: u64,
    is_closed: bool,
}

struct Request {
    key: PictureKey,
    turn: u64,
    number: u64,
}

impl RequestQueue {
    /// Asks for a picture in this turn, or once more. Returns one that is let go for it, if too many wait.
    pub(super) fn ask(&self, key: &PictureKey, turn: u64) -> Option<PictureKey> {
        let mut waiting = self.lock();
        if let Some(request) = waiting.requests.iter_mut().find(|request| request.key == *key) {
            request.turn = turn;
            return None;
        }
        waiting.n_asked += 1;
        let number = waiting.n_asked;
        waiting.requests.push(Request { key: key.clone(), turn, number });
        self.ready.notify_one();
        if waiting.requests.len() <= MAX_WAITING {
            return None;
        }
        let last = (0..waiting.requests.len()).max_by_key(|&index| urgency(&waiting.requests[index]))?;
        Some(waiting.requests.swap_remove(last).key)
    }

    /// Says that a picture is still wanted in this turn, if it waits.
    pub(super) fn renew(&self, key: &PictureKey, turn: u64) {
        if let Some(request) = self.lock().requests.iter_mut().find(|request| request.key == *key) {
            request.turn = turn;
        }
    }

    /// Lets go of what has scrolled past, and returns it.
    pub(super) fn let_go(&self, turn: u64) -> Vec<PictureKey> {
        let mut waiting = self.lock();
        let (old, wanted) = std::mem::take(&mut waiting.requests).into_iter().partition(|request| request.turn + MAX_TURNS < turn);
        waiting.requests = wanted;
        let old: Vec<Request> = old;
        old.into_iter().map(|request| request.key).collect()
    }

    /// The most urgent request; waits for one. `None` when there will be no more.
    pub(super) fn take(&self) -> Option<PictureKey> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            let first = (0..waiting.requests.len()).min_by_key(|&index| urgency(&waiting.requests[index]));
            if let Some(first) = first {
                return Some(waiting.requests.swap_remove(first).key);
            }
            waiting = self.ready.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends the workers home.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code under the lock can leave it half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Smaller comes first.
fn urgency(request: &Request) -> (std::cmp::Reverse<u64>, u64) {
    (std::cmp::Reverse(request.turn), request.number)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(name: usize) -> PictureKey {
        PictureKey { path: name.to_string().into(), max_side: None }
    }

    fn order(queue: &RequestQueue, n: usize) -> Vec<String> {
        (0..n).map(|_| queue.take().unwrap().path.display().to_string()).collect()
    }

    #[test]
    fn the_last_turn_comes_first_and_in_its_own_order() {
        let queue = RequestQueue::default();
        for (name, turn) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
            assert_eq!(queue.ask(&key(name), turn), None);
        }
        queue.renew(&key(2), 3);
        queue.ask(&key(1), 2);
        assert_eq!(order(&queue, 4), ["2", "1", "3", "4"]);
    }

    #[test]
    fn what_scrolled_past_is_let_go() {
        let queue = RequestQueue::default();
        queue.ask(&key(1), 1);
        queue.ask(&key(2), 2);
        assert_eq!(queue.let_go(1 + MAX_TURNS), []);
        assert_eq!(queue.let_go(2 + MAX_TURNS), [key(1)]);
        for name in 3..MAX_WAITING + 2 {
            assert_eq!(queue.ask(&key(name), 3), None);
        }
        assert_eq!(queue.ask(&key(9_999), 3), Some(key(2)), "the least urgent");
        queue.close();
        assert_eq!(queue.take(), None);
    }
}
