//! The nonces that hold, wait, or ended lately.

use std::collections::{BTreeMap, VecDeque};

use super::{ClusterTime, Ended, Seen, rows::RowId};
use crate::{
    Nonce,
    planted::{Bug, planted},
};

/// How many nonces one step forgets at most. A step after a long silence may find the whole memory
/// outdated; forgetting two million at once would stop a member for longer than its election
/// timeout. Each step remembers fewer than this on average, so the memory does shrink.
pub const FORGOTTEN_PER_STEP: usize = 1024;

/// What the table knows of every nonce: one entry for each that holds, waits or has ended lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Nonces {
    places: BTreeMap<Nonce, Place>,
    /// The ended ones in the order in which they ended, so that the oldest is forgotten first.
    ended: VecDeque<(ClusterTime, Nonce)>,
    /// The time of the last withdrawal that could not be remembered for want of room.
    floor: Option<ClusterTime>,
}

/// Where a nonce stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Holds { row: RowId },
    Waits { row: RowId, place: u64 },
    Ended(Ended),
}

/// What a table knows of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It holds its key.
    Holds,
    /// It waits.
    Waits,
    /// It has ended, in this way.
    Ended(Ended),
}

impl Nonces {
    pub(super) fn place(&self, nonce: Nonce) -> Option<Place> {
        self.places.get(&nonce).copied()
    }

    pub(super) fn known(&self, nonce: Nonce) -> Option<Known> {
        Some(match self.places.get(&nonce)? {
            Place::Holds { .. } => Known::Holds,
            Place::Waits { .. } => Known::Waits,
            Place::Ended(how) => Known::Ended(*how),
        })
    }

    /// Those that hold, wait and are remembered.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Those that have ended and are remembered.
    pub(super) fn remembered(&self) -> usize {
        self.ended.len()
    }

    pub(super) fn floor(&self) -> Option<ClusterTime> {
        self.floor
    }

    /// Sets where a live nonce stands. Returns whether the nonce was unknown.
    pub(super) fn set(&mut self, nonce: Nonce, place: Place) -> bool {
        self.places.insert(nonce, place).is_none()
    }

    /// Remembers that a nonce ended at `now`, which must not be earlier than any end before.
    pub(super) fn end(&mut self, nonce: Nonce, how: Ended, now: ClusterTime) {
        let before = self.places.insert(nonce, Place::Ended(how));
        assert!(!matches!(before, Some(Place::Ended(_))), "a nonce ends once");
        self.ended.push_back((now, nonce));
    }

    /// Forgets a live nonce: no copy of its LOCK can be under way, or it may queue again.
    pub(super) fn forget(&mut self, nonce: Nonce) {
        let before = self.places.remove(&nonce);
        assert!(!matches!(before, Some(Place::Ended(_))), "ended nonces are forgotten by age");
    }

    /// Sees to it that a LOCK of this unknown nonce, if one is under way, grants nothing.
    pub(super) fn withdraw_unknown(&mut self, nonce: Nonce, now: ClusterTime, room: u64) {
        if self.places.len() as u64 >= room {
            self.floor = Some(now);
        } else {
            self.end(nonce, Ended::Withdrawn, now);
        }
    }

    /// From when on the oldest remembered nonce may be forgotten.
    pub(super) fn next_forget(&self, memory_ms: u64) -> Option<ClusterTime> {
        self.ended.front().map(|(at, _)| at.after(memory_ms).after(1))
    }

    /// Forgets what no accepted LOCK can repeat any more, the oldest first.
    pub(super) fn purge(&mut self, now: ClusterTime, memory_ms: u64) {
        for _ in 0..FORGOTTEN_PER_STEP {
            match self.ended.front() {
                Some((at, nonce)) if outdated(*at, now, memory_ms) => {
                    self.places.remove(nonce);
                    self.ended.pop_front();
                }
                _ => break,
            }
        }
        if self.floor.is_some_and(|floor| outdated(floor, now, memory_ms)) {
            self.floor = None;
        }
    }

    /// Whether a LOCK of an unknown nonce is young enough that the nonce cannot have been
    /// forgotten.
    pub(super) fn accepts(
        &self,
        seen: Seen,
        group: u128,
        now: ClusterTime,
        memory_ms: u64,
    ) -> bool {
        match seen {
            _ if planted(Bug::StaleLockAccepted) => true,
            Seen::Now => true,
            Seen::Never => false,
            Seen::At { group: other, .. } if other != group => false,
            Seen::At { time, .. } => {
                !outdated(time, now, memory_ms) && self.floor.is_none_or(|floor| time > floor)
            }
        }
    }

    /// The ended ones, the oldest first.
    pub(super) fn ended(&self) -> impl Iterator<Item = (ClusterTime, Nonce, Ended)> {
        self.ended.iter().map(|(at, nonce)| match self.places.get(nonce) {
            Some(Place::Ended(how)) => (*at, *nonce, *how),
            other => unreachable!("a nonce in the order of ends has ended, not {other:?}"),
        })
    }

    pub(super) fn set_floor(&mut self, floor: Option<ClusterTime>) {
        self.floor = floor;
    }
}

/// The one rule of age, so that accepting and forgetting are complementary.
const fn outdated(at: ClusterTime, now: ClusterTime, memory_ms: u64) -> bool {
    at.after(memory_ms).0 < now.0
}
