//! The claim of an id: one of this server, or one that is active by another server.

use std::{sync::Arc, time::Duration};

use gaggle::{
    Error, Inspection, Lock, Nonce,
    strategies::limits::{DURATION_MAX, DURATION_MIN},
};
use serde_json::Value;

use super::{Claim, Claims, Stamp, Status};
use crate::{
    access::Caller,
    id::ClaimId,
    owner::{process_of, token_of},
    problem::Problem,
};

/// The server at which a claim was found.
enum Place {
    Here(Arc<Claim>),
    /// The claim is active at another server; and what this one knew of it.
    Elsewhere(Option<Arc<Claim>>, Inspection),
}

impl Claims {
    /// The claim with this id, for a change of it. One that is active by another server is served by
    /// this one from now on.
    pub(crate) async fn find(&self, id: &ClaimId, caller: &Caller) -> Result<Arc<Claim>, Problem> {
        let (known, holder) = match self.locate(id, caller).await? {
            Place::Here(claim) => return Ok(claim),
            Place::Elsewhere(known, holder) => (known, holder),
        };
        let Some(lock) = self.lock_of(id, &holder).await? else {
            return known.ok_or_else(Problem::not_found);
        };
        let claim = self.of_holder(id, &holder);
        claim.extended(lock);
        let mut registry = self.registry();
        // Another request may have found it meanwhile.
        let known = registry.claims.get(&id.nonce);
        if let Some(known) = known.filter(|it| it.status() == Status::Active) {
            return Ok(known.clone());
        }
        let claim = Arc::new(claim);
        registry.add(&claim);
        Ok(claim)
    }

    /// The claim with this id, for a look at it, which changes no lease.
    pub(crate) async fn read(&self, id: &ClaimId, caller: &Caller) -> Result<Arc<Claim>, Problem> {
        match self.locate(id, caller).await? {
            Place::Here(claim) => match self.granted_elsewhere(&claim).await? {
                Some(holder) => Ok(Arc::new(self.of_holder(id, &holder))),
                None => {
                    self.validate(&claim).await?;
                    Ok(claim)
                }
            },
            Place::Elsewhere(_, holder) => Ok(Arc::new(self.of_holder(id, &holder))),
        }
    }

    /// The lock of a claim that waits here: another server may have given it to the client.
    async fn granted_elsewhere(&self, claim: &Claim) -> Result<Option<Inspection>, Problem> {
        match self.is_shared && claim.status() == Status::Waiting {
            true => self.look(&claim.id).await,
            false => Ok(None),
        }
    }

    async fn locate(&self, id: &ClaimId, caller: &Caller) -> Result<Place, Problem> {
        let known = self.known(id.nonce).filter(|claim| claim.id == *id);
        let known = match known {
            Some(claim) if !caller.may_see(&claim.owner) => return Err(Problem::not_found()),
            // Another server may have extended an active one.
            Some(claim) if !self.is_shared || claim.status() != Status::Expired => {
                return Ok(Place::Here(claim));
            }
            known => known,
        };
        match (self.look(id).await?, known) {
            (Some(holder), known) if caller.may_see(token_of(&holder.owner)) => {
                Ok(Place::Elsewhere(known, holder))
            }
            (None, Some(known)) => Ok(Place::Here(known)),
            _ => Err(Problem::not_found()),
        }
    }

    /// Makes a claim active that waits here, and was given to its client by another server.
    pub(crate) async fn adopt(&self, claim: &Claim) -> Result<(), Problem> {
        if let Some(holder) = self.granted_elsewhere(claim).await?
            && let Some(lock) = self.lock_of(&claim.id, &holder).await?
        {
            claim.granted(lock);
            if claim.activate(self.stamp()).is_some() {
                self.registry().activated();
            }
        }
        Ok(())
    }

    /// The lock of a claim that another server has made active. An extension to about the rest of
    /// its lease shows how long it lasts.
    async fn lock_of(&self, id: &ClaimId, holder: &Inspection) -> Result<Option<Lock>, Problem> {
        let lock = Lock::new(id.key.clone(), id.nonce, holder.fencing_token, None);
        match self.mutex.extend(&lock, rest_of(holder)).await {
            Ok(lock) => Ok(Some(lock)),
            Err(Error::NotHolder | Error::Expired) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The holder of the key, if it is this claim.
    async fn look(&self, id: &ClaimId) -> Result<Option<Inspection>, Problem> {
        let found = self.holder_of(id).await?;
        if found.is_some() || self.mutex.group_status().is_none() {
            return Ok(found);
        }
        // The table of a member may be behind the leader's. The answer to a request through the log
        // shows that all earlier grants are in it.
        let unknown = Lock::new(id.key.clone(), Nonce::random(), 0, None);
        match self.mutex.extend(&unknown, DURATION_MIN).await {
            Ok(_) | Err(Error::NotHolder | Error::Expired) => self.holder_of(id).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn holder_of(&self, id: &ClaimId) -> Result<Option<Inspection>, Problem> {
        let holder = self.mutex.inspect(&id.key).await?;
        Ok(holder.filter(|holder| holder.nonce == id.nonce))
    }

    /// An active claim that another server, or another process, has made.
    pub(super) fn of_holder(&self, id: &ClaimId, holder: &Inspection) -> Claim {
        let now = self.stamp();
        let made = Stamp {
            at: now.at.before(holder.held_for),
            wall: now.wall - holder.held_for.as_secs_f64(),
        };
        let ttls = (holder.held_for + holder.remaining, Duration::ZERO);
        let data = (Value::Null, Some(process_of(&holder.owner)));
        let claim = Claim::new(id.clone(), token_of(&holder.owner).into(), ttls, data, made);
        claim.granted(Lock::new(id.key.clone(), id.nonce, holder.fencing_token, None));
        claim.activate(made);
        claim
    }
}

/// About the rest of a lease, but less.
pub(super) fn rest_of(holder: &Inspection) -> Duration {
    holder.remaining.mul_f64(0.9).clamp(DURATION_MIN, DURATION_MAX)
}
