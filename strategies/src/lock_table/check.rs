//! The invariants of a table: asserted by tests and simulations, required of a snapshot.

use std::collections::BTreeSet;

use super::{
    Acquisition, Index, LockTable, Row,
    config::{FIRST_TOKEN_MAX, TIME_MAX},
    nonces::Known,
};
use crate::lock::Nonce;

/// Tokens and positions beyond this were never granted: as many again would be left.
const COUNTER_MAX: u64 = FIRST_TOKEN_MAX + (1 << 62);

impl LockTable {
    /// Asserts every invariant. Costs O(n log n).
    ///
    /// # Panics
    ///
    /// When one does not hold: the table is broken.
    pub fn check(&self) {
        self.verify().unwrap_or_else(|broken| panic!("{broken}"));
        let mut index = Index::default();
        for (key, row) in &self.rows {
            index.add_lease(key, row);
            row.queue.values().for_each(|waiter| index.add_waiter(key, waiter));
        }
        assert_eq!(self.index, index, "the index agrees with the rows");
    }

    /// Checks the invariants that do not concern the index. The error names a broken one.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let first_token = self.config.first_token;
        require((1..=FIRST_TOKEN_MAX).contains(&first_token), "first token out of range")?;
        require(self.last_token >= first_token - 1, "last token before the first")?;
        require(self.last_token <= COUNTER_MAX, "last token out of range")?;
        require(self.last_position <= COUNTER_MAX, "last position out of range")?;
        require(self.now <= TIME_MAX, "time out of range")?;
        require(self.nonces.floor.is_none_or(|floor| floor <= self.now), "floor after now")?;
        let mut seen = Acquisitions::default();
        for row in self.rows.values() {
            self.verify_row(row, &mut seen)?;
        }
        let mut last_end = None;
        for &(at, _) in &self.nonces.ended {
            require(last_end <= Some(at) && at <= self.now, "ends out of order")?;
            last_end = Some(at);
        }
        let nonces = seen.nonces.len() + self.nonces.ended.len();
        require(self.nonces.known.len() == nonces, "nonce without an acquisition")?;
        require(nonces as u64 <= self.config.nonces_max, "more nonces than the limit")?;
        require(self.rows.len() as u64 <= self.config.keys_max, "more keys than the limit")
    }

    fn verify_row(&self, row: &Row, seen: &mut Acquisitions) -> Result<(), &'static str> {
        let (holder, queue) = (&row.holder, &row.queue);
        require(holder.token >= self.config.first_token, "token before the first")?;
        require(holder.token <= self.last_token, "token that was never granted")?;
        require(holder.granted_at <= self.now, "grant after now")?;
        require(holder.expires_at > self.now, "lease that has ended")?;
        self.verify_acquisition(&holder.acquisition, Known::Holds, seen)?;
        let limit = self.config.waiters_per_key_max;
        require(queue.len() as u64 <= limit, "more waiters than the limit")?;
        let first = queue.first_key_value();
        let in_order = first.is_none_or(|(first, _)| *first > holder.acquisition.position);
        require(in_order, "queue out of order")?;
        for (&position, waiter) in queue {
            require(position == waiter.acquisition.position, "queue out of order")?;
            require(waiter.deadline.is_none_or(|end| end > self.now), "waiter that is dead")?;
            self.verify_acquisition(&waiter.acquisition, Known::Waits { position }, seen)?;
        }
        Ok(())
    }

    fn verify_acquisition(
        &self,
        acquisition: &Acquisition,
        known: Known,
        seen: &mut Acquisitions,
    ) -> Result<(), &'static str> {
        let Acquisition { position, nonce, .. } = *acquisition;
        require(position <= self.last_position, "position that was never given")?;
        require(seen.positions.insert(position), "position that was given twice")?;
        require(seen.nonces.insert(nonce), "nonce that occurs twice")?;
        require(acquisition.asked_at <= self.now, "LOCK after now")?;
        require(acquisition.duration_ms > 0, "lease of nothing")?;
        require(self.nonces.get(nonce) == Some(known), "nonce of another acquisition")
    }
}

/// The acquisitions that were verified before.
#[derive(Default)]
struct Acquisitions {
    positions: BTreeSet<u64>,
    nonces: BTreeSet<Nonce>,
}

pub(super) fn require(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}
