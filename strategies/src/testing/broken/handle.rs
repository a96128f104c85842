//! A process' handle on a [`Server`], with the faults of its side.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{Fault, Server};
use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    clock::{Clock, Instant},
    deadline::{Drift, granted_deadline, not_held, wait_until},
    defaults::REQUEST_TIMEOUT,
    error::Error,
    limits::{DURATION_MAX, DURATION_MIN, MAX_WAIT_MAX},
    lock::{Inspection, Lock, Nonce},
    losses::{LossRegistry, LossWatch},
    mutex::KeyedMutex,
    operator::Operator,
    options::{LockOptions, MaxWait, check_duration, check_key, check_request},
};

/// How late [`Fault::OverrunsMaxWait`] is; the original was, for a wait of 100 ms.
const OVERRUN: Duration = Duration::from_millis(82);
/// How long [`Fault::TryWaits`] waits, and how long [`Fault::UnlockWakesNoWaiter`] lets wait.
const LAZY: Duration = Duration::from_secs(10);
/// How often waiters look that are served in another order than they came.
const BUSY: Duration = Duration::from_millis(5);
/// A lease of which enough is left, for [`Fault::GrantsSpentLease`].
const SHORT: Duration = Duration::from_millis(5);
/// By how much [`Fault::ExpiresLate`] is late.
const LATE: Duration = Duration::from_secs(5);

/// The use of a [`Server`] by one process.
#[derive(Debug)]
pub struct Handle {
    pub(super) server: Server,
    losses: LossRegistry,
    closed: watch::Sender<bool>,
    /// The prefix of the last `unlock_all`.
    ended: watch::Sender<String>,
    disconnected: AtomicBool,
    /// The last lock of each row.
    own: Mutex<BTreeMap<String, Lock>>,
}

impl Server {
    /// Another process' handle.
    #[must_use]
    pub fn open(&self) -> Handle {
        Handle::new(self.clone())
    }
}

impl Handle {
    pub(super) fn new(server: Server) -> Self {
        let losses = LossRegistry::default();
        server.watched().push(losses.clone());
        Self {
            server,
            losses,
            closed: watch::Sender::new(false),
            ended: watch::Sender::default(),
            disconnected: AtomicBool::new(false),
            own: Mutex::default(),
        }
    }

    fn now(&self) -> Instant {
        self.server.clock.now()
    }

    pub(super) fn is(&self, fault: Fault) -> bool {
        self.server.is(fault)
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        if *self.closed.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits until the server is up, at most for `limit`.
    pub(super) async fn served(&self, limit: Duration) -> Result<(), Error> {
        let mut up = self.server.up.subscribe();
        if *up.borrow() && !self.disconnected.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.is(Fault::DownIsHeld) {
            return Err(Error::Held(None));
        }
        if self.is(Fault::NeverReconnects) {
            self.disconnected.store(true, Ordering::Relaxed);
            return Err(Error::no_quorum());
        }
        let limit = if self.is(Fault::HangsWhenDown) { Duration::MAX } else { limit };
        match timeout(limit, up.wait_for(|up| *up)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::no_quorum()),
        }
    }

    /// A lock once the server is up, as clients see it.
    async fn granted(&self, key: &str, mut options: LockOptions) -> Result<Lock, Error> {
        let sent = self.now();
        let until = wait_until(sent, options.get_max_wait());
        match options.get_max_wait() {
            MaxWait::AtMost(Duration::ZERO) => self.served(REQUEST_TIMEOUT).await?,
            MaxWait::AtMost(wait) => self.served(wait).await?,
            MaxWait::Forever => self.served(Duration::MAX).await?,
        }
        if let Some(until) = until {
            options = options.max_wait(until.since(self.now()));
        }
        let (row, duration) = (self.server.row_of(key), options.get_duration());
        if self.is(Fault::Reentrant)
            && let Some(own) = self.own(&row)
        {
            return Ok(own);
        }
        self.server.begin(&row);
        let lock = self.lock_row(&row, options).await?;
        self.server.note_grant(&row);
        let now = self.now();
        let deadline = match self.server.fault {
            Some(Fault::DeadlineFromReply) => now.after(duration),
            Some(
                Fault::NeverExpires
                | Fault::ExpiresLate
                | Fault::ExpiresEarly
                | Fault::GrantsSpentLease,
            ) => granted_deadline(sent, now, now.since(sent), duration, Drift::default()),
            _ => lock.deadline().expect("a fresh lock has a deadline"),
        };
        let token = self.server.token(&row, lock.fencing_token());
        let lock = Lock::new(key, lock.nonce(), token, Some(deadline));
        self.own.lock().unwrap_or_else(PoisonError::into_inner).insert(row, lock.clone());
        Ok(lock)
    }

    /// The lock of this process on a row, while it holds.
    fn own(&self, row: &str) -> Option<Lock> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).get(row).cloned()?;
        (self.server.holder(row)?.nonce == own.nonce()).then_some(own)
    }

    /// A lock on a row, as the table knows it.
    async fn lock_row(&self, row: &str, options: LockOptions) -> Result<Lock, Error> {
        let local = self.server.local();
        let duration = options.get_duration();
        let options = match self.server.fault {
            Some(Fault::NeverExpires) => options.duration(DURATION_MAX),
            Some(Fault::ExpiresLate) => options.duration((duration + LATE).min(DURATION_MAX)),
            Some(Fault::ExpiresEarly) => options.duration((duration / 2).max(DURATION_MIN)),
            Some(Fault::GrantsSpentLease) => options.duration(duration.max(SHORT)),
            Some(Fault::RefusesContended) => options.max_wait(Duration::ZERO),
            _ => options,
        };
        let waits = options.get_max_wait() != MaxWait::AtMost(Duration::ZERO);
        let call = {
            let (local, row, options) = (local.clone(), row.to_owned(), options.clone());
            async move { local.lock(&row, options).await }
        };
        match self.server.fault {
            Some(Fault::GhostWaiters) => tokio::spawn(call).await.expect("it does not panic"),
            Some(Fault::GhostGrants) => {
                let before = self.server.holder(row).map(|holder| holder.nonce);
                GhostGrant { server: &self.server, row, before, call: Some(Box::pin(call)) }.await
            }
            Some(Fault::GrantsTwo) if waits => tokio::select! {
                biased;
                lock = local.lock(row, options) => lock,
                () = self.server.intrusions.notified() => {
                    let deadline = self.now().after(duration);
                    Ok(Lock::new(row, Nonce::random(), 1, Some(deadline)))
                }
            },
            Some(Fault::UnlockWakesNoWaiter) if waits => self.polled(row, &options, LAZY).await,
            Some(Fault::LastComeFirstServed | Fault::Starves) if waits => {
                self.polled(row, &options, BUSY).await
            }
            _ => local.lock(row, options).await,
        }
    }

    /// Waits by trying from time to time; where the last is served first, only the last tries.
    async fn polled(
        &self,
        row: &str,
        options: &LockOptions,
        pause: Duration,
    ) -> Result<Lock, Error> {
        let until = wait_until(self.now(), options.get_max_wait());
        let poll = self.server.poll(row);
        loop {
            if self.is(Fault::UnlockWakesNoWaiter) || poll.is_last() {
                let at_once = options.clone().max_wait(Duration::ZERO);
                let tried = self.server.local().lock(row, at_once).await;
                if !matches!(tried, Err(Error::Held(_))) {
                    return tried;
                }
            }
            if until.is_some_and(|until| until <= self.now()) {
                return Err(Error::TimedOut(None));
            }
            let next = self.now().after(pause);
            self.server.clock.sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
    }

    /// A lock as the table knows it; if `any`, that of the present holder.
    fn in_table(&self, lock: &Lock, any: bool) -> Lock {
        let row = self.server.row_of(lock.key());
        let (nonce, token) = match self.server.holder(&row) {
            Some(holder) if any || holder.nonce == lock.nonce() => {
                (holder.nonce, holder.fencing_token)
            }
            _ => (lock.nonce(), lock.fencing_token()),
        };
        Lock::new(row, nonce, token, lock.deadline())
    }

    /// Completes once `unlock_all` is called with a prefix of `key`.
    async fn ended(&self, key: &str) {
        let mut ended = self.ended.subscribe();
        while ended.changed().await.is_ok() && !key.starts_with(&**ended.borrow()) {}
    }

    fn to_unlock(&self, lock: &Lock) -> Lock {
        self.in_table(lock, self.is(Fault::UnlockIgnoresNonce))
    }
}

/// A call that is not withdrawn where the row has another holder than when it began.
struct GhostGrant<'a, C> {
    server: &'a Server,
    row: &'a str,
    before: Option<Nonce>,
    call: Option<Pin<Box<C>>>,
}

impl<C: Future> Future for GhostGrant<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        self.call.as_mut().expect("it is there until the drop").as_mut().poll(context)
    }
}

impl<C> Drop for GhostGrant<'_, C> {
    fn drop(&mut self) {
        if self.server.holder(self.row).map(|holder| holder.nonce) != self.before {
            std::mem::forget(self.call.take());
        }
    }
}

/// Options that a strategy would refuse, made acceptable.
fn acceptable(options: LockOptions) -> LockOptions {
    let duration = options.get_duration().clamp(DURATION_MIN, DURATION_MAX);
    let max_wait = match options.get_max_wait() {
        MaxWait::AtMost(wait) => MaxWait::AtMost(wait.min(MAX_WAIT_MAX)),
        MaxWait::Forever => MaxWait::Forever,
    };
    options.duration(duration).max_wait(max_wait)
}

#[async_trait]
impl KeyedMutex for Handle {
    async fn lock(&self, key: &str, mut options: LockOptions) -> Result<Lock, Error> {
        if self.is(Fault::ChecksNothing) {
            options = acceptable(options);
        } else {
            check_request(key, &options)?;
        }
        self.check_open()?;
        let waits = options.get_max_wait() != MaxWait::AtMost(Duration::ZERO);
        if self.is(Fault::NeverGrants) || !waits && self.is(Fault::ZeroWaitNeverTries) {
            return Err(Error::Held(None));
        }
        let mut closed = self.closed.subscribe();
        let result = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed), if !self.is(Fault::CloseForgetsWaiters) => {
                Err(Error::Closed)
            }
            () = self.ended(key) => Err(Error::Withdrawn),
            result = self.granted(key, options) => result,
        };
        match &result {
            Err(Error::Held(_)) if self.is(Fault::TryWaits) => sleep(LAZY).await,
            Err(Error::TimedOut(_)) if self.is(Fault::OverrunsMaxWait) => sleep(OVERRUN).await,
            _ => {}
        }
        result
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        let unlocked = self.server.local().unlock(&self.to_unlock(lock)).await;
        if self.is(Fault::UnlockAlwaysSucceeds) { Ok(()) } else { unlocked }
    }

    async fn extend(&self, lock: &Lock, mut duration: Duration) -> Result<Lock, Error> {
        if self.is(Fault::ChecksNothing) {
            duration = duration.clamp(DURATION_MIN, DURATION_MAX);
        } else {
            check_duration(duration)?;
        }
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        let local = self.server.local();
        let mut held = self.in_table(lock, self.is(Fault::ExtendIgnoresNonce));
        if self.is(Fault::ExtendsPastDeadline)
            && held.deadline().is_some_and(|deadline| deadline <= self.now())
            && self.server.holder(held.key()).is_some_and(|holder| holder.nonce == held.nonce())
        {
            held = held.with_deadline(self.now().after(duration));
        }
        let mut extended = local.extend(&held, duration).await;
        if self.is(Fault::ExtendCreates) && extended.is_err() {
            let options = LockOptions::default().duration(duration).max_wait(Duration::ZERO);
            extended = local.lock(held.key(), options).await.or(extended);
        } else if held.nonce() != lock.nonce() {
            return Err(not_held(lock, self.now()));
        }
        if self.is(Fault::ExtendShortens) {
            tokio::spawn(async move {
                sleep(duration).await;
                let _ = local.unlock(&held).await;
            });
        }
        Ok(lock.with_deadline(extended?.deadline().expect("it was just extended")))
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        if !self.is(Fault::ChecksNothing) {
            check_key(key)?;
        }
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        let row = self.server.row_of(key);
        Ok(self.server.holder(&row).map(|holder| Inspection {
            fencing_token: self.server.token(&row, holder.fencing_token),
            waiters: holder.waiters + self.server.polling(&row),
            ..holder
        }))
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.check_open()?;
        let end_waits = || self.ended.send_replace(prefix.to_owned());
        let is_late = self.is(Fault::UnlockAllGrantsEndedWaits);
        if !is_late && !self.is(Fault::UnlockAllForgetsWaiters) {
            end_waits();
        }
        for lock in self.losses.lose_prefix(prefix) {
            self.server.local().release(&self.to_unlock(&lock));
        }
        if is_late {
            sleep(BUSY).await;
            end_waits();
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            exclusion: Exclusion::WhileServerKeepsMemory,
            order: if self.is(Fault::Starves) { Order::None } else { Order::Fifo },
            survives: Survives::AnyClient,
            distributed: true,
            waits_for_leader: true,
            notifies_forced: true,
            ..Capabilities::none("plain")
        }
    }

    async fn close(&self) {
        if self.closed.send_replace(true) {
            return;
        }
        for lock in self.losses.lose_all() {
            if !self.is(Fault::CloseUnlocksNothing) {
                self.server.local().release(&self.to_unlock(&lock));
            }
        }
        if self.is(Fault::CloseLeavesTask) {
            tokio::spawn(std::future::pending::<()>());
        }
    }

    fn release(&self, lock: &Lock) {
        if !self.is(Fault::ReleaseDoesNothing) {
            self.server.local().release(&self.to_unlock(lock));
        }
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.losses.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.server.clock.clone()
    }
}
