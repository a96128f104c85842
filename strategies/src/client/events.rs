//! The effect of each event on pending requests and held locks.

use std::{sync::Arc, time::Duration};

use super::{
    call::{CallId, Output, Query, Reply, Until},
    command::{Cause, Event, Fate, Link, Memory, Subject},
    core::Core,
    held::Held,
    pace::back_off,
    request::{Kind, Request},
};
use crate::{Error, Instant, Lock, Nonce, extended_deadline, granted_deadline};

/// The pause before a LOCK that was refused as stale more than once is sent again: the time that
/// the backend knows must move on first.
const STALE_PAUSE: Duration = Duration::from_millis(10);

/// Where the log of a group does not say who unlocked a lock and why.
const ELSEWHERE: &str = "another process";

impl Core {
    /// Takes an event of the granting side.
    pub(crate) fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Granted { nonce, key, token, waited, lease } => {
                self.granted(now, nonce, key, token, (waited, lease));
            }
            Event::Queued { nonce, check_in } => self.requests.enqueued(now, nonce, check_in),
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
                if let Some(request) = self.requests.get(Subject::Lock(nonce)) {
                    request.attempts.delayed(cause);
                }
            }
            Event::Unsafe { nonce, cause } => self.taken_back(now, nonce, &cause),
            Event::Limit { nonce, what, limit } => {
                self.refused(now, nonce, || Reply::Failed(Error::Limit { what, limit }));
            }
            Event::Failed { of, fate, cause } => self.failed(now, of, fate, &cause),
            Event::Unchecked { cause } => {
                if !cause.is_permanent() {
                    let again = now.after(back_off(&mut self.ids, u32::MAX));
                    self.hold_check_at.get_or_insert(again);
                }
            }
            Event::Lost { nonce, key, token, forced } => {
                // The key may have been granted to a former process under a waiter's nonce: the
                // waiter is queued again.
                self.forgotten(now, nonce);
                self.lost(Lock::new(key, nonce, token, None), forced);
            }
            Event::Down { cause } => self.went_down(now, cause),
            Event::Reconnecting { cause } => self.link = Link::Down(Some(cause)),
            Event::Up { memory } => self.came_up(now, memory),
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
        let Some(mut request) = self.requests.take(Subject::Lock(nonce)) else {
            // A caller was given the smaller tokens, and may have extended or transferred its lock.
            if !self.knows(nonce) && token > self.held.greatest_token() {
                // A late copy of a LOCK that got another reply: frees the key.
                let ghost = Lock::new(key, nonce, token, None);
                self.release(now, ghost, now.after(lease), true);
            }
            return;
        };
        if self.withdrawn.remove(&key) {
            // The replicas are back: calls that wait on wait for a holder.
            self.mark_withdrawn(&key, None);
        }
        let id = request.lock().call.id;
        let sent = request.attempts.first_sent().unwrap_or(now);
        let deadline = granted_deadline(sent, now, waited, lease, self.profile.drift);
        let lock = Lock::new(key, nonce, token, Some(deadline));
        let sole = !request.attempts.has_copies();
        let delivery = self.held.granted(now, &lock, sole);
        self.reply(id, Reply::Granted { lock, delivery });
    }

    /// Too few replicas have a grant. A call that waits retries under another nonce, and has this
    /// cause if it ends in vain. So have the others that wait for the key here.
    fn taken_back(&mut self, now: Instant, nonce: Nonce, cause: &Cause) {
        let of = Subject::Lock(nonce);
        let Some(key) = self.requests.get(of).map(|it| it.lock().call.key.clone()) else { return };
        self.mark_withdrawn(&key, Some(cause));
        if self.requests.len() == 1 {
            self.withdrawn.clear();
        }
        self.withdrawn.insert(key);
        self.end(now, of, |request| match request.repeats_after(Fate::Refused) {
            true => Reply::TakenBack(cause.clone()),
            false => Reply::Failed(cause.to_error()),
        });
    }

    /// Sets why the calls that wait for `key` here may end in vain.
    fn mark_withdrawn(&mut self, key: &Arc<str>, cause: Option<&Cause>) {
        let waits = |it: &Request| matches!(&it.kind, Kind::Lock(lock) if lock.call.key == *key);
        for of in self.requests.subjects(waits) {
            if let Some(request) = self.requests.get(of) {
                request.lock().call.taken_back = cause.cloned();
            }
        }
    }

    /// The granting side refused a LOCK: only earlier copies of it may still take the key.
    fn refused(&mut self, now: Instant, nonce: Nonce, reply: impl Fn() -> Reply) {
        let of = Subject::Lock(nonce);
        self.requests.dequeued(of);
        if let Some(request) = self.requests.get(of) {
            request.attempts.replied();
            self.end(now, of, |_| reply());
        }
    }

    fn stale(&mut self, now: Instant, nonce: Nonce) {
        let of = Subject::Lock(nonce);
        let Some(request) = self.requests.get(of).filter(|request| !request.is_queued()) else {
            return;
        };
        request.attempts.replied();
        let again = std::mem::replace(&mut request.lock().stale, true);
        self.requests.schedule(of, if again { now.after(STALE_PAUSE) } else { now });
    }

    /// Queues the waiter again, behind later ones. A waiter whose time is over ends with its call.
    fn forgotten(&mut self, now: Instant, nonce: Nonce) {
        let of = Subject::Lock(nonce);
        let waits = self.requests.dequeued(of).map(|request| request.lock().call.until);
        if waits.is_some_and(|until| !matches!(until, Until::At(at) if at <= now)) {
            self.requests.schedule(of, now);
        }
    }

    fn unlocked(&mut self, now: Instant, nonce: Nonce, was_held: bool) {
        let held = self.held.remove(nonce);
        let mut request = self.requests.take(Subject::Unlock(nonce));
        // By an operator, or by another process to which the lock was transferred.
        let is_elsewhere =
            request.as_ref().is_none_or(|own| was_held && !own.attempts.may_have_arrived());
        if let Some(held) = held {
            let forced = request.as_mut().and_then(|request| request.release_mut().forced.take());
            match (is_elsewhere, forced) {
                (true, _) => self.lose(nonce, &held, Some(ELSEWHERE.into())),
                (false, Some((_, note))) => self.lose(nonce, &held, Some(note)),
                (false, None) => {
                    let was_taken = !held.lose();
                    // A dropped guard reports nothing more. A loss by the deadline or by a close
                    // was noted before.
                    let is_of_dropped_guard = |own: &Request| {
                        own.callers.is_empty()
                            && !own.attempts.is_unsettled()
                            && self.closing.is_none()
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
        let Some(request) = self.requests.take(Subject::Query(id)) else { return };
        let sent = request.attempts.first_sent().unwrap_or(now);
        let Kind::Query(_, Query::Extend { lock, lease }) = request.kind else {
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

    /// An inspection or a scan has this reply.
    fn complete_query(&mut self, id: CallId, reply: Reply) {
        if self.requests.take(Subject::Query(id)).is_some() {
            self.reply(id, reply);
        }
    }

    fn failed(&mut self, now: Instant, of: Subject, fate: Fate, cause: &Cause) {
        let (of, is_check) = match of {
            Subject::Check(nonce) => (Subject::Lock(nonce), true),
            other => (other, false),
        };
        if let Subject::Lock(nonce) = of
            && !is_check
            && let Some(withdrawal) = self.requests.get(Subject::Unlock(nonce))
        {
            // The LOCK may arrive after its withdrawal.
            withdrawal.release_mut().copies |= fate == Fate::NoReply;
            return;
        }
        let Some(request) = self.requests.get(of).filter(|it| it.is_queued() == is_check) else {
            return;
        };
        if let Kind::Query(_, Query::Extend { lock, .. }) = &request.kind {
            let (lock, cause) = (lock.clone(), cause.clone());
            self.outputs.push(Output::Unextended { lock, cause });
        }
        // A check that arrived twice has no effect.
        let fate = if is_check { Fate::Refused } else { fate };
        let failures = request.attempts.failed(fate, cause.clone());
        if (is_check || request.repeats_after(fate)) && !cause.is_permanent() {
            self.requests.schedule(of, now.after(back_off(&mut self.ids, failures)));
        } else {
            self.end(now, of, |request| Reply::Failed(request.failure(cause)));
        }
    }

    fn went_down(&mut self, now: Instant, cause: Option<Cause>) {
        if let Some(cause) = &cause {
            for of in self.requests.subjects(|request| request.needs_connection()) {
                self.end(now, of, |request| Reply::Failed(request.failure(cause)));
            }
        }
        self.link = Link::Down(cause);
    }

    fn came_up(&mut self, now: Instant, memory: Memory) {
        self.link = Link::Up;
        match memory {
            Memory::Kept => {}
            Memory::Events => self.check_all(now),
            Memory::Lost => self.lose_all(now),
        }
        for of in self.requests.subjects(|request| !request.is_queued()) {
            self.requests.schedule(of, now);
        }
    }

    /// Events may be lost: checks every waiter and every hold.
    fn check_all(&mut self, now: Instant) {
        for of in self.requests.subjects(|request| request.is_queued()) {
            self.requests.schedule(of, now);
        }
        if planted!(SnapshotLosesHeld) {
            return self.lose_holds();
        }
        self.hold_check_at = Some(now);
    }

    /// Another granting side has taken over: all former grants are void, and no copy of an earlier
    /// request arrives there. Or it is the same, to which this process is new.
    fn lose_all(&mut self, now: Instant) {
        self.lose_holds();
        for of in self.requests.subjects(|_| true) {
            self.requests.dequeued(of);
            let Some(request) = self.requests.get(of) else { continue };
            match (of, &request.kind) {
                (Subject::Unlock(nonce), _) => {
                    request.attempts.orphaned();
                    self.unlocked(now, nonce, false);
                }
                (_, &Kind::Query(id, Query::Extend { .. })) => self.extended(now, id, None),
                (_, Kind::Lock(_)) => request.attempts.reset(),
                _ => {}
            }
        }
    }

    fn lost(&mut self, mut lock: Lock, forced: Option<Arc<str>>) {
        let (nonce, token) = (lock.nonce(), lock.fencing_token());
        let unlock = self.requests.get(Subject::Unlock(nonce));
        let is_dropped = unlock.is_some_and(|unlock| unlock.callers.is_empty());
        // The loss of a dropped guard's lock is counted by the reply to its UNLOCK.
        if !is_dropped && let Some(held) = self.held.remove_up_to(nonce, token) {
            held.lose();
            lock = lock.with_deadline(held.deadline);
        }
        self.outputs.push(Output::Lost { lock, forced });
    }

    fn lose_holds(&mut self) {
        for (nonce, held) in self.held.take_all() {
            self.lose(nonce, &held, None);
        }
    }

    fn lose(&mut self, nonce: Nonce, held: &Held, forced: Option<Arc<str>>) {
        held.lose();
        self.outputs.push(Output::Lost { lock: held.lock(nonce), forced });
    }
}
