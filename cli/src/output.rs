//! What commands print.

use std::io::Write as _;

/// Prints a line. A reader that has gone (`| head -1`) is no failure of ours.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
