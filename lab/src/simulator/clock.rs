//! Virtual time, and the clocks that show it at different rates.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use gaggle_strategies::clock::{Clock, Instant};

use super::random::Random;

/// A millisecond of virtual time, in nanoseconds.
pub(super) const MS: u64 = 1_000_000;
/// The reading of every process's clock when virtual time begins.
const LOCAL_ORIGIN: u64 = 1_000_000_000;
/// The reading of the wall clocks at the beginning of virtual time.
const WALL_ORIGIN: u64 = 1_700_000_000_000_000_000;
/// A clock that runs as it should, in parts per million.
pub(super) const TRUE_RATE: u64 = 1_000_000;

/// Virtual time in nanoseconds, and the sleepers that wait for it.
#[derive(Debug, Default)]
pub(super) struct VirtualTime {
    now: AtomicU64,
    sleepers: Mutex<Vec<(u64, Waker)>>,
    /// Whether a task has begun to sleep since the last call.
    any: AtomicBool,
}

impl VirtualTime {
    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Sleepers since the last call, with the times to wake them.
    pub(super) fn take_sleepers(&self) -> Vec<(u64, Waker)> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.sleepers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sleep(&self, until: u64, waker: Waker) {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push((until, waker));
        self.any.store(true, Ordering::Relaxed);
    }
}

/// The clock of one process: it runs at its own rate, and while a turn stalls its readings are
/// those of moments within the turn.
#[derive(Debug)]
pub(super) struct SimClock {
    time: Arc<VirtualTime>,
    /// A virtual time, and this clock's reading at it. Only the simulation's own thread reads and
    /// writes it, so atomics need no order.
    base: (AtomicU64, AtomicU64),
    rate: AtomicU64,
    stalled: AtomicBool,
    stall: Mutex<Option<Stall>>,
}

/// How a clock runs.
#[derive(Clone, Copy, Debug)]
struct Pace {
    base: (u64, u64),
    rate: u64,
}

/// A turn that takes time: it begins, has taken the last frame at `drained`, and ends.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    begun: u64,
    drained: u64,
    ended: u64,
    random: Random,
    /// Whether the clock was read [`EARLY`] before the end, or earlier.
    early: bool,
}

/// So far before a turn's end a reading counts as one of another time.
const EARLY: u64 = 1_000_000;

impl Stall {
    /// A turn with the times of its beginning, of the last frame that it takes, and of its end.
    pub(super) const fn new((begun, drained, ended): (u64, u64, u64), random: Random) -> Self {
        Self { begun, drained, ended, random, early: false }
    }

    /// Readings never fall, and all after the first come after the last frame was taken.
    fn read(&mut self) -> u64 {
        let read = self.random.between(self.begun, self.drained);
        self.early |= read + EARLY <= self.ended;
        self.begun = if self.drained == self.ended { read } else { self.drained };
        self.drained = self.ended;
        read
    }
}

impl Pace {
    fn local(&self, virtual_time: u64) -> u64 {
        let passed = virtual_time.saturating_sub(self.base.0);
        let shown = match passed.checked_mul(self.rate) {
            Some(product) => product / TRUE_RATE,
            None => narrow(u128::from(passed) * u128::from(self.rate) / u128::from(TRUE_RATE)),
        };
        self.base.1 + shown
    }

    /// The first virtual time at which this clock shows `local`; the end of time if it stands.
    fn virtual_time(&self, local: u64) -> u64 {
        let ahead = local.saturating_sub(self.base.1);
        if self.rate == 0 && ahead > 0 {
            return u64::MAX;
        }
        let rate = self.rate.max(1);
        let passed = match ahead.checked_mul(TRUE_RATE) {
            Some(product) => product.div_ceil(rate),
            None => narrow((u128::from(ahead) * u128::from(TRUE_RATE)).div_ceil(u128::from(rate))),
        };
        self.base.0.saturating_add(passed)
    }
}

fn narrow(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl SimClock {
    /// `booted`: how long before virtual time began its machine did, in nanoseconds.
    pub(super) fn new(time: Arc<VirtualTime>, rate: u64, booted: u64) -> Self {
        let shown = LOCAL_ORIGIN + booted + time.now();
        let base = (AtomicU64::new(time.now()), AtomicU64::new(shown));
        let (rate, stalled) = (AtomicU64::new(rate), AtomicBool::new(false));
        Self { time, base, rate, stalled, stall: Mutex::new(None) }
    }

    /// From now on the clock runs at this rate. Returns how much time has passed since it was set
    /// last, and how much this clock says has.
    pub(super) fn set_rate(&self, rate: u64) -> (u64, u64) {
        let now = self.time.now();
        let pace = self.pace();
        let shown = pace.local(now);
        self.base.0.store(now, Ordering::Relaxed);
        self.base.1.store(shown, Ordering::Relaxed);
        self.rate.store(rate, Ordering::Relaxed);
        (now - pace.base.0, shown - pace.base.1)
    }

    pub(super) fn begin_turn(&self, stall: Stall) {
        self.set_stall(Some(stall));
    }

    /// The turn is over. Whether the time that it read was ever well before its end.
    pub(super) fn end_turn(&self) -> bool {
        let stalled = self.stalled.load(Ordering::Relaxed);
        stalled && self.set_stall(None).is_some_and(|stall| stall.early)
    }

    /// Returns the one before.
    fn set_stall(&self, stall: Option<Stall>) -> Option<Stall> {
        self.stalled.store(stall.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *self.stall.lock().unwrap_or_else(PoisonError::into_inner), stall)
    }

    pub(super) fn virtual_time(&self, at: Instant) -> u64 {
        let local = u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX);
        self.pace().virtual_time(local)
    }

    fn pace(&self) -> Pace {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Pace { base: (load(&self.base.0), load(&self.base.1)), rate: load(&self.rate) }
    }

    /// The virtual time that this clock shows: within a turn that takes time, a moment of it.
    fn moment(&self) -> u64 {
        if !self.stalled.load(Ordering::Relaxed) {
            return self.time.now();
        }
        let mut stall = self.stall.lock().unwrap_or_else(PoisonError::into_inner);
        stall.as_mut().map_or_else(|| self.time.now(), Stall::read)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        Instant::from_origin(Duration::from_nanos(self.pace().local(self.moment())))
    }

    fn wall_nanos(&self) -> u64 {
        WALL_ORIGIN + self.time.now()
    }

    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(Sleep { clock: self, at, wakes: None })
    }
}

struct Sleep<'a> {
    clock: &'a SimClock,
    at: Instant,
    /// The virtual time at which a waking is due.
    wakes: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        let wakes = self.clock.virtual_time(self.at);
        if self.wakes != Some(wakes) {
            self.wakes = Some(wakes);
            self.clock.time.sleep(wakes, context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_of_a_reading_is_exact() {
        let time = Arc::new(VirtualTime::default());
        let clock = SimClock::new(time.clone(), 995_100, 86_400_000_000_000);
        let at = clock.now().after(Duration::from_millis(777));
        let virtual_time = clock.virtual_time(at);
        time.set(virtual_time - 1);
        assert!(clock.now() < at);
        time.set(virtual_time);
        assert!(clock.now() >= at);
    }

    #[test]
    fn readings_of_a_stall_never_fall() {
        let time = Arc::new(VirtualTime::default());
        let clock = SimClock::new(time.clone(), TRUE_RATE, 0);
        time.set(50);
        for seed in 0..100 {
            clock.begin_turn(Stall::new((10, 20, 50), Random::new(seed, 0)));
            let read = [clock.now(), clock.now(), clock.now()];
            let nanos = read.map(|at| at.since_origin().as_nanos() - u128::from(LOCAL_ORIGIN));
            assert!((10..=20).contains(&nanos[0]), "{nanos:?}");
            assert!(20 <= nanos[1] && nanos[1] <= nanos[2] && nanos[2] <= 50, "{nanos:?}");
        }
    }
    #[test]
    fn turn_reports_a_reading_long_before_its_end() {
        let time = Arc::new(VirtualTime::default());
        let clock = SimClock::new(time, TRUE_RATE, 0);
        for (ended, early) in [(3 * EARLY, true), (EARLY / 2, false)] {
            clock.begin_turn(Stall::new((0, EARLY / 4, ended), Random::new(1, 0)));
            clock.now();
            assert_eq!(clock.end_turn(), early, "it ended at {ended}");
        }
        clock.begin_turn(Stall::new((0, 0, 3 * EARLY), Random::new(1, 0)));
        assert!(!clock.end_turn(), "no reading");
    }

    #[test]
    fn new_rate_reports_the_time_shown_at_the_former() {
        let time = Arc::new(VirtualTime::default());
        let clock = SimClock::new(time.clone(), TRUE_RATE, 0);
        time.set(1_000_000);
        assert_eq!(clock.set_rate(995_100), (1_000_000, 1_000_000));
        time.set(3_000_000);
        assert_eq!(clock.set_rate(0), (2_000_000, 1_990_200));
        time.set(4_000_000);
        assert_eq!(clock.set_rate(TRUE_RATE), (1_000_000, 0));
    }
}
