//! The waiter map's rules, one by one: events and time in, commands and answers out.

use std::sync::Arc;

use super::*;
use crate::{
    Owner,
    lock_table::{ClusterTime, LockTable, TableConfig},
};

const ME: ProcessId = ProcessId(1);

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

fn lock(caller: CallerId, key: &str, nonce: u128, until: Until) -> Call {
    let lock = LockCall {
        key: key.into(),
        nonce: Nonce::from_u128(nonce),
        drawn: true,
        duration_ms: 1000,
        until,
        since: None,
        owner: Arc::new(Owner::default()),
    };
    Call::Lock { caller, lock }
}

fn cancel(caller: CallerId, nonce: u128) -> Call {
    Call::Cancel { caller, key: "k".into(), nonce: Nonce::from_u128(nonce) }
}

/// A waiter map, and the table to which what it sends is applied at once.
struct Pair {
    requests: Requests,
    table: LockTable,
}

impl Pair {
    fn new() -> Self {
        let requests = Requests::new(ME);
        Self { requests, table: LockTable::new(TableConfig::default()) }
    }

    fn take_due(&mut self, ms: u64) -> Vec<Command> {
        let seen = Seen::At { group: 0, time: self.table.now() };
        self.requests.take_due(at(ms), Sending { seen, over_channel: true })
    }

    fn apply(&mut self, ms: u64, commands: &[Command]) {
        for command in commands {
            let mut effects = Vec::new();
            self.table.apply(ClusterTime(ms), command, &mut effects);
            effects.iter().for_each(|effect| self.requests.observe(at(ms), effect));
        }
    }

    fn turn(&mut self, ms: u64) {
        let due = self.take_due(ms);
        self.apply(ms, &due);
    }

    fn answers(&mut self) -> Vec<(CallerId, Answer)> {
        self.requests.take_answers()
    }
}

#[test]
fn a_late_copy_of_a_refused_lock_counts_from_its_own_send() {
    // contract rule 2
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Now));
    let copy = pair.take_due(0);
    let mut holder = copy.clone();
    if let Command::Lock(request) = &mut holder[0] {
        (request.nonce, request.process) = (Nonce::from_u128(9), ProcessId(2));
    }
    pair.apply(0, &holder);
    pair.apply(5, &copy);
    assert!(matches!(pair.answers()[..], [(1, Answer::Held)]));
    // Asked again at 900, when the copy has been granted already and is not yet seen here.
    let Call::Lock { caller, lock } = lock(2, "k", 1, Until::Now) else { unreachable!() };
    pair.requests
        .call(at(900), Call::Lock { caller, lock: LockCall { since: Some(at(0)), ..lock } });
    pair.take_due(900);
    let freed = Command::Unlock { key: "k".into(), nonce: Nonce::from_u128(9), forget: true };
    pair.apply(100, &[freed]);
    pair.apply(100, &copy);
    let answers = pair.answers();
    let [(2, Answer::Granted { grant, sent, .. })] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((grant.granted_at, *sent), (ClusterTime(100), at(0)), "not at 900");
}

#[test]
fn an_unanswered_request_is_repeated_with_growing_pauses() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    let sent: Vec<u64> = (0..3000).filter(|ms| !pair.take_due(*ms).is_empty()).collect();
    assert_eq!(sent, [0, 100, 300, 700, 1500, 2500]);
}

#[test]
fn one_nonce_cannot_wait_for_two_keys() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.requests.call(at(0), lock(2, "other", 1, Until::Never));
    assert!(matches!(pair.answers()[..], [(2, Answer::Spent)]));
}

#[test]
fn two_callers_of_one_nonce_get_one_grant_and_the_last_to_go_passes_it_on() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.requests.call(at(0), lock(2, "k", 1, Until::Never));
    pair.turn(0);
    assert!(matches!(
        pair.answers()[..],
        [(1, Answer::Granted { .. }), (2, Answer::Granted { .. })]
    ));
    pair.requests.call(at(1), cancel(1, 1));
    pair.turn(1);
    assert_eq!(pair.table.sizes().keys, 1, "the other caller holds it");
    pair.requests.call(at(2), cancel(2, 1));
    pair.turn(2);
    assert_eq!(pair.table.sizes().keys, 0);
}

#[test]
fn a_request_that_was_never_sent_needs_no_withdrawal() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.requests.call(at(0), cancel(1, 1));
    assert!(pair.take_due(0).is_empty());
    assert_eq!(pair.requests.len(), 0);
}

#[test]
fn a_lock_that_arrives_after_its_withdrawal_grants_nothing() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    let late = pair.take_due(0);
    pair.requests.call(at(1), cancel(1, 1));
    pair.turn(1);
    pair.apply(2, &late);
    assert_eq!((pair.table.sizes().keys, pair.requests.len()), (0, 0));
}

#[test]
fn a_ghost_of_a_refused_try_is_passed_on() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Now));
    pair.turn(0);
    pair.requests.call(at(1), lock(2, "k", 2, Until::Now));
    let sent = pair.take_due(1);
    pair.apply(1, &sent);
    assert!(matches!(pair.answers()[1], (2, Answer::Held)));
    pair.requests.call(at(2), cancel(1, 1));
    pair.turn(2);
    // The channel repeats the try, which now finds the key free.
    pair.apply(3, &sent);
    assert_eq!(pair.table.sizes().keys, 1);
    pair.turn(3);
    assert_eq!(pair.table.sizes().keys, 0);
}

#[test]
fn a_waiter_that_was_dropped_although_it_lives_queues_again() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.requests.call(at(0), lock(2, "k", 2, Until::Never));
    pair.turn(0);
    pair.apply(5, &[Command::Gone { process: ME }]);
    assert_eq!(pair.table.sizes().waiters, 0);
    pair.turn(5);
    assert_eq!(pair.table.sizes().waiters, 1);
}

#[test]
fn a_stale_lock_is_repeated_at_once_with_the_present_time() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    let old = pair.take_due(0);
    pair.apply(60_000, &[Command::Noop]);
    pair.apply(60_000, &old);
    assert!(pair.answers().is_empty());
    pair.turn(60_000);
    assert!(matches!(pair.answers()[..], [(1, Answer::Granted { .. })]));
}

#[test]
fn an_unlock_that_had_to_be_repeated_says_so() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    pair.answers();
    let (key, nonce) = ("k".into(), Nonce::from_u128(1));
    pair.requests.call(at(1), Call::Unlock { caller: Some(9), key, nonce, until: at(5000) });
    let first = pair.take_due(1);
    let again = pair.take_due(200);
    pair.apply(200, &first);
    assert!(matches!(
        pair.answers()[..],
        [(9, Answer::Unlocked { was: Ended::Held, asked_before: true })]
    ));
    pair.apply(201, &again);
    assert!(pair.answers().is_empty());
}

#[test]
fn leaving_the_group_loses_what_is_held_and_asks_the_next_for_what_is_pending() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.requests.call(at(0), lock(2, "k", 2, Until::Never));
    pair.turn(0);
    pair.requests.left_group(at(10), ProcessId(2));
    assert_eq!(pair.requests.take_lost(), [Nonce::from_u128(1)]);
    let asked = pair.take_due(10);
    assert!(matches!(&asked[..], [Command::Lock(lock)] if lock.process == ProcessId(2)));
}
