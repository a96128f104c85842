//! What the log answers to another process, or tells of what nobody here holds, settles nothing
//! here; what is held here and ends elsewhere is told as lost. Each grant has one taker.

use super::*;

const OTHER: ProcessId = ProcessId(2);

fn nonce() -> Nonce {
    Nonce::from_u128(1)
}

/// A LOCK that was sent and is due again after 100 ms, under the request 1.
fn asking(until: Until) -> Pair {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, until));
    assert_eq!(pair.take_due(0).len(), 1);
    pair
}

/// Holds `k` with the nonce 1; the caller 1 was answered.
fn holding() -> Pair {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    assert!(matches!(pair.answers()[..], [(1, Answer::Granted { .. })]));
    pair
}

fn queued(process: ProcessId) -> Effect {
    Effect::Queued { key: "k".into(), nonce: nonce(), process, request: 1 }
}

fn refused(process: ProcessId) -> Effect {
    Effect::Refused { nonce: nonce(), process, request: 1, reason: Refusal::Held }
}

fn dropped(process: ProcessId) -> Effect {
    Effect::Dropped { key: "k".into(), nonce: nonce(), process, request: 1 }
}

fn extended(process: ProcessId) -> Effect {
    let held = Some((1, ClusterTime(9)));
    Effect::Extended { nonce: nonce(), process, request: 1, held }
}

fn expired(nonce: Nonce) -> Effect {
    Effect::Expired { key: "k".into(), nonce, process: ME, request: 1, token: 1 }
}

#[test]
fn who_queues_asks_no_more_until_it_is_dropped() {
    let mut pair = asking(Until::Never);
    pair.requests.observe(at(50), &queued(ME));
    assert!(
        (100..5000).step_by(100).all(|ms| pair.take_due(ms).is_empty()),
        "it waits in the table"
    );
    pair.requests.observe(at(5001), &dropped(ME));
    assert_eq!(pair.take_due(5001).len(), 1, "it queues again");
}

#[test]
fn a_waiter_dropped_when_its_wait_is_over_does_not_queue_again() {
    let mut pair = asking(Until::At(at(60)));
    pair.requests.observe(at(50), &queued(ME));
    pair.requests.observe(at(60), &dropped(ME));
    assert!(pair.take_due(60).is_empty());
}

#[test]
fn that_another_process_queues_does_not_stop_this_one_from_asking() {
    let mut pair = asking(Until::Never);
    pair.requests.observe(at(50), &queued(OTHER));
    assert_eq!(pair.take_due(100).len(), 1);
}

#[test]
fn that_another_process_is_refused_refuses_nobody_here() {
    let mut pair = asking(Until::Now);
    pair.requests.observe(at(50), &refused(OTHER));
    assert!(pair.answers().is_empty());
    pair.requests.observe(at(51), &refused(ME));
    assert!(matches!(pair.answers()[..], [(1, Answer::Held)]));
}

#[test]
fn that_another_process_has_extended_answers_nobody_here() {
    let mut pair = Pair::new();
    let (key, nonce) = ("k".into(), nonce());
    pair.requests.call(at(0), Call::Extend { caller: 1, key, nonce, duration_ms: 5000 });
    let _ = pair.take_due(0);
    pair.requests.observe(at(50), &extended(OTHER));
    assert!(pair.answers().is_empty());
    pair.requests.observe(at(51), &extended(ME));
    assert!(matches!(pair.answers()[..], [(1, Answer::Extended { token: Some(1), .. })]));
}

#[test]
fn what_ends_elsewhere_is_lost_once_and_only_where_it_was_held() {
    let mut pair = holding();
    pair.requests.observe(at(50), &expired(Nonce::from_u128(2)));
    assert!(pair.requests.lost_locks().is_empty(), "nobody here held it");
    pair.requests.observe(at(51), &expired(nonce()));
    pair.requests.observe(at(52), &expired(nonce()));
    assert_eq!(pair.lost(), [(nonce(), 1)]);

    let mut pair = holding();
    let unlocked =
        Effect::Unlocked { key: "k".into(), nonce: nonce(), request: 1, was: Ended::Held };
    pair.requests.observe(at(50), &unlocked);
    pair.requests.observe(at(51), &unlocked);
    assert_eq!(pair.lost(), [(nonce(), 1)], "who had it handed has unlocked it");
}

#[test]
fn every_request_under_way_counts() {
    let mut pair = holding();
    assert_eq!(pair.requests.len(), 0);
    pair.requests.call(at(1), lock(2, "other", 2, Until::Never));
    pair.requests.call(at(1), lock(3, "other", 3, Until::Never));
    let (key, nonce) = ("k".into(), nonce());
    pair.requests.call(at(1), Call::Extend { caller: 4, key, nonce, duration_ms: 5000 });
    let until = at(60_000);
    for (caller, name) in [(5, 4), (6, 5), (7, 6), (8, 7)] {
        let (key, nonce) = ("k".into(), Nonce::from_u128(name));
        pair.requests.call(at(1), Call::Unlock { caller: Some(caller), key, nonce, until });
    }
    assert_eq!(pair.requests.len(), 2 + 1 + 4);
}

#[test]
fn a_grant_is_taken_or_revoked_and_never_both() {
    let (taken, revoked) = (Claim::default(), Claim::default());
    assert!(taken.take() && !taken.revoke());
    assert!(revoked.revoke() && !revoked.take());
    assert!(taken.take() && revoked.revoke(), "asked again, it stays what it was");
}

#[test]
fn a_closing_process_passes_on_what_nobody_took_and_leaves_what_was_found() {
    // Answered, and not taken.
    let mut pair = holding();
    pair.requests.withdraw_all(at(10));
    assert!(matches!(pair.take_due(10)[..], [Command::Unlock { .. }]));
    // Taken.
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let answers = pair.answers();
    let [(1, Answer::Granted { claim, .. })] = &answers[..] else { panic!("{answers:?}") };
    assert!(claim.take());
    pair.requests.withdraw_all(at(10));
    assert!(pair.take_due(10).is_empty(), "its holder unlocks it");
    // Found: granted to an earlier call of the nonce, perhaps of another process.
    let mut pair = holding();
    pair.requests = Requests::new(ME);
    let Call::Lock { lock: call, .. } = lock(1, "k", 1, Until::Never) else { unreachable!() };
    let call = LockCall { drawn: false, unused: false, ..call };
    pair.requests.call(at(20), Call::Lock { caller: 1, lock: call });
    pair.turn(20);
    assert!(matches!(pair.answers()[..], [(1, Answer::Granted { .. })]));
    pair.requests.withdraw_all(at(30));
    assert!(pair.take_due(30).is_empty(), "it may be in other hands");
}

#[test]
fn a_drawn_nonce_is_passed_on_at_close_however_late_it_was_granted() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    // Its LOCK is repeated, and the second answer says when it was asked again.
    let first = pair.take_due(0);
    let again = pair.take_due(150);
    let mut effects = Vec::new();
    first.iter().for_each(|command| pair.table.apply(ClusterTime(1), command, &mut effects));
    effects.clear();
    again.iter().for_each(|command| pair.table.apply(ClusterTime(151), command, &mut effects));
    effects.iter().for_each(|effect| pair.requests.observe(at(160), effect));
    assert!(matches!(pair.answers()[..], [(1, Answer::Granted { .. })]));
    pair.requests.withdraw_all(at(170));
    assert!(matches!(pair.take_due(170)[..], [Command::Unlock { .. }]));
}

#[test]
fn an_unlock_is_repeated_to_the_end_of_its_lease_and_sent_once_however_late() {
    let unlock = || {
        let mut pair = Pair::new();
        let (key, nonce) = ("k".into(), nonce());
        pair.requests.call(at(0), Call::Unlock { caller: None, key, nonce, until: at(100) });
        pair
    };
    let mut late = unlock();
    assert_eq!(late.take_due(500).len(), 1);
    assert!(late.take_due(5000).is_empty());
    assert_eq!(late.requests.len(), 0);
    let mut repeated = unlock();
    assert_eq!((repeated.take_due(0).len(), repeated.take_due(100).len()), (1, 1));
}

/// A caller whose own time is over is kept for its answer: nothing may stay of one that has none.
#[test]
fn an_unlock_that_nobody_answers_ends_for_its_callers_too() {
    let mut pair = Pair::new();
    for caller in [7, 8] {
        let (caller, key, nonce, until) = (Some(caller), "k".into(), nonce(), at(100));
        pair.requests.call(at(0), Call::Unlock { caller, key, nonce, until });
    }
    assert_eq!(pair.take_due(0).len(), 1);
    assert_eq!((pair.take_due(100).len(), pair.answers().len()), (1, 0));
    assert!(pair.take_due(1000).is_empty());
    let answers = pair.answers();
    let unanswered = [(7, Answer::Unanswered), (8, Answer::Unanswered)];
    assert_eq!(format!("{answers:?}"), format!("{unanswered:?}"));
    assert_eq!((pair.requests.len(), pair.requests.next_due()), (0, None));
}

#[test]
fn who_gives_an_extend_up_gives_up_no_other() {
    let mut pair = Pair::new();
    for caller in [1, 2] {
        let (key, nonce) = ("k".into(), nonce());
        pair.requests.call(at(0), Call::Extend { caller, key, nonce, duration_ms: 5000 });
    }
    pair.requests.call(at(1), Call::GiveUp { caller: 1 });
    assert_eq!(pair.requests.len(), 1);
    pair.turn(1);
    assert!(matches!(pair.answers()[..], [(2, Answer::Extended { .. })]));
}

#[test]
fn a_try_with_a_nonce_that_waits_already_finds_the_key_held() {
    let mut pair = asking(Until::Never);
    pair.requests.observe(at(50), &queued(ME));
    pair.requests.call(at(60), lock(2, "k", 1, Until::At(at(9000))));
    assert!(pair.answers().is_empty(), "it waits as well");
    pair.requests.call(at(61), lock(3, "k", 1, Until::Now));
    assert!(matches!(pair.answers()[..], [(3, Answer::Held)]));
    pair.requests.call(at(62), lock(4, "other", 1, Until::Never));
    assert!(matches!(pair.answers()[..], [(4, Answer::Spent)]), "one nonce has one key");
}

/// Found by the fuzz target `consistency` (`GAGGLE_SEED=16282304088890415280`): the try was not
/// answered at all, and ended unknown after a second.
#[test]
fn a_try_beside_a_wait_of_the_same_nonce_finds_the_key_held() {
    for waits_first in [false, true] {
        let mut pair = Pair::new();
        let wait = lock(1, "k", 1, Until::At(at(9000)));
        let try_it = lock(2, "k", 1, Until::Now);
        let calls = if waits_first { [wait, try_it] } else { [try_it, wait] };
        calls.into_iter().for_each(|call| pair.requests.call(at(0), call));
        pair.requests.observe(at(50), &queued(ME));
        assert!(matches!(pair.answers()[..], [(2, Answer::Held)]), "{waits_first}");
        assert_eq!(pair.requests.len(), 1, "the other waits on");
    }
}

#[test]
fn an_extend_that_is_not_answered_is_repeated_with_growing_pauses() {
    let mut pair = Pair::new();
    let (key, nonce) = ("k".into(), nonce());
    pair.requests.call(at(0), Call::Extend { caller: 1, key, nonce, duration_ms: 5000 });
    let sent: Vec<u64> = (0..1600).filter(|ms| !pair.take_due(*ms).is_empty()).collect();
    assert_eq!(sent, [0, 100, 300, 700, 1500]);
}

/// Contract, rule 7: past it, the lease that the withdrawal would end is over.
#[test]
fn a_withdrawal_is_repeated_until_the_lease_that_it_may_end_is_over() {
    for (until, ends) in [
        (Until::At(at(500)), 500 + 1000),
        (Until::Now, 10 + 1000),
        (Until::Never, 10 + 3_600_000 + 1000),
    ] {
        let mut pair = asking(until);
        pair.requests.call(at(10), cancel(1, 1));
        let last = (10..=ends).step_by(10).filter(|ms| !pair.take_due(*ms).is_empty()).last();
        let before = last.is_some_and(|last| last + 1000 >= ends);
        assert!(before, "{until:?}: last at {last:?} of {ends}");
        assert!(pair.take_due(ends + 1001).is_empty());
        assert_eq!(pair.requests.len(), 0, "{until:?}");
    }
}

#[test]
fn an_unlock_that_was_sent_once_does_not_say_that_it_was_sent_before() {
    let mut pair = Pair::new();
    let (key, nonce) = ("k".into(), nonce());
    pair.requests.call(at(1), Call::Unlock { caller: Some(9), key, nonce, until: at(5000) });
    pair.turn(1);
    let answers = pair.answers();
    let unknown = Ended::Unknown;
    assert!(
        matches!(answers[..], [(9, Answer::Unlocked { was, asked_before: false })] if was == unknown),
        "{answers:?}"
    );
}

/// Contract, rule 7: a granted lock whose caller has gone is passed on, under whatever nonce.
#[test]
fn a_given_nonce_that_was_granted_at_once_is_passed_on_when_its_caller_goes() {
    let mut pair = Pair::new();
    let Call::Lock { lock: call, .. } = lock(1, "k", 1, Until::Never) else { unreachable!() };
    let given = LockCall { drawn: false, unused: false, ..call };
    pair.requests.call(at(0), Call::Lock { caller: 1, lock: given });
    pair.turn(0);
    assert!(matches!(pair.answers()[..], [(1, Answer::Granted { .. })]));
    pair.requests.call(at(1), cancel(1, 1));
    pair.turn(1);
    assert_eq!(pair.table.sizes().keys, 0);
}
