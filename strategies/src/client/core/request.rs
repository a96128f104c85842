//! A request to the granting side, until it is confirmed, refused, withdrawn or expired.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{Link, LockOp, Op, Request, UnlockOp, sends::Sends, timers::Timer};
use crate::{
    client::{
        backend::{Cause, Profile},
        calls::{CallId, LockCall, Query, Reply, RequestId, Until},
        commands::{Command, Fate},
    },
    clock::Instant,
    error::{Error, UnavailableKind},
    lock::Lock,
};

/// How long the withdrawal of an unbounded wait is repeated beyond its lease: after that, the
/// granting side drops the waiter with its process.
const FOREVER_GRACE: Duration = Duration::from_secs(3600);

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
            // A withdrawal.
            Op::Unlock(unlock) if unlock.lock.fencing_token() == 0 => 0,
            Op::Unlock(_) | Op::Query(..) => 1,
            Op::Lock(lock) => lock.call.id,
        };
        let due = Timer::new((order, id));
        Self { op, sends: Sends::default(), due, callers: SmallVec::new() }
    }

    pub(super) fn callers(&self) -> impl Iterator<Item = CallId> {
        self.callers.iter().map(|caller| caller.item.1)
    }

    pub(super) fn has_callers(&self) -> bool {
        !self.callers.is_empty()
    }

    /// Whether this is a LOCK of a key that begins with `prefix`.
    pub(super) fn is_lock_of(&self, prefix: &str) -> bool {
        matches!(&self.op, Op::Lock(lock) if lock.call.key.starts_with(prefix))
    }

    /// The call of a LOCK: only [`RequestId::Lock`] names one.
    pub(super) fn lock_call(&self) -> &LockCall {
        match &self.op {
            Op::Lock(lock) => &lock.call,
            other => unreachable!("expected a LOCK, found {other:?}"),
        }
    }

    pub(super) fn lock_op(&mut self) -> &mut LockOp {
        match &mut self.op {
            Op::Lock(lock) => lock,
            other => unreachable!("expected a LOCK, found {other:?}"),
        }
    }

    /// The UNLOCK that this is: only [`RequestId::Unlock`] names one.
    pub(super) fn unlock_op(&mut self) -> &mut UnlockOp {
        match &mut self.op {
            Op::Unlock(unlock) => unlock,
            other => unreachable!("expected an UNLOCK, found {other:?}"),
        }
    }

    /// Notes that this LOCK was refused as stale. Returns whether that happened before.
    pub(super) fn mark_stale(&mut self) -> bool {
        std::mem::replace(&mut self.lock_op().stale, true)
    }

    /// Makes this UNLOCK a force-unlock.
    pub(super) fn set_forced(&mut self, lock: Lock, note: Arc<str>) {
        let unlock = self.unlock_op();
        (unlock.lock, unlock.forced) = (lock, Some(note));
    }

    /// Takes the process and the reason of a force-unlock.
    pub(super) fn take_forced(&mut self) -> Option<Arc<str>> {
        self.unlock_op().forced.take()
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
                token: unlock.lock.fencing_token(),
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
