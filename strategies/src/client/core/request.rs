//! A request to the granting side, until it is confirmed, refused, withdrawn or expired.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{Link, sends::Sends, timers::Timer};
use crate::{
    client::{
        backend::{Cause, Profile},
        calls::{CallId, LockCall, Query, Reply, RequestId, Until},
        commands::{Command, Fate},
    },
    clock::Instant,
    error::{Error, UnavailableKind},
    lock::{Lock, Nonce},
};

/// How long the withdrawal of an unbounded wait is repeated beyond its lease: after that, the
/// granting side drops the waiter with its process.
const FOREVER_GRACE: Duration = Duration::from_secs(3600);

/// The order of requests that are due at the same time: unlocks first, since they free keys for
/// locks, and locks in the order of the calls.
pub(super) type Due = (CallId, RequestId);

/// A caller that waits for the reply to a request.
pub(super) type Caller = (RequestId, CallId);

/// A pending request.
#[derive(Debug)]
pub(super) struct Request {
    op: Op,
    sends: Sends,
    /// When it is sent, or checked once it is queued.
    due: Timer<Due>,
    /// The callers, each with the time at which it stops waiting.
    callers: SmallVec<[Timer<Caller>; 1]>,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Op {
    Lock(LockOp),
    Unlock(UnlockOp),
    Query(CallId, Query),
}

/// A LOCK of this process.
#[derive(Debug)]
pub(super) struct LockOp {
    call: LockCall,
    /// Once the granting side has queued it: how long after that it is checked, if at all.
    queued: Option<Option<Duration>>,
    /// Whether it was refused as stale before.
    stale: bool,
}

/// An UNLOCK or a withdrawal.
#[derive(Debug)]
pub(super) struct UnlockOp {
    lock: Lock,
    /// A copy of the nonce's LOCK may arrive after this: the granting side must remember it.
    copies: bool,
    /// The time until which the UNLOCK is repeated.
    until: Instant,
    /// A force-unlock: the token that it ends, the process and the reason.
    forced: Option<(u64, Arc<str>)>,
}

impl Op {
    pub(super) fn lock(call: LockCall) -> Self {
        Self::Lock(LockOp { call, queued: None, stale: false })
    }

    pub(super) fn unlock(lock: Lock, copies: bool, until: Instant) -> Self {
        Self::Unlock(UnlockOp { lock, copies, until, forced: None })
    }
}

impl Request {
    pub(super) fn new(id: RequestId, op: Op) -> Self {
        let order = match &op {
            Op::Lock(lock) => lock.call.id,
            Op::Unlock(_) | Op::Query(..) => 0,
        };
        let due = Timer::new((order, id));
        Self { op, sends: Sends::default(), due, callers: SmallVec::new() }
    }

    pub(super) fn op(&self) -> &Op {
        &self.op
    }

    /// The query, whose request is pending no longer.
    pub(super) fn into_op(self) -> Op {
        self.op
    }

    pub(super) fn sends(&self) -> &Sends {
        &self.sends
    }

    pub(super) fn sends_mut(&mut self) -> &mut Sends {
        &mut self.sends
    }

    /// When it is sent or checked: set by the queue of timers.
    pub(super) fn due(&mut self) -> &mut Timer<Due> {
        &mut self.due
    }

    pub(super) fn callers(&self) -> impl Iterator<Item = CallId> {
        self.callers.iter().map(|caller| caller.item.1)
    }

    pub(super) fn has_callers(&self) -> bool {
        !self.callers.is_empty()
    }

    /// The callers with the times at which they stop waiting: set by the queue of timers.
    pub(super) fn caller_timers(&mut self) -> &mut SmallVec<[Timer<Caller>; 1]> {
        &mut self.callers
    }

    /// The call of a LOCK: only [`RequestId::Lock`] names one.
    pub(super) fn lock_call(&self) -> &LockCall {
        match &self.op {
            Op::Lock(lock) => &lock.call,
            other => unreachable!("expected a LOCK, found {other:?}"),
        }
    }

    fn lock_op(&mut self) -> &mut LockOp {
        match &mut self.op {
            Op::Lock(lock) => lock,
            other => unreachable!("expected a LOCK, found {other:?}"),
        }
    }

    /// The UNLOCK that this is: only [`RequestId::Unlock`] names one.
    fn unlock_op(&mut self) -> &mut UnlockOp {
        match &mut self.op {
            Op::Unlock(unlock) => unlock,
            other => unreachable!("expected an UNLOCK, found {other:?}"),
        }
    }

    /// The granting side has queued this LOCK, to be checked after the interval, if at all.
    pub(super) fn enqueue(&mut self, check_after: Option<Duration>) {
        self.lock_op().queued = Some(check_after);
    }

    pub(super) fn dequeue(&mut self) {
        self.lock_op().queued = None;
    }

    /// Sets why the grant of this LOCK, or an earlier one of its key, is not safe.
    pub(super) fn set_unsafe_grant(&mut self, cause: Option<Cause>) {
        self.lock_op().call.unsafe_grant = cause;
    }

    /// Notes that this LOCK was refused as stale. Returns whether that happened before.
    pub(super) fn mark_stale(&mut self) -> bool {
        std::mem::replace(&mut self.lock_op().stale, true)
    }

    /// Notes that a copy of the LOCK may arrive after this UNLOCK.
    pub(super) fn add_copies(&mut self) {
        self.unlock_op().copies = true;
    }

    /// Makes this UNLOCK a force-unlock of the token.
    pub(super) fn set_forced(&mut self, token: u64, note: Arc<str>) {
        self.unlock_op().forced = Some((token, note));
    }

    /// Takes the process and the reason of a force-unlock.
    pub(super) fn take_forced(&mut self) -> Option<Arc<str>> {
        self.unlock_op().forced.take().map(|(_, note)| note)
    }

    /// Repeats this UNLOCK until `until` at least.
    pub(super) fn repeat_until(&mut self, until: Instant) {
        let unlock = self.unlock_op();
        unlock.until = unlock.until.max(until);
    }

    pub(super) fn command(&self) -> Command {
        match &self.op {
            Op::Lock(lock) => {
                let LockCall { nonce, ref key, lease, until, ref owner, .. } = lock.call;
                let (key, owner) = (key.clone(), owner.clone());
                let copies = self.sends.may_have_arrived();
                Command::Lock { nonce, key, lease, until, owner, copies }
            }
            Op::Unlock(unlock) => Command::Unlock {
                nonce: unlock.lock.nonce(),
                key: unlock.lock.key().clone(),
                copies: unlock.copies || self.sends.count() > 0,
                forced: unlock.forced.clone(),
            },
            &Op::Query(id, Query::Extend { ref lock, lease }) => {
                let (nonce, key, token) = (lock.nonce(), lock.key().clone(), lock.fencing_token());
                Command::Extend { id, nonce, key, token, lease }
            }
            &Op::Query(id, Query::Inspect { ref key }) => Command::Inspect { id, key: key.clone() },
            &Op::Query(id, Query::Scan { ref after, ref prefix, limit }) => {
                Command::Scan { id, after: after.clone(), prefix: prefix.clone(), limit }
            }
        }
    }

    /// The command that checks a waiter.
    pub(super) fn check(&self) -> Command {
        let LockCall { nonce, ref key, .. } = *self.lock_call();
        Command::Check { nonce, key: key.clone(), token: None }
    }

    /// Whether the granting side is known to keep it in its queue.
    pub(super) fn is_queued(&self) -> bool {
        matches!(&self.op, Op::Lock(lock) if lock.queued.is_some())
    }

    /// How long after its last event a queued LOCK is checked.
    pub(super) fn check_interval(&self) -> Option<Duration> {
        match &self.op {
            Op::Lock(lock) => lock.queued.flatten(),
            _ => None,
        }
    }

    /// Whether it fails at once while the granting side is unreachable: a call that does not wait,
    /// an inspection and a scan.
    pub(super) fn needs_connection(&self) -> bool {
        match &self.op {
            Op::Lock(lock) => lock.call.tries,
            Op::Query(_, query) => !matches!(query, Query::Extend { .. }),
            Op::Unlock(_) => false,
        }
    }

    /// Whether it is repeated after a failure. A call that does not wait is repeated only to learn
    /// its outcome.
    pub(super) fn repeats_after(&self, fate: Fate) -> bool {
        fate == Fate::NoReply || !matches!(&self.op, Op::Lock(lock) if lock.call.tries)
    }

    /// The error of its callers after a failure.
    pub(super) fn failure(&self, cause: &Cause) -> Error {
        let reports_effect = match &self.op {
            Op::Lock(lock) => lock.call.tries,
            Op::Query(_, query) => matches!(query, Query::Extend { .. }),
            Op::Unlock(_) => true,
        };
        if reports_effect && self.sends.may_have_arrived() {
            Error::Unknown
        } else {
            cause.to_error()
        }
    }

    /// The reply of its callers after an UNLOCK.
    pub(super) fn unlocked(&self, was_held: bool) -> Reply {
        match was_held {
            true => Reply::Unlocked,
            // An earlier send, whose reply was lost, may have freed it. It may also have been lost
            // before, and held by another acquisition since.
            false if self.sends.is_unsettled() => Reply::Failed(Error::Unknown),
            false => Reply::NotHeld,
        }
    }

    /// Whether it has become pointless: the lease that an UNLOCK would end is over.
    pub(super) fn is_moot(&self, now: Instant) -> bool {
        let over = matches!(&self.op, Op::Unlock(unlock) if now > unlock.until);
        over && self.sends.count() > 0
    }

    /// The error of a caller whose limit has passed without a reply.
    pub(super) fn silence(&self, link: &Link, profile: &Profile) -> Error {
        let waits = matches!(&self.op, Op::Lock(lock) if !lock.call.tries);
        let unserved = |what: &str| Cause::new(UnavailableKind::Unreachable, what).to_error();
        let unsafe_grant = match &self.op {
            Op::Lock(lock) => lock.call.unsafe_grant.as_ref(),
            _ => None,
        };
        match (link, unsafe_grant.or_else(|| self.sends.cause())) {
            _ if !waits && self.sends.may_have_arrived() => Error::Unknown,
            (Link::Down(Some(cause)), _) => cause.to_error(),
            (Link::Up, cause)
                if waits && unsafe_grant.is_none() && (self.is_queued() || cause.is_none()) =>
            {
                Error::TimedOut(None)
            }
            (_, Some(cause)) => cause.to_error(),
            (Link::Up, None) => unserved("the request was not sent in time, this process was busy"),
            (Link::Down(_), None) if profile.capabilities.waits_for_leader => Error::no_quorum(),
            (Link::Down(_), None) => unserved("not connected"),
        }
    }
}

impl LockOp {
    pub(super) fn key(&self) -> &Arc<str> {
        &self.call.key
    }

    pub(super) fn nonce(&self) -> Nonce {
        self.call.nonce
    }

    /// The time until which the withdrawal is repeated: after it, the lease that it would end is
    /// over.
    pub(super) fn withdrawn_by(&self, now: Instant) -> Instant {
        let end = match self.call.until {
            Until::Forever => now.after(FOREVER_GRACE),
            Until::Now => now,
            Until::At(end) => end.max(now),
        };
        end.after(self.call.lease)
    }
}
