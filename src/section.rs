//! How a critical section ended badly.

use std::fmt;

use gaggle_strategies::Error;

/// How a critical section did not end well: not run, dropped half-way, or finished and not
/// cleanly unlocked.
///
/// The last carries the section's output, because the work is done: whether to keep it is the
/// caller's to judge. `?` in a function that returns [`Error`] drops the output and keeps the cause.
#[non_exhaustive]
pub enum SectionError<T> {
    /// The lock was not granted. *Did the section run?* No.
    NotLocked(Error),

    /// The lock was lost while the section ran. *Did the section run?* Up to some await, where it
    /// was dropped. *May I retry?* As far as half a section may be repeated: what it had in flight
    /// may still land, and only a resource that checks the fencing token refuses it.
    Expired,

    /// The section finished, and the unlock failed. After [`Error::NotHolder`] or
    /// [`Error::Expired`] another acquisition may have held the key before the section ended. After any
    /// other cause the lock was valid when the section ended, and the lease's end frees the key.
    NotUnlocked {
        /// What the section returned.
        output: T,
        /// How the unlock failed.
        source: Error,
    },
}

impl<T> From<SectionError<T>> for Error {
    fn from(error: SectionError<T>) -> Self {
        match error {
            SectionError::NotLocked(source) | SectionError::NotUnlocked { source, .. } => source,
            SectionError::Expired => Self::Expired,
        }
    }
}

/// Without the output, which need not be printable, and may be secret.
impl<T> fmt::Debug for SectionError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLocked(error) => f.debug_tuple("NotLocked").field(error).finish(),
            Self::Expired => f.write_str("Expired"),
            Self::NotUnlocked { source, .. } => {
                f.debug_struct("NotUnlocked").field("source", source).finish_non_exhaustive()
            }
        }
    }
}

impl<T> fmt::Display for SectionError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLocked(_) => "the lock was not granted and the section did not run",
            Self::Expired => "the lock was lost and the section was dropped",
            Self::NotUnlocked { .. } => "the section finished but its lock was not unlocked",
        })
    }
}

impl<T> std::error::Error for SectionError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotLocked(source) | Self::NotUnlocked { source, .. } => Some(source),
            Self::Expired => None,
        }
    }
}
