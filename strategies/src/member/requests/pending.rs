use std::sync::{Arc, atomic::Ordering};

use smallvec::SmallVec;

use super::callers::Callers;
use crate::client::schedule::Due;
use crate::{
    Instant, Lock, Nonce, Owner,
    lock_table::{Command, Ended, Grant, LockRequest, ProcessId, Seen, Wait},
    sync::AtomicU8,
    wait::whole_ms,
};

/// Names one call of this process, so that its answer finds it.
pub(crate) type CallerId = u64;

/// What a caller asks of the member.
#[derive(Debug)]
pub(crate) enum Call {
    Lock {
        caller: CallerId,
        lock: LockCall,
    },
    /// The caller of a lock has gone, before or after its answer.
    Cancel {
        caller: CallerId,
        key: Arc<str>,
        nonce: Nonce,
    },
    /// Without a caller: a guard was dropped. Repeated until answered, or `until`.
    Unlock {
        caller: Option<CallerId>,
        key: Arc<str>,
        nonce: Nonce,
        until: Instant,
    },
    Extend {
        caller: CallerId,
        key: Arc<str>,
        nonce: Nonce,
        duration_ms: u64,
    },
    /// The caller of an extend has gone.
    GiveUp {
        caller: CallerId,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct LockCall {
    pub(crate) key: Arc<str>,
    pub(crate) nonce: Nonce,
    /// Whether this process drew the nonce: then nobody will ask after it later.
    pub(crate) drawn: bool,
    /// Whether no LOCK of the nonce was sent before: no copy of one can be under way.
    pub(crate) unused: bool,
    pub(crate) duration_ms: u64,
    pub(crate) until: Until,
    /// Whether its caller asks again when it is refused: plain compare-and-set.
    pub(crate) retries: bool,
    pub(crate) owner: Arc<Owner>,
}

/// Until when a lock waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Now,
    At(Instant),
    Never,
}

impl Until {
    pub(super) fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::At(a), Self::At(b)) => Self::At(a.max(b)),
            (Self::At(at), Self::Now) | (Self::Now, Self::At(at)) => Self::At(at),
            (Self::Now, Self::Now) => Self::Now,
        }
    }

    pub(super) fn is_over(self, now: Instant) -> bool {
        matches!(self, Self::At(at) if at <= now)
    }
}

/// What the log answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// `sent` is the time before the first send of the nonce, `received` that of the answer.
    Granted {
        grant: Grant,
        sent: Instant,
        received: Instant,
        claim: Claim,
    },
    Held,
    Spent,
    Limit {
        what: &'static str,
        limit: u64,
    },
    /// `asked_before`: an earlier send of this unlock had not been answered.
    Unlocked {
        was: Ended,
        asked_before: bool,
    },
    /// The time of an unlock is over, and no send of it was answered.
    Unanswered,
    /// With the token of the acquisition that was extended, if the nonce holds the key.
    Extended {
        token: Option<u64>,
        sent: Instant,
        claim: Claim,
    },
}

#[derive(Debug)]
pub(super) struct PendingLock {
    pub(super) call: LockCall,
    /// Each with whether it only tries, although others may wait.
    pub(super) callers: Callers<bool>,
    pub(super) sends: u32,
    pub(super) over_channel: bool,
    pub(super) first_sent: Option<Instant>,
    /// Names this request; answers to an earlier one of the same nonce are not for it.
    pub(super) request: u64,
    /// It was refused as stale before.
    pub(super) stale: bool,
    /// The table is known to hold its place: nothing to repeat.
    pub(super) queued: bool,
    pub(super) due: Due,
}

impl PendingLock {
    pub(super) fn new(call: LockCall, caller: CallerId, request: u64) -> Self {
        let mut callers = Callers::default();
        callers.insert(caller, call.until == Until::Now);
        Self {
            call,
            request,
            callers,
            sends: 0,
            over_channel: false,
            first_sent: None,
            stale: false,
            queued: false,
            due: Due::default(),
        }
    }

    pub(super) fn command(&self, now: Instant, process: ProcessId, seen: Seen) -> Command {
        let wait = match self.call.until {
            Until::Now => Wait::No,
            Until::Never => Wait::Forever,
            Until::At(end) => Wait::Ms(whole_ms(end.since(now)).max(1)),
        };
        Command::Lock(LockRequest {
            key: self.call.key.clone(),
            nonce: self.call.nonce,
            process,
            request: self.request,
            duration_ms: self.call.duration_ms,
            wait,
            seen,
            owner: self.call.owner.clone(),
        })
    }
}

#[derive(Debug)]
pub(super) struct PendingUnlock {
    pub(super) key: Arc<str>,
    pub(super) callers: SmallVec<[CallerId; 1]>,
    pub(super) forget: bool,
    pub(super) sends: u32,
    pub(super) until: Instant,
    pub(super) due: Due,
}

#[derive(Debug)]
pub(super) struct PendingExtend {
    pub(super) caller: CallerId,
    pub(super) key: Arc<str>,
    pub(super) nonce: Nonce,
    pub(super) duration_ms: u64,
    pub(super) sends: u32,
    pub(super) first_sent: Option<Instant>,
    pub(super) due: Due,
}

impl PendingExtend {
    pub(super) fn new(caller: CallerId, key: Arc<str>, nonce: Nonce, duration_ms: u64) -> Self {
        let due = Due::default();
        Self { caller, key, nonce, duration_ms, sends: 0, first_sent: None, due }
    }
}

/// A grant that callers of this process received.
#[derive(Debug)]
pub(super) struct Held {
    /// Its LOCK was sent once, straight into the log: no copy of it can be under way.
    pub(super) sole: bool,
    pub(super) token: u64,
    pub(super) duration_ms: u64,
    pub(super) key: Arc<str>,
    /// Another process was granted it, and this one extends it.
    pub(super) adopted: bool,
    /// The callers that received it and have not let go.
    pub(super) receivers: Callers<Claim>,
    /// The answers to extensions of it that may not have been read.
    pub(super) extensions: Vec<Claim>,
}

impl Held {
    pub(super) fn lock(&self, nonce: Nonce) -> Lock {
        Lock::new(self.key.clone(), nonce, self.token, None)
    }

    /// It has ended: no answer that is read only now is relied on.
    pub(super) fn revoke_extensions(&self) {
        for claim in &self.extensions {
            claim.revoke();
        }
    }
}

/// Who has what was answered: the caller that takes it from its answer, or the member, before, that
/// closes, leaves its group, or learns that an extended lock has ended. Exactly one of both gets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicU8>);

impl Claim {
    const TAKEN: u8 = 1;
    const REVOKED: u8 = 2;

    /// The caller takes the grant; `false` if it was revoked before.
    pub(crate) fn take(&self) -> bool {
        self.settle(Self::TAKEN)
    }

    /// The member takes it back; `false` if the caller has it.
    pub(super) fn revoke(&self) -> bool {
        self.settle(Self::REVOKED)
    }

    /// Whether the answer that it came with may still be read.
    pub(super) fn is_open(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn settle(&self, as_what: u8) -> bool {
        let settled = self.0.compare_exchange(0, as_what, Ordering::AcqRel, Ordering::Acquire);
        settled.map_or_else(|before| before == as_what, |_| true)
    }
}

/// What can be due to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    // Unlocks first: in one turn, they make room for locks.
    Unlock(Nonce),
    Extend(u64),
    Lock(Nonce),
}
