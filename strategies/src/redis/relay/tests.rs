//! Goal: an unlock behind the relay is sent until it is answered, once, and whoever says it again is told
//! what became of it (contract, outcomes).
//! Method: what the relay keeps, step by step, without a server.

use std::time::Duration;

use super::*;

const NOW: Instant = Instant::from_origin(Duration::from_secs(1));
const FIRST: Nonce = Nonce::from_u128(1);
const LAST: Nonce = Nonce::from_u128(2);

/// A relay of which the first command is under way.
fn under_way() -> (Relay, Command) {
    let relay = Relay::default();
    relay.passed(&"k".into(), 0, FIRST, NOW);
    let command = take(&relay, &[FIRST]);
    (relay, command)
}

/// The next command, which carries these.
fn take(relay: &Relay, nonces: &[Nonce]) -> Command {
    let command = relay.take(NOW).pop().expect("there is one to send");
    assert_eq!(command.unlocks.iter().map(|unlock| unlock.nonce).collect::<Vec<_>>(), nonces);
    command
}

fn answer(relay: &Relay, mut command: Command, were: &[bool]) {
    command.answered(were.iter().copied());
    relay.ended(command);
}

fn is_empty(relay: &Relay) -> bool {
    relay.take(NOW).is_empty() && relay.keys().by_key.is_empty()
}

#[test]
fn a_nonce_has_passed_the_key_on_until_redis_has_answered() {
    let (relay, command) = under_way();
    assert!(relay.has_passed("k", FIRST) && !relay.has_passed("k", LAST));
    // It failed.
    relay.ended(command);
    assert!(relay.has_passed("k", FIRST));
    let command = take(&relay, &[FIRST]);
    assert!(relay.has_passed("k", FIRST));
    answer(&relay, command, &[true]);
    assert!(!relay.has_passed("k", FIRST) && is_empty(&relay));
}

#[test]
fn an_unlock_whose_caller_has_gone_is_sent() {
    let (relay, command) = under_way();
    drop(relay.last("k", LAST, NOW).unwrap());
    relay.ended(command);
    let command = take(&relay, &[FIRST, LAST]);
    // It failed as well.
    relay.ended(command);
    let command = take(&relay, &[FIRST, LAST]);
    answer(&relay, command, &[true, true]);
    assert!(is_empty(&relay));
}

#[test]
fn who_says_it_again_is_told_what_the_first_one_did() {
    let (relay, command) = under_way();
    drop(relay.last("k", LAST, NOW).unwrap());
    answer(&relay, command, &[true]);
    let command = take(&relay, &[LAST]);
    let mut again = relay.last("k", LAST, NOW).unwrap();
    answer(&relay, command, &[true]);
    assert!(matches!(again.try_recv(), Ok(Ok(true))));
    assert!(is_empty(&relay), "it leaves once");
}

#[test]
fn what_is_said_again_before_it_has_left_leaves_once() {
    let (relay, command) = under_way();
    drop(relay.last("k", LAST, NOW).unwrap());
    let mut again = relay.last("k", LAST, NOW).unwrap();
    relay.ended(command);
    let command = take(&relay, &[FIRST, LAST]);
    answer(&relay, command, &[true, true]);
    assert!(matches!(again.try_recv(), Ok(Ok(true))) && is_empty(&relay));
}

#[test]
fn two_that_unlock_the_same_are_answered_one_after_the_other() {
    let (relay, command) = under_way();
    let mut one = relay.last("k", LAST, NOW).unwrap();
    let mut other = relay.last("k", LAST, NOW).unwrap();
    answer(&relay, command, &[true]);
    let command = take(&relay, &[LAST]);
    answer(&relay, command, &[true]);
    let command = take(&relay, &[LAST]);
    answer(&relay, command, &[false]);
    assert!(matches!((one.try_recv(), other.try_recv()), (Ok(Ok(true)), Ok(Ok(false)))));
}
