//! A claim: an acquisition of a client, as this server knows it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaggle::{Clock, Instant, Lock, Owner};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{id::ClaimId, problem::Problem};

/// How long the grant of a claim that does not wait is kept for its client.
const ATTEMPT_KEPT: Duration = Duration::from_secs(1);

/// The status of a claim, as Nessy names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Waiting,
    Active,
    Released,
    Aborted,
    Withdrawn,
    Revoked,
    Expired,
}

impl Status {
    const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Active,
        Self::Released,
        Self::Aborted,
        Self::Withdrawn,
        Self::Revoked,
        Self::Expired,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Released => "released",
            Self::Aborted => "aborted",
            Self::Withdrawn => "withdrawn",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

/// A reading of both clocks: the strategy's, and the wall clock in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) at: Instant,
    pub(crate) wall: f64,
}

/// A claim.
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    /// The name of the token that made it.
    pub(crate) owner: Arc<str>,
    pub(crate) ttl: Duration,
    /// How long a waiting claim lives without a request.
    pub(crate) waiting_ttl: Duration,
    pub(crate) user_data: Value,
    /// The process for which it was made.
    pub(crate) process: Option<Owner>,
    state: Mutex<State>,
    /// Notified of each change of the phase.
    pub(crate) changed: Notify,
    /// Asks the waiting task to send its LOCK again.
    pub(crate) repeat: Notify,
}

struct State {
    phase: Phase,
    /// Each status with its beginning; the first is `waiting`.
    history: Vec<(Status, Stamp)>,
    /// How many requests wait for the claim.
    polls: usize,
    /// When a waiting claim without a request ends.
    poll_by: Instant,
    /// The final status that a request of unknown outcome asked for.
    attempted: Option<Status>,
    /// Why the claim could not be made.
    refusal: Option<Problem>,
    /// The name and the reason of the latest request to revoke it.
    revoked_by: Option<String>,
}

impl State {
    fn revoked_by(&self) -> Option<String> {
        let is_revoked = matches!(self.phase, Phase::Ended(Status::Revoked));
        self.revoked_by.clone().filter(|_| is_revoked)
    }
}

/// The phase of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Queued, as far as this server knows.
    Waiting,
    /// Granted, and kept for the next request of the client.
    Granted(Lock),
    /// The client knows of the grant.
    Active(Lock),
    /// Final.
    Ended(Status),
}

impl Phase {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Waiting | Self::Granted(_) => Status::Waiting,
            Self::Active(_) => Status::Active,
            Self::Ended(status) => *status,
        }
    }
}

impl Claim {
    /// A claim that waits from now on.
    pub(crate) fn new(
        id: ClaimId,
        owner: Arc<str>,
        (ttl, waiting_ttl): (Duration, Duration),
        (user_data, process): (Value, Option<Owner>),
        now: Stamp,
    ) -> Self {
        let state = State {
            phase: Phase::Waiting,
            history: vec![(Status::Waiting, now)],
            polls: 0,
            poll_by: now.at.after(absence_max(waiting_ttl)),
            attempted: None,
            refusal: None,
            revoked_by: None,
        };
        let (state, changed, repeat) = (Mutex::new(state), Notify::new(), Notify::new());
        Self { id, owner, ttl, waiting_ttl, user_data, process, state, changed, repeat }
    }

    /// Whether it does not wait for a held key.
    pub(crate) fn is_attempt(&self) -> bool {
        self.waiting_ttl.is_zero()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase.clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.state().phase.status()
    }

    pub(crate) fn refusal(&self) -> Option<Problem> {
        self.state().refusal.clone()
    }

    pub(crate) fn refuse(&self, problem: Problem) {
        self.state().refusal = Some(problem);
    }

    /// Notes who revokes the claim, and why, unless it has ended.
    pub(crate) fn set_revoked_by(&self, by: &str) {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Ended(_)) {
            state.revoked_by = Some(by.into());
        }
    }

    /// Who revoked the claim, and why.
    pub(crate) fn revoked_by(&self) -> Option<String> {
        self.state().revoked_by()
    }

    /// Notes a request that waits for the claim, until it is dropped.
    pub(crate) fn poll<'a>(&'a self, clock: &'a dyn Clock) -> Poll<'a> {
        self.state().polls += 1;
        Poll { claim: self, clock }
    }

    /// When the client of a waiting claim is missed.
    pub(crate) fn keep_until(&self, now: Instant) -> Instant {
        let state = self.state();
        if state.polls > 0 { now.after(absence_max(self.waiting_ttl)) } else { state.poll_by }
    }

    /// The waiting claim was granted, or its lock extended. Returns whether it still waits.
    pub(crate) fn granted(&self, lock: Lock) -> bool {
        let mut state = self.state();
        let is_kept = matches!(state.phase, Phase::Waiting | Phase::Granted(_));
        if is_kept {
            state.phase = Phase::Granted(lock);
            self.changed.notify_waiters();
        }
        is_kept
    }

    /// Gives a granted claim to its client. Returns the lock, if it was granted and not given yet.
    pub(crate) fn activate(&self, now: Stamp) -> Option<Lock> {
        let mut state = self.state();
        let Phase::Granted(lock) = &state.phase else { return None };
        let lock = lock.clone();
        state.phase = Phase::Active(lock.clone());
        state.history.push((Status::Active, now));
        self.changed.notify_waiters();
        Some(lock)
    }

    /// An active claim was extended: its deadline never moves back.
    pub(crate) fn extended(&self, lock: Lock) {
        if let Phase::Active(present) = &mut self.state().phase
            && lock.deadline() > present.deadline()
        {
            *present = lock;
        }
    }

    /// Ends the claim. Returns the phase before, if it was not final.
    pub(crate) fn end(&self, status: Status, now: Stamp) -> Option<Phase> {
        let mut state = self.state();
        if let Phase::Ended(_) = state.phase {
            return None;
        }
        state.history.push((status, now));
        let before = std::mem::replace(&mut state.phase, Phase::Ended(status));
        self.changed.notify_waiters();
        Some(before)
    }

    /// Notes a request for a final status, whose outcome may stay unknown. Returns the earlier one.
    pub(crate) fn attempt(&self, status: Status) -> Option<Status> {
        self.state().attempted.replace(status)
    }

    /// The beginning of each status of the claim.
    fn since(history: &[(Status, Stamp)], status: Status) -> Option<Stamp> {
        history.iter().find(|(known, _)| *known == status).map(|(_, stamp)| *stamp)
    }

    /// When the claim was made.
    pub(crate) fn created(&self) -> Instant {
        self.state().history[0].1.at
    }

    /// When the claim got its present status.
    pub(crate) fn changed_at(&self) -> Instant {
        self.state().history.last().expect("it has a first").1.at
    }

    /// The claim as JSON, without its URL.
    pub(crate) fn to_json(&self, now: Instant) -> Value {
        let state = self.state();
        let (created, end) = (state.history[0].1, state.history.last().expect("it has a first"));
        let end = if matches!(state.phase, Phase::Ended(_)) { end.1.at } else { now };
        let active = Self::since(&state.history, Status::Active);
        let history = state
            .history
            .iter()
            .map(|(status, stamp)| json!({ "status": status.word(), "timestamp": stamp.wall }));
        let lock = if let Phase::Active(lock) = &state.phase { Some(lock) } else { None };
        // Past its deadline, another server may have extended it.
        let deadline = lock.and_then(Lock::deadline).filter(|deadline| *deadline > now);
        json!({
            "id": self.id.to_string(),
            "resource": &*self.id.key,
            "status": state.phase.status().word(),
            "status_history": history.collect::<Vec<_>>(),
            "created": created.wall,
            "ttl": deadline.map(|deadline| deadline.since(now).as_secs_f64()),
            "active_duration": active.map(|active| end.since(active.at).as_secs_f64()),
            "waiting_duration": active.map_or(end, |active| active.at).since(created.at).as_secs_f64(),
            "user_data": self.user_data,
            "fencing_token": lock.map(|lock| lock.fencing_token().to_string()),
            "owner": &*self.owner,
            "process": self.process,
            "revoked_by": state.revoked_by(),
        })
    }
}

/// How long the client of a waiting claim may be away.
fn absence_max(waiting_ttl: Duration) -> Duration {
    if waiting_ttl.is_zero() { ATTEMPT_KEPT } else { waiting_ttl }
}

/// A request that waits for a claim.
pub(crate) struct Poll<'a> {
    claim: &'a Claim,
    clock: &'a dyn Clock,
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        let mut state = self.claim.state();
        state.polls -= 1;
        state.poll_by = self.clock.now().after(absence_max(self.claim.waiting_ttl));
    }
}

#[cfg(test)]
mod tests {
    use gaggle::{Nonce, strategies::clock::TokioClock};

    use super::*;

    /// The grant may arrive before the request waits for it.
    #[test]
    fn attempt_is_kept_before_its_request_waits() {
        let now = TokioClock::new().now();
        let id = ClaimId { nonce: Nonce::from_u128(1), key: "k".into() };
        let ttls = (Duration::from_secs(5), Duration::ZERO);
        let claim =
            Claim::new(id, "".into(), ttls, (Value::Null, None), Stamp { at: now, wall: 0.0 });
        assert_eq!(claim.keep_until(now), now.after(ATTEMPT_KEPT));
    }
}
