//! What each event of the granting side does to what is pending and held.

use std::{sync::Arc, time::Duration};

use super::{
    acquisition::Acquisition,
    call::{Answer, CallId, Output, Until},
    command::{Basis, Cause, Event, Fate, Memory, Subject},
    core::{Core, Item, Link},
    held::Held,
    query::What,
};
use crate::{
    Error, Instant, Lock, Nonce, extended_deadline, granted_deadline,
    planted::{Bug, planted},
};

/// The pause before a LOCK that was refused as stale more than once is sent again: the time that
/// the backend knows must move on first.
const STALE_PAUSE: Duration = Duration::from_millis(10);

impl Core {
    /// Takes what the granting side reports.
    pub(crate) fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Granted { nonce, key, token, basis } => {
                self.granted(now, nonce, key, token, basis);
            }
            Event::Queued { nonce, check_in } => self.queued(now, nonce, check_in),
            Event::Held { nonce } => self.refused(now, nonce, Answer::Held),
            Event::Ended { nonce } => self.refused(now, nonce, Answer::Ended),
            Event::Stale { nonce } => self.stale(now, nonce),
            Event::Forgotten { nonce } => self.forgotten(now, nonce),
            Event::Unlocked { nonce, held } => self.unlocked(now, nonce, held),
            Event::Extended { id, token } => self.extended(now, id, token),
            Event::Inspected { id, found } => {
                if self.take_query(id).is_some() {
                    self.answer(id, Answer::Inspected(found));
                }
            }
            Event::Limit { of, what, limit } => self.limited(now, of, what, limit),
            Event::Failed { of, fate, cause } => self.failed(now, of, fate, cause),
            Event::Lost { nonce, key, token } => {
                if let Some(held) = self.held.remove_up_to(nonce, token) {
                    held.revoke();
                }
                self.outputs.push(Output::Lost { lock: Lock::new(key, nonce, token, None) });
            }
            Event::Down { cause } => self.went_down(now, cause),
            Event::Up { memory } => self.came_up(now, memory),
        }
    }

    fn granted(&mut self, now: Instant, nonce: Nonce, key: Arc<str>, token: u64, basis: Basis) {
        let Basis::Stamped { waited, lease } = basis;
        let Some(lock) = self.take_lock(nonce) else {
            if !self.knows(nonce) {
                // A late copy of a LOCK that was answered otherwise: the key goes to the next.
                let ghost = Lock::new(key, nonce, token, None);
                self.release(now, None, ghost, now.after(lease), true);
            }
            return;
        };
        let sent = lock.first_sent.unwrap_or(now);
        let deadline = granted_deadline(sent, now, waited, lease, self.profile.drift);
        let granted = Lock::new(key, nonce, token, Some(deadline));
        let sole = !lock.attempts.has_copies();
        let claim = self.held.granted(now, &granted, lock.call.lease, sole);
        self.answer(lock.call.id, Answer::Granted { lock: granted, claim });
    }

    fn queued(&mut self, now: Instant, nonce: Nonce, check_in: Option<Duration>) {
        let Some(lock) = self.locks.get_mut(&nonce) else { return };
        lock.attempts.answered();
        let (id, lock) = (lock.call.id, &mut **lock);
        if !lock.queued {
            self.due.remove(Item::Lock(id, nonce), &mut lock.due);
            lock.queued = true;
            self.queued += 1;
        }
        if let Some(interval) = check_in {
            lock.check_in = interval;
            self.checks.set((id, nonce), &mut lock.due, now.after(interval));
        }
    }

    fn refused(&mut self, now: Instant, nonce: Nonce, answer: Answer) {
        let Some(mut lock) = self.take_lock(nonce) else { return };
        lock.attempts.answered();
        self.answer(lock.call.id, answer);
        self.take_back_copies(now, &lock);
    }

    /// A LOCK was answered: only earlier copies of it may still take the key.
    fn take_back_copies(&mut self, now: Instant, lock: &Acquisition) {
        if lock.attempts.is_unsettled() {
            self.take_back(now, lock);
        }
    }

    fn stale(&mut self, now: Instant, nonce: Nonce) {
        let Some(lock) = self.locks.get_mut(&nonce).filter(|lock| !lock.queued) else { return };
        lock.attempts.answered();
        let again = std::mem::replace(&mut lock.stale, true);
        let at = if again { now.after(STALE_PAUSE) } else { now };
        self.due.set(Item::Lock(lock.call.id, nonce), &mut lock.due, at);
    }

    /// The waiter is queued again, behind those that came meanwhile. One whose time is over is left
    /// to the end of its call.
    fn forgotten(&mut self, now: Instant, nonce: Nonce) {
        let Some(mut lock) = self.locks.remove(&nonce) else { return };
        if lock.queued {
            self.unschedule(&mut lock);
            lock.queued = false;
            if !lock.call.until.is_over(now) {
                self.due.set(Item::Lock(lock.call.id, nonce), &mut lock.due, now);
            }
        }
        self.locks.insert(nonce, lock);
    }

    fn unlocked(&mut self, now: Instant, nonce: Nonce, was_held: bool) {
        let held = self.held.remove(nonce);
        let Some(release) = self.take_unlock(nonce) else {
            // Another process, to which the lock was transferred, has unlocked it.
            if let Some(held) = held {
                self.lose(nonce, &held);
            }
            return;
        };
        if let Some(held) = held {
            held.revoke();
            self.outputs.push(Output::Released { lock: held.lock(nonce) });
        }
        for (id, _) in &release.callers {
            self.outputs.push(Output::Answer { id: *id, answer: release.outcome(now, was_held) });
        }
    }

    fn extended(&mut self, now: Instant, id: CallId, token: Option<u64>) {
        let Some(query) = self.take_query(id) else { return };
        let What::Extend(extend) = query.what else {
            unreachable!("an inspection is not answered as an extension")
        };
        // With another token it is a later acquisition, which this lock is not.
        let answer = if token == Some(extend.lock.fencing_token()) {
            let sent = query.first_sent.unwrap_or(now);
            let (lock, drift) = (&extend.lock, self.profile.drift);
            let deadline = extended_deadline(lock.deadline(), sent, extend.lease, drift);
            Answer::Extended { sent, claim: self.held.extended(now, lock, deadline) }
        } else {
            if let Some(held) =
                self.held.remove_up_to(extend.lock.nonce(), extend.lock.fencing_token())
            {
                held.revoke();
            }
            self.outputs.push(Output::Lost { lock: extend.lock });
            Answer::Gone
        };
        self.answer(id, answer);
    }

    fn limited(&mut self, now: Instant, of: Subject, what: &'static str, limit: u64) {
        let error = || Answer::Failed(Error::Limit { what, limit });
        match of {
            Subject::Lock(nonce) => self.refused(now, nonce, error()),
            Subject::AllLocks => {
                let nonces: Vec<Nonce> = self.locks.keys().copied().collect();
                for nonce in nonces {
                    self.refused(now, nonce, error());
                }
            }
            Subject::Unlock(nonce) => self.fail_unlock(nonce, error),
            Subject::Extend(id) | Subject::Inspect(id) => {
                if self.take_query(id).is_some() {
                    self.answer(id, error());
                }
            }
            Subject::Check(_) => {}
        }
    }

    fn fail_unlock(&mut self, nonce: Nonce, error: impl Fn() -> Answer) {
        for (id, _) in self.take_unlock(nonce).into_iter().flat_map(|release| release.callers) {
            self.answer(id, error());
        }
    }

    fn failed(&mut self, now: Instant, of: Subject, fate: Fate, cause: Cause) {
        match of {
            Subject::Lock(nonce) => self.lock_failed(now, nonce, fate, cause),
            Subject::Unlock(nonce) => {
                let Some(release) = self.unlocks.get_mut(&nonce) else { return };
                let permanent = cause.is_permanent();
                let failures = release.attempts.failed(fate, cause.clone());
                if permanent {
                    let unknown = release.attempts.may_have_arrived();
                    let error = || if unknown { Error::Unknown } else { cause.to_error() };
                    return self.fail_unlock(nonce, || Answer::Failed(error()));
                }
                let at = now.after(self.pace.back_off(failures));
                self.due.set(Item::Unlock(nonce), &mut release.due, at);
            }
            Subject::Extend(id) | Subject::Inspect(id) => {
                let Some(query) = self.queries.get_mut(&id) else { return };
                let permanent = cause.is_permanent();
                let failures = query.attempts.failed(fate, cause.clone());
                if permanent {
                    let unknown = query.attempts.may_have_arrived();
                    let error = if unknown { Error::Unknown } else { cause.to_error() };
                    self.take_query(id);
                    return self.answer(id, Answer::Failed(error));
                }
                let at = now.after(self.pace.back_off(failures));
                self.due.set(Item::Query(id), &mut query.due, at);
            }
            Subject::Check(nonce) => {
                let Some(lock) = self.locks.get_mut(&nonce).filter(|lock| lock.queued) else {
                    return;
                };
                let at = now.after(self.pace.back_off(1));
                self.checks.set((lock.call.id, nonce), &mut lock.due, at);
            }
            Subject::AllLocks => {}
        }
    }

    fn lock_failed(&mut self, now: Instant, nonce: Nonce, fate: Fate, cause: Cause) {
        if let Some(release) = self.unlocks.get_mut(&nonce) {
            // It was withdrawn meanwhile, and may arrive after its withdrawal.
            release.copies |= fate == Fate::Unanswered;
            return;
        }
        let Some(lock) = self.locks.get_mut(&nonce).filter(|lock| !lock.queued) else { return };
        let failures = lock.attempts.failed(fate, cause.clone());
        // A call that does not wait is repeated only to learn what became of it.
        let repeat = !lock.call.tries || fate == Fate::Unanswered;
        if repeat && !cause.is_permanent() {
            let at = now.after(self.pace.back_off(failures));
            return self.due.set(Item::Lock(lock.call.id, nonce), &mut lock.due, at);
        }
        let lock = self.take_lock(nonce).expect("it was just found");
        let unknown = lock.attempts.may_have_arrived() && lock.call.tries;
        let error = if unknown { Error::Unknown } else { cause.to_error() };
        self.answer(lock.call.id, Answer::Failed(error));
        self.take_back(now, &lock);
    }

    fn went_down(&mut self, now: Instant, cause: Option<Cause>) {
        if let Some(cause) = &cause {
            // A call that does not wait has no use for a server that comes back later.
            let tries: Vec<Nonce> = self
                .locks
                .iter()
                .filter(|(_, lock)| lock.call.tries)
                .map(|(nonce, _)| *nonce)
                .collect();
            for nonce in tries {
                let lock = self.take_lock(nonce).expect("it was just found");
                let unknown = lock.attempts.may_have_arrived();
                let error = if unknown { Error::Unknown } else { cause.to_error() };
                self.answer(lock.call.id, Answer::Failed(error));
                self.take_back(now, &lock);
            }
            let inspections = self.queries_of(|what| matches!(what, What::Inspect { .. }));
            for id in inspections {
                let _ = self.take_query(id);
                self.answer(id, Answer::Failed(cause.to_error()));
            }
        }
        self.link = Link::Down(cause);
    }

    fn came_up(&mut self, now: Instant, memory: Memory) {
        self.link = Link::Up;
        match memory {
            Memory::Kept => {}
            Memory::Perhaps => self.check_all(now),
            Memory::Gone => self.lose_all(now),
        }
        for (nonce, lock) in self.locks.iter_mut().filter(|(_, lock)| !lock.queued) {
            self.due.set(Item::Lock(lock.call.id, *nonce), &mut lock.due, now);
        }
        for (nonce, release) in &mut self.unlocks {
            self.due.set(Item::Unlock(*nonce), &mut release.due, now);
        }
        for (id, query) in &mut self.queries {
            self.due.set(Item::Query(*id), &mut query.due, now);
        }
    }

    /// News may have been lost: asks after every waiter and every hold.
    fn check_all(&mut self, now: Instant) {
        for (nonce, lock) in self.locks.iter_mut().filter(|(_, lock)| lock.queued) {
            self.checks.set((lock.call.id, *nonce), &mut lock.due, now);
        }
        if planted(Bug::SnapshotLosesHeld) {
            return self.lose_holds();
        }
        self.hold_checks = self.held.iter().map(|(nonce, held)| held.lock(nonce)).collect();
    }

    /// Another granting side has taken over: what the former one granted is void, and no copy of an
    /// earlier request reaches this one.
    fn lose_all(&mut self, now: Instant) {
        self.lose_holds();
        self.outputs.push(Output::LostAll { token: self.held.greatest_token() });
        self.hold_checks.clear();
        let nonces: Vec<Nonce> = self.unlocks.keys().copied().collect();
        for nonce in nonces {
            if let Some(release) = self.unlocks.get_mut(&nonce) {
                release.attempts.orphaned();
            }
            self.unlocked(now, nonce, false);
        }
        let extends = self.queries_of(|what| matches!(what, What::Extend(_)));
        for id in extends {
            self.extended(now, id, None);
        }
        for lock in self.locks.values_mut() {
            if std::mem::take(&mut lock.queued) {
                self.queued -= 1;
                self.checks.remove((lock.call.id, lock.call.nonce), &mut lock.due);
            }
            lock.attempts.reset();
            lock.first_sent = None;
        }
    }

    fn queries_of(&self, kind: impl Fn(&What) -> bool) -> Vec<CallId> {
        self.queries.iter().filter(|(_, query)| kind(&query.what)).map(|(id, _)| *id).collect()
    }

    fn lose_holds(&mut self) {
        for (nonce, held) in self.held.take_all() {
            self.lose(nonce, &held);
        }
    }

    fn lose(&mut self, nonce: Nonce, held: &Held) {
        held.revoke();
        self.outputs.push(Output::Lost { lock: held.lock(nonce) });
    }
}

impl Until {
    pub(super) fn is_over(self, now: Instant) -> bool {
        matches!(self, Self::At(at) if at <= now)
    }
}
