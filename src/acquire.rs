//! A lock request that is not sent yet: options, auto-extend, and the ways to send it.

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use gaggle_strategies::{
    Error, KeyedMutex, LockOptions, MaxWait,
    error::{Contention, UnavailableKind},
    lock::LossCause,
};
use humantime::format_duration;
use tokio::runtime::Handle;

use crate::{
    Guard, Locker, Section, SectionError,
    metrics::{self, Stopwatch},
};

/// How long an error waits for the name of the key's holder.
const HOLDER_TIMEOUT: Duration = Duration::from_millis(100);

/// A lock request that is not sent yet. Await it for a [`Guard`], [`try_now`](Self::try_now)
/// without waiting, or [`run`](Self::run) a section. It is `'static`: it can be stored and spawned.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// let requests: Vec<gaggle::Acquire> = (0..3)
///     .map(|number| locker.lock_with(format!("orders/{number}"), gaggle::LockOptions::default()))
///     .collect();
/// for request in requests {
///     tokio::spawn(request.into_future()).await??.unlock().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent until this is awaited"]
pub struct Acquire {
    locker: Locker,
    key: Arc<str>,
    options: LockOptions,
    max_hold: Option<Duration>,
}

impl Acquire {
    pub(crate) fn new(locker: Locker, key: Arc<str>, options: LockOptions) -> Self {
        Self { locker, key, options, max_hold: None }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn locker(&self) -> &Locker {
        &self.locker
    }

    /// Keeps the lease alive in the background while the guard lives; off by default.
    ///
    /// When a third of the lease has passed, it is extended to `duration` from that time. Failures
    /// are retried, with growing random pauses, until the local deadline. If the granting side no
    /// longer knows the lock, the guard is lost at the next extension.
    ///
    /// Code that blocks its thread can stop the extensions: run it in
    /// [`spawn_blocking`](tokio::task::spawn_blocking), or open the strategy by
    /// [`open_on_thread`](crate::open_on_thread). A WARN event reports a late extension.
    ///
    /// The background task ends with the guard, and with the runtime in which the lock was taken,
    /// unless the strategy has its own thread. No extension reaches beyond `max_hold` after the lock
    /// was returned, plus the time that its request takes. So a hung section cannot keep a key
    /// indefinitely; then the lease expires. It never shortens a lease that was
    /// [extended](Guard::extend) further by hand.
    ///
    /// # Errors
    ///
    /// Before anything is sent: [`Error::InvalidOptions`] naming `max_hold`, which is at least
    /// `duration`, and [`Error::Unavailable`] outside a tokio runtime, unless the strategy has its
    /// own thread.
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Takes the key only if it is free now: one attempt, which ignores `max_wait`.
    ///
    /// ```
    /// use gaggle::{Error, LockOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let nightly = || locker.lock_with("nightly", LockOptions::default().label("report"));
    /// let guard = nightly().try_now().await?;
    /// assert!(matches!(nightly().try_now().await, Err(Error::Held(_))));
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Held`] if another acquisition holds it; else as [`KeyedMutex::lock`]. It ends by
    /// the strategy's request timeout (1 s by default). Naming the holder in an error
    /// takes at most 100 ms more.
    ///
    /// # Cancel safety
    ///
    /// As [`Locker::lock`](crate::Locker::lock).
    pub async fn try_now(mut self) -> Result<Guard, Error> {
        self.options = self.options.max_wait(Duration::ZERO);
        self.take().await
    }

    /// Runs `section` under the lock, as [`Locker::with_lock`](crate::Locker::with_lock) does.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`Locker::with_lock`](crate::Locker::with_lock).
    pub async fn run<F, S>(self, section: F) -> Result<S::Output, SectionError<S::Output>>
    where
        F: FnOnce(Section) -> S,
        S: Future,
    {
        let guard = self.take().await.map_err(SectionError::NotLocked)?;
        let output = tokio::select! {
            // Polled first, so that a lost lock ends the section before its next step.
            biased;
            () = guard.lost() => {
                return Err(SectionError::Lost(guard.loss().unwrap_or(LossCause::Deadline)));
            }
            output = section(guard.section()) => output,
        };
        // The loss does not end a section that blocks its thread: the unlock reports the loss.
        match guard.unlock().await {
            Ok(()) => Ok(output),
            Err(cause) => Err(SectionError::NotUnlocked { output, cause }),
        }
    }

    async fn take(self) -> Result<Guard, Error> {
        let Self { locker, key, options, max_hold } = self;
        let duration = options.get_duration();
        check_request(&locker, max_hold, duration).inspect_err(metrics::refused)?;
        // A free key is granted without any wait: a task that only locks and unlocks would never
        // yield.
        tokio::task::consume_budget().await;
        let (mutex, max_wait) = (locker.strategy(), options.get_max_wait());
        let clock = mutex.clock();
        let wait = Stopwatch::start(&*clock);
        let lock = match mutex.lock(&key, options).await {
            Ok(lock) => lock,
            // Boxed: it would make the future of every lock longer.
            Err(error) => {
                let error = Box::pin(name_holder(error, &**mutex, key, max_wait)).await;
                metrics::refused(&error);
                return Err(error);
            }
        };
        let guard = locker.guard(lock, wait.granted(&*clock));
        Ok(match max_hold {
            Some(max_hold) => guard.keep_alive(duration, max_hold),
            None => guard,
        })
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take())
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", &self.key)
            .field("options", &self.options)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}

/// Adds the key, the wait and the holder to an error that names none.
async fn name_holder(
    error: Error,
    mutex: &dyn KeyedMutex,
    key: Arc<str>,
    max_wait: MaxWait,
) -> Error {
    let name: fn(_) -> _ = match error {
        Error::TimedOut(None) => Error::TimedOut,
        Error::Held(None) => Error::Held,
        error => return error,
    };
    let clock = mutex.clock();
    let until = clock.now().after(HOLDER_TIMEOUT);
    let inspected = tokio::select! {
        biased;
        inspected = mutex.inspect(&key) => match inspected {
            // Nothing ends the wait, as where another program wrote the stored value.
            Err(error @ Error::Unavailable { kind: UnavailableKind::Misconfigured, .. }) => {
                return error;
            }
            inspected => inspected.ok().flatten(),
        },
        // Polled only if the reply is not there at once: `Local` needs no runtime.
        () = async { clock.sleep_until(until).await } => None,
    };
    let holder = inspected.map(|inspection| inspection.owner);
    name(Some(Box::new(Contention { key, max_wait, holder })))
}

/// Checks `max_hold` and the runtime before the lock is requested: once it is held,
/// `tokio::spawn` would panic.
fn check_request(
    locker: &Locker,
    max_hold: Option<Duration>,
    duration: Duration,
) -> Result<(), Error> {
    if let Some(max_hold) = max_hold.filter(|max_hold| *max_hold < duration) {
        return Err(Error::InvalidOptions {
            field: "max_hold",
            value: format_duration(max_hold).to_string(),
            limit: format!("at least the duration, {}", format_duration(duration)),
        });
    }
    match locker.thread() {
        Some(thread) => thread.runtime().map(drop),
        None if max_hold.is_none() => Ok(()),
        None => {
            let misconfigured = |error| Error::unavailable(UnavailableKind::Misconfigured, error);
            Handle::try_current().map(drop).map_err(misconfigured)
        }
    }
}
