use std::time::Duration;

use crate::{
    Instant,
    lock_table::{ClusterTime, LockTable},
};

/// While leases live, a leader commits a stamp at least this often, so that a change of leader
/// lengthens a lease by at most this plus the leaderless time.
pub(super) const STAMP_EVERY: Duration = Duration::from_millis(500);

/// Leases that nobody waits for, and nonces that may be forgotten, are swept at least this often.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// While nonces are overdue to be forgotten, a stamp goes out this often: one step forgets a
/// limited number, so that none stops a member for long.
const FORGET_EVERY: Duration = Duration::from_millis(10);

/// A leader's cluster time: it continues from the greatest stamp in the leader's log, uncommitted
/// tail and snapshot included, at the rate of the local clock (contract, rule 3).
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderClock {
    base: ClusterTime,
    at: Instant,
    /// The newest stamp that this leader put into the log.
    last: Option<ClusterTime>,
}

impl LeaderClock {
    pub(super) fn new(greatest_stamp: ClusterTime, now: Instant) -> Self {
        Self { base: greatest_stamp, at: now, last: None }
    }

    pub(super) fn read(&self, now: Instant) -> ClusterTime {
        self.base.after(millis(now.since(self.at))).max(self.last.unwrap_or_default())
    }

    /// Notes a stamp that went into the log.
    pub(super) fn stamped(&mut self, stamp: ClusterTime) {
        self.last = Some(stamp);
    }

    /// Whether a stamp must go into the log although no command does.
    pub(super) fn stamp_is_due(&self, stamp: ClusterTime, table: &LockTable) -> bool {
        self.due(table).is_some_and(|due| stamp >= due)
    }

    /// The local time at which that will be so.
    pub(super) fn next_stamp(&self, table: &LockTable) -> Option<Instant> {
        let due = self.due(table)?;
        Some(self.at.after(Duration::from_millis(due.since(self.base))))
    }

    fn due(&self, table: &LockTable) -> Option<ClusterTime> {
        // A leader's first entry is a NOOP of its own: it commits what earlier terms left.
        let Some(last) = self.last else { return Some(self.base) };
        let next = |every| last.after(millis(every));
        // What is due up to the newest stamp ends when that entry is applied.
        let contended = table.next_due().filter(|due| *due > last);
        let stamp = table.has_leases().then(|| next(STAMP_EVERY));
        let sweep = table.next_sweep().map(|_| next(SWEEP_EVERY));
        let forget = table.next_forget().map(|at| {
            let backlog = at <= last;
            if backlog { next(FORGET_EVERY) } else { at.max(next(SWEEP_EVERY)) }
        });
        [contended, stamp, sweep, forget].into_iter().flatten().min()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
