//! The claims of a server: the ones that wait, are active, or ended lately.

mod acquire;
mod claim;
mod commands;
mod find;
mod list;
mod losses;
mod outage;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::StatusCode;
use gaggle::{Clock, Error, Inspection, Instant, KeyedMutex, Lock, Nonce};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::claim::Stamp;
pub(crate) use self::{
    claim::{Claim, Phase, Status},
    commands::{Standing, invalid_status},
};
use crate::{
    access::Caller, id::ClaimId, options::Options, owner::token_of, problem::Problem,
    request::Create,
};

/// How long a final claim is remembered, and how many are.
const CLAIM_MEMORY: Duration = Duration::from_secs(600);
const ENDED_MAX: usize = 100_000;
/// How often active claims past their deadline are ended here.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How often a request that waits for a grant looks at a key that is free or its own.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The claims of a server, over one strategy.
pub(crate) struct Claims {
    pub(crate) mutex: Arc<dyn KeyedMutex>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    /// Cancelled as the server ends.
    pub(crate) closing: CancellationToken,
    /// Other servers may serve the same claims.
    is_shared: bool,
    /// Why the strategy does not serve now, if that lasts.
    outage: watch::Sender<Option<Problem>>,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    claims: BTreeMap<Nonce, Arc<Claim>>,
    waiting: usize,
    /// How many claims wait or are active, by owner.
    live: BTreeMap<Arc<str>, usize>,
    /// The final claims, the oldest first.
    ended: VecDeque<(Instant, Arc<Claim>)>,
    /// The latest claims that were lost, the oldest first.
    losses: VecDeque<Arc<Claim>>,
    sweep_at: Instant,
}

impl Registry {
    fn add(&mut self, claim: &Arc<Claim>) {
        self.claims.insert(claim.id.nonce, claim.clone());
        *self.live.entry(claim.owner.clone()).or_default() += 1;
        self.waiting += usize::from(claim.status() == Status::Waiting);
        self.report();
    }

    fn activated(&mut self) {
        self.waiting -= 1;
        self.report();
    }

    fn ended(&mut self, now: Instant, claim: &Arc<Claim>, was: Status) {
        if let Some(live) = self.live.get_mut(&claim.owner) {
            *live -= 1;
            if *live == 0 {
                self.live.remove(&claim.owner);
            }
        }
        self.waiting -= usize::from(was == Status::Waiting);
        self.ended.push_back((now, claim.clone()));
        self.note_loss(claim);
        self.report();
    }

    /// Notes a claim that ended before it was made here.
    fn add_ended(&mut self, now: Instant, claim: &Arc<Claim>) {
        self.claims.insert(claim.id.nonce, claim.clone());
        self.ended.push_back((now, claim.clone()));
    }

    /// Forgets final claims that are old, or too many.
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, _)) = self.ended.front()
            && (at.after(CLAIM_MEMORY) <= now || self.ended.len() > ENDED_MAX)
        {
            let (_, claim) = self.ended.pop_front().expect("there is a first");
            self.forget(&claim);
        }
    }

    /// Forgets a claim, unless another one of its nonce was made or found since.
    fn forget(&mut self, claim: &Arc<Claim>) {
        if self.claims.get(&claim.id.nonce).is_some_and(|known| Arc::ptr_eq(known, claim)) {
            self.claims.remove(&claim.id.nonce);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
    fn report(&self) {
        let live = self.live.values().sum::<usize>();
        metrics::gauge!("gaggle_claims", "status" => "waiting").set(self.waiting as f64);
        metrics::gauge!("gaggle_claims", "status" => "active").set((live - self.waiting) as f64);
    }
}

impl Claims {
    pub(crate) fn new(mutex: Arc<dyn KeyedMutex>, options: Options) -> Self {
        Self {
            clock: mutex.clock(),
            is_shared: mutex.capabilities().distributed,
            mutex,
            options,
            closing: CancellationToken::new(),
            outage: watch::Sender::default(),
            registry: Mutex::default(),
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[allow(clippy::cast_precision_loss, reason = "a fraction of a microsecond is lost")]
    fn stamp(&self) -> Stamp {
        let wall = self.clock.wall_nanos() as f64 / 1e9;
        Stamp { at: self.clock.now(), wall }
    }

    /// Makes a claim, which waits, or returns the one with this key.
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        request: Create,
        key: Option<Nonce>,
    ) -> Result<Arc<Claim>, Problem> {
        self.sweep_if_due();
        let nonce = key.unwrap_or_else(|| Nonce::given(Nonce::random().as_u128()));
        let id = ClaimId { nonce, key: request.resource.into() };
        let other = || {
            let message = "the Idempotency-Key is of another claim: generate one for each claim";
            Problem::new(StatusCode::CONFLICT, "idempotency-key-reused", message)
        };
        if key.is_some() && self.is_shared && self.known(nonce).is_none() {
            // Another server may have made this claim active.
            let holder = self.mutex.inspect(&id.key).await?;
            let holder = holder.filter(|it| it.nonce == nonce);
            if holder.is_some_and(|it| token_of(&it.owner) != &*caller.name) {
                return Err(other());
            }
        }
        let mut registry = self.registry();
        if let Some(known) = registry.claims.get(&nonce) {
            let is_same = known.id == id
                && known.owner == caller.name
                && (matches!(known.phase(), Phase::Ended(_))
                    || (known.ttl, known.waiting_ttl) == (request.ttl, request.waiting_ttl));
            return if is_same { Ok(known.clone()) } else { Err(other()) };
        }
        let Options { waiting_max, claims_per_token, .. } = self.options;
        if registry.waiting >= waiting_max {
            return Err(Problem::limit("waiting claims", waiting_max));
        }
        if registry.live.get(&caller.name).is_some_and(|live| *live >= claims_per_token) {
            return Err(Problem::limit("claims of this token", claims_per_token));
        }
        let (owner, ttls) = (caller.name.clone(), (request.ttl, request.waiting_ttl));
        let data = (request.user_data, request.process);
        let claim = Arc::new(Claim::new(id, owner, ttls, data, self.stamp()));
        registry.add(&claim);
        drop(registry);
        tokio::spawn(self.clone().acquire(claim.clone()));
        Ok(claim)
    }

    fn known(&self, nonce: Nonce) -> Option<Arc<Claim>> {
        self.registry().claims.get(&nonce).cloned()
    }

    /// Ends a claim that this server does not know: it may wait by another one, or its `POST` may
    /// arrive later. Only its client knows the nonce of a claim that is not active.
    pub(crate) async fn withdraw_unknown(
        &self,
        id: ClaimId,
        caller: &Caller,
        status: Status,
    ) -> Result<(), Problem> {
        let holder = self.mutex.inspect(&id.key).await?;
        let is_its = |holder: &Inspection| caller.may_see(token_of(&holder.owner));
        if holder.is_some_and(|holder| holder.nonce == id.nonce && !is_its(&holder)) {
            return Err(Problem::not_found());
        }
        let now = self.stamp();
        let known = {
            let mut registry = self.registry();
            registry.forget_old(now.at);
            let known = registry.claims.get(&id.nonce).cloned();
            if known.is_none() {
                let (owner, ttls) = (caller.name.clone(), (Duration::ZERO, Duration::ZERO));
                let claim = Claim::new(id.clone(), owner, ttls, (Value::Null, None), now);
                claim.end(status, now);
                registry.add_ended(now.at, &Arc::new(claim));
            }
            known
        };
        match known {
            Some(known) if known.id == id && caller.may_see(&known.owner) => {
                self.finish(&known, caller, status, None).await.map(drop)
            }
            Some(_) => Err(Problem::not_found()),
            None => {
                let lock = Lock::new(id.key, id.nonce, 0, None);
                match self.mutex.unlock(&lock).await {
                    Ok(()) => Ok(()),
                    Err(Error::NotHolder | Error::Expired) => Err(Problem::not_found()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Ends a claim here.
    fn end(&self, claim: &Arc<Claim>, status: Status) {
        let mut now = self.stamp();
        let deadline = match claim.phase() {
            Phase::Active(lock) => lock.deadline(),
            _ => None,
        };
        if status == Status::Expired
            && let Some(deadline) = deadline
        {
            let ago = now.at.since(deadline);
            now = Stamp { at: now.at.before(ago), wall: now.wall - ago.as_secs_f64() };
        }
        if let Some(before) = claim.end(status, now) {
            self.registry().ended(self.clock.now(), claim, before.status());
        }
    }

    /// Ends a waiting claim that its client has not ended. The client may wait or hold the lock at
    /// another server, so that this one forgets the claim: a later request asks the granting side.
    fn drop_waiting(&self, claim: &Arc<Claim>, status: Status) {
        self.end(claim, status);
        if self.is_shared {
            self.registry().forget(claim);
        }
    }

    /// Forgets old claims, and sweeps after [`SWEEP_EVERY`].
    fn sweep_if_due(&self) {
        let (now, mut registry) = (self.clock.now(), self.registry());
        registry.forget_old(now);
        if registry.sweep_at <= now {
            drop(registry);
            self.sweep();
        }
    }

    /// Ends active claims past their deadline.
    fn sweep(&self) {
        let now = self.clock.now();
        let mut registry = self.registry();
        registry.sweep_at = now.after(SWEEP_EVERY);
        let is_over = |claim: &&Arc<Claim>| match claim.phase() {
            Phase::Active(lock) => lock.deadline().is_none_or(|deadline| deadline <= now),
            _ => false,
        };
        let over: Vec<_> = registry.claims.values().filter(is_over).cloned().collect();
        drop(registry);
        over.iter().for_each(|claim| self.end(claim, Status::Expired));
    }
}
