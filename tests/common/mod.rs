//! A stub strategy for the guard's tests: it records each call and replies from a script.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use gaggle::{
    Capabilities, Clock, Error, Inspection, KeyedMutex, Lock, LockOptions, Nonce, Owner,
    strategies::{
        clock::{Instant, TokioClock},
        implement::{LossRegistry, LossWatch},
    },
};

/// A call of the stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Lock,
    Unlock,
    Extend(Duration),
    Release,
    Close,
}

/// The reply to one lock, extend or unlock.
pub(crate) type Reply = fn() -> Result<(), Error>;

/// The reply to inspections.
pub(crate) type Inspect = fn() -> Result<Option<Inspection>, Error>;

/// Grants every lock at once, records calls, and replies to extend and unlock from a script (`Ok`
/// when the script is empty).
#[derive(Clone)]
pub(crate) struct Stub {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) losses: LossRegistry,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<(Instant, Call)>,
    locks: VecDeque<Reply>,
    extends: VecDeque<Reply>,
    extend_always: Option<Reply>,
    extend_delay: Duration,
    shortened: Duration,
    unlocks: VecDeque<Reply>,
    unlock_delay: Duration,
    inspection: Option<(Duration, Inspect)>,
    token: u64,
}

impl Stub {
    /// On the runtime's clock, which a test can pause.
    pub(crate) fn new() -> Self {
        Self::with_clock(Arc::new(TokioClock::new()))
    }

    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, losses: LossRegistry::default(), state: Arc::default() }
    }

    pub(crate) fn reply_to_locks(&self, replies: &[Reply]) {
        self.state.lock().unwrap().locks.extend(replies);
    }

    pub(crate) fn reply_to_extends(&self, replies: &[Reply]) {
        self.state.lock().unwrap().extends.extend(replies);
    }

    pub(crate) fn reply_to_every_extend(&self, reply: Reply) {
        self.state.lock().unwrap().extend_always = Some(reply);
    }

    /// Replies extends this much later.
    pub(crate) fn delay_extends(&self, delay: Duration) {
        self.state.lock().unwrap().extend_delay = delay;
    }

    /// Grants leases that are this much shorter than they were asked for.
    pub(crate) fn shorten_leases(&self, by: Duration) {
        self.state.lock().unwrap().shortened = by;
    }

    pub(crate) fn reply_to_unlocks(&self, replies: &[Reply]) {
        self.state.lock().unwrap().unlocks.extend(replies);
    }

    /// Replies unlocks this much later.
    pub(crate) fn delay_unlocks(&self, delay: Duration) {
        self.state.lock().unwrap().unlock_delay = delay;
    }

    /// Replies inspections so, this much later; at once and without a holder by default.
    pub(crate) fn reply_to_inspections(&self, delay: Duration, reply: Inspect) {
        self.state.lock().unwrap().inspection = Some((delay, reply));
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.lock().unwrap().calls.iter().map(|(_, call)| call.clone()).collect()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Call) -> bool) -> usize {
        self.calls().iter().filter(|call| wanted(call)).count()
    }

    /// When each extend was asked for, in milliseconds of the clock.
    pub(crate) fn extend_times_ms(&self) -> Vec<u128> {
        let state = self.state.lock().unwrap();
        let extends = state.calls.iter().filter(|(_, call)| matches!(call, Call::Extend(_)));
        extends.map(|(at, _)| at.since_origin().as_millis()).collect()
    }

    fn note(&self, call: Call) {
        let now = self.clock.now();
        self.state.lock().unwrap().calls.push((now, call));
    }
}

#[async_trait]
impl KeyedMutex for Stub {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        self.note(Call::Lock);
        let mut state = self.state.lock().unwrap();
        state.locks.pop_front().map_or(Ok(()), |reply| reply())?;
        let deadline = self.clock.now().after(options.get_duration()).before(state.shortened);
        state.token += 7;
        Ok(Lock::new(key, Nonce::random(), state.token, Some(deadline)))
    }

    async fn unlock(&self, _: &Lock) -> Result<(), Error> {
        self.note(Call::Unlock);
        let (reply, delay) = {
            let mut state = self.state.lock().unwrap();
            (state.unlocks.pop_front(), state.unlock_delay)
        };
        tokio::time::sleep(delay).await;
        reply.map_or(Ok(()), |reply| reply())
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        self.note(Call::Extend(duration));
        let fresh = self.clock.now().after(duration);
        let (reply, delay) = {
            let mut state = self.state.lock().unwrap();
            (state.extends.pop_front().or(state.extend_always), state.extend_delay)
        };
        tokio::time::sleep(delay).await;
        reply.map_or(Ok(()), |reply| reply())?;
        Ok(lock.with_deadline(lock.deadline().map_or(fresh, |present| present.max(fresh))))
    }

    async fn inspect(&self, _: &str) -> Result<Option<Inspection>, Error> {
        let Some((delay, reply)) = self.state.lock().unwrap().inspection else { return Ok(None) };
        tokio::time::sleep(delay).await;
        reply()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none("stub")
    }

    async fn close(&self) {
        self.note(Call::Close);
        self.losses.lose_all();
    }

    fn release(&self, _: &Lock) {
        self.note(Call::Release);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.losses.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }
}

/// An inspection of a held key.
pub(crate) fn held() -> Result<Option<Inspection>, Error> {
    let (nonce, owner) = (Nonce::random(), Owner::this_process(None));
    let (held_for, remaining) = (ms(1), ms(1));
    Ok(Some(Inspection { fencing_token: 7, nonce, owner, held_for, remaining, waiters: 0 }))
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The default options with another lease.
pub(crate) fn lease(duration: Duration) -> LockOptions {
    LockOptions::default().duration(duration)
}
