//! The client-side waiter map: what this process has asked for and not yet been answered.
//!
//! Calls, effects and time in; commands to send, answers and losses out. A request is sent again
//! until the log answers it: it is idempotent by its nonce.

mod answers;
mod callers;
mod pending;
mod sending;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use smallvec::SmallVec;

pub(crate) use self::pending::{Answer, Call, CallerId, LockCall, Until};
pub(super) use self::sending::Sending;
use self::{
    callers::Callers,
    pending::{Claim, Held, Item, PendingExtend, PendingLock, PendingUnlock},
};
use crate::{
    Instant, Lock, Nonce,
    client::schedule::{Due, Schedule},
    lock_table::{Ended, Grant, ProcessId},
    planted::{Bug, planted},
};

/// The pause before a LOCK that was refused as stale more than once is sent again.
const RESTATE: Duration = Duration::from_millis(10);

/// How long a withdrawal of a wait-for-ever is repeated beyond its lease: past that, the waiter is
/// dropped with its process.
const FOREVER_GRACE: Duration = Duration::from_secs(3600);

/// For how many locks of a turn the room is kept.
const LOCKS_KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Requests {
    process: ProcessId,
    /// In boxes, as what is held: a neighbour that comes or goes moves the others.
    locks: BTreeMap<Nonce, Box<PendingLock>>,
    callers: BTreeMap<CallerId, Nonce>,
    /// Callers that ask again when they are refused, also while they rest; with the lease (ms).
    retrying: BTreeMap<(Nonce, CallerId), u64>,
    unlocks: BTreeMap<Nonce, PendingUnlock>,
    extends: BTreeMap<u64, PendingExtend>,
    /// Which of them is whose.
    extending: BTreeMap<CallerId, u64>,
    held: BTreeMap<Nonce, Box<Held>>,
    due: Schedule<Item>,
    requests_made: u64,
    answers: Vec<(CallerId, Answer)>,
    lost: Vec<Lock>,
    /// What was unlocked here, and is nobody's loss who knows it.
    ended: Vec<Lock>,
    /// The greatest token of both, since it was last asked for.
    lost_token: u64,
}

impl Requests {
    pub(super) fn new(process: ProcessId) -> Self {
        Self { process, ..Self::default() }
    }

    fn next_request(&mut self) -> u64 {
        self.requests_made += 1;
        self.requests_made
    }

    /// How many requests are under way.
    pub(super) fn len(&self) -> usize {
        self.locks.len() + self.unlocks.len() + self.extends.len()
    }

    /// How many of them the group has not answered, and not let wait.
    pub(super) fn unanswered(&self) -> usize {
        self.due.len()
    }

    pub(super) fn take_answers(&mut self) -> impl ExactSizeIterator<Item = (CallerId, Answer)> {
        self.answers.drain(..)
    }

    pub(super) fn take_lost(&mut self, lose: impl FnMut(Lock)) {
        empty(&mut self.lost, lose);
    }

    pub(super) fn take_ended(&mut self, end: impl FnMut(Lock)) {
        empty(&mut self.ended, end);
    }

    /// The greatest token of what was lost or ended since the last call.
    pub(super) fn take_lost_token(&mut self) -> u64 {
        std::mem::take(&mut self.lost_token)
    }

    fn lose(&mut self, nonce: Nonce, held: &Held) {
        held.revoke_extensions();
        self.lost_token = self.lost_token.max(held.token);
        self.lost.push(held.lock(nonce));
    }

    fn end(&mut self, nonce: Nonce, held: &Held) {
        held.revoke_extensions();
        self.lost_token = self.lost_token.max(held.token);
        self.ended.push(held.lock(nonce));
    }

    pub(super) fn call(&mut self, now: Instant, call: Call) {
        match call {
            Call::Lock { caller, lock } => self.lock(now, caller, lock),
            Call::Cancel { caller, key, nonce } => self.cancel(now, caller, &key, nonce),
            Call::Unlock { caller, key, nonce, until } => {
                self.unlock(now, caller, key, nonce, until);
            }
            Call::Extend { caller, key, nonce, duration_ms } => {
                let id = self.next_request();
                let mut extend = PendingExtend::new(caller, key, nonce, duration_ms);
                self.due.set(Item::Extend(id), &mut extend.due, now);
                self.extends.insert(id, extend);
                self.extending.insert(caller, id);
            }
            Call::GiveUp { caller } => {
                if let Some(id) = self.extending.get(&caller).copied() {
                    let _ = self.take_extend(id);
                }
            }
        }
    }

    /// A LOCK that is pending no longer.
    fn take_lock(&mut self, nonce: Nonce) -> Option<Box<PendingLock>> {
        let mut lock = self.locks.remove(&nonce)?;
        self.due.remove(Item::Lock(nonce), &mut lock.due);
        Some(lock)
    }

    /// An unlock that is pending no longer.
    fn take_unlock(&mut self, nonce: Nonce) -> Option<PendingUnlock> {
        let mut unlock = self.unlocks.remove(&nonce)?;
        self.due.remove(Item::Unlock(nonce), &mut unlock.due);
        Some(unlock)
    }

    /// An extension that is pending no longer.
    fn take_extend(&mut self, id: u64) -> Option<PendingExtend> {
        let mut extend = self.extends.remove(&id)?;
        self.extending.remove(&extend.caller);
        self.due.remove(Item::Extend(id), &mut extend.due);
        Some(extend)
    }

    fn lock(&mut self, now: Instant, caller: CallerId, call: LockCall) {
        let nonce = call.nonce;
        if self.unlocks.contains_key(&nonce) {
            // Its withdrawal or unlock is under way: whatever it gets now, it will not keep.
            return self.refuse_as_spent(caller, nonce);
        }
        if let Some(pending) = self.locks.get(&nonce) {
            // One nonce names one acquisition: it cannot take a second key.
            if pending.call.key != call.key {
                return self.refuse_as_spent(caller, nonce);
            }
            if pending.queued && call.until == Until::Now {
                return self.answers.push((caller, Answer::Held));
            }
        }
        self.callers.insert(caller, nonce);
        if call.retries {
            self.retrying.insert((nonce, caller), call.duration_ms);
        }
        let pending = match self.locks.entry(nonce) {
            Entry::Occupied(entry) => {
                let pending = entry.into_mut();
                pending.callers.insert(caller, call.until == Until::Now);
                pending.call.until = pending.call.until.later(call.until);
                pending
            }
            Entry::Vacant(entry) => {
                self.requests_made += 1;
                entry.insert(Box::new(PendingLock::new(call, caller, self.requests_made)))
            }
        };
        // Sent also where the nonce is pending: the later deadline must reach the table.
        self.due.set(Item::Lock(nonce), &mut pending.due, now);
    }

    /// The caller cannot have its nonce, and asks no more with it, also where it rested before.
    fn refuse_as_spent(&mut self, caller: CallerId, nonce: Nonce) {
        self.retrying.remove(&(nonce, caller));
        self.answers.push((caller, Answer::Spent));
    }

    /// The caller has gone: withdraws its request, or passes on what it was granted, unless
    /// another caller of the same nonce remains.
    fn cancel(&mut self, now: Instant, caller: CallerId, key: &Arc<str>, nonce: Nonce) {
        let retried = self.retrying.remove(&(nonce, caller));
        if self.callers.remove(&caller).is_some() {
            let Some(pending) = self.locks.get_mut(&nonce) else { return };
            pending.callers.remove(caller);
            if !pending.callers.is_empty() {
                return;
            }
            let pending = self.take_lock(nonce).expect("it was just found");
            // Whoever has it, or rests before asking for it again, gives it back himself.
            let wanted = self.held.contains_key(&nonce) || self.asks_again(nonce);
            if pending.sends > 0 && !wanted {
                let until = withdrawal_end(now, &pending.call);
                self.unlock(now, None, key.clone(), nonce, until);
            }
        } else if let Some(held) = self.held.get_mut(&nonce)
            && held.receivers.remove(caller).is_some()
            && held.receivers.is_empty()
        {
            let until = now.after(Duration::from_millis(held.duration_ms));
            self.unlock(now, None, key.clone(), nonce, until);
        } else if let Some(lease) = retried
            && !self.knows(nonce)
        {
            // Refused so far; a copy of its LOCK may still be under way.
            self.unlock(now, None, key.clone(), nonce, now.after(Duration::from_millis(lease)));
        }
    }

    /// Whether the nonce is asked for, held or being given back here, or will be asked for again.
    fn knows(&self, nonce: Nonce) -> bool {
        self.locks.contains_key(&nonce)
            || self.held.contains_key(&nonce)
            || self.unlocks.contains_key(&nonce)
            || self.asks_again(nonce)
    }

    /// Whether somebody here asks for the nonce whenever it is refused.
    fn asks_again(&self, nonce: Nonce) -> bool {
        let mut retrying = self.retrying.range((nonce, CallerId::MIN)..=(nonce, CallerId::MAX));
        retrying.next().is_some()
    }

    fn unlock(
        &mut self,
        now: Instant,
        caller: Option<CallerId>,
        key: Arc<str>,
        nonce: Nonce,
        until: Instant,
    ) {
        let forget = self.held.get(&nonce).is_some_and(|held| held.sole);
        let pending = self.unlocks.entry(nonce).or_insert_with(|| PendingUnlock {
            key,
            callers: SmallVec::new(),
            forget,
            sends: 0,
            until,
            due: Due::default(),
        });
        pending.callers.extend(caller);
        pending.until = pending.until.max(until);
        if pending.sends == 0 {
            self.due.set(Item::Unlock(nonce), &mut pending.due, now);
        }
    }

    /// Answers every lock request that has not been granted, because no group will take them.
    pub(super) fn refuse_locks(&mut self, answer: &Answer) {
        let nonces: Vec<Nonce> = self.locks.keys().copied().collect();
        for nonce in nonces {
            self.end_lock(nonce, answer);
        }
    }

    /// Withdraws every lock request, and passes on what was granted and not yet taken by a caller:
    /// this process closes.
    pub(super) fn withdraw_all(&mut self, now: Instant) {
        let waiting: Vec<(CallerId, Nonce)> = self.callers.iter().map(|(c, n)| (*c, *n)).collect();
        for (caller, nonce) in waiting {
            if let Some(key) = self.locks.get(&nonce).map(|pending| pending.call.key.clone()) {
                self.cancel(now, caller, &key, nonce);
            }
        }
        self.extending.clear();
        for (id, mut extend) in std::mem::take(&mut self.extends) {
            self.due.remove(Item::Extend(id), &mut extend.due);
        }
        let revoked = |held: &Held| {
            let all = held.receivers.known().all(Claim::revoke);
            all && !held.receivers.is_empty()
        };
        let untaken: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| revoked(held))
            .map(|(nonce, held)| {
                (*nonce, held.key.clone(), now.after(Duration::from_millis(held.duration_ms)))
            })
            .collect();
        for (nonce, key, until) in untaken {
            self.unlock(now, None, key, nonce, until);
        }
    }

    /// This process left its group as `process`: everything it held is lost, also what no caller has
    /// taken yet, unlocks are moot, and what is pending will be asked of the next group.
    pub(super) fn left_group(&mut self, now: Instant, process: ProcessId) {
        self.process = process;
        for (nonce, held) in std::mem::take(&mut self.held) {
            for claim in held.receivers.known() {
                claim.revoke();
            }
            self.lose(nonce, &held);
        }
        for (nonce, mut pending) in std::mem::take(&mut self.unlocks) {
            self.due.remove(Item::Unlock(nonce), &mut pending.due);
            let asked_before = pending.sends > 0;
            let answer = Answer::Unlocked { was: Ended::Unknown, asked_before };
            self.answers.extend(pending.callers.into_iter().map(|c| (c, answer.clone())));
        }
        self.extending.clear();
        for (id, mut pending) in std::mem::take(&mut self.extends) {
            self.due.remove(Item::Extend(id), &mut pending.due);
            let claim = Claim::default();
            self.answers.push((pending.caller, Answer::Extended { token: None, sent: now, claim }));
        }
        for pending in self.locks.values_mut() {
            // The old group's frames do not reach the new one.
            (pending.sends, pending.over_channel, pending.first_sent) = (0, false, None);
        }
        self.ask_again(now, true);
    }

    /// Drops holds that the table, restored from a snapshot, does not grant any more.
    pub(super) fn keep_held(&mut self, granted: impl Fn(&str) -> Option<Grant>) {
        let gone = |nonce: &Nonce, held: &mut Box<Held>| {
            let same = granted(&held.key).is_some_and(|grant| grant.is_of(&held.lock(*nonce)));
            !same || planted(Bug::SnapshotLosesHeld)
        };
        let lost: Vec<(Nonce, Box<Held>)> = self.held.extract_if(.., gone).collect();
        for (nonce, held) in lost {
            self.lose(nonce, &held);
        }
    }
}

/// Until when a withdrawal is repeated: past it, the lease that it would end is over.
fn withdrawal_end(now: Instant, call: &LockCall) -> Instant {
    let lease = Duration::from_millis(call.duration_ms);
    match call.until {
        Until::Never => now.after(FOREVER_GRACE).after(lease),
        Until::Now => now.after(lease),
        Until::At(end) => end.max(now).after(lease),
    }
}

fn empty(locks: &mut Vec<Lock>, take: impl FnMut(Lock)) {
    locks.drain(..).for_each(take);
    locks.shrink_to(LOCKS_KEPT);
}
