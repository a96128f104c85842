//! The waiter map by rule, and under random events against what a server would keep.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::redis::keys;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Instant {
    Instant::from_origin(ms(time))
}

fn request(nonce: u128, key: &str, given: bool) -> Arc<Request> {
    Arc::new(Request {
        key: key.into(),
        bucket: keys::bucket(key),
        nonce: Nonce::from_u128(nonce),
        given,
        duration: ms(3000),
        owner: "1 host -".into(),
    })
}

fn waiters() -> Waiters<&'static str> {
    Waiters::new(Drift::from_ppm(0).unwrap(), ms(3000))
}

fn published(request: &Request, enqueued: u64, granted: u64) -> Granted {
    let (enqueued, granted) = (enqueued * 1000, granted * 1000);
    Granted { nonce: request.nonce, token: 9, enqueued, granted }
}

#[test]
fn a_publication_before_the_answer_waits_for_it() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    waiters.asking(&request, id).unwrap();
    let told = waiters.granted(request.bucket, published(&request, 100, 300), at(250));
    assert_eq!(told, []);
    waiters.settled(&request);
    let (grant, poke) = waiters.park(&request, id, ms(10), at(260), 0.0);
    // Sent at 0 and queued for 200: 200 + 3000 - 1.
    assert_eq!(grant, Some(Grant { token: 9, deadline: at(3199) }));
    assert!(!poke);
    assert!(waiters.leave(&request, id, true).is_none());
    assert_eq!(waiters.len(), 0);
}

#[test]
fn a_place_noted_where_it_is_read_is_settled_and_its_caller_is_told_of_the_grant() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    let (copies, ask) = waiters.asking(&request, id).unwrap();
    assert!(!copies);
    assert_eq!(waiters.queued(&request, (id, ask), ms(10), at(1), 0.0), Some(true));
    assert_eq!(waiters.arm(), Some(at(12)), "and the poller asks after it");
    assert!(waiters.asked(&request, id));
    let told = waiters.granted(request.bucket, published(&request, 0, 1), at(2));
    assert_eq!(told.iter().map(|(caller, _)| *caller).collect::<Vec<_>>(), ["caller"]);
    assert!(!waiters.leave(&request, id, false).unwrap().copies, "sent once, and answered");
}

/// It would be told while it does something else than wait.
#[test]
fn an_answer_that_nobody_waits_for_is_not_noted() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    let (_, first) = waiters.asking(&request, id).unwrap();
    assert!(!waiters.asked(&request, id), "given up");
    assert_eq!(waiters.queued(&request, (id, first), ms(10), at(1), 0.0), None);
    let (copies, second) = waiters.asking(&request, id).unwrap();
    assert!(copies && first != second);
    assert_eq!(waiters.queued(&request, (id, first), ms(10), at(2), 0.0), None, "of the former");
    waiters.granted(request.bucket, published(&request, 0, 1), at(3));
    let overtaken = waiters.queued(&request, (id, second), ms(10), at(4), 0.0);
    assert_eq!(overtaken, None, "the caller finds the grant by itself");
    assert!(!waiters.asked(&request, id));
    waiters.leave(&request, id, false);
    assert_eq!(waiters.queued(&request, (id, second), ms(10), at(5), 0.0), None, "it has gone");
}

#[test]
fn a_grant_whose_caller_has_gone_is_withdrawn() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    waiters.asking(&request, id).unwrap();
    waiters.settled(&request);
    waiters.park(&request, id, ms(10), at(1), 0.0);
    let told = waiters.granted(request.bucket, published(&request, 0, 1), at(2));
    assert_eq!(told.len(), 1);
    let withdrawal = waiters.leave(&request, id, false).unwrap();
    assert!(!withdrawal.copies, "sent once, and answered");
}

/// Its caller has read the grant, and finds nothing to note it in.
#[test]
fn an_answer_that_is_not_noted_yet_is_withdrawn_by_a_closing() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    waiters.asking(&request, id).unwrap();
    waiters.settled(&request);
    let (_, withdrawals) = waiters.close();
    let [withdrawal] = &withdrawals[..] else { panic!("{withdrawals:?}") };
    assert!(!withdrawal.copies, "sent once, and answered");
    assert_eq!(waiters.granted_at_once(&request, 1, at(1)).0, None);
}

#[test]
fn a_lock_without_an_answer_leaves_copies_behind() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    assert!(!waiters.asking(&request, id).unwrap().0);
    assert!(waiters.asking(&request, id).unwrap().0, "the first one was not answered");
    waiters.settled(&request);
    assert!(waiters.leave(&request, id, false).unwrap().copies);
}

#[test]
fn a_lock_in_somebodys_hands_is_not_withdrawn_by_another() {
    let mut waiters = waiters();
    let request = request(1, "k", true);
    let one = waiters.join(&request, at(0), None, "one").unwrap();
    let other = waiters.join(&request, at(5), None, "other").unwrap();
    for id in [one, other] {
        waiters.asking(&request, id).unwrap();
        waiters.settled(&request);
        waiters.park(&request, id, ms(10), at(6), 0.0);
    }
    let told = waiters.granted(request.bucket, published(&request, 1, 7), at(7));
    assert_eq!(told.iter().map(|(caller, _)| *caller).collect::<Vec<_>>(), ["one", "other"]);
    assert!(waiters.leave(&request, one, true).is_none());
    assert!(waiters.leave(&request, other, false).is_none());
    assert_eq!(waiters.len(), 0);
}

/// Redis may keep the lease of either, and says of a grant only when it began.
#[test]
fn of_two_leases_asked_for_with_one_nonce_the_shorter_is_relied_on() {
    for durations in [[20_000, 1000], [1000, 20_000]] {
        let mut waiters = waiters();
        let [one, other] = durations.map(|duration| {
            let Request { bucket, nonce, .. } = *request(1, "k", true);
            let (key, owner) = ("k".into(), "1 host -".into());
            Arc::new(Request { key, bucket, nonce, given: true, duration: ms(duration), owner })
        });
        let first = waiters.join(&one, at(0), None, "one").unwrap();
        let second = waiters.join(&other, at(0), None, "other").unwrap();
        assert!(waiters.leave(&one, first, false).is_none(), "it did not wait");
        waiters.asking(&other, second).unwrap();
        waiters.settled(&other);
        waiters.park(&other, second, ms(10), at(1), 0.0);
        let told = waiters.granted(one.bucket, published(&one, 0, 500), at(500));
        let grant = Grant { token: 9, deadline: at(500 + 1000 - 1) };
        assert_eq!(told, [("other", Outcome::Granted(grant))]);
    }
}

/// What a poll finds unknown may have been granted, unlocked and given up since it was sent: queued
/// again, it would hold the key for a lease without anybody.
#[test]
fn what_nobody_waits_for_any_more_does_not_queue_again() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    waiters.asking(&request, id).unwrap();
    assert_eq!(waiters.queueing_again(&request), None, "its own caller asks");
    waiters.settled(&request);
    waiters.park(&request, id, ms(10), at(1), 0.0);
    assert_eq!(waiters.queueing_again(&request), Some(false));
    waiters.settled(&request);
    waiters.granted(request.bucket, published(&request, 0, 1), at(2));
    assert_eq!(waiters.queueing_again(&request), None, "granted");
    waiters.leave(&request, id, true);
    assert_eq!(waiters.queueing_again(&request), None, "gone");
}

#[test]
fn what_was_withdrawn_by_closing_is_not_asked_for_any_more() {
    let mut waiters = waiters();
    let request = request(1, "k", false);
    let id = waiters.join(&request, at(0), None, "caller").unwrap();
    let (told, withdrawals) = waiters.close();
    assert!(withdrawals.is_empty(), "nothing was sent");
    assert_eq!(told, [("caller", Outcome::Closed)]);
    assert!(waiters.asking(&request, id).is_none());
}

#[test]
fn one_nonce_is_not_used_for_two_keys() {
    let mut waiters = waiters();
    let mut keys = (0..).map(|n| n.to_string()).filter(|key| keys::bucket(key) == 3);
    let (one, other) = (keys.next().unwrap(), keys.next().unwrap());
    waiters.join(&request(1, &one, true), at(0), None, "one").unwrap();
    let refused = waiters.join(&request(1, &other, true), at(0), None, "other");
    assert_eq!(refused, Err(NotJoined::OtherKey));
}

#[test]
fn a_poll_comes_by_the_told_expiry_a_third_of_the_lease_and_a_second() {
    let waiters = waiters();
    for (remaining, duration, latest) in [
        (ms(40), ms(60_000), ms(42)),
        (ms(60_000), ms(600), ms(200)),
        (ms(60_000), ms(60_000), ms(1000)),
        (ms(0), ms(60_000), ms(2)),
        (ms(60_000), ms(3), ms(1)),
    ] {
        for jitter in [0.0, 0.5, 0.999] {
            let interval = waiters.interval(remaining, duration, jitter);
            assert!(interval <= latest, "{interval:?} for {remaining:?} and {duration:?}");
            assert!(interval >= ms(1));
        }
    }
    let hasty = Waiters::<()>::new(Drift::default(), ms(300));
    assert!(hasty.interval(ms(60_000), ms(60_000), 0.0) <= ms(100), "to count as alive");
}

#[test]
fn a_batch_keeps_the_order_in_which_nonces_came() {
    let mut waiters = waiters();
    let requests: Vec<_> = [5, 3, 9, 1].map(|nonce| request(nonce, "k", false)).into();
    for request in &requests {
        let id = waiters.join(request, at(0), None, "caller").unwrap();
        waiters.park(request, id, ms(10), at(0), 0.0);
    }
    let (_, batch) = waiters.due(at(5000)).unwrap();
    let order: Vec<_> = batch.iter().map(|waiting| waiting.request.nonce).collect();
    assert_eq!(order, requests.iter().map(|request| request.nonce).collect::<Vec<_>>());
    assert!(waiters.due(at(5000)).is_none(), "one batch at a time");
}

/// What happens to one of a few nonces.
#[derive(Clone, Debug)]
enum Event {
    Join(u8),
    /// The newest LOCK in flight is answered by a place, which may be noted where it is read, or lost.
    Queue(u8, bool),
    Lose(u8),
    Grant(u8),
    Spend(u8),
    Leave(u8, bool),
    Poll,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let nonce = 0..4_u8;
    let event = prop_oneof![
        3 => nonce.clone().prop_map(Event::Join),
        3 => (nonce.clone(), any::<bool>()).prop_map(|(nonce, noted)| Event::Queue(nonce, noted)),
        1 => nonce.clone().prop_map(Event::Lose),
        2 => nonce.clone().prop_map(Event::Grant),
        1 => nonce.clone().prop_map(Event::Spend),
        3 => (nonce, any::<bool>()).prop_map(|(nonce, taken)| Event::Leave(nonce, taken)),
        1 => Just(Event::Poll),
    ];
    proptest::collection::vec(event, 0..60)
}

/// What the server keeps of a nonce, as far as the process can know.
#[derive(Clone, Copy, Default, PartialEq)]
struct Kept {
    /// Queued or granted.
    there: bool,
    granted: bool,
    taken: bool,
    lost: u32,
}

proptest! {
    /// Every caller is told at most once; who wants nothing any more leaves nothing on the server
    /// and nothing here; every nonce that waits is polled within a second.
    #[test]
    fn nothing_is_forgotten_and_nobody_is_told_twice(events in events()) {
        let mut waiters: Waiters<u64> = Waiters::new(Drift::default(), ms(3000));
        let requests: Vec<_> = (0..4).map(|n| request(n, &format!("k{}", n % 2), false)).collect();
        let mut callers: BTreeMap<u8, Vec<(CallerId, u64)>> = BTreeMap::new();
        let (mut kept, mut told, mut names) = ([Kept::default(); 4], BTreeSet::new(), 0);
        let mut now = at(0);
        for event in events {
            now = now.after(ms(10));
            let mut effects = Vec::new();
            match event {
                Event::Join(n) => {
                    names += 1;
                    let request = &requests[usize::from(n)];
                    let id = waiters.join(request, now, None, names).unwrap();
                    callers.entry(n).or_default().push((id, names));
                }
                Event::Queue(n, noted) => {
                    let Some(&(id, _)) = callers.get(&n).and_then(|list| list.last()) else { continue };
                    let request = &requests[usize::from(n)];
                    let (_, ask) = waiters.asking(request, id).unwrap();
                    kept[usize::from(n)].there = true;
                    if noted && waiters.queued(request, (id, ask), ms(500), now, 0.5).is_some() {
                        prop_assert!(waiters.asked(request, id));
                    } else {
                        prop_assert!(!noted || kept[usize::from(n)].granted, "overtaken");
                        waiters.asked(request, id);
                        waiters.settled(request);
                        waiters.park(request, id, ms(500), now, 0.5);
                    }
                }
                Event::Lose(n) => {
                    let Some(&(id, _)) = callers.get(&n).and_then(|list| list.last()) else { continue };
                    let request = &requests[usize::from(n)];
                    let (_, ask) = waiters.asking(request, id).unwrap();
                    waiters.asked(request, id);
                    kept[usize::from(n)].lost += 1;
                    let late = waiters.queued(request, (id, ask), ms(500), now, 0.5);
                    prop_assert_eq!(late, None, "nobody waits for that answer any more");
                }
                Event::Grant(n) => {
                    let request = &requests[usize::from(n)];
                    if kept[usize::from(n)].there {
                        kept[usize::from(n)].granted = true;
                        effects = waiters.granted(request.bucket, published(request, 0, 1), now);
                    }
                }
                Event::Spend(n) => {
                    let request = &requests[usize::from(n)];
                    if !kept[usize::from(n)].taken {
                        effects = waiters.end(request.bucket, request.nonce, Outcome::Spent);
                        kept[usize::from(n)].there = false;
                        kept[usize::from(n)].granted = false;
                    }
                }
                Event::Leave(n, taken) => {
                    let Some((id, _)) = callers.get_mut(&n).and_then(Vec::pop) else { continue };
                    let (request, kept) = (&requests[usize::from(n)], &mut kept[usize::from(n)]);
                    let taken = taken && kept.granted;
                    kept.taken |= taken;
                    let withdrawal = waiters.leave(request, id, taken);
                    if callers[&n].is_empty() {
                        let wanted = (kept.there || kept.lost > 0) && !kept.taken;
                        prop_assert_eq!(withdrawal.is_some(), wanted);
                        if let Some(withdrawal) = withdrawal {
                            prop_assert_eq!(withdrawal.copies, kept.lost > 0);
                        }
                        *kept = Kept::default();
                    } else {
                        prop_assert!(withdrawal.is_none());
                    }
                }
                Event::Poll => {
                    now = now.after(ms(1000));
                    let mut polled = BTreeSet::new();
                    while let Some((bucket, batch)) = waiters.due(now) {
                        for waiting in batch {
                            let nonce = waiting.request.nonce;
                            polled.insert(nonce);
                            let found = Found::Waiting { remaining: ms(500) };
                            effects.extend(waiters.found(bucket, nonce, found, now, 0.5));
                        }
                    }
                    for bucket in &waiters.buckets {
                        for (nonce, entry) in &bucket.entries {
                            prop_assert!(entry.state != State::Queued || polled.contains(nonce));
                        }
                    }
                }
            }
            for (name, _) in effects {
                prop_assert!(told.insert(name), "caller {name} was told twice");
            }
        }
        let here: BTreeSet<u64> = callers.values().flatten().map(|(_, name)| *name).collect();
        let (effects, _) = waiters.close();
        let closed: BTreeSet<u64> = effects.iter().map(|(name, _)| *name).collect();
        prop_assert_eq!(closed, here.difference(&told).copied().collect());
        prop_assert_eq!(waiters.len(), 0);
        let late = waiters.join(&requests[0], now, None, 0);
        prop_assert_eq!(late, Err(NotJoined::Closed));
    }
}
