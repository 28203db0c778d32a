//! Every error as the person sees it: what is wrong, where, and what to do.

use std::error::Error;

/// An error at the edge of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The whole chain of causes in one line.
    pub message: String,
    pub hint: Option<String>,
    pub kind: FailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The person can mend it: exit code 1.
    Mendable,
    /// Our fault: exit code 2.
    Unexpected,
    /// The person stopped the job.
    Cancelled,
}

impl Failure {
    pub fn mendable(message: impl Into<String>, hint: Option<String>) -> Self {
        Self { message: message.into(), hint, kind: FailureKind::Mendable }
    }

    pub fn unexpected(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, kind: FailureKind::Unexpected }
    }

    pub fn cancelled() -> Self {
        Self { message: "stopped".to_owned(), hint: None, kind: FailureKind::Cancelled }
    }

    /// The same with words before the message.
    #[must_use]
    pub fn about(self, words: &str) -> Self {
        Self { message: format!("{words}{}", self.message), ..self }
    }

    /// From an error with its chain of sources: `outer: middle: inner`.
    pub fn from_error(error: &dyn Error, hint: Option<String>) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            let text = inner.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = inner.source();
        }
        Self::mendable(message, hint)
    }
}
