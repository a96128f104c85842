mod asking;
mod locking;
mod view;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gaggle_channels::Channel;
use rand::RngExt;
use tokio::sync::{oneshot, watch};

use self::asking::{Asking, Cancel};
pub use self::view::{MemberSizes, MemberStatus};
use super::{
    driver::{Driver, Failure},
    mailbox::{self, Full, Mail},
    node::{Node, Status},
    options::{MemberOptions, Members},
    random::Draws,
    requests::{Answer, Call, CallerId, Until},
};
use crate::{
    Capabilities, Clock, DURATION_MIN, Drift, Error, Exclusion, Holds, Inspection, Instant, Lock,
    LossWatch, Order, Owner, Survives, check_duration, check_key, extended, gone,
    lock_table::Ended, spin::Spin, sync::AtomicBool, wait::whole_ms,
};

/// What [`MemberOptions::mailbox`] bounds.
pub(super) const REQUESTS: &str = "requests under way";

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
    outside_max: Option<Duration>,
    mail: mailbox::Sender,
    mailbox: usize,
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
        options.validate(channel.name(), channel.frame_limit())?;
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
        let (mail, mailbox) = mailbox::mailbox(options.mailbox);
        let (status, shown) = watch::channel(Status::default());
        let (holds, failure) = (Holds::default(), Arc::new(OnceLock::new()));
        let now = options.clock.now();
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
            now,
            next_tick: now,
            closing: None,
            taken: 0,
            spin: Spin::new(options.spin),
            awaited: false,
            vigil: None,
        };
        let member = Self {
            policy,
            clock: options.clock,
            drift: options.drift,
            request_timeout: options.request_timeout,
            named: matches!(options.members, Members::Named(_)),
            outside_max: options.outside_max,
            mail,
            mailbox: options.mailbox,
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

    pub(crate) async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        self.check_open()?;
        let led = self.leaders();
        let now = self.clock.now();
        let end = now.after(self.request_timeout);
        let until = lock.deadline().map_or(end, |deadline| deadline.max(end));
        let caller = self.next_caller();
        let mut asked = false;
        let told = async {
            // Not refused for want of room: it makes room.
            let room = self.mail.room().await;
            let (key, nonce) = (lock.key().clone(), lock.nonce());
            let call = Call::Unlock { caller: Some(caller), key, nonce, until };
            let (reply, answer) = oneshot::channel();
            self.mail.ask_with(room, Mail::Call { call, reply: Some(reply) });
            asked = true;
            answer.await
        };
        let told = self.before(now, Some(end), told).await;
        if !asked {
            return Err(self.full());
        }
        match told.transpose().map_err(|_| self.end_error())? {
            Some(
                Answer::Unlocked { was: Ended::Held, .. }
                | Answer::Unlocked { was: Ended::Unlocked, asked_before: true },
            ) => {
                // Others in this process may hold a guard of the same acquisition.
                self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
                Ok(())
            }
            Some(Answer::Unlocked { was: Ended::Unknown, asked_before: true }) => {
                match gone(lock, self.clock.now()) {
                    Error::Expired => Err(Error::Unknown),
                    _ => Ok(()),
                }
            }
            Some(Answer::Unlocked { .. }) => Err(gone(lock, self.clock.now())),
            Some(Answer::Unanswered) | None => Err(Self::unsettled(&led)),
            Some(_) => unreachable!("an unlock is answered as an unlock"),
        }
    }

    pub(crate) async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        check_duration(duration)?;
        self.check_lease(duration)?;
        self.check_open()?;
        let now = self.clock.now();
        let end = now.after(self.request_timeout);
        match lock.deadline() {
            Some(deadline) if deadline <= now => Err(Error::Expired),
            Some(deadline) => {
                let by = deadline.min(end);
                match self.extend_by(lock, duration, now, by).await {
                    Err(Error::Unknown | Error::Unavailable { .. })
                        if self.clock.now() >= deadline =>
                    {
                        Err(Error::Expired)
                    }
                    outcome => outcome,
                }
            }
            None => self.extend_by(lock, duration, now, end).await,
        }
    }

    async fn extend_by(
        &self,
        lock: &Lock,
        duration: Duration,
        now: Instant,
        end: Instant,
    ) -> Result<Lock, Error> {
        let duration = Duration::from_millis(whole_ms(duration));
        let led = self.leaders();
        let caller = self.next_caller();
        let (key, nonce) = (lock.key().clone(), lock.nonce());
        let duration_ms = whole_ms(duration);
        let reply = self.ask(Call::Extend { caller, key, nonce, duration_ms })?;
        let mut asking = Asking { member: self, caller, reply, cancel: Some(Cancel::GiveUp) };
        match self.answer_by(now, Some(end), &mut asking.reply).await? {
            // With another token it is a later acquisition, which this lock is not.
            Some(Answer::Extended { token, sent, claim })
                if token == Some(lock.fencing_token()) && claim.take() =>
            {
                extended(lock, sent, duration, self.drift, self.clock.now())
            }
            Some(Answer::Extended { .. }) => {
                self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
                Err(gone(lock, self.clock.now()))
            }
            Some(Answer::Limit { what, limit }) => Err(Error::Limit { what, limit }),
            Some(_) => unreachable!("an extend is answered as an extend"),
            None => Err(Self::unsettled(&led)),
        }
    }

    pub(crate) async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        self.check_open()?;
        if self.status.borrow().leader.is_none() {
            return Err(Error::Unavailable { source: None });
        }
        let (reply, mut shown) = oneshot::channel();
        let mail = Mail::Inspect { key: key.into(), reply };
        self.mail.ask(mail).map_err(|Full| self.full())?;
        let now = self.clock.now();
        let end = now.after(self.request_timeout);
        self.answer_by(now, Some(end), &mut shown).await?.ok_or(Error::Unavailable { source: None })
    }

    pub(crate) fn release(&self, lock: &Lock) {
        // An unlock names the nonce, and frees a later acquisition of it as well.
        self.holds.lose(lock.key(), lock.nonce(), u64::MAX);
        if check_key(lock.key()).is_err() {
            // Nothing was ever granted under such a key.
            return;
        }
        let now = self.clock.now();
        let until = lock.deadline().map_or(now, |deadline| deadline.max(now));
        let (key, nonce) = (lock.key().clone(), lock.nonce());
        let call = Call::Unlock { caller: None, key, nonce, until };
        self.mail.tell(Mail::Call { call, reply: None });
    }

    pub(crate) fn watch(&self, lock: &Lock) -> LossWatch {
        let watch = self.holds.watch(lock);
        if self.check_open().is_err() {
            // Granted while this member closes: nobody else will free it.
            self.release(lock);
        } else if lock.fencing_token() <= self.status.borrow().lost_token {
            // It may have been lost before anybody watched it.
            self.mail.tell(Mail::Recheck { lock: lock.clone() });
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
        self.mail.tell(Mail::Close { unlock, done });
        // An error says that the driver has ended: there is nothing left to close.
        let _ = closed.await;
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
        let (reply, mut sizes) = oneshot::channel();
        self.mail.ask(Mail::Sizes { reply }).map_err(|Full| self.full())?;
        let now = self.clock.now();
        let end = now.after(self.request_timeout);
        self.answer_by(now, Some(end), &mut sizes).await?.ok_or(Error::Unavailable { source: None })
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

    fn next_caller(&self) -> CallerId {
        self.callers.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a request to the driver. One that has ended drops the sender, and the receiver says so.
    fn ask(&self, call: Call) -> Result<oneshot::Receiver<Answer>, Error> {
        let (reply, answer) = oneshot::channel();
        match self.mail.ask(Mail::Call { call, reply: Some(reply) }) {
            Ok(()) => Ok(answer),
            Err(Full) => Err(self.full()),
        }
    }

    fn full(&self) -> Error {
        Error::Limit { what: REQUESTS, limit: self.mailbox as u64 }
    }

    /// The answer; `None` when `end` came first. `now` was just read.
    async fn answer_by<T>(
        &self,
        now: Instant,
        end: Option<Instant>,
        reply: &mut oneshot::Receiver<T>,
    ) -> Result<Option<T>, Error> {
        self.before(now, end, reply).await.transpose().map_err(|_| self.end_error())
    }

    /// What `future` comes to; `None` when `end` came first. `now` was just read.
    async fn before<T>(
        &self,
        now: Instant,
        end: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let end = async {
            match end {
                Some(end) => self.clock.sleep_from(now, end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = future => Some(done),
            () = end => None,
        }
    }

    /// The leader as it is known now, and later whether that has changed.
    fn leaders(&self) -> watch::Receiver<Status> {
        let mut status = self.status.clone();
        status.mark_unchanged();
        status
    }

    /// What silence after an unlock or extend means, which nothing takes back: only where no leader
    /// was known at any time was it never sent.
    fn unsettled(since: &watch::Receiver<Status>) -> Error {
        let changed = since.has_changed().unwrap_or(true);
        if changed || since.borrow().leader.is_some() {
            Error::Unknown
        } else {
            Error::Unavailable { source: None }
        }
    }

    /// What silence until the deadline means for a lock, which is withdrawn.
    fn unanswered(&self, until: Until) -> Error {
        match until {
            _ if self.status.borrow().leader.is_none() => Error::Unavailable { source: None },
            Until::Now => Error::Unknown,
            _ => Error::TimedOut,
        }
    }

    /// A lease that may be held outside members is bounded more tightly than others.
    fn check_lease(&self, duration: Duration) -> Result<(), Error> {
        match self.outside_max {
            Some(outside) if duration > outside => {
                Err(Error::duration("duration", duration, DURATION_MIN, outside))
            }
            _ => Ok(()),
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
