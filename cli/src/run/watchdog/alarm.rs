//! Waiting for orders or for a time, whichever comes first.

use std::{io, os::fd::AsFd};

use gaggle::Instant;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

#[cfg(target_os = "linux")]
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// A timer on the clock of deadlines, which counts suspension: a deadline that has passed is
/// noticed as soon as the machine resumes.
#[cfg(target_os = "linux")]
pub(super) struct Alarm(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
    }

    /// Whether `input` can be read or has ended. Returns at `at` at the latest.
    pub(super) fn wait(&mut self, input: impl AsFd, at: Option<Instant>) -> io::Result<bool> {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would switch the timer off.
        let at = at.map_or(none, |at| timespec(at.max(Instant::default().after(TICK))));
        let timer = Itimerspec { it_interval: none, it_value: at };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &timer)?;
        readable(&input, Some(&self.0), None)
    }
}

#[cfg(target_os = "linux")]
const TICK: std::time::Duration = std::time::Duration::from_nanos(1);

/// The time-out of a poll, on systems without such a timer.
#[cfg(not(target_os = "linux"))]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Whether `input` can be read or has ended. Returns at `at` at the latest.
    pub(super) fn wait(&mut self, input: impl AsFd, at: Option<Instant>) -> io::Result<bool> {
        use gaggle::Clock as _;
        let now = gaggle::BootClock.now();
        let left = at.map(|at| timespec(Instant::from_origin(at.since(now))));
        readable(&input, None::<&io::Stdin>, left)
    }
}

fn timespec(at: Instant) -> Timespec {
    let since = at.since_origin();
    Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: since.subsec_nanos().into(),
    }
}

fn readable(
    input: &impl AsFd,
    timer: Option<&impl AsFd>,
    left: Option<Timespec>,
) -> io::Result<bool> {
    let mut polled = vec![PollFd::new(input, PollFlags::IN)];
    polled.extend(timer.map(|timer| PollFd::new(timer, PollFlags::IN)));
    match poll(&mut polled, left.as_ref()) {
        Ok(_) => Ok(!polled[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
