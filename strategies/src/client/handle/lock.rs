//! The one `lock`: from the checks to the lock or the error.

use std::time::Duration;

use humantime::format_duration;

use super::{Client, call_guard::CallGuard};
use crate::{
    client::{
        backend::{Backend, Cause},
        calls::{Call, CallId, LockCall, Reply, RequestId, Until},
    },
    clock::Instant,
    deadline::{check_lasting, lasts, whole_ms},
    error::{Error, UnavailableKind},
    lock::Lock,
    options::{LockOptions, MaxWait, check_request},
};

/// The pause before an acquisition whose grant ended unread is retried under a fresh nonce.
const ENDED_RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// How many grants may be read too late before the call ends. One is, after a suspension; all are,
/// if the lease is too short for the network: a wait without an end would never end.
const LATE_GRANTS_MAX: u32 = 3;

impl<B: Backend> Client<B> {
    pub(crate) async fn lock(&self, key: &str, options: &LockOptions) -> Result<Lock, Error> {
        check_request(key, options)?;
        check_lasting(options.get_duration(), self.profile.drift, self.profile.lease_max)?;
        self.check_open()?;
        let mut call = self.call(key, options);
        let mut guard = self.send_lock(&call)?;
        let (first, mut late_grants) = (call.id, 0);
        loop {
            let reply = guard.reply().await?;
            let pause = match reply {
                Reply::Granted { lock, delivery } => {
                    let now = self.clock.now();
                    let lock = if has_half_left(&lock, now, call.lease) {
                        Some(lock)
                    } else {
                        // Rare, and long enough to make the future of every lock longer.
                        Box::pin(self.extended_to_half(&lock, now, &call)).await
                    };
                    self.check_running()?;
                    if let Some(lock) = lock {
                        let taken = delivery.take();
                        guard.disarm();
                        if taken {
                            return Ok(lock);
                        }
                        // The lock was lost before its grant was read, with the handle or with the
                        // granting side.
                        self.check_running()?;
                    } else if late_grants == LATE_GRANTS_MAX {
                        return Err(too_short(call.lease, self.clock.now().since(now)));
                    } else {
                        late_grants += 1;
                    }
                    ENDED_RETRY
                }
                reply => {
                    guard.disarm();
                    match reply {
                        Reply::Held if !call.tries => self.profile.retry,
                        Reply::Ended => ENDED_RETRY,
                        Reply::Unsafe(cause) => {
                            call.unsafe_grant = Some(cause);
                            ENDED_RETRY
                        }
                        Reply::Held => return Err(Error::Held(None)),
                        Reply::Failed(error) => return Err(error),
                        other => unreachable!("a lock has no reply {other:?}"),
                    }
                }
            };
            drop(guard);
            if call.nonce.is_given() {
                return Err(call
                    .unsafe_grant
                    .as_ref()
                    .map_or(Error::TimedOut(None), Cause::to_error));
            }
            self.pause_before_retry(pause, &call).await?;
            // Each request has a new nonce.
            (call.id, call.nonce) = (self.next_id(), self.random.nonce());
            guard = self.send_lock_again(first, &call)?;
        }
    }

    fn send_lock(&self, call: &LockCall) -> Result<CallGuard<'_, B>, Error> {
        self.send(call.id, Call::Lock(call.clone()), Some(RequestId::Lock(call.nonce)))
    }

    /// Sends another LOCK of the call that began as `first`, unless `unlock_all` has ended it. The
    /// mutex stays locked until the LOCK is sent, so that a later `unlock_all` finds it in the core.
    fn send_lock_again(&self, first: CallId, call: &LockCall) -> Result<CallGuard<'_, B>, Error> {
        let ended = self.ended_waits();
        let mut later = ended.iter().take_while(|it| it.before > first);
        if later.any(|it| call.key.starts_with(&*it.prefix)) {
            return Err(Error::Withdrawn);
        }
        self.send_lock(call)
    }

    fn call(&self, key: &str, options: &LockOptions) -> LockCall {
        let now = self.clock.now();
        let (until, limit) = match options.get_max_wait() {
            MaxWait::AtMost(Duration::ZERO) => {
                (Until::Now, Some(now.after(self.profile.request_timeout)))
            }
            MaxWait::AtMost(wait) => (Until::At(now.after(wait)), Some(now.after(wait))),
            MaxWait::Forever => (Until::Forever, None),
        };
        LockCall {
            id: self.next_id(),
            key: key.into(),
            nonce: options.get_nonce().unwrap_or_else(|| self.random.nonce()),
            lease: Duration::from_millis(whole_ms(options.get_duration())),
            until: if self.profile.queues { until } else { Until::Now },
            limit,
            tries: until == Until::Now,
            owner: self.owner.labelled(options.get_label()),
            unsafe_grant: None,
        }
    }

    /// Extends a lock with less than half of its lease left. `None` if that fails, as where the
    /// lease has ended during a suspension: the call is retried.
    async fn extended_to_half(&self, lock: &Lock, now: Instant, call: &LockCall) -> Option<Lock> {
        let limit = now.after(self.profile.request_timeout);
        let by = call.limit.map_or(limit, |end| end.min(limit));
        let extended = self.extend_by(lock, call.lease, by).await.ok();
        extended.filter(|lock| has_half_left(lock, self.clock.now(), call.lease))
    }

    /// Sleeps before the next attempt, or until the call's time is over.
    async fn pause_before_retry(
        &self,
        (least, most): (Duration, Duration),
        call: &LockCall,
    ) -> Result<(), Error> {
        let wake = self.clock.now().after(self.random.between(least, most));
        let over = call.limit.filter(|limit| wake >= *limit);
        self.clock.sleep_until(over.unwrap_or(wake)).await;
        self.check_running()?;
        let timed_out =
            || call.unsafe_grant.as_ref().map_or(Error::TimedOut(None), Cause::to_error);
        over.map_or(Ok(()), |_| Err(timed_out()))
    }
}

/// The error of a call whose grants all arrive too late: `took` is the time of an extension.
fn too_short(lease: Duration, took: Duration) -> Error {
    let took = format_duration(Duration::from_millis(whole_ms(took)));
    let (grants, lease) = (LATE_GRANTS_MAX + 1, format_duration(lease));
    let text = format!(
        "the lease of {lease} is too short: {grants} grants arrived with less than half of it left, \
         and the last extension took {took}: use a duration above twice that time"
    );
    Error::unavailable(UnavailableKind::Unreachable, text)
}

/// Whether at least half of the lease remains.
fn has_half_left(lock: &Lock, now: Instant, lease: Duration) -> bool {
    lock.deadline().is_some_and(|deadline| lasts(deadline, now, lease))
}
