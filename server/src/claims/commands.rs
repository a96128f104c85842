//! What a client asks of its claim: to be active, to last longer, and to end.

use std::{mem, sync::Arc, time::Duration};

use axum::http::StatusCode;
use gaggle::{
    Error, Inspection, Lock, operator::ForcedUnlock, strategies::limits::LABEL_BYTES_MAX,
};

use super::{Claim, Claims, LOOK_EVERY, Phase, Status, find::rest_of};
use crate::{access::Caller, owner::cut, problem::Problem};

/// How long the grant of a free key may take.
const GRANT_TIMEOUT: Duration = Duration::from_millis(500);
/// After this much of a long wait the granting side is asked whether it serves.
const FIRST_LOOK: Duration = Duration::from_millis(250);

/// The state of a claim after a request for its lock.
pub(crate) enum Standing {
    Active,
    /// The claim waits for this holder.
    Waiting(Box<Inspection>),
    Final,
}

impl Claims {
    /// Waits for the grant, and gives the claim to its client.
    pub(crate) async fn activate(
        &self,
        claim: &Arc<Claim>,
        wait: Duration,
    ) -> Result<Standing, Problem> {
        let _poll = claim.poll(&*self.clock);
        let began = self.clock.now();
        let (until, give_up_at) = (began.after(wait), began.after(GRANT_TIMEOUT));
        let mut has_repeated = false;
        let mut look_at = began.after(wait.min(FIRST_LOOK));
        loop {
            let changed = claim.changed.notified();
            if let Some(lock) = claim.activate(self.stamp()) {
                self.registry().activated();
                return self.deliver(claim, &lock).await;
            }
            match claim.phase() {
                Phase::Active(lock) => {
                    self.check_active(claim, &lock).await?;
                    return Ok(standing(claim));
                }
                Phase::Ended(_) => return claim.refusal().map_or(Ok(Standing::Final), Err),
                Phase::Waiting | Phase::Granted(_) => {}
            }
            tokio::select! {
                biased;
                () = changed => continue,
                () = self.closing.cancelled() => return Err(Problem::closing()),
                problem = self.outage() => return Err(problem),
                // A claim that does not wait ends without a check.
                () = self.clock.sleep_until(look_at), if !claim.is_attempt() => {}
            }
            let now = self.clock.now();
            let holder = self.mutex.inspect(&claim.id.key).await?;
            let status = self.mutex.group_status();
            if now >= began.after(FIRST_LOOK) && status.is_some_and(|it| it.leader.is_none()) {
                return Err(Problem::not_granting(self));
            }
            match holder {
                Some(holder) if holder.nonce != claim.id.nonce && now < until => {
                    look_at = until;
                    continue;
                }
                Some(holder) if holder.nonce != claim.id.nonce => {
                    return Ok(Standing::Waiting(Box::new(holder)));
                }
                // The grant is under way, or went to the server that the client asked before.
                Some(_) => claim.repeat.notify_one(),
                // Another server may have withdrawn the claim, which the reply to the LOCK shows.
                None if !mem::replace(&mut has_repeated, true) => claim.repeat.notify_one(),
                None => {}
            }
            if now >= give_up_at {
                return Err(Problem::not_granting(self));
            }
            look_at = now.after(LOOK_EVERY);
        }
    }

    /// Lengthens the lease of a fresh grant to the ttl of the claim.
    async fn deliver(&self, claim: &Arc<Claim>, lock: &Lock) -> Result<Standing, Problem> {
        let rest = lock.deadline().unwrap_or_default().since(self.clock.now());
        if rest < claim.ttl.mul_f64(0.9)
            && let Err(problem) = self.extend_lock(claim, lock, claim.ttl).await
            && claim.status() == Status::Active
            && rest < claim.ttl / 2
        {
            return Err(problem);
        }
        Ok(standing(claim))
    }

    /// Ends an active claim that does not hold its key. Returns its holder otherwise.
    pub(crate) async fn validate(&self, claim: &Arc<Claim>) -> Result<Option<Inspection>, Problem> {
        let Phase::Active(lock) = claim.phase() else { return Ok(None) };
        let acquisition = (lock.nonce(), lock.fencing_token());
        let holder = self.mutex.inspect(&claim.id.key).await?;
        let holder = holder.filter(|holder| (holder.nonce, holder.fencing_token) == acquisition);
        if holder.is_none() {
            self.end(claim, Status::Expired);
        }
        Ok(holder)
    }

    /// Validates a claim for its client, and finds the end of a lease that another server has
    /// extended.
    async fn check_active(&self, claim: &Arc<Claim>, lock: &Lock) -> Result<(), Problem> {
        let Some(holder) = self.validate(claim).await? else { return Ok(()) };
        if lock.deadline().is_some_and(|deadline| deadline > self.clock.now()) {
            return Ok(());
        }
        // Another server has extended it.
        let extended = self.extend_lock(claim, lock, rest_of(&holder)).await;
        if claim.status() == Status::Expired { Ok(()) } else { extended }
    }

    /// Extends an active claim to `ttl` from now, or later.
    pub(crate) async fn extend(&self, claim: &Arc<Claim>, ttl: Duration) -> Result<(), Problem> {
        match claim.phase() {
            Phase::Active(lock) => self.extend_lock(claim, &lock, ttl).await,
            _ => Err(invalid_status(claim)),
        }
    }

    async fn extend_lock(
        &self,
        claim: &Arc<Claim>,
        lock: &Lock,
        ttl: Duration,
    ) -> Result<(), Problem> {
        // The deadline is left out: another server may have extended the claim.
        let lock = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token(), None);
        match self.mutex.extend(&lock, ttl).await {
            Ok(extended) => claim.extended(extended),
            Err(Error::NotHolder | Error::Expired) => {
                self.end(claim, Status::Expired);
                return Err(invalid_status(claim));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Ends a claim with a status that its client, or an operator, has chosen. Returns the token of
    /// the lock that this freed, or `None` if the claim had this status already.
    pub(crate) async fn finish(
        &self,
        claim: &Arc<Claim>,
        caller: &Caller,
        status: Status,
        reason: Option<&str>,
    ) -> Result<Option<u64>, Problem> {
        let by = match reason {
            Some(reason) => format!("{}: {reason}", caller.name),
            None => caller.name.to_string(),
        };
        if status == Status::Revoked {
            claim.set_revoked_by(cut(&by, LABEL_BYTES_MAX));
        }
        match claim.phase() {
            Phase::Ended(present) if present == status => Ok(None),
            Phase::Ended(_) => Err(invalid_status(claim)),
            Phase::Waiting | Phase::Granted(_) if status == Status::Released => {
                Err(invalid_status(claim))
            }
            Phase::Waiting | Phase::Granted(_) => {
                self.withdraw(claim, status).await;
                Ok(Some(0))
            }
            Phase::Active(lock) if status == Status::Revoked || *claim.owner != *caller.name => {
                self.force(claim, &by, &lock, status).await?;
                Ok(Some(lock.fencing_token()))
            }
            Phase::Active(lock) => {
                self.release(claim, &lock, status).await?;
                Ok(Some(lock.fencing_token()))
            }
        }
    }

    /// Ends a waiting claim. The withdrawal is sent until it arrives.
    pub(crate) async fn withdraw(&self, claim: &Arc<Claim>, status: Status) {
        self.end(claim, status);
        let lock = Lock::new(claim.id.key.clone(), claim.id.nonce, 0, None);
        let _ = self.mutex.unlock(&lock).await;
    }

    async fn release(
        &self,
        claim: &Arc<Claim>,
        lock: &Lock,
        status: Status,
    ) -> Result<(), Problem> {
        let earlier = claim.attempt(status);
        match self.mutex.unlock(lock).await {
            Ok(()) => self.end(claim, status),
            // The attempt whose outcome was unknown took effect.
            Err(Error::NotHolder | Error::Expired) if earlier == Some(status) => {
                self.end(claim, status);
            }
            Err(Error::NotHolder | Error::Expired) => {
                self.end(claim, Status::Expired);
                return Err(invalid_status(claim));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Ends the claim, or the lock, of another holder: the strategy notifies it.
    async fn force(
        &self,
        claim: &Arc<Claim>,
        by: &str,
        lock: &Lock,
        status: Status,
    ) -> Result<(), Problem> {
        let Some(operator) = self.mutex.operator() else {
            let message = "this strategy has no force-unlock";
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "no-operator", message));
        };
        let reason = format!("{} over HTTP by {by}", status.word());
        let (key, token) = (lock.key(), lock.fencing_token());
        match operator.force_unlock(key, Some(token), cut(&reason, LABEL_BYTES_MAX)).await? {
            ForcedUnlock::Unlocked(_) => {
                self.end(claim, status);
                Ok(())
            }
            ForcedUnlock::NotHeld | ForcedUnlock::OtherToken(_) => {
                self.end(claim, Status::Expired);
                Err(invalid_status(claim))
            }
        }
    }
}

fn standing(claim: &Claim) -> Standing {
    if claim.status() == Status::Active { Standing::Active } else { Standing::Final }
}

/// The claim's status does not allow the request.
pub(crate) fn invalid_status(claim: &Claim) -> Problem {
    let status = claim.status().word();
    let message = format!("the status of the claim is {status}");
    Problem::new(StatusCode::BAD_REQUEST, "invalid-status", message)
        .with("status", status)
        .with("revoked_by", claim.revoked_by())
        .with("claim_id", claim.id.to_string())
}
