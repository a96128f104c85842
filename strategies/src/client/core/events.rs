//! The effect of each event on pending requests and held locks.

use std::{sync::Arc, time::Duration};

use super::{Core, HeldLock, Link, Op, Request, pending::check_interval};
use crate::{
    client::{
        backend::Cause,
        backoff::back_off,
        calls::{CallId, Output, Query, Reply, RequestId, Until},
        commands::{Event, Fate, ServerState},
    },
    clock::Instant,
    deadline::{extended_deadline, granted_deadline},
    error::Error,
    lock::{Lock, Nonce},
};

/// The pause before a LOCK that was refused as stale more than once is sent again: the time that
/// the backend knows must move on first.
const STALE_PAUSE: Duration = Duration::from_millis(10);

/// Stands for the process and the reason, which the log of a group does not record.
const ELSEWHERE: &str = "another process";

impl Core {
    /// Takes an event of the granting side.
    pub fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Granted { nonce, key, token, waited, lease } => {
                self.granted(now, nonce, key, token, (waited, lease));
            }
            Event::Queued { nonce, holder_lease } => self.queued(now, nonce, holder_lease),
            Event::MinCheckInterval(shortest) => self.min_check_interval = shortest,
            Event::Held { nonce } => self.refused(now, nonce, || Reply::Held),
            Event::Ended { nonce } => self.refused(now, nonce, || Reply::Ended),
            Event::Stale { nonce } => self.stale(now, nonce),
            Event::Forgotten { nonce } => self.forgotten(now, nonce),
            Event::Unlocked { nonce, held } => self.unlocked(now, nonce, held),
            Event::Extended { id, token, .. } => self.extended(now, id, token),
            Event::Inspected { id, found } => {
                let found = found.map_err(|cause| cause.to_error());
                self.complete_query(id, Reply::Inspected(found));
            }
            Event::Scanned { id, keys, next } => {
                self.complete_query(id, Reply::Scanned { keys, next });
            }
            Event::Unconfirmed { nonce, cause } => {
                if let Some(request) = self.pending.get(RequestId::Lock(nonce)) {
                    request.sends.delayed(cause);
                }
            }
            Event::Unsafe { nonce, cause } => self.unsafe_grant(now, nonce, &cause),
            Event::Limit { nonce, what, limit } => {
                self.refused(now, nonce, || Reply::Failed(Error::Limit { what, limit }));
            }
            Event::Failed { request, fate, cause } => self.failed(now, request, fate, &cause),
            Event::Lost { nonce, key, token, forced } => {
                // The key may have been granted to a former process under a waiter's nonce: the
                // waiter is queued again.
                self.forgotten(now, nonce);
                self.lost(Lock::new(key, nonce, token, None), forced);
            }
            Event::Down { cause } => self.went_down(now, cause),
            Event::Reconnecting { cause } => self.link = Link::Down(Some(cause)),
            Event::Up { state } => self.came_up(now, state),
        }
    }

    /// `waited` and `lease` are the granting side's, as the event has them.
    fn granted(
        &mut self,
        now: Instant,
        nonce: Nonce,
        key: Arc<str>,
        token: u64,
        (waited, lease): (Duration, Duration),
    ) {
        let Some(request) = self.pending.take(RequestId::Lock(nonce)) else {
            if let Some(former) = self.held.get(nonce).filter(|held| held.token < token) {
                // The granting side has forgotten the lock, and granted a late copy of its LOCK.
                let former = former.lock(nonce);
                self.lost(former, None);
            }
            // A caller was given the smaller tokens, and may have extended or transferred its lock.
            if !nonce.is_given() && !self.knows(nonce) && token > self.held.greatest_token() {
                // A late copy of a LOCK that got another reply: frees the key.
                let ghost = Lock::new(key, nonce, token, None);
                self.unlock(now, ghost, now.after(lease), true);
            }
            return;
        };
        if self.unsafe_keys.remove(&key) {
            // The replicas are back: calls that wait on wait for a holder.
            self.mark_unsafe(&key, None);
        }
        let id = request.lock_call().id;
        let sent = request.sends.first_sent().unwrap_or(now);
        let sent = self.given.first(nonce).map_or(sent, |first| first.min(sent));
        let deadline = granted_deadline(sent, now, waited, lease, self.profile.drift);
        let lock = Lock::new(key, nonce, token, Some(deadline));
        let sole = !request.sends.has_copies();
        let delivery = self.held.granted(now, &lock, sole);
        self.reply(id, Reply::Granted { lock, delivery });
    }

    /// The granting side has queued a LOCK.
    fn queued(&mut self, now: Instant, nonce: Nonce, holder_lease: Option<Duration>) {
        let Self { profile, rng, pending, min_check_interval, .. } = self;
        pending.enqueued(now, RequestId::Lock(nonce), |lease| {
            let longest = profile.check_every?;
            // A third of the lease, so that a lost grant is found early, where the interval allows it.
            Some(check_interval(
                holder_lease,
                (lease / 3).min(longest).max(*min_check_interval),
                rng,
            ))
        });
    }

    /// Too few replicas have a grant. A call that waits retries under another nonce, and has this
    /// cause if it ends in vain. So have the others that wait for the key here.
    fn unsafe_grant(&mut self, now: Instant, nonce: Nonce, cause: &Cause) {
        let id = RequestId::Lock(nonce);
        let Some(key) = self.pending.get(id).map(|it| it.lock_call().key.clone()) else { return };
        self.mark_unsafe(&key, Some(cause));
        if self.pending.len() == 1 {
            self.unsafe_keys.clear();
        }
        self.unsafe_keys.insert(key);
        self.withdraw(now, id, |request| match request.repeats_after(Fate::Refused) {
            true => Reply::Unsafe(cause.clone()),
            false => Reply::Failed(cause.to_error()),
        });
    }

    /// Sets why the calls that wait for `key` here may end in vain.
    fn mark_unsafe(&mut self, key: &Arc<str>, cause: Option<&Cause>) {
        let waits = |it: &Request| matches!(&it.op, Op::Lock(lock) if lock.call.key == *key);
        for id in self.pending.ids(waits) {
            if let Some(request) = self.pending.get(id) {
                request.lock_op().call.unsafe_grant = cause.cloned();
            }
        }
    }

    /// The granting side refused a LOCK: only earlier copies of it may still take the key.
    fn refused(&mut self, now: Instant, nonce: Nonce, reply: impl Fn() -> Reply) {
        let id = RequestId::Lock(nonce);
        self.pending.dequeued(id);
        if let Some(request) = self.pending.get(id) {
            request.sends.replied();
            self.withdraw(now, id, |_| reply());
        }
    }

    fn stale(&mut self, now: Instant, nonce: Nonce) {
        let id = RequestId::Lock(nonce);
        let Some(request) = self.pending.get(id).filter(|request| !request.is_queued()) else {
            return;
        };
        request.sends.replied();
        let again = request.mark_stale();
        self.pending.schedule(id, if again { now.after(STALE_PAUSE) } else { now });
    }

    /// Queues the waiter again, behind later ones. A waiter whose time is over ends with its call.
    fn forgotten(&mut self, now: Instant, nonce: Nonce) {
        let id = RequestId::Lock(nonce);
        let waits = self.pending.dequeued(id).map(|request| request.lock_call().until);
        if waits.is_some_and(|until| !matches!(until, Until::At(at) if at <= now)) {
            self.pending.schedule(id, now);
        }
    }

    fn unlocked(&mut self, now: Instant, nonce: Nonce, was_held: bool) {
        let held = self.held.remove(nonce);
        let mut request = self.pending.take(RequestId::Unlock(nonce));
        // By an operator, or by another process to which the lock was transferred.
        let is_elsewhere =
            request.as_ref().is_none_or(|own| was_held && !own.sends.may_have_arrived());
        if let Some(held) = held {
            let forced = request.as_mut().and_then(|request| request.take_forced());
            match (is_elsewhere, forced) {
                (true, _) => self.lose(nonce, &held, Some(ELSEWHERE.into())),
                (false, Some(note)) => self.lose(nonce, &held, Some(note)),
                (false, None) => {
                    let was_taken = !held.lose();
                    // A dropped guard reports nothing more. A loss by the deadline or by a close
                    // was noted before.
                    let is_of_dropped_guard = |own: &Request| {
                        !own.has_callers()
                            && !own.sends.is_unsettled()
                            && self.close_deadline.is_none()
                    };
                    let is_loss = !was_held
                        && was_taken
                        && now < held.deadline
                        && request.as_deref().is_some_and(is_of_dropped_guard);
                    self.outputs.push(Output::Released { lock: held.lock(nonce), is_loss });
                }
            }
        }
        if let Some(request) = request {
            self.reply_to_all(&request, || request.unlocked(was_held && !is_elsewhere));
        }
    }

    fn extended(&mut self, now: Instant, id: CallId, token: Option<u64>) {
        let Some(request) = self.pending.take(RequestId::Query(id)) else { return };
        let sent = request.sends.first_sent().unwrap_or(now);
        let Op::Query(_, Query::Extend { lock, lease }) = request.op else {
            unreachable!("another query has no reply of an extension")
        };
        // With another token it is a later acquisition, which this lock is not.
        let reply = if token == Some(lock.fencing_token()) {
            let deadline = extended_deadline(lock.deadline(), sent, lease, self.profile.drift);
            Reply::Extended { sent, delivery: self.held.extended(now, &lock, deadline) }
        } else {
            self.lost(lock, None);
            Reply::NotHeld
        };
        self.reply(id, reply);
    }

    /// Completes an inspection or a scan.
    fn complete_query(&mut self, id: CallId, reply: Reply) {
        if self.pending.take(RequestId::Query(id)).is_some() {
            self.reply(id, reply);
        }
    }

    fn failed(&mut self, now: Instant, id: RequestId, fate: Fate, cause: &Cause) {
        let (id, is_check) = match id {
            RequestId::WaiterCheck(nonce) => (RequestId::Lock(nonce), true),
            RequestId::HeldCheck(_) => return self.held_check_failed(now, cause),
            other => (other, false),
        };
        if let RequestId::Lock(nonce) = id
            && !is_check
            && let Some(withdrawal) = self.pending.get(RequestId::Unlock(nonce))
        {
            if fate == Fate::NoReply {
                // The LOCK may arrive after its withdrawal.
                withdrawal.unlock_op().copies = true;
            }
            return;
        }
        let Some(request) = self.pending.get(id).filter(|it| it.is_queued() == is_check) else {
            return;
        };
        if let Op::Query(_, Query::Extend { lock, .. }) = &request.op {
            let (lock, cause) = (lock.clone(), cause.clone());
            self.outputs.push(Output::Unextended { lock, cause });
        }
        // A check that arrived twice has no effect.
        let fate = if is_check { Fate::Refused } else { fate };
        let failures = request.sends.failed(fate, cause.clone());
        if (is_check || request.repeats_after(fate)) && !cause.is_permanent() {
            self.pending.schedule(id, now.after(back_off(&mut self.rng, failures)));
        } else {
            self.withdraw(now, id, |request| Reply::Failed(request.failure(cause)));
        }
    }

    /// Checks all held locks again, unless that is of no use.
    fn held_check_failed(&mut self, now: Instant, cause: &Cause) {
        if !cause.is_permanent() {
            let again = now.after(back_off(&mut self.rng, u32::MAX));
            self.held_check_at.get_or_insert(again);
        }
    }

    fn went_down(&mut self, now: Instant, cause: Option<Cause>) {
        if let Some(cause) = &cause {
            for id in self.pending.ids(|request| request.needs_connection()) {
                self.withdraw(now, id, |request| Reply::Failed(request.failure(cause)));
            }
        }
        self.link = Link::Down(cause);
    }

    fn came_up(&mut self, now: Instant, state: ServerState) {
        self.link = Link::Up;
        match state {
            ServerState::Same => {}
            ServerState::MissedEvents => self.check_all(now),
            ServerState::Replaced => self.lose_all(now),
        }
        for id in self.pending.ids(|request| !request.is_queued()) {
            self.pending.schedule(id, now);
        }
    }

    /// Events may be lost: checks every waiter and every held lock.
    fn check_all(&mut self, now: Instant) {
        for id in self.pending.ids(|request| request.is_queued()) {
            self.pending.schedule(id, now);
        }
        self.held_check_at = Some(now);
    }

    /// Another granting side has taken over: all former grants are void, and no copy of an earlier
    /// request arrives there. Or it is the same, to which this process is new.
    fn lose_all(&mut self, now: Instant) {
        self.lose_held();
        for id in self.pending.ids(|_| true) {
            self.pending.dequeued(id);
            let Some(request) = self.pending.get(id) else { continue };
            match (id, &request.op) {
                (RequestId::Unlock(nonce), _) => {
                    request.sends.orphaned();
                    self.unlocked(now, nonce, false);
                }
                (_, &Op::Query(id, Query::Extend { .. })) => self.extended(now, id, None),
                (_, Op::Lock(_)) => request.sends.reset(),
                _ => {}
            }
        }
    }

    fn lost(&mut self, mut lock: Lock, forced: Option<Arc<str>>) {
        let (nonce, token) = (lock.nonce(), lock.fencing_token());
        let unlock = self.pending.get(RequestId::Unlock(nonce));
        let is_dropped = unlock.is_some_and(|unlock| !unlock.has_callers());
        // The loss of a dropped guard's lock is counted by the reply to its UNLOCK.
        if !is_dropped && let Some(held) = self.held.remove_up_to(nonce, token) {
            held.lose();
            lock = lock.with_deadline(held.deadline);
        }
        self.outputs.push(Output::Lost { lock, forced });
    }

    fn lose_held(&mut self) {
        for (nonce, held) in self.held.take_all() {
            self.lose(nonce, &held, None);
        }
    }

    fn lose(&mut self, nonce: Nonce, held: &HeldLock, forced: Option<Arc<str>>) {
        held.lose();
        self.outputs.push(Output::Lost { lock: held.lock(nonce), forced });
    }
}
