use std::collections::{BTreeMap, BTreeSet};

use super::{
    ClusterTime, ProcessId,
    row::{Row, Waiter},
    rows::Slot,
};

/// A time and the place of the claim to which something happens then: the order of what is due.
type When = (ClusterTime, u64);

/// The ways to the rows other than by key: by time and by process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The ends of all leases.
    pub(super) leases: BTreeMap<When, Slot>,
    /// The ends of those leases for which somebody waits.
    pub(super) contended: BTreeSet<When>,
    /// The deadlines of all waiters that have one.
    pub(super) deadlines: BTreeMap<When, Slot>,
    /// The places of every process that waits, each with its row.
    pub(super) waiting: BTreeMap<ProcessId, BTreeMap<u64, Slot>>,
    /// How many wait in all.
    pub(super) waiters: u64,
}

impl Index {
    /// Enters the lease of a row, and whether it is waited for.
    pub(super) fn add_lease(&mut self, slot: Slot, row: &Row) {
        self.leases.insert(lease_end(row), slot);
        if !row.queue.is_empty() {
            self.contended.insert(lease_end(row));
        }
    }

    /// Takes the lease of a row out, before its holder or its end changes.
    pub(super) fn remove_lease(&mut self, row: &Row) {
        self.leases.remove(&lease_end(row));
        if !row.queue.is_empty() {
            self.contended.remove(&lease_end(row));
        }
    }

    /// Enters a waiter that is already in the row's queue.
    pub(super) fn add_waiter(&mut self, slot: Slot, row: &Row, waiter: &Waiter) {
        if row.queue.len() == 1 {
            self.contended.insert(lease_end(row));
        }
        self.set_deadline(slot, waiter);
        self.set_process(slot, waiter);
        self.waiters += 1;
    }

    /// Takes a waiter out that has just left the row's queue for good.
    pub(super) fn remove_waiter(&mut self, row: &Row, waiter: &Waiter) {
        if row.queue.is_empty() {
            self.contended.remove(&lease_end(row));
        }
        self.unset_deadline(waiter);
        self.unset_process(waiter);
        self.waiters -= 1;
    }

    pub(super) fn set_deadline(&mut self, slot: Slot, waiter: &Waiter) {
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, waiter.claim.place), slot);
        }
    }

    pub(super) fn unset_deadline(&mut self, waiter: &Waiter) {
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, waiter.claim.place));
        }
    }

    pub(super) fn set_process(&mut self, slot: Slot, waiter: &Waiter) {
        let places = self.waiting.entry(waiter.claim.process).or_default();
        places.insert(waiter.claim.place, slot);
    }

    pub(super) fn unset_process(&mut self, waiter: &Waiter) {
        let process = waiter.claim.process;
        if let Some(places) = self.waiting.get_mut(&process) {
            places.remove(&waiter.claim.place);
            if places.is_empty() {
                self.waiting.remove(&process);
            }
        }
    }

    /// The row of the first lease that ends at or before `now`.
    pub(super) fn due_lease(&self, now: ClusterTime) -> Option<Slot> {
        let ((end, _), slot) = self.leases.first_key_value()?;
        (*end <= now).then_some(*slot)
    }

    /// The row and place of the first waiter whose deadline is at or before `now`.
    pub(super) fn due_waiter(&self, now: ClusterTime) -> Option<(Slot, u64)> {
        let ((deadline, place), slot) = self.deadlines.first_key_value()?;
        (*deadline <= now).then_some((*slot, *place))
    }
}

fn lease_end(row: &Row) -> When {
    (row.holder.expires_at, row.holder.claim.place)
}
