mod asking;
mod view;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use gaggle_channels::Channel;
use rand::RngExt;
use tokio::sync::{mpsc, oneshot, watch};

use self::asking::{Asking, Cancel};
pub use self::view::{MemberSizes, MemberStatus};
use super::{
    driver::{Driver, Failure, Mail},
    node::{Node, Status},
    options::{MemberOptions, Members},
    random::Draws,
    requests::{Answer, Call, CallerId, LockCall, Until},
};
use crate::{
    Capabilities, Clock, Drift, Error, Exclusion, Holds, Inspection, Instant, Lock, LockOptions,
    LossWatch, MaxWait, Order, Owner, Survives, check_duration, check_key, check_request,
    extended_deadline, gone, granted_deadline,
    lock_table::{Ended, Grant},
    wait::{lasts, whole_ms},
};

/// Between refusals of plain compare-and-set, a caller sleeps this long, jittered, so that many do
/// not ask in step.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// What a strategy of the Raft family does with a key that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Waiters queue in the replicated table.
    Queue,
    /// A caller refused retries with jitter.
    CompareAndSet,
}

/// A running member, as its strategy holds it.
#[derive(Debug)]
pub(crate) struct Member {
    policy: Policy,
    clock: Arc<dyn Clock>,
    drift: Drift,
    request_timeout: Duration,
    named: bool,
    mail: mpsc::UnboundedSender<Mail>,
    callers: AtomicU64,
    closed: AtomicBool,
    ended: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
    status: watch::Receiver<Status>,
    holds: Holds,
    failure: Arc<OnceLock<Failure>>,
    owner: Arc<Owner>,
    draws: Draws,
}

impl Member {
    /// Connects the channel and starts the driver on the current runtime.
    pub(crate) async fn open(
        channel: Arc<dyn Channel>,
        options: MemberOptions,
        policy: Policy,
    ) -> Result<Self, Error> {
        options.validate(channel.name())?;
        channel.connect().await.map_err(Error::unavailable)?;
        let (mut member, driver) = Self::assemble(channel, options, policy);
        member.ended = tokio::sync::Mutex::new(Some(tokio::spawn(driver.run())));
        Ok(member)
    }

    /// A member and the driver that somebody must run.
    pub(super) fn assemble(
        channel: Arc<dyn Channel>,
        options: MemberOptions,
        policy: Policy,
    ) -> (Self, Driver) {
        let seed = options.seed.unwrap_or_else(|| rand::rng().random());
        let frame_limit = channel.frame_limit();
        let node = Node::new(channel.name().clone(), &options, frame_limit, seed);
        let (mail, mailbox) = mpsc::unbounded_channel();
        let (status, shown) = watch::channel(Status::default());
        let (holds, failure) = (Holds::default(), Arc::new(OnceLock::new()));
        let driver = Driver {
            node,
            channel,
            clock: options.clock.clone(),
            mailbox,
            pending_max: options.mailbox,
            tick: options.timing(frame_limit).tick,
            request_timeout: options.request_timeout,
            status,
            holds: holds.clone(),
            failure: failure.clone(),
            replies: BTreeMap::new(),
            next_tick: options.clock.now(),
            closing: None,
        };
        let member = Self {
            policy,
            clock: options.clock,
            drift: options.drift,
            request_timeout: options.request_timeout,
            named: matches!(options.members, Members::Named(_)),
            mail,
            callers: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            ended: tokio::sync::Mutex::new(None),
            status: shown,
            holds,
            failure,
            owner: Arc::new(options.owner.unwrap_or_else(|| Owner::this_process(None))),
            draws: options.seed.map_or(Draws::System, Draws::seeded),
        };
        (member, driver)
    }

    pub(crate) async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        check_request(key, &options)?;
        self.check_open()?;
        let started = self.clock.now();
        let (until, end) = match options.max_wait {
            MaxWait::AtMost(Duration::ZERO) => {
                (Until::Now, Some(started.after(self.request_timeout)))
            }
            MaxWait::AtMost(wait) => (Until::At(started.after(wait)), Some(started.after(wait))),
            MaxWait::Forever => (Until::Never, None),
        };
        let mut call = self.lock_call(key, &options, until);
        loop {
            let mut caller = self.ask_lock(&call);
            match self.answer_by(end, &mut caller.reply).await? {
                Some(Answer::Granted { grant, sent, received }) => {
                    let duration = Duration::from_millis(call.duration_ms);
                    let deadline = local_deadline(&grant, sent, received, self.drift);
                    let lock = Lock::new(grant.key, grant.nonce, grant.token, Some(deadline));
                    let lock = self.with_half_left(lock, duration, end).await?;
                    caller.disarm();
                    return Ok(lock);
                }
                Some(Answer::Held) if until != Until::Now => {
                    caller.disarm();
                    call.unused = false;
                    self.pause_before_retry(end).await?;
                }
                Some(Answer::Held) => break Err(caller.ended(Error::Held)),
                // Granted and run out before this process learned of it: a new acquisition.
                Some(Answer::Spent) if call.drawn => {
                    caller.disarm();
                    call.nonce = self.draws.nonce();
                    call.unused = true;
                    self.pause_before_retry(end).await?;
                }
                Some(Answer::Spent) => break Err(caller.ended(Error::Spent)),
                Some(Answer::Limit { what, limit }) => {
                    break Err(caller.ended(Error::Limit { what, limit }));
                }
                Some(Answer::Unlocked { .. } | Answer::Extended { .. }) => {
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
            owner,
        }
    }

    /// A lease of which less than half remains locally is not handed out: it is extended first.
    async fn with_half_left(
        &self,
        lock: Lock,
        duration: Duration,
        end: Option<Instant>,
    ) -> Result<Lock, Error> {
        let now = self.clock.now();
        let lasts = |lock: &Lock| {
            lock.deadline().is_some_and(|deadline| lasts(deadline, self.clock.now(), duration))
        };
        if lasts(&lock) {
            return Ok(lock);
        }
        let limit = now.after(self.request_timeout);
        let by = end.map_or(limit, |end| end.min(limit));
        match self.extend_by(&lock, duration, by).await {
            Ok(lock) if lasts(&lock) => Ok(lock),
            Err(error @ (Error::Closed | Error::Failed { .. })) => Err(error),
            _ => Err(Error::TimedOut),
        }
    }

    async fn pause_before_retry(&self, end: Option<Instant>) -> Result<(), Error> {
        let pause = self.draws.between(RETRY.0, RETRY.1);
        let wake = self.clock.now().after(pause);
        match end {
            Some(end) if wake >= end => {
                self.clock.sleep_until(end).await;
                Err(Error::TimedOut)
            }
            _ => {
                self.clock.sleep_until(wake).await;
                self.check_open()
            }
        }
    }

    pub(crate) async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.check_open()?;
        let end = self.clock.now().after(self.request_timeout);
        let until = lock.deadline().map_or(end, |deadline| deadline.max(end));
        let caller = self.next_caller();
        let (key, nonce) = (lock.key().clone(), lock.nonce());
        let call = Call::Unlock { caller: Some(caller), key, nonce, until };
        let mut reply = self.send(call);
        match self.answer_by(Some(end), &mut reply).await? {
            Some(
                Answer::Unlocked { was: Ended::Held | Ended::Waited, .. }
                | Answer::Unlocked { was: Ended::Unlocked, asked_before: true },
            ) => {
                // Others in this process may hold a guard of the same acquisition.
                self.holds.lose(lock.nonce());
                Ok(())
            }
            Some(Answer::Unlocked { was: Ended::Unknown, asked_before: true }) => {
                match gone(lock, self.clock.now()) {
                    Error::Expired => Err(Error::Unknown),
                    _ => Ok(()),
                }
            }
            Some(Answer::Unlocked { .. }) => Err(gone(lock, self.clock.now())),
            Some(_) => unreachable!("an unlock is answered as an unlock"),
            None => Err(self.unanswered(Until::Now)),
        }
    }

    pub(crate) async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_duration(duration)?;
        self.check_open()?;
        let now = self.clock.now();
        let end = now.after(self.request_timeout);
        match lock.deadline() {
            Some(deadline) if deadline <= now => Err(Error::Expired),
            Some(deadline) => {
                let by = deadline.min(end);
                match self.extend_by(lock, duration, by).await {
                    Err(Error::Unknown | Error::Unavailable { .. })
                        if self.clock.now() >= deadline =>
                    {
                        Err(Error::Expired)
                    }
                    outcome => outcome,
                }
            }
            None => self.extend_by(lock, duration, end).await,
        }
    }

    async fn extend_by(
        &self,
        lock: &Lock,
        duration: Duration,
        end: Instant,
    ) -> Result<Lock, Error> {
        let duration = Duration::from_millis(whole_ms(duration));
        let caller = self.next_caller();
        let (key, nonce) = (lock.key().clone(), lock.nonce());
        let duration_ms = whole_ms(duration);
        let reply = self.send(Call::Extend { caller, key, nonce, duration_ms });
        let mut asking = Asking { member: self, caller, reply, cancel: Some(Cancel::GiveUp) };
        match self.answer_by(Some(end), &mut asking.reply).await? {
            Some(Answer::Extended { held: true, sent }) => {
                let deadline = extended_deadline(lock.deadline(), sent, duration, self.drift);
                Ok(lock.with_deadline(deadline))
            }
            Some(Answer::Extended { held: false, .. }) => {
                self.holds.lose(lock.nonce());
                Err(gone(lock, self.clock.now()))
            }
            Some(Answer::Limit { what, limit }) => Err(Error::Limit { what, limit }),
            Some(_) => unreachable!("an extend is answered as an extend"),
            None => Err(self.unanswered(Until::Now)),
        }
    }

    pub(crate) async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        self.check_open()?;
        if self.status.borrow().leader.is_none() {
            return Err(Error::Unavailable { source: None });
        }
        let (reply, shown) = oneshot::channel();
        let _ = self.mail.send(Mail::Inspect { key: key.into(), reply });
        shown.await.map_err(|_| self.end_error())
    }

    pub(crate) fn release(&self, lock: &Lock) {
        self.holds.lose(lock.nonce());
        let now = self.clock.now();
        let until = lock.deadline().map_or(now, |deadline| deadline.max(now));
        let (key, nonce) = (lock.key().clone(), lock.nonce());
        let call = Call::Unlock { caller: None, key, nonce, until };
        let _ = self.mail.send(Mail::Call { call, reply: None });
    }

    pub(crate) fn watch(&self, lock: &Lock) -> LossWatch {
        let watch = self.holds.watch(lock);
        if self.check_open().is_err() {
            self.holds.lose(lock.nonce());
        }
        watch
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let unlock = self.holds.lose_all();
        let (done, closed) = oneshot::channel();
        if self.mail.send(Mail::Close { unlock, done }).is_ok() {
            let _ = closed.await;
        }
        if let Some(task) = self.ended.lock().await.take() {
            let _ = task.await;
        }
    }

    /// Completes once this member votes, in a group that has a leader.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.ready || status.full.is_some()).await {
            Ok(status) => match status.full {
                Some(limit) => {
                    Err(Error::Limit { what: "members of this cluster", limit: limit.into() })
                }
                None => Ok(()),
            },
            Err(_) => Err(self.end_error()),
        }
    }

    pub(crate) fn status(&self) -> MemberStatus {
        let Status { ready, leader, leads, group, term, .. } = self.status.borrow().clone();
        MemberStatus { ready, leader, leads, group, term }
    }

    pub(crate) async fn sizes(&self) -> Result<MemberSizes, Error> {
        let (reply, sizes) = oneshot::channel();
        let _ = self.mail.send(Mail::Sizes { reply });
        sizes.await.map_err(|_| self.end_error())
    }

    pub(crate) fn capabilities(&self, strategy: &'static str, order: Order) -> Capabilities {
        Capabilities {
            exclusion: if self.named { Exclusion::Always } else { Exclusion::WithinOneGroup },
            order,
            survives: Survives::Minority,
            distributed: true,
            waits_for_leader: true,
            ..Capabilities::none(strategy)
        }
    }

    fn ask_lock(&self, call: &LockCall) -> Asking<'_> {
        let caller = self.next_caller();
        let reply = self.send(Call::Lock { caller, lock: call.clone() });
        let cancel = Some(Cancel::Withdraw { key: call.key.clone(), nonce: call.nonce });
        Asking { member: self, caller, reply, cancel }
    }

    fn next_caller(&self) -> CallerId {
        self.callers.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, call: Call) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        // A driver that has ended drops the sender, and the receiver says so.
        let _ = self.mail.send(Mail::Call { call, reply: Some(reply) });
        answer
    }

    /// The answer; `None` when `end` came first.
    async fn answer_by(
        &self,
        end: Option<Instant>,
        reply: &mut oneshot::Receiver<Answer>,
    ) -> Result<Option<Answer>, Error> {
        let end = async {
            match end {
                Some(end) => self.clock.sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = reply => answer.map(Some).map_err(|_| self.end_error()),
            () = end => Ok(None),
        }
    }

    /// What silence until the deadline means.
    fn unanswered(&self, until: Until) -> Error {
        match until {
            _ if self.status.borrow().leader.is_none() => Error::Unavailable { source: None },
            Until::Now => Error::Unknown,
            _ => Error::TimedOut,
        }
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) || self.mail.is_closed() {
            return Err(self.end_error());
        }
        Ok(())
    }

    fn end_error(&self) -> Error {
        self.failure.get().map_or(Error::Closed, Failure::to_error)
    }
}

/// The holder's deadline (contract, rule 2). Where the LOCK was repeated after its grant, only what
/// then remained of the lease counts from the send.
fn local_deadline(grant: &Grant, sent: Instant, received: Instant, drift: Drift) -> Instant {
    let waited = Duration::from_millis(grant.granted_at.since(grant.asked_at));
    let from = grant.granted_at.max(grant.asked_at);
    let lease = Duration::from_millis(grant.expires_at.since(from));
    granted_deadline(sent, received, waited, lease, drift)
}
