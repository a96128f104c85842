//! The invariants of a table.

use super::{LockTable, index::Index, nonces::Place};

impl LockTable {
    /// Asserts every invariant that ties rows, nonces and indexes together; for tests and
    /// simulations, after each step. Costs O(n log n).
    ///
    /// # Panics
    ///
    /// When one does not hold: the table is broken.
    pub fn check(&self) {
        let mut index = Index::default();
        let mut live = 0;
        self.rows.check();
        let rows = self.rows.in_order();
        for &(id, row) in &rows {
            let holder = &row.holder;
            assert!(holder.expires_at > self.now, "a lease that has ended leaves the table");
            assert!(holder.granted_at <= self.now, "no grant lies in the future");
            assert!(holder.token <= self.last_token, "a token was counted before it was granted");
            let place = self.nonces.place(holder.claim.nonce);
            assert_eq!(place, Some(Place::Holds { row: id }), "a holder's nonce is known");
            live += 1 + row.queue.len();
            index.add_lease(id, row);
            let mut last = holder.claim.place;
            for (&place, waiter) in &row.queue {
                assert_eq!(waiter.claim.place, place, "a waiter is queued by its place");
                assert!(place > last, "the holder came before the waiters");
                last = place;
                assert!(
                    waiter.deadline.is_none_or(|end| end > self.now),
                    "expired waiters left the queue"
                );
                let known = self.nonces.place(waiter.claim.nonce);
                assert_eq!(
                    known,
                    Some(Place::Waits { row: id, place }),
                    "a waiter's nonce is known"
                );
                index.add_waiter(id, waiter);
            }
            assert!(last <= self.last_place, "a place was counted");
        }
        assert_eq!(self.index, index, "the index agrees with the rows");
        assert_eq!(self.nonces.len(), live + self.nonces.remembered(), "no nonce is left over");
        assert_eq!(self.nonces.ended().count(), self.nonces.remembered(), "every end is known");
        assert!(self.nonces.len() as u64 <= self.config.nonces_max, "nonces are bounded");
        assert!(self.rows.len() as u64 <= self.config.keys_max, "keys are bounded");
        let longest = rows.iter().map(|(_, row)| row.queue.len() as u64).max();
        let limit = self.config.waiters_per_key_max;
        assert!(longest.unwrap_or(0) <= limit, "waiters are bounded");
    }
}
