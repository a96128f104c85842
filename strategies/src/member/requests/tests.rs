//! The waiter map's rules, one by one: events and time in, commands and answers out.

mod others;
mod random;
mod refused;
mod shared;

use std::sync::Arc;

use super::*;
use crate::{
    Owner,
    lock_table::{ClusterTime, Command, Effect, LockTable, Refusal, Seen, TableConfig},
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
        unused: true,
        duration_ms: 1000,
        until,
        retries: false,
        owner: Arc::new(Owner::default()),
    };
    Call::Lock { caller, lock }
}

/// As plain compare-and-set asks: at once, and again when it is refused.
fn retried(caller: CallerId, nonce: u128) -> Call {
    let Call::Lock { lock, .. } = lock(caller, "k", nonce, Until::Now) else { unreachable!() };
    Call::Lock { caller, lock: LockCall { drawn: false, retries: true, ..lock } }
}

fn cancel(caller: CallerId, nonce: u128) -> Call {
    Call::Cancel { caller, key: "k".into(), nonce: Nonce::from_u128(nonce) }
}

/// A waiter map, and the table to which what it sends is applied at once.
struct Pair {
    requests: Requests,
    table: LockTable,
}

impl Requests {
    fn take_due(&mut self, now: Instant, sending: Sending) -> Vec<Command> {
        let mut commands = Vec::new();
        self.send_due(now, sending, |command| commands.push(command));
        commands
    }

    fn lost_locks(&mut self) -> Vec<Lock> {
        let mut lost = Vec::new();
        self.take_lost(|lock| lost.push(lock));
        lost
    }

    fn ended_locks(&mut self) -> Vec<Lock> {
        let mut ended = Vec::new();
        self.take_ended(|lock| ended.push(lock));
        ended
    }
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
        self.requests.take_answers().collect()
    }

    fn lost(&mut self) -> Vec<(Nonce, u64)> {
        let lost = self.requests.lost_locks().into_iter();
        lost.map(|lock| (lock.nonce(), lock.fencing_token())).collect()
    }
}

fn granted(answers: &[(CallerId, Answer)], to: CallerId) -> bool {
    let granted = |answer: &Answer| matches!(answer, Answer::Granted { .. });
    answers.iter().any(|(caller, answer)| *caller == to && granted(answer))
}

fn free(nonce: u128) -> Command {
    Command::Unlock { key: "k".into(), nonce: Nonce::from_u128(nonce), forget: false }
}

/// Nonce 1 holds the key; nonce 2 was refused, and its callers rest before they ask again. The LOCK
/// that was refused may come once more.
fn resting(callers: &[CallerId]) -> (Pair, Vec<Command>) {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Now));
    pair.turn(0);
    pair.answers();
    for caller in callers {
        pair.requests.call(at(1), retried(*caller, 2));
    }
    let sent = pair.take_due(1);
    pair.apply(1, &sent);
    let answers = pair.answers();
    assert!(answers.iter().all(|(_, answer)| matches!(answer, Answer::Held)), "{answers:?}");
    assert_eq!(answers.len(), callers.len());
    (pair, sent)
}

#[test]
fn an_unanswered_request_is_repeated_with_growing_pauses() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    let sent: Vec<u64> = (0..3000).filter(|ms| !pair.take_due(*ms).is_empty()).collect();
    assert_eq!(sent, [0, 100, 300, 700, 1500, 2500]);
}

/// Contract, rules 2 and 4: whichever send it was that the log answered.
#[test]
fn what_was_sent_twice_counts_from_before_the_first_send() {
    let mut pair = Pair::new();
    pair.requests.call(at(5), lock(1, "k", 1, Until::Never));
    let _ = pair.take_due(7);
    let again = pair.take_due(150);
    pair.apply(300, &again);
    let answers = pair.answers();
    let [(1, Answer::Granted { sent, received, .. })] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((*sent, *received), (at(7), at(300)));
    let (key, nonce) = ("k".into(), Nonce::from_u128(1));
    pair.requests.call(at(310), Call::Extend { caller: 2, key, nonce, duration_ms: 5000 });
    let _ = pair.take_due(311);
    let again = pair.take_due(450);
    pair.apply(600, &again);
    let answers = pair.answers();
    let [(2, Answer::Extended { token: Some(1), sent, .. })] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(*sent, at(311));
}

/// Contract, rule 6, last sentence: only where no copy of its LOCK and none of itself can be under
/// way does an unlock ask the table to remember nothing.
#[test]
fn an_unlock_says_forget_only_where_no_copy_can_be_under_way() {
    let says = |(lock_over, lock_sends), (over_channel, sends)| {
        let mut pair = Pair::new();
        let seen = Seen::Now;
        pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
        let mut sent = Vec::new();
        for n in 0..lock_sends {
            sent = pair.requests.take_due(at(n * 1000), Sending { seen, over_channel: lock_over });
        }
        pair.apply(9000, &sent);
        let (key, nonce) = ("k".into(), Nonce::from_u128(1));
        let until = at(60_000);
        pair.requests.call(at(9001), Call::Unlock { caller: None, key, nonce, until });
        for n in 0..sends {
            sent = pair.requests.take_due(at(9001 + n * 1000), Sending { seen, over_channel });
        }
        let [Command::Unlock { forget, .. }] = sent[..] else { panic!("{sent:?}") };
        forget
    };
    assert!(says((false, 1), (false, 1)), "all went straight into the log, once");
    assert!(!says((true, 1), (false, 1)), "the channel may repeat the LOCK");
    assert!(!says((false, 2), (false, 1)), "the first LOCK may be in the log still");
    assert!(!says((false, 1), (true, 1)), "the channel may repeat the unlock");
    assert!(!says((false, 1), (false, 2)), "the first unlock may be in the log still");
}

/// A given nonce may have been sent by an earlier call, and the withdrawal of what was never
/// granted races with its LOCK.
#[test]
fn a_withdrawal_and_an_unlock_of_a_used_nonce_leave_their_memory() {
    let mut pair = Pair::new();
    let sending = Sending { seen: Seen::Now, over_channel: false };
    let Call::Lock { lock: call, .. } = lock(1, "k", 1, Until::Never) else { unreachable!() };
    let used = LockCall { unused: false, ..call };
    pair.requests.call(at(0), Call::Lock { caller: 1, lock: used });
    let sent = pair.requests.take_due(at(0), sending);
    pair.apply(0, &sent);
    pair.requests.call(at(1), cancel(1, 1));
    let unlocked = pair.requests.take_due(at(1), sending);
    assert!(matches!(unlocked[..], [Command::Unlock { forget: false, .. }]), "{unlocked:?}");
    pair.requests.call(at(2), lock(2, "k", 2, Until::Never));
    let _ = pair.requests.take_due(at(2), sending);
    pair.requests.call(at(3), cancel(2, 2));
    let withdrawn = pair.requests.take_due(at(3), sending);
    assert!(matches!(withdrawn[..], [Command::Unlock { forget: false, .. }]), "{withdrawn:?}");
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
fn a_new_leader_is_not_asked_for_what_is_known_to_wait() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.requests.call(at(0), lock(2, "k", 2, Until::Never));
    pair.turn(0);
    pair.requests.call(at(1), lock(3, "k", 3, Until::Never));
    assert_eq!(pair.take_due(1).len(), 1);
    let asked = |pair: &mut Pair, queued| {
        pair.requests.ask_again(at(2), queued);
        let nonces = pair.take_due(2).into_iter().map(|command| match command {
            Command::Lock(lock) => lock.nonce.as_u128(),
            other => panic!("{other:?}"),
        });
        nonces.collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut pair, false), [3], "the second stands in the log's queue");
    assert_eq!(asked(&mut pair, true), [2, 3], "a snapshot may have swallowed its answer");
}

#[test]
fn what_is_answered_or_known_to_wait_is_unanswered_no_more() {
    let mut pair = Pair::new();
    for caller in 1..=2 {
        pair.requests.call(at(0), lock(caller, "k", caller.into(), Until::Never));
    }
    assert_eq!(pair.requests.unanswered(), 2);
    let due = pair.take_due(0);
    assert_eq!(pair.requests.unanswered(), 2, "sent, and to be sent again");
    pair.apply(0, &due);
    assert_eq!(
        (pair.requests.unanswered(), pair.requests.len()),
        (0, 1),
        "one is granted, one waits"
    );
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
    assert_eq!(pair.lost(), [(Nonce::from_u128(1), 1)]);
    let asked = pair.take_due(10);
    assert!(matches!(&asked[..], [Command::Lock(lock)] if lock.process == ProcessId(2)));
}

/// With a memory that is full, a withdrawal raises the table's floor to the present time, and a
/// LOCK that has seen no later time is refused as stale however often it is repeated. A leader that
/// alone commits would never have come to the end of its turn.
#[test]
fn a_lock_refused_as_stale_twice_waits_for_time_to_pass() {
    let mut pair = Pair::new();
    let config = TableConfig { nonces_max: 1, ..TableConfig::default() };
    pair.table = LockTable::new(config);
    pair.requests.call(at(5), lock(1, "k", 1, Until::At(at(500))));
    pair.turn(5);
    let other = Command::Unlock { key: "k".into(), nonce: Nonce::from_u128(9), forget: false };
    pair.apply(5, &[other]);
    pair.requests.call(at(5), lock(2, "other", 2, Until::At(at(500))));
    let turns = (0..10).take_while(|_| {
        let due = pair.take_due(5);
        pair.apply(5, &due);
        !due.is_empty()
    });
    assert_eq!(turns.count(), 2, "once, and once more with the time it was told");
    pair.turn(15);
    pair.apply(16, &[Command::Noop]);
    pair.turn(25);
    let limited = |(caller, answer): (CallerId, Answer)| {
        caller == 2 && matches!(answer, Answer::Limit { .. })
    };
    assert!(pair.requests.take_answers().any(limited), "the memory is full");
}

#[test]
fn a_second_copy_of_a_lock_that_is_held_leaves_it_held() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    let sent = pair.take_due(0);
    pair.apply(1, &sent);
    assert!(granted(&pair.answers(), 1));
    pair.apply(2, &sent);
    assert!(pair.take_due(3).is_empty(), "it is not passed on");
}
