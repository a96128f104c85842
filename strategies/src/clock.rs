use std::{
    fmt,
    future::Future,
    pin::Pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long a sleep goes without looking at the clock again. Timers of the runtime do not count
/// suspension; after a resume a deadline that passed meanwhile is noticed within this time.
const RECHECK: Duration = Duration::from_secs(1);

/// A reading of a [`Clock`]: the time since that clock's own beginning. Readings of different
/// clocks do not compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The reading this long after the clock's beginning.
    #[must_use]
    pub const fn from_origin(since: Duration) -> Self {
        Self(since)
    }

    /// The time since the clock's beginning.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The time since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This reading plus `by`, at most the end of time.
    #[must_use]
    pub const fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// This reading less `by`, at least the beginning.
    #[must_use]
    pub const fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:?}", self.0)
    }
}

/// Where a strategy reads local time: the one place, so that tests can stand in for it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Monotonic time; it counts suspension where the system can tell.
    fn now(&self) -> Instant;

    /// Nanoseconds since 1970 on the wall clock. It decides nothing but where fencing tokens
    /// start when a memory begins empty.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall_nanos(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Completes once [`now`](Self::now) has reached `at`; looks again on every waking.
    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let remaining = at.since(self.now());
                if remaining.is_zero() {
                    return;
                }
                tokio::time::sleep(remaining.min(RECHECK)).await;
            }
        })
    }
}

/// The production clock: `CLOCK_BOOTTIME`, which counts suspension.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Instant {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        // Elsewhere (macOS) the monotonic clock itself counts suspension.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let read = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(read.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(read.tv_nsec).unwrap_or(0);
        Instant(Duration::new(seconds, nanos))
    }
}

/// The runtime's own clock, which `tokio::time::pause` stops: for tests in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that begins now. Call it within the runtime whose time it follows.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant(self.origin.elapsed())
    }
}
