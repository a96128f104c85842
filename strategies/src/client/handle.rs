//! The handle of a strategy: unlock, extend, inspect, watch, close.

mod call_guard;
mod lock;
mod operator;

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use gaggle_channels::internal::process::Opener;
use tokio::{runtime::Handle, sync::watch};

use super::{
    backend::{Backend, Failure, Profile},
    calls::{Call, CallId, Query, Reply},
    core::REQUESTS,
    driver::{Driver, Shared},
    mailbox::{Full, Mail, Sender, mailbox},
    turns::Turns,
};
use crate::{
    capabilities::Capabilities,
    clock::{Clock, Instant},
    deadline::{extended, not_held, whole_ms},
    error::{Error, UnavailableKind},
    fork::unshared_random,
    limits::DURATION_MIN,
    lock::{Inspection, Lock, LossCause, Owner},
    losses::LossWatch,
    options::{check_key, check_span},
    random::Random,
    status::MemberStatus,
    sync::{AtomicBool, Mutex, MutexGuard},
};

/// The handle of a driver. Dropping it ends the driver once everything is sent, or after a request
/// timeout.
pub struct Client<B: Backend> {
    profile: Profile,
    clock: Arc<dyn Clock>,
    mail: Sender,
    owner: Arc<Owner>,
    random: Random,
    ids: AtomicU64,
    opener: Opener,
    closed: AtomicBool,
    ended_waits: Mutex<VecDeque<EndedWaits>>,
    shared: Arc<Shared>,
    status: watch::Receiver<B::Status>,
    pub(super) turns: Arc<Turns<B>>,
}

/// How many calls of `unlock_all` are remembered: more than may come while a call pauses.
const ENDED_WAITS_MAX: usize = 1024;

/// The waits that a call of `unlock_all` has ended. The core ends a pending request. A call that
/// pauses between two requests looks here.
struct EndedWaits {
    /// Ends the calls with a smaller id.
    before: CallId,
    prefix: Arc<str>,
}

impl<B: Backend> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl<B: Backend> Client<B> {
    /// A handle of `backend`, and the driver that its opener runs. With a seed, nonces and jitter
    /// are a function of it.
    pub fn new(
        backend: B,
        clock: Arc<dyn Clock>,
        owner: Owner,
        seed: Option<u64>,
    ) -> (Self, Driver<B>) {
        let profile = backend.profile();
        let (mail, received) = mailbox(profile.requests_max);
        let shared = Arc::new(Shared::default());
        let (status, shown) = watch::channel(B::Status::default());
        let jitter = seed.unwrap_or_else(unshared_random);
        let driver = Driver::new(backend, clock.clone(), received, shared.clone(), status, jitter);
        let client = Self {
            profile,
            clock,
            mail,
            owner: Arc::new(owner),
            random: seed.map_or_else(Random::system, Random::seeded),
            ids: AtomicU64::new(1),
            opener: Opener::this_process(),
            closed: AtomicBool::new(false),
            ended_waits: Mutex::default(),
            shared,
            status: shown,
            turns: Turns::new(),
        };
        (client, driver)
    }

    /// Runs the driver of this handle, as a task.
    pub fn run(&self, driver: Driver<B>) -> impl Future<Output = ()> + Send + use<B> {
        self.opener.bind(self.turns.run(driver))
    }

    pub(crate) async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        self.check_open()?;
        let limit = self.clock.now().after(self.profile.request_timeout);
        let until = lock.deadline().map_or(limit, |deadline| deadline.max(limit));
        // The holder gives up first (contract, rule 2): other guards of the same acquisition may be
        // watched in this process.
        self.shared.losses.report(lock, LossCause::Ended, None);
        if !self.unlock_by(lock.clone(), until, limit, None).await? {
            return Err(not_held(lock, self.clock.now()));
        }
        Ok(())
    }

    /// Unlocks an acquisition, and waits until `limit`. Returns whether it held the key.
    async fn unlock_by(
        &self,
        lock: Lock,
        until: Instant,
        limit: Instant,
        forced: Option<Arc<str>>,
    ) -> Result<bool, Error> {
        let id = self.next_id();
        let caller = Some((id, limit));
        match self.send(id, Call::Unlock { caller, lock, until, forced }, None)?.finish().await? {
            Reply::Unlocked => Ok(true),
            Reply::NotHeld => Ok(false),
            other => unreachable!("an unlock has no reply {other:?}"),
        }
    }

    pub(crate) async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        self.check_lease(duration)?;
        self.check_open()?;
        let now = self.clock.now();
        let has_passed = |now| lock.deadline().is_some_and(|deadline| deadline <= now);
        if has_passed(now) {
            return Err(Error::Expired);
        }
        let end = now.after(self.profile.request_timeout);
        let limit = lock.deadline().map_or(end, |deadline| deadline.min(end));
        match self.extend_by(lock, duration, limit).await {
            Err(Error::Unknown | Error::Unavailable { .. }) if has_passed(self.clock.now()) => {
                Err(Error::Expired)
            }
            outcome => outcome,
        }
    }

    async fn extend_by(
        &self,
        lock: &Lock,
        duration: Duration,
        limit: Instant,
    ) -> Result<Lock, Error> {
        let lease = Duration::from_millis(whole_ms(duration));
        match self.query(limit, Query::Extend { lock: lock.clone(), lease }).await? {
            Reply::Extended { sent, delivery } if !delivery.is_revoked() => {
                extended(lock, sent, lease, self.profile.drift, self.clock.now())
            }
            // Revoked: it was lost before the reply was read.
            Reply::NotHeld | Reply::Extended { .. } => Err(not_held(lock, self.clock.now())),
            other => unreachable!("an extend has no reply {other:?}"),
        }
    }

    pub(crate) async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        self.inspect_by(key, self.clock.now().after(self.profile.request_timeout)).await
    }

    async fn inspect_by(&self, key: &str, limit: Instant) -> Result<Option<Inspection>, Error> {
        self.check_open()?;
        match self.query(limit, Query::Inspect { key: key.into() }).await? {
            Reply::Inspected(found) => found,
            other => unreachable!("an inspection has no reply {other:?}"),
        }
    }

    /// Ends the waits first, and sends every UNLOCK before it waits for the outcomes.
    pub(crate) async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.check_open()?;
        self.end_waits(prefix)?;
        let locks = self.shared.losses.lose_prefix(prefix);
        let outcomes = join_all(locks.iter().map(|lock| self.unlock(lock))).await;
        let is_free = |outcome: &Result<(), Error>| {
            matches!(outcome, Ok(()) | Err(Error::NotHolder | Error::Expired))
        };
        outcomes.into_iter().find(|outcome| !is_free(outcome)).unwrap_or(Ok(()))
    }

    fn end_waits(&self, prefix: &str) -> Result<(), Error> {
        let prefix = Arc::<str>::from(prefix);
        let mut ended = self.ended_waits();
        let call = Call::EndWaits { prefix: prefix.clone() };
        self.mail.release(Mail { call, reply: None }).map_err(|Full| self.full())?;
        ended.truncate(ENDED_WAITS_MAX - 1);
        ended.push_front(EndedWaits { before: self.next_id(), prefix });
        Ok(())
    }

    fn ended_waits(&self) -> MutexGuard<'_, VecDeque<EndedWaits>> {
        self.ended_waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees a lock without waiting: no runtime is needed, and nothing blocks or panics.
    pub(crate) fn release(&self, lock: &Lock) {
        if !self.opener.is_this_process() {
            // The fork may have copied the handle's mutexes while they were locked.
            return;
        }
        self.shared.losses.report(lock, LossCause::Ended, None);
        if check_key(lock.key()).is_err() {
            // Nothing was ever granted under such a key.
            return;
        }
        let now = self.clock.now();
        let until = lock.deadline().map_or(now, |deadline| deadline.max(now));
        let call = Call::Unlock { caller: None, lock: lock.clone(), until, forced: None };
        if self.send_now(call).is_err() {
            tracing::warn!(nonce = %lock.nonce(), "mailbox full; the lease will expire");
        }
    }

    /// Sends an unlock or a withdrawal on this thread: the driver's task may never run again, as
    /// where the program ends.
    fn send_now(&self, call: Call) -> Result<(), Full> {
        self.mail.release(Mail { call, reply: None })?;
        self.turns.take_turn();
        Ok(())
    }

    pub(crate) fn watch(&self, lock: &Lock) -> LossWatch {
        let watch = self.shared.losses.watch(lock);
        if self.check_open().is_err() {
            self.release(lock);
        } else if lock.fencing_token() <= self.shared.lost_token.load(Ordering::SeqCst) {
            // The lock may have been lost before this watch began.
            let call = Call::Check { lock: lock.clone() };
            if self.mail.release(Mail { call, reply: None }).is_err() {
                // The mailbox is full.
                self.shared.losses.report(lock, LossCause::Ended, None);
            }
        }
        watch
    }

    /// Completes once the backend is ready to grant.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        self.check_open()?;
        let mut status = self.status();
        let ready = status.wait_for(B::is_ready).await;
        ready.map(drop).map_err(|_| self.end_error())
    }

    /// The status of the group, as far as this process knows it.
    pub(crate) fn group_status(&self) -> Option<MemberStatus> {
        match self.check_open() {
            Ok(()) => B::group_status(&self.status.borrow()),
            Err(_) => B::group_status(&B::Status::default()),
        }
    }

    pub(crate) async fn close(&self) {
        if !self.opener.is_this_process() {
            return;
        }
        self.closed.store(true, Ordering::Release);
        let watched = self.shared.losses.lose_all();
        self.mail.close(Mail { call: Call::Close { watched }, reply: None });
        // The driver drops the sender of the status when it ends.
        let mut status = self.status();
        while status.changed().await.is_ok() {}
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.profile.capabilities
    }

    /// The latest status of the backend; its sender is dropped with the driver.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<B::Status> {
        self.status.clone()
    }

    fn next_id(&self) -> CallId {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Some backends bound leases more tightly than the contract does.
    fn check_lease(&self, duration: Duration) -> Result<(), Error> {
        check_span("duration", duration, DURATION_MIN, self.profile.lease_max)
    }

    /// Checks that this process opened the handle, and that it has not ended.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if !self.opener.is_this_process() {
            return Err(Failure::Forked(self.opener.id()).to_error());
        }
        self.check_running()
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) || self.mail.is_closed() {
            return Err(self.end_error());
        }
        Ok(())
    }

    pub(crate) fn end_error(&self) -> Error {
        self.shared.failure.get().map_or(Error::Closed, Failure::to_error)
    }

    fn full(&self) -> Error {
        Error::Limit { what: REQUESTS, limit: self.profile.requests_max as u64 }
    }
}

/// The error of an `open` without a runtime, in place of the panic of the first task.
pub(crate) fn check_runtime() -> Result<(), Error> {
    let misconfigured = |error| Error::unavailable(UnavailableKind::Misconfigured, error);
    Handle::try_current().map(drop).map_err(misconfigured)
}
