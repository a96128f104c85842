//! What the log answered, and what it makes of what is pending.

use std::time::Duration;

use super::{
    Answer, Callers, Claim, Held, Item, PendingExtend, PendingLock, RESTATE, Requests, Until,
    withdrawal_end,
};
use crate::{
    Instant, Nonce,
    lock_table::{Effect, Ended, Grant, Refusal},
    planted::{Bug, planted},
};

impl Requests {
    /// Whether this process unlocks what another holds.
    pub(in crate::member) fn unlocks_for_another(&self, nonce: Nonce) -> bool {
        let own = self.held.get(&nonce).is_some_and(|held| !held.adopted);
        self.unlocks.contains_key(&nonce) && !own
    }

    /// Takes what the log did.
    pub(in crate::member) fn observe(&mut self, now: Instant, effect: &Effect) {
        match effect {
            Effect::Granted(grant) => {
                if grant.process == self.process {
                    self.granted(now, grant);
                }
                self.place_has_gone(now, grant.nonce);
            }
            Effect::Queued { nonce, process, request, .. } if *process == self.process => {
                self.queued(now, *nonce, *request);
            }
            Effect::Dropped { nonce, .. } => self.place_has_gone(now, *nonce),
            Effect::Refused { nonce, process, request, reason } if *process == self.process => {
                self.refused(now, *nonce, *request, *reason);
            }
            Effect::Unlocked { key, nonce, was, .. } => {
                self.unlocked(key, *nonce, *was);
                self.place_has_gone(now, *nonce);
            }
            Effect::Extended { process, request, held, .. } if *process == self.process => {
                if let Some(pending) = self.take_extend(*request) {
                    let sent = pending.first_sent.unwrap_or(now);
                    let (caller, claim) = (pending.caller, Claim::default());
                    if let Some((token, _)) = held {
                        self.extended(pending, *token, claim.clone());
                    }
                    let token = held.map(|(token, _)| token);
                    let answer = Answer::Extended { token, sent, claim };
                    self.answers.push((caller, answer));
                }
            }
            Effect::Expired { nonce, .. } => {
                if let Some(held) = self.held.remove(nonce) {
                    self.lose(*nonce, &held);
                }
            }
            _ => {}
        }
    }

    /// Who extends a lock counts on it, also where another process was granted it.
    fn extended(&mut self, extend: PendingExtend, token: u64, claim: Claim) {
        let PendingExtend { key, nonce, duration_ms, .. } = extend;
        self.lose_former(nonce, token);
        let held = self.held.entry(nonce).or_insert_with(|| {
            Box::new(Held {
                sole: false,
                token,
                adopted: true,
                duration_ms,
                key,
                receivers: Callers::default(),
                extensions: Vec::new(),
            })
        });
        held.extensions.retain(Claim::is_open);
        held.extensions.push(claim);
    }

    fn queued(&mut self, now: Instant, nonce: Nonce, request: u64) {
        let Some(pending) = self.asked_by(nonce, request) else { return };
        if pending.call.until == Until::Now {
            // Another process waits with this nonce; these callers do not wait.
            return self.end_lock(nonce, &Answer::Held);
        }
        pending.queued = true;
        let pending = self.locks.get_mut(&nonce).expect("it was just found");
        self.due.remove(Item::Lock(nonce), &mut pending.due);
        self.end_tries(now, nonce);
    }

    /// The LOCK waits for others of its nonce: whoever only tries finds the key held. Where those who
    /// would wait have gone, nobody wants it.
    fn end_tries(&mut self, now: Instant, nonce: Nonce) {
        let Some(pending) = self.locks.get_mut(&nonce) else { return };
        let tries = pending.callers.extract(|tries| *tries);
        let wanted = !pending.callers.is_empty();
        for (caller, _) in tries {
            self.callers.remove(&caller);
            self.answers.push((caller, Answer::Held));
        }
        if !wanted && let Some(pending) = self.take_lock(nonce) {
            let until = withdrawal_end(now, &pending.call);
            self.unlock(now, None, pending.call.key, nonce, until);
        }
    }

    /// The request that is pending for this nonce, if this is an answer to it. A late copy of an
    /// earlier LOCK of the nonce may have been stamped before this one was sent: counted from
    /// this send, the lease that it began would seem to last too long.
    fn asked_by(&mut self, nonce: Nonce, request: u64) -> Option<&mut PendingLock> {
        let any = planted(Bug::AnswerToAnyCopy);
        let pending = self.locks.get_mut(&nonce)?;
        (any || pending.request == request).then_some(&mut **pending)
    }

    fn granted(&mut self, now: Instant, grant: &Grant) {
        if self.asked_by(grant.nonce, grant.request).is_none() {
            return self.pass_on_ghost(now, grant);
        }
        let pending = self.take_lock(grant.nonce).expect("it was just found");
        self.lose_former(grant.nonce, grant.token);
        let held = self.held.entry(grant.nonce).or_insert_with(|| {
            Box::new(Held {
                sole: pending.call.unused && pending.sends == 1 && !pending.over_channel,
                token: grant.token,
                adopted: false,
                duration_ms: pending.call.duration_ms,
                key: grant.key.clone(),
                receivers: Callers::default(),
                extensions: Vec::new(),
            })
        });
        // A grant that was there before this LOCK of a given nonce may be in other hands, which
        // these callers must not empty when they go.
        let found = !pending.call.drawn && grant.asked_at > grant.granted_at;
        let sent = pending.first_sent.unwrap_or(now);
        for (caller, _) in pending.callers {
            self.callers.remove(&caller);
            self.retrying.remove(&(grant.nonce, caller));
            let claim = Claim::default();
            // Where callers of this process have it, these share it with them.
            if !found || !held.receivers.is_empty() {
                held.receivers.insert(caller, claim.clone());
            }
            let answer = Answer::Granted { grant: grant.clone(), sent, received: now, claim };
            self.answers.push((caller, answer));
        }
    }

    /// Loses a former acquisition of the nonce, whose end a snapshot has swallowed.
    fn lose_former(&mut self, nonce: Nonce, token: u64) {
        let former = self.held.extract_if(nonce..=nonce, |_, held| held.token != token).next();
        if let Some((_, former)) = former {
            self.lose(nonce, &former);
        }
    }

    /// Something was granted that nobody here waits for or holds: a late copy of a LOCK that was
    /// answered otherwise. The key goes on to the next at once.
    fn pass_on_ghost(&mut self, now: Instant, grant: &Grant) {
        // Pending under a newer request, or about to be: its own answer comes.
        if !self.knows(grant.nonce) {
            let lease = Duration::from_millis(grant.expires_at.since(grant.granted_at));
            self.unlock(now, None, grant.key.clone(), grant.nonce, now.after(lease));
        }
    }

    /// The nonce waits no longer. Its caller's own timer ends a wait that is over; otherwise this process
    /// was taken for dead, and queues again at the tail, or another that uses the nonce was answered, and
    /// this one asks for itself.
    fn place_has_gone(&mut self, now: Instant, nonce: Nonce) {
        let Some(pending) = self.locks.get_mut(&nonce).filter(|pending| pending.queued) else {
            return;
        };
        pending.queued = false;
        if !pending.call.until.is_over(now) {
            self.due.set(Item::Lock(nonce), &mut pending.due, now);
        }
    }

    fn refused(&mut self, now: Instant, nonce: Nonce, request: u64, reason: Refusal) {
        let Some(pending) = self.asked_by(nonce, request) else { return };
        let waits = pending.call.until != Until::Now;
        let answer = match reason {
            Refusal::Stale { .. } => {
                // Repeated at once, with the time that this process has seen by now. Where that was
                // no newer (the table's floor stands at the present time), cluster time must move
                // on first.
                if let Some(pending) = self.locks.get_mut(&nonce) {
                    let again = std::mem::replace(&mut pending.stale, true);
                    let at = if again { now.after(RESTATE) } else { now };
                    self.due.set(Item::Lock(nonce), &mut pending.due, at);
                }
                return;
            }
            // Of a LOCK that did not wait, before others of its nonce came who do: they ask anew.
            Refusal::Held if waits => return self.end_tries(now, nonce),
            Refusal::Held => Answer::Held,
            Refusal::Spent(_) => Answer::Spent,
            Refusal::Limit { what, limit } => Answer::Limit { what: what.name(), limit },
        };
        self.end_lock(nonce, &answer);
    }

    fn unlocked(&mut self, key: &str, nonce: Nonce, was: Ended) {
        // Once forgotten, a nonce may be granted for another key.
        let held = self.held.extract_if(nonce..=nonce, |_, held| *held.key == *key).next();
        let held = held.map(|(_, held)| held);
        match self.take_unlock(nonce) {
            Some(pending) => {
                // Others in this process may rely on it.
                if let Some(held) = held {
                    self.end(nonce, &held);
                }
                let answer = Answer::Unlocked { was, asked_before: pending.sends > 1 };
                let callers = pending.callers.into_iter();
                self.answers.extend(callers.map(|caller| (caller, answer.clone())));
            }
            // Another process, to which the lock was handed, has unlocked it.
            None => {
                if let Some(held) = held {
                    self.lose(nonce, &held);
                }
            }
        }
        // A lock of this nonce that is still pending learns its fate from its own answer.
    }

    pub(super) fn end_lock(&mut self, nonce: Nonce, answer: &Answer) {
        let Some(pending) = self.take_lock(nonce) else { return };
        for (caller, _) in pending.callers {
            self.callers.remove(&caller);
            if !matches!(answer, Answer::Held) {
                self.retrying.remove(&(nonce, caller));
            }
            self.answers.push((caller, answer.clone()));
        }
    }
}
