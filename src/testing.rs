//! The private parser of URLs, for the fuzzer.

use crate::{OpenError, open::target};

/// Parses a URL as [`open`](crate::open) does, and opens nothing.
///
/// # Errors
///
/// As [`open`](crate::open), before it opens anything.
pub fn parse_url(text: &str) -> Result<(), OpenError> {
    target::parse(text).map(drop)
}
