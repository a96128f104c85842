//! Faults and rare events that a batch must reach.

/// The faults that a batch must have injected, each at least once: a fault that does not fire looks
/// like a pass. They are counted where their effect is seen; partitions and slow nodes, which are
/// counted where they begin, also by the frames that they cut off and slow.
pub(super) const FAULTS: [&str; 25] = [
    "frame lost",
    "frame repeated",
    "frame held up",
    "frame overtaken",
    "one-way partition",
    "two-way partition",
    "swizzled partition",
    "frame cut off one way",
    "frame cut off both ways",
    "slow node",
    "frame slowed",
    "pause",
    "pause beyond a lease",
    "crash",
    "crash of all",
    "restart",
    "leave",
    "transfer of leadership",
    "clock rate changed",
    "table restored from its snapshot",
    "client died",
    "call cancelled",
    "waiter cancelled",
    "turn stalled",
    "connection down",
];

/// The same for clients of one Redis.
pub(super) const SERVER_FAULTS: [&str; 27] = [
    "segment lost",
    "segment cut off",
    "frame held up",
    "one-way partition",
    "two-way partition",
    "swizzled partition",
    "slow node",
    "frame slowed",
    "pause",
    "pause beyond a lease",
    "crash",
    "restart",
    "leave",
    "clock rate changed",
    "client died",
    "call cancelled",
    "turn stalled",
    "connection cut",
    "publication lost",
    "publication late",
    "scripts flushed",
    "server stood still",
    "server restarted",
    "server lost its memory",
    "failover to a replica",
    "server was flushed",
    "too few replicas",
];

/// Rare events of a batch with one Redis.
pub(super) const SERVER_SOMETIMES: [&str; 21] = [
    "server's memory full",
    "script refused for want of memory",
    "script unknown to the server",
    "waiter expired at the head",
    "repeated nonce after its unlock",
    "repeated nonce while it holds",
    "repeated nonce while it waits",
    "withdrawal before its LOCK",
    "stale LOCK refused",
    "lease expired with a waiter",
    "lease expired with none",
    "lease extended",
    "extend of a lost lock refused",
    "limit reached",
    "lock lost before its deadline",
    "lock force-unlocked",
    "force-unlock noticed",
    "reply looked at late",
    "claim came to another process",
    "repeated nonce of another call while it waits",
    "several requests in one script",
];

/// A fault that only clocks beyond the bound have; the batch must have injected it as well.
pub const STANDSTILL: &str = "clock stood still";

/// Rare events that a batch must have reached, each at least once.
pub(super) const SOMETIMES: [&str; 33] = [
    "grant across a change of leader",
    "waiter expired at the head",
    "waiter dropped with its process",
    "repeated nonce after its unlock",
    "repeated nonce while it holds",
    "repeated nonce while it waits",
    "withdrawal before its LOCK",
    "LOCK after its withdrawal",
    "stale LOCK refused",
    "lease expired with a waiter",
    "lease expired with none",
    "lease extended",
    "extend of a lost lock refused",
    "snapshot installed",
    "snapshot with a queue installed",
    "snapshot installed on a returning member",
    "log compacted",
    "leader changed while leases live",
    "member replaced",
    "group formed again",
    "uncommitted entry overwritten",
    "entry of several commands",
    "limit reached",
    "lock lost before its deadline",
    "lock released after its caller had ended",
    "table compared whole",
    "transferred lock adopted",
    "transferred lock ended",
    "lock force-unlocked",
    "reply looked at late",
    "claim came to another process",
    "repeated nonce of another process while it holds",
    "repeated nonce of another process while it waits",
];

/// Events that a large batch must have reached as well: one plan in eight has locks held outside
/// the members.
pub(super) const OUTSIDE: [&str; 2] = ["lock outlived its process", "lock outlived its group"];

/// How often each named thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// In the order of the names.
    counts: Vec<(&'static str, u64)>,
}

impl Coverage {
    /// Counts one.
    pub(super) fn reach(&mut self, what: &'static str) {
        // Nearly always the very same text, found without reading it.
        let known = self.counts.iter_mut().find(|(name, _)| std::ptr::eq(*name, what));
        match known {
            Some((_, count)) => *count += 1,
            None => self.count_more(what, 1),
        }
    }

    fn count_more(&mut self, what: &'static str, more: u64) {
        match self.counts.binary_search_by_key(&what, |(name, _)| *name) {
            Ok(place) => self.counts[place].1 += more,
            Err(place) => self.counts.insert(place, (what, more)),
        }
    }

    /// How often `what` happened.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        let place = self.counts.binary_search_by_key(&what, |(name, _)| *name);
        place.map_or(0, |place| self.counts[place].1)
    }

    /// Everything that happened, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().copied()
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in other.iter() {
            self.count_more(what, count);
        }
    }

    /// Which faults and rare events of the lists never happened.
    pub(super) fn missing(&self, wanted: [&[&'static str]; 2]) -> Vec<&'static str> {
        let wanted = wanted.into_iter().flatten();
        wanted.filter(|what| self.count(what) == 0).copied().collect()
    }
}
