//! The errors of a critical section.

use std::fmt;

use gaggle_strategies::Error;

/// Why a critical section failed: not run, dropped half-way, or finished without a clean unlock.
///
/// The last variant carries the section's output, because the work is done: the caller decides
/// whether to keep it. `?` in a function that returns [`Error`] drops the output and keeps the
/// cause.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let locker = gaggle::open("local:").await.unwrap();
/// use gaggle::{LockOptions, SectionError};
///
/// match locker.with_lock("orders/42", LockOptions::default(), |_lock| async { 42 }).await {
///     Ok(output) => println!("done: {output}"),
///     Err(SectionError::NotUnlocked { output, .. }) => println!("done, unlock failed: {output}"),
///     Err(error) => println!("not done: {error}"),
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum SectionError<T> {
    /// The lock was not granted. *Did the section run?* No.
    #[error("the lock was not granted and the section did not run")]
    NotLocked(#[source] Error),

    /// The lock was lost while the section ran. *Did the section run?* In part: it was dropped
    /// at an await. *May I retry?* If that part may be repeated. Its requests in flight may still
    /// take effect, and only a resource that checks the fencing token refuses them.
    #[error("the lock was lost and the section was dropped")]
    Expired,

    /// The section finished, and the unlock failed. After [`Error::NotHolder`] or
    /// [`Error::Expired`] another acquisition may have held the key before the section ended.
    /// Otherwise the lock was valid when the section ended, and the lease's end frees the key.
    #[error("the section finished but its lock was not unlocked")]
    NotUnlocked {
        /// The output of the section.
        output: T,
        /// Why the unlock failed.
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

/// Leaves out the output, which need not be printable and may be secret.
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
