//! A client: one acquisition, timed by its own clock with the library's own arithmetic.

use std::time::Duration;

use gaggle_strategies::{
    Drift,
    clock::Instant,
    implement::{extended_deadline, granted_deadline},
    lock_table::ClusterTime,
};

use super::{LEASE_TICKS, TICK_MS, past::Cmd};

/// A client's clock is as slow against cluster time as the default drift allows: 1 %.
const CLIENT_TICK_MS: u64 = 990;
const LEASE: Duration = Duration::from_millis(LEASE_TICKS * TICK_MS);

/// The present state of a client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Nothing is sent yet.
    #[default]
    Idle,
    /// The LOCK is sent, and pending as far as the client knows.
    Asking,
    /// The client received a grant, and believes in it until its deadline.
    Holding,
    /// The client gave up or was done: its UNLOCK is sent.
    Ended,
    /// The client died; its requests are still in flight.
    Dead,
}

/// How far one request of a client has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    #[default]
    No,
    /// In flight.
    Sent,
    /// In the log.
    Arrived,
    Completed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The tick at which it sent, of the LOCK while it asks, of the EXTEND while it holds.
    sent: u8,
    /// The latest cluster time, in ticks, that it knew when it sent its LOCK.
    pub(crate) seen: u8,
    /// How often its LOCK is in the log.
    pub(crate) locks: u8,
    /// Whether its UNLOCK is.
    pub(crate) unlocked: bool,
    pub(crate) extend: Request,
    /// In milliseconds of its own clock, while it holds.
    deadline: u32,
}

/// A reply to a LOCK: a grant, in cluster time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) client: u8,
    pub(crate) token: u8,
    pub(crate) asked_at: ClusterTime,
    pub(crate) granted_at: ClusterTime,
}

/// The reading of a client's own clock at a tick of real time.
fn local(tick: u8) -> Instant {
    Instant::from_origin(Duration::from_millis(u64::from(tick) * CLIENT_TICK_MS))
}

fn millis(instant: Instant) -> u32 {
    // Rounded up: never less belief than the library's own deadline gives.
    u32::try_from(instant.since_origin().as_nanos().div_ceil(1_000_000)).unwrap()
}

impl Client {
    /// Whether it acts as the holder.
    pub(crate) fn believes(&self, tick: u8) -> bool {
        self.phase == Phase::Holding && millis(local(tick)) < self.deadline
    }

    /// A command of it is in the log.
    pub(crate) fn committed(&mut self, cmd: Cmd) {
        match cmd {
            Cmd::Lock { .. } => self.locks += 1,
            Cmd::Unlock(_) => self.unlocked = true,
            Cmd::Extend(_) => self.extend = Request::Arrived,
            Cmd::Noop | Cmd::DropWaiters(_) => {}
        }
    }

    /// Sends its LOCK.
    pub(crate) fn lock(&mut self, tick: u8, seen: u8) {
        *self = Self { phase: Phase::Asking, sent: tick, seen, ..*self };
    }

    /// Receives a grant. Returns false if the grant has run out by its own clock: then nothing
    /// happens.
    pub(crate) fn receive(&mut self, granted: &Granted, tick: u8) -> bool {
        let now = local(tick);
        let waited = Duration::from_millis(granted.granted_at.since(granted.asked_at));
        let deadline = granted_deadline(local(self.sent), now, waited, LEASE, Drift::default());
        self.phase = Phase::Holding;
        self.sent = 0;
        self.deadline = millis(deadline);
        self.believes(tick)
    }

    /// Sends its EXTEND.
    pub(crate) fn extend(&mut self, tick: u8) {
        self.extend = Request::Sent;
        self.sent = tick;
    }

    /// Receives the reply that the lease was extended.
    pub(crate) fn receive_extended(&mut self) {
        let present = Instant::from_origin(Duration::from_millis(self.deadline.into()));
        let deadline = extended_deadline(Some(present), local(self.sent), LEASE, Drift::default());
        self.deadline = millis(deadline);
        self.extend = Request::Completed;
        self.sent = 0;
    }

    /// Unlocks, withdraws or dies: from here on it believes nothing.
    pub(crate) fn stop(&mut self, phase: Phase) {
        self.phase = phase;
        self.sent = 0;
        self.deadline = 0;
    }
}
