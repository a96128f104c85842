//! Read-only queries on the lock table.

use std::{ops::Bound, sync::Arc, time::Duration};

use super::{
    LockTable, Row,
    command::{ClusterTime, Grant, ProcessId},
    config::TableConfig,
    index::first,
    key::Key,
    nonces::Known,
    table::Sizes,
};
use crate::lock::{Inspection, Nonce};

/// How many rows one scan looks at: a member's turn must stay short.
const ROWS_PER_SCAN: usize = 10_000;

impl LockTable {
    /// The greatest stamp seen.
    #[must_use]
    pub fn now(&self) -> ClusterTime {
        self.now
    }

    /// The earliest time at which a stamp would end a lease.
    #[must_use]
    pub fn next_due(&self) -> Option<ClusterTime> {
        first(&self.index.leases)
    }

    /// The earliest time at which a stamp would forget a nonce. One step forgets a limited number:
    /// a time that has passed means a backlog.
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
        self.index.processes.keys().copied()
    }

    /// The keys that are held, in the order of a snapshot.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rows.keys().map(|key| &key.text)
    }

    /// The grant of the holder of `key`.
    #[must_use]
    pub fn holder(&self, key: &Arc<str>) -> Option<Grant> {
        let key = Key::new(key);
        self.rows.get(&key).map(|row| row.grant(&key))
    }

    /// The holder of `key`, for diagnostics.
    #[must_use]
    pub fn inspect(&self, key: &Arc<str>) -> Option<Inspection> {
        let row = self.row(key)?;
        let acquisition = &row.holder.acquisition;
        Some(Inspection {
            fencing_token: row.holder.token,
            nonce: acquisition.nonce,
            owner: (*acquisition.owner).clone(),
            held_for: Duration::from_millis(self.now.since(row.holder.granted_at)),
            remaining: Duration::from_millis(row.holder.expires_at.since(self.now)),
            waiters: row.queue.len() as u64,
        })
    }

    /// Up to `limit` held keys that begin with `prefix`, in the order of a snapshot, from behind
    /// the key `after`; and behind which key to continue. It looks at a bounded number of rows.
    #[must_use]
    pub fn scan(
        &self,
        after: Option<&Arc<str>>,
        prefix: &str,
        limit: usize,
    ) -> (Vec<Arc<str>>, Option<Arc<str>>) {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(Key::new(after)));
        let mut rows = self.rows.range((from, Bound::Unbounded)).map(|(key, _)| &key.text);
        let (mut keys, mut last) = (Vec::new(), None);
        for key in rows.by_ref().take(ROWS_PER_SCAN) {
            last = Some(key);
            if key.starts_with(prefix) {
                keys.push(key.clone());
            }
            if keys.len() == limit {
                break;
            }
        }
        let next = last.filter(|_| rows.next().is_some()).cloned();
        (keys, next)
    }

    /// The waiters for keys that begin with `prefix`, in the order of each queue.
    pub fn waiters<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (Arc<str>, Nonce)> + 'a {
        let rows = self.rows.iter().filter(move |(key, _)| key.text.starts_with(prefix));
        rows.flat_map(|(key, row)| {
            row.queue.values().map(|waiter| (key.text.clone(), waiter.acquisition.nonce))
        })
    }

    /// The head of the queue for `key`, and the end of the lease before it.
    #[must_use]
    pub fn next_waiter(&self, key: &Arc<str>) -> Option<(Nonce, ClusterTime)> {
        let row = self.row(key)?;
        let (_, head) = row.queue.first_key_value()?;
        Some((head.acquisition.nonce, row.holder.expires_at))
    }

    /// The table's knowledge of a nonce.
    #[must_use]
    pub fn knows(&self, nonce: Nonce) -> Option<Known> {
        self.nonces.get(nonce)
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
            waiters: self.index.processes.values().map(|waiters| waiters.len() as u64).sum(),
            nonces_remembered: self.nonces.ended.len() as u64,
        }
    }

    fn row(&self, key: &Arc<str>) -> Option<&Row> {
        self.rows.get(&Key::new(key))
    }
}
