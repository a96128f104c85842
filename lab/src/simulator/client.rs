//! Clients: tasks that lock, extend, unlock, cancel and die.

mod claims;
mod handed;

use std::{future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use futures_util::{pending, poll};
use gaggle_strategies::{
    Error, KeyedMutex, Lock, LockOptions, MaxWait,
    client::SHORTEST_SLEEP,
    clock::{Clock, Instant},
    defaults::REQUEST_TIMEOUT,
    implement::{LossWatch, lasts, whole_ms},
    operator::ForcedUnlock,
};

use self::claims::Claim;
pub(super) use self::{claims::Claims, handed::Handed};
use super::{
    clock::SimClock,
    plan::WorkPlan,
    random::Random,
    recorder::{Completion, Observation, Op, Recorder},
    standstill::Standstill,
};
use crate::history::{Call, Outcome};

/// A user of the strategy: takes locks, holds, extends, gives up, comes back, dies.
pub(super) struct Client {
    pub(super) id: u32,
    pub(super) strategy: Arc<dyn KeyedMutex>,
    pub(super) clock: Arc<SimClock>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) work: WorkPlan,
    pub(super) keys: Vec<Arc<str>>,
    pub(super) random: Random,
    pub(super) handed: Arc<Handed>,
    pub(super) claims: Arc<Claims>,
    /// The lock was granted to another client.
    pub(super) adopting: bool,
    /// The client holds its locks outside the members: no notice of a loss reaches it.
    pub(super) outside: bool,
    /// How often the granting side had lost its memory when this client last took a lock.
    pub(super) forgotten: u64,
    /// Checks that calls end by the deadline; how long its process stood still must be known.
    pub(super) standstill: Arc<Standstill>,
}

/// How far a call may overrun its deadline while its driver runs: its shortest sleep, and rounding.
const OVERRUN: Duration = SHORTEST_SLEEP.saturating_add(Duration::from_nanos(100));

impl Client {
    /// Works until the simulation stops its clients.
    pub(super) async fn run(mut self) {
        loop {
            let think = self.random.between(0, self.work.think_max);
            self.sleep(Duration::from_nanos(think)).await;
            if self.recorder.is_stopped() {
                return;
            }
            self.attempt().await;
        }
    }

    async fn attempt(&mut self) {
        if self.random.chance(500_000)
            && let Some((op, lock)) = self.handed.take()
        {
            self.adopting = true;
            self.adopt(op, &lock).await;
            self.adopting = false;
            return;
        }
        let key = self.keys[self.random.index(self.keys.len())].clone();
        if self.work.force > 0 && self.random.chance(self.work.force) {
            return self.force(&key).await;
        }
        let (low, high) = self.work.lease_ms;
        let duration_ms = self.random.spread(low, high);
        let max_wait = if self.random.chance(self.work.try_lock) {
            MaxWait::AtMost(Duration::ZERO)
        } else if self.random.chance(self.work.forever) {
            MaxWait::Forever
        } else {
            MaxWait::AtMost(Duration::from_millis(self.random.spread(1, self.work.wait_ms_max)))
        };
        let duration = Duration::from_millis(duration_ms);
        if let Some(claim) = self.taken_claim() {
            return self.claim(claim, max_wait).await;
        }
        let op = self.recorder.next_op();
        if self.work.given > 0 && self.random.chance(self.work.given) {
            let claim = Claim::new(op.given(), key, duration, &self.recorder);
            return self.claim(claim, max_wait).await;
        }
        let options = LockOptions::default().max_wait(max_wait);
        let options = options.duration(duration).label(op.label());
        match self.lock(op, &key, &options, None).await {
            Some(Ok(lock)) => self.hold(op, lock, duration).await,
            Some(Err(Error::Closed)) => self.sleep(Duration::from_millis(50)).await,
            // The next call would be refused as well, until others have ended.
            Some(Err(Error::Limit { .. })) => self.sleep(Duration::from_millis(100)).await,
            Some(Err(_)) | None => {}
        }
    }

    /// A call of lock; `None` where it was cancelled.
    async fn lock(
        &mut self,
        op: Op,
        key: &Arc<str>,
        options: &LockOptions,
        claim: Option<&Claim>,
    ) -> Option<Result<Lock, Error>> {
        let wait = match options.get_max_wait() {
            MaxWait::AtMost(wait) => Some(wait),
            MaxWait::Forever => None,
        };
        let call = Call::Lock { duration: options.get_duration(), max_wait: wait };
        self.forgotten = self.recorder.forgotten();
        self.called(op, key, call);
        let limit = wait.map(|wait| if wait.is_zero() { REQUEST_TIMEOUT } else { wait });
        let patience = self.patience(self.work.cancel);
        let strategy = self.strategy.clone();
        let outcome = self.bounded(limit, patience, strategy.lock(key, options.clone())).await;
        if let (Some(Ok(lock)), Some(claim)) = (&outcome, claim)
            && !self.relies_on(claim, lock.fencing_token())
        {
            self.completed(Completion::Unknown);
            return outcome;
        }
        let completion = match &outcome {
            None => Completion::Cancelled,
            Some(Err(error)) => Completion::Otherwise(call.failed(error)),
            Some(Ok(lock)) => {
                let until = lock.deadline().expect("a fresh lock has its deadline");
                if !lasts(until, self.clock.now(), options.get_duration()) {
                    self.broken(format!("less than half of the lease remains of {lock:?}"));
                }
                Completion::Granted { token: lock.fencing_token(), until }
            }
        };
        self.completed(completion);
        outcome
    }

    async fn hold(&mut self, op: Op, mut lock: Lock, duration: Duration) {
        let (watch, own) = (self.watch(&lock), self.watch(&lock));
        let nonce = lock.nonce();
        self.note(Observation::Holds { client: self.id, op, lock: lock.clone(), watch });
        let lease = whole_ms(duration);
        let mut lost = false;
        for _ in 0..3 {
            // Some stay past the lease: they may hold nothing then.
            let stay =
                if self.random.chance(self.work.overstay) { lease * 3 / 2 } else { lease / 2 };
            let stay = self.random.between(0, stay * 1_000_000);
            self.sleep(Duration::from_nanos(stay)).await;
            if !self.random.chance(self.work.extend) {
                break;
            }
            let duration = Duration::from_millis(self.random.spread(1, lease * 2));
            match self.extend(op, &lock, duration).await {
                Some(Ok(extended)) => lock = extended,
                Some(Err(Error::Expired | Error::NotHolder)) => {
                    lost = true;
                    break;
                }
                _ => {}
            }
        }
        // A client transfers no lock that it knows to be lost; it may read that late.
        let transfers = self.random.chance(self.work.transfer_lock);
        let transfers = transfers && !lost && !own.is_lost();
        if transfers || self.random.chance(self.work.abandon) {
            // Leaves without an unlock: the lease frees the key, unless another client adopts the
            // lock.
            self.note(Observation::LetsGo { client: self.id, nonce });
            self.called(op, lock.key(), Call::Unlock);
            if transfers {
                self.handed.put(op, &lock);
                return self.completed(Completion::Unknown);
            }
            return self.completed(Completion::Cancelled);
        }
        self.note(Observation::LetsGo { client: self.id, nonce });
        if self.random.chance(self.work.release) {
            self.called(op, lock.key(), Call::Unlock);
            self.note(Observation::Releases { nonce, token: lock.fencing_token() });
            self.strategy.release(&lock);
            return self.completed(Completion::Cancelled);
        }
        self.unlock(op, &lock, &own).await;
    }

    /// Ends the grant of a key, as an operator does.
    async fn force(&mut self, key: &Arc<str>) {
        let strategy = self.strategy.clone();
        let found = self.bounded(Some(REQUEST_TIMEOUT), None, strategy.inspect(key)).await;
        let Some(Ok(Some(found))) = found else { return };
        let (nonce, token) = (found.nonce, found.fencing_token);
        self.note(Observation::Forces { key: key.clone(), nonce, token });
        let operator = strategy.operator().expect("every strategy here has one");
        let patience = self.patience(self.work.cancel);
        let call = operator.force_unlock(key, Some(token), "simulated");
        if let Some(Ok(ForcedUnlock::Unlocked(_))) =
            self.bounded(Some(REQUEST_TIMEOUT), patience, call).await
        {
            self.note(Observation::Reached("lock force-unlocked"));
        }
    }

    /// Takes over the lock of another client.
    async fn adopt(&mut self, op: Op, lock: &Lock) {
        let (low, high) = self.work.lease_ms;
        let duration = Duration::from_millis(self.random.spread(low, high));
        for _ in 0..3 {
            match self.extend(op, lock, duration).await {
                Some(Ok(lock)) => {
                    self.note(Observation::Reached("transferred lock adopted"));
                    return self.hold(op, lock, duration).await;
                }
                Some(Err(Error::Expired | Error::NotHolder)) => {
                    return self.note(Observation::Reached("transferred lock ended"));
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    async fn extend(
        &mut self,
        op: Op,
        lock: &Lock,
        duration: Duration,
    ) -> Option<Result<Lock, Error>> {
        let call = Call::Extend { duration };
        self.called(op, lock.key(), call);
        let patience = self.patience(self.work.cancel);
        let strategy = self.strategy.clone();
        let outcome =
            self.bounded(Some(REQUEST_TIMEOUT), patience, strategy.extend(lock, duration)).await;
        let completion = match &outcome {
            None => Completion::Cancelled,
            // By its own deadline, before it asked: the lease that it was handed may be longer than
            // what it asked for, and says nothing about who holds.
            Some(Err(Error::Expired)) if self.adopting => Completion::Unknown,
            // The group was lost without notice; its lock keeps its lease.
            Some(Err(Error::NotHolder)) if self.outside => Completion::Unknown,
            Some(Err(error)) => Completion::Otherwise(call.failed(error)),
            Some(Ok(extended)) => {
                let until = extended.deadline().expect("an extended lock has its deadline");
                let (client, nonce) = (self.id, lock.nonce());
                self.note(Observation::Extends { client, nonce, deadline: until });
                Completion::Extended { until }
            }
        };
        self.completed(completion);
        outcome
    }

    async fn unlock(&mut self, op: Op, lock: &Lock, watch: &LossWatch) {
        self.called(op, lock.key(), Call::Unlock);
        let patience = self.patience(self.work.cancel);
        let strategy = self.strategy.clone();
        let outcome = self.bounded(Some(REQUEST_TIMEOUT), patience, strategy.unlock(lock)).await;
        let ended = self.outside
            || watch.is_lost()
            || self.forgotten != self.recorder.forgotten()
            || self.recorder.is_forced(lock.nonce());
        if let Some(Err(Error::NotHolder)) = &outcome
            && !ended
        {
            self.lost_while_valid(lock);
        }
        self.completed(match &outcome {
            None => Completion::Cancelled,
            // A repeated frame of this very unlock may have freed the key.
            Some(Err(Error::Expired)) => Completion::Cancelled,
            // Notified of the loss before or during the call: this says nothing about the holder.
            Some(Err(Error::NotHolder)) if ended => Completion::Cancelled,
            Some(Ok(())) => {
                self.note(Observation::Unlocked(lock.clone()));
                Completion::Otherwise(Outcome::Done)
            }
            Some(Err(error)) => Completion::Otherwise(Call::Unlock.failed(error)),
        });
    }

    /// The granting side no longer knew a holder that could rely on its lock.
    fn lost_while_valid(&self, lock: &Lock) {
        let valid = lock.deadline().is_some_and(|deadline| self.clock.now() < deadline);
        if valid {
            self.broken(format!("unlock says not holder before the deadline of {lock:?}"));
        }
    }

    /// Drops the call after `patience`, and checks that it ends by `limit` otherwise.
    async fn bounded<T>(
        &mut self,
        limit: Option<Duration>,
        patience: Option<Duration>,
        call: impl Future<Output = T>,
    ) -> Option<T> {
        let late = self.late();
        let mut slept = Duration::ZERO;
        let began = self.clock.now();
        let cancelled = async {
            match patience {
                Some(patience) => self.sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = self.looked_at(late, &mut slept, call) => Some(outcome),
            () = cancelled => None,
        };
        let ended = self.clock.now();
        let took = ended.since(began);
        let allowed = limit.map(|limit| {
            let stood = self.standstill.between(began.after(limit), ended);
            limit + stood + slept + OVERRUN
        });
        if let Some(allowed) = allowed
            && took > allowed
        {
            self.broken(format!("a call that may take {allowed:?} took {took:?}"));
        }
        outcome
    }

    /// For how long this caller does not look at the first event of its call, if it does not.
    fn late(&mut self) -> Option<Duration> {
        if !self.random.chance(self.work.late) {
            return None;
        }
        Some(Duration::from_nanos(self.random.between(0, self.work.late_max)))
    }

    /// Polls a call, but when it is first woken only after this time, which is then noted in
    /// `slept`.
    async fn looked_at<T>(
        &self,
        late: Option<Duration>,
        slept: &mut Duration,
        call: impl Future<Output = T>,
    ) -> T {
        let mut call = pin!(call);
        if let Some(late) = late {
            if let Poll::Ready(outcome) = poll!(call.as_mut()) {
                return outcome;
            }
            // The next wake of this task may have any reason.
            pending!();
            *slept = late;
            self.note(Observation::Reached("reply looked at late"));
            self.sleep(late).await;
        }
        call.await
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        if self.outside { LossWatch::never() } else { self.strategy.watch(lock) }
    }

    /// After how long this caller drops its call, if it does.
    fn patience(&mut self, chance: u64) -> Option<Duration> {
        let patience = self.random.spread(1, 3_000_000_000);
        self.random.chance(chance).then(|| Duration::from_nanos(patience))
    }

    fn called(&self, op: Op, key: &Arc<str>, call: Call) {
        self.note(Observation::Called { client: self.id, key: key.clone(), op, call });
    }

    fn completed(&self, outcome: Completion) {
        self.note(Observation::Completed { client: self.id, outcome });
    }

    fn broken(&self, what: String) {
        self.note(Observation::Broken(what));
    }

    fn note(&self, observation: Observation) {
        self.recorder.note(observation);
    }

    async fn sleep(&self, duration: Duration) {
        let at: Instant = self.clock.now().after(duration);
        self.clock.sleep_until(at).await;
    }
}
