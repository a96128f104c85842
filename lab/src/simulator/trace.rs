//! The trace of a run: its digest, and its text on request.

use std::fmt::{Arguments, Write};

use super::random::mixed;

/// The events of a run, in order: always as a digest, on request also as text.
#[derive(Debug, Default)]
pub(super) struct Trace {
    digest: u64,
    text: Option<String>,
}

impl Trace {
    pub(super) fn new(text: bool) -> Self {
        Self { digest: 0, text: text.then(String::new) }
    }

    /// Notes one event by its numbers, and writes its line if text is wanted.
    pub(super) fn note(&mut self, now: u64, numbers: &[u64], line: Arguments<'_>) {
        let start = mixed(self.digest ^ now);
        self.digest = numbers.iter().fold(start, |digest, number| mixed(digest ^ number));
        self.write(now, line);
    }

    /// Writes a line that only repeats the events.
    pub(super) fn write(&mut self, now: u64, line: Arguments<'_>) {
        if let Some(text) = &mut self.text {
            let (ms, us) = (now / 1_000_000, now / 1_000 % 1_000);
            let _ = writeln!(text, "{ms:>6}.{us:03} {line}");
        }
    }

    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn into_text(self) -> Option<String> {
        self.text
    }
}
