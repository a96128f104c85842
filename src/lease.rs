//! The lease that a guard and its keep-alive share: the lock, its deadline, and whether it is lost.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use gaggle_strategies::{
    Error, KeyedMutex, Lock,
    clock::{Clock, Instant},
    implement::{LossWatch, not_held},
    lock::LossCause,
};
use tokio::sync::Notify;

use crate::metrics::{self, Stopwatch};

/// The lease of a guard, shared with its keep-alive.
pub(crate) struct Hold {
    pub(crate) mutex: Arc<dyn KeyedMutex>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) watch: LossWatch,
    state: Mutex<State>,
    held: Stopwatch,
    /// Notified of a loss and of a later deadline.
    changed: Notify,
}

struct State {
    lock: Lock,
    lost: Option<LossCause>,
    /// The guard has released the lock: a loss is no longer reported.
    ended: bool,
    counted: bool,
}

impl State {
    fn is_expired(&self, now: Instant) -> bool {
        self.lock.deadline().is_none_or(|deadline| now >= deadline)
    }

    /// The cause of a loss that is found now.
    fn cause_at(&self, now: Instant) -> LossCause {
        if self.is_expired(now) { LossCause::Deadline } else { LossCause::Ended }
    }

    /// Counts the loss by its first cause.
    fn count(&mut self, cause: LossCause) {
        if !self.ended && !std::mem::replace(&mut self.counted, true) {
            metrics::lost(cause);
        }
    }

    /// Records and counts the loss; `false` if one was recorded before.
    fn lose(&mut self, cause: LossCause) -> bool {
        let earlier = self.lost;
        self.lost = earlier.or(Some(cause));
        self.count(cause);
        earlier.is_none()
    }
}

impl Hold {
    /// A lock that `mutex` has just granted.
    pub(crate) fn new(mutex: Arc<dyn KeyedMutex>, lock: Lock) -> Self {
        let (clock, watch) = (mutex.clock(), mutex.watch(&lock));
        let state = Mutex::new(State { lock, lost: None, ended: false, counted: false });
        let held = Stopwatch::start(&*clock);
        Self { mutex, clock, watch, state, held, changed: Notify::new() }
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

    /// Zero only after the loss is recorded, so that an extension in flight cannot revive the lock.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.clock.now();
        let mut state = self.state();
        let deadline = state.lock.deadline().filter(|_| state.lost.is_none());
        let remaining = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
        if remaining.is_zero() && state.lose(LossCause::Deadline) {
            drop(state);
            self.changed.notify_waiters();
        }
        remaining
    }

    /// Why the lock is lost, by the local clock and state.
    pub(crate) fn loss(&self) -> Option<LossCause> {
        self.remaining();
        self.state().lost
    }

    /// Why the strategy reported the loss; `None` if it did not. The first cause stays.
    pub(crate) fn reported_loss(&self) -> Option<LossCause> {
        let reported = self.watch.cause()?;
        let mut state = self.state();
        let cause = match reported {
            LossCause::Forced => reported,
            _ => state.lost.unwrap_or(reported),
        };
        state.count(cause);
        Some(cause)
    }

    /// The cause of a force-unlock, if one was reported.
    fn forced_loss(&self) -> Option<LossCause> {
        self.watch.cause().filter(|reported| *reported == LossCause::Forced)
    }

    /// Completes when the strategy reports the loss.
    pub(crate) async fn loss_reported(&self) {
        self.watch.lost().await;
        self.reported_loss();
    }

    /// Extends, and records the new deadline or the loss.
    pub(crate) async fn extend(&self, duration: Duration) -> Result<(), Error> {
        let lock = self.lock();
        match self.mutex.extend(&lock, duration).await {
            Ok(extended) => self.set_deadline(extended),
            // By a deadline that another extension has moved: the lock may still be held.
            Err(Error::Expired) if self.deadline() > lock.deadline() => Err(Error::Unknown),
            Err(error) => {
                if matches!(error, Error::NotHolder | Error::Expired) {
                    self.lose();
                }
                Err(error)
            }
        }
    }

    /// Takes a later deadline, unless the present one has passed: a lost lock stays lost.
    fn set_deadline(&self, extended: Lock) -> Result<(), Error> {
        let now = self.clock.now();
        let mut state = self.state();
        if state.is_expired(now) {
            state.lose(LossCause::Deadline);
        }
        let outcome = match state.lost {
            Some(LossCause::Deadline) => Err(Error::Expired),
            // Another extension was the first to find it.
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

    pub(crate) fn lose(&self) {
        let (now, forced) = (self.clock.now(), self.forced_loss());
        let mut state = self.state();
        let cause = forced.unwrap_or_else(|| state.cause_at(now));
        if !state.lose(cause) {
            return;
        }
        let lock = (!state.ended).then(|| state.lock.clone());
        drop(state);
        self.changed.notify_waiters();
        // A strategy that reports a loss logs it.
        if let Some(lock) = lock.filter(|_| !self.watch.is_lost()) {
            tracing::warn!(key = %lock.key(), nonce = %lock.nonce(), "lock lost");
        }
    }

    /// Records that the guard has released the lock: a loss is no longer reported.
    pub(crate) fn end(&self) {
        if cfg!(feature = "metrics") && self.reported_loss().is_none() {
            // Counts a loss by the deadline that the guard was not asked for.
            self.remaining();
        }
        if !std::mem::replace(&mut self.state().ended, true) {
            self.held.released(&*self.clock);
        }
    }

    /// Counts a loss that the unlock was the first to find.
    pub(crate) fn unlock_found(&self, cause: LossCause) {
        if !std::mem::replace(&mut self.state().counted, true) {
            metrics::lost(self.forced_loss().unwrap_or(cause));
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
