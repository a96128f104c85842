//! A client: one acquisition, judged by its own clock with the library's own arithmetic.

use std::time::Duration;

use gaggle_strategies::{
    Drift, Instant,
    implement::{extended_deadline, granted_deadline},
    lock_table::ClusterTime,
};

use super::bounds::{Bounds, CLIENT_TICK_MS, Fault, LEASE_TICKS, TICK_MS};

/// What a client does at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// It has sent nothing yet.
    #[default]
    Idle,
    /// Its LOCK is sent, and unanswered as far as it knows.
    Asking,
    /// It received a grant. It believes in it until its deadline.
    Holding,
    /// It gave up or was done: its UNLOCK is sent.
    Ended,
    /// It died; its requests are still in flight.
    Dead,
}

/// How far one request of a client has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    #[default]
    No,
    /// In flight.
    Sent,
    /// In a log, or at the resource.
    Arrived,
    Answered,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The tick at which it sent, of the LOCK while it asks, of the EXTEND while it holds.
    pub(crate) sent: u8,
    /// The newest cluster time, in ticks, that it knew when it sent its LOCK.
    pub(crate) seen: u8,
    /// How often its LOCK was appended, in whichever log.
    pub(crate) locks: u8,
    /// How often its UNLOCK was.
    pub(crate) unlocks: u8,
    pub(crate) extend: Request,
    pub(crate) write: Request,
    /// Of its grant, or of its write in flight.
    pub(crate) token: u8,
    /// In milliseconds of its own clock, while it holds.
    pub(crate) deadline: u32,
}

/// A reply to a LOCK: a grant, in ticks of cluster time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) client: u8,
    pub(crate) token: u8,
    pub(crate) asked_at: ClusterTime,
    pub(crate) granted_at: ClusterTime,
}

/// What a client's own clock shows at a tick of real time.
fn local(tick: u8) -> Instant {
    Instant::from_origin(Duration::from_millis(u64::from(tick) * CLIENT_TICK_MS))
}

fn millis(instant: Instant) -> u32 {
    // Rounded up: never less belief than the library's own deadline gives.
    u32::try_from(instant.since_origin().as_nanos().div_ceil(1_000_000)).unwrap()
}

fn drift(bounds: &Bounds) -> Drift {
    let trusts = bounds.has(Fault::DriftIgnored);
    if trusts { Drift::from_ppm(0).unwrap() } else { Drift::default() }
}

const LEASE: Duration = Duration::from_millis(LEASE_TICKS * TICK_MS);

impl Client {
    /// Whether it acts as the holder.
    pub(crate) fn believes(&self, tick: u8) -> bool {
        self.phase == Phase::Holding && millis(local(tick)) < self.deadline
    }

    /// Sends its LOCK.
    pub(crate) fn ask(&mut self, tick: u8, seen: u8) {
        *self = Self { phase: Phase::Asking, sent: tick, seen, ..*self };
    }

    /// Receives a grant. Returns false if the grant has run out by its own clock: then nothing
    /// happens.
    pub(crate) fn receive(&mut self, granted: &Granted, tick: u8, bounds: &Bounds) -> bool {
        let now = local(tick);
        let waited = Duration::from_millis(granted.granted_at.since(granted.asked_at));
        let deadline = if bounds.has(Fault::DeadlineFromReply) {
            now.after(LEASE).before(drift(bounds).over(LEASE))
        } else {
            granted_deadline(local(self.sent), now, waited, LEASE, drift(bounds))
        };
        self.phase = Phase::Holding;
        self.sent = 0;
        self.token = granted.token;
        self.deadline = millis(deadline);
        self.believes(tick)
    }

    /// Sends its EXTEND.
    pub(crate) fn ask_longer(&mut self, tick: u8) {
        self.extend = Request::Sent;
        self.sent = tick;
    }

    /// Receives the answer that the lease was extended.
    pub(crate) fn receive_longer(&mut self, bounds: &Bounds) {
        let present = Instant::from_origin(Duration::from_millis(self.deadline.into()));
        let deadline = extended_deadline(Some(present), local(self.sent), LEASE, drift(bounds));
        self.deadline = millis(deadline);
        self.extend = Request::Answered;
        self.sent = 0;
    }

    /// Unlocks, or withdraws: from here on it believes nothing.
    pub(crate) fn give_up(&mut self) {
        self.stop(Phase::Ended);
    }

    /// Dies; a write in flight still takes effect.
    pub(crate) fn die(&mut self) {
        self.stop(Phase::Dead);
    }

    fn stop(&mut self, phase: Phase) {
        self.phase = phase;
        self.sent = 0;
        self.deadline = 0;
        if self.write != Request::Sent {
            self.token = 0;
        }
    }
}
