//! Acquisitions under a given nonce, whose callers may come to another process with it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use gaggle_strategies::{Error, KeyedMutex, Lock, LockOptions, MaxWait};

use super::{Client, REQUEST_TIMEOUT};
use crate::simulator::recorder::{Observation, Op, Recorder};

/// An acquisition, as its caller names it in every process.
#[derive(Clone)]
pub(in crate::simulator) struct Claim {
    op: Op,
    key: Arc<str>,
    lease: Duration,
    /// The caller leaves for another process during the present call.
    leaves: bool,
    /// How often the granting side had lost its memory when the claim began. Its nonce is
    /// forgotten with it.
    memories: u64,
    /// The token, once a call was granted.
    token: Arc<Mutex<Option<u64>>>,
}

impl Claim {
    pub(super) fn new(op: Op, key: Arc<str>, lease: Duration, recorder: &Recorder) -> Self {
        let memories = recorder.memories();
        Self { op, key, lease, leaves: false, memories, token: Arc::default() }
    }

    /// Whether this is the token of the claim: each call returns the same one.
    fn has(&self, token: u64) -> bool {
        let mut first = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        *first.get_or_insert(token) == token
    }
}

/// Claims on their way to another process, each with the handle that had its last call.
#[derive(Default)]
pub(in crate::simulator) struct Claims(Mutex<VecDeque<(Weak<dyn KeyedMutex>, Claim)>>);

impl Claims {
    fn claims(&self) -> MutexGuard<'_, VecDeque<(Weak<dyn KeyedMutex>, Claim)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, from: &Arc<dyn KeyedMutex>, claim: Claim) {
        self.claims().push_back((Arc::downgrade(from), claim));
    }

    /// The first claim of another handle. A handle has one call of a nonce at a time.
    fn take(&self, to: &Arc<dyn KeyedMutex>) -> Option<Claim> {
        let (mut claims, to) = (self.claims(), Arc::downgrade(to));
        let place = claims.iter().position(|(from, _)| !from.ptr_eq(&to))?;
        claims.remove(place).map(|(_, claim)| claim)
    }
}

impl Client {
    /// A claim whose caller comes to this process.
    pub(super) fn taken_claim(&mut self) -> Option<Claim> {
        let takes = self.work.given > 0 && self.random.chance(500_000);
        let claim = if takes { self.claims.take(&self.strategy) } else { None };
        let claim = claim.filter(|claim| claim.memories == self.recorder.memories())?;
        self.note(Observation::Reached("claim came to another process"));
        Some(claim)
    }

    /// Locks under the claim's nonce. Perhaps its caller leaves for another process meanwhile, or
    /// after a call without a grant.
    pub(super) async fn claim(&mut self, mut claim: Claim, max_wait: MaxWait) {
        claim.leaves = self.random.chance(500_000);
        if claim.leaves {
            self.claims.put(&self.strategy, claim.clone());
        }
        let wait = match max_wait {
            MaxWait::AtMost(wait) => wait,
            // A call without an end could wait for a grant that goes to another process.
            MaxWait::Forever => Duration::from_millis(self.work.wait_ms_max),
        };
        let Claim { op, key, lease, .. } = claim.clone();
        let options = LockOptions::default().max_wait(wait).duration(lease);
        let options = options.label(op.label()).nonce(op.nonce());
        match self.lock(op, &key, &options, Some(&claim)).await {
            Some(Ok(lock)) if claim.leaves => self.keep(&lock, lease).await,
            Some(Ok(lock)) if claim.has(lock.fencing_token()) => self.hold(op, lock, lease).await,
            Some(Err(Error::Limit { .. })) => self.sleep(Duration::from_millis(100)).await,
            None | Some(Err(_)) if !claim.leaves && self.random.chance(500_000) => {
                self.claims.put(&self.strategy, claim);
            }
            _ => {}
        }
    }

    /// Whether a caller relies on this grant of its claim. A granting side without its memory knows
    /// no nonce, and grants it again.
    pub(super) fn relies_on(&self, claim: &Claim, token: u64) -> bool {
        let is_same = claim.has(token);
        if !is_same && claim.memories == self.recorder.memories() {
            self.broken(format!("{} was granted again, with token {token}", claim.op.nonce()));
        }
        is_same && !claim.leaves
    }

    /// Extends a lock whose caller has left, as a server does until it misses the caller. Only the
    /// caller's last process unlocks.
    async fn keep(&mut self, lock: &Lock, lease: Duration) {
        if self.random.chance(self.work.extend) {
            let pause = self.random.between(0, lease.as_nanos() as u64 / 2);
            self.sleep(Duration::from_nanos(pause)).await;
            let strategy = self.strategy.clone();
            let _ = self.bounded(Some(REQUEST_TIMEOUT), None, strategy.extend(lock, lease)).await;
        }
    }
}
