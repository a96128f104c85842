//! Who waits in this process: nonce -> callers. Pure: events and local time in, effects out. No
//! clock, randomness or I/O; the same code runs in production and under a model.

mod entry;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub(super) use self::entry::{
    AskId, CallerId, Effects, Grant, Outcome, Request, Waiting, Withdrawal,
};
use self::entry::{Caller, Entry, State};
use super::{
    keys::BUCKETS,
    reply::{Found, Granted},
};
use crate::{Drift, Instant, Nonce, found_deadline, granted_deadline};

/// The longest time between two polls of a waiter.
const POLL_MAX: Duration = Duration::from_secs(1);
/// How long after the end it was told a holder's lease is looked at again.
const POLL_AFTER: Duration = Duration::from_millis(1);

/// Why a caller cannot wait here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotJoined {
    Closed,
    /// The nonce is in use for another key.
    OtherKey,
}

/// The waiters of one process. `C` reaches a caller: a channel in production, a name in tests.
#[derive(Debug)]
pub(super) struct Waiters<C> {
    buckets: Vec<Bucket<C>>,
    drift: Drift,
    /// The longest time between two polls.
    poll_max: Duration,
    /// What the poller sleeps until.
    armed: Option<Instant>,
    last_caller: u64,
    last_ask: u64,
    last_place: u64,
    closed: bool,
}

#[derive(Debug)]
struct Bucket<C> {
    entries: BTreeMap<Nonce, Entry<C>>,
    poll_at: Option<Instant>,
}

impl<C> Waiters<C> {
    pub(super) fn new(drift: Drift, waiter_ttl: Duration) -> Self {
        let bucket = || Bucket { entries: BTreeMap::new(), poll_at: None };
        Self {
            buckets: (0..BUCKETS).map(|_| bucket()).collect(),
            drift,
            poll_max: POLL_MAX.min(waiter_ttl / 3),
            armed: None,
            last_caller: 0,
            last_ask: 0,
            last_place: 0,
            closed: false,
        }
    }

    /// A caller comes, before the first send.
    pub(super) fn join(
        &mut self,
        request: &Arc<Request>,
        sent: Instant,
        until: Option<Instant>,
        tell: C,
    ) -> Result<CallerId, NotJoined> {
        if self.closed {
            return Err(NotJoined::Closed);
        }
        let known = self.entry(request.bucket, request.nonce);
        if known.is_some_and(|entry| entry.request.key != request.key) {
            return Err(NotJoined::OtherKey);
        }
        self.last_caller += 1;
        let id = CallerId(self.last_caller);
        let place = self.last_place + 1;
        let entry =
            self.buckets[request.bucket].entries.entry(request.nonce).or_insert_with(|| {
                self.last_place = place;
                Entry {
                    request: request.clone(),
                    place,
                    sent,
                    duration: request.duration,
                    until,
                    state: State::Asking,
                    taken: false,
                    unanswered: 0,
                    was_sent: false,
                    callers: Vec::with_capacity(1),
                }
            });
        entry.duration = entry.duration.min(request.duration);
        entry.until = later(entry.until, until);
        entry.callers.push(Caller { id, tell: Some(tell), parked: false, asks: None });
        Ok(id)
    }

    /// A LOCK is about to be sent again, for a nonce that waited. Returns whether copies of it may be
    /// under way; `None` if nobody waits for it any more: what ended must not queue again.
    pub(super) fn queueing_again(&mut self, request: &Request) -> Option<bool> {
        let entry = self.entry(request.bucket, request.nonce)?;
        (entry.state == State::Queued).then(|| entry.sending())
    }

    /// A LOCK is about to be sent by a caller that waits for the answer. Returns whether copies of it
    /// may be under way, and the number by which [`queued`](Self::queued) knows it; `None` if the
    /// handle was closed: what was withdrawn with it is not asked for any more.
    pub(super) fn asking(&mut self, request: &Request, id: CallerId) -> Option<(bool, AskId)> {
        let ask = AskId(self.last_ask + 1);
        let entry = self.entry(request.bucket, request.nonce)?;
        entry.callers.iter_mut().find(|caller| caller.id == id)?.asks = Some(ask);
        let copies = entry.sending();
        self.last_ask = ask.0;
        Some((copies, ask))
    }

    /// The caller does not wait for the answer any more. Returns whether it was one of a place in the
    /// queue, and noted by [`queued`](Self::queued).
    pub(super) fn asked(&mut self, request: &Request, id: CallerId) -> bool {
        self.caller(request, id).is_some_and(|caller| {
            caller.asks = None;
            caller.parked
        })
    }

    /// As [`park`](Self::park) and [`settled`](Self::settled), where the answer to this LOCK is read
    /// rather than by the caller itself. `None` if that does not wait for it any more, or the grant has
    /// overtaken the answer; else whether the poller must be woken.
    pub(super) fn queued(
        &mut self,
        request: &Request,
        (id, ask): (CallerId, AskId),
        remaining: Duration,
        now: Instant,
        jitter: f64,
    ) -> Option<bool> {
        self.caller(request, id).filter(|caller| caller.asks == Some(ask))?;
        let (overtaken, poke) = self.park(request, id, remaining, now, jitter);
        if overtaken.is_some() {
            return None;
        }
        self.settled(request);
        Some(poke)
    }

    /// The LOCK was answered, or never sent.
    pub(super) fn settled(&mut self, request: &Request) {
        if let Some(entry) = self.entry(request.bucket, request.nonce) {
            entry.unanswered = entry.unanswered.saturating_sub(1);
        }
    }

    /// A LOCK was answered by a fresh grant, received at `now`.
    pub(super) fn granted_at_once(
        &mut self,
        request: &Request,
        token: u64,
        now: Instant,
    ) -> (Option<Grant>, Effects<C>) {
        let drift = self.drift;
        self.grant(request.bucket, request.nonce, |entry| Grant {
            token,
            deadline: granted_deadline(entry.sent, now, Duration::ZERO, request.duration, drift),
        })
    }

    /// A LOCK sent at `asked` was answered by a grant that was there already.
    pub(super) fn granted_again(
        &mut self,
        request: &Request,
        token: u64,
        asked: Instant,
        remaining: Duration,
    ) -> (Option<Grant>, Effects<C>) {
        let deadline = found_deadline(asked, remaining, self.drift);
        self.grant(request.bucket, request.nonce, |_| Grant { token, deadline })
    }

    /// A grant to a waiter became known at `now`: published, polled, or on the way of another
    /// script.
    pub(super) fn granted(&mut self, bucket: usize, grant: Granted, now: Instant) -> Effects<C> {
        let drift = self.drift;
        let waited = Duration::from_micros(grant.granted.saturating_sub(grant.enqueued));
        self.grant(bucket, grant.nonce, |entry| {
            let deadline = granted_deadline(entry.sent, now, waited, entry.duration, drift);
            Grant { token: grant.token, deadline }
        })
        .1
    }

    /// The nonce holds. Of several news of one grant the first counts.
    fn grant(
        &mut self,
        bucket: usize,
        nonce: Nonce,
        grant: impl FnOnce(&Entry<C>) -> Grant,
    ) -> (Option<Grant>, Effects<C>) {
        let Some(entry) = self.entry(bucket, nonce) else { return (None, Vec::new()) };
        let grant = match entry.state {
            State::Granted(grant) => grant,
            _ => grant(entry),
        };
        entry.state = State::Granted(grant);
        (Some(grant), entry.tell_parked(Outcome::Granted(grant)))
    }

    /// A LOCK was answered by a place in the queue; the caller waits from now on, unless the grant
    /// has overtaken that answer. `jitter` is from 0 to 1. The second value says that the poller
    /// must be woken.
    pub(super) fn park(
        &mut self,
        request: &Request,
        id: CallerId,
        remaining: Duration,
        now: Instant,
        jitter: f64,
    ) -> (Option<Grant>, bool) {
        let due = now.after(self.interval(remaining, request.duration, jitter));
        let armed = self.armed;
        let bucket = &mut self.buckets[request.bucket];
        let Some(entry) = bucket.entries.get_mut(&request.nonce) else { return (None, false) };
        if let State::Granted(grant) = entry.state {
            return (Some(grant), false);
        }
        entry.state = State::Queued;
        if let Some(caller) = entry.callers.iter_mut().find(|caller| caller.id == id) {
            caller.parked = true;
        }
        bucket.poll_at = sooner(bucket.poll_at, due);
        (None, armed.is_none_or(|armed| due < armed))
    }

    /// The nonce has ended on the server: nothing is left to withdraw.
    pub(super) fn end(&mut self, bucket: usize, nonce: Nonce, outcome: Outcome) -> Effects<C> {
        let Some(entry) = self.entry(bucket, nonce) else { return Vec::new() };
        entry.state = State::Ended;
        entry.tell_parked(outcome)
    }

    /// A caller goes: with the lock (`taken`), or without. What nobody wants any more is
    /// withdrawn.
    pub(super) fn leave(
        &mut self,
        request: &Request,
        id: CallerId,
        taken: bool,
    ) -> Option<Withdrawal> {
        let entries = &mut self.buckets[request.bucket].entries;
        let entry = entries.get_mut(&request.nonce)?;
        entry.callers.retain(|caller| caller.id != id);
        entry.taken |= taken;
        if !entry.callers.is_empty() {
            return None;
        }
        let entry = entries.remove(&request.nonce)?;
        entry.withdrawal()
    }

    /// When the poller must wake next; `None` while nobody waits.
    pub(super) fn arm(&mut self) -> Option<Instant> {
        self.armed = self.buckets.iter().filter_map(|bucket| bucket.poll_at).min();
        self.armed
    }

    /// The waiters of a bucket that is due: all of them, in the order of their keys and places.
    pub(super) fn due(&mut self, now: Instant) -> Option<(usize, Vec<Waiting>)> {
        loop {
            let due = |bucket: &Bucket<C>| bucket.poll_at.is_some_and(|at| at <= now);
            let number = self.buckets.iter().position(due)?;
            let bucket = &mut self.buckets[number];
            bucket.poll_at = None;
            let queued = bucket.entries.values().filter(|entry| entry.state == State::Queued);
            let mut queued: Vec<_> = queued.collect();
            queued.sort_by(|a, b| (&a.request.key, a.place).cmp(&(&b.request.key, b.place)));
            if !queued.is_empty() {
                return Some((number, queued.into_iter().map(Entry::waiting).collect()));
            }
        }
    }

    /// A poll or a repeated LOCK found something. Returns whom to tell; a nonce that is unknown is
    /// for the poller to queue again.
    pub(super) fn found(
        &mut self,
        bucket: usize,
        nonce: Nonce,
        found: Found,
        now: Instant,
        jitter: f64,
    ) -> Effects<C> {
        match found {
            Found::Granted(granted) => self.granted(bucket, granted, now),
            Found::Spent => self.end(bucket, nonce, Outcome::Spent),
            Found::Unknown => Vec::new(),
            Found::Waiting { remaining } => {
                if let Some(entry) = self.entry(bucket, nonce) {
                    let duration = entry.request.duration;
                    let due = now.after(self.interval(remaining, duration, jitter));
                    self.poll_at(bucket, due);
                }
                Vec::new()
            }
        }
    }

    /// A bucket is to be polled at `at` at the latest.
    pub(super) fn poll_at(&mut self, bucket: usize, at: Instant) {
        let bucket = &mut self.buckets[bucket];
        bucket.poll_at = sooner(bucket.poll_at, at);
    }

    /// Everybody who waits is to be asked after now: publications may have been lost.
    pub(super) fn poll_all(&mut self, now: Instant) {
        for bucket in &mut self.buckets {
            if bucket.entries.values().any(|entry| entry.state == State::Queued) {
                bucket.poll_at = Some(now);
            }
        }
    }

    /// Whether the handle was closed: nothing waits here any more.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Ends all waits, and refuses new ones.
    pub(super) fn close(&mut self) -> (Effects<C>, Vec<Withdrawal>) {
        self.closed = true;
        let (mut effects, mut withdrawals) = (Vec::new(), Vec::new());
        for bucket in &mut self.buckets {
            bucket.poll_at = None;
            for (_, mut entry) in std::mem::take(&mut bucket.entries) {
                withdrawals.extend(entry.withdrawal_of_closing());
                let callers = entry.callers.iter_mut();
                let tell = callers.filter_map(|caller| caller.tell.take());
                effects.extend(tell.map(|tell| (tell, Outcome::Closed)));
            }
        }
        (effects, withdrawals)
    }

    /// How many nonces are wanted here.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.entries.len()).sum()
    }

    /// How long until a waiter is polled: soon after the holder's lease ends as it was told; before
    /// much of a lease granted to itself has gone unnoticed; and often enough to count as alive.
    fn interval(&self, remaining: Duration, duration: Duration, jitter: f64) -> Duration {
        let latest = (duration / 3).min(self.poll_max);
        let after = remaining.saturating_add(POLL_AFTER).saturating_add(POLL_AFTER.mul_f64(jitter));
        after.min(latest.mul_f64(1.0 - jitter / 5.0)).max(POLL_AFTER)
    }

    fn caller(&mut self, request: &Request, id: CallerId) -> Option<&mut Caller<C>> {
        let entry = self.entry(request.bucket, request.nonce)?;
        entry.callers.iter_mut().find(|caller| caller.id == id)
    }

    fn entry(&mut self, bucket: usize, nonce: Nonce) -> Option<&mut Entry<C>> {
        self.buckets[bucket].entries.get_mut(&nonce)
    }
}

fn sooner(present: Option<Instant>, at: Instant) -> Option<Instant> {
    Some(present.map_or(at, |present| present.min(at)))
}

/// The later of two ends, of which `None` never comes.
fn later(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    Some(one?.max(other?))
}
