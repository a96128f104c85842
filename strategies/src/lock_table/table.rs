//! The table and its steps.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Bound, ClusterTime, Command, Effect, Ended, LockRequest, ProcessId, Refusal, TableConfig,
    claim::{Claim, Waiter, lease_ms},
    config::{FIRST_TOKEN_MAX, TIME_MAX},
    index::Index,
    nonces::{Nonces, Place},
    row::{Hold, Row},
    rows::{RowId, Rows},
};
use crate::{
    Nonce,
    planted::{Bug, planted},
};

/// Who holds what, who waits, and what has ended lately: a pure state machine.
///
/// The [module](super) says what one step does, and in which order. A step costs O(log n) in the
/// mean of many, with a share in what it ends; each waiter and each lease is ended once.
#[derive(Clone, Debug)]
pub struct LockTable {
    pub(super) config: TableConfig,
    pub(super) now: ClusterTime,
    pub(super) last_token: u64,
    /// The place that the last accepted LOCK took.
    pub(super) last_place: u64,
    pub(super) rows: Rows,
    pub(super) nonces: Nonces,
    pub(super) index: Index,
}

/// How much a table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Keys that are held.
    pub keys: u64,
    /// Waiters on all keys.
    pub waiters: u64,
    /// Nonces that have ended and are remembered.
    pub nonces_remembered: u64,
}

impl LockTable {
    /// An empty table at time zero.
    #[must_use]
    pub fn new(mut config: TableConfig) -> Self {
        config.first_token = config.first_token.clamp(1, FIRST_TOKEN_MAX);
        Self {
            last_token: config.first_token - 1,
            config,
            now: ClusterTime(0),
            last_place: 0,
            rows: Rows::default(),
            nonces: Nonces::default(),
            index: Index::default(),
        }
    }

    /// Applies one command stamped `stamp`, and appends what happened to `effects`, in order.
    pub fn apply(&mut self, stamp: ClusterTime, command: &Command, effects: &mut Vec<Effect>) {
        self.now = self.now.max(stamp.min(TIME_MAX));
        if planted(Bug::ClusterTimeFalls) {
            self.now = stamp;
        }
        if planted(Bug::TokenReset) && self.rows.is_empty() {
            self.last_token = self.config.first_token - 1;
        }
        self.drop_expired_waiters(effects);
        self.end_expired_leases(effects);
        self.nonces.purge(self.now, self.config.nonce_memory_ms);
        match command {
            Command::Lock(request) => self.lock(request, effects),
            Command::Unlock { key, nonce, forget } => self.unlock(key, *nonce, *forget, effects),
            Command::Extend { key, nonce, process, request, duration_ms } => {
                let (nonce, process, request) = (*nonce, *process, *request);
                let held = self.extend(key, nonce, (process, request), *duration_ms);
                effects.push(Effect::Extended { nonce, process, request, held });
            }
            Command::Gone { process } => self.drop_process(*process, effects),
            Command::Noop => {}
        }
    }

    fn lock(&mut self, request: &LockRequest, effects: &mut Vec<Effect>) {
        let effect = match self.nonces.place(request.nonce) {
            Some(Place::Holds { row }) if self.rows[row].key == request.key => {
                self.grant_again(row, request)
            }
            Some(Place::Waits { row, place }) if self.rows[row].key == request.key => {
                self.queue_again(row, place, request)
            }
            Some(Place::Ended(how)) => refused(request, Refusal::Spent(how)),
            // One nonce names one acquisition: it cannot take a second key.
            Some(_) => refused(request, Refusal::Spent(Ended::Unknown)),
            None => match self.admit(request) {
                Ok(effect) => effect,
                Err(reason) => refused(request, reason),
            },
        };
        effects.push(effect);
    }

    fn grant_again(&mut self, id: RowId, request: &LockRequest) -> Effect {
        let row = &mut self.rows[id];
        debug_assert_eq!(row.holder.claim.nonce, request.nonce, "a nonce names its own row");
        row.holder.claim.asked_again(request, self.now);
        if planted(Bug::GrantedTwice) {
            self.last_token += 1;
            row.holder.token = self.last_token;
        }
        Effect::Granted(row.grant())
    }

    /// The place stays, the deadline may move to a later time, and the grant goes to the process of
    /// this LOCK.
    fn queue_again(&mut self, id: RowId, place: u64, request: &LockRequest) -> Effect {
        let Self { rows, index, now, .. } = self;
        let waiter = rows[id].queue.get_mut(&place).expect(QUEUED);
        debug_assert_eq!(waiter.claim.nonce, request.nonce, "a nonce names its own waiter");
        let asked = request.wait.deadline(*now);
        index.remove_waiter(waiter);
        waiter.deadline = waiter.deadline.zip(asked).map(|(first, asked)| first.max(asked));
        waiter.claim.asked_again(request, *now);
        index.add_waiter(id, waiter);
        queued(request)
    }

    /// Judges a LOCK of an unknown nonce: age, then limits, then whether the key is free.
    fn admit(&mut self, request: &LockRequest) -> Result<Effect, Refusal> {
        let Self { config, now, .. } = self;
        if !self.nonces.accepts(request.seen, config.group, *now, config.nonce_memory_ms) {
            return Err(Refusal::Stale { group: config.group, now: *now });
        }
        bounded(self.nonces.len(), config.nonces_max, Bound::Nonces)?;
        let Some(id) = self.rows.find(&request.key) else {
            bounded(self.rows.len(), config.keys_max, Bound::Keys)?;
            self.last_place += 1;
            self.last_token += 1;
            let claim = Claim::new(self.last_place, request, *now);
            let holder = Hold::new(claim, self.last_token, *now);
            let row = Row { key: request.key.clone(), holder, queue: BTreeMap::new() };
            let granted = row.grant();
            let id = self.rows.insert(row);
            self.index.add_lease(id, &self.rows[id]);
            self.nonces.set(request.nonce, Place::Holds { row: id });
            return Ok(Effect::Granted(granted));
        };
        if request.wait.is_none() {
            return Err(Refusal::Held);
        }
        bounded(self.rows[id].queue.len(), config.waiters_per_key_max, Bound::WaitersPerKey)?;
        self.last_place += 1;
        let claim = Claim::new(self.last_place, request, *now);
        let deadline = request.wait.deadline(*now);
        let place = claim.place;
        self.enqueue(id, Waiter { claim, deadline });
        self.nonces.set(request.nonce, Place::Waits { row: id, place });
        Ok(queued(request))
    }

    fn unlock(&mut self, key: &Arc<str>, nonce: Nonce, forget: bool, effects: &mut Vec<Effect>) {
        let place = self.nonces.place(nonce);
        if planted(Bug::UnlockByAnyone)
            && place.is_none()
            && let Some(id) = self.rows.find(key)
        {
            let holder = self.rows[id].holder.claim.nonce;
            self.end_nonce(holder, Ended::Unlocked, false);
            return self.grant_next(id, effects);
        }
        let (was, request) = match place {
            Some(Place::Holds { row }) if self.rows[row].key == *key => {
                (Ended::Held, self.rows[row].holder.claim.request)
            }
            Some(Place::Waits { row, place }) if self.rows[row].key == *key => {
                (Ended::Waited, self.rows[row].queue[&place].claim.request)
            }
            Some(Place::Ended(how)) => (how, 0),
            Some(_) | None => (Ended::Unknown, 0),
        };
        effects.push(Effect::Unlocked { key: key.clone(), nonce, request, was });
        match (was, place) {
            (Ended::Held, Some(Place::Holds { row })) => {
                self.end_nonce(nonce, Ended::Unlocked, forget);
                if planted(Bug::NoHandOver) {
                    while let Some((&head, _)) = self.rows[row].queue.first_key_value() {
                        let claim = self.dequeue(row, head);
                        self.nonces.forget(claim.nonce);
                    }
                }
                self.grant_next(row, effects);
            }
            (Ended::Waited, Some(Place::Waits { row, place })) => {
                self.end_nonce(nonce, Ended::Withdrawn, forget);
                self.dequeue(row, place);
            }
            (Ended::Unknown, None) if !forget => {
                self.nonces.withdraw_unknown(nonce, self.now, self.config.nonces_max);
            }
            _ => {}
        }
    }

    fn end_nonce(&mut self, nonce: Nonce, how: Ended, forget: bool) {
        if forget {
            self.nonces.forget(nonce);
        } else {
            self.nonces.end(nonce, how, self.now);
        }
    }

    /// Returns the end of the lease; `None` where this nonce does not hold the key.
    fn extend(
        &mut self,
        key: &Arc<str>,
        nonce: Nonce,
        by: (ProcessId, u64),
        duration_ms: u64,
    ) -> Option<(u64, ClusterTime)> {
        let id = self.rows.find(key)?;
        let row = &mut self.rows[id];
        if row.holder.claim.nonce != nonce {
            return None;
        }
        row.holder.claim.handed_over(by);
        let asked = self.now.after(lease_ms(duration_ms));
        if asked > row.holder.expires_at {
            self.index.remove_lease(row);
            row.holder.expires_at = asked;
            self.index.add_lease(id, row);
        }
        Some((row.holder.token, row.holder.expires_at))
    }

    fn drop_process(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        let waiters = self.index.waiters_of(process);
        if planted(Bug::HashOrder) {
            return self.drop_in_hash_order(waiters, effects);
        }
        for (id, place) in waiters {
            self.drop_waiter(id, place, effects);
        }
    }

    #[expect(clippy::disallowed_types, reason = "the planted bug is exactly this")]
    fn drop_in_hash_order(&mut self, waiters: Vec<(RowId, u64)>, effects: &mut Vec<Effect>) {
        let by_place = waiters.into_iter().map(|(id, place)| (place, id));
        let hashed: std::collections::HashMap<u64, RowId> = by_place.collect();
        for (place, id) in hashed {
            self.drop_waiter(id, place, effects);
        }
    }

    fn drop_expired_waiters(&mut self, effects: &mut Vec<Effect>) {
        if planted(Bug::DeadWaiterGranted) {
            return;
        }
        while let Some((id, place)) = self.index.expired_waiter(self.now) {
            self.drop_waiter(id, place, effects);
        }
    }

    fn drop_waiter(&mut self, id: RowId, place: u64, effects: &mut Vec<Effect>) {
        let Claim { nonce, process, request, .. } = self.dequeue(id, place);
        self.nonces.forget(nonce);
        effects.push(Effect::Dropped { key: self.rows[id].key.clone(), nonce, process, request });
    }

    pub(super) fn enqueue(&mut self, id: RowId, waiter: Waiter) {
        let row = &mut self.rows[id];
        self.index.add_waiter(id, &waiter);
        row.queue.insert(waiter.claim.place, waiter);
        if row.queue.len() == 1 {
            self.index.move_lease(id, row);
        }
    }

    fn dequeue(&mut self, id: RowId, place: u64) -> Claim {
        let row = &mut self.rows[id];
        let waiter = row.queue.remove(&place).expect(QUEUED);
        if row.queue.is_empty() {
            self.index.move_lease(id, row);
        }
        self.index.remove_waiter(&waiter);
        waiter.claim
    }

    fn end_expired_leases(&mut self, effects: &mut Vec<Effect>) {
        if planted(Bug::ExpiryIgnored) {
            return;
        }
        while let Some(id) = self.index.expired_lease(self.now) {
            let row = &self.rows[id];
            let Claim { nonce, process, request, .. } = row.holder.claim;
            let token = row.holder.token;
            self.nonces.end(nonce, Ended::Expired, self.now);
            effects.push(Effect::Expired { key: row.key.clone(), nonce, process, request, token });
            self.grant_next(id, effects);
        }
    }

    /// Ends the hold of a key and grants it to the head of the queue, whose deadline is not reached:
    /// such waiters were dropped at the beginning of the step. Without a queue the key leaves the table.
    fn grant_next(&mut self, id: RowId, effects: &mut Vec<Effect>) {
        let row = &mut self.rows[id];
        self.index.remove_lease(row);
        let Some((_, waiter)) = row.queue.pop_first() else {
            self.rows.remove(id);
            return;
        };
        self.index.remove_waiter(&waiter);
        self.last_token += 1;
        row.holder = Hold::new(waiter.claim, self.last_token, self.now);
        self.index.add_lease(id, row);
        effects.push(Effect::Granted(row.grant()));
        self.nonces.set(row.holder.claim.nonce, Place::Holds { row: id });
    }

    fn rows_equal(&self, other: &Self) -> bool {
        let (rows, others) = (self.rows.in_order(), other.rows.in_order());
        rows.iter().map(|(_, row)| row).eq(others.iter().map(|(_, row)| row))
    }
}

const QUEUED: &str = "a waiter that is named is in the queue";

/// Tables that hold the same are equal, whatever the ids of their rows. That the live nonces and the
/// index agree with the rows is asserted by [`LockTable::check`].
impl PartialEq for LockTable {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
            && (self.now, self.last_token, self.last_place)
                == (other.now, other.last_token, other.last_place)
            && self.rows_equal(other)
            && self.nonces.len() == other.nonces.len()
            && self.nonces.floor() == other.nonces.floor()
            && self.nonces.ended().eq(other.nonces.ended())
    }
}

impl Eq for LockTable {}

fn bounded(present: usize, limit: u64, what: Bound) -> Result<(), Refusal> {
    if (present as u64) < limit { Ok(()) } else { Err(Refusal::Limit { what, limit }) }
}

fn queued(request: &LockRequest) -> Effect {
    let LockRequest { key, nonce, process, request, .. } = request;
    Effect::Queued { key: key.clone(), nonce: *nonce, process: *process, request: *request }
}

fn refused(request: &LockRequest, reason: Refusal) -> Effect {
    let LockRequest { nonce, process, request, .. } = *request;
    Effect::Refused { nonce, process, request, reason }
}
