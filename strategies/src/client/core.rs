//! The pure state machine of every call: what is pending, what is held, and when each is looked at.

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;

use super::{
    acquisition::Acquisition,
    call::{Answer, Call, CallId, Output},
    command::{Cause, Command, Copies, Profile, earlier},
    held::Holdings,
    pace::{Attempts, Pace, doubled},
    query::{Query, What},
    release::{Release, unanswered},
    schedule::{Due, Schedule},
};
use crate::{Error, Instant, Lock, Nonce};

/// What [`Profile::requests_max`] bounds.
pub(super) const REQUESTS: &str = "pending requests";

/// Checks that are scheduled within this part of a check's own interval are sent together.
const CHECKED_TOGETHER: u32 = 4;

/// Calls, events and time in; commands, answers, losses and the next wake-up out.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) profile: Profile,
    pub(super) pace: Pace,
    pub(super) link: Link,
    pub(super) locks: BTreeMap<Nonce, Box<Acquisition>>,
    pub(super) unlocks: BTreeMap<Nonce, Release>,
    pub(super) queries: BTreeMap<CallId, Query>,
    pub(super) held: Holdings,
    /// When requests are sent.
    pub(super) due: Schedule<Item>,
    /// When waiters are checked.
    pub(super) checks: Schedule<(CallId, Nonce)>,
    /// When calls end.
    pub(super) ends: Schedule<End>,
    /// Holds whose owner is to be asked after.
    pub(super) hold_checks: Vec<Lock>,
    /// How many of the locks wait in the queue.
    pub(super) queued: usize,
    pub(super) outputs: Vec<Output>,
    closing: bool,
}

/// Whether the granting side can be reached.
#[derive(Debug)]
pub(super) enum Link {
    Up,
    Down(Option<Cause>),
}

/// A request to be sent. Unlocks come first: in one turn, they make way for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Unlock(Nonce),
    Query(CallId),
    /// In the order of the calls.
    Lock(CallId, Nonce),
}

/// A call whose time can be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Lock(Nonce),
    Unlock(CallId, Nonce),
    Query(CallId),
}

impl Core {
    /// A core that cannot send until its backend is up; `seed` decides its jitter.
    pub(crate) fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile,
            pace: Pace::new(seed),
            link: Link::Down(None),
            locks: BTreeMap::new(),
            unlocks: BTreeMap::new(),
            queries: BTreeMap::new(),
            held: Holdings::default(),
            due: Schedule::default(),
            checks: Schedule::default(),
            ends: Schedule::default(),
            hold_checks: Vec::new(),
            queued: 0,
            outputs: Vec::new(),
            closing: false,
        }
    }

    /// How many requests are pending.
    pub(crate) fn pending(&self) -> usize {
        self.locks.len() + self.unlocks.len() + self.queries.len()
    }

    /// How many of them the granting side has neither answered nor put into its queue.
    pub(crate) fn unanswered(&self) -> usize {
        self.pending() - self.queued
    }

    /// Whether nothing is pending any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending() == 0
    }

    pub(crate) fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// When a turn must come although nothing arrives.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let sends = match self.link {
            Link::Up => earlier(self.due.next(), self.checks.next()),
            Link::Down(_) => None,
        };
        earlier(earlier(sends, self.ends.next()), self.held.next_sweep())
    }

    /// Takes a request of this process.
    pub(crate) fn call(&mut self, now: Instant, call: Call) {
        match call {
            Call::Lock(lock) => {
                if let Some(refused) = self.refusal() {
                    return self.answer(lock.id, refused);
                }
                if self.knows(lock.nonce) {
                    return self.answer(lock.id, Answer::Ended);
                }
                let (id, nonce, limit) = (lock.id, lock.nonce, lock.limit);
                let mut lock = Box::new(Acquisition::new(lock));
                self.due.set(Item::Lock(id, nonce), &mut lock.due, now);
                if let Some(limit) = limit {
                    self.ends.set(End::Lock(nonce), &mut lock.end, limit);
                }
                self.locks.insert(nonce, lock);
            }
            Call::Withdraw { nonce, .. } => self.withdraw(now, nonce),
            Call::Unlock { caller, lock, until } => {
                self.release(now, caller, lock, until, true);
            }
            Call::Extend(extend) => {
                let (id, limit) = (extend.id, extend.limit);
                self.ask(now, id, limit, What::Extend(extend));
            }
            Call::Inspect { id, key, limit } => {
                self.ask(now, id, limit, What::Inspect { id, key });
            }
            Call::Check { lock } => self.check_late_watch(lock),
            Call::Abandon { id } => _ = self.take_query(id),
            Call::Close { until, watched } => self.close(now, until, watched),
        }
    }

    fn ask(&mut self, now: Instant, id: CallId, limit: Instant, what: What) {
        if let Some(refused) = self.refusal() {
            return self.answer(id, refused);
        }
        let mut query = Query::new(what);
        self.due.set(Item::Query(id), &mut query.due, now);
        self.ends.set(End::Query(id), &mut query.end, limit);
        self.queries.insert(id, query);
    }

    /// Why no further request is taken. Unlocks and withdrawals are never refused: they make way.
    fn refusal(&self) -> Option<Answer> {
        let limit = self.profile.requests_max;
        if self.closing {
            Some(Answer::Failed(Error::Closed))
        } else if self.pending() >= limit {
            Some(Answer::Failed(Error::Limit { what: REQUESTS, limit: limit as u64 }))
        } else {
            None
        }
    }

    /// Whether the nonce is asked for, held, or being given back.
    pub(super) fn knows(&self, nonce: Nonce) -> bool {
        self.locks.contains_key(&nonce)
            || self.unlocks.contains_key(&nonce)
            || self.held.get(nonce).is_some()
    }

    /// The future of a lock is gone: takes its request back, or frees what it was granted.
    fn withdraw(&mut self, now: Instant, nonce: Nonce) {
        if let Some(lock) = self.take_lock(nonce) {
            self.take_back(now, &lock);
        } else if let Some(held) = self.held.get(nonce) {
            let (lock, until) = (held.lock(nonce), now.after(held.lease));
            self.release(now, None, lock, until, false);
        }
    }

    /// Withdraws a LOCK that the granting side may know of, or may come to know of.
    pub(super) fn take_back(&mut self, now: Instant, lock: &Acquisition) {
        if lock.may_be_there() {
            let until = lock.withdrawn_by(now);
            let copies = lock.attempts.has_copies();
            let lock = Lock::new(lock.call.key.clone(), lock.call.nonce, 0, None);
            self.release(now, None, lock, until, copies);
        }
    }

    /// Frees what the nonce holds or waits for. `copies` counts only where it is not held.
    pub(super) fn release(
        &mut self,
        now: Instant,
        caller: Option<(CallId, Instant)>,
        lock: Lock,
        until: Instant,
        copies: bool,
    ) {
        let nonce = lock.nonce();
        let held = self.held.get(nonce);
        let ours = held.is_some_and(|held| !held.adopted);
        let copies = held.map_or(copies, |held| !held.sole);
        let held = held.is_some();
        let release = self.unlocks.entry(nonce).or_insert_with(|| Release {
            lock,
            callers: SmallVec::new(),
            copies,
            ours,
            held,
            attempts: Attempts::default(),
            until,
            due: Due::default(),
        });
        if let Some((id, limit)) = caller {
            let mut end = Due::default();
            self.ends.set(End::Unlock(id, nonce), &mut end, limit);
            release.callers.push((id, end));
        }
        release.until = release.until.max(until);
        if release.attempts.sends() == 0 {
            self.due.set(Item::Unlock(nonce), &mut release.due, now);
        }
    }

    /// A watch began after a loss may have been reported: what is not known to be held is asked after.
    fn check_late_watch(&mut self, lock: Lock) {
        let token = lock.fencing_token();
        if self.held.get(lock.nonce()).is_none_or(|held| held.token != token) {
            if matches!(self.link, Link::Up) {
                self.hold_checks.push(lock);
            } else {
                self.outputs.push(Output::Lost { lock });
            }
        }
    }

    fn close(&mut self, now: Instant, until: Instant, watched: Vec<Lock>) {
        self.closing = true;
        let nonces: Vec<Nonce> = self.locks.keys().copied().collect();
        for lock in nonces.into_iter().filter_map(|nonce| self.take_lock(nonce)).collect::<Vec<_>>()
        {
            self.answer(lock.call.id, Answer::Failed(Error::Closed));
            self.take_back(now, &lock);
        }
        let ids: Vec<CallId> = self.queries.keys().copied().collect();
        for id in ids {
            let _ = self.take_query(id);
            self.answer(id, Answer::Failed(Error::Closed));
        }
        let unread: Vec<Lock> = self
            .held
            .iter()
            .filter(|(_, held)| held.revoke())
            .map(|(nonce, held)| held.lock(nonce))
            .collect();
        for lock in unread.into_iter().chain(watched) {
            self.release(now, None, lock, until, true);
        }
    }

    pub(super) fn answer(&mut self, id: CallId, answer: Answer) {
        self.outputs.push(Output::Answer { id, answer });
    }

    /// A LOCK that is pending no longer.
    pub(super) fn take_lock(&mut self, nonce: Nonce) -> Option<Box<Acquisition>> {
        let mut lock = self.locks.remove(&nonce)?;
        self.unschedule(&mut lock);
        self.ends.remove(End::Lock(nonce), &mut lock.end);
        Some(lock)
    }

    /// Takes a LOCK out of the schedule of sends or checks, and out of the number of those queued.
    pub(super) fn unschedule(&mut self, lock: &mut Acquisition) {
        let (id, nonce) = (lock.call.id, lock.call.nonce);
        if lock.queued {
            self.queued -= 1;
            self.checks.remove((id, nonce), &mut lock.due);
        } else {
            self.due.remove(Item::Lock(id, nonce), &mut lock.due);
        }
    }

    pub(super) fn take_unlock(&mut self, nonce: Nonce) -> Option<Release> {
        let mut release = self.unlocks.remove(&nonce)?;
        self.due.remove(Item::Unlock(nonce), &mut release.due);
        for (id, end) in &mut release.callers {
            self.ends.remove(End::Unlock(*id, nonce), end);
        }
        Some(release)
    }

    pub(super) fn take_query(&mut self, id: CallId) -> Option<Query> {
        let mut query = self.queries.remove(&id)?;
        self.due.remove(Item::Query(id), &mut query.due);
        self.ends.remove(End::Query(id), &mut query.end);
        Some(query)
    }

    /// Ends the calls whose time is over, and forgets holds that are past their deadline.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(end) = self.ends.first(now) {
            match end {
                End::Lock(nonce) => {
                    let lock = self.take_lock(nonce).expect("a call that ends is pending");
                    let error = lock.out_of_time(self.down());
                    self.answer(lock.call.id, Answer::Failed(error));
                    self.take_back(now, &lock);
                }
                End::Unlock(id, nonce) => self.end_unlock(id, nonce),
                End::Query(id) => {
                    let query = self.take_query(id).expect("a call that ends is pending");
                    let error = unanswered(&query.attempts, self.down().flatten());
                    self.answer(id, Answer::Failed(error));
                }
            }
        }
        self.held.sweep(now);
    }

    /// The caller of an unlock stops waiting; the UNLOCK itself goes on.
    fn end_unlock(&mut self, id: CallId, nonce: Nonce) {
        let release = self.unlocks.get_mut(&nonce).expect("a call that ends is pending");
        let at = release.callers.iter().position(|(caller, _)| *caller == id);
        let (_, mut end) = release.callers.remove(at.expect("its end was scheduled with it"));
        self.ends.remove(End::Unlock(id, nonce), &mut end);
        let down = match &self.link {
            Link::Down(cause) => cause.as_ref(),
            Link::Up => None,
        };
        let error = unanswered(&release.attempts, down);
        self.answer(id, Answer::Failed(error));
    }

    /// Why nothing can be sent, if nothing can.
    pub(super) fn down(&self) -> Option<Option<&Cause>> {
        match &self.link {
            Link::Up => None,
            Link::Down(cause) => Some(cause.as_ref()),
        }
    }

    /// Submits everything that is scheduled for now. Returns whether there was anything.
    pub(crate) fn send_due(
        &mut self,
        now: Instant,
        mut submit: impl FnMut(Command) -> Copies,
    ) -> bool {
        if matches!(self.link, Link::Down(_)) {
            return false;
        }
        let mut sent = false;
        while let Some(item) = self.due.first(now) {
            sent |= match item {
                Item::Unlock(nonce) => self.send_unlock(now, nonce, &mut submit),
                Item::Query(id) => self.send_query(now, id, &mut submit),
                Item::Lock(_, nonce) => self.send_lock(now, nonce, &mut submit),
            };
        }
        sent |= self.send_checks(now, &mut submit);
        for lock in self.hold_checks.drain(..) {
            let (nonce, key, token) = (lock.nonce(), lock.key().clone(), lock.fencing_token());
            submit(Command::CheckHold { nonce, key, token });
            sent = true;
        }
        sent
    }

    fn send_lock(
        &mut self,
        now: Instant,
        nonce: Nonce,
        submit: &mut impl FnMut(Command) -> Copies,
    ) -> bool {
        let lock = self.locks.get_mut(&nonce).expect("what is scheduled is pending");
        lock.first_sent.get_or_insert(now);
        let copies = submit(lock.command());
        lock.attempts.submitted(copies);
        let item = Item::Lock(lock.call.id, nonce);
        let again = resend_at(&self.profile, now, &lock.attempts);
        self.due.set_or_remove(item, &mut lock.due, again);
        true
    }

    fn send_unlock(
        &mut self,
        now: Instant,
        nonce: Nonce,
        submit: &mut impl FnMut(Command) -> Copies,
    ) -> bool {
        let release = self.unlocks.get_mut(&nonce).expect("what is scheduled is pending");
        if now > release.until && release.attempts.sends() > 0 {
            let release = self.take_unlock(nonce).expect("it was just found");
            for (id, _) in release.callers {
                self.answer(id, Answer::Failed(Error::Unknown));
            }
            return false;
        }
        let copies = submit(release.command());
        release.attempts.submitted(copies);
        let again = resend_at(&self.profile, now, &release.attempts);
        self.due.set_or_remove(Item::Unlock(nonce), &mut release.due, again);
        true
    }

    fn send_query(
        &mut self,
        now: Instant,
        id: CallId,
        submit: &mut impl FnMut(Command) -> Copies,
    ) -> bool {
        let query = self.queries.get_mut(&id).expect("what is scheduled is pending");
        query.first_sent.get_or_insert(now);
        let copies = submit(query.command());
        query.attempts.submitted(copies);
        let again = resend_at(&self.profile, now, &query.attempts);
        self.due.set_or_remove(Item::Query(id), &mut query.due, again);
        true
    }

    /// Submits the checks that are scheduled, and those that would follow soon: the backend sends
    /// them together.
    fn send_checks(&mut self, now: Instant, submit: &mut impl FnMut(Command) -> Copies) -> bool {
        let Some((_, nonce)) = self.checks.first(now) else { return false };
        let interval = self.locks[&nonce].check_in;
        let horizon = now.after(interval / CHECKED_TOGETHER);
        while let Some((id, nonce)) = self.checks.first(horizon) {
            let lock = self.locks.get_mut(&nonce).expect("what is scheduled is pending");
            // Until it is answered, by `Queued` with the next time.
            self.checks.remove((id, nonce), &mut lock.due);
            submit(Command::CheckWaiter { nonce, key: lock.call.key.clone() });
        }
        true
    }
}

/// When a request that was just sent is sent again, unless it is answered.
fn resend_at(profile: &Profile, now: Instant, attempts: &Attempts) -> Option<Instant> {
    let pause: Duration = doubled(profile.resend?, attempts.sends());
    Some(now.after(pause))
}
