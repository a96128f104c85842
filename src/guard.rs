//! The guard of a lock: validity, loss, extension, and unlocking on drop.

#[cfg(test)]
mod interleavings;

use std::{fmt, sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, KeyedMutex, Lock,
    implement::{LossWatch, not_held},
    limits::DURATION_MIN,
    lock::{LossCause, Nonce},
};

use crate::{
    Section, keepalive::KeepAlive, lease::Lease, metrics::Stopwatch, own_thread::OwnThread,
};

/// A lock that this process holds. Dropping the guard unlocks it.
///
/// A lock is advisory: a valid guard does not stop a write that is already in flight. Only a
/// resource that checks the [fencing token](Self::fencing_token) does.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// let guard = locker.lock("orders/42").await?;
/// for step in 0..3 {
///     if !guard.is_valid() {
///         break;
///     }
///     println!("step {step}, with {} in each request", guard.fencing_token());
/// }
/// guard.unlock().await?; // reports a loss, which dropping does not
/// # Ok(())
/// # }
/// ```
///
/// # Dropping
///
/// Dropping sends the unlock before it returns: at the end of a scope, by `?`, by a panic, and as
/// the program ends. It waits for no reply, never panics and needs no runtime. The runtime in which
/// the strategy was opened must still exist. [`unlock`](Self::unlock) also reports whether the
/// unlock arrived. Without a connection or that runtime, the lease's end frees the key. The same
/// holds for a guard in a spawned task that the runtime drops after the driver. It also holds for a
/// member on the pub/sub of a Redis, which sends by a task. If a leader ends, the others first
/// elect another one.
#[must_use = "if unused the key is unlocked at once"]
#[clippy::has_significant_drop]
pub struct Guard {
    lease: Arc<Lease>,
    keepalive: Option<KeepAlive>,
    /// The watch ends with the guard, not with the keep-alive, whose aborted task can outlive the
    /// guard. A closing strategy unlocks every watched lock.
    watch: LossWatch,
    /// Whether dropping unlocks.
    armed: bool,
    /// Keeps the thread of the strategy alive until the unlock is sent.
    thread: Option<Arc<OwnThread>>,
}

impl Guard {
    /// A guard of a lock that `mutex` has just granted; `held` has just started.
    pub(crate) fn new(
        mutex: Arc<dyn KeyedMutex>,
        thread: Option<Arc<OwnThread>>,
        lock: Lock,
        held: Stopwatch,
    ) -> Self {
        let watch = mutex.watch(&lock);
        let opener = thread.as_ref().map(|thread| thread.opener());
        let lease = Arc::new(Lease::new(mutex, lock, watch.observer(), opener, held));
        Self { lease, keepalive: None, watch, armed: true, thread }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn thread(&self) -> Option<&Arc<OwnThread>> {
        self.thread.as_ref()
    }

    /// Extends in the background; needs a tokio runtime, or the strategy's own thread.
    pub(crate) fn keep_alive(mut self, duration: Duration, max_hold: Duration) -> Self {
        let (lease, thread) = (Arc::clone(&self.lease), self.thread.as_deref());
        self.keepalive = Some(KeepAlive::start(lease, thread, duration, max_hold));
        self
    }

    /// The key that is locked.
    #[must_use]
    pub fn key(&self) -> Arc<str> {
        Arc::clone(self.lease.lock().key())
    }

    /// The fencing token, which grows with every grant of the key.
    ///
    /// Pass it to the resource with every request, reads included. The resource refuses a token
    /// smaller than the greatest it has seen. A resource that checks only writes can lose updates:
    /// a paused holder writes between the read and the write of the next holder. Keep it in a
    /// 64-bit integer: only the tokens of `Redis` are below 2⁵³, as JavaScript's numbers need.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.lease.lock().fencing_token()
    }

    /// The nonce, which names this acquisition.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.lease.lock().nonce()
    }

    /// The lock as a plain value, with its present deadline. The guard continues to hold it.
    #[must_use]
    pub fn lock(&self) -> Lock {
        self.lease.lock()
    }

    pub(crate) fn section(&self) -> Section {
        Section::new(Arc::clone(&self.lease))
    }

    /// How long the lease can still be relied on; zero once lost. Reads the clock.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Whether the lease can be relied on at this instant. Reads the clock each time; once `false`
    /// it stays so. It may become `false` before the next line runs: the fencing token protects the
    /// resource.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Completes when the lease can no longer be relied on: at the local deadline, without any
    /// network, or earlier when the strategy or keep-alive learns of a loss.
    ///
    /// An extension moves the deadline, also for a future that already waits. After a suspension of
    /// the machine, an expired deadline is noticed within a second of waking.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing. Several tasks may wait at a time.
    pub async fn lost(&self) {
        tokio::select! {
            biased;
            () = self.lease.loss_reported() => {}
            () = self.lease.expired() => {}
        }
    }

    /// Why the lease can no longer be relied on; `None` while it can.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        self.lease.loss()
    }

    /// Details of the loss as text: the process that force-unlocked the lock and its reason, or why
    /// the lease was [not extended](Self::extend_error).
    #[must_use]
    pub fn loss_note(&self) -> Option<Arc<str>> {
        match self.loss()? {
            LossCause::Forced => self.watch.note(),
            LossCause::Deadline => self.extend_error(),
            _ => None,
        }
    }

    /// The error of the last failed attempt to extend the lease, as text. `None` after a successful
    /// extension, or if the reason is unknown.
    #[must_use]
    pub fn extend_error(&self) -> Option<Arc<str>> {
        self.watch.extend_error()
    }

    /// Extends the lease to at least `duration` (1 ms to 24 h) from now; never shortens it.
    ///
    /// # Errors
    ///
    /// [`Error::NotHolder`] before the local deadline and [`Error::Expired`] from it on: the lock
    /// is lost, and so is the guard. Any other error leaves it as it was: [`Error::Unavailable`]
    /// and [`Error::Unknown`] may be retried until the deadline; [`Error::InvalidOptions`] and
    /// [`Error::Limit`] were not sent; [`Error::Closed`] and [`Error::Failed`] end this handle. A
    /// failed extend never unlocks. It ends by the strategy's request timeout (1 s by default) and
    /// by the deadline.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was or extended, and the guard as it was.
    #[doc(alias = "renew")]
    pub async fn extend(&self, duration: Duration) -> Result<(), Error> {
        if self.lease.loss().is_none() {
            return self.lease.extend(duration).await;
        }
        let lock = self.lock();
        let lost = || not_held(&lock, self.lease.clock.now());
        // The strategy knows whether its handle has ended; the shortest lease extends nothing.
        if self.watch.is_lost()
            && matches!(lost(), Error::NotHolder)
            && let Err(ended @ (Error::Closed | Error::Failed { .. })) =
                self.lease.mutex.extend(&lock, DURATION_MIN).await
        {
            return Err(ended);
        }
        Err(lost())
    }

    /// Unlocks and waits for the outcome, within the strategy's request timeout (1 s by default).
    ///
    /// # Errors
    ///
    /// [`Error::NotHolder`] and [`Error::Expired`]: the lock was lost before; another acquisition
    /// may have held it while this guard was relied on. [`Error::Unavailable`], [`Error::Unknown`],
    /// [`Error::Limit`], [`Error::Closed`], [`Error::Failed`]: the guard was valid until this call,
    /// and the key may still be locked. The unlock is sent as by dropping the guard. The end of the
    /// lease frees the key at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the guard, which sends the unlock.
    #[doc(alias = "release")]
    pub async fn unlock(mut self) -> Result<(), Error> {
        let lock = self.end();
        let outcome = self.lease.mutex.unlock(&lock).await;
        match outcome {
            Ok(()) => {}
            Err(Error::NotHolder) => self.lease.unlock_found(LossCause::Ended),
            Err(Error::Expired) => self.lease.unlock_found(LossCause::Deadline),
            // A loss was noted by `end` at the latest, and none after it.
            Err(_) if self.loss().is_some() => return Err(not_held(&lock, self.lease.clock.now())),
            Err(_) => return outcome,
        }
        self.armed = false;
        outcome
    }

    /// Returns the lock as a plain value, without unlocking and without further auto-extend. Its
    /// receiver [adopts](crate::Locker::adopt) or unlocks it, or its lease expires.
    #[must_use = "the lock stays held until its lease ends"]
    pub fn into_lock(mut self) -> Lock {
        self.armed = false;
        self.end()
    }

    /// Ends the keep-alive first, so that only an extension in flight can follow the unlock, and no
    /// loss is reported after it.
    fn end(&mut self) -> Lock {
        if let Some(keepalive) = self.keepalive.take() {
            // A keep-alive that has ended is not late.
            self.lease.report_blocked();
            drop(keepalive);
        }
        self.lease.end();
        self.lock()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.lease.is_copy() {
            // A mutex of the copy may have been locked during the fork.
            let watch = std::mem::replace(&mut self.watch, LossWatch::never());
            std::mem::forget((watch, self.keepalive.take()));
            return;
        }
        // A guard that is not armed has ended before.
        if self.armed {
            let lock = self.end();
            self.lease.mutex.release(&lock);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key())
            .field("nonce", &self.nonce())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
