//! Read-only queries on the lock table.

use std::sync::Arc;

use super::{
    ClusterTime, Grant, HolderView, Known, LockTable, ProcessId, Sizes, TableConfig, nonces::Place,
    row::Row,
};
use crate::Nonce;

impl LockTable {
    /// The greatest stamp seen.
    #[must_use]
    pub fn now(&self) -> ClusterTime {
        self.now
    }

    /// The earliest time at which a stamp would hand a key to somebody who waits: the first end of
    /// a lease on a key with waiters.
    #[must_use]
    pub fn next_due(&self) -> Option<ClusterTime> {
        self.index.next_contended()
    }

    /// The earliest time at which a stamp would change anything: the first end of a lease or
    /// deadline of a waiter.
    #[must_use]
    pub fn next_sweep(&self) -> Option<ClusterTime> {
        self.index.next()
    }

    /// The earliest time at which a stamp would forget a nonce. One step forgets a limited number:
    /// a time that has passed tells of a backlog.
    #[must_use]
    pub fn next_forget(&self) -> Option<ClusterTime> {
        self.nonces.next_forget(self.config.nonce_memory_ms)
    }

    /// Whether any key is held.
    #[must_use]
    pub fn has_leases(&self) -> bool {
        !self.rows.is_empty()
    }

    /// The processes that have waiters, in order.
    pub fn processes_waiting(&self) -> impl Iterator<Item = ProcessId> {
        self.index.processes().copied()
    }

    /// The keys that are held, in the order of a snapshot. Looks at all of them, whatever is taken of
    /// what it returns.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rows.in_order().into_iter().map(|(_, row)| &row.key)
    }

    /// Who holds `key`.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<HolderView> {
        self.row(key).map(Row::view)
    }

    /// The head of the queue for `key`: who gets it next.
    #[must_use]
    pub fn next_waiter(&self, key: &str) -> Option<Nonce> {
        Some(self.row(key)?.queue.first_key_value()?.1.claim.nonce)
    }

    /// What the holder of `key` was granted.
    #[must_use]
    pub fn grant(&self, key: &str) -> Option<Grant> {
        self.row(key).map(Row::grant)
    }

    /// The head of the queue for `key` with the newest of its LOCKs, and the end of the lease before it.
    #[must_use]
    pub fn next_grant(&self, key: &str) -> Option<(Nonce, u64, ClusterTime)> {
        let row = self.row(key)?;
        let claim = &row.queue.first_key_value()?.1.claim;
        Some((claim.nonce, claim.request, row.holder.expires_at))
    }

    /// What the table knows of a nonce.
    #[must_use]
    pub fn knows(&self, nonce: Nonce) -> Option<Known> {
        self.nonces.known(nonce)
    }

    /// The newest LOCK of a nonce that holds or waits.
    #[must_use]
    pub fn request(&self, nonce: Nonce) -> Option<u64> {
        Some(match self.nonces.place(nonce)? {
            Place::Holds { row } => self.rows[row].holder.claim.request,
            Place::Waits { row, place } => self.rows[row].queue[&place].claim.request,
            Place::Ended(_) => return None,
        })
    }

    /// The last token granted, or the one before the first.
    #[must_use]
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// The bounds, and the group.
    #[must_use]
    pub fn config(&self) -> &TableConfig {
        &self.config
    }

    /// How much it holds.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            keys: self.rows.len() as u64,
            waiters: self.index.waiters() as u64,
            nonces_remembered: self.nonces.remembered() as u64,
        }
    }

    pub(super) fn row(&self, key: &str) -> Option<&Row> {
        self.rows.find(key).map(|id| &self.rows[id])
    }
}
