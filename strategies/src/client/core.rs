//! The pure state machine of every call: pending requests and held locks.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    call::{Call, CallId, Output, Query, Reply},
    command::{Command, Copies, Link, Profile, Subject, earlier},
    held::Holdings,
    request::{Acquisition, Kind, Release, Request},
    requests::Requests,
};
use crate::{Error, Instant, Lock, Nonce, random::Ids};

/// The limit [`Profile::requests_max`], as errors name it.
pub(super) const REQUESTS: &str = "pending requests";

/// Calls, events and time in; commands, replies, losses and the next wake-up out.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) profile: Profile,
    /// Of its jitter.
    pub(super) ids: Ids,
    pub(super) link: Link,
    pub(super) requests: Requests,
    pub(super) held: Holdings,
    /// When the holds are checked at the granting side.
    pub(super) hold_check_at: Option<Instant>,
    pub(super) outputs: Vec<Output>,
    /// Keys whose latest grant here was withdrawn, while requests are pending.
    pub(super) withdrawn: BTreeSet<Arc<str>>,
    /// Until when the handle may go on, once it is closing.
    pub(super) closing: Option<Instant>,
}

impl Core {
    /// A core that cannot send until its backend is up; `seed` decides its jitter.
    pub(crate) fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile,
            ids: Ids::new(seed),
            link: Link::Down(None),
            requests: Requests::default(),
            held: Holdings::default(),
            hold_check_at: None,
            outputs: Vec::new(),
            withdrawn: BTreeSet::new(),
            closing: None,
        }
    }

    /// How many requests are pending.
    pub(crate) fn pending(&self) -> usize {
        self.requests.len()
    }

    /// How many of them are in flight: without a reply, and not queued.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    pub(crate) fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// When a turn must come although nothing arrives.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let send = earlier(self.requests.next_send(), self.hold_check_at)
            .filter(|_| matches!(self.link, Link::Up));
        earlier(earlier(send, self.requests.next_end()), self.held.next_sweep())
    }

    /// Takes a request of this process.
    pub(crate) fn call(&mut self, now: Instant, call: Call) {
        match call {
            Call::Lock(lock) => {
                if self.knows(lock.nonce) {
                    return self.reply(lock.id, Reply::Ended);
                }
                let (of, id, limit) = (Subject::Lock(lock.nonce), lock.id, lock.limit);
                let acquisition = Acquisition { call: lock, queued: None, stale: false };
                self.ask(now, of, id, limit, Kind::Lock(acquisition));
            }
            Call::Query { id, limit, query } => {
                if let Query::Extend { lock, lease } = &query {
                    self.held.extending(lock.nonce(), limit.after(*lease));
                    if let Link::Down(Some(cause)) = &self.link {
                        let (lock, cause) = (lock.clone(), cause.clone());
                        self.outputs.push(Output::Unextended { lock, cause });
                    }
                }
                self.ask(now, Subject::Query(id), id, Some(limit), Kind::Query(id, query));
            }
            Call::Withdraw { nonce } => self.withdraw(now, nonce),
            Call::Unlock { caller, lock, until, forced } => {
                let (of, token) = (Subject::Unlock(lock.nonce()), lock.fencing_token());
                self.release(now, lock, until, true);
                if let (Some(note), Some(request)) = (forced, self.requests.get(of)) {
                    request.release_mut().forced = Some((token, note));
                }
                if let Some((id, limit)) = caller {
                    self.requests.add_caller(of, id, Some(limit));
                }
            }
            Call::Check { lock } => self.check_late_watch(lock),
            // No caller reads the reply: it makes the driver forget the caller.
            Call::Abandon { id } => self.end(now, Subject::Query(id), |_| Reply::Ended),
            Call::Close { watched } => self.close(now, watched),
        }
    }

    /// Adds a request and its caller, unless a bound is reached. Unlocks and withdrawals are never
    /// refused: they make way.
    fn ask(&mut self, now: Instant, of: Subject, id: CallId, limit: Option<Instant>, kind: Kind) {
        let most = self.profile.requests_max;
        if self.closing.is_some() {
            self.reply(id, Reply::Failed(Error::Closed));
        } else if self.pending() >= most {
            let error = Error::Limit { what: REQUESTS, limit: most as u64 };
            self.reply(id, Reply::Failed(error));
        } else {
            self.requests.enter(now, of, || kind);
            self.requests.add_caller(of, id, limit);
        }
    }

    /// Whether the nonce is asked for, held, or being released.
    pub(super) fn knows(&self, nonce: Nonce) -> bool {
        self.requests.contains(Subject::Lock(nonce))
            || self.requests.contains(Subject::Unlock(nonce))
            || self.held.get(nonce).is_some()
    }

    /// The future of a lock was dropped: withdraws its request, or frees what it was granted.
    fn withdraw(&mut self, now: Instant, nonce: Nonce) {
        let of = Subject::Lock(nonce);
        if self.requests.contains(of) {
            self.end(now, of, |_| Reply::Ended);
        } else if let Some(held) = self.held.get(nonce) {
            let (lock, until) = (held.lock(nonce), now.max(held.deadline));
            self.release(now, lock, until, false);
        }
    }

    /// Withdraws a LOCK that may have arrived or may still arrive at the granting side.
    pub(super) fn take_back(&mut self, now: Instant, request: &Request) {
        let Kind::Lock(lock) = &request.kind else { return };
        if planted!(WithdrawalForgotten) && matches!(self.link, Link::Down(_)) {
            return;
        }
        if request.is_queued() || request.attempts.may_have_arrived() {
            let until = lock.withdrawn_by(now);
            let copies = request.attempts.has_copies();
            let lock = Lock::new(lock.call.key.clone(), lock.call.nonce, 0, None);
            self.release(now, lock, until, copies);
        }
    }

    /// Frees what the nonce holds or waits for. `copies` counts only where it is not held.
    pub(super) fn release(&mut self, now: Instant, lock: Lock, until: Instant, copies: bool) {
        let held = self.held.get(lock.nonce());
        let until = held.map_or(until, |held| until.max(held.extended_to));
        let copies = held.map_or(copies, |held| !held.sole);
        let request = self.requests.enter(now, Subject::Unlock(lock.nonce()), || {
            Kind::Unlock(Release { lock, copies, until, forced: None })
        });
        let release = request.release_mut();
        release.until = release.until.max(until);
    }

    /// Checks a lock whose watch may have begun after its loss was reported.
    fn check_late_watch(&mut self, lock: Lock) {
        let token = lock.fencing_token();
        if self.held.get(lock.nonce()).is_none_or(|held| held.token != token) {
            self.outputs.push(Output::Lost { lock, forced: None });
        }
    }

    /// A second close waits for the end of the first, and no longer.
    fn close(&mut self, now: Instant, watched: Vec<Lock>) {
        let until = now.after(self.profile.request_timeout);
        self.closing.get_or_insert(until);
        for of in self.requests.subjects(|request| !matches!(request.kind, Kind::Unlock(_))) {
            self.end(now, of, |_| Reply::Failed(Error::Closed));
        }
        let unread: Vec<Lock> = self
            .held
            .iter()
            .filter(|(_, held)| held.revoke())
            .map(|(nonce, held)| held.lock(nonce))
            .collect();
        for lock in unread.into_iter().chain(watched) {
            self.release(now, lock, until, true);
        }
    }

    /// Ends a request without a result: completes its callers, and withdraws a LOCK.
    pub(super) fn end(&mut self, now: Instant, of: Subject, reply: impl Fn(&Request) -> Reply) {
        if let Some(request) = self.requests.take(of) {
            self.reply_to_all(&request, || reply(&request));
            self.take_back(now, &request);
        }
    }

    pub(super) fn reply_to_all(&mut self, request: &Request, reply: impl Fn() -> Reply) {
        request.callers.iter().for_each(|caller| self.reply(caller.item.1, reply()));
    }

    pub(super) fn reply(&mut self, id: CallId, reply: Reply) {
        self.outputs.push(Output::Reply { id, reply });
    }

    /// Ends the calls whose time is over, and forgets holds that are past the deadline.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((of, id)) = self.requests.first_end(now) {
            let request = self.requests.take_caller((of, id)).expect("a call that ends is pending");
            let error = request.silence(&self.link, &self.profile);
            self.reply(id, Reply::Failed(error));
            // An UNLOCK itself goes on.
            if !matches!(of, Subject::Unlock(_))
                && let Some(request) = self.requests.take(of)
            {
                self.take_back(now, &request);
            }
        }
        self.held.sweep(now);
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
        while let Some(of) = self.requests.first_send(now) {
            if self.requests.get(of).is_some_and(|request| request.is_moot(now)) {
                self.end(now, of, |_| Reply::Failed(Error::Unknown));
            } else {
                self.requests.send(now, of, self.profile.resend, &mut submit);
                sent = true;
            }
        }
        sent |= self.requests.send_checks(now, &mut submit);
        if self.hold_check_at.take_if(|at| *at <= now).is_some() {
            for (nonce, held) in self.held.iter() {
                submit(Command::Check { nonce, key: held.key.clone(), holds: Some(held.token) });
                sent = true;
            }
        }
        sent
    }
}
