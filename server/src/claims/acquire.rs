//! The task of a waiting claim: its LOCK, and its grant until its client asks for it.
//!
//! Where other servers serve the claim, the task unlocks nothing: a client may have come to one of
//! them with the nonce of its claim, and rely on the lock. So the wait of an absent client ends on
//! the granting side, and its grant with the lease.

use std::{sync::Arc, time::Duration};

use gaggle::{Error, Lock, LockOptions, strategies::limits::MAX_WAIT_MAX};

use super::{Claim, Claims, Phase, Status};
use crate::{owner, problem::Problem};

/// The pause before a LOCK that failed is sent again.
const RETRY: Duration = Duration::from_millis(250);

impl Claims {
    /// Waits for the grant, and keeps it until the client asks for it or is missed.
    pub(super) async fn acquire(self: Arc<Self>, claim: Arc<Claim>) {
        if let Some(lock) = self.wait(&claim).await {
            self.keep(&claim, lock).await;
        }
        if !self.is_shared && claim.status() != Status::Active {
            // No other server has served the claim, and its LOCK may have come after its withdrawal.
            self.mutex.release(&Lock::new(claim.id.key.clone(), claim.id.nonce, 0, None));
        }
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Option<Lock> {
        let label = owner::label(&claim.owner, claim.process.as_ref());
        let options = LockOptions::default().duration(claim.ttl).label(label);
        let options = options.nonce(claim.id.nonce);
        if claim.is_attempt() {
            let attempt = self.mutex.lock(&claim.id.key, options.max_wait(Duration::ZERO)).await;
            return attempt.map_err(|error| self.refuse(claim, error)).ok();
        }
        loop {
            let now = self.clock.now();
            let until = claim.keep_until(now);
            if until <= now {
                self.drop_waiting(claim, Status::Withdrawn);
                return None;
            }
            let wait = until.since(now).min(MAX_WAIT_MAX);
            let mut lock = self.mutex.lock(&claim.id.key, options.clone().max_wait(wait));
            let mut look_at = now.after((wait / 2).max(RETRY));
            let outcome = loop {
                tokio::select! {
                    biased;
                    () = ended(claim) => return None,
                    outcome = &mut lock => break Some(outcome),
                    () = claim.repeat.notified() => break None,
                    () = self.clock.sleep_until(look_at) => {
                        let now = self.clock.now();
                        if claim.keep_until(now) > until {
                            break None;
                        }
                        look_at = now.after((until.since(now) / 2).max(RETRY));
                    }
                }
            };
            // The same LOCK again, with a later end.
            let Some(outcome) = outcome else { continue };
            match outcome {
                Ok(lock) => return Some(lock),
                Err(Error::TimedOut(_)) if self.clock.now() >= until => {}
                // The grant ended before this server received it.
                Err(Error::TimedOut(_) | Error::NotHolder | Error::Expired) => {
                    self.drop_waiting(claim, Status::Expired);
                    return None;
                }
                Err(error) if error.is_permanent() || matches!(error, Error::Limit { .. }) => {
                    self.refuse(claim, error);
                    return None;
                }
                Err(_) => self.clock.sleep_until(self.clock.now().after(RETRY)).await,
            }
        }
    }

    /// Ends a claim that could not be made.
    fn refuse(&self, claim: &Arc<Claim>, error: Error) {
        claim.refuse(error.into());
        self.drop_waiting(claim, Status::Withdrawn);
    }

    /// Extends the lease until the client asks for its claim.
    async fn keep(&self, claim: &Arc<Claim>, mut lock: Lock) {
        let lease = claim.ttl;
        let mut extend_at = self.clock.now().after(lease / 3);
        while claim.granted(lock.clone()) {
            let missed_at = claim.keep_until(self.clock.now());
            tokio::select! {
                biased;
                () = given(claim) => return,
                () = self.clock.sleep_until(extend_at.min(missed_at)) => {}
            }
            let now = self.clock.now();
            if claim.keep_until(now) <= now {
                self.drop_waiting(claim, Status::Withdrawn);
                return;
            }
            if now < extend_at {
                continue;
            }
            extend_at = now.after(lease / 3);
            match self.mutex.extend(&lock, lease).await {
                Ok(extended) => lock = extended,
                Err(Error::NotHolder | Error::Expired) => {
                    self.drop_waiting(claim, Status::Expired);
                    return;
                }
                Err(_) => extend_at = self.clock.now().after((lease / 12).min(RETRY)),
            }
        }
    }
}

/// Completes when the claim is final.
async fn ended(claim: &Claim) {
    until(claim, |phase| matches!(phase, Phase::Ended(_))).await;
}

/// Completes when the claim is its client's, or final.
async fn given(claim: &Claim) {
    until(claim, |phase| matches!(phase, Phase::Active(_) | Phase::Ended(_))).await;
}

async fn until(claim: &Claim, is_reached: fn(&Phase) -> bool) {
    loop {
        let changed = claim.changed.notified();
        if is_reached(&claim.phase()) {
            return;
        }
        changed.await;
    }
}

impl Problem {
    /// Why nothing is granted, although the key is free.
    pub(crate) fn not_granting(claims: &Claims) -> Self {
        match claims.mutex.group_status() {
            Some(status) if status.leader.is_none() => Self::unavailable(
                "no-quorum",
                "the group has no leader: it begins with all members, and then needs a majority",
            ),
            Some(_) => {
                let max_ttl = humantime::format_duration(claims.options.max_ttl);
                let message = format!(
                    "nothing is granted yet: claims of a former group may be active for {max_ttl}, \
                     so that a new group waits as long"
                );
                Self::unavailable("no-grants-yet", message)
            }
            None => Self::unavailable("unavailable", "the lock was not granted in time"),
        }
    }
}
