//! Histories in files: one operation a line, as JSON.

use std::io::{self, BufRead, Write};

use super::{History, Malformed, Operation};

/// Why a file holds no history.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the history")]
    Io(#[from] io::Error),
    /// A line is not an operation.
    #[error("line {line} is not an operation")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// The error.
        #[source]
        source: serde_json::Error,
    },
    /// The operations are not a history.
    #[error("the operations are not a history")]
    Malformed(#[from] Malformed),
}

impl History {
    /// Reads what [`write`](Self::write) wrote. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// All of [`ReadError`].
    pub fn read(from: impl BufRead) -> Result<Self, ReadError> {
        let mut operations = Vec::new();
        for (number, line) in (1..).zip(from.split(b'\n')) {
            let line = line?;
            if !line.trim_ascii().is_empty() {
                let operation = serde_json::from_slice(&line);
                let malformed = |source| ReadError::Line { line: number, source };
                operations.push(operation.map_err(malformed)?);
            }
        }
        Ok(Self::new(operations)?)
    }

    /// Writes the operations in the order of invocation, one JSON object a line.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        for operation in self.operations() {
            let mut line = serde_json::to_vec::<Operation>(operation)?;
            line.push(b'\n');
            to.write_all(&line)?;
        }
        Ok(())
    }
}
