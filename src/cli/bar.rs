//! A progress bar as text, and times that a person reads at a glance.
//!
//! Never prints.

use std::fmt::Write;

const WIDTH: usize = 20;

/// `[======>             ]`; empty where the whole is not known.
pub(super) fn bar(done: u64, total: u64) -> String {
    if total == 0 {
        return String::new();
    }
    let filled = (WIDTH as u64 * done.min(total) / total) as usize;
    let head = if filled < WIDTH { ">" } else { "" };
    format!("[{}{head}{}]", "=".repeat(filled), " ".repeat(WIDTH - filled - head.len()))
}

/// `42 s`, `3:07`, `2:05:09`.
pub(super) fn duration(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    let mut text = String::new();
    match (secs / 3600, secs / 60 % 60, secs % 60) {
        (0, 0, secs) => write!(text, "{secs} s"),
        (0, minutes, secs) => write!(text, "{minutes}:{secs:02}"),
        (hours, minutes, secs) => write!(text, "{hours}:{minutes:02}:{secs:02}"),
    }
    .expect("writing to a String cannot fail");
    text
}

/// A mean that follows: of the last some ten values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    mean: Option<f64>,
}

impl Recent {
    pub(super) fn add(&mut self, value: f64) -> f64 {
        let mean = self.mean.map_or(value, |mean| mean + 0.1 * (value - mean));
        self.mean = Some(mean);
        mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_from_the_left_and_are_never_longer() {
        assert_eq!(bar(0, 8), format!("[>{}]", " ".repeat(19)));
        assert_eq!(bar(4, 8), format!("[{}>{}]", "=".repeat(10), " ".repeat(9)));
        assert_eq!(bar(8, 8), format!("[{}]", "=".repeat(20)));
        assert_eq!(bar(9, 8), bar(8, 8));
        assert_eq!(bar(3, 0), "");
    }

    #[test]
    fn times_have_as_many_parts_as_they_need() {
        assert_eq!([3.2, 187.0, 7509.0, -1.0].map(duration), ["3 s", "3:07", "2:05:09", "0 s"]);
    }
}
