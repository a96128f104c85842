//! The pure state machine of every call: pending requests and held locks.

mod events;
mod given;
mod held;
mod pending;
mod request;
mod sends;
mod timers;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use smallvec::SmallVec;

pub use self::held::Delivery;
pub(crate) use self::timers::earlier;
use self::{given::GivenCalls, held::HeldLocks, pending::Pending, sends::Sends, timers::Timer};
use super::{
    backend::{Cause, Profile},
    calls::{Call, CallId, LockCall, Output, Query, Reply, RequestId},
    commands::{Command, Copies},
};
use crate::{
    clock::Instant,
    error::Error,
    lock::{Lock, Nonce},
    random::Ids,
};

/// The limit [`Profile::requests_max`], as errors name it.
pub(super) const REQUESTS: &str = "pending requests";

/// Calls, events and time in; commands, replies, losses and the next wake-up out.
///
/// The core alone decides that a lock is lost: by an event, or by a reply. A caller that has not
/// read its grant learns of it by the [`Delivery`], guards by [`Output::Lost`].
#[derive(Debug)]
pub struct Core {
    profile: Profile,
    /// The shortest time between two checks of a waiter.
    min_check_interval: Duration,
    /// Random source for back-off jitter and check intervals.
    rng: Ids,
    link: Link,
    pending: Pending,
    held: HeldLocks,
    given: GivenCalls,
    /// When the held locks are checked at the granting side.
    held_check_at: Option<Instant>,
    outputs: Vec<Output>,
    /// Keys whose latest grant here was withdrawn as unsafe, while requests are pending.
    unsafe_keys: BTreeSet<Arc<str>>,
    /// When a closing handle ends at the latest.
    close_deadline: Option<Instant>,
}

/// Whether the granting side can be reached.
#[derive(Debug)]
enum Link {
    Up,
    Down(Option<Cause>),
}

/// The order of requests that are due at the same time: withdrawals first, since a key that is
/// unlocked must not be granted to them; unlocks next, since they free keys for locks; and locks in
/// the order of the calls.
type Due = (CallId, RequestId);

/// A caller that waits for the reply to a request.
type Caller = (RequestId, CallId);

/// A pending request.
#[derive(Debug)]
struct Request {
    op: Op,
    sends: Sends,
    /// When it is sent, or checked once it is queued.
    due: Timer<Due>,
    /// The callers, each with the time at which it stops waiting.
    callers: SmallVec<[Timer<Caller>; 1]>,
}

/// What a request asks for.
#[derive(Debug)]
enum Op {
    Lock(LockOp),
    Unlock(UnlockOp),
    Query(CallId, Query),
}

/// A LOCK of this process.
#[derive(Debug)]
struct LockOp {
    call: LockCall,
    /// Once the granting side has queued it: how long after that it is checked, if at all.
    queued: Option<Option<Duration>>,
    /// Whether it was refused as stale before.
    stale: bool,
}

/// An UNLOCK or a withdrawal.
#[derive(Debug)]
struct UnlockOp {
    lock: Lock,
    /// A copy of the nonce's LOCK may arrive after this: the granting side must remember it.
    copies: bool,
    /// The time until which the UNLOCK is repeated.
    until: Instant,
    /// A force-unlock: the process and the reason.
    forced: Option<Arc<str>>,
}

/// An acquisition that this process relies on.
#[derive(Debug)]
struct HeldLock {
    key: Arc<str>,
    token: u64,
    deadline: Instant,
    /// When its lease ends if every EXTEND took effect: one without a reply may have.
    extended_to: Instant,
    /// No other copy of its LOCK can still arrive at the granting side.
    sole: bool,
    /// The delivery of the grant. If another process was granted the lock, it counts as taken.
    delivery: Delivery,
}

impl Core {
    /// A core that cannot send until its backend is up; `seed` decides its jitter.
    #[must_use]
    pub fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile,
            min_check_interval: Duration::ZERO,
            rng: Ids::new(seed),
            link: Link::Down(None),
            pending: Pending::default(),
            held: HeldLocks::default(),
            given: GivenCalls::default(),
            held_check_at: None,
            outputs: Vec::new(),
            unsafe_keys: BTreeSet::new(),
            close_deadline: None,
        }
    }

    /// How many requests are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many of them are in flight: without a reply, and not queued.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.in_flight()
    }

    /// When the handle ends at the latest, once it is closing.
    #[must_use]
    pub fn close_deadline(&self) -> Option<Instant> {
        self.close_deadline
    }

    /// Takes the outputs since the last call of this.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// When a turn must come although nothing arrives.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let send = earlier(self.pending.next_send(), self.held_check_at)
            .filter(|_| matches!(self.link, Link::Up));
        earlier(earlier(send, self.pending.next_end()), self.held.next_sweep())
    }

    /// Takes a call of this process.
    pub fn call(&mut self, now: Instant, call: Call) {
        match call {
            Call::Lock(lock) => {
                if self.knows(lock.nonce) {
                    return self.reply(lock.id, Reply::Ended);
                }
                if lock.nonce.is_given() {
                    self.given.begin(now, lock.nonce);
                }
                let (id, caller, limit) = (RequestId::Lock(lock.nonce), lock.id, lock.limit);
                self.add(now, id, caller, limit, Op::lock(lock));
            }
            Call::Query { id, limit, query } => {
                if let Query::Extend { lock, lease } = &query {
                    self.held.extending(lock.nonce(), limit.after(*lease));
                    if let Link::Down(Some(cause)) = &self.link {
                        let (lock, cause) = (lock.clone(), cause.clone());
                        self.outputs.push(Output::Unextended { lock, cause });
                    }
                }
                self.add(now, RequestId::Query(id), id, Some(limit), Op::Query(id, query));
            }
            Call::Withdraw(id) => self.withdraw_call(now, id),
            Call::Unlock { caller, lock, until, forced } => {
                let id = RequestId::Unlock(lock.nonce());
                if let Some(request) = self.pending.get(id)
                    && request.unlock_op().lock.fencing_token() > lock.fencing_token()
                {
                    // The granting side had lost this lock, and granted its nonce again.
                    return caller.map_or((), |(id, _)| self.reply(id, Reply::NotHeld));
                }
                self.unlock(now, lock.clone(), until, true);
                if let (Some(note), Some(request)) = (forced, self.pending.get(id)) {
                    request.set_forced(lock, note);
                }
                if let Some((caller, limit)) = caller {
                    self.pending.add_caller(id, caller, Some(limit));
                }
            }
            Call::Check { lock } => self.check_late_watch(lock),
            Call::EndWaits { prefix } => self.end_waits(now, &prefix),
            Call::Close { watched } => self.close(now, watched),
        }
    }

    /// Adds a request and its caller, unless a bound is reached. Unlocks and withdrawals are never
    /// refused: they make way.
    fn add(&mut self, now: Instant, id: RequestId, caller: CallId, limit: Option<Instant>, op: Op) {
        let most = self.profile.requests_max;
        if self.close_deadline.is_some() {
            self.reply(caller, Reply::Failed(Error::Closed));
        } else if self.pending() >= most {
            let error = Error::Limit { what: REQUESTS, limit: most as u64 };
            self.reply(caller, Reply::Failed(error));
        } else {
            self.pending.enter(now, id, || op);
            self.pending.add_caller(id, caller, limit);
        }
    }

    /// Whether a LOCK of the nonce is pending, held, or being unlocked.
    fn knows(&self, nonce: Nonce) -> bool {
        self.pending.contains(RequestId::Lock(nonce))
            || self.pending.contains(RequestId::Unlock(nonce))
            || self.held.get(nonce).is_some()
    }

    /// The future of a call was dropped: withdraws its request, or unlocks what it was granted.
    fn withdraw_call(&mut self, now: Instant, id: RequestId) {
        if let RequestId::Lock(nonce) = id
            && let Some(held) = self.held.get(nonce)
        {
            if nonce.is_given() {
                self.held.remove(nonce);
                return;
            }
            let (lock, until) = (held.lock(nonce), now.max(held.deadline));
            self.unlock(now, lock, until, false);
        } else {
            // No caller reads the reply: it makes the driver forget the caller.
            self.withdraw(now, id, |_| Reply::Ended);
        }
    }

    /// Withdraws a request, and completes its callers.
    fn withdraw(&mut self, now: Instant, id: RequestId, reply: impl Fn(&Request) -> Reply) {
        if let Some(request) = self.pending.take(id) {
            self.reply_to_all(&request, || reply(&request));
            self.withdraw_sent(now, &request);
        }
    }

    /// Withdraws a LOCK that may have arrived or may still arrive at the granting side, unless
    /// another process may have taken over its nonce.
    fn withdraw_sent(&mut self, now: Instant, request: &Request) {
        let Op::Lock(lock) = &request.op else { return };
        if request.is_queued() || request.sends.may_have_arrived() {
            let until = lock.withdrawn_by(now);
            let lock = Lock::new(lock.call.key.clone(), lock.call.nonce, 0, None);
            if !lock.nonce().is_given() {
                self.unlock(now, lock, until, request.sends.has_copies());
            }
        }
    }

    /// Sends an UNLOCK for what the nonce holds or waits for. `copies` counts only where it is not
    /// held.
    fn unlock(&mut self, now: Instant, lock: Lock, until: Instant, copies: bool) {
        let held = self.held.get(lock.nonce());
        let until = held.map_or(until, |held| until.max(held.extended_to));
        // Another process may have sent a LOCK of a given nonce.
        let copies = held.map_or(copies, |held| !held.sole) || lock.nonce().is_given();
        let id = RequestId::Unlock(lock.nonce());
        self.pending.enter(now, id, || Op::unlock(lock, copies, until)).repeat_until(until);
    }

    /// Checks a lock whose watch may have begun after its loss was reported.
    fn check_late_watch(&mut self, lock: Lock) {
        let token = lock.fencing_token();
        if self.held.get(lock.nonce()).is_none_or(|held| held.token != token) {
            self.outputs.push(Output::Lost { lock, forced: None });
        }
    }

    /// Withdraws the LOCKs of keys with this prefix, then unlocks the grants that no caller has read.
    fn end_waits(&mut self, now: Instant, prefix: &str) {
        for id in self.pending.ids(|request| request.is_lock_of(prefix)) {
            self.withdraw(now, id, |_| Reply::Failed(Error::Withdrawn));
        }
        for lock in self.held.revoke_unread(prefix) {
            let until = lock.deadline().map_or(now, |deadline| deadline.max(now));
            self.unlock(now, lock, until, true);
        }
    }

    /// A second close waits for the end of the first, and no longer.
    fn close(&mut self, now: Instant, watched: Vec<Lock>) {
        let until = now.after(self.profile.request_timeout);
        self.close_deadline.get_or_insert(until);
        for id in self.pending.ids(|request| !matches!(request.op, Op::Unlock(_))) {
            self.withdraw(now, id, |_| Reply::Failed(Error::Closed));
        }
        let unread = self.held.revoke_unread("");
        for lock in unread.into_iter().chain(watched) {
            self.unlock(now, lock, until, true);
        }
    }

    fn reply_to_all(&mut self, request: &Request, reply: impl Fn() -> Reply) {
        request.callers().for_each(|caller| self.reply(caller, reply()));
    }

    fn reply(&mut self, id: CallId, reply: Reply) {
        self.outputs.push(Output::Reply { id, reply });
    }

    /// Ends the calls whose time is over, and forgets held locks that are past their lease.
    pub fn expire(&mut self, now: Instant) {
        while let Some((id, caller)) = self.pending.first_end(now) {
            let request =
                self.pending.take_caller((id, caller)).expect("a call that ends is pending");
            let error = request.silence(&self.link, &self.profile);
            self.reply(caller, Reply::Failed(error));
            // An UNLOCK itself goes on.
            if !matches!(id, RequestId::Unlock(_))
                && let Some(request) = self.pending.take(id)
            {
                self.withdraw_sent(now, &request);
            }
        }
        self.held.sweep(now);
    }

    /// Submits everything that is scheduled for now. Returns whether there was anything.
    pub fn send_due(&mut self, now: Instant, mut submit: impl FnMut(Command) -> Copies) -> bool {
        if matches!(self.link, Link::Down(_)) {
            return false;
        }
        let mut sent = false;
        while let Some(id) = self.pending.first_send(now) {
            if self.pending.get(id).is_some_and(|request| request.is_moot(now)) {
                self.withdraw(now, id, |_| Reply::Failed(Error::Unknown));
            } else {
                self.pending.send(now, id, self.profile.resend, &mut submit);
                sent = true;
            }
        }
        sent |= self.pending.send_checks(now, &mut submit);
        if self.held_check_at.take_if(|at| *at <= now).is_some() {
            for command in self.held.checks() {
                submit(command);
                sent = true;
            }
        }
        sent
    }
}
