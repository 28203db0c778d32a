//! What does a run tell that another process trains?
//!
//! In:  a run folder, and how far it was read. Out: its events as they are written, until that process is gone.
//!
//! `events.jsonl` only grows, line by line, but for a resume, which cuts it: then all is read again. Never writes.

use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::event::TrainEvent;
use super::run_lock::RunLock;
use super::saved_run::SavedRun;

/// News of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Event(Box<TrainEvent>),
    /// All of it: the file was cut, or the run is over.
    Read(Box<SavedRun>),
}

/// Between two looks at the file.
const TICK: Duration = Duration::from_millis(250);

/// Follows a run of which `len` bytes of `events.jsonl` were read. Ends when nobody trains it any more, or when `tell` breaks,
/// which is called at each look at the file, if only with `None`.
pub fn follow(dir: &Path, mut len: u64, tell: &mut dyn FnMut(Option<News>) -> ControlFlow<()>) -> io::Result<()> {
    loop {
        // Asked first: what was written before the end is then still read.
        let is_alive = RunLock::is_held(dir);
        let lines = match read_from(dir, len)? {
            Some(lines) if is_alive => lines,
            _ => {
                let run = SavedRun::read(dir)?;
                len = run.events_len;
                let flow = tell(Some(News::Read(Box::new(run))));
                if flow.is_break() || !is_alive {
                    return Ok(());
                }
                String::new()
            }
        };
        len += lines.len() as u64;
        let values = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for event in values.filter_map(|value| TrainEvent::from_json(dir, &value)) {
            if tell(Some(News::Event(Box::new(event)))).is_break() {
                return Ok(());
            }
        }
        if tell(None).is_break() {
            return Ok(());
        }
        std::thread::sleep(TICK);
    }
}

/// The whole lines after the first `len` bytes; `None` if the file is shorter, or no line ends there: then it was cut, and is another.
fn read_from(dir: &Path, len: u64) -> io::Result<Option<String>> {
    let mut file = File::open(dir.join("events.jsonl"))?;
    if file.metadata()?.len() < len {
        return Ok(None);
    }
    if let Some(before) = len.checked_sub(1) {
        let mut end = [0];
        file.seek(SeekFrom::Start(before))?;
        file.read_exact(&mut end)?;
        if end != *b"\n" {
            return Ok(None);
        }
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.truncate(whole);
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::train::run_folder::RunFolder;

    fn note(text: &str) -> TrainEvent {
        TrainEvent::Note(text.to_owned())
    }

    #[test]
    fn news_come_line_by_line_until_nobody_trains_the_run() {
        let project = tempfile::tempdir().unwrap();
        let mut folder = RunFolder::create(project.path(), "exp").unwrap();
        let dir = folder.dir.clone();
        folder.write_event(&note("zero").to_json()).unwrap();
        let start = SavedRun::read(&dir).unwrap();
        assert!(start.is_alive);
        folder.write_event(&note("one").to_json()).unwrap();

        let mut folder = Some(folder);
        let mut news = Vec::new();
        follow(&dir, start.events_len, &mut |event| {
            let is_tick = event.is_none();
            news.extend(event);
            if is_tick && let Some(mut folder) = folder.take() {
                // What is written last is told, too, although the run is over when it is read.
                folder.write_event(&note("two").to_json()).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(news[0], News::Event(Box::new(note("one"))));
        let News::Read(run) = news.last().unwrap() else { panic!("the end is the whole run") };
        assert_eq!((run.notes.as_slice(), run.is_alive), (["zero", "one", "two"].map(str::to_owned).as_slice(), false));
    }

    #[test]
    fn a_run_that_was_cut_is_read_again() {
        let project = tempfile::tempdir().unwrap();
        let mut folder = RunFolder::create(project.path(), "exp").unwrap();
        folder.write_event(&note("again").to_json()).unwrap();
        let mut news = Vec::new();
        follow(&folder.dir, 1_000_000, &mut |event| {
            news.extend(event);
            ControlFlow::Break(())
        })
        .unwrap();
        let [News::Read(run)] = news.as_slice() else { panic!("{news:?}") };
        assert_eq!(run.notes, ["again"]);
    }
}
