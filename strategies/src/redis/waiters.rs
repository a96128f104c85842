//! The waiters of this process: the key of each, their checks, and their signs of life.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use super::{
    options::check_every,
    protocol::{Grant, WaiterState},
    request::{Check, Poll},
};
use crate::{
    client::{commands::Event, earlier},
    clock::Instant,
    lock::Nonce,
};

const KEY: &str = "the key of a waiter is in `by_key`";

/// How many nonces one POLL has at most: with 16 POLLs in a list it bounds for how long a script
/// blocks the server.
const NONCES_PER_POLL: usize = 32;

/// A process aims at 1,333 checked keys a second; each takes 13 µs of the server.
const TIME_PER_CHECK: Duration = Duration::from_micros(750);

/// The waiters of one handle. An entry leaves with its grant, its end or its UNLOCK.
#[derive(Debug)]
pub(super) struct Waiters {
    by_nonce: BTreeMap<Nonce, Waiter>,
    by_key: BTreeMap<Arc<str>, KeyWaiters>,
    /// Checks of each key that were submitted and not sent yet.
    checks: BTreeMap<Arc<str>, Vec<Check>>,
    /// Waiters that Redis had no longer, and that are not logged yet.
    forgotten: u32,
    /// The longest time between two requests that are signs of life for a key.
    sign_max: Duration,
    /// The range of the shortest time between two checks of a waiter, and what the core has for it:
    /// zero with few keys.
    intervals: (Duration, Duration),
    min_interval: Duration,
    /// When a key may need a sign of life; `None` without waiters.
    next_sign: Option<Instant>,
}

#[derive(Debug)]
struct Waiter {
    key: Arc<str>,
    /// When its wait is over; `None` for a wait without an end.
    until: Option<Instant>,
    /// Whether Redis has queued it: its LOCK has a reply.
    is_queued: bool,
}

/// The waiters of a key.
#[derive(Debug)]
struct KeyWaiters {
    /// When the latest request that is a sign of life was sent.
    sent_at: Instant,
    /// How many wait, and those that Redis has queued, which are checked together.
    count: usize,
    queued: BTreeSet<Nonce>,
}

impl Waiters {
    pub(super) fn new(waiter_ttl: Duration) -> Self {
        Self {
            by_nonce: BTreeMap::new(),
            by_key: BTreeMap::new(),
            checks: BTreeMap::new(),
            forgotten: 0,
            sign_max: waiter_ttl * 3 / 8,
            intervals: (check_every(waiter_ttl), waiter_ttl / 3),
            min_interval: Duration::ZERO,
            next_sign: None,
        }
    }

    /// The LOCK of a waiter is sent.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        nonce: Nonce,
        key: Arc<str>,
        until: Option<Instant>,
    ) {
        let none = || KeyWaiters { sent_at: now, count: 0, queued: BTreeSet::new() };
        let of_key = self.by_key.entry(key.clone()).or_insert_with(none);
        of_key.sent_at = now;
        of_key.queued.remove(&nonce);
        if self.by_nonce.insert(nonce, Waiter { key, until, is_queued: false }).is_none() {
            of_key.count += 1;
        }
        self.next_sign.get_or_insert_with(|| now.after(self.sign_max));
    }

    /// Redis has queued a waiter.
    pub(super) fn queued(&mut self, nonce: Nonce) {
        let Some(waiter) = self.by_nonce.get_mut(&nonce) else { return };
        waiter.is_queued = true;
        // Another process may take over a given nonce, and its grant.
        if !nonce.is_given() {
            self.by_key.get_mut(&waiter.key).expect(KEY).queued.insert(nonce);
        }
    }

    pub(super) fn remove(&mut self, nonce: Nonce) {
        self.take(nonce);
    }

    fn take(&mut self, nonce: Nonce) -> Option<Waiter> {
        let waiter = self.by_nonce.remove(&nonce)?;
        let of_key = self.by_key.get_mut(&waiter.key).expect(KEY);
        of_key.queued.remove(&nonce);
        of_key.count -= 1;
        if of_key.count == 0 {
            self.by_key.remove(&waiter.key);
        }
        Some(waiter)
    }

    /// A waiter was granted its key. An unknown waiter was withdrawn, by an UNLOCK.
    pub(super) fn granted(&mut self, grant: Grant) -> Option<Event> {
        let Waiter { key, .. } = self.take(grant.nonce)?;
        let Grant { nonce, token, waited, lease } = grant;
        Some(Event::Granted { nonce, key, token, waited, lease })
    }

    /// Checks a waiter, or a held lock with this token, with the next polls.
    pub(super) fn check(&mut self, key: Arc<str>, nonce: Nonce, token: Option<u64>) {
        self.checks.entry(key).or_default().push(Check { nonce, token });
    }

    /// All checks that were submitted. They keep their order, in which waiters that Redis has lost
    /// queue again. Other waiters for the key fill its poll: their next checks then fall together.
    pub(super) fn polls(&mut self, now: Instant) -> Vec<Poll> {
        let mut polls = Vec::new();
        for (key, mut checks) in mem::take(&mut self.checks) {
            if let Some(of_key) = self.by_key.get_mut(&key) {
                of_key.sent_at = now;
                let submitted: BTreeSet<_> = checks.iter().map(|check| check.nonce).collect();
                let others = of_key.queued.difference(&submitted);
                let others = others.take(NONCES_PER_POLL.saturating_sub(checks.len()));
                checks.extend(others.map(|&nonce| Check { nonce, token: None }));
            }
            let parts = checks.chunks(NONCES_PER_POLL);
            polls.extend(parts.map(|part| Poll { key: key.clone(), checks: part.to_vec() }));
        }
        polls
    }

    /// Signs of life, as polls without a check, for keys whose last request has no reply yet. A
    /// distant server then counts this process's waiters as alive.
    pub(super) fn signs(&mut self, now: Instant) -> Vec<Poll> {
        if self.next_sign.is_none_or(|at| at > now) {
            return Vec::new();
        }
        // No UNLOCK ends the wait of a given nonce.
        let is_over = |nonce: &Nonce, waiter: &Waiter| {
            nonce.is_given() && waiter.until.is_some_and(|until| until <= now)
        };
        let over = self.by_nonce.iter().filter(|(nonce, waiter)| is_over(nonce, waiter));
        let over: Vec<Nonce> = over.map(|(nonce, _)| *nonce).collect();
        over.into_iter().for_each(|nonce| self.remove(nonce));
        self.next_sign = None;
        let mut polls = Vec::new();
        for (key, of_key) in &mut self.by_key {
            if of_key.sent_at.after(self.sign_max) <= now {
                of_key.sent_at = now;
                polls.push(Poll { key: key.clone(), checks: Vec::new() });
            }
            let next = of_key.sent_at.after(self.sign_max);
            self.next_sign = earlier(self.next_sign, Some(next));
        }
        polls
    }

    /// The shortest time between two checks of a waiter, if it has changed since the last call: as
    /// long as the checks of all keys take or up to a quarter more, and a third of `waiter_ttl` at
    /// most, because checks are signs of life.
    pub(super) fn changed_min_interval(&mut self) -> Option<Duration> {
        let keys = u32::try_from(self.by_key.len()).unwrap_or(u32::MAX);
        let (checks, (least, most)) = (TIME_PER_CHECK.saturating_mul(keys), self.intervals);
        let mut interval = if checks <= least { Duration::ZERO } else { least };
        while !interval.is_zero() && interval < checks.min(most) {
            interval = (interval * 5 / 4).min(most);
        }
        (mem::replace(&mut self.min_interval, interval) != interval).then_some(interval)
    }

    pub(super) fn next_sign(&self) -> Option<Instant> {
        self.next_sign
    }

    /// Takes the findings of a poll.
    pub(super) fn polled(&mut self, poll: &Poll, found: &[WaiterState], events: &mut Vec<Event>) {
        for (&Check { nonce, token }, found) in poll.checks.iter().zip(found) {
            let event = match (token, *found) {
                (Some(token), WaiterState::Holds(grant)) if grant.token == token => None,
                (Some(token), _) => {
                    Some(Event::Lost { nonce, key: poll.key.clone(), token, forced: None })
                }
                (None, WaiterState::Holds(grant)) => self.granted(grant),
                (None, WaiterState::Waiting { remaining }) => {
                    Some(Event::Queued { nonce, holder_lease: Some(remaining) })
                }
                (None, WaiterState::Ended) => {
                    self.remove(nonce);
                    Some(Event::Ended { nonce })
                }
                // Its LOCK was sent behind this check.
                (None, WaiterState::Unknown)
                    if self.by_nonce.get(&nonce).is_some_and(|waiter| !waiter.is_queued) =>
                {
                    None
                }
                (None, WaiterState::Unknown) => {
                    self.forgotten += u32::from(self.take(nonce).is_some());
                    Some(Event::Forgotten { nonce })
                }
            };
            events.extend(event);
        }
    }

    /// Logs the waiters that polls have found without their queue entry since the last call.
    pub(super) fn log_forgotten(&mut self) {
        let waiters = mem::take(&mut self.forgotten);
        if waiters > 0 {
            tracing::info!(waiters, "redis lost our queue entries; re-enqueueing them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waiters {
        pub(in crate::redis) fn is_empty(&self) -> bool {
            self.by_nonce.is_empty()
        }
    }

    fn waiters() -> Waiters {
        Waiters::new(Duration::from_secs(3))
    }

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn nonce(number: usize) -> Nonce {
        Nonce::from_u128(number as u128)
    }

    #[test]
    fn all_checks_leave_at_once_in_few_scripts() {
        let mut waiters = waiters();
        for number in 0..2_000 {
            let key = format!("k{}", number % 3);
            waiters.check(key.as_str().into(), nonce(number), (number == 5).then_some(9));
        }
        let mut seen = BTreeMap::<Arc<str>, Vec<Nonce>>::new();
        let polls = waiters.polls(at(0));
        for poll in &polls {
            assert!(poll.checks.len() <= NONCES_PER_POLL);
            for check in &poll.checks {
                assert_eq!(check.token, (check.nonce.as_u128() == 5).then_some(9));
                seen.entry(poll.key.clone()).or_default().push(check.nonce);
            }
        }
        assert_eq!(polls.len(), 63, "21 for each key");
        for (key, nonces) in seen {
            let first: usize = key[1..].parse().unwrap();
            let all: Vec<_> = (first..2_000).step_by(3).map(nonce).collect();
            assert_eq!(nonces, all, "{key}");
        }
        assert!(waiters.polls(at(0)).is_empty());
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn held_lock_without_its_token_is_lost() {
        let mut waiters = waiters();
        let key: Arc<str> = "k".into();
        let checks = [1, 2].map(|number| Check { nonce: nonce(number), token: Some(9) });
        let poll = Poll { key, checks: checks.to_vec() };
        let held = WaiterState::Holds(Grant::example(nonce(1), 9));
        let other = WaiterState::Holds(Grant::example(nonce(2), 10));
        for lost in [
            WaiterState::Ended,
            WaiterState::Unknown,
            WaiterState::Waiting { remaining: secs(1) },
            other,
        ] {
            let mut events = Vec::new();
            waiters.polled(&poll, &[held, lost], &mut events);
            let [Event::Lost { nonce: of, token: 9, .. }] = events[..] else {
                panic!("{events:?}")
            };
            assert_eq!(of, nonce(2));
        }
    }

    /// Two checks were in flight when Redis lost the queue.
    #[test]
    fn unknown_waiter_is_forgotten_once() {
        let mut waiters = waiters();
        let key: Arc<str> = "k".into();
        let poll = Poll { key: key.clone(), checks: vec![Check { nonce: nonce(1), token: None }] };
        waiters.insert(at(0), nonce(1), key.clone(), None);
        waiters.queued(nonce(1));
        let mut events = Vec::new();
        waiters.polled(&poll, &[WaiterState::Unknown], &mut events);
        assert!(matches!(events[..], [Event::Forgotten { .. }]) && waiters.is_empty());
        events.clear();
        // The LOCK that queues it again is sent before the reply to the second check.
        waiters.insert(at(0), nonce(1), key, None);
        waiters.polled(&poll, &[WaiterState::Unknown], &mut events);
        assert!(events.is_empty() && !waiters.is_empty(), "{events:?}");
    }

    #[test]
    fn given_nonce_waits_until_its_end() {
        let mut waiters = waiters();
        let given = Nonce::given(1);
        waiters.insert(at(0), given, "k".into(), Some(at(2_000)));
        waiters.insert(at(0), nonce(1), "k".into(), Some(at(2_000)));
        assert_eq!(waiters.signs(at(1_900)).len(), 1);
        assert!(waiters.by_nonce.contains_key(&given));
        waiters.signs(at(3_800));
        assert_eq!(waiters.by_nonce.keys().copied().collect::<Vec<_>>(), [nonce(1)]);
    }

    /// 1,333 checks a second, where signs of life may be as rare.
    #[test]
    fn many_keys_are_checked_less_often() {
        for (ttl, keys, expected) in [
            (60, 1_333, 0..=0),
            (60, 1_334, 1_001..=1_250),
            (60, 25_000, 18_750..=20_000),
            (60, 40_000, 20_000..=20_000),
            (6, 25_000, 2_000..=2_000),
            (3, 25_000, 1_000..=1_000),
        ] {
            let mut waiters = Waiters::new(secs(ttl));
            for number in 0..keys {
                waiters.insert(at(0), nonce(number), format!("k{number}").as_str().into(), None);
            }
            let interval = waiters.changed_min_interval().unwrap_or_default();
            assert!(expected.contains(&interval.as_millis()), "{ttl} {keys} {interval:?}");
            assert_eq!(waiters.changed_min_interval(), None);
            (0..keys).for_each(|number| waiters.remove(nonce(number)));
            let zero = (!interval.is_zero()).then_some(Duration::ZERO);
            assert_eq!(waiters.changed_min_interval(), zero);
        }
    }

    #[test]
    fn grant_of_a_withdrawn_waiter_is_dropped() {
        let mut waiters = waiters();
        waiters.insert(at(0), nonce(1), "k".into(), None);
        let grant = Grant::example(nonce(1), 9);
        assert!(matches!(waiters.granted(grant), Some(Event::Granted { token: 9, .. })));
        assert!(waiters.granted(grant).is_none());
        waiters.insert(at(0), nonce(1), "k".into(), None);
        waiters.remove(nonce(1));
        assert!(waiters.granted(grant).is_none());
    }
}
