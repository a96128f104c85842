use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::{
    Holds, Instant, Nonce, Owner,
    lock_table::{ClusterTime, Command, Effect, Ended, Grant, LockTable, TableConfig},
};

/// For how many effects room is kept: a step in which very many leases end has as many, once.
const EFFECTS_KEPT: usize = 1024;

/// What the mutex of a [`Local`](super::Local) guards: the table, and who waits for its answers.
#[derive(Debug)]
pub(super) struct State {
    pub(super) table: LockTable,
    /// Of every lock without a label: asking for the host's name costs a system call. Its own here,
    /// because parts that count uses of one would meet at the count.
    pub(super) owner: Arc<Owner>,
    /// The calls that wait for an acquisition which has not ended, by nonce; several may ask with
    /// one nonce. Who sees the grant in time takes the lock without the table, so that the entry stays
    /// until the lock ends.
    pub(super) calls: BTreeMap<Nonce, Calls>,
    /// One that nobody has any more, for the next acquisition.
    spare: Option<Arc<Signal>>,
    /// None of those that wait looks later than this.
    last_look: Instant,
    /// The nonces given by callers that hold or wait: these may be repeated after their end, so
    /// the table must remember them. The ones drawn here are known to nobody who could repeat them.
    given: BTreeSet<Nonce>,
    pub(super) closed: bool,
    /// What the last step did.
    pub(super) effects: Vec<Effect>,
    news: News,
    /// What is watched is told of its end.
    holds: Holds,
}

/// The calls that wait for one acquisition.
#[derive(Debug)]
pub(super) struct Calls {
    /// A call that took the lock without the table stays counted, so that none of the others withdraws
    /// it.
    pub(super) count: usize,
    /// A call that asked the table has returned the lock: the others must not withdraw it.
    pub(super) taken: bool,
    /// When the last of them looks at the table although nobody tells it to.
    looks_at: Instant,
    signal: Arc<Signal>,
}

impl Calls {
    /// Whether they wait still.
    #[cfg(test)]
    pub(super) fn wait(&self) -> bool {
        self.signal.granted.get().is_none()
    }
}

/// What reaches the calls that wait for one acquisition. It is theirs alone: a later acquisition,
/// also one of the same nonce, has another, or this one anew once nobody has it any more.
#[derive(Debug, Default)]
pub(super) struct Signal {
    pub(super) news: Notify,
    stirred: AtomicBool,
    granted: OnceLock<Grant>,
    /// As a number: see [`Signal::end`].
    ended: AtomicU8,
}

/// How acquisitions end here.
const ENDS: [Ended; 3] = [Ended::Unlocked, Ended::Expired, Ended::Waited];

impl Signal {
    /// How the acquisition ended: `Unlocked`, `Expired`, or `Waited` where it was never granted. Closing
    /// ends all as `Unlocked`.
    pub(super) fn ended(&self) -> Option<Ended> {
        ENDS.get(usize::from(self.ended.load(Ordering::Acquire)).wrapping_sub(1)).copied()
    }

    fn end(&self, how: Ended) {
        let number = ENDS.iter().position(|end| *end == how).expect("one of them") + 1;
        let before = self.ended.swap(u8::try_from(number).expect("few"), Ordering::AcqRel);
        assert_eq!(before, 0, "an acquisition ends once");
    }

    /// The grant, if it was made and has not ended as far as the table knows. It shows before the step that
    /// made it is over: no step grants a nonce and ends it as well.
    pub(super) fn granted(&self) -> Option<&Grant> {
        self.granted.get().filter(|_| self.ended().is_none())
    }

    /// Whether there was news at any time. News that is told later than this is asked is not lost
    /// to a future of [`news`](Self::news) that was made before.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::SeqCst)
    }
}

/// Who must be told, once the state's mutex is free: wakers run foreign code.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct News {
    woken: SmallVec<[Arc<Signal>; 2]>,
    /// Mostly nobody watches, and nothing is noted.
    lost: Vec<(Arc<str>, Nonce, u64)>,
}

impl State {
    pub(super) fn new(config: TableConfig, owner: Owner, holds: Holds) -> Self {
        Self {
            table: LockTable::new(config),
            owner: Arc::new(owner),
            calls: BTreeMap::new(),
            spare: None,
            last_look: Instant::default(),
            given: BTreeSet::new(),
            closed: false,
            effects: Vec::new(),
            news: News::default(),
            holds,
        }
    }

    /// One step of the table; its effects stay in [`effects`](Self::effects) until the next.
    pub(super) fn step(&mut self, now: Instant, command: &Command) {
        self.effects.clear();
        self.effects.shrink_to(EFFECTS_KEPT);
        self.table.apply(stamp(now), command, &mut self.effects);
        for effect in &self.effects {
            match effect {
                Effect::Granted(grant) => {
                    tracing::debug!(key = %grant.key, token = grant.token, "granted");
                    self.news.grant(&self.calls, grant);
                    if self.last_look > instant(grant.expires_at) {
                        self.news.wake_head(&self.table, &self.calls, &grant.key);
                    }
                }
                Effect::Expired { key, nonce, token, .. } => {
                    tracing::info!(%nonce, token, "a lease ran out");
                    self.given.remove(nonce);
                    self.news.end(&mut self.calls, &mut self.spare, *nonce, Ended::Expired);
                    if self.holds.are_watched() {
                        self.news.lost.push((key.clone(), *nonce, *token));
                    }
                }
                Effect::Unlocked { key, nonce, was: Ended::Held } => {
                    self.given.remove(nonce);
                    self.news.end(&mut self.calls, &mut self.spare, *nonce, Ended::Unlocked);
                    if self.holds.are_watched() {
                        // A later acquisition of the nonce has a greater one.
                        self.news.lost.push((key.clone(), *nonce, self.table.last_token()));
                    }
                }
                Effect::Unlocked { key, nonce, was: Ended::Waited }
                | Effect::Dropped { key, nonce, .. } => {
                    self.given.remove(nonce);
                    self.news.end(&mut self.calls, &mut self.spare, *nonce, Ended::Waited);
                    self.news.wake_head(&self.table, &self.calls, key);
                }
                Effect::Unlocked { .. }
                | Effect::Queued { .. }
                | Effect::Refused { .. }
                | Effect::Extended { .. } => {}
            }
        }
    }

    /// Ends the acquisition of `nonce`. Returns whether it held the key.
    pub(super) fn end(&mut self, now: Instant, key: &Arc<str>, nonce: Nonce, given: bool) -> bool {
        let forget = !given && !self.given.contains(&nonce);
        self.step(now, &Command::Unlock { key: key.clone(), nonce, forget });
        let held = |effect: &Effect| matches!(effect, Effect::Unlocked { was: Ended::Held, .. });
        self.effects.iter().any(held)
    }

    /// Notes that a caller knows this nonce, which now holds or waits.
    pub(super) fn note_given(&mut self, nonce: Nonce) {
        self.given.insert(nonce);
    }

    /// Joins the calls that wait for the acquisition of this nonce, to look at `looks_at` at the
    /// latest.
    pub(super) fn join(&mut self, nonce: Nonce, looks_at: Instant) -> Arc<Signal> {
        if self.calls.is_empty() {
            self.last_look = Instant::default();
        }
        let calls = self.calls.entry(nonce).or_insert_with(|| Calls {
            count: 0,
            taken: false,
            looks_at,
            signal: self.spare.take().unwrap_or_default(),
        });
        calls.count += 1;
        calls.looks_at = calls.looks_at.max(looks_at);
        self.last_look = self.last_look.max(looks_at);
        calls.signal.clone()
    }

    /// One of them has looked, and looks again at `looks_at` at the latest.
    pub(super) fn looks_again(&mut self, nonce: Nonce, looks_at: Instant) {
        if let Some(calls) = self.calls.get_mut(&nonce) {
            let alone = calls.count == 1;
            calls.looks_at = if alone { looks_at } else { calls.looks_at.max(looks_at) };
            self.last_look = self.last_look.max(looks_at);
        }
    }

    /// Leaves them. Returns whether the acquisition lives and is nobody's now.
    pub(super) fn leave(&mut self, nonce: Nonce, signal: &Signal) -> bool {
        if signal.ended().is_some() {
            return false;
        }
        let calls = self.calls.get_mut(&nonce).expect("who waits for it is counted");
        calls.count -= 1;
        let orphaned = calls.count == 0 && !calls.taken;
        if calls.count == 0 {
            self.calls.remove(&nonce);
        }
        orphaned
    }

    /// Ends everything: every call that waits is woken, and the table's memory is given back.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for calls in mem::take(&mut self.calls).into_values() {
            // What was granted and is not taken yet is nobody's any more; who waits asks, and is told.
            calls.signal.end(Ended::Unlocked);
            self.news.stir(calls.signal);
        }
        self.given.clear();
        self.effects = Vec::new();
        self.table = LockTable::new(TableConfig::default());
    }

    pub(super) fn take_news(&mut self) -> News {
        mem::take(&mut self.news)
    }
}

impl News {
    fn grant(&mut self, calls: &BTreeMap<Nonce, Calls>, grant: &Grant) {
        let Some(calls) = calls.get(&grant.nonce) else { return };
        // A LOCK that repeats the nonce of a holder is answered by its grant once more, which is no news.
        if calls.signal.granted.set(grant.clone()).is_ok() {
            self.stir(calls.signal.clone());
        }
    }

    fn stir(&mut self, signal: Arc<Signal>) {
        signal.stirred.store(true, Ordering::SeqCst);
        self.woken.push(signal);
    }

    fn end(
        &mut self,
        calls: &mut BTreeMap<Nonce, Calls>,
        spare: &mut Option<Arc<Signal>>,
        nonce: Nonce,
        how: Ended,
    ) {
        if let Some(mut calls) = calls.remove(&nonce) {
            calls.signal.end(how);
            // Who was granted it was told then, and may have taken it long ago.
            if calls.signal.granted.get().is_none() {
                self.stir(calls.signal);
            } else if let Some(signal) = Arc::get_mut(&mut calls.signal) {
                *signal = Signal::default();
                *spare = Some(calls.signal);
            }
        }
    }

    /// The head of a queue watches the end of the lease before it, so it is told when that comes
    /// earlier than it would look. Mostly it does not: each hand-over would wake two.
    fn wake_head(&mut self, table: &LockTable, calls: &BTreeMap<Nonce, Calls>, key: &str) {
        if calls.is_empty() {
            return;
        }
        let Some((head, lease_end)) = table.next_grant(key) else { return };
        if let Some(calls) = calls.get(&head)
            && calls.looks_at > instant(lease_end)
        {
            self.stir(calls.signal.clone());
        }
    }

    pub(super) fn tell(self, holds: &Holds) {
        for (key, nonce, token) in self.lost {
            holds.lose(&key, nonce, token);
        }
        for signal in self.woken {
            signal.news.notify_waiters();
        }
    }
}

/// The table's time: the clock's whole milliseconds, so that a lease ends when the clock has
/// reached its end, never before.
pub(super) fn stamp(now: Instant) -> ClusterTime {
    ClusterTime(now.whole_ms())
}

/// When the clock shows a time of the table.
pub(super) fn instant(at: ClusterTime) -> Instant {
    Instant::from_origin(Duration::from_millis(at.0))
}
