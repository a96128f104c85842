//! The lease that a guard and its keep-alive share: the lock, its deadline, and whether it is lost.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use gaggle_channels::internal::process::Opener;
use gaggle_strategies::{
    Error, KeyedMutex, Lock,
    clock::{Clock, Instant},
    implement::{LossWatch, not_held, whole_ms},
    lock::LossCause,
};
use humantime::format_duration;
use tokio::sync::Notify;

use crate::metrics::{self, Stopwatch};

/// An extension that comes later than this part of the lease is reported.
const LATE_PARTS: u32 = 6;
/// A delay below this may be that of a timer or of the scheduler.
const LATE_LEAST: Duration = Duration::from_millis(20);

/// The lease of a guard, shared with its keep-alive.
pub(crate) struct Lease {
    pub(crate) mutex: Arc<dyn KeyedMutex>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) watch: LossWatch,
    state: Mutex<State>,
    held: Stopwatch,
    /// `None` if the strategy works within one process, without its own thread: a fork then has its
    /// own copy of the table.
    opener: Option<Opener>,
    /// Notified of a loss and of a later deadline.
    changed: Notify,
}

struct State {
    lock: Lock,
    lost: Option<LossCause>,
    /// The guard has released the lock: a loss is no longer noted.
    ended: bool,
    /// When the keep-alive must run, and its lease; `None` while it does not sleep.
    extend_at: Option<(Instant, Duration)>,
}

impl State {
    fn is_expired(&self, now: Instant) -> bool {
        self.lock.deadline().is_none_or(|deadline| now >= deadline)
    }
}

impl Lease {
    /// A lock that `mutex` has just granted, with the opener of the strategy's own thread.
    pub(crate) fn new(
        mutex: Arc<dyn KeyedMutex>,
        lock: Lock,
        watch: LossWatch,
        opener: Option<Opener>,
        held: Stopwatch,
    ) -> Self {
        let clock = mutex.clock();
        let state = Mutex::new(State { lock, lost: None, ended: false, extend_at: None });
        let opener = opener.or_else(|| mutex.capabilities().distributed.then(Opener::this_process));
        Self { mutex, clock, watch, state, held, opener, changed: Notify::new() }
    }

    /// Whether this process is a fork of the lock's holder.
    pub(crate) fn is_copy(&self) -> bool {
        self.opener.is_some_and(|opener| !opener.is_this_process())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> Lock {
        self.state().lock.clone()
    }

    /// The deadline, or `None` once lost.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        if state.lost.is_some() { None } else { state.lock.deadline() }
    }

    /// The state at `now`, after noting a loss that the strategy reported, or the deadline implies.
    fn state_at(&self, now: Instant) -> MutexGuard<'_, State> {
        let reported = self.watch.cause();
        let state = self.state();
        let expired = state.is_expired(now).then_some(LossCause::Deadline);
        match reported.or(expired) {
            Some(cause) => self.note_loss(state, cause),
            None => state,
        }
    }

    /// Notes a loss. The first one is counted, logged and notified, and its cause stays: only a
    /// force-unlock before the deadline replaces it.
    fn note_loss<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        cause: LossCause,
    ) -> MutexGuard<'a, State> {
        let earlier = state.lost;
        let is_replaced = |it| it == LossCause::Ended && cause == LossCause::Forced;
        if state.ended || !earlier.is_none_or(is_replaced) {
            return state;
        }
        state.lost = Some(cause);
        if earlier.is_some() {
            return state;
        }
        let lock = state.lock.clone();
        // Recorders, subscribers and wakers are foreign code: they run after the mutex is released.
        drop(state);
        metrics::lost(cause);
        self.changed.notify_waiters();
        // A strategy that reports a loss logs it.
        if self.watch.mark_logged() {
            let (key, token) = (lock.key(), lock.fencing_token());
            let extend_error = self.watch.extend_error().filter(|_| cause == LossCause::Deadline);
            let extend_error = extend_error.as_deref();
            tracing::warn!(%key, token, nonce = %lock.nonce(), extend_error, "lock lost");
        }
        self.state()
    }

    /// The time left. It is zero once the loss is noted, so that no extension in flight can revive
    /// the lock, and in a fork.
    pub(crate) fn remaining(&self) -> Duration {
        if self.is_copy() {
            return Duration::ZERO;
        }
        let now = self.clock.now();
        let state = self.state_at(now);
        let is_held = state.lost.is_none() && !state.ended;
        let deadline = state.lock.deadline().filter(|_| is_held);
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Why the lock is lost.
    pub(crate) fn loss(&self) -> Option<LossCause> {
        self.state_at(self.clock.now()).lost
    }

    /// Completes when the strategy reports the loss.
    pub(crate) async fn loss_reported(&self) {
        self.watch.lost().await;
        self.loss();
    }

    /// Extends, and records the new deadline or the loss.
    pub(crate) async fn extend(&self, duration: Duration) -> Result<(), Error> {
        let lock = self.lock();
        match self.mutex.extend(&lock, duration).await {
            Ok(extended) => {
                self.watch.set_extend_error(None);
                self.set_deadline(extended)
            }
            // By a deadline that another extension has moved: the lock may still be held.
            Err(Error::Expired) if self.deadline() > lock.deadline() => Err(Error::Unknown),
            Err(error) => {
                match &error {
                    Error::NotHolder | Error::Expired => {
                        drop(self.note_loss(self.state_at(self.clock.now()), LossCause::Ended));
                    }
                    Error::Unavailable { .. } | Error::Limit { .. } => {
                        self.watch.set_extend_error(Some(error.to_string().into()));
                    }
                    _ => {}
                }
                Err(error)
            }
        }
    }

    /// Takes a later deadline: a lost lock stays lost.
    fn set_deadline(&self, extended: Lock) -> Result<(), Error> {
        let now = self.clock.now();
        let mut state = self.state_at(now);
        let outcome = match state.lost {
            Some(LossCause::Deadline) => Err(Error::Expired),
            // Another extension found it, or the strategy has reported it.
            Some(_) => Err(not_held(&state.lock, now)),
            None => {
                if extended.deadline() > state.lock.deadline() {
                    state.lock = extended;
                }
                Ok(())
            }
        };
        drop(state);
        self.changed.notify_waiters();
        outcome
    }

    /// Notes when the keep-alive must run; `None` once it runs or has ended.
    pub(crate) fn set_extend_at(&self, extend_at: Option<(Instant, Duration)>) {
        self.state().extend_at = extend_at;
    }

    /// Warns if the keep-alive has not run in time: only a blocked or suspended runtime runs it
    /// late.
    pub(crate) fn report_blocked(&self) {
        let now = self.clock.now();
        let state = self.state();
        let Some((at, lease)) = state.extend_at else { return };
        let late = now.since(at);
        if late > (lease / LATE_PARTS).max(LATE_LEAST) {
            let lock = state.lock.clone();
            // A subscriber is foreign code: it runs after the mutex is released.
            drop(state);
            let (key, token) = (lock.key(), lock.fencing_token());
            let late = format_duration(Duration::from_millis(whole_ms(late)));
            tracing::warn!(%key, token, "the runtime was blocked for {late} as an extension was due");
        }
    }

    /// Records that the guard has released the lock: a loss is no longer noted.
    pub(crate) fn end(&self) {
        let now = self.clock.now();
        // Notes a loss that the guard was not asked for.
        if !std::mem::replace(&mut self.state_at(now).ended, true) {
            self.held.released(now);
        }
    }

    /// Counts a loss that the unlock was the first to find.
    pub(crate) fn unlock_found(&self, cause: LossCause) {
        if self.state().lost.is_none() {
            let forced = self.watch.cause().filter(|reported| *reported == LossCause::Forced);
            metrics::lost(forced.unwrap_or(cause));
        }
    }

    /// Completes once the deadline has passed or the lock was marked lost.
    pub(crate) async fn expired(&self) {
        loop {
            // Before the deadline is read: it completes with any change from here on.
            let changed = self.changed.notified();
            let Some(deadline) = self.deadline() else { return };
            let mut timer = self.clock.sleep_until(deadline);
            // The runtime may poll this again before its timers, as after a task that blocked it.
            let over = poll_fn(|cx| match self.clock.now() >= deadline {
                true => Poll::Ready(()),
                false => timer.as_mut().poll(cx),
            });
            tokio::select! {
                biased;
                () = changed => {}
                () = over => {
                    // An extension may have completed in the same turn.
                    if self.remaining().is_zero() {
                        return;
                    }
                }
            }
        }
    }
}
