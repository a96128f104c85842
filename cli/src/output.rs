//! What commands print.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use crate::failure::Failure;

/// Prints a line. A reader that has closed the pipe (`| head -1`) is no failure; an output that does
/// not take the line, as on a full disk, is one.
pub(crate) fn say(line: impl Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("standard output").because(&error))
        }
        _ => Ok(()),
    }
}
