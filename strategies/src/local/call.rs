//! A call of `lock` on a [`Local`](crate::Local).

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Access, Shards, Signal, Waiter,
    shard::{instant, stamp},
};
use crate::{
    clock::Instant,
    deadline::{extended_deadline, granted_deadline, lasts, wait_until, whole_ms},
    error::Error,
    lock::{Lock, Nonce, Owner},
    lock_table::{
        ClusterTime, Command, Effect, Grant, LockRequest, ProcessId, Refusal, Seen, Wait,
    },
    options::LockOptions,
};

/// How long a waiter behind the head sleeps at least. It wakes in case the head's future is alive
/// but never polled.
const BACKSTOP: Duration = Duration::from_secs(1);

/// A call of `lock`. Dropping it withdraws its LOCK, unless the lock was returned.
pub(super) struct Call<'a> {
    shards: &'a Shards,
    key: Arc<str>,
    options: LockOptions,
    nonce: Nonce,
    /// When the LOCK was sent.
    sent: Instant,
    /// When the call must end.
    until: Option<Instant>,
    /// Set while the LOCK is queued or its lock not returned.
    signal: Option<Arc<Signal>>,
}

/// The lock, or the time of the next check of the table without a notification.
type Look = ControlFlow<Lock, Instant>;

impl<'a> Call<'a> {
    /// Sends the LOCK and waits for the grant.
    pub(super) async fn lock(
        shards: &'a Shards,
        key: &str,
        options: LockOptions,
    ) -> Result<Lock, Error> {
        let (mut call, mut look) = Self::begin(shards, key.into(), options)?;
        loop {
            let look_at = match look {
                Break(lock) => return Ok(lock),
                Continue(look_at) => look_at,
            };
            tokio::select! {
                biased;
                () = call.signal.as_ref().expect("the LOCK was queued").notify.notified() => {}
                () = shards.clock.sleep_until(look_at) => {}
            }
            look = call.look()?;
        }
    }

    fn begin(
        shards: &'a Shards,
        key: Arc<str>,
        options: LockOptions,
    ) -> Result<(Self, Look), Error> {
        let mut access = shards.access(&key)?;
        let nonce = options.get_nonce().unwrap_or_else(|| Nonce::masked(&[0; 10]));
        let sent = access.now;
        let until = wait_until(sent, options.get_max_wait());
        let mut call = Self { shards, key, options, nonce, sent, until, signal: None };
        let look = call.send(&mut access)?;
        Ok((call, look))
    }

    fn send(&mut self, access: &mut Access<'_>) -> Result<Look, Error> {
        self.sent = access.now;
        let request = self.request(&access.shard.owner);
        match access.step(&Command::Lock(request)) {
            Some(Effect::Granted(grant)) => {
                let taken = self.take(access, &grant);
                if taken.is_err() && !self.nonce.is_given() {
                    access.unlock(&self.key, self.nonce);
                }
                taken.map(Break)
            }
            Some(Effect::Queued { .. }) => Ok(Continue(self.wait(access))),
            Some(Effect::Refused { reason: Refusal::Held, .. }) => Err(Error::Held(None)),
            Some(Effect::Refused { reason: Refusal::Limit { what, limit }, .. }) => {
                Err(Error::Limit { what: what.name(), limit })
            }
            // A given nonce has ended, or holds or waits for another key.
            Some(Effect::Refused { reason: Refusal::Spent, .. }) => Err(Error::TimedOut(None)),
            // Not stale: it is sent once.
            other => unreachable!("a LOCK has no reply {other:?}"),
        }
    }

    fn request(&self, owner: &Arc<Owner>) -> LockRequest {
        LockRequest {
            key: self.key.clone(),
            nonce: self.nonce,
            process: ProcessId(0),
            duration_ms: whole_ms(self.options.get_duration()),
            wait: match self.until {
                None => Wait::Forever,
                Some(until) if until == self.sent => Wait::No,
                // Rounded up: the call's own end decides.
                Some(until) => Wait::Ms(ClusterTime(until.whole_ms_up()).since(stamp(self.sent))),
            },
            seen: Seen::Now,
            owner: owner.labelled(self.options.get_label()),
        }
    }

    /// Advances the table and checks for the grant.
    fn look(&mut self) -> Result<Look, Error> {
        let mut access = self.shards.access(&self.key)?;
        let over = self.until.is_some_and(|until| until <= access.now);
        if self.is_withdrawn() {
            return Err(Error::Withdrawn);
        }
        if over && self.waiter(&mut access).is_none_or(|waiter| waiter.grant.is_none()) {
            return Err(Error::TimedOut(None));
        }
        access.step(&Command::Noop);
        match self.waiter(&mut access).map(|waiter| waiter.grant.take()) {
            Some(Some(grant)) => {
                let lock = self.take(&mut access, &grant)?;
                access.shard.waiters.remove(&self.nonce);
                self.signal = None;
                Ok(Break(lock))
            }
            Some(None) => Ok(Continue(self.wait(&mut access))),
            // The key was granted, and its lease ended before this check.
            None if over || self.nonce.is_given() => Err(Error::TimedOut(None)),
            None => {
                self.nonce = Nonce::masked(&[0; 10]);
                self.send(&mut access)
            }
        }
    }

    /// The call's entry among the waiters. A later call with the same given nonce has another.
    fn waiter<'b>(&self, access: &'b mut Access<'_>) -> Option<&'b mut Waiter> {
        let signal = self.signal.as_ref()?;
        access.shard.waiters.get_mut(&self.nonce).filter(|it| Arc::ptr_eq(&it.signal, signal))
    }

    fn is_withdrawn(&self) -> bool {
        self.signal.as_ref().is_some_and(|signal| signal.is_withdrawn.load(Ordering::Relaxed))
    }

    /// Makes the lock of a grant. If less than half of its lease remains, the lease is extended
    /// first, within `max_wait` (contract, rule 2).
    fn take(&self, access: &mut Access<'_>, grant: &Grant) -> Result<Lock, Error> {
        let (now, drift) = (access.now, self.shards.drift);
        let waited = Duration::from_millis(grant.granted_at.since(grant.asked_at));
        // The grant of a repeated nonce may be earlier: only the rest of its lease counts.
        let from = grant.granted_at.max(grant.asked_at);
        let rest = Duration::from_millis(grant.expires_at.since(from));
        let duration = Duration::from_millis(whole_ms(self.options.get_duration()));
        let mut deadline = granted_deadline(self.sent, now, waited, rest, drift);
        if !lasts(deadline, now, duration) && self.until.is_none_or(|until| now <= until) {
            access.extend(&self.key, self.nonce, duration);
            deadline = extended_deadline(Some(deadline), now, duration, drift);
        }
        if !lasts(deadline, now, duration) {
            return Err(Error::TimedOut(None));
        }
        Ok(Lock::new(self.key.clone(), self.nonce, grant.token, Some(deadline)))
    }

    /// Returns when to check next: at the call's own end, and for the head of the queue at the end
    /// of the lease before it.
    fn wait(&mut self, access: &mut Access<'_>) -> Instant {
        let next = access.shard.table.next_waiter(&self.key);
        let (head, lease_end) = next.expect("the call is in the queue");
        let (mut look_at, backstop) = (instant(lease_end), access.now.after(BACKSTOP));
        if head != self.nonce {
            look_at = look_at.max(backstop);
        }
        look_at = self.until.map_or(look_at, |until| until.min(look_at));
        let signal = self.signal.get_or_insert_default();
        let waiter = Waiter { signal: signal.clone(), look_at, grant: None };
        if let Some(former) = access.shard.waiters.insert(self.nonce, waiter)
            && !Arc::ptr_eq(&former.signal, signal)
        {
            former.signal.notify.notify_one();
        }
        look_at
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.signal.is_some()
            && let Ok(mut access) = self.shards.access(&self.key)
            && self.waiter(&mut access).is_some()
        {
            access.shard.waiters.remove(&self.nonce);
            if !self.nonce.is_given() {
                access.unlock(&self.key, self.nonce);
            }
        }
    }
}
