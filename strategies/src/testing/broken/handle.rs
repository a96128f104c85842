//! A process' handle on a [`Server`], with the faults of its side.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{
    Fault, Server,
    server::{Answer, Request},
};
use crate::{
    Capabilities, Clock, Drift, Error, Exclusion, Holds, Inspection, Instant, KeyedMutex, Lock,
    LockOptions, LossWatch, MaxWait, Nonce, Order, REQUEST_TIMEOUT, Survives, check_duration,
    check_key, check_request, extended, gone, granted_deadline,
};

/// How late [`Fault::OverrunsMaxWait`] is; the original was, for a wait of 100 ms.
const OVERRUN: Duration = Duration::from_millis(82);
/// How long [`Fault::TryWaits`] waits, and how long [`Fault::UnlockWakesNoWaiter`] lets wait.
const LAZY: Duration = Duration::from_secs(10);

/// One process' use of a [`Server`].
#[derive(Debug)]
pub struct Handle {
    server: Server,
    process: u64,
    holds: Holds,
    closed: watch::Sender<bool>,
    disconnected: AtomicBool,
}

impl Handle {
    pub(super) fn new(server: Server) -> Self {
        let process = rand::random();
        let (closed, _) = watch::channel(false);
        Self {
            server,
            process,
            holds: Holds::default(),
            closed,
            disconnected: AtomicBool::new(false),
        }
    }

    fn now(&self) -> Instant {
        self.server.clock.now()
    }

    fn is(&self, fault: Fault) -> bool {
        self.server.is(fault)
    }

    fn check_open(&self) -> Result<(), Error> {
        if *self.closed.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits until the server is up, at most for `limit`.
    async fn served(&self, limit: Duration) -> Result<(), Error> {
        let mut up = self.server.up.subscribe();
        if *up.borrow() && !self.disconnected.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.is(Fault::DownIsHeld) {
            return Err(Error::Held);
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

    async fn granted(&self, request: &Request, sent: Instant) -> Result<Lock, Error> {
        loop {
            let left = request.until.map_or(Duration::MAX, |until| until.since(self.now()));
            self.served(if request.waits { left } else { REQUEST_TIMEOUT }).await?;
            let notify = request.notify.notified();
            tokio::pin!(notify);
            notify.as_mut().enable();
            match self.server.lock(request) {
                Answer::Granted { token, waited } => {
                    return Ok(self.lock_of(request, token, waited, sent));
                }
                Answer::Held if self.is(Fault::TryWaits) => {
                    sleep(LAZY).await;
                    return Err(Error::Held);
                }
                Answer::Held => return Err(Error::Held),
                Answer::Wait { .. } if self.is(Fault::RefusesContended) => return Err(Error::Held),
                Answer::Wait { expires } => {
                    let lazy = self.now().after(LAZY);
                    let expires =
                        if self.is(Fault::UnlockWakesNoWaiter) { Some(lazy) } else { expires };
                    let wake = expires.into_iter().chain(request.until).min();
                    self.notified_or(notify, wake).await;
                    if request.until.is_some_and(|until| self.now() >= until) {
                        return self.timed_out().await;
                    }
                }
            }
        }
    }

    async fn notified_or(&self, notify: impl Future<Output = ()>, wake: Option<Instant>) {
        let wake = wake.unwrap_or(Instant::from_origin(Duration::MAX));
        // At a lease's very end the clock has not passed it yet; the floor avoids a busy loop.
        let pause = wake.since(self.now()).max(Duration::from_millis(1));
        let _woken = timeout(pause, notify).await;
    }

    async fn timed_out(&self) -> Result<Lock, Error> {
        if self.is(Fault::OverrunsMaxWait) {
            sleep(OVERRUN).await;
        }
        let up = *self.server.up.borrow();
        Err(if up { Error::TimedOut } else { Error::no_quorum() })
    }

    fn lock_of(&self, request: &Request, token: u64, waited: Duration, sent: Instant) -> Lock {
        let (now, duration) = (self.now(), request.duration);
        let deadline = if self.is(Fault::DeadlineFromAnswer) {
            now.after(duration)
        } else {
            granted_deadline(sent, now, waited, duration, Drift::default())
        };
        Lock::new(&*request.key, request.nonce, token, Some(deadline))
    }
}

/// Withdraws a request whose call was dropped or has failed.
struct Withdrawal<'a> {
    server: &'a Server,
    key: &'a str,
    nonce: Nonce,
    armed: bool,
}

impl Withdrawal<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.server.withdraw(self.key, self.nonce);
        }
    }
}

#[async_trait]
impl KeyedMutex for Handle {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        if !self.is(Fault::ChecksNothing) {
            check_request(key, &options)?;
        }
        self.check_open()?;
        let now = self.now();
        let waits = options.get_max_wait() != MaxWait::AtMost(Duration::ZERO);
        if self.is(Fault::NeverGrants) || !waits && self.is(Fault::ZeroWaitNeverTries) {
            return Err(Error::Held);
        }
        let nonce = Nonce::random();
        let until = match options.get_max_wait() {
            MaxWait::AtMost(wait) if waits => Some(now.after(wait)),
            _ => None,
        };
        let notify = Arc::new(Notify::new());
        let duration = options.get_duration();
        let (process, label) = (self.process, options.get_label().map(str::to_owned));
        let request =
            Request { key: key.into(), nonce, process, label, duration, waits, until, notify };

        let withdrawal = Withdrawal { server: &self.server, key, nonce, armed: true };
        let mut closed = self.closed.subscribe();
        let result = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed), if !self.is(Fault::CloseForgetsWaiters) => {
                Err(Error::Closed)
            }
            result = self.granted(&request, now) => result,
        };
        // A refused attempt leaves nothing to withdraw.
        if result.is_ok() || (!waits && matches!(result, Err(Error::Held))) {
            withdrawal.disarm();
        }
        result
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        let held = self.server.unlock(lock.key(), lock.nonce());
        if held || self.is(Fault::UnlockAlwaysSucceeds) {
            return Ok(());
        }
        Err(gone(lock, self.now()))
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        if !self.is(Fault::ChecksNothing) {
            check_duration(duration)?;
        }
        self.check_open()?;
        let sent = self.now();
        self.served(REQUEST_TIMEOUT).await?;
        let token = lock.fencing_token();
        if !self.server.extend(lock.key(), lock.nonce(), duration, token) {
            return Err(gone(lock, self.now()));
        }
        extended(lock, sent, duration, Drift::default(), self.now())
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        if !self.is(Fault::ChecksNothing) {
            check_key(key)?;
        }
        self.check_open()?;
        self.served(REQUEST_TIMEOUT).await?;
        Ok(self.server.inspect(key))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            exclusion: Exclusion::WhileServerKeepsMemory,
            order: if self.is(Fault::Starves) { Order::None } else { Order::Fifo },
            survives: Survives::AnyClient,
            distributed: true,
            waits_for_leader: true,
            ..Capabilities::none("plain")
        }
    }

    async fn close(&self) {
        if self.closed.send_replace(true) {
            return;
        }
        for lock in self.holds.lose_all() {
            self.server.unlock(lock.key(), lock.nonce());
        }
        if self.is(Fault::CloseLeavesTask) {
            tokio::spawn(std::future::pending::<()>());
        }
    }

    fn release(&self, lock: &Lock) {
        if !self.is(Fault::ReleaseDoesNothing) {
            self.server.unlock(lock.key(), lock.nonce());
        }
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.holds.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.server.clock.clone()
    }
}
