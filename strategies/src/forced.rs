//! Helpers of a force-unlock: the check of its reason, the note for the holder, the log event.

use std::sync::Arc;

use crate::{
    error::Error,
    lock::{Inspection, Owner},
    options::check_text,
};

/// Checks the reason of a force-unlock, before any I/O.
///
/// ```
/// use gaggle_strategies::implement::check_reason;
///
/// assert!(check_reason("ticket 7: the job hangs").is_ok());
/// assert!(check_reason(&"x".repeat(257)).is_err());
/// ```
///
/// # Errors
///
/// [`Error::InvalidOptions`] naming `reason`, above 256 bytes.
pub fn check_reason(reason: &str) -> Result<(), Error> {
    check_text("reason", reason)
}

/// The note for the holder whose lock was ended `by` another process, for
/// [`LossRegistry::report`](crate::implement::LossRegistry::report).
#[must_use]
pub fn forced_note(by: &Owner, reason: &str) -> Arc<str> {
    format!("{by}: {reason}").into()
}

/// Logs a force-unlock where it was requested, at WARN. One event has one text.
pub fn log_forced(key: &str, ended: &Inspection, by: &Owner, reason: &str) {
    let (token, holder) = (ended.fencing_token, &ended.owner);
    tracing::warn!(key, token, %holder, %by, reason, "lock force-unlocked");
}
