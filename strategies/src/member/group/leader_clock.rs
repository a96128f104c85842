//! The cluster time of a leader, and when its next stamp is due.

use std::time::Duration;

use crate::{
    clock::Instant,
    deadline::whole_ms,
    lock_table::{ClusterTime, LockTable, TIME_MAX},
};

/// While leases live, a leader commits a stamp at least this often. A change of leader then
/// lengthens a lease by at most this plus the leaderless time.
pub(super) const STAMP_EVERY: Duration = Duration::from_millis(500);

/// How long a nonce that may be forgotten can wait for a stamp.
pub(super) const FORGET_WITHIN: Duration = Duration::from_secs(10);

/// While nonces are overdue to be forgotten, a leader commits a stamp this often: a step forgets a
/// limited number, so that none stops a member for long.
const FORGET_EVERY: Duration = Duration::from_millis(10);

/// A leader's cluster time. It continues at the rate of the local clock from the greatest stamp in
/// the leader's log, with its uncommitted tail and snapshot (contract, rule 3). It stops where a
/// table's does, at [`TIME_MAX`], which only a forged stamp reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderClock {
    base: ClusterTime,
    at: Instant,
    /// The latest stamp that this leader put into the log.
    last: Option<ClusterTime>,
}

impl LeaderClock {
    pub(super) fn new(greatest_stamp: ClusterTime, now: Instant) -> Self {
        Self { base: greatest_stamp.min(TIME_MAX), at: now, last: None }
    }

    pub(super) fn read(&self, now: Instant) -> ClusterTime {
        let time = self.base.after(whole_ms(now.since(self.at))).min(TIME_MAX);
        time.max(self.last.unwrap_or_default())
    }

    /// Notes a stamp that went into the log.
    pub(super) fn stamped(&mut self, stamp: ClusterTime) {
        self.last = Some(stamp);
    }

    /// Whether a stamp must go into the log without a command.
    pub(super) fn stamp_is_due(&self, stamp: ClusterTime, table: &LockTable) -> bool {
        self.due(table).is_some_and(|due| stamp >= due)
    }

    /// The local time at which the next stamp is due.
    pub(super) fn next_stamp(&self, table: &LockTable) -> Option<Instant> {
        let due = self.due(table)?;
        Some(self.at.after(Duration::from_millis(due.since(self.base))))
    }

    fn due(&self, table: &LockTable) -> Option<ClusterTime> {
        // A leader's first entry is a NOOP, which commits the entries of earlier terms.
        let Some(last) = self.last else { return Some(self.base) };
        let next = |every| last.after(whole_ms(every));
        // A lease that ends by the latest stamp ends when that entry is applied.
        let expiry = table.next_due().filter(|due| *due > last);
        let stamp = table.has_leases().then(|| next(STAMP_EVERY));
        let forget = table.next_forget().map(|at| {
            let backlog = at <= last;
            if backlog { next(FORGET_EVERY) } else { at.max(next(FORGET_WITHIN)) }
        });
        let due = [expiry, stamp, forget].into_iter().flatten().min();
        due.filter(|due| *due <= TIME_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        lock::Nonce,
        lock_table::{Command, LockRequest, ProcessId, Seen, TableConfig, Wait},
    };

    /// The leader's own time at which its cluster time is 0.
    const BEGAN: u64 = 7_000;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(BEGAN + ms))
    }

    /// A table to which this was applied, and the clock of a leader that has stamped it.
    fn stamped(commands: &[(u64, Command)]) -> (LockTable, LeaderClock) {
        let mut table = LockTable::new(TableConfig::default());
        let mut clock = LeaderClock::new(ClusterTime(0), at(0));
        for (stamp, command) in commands {
            table.apply(ClusterTime(*stamp), command, &mut Vec::new());
            clock.stamped(ClusterTime(*stamp));
        }
        (table, clock)
    }

    fn lock(nonce: u128, duration_ms: u64, wait: Wait) -> Command {
        Command::Lock(LockRequest {
            key: "k".into(),
            nonce: Nonce::from_u128(nonce),
            process: ProcessId(1),
            duration_ms,
            wait,
            seen: Seen::Now,
            owner: Arc::default(),
        })
    }

    fn unlock(nonce: u128) -> Command {
        Command::Unlock { key: "k".into(), nonce: Nonce::from_u128(nonce), forget: false }
    }

    /// When the next stamp is due; checks that it is due then and not before.
    fn due((table, clock): &(LockTable, LeaderClock)) -> Option<u64> {
        let next = clock.next_stamp(table)?.since(at(0)).as_millis();
        let next = u64::try_from(next).unwrap();
        assert!(clock.stamp_is_due(clock.read(at(next)), table));
        let before = clock.read(at(next.saturating_sub(1)));
        assert!(next == 0 || before < ClusterTime(next) && !clock.stamp_is_due(before, table));
        Some(next)
    }

    #[test]
    fn leader_stamps_once_while_no_lease_lives() {
        assert_eq!(due(&stamped(&[])), Some(0), "it commits what earlier terms left");
        assert_eq!(due(&stamped(&[(5, Command::Noop)])), None);
    }

    #[test]
    fn live_lease_is_stamped_every_half_second() {
        assert_eq!(due(&stamped(&[(5, lock(1, 60_000, Wait::No))])), Some(505));
    }

    #[test]
    fn lease_ends_on_time() {
        let queue = [(5, lock(1, 300, Wait::No)), (6, lock(2, 300, Wait::Forever))];
        assert_eq!(due(&stamped(&queue)), Some(305));
        assert_eq!(due(&stamped(&queue[..1])), Some(305), "no waiter");
    }

    /// The lease ends when the entry with that stamp is applied.
    #[test]
    fn lease_ended_by_a_stamp_needs_no_other() {
        let queue = [(5, lock(1, 300, Wait::No)), (6, lock(2, 300, Wait::Forever))];
        for latest in [305, 306] {
            let (table, mut clock) = stamped(&queue);
            clock.stamped(ClusterTime(latest));
            assert_eq!(due(&(table, clock)), Some(latest + 500));
        }
    }

    #[test]
    fn nonces_are_forgotten_every_10_ms() {
        let ended = [(5, lock(1, 300, Wait::No)), (6, unlock(1))];
        let (table, mut clock) = stamped(&ended);
        let forget = table.next_forget().unwrap().0;
        assert!((30_000..=30_100).contains(&forget), "after their memory: {forget}");
        assert_eq!(due(&(table.clone(), clock)), Some(forget));
        for latest in [forget, forget + 1] {
            clock.stamped(ClusterTime(latest));
            assert_eq!(due(&(table.clone(), clock)), Some(latest + 10), "it is overdue");
        }
        clock.stamped(ClusterTime(forget - 1));
        assert_eq!(due(&(table, clock)), Some(forget + 9_999), "10 s apart");
    }

    #[test]
    fn reading_continues_from_the_greatest_stamp() {
        let mut clock = LeaderClock::new(ClusterTime(900), at(0));
        assert_eq!(clock.read(at(0)), ClusterTime(900));
        assert_eq!(clock.read(at(50)), ClusterTime(950));
        clock.stamped(ClusterTime(950));
        assert_eq!(clock.read(at(20)), ClusterTime(950));
    }

    /// Otherwise it would stamp indefinitely, in one turn.
    #[test]
    fn leader_stamps_once_at_the_end_of_time() {
        let mut table = LockTable::new(TableConfig::default());
        for (n, greatest) in [TIME_MAX, ClusterTime(u64::MAX)].into_iter().enumerate() {
            let mut clock = LeaderClock::new(greatest, at(0));
            assert!(clock.stamp_is_due(clock.read(at(0)), &table));
            table.apply(clock.read(at(0)), &lock(n as u128, 300, Wait::No), &mut Vec::new());
            clock.stamped(clock.read(at(0)));
            assert!(table.has_leases());
            assert_eq!(clock.read(at(1_000)), TIME_MAX, "where the table's stands");
            assert!(!clock.stamp_is_due(clock.read(at(1_000)), &table));
            assert_eq!(clock.next_stamp(&table), None, "nor does it wake for one");
        }
    }
}
