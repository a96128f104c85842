//! Local time: readings of monotonic clocks, and sleeping until a reading.

use std::{
    fmt,
    future::Future,
    panic::catch_unwind,
    pin::Pin,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{runtime::Handle, sync::oneshot};

/// How often a sleep reads the clock. Timers of the runtime do not count suspension: after a
/// resume, a deadline that has passed is noticed within this time.
const RECHECK: Duration = Duration::from_secs(1);
/// How long a wait blocks its thread where no thread can be started.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

const NANOS_PER_MS: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A reading of a [`Clock`]: whole nanoseconds since that clock's beginning. Readings of different
/// clocks do not compare. Times end some 584 years after the beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The reading this long after the clock's beginning, at most the end of time.
    #[must_use]
    pub const fn from_origin(since: Duration) -> Self {
        Self(nanos(since))
    }

    /// The time since the clock's beginning.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The time since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This reading plus `by`, at most the end of time.
    #[must_use]
    pub const fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// This reading less `by`, at least the beginning.
    #[must_use]
    pub const fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// Whole milliseconds since the clock's beginning; a fraction is cut off.
    pub(crate) const fn whole_ms(self) -> u64 {
        self.0 / NANOS_PER_MS
    }

    /// The first whole millisecond that is not before it.
    pub(crate) const fn whole_ms_up(self) -> u64 {
        self.0.div_ceil(NANOS_PER_MS)
    }
}

/// The nanoseconds of a span, at most some 584 years.
const fn nanos(span: Duration) -> u64 {
    match span.as_secs().checked_mul(NANOS_PER_SECOND) {
        Some(whole) => whole.saturating_add(span.subsec_nanos() as u64),
        None => u64::MAX,
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:?}", self.since_origin())
    }
}

/// The only source of local time for a strategy, so that tests can replace it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Monotonic time. It counts suspension if the system can.
    fn now(&self) -> Instant;

    /// Nanoseconds since 1970 on the wall clock. It decides only where fencing tokens start in an
    /// empty memory.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall_nanos(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Completes once [`now`](Self::now) has reached `at`.
    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let left = at.since(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(RECHECK)).await;
            }
        })
    }
}

/// The production clock, which counts suspension: `CLOCK_BOOTTIME`, or the monotonic clock where
/// that counts suspension itself (macOS, Windows).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Instant {
        Instant::from_origin(monotonic())
    }

    /// Sleeps by the timers of the tokio runtime. Without timers, with tokio's time paused, or in
    /// another executor it sleeps on a separate thread, for a second at a time.
    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let mut has_timers = true;
            loop {
                let begun = self.now();
                let span = at.since(begun).min(RECHECK);
                if span.is_zero() {
                    return;
                }
                let timer = if has_timers { timer(span) } else { None };
                match timer {
                    Some(timer) => timer.await,
                    None => has_timers = false,
                }
                // A timer of paused time ends at once.
                let left = span.saturating_sub(self.now().since(begun));
                if !left.is_zero() {
                    sleep_on_thread(left).await;
                }
            }
        })
    }
}

/// A timer of the current runtime, if it has timers.
fn timer(span: Duration) -> Option<tokio::time::Sleep> {
    Handle::try_current().ok()?;
    // tokio panics in a runtime without timers, and has no query for them.
    catch_unwind(|| tokio::time::sleep(span)).ok()
}

async fn sleep_on_thread(span: Duration) {
    let (sender, ended) = oneshot::channel();
    let sleep = move || {
        thread::sleep(span);
        // The future may have been dropped.
        let _ = sender.send(());
    };
    if thread::Builder::new().name("gaggle-timer".into()).spawn(sleep).is_err() {
        // The system cannot start another thread. This thread must not spin.
        thread::sleep(SHORTEST_SLEEP);
    }
    // An error is a thread that did not start.
    let _ = ended.await;
}

#[cfg(unix)]
fn monotonic() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    Duration::try_from(rustix::time::clock_gettime(id)).unwrap_or_default()
}

/// The time since the first reading of this process: the standard library has no earlier origin.
#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "there is no other monotonic clock")]
fn monotonic() -> Duration {
    static FIRST: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    FIRST.elapsed()
}

/// The runtime's own clock, which `tokio::time::pause` stops, the wall clock included: for tests in
/// virtual time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    /// The wall clock at the origin.
    wall_nanos: u64,
}

impl TokioClock {
    /// A clock that begins now. Call it within the runtime whose time it follows.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now(), wall_nanos: BootClock.wall_nanos() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    fn wall_nanos(&self) -> u64 {
        self.wall_nanos.saturating_add(nanos(self.origin.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const fn at(nanos: u64) -> Instant {
        Instant::from_origin(Duration::from_nanos(nanos))
    }

    #[test]
    fn times_and_spans_saturate() {
        let end = Instant::from_origin(Duration::MAX);
        assert_eq!(end.since_origin(), Duration::from_nanos(u64::MAX));
        assert_eq!(Instant::from_origin(Duration::from_secs(u64::MAX / NANOS_PER_SECOND + 1)), end);
        assert_eq!((at(5).after(Duration::MAX), end.after(Duration::from_nanos(1))), (end, end));
        assert_eq!(
            (at(5).before(Duration::MAX), at(5).before(Duration::from_nanos(2))),
            (at(0), at(3))
        );
        assert_eq!(
            (at(3).since(at(5)), at(5).since(at(3))),
            (Duration::ZERO, Duration::from_nanos(2))
        );
        let long = Duration::new(3, 7);
        assert_eq!(Instant::from_origin(long).since_origin(), long);
    }

    #[test]
    fn milliseconds_are_rounded_down_or_up() {
        for (nanos, whole, up) in
            [(0, 0, 0), (1, 0, 1), (999_999, 0, 1), (1_000_000, 1, 1), (1_000_001, 1, 2)]
        {
            assert_eq!((at(nanos).whole_ms(), at(nanos).whole_ms_up()), (whole, up), "{nanos} ns");
        }
    }

    #[tokio::test]
    async fn sleep_never_ends_early() {
        let clock = BootClock;
        let begun = clock.now();
        assert!(clock.sleep_until(begun).now_or_never().is_some(), "its time has come");
        let soon = begun.after(Duration::from_millis(30));
        assert!(clock.sleep_until(soon).now_or_never().is_none());
        clock.sleep_until(soon).await;
        assert!(clock.now() >= soon);
    }

    /// A long sleep reads the clock several times.
    #[tokio::test(start_paused = true)]
    async fn long_sleep_ends_at_its_time() {
        let clock = TokioClock::new();
        let begun = clock.now();
        for _ in 0..2 {
            let at = clock.now().after(Duration::from_millis(3500));
            clock.sleep_until(at).await;
            assert_eq!(clock.now(), at);
        }
        assert_eq!(clock.now().since(begun), Duration::from_secs(7));
    }

    /// A token made only from a stopped wall clock would be granted twice.
    #[tokio::test(start_paused = true)]
    async fn wall_clock_stops_in_virtual_time() {
        let clock = TokioClock::new();
        let wall = clock.wall_nanos();
        assert_eq!(clock.wall_nanos(), wall);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.wall_nanos(), wall + 7 * NANOS_PER_SECOND);
    }
}
