//! The rows of leases and waiters by time, and of waiters by process.

use std::collections::{BTreeMap, btree_map::Keys};

use super::{ClusterTime, ProcessId, claim::Waiter, row::Row, rows::RowId};

/// A time, and the place of the claim to which something happens then.
type When = (ClusterTime, u64);

/// The row of each lease and waiter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The ends of the leases without waiters.
    pub(super) uncontended: BTreeMap<When, RowId>,
    /// The ends of the leases with waiters.
    pub(super) contended: BTreeMap<When, RowId>,
    /// The deadlines of all waiters that have one.
    pub(super) deadlines: BTreeMap<When, RowId>,
    /// The places of the waiters of each process that has any.
    processes: BTreeMap<ProcessId, BTreeMap<u64, RowId>>,
}

impl Index {
    /// Adds the lease of a row.
    pub(super) fn add_lease(&mut self, id: RowId, row: &Row) {
        self.leases(!row.queue.is_empty()).insert(lease_end(row), id);
    }

    /// Removes the lease of a row, before its holder, its end, or whether it has waiters changes.
    pub(super) fn remove_lease(&mut self, row: &Row) {
        self.leases(!row.queue.is_empty()).remove(&lease_end(row));
    }

    /// Moves the lease of a row whose queue has its first waiter, or has lost its last.
    pub(super) fn move_lease(&mut self, id: RowId, row: &Row) {
        let contended = !row.queue.is_empty();
        self.leases(!contended).remove(&lease_end(row));
        self.leases(contended).insert(lease_end(row), id);
    }

    fn leases(&mut self, contended: bool) -> &mut BTreeMap<When, RowId> {
        if contended { &mut self.contended } else { &mut self.uncontended }
    }

    pub(super) fn add_waiter(&mut self, id: RowId, waiter: &Waiter) {
        let place = waiter.claim.place;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, place), id);
        }
        self.processes.entry(waiter.claim.process).or_default().insert(place, id);
    }

    /// Removes a waiter, before its deadline or its process changes.
    pub(super) fn remove_waiter(&mut self, waiter: &Waiter) {
        let (place, process) = (waiter.claim.place, waiter.claim.process);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, place));
        }
        let waiters = self.processes.get_mut(&process).expect("the process of a waiter is known");
        waiters.remove(&place);
        if waiters.is_empty() {
            self.processes.remove(&process);
        }
    }

    /// The number of all waiters.
    pub(super) fn waiters(&self) -> usize {
        self.processes.values().map(BTreeMap::len).sum()
    }

    /// The processes that have waiters, in order.
    pub(super) fn processes(&self) -> Keys<'_, ProcessId, BTreeMap<u64, RowId>> {
        self.processes.keys()
    }

    /// The waiters of a process in the order of their places.
    pub(super) fn waiters_of(&self, process: ProcessId) -> Vec<(RowId, u64)> {
        let waiters = self.processes.get(&process).into_iter().flatten();
        waiters.map(|(place, id)| (*id, *place)).collect()
    }

    /// The row of the first lease that ends at or before `now`.
    pub(super) fn expired_lease(&self, now: ClusterTime) -> Option<RowId> {
        let firsts = [&self.uncontended, &self.contended].map(BTreeMap::first_key_value);
        let (when, id) = firsts.into_iter().flatten().min()?;
        (when.0 <= now).then_some(*id)
    }

    /// The first waiter whose deadline is at or before `now`.
    pub(super) fn expired_waiter(&self, now: ClusterTime) -> Option<(RowId, u64)> {
        let ((deadline, place), id) = self.deadlines.first_key_value()?;
        (*deadline <= now).then_some((*id, *place))
    }

    /// The first time at which a lease ends or a waiter's deadline is reached.
    pub(super) fn next(&self) -> Option<ClusterTime> {
        let firsts = [&self.uncontended, &self.contended, &self.deadlines].map(first);
        firsts.into_iter().flatten().min()
    }

    /// The first time at which a lease with waiters ends.
    pub(super) fn next_contended(&self) -> Option<ClusterTime> {
        first(&self.contended)
    }
}

fn first(times: &BTreeMap<When, RowId>) -> Option<ClusterTime> {
    times.first_key_value().map(|((time, _), _)| *time)
}

fn lease_end(row: &Row) -> When {
    (row.holder.expires_at, row.holder.claim.place)
}
