use std::{
    io::{self, BufRead, Write},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Call, History, Malformed, Operation, Outcome, Recorder, nanos};
use crate::Nonce;

/// One line of a history in a file: what one client saw at one moment.
///
/// A process writes [`Invoke`](Self::Invoke) *before* it calls and [`Complete`](Self::Complete)
/// after it has the answer, each with one write of one whole line. Killed at any point, it leaves
/// a file that says what may have happened: a call without an answer is unknown, and a call that
/// is not in the file was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A call begins.
    Invoke {
        /// Who calls.
        client: u32,
        /// When, before anything is sent.
        #[serde(with = "nanos")]
        at: Duration,
        /// The key.
        key: Arc<str>,
        /// The acquisition.
        nonce: Nonce,
        /// What is asked.
        call: Call,
    },
    /// The client's open LOCK has a place in the queue. Said again, the last one counts: a waiter
    /// that lost its place queues again at the tail.
    Queued {
        /// Who waits.
        client: u32,
        /// When that was known.
        #[serde(with = "nanos")]
        at: Duration,
    },
    /// The client's open call has ended.
    Complete {
        /// Who called.
        client: u32,
        /// When the caller had the answer.
        #[serde(with = "nanos")]
        at: Duration,
        /// The answer.
        outcome: Outcome,
    },
}

impl Event {
    /// Writes this as one line, with one call of `write_all`.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write_line(&self, mut to: impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }
}

/// Why a file holds no history.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the history")]
    Io(#[from] io::Error),
    /// A line is no event.
    #[error("line {line} is no event")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The events make no history.
    #[error("the events make no history")]
    Malformed(#[from] Malformed),
}

impl Recorder {
    /// Takes in the events of one file, in their order. Files of several processes are taken in
    /// one after the other; no two may share a client.
    ///
    /// Says whether a last line was left out, of which a killed process has written the beginning
    /// alone: as the invocation is written before the call, and the answer counts as unknown without
    /// its line, nothing is lost but certainty. What is the beginning of no event is an error there
    /// too, and an event that lacks nothing but the end of its line is taken in.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] and [`ReadError::Line`]. That the events make no history is said by
    /// [`finish`](Self::finish).
    pub fn read(&mut self, mut from: impl BufRead) -> Result<bool, ReadError> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            from.read_until(b'\n', &mut line)?;
            let is_last = line.last() != Some(&b'\n');
            if !line.trim_ascii().is_empty() {
                match serde_json::from_slice(&line) {
                    Ok(event) => self.event(event),
                    Err(source) if is_last && is_unfinished(&line, &source) => return Ok(true),
                    Err(source) => return Err(ReadError::Line { line: number, source }),
                }
            }
            if is_last {
                break;
            }
        }
        Ok(false)
    }
}

/// Whether the line can be the beginning of an event. One is an object; of a string or a list the
/// end may be missing, too.
fn is_unfinished(line: &[u8], error: &serde_json::Error) -> bool {
    error.is_eof() && line.trim_ascii_start().starts_with(b"{")
}

impl History {
    /// The history in one file of events; see [`Recorder::read`] for several.
    ///
    /// # Errors
    ///
    /// All of [`ReadError`].
    pub fn read(from: impl BufRead) -> Result<Self, ReadError> {
        let mut recorder = Recorder::new();
        recorder.read(from)?;
        Ok(recorder.finish()?)
    }

    /// Writes the history as events, one JSON object a line, client by client.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let mut clients: Vec<&Operation> = self.operations().iter().collect();
        clients.sort_by_key(|operation| (operation.client, operation.invoked));
        for operation in clients {
            let Operation { client, key, nonce, call, invoked, .. } = operation;
            let (client, key) = (*client, Arc::clone(key));
            Event::Invoke { client, at: *invoked, key, nonce: *nonce, call: *call }
                .write_line(&mut to)?;
            if let Some(at) = operation.queued {
                Event::Queued { client, at }.write_line(&mut to)?;
            }
            if let Some(at) = operation.completed {
                Event::Complete { client, at, outcome: operation.outcome }.write_line(&mut to)?;
            }
        }
        Ok(())
    }
}
