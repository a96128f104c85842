//! What a critical section knows of its lock, and its errors.

use std::{fmt, sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, Lock,
    lock::{LossCause, Nonce},
};

use crate::lease::Lease;

/// The lock of a running critical section, as [`Acquire::run`](crate::Acquire::run) and
/// [`Locker::with_lock`](crate::Locker::with_lock) pass it. Cloning is cheap, and does not prolong
/// the lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// let written = locker.with_lock("report", gaggle::LockOptions::default(), |section| async move {
///     let mut written = 0;
///     // One page a step, while the lease can be relied on.
///     while written < 10 && section.is_valid() {
///         println!("page {written}, token {}", section.fencing_token());
///         written += 1;
///     }
///     written
/// });
/// assert_eq!(written.await?, 10);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Section {
    lease: Arc<Lease>,
}

impl Section {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Self { lease }
    }

    /// The key that is locked.
    #[must_use]
    pub fn key(&self) -> Arc<str> {
        Arc::clone(self.lock().key())
    }

    /// The fencing token; see [`Guard::fencing_token`](crate::Guard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.lock().fencing_token()
    }

    /// The nonce, which names this acquisition.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.lock().nonce()
    }

    /// The lock as a plain value, with its present deadline.
    #[must_use]
    pub fn lock(&self) -> Lock {
        self.lease.lock()
    }

    /// How long the lease can still be relied on; zero once lost or unlocked. Reads the clock. An
    /// auto-extend lengthens it.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Whether the lease can be relied on at this instant; see
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section")
            .field("lock", &self.lock())
            .field("remaining", &self.remaining())
            .finish()
    }
}

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
