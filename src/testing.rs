//! Private parsers behind one door, for the fuzzer.

use crate::{OpenError, open::target};

/// Parses a URL as [`open`](crate::open) does, and opens nothing.
///
/// # Errors
///
/// As [`open`](crate::open) has them before it opens anything.
pub fn parse_url(text: &str) -> Result<(), OpenError> {
    target::parse(text).map(drop)
}
