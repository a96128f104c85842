//! [`Local`]: the lock table alone, in one process.

mod call;
mod calls;
mod shards;
mod signal;
mod state;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use self::{
    call::{Begun, Call, Outcome},
    shards::{Shards, lock},
    state::{News, State, Telling, stamp},
};
use crate::{
    BootClock, Capabilities, Clock, Drift, Error, Exclusion, Holds, Inspection, Instant,
    KeyedMutex, Lock, LockOptions, LossWatch, Order, Survives, check_duration, check_key,
    check_request, extended, gone,
    lock_table::{Bound, Command, Effect, Known, ProcessId, Sizes, TableConfig},
    sync::Mutex,
    wait::whole_ms,
};

/// A keyed mutex within one process: for programs that are one process, and for tests of programs that
/// use another strategy in production. Each `Local` is a table of its own: what two tasks share must
/// be one `Local`, or clones of one `Locker` over it.
///
/// It has no task, no thread and no socket of its own. The lock table is in sixteen parts, so that
/// threads which use different keys rarely wait for each other. Every call advances the part in which
/// its key is, and a call that waits sleeps until its own deadline or the end of the lease before it.
/// A lease that ran out without anybody asking for a key of its part occupies memory until somebody
/// does, or until another part needs the room. Waiting needs
/// the tokio runtime's timer; everything else works outside any runtime.
///
/// # Guarantees
///
/// At most one live lease per key, always; granting side and holder read the same clock. Waiters
/// are granted in FIFO order. Nothing survives the process. Fencing tokens begin at the wall
/// clock's nanoseconds, so they grow across restarts unless the wall clock was set back.
///
/// # Examples
///
/// ```
/// # use gaggle_strategies::{KeyedMutex, Local, LockOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let mutex = Local::new();
/// let lock = mutex.lock("orders/42", LockOptions::default()).await?;
/// assert!(mutex.try_lock("orders/42", std::time::Duration::from_secs(1)).await.is_err());
/// mutex.unlock(&lock).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Local {
    clock: Arc<dyn Clock>,
    drift: Drift,
    holds: Holds,
    shards: Shards,
    /// What all its parts may hold together.
    bounds: (u64, u64),
}

/// The bounds of a [`Local`]; the defaults suit nearly everybody. What meets one gets
/// [`Error::Limit`]; a bound of 0 refuses everything.
///
/// ```
/// # use gaggle_strategies::LocalOptions;
/// let options = LocalOptions::default().keys_max(10_000).waiters_per_key_max(100);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalOptions {
    drift: Drift,
    waiters_per_key_max: u64,
    keys_max: u64,
    nonces_max: u64,
}

impl Default for LocalOptions {
    fn default() -> Self {
        let TableConfig { waiters_per_key_max, keys_max, nonces_max, .. } = TableConfig::default();
        Self { drift: Drift::default(), waiters_per_key_max, keys_max, nonces_max }
    }
}

impl LocalOptions {
    /// Sets by how much a holder's deadline comes before the end of its lease, 1 % by default, as
    /// on every strategy, so that code tested here meets no other timing in production. Holder and
    /// table read one clock, so 0 is safe as well.
    #[must_use]
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// Sets how many may wait for one key, 131,072 by default.
    #[must_use]
    pub fn waiters_per_key_max(mut self, limit: u64) -> Self {
        self.waiters_per_key_max = limit;
        self
    }

    /// Sets how many keys may be held at one time, 1,048,576 by default.
    #[must_use]
    pub fn keys_max(mut self, limit: u64) -> Self {
        self.keys_max = limit;
        self
    }

    /// Sets how many nonces may hold, wait or be remembered, 2,097,152 by default.
    #[must_use]
    pub fn nonces_max(mut self, limit: u64) -> Self {
        self.nonces_max = limit;
        self
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl Local {
    /// An empty table on the [`BootClock`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty table on this clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::with_options(LocalOptions::default(), clock)
    }

    /// An empty table with these bounds, on this clock.
    #[must_use]
    pub fn with_options(options: LocalOptions, clock: Arc<dyn Clock>) -> Self {
        let LocalOptions { drift, waiters_per_key_max, keys_max, nonces_max } = options;
        let config = TableConfig {
            first_token: clock.wall_nanos(),
            waiters_per_key_max,
            keys_max,
            nonces_max,
            ..TableConfig::default()
        };
        let holds = Holds::default();
        let shards = Shards::new(&config, &holds);
        Self { clock, drift, holds, shards, bounds: (keys_max, nonces_max) }
    }

    /// How much the table holds now: for operators and tests.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let mut all = Sizes::default();
        for part in self.shards.all() {
            let sizes = self.telling(|news| {
                self.with_part(part, news, |state, now| {
                    state.step(now, &Command::Noop);
                    state.table.sizes()
                })
            });
            all.keys += sizes.keys;
            all.waiters += sizes.waiters;
            all.nonces_remembered += sizes.nonces_remembered;
        }
        all
    }

    /// Runs `ask` on the state at a time read after the mutex was taken, then tells whoever its
    /// effects concern.
    fn with_state<T>(
        &self,
        key: &str,
        ask: impl FnOnce(&mut State, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.telling(|news| self.with_open_state(key, news, ask))
    }

    /// As [`with_state`](Self::with_state), also after closing.
    fn with_any_state<T>(&self, key: &str, ask: impl FnOnce(&mut State, Instant) -> T) -> T {
        self.telling(|news| self.with_part(self.shards.of(key), news, ask))
    }

    /// Tells whoever what `ask` has noted concerns, also where it panics. Whom it tells may do as it likes, also come
    /// back here, so it must be told where no mutex is held. What runs while one is held, and must not ask this
    /// table, are the clock and what subscribes to events.
    fn telling<T>(&self, ask: impl FnOnce(&mut News) -> T) -> T {
        let mut telling = Telling::new(&self.holds);
        ask(&mut telling.news)
    }

    fn with_open_state<T>(
        &self,
        key: &str,
        news: &mut News,
        ask: impl FnOnce(&mut State, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with_part(self.shards.of(key), news, |state, now| {
            if state.closed { Err(Error::Closed) } else { ask(state, now) }
        })
    }

    fn with_part<T>(
        &self,
        part: &Mutex<State>,
        news: &mut News,
        ask: impl FnOnce(&mut State, Instant) -> T,
    ) -> T {
        let mut state = lock(part);
        let now = self.clock.now();
        let answer = ask(&mut state, now);
        state.move_news(news);
        answer
    }

    /// Brings the part of this key the room that other parts do not use. Returns whether there was
    /// any.
    fn gather(&self, key: &str, bound: Bound, news: &mut News) -> bool {
        let _alone = lock(&self.shards.moving);
        let mut room = 0;
        for part in self.shards.others(key) {
            room += self.with_part(part, news, |state, now| {
                // Leases that have run out, and nonces of long ago, take no room.
                state.step(now, &Command::Noop);
                let spare = state.table.spare(bound);
                // Where there is much, each keeps a half: it will need some soon.
                let taken = spare.div_ceil(2);
                state.table.set_spare(bound, spare - taken);
                taken
            });
        }
        self.with_part(self.shards.of(key), news, |state, _| {
            let spare = state.table.spare(bound);
            state.table.set_spare(bound, spare + room);
        });
        room > 0
    }

    fn limit(&self, bound: Bound) -> Error {
        let (keys_max, nonces_max) = self.bounds;
        let limit = if bound == Bound::Keys { keys_max } else { nonces_max };
        Error::Limit { what: bound.name(), limit }
    }

    fn end(&self, state: &mut State, now: Instant, lock: &Lock) -> Result<(), Error> {
        // A lock value may name a nonce that only waits; that is not this caller's to withdraw.
        let holds = state.table.knows(lock.nonce()) == Some(Known::Holds);
        if holds && state.end(now, lock.key(), lock.nonce(), false) {
            Ok(())
        } else {
            Err(gone(lock, now))
        }
    }
}

#[async_trait]
impl KeyedMutex for Local {
    async fn lock(&self, key: &str, mut options: LockOptions) -> Result<Lock, Error> {
        check_request(key, &options)?;
        loop {
            let outcome = match Call::begin(self, key, &options) {
                Ok(Begun::Granted(lock)) => return Ok(lock),
                Ok(Begun::Queued(place)) => place.outcome().await?,
                Err(error) => {
                    breathe().await;
                    return Err(error);
                }
            };
            let until = match outcome {
                Outcome::Granted(lock) => return Ok(lock),
                Outcome::RanOut { until } => until,
            };
            if let Some(until) = until {
                let left = until.since(self.clock.now());
                if left.is_zero() {
                    return Err(Error::TimedOut);
                }
                options = options.max_wait(left);
            }
        }
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        let ended = self.with_state(lock.key(), |state, now| self.end(state, now, lock));
        breathe().await;
        ended
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        check_duration(duration)?;
        let duration_ms = whole_ms(duration);
        let outcome = self.with_state(lock.key(), |state, now| {
            if lock.deadline().is_some_and(|deadline| deadline <= now) {
                return Err(Error::Expired);
            }
            // A later acquisition of the nonce is not this lock.
            if !state.table.grant(lock.key()).is_some_and(|grant| grant.is_of(lock)) {
                return Err(gone(lock, now));
            }
            let (key, nonce) = (lock.key().clone(), lock.nonce());
            let (process, request) = (ProcessId(0), 0);
            state.step(now, &Command::Extend { key, nonce, process, request, duration_ms });
            let Some(Effect::Extended { held: Some(_), .. }) = state.effects.last() else {
                return Err(gone(lock, now));
            };
            let duration = Duration::from_millis(duration_ms);
            extended(lock, now, duration, self.drift, now)
        });
        breathe().await;
        outcome
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        let found = self.with_state(key, |state, now| {
            state.step(now, &Command::Noop);
            Ok(state.table.holder(key).map(|hold| Inspection {
                fencing_token: hold.token,
                nonce: hold.nonce,
                owner: (*hold.owner).clone(),
                remaining: Duration::from_millis(hold.expires_at.since(stamp(now))),
                waiters: hold.waiters,
            }))
        });
        breathe().await;
        found
    }

    async fn ready(&self) -> Result<(), Error> {
        // Closing reaches every part; this one stands for all.
        self.with_state("", |_, _| Ok(()))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            exclusion: Exclusion::Always,
            order: Order::Fifo,
            survives: Survives::Nothing,
            ..Capabilities::none("local")
        }
    }

    async fn close(&self) {
        // The table ends with this handle, so no lock needs its own unlock: nobody can be granted
        // a key any more.
        self.holds.lose_all();
        self.telling(|news| {
            for part in self.shards.all() {
                self.with_part(part, news, |state, _| state.close());
            }
        });
        // Those that began to watch meanwhile.
        self.holds.lose_all();
    }

    fn release(&self, lock: &Lock) {
        // An error has nobody to go to: the lock is gone, or the handle is closed.
        self.with_state(lock.key(), |state, now| self.end(state, now, lock)).ok();
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        let watch = self.holds.watch(lock);
        let held = self.with_any_state(lock.key(), |state, now| {
            state.step(now, &Command::Noop);
            let grant = state.table.grant(lock.key());
            grant.is_some_and(|grant| grant.is_of(lock))
        });
        if !held {
            self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
        }
        watch
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

/// A task that makes nothing but calls that wait for nothing lets others run. After the call, which is
/// then made when it is first polled; not behind a grant, which could be dropped there.
async fn breathe() {
    tokio::task::consume_budget().await;
}
