//! Why a command failed.

use std::{error::Error, fmt, process::ExitCode};

/// Why a command did not do its work, for people: one line.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    interrupted: bool,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), interrupted: false }
    }

    /// Somebody pressed Ctrl-C.
    pub(crate) fn interrupted() -> Self {
        Self { text: "interrupted".into(), interrupted: true }
    }

    /// Adds a cause, and the causes of that, each unless the one before has said it.
    pub(crate) fn because(mut self, cause: &(dyn Error + 'static)) -> Self {
        let mut next = Some(cause);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !self.text.ends_with(&text) {
                self.text.push_str(": ");
                self.text.push_str(&text);
            }
            next = cause.source();
        }
        self
    }

    /// Says first what was being done; an interruption needs no such word.
    pub(crate) fn during(mut self, what: &str) -> Self {
        if !self.interrupted {
            self.text = format!("{what}: {}", self.text);
        }
        self
    }

    /// 130 after Ctrl-C, as shells expect; 2 otherwise. 1 says that an update was lost.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.interrupted { 130 } else { 2 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
