//! Leases and waiters by time, and waiters by process.

use std::collections::BTreeMap;

use super::{
    Index, Row, Waiter, When,
    command::{ClusterTime, ProcessId},
    key::Key,
};

impl Index {
    /// Adds the lease of a row.
    pub(super) fn add_lease(&mut self, key: &Key, row: &Row) {
        self.leases.insert(lease_end(row), key.clone());
    }

    /// Removes the lease of a row, before its holder or its end changes.
    pub(super) fn remove_lease(&mut self, row: &Row) {
        self.leases.remove(&lease_end(row));
    }

    /// Adds a waiter to a row of the index.
    pub(super) fn enqueue(&mut self, key: &Key, row: &mut Row, waiter: Waiter) {
        self.add_waiter(key, &waiter);
        row.queue.insert(waiter.acquisition.position, waiter);
    }

    /// Takes the waiter at this position of a row of the index.
    pub(super) fn dequeue(&mut self, row: &mut Row, position: u64) -> Waiter {
        let waiter = row.queue.remove(&position).expect("a known waiter is in the queue");
        self.remove_waiter(&waiter);
        waiter
    }

    pub(super) fn add_waiter(&mut self, key: &Key, waiter: &Waiter) {
        let position = waiter.acquisition.position;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, position), key.clone());
        }
        let waiters = self.processes.entry(waiter.acquisition.process).or_default();
        waiters.insert(position, key.clone());
    }

    /// Removes a waiter, before its deadline or its process changes.
    pub(super) fn remove_waiter(&mut self, waiter: &Waiter) {
        let (position, process) = (waiter.acquisition.position, waiter.acquisition.process);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, position));
        }
        let waiters = self.processes.get_mut(&process).expect("the process of a waiter is known");
        waiters.remove(&position);
        if waiters.is_empty() {
            self.processes.remove(&process);
        }
    }

    /// The waiters of a process in the order of position.
    pub(super) fn waiters_of(&self, process: ProcessId) -> Vec<(Key, u64)> {
        let waiters = self.processes.get(&process).into_iter().flatten();
        waiters.map(|(position, key)| (key.clone(), *position)).collect()
    }

    /// The key of the first lease that ends at or before `now`.
    pub(super) fn expired_lease(&self, now: ClusterTime) -> Option<Key> {
        let ((end, _), key) = self.leases.first_key_value()?;
        (*end <= now).then(|| key.clone())
    }

    /// The first waiter whose deadline is at or before `now`.
    pub(super) fn expired_waiter(&self, now: ClusterTime) -> Option<(Key, u64)> {
        let ((deadline, position), key) = self.deadlines.first_key_value()?;
        (*deadline <= now).then(|| (key.clone(), *position))
    }
}

/// The first of these times.
pub(super) fn first(times: &BTreeMap<When, Key>) -> Option<ClusterTime> {
    times.first_key_value().map(|((time, _), _)| *time)
}

fn lease_end(row: &Row) -> When {
    (row.holder.expires_at, row.holder.acquisition.position)
}
