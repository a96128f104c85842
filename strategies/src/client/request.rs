//! One request to the granting side, until it is confirmed, refused, withdrawn or expired.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{
    attempts::Attempts,
    call::{CallId, LockCall, Query, Reply, Until},
    command::{Cause, Command, Fate, Link, Profile, Subject},
    timers::Timer,
};
use crate::{Error, Instant, Lock, UnavailableKind};

/// For how long the withdrawal of an unbounded wait is repeated beyond its lease: after that, the
/// granting side drops the waiter with its process.
const FOREVER_GRACE: Duration = Duration::from_secs(3600);

/// A request in the order in which those of one time are sent: unlocks first, since they make way
/// for locks, and locks in the order of the calls.
pub(super) type Due = (CallId, Subject);

/// A caller that waits for the reply to a request.
pub(super) type Caller = (Subject, CallId);

#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) attempts: Attempts,
    /// When it is sent, or checked once it is queued.
    pub(super) due: Timer<Due>,
    /// Each with the time at which it stops waiting.
    pub(super) callers: SmallVec<[Timer<Caller>; 1]>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Lock(Acquisition),
    Unlock(Release),
    Query(CallId, Query),
}

/// A LOCK of this process.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) call: LockCall,
    /// Once the granting side has queued it: how long after that it is checked.
    pub(super) queued: Option<Duration>,
    /// It was refused as stale before.
    pub(super) stale: bool,
}

/// An UNLOCK or a withdrawal.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) lock: Lock,
    /// A copy of the nonce's LOCK may arrive after this: the granting side must remember it.
    pub(super) copies: bool,
    /// Until when it is repeated.
    pub(super) until: Instant,
    /// A force-unlock: the token that it ends, the process and the reason.
    pub(super) forced: Option<(u64, Arc<str>)>,
}

impl Request {
    pub(super) fn new(of: Subject, kind: Kind) -> Self {
        let order = match &kind {
            Kind::Lock(lock) => lock.call.id,
            Kind::Unlock(_) | Kind::Query(..) => 0,
        };
        let (attempts, callers) = (Attempts::default(), SmallVec::new());
        Self { kind, attempts, due: Timer::new((order, of)), callers }
    }

    pub(super) fn command(&self) -> Command {
        match &self.kind {
            Kind::Lock(lock) => {
                let LockCall { nonce, ref key, lease, until, ref owner, .. } = lock.call;
                let (key, owner) = (key.clone(), owner.clone());
                let copies = self.attempts.may_have_arrived();
                Command::Lock { nonce, key, lease, until, owner, copies }
            }
            Kind::Unlock(release) => Command::Unlock {
                nonce: release.lock.nonce(),
                key: release.lock.key().clone(),
                copies: release.copies || self.attempts.sends() > 0,
                forced: release.forced.clone(),
            },
            &Kind::Query(id, Query::Extend { ref lock, lease }) => {
                let (nonce, key, token) = (lock.nonce(), lock.key().clone(), lock.fencing_token());
                Command::Extend { id, nonce, key, token, lease }
            }
            &Kind::Query(id, Query::Inspect { ref key }) => {
                Command::Inspect { id, key: key.clone() }
            }
            &Kind::Query(id, Query::Scan { ref after, ref prefix, limit }) => {
                Command::Scan { id, after: after.clone(), prefix: prefix.clone(), limit }
            }
        }
    }

    /// The UNLOCK that this is: only `Subject::Unlock` names one.
    pub(super) fn release_mut(&mut self) -> &mut Release {
        match &mut self.kind {
            Kind::Unlock(release) => release,
            other => unreachable!("no unlock: {other:?}"),
        }
    }

    /// The LOCK that this is: only `Subject::Lock` names one.
    pub(super) fn lock(&mut self) -> &mut Acquisition {
        match &mut self.kind {
            Kind::Lock(lock) => lock,
            other => unreachable!("no lock: {other:?}"),
        }
    }

    /// The command that checks a waiter.
    pub(super) fn check(&mut self) -> Command {
        let LockCall { nonce, ref key, .. } = self.lock().call;
        Command::Check { nonce, key: key.clone(), holds: None }
    }

    /// The granting side is known to keep it in its queue.
    pub(super) fn is_queued(&self) -> bool {
        matches!(&self.kind, Kind::Lock(lock) if lock.queued.is_some())
    }

    /// Whether it fails at once while the granting side is unreachable: a call that does not wait,
    /// an inspection and a scan.
    pub(super) fn needs_connection(&self) -> bool {
        match &self.kind {
            Kind::Lock(lock) => lock.call.tries,
            Kind::Query(_, query) => !matches!(query, Query::Extend { .. }),
            Kind::Unlock(_) => false,
        }
    }

    /// Whether it is repeated after a failure. A call that does not wait is repeated only to learn
    /// its outcome.
    pub(super) fn repeats_after(&self, fate: Fate) -> bool {
        fate == Fate::NoReply || !matches!(&self.kind, Kind::Lock(lock) if lock.call.tries)
    }

    /// The error of its callers after a failure.
    pub(super) fn failure(&self, cause: &Cause) -> Error {
        let reports_effect = match &self.kind {
            Kind::Lock(lock) => lock.call.tries,
            Kind::Query(_, query) => matches!(query, Query::Extend { .. }),
            Kind::Unlock(_) => true,
        };
        if reports_effect && self.attempts.may_have_arrived() {
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
            false if self.attempts.is_unsettled() => Reply::Failed(Error::Unknown),
            false => Reply::NotHeld,
        }
    }

    /// Whether it has become pointless: the lease that an UNLOCK would end is over.
    pub(super) fn is_moot(&self, now: Instant) -> bool {
        let over = matches!(&self.kind, Kind::Unlock(release) if now > release.until);
        over && self.attempts.sends() > 0
    }

    /// The error of a caller whose limit has passed without a reply.
    pub(super) fn silence(&self, link: &Link, profile: &Profile) -> Error {
        let waits = matches!(&self.kind, Kind::Lock(lock) if !lock.call.tries);
        let unserved = |what: &str| Cause::new(UnavailableKind::Unreachable, what).to_error();
        let taken_back = match &self.kind {
            Kind::Lock(lock) => lock.call.taken_back.as_ref(),
            _ => None,
        };
        match (link, taken_back.or_else(|| self.attempts.cause())) {
            _ if !waits && self.attempts.may_have_arrived() => Error::Unknown,
            (Link::Down(Some(cause)), _) => cause.to_error(),
            (Link::Up, cause)
                if waits && taken_back.is_none() && (self.is_queued() || cause.is_none()) =>
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

impl Acquisition {
    /// Until when its withdrawal is repeated: past it, the lease that it would end is over.
    pub(super) fn withdrawn_by(&self, now: Instant) -> Instant {
        let end = match self.call.until {
            Until::Forever => now.after(FOREVER_GRACE),
            Until::Now => now,
            Until::At(end) => end.max(now),
        };
        end.after(self.call.lease)
    }
}
