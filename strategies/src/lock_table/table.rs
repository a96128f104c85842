//! The table and its steps.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{
    Acquisition, Holder, Index, LockTable, Nonces, Row, Waiter,
    command::{Bound, ClusterTime, Command, Effect, LockRequest, PriorState, ProcessId, Refusal},
    config::{FIRST_TOKEN_MAX, TIME_MAX, TableConfig},
    key::Key,
    nonces::Known,
    row::lease_ms,
};
use crate::lock::Nonce;

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
            last_position: 0,
            rows: BTreeMap::new(),
            nonces: Nonces::default(),
            index: Index::default(),
        }
    }

    /// Applies one command stamped `stamp`, and appends its effects to `effects`, in order.
    pub fn apply(&mut self, stamp: ClusterTime, command: &Command, effects: &mut Vec<Effect>) {
        self.now = self.now.max(stamp.min(TIME_MAX));
        self.drop_expired_waiters(effects);
        self.end_expired_leases(effects);
        self.nonces.purge(self.now, self.config.nonce_memory_ms);
        match command {
            Command::Lock(request) => {
                let effect = self.lock(request).unwrap_or_else(|reason| refused(request, reason));
                effects.push(effect);
            }
            Command::Unlock { key, nonce, forget } => self.unlock(key, *nonce, *forget, effects),
            Command::Extend { key, nonce, process, request, duration_ms } => {
                let (nonce, process, request) = (*nonce, *process, *request);
                let held = self.extend(key, nonce, process, *duration_ms);
                effects.push(Effect::Extended { nonce, process, request, held });
            }
            Command::DropWaiters { process } => self.drop_process(*process, effects),
            Command::Noop => {}
        }
    }

    fn lock(&mut self, request: &LockRequest) -> Result<Effect, Refusal> {
        let key = Key::new(&request.key);
        let Some(known) = self.nonces.get(request.nonce) else { return self.admit(key, request) };
        match (known, self.rows.get_mut(&key)) {
            (Known::Ended, _) => Err(Refusal::Spent),
            (Known::Holds, Some(row)) if row.is_held_by(request.nonce) => {
                row.holder.acquisition.repeat(request, self.now);
                Ok(Effect::Granted(row.grant(&key)))
            }
            (Known::Waits { position }, Some(row)) if row.queue.contains_key(&position) => {
                // The position stays. The deadline may move to a later time, and the grant goes to
                // the process of this LOCK.
                let mut waiter = self.index.dequeue(row, position);
                let requested = request.wait.deadline(self.now);
                waiter.deadline = waiter.deadline.zip(requested).map(|(one, other)| one.max(other));
                waiter.acquisition.repeat(request, self.now);
                self.index.enqueue(&key, row, waiter);
                Ok(queued(request))
            }
            // A nonce names one acquisition: it cannot take a second key.
            _ => Err(Refusal::Spent),
        }
    }

    /// Decides on a LOCK of an unknown nonce: age, then limits, then whether the key is free.
    fn admit(&mut self, key: Key, request: &LockRequest) -> Result<Effect, Refusal> {
        let (config, now, keys) = (&self.config, self.now, self.rows.len());
        if !self.nonces.accepts(request.seen, config.group, now, config.nonce_memory_ms) {
            return Err(Refusal::Stale);
        }
        check_limit(self.nonces.known.len(), config.nonces_max, Bound::Nonces)?;
        let position = self.last_position + 1;
        let acquisition = Acquisition::new(position, request, now);
        let effect = match self.rows.entry(key) {
            Entry::Vacant(vacant) => {
                check_limit(keys, config.keys_max, Bound::Keys)?;
                self.last_token += 1;
                let holder = Holder::new(acquisition, self.last_token, now);
                let row = Row { holder, queue: BTreeMap::new() };
                let granted = Effect::Granted(row.grant(vacant.key()));
                self.index.add_lease(vacant.key(), &row);
                self.nonces.set(request.nonce, Known::Holds);
                vacant.insert(row);
                granted
            }
            Entry::Occupied(_) if request.wait.is_none() => return Err(Refusal::Held),
            Entry::Occupied(mut entry) => {
                let waiters = entry.get().queue.len();
                check_limit(waiters, config.waiters_per_key_max, Bound::WaitersPerKey)?;
                let deadline = request.wait.deadline(now);
                let key = entry.key().clone();
                self.index.enqueue(&key, entry.get_mut(), Waiter { acquisition, deadline });
                self.nonces.set(request.nonce, Known::Waits { position });
                queued(request)
            }
        };
        self.last_position = position;
        Ok(effect)
    }

    fn unlock(&mut self, key: &Arc<str>, nonce: Nonce, forget: bool, effects: &mut Vec<Effect>) {
        let key = Key::new(key);
        let (known, row) = (self.nonces.get(nonce), self.rows.get_mut(&key));
        let mut unlocked = |was, process| {
            effects.push(Effect::Unlocked { key: key.text.clone(), nonce, process, was });
        };
        match (known, row) {
            (Some(Known::Holds), Some(row)) if row.is_held_by(nonce) => {
                unlocked(PriorState::Held, Some(row.holder.acquisition.process));
                self.end_nonce(nonce, forget);
                self.grant_next(&key, effects);
            }
            (Some(Known::Waits { position }), Some(row)) if row.queue.contains_key(&position) => {
                let waiter = self.index.dequeue(row, position);
                unlocked(PriorState::Waited, Some(waiter.acquisition.process));
                self.end_nonce(nonce, forget);
            }
            (Some(Known::Ended), _) => unlocked(PriorState::Ended, None),
            (known, _) => {
                unlocked(PriorState::Unknown, None);
                if known.is_none() && !forget {
                    self.nonces.withdraw_unknown(nonce, self.now, self.config.nonces_max);
                }
            }
        }
    }

    fn end_nonce(&mut self, nonce: Nonce, forget: bool) {
        if forget {
            self.nonces.forget(nonce);
        } else {
            self.nonces.end(nonce, self.now);
        }
    }

    /// Returns the token and the end of the lease; `None` where this nonce does not hold the key.
    fn extend(
        &mut self,
        key: &Arc<str>,
        nonce: Nonce,
        process: ProcessId,
        duration_ms: u64,
    ) -> Option<(u64, ClusterTime)> {
        let key = Key::new(key);
        let row = self.rows.get_mut(&key).filter(|row| row.is_held_by(nonce))?;
        row.holder.acquisition.process = process;
        let requested = self.now.after(lease_ms(duration_ms));
        if requested > row.holder.expires_at {
            self.index.remove_lease(row);
            row.holder.expires_at = requested;
            self.index.add_lease(&key, row);
        }
        Some((row.holder.token, row.holder.expires_at))
    }

    fn drop_process(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        for (key, position) in self.index.waiters_of(process) {
            self.drop_waiter(&key, position, effects);
        }
    }

    fn drop_expired_waiters(&mut self, effects: &mut Vec<Effect>) {
        while let Some((key, position)) = self.index.expired_waiter(self.now) {
            self.drop_waiter(&key, position, effects);
        }
    }

    fn drop_waiter(&mut self, key: &Key, position: u64, effects: &mut Vec<Effect>) {
        let row = self.rows.get_mut(key).expect(HELD);
        let Acquisition { nonce, process, .. } = self.index.dequeue(row, position).acquisition;
        self.nonces.forget(nonce);
        effects.push(Effect::Dropped { key: key.text.clone(), nonce, process });
    }

    fn end_expired_leases(&mut self, effects: &mut Vec<Effect>) {
        while let Some(key) = self.index.expired_lease(self.now) {
            let Holder { acquisition, token, .. } = &self.rows.get(&key).expect(HELD).holder;
            let Acquisition { nonce, process, .. } = *acquisition;
            let (text, token) = (key.text.clone(), *token);
            self.nonces.end(nonce, self.now);
            effects.push(Effect::Expired { key: text, nonce, process, token });
            self.grant_next(&key, effects);
        }
    }

    /// Ends the hold of a key and grants it to the head of the queue, whose deadline is not
    /// reached: others were dropped before in this step. Without a queue the key leaves the table.
    fn grant_next(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        let row = self.rows.get_mut(key).expect(HELD);
        self.index.remove_lease(row);
        let Some((_, waiter)) = row.queue.pop_first() else {
            self.rows.remove(key);
            return;
        };
        self.index.remove_waiter(&waiter);
        self.last_token += 1;
        row.holder = Holder::new(waiter.acquisition, self.last_token, self.now);
        self.index.add_lease(key, row);
        effects.push(Effect::Granted(row.grant(key)));
        self.nonces.set(row.holder.acquisition.nonce, Known::Holds);
    }
}

const HELD: &str = "a key of the index is held";

fn check_limit(present: usize, limit: u64, what: Bound) -> Result<(), Refusal> {
    if (present as u64) < limit { Ok(()) } else { Err(Refusal::Limit { what, limit }) }
}

fn queued(request: &LockRequest) -> Effect {
    let LockRequest { key, nonce, process, .. } = request;
    Effect::Queued { key: key.clone(), nonce: *nonce, process: *process }
}

fn refused(request: &LockRequest, reason: Refusal) -> Effect {
    let LockRequest { nonce, process, .. } = *request;
    Effect::Refused { nonce, process, reason }
}
