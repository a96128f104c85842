//! The errors of a critical section.

use std::fmt;

use gaggle_strategies::{Error, lock::LossCause};

/// Why a critical section failed: not run, dropped half-way, or finished without a clean unlock.
///
/// The last variant carries the section's output, because the work is done: the caller decides
/// whether to keep it. `?` in a function that returns [`Error`] drops the output and keeps the
/// cause.
///
/// ```
/// use gaggle::{LockOptions, SectionError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle::OpenError> {
/// let locker = gaggle::open("local:").await?;
/// match locker.with_lock("orders/42", LockOptions::default(), |_lock| async { 42 }).await {
///     Ok(output) => println!("done: {output}"),
///     Err(SectionError::NotUnlocked { output, .. }) => println!("done, unlock failed: {output}"),
///     Err(SectionError::Lost(cause)) => println!("done in part: {cause:?}"),
///     Err(error) => println!("not done: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum SectionError<T> {
    /// The lock was not granted. *Did the section run?* No.
    #[error("the section did not run: {0}")]
    NotLocked(Error),

    /// The lock was lost while the section ran. *Did the section run?* In part: it was dropped
    /// at an await. *May I retry?* If that part may be repeated. Its requests in flight may still
    /// take effect, and only a resource that checks the fencing token refuses them.
    #[error("the section was dropped, its lock was lost: {}", describe(*.0))]
    Lost(LossCause),

    /// The section finished, and the unlock failed. After [`Error::NotHolder`] or
    /// [`Error::Expired`] another acquisition may have held the key before the section ended.
    /// Otherwise the lock was valid when the section ended, and the lease's end frees the key.
    #[error("the section finished, its unlock failed: {cause}")]
    NotUnlocked {
        /// The output of the section.
        output: T,
        /// Why the unlock failed.
        cause: Error,
    },
}

fn describe(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Deadline => "its lease ended",
        LossCause::Ended => "the granting side no longer has it, or this handle was closed",
        LossCause::Forced => "another process unlocked it",
        _ => "unknown cause",
    }
}

impl<T> From<SectionError<T>> for Error {
    fn from(error: SectionError<T>) -> Self {
        match error {
            SectionError::NotLocked(cause) | SectionError::NotUnlocked { cause, .. } => cause,
            SectionError::Lost(LossCause::Deadline) => Self::Expired,
            SectionError::Lost(_) => Self::NotHolder,
        }
    }
}

/// The sentence, as a `main` that returns this error prints it. It leaves out the output, which may
/// be secret and need not be printable.
impl<T> fmt::Debug for SectionError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
