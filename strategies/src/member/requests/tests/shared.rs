//! One nonce in several hands: calls of one process that differ in what they wait for, and locks
//! that another process was granted. Nobody loses what he counts on unheard, and nobody keeps a key
//! that he does not know of.

use super::*;

const OTHER: ProcessId = ProcessId(2);

/// As a caller asks who gives his nonce.
fn given(caller: CallerId, nonce: u128, until: Until) -> Call {
    let Call::Lock { lock, .. } = lock(caller, "k", nonce, until) else { unreachable!() };
    Call::Lock { caller, lock: LockCall { drawn: false, ..lock } }
}

fn held_by_other(pair: &mut Pair, nonce: u128) {
    let mut other = Requests::new(OTHER);
    other.call(at(0), lock(1, "k", nonce, Until::Never));
    let sent = other.take_due(at(0), Sending { seen: Seen::Now, over_channel: true });
    pair.apply(0, &sent);
}

/// The keys that the table holds once what is due has been applied.
fn keys_held(pair: &mut Pair, ms: u64) -> u64 {
    pair.turn(ms);
    pair.table.sizes().keys
}

#[test]
fn who_extends_what_another_was_granted_is_told_when_it_is_lost() {
    let extending = || {
        let mut pair = Pair::new();
        held_by_other(&mut pair, 1);
        let (key, nonce) = ("k".into(), Nonce::from_u128(1));
        pair.requests.call(at(1), Call::Extend { caller: 2, key, nonce, duration_ms: 5000 });
        pair.turn(1);
        assert!(matches!(pair.answers()[..], [(2, Answer::Extended { token: Some(1), .. })]));
        pair
    };
    let mut pair = extending();
    pair.requests.left_group(at(2), ProcessId(3));
    assert_eq!(pair.lost(), [(Nonce::from_u128(1), 1)]);
    let mut pair = extending();
    pair.apply(2, &[free(1)]);
    assert_eq!(pair.lost(), [(Nonce::from_u128(1), 1)], "unlocked by another");
    // And others hear of it when this process unlocks what they were granted.
    let mut pair = extending();
    let (key, nonce) = ("k".into(), Nonce::from_u128(1));
    pair.requests.call(at(2), Call::Unlock { caller: None, key, nonce, until: at(5000) });
    assert!(pair.requests.unlocks_for_another(nonce));
}

#[test]
fn what_was_granted_and_not_taken_goes_with_the_group() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let answers = pair.answers();
    let [(1, Answer::Granted { claim, .. })] = &answers[..] else { panic!("{answers:?}") };
    pair.requests.left_group(at(1), ProcessId(3));
    assert!(!claim.take());
}

#[test]
fn an_unlock_that_was_sent_to_a_group_that_was_left_may_have_been_done() {
    for sent in [false, true] {
        let mut pair = Pair::new();
        let (key, nonce) = ("k".into(), Nonce::from_u128(1));
        pair.requests.call(at(0), Call::Unlock { caller: Some(1), key, nonce, until: at(5000) });
        if sent {
            let _ = pair.take_due(0);
        }
        pair.requests.left_group(at(1), ProcessId(3));
        let answers = pair.answers();
        let [(1, Answer::Unlocked { asked_before, .. })] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!(*asked_before, sent);
        assert_eq!(pair.requests.next_due(), None, "nothing is left to be sent");
    }
}

#[test]
fn of_two_calls_that_have_one_lock_the_first_to_go_does_not_free_it() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), given(1, 1, Until::Never));
    pair.turn(0);
    pair.requests.call(at(5), given(2, 1, Until::Never));
    pair.turn(5);
    assert_eq!(pair.answers().len(), 2);
    pair.requests.call(at(6), cancel(1, 1));
    assert_eq!(keys_held(&mut pair, 6), 1, "the second has it");
    pair.requests.call(at(7), cancel(2, 1));
    assert_eq!(keys_held(&mut pair, 7), 0);
}

/// It was queued for good: granted, the key was held by nobody for a lease.
#[test]
fn a_wait_that_goes_before_its_answer_leaves_no_place_to_a_try_of_its_nonce() {
    let mut pair = Pair::new();
    held_by_other(&mut pair, 9);
    pair.requests.call(at(1), given(1, 1, Until::Never));
    pair.requests.call(at(1), given(2, 1, Until::Now));
    let sent = pair.take_due(1);
    pair.requests.call(at(2), cancel(1, 1));
    pair.apply(3, &sent);
    assert!(matches!(pair.answers()[..], [(2, Answer::Held)]));
    assert_eq!(keys_held(&mut pair, 4), 1);
    pair.apply(5, &[free(9)]);
    assert_eq!(keys_held(&mut pair, 6), 0);
}

#[test]
fn a_wait_is_not_refused_by_the_answer_to_a_try_of_its_nonce() {
    let mut pair = Pair::new();
    held_by_other(&mut pair, 9);
    pair.requests.call(at(1), given(2, 1, Until::Now));
    let first = pair.take_due(1);
    pair.requests.call(at(2), given(3, 1, Until::At(at(5000))));
    let second = pair.take_due(2);
    pair.apply(3, &first);
    assert!(matches!(pair.answers()[..], [(2, Answer::Held)]));
    pair.apply(3, &second);
    assert!(pair.answers().is_empty(), "it waits");
    pair.apply(4, &[free(9)]);
    assert!(matches!(pair.answers()[..], [(3, Answer::Granted { .. })]));
}

fn other(commands: &mut Requests, nonce: u128, until: Until) -> Vec<Command> {
    commands.call(at(0), given(1, nonce, until));
    commands.take_due(at(0), Sending { seen: Seen::Now, over_channel: true })
}

/// It slept to its `max_wait`: the answer was for the other process.
#[test]
fn a_wait_asks_again_when_another_process_ends_the_place_that_it_shares() {
    let waiting = || {
        let mut pair = Pair::new();
        held_by_other(&mut pair, 9);
        pair.requests.call(at(1), given(1, 1, Until::Never));
        pair.turn(1);
        let sent = other(&mut Requests::new(OTHER), 1, Until::Never);
        pair.apply(2, &sent);
        assert_eq!(pair.requests.next_due(), None, "it waits");
        pair
    };
    let mut granted = waiting();
    granted.apply(3, &[free(9)]);
    granted.turn(3);
    assert!(matches!(granted.answers()[..], [(1, Answer::Granted { .. })]));
    let mut unlocked = waiting();
    unlocked.apply(3, &[free(1)]);
    unlocked.turn(3);
    assert!(matches!(unlocked.answers()[..], [(1, Answer::Spent)]));
    let mut dropped = waiting();
    let (key, nonce) = ("k".into(), Nonce::from_u128(1));
    dropped.requests.observe(at(3), &Effect::Dropped { key, nonce, process: OTHER, request: 1 });
    assert_eq!(dropped.requests.next_due(), Some(at(3)));
}

#[test]
fn of_two_that_retry_with_one_nonce_the_first_to_go_withdraws_nothing() {
    let mut pair = Pair::new();
    held_by_other(&mut pair, 9);
    pair.requests.call(at(1), retried(1, 1));
    pair.turn(1);
    assert!(matches!(pair.answers()[..], [(1, Answer::Held)]), "it rests");
    pair.requests.call(at(2), retried(2, 1));
    let sent = pair.take_due(2);
    pair.requests.call(at(3), cancel(2, 1));
    assert!(pair.take_due(3).is_empty(), "the first asks again");
    pair.apply(4, &sent);
    pair.requests.call(at(5), cancel(1, 1));
    assert!(matches!(pair.take_due(5)[..], [Command::Unlock { .. }]), "now nobody does");
}

/// He was remembered for ever as one that asks again, and nobody withdrew what was asked with his nonce.
#[test]
fn who_asks_again_with_a_nonce_that_is_spent_here_rests_no_more() {
    let (key, nonce): (Arc<str>, _) = ("k".into(), Nonce::from_u128(2));
    let (mut pair, _) = resting(&[2]);
    pair.requests.call(at(2), lock(3, "other", 2, Until::Never));
    pair.requests.call(at(3), retried(2, 2));
    assert!(matches!(pair.answers()[..], [(2, Answer::Spent)]), "it is asked for another key");
    assert!(pair.requests.retrying.is_empty());

    let (mut pair, _) = resting(&[2]);
    pair.requests.call(at(2), Call::Unlock { caller: None, key, nonce, until: at(5000) });
    pair.requests.call(at(3), retried(2, 2));
    assert!(matches!(pair.answers()[..], [(2, Answer::Spent)]), "it is given back");
    pair.turn(3);
    pair.requests.call(at(4), given(4, 2, Until::Never));
    assert_eq!(pair.take_due(4).len(), 1);
    pair.requests.call(at(5), cancel(4, 2));
    assert!(matches!(pair.take_due(5)[..], [Command::Unlock { .. }]), "it is withdrawn");
}

#[test]
fn an_extension_that_is_given_up_leaves_nothing_to_be_sent() {
    let mut pair = Pair::new();
    let extend = |caller| {
        let (key, nonce) = ("k".into(), Nonce::from_u128(1));
        Call::Extend { caller, key, nonce, duration_ms: 1000 }
    };
    pair.requests.call(at(0), extend(1));
    pair.requests.call(at(1), extend(2));
    pair.requests.call(at(2), Call::GiveUp { caller: 1 });
    assert_eq!((pair.requests.len(), pair.requests.next_due()), (1, Some(at(1))));
    pair.requests.call(at(2), Call::GiveUp { caller: 1 });
    pair.requests.withdraw_all(at(3));
    assert_eq!((pair.requests.len(), pair.requests.next_due()), (0, None));
    pair.requests.call(at(4), extend(3));
    pair.requests.left_group(at(4), ProcessId(3));
    assert_eq!((pair.requests.len(), pair.requests.next_due()), (0, None));
}

/// Of many extensions of one lock only those are remembered whose answers may still be read; none of
/// these is relied on once the lock has ended.
#[test]
fn an_extension_that_is_read_after_the_end_of_its_lock_is_none() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    drop(pair.answers());
    let nonce = Nonce::from_u128(1);
    let mut extended = |ms, caller| {
        let key = "k".into();
        pair.requests.call(at(ms), Call::Extend { caller, key, nonce, duration_ms: 5000 });
        pair.turn(ms);
        (pair.answers(), pair.requests.held[&nonce].extensions.len())
    };
    let (read, kept) = extended(1, 2);
    assert_eq!(kept, 1);
    assert!(matches!(&read[..], [(2, Answer::Extended { claim, .. })] if claim.take()));
    drop(read);
    let (first, kept) = extended(2, 3);
    assert_eq!(kept, 1, "the former was read");
    let (second, kept) = extended(3, 4);
    assert_eq!(kept, 2);
    pair.apply(4, &[free(1)]);
    for answers in [first, second] {
        assert!(
            matches!(&answers[..], [(_, Answer::Extended { token: Some(1), claim, .. })] if !claim.take())
        );
    }
}

#[test]
fn a_snapshot_that_grants_the_nonce_anew_does_not_keep_its_former_acquisition() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let grant = pair.table.grant("k").unwrap();
    pair.requests.keep_held(|key| pair.table.grant(key));
    assert!(pair.requests.lost_locks().is_empty(), "it lives");
    let anew = Grant { token: grant.token + 1, ..grant.clone() };
    pair.requests.keep_held(|_| Some(anew.clone()));
    assert_eq!(pair.lost(), [(grant.nonce, grant.token)]);
}

#[test]
fn a_snapshot_without_the_grant_ends_what_was_held_and_what_was_adopted() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let other = Grant { nonce: Nonce::from_u128(2), ..pair.table.grant("k").unwrap() };
    pair.requests.keep_held(|_| Some(other.clone()));
    assert_eq!(pair.requests.lost_locks().len(), 1, "another holds the key");

    let mut pair = Pair::new();
    held_by_other(&mut pair, 1);
    let (key, nonce) = ("k".into(), Nonce::from_u128(1));
    pair.requests.call(at(1), Call::Extend { caller: 2, key, nonce, duration_ms: 5000 });
    pair.turn(1);
    pair.requests.keep_held(|key| pair.table.grant(key));
    assert!(pair.requests.lost_locks().is_empty(), "the adopted lock lives");
    let adopted = pair.table.grant("k").unwrap();
    let anew = Grant { token: adopted.token + 1, ..adopted };
    pair.requests.keep_held(|_| Some(anew.clone()));
    assert_eq!(pair.lost(), [(nonce, 1)], "granted anew");
}

/// Once it is forgotten, a nonce may be granted for another key: what is said of the former key ends nothing.
#[test]
fn an_unlock_of_another_key_ends_nothing() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let nonce = Nonce::from_u128(1);
    let unlocked =
        |key: &str| Effect::Unlocked { key: key.into(), nonce, request: 0, was: Ended::Unknown };
    pair.requests.observe(at(1), &unlocked("former"));
    assert!(pair.lost().is_empty());
    pair.requests.observe(at(2), &unlocked("k"));
    assert_eq!(pair.lost(), [(nonce, 1)]);
}

/// The end of the former acquisition was in a snapshot, and this process extends the later one.
#[test]
fn who_extends_a_nonce_granted_anew_has_lost_its_former_acquisition() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let former = pair.table.grant("k").unwrap();
    let (key, nonce) = ("k".into(), former.nonce);
    pair.requests.call(at(1), Call::Extend { caller: 2, key, nonce, duration_ms: 5000 });
    let sent = pair.requests.take_due(at(1), Sending { seen: Seen::Now, over_channel: true });
    let [Command::Extend { process, request, .. }] = sent[..] else { panic!("{sent:?}") };
    let held = Some((former.token + 1, ClusterTime(9)));
    pair.requests.observe(at(2), &Effect::Extended { nonce, process, request, held });
    assert_eq!(pair.lost(), [(nonce, former.token)]);
    pair.requests.left_group(at(3), ProcessId(3));
    assert_eq!(pair.lost(), [(nonce, former.token + 1)]);
}

/// The end of the former acquisition was in the snapshot, and the grant of the later one comes right after it.
#[test]
fn a_nonce_granted_anew_is_another_acquisition_than_the_one_held() {
    let mut pair = Pair::new();
    pair.requests.call(at(0), lock(1, "k", 1, Until::Never));
    pair.turn(0);
    let former = pair.table.grant("k").unwrap();
    pair.requests.call(at(1), lock(2, "k", 1, Until::Never));
    let sent = pair.requests.take_due(at(1), Sending { seen: Seen::Now, over_channel: true });
    let [Command::Lock(asked)] = &sent[..] else { panic!("{sent:?}") };
    let (request, token) = (asked.request, former.token + 1);
    let anew = Grant { request, token, ..former.clone() };
    pair.requests.observe(at(2), &Effect::Granted(anew.clone()));
    assert_eq!(pair.lost(), [(former.nonce, former.token)]);
    pair.requests.keep_held(|_| Some(anew.clone()));
    assert!(pair.requests.lost_locks().is_empty(), "it lives");
    pair.requests.left_group(at(3), ProcessId(3));
    assert_eq!(pair.lost(), [(anew.nonce, anew.token)]);
}
