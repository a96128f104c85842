use std::{sync::Arc, time::Duration};

use super::{
    Member, Policy,
    asking::{Asking, Cancel},
};
use crate::{
    Drift, Error, Instant, Lock, LockOptions, MaxWait, Owner, check_request, granted_deadline,
    lock_table::Grant,
    member::requests::{Answer, Call, LockCall, Until},
    wait::{lasts, whole_ms},
};

/// Between refusals of plain compare-and-set, a caller sleeps this long, jittered, so that many do
/// not ask in step.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

impl Member {
    pub(crate) async fn lock(&self, key: &str, options: &LockOptions) -> Result<Lock, Error> {
        check_request(key, options)?;
        self.check_lease(options.duration)?;
        self.check_open()?;
        let started = self.clock.now();
        let (until, end) = match options.max_wait {
            MaxWait::AtMost(Duration::ZERO) => {
                (Until::Now, Some(started.after(self.request_timeout)))
            }
            MaxWait::AtMost(wait) => (Until::At(started.after(wait)), Some(started.after(wait))),
            MaxWait::Forever => (Until::Never, None),
        };
        let mut now = started;
        let mut call = self.lock_call(key, options, until);
        let mut caller = self.ask_lock(&call)?;
        loop {
            match self.answer_by(now, end, &mut caller.reply).await? {
                Some(Answer::Granted { grant, sent, received, claim }) => {
                    let duration = Duration::from_millis(call.duration_ms);
                    let deadline = local_deadline(&grant, sent, received, self.drift);
                    let lock = Lock::new(grant.key, grant.nonce, grant.token, Some(deadline));
                    let lock = match self.clock.now() {
                        now if has_half_left(&lock, now, duration) => lock,
                        // Rare, and long enough to make the future of every lock longer.
                        now => Box::pin(self.extended_to_half(&lock, duration, now, end)).await?,
                    };
                    self.check_open()?;
                    if claim.take() {
                        caller.disarm();
                        return Ok(lock);
                    }
                    // Closing has passed it on already.
                    self.check_open()?;
                    // The group in which it was granted has been left: a new acquisition.
                    if !call.drawn {
                        break Err(caller.ended(Error::Spent));
                    }
                    caller.disarm();
                    now = self.pause_before_retry(end).await?;
                    call.nonce = self.draws.nonce();
                    call.unused = true;
                    caller = self.ask_lock(&call)?;
                }
                // Armed all the while: a copy of the LOCK may still be under way, and whoever gives
                // up here withdraws it.
                Some(Answer::Held) if call.retries => {
                    call.unused = false;
                    now = self.pause_before_retry(end).await?;
                    caller.reply =
                        self.ask(Call::Lock { caller: caller.caller, lock: call.clone() })?;
                }
                Some(Answer::Held) => break Err(caller.ended(Error::Held)),
                // Granted and run out before this process learned of it: a new acquisition.
                Some(Answer::Spent) if call.drawn => {
                    caller.disarm();
                    now = self.pause_before_retry(end).await?;
                    call.nonce = self.draws.nonce();
                    call.unused = true;
                    caller = self.ask_lock(&call)?;
                }
                Some(Answer::Spent) => break Err(caller.ended(Error::Spent)),
                Some(Answer::Limit { what, limit }) => {
                    break Err(caller.ended(Error::Limit { what, limit }));
                }
                Some(Answer::Unlocked { .. } | Answer::Unanswered | Answer::Extended { .. }) => {
                    unreachable!("a lock is answered as a lock")
                }
                None => return Err(self.unanswered(until)),
            }
        }
    }

    fn lock_call(&self, key: &str, options: &LockOptions, until: Until) -> LockCall {
        let owner = match &options.label {
            None => self.owner.clone(),
            label => Arc::new(Owner { label: label.clone(), ..(*self.owner).clone() }),
        };
        LockCall {
            key: key.into(),
            nonce: options.nonce.unwrap_or_else(|| self.draws.nonce()),
            drawn: options.nonce.is_none(),
            unused: options.nonce.is_none(),
            duration_ms: whole_ms(options.duration),
            until: if self.policy == Policy::CompareAndSet { Until::Now } else { until },
            retries: self.policy == Policy::CompareAndSet && until != Until::Now,
            owner,
        }
    }

    /// The lock, extended: a lease of which less than half remains locally is not handed out.
    async fn extended_to_half(
        &self,
        lock: &Lock,
        duration: Duration,
        now: Instant,
        end: Option<Instant>,
    ) -> Result<Lock, Error> {
        let limit = now.after(self.request_timeout);
        let by = end.map_or(limit, |end| end.min(limit));
        match self.extend_by(lock, duration, now, by).await {
            Ok(lock) if has_half_left(&lock, self.clock.now(), duration) => Ok(lock),
            Err(error @ (Error::Closed | Error::Failed { .. })) => Err(error),
            _ => Err(Error::TimedOut),
        }
    }

    /// Returns the time after it.
    async fn pause_before_retry(&self, end: Option<Instant>) -> Result<Instant, Error> {
        let pause = self.draws.between(RETRY.0, RETRY.1);
        let now = self.clock.now();
        let wake = now.after(pause);
        match end {
            Some(end) if wake >= end => {
                self.clock.sleep_from(now, end).await;
                Err(Error::TimedOut)
            }
            _ => {
                self.clock.sleep_from(now, wake).await;
                self.check_open()?;
                Ok(self.clock.now())
            }
        }
    }

    fn ask_lock(&self, call: &LockCall) -> Result<Asking<'_>, Error> {
        let caller = self.next_caller();
        let reply = self.ask(Call::Lock { caller, lock: call.clone() })?;
        let cancel = Some(Cancel::Withdraw { key: call.key.clone(), nonce: call.nonce });
        Ok(Asking { member: self, caller, reply, cancel })
    }
}

/// Whether a lock may be handed out: at least half of its lease remains.
fn has_half_left(lock: &Lock, now: Instant, duration: Duration) -> bool {
    lock.deadline().is_some_and(|deadline| lasts(deadline, now, duration))
}

/// The holder's deadline (contract, rule 2). Where the LOCK was repeated after its grant, only what
/// then remained of the lease counts from the send.
fn local_deadline(grant: &Grant, sent: Instant, received: Instant, drift: Drift) -> Instant {
    let waited = Duration::from_millis(grant.granted_at.since(grant.asked_at));
    let from = grant.granted_at.max(grant.asked_at);
    let lease = Duration::from_millis(grant.expires_at.since(from));
    granted_deadline(sent, received, waited, lease, drift)
}
