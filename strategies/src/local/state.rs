use std::{collections::BTreeSet, mem, sync::Arc, task::Waker, time::Duration};

use super::{
    calls::{Calls, Waiting},
    signal::{Signal, Woken},
};
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
    pub(super) calls: Waiting,
    /// One that nobody has any more, for the next acquisition.
    spare: Option<Arc<Signal>>,
    /// None of those that wait looks later than this.
    last_look: Instant,
    /// The nonces given by callers that hold or wait: these may be repeated after their end, so
    /// the table must remember them. No copy of a LOCK with one drawn here can be under way, and whoever saw
    /// it may give it from then on.
    given: BTreeSet<Nonce>,
    pub(super) closed: bool,
    /// What the last step did.
    pub(super) effects: Vec<Effect>,
    news: News,
    /// What is watched is told of its end.
    holds: Holds,
}

/// Who must be told, once no mutex is held: wakers run foreign code.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct News {
    woken: Woken,
    /// Mostly nobody watches, and nothing is noted.
    lost: Vec<(Arc<str>, Nonce, u64)>,
}

impl State {
    pub(super) fn new(config: TableConfig, owner: Owner, holds: Holds) -> Self {
        Self {
            table: LockTable::new(config),
            owner: Arc::new(owner),
            calls: Waiting::default(),
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
                Effect::Expired { key, nonce, request, token, .. } => {
                    tracing::info!(%nonce, token, "a lease ran out");
                    self.given.remove(nonce);
                    let one = (*request, *nonce);
                    self.news.end(&mut self.calls, &mut self.spare, one, Ended::Expired);
                    if self.holds.are_watched() {
                        self.news.lost.push((key.clone(), *nonce, *token));
                    }
                }
                Effect::Unlocked { key, nonce, request, was: Ended::Held } => {
                    self.given.remove(nonce);
                    let one = (*request, *nonce);
                    self.news.end(&mut self.calls, &mut self.spare, one, Ended::Unlocked);
                    if self.holds.are_watched() {
                        // A later acquisition of the nonce has a greater one.
                        self.news.lost.push((key.clone(), *nonce, self.table.last_token()));
                    }
                }
                Effect::Unlocked { key, nonce, request, was: Ended::Waited }
                | Effect::Dropped { key, nonce, request, .. } => {
                    self.given.remove(nonce);
                    let one = (*request, *nonce);
                    self.news.end(&mut self.calls, &mut self.spare, one, Ended::Waited);
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

    /// A number for the LOCK of another, to be joined or given back.
    pub(super) fn reserve(&mut self) -> u64 {
        if self.calls.is_empty() {
            self.last_look = Instant::default();
        }
        self.calls.reserve()
    }

    /// Notes that a caller knows this nonce, which now holds or waits.
    pub(super) fn note_given(&mut self, nonce: Nonce) {
        self.given.insert(nonce);
    }

    /// Joins the calls that wait for the acquisition of this nonce, to look at `looks_at` at the
    /// latest. The number is theirs already, or was reserved.
    pub(super) fn join(&mut self, number: u64, nonce: Nonce, looks_at: Instant) -> Arc<Signal> {
        self.last_look = self.last_look.max(looks_at);
        if let Some(calls) = self.calls.get_mut(number, nonce) {
            calls.count += 1;
            calls.looks_at = calls.looks_at.max(looks_at);
            return calls.signal.clone();
        }
        let signal = self.spare.take().unwrap_or_default();
        let calls = Calls { nonce, count: 1, taken: false, looks_at, signal: signal.clone() };
        self.calls.insert(number, calls);
        signal
    }

    /// One of them has looked, and looks again at `looks_at` at the latest.
    pub(super) fn looks_again(&mut self, number: u64, nonce: Nonce, looks_at: Instant) {
        if let Some(calls) = self.calls.get_mut(number, nonce) {
            let alone = calls.count == 1;
            calls.looks_at = if alone { looks_at } else { calls.looks_at.max(looks_at) };
            self.last_look = self.last_look.max(looks_at);
        }
    }

    /// Leaves them. Returns whether the acquisition lives and is nobody's now.
    pub(super) fn leave(&mut self, number: u64, nonce: Nonce, signal: &Signal) -> bool {
        if signal.ended().is_some() {
            return false;
        }
        let calls = self.calls.get_mut(number, nonce);
        let calls = calls.expect("who waits for it is counted");
        calls.count -= 1;
        let orphaned = calls.count == 0 && !calls.taken;
        if calls.count == 0 {
            self.calls.remove(number, nonce);
        }
        orphaned
    }

    /// Ends everything: every call that waits is woken, and the table's memory is given back.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for calls in mem::take(&mut self.calls).all() {
            // What was granted and is not taken yet is nobody's any more; who waits asks, and is told.
            calls.signal.end(Ended::Unlocked, &mut self.news.woken);
        }
        self.given.clear();
        self.effects = Vec::new();
        self.table = LockTable::new(TableConfig::default());
    }

    /// Moves what has been noted behind what `news` has.
    pub(super) fn move_news(&mut self, news: &mut News) {
        if news.is_empty() {
            mem::swap(news, &mut self.news);
        } else {
            let more = mem::take(&mut self.news);
            news.woken.extend(more.woken);
            news.lost.extend(more.lost);
        }
    }
}

impl News {
    fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.lost.is_empty()
    }

    fn grant(&mut self, calls: &Waiting, grant: &Grant) {
        if let Some(calls) = calls.get(grant.request, grant.nonce) {
            calls.signal.grant(grant, &mut self.woken);
        }
    }

    /// `one` is the acquisition: its number and nonce.
    fn end(
        &mut self,
        calls: &mut Waiting,
        spare: &mut Option<Arc<Signal>>,
        one: (u64, Nonce),
        how: Ended,
    ) {
        if let Some(mut calls) = calls.remove(one.0, one.1) {
            calls.signal.end(how, &mut self.woken);
            if let Some(signal) = Arc::get_mut(&mut calls.signal) {
                *signal = Signal::default();
                *spare = Some(calls.signal);
            }
        }
    }

    /// The head of a queue watches the end of the lease before it, so it is told when that comes
    /// earlier than it would look. Mostly it does not: each hand-over would wake two.
    fn wake_head(&mut self, table: &LockTable, calls: &Waiting, key: &str) {
        if calls.is_empty() {
            return;
        }
        let Some((head, number, lease_end)) = table.next_grant(key) else { return };
        if let Some(calls) = calls.get(number, head)
            && calls.looks_at > instant(lease_end)
        {
            calls.signal.stir(&mut self.woken);
        }
    }
}

/// Tells when it is dropped.
pub(super) struct Telling<'a> {
    pub(super) news: News,
    holds: &'a Holds,
}

impl<'a> Telling<'a> {
    pub(super) fn new(holds: &'a Holds) -> Self {
        Self { news: News::default(), holds }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let News { woken, lost } = mem::take(&mut self.news);
        for (key, nonce, token) in lost {
            self.holds.lose(&key, nonce, token);
        }
        woken.into_iter().for_each(Waker::wake);
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
